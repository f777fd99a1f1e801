//! Documents in an index that are put in one by one, each under a name of its own.

use crate::cut::Kind;
use crate::found::{Found, found};
use crate::known::{self, Of, Stamp};
use crate::prepared::{Prepared, create, give_back};
use crate::{Embed, Error, Nearness, Result, nearness};
use cactus_retrieval::{Filter, Hit, Id, Index, Query, Ranking, Reader, Recipe, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Results that are looked at where one of them has to be near enough.
const MOST_CANDIDATES: usize = 10_000;
/// Results that are read to see whether they have every word of a question; those that have are among the first.
const MOST_READ: usize = 64;

/// A document that is to be put in.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Under which name; a document with the same name makes room.
    pub name: &'a str,
    /// What a reader calls it.
    pub title: &'a str,
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub text: &'a str,
    /// Most tokens of a piece, where the model takes so many.
    pub most_tokens: usize,
}

/// What is searched for, and where.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// Questions; a piece counts as the one says that it is nearest to.
    pub questions: &'a [String],
    /// Only pieces for whose metadata this holds.
    pub filter: Option<&'a Filter>,
    /// Most pieces.
    pub most: usize,
    /// How near a piece has to be.
    pub nearness: Nearness,
    /// What the ranks by meaning and by words count; `None` orders by the cosine alone.
    pub weights: Option<[f32; 2]>,
}

/// An index of documents that come one by one. Unlike [`Corpus`](crate::Corpus) it follows no folder. Whoever writes takes care that nobody else
/// does at the same time; [`Collection::prepare`] does not write.
#[derive(Clone, Debug)]
pub struct Collection {
    index: PathBuf,
}

impl Collection {
    /// Makes one in the file `index`, which is not there yet.
    ///
    /// # Errors
    /// Where the index cannot be made.
    pub fn create(index: &Path, recipe: &Recipe) -> Result<Collection> {
        create(index, recipe)?;
        Ok(Collection::new(index))
    }

    /// The one in the file `index`.
    #[must_use]
    pub fn new(index: &Path) -> Collection {
        Collection {
            index: index.to_path_buf(),
        }
    }

    /// Cuts a document and makes vectors of those of its pieces that the index does not have; writes nothing. [`Collection::put`] does.
    ///
    /// # Errors
    /// The index, also where it is of another model; the model; [`Error::Cancelled`] after `stop` was true.
    pub fn prepare(&self, model: &dyn Embed, document: &Incoming<'_>, stop: &dyn Fn() -> bool) -> Result<Prepared> {
        let reader = Reader::open(&self.index, Some(&model.recipe()))?;
        let stamp = Stamp {
            size: i64::try_from(document.text.len()).unwrap_or(i64::MAX),
            modified_ns: 0,
            hash: known::hash(document.text.as_bytes()),
        };
        let of = Of {
            path: document.name,
            title: Some(document.title),
            kind: document.kind,
            stamp: &stamp,
        };
        Prepared::new(&reader, model, of, document.text, document.most_tokens, stop)
    }

    /// Puts a document in, in one commit, with `metadata` in each of its pieces. What the document `name` was before is gone then.
    ///
    /// # Errors
    /// The index.
    pub fn put(&self, name: &str, prepared: Prepared, metadata: &BTreeMap<String, Value>) -> Result<()> {
        let mut index = Index::open(&self.index, None)?;
        let old = of(&index.reader()?, name)?;
        prepared.with(metadata).write(&mut index, old)
    }

    /// Gives the pieces of a document other metadata: names that `stays` is true of keep what they have, and `metadata` is put beside.
    ///
    /// # Errors
    /// The index.
    pub fn describe(&self, name: &str, stays: &dyn Fn(&str) -> bool, metadata: &BTreeMap<String, Value>) -> Result<()> {
        let mut index = Index::open(&self.index, None)?;
        let reader = index.reader()?;
        for id in of(&reader, name)? {
            if let Some(mut document) = reader.get(&id)? {
                document.metadata.retain(|name, _| stays(name));
                document.metadata.extend(metadata.clone());
                index.upsert(document)?;
            }
        }
        index.commit()?;
        give_back(&mut index)
    }

    /// Takes a document out, in one commit.
    ///
    /// # Errors
    /// The index.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut index = Index::open(&self.index, None)?;
        for id in of(&index.reader()?, name)? {
            index.delete(&id)?;
        }
        index.commit()?;
        give_back(&mut index)
    }

    /// The pieces of a document, in their order.
    ///
    /// # Errors
    /// The index.
    pub fn pieces(&self, name: &str) -> Result<Vec<Found>> {
        let reader = Reader::open(&self.index, None)?;
        let hit = |id: Id| Hit {
            id,
            score: 0.0,
            similarity: None,
            bm25: None,
        };
        let ids = of(&reader, name)?.into_iter();
        let pieces = ids.filter_map(|id| found(&reader, &self.index, &hit(id)).transpose());
        let mut pieces = pieces.collect::<Result<Vec<Found>>>()?;
        pieces.sort_by_key(|piece| piece.bytes.start);
        Ok(pieces)
    }

    /// The pieces nearest to the questions, the best first, equal ones by id.
    ///
    /// # Errors
    /// The index, also where it is of another model; a filter that cannot be; the model.
    pub fn search(&self, model: &dyn Embed, search: &Search<'_>) -> Result<Vec<Found>> {
        let reader = Reader::open(&self.index, Some(&model.recipe()))?;
        let least = match search.nearness {
            Nearness::Any => None,
            Nearness::AtLeast(least) => Some(least),
            Nearness::Related => Some(nearness::threshold(&reader, model)?),
        };
        let most = match least {
            // Others than the first may be near enough.
            Some(_) => search.most.max(MOST_CANDIDATES),
            None => search.most,
        };
        let ranking = Ranking {
            weights: search.weights.unwrap_or(Ranking::default().weights),
            ..Ranking::default()
        };
        let mut best: BTreeMap<Id, Hit> = BTreeMap::new();
        for question in search.questions {
            let vector = model.embed_query(question).map_err(Error::Embed)?;
            let query = match search.weights {
                Some(_) => Query::Both {
                    vector: &vector,
                    words: question,
                },
                None => Query::Vector(&vector),
            };
            let mut read = 0;
            for hit in reader.search_ranked(&query, search.filter, most, &ranking)? {
                let is_better = best
                    .get(&hit.id)
                    .is_none_or(|other| by_score(&hit, other) == Ordering::Less);
                let mut near = match (least, hit.similarity) {
                    (Some(least), Some(similarity)) => similarity >= least,
                    _ => true,
                };
                let may_name = search.nearness == Nearness::Related && hit.bm25.is_some() && read < MOST_READ;
                if !near && is_better && may_name {
                    read += 1;
                    let piece = found(&reader, &self.index, &hit)?;
                    near = piece.is_some_and(|piece| nearness::has_every_word(question, &piece));
                }
                if near && is_better {
                    best.insert(hit.id.clone(), hit);
                }
            }
        }
        let mut hits: Vec<Hit> = best.into_values().collect();
        // Stable, so that equal ones stay in the order of their ids.
        hits.sort_by(by_score);
        hits.truncate(search.most);
        let hits = hits.iter();
        hits.filter_map(|hit| found(&reader, &self.index, hit).transpose())
            .collect()
    }
}

/// The better one first.
fn by_score(a: &Hit, b: &Hit) -> Ordering {
    b.score.total_cmp(&a.score)
}

/// The ids of the pieces of a document.
fn of(reader: &Reader, name: &str) -> Result<BTreeSet<Id>> {
    Ok(reader.matching(&known::is_of(name))?.into_iter().collect())
}
