//! GGUF tensor names and their Hugging Face counterparts, by architecture.

use super::encoder_names;
use crate::{Error, Result};

/// Architectures whose weights have a Hugging Face counterpart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arch {
    Llama,
    SmolLm3,
    Qwen2,
    Qwen3,
    Gemma3,
    GemmaEmbedding,
    Gemma3n,
    Gemma4,
    Lfm2,
    Lfm2Moe,
    Olmo2,
    Olmoe,
    Phi3,
    GptOss,
    Granite,
    GraniteMoe,
    Glm4,
    Qwen3Moe,
    Qwen3Vl,
    Qwen3VlMoe,
    Qwen35,
    Qwen35Moe,
    Bert,
    NomicBert,
    NomicBertMoe,
    ModernBert,
}

/// One row per architecture: `general.architecture`, then `model_type` of a `config.json`.
const ARCHS: [(Arch, &str, &str); 26] = [
    (Arch::Llama, "llama", "llama"),
    (Arch::SmolLm3, "smollm3", "smollm3"),
    (Arch::Qwen2, "qwen2", "qwen2"),
    (Arch::Qwen3, "qwen3", "qwen3"),
    (Arch::Gemma3, "gemma3", "gemma3_text"),
    (Arch::GemmaEmbedding, "gemma-embedding", "gemma3_text"),
    (Arch::Gemma3n, "gemma3n", "gemma3n_text"),
    (Arch::Gemma4, "gemma4", "gemma4_text"),
    (Arch::Lfm2, "lfm2", "lfm2"),
    (Arch::Lfm2Moe, "lfm2moe", "lfm2_moe"),
    (Arch::Olmo2, "olmo2", "olmo2"),
    (Arch::Olmoe, "olmoe", "olmoe"),
    (Arch::Phi3, "phi3", "phi3"),
    (Arch::GptOss, "gpt-oss", "gpt_oss"),
    (Arch::Granite, "granite", "granite"),
    (Arch::GraniteMoe, "granitemoe", "granitemoe"),
    (Arch::Glm4, "glm4", "glm4"),
    (Arch::Qwen3Moe, "qwen3moe", "qwen3_moe"),
    (Arch::Qwen3Vl, "qwen3vl", "qwen3_vl_text"),
    (Arch::Qwen3VlMoe, "qwen3vlmoe", "qwen3_vl_moe_text"),
    (Arch::Qwen35, "qwen35", "qwen3_5_text"),
    (Arch::Qwen35Moe, "qwen35moe", "qwen3_5_moe_text"),
    // RoBERTa, too: its positions are stored from the first that is used on, and what is left is BERT.
    (Arch::Bert, "bert", "bert"),
    (Arch::NomicBert, "nomic-bert", "nomic_bert"),
    (Arch::NomicBertMoe, "nomic-bert-moe", "nomic_bert"),
    (Arch::ModernBert, "modern-bert", "modernbert"),
];

impl Arch {
    /// The architecture that `general.architecture` names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] for any other, naming those that are supported.
    pub(super) fn from_name(name: &str) -> Result<Arch> {
        let row = ARCHS.iter().find(|row| row.1 == name);
        row.map(|row| row.0).ok_or_else(|| {
            let supported: Vec<&str> = ARCHS.iter().map(|row| row.1).collect();
            Error::unsupported(format!(
                "the architecture `{name}` is not supported; supported are {}",
                supported.join(", ")
            ))
        })
    }

    /// `model_type` of the Hugging Face configuration.
    pub(super) fn model_type(self) -> &'static str {
        // Invariant: ARCHS has a row per variant, as the test `every_arch_has_a_row` checks.
        let row = ARCHS.iter().find(|row| row.0 == self);
        row.expect("ARCHS has every variant").2
    }

    /// Whether it makes vectors or scores of texts, and never continues one.
    pub(super) fn is_encoder(self) -> bool {
        matches!(
            self,
            Arch::Bert | Arch::NomicBert | Arch::NomicBertMoe | Arch::ModernBert
        )
    }

    /// Whether it is Gemma 3, whichever way it attends.
    pub(super) fn is_gemma3(self) -> bool {
        matches!(self, Arch::Gemma3 | Arch::GemmaEmbedding)
    }

    /// Whether it is LFM2, with experts or without.
    pub(super) fn is_lfm2(self) -> bool {
        matches!(self, Arch::Lfm2 | Arch::Lfm2Moe)
    }

    /// Whether it is Qwen3.5, with experts or without.
    pub(super) fn is_qwen35(self) -> bool {
        matches!(self, Arch::Qwen35 | Arch::Qwen35Moe)
    }

    /// Whether its layers have experts.
    pub(super) fn has_experts(self) -> bool {
        matches!(
            self,
            Arch::GptOss
                | Arch::GraniteMoe
                | Arch::Lfm2Moe
                | Arch::Olmoe
                | Arch::Qwen3Moe
                | Arch::Qwen3VlMoe
                | Arch::Qwen35Moe
        )
    }

    /// Whether queries and keys have norms.
    fn norms_heads(self) -> bool {
        self.is_gemma3()
            || self.is_qwen35()
            || matches!(
                self,
                Arch::Olmo2 | Arch::Olmoe | Arch::Qwen3 | Arch::Qwen3Moe | Arch::Qwen3Vl | Arch::Qwen3VlMoe
            )
    }

    /// Whether it may turn a part of each head alone.
    pub(super) fn turns_a_part(self) -> bool {
        matches!(self, Arch::Phi3 | Arch::Glm4 | Arch::Qwen35 | Arch::Qwen35Moe)
    }

    /// Whether GGUF orders the rows of query and key weights for rotation of neighboring pairs.
    fn interleaves_rope(self) -> bool {
        matches!(self, Arch::Llama | Arch::SmolLm3 | Arch::Granite | Arch::GraniteMoe)
    }
}

/// What turns the stored values into Hugging Face's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Keep,
    /// Rows (or elements of a bias) of each query head go from pair order to half order.
    QueryRows,
    /// The same for key heads.
    KeyRows,
    /// Subtract the one that GGUF adds to a norm that computes `x * (1 + w)`.
    MinusOne,
    /// `[dim, taps]` becomes `[dim, 1, taps]`, as of a depthwise convolution.
    DepthwiseTaps,
    /// Of the softplus of a number the number.
    BeforeSoftplus,
    /// `[n, colors, rows, columns]` becomes `[n, rows * columns * colors]`.
    ColorsLast,
    /// Of the last axis, `[colors * pixels]` becomes `[pixels * colors]`.
    FlatColorsLast,
    /// `[a, b, n]` becomes `[b, a, n]`.
    Exchanged,
    /// `[experts, rows, columns]` becomes `[experts * rows, columns]`.
    Experts,
    /// `[experts, columns, rows]` becomes `[experts * rows, columns]`.
    TurnedExperts,
    /// What the heads of values of a gated delta net have, in their order there.
    Values(OfValues),
}

/// What heads of values have of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfValues {
    /// All rows, or elements.
    Rows,
    /// The rows behind those of queries and keys.
    RowsBehindKeys,
    /// The same of a convolution, `[channels, taps]`, which becomes `[channels, 1, taps]`.
    Taps,
    /// All columns.
    Columns,
    /// All elements, of which the tensor has what `-exp` makes of them.
    Decays,
}

/// The Hugging Face name of a GGUF tensor and the change its values need. `None`: not a weight of this architecture.
pub(super) fn hugging_face(arch: Arch, name: &str) -> Option<(String, Change)> {
    if arch.is_encoder() {
        return encoder_names::hugging_face(arch, name);
    }
    if let Some(rest) = name.strip_prefix("blk.") {
        let (layer, rest) = rest.split_once('.')?;
        // A plain decimal number, so that no two spellings collide.
        if layer.parse::<u32>().ok()?.to_string() != layer {
            return None;
        }
        if let (true, "ssm_a" | "ssm_dt.bias") = (arch.is_qwen35(), rest) {
            // Parameters of their own, without a suffix.
            let (name, values) = match rest {
                "ssm_a" => ("A_log", OfValues::Decays),
                _ => ("dt_bias", OfValues::Rows),
            };
            return Some((
                format!("model.layers.{layer}.linear_attn.{name}"),
                Change::Values(values),
            ));
        }
        if let (Arch::GptOss, "attn_sinks.weight") = (arch, rest) {
            return Some((format!("model.layers.{layer}.self_attn.sinks"), Change::Keep));
        }
        let (stem, suffix) = rest.rsplit_once('.')?;
        let of_kept = match arch {
            Arch::Gemma3n => of_gemma3n_layer(stem, suffix).or_else(|| of_gemma4_layer(stem, suffix)),
            Arch::Gemma4 => of_gemma4_layer(stem, suffix),
            _ => None,
        };
        if let Some((own, change)) = of_kept {
            return Some((format!("model.layers.{layer}.{own}"), change));
        }
        if !matches!(suffix, "weight" | "bias") {
            return None;
        }
        if let (Arch::Lfm2Moe, "exp_probs_b", "bias") = (arch, stem, suffix) {
            // A buffer of its own, without a suffix.
            return Some((format!("model.layers.{layer}.feed_forward.expert_bias"), Change::Keep));
        }
        let (stem, change) = of_layer(arch, stem)?;
        return Some((format!("model.layers.{layer}.{stem}.{suffix}"), change));
    }
    let norm = norm_change(arch);
    let (name, change) = match (arch, name) {
        (_, "token_embd.weight") => ("model.embed_tokens.weight", Change::Keep),
        (_, "output.weight") => ("lm_head.weight", Change::Keep),
        // The converter of LFM2 files gave the last norm the name of another tensor.
        (Arch::Lfm2 | Arch::Lfm2Moe, "token_embd_norm.weight" | "output_norm.weight") => {
            ("model.embedding_norm.weight", Change::Keep)
        }
        (_, "output_norm.weight") => ("model.norm.weight", norm),
        (Arch::Gemma3n | Arch::Gemma4, "per_layer_token_embd.weight") => (LAYER_INPUTS, Change::Keep),
        (Arch::Gemma3n | Arch::Gemma4, "per_layer_model_proj.weight") => {
            ("model.per_layer_model_projection.weight", Change::Keep)
        }
        (Arch::Gemma3n | Arch::Gemma4, "per_layer_proj_norm.weight") => {
            ("model.per_layer_projection_norm.weight", Change::Keep)
        }
        (Arch::Gemma3n, "altup_proj.weight") => (STREAMS[0], Change::Keep),
        (Arch::Gemma3n, "altup_unembd_proj.weight") => (STREAMS[1], Change::Keep),
        (Arch::GemmaEmbedding, "dense_2.weight") => ("2_Dense.linear.weight", Change::Keep),
        (Arch::GemmaEmbedding, "dense_3.weight") => ("3_Dense.linear.weight", Change::Keep),
        (Arch::Qwen3, encoder_names::CLASSES) => (encoder_names::CLASSES, Change::Keep),
        _ => return None,
    };
    Some((name.to_owned(), change))
}

/// The table that has inputs for each layer.
pub(super) const LAYER_INPUTS: &str = "model.embed_tokens_per_layer.weight";

/// Projections from and to streams of Gemma 3n, of which Hugging Face has one each.
pub(super) const STREAMS: [&str; 2] = [
    "model.altup_projections.weight",
    "model.altup_unembed_projections.weight",
];

/// Whether a tensor carries no weight: it is read into the configuration, or derived from it.
pub(super) fn is_not_a_weight(name: &str) -> bool {
    name == ROPE_FACTORS
        || LONG_ROPE_FACTORS.contains(&name)
        || name.ends_with(".attn_rot_embd")
        || name.ends_with(".rope_freqs.weight")
}

/// The tensor of divisors of rotary frequencies, `[head_dim / 2]`.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The same of `LongRoPE`, for short texts and for long ones, in the order of `short_factor` and `long_factor`.
pub(super) const LONG_ROPE_FACTORS: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

fn norm_change(arch: Arch) -> Change {
    match arch.is_gemma3() || arch.is_qwen35() {
        true => Change::MinusOne,
        false => Change::Keep,
    }
}

fn of_layer(arch: Arch, stem: &str) -> Option<(&'static str, Change)> {
    use Change::{DepthwiseTaps, Keep, KeyRows, QueryRows};
    let norm = norm_change(arch);
    let (query, key) = match arch.interleaves_rope() {
        true => (QueryRows, KeyRows),
        false => (Keep, Keep),
    };
    if arch.is_lfm2()
        && let Some(stem) = of_lfm2_layer(stem)
    {
        let change = if stem == "conv.conv" { DepthwiseTaps } else { Keep };
        return Some((stem, change));
    }
    if let (Arch::Lfm2Moe, Some(stem)) = (arch, of_lfm2_experts(stem)) {
        return Some((stem, Keep));
    }
    if arch.is_qwen35()
        && let Some(found) = of_qwen35_layer(stem)
    {
        return Some(found);
    }
    Some(match (arch, stem) {
        (Arch::Phi3, "attn_qkv") => ("self_attn.qkv_proj", Keep),
        // The rows of both projections.
        (Arch::Phi3 | Arch::Glm4, "ffn_up") => ("mlp.gate_up_proj", Keep),
        (Arch::Phi3 | Arch::Glm4, "ffn_gate") | (Arch::Olmo2, "attn_norm" | "ffn_norm") => return None,
        (Arch::Glm4, "post_attention_norm") => ("post_self_attn_layernorm", Keep),
        (Arch::Glm4, "post_ffw_norm") => ("post_mlp_layernorm", Keep),
        (Arch::Olmo2, "post_attention_norm") => ("post_attention_layernorm", Keep),
        (Arch::Olmo2, "post_ffw_norm") => ("post_feedforward_layernorm", Keep),
        (Arch::GptOss, "post_attention_norm") => ("post_attention_layernorm", Keep),
        (Arch::GptOss, "ffn_gate_inp") => ("mlp.router", Keep),
        (Arch::GraniteMoe, "ffn_gate_inp") => ("block_sparse_moe.router", Keep),
        (Arch::GraniteMoe, "ffn_gate_exps") => ("block_sparse_moe.experts.gate_proj", Keep),
        (Arch::GraniteMoe, "ffn_up_exps") => ("block_sparse_moe.experts.up_proj", Keep),
        (Arch::GraniteMoe, "ffn_gate_up_exps") => ("block_sparse_moe.experts.gate_up_proj", Keep),
        (Arch::GraniteMoe, "ffn_down_exps") => ("block_sparse_moe.experts.down_proj", Keep),
        (arch, stem) if arch.has_experts() && of_experts(stem).is_some() => (of_experts(stem)?, Keep),
        (_, "attn_q") => ("self_attn.q_proj", query),
        (_, "attn_k") => ("self_attn.k_proj", key),
        (_, "attn_v") => ("self_attn.v_proj", Keep),
        (_, "attn_output") => ("self_attn.o_proj", Keep),
        (_, "attn_q_norm") if arch.norms_heads() => ("self_attn.q_norm", norm),
        (_, "attn_k_norm") if arch.norms_heads() => ("self_attn.k_norm", norm),
        (_, "attn_norm") => ("input_layernorm", norm),
        (Arch::Gemma3 | Arch::GemmaEmbedding, "post_attention_norm") => ("post_attention_layernorm", norm),
        (Arch::Gemma3 | Arch::GemmaEmbedding, "ffn_norm") => ("pre_feedforward_layernorm", norm),
        (Arch::Gemma3 | Arch::GemmaEmbedding, "post_ffw_norm") => ("post_feedforward_layernorm", norm),
        (_, "ffn_norm") => ("post_attention_layernorm", norm),
        (_, "ffn_gate") => ("mlp.gate_proj", Keep),
        (_, "ffn_up") => ("mlp.up_proj", Keep),
        (_, "ffn_down") => ("mlp.down_proj", Keep),
        _ => return None,
    })
}

/// What Gemma 3n has that Gemma 4 has not.
fn of_gemma3n_layer(stem: &str, suffix: &str) -> Option<(&'static str, Change)> {
    let own = match (stem, suffix) {
        ("altup_correct_coef", "weight") => "altup.correction_coefs.weight",
        ("altup_correct_scale", "weight") => "altup.correct_output_scale",
        ("altup_predict_coef", "weight") => "altup.prediction_coefs.weight",
        ("altup_router", "weight") => "altup.modality_router.weight",
        ("altup_router_norm", "weight") => "altup.router_norm.weight",
        ("laurel_l", "weight") => "laurel.linear_left.weight",
        ("laurel_r", "weight") => "laurel.linear_right.weight",
        ("laurel_post_norm", "weight") => "laurel.post_laurel_norm.weight",
        _ => return None,
    };
    Some((own, Change::Keep))
}

/// What Gemma 4 names differently from Llama; some of it has no suffix there.
fn of_gemma4_layer(stem: &str, suffix: &str) -> Option<(&'static str, Change)> {
    let own = match (stem, suffix) {
        ("attn_q_norm", "weight") => "self_attn.q_norm.weight",
        ("attn_k_norm", "weight") => "self_attn.k_norm.weight",
        ("post_attention_norm", "weight") => "post_attention_layernorm.weight",
        ("ffn_norm", "weight") => "pre_feedforward_layernorm.weight",
        ("post_ffw_norm", "weight") => "post_feedforward_layernorm.weight",
        ("pre_ffw_norm_2", "weight") => "pre_feedforward_layernorm_2.weight",
        ("post_ffw_norm_1", "weight") => "post_feedforward_layernorm_1.weight",
        ("post_ffw_norm_2", "weight") => "post_feedforward_layernorm_2.weight",
        ("inp_gate", "weight") => "per_layer_input_gate.weight",
        ("proj", "weight") => "per_layer_projection.weight",
        ("post_norm", "weight") => "post_per_layer_input_norm.weight",
        ("layer_output_scale", "weight") => "layer_scalar",
        ("ffn_gate_inp", "weight") => "router.proj.weight",
        ("ffn_gate_inp", "scale") => "router.scale",
        ("ffn_down_exps", "scale") => "router.per_expert_scale",
        ("ffn_gate_exps", "weight") => "experts.gate_proj.weight",
        ("ffn_up_exps", "weight") => "experts.up_proj.weight",
        ("ffn_gate_up_exps", "weight") => "experts.gate_up_proj.weight",
        ("ffn_down_exps", "weight") => "experts.down_proj.weight",
        _ => return None,
    };
    Some((own, Change::Keep))
}

/// What LFM2 names differently from Llama.
fn of_lfm2_layer(stem: &str) -> Option<&'static str> {
    Some(match stem {
        "attn_output" => "self_attn.out_proj",
        "attn_q_norm" => "self_attn.q_layernorm",
        "attn_k_norm" => "self_attn.k_layernorm",
        "attn_norm" => "operator_norm",
        "ffn_norm" => "ffn_norm",
        "ffn_gate" => "feed_forward.w1",
        "ffn_down" => "feed_forward.w2",
        "ffn_up" => "feed_forward.w3",
        "shortconv.in_proj" => "conv.in_proj",
        "shortconv.out_proj" => "conv.out_proj",
        "shortconv.conv" => "conv.conv",
        _ => return None,
    })
}

/// Router and experts in most families.
fn of_experts(stem: &str) -> Option<&'static str> {
    Some(match stem {
        "ffn_gate_inp" => "mlp.gate",
        "ffn_gate_exps" => "mlp.experts.gate_proj",
        "ffn_up_exps" => "mlp.experts.up_proj",
        "ffn_gate_up_exps" => "mlp.experts.gate_up_proj",
        "ffn_down_exps" => "mlp.experts.down_proj",
        _ => return None,
    })
}

/// What Qwen3.5 has in place of attention, and beside experts.
fn of_qwen35_layer(stem: &str) -> Option<(&'static str, Change)> {
    use Change::{Keep, MinusOne, Values};
    Some(match stem {
        "post_attention_norm" => ("post_attention_layernorm", MinusOne),
        "attn_qkv" => ("linear_attn.in_proj_qkv", Values(OfValues::RowsBehindKeys)),
        "attn_gate" => ("linear_attn.in_proj_z", Values(OfValues::Rows)),
        "ssm_beta" => ("linear_attn.in_proj_b", Values(OfValues::Rows)),
        "ssm_alpha" => ("linear_attn.in_proj_a", Values(OfValues::Rows)),
        "ssm_conv1d" => ("linear_attn.conv1d", Values(OfValues::Taps)),
        "ssm_norm" => ("linear_attn.norm", Keep),
        "ssm_out" => ("linear_attn.out_proj", Values(OfValues::Columns)),
        "ffn_gate_inp_shexp" => ("mlp.shared_expert_gate", Keep),
        "ffn_gate_shexp" => ("mlp.shared_expert.gate_proj", Keep),
        "ffn_up_shexp" => ("mlp.shared_expert.up_proj", Keep),
        "ffn_down_shexp" => ("mlp.shared_expert.down_proj", Keep),
        _ => return None,
    })
}

/// The same of LFM2's router and experts.
fn of_lfm2_experts(stem: &str) -> Option<&'static str> {
    Some(match stem {
        "ffn_gate_inp" => "feed_forward.gate",
        "ffn_gate_exps" => "feed_forward.experts.w1",
        "ffn_down_exps" => "feed_forward.experts.w2",
        "ffn_up_exps" => "feed_forward.experts.w3",
        "ffn_gate_up_exps" => "feed_forward.experts.gate_up_proj",
        _ => return None,
    })
}

/// The stored row that Hugging Face's `row` of a query or key weight comes from.
///
/// GGUF puts the two halves of a head's rows side by side: its row `2i + p` is row `p * half + i` of `transformers`,
/// which rotates element i with element i + half.
pub(super) fn stored_row(row: usize, head_dim: usize) -> usize {
    let (head, within) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + within % half * 2 + within / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arch_has_a_row() {
        for arch in [
            Arch::Llama,
            Arch::SmolLm3,
            Arch::Qwen2,
            Arch::Qwen3,
            Arch::Gemma3,
            Arch::GemmaEmbedding,
            Arch::Gemma3n,
            Arch::Gemma4,
            Arch::Lfm2,
            Arch::Lfm2Moe,
            Arch::Olmo2,
            Arch::Olmoe,
            Arch::Phi3,
            Arch::GptOss,
            Arch::Granite,
            Arch::GraniteMoe,
            Arch::Glm4,
            Arch::Qwen3Moe,
            Arch::Qwen3Vl,
            Arch::Qwen3VlMoe,
            Arch::Qwen35,
            Arch::Qwen35Moe,
            Arch::Bert,
            Arch::NomicBert,
            Arch::NomicBertMoe,
            Arch::ModernBert,
        ] {
            assert!(!arch.model_type().is_empty());
        }
        let error = Arch::from_name("mamba").unwrap_err().to_string();
        assert!(error.contains("mamba") && error.contains("lfm2"), "{error}");
    }

    #[test]
    fn hugging_face_names_per_arch() {
        use Change::*;
        type Case = (Arch, &'static str, Option<(&'static str, Change)>);
        let cases: &[Case] = &[
            (
                Arch::Llama,
                "token_embd.weight",
                Some(("model.embed_tokens.weight", Keep)),
            ),
            (Arch::Llama, "output_norm.weight", Some(("model.norm.weight", Keep))),
            (
                Arch::Llama,
                "blk.3.attn_q.weight",
                Some(("model.layers.3.self_attn.q_proj.weight", QueryRows)),
            ),
            (
                Arch::SmolLm3,
                "blk.0.attn_k.weight",
                Some(("model.layers.0.self_attn.k_proj.weight", KeyRows)),
            ),
            (
                Arch::Qwen2,
                "blk.11.attn_q.bias",
                Some(("model.layers.11.self_attn.q_proj.bias", Keep)),
            ),
            (
                Arch::Qwen2,
                "blk.0.ffn_norm.weight",
                Some(("model.layers.0.post_attention_layernorm.weight", Keep)),
            ),
            (
                Arch::Qwen3,
                "blk.0.attn_q_norm.weight",
                Some(("model.layers.0.self_attn.q_norm.weight", Keep)),
            ),
            (
                Arch::Gemma3,
                "output_norm.weight",
                Some(("model.norm.weight", MinusOne)),
            ),
            (
                Arch::Gemma3,
                "blk.0.ffn_norm.weight",
                Some(("model.layers.0.pre_feedforward_layernorm.weight", MinusOne)),
            ),
            (
                Arch::Gemma3,
                "blk.0.attn_k_norm.weight",
                Some(("model.layers.0.self_attn.k_norm.weight", MinusOne)),
            ),
            (
                Arch::Lfm2,
                "token_embd_norm.weight",
                Some(("model.embedding_norm.weight", Keep)),
            ),
            (
                Arch::Lfm2,
                "blk.2.shortconv.conv.weight",
                Some(("model.layers.2.conv.conv.weight", DepthwiseTaps)),
            ),
            (
                Arch::Lfm2,
                "blk.2.ffn_down.weight",
                Some(("model.layers.2.feed_forward.w2.weight", Keep)),
            ),
            (
                Arch::GemmaEmbedding,
                "blk.0.ffn_norm.weight",
                Some(("model.layers.0.pre_feedforward_layernorm.weight", MinusOne)),
            ),
            (
                Arch::GemmaEmbedding,
                "dense_3.weight",
                Some(("3_Dense.linear.weight", Keep)),
            ),
            (Arch::Gemma3, "dense_3.weight", None),
            (Arch::Lfm2, "dense_2.weight", None),
            (Arch::Qwen3, "cls.output.weight", Some(("cls.output.weight", Keep))),
            (Arch::Qwen2, "cls.output.weight", None),
            (Arch::Llama, "blk.0.attn_q_norm.weight", None),
            (Arch::Llama, "blk.01.attn_q.weight", None),
            (Arch::Llama, "blk.0.attn_q.scale", None),
            (Arch::Llama, "blk.x.attn_q.weight", None),
            (Arch::Llama, "blk.0.ffn_gate_exps.weight", None),
            (Arch::Lfm2, "blk.2.ffn_gate_exps.weight", None),
            (
                Arch::Lfm2Moe,
                "blk.2.ffn_up_exps.weight",
                Some(("model.layers.2.feed_forward.experts.w3.weight", Keep)),
            ),
            (
                Arch::Lfm2Moe,
                "blk.2.exp_probs_b.bias",
                Some(("model.layers.2.feed_forward.expert_bias", Keep)),
            ),
            (Arch::Lfm2Moe, "blk.2.exp_probs_b.weight", None),
            (
                Arch::Qwen3Moe,
                "blk.0.ffn_gate_inp.weight",
                Some(("model.layers.0.mlp.gate.weight", Keep)),
            ),
            (
                Arch::Qwen3VlMoe,
                "blk.0.ffn_down_exps.weight",
                Some(("model.layers.0.mlp.experts.down_proj.weight", Keep)),
            ),
            (
                Arch::Qwen35,
                "blk.7.attn_norm.weight",
                Some(("model.layers.7.input_layernorm.weight", MinusOne)),
            ),
            (
                Arch::Qwen35,
                "blk.0.ssm_norm.weight",
                Some(("model.layers.0.linear_attn.norm.weight", Keep)),
            ),
            (
                Arch::Qwen35Moe,
                "blk.0.ssm_a",
                Some(("model.layers.0.linear_attn.A_log", Values(OfValues::Decays))),
            ),
            (
                Arch::Qwen35,
                "blk.0.ssm_dt.bias",
                Some(("model.layers.0.linear_attn.dt_bias", Values(OfValues::Rows))),
            ),
            (Arch::Qwen35, "blk.0.ssm_dt.weight", None),
            (Arch::Qwen35, "blk.0.ffn_gate_exps.weight", None),
            (Arch::Qwen3, "blk.0.ssm_a", None),
            (
                Arch::Olmo2,
                "blk.0.post_attention_norm.weight",
                Some(("model.layers.0.post_attention_layernorm.weight", Keep)),
            ),
            (Arch::Olmo2, "blk.0.ffn_norm.weight", None),
            (
                Arch::Phi3,
                "blk.1.attn_qkv.weight",
                Some(("model.layers.1.self_attn.qkv_proj.weight", Keep)),
            ),
            (
                Arch::Glm4,
                "blk.1.ffn_up.weight",
                Some(("model.layers.1.mlp.gate_up_proj.weight", Keep)),
            ),
            (
                Arch::GptOss,
                "blk.1.attn_sinks.weight",
                Some(("model.layers.1.self_attn.sinks", Keep)),
            ),
            (
                Arch::GptOss,
                "blk.1.ffn_up_exps.bias",
                Some(("model.layers.1.mlp.experts.up_proj.bias", Keep)),
            ),
            (Arch::Llama, "blk.1.attn_sinks.weight", None),
            (
                Arch::GraniteMoe,
                "blk.1.ffn_gate_inp.weight",
                Some(("model.layers.1.block_sparse_moe.router.weight", Keep)),
            ),
            (
                Arch::Granite,
                "blk.1.attn_k.weight",
                Some(("model.layers.1.self_attn.k_proj.weight", KeyRows)),
            ),
        ];
        for (arch, name, want) in cases {
            let want = want.map(|(n, c)| (n.to_owned(), c));
            assert_eq!(hugging_face(*arch, name), want, "{arch:?} {name}");
        }
    }

    #[test]
    fn stored_row_undoes_the_interleaving() {
        // Two heads of six rows; GGUF row order of head 0 is 0 3 1 4 2 5.
        let stored = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11];
        for row in 0..12 {
            assert_eq!(stored[stored_row(row, 6)], row);
        }
    }
}
