//! Drawing a token: the order of the probabilities, what is kept of them, and a number drawn outside.

use super::{Lower, dims};
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{BinaryFn as Bin, CompareFn, Dim, Op, ReduceFn, ValueId};

/// Above it logits are so close to each other that all tokens are alike.
const MAX_TEMPERATURE: f32 = 100.0;
/// More tokens than any vocabulary has; what is above was no count.
const MAX_TOP_K: usize = i32::MAX as usize;

fn checked(temperature: f32, top_p: f32, top_k: usize) -> Result<()> {
    if !(0.0..=MAX_TEMPERATURE).contains(&temperature) {
        return Err(Error::argument(format!(
            "`temperature`: expected a number from 0 to {MAX_TEMPERATURE} (0 takes the likeliest), found {temperature}"
        )));
    }
    if !(0.0..=1.0).contains(&top_p) {
        return Err(Error::argument(format!(
            "`top_p`: expected a number from 0 to 1 (0 and 1 keep all), found {top_p}"
        )));
    }
    if top_k > MAX_TOP_K {
        return Err(Error::argument(format!(
            "`top_k`: expected a whole number from 0 to {MAX_TOP_K} (0 keeps all), found {top_k}"
        )));
    }
    Ok(())
}

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
        checked(temperature, top_p, top_k)?;
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
