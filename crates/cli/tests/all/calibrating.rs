//! `calibrate`: what a bundle learns of its own confidence, and what it refuses to learn.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a tiny model `m`, which by itself answers nothing of sense.
struct Cactus(tempfile::TempDir);

impl Cactus {
    fn new() -> Self {
        let cactus = Cactus(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
        let made = cactus.run(&["convert", source.to_str().unwrap(), "m"]);
        assert!(made.status.success(), "{made:?}");
        cactus
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_cactus"))
            .args(args)
            .current_dir(self.0.path())
            .env("CACTUS_CACHE", self.path("cache"))
            .env("CACTUS_STATE", self.path("state"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn fails(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {out:?}");
        String::from_utf8(out.stderr).unwrap()
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn write_lines(&self, name: &str, lines: impl Iterator<Item = Value>) {
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Questions, and calls that are right of them.
    fn write_cases(&self, n: usize, right: impl Fn(usize) -> Value) {
        let tool = json!({"name": "pick", "parameters": {"type": "dict", "required": ["n", "ok"], "properties": {
            "n": {"type": "integer", "enum": [1, 2, 3]}, "ok": {"type": "boolean"}}}});
        let question = |i: usize| format!("Pick {} for {}", "the lazy dog ".repeat(i % 7), i * i);
        self.write_lines(
            "questions.jsonl",
            (0..n).map(|i| {
                json!({"id": format!("c{i}"), "question": [[{"role": "user", "content": question(i)}]], "function": [tool]})
            }),
        );
        self.write_lines(
            "answers.jsonl",
            (0..n).map(|i| json!({"id": format!("c{i}"), "ground_truth": [{"pick": right(i)}]})),
        );
    }
}

const ASK: [&str; 14] = [
    "calibrate",
    "m",
    "--task",
    "bfcl",
    "--data",
    "questions.jsonl",
    "--answers",
    "answers.jsonl",
    "--one-call",
    "--max-new-tokens",
    "200",
    "--threads",
    "1",
    "--results",
];

fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ASK[..], more].concat()
}

#[test]
fn calibration_is_written_shown_and_bound_to_its_bundle() {
    let c = Cactus::new();
    // What the model says is nobody's choice here, so it is asked once, and then told that some of it was right.
    c.write_cases(120, |_| json!({"n": [0], "ok": [true]}));
    let error = c.fails(&ask(&["first.json"]));
    assert!(
        error.contains("expected at least 100 answers with a score, with right and wrong"),
        "{error}"
    );
    assert!(!c.path("m/confidence.json").exists());
    let first = c.read("first.json");
    let said = |i: usize| {
        let answer: Value = serde_json::from_str(first["cases"][i]["answer"].as_str().unwrap()).unwrap();
        answer["calls"][0]["arguments"].clone()
    };
    let seen = &first["cases"][3]["gathered"]["seen"];
    let end = seen.as_array().unwrap().last().unwrap();
    assert_eq!(first["cases"][3]["group"], "pick");
    // Of `{"n": 1, "ok": true}` only the values count.
    assert!(
        end["values"].as_u64() < end["tokens"].as_u64() && end["values"].as_u64() > Some(0),
        "{seen}"
    );

    c.write_cases(120, |i| match i % 3 {
        0 => json!({"n": [0], "ok": [true]}),
        _ => json!({"n": [said(i)["n"]], "ok": [said(i)["ok"]]}),
    });
    let error = c.fails(&ask(&["first.json"]));
    assert!(error.contains("other data") && error.contains("first.json"), "{error}");
    let whole: Value = serde_json::from_str(&c.ok(&ask(&["second.json", "--json", "--dry-run"]))).unwrap();
    assert_eq!((&whole["written"], &whole["cases"]), (&json!(false), &json!(120)));
    // All questions are about one function.
    assert_eq!(whole["grouped"], json!(false));
    assert!(!c.path("m/confidence.json").exists());
    let text = c.ok(&ask(&["second.json"]));
    let right = c.read("second.json")["correct"].as_f64().unwrap();
    let expected = format!("120, {:.1} % right", 100.0 * right / 120.0);
    assert!(text.contains(&expected) && text.contains("AUROC"), "{text}");

    let section = c.read("m/confidence.json");
    assert_eq!((&section["cases"], &section["task"]), (&json!(120), &json!("bfcl")));
    // The key does not change with what was written.
    let key = c.read("second.json")["setup"].clone();
    for part in ["bundle", "template", "sampler"] {
        assert_eq!(section["key"][part], key[part], "{part}");
    }
    let again: Value = serde_json::from_str(&c.ok(&ask(&["second.json", "--json"]))).unwrap();
    assert_eq!(again["answers"], whole["answers"]);
    assert_eq!(c.read("m/confidence.json"), section);
    let shown = c.ok(&["inspect", "m", "--verify"]);
    assert!(
        shown.contains("learned from 120 answers (bfcl)") && !shown.contains("not used"),
        "{shown}"
    );

    // Asked in other words than it was learned with, it is not sure of anything, and says why.
    let tools = r#"{"name": "pick", "parameters": {"type": "object", "properties": {}}}"#;
    let routed = [
        "run",
        "m",
        "--cloud",
        "http://127.0.0.1:9/v1#x",
        "--prompt",
        "Hi",
        "--max-new-tokens",
        "200",
    ];
    for (more, want) in [
        (
            &["--tools", tools, "--tool-choice", "required", "--temperature", "0.5"][..],
            "made for other sampling",
        ),
        (&["--temperature", "0"], "does not hold for answers without tools"),
    ] {
        let out = c.run(&[&routed[..], more].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains(want) && !said.contains("nobody has calibrated"), "{said}");
    }
    // Where nothing is handed off, nobody asks how sure it is.
    let out = c.run(&[&routed[..], &["--handoff", "never"]].concat());
    assert!(!String::from_utf8(out.stderr).unwrap().contains("does not hold"));

    // With another template the bundle answers something else.
    let template = std::fs::read_to_string(c.path("m/chat_template.jinja")).unwrap();
    cactus_bundle::amend(&c.path("m"), "chat_template.jinja", format!("{template} ").as_bytes()).unwrap();
    let shown = c.ok(&["inspect", "m"]);
    assert!(
        shown.contains("not used") && shown.contains("another template"),
        "{shown}"
    );
    let error = c.fails(&ask(&["second.json"]));
    assert!(error.contains("another chat template"), "{error}");
}

#[test]
fn what_cannot_be_learned_from_is_refused_before_anything_is_asked() {
    let c = Cactus::new();
    c.write_cases(3, |_| json!({"n": [1], "ok": [true]}));
    let error = c.fails(&ask(&["few.json"]));
    assert!(error.contains("at least 100") && error.contains("found"), "{error}");
    let error = c.fails(&ask(&["r.json", "--also", "questions.jsonl"]));
    assert!(error.contains("not a file of task results"), "{error}");
    assert!(!c.path("r.json").exists());
    let out = c.run(&ask(&["r.json", "--max-error", "1.5"]));
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn decisions_are_learned_kind_by_kind_and_bound_to_their_bundle() {
    let c = Cactus::new();
    let ask = [
        "calibrate",
        "m",
        "--task",
        "decisions",
        "--data",
        "known.jsonl",
        "--threads",
        "1",
    ];
    let line = |i: usize| {
        let mut questions = vec![
            json!({"type": "predicate", "instructions": "Is it so?", "answer": i.is_multiple_of(3)}),
            json!({"type": "choice", "instructions": "Which?", "answer": if i.is_multiple_of(2) { "a" } else { "b" },
                "choices": [{"value": "a"}, {"value": "b"}, {"value": "c"}]}),
        ];
        if i < 20 {
            questions.push(json!({"type": "score", "instructions": "How much?", "answer": "low",
                "levels": [{"label": "low"}, {"label": "high"}]}));
        }
        json!({"input": format!("Number {}", i * i), "questions": questions})
    };
    c.write_lines("known.jsonl", (0..99).map(line));
    let error = c.fails(&ask);
    assert!(error.contains("at least 100 of one kind"), "{error}");
    c.write_lines("known.jsonl", (0..120).map(line));
    let error = c.fails(&[&ask[..], &["--results", "r.json"]].concat());
    assert!(error.contains("`--results` is for answers that are written"), "{error}");
    let found: Value = serde_json::from_str(&c.ok(&[&ask[..], &["--json", "--dry-run"]].concat())).unwrap();
    assert!(!c.path("m/decisions.json").exists());
    let kinds = found["kinds"].as_array().unwrap();
    let names: Vec<&Value> = kinds.iter().map(|kind| &kind["kind"]).collect();
    // Twenty levels are too few to learn from.
    assert_eq!(names, ["predicate", "choice"]);
    for kind in kinds {
        assert_eq!(kind["cases"], 120);
        let nats = |i: usize| kind["nats"][i].as_f64().unwrap();
        assert!(nats(1) <= nats(0) + 0.05, "{kind}");
    }
    let text = c.ok(&ask);
    assert!(text.contains("predicate") && text.contains("yes moved by"), "{text}");
    let written = c.read("m/decisions.json");
    assert_eq!(written["predicate"], kinds[0]["fitted"]);
    assert_eq!(written["score"], json!(null));
    let shown = c.ok(&["inspect", "m", "--verify"]);
    let expected = "learned yes or no from 120 questions, choices from 120 questions";
    assert!(shown.contains(expected) && !shown.contains("not used"), "{shown}");
    let template = std::fs::read_to_string(c.path("m/chat_template.jinja")).unwrap();
    cactus_bundle::amend(&c.path("m"), "chat_template.jinja", format!("{template} ").as_bytes()).unwrap();
    assert!(c.ok(&["inspect", "m"]).contains("not used"));
}
