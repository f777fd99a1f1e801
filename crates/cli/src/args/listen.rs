//! Options of `cactus listen`.

use super::{AgainArgs, HearArgs};
use cactus_speech::StreamOptions;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How live text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum LiveFormat {
    /// A line for each phrase once it is final; on a terminal, below it what is said right now
    Text,
    /// A line of JSON for everything that happens
    Json,
}

/// Which text stays while a phrase is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum CommitBy {
    /// What two texts in a row begin with
    Agreement,
    /// What was written of sound half a second before the end: a step earlier, with models that say where they look (Whisper)
    Attention,
}

/// When a phrase is written, and when it ends.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Write a phrase again after so many milliseconds of it; 0 writes it once, when it is over
    #[arg(long, value_name = "MS", default_value_t = LiveArgs::default().step_ms)]
    pub(crate) step_ms: u32,
    /// Which text stays while a phrase is spoken
    #[arg(long, value_enum, default_value_t = CommitBy::Agreement)]
    pub(crate) commit: CommitBy,
    /// Silence that ends a phrase, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = LiveArgs::default().silence_ms)]
    pub(crate) silence_ms: u32,
    /// Silence that ends a phrase whose text ends a sentence, in milliseconds; as much as `--silence-ms` lets it end as any other
    #[arg(long, value_name = "MS", default_value_t = LiveArgs::default().sentence_ms)]
    pub(crate) sentence_ms: u32,
    /// Let the model hear so much silence behind a phrase, in milliseconds, and no more: less time for each step (Whisper). With less
    /// than 12000 it may begin to repeat itself, and hears all for the rest of the phrase [default: all of its half minute]
    #[arg(long, value_name = "MS")]
    pub(crate) margin_ms: Option<u32>,
}

impl Default for LiveArgs {
    fn default() -> LiveArgs {
        let usual = StreamOptions::default();
        LiveArgs {
            step_ms: usual.step_ms,
            commit: CommitBy::Agreement,
            silence_ms: usual.silence_ms,
            sentence_ms: usual.sentence_ms,
            margin_ms: usual.margin_ms,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// A recording to listen to as if it came live, or `-` for samples on standard input: 16 bits, little-endian, mono, as many a
    /// second as the model takes (16,000) [default: the microphone]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hear: HearArgs,
    /// The model that finds speech (see `cactus vad`)
    #[arg(long, value_name = "MODEL")]
    pub(crate) vad: String,
    /// Speech begins at this probability. Lower it where speech is missed
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.5)]
    pub(crate) vad_threshold: f64,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// How to write what is said
    #[arg(long, value_enum, default_value_t = LiveFormat::Text)]
    pub(crate) format: LiveFormat,
    /// Program that records from the microphone, with its options; it writes samples to its standard output
    /// [default: arecord, parecord, sox or ffmpeg, whichever is there]
    #[arg(long, value_name = "COMMAND", conflicts_with = "file")]
    pub(crate) recorder: Option<String>,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}
