//! Attention without a cache, in `f32`: products with packed keys and values, strip by strip of queries.

use super::product::packed_bytes;
use crate::elementwise::{BinaryOp, UnaryOp};
use crate::exec::{Exec, SharedMut, part_range};
use cactus_base::Step;

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
    /// How many positions a chunk has, within which a query reads.
    pub chunk: Option<usize>,
    /// Whether scores have sinks beside them.
    pub sinks: bool,
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

/// Elements of the scores of a strip: with their copy a part of the L2 cache.
const STRIP_ELEMS: usize = 48 << 10;
/// Most queries of a strip, for keys so few that it would be long.
const STRIP_QUERIES: usize = 96;

impl DenseAttention {
    /// Queries of a strip.
    fn strip(&self) -> usize {
        (STRIP_ELEMS / self.keys.max(1)).clamp(12, STRIP_QUERIES) / 6 * 6
    }

    /// Bytes of the packed keys, the packed values, the queries and results of a strip, its scores twice, and a row of them
    /// with a sink.
    fn part_bytes(&self) -> [usize; 7] {
        let strip = self.strip().min(self.queries);
        let (head, scores) = (4 * strip * self.width, 4 * strip * self.keys);
        // A row of scores with a sink, and its shares.
        let wide = if self.sinks { 4 * 2 * (self.keys + 1) } else { 0 };
        let packed = [packed_bytes(self.keys, self.width), packed_bytes(self.width, self.keys)];
        [packed[0], packed[1], head, head, scores, scores, wide]
    }

    /// Into how many tasks the queries of a head are cut for `width` threads, and how many parts the tasks make.
    fn cut(&self, width: usize) -> (usize, usize) {
        let heads = self.batch * self.kv_heads;
        let even = heads.is_multiple_of(width) || heads >= 4 * width;
        let cut = if even { 1 } else { width.min(self.queries) };
        (cut, (heads * cut).min(2 * width))
    }

    fn is_empty(&self) -> bool {
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
        a.cut(self.step.width()).1 * a.part_bytes().iter().sum::<usize>()
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
                && [more.sinks, more.slopes].iter().flatten().all(|x| x.len() == a.heads),
            "attend_dense: lengths"
        );
        if a.is_empty() {
            return out.fill(0.0);
        }
        let (cut, parts) = a.cut(self.step.width());
        let each = a.part_bytes().iter().sum::<usize>() / 4;
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        let scratch = SharedMut::new(scratch);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint scratch memory.
            let scratch = unsafe { scratch.piece(part * each..(part + 1) * each) };
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            for task in part_range(a.batch * a.kv_heads * cut, parts, part) {
                let (head, rows) = (task / cut, part_range(a.queries, cut, task % cut));
                exec.attend_head(
                    a,
                    [q, k, v],
                    more,
                    [head / a.kv_heads, head % a.kv_heads],
                    rows,
                    scratch,
                    &out,
                );
            }
        });
    }

    /// Queries `rows` of all heads that share key head `kv` of sequence `b`; no other thread may have the same ones.
    #[allow(clippy::too_many_arguments)]
    fn attend_head(
        &self,
        a: &DenseAttention,
        [q, k, v]: [&[f32]; 3],
        more: ScoreOperands<'_>,
        [b, kv]: [usize; 2],
        rows: std::ops::Range<usize>,
        scratch: &mut [f32],
        out: &SharedMut<'_, f32>,
    ) {
        let (width, keys) = (a.width, a.keys);
        let mut rest = scratch;
        let [packed_keys, packed_values, head, result, scores, shares, wide] = a.part_bytes().map(|bytes| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(bytes / 4);
            rest = others;
            own
        });
        let (first, stride) = ((b * keys * a.kv_heads + kv) * width, a.kv_heads * width);
        self.pack_rows(&k[first..], keys, width, stride, packed_keys);
        self.pack_columns(&v[first..], width, keys, stride, packed_values);
        let group = a.heads / a.kv_heads;
        for h in kv * group..(kv + 1) * group {
            for start in rows.clone().step_by(a.strip()) {
                let n = a.strip().min(rows.end - start);
                let at = |i: usize| ((b * a.queries + start + i) * a.heads + h) * width;
                let (head, result) = (&mut head[..n * width], &mut result[..n * width]);
                let (mut scores, mut shares) = (&mut scores[..n * keys], &mut shares[..n * keys]);
                for (i, row) in head.chunks_exact_mut(width).enumerate() {
                    row.copy_from_slice(&q[at(i)..][..width]);
                }
                self.product(head, packed_keys, [n, width, keys], false, scores);
                self.binary(BinaryOp::Mul, scores, &[a.scale], shares);
                if let Some(cap) = a.softcap {
                    self.binary(BinaryOp::Div, shares, &[cap], scores);
                    self.unary(UnaryOp::Tanh, scores, shares);
                    scores.copy_from_slice(shares);
                    self.binary(BinaryOp::Mul, scores, &[cap], shares);
                }
                if let Some(ScoreBias { data, strides }) = more.bias {
                    let first = b * strides[0] + h * strides[1];
                    for (i, (row, sum)) in shares.chunks_exact(keys).zip(scores.chunks_exact_mut(keys)).enumerate() {
                        let bias = &data[first + (start + i) * strides[2]..][..keys];
                        self.binary(BinaryOp::Add, row, bias, sum);
                    }
                    std::mem::swap(&mut scores, &mut shares);
                }
                for (i, row) in shares.chunks_exact_mut(keys).enumerate() {
                    let position = start + i;
                    if let Some(slopes) = more.slopes {
                        for (key, score) in row.iter_mut().enumerate() {
                            *score += slopes[h] * (key as f32 - position as f32);
                        }
                    }
                    if a.causal {
                        row[(position + 1).min(keys)..].fill(f32::NEG_INFINITY);
                    }
                    let before = [
                        a.window.map(|window| (position + 1).saturating_sub(window)),
                        a.chunk.map(|chunk| position / chunk * chunk),
                    ];
                    for first in before.into_iter().flatten() {
                        row[..first.min(keys)].fill(f32::NEG_INFINITY);
                    }
                }
                match more.sinks {
                    None => self.softmax_rows(shares, n, keys, scores),
                    Some(sinks) => self.softmax_with_sink(sinks[h], shares, keys, wide, scores),
                }
                self.product(scores, packed_values, [n, keys, width], false, result);
                for (i, row) in result.chunks_exact(width).enumerate() {
                    // SAFETY: tasks have disjoint heads or queries.
                    unsafe { out.piece(at(i)..at(i) + width) }.copy_from_slice(row);
                }
            }
        }
    }

    /// The shares of rows of `keys` scores that compete with a `sink`, which has its share and no place in `out`.
    fn softmax_with_sink(&self, sink: f32, scores: &[f32], keys: usize, wide: &mut [f32], out: &mut [f32]) {
        let (row, shares) = wide.split_at_mut(keys + 1);
        for (scores, out) in scores.chunks_exact(keys).zip(out.chunks_exact_mut(keys)) {
            row[..keys].copy_from_slice(scores);
            row[keys] = sink;
            self.softmax_rows(row, 1, keys + 1, shares);
            out.copy_from_slice(&shares[..keys]);
        }
    }
}
