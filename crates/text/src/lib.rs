//! Text in and out of language models: tokenizer, streaming detokenizer, chat templates, constraints on what is written
//! ([`grammar`]) and tool calls ([`tools`]).
//!
//! Depends on the `tokenizers`, `minijinja` and `llguidance` crates, which stay behind this crate's own types. It
//! deliberately does not know model weights, generation or files other than the tokenizer's: it reads
//! `tokenizer.json` or the tables made of it, `tokenizer_config.json`, `special_tokens_map.json`,
//! `generation_config.json` and `chat_template.jinja`, and every one of them is treated as hostile.
//!
//! ```no_run
//! # fn main() -> Result<(), cactus_text::Error> {
//! use cactus_text::{ChatTemplate, RenderOptions, StreamDecoder, Tokenizer, message};
//!
//! let folder = std::path::Path::new("model");
//! let tokenizer = Tokenizer::from_dir(folder)?;
//! let template = ChatTemplate::from_dir(folder)?;
//! let prompt = template.render(&[message("user", "Hello")], &RenderOptions::for_generation())?;
//! // The template writes the special tokens itself.
//! let ids = tokenizer.encode(&prompt, false)?;
//!
//! let mut stream = StreamDecoder::new(true);
//! let mut text = String::new();
//! for id in ids {
//!     stream.push(&tokenizer, id, &mut text);
//! }
//! stream.finish(&tokenizer, &mut text);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod chat;
mod detokenize;
mod error;
mod files;
pub mod grammar;
mod tokenizer;
pub mod tools;

pub use chat::{ChatTemplate, ChatTemplateSource, Clock, Limits, RenderOptions, instruct, message, question};
pub use detokenize::StreamDecoder;
pub use error::{Error, ErrorKind};
pub use files::json_type;
pub use tokenizer::{Tokenizer, TokenizerSource, TokenizerTables, known_end_ids};
