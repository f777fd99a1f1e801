//! Cases of tasks asked of a tiny model, several at a time.

use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_import::{ConvertOptions, convert};
use cactus_quality::tasks::{Case, Results, Setup, Task, TaskOptions, read_cases, run_task};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

fn model(folder: &Path) -> Arc<Model> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
    let bundle = folder.join("bundle");
    convert(&golden, &bundle, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let load = LoadOptions {
        context_tokens: 512,
        threads: Some(2),
        ..LoadOptions::default()
    };
    Model::load(&bundle, &load).unwrap()
}

fn lines(rows: impl Iterator<Item = serde_json::Value>) -> String {
    rows.map(|row| format!("{row}\n")).collect()
}

/// Questions of different lengths, and one that does not fit the context.
fn words() -> Vec<Case> {
    let question = |i: usize| match i {
        4 => "legs ".repeat(600),
        i => format!("{}How many legs have {i} dogs?", "Listen. ".repeat(i)),
    };
    let rows =
        (0..9).map(|i| json!({"id": format!("q{i}"), "question": question(i), "answer": format!("#### {}", 4 * i)}));
    read_cases(Task::Gsm8k, &lines(rows), None).unwrap()
}

fn choices() -> Vec<Case> {
    let rows = (0..7).map(|i| {
        let endings: Vec<String> = (0..2 + i % 3)
            .map(|k| format!("{} {k} times.", "jumps ".repeat(k + 1)))
            .collect();
        json!({"ind": i, "ctx": format!("The fox number {i}"), "endings": endings, "label": i % 2})
    });
    read_cases(Task::HellaSwag, &lines(rows), None).unwrap()
}

fn calls() -> Vec<Case> {
    let tool = json!({"name": "pick", "parameters": {"type": "dict", "required": ["n", "word"], "properties": {
        "n": {"type": "integer"}, "word": {"type": "string", "enum": ["dog", "fox", "lazy"]}}}});
    let ask = |i: usize| json!([[{"role": "user", "content": format!("pick {i} dogs")}]]);
    let data = (0..5).map(|i| json!({"id": format!("c{i}"), "question": ask(i), "function": [tool]}));
    let answers =
        (0..5).map(|i| json!({"id": format!("c{i}"), "ground_truth": [{"pick": {"n": [i], "word": ["dog"]}}]}));
    read_cases(Task::Bfcl, &lines(data), Some(&lines(answers))).unwrap()
}

fn nothing(task: Task, cases: usize) -> Results {
    Results::new(Setup {
        task,
        data: String::new(),
        bundle: String::new(),
        template: String::new(),
        sampler: String::new(),
        cases,
        max_tokens: 40,
        raw: false,
        constrained: task == Task::Bfcl,
        one_call: false,
        signals: true,
    })
}

fn options(task: Task, streams: usize) -> TaskOptions {
    TaskOptions {
        max_tokens: 40,
        constrained: task == Task::Bfcl,
        signals: true,
        streams,
        ..TaskOptions::default()
    }
}

#[test]
fn answers_are_the_same_however_many_are_asked_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let cancel = CancelToken::new();
    for (task, cases) in [
        (Task::Gsm8k, words()),
        (Task::HellaSwag, choices()),
        (Task::Bfcl, calls()),
    ] {
        let ask = |streams: usize, known: Results| {
            let mut results = known;
            let mut seen = Vec::new();
            let mut each = |results: &Results| {
                seen.push(results.cases.len());
                Ok(())
            };
            let begun = results.cases.len();
            run_task(
                &model,
                &cases,
                &options(task, streams),
                &cancel,
                &mut results,
                &mut each,
            )
            .unwrap();
            assert_eq!(seen, (begun + 1..=cases.len()).collect::<Vec<_>>(), "{task:?}");
            results
        };
        let alone = ask(1, nothing(task, cases.len()));
        assert_eq!(
            alone.cases.iter().map(|c| &c.id).collect::<Vec<_>>(),
            cases.iter().map(|c| &c.id).collect::<Vec<_>>()
        );
        for streams in [2, 3, 16] {
            assert_eq!(
                ask(streams, nothing(task, cases.len())),
                alone,
                "{task:?}, {streams} at once"
            );
        }
        let mut begun = nothing(task, cases.len());
        alone.cases[..3].iter().for_each(|case| begun.push(case.clone()));
        assert_eq!(ask(4, begun), alone, "{task:?}, continued");
        match task {
            // One of them did not fit, and all others have an answer and how sure the model was of it.
            Task::Gsm8k => {
                let long = &alone.cases[4];
                assert!(
                    long.answer.is_empty() && long.why.as_ref().unwrap().contains("512"),
                    "{long:?}"
                );
                let others = alone.cases.iter().filter(|c| c.id != "q4");
                assert!(others.clone().all(|c| !c.answer.is_empty() && c.gathered.is_some()));
            }
            Task::Bfcl => assert!(
                alone
                    .cases
                    .iter()
                    .all(|c| c.answer.contains("calls") && c.gathered.is_some())
            ),
            _ => assert!(
                alone
                    .cases
                    .iter()
                    .all(|c| c.gathered.is_none() && c.answer.parse::<usize>().is_ok())
            ),
        }
    }
}

#[test]
fn a_run_ends_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let cases = words();
    let mut results = nothing(Task::Gsm8k, cases.len());
    let cancel = CancelToken::new();
    let mut stop = |results: &Results| {
        if results.cases.len() == 2 {
            cancel.cancel();
        }
        Ok(())
    };
    run_task(
        &model,
        &cases,
        &options(Task::Gsm8k, 3),
        &cancel,
        &mut results,
        &mut stop,
    )
    .unwrap();
    // Cases that had ended before may still be counted, those under way are not.
    assert!((2..=5).contains(&results.cases.len()), "{}", results.cases.len());
    let mut results = nothing(Task::Gsm8k, cases.len());
    let mut fail = |results: &Results| match results.cases.len() {
        3 => Err(Results::read(Path::new("missing")).unwrap_err()),
        _ => Ok(()),
    };
    let cancel = CancelToken::new();
    let error = run_task(
        &model,
        &cases,
        &options(Task::Gsm8k, 3),
        &cancel,
        &mut results,
        &mut fail,
    )
    .unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert_eq!(results.cases.len(), 3);
}
