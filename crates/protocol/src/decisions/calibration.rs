//! What a bundle carries about its decisions: how its log-probabilities become probabilities that come true.
//!
//! Each kind of question has a temperature, which divides the log-probabilities (Guo et al. 2017, arXiv 1706.04599). Yes and no
//! have a shift, too: models prefer one of the two words whatever is asked. Whoever fits is elsewhere; this is the document and
//! its use.

use super::Kind;
use cactus_engine::choices::probabilities;
use cactus_engine::{DECISIONS_PATH, Fingerprint, GenerateOptions, Model};
use serde::{Deserialize, Serialize};

/// The version of the document.
const VERSION: u32 = 1;
/// Temperatures outside of 1/`LIMIT` to `LIMIT`, and shifts above it, are not what a fit gives.
pub const LIMIT: f64 = 100.0;

/// What was fitted to the questions of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Divides the log-probabilities.
    pub temperature: f64,
    /// Added to that of yes, after the division; 0 for other kinds.
    pub shift: f64,
    /// Questions that it was fitted to.
    pub cases: u64,
}

impl Fitted {
    /// What changes nothing.
    pub const NONE: Fitted = Fitted {
        temperature: 1.0,
        shift: 0.0,
        cases: 0,
    };

    /// Probabilities of choices with these log-probabilities; they add up to 1.
    #[must_use]
    pub fn probabilities(&self, logprobs: &[f64]) -> Vec<f64> {
        let mut moved = logprobs.to_vec();
        if let Some(first) = moved.first_mut() {
            *first += self.shift * self.temperature;
        }
        probabilities(&moved, self.temperature)
    }

    fn is_sound(&self) -> bool {
        (1.0 / LIMIT..=LIMIT).contains(&self.temperature) && self.shift.abs() <= LIMIT
    }
}

/// The document [`DECISIONS_PATH`] of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    version: u32,
    /// Digest of graph, weights and tokenizer.
    bundle: String,
    /// Digest of the chat template.
    template: String,
    predicate: Option<Fitted>,
    choice: Option<Fitted>,
    score: Option<Fitted>,
}

impl Calibration {
    /// Nothing fitted yet, for `model` as it is.
    ///
    /// # Errors
    /// Where the bundle's files were cut short.
    pub fn new(model: &Model) -> cactus_engine::Result<Calibration> {
        let found = model.fingerprint(&GenerateOptions::default())?;
        Ok(Calibration {
            version: VERSION,
            bundle: found.bundle,
            template: found.template,
            predicate: None,
            choice: None,
            score: None,
        })
    }

    /// That of `model`'s bundle; `None` where it has none, or one that was fitted to another bundle or template.
    ///
    /// # Errors
    /// A document that is damaged, as text for a person.
    pub fn of(model: &Model) -> Result<Option<Calibration>, String> {
        let Some(bytes) = model.document(DECISIONS_PATH).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let found = Self::from_json(&bytes)?;
        let now = model
            .fingerprint(&GenerateOptions::default())
            .map_err(|e| e.to_string())?;
        Ok(found.holds_for(&now).then_some(found))
    }

    /// Whether it was fitted to this bundle and template; how answers are drawn changes no decision.
    #[must_use]
    pub fn holds_for(&self, found: &Fingerprint) -> bool {
        self.bundle == found.bundle && self.template == found.template
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Another form or version, or numbers that no fit gives, as text for a person.
    pub fn from_json(bytes: &[u8]) -> Result<Calibration, String> {
        let fail = |found: String| format!("`{DECISIONS_PATH}`: {found}; calibrate the bundle again");
        let read: Calibration = serde_json::from_slice(bytes).map_err(|e| fail(e.to_string()))?;
        if read.version != VERSION {
            return Err(fail(format!("expected version {VERSION}, found {}", read.version)));
        }
        let each = [read.predicate, read.choice, read.score];
        match each.iter().flatten().all(Fitted::is_sound) {
            true => Ok(read),
            false => Err(fail("its numbers are not such as a fit gives".to_owned())),
        }
    }

    /// The document as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Only maps with other keys than strings, and failing writers, make this fail.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// What was fitted to questions of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Option<Fitted> {
        match kind {
            Kind::Predicate => self.predicate,
            Kind::Choice => self.choice,
            Kind::Score => self.score,
        }
    }

    /// Sets what was fitted to questions of a kind.
    pub fn set(&mut self, kind: Kind, fitted: Fitted) {
        *match kind {
            Kind::Predicate => &mut self.predicate,
            Kind::Choice => &mut self.choice,
            Kind::Score => &mut self.score,
        } = Some(fitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_divided_and_shifted() {
        let lp = [0.8f64.ln(), 0.2f64.ln()];
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&Fitted::NONE.probabilities(&lp), &[0.8, 0.2]));
        let flat = Fitted {
            temperature: 2.0,
            shift: 0.0,
            cases: 9,
        };
        assert!(near(&flat.probabilities(&lp), &[2.0 / 3.0, 1.0 / 3.0]));
        // Odds of 2 at temperature 2, divided by 4.
        let less = Fitted {
            shift: -(4f64.ln()),
            ..flat
        };
        assert!(near(&less.probabilities(&lp), &[1.0 / 3.0, 2.0 / 3.0]));
    }

    #[test]
    fn damaged_documents_are_refused() {
        let whole = r#"{"version":1,"bundle":"b","template":"t","predicate":null,
            "choice":{"temperature":2.0,"shift":0.0,"cases":100},"score":null}"#;
        let read = Calibration::from_json(whole.as_bytes()).unwrap();
        assert_eq!(read.get(Kind::Choice).unwrap().temperature, 2.0);
        assert_eq!(read.get(Kind::Score), None);
        assert_eq!(Calibration::from_json(&read.to_json()).unwrap(), read);
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("2.0", "0.0"),
            ("2.0", "-1"),
            ("2.0", "1e9"),
            ("\"shift\":0.0", "\"shift\":1e9"),
            ("\"score\"", "\"other\""),
        ] {
            let error = Calibration::from_json(whole.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains("calibrate the bundle again"), "{error}");
        }
        for end in 0..whole.len() {
            assert!(Calibration::from_json(&whole.as_bytes()[..end]).is_err());
        }
    }
}
