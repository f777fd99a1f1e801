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

/// GGUF files and the published `tokenizer.json` of the same vocabulary.
const PUBLISHED: [(&str, &str); 3] = [
    ("gemma-3-270m-q4_k_m.gguf", "gemma3"),
    ("llama.cpp/models/ggml-vocab-llama-bpe.gguf", "llama3"),
    ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen3"),
];

/// Texts with what trips tokenizers: scripts, emoji, white space of every kind, digits, code, special tokens.
const TEXTS: [&str; 12] = [
    "The quick brown fox doesn't jump; it's 12345.67 metres away, THEY'LL say.",
    "  two  three   four    spaces\tand\ttabs \r\n\r\n \n\n\n x\u{a0}y\u{3000}z \u{2028}",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n",
    "Привет, мир! Γειά σου Κόσμε. مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "你好，世界。こんにちは世界！안녕하세요 세계 ㄱㄴㄷ 1234567年",
    "🙂👍🏽👨\u{200d}👩\u{200d}👧\u{200d}👦🇩🇪 é e\u{301} ﬁ ½ ① Ⅳ ٣٤٥ ²",
    "<h1>Title</h1><table><tr><td>a</td></tr></table> <b> &amp; </p>",
    "https://example.com/a?b=c&d=%20#e user@example.com $100.00 50% #tag @name",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!!!!!----------====",
    "\u{0}\u{1}\u{7f}\u{fffd}\u{feff}",
    r#"{"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2, 3]}}"#,
    "'S 'RE don'T I'M ſ's ''''ve x\u{2581}lower\u{2581}block",
];

#[test]
fn derived_tokenizer_equals_the_published_one() {
    let Some(folder) = std::env::var_os("CACTUS_TEST_MODELS").map(PathBuf::from) else {
        eprintln!("SKIPPED: set CACTUS_TEST_MODELS to compare with published tokenizers");
        return;
    };
    for (file, name) in PUBLISHED {
        let (file, published) = (
            folder.join(file),
            folder.join("tokenizers").join(name).join("tokenizer.json"),
        );
        if !file.exists() || !published.exists() {
            eprintln!("SKIPPED: no {} or no {}", file.display(), published.display());
            continue;
        }
        let (derived, published) = (load(&file), Tokenizer::from_file(published).unwrap());
        let prose = std::fs::read_to_string(folder.join("text/alice29.txt")).unwrap_or_default();
        let paragraphs = prose.split("\r\n\r\n").chain(prose.split("\n\n"));
        for text in TEXTS.into_iter().chain(paragraphs) {
            let ids = |t: &Tokenizer| t.encode(text, false).unwrap().get_ids().to_vec();
            let (got, want) = (ids(&derived), ids(&published));
            assert_eq!(got, want, "{name} {text:?}");
            let back = |t: &Tokenizer| t.decode(&want, false).unwrap();
            assert_eq!(back(&derived), back(&published), "{name} {text:?}");
        }
    }
}
