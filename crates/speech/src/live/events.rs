//! How live speech is written down, and what happens in it.

use crate::transcript::in_milliseconds;
use crate::{Segment, TranscribeOptions};
use serde::Serialize;

/// Which text of a phrase stays while it is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commit {
    /// What two texts in a row agree on (LocalAgreement-2). Every model can do this.
    #[default]
    Agreement,
    /// What was written while the model looked at sound half a second before the end (AlignAtt): text stays a step earlier. For models
    /// that say where they look, as Whisper does.
    Attention,
}

/// How live speech is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOptions {
    /// How each phrase is transcribed. The text before, which `carry_tokens` keeps, is that of the phrases before.
    pub transcribe: TranscribeOptions,
    /// New sound after which a phrase is written again while it is spoken, in milliseconds; with 0 only finals come. Default 1000.
    pub step_ms: u32,
    /// Which text stays meanwhile.
    pub commit: Commit,
    /// Silence that ends a phrase, in milliseconds. Default 500.
    pub silence_ms: u32,
    /// Silence that ends a phrase whose text ends a sentence, in milliseconds; where it is no shorter than `silence_ms`, it ends as any
    /// other. Needs a step above 0. Default 200.
    pub sentence_ms: u32,
    /// Silence behind a phrase that the model hears with it, in milliseconds, where it hears windows of one length: the rest of the window
    /// is left out, which takes less time. With less than 12 seconds Whisper may begin to repeat itself; then the whole window is heard for the
    /// rest of the phrase. `None` leaves nothing out, as the weights expect. Default `None`.
    pub margin_ms: Option<u32>,
    /// Longer phrases are cut, in seconds, at their longest silence. At most the window of the model, and by default that or 25.
    pub most_s: Option<f64>,
    /// Probability at which speech begins, from 0 to 1. Default 0.5.
    pub threshold: f64,
    /// Sound before a phrase that belongs to it, in milliseconds: first consonants are quiet. At most half of the longest
    /// phrase. Default 400.
    pub before_ms: u32,
    /// Final events have their sound, for whoever is to hear it again. Default false.
    pub keep_sound: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            transcribe: TranscribeOptions::default(),
            step_ms: 1000,
            commit: Commit::default(),
            silence_ms: 500,
            sentence_ms: 200,
            margin_ms: None,
            most_s: None,
            threshold: 0.5,
            before_ms: 400,
            keep_sound: false,
        }
    }
}

/// Why a phrase is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalReason {
    /// Nobody speaks any more.
    Silence,
    /// It became too long.
    Length,
    /// The sound is over.
    End,
}

/// What happens in live speech. Times are in seconds from the beginning of the sound.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamEvent {
    /// Somebody begins to speak.
    SpeechStart {
        /// Number of the phrase, from 0.
        id: usize,
        /// When.
        #[serde(serialize_with = "in_milliseconds")]
        start_s: f64,
    },
    /// What is said so far.
    Partial {
        /// Number of the phrase.
        id: usize,
        /// Text that stays: each event of the phrase has the one before and perhaps more, and so has its final text.
        committed: String,
        /// Text after it that may still change.
        volatile: String,
        /// Up to where the sound was heard.
        #[serde(serialize_with = "in_milliseconds")]
        until_s: f64,
    },
    /// What was said. Nothing of it changes any more.
    Final {
        /// The text; its `id` is that of the phrase.
        segment: Segment,
        /// Code of the language; `None` of a model that knows only one.
        #[serde(skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// Why now.
        reason: FinalReason,
        /// Up to where the sound had come by then.
        #[serde(serialize_with = "in_milliseconds")]
        until_s: f64,
        /// The sound of the phrase, from the segment's `window_s` on, where it is kept ([`StreamOptions::keep_sound`]).
        #[serde(skip)]
        sound: Vec<f32>,
    },
    /// The phrase is over, with a final text or without: noise has none.
    SpeechEnd {
        /// Number of the phrase.
        id: usize,
        /// When.
        #[serde(serialize_with = "in_milliseconds")]
        end_s: f64,
    },
}
