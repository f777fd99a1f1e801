//! A norm of heads behind which a gate stands. What a norm is was found before.

use crate::pattern::{Match, Miss, binary, describe, insert_before, maker, near, only_user, result, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Activation, BinaryFn, Graph, Node, NodeId, Op, ValueId};

/// Finds `rms_norm(x) * activation(gate)`, as layers with a recurrence have it behind that (Yang et al. 2024): one pass over the heads.
#[derive(Debug)]
pub(crate) struct FuseNormGate;

impl Pass for FuseNormGate {
    fn name(&self) -> &'static str {
        "fuse_norm_gate"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "norm_gate"), find, |graph, id, found| {
            let Found { op, x, gate, weight } = found;
            let shape = graph.ty(x).shape.clone();
            let gate = match graph.ty(gate).shape == shape {
                true => gate,
                false => insert_before(graph, id, Op::Reshape { shape }, &[gate])?,
            };
            Ok(graph.replace(id, op, &[x, gate, weight])?)
        })
    }
}

struct Found {
    op: Op,
    x: ValueId,
    /// Perhaps of another shape.
    gate: ValueId,
    weight: ValueId,
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let Some((a, b)) = binary(g, result(g, id), BinaryFn::Mul) else {
        return Err(Miss::Other);
    };
    let norm = |v: ValueId| match maker(g, v)? {
        Node {
            op: Op::RmsNorm { eps },
            inputs,
            ..
        } => Some((v, *eps, inputs[0], inputs[1])),
        _ => None,
    };
    let (Some((normed, eps, x, weight)), other) = (match norm(a) {
        Some(found) => (Some(found), b),
        None => (norm(b), a),
    }) else {
        return Err(Miss::Other);
    };
    let Some((active, activation, gate)) = activated(g, other) else {
        return Err(Miss::Other);
    };
    if g.ty(other) != g.ty(normed) {
        return near("the gate has another shape than the norm");
    }
    for v in [normed, other, active] {
        if only_user(g, v).is_none() {
            return near(format!("{} is used elsewhere too", describe(g, v)));
        }
    }
    let op = Op::NormGate { eps, activation };
    Ok(Found { op, x, gate, weight })
}

/// The activation of which `v` is the result, perhaps in another shape, and its operand.
fn activated(g: &Graph, v: ValueId) -> Option<(ValueId, Activation, ValueId)> {
    let node = maker(g, v)?;
    match node.op {
        Op::Unary { f } => Some((v, Activation::of_unary(f)?, node.inputs[0])),
        Op::Reshape { .. } => activated(g, node.inputs[0]),
        _ => None,
    }
}
