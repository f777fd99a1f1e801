//! Text that nobody said, beside silence: what models of Whisper's kind write of music, breath and noise.
//!
//! The rules are those of `hallucination_silence_threshold` in OpenAI's implementation and faster-whisper: a segment is *odd* where its
//! words are unlikely, very short or very long. If a window begins with silence and an odd segment, the silence is skipped and the rest is
//! heard again. Another odd segment is left out, and what follows it is heard again, if there is silence (or more that is odd) on both
//! sides of it. Pure functions of segments with words.

use crate::words::is_mark;
use crate::{Error, Result, Segment, TranscribeOptions, Word};

/// A word with a lower probability is odd.
const UNLIKELY: f64 = 0.15;
/// A shorter word is odd, by so much for each second.
const SHORT_S: f64 = 0.133;
const SHORT_WEIGHT: f64 = 15.0;
/// A longer word is odd, by each second.
const LONG_S: f64 = 2.0;
/// Words of a segment that are looked at, and from which sum of their oddness on it is odd.
const LOOKED_AT: usize = 8;
const ODD: f64 = 3.0;
/// A segment of few words is odd where each of them is, but for this much.
const SLACK: f64 = 0.01;
/// So near to the ends of a window there may be silence that it does not show.
const EDGE_S: f64 = 2.0;
/// After text that is left out, the next window begins at least so much later than this one.
const LEAST_STEP_S: f64 = 1.0;
/// Least silence that can be asked for: shorter steps would hear the same sound again and again.
const LEAST_S: f64 = 0.1;

/// A window whose text was written: where it lies in the recording, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    pub(crate) begin_s: f64,
    /// Of the sound in it.
    pub(crate) length_s: f64,
    /// Of all that the model hears at once.
    pub(crate) window_s: f64,
    /// Of the recording.
    pub(crate) duration_s: f64,
    /// Where the last segment with words before it ended.
    pub(crate) spoken_s: f64,
}

/// What becomes of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phantom {
    /// So many of its segments stay.
    pub(crate) kept: usize,
    /// The next window begins there, in seconds from its beginning.
    pub(crate) until_s: f64,
}

/// Whether silence of this length makes sense.
///
/// # Errors
/// [`Error::Option`] for what is no number of seconds, or too few.
pub(crate) fn check(options: &TranscribeOptions) -> Result<()> {
    match options.hallucination_silence_s {
        Some(found) if !(found.is_finite() && found >= LEAST_S) => Err(Error::Option(format!(
            "the silence around what nobody said should have at least {LEAST_S} seconds, found {found}"
        ))),
        _ => Ok(()),
    }
}

/// Looks for text that nobody said, beside at least `silence_s` of silence; `None` where all stays. The segments have their words.
pub(crate) fn find(segments: &[Segment], around: &Around, silence_s: f64) -> Option<Phantom> {
    let with_words = |from: usize| segments[from..].iter().find(|segment| !segment.words.is_empty());
    let first = with_words(0).filter(|first| is_odd(first));
    if let Some(gap_s) = first
        .map(|first| first.start_s - around.begin_s)
        .filter(|gap| *gap > silence_s)
    {
        return Some(Phantom {
            kept: 0,
            until_s: gap_s,
        });
    }
    let mut before_s = around.spoken_s;
    for (i, segment) in segments.iter().enumerate() {
        let Some(_) = segment.words.first() else {
            continue;
        };
        if is_odd(segment) {
            let next = with_words(i + 1);
            let next_s = next
                .and_then(|next| next.words.first())
                .map_or(around.begin_s + around.length_s, |word| word.start_s);
            let is_silent_before = segment.start_s - before_s > silence_s
                || segment.start_s < silence_s
                || segment.start_s - around.begin_s < EDGE_S;
            let is_silent_behind = next_s - segment.end_s > silence_s
                || next.is_some_and(is_odd)
                || around.begin_s + around.window_s - segment.end_s < EDGE_S;
            if is_silent_before && is_silent_behind {
                let is_last = around.duration_s - segment.end_s < silence_s;
                return Some(Phantom {
                    kept: i,
                    until_s: match is_last {
                        true => around.duration_s - around.begin_s,
                        false => (segment.start_s - around.begin_s).max(LEAST_STEP_S),
                    },
                });
            }
        }
        before_s = segment.end_s;
    }
    None
}

/// Whether nobody may have said a segment.
fn is_odd(segment: &Segment) -> bool {
    let words = segment.words.iter().filter(|word| !is_mark(&word.text));
    let words: Vec<&Word> = words.take(LOOKED_AT).collect();
    let sum: f64 = words.iter().copied().map(oddness).sum();
    !segment.words.is_empty() && (sum >= ODD || sum + SLACK >= words.len() as f64)
}

fn oddness(word: &Word) -> f64 {
    let length_s = word.end_s - word.start_s;
    let unlikely = if word.probability < UNLIKELY { 1.0 } else { 0.0 };
    unlikely + (SHORT_S - length_s).max(0.0) * SHORT_WEIGHT + (length_s - LONG_S).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as start, length and probability.
    fn segment(words: &[(f64, f64, f64)]) -> Segment {
        let word = |&(start_s, length_s, probability): &(f64, f64, f64)| Word {
            text: " hm".to_owned(),
            start_s,
            end_s: start_s + length_s,
            probability,
        };
        let words: Vec<Word> = words.iter().map(word).collect();
        Segment {
            start_s: words.first().map_or(0.0, |w| w.start_s),
            end_s: words.last().map_or(0.0, |w| w.end_s),
            words,
            ..Segment::default()
        }
    }

    /// Four words of 0.4 s that are likely, and as many that are not.
    fn said(start_s: f64) -> Segment {
        segment(&[0.0, 0.5, 1.0, 1.5].map(|at| (start_s + at, 0.4, 0.9)))
    }

    fn odd(start_s: f64) -> Segment {
        segment(&[0.0, 0.5, 1.0, 1.5].map(|at| (start_s + at, 0.4, 0.1)))
    }

    #[test]
    fn odd_segments_have_unlikely_short_or_long_words() {
        let likely = |n: usize| vec![(0.0, 0.4, 0.9); n];
        for (words, expected, why) in [
            (vec![], false, "no words"),
            (likely(1), false, "a word"),
            (vec![(0.0, 0.4, 0.14)], true, "an unlikely word"),
            (vec![(0.0, 0.4, 0.15)], false, "one that is just likely"),
            ([vec![(0.0, 0.4, 0.1); 3], likely(9)].concat(), true, "three of many"),
            ([vec![(0.0, 0.4, 0.1); 2], likely(2)].concat(), false, "two of four"),
            (
                [likely(8), vec![(0.0, 0.4, 0.1); 8]].concat(),
                false,
                "only the first eight count",
            ),
            // 15 * (0.133 - 0.066) is a little more than 1.
            (vec![(0.0, 0.066, 0.9)], true, "a short word"),
            (vec![(0.0, 0.068, 0.9)], false, "a word that is less short"),
            (vec![(0.0, 3.0, 0.9)], true, "a long word"),
            (vec![(0.0, 2.9, 0.9)], false, "a word that is less long"),
            (
                [vec![(0.0, 5.0, 0.9)], likely(20)].concat(),
                true,
                "a very long one of many",
            ),
        ] {
            assert_eq!(is_odd(&segment(&words)), expected, "{why}");
        }
        // Marks are no words; of nothing else each is odd.
        let mut marked = segment(&[(0.0, 0.4, 0.1), (0.4, 0.4, 0.9)]);
        assert!(!is_odd(&marked));
        marked.words[1].text = "?".to_owned();
        assert!(is_odd(&marked));
    }

    const AROUND: Around = Around {
        begin_s: 60.0,
        length_s: 30.0,
        window_s: 30.0,
        duration_s: 200.0,
        spoken_s: 59.0,
    };

    #[test]
    fn silence_before_an_odd_segment_is_skipped() {
        let phantom = |kept, until_s| Some(Phantom { kept, until_s });
        for (segments, expected, why) in [
            (vec![said(65.0)], None, "all was said"),
            (vec![], None, "nothing"),
            // The window begins again where its text did.
            (vec![odd(65.0), said(70.0)], phantom(0, 5.0), "behind silence"),
            // Segments without words are not looked at.
            (
                vec![segment(&[]), odd(65.0)],
                phantom(0, 5.0),
                "behind one without words",
            ),
        ] {
            assert_eq!(find(&segments, &AROUND, 2.0), expected, "{why}");
        }
        assert_eq!(
            find(&[odd(65.0), said(66.9)], &AROUND, 6.0),
            None,
            "less silence than asked for"
        );
    }

    #[test]
    fn odd_segments_with_silence_on_both_sides_are_left_out() {
        for (segments, expected, why) in [
            // Ends are 1.9 s behind beginnings.
            (vec![said(60.0), odd(65.0), said(72.0)], Some((1, 5.0)), "alone"),
            (
                vec![said(60.0), odd(63.0), said(72.0)],
                None,
                "right behind what was said",
            ),
            (vec![said(60.0), odd(65.0), said(68.0)], None, "right before it"),
            (
                vec![said(60.0), odd(65.0), odd(67.0), said(69.0)],
                Some((1, 5.0)),
                "more that is odd",
            ),
            (vec![odd(61.0), said(70.0)], Some((0, 1.0)), "at the beginning"),
            (vec![odd(60.5), said(70.0)], Some((0, 1.0)), "at least a second on"),
            (
                vec![said(60.0), odd(86.0)],
                Some((1, 26.0)),
                "before the end of the sound",
            ),
            (
                vec![said(60.0), odd(87.0)],
                Some((1, 27.0)),
                "at the edge of the window",
            ),
            (vec![said(60.0), said(65.0)], None, "nothing is odd"),
        ] {
            let expected = expected.map(|(kept, until_s)| Phantom { kept, until_s });
            assert_eq!(find(&segments, &AROUND, 2.0), expected, "{why}");
        }
        // Where the recording is over, so is all.
        let last = Around {
            duration_s: 88.5,
            length_s: 28.5,
            ..AROUND
        };
        let expected = Phantom { kept: 1, until_s: 28.5 };
        assert_eq!(find(&[said(60.0), odd(86.5)], &last, 2.0), Some(expected));
        // Speech at the very beginning of a recording has silence before it.
        let first = Around {
            begin_s: 0.0,
            spoken_s: 0.0,
            ..AROUND
        };
        assert_eq!(find(&[odd(2.5), said(10.0)], &first, 3.0).map(|p| p.kept), Some(0));
        assert_eq!(find(&[odd(3.0), said(10.0)], &first, 3.0), None);
    }

    #[test]
    fn silence_that_makes_no_sense_is_refused() {
        let options = |s| TranscribeOptions {
            hallucination_silence_s: s,
            ..TranscribeOptions::default()
        };
        for seconds in [None, Some(0.1), Some(2.0), Some(1e9)] {
            check(&options(seconds)).unwrap();
        }
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = check(&options(Some(seconds))).unwrap_err().to_string();
            assert!(error.contains(&format!("found {seconds}")), "{error}");
        }
    }
}
