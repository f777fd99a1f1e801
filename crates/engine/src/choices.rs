//! How likely a model is to answer with each of several given texts.
//!
//! Purpose: decisions, for which nothing is generated: [`Choices::requests`] says what a scheduler has to compute,
//! [`Choices::logprobs`] what follows from it, [`probabilities`] how likely each answer is if it has to be one of them. Every number is
//! from raw logits and made by the arithmetic of [`crate::sampler`], so it has the same bits on every machine, however requests
//! are computed together.
//!
//! An answer is a sequence of tokens. Its probability is the product of those of its tokens, each given the ones before it: no
//! mean over tokens, which would favor long answers, and no mere first token. Where one answer begins like another ("no" and
//! "no problem"), what belongs to the longer is taken from the shorter. So the events, *this is the longest of the answers that
//! the text begins with*, exclude each other, and their probabilities add up to at most 1 without a token that ends the text.
//!
//! The answers are a tree of tokens. A request computes one path through it and watches all tokens that branch off, so answers
//! whose first tokens differ and that have no second one take a single request with a single row of logits.
//!
//! It may depend on the scheduler's requests. It deliberately computes nothing and knows no text.

use crate::sampler::{TokenLogprob, exp, ln};
use crate::scheduler::Request;
use crate::{Completion, Error, GenerateOptions, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Least number whose exponential the arithmetic has.
const LEAST: f64 = -708.0;

/// A prompt, and the answers to choose from.
#[derive(Debug, Clone)]
pub struct Choices {
    prompt: Vec<u32>,
    answers: Vec<Vec<u32>>,
    paths: Vec<Path>,
}

/// What one request computes.
#[derive(Debug, Clone)]
struct Path {
    /// Tokens after the prompt.
    tokens: Vec<u32>,
    /// Tokens that follow the prompt or one of these.
    watch: Vec<u32>,
}

impl Choices {
    /// `answers` to `prompt`, as tokens that are appended to it.
    ///
    /// # Errors
    /// [`Error::Argument`] for no answers, and one that is empty or the same as another.
    pub fn new(prompt: Vec<u32>, answers: Vec<Vec<u32>>) -> Result<Choices> {
        let mut known = HashMap::new();
        for (i, answer) in answers.iter().enumerate() {
            if answer.is_empty() {
                return Err(Error::Argument(format!("answer {i} to choose has no tokens")));
            }
            if let Some(other) = known.insert(answer, i) {
                let message = format!("the answers {other} and {i} to choose from have the same tokens");
                return Err(Error::Argument(message));
            }
        }
        if answers.is_empty() {
            return Err(Error::Argument("there are no answers to choose from".to_owned()));
        }
        let paths = paths(&answers);
        Ok(Choices { prompt, answers, paths })
    }

    /// The tokens before the answers.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The tokens of the answers.
    pub fn answers(&self) -> &[Vec<u32>] {
        &self.answers
    }

    /// What a scheduler has to compute, in any order and beside anything else.
    pub fn requests(&self) -> impl Iterator<Item = Request> {
        self.paths.iter().map(|path| {
            let options = GenerateOptions {
                max_tokens: 1,
                temperature: 0.0,
                logprobs: Some(0),
                // A token that ends the answer would come without the others.
                ignore_eos: true,
                ..GenerateOptions::default()
            };
            Request {
                score_from: (!path.tokens.is_empty()).then_some(self.prompt.len()),
                watch: path.watch.clone(),
                ..Request::new([&self.prompt[..], &path.tokens].concat(), options)
            }
        })
    }

    /// Natural logarithms of the probabilities of the answers, negative infinity for none. `completions` are those of
    /// [`Choices::requests`], in their order.
    ///
    /// # Errors
    /// [`Error::Argument`] where one is missing or was cancelled.
    pub fn logprobs(&self, completions: &[Completion]) -> Result<Vec<f64>> {
        let mut rows: BTreeMap<&[u32], &[TokenLogprob]> = BTreeMap::new();
        for (path, completion) in self.paths.iter().zip(completions) {
            let tokens = completion.prompt_logprobs.iter().chain(&completion.logprobs);
            for (length, token) in tokens.enumerate().take(path.tokens.len() + 1) {
                rows.insert(&path.tokens[..length], &token.watched);
            }
        }
        let of = |answer: &[u32]| -> Option<f64> {
            let mut sum = 0.0;
            for (i, &token) in answer.iter().enumerate() {
                let row = rows.get(&answer[..i])?;
                // The last bit of a logarithm may be above that of a certainty.
                sum += row.iter().find(|known| known.token == token)?.logprob.min(0.0);
            }
            Some(sum)
        };
        let begins: Option<Vec<f64>> = self.answers.iter().map(|answer| of(answer)).collect();
        let begins = begins.ok_or_else(|| Error::Argument("a computation for the answers is missing".to_owned()))?;
        Ok(self.without_longer(&begins))
    }

    /// From the probabilities that a text begins with each answer to those that it begins with no longer one, as logarithms.
    fn without_longer(&self, begins: &[f64]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..self.answers.len()).collect();
        order.sort_by_key(|&i| &self.answers[i]);
        let mut logprobs = begins.to_vec();
        for (at, &i) in order.iter().enumerate() {
            let (mut longer, mut last) = (0.0, None::<usize>);
            let after = order[at + 1..].iter();
            for &other in after.take_while(|&&other| self.answers[other].starts_with(&self.answers[i])) {
                // One that begins with another longer one is part of that.
                if last.is_some_and(|last| self.answers[other].starts_with(&self.answers[last])) {
                    continue;
                }
                last = Some(other);
                longer += exponential(begins[other] - begins[i]);
            }
            if last.is_some() {
                let rest = 1.0 - longer;
                logprobs[i] = if rest > 0.0 {
                    begins[i] + ln(rest)
                } else {
                    f64::NEG_INFINITY
                };
            }
        }
        logprobs
    }
}

/// The inner nodes of the tree of answers, as paths of which none begins another.
fn paths(answers: &[Vec<u32>]) -> Vec<Path> {
    let mut children: BTreeMap<&[u32], BTreeSet<u32>> = BTreeMap::new();
    for answer in answers {
        for (i, &token) in answer.iter().enumerate() {
            children.entry(&answer[..i]).or_default().insert(token);
        }
    }
    let nodes: Vec<&[u32]> = children.keys().copied().collect();
    let ends = |i: usize| nodes.get(i + 1).is_none_or(|next| !next.starts_with(nodes[i]));
    let ends = (0..nodes.len()).filter(|&i| ends(i)).map(|i| nodes[i]);
    ends.map(|tokens| {
        let on_path = (0..=tokens.len()).filter_map(|length| children.get(&tokens[..length]));
        let watch: BTreeSet<u32> = on_path.flatten().copied().collect();
        Path {
            tokens: tokens.to_vec(),
            watch: watch.into_iter().collect(),
        }
    })
    .collect()
}

/// e^x for x up to 0.
fn exponential(x: f64) -> f64 {
    if x < LEAST { 0.0 } else { exp(x.min(0.0)) }
}

/// What the answers have of all that the model could write, 0 to 1: little where it would rather write something else.
pub fn mass(logprobs: &[f64]) -> f64 {
    logprobs.iter().map(|&p| exponential(p)).sum::<f64>().min(1.0)
}

/// The probabilities of the answers if it has to be one of them: the softmax of `logprobs` divided by `temperature`, which is 1
/// where nothing is known of how sure the model may be. All are equal where all are impossible.
pub fn probabilities(logprobs: &[f64], temperature: f64) -> Vec<f64> {
    let best = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if best == f64::NEG_INFINITY {
        return vec![1.0 / logprobs.len() as f64; logprobs.len()];
    }
    let weights: Vec<f64> = logprobs.iter().map(|p| exponential((p - best) / temperature)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: &[f64], expected: &[f64]) {
        let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-12);
        assert!(!far && found.len() == expected.len(), "{found:?} against {expected:?}");
    }

    #[test]
    fn paths_cover_each_inner_node_once() {
        for (answers, expected) in [
            (vec![vec![1], vec![2], vec![3]], vec![(vec![], vec![1, 2, 3])]),
            (vec![vec![1, 5], vec![2]], vec![(vec![1], vec![1, 2, 5])]),
            (vec![vec![1], vec![1, 5]], vec![(vec![1], vec![1, 5])]),
            (
                vec![vec![1, 5, 6], vec![1, 7], vec![2, 8]],
                vec![(vec![1, 5], vec![1, 2, 5, 6, 7]), (vec![2], vec![1, 2, 8])],
            ),
        ] {
            let found: Vec<_> = paths(&answers).into_iter().map(|p| (p.tokens, p.watch)).collect();
            assert_eq!(found, expected, "{answers:?}");
        }
    }

    #[test]
    fn answers_that_cannot_be_told_apart_are_refused() {
        for answers in [vec![], vec![vec![1], vec![]], vec![vec![1, 2], vec![3], vec![1, 2]]] {
            assert!(Choices::new(vec![1], answers).is_err());
        }
    }

    #[test]
    fn longer_answers_are_taken_from_those_that_begin_them() {
        // 1 with 0.8, of which 1 2 has half and 1 2 3 a quarter of that; 1 4 a tenth.
        let answers = vec![vec![1, 2, 3], vec![9], vec![1], vec![1, 2], vec![1, 4]];
        let choices = Choices::new(vec![0], answers).unwrap();
        let begins = [0.1, 0.2, 0.8, 0.4, 0.08].map(f64::ln);
        let found: Vec<f64> = choices.without_longer(&begins).iter().map(|p| p.exp()).collect();
        near(&found, &[0.1, 0.2, 0.32, 0.3, 0.08]);
        // Rounding leaves nothing below nothing.
        let choices = Choices::new(vec![0], vec![vec![1], vec![1, 2]]).unwrap();
        assert_eq!(choices.without_longer(&[-1.0, -1.0]), [f64::NEG_INFINITY, -1.0]);
    }

    #[test]
    fn probabilities_are_a_softmax() {
        near(&probabilities(&[0.1f64.ln(), 0.3f64.ln()], 1.0), &[0.25, 0.75]);
        near(
            &probabilities(&[0.1f64.ln(), 0.4f64.ln()], 2.0),
            &[1.0 / 3.0, 2.0 / 3.0],
        );
        near(&probabilities(&[-2000.0, -2000.0], 1.0), &[0.5, 0.5]);
        near(
            &probabilities(&[-2000.0, -1.0, f64::NEG_INFINITY], 1.0),
            &[0.0, 1.0, 0.0],
        );
        near(&probabilities(&[f64::NEG_INFINITY; 4], 1.0), &[0.25; 4]);
        near(&[mass(&[0.1f64.ln(), 0.3f64.ln()]), mass(&[-2000.0])], &[0.4, 0.0]);
    }
}
