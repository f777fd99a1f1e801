//! A short convolution with the activation behind it. What a short convolution is was found before.

use crate::pattern::{Match, Miss, describe, maker, near, only_user, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Activation, Graph, NodeId, Op, ValueId};

/// Finds `activation(short_conv(x))`, as layers with a recurrence have it: one pass over the rows.
#[derive(Debug)]
pub(crate) struct FuseConvActivation;

impl Pass for FuseConvActivation {
    fn name(&self) -> &'static str {
        "fuse_conv_activation"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "short_conv with its activation"),
            find,
            |graph, id, (op, inputs)| Ok(graph.replace(id, op, &inputs)?),
        )
    }
}

fn find(g: &Graph, id: NodeId) -> Match<(Op, Vec<ValueId>)> {
    let node = g.node(id);
    let &Op::Unary { f } = &node.op else {
        return Err(Miss::Other);
    };
    let y = node.inputs[0];
    let Some(conv) = maker(g, y) else {
        return Err(Miss::Other);
    };
    let Op::ShortConv {
        activation: None,
        state,
    } = &conv.op
    else {
        return Err(Miss::Other);
    };
    let Some(activation) = Activation::of_unary(f) else {
        return near(format!("{} is no activation", node.op.mnemonic()));
    };
    if only_user(g, y).is_none() {
        return near(format!("{} is used elsewhere too", describe(g, y)));
    }
    let op = Op::ShortConv {
        activation: Some(activation),
        state: state.clone(),
    };
    Ok((op, conv.inputs.clone()))
}
