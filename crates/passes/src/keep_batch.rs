//! Heads of one sequence, back with the axis of the sequence. Code that was written for a batched product of three axes
//! flattens `[batch, heads, seq, n]` to `[batch * heads, seq, n]`; attention is recognized with four axes.

use crate::pattern::{insert_before, maker};
use crate::reshaped::{self, Operand};
use crate::{Pass, Report, Result};
use cactus_ir::{Dim, Graph, Node, NodeId, Op, SEQ, ValueId};

/// Moves reshapes that drop the axis of a batch of one below products, elementwise operations, softmax and permutations, so
/// that the reshape which brings the axis back meets them.
#[derive(Debug)]
pub(crate) struct KeepBatch;

impl Pass for KeepBatch {
    fn name(&self) -> &'static str {
        "keep_batch"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        let mut moved = 0;
        // In execution order, so a reshape sinks through a whole chain in one sweep.
        for id in graph.order().to_vec() {
            let Some((op, operands)) = wider(graph, id) else {
                continue;
            };
            let shape = graph.ty(graph.node(id).outputs[0]).shape.clone();
            let inputs = reshaped::inputs(graph, id, operands)?;
            if graph.ty(graph.node(id).outputs[0]).shape.len() == 4 {
                graph.replace(id, op, &inputs)?;
            } else {
                let y = insert_before(graph, id, op, &inputs)?;
                graph.replace(id, Op::Reshape { shape }, &[y])?;
            }
            moved += 1;
        }
        if moved > 0 {
            report.fired(self.name(), "", format!("{moved} with the axis of the sequence"));
        }
        Ok(())
    }
}

/// The operation on four axes, where an operand has lost the first of them.
fn wider(g: &Graph, id: NodeId) -> Option<(Op, Vec<Operand>)> {
    let node = g.node(id);
    node.inputs.iter().find_map(|&v| whole(g, v))?;
    let op = match &node.op {
        op @ (Op::MatMul | Op::Unary { .. } | Op::Cast { .. } | Op::Binary { .. } | Op::Where) => op.clone(),
        Op::Softmax { axis } => Op::Softmax { axis: axis + 1 },
        Op::Permute { perm } => Op::Permute {
            perm: std::iter::once(0).chain(perm.iter().map(|p| p + 1)).collect(),
        },
        _ => return None,
    };
    let one = |v: ValueId| Some([&[Dim::known(1)], &g.ty(v).shape[..]].concat());
    let mut operands: Vec<Operand> = Vec::new();
    for &v in &node.inputs {
        operands.push(match whole(g, v) {
            Some(x) => (x, None),
            // Broadcasting adds axes in front, but the batch of a product is no broadcast one.
            None if node.op == Op::MatMul && g.ty(v).shape.len() == 3 => (v, one(v)),
            None => (v, None),
        });
    }
    let found = reshaped::result(g, &op, &operands)?;
    let out = g.ty(node.outputs[0]);
    let missing = 4usize.checked_sub(out.shape.len()).filter(|&n| n <= 1)?;
    let same = found.dtype == out.dtype
        && found.shape.len() == 4
        && found.shape[..missing].iter().all(|d| d.is(1))
        && found.shape[missing..] == out.shape[..];
    same.then_some((op, operands))
}

/// The value `[1, heads, …]` that counts positions, where `v` is it without the first axis.
fn whole(g: &Graph, v: ValueId) -> Option<ValueId> {
    let Node {
        op: Op::Reshape { shape },
        inputs,
        ..
    } = maker(g, v)?
    else {
        return None;
    };
    let from = &g.ty(inputs[0]).shape;
    let seq = Dim::symbol(SEQ);
    let heads = from.len() == 4 && from[0].is(1) && from[1].as_known().is_some_and(|n| n > 1);
    (heads && from[2..].contains(&seq) && from[1..] == shape[..]).then_some(inputs[0])
}
