//! Alternating updates, in place where nobody else reads the streams.

use super::{Lowerer, Place};
use crate::Result;
use crate::step::{Kind, View};
use crate::streams::Streams;
use cactus_ir::{Node, ValueId};

impl Lowerer<'_> {
    pub(super) fn altup_predict(&mut self, node: &Node) -> Result<()> {
        let streams = self.streams(node)?;
        let routes = self.view(node, node.inputs[1])?;
        let factors = self.weight(node, node.inputs[2])?;
        let scratch = self.streams_scratch(node, streams, streams.n * streams.n, factors)?;
        let x = self.changed(node, &[routes])?;
        let kind = Kind::AltupPredict {
            streams,
            x,
            routes,
            factors,
            scratch,
        };
        self.push(node, kind);
        Ok(())
    }

    pub(super) fn altup_correct(&mut self, node: &Node, active: usize) -> Result<()> {
        let streams = self.streams(node)?;
        let new = self.view(node, node.inputs[1])?;
        let routes = self.view(node, node.inputs[2])?;
        let factors = self.weight(node, node.inputs[3])?;
        let scratch = self.streams_scratch(node, streams, streams.n, factors)?;
        let x = self.changed(node, &[new, routes])?;
        let kind = Kind::AltupCorrect {
            streams,
            active,
            x,
            new,
            routes,
            factors,
            scratch,
        };
        self.push(node, kind);
        Ok(())
    }

    /// Sums with some of the streams of each row.
    pub(super) fn slice_add(&mut self, node: &Node, axis: usize, [start, end]: [usize; 2]) -> Result<()> {
        let streams = self.streams(node)?;
        let y = self.view(node, node.inputs[1])?;
        if axis != 2 || y.width != streams.width {
            return self.fail(
                node,
                "expected rows that are added to some of the streams of each position",
            );
        }
        let x = self.changed(node, &[y])?;
        let part = View {
            offset: x.offset + start * streams.width,
            width: (end - start) * streams.width,
            ..x
        };
        self.push(node, Kind::AddToEach { x: part, y });
        Ok(())
    }

    fn streams(&self, node: &Node) -> Result<Streams> {
        let shape = &self.graph.ty(node.outputs[0]).shape;
        let sizes = shape.get(2).zip(shape.get(3));
        match sizes.and_then(|(n, width)| Some((n.as_known()?, width.as_known()?))) {
            Some((n, width)) if shape.len() == 4 => Ok(Streams { n, width }),
            _ => self.fail(node, "expected streams of a fixed number and width"),
        }
    }

    fn streams_scratch(&mut self, node: &Node, streams: Streams, each: usize, factors: usize) -> Result<usize> {
        let packing = self.bundle.weight_at(self.weights[factors]).packing;
        let elems = streams.scratch_len(self.rows_here(), each, packing);
        match elems.and_then(|n| n.checked_mul(4)) {
            Some(bytes) => Ok(self.buffer(bytes)),
            None => self.fail(node, "the streams are larger than the address space"),
        }
    }

    /// The rows of the first operand for a step that makes its result of them where they are, or of a copy where somebody reads them
    /// afterwards or they lie where the `others` do.
    fn changed(&mut self, node: &Node, others: &[View]) -> Result<View> {
        let (v, out) = (node.inputs[0], node.outputs[0]);
        let view = self.view(node, v)?;
        let apart = others.iter().all(|other| other.buffer != view.buffer);
        if apart && self.ends(v) && self.exclusive(v, view) {
            self.place(out, Place::Rows(view))?;
            return Ok(view);
        }
        let buffer = self.fresh(node, out, view.width)?;
        self.push(node, Kind::Copy { x: view, out: buffer });
        self.view(node, out)
    }

    /// Whether the step being lowered is the last that reads `v`; views of it are values of their own.
    fn ends(&self, v: ValueId) -> bool {
        let read = |n: &cactus_ir::NodeId| {
            let is_view = matches!(
                self.graph.node(*n).op,
                cactus_ir::Op::Reshape { .. } | cactus_ir::Op::Slice { .. }
            );
            self.is_done(*n) || (is_view && !self.later.contains(n))
        };
        self.uses[v.index()].iter().all(read) && self.graph.outputs().iter().all(|(_, o)| *o != v)
    }
}
