//! What is asked of an index, and what it answers.

use crate::document::Id;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::Filter;
use crate::reader::Reader;
use crate::scan::Allowed;
use crate::top::Candidate;
use std::collections::BTreeMap;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Query<'a> {
    /// Vectors near this one, `[dimensions]`.
    Vector(&'a [f32]),
    /// Texts with these words.
    Words(&'a str),
    /// Both, joined by their ranks.
    Both {
        /// As [`Query::Vector`].
        vector: &'a [f32],
        /// As [`Query::Words`].
        words: &'a str,
    },
}

/// How results are ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranking {
    /// How soon more of the same word adds nothing, from 0 on.
    pub k1: f32,
    /// How much long texts are held to be long, 0 to 1.
    pub b: f32,
    /// Of a rank that begins with 1, `1 / (constant + rank)` is added to the score (Cormack et al. 2009).
    pub fusion_constant: f32,
    /// Results of each side that are joined; at least as many as are asked for.
    pub candidates: usize,
    /// What the ranks by vectors and by words count.
    pub weights: [f32; 2],
}

impl Default for Ranking {
    fn default() -> Ranking {
        Ranking {
            k1: 1.2,
            b: 0.75,
            fusion_constant: 60.0,
            candidates: 100,
            weights: [1.0, 1.0],
        }
    }
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Which one.
    pub id: Id,
    /// What results are ordered by: the similarity, the score by words, or what joins their ranks.
    pub score: f32,
    /// Cosine, dot product or negated squared distance, where a vector was asked for.
    pub similarity: Option<f32>,
    /// BM25, where words were asked for; 0 where the text has none of them.
    pub bm25: Option<f32>,
}

impl Reader {
    /// The `k` best documents, the best first, equal ones by id; fewer where there are fewer. With a filter, only documents
    /// for which it holds.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a query or filter that cannot be; [`ErrorKind::Damaged`]; [`ErrorKind::Lost`] where the file
    /// went away.
    pub fn search(&self, query: &Query<'_>, filter: Option<&Filter>, k: usize) -> Result<Vec<Hit>> {
        self.search_ranked(query, filter, k, &Ranking::default())
    }

    /// [`Reader::search`] with another ranking.
    ///
    /// # Errors
    /// As [`Reader::search`]; [`ErrorKind::Invalid`] for a ranking that cannot be.
    pub fn search_ranked(
        &self,
        query: &Query<'_>,
        filter: Option<&Filter>,
        k: usize,
        ranking: &Ranking,
    ) -> Result<Vec<Hit>> {
        let found = self.ranked(query, filter, k, ranking);
        // What a file that went away reads as says nothing.
        self.snapshot.intact()?;
        found
    }

    fn ranked(&self, query: &Query<'_>, filter: Option<&Filter>, k: usize, ranking: &Ranking) -> Result<Vec<Hit>> {
        ranking
            .check()
            .map_err(|what| Error::new(ErrorKind::Invalid, &self.snapshot.disk.path, what))?;
        let allowed = self.allowed(filter)?;
        // More than there are need no memory.
        let k = k.min(usize::try_from(self.snapshot.documents).unwrap_or(usize::MAX));
        let hits = match query {
            Query::Vector(vector) => {
                let target = self.target(vector)?;
                let found = self.nearest(&target, &allowed, k)?;
                let hit = |c: &Candidate<'_>| self.hit(c, c.score, Some(c.score), None);
                found.iter().map(hit).collect::<Result<_>>()?
            }
            Query::Words(words) => {
                let (found, _) = self.by_words(words, &allowed, k, ranking)?;
                let hit = |c: &Candidate<'_>| self.hit(c, c.score, None, Some(c.score));
                found.iter().map(hit).collect::<Result<_>>()?
            }
            Query::Both { vector, words } => self.both(vector, words, &allowed, k, ranking)?,
        };
        Ok(hits)
    }

    /// The rows that count: not deleted, and as the filter says.
    fn allowed(&self, filter: Option<&Filter>) -> Result<Allowed> {
        if let Some(filter) = filter {
            filter.check(&self.snapshot.disk.path)?;
        }
        let parts = self.snapshot.parts.iter();
        parts
            .map(|part| match filter {
                Some(filter) => Ok(Some(filter.rows(&part.segment)?.and(&part.live()))),
                None => Ok(part.deleted.as_ref().map(|_| part.live())),
            })
            .collect()
    }

    fn both(&self, vector: &[f32], words: &str, allowed: &Allowed, k: usize, ranking: &Ranking) -> Result<Vec<Hit>> {
        let candidates = ranking.candidates.max(k);
        let target = self.target(vector)?;
        let near = self.nearest(&target, allowed, candidates)?;
        let (worded, scores) = self.by_words(words, allowed, candidates, ranking)?;
        let mut fused: BTreeMap<(usize, usize), (f32, Candidate<'_>)> = BTreeMap::new();
        for (list, weight) in [&near, &worded].into_iter().zip(ranking.weights) {
            for (before, candidate) in list.iter().enumerate() {
                let place = (candidate.part, candidate.row);
                let (score, _) = fused.entry(place).or_insert((0.0, *candidate));
                *score += weight / (ranking.fusion_constant + (before + 1) as f32);
            }
        }
        let mut order: Vec<Candidate<'_>> = fused
            .into_values()
            .map(|(score, candidate)| Candidate { score, ..candidate })
            .collect();
        order.sort();
        order.truncate(k);
        let hit = |c: &Candidate<'_>| {
            let similarity = self.score_of(&target, c.part, c.row)?;
            let bm25 = scores[c.part].get(c.row).copied().unwrap_or_default() as f32;
            self.hit(c, c.score, Some(similarity), Some(bm25))
        };
        order.iter().map(hit).collect()
    }

    fn hit(&self, found: &Candidate<'_>, score: f32, similarity: Option<f32>, bm25: Option<f32>) -> Result<Hit> {
        Ok(Hit {
            id: self.snapshot.parts[found.part].segment.own_id(found.row)?,
            score,
            similarity,
            bm25,
        })
    }
}

impl Ranking {
    fn check(&self) -> Result<(), String> {
        let within = |x: f32, low: f32, high: f32| (low..=high).contains(&x);
        let fields = [
            ("k1", within(self.k1, 0.0, 1000.0), "0 to 1000"),
            ("b", within(self.b, 0.0, 1.0), "0 to 1"),
            (
                "fusion_constant",
                within(self.fusion_constant, 0.0, 1e6),
                "0 to 1000000",
            ),
            (
                "weights",
                self.weights.iter().all(|w| within(*w, 0.0, 1e6)),
                "0 to 1000000",
            ),
            ("candidates", self.candidates <= 10_000, "at most 10000"),
        ];
        let wrong = fields.into_iter().find(|(_, right, _)| !right);
        wrong.map_or(Ok(()), |(name, _, range)| {
            Err(format!("ranking: expected {name} of {range}, found another"))
        })
    }
}
