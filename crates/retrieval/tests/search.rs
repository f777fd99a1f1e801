//! Search against plain definitions, on every tier and number of threads, and after any history.

mod support;

use cactus_base::Pool;
use cactus_kernels::Kernels;
use cactus_retrieval::{
    Document, Encoding, ErrorKind, Filter, Hit, Id, IdKind, Index, Layout, Metric, Query, Ranking, Reader,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{Random, document, filters, holds, layouts, recipe, with_text_id};

const DIM: usize = 24;

fn index(path: &Path, metric: Metric, layout: Layout, documents: impl Iterator<Item = Document>) -> Index {
    let mut index = Index::create(path, &recipe(DIM, metric), layout).unwrap();
    for (i, document) in documents.enumerate() {
        let document = match layout.ids {
            IdKind::Number => document,
            IdKind::Text => with_text_id(document),
        };
        index.add(document).unwrap();
        if i % 40 == 39 {
            index.commit().unwrap();
        }
    }
    index.commit().unwrap();
    index
}

/// The definition, on the vectors as they are stored.
fn nearest(reader: &Reader, query: &[f32], filter: Option<&Filter>) -> Vec<(Id, f64)> {
    let unit = |v: &[f32]| {
        let length = v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        v.iter().map(|x| f64::from(*x) / length).collect::<Vec<_>>()
    };
    let query = match reader.recipe().metric {
        Metric::Cosine => unit(query),
        _ => query.iter().map(|x| f64::from(*x)).collect(),
    };
    let mut all = Vec::new();
    reader
        .for_each(|document| {
            let pairs = document.vector.iter().map(|x| f64::from(*x)).zip(&query);
            let score: f64 = match reader.recipe().metric {
                Metric::Euclidean => -pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>(),
                _ => pairs.map(|(a, b)| a * b).sum(),
            };
            if filter.is_none_or(|filter| holds(filter, &document.metadata)) {
                all.push((document.id, score));
            }
            Ok(())
        })
        .unwrap();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

#[test]
fn search_by_vector_finds_the_nearest_with_any_filter_metric_and_layout() {
    let dir = tempfile::tempdir().unwrap();
    for (i, layout) in layouts().into_iter().enumerate() {
        for metric in [Metric::Cosine, Metric::Dot, Metric::Euclidean] {
            let path = dir.path().join(format!("{i}{}", metric.name()));
            let mut index = index(&path, metric, layout, (0..300).map(|n| document(n, 0, DIM)));
            for number in (0..300).step_by(7) {
                let id = with_text_id(document(number, 0, DIM)).id;
                let id = if layout.ids == IdKind::Text {
                    id
                } else {
                    Id::from(number)
                };
                assert!(index.delete(&id).unwrap());
            }
            index.commit().unwrap();
            let reader = index.reader().unwrap();
            let query = Random::new(99).vector(DIM);
            for filter in filters().iter().map(Some).chain([None]) {
                let found = reader.search(&Query::Vector(&query), filter, 10).unwrap();
                let expected = nearest(&reader, &query, filter);
                assert_eq!(found.len(), expected.len().min(10), "{layout:?} {filter:?}");
                for (hit, (_, score)) in found.iter().zip(&expected) {
                    let (_, own) = expected.iter().find(|(id, _)| *id == hit.id).expect("the filter holds");
                    assert!((f64::from(hit.score) - own).abs() < 2e-3, "{hit:?} {own}");
                    // Bits choose among half of these documents.
                    let exact = layout.encoding != Encoding::Binary;
                    assert!(!exact || (f64::from(hit.score) - score).abs() < 2e-3, "{hit:?} {score}");
                }
            }
        }
    }
}

/// What every kind of search finds.
fn answers(reader: &Reader) -> Vec<Vec<Hit>> {
    let vector = Random::new(5).vector(DIM);
    let mut answers = Vec::new();
    for words in ["river engine", "username 北京", "the getUserName of snake_case", ""] {
        let queries = [
            Query::Vector(&vector),
            Query::Words(words),
            Query::Both { vector: &vector, words },
        ];
        for query in queries {
            for filter in filters().iter().map(Some).chain([None]) {
                answers.push(reader.search(&query, filter, 12).unwrap());
            }
        }
    }
    answers
}

#[test]
fn search_any_tier_and_threads_has_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    for (i, layout) in layouts().into_iter().step_by(2).enumerate() {
        let path = dir.path().join(i.to_string());
        let index = index(&path, Metric::Cosine, layout, (0..2200).map(|n| document(n, 0, DIM)));
        let reader = index.reader().unwrap();
        let expected = answers(&reader);
        assert!(expected.iter().filter(|hits| hits.len() == 12).count() > 20);
        for kernels in Kernels::available() {
            for threads in [1, 2, 3] {
                let reader = reader
                    .clone()
                    .with_kernels(kernels)
                    .with_pool(Arc::new(Pool::new(threads)));
                assert_eq!(answers(&reader), expected, "{layout:?} {} {threads}", kernels.tier());
            }
        }
    }
}

#[test]
fn words_are_scored_by_the_definition() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = index(
        &dir.path().join("i"),
        Metric::Dot,
        Layout::default(),
        (0..200).map(|n| document(n, 0, DIM)),
    );
    for number in 0..60 {
        index.delete(&Id::from(number * 3)).unwrap();
    }
    index.commit().unwrap();
    let reader = index.reader().unwrap();
    // Words that are what is between spaces.
    let mut texts = BTreeMap::new();
    reader
        .for_each(|d| {
            let text = d.text.replace("getUserName", "getusername get user name");
            let text = text
                .replace("snake_case", "snake_case snake case")
                .replace("3.14", "3.14 3 14");
            let text = text.replace("北京大学", "北京 京大 大学").to_lowercase();
            texts.insert(d.id, text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            Ok(())
        })
        .unwrap();
    let asked = ["river", "user", "大学", "river", "absent"];
    let mean = texts.values().map(Vec::len).sum::<usize>() as f64 / texts.len() as f64;
    let mut expected: Vec<(Id, f64)> = Vec::new();
    for (id, words) in &texts {
        let mut score = 0.0;
        for word in asked {
            let having = texts.values().filter(|t| t.iter().any(|w| w == word)).count() as f64;
            let times = words.iter().filter(|w| *w == word).count() as f64;
            let idf = (1.0 + (texts.len() as f64 - having + 0.5) / (having + 0.5)).ln();
            score += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * words.len() as f64 / mean));
        }
        if score > 0.0 {
            expected.push((id.clone(), score));
        }
    }
    expected.sort_by(|a, b| (b.1 as f32).total_cmp(&(a.1 as f32)).then_with(|| a.0.cmp(&b.0)));
    let found = reader.search(&Query::Words(&asked.join(" ")), None, 1000).unwrap();
    assert!(found.len() > 50);
    assert_eq!(found.len(), expected.len());
    for (hit, (_, score)) in found.iter().zip(&expected) {
        assert!((f64::from(hit.score) - score).abs() < 1e-5 * score, "{hit:?} {score}");
    }
}

#[test]
fn both_sides_are_joined_by_rank_and_both_scores_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let index = index(
        &dir.path().join("i"),
        Metric::Cosine,
        Layout::default(),
        (0..400).map(|n| document(n, 0, DIM)),
    );
    let reader = index.reader().unwrap();
    let (vector, words) = (Random::new(3).vector(DIM), "river vector");
    let near = reader.search(&Query::Vector(&vector), None, 100).unwrap();
    let worded = reader.search(&Query::Words(words), None, 100).unwrap();
    let rank = |list: &[Hit], id: &Id| {
        list.iter()
            .position(|h| h.id == *id)
            .map_or(0.0, |r| 1.0 / (61.0 + r as f32))
    };
    let found = reader
        .search(&Query::Both { vector: &vector, words }, None, 20)
        .unwrap();
    assert_eq!(found.len(), 20);
    for pair in found.windows(2) {
        assert!(pair[0].score > pair[1].score || (pair[0].score == pair[1].score && pair[0].id < pair[1].id));
    }
    for hit in &found {
        assert_eq!(hit.score, rank(&near, &hit.id) + rank(&worded, &hit.id), "{hit:?}");
        if let Some(known) = near.iter().find(|h| h.id == hit.id) {
            assert_eq!(known.similarity, hit.similarity);
        }
        if let Some(known) = worded.iter().find(|h| h.id == hit.id) {
            assert_eq!(known.bm25, hit.bm25);
        }
        assert!(hit.similarity.is_some() && hit.bm25.is_some());
    }
}

#[test]
fn equal_scores_are_ordered_by_id() {
    let dir = tempfile::tempdir().unwrap();
    let same = |n: u64| Document::new(n, vec![1.0; DIM]).with_text("same words");
    let mut index = index(
        &dir.path().join("i"),
        Metric::Dot,
        Layout::default(),
        (0..50).rev().map(same),
    );
    index.upsert(same(30)).unwrap();
    index.commit().unwrap();
    let reader = index.reader().unwrap();
    for query in [Query::Vector(&[1.0; DIM]), Query::Words("words")] {
        let found = reader.search(&query, None, 7).unwrap();
        let ids: Vec<Id> = found.into_iter().map(|h| h.id).collect();
        assert_eq!(ids, (0..7u64).map(Id::from).collect::<Vec<_>>());
    }
}

#[test]
fn eight_bits_lose_less_than_a_hundredth_of_recall() {
    // Vectors around centers, as embeddings lie, and queries near some of them.
    let (dim, count, queries, k) = (384, 4000, 50, 10);
    let mut random = Random::new(11);
    let centers: Vec<Vec<f32>> = (0..100).map(|_| random.vector(dim)).collect();
    let mut near = |center: &[f32], spread: f32| -> Vec<f32> {
        let noise = random.vector(center.len());
        center.iter().zip(noise).map(|(c, n)| c + spread * n).collect()
    };
    let vectors: Vec<Vec<f32>> = (0..count).map(|i| near(&centers[i % 100], 1.0)).collect();
    let asked: Vec<Vec<f32>> = (0..queries).map(|i| near(&vectors[i * 71], 0.7)).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut results = Vec::new();
    for encoding in [Encoding::F32, Encoding::Int8, Encoding::Binary] {
        let layout = Layout {
            encoding,
            ids: IdKind::Number,
        };
        let path = dir.path().join(encoding.name());
        let mut index = Index::create(&path, &recipe(dim, Metric::Cosine), layout).unwrap();
        for (vector, number) in vectors.iter().zip(0u64..) {
            index.add(Document::new(number, vector.clone())).unwrap();
        }
        index.commit().unwrap();
        let reader = index.reader().unwrap();
        let found = asked.iter().map(|q| reader.search(&Query::Vector(q), None, k).unwrap());
        results.push(
            found
                .map(|hits| hits.into_iter().map(|h| h.id).collect())
                .collect::<Vec<Vec<Id>>>(),
        );
    }
    let recall = |found: &[Vec<Id>]| {
        let common = |(a, b): (&Vec<Id>, &Vec<Id>)| a.iter().filter(|id| b.contains(id)).count();
        found.iter().zip(&results[0]).map(common).sum::<usize>() as f64 / (queries * k) as f64
    };
    assert!(recall(&results[1]) >= 0.99, "int8 {}", recall(&results[1]));
    assert!(recall(&results[2]) >= 0.9, "binary {}", recall(&results[2]));
}

#[test]
fn queries_that_cannot_be_are_refused_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let index = index(
        &dir.path().join("i"),
        Metric::Cosine,
        Layout::default(),
        (0..5).map(|n| document(n, 0, DIM)),
    );
    let reader = index.reader().unwrap();
    let nan = [f32::NAN; DIM];
    let vectors: [(&[f32], &str); 3] = [(&[1.0], "found 1"), (&nan, "NaN"), (&[0.0; DIM], "no direction")];
    for (vector, why) in vectors {
        let error = reader.search(&Query::Vector(vector), None, 3).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains(why),
            "{error}"
        );
    }
    let deep = (0..100).fold(Filter::exists("a"), |filter, _| filter.negated());
    let filters = [
        (Filter::Range("a".to_owned(), None, None), "found none"),
        (Filter::between("a", 1i64, "b"), "can be compared"),
        (Filter::between("a", false, true), "truth value"),
        (Filter::eq("a", f64::NAN), "NaN"),
        (deep, "levels"),
    ];
    for (filter, why) in filters {
        let error = reader.search(&Query::Words("x"), Some(&filter), 3).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains(why),
            "{error}"
        );
    }
    let ranking = Ranking {
        b: 2.0,
        ..Ranking::default()
    };
    let error = reader.search_ranked(&Query::Words("x"), None, 3, &ranking).unwrap_err();
    assert!(error.to_string().contains("b of 0 to 1"), "{error}");
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    Upsert(u64, u64),
    Delete(u64),
    Commit,
    Compact,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..40u64, 0..5u64).prop_map(|(n, version)| Step::Upsert(n, version)),
        3 => (0..40u64).prop_map(Step::Delete),
        3 => Just(Step::Commit),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_history_answers_as_a_new_index_with_the_same_documents(steps in steps(), layout in 0..6usize) {
        let layout = layouts()[layout];
        let id = |n: u64| if layout.ids == IdKind::Text { with_text_id(document(n, 0, DIM)).id } else { Id::from(n) };
        let make = |n, version| {
            let document = document(n, version, DIM);
            if layout.ids == IdKind::Text { with_text_id(document) } else { document }
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i");
        let mut index = Index::create(&path, &recipe(DIM, Metric::Euclidean), layout).unwrap();
        index.set_durable(false);
        let mut reader = index.reader().unwrap();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Upsert(n, version) => {
                    index.upsert(make(n, version)).unwrap();
                    model.insert(n, version);
                }
                Step::Delete(n) => prop_assert_eq!(index.delete(&id(n)).unwrap(), model.remove(&n).is_some()),
                Step::Commit => prop_assert_eq!(index.commit().unwrap().documents, model.len() as u64),
                Step::Compact => prop_assert_eq!(index.compact().unwrap().documents, model.len() as u64),
                Step::Reopen => {
                    index.commit().unwrap();
                    drop(index);
                    index = Index::open(&path, None).unwrap();
                    index.set_durable(false);
                }
            }
            prop_assert_eq!(index.documents(), model.len() as u64);
        }
        index.commit().unwrap();
        reader.refresh().unwrap();
        reader.verify().unwrap();
        for n in 0..40 {
            let found = reader.get(&id(n)).unwrap();
            let expected = model.get(&n).map(|version| make(n, *version));
            prop_assert_eq!(found.as_ref().map(|d| &d.text), expected.as_ref().map(|d| &d.text));
            prop_assert_eq!(found.map(|d| d.metadata), expected.map(|d| d.metadata));
        }
        let mut fresh = Index::create(&dir.path().join("f"), &recipe(DIM, Metric::Euclidean), layout).unwrap();
        for (n, version) in &model {
            fresh.add(make(*n, *version)).unwrap();
        }
        fresh.commit().unwrap();
        prop_assert_eq!(answers(&reader), answers(&fresh.reader().unwrap()));
    }
}
