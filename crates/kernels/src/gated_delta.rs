//! The gated delta rule (Yang et al. 2024) over the positions of a call, from what earlier calls left.
//!
//! Columns of a head's matrix are independent of each other: 64 of them are held while the positions of the call pass, so a
//! prompt reads the matrix from memory once, and parts are cut by columns as well as by heads. Sums over keys are one fused
//! chain for each column in order of keys, so the bits do not depend on the cut.

use crate::exec::{Exec, SharedMut, check_strided};
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};

/// Vectors of columns that are held together.
const VECTORS: usize = 4;

/// Columns that are held together.
const COLUMNS: usize = 16 * VECTORS;

/// Rows `stride` elements apart, one for each position.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRows<'a> {
    /// The elements, from the first of the first row.
    pub data: &'a [f32],
    /// From one row to the next.
    pub stride: usize,
}

impl DeltaRows<'_> {
    fn row(&self, t: usize, start: usize, len: usize) -> &[f32] {
        &self.data[t * self.stride + start..][..len]
    }
}

/// Sizes and operands of a call. Value head `h` has the queries and keys of key head `h / (heads / key_heads)`.
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta<'a> {
    /// Positions.
    pub len: usize,
    /// Heads of values, decays and rates.
    pub heads: usize,
    /// Heads of queries and keys, a divisor of `heads`.
    pub key_heads: usize,
    /// Width of a head of queries and keys.
    pub keys: usize,
    /// Width of a head of values.
    pub values: usize,
    /// Queries, rows of `[key_heads, keys]`.
    pub q: DeltaRows<'a>,
    /// Keys, rows of `[key_heads, keys]`.
    pub k: DeltaRows<'a>,
    /// Values, rows of `[heads, values]`.
    pub v: DeltaRows<'a>,
    /// What is left of the matrix from the position before, rows of `[heads]`.
    pub decay: DeltaRows<'a>,
    /// How much of what is new is learned, rows of `[heads]`.
    pub rate: DeltaRows<'a>,
}

impl Exec<'_> {
    /// At each position `S = decay S; S = S + k (rate (v - Sᵀ k))ᵀ`, and `out [len, heads, values]` is `Sᵀ q`. `state [heads,
    /// keys, values]` holds `S` before the first position, afterwards that of the last. As computed:
    /// `p = Sᵀ k` (one fused chain in order of keys), `c = rate * fnma(decay, p, v)`, then for each key
    /// `S = fma(k, c, decay * S)` and `out = fma(q, S, out)`.
    ///
    /// # Panics
    /// When a slice's length does not match or `key_heads` does not divide `heads`.
    pub fn gated_delta(&self, x: &GatedDelta<'_>, state: &mut [f32], out: &mut [f32]) {
        if x.len == 0 || x.heads == 0 || x.values == 0 {
            return;
        }
        assert!(
            x.key_heads > 0 && x.heads.is_multiple_of(x.key_heads),
            "gated_delta: {} heads of keys for {}",
            x.key_heads,
            x.heads
        );
        assert!(
            state.len() == x.heads * x.keys * x.values && out.len() == x.len * x.heads * x.values,
            "gated_delta: lengths"
        );
        for (rows, width) in [
            (&x.q, x.key_heads * x.keys),
            (&x.k, x.key_heads * x.keys),
            (&x.v, x.heads * x.values),
            (&x.decay, x.heads),
            (&x.rate, x.heads),
        ] {
            check_strided("gated_delta", rows.data.len(), x.len, rows.stride, width);
        }
        let kernels = self.kernels;
        let blocks = x.values.div_ceil(COLUMNS);
        let units = x.heads * blocks;
        let parts = part_count(self.step.width(), units, x.len * x.keys * VECTORS);
        let (state, out) = (SharedMut::new(state), SharedMut::new(out));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (head, start) = (unit / blocks, unit % blocks * COLUMNS);
                let columns = start..x.values.min(start + COLUMNS);
                kernels.run(Columns {
                    x,
                    head,
                    columns,
                    state: &state,
                    out: &out,
                });
            }
        });
    }
}

/// Some columns of one head, which no other part has.
struct Columns<'a, 'b> {
    x: &'a GatedDelta<'b>,
    head: usize,
    columns: std::ops::Range<usize>,
    state: &'a SharedMut<'a, f32>,
    out: &'a SharedMut<'a, f32>,
}

impl Columns<'_, '_> {
    /// Columns `from..from + len` of row `key` of the matrix.
    ///
    /// # Safety
    /// Those columns are this part's, and no other piece of them is alive.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn line(&self, key: usize, from: usize, len: usize) -> &mut [f32] {
        let at = (self.head * self.x.keys + key) * self.x.values + from;
        // SAFETY: by this function's contract.
        unsafe { self.state.piece(at..at + len) }
    }
}

impl Op for Columns<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let x = self.x;
        let key_head = self.head / (x.heads / x.key_heads) * x.keys;
        let whole = self.columns.len() == COLUMNS;
        for t in 0..x.len {
            let (q, k) = (x.q.row(t, key_head, x.keys), x.k.row(t, key_head, x.keys));
            let (decay, rate) = (x.decay.row(t, self.head, 1)[0], x.rate.row(t, self.head, 1)[0]);
            let (decay, rate) = (s.splat(decay), s.splat(rate));
            let v =
                x.v.row(t, self.head * x.values + self.columns.start, self.columns.len());
            let at = (t * x.heads + self.head) * x.values + self.columns.start;
            // SAFETY: these columns of the head are this part's.
            let out = unsafe { self.out.piece(at..at + self.columns.len()) };
            if whole {
                self.columns_held::<S>(s, q, k, [decay, rate], v, out);
            } else {
                for (block, (v, out)) in v.chunks(16).zip(out.chunks_mut(16)).enumerate() {
                    self.one_vector::<S>(s, q, k, [decay, rate], v, block * 16, out);
                }
            }
        }
    }
}

impl Columns<'_, '_> {
    /// A position for [`COLUMNS`] columns.
    #[inline(always)]
    fn columns_held<S: Simd>(&self, s: S, q: &[f32], k: &[f32], [decay, rate]: [S::F; 2], v: &[f32], out: &mut [f32]) {
        let mut change = [s.zero(); VECTORS];
        for (key, &k) in k.iter().enumerate() {
            let k = s.splat(k);
            // SAFETY: this part's columns; the piece ends with this turn.
            let (line, _) = unsafe { self.line(key, self.columns.start, COLUMNS) }.as_chunks::<16>();
            for (change, line) in change.iter_mut().zip(line) {
                *change = s.fma(k, s.load(line), *change);
            }
        }
        for (change, v) in change.iter_mut().zip(v.as_chunks::<16>().0) {
            *change = s.mul(rate, s.fnma(decay, *change, s.load(v)));
        }
        let mut sum = [s.zero(); VECTORS];
        for (key, (&k, &q)) in k.iter().zip(q).enumerate() {
            let (k, q) = (s.splat(k), s.splat(q));
            // SAFETY: as above.
            let (line, _) = unsafe { self.line(key, self.columns.start, COLUMNS) }.as_chunks_mut::<16>();
            for ((sum, change), line) in sum.iter_mut().zip(&change).zip(line) {
                let new = s.fma(k, *change, s.mul(decay, s.load(line)));
                s.store(new, line);
                *sum = s.fma(q, new, *sum);
            }
        }
        for (sum, out) in sum.iter().zip(out.as_chunks_mut::<16>().0) {
            s.store(*sum, out);
        }
    }

    /// A position for up to 16 columns from `from` on among this part's: the same for each of them.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn one_vector<S: Simd>(
        &self,
        s: S,
        q: &[f32],
        k: &[f32],
        [decay, rate]: [S::F; 2],
        v: &[f32],
        from: usize,
        out: &mut [f32],
    ) {
        let from = self.columns.start + from;
        let mut change = s.zero();
        for (key, &k) in k.iter().enumerate() {
            // SAFETY: this part's columns; the piece ends with this turn.
            let line = unsafe { self.line(key, from, v.len()) };
            change = s.fma(s.splat(k), s.load_partial(line), change);
        }
        let change = s.mul(rate, s.fnma(decay, change, s.load_partial(v)));
        let mut sum = s.zero();
        for (key, (&k, &q)) in k.iter().zip(q).enumerate() {
            // SAFETY: as above.
            let line = unsafe { self.line(key, from, v.len()) };
            let new = s.fma(s.splat(k), change, s.mul(decay, s.load_partial(line)));
            s.store_partial(new, line);
            sum = s.fma(s.splat(q), new, sum);
        }
        s.store_partial(sum, out);
    }
}
