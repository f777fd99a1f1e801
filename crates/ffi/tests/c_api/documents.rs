//! The index of vectors, and documents that a model answers from.

use crate::support::*;
use cactus_ffi::*;
use serde_json::Value;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

const DIM: usize = 4;

/// An index that is closed at the end of a test.
struct Index(*mut c_void);

impl Index {
    fn open(folder: &Path) -> Index {
        let index = unsafe { cactus_index_init(c(folder.to_str().unwrap()).as_ptr(), DIM) };
        assert!(!index.is_null(), "{:?}", error());
        Index(index)
    }

    fn add(&self, documents: &[(i32, &str, Option<&str>, [f32; DIM])]) -> i32 {
        let ids: Vec<i32> = documents.iter().map(|d| d.0).collect();
        let texts: Vec<CString> = documents.iter().map(|d| c(d.1)).collect();
        let others: Vec<Option<CString>> = documents.iter().map(|d| d.2.map(c)).collect();
        let texts: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let metadatas: Vec<*const c_char> = others
            .iter()
            .map(|text| text.as_ref().map_or(null(), |text| text.as_ptr()))
            .collect();
        let vectors: Vec<*const f32> = documents.iter().map(|d| d.3.as_ptr()).collect();
        unsafe {
            cactus_index_add(
                self.0,
                ids.as_ptr(),
                texts.as_ptr(),
                metadatas.as_ptr(),
                vectors.as_ptr(),
                ids.len(),
                DIM,
            )
        }
    }

    fn query(&self, vector: [f32; DIM], options: &str) -> Result<Vec<(i32, f32)>, (i32, String)> {
        let (mut ids, mut scores) = ([0; 8], [0.0; 8]);
        let (mut id_size, mut score_size) = (8, 8);
        let (mut id_place, mut score_place): (*mut i32, *mut f32) = (ids.as_mut_ptr(), scores.as_mut_ptr());
        let vector = vector.as_ptr();
        let code = unsafe {
            cactus_index_query(
                self.0,
                &raw const vector,
                1,
                DIM,
                c(options).as_ptr(),
                &raw mut id_place,
                &raw mut id_size,
                &raw mut score_place,
                &raw mut score_size,
            )
        };
        assert_eq!(id_size, score_size);
        match code {
            0 => Ok(ids.into_iter().zip(scores).take(id_size).collect()),
            _ => Err(error()),
        }
    }

    /// Text, metadata and vector of a document, with room for so many bytes and floats, and what was needed.
    fn get(&self, id: i32, bytes: usize, floats: usize) -> (i32, String, String, Vec<f32>, [usize; 3]) {
        let (mut text, mut metadata, mut vector) = (vec![0x55u8; 64], vec![0x55u8; 64], vec![7f32; 8]);
        let mut text_place: *mut c_char = text.as_mut_ptr().cast();
        let mut metadata_place: *mut c_char = metadata.as_mut_ptr().cast();
        let mut vector_place = vector.as_mut_ptr();
        let mut sizes = [bytes, 64, floats];
        let [a, b, d] = &mut sizes;
        let code = unsafe {
            cactus_index_get(
                self.0,
                &raw const id,
                1,
                &raw mut text_place,
                a,
                &raw mut metadata_place,
                b,
                &raw mut vector_place,
                d,
            )
        };
        let read = |bytes: &[u8]| {
            let text = std::ffi::CStr::from_bytes_until_nul(bytes).map(|text| text.to_str().unwrap().to_owned());
            text.unwrap_or_default()
        };
        let found = vector[..sizes[2].min(floats)].to_vec();
        assert_eq!(vector[floats.min(8)..], vec![7f32; 8 - floats.min(8)][..]);
        (code, read(&text), read(&metadata), found, sizes)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        unsafe { cactus_index_destroy(self.0) };
    }
}

#[test]
fn index_keeps_finds_and_forgets_documents() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("new/index");
    let index = Index::open(&inside);
    let documents = [
        (1, "one", Some(r#"{"year": 1}"#), [1.0, 0.0, 0.0, 0.0]),
        (-2, "two", None, [0.6, 0.8, 0.0, 0.0]),
        (3, "grüße", None, [0.0, 0.0, 2.0, 0.0]),
    ];
    assert_eq!(index.add(&documents), 0, "{:?}", error());
    let found = index.query([2.0, 0.0, 0.0, 0.0], "").unwrap();
    let ids: Vec<i32> = found.iter().map(|hit| hit.0).collect();
    assert_eq!(ids, [1, -2, 3]);
    assert!((found[0].1 - 1.0).abs() < 0.01 && (found[1].1 - 0.6).abs() < 0.01 && found[2].1.abs() < 0.01);
    assert_eq!(index.query([2.0, 0.0, 0.0, 0.0], r#"{"top_k": 1}"#).unwrap().len(), 1);
    assert_eq!(
        index
            .query([2.0, 0.0, 0.0, 0.0], r#"{"score_threshold": 0.5}"#)
            .unwrap()
            .len(),
        2
    );
    let filtered = r#"{"filter": {"metadata": "{\"year\": 1}"}}"#;
    assert_eq!(index.query([0.0, 1.0, 0.0, 0.0], filtered).unwrap()[0].0, 1);

    let (code, text, metadata, vector, sizes) = index.get(1, 64, 8);
    assert_eq!(
        (code, text.as_str(), metadata.as_str(), sizes),
        (0, "one", r#"{"year": 1}"#, [4, 12, 4])
    );
    assert!((vector[0] - 1.0).abs() < 0.01);
    // What does not fit is not written, and how much it would have been is.
    let (code, text, _, vector, sizes) = index.get(3, 3, 2);
    assert_eq!((code, text.as_str(), sizes), (-2, "", ["grüße".len() + 1, 1, 4]));
    assert_eq!(vector, [7.0, 7.0]);

    // A batch is there as a whole or not at all, and an id is there once.
    assert_eq!(
        index.add(&[(9, "new", None, [1.0; DIM]), (1, "again", None, [1.0; DIM])]),
        -1
    );
    assert_eq!(error().0, Code::Argument as i32);
    assert_eq!(index.get(9, 64, 8).0, -1);
    assert_eq!(unsafe { cactus_index_delete(index.0, [1, 77].as_ptr(), 2) }, 0);
    assert_eq!(index.get(1, 64, 8).0, -1);
    assert_eq!(unsafe { cactus_index_compact(index.0) }, 0);

    // Another one of the same folder sees the same, also what comes later.
    let other = Index::open(&inside);
    assert_eq!(index.add(&[(1, "back", None, [1.0; DIM])]), 0);
    assert_eq!(other.get(1, 64, 8).1, "back");
    assert_eq!(other.query([1.0; DIM], "").unwrap().len(), 3);
}

#[test]
fn what_no_index_takes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let index = Index::open(folder.path());
    assert!(unsafe { cactus_index_init(c(folder.path().to_str().unwrap()).as_ptr(), DIM + 1) }.is_null());
    assert_eq!(error().0, Code::Argument as i32);
    assert!(unsafe { cactus_index_init(null(), DIM) }.is_null());
    assert!(unsafe { cactus_index_init(c(folder.path().to_str().unwrap()).as_ptr(), 0) }.is_null());
    for vector in [[f32::NAN, 0.0, 0.0, 0.0], [0.0; DIM]] {
        assert_eq!(index.add(&[(1, "x", None, vector)]), -1);
    }
    for options in [
        "[]",
        "{",
        r#"{"top_k": 0}"#,
        r#"{"score_threshold": "x"}"#,
        r#"{"filter": {"$no": 1}}"#,
    ] {
        assert_eq!(
            index.query([1.0; DIM], options).unwrap_err().0,
            Code::Argument as i32,
            "{options}"
        );
    }
    unsafe {
        let (id, vector) = (1, [1f32; DIM]);
        let (text, short) = (c"x".as_ptr(), vector.as_ptr());
        let wrong = [
            cactus_index_add(index.0, null(), &raw const text, null(), &raw const short, 1, DIM),
            cactus_index_add(index.0, &raw const id, null(), null(), &raw const short, 1, DIM),
            cactus_index_add(index.0, &raw const id, &raw const text, null(), null(), 1, DIM),
            cactus_index_add(
                index.0,
                &raw const id,
                &raw const text,
                null(),
                &raw const short,
                1,
                DIM - 1,
            ),
            cactus_index_add(
                index.0,
                &raw const id,
                &raw const text,
                null(),
                &raw const short,
                usize::MAX,
                DIM,
            ),
            cactus_index_delete(index.0, null(), 1),
            cactus_index_get(
                index.0,
                null(),
                1,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            ),
            cactus_index_query(
                index.0,
                &raw const short,
                1,
                DIM,
                null(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            ),
            cactus_index_compact(null_mut()),
        ];
        assert_eq!(wrong, [-1; 9]);
        // Sizes without room.
        let (mut ids, mut scores) = (null_mut(), null_mut());
        let (mut id_size, mut score_size) = (4, 4);
        let query = cactus_index_query(
            index.0,
            &raw const short,
            1,
            DIM,
            null(),
            &raw mut ids,
            &raw mut id_size,
            &raw mut scores,
            &raw mut score_size,
        );
        assert_eq!((query, id_size), (-1, 4));
        // Room without its size.
        let mut place: *mut c_char = null_mut();
        let get = cactus_index_get(
            index.0,
            &raw const id,
            1,
            &raw mut place,
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
        );
        assert_eq!(get, -1);
        cactus_index_destroy(null_mut());
    }
    let closed = index.0;
    drop(index);
    assert_eq!(unsafe { cactus_index_delete(closed, null(), 0) }, -1);
    assert_eq!(error().0, Code::Handle as i32);
}

/// A bundle of a tiny model of vectors, and a folder with two documents.
fn corpus() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/bert");
    let bundle = folder.path().join("bert");
    cactus_import::convert(&golden, &bundle, &Default::default(), &mut |_, _| {}).unwrap();
    let documents = folder.path().join("documents");
    std::fs::create_dir(&documents).unwrap();
    std::fs::write(documents.join("a.md"), "# Rain\n\nThe river is quick.\n").unwrap();
    std::fs::write(documents.join("b.txt"), "Bread is baked.\n").unwrap();
    (folder, bundle, documents)
}

/// Names the model of vectors, as whoever starts an application does.
#[allow(
    clippy::disallowed_methods,
    reason = "each test is a process of its own, and nothing runs in it yet"
)]
fn embedder_is(bundle: &Path) {
    // SAFETY: no other thread reads the environment.
    unsafe { std::env::set_var("CACTUS_EMBEDDER", bundle) };
}

fn chunks(model: *mut c_void, query: &str, top: usize) -> Value {
    let query = c(query);
    let (code, text) = buffered(1 << 16, |buffer, size| unsafe {
        cactus_rag_query(model, query.as_ptr(), buffer, size, top)
    });
    let json: Value = serde_json::from_str(&text).unwrap();
    assert!(code > 0, "{json}");
    json["chunks"].clone()
}

#[test]
fn model_of_vectors_finds_pieces_of_documents() {
    let (_folder, bundle, documents) = corpus();
    let (path, corpus) = (c(bundle.to_str().unwrap()), c(documents.to_str().unwrap()));
    let model = unsafe { cactus_init(path.as_ptr(), corpus.as_ptr(), true) };
    assert!(!model.is_null(), "{:?}", error());
    let found = chunks(model, "river word", 5);
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(found[0]["source"], "a.md");
    assert!(found[0]["content"].as_str().unwrap().contains("river is quick"));
    assert_eq!(found[0]["lines"], serde_json::json!([3, 3]));
    assert_eq!(chunks(model, "river", 1).as_array().unwrap().len(), 1);
    let query = c("river");
    for (query, top) in [(query.as_ptr(), 0), (null(), 1), (query.as_ptr(), usize::MAX)] {
        let (code, text) = buffered(4096, |buffer, size| unsafe {
            cactus_rag_query(model, query, buffer, size, top)
        });
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &json["chunks"]), (-1, &serde_json::json!([])));
        assert!(!json["error"].as_str().unwrap().is_empty());
    }
    let small = buffered(8, |buffer, size| unsafe {
        cactus_rag_query(model, query.as_ptr(), buffer, size, 1)
    });
    assert_eq!(small.0, -2);
    unsafe { cactus_destroy(model) };
}

#[test]
fn model_that_writes_answers_from_documents() {
    let (_folder, bundle, documents) = corpus();
    let corpus = c(documents.to_str().unwrap());
    embedder_is(&bundle);
    let model = unsafe { cactus_init(path().as_ptr(), corpus.as_ptr(), true) };
    assert!(!model.is_null(), "{:?}", error());
    assert_eq!(chunks(model, "bread", 1)[0]["source"], "b.txt");
    let messages = r#"[{"role": "system", "content": "Be short."}, {"role": "user", "content": "is?"}]"#;
    let messages = c(messages);
    let (code, prompt) = buffered(1 << 16, |buffer, size| unsafe {
        cactus_render_prompt(model, messages.as_ptr(), null(), null(), buffer, size)
    });
    assert!(code > 0);
    let order = ["Be short.", "from=\"a.md", "from=\"b.txt", "is?"];
    let places: Vec<usize> = order.iter().map(|text| prompt.find(text).unwrap()).collect();
    assert!(places.is_sorted(), "{prompt}");
    let (code, answer) = buffered(1 << 16, |buffer, size| unsafe {
        let options = c(r#"{"max_tokens": 4}"#);
        cactus_complete(
            model,
            messages.as_ptr(),
            buffer,
            size,
            options.as_ptr(),
            null(),
            None,
            null_mut(),
            null(),
            0,
        )
    });
    assert!(code > 0, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["sources"].as_array().unwrap().len(), 2);
    assert_eq!(answer["sources"][1]["source"], "b.txt");
    assert_eq!(answer["citations"], serde_json::json!([]));
    unsafe { cactus_destroy(model) };
}

#[test]
fn documents_that_cannot_be_had_are_an_error_that_says_what_to_do() {
    let (folder, bundle, documents) = corpus();
    let refused = |model: &Path, corpus: &Path| {
        let (path, corpus) = (c(model.to_str().unwrap()), c(corpus.to_str().unwrap()));
        assert!(unsafe { cactus_init(path.as_ptr(), corpus.as_ptr(), false) }.is_null());
        error().1
    };
    assert!(refused(&bundle, &folder.path().join("none")).contains("corpus_dir"));
    embedder_is(&folder.path().join("none"));
    assert!(refused(crate::support::bundle(), &documents).contains("CACTUS_EMBEDDER"));
    // A model without documents says so.
    let model = Model::load();
    let query = c("x");
    let (code, text) = buffered(4096, |buffer, size| unsafe {
        cactus_rag_query(model.public(), query.as_ptr(), buffer, size, 3)
    });
    assert!(code == -1 && text.contains("corpus_dir"), "{text}");
}
