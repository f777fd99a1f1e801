//! Parakeet, against what Hugging Face transformers computed from the same tiny checkpoints (see `golden/README.md`).

mod support;

use cactus_models::{ModelDef, TransducerDef};
use cactus_reference::{Interpreter, States, Tensors};
use cactus_tensor::Tensor;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::{argmax, json as document, read};

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(case)
}

struct Case {
    def: ModelDef,
    weights: BTreeMap<String, Tensor>,
    expected: BTreeMap<String, Tensor>,
    said: Value,
}

impl Case {
    fn open(case: &str) -> Case {
        let folder = folder(case);
        let case = Case {
            def: cactus_models::build(&document(&folder.join("config.json"))).unwrap(),
            weights: read(&folder.join("model.safetensors")),
            expected: read(&folder.join("expected.safetensors")),
            said: document(&folder.join("expected.json")),
        };
        let stray = case.def.unread(case.weights.keys().map(String::as_str));
        assert!(stray.is_empty(), "the graphs leave {stray:?}");
        case
    }

    fn run(&self, component: &str, inputs: Tensors) -> Tensors {
        let graph = &self.def.components.iter().find(|c| c.name == component).unwrap().graph;
        let source = |name: &str| -> cactus_reference::Result<Tensor> {
            self.weights.get(name).cloned().ok_or_else(|| {
                cactus_reference::Error::new(cactus_reference::ErrorKind::Weight, format!("no tensor `{name}`"))
            })
        };
        let interpreter = Interpreter::new(graph, &source).unwrap();
        interpreter.run(&inputs, &mut States::new(graph).unwrap()).unwrap()
    }

    /// What the encoder gives of the first `samples`, with its name.
    fn heard(&self, samples: u64) -> (String, Tensor) {
        let features = &self.expected[&format!("features.{samples}")];
        let shape = [&[1], features.shape()].concat();
        let features = features.clone().reshaped(shape).unwrap();
        let mut outputs = self.run("encoder", Tensors::from([("features".to_owned(), features)]));
        outputs.pop_first().unwrap()
    }

    /// All that the encoder gives, against what it should: `[positions, width]` of each beginning.
    fn check_encoder(&self, output: &str) {
        for beginning in self.said["beginnings"].as_array().unwrap() {
            let samples = beginning["samples"].as_u64().unwrap();
            let (name, states) = self.heard(samples);
            let want = &self.expected[&format!("states.{samples}")];
            assert_eq!(
                (name.as_str(), &states.shape()[1..]),
                (output, want.shape()),
                "{samples}"
            );
            assert_eq!(beginning["positions"], want.shape()[0]);
            assert_near(&format!("{samples}"), &states, want);
        }
    }
}

fn assert_near(what: &str, got: &Tensor, want: &Tensor) {
    let (got, want) = (got.as_f32().unwrap(), want.as_f32().unwrap());
    let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(got.len() == want.len() && got.iter().all(|g| g.is_finite()), "{what}");
    assert!(worst <= 1e-4 * largest, "{what} differ by {worst} of {largest}");
}

#[test]
fn ctc() {
    let case = Case::open("parakeet_ctc");
    assert_eq!((case.def.task, case.def.components.len()), ("ctc_logits", 1));
    let about = case.def.positions.as_ref().unwrap();
    assert_eq!((about.mels, about.frames, about.blank), (80, 8, 95));
    assert_eq!(about.transducer, None);
    case.check_encoder("logits");
    for beginning in case.said["beginnings"].as_array().unwrap() {
        let (_, logits) = case.heard(beginning["samples"].as_u64().unwrap());
        let rows = logits.as_f32().unwrap().chunks(case.def.vocab_size);
        let found: Vec<i64> = rows.map(argmax).collect();
        assert_eq!(json!(found), beginning["sequence"]);
    }
}

#[test]
fn transducers() {
    for (name, task, mels, frames, durations) in [
        ("parakeet_tdt", "tdt_transcription", 128, 8, vec![0, 1, 2, 3, 4]),
        ("parakeet_rnnt", "rnnt_transcription", 40, 4, vec![]),
    ] {
        let case = Case::open(name);
        assert_eq!((case.def.task, case.def.components.len()), (task, 3));
        let about = case.def.positions.as_ref().unwrap();
        assert_eq!((about.mels, about.frames, about.blank), (mels, frames, 95));
        let Some(TransducerDef {
            durations: found,
            most_symbols: 10,
            ..
        }) = &about.transducer
        else {
            panic!("{about:?}")
        };
        assert_eq!(*found, durations);
        case.check_encoder("states");
        check_predictor_and_joint(&case);
        check_walk(&case, &durations);
    }
}

impl Case {
    fn no_state(&self) -> Tensor {
        let shape = self.expected["next_state"].shape().to_vec();
        let count = shape.iter().product();
        Tensor::from_f32(shape, vec![0.0; count]).unwrap()
    }

    /// The prediction and the next state after `token`.
    fn predict(&self, token: i64, state: Tensor) -> (Tensor, Tensor) {
        let token = Tensor::from_i64([1], vec![token]).unwrap();
        let inputs = Tensors::from([("token".to_owned(), token), ("state".to_owned(), state)]);
        let mut outputs = self.run("predictor", inputs);
        (
            outputs.remove("prediction").unwrap(),
            outputs.remove("next_state").unwrap(),
        )
    }

    fn joint(&self, states: Tensor, prediction: Tensor) -> Tensor {
        let inputs = Tensors::from([("states".to_owned(), states), ("prediction".to_owned(), prediction)]);
        self.run("joint", inputs).remove("logits").unwrap()
    }
}

fn check_predictor_and_joint(case: &Case) {
    let (mut state, mut found, mut last) = (case.no_state(), Vec::new(), None);
    for token in case.said["predictor_tokens"].as_array().unwrap() {
        let (prediction, next) = case.predict(token.as_i64().unwrap(), state);
        found.extend_from_slice(prediction.as_f32().unwrap());
        (state, last) = (next, Some(prediction));
    }
    let want = &case.expected["predictions"];
    let found = Tensor::from_f32(want.shape().to_vec(), found).unwrap();
    assert_near("predictions", &found, want);
    assert_eq!(state.shape(), case.expected["next_state"].shape());
    assert_near("the state", &state, &case.expected["next_state"]);
    let whole = case.said["beginnings"][0]["samples"].as_u64().unwrap();
    let states = case.expected[&format!("states.{whole}")].clone();
    assert_near(
        "logits of the joint",
        &case.joint(states, last.unwrap()),
        &case.expected["joint_logits"],
    );
}

/// Greedy decoding gives what `generate` gives.
fn check_walk(case: &Case, durations: &[usize]) {
    let vocab = case.def.vocab_size;
    let blank = case.def.positions.as_ref().unwrap().blank as i64;
    for beginning in case.said["beginnings"].as_array().unwrap() {
        let (_, heard) = case.heard(beginning["samples"].as_u64().unwrap());
        let width = heard.shape()[2];
        let rows: Vec<&[f32]> = heard.as_f32().unwrap().chunks(width).collect();
        let (mut prediction, mut state) = case.predict(blank, case.no_state());
        let (mut at, mut symbols, mut sequence, mut spans) = (0, 0, Vec::new(), Vec::new());
        while at < rows.len() {
            let row = Tensor::from_f32([1, width], rows[at].to_vec()).unwrap();
            let logits = case.joint(row, prediction.clone());
            let (tokens, rest) = logits.as_f32().unwrap().split_at(vocab);
            let token = argmax(tokens);
            symbols = if token == blank { 0 } else { symbols + 1 };
            let span = match rest {
                [] => usize::from(token == blank || symbols == 10),
                _ => durations[argmax(rest) as usize].max(usize::from(token == blank)),
            };
            if span > 0 {
                symbols = 0;
            }
            if token != blank {
                (prediction, state) = case.predict(token, state);
            }
            sequence.push(token);
            spans.push(span);
            at += span;
        }
        assert_eq!(json!(sequence), beginning["sequence"]);
        assert_eq!(json!(spans), beginning["durations"]);
    }
}

#[test]
fn what_a_configuration_leaves_out_is_as_published() {
    for (model_type, positions) in [
        ("parakeet_ctc", (80, 8, 1024)),
        ("parakeet_rnnt", (80, 8, 8192)),
        ("parakeet_tdt", (80, 8, 8192)),
    ] {
        let config = json!({"model_type": model_type, "encoder_config": {"num_hidden_layers": 1}});
        let def = cactus_models::build(&config).unwrap();
        let about = def.positions.as_ref().unwrap();
        assert_eq!((about.mels, about.frames, about.blank), positions);
        assert_eq!((def.hidden_size, def.context_tokens), (1024, 5000));
    }
}

#[test]
fn configurations_that_cannot_be_are_refused_by_field() {
    let tdt = |key: &str, value: Value| {
        let mut config = document(&folder("parakeet_tdt").join("config.json"));
        config[key] = value;
        config
    };
    let encoder = |key: &str, value: Value| {
        let mut config = document(&folder("parakeet_tdt").join("config.json"));
        config["encoder_config"][key] = value;
        config
    };
    for (config, field) in [
        (tdt("durations", json!([0, 0])), "durations"),
        (tdt("durations", json!([0])), "durations"),
        (tdt("durations", json!([])), "durations"),
        (tdt("durations", json!([0, 1 << 20])), "durations"),
        (tdt("blank_token_id", json!(96)), "blank_token_id"),
        (tdt("max_symbols_per_step", json!(0)), "max_symbols_per_step"),
        (tdt("num_decoder_layers", json!(0)), "num_decoder_layers"),
        (tdt("decoder_hidden_size", json!(-1)), "decoder_hidden_size"),
        (tdt("hidden_act", json!("waves")), "hidden_act"),
        (tdt("encoder_config", Value::Null), "encoder_config"),
        (tdt("encoder_config", json!(3)), "encoder_config"),
        (encoder("num_attention_heads", json!(3)), "num_attention_heads"),
        (encoder("num_key_value_heads", json!(2)), "num_key_value_heads"),
        (encoder("subsampling_factor", json!(6)), "subsampling_factor"),
        (encoder("subsampling_factor", json!(1)), "subsampling_factor"),
        (encoder("subsampling_conv_stride", json!(3)), "subsampling_conv_stride"),
        (encoder("subsampling_conv_stride", json!(1)), "subsampling_conv_stride"),
        (encoder("conv_kernel_size", json!(8)), "conv_kernel_size"),
        (encoder("num_mel_bins", json!(81)), "num_mel_bins"),
        (encoder("attention_bias", json!("yes")), "attention_bias"),
        (encoder("num_hidden_layers", json!(1 << 20)), "num_hidden_layers"),
    ] {
        let error = cactus_models::build(&config).unwrap_err().to_string();
        assert!(
            error.contains(field) && error.contains("parakeet_tdt"),
            "{field}: {error}"
        );
    }
}

/// Any value a hostile file may put in a field.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..70).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["silu", "gelu", "waves"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(1, 6, 6, |inner| {
        prop::collection::vec(inner, 0..6).prop_map(Value::from)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in some fields: verified graphs or an error, never a panic.
    #[test]
    fn build_of_a_changed_configuration_never_panics(
        case in prop::sample::select(vec!["parakeet_ctc", "parakeet_rnnt", "parakeet_tdt"]),
        own in prop::collection::vec((any::<prop::sample::Index>(), value()), 0..3),
        encoder in prop::collection::vec((any::<prop::sample::Index>(), value()), 0..3),
    ) {
        let mut config = document(&folder(case).join("config.json"));
        for (section, changes) in [("/encoder_config", encoder), ("", own)] {
            let fields = config.pointer_mut(section).unwrap().as_object_mut().unwrap();
            let keys: Vec<String> = fields.keys().filter(|k| *k != "model_type").cloned().collect();
            for (at, value) in changes {
                fields.insert(at.get(&keys).clone(), value);
            }
        }
        if let Ok(def) = cactus_models::build(&config) {
            prop_assert!(def.components.iter().all(|c| c.graph.verify().is_ok()));
        }
    }
}
