//! Search by words: BM25 (Robertson and Zaragoza 2009) over all documents.
//!
//! `idf * times * (k1 + 1) / (times + k1 * (1 - b + b * words / mean words))`, summed over the words of the query in their
//! order, with `idf = ln(1 + (N - n + 0.5) / (n + 0.5))`. `N`, `n` and the mean count the documents that are there, deleted ones
//! not, whatever a filter says. So scores are those of an index that was made anew with the same documents.

use crate::error::Result;
use crate::query::Ranking;
use crate::reader::Reader;
use crate::scan::Allowed;
use crate::top::{Candidate, Top};
use crate::words::words;

/// Scores of the rows of each part; of parts without any of the words, none.
pub(crate) type Scores = Vec<Vec<f64>>;

impl Reader {
    /// The `k` best rows by words, and the scores of all that count.
    pub(crate) fn by_words(
        &self,
        text: &str,
        allowed: &Allowed,
        k: usize,
        ranking: &Ranking,
    ) -> Result<(Vec<Candidate<'_>>, Scores)> {
        let parts = &self.snapshot.parts;
        let mut asked: Vec<(String, f64)> = Vec::new();
        words(text, |word| match asked.iter_mut().find(|(known, _)| known == word) {
            Some((_, times)) => *times += 1.0,
            None => asked.push((word.to_owned(), 1.0)),
        });
        let mut tables = Vec::with_capacity(parts.len());
        for part in parts {
            tables.push(part.segment.words()?);
        }
        let documents = self.snapshot.documents as f64;
        let mean = (self.snapshot.words as f64 / documents.max(1.0)).max(1.0);
        let (k1, b) = (f64::from(ranking.k1), f64::from(ranking.b));
        let mut scores: Scores = vec![Vec::new(); parts.len()];
        let mut seen: Vec<Vec<u32>> = vec![Vec::new(); parts.len()];
        for (word, asked) in &asked {
            let mut places = Vec::new();
            let mut having = 0u64;
            for (p, (part, table)) in parts.iter().zip(&tables).enumerate() {
                let damaged = || part.segment.damaged("its words");
                let Some(at) = table.texts.find(word.as_bytes()).ok_or_else(damaged)? else {
                    continue;
                };
                let mut postings = table.postings(at).ok_or_else(damaged)?;
                having += match &part.deleted {
                    None => u64::from(table.count(at).ok_or_else(damaged)?),
                    Some(deleted) => postings.by_ref().filter(|(row, _)| !deleted.has(*row as usize)).count() as u64,
                };
                places.push((p, at));
            }
            let having = having as f64;
            let idf = libm::log(1.0 + (documents - having + 0.5).max(0.0) / (having + 0.5));
            for (p, at) in places {
                let segment = &parts[p].segment;
                let damaged = || segment.damaged("its words");
                let lengths = segment.lengths()?;
                let scores = &mut scores[p];
                if scores.is_empty() {
                    *scores = vec![0.0; segment.rows];
                }
                let mut postings = tables[p].postings(at).ok_or_else(damaged)?;
                for (row, times) in postings.by_ref() {
                    let row = row as usize;
                    if allowed[p].as_ref().is_some_and(|rows| !rows.has(row)) {
                        continue;
                    }
                    let (times, length) = (f64::from(times), f64::from(lengths[row]));
                    let norm = k1 * (1.0 - b + b * length / mean);
                    if scores[row] == 0.0 {
                        seen[p].push(row as u32);
                    }
                    scores[row] += asked * idf * (times * (k1 + 1.0) / (times + norm));
                }
                if postings.is_damaged() {
                    return Err(damaged());
                }
            }
        }
        let mut top = Top::new(k);
        for (part, rows) in seen.iter().enumerate() {
            for &row in rows {
                let (row, threshold) = (row as usize, top.threshold());
                let score = scores[part][row] as f32;
                if score >= threshold {
                    let id = parts[part].segment.id(row)?;
                    top.offer(Candidate { score, id, part, row });
                }
            }
        }
        Ok((top.into_sorted(), scores))
    }
}
