//! Transcription of the spans of speech alone: silence is cut out before, and put back into the times after.

use crate::{Error, Progress, Result, Segment, Span, TranscribeOptions, Transcriber, Transcript};
use cactus_audio::{Samples, Sound};
use cactus_engine::CancelToken;
use std::cell::Cell;

/// Seconds around a cut in which a time may belong to the span on the other side, where most of its stretch lies. Spans for
/// transcription have as much silence at each end.
const NEAR_CUT_S: f64 = 0.4;

impl Transcriber {
    /// As [`Transcriber::transcribe`], of the `spans` of `samples` alone (in samples, ascending, apart); times are those of the
    /// whole recording. [`crate::Vad::spans`] finds them.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`]; spans that do not lie in the recording one after the other.
    pub fn transcribe_spans(
        &mut self,
        samples: &[f32],
        spans: &[Span],
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        self.transcribe_spans_of(&mut Samples::new(samples), spans, options, cancel, each)
    }

    /// As [`Transcriber::transcribe_spans`], of a recording that is read while it is transcribed, as
    /// [`Transcriber::transcribe_sound`] reads it. [`crate::Vad::spans_of`] finds the spans.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe_spans`]; those of reading.
    pub fn transcribe_spans_of(
        &mut self,
        sound: &mut dyn Sound,
        spans: &[Span],
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let rate = f64::from(self.sample_rate_hz());
        let task = self.prepare(options)?;
        let length = Cell::new(0);
        let mut speech = Speech {
            sound,
            spans,
            part: Vec::new(),
            at: 0,
            length: &length,
        };
        let heard = self.ear.hear_levelled(&mut speech, self.local.is_some(), cancel)?;
        let cuts = Cuts::new(spans, length.get(), rate)?;
        let duration_s = length.get() as f64 / rate;
        let mut end = 0;
        let ends = spans.iter().map(|span| {
            end += (span.end - span.start) as usize;
            end
        });
        let ends: Vec<usize> = ends.collect();
        let mut transcript = self.transcribe_heard(heard, &ends, task, options, cancel, &mut |progress| {
            let segments: Vec<Segment> = progress.segments.iter().map(|s| cuts.restored(s)).collect();
            each(Progress {
                done_s: cuts.end(progress.done_s).min(duration_s),
                duration_s,
                segments: &segments,
            });
        })?;
        transcript.segments.iter_mut().for_each(|s| *s = cuts.restored(s));
        transcript.duration_s = duration_s;
        each(Progress {
            done_s: duration_s,
            duration_s,
            segments: &[],
        });
        Ok(transcript)
    }
}

/// The speech of a recording, without what lies between.
struct Speech<'a> {
    sound: &'a mut dyn Sound,
    spans: &'a [Span],
    /// What was read last, and where it ends.
    part: Vec<f32>,
    at: u64,
    /// Samples of the recording, once it was read.
    length: &'a Cell<u64>,
}

impl Sound for Speech<'_> {
    fn rewind(&mut self) -> std::result::Result<(), cactus_audio::Error> {
        self.at = 0;
        self.sound.rewind()
    }

    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, cactus_audio::Error> {
        self.part.clear();
        let more = self.sound.read(&mut self.part)?;
        let (from, to) = (self.at, self.at + self.part.len() as u64);
        self.at = to;
        let first = self.spans.partition_point(|span| span.end <= from);
        for span in self.spans[first..].iter().take_while(|span| span.start < to) {
            let place = |sample: u64| (sample.clamp(from, to) - from) as usize;
            // Spans that make no sense are refused when the length is known.
            let inside = self.part.get(place(span.start)..place(span.end));
            out.extend_from_slice(inside.unwrap_or_default());
        }
        if !more {
            self.length.set(to);
        }
        Ok(more)
    }
}

/// Where silence was cut out. Times of the speech alone are in seconds.
struct Cuts {
    kept: Vec<Kept>,
}

/// A span, in seconds.
struct Kept {
    /// Where it begins and ends in the speech alone.
    from_s: f64,
    to_s: f64,
    /// Silence that was cut out before it.
    before_s: f64,
}

impl Cuts {
    fn new(spans: &[Span], samples: u64, rate: f64) -> Result<Cuts> {
        let mut kept = Vec::with_capacity(spans.len());
        let (mut end, mut speech) = (0, 0);
        for span in spans {
            if !(end <= span.start && span.start <= span.end && span.end <= samples) {
                return Err(Error::Option(format!(
                    "spans should follow each other in the {samples} samples of the recording, found {} to {} after {end}",
                    span.start, span.end
                )));
            }
            let to = speech + (span.end - span.start);
            kept.push(Kept {
                from_s: speech as f64 / rate,
                to_s: to as f64 / rate,
                before_s: (span.start - speech) as f64 / rate,
            });
            (end, speech) = (span.end, to);
        }
        Ok(Cuts { kept })
    }

    /// The span in which a stretch begins at `s`: at a cut, the later one.
    fn of_start(&self, s: f64) -> usize {
        let after = self.kept.partition_point(|k| k.to_s <= s);
        after.min(self.kept.len().saturating_sub(1))
    }

    /// The span in which a stretch ends at `s`: at a cut, the earlier one.
    fn of_end(&self, s: f64) -> usize {
        let after = self.kept.partition_point(|k| k.to_s < s);
        after.min(self.kept.len().saturating_sub(1))
    }

    /// Where the speech up to `s` ends in the recording.
    fn end(&self, s: f64) -> f64 {
        self.kept.get(self.of_end(s)).map_or(s, |k| s + k.before_s)
    }

    /// Beginning and end in the recording. What only reaches over a cut, by less than it has on the other side, does not: most of
    /// a word says where it is.
    fn stretch(&self, start_s: f64, end_s: f64) -> (f64, f64) {
        if self.kept.is_empty() {
            return (start_s, end_s);
        }
        let mut first = self.of_start(start_s);
        let mut last = self.of_end(end_s).max(first);
        let (mut start, mut end) = (start_s, end_s);
        if first < last {
            let cut = self.kept[first].to_s;
            if cut - start < NEAR_CUT_S && cut - start < end - cut {
                first += 1;
                start = cut;
            }
        }
        if first < last {
            let cut = self.kept[last].from_s;
            if end - cut < NEAR_CUT_S && end - cut <= cut - start {
                last -= 1;
                end = cut;
            }
        }
        (start + self.kept[first].before_s, end + self.kept[last].before_s)
    }

    fn restored(&self, segment: &Segment) -> Segment {
        let mut words = segment.words.clone();
        for word in &mut words {
            (word.start_s, word.end_s) = self.stretch(word.start_s, word.end_s);
        }
        let (start_s, end_s) = match (words.first(), words.last()) {
            // They begin and end with the segment.
            (Some(first), Some(last)) => (first.start_s, last.end_s),
            _ => self.stretch(segment.start_s, segment.end_s),
        };
        Segment {
            start_s,
            end_s,
            window_s: self.stretch(segment.window_s, segment.window_s).0,
            words,
            ..segment.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts() -> Cuts {
        // Speech from 1 to 3 s, 10 to 12 s, and 20 to 21 s: 0 to 2, 2 to 4 and 4 to 5 without the silence.
        let spans = [(10, 30), (100, 120), (200, 210)].map(|(start, end)| Span { start, end });
        Cuts::new(&spans, 300, 10.0).unwrap()
    }

    #[test]
    fn times_of_speech_alone_are_put_back_into_the_recording() {
        for (stretch, expected, why) in [
            ((0.0, 1.5), (1.0, 2.5), "in the first span"),
            ((0.0, 2.0), (1.0, 3.0), "up to the cut"),
            ((2.0, 3.0), (10.0, 11.0), "from the cut on"),
            ((1.0, 3.0), (2.0, 11.0), "over the cut"),
            ((1.9, 3.0), (10.0, 11.0), "mostly behind the cut"),
            ((1.0, 2.1), (2.0, 3.0), "mostly before the cut"),
            ((1.9, 2.05), (2.9, 3.0), "a word, mostly before the cut"),
            ((0.5, 4.5), (1.5, 20.5), "over two cuts"),
            ((4.5, 5.0), (20.5, 21.0), "up to the end"),
            ((4.9, 5.2), (20.9, 21.2), "beyond the end"),
        ] {
            let found = cuts().stretch(stretch.0, stretch.1);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(
                near(found.0, expected.0) && near(found.1, expected.1),
                "{why}: {found:?}"
            );
        }
        assert_eq!(Cuts::new(&[], 10, 10.0).unwrap().stretch(0.5, 1.0), (0.5, 1.0));
    }

    #[test]
    fn speech_is_read_without_what_lies_between() {
        let samples: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
        let spans =
            [(0, 1), (1, 4095), (4096, 4096), (4097, 9000), (9999, 10_000)].map(|(start, end)| Span { start, end });
        let expected: Vec<f32> = spans
            .iter()
            .flat_map(|s| samples[s.start as usize..s.end as usize].to_vec())
            .collect();
        let mut sound = Samples::new(&samples);
        let length = Cell::new(0);
        let mut speech = Speech {
            sound: &mut sound,
            spans: &spans,
            part: Vec::new(),
            at: 0,
            length: &length,
        };
        for _ in 0..2 {
            let mut found = Vec::new();
            speech.rewind().unwrap();
            while speech.read(&mut found).unwrap() {}
            assert_eq!((found, length.get()), (expected.clone(), 10_000));
        }
    }

    #[test]
    fn spans_that_do_not_follow_each_other_are_refused() {
        for spans in [[(0, 5), (4, 6)], [(3, 2), (4, 5)], [(0, 5), (6, 11)], [(5, 6), (0, 1)]] {
            let spans = spans.map(|(start, end)| Span { start, end });
            assert!(Cuts::new(&spans, 10, 10.0).is_err(), "{spans:?}");
        }
    }
}
