//! What families make of configurations: good, wrong, hostile.

use cactus_models::{ErrorKind, FAMILIES, ModelDef, build};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const GOLDEN: [&str; 23] = [
    "gemma3_text",
    "glm",
    "glm4",
    "gpt_oss",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "lfm2",
    "lfm2_moe",
    "llama",
    "llama32",
    "moonshine",
    "moonshine_streaming",
    "olmo2",
    "olmoe",
    "phi3",
    "phi3_window",
    "qwen2",
    "qwen2_tied",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "whisper",
];

fn golden(case: &str) -> Value {
    let folder = if ["whisper", "moonshine", "moonshine_streaming"].contains(&case) {
        "speech"
    } else {
        "models"
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden")
        .join(folder)
        .join(case)
        .join("config.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A golden configuration with fields set, or removed by `null`.
fn with(case: &str, changes: Value) -> Value {
    let mut config = golden(case);
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => config.as_object_mut().unwrap().remove(key),
            v => config.as_object_mut().unwrap().insert(key.clone(), v.clone()),
        };
    }
    config
}

/// That of the streaming Moonshine with other fields of its encoder.
fn encoder(changes: Value) -> Value {
    let mut config = golden("moonshine_streaming");
    for (key, value) in changes.as_object().unwrap() {
        config["encoder_config"][key] = value.clone();
    }
    config
}

fn mistral(changes: Value) -> Value {
    let mut config = with("llama", changes);
    config["model_type"] = json!("mistral");
    config
}

fn built(config: Value) -> ModelDef {
    build(&config).unwrap_or_else(|e| panic!("{config}: {e}"))
}

#[test]
fn build_reports_what_the_configuration_says() {
    let def = built(golden("llama32"));
    assert_eq!(def.family, "llama");
    assert_eq!(
        (def.context_tokens, def.vocab_size, def.hidden_size, def.layers),
        (1024, 128, 64, 2)
    );
    assert!(!def.tied_head);
    assert_eq!((def.bos_token_id, def.pad_token_id), (Some(1), None));
    assert_eq!(def.eos_token_ids, [2, 3]);
    let families: Vec<&str> = FAMILIES.iter().map(|f| f.model_type).collect();
    assert!(families.is_sorted() && families.contains(&def.family));
}

#[test]
fn graph_of_each_family_is_as_before() {
    let short: [(&str, &str, Value); 5] = [
        ("llama", "llama", json!({"num_hidden_layers": 1})),
        ("qwen2", "qwen2", json!({"num_hidden_layers": 1})),
        ("qwen3", "qwen3", json!({"num_hidden_layers": 1, "layer_types": null})),
        (
            "gemma3_text",
            "gemma3_text",
            json!({"num_hidden_layers": 1, "layer_types": null}),
        ),
        ("lfm2", "lfm2", json!({"num_hidden_layers": 2, "full_attn_idxs": [1]})),
    ];
    for (name, case, changes) in short {
        insta::assert_snapshot!(name, built(with(case, changes)).decoder().to_string());
    }
}

/// Different spellings of one model give one graph.
#[test]
fn equal_configurations_build_equal_graphs() {
    let gemma5 = json!({"rope_theta": null, "rope_local_base_freq": null, "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}});
    let cases = [
        (
            "llama",
            json!({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}),
        ),
        ("llama", json!({"head_dim": 16, "hidden_act": "swish"})),
        ("smollm3", json!({"no_rope_layers": null})),
        ("smollm3", json!({"no_rope_layers": [1, 1, 1, 0, 0]})),
        (
            "qwen2",
            json!({"max_window_layers": 0, "layer_types": ["full_attention", "full_attention"]}),
        ),
        ("gemma3_text", gemma5),
        ("gemma3_text", json!({"layer_types": null})),
        (
            "gemma3_text",
            json!({"layer_types": null, "_sliding_window_pattern": 3, "sliding_window_pattern": 6}),
        ),
        (
            "lfm2",
            json!({"full_attn_idxs": null, "layer_types": ["conv", "conv", "full_attention", "conv"]}),
        ),
        (
            "lfm2",
            json!({"block_ff_dim": null, "block_auto_adjust_ff_dim": false, "intermediate_size": 96}),
        ),
        ("lfm2", json!({"block_ff_dim": 144, "block_multiple_of": 3})),
        (
            "phi3",
            json!({"rope_scaling": null, "rope_theta": null, "partial_rotary_factor": null, "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 10000, "partial_rotary_factor": 0.75, "factor": 8.0,
                "short_factor": [1.0, 1.125, 1.375, 1.75, 2.0, 2.5], "long_factor": [1, 1, 1, 1, 1, 1]}}),
        ),
        // A window as long as the texts hides nothing.
        ("phi3", json!({"sliding_window": null})),
        ("phi3", json!({"sliding_window": 256})),
        (
            "granite",
            json!({"rope_scaling": null, "mlp_bias": null, "head_dim": 16}),
        ),
        ("glm4", json!({"partial_rotary_factor": null, "head_dim": 16})),
        (
            "glm",
            json!({"rms_norm_eps": null, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0}}),
        ),
        ("qwen3_moe", json!({"num_experts": null, "num_local_experts": 6})),
        (
            "qwen3_moe",
            json!({"decoder_sparse_step": null, "mlp_only_layers": null}),
        ),
        ("olmoe", json!({"norm_topk_prob": null, "rms_norm_eps": null})),
        (
            "lfm2_moe",
            json!({"tie_word_embeddings": null, "tie_embedding": true, "norm_topk_prob": null}),
        ),
    ];
    for (case, changes) in cases {
        let (plain, other) = (built(golden(case)), built(with(case, changes.clone())));
        assert!(plain.decoder() == other.decoder(), "{case} with {changes} differs");
    }
    let factors = json!({"rope_scaling": {"rope_type": "freq_factors", "freq_factors": vec![1.0; 8]}});
    assert!(built(golden("llama")).decoder() == built(with("llama", factors)).decoder());
    assert!(built(golden("llama")).decoder() == built(mistral(json!({}))).decoder());
}

/// Fields that change the mathematics change the graph.
#[test]
fn different_configurations_build_different_graphs() {
    let cases = [
        ("llama", json!({"rms_norm_eps": 1e-6})),
        ("llama", json!({"attention_bias": true})),
        ("llama", json!({"mlp_bias": true})),
        ("llama", json!({"hidden_act": "gelu_pytorch_tanh"})),
        ("llama32", json!({"rope_scaling": null})),
        ("llama32", json!({"tie_word_embeddings": true})),
        ("smollm3", json!({"no_rope_layers": [1, 1, 1, 1]})),
        ("smollm3", json!({"no_rope_layers": null, "no_rope_layer_interval": 2})),
        (
            "smollm3",
            json!({"use_sliding_window": true, "sliding_window": 8, "layer_types": null}),
        ),
        ("qwen2", json!({"use_sliding_window": true, "max_window_layers": 1})),
        ("qwen3", json!({"attention_bias": true})),
        ("gemma3_text", json!({"query_pre_attn_scalar": 24})),
        ("gemma3_text", json!({"sliding_window": 15})),
        ("gemma3_text", json!({"rope_local_base_freq": 20000})),
        (
            "gemma3_text",
            json!({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        ),
        ("gemma3_text", json!({"final_logit_softcapping": 30.0})),
        (
            "gemma3_text",
            json!({"layer_types": null, "_sliding_window_pattern": null, "sliding_window_pattern": 3}),
        ),
        ("lfm2", json!({"conv_bias": true})),
        ("lfm2", json!({"conv_L_cache": 4})),
        ("lfm2", json!({"full_attn_idxs": null})),
        ("lfm2", json!({"tie_embedding": false})),
        ("lfm2", json!({"block_ffn_dim_multiplier": 2.0})),
        ("olmo2", json!({"rms_norm_eps": null})),
        ("olmo2", json!({"attention_bias": true})),
        ("phi3", json!({"max_position_embeddings": 256})),
        ("phi3", json!({"original_max_position_embeddings": 512})),
        ("phi3", json!({"partial_rotary_factor": null, "rope_scaling": null})),
        ("phi3", json!({"sliding_window": 255})),
        ("phi3_window", json!({"sliding_window": 16})),
        ("granite", json!({"attention_multiplier": null})),
        ("granite", json!({"embedding_multiplier": null})),
        ("granite", json!({"residual_multiplier": 1.0})),
        ("granite", json!({"logits_scaling": 2.0})),
        ("glm4", json!({"attention_bias": false})),
        ("glm4", json!({"partial_rotary_factor": 1.0})),
        (
            "glm4",
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}),
        ),
        ("glm4", json!({"model_type": "glm"})),
        ("qwen3_moe", json!({"mlp_only_layers": [1]})),
        ("qwen3_moe", json!({"decoder_sparse_step": 2})),
        ("qwen3_moe", json!({"norm_topk_prob": null})),
        ("qwen3_moe", json!({"use_sliding_window": true, "sliding_window": 8})),
        ("olmoe", json!({"num_experts_per_tok": 2})),
        ("granitemoe", json!({"num_local_experts": 3})),
        ("gpt_oss", json!({"sliding_window": 5})),
        (
            "gpt_oss",
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
        ),
        ("granitemoeshared", json!({"shared_intermediate_size": 0})),
        ("lfm2_moe", json!({"num_dense_layers": 2})),
        ("lfm2_moe", json!({"use_expert_bias": false})),
        ("lfm2_moe", json!({"norm_topk_prob": false})),
        ("lfm2_moe", json!({"routed_scaling_factor": 2.5})),
    ];
    for (case, changes) in cases {
        let (plain, other) = (built(golden(case)), built(with(case, changes.clone())));
        assert!(plain.decoder() != other.decoder(), "{case} with {changes} is the same");
    }
    assert!(built(golden("llama")).decoder() != built(mistral(json!({"sliding_window": 8}))).decoder());
}

#[test]
fn bad_configurations_name_the_field() {
    use ErrorKind::{Architecture, Invalid, Missing, Unsupported};
    let long = "x".repeat(1 << 20);
    let cases = [
        (json!([]), Invalid, "expected a JSON object, found a list"),
        (json!({}), Missing, "`model_type`"),
        (
            json!({"model_type": 3}),
            Invalid,
            "`model_type`: expected a string, found 3",
        ),
        (
            json!({"model_type": "gpt_neox"}),
            Architecture,
            "architecture `gpt_neox` is not supported; supported are bert, clip, clip_text_model, embedding_gemma2, embedding_gemma2_text, gemma3, gemma3_text, gemma3n, gemma3n_text, gemma4, gemma4_text, gemma4_unified, gemma4_unified_text, glm, glm4, gpt_oss, granite, granitemoe, granitemoeshared, idefics3, lfm2, lfm2_moe, lfm2_vl, llama, mistral, modernbert, moonshine, moonshine_streaming, nomic_bert, olmo2, olmoe, parakeet_ctc, parakeet_rnnt, parakeet_tdt, phi3, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_5_moe_text, qwen3_5_text, qwen3_moe, qwen3_vl, qwen3_vl_moe, qwen3_vl_moe_text, qwen3_vl_text, roberta, siglip, silero_vad, smollm3, smolvlm, whisper, xlm-roberta",
        ),
        (json!({"model_type": long}), Architecture, "a string of 1048576 bytes"),
        (
            with("llama", json!({"hidden_size": null})),
            Missing,
            "`hidden_size` is missing",
        ),
        (
            with("llama", json!({"vocab_size": "many"})),
            Invalid,
            "llama configuration: field `vocab_size`: expected an integer",
        ),
        (with("llama", json!({"vocab_size": -1})), Invalid, "found -1"),
        (with("llama", json!({"vocab_size": 1.5})), Invalid, "`vocab_size`"),
        (
            with("llama", json!({"vocab_size": 1u64 << 60})),
            Invalid,
            "`vocab_size`",
        ),
        (
            with("llama", json!({"num_hidden_layers": 100_000})),
            Invalid,
            "from 1 to 512, found 100000",
        ),
        (with("llama", json!({"num_attention_heads": 5})), Invalid, "`head_dim`"),
        (
            with("llama", json!({"num_key_value_heads": 2})),
            Invalid,
            "2 does not divide",
        ),
        (
            with("llama", json!({"head_dim": 15})),
            Invalid,
            "even head width, found 15",
        ),
        (
            with("llama", json!({"rms_norm_eps": "1e-5"})),
            Invalid,
            "`rms_norm_eps`",
        ),
        (
            with("llama", json!({"tie_word_embeddings": 1})),
            Invalid,
            "true or false, found 1",
        ),
        (
            with("llama", json!({"hidden_act": "mish"})),
            Unsupported,
            "`mish` is not supported",
        ),
        (
            with("llama", json!({"eos_token_id": "</s>"})),
            Invalid,
            "`eos_token_id`",
        ),
        (
            with("llama32", json!({"eos_token_id": [1, "x"]})),
            Invalid,
            "`eos_token_id`",
        ),
        (
            with("smollm3", json!({"no_rope_layers": [1, 0]})),
            Invalid,
            "each of 4 layers, found 2",
        ),
        (
            with("smollm3", json!({"no_rope_layers": [1, 2, 0, 1]})),
            Invalid,
            "`no_rope_layers`",
        ),
        (
            with("qwen2", json!({"layer_types": ["full_attention"]})),
            Invalid,
            "each of 2 layers",
        ),
        (
            with("qwen2", json!({"layer_types": ["full_attention", "mamba"]})),
            Unsupported,
            "`mamba`",
        ),
        (
            with("qwen2", json!({"layer_types": ["full_attention", "sliding_attention"]})),
            Invalid,
            "`sliding_window`: is missing",
        ),
        (
            with("gemma3_text", json!({"use_bidirectional_attention": true})),
            Unsupported,
            "both directions",
        ),
        (
            with("gemma3_text", json!({"attn_logit_softcapping": 50.0})),
            Unsupported,
            "`attn_logit_softcapping`",
        ),
        (
            with("gemma3_text", json!({"sliding_window": 0})),
            Invalid,
            "`sliding_window`",
        ),
        (
            with(
                "gemma3_text",
                json!({"rope_parameters": {"sliding_attention": {"rope_theta": "x"}}}),
            ),
            Invalid,
            "`rope_parameters.sliding_attention.rope_theta`",
        ),
        (
            with("lfm2", json!({"full_attn_idxs": [4]})),
            Invalid,
            "layer 4 does not exist",
        ),
        (with("lfm2", json!({"conv_L_cache": 0})), Invalid, "`conv_L_cache`"),
        (
            with("lfm2", json!({"block_ff_dim": 1, "block_multiple_of": 1})),
            Invalid,
            "feed-forward size of 0",
        ),
        (
            with("whisper", json!({"scale_embedding": true})),
            Unsupported,
            "`scale_embedding`",
        ),
        (
            with("whisper", json!({"decoder_attention_heads": 3})),
            Invalid,
            "`decoder_attention_heads`: 3 does not divide `d_model`, which is 32",
        ),
        (
            with("whisper", json!({"encoder_layers": 0})),
            Invalid,
            "`encoder_layers`",
        ),
        (
            with("whisper", json!({"num_mel_bins": null})),
            Missing,
            "`num_mel_bins`",
        ),
        (
            with("moonshine", json!({"encoder_num_attention_heads": 2})),
            Unsupported,
            "`encoder_num_attention_heads`: 2 is not supported; expected as many as `decoder_num_attention_heads`, 4",
        ),
        (
            with("moonshine", json!({"decoder_num_key_value_heads": 1})),
            Unsupported,
            "`decoder_num_key_value_heads`",
        ),
        (
            with("moonshine", json!({"hidden_size": 50})),
            Invalid,
            "4 does not divide `hidden_size`, which is 50",
        ),
        (
            with("moonshine", json!({"rope_parameters": {"rope_type": "yarn"}})),
            Unsupported,
            "`rope_parameters.rope_type`: `yarn` is not supported; expected `default`",
        ),
        (
            with(
                "moonshine",
                json!({"rope_parameters": null, "partial_rotary_factor": 0.1}),
            ),
            Unsupported,
            "expected an even number of the 12 elements of a head, found 1",
        ),
        (
            with("moonshine_streaming", json!({"encoder_config": null})),
            Invalid,
            "`encoder_config`: expected the configuration of the encoder",
        ),
        (
            with("moonshine_streaming", json!({"num_key_value_heads": 2})),
            Unsupported,
            "`num_key_value_heads`: 2 is not supported; expected as many as `num_attention_heads`, 4",
        ),
        (
            encoder(json!({"sliding_windows": [[4, 0]]})),
            Invalid,
            "`encoder_config.sliding_windows`: expected a pair for each of 3 layers, found 1",
        ),
        (
            encoder(json!({"sliding_windows": [[0, 0], [1, 0], [1, 0]]})),
            Invalid,
            "`encoder_config.sliding_windows`",
        ),
        (
            encoder(json!({"sliding_windows": null})),
            Invalid,
            "`encoder_config.sliding_windows`",
        ),
        (encoder(json!({"frame_ms": 0.0})), Invalid, "`encoder_config.frame_ms`"),
        (
            encoder(json!({"head_dim": null, "hidden_size": 50})),
            Invalid,
            "`encoder_config.num_attention_heads`",
        ),
        (with("whisper", json!({"d_model": 1u64 << 40})), Invalid, "`d_model`"),
        (
            mistral(json!({"layer_types": ["full_attention", "full_attention"]})),
            Unsupported,
            "`layer_types`",
        ),
        (
            with("phi3", json!({"rope_scaling": {"type": "yarn", "factor": 2.0}})),
            Unsupported,
            "`rope_scaling.type`: `yarn` is not supported",
        ),
        (
            with(
                "phi3",
                json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}),
            ),
            Invalid,
            "`rope_scaling.short_factor`: expected 6 numbers, one for each pair, found 1",
        ),
        (
            with(
                "phi3",
                json!({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 0]}}),
            ),
            Invalid,
            "`rope_scaling.short_factor`",
        ),
        (
            with("phi3", json!({"original_max_position_embeddings": 1})),
            Invalid,
            "`original_max_position_embeddings`",
        ),
        (
            with("phi3", json!({"partial_rotary_factor": 0.05})),
            Unsupported,
            "`partial_rotary_factor`",
        ),
        (
            with("granite", json!({"logits_scaling": 0})),
            Invalid,
            "`logits_scaling`",
        ),
        (
            with("glm4", json!({"rope_scaling": {"type": "longrope"}})),
            Unsupported,
            "`longrope`",
        ),
        (
            with("qwen3_moe", json!({"num_experts_per_tok": 7})),
            Invalid,
            "7 experts cannot be chosen of 6",
        ),
        (
            with("qwen3_moe", json!({"num_experts": 1 << 20})),
            Invalid,
            "`num_experts`",
        ),
        (
            with("qwen3_moe", json!({"moe_intermediate_size": null})),
            Missing,
            "`moe_intermediate_size`",
        ),
        (with("olmoe", json!({"clip_qkv": 8.0})), Unsupported, "`clip_qkv`"),
        (
            with("gpt_oss", json!({"rope_scaling": null})),
            Missing,
            "`rope_scaling`",
        ),
        (
            with("gpt_oss", json!({"swiglu_limit": 5.0})),
            Unsupported,
            "`swiglu_limit`",
        ),
        (
            with(
                "gpt_oss",
                json!({"layer_types": ["full_attention", "chunked_attention"]}),
            ),
            Unsupported,
            "`layer_types`",
        ),
        (
            with("granitemoe", json!({"num_experts_per_tok": 6})),
            Invalid,
            "`num_experts_per_tok`",
        ),
        (
            with(
                "lfm2_moe",
                json!({"layer_types": ["mamba", "conv", "full_attention", "conv"]}),
            ),
            Unsupported,
            "`mamba`",
        ),
    ];
    for (config, kind, text) in cases {
        let e = build(&config).unwrap_err();
        let shown = e.to_string();
        assert_eq!(e.kind(), kind, "{shown}");
        assert!(shown.contains(text), "{shown} does not say {text}");
        // What is listed grows with the families, what is quoted of a configuration never.
        let most = match kind {
            Architecture => {
                100 + cactus_models::FAMILIES
                    .iter()
                    .map(|f| f.model_type.len() + 2)
                    .sum::<usize>()
            }
            _ => 400,
        };
        assert!(shown.len() < most, "{} bytes of error", shown.len());
    }
}

/// Which factors hold depends on how long a text becomes, so no text is longer than those of the short ones.
#[test]
fn longrope_ends_where_its_short_texts_end() {
    assert_eq!(built(golden("phi3")).context_tokens, 256);
    let short = json!({"max_position_embeddings": 128});
    assert_eq!(built(with("phi3", short)).context_tokens, 128);
    assert_eq!(built(golden("phi3_window")).context_tokens, 512);
}

#[test]
fn layers_without_experts_have_the_weights_of_a_dense_one() {
    let def = built(with("qwen3_moe", json!({"mlp_only_layers": [0]})));
    let weights = def.decoder().weights();
    let has = |name: &str| weights.iter().any(|(_, expr)| expr.sources() == [name]);
    assert!(has("model.layers.0.mlp.gate_proj.weight") && !has("model.layers.0.mlp.experts.gate_up_proj"));
    assert!(!has("model.layers.1.mlp.gate_proj.weight") && has("model.layers.1.mlp.experts.gate_up_proj"));
}

#[test]
fn unread_tensors_are_those_without_a_reason() {
    let def = built(golden("llama"));
    let names = [
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.7.mlp.up_proj.weight",
    ];
    assert_eq!(def.unread(names), &names[4..]);
}

#[test]
fn weights_of_layers_that_share_keys_and_values_have_a_reason() {
    let def = built(golden("gemma3n_text"));
    let of = |layer: usize, name: &str| format!("model.layers.{layer}.self_attn.{name}.weight");
    let shared = ["k_proj", "v_proj", "k_norm"].map(|name| of(6, name));
    assert_eq!(def.unread(shared.iter().map(String::as_str)), [""; 0]);
    let unknown = of(6, "x_proj");
    assert_eq!(def.unread([&*unknown]), [&*unknown]);
}

#[test]
fn gemma3n_of_another_kind_is_refused_by_the_field() {
    for (field, value) in [
        ("activation_sparsity_pattern", json!([0.5])),
        (
            "activation_sparsity_pattern",
            json!([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        ),
        ("altup_active_idx", json!(4)),
        ("altup_correct_scale", json!(false)),
        ("altup_num_inputs", json!(1)),
        ("hidden_size_per_layer_input", json!(0)),
        ("intermediate_size", json!([80, 80])),
        ("intermediate_size", json!("80")),
        ("laurel_rank", json!(0)),
        ("num_kv_shared_layers", json!(5)),
        ("sliding_window", json!(0)),
    ] {
        let mut config = golden("gemma3n_text");
        config[field] = value;
        let error = build(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
}

/// Any value a hostile file may put in a field.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..70).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "silu",
            "gelu",
            "yarn",
            "llama3",
            "linear",
            "factors",
            "conv",
            "sliding_attention"
        ])
        .prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "rope_type",
        "type",
        "factor",
        "factors",
        "full_attention",
        "rope_theta",
    ]);
    leaf.prop_recursive(2, 12, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in up to three fields: a verified graph or an error, never a panic.
    #[test]
    fn build_of_a_changed_configuration_never_panics(
        case in prop::sample::select(GOLDEN.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
    ) {
        let mut config = golden(case);
        let extra = ["sliding_window", "use_sliding_window", "layer_types", "rope_parameters", "rope_scaling", "head_dim"];
        let mut keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        keys.extend(extra.map(String::from));
        for (at, value) in changes {
            config[at.get(&keys).as_str()] = value;
        }
        if let Ok(def) = build(&config) {
            prop_assert!(def.components.iter().all(|c| c.graph.verify().is_ok()));
        }
    }
}

/// The deepest model accepted still builds in a moment.
#[test]
fn deepest_model_builds() {
    let types = vec!["full_attention"; 512];
    let def = built(with("qwen3", json!({"num_hidden_layers": 512, "layer_types": types})));
    assert_eq!(def.decoder().weights().len(), 512 * 11 + 2);
}

#[test]
fn silero_vad_names_the_field_that_is_wrong() {
    let config = |changes: Value| {
        let mut config = json!({
            "model_type": "silero_vad", "fft_samples": 256, "widths": [128, 64, 64, 128], "hidden_size": 128,
        });
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let activity = built(config(json!({}))).activity.unwrap();
    assert_eq!(
        (
            activity.sample_rate_hz,
            activity.chunk_samples,
            activity.context_samples
        ),
        (16_000, 512, 64)
    );
    for (changes, field) in [
        (json!({"fft_samples": 0}), "fft_samples"),
        (json!({"fft_samples": 252}), "fft_samples"),
        (json!({"fft_samples": 1u64 << 40}), "fft_samples"),
        (json!({"widths": [1, 2, 3]}), "widths"),
        (json!({"widths": [1, 2, 3, 0]}), "widths"),
        (json!({"widths": null}), "widths"),
        (json!({"hidden_size": null}), "hidden_size"),
        (json!({"hidden_size": 1 << 20}), "hidden_size"),
    ] {
        let error = build(&config(changes)).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

/// As transformers 5.23 writes the numbers of layers: as wide as the last of them.
#[test]
fn layers_with_other_heads_may_have_numbers_that_begin_with_zeros() {
    let own = json!({"head_dim": 32});
    let by_layer = |layers: Value| {
        let config = with(
            "gemma4_text",
            json!({"global_head_dim": null, "per_layer_config": layers}),
        );
        built(config).decoder().to_string()
    };
    let want = built(golden("gemma4_text")).decoder().to_string();
    assert_eq!(by_layer(json!({"1": own, "3": own, "5": own})), want);
    assert_eq!(by_layer(json!({"01": own, "03": own, "05": own})), want);
}
