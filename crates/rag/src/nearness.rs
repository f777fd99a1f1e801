//! When a piece counts as found: how near it has to be to a question.
//!
//! A cosine means something else for each model and each collection, so no number tells what "near" is. What can be measured is how near
//! the nearest piece is to questions that no document answers. `unrelated.txt` has such questions: each asks for something particular
//! of a life that nobody wrote down, and they are about many things, so that a collection that is about some of them does not move the
//! middle.

use crate::{Embed, Error, Found, Result};
use cactus_retrieval::{Query, Reader, words_of};
use std::collections::BTreeSet;

/// How near a piece has to be to a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Nearness {
    /// Any piece counts.
    #[default]
    Any,
    /// Its cosine with the question is so much.
    AtLeast(f32),
    /// It is nearer than pieces are to questions that the collection has nothing on, or has every word of the question.
    Related,
}

impl std::str::FromStr for Nearness {
    type Err = String;

    /// `any`, `related`, or a cosine.
    fn from_str(text: &str) -> std::result::Result<Nearness, String> {
        let number: Option<f32> = text.parse().ok();
        match (text, number.filter(|x| (-1.0..=1.0).contains(x))) {
            ("related", _) => Ok(Nearness::Related),
            ("any", _) => Ok(Nearness::Any),
            (_, Some(cosine)) => Ok(Nearness::AtLeast(cosine)),
            _ => Err(format!(
                "expected `related`, `any`, or a number from -1 to 1, found `{text}`"
            )),
        }
    }
}

/// Questions that no document answers, one a line.
const UNRELATED: &str = include_str!("nearness/unrelated.txt");
/// How many spreads above the middle of what is found for them a piece is related.
const SPREADS: f32 = 3.5;
/// What the median of distances from the middle is to a standard deviation where they are normal.
const OF_NORMAL: f32 = 1.4826;

/// The questions that no document answers.
pub(crate) fn unrelated() -> Vec<String> {
    UNRELATED.lines().map(str::to_owned).collect()
}

/// The least cosine of a piece that is related to a question, in this state of a collection.
pub(crate) fn threshold(reader: &Reader, model: &dyn Embed) -> Result<f32> {
    let mut best = Vec::new();
    for vector in model.embed_unrelated().map_err(Error::Embed)?.iter() {
        let hits = reader.search(&Query::Vector(vector), None, 1)?;
        best.extend(hits.first().map(|hit| hit.score));
    }
    Ok(above(best))
}

/// What is above chance, where these are what chance gives.
fn above(mut best: Vec<f32>) -> f32 {
    let middle = median(&mut best);
    let mut far: Vec<f32> = best.iter().map(|x| (x - middle).abs()).collect();
    middle + SPREADS * OF_NORMAL * median(&mut far)
}

fn median(numbers: &mut [f32]) -> f32 {
    numbers.sort_by(f32::total_cmp);
    let half = numbers.len() / 2;
    match (numbers.len() % 2, numbers.get(half)) {
        (_, None) => 0.0,
        (0, Some(upper)) => (numbers[half - 1] + upper) / 2.0,
        (_, Some(middle)) => *middle,
    }
}

/// Whether a piece, or what stands above it, has every word of a question that has one.
pub(crate) fn has_every_word(question: &str, piece: &Found) -> bool {
    let asked: BTreeSet<String> = words_of(question).into_iter().collect();
    let said: BTreeSet<String> = words_of(&piece.in_context()).into_iter().collect();
    !asked.is_empty() && asked.is_subset(&said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearness_in_words_and_numbers() {
        for (text, expected) in [
            ("any", Nearness::Any),
            ("related", Nearness::Related),
            ("-0.5", Nearness::AtLeast(-0.5)),
            ("1", Nearness::AtLeast(1.0)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for text in ["", "1.1", "NaN", "near"] {
            assert!(text.parse::<Nearness>().unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn questions_are_many_and_each_is_one() {
        let all = unrelated();
        assert!(all.len() >= 48);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(
            all.iter()
                .all(|question| question.ends_with('?') && question.len() > 20)
        );
    }

    #[test]
    fn what_a_few_questions_find_does_not_move_the_threshold() {
        let chance: Vec<f32> = (0..64u8).map(|i| 0.2 + 0.001 * f32::from(i)).collect();
        let mut some = chance.clone();
        // A collection has something on five of them after all.
        some[..5].fill(0.7);
        let (plain, moved) = (above(chance), above(some));
        assert!(plain > 0.263 && plain < 0.35, "{plain}");
        assert!((plain - moved).abs() < 0.03, "{plain} {moved}");
        assert_eq!(above(Vec::new()), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
    }

    #[test]
    fn pieces_with_every_word_of_a_question() {
        let piece = Found::for_tests("a", 0, "Error E-1234 means that getUserName found nobody.");
        for (question, expected) in [
            ("E-1234", true),
            ("getUserName", true),
            ("user nobody", true),
            ("E-1235", false),
            ("what does E-1234 mean", false),
            ("", false),
            ("?", false),
        ] {
            assert_eq!(has_every_word(question, &piece), expected, "{question}");
        }
    }
}
