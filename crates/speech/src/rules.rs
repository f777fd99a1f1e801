//! Which tokens may come next, after Whisper's rules for timestamps (`ApplyTimestampRules` of its authors).
//!
//! Pure functions of what was written and a row of logits; sums are in `f64`, in one order, so they have the same bits on
//! every machine.

use cactus_bundle::{Prompted, Timestamps};
use cactus_engine::sampler::{largest, log_sum_exp};

/// The latest time that a window's first segment may begin at, in milliseconds.
const LATEST_FIRST_MS: u32 = 1000;

/// What holds for every window of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rules {
    /// Ends the window.
    pub(crate) end: u32,
    /// Tokens of times, where they are wanted.
    pub(crate) stamps: Option<Timestamps>,
    /// The last of them that may come first.
    pub(crate) latest_first: Option<u32>,
    /// Never written.
    pub(crate) never: Vec<u32>,
    /// Never written first.
    pub(crate) never_first: Vec<u32>,
}

/// The least finite number: samplers refuse infinities.
const NO: f32 = f32::MIN;

impl Rules {
    pub(crate) fn of(prompted: &Prompted) -> Rules {
        let special = [
            prompted.previous,
            prompted.no_speech,
            prompted.no_timestamps,
            prompted.transcribe,
            prompted.translate,
        ];
        let mut never = prompted.suppressed.clone();
        never.extend(special.into_iter().flatten());
        never.push(prompted.start);
        never.extend(prompted.languages.values());
        Rules {
            end: prompted.end,
            stamps: prompted.timestamps,
            latest_first: prompted.timestamps.map(|t| LATEST_FIRST_MS / t.step_ms.max(1)),
            never,
            never_first: prompted.suppressed_first.clone(),
        }
    }

    /// The same for texts without times.
    pub(crate) fn without_times(mut self) -> Rules {
        let stamps = self.stamps.take();
        self.never.extend(
            stamps
                .into_iter()
                .flat_map(|t| t.first..t.first.saturating_add(t.count)),
        );
        self.latest_first = None;
        self
    }

    /// The same behind the beginning of a text.
    pub(crate) fn continued(mut self) -> Rules {
        self.never_first.clear();
        self
    }

    /// Whether a token stands for a time.
    pub(crate) fn is_stamp(&self, token: u32) -> bool {
        self.stamps
            .is_some_and(|t| (t.first..t.first + t.count).contains(&token))
    }

    /// Takes away from `logits` what may not follow `written`, the tokens of this window. What is not a number counts as
    /// impossible.
    pub(crate) fn apply(&self, written: &[u32], logits: &mut [f32]) {
        for logit in logits.iter_mut().filter(|l| l.is_nan() || **l == f32::NEG_INFINITY) {
            *logit = NO;
        }
        let mut without = |token: u32| {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = NO;
            }
        };
        self.never.iter().copied().for_each(&mut without);
        if written.is_empty() {
            self.never_first.iter().copied().for_each(&mut without);
        }
        if let Some(stamps) = self.stamps {
            self.apply_stamps(stamps, written, logits);
        }
    }

    fn apply_stamps(&self, stamps: Timestamps, written: &[u32], logits: &mut [f32]) {
        let first = (stamps.first as usize).min(logits.len());
        let behind = (first + stamps.count as usize).min(logits.len());
        let (end, stamp) = (self.end as usize, |place: usize| {
            written.len().checked_sub(place).map(|i| written[i])
        });
        let last_is = stamp(1).is_some_and(|t| self.is_stamp(t));
        let one_before_is = stamp(2).is_none_or(|t| self.is_stamp(t));
        if last_is && one_before_is {
            // A pair is closed: text follows, or the end.
            logits[first..behind].fill(NO);
        } else if last_is {
            // Text was closed: the next segment begins, or it is the end.
            text(logits, first, behind, end);
        }
        if let Some(&last) = written.iter().rev().find(|&&t| self.is_stamp(t)) {
            // Times do not go back, and no segment has no length.
            let open = last_is && !one_before_is;
            let least = last as usize + usize::from(!open);
            logits[first..least.clamp(first, behind)].fill(NO);
        }
        if written.is_empty() {
            text(logits, first, behind, end);
            if let Some(logit) = logits.get_mut(end) {
                *logit = NO;
            }
            if let Some(latest) = self.latest_first {
                let late = first + latest as usize + 1;
                logits[late.min(behind)..behind].fill(NO);
            }
        }
        // Where a time is likelier than any text, it is a time.
        let times = &logits[first..behind];
        let likeliest = largest(times);
        if likeliest <= NO {
            return;
        }
        let others = largest(&logits[..first]).max(largest(&logits[behind..]));
        if log_sum_exp(times, f64::from(likeliest)) > f64::from(others) {
            text(logits, first, behind, end);
            if let Some(logit) = logits.get_mut(end) {
                *logit = NO;
            }
        }
    }
}

/// Takes away everything but times and the end.
fn text(logits: &mut [f32], first: usize, behind: usize, end: usize) {
    for (token, logit) in logits.iter_mut().enumerate() {
        if !(first..behind).contains(&token) && token != end {
            *logit = NO;
        }
    }
}

/// Natural logarithms of the probabilities of tokens, of a row of logits that is not all impossible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chances<'a> {
    logits: &'a [f32],
    log_sum: f64,
}

impl<'a> Chances<'a> {
    pub(crate) fn of(logits: &'a [f32]) -> Chances<'a> {
        Chances {
            logits,
            log_sum: log_sum_exp(logits, f64::from(largest(logits))),
        }
    }

    pub(crate) fn logprob(&self, token: u32) -> f64 {
        f64::from(self.logits[token as usize]) - self.log_sum
    }

    /// Whether a token may come at all.
    pub(crate) fn is_possible(&self, token: u32) -> bool {
        self.logits.get(token as usize).is_some_and(|&logit| logit > NO)
    }

    /// The `count` likeliest tokens that are possible at all, the likeliest first, and of equals the one with the least id.
    pub(crate) fn best(&self, count: usize) -> Vec<u32> {
        let mut best: Vec<(f32, u32)> = Vec::with_capacity(count + 1);
        for (token, &logit) in (0..).zip(self.logits) {
            let full = best.len() == count;
            if logit <= NO || full && best.last().is_none_or(|(least, _)| logit <= *least) {
                continue;
            }
            let place = best.partition_point(|(other, _)| *other >= logit);
            best.insert(place, (logit, token));
            best.truncate(count);
        }
        best.into_iter().map(|(_, token)| token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text 0 to 3, the end 4, times 5 to 9.
    fn rules() -> Rules {
        Rules {
            end: 4,
            stamps: Some(Timestamps {
                first: 5,
                count: 5,
                step_ms: 20,
            }),
            latest_first: Some(2),
            never: vec![3],
            never_first: vec![2],
        }
    }

    fn possible(written: &[u32], logits: &[f32]) -> Vec<u32> {
        let mut logits = logits.to_vec();
        rules().apply(written, &mut logits);
        (0..).zip(&logits).filter(|(_, l)| **l > NO).map(|(t, _)| t).collect()
    }

    #[test]
    fn times_come_in_pairs_that_do_not_go_back() {
        // Text is likelier than all times together.
        let likely_text = [4.0, 3.0, 2.0, 9.0, 1.0, -9.0, -9.0, -9.0, -9.0, -9.0];
        for (written, expected) in [
            // A window begins with a time, and not with a late one.
            (&[][..], &[5, 6, 7][..]),
            // After the first time: text or the end.
            (&[6], &[0, 1, 2, 4]),
            // In the text: anything but times before, or the same.
            (&[6, 0], &[0, 1, 2, 4, 7, 8, 9]),
            // After the time that closes text: the same or a later one, or the end.
            (&[6, 0, 8], &[4, 8, 9]),
            // After a pair: text or the end.
            (&[6, 0, 8, 8], &[0, 1, 2, 4]),
            (&[6, 0, 8, 8, 1], &[0, 1, 2, 4, 9]),
        ] {
            assert_eq!(possible(written, &likely_text), expected, "{written:?}");
        }
    }

    #[test]
    fn a_time_is_taken_where_times_together_are_likelier_than_any_text() {
        let spread = [2.0, 1.0, 0.0, 0.0, 1.9, 1.5, 1.5, 1.5, 1.5, 1.5];
        assert_eq!(possible(&[6, 0], &spread), [7, 8, 9]);
        let single = [2.0, 1.0, 0.0, 0.0, 1.9, 1.5, 1.5, -9.0, -9.0, 0.0];
        assert_eq!(possible(&[6, 0], &single), [0, 1, 2, 4, 7, 8, 9]);
    }

    #[test]
    fn hostile_rows_and_records_break_nothing() {
        let mut short = [0.0, f32::NAN, f32::INFINITY];
        rules().apply(&[], &mut short);
        rules().apply(&[1, 2, 3], &mut []);
        let mut none = [NO; 10];
        rules().apply(&[6, 0], &mut none);
        assert_eq!(none, [NO; 10]);
    }

    #[test]
    fn probabilities_add_up_to_one() {
        let row = [1.0, 2.0, NO, -3.0];
        let chances = Chances::of(&row);
        let sum: f64 = (0..4).map(|t| chances.logprob(t).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert_eq!(chances.best(2), [1, 0]);
        assert_eq!(chances.best(9), [1, 0, 3], "what is impossible is none of the best");
        assert_eq!(Chances::of(&[1.0, 2.0, 2.0, 1.0]).best(3), [1, 2, 0]);
        assert!(Chances::of(&[]).best(3).is_empty());
        assert!(chances.best(0).is_empty());
    }
}
