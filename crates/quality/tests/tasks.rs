//! Cases of tasks asked of a tiny model, several at a time.

use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_import::{ConvertOptions, convert};
use cactus_quality::tasks::{Case, Question, Results, Setup, Task, TaskOptions, read_cases, run_task};
use serde_json::json;
use std::collections::BTreeSet;
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
            // What a session finds likeliest.
            _ => {
                let (mut session, tokenizer) = (model.session().unwrap(), model.tokenizer().unwrap());
                for (case, found) in cases.iter().zip(&alone.cases) {
                    let Question::Choice { context, endings, .. } = &case.question else {
                        panic!("{case:?}");
                    };
                    let first = tokenizer.encode(context, true).unwrap().len();
                    let mut mean = |ending: &String| {
                        let tokens = tokenizer.encode(&format!("{context} {ending}"), true).unwrap();
                        session.score(&tokens, first).unwrap().logprob / ending.chars().count() as f64
                    };
                    let means: Vec<f64> = endings.iter().map(&mut mean).collect();
                    let best = (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap();
                    assert_eq!(found.answer, best.to_string(), "{means:?}");
                    assert!(found.gathered.is_none());
                }
                let answers: BTreeSet<&String> = alone.cases.iter().map(|c| &c.answer).collect();
                assert!(answers.len() > 1, "{answers:?}");
            }
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

#[test]
fn a_case_that_cannot_be_asked_comes_after_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let mut cases = words();
    // Its tool has no name.
    cases[5].question = Question::Calls {
        messages: vec![json!({"role": "user", "content": "hello"})],
        tools: vec![json!({"type": "function", "function": {}})],
        expected: Vec::new(),
    };
    let options = TaskOptions {
        constrained: true,
        ..options(Task::Gsm8k, 16)
    };
    let mut results = nothing(Task::Gsm8k, cases.len());
    let cancel = CancelToken::new();
    let error = run_task(&model, &cases, &options, &cancel, &mut results, &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("q5"), "{error}");
    assert_eq!(results.cases.len(), 5, "{error}");
    assert!(!cancel.is_cancelled());
}
