//! The gated delta rule over the positions of a call, from what earlier calls left. Scalar code in one order and on one thread, so
//! that the bits are the same everywhere.

/// Sizes of a call: `q, k [batch, len, heads, keys]`, `v [batch, len, heads, values]`.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) len: usize,
    pub(crate) heads: usize,
    pub(crate) keys: usize,
    pub(crate) values: usize,
}

/// Operands in the order of the operation.
pub(crate) struct Operands<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) decay: &'a [f32],
    pub(crate) rate: &'a [f32],
}

/// Elements of the matrices of all heads, and of a row beside them.
pub(crate) fn scratch_elems(s: Sizes) -> usize {
    s.batch * s.heads * s.keys * s.values + s.values
}

/// Writes `[batch, len, heads, values]`. `matrices [batch, heads, keys, values]` are those before the first position, then
/// those after the last; `change` holds a row of values.
pub(crate) fn gated_delta(s: Sizes, x: &Operands<'_>, matrices: &mut [f32], change: &mut [f32], out: &mut [f32]) {
    for head in 0..s.batch * s.heads {
        let state = &mut matrices[head * s.keys * s.values..][..s.keys * s.values];
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
