//! Vectors that go out in the forms of other programs come back the same.

mod support;

use cactus_retrieval::{Document, ErrorKind, Id, Index, Layout, Metric, Reader, exchange};
use std::io::Cursor;
use std::path::Path;
use support::{document, layouts, recipe, with_text_id};

const DIM: usize = 12;

fn new(path: &Path, metric: Metric, layout: Layout) -> Index {
    Index::create(path, &recipe(DIM, metric), layout).unwrap()
}

fn documents(reader: &Reader) -> Vec<Document> {
    let mut all = Vec::new();
    reader
        .for_each(|document| {
            all.push(document);
            Ok(())
        })
        .unwrap();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

/// Documents without text and metadata, to be compared with.
fn bare(mut documents: Vec<Document>) -> Vec<Document> {
    for document in &mut documents {
        document.text.clear();
        document.metadata.clear();
    }
    documents
}

fn filled(path: &Path, metric: Metric, layout: Layout) -> Reader {
    let mut index = new(path, metric, layout);
    for number in 0..50 {
        let document = document(number * 3, 0, DIM);
        index
            .add(if layout.ids == Layout::default().ids {
                document
            } else {
                with_text_id(document)
            })
            .unwrap();
    }
    index.commit().unwrap();
    index.reader().unwrap()
}

fn committed(mut index: Index) -> Reader {
    index.commit().unwrap();
    index.reader().unwrap()
}

#[test]
fn lines_of_json_carry_whole_documents() {
    let dir = tempfile::tempdir().unwrap();
    for (i, layout) in layouts().into_iter().enumerate() {
        let reader = filled(&dir.path().join(format!("{i}")), Metric::Dot, layout);
        let mut lines = Vec::new();
        exchange::export_jsonl(&reader, &mut lines).unwrap();
        let mut index = new(&dir.path().join(format!("{i}b")), Metric::Dot, layout);
        assert_eq!(exchange::import_jsonl(&mut index, &mut &lines[..]).unwrap(), 50);
        let (found, expected) = (documents(&committed(index)), documents(&reader));
        for (a, b) in found.iter().zip(&expected) {
            assert_eq!((&a.id, &a.text, &a.metadata), (&b.id, &b.text, &b.metadata));
            // Eight bits of what eight bits were made of: the same integers, and a scale that may round otherwise.
            assert!(a.vector.iter().zip(&b.vector).all(|(a, b)| (a - b).abs() < 1e-6));
        }
        assert_eq!(found.len(), expected.len());
    }
    let mut index = new(&dir.path().join("x"), Metric::Dot, Layout::default());
    for (line, why) in [
        ("{\"id\": 1}", "line 2: missing field `vector`"),
        ("[]", "line 2"),
        ("{\"id\": -1, \"vector\": []}", "line 2"),
    ] {
        let text = format!("\n{line}\n");
        let error = exchange::import_jsonl(&mut index, &mut text.as_bytes()).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains(why),
            "{error}"
        );
    }
}

#[test]
fn arrays_and_flat_indexes_carry_vectors_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for metric in [Metric::Cosine, Metric::Dot, Metric::Euclidean] {
        let layout = Layout {
            encoding: cactus_retrieval::Encoding::F32,
            ..Layout::default()
        };
        let reader = filled(&dir.path().join(metric.name()), metric, layout);
        let expected = bare(documents(&reader));

        let (mut vectors, mut ids) = (Vec::new(), Vec::new());
        exchange::export_npy(&reader, &mut vectors, &mut ids).unwrap();
        let mut index = new(&dir.path().join(format!("{}-npy", metric.name())), metric, layout);
        let count = exchange::import_npy(&mut index, &mut &vectors[..], Some(&mut &ids[..])).unwrap();
        assert_eq!(count, 50);
        let close = |found: Vec<Document>| {
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(&expected) {
                assert_eq!((&a.id, &a.text), (&b.id, &b.text));
                assert!(a.vector.iter().zip(&b.vector).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        };
        close(documents(&committed(index)));

        let mut flat = Vec::new();
        exchange::export_faiss(&reader, &mut flat).unwrap();
        let mut index = new(&dir.path().join(format!("{}-faiss", metric.name())), metric, layout);
        assert_eq!(exchange::import_faiss(&mut index, &mut Cursor::new(&flat)).unwrap(), 50);
        close(documents(&committed(index)));

        // Without a map of ids: the flat index within.
        let inner = &flat[37..flat.len() - 8 - 8 * 50];
        let mut index = new(&dir.path().join(format!("{}-flat", metric.name())), metric, layout);
        assert_eq!(exchange::import_faiss(&mut index, &mut Cursor::new(inner)).unwrap(), 50);
        assert_eq!(documents(&committed(index))[49].id, Id::from(49));

        // Every truncation is an error.
        let mut index = new(&dir.path().join(format!("{}-cut", metric.name())), metric, layout);
        for cut in (0..flat.len() - 1).step_by(97) {
            assert!(
                exchange::import_faiss(&mut index, &mut Cursor::new(&flat[..cut])).is_err(),
                "{cut}"
            );
        }
        for cut in (0..vectors.len() - 1).step_by(97) {
            assert!(
                exchange::import_npy(&mut index, &mut &vectors[..cut], None).is_err(),
                "{cut}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let texts = layouts()[1];
    let reader = filled(&dir.path().join("texts"), Metric::Dot, texts);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    assert_eq!(
        exchange::export_npy(&reader, &mut a, &mut b).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(
        exchange::export_faiss(&reader, &mut a).unwrap_err().kind(),
        ErrorKind::Invalid
    );

    let numbers = filled(&dir.path().join("numbers"), Metric::Dot, Layout::default());
    let (mut vectors, mut ids, mut flat) = (Vec::new(), Vec::new(), Vec::new());
    exchange::export_npy(&numbers, &mut vectors, &mut ids).unwrap();
    exchange::export_faiss(&numbers, &mut flat).unwrap();
    let mut other = Index::create(
        &dir.path().join("other"),
        &recipe(DIM + 1, Metric::Dot),
        Layout::default(),
    )
    .unwrap();
    let error = exchange::import_npy(&mut other, &mut &vectors[..], None).unwrap_err();
    assert!(error.to_string().contains("13 dimensions"), "{error}");
    let error = exchange::import_faiss(&mut other, &mut Cursor::new(&flat)).unwrap_err();
    assert!(error.to_string().contains("13 dimensions"), "{error}");
    let mut index = new(&dir.path().join("index"), Metric::Dot, Layout::default());
    let error = exchange::import_npy(&mut index, &mut &vectors[..], Some(&mut &vectors[..])).unwrap_err();
    assert!(error.to_string().contains("50 integers"), "{error}");
    let error = exchange::import_npy(&mut index, &mut &ids[..], None).unwrap_err();
    assert!(error.to_string().contains("two axes"), "{error}");
    flat[37..41].copy_from_slice(b"IwPQ");
    let error = exchange::import_faiss(&mut index, &mut Cursor::new(&flat)).unwrap_err();
    assert!(error.to_string().contains("IwPQ"), "{error}");
}
