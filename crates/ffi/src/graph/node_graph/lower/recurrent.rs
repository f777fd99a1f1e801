//! Cells of recurrent layers.

use super::Lower;
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{BinaryFn as Bin, Op, UnaryFn as Un, ValueId};

impl Lower {
    pub(super) fn lstm_cell(&mut self, v: [ValueId; 7]) -> Result<ValueId> {
        let [x, h, c, w_ih, w_hh, b_ih, b_hh] = v;
        let shape = self.shape(h)?;
        let &[batch, n] = shape.as_slice() else {
            return Err(Error::shape(format!(
                "an output [batch, n] is expected, found {shape:?}"
            )));
        };
        let gates = 4 * n;
        let (b_ih, b_hh) = (self.vector(b_ih, gates)?, self.vector(b_hh, gates)?);
        let bias = self.bin(Bin::Add, b_ih, b_hh)?;
        let gated = self.b.linear(x, w_ih, Some(bias))?;
        let gated = self.reshape(gated, &[1, batch, gates])?;
        let both = self.b.op(Op::Lstm { reverse: false }, &[gated, w_hh, h, c])?;
        let both = self.reshape(both, &[batch, 2, n])?;
        Ok(self.b.permute(both, &[0, 2, 1])?)
    }

    /// The gated delta rule from a given state on. The operation begins with an empty state, so rows that write the given one
    /// come first, and rows that read the last one come behind. A single position is computed as it stands in the paper.
    pub(super) fn gated_delta(&mut self, v: [ValueId; 6], scale: f32) -> Result<ValueId> {
        let [q, k, value, decay, rate, state] = v;
        let (qs, vs) = (self.shape(q)?, self.shape(value)?);
        let (&[b, t, hk, d], &[_, _, h, e]) = (qs.as_slice(), vs.as_slice()) else {
            return Err(Error::shape(format!(
                "[batch, seq, heads, width] is expected, found {qs:?} and {vs:?}"
            )));
        };
        let want = [b, d, h, e];
        let found = self.shape(state)?;
        if found != want || hk == 0 || h % hk != 0 || self.shape(k)? != qs || vs[..2] != qs[..2] {
            return Err(Error::shape(format!(
                "query {qs:?}, value {vs:?} and state {found:?} do not fit; expected a state {want:?}"
            )));
        }
        let scale = if scale == 0.0 { (d as f32).sqrt().recip() } else { scale };
        let q = self.with(Bin::Mul, q, scale)?;
        let decay = self.un(Un::Exp, decay)?;
        if t == 1 {
            return self.delta_step([q, k, value, decay, rate, state], [b, hk, d, h, e]);
        }
        let unit = self.identity(d)?;
        let unit = self.reshape(unit, &[1, d, 1, d])?;
        let unit = self.b.expand(unit, super::dims(&[b, d, hk, d]))?;
        let zeros = |l: &mut Lower, shape: &[usize]| l.filled(0.0, shape);
        let (no_key, no_value) = (zeros(self, &[b, d, hk, d])?, zeros(self, &[b, d, h, e])?);
        let (one, zero) = (self.filled(1.0, &[b, d, h])?, zeros(self, &[b, d, h])?);
        let q = self.join(1, &[no_key, q, unit])?;
        let k = self.join(1, &[unit, k, no_key])?;
        let value = self.join(1, &[state, value, no_value])?;
        let decay = self.join(1, &[one, decay, one])?;
        let rate = self.join(1, &[one, rate, zero])?;
        let out = self.b.op(
            Op::GatedDelta {
                steps: false,
                state: None,
            },
            &[q, k, value, decay, rate],
        )?;
        self.part(out, 1, d, d + t + d)
    }

    fn delta_step(&mut self, v: [ValueId; 6], [b, hk, d, h, e]: [usize; 5]) -> Result<ValueId> {
        let [q, k, value, decay, rate, state] = v;
        let heads = |l: &mut Lower, x: ValueId| -> Result<ValueId> {
            let x = l.reshape(x, &[b, hk, 1, d])?;
            let x = l.b.expand(x, super::dims(&[b, hk, h / hk, d]))?;
            l.reshape(x, &[b, h, 1, d])
        };
        let (q, k) = (heads(self, q)?, heads(self, k)?);
        let value = self.reshape(value, &[b, h, 1, e])?;
        let (decay, rate) = (self.reshape(decay, &[b, h, 1, 1])?, self.reshape(rate, &[b, h, 1, 1])?);
        let state = self.b.permute(state, &[0, 2, 1, 3])?;
        let state = self.bin(Bin::Mul, state, decay)?;
        let known = self.b.matmul(k, state)?;
        let new = self.bin(Bin::Sub, value, known)?;
        let new = self.bin(Bin::Mul, new, rate)?;
        let key = self.swap_last(k)?;
        let written = self.bin(Bin::Mul, key, new)?;
        let state = self.bin(Bin::Add, state, written)?;
        let out = self.b.matmul(q, state)?;
        let both = self.join(2, &[out, state])?;
        Ok(self.b.permute(both, &[0, 2, 1, 3])?)
    }
}
