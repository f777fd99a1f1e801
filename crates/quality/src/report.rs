//! The quality document of a bundle.

use crate::Comparison;
use cactus_import::TensorError;
use serde::Serialize;

/// What a bundle must reach to be written without being asked twice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    /// Largest mean divergence, in nats.
    pub kl_mean: f64,
    /// Smallest share of positions with the same most likely token.
    pub top1: f64,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            kl_mean: 0.5,
            top1: 0.65,
        }
    }
}

/// `quality.json`: how far a bundle is from its source.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this document.
    pub version: u32,
    /// What the bundle was compared with: the source's weights in floats, run by the same engine.
    pub reference: String,
    /// What the comparison was made on.
    pub text: String,
    /// What calibration ran; absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
    /// The comparison.
    pub comparison: Comparison,
    /// The floor in force.
    pub floor: Floor,
    /// What was lost in each matrix, the worst first.
    pub tensors: Vec<TensorError>,
}

impl Report {
    /// The document of a comparison.
    #[must_use]
    pub fn new(comparison: Comparison, floor: Floor, text: String, mut tensors: Vec<TensorError>) -> Self {
        tensors.sort_by(|a, b| b.relative.total_cmp(&a.relative).then_with(|| a.name.cmp(&b.name)));
        Self {
            version: 1,
            reference: "the source in half precision".into(),
            text,
            calibration: None,
            comparison,
            floor,
            tensors,
        }
    }

    /// Why the bundle is below the floor, with the worst tensors; `None` where it is not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let (c, floor) = (&self.comparison, &self.floor);
        // A divergence that is no number is below every floor.
        let far = c.kl_mean > floor.kl_mean || c.kl_mean.is_nan();
        if !far && c.top1 >= floor.top1 {
            return None;
        }
        let worst: Vec<String> = self
            .tensors
            .iter()
            .take(3)
            .map(|t| format!("`{}` ({}, {:.1} %)", t.name, t.packing, 100.0 * t.relative))
            .collect();
        Some(format!(
            "divergence from the source {:.4} nats (at most {}), same first token {:.1} % (at least {:.0} %); largest \
             errors: {}",
            c.kl_mean,
            floor.kl_mean,
            100.0 * c.top1,
            100.0 * floor.top1,
            worst.join(", ")
        ))
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
        Report::new(
            comparison,
            Floor::default(),
            "text".into(),
            vec![tensor("good", 0.1), tensor("bad", 0.3)],
        )
    }

    #[test]
    fn failure_names_figures_and_the_worst_tensors() {
        assert_eq!(report(0.1, 0.9).failure(), None);
        for bad in [report(0.6, 0.9), report(0.1, 0.5), report(f64::NAN, 0.9)] {
            let text = bad.failure().unwrap();
            assert!(text.contains("`bad` (cq2_g128, 30.0 %), `good`"), "{text}");
        }
    }
}
