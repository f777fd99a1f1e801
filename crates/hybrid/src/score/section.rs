//! What a bundle carries about its own confidence, and when that holds.

use super::bound::Certified;
use super::calibrate::Calibrator;
use super::combine::Combiner;
use super::signals::Signals;
use serde::{Deserialize, Serialize};

/// What a calibration was fitted to. Other weights, another template or another sampler give other numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Digest of the bundle's graph and weights.
    pub bundle: String,
    /// Digest of the chat template.
    pub template: String,
    /// Digest of the sampler's options.
    pub sampler: String,
}

/// The `confidence` section of a bundle, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The version of the form: 1.
    pub version: u32,
    /// What it was fitted to.
    pub key: Key,
    /// The kind of task of the cases.
    pub task: String,
    /// Cases of the fit.
    pub cases: u64,
    /// From features to log-odds.
    pub combiner: Combiner,
    /// From log-odds to a probability.
    pub calibrator: Calibrator,
    /// The threshold with a guarantee, if one could be had.
    pub certified: Option<Certified>,
}

/// A section that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the section `confidence`: expected {expected}; found {found}")]
pub struct SectionError {
    expected: &'static str,
    found: String,
}

/// Why an answer has no calibrated confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.in_words())]
pub struct Uncalibrated {
    /// Bundle, template or sampler.
    pub what: &'static str,
}

impl Uncalibrated {
    fn in_words(self) -> String {
        match self.what {
            // All calibrations are made so.
            SAMPLER => "the calibration of this bundle was made for other sampling: it holds where the likeliest token is taken each time, \
                        with a temperature of 0"
                .to_owned(),
            what => format!("the calibration of this bundle was made for another {what}, and does not hold"),
        }
    }
}

const SAMPLER: &str = "sampler";

/// The version of the form.
const VERSION: u32 = 1;

impl Section {
    /// Reads a section.
    ///
    /// # Errors
    /// [`SectionError`] for another form, another version, or numbers that no fit gives.
    pub fn from_json(bytes: &[u8]) -> Result<Section, SectionError> {
        let refuse = |expected, found: String| SectionError { expected, found };
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| refuse("JSON", error.to_string()))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            found => return Err(refuse("version 1", found.map_or("none".to_owned(), |v| v.to_string()))),
        }
        let section: Section =
            serde_json::from_value(value).map_err(|error| refuse("the fields of version 1", error.to_string()))?;
        let certified = section.certified.is_none_or(|c| {
            let shares = [c.threshold, c.max_error, c.delta];
            shares.iter().all(|s| (0.0..=1.0).contains(s)) && c.errors <= c.kept
        });
        // JSON has no infinities, so combiners are finite; a scale of 0 would make one.
        if !section.calibrator.is_sound() || !certified || !section.combiner.is_sound() {
            return Err(refuse("numbers such as a fit gives", "others".to_owned()));
        }
        Ok(section)
    }

    /// The section as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Only maps with other keys than strings, and failing writers, make this fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether the section holds for this bundle, template and sampler.
    ///
    /// # Errors
    /// [`Uncalibrated`] naming the first that is another one.
    pub fn holds_for(&self, key: &Key) -> Result<(), Uncalibrated> {
        let pairs = [
            ("bundle", &self.key.bundle, &key.bundle),
            ("template", &self.key.template, &key.template),
            (SAMPLER, &self.key.sampler, &key.sampler),
        ];
        match pairs.iter().find(|(_, fitted, found)| fitted != found) {
            Some((what, ..)) => Err(Uncalibrated { what }),
            None => Ok(()),
        }
    }

    /// The probability that an answer with these signals is right; `None` before the first token that counts.
    #[must_use]
    pub fn confidence(&self, signals: &Signals) -> Option<f64> {
        let features = signals.features()?;
        let log_odds = self.combiner.log_odds(&features);
        // Weights of a hostile file may overflow.
        (!log_odds.is_nan()).then(|| self.calibrator.probability(log_odds))
    }

    /// The share of errors that is proved for answers at least as sure as the certified threshold.
    #[must_use]
    pub fn bound(&self, confidence: f64) -> Option<f64> {
        let certified = self.certified.filter(|c| confidence >= c.threshold)?;
        Some(certified.max_error)
    }
}
