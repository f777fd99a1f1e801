//! What an index is of: which model made its vectors, and how; and how it stores them.

use crate::document::IdKind;
use cactus_kernels::MAX_SCAN_DIM;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How alike two vectors are; more is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The cosine of the angle: vectors are stored with unit length, and a query gets it.
    Cosine,
    /// The dot product.
    Dot,
    /// The Euclidean distance; the score is its square, negated.
    Euclidean,
}

impl Metric {
    pub(crate) const ALL: [Metric; 3] = [Metric::Cosine, Metric::Dot, Metric::Euclidean];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::Cosine => "cosine",
            Metric::Dot => "dot",
            Metric::Euclidean => "euclidean",
        }
    }
}

/// How vectors are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// 8 bits in each dimension, and a scale for each vector.
    Int8,
    /// 32-bit floats.
    F32,
    /// As [`Encoding::Int8`], and one bit in each dimension beside it: the bits choose candidates, the bytes rank them. The
    /// one encoding whose search may miss something.
    Binary,
}

impl Encoding {
    pub(crate) const ALL: [Encoding; 3] = [Encoding::Int8, Encoding::F32, Encoding::Binary];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Int8 => "int8",
            Encoding::F32 => "f32",
            Encoding::Binary => "binary",
        }
    }
}

/// Where the vectors of an index come from. Vectors of two recipes cannot be compared, so an index has one, and whoever
/// opens it says which one is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Name of the model. Where there is a digest, that says which model it is, and the name is for people.
    pub model: String,
    /// Digest of its weights and tokenizer; may be empty.
    pub digest: String,
    /// Dimensions of a vector, 1 to 65536.
    pub dimensions: usize,
    /// How vectors are compared.
    pub metric: Metric,
    /// What is put before a text, by role (`query`, `document`).
    pub prompts: BTreeMap<String, String>,
}

/// How an index stores what it is given; fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How vectors are stored.
    pub encoding: Encoding,
    /// What ids are.
    pub ids: IdKind,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            encoding: Encoding::Int8,
            ids: IdKind::Number,
        }
    }
}

/// The part of a recipe that the header has as JSON.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) model: String,
    pub(crate) digest: String,
    pub(crate) prompts: BTreeMap<String, String>,
}

impl Recipe {
    /// A recipe without digest and prompts.
    pub fn new(model: impl Into<String>, dimensions: usize, metric: Metric) -> Recipe {
        Recipe {
            model: model.into(),
            digest: String::new(),
            dimensions,
            metric,
            prompts: BTreeMap::new(),
        }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let dimensions = self.dimensions;
        (!(1..=MAX_SCAN_DIM).contains(&dimensions))
            .then(|| format!("expected 1 to {MAX_SCAN_DIM} dimensions, found {dimensions}"))
    }

    /// What distinguishes `self`, which was found, from what was expected; `None` where nothing does.
    pub(crate) fn difference(&self, expected: &Recipe) -> Option<String> {
        let prompts = |recipe: &Recipe| format!("{:?}", recipe.prompts);
        let is_known = !self.digest.is_empty() && self.digest == expected.digest;
        let model = if is_known { &self.model } else { &expected.model };
        let fields = [
            ("model", model, &self.model),
            ("digest", &expected.digest, &self.digest),
            (
                "dimensions",
                &expected.dimensions.to_string(),
                &self.dimensions.to_string(),
            ),
            (
                "metric",
                &expected.metric.name().to_owned(),
                &self.metric.name().to_owned(),
            ),
            ("prompts", &prompts(expected), &prompts(self)),
        ];
        let differing: Vec<String> = fields
            .into_iter()
            .filter(|(_, expected, found)| expected != found)
            .map(|(name, expected, found)| format!("{name} `{expected}`, found `{found}`"))
            .collect();
        (!differing.is_empty()).then(|| {
            format!(
                "the index has vectors of another recipe: expected {}",
                differing.join("; expected ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_says_which_model_it_is_where_there_is_one() {
        let recipe = |model: &str, digest: &str| Recipe {
            digest: digest.to_owned(),
            ..Recipe::new(model, 4, Metric::Cosine)
        };
        let differs = |a: &Recipe, b: &Recipe| a.difference(b).is_some();
        assert!(!differs(&recipe("org/name", "1"), &recipe("folder", "1")));
        assert!(differs(&recipe("name", "1"), &recipe("name", "2")));
        assert!(differs(&recipe("name", "1"), &recipe("name", "")));
        assert!(differs(&recipe("one", ""), &recipe("other", "")));
        assert!(!differs(&recipe("one", ""), &recipe("one", "")));
    }
}
