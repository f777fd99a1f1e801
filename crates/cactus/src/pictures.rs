//! Pictures and sounds in conversations (feature `pictures`), for models that see and hear.
//!
//! ```
//! use cactus::pictures::{Pictures, part};
//! use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = tempfile::tempdir()?;
//! # let folder = made.path().join("bundle");
//! # let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden");
//! # cactus_import::convert(format!("{golden}/seeing/smolvlm").as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
//! # let file = format!("{golden}/pictures/files/wide.png");
//! let model = Model::load(&folder, &LoadOptions::default())?;
//! // Once for a model; from then on it reads pictures.
//! assert!(Pictures::attach(&model)?.is_some(), "a model that sees");
//! let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
//! let content = serde_json::json!([part(&std::fs::read(file)?), {"type": "text", "text": "What is this?"}]);
//! let request = ChatRequest {
//!     messages: vec![serde_json::json!({"role": "user", "content": content})],
//!     ..ChatRequest::default()
//! };
//! let options = GenerateOptions { max_tokens: 8, ..GenerateOptions::default() };
//! let answer = answer(&scheduler, &request, options, &mut |_| {})?;
//! assert!(answer.completion.prefill_tokens > 20);
//! # Ok(())
//! # }
//! ```

pub use cactus_multimodal::{Error, ErrorKind, Heard, Limits, Look, Pictures, Sounds, attach};

/// A PNG, JPEG or WebP file as a part of a message.
#[must_use]
pub fn part(file: &[u8]) -> serde_json::Value {
    serde_json::json!({"type": "image", "data": cactus_engine::chat::to_base64(file)})
}

/// A WAV, MP3, FLAC, Ogg or M4A file as a part of a message.
#[must_use]
pub fn sound_part(file: &[u8]) -> serde_json::Value {
    serde_json::json!({"type": "audio", "data": cactus_engine::chat::to_base64(file)})
}
