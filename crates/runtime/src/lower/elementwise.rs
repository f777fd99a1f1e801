//! What is computed element by element.

use super::{Lowerer, Place};
use crate::step::Kind;
use crate::{Result, kernel_names};
use cactus_ir::{BinaryFn, Def, Dim, Node, NodeId, ValueId};

impl Lowerer<'_> {
    /// The number that `v` is in every element, where it has but one.
    fn one_number(&mut self, node: &Node, v: ValueId) -> Result<Option<f32>> {
        let one = self
            .graph
            .ty(v)
            .known_shape()
            .is_some_and(|shape| shape.iter().product::<usize>() == 1);
        if !one || !matches!(self.graph.value(v).def, Def::Weight(_)) {
            return Ok(self.graph.scalar(v));
        }
        let index = self.vector(node, v)?;
        let bytes = self.bundle.weight_at(self.weights[index]).data;
        Ok(bytemuck::cast_slice::<u8, f32>(bytes).first().copied())
    }

    pub(super) fn binary(&mut self, id: NodeId, node: &Node, f: BinaryFn) -> Result<()> {
        let out = node.outputs[0];
        if let Some(view) = self.merged.remove(&id) {
            self.place(out, Place::Rows(view))?;
            return Ok(());
        }
        let (a, b) = (node.inputs[0], node.inputs[1]);
        if self.media_sum(node, f, [a, b])? {
            return Ok(());
        }
        let commutes = matches!(f, BinaryFn::Add | BinaryFn::Mul | BinaryFn::Max | BinaryFn::Min);
        let (a, b) = if commutes && !self.places.contains_key(&a) {
            (b, a)
        } else {
            (a, b)
        };
        let rows = self.view(node, a)?;
        let Some(f) = kernel_names::binary(f) else {
            return self.fail(node, "there is no kernel for this function");
        };
        if let Some(scalar) = self.one_number(node, b)? {
            let buffer = self.fresh(node, out, rows.width)?;
            let kind = Kind::BinaryScalar {
                f,
                a: rows,
                b: scalar,
                out: buffer,
            };
            self.push(node, kind);
            return Ok(());
        }
        if matches!(self.graph.value(b).def, Def::Weight(_)) {
            let vector = self.vector(node, b)?;
            if self.graph.ty(b).known_shape() != Some(vec![rows.width]) {
                return self.fail(node, "expected a vector with as many elements as a row");
            }
            let buffer = self.fresh(node, out, rows.width)?;
            let kind = Kind::BinaryVector {
                f,
                a: rows,
                b: vector,
                out: buffer,
            };
            self.push(node, kind);
            return Ok(());
        }
        let other = self.view(node, b)?;
        // What stands in a row after the axis of positions; an embedding of positions has no axis before it.
        let row = |v: ValueId| {
            let shape = &self.graph.ty(v).shape;
            let seq = shape.iter().position(|d| *d == Dim::symbol(cactus_ir::SEQ));
            seq.map(|at| shape[at + 1..].to_vec())
        };
        if other.width != rows.width || row(a).is_none() || row(a) != row(b) {
            return self.fail(node, "expected operands with rows of equal width");
        }
        let buffer = self.fresh(node, out, rows.width)?;
        let kind = Kind::Binary {
            f,
            a: rows,
            b: other,
            out: buffer,
        };
        self.push(node, kind);
        Ok(())
    }
}
