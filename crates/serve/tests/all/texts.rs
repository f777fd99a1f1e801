//! Vectors of texts and scores of documents over HTTP.

use crate::support::{Server, bundle};
use base64::Engine as _;
use cactus_embed::{EmbedOptions, Embedder, RankOptions, Reranker, Role};
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bundles of the tiny models `bert` and `bert_ranker`, made once.
fn bundles() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<(tempfile::TempDir, [PathBuf; 2])> = OnceLock::new();
    let (_, paths) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["bert", "bert_ranker"].map(|name| {
            let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../golden/embedding")
                .join(name);
            let path = folder.path().join(name);
            convert(&golden, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
            path
        });
        (folder, paths)
    });
    paths
}

fn server() -> Server {
    let writer = Source {
        name: "tiny".to_owned(),
        ..Source::folder(bundle())
    };
    let texts = bundles().iter().map(|path| Source::folder(path));
    Server::of([writer].into_iter().chain(texts).collect(), |_, _| {})
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    data.iter()
        .enumerate()
        .map(|(i, item)| {
            assert_eq!(item["index"], i);
            match &item["embedding"] {
                Value::String(text) => {
                    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
                    bytes
                        .chunks(4)
                        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
                        .collect()
                }
                list => list
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|x| x.as_f64().unwrap() as f32)
                    .collect(),
            }
        })
        .collect()
}

#[test]
fn embeddings_of_every_form_of_input_are_those_of_the_library() {
    let server = server();
    let embedder = Embedder::open(&bundles()[0], Some(1)).unwrap();
    let want = |role, texts: &[&str]| {
        let made = embedder.embed(role, texts, &EmbedOptions::default()).unwrap();
        let rows: Vec<Vec<f32>> = made.rows().map(<[f32]>::to_vec).collect();
        (rows, made.tokens.iter().sum::<usize>())
    };
    let ids = embedder.tokenizer().encode("the word", true).unwrap();
    let cases = [
        (json!({"input": "the word"}), want(Role::Plain, &["the word"])),
        (
            json!({"input": ["the word", "a"]}),
            want(Role::Plain, &["the word", "a"]),
        ),
        (json!({"input": ids}), want(Role::Plain, &["the word"])),
        (
            json!({"input": [ids, ids]}),
            want(Role::Plain, &["the word", "the word"]),
        ),
        (
            json!({"input": "the word", "input_type": "search_query"}),
            want(Role::Query, &["the word"]),
        ),
        (
            json!({"input": "the word", "input_type": "passage"}),
            want(Role::Document, &["the word"]),
        ),
        (
            json!({"input": "the word", "input_type": "task", "dimensions": 32}),
            want(Role::Task("task"), &["the word"]),
        ),
        (
            json!({"input": "the word", "encoding_format": "base64"}),
            want(Role::Plain, &["the word"]),
        ),
    ];
    for (mut request, (rows, tokens)) in cases {
        // The first model that makes vectors is meant where none is named.
        for model in [Some("bert"), None] {
            request["model"] = model.into();
            let answer = server.post("/v1/embeddings", &request).json();
            assert_eq!(vectors(&answer), rows, "{request}");
            assert_eq!(
                answer["usage"],
                json!({"prompt_tokens": tokens, "total_tokens": tokens})
            );
            assert_eq!((&answer["object"], &answer["model"]), (&"list".into(), &"bert".into()));
        }
    }
    let known = server.get("/v1/models").json();
    let kinds: Vec<&Value> = known["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["model_type"])
        .collect();
    assert_eq!(kinds, ["text", "embedding", "rerank"]);
}

#[test]
fn embeddings_that_cannot_be_made_name_the_field() {
    let server = server();
    let long = "the ".repeat(50);
    let cases = [
        (json!({"input": ["a", long]}), "input[1]", "context_length_exceeded"),
        (json!({"input": []}), "input", ""),
        (json!({"input": [[99_999]]}), "input[0]", ""),
        (json!({"input": "a", "dimensions": 8}), "dimensions", ""),
        (json!({"input": "a", "input_type": "poem"}), "input_type", ""),
        (json!({"input": "a", "truncate": "START"}), "truncate", ""),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format", ""),
        (json!({}), "input", ""),
    ];
    for (mut request, param, code) in cases {
        request["model"] = "bert".into();
        let error = server.post("/v1/embeddings", &request).error(400);
        assert_eq!(error["error"]["param"], param, "{request}: {error}");
        if !code.is_empty() {
            assert_eq!(error["error"]["code"], code, "{request}: {error}");
        }
    }
    let cut = json!({"model": "bert", "input": long, "truncate": true});
    assert_eq!(server.post("/v1/embeddings", &cut).json()["usage"]["total_tokens"], 32);
    let many = json!({"model": "bert", "input": vec!["a"; 2049]});
    assert_eq!(
        server.post("/v1/embeddings", &many).error(400)["error"]["param"],
        "input"
    );
    let all = json!({"model": "bert", "input": vec!["a"; 2048]});
    assert_eq!(vectors(&server.post("/v1/embeddings", &all).json()).len(), 2048);

    // Models that do something else say what they do, and who can.
    let error = server
        .post("/v1/embeddings", &json!({"model": "tiny", "input": "a"}))
        .error(400);
    assert_eq!(error["error"]["code"], "no_embeddings");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("writes text") && message.contains("`bert` can do"),
        "{message}"
    );
    let error = server
        .post(
            "/v1/chat/completions",
            &json!({"model": "bert", "messages": [{"role": "user", "content": "Hi"}]}),
        )
        .error(400);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("/v1/embeddings") && message.contains("`tiny` can do"),
        "{message}"
    );
}

#[test]
fn documents_come_in_the_order_of_their_scores() {
    let server = server();
    let reranker = Reranker::open(&bundles()[1], Some(1)).unwrap();
    let documents = ["this is that", "he had it from you", "a", "which is the question"];
    let want = reranker
        .score("what is this", &documents, &RankOptions::default())
        .unwrap();
    let order = want.order();
    let request = json!({
        "model": "bert_ranker",
        "query": "what is this",
        "documents": [documents[0], {"text": documents[1]}, documents[2], documents[3]],
    });
    let answer = server.post("/v1/rerank", &request).json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    for (result, &index) in results.iter().zip(&order) {
        assert_eq!(result["index"], index);
        assert_eq!(result["relevance_score"].as_f64().unwrap() as f32, want.scores[index]);
        assert!(result.get("document").is_none());
    }
    assert_eq!(answer["usage"]["total_tokens"], want.tokens.iter().sum::<usize>());

    let mut two = request.clone();
    (two["top_n"], two["return_documents"]) = (2.into(), true.into());
    let answer = server.post("/v1/rerank", &two).json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(results[0]["document"]["text"], documents[order[0]]);

    let changed = |field: &str, value: Value| {
        let mut changed = request.clone();
        changed[field] = value;
        changed
    };
    for (wrong, param) in [
        (changed("documents", json!([])), "documents"),
        (changed("documents", json!(["a", 5])), "documents[1]"),
        (changed("documents", json!(["a", {"title": "b"}])), "documents[1].text"),
        (changed("documents", json!(["a", "the ".repeat(90)])), "documents[1]"),
        (changed("query", Value::Null), "query"),
        (changed("top_n", json!(0)), "top_n"),
        (changed("instruction", json!("be kind")), "instruction"),
    ] {
        let error = server.post("/v1/rerank", &wrong).error(400);
        assert_eq!(error["error"]["param"], param, "{wrong}: {error}");
    }
    let cut = changed("documents", json!(["the ".repeat(90)]));
    let mut cut = cut;
    cut["truncate"] = "END".into();
    assert_eq!(server.post("/v1/rerank", &cut).json()["usage"]["total_tokens"], 64);
    let error = server.post("/v1/rerank", &changed("model", json!("bert"))).error(400);
    assert_eq!(error["error"]["code"], "no_reranking");
}

#[test]
fn tools_are_chosen_by_what_a_model_of_vectors_says() {
    let server = server();
    let names = ["get_weather", "set_alarm", "send_mail", "play_song", "find_train"];
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "description": format!("{name} a plant the what")}});
    let tools: Vec<Value> = names.iter().map(tool).collect();
    let embedder = Embedder::open(&bundles()[0], Some(1)).unwrap();
    let mut chosen = Vec::new();
    for question in ["Umbrella?", "Wake me.", "Is this where it is?", "cactus"] {
        let texts = names.map(|name| format!("{}: {name} a plant the what", name.replace('_', " ")));
        let options = EmbedOptions {
            truncate: true,
            ..EmbedOptions::default()
        };
        let made = embedder.embed(Role::Document, &texts, &options).unwrap();
        let asked = embedder.embed(Role::Query, &[question], &options).unwrap().values;
        let near = made
            .rows()
            .map(|row| row.iter().zip(&asked).map(|(a, b)| a * b).sum::<f32>());
        let best = near
            .enumerate()
            .fold((0, f32::MIN), |best, (i, x)| if x > best.1 { (i, x) } else { best });
        let body = json!({"model": "tiny", "messages": [{"role": "user", "content": question}], "tools": tools, "most_tools": 1,
            "tool_choice": "required", "max_tokens": 200, "temperature": 0});
        // The second time its vectors are known.
        for _ in 0..2 {
            let answer = server.post("/v1/chat/completions", &body).json();
            let called = &answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
            assert_eq!(called, names[best.0], "{question}: {answer}");
        }
        chosen.push(best.0);
    }
    assert!(chosen.iter().any(|i| *i != chosen[0]), "{chosen:?}");
}
