//! Norms and rotation: in place where nobody else reads the operand, and the norm of a sum in the step that makes the sum.

use super::{Lowerer, Place, media};
use crate::Result;
use crate::grids::AXES;
use crate::step::{Buffer, Fixed, Kind, NextNorm, View};
use cactus_ir::{Def, Literal, Node, NodeId, ValueId};

impl Lowerer<'_> {
    pub(super) fn rms_norm(&mut self, node: &Node, eps: f32) -> Result<()> {
        let (x, out) = (node.inputs[0], node.outputs[0]);
        let weight = self.fixed(node, 1)?;
        let ty = self.graph.ty(out);
        if ty.shape.len() == 3 {
            let x = self.whole(node, x)?;
            if let Fixed::Weight(weight) = weight
                && self.follows_sum(x)
            {
                return self.norm_of_sum(node, x.width, weight, eps);
            }
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

    pub(super) fn layer_norm(&mut self, node: &Node, eps: f32) -> Result<()> {
        let out = node.outputs[0];
        let (weights, shape) = (self.graph.ty(node.inputs[1]).shape.len(), &self.graph.ty(out).shape);
        if (weights, shape.len()) == (2, 4) {
            let Some(head_dim) = shape[3].as_known() else {
                return self.fail(node, "the normalized axis must have a fixed size");
            };
            let x = self.view(node, node.inputs[0])?;
            let weight = self.vector(node, node.inputs[1])?;
            let bias = node.inputs.get(2).map(|&b| self.vector(node, b)).transpose()?;
            let out = self.fresh(node, out, x.width)?;
            let kind = Kind::LayerNormHeads {
                x,
                head_dim,
                weight,
                bias,
                eps,
                out,
            };
            self.push(node, kind);
            return Ok(());
        }
        let x = self.whole(node, node.inputs[0])?;
        if (weights, self.graph.ty(out).shape.len()) != (1, 3) {
            return self.fail(node, "expected a norm over whole rows");
        }
        let weight = self.vector(node, node.inputs[1])?;
        let bias = node.inputs.get(2).map(|&b| self.vector(node, b)).transpose()?;
        let out = self.fresh(node, out, x.width)?;
        let kind = Kind::LayerNorm {
            x,
            weight,
            bias,
            eps,
            out,
        };
        self.push(node, kind);
        Ok(())
    }

    /// Adds the norm of `x` to the rows of the residual, or to a copy of them where somebody still reads them.
    pub(super) fn norm_add(&mut self, id: NodeId, node: &Node, eps: f32) -> Result<()> {
        let (residual, out) = (node.inputs[0], node.outputs[0]);
        let weight = self.vector(node, node.inputs[2])?;
        let x = self.whole(node, node.inputs[1])?;
        // Rows plus their own norm are read while the sums are written.
        let residual = match self.addable(id, residual).filter(|view| view.buffer != x.buffer) {
            Some(view) => {
                self.place(out, Place::Rows(view))?;
                view
            }
            None => {
                let view = self.view(node, residual)?;
                let buffer = self.fresh(node, out, view.width)?;
                self.push(node, Kind::Copy { x: view, out: buffer });
                View::of(buffer, view.width)
            }
        };
        let kind = Kind::NormAdd {
            x,
            weight,
            eps,
            residual,
            next: None,
        };
        self.push(node, kind);
        Ok(())
    }

    /// Whether the last step made the rows `x`, whole rows that it normalized before adding, and does not yet make a norm.
    fn follows_sum(&self, x: View) -> bool {
        match self.steps.last().map(|s| &s.kind) {
            Some(Kind::NormAdd {
                residual,
                weight,
                next: None,
                ..
            }) => {
                let dims = &self.bundle.weight_at(self.weights[*weight]).dims;
                *residual == x && dims.last() == Some(&x.width)
            }
            _ => false,
        }
    }

    /// Has the last step, a sum, make the norm of its rows too.
    fn norm_of_sum(&mut self, node: &Node, width: usize, weight: usize, eps: f32) -> Result<()> {
        let v = node.outputs[0];
        let quantized = self.only_quantized(v);
        let out = match quantized {
            true => self.fresh_quantized(node, v, width)?,
            false => self.fresh(node, v, width)?,
        };
        let Some(last) = self.steps.last_mut() else {
            return self.fail(node, "expected the operand to be a sum");
        };
        if let Kind::NormAdd { next, .. } = &mut last.kind {
            *next = Some(NextNorm {
                weight,
                eps,
                out,
                quantized,
            });
        }
        // The step that writes the buffer is the one before the next.
        let request = &mut self.requests[out];
        request.first = request.first.saturating_sub(1);
        Ok(())
    }

    pub(super) fn rope(&mut self, node: &Node, scale: f32, interleaved: bool) -> Result<()> {
        let (x, out) = (node.inputs[0], node.outputs[0]);
        let (table, half) = self.rope_table(node, node.inputs[1], node.inputs[2], scale)?;
        let head_dim = self.graph.ty(out).last_known().unwrap_or(0);
        let x = self.in_place(node, x, out)?;
        let kind = Kind::Rope {
            x,
            head_dim,
            interleaved,
            table,
            half,
        };
        self.push(node, kind);
        Ok(())
    }

    pub(super) fn norm_rope(&mut self, node: &Node, eps: f32, scale: f32) -> Result<()> {
        let weight = self.vector(node, node.inputs[1])?;
        let (table, half) = self.rope_table(node, node.inputs[2], node.inputs[3], scale)?;
        let x = self.in_place(node, node.inputs[0], node.outputs[0])?;
        let kind = Kind::NormRopeHeads {
            x,
            weight,
            eps,
            table,
            half,
        };
        self.push(node, kind);
        Ok(())
    }

    /// The table of cosines and sines of `positions`, and half the width that is rotated; made where it is first read.
    fn rope_table(&mut self, node: &Node, positions: ValueId, freq: ValueId, scale: f32) -> Result<(Buffer, usize)> {
        let on_axes = match self.places.get(&positions) {
            Some(Place::Positions) => false,
            Some(Place::Media(media::Part::Positions)) if self.graph.ty(positions).last_known() == Some(AXES) => true,
            _ => {
                return self.fail(
                    node,
                    "expected positions that begin at `past` and count `seq`, or those given on three axes",
                );
            }
        };
        self.media.in_grids |= on_axes;
        let Def::Literal(Literal::F32(inv_freq)) = &self.graph.value(freq).def else {
            return self.fail(node, "expected frequencies that are constants of the graph");
        };
        let half = inv_freq.len() / if on_axes { AXES } else { 1 };
        let known = self
            .rope_tables
            .iter()
            .find(|(v, s, _, h)| self.graph.value(*v).def == self.graph.value(freq).def && *s == scale && *h == half);
        let table = match known {
            Some(&(_, _, table, _)) => table,
            None => {
                let Some(bytes) = self.rows.checked_mul(half).and_then(|n| n.checked_mul(8)) else {
                    return self.fail(node, "the rotation table is larger than the address space");
                };
                let table = self.buffer(bytes);
                let kind = Kind::RopeTable {
                    inv_freq: inv_freq.clone(),
                    on_axes,
                    scale,
                    table,
                };
                self.push(node, kind);
                self.rope_tables.push((freq, scale, table, half));
                table
            }
        };
        Ok((table, half))
    }

    /// The rows of `x` for a step that overwrites them before another makes its result of them: a copy where somebody else reads them.
    pub(super) fn overwritable(&mut self, node: &Node, x: ValueId) -> Result<View> {
        let view = self.view(node, x)?;
        if self.single_use(x) && self.exclusive(x, view) {
            return Ok(view);
        }
        let buffer = self.rows_buffer(node, view.width)?;
        self.push(node, Kind::Copy { x: view, out: buffer });
        Ok(View::of(buffer, view.width))
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
}
