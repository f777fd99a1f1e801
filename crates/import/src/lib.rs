//! Front ends: Hugging Face folders, GGUF files, Whisper models of CTranslate2 and whisper.cpp, Silero VAD, Moonshine
//! for ONNX Runtime, programs saved by `torch.export` and files of weights become bundles.
//!
//! Purpose: to read a model from where it is published. All front ends of models speak one convention, that of Hugging Face
//! `transformers`: its `config.json` keys, its weight names, shapes and values, its `tokenizer.json`; so a model
//! family is written once and does not know which front end fed it. [`open`] looks at a path and picks the front end.
//!
//! May depend on `models`, `ir`, `quant`, `bundle`, `passes` and below. It deliberately does not download (see `hub`),
//! does not run graphs (see `runtime`) and is not part of a device build.
#![forbid(unsafe_code)]

mod bytes;
mod conformer_names;
mod convert;
pub mod ctranslate2;
mod cursor;
mod embedding;
mod encode;
mod error;
mod experts;
mod fields;
mod flat;
pub mod ggml;
pub mod gguf;
mod hearing;
mod hf;
pub mod lora;
mod mxfp4;
mod named;
mod onnx;
pub mod ort;
mod other_tokens;
mod pictures;
mod protobuf;
pub mod pt2;
mod ranks;
mod requantized;
mod safetensors;
mod senses;
mod sentence;
pub mod silero;
mod source;
mod speech;
pub mod state_dict;
mod stop;
mod strided;
mod weights;

pub use bytes::{FileBytes, SharedBytes, open_bytes};
pub use convert::{
    Calibration, ConvertOptions, Outcome, TensorError, convert, convert_calibrated, makes_token_vectors, speech_of,
    takes_text, task_of,
};
pub use error::{Error, ErrorKind, Result};
pub use hf::open_folder;
pub use safetensors::SafetensorsSource;
pub use sentence::{LateInteraction, SentenceFolder};
pub use source::{SourceModel, TensorSource, TokenizerFiles, open};
pub use stop::Stop;
pub use weights::{WEIGHTS_TASK, convert_weights, is_weights_file, open_weights};
