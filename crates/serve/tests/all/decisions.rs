//! Decisions over HTTP, with a tiny model behind the real scheduler: how likely an answer is, is what scoring it directly says, and
//! the same in bits however the questions are asked.

use crate::support::{Server, bundle};
use cactus_engine::{LoadOptions, Model};
use cactus_serve::models::Source;
use cactus_serve::protocol::{decisions, openai};
use serde_json::{Value, json};

const INPUT: &str = "The package arrived with a broken screen, and nobody answers the telephone.";

fn questions() -> Vec<Value> {
    let mut questions = vec![
        json!({"type": "predicate", "name": "damaged", "instructions": "Is the item damaged?"}),
        json!({"type": "choice", "instructions": [{"type": "input_text", "text": "Who handles it?"}],
            "choices": [{"value": "no"}, {"value": "no problem", "description": "nobody"}, {"value": true}, {"value": "true"}]}),
        json!({"type": "score", "name": "urgency", "instructions": "How urgent is it?",
            "levels": [{"label": "low"}, {"label": "medium"}, {"label": "high", "description": "today"}]}),
    ];
    let more = (0..20).map(|i| json!({"type": "predicate", "instructions": format!("Is it number {i}?")}));
    questions.extend(more);
    questions
}

fn body(questions: &[Value]) -> Value {
    json!({"model": "tiny", "input": INPUT, "questions": questions})
}

fn answers(server: &Server, questions: &[Value]) -> Vec<Value> {
    let reply = server.post("/v1/decisions", &body(questions)).json();
    reply["answers"].as_array().unwrap().clone()
}

fn numbers(list: &Value) -> Vec<f64> {
    let of = |one: &Value| one["probability"].as_f64().unwrap();
    list.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn decisions_have_the_form_of_the_api_and_the_numbers_of_direct_scoring() {
    let server = Server::new();
    let reply = server.post("/v1/decisions", &body(&questions())).json();
    assert_eq!((&reply["model"], &reply["calibrated"]), (&json!("tiny"), &json!(false)));
    let usage = &reply["usage"];
    assert_eq!(usage["output_tokens"], 0);
    assert_eq!(usage["total_tokens"], usage["input_tokens"]);
    let cached = usage["input_tokens_details"]["cached_tokens"].as_f64().unwrap();
    assert!(
        cached > 0.5 * usage["input_tokens"].as_f64().unwrap(),
        "the input is computed once: {usage}"
    );

    let [predicate, choice, score, ..] = &reply["answers"].as_array().unwrap()[..] else {
        panic!("{reply}");
    };
    assert_eq!(
        (&predicate["type"], &predicate["name"]),
        (&json!("predicate"), &json!("damaged"))
    );
    assert_eq!((&choice["type"], &choice["name"]), (&json!("choice"), &Value::Null));
    let values: Vec<&Value> = choice["probabilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["value"])
        .collect();
    assert_eq!(
        values,
        [&json!("no"), &json!("no problem"), &json!(true), &json!("true")]
    );
    let of_choice = numbers(&choice["probabilities"]);
    let best = of_choice.iter().copied().fold(0.0, f64::max);
    let place = of_choice.iter().position(|&p| p == best).unwrap();
    assert_eq!(&choice["choice"], values[place]);
    assert!((choice["confidence"].as_f64().unwrap() - (best - 0.25) / 0.75).abs() < 1e-12);
    let of_score = numbers(&score["probabilities"]);
    assert_eq!(score["probabilities"][2]["label"], "high");
    assert_eq!(score["probabilities"][2]["value"], 2);
    assert!((score["score"].as_f64().unwrap() - (of_score[1] + 2.0 * of_score[2])).abs() < 1e-12);
    for list in [&of_choice, &of_score] {
        assert!((list.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    // Directly: each answer as a whole sequence, in a session of its own.
    let load = LoadOptions {
        context_tokens: 4096,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let model = Model::load(bundle(), &load).unwrap();
    let request = openai::decisions::request(&body(&questions())).unwrap();
    let p = predicate["probability"].as_f64().unwrap();
    for (question, found) in request.questions[..3]
        .iter()
        .zip([&vec![p, 1.0 - p], &of_choice, &of_score])
    {
        let choices = decisions::choices(&model, INPUT, question, 0).unwrap();
        let begins = |answer: &Vec<u32>| {
            let tokens = [choices.prompt(), answer].concat();
            let mut session = model.session().unwrap();
            session.score(&tokens, choices.prompt().len()).unwrap().logprob.exp()
        };
        let mut exact: Vec<f64> = choices.answers().iter().map(begins).collect();
        if choices.answers()[1].starts_with(&choices.answers()[0]) {
            exact[0] -= exact[1];
        }
        let sum: f64 = exact.iter().sum();
        for (found, exact) in found.iter().zip(&exact) {
            assert!(
                (found - exact / sum).abs() < 1e-9,
                "{question:?}: {found} {}",
                exact / sum
            );
        }
    }
    assert!(
        decisions::choices(&model, INPUT, &request.questions[1], 0)
            .is_ok_and(|c| c.answers()[1].starts_with(&c.answers()[0])),
        "one answer begins another"
    );
}

#[test]
fn what_a_bundle_has_learned_moves_its_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let learned = folder.path().join("m");
    copy(bundle(), &learned);
    let load = LoadOptions {
        context_tokens: 256,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let mut calibration = decisions::Calibration::new(&Model::load(&learned, &load).unwrap()).unwrap();
    let fitted = |temperature, shift| decisions::Fitted {
        temperature,
        shift,
        cases: 100,
    };
    calibration.set(decisions::Kind::Predicate, fitted(2.0, -0.5));
    calibration.set(decisions::Kind::Choice, fitted(0.5, 0.0));
    let write = |document: &[u8]| cactus_bundle::amend(&learned, cactus_engine::DECISIONS_PATH, document).unwrap();
    write(&calibration.to_json());
    let source = |name: &str, folder: &std::path::Path| Source {
        name: name.to_owned(),
        ..Source::folder(folder)
    };
    let server = |learned| Server::of(vec![source("plain", bundle()), source("learned", learned)], |_, _| {});
    let ask = |server: &Server, model: &str, questions: &[Value]| {
        let body = json!({"model": model, "input": INPUT, "questions": questions});
        server.post("/v1/decisions", &body)
    };
    let open = server(&learned);
    let (plain, moved) = (
        ask(&open, "plain", &questions()[..2]).json(),
        ask(&open, "learned", &questions()[..2]).json(),
    );
    assert_eq!(
        (&plain["calibrated"], &moved["calibrated"]),
        (&json!(false), &json!(true))
    );
    let p = |reply: &Value| reply["answers"][0]["probability"].as_f64().unwrap();
    let odds = |p: f64| (p / (1.0 - p)).ln();
    assert!(
        (odds(p(&moved)) - (odds(p(&plain)) / 2.0 - 0.5)).abs() < 1e-9,
        "{moved}"
    );
    let [before, after] = [&plain, &moved].map(|reply| numbers(&reply["answers"][1]["probabilities"]));
    let squares: f64 = before.iter().map(|p| p * p).sum();
    for (before, after) in before.iter().zip(&after) {
        assert!((after - before * before / squares).abs() < 1e-9, "{moved}");
    }
    // Nothing was learned of levels, so not all of these are calibrated, and those are as they were.
    let all = ask(&open, "learned", &questions()[..3]).json();
    assert_eq!(
        (&all["calibrated"], &all["answers"][0]),
        (&json!(false), &moved["answers"][0])
    );

    write(b"{\"version\": 1}");
    let error = ask(&server(&learned), "learned", &questions()[..1]).error(500);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("decisions.json") && message.contains("calibrate the bundle again"),
        "{error}"
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn decisions_have_the_same_bits_alone_together_and_on_more_threads() {
    let questions = questions();
    let server = Server::new();
    let expected = answers(&server, &questions);
    assert_eq!(answers(&server, &questions), expected, "from the prefix cache");
    let alone: Vec<Value> = questions
        .iter()
        .flat_map(|q| answers(&server, std::slice::from_ref(q)))
        .collect();
    assert_eq!(alone, expected, "one by one");
    let other = Server::with(|_, limits| {
        limits.load.threads = Some(2);
        limits.load.chunk_tokens = 40;
        limits.scheduler.prefix_cache = false;
        limits.scheduler.sequences = 3;
        limits.scheduler.queue = 2;
    });
    assert_eq!(
        answers(&other, &questions),
        expected,
        "otherwise split, with a short queue"
    );
    let mut reversed = questions;
    reversed.reverse();
    let mut found = answers(&other, &reversed);
    found.reverse();
    assert_eq!(found, expected, "in another order");
}

#[test]
fn conversations_are_read_as_what_was_said() {
    let read = |input: Value| {
        let question = json!({"type": "predicate", "instructions": "Is it?"});
        let body = json!({"input": input, "questions": [question]});
        openai::decisions::request(&body).map(|request| request.input)
    };
    assert_eq!(read(json!([{"role": "user", "content": " Hi "}])).unwrap(), " Hi ");
    let data = json!({"type": "input_json", "data": {"a": [1]}});
    let input = json!([
        {"type": "message", "role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}, data]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"Bern\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
    ]);
    let expected = "[developer]\nBe kind.\n\n[user]\nWeather?\n{\"a\":[1]}\n\n[call of weather]\n{\"city\": \"Bern\"}\n\n\
                    [result of the call]\nsunny\n\n[assistant]\nSunny.";
    assert_eq!(read(input).unwrap(), expected);
}

#[test]
fn fields_that_are_wrong_are_named() {
    let question = json!({"type": "predicate", "instructions": "Is it?"});
    let choice = |choices: Value| json!([{"type": "choice", "instructions": "Which?", "choices": choices}]);
    let many: Vec<Value> = (0..256).map(|i| json!({"value": i.to_string()})).collect();
    let result = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]);
    for (input, questions, param) in [
        (json!(null), json!([question]), "input"),
        (json!(" "), json!([question]), "input"),
        (json!(7), json!([question]), "input"),
        (json!([]), json!([question]), "input"),
        (json!([5]), json!([question]), "input[0]"),
        (
            json!([{"role": "robot", "content": "x"}]),
            json!([question]),
            "input[0].role",
        ),
        (json!([{"role": "user"}]), json!([question]), "input[0].content"),
        (image, json!([question]), "input[0].content[0].type"),
        (result, json!([question]), "input[0].call_id"),
        (json!([{"type": "reasoning"}]), json!([question]), "input[0].type"),
        (json!("x"), json!(null), "questions"),
        (json!("x"), json!([]), "questions"),
        (json!("x"), json!(vec![question.clone(); 401]), "questions"),
        (json!("x"), json!(["Is it?"]), "questions[0]"),
        (json!("x"), json!([{"instructions": "Is it?"}]), "questions[0].type"),
        (
            json!("x"),
            json!([{"type": "noul", "instructions": "Is it?"}]),
            "questions[0].type",
        ),
        (json!("x"), json!([{"type": "predicate"}]), "questions[0].instructions"),
        (
            json!("x"),
            json!([{"type": "predicate", "instructions": ""}]),
            "questions[0].instructions",
        ),
        (
            json!("x"),
            json!([{"type": "predicate", "instructions": "x", "name": 5}]),
            "questions[0].name",
        ),
        (
            json!("x"),
            json!([question, {"type": "choice", "instructions": "x"}]),
            "questions[1].choices",
        ),
        (json!("x"), choice(json!([{"value": "a"}])), "questions[0].choices"),
        (json!("x"), choice(json!(many)), "questions[0].choices"),
        (
            json!("x"),
            choice(json!([{"value": "a"}, {"value": 1}])),
            "questions[0].choices[1].value",
        ),
        (
            json!("x"),
            choice(json!([{"value": "a"}, {"value": " a"}])),
            "questions[0].choices[1].value",
        ),
        (
            json!("x"),
            choice(json!([{"value": "a"}, {"value": ""}])),
            "questions[0].choices[1].value",
        ),
        (
            json!("x"),
            json!([{"type": "score", "instructions": "x", "levels": [{"label": "a"}, {"label": true}]}]),
            "questions[0].levels[1].label",
        ),
    ] {
        let body = json!({"input": input, "questions": questions});
        let error = openai::decisions::request(&body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{error}");
    }
}

#[test]
fn decisions_that_cannot_be_made_are_refused_over_http() {
    let server = Server::new();
    let long = json!({"input": "word ".repeat(40_000), "questions": questions()});
    let error = server.post("/v1/decisions", &long).error(400);
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let error = server.post(
        "/v1/decisions",
        &json!({"model": "none", "input": "x", "questions": questions()}),
    );
    assert_eq!(error.error(404)["error"]["code"], "model_not_found");
    // Whoever has gone leaves nothing behind that is computed.
    let many: Vec<Value> = (0..400)
        .map(|i| json!({"type": "predicate", "instructions": format!("Is it {i}?")}))
        .collect();
    let stream = server.open("/v1/decisions", &body(&many));
    server.wait("it is computed", |server| server.metric("prompt_tokens") > 0.0);
    drop(stream);
    server.wait("it has ended", |server| {
        server.metric("requests_running") + server.metric("requests_waiting") == 0.0
    });
}
