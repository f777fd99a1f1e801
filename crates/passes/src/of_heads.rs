//! What attention has one number of for each head: slopes of a bias that is linear in the distance (`ALiBi`, Press et al.
//! 2021), and sinks, scores without a value (Xiao et al. 2023).

use crate::Result;
use crate::affine::{Affine, MAX_DEPTH, affine, aligned};
use crate::pattern::{binary, either, insert_before, kept_axes, maker, scalar, strip, sum_last, unary};
use cactus_ir::{BinaryFn, Def, Dim, Graph, Literal, Node, NodeId, Op, ReduceFn, UnaryFn, ValueId};

/// A value that is `numbers[head] * position`, where `position` is an affine function of the indices.
#[derive(Clone, Debug)]
pub(crate) struct Slopes {
    numbers: Vec<f32>,
    /// Axis of the value that counts heads.
    axis: usize,
    position: Affine,
}

impl Slopes {
    /// `v` as slopes.
    fn of(g: &Graph, v: ValueId, depth: usize) -> Option<Slopes> {
        let depth = depth.checked_sub(1)?;
        let node = maker(g, v)?;
        match (&node.op, &node.inputs[..]) {
            (Op::Binary { f: BinaryFn::Mul }, &[a, b]) => {
                Slopes::product(g, node, a, b, depth).or_else(|| Slopes::product(g, node, b, a, depth))
            }
            (Op::Reshape { .. } | Op::Expand { .. } | Op::Slice { .. } | Op::Permute { .. }, &[x]) => {
                let inner = Slopes::of(g, x, depth)?;
                let axis = match &node.op {
                    Op::Reshape { shape } => {
                        let kept = kept_axes(&g.ty(x).shape, shape)?;
                        kept.into_iter().find(|&(from, _)| from == inner.axis)?.1
                    }
                    Op::Expand { shape } => inner.axis + shape.len() - g.ty(x).shape.len(),
                    Op::Permute { perm } => perm.iter().position(|&p| p == inner.axis)?,
                    Op::Slice { axis, .. } if *axis == inner.axis => return None,
                    _ => inner.axis,
                };
                let position = inner.position.moved(g, node)?;
                Some(Slopes {
                    axis,
                    position,
                    ..inner
                })
            }
            (Op::Cast { .. }, &[x]) => Slopes::of(g, x, depth),
            _ => None,
        }
    }

    /// Fixed numbers of one axis times an affine value.
    fn product(g: &Graph, node: &Node, numbers: ValueId, position: ValueId, depth: usize) -> Option<Slopes> {
        let Def::Literal(Literal::F32(values)) = &g.value(strip(g, numbers)).def else {
            return None;
        };
        let (shape, rank) = (&g.ty(numbers).shape, g.ty(node.outputs[0]).shape.len());
        let mut wide = (0..shape.len()).filter(|&i| !shape[i].is(1));
        let (Some(own), None) = (wide.next(), wide.next()) else {
            return None;
        };
        let axis = own + rank - shape.len();
        let position = aligned(&affine(g, position, depth).ok()?, rank)?;
        (position.coefficients[axis] == 0).then(|| Slopes {
            numbers: values.clone(),
            axis,
            position,
        })
    }

    /// A number for each of `heads`, where `v` is added to scores `[batch, heads, queries, keys]` and differs within a row
    /// as that number times the distance does. What all keys of a row have alike changes no softmax.
    pub(crate) fn added(g: &Graph, v: ValueId, heads: usize) -> Option<Vec<f32>> {
        let found = Slopes::of(g, v, MAX_DEPTH)?;
        let rank = g.ty(v).shape.len();
        let by_key = *found.position.coefficients.last()?;
        let others = found.position.coefficients.iter().rev().skip(2).all(|&c| c == 0);
        let of_heads = rank.checked_sub(found.axis) == Some(3) && found.numbers.len() == heads;
        let slopes: Vec<f32> = found.numbers.iter().map(|s| s * by_key as f32).collect();
        (others && of_heads && by_key != 0 && slopes.iter().all(|s| s.is_finite())).then_some(slopes)
    }
}

/// `x`, where `v` is `x` less what all keys of a row have alike, which no softmax sees: the largest of the row.
pub(crate) fn without_maximum(g: &Graph, v: ValueId) -> Option<ValueId> {
    let (x, most) = binary(g, v, BinaryFn::Sub)?;
    let node = maker(g, most)?;
    let last = g.ty(x).shape.len().checked_sub(1)?;
    let largest = matches!(&node.op, Op::Reduce { f: ReduceFn::Max, axes, keepdim: true } if axes[..] == [last]);
    (largest && node.inputs[0] == x).then_some(x)
}

/// `x`, where `v` is the logarithm of the sum of `exp(x)` along its last axis, which stays, as it is computed without
/// overflow.
pub(crate) fn logarithm_of_sum(g: &Graph, v: ValueId) -> Option<ValueId> {
    either(g, v, BinaryFn::Add, |log, most| {
        let rest = unary(g, sum_last(g, unary(g, log, UnaryFn::Log)?)?, UnaryFn::Exp)?;
        let (_, less) = binary(g, rest, BinaryFn::Sub)?;
        (less == most).then(|| without_maximum(g, rest))?
    })
}

/// `(scores, sinks)` where `v` is `scores` with a sink behind each row; `sinks` has a number for each head, in whatever
/// shape.
pub(crate) fn with_sinks(g: &Graph, v: ValueId) -> Option<(ValueId, ValueId)> {
    let node = maker(g, v)?;
    let (&Op::Concat { axis: 3 }, &[scores, sinks]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let shape = &g.ty(sinks).shape;
    if !shape.last()?.is(1) {
        return None;
    }
    let heads = shape.get(1)?.as_known()?;
    let mut at = sinks;
    while let Some(Node {
        op: Op::Expand { .. },
        inputs,
        ..
    }) = maker(g, at)
    {
        at = inputs[0];
    }
    // [1, heads, 1, 1], or the same number for all.
    let own = &g.ty(at).shape;
    let each = own.len() == 4 && own[1].is(heads) && [0, 2, 3].iter().all(|&i| own[i].is(1));
    let same = heads == 1 && scalar(g, at).is_some();
    (each || same).then_some((scores, at))
}

/// Sinks of any shape as an operand of attention.
pub(crate) fn sinks_operand(g: &mut Graph, before: NodeId, sinks: ValueId, heads: usize) -> Result<ValueId> {
    let shape = vec![Dim::known(heads)];
    if g.ty(sinks).shape == shape {
        return Ok(sinks);
    }
    insert_before(g, before, Op::Reshape { shape }, &[sinks])
}
