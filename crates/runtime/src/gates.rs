//! What several calls of kernels make together: gated units of two values, decays and rates of the gated delta rule, and norms of heads with
//! weights of their own. Steps and functions share it, so both have the same bits.

use cactus_kernels::dense::ReduceOp;
use cactus_kernels::{Activation, BinaryOp, DeltaRows, Exec, UnaryOp};

/// Rows whose gates are computed at once: few, so that they stay in the cache.
pub(crate) const GATED_ROWS: usize = 4;

/// A gated unit of gates and values that do not lie beside each other, or of few gates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedRows {
    pub(crate) activation: Activation,
    /// How many deviations above their mean gates count.
    pub(crate) above: Option<f32>,
    /// Gates of a row.
    pub(crate) n: usize,
}

impl GatedRows {
    /// Floats of scratch memory for `rows` rows.
    pub(crate) fn scratch_len(&self, rows: usize) -> Option<usize> {
        let lines = 2 * rows.min(GATED_ROWS) + if self.above.is_some() { 2 } else { 0 };
        self.n.checked_mul(lines)
    }

    /// Computes `out [rows, n]`; `fill` writes the gate and the value of a row, given what `out` holds there.
    pub(crate) fn run(
        &self,
        exec: Exec<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
        fill: impl Fn(usize, &[f32], &mut [f32], &mut [f32]),
    ) {
        let n = self.n;
        if n == 0 {
            return;
        }
        for (group, out) in out.chunks_mut(GATED_ROWS * n).enumerate() {
            let rows = out.len() / n;
            let (pairs, rest) = scratch.split_at_mut(2 * n * rows);
            for (i, (pair, out)) in pairs.chunks_exact_mut(2 * n).zip(out.chunks_exact(n)).enumerate() {
                let (gate, up) = pair.split_at_mut(n);
                fill(group * GATED_ROWS + i, out, gate, up);
                if let Some(above) = self.above {
                    keep_above(exec, above, gate, rest);
                }
            }
            exec.gated(self.activation, pairs, n, rows, out);
        }
    }
}

/// By how much gates are more than `above` standard deviations over their mean, 0 where they are not, with the bits of one operation after the other.
fn keep_above(exec: Exec<'_>, above: f32, gate: &mut [f32], scratch: &mut [f32]) {
    let n = gate.len();
    let (off, rest) = scratch.split_at_mut(n);
    let squared = &mut rest[..n];
    let ([mut mean], [mut variance]) = ([0.0], [0.0]);
    exec.reduce(ReduceOp::Mean, gate, [1, n, 1], std::slice::from_mut(&mut mean));
    exec.binary(BinaryOp::Sub, gate, &[mean], off);
    exec.binary(BinaryOp::Mul, off, off, squared);
    exec.reduce(ReduceOp::Mean, squared, [1, n, 1], std::slice::from_mut(&mut variance));
    let least = mean + variance.sqrt() * above;
    exec.binary(BinaryOp::Sub, gate, &[least], off);
    exec.unary(UnaryOp::Relu, off, gate);
}

/// Of steps and rates of `rows` positions, `decay [rows, heads]` = `exp(speed * softplus(step + bias))` and `learned [rows, heads]` = `sigmoid(rate)`.
pub(crate) fn decays(
    exec: Exec<'_>,
    [step, rate]: [DeltaRows<'_>; 2],
    [speed, bias]: [&[f32]; 2],
    decay: &mut [f32],
    learned: &mut [f32],
) {
    let heads = speed.len();
    if heads == 0 {
        return;
    }
    for (t, out) in decay.chunks_exact_mut(heads).enumerate() {
        exec.binary(BinaryOp::Add, &step.data[t * step.stride..][..heads], bias, out);
    }
    exec.unary_in_place(UnaryOp::Softplus, decay);
    exec.binary(BinaryOp::Mul, decay, speed, learned);
    exec.unary(UnaryOp::Exp, learned, decay);
    for (t, out) in learned.chunks_exact_mut(heads).enumerate() {
        out.copy_from_slice(&rate.data[t * rate.stride..][..heads]);
    }
    exec.unary_in_place(UnaryOp::Sigmoid, learned);
}

/// The layer norm of each head of a row, `x` and `out` `[heads, head_dim]`, and so weight and bias.
pub(crate) fn layer_norm_heads(
    exec: Exec<'_>,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    (eps, head_dim): (f32, usize),
    out: &mut [f32],
) {
    let heads = x
        .chunks_exact(head_dim.max(1))
        .zip(out.chunks_exact_mut(head_dim.max(1)));
    for (head, (x, out)) in heads.enumerate() {
        let own = head * head_dim..(head + 1) * head_dim;
        let bias = bias.map(|b| &b[own.clone()]);
        exec.layer_norm(x, &weight[own], bias, eps, 1, head_dim, out);
    }
}
