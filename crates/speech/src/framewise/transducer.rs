//! Text by a transducer (Graves 2012): what may come next follows from a position of the sound and from the text before. With durations
//! (token-and-duration transducer, Xu et al. 2023, arXiv 2304.06795) each token says how many positions it lasts; without, each blank
//! is one position.

use super::{Reached, Token, Walk, largest};
use crate::rules::Chances;
use crate::{Error, Result};

/// What a record says about a transducer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) blank: u32,
    /// Positions that a token may last; none without durations.
    pub(crate) durations: Vec<usize>,
    /// Most tokens at one position; then it is left.
    pub(crate) most_symbols: usize,
}

impl Rules {
    /// Where the walk is behind a token, or the blank, of so many positions, and how many tokens it has there.
    pub(super) fn advance(&self, at: usize, symbols: usize, token: u32, duration: usize) -> (usize, usize) {
        if token == self.blank {
            return (at + duration.max(1), 0);
        }
        match duration {
            0 if symbols + 1 < self.most_symbols => (at, symbols + 1),
            _ => (at + duration.max(1), 0),
        }
    }

    /// How many positions a token is heard at.
    pub(super) fn length(&self, duration: usize) -> usize {
        // Without durations nobody knows.
        if self.durations.is_empty() { 1 } else { duration }
    }
}

/// What follows from the text before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) prediction: Vec<f32>,
    pub(crate) state: Vec<f32>,
}

/// Logits at some positions in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    /// The position of the first row.
    pub(crate) from: usize,
    /// Logits of a row: those of the tokens, and behind them those of the durations. All are finite.
    pub(crate) width: usize,
    pub(crate) values: Vec<f32>,
}

impl Joined {
    fn row(&self, position: usize) -> Option<&[f32]> {
        let begin = position.checked_sub(self.from)? * self.width;
        self.values.get(begin..begin + self.width).filter(|row| !row.is_empty())
    }
}

/// The two networks of a transducer, and the sound.
pub(crate) trait Networks {
    /// Positions of the sound.
    fn positions(&self) -> usize;

    /// What follows from a text that ends with `token`, of which `before` came before it; `None` at its beginning.
    fn predict(&mut self, before: Option<&Predicted>, token: u32) -> Result<Predicted>;

    /// Computes the logits that follow at `position`, and at some after it.
    fn join(&mut self, position: usize, predicted: &Predicted, joined: &mut Joined) -> Result<()>;
}

/// A text before, and the logits that follow it: a blank leaves them as they are, so those of several positions are computed at once.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    pub(super) predicted: Predicted,
    joined: Joined,
}

impl Prefix {
    pub(super) fn new(predicted: Predicted) -> Prefix {
        Prefix {
            predicted,
            joined: Joined::default(),
        }
    }

    /// The logits of tokens, and of durations, at a position.
    pub(super) fn at(&mut self, at: usize, rules: &Rules, networks: &mut dyn Networks) -> Result<(&[f32], &[f32])> {
        if self.joined.row(at).is_none() {
            networks.join(at, &self.predicted, &mut self.joined)?;
        }
        let row = self.joined.row(at).unwrap_or_default();
        match row.len().checked_sub(rules.durations.len()) {
            Some(tokens) if tokens > rules.blank as usize => Ok(row.split_at(tokens)),
            _ => {
                let (found, durations) = (row.len(), rules.durations.len());
                Err(Error::Model(format!(
                    "its joint should give logits of the tokens, up to the blank {}, and of {durations} durations, found {found}",
                    rules.blank
                )))
            }
        }
    }
}

/// The text before what is decoded: the blank at its beginning, then tokens that stay.
pub(crate) fn begin(rules: &Rules, networks: &mut dyn Networks) -> Result<Predicted> {
    networks.predict(None, rules.blank)
}

/// The likeliest token, and its likeliest duration, one after the other. A hotword changes which token it is, and never
/// whether it is one.
pub(crate) fn greedy(
    rules: &Rules,
    networks: &mut dyn Networks,
    Walk {
        hotwords,
        behind,
        until,
        cancel,
        ..
    }: Walk<'_>,
    predicted: Predicted,
) -> Result<(Vec<Token>, Reached)> {
    let mut found = Vec::new();
    let (mut at, mut symbols, mut along) = (behind.position, behind.symbols, behind.along);
    let mut prefix = Prefix::new(predicted);
    while at < until.min(networks.positions()) {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let (tokens, durations) = prefix.at(at, rules, networks)?;
        let duration = rules.durations.get(largest(durations) as usize).copied().unwrap_or(0);
        let likeliest = largest(tokens);
        let token = match likeliest == rules.blank {
            true => likeliest,
            false => hotwords.choose(along, likeliest, tokens),
        };
        let start = at;
        if token != rules.blank {
            found.push(Token {
                id: token,
                logprob: Chances::of(tokens).logprob(token),
                start,
                end: start + rules.length(duration),
            });
            along = hotwords.step(along, token).0;
            prefix = Prefix::new(networks.predict(Some(&prefix.predicted), token)?);
        }
        (at, symbols) = rules.advance(at, symbols, token, duration);
    }
    let (position, last) = (at, None);
    Ok((
        found,
        Reached {
            position,
            symbols,
            last,
        },
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Behind, tests::walk};
    use super::*;
    use crate::hotwords::Hotwords;
    use proptest::prelude::*;

    /// Networks that say what a table has: the logits depend on the position and the last token. The state is the text.
    pub(crate) struct Script<'a> {
        pub(crate) positions: usize,
        pub(crate) logits: &'a dyn Fn(usize, &[f32]) -> Vec<f32>,
        /// Rows of a call.
        pub(crate) rows: usize,
        pub(crate) predictions: usize,
    }

    impl Networks for Script<'_> {
        fn positions(&self) -> usize {
            self.positions
        }

        fn predict(&mut self, before: Option<&Predicted>, token: u32) -> Result<Predicted> {
            self.predictions += 1;
            let mut state = before.map_or(Vec::new(), |before| before.state.clone());
            state.push(token as f32);
            let prediction = state.clone();
            Ok(Predicted { prediction, state })
        }

        fn join(&mut self, position: usize, predicted: &Predicted, joined: &mut Joined) -> Result<()> {
            let from = position.min(self.positions.saturating_sub(self.rows));
            let behind = (from + self.rows).min(self.positions);
            let rows = (from..behind).map(|at| (self.logits)(at, &predicted.prediction));
            let rows: Vec<Vec<f32>> = rows.collect();
            joined.width = rows[0].len();
            (joined.from, joined.values) = (from, rows.concat());
            Ok(())
        }
    }

    pub(crate) const BLANK: u32 = 3;

    pub(crate) fn rules(durations: &[usize]) -> Rules {
        Rules {
            blank: BLANK,
            durations: durations.to_vec(),
            most_symbols: 3,
        }
    }

    /// A row in which `token` is likeliest, and the duration at `place`, of so many.
    pub(crate) fn row(token: u32, place: usize, durations: usize) -> Vec<f32> {
        let mut row = vec![0.0; 4 + durations];
        row[token as usize] = 5.0;
        if durations > 0 {
            row[4 + place] = 2.0;
        }
        row
    }

    fn places(found: &[Token]) -> Vec<(u32, usize, usize)> {
        found.iter().map(|t| (t.id, t.start, t.end)).collect()
    }

    fn none() -> Hotwords {
        Hotwords::new(&[], &|_| None).unwrap()
    }

    fn read(
        rules: &Rules,
        positions: usize,
        rows: usize,
        logits: &dyn Fn(usize, &[f32]) -> Vec<f32>,
    ) -> (Vec<Token>, usize) {
        let mut script = Script {
            positions,
            logits,
            rows,
            predictions: 0,
        };
        let predicted = begin(rules, &mut script).unwrap();
        let (hotwords, behind) = (none(), Behind::default());
        let found = greedy(rules, &mut script, walk(1, &hotwords, &behind), predicted);
        (found.unwrap().0, script.predictions)
    }

    #[test]
    fn tokens_last_as_long_as_they_say_and_blanks_keep_the_text() {
        let rules = rules(&[0, 1, 2, 4]);
        // By position and number of tokens before.
        let logits = |at: usize, text: &[f32]| match (at, text.len()) {
            (0, 1) => row(BLANK, 2, 4),
            // Two tokens at one position, the first without length.
            (2, 1) => row(1, 0, 4),
            (2, 2) => row(1, 1, 4),
            // A blank moves on, whatever it says.
            (3, 3) => row(BLANK, 0, 4),
            (4, 3) => row(2, 3, 4),
            (8, 4) => row(0, 3, 4),
            other => panic!("{other:?} is not on the way"),
        };
        let (found, predictions) = read(&rules, 9, 1, &logits);
        let expected = [(1, 2, 2), (1, 2, 3), (2, 4, 8), (0, 8, 12)];
        assert_eq!(places(&found), expected);
        assert_eq!(predictions, 5, "one for the beginning and each token");
        assert!(found.iter().all(|t| t.logprob < 0.0 && t.logprob > -0.1), "{found:?}");
        // With several rows in each call there are positions that nobody asks for.
        let anywhere =
            |at: usize, text: &[f32]| row([BLANK, 0, 1, 2][(3 * at + text.len()) % 4], (at + text.len()) % 4, 4);
        let one = read(&rules, 23, 1, &anywhere);
        assert!(one.0.len() > 5, "{one:?}");
        for rows in [2, 4, 8, 30] {
            assert_eq!(read(&rules, 23, rows, &anywhere), one, "{rows} rows");
        }
        assert!(read(&rules, 0, 4, &anywhere).0.is_empty());
    }

    #[test]
    fn a_position_is_left_after_so_many_tokens() {
        // Tokens without length for ever: three at each position.
        let (found, _) = read(&rules(&[0, 2]), 2, 4, &|_, _| row(1, 0, 2));
        assert_eq!(
            places(&found),
            [(1, 0, 0), (1, 0, 0), (1, 0, 0), (1, 1, 1), (1, 1, 1), (1, 1, 1)]
        );
        // Without durations a token moves nothing and a blank one position.
        let plain = |at: usize, text: &[f32]| match (at, text.len()) {
            (0, 1) => row(2, 0, 0),
            (1, 2) | (1, 3) => row(1, 0, 0),
            _ => row(BLANK, 0, 0),
        };
        let (found, _) = read(&rules(&[]), 4, 4, &plain);
        assert_eq!(places(&found), [(2, 0, 1), (1, 1, 2), (1, 1, 2)]);
        let (found, _) = read(&rules(&[]), 2, 1, &|_, _| row(0, 0, 0));
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn decoding_goes_on_behind_what_stays() {
        let rules = rules(&[0, 1, 2, 4]);
        let anywhere = |at: usize, text: &[f32]| {
            row(
                [BLANK, 0, 1, 2][(3 * at + text.len()) % 4],
                (at + text.len()) % 3 + 1,
                4,
            )
        };
        let (all, _) = read(&rules, 40, 4, &anywhere);
        for kept in 0..all.len() {
            let mut script = Script {
                positions: 40,
                logits: &anywhere,
                rows: 4,
                predictions: 0,
            };
            let mut predicted = begin(&rules, &mut script).unwrap();
            for token in &all[..kept] {
                predicted = script.predict(Some(&predicted), token.id).unwrap();
            }
            let behind = Behind {
                position: kept.checked_sub(1).map_or(0, |last| all[last].end),
                ..Behind::default()
            };
            let rest = greedy(&rules, &mut script, walk(1, &none(), &behind), predicted).unwrap();
            assert_eq!(rest.0, all[kept..], "behind {kept}");
        }
    }

    proptest! {
        #[test]
        fn pieces_that_overlap_have_the_tokens_of_the_whole(
            table in prop::collection::vec(0u32..16, 1..40), sizes in prop::collection::vec(1usize..9, 1..5), with_durations: bool,
        ) {
            let rules = rules(if with_durations { &[0, 1, 2, 4] } else { &[] });
            let logits = |at: usize, text: &[f32]| {
                let drawn = table[(7 * at + text.len()) % table.len()];
                row([BLANK, 0, 1, 2][drawn as usize % 4], drawn as usize / 4, rules.durations.len())
            };
            let (whole, _) = read(&rules, 40, 4, &logits);
            let mut found = Vec::new();
            let (mut at, mut sizes, hotwords) = (0, sizes.iter().cycle(), none());
            let mut behind = Behind::default();
            let mut predicted: Option<Predicted> = None;
            while at < 40 {
                // Three positions before, and five behind.
                let (from, end) = (usize::saturating_sub(at, 3), 40.min(at + sizes.next().unwrap()));
                let heard = |place: usize, text: &[f32]| logits(from + place, text);
                let mut script = Script { positions: 40.min(end + 5) - from, logits: &heard, rows: 2, predictions: 0 };
                let before = match predicted.take() {
                    Some(predicted) => predicted,
                    None => begin(&rules, &mut script).unwrap(),
                };
                behind.position -= from;
                let walk = Walk { until: end - from, ..walk(1, &hotwords, &behind) };
                let (new, reached) = greedy(&rules, &mut script, walk, before.clone()).unwrap();
                predicted = Some(new.iter().fold(before, |before, token| script.predict(Some(&before), token.id).unwrap()));
                behind.position = from + reached.position;
                behind.symbols = reached.symbols;
                found.extend(new.iter().map(|t| (t.id, t.start + from, t.end + from)));
                at = end;
            }
            prop_assert_eq!(found, places(&whole));
        }
    }

    #[test]
    fn a_hotword_decides_a_near_tie_and_no_blank() {
        let hot = Hotwords::new(&["x".to_owned()], &|_| Some(vec![0, 2])).unwrap();
        let rules = rules(&[1]);
        let logits = |at: usize, _: &[f32]| match at {
            0 => vec![1.5, 2.0, 0.0, 0.0, 0.0],
            1 => vec![0.0, 2.0, 0.0, 2.5, 0.0],
            2 => vec![0.0, 2.0, 0.0, 0.0, 0.0],
            _ => vec![0.0, 9.0, 0.0, 0.0, 0.0],
        };
        let mut script = Script {
            positions: 4,
            logits: &logits,
            rows: 2,
            predictions: 0,
        };
        let predicted = begin(&rules, &mut script).unwrap();
        let behind = Behind::default();
        let found = greedy(&rules, &mut script, walk(1, &hot, &behind), predicted).unwrap();
        assert_eq!(places(&found.0), [(0, 0, 1), (2, 2, 3), (1, 3, 4)]);
        assert_eq!(
            places(&read(&rules, 4, 2, &logits).0),
            [(1, 0, 1), (1, 2, 3), (1, 3, 4)]
        );
    }

    #[test]
    fn logits_that_do_not_fit_are_an_error() {
        let mut script = Script {
            positions: 3,
            logits: &|_, _| vec![0.0; 5],
            rows: 1,
            predictions: 0,
        };
        let (hotwords, behind) = (none(), Behind::default());
        let walk = walk(1, &hotwords, &behind);
        let found = greedy(&rules(&[0, 1]), &mut script, walk, Predicted::default());
        assert!(found.unwrap_err().to_string().contains("found 5"));
    }
}
