//! The table of families: `model_type` of a configuration to the function that builds its graph.

use crate::config::{Config, Dims, describe};
use crate::{
    ActivityDef, Error, ErrorKind, Result, ScoresDef, VectorsDef, bert, clip_text, embedding_gemma2, gemma3,
    gemma3_text, gemma3n, gemma3n_text, gemma4, gemma4_text, gemma4_unified, glm4, gpt_oss, granite, granitemoe,
    idefics3, layers, lfm2, lfm2_vl, llama, mistral, modernbert, moonshine, moonshine_streaming, nomic_bert, olmo2,
    olmoe, parakeet, phi3, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_vl, qwen3_vl_moe, siglip, silero_vad,
    smollm3, whisper,
};
use cactus_ir::{Graph, GraphBuilder, ValueId};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

/// Name of the component that computes logits, and continues a sequence.
pub(crate) const DECODER: &str = "decoder";
/// Name of the component that hears.
pub(crate) const ENCODER: &str = "encoder";
/// Name of the component that says which sound each token was written of.
pub(crate) const ALIGNMENT: &str = "alignment";
/// Name of the component that knows the text so far.
pub(crate) const PREDICTOR: &str = "predictor";
/// Name of the component that says what is heard at a position after a text.
pub(crate) const JOINT: &str = "joint";
/// Name of the component that finds speech.
pub(crate) const DETECTOR: &str = "detector";
/// Task of a model of one component, from token ids to next-token logits.
pub(crate) const CAUSAL_LM: &str = "causal_lm_logits";
/// Task of a model that also sees: rows of pictures among the embeddings of tokens.
pub(crate) const MULTIMODAL_LM: &str = "multimodal_causal_lm_logits";
/// Task of an encoder of sound, and a decoder that writes what was said.
pub(crate) const TRANSCRIPTION: &str = "seq2seq_transcription";
/// Task of an encoder of sound with a token for each position.
pub(crate) const CTC: &str = "ctc_logits";
/// Task of a transducer without durations.
pub(crate) const RNNT: &str = "rnnt_transcription";
/// Task of a transducer with durations.
pub(crate) const TDT: &str = "tdt_transcription";
/// Task of a model that says when somebody speaks.
pub(crate) const ACTIVITY: &str = "voice_activity";

/// One graph of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComponentDef {
    /// Its name, unique in the model.
    pub name: Cow<'static, str>,
    /// The stateless graph of one forward pass in primitive operations. Weights are named and shaped as in the Hugging Face
    /// checkpoint. What it gives under the name of another component's input is that input.
    pub graph: Graph,
    /// Whether it continues a sequence call by call, so that it needs states; otherwise it is a function.
    pub continues: bool,
}

/// The sound that a model hears in one window, as a log-mel spectrogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoundDef {
    /// Name of the component that makes positions of it.
    pub component: &'static str,
    /// Bands.
    pub mels: usize,
    /// Most frames; what the weights were made for.
    pub frames: usize,
    /// Positions that the encoder makes of so many frames.
    pub positions: usize,
}

/// How a model hears samples as they are, without a front end.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplesDef {
    /// Samples a second.
    pub sample_rate_hz: u32,
    /// Fewest of them that make a position.
    pub least: usize,
    /// Longest sound that the weights were made for.
    pub most: usize,
    /// Samples from one position of the encoder to the next.
    pub position: usize,
    /// Most tokens of text for a second of sound.
    pub tokens_per_second: f32,
    /// How it hears sound while it is spoken, where it can.
    pub streaming: Option<StreamingDef>,
}

/// A component that hears a block of positions after the other, `streaming_encoder`, with what it keeps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamingDef {
    /// Samples of a block.
    pub block_samples: usize,
    /// Positions by which those that it gives lie before those that it takes.
    pub late: usize,
    /// Samples that a position needs of its own.
    pub position_least: usize,
}

/// How a model hears that says something of each position of a log-mel spectrogram of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PositionsDef {
    /// Bands.
    pub mels: usize,
    /// Frames that become one position; the last may have fewer.
    pub frames: usize,
    /// The token that stands for none.
    pub blank: usize,
    /// How it goes from position to position; absent where it says something of each at once.
    pub transducer: Option<TransducerDef>,
    /// How it hears sound of any length, where that was asked for.
    pub local: Option<LocalDef>,
}

/// Components that hear sound of any length, some positions at a time: `local_distances`, `local_input`, `local_layer_0` and so on,
/// and `local_output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalDef {
    /// Positions that attention sees on each side, and that are computed at once.
    pub context: usize,
    /// Layers.
    pub layers: usize,
    /// Positions by which what a layer gives lies before what it takes.
    pub late: usize,
    /// Frames that the input sees on each side.
    pub edge_frames: usize,
}

/// How a transducer goes from position to position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransducerDef {
    /// Positions that a token may move on, ascending; none where a blank moves one on, and a token none.
    pub durations: Vec<usize>,
    /// Most tokens of one position.
    pub most_symbols: usize,
}

/// How a model takes pictures of which it makes vectors: squares of flat patches, row after row, a patch by channel, row and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PicturesDef {
    /// Name of the component, with the input `patches` `f32[pictures, patches, numbers]` and the output `vectors`
    /// `f32[pictures, dimensions]`.
    pub component: &'static str,
    /// Side of a picture in pixels.
    pub side: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
}

/// How a model that writes text sees pictures: their rows stand among the embeddings of tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeesDef {
    /// Name of the component, with the inputs `patches` `f32[1, tokens, patches, numbers]` and `places`
    /// `f32[1, tokens, patches, positions]`, and the output `rows` `f32[1, tokens, width]`. The patches are those of a token, row
    /// after row. An encoder that turns patches by where they are has the input `cells` `i64[1, tokens, patches, 2]`, their rows and columns.
    pub component: &'static str,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Patches of a token's side.
    pub merge: usize,
    /// Side of the square table of positions, or where those of rows and columns stand apart, how many there are of either.
    pub table: usize,
    /// What its image processor makes of a picture.
    pub views: ViewsDef,
    /// How the table of positions is read for a view of another size; none where all views have its size, and the component has no
    /// input `places`.
    pub places: Option<PlacesDef>,
    /// Whether the color is the last axis of a patch, not the first.
    pub channels_last: bool,
    /// How often a picture is in a patch, between color and row: encoders of films see a still this many times.
    pub copies: usize,
    /// What stands in a prompt for a picture.
    pub marks: MarksDef,
    /// How it sees films; none where it sees none.
    pub films: Option<FilmsDef>,
}

/// How a model sees films: some frames, each as a picture, or as many together as a patch has copies.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FilmsDef {
    /// Which frames.
    pub frames: FramesDef,
    /// What stands in a prompt for one.
    pub marks: FilmMarksDef,
}

/// Which frames of a film a model sees, where its folder is silent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FramesDef {
    /// So many from the starts of as many parts, with minutes and seconds.
    Parts(usize),
    /// So many a second from the first to the last, at least and at most so many, to the nearest, with seconds and tenths.
    Nearest {
        /// Frames a second.
        rate: f64,
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
    /// So many a second, at most so many, rounded down, without the first and last seconds of a long film, with minutes and seconds.
    Below {
        /// Frames a second.
        rate: f64,
        /// Most.
        most: usize,
        /// Seconds that are left out at both ends.
        skip_seconds: f64,
    },
}

/// What stands in a prompt for a film. `{count}` and `{length}` are filled in `start`, `{time}` in `frame`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilmMarksDef {
    /// What a chat template writes for a film; empty where that is the token.
    pub written: &'static str,
    /// A token that is replaced by a row.
    pub token: &'static str,
    /// Before everything.
    pub start: &'static str,
    /// Before a frame.
    pub frame: &'static str,
    /// Behind a frame.
    pub frame_end: &'static str,
    /// Between frames.
    pub between: &'static str,
    /// Behind everything.
    pub end: &'static str,
}

/// What an image processor makes of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewsDef {
    /// Whole tiles of a picture that is enlarged to a longer side, and the whole.
    LongSide,
    /// The picture as it is, or tiles near its shape and the whole.
    Tiles,
    /// The whole picture in one size, whatever its shape.
    Whole,
    /// The picture as it is, within bounds of pixels.
    Bounds,
    /// The picture as large as a number of tokens allows.
    Budget,
}

/// How a table of positions is read for a view of another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacesDef {
    /// The entry that a patch lies in.
    Nearest,
    /// Bilinear with antialiasing, corners not aligned.
    Smoothed,
    /// Bilinear between two entries of a side, corners aligned.
    Corners,
}

/// What stands in a prompt for a picture; `{row}` and `{column}` are counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarksDef {
    /// What a chat template writes for a picture; empty where that is the token.
    pub written: &'static str,
    /// A token that is replaced by a row.
    pub token: &'static str,
    /// Before everything.
    pub start: &'static str,
    /// Behind everything.
    pub end: &'static str,
    /// Before the only view.
    pub only: &'static str,
    /// Before a tile.
    pub tile: &'static str,
    /// Behind a row of tiles.
    pub row_end: &'static str,
    /// Before the whole picture in small.
    pub whole: &'static str,
}

/// How a model that writes text hears sounds: their rows stand among the embeddings of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HearsDef {
    /// Name of the component, with the input `features` `f32[blocks, frames, numbers]` and the output `rows` `f32[1, rows, width]`. The frames behind
    /// those of the sound are zeros; where they tell, the input `count` `i64[1]` says how many are the sound's. So many rows are those of the
    /// sound as it has `row_frames` frames, the last of them not all, or as `all_rows` says.
    pub component: &'static str,
    /// What a frame is.
    pub heard: HeardDef,
    /// Frames of a block.
    pub block_frames: usize,
    /// Frames of a row.
    pub row_frames: usize,
    /// Rows of every sound, where they are as many whatever its length.
    pub all_rows: Option<usize>,
    /// What stands in a prompt for a sound.
    pub marks: SoundMarksDef,
}

impl HearsDef {
    /// Puts what hears before the decoder of `model`.
    pub(crate) fn beside(self, mut model: ModelDef, encoder: ComponentDef) -> ModelDef {
        let decoder = model.components.len().saturating_sub(1);
        model.components.insert(decoder, encoder);
        model.hears = Some(self);
        model
    }
}

/// What a frame of sound is to a model that writes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardDef {
    /// So many bands of a spectrogram.
    Spectrogram(usize),
    /// So many bands of windows that lie within the sound, each emphasized alone.
    Windows(usize),
    /// So many samples.
    Samples(usize),
}

/// What stands in a prompt for a sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoundMarksDef {
    /// A token that is replaced by a row, which is also what a chat template writes for a sound.
    pub token: &'static str,
    /// Before its rows.
    pub start: &'static str,
    /// Behind them.
    pub end: &'static str,
}

/// A model as its configuration describes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelDef {
    /// The `model_type` it was built by.
    pub family: &'static str,
    /// What it is for, as bundles say it: `causal_lm_logits`, `multimodal_causal_lm_logits`, `seq2seq_transcription`, `ctc_logits`, `rnnt_transcription`,
    /// `tdt_transcription`, `voice_activity`, `text_embedding`, `text_ranking`.
    pub task: &'static str,
    /// Its graphs, in the order in which they run. A language model has one, `decoder`, with the input `input_ids`
    /// `i64[batch, seq]` and the output `logits` `f32[batch, seq, vocab]`.
    pub components: Vec<ComponentDef>,
    /// What it hears, where that is a spectrogram.
    pub sound: Option<SoundDef>,
    /// What it hears, where that is samples.
    pub samples: Option<SamplesDef>,
    /// What it hears, where it says something of each position.
    pub positions: Option<PositionsDef>,
    /// How it takes sound, where it finds speech.
    pub activity: Option<ActivityDef>,
    /// What its vectors are, where it makes vectors of texts.
    pub vectors: Option<VectorsDef>,
    /// How it takes pictures, where it makes vectors of them.
    pub pictures: Option<PicturesDef>,
    /// How it sees pictures, where it writes text about them.
    pub sees: Option<SeesDef>,
    /// How it hears sounds, where it writes text about them.
    pub hears: Option<HearsDef>,
    /// How it takes a query and a document, where it scores them.
    pub scores: Option<ScoresDef>,
    /// What the model that was trained takes besides, as people call it, and what is made here does not.
    pub left_out: Vec<&'static str>,
    /// Whether its weights keep 32 bits, whatever is asked for: it is small, and thresholds are set by its results.
    pub exact: bool,
    /// Positions the model was made for.
    pub context_tokens: usize,
    /// Rows of the embedding; at least the number of tokens of the tokenizer.
    pub vocab_size: usize,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Whether the output head is the embedding.
    pub tied_head: bool,
    /// `bos_token_id` of the configuration.
    pub bos_token_id: Option<u32>,
    /// `eos_token_id` of the configuration: every token that ends a text. `generation_config.json`, where there is one,
    /// says it better.
    pub eos_token_ids: Vec<u32>,
    /// `pad_token_id` of the configuration.
    pub pad_token_id: Option<u32>,
    /// What stands before the names of tensors that checkpoints have and no graph reads.
    pub(crate) idle: Vec<String>,
}

impl ModelDef {
    /// The graph that continues a sequence: all of a language model.
    ///
    /// # Panics
    /// Never: every family has a component, which its tests hold. One that continues nothing has one alone.
    pub fn decoder(&self) -> &Graph {
        let decoder = self.components.iter().find(|c| c.continues);
        &decoder.unwrap_or(&self.components[0]).graph
    }

    /// Those of the source tensors `names` that the graph does not read and has no reason to leave: a sign that the
    /// configuration does not describe the weights (a bias it does not mention, say). In the order given.
    pub fn unread<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let weights = self.components.iter().flat_map(|c| c.graph.weights());
        let read: HashSet<&str> = weights.flat_map(|(_, expr)| expr.sources()).collect();
        let head = |name: &str| name == layers::HEAD || name == layers::PROJECTION;
        // Heads of other tasks, on which the vectors were not trained; positions by number.
        let other_task = |name: &str| {
            let texts = self.vectors.is_some() || self.scores.is_some();
            let heads = ["pooler.", "cls.", "lm_head.", "classifier."];
            texts && (name.ends_with("position_ids") || heads.iter().any(|head| name.starts_with(head)))
        };
        // Of a model of pictures and texts.
        let pictures = |name: &str| {
            let parts = ["vision_model.", "visual_projection.", "logit_scale", "logit_bias"];
            self.vectors.is_some()
                && (name.starts_with("logit_") || self.pictures.is_none())
                && parts.iter().any(|part| name.starts_with(part))
        };
        // A tied head may be stored all the same; old checkpoints hold the rotary frequencies, and batch norms count.
        // What guesses several tokens ahead is a model of its own.
        let leftover = |name: &str| {
            let ends = [".rotary_emb.inv_freq", ".num_batches_tracked"];
            ends.iter().any(|end| name.ends_with(end)) || name.starts_with("mtp.")
        };
        let idle = |name: &str| self.idle.iter().any(|prefix| name.starts_with(prefix));
        let known = |name: &str| {
            (self.tied_head && head(name)) || leftover(name) || other_task(name) || pictures(name) || idle(name)
        };
        names.into_iter().filter(|n| !read.contains(n) && !known(n)).collect()
    }
}

/// A family: what the registry knows it by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Names of model lines, for people.
    pub models: &'static str,
    build: fn(&Config<'_>) -> Result<ModelDef>,
}

/// Every family, by `model_type`.
pub const FAMILIES: &[Family] = &[
    Family {
        model_type: "bert",
        models: "BERT embeddings (MiniLM, BGE, GTE, E5), cross-encoders",
        build: bert::build_bert,
    },
    Family {
        model_type: "clip",
        models: "CLIP, vectors of texts and pictures",
        build: clip_text::build_whole,
    },
    Family {
        model_type: "clip_text_model",
        models: "CLIP, its part for texts alone",
        build: clip_text::build_text,
    },
    Family {
        model_type: "embedding_gemma2",
        models: "EmbeddingGemma 2, vectors of texts",
        build: embedding_gemma2::build,
    },
    Family {
        model_type: "embedding_gemma2_text",
        models: "EmbeddingGemma 2, its part for texts alone",
        build: embedding_gemma2::build_text,
    },
    Family {
        model_type: "gemma3",
        models: "Gemma 3 with vision (4B, 12B, 27B)",
        build: gemma3::build,
    },
    Family {
        model_type: "gemma3_text",
        models: "Gemma 3 text (270M, 1B)",
        build: gemma3_text::build,
    },
    Family {
        model_type: "gemma3n",
        models: "Gemma 3n with vision (E2B, E4B)",
        build: gemma3n::build,
    },
    Family {
        model_type: "gemma3n_text",
        models: "Gemma 3n text",
        build: gemma3n_text::build,
    },
    Family {
        model_type: "gemma4",
        models: "Gemma 4 with vision (E2B, E4B, 26B-A4B, 31B)",
        build: gemma4::build,
    },
    Family {
        model_type: "gemma4_text",
        models: "Gemma 4 text",
        build: gemma4_text::build,
    },
    Family {
        model_type: "gemma4_unified",
        models: "Gemma 4 without encoders (12B)",
        build: gemma4_unified::build,
    },
    Family {
        model_type: "gemma4_unified_text",
        models: "Gemma 4 12B, its text model",
        build: gemma4_unified::build_text,
    },
    Family {
        model_type: "glm",
        models: "GLM-4-9b, GLM-Edge",
        build: glm4::build_glm,
    },
    Family {
        model_type: "glm4",
        models: "GLM-4-0414, GLM-Z1",
        build: glm4::build_glm4,
    },
    Family {
        model_type: "gpt_oss",
        models: "gpt-oss (20b, 120b)",
        build: gpt_oss::build,
    },
    Family {
        model_type: "granite",
        models: "Granite 3 (dense)",
        build: granite::build,
    },
    Family {
        model_type: "granitemoe",
        models: "Granite 3 with experts (1B-A400M, 3B-A800M)",
        build: granitemoe::build,
    },
    Family {
        model_type: "granitemoeshared",
        models: "Granite with experts and one that every token has",
        build: granitemoe::build_shared,
    },
    Family {
        model_type: "idefics3",
        models: "SmolVLM 1 (256M, 500M, 2.2B), Idefics 3",
        build: idefics3::build,
    },
    Family {
        model_type: "lfm2",
        models: "LFM2 and LFM2.5 text",
        build: lfm2::build,
    },
    Family {
        model_type: "lfm2_moe",
        models: "LFM2-8B-A1B",
        build: lfm2::build_moe,
    },
    Family {
        model_type: "lfm2_vl",
        models: "LFM2-VL and LFM2.5-VL",
        build: lfm2_vl::build,
    },
    Family {
        model_type: "llama",
        models: "Llama 2 to 3.2, SmolLM2",
        build: llama::build,
    },
    Family {
        model_type: "mistral",
        models: "Mistral",
        build: mistral::build,
    },
    Family {
        model_type: "modernbert",
        models: "ModernBERT embeddings (gte-modernbert), rerankers",
        build: modernbert::build,
    },
    Family {
        model_type: "moonshine",
        models: "Moonshine (tiny, base)",
        build: moonshine::build,
    },
    Family {
        model_type: "moonshine_streaming",
        models: "Moonshine 2 (tiny, small, medium)",
        build: moonshine_streaming::build,
    },
    Family {
        model_type: "nomic_bert",
        models: "Nomic embeddings (nomic-embed-text 1, 1.5 and 2)",
        build: nomic_bert::build,
    },
    Family {
        model_type: "olmo2",
        models: "OLMo 2 (1B to 32B)",
        build: olmo2::build,
    },
    Family {
        model_type: "olmoe",
        models: "OLMoE (7B with 1B active)",
        build: olmoe::build,
    },
    Family {
        model_type: "parakeet_ctc",
        models: "Parakeet CTC (0.6B, 1.1B)",
        build: parakeet::build_ctc,
    },
    Family {
        model_type: "parakeet_rnnt",
        models: "Parakeet RNN-T (0.6B, 1.1B)",
        build: parakeet::build_rnnt,
    },
    Family {
        model_type: "parakeet_tdt",
        models: "Parakeet TDT (0.6B v2 and v3, 1.1B)",
        build: parakeet::build_tdt,
    },
    Family {
        model_type: "phi3",
        models: "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
        build: phi3::build,
    },
    Family {
        model_type: "qwen2",
        models: "Qwen2, Qwen2.5",
        build: qwen2::build,
    },
    Family {
        model_type: "qwen3",
        models: "Qwen3 (dense)",
        build: qwen3::build,
    },
    Family {
        model_type: "qwen3_5",
        models: "Qwen3.5",
        build: qwen3_5::build,
    },
    Family {
        model_type: "qwen3_5_moe",
        models: "Qwen3.5 with experts (35B-A3B)",
        build: qwen3_5_moe::build,
    },
    Family {
        model_type: "qwen3_5_moe_text",
        models: "Qwen3.5 with experts, without its encoder of pictures",
        build: qwen3_5_moe::build_text,
    },
    Family {
        model_type: "qwen3_5_text",
        models: "Qwen3.5 without its encoder of pictures",
        build: qwen3_5::build_text,
    },
    Family {
        model_type: "qwen3_moe",
        models: "Qwen3 with experts (30B-A3B, 235B-A22B)",
        build: qwen3_moe::build,
    },
    Family {
        model_type: "qwen3_vl",
        models: "Qwen3-VL",
        build: qwen3_vl::build,
    },
    Family {
        model_type: "qwen3_vl_moe",
        models: "Qwen3-VL with experts (30B-A3B, 235B-A22B)",
        build: qwen3_vl_moe::build,
    },
    Family {
        model_type: "qwen3_vl_moe_text",
        models: "Qwen3-VL with experts, without its encoder of pictures",
        build: qwen3_vl_moe::build_text,
    },
    // Its positions are on one axis, as long as there are no pictures.
    Family {
        model_type: "qwen3_vl_text",
        models: "Qwen3-VL without its encoder of pictures",
        build: qwen3::build,
    },
    Family {
        model_type: "roberta",
        models: "RoBERTa embeddings, cross-encoders",
        build: bert::build_roberta,
    },
    Family {
        model_type: "siglip",
        models: "SigLIP, vectors of texts and pictures",
        build: siglip::build,
    },
    Family {
        model_type: "silero_vad",
        models: "Silero VAD 5 and 6 (16 kHz)",
        build: silero_vad::build,
    },
    Family {
        model_type: "smollm3",
        models: "SmolLM3",
        build: smollm3::build,
    },
    Family {
        model_type: "smolvlm",
        models: "SmolVLM 2 (256M, 500M, 2.2B)",
        build: idefics3::build,
    },
    Family {
        model_type: "whisper",
        models: "Whisper (tiny to large-v3-turbo, English and multilingual), Distil-Whisper",
        build: whisper::build,
    },
    Family {
        model_type: "xlm-roberta",
        models: "XLM-RoBERTa embeddings (multilingual E5, BGE-M3 dense), rerankers (BGE reranker)",
        build: bert::build_roberta,
    },
];

/// Builds the model that a Hugging Face `config.json` describes.
///
/// The front ends for other formats make such a configuration first. Beyond the fields of `transformers`, rope scaling
/// may have `rope_type` `freq_factors` (or `llama3`) with a list `freq_factors` of one divisor for each frequency, which is
/// what GGUF files carry.
///
/// # Errors
/// [`ErrorKind::Architecture`] where `model_type` is not in [`FAMILIES`]; [`ErrorKind::Missing`], [`ErrorKind::Invalid`]
/// and [`ErrorKind::Unsupported`] naming the field. Sizes beyond any published model are refused.
pub fn build(config: &Value) -> Result<ModelDef> {
    let c = Config::new("", config)?;
    let Some(model_type) = c.text("model_type")? else {
        return Err(Error::new(
            ErrorKind::Missing,
            "",
            "field `model_type` is missing; it names the architecture",
        ));
    };
    let Some(family) = FAMILIES.iter().find(|f| f.model_type == model_type) else {
        let known: Vec<&str> = FAMILIES.iter().map(|f| f.model_type).collect();
        let what = format!(
            "architecture {} is not supported; supported are {}",
            describe(&model_type.into()),
            known.join(", ")
        );
        return Err(Error::new(ErrorKind::Architecture, "", what));
    };
    (family.build)(&Config::new(family.model_type, config)?)
}

/// A language model whose graph is `body`, which gives the final hidden state `[batch, seq, hidden]`, and a head behind it.
pub(crate) fn generator(
    c: &Config<'_>,
    dims: &Dims,
    (tied, logits): (bool, Option<layers::Logits>),
    body: impl FnOnce(&mut GraphBuilder) -> cactus_ir::Result<ValueId>,
) -> Result<ModelDef> {
    let mut b = GraphBuilder::new(DECODER);
    let x = b.scope("model", body)?;
    layers::head(&mut b, x, dims, tied, logits)?;
    let decoder = ComponentDef {
        name: DECODER.into(),
        graph: b.finish()?,
        continues: true,
    };
    assemble(c, dims, vec![decoder], tied)
}

/// The definition around finished graphs; that of a language model but for them.
pub(crate) fn assemble(c: &Config<'_>, dims: &Dims, components: Vec<ComponentDef>, tied: bool) -> Result<ModelDef> {
    let one = |key: &str| -> Result<Option<u32>> { Ok(c.token_ids(key)?.first().copied()) };
    let (bos_token_id, pad_token_id) = (one("bos_token_id")?, one("pad_token_id")?);
    let family = FAMILIES
        .iter()
        .map(|f| f.model_type)
        .find(|t| *t == c.family())
        .unwrap_or_default();
    Ok(ModelDef {
        family,
        task: CAUSAL_LM,
        components,
        sound: None,
        samples: None,
        positions: None,
        activity: None,
        vectors: None,
        pictures: None,
        sees: None,
        hears: None,
        scores: None,
        left_out: Vec::new(),
        exact: false,
        context_tokens: dims.context,
        vocab_size: dims.vocab,
        hidden_size: dims.hidden,
        layers: dims.layers,
        tied_head: tied,
        bos_token_id,
        eos_token_ids: c.token_ids("eos_token_id")?,
        pad_token_id,
        idle: Vec::new(),
    })
}
