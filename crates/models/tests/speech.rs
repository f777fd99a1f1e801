//! Families that hear, against what Hugging Face transformers computed from the same tiny checkpoint (see
//! `golden/README.md`).

mod support;

use cactus_models::ModelDef;
use cactus_reference::{Interpreter, States, Tensors};
use cactus_tensor::Tensor;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::{argmax, json, read};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech")
}

/// The configuration, with the heads of the generation configuration, as the importer has it.
fn config(folder: &Path) -> Value {
    let mut config = json(&folder.join("config.json"));
    config["alignment_heads"] = json(&folder.join("generation_config.json"))["alignment_heads"].clone();
    config
}

struct Case {
    def: ModelDef,
    weights: BTreeMap<String, Tensor>,
    expected: BTreeMap<String, Tensor>,
    said: Value,
}

impl Case {
    fn open(case: &str) -> Case {
        let folder = folder().join(case);
        Case {
            def: cactus_models::build(&config(&folder)).unwrap(),
            weights: read(&folder.join("model.safetensors")),
            expected: read(&folder.join("expected.safetensors")),
            said: json(&folder.join("expected.json")),
        }
    }

    fn ids(&self, pointer: &str) -> Vec<i64> {
        let ids = self.said.pointer(pointer).unwrap().as_array().unwrap();
        ids.iter().map(|v| v.as_i64().unwrap()).collect()
    }

    /// The only output of a component.
    fn run(&self, component: &str, inputs: Tensors) -> Tensor {
        let graph = &self.def.components.iter().find(|c| c.name == component).unwrap().graph;
        let source = |name: &str| -> cactus_reference::Result<Tensor> {
            self.weights.get(name).cloned().ok_or_else(|| {
                cactus_reference::Error::new(cactus_reference::ErrorKind::Weight, format!("no tensor `{name}`"))
            })
        };
        let interpreter = Interpreter::new(graph, &source).unwrap();
        let outputs = interpreter.run(&inputs, &mut States::new(graph).unwrap()).unwrap();
        outputs.into_values().next().unwrap()
    }

    fn states(&self, input: &str, heard: Tensor) -> Tensor {
        self.run("encoder", Tensors::from([(input.to_owned(), heard)]))
    }

    fn decoding(&self, ids: &[i64], states: &Tensor) -> Tensors {
        let ids = Tensor::from_i64([1, ids.len()], ids.to_vec()).unwrap();
        Tensors::from([
            ("decoder_input_ids".to_owned(), ids),
            ("encoder_hidden_states".to_owned(), states.clone()),
        ])
    }

    fn logits(&self, ids: &[i64], states: &Tensor) -> Vec<f32> {
        self.run("decoder", self.decoding(ids, states))
            .as_f32()
            .unwrap()
            .to_vec()
    }
}

fn assert_near(what: &str, got: &[f32], want: &Tensor) {
    let want = want.as_f32().unwrap();
    let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(got.len() == want.len() && got.iter().all(|g| g.is_finite()), "{what}");
    assert!(worst <= 1e-4 * largest, "{what} differ by {worst} of {largest}");
}

/// A case whose states, logits and greedy text are those of transformers, with the states and the text.
fn check(name: &str, input: &str) -> (Case, Tensor, Vec<i64>) {
    let case = Case::open(name);
    let stray = case.def.unread(case.weights.keys().map(String::as_str));
    assert!(stray.is_empty(), "{name}: the graphs leave {stray:?}");
    assert_eq!(case.def.task, "seq2seq_transcription");

    let states = case.states(input, case.expected[input].clone());
    assert_near(
        "states",
        states.as_f32().unwrap(),
        &case.expected["encoder_hidden_states"],
    );
    let logits = case.logits(&case.ids("/decoder_input_ids"), &states);
    assert_near("logits", &logits, &case.expected["logits"]);

    // Greedy text in one pass: each of its tokens must be the best after what precedes it.
    let (prompt, tokens) = (case.ids("/greedy/prompt_ids"), case.ids("/greedy/tokens"));
    let text = [&prompt[..], &tokens[..]].concat();
    let logits = case.logits(&text[..text.len() - 1], &states);
    let rows: Vec<&[f32]> = logits.chunks(case.def.vocab_size).collect();
    let chosen: Vec<i64> = rows[prompt.len() - 1..].iter().map(|r| argmax(r)).collect();
    assert_eq!(chosen, tokens, "{name}");
    (case, states, text)
}

fn check_whisper(name: &str) {
    let (case, states, text) = check(name, "input_features");
    let sound = case.def.sound.unwrap();
    assert_eq!(states.shape(), [1, sound.positions, case.def.hidden_size]);
    assert_eq!(case.expected["input_features"].shape(), [1, sound.mels, sound.frames]);
    check_shares(name, &case, &text, &states);
}

fn check_shares(name: &str, case: &Case, text: &[i64], states: &Tensor) {
    let shares = case.run("alignment", case.decoding(text, states));
    let want = &case.expected["alignment_shares"];
    assert_eq!(shares.shape(), want.shape(), "{name}");
    assert_near("shares", shares.as_f32().unwrap(), want);
}

#[test]
fn whisper() {
    check_whisper("whisper");
}

#[test]
fn whisper_en() {
    check_whisper("whisper_en");
}

#[test]
fn moonshine() {
    for name in ["moonshine", "moonshine_wide"] {
        let (case, states, text) = check(name, "input_values");
        check_shares(name, &case, &text, &states);
        let heard = case.def.samples.unwrap();
        assert_eq!((heard.sample_rate_hz, heard.least, heard.most), (16_000, 895, 480_000));
        assert_eq!(heard.position, 384);
        assert!(case.def.sound.is_none() && states.shape() == [1, 22, case.def.hidden_size]);
    }
}

#[test]
fn moonshine_streaming() {
    for (name, rate_hz, least, most, positions) in [
        ("moonshine_streaming", 16_000, 80, 64 * 4 * 80, 28),
        ("moonshine_streaming_wide", 8_000, 48, 64 * 4 * 48, 47),
    ] {
        let (case, states, text) = check(name, "input_values");
        check_shares(name, &case, &text, &states);
        let heard = case.def.samples.unwrap();
        assert_eq!((heard.sample_rate_hz, heard.least, heard.most), (rate_hz, least, most));
        assert_eq!(states.shape(), [1, positions, case.def.hidden_size]);
    }
}

/// What is behind the last frame is not heard, and what was made of sound does not change with what comes more than a window later.
#[test]
fn moonshine_streaming_hears_whole_frames_and_little_ahead() {
    let case = Case::open("moonshine_streaming");
    let samples = case.expected["input_values"].as_f32().unwrap();
    let states = |n: usize| case.states("input_values", Tensor::from_f32([1, n], samples[..n].to_vec()).unwrap());
    let hidden = case.def.hidden_size;
    let whole = states(80 * 112);
    for (n, positions) in [
        (80, 1),
        (159, 1),
        (4 * 80, 1),
        (5 * 80 - 1, 1),
        (5 * 80, 2),
        (61 * 80 + 7, 16),
    ] {
        let found = states(n);
        assert_eq!(found.shape()[1], positions, "{n}");
        assert_eq!(found, states(n / 80 * 80), "{n}");
        // The windows of the three layers reach two, no and one position ahead, and the last position of a part may lack frames.
        let known = hidden * positions.saturating_sub(4);
        assert_near("what is heard", &found.as_f32().unwrap()[..known], &part(&whole, known));
    }
}

fn part(states: &Tensor, n: usize) -> Tensor {
    Tensor::from_f32([n], states.as_f32().unwrap()[..n].to_vec()).unwrap()
}

/// As many positions as transformers makes, from the first on.
#[test]
fn moonshine_takes_any_number_of_samples_that_make_a_position() {
    let case = Case::open("moonshine");
    let samples = case.expected["input_values"].as_f32().unwrap();
    for (n, positions) in [(895, 1), (1278, 1), (1279, 2), (5000, 11)] {
        let states = case.states("input_values", Tensor::from_f32([1, n], samples[..n].to_vec()).unwrap());
        assert_eq!(states.shape()[1], positions, "{n}");
        assert!(states.as_f32().unwrap().iter().all(|v| v.is_finite()));
    }
}

/// Chunks one after the other, and all of them at once.
#[test]
fn silero_vad() {
    let folder = folder().join("silero_vad");
    let weights = read(&folder.join("silero_vad_16k.safetensors"));
    let expected = read(&folder.join("expected.safetensors"));
    let config = serde_json::json!({
        "model_type": "silero_vad", "fft_samples": 32, "widths": [12, 8, 8, 10], "hidden_size": 20,
    });
    let def = cactus_models::build(&config).unwrap();
    assert!(def.unread(weights.keys().map(String::as_str)).is_empty());
    assert!(def.exact && def.sound.is_none() && def.task == "voice_activity");
    let activity = def.activity.unwrap();
    let (chunk, context) = (activity.chunk_samples, activity.context_samples);
    assert_eq!((activity.sample_rate_hz, chunk, context), (2000, 64, 8));
    let source = |name: &str| -> cactus_reference::Result<Tensor> { Ok(weights[name].clone()) };
    let graph = &def.components[0].graph;
    let interpreter = Interpreter::new(graph, &source).unwrap();
    let mut sound = vec![0.0; context];
    sound.extend_from_slice(expected["sound"].as_f32().unwrap());
    let count = (sound.len() - context).div_ceil(chunk);
    sound.resize(context + count * chunk, 0.0);
    for at_once in [1, 7, count] {
        let mut found = Vec::new();
        let mut state = Tensor::from_f32([2, 1, 20], vec![0.0; 40]).unwrap();
        let chunks: Vec<&[f32]> = (0..count).map(|i| &sound[i * chunk..][..context + chunk]).collect();
        for part in chunks.chunks(at_once) {
            let samples = Tensor::from_f32([part.len(), context + chunk], part.concat()).unwrap();
            let inputs = Tensors::from([("samples".to_owned(), samples), ("state".to_owned(), state)]);
            let mut outputs = interpreter.run(&inputs, &mut States::new(graph).unwrap()).unwrap();
            found.extend_from_slice(outputs["probabilities"].as_f32().unwrap());
            state = outputs.remove("next_state").unwrap();
        }
        assert_near("probabilities", &found, &expected["probabilities"]);
        assert_near("the state", state.as_f32().unwrap(), &expected["state"]);
    }
}

#[test]
fn golden_cases_are_all_tested() {
    let cases = std::fs::read_dir(folder()).unwrap();
    let mut cases: Vec<String> = cases.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    cases.sort();
    assert_eq!(
        cases,
        [
            "moonshine",
            "moonshine_streaming",
            "moonshine_streaming_wide",
            "moonshine_wide",
            "parakeet_ctc",
            "parakeet_rnnt",
            "parakeet_tdt",
            "silero_vad",
            "whisper",
            "whisper_en"
        ]
    );
}

/// A window of fewer frames has the first positions; one of an odd number ends in half a position.
#[test]
fn encoder_takes_shorter_windows() {
    let case = Case::open("whisper");
    let features = &case.expected["input_features"];
    let (mels, frames) = (features.shape()[1], features.shape()[2]);
    for n in [1, 2, 37, 38] {
        let rows = features.as_f32().unwrap().chunks(frames);
        let cut: Vec<f32> = rows.flat_map(|row| row[..n].to_vec()).collect();
        let states = case.states("input_features", Tensor::from_f32([1, mels, n], cut).unwrap());
        assert_eq!(states.shape()[1], n.div_ceil(2));
        assert!(states.as_f32().unwrap().iter().all(|v| v.is_finite()));
    }
}

#[test]
fn alignment_heads_are_those_of_the_configuration_or_of_the_later_half() {
    let mut config = config(&folder().join("whisper"));
    let heads = |config: &Value| -> Result<usize, String> {
        let def = cactus_models::build(config).map_err(|e| e.to_string())?;
        let alignment = def.components.iter().find(|c| c.name == "alignment").unwrap();
        let (_, shares) = &alignment.graph.outputs()[0];
        Ok(alignment.graph.value(*shares).ty.shape[1].as_known().unwrap())
    };
    for (given, expected) in [
        (serde_json::json!([[0, 1]]), 1),
        (serde_json::json!([[1, 0], [0, 1], [1, 1], [1, 0]]), 3),
        (serde_json::json!([]), 2),
        (Value::Null, 2),
    ] {
        config["alignment_heads"] = given.clone();
        assert_eq!(heads(&config), Ok(expected), "{given}");
    }
    for given in [
        serde_json::json!([[2, 0]]),
        serde_json::json!([[0, 2]]),
        serde_json::json!([[0]]),
        serde_json::json!(7),
    ] {
        config["alignment_heads"] = given.clone();
        let error = heads(&config).unwrap_err();
        assert!(error.contains("alignment_heads"), "{given}: {error}");
    }
}
