//! Speech to text by two models: which pieces of a recording are heard again elsewhere, and what becomes of what comes back.
//!
//! ```text
//! local model ─► Segment (id, revision 0, words with times and confidence) ─► shown
//!                  │ doubt(): unlikely text, expected errors, doubtful numbers and names
//!                  └─ pieces() of the recording ─► target ─► Heard ─► merge() ─► the same id, revision 1
//! ```
//!
//! A segment is what stands between two pauses, 2 to 10 seconds. Who shows a transcript replaces a segment by one of its id
//! with a higher revision, and nothing else changes. What comes later than three seconds after the segment was shown is marked
//! as an amendment, as a reader may have gone on.
//!
//! Words that the local model is sure of are kept, whatever the target has heard: it hears the margins of the piece worse. What
//! is too long or too short for the piece, or is said where nobody spoke, is refused whole.
//!
//! It depends on nothing of this crate. It knows no model and no sound: words, times and confidences are inputs, so recorded
//! events can be played again.

mod align;
mod pieces;
mod share;
#[cfg(test)]
mod tests;

pub use pieces::{Piece, pieces};
pub use share::share;

use align::{Pair, align};

/// A word.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Word {
    /// Its letters, with the punctuation that belongs to it.
    pub text: String,
    /// Where it begins, in milliseconds of the recording.
    pub start_ms: u64,
    /// Where it ends.
    pub end_ms: u64,
    /// The probability that it is right; `None` where nobody says.
    pub confidence: Option<f64>,
}

/// A piece of a transcript.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Segment {
    /// Names it, whatever becomes of its words.
    pub id: u64,
    /// How often it was changed.
    pub revision: u32,
    /// Where it begins, in milliseconds of the recording.
    pub start_ms: u64,
    /// Where it ends.
    pub end_ms: u64,
    /// Whether somebody speaks in it, as far as the detector of speech says.
    pub speech: bool,
    /// Mean natural logarithm of the probabilities of its tokens; `None` where nobody says.
    pub logprob: Option<f64>,
    /// Its words, in order.
    pub words: Vec<Word>,
    /// It was changed after a reader may have gone on.
    pub amended: bool,
}

impl Segment {
    /// Its words with spaces between them.
    #[must_use]
    pub fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }
}

/// What a target has heard in the span of a segment.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Heard {
    /// The segment.
    pub id: u64,
    /// Its revision when it was sent.
    pub revision: u32,
    /// The words. Times are those of the recording; all 0 where the target gives none.
    pub words: Vec<Word>,
    /// Whether it had the recording. One that only had the text cannot know numbers.
    pub heard: bool,
}

/// When a segment is doubtful, and what is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A segment whose mean log-probability is below this is doubtful: natural logarithms, of each token.
    pub least_logprob: f64,
    /// More expected errors than this are too many.
    pub expected_errors: f64,
    /// A number or name below this is doubtful.
    pub doubtful: f64,
    /// A word of this confidence is kept.
    pub kept: f64,
    /// Of the recording, before and after a segment, that the target hears too.
    pub margin_ms: u64,
    /// No piece is longer, margins included.
    pub longest_ms: u64,
    /// Least and most length of what was heard, as a share of the letters of the segment.
    pub length: [f64; 2],
    /// What comes later than this after it was shown is an amendment.
    pub late_ms: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            least_logprob: -0.7,
            expected_errors: 1.0,
            doubtful: 0.7,
            kept: 0.9,
            margin_ms: 300,
            longest_ms: 30_000,
            length: [0.5, 2.0],
            late_ms: 3_000,
        }
    }
}

/// Why a segment should be heard again.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// Its tokens are unlikely: the mean logarithm of their probabilities.
    Unlikely(f64),
    /// So many of its words are expected to be wrong.
    Errors(f64),
    /// This number or name is doubtful.
    Word(String),
}

/// Why what was heard changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is of another segment.
    #[error("it is of another segment")]
    Other,
    /// The segment has changed since.
    #[error("the segment has changed since it was sent")]
    Stale,
    /// Nobody speaks in the segment.
    #[error("nobody speaks in the segment")]
    Silence,
    /// It is too long or too short for the segment.
    #[error("it is too long or too short for the segment")]
    Length,
}

/// Why a segment should be heard again; `None` where it should not.
#[must_use]
pub fn doubt(segment: &Segment, rules: &Rules) -> Option<Doubt> {
    if let Some(logprob) = segment.logprob.filter(|logprob| *logprob < rules.least_logprob) {
        return Some(Doubt::Unlikely(logprob));
    }
    let doubtful = |word: &&Word| matters(word, &segment.words) && word.confidence.is_some_and(|p| p < rules.doubtful);
    if let Some(word) = segment.words.iter().find(doubtful) {
        return Some(Doubt::Word(word.text.clone()));
    }
    let errors: f64 = segment
        .words
        .iter()
        .filter_map(|word| word.confidence)
        .map(|p| 1.0 - p.clamp(0.0, 1.0))
        .sum();
    (errors > rules.expected_errors).then_some(Doubt::Errors(errors))
}

/// The segment with what was heard, `after_ms` after the segment was shown. Where nothing changes, it is the same revision.
///
/// # Errors
/// [`Refused`].
pub fn merge(segment: &Segment, heard: &Heard, after_ms: u64, rules: &Rules) -> Result<Segment, Refused> {
    if heard.id != segment.id {
        return Err(Refused::Other);
    }
    if heard.revision != segment.revision {
        return Err(Refused::Stale);
    }
    let timed = heard.words.iter().any(|word| word.end_ms > 0);
    // Of the margins, what lies outside the segment belongs to its neighbors.
    let inside = |word: &&Word| {
        let middle = word.start_ms.midpoint(word.end_ms);
        !timed || (segment.start_ms..=segment.end_ms).contains(&middle)
    };
    let theirs: Vec<&Word> = heard.words.iter().filter(inside).collect();
    let letters = |words: &mut dyn Iterator<Item = &Word>| words.map(|word| word.text.chars().count()).sum::<usize>();
    let (was, now) = (letters(&mut segment.words.iter()), letters(&mut theirs.iter().copied()));
    if !segment.speech && now > 0 {
        return Err(Refused::Silence);
    }
    let [least, most] = rules.length.map(|share| share * was as f64);
    if was > 0 && !(least..=most).contains(&(now as f64)) {
        return Err(Refused::Length);
    }
    let mut words = Vec::new();
    for pair in align(&segment.words, &theirs, timed) {
        match pair {
            Pair::Both(ours, theirs) if keeps(ours, theirs, heard, rules) => words.push(ours.clone()),
            Pair::Both(ours, theirs) => words.push(Word {
                start_ms: if timed { theirs.start_ms } else { ours.start_ms },
                end_ms: if timed { theirs.end_ms } else { ours.end_ms },
                ..theirs.clone()
            }),
            Pair::Ours(ours) if ours.confidence.is_some_and(|p| p >= rules.kept) => words.push(ours.clone()),
            Pair::Ours(_) => {}
            Pair::Theirs(theirs) if !heard.heard && has_digit(&theirs.text) => {}
            Pair::Theirs(theirs) => {
                let at = words.last().map_or(segment.start_ms, |word: &Word| word.end_ms);
                words.push(Word {
                    start_ms: if timed { theirs.start_ms } else { at },
                    end_ms: if timed { theirs.end_ms } else { at },
                    ..theirs.clone()
                });
            }
        }
    }
    let same = words.len() == segment.words.len() && words.iter().zip(&segment.words).all(|(a, b)| a.text == b.text);
    if same {
        return Ok(segment.clone());
    }
    Ok(Segment {
        revision: segment.revision + 1,
        words,
        amended: segment.amended || after_ms > rules.late_ms,
        ..segment.clone()
    })
}

/// Whether our word stays where the target has heard another.
fn keeps(ours: &Word, theirs: &Word, heard: &Heard, rules: &Rules) -> bool {
    let sure = ours.confidence.is_some_and(|p| p >= rules.kept);
    // Who has only read the text makes numbers up.
    let read = !heard.heard && (has_digit(&ours.text) || has_digit(&theirs.text));
    sure || read || align::plain(&ours.text) == align::plain(&theirs.text)
}

/// Whether an error in a word matters more than in others: a number, or a name, which is a capital letter within a sentence.
fn matters(word: &Word, words: &[Word]) -> bool {
    let first = words
        .iter()
        .position(|other| std::ptr::eq(other, word))
        .is_none_or(|at| at == 0 || words[at - 1].text.ends_with(['.', '!', '?']));
    has_digit(&word.text) || (!first && word.text.chars().next().is_some_and(char::is_uppercase))
}

fn has_digit(text: &str) -> bool {
    text.chars().any(char::is_numeric)
}
