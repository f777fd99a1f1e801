//! Rotary embedding of neighbors: elements `2k` and `2k + 1` of a head are turned into each other.

use crate::fuse_rope::{Found, by_table, layout, one_table};
use crate::pattern::{Match, Miss, binary, describe, either, last_slice, maker, near, only_user, result, strip, unary};
use crate::rope_table::{Order, Table};
use cactus_ir::{BinaryFn, Def, Dim, Graph, Literal, Node, NodeId, Op, UnaryFn, ValueId};

/// `x * cos + turned * sin` at `root`, where `turned` is each pair's second element negated, then its first.
pub(crate) fn whole(g: &Graph, root: NodeId) -> Match<Found> {
    let (x, turned, cos, sin) = either(g, result(g, root), BinaryFn::Add, |a, b| {
        let (x, cos) = by_table(g, a, UnaryFn::Cos)?;
        let (turned, sin) = by_table(g, b, UnaryFn::Sin)?;
        Some((x, turned, cos, sin))
    })
    .ok_or(Miss::Other)?;
    if cos.order != Order::Neighbors {
        return Err(Miss::Other);
    }
    let parts = || {
        let (minus, first) = joined(g, turned)?;
        Some((unary(g, minus, UnaryFn::Neg)?, first))
    };
    let Some((second, first)) = parts() else {
        return near(format!(
            "{} is not pairs of a negated second element and a first element",
            describe(g, turned)
        ));
    };
    if element(g, first) != Some((x, 0)) || element(g, second) != Some((x, 1)) {
        return near("the parts turned into each other are not the neighbors of the operand");
    }
    let table = one_table(cos, sin, Order::Neighbors)?;
    found(g, root, x, table)
}

/// Pairs of `x1 * cos - x2 * sin` and `x2 * cos + x1 * sin` at `root`.
pub(crate) fn halves(g: &Graph, root: NodeId) -> Match<Found> {
    let parts = || {
        let (first, second) = joined(g, result(g, root))?;
        let (a, b) = binary(g, first, BinaryFn::Sub)?;
        let (even, cos) = by_table(g, a, UnaryFn::Cos)?;
        let (odd, sin) = by_table(g, b, UnaryFn::Sin)?;
        either(g, second, BinaryFn::Add, |a, b| {
            let same = by_table(g, a, UnaryFn::Cos)? == (odd, cos.clone())
                && by_table(g, b, UnaryFn::Sin)? == (even, sin.clone());
            same.then_some(())
        })?;
        Some((even, odd, cos, sin))
    };
    let (even, odd, cos, sin) = parts().ok_or(Miss::Other)?;
    let Some((x, 0)) = element(g, even) else {
        return near(format!("{} is not each pair's first element", describe(g, even)));
    };
    if element(g, odd) != Some((x, 1)) {
        return near("the parts are not the neighbors of one operand");
    }
    let table = one_table(cos, sin, Order::Once)?;
    found(g, root, x, table)
}

/// The rotation of `x`, with the rest of the head where that is joined behind it.
fn found(g: &Graph, root: NodeId, x: ValueId, table: Table) -> Match<Found> {
    let position_axis = layout(g, x, &table)?;
    let (root, x, of) = match with_rest(g, root, x) {
        Some((root, base, perm)) => (root, base, perm.map(|p| (base, p))),
        None => (root, x, None),
    };
    Ok(Found {
        root,
        x,
        table,
        position_axis,
        interleaved: true,
        of,
    })
}

/// `(node, heads, permutation)` where the result of `root`, of a first part of heads, is read only by `node`, which joins
/// the rest of the heads behind it.
fn with_rest(g: &Graph, root: NodeId, x: ValueId) -> Option<(NodeId, ValueId, Option<Vec<usize>>)> {
    let user = only_user(g, result(g, root))?;
    let Node {
        op: Op::Concat { axis: 3 },
        inputs,
        ..
    } = g.node(user)
    else {
        return None;
    };
    let &[turned, rest] = &inputs[..] else { return None };
    let (x, rest) = (part(g, x)?, part(g, rest)?);
    let width = g.ty(x.base).last_known()?;
    let fits = turned == result(g, root)
        && (x.base, &x.perm) == (rest.base, &rest.perm)
        && (x.start, x.end, rest.end) == (0, rest.start, width);
    fits.then_some((user, x.base, x.perm))
}

/// Elements `start..end` of the last axis of `base`, perhaps permuted.
struct Part {
    base: ValueId,
    start: usize,
    end: usize,
    perm: Option<Vec<usize>>,
}

fn part(g: &Graph, v: ValueId) -> Option<Part> {
    let (inner, perm) = match maker(g, v) {
        Some(Node {
            op: Op::Permute { perm },
            inputs,
            ..
        }) if perm.last() == Some(&(perm.len() - 1)) => (inputs[0], Some(perm.clone())),
        _ => (v, None),
    };
    let (base, start, end) = last_slice(g, inner)?;
    Some(Part { base, start, end, perm })
}

/// The values that `v` has in turn along its last axis.
fn joined(g: &Graph, v: ValueId) -> Option<(ValueId, ValueId)> {
    let Node {
        op: Op::Reshape { .. },
        inputs,
        ..
    } = maker(g, v)?
    else {
        return None;
    };
    let pairs = maker(g, inputs[0])?;
    let shape = &g.ty(inputs[0]).shape;
    let rank = shape.len();
    let (Op::Concat { axis }, &[a, b]) = (&pairs.op, &pairs.inputs[..]) else {
        return None;
    };
    let one = |v: ValueId| g.ty(v).shape.last().is_some_and(|d| d.is(1));
    let merged = g.ty(v).last_known()? == shape.get(rank.checked_sub(2)?)?.as_known()?.checked_mul(2)?;
    if *axis + 1 != rank || !one(a) || !one(b) || !merged {
        return None;
    }
    Some((without_last(g, a)?, without_last(g, b)?))
}

/// `v` before an axis of size 1 was put behind it.
fn without_last(g: &Graph, v: ValueId) -> Option<ValueId> {
    let x = strip(g, v);
    let (last, leading) = g.ty(v).shape.split_last()?;
    (last.is(1) && g.ty(x).shape == leading).then_some(x)
}

/// `(x, i)` where `v` is element `i` of each pair along the last axis of `x`.
fn element(g: &Graph, v: ValueId) -> Option<(ValueId, usize)> {
    let half = g.ty(v).last_known()?;
    let node = maker(g, v)?;
    let width_of = |x: ValueId| g.ty(x).last_known() == half.checked_mul(2);
    match &node.op {
        // Every other element.
        Op::Take { axis } if *axis + 1 == g.ty(v).shape.len() => {
            let &[x, ids] = &node.inputs[..] else { return None };
            let Def::Literal(Literal::I64(ids)) = &g.value(ids).def else {
                return None;
            };
            let first = usize::try_from(*ids.first()?).ok().filter(|&i| i < 2)?;
            let other = ids.iter().enumerate().all(|(k, &i)| i == (2 * k + first) as i64);
            (other && width_of(x)).then_some((x, first))
        }
        // An axis of pairs, and one of its elements.
        Op::Reshape { .. } => {
            let Node {
                op: Op::Slice { axis, start, .. },
                inputs,
                ..
            } = maker(g, node.inputs[0])?
            else {
                return None;
            };
            let pairs = &g.ty(inputs[0]).shape;
            let (Some(two), rank) = (pairs.last(), pairs.len()) else {
                return None;
            };
            let x = maker(g, inputs[0])
                .filter(|n| matches!(n.op, Op::Reshape { .. }))?
                .inputs[0];
            let leading = &g.ty(x).shape;
            let split = two.is(2)
                && rank == leading.len() + 1
                && pairs[..rank - 2] == leading[..leading.len() - 1]
                && pairs[rank - 2] == Dim::known(half)
                && g.ty(v).shape == pairs[..rank - 1];
            (*axis + 1 == rank && split && width_of(x)).then_some((x, start.as_known()?))
        }
        _ => None,
    }
}
