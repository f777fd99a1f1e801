//! Files that llama.cpp's converter writes of the golden folders, beside these folders (`golden/gguf_embedding.py`).

use cactus_embed::{EmbedOptions, Embedder, RankOptions, Reranker, Role};
use cactus_import::{ConvertOptions, Outcome, convert};
use cactus_passes::{Bits, Policy};
use cactus_testkit::copy_folder;
use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn golden(kind: &str, case: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    root.join(kind).join(case)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The numbers of a folder by name, those of its modules behind the name of their folder.
fn tensors(folder: &Path) -> BTreeMap<String, (Vec<f32>, usize)> {
    let mut found = BTreeMap::new();
    let mut read = |path: PathBuf, at: &str| {
        let Ok(file) = std::fs::read(path) else { return };
        for (name, tensor) in SafeTensors::deserialize(&file).unwrap().tensors() {
            let numbers = tensor
                .data()
                .chunks(4)
                .map(|c| f32::from_le_bytes(c.try_into().unwrap()));
            let width = tensor.shape().last().copied().unwrap_or(1);
            found.insert(format!("{at}{name}"), (numbers.collect(), width));
        }
    };
    read(folder.join("model.safetensors"), "");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        read(entry.path().join("model.safetensors"), &format!("{name}."));
    }
    found
}

/// The whole file of `case`, put together as its recipe says.
fn file(case: &str, to: &Path) -> PathBuf {
    let recipe = json(&golden("gguf_embedding", case).join("recipe.json"));
    let tensors = tensors(&golden("embedding", case));
    let mut bytes = std::fs::read(golden("gguf_embedding", case).join("head.gguf")).unwrap();
    bytes.resize(recipe["bytes"].as_u64().unwrap() as usize, 0);
    for part in recipe["tensors"].as_array().unwrap() {
        let (values, width) = &tensors[part["of"].as_str().unwrap()];
        let mut values = values.clone();
        if part["plus_one"] == true {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        if let Some(rows) = part["rows"].as_array() {
            let row = |row: &Value| &values[row.as_u64().unwrap() as usize * width..][..*width];
            values = rows.iter().flat_map(row).copied().collect();
        }
        if let (Some(experts), Some(columns)) = (part["experts"].as_u64(), part["columns"].as_u64()) {
            let rows = values.len() / (experts * columns) as usize;
            let columns = columns as usize;
            let of = |i: usize| {
                let (expert, within) = (i / (rows * columns), i % (rows * columns));
                values[expert * rows * columns + within % rows * columns + within / rows]
            };
            values = (0..values.len()).map(of).collect();
        }
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(data.len() as u64, part["bytes"], "{case} {}", part["of"]);
        let at = part["at"].as_u64().unwrap() as usize;
        bytes[at..at + data.len()].copy_from_slice(&data);
    }
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        recipe["sha256"], *digest,
        "{case}: not the file that the converter wrote"
    );
    let path = to.join(format!("{case}.gguf"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn made(source: &Path, to: &Path, bits: Bits) -> Result<Outcome, cactus_import::Error> {
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        replace: true,
        ..ConvertOptions::default()
    };
    convert(source, to, &options, &mut |_, _| {})
}

/// The folder of `case` without what the converter leaves out.
fn folder(case: &str, to: &Path) -> PathBuf {
    let from = golden("embedding", case);
    let to = to.join(case);
    match case {
        "gemma3_text" => {
            // That every sixth layer sees everything is not in the file; the golden one has it otherwise.
            copy_folder(&from, &to);
            let mut config = json(&from.join("config.json"));
            config["layer_types"] = vec!["sliding_attention"; 3].into();
            std::fs::write(to.join("config.json"), config.to_string()).unwrap();
            return to;
        }
        "nomic_bert_moe" => copy_folder(&from, &to),
        _ => return from,
    }
    let path = to.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let start = bytes.as_ptr() as usize;
    let named = file
        .tensors()
        .into_iter()
        .filter(|(name, _)| name.ends_with("experts.bias"));
    let biases: Vec<_> = named
        .map(|(_, tensor)| (tensor.data().as_ptr() as usize - start, tensor.data().len()))
        .collect();
    assert!(!biases.is_empty());
    for (at, n) in biases {
        bytes[at..at + n].fill(0);
    }
    std::fs::write(&path, bytes).unwrap();
    to
}

#[test]
fn vectors_of_a_file_are_those_of_its_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    for case in [
        "bert",
        "xlm_roberta",
        "nomic_bert",
        "nomic_bert_moe",
        "modernbert",
        "qwen3",
        "gemma3_text",
        "lfm2",
    ] {
        let (file, folder) = (file(case, scratch.path()), folder(case, scratch.path()));
        assert!(cactus_import::gguf::may_make_vectors(&file), "{case}");
        let config = json(&golden("embedding", case).join("config_sentence_transformers.json"));
        for bits in [Bits::ThirtyTwo, Bits::Eight] {
            made(&file, &at("file"), bits).unwrap_or_else(|e| panic!("{case}: {e}"));
            made(&folder, &at("folder"), bits).unwrap();
            let [of_file, of_folder] = ["file", "folder"].map(|name| Embedder::open(&at(name), Some(2)).unwrap());
            assert_eq!(
                of_file.vectors().least_dimensions,
                of_folder.vectors().least_dimensions,
                "{case}"
            );
            for row in json(&golden("embedding", case).join("expected.json"))["texts"]
                .as_array()
                .unwrap()
            {
                let prompt = row["prompt"]
                    .as_str()
                    .map_or("", |name| config["prompts"][name].as_str().unwrap());
                let text = format!("{prompt}{}", row["text"].as_str().unwrap());
                let embed = |embedder: &Embedder| embedder.embed(Role::Plain, &[&text], &EmbedOptions::default());
                let (found, want) = (embed(&of_file).unwrap(), embed(&of_folder).unwrap());
                assert_eq!(found.tokens, [row["ids"].as_array().unwrap().len()], "{case}: {text}");
                if case == "gemma3_text" {
                    // The norms go through `w + 1 - 1`, which rounds.
                    let far = found.values.iter().zip(&want.values).map(|(f, w)| (f - w).abs());
                    let most = if bits == Bits::Eight { 1e-2 } else { 1e-5 };
                    let far = far.fold(0.0, f32::max);
                    assert!(far <= most, "{case} with {bits:?}: {text}: {far}");
                } else {
                    assert!(found == want, "{case} with {bits:?}: {text}");
                }
            }
        }
    }
}

#[test]
fn scores_of_a_file_are_those_of_its_folder() {
    let scratch = tempfile::tempdir().unwrap();
    for case in ["xlm_roberta_ranker", "modernbert_ranker", "qwen3_ranker"] {
        let path = scratch.path().join("file");
        made(&file(case, scratch.path()), &path, Bits::ThirtyTwo).unwrap_or_else(|e| panic!("{case}: {e}"));
        let reranker = Reranker::open(&path, Some(2)).unwrap();
        for row in json(&golden("embedding", case).join("expected.json"))["pairs"]
            .as_array()
            .unwrap()
        {
            let text = |key: &str| row[key].as_str().unwrap();
            let found = reranker
                .score(text("query"), &[text("document")], &RankOptions::default())
                .unwrap();
            assert_eq!(found.tokens, [row["ids"].as_array().unwrap().len()], "{case}");
            let far = f64::from(found.scores[0]) - row["score"].as_f64().unwrap();
            assert!(far.abs() < 1e-4, "{case}: {far}");
        }
    }
}

#[test]
fn what_a_file_does_not_say_is_said_at_conversion() {
    let scratch = tempfile::tempdir().unwrap();
    for (case, words) in [
        ("bert", &["prompts", "64"][..]),
        ("nomic_bert_moe", &["bias of the experts"]),
    ] {
        let outcome = made(&file(case, scratch.path()), &scratch.path().join(case), Bits::Eight).unwrap();
        for word in words {
            assert!(
                outcome.notes.iter().any(|note| note.contains(word)),
                "{case} {word}: {:?}",
                outcome.notes
            );
        }
    }
}

#[test]
fn file_that_would_give_other_numbers_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("bundle");
    for (case, words) in [("bert_ranker", "cls.weight"), ("lfm2_tokens", "dense_2.weight")] {
        let error = made(&file(case, scratch.path()), &to, Bits::Eight).unwrap_err();
        assert!(error.to_string().contains(words), "{case}: {error}");
    }
    // Keys of another name are not read.
    for (case, key, word) in [
        ("gemma3_text", "dense_3.weight", "dense_3"),
        ("qwen3_ranker", "tokenizer.chat_template.rerank", ""),
        ("bert", "bert.pooling_type", "mean"),
    ] {
        let path = file(case, scratch.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap();
        bytes[at + key.len() - 1] = b'X';
        std::fs::write(&path, bytes).unwrap();
        match made(&path, &to, Bits::Eight) {
            Ok(outcome) if word == "mean" => {
                assert!(outcome.notes.iter().any(|n| n.contains(word)), "{:?}", outcome.notes)
            }
            Ok(_) => assert!(word.is_empty(), "{case} {key}"),
            Err(error) => assert!(!word.is_empty() && error.to_string().contains(word), "{case}: {error}"),
        }
    }
}
