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
mod altup;
mod axial_encoder;
mod bert;
mod bounded;
mod clip_text;
mod config;
mod decoder;
mod delta_net;
mod embedding_gemma2;
mod error;
mod experts;
mod fastconformer;
mod gemma3;
mod gemma3_text;
mod gemma3n;
mod gemma3n_text;
mod gemma4;
mod gemma4_text;
mod gemma4_unified;
mod glm4;
mod gpt_oss;
mod granite;
mod granitemoe;
mod grid_encoder;
mod idefics3;
mod kept_attention;
mod layer_inputs;
mod layers;
mod lfm2;
mod lfm2_vl;
mod llama;
mod local_attention;
mod media;
mod mistral;
mod mobile_blocks;
mod mobile_encoder;
mod modernbert;
mod moonshine;
mod moonshine_blocks;
mod moonshine_decoder;
mod moonshine_streaming;
mod nomic_bert;
mod normal;
mod olmo2;
mod olmoe;
mod other_tokens;
mod parakeet;
mod phi3;
mod picture_encoder;
mod picture_tower;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_vl;
mod qwen3_vl_moe;
mod registry;
mod rope;
mod rotary;
mod routed_beside;
mod seeing;
mod siglip;
mod silero_vad;
mod sliding;
mod smollm3;
mod sound_encoder;
mod sound_positions;
mod texts;
mod whisper;

pub use error::{Error, ErrorKind, Result};
pub use normal::share_below;
pub use picture_encoder::PICTURE_ENCODER;
pub use registry::{
    ComponentDef, FAMILIES, Family, FilmMarksDef, FilmsDef, FramesDef, HeardDef, HearsDef, LocalDef, MarksDef,
    ModelDef, PicturesDef, PlacesDef, PositionsDef, SamplesDef, SeesDef, SoundDef, SoundMarksDef, StreamingDef,
    TransducerDef, ViewsDef, build,
};
pub use silero_vad::ActivityDef;
pub use sound_encoder::SOUND_ENCODER;
pub use texts::{PoolingDef, ScoresDef, VectorsDef};
