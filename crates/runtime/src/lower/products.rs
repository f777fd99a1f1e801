//! Products: their operands as packings read them, and the sums that they make at once.

use super::{Lowerer, Place};
use crate::Result;
use crate::step::{Kind, Rows, View};
use cactus_ir::{BinaryFn, Node, NodeId, Op, ValueId};
use cactus_kernels::RotatedRows;

/// An addition that the step which makes one operand may make.
pub(super) struct Residual {
    /// Rows of the other operand.
    pub(super) view: View,
    add: NodeId,
    /// Between the result and the addition.
    reshapes: Vec<NodeId>,
}

impl Lowerer<'_> {
    pub(super) fn linear_operand(&mut self, node: &Node, x: ValueId, weight: ValueId) -> Result<Rows> {
        if self.packing(weight).is_some_and(|p| p.codebook_bits().is_some()) {
            return self.rotated_operand(node, x);
        }
        if !self.reads_quantized(weight) {
            return Ok(Rows::F32(self.whole(node, x)?));
        }
        if let Some(&b) = self.quantized.get(&x) {
            return Ok(Rows::Quantized(b));
        }
        let view = self.whole(node, x)?;
        let out = self.quantized_buffer(node, view.width)?;
        self.push(node, Kind::Quantize { x: view, out });
        self.quantized.insert(x, out);
        Ok(Rows::Quantized(out))
    }

    /// The rotated rows of `x`, made where they are first read.
    fn rotated_operand(&mut self, node: &Node, x: ValueId) -> Result<Rows> {
        if let Some(&b) = self.rotated.get(&x) {
            return Ok(Rows::Rotated(b));
        }
        let view = self.whole(node, x)?;
        let Some(bytes) = RotatedRows::bytes(self.rows_here(), view.width) else {
            return self.fail(node, "the activation is larger than the address space");
        };
        let out = self.buffer(bytes);
        self.push(node, Kind::Rotate { x: view, out });
        self.rotated.insert(x, out);
        Ok(Rows::Rotated(out))
    }

    pub(super) fn linear(&mut self, node: &Node) -> Result<()> {
        let (x, w, out) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let operand = self.graph.ty(x);
        if self.width(node, operand).is_ok_and(|w| operand.last_known() != Some(w)) {
            return self.fail(node, "expected a product of whole rows");
        }
        let operand = self.linear_operand(node, x, w)?;
        let weight = self.weight(node, w)?;
        let bias = node.inputs.get(2).map(|&b| self.vector(node, b)).transpose()?;
        if self.head.as_ref().is_some_and(|h| h.of == out) {
            let then = self.links(node)?;
            let kind = Kind::Head {
                x: operand,
                weight,
                bias,
                then,
            };
            self.push(node, kind);
            return Ok(());
        }
        let width = self.width(node, self.graph.ty(out))?;
        if let Some(residual) = self.residual(out, &[operand]) {
            let kind = Kind::Linear {
                x: operand,
                weight,
                bias,
                out: residual.view.buffer,
                accumulate: true,
            };
            self.merge(residual);
            self.push(node, kind);
            return Ok(());
        }
        let buffer = self.fresh(node, out, width)?;
        let kind = Kind::Linear {
            x: operand,
            weight,
            bias,
            out: buffer,
            accumulate: false,
        };
        self.push(node, kind);
        Ok(())
    }

    /// The addition that is the only user of a result, perhaps reshaped, and the other operand's rows, where whoever makes the result may add
    /// into them: they are whole, exist already, and nobody reads them later but that addition, nor does the step itself, which `reads` these rows.
    pub(super) fn residual(&self, mut out: ValueId, reads: &[Rows]) -> Option<Residual> {
        let mut reshapes = Vec::new();
        let (add, node) = loop {
            if !self.single_use(out) {
                return None;
            }
            let user = self.uses[out.index()][0];
            let node = self.graph.node(user);
            if !matches!(node.op, Op::Reshape { .. }) || self.width(node, self.graph.ty(node.outputs[0])).is_err() {
                break (user, node);
            }
            reshapes.push(user);
            out = node.outputs[0];
        };
        if node.op != (Op::Binary { f: BinaryFn::Add }) || node.inputs[0] == node.inputs[1] {
            return None;
        }
        let other = if node.inputs[0] == out {
            node.inputs[1]
        } else {
            node.inputs[0]
        };
        if self.graph.ty(other) != self.graph.ty(out) {
            return None;
        }
        let view = self.addable(add, other)?;
        let reads_it = |rows: &Rows| matches!(rows, Rows::F32(x) if x.buffer == view.buffer);
        (!reads.iter().any(reads_it)).then_some(Residual { view, add, reshapes })
    }

    /// Records that the addition of `residual` is being made.
    pub(super) fn merge(&mut self, residual: Residual) {
        let Residual { view, add, reshapes } = residual;
        self.merged
            .extend(reshapes.into_iter().chain([add]).map(|node| (node, view)));
    }

    /// The rows of `v`, where node `add` may add into them: they are whole, exist already, and nobody reads them later but
    /// that node.
    pub(super) fn addable(&self, add: NodeId, v: ValueId) -> Option<View> {
        let Some(Place::Rows(view)) = self.places.get(&v).copied() else {
            return None;
        };
        let done = self.uses[v.index()]
            .iter()
            .all(|n| *n == add || (self.position[n] < self.now && !self.later.contains(n)));
        let is_output = self.graph.outputs().iter().any(|(_, o)| *o == v);
        (done && !is_output && view.is_whole() && self.exclusive(v, view)).then_some(view)
    }
}
