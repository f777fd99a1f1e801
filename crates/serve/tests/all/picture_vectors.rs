//! Vectors of pictures over HTTP: every form of them, beside texts, and what is refused.

use crate::support::{Server, embedder};
use base64::Engine as _;
use cactus_embed::{EmbedOptions, Embedded, Embedder, Limits, PictureEmbedder, Role};
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bundles of the tiny models `clip_pictures` and `siglip`, made once.
fn bundles() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<(tempfile::TempDir, [PathBuf; 2])> = OnceLock::new();
    let (_, paths) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["clip_pictures", "siglip"].map(|name| {
            let path = folder.path().join(name);
            let source = golden("embedding").join(name);
            convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
            path
        });
        (folder, paths)
    });
    paths
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

fn server() -> Server {
    let sources = bundles().iter().map(PathBuf::as_path).chain([embedder()]);
    Server::of(sources.map(Source::folder).collect(), |_, _| {})
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(golden("pictures/files").join(name)).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn url(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(bytes))
}

fn row(made: &Embedded, index: usize) -> Vec<f32> {
    made.rows().nth(index).unwrap().to_vec()
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let numbers = |item: &Value| match &item["embedding"] {
        Value::String(text) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            let numbers = bytes.as_chunks().0.iter();
            numbers.map(|&b| f32::from_le_bytes(b)).collect()
        }
        list => {
            let list = list.as_array().unwrap().iter();
            list.map(|x| x.as_f64().unwrap() as f32).collect()
        }
    };
    let data = answer["data"].as_array().unwrap().iter().enumerate();
    data.map(|(i, item)| {
        assert_eq!((&item["index"], &item["object"]), (&json!(i), &json!("embedding")));
        numbers(item)
    })
    .collect()
}

#[test]
fn pictures_and_texts_get_the_vectors_of_the_library_in_their_order() {
    let server = server();
    let files = ["rgba.png", "turned_6.jpg", "exact.webp"].map(file);
    for (name, path) in ["clip_pictures", "siglip"].into_iter().zip(bundles()) {
        let options = EmbedOptions::default();
        let pictures = PictureEmbedder::open(path, Some(1)).unwrap();
        let pictures = pictures.embed_files(&files, &Limits::default(), &options).unwrap();
        let texts = Embedder::open(path, Some(1)).unwrap();
        let texts = texts.embed(Role::Plain, &["the and", "the"], &options).unwrap();
        let mixed = json!([
            {"image": url(&files[0])},
            "the and",
            {"type": "image_url", "image_url": {"url": url(&files[1])}},
            {"text": "the"},
            {"image": base64(&files[2])},
            {"type": "input_image", "image_url": url(&files[0])},
        ]);
        let want = [
            row(&pictures, 0),
            row(&texts, 0),
            row(&pictures, 1),
            row(&texts, 1),
            row(&pictures, 2),
            row(&pictures, 0),
        ];
        for form in ["float", "base64"] {
            let request = json!({"model": name, "input": mixed, "encoding_format": form});
            let answer = server.post("/v1/embeddings", &request).json();
            assert_eq!(vectors(&answer), want, "{name}");
            let [of_texts, of_pictures] = [texts.tokens.iter().sum(), pictures.tokens[0] * 4];
            assert_eq!(
                answer["usage"],
                json!({
                    "prompt_tokens": of_texts + of_pictures,
                    "total_tokens": of_texts + of_pictures,
                    "prompt_tokens_details": {"text_tokens": of_texts, "image_tokens": of_pictures},
                })
            );
        }
        // What pictures are for changes nothing, and truncation neither.
        let request = json!({"model": name, "input": {"image": url(&files[1])}, "input_type": "search_document",
            "truncate": true, "dimensions": pictures.dimensions});
        let answer = server.post("/v1/embeddings", &request).json();
        assert_eq!(vectors(&answer), [row(&pictures, 1)]);
        let request = json!({"model": name, "input": ["the and"]});
        let usage = &server.post("/v1/embeddings", &request).json()["usage"];
        assert!(usage.get("prompt_tokens_details").is_none(), "{usage}");
    }
}

#[test]
fn inputs_that_get_no_vector_are_refused_by_their_place() {
    let server = server();
    let good = url(&file("rgba.png"));
    let cut = url(&file("rgba.png")[..40]);
    // A small file whose header says that it has more pixels than are allowed.
    let mut large = file("smooth.jpg");
    let frame = large.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    large[frame + 5..frame + 9].fill(0xff);
    let cases = [
        (
            json!([{"image": "https://example.com/a.png"}]),
            "input[0].image",
            "addresses",
        ),
        (json!([{"image": "file:///etc/passwd"}]), "input[0].image", "addresses"),
        (
            json!(["a", {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]),
            "input[1].image_url.url",
            "addresses",
        ),
        (
            json!(["a", {"image": "data:image/png;base64,!!!"}]),
            "input[1]",
            "base64",
        ),
        (
            json!(["a", {"image": good}, "b", {"image": base64(b"GIF89a")}]),
            "input[3]",
            "GIF",
        ),
        (json!([{"image": good}, {"image": ""}]), "input[1]", "picture"),
        (json!([{"image": good}, {"image": cut}]), "input[1]", "PNG"),
        (json!([{"image": url(&large)}]), "input[0]", "65535"),
        (json!([{"image": good, "text": "a"}]), "input[0].image", "two inputs"),
        (json!([{"image": good}, {}]), "input[1]", "`image`"),
        (
            json!([{"type": "input_audio", "input_audio": {"data": ""}}]),
            "input[0].type",
            "audio",
        ),
        (json!([{"image": good}, "the ".repeat(99)]), "input[1]", "tokens"),
        (json!([{"image": good}, [99_999]]), "input[1]", "99999"),
        (json!(vec![json!({"image": good}); 257]), "input", "256"),
    ];
    for (input, param, word) in cases {
        let request = json!({"model": "clip_pictures", "input": input});
        let error = server.post("/v1/embeddings", &request).error(400);
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(error["error"]["param"], param, "{message}");
        assert!(message.contains(word) && message.contains(param), "{word}: {message}");
    }
    for (field, value) in [("dimensions", json!(7)), ("input_type", json!("poem"))] {
        let mut request = json!({"model": "clip_pictures", "input": {"image": good}});
        request[field] = value;
        let error = server.post("/v1/embeddings", &request).error(400);
        assert_eq!(error["error"]["param"], field, "{error}");
    }
    // The server goes on.
    let request = json!({"model": "clip_pictures", "input": {"image": good}});
    server.post("/v1/embeddings", &request).json();
}

#[test]
fn models_of_texts_alone_say_that_they_see_nothing() {
    let server = server();
    let request = json!({"model": "bert", "input": ["a", {"image": url(&file("rgba.png"))}]});
    let error = server.post("/v1/embeddings", &request).error(400);
    assert_eq!(
        (&error["error"]["param"], &error["error"]["code"]),
        (&json!("input[1]"), &json!("no_pictures"))
    );
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("`bert`") && message.contains("CLIP"), "{message}");

    let sees = |server: &Server| -> Vec<Value> {
        let list = server.get("/v1/models").json();
        let models = list["data"].as_array().unwrap().iter();
        models.map(|model| model["sees_pictures"].clone()).collect()
    };
    // What is not loaded is not known yet.
    assert_eq!(sees(&server), [json!(null), json!(null), json!(false)]);
    let request = json!({"model": "siglip", "input": {"image": url(&file("rgba.png"))}});
    server.post("/v1/embeddings", &request).json();
    assert_eq!(sees(&server), [json!(null), json!(true), json!(false)]);
}
