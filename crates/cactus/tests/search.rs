//! Vectors, indexes and documents, with tiny models.

mod support;

use cactus::search::{
    Document, Documents, DocumentsOptions, EmbedOptions, Embedder, Index, Nearness, Query, QueryOptions, Role, Value,
    filter,
};
use cactus::{ChatRequest, ErrorKind};
use serde_json::json;
use std::path::Path;
use support::bundle;

fn embedder() -> (tempfile::TempDir, Embedder) {
    let (folder, path) = bundle("embedding/bert");
    (folder, Embedder::load(&path, Some(1)).unwrap())
}

fn kind<T>(result: cactus::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn length(vector: &[f32]) -> f64 {
    vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn a_text_has_one_vector_alone_and_beside_others() {
    let (_folder, embedder) = embedder();
    let options = EmbedOptions::default();
    let both = embedder.embed(Role::Plain, &["the word", "of a"], &options).unwrap();
    let alone = embedder.embed(Role::Plain, &["of a"], &options).unwrap();
    assert_eq!((both.dimensions, embedder.dimensions(), both.rows().len()), (32, 32, 2));
    assert_eq!(both.rows().nth(1).unwrap(), alone.values);
    assert_eq!(alone.tokens, [embedder.count(Role::Plain, "of a").unwrap()]);
    let normalized = EmbedOptions {
        normalize: true,
        ..EmbedOptions::default()
    };
    let normalized = embedder.embed(Role::Plain, &["of a"], &normalized).unwrap();
    assert!((length(&normalized.values) - 1.0).abs() < 1e-6);
}

#[test]
fn what_a_model_cannot_embed_is_an_error_that_says_so() {
    let (_folder, embedder) = embedder();
    let options = EmbedOptions::default();
    let embed = |role, text: &str, options: &EmbedOptions| embedder.embed(role, &[text], options);
    let long = "the ".repeat(embedder.limit_tokens());
    assert_eq!(kind(embed(Role::Plain, &long, &options)), ErrorKind::Argument);
    let cut = EmbedOptions {
        truncate: true,
        ..EmbedOptions::default()
    };
    assert!(embed(Role::Plain, &long, &cut).is_ok());
    assert_eq!(kind(embed(Role::Task("none"), "the", &options)), ErrorKind::Argument);
    options.cancel.cancel();
    assert_eq!(kind(embed(Role::Plain, "the", &options)), ErrorKind::Cancelled);

    let (folder, writes) = bundle("models/qwen2_tied");
    assert_eq!(kind(Embedder::load(&writes, None)), ErrorKind::Unsupported);
    assert_eq!(
        kind(Embedder::load(&folder.path().join("none"), None)),
        ErrorKind::Bundle
    );
}

#[cfg(feature = "pictures")]
#[test]
fn a_picture_has_a_vector_where_the_model_sees() {
    let file = support::golden("pictures/files/rgb.png");
    let (_folder, path) = bundle("embedding/clip_pictures");
    let sees = Embedder::load(&path, Some(1)).unwrap();
    let made = sees.embed_image(&file, &EmbedOptions::default()).unwrap();
    assert!(sees.sees());
    assert_eq!((made.rows().len(), made.dimensions), (1, sees.dimensions()));
    let damaged = path.join("manifest.json");
    assert_eq!(
        kind(sees.embed_image(&damaged, &EmbedOptions::default())),
        ErrorKind::Argument
    );
    let none = path.join("none.png");
    let failed = sees.embed_image(&none, &EmbedOptions::default()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Argument);
    assert!(failed.to_string().contains("none.png"), "{failed}");

    let (_folder, blind) = embedder();
    assert!(!blind.sees());
    assert_eq!(
        kind(blind.embed_image(&file, &EmbedOptions::default())),
        ErrorKind::Unsupported
    );
}

#[test]
fn an_index_is_there_again_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("deep/index");
    let rows = [(1_u64, [1.0, 0.0]), (2, [0.0, 1.0]), (3, [-1.0, 0.0])];
    let documents = || {
        let document = |(id, vector): (u64, [f32; 2])| {
            let document = Document::new(id, vector.to_vec()).with_text(format!("text {id}"));
            document.with("year", 2020 + id as i64)
        };
        rows.map(document)
    };
    {
        let index = Index::open(&place, 2).unwrap();
        index.add(documents()).unwrap();
        // Nothing of what fails is there.
        let twice = documents().into_iter().rev().chain([Document::new(4, vec![1.0, 1.0])]);
        assert_eq!(kind(index.add(twice)), ErrorKind::Argument);
        assert_eq!(index.documents().unwrap(), 3);
        index.put(documents()).unwrap();
    }
    let index = Index::open(&place, 2).unwrap();
    let near = [1.0, 0.1];
    let found = |options: &QueryOptions| -> Vec<String> {
        let hits = index.query(&Query::Vector(&near), options).unwrap();
        hits.iter().map(|hit| hit.id.to_string()).collect()
    };
    assert_eq!(found(&QueryOptions::default()), ["1", "2", "3"]);
    let top = QueryOptions {
        top_k: 1,
        ..QueryOptions::default()
    };
    assert_eq!(found(&top), ["1"]);
    let near_enough = QueryOptions {
        score_threshold: Some(0.0),
        ..QueryOptions::default()
    };
    assert_eq!(found(&near_enough), ["1", "2"]);
    let late = QueryOptions {
        filter: Some(filter(&json!({"year": {"$gte": 2022}})).unwrap()),
        ..QueryOptions::default()
    };
    assert_eq!(found(&late), ["2", "3"]);

    let document = index.get(2).unwrap().unwrap();
    assert_eq!(
        (document.text.as_str(), &document.metadata["year"]),
        ("text 2", &Value::Integer(2022))
    );
    assert!(index.get(9).unwrap().is_none());
    assert_eq!(index.delete([2_u64, 9]).unwrap(), 1);
    index.compact().unwrap();
    assert_eq!((index.documents().unwrap(), index.dimension()), (2, 2));

    assert_eq!(
        kind(Index::open(&place, 3)),
        ErrorKind::Argument,
        "vectors of another size"
    );
    assert_eq!(
        kind(index.query(&Query::Vector(&[1.0]), &QueryOptions::default())),
        ErrorKind::Argument
    );
    assert_eq!(kind(filter(&json!({"$what": 1}))), ErrorKind::Argument);
    std::fs::write(place.join("cactus.index"), b"something else").unwrap();
    assert_eq!(kind(Index::open(&place, 2)), ErrorKind::Bundle);
}

/// A folder with two notes.
fn notes() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("river.md"), "# Water\n\nThe river is quick.\n").unwrap();
    std::fs::write(folder.path().join("bread.txt"), "Bread is baked.\n").unwrap();
    folder
}

fn open(folder: &Path, embedder: &Embedder, options: &DocumentsOptions) -> cactus::Result<Documents> {
    Documents::open(folder, embedder, options, &mut |_| {})
}

#[test]
fn documents_are_found_and_put_before_a_model() {
    let (_bundle, embedder) = embedder();
    let folder = notes();
    let mut seen = Vec::new();
    let options = DocumentsOptions::default();
    let mut documents = Documents::open(folder.path(), &embedder, &options, &mut |at| {
        seen.push(at.path.to_owned());
    })
    .unwrap();
    assert_eq!(seen, ["bread.txt", "river.md", ""]);
    assert_eq!((documents.synced().files, documents.synced().added), (2, 2));
    let found = documents.query("Where is the river?", 1).unwrap();
    assert_eq!((found[0].path.as_str(), found[0].lines), ("river.md", [3, 3]));

    let mut request = ChatRequest {
        messages: vec![json!({"role": "user", "content": "Where is the river?"})],
        ..ChatRequest::default()
    };
    let sources = documents.ground(&mut request, 2).unwrap().unwrap();
    assert_eq!(sources.all().len(), 2);
    assert_eq!(request.messages.len(), 2);
    let told = request.messages[0]["content"].as_str().unwrap();
    assert!(told.contains("The river is quick."), "{told}");
    assert!(sources.check("The river is quick [2].")[0].is_supported());
    let mut nobody = ChatRequest::default();
    assert!(documents.ground(&mut nobody, 2).unwrap().is_none());

    std::fs::remove_file(folder.path().join("bread.txt")).unwrap();
    let again = documents.sync(&Default::default(), &mut |_| {}).unwrap();
    assert_eq!((again.files, again.removed), (1, 1));
    // Another one finds the index in step.
    assert!(
        open(folder.path(), &embedder, &options)
            .unwrap()
            .synced()
            .is_unchanged()
    );
}

#[test]
fn documents_that_cannot_be_had_are_errors() {
    let (_bundle, embedder) = embedder();
    let folder = notes();
    let none = folder.path().join("none");
    assert_eq!(
        kind(open(&none, &embedder, &DocumentsOptions::default())),
        ErrorKind::Argument
    );
    let stopped = DocumentsOptions::default();
    stopped.cancel.cancel();
    assert_eq!(kind(open(folder.path(), &embedder, &stopped)), ErrorKind::Cancelled);
    let elsewhere = DocumentsOptions {
        index: Some(folder.path().join("own.index")),
        nearness: Nearness::AtLeast(2.0),
        ..DocumentsOptions::default()
    };
    std::fs::write(folder.path().join("scan.pdf"), b"%PDF-1.4").unwrap();
    let documents = open(folder.path(), &embedder, &elsewhere).unwrap();
    assert!(folder.path().join("own.index").is_file());
    // Nobody takes the text out of it, and nothing is so near.
    assert_eq!(documents.synced().skipped[0].path, "scan.pdf");
    assert!(documents.query("river", 5).unwrap().is_empty());
}
