//! Recurrent layers, step by step.

use crate::elementwise::{BinaryOp, UnaryOp};
use crate::exec::Exec;

/// Sizes of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// Steps.
    pub len: usize,
    /// Sequences.
    pub batch: usize,
    /// Width of the hidden state.
    pub width: usize,
    /// Whether steps go from the last to the first.
    pub reverse: bool,
}

impl Recurrent {
    fn steps(self) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |t| if self.reverse { self.len - 1 - t } else { t })
    }
}

/// Elements of scratch memory that a layer of `gates` gates needs.
#[must_use]
pub fn recurrent_scratch_elems(r: &Recurrent, gates: usize) -> usize {
    r.batch * r.width * (gates + 6)
}

impl Exec<'_> {
    /// `out [len, batch, 2 · width]`, output and cell of each step, from `gates [len, batch, 4 · width]` (input, forget, cell,
    /// output) and `w`, the recurrent weight `[4 · width, width]` packed.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn lstm(
        &self,
        r: &Recurrent,
        gates: &[f32],
        w: &[f32],
        h0: &[f32],
        c0: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (b, h) = (r.batch, r.width);
        let (h_state, rest) = scratch.split_at_mut(b * h);
        let (cell, rest) = rest.split_at_mut(b * h);
        let (sums, rest) = rest.split_at_mut(b * 4 * h);
        let (one, rest) = rest.split_at_mut(h);
        let (two, three) = rest.split_at_mut(h);
        let three = &mut three[..h];
        h_state.copy_from_slice(h0);
        cell.copy_from_slice(c0);
        for t in r.steps() {
            sums.copy_from_slice(&gates[t * b * 4 * h..(t + 1) * b * 4 * h]);
            self.product(h_state, w, [b, h, 4 * h], true, sums);
            for i in 0..b {
                let gate = |g: usize| &sums[(i * 4 + g) * h..(i * 4 + g + 1) * h];
                let cell = &mut cell[i * h..(i + 1) * h];
                let state = &mut h_state[i * h..(i + 1) * h];
                self.unary(UnaryOp::Sigmoid, gate(0), one);
                self.unary(UnaryOp::Tanh, gate(2), two);
                self.binary(BinaryOp::Mul, one, two, three);
                self.unary(UnaryOp::Sigmoid, gate(1), one);
                self.binary(BinaryOp::Mul, one, cell, two);
                self.binary(BinaryOp::Add, two, three, cell);
                self.unary(UnaryOp::Sigmoid, gate(3), one);
                self.unary(UnaryOp::Tanh, cell, two);
                self.binary(BinaryOp::Mul, one, two, state);
                let out = &mut out[(t * b + i) * 2 * h..][..2 * h];
                out[..h].copy_from_slice(state);
                out[h..].copy_from_slice(cell);
            }
        }
    }

    /// `out [len, batch, width]` from `gates [len, batch, 3 · width]` (reset, update, new), `w`, the recurrent weight
    /// `[3 · width, width]` packed, and its `bias`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn gru(
        &self,
        r: &Recurrent,
        gates: &[f32],
        w: &[f32],
        bias: &[f32],
        h0: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (b, h) = (r.batch, r.width);
        let (state, rest) = scratch.split_at_mut(b * h);
        let (sums, rest) = rest.split_at_mut(b * 3 * h);
        let (one, rest) = rest.split_at_mut(h);
        let (update, rest) = rest.split_at_mut(h);
        let (new, rest) = rest.split_at_mut(h);
        let sum = &mut rest[..h];
        state.copy_from_slice(h0);
        for t in r.steps() {
            for row in sums.chunks_exact_mut(3 * h) {
                row.copy_from_slice(bias);
            }
            self.product(state, w, [b, h, 3 * h], true, sums);
            for i in 0..b {
                let recurrent = |g: usize| &sums[(i * 3 + g) * h..(i * 3 + g + 1) * h];
                let input = |g: usize| &gates[((t * b + i) * 3 + g) * h..][..h];
                let state = &mut state[i * h..(i + 1) * h];
                self.binary(BinaryOp::Add, input(0), recurrent(0), sum);
                self.unary(UnaryOp::Sigmoid, sum, one);
                self.binary(BinaryOp::Mul, one, recurrent(2), new);
                self.binary(BinaryOp::Add, input(2), new, sum);
                self.unary(UnaryOp::Tanh, sum, new);
                self.binary(BinaryOp::Add, input(1), recurrent(1), sum);
                self.unary(UnaryOp::Sigmoid, sum, update);
                // new + update * (before - new)
                self.binary(BinaryOp::Sub, state, new, one);
                self.binary(BinaryOp::Mul, update, one, sum);
                self.binary(BinaryOp::Add, new, sum, state);
                out[(t * b + i) * h..][..h].copy_from_slice(state);
            }
        }
    }
}
