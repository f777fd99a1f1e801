//! Every family against what Hugging Face transformers computed from the same tiny checkpoint (see `golden/README.md`).

mod support;

use cactus_models::ModelDef;
use cactus_reference::{Interpreter, States, Tensors};
use cactus_tensor::Tensor;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{argmax, json, read, stack_experts};

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/models")
        .join(case)
}

struct Case {
    def: ModelDef,
    weights: BTreeMap<String, Tensor>,
    expected: Value,
    logits: Tensor,
}

impl Case {
    fn open(case: &str) -> Case {
        let folder = folder(case);
        let mut weights = BTreeMap::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("model") && name.ends_with(".safetensors") {
                weights.extend(read(&path));
            }
        }
        stack_experts(&mut weights);
        Case {
            def: cactus_models::build(&json(&folder.join("config.json"))).unwrap(),
            weights,
            expected: json(&folder.join("expected.json")),
            logits: read(&folder.join("expected.safetensors")).remove("logits").unwrap(),
        }
    }

    fn ids(&self, pointer: &str) -> Vec<i64> {
        self.expected
            .pointer(pointer)
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_i64().unwrap())
            .collect()
    }

    /// Logits of every position of `ids`, row-major.
    fn run(&self, ids: &[i64]) -> Vec<f32> {
        let source = |name: &str| -> cactus_reference::Result<Tensor> {
            self.weights.get(name).cloned().ok_or_else(|| {
                cactus_reference::Error::new(cactus_reference::ErrorKind::Weight, format!("no tensor `{name}`"))
            })
        };
        let interpreter = Interpreter::new(self.def.decoder(), &source).unwrap();
        let input = Tensor::from_i64([1, ids.len()], ids.to_vec()).unwrap();
        let inputs = Tensors::from([("input_ids".to_owned(), input)]);
        let mut states = States::new(self.def.decoder()).unwrap();
        let outputs = interpreter.run(&inputs, &mut states).unwrap();
        let logits = &outputs["logits"];
        assert_eq!(logits.shape(), [1, ids.len(), self.def.vocab_size]);
        logits.as_f32().unwrap().to_vec()
    }
}

fn check(name: &str) {
    let case = Case::open(name);
    let stray = case.def.unread(case.weights.keys().map(String::as_str));
    assert!(stray.is_empty(), "{name}: the graph leaves {stray:?}");

    let got = case.run(&case.ids("/input_ids"));
    let want = case.logits.as_f32().unwrap();
    assert!(got.iter().all(|g| g.is_finite()), "{name}: a logit is not finite");
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    assert!(worst <= 1e-4 * largest, "{name}: logits differ by {worst} of {largest}");

    // Greedy text in one pass: each of its tokens must be the best after what precedes it.
    let (prompt, tokens) = (case.ids("/greedy/prompt_ids"), case.ids("/greedy/tokens"));
    let text: Vec<i64> = prompt.iter().chain(&tokens).copied().collect();
    let logits = case.run(&text[..text.len() - 1]);
    let rows: Vec<&[f32]> = logits.chunks(case.def.vocab_size).collect();
    let chosen: Vec<i64> = rows[prompt.len() - 1..].iter().map(|r| argmax(r)).collect();
    assert_eq!(chosen, tokens, "{name}");

    let ids = case.ids("/nll/ids");
    let logits = case.run(&ids);
    let losses = logits.chunks(case.def.vocab_size).zip(&ids[1..]).map(|(row, &next)| {
        let sum: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
        sum.ln() - f64::from(row[next as usize])
    });
    let mean = losses.sum::<f64>() / (ids.len() - 1) as f64;
    let want = case.expected.pointer("/nll/mean").unwrap().as_f64().unwrap();
    assert!((mean - want).abs() <= 1e-4, "{name}: NLL {mean} is not {want}");
}

macro_rules! families {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// No golden folder is without its test.
        #[test]
        fn golden_cases_are_all_tested() {
            let mut cases: Vec<String> = fs::read_dir(folder("")).unwrap().map(|e| {
                e.unwrap().file_name().into_string().unwrap()
            }).collect();
            cases.sort();
            let mut tested = vec![$(stringify!($name)),*];
            tested.sort();
            assert_eq!(cases, tested);
        }
    };
}

families! {
    gemma3_text gemma3n_text gemma4_moe gemma4_text glm glm4 gpt_oss granite granitemoe granitemoeshared lfm2 lfm2_moe llama llama32 olmo2 olmoe phi3 phi3_window qwen2 qwen2_tied qwen3 qwen3_moe smollm3
}
