//! Options of `cactus vad`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How spans are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum SpansFormat {
    /// A line for each span, as soon as it is known
    Text,
    /// One object for each recording
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct VadArgs {
    /// Recordings: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and others
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The model: a bundle, or `silero_vad_16k.safetensors` or `silero_vad.onnx` of the Python package silero-vad
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Convert again, even if the cache has a converted bundle
    #[arg(long)]
    pub(crate) reconvert: bool,
    /// Speech begins at this probability. Lower it where speech is missed
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.5)]
    pub(crate) threshold: f64,
    /// Speech ends below this probability [default: 0.15 less than `--threshold`]
    #[arg(long, value_name = "PROBABILITY")]
    pub(crate) neg_threshold: Option<f64>,
    /// Leave out shorter spans, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 250)]
    pub(crate) min_speech_ms: u32,
    /// Silence that ends a span, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub(crate) min_silence_ms: u32,
    /// Widen spans by this on each side, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pub(crate) pad_ms: u32,
    /// Cut longer spans, at their longest silence where they have one, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_speech_s: Option<f64>,
    /// How to write the spans
    #[arg(long, value_enum, default_value_t = SpansFormat::Text)]
    pub(crate) format: SpansFormat,
    /// Add the probability of every chunk to the JSON
    #[arg(long)]
    pub(crate) probabilities: bool,
}
