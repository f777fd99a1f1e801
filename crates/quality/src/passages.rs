//! Models of texts: what reaches their weights, and how far the vectors or scores of a bundle are from its source's.
//!
//! A text is cut into passages as such models are given them: its paragraphs as documents, and a sentence of each as what is searched
//! with.

use crate::pipeline::open_matrices;
use crate::report::Measured;
use crate::sensitivity::{coarser, each_coarser};
use crate::trial::{Shown, Source, Trial};
use crate::{Error, Result, Sensitivity, Stage, Text};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_embed::{Passage, Probe, Role};
use cactus_import::Stop;
use cactus_passes::Policy;
use cactus_runtime::Observer;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Most tokens of a passage.
const PASSAGE_TOKENS: usize = 256;
/// Tokens that sensitivity is measured on.
const SENSITIVITY_TOKENS: usize = 1024;
/// Vectors that are compared with each other: more take long and say no more.
const COMPARED: usize = 512;
/// Fewest letters of what is taken for a sentence.
const SENTENCE_BYTES: usize = 24;
/// Bytes that a token has at most, when it is decided how much of a text is enough.
const TOKEN_BYTES: usize = 64;

/// How far what a bundle gives of texts is from what its source gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TextComparison {
    /// Vectors, of texts or of their tokens.
    Vectors {
        /// Texts.
        texts: usize,
        /// Vectors of them.
        vectors: usize,
        /// Mean cosine of a vector to the source's.
        cosine_mean: f64,
        /// The least.
        cosine_least: f64,
        /// Mean difference of the cosine of two vectors from that of the source's two.
        shift_mean: f64,
        /// Share of the vectors whose nearest other one is the same.
        nearest: f64,
    },
    /// Scores of documents for queries.
    Scores {
        /// Pairs.
        pairs: usize,
        /// Mean difference of a score from the source's, in standard deviations of the source's.
        shift_mean: f64,
        /// The largest.
        shift_largest: f64,
        /// Share of twos of pairs of which the same one has the higher score.
        order: f64,
    },
}

impl std::fmt::Display for TextComparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Vectors {
                cosine_mean,
                cosine_least,
                shift_mean,
                nearest,
                ..
            } => write!(
                f,
                "cosine of vectors {cosine_mean:.4} (least {cosine_least:.4}), similarities shifted by {shift_mean:.4}, same nearest text {:.1} %",
                100.0 * nearest
            ),
            Self::Scores {
                shift_mean,
                shift_largest,
                order,
                ..
            } => write!(
                f,
                "scores shifted by {shift_mean:.3} standard deviations (at most {shift_largest:.3}), same order {:.1} %",
                100.0 * order
            ),
        }
    }
}

/// The passages of `text` for a model, of at most so many tokens in all.
fn passages(probe: &Probe, text: &Text, tokens: usize) -> Result<Vec<Passage>> {
    let rendered = text.rendered(None, tokens.saturating_mul(TOKEN_BYTES))?;
    let paragraphs: Vec<&str> = rendered
        .split("\n\n")
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .collect();
    let mut out = Vec::new();
    let mut count = 0;
    let mut push = |role: Role<'_>, query: &str, text: &str| -> Result<bool> {
        let passage = probe
            .passage(role, query, text, PASSAGE_TOKENS)
            .map_err(|e| Error::Text(format!("the text cannot be tokenized: {e}")))?;
        count += passage.tokens();
        out.push(passage);
        Ok(count < tokens)
    };
    for (i, paragraph) in paragraphs.iter().enumerate() {
        let asked = sentence(paragraph, i);
        // What answers it, and what does not.
        let next = paragraphs[(i + 1) % paragraphs.len()];
        let more = match probe.scores() {
            true => push(Role::Document, asked, paragraph)? && push(Role::Document, asked, next)?,
            false => push(Role::Document, "", paragraph)? && push(Role::Query, "", asked)?,
        };
        if !more {
            break;
        }
    }
    match out.len() {
        0 | 1 => Err(Error::Text(format!(
            "`{}` has not two paragraphs; a text to try a model of texts with has empty lines between them",
            text.name()
        ))),
        _ => Ok(out),
    }
}

/// One of the sentences of a paragraph, another one in each.
fn sentence(paragraph: &str, turn: usize) -> &str {
    let sentences = paragraph.split_inclusive(['.', '?', '!', '\n', '。']).map(str::trim);
    let sentences: Vec<&str> = sentences.filter(|s| s.len() >= SENTENCE_BYTES).collect();
    match sentences.len() {
        0 => paragraph,
        n => sentences[turn % n],
    }
}

/// A bundle that makes vectors or scores of texts.
pub(crate) struct OfTexts {
    pub(crate) threads: usize,
}

impl OfTexts {
    fn probe(&self, folder: &Path) -> Result<Probe> {
        Ok(Probe::of(Arc::new(Bundle::open(folder)?), self.threads)?)
    }
}

impl Source for (Probe, Vec<Passage>) {
    fn bundle(&self) -> &Bundle {
        self.0.bundle()
    }

    fn pool(&self) -> (&Pool, usize) {
        self.0.pool()
    }

    fn texts(&self) -> usize {
        self.1.len()
    }

    fn observe(&mut self, text: usize, observer: Observer<'_>) -> Result<()> {
        match self.1.get(text) {
            Some(passage) => Ok(self.0.observe(passage, observer)?),
            None => Ok(()),
        }
    }
}

impl Trial for OfTexts {
    fn source(&self, folder: &Path, text: &Text, tokens: usize) -> Result<Box<dyn Source>> {
        let probe = self.probe(folder)?;
        let passages = passages(&probe, text, tokens)?;
        Ok(Box::new((probe, passages)))
    }

    fn sensitivities(
        &self,
        reference: &Path,
        policy: &Policy,
        bits: u32,
        text: &Text,
        shown: &Shown<'_>,
    ) -> Result<Vec<Sensitivity>> {
        let mut probe = self.probe(reference)?;
        let passages = passages(&probe, text, SENSITIVITY_TOKENS)?;
        let bundle = Arc::clone(probe.bundle());
        let names = open_matrices(&bundle, policy, |name| probe.replace(name, None).is_ok());
        let exact = probe.outputs(&passages)?;
        let total = names.len() as u64;
        each_coarser(
            &names,
            bits,
            &mut |name| {
                let (elements, coarse) = coarser(probe.bundle(), name, bits)?;
                probe.replace(name, Some(coarse))?;
                let found = probe.outputs(&passages);
                probe.replace(name, None)?;
                Ok((elements, distance(&exact, &found?, probe.width())))
            },
            &mut |done| shown(Stage::Sensitivity, done as u64, total),
        )
    }

    fn measure(
        &self,
        reference: &Path,
        candidate: &Path,
        (text, tokens): (&Text, usize),
        shown: &Shown<'_>,
        stop: &Stop,
    ) -> Result<Measured> {
        let total = 2;
        shown(Stage::Measuring, 0, total);
        let probe = self.probe(reference)?;
        let passages = passages(&probe, text, tokens)?;
        let exact = probe.outputs(&passages)?;
        stop.check()?;
        shown(Stage::Measuring, 1, total);
        let (width, scores) = (probe.width(), probe.scores());
        drop(probe);
        let found = self.probe(candidate)?.outputs(&passages)?;
        shown(Stage::Measuring, 2, total);
        Ok(Measured::Texts(match scores {
            true => compare_scores(&exact, &found),
            false => compare_vectors(&exact, &found, width, passages.len()),
        }))
    }
}

/// Mean of what two rows lack to a cosine of 1; of numbers alone, of their squared difference.
fn distance(exact: &[f32], found: &[f32], width: usize) -> f64 {
    let rows = (exact.len() / width.max(1)).max(1) as f64;
    let each = exact.chunks_exact(width).zip(found.chunks_exact(width));
    let sum: f64 = match width {
        1 => each.map(|(a, b)| f64::from(a[0] - b[0]).powi(2)).sum(),
        _ => each.map(|(a, b)| 1.0 - cosine(a, b)).sum(),
    };
    sum / rows
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// The cosine of two vectors; 0 where one has no direction.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}

fn compare_vectors(exact: &[f32], found: &[f32], width: usize, texts: usize) -> TextComparison {
    let rows = |values: &'_ [f32]| -> Vec<Vec<f32>> { values.chunks_exact(width).map(<[f32]>::to_vec).collect() };
    let (exact, found) = (rows(exact), rows(found));
    let own: Vec<f64> = exact.iter().zip(&found).map(|(a, b)| cosine(a, b)).collect();
    let count = exact.len().min(COMPARED);
    let (mut shift, mut twos, mut same) = (0.0, 0usize, 0usize);
    for i in 0..count {
        let mut nearest = [(f64::NEG_INFINITY, 0); 2];
        for j in (0..count).filter(|&j| j != i) {
            let near = [cosine(&exact[i], &exact[j]), cosine(&found[i], &found[j])];
            shift += (near[0] - near[1]).abs();
            twos += 1;
            for (best, near) in nearest.iter_mut().zip(near) {
                if near > best.0 {
                    *best = (near, j);
                }
            }
        }
        same += usize::from(nearest[0].1 == nearest[1].1);
    }
    TextComparison::Vectors {
        texts,
        vectors: own.len(),
        cosine_mean: own.iter().sum::<f64>() / own.len().max(1) as f64,
        cosine_least: own.iter().copied().fold(1.0, f64::min),
        shift_mean: shift / twos.max(1) as f64,
        nearest: same as f64 / count.max(1) as f64,
    }
}

fn compare_scores(exact: &[f32], found: &[f32]) -> TextComparison {
    let pairs = exact.len();
    let n = pairs.max(1) as f64;
    let mean = exact.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let spread = (exact.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n).sqrt();
    let unit = if spread > 0.0 { spread } else { 1.0 };
    let shifts: Vec<f64> = exact
        .iter()
        .zip(found)
        .map(|(&a, &b)| f64::from(a - b).abs() / unit)
        .collect();
    let (mut twos, mut same) = (0usize, 0usize);
    for i in 0..pairs {
        for j in 0..i {
            twos += 1;
            same += usize::from(exact[i].total_cmp(&exact[j]) == found[i].total_cmp(&found[j]));
        }
    }
    TextComparison::Scores {
        pairs,
        shift_mean: shifts.iter().sum::<f64>() / n,
        shift_largest: shifts.iter().copied().fold(0.0, f64::max),
        order: same as f64 / twos.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_take_turns_and_short_ones_are_left_out() {
        let paragraph = "One. The second one is a whole sentence. The third one is a sentence, too. End";
        assert_eq!(sentence(paragraph, 0), "The second one is a whole sentence.");
        assert_eq!(sentence(paragraph, 1), "The third one is a sentence, too.");
        assert_eq!(sentence(paragraph, 2), sentence(paragraph, 0));
        assert_eq!(sentence("short", 3), "short");
    }

    #[test]
    fn vectors_are_compared_with_the_sources_and_with_each_other() {
        let exact = [1.0, 0.0, 0.6, 0.8, 0.0, 1.0];
        let TextComparison::Vectors {
            cosine_mean,
            shift_mean,
            nearest,
            ..
        } = compare_vectors(&exact, &exact, 2, 3)
        else {
            panic!("expected vectors");
        };
        assert!((cosine_mean - 1.0).abs() < 1e-6 && shift_mean == 0.0 && nearest == 1.0);
        // The second one turns from the third to the first.
        let turned = [1.0, 0.0, 0.8, 0.6, 0.0, 1.0];
        let TextComparison::Vectors {
            cosine_mean,
            cosine_least,
            shift_mean,
            nearest,
            vectors,
            texts,
        } = compare_vectors(&exact, &turned, 2, 3)
        else {
            panic!("expected vectors");
        };
        assert_eq!((vectors, texts), (3, 3));
        assert!((cosine_least - 0.96).abs() < 1e-6 && (cosine_mean - (2.0 + 0.96) / 3.0).abs() < 1e-6);
        assert!((shift_mean - 0.8 / 6.0).abs() < 1e-6, "{shift_mean}");
        assert!((nearest - 2.0 / 3.0).abs() < 1e-6, "{nearest}");
    }

    #[test]
    fn scores_are_compared_in_spreads_and_in_order() {
        let TextComparison::Scores {
            pairs,
            shift_mean,
            shift_largest,
            order,
        } = compare_scores(&[0.0, 2.0, 4.0], &[0.0, 5.0, 4.0])
        else {
            panic!("expected scores");
        };
        let spread = (8.0f64 / 3.0).sqrt();
        assert_eq!(pairs, 3);
        assert!((shift_largest - 3.0 / spread).abs() < 1e-6 && (shift_mean - 1.0 / spread).abs() < 1e-6);
        assert!((order - 2.0 / 3.0).abs() < 1e-6);
        assert_eq!(distance(&[1.0, 2.0], &[1.0, 4.0], 1), 2.0);
    }
}
