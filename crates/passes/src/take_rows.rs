//! Rows of a table, as positions choose them. A gather whose index is the same along all other axes takes whole rows; and
//! rows of a table that is computed from its own row numbers are computed from the numbers asked for, so that no table is
//! left and what is made of positions shows (the rotary embedding of GPT-J).

use crate::pattern::{Match, Miss, insert_before, kept_axes, maker, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Dim, Graph, Node, NodeId, Op, ValueId};

/// Turns gathers of rows into `take`, and `take` of computed rows into their computation.
#[derive(Debug)]
pub(crate) struct TakeRows;

/// Longest chain of operations followed.
const MAX_DEPTH: usize = 24;

impl Pass for TakeRows {
    fn name(&self) -> &'static str {
        "take_rows"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        let gathers = (self.name(), "take");
        rewrite_each(graph, report, gathers, gather, |g, id, (axis, x, ids)| {
            let shape = g
                .ty(ids)
                .shape
                .iter()
                .filter(|d| !d.is(1))
                .cloned()
                .collect::<Vec<Dim>>();
            // Of one row, too, the result keeps the axis.
            let shape = if shape.is_empty() { vec![Dim::known(1)] } else { shape };
            let ids = insert_before(g, id, Op::Reshape { shape }, &[ids])?;
            Ok(g.replace(id, Op::Take { axis }, &[x, ids])?)
        })?;
        let computed = (self.name(), "computed rows");
        rewrite_each(graph, report, computed, take, |g, id, (axis, x, ids)| {
            let rows = Rows { root: id, ids };
            let v = rows.of(g, x, axis)?;
            let out = g.node(id).outputs[0];
            g.replace_uses(out, v);
            Ok(())
        })
    }
}

/// `(axis, x, ids)` of a gather that takes whole rows, with `ids` of one axis that is not 1.
fn gather(g: &Graph, id: NodeId) -> Match<(usize, ValueId, ValueId)> {
    let node = g.node(id);
    let (&Op::Gather { axis }, &[x, index]) = (&node.op, &node.inputs[..]) else {
        return Err(Miss::Other);
    };
    let Some(Node {
        op: Op::Expand { .. },
        inputs,
        ..
    }) = maker(g, index)
    else {
        return Err(Miss::Other);
    };
    let (ids, rank) = (inputs[0], g.ty(index).shape.len());
    let (x_shape, index_shape, ids_shape) = (&g.ty(x).shape, &g.ty(index).shape, &g.ty(ids).shape);
    let others = (0..rank).filter(|&i| i != axis);
    let whole = x_shape.len() == rank && others.clone().all(|i| x_shape[i] == index_shape[i]);
    // The axis of the operand of the expansion that is axis `i` of its result, if it has one.
    let own = |i: usize| (i + ids_shape.len()).checked_sub(rank);
    let same = others.clone().all(|i| own(i).is_none_or(|i| ids_shape[i].is(1)));
    let all = own(axis).is_some_and(|i| ids_shape[i] == index_shape[axis]);
    match whole && same && all {
        true => Ok((axis, x, ids)),
        false => Err(Miss::Other),
    }
}

/// `(axis, x, ids)` of a take whose rows are computed from their numbers.
fn take(g: &Graph, id: NodeId) -> Match<(usize, ValueId, ValueId)> {
    let node = g.node(id);
    let (&Op::Take { axis }, &[x, ids]) = (&node.op, &node.inputs[..]) else {
        return Err(Miss::Other);
    };
    // Fixed rows are computed ahead anyway.
    let fixed = matches!(g.value(ids).def, Def::Literal(_));
    match !fixed && g.ty(ids).shape.len() == 1 && computed(g, x, axis, MAX_DEPTH) {
        true => Ok((axis, x, ids)),
        false => Err(Miss::Other),
    }
}

/// Whether row `i` of `v` along `axis` is computed from `i` and what is the same for all rows.
fn computed(g: &Graph, v: ValueId, axis: usize, depth: usize) -> bool {
    let (Some(depth), Some(node)) = (depth.checked_sub(1), maker(g, v)) else {
        return false;
    };
    let x = node.inputs.first().copied();
    match (&node.op, x) {
        (Op::Iota { start, .. }, _) => start.is(0),
        (Op::Unary { .. } | Op::Cast { .. }, Some(x)) => computed(g, x, axis, depth),
        (Op::Binary { .. }, _) => node.inputs.iter().all(|&x| match own_axis(g, v, x, axis) {
            Some(axis) => computed(g, x, axis, depth),
            None => true,
        }),
        (Op::Concat { axis: a }, _) => *a != axis && node.inputs.iter().all(|&x| computed(g, x, axis, depth)),
        (Op::Reshape { .. }, Some(x)) => moved(g, x, v, axis).is_some_and(|axis| computed(g, x, axis, depth)),
        _ => false,
    }
}

/// The axis of the operand `x` that is `axis` of the result `v` of a broadcast, where `x` differs along it.
fn own_axis(g: &Graph, v: ValueId, x: ValueId, axis: usize) -> Option<usize> {
    let (rank, own) = (g.ty(v).shape.len(), &g.ty(x).shape);
    let axis = (axis + own.len()).checked_sub(rank)?;
    (!own[axis].is(1)).then_some(axis)
}

/// The axis of `x` that is `axis` of its reshape `v`, where only axes of size 1 come and go.
fn moved(g: &Graph, x: ValueId, v: ValueId, axis: usize) -> Option<usize> {
    let kept = kept_axes(&g.ty(x).shape, &g.ty(v).shape)?;
    kept.into_iter().find(|&(_, to)| to == axis).map(|(from, _)| from)
}

/// Writing a computation for other rows before `root`.
struct Rows {
    root: NodeId,
    ids: ValueId,
}

impl Rows {
    /// Rows `ids` of `v`, which is [`computed`].
    fn of(&self, g: &mut Graph, v: ValueId, axis: usize) -> Result<ValueId> {
        let Some(node) = maker(g, v).cloned() else { return Ok(v) };
        let x = node.inputs.first().copied().unwrap_or(v);
        match &node.op {
            Op::Iota { .. } => Ok(self.ids),
            Op::Reshape { shape } => {
                let from = moved(g, x, v, axis).unwrap_or(axis);
                let x = self.of(g, x, from)?;
                let mut shape = shape.clone();
                shape[axis] = g.ty(self.ids).shape[0].clone();
                insert_before(g, self.root, Op::Reshape { shape }, &[x])
            }
            op => {
                let mut operands = Vec::new();
                for &x in &node.inputs {
                    let own = match op {
                        Op::Binary { .. } => own_axis(g, v, x, axis),
                        _ => Some(axis),
                    };
                    operands.push(match own {
                        Some(axis) => self.of(g, x, axis)?,
                        None => x,
                    });
                }
                insert_before(g, self.root, op.clone(), &operands)
            }
        }
    }
}
