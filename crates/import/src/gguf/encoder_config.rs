//! A Hugging Face configuration of an encoder from GGUF metadata: BERT, Nomic BERT, `ModernBERT`.

use super::GgufSource;
use super::config::Keys;
use super::encoder_names::{CLASSES, POOLER};
use super::metadata::required;
use super::names::Arch;
use crate::{Error, Result, TensorSource};
use serde_json::{Map, Value, json};

/// Number of the pooling in files that say so.
const MEAN: usize = 1;
/// The same for the first position.
const FIRST: usize = 2;

/// The `config.json` that a Hugging Face folder of this encoder would have.
///
/// # Errors
/// As [`super::config::config`].
pub(super) fn config(source: &GgufSource, keys: &Keys<'_>) -> Result<Value> {
    let arch = source.arch()?;
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| {
        config.insert(key.to_owned(), value);
    };
    let layers = keys.needed("block_count")?;
    let weights = source.names().len();
    if layers > weights {
        let what = format!("`block_count` is {layers}, and the file has {weights} weights");
        return Err(Error::malformed(what));
    }
    let need = |suffix: &str| required(keys.uniform(suffix, layers)?, &keys.key(suffix));
    let heads = need("attention.head_count")?;
    if keys
        .uniform("attention.head_count_kv", layers)?
        .is_some_and(|n| n != heads)
    {
        return Err(Error::unsupported(
            "heads that share keys and values are not supported for this architecture",
        ));
    }
    if keys.flag("attention.causal")? == Some(true) {
        return Err(Error::unsupported(
            "attention to what stands before alone is not supported for this architecture",
        ));
    }
    let eps_key = keys.key("attention.layer_norm_epsilon");
    let eps = required(keys.float("attention.layer_norm_epsilon")?, &eps_key)?;
    set("model_type", json!(arch.model_type()));
    set("hidden_size", json!(keys.needed("embedding_length")?));
    set("intermediate_size", json!(need("feed_forward_length")?));
    set("num_hidden_layers", json!(layers));
    set("num_attention_heads", json!(heads));
    set("hidden_act", json!("gelu"));
    let (class, table) = match arch {
        Arch::Bert => ("Bert", "embeddings.word_embeddings.weight"),
        Arch::ModernBert => ("ModernBert", "embeddings.tok_embeddings.weight"),
        _ => ("NomicBert", "embeddings.word_embeddings.weight"),
    };
    let missing = |what: &str| Error::missing(format!("the file has no `{what}`"));
    let vocab = rows(source, table).ok_or_else(|| missing("token_embd.weight"))?;
    set("vocab_size", json!(vocab));
    match arch {
        Arch::Bert => {
            set("layer_norm_eps", json!(eps));
            let positions = rows(source, "embeddings.position_embeddings.weight");
            let positions = positions.ok_or_else(|| missing("position_embd.weight"))?;
            set("max_position_embeddings", json!(positions));
            let types = rows(source, "embeddings.token_type_embeddings.weight");
            let types = types.ok_or_else(|| missing("token_types.weight"))?;
            set("type_vocab_size", json!(types));
        }
        Arch::ModernBert => modern(source, keys, layers, eps, &mut set)?,
        _ => nomic(source, keys, eps, &mut set)?,
    }
    match labels(source)? {
        None => set("architectures", json!([format!("{class}Model")])),
        Some(labels) => {
            set("architectures", json!([format!("{class}ForSequenceClassification")]));
            let names: Map<String, Value> = (0..labels)
                .map(|i| (i.to_string(), json!(format!("LABEL_{i}"))))
                .collect();
            set("id2label", Value::Object(names));
        }
    }
    Ok(Value::Object(config))
}

/// Rows of a weight.
fn rows(source: &GgufSource, name: &str) -> Option<usize> {
    source.shape(name)?.first().copied()
}

/// Labels of the classification, where there is one.
fn labels(source: &GgufSource) -> Result<Option<usize>> {
    let Some(labels) = rows(source, "classifier.weight") else {
        return Ok(None);
    };
    let before = match source.arch()? {
        Arch::ModernBert => "head.dense.weight",
        _ => "pooler.dense.weight",
    };
    if rows(source, before).is_none() {
        let what = format!(
            "the file has `{CLASSES}`, and not `{POOLER}`, the layer before it, which llama.cpp's converter leaves out of BERT's \
             cross-encoders: scores would be wrong; convert the folder of the model instead"
        );
        return Err(Error::missing(what));
    }
    Ok(Some(labels))
}

fn modern(
    source: &GgufSource,
    keys: &Keys<'_>,
    layers: usize,
    eps: f64,
    set: &mut impl FnMut(&str, Value),
) -> Result<()> {
    set("norm_eps", json!(eps));
    set("max_position_embeddings", json!(keys.needed("context_length")?));
    let activation = keys.text("hidden_activation")?.unwrap_or("gelu");
    set("hidden_activation", json!(activation));
    let window = keys.count("attention.sliding_window")?.filter(|&w| w > 0);
    let windowed = match window {
        None => vec![false; layers],
        Some(_) => keys.windowed_layers(layers, |layer, period| !layer.is_multiple_of(period), 3)?,
    };
    if let Some(window) = window {
        set("local_attention", json!(window));
    }
    let kind = |&w: &bool| if w { "sliding_attention" } else { "full_attention" };
    set("layer_types", json!(windowed.iter().map(kind).collect::<Vec<&str>>()));
    for (suffix, name) in [
        ("rope.freq_base", "global_rope_theta"),
        ("rope.freq_base_swa", "local_rope_theta"),
    ] {
        if let Some(base) = keys.float(suffix)? {
            set(name, json!(base));
        }
    }
    let has = |name: &str| source.shape(name).is_some();
    set("attention_bias", json!(has("layers.0.attn.Wqkv.bias")));
    set("mlp_bias", json!(has("layers.0.mlp.Wi.bias")));
    set("norm_bias", json!(has("final_norm.bias")));
    set("classifier_bias", json!(has("head.dense.bias")));
    let pooling = match keys.count("classifier.pooling_type")? {
        // What llama.cpp takes where a file does not say it.
        None | Some(MEAN) => "mean",
        Some(FIRST) => "cls",
        Some(other) => {
            let what = format!(
                "`{}` should be 1 or 2, found {other}",
                keys.key("classifier.pooling_type")
            );
            return Err(Error::unsupported(what));
        }
    };
    set("classifier_pooling", json!(pooling));
    Ok(())
}

fn nomic(source: &GgufSource, keys: &Keys<'_>, eps: f64, set: &mut impl FnMut(&str, Value)) -> Result<()> {
    set("layer_norm_eps", json!(eps));
    set("max_position_embeddings", json!(keys.needed("context_length")?));
    let types = rows(source, "embeddings.token_type_embeddings.weight");
    set("type_vocab_size", json!(types.unwrap_or(0)));
    let scaled = keys.text("rope.scaling.type")?.is_some_and(|ty| ty != "none");
    if scaled || keys.float("rope.scaling.factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(Error::unsupported(
            "rotation that is scaled is not supported for this architecture",
        ));
    }
    let theta = required(keys.float("rope.freq_base")?, &keys.key("rope.freq_base"))?;
    set("rope_parameters", json!({"rope_type": "default", "rope_theta": theta}));
    let experts = source.arch()? == Arch::NomicBertMoe;
    let first = if experts { "fc1" } else { "fc11" };
    let has = |name: &str| source.shape(&format!("encoder.layers.0.{name}.bias")).is_some();
    set("activation_function", json!(if experts { "gelu" } else { "swiglu" }));
    set("qkv_proj_bias", json!(has("attn.Wqkv")));
    set("mlp_fc1_bias", json!(has(&format!("mlp.{first}"))));
    set("mlp_fc2_bias", json!(has("mlp.fc2")));
    if experts {
        set("num_experts", json!(keys.needed("expert_count")?));
        set("moe_top_k", json!(keys.needed("expert_used_count")?));
        set("moe_every_n_layers", json!(keys.needed("moe_every_n_layers")?));
        // Files do not have it.
        set("experts_bias", json!(false));
    }
    Ok(())
}
