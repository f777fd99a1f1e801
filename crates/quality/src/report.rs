//! The quality document of a bundle.

use crate::{Comparison, TextComparison};
use cactus_import::TensorError;
use serde::Serialize;

/// What a bundle must reach to be written without being asked twice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    /// Largest mean divergence, in nats.
    pub kl_mean: f64,
    /// Smallest share of positions with the same most likely token, where the divergence is more than a tenth of the
    /// largest: a model that hardly prefers one token to another loses nothing by another order.
    pub top1: f64,
    /// Smallest mean cosine of vectors to the source's.
    pub cosine: f64,
    /// Smallest share of twos of scores that are in the source's order.
    pub order: f64,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            kl_mean: 0.5,
            top1: 0.65,
            cosine: 0.9,
            order: 0.8,
        }
    }
}

/// Whether a bundle reaches the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Passed,
    /// It does not, and was written because that was asked for.
    BelowFloor,
    /// Its outputs were not compared with the source's.
    NotMeasured,
}

/// `quality.json`: how far a bundle is from its source.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this document.
    pub version: u32,
    /// Whether the bundle reaches the floor.
    pub verdict: Verdict,
    /// Why it does not, or was not measured; absent where it passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the bundle was compared with: the source's weights in floats, run by the same engine.
    pub reference: String,
    /// What the comparison was made on; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What calibration ran; absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
    /// The comparison; absent where only the matrices were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The comparison of a model of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub texts: Option<TextComparison>,
    /// The floor in force.
    pub floor: Floor,
    /// What was lost in each matrix, the worst first.
    pub tensors: Vec<TensorError>,
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub enum Measured {
    /// Of a language model.
    Answers(Comparison),
    /// Of a model of texts.
    Texts(TextComparison),
}

impl Report {
    /// The document of a comparison on the text called `text`.
    #[must_use]
    pub fn measured(found: Measured, floor: Floor, text: String, tensors: Vec<TensorError>) -> Self {
        let (comparison, texts) = match found {
            Measured::Answers(comparison) => (Some(comparison), None),
            Measured::Texts(texts) => (None, Some(texts)),
        };
        let mut report = Self {
            text: Some(text),
            comparison,
            texts,
            ..Self::unmeasured(String::new(), floor, tensors)
        };
        report.why = report.failure();
        report.verdict = match report.why {
            Some(_) => Verdict::BelowFloor,
            None => Verdict::Passed,
        };
        report
    }

    /// The document of what was lost in the matrices alone, and why no more was measured.
    #[must_use]
    pub fn unmeasured(why: String, floor: Floor, mut tensors: Vec<TensorError>) -> Self {
        tensors.sort_by(|a, b| b.relative.total_cmp(&a.relative).then_with(|| a.name.cmp(&b.name)));
        Self {
            version: 1,
            verdict: Verdict::NotMeasured,
            why: Some(why),
            reference: "the source in half precision".into(),
            text: None,
            calibration: None,
            comparison: None,
            texts: None,
            floor,
            tensors,
        }
    }

    /// Why the bundle is below the floor, with the worst tensors; `None` where it is not.
    fn failure(&self) -> Option<String> {
        let what = match (&self.comparison, &self.texts) {
            (Some(c), _) => self.floor.of_answers(c)?,
            (_, Some(t)) => self.floor.of_texts(t)?,
            _ => return None,
        };
        let worst: Vec<String> = self
            .tensors
            .iter()
            .take(3)
            .map(|t| format!("`{}` ({}, {:.1} %)", t.name, t.packing, 100.0 * t.relative))
            .collect();
        Some(format!("{what}; largest errors: {}", worst.join(", ")))
    }
}

impl Floor {
    /// How far a language model is from its source, where that is below the floor.
    fn of_answers(&self, c: &Comparison) -> Option<String> {
        // A divergence that is no number is below every floor.
        let far = c.kl_mean > self.kl_mean || c.kl_mean.is_nan();
        let other = c.top1 < self.top1 && c.kl_mean > self.kl_mean / 10.0;
        (far || other).then(|| {
            format!(
                "divergence from the source {:.4} nats (at most {}), same top token {:.1} % (at least {:.0} %)",
                c.kl_mean,
                self.kl_mean,
                100.0 * c.top1,
                100.0 * self.top1
            )
        })
    }

    /// The same of a model of texts.
    fn of_texts(&self, found: &TextComparison) -> Option<String> {
        match found {
            TextComparison::Vectors { cosine_mean, .. } => {
                let far = *cosine_mean < self.cosine || cosine_mean.is_nan();
                far.then(|| {
                    format!(
                        "mean cosine to the source's vectors {cosine_mean:.4} (at least {})",
                        self.cosine
                    )
                })
            }
            TextComparison::Scores { order, .. } => (*order < self.order).then(|| {
                format!(
                    "{:.1} % of the scores are in the source's order (at least {:.0} %)",
                    100.0 * order,
                    100.0 * self.order
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kl_mean: f64, top1: f64) -> Report {
        let comparison = Comparison {
            tokens: 1,
            windows: 1,
            context: 8,
            kl_mean,
            kl_error: 0.0,
            kl_median: 0.0,
            kl_p99: 0.0,
            top1,
            perplexity_reference: 1.0,
            perplexity: 1.0,
        };
        let tensor = |name: &str, relative| TensorError {
            name: name.into(),
            packing: "cq2_g128".into(),
            relative,
            calibrated: false,
        };
        Report::measured(
            Measured::Answers(comparison),
            Floor::default(),
            "text".into(),
            vec![tensor("good", 0.1), tensor("bad", 0.3)],
        )
    }

    #[test]
    fn failure_names_figures_and_the_worst_tensors() {
        for good in [report(0.1, 0.9), report(0.01, 0.5)] {
            assert_eq!((good.verdict, good.why), (Verdict::Passed, None));
        }
        for bad in [report(0.6, 0.9), report(0.1, 0.5), report(f64::NAN, 0.9)] {
            let text = bad.why.unwrap();
            assert_eq!(bad.verdict, Verdict::BelowFloor);
            assert!(text.contains("`bad` (cq2_g128, 30.0 %), `good`"), "{text}");
        }
    }

    #[test]
    fn models_of_texts_have_floors_of_their_own() {
        let vectors = |cosine_mean| TextComparison::Vectors {
            texts: 2,
            vectors: 2,
            cosine_mean,
            cosine_least: 0.5,
            shift_mean: 0.0,
            nearest: 1.0,
        };
        let scores = |order| TextComparison::Scores {
            pairs: 2,
            shift_mean: 0.0,
            shift_largest: 0.0,
            order,
        };
        let report = |found| Report::measured(Measured::Texts(found), Floor::default(), "text".into(), Vec::new());
        for good in [vectors(0.99), scores(0.9)] {
            assert_eq!(report(good).verdict, Verdict::Passed);
        }
        for (bad, what) in [
            (vectors(0.8), "cosine"),
            (vectors(f64::NAN), "cosine"),
            (scores(0.5), "order"),
        ] {
            let report = report(bad);
            assert_eq!(report.verdict, Verdict::BelowFloor);
            assert!(report.why.unwrap().contains(what));
        }
    }

    #[test]
    fn a_document_without_a_comparison_says_so() {
        let json = serde_json::to_value(Report::unmeasured("no text".into(), Floor::default(), Vec::new())).unwrap();
        assert_eq!(
            (&json["verdict"], &json["why"]),
            (&"not_measured".into(), &"no text".into())
        );
        assert!(json.get("comparison").is_none() && json.get("text").is_none(), "{json}");
    }
}
