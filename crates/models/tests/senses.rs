//! What families make of the sections of a configuration for pictures and sounds.

use cactus_models::{HeardDef, ModelDef, build};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn golden(case: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(case);
    serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
}

fn built(config: Value) -> ModelDef {
    build(&config).unwrap_or_else(|e| panic!("{config}: {e}"))
}

#[test]
fn gemma3n_hears_with_as_many_rows_for_every_sound() {
    let text = golden("models/gemma3n_text");
    let of = |first: usize, tokens: usize| json!({"vocab_offset": first, "vocab_size": tokens});
    let whole = json!({
        "model_type": "gemma3n", "text_config": text, "vision_config": of(112, 8), "audio_config": of(120, 8), "eos_token_id": [1, 106],
    });
    let def = built(whole.clone());
    assert_eq!(
        (def.task, &def.eos_token_ids[..]),
        ("multimodal_causal_lm_logits", &[1, 106][..])
    );
    let hears = def.hears.unwrap();
    assert_eq!((hears.heard, hears.block_frames), (HeardDef::Windows(128), 48));
    assert_eq!((hears.row_frames, hears.all_rows), (16, Some(188)));
    let sees = def.sees.unwrap();
    assert_eq!((sees.patch, sees.merge, sees.table), (48, 1, 16));
    for (section, field, value) in [
        ("vision_config", "architecture", json!("mobilenetv4_conv_small")),
        ("vision_config", "hidden_size", json!(1024)),
        ("audio_config", "vocab_offset", json!(121)),
        ("audio_config", "conf_attention_context_left", json!(20)),
        ("audio_config", "conf_attention_context_right", json!(1)),
        ("audio_config", "conf_reduction_factor", json!(5)),
        ("audio_config", "gradient_clipping", json!(10)),
        ("audio_config", "input_feat_size", json!(127)),
        ("audio_config", "sscp_conv_channel_size", json!([127, 32])),
        ("audio_config", "sscp_conv_kernel_size", json!([[3, 3], [5, 5]])),
        ("audio_config", "sscp_conv_stride_size", json!([[2, 2], [1, 2]])),
    ] {
        let mut config = whole.clone();
        config[section][field] = value;
        let error = build(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("{section}.{field}")), "{error}");
    }
    let mut other = whole;
    other["text_config"]["model_type"] = json!("gemma4_text");
    let error = build(&other).unwrap_err().to_string();
    assert!(error.contains("gemma3n_text"), "{error}");
}

#[test]
fn blocks_of_another_kind_are_refused_by_the_field() {
    let whole = golden("seeing/gemma3n");
    let at = "/vision_config/model_args/block_args";
    for (stage, block, field, value) in [
        (0, 0, "block_type", json!("ir")),
        (0, 0, "exp_kernel_size", json!(4)),
        (0, 0, "se_ratio", json!(0.25)),
        (0, 0, "noskip", json!(true)),
        (0, 0, "act_layer", json!("relu")),
        (1, 0, "dw_kernel_size_end", json!(3)),
        (1, 0, "exp_ratio", json!(0)),
        (2, 1, "stride", json!(2)),
        (2, 2, "value_dim", json!(16)),
        (2, 2, "num_heads", Value::Null),
        (3, 0, "out_chs", json!(1 << 30)),
    ] {
        let mut config = whole.clone();
        config.pointer_mut(at).unwrap()[stage][block][field] = value;
        let error = build(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("block_args.{field}")), "{error}");
    }
    for (field, value) in [
        ("block_args", json!([])),
        ("block_args", json!([[1], [2]])),
        ("block_args", whole.pointer(at).unwrap()[0].clone()),
        ("msfa_output_resolution", json!(0)),
        ("stem_size", json!("8")),
        ("group_size", json!(8)),
    ] {
        let mut config = whole.clone();
        config["vision_config"]["model_args"][field] = value;
        let error = build(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("vision_config.model_args.{field}")), "{error}");
    }
    let mut config = whole.clone();
    config["vision_soft_tokens_per_image"] = json!(256);
    let error = build(&config).unwrap_err().to_string();
    assert!(error.contains("vision_soft_tokens_per_image"), "{error}");
    // The first of a stage halves sides, and no other.
    let mut config = whole;
    config.pointer_mut(at).unwrap()[1][1]["stride"] = json!(2);
    let error = build(&config).unwrap_err().to_string();
    assert!(error.contains("block_args"), "{error}");
}

#[test]
fn a_model_that_hears_in_another_way_is_refused_by_the_field() {
    let config = golden("seeing/gemma4_hears");
    let heard = built(config.clone()).hears.unwrap().heard;
    assert_eq!(heard, HeardDef::Spectrogram(16));
    for (section, field, value) in [
        ("audio_config", "attention_context_left", json!(20)),
        ("audio_config", "attention_context_right", json!(1)),
        ("audio_config", "subsampling_conv_channels", json!([15, 8])),
        ("audio_config", "subsampling_conv_channels", json!([16])),
        ("audio_config", "num_attention_heads", json!(3)),
        ("audio_config", "hidden_act", json!("tanhshrink")),
    ] {
        let mut config = config.clone();
        config[section][field] = value;
        let error = build(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("{section}.{field}")), "{error}");
    }
}
