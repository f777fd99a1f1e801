//! Options of `cactus convert` and `cactus transpile` about bits: which weights have how many, what they are calibrated with and compared
//! on.

use super::parse_calibration_tokens;
use cactus_passes::Bits;
use clap::Args;
use std::path::PathBuf;

/// Which weights have other bits than `--bits` says.
#[derive(Debug, Args)]
pub(crate) struct WidthArgs {
    /// Bits for each weight of embedding tables [default: the same as --bits, but at least 4]
    #[arg(long, value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) embedding_bits: Option<Bits>,
    /// TOML file that sets bits by the name of the weight: `bits`, `embeddings`, and `[[rule]]` with `pattern` and `bits`.
    /// With several components, names begin with `COMPONENT.`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

/// How weights of 1 to 6 bits are calibrated.
#[derive(Debug, Args)]
pub(crate) struct CalibrationArgs {
    /// Text (or rows of JSON) to calibrate with below 8 bits, so that less quality is lost [default: a built-in text]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) calibrate: Option<Option<PathBuf>>,
    /// Do not calibrate: faster, but much more quality is lost
    #[arg(long, conflicts_with = "calibrate")]
    pub(crate) no_calibrate: bool,
    /// Use at most this many tokens of the calibration text
    #[arg(long, default_value_t = 16384, value_name = "TOKENS", value_parser = parse_calibration_tokens)]
    pub(crate) calibration_tokens: usize,
}

/// What the bundle is compared with its source on.
#[derive(Debug, Args)]
pub(crate) struct ComparisonArgs {
    /// Text on which a language model is compared with its source [default: below 8 bits, a small built-in text]
    #[arg(long, value_name = "FILE")]
    pub(crate) quality_text: Option<PathBuf>,
    /// Do not compare the bundle with its source
    #[arg(long, conflicts_with = "quality_text")]
    pub(crate) no_quality: bool,
}
