use super::*;
use crate::ErrorKind::{self, Malformed, Missing, Unsupported};
use crate::gguf::config::tests::{of, try_config};
use crate::gguf::writer::Writer;
use crate::gguf::{Array, Value as Raw};

fn refused(writer: &Writer, kind: ErrorKind, text: &str) {
    let error = try_config(writer).expect_err(text);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error} does not say {text}");
}

#[test]
fn longrope_needs_both_lists_and_where_the_first_ends() {
    let [short, long] = LONG_ROPE_FACTORS;
    let plain = of("phi3").count("phi3.attention.sliding_window", 0);
    let config = try_config(&plain).unwrap();
    assert_eq!(
        (&config["sliding_window"], &config["rope_scaling"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(config["partial_rotary_factor"], 1.0);

    let first = plain.clone().f32(short, &[1], &[1.5]);
    refused(&first, Missing, long);
    refused(&plain.clone().f32(long, &[1], &[1.5]), Missing, short);
    let both = first.f32(long, &[1], &[4.0]);
    refused(&both, Missing, "phi3.rope.scaling.original_context_length");
    let whole = both
        .count("phi3.rope.scaling.original_context_length", 32)
        .key("phi3.rope.scaling.attn_factor", Raw::F32(1.25));
    let config = try_config(&whole).unwrap();
    let want = json!({"rope_type": "longrope", "short_factor": [1.5], "long_factor": [4.0], "attention_factor": 1.25});
    assert_eq!(config["rope_scaling"], want);
    assert_eq!(config["original_max_position_embeddings"], 32);

    for bad in [&[1.0, 1.0][..], &[0.0], &[f32::NAN]] {
        let writer = plain
            .clone()
            .f32(short, &[1], &[1.0])
            .f32(long, &[bad.len() as u64], bad);
        refused(&writer, Malformed, "expected 1 positive frequency divisors");
    }
}

#[test]
fn a_part_of_a_head_is_turned_where_the_architecture_may() {
    let wide = |arch: &str, part: u32| {
        of(arch)
            .count(&format!("{arch}.attention.key_length"), 8)
            .count(&format!("{arch}.rope.dimension_count"), part)
    };
    assert_eq!(try_config(&wide("glm4", 4)).unwrap()["partial_rotary_factor"], 0.5);
    refused(&wide("qwen3", 4), Unsupported, "should be equal, found 8 and 4");
    for part in [0, 1, 9] {
        refused(&wide("glm4", part), Unsupported, "should be equal");
    }
    let sections = wide("glm4", 8).key("glm4.rope.dimension_sections", Raw::Array(Array::I32(vec![1, 1, 2, 0])));
    refused(&sections, Unsupported, "glm4.rope.dimension_sections");
}

#[test]
fn factors_of_granite_are_those_of_the_file() {
    let writer = of("granite")
        .key("granite.attention.scale", Raw::F32(0.0078125))
        .key("granite.logit_scale", Raw::F32(8.0));
    let config = try_config(&writer).unwrap();
    assert_eq!(
        (&config["attention_multiplier"], &config["logits_scaling"]),
        (&json!(0.0078125), &json!(8.0))
    );
    assert!(config.get("residual_multiplier").is_none());
}

#[test]
fn experts_are_counted_and_their_router_is_the_one_of_the_architecture() {
    let with = |arch: &str, counts: &[(&str, u32)]| {
        let counts = counts.iter().map(|(suffix, n)| (format!("{arch}.{suffix}"), *n));
        counts.fold(of(arch), |w, (key, n)| w.count(&key, n))
    };
    let some = [
        ("expert_count", 8),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 3),
    ];
    let config = try_config(&with("qwen3moe", &some)).unwrap();
    let found = [
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "norm_topk_prob",
    ]
    .map(|k| config[k].clone());
    assert_eq!(found, [json!(8), json!(2), json!(3), json!(true)]);
    let config = try_config(&with("olmoe", &some[..2])).unwrap();
    assert_eq!(
        (&config["norm_topk_prob"], &config["intermediate_size"]),
        (&json!(false), &json!(6))
    );

    refused(&of("qwen3moe"), Missing, "qwen3moe.expert_count");
    refused(&with("qwen3moe", &some[..1]), Missing, "qwen3moe.expert_used_count");
    refused(
        &with("qwen3moe", &some[..2]),
        Missing,
        "qwen3moe.expert_feed_forward_length",
    );
    let and = |suffix: &str, n: u32| with("qwen3moe", &some).count(&format!("qwen3moe.{suffix}"), n);
    refused(&and("expert_gating_func", 2), Unsupported, "should be 1, found 2");
    refused(&and("expert_shared_count", 1), Unsupported, "every token");
    let scaled = with("qwen3moe", &some).key("qwen3moe.expert_weights_scale", Raw::F32(2.5));
    refused(&scaled, Unsupported, "should be 1 for this architecture, found 2.5");
    refused(&with("qwen3", &some), Unsupported, "mixture of experts");
}

#[test]
fn qwen3_5_is_recurrent_on_most_layers_and_leaves_those_that_guess_ahead() {
    let plain = [
        ("ssm.time_step_rank", 4),
        ("ssm.group_count", 2),
        ("ssm.state_size", 2),
        ("ssm.inner_size", 12),
        ("ssm.conv_kernel", 3),
        ("full_attention_interval", 2),
    ];
    let plain = plain
        .iter()
        .fold(of("qwen35"), |w, (suffix, n)| w.count(&format!("qwen35.{suffix}"), *n));
    let sections = |numbers: Vec<i32>| Raw::Array(Array::I32(numbers));
    let key = "qwen35.rope.dimension_sections";
    refused(&plain, Missing, key);
    refused(&plain.clone().key(key, sections(vec![1, 0, 0])), Malformed, key);
    let plain = plain.key(key, sections(vec![1, 0, 0, 0]));
    let mut three = plain.clone();
    three.metadata.retain(|(key, _)| key != "qwen35.block_count");
    let three = (0..3).fold(three.count("qwen35.block_count", 3), |w, layer| {
        w.f32(&format!("blk.{layer}.ffn_up.weight"), &[6, 4], &[0.0; 24])
    });
    let config = try_config(&three).unwrap();
    assert_eq!(
        config["layer_types"],
        json!(["linear_attention", "full_attention", "linear_attention"])
    );
    assert_eq!(
        (&config["linear_value_head_dim"], &config["linear_num_key_heads"]),
        (&json!(3), &json!(2))
    );
    // The last guesses ahead, and may have what no other layer has.
    let ahead =
        three
            .clone()
            .count("qwen35.nextn_predict_layers", 1)
            .f32("blk.2.nextn.eh_proj.weight", &[8, 4], &[0.0; 32]);
    let config = try_config(&ahead).unwrap();
    assert_eq!(config["num_hidden_layers"], 2);
    assert_eq!(config["layer_types"], json!(["linear_attention", "full_attention"]));
    let said = |flags: Vec<bool>| {
        ahead
            .clone()
            .key("qwen35.attention.recurrent_layers", Raw::Array(Array::Bool(flags)))
    };
    let config = try_config(&said(vec![false, true, false])).unwrap();
    assert_eq!(config["layer_types"], json!(["full_attention", "linear_attention"]));
    refused(&said(vec![true]), Malformed, "qwen35.attention.recurrent_layers");
}

#[test]
fn gpt_oss_has_a_window_on_every_other_layer_unless_a_file_says_otherwise() {
    let mut plain = of("gpt-oss")
        .count("gpt-oss.expert_count", 4)
        .count("gpt-oss.expert_used_count", 2)
        .count("gpt-oss.expert_feed_forward_length", 6);
    plain.metadata.retain(|(key, _)| key != "gpt-oss.block_count");
    let plain = (0..3).fold(plain.count("gpt-oss.block_count", 3), |w, layer| {
        w.f32(&format!("blk.{layer}.attn_sinks.weight"), &[2], &[0.0; 2])
    });
    refused(&plain, Missing, "gpt-oss.attention.sliding_window");
    let plain = plain.count("gpt-oss.attention.sliding_window", 16);
    let config = try_config(&plain).unwrap();
    let kinds = json!(["sliding_attention", "full_attention", "sliding_attention"]);
    assert_eq!(
        (&config["sliding_window"], &config["layer_types"]),
        (&json!(16), &kinds)
    );
    assert_eq!(
        (&config["rope_scaling"], &config["attention_bias"]),
        (&Value::Null, &json!(false))
    );
    let flags = Raw::Array(Array::Bool(vec![false, false, true]));
    let said = plain
        .clone()
        .key("gpt-oss.attention.sliding_window_pattern", flags)
        .text("gpt-oss.rope.scaling.type", "yarn")
        .key("gpt-oss.rope.scaling.factor", Raw::F32(32.0));
    let config = try_config(&said).unwrap();
    let kinds = json!(["full_attention", "full_attention", "sliding_attention"]);
    assert_eq!(config["layer_types"], kinds);
    assert_eq!(config["rope_scaling"]["truncate"], json!(false));
}

#[test]
fn gemma3n_needs_a_cut_for_each_layer() {
    let key = "gemma3n.activation_sparsity_scale";
    let plain = of("gemma3n")
        .count("gemma3n.attention.sliding_window", 8)
        .count("gemma3n.altup.num_inputs", 4)
        .count("gemma3n.embedding_length_per_layer_input", 2)
        .f32("blk.0.laurel_l.weight", &[3, 4], &[0.0; 12]);
    refused(&plain, Missing, "per_layer_token_embd.weight");
    let plain = plain.f32("per_layer_token_embd.weight", &[6, 2], &[1.0; 12]);
    refused(&plain, Missing, key);
    let cuts = |cuts: &[f32]| plain.clone().key(key, Raw::Array(Array::F32(cuts.to_vec())));
    refused(&cuts(&[0.0, 0.0]), Malformed, key);
    refused(&cuts(&[f32::NAN]), Malformed, key);
    for (cut, share) in [(1.644_853_6, 0.95), (f32::NEG_INFINITY, 0.0), (0.0, 0.5)] {
        let config = try_config(&cuts(&[cut])).unwrap();
        assert_eq!(config["activation_sparsity_pattern"], json!([share]));
        assert_eq!(
            (&config["laurel_rank"], &config["vocab_size_per_layer_input"]),
            (&json!(3), &json!(6))
        );
    }
}
