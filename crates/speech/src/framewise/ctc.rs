//! Text of logits for every position (connectionist temporal classification, Graves et al. 2006): a token or the blank at each. The same
//! token at positions in a row is one; a blank between makes two of it.
//!
//! Pure functions; sums are in `f64`, in order, so texts have the same bits on every machine.

use super::{Behind, Reached, Token, Walk, largest};
use crate::hotwords::Along;
use crate::rules::Chances;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Logits of `[positions, tokens]`, all of them finite, of which `blank` is no text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logits<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) tokens: usize,
    pub(crate) blank: u32,
}

impl<'a> Logits<'a> {
    /// The rows behind what stays and before position `until`, with their places.
    fn rows(&self, behind: &Behind, until: usize) -> impl Iterator<Item = (usize, &'a [f32])> {
        let rows = self.values.chunks_exact(self.tokens.max(1)).enumerate();
        rows.take(until).skip(behind.position)
    }

    /// Where a walk ends.
    fn reached(&self, behind: &Behind, until: usize, last: Option<u32>) -> Reached {
        let end = until.min(self.values.len() / self.tokens.max(1));
        Reached {
            position: end.max(behind.position),
            symbols: 0,
            last,
        }
    }
}

/// The likeliest token at every position. A hotword changes which token it is, and never whether it is one.
pub(crate) fn greedy(logits: Logits<'_>, walk: Walk<'_>) -> (Vec<Token>, Reached) {
    let Walk {
        hotwords,
        behind,
        until,
        ..
    } = walk;
    let mut found: Vec<Token> = Vec::new();
    let (mut last, mut along) = (behind.last, behind.along);
    // Where the last token came from: it is as welcome for as long as it lasts.
    let mut before = behind.along;
    for (position, row) in logits.rows(behind, until) {
        let likeliest = largest(row);
        if likeliest == logits.blank {
            last = None;
            continue;
        }
        if last == Some(likeliest) || last.is_some_and(|token| hotwords.choose(before, likeliest, row) == token) {
            if let (Some(token), Some(last)) = (found.last_mut(), last) {
                token.end = position + 1;
                token.logprob = token.logprob.max(Chances::of(row).logprob(last));
            }
            continue;
        }
        let token = hotwords.choose(along, likeliest, row);
        before = along;
        along = hotwords.step(along, token).0;
        last = Some(token);
        found.push(Token {
            id: token,
            logprob: Chances::of(row).logprob(token),
            start: position,
            end: position + 1,
        });
    }
    (found, logits.reached(behind, until, last))
}

/// A text, as the one before and a token.
struct Prefix {
    parent: usize,
    /// `None` of what stays.
    token: Option<u32>,
    along: Along,
    bonus: f64,
}

/// A text that is there already, or one that comes of it by a token.
enum Place {
    Known(usize),
    New(usize, u32),
}

/// Logarithms of the probabilities that a text ends with a blank, and with its token.
#[derive(Clone, Copy, PartialEq)]
struct Ends {
    blank: f64,
    token: f64,
}

impl Ends {
    const NEVER: Ends = Ends {
        blank: f64::NEG_INFINITY,
        token: f64::NEG_INFINITY,
    };

    fn any(self) -> f64 {
        either(self.blank, self.token)
    }
}

/// Logarithm of the sum of two probabilities.
pub(super) fn either(a: f64, b: f64) -> f64 {
    let (more, less) = if a >= b { (a, b) } else { (b, a) };
    match less == f64::NEG_INFINITY {
        true => more,
        false => more + libm::log1p(libm::exp(less - more)),
    }
}

/// The likeliest text of those that as many texts followed at every position lead to (prefix beam search, Hannun et al. 2014). A text gathers the probabilities of all the ways in which it can be read.
pub(crate) fn search(
    logits: Logits<'_>,
    Walk {
        beams,
        hotwords,
        behind,
        until,
        cancel,
    }: Walk<'_>,
) -> Result<(Vec<Token>, Reached)> {
    let mut prefixes = vec![Prefix {
        parent: 0,
        token: behind.last,
        along: behind.along,
        bonus: 0.0,
    }];
    let mut children: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    let begun = match behind.last {
        Some(_) => Ends {
            token: 0.0,
            ..Ends::NEVER
        },
        None => Ends {
            blank: 0.0,
            ..Ends::NEVER
        },
    };
    let mut followed = vec![(0, begun)];
    for (_, row) in logits.rows(behind, until) {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let chances = Chances::of(row);
        let blank = chances.logprob(logits.blank);
        let likely = chances.best(2 * beams + 1);
        // Texts that are there already, by number; and new ones, by the text before and the token.
        let mut known: BTreeMap<usize, Ends> = BTreeMap::new();
        let mut new: BTreeMap<(usize, u32), Ends> = BTreeMap::new();
        for &(at, ends) in &followed {
            let prefix = &prefixes[at];
            let stays = known.entry(at).or_insert(Ends::NEVER);
            stays.blank = either(stays.blank, ends.any() + blank);
            if let Some(token) = prefix.token {
                stays.token = either(stays.token, ends.token + chances.logprob(token));
            }
            let mut tokens: Vec<u32> = likely.iter().copied().chain(hotwords.next(prefix.along)).collect();
            tokens.sort_unstable();
            tokens.dedup();
            for token in tokens
                .into_iter()
                .filter(|&t| t != logits.blank && (t as usize) < row.len())
            {
                // The same token again needs a blank between.
                let from = if prefix.token == Some(token) {
                    ends.blank
                } else {
                    ends.any()
                };
                let grown = match children.get(&(at, token)) {
                    Some(&child) => known.entry(child),
                    None => {
                        let ends = new.entry((at, token)).or_insert(Ends::NEVER);
                        ends.token = either(ends.token, from + chances.logprob(token));
                        continue;
                    }
                }
                .or_insert(Ends::NEVER);
                grown.token = either(grown.token, from + chances.logprob(token));
            }
        }
        let mut candidates: Vec<(f64, Place, Ends)> = Vec::new();
        for (at, ends) in known {
            candidates.push((ends.any() + prefixes[at].bonus, Place::Known(at), ends));
        }
        for ((at, token), ends) in new {
            let bonus = prefixes[at].bonus + hotwords.step(prefixes[at].along, token).1;
            candidates.push((ends.any() + bonus, Place::New(at, token), ends));
        }
        candidates.retain(|(worth, ..)| *worth > f64::NEG_INFINITY);
        // Of equals the older one stays in front.
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        candidates.truncate(beams);
        followed.clear();
        for (_, place, ends) in candidates {
            let at = match place {
                Place::Known(at) => at,
                Place::New(parent, token) => {
                    let (along, change) = hotwords.step(prefixes[parent].along, token);
                    let bonus = prefixes[parent].bonus + change;
                    children.insert((parent, token), prefixes.len());
                    prefixes.push(Prefix {
                        parent,
                        token: Some(token),
                        along,
                        bonus,
                    });
                    prefixes.len() - 1
                }
            };
            followed.push((at, ends));
        }
    }
    let worth = |&(at, ends): &(usize, Ends)| ends.any() + prefixes[at].bonus - hotwords.end(prefixes[at].along);
    let best = followed.iter().rev().max_by(|a, b| worth(a).total_cmp(&worth(b)));
    let mut at = best.map_or(0, |(at, _)| *at);
    let mut tokens = Vec::new();
    while at != 0 {
        tokens.extend(prefixes[at].token);
        at = prefixes[at].parent;
    }
    tokens.reverse();
    Ok(align(logits, &tokens, behind, until))
}

/// Where `tokens` are on the likeliest way to read them.
fn align(logits: Logits<'_>, tokens: &[u32], behind: &Behind, until: usize) -> (Vec<Token>, Reached) {
    let states = 2 * tokens.len() + 1;
    // Even states are blanks, and the first may be what stays, going on.
    let mut worth = vec![f64::NEG_INFINITY; states];
    let mut steps: Vec<Vec<u8>> = Vec::new();
    // Whether what stays goes on to the end, where there is nothing else.
    let mut goes_on = behind.last;
    for (_, row) in logits.rows(behind, until) {
        let chances = Chances::of(row);
        let blank = chances.logprob(logits.blank);
        let first = behind.last.map_or(blank, |last| blank.max(chances.logprob(last)));
        goes_on = behind.last.filter(|_| first > blank);
        let mut taken = vec![0; states];
        // From the last on: those before are still of the position before.
        for state in (0..states).rev() {
            let skips = state % 2 == 1 && (state < 2 || tokens[state / 2] != tokens[state / 2 - 1]);
            let own = match state {
                0 => first,
                _ if state % 2 == 0 => blank,
                _ => chances.logprob(tokens[state / 2]),
            };
            if steps.is_empty() {
                worth[state] = if state < 2 { own } else { f64::NEG_INFINITY };
                continue;
            }
            for back in 1..=if skips { 2 } else { 1 } {
                if state >= back && worth[state - back] > worth[state - usize::from(taken[state])] {
                    taken[state] = back as u8;
                }
            }
            worth[state] = worth[state - usize::from(taken[state])] + own;
        }
        steps.push(taken);
    }
    let mut state = match tokens.len() {
        0 => return (Vec::new(), logits.reached(behind, until, goes_on)),
        n if worth[2 * n - 1] > worth[2 * n] => 2 * n - 1,
        n => 2 * n,
    };
    let last = (state % 2 == 1).then(|| tokens[state / 2]);
    let mut found: Vec<(usize, Token)> = Vec::new();
    for (place, taken) in steps.iter().enumerate().rev() {
        if state % 2 == 1 {
            let (id, position) = (tokens[state / 2], behind.position + place);
            let row = &logits.values[position * logits.tokens..][..logits.tokens];
            let logprob = Chances::of(row).logprob(id);
            match found.last_mut() {
                Some((of, token)) if *of == state => {
                    token.start = position;
                    token.logprob = token.logprob.max(logprob);
                }
                _ => {
                    let (start, end) = (position, position + 1);
                    found.push((
                        state,
                        Token {
                            id,
                            logprob,
                            start,
                            end,
                        },
                    ));
                }
            }
        }
        state -= usize::from(taken[state]);
    }
    let found = found.into_iter().rev().map(|(_, token)| token).collect();
    (found, logits.reached(behind, until, last))
}

#[cfg(test)]
mod tests {
    use super::super::tests::walk;
    use super::*;
    use crate::hotwords::Hotwords;
    use proptest::prelude::*;

    const BLANK: u32 = 3;

    /// Rows of four tokens, the last of which is the blank, from probabilities.
    fn logits(rows: &[[f32; 4]]) -> Vec<f32> {
        rows.iter().flatten().map(|p| p.ln().max(-1e4)).collect()
    }

    fn of(values: &[f32]) -> Logits<'_> {
        let (tokens, blank) = (4, BLANK);
        Logits { values, tokens, blank }
    }

    /// Each of `tokens` likely at a position of its own.
    fn spelled(tokens: &[u32]) -> Vec<f32> {
        let row = |&token: &u32| std::array::from_fn(|t| if t == token as usize { 0.97 } else { 0.01 });
        logits(&tokens.iter().map(row).collect::<Vec<[f32; 4]>>())
    }

    fn none() -> Hotwords {
        Hotwords::new(&[], &|_| None).unwrap()
    }

    /// The words are letters, `a` is the token 0.
    fn hot(words: &[&str]) -> Hotwords {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Hotwords::new(&words, &|word| {
            Some(word.bytes().map(|b| u32::from(b - b'a')).collect())
        })
        .unwrap()
    }

    fn beams(values: &[f32], beams: usize, hotwords: &Hotwords, behind: &Behind) -> Vec<Token> {
        search(of(values), walk(beams, hotwords, behind)).unwrap().0
    }

    fn likeliest(values: &[f32], hotwords: &Hotwords, behind: &Behind) -> Vec<Token> {
        greedy(of(values), walk(1, hotwords, behind)).0
    }

    fn places(found: &[Token]) -> Vec<(u32, usize, usize)> {
        found.iter().map(|t| (t.id, t.start, t.end)).collect()
    }

    #[test]
    fn repeats_are_one_and_a_blank_parts_them() {
        for (read, expected) in [
            (&[][..], &[][..]),
            (&[3, 3, 3], &[]),
            (&[0, 0, 1], &[(0, 0, 2), (1, 2, 3)]),
            (&[3, 0, 3, 0, 0, 3], &[(0, 1, 2), (0, 3, 5)]),
            (&[2, 1, 1, 3, 3, 1, 2], &[(2, 0, 1), (1, 1, 3), (1, 5, 6), (2, 6, 7)]),
        ] {
            let values = spelled(read);
            let behind = Behind::default();
            assert_eq!(places(&likeliest(&values, &none(), &behind)), expected, "{read:?}");
            assert_eq!(places(&beams(&values, 4, &none(), &behind)), expected, "{read:?}");
        }
    }

    #[test]
    fn what_stays_goes_on_and_is_not_said_again() {
        let values = spelled(&[0, 0, 0, 3, 0, 1]);
        let behind = |last| Behind {
            position: 1,
            last,
            ..Behind::default()
        };
        for (last, expected) in [
            (Some(0), &[(0, 4, 5), (1, 5, 6)][..]),
            (None, &[(0, 1, 3), (0, 4, 5), (1, 5, 6)]),
        ] {
            assert_eq!(places(&likeliest(&values, &none(), &behind(last))), expected);
            assert_eq!(places(&beams(&values, 3, &none(), &behind(last))), expected);
        }
    }

    proptest! {
        #[test]
        fn pieces_that_overlap_have_the_tokens_of_the_whole(
            read in prop::collection::vec(0u32..4, 1..40), sizes in prop::collection::vec(1usize..9, 1..5), several: bool,
        ) {
            let values = spelled(&read);
            let whole: Vec<_> = likeliest(&values, &none(), &Behind::default()).iter().map(|t| (t.id, t.start)).collect();
            let mut found = Vec::new();
            let (mut at, mut sizes, hotwords) = (0, sizes.iter().cycle(), none());
            let mut behind = Behind::default();
            while at < read.len() {
                let (from, end) = (usize::saturating_sub(at, 3), read.len().min(at + sizes.next().unwrap()));
                let heard = of(&values[4 * from..4 * read.len().min(end + 5)]);
                behind.position -= from;
                let walk = Walk { until: end - from, ..walk(3, &hotwords, &behind) };
                let (new, reached) = match several {
                    true => search(heard, walk).unwrap(),
                    false => greedy(heard, walk),
                };
                (behind.position, behind.last) = (from + reached.position, reached.last);
                found.extend(new.iter().map(|t| (t.id, t.start + from)));
                prop_assert_eq!(behind.position, end);
                at = end;
            }
            prop_assert_eq!(found, whole);
        }
    }

    #[test]
    fn a_search_gathers_the_ways_to_read_a_text() {
        // The likeliest way is two blanks (0.36), but `a` has 0.64 by three ways.
        let values = logits(&[[0.4, 0.0, 0.0, 0.6], [0.4, 0.0, 0.0, 0.6]]);
        let behind = Behind::default();
        assert!(likeliest(&values, &none(), &behind).is_empty());
        let found = beams(&values, 2, &none(), &behind);
        assert_eq!(found.len(), 1);
        assert!((found[0].logprob - 0.4f64.ln()).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn a_hotword_decides_a_near_tie_alone() {
        let sound = [
            [0.28, 0.32, 0.2, 0.2],
            [0.0, 0.0, 0.0, 1.0],
            [0.0, 0.0001, 0.9999, 0.0],
            [0.0, 0.0001, 0.9999, 0.0],
        ];
        let values = logits(&sound);
        let behind = Behind::default();
        let tokens = |found: Vec<Token>| found.iter().map(|t| t.id).collect::<Vec<u32>>();
        assert_eq!(tokens(likeliest(&values, &none(), &behind)), [1, 2]);
        assert_eq!(tokens(likeliest(&values, &hot(&["ac"]), &behind)), [0, 2]);
        assert_eq!(tokens(beams(&values, 4, &none(), &behind)), [1, 2]);
        assert_eq!(tokens(beams(&values, 4, &hot(&["ac"]), &behind)), [0, 2]);
        // It does not go on as it begins: the bonus is taken away again.
        assert_eq!(tokens(beams(&values, 4, &hot(&["ab"]), &behind)), [1, 2]);
        // Silence stays silence, and what is sure stays what it is.
        let sure = spelled(&[3, 1, 3, 2]);
        assert_eq!(tokens(likeliest(&sure, &hot(&["ac", "cb"]), &behind)), [1, 2]);
        // A token that is chosen for its bonus is one for as long as it lasts.
        let values = logits(&[sound[0], sound[0], sound[2]]);
        assert_eq!(
            places(&likeliest(&values, &hot(&["ac"]), &behind)),
            [(0, 0, 2), (2, 2, 3)]
        );
    }

    /// The probability of every text, by reading all the ways there are.
    fn all_texts(values: &[f32]) -> BTreeMap<Vec<u32>, f64> {
        let mut ways: Vec<(Vec<u32>, f64)> = vec![(Vec::new(), 0.0)];
        for row in values.chunks_exact(4) {
            let chances = Chances::of(row);
            let grown = ways
                .iter()
                .flat_map(|(way, sum)| (0..4).map(move |t| ([&way[..], &[t]].concat(), sum + chances.logprob(t))));
            ways = grown.collect();
        }
        let mut texts = BTreeMap::new();
        for (mut way, sum) in ways {
            way.dedup();
            way.retain(|&t| t != BLANK);
            let total = texts.entry(way).or_insert(f64::NEG_INFINITY);
            *total = either(*total, sum);
        }
        texts
    }

    proptest! {
        #[test]
        fn with_enough_beams_the_likeliest_text_is_found(rows in prop::collection::vec(prop::array::uniform4(0.01f32..1.0), 0..6)) {
            let values = logits(&rows);
            let found = beams(&values, 400, &none(), &Behind::default());
            let texts = all_texts(&values);
            let tokens: Vec<u32> = found.iter().map(|t| t.id).collect();
            let most = texts.values().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!((texts[&tokens] - most).abs() < 1e-9, "{:?} of {:?}", tokens, texts);
            prop_assert!(found.windows(2).all(|w| w[0].end <= w[1].start), "{:?}", found);
            prop_assert!(found.iter().all(|t| t.start < t.end && t.end <= rows.len()), "{:?}", found);
        }
    }
}
