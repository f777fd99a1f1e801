//! Each golden model read from its Hugging Face folder and from its GGUF twin: one convention, so the same names,
//! shapes, values, configuration and token ids.

use cactus_import::{SourceModel, TensorSource, open};
use serde_json::Value;
use std::path::PathBuf;
use tokenizers::Tokenizer;

/// Every golden model that has a twin.
fn cases() -> Vec<String> {
    cactus_testkit::cases(&golden().join("gguf"))
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn twins(case: &str) -> (SourceModel, SourceModel) {
    let folder = open(&golden().join("models").join(case)).unwrap();
    let file = open(&golden().join("gguf").join(format!("{case}.gguf"))).unwrap();
    (folder, file)
}

#[test]
fn gguf_weights_equal_those_of_the_folder() {
    for case in &cases() {
        let (folder, file) = twins(case);
        let (folder, file): (&dyn TensorSource, &dyn TensorSource) = (&*folder.tensors, &*file.tensors);
        assert_eq!(file.names(), folder.names(), "{case}");
        for name in folder.names() {
            assert_eq!(file.shape(name), folder.shape(name), "{case} {name}");
            let (want, got) = (folder.read(name).unwrap(), file.read(name).unwrap());
            assert_eq!(got.shape(), want.shape(), "{case} {name}");
            // The norms of Gemma go through `w + 1 - 1`, which rounds; everything else keeps its bits.
            let rounds = case == "gemma3_text" && name.ends_with("norm.weight");
            let tolerance = if rounds { f32::EPSILON } else { 0.0 };
            for (i, (g, w)) in got.as_f32().unwrap().iter().zip(want.as_f32().unwrap()).enumerate() {
                assert!((g - w).abs() <= tolerance, "{case} {name}[{i}]: {g} is not {w}");
            }
        }
    }
}

/// Keys whose values both configurations must agree on where the folder has them.
const KEYS: [&str; 49] = [
    "activation_sparsity_pattern",
    "altup_active_idx",
    "altup_num_inputs",
    "architectures",
    "attention_bias",
    "attention_k_eq_v",
    "attention_multiplier",
    "embedding_multiplier",
    "enable_moe_block",
    "global_head_dim",
    "hidden_size_per_layer_input",
    "num_kv_shared_layers",
    "top_k_experts",
    "use_double_wide_mlp",
    "vocab_size_per_layer_input",
    "logits_scaling",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_dense_layers",
    "num_experts",
    "num_experts_per_tok",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "residual_multiplier",
    "routed_scaling_factor",
    "use_expert_bias",
    "conv_L_cache",
    "conv_bias",
    "final_logit_softcapping",
    "head_dim",
    "hidden_activation",
    "hidden_size",
    "laurel_rank",
    "layer_types",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "no_rope_layers",
    "norm_eps",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_theta",
    "sliding_window",
    "vocab_size",
    "bos_token_id",
];

#[test]
fn gguf_config_agrees_with_that_of_the_folder() {
    for case in &cases() {
        let (folder, file) = twins(case);
        let mut compared = 0;
        for key in KEYS {
            let Some(want) = folder.config.get(key) else {
                continue;
            };
            let got = file.config.get(key).unwrap_or(&Value::Null);
            // What does not apply is not in GGUF: null values, windows switched off, types of layers that are all alike.
            let no_window = key == "sliding_window" && folder.config["use_sliding_window"] == false;
            let alike = key == "layer_types" && file.config.get(key).is_none();
            let implied = no_window || alike || want.is_null();
            assert!(implied || numbers_equal(got, want), "{case} {key}: {got} is not {want}");
            compared += 1;
        }
        assert!(compared > 10, "{case}");
        let first_end = |ids: &Value| ids.get(0).unwrap_or(ids).clone();
        assert_eq!(
            first_end(&file.config["eos_token_id"]),
            first_end(&folder.config["eos_token_id"])
        );
        for key in ["temperature", "top_p", "top_k"] {
            assert_eq!(
                file.generation_config[key], folder.generation_config[key],
                "{case} {key}"
            );
        }
        let tied = folder.tensors.shape("lm_head.weight").is_none();
        assert_eq!(file.config["tie_word_embeddings"], tied, "{case}");
    }
}

/// Equality that does not tell 1e6 from 1000000.
fn numbers_equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some() && a.as_f64() == b.as_f64()
}

#[test]
fn gguf_config_builds_the_graph_of_the_folder() {
    for case in &cases() {
        let (folder, file) = twins(case);
        let build = |model: &SourceModel| cactus_models::build(&model.config).unwrap();
        let (want, got) = (build(&folder), build(&file));
        assert_eq!(
            got.decoder().to_string().lines().count(),
            want.decoder().to_string().lines().count()
        );
        // The frequencies of `llama3` scaling come from divisors rounded to f32, or from the parameters.
        if case != "llama32" {
            assert!(got.decoder() == want.decoder(), "{case}");
        }
        assert_eq!(got.context_tokens, want.context_tokens, "{case}");
        assert_eq!(got.vocab_size, want.vocab_size, "{case}");
    }
}

#[test]
fn gguf_config_recovers_llama3_rope_scaling() {
    let (folder, file) = twins("llama32");
    let (want, got) = (&folder.config["rope_scaling"], &file.config["rope_scaling"]);
    for (key, want) in want.as_object().unwrap() {
        assert!(numbers_equal(&got[key], want), "{key}: {} is not {want}", got[key]);
    }
    assert_eq!(got["freq_factors"].as_array().unwrap().len(), 16);
}

#[test]
fn gguf_feed_forward_size_is_the_adjusted_one() {
    let (_, file) = twins("lfm2");
    assert_eq!(file.config["intermediate_size"], 96);
    assert_eq!(file.config["block_ff_dim"], 96);
    assert_eq!(file.config["block_auto_adjust_ff_dim"], false);
    let types = ["conv", "conv", "full_attention", "conv"];
    assert_eq!(file.config["layer_types"], serde_json::json!(types));
}

#[test]
fn gguf_tokenizer_gives_the_ids_of_the_folder() {
    let texts = [
        "",
        "Hello, world!",
        "  the cat's  hat\n\n\tand the  1234 dogs ",
        "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
        "naïve Ünïcödé 你好 🙂",
    ];
    for case in &cases() {
        let (folder, file) = twins(case);
        let (folder, file) = (folder.tokenizer.unwrap(), file.tokenizer.unwrap());
        assert_eq!(file.chat_template, folder.chat_template, "{case}");
        for key in ["bos_token", "eos_token", "pad_token", "add_bos_token"] {
            if let Some(want) = folder.tokenizer_config.get(key) {
                assert_eq!(&file.tokenizer_config[key], want, "{case} {key}");
            }
        }
        let load = |json: Vec<u8>| Tokenizer::from_bytes(json).unwrap();
        let (folder, file) = (load(folder.tokenizer_json), load(file.tokenizer_json));
        for text in texts {
            let ids = |t: &Tokenizer| t.encode(text, true).unwrap().get_ids().to_vec();
            assert_eq!(ids(&file), ids(&folder), "{case} {text:?}");
            let back = |t: &Tokenizer| t.decode(&ids(t), false).unwrap();
            assert_eq!(back(&file), back(&folder), "{case} {text:?}");
        }
    }
}

/// Text models of those that see, whose folders have their encoders beside them.
#[test]
fn gguf_text_model_of_one_that_sees_is_that_of_the_folder() {
    for case in ["qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"] {
        let at = golden().join("seeing").join(case);
        let (folder, file) = (open(&at).unwrap(), open(&at.join("text.gguf")).unwrap());
        let names: Vec<&str> = folder.tensors.names();
        let names: Vec<&str> = names.into_iter().filter(|name| !name.starts_with("visual.")).collect();
        assert_eq!(file.tensors.names(), names, "{case}");
        for name in names {
            let (want, got) = (folder.tensors.read(name).unwrap(), file.tensors.read(name).unwrap());
            assert_eq!(got.shape(), want.shape(), "{case} {name}");
            assert_eq!(file.tensors.shape(name).unwrap(), want.shape(), "{case} {name}");
            let bits = |t: &cactus_tensor::Tensor| t.as_f32().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&got) == bits(&want), "{case} {name}");
        }
        let mut config = folder.config["text_config"].clone();
        // Which the whole says.
        config["tie_word_embeddings"] = folder.config["tie_word_embeddings"].clone();
        let (want, got) = (
            cactus_models::build(&config).unwrap(),
            cactus_models::build(&file.config).unwrap(),
        );
        assert!(got.decoder() == want.decoder(), "{case}");
        assert_eq!(
            (got.family, got.context_tokens, got.vocab_size),
            (want.family, want.context_tokens, want.vocab_size)
        );
    }
}
