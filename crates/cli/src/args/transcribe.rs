//! Options of `cactus transcribe`.

use super::SourceArgs;
use cactus_speech::TranscribeOptions;
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

/// What recordings and live speech are transcribed with.
#[derive(Debug, Args)]
pub(crate) struct HearArgs {
    /// The model: a bundle, a folder of Whisper from Hugging Face or CTranslate2, or a file of whisper.cpp
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Convert again, even if the cache has a converted bundle
    #[arg(long)]
    pub(crate) reconvert: bool,
    /// Say when each word is said
    #[arg(long)]
    words: bool,
    /// Code of the language that is spoken, such as `de` [default: found out from the first half minute, or each phrase]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Write English, whatever is spoken
    #[arg(long)]
    translate: bool,
    /// Text as if it had been said before, which shows how names are spelled; the first half minute is written after it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prompt: String,
    /// Words that may be said, parted by commas, such as names
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    hotwords: Vec<String>,
    /// Follow so many texts side by side (beam search): slower, and a little more exact
    #[arg(long, value_name = "TEXTS", default_value_t = 1)]
    beams: usize,
    /// Let the model read so many tokens of the text before. Names are spelled alike then, but mistakes carry on
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    carry: usize,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

impl HearArgs {
    pub(crate) fn options(&self) -> TranscribeOptions {
        TranscribeOptions {
            language: self.language.clone(),
            translate: self.translate,
            carry_tokens: self.carry,
            words: self.words,
            beams: self.beams,
            initial_prompt: self.prompt.clone(),
            hotwords: self.hotwords.clone(),
            ..TranscribeOptions::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Recordings: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and others
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) hear: HearArgs,
    /// How to write what is said
    #[arg(long, value_enum, default_value_t = TranscriptFormat::Text)]
    pub(crate) format: TranscriptFormat,
    /// Find speech first, with this model (see `cactus vad`), and transcribe it alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) vad: Option<String>,
    /// With `--vad`: speech begins at this probability. Lower it where speech is missed
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.5, requires = "vad")]
    pub(crate) vad_threshold: f64,
}
