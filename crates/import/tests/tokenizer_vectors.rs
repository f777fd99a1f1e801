//! Token ids of llama.cpp's test vectors (`models/ggml-vocab-*.gguf` with `.inp` and `.out`) through the derived
//! `tokenizer.json`.
//!
//! The files are tens of megabytes, so the test looks for them below the folder `CACTUS_TEST_MODELS`, at
//! `llama.cpp/models`, and says so where it is not set. The source package `llama-cpp-python` 0.3.36 has them.
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_import::gguf::{GgufFile, tokenizer};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// Every vocabulary with vectors whose tokenizer is supported.
const VOCABULARIES: [&str; 14] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

fn vectors_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CACTUS_TEST_MODELS")?).join("llama.cpp/models");
    assert!(
        folder.is_dir(),
        "CACTUS_TEST_MODELS is set and {} is not there",
        folder.display()
    );
    Some(folder)
}

fn load(path: &Path) -> Tokenizer {
    let bytes = std::fs::read(path).unwrap();
    let file = GgufFile::parse(&bytes).unwrap();
    let files = tokenizer::tokenizer(&file.metadata).unwrap().unwrap();
    Tokenizer::from_bytes(files.tokenizer_json).unwrap()
}

/// The texts of an `.inp` file and the ids of the `.out` file beside it.
fn cases(folder: &Path, name: &str) -> Vec<(String, Vec<u32>)> {
    let read =
        |extension: &str| std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{extension}"))).unwrap();
    let (inputs, outputs) = (read("inp"), read("out"));
    let mut texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
    // A separator after the last text leaves an empty one behind it.
    if texts.last() == Some(&"") {
        texts.pop();
    }
    let ids = outputs.lines().map(|line| {
        line.split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect::<Vec<u32>>()
    });
    let cases: Vec<_> = texts.into_iter().map(str::to_owned).zip(ids).collect();
    assert_eq!(cases.len(), outputs.lines().count(), "{name}");
    cases
}

#[test]
fn derived_tokenizer_gives_the_golden_ids() {
    let Some(folder) = vectors_folder() else {
        eprintln!("SKIPPED: set CACTUS_TEST_MODELS to a folder with llama.cpp/models to test tokenizers");
        return;
    };
    let mut failures = Vec::new();
    for name in VOCABULARIES {
        let tokenizer = load(&folder.join(format!("ggml-vocab-{name}.gguf")));
        let cases = cases(&folder, name);
        assert!(cases.len() > 20, "{name}");
        for (text, want) in cases {
            let got = tokenizer.encode(text.as_str(), false).unwrap().get_ids().to_vec();
            if got != want {
                failures.push(format!("{name} {text:?}\n  want {want:?}\n  got  {got:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
