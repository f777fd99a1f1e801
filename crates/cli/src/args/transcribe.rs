//! Options of `cactus transcribe`.

use super::route::When;
use super::{ListenArgs, LiveArgs, LiveFormat, SourceArgs, WrongArgument};
use cactus_base::Cores;
use cactus_router::hybrid::redact::Class;
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
    /// The model: a bundle, a folder of Whisper, Parakeet or Moonshine from Hugging Face, one of CTranslate2 or ONNX Runtime, or a file of whisper.cpp
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
    /// Words that may be said, separated by commas, such as names
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
    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(|| Cores::detect().threads(), usize::from)
    }

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
    /// Recordings: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and others; of a folder, all that are in it and in its folders
    #[arg(required_unless_present = "mic", value_name = "FILE|FOLDER")]
    pub(crate) files: Vec<PathBuf>,
    /// What is said at the microphone instead, until Ctrl-C. It needs `--vad`; `cactus listen` does the same and has more options
    #[arg(long, requires = "vad", conflicts_with_all = ["files", "output", "jobs"])]
    pub(crate) mic: bool,
    /// With `--mic`: the program that records, as in `cactus listen`
    #[arg(long, value_name = "COMMAND", requires = "mic", conflicts_with = "files")]
    pub(crate) recorder: Option<String>,
    #[command(flatten)]
    pub(crate) hear: HearArgs,
    /// How to write what is said
    #[arg(long, value_enum, default_value_t = TranscriptFormat::Text)]
    pub(crate) format: TranscriptFormat,
    /// Write each transcript to a file in this folder, `talk.mp3` to `talk.txt`. A recording whose transcript is there already is left out,
    /// so that a run that was broken off goes on where it was
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// With `--output`: transcribe again what is written down already
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// So many recordings at a time, each on its share of the threads [default: one for each thread, at most 4]
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Find speech first, with this model (see `cactus vad`), and transcribe it alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) vad: Option<String>,
    /// With `--vad`: speech begins at this probability. Lower it where speech is missed
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.5, requires = "vad")]
    pub(crate) vad_threshold: f64,
    /// Leave out what nobody may have said: text whose words are unlikely, very short or very long, with so many seconds of silence beside
    /// it. For Whisper; times are those of words then
    #[arg(long, value_name = "SECONDS", conflicts_with = "mic")]
    hallucination_silence: Option<f64>,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}

impl TranscribeArgs {
    /// What recordings are transcribed with.
    pub(crate) fn options(&self) -> TranscribeOptions {
        TranscribeOptions {
            hallucination_silence_s: self.hallucination_silence,
            ..self.hear.options()
        }
    }

    /// What `--mic` means as options of `cactus listen`.
    ///
    /// # Errors
    /// A format that live text cannot have.
    pub(crate) fn at_the_microphone(self) -> Result<ListenArgs, WrongArgument> {
        let format = match self.format {
            TranscriptFormat::Text => LiveFormat::Text,
            TranscriptFormat::Json => LiveFormat::Json,
            TranscriptFormat::Srt | TranscriptFormat::Vtt => {
                let message = "`--format`: what is said at the microphone is written as `text` or `json`; choose one, or transcribe a recording";
                return Err(WrongArgument(message.to_owned()));
            }
        };
        Ok(ListenArgs {
            file: None,
            hear: self.hear,
            vad: self.vad.unwrap_or_default(),
            vad_threshold: self.vad_threshold,
            live: LiveArgs::default(),
            format,
            recorder: self.recorder,
            again: self.again,
        })
    }
}

/// Who else may hear it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Handing off")]
pub(crate) struct AgainArgs {
    /// Who may hear again what the model here is not sure of: a name of the policy file or of the table of targets, or an address with a
    /// model, such as `http://127.0.0.1:8081/v1#whisper-base`. Without this and `--policy` nothing leaves this machine
    #[arg(long, value_name = "TARGET")]
    pub(crate) cloud: Option<String>,
    /// Hand off what the model here is not sure of, nothing, or all [default: as the policy says, or auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) handoff: Option<When>,
    /// The most that it may cost, all recordings together, in dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) budget: Option<String>,
    /// File that says what may leave, to whom, and for how much
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Kinds of content that may leave without a question: audio, and text for `--prompt` and `--hotwords`
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) consent: Vec<Class>,
}

impl AgainArgs {
    /// Whether anything could leave.
    ///
    /// # Errors
    /// Options that mean nothing without a target.
    pub(crate) fn is_given(&self) -> Result<bool, WrongArgument> {
        let others = [
            ("handoff", self.handoff.is_some_and(|when| when != When::Never)),
            ("budget", self.budget.is_some()),
            ("consent", !self.consent.is_empty()),
        ];
        let given = self.cloud.is_some() || self.policy.is_some();
        match others.iter().find(|(_, set)| *set && !given) {
            None => Ok(given),
            Some((option, _)) => Err(WrongArgument(format!(
                "`--{option}` says how to hand off, and nobody else can be asked; add `--cloud TARGET` or `--policy FILE`, or leave it out"
            ))),
        }
    }
}
