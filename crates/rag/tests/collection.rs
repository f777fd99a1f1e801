//! Documents that come one by one, with a model that counts words.

mod words;

use cactus_rag::{Collection, Embed as _, Error, Found, Incoming, Kind, Nearness, PIECE_TOKENS, Search, Sources};
use cactus_retrieval::{ErrorKind, Filter, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use words::Words;

const BREAD: &str = "# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n";

struct Case {
    _dir: tempfile::TempDir,
    collection: Collection,
    model: Words,
}

fn incoming<'a>(name: &'a str, text: &'a str) -> Incoming<'a> {
    Incoming {
        name,
        title: "notes.md",
        kind: Kind::Markdown,
        text,
        most_tokens: PIECE_TOKENS,
    }
}

impl Case {
    fn new() -> Case {
        let (dir, model) = (tempfile::tempdir().unwrap(), Words::new());
        let collection = Collection::create(&dir.path().join("index"), &model.recipe()).unwrap();
        Case {
            _dir: dir,
            collection,
            model,
        }
    }

    /// Puts a document in; how many of its pieces got a vector.
    fn put(&self, name: &str, text: &str, tag: &str) -> usize {
        let prepared = self
            .collection
            .prepare(&self.model, &incoming(name, text), &|| false)
            .unwrap();
        let embedded = prepared.embedded();
        let metadata = BTreeMap::from([("tag".to_owned(), Value::from(tag))]);
        self.collection.put(name, prepared, &metadata).unwrap();
        embedded
    }

    fn search(&self, questions: &[&str], filter: Option<&Filter>, change: impl FnOnce(&mut Search<'_>)) -> Vec<Found> {
        let questions: Vec<String> = questions.iter().map(|&text| text.to_owned()).collect();
        let mut search = Search {
            questions: &questions,
            filter,
            most: 10,
            nearness: Nearness::Any,
            weights: Some([1.0, 1.0]),
        };
        change(&mut search);
        self.collection.search(&self.model, &search).unwrap()
    }
}

fn paths(found: &[Found]) -> Vec<&str> {
    found.iter().map(|one| one.path.as_str()).collect()
}

#[test]
fn documents_take_each_others_place_by_name_and_keep_vectors_of_what_stays() {
    let case = Case::new();
    assert_eq!((case.put("a", BREAD, "x"), case.put("b", BREAD, "y")), (2, 2));
    assert_eq!(case.put("a", BREAD, "z"), 0, "nothing is new in it");
    assert_eq!(case.put("a", &BREAD.replace("forty", "fifty"), "z"), 1);
    let found = case.search(&["bake it for forty minutes"], None, |_| {});
    assert_eq!((found[0].path.as_str(), found.len()), ("b", 4));
    assert_eq!(
        (found[0].title.as_deref(), &found[0].headings[..]),
        (Some("notes.md"), &["Bread".to_owned(), "Baking".to_owned()][..])
    );
    assert!(
        Sources::new(found)
            .instructions()
            .contains("from=\"notes.md, Bread > Baking\"")
    );
    let texts: Vec<String> = case
        .collection
        .pieces("a")
        .unwrap()
        .into_iter()
        .map(|piece| piece.text)
        .collect();
    assert_eq!(texts, ["Flour, water and salt.", "Bake it for fifty minutes."]);
    case.collection.remove("b").unwrap();
    assert_eq!(
        paths(&case.search(&["bake it for forty minutes"], None, |_| {})),
        ["a", "a"]
    );
    case.collection.remove("b").unwrap();
}

#[test]
fn searches_hold_to_filters_thresholds_and_every_question() {
    let case = Case::new();
    case.put("tea", "green tea in hot water", "drink");
    case.put("bread", "bread of white flour", "food");
    let near = |search: &mut Search<'_>| search.nearness = Nearness::AtLeast(0.9);
    assert_eq!(paths(&case.search(&["green tea in hot water"], None, near)), ["tea"]);
    let both = ["green tea in hot water", "bread of white flour"];
    let mut found = case.search(&both, None, near);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(paths(&found), ["bread", "tea"]);
    let food = Filter::eq("tag", "food");
    assert_eq!(
        paths(&case.search(&["green tea in hot water"], Some(&food), |_| {})),
        ["bread"]
    );
    let alone = case.search(&["green tea in hot water"], None, |search| search.weights = None);
    assert_eq!((alone[0].bm25, Some(alone[0].score)), (None, alone[0].similarity));

    // Other metadata, the same pieces.
    let metadata = BTreeMap::from([("tag".to_owned(), Value::from("food"))]);
    case.collection
        .describe("tea", &|name| name != "tag", &metadata)
        .unwrap();
    assert_eq!(case.search(&["tea"], Some(&food), |_| {}).len(), 2);
}

#[test]
fn what_fails_or_is_stopped_writes_nothing() {
    let case = Case::new();
    let long: String = (0..100).map(|i| format!("Number {i} of many.\n\n")).collect();
    let calls = Cell::new(0);
    let stop = || calls.replace(calls.get() + 1) == 2;
    let stopped = case.collection.prepare(&case.model, &incoming("a", &long), &stop);
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let made = case.model.taken().len();
    assert!(made > 0 && made < 100, "it ends between two calls of the model");
    case.model.fails.set(true);
    let failed = case.collection.prepare(&case.model, &incoming("a", &long), &|| false);
    assert!(matches!(failed, Err(Error::Embed(_))));
    assert!(case.collection.pieces("a").unwrap().is_empty());
    let other = Words {
        name: "other",
        ..Words::new()
    };
    let Err(Error::Index(refused)) = case.collection.prepare(&other, &incoming("a", "x"), &|| false) else {
        panic!("the index is of another model");
    };
    assert_eq!(refused.kind(), ErrorKind::Recipe);
}
