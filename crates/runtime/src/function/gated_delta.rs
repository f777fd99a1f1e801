//! The gated delta rule over whole sequences. Scalar code in one order and on one thread, so
//! that the bits are the same everywhere.

/// Sizes of a call: `q, k [batch, len, heads, keys]`, `v [batch, len, heads, values]`.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) len: usize,
    pub(super) heads: usize,
    pub(super) keys: usize,
    pub(super) values: usize,
}

/// Operands in the order of the operation.
pub(super) struct Operands<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) decay: &'a [f32],
    pub(super) rate: &'a [f32],
}

/// Elements of the state of a head and a row.
pub(super) fn scratch_elems(keys: usize, values: usize) -> usize {
    (keys + 1) * values
}

/// Writes `[batch, len, heads, values]`.
pub(super) fn gated_delta(s: Sizes, x: &Operands<'_>, scratch: &mut [f32], out: &mut [f32]) {
    for head in 0..s.batch * s.heads {
        let (state, change) = scratch[..(s.keys + 1) * s.values].split_at_mut(s.keys * s.values);
        state.fill(0.0);
        let (b, h) = (head / s.heads, head % s.heads);
        for t in 0..s.len {
            let at = (b * s.len + t) * s.heads + h;
            let (q, k) = (&x.q[at * s.keys..][..s.keys], &x.k[at * s.keys..][..s.keys]);
            change.copy_from_slice(&x.v[at * s.values..][..s.values]);
            // S = decay S, and what it says of k is taken from v.
            for (line, &k) in state.chunks_exact_mut(s.values).zip(k) {
                for (e, c) in line.iter_mut().zip(&mut *change) {
                    *e *= x.decay[at];
                    *c -= *e * k;
                }
            }
            let out = &mut out[at * s.values..][..s.values];
            out.fill(0.0);
            for ((line, &k), &q) in state.chunks_exact_mut(s.values).zip(k).zip(q) {
                let step = x.rate[at] * k;
                for ((e, &c), o) in line.iter_mut().zip(&*change).zip(&mut *out) {
                    *e += step * c;
                    *o += *e * q;
                }
            }
        }
    }
}
