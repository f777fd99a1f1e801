//! A Hugging Face configuration from GGUF metadata.

use super::metadata::required;
use super::names::Arch;
use super::{GgufSource, Metadata, decoder_config, encoder_config, gemma4_config, tokenizer};
use crate::{Error, Result, TensorSource};
use serde_json::{Map, Value, json};

/// Key of the explicit frequency divisors in `rope_scaling`: an extension of this front end, `[head_dim / 2]` numbers.
pub const FREQ_FACTORS_KEY: &str = "freq_factors";

/// Gemma 3's period of layers: every sixth attends to everything, the others to a window.
const GEMMA3_WINDOW_PERIOD: usize = 6;
/// Gemma 3's rotation base in windowed layers.
pub(super) const GEMMA3_LOCAL_ROPE_BASE: f64 = 10_000.0;
/// Layers of Gemma 3 27B, whose attention scale comes from the hidden size instead of the head size.
const GEMMA3_27B_LAYERS: usize = 62;
/// SmolLM3's period of layers: every fourth does not rotate.
const SMOLLM3_NO_ROPE_PERIOD: usize = 4;

/// Metadata under the prefix of the architecture.
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) prefix: &'a str,
}

impl Keys<'_> {
    pub(super) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.prefix)
    }

    pub(super) fn count(&self, suffix: &str) -> Result<Option<usize>> {
        self.metadata.count(&self.key(suffix))
    }

    pub(super) fn needed(&self, suffix: &str) -> Result<usize> {
        let key = self.key(suffix);
        let value = required(self.metadata.count(&key)?, &key)?;
        match value {
            0 => Err(Error::malformed(format!("the metadata key `{key}` should not be zero"))),
            value => Ok(value),
        }
    }

    pub(super) fn float(&self, suffix: &str) -> Result<Option<f64>> {
        self.metadata.float(&self.key(suffix))
    }

    pub(super) fn text(&self, suffix: &str) -> Result<Option<&str>> {
        self.metadata.string(&self.key(suffix))
    }

    pub(super) fn flag(&self, suffix: &str) -> Result<Option<bool>> {
        self.metadata.bool(&self.key(suffix))
    }

    /// Per layer, whether it attends to a window only: given per layer, or by a period, or by the `usual` one. `has_window` is asked
    /// of layers from 0 on.
    pub(super) fn windowed_layers(
        &self,
        layers: usize,
        has_window: impl Fn(usize, usize) -> bool,
        usual: usize,
    ) -> Result<Vec<bool>> {
        let key = self.key("attention.sliding_window_pattern");
        if let Some(super::Value::Array(_)) = self.metadata.get(&key) {
            let pattern = required(self.metadata.bools(&key)?, &key)?;
            if pattern.len() != layers {
                return Err(Error::malformed(format!(
                    "the metadata key `{key}` should have {layers} elements, found {}",
                    pattern.len()
                )));
            }
            return Ok(pattern.to_vec());
        }
        let period = self.metadata.count(&key)?.unwrap_or(usual).max(1);
        Ok((0..layers).map(|layer| has_window(layer, period)).collect())
    }

    /// A count that some files give once and some per layer.
    pub(super) fn per_layer(&self, suffix: &str, layers: usize) -> Result<Option<Vec<usize>>> {
        let key = self.key(suffix);
        match self.metadata.get(&key) {
            None => Ok(None),
            Some(super::Value::Array(_)) => {
                let counts = required(self.metadata.counts(&key)?, &key)?;
                if counts.len() == layers {
                    Ok(Some(counts))
                } else {
                    Err(Error::malformed(format!(
                        "the metadata key `{key}` should have {layers} elements, found {}",
                        counts.len()
                    )))
                }
            }
            Some(_) => Ok(self.metadata.count(&key)?.map(|count| vec![count; layers])),
        }
    }

    /// A count that is the same in every layer.
    pub(super) fn uniform(&self, suffix: &str, layers: usize) -> Result<Option<usize>> {
        let Some(counts) = self.per_layer(suffix, layers)? else {
            return Ok(None);
        };
        let first = counts.first().copied().unwrap_or(0);
        if counts.iter().all(|&c| c == first) {
            Ok(Some(first))
        } else {
            Err(Error::unsupported(format!(
                "`{}` differs between layers, which is not supported for this architecture",
                self.key(suffix)
            )))
        }
    }
}

/// The `config.json` that a Hugging Face folder of this model would have.
///
/// Keys that `transformers` fills by default are written out. Scaled rotation comes as `rope_scaling`: the type the
/// metadata names, or, where the file has a `rope_freqs` tensor, type `llama3` with its four parameters if they
/// reproduce the tensor, else type `freq_factors`; both with the tensor's values under [`FREQ_FACTORS_KEY`].
///
/// # Errors
/// [`crate::ErrorKind::Missing`] where a key the architecture needs is absent, [`crate::ErrorKind::Malformed`] where
/// one has a wrong type or value, [`crate::ErrorKind::Unsupported`] where the metadata asks for a variant of the
/// architecture that is not supported (experts, rotation of a part of each head, unlike key and value sizes), unless it is what the
/// architecture is known for.
pub fn config(source: &GgufSource) -> Result<Value> {
    let metadata = &source.file().metadata;
    let arch = source.arch()?;
    let prefix = required(metadata.string("general.architecture")?, "general.architecture")?;
    let keys = Keys { metadata, prefix };
    if arch.is_encoder() {
        return encoder_config::config(source, &keys);
    }
    if arch == Arch::Gemma4 {
        return gemma4_config::config(source, &keys);
    }
    if !arch.has_experts() && keys.count("expert_count")?.unwrap_or(0) > 0 {
        return Err(Error::unsupported(
            "it is a mixture of experts, which is not supported for this architecture",
        ));
    }
    let shape = Shape::read(&keys, source, arch)?;
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| {
        config.insert(key.to_owned(), value);
    };
    let both_ways = keys.flag("attention.causal")? == Some(false);
    if both_ways && !matches!(arch, Arch::Lfm2 | Arch::GemmaEmbedding) {
        return Err(Error::unsupported(
            "attention in both directions is not supported for this architecture",
        ));
    }
    set("architectures", json!([class_name(arch, both_ways)]));
    set("model_type", json!(arch.model_type()));
    set("hidden_size", json!(shape.hidden));
    set("intermediate_size", json!(shape.feed_forward));
    set("num_hidden_layers", json!(shape.layers));
    set("num_attention_heads", json!(shape.heads));
    set("num_key_value_heads", json!(shape.kv_heads.iter().max()));
    set("head_dim", json!(shape.head_dim));
    set("vocab_size", json!(shape.vocab));
    set("max_position_embeddings", json!(keys.needed("context_length")?));
    let eps_key = keys.key("attention.layer_norm_rms_epsilon");
    let eps = required(metadata.float(&eps_key)?, &eps_key)?;
    set("rms_norm_eps", json!(eps));
    let default_base = if arch.is_gemma3() || arch == Arch::Gemma3n {
        1e6
    } else {
        1e4
    };
    set(
        "rope_theta",
        json!(keys.float("rope.freq_base")?.unwrap_or(default_base)),
    );
    let mut scaling = rope_scaling(&keys, source, shape.rotated)?;
    if arch == Arch::GptOss && scaling.is_object() {
        // Where its ramp begins and ends is not rounded.
        scaling["truncate"] = json!(false);
    }
    set("rope_scaling", scaling);
    set("tie_word_embeddings", json!(source.shape("lm_head.weight").is_none()));
    set("hidden_act", json!("silu"));
    set("attention_bias", json!(has(source, "self_attn.q_proj.bias")));
    set("mlp_bias", json!(has(source, "mlp.up_proj.bias")));
    if arch.turns_a_part() {
        set(
            "partial_rotary_factor",
            json!(shape.rotated as f64 / shape.head_dim as f64),
        );
    }
    if arch.has_experts() {
        decoder_config::experts(&keys, source, arch, &mut set)?;
    }
    match arch {
        Arch::Llama | Arch::Qwen3 | Arch::Qwen3Moe | Arch::Olmo2 | Arch::Olmoe => {}
        Arch::Qwen35 | Arch::Qwen35Moe => decoder_config::qwen3_5(&keys, shape.layers, &mut set)?,
        Arch::Phi3 => decoder_config::phi3(&keys, source, &mut set)?,
        Arch::GptOss => decoder_config::gpt_oss(&keys, shape.layers, &mut set)?,
        Arch::Granite | Arch::GraniteMoe => decoder_config::granite(&keys, &mut set)?,
        Arch::Glm4 => decoder_config::glm4(&keys)?,
        Arch::Qwen3Vl | Arch::Qwen3VlMoe => decoder_config::qwen3_vl(&keys, &mut set)?,
        Arch::Qwen2 => set("use_sliding_window", json!(false)),
        Arch::SmolLm3 => {
            let rotates = |layer: usize| usize::from(!(layer + 1).is_multiple_of(SMOLLM3_NO_ROPE_PERIOD));
            let rotates: Vec<usize> = (0..shape.layers).map(rotates).collect();
            set("no_rope_layers", json!(rotates));
            set("no_rope_layer_interval", json!(SMOLLM3_NO_ROPE_PERIOD));
            set("use_sliding_window", json!(false));
        }
        Arch::Gemma3 | Arch::GemmaEmbedding => {
            gemma3(&keys, &shape, &mut set)?;
            if arch == Arch::GemmaEmbedding {
                set("use_bidirectional_attention", json!(true));
            }
        }
        Arch::Lfm2 | Arch::Lfm2Moe => {
            let taps = keys.needed("shortconv.l_cache")?;
            set("norm_eps", json!(eps));
            set("conv_L_cache", json!(taps));
            set("conv_bias", json!(has(source, "conv.in_proj.bias")));
            set("block_dim", json!(shape.hidden));
            set("block_ff_dim", json!(shape.feed_forward));
            // The metadata holds the size after the adjustment.
            set("block_auto_adjust_ff_dim", json!(false));
            let kind = |&kv: &usize| if kv == 0 { "conv" } else { "full_attention" };
            let kinds: Vec<&str> = shape.kv_heads.iter().map(kind).collect();
            set("layer_types", json!(kinds));
        }
        Arch::Gemma3n => decoder_config::gemma3n(&keys, source, shape.layers, &mut set)?,
        Arch::Gemma4 | Arch::Bert | Arch::NomicBert | Arch::NomicBertMoe | Arch::ModernBert => {}
    }
    for (name, id) in special_ids(metadata)? {
        config.insert(name.to_owned(), json!(id));
    }
    Ok(Value::Object(config))
}

/// Layers, without those that guess tokens ahead and stand behind the others; `prefix` is before the keys.
pub(super) fn layers(metadata: &Metadata, prefix: &str, arch: Arch) -> Result<usize> {
    let keys = Keys { metadata, prefix };
    let all = keys.needed("block_count")?;
    if !arch.is_qwen35() {
        return Ok(all);
    }
    let ahead = keys.count("nextn_predict_layers")?.unwrap_or(0);
    let layers = all.checked_sub(ahead).filter(|&layers| layers > 0);
    layers.ok_or_else(|| {
        Error::malformed(format!(
            "`{}` is {ahead}, and there are {all} layers",
            keys.key("nextn_predict_layers")
        ))
    })
}

/// The sizes that every architecture has.
struct Shape {
    layers: usize,
    hidden: usize,
    feed_forward: usize,
    heads: usize,
    /// Per layer; 0 where a layer has no attention.
    kv_heads: Vec<usize>,
    head_dim: usize,
    /// Elements of a head that are turned.
    rotated: usize,
    vocab: usize,
}

impl Shape {
    fn read(keys: &Keys<'_>, source: &GgufSource, arch: Arch) -> Result<Shape> {
        let layers = layers(keys.metadata, keys.prefix, arch)?;
        let weights = source.names().len();
        if layers > weights {
            return Err(Error::malformed(format!(
                "`{}` is {layers}, and the file has {weights} weights",
                keys.key("block_count")
            )));
        }
        let hidden = keys.needed("embedding_length")?;
        let need = |value: Option<usize>, suffix: &str| required(value, &keys.key(suffix));
        let feed_forward = match keys.uniform("feed_forward_length", layers)? {
            // Where all layers have experts.
            None if arch == Arch::Qwen35Moe => keys.count("expert_feed_forward_length")?,
            found => found,
        };
        let feed_forward = need(feed_forward, "feed_forward_length")?;
        let heads = need(keys.uniform("attention.head_count", layers)?, "attention.head_count")?;
        let kv_heads = match arch {
            Arch::Lfm2 | Arch::Lfm2Moe => keys.per_layer("attention.head_count_kv", layers)?,
            _ => keys
                .uniform("attention.head_count_kv", layers)?
                .map(|count| vec![count; layers]),
        };
        let kv_heads = kv_heads.unwrap_or_else(|| vec![heads; layers]);
        if heads == 0 || kv_heads.iter().all(|&kv| kv == 0) {
            return Err(Error::malformed("the number of attention heads is zero"));
        }
        let head_dim = keys.count("attention.key_length")?.unwrap_or(hidden / heads);
        let rotated = keys.count("rope.dimension_count")?;
        let part = rotated.filter(|&n| arch.turns_a_part() && (2..head_dim).contains(&n));
        let unlike = [
            keys.count("attention.value_length")?,
            rotated.filter(|_| part.is_none()),
        ];
        if let Some(other) = unlike.into_iter().flatten().find(|&n| n != head_dim) {
            return Err(Error::unsupported(format!(
                "key, value and rotated sizes of a head should be equal, found {head_dim} and {other}"
            )));
        }
        let embedding = source
            .shape("model.embed_tokens.weight")
            .ok_or_else(|| Error::missing("the file has no `token_embd.weight`"))?;
        Ok(Shape {
            layers,
            hidden,
            feed_forward,
            heads,
            kv_heads,
            head_dim,
            rotated: part.unwrap_or(head_dim),
            vocab: embedding.first().copied().unwrap_or(0),
        })
    }
}

fn class_name(arch: Arch, both_ways: bool) -> &'static str {
    match arch {
        Arch::Lfm2 if both_ways => "Lfm2BidirectionalModel",
        Arch::GemmaEmbedding => "Gemma3TextModel",
        Arch::Llama => "LlamaForCausalLM",
        Arch::SmolLm3 => "SmolLM3ForCausalLM",
        Arch::Qwen2 => "Qwen2ForCausalLM",
        Arch::Qwen3 => "Qwen3ForCausalLM",
        Arch::Gemma3 => "Gemma3ForCausalLM",
        Arch::Gemma3n => "Gemma3nForCausalLM",
        Arch::Lfm2 => "Lfm2ForCausalLM",
        Arch::Lfm2Moe => "Lfm2MoeForCausalLM",
        Arch::Olmo2 => "Olmo2ForCausalLM",
        Arch::Olmoe => "OlmoeForCausalLM",
        Arch::Phi3 => "Phi3ForCausalLM",
        Arch::GptOss => "GptOssForCausalLM",
        Arch::Granite => "GraniteForCausalLM",
        Arch::GraniteMoe => "GraniteMoeForCausalLM",
        Arch::Glm4 => "Glm4ForCausalLM",
        Arch::Qwen3Moe => "Qwen3MoeForCausalLM",
        Arch::Qwen3Vl => "Qwen3VLForConditionalGeneration",
        Arch::Qwen3VlMoe => "Qwen3VLMoeForConditionalGeneration",
        Arch::Qwen35 => "Qwen3_5ForCausalLM",
        Arch::Qwen35Moe => "Qwen3_5MoeForCausalLM",
        // These have a configuration of their own.
        Arch::Gemma4 | Arch::Bert | Arch::NomicBert | Arch::NomicBertMoe | Arch::ModernBert => "",
    }
}

/// Whether any layer has a weight of this name.
pub(super) fn has(source: &GgufSource, suffix: &str) -> bool {
    let in_layer = |name: &str| {
        let rest = name.strip_prefix("model.layers.").and_then(|n| n.split_once('.'));
        rest.is_some_and(|(_, stem)| stem == suffix)
    };
    source.names().into_iter().any(in_layer)
}

fn gemma3(keys: &Keys<'_>, shape: &Shape, set: &mut impl FnMut(&str, Value)) -> Result<()> {
    set("hidden_activation", json!("gelu_pytorch_tanh"));
    set("hidden_act", json!("gelu_pytorch_tanh"));
    let local_base = keys.float("rope.freq_base_swa")?;
    set(
        "rope_local_base_freq",
        json!(local_base.unwrap_or(GEMMA3_LOCAL_ROPE_BASE)),
    );
    let scale_dim = match shape.layers {
        GEMMA3_27B_LAYERS => shape.hidden / shape.heads,
        _ => shape.head_dim,
    };
    set("query_pre_attn_scalar", json!(scale_dim));
    set("attn_logit_softcapping", Value::Null);
    set("final_logit_softcapping", json!(keys.float("final_logit_softcapping")?));
    let window = keys.count("attention.sliding_window")?.filter(|&w| w > 0);
    set("sliding_window", json!(window));
    let windowed: Vec<bool> = match window {
        None => vec![false; shape.layers],
        Some(_) => {
            let last_is_full = |layer: usize, period: usize| !(layer + 1).is_multiple_of(period);
            keys.windowed_layers(shape.layers, last_is_full, GEMMA3_WINDOW_PERIOD)?
        }
    };
    let kind = |&w: &bool| if w { "sliding_attention" } else { "full_attention" };
    let kinds: Vec<&str> = windowed.iter().map(kind).collect();
    set("layer_types", json!(kinds));
    Ok(())
}

fn rope_scaling(keys: &Keys<'_>, source: &GgufSource, rotated: usize) -> Result<Value> {
    if let Some(long) = decoder_config::long_rope(keys, source, rotated / 2)? {
        return Ok(long);
    }
    if let Some(factors) = source.rope_factors()? {
        if factors.len() != rotated / 2 || !factors.iter().all(|f| f.is_finite() && *f > 0.0) {
            return Err(Error::malformed(format!(
                "expected {} positive frequency divisors, found {factors:?}",
                rotated / 2
            ))
            .of_tensor(super::names::ROPE_FACTORS));
        }
        let base = keys.float("rope.freq_base")?.unwrap_or(1e4);
        let mut scaling = llama3_scaling(&factors, base).unwrap_or_else(|| json!({"rope_type": FREQ_FACTORS_KEY}));
        scaling[FREQ_FACTORS_KEY] = json!(factors);
        return Ok(scaling);
    }
    let ty = keys.metadata.string(&keys.key("rope.scaling.type"))?;
    let factor = match keys.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.float("rope.scale_linear")?,
    };
    let (ty, factor) = match (ty, factor) {
        (Some("none"), _) | (None, None) => return Ok(Value::Null),
        (None, Some(factor)) => ("linear", Some(factor)),
        (Some(ty), factor) => (ty, factor),
    };
    let mut scaling = Map::new();
    scaling.insert("rope_type".into(), json!(ty));
    scaling.insert("factor".into(), json!(factor));
    if let Some(original) = keys.count("rope.scaling.original_context_length")? {
        scaling.insert("original_max_position_embeddings".into(), json!(original));
    }
    for (suffix, name) in [
        ("rope.scaling.attn_factor", "attention_factor"),
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
    ] {
        if let Some(value) = keys.float(suffix)? {
            scaling.insert(name.into(), json!(value));
        }
    }
    Ok(Value::Object(scaling))
}

/// Parameters of Llama 3's scaling that reproduce `factors`, if there are any.
///
/// With `wavelength = 2 pi base^(2i / dim)` the divisor is 1 where `original / wavelength` exceeds `high`, `factor`
/// where it is below `low`, and `1 / ((1 - s) / factor + s)` with `s = (original / wavelength - low) / (high - low)`
/// between. Only the ratios to `original` can be seen, and `s` is linear in `1 / wavelength`, so two divisors strictly
/// between give the line; `original` follows from Llama 3's `low = 1`.
fn llama3_scaling(factors: &[f32], base: f64) -> Option<Value> {
    let dim = 2.0 * factors.len() as f64;
    let turns = |i: usize| 1.0 / (std::f64::consts::TAU * base.powf(2.0 * i as f64 / dim));
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max)).round();
    let between: Vec<(f64, f64)> = factors
        .iter()
        .enumerate()
        .filter(|&(_, &f)| f64::from(f) > 1.0 && f64::from(f) < factor * (1.0 - 1e-4))
        .map(|(i, &f)| (turns(i), (1.0 / f64::from(f) - 1.0 / factor) / (1.0 - 1.0 / factor)))
        .collect();
    let fitted = match (between.first(), between.last()) {
        (Some(a), Some(b)) if a.0 != b.0 => {
            let slope = (a.1 - b.1) / (a.0 - b.0);
            let (low_turns, high_turns) = (a.0 - a.1 / slope, a.0 + (1.0 - a.1) / slope);
            Some(((1.0 / low_turns).round(), high_turns / low_turns))
        }
        _ => None,
    };
    // Too few between to fit a line: what every published Llama 3 has.
    let (original, high) = fitted.unwrap_or((8192.0, 4.0));
    let high = (high * 1e3).round() / 1e3;
    let predicted = |i: usize| {
        let position = original * turns(i);
        let s = ((position - 1.0) / (high - 1.0)).clamp(0.0, 1.0);
        1.0 / ((1.0 - s) / factor + s)
    };
    let matches = |(i, &f): (usize, &f32)| (predicted(i) / f64::from(f) - 1.0).abs() < 1e-4;
    factors.iter().enumerate().all(matches).then(|| {
        json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": high,
            "original_max_position_embeddings": original as u64,
        })
    })
}

/// Token ids by configuration key; several where more than one token ends an answer.
pub(super) fn special_ids(metadata: &Metadata) -> Result<Vec<(&'static str, Value)>> {
    let mut ids = Vec::new();
    for (name, key) in [
        ("bos_token_id", "tokenizer.ggml.bos_token_id"),
        ("pad_token_id", "tokenizer.ggml.padding_token_id"),
    ] {
        if let Some(id) = metadata.count(key)? {
            ids.push((name, json!(id)));
        }
    }
    match &tokenizer::end_ids(metadata)?[..] {
        [] => {}
        [id] => ids.push(("eos_token_id", json!(id))),
        several => ids.push(("eos_token_id", json!(several))),
    }
    Ok(ids)
}

/// The `generation_config.json` of the model: special ids, and sampling defaults where the file recommends any.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where a key has a wrong type.
pub fn generation_config(metadata: &Metadata) -> Result<Value> {
    let mut config = Map::new();
    for (name, id) in special_ids(metadata)? {
        config.insert(name.to_owned(), id);
    }
    if let Some(k) = metadata.count("general.sampling.top_k")? {
        config.insert("top_k".into(), json!(k));
    }
    for (name, key) in [
        ("temperature", "general.sampling.temp"),
        ("top_p", "general.sampling.top_p"),
        ("min_p", "general.sampling.min_p"),
        ("repetition_penalty", "general.sampling.penalty_repeat"),
    ] {
        if let Some(value) = metadata.float(key)? {
            config.insert(name.into(), json!(value));
        }
    }
    Ok(Value::Object(config))
}

#[cfg(test)]
pub(crate) mod tests;
