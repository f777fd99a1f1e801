//! `convert`, `eval` and `--lora` where something is unusual about the weights, the adapter or the texts.
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied")
}

fn cactus(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cactus"))
        .args(args)
        .current_dir(dir)
        .env("CACTUS_CACHE", dir.join("cache"))
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn ok(dir: &Path, args: &[&str]) -> String {
    let out = cactus(dir, args);
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Standard error of a run that must fail with a message, and leave nothing behind.
fn fails(dir: &Path, args: &[&str]) -> String {
    let before = std::fs::read_dir(dir).unwrap().count();
    let out = cactus(dir, args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(
        matches!(out.status.code(), Some(1 | 2)),
        "{args:?}: {:?} {err}",
        out.status
    );
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), before, "{args:?}");
    err
}

type Weights = HashMap<String, (Vec<usize>, Vec<f32>)>;

fn read_weights() -> Weights {
    let bytes = std::fs::read(golden().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            assert_eq!(view.dtype(), Dtype::F16);
            let values = view
                .data()
                .chunks_exact(2)
                .map(|b| half(u16::from_le_bytes([b[0], b[1]])));
            (name, (view.shape().to_vec(), values.collect()))
        })
        .collect()
}

/// A finite half-precision number.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        e => (1024.0 + fraction) * 2f32.powi(e - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

fn write_tensors(path: &Path, weights: &Weights) {
    let bytes: Vec<(&str, &[usize], Vec<u8>)> = weights
        .iter()
        .map(|(n, (shape, v))| (n.as_str(), &shape[..], v.iter().flat_map(|x| x.to_le_bytes()).collect()))
        .collect();
    let views = bytes
        .iter()
        .map(|(n, shape, b)| (*n, TensorView::new(Dtype::F32, shape.to_vec(), b).unwrap()));
    serialize_to_file(views, None, path).unwrap();
}

/// The tiny model with other weights, as a folder.
fn write_model(folder: &Path, weights: &Weights) {
    std::fs::create_dir_all(folder).unwrap();
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        std::fs::copy(golden().join(file), folder.join(file)).unwrap();
    }
    write_tensors(&folder.join("model.safetensors"), weights);
}

#[test]
fn weights_that_are_no_numbers_are_named_and_zero_rows_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let model = dir.join("model");
    let bad = "model.layers.1.self_attn.q_proj.weight";
    std::fs::create_dir(dir.join("out")).unwrap();
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (1e30, "1e30")] {
        let mut weights = read_weights();
        weights.get_mut(bad).unwrap().1[3 * 64 + 7] = value;
        write_model(&model, &weights);
        for args in [
            &["--bits", "4"][..],
            &["--bits", "2", "--calibrate"],
            &["--bits", "auto:3.2"],
            &["--bits", "8"],
        ] {
            let err = fails(dir, &[&["convert", "model", "out/m"], args].concat());
            assert!(
                err.contains("q_proj") && err.contains("row 3, column 7"),
                "{args:?}: {err}"
            );
            assert!(
                err.to_lowercase().contains(&shown.to_lowercase()) || value == 1e30,
                "{args:?}: {err}"
            );
            assert_eq!(std::fs::read_dir(dir.join("out")).unwrap().count(), 0, "{args:?}");
        }
    }
    // Half precision holds nothing above 65504, and nobody asked for half precision.
    let mut weights = read_weights();
    weights.get_mut(bad).unwrap().1[3 * 64 + 7] = 9e4;
    write_model(&model, &weights);
    std::fs::write(
        dir.join("policy.toml"),
        "bits = 4\n[[rule]]\npattern = \"*.q_proj.*\"\nbits = 8\n",
    )
    .unwrap();
    ok(
        dir,
        &[
            "convert",
            "model",
            "m",
            "--policy",
            "policy.toml",
            "--calibrate",
            "--force",
        ],
    );
    for (bits, packing) in [("4", "tcq4_g128"), ("16", "f16")] {
        let err = fails(dir, &["convert", "model", "n", "--bits", bits]);
        assert!(err.contains("row 3, column 7") && err.contains(packing), "{err}");
    }
    // A matrix of zeros, and one with rows of zeros.
    let mut weights = read_weights();
    weights.get_mut(bad).unwrap().1.fill(0.0);
    weights.get_mut("model.layers.0.mlp.gate_proj.weight").unwrap().1[..640].fill(0.0);
    write_model(&model, &weights);
    for bits in ["1", "2", "3", "4", "5", "6", "8"] {
        ok(
            dir,
            &["convert", "model", "m", "--bits", bits, "--calibrate", "--force"],
        );
        ok(dir, &["eval", "m", "--context", "32", "--chunks", "2"]);
    }
}

#[test]
fn texts_that_cannot_be_used_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_model(&dir.join("model"), &read_weights());
    std::fs::create_dir(dir.join("out")).unwrap();
    let deep = format!("{{\"text\": {}", "[".repeat(100_000));
    for (name, bytes, expected) in [
        ("empty.txt", &b""[..], "0 tokens"),
        ("short.txt", b"abc", "window"),
        ("binary.txt", &[0xff; 5000], "UTF-8"),
        ("rows.jsonl", b"{\"text\": 3}", "line 1"),
        ("deep.jsonl", deep.as_bytes(), "line 1"),
        ("list.jsonl", b"[1, 2]", "line 1"),
        ("control.txt", "\0\u{1}\u{7f}\u{feff}".repeat(2000).as_bytes(), "tokens"),
    ] {
        std::fs::write(dir.join(name), bytes).unwrap();
        for option in ["--calibrate", "--quality-text"] {
            let err = fails(dir, &["convert", "model", "out/m", "--bits", "4", option, name]);
            assert!(err.contains(expected), "{option} {name}: {err}");
            assert_eq!(
                std::fs::read_dir(dir.join("out")).unwrap().count(),
                0,
                "{option} {name}"
            );
        }
    }
    // One token over and over: moments of rank one.
    std::fs::write(dir.join("same.txt"), "a".repeat(20_000)).unwrap();
    ok(
        dir,
        &[
            "convert",
            "model",
            "m",
            "--bits",
            "3",
            "--calibrate",
            "same.txt",
            "--force",
        ],
    );
    ok(dir, &["eval", "m", "--context", "32", "--chunks", "2"]);
}

const A: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
const B: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

#[test]
fn an_adapter_is_merged_before_anything_is_quantized() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let adapter = dir.join("adapter");
    std::fs::create_dir(&adapter).unwrap();
    let config =
        json!({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "use_rslora": true, "target_modules": ["q_proj"]});
    std::fs::write(adapter.join("adapter_config.json"), config.to_string()).unwrap();
    let noise = |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 400.0).collect() };
    let (a, b) = (noise(2 * 64), noise(64 * 2));
    let mut tensors = Weights::new();
    tensors.insert(A.into(), (vec![2, 64], a.clone()));
    tensors.insert(B.into(), (vec![64, 2], b.clone()));
    write_tensors(&adapter.join("adapter_model.safetensors"), &tensors);

    write_model(&dir.join("model"), &read_weights());
    let mut weights = read_weights();
    let q = &mut weights.get_mut("model.layers.0.self_attn.q_proj.weight").unwrap().1;
    let factor = (8.0 / 2f64.sqrt()) as f32;
    for (o, row) in q.chunks_exact_mut(64).enumerate() {
        for (i, w) in row.iter_mut().enumerate() {
            *w += factor * (b[2 * o] * a[i] + b[2 * o + 1] * a[64 + i]);
        }
    }
    write_model(&dir.join("merged"), &weights);
    for bits in ["4", "8", "32"] {
        let convert = |source: &str, more: &[&str]| {
            let args = ["convert", source, "m", "--bits", bits, "--force", "--no-quality"];
            ok(dir, &[&args, more].concat());
            std::fs::read(dir.join("m/model.weights")).unwrap()
        };
        let (plain, merged) = (convert("model", &[]), convert("merged", &[]));
        assert!(
            plain != merged && convert("model", &["--lora", "adapter"]) == merged,
            "{bits}"
        );
    }
    let manifest = std::fs::read_to_string(dir.join("m/provenance.json")).unwrap();
    assert!(
        manifest.contains("adapter_model.safetensors") && manifest.contains("adapter `adapter` merged"),
        "{manifest}"
    );

    tensors.insert(A.into(), (vec![2, 32], a[..64].to_vec()));
    write_tensors(&adapter.join("adapter_model.safetensors"), &tensors);
    let err = fails(dir, &["convert", "model", "x", "--lora", "adapter"]);
    assert!(err.contains("expected A [2, 64]") && err.contains("q_proj"), "{err}");
    let err = fails(dir, &["convert", "model", "x", "--lora", "none"]);
    assert!(err.contains("adapter_config.json"), "{err}");
}

#[test]
fn tasks_are_asked_judged_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["convert", golden().to_str().unwrap(), "m"]);
    let rows = |rows: &[Value]| rows.iter().map(|r| format!("{r}\n")).collect::<String>();
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    let endings = |id: u32| json!({"id": format!("h{id}"), "ctx": "the quick", "endings": ["brown fox", "dog", "x"], "label": id % 3});
    write("h.jsonl", &rows(&(0..6).map(endings).collect::<Vec<_>>()));
    write("g.jsonl", &rows(&[json!({"question": "1 + 1?", "answer": "#### 2"})]));
    write(
        "p.jsonl",
        &rows(&[json!({"task_id": "p", "prompt": "def f():\n", "entry_point": "f", "test": "def check(f): pass"})]),
    );
    let call = json!({"id": "c", "question": [[{"role": "user", "content": "add"}]], "function": [{"name": "f", "parameters": {"type": "dict"}}]});
    write("c.jsonl", &rows(&[call]));
    write("a.jsonl", &rows(&[json!({"id": "c", "ground_truth": [{"f": {}}]})]));

    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let whole = read(&ok(
        dir,
        &["eval", "m", "--task", "hellaswag", "--data", "h.jsonl", "--json"],
    ));
    // Every ending is right twice, and the model always says the same.
    assert_eq!(
        (&whole["correct"], whole["cases"].as_array().unwrap().len()),
        (&json!(2), 6)
    );
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&std::fs::read(dir.join("h.jsonl")).unwrap()).unwrap();
    std::fs::write(dir.join("h.jsonl.gz"), packed.finish().unwrap()).unwrap();
    let args = ["eval", "m", "--task", "hellaswag", "--data", "h.jsonl.gz", "--json"];
    assert_eq!(read(&ok(dir, &args)), whole);
    let args = [
        "eval",
        "m",
        "--task",
        "hellaswag",
        "--data",
        "h.jsonl",
        "--results",
        "r.json",
        "--json",
    ];
    assert_eq!(read(&ok(dir, &args)), whole);
    // Cut the results off, as a run that was ended does: what is missing is asked again.
    let mut part = whole.clone();
    part["cases"].as_array_mut().unwrap().truncate(2);
    write("r.json", &part.to_string());
    let out = cactus(dir, &args);
    assert!(String::from_utf8_lossy(&out.stderr).contains("2 of 6 cases"), "{out:?}");
    assert_eq!(read(&String::from_utf8(out.stdout).unwrap()), whole);
    assert_eq!(read(&std::fs::read_to_string(dir.join("r.json")).unwrap()), whole);
    let err = fails(dir, &[&args[..], &["--limit", "3"]].concat());
    assert!(err.contains("another number of cases"), "{err}");

    let short = ["--max-new-tokens", "4", "--context", "256", "--json"];
    let ask = |args: &[&str]| read(&ok(dir, &[&["eval", "m"], args, &short].concat()));
    let found = ask(&["--task", "gsm8k", "--data", "g.jsonl"]);
    assert_eq!(found["cases"][0]["correct"], false);
    let found = ask(&["--task", "bfcl", "--data", "c.jsonl", "--answers", "a.jsonl"]);
    assert!(found["cases"][0]["why"].is_string());
    let err = fails(dir, &["eval", "m", "--task", "humaneval", "--data", "p.jsonl"]);
    assert!(
        err.contains("--allow-code-execution") && err.contains("no sandbox"),
        "{err}"
    );
    if Command::new("python3")
        .arg("-c")
        .arg("import resource")
        .status()
        .is_ok_and(|s| s.success())
    {
        let found = ask(&["--task", "humaneval", "--data", "p.jsonl", "--allow-code-execution"]);
        assert_eq!(found["cases"].as_array().unwrap().len(), 1);
    } else {
        eprintln!("SKIPPED: no python3 with `resource` to run an answer with");
    }

    let perplexity = read(&ok(dir, &["eval", "m", "--context", "64", "--json"]));
    assert!(perplexity["perplexity"].as_f64().unwrap() > 1.0 && perplexity["tokens"].as_u64().unwrap() > 30);
    write("packed.gz", "");
    std::fs::write(dir.join("packed.gz"), [0x1f, 0x8b, 8]).unwrap();
    for (args, expected) in [
        (&["--task", "gsm8k"][..], "--data"),
        (&["--data", "g.jsonl"], "--task"),
        (&["--task", "gsm8k", "--data", "none"], "none"),
        (&["--task", "gsm8k", "--data", "none"], "`--data`"),
        (&["--task", "gsm8k", "--data", "h.jsonl"], "line 1"),
        (&["--task", "gsm8k", "--data", "packed.gz"], "cannot be unpacked"),
        (
            &["--task", "gsm8k", "--data", "g.jsonl", "--answers", "a.jsonl"],
            "BFCL",
        ),
        (&["--task", "bfcl", "--data", "c.jsonl"], "answers"),
        (&["--task", "gsm8k", "--data", "g.jsonl", "--against", "m"], "--against"),
    ] {
        let err = fails(dir, &[&["eval", "m"], args].concat());
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}
