//! Several texts of a transducer side by side: the search of NVIDIA NeMo's `BeamTDTInfer`, which is Graves' own where there are no
//! durations. The sound is walked along once; at each position the likeliest text that stands there grows by a token or a blank, until
//! as many as are followed are likelier than all that still stand there. Texts that are alike at one position become one.

use super::ctc::either;
use super::transducer::{Networks, Predicted, Prefix, Rules};
use super::{Reached, Token, Walk};
use crate::hotwords::{Along, Hotwords};
use crate::rules::Chances;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// A text on its way.
#[derive(Clone, Debug)]
struct Text {
    tokens: Vec<Token>,
    /// Logarithm of its probability, of all the ways that led here.
    logprob: f64,
    /// What it got for hotwords.
    bonus: f64,
    along: Along,
    /// The position where it stands, and how many tokens it has there.
    at: usize,
    symbols: usize,
}

impl Text {
    fn worth(&self) -> f64 {
        self.logprob + self.bonus
    }

    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// The likeliest text, of as many as are followed.
pub(super) fn search(
    rules: &Rules,
    networks: &mut dyn Networks,
    Walk {
        beams,
        hotwords,
        behind,
        until,
        cancel,
    }: Walk<'_>,
    predicted: Predicted,
) -> Result<(Vec<Token>, Reached)> {
    let begun = Text {
        tokens: Vec::new(),
        logprob: 0.0,
        bonus: 0.0,
        along: behind.along,
        at: behind.position,
        symbols: behind.symbols,
    };
    // By their tokens: texts that differ in their times alone share it.
    let mut prefixes = BTreeMap::from([(Vec::new(), Prefix::new(predicted))]);
    let mut kept = vec![begun];
    for at in behind.position..until.min(networks.positions()) {
        let (mut here, later): (Vec<Text>, Vec<Text>) = kept.into_iter().partition(|text| text.at == at);
        kept = later;
        while let Some(text) = take_likeliest(&mut here) {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            for grown in grow(&text, rules, networks, beams, hotwords, &mut prefixes)? {
                add(if grown.at == at { &mut here } else { &mut kept }, grown);
            }
            let left = here.iter().map(Text::worth).fold(f64::NEG_INFINITY, f64::max);
            if kept.iter().filter(|text| text.worth() > left).count() >= beams {
                break;
            }
        }
        // Of equals the older one stays in front.
        kept.sort_by(|a, b| b.worth().total_cmp(&a.worth()));
        kept.truncate(beams);
        let alive: Vec<Vec<u32>> = kept.iter().map(Text::ids).collect();
        // What no text continues any more takes memory alone.
        let is_parent = |text: &[u32], ids: &[u32]| text.split_last().is_some_and(|(_, before)| before == ids);
        prefixes.retain(|ids, _| alive.iter().any(|text| text == ids || is_parent(text, ids)));
    }
    let worth = |text: &Text| text.worth() - hotwords.end(text.along);
    let best = kept.into_iter().rev().max_by(|a, b| worth(a).total_cmp(&worth(b)));
    Ok(best.map_or_else(Default::default, |text| {
        let (position, symbols, last) = (text.at, text.symbols, None);
        (
            text.tokens,
            Reached {
                position,
                symbols,
                last,
            },
        )
    }))
}

fn take_likeliest(texts: &mut Vec<Text>) -> Option<Text> {
    let best = (0..texts.len())
        .rev()
        .max_by(|&a, &b| texts[a].worth().total_cmp(&texts[b].worth()))?;
    Some(texts.remove(best))
}

/// Adds a text, or what it has to the probability of the same one that is there.
fn add(texts: &mut Vec<Text>, new: Text) {
    let is_same = |text: &&mut Text| {
        let alike = text.at == new.at && text.symbols == new.symbols && text.tokens.len() == new.tokens.len();
        alike && text.tokens.iter().zip(&new.tokens).all(|(a, b)| a.id == b.id)
    };
    let Some(same) = texts.iter_mut().find(is_same) else {
        texts.push(new);
        return;
    };
    let logprob = either(same.logprob, new.logprob);
    if new.logprob > same.logprob {
        // The times of the likelier way.
        *same = new;
    }
    same.logprob = logprob;
}

/// The likeliest texts that a text becomes by a token or a blank.
fn grow(
    text: &Text,
    rules: &Rules,
    networks: &mut dyn Networks,
    beams: usize,
    hotwords: &Hotwords,
    prefixes: &mut BTreeMap<Vec<u32>, Prefix>,
) -> Result<Vec<Text>> {
    let ids = text.ids();
    if !prefixes.contains_key(&ids) {
        let (last, before) = ids
            .split_last()
            .map_or((rules.blank, &[][..]), |(last, before)| (*last, before));
        let predicted = networks.predict(prefixes.get(before).map(|prefix| &prefix.predicted), last)?;
        prefixes.insert(ids.clone(), Prefix::new(predicted));
    }
    let Some(prefix) = prefixes.get_mut(&ids) else {
        return Ok(Vec::new());
    };
    let (tokens, durations) = prefix.at(text.at, rules, networks)?;
    let chances = Chances::of(tokens);
    let lasting = Chances::of(durations);
    let lengths: Vec<(usize, f64)> = match rules.durations.is_empty() {
        true => vec![(0, 0.0)],
        false => {
            let best = lasting.best(beams).into_iter();
            best.map(|i| (rules.durations[i as usize], lasting.logprob(i)))
                .collect()
        }
    };
    let moved = |token: u32, (duration, logprob): (usize, f64), change: f64| {
        let (at, symbols) = rules.advance(text.at, text.symbols, token, duration);
        Text {
            logprob: text.logprob + chances.logprob(token) + logprob,
            bonus: text.bonus + change,
            at,
            symbols,
            ..text.clone()
        }
    };
    let mut candidates: Vec<u32> = chances
        .best(beams + 1)
        .into_iter()
        .chain(hotwords.next(text.along))
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    let mut grown = Vec::new();
    for id in candidates
        .into_iter()
        .filter(|&id| id != rules.blank && (id as usize) < tokens.len())
    {
        let (along, change) = hotwords.step(text.along, id);
        for &length in &lengths {
            let mut new = Text {
                along,
                ..moved(id, length, change)
            };
            new.tokens.push(Token {
                id,
                logprob: chances.logprob(id),
                start: text.at,
                end: text.at + rules.length(length.0),
            });
            grown.push(new);
        }
    }
    grown.sort_by(|a, b| b.worth().total_cmp(&a.worth()));
    grown.truncate(beams);
    // A blank moves on, whatever it says.
    grown.extend(lengths.iter().map(|&length| moved(rules.blank, length, 0.0)));
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use super::super::transducer::tests::{BLANK, Script, row, rules};
    use super::super::transducer::{begin, greedy};
    use super::super::{Behind, tests::walk};
    use super::*;
    use proptest::prelude::*;

    fn hot(tokens: &[u32]) -> Hotwords {
        let words = tokens.first().map(|_| "x".to_owned());
        Hotwords::new(words.as_slice(), &|_| Some(tokens.to_vec())).unwrap()
    }

    fn found(
        rules: &Rules,
        positions: usize,
        beams: usize,
        hotwords: &Hotwords,
        logits: &dyn Fn(usize, &[f32]) -> Vec<f32>,
    ) -> Vec<Token> {
        let (rows, predictions) = (3, 0);
        let mut script = Script {
            positions,
            logits,
            rows,
            predictions,
        };
        let predicted = begin(rules, &mut script).unwrap();
        let behind = Behind::default();
        search(rules, &mut script, walk(beams, hotwords, &behind), predicted)
            .unwrap()
            .0
    }

    /// The probability of every text without durations, by every way to read it with at most two tokens at a position.
    fn all_texts(positions: usize, logits: &dyn Fn(usize, &[f32]) -> Vec<f32>) -> BTreeMap<Vec<u32>, f64> {
        let mut open = vec![(0, 0, Vec::new(), 0.0)];
        let mut texts = BTreeMap::new();
        while let Some((at, symbols, text, sum)) = open.pop() {
            if at == positions {
                let total = texts.entry(text).or_insert(f64::NEG_INFINITY);
                *total = either(*total, sum);
                continue;
            }
            let before: Vec<f32> = [BLANK].iter().chain(&text).map(|&t| t as f32).collect();
            let row = logits(at, &before);
            let chances = Chances::of(&row);
            open.push((at + 1, 0, text.clone(), sum + chances.logprob(BLANK)));
            for token in 0..BLANK {
                let (at, symbols) = if symbols == 1 { (at + 1, 0) } else { (at, 1) };
                open.push((
                    at,
                    symbols,
                    [&text[..], &[token]].concat(),
                    sum + chances.logprob(token),
                ));
            }
        }
        texts
    }

    proptest! {
        #[test]
        fn with_enough_beams_the_likeliest_text_is_found(table in prop::collection::vec(prop::array::uniform4(-2.0f32..2.0), 8..12)) {
            let logits = |at: usize, text: &[f32]| {
                let last = text.last().copied().unwrap_or_default() as usize;
                table[(at * 4 + last + text.len()) % table.len()].to_vec()
            };
            let rules = Rules { most_symbols: 2, ..rules(&[]) };
            let texts = all_texts(3, &logits);
            let most = texts.values().copied().fold(f64::NEG_INFINITY, f64::max);
            let best: Vec<u32> = found(&rules, 3, 2000, &hot(&[]), &logits).iter().map(|t| t.id).collect();
            prop_assert!((texts[&best] - most).abs() < 1e-9, "{:?}: {} of {most}", best, texts[&best]);
        }
    }

    #[test]
    fn what_is_sure_is_what_the_likeliest_tokens_give() {
        let logits = |at: usize, text: &[f32]| {
            let mut row = row([BLANK, 0, 1, 2][(3 * at + text.len()) % 4], (at + text.len()) % 4, 4);
            row.iter_mut().for_each(|logit| *logit *= 4.0);
            row
        };
        let rules = rules(&[0, 1, 2, 4]);
        let (rows, predictions) = (3, 0);
        let mut script = Script {
            positions: 30,
            logits: &logits,
            rows,
            predictions,
        };
        let predicted = begin(&rules, &mut script).unwrap();
        let behind = Behind::default();
        let expected = greedy(&rules, &mut script, walk(1, &hot(&[]), &behind), predicted)
            .unwrap()
            .0;
        assert!(expected.len() > 5);
        for beams in [2, 4] {
            assert_eq!(found(&rules, 30, beams, &hot(&[]), &logits), expected, "{beams} beams");
        }
    }

    #[test]
    fn a_later_word_decides_an_earlier_one() {
        // 1 is a little likelier than 0 at first, and then nothing goes on.
        let logits = |at: usize, text: &[f32]| match (at, text) {
            (0, _) => vec![2.0, 2.2, -9.0, -9.0, 0.0],
            (_, [.., last]) if *last == 0.0 => vec![-9.0, -9.0, 9.0, -9.0, 0.0],
            _ => vec![0.0, 0.0, 0.0, 0.0, 0.0],
        };
        let ids = |found: Vec<Token>| found.iter().map(|t| t.id).collect::<Vec<u32>>();
        let rules = rules(&[1]);
        assert_eq!(ids(found(&rules, 2, 3, &hot(&[]), &logits)), [0, 2]);
        // A hotword that goes on as it begins decides a near tie, one that does not, nothing.
        let near = |at: usize, _: &[f32]| match at {
            0 => vec![1.5, 2.5, -9.0, -9.0, 0.0],
            _ => vec![-9.0, -9.0, 9.0, -9.0, 0.0],
        };
        assert_eq!(ids(found(&rules, 2, 3, &hot(&[]), &near)), [1, 2]);
        assert_eq!(ids(found(&rules, 2, 3, &hot(&[0, 2]), &near)), [0, 2]);
        assert_eq!(ids(found(&rules, 2, 3, &hot(&[0, 1]), &near)), [1, 2]);
    }

    #[test]
    fn impossible_logits_end_the_search() {
        let none = |_: usize, _: &[f32]| vec![f32::MIN; 6];
        assert!(found(&rules(&[0, 1]), 4, 3, &hot(&[]), &none).is_empty());
    }
}
