//! The table `[transcription]`: which segments of a transcript are doubtful, and what of the recording is heard again.

use crate::transcript::Rules;
use serde::Deserialize;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TranscriptionTable {
    least_logprob: Option<Logprob>,
    expected_errors: Option<Amount<0, 1000>>,
    doubtful_word: Option<super::file::Share>,
    kept_word: Option<super::file::Share>,
    padding_s: Option<Amount<0, 5>>,
    longest_s: Option<Amount<1, 600>>,
}

/// A mean logarithm of probabilities.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Logprob(f64);

impl TryFrom<f64> for Logprob {
    type Error = String;

    fn try_from(value: f64) -> Result<Logprob, String> {
        match value <= 0.0 {
            true => Ok(Logprob(value)),
            false => Err(format!(
                "expected the mean natural logarithm of probabilities, 0 or below; found {value}"
            )),
        }
    }
}

/// A number in these bounds.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Amount<const LEAST: u32, const MOST: u32>(f64);

impl<const LEAST: u32, const MOST: u32> TryFrom<f64> for Amount<LEAST, MOST> {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        match (f64::from(LEAST)..=f64::from(MOST)).contains(&value) {
            true => Ok(Amount(value)),
            false => Err(format!("expected a number from {LEAST} to {MOST}; found {value}")),
        }
    }
}

impl TranscriptionTable {
    pub(super) fn rules(self) -> Rules {
        let default = Rules::default();
        let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
        Rules {
            least_logprob: self.least_logprob.map_or(default.least_logprob, |found| found.0),
            expected_errors: self.expected_errors.map_or(default.expected_errors, |found| found.0),
            doubtful: self.doubtful_word.map_or(default.doubtful, |found| found.0),
            kept: self.kept_word.map_or(default.kept, |found| found.0),
            margin_ms: self.padding_s.map_or(default.margin_ms, |found| ms(found.0)),
            longest_ms: self.longest_s.map_or(default.longest_ms, |found| ms(found.0)),
            ..default
        }
    }
}
