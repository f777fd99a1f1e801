//! Exact search: every row beside the query, a bitmap to say which count, and the best kept.
//!
//! Threads take stretches of rows. A row's score depends on the row and the query alone, and the order of results on scores
//! and ids, so results are the same for any number of threads, any tier, and any way in which rows came into segments.

use crate::bitmap::Bitmap;
use crate::error::{Error, ErrorKind, Result};
use crate::index::normalize;
use crate::reader::Reader;
use crate::recipe::{Encoding, Metric};
use crate::segment::Segment;
use crate::segment::write::{signs, squared_length};
use crate::top::{Candidate, Top};
use cactus_base::Step;
use cactus_kernels::{RowQuery, SCAN_ROWS};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Blocks that are scored before the best are picked: their scores stay in the first cache.
const CHUNK_BLOCKS: usize = 64;
const CHUNK_ROWS: usize = CHUNK_BLOCKS * SCAN_ROWS;
/// Stretches for each thread.
const PARTS: usize = 4;
/// With binary vectors: so many candidates for each result, and at least so many.
const CANDIDATES: (usize, usize) = (8, 128);

/// A query vector, made ready.
#[derive(Debug)]
pub(crate) struct Target {
    values: Vec<f32>,
    query: RowQuery,
    squared_length: f32,
}

/// Writes the scores of the rows of some blocks.
type Score<'f> = dyn Fn(&Segment, Range<usize>, &mut [f32]) -> Result<()> + Sync + 'f;

/// The rows of each part that count; `None` is all.
pub(crate) type Allowed = Vec<Option<Bitmap>>;

impl Reader {
    /// A query vector as this index compares it, or what is wrong with it.
    pub(crate) fn target(&self, vector: &[f32]) -> Result<Target> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, &self.snapshot.disk.path, what));
        let recipe = self.recipe();
        if vector.len() != recipe.dimensions {
            let found = vector.len();
            return invalid(format!(
                "query: expected {} dimensions, found {found}",
                recipe.dimensions
            ));
        }
        if let Some(at) = vector.iter().position(|x| !x.is_finite()) {
            return invalid(format!("query: dimension {at} is {}", vector[at]));
        }
        let mut values = vector.to_vec();
        if recipe.metric == Metric::Cosine && !normalize(&mut values) {
            return invalid("query: a vector of zeros has no direction, which the cosine needs".to_owned());
        }
        Ok(Target {
            query: RowQuery::new(self.snapshot.shape.rows, &values),
            squared_length: squared_length(&values),
            values,
        })
    }

    /// The `k` nearest rows.
    pub(crate) fn nearest(&self, target: &Target, allowed: &Allowed, k: usize) -> Result<Vec<Candidate<'_>>> {
        if self.layout().encoding != Encoding::Binary {
            return self.scan(allowed, k, &|segment, blocks, out| {
                self.score(segment, target, blocks, out)
            });
        }
        let bits: Vec<u64> = signs(&target.values).collect();
        let candidates = k.saturating_mul(CANDIDATES.0).max(CANDIDATES.1);
        let found = self.scan(allowed, candidates, &|segment, blocks, out| {
            let mut counts = [0; CHUNK_ROWS];
            let counts = &mut counts[..out.len()];
            let range = blocks.start * bits.len()..blocks.end * bits.len();
            let lines = segment.bits()?.get(range).ok_or_else(|| segment.damaged("its bits"))?;
            self.kernels.hamming_rows(lines, &bits, counts);
            for (out, count) in out.iter_mut().zip(counts) {
                // Exact: there are at most 2^16 bits.
                *out = -(*count as f32);
            }
            Ok(())
        })?;
        let mut top = Top::new(k);
        for candidate in found {
            let score = self.score_of(target, candidate.part, candidate.row)?;
            if !score.is_nan() {
                top.offer(Candidate { score, ..candidate });
            }
        }
        Ok(top.into_sorted())
    }

    /// The score of one row.
    pub(crate) fn score_of(&self, target: &Target, part: usize, row: usize) -> Result<f32> {
        let mut out = [0.0; SCAN_ROWS];
        let block = row / SCAN_ROWS;
        self.score(&self.snapshot.parts[part].segment, target, block..block + 1, &mut out)?;
        Ok(out[row % SCAN_ROWS])
    }

    /// Scores of the rows of some blocks.
    fn score(&self, segment: &Segment, target: &Target, blocks: Range<usize>, out: &mut [f32]) -> Result<()> {
        let bytes = segment.shape.rows.block_bytes();
        let rows = segment.vectors()?.get(blocks.start * bytes..blocks.end * bytes);
        self.kernels
            .score_rows(rows.ok_or_else(|| segment.damaged("its vectors"))?, &target.query, out);
        if segment.shape.metric == Metric::Euclidean {
            let norms = segment.norms()?.get(blocks.start * SCAN_ROWS..).unwrap_or_default();
            for (out, norm) in out.iter_mut().zip(norms) {
                *out = (2.0 * *out - norm - target.squared_length).min(0.0);
            }
        }
        Ok(())
    }

    /// The `k` best rows by what `score` writes for those of some blocks.
    fn scan(&self, allowed: &Allowed, k: usize, score: &Score<'_>) -> Result<Vec<Candidate<'_>>> {
        let parts = &self.snapshot.parts;
        let chunks: Vec<usize> = parts.iter().map(|p| p.segment.rows.div_ceil(CHUNK_ROWS)).collect();
        let total: usize = chunks.iter().sum();
        let threads = self.pool.as_ref().map_or(1, |pool| pool.threads());
        let step = match &self.pool {
            Some(pool) if total > 1 => pool.step(threads),
            _ => Step::inline(),
        };
        let stretches = if step.width() > 1 {
            (PARTS * step.width()).min(total)
        } else {
            total.min(1)
        };
        let found = Mutex::new((Vec::new(), Ok(())));
        step.run(stretches, &|stretch| {
            let mut top = Top::new(k);
            let mine = stretch * total / stretches..(stretch + 1) * total / stretches;
            let mut first = 0;
            let mut done = Ok(());
            for (p, count) in chunks.iter().enumerate() {
                let own = mine.start.max(first)..mine.end.min(first + count);
                for chunk in own {
                    let result = self.scan_chunk(p, chunk - first, allowed[p].as_ref(), score, &mut top);
                    done = done.and(result);
                }
                first += count;
            }
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0.extend(top.into_sorted());
            if let Err(e) = done {
                found.1 = Err(e);
            }
        });
        let (candidates, done) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        done?;
        let mut top = Top::new(k);
        candidates.into_iter().for_each(|candidate| top.offer(candidate));
        Ok(top.into_sorted())
    }

    fn scan_chunk<'s>(
        &'s self,
        part: usize,
        chunk: usize,
        allowed: Option<&Bitmap>,
        score: &Score<'_>,
        top: &mut Top<'s>,
    ) -> Result<()> {
        let segment = &*self.snapshot.parts[part].segment;
        let blocks = chunk * CHUNK_BLOCKS..((chunk + 1) * CHUNK_BLOCKS).min(segment.rows.div_ceil(SCAN_ROWS));
        // Which rows of a block count.
        let mask = |block: usize| -> u16 {
            let bits = match allowed {
                Some(rows) => (rows.words()[block / 4] >> (block % 4 * SCAN_ROWS)) as u16,
                None => u16::MAX,
            };
            let rows = segment.rows - block * SCAN_ROWS;
            if rows < SCAN_ROWS {
                bits & ((1 << rows) - 1)
            } else {
                bits
            }
        };
        let mut scores = [0f32; CHUNK_ROWS];
        let mut next = blocks.start;
        while next < blocks.end {
            let start = (next..blocks.end).find(|block| mask(*block) != 0);
            let Some(start) = start else { break };
            let end = (start..blocks.end)
                .find(|block| mask(*block) == 0)
                .unwrap_or(blocks.end);
            let scores = &mut scores[..(end - start) * SCAN_ROWS];
            score(segment, start..end, scores)?;
            let mut threshold = top.threshold();
            for (block, scores) in (start..end).zip(scores.as_chunks::<SCAN_ROWS>().0) {
                let highest = scores
                    .iter()
                    .fold(f32::NEG_INFINITY, |max, x| if *x > max { *x } else { max });
                if highest < threshold {
                    continue;
                }
                let mask = mask(block);
                for (lane, &score) in scores.iter().enumerate() {
                    if score >= threshold && mask >> lane & 1 == 1 {
                        let row = block * SCAN_ROWS + lane;
                        let id = segment.id(row)?;
                        top.offer(Candidate { score, id, part, row });
                        threshold = top.threshold();
                    }
                }
            }
            next = end;
        }
        Ok(())
    }
}
