//! What a GGUF file says of decoders that are not Llama with other numbers: factors, two lists of frequencies, experts.

use super::GgufSource;
use super::config::{GEMMA3_LOCAL_ROPE_BASE, Keys, has};
use super::metadata::required;
use super::names::{Arch, LAYER_INPUTS, LONG_ROPE_FACTORS};
use crate::{Error, Result, TensorSource};
use serde_json::{Value, json};

/// Number of the gating function that is a softmax over all experts.
const SOFTMAX: usize = 1;
/// Of that which is the logistic function of each.
const SIGMOID: usize = 2;

/// Of so many layers of Qwen3.5 the last attends, where a file does not say it.
const QWEN35_INTERVAL: usize = 4;

/// Of so many layers of Gemma 3n the last sees everything, where a file does not say it.
const GEMMA3N_PERIOD: usize = 5;
/// Shares of gates are told apart by so much of one.
const SHARES: f64 = 1e6;

/// Sets a key of the configuration.
type Set<'a> = dyn FnMut(&str, Value) + 'a;

/// Windows and the longest text of the short factors, which Phi-3 has outside of its scaling.
pub(super) fn phi3(keys: &Keys<'_>, source: &GgufSource, set: &mut Set<'_>) -> Result<()> {
    let window = keys.count("attention.sliding_window")?.filter(|&w| w > 0);
    set("sliding_window", json!(window));
    let key = "rope.scaling.original_context_length";
    match keys.count(key)?.filter(|&n| n > 0) {
        Some(original) => set("original_max_position_embeddings", json!(original)),
        None if source.long_rope_factors()?.is_some() => {
            let what = format!(
                "`{}` is missing, which says up to where the factors for short texts hold",
                keys.key(key)
            );
            return Err(Error::missing(what));
        }
        None => {}
    }
    Ok(())
}

/// The scaling of a file with factors for short texts and for long ones, one for each of `pairs`.
pub(super) fn long_rope(keys: &Keys<'_>, source: &GgufSource, pairs: usize) -> Result<Option<Value>> {
    let Some(factors) = source.long_rope_factors()? else {
        return Ok(None);
    };
    for (list, name) in factors.iter().zip(LONG_ROPE_FACTORS) {
        if list.len() != pairs || !list.iter().all(|f| f.is_finite() && *f > 0.0) {
            let what = format!("expected {pairs} positive frequency divisors, found {list:?}");
            return Err(Error::malformed(what).of_tensor(name));
        }
    }
    let [short, long] = factors;
    let mut scaling = json!({"rope_type": "longrope", "short_factor": short, "long_factor": long});
    if let Some(factor) = keys.float("rope.scaling.attn_factor")? {
        scaling["attention_factor"] = json!(factor);
    }
    Ok(Some(scaling))
}

/// The factors of Granite; those that are absent are 1.
pub(super) fn granite(keys: &Keys<'_>, set: &mut Set<'_>) -> Result<()> {
    for (suffix, name) in [
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        if let Some(factor) = keys.float(suffix)? {
            set(name, json!(factor));
        }
    }
    Ok(())
}

/// The window of gpt-oss, and which layers have it: every other one, from the first on, where a file does not say it.
pub(super) fn gpt_oss(keys: &Keys<'_>, layers: usize, set: &mut Set<'_>) -> Result<()> {
    set("sliding_window", json!(keys.needed("attention.sliding_window")?));
    let windowed = keys.windowed_layers(layers, |layer, period| layer % period + 1 < period, 2)?;
    let kind = |&is: &bool| if is { "sliding_attention" } else { "full_attention" };
    set("layer_types", windowed.iter().map(kind).collect());
    Ok(())
}

/// GLM-4 that sees has its positions in sections.
pub(super) fn glm4(keys: &Keys<'_>) -> Result<()> {
    let key = keys.key("rope.dimension_sections");
    match keys.metadata.get(&key) {
        None => Ok(()),
        Some(_) => Err(Error::unsupported(format!(
            "`{key}` says that it is the language model of one that sees, which is not supported"
        ))),
    }
}

/// Streams, windows, shared keys and values, inputs for layers and sparse gates of Gemma 3n.
pub(super) fn gemma3n(keys: &Keys<'_>, source: &GgufSource, layers: usize, set: &mut Set<'_>) -> Result<()> {
    set("hidden_activation", json!("gelu_pytorch_tanh"));
    let local_base = keys.float("rope.freq_base_swa")?;
    set(
        "rope_local_base_freq",
        json!(local_base.unwrap_or(GEMMA3_LOCAL_ROPE_BASE)),
    );
    set("final_logit_softcapping", json!(keys.float("final_logit_softcapping")?));
    set("sliding_window", json!(keys.needed("attention.sliding_window")?));
    let last_is_full = |layer: usize, period: usize| !(layer + 1).is_multiple_of(period);
    let windowed = keys.windowed_layers(layers, last_is_full, GEMMA3N_PERIOD)?;
    let kind = |&is: &bool| if is { "sliding_attention" } else { "full_attention" };
    set("layer_types", windowed.iter().map(kind).collect());
    set(
        "num_kv_shared_layers",
        json!(keys.count("attention.shared_kv_layers")?.unwrap_or(0)),
    );
    set("altup_num_inputs", json!(keys.needed("altup.num_inputs")?));
    set("altup_active_idx", json!(keys.count("altup.active_idx")?.unwrap_or(0)));
    set(
        "hidden_size_per_layer_input",
        json!(keys.needed("embedding_length_per_layer_input")?),
    );
    let rows = |name: &str, stored: &str| {
        let found = source.shape(name).and_then(|shape| shape.first().copied());
        found.ok_or_else(|| Error::missing(format!("the file has no `{stored}`")))
    };
    set(
        "vocab_size_per_layer_input",
        json!(rows(LAYER_INPUTS, "per_layer_token_embd.weight")?),
    );
    set(
        "laurel_rank",
        json!(rows(
            "model.layers.0.laurel.linear_left.weight",
            "blk.0.laurel_l.weight"
        )?),
    );
    let key = keys.key("activation_sparsity_scale");
    let cuts = required(keys.metadata.floats(&key)?, &key)?;
    if cuts.len() != layers || cuts.iter().any(|cut| cut.is_nan()) {
        let what = format!(
            "the metadata key `{key}` should have {layers} numbers, found {}",
            cuts.len()
        );
        return Err(Error::malformed(what));
    }
    // The file has the standard deviations that a share of gates is below.
    let share = |&cut: &f32| (cactus_models::share_below(f64::from(cut)) * SHARES).round() / SHARES;
    set("activation_sparsity_pattern", cuts.iter().map(share).collect());
    Ok(())
}

/// The axes of Qwen3-VL's positions, which take turns over the pairs of a head.
pub(super) fn qwen3_vl(keys: &Keys<'_>, set: &mut Set<'_>) -> Result<()> {
    let key = keys.key("rope.dimension_sections");
    let sections = required(keys.metadata.counts(&key)?, &key)?;
    let [time, row, column, 0] = sections[..] else {
        return Err(Error::malformed(format!(
            "`{key}` should be three numbers and a 0, found {} numbers",
            sections.len()
        )));
    };
    let axes = json!({"rope_type": "default", "mrope_interleaved": true, "mrope_section": [time, row, column]});
    set("rope_scaling", axes);
    Ok(())
}

/// What Qwen3.5 has in place of attention, and on which of its layers; its positions are those of Qwen3-VL.
pub(super) fn qwen3_5(keys: &Keys<'_>, layers: usize, set: &mut Set<'_>) -> Result<()> {
    qwen3_vl(keys, set)?;
    let (values, inner) = (keys.needed("ssm.time_step_rank")?, keys.needed("ssm.inner_size")?);
    if !inner.is_multiple_of(values) {
        return Err(Error::malformed(format!(
            "`{}` should be a multiple of {values}, the number of heads, found {inner}",
            keys.key("ssm.inner_size")
        )));
    }
    set("linear_num_key_heads", json!(keys.needed("ssm.group_count")?));
    set("linear_num_value_heads", json!(values));
    set("linear_key_head_dim", json!(keys.needed("ssm.state_size")?));
    set("linear_value_head_dim", json!(inner / values));
    set("linear_conv_kernel_dim", json!(keys.needed("ssm.conv_kernel")?));
    let key = keys.key("attention.recurrent_layers");
    let kinds: Vec<bool> = match keys.metadata.bools(&key)? {
        // Behind them are layers that guess tokens ahead.
        Some(recurrent) if recurrent.len() >= layers => recurrent[..layers].to_vec(),
        Some(recurrent) => {
            return Err(Error::malformed(format!(
                "the metadata key `{key}` should have {layers} elements, found {}",
                recurrent.len()
            )));
        }
        None => {
            let interval = keys.count("full_attention_interval")?.unwrap_or(QWEN35_INTERVAL).max(1);
            (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()
        }
    };
    let kind = |&recurrent: &bool| {
        if recurrent {
            "linear_attention"
        } else {
            "full_attention"
        }
    };
    set("layer_types", kinds.iter().map(kind).collect());
    Ok(())
}

/// Experts and their router.
pub(super) fn experts(keys: &Keys<'_>, source: &GgufSource, arch: Arch, set: &mut Set<'_>) -> Result<()> {
    set("num_experts", json!(keys.needed("expert_count")?));
    set("num_experts_per_tok", json!(keys.needed("expert_used_count")?));
    // These have the width within an expert where others have that of a layer without experts.
    if !matches!(arch, Arch::Olmoe | Arch::GraniteMoe) {
        set(
            "moe_intermediate_size",
            json!(keys.needed("expert_feed_forward_length")?),
        );
    }
    let shared = keys.count("expert_shared_feed_forward_length")?.unwrap_or(0) > 0;
    if keys.count("expert_shared_count")?.unwrap_or(0) > 0 || (shared && arch != Arch::Qwen35Moe) {
        return Err(Error::unsupported("experts that every token has are not supported"));
    }
    if arch == Arch::Qwen35Moe {
        set(
            "shared_expert_intermediate_size",
            json!(keys.needed("expert_shared_feed_forward_length")?),
        );
    }
    let logistic = arch == Arch::Lfm2Moe;
    let expected = if logistic { SIGMOID } else { SOFTMAX };
    if let Some(other) = keys.count("expert_gating_func")?.filter(|&f| f != expected) {
        let what = format!(
            "`{}` should be {expected}, found {other}",
            keys.key("expert_gating_func")
        );
        return Err(Error::unsupported(what));
    }
    let normalizes = keys.flag("expert_weights_norm")?.unwrap_or(arch != Arch::Olmoe);
    set("norm_topk_prob", json!(normalizes));
    // Files write 0 for none.
    let factor = keys.float("expert_weights_scale")?.filter(|&f| f != 0.0 && f != 1.0);
    if logistic {
        set("routed_scaling_factor", json!(factor.unwrap_or(1.0)));
        set("use_expert_bias", json!(has(source, "feed_forward.expert_bias")));
        set(
            "num_dense_layers",
            json!(keys.count("leading_dense_block_count")?.unwrap_or(0)),
        );
        return Ok(());
    }
    match factor {
        None => Ok(()),
        Some(factor) => Err(Error::unsupported(format!(
            "`{}` should be 1 for this architecture, found {factor}",
            keys.key("expert_weights_scale")
        ))),
    }
}

#[cfg(test)]
mod tests;
