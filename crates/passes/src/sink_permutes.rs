use crate::pattern::{insert_before, maker};
use crate::{Pass, Report, Result};
use cactus_ir::{Graph, Node, NodeId, Op, ValueId};

/// Moves permutations below slices, elementwise operations, norms and concatenations, so that one that undoes another meets
/// it. Models that convolve work on `[batch, channels, seq]` between two permutations; below them, the work between is
/// on `[batch, seq, channels]` like everything else.
#[derive(Debug)]
pub(crate) struct SinkPermutes;

impl Pass for SinkPermutes {
    fn name(&self) -> &'static str {
        "sink_permutes"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        let mut moved = 0;
        // In execution order, so a permutation sinks through a whole chain in one sweep.
        for id in graph.order().to_vec() {
            if let Some((op, inputs, perm)) = above(graph, id) {
                let v = insert_before(graph, id, op, &inputs)?;
                graph.replace(id, Op::Permute { perm }, &[v])?;
                moved += 1;
            }
        }
        if moved > 0 {
            report.fired(self.name(), "", format!("{moved} moved down"));
        }
        Ok(())
    }
}

/// The operation on permuted operands as the same on the operands themselves, and the permutation that follows it.
fn above(g: &Graph, id: NodeId) -> Option<(Op, Vec<ValueId>, Vec<usize>)> {
    let node = g.node(id);
    let permuted = |v: ValueId| match maker(g, v)? {
        Node {
            op: Op::Permute { perm },
            inputs,
            ..
        } => Some((inputs[0], perm)),
        _ => None,
    };
    let (x, perm) = node.inputs.iter().find_map(|&v| permuted(v))?;
    let perm = perm.clone();
    let op = match &node.op {
        Op::Unary { .. } | Op::Cast { .. } => return Some((node.op.clone(), vec![x], perm)),
        Op::Slice { axis, start, end } => {
            let op = Op::Slice {
                axis: perm[*axis],
                start: start.clone(),
                end: end.clone(),
            };
            return Some((op, vec![x], perm));
        }
        // Of the last axis, where that stays the last.
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => {
            // Weights of heads have the axis before, too.
            let own = g.ty(node.inputs[1]).shape.len().min(perm.len());
            let stays = (perm.len() - own..perm.len()).all(|i| perm[i] == i) && permuted(node.inputs[0]).is_some();
            let inputs = [&[x], &node.inputs[1..]].concat();
            return stays.then(|| (node.op.clone(), inputs, perm));
        }
        Op::Binary { .. } | Op::Compare { .. } => node.op.clone(),
        Op::Concat { axis } => Op::Concat { axis: perm[*axis] },
        _ => return None,
    };
    // Every operand has the same permutation or is one number.
    let operand = |&v: &ValueId| match permuted(v) {
        Some((x, p)) if *p == perm => Some(x),
        _ => (g.ty(v).shape.is_empty() && !matches!(op, Op::Concat { .. })).then_some(v),
    };
    let inputs: Option<Vec<ValueId>> = node.inputs.iter().map(operand).collect();
    Some((op, inputs?, perm))
}
