//! Attention without a cache, in `f32`: keys and values of a head are packed once, and strips of queries meet them.

use super::attention_strip::Strip;
use super::product::packed_bytes;
use crate::exec::{Exec, SharedMut};
use crate::parts::part_range;
use cactus_base::Step;
use cactus_quant::BLOCK_ROWS;
use std::ops::Range;

/// Shapes and kind of an attention over `q [batch, queries, heads, width]` and `k`, `v [batch, keys, kv_heads, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenseAttention {
    /// Sequences.
    pub batch: usize,
    /// Positions of `q`; a query's position is its index.
    pub queries: usize,
    /// Positions of `k` and `v`.
    pub keys: usize,
    /// Heads of `q`, a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of `k` and `v`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// What products of queries and keys are multiplied by.
    pub scale: f32,
    /// `c` of `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Whether a query reads no key after its own position.
    pub causal: bool,
    /// How many positions up to its own a query reads.
    pub window: Option<usize>,
    /// How many positions from its own on a query reads.
    pub ahead: Option<usize>,
    /// How many positions a chunk has, within which a query reads.
    pub chunk: Option<usize>,
    /// Whether scores have sinks beside them.
    pub sinks: bool,
    /// Whether it is computed on bytes, which costs accuracy and is faster where every query sees every key: there is no mask, cap, sink, bias or
    /// slope then.
    pub integers: bool,
}

/// What takes part in scores beside queries and keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScoreOperands<'a> {
    /// Added behind scale and cap.
    pub bias: Option<ScoreBias<'a>>,
    /// For each head a score that has a share of the softmax, and no value.
    pub sinks: Option<&'a [f32]>,
    /// For each head what is added times the key's position less the query's.
    pub slopes: Option<&'a [f32]>,
}

/// What is added to scores, `[batch|1, heads|1, queries|1, keys]`.
#[derive(Clone, Copy, Debug)]
pub struct ScoreBias<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// From one sequence, head and query to the next; zero where all have the same.
    pub strides: [usize; 3],
}

/// Queries of a strip: what is read of keys and values serves so many.
const STRIP_QUERIES: usize = 24;

impl DenseAttention {
    /// Attention of every query to every key, of so many queries and keys and of heads of both, with nothing beside the scale.
    #[must_use]
    pub fn plain([queries, keys]: [usize; 2], [heads, kv_heads]: [usize; 2], width: usize, scale: f32) -> Self {
        Self {
            batch: 1,
            queries,
            keys,
            heads,
            kv_heads,
            width,
            scale,
            softcap: None,
            causal: false,
            window: None,
            ahead: None,
            chunk: None,
            sinks: false,
            integers: false,
        }
    }

    /// Queries of a strip.
    fn strip(&self) -> usize {
        STRIP_QUERIES.min(self.queries)
    }

    /// Elements of the packed keys, the packed values, and of a strip: its queries, their results with whole blocks, the sums
    /// of their shares, and their largest scores.
    pub(super) fn part_elems(&self) -> [usize; 6] {
        let strip = self.strip();
        let packed = [packed_bytes(self.keys, self.width), packed_bytes(self.width, self.keys)];
        let result = self.width.div_ceil(BLOCK_ROWS) * BLOCK_ROWS;
        let of_strip = [self.width, result, BLOCK_ROWS, 1].map(|n| strip * n);
        [
            packed[0] / 4,
            packed[1] / 4,
            of_strip[0],
            of_strip[1],
            of_strip[2],
            of_strip[3],
        ]
    }

    /// Whether scores are the products of queries and keys, scaled.
    pub(super) fn is_plain(&self, biased: bool, sloped: bool) -> bool {
        self.softcap.is_none() && !biased && !sloped
    }

    /// Whether every query sees every key, and nothing but both makes scores.
    fn is_bare(&self, more: &ScoreOperands<'_>) -> bool {
        let mask = [self.window, self.ahead, self.chunk];
        !self.causal
            && !self.sinks
            && mask.iter().all(Option::is_none)
            && self.is_plain(more.bias.is_some(), more.slopes.is_some())
    }

    /// Elements of scratch memory for each part of the work.
    fn each_part(&self) -> usize {
        match self.integers {
            true => self.bytes_part_elems(),
            false => self.part_elems().iter().sum(),
        }
    }

    /// The keys that the query at `position` sees; none where the end is not behind the start.
    pub(super) fn sees(&self, position: usize) -> Range<usize> {
        let last = if self.causal { Some(1) } else { self.ahead };
        let end = last.map_or(self.keys, |ahead| position.saturating_add(ahead).min(self.keys));
        let window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let chunk = self.chunk.map_or(0, |chunk| position / chunk * chunk);
        window.max(chunk)..end
    }

    /// Into how many tasks the queries of a head are cut for `width` threads, and how many parts the tasks make.
    fn cut(&self, width: usize) -> (usize, usize) {
        let heads = self.batch * self.kv_heads;
        let even = heads.is_multiple_of(width) || heads >= 4 * width;
        let cut = if even { 1 } else { width.min(self.queries) };
        let tasks = heads * cut;
        // Two parts for each thread, so that one takes over from another; one each, where only that gives all equally many of few tasks.
        let is_equal = tasks.is_multiple_of(width) && !tasks.is_multiple_of(2 * width);
        let each = if is_equal && tasks < 8 * width { 1 } else { 2 };
        (cut, tasks.min(each * width))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batch == 0 || self.queries == 0 || self.keys == 0 || self.kv_heads == 0 || self.width == 0
    }
}

impl Exec<'_> {
    /// Bytes of scratch memory for [`Exec::attend_dense`].
    #[must_use]
    pub fn attend_dense_scratch_bytes(&self, a: &DenseAttention) -> usize {
        if a.is_empty() {
            return 0;
        }
        a.cut(self.step.width()).1 * a.each_part() * 4
    }

    /// `out [batch, queries, heads, width]`. Queries that may read no key give NaN, as a softmax over nothing does, or zeros
    /// where there are sinks.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn attend_dense(
        &self,
        a: &DenseAttention,
        [q, k, v]: [&[f32]; 3],
        more: ScoreOperands<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (queries, keys) = (a.heads * a.width, a.kv_heads * a.width);
        assert!(
            q.len() == a.batch * a.queries * queries
                && out.len() == q.len()
                && k.len() == a.batch * a.keys * keys
                && v.len() == k.len()
                && (a.kv_heads == 0 || a.heads.is_multiple_of(a.kv_heads))
                && a.sinks == more.sinks.is_some()
                && (!a.integers || a.is_bare(&more))
                && [more.sinks, more.slopes].iter().flatten().all(|x| x.len() == a.heads),
            "attend_dense: lengths"
        );
        if a.is_empty() {
            return out.fill(0.0);
        }
        let (cut, parts) = a.cut(self.step.width());
        let each = a.each_part();
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        let scratch = SharedMut::new(scratch);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint scratch memory.
            let scratch = unsafe { scratch.piece(part * each..(part + 1) * each) };
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            for task in part_range(a.batch * a.kv_heads * cut, parts, part) {
                let (head, rows) = (task / cut, part_range(a.queries, cut, task % cut));
                let head = [head / a.kv_heads, head % a.kv_heads];
                if a.integers {
                    exec.attend_head_bytes(a, [q, k, v], head, rows, scratch, &out);
                } else {
                    exec.attend_head(a, [q, k, v], more, head, rows, scratch, (&out, 0));
                }
            }
        });
    }

    /// Queries `rows` of all heads that share key head `kv` of sequence `b`; no other thread may have the same ones. The results of
    /// the first query of all lie at the place beside `out`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn attend_head(
        &self,
        a: &DenseAttention,
        [q, k, v]: [&[f32]; 3],
        more: ScoreOperands<'_>,
        [b, kv]: [usize; 2],
        rows: std::ops::Range<usize>,
        scratch: &mut [f32],
        (out, base): (&SharedMut<'_, f32>, usize),
    ) {
        let (width, keys) = (a.width, a.keys);
        let mut rest = scratch;
        let [packed_keys, packed_values, head, result, totals, most] = a.part_elems().map(|elems| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(elems);
            rest = others;
            own
        });
        let (first, stride) = ((b * keys * a.kv_heads + kv) * width, a.kv_heads * width);
        self.pack_rows(&k[first..], keys, width, stride, packed_keys);
        self.pack_columns(&v[first..], width, keys, stride, packed_values);
        let plain = a.is_plain(more.bias.is_some(), more.slopes.is_some());
        let factor = a.scale * if plain { std::f32::consts::LOG2_E } else { 1.0 };
        let blocks = width.div_ceil(BLOCK_ROWS);
        let group = a.heads / a.kv_heads;
        for h in kv * group..(kv + 1) * group {
            for start in rows.clone().step_by(a.strip()) {
                let n = a.strip().min(rows.end - start);
                let at = |i: usize| ((b * a.queries + start + i) * a.heads + h) * width;
                let (head, result) = (&mut head[..n * width], &mut result.as_chunks_mut().0[..n * blocks]);
                for (i, row) in head.chunks_exact_mut(width).enumerate() {
                    row.iter_mut().zip(&q[at(i)..]).for_each(|(x, q)| *x = q * factor);
                }
                self.kernels.run(Strip {
                    a,
                    first: start,
                    q: head,
                    keys: packed_keys.as_chunks().0,
                    values: packed_values.as_chunks().0,
                    bias: more.bias.map(|ScoreBias { data, strides }| {
                        (
                            &data[b * strides[0] + h * strides[1] + start * strides[2]..],
                            strides[2],
                        )
                    }),
                    sink: more.sinks.map(|sinks| sinks[h]),
                    slope: more.slopes.map(|slopes| slopes[h]),
                    most: &mut most[..n],
                    totals: &mut totals.as_chunks_mut().0[..n],
                    out: result,
                });
                for (i, row) in result.chunks_exact(blocks).enumerate() {
                    // SAFETY: tasks have disjoint heads or queries.
                    let out = unsafe { out.piece(base + at(i)..base + at(i) + width) };
                    out.copy_from_slice(&row.as_flattened()[..width]);
                }
            }
        }
    }
}
