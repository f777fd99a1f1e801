//! Norms, rotation and what is computed element by element: in place where nobody else reads the operand.

use super::{Lowerer, Place};
use crate::step::{Kind, View};
use crate::{Result, kernel_names};
use cactus_ir::{BinaryFn, Def, Dim, Literal, Node, NodeId, ValueId};

impl Lowerer<'_> {
    pub(super) fn rms_norm(&mut self, node: &Node, eps: f32) -> Result<()> {
        let (x, out) = (node.inputs[0], node.outputs[0]);
        let weight = self.vector(node, node.inputs[1])?;
        let ty = self.graph.ty(out);
        if ty.shape.len() == 3 {
            let x = self.whole(node, x)?;
            let kind = if self.only_quantized(out) {
                let out = self.fresh_quantized(node, out, x.width)?;
                Kind::RmsNormQuantize { x, weight, eps, out }
            } else {
                let out = self.fresh(node, out, x.width)?;
                Kind::RmsNorm { x, weight, eps, out }
            };
            self.push(node, kind);
            return Ok(());
        }
        let Some(head_dim) = ty.last_known() else {
            return self.fail(node, "the normalized axis must have a fixed size");
        };
        let x = self.in_place(node, x, out)?;
        let kind = Kind::RmsNormHeads {
            x,
            head_dim,
            weight,
            eps,
        };
        self.push(node, kind);
        Ok(())
    }

    pub(super) fn rope(&mut self, node: &Node, scale: f32) -> Result<()> {
        let (x, positions, freq, out) = (node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[0]);
        if !matches!(self.places.get(&positions), Some(Place::Positions)) {
            return self.fail(node, "expected positions past..past+seq");
        }
        let Def::Literal(Literal::F32(inv_freq)) = &self.graph.value(freq).def else {
            return self.fail(node, "expected literal frequencies");
        };
        let half = inv_freq.len();
        let known = self
            .rope_tables
            .iter()
            .find(|(v, s, _, _)| self.graph.value(*v).def == self.graph.value(freq).def && *s == scale);
        let table = match known {
            Some(&(_, _, table, _)) => table,
            None => {
                let Some(bytes) = self.rows.checked_mul(half).and_then(|n| n.checked_mul(8)) else {
                    return self.fail(node, "the rotation table is too large");
                };
                let table = self.buffer(bytes);
                let kind = Kind::RopeTable {
                    inv_freq: inv_freq.clone(),
                    scale,
                    table,
                };
                self.push(node, kind);
                self.rope_tables.push((freq, scale, table, half));
                table
            }
        };
        let head_dim = self.graph.ty(out).last_known().unwrap_or(0);
        let x = self.in_place(node, x, out)?;
        let kind = Kind::Rope {
            x,
            head_dim,
            table,
            half,
        };
        self.push(node, kind);
        Ok(())
    }

    /// The rows of `x` for a step that overwrites them with `out`: those of `x` itself where nobody else reads them, else a
    /// copy.
    fn in_place(&mut self, node: &Node, x: ValueId, out: ValueId) -> Result<View> {
        let view = self.view(node, x)?;
        if self.single_use(x) && self.exclusive(x, view) {
            self.place(out, Place::Rows(view))?;
            return Ok(view);
        }
        let buffer = self.fresh(node, out, view.width)?;
        self.push(node, Kind::Copy { x: view, out: buffer });
        self.view(node, out)
    }

    pub(super) fn binary(&mut self, id: NodeId, node: &Node, f: BinaryFn) -> Result<()> {
        let out = node.outputs[0];
        if let Some(view) = self.merged.remove(&id) {
            self.place(out, Place::Rows(view))?;
            return Ok(());
        }
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let commutes = matches!(f, BinaryFn::Add | BinaryFn::Mul | BinaryFn::Max | BinaryFn::Min);
        let (a, b) = if commutes && !self.places.contains_key(&a) {
            (b, a)
        } else {
            (a, b)
        };
        let rows = self.view(node, a)?;
        let Some(f) = kernel_names::binary(f) else {
            return self.fail(node, "the runtime has no kernel for this function yet");
        };
        if let Some(scalar) = self.graph.scalar(b) {
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
                return self.fail(node, "expected a vector as wide as a row");
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
            return self.fail(node, "the runtime works on rows of equal width");
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
