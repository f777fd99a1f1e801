//! Model families: a Hugging Face configuration becomes portable graphs whose weights are named as in the checkpoint: one
//! of a language model, one for each component of a model that also hears.
//!
//! One file a family, called by its `model_type`; [`build`] finds it. A family reads its configuration (typed, bounded,
//! each error naming the field) and writes a *stateless* forward pass in *primitive* operations, in the order of the
//! transformers implementation: rms norms as pow, mean and rsqrt, rope as slices and concat, attention as two matrix
//! products around a softmax under an additive mask. Passes fuse it and give it its states, for these graphs and for
//! captured ones alike.
//!
//! It may depend on `ir` and `tensor`. It deliberately reads no file and no weight, knows no quantization and no
//! tokenizer, and writes no fused operation.
#![forbid(unsafe_code)]

mod alignment;
mod bert;
mod clip_text;
mod config;
mod error;
mod fastconformer;
mod gemma3_text;
mod layers;
mod lfm2;
mod llama;
mod local_attention;
mod mistral;
mod modernbert;
mod moonshine;
mod moonshine_blocks;
mod moonshine_decoder;
mod moonshine_streaming;
mod nomic_bert;
mod parakeet;
mod picture_tower;
mod prenorm;
mod qwen2;
mod qwen3;
mod registry;
mod rope;
mod siglip;
mod silero_vad;
mod sliding;
mod smollm3;
mod texts;
mod whisper;

pub use error::{Error, ErrorKind, Result};
pub use registry::{
    ActivityDef, ComponentDef, FAMILIES, Family, LocalDef, ModelDef, PicturesDef, PositionsDef, SamplesDef, SoundDef,
    StreamingDef, TransducerDef, build,
};
pub use texts::{PoolingDef, ScoresDef, VectorsDef};
