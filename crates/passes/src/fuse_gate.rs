//! Gates of values that do not lie beside them. Gates and values of one linear were found before.

use crate::pattern::{Match, Miss, describe, either, maker, near, only_user, result, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Activation, BinaryFn, Graph, NodeId, Op, ValueId};

/// Finds `activation(gate) * x` of two values of one shape, as layers with inputs of their own have it: one pass over the rows.
#[derive(Debug)]
pub(crate) struct FuseGate;

impl Pass for FuseGate {
    fn name(&self) -> &'static str {
        "fuse_gate"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "gated value"),
            find,
            |graph, id, (op, inputs)| Ok(graph.replace(id, op, &inputs)?),
        )
    }
}

fn find(g: &Graph, id: NodeId) -> Match<(Op, [ValueId; 2])> {
    let pick = |active, up| {
        let node = maker(g, active)?;
        let Op::Unary { f } = node.op else { return None };
        Some((Activation::of_unary(f)?, active, node.inputs[0], up))
    };
    let Some((activation, active, gate, up)) = either(g, result(g, id), BinaryFn::Mul, pick) else {
        return Err(Miss::Other);
    };
    if g.ty(gate) != g.ty(up) {
        return near("gate and value differ in shape");
    }
    if only_user(g, active).is_none() {
        return near(format!("{} is used elsewhere too", describe(g, active)));
    }
    let op = Op::Gated {
        activation,
        above: None,
    };
    Ok((op, [gate, up]))
}
