//! Rows of merged positions back to one row for each position. Code that was written for matrices flattens
//! `[batch, seq, …]` to `[batch * seq, …]` before a product and takes it apart afterwards; what comes later (fusions,
//! states, the runtime) works on axes that count one thing each.

use crate::pattern::{insert_before, maker};
use crate::reshaped::{self, Operand};
use crate::{Pass, Report, Result};
use cactus_ir::{Dim, Graph, Node, NodeId, Op, SEQ, ValueId, infer};

/// Moves reshapes that merge positions with other axes below operations that work on each element or on each row, so
/// that the reshape which takes them apart again meets them.
#[derive(Debug)]
pub(crate) struct SinkReshapes;

impl Pass for SinkReshapes {
    fn name(&self) -> &'static str {
        "sink_reshapes"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        let mut moved = 0;
        // In execution order, so a reshape sinks through a whole chain in one sweep.
        for id in graph.order().to_vec() {
            let Some(found) = above(graph, id) else { continue };
            let shape = graph.ty(graph.node(id).outputs[0]).shape.clone();
            let inputs = reshaped::inputs(graph, id, found.operands)?;
            let y = insert_before(graph, id, found.op, &inputs)?;
            graph.replace(id, Op::Reshape { shape }, &[y])?;
            moved += 1;
        }
        if moved > 0 {
            report.fired(self.name(), "", format!("{moved} moved down"));
        }
        Ok(())
    }
}

struct Found {
    op: Op,
    /// Operands, and the shape to give those that have merged rows.
    operands: Vec<Operand>,
}

/// The operation on operands with an axis for each thing that is counted.
fn above(g: &Graph, id: NodeId) -> Option<Found> {
    let node = g.node(id);
    let rows = node.inputs.iter().find_map(|&v| Rows::of(g, v))?;
    let shift = rows.apart.len() - rows.merged.len();
    let rank = rows.merged.len() + 1;
    // An axis after the merging: the last one, or any where only an axis of size 1 was dropped.
    let only_one_dropped = shift == 1 && rows.apart[1..] == rows.merged[..];
    let axis = |a: usize| (a + 1 == rank || only_one_dropped).then_some(a + shift);
    let every_row = matches!(
        node.op,
        Op::Unary { .. } | Op::Cast { .. } | Op::Binary { .. } | Op::Compare { .. } | Op::Where
    );
    let op = match &node.op {
        op if every_row => op.clone(),
        op @ (Op::Linear | Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::Gated { .. }) => op.clone(),
        Op::Softmax { axis: a } => Op::Softmax { axis: axis(*a)? },
        Op::CumSum { axis: a } => Op::CumSum { axis: axis(*a)? },
        Op::ArgSort { axis: a, descending } => Op::ArgSort {
            axis: axis(*a)?,
            descending: *descending,
        },
        Op::Gather { axis: a } => Op::Gather { axis: axis(*a)? },
        Op::Slice { axis: a, start, end } if end.as_known().is_some() => Op::Slice {
            axis: axis(*a)?,
            start: start.clone(),
            end: end.clone(),
        },
        Op::Reduce { f, axes, keepdim } => Op::Reduce {
            f: *f,
            axes: axes.iter().map(|&a| axis(a)).collect::<Option<_>>()?,
            keepdim: *keepdim,
        },
        _ => return None,
    };
    let mut operands = Vec::new();
    for (i, &v) in node.inputs.iter().enumerate() {
        let shape = &g.ty(v).shape;
        let constant = shape.iter().rev().skip(1).all(|d| d.is(1)) && shape.len() <= rows.apart.len() + 1;
        let apart = if shape.len() == rank && shape[..rank - 1] == rows.merged[..] {
            Some([&rows.apart[..], &shape[rank - 1..]].concat())
        } else if only_one_dropped && shape.len() == rank + 1 && shape[..rank] == rows.apart[..] {
            // Broadcasting gave the other operand the axis of size 1 already.
            None
        } else if (every_row && constant) || (!every_row && i > 0 && !matches!(op, Op::Gather { .. })) {
            None
        } else {
            return None;
        };
        operands.push((v, apart));
    }
    // What the operation gives must be the old result under another shape.
    let ty = reshaped::result(g, &op, &operands)?;
    let out = g.ty(node.outputs[0]);
    let back = Op::Reshape {
        shape: out.shape.clone(),
    };
    (infer(&back, &[&ty]).ok()? == *out).then_some(Found { op, operands })
}

/// What stands before the last axis: merged, and apart as `[batch, seq]` or `[batch, seq, n]`.
struct Rows {
    merged: Vec<Dim>,
    apart: Vec<Dim>,
}

impl Rows {
    /// Where `v` is a reshape of a value `[batch, seq, …]` that has positions elsewhere than at axis 1.
    fn of(g: &Graph, v: ValueId) -> Option<Rows> {
        let Node {
            op: Op::Reshape { shape },
            inputs,
            ..
        } = maker(g, v)?
        else {
            return None;
        };
        let seq = Dim::symbol(SEQ);
        let from = &g.ty(inputs[0]).shape;
        let counts = |shape: &[Dim]| shape.len() > 2 && shape[1] == seq;
        if !counts(from) || counts(shape) {
            return None;
        }
        let (last, merged) = shape.split_last()?;
        if !merged.first()?.symbols().any(|s| s == SEQ) {
            return None;
        }
        let width: Option<usize> = from[2..].iter().try_fold(1usize, |n, d| n.checked_mul(d.as_known()?));
        let (width, last) = (width?, last.as_known()?);
        let more = width.checked_div(last).filter(|n| n * last == width)?;
        let mut apart = from[..2].to_vec();
        if more != 1 {
            apart.push(Dim::known(more));
        }
        (apart.len() >= merged.len()).then(|| Rows {
            merged: merged.to_vec(),
            apart,
        })
    }
}
