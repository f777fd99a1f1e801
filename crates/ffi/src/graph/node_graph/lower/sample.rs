//! Drawing a token: the order of the probabilities, what is kept of them, and a number drawn outside.

use super::{Lower, dims};
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{BinaryFn as Bin, CompareFn, Dim, Op, ReduceFn, ValueId};

impl Lower {
    /// See [`crate::graph::node_graph::GraphOp::Sample`]: top-k, then temperature, then top-p, then a draw.
    pub(super) fn sample(
        &mut self,
        id: usize,
        logits: ValueId,
        temperature: f32,
        top_p: f32,
        top_k: usize,
    ) -> Result<ValueId> {
        let shape = self.shape(logits)?;
        let (Some(&n), count) = (shape.last(), shape.iter().product::<usize>()) else {
            return Err(Error::shape("logits [tokens] are expected"));
        };
        if count == 0 {
            return Err(Error::shape("there are no logits"));
        }
        let flat = self.reshape(logits, &[count])?;
        let row = self.part(flat, 0, count - n, count)?;
        let (axis, keepdim) = (0, true);
        if temperature <= 0.0 || top_k == 1 {
            let best = self.b.op(
                Op::ArgReduce {
                    f: ReduceFn::Max,
                    axis,
                    keepdim,
                },
                &[row],
            )?;
            return self.float(best);
        }
        let descending = true;
        let order = self.b.op(Op::ArgSort { axis, descending }, &[row])?;
        let kept = if top_k == 0 { n } else { top_k.min(n) };
        let order = self.part(order, 0, 0, kept)?;
        let best = self.b.op(Op::Gather { axis }, &[row, order])?;
        let best = self.with(Bin::Div, best, temperature)?;
        let shares = self.b.op(Op::Softmax { axis }, &[best])?;
        let sums = self.b.op(Op::CumSum { axis }, &[shares])?;
        let shares = if top_p > 0.0 && top_p < 1.0 {
            // A token stays where those before it do not reach the share.
            let before = self.bin(Bin::Sub, sums, shares)?;
            let bound = self.b.scalar(top_p)?;
            let stays = self.b.compare(CompareFn::Lt, before, bound)?;
            let zero = self.b.scalar(0.0)?;
            self.b.select(stays, shares, zero)?
        } else {
            shares
        };
        let sums = self.b.op(Op::CumSum { axis }, &[shares])?;
        let total = self.part(sums, 0, kept - 1, kept)?;
        let drawn = self.drawn(id);
        let mark = self.bin(Bin::Mul, drawn, total)?;
        // The first token whose sum is above the mark: as many as have sums that are not.
        let below = self.b.compare(CompareFn::Le, sums, mark)?;
        let below = self.float(below)?;
        let place = self.reduce(ReduceFn::Sum, below, 0)?;
        // Tokens without a share come last; the mark may round up to the total.
        let zero = self.b.scalar(0.0)?;
        let some = self.b.compare(CompareFn::Gt, shares, zero)?;
        let some = self.float(some)?;
        let count = self.reduce(ReduceFn::Sum, some, 0)?;
        let last = self.with(Bin::Sub, count, 1.0)?;
        let place = self.bin(Bin::Min, place, last)?;
        let place = self.with(Bin::Max, place, 0.0)?;
        let place = self.whole(place)?;
        let token = self.b.op(Op::Gather { axis }, &[order, place])?;
        self.float(token)
    }

    /// How many positions there are, as `[1]`.
    pub(super) fn size_of(&mut self, size: Dim) -> Result<ValueId> {
        let n = self.count(size, Dim::known(1), &dims(&[1]))?;
        self.float(n)
    }
}
