//! What was said.

use serde::{Serialize, Serializer};

/// What was said in a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transcript {
    /// Code of the language, such as `de`; `None` of a model that knows only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Length of the recording in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub duration_s: f64,
    /// In the order of time.
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// The text of all segments.
    #[must_use]
    pub fn text(&self) -> String {
        let all: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        all.trim().to_owned()
    }

    /// Adds what was said after all others, but for what has no text, or no time for one.
    pub(crate) fn add(&mut self, segments: Vec<Segment>) {
        for segment in segments {
            if !segment.text.trim().is_empty() && segment.end_s > segment.start_s {
                let id = self.segments.len();
                self.segments.push(Segment { id, ..segment });
            }
        }
    }
}

/// A stretch of speech.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Segment {
    /// Its number, from 0.
    pub id: usize,
    /// When it begins, in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub start_s: f64,
    /// When it ends, in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub end_s: f64,
    /// What is said, with the space that parts it from what is before.
    pub text: String,
    /// The tokens of the text.
    pub tokens: Vec<u32>,
    /// Mean natural logarithm of the probability of its window's tokens, the one that ends them included where there is one.
    pub mean_logprob: f64,
    /// How sure the model was of it, from 0 to 1: the geometric mean of the probabilities of its own tokens, as they were written, which is
    /// *e* to the power of their mean natural logarithm. 0 where the text of its window repeats itself, but for models whose text goes
    /// along with the sound: they repeat what is repeated. It is no calibrated
    /// probability of being right; it puts segments in order.
    pub confidence: f64,
    /// Probability that nobody speaks in its window.
    pub no_speech: f64,
    /// Temperature at which its window was written.
    pub temperature: f64,
    /// Bytes of its window's text by bytes of it compressed: text that repeats itself has a large one.
    pub compression: f64,
    /// When its window begins, in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub window_s: f64,
    /// Its words, where they were asked for ([`crate::TranscribeOptions::words`]). They begin and end with the segment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Word>,
}

/// A word, with the punctuation that belongs to it. In languages without spaces it is a character or a few.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Word {
    /// What is said, with the space that parts it from what is before.
    pub text: String,
    /// When it begins, in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub start_s: f64,
    /// When it ends, in seconds.
    #[serde(serialize_with = "in_milliseconds")]
    pub end_s: f64,
    /// Mean probability of its tokens, as they were written: a sign of how sure the model was.
    pub probability: f64,
}

/// Seconds as documents have them: without what lies below a millisecond.
#[must_use]
pub fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

pub(crate) fn in_milliseconds<S: Serializer>(seconds: &f64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_f64(milliseconds(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_times_in_milliseconds() {
        let segment = Segment {
            start_s: 0.26 + 2.0,
            end_s: 4.000_6,
            words: vec![Word {
                text: " a".to_owned(),
                start_s: 0.1 + 0.2,
                end_s: 1.0 / 3.0,
                probability: 1.0 / 3.0,
            }],
            ..Segment::default()
        };
        let written = serde_json::to_value(&segment).unwrap();
        assert_eq!((&written["start_s"], &written["end_s"]), (&2.26.into(), &4.001.into()));
        let word = &written["words"][0];
        assert_eq!((&word["start_s"], &word["end_s"]), (&0.3.into(), &0.333.into()));
        assert_eq!(word["probability"], 1.0 / 3.0, "no time");
    }
}
