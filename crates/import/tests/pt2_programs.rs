//! Saved programs of `golden/pt2` against what PyTorch computed: as they are read, and after the passes.

use cactus_import::pt2::{Pt2Tensors, Task, TranspileOptions, import_file, optimize};
use cactus_ir::{Graph, Node, Op};
use cactus_reference::{Error, ErrorKind, States, Tensors, WeightSource, run};
use cactus_tensor::{DType, Data, Tensor};
use cactus_testkit::operations_of_layers;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2")
}

fn cases() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|e| {
            e.unwrap()
                .file_name()
                .to_str()
                .and_then(|n| n.strip_suffix(".pt2"))
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 16, "the fixtures are missing: {names:?}");
    names
}

/// The calls of a case: inputs by name, outputs in order.
fn calls(case: &str) -> Vec<(Tensors, Vec<Tensor>)> {
    let bytes = std::fs::read(folder().join(format!("{case}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut out: Vec<(Tensors, Vec<Tensor>)> = Vec::new();
    let mut names: Vec<&str> = file.names();
    // Outputs in the order of their numbers.
    names.sort_by_key(|n| (n.len(), *n));
    for name in names {
        let view = file.tensor(name).unwrap();
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            Dtype::BOOL => DType::Bool,
            other => panic!("{other:?}"),
        };
        let tensor = Tensor::from_le_bytes(view.shape(), dtype, view.data()).unwrap();
        let [call, kind, what] = name.splitn(3, '.').collect::<Vec<_>>()[..] else {
            panic!("{name}")
        };
        let call: usize = call.parse().unwrap();
        out.resize_with(out.len().max(call + 1), Default::default);
        match kind {
            "input" => drop(out[call].0.insert(what.to_owned(), tensor)),
            _ => out[call].1.push(tensor),
        }
    }
    out
}

struct Source<'a>(&'a Pt2Tensors);

impl WeightSource for Source<'_> {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        cactus_import::TensorSource::read(self.0, name).map_err(|e| Error::new(ErrorKind::Weight, e.to_string()))
    }
}

/// The largest difference in proportion to the largest value.
fn error(got: &Tensor, want: &Tensor) -> f64 {
    assert_eq!(got.shape(), want.shape());
    let numbers = |t: &Tensor| -> Vec<f64> {
        match t.data() {
            Data::F32(v) => v.iter().map(|&v| v.into()).collect(),
            Data::I64(v) => v.iter().map(|&v| v as f64).collect(),
            Data::Bool(v) => v.iter().map(|&v| f64::from(u8::from(v))).collect(),
            _ => panic!("an element type without numbers"),
        }
    };
    let (got, want) = (numbers(got), numbers(want));
    let scale = want.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
    got.iter().zip(&want).fold(
        0.0,
        |m: f64, (a, b)| {
            if a == b { m } else { m.max((a - b).abs() / scale) }
        },
    )
}

fn check(case: &str, stage: &str, graph: &Graph, tensors: &Pt2Tensors) {
    for (i, (inputs, want)) in calls(case).into_iter().enumerate() {
        let got = run(graph, &inputs, &Source(tensors), &mut States::default())
            .unwrap_or_else(|e| panic!("{case}, {stage}, call {i}: {e}"));
        assert_eq!(got.len(), want.len(), "{case}");
        for (o, want) in want.iter().enumerate() {
            let e = error(&got[&format!("output_{o}")], want);
            assert!(e < 1e-5, "{case}, {stage}, call {i}, output {o}: {e:e}");
        }
    }
}

#[test]
fn program_computes_what_torch_computed() {
    for case in cases() {
        let mut imported = import_file(&folder().join(format!("{case}.pt2"))).unwrap_or_else(|e| panic!("{case}: {e}"));
        check(&case, "as read", &imported.graph, &imported.tensors);
        let options = TranspileOptions {
            task: Task::Function,
            ..TranspileOptions::default()
        };
        let (_, optimized, _) = optimize(&mut imported, &options).unwrap_or_else(|e| panic!("{case}: {e}"));
        check(&case, "optimized", &optimized, &imported.tensors);
    }
}

/// Captured from transformers.
const LANGUAGE_MODELS: [&str; 16] = [
    "smollm2",
    "llama_eager",
    "qwen3",
    "gemma3",
    "gemma3n",
    "gemma4",
    "lfm2",
    "qwen3_5",
    "lfm2_moe",
    "qwen3_moe",
    "olmoe",
    "gemma4_moe",
    "granite",
    "cohere",
    "glm",
    "gptj",
];

/// Token ids up to a length as one call, and call by call through the states.
#[test]
fn causal_model_gets_states_and_computes_the_same_call_by_call() {
    let others = ["gpt", "gpt2", "streams", "tails", "gpt_oss", "bloom", "llama4"];
    for case in others.into_iter().chain(LANGUAGE_MODELS) {
        let mut imported = import_file(&folder().join(format!("{case}.pt2"))).unwrap();
        // As far as possible, so that the report says what stopped it.
        let (task, graph, report) = optimize(&mut imported, &TranspileOptions::default()).unwrap();
        assert_eq!(task, Task::CausalLm, "{case}: {report}\n{graph}");
        let mixers = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Attention(_) | Op::ShortConv { .. } | Op::GatedDelta { .. }))
            .count();
        assert_eq!(graph.states().len(), mixers, "{case}:\n{graph}");
        let experts = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::RoutedExperts { .. }))
            .count();
        let layers = match case {
            "lfm2_moe" => 1,
            moe if moe.contains("moe") => 2,
            _ => 0,
        };
        assert_eq!(experts, layers, "{case}: {report}\n{graph}");
        assert!(mixers >= if case == "tails" { 1 } else { 2 }, "{case}:\n{graph}");
        // Whatever the rotation was written in, it is one operation of queries and one of keys in each layer.
        let ropes = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Rope { interleaved: true, .. }));
        let pairs = if ["cohere", "glm", "gptj"].contains(&case) {
            4
        } else {
            0
        };
        assert_eq!(ropes.count(), pairs, "{case}: {report}\n{graph}");
        let (inputs, want) = calls(case).remove(1);
        let ids = inputs["input_ids"].as_i64().unwrap();
        let mut states = States::new(&graph).unwrap();
        let mut got = Vec::new();
        for part in [&ids[..1], &ids[1..9], &ids[9..]] {
            let input = Tensors::from([(
                "input_ids".to_owned(),
                Tensor::from_i64([1, part.len()], part.to_vec()).unwrap(),
            )]);
            let out = run(&graph, &input, &Source(&imported.tensors), &mut states).unwrap();
            got.extend_from_slice(out["output_0"].as_f32().unwrap());
        }
        let got = Tensor::from_f32(want[0].shape(), got).unwrap();
        let e = error(&got, &want[0]);
        assert!(e < 1e-5, "{case}: {e:e}");
    }
}

/// Rows of `docs/reference/layers.md`: the fixture, the operations of each of its layers, and why some have more than 14.
fn documented_layers() -> Vec<(String, Vec<usize>, String)> {
    let page = folder().join("../../docs/reference/layers.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let rows = text.lines().filter(|l| l.starts_with("| `")).map(cells);
    let row = |c: Vec<String>| {
        let counts = c[3].split(", ").map(|n| n.parse().unwrap()).collect();
        (c[1].trim_matches('`').to_owned(), counts, c[4].clone())
    };
    rows.map(row).collect()
}

#[test]
fn a_decoder_layer_is_as_few_operations_as_documented() {
    let rows = documented_layers();
    let named: Vec<&str> = rows.iter().map(|(case, ..)| case.as_str()).collect();
    for case in ["gpt", "gpt2"].into_iter().chain(LANGUAGE_MODELS) {
        assert!(named.contains(&case), "{case} is missing from the page");
    }
    let mut wrong = Vec::new();
    for (case, documented, reason) in rows {
        let mut imported = import_file(&folder().join(format!("{case}.pt2"))).unwrap();
        let (_, graph, _) = optimize(&mut imported, &TranspileOptions::default()).unwrap();
        let layers = operations_of_layers(&graph);
        let few = layers.iter().all(|&n| n <= 14);
        let moves = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Permute { .. } | Op::Expand { .. } | Op::Cast { .. }))
            .count();
        // More than 14 operations have a reason, others none; and nothing is moved at run time.
        if layers != documented || few != reason.is_empty() || (few && moves > 0) {
            wrong.push(format!(
                "{case}: {layers:?} operations, {moves} moves; documented {documented:?} {reason}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The operations of a graph with their attributes, sorted; a captured batch is fixed at 1. Where transformers computes a layer without
/// the batch, reshapes that drop it are left out, and it of every shape.
fn operations(g: &Graph, without_batch: bool) -> Vec<String> {
    let one = |text: String| match without_batch {
        true => text.replace("batch", "1").replace("[1, seq", "[seq"),
        false => text.replace("batch", "1"),
    };
    let type_of = |v| one(g.ty(v).to_string());
    let leaves_batch_out =
        |n: &Node| without_batch && matches!(n.op, Op::Reshape { .. }) && type_of(n.inputs[0]) == type_of(n.outputs[0]);
    // The factor of a layer is 1 in what was captured, so the product is folded there.
    let is_scaled = |n: &Node| n.inputs.iter().any(|&v| g.value(v).name.ends_with("layer_scalar"));
    let mut all: Vec<String> = g
        .nodes()
        .filter(|(_, n)| !leaves_batch_out(n) && !is_scaled(n))
        .map(|(_, n)| {
            let mut op = n.op.clone();
            match &mut op {
                Op::Attention(a) => a.state = a.state.take().map(|_| "kv".into()),
                Op::ShortConv { state, .. } => *state = state.take().map(|_| "conv".into()),
                _ => {}
            }
            let text = serde_json::to_string(&op).unwrap().replace("\"batch\"", "1");
            let types: Vec<String> = n.inputs.iter().map(|&v| type_of(v)).collect();
            format!("{text} {}", types.join(" "))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn captured_and_native_models_have_one_optimized_graph() {
    let common = serde_json::json!({
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
    });
    let cases = [
        (
            "smollm2",
            serde_json::json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_theta": 10000.0, "hidden_act": "silu"}),
        ),
        (
            "gemma3",
            serde_json::json!({
                "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "head_dim": 16, "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 256,
                "rope_theta": 10000.0, "rope_local_base_freq": 10000.0, "hidden_activation": "gelu_pytorch_tanh",
            }),
        ),
        (
            "gemma4",
            serde_json::json!({
                "model_type": "gemma4_text", "head_dim": 16, "global_head_dim": 32, "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"], "vocab_size_per_layer_input": 96,
                "hidden_size_per_layer_input": 16, "final_logit_softcapping": 30.0,
            }),
        ),
        (
            "granite",
            serde_json::json!({
                "model_type": "granite", "tie_word_embeddings": false, "logits_scaling": 0.5, "embedding_multiplier": 3.0,
                "residual_multiplier": 0.6, "attention_multiplier": 0.2,
            }),
        ),
        (
            "glm",
            serde_json::json!({
                "model_type": "glm", "tie_word_embeddings": false, "head_dim": 16, "rms_norm_eps": 1.5625e-7,
            }),
        ),
        (
            "qwen3_moe",
            serde_json::json!({
                "model_type": "qwen3_moe", "tie_word_embeddings": false, "head_dim": 16, "num_experts": 6,
                "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": true,
            }),
        ),
        (
            "olmoe",
            serde_json::json!({
                "model_type": "olmoe", "tie_word_embeddings": false, "rms_norm_eps": 1e-5, "num_experts": 4,
                "num_experts_per_tok": 2, "intermediate_size": 20,
            }),
        ),
        (
            "lfm2_moe",
            serde_json::json!({
                "model_type": "lfm2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                "num_dense_layers": 1, "layer_types": ["conv", "full_attention"],
            }),
        ),
    ];
    for (case, own) in cases {
        let mut config = common.as_object().unwrap().clone();
        config.extend(own.as_object().unwrap().clone());
        let native = cactus_models::build(&serde_json::Value::Object(config)).unwrap();
        let (native, _) = cactus_passes::optimize(native.decoder(), &cactus_passes::Options::default()).unwrap();
        let mut imported = import_file(&folder().join(format!("{case}.pt2"))).unwrap();
        let (_, captured, _) = optimize(&mut imported, &TranspileOptions::default()).unwrap();
        // Experts are computed so.
        let without_batch = case.ends_with("moe");
        assert_eq!(
            operations(&captured, without_batch),
            operations(&native, without_batch),
            "{case}:\n{captured}\n{native}"
        );
        assert_eq!(captured.states().len(), native.states().len());
    }
}

/// Whisper's decoder as its family builds it is what was captured: the same operations, and on the same weights the numbers
/// that PyTorch computed.
#[test]
fn native_whisper_decoder_is_the_captured_one() {
    let case = "whisper_decoder";
    let config = serde_json::json!({
        "model_type": "whisper", "vocab_size": 96, "num_mel_bins": 16, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "d_model": 32, "max_source_positions": 24, "max_target_positions": 64,
    });
    let def = cactus_models::build(&config).unwrap();
    let mut imported = import_file(&folder().join(format!("{case}.pt2"))).unwrap();
    // The module that was captured holds the model under a name of its own.
    let weights = |name: &str| Source(&imported.tensors).tensor(&format!("model.{name}"));
    for (inputs, outputs) in calls(case) {
        let found = run(def.decoder(), &inputs, &weights, &mut States::default()).unwrap();
        let (found, want) = (found["logits"].as_f32().unwrap(), outputs[0].as_f32().unwrap());
        let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
        let worst = found.iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(
            found.len() == want.len() && worst <= 1e-4 * largest,
            "{worst} of {largest}"
        );
    }
    let (native, _) = cactus_passes::optimize(def.decoder(), &cactus_passes::Options::default()).unwrap();
    let options = TranspileOptions {
        task: Task::CausalLm,
        ..TranspileOptions::default()
    };
    let (_, captured, _) = optimize(&mut imported, &options).unwrap();
    let kinds = |g: &Graph| {
        let mut all: Vec<String> = g.nodes().map(|(_, n)| n.op.mnemonic().to_string()).collect();
        all.sort();
        all
    };
    assert_eq!(kinds(&captured), kinds(&native), "{captured}\n{native}");
    assert_eq!(captured.states().len(), native.states().len());
}
