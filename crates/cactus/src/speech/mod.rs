//! Recordings and live speech to text, and where somebody speaks (feature `speech`).
//!
//! ```
//! use cactus::speech::{LiveOptions, Sound, TranscribeOptions, Transcriber};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = tempfile::tempdir()?;
//! # let folder = made.path().join("bundle");
//! # let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden");
//! # cactus_import::convert(format!("{golden}/speech/whisper").as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
//! # let detector = cactus_testkit::tone::write_detector(made.path())?;
//! # cactus_import::convert(&detector, &folder.join("vad"), &Default::default(), &mut |_, _| {})?;
//! # let file = made.path().join("said.wav");
//! # std::fs::write(&file, cactus_testkit::tone::wav(&cactus_testkit::tone::sound(&[(0.2, 0.5)])))?;
//! // A folder that `cactus convert openai/whisper-base FOLDER` has made.
//! let transcriber = Transcriber::load(&folder, None)?;
//! let options = TranscribeOptions { language: Some("en".to_owned()), ..TranscribeOptions::default() };
//! for segment in transcriber.transcribe(Sound::File(&file), &options)?.segments {
//!     println!("{:.2} {:.2} {}", segment.start_s, segment.end_s, segment.text);
//! }
//!
//! // A second model, in the folder `vad` of the first or named by `LiveOptions::vad`, finds where somebody speaks.
//! let mut live = transcriber.live(&LiveOptions::default())?;
//! let tenth_of_a_second = [0_i16; 1600];
//! let heard = live.push(&tenth_of_a_second)?;
//! println!("{}[{}]", heard.confirmed, heard.pending);
//! println!("{}", live.finish()?.confirmed);
//! # Ok(())
//! # }
//! ```

mod live;
mod sound;
mod transcriber;
mod turns;

pub use cactus_speech::{
    Commit, FinalReason, LanguageChance, Progress, Segment, Span, SpanOptions, StreamEvent, StreamOptions,
    TranscribeOptions, Transcript, Word,
};
pub use live::{Heard, LiveOptions, LiveTranscription};
pub use sound::{PCM_HZ, Sound};
pub use transcriber::Transcriber;
