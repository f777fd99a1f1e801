//! A vector of each token over HTTP.

use crate::support::{Server, embedder};
use base64::Engine as _;
use cactus_embed::{EmbedOptions, Matrix, Role, TokenEmbedder};
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A bundle of the tiny model `bert_tokens`, made once.
fn bundle() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bert_tokens");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/bert_tokens");
        convert(&golden, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        (folder, path)
    });
    path
}

fn server() -> Server {
    let sources = [embedder(), bundle()].map(Source::folder);
    Server::of(sources.into(), |_, _| {})
}

fn matrices(answer: &Value) -> Vec<Vec<f32>> {
    let numbers = |vector: &Value| -> Vec<f32> {
        match vector {
            Value::String(text) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
                bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
            }
            list => {
                let list = list.as_array().unwrap().iter();
                list.map(|x| x.as_f64().unwrap() as f32).collect()
            }
        }
    };
    let data = answer["data"].as_array().unwrap().iter().enumerate();
    data.map(|(i, item)| {
        assert_eq!((&item["index"], &item["object"]), (&json!(i), &json!("embeddings")));
        item["embeddings"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(numbers)
            .collect()
    })
    .collect()
}

#[test]
fn token_vectors_are_those_of_the_library() {
    let server = server();
    let library = TokenEmbedder::open(bundle(), Some(1)).unwrap();
    let texts = ["the and", "to be or not to be", "the"];
    let made = |role| library.embed(role, &texts, &EmbedOptions::default()).unwrap();
    let tokens = |made: &[Matrix]| made.iter().map(|matrix| matrix.tokens).sum::<usize>();
    assert_ne!(made(Role::Query), made(Role::Document));
    for (input_type, role) in [
        (json!("query"), Role::Query),
        (json!("document"), Role::Document),
        (json!("passage"), Role::Document),
        (Value::Null, Role::Document),
    ] {
        let want = made(role);
        let values: Vec<Vec<f32>> = want.iter().map(|matrix| matrix.values.clone()).collect();
        for (path, form) in [
            ("/v1/multi-vector", "float"),
            ("/v1/multi-vector", "base64"),
            ("/v1/embeddings", "float"),
        ] {
            let request = json!({"model": "bert_tokens", "input": ["the and", {"text": texts[1]}, texts[2]],
                "input_type": input_type, "encoding_format": form, "return_multivector": true});
            let answer = server.post(path, &request).json();
            assert_eq!(matrices(&answer), values, "{path} {input_type}");
            let count = tokens(&want);
            assert_eq!(answer["usage"], json!({"prompt_tokens": count, "total_tokens": count}));
        }
    }
    // The first model that does it is meant where none is named.
    let answer = server.post("/v1/multi-vector", &json!({"input": texts[0]})).json();
    assert_eq!(
        (&answer["model"], &answer["object"]),
        (&json!("bert_tokens"), &json!("list"))
    );
    let list = server.get("/v1/models").json();
    let types: Vec<&Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["model_type"])
        .collect();
    assert_eq!(types, ["embedding", "multi_vector"]);
}

#[test]
fn token_vectors_that_cannot_be_made_name_the_field() {
    let server = server();
    let long = "the ".repeat(200);
    for (field, value, param, word) in [
        ("input", json!(["a", long]), "input[1]", "tokens"),
        ("input", json!(["a", [5]]), "input[1]", "token ids"),
        ("input", json!({"image": "QUI="}), "input[0]", "picture"),
        ("input", json!(5), "input", "number"),
        ("input_type", json!("poem"), "input_type", "poem"),
        ("dimensions", json!(7), "dimensions", "7"),
        (
            "return_multivector",
            json!("yes"),
            "return_multivector",
            "true or false",
        ),
    ] {
        let mut request = json!({"model": "bert_tokens", "input": "a"});
        request[field] = value;
        let error = server.post("/v1/multi-vector", &request).error(400);
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(error["error"]["param"], param, "{message}");
        assert!(message.contains(word), "{word}: {message}");
    }
    let cut = json!({"model": "bert_tokens", "input": long, "truncate": true});
    let limit = TokenEmbedder::open(bundle(), Some(1))
        .unwrap()
        .vectors()
        .document
        .limit_tokens;
    assert_eq!(
        server.post("/v1/multi-vector", &cut).json()["usage"]["total_tokens"],
        limit
    );

    // Each kind of model says where it is asked, and who can do what was asked.
    for (path, model, code, words) in [
        (
            "/v1/multi-vector",
            "bert",
            "no_multi_vectors",
            ["/v1/embeddings", "`bert_tokens` can do"],
        ),
        (
            "/v1/embeddings",
            "bert_tokens",
            "no_embeddings",
            ["/v1/multi-vector", "`bert` can do"],
        ),
    ] {
        let error = server.post(path, &json!({"model": model, "input": "a"})).error(400);
        assert_eq!(error["error"]["code"], code, "{error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}
