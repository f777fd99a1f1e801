//! `cactus transpile` and what becomes of functions, as a user meets them; no Python is needed.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../golden/pt2/{case}"))
}

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cactus"))
        .args(args)
        .current_dir(dir)
        .env("CACTUS_CACHE", dir.join("cache"))
        .env("CACTUS_PYTHON", dir.join("no-python-here"))
        .output()
        .unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let out = run(dir, args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {err}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn error(dir: &Path, args: &[&str]) -> String {
    let out = run(dir, args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(matches!(out.status.code(), Some(1 | 2)), "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{err}");
    err
}

/// A `.npy` file.
fn npy(path: &Path, descr: &str, shape: [usize; 2], data: &[u8]) {
    let [rows, columns] = shape;
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

/// A capture of two components that read the same ids; the second's output has a name of its own.
fn capture(dir: &Path) -> PathBuf {
    std::fs::copy(golden("classifier.pt2"), dir.join("classifier.pt2")).unwrap();
    let text = r#"{"name": "two", "task": "pair", "components": [
        {"name": "first", "file": "classifier.pt2", "outputs": ["first_classes"]},
        {"name": "second", "file": "classifier.pt2", "outputs": ["classes"]}]}"#;
    let path = dir.join("capture.json");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_capture_of_several_components_is_one_bundle_that_runs_as_a_chain() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    capture(dir);
    let made = json(dir, &["transpile", "capture.json", "two", "--json", "--bits", "32"]);
    assert_eq!(made["tensors"], 10);
    let shown = json(dir, &["inspect", "two", "--json"]);
    assert_eq!(shown["task"], "pair");
    assert_eq!(shown["components"][1]["outputs"][0]["name"], "classes");
    let ids: Vec<u8> = [3i64, 4, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
    npy(&dir.join("ids.npy"), "<i8", [1, 3], &ids);
    let all = json(
        dir,
        &["run", "two", "--json", "--input", "0=ids.npy", "--output-dir", "out"],
    );
    let names: Vec<&str> = all["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first_classes", "classes"]);
    // The same weights and inputs: the same bytes, by name and by position.
    let bytes = |name: &str| std::fs::read(dir.join("out").join(name)).unwrap();
    assert_eq!(bytes("first_classes.npy"), bytes("classes.npy"));
    assert_eq!(bytes("1.npy"), bytes("classes.npy"));
    let one = json(
        dir,
        &["run", "two", "--json", "--component", "second", "--input-ids", "3,4,5"],
    );
    assert_eq!(one["outputs"].as_array().unwrap().len(), 1);

    let e = error(dir, &["run", "two", "--component", "third", "--input-ids", "3"]);
    assert!(e.contains("no component `third`; it has first, second"), "{e}");
    let e = error(dir, &["run", "two", "--input", "x=ids.npy"]);
    assert!(e.contains("there is no input `x`; the inputs are input_ids"), "{e}");
}

#[test]
fn an_output_feeds_the_input_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::copy(golden("lstm_step.pt2"), dir.join("step.pt2")).unwrap();
    let text = r#"{"name": "steps", "components": [
        {"name": "one", "file": "step.pt2", "outputs": ["h", "c"]},
        {"name": "two", "file": "step.pt2", "outputs": ["h2", "c2"]}]}"#;
    std::fs::write(dir.join("capture.json"), text).unwrap();
    json(dir, &["transpile", "capture.json", "steps", "--json"]);
    for (name, columns) in [("x", 6), ("h", 5), ("c", 5)] {
        let data: Vec<u8> = (0..2 * columns)
            .flat_map(|i| (i as f32 * 0.1 - 0.4).to_le_bytes())
            .collect();
        npy(&dir.join(format!("{name}.npy")), "<f4", [2, columns], &data);
    }
    let given = ["--input", "x=x.npy", "--input", "h=h.npy", "--input", "c=c.npy"];
    let chain = [&["run", "steps", "--json", "--output-dir", "chain"][..], &given].concat();
    json(dir, &chain);
    // The second step alone, from what the first gave.
    let second = [
        "--input",
        "x=x.npy",
        "--input",
        "h=chain/h.npy",
        "--input",
        "c=chain/c.npy",
    ];
    let alone = [
        &["run", "steps", "--json", "--output-dir", "alone", "--component", "two"][..],
        &second,
    ]
    .concat();
    json(dir, &alone);
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("chain/h2.npy"), bytes("alone/h2.npy"));
    assert_ne!(bytes("chain/h.npy"), bytes("chain/h2.npy"));
}

#[test]
fn bench_calls_functions() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    json(
        dir,
        &[
            "transpile",
            golden("minilm.pt2").to_str().unwrap(),
            "m",
            "--json",
            "--task",
            "function",
        ],
    );
    let rows = json(
        dir,
        &["bench", "m", "--json", "--prefill", "16", "--reps", "3", "--profile"],
    );
    assert_eq!(rows[0]["all_ms"].as_array().unwrap().len(), 3);
    assert!(rows[0]["median_ms"].as_f64().unwrap() > 0.0);
    // Beyond what it was captured for.
    let e = error(dir, &["bench", "m", "--prefill", "1000"]);
    assert!(e.contains("--prefill"), "{e}");
}

#[test]
fn sources_of_python_say_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for source in ["org/model", "model.py:Net", "weights.pt"] {
        let e = error(dir, &["transpile", source, "out"]);
        assert!(
            e.contains("CACTUS_PYTHON") && e.contains("pip install torch"),
            "{source}: {e}"
        );
    }
    std::fs::write(dir.join("weights.pt"), b"").unwrap();
    let e = error(dir, &["convert", "weights.pt", "out"]);
    assert!(e.contains("weights.pt") && e.contains("a zip is expected"), "{e}");
    std::fs::write(dir.join("program.pt2"), b"").unwrap();
    let e = error(dir, &["convert", "program.pt2", "out"]);
    assert!(e.contains("cactus transpile program.pt2 FOLDER"), "{e}");
    let e = error(dir, &["transpile", "missing/capture.json", "out"]);
    assert!(e.contains("capture.json"), "{e}");
    // What is named like a file is no model of the hub.
    for command in ["transpile", "convert"] {
        for source in ["missing.json", "missing.gguf"] {
            let e = error(dir, &[command, source, "out"]);
            assert!(
                e.contains(source) && e.contains("was not found"),
                "{command} {source}: {e}"
            );
        }
    }
}

#[test]
fn a_file_of_weights_is_packed_once_and_taken_by_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["classifier.pt", "classifier.pt2"] {
        std::fs::copy(golden(name), dir.join(name)).unwrap();
    }
    let made = json(dir, &["convert", "classifier.pt", "w", "--bits", "4", "--json"]);
    assert_eq!(made["tensors"], 5);
    assert!(dir.join("w/weights_manifest.json").is_file());
    for command in [
        vec!["run", "w", "--input", "x=x.npy"],
        vec!["inspect", "w", "--program"],
        vec!["run", "w"],
    ] {
        let err = error(dir, &command);
        assert!(
            err.contains("has only weights") && err.contains("--weights-dir w"),
            "{err}"
        );
    }
    let shown = run(dir, &["inspect", "w"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("only weights, no program") && !shown.contains("vocabulary"),
        "{shown}"
    );

    let command = ["transpile", "classifier.pt2", "smollm2", "--weights-dir", "w"];
    let all = [
        &command[..],
        &["--execute-after-transpile", "--result-json", "r.json", "--json"],
    ]
    .concat();
    let made = json(dir, &all);
    assert_eq!(made["components"][0]["outputs"][0]["shape"], serde_json::json!([1, 4]));
    let saved: Value = serde_json::from_slice(&std::fs::read(dir.join("r.json")).unwrap()).unwrap();
    assert_eq!(saved["components"], made["components"]);
    assert!(dir.join("smollm2/result.json").is_file());
    // The folder is meant before the known model of the same name, and takes arrays.
    let err = error(dir, &["run", "smollm2"]);
    assert!(
        err.contains("--input input_ids=input_ids.npy (input_ids is i64[1, seq])"),
        "{err}"
    );
    let long: Vec<u8> = [1i64; 65].iter().flat_map(|v| v.to_le_bytes()).collect();
    npy(&dir.join("long.npy"), "<i8", [1, 65], &long);
    let err = error(dir, &["run", "smollm2", "--input", "0=long.npy"]);
    assert!(err.contains("seq is at most 64, here seq = 65"), "{err}");
    let listed = run(dir, &["inspect", "smollm2", "--program"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("linear"), "{listed:?}");

    let err = error(dir, &command);
    assert!(err.contains("already there") && err.contains("--force"), "{err}");
    let err = error(
        dir,
        &["transpile", "classifier.pt2", "w", "--weights-dir", "w", "--force"],
    );
    assert!(err.contains("name another folder"), "{err}");
    for option in [
        "--prompt=x",
        "--example=x=f32[1]",
        "--components=a",
        "--component-pipeline=on",
        "--audio-file=x",
    ] {
        let err = error(dir, &["transpile", "classifier.pt2", "other", option]);
        let name = option.split('=').next().unwrap();
        assert!(err.contains(name) && err.contains("already captured"), "{err}");
    }
    let err = error(dir, &["convert", "classifier.pt", "v", "--calibrate"]);
    assert!(err.contains("`--calibrate` runs the model"), "{err}");
    assert!(dir.join("w/weights_manifest.json").is_file());
}

#[test]
fn the_graph_before_and_after_is_drawn_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::copy(golden("minilm.pt2"), dir.join("minilm.pt2")).unwrap();
    json(dir, &["transpile", "minilm.pt2", "m", "--json"]);
    assert!(
        run(dir, &["inspect", "m", "--graph", "both.svg", "--side-by-side"])
            .status
            .success()
    );
    let svg = std::fs::read_to_string(dir.join("both.svg")).unwrap();
    assert!(svg.contains("before optimization (") && svg.contains("after optimization ("));
    let err = error(dir, &["inspect", "m", "--graph", "both.dot", "--side-by-side"]);
    assert!(err.contains("only `.svg`"), "{err}");
}

/// The floats of a `.npy` file.
fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let data = &bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..];
    let (numbers, rest) = data.as_chunks::<4>();
    assert!(rest.is_empty());
    numbers.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

#[test]
fn a_language_model_is_a_function_with_states_and_generates_without() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let greedy: Value = serde_json::from_slice(&std::fs::read(golden("greedy.json")).unwrap()).unwrap();
    let numbers = |v: &Value| {
        v.as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    let text = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let (prompt, want) = (numbers(&greedy["tails"]["prompt"]), numbers(&greedy["tails"]["tokens"]));
    let data: Vec<u8> = prompt.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy(&dir.join("ids.npy"), "<i8", [1, prompt.len()], &data);
    let source = golden("tails.pt2").to_str().unwrap().to_owned();
    for (bundle, task) in [("states", "causal_lm_logits"), ("none", "function")] {
        let made = run(dir, &["transpile", &source, bundle, "--task", task]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // All logits of the sequence.
        for (to, given) in [("a", ["--input", "0=ids.npy"]), ("b", ["--input-ids", &text(&prompt)])] {
            let to = format!("{bundle}-{to}");
            let call = [&["run", bundle, "--json", "--output-dir", &to][..], &given].concat();
            let shape = &json(dir, &call)["outputs"][0]["shape"];
            assert_eq!(numbers(shape), [1, prompt.len() as i64, 48]);
        }
        // And its continuation.
        let out = run(
            dir,
            &[
                "run",
                bundle,
                "--input-ids",
                &text(&prompt),
                "--max-new-tokens",
                "24",
                "--kv",
                "f16",
            ],
        );
        let (found, notes) = (
            String::from_utf8(out.stdout).unwrap(),
            String::from_utf8(out.stderr).unwrap(),
        );
        assert_eq!(found.trim(), text(&want), "{notes}");
        assert_eq!(
            notes.contains("computed again for each token"),
            bundle == "none",
            "{notes}"
        );
        let most = run(
            dir,
            &["run", bundle, "--input-ids", &text(&prompt), "--max-new-tokens", "500"],
        );
        assert!(String::from_utf8(most.stderr).unwrap().contains("warning"), "{bundle}");
    }
    let file = |folder: &str| floats(&dir.join(folder).join("0.npy"));
    let (states, none) = (file("states-a"), file("none-a"));
    assert_eq!(states, file("states-b"));
    let off = states.iter().zip(&none).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(off < 1e-4 && states.iter().any(|&x| x < -1.0), "{off}");

    let both = [
        "run",
        "states",
        "--input-ids",
        "3,4",
        "--output-dir",
        "c",
        "--max-new-tokens",
        "3",
    ];
    assert!(error(dir, &both).contains("Leave one of them out"));
    let e = error(dir, &["run", "states", "--input", "x=ids.npy"]);
    assert!(e.contains("reads `input_ids` alone"), "{e}");
    let e = error(dir, &["run", "states", "--output-dir", "c", "-p", "Hello"]);
    assert!(e.contains("no prompt"), "{e}");
    let long = vec!["3"; 200].join(",");
    let e = error(dir, &["run", "none", "--input-ids", &long, "--max-new-tokens", "3"]);
    assert!(e.contains("128"), "{e}");
    let source = golden("classifier.pt2").to_str().unwrap().to_owned();
    json(dir, &["transpile", &source, "classifier", "--json"]);
    let e = error(
        dir,
        &["run", "classifier", "--input-ids", "3,4", "--max-new-tokens", "3"],
    );
    assert!(e.contains("cannot generate: its output is f32[1, 4]"), "{e}");
}
