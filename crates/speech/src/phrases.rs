//! Where phrases of live speech begin and end, from the probability of each chunk of sound.
//!
//! Pure: the same probabilities give the same phrases, however the sound came.

/// What counts as a phrase, in chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Speech begins at this probability,
    pub(crate) threshold: f64,
    /// and goes on above this one.
    pub(crate) lower: f64,
    /// Chunks without speech that end a phrase.
    pub(crate) silence: usize,
    /// Fewer chunks with speech are no phrase.
    pub(crate) least: usize,
    /// A phrase of so many chunks is cut.
    pub(crate) most: usize,
}

/// What a chunk changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// A phrase begins with it.
    Begin,
    /// The phrase ends with it: nobody speaks any more.
    End,
    /// The phrase has become too long. Its first so many chunks are one, and what follows begins the next.
    Cut(usize),
    /// What began was too short for speech.
    Drop,
}

/// The phrase that is spoken, in chunks from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spoken {
    chunks: usize,
    voiced: usize,
    /// Chunks without speech at the end.
    silent: usize,
    /// The longest silence in its later half: chunks, and where it ends.
    gap: (usize, usize),
}

/// Follows the probabilities.
#[derive(Clone, Debug)]
pub(crate) struct Phrases {
    limits: Limits,
    spoken: Option<Spoken>,
}

impl Phrases {
    pub(crate) fn new(limits: Limits) -> Phrases {
        Phrases { limits, spoken: None }
    }

    pub(crate) fn push(&mut self, probability: f64) -> Change {
        let limits = self.limits;
        let Some(spoken) = &mut self.spoken else {
            if probability < limits.threshold {
                return Change::None;
            }
            self.spoken = Some(Spoken {
                chunks: 1,
                voiced: 1,
                ..Spoken::default()
            });
            return Change::Begin;
        };
        spoken.chunks += 1;
        // Between the thresholds, what was goes on.
        let is_silent = probability < limits.lower || (spoken.silent > 0 && probability < limits.threshold);
        if is_silent {
            spoken.silent += 1;
            if spoken.chunks > limits.most / 2 && spoken.silent >= spoken.gap.0 {
                spoken.gap = (spoken.silent, spoken.chunks);
            }
        } else {
            spoken.silent = 0;
            spoken.voiced += 1;
        }
        if spoken.silent >= limits.silence {
            let voiced = spoken.voiced;
            self.spoken = None;
            return match voiced < limits.least {
                true => Change::Drop,
                false => Change::End,
            };
        }
        if spoken.chunks < limits.most {
            return Change::None;
        }
        // In the middle of the longest silence, or right here.
        let cut = match spoken.gap {
            (0, _) => spoken.chunks,
            (silent, end) => end - silent / 2,
        };
        let chunks = spoken.chunks - cut;
        *spoken = Spoken {
            chunks,
            voiced: chunks.saturating_sub(spoken.silent).max(limits.least),
            silent: spoken.silent.min(chunks),
            gap: (0, 0),
        };
        Change::Cut(cut)
    }

    /// The sound is over: whether a phrase ends with it.
    pub(crate) fn finish(&mut self) -> bool {
        self.spoken
            .take()
            .is_some_and(|spoken| spoken.voiced >= self.limits.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        threshold: 0.5,
        lower: 0.35,
        silence: 3,
        least: 2,
        most: 10,
    };

    fn changes(probabilities: &[f64]) -> Vec<Change> {
        let mut phrases = Phrases::new(LIMITS);
        probabilities.iter().map(|&p| phrases.push(p)).collect()
    }

    #[test]
    fn phrases_end_after_enough_silence() {
        use Change::{Begin, Drop, End, None};
        let found = changes(&[0.1, 0.6, 0.4, 0.1, 0.1, 0.6, 0.1, 0.4, 0.1, 0.9]);
        // 0.4 goes on as speech after speech, and as silence after silence.
        assert_eq!(found, [None, Begin, None, None, None, None, None, None, End, Begin]);
        assert_eq!(changes(&[0.9, 0.1, 0.1, 0.1, 0.1]), [Begin, None, None, Drop, None]);
        let mut phrases = Phrases::new(LIMITS);
        assert!(!phrases.finish());
        phrases.push(0.9);
        assert!(!phrases.clone().finish(), "too short");
        phrases.push(0.9);
        assert!(phrases.finish() && phrases.spoken.is_none());
    }

    #[test]
    fn long_phrases_are_cut_in_their_longest_silence() {
        let mut probabilities = vec![0.9; 10];
        assert_eq!(changes(&probabilities)[9], Change::Cut(10));
        probabilities[6] = 0.1;
        probabilities[7] = 0.1;
        assert_eq!(changes(&probabilities)[9], Change::Cut(7));
    }

    proptest! {
        #[test]
        fn phrases_alternate_and_stay_short(probabilities in prop::collection::vec(0.0f64..1.0, 0..200)) {
            let mut phrases = Phrases::new(LIMITS);
            let (mut open, mut length) = (false, 0);
            for p in probabilities {
                let change = phrases.push(p);
                length += 1;
                match change {
                    Change::Begin => {
                        prop_assert!(!open);
                        (open, length) = (true, 1);
                    }
                    Change::End | Change::Drop => {
                        prop_assert!(open);
                        open = false;
                    }
                    Change::Cut(at) => {
                        prop_assert!(open && 0 < at && at <= length);
                        length -= at;
                    }
                    Change::None => {}
                }
                prop_assert!(!open || length < LIMITS.most);
                prop_assert_eq!(open, phrases.spoken.is_some());
            }
        }
    }
}
