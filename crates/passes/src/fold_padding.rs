//! Zeros that are joined to the operand of a convolution become its padding.

use crate::pattern::{Match, Miss, maker, near, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Graph, Literal, NodeId, Op, ValueId};

/// Finds convolutions behind `concat(zeros, x, zeros)` along their axes, as models pad that care on which side: causal ones, and those with TensorFlow's `same`.
#[derive(Debug)]
pub(crate) struct FoldPadding;

impl Pass for FoldPadding {
    fn name(&self) -> &'static str {
        "fold_padding"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "zeros before and after a convolution"),
            find,
            |graph, id, (op, inputs)| Ok(graph.replace(id, op, &inputs)?),
        )
    }
}

fn find(g: &Graph, id: NodeId) -> Match<(Op, Vec<ValueId>)> {
    let node = g.node(id);
    if !matches!(node.op, Op::Conv(_) | Op::Conv1d { .. }) {
        return Err(Miss::Other);
    }
    let (mut op, mut inputs) = (node.op.clone(), node.inputs.clone());
    while let Some((x, axis, [before, after])) = zeros_around(g, inputs[0])? {
        let padding = match &mut op {
            Op::Conv(a) => a.padding.get_mut(axis).map(|[left, right]| (left, right)),
            Op::Conv1d {
                pad_left, pad_right, ..
            } => Some((pad_left, pad_right)),
            _ => None,
        };
        let Some((left, right)) = padding else {
            return Err(Miss::Other);
        };
        *left += before;
        *right += after;
        inputs[0] = x;
    }
    match inputs[0] == node.inputs[0] {
        true => Err(Miss::Other),
        false => Ok((op, inputs)),
    }
}

/// What `v` has zeros around, along which of its axes behind channels, and how many there are before and after.
fn zeros_around(g: &Graph, v: ValueId) -> Match<Option<(ValueId, usize, [usize; 2])>> {
    let Some(node) = maker(g, v) else { return Ok(None) };
    let Op::Concat { axis: axis @ 2.. } = node.op else {
        return Ok(None);
    };
    let mut others = node.inputs.iter().enumerate().filter(|(_, v)| !is_zero(g, **v));
    let (Some((at, &x)), None) = (others.next(), others.next()) else {
        return Ok(None);
    };
    let count = |zeros: &[ValueId]| -> Option<usize> { zeros.iter().map(|&v| g.ty(v).shape[axis].as_known()).sum() };
    match (count(&node.inputs[..at]), count(&node.inputs[at + 1..])) {
        (Some(before), Some(after)) => Ok(Some((x, axis - 2, [before, after]))),
        _ => near("how many zeros there are varies"),
    }
}

/// Whether `v` is zeros, broadcast or folded.
fn is_zero(g: &Graph, mut v: ValueId) -> bool {
    while let Some(node) = maker(g, v)
        && matches!(node.op, Op::Reshape { .. } | Op::Expand { .. })
    {
        v = node.inputs[0];
    }
    match &g.value(v).def {
        Def::Literal(Literal::F32(all)) => all.iter().all(|x| *x == 0.0),
        _ => false,
    }
}
