//! Rows of pictures and sounds in place of embeddings: an input says at which positions, another has them. Rows may be wider than
//! embeddings: what is beyond is added behind early layers. A third input may say up to which position each one sees, where those of a
//! picture see each other, and a fourth where positions are on the axes of a rotary embedding.
//!
//! A call gives only the rows that it has, so the inputs lie nowhere and the choice between them and embeddings is a copy of these rows, or
//! a sum. A call without any does nothing.

use super::{Lowerer, Place};
use crate::Result;
use crate::step::{Kind, View};
use cactus_ir::{AttentionAttrs, BinaryFn, Def, Graph, Literal, MEDIA_INPUTS, Node, Op, TensorType, ValueId};
use cactus_tensor::DType;

/// Whether `v` is one of the inputs that tell of rows.
pub(super) fn is_input(graph: &Graph, v: ValueId) -> bool {
    MEDIA_INPUTS.contains(&graph.value(v).name.as_str())
}

/// What a value has of media.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Which positions have a row of their own.
    Mask,
    /// So many numbers of these rows from the given one on.
    Rows { offset: usize, width: usize },
    /// Rows to which those numbers are added.
    Sum { x: View, offset: usize },
    /// The last position that each one sees.
    Until,
    /// Positions on the axes of a rotary embedding.
    Positions,
}

impl Part {
    /// What `node`, which gives a value of type `out`, shows of it, if it computes nothing.
    pub(super) fn seen(self, node: &Node, out: &TensorType) -> Option<Part> {
        match (&node.op, self) {
            (Op::Reshape { .. }, Part::Mask | Part::Until) => Some(self),
            (Op::Slice { axis: 2, start, .. }, Part::Rows { offset, .. }) => Some(Part::Rows {
                offset: offset + start.as_known()?,
                width: out.last_known()?,
            }),
            _ => None,
        }
    }
}

impl Lowerer<'_> {
    /// Says where the inputs are.
    pub(super) fn place_media(&mut self, inputs: &[ValueId]) -> Result<()> {
        for &v in inputs {
            let place = match self.graph.ty(v).dtype {
                DType::Bool => Place::Media(Part::Mask),
                DType::I64 if self.graph.ty(v).shape.len() == 1 => Place::Media(Part::Until),
                DType::I64 => Place::Media(Part::Positions),
                _ => {
                    let ty = self.graph.ty(v);
                    let Some(width) = ty
                        .last_known()
                        .filter(|_| ty.dtype == DType::F32 && ty.shape.len() == 3)
                    else {
                        continue;
                    };
                    self.media.width = Some(width);
                    Place::Media(Part::Rows { offset: 0, width })
                }
            };
            self.place(v, place)?;
        }
        Ok(())
    }

    /// Whether `attrs` see up to given positions, which are those of media.
    pub(super) fn until(&mut self, node: &Node, attrs: &AttentionAttrs) -> Result<()> {
        let Some(at) = attrs.until_operand() else { return Ok(()) };
        if !matches!(self.places.get(&node.inputs[at]), Some(Place::Media(Part::Until))) {
            return self.fail(
                node,
                "expected the last positions that are seen to be the input of media",
            );
        }
        self.media.see_ahead = true;
        Ok(())
    }

    /// What rows of media are added to, where `a` or `b` is a part of them: it is computed by the choice that reads the sum.
    pub(super) fn media_sum(&mut self, node: &Node, f: BinaryFn, [a, b]: [ValueId; 2]) -> Result<bool> {
        let places = [a, b].map(|v| self.places.get(&v).copied());
        let ([Some(Place::Rows(x)), Some(Place::Media(Part::Rows { offset, width }))]
        | [Some(Place::Media(Part::Rows { offset, width })), Some(Place::Rows(x))]) = places
        else {
            return Ok(false);
        };
        if f != BinaryFn::Add || x.width != width {
            return self.fail(node, "expected rows of media to be added to rows as wide");
        }
        self.place(node.outputs[0], Place::Media(Part::Sum { x, offset }))?;
        Ok(true)
    }

    /// The token that stands in for rows, where `node` chooses it.
    fn stand_in(&self, node: &Node) -> Result<Option<u32>> {
        let [mask, id, ids] = node.inputs[..] else {
            return Ok(None);
        };
        let (Some(Place::Media(Part::Mask)), Some(Place::Ids)) = (self.places.get(&mask), self.places.get(&ids)) else {
            return Ok(None);
        };
        let found = match &self.graph.value(id).def {
            Def::Literal(Literal::I64(found)) => match found[..] {
                [one] => u32::try_from(one).ok(),
                _ => None,
            },
            _ => None,
        };
        match found {
            None => self.fail(node, "expected one token for all rows of media"),
            Some(id) if self.media.stand_in != 0 && self.media.stand_in != id => {
                self.fail(node, "expected the same token for all rows of media")
            }
            some => Ok(some),
        }
    }

    /// The choice of a row or an embedding, of a sum or what it was added to, or of a token that stands in for rows or the position's own.
    pub(super) fn media(&mut self, node: &Node) -> Result<()> {
        if let Some(id) = self.stand_in(node)? {
            // Every reader may have it, as no other's result is seen where there is a row.
            self.media.stand_in = id;
            return self.place(node.outputs[0], Place::Ids);
        }
        let places: Vec<Option<&Place>> = node.inputs.iter().map(|v| self.places.get(v)).collect();
        let (from, x, added) = match places[..] {
            [
                Some(Place::Media(Part::Mask)),
                Some(&Place::Media(Part::Rows { offset, width })),
                Some(&Place::Rows(x)),
            ] if x.width == width => (offset, x, false),
            [
                Some(Place::Media(Part::Mask)),
                Some(&Place::Media(Part::Sum { x: of, offset })),
                Some(&Place::Rows(x)),
            ] if x == of => (offset, x, true),
            _ => {
                return self.fail(
                    node,
                    "expected a choice between the rows of media and embeddings as wide as they",
                );
            }
        };
        if self.last_state.is_none_or(|last| self.now > last) {
            return self.fail(node, "expected it before the last operation that mixes positions");
        }
        let out = node.outputs[0];
        let [mask, kept] = [0, 2].map(|i| node.inputs[i]);
        if self.width(node, self.graph.ty(out))? != x.width || self.width(node, self.graph.ty(mask))? != 1 {
            return self.fail(node, "expected one choice for each position");
        }
        // In place where nobody else reads the embeddings.
        let alone = match added {
            false => self.single_use(kept),
            true => self.uses[kept.index()].len() == 2 && self.graph.outputs().iter().all(|(_, o)| *o != kept),
        };
        let buffer = match x.is_whole() && alone && self.exclusive(kept, x) {
            true => {
                self.place(out, Place::Rows(x))?;
                x.buffer
            }
            false => self.fresh(node, out, x.width)?,
        };
        let kind = Kind::Media {
            x,
            from,
            added,
            out: buffer,
        };
        self.push(node, kind);
        Ok(())
    }
}
