//! Files that are cut short, changed or of somebody else: errors that say so, never a panic, and never other documents.

mod support;

use cactus_retrieval::{Document, ErrorKind, Id, Index, Layout, Metric, Query, Reader};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use support::{document, filters, layouts, recipe, with_text_id};

const DIM: usize = 8;

/// An index with several segments, deleted documents and every kind of column.
fn build(path: &Path, layout: Layout) {
    let mut index = Index::create(path, &recipe(DIM, Metric::Euclidean), layout).unwrap();
    index.set_durable(false);
    let make = |number| match layout.ids {
        cactus_retrieval::IdKind::Number => document(number, 0, DIM),
        cactus_retrieval::IdKind::Text => with_text_id(document(number, 0, DIM)),
    };
    for number in 0..40 {
        index.add(make(number)).unwrap();
        if number % 10 == 9 {
            index.commit().unwrap();
        }
    }
    for number in [3, 4, 17] {
        index.delete(&make(number).id).unwrap();
    }
    index.commit().unwrap();
}

/// Uses an index in every way; whether all of it went well.
fn use_all(path: &Path) -> Result<(), cactus_retrieval::Error> {
    let reader = Reader::open(path, None)?;
    let vector = vec![0.5; reader.recipe().dimensions];
    let both = Query::Both {
        vector: &vector,
        words: "river user stone",
    };
    reader.search(&both, None, 10)?;
    for filter in filters() {
        reader.search(&both, Some(&filter), 10)?;
    }
    reader.for_each(|document| reader.get(&document.id).map(drop))?;
    reader.verify()?;
    let mut index = Index::open(path, None)?;
    index.set_durable(false);
    index.upsert(match index.layout().ids {
        cactus_retrieval::IdKind::Number => Document::new(7, vector),
        cactus_retrieval::IdKind::Text => Document::new("doc/7", vector),
    })?;
    index.commit()?;
    index.compact()?;
    Ok(())
}

#[test]
fn file_cut_anywhere_is_an_error_or_an_earlier_commit() {
    let dir = tempfile::tempdir().unwrap();
    for (i, layout) in layouts().into_iter().enumerate() {
        let path = dir.path().join(i.to_string());
        build(&path, layout);
        let bytes = fs::read(&path).unwrap();
        let cut = dir.path().join("cut");
        for length in (0..bytes.len()).step_by(251).chain(bytes.len() - 40..bytes.len()) {
            fs::write(&cut, &bytes[..length]).unwrap();
            assert!(use_all(&cut).is_err(), "{length} of {}", bytes.len());
        }
        // What was never committed does not count.
        let mut longer = bytes.clone();
        longer.extend([0xa5; 5000]);
        fs::write(&cut, longer).unwrap();
        use_all(&cut).unwrap();
    }
}

#[test]
fn torn_root_leaves_the_commit_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i");
    build(&path, Layout::default());
    let generation = Reader::open(&path, None).unwrap().generation();
    let before = fs::read(&path).unwrap();
    let mut index = Index::open(&path, None).unwrap();
    index.add(document(100, 0, DIM)).unwrap();
    index.commit().unwrap();
    drop(index);
    let after = fs::read(&path).unwrap();
    let root = 4096 + (generation as usize + 1) % 2 * 4096;
    for torn in 0..64 {
        let mut bytes = after.clone();
        bytes[root + torn..root + 64].copy_from_slice(&before[root + torn..root + 64]);
        let changed = bytes[root..root + 64] != after[root..root + 64];
        fs::write(&path, &bytes).unwrap();
        let reader = Reader::open(&path, None).unwrap();
        assert_eq!(reader.generation(), generation + u64::from(!changed), "{torn}");
        assert_eq!(reader.get(&Id::from(100)).unwrap().is_some(), !changed);
        // The writer goes on from there, over what the lost commit wrote.
        let mut index = Index::open(&path, None).unwrap();
        index.upsert(document(101, 0, DIM)).unwrap();
        index.commit().unwrap();
        assert!(index.reader().unwrap().get(&Id::from(101)).unwrap().is_some());
        index.reader().unwrap().verify().unwrap();
    }
}

#[cfg(unix)]
#[test]
fn file_cut_while_it_is_read_is_an_error_and_not_the_end_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i");
    build(&path, Layout::default());
    let reader = Reader::open(&path, None).unwrap();
    let index = Index::open(&path, None).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let query = Query::Both {
        vector: &[1.0; DIM],
        words: "river",
    };
    for _ in 0..2 {
        let error = reader.search(&query, None, 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    assert!(reader.get(&Id::from(1)).is_err() && reader.verify().is_err());
    let mut index = index;
    let added = index.add(document(500, 0, DIM));
    assert!(added.and_then(|()| index.commit()).is_err());
}

#[test]
fn other_files_and_recipes_are_refused_with_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i");
    let right = recipe(DIM, Metric::Cosine);
    drop(Index::create(&path, &right, Layout::default()).unwrap());
    assert!(Reader::open(&path, Some(&right)).is_ok());
    let mut others = [
        recipe(DIM + 1, Metric::Cosine),
        recipe(DIM, Metric::Dot),
        right.clone(),
        right.clone(),
        right,
    ];
    others[2].model = "another-model".to_owned();
    others[3].digest = "abc".to_owned();
    others[4].prompts.insert("query".to_owned(), "query: ".to_owned());
    for (other, word) in others
        .iter()
        .zip(["dimensions", "metric", "another-model", "digest", "prompts"])
    {
        for error in [
            Reader::open(&path, Some(other)).unwrap_err(),
            Index::open(&path, Some(other)).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Recipe);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    let exists = Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::Exists);
    for (name, bytes, kind) in [
        ("empty", &b""[..], ErrorKind::NotAnIndex),
        ("text", b"hello, this is no index at all", ErrorKind::NotAnIndex),
        ("version", b"CIDX\x09\0\0\0\0\x10\0\0", ErrorKind::Version),
        ("short", b"CIDX\x01\0\0\0\0\x10\0\0", ErrorKind::Damaged),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        for error in [
            Reader::open(&path, None).unwrap_err(),
            Index::open(&path, None).unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    assert_eq!(
        Reader::open(&dir.path().join("none"), None).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        Reader::open(dir.path(), None).unwrap_err().kind(),
        ErrorKind::NotAnIndex
    );
    assert!(!dir.path().join("none.lock").exists());
    let none = recipe(0, Metric::Dot);
    let error = Index::create(&dir.path().join("n"), &none, Layout::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn documents_that_cannot_be_are_refused_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = Index::create(&dir.path().join("i"), &recipe(2, Metric::Cosine), Layout::default()).unwrap();
    index.add(Document::new(1, vec![1.0, 0.0])).unwrap();
    let long = "x".repeat(256);
    let cases = [
        (
            Document::new(1, vec![0.0, 1.0]),
            ErrorKind::Exists,
            "document 1 already",
        ),
        (Document::new(2, vec![1.0]), ErrorKind::Invalid, "found 1"),
        (
            Document::new(2, vec![1.0, f32::INFINITY]),
            ErrorKind::Invalid,
            "dimension 1",
        ),
        (Document::new(2, vec![0.0, 0.0]), ErrorKind::Invalid, "no direction"),
        (Document::new("two", vec![1.0, 1.0]), ErrorKind::Invalid, "`two`"),
        (
            Document::new(2, vec![1.0, 1.0]).with("x", f64::NAN),
            ErrorKind::Invalid,
            "`x`",
        ),
        (
            Document::new(2, vec![1.0, 1.0]).with(&long, 1i64),
            ErrorKind::Invalid,
            "255",
        ),
    ];
    for (document, kind, why) in cases {
        let error = index.add(document).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{error}");
    }
    assert_eq!(index.commit().unwrap().documents, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_bytes_never_panic_and_are_found(places in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4), layout in 0..6usize) {
        static CLEAN: [OnceLock<Vec<u8>>; 6] = [const { OnceLock::new() }; 6];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i");
        let clean = CLEAN[layout].get_or_init(|| {
            build(&path, layouts()[layout]);
            fs::read(&path).unwrap()
        });
        let mut bytes = clean.clone();
        for (place, change) in &places {
            bytes[place.index(clean.len())] ^= change;
        }
        fs::write(&path, &bytes).unwrap();
        let generation = Reader::open(&path, None).map(|reader| reader.generation());
        let result = use_all(&path);
        // Bytes between what has a checksum mean nothing, and the older root may be the one that was changed; else it is found.
        if result.is_ok() {
            fs::write(&path, clean).unwrap();
            prop_assert!(generation.is_ok_and(|g| g >= Reader::open(&path, None).unwrap().generation() - 1));
        }
    }
}
