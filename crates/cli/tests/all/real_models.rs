//! Real weights, where `CACTUS_TEST_MODELS` names the folder that `scripts/fetch_models.py` filled.

use std::path::PathBuf;
use std::process::Command;

fn model(file: &str) -> Option<PathBuf> {
    let path = std::env::var_os("CACTUS_TEST_MODELS").map(|dir| PathBuf::from(dir).join(file));
    let found = path.filter(|p| p.is_file());
    if found.is_none() {
        use std::io::Write;
        // Said loudly: a test that did nothing must not look like one that passed.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {file} is not in CACTUS_TEST_MODELS");
    }
    found
}

fn cactus(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_cactus"))
        .args(args)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn smollm2_says_paris_at_eight_bits() {
    let Some(source) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("m");
    let bundle = bundle.to_str().unwrap();
    cactus(&["convert", source.to_str().unwrap(), bundle]);
    let text = cactus(&[
        "run",
        bundle,
        "--raw",
        "--prompt",
        "The capital of France is",
        "--max-new-tokens",
        "4",
    ]);
    assert!(text.contains("Paris"), "{text}");
}

#[test]
fn gemma_and_qwen_continue_in_words() {
    for (file, prompt, word) in [
        ("gemma-3-270m-q4_k_m.gguf", "The opposite of hot is", "cold"),
        (
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "def add(a, b):\n    return",
            "a + b",
        ),
    ] {
        let Some(source) = model(file) else { continue };
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("m");
        let bundle = bundle.to_str().unwrap();
        cactus(&["convert", source.to_str().unwrap(), bundle]);
        let text = cactus(&["run", bundle, "--raw", "--prompt", prompt, "--max-new-tokens", "8"]);
        assert!(text.contains(word), "{file}: {text}");
    }
}
