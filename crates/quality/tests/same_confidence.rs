//! How sure a tiny model is of its answers, bit for bit: every tier of every architecture and every number of threads gives
//! what `golden/confidence.txt` says. So a router decides the same on every machine.
//!
//! After a change of the arithmetic that is meant, `CACTUS_UPDATE_GOLDEN=1 cargo test -p cactus-quality --test same_confidence`
//! writes the file anew; say why in the commit.

use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_hybrid::score::{Fit, Section};
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_quality::tasks::{Results, Setup, Task, TaskOptions, read_cases, run_task};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const UPDATE: &str = "CACTUS_UPDATE_GOLDEN";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// A fit that weighs every feature.
fn fit() -> Fit {
    let section = json!({
        "version": 1, "key": {"bundle": "", "template": "", "sampler": ""}, "task": "bfcl", "cases": 100,
        "combiner": {
            "mean": [-1.0, -4.0, -3.0, 2.0, 0.1, 0.2, 1.5, 3.0, 3.0, 0.0],
            "scale": [0.7, 2.0, 1.5, 1.1, 0.3, 0.9, 0.8, 1.3, 0.6, 1.0],
            "weight": [0.31, 0.17, 0.23, 0.41, 0.11, -0.13, -0.37, -0.19, -0.29, 0.05],
            "bias": 0.3
        },
        "calibrator": {"kind": "platt", "slope": 0.9, "offset": 0.1}, "certified": null
    });
    let section = Section::from_json(section.to_string().as_bytes()).unwrap();
    Fit {
        combiner: section.combiner,
        calibrator: section.calibrator,
    }
}

/// Confidence and features after each number of tokens that is kept, of an answer in words and of a call.
fn scores(bundle: &Path, threads: usize) -> String {
    let load = LoadOptions {
        context_tokens: 2048,
        threads: Some(threads),
        ..LoadOptions::default()
    };
    let model = Model::load(bundle, &load).unwrap();
    let words = json!({"id": "words", "question": "How many legs have two dogs?", "answer": "#### 8"});
    let tool = json!({"name": "pick", "parameters": {"type": "dict", "required": ["n", "word"], "properties": {
        "n": {"type": "integer"}, "word": {"type": "string", "enum": ["dog", "fox", "lazy"]}}}});
    let call = json!({"id": "call", "question": [[{"role": "user", "content": "pick a dog"}]], "function": [tool]});
    let answer = json!({"id": "call", "ground_truth": [{"pick": {"n": [1], "word": ["dog"]}}]});
    let mut lines = String::new();
    for (task, data, answers) in [
        (Task::Gsm8k, words.to_string(), None),
        (Task::Bfcl, call.to_string(), Some(answer.to_string())),
    ] {
        let cases = read_cases(task, &data, answers.as_deref()).unwrap();
        let options = TaskOptions {
            max_tokens: 120,
            constrained: task == Task::Bfcl,
            one_call: true,
            signals: true,
            ..TaskOptions::default()
        };
        let mut results = Results::new(Setup {
            task,
            data: String::new(),
            bundle: String::new(),
            template: String::new(),
            sampler: String::new(),
            cases: 1,
            max_tokens: 120,
            raw: false,
            constrained: options.constrained,
            one_call: true,
            signals: true,
        });
        let cancel = CancelToken::new();
        run_task(&model, &cases, &options, &cancel, &mut results, &mut |_| Ok(())).unwrap();
        let seen = &results.cases[0].gathered.as_ref().unwrap().seen;
        assert!(!seen.is_empty(), "{:?}", results.cases[0]);
        for seen in seen {
            let bits: Vec<String> = seen.features.iter().map(|x| format!("{:016x}", x.to_bits())).collect();
            let confidence = fit().confidence(&seen.features);
            assert!(confidence > 0.0 && confidence < 1.0);
            let (tokens, values) = (seen.tokens, seen.values);
            let _ = writeln!(
                lines,
                "{} {} {tokens} {values} {:016x} {}",
                bundle.file_name().unwrap().display(),
                task.name(),
                confidence.to_bits(),
                bits.join(" ")
            );
        }
    }
    lines
}

#[test]
fn confidence_has_the_golden_bits_on_every_tier_and_with_any_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = String::new();
    for case in ["qwen2_tied", "llama32"] {
        let path = dir.path().join(case);
        let options = ConvertOptions::default();
        convert(&golden().join("models").join(case), &path, &options, &mut |_, _| {}).unwrap();
        let lines = scores(&path, 1);
        assert_eq!(scores(&path, 2), lines, "{case}: two threads");
        found.push_str(&lines);
    }
    let file = golden().join("confidence.txt");
    if std::env::var_os(UPDATE).is_some_and(|v| v == "1") {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    let tier = Kernels::detect().unwrap().tier();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(
            found,
            expected,
            "{}: {tier} on {}",
            file.display(),
            std::env::consts::ARCH
        );
    }
    assert_eq!(found, expected);
    // A process has one tier, so others get one of their own. Under emulation the CPUs differ instead.
    let unset = |name| std::env::var_os(name).is_none();
    if unset("CACTUS_TEST_TIERS") && unset("CACTUS_ISA") {
        for kernels in Kernels::available() {
            let tier = kernels.tier().name();
            let mut test = Command::new(std::env::current_exe().unwrap());
            let test = test.env("CACTUS_ISA", tier).env_remove(UPDATE).output().unwrap();
            assert!(
                test.status.success(),
                "{tier}: {}",
                String::from_utf8_lossy(&test.stdout)
            );
        }
    }
}
