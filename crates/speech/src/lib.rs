//! Transcription: what is said in a recording, with times; and where somebody speaks at all.
//!
//! ```text
//! samples ─► features (audio) ─► windows ─► encoder ─► decoder, held to rules ─► segments with times
//! ```
//!
//! A [`Transcriber`] is a bundle that hears, loaded: the component `encoder` and what decodes, the tokenizer, and the record
//! `speech.json`, which says how sound becomes features and what the special tokens are. It names no model family: a record of the
//! kind *prompted* makes a model of Whisper's kind (Radford et al. 2022, arXiv 2212.04356), whose published decoding this follows:
//! windows that begin where the last closed segment ended, rules for timestamps, higher temperatures where an answer looks
//! wrong, and silence by the probability of no speech. A model that hears samples as they are gets pieces of a recording,
//! cut where it is quiet, and has none of these rules. Texts about one sound, as those of a beam search, are sequences of one
//! batch. Times of words come of the component `alignment`, which reads a window's text again and says what the heads that
//! follow the sound look at.
//!
//! The kinds *ctc* and *transducer* write along with the sound (`framewise`): each position of the encoder says what is said there, so
//! tokens have times, silence has no text, and live text goes on behind the last token that stays.
//!
//! A recording is a `cactus_audio::Sound`: a long one is read while it is transcribed, and no more of it is kept than is heard at once.
//!
//! It may depend on `engine`, `audio` and what is below them. It deliberately reads no files of sound (see `cactus_audio::decode`), and
//! opens no microphone. [`subtitles`] are the one format of files that it writes.
//!
//! A [`Stream`] is live speech: a [`Vad`] cuts it into phrases, whose text comes while they are spoken.
//!
//! A [`Vad`] is a bundle that finds speech. It gives a probability for each chunk of sound; [`SpeechSpans`] makes spans of them,
//! and a [`Transcriber`] can be given those alone ([`Transcriber::transcribe_spans`]).
#![forbid(unsafe_code)]

mod alignment;
mod cut;
mod decoder;
mod error;
mod features;
mod framewise;
mod heard;
mod hotwords;
mod hypotheses;
mod live;
mod local;
mod loops;
mod pauses;
mod phantoms;
mod phrases;
mod prompt;
mod prompted;
mod rules;
mod scribe;
mod silence;
mod spans;
mod streaming;
pub mod subtitles;
mod told;
mod transcriber;
mod transcript;
mod vad;
mod words;

pub use error::{Error, ErrorKind, Result};
pub use features::front_end;
pub use live::{Commit, FinalReason, Stream, StreamEvent, StreamOptions};
pub use spans::{Span, SpanOptions, SpeechSpans};
pub use told::Told;
pub use transcriber::{LanguageChance, MOST_BEAMS, Progress, TranscribeOptions, Transcriber};
pub use transcript::{Segment, Transcript, Word, milliseconds};
pub use vad::Vad;
