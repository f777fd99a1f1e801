//! A norm of heads that are rotated right behind it. What a norm and a rotation are was found before.

use crate::pattern::{Match, Miss, describe, maker, near, only_user, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{Graph, NodeId, Op, ValueId};

/// Finds `rope(rms_norm(x))` of each head, as models that normalize queries and keys have it: one pass over the heads.
#[derive(Debug)]
pub(crate) struct FuseNormRope;

impl Pass for FuseNormRope {
    fn name(&self) -> &'static str {
        "fuse_norm_rope"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "norm_rope"),
            find,
            |graph, id, (op, inputs)| Ok(graph.replace(id, op, &inputs)?),
        )
    }
}

fn find(g: &Graph, id: NodeId) -> Match<(Op, [ValueId; 4])> {
    let rope = g.node(id);
    let (&Op::Rope { scale, interleaved }, &[x, positions, freq]) = (&rope.op, &rope.inputs[..]) else {
        return Err(Miss::Other);
    };
    let Some(norm) = maker(g, x) else {
        return Err(Miss::Other);
    };
    let (&Op::RmsNorm { eps }, &[heads, weight]) = (&norm.op, &norm.inputs[..]) else {
        return Err(Miss::Other);
    };
    if interleaved {
        return near("neighboring elements are rotated together; the fused operation rotates halves");
    }
    if only_user(g, x).is_none() {
        return near(format!("{} is used elsewhere too", describe(g, x)));
    }
    Ok((Op::NormRope { eps, scale }, [heads, weight, positions, freq]))
}
