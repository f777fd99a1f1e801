//! Alternating updates, and sums with a part of a value.

use super::Run;
use crate::streams::{Streams, Strided};
use crate::{Error, Result};
use cactus_ir::{Node, Op};
use cactus_kernels::BinaryOp;
use cactus_kernels::dense::broadcast_strides;
use cactus_quant::{PackedView, Packing};

impl Run<'_> {
    fn streams(&self, node: &Node) -> (Streams, usize) {
        let shape = self.shape(node.outputs[0]);
        let streams = Streams {
            n: shape[2],
            width: shape[3],
        };
        (streams, shape[0] * shape[1])
    }

    /// The last operand of alternating updates.
    fn stream_factors(&self, node: &Node) -> Result<PackedView<'_>> {
        let v = node.inputs[node.inputs.len() - 1];
        let computed = || Error::Argument("the factors of streams are computed; expected a weight".into());
        self.constants.matrix(v)?.ok_or_else(computed)
    }

    pub(super) fn streams_scratch_bytes(&self, node: &Node) -> usize {
        let (streams, rows) = self.streams(node);
        let each = match node.op {
            Op::AltupPredict => streams.n * streams.n,
            _ => streams.n,
        };
        let packing = self.stream_factors(node).map_or(Packing::F32N16, |w| w.packing());
        let elems = streams.scratch_len(rows, each, packing);
        elems.and_then(|n| n.checked_mul(4)).unwrap_or(0)
    }

    pub(super) fn altup(&self, node: &Node, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let (streams, rows) = self.streams(node);
        let factors = self.stream_factors(node)?;
        let operand = |i: usize, stride: usize| {
            let data = ops.f32(node.inputs[i])?;
            Ok::<_, Error>(Strided { data, stride })
        };
        out.copy_from_slice(ops.f32(node.inputs[0])?);
        let to = (out, streams.n * streams.width);
        match node.op {
            Op::AltupCorrect { active } => {
                let new = (operand(1, streams.width)?, active);
                let routes = (operand(2, streams.n)?, rows);
                streams.correct(self.exec, new, routes, &factors, scratch, to);
            }
            _ => streams.predict(self.exec, (operand(1, streams.n)?, rows), &factors, scratch, to),
        }
        Ok(())
    }

    pub(super) fn slice_add(&self, node: &Node, axis: usize, [start, end]: [usize; 2], out: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let (x, y) = (ops.f32(node.inputs[0])?, ops.f32(node.inputs[1])?);
        let shape = self.shape(node.outputs[0]);
        out.copy_from_slice(x);
        let inner: usize = shape[axis + 1..].iter().product();
        let (line, part) = (shape[axis] * inner, (end - start) * inner);
        if line == 0 || part == 0 {
            return Ok(());
        }
        // The part of each run of the axis, which `y` is broadcast to.
        let mut of_part = shape.to_vec();
        of_part[axis] = end - start;
        let strides = broadcast_strides(ops.shape(node.inputs[1]), &of_part);
        let outer = &of_part[..axis];
        for (i, (x, out)) in x.chunks_exact(line).zip(out.chunks_exact_mut(line)).enumerate() {
            let (mut rest, mut at) = (i, 0);
            for a in (0..outer.len()).rev() {
                at += rest % outer[a] * strides[a];
                rest /= outer[a];
            }
            let own = &of_part[axis..];
            let (from, to) = (start * inner, start * inner + part);
            let whole = broadcast_strides(own, own);
            self.exec.binary_broadcast(
                BinaryOp::Add,
                own,
                (&x[from..to], &whole),
                (&y[at..], &strides[axis..]),
                &mut out[from..to],
            );
        }
        Ok(())
    }
}
