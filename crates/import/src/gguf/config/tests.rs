use super::*;
use crate::ErrorKind;
use crate::gguf::writer::Writer;
use crate::gguf::{Array, Value as Raw};
use std::path::Path;
use std::sync::Arc;

/// A whole tiny Llama of one layer with a tokenizer of eight tokens; head size 2.
pub(crate) fn llama() -> Writer {
    of("llama")
        .f32("blk.0.attn_q.weight", &[4, 4], &[0.0; 16])
        .texts(
            "tokenizer.ggml.tokens",
            &["<s>", "a", "b", "ab", "Ġ", "<|im_end|>", "Ġa", "c"],
        )
        .key(
            "tokenizer.ggml.token_type",
            Raw::Array(Array::I32(vec![3, 1, 1, 1, 1, 3, 1, 1])),
        )
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .texts("tokenizer.ggml.merges", &["a b", "Ġ a"])
        .count("tokenizer.ggml.bos_token_id", 0)
        .count("tokenizer.ggml.eos_token_id", 5)
}

/// What every architecture needs.
pub(crate) fn of(arch: &str) -> Writer {
    let key = |suffix: &str| format!("{arch}.{suffix}");
    Writer::new()
        .text("general.architecture", arch)
        .count(&key("block_count"), 1)
        .count(&key("context_length"), 64)
        .count(&key("embedding_length"), 4)
        .count(&key("feed_forward_length"), 6)
        .count(&key("attention.head_count"), 2)
        .key(&key("attention.layer_norm_rms_epsilon"), Raw::F32(1e-5))
        .f32("token_embd.weight", &[8, 4], &[0.0; 32])
}

/// `writer` with the value of `key` replaced, or removed.
fn with(writer: &Writer, key: &str, value: Option<Raw>) -> Writer {
    let mut writer = writer.clone();
    writer.metadata.retain(|(k, _)| k != key);
    match value {
        Some(value) => writer.key(key, value),
        None => writer,
    }
}

pub(crate) fn try_config(writer: &Writer) -> Result<Value> {
    let source = GgufSource::new(Path::new("m.gguf"), Arc::new(writer.bytes())).unwrap();
    config(&source)
}

/// Four more weights, so that as many layers may be claimed.
fn with_weights(writer: Writer) -> Writer {
    (0..4).fold(writer, |w, i| {
        w.f32(&format!("blk.{i}.ffn_up.weight"), &[6, 4], &[0.0; 24])
    })
}

#[test]
fn config_of_llama_has_what_transformers_needs() {
    let config = try_config(&llama()).unwrap();
    let want = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4,
        "intermediate_size": 6,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "vocab_size": 8,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": null,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": 0,
        "eos_token_id": 5,
    });
    assert_eq!(config, want);
    let untied = llama()
        .f32("output.weight", &[8, 4], &[0.0; 32])
        .f32("blk.0.attn_q.bias", &[4], &[0.0; 4]);
    let config = try_config(&untied).unwrap();
    assert_eq!(config["tie_word_embeddings"], false);
    assert_eq!(config["attention_bias"], true);
}

#[test]
fn config_with_bad_metadata_names_the_key() {
    use ErrorKind::{Malformed, Missing, Unsupported};
    let cases: &[(&str, Option<Raw>, ErrorKind)] = &[
        ("llama.block_count", None, Missing),
        ("llama.block_count", Some(Raw::U32(0)), Malformed),
        ("llama.block_count", Some(Raw::U64(u64::MAX)), Malformed),
        ("llama.block_count", Some(Raw::U32(4_000_000_000)), Malformed),
        ("llama.block_count", Some(Raw::F32(2.0)), Malformed),
        ("llama.context_length", None, Missing),
        ("llama.embedding_length", Some(Raw::I32(-4)), Malformed),
        ("llama.feed_forward_length", None, Missing),
        (
            "llama.feed_forward_length",
            Some(Raw::Array(Array::U32(vec![6, 6]))),
            Malformed,
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Some(Raw::F32(f32::NAN)),
            Malformed,
        ),
        ("llama.attention.layer_norm_rms_epsilon", None, Missing),
        ("llama.attention.key_length", Some(Raw::U32(64)), Unsupported),
        ("llama.rope.dimension_count", Some(Raw::U32(1)), Unsupported),
        ("llama.expert_count", Some(Raw::U32(8)), Unsupported),
        ("tokenizer.ggml.eos_token_id", Some(Raw::U32(99)), Malformed),
    ];
    let base = with(&llama(), "llama.attention.head_count", Some(Raw::U32(2))).count("llama.attention.value_length", 2);
    for (key, value, kind) in cases {
        let error = try_config(&with(&base, key, value.clone())).expect_err(key);
        assert_eq!(error.kind(), *kind, "{key}: {error}");
    }
    let mut no_embedding = llama();
    no_embedding.tensors.retain(|t| t.name != "token_embd.weight");
    assert_eq!(try_config(&no_embedding).unwrap_err().kind(), Missing);
}

#[test]
fn config_of_per_layer_counts_needs_them_equal_but_for_lfm2() {
    let counts = |values: &[i32]| Some(Raw::Array(Array::I32(values.to_vec())));
    let two = |arch: &str| {
        with(
            &with_weights(of(arch)),
            &format!("{arch}.block_count"),
            Some(Raw::U32(2)),
        )
    };
    let qwen = with(&two("qwen2"), "qwen2.attention.head_count_kv", counts(&[1, 1]));
    assert_eq!(try_config(&qwen).unwrap()["num_key_value_heads"], 1);
    let qwen = with(&two("qwen2"), "qwen2.attention.head_count_kv", counts(&[1, 2]));
    assert_eq!(try_config(&qwen).unwrap_err().kind(), ErrorKind::Unsupported);
    let lfm2 = with(&two("lfm2"), "lfm2.attention.head_count_kv", counts(&[0, 1])).count("lfm2.shortconv.l_cache", 3);
    let config = try_config(&lfm2).unwrap();
    assert_eq!(config["layer_types"], json!(["conv", "full_attention"]));
    assert_eq!(config["num_key_value_heads"], 1);
    let none = with(&lfm2, "lfm2.attention.head_count_kv", counts(&[0, 0]));
    assert_eq!(try_config(&none).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn config_of_gemma3_follows_the_window_pattern() {
    let base = with(&with_weights(of("gemma3")), "gemma3.block_count", Some(Raw::U32(3)));
    let windowed = base.clone().count("gemma3.attention.sliding_window", 512);
    let pattern = "gemma3.attention.sliding_window_pattern";
    let cases = [
        (base.clone(), ["full", "full", "full"]),
        (
            base.count("gemma3.attention.sliding_window", 0),
            ["full", "full", "full"],
        ),
        (windowed.clone(), ["sliding", "sliding", "sliding"]),
        (windowed.clone().count(pattern, 2), ["sliding", "full", "sliding"]),
        (windowed.clone().count(pattern, 1), ["full", "full", "full"]),
        (
            windowed
                .clone()
                .key(pattern, Raw::Array(Array::Bool(vec![false, true, false]))),
            ["full", "sliding", "full"],
        ),
    ];
    for (writer, kinds) in cases {
        let config = try_config(&writer).unwrap();
        let want: Vec<String> = kinds.iter().map(|k| format!("{k}_attention")).collect();
        assert_eq!(config["layer_types"], json!(want));
        assert_eq!(config["model_type"], "gemma3_text");
        assert_eq!(config["rope_theta"], 1e6);
        assert_eq!(config["rope_local_base_freq"], 1e4);
        assert_eq!(config["query_pre_attn_scalar"], 2);
    }
    let short = windowed.key(pattern, Raw::Array(Array::Bool(vec![true])));
    assert_eq!(try_config(&short).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn config_of_smollm3_skips_rope_in_every_fourth_layer() {
    let writer = with(&with_weights(of("smollm3")), "smollm3.block_count", Some(Raw::U32(5)));
    let config = try_config(&writer).unwrap();
    assert_eq!(config["no_rope_layers"], json!([1, 1, 1, 0, 1]));
}

#[test]
fn config_of_named_rope_scaling_keeps_its_parameters() {
    let ty = |name: &str| of("qwen2").text("qwen2.rope.scaling.type", name);
    let none = try_config(&ty("none")).unwrap();
    assert_eq!(none["rope_scaling"], Value::Null);
    let yarn = ty("yarn")
        .key("qwen2.rope.scaling.factor", Raw::F32(4.0))
        .count("qwen2.rope.scaling.original_context_length", 32768);
    let want = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768});
    assert_eq!(try_config(&yarn).unwrap()["rope_scaling"], want);
    let old = of("qwen2").key("qwen2.rope.scale_linear", Raw::F32(2.0));
    let want = json!({"rope_type": "linear", "factor": 2.0});
    assert_eq!(try_config(&old).unwrap()["rope_scaling"], want);
}

/// Llama 3's divisors by the definition.
fn llama3_factors(dim: usize, base: f64, factor: f64, low: f64, high: f64, original: f64) -> Vec<f32> {
    let one = |i: usize| {
        let wavelength = std::f64::consts::TAU * base.powf(2.0 * i as f64 / dim as f64);
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let s = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - s) / factor + s)
        }
    };
    (0..dim / 2).map(|i| one(i) as f32).collect()
}

#[test]
fn llama3_scaling_recovers_published_parameters() {
    let cases = [
        (64, 500_000.0, 32.0, 1.0, 4.0, 8192.0),
        (128, 500_000.0, 8.0, 1.0, 4.0, 8192.0),
        (128, 500_000.0, 8.0, 1.0, 2.0, 4096.0),
        (32, 500_000.0, 8.0, 1.0, 4.0, 128.0),
    ];
    for (dim, base, factor, low, high, original) in cases {
        let factors = llama3_factors(dim, base, factor, low, high, original);
        let found = llama3_scaling(&factors, base).expect("recovered");
        assert_eq!(found["factor"], factor);
        assert_eq!(found["high_freq_factor"], high, "{dim}");
        assert_eq!(found["original_max_position_embeddings"], original as u64);
    }
}

#[test]
fn rope_factors_of_another_kind_are_kept_as_they_are() {
    let factors = [1.5f32];
    let writer = of("llama").f32("rope_freqs.weight", &[1], &factors);
    let scaling = try_config(&writer).unwrap()["rope_scaling"].clone();
    assert_eq!(scaling[FREQ_FACTORS_KEY], json!(factors));
    for bad in [&[1.0, 1.0][..], &[0.0], &[f32::INFINITY]] {
        let writer = of("llama").f32("rope_freqs.weight", &[bad.len() as u64], bad);
        let error = try_config(&writer).unwrap_err();
        assert_eq!(error.tensor(), Some("rope_freqs.weight"));
    }
    assert!(llama3_scaling(&[3.0, 1.0, 2.0, 7.0], 1e4).is_none());
}

#[test]
fn generation_config_has_sampling_defaults_and_every_end_token() {
    let file = llama()
        .key("general.sampling.temp", Raw::F32(0.6))
        .key("general.sampling.top_k", Raw::I32(40))
        .count("tokenizer.ggml.eot_token_id", 7);
    let source = GgufSource::new(Path::new("m.gguf"), Arc::new(file.bytes())).unwrap();
    let config = generation_config(&source.file().metadata).unwrap();
    let want = json!({"bos_token_id": 0, "eos_token_id": [5, 7], "top_k": 40, "temperature": 0.6});
    assert_eq!(config, want);
}
