//! An index that several hold at once.

use cactus_retrieval::{Document, Error, ErrorKind, Id, Index, Layout, Metric, Query, Recipe, SharedIndex};
use std::time::Duration;

fn recipe(dimensions: usize) -> Recipe {
    Recipe::new("test", dimensions, Metric::Cosine)
}

fn document(id: u64) -> Document {
    Document::new(id, vec![1.0, id as f32]).with_text(format!("number {id}"))
}

#[test]
fn each_sees_what_the_others_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let one = SharedIndex::open_or_create(&path, &recipe(2), Layout::default()).unwrap();
    let other = SharedIndex::open(&path).unwrap();
    one.write(|index| index.upsert(document(1))).unwrap();
    other.write(|index| index.upsert(document(2))).unwrap();
    for shared in [&one, &other] {
        let reader = shared.read().unwrap();
        assert_eq!(reader.size().documents, 2);
        assert_eq!(reader.search(&Query::Words("number"), None, 5).unwrap().len(), 2);
    }
}

#[test]
fn what_fails_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shared = SharedIndex::open_or_create(&folder.path().join("index"), &recipe(2), Layout::default()).unwrap();
    let failed: Result<(), Error> = shared.write(|index| {
        index.add(document(1))?;
        index.add(document(1))
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(shared.read().unwrap().size().documents, 0);
    shared.write(|index| index.add(document(1))).unwrap();
    assert!(shared.read().unwrap().get(&Id::from(1)).unwrap().is_some());
}

#[test]
fn threads_write_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let shared = SharedIndex::open_or_create(&folder.path().join("index"), &recipe(2), Layout::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shared = &shared;
            scope.spawn(move || {
                for i in 0..25 {
                    shared.write(|index| index.add(document(thread * 25 + i))).unwrap();
                    shared
                        .read()
                        .unwrap()
                        .search(&Query::Vector(&[1.0, 0.0]), None, 3)
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(shared.read().unwrap().size().documents, 100);
}

#[test]
fn another_recipe_or_layout_and_a_writer_that_stays_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let shared = SharedIndex::open_or_create(&path, &recipe(2), Layout::default()).unwrap();
    let kind = |recipe: &Recipe, layout| SharedIndex::open_or_create(&path, recipe, layout).unwrap_err().kind();
    assert_eq!(kind(&recipe(3), Layout::default()), ErrorKind::Recipe);
    let text = Layout {
        ids: cactus_retrieval::IdKind::Text,
        ..Layout::default()
    };
    assert_eq!(kind(&recipe(2), text), ErrorKind::Invalid);
    let _writer = Index::open(&path, None).unwrap();
    let shared = shared.with_patience(Duration::from_millis(20));
    let busy = shared.write(|index| index.add(document(1))).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
}
