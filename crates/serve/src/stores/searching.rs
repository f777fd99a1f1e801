//! Searches in stores.

use super::disk::no_space;
use super::record::State;
use super::{EntryRecord, Stores, now};
use crate::models::{EmbeddingModel, Lease};
use crate::protocol::openai::vector_stores::{Comparison, Filter, How, Match, Place};
use crate::protocol::{ApiError, Kind};
use cactus_rag::{Collection, Embed, EmbedError, Error, Nearness, PIECE_TOKENS, Search, Vectors};
use cactus_retrieval::{ErrorKind, Recipe, Value as Stored};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Before the name of an attribute in the metadata of pieces, which have others, too.
const ATTRIBUTE: char = '@';

/// A model of vectors that is asked in turn with others: a long document holds up nobody for longer than a few of its pieces take.
pub(crate) struct InTurn {
    lease: Lease<EmbeddingModel>,
    vectors: Vectors,
}

impl InTurn {
    /// A loaded model.
    pub(crate) async fn of(lease: Lease<EmbeddingModel>) -> InTurn {
        let vectors = lease.model().turn().await.texts().clone();
        InTurn { lease, vectors }
    }

    /// What this server calls it.
    pub(crate) fn name(&self) -> &str {
        &self.lease.model().name
    }
}

impl Embed for InTurn {
    fn recipe(&self) -> Recipe {
        self.vectors.recipe()
    }

    fn most_tokens(&self) -> usize {
        self.vectors.most_tokens()
    }

    fn count_tokens(&self, text: &str) -> usize {
        self.vectors.count_tokens(text)
    }

    fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let turn = self.lease.model().turn_here();
        turn.texts().embed_documents(texts)
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let turn = self.lease.model().turn_here();
        turn.texts().embed_query(text)
    }

    fn embed_unrelated(&self) -> Result<Arc<[Vec<f32>]>, EmbedError> {
        let turn = self.lease.model().turn_here();
        turn.texts().embed_unrelated()
    }
}

/// A piece that was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The piece; its path is the file's id.
    pub(crate) piece: cactus_rag::Found,
    /// The file, as it is in its store.
    pub(crate) entry: EntryRecord,
}

impl Found {
    pub(crate) fn told(&self) -> Match<'_> {
        Match {
            file: &self.entry.file,
            filename: &self.entry.filename,
            attributes: &self.entry.attributes,
            score: self.piece.similarity.unwrap_or_default(),
            text: &self.piece.text,
            place: Place {
                page: self.piece.page,
                lines: self.piece.lines,
                bytes: [self.piece.bytes.start, self.piece.bytes.end],
                headings: &self.piece.headings,
            },
        }
    }

    /// A piece of a folder, whose files are called by their paths.
    pub(super) fn of_folder(piece: cactus_rag::Found) -> Found {
        let entry = EntryRecord {
            file: piece.path.clone(),
            number: 0,
            created_at: 0,
            filename: piece.path.clone(),
            state: State::Completed,
            failure: None,
            usage_bytes: 0,
            attributes: Map::new(),
            piece_tokens: PIECE_TOKENS,
            time: 0,
        };
        Found { piece, entry }
    }
}

impl Stores {
    /// The model that a store was made with.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn embedder(&self, owner: &str, store: &str) -> Result<String, ApiError> {
        Ok(self.inner().store(owner, store)?.record.embedder.clone())
    }

    /// Searches a store, the best first.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the index, also where it is of another model; the model.
    pub(crate) fn search(
        &self,
        owner: &str,
        store: &str,
        model: &InTurn,
        questions: &[String],
        how: &How,
    ) -> Result<Vec<Found>, ApiError> {
        self.inner().store_mut(owner, store)?.last_active_at = now();
        let found = find(&Collection::new(&self.folder.index(store)), model, questions, how);
        let inner = self.inner();
        let store = inner.store(owner, store)?;
        let found = found?.into_iter();
        // What is just being taken out is gone.
        let found = found.filter_map(|piece| {
            let entry = store.entry(&piece.path).ok()?.clone();
            Some(Found { piece, entry })
        });
        Ok(found.collect())
    }
}

/// Searches an index, the best first.
pub(super) fn find(
    collection: &Collection,
    model: &InTurn,
    questions: &[String],
    how: &How,
) -> Result<Vec<cactus_rag::Found>, ApiError> {
    let filter = how.filter.as_ref().map(condition);
    let search = Search {
        questions,
        filter: filter.as_ref(),
        most: how.most,
        nearness: how.threshold.map_or(Nearness::Any, Nearness::AtLeast),
        weights: how.weights,
    };
    collection.search(model, &search).map_err(|e| of_index(&e))
}

/// Attributes as pieces have them.
pub(super) fn metadata(attributes: &Map<String, Value>) -> BTreeMap<String, Stored> {
    let pair = |(name, value): (&String, &Value)| Some((format!("{ATTRIBUTE}{name}"), stored(value)?));
    attributes.iter().filter_map(pair).collect()
}

/// Whether this metadata of a piece is an attribute.
pub(super) fn is_attribute(name: &str) -> bool {
    name.starts_with(ATTRIBUTE)
}

fn stored(value: &Value) -> Option<Stored> {
    match value {
        Value::String(text) => Some(Stored::from(text.as_str())),
        Value::Bool(flag) => Some(Stored::from(*flag)),
        Value::Number(number) => number
            .as_i64()
            .map(Stored::from)
            .or_else(|| number.as_f64().map(Stored::from)),
        _ => None,
    }
}

/// A filter as the index takes it.
fn condition(filter: &Filter) -> cactus_retrieval::Filter {
    use cactus_retrieval::Filter as To;
    let all = |values: &[Value]| values.iter().filter_map(stored).collect::<Vec<_>>();
    match filter {
        Filter::And(inner) => To::And(inner.iter().map(condition).collect()),
        Filter::Or(inner) => To::Or(inner.iter().map(condition).collect()),
        Filter::Compare(key, comparison) => {
            let name = || format!("{ATTRIBUTE}{key}");
            let is = |value: &Value| To::In(name(), all(std::slice::from_ref(value)));
            let beyond = |from: Option<Stored>, to: Option<Stored>, value: &Value, or_equal: bool| {
                let range = To::Range(name(), from, to);
                match or_equal {
                    true => range,
                    false => To::And(vec![range, is(value).negated()]),
                }
            };
            match comparison {
                Comparison::Equal(value) => is(value),
                Comparison::NotEqual(value) => is(value).negated(),
                Comparison::Greater(value, or_equal) => beyond(stored(value), None, value, *or_equal),
                Comparison::Less(value, or_equal) => beyond(None, stored(value), value, *or_equal),
                Comparison::In(values) => To::In(name(), all(values)),
                Comparison::NotIn(values) => To::In(name(), all(values)).negated(),
            }
        }
    }
}

/// An error of an index as clients see it; where it lies is in the log.
pub(super) fn of_index(error: &Error) -> ApiError {
    let Error::Index(index) = error else {
        return ApiError::new(Kind::Server, error.to_string());
    };
    tracing::error!(%error, "an index of a vector store");
    match index.kind() {
        ErrorKind::NoSpace => no_space("the index of the vector store cannot grow: no space is left on the device"),
        ErrorKind::Recipe => {
            let message = "the vector store was made with another model than the one that this server has under its name; start \
                           the server with that one, or make a new store";
            ApiError::new(Kind::Invalid, message).with_code("wrong_embedder")
        }
        ErrorKind::NotFound => ApiError::new(Kind::NotFound, "the vector store was deleted").with_code("not_found"),
        ErrorKind::Invalid => ApiError::new(Kind::Invalid, "the index of the vector store does not take that"),
        ErrorKind::Busy => ApiError::new(Kind::Busy, "another process writes the index of the vector store"),
        _ => ApiError::new(
            Kind::Server,
            "the index of the vector store is damaged or cannot be read",
        )
        .with_code("data_folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Fields;
    use cactus_rag::Incoming;
    use cactus_retrieval::Metric;
    use serde_json::json;

    /// All texts are alike.
    struct Alike;

    impl Embed for Alike {
        fn recipe(&self) -> Recipe {
            Recipe::new("alike", 2, Metric::Cosine)
        }
        fn most_tokens(&self) -> usize {
            100
        }
        fn count_tokens(&self, text: &str) -> usize {
            text.split_whitespace().count()
        }
        fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(vec![vec![1.0, 0.0]; texts.len()])
        }
        fn embed_query(&self, _: &str) -> Result<Vec<f32>, EmbedError> {
            Ok(vec![1.0, 0.0])
        }
    }

    #[test]
    fn filters_hold_for_the_attributes_that_they_are_about() {
        let folder = tempfile::tempdir().unwrap();
        let collection = Collection::create(&folder.path().join("index"), &Alike.recipe()).unwrap();
        for (name, attributes) in [
            ("a", json!({"year": 2019, "tag": "x", "path": "b", "open": true})),
            ("b", json!({"year": 2020.5, "tag": "y", "open": false})),
            ("c", json!({"year": "2020"})),
            ("d", json!({})),
        ] {
            let incoming = Incoming {
                name,
                title: name,
                kind: cactus_rag::Kind::Text,
                text: "some words",
                most_tokens: PIECE_TOKENS,
            };
            let prepared = collection.prepare(&Alike, &incoming, &|| false).unwrap();
            let attributes = metadata(attributes.as_object().unwrap());
            collection.put(name, prepared, &attributes).unwrap();
        }
        let compare = |kind: &str, key: &str, value: Value| json!({"type": kind, "key": key, "value": value});
        for (filter, expected) in [
            (compare("eq", "year", json!(2019)), "a"),
            (compare("eq", "year", json!(2019.0)), "a"),
            (compare("ne", "year", json!(2019)), "bcd"),
            (compare("gt", "year", json!(2019)), "b"),
            (compare("gte", "year", json!(2019)), "ab"),
            (compare("lt", "year", json!(2020.5)), "a"),
            (compare("lte", "year", json!(2020.5)), "ab"),
            (compare("lte", "year", json!("2020")), "c"),
            (compare("in", "tag", json!(["x", "z"])), "a"),
            (compare("nin", "tag", json!(["x", "z"])), "bcd"),
            (compare("in", "tag", json!([])), ""),
            (compare("eq", "open", json!(false)), "b"),
            // Not the metadata that pieces have of their own.
            (compare("eq", "path", json!("b")), "a"),
            (
                json!({"type": "or", "filters": [compare("eq", "tag", json!("y")), compare("eq", "year", json!("2020"))]}),
                "bc",
            ),
            (
                json!({"type": "and", "filters": [compare("ne", "tag", json!("y")), compare("gte", "year", json!(0))]}),
                "a",
            ),
        ] {
            let read = Filter::read(&Fields::at(&filter, "filters".to_owned()).unwrap()).unwrap();
            let read = condition(&read);
            let search = Search {
                questions: &["words".to_owned()],
                filter: Some(&read),
                most: 10,
                nearness: Nearness::Any,
                weights: Some([1.0, 1.0]),
            };
            let mut found: Vec<String> = collection
                .search(&Alike, &search)
                .unwrap()
                .into_iter()
                .map(|f| f.path)
                .collect();
            found.sort();
            assert_eq!(found.concat(), expected, "{filter}");
        }
    }
}
