//! Options of `cactus transcribe`.

use super::SourceArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How a transcript is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum TranscriptFormat {
    /// A line for each segment, as soon as it is known
    Text,
    /// One object for each recording, with times and how sure the model was
    Json,
    /// Subtitles, SubRip
    Srt,
    /// Subtitles, WebVTT
    Vtt,
}

#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Recordings: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and others
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The model: a bundle, a folder of Whisper from Hugging Face or CTranslate2, or a file of whisper.cpp
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Convert again, even if the cache has a converted bundle
    #[arg(long)]
    pub(crate) reconvert: bool,
    /// How to write what is said
    #[arg(long, value_enum, default_value_t = TranscriptFormat::Text)]
    pub(crate) format: TranscriptFormat,
    /// Say when each word is said: in JSON, and as a line or subtitle for each
    #[arg(long)]
    pub(crate) words: bool,
    /// Code of the language that is spoken, such as `de` [default: found out from the first half minute]
    #[arg(long, value_name = "CODE")]
    pub(crate) language: Option<String>,
    /// Write English, whatever is spoken
    #[arg(long)]
    pub(crate) translate: bool,
    /// Find speech first, with this model (see `cactus vad`), and transcribe it alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) vad: Option<String>,
    /// With `--vad`: speech begins at this probability. Lower it where speech is missed
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.5, requires = "vad")]
    pub(crate) vad_threshold: f64,
    /// Let the model read so many tokens of the text before. Names are spelled alike then, but mistakes carry on
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub(crate) carry: usize,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}
