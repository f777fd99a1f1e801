//! The configuration of a Gemma 4 file, whose layers are of two kinds with heads of their own.

use super::GgufSource;
use super::config::{Keys, has, special_ids};
use super::metadata::required;
use super::names::{LAYER_INPUTS, ROPE_FACTORS};
use crate::{Error, Result, TensorSource};
use serde_json::{Value, json};

/// Rope bases of layers that see everything and of those with a window, where the file is silent.
const BASES: [f64; 2] = [1_000_000.0, 10_000.0];
/// A divisor of frequencies from here on stands for no rotation.
const NEVER: f32 = 1e29;

/// The `config.json` of its Hugging Face folder.
///
/// # Errors
/// As [`super::config::config`].
pub(super) fn config(source: &GgufSource, keys: &Keys<'_>) -> Result<Value> {
    let layers = keys.needed("block_count")?;
    if layers > source.names().len() {
        let what = format!(
            "`{}` is {layers}, which is more than the file has weights",
            keys.key("block_count")
        );
        return Err(Error::malformed(what));
    }
    let of_layers = |suffix: &str| required(keys.per_layer(suffix, layers)?, &keys.key(suffix));
    let windowed = {
        let key = keys.key("attention.sliding_window_pattern");
        let found = required(keys.metadata.bools(&key)?, &key)?.to_vec();
        if found.len() != layers {
            let what = format!(
                "the metadata key `{key}` should have {layers} elements, found {}",
                found.len()
            );
            return Err(Error::malformed(what));
        }
        found
    };
    let kinds: Vec<&str> = windowed
        .iter()
        .map(|&w| if w { "sliding_attention" } else { "full_attention" })
        .collect();
    let heads = required(
        keys.uniform("attention.head_count", layers)?,
        &keys.key("attention.head_count"),
    )?;
    let kv_heads = of_layers("attention.head_count_kv")?;
    let shared = keys.count("attention.shared_kv_layers")?.unwrap_or(0);
    let own = layers.saturating_sub(shared);
    let [wide, narrow] = [
        keys.needed("attention.key_length")?,
        keys.count("attention.key_length_swa")?
            .unwrap_or(keys.needed("attention.key_length")?),
    ];
    for (suffix, width) in [("attention.value_length", wide), ("attention.value_length_swa", narrow)] {
        if let Some(other) = keys.count(suffix)?.filter(|&n| n != width) {
            let what = format!("`{}` should be {width}, as for keys; found {other}", keys.key(suffix));
            return Err(Error::unsupported(what));
        }
    }
    let of = |kind: bool| {
        (0..layers)
            .find(|&layer| windowed[layer] == kind)
            .map(|layer| kv_heads[layer])
    };
    let embedding = source.shape("model.embed_tokens.weight");
    let embedding = embedding.ok_or_else(|| Error::missing("the file has no `token_embd.weight`"))?;
    let units = of_layers("feed_forward_length")?;
    let unit = units.first().copied().unwrap_or(0);
    let doubles = own < layers && own > 0 && units[own] == 2 * unit;
    let expected = |layer: usize| if doubles && layer >= own { 2 * unit } else { unit };
    if (0..layers).any(|layer| units[layer] != expected(layer)) {
        let what = format!(
            "`{}` differs between layers in another way than is known",
            keys.key("feed_forward_length")
        );
        return Err(Error::unsupported(what));
    }
    // Layers of the second kind may have no values of their own.
    let full: Vec<usize> = (0..own).filter(|&layer| !windowed[layer]).collect();
    let has_values = |layer: &usize| {
        source
            .shape(&format!("model.layers.{layer}.self_attn.v_proj.weight"))
            .is_some()
    };
    let keys_are_values = !full.is_empty() && !full.iter().any(has_values);
    let inputs = source.shape(LAYER_INPUTS);
    let width = keys.count("embedding_length_per_layer_input")?.unwrap_or(0);
    let eps_key = keys.key("attention.layer_norm_rms_epsilon");
    let eps = required(keys.metadata.float(&eps_key)?, &eps_key)?;
    let [base, local_base] = ["rope.freq_base", "rope.freq_base_swa"].map(|suffix| keys.float(suffix));
    let mut config = json!({
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_size": keys.needed("embedding_length")?,
        "intermediate_size": unit,
        "use_double_wide_mlp": doubles,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": of(true).unwrap_or(heads),
        "num_global_key_value_heads": of(false),
        "head_dim": narrow,
        "global_head_dim": wide,
        "attention_k_eq_v": keys_are_values,
        "num_kv_shared_layers": shared,
        "vocab_size": embedding.first(),
        "max_position_embeddings": keys.needed("context_length")?,
        "rms_norm_eps": eps,
        "layer_types": kinds,
        "sliding_window": keys.needed("attention.sliding_window")?,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": base?.unwrap_or(BASES[0]),
                "partial_rotary_factor": turning(source, wide)?,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": local_base?.unwrap_or(BASES[1])},
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": keys.float("final_logit_softcapping")?,
        "attention_bias": has(source, "self_attn.q_proj.bias"),
        "tie_word_embeddings": source.shape("lm_head.weight").is_none(),
        "hidden_size_per_layer_input": width,
        "vocab_size_per_layer_input": inputs.as_ref().unwrap_or(&embedding).first(),
        // The released models without inputs for each layer let the rows of a picture see each other, and the file does not say it.
        "use_bidirectional_attention": if width == 0 { json!("vision") } else { Value::Null },
        "enable_moe_block": false,
    });
    if keys.count("expert_count")?.unwrap_or(0) > 0 {
        config["enable_moe_block"] = true.into();
        config["num_experts"] = keys.needed("expert_count")?.into();
        config["top_k_experts"] = keys.needed("expert_used_count")?.into();
        config["moe_intermediate_size"] = keys.needed("expert_feed_forward_length")?.into();
    }
    for (name, id) in special_ids(keys.metadata)? {
        config[name] = json!(id);
    }
    Ok(config)
}

/// The share of a head of `width` elements that turns, in layers that see everything: divisors of frequencies say it, one for each pair.
fn turning(source: &GgufSource, width: usize) -> Result<f64> {
    let Some(factors) = source.rope_factors()? else {
        return Ok(1.0);
    };
    let turns = factors.iter().take_while(|&&f| f == 1.0).count();
    let rest = factors.iter().skip(turns);
    if factors.len() != width / 2 || !rest.clone().all(|&f| f > NEVER) {
        let what = format!(
            "expected {} divisors of frequencies, ones and then those that stop a pair",
            width / 2
        );
        return Err(Error::unsupported(what).of_tensor(ROPE_FACTORS));
    }
    Ok(2.0 * turns as f64 / width as f64)
}
