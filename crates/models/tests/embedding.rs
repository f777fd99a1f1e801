//! Models that make vectors and scores of texts, against what sentence-transformers computed from the same tiny folders
//! (`golden/embedding_models.py`).

mod support;

use cactus_models::{ComponentDef, ModelDef};
use cactus_reference::{Error, ErrorKind, Interpreter, States, Tensors};
use cactus_tensor::Tensor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{json as read_json, read};

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/embedding")
        .join(case)
}

/// The configuration with the modules behind the transformer, as the front end hands it over.
fn config(folder: &Path) -> Value {
    let mut config = read_json(&folder.join("config.json"));
    let Ok(list) = fs::read(folder.join("modules.json")) else {
        return config;
    };
    let list: Vec<Value> = serde_json::from_slice(&list).unwrap();
    let modules: Vec<Value> = list[1..]
        .iter()
        .map(|entry| {
            let path = entry["path"].as_str().unwrap();
            let about = folder.join(path).join("config.json");
            let mut module = if about.exists() { read_json(&about) } else { json!({}) };
            module["kind"] = entry["type"].as_str().unwrap().rsplit('.').next().into();
            module["path"] = path.into();
            module
        })
        .collect();
    config["text_modules"] = modules.into();
    config
}

struct Case {
    def: ModelDef,
    weights: BTreeMap<String, Tensor>,
    expected: Value,
}

fn open(case: &str) -> Case {
    let folder = folder(case);
    let def = cactus_models::build(&config(&folder)).unwrap();
    // As the front end shows them: without the name of the model within, but for decoders with it.
    let prefix: &[&str] = match def.family {
        "modernbert" => &["model."],
        _ => &["bert.", "roberta."],
    };
    let decoder = ["qwen3", "gemma3_text"].contains(&def.family);
    let mut weights = BTreeMap::new();
    for (name, tensor) in read(&folder.join("model.safetensors")) {
        let own = prefix.iter().find_map(|p| name.strip_prefix(p)).unwrap_or(&name);
        let own = match decoder && !own.starts_with("model.") {
            true => format!("model.{own}"),
            false => own.to_owned(),
        };
        weights.insert(own, tensor);
    }
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.join("model.safetensors").exists() {
            let at = path.file_name().unwrap().to_string_lossy().into_owned();
            let own = read(&path.join("model.safetensors")).into_iter();
            weights.extend(own.map(|(name, tensor)| (format!("{at}.{name}"), tensor)));
        }
    }
    let stray = def.unread(weights.keys().map(String::as_str));
    assert!(stray.is_empty(), "{case}: the graph leaves {stray:?}");
    Case {
        def,
        weights,
        expected: read_json(&folder.join("expected.json")),
    }
}

fn ids(value: &Value) -> Vec<i64> {
    let list = value.as_array().unwrap();
    list.iter().map(|v| v.as_i64().unwrap()).collect()
}

impl Case {
    /// What the component gives of texts one behind the other, and their types where it wants them.
    fn run(&self, texts: &[Vec<i64>], types: Option<&[Vec<i64>]>) -> Vec<f32> {
        let ComponentDef { graph, .. } = &self.def.components[0];
        let source = |name: &str| -> cactus_reference::Result<Tensor> {
            let missing = || Error::new(ErrorKind::Weight, format!("no tensor `{name}`"));
            self.weights.get(name).cloned().ok_or_else(missing)
        };
        let mut starts = Vec::new();
        let mut rows = 0;
        for text in texts {
            starts.push(rows as i64);
            rows += text.len();
        }
        let joined = |texts: &[Vec<i64>]| Tensor::from_i64([1, rows], texts.concat()).unwrap();
        let starts = Tensor::from_i64([texts.len()], starts).unwrap();
        let mut inputs = Tensors::from([("input_ids".to_owned(), joined(texts)), ("starts".to_owned(), starts)]);
        if let Some(types) = types {
            inputs.insert("token_types".to_owned(), joined(types));
        }
        let interpreter = Interpreter::new(graph, &source).unwrap();
        let outputs = interpreter.run(&inputs, &mut States::new(graph).unwrap()).unwrap();
        let (_, values) = outputs.iter().next().unwrap();
        values.as_f32().unwrap().to_vec()
    }
}

fn close(case: &str, found: &[f32], want: &[f32]) {
    assert_eq!(found.len(), want.len(), "{case}");
    let largest = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    let far = found.iter().zip(want).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
    assert!(far <= 1e-4 * largest.max(1.0), "{case}: {far} of {largest}");
}

fn vectors(case: &str) {
    let model = open(case);
    let expected = read(&folder(case).join("expected.safetensors"))
        .remove("vectors")
        .unwrap();
    let def = model.def.vectors.as_ref().unwrap();
    assert_eq!(expected.shape()[1], def.dimensions, "{case}");
    let rows = model.expected["texts"].as_array().unwrap();
    let texts: Vec<Vec<i64>> = rows.iter().map(|row| ids(&row["ids"])).collect();
    let want = expected.as_f32().unwrap();
    close(case, &model.run(&texts, None), want);
    // And each alone, which is computed in doubles here and so has nearly the same numbers.
    for (text, want) in texts.iter().zip(want.chunks(def.dimensions)).take(5) {
        close(case, &model.run(std::slice::from_ref(text), None), want);
    }
}

fn scores(case: &str) {
    let model = open(case);
    assert!(model.def.scores.is_some(), "{case}");
    let rows = model.expected["pairs"].as_array().unwrap();
    let texts: Vec<Vec<i64>> = rows.iter().map(|row| ids(&row["ids"])).collect();
    let types: Vec<Vec<i64>> = rows.iter().filter_map(|row| row.get("types").map(ids)).collect();
    let typed = model.def.components[0].graph.input("token_types").is_some();
    let want: Vec<f32> = rows.iter().map(|row| row["logit"].as_f64().unwrap() as f32).collect();
    close(case, &model.run(&texts, typed.then_some(&types[..])), &want);
}

macro_rules! cases {
    ($($name:ident: $check:ident)*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name));
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

cases! {
    bert: vectors
    bert_poolings: vectors
    bert_ranker: scores
    gemma3_text: vectors
    modernbert: vectors
    modernbert_ranker: scores
    qwen3: vectors
    qwen3_ranker: scores
    xlm_roberta: vectors
    xlm_roberta_ranker: scores
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let whole = config(&folder("bert_poolings"));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = whole.clone();
        change(&mut changed);
        cactus_models::build(&changed).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: &[(Change<'_>, &str)] = &[
        (
            &|c| c["text_modules"][0]["pooling_mode"] = "attention".into(),
            "`attention`",
        ),
        (
            &|c| c["text_modules"][0]["include_prompt"] = false.into(),
            "include_prompt",
        ),
        (&|c| c["text_modules"][1]["kind"] = "Router".into(), "`Router`"),
        (
            &|c| c["text_modules"][1]["activation_function"] = "torch.nn.Mish".into(),
            "`Mish`",
        ),
        (&|c| c["text_modules"][1]["in_features"] = 7.into(), "7 elements"),
        (&|c| c["text_modules"][1]["use_residual"] = true.into(), "use_residual"),
        (&|c| c["text_modules"] = json!([]), "Pooling"),
        (
            &|c| c["position_embedding_type"] = "relative_key".into(),
            "relative_key",
        ),
        (&|c| c["is_decoder"] = true.into(), "is_decoder"),
        (
            &|c| {
                c["architectures"] = json!(["BertForSequenceClassification"]);
                c["id2label"] = json!({"0": "a", "1": "b"});
            },
            "2 labels",
        ),
    ];
    for (change, word) in cases {
        let error = with(change);
        assert!(error.contains(word), "{word}: {error}");
    }
}
