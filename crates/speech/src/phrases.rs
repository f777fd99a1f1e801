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
    /// Chunks without speech that end a phrase,
    pub(crate) silence: usize,
    /// and one that has been said to the end.
    pub(crate) said: usize,
    /// Chunks without speech after which it is worth asking whether it has.
    pub(crate) pause: usize,
    /// Fewer chunks with speech are no phrase.
    pub(crate) least: usize,
    /// A phrase of so many chunks is cut.
    pub(crate) most: usize,
    /// How text goes on over a cut, where it can.
    pub(crate) around: Option<Around>,
}

/// What is heard around a cut where nobody pauses, in chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Around {
    pub(crate) before: usize,
    pub(crate) behind: usize,
    /// Silence that is a pause.
    pub(crate) pause: usize,
}

/// What a chunk changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// A phrase begins with it.
    Begin,
    /// Nobody has spoken for a moment: the phrase may have been said to the end.
    Pause,
    /// The phrase ends with it: nobody has spoken for so many chunks.
    End(usize),
    /// The phrase has become too long. Its chunks up to `at` are one, and what follows begins the next, in front of which some `before` are heard
    /// again.
    Cut { at: usize, before: usize },
    /// What began, and ended so many chunks ago, was too short for speech.
    Drop(usize),
}

/// The phrase that is spoken, in chunks from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spoken {
    chunks: usize,
    voiced: usize,
    /// Chunks without speech at the end.
    silent: usize,
    /// What was said before them is all.
    is_said: bool,
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
            (spoken.silent, spoken.is_said) = (0, false);
            spoken.voiced += 1;
        }
        let is_speech = spoken.voiced >= limits.least;
        let enough = if spoken.is_said { limits.said } else { limits.silence };
        if spoken.silent >= enough {
            let silent = spoken.silent;
            self.spoken = None;
            return match is_speech {
                true => Change::End(silent),
                false => Change::Drop(silent),
            };
        }
        if spoken.chunks < limits.most {
            return match is_speech && spoken.silent == limits.pause {
                true => Change::Pause,
                false => Change::None,
            };
        }
        // In the middle of the longest silence, or, in speech, where what is behind was heard, too.
        let (at, before) = match (spoken.gap, limits.around) {
            ((silent, _), Some(around)) if silent < around.pause => (spoken.chunks - around.behind, around.before),
            ((0, _), _) => (spoken.chunks, 0),
            ((silent, end), _) => (end - silent / 2, 0),
        };
        let chunks = spoken.chunks - at + before;
        *spoken = Spoken {
            chunks,
            voiced: chunks.saturating_sub(spoken.silent).max(limits.least),
            silent: spoken.silent.min(chunks),
            is_said: false,
            gap: (0, 0),
        };
        Change::Cut { at, before }
    }

    /// What was said is all, unless somebody speaks again.
    pub(crate) fn said(&mut self) {
        if let Some(spoken) = &mut self.spoken {
            spoken.is_said = spoken.silent > 0;
        }
    }

    /// Chunks without speech at the end of the phrase.
    pub(crate) fn silent(&self) -> usize {
        self.spoken.map_or(0, |spoken| spoken.silent)
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
        said: 2,
        pause: 1,
        least: 2,
        most: 10,
        around: None,
    };
    const AROUND: Limits = Limits {
        around: Some(Around {
            before: 4,
            behind: 2,
            pause: 2,
        }),
        ..LIMITS
    };

    fn changes(probabilities: &[f64]) -> Vec<Change> {
        let mut phrases = Phrases::new(LIMITS);
        probabilities.iter().map(|&p| phrases.push(p)).collect()
    }

    #[test]
    fn phrases_end_after_enough_silence() {
        use Change::{Begin, Drop, End, None, Pause};
        let found = changes(&[0.1, 0.6, 0.4, 0.1, 0.1, 0.6, 0.1, 0.4, 0.1, 0.9]);
        // 0.4 goes on as speech after speech, and as silence after silence.
        assert_eq!(
            found,
            [None, Begin, None, Pause, None, None, Pause, None, End(3), Begin]
        );
        assert_eq!(changes(&[0.9, 0.1, 0.1, 0.1, 0.1]), [Begin, None, None, Drop(3), None]);
        let mut phrases = Phrases::new(LIMITS);
        assert!(!phrases.finish());
        phrases.push(0.9);
        assert!(!phrases.clone().finish(), "too short");
        phrases.push(0.9);
        assert!(phrases.finish() && phrases.spoken.is_none());
    }

    #[test]
    fn what_has_been_said_to_the_end_ends_sooner() {
        let mut phrases = Phrases::new(LIMITS);
        let mut push = |p, said: bool| {
            let change = phrases.push(p);
            if said {
                phrases.said();
            }
            (change, phrases.silent())
        };
        push(0.9, true);
        assert_eq!(push(0.9, true), (Change::None, 0), "nobody is silent yet");
        assert_eq!(push(0.1, true), (Change::Pause, 1));
        // Somebody goes on.
        assert_eq!(push(0.9, false), (Change::None, 0));
        assert_eq!(push(0.1, false), (Change::Pause, 1));
        assert_eq!(push(0.1, true), (Change::None, 2));
        assert_eq!(push(0.1, false), (Change::End(3), 0));
        push(0.9, false);
        push(0.9, false);
        push(0.1, true);
        assert_eq!(push(0.1, false), (Change::End(2), 0));
    }

    #[test]
    fn long_phrases_are_cut_in_their_longest_silence() {
        let mut probabilities = vec![0.9; 10];
        let cut = |at, before| Change::Cut { at, before };
        assert_eq!(changes(&probabilities)[9], cut(10, 0));
        probabilities[6] = 0.1;
        probabilities[7] = 0.1;
        assert_eq!(changes(&probabilities)[9], cut(7, 0));
    }

    #[test]
    fn phrases_without_a_pause_are_cut_where_what_is_behind_was_heard() {
        let found = |probabilities: &[f64]| {
            let mut phrases = Phrases::new(AROUND);
            let changes = probabilities.iter().map(|&p| phrases.push(p)).enumerate();
            let cuts = changes.filter(|(_, change)| !matches!(change, Change::None | Change::Begin | Change::Pause));
            cuts.collect::<Vec<_>>()
        };
        let cut = |at, before| Change::Cut { at, before };
        // Of ten chunks, four are heard again and two belong to the next: four new ones fill them up.
        let mut probabilities = vec![0.9; 20];
        assert_eq!(
            found(&probabilities),
            [(9, cut(8, 4)), (13, cut(8, 4)), (17, cut(8, 4))]
        );
        // One chunk is no pause, two are one.
        probabilities[7] = 0.1;
        assert_eq!(found(&probabilities)[0], (9, cut(8, 4)));
        probabilities[6] = 0.1;
        assert_eq!(found(&probabilities)[0], (9, cut(7, 0)));
        probabilities.splice(10.., [0.1; 3]);
        probabilities[6] = 0.9;
        assert_eq!(found(&probabilities)[1], (12, Change::End(3)));
    }

    proptest! {
        #[test]
        fn phrases_alternate_and_stay_short(probabilities in prop::collection::vec(0.0f64..1.0, 0..200), around: bool) {
            let mut phrases = Phrases::new(if around { AROUND } else { LIMITS });
            let (mut open, mut length) = (false, 0);
            for p in probabilities {
                let change = phrases.push(p);
                length += 1;
                match change {
                    Change::Begin => {
                        prop_assert!(!open);
                        (open, length) = (true, 1);
                    }
                    Change::End(silent) | Change::Drop(silent) => {
                        prop_assert!(open && silent >= LIMITS.said);
                        open = false;
                    }
                    Change::Cut { at, before } => {
                        prop_assert!(open && before < at && at <= length);
                        length = length - at + before;
                    }
                    Change::Pause => {
                        prop_assert!(open && phrases.silent() == LIMITS.pause);
                        if length % 2 == 0 {
                            phrases.said();
                        }
                    }
                    Change::None => {}
                }
                prop_assert!(!open || length < LIMITS.most);
                prop_assert_eq!(open, phrases.spoken.is_some());
            }
        }
    }
}
