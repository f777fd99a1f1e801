//! Parts taken of axes along which all elements are equal, and what is written over itself. Models with positions for text,
//! height and width have both where all three are the same; `fuse_rope` then finds one table.

use crate::pattern::{insert_before, maker, strip};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Dim, Graph, Literal, NodeId, Op, ValueId};

/// Takes the first of equal parts, before anything is computed of the others, and leaves out scatters that change nothing.
#[derive(Debug)]
pub(crate) struct DropRepeats;

/// Longest chain of operations followed.
const MAX_DEPTH: usize = 12;

impl Pass for DropRepeats {
    fn name(&self) -> &'static str {
        "drop_repeats"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let node = graph.node(id).clone();
            let x = node.inputs.first().copied();
            let (same, what) = match (&node.op, x) {
                (Op::Slice { axis, start, end }, Some(x)) => {
                    let one = matches!((start.as_known(), end.as_known()), (Some(s), Some(e)) if e == s + 1);
                    let repeats = !graph.ty(x).shape[*axis].is(1) && repeats(graph, x, *axis, MAX_DEPTH);
                    if !one || !repeats {
                        continue;
                    }
                    (first(graph, id, x, *axis)?, "one of equal parts")
                }
                (Op::Scatter { axis, add: false }, Some(x)) if changes_nothing(graph, &node.inputs, *axis) => {
                    (x, "a scatter of what is there")
                }
                _ => continue,
            };
            // Of the shape that it has already, which the next pass sees.
            let shape = graph.ty(node.outputs[0]).shape.clone();
            graph.replace(id, Op::Reshape { shape }, &[same])?;
            report.fired(self.name(), &node.path, what);
        }
        graph.remove_dead();
        Ok(())
    }
}

/// The axis of an operand of rank `own` that is broadcast to axis `axis` of `rank`; `None` where it has none.
fn aligned(axis: usize, rank: usize, own: usize) -> Option<usize> {
    (axis + own).checked_sub(rank)
}

/// Whether all elements of `v` along `axis` are equal.
fn repeats(g: &Graph, v: ValueId, axis: usize, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    let shape = &g.ty(v).shape;
    if shape[axis].is(1) {
        return true;
    }
    let Some(node) = maker(g, v) else { return false };
    let operand = |x: ValueId| match aligned(axis, shape.len(), g.ty(x).shape.len()) {
        Some(a) => repeats(g, x, a, depth),
        None => true,
    };
    match &node.op {
        Op::Unary { .. } | Op::Cast { .. } | Op::Slice { .. } => repeats(g, node.inputs[0], axis, depth),
        Op::Binary { .. } | Op::Expand { .. } => node.inputs.iter().all(|&x| operand(x)),
        Op::Reshape { .. } => {
            let old = &g.ty(node.inputs[0]).shape;
            old.len() > axis && old[..=axis] == shape[..=axis] && repeats(g, node.inputs[0], axis, depth)
        }
        _ => false,
    }
}

/// The first part of `v` along `axis`, which repeats, without its other parts. It is computed before `before`.
fn first(g: &mut Graph, before: NodeId, v: ValueId, axis: usize) -> Result<ValueId> {
    let shape = g.ty(v).shape.clone();
    let Some(node) = maker(g, v).cloned().filter(|_| !shape[axis].is(1)) else {
        return Ok(v);
    };
    let mut inputs = Vec::new();
    for &x in &node.inputs {
        inputs.push(match aligned(axis, shape.len(), g.ty(x).shape.len()) {
            // A reshape keeps the axes up to this one.
            _ if matches!(node.op, Op::Reshape { .. }) => first(g, before, x, axis)?,
            Some(a) => first(g, before, x, a)?,
            None => x,
        });
    }
    let mut narrow = shape;
    narrow[axis] = Dim::known(1);
    let op = match node.op {
        Op::Slice { axis: cut, .. } if cut == axis => return Ok(inputs[0]),
        Op::Expand { .. } => Op::Expand { shape: narrow },
        Op::Reshape { .. } => Op::Reshape { shape: narrow },
        op => op,
    };
    insert_before(g, before, op, &inputs)
}

/// Whether a scatter along `axis` writes nothing, or what stands there already.
fn changes_nothing(g: &Graph, inputs: &[ValueId], axis: usize) -> bool {
    let &[x, ids, updates] = inputs else { return false };
    if g.ty(ids).shape.iter().any(|d| d.is(0)) {
        return true;
    }
    let Some(taken) = maker(g, updates) else { return false };
    let (Op::Take { axis: from }, &[source, places]) = (&taken.op, &taken.inputs[..]) else {
        return false;
    };
    let same = strip(g, source) == strip(g, x) && g.ty(source) == g.ty(x) && *from == axis;
    // The indices, the same for everything beside the axis.
    let mut flat = ids;
    while let Some(node) = maker(g, flat).filter(|n| matches!(n.op, Op::Expand { .. } | Op::Reshape { .. })) {
        flat = node.inputs[0];
    }
    let literal = |v: ValueId| match &g.value(v).def {
        Def::Literal(Literal::I64(l)) => Some(l),
        _ => None,
    };
    let (Some(written), Some(read)) = (literal(flat), literal(places)) else {
        return false;
    };
    let along = |v: ValueId, axis: usize, n: usize| {
        g.ty(v)
            .shape
            .iter()
            .enumerate()
            .all(|(i, d)| d.is(if i == axis { n } else { 1 }))
    };
    let one_axis = match aligned(axis, g.ty(ids).shape.len(), g.ty(flat).shape.len()) {
        Some(a) => along(flat, a, written.len()),
        None => false,
    };
    same && written == read && one_axis && g.ty(places).shape.len() == 1
}
