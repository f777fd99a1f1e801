//! A branch that is normalized before it is added to what it branched off. What a norm is was found before.

use crate::pattern::{Match, Miss, binary, maker, near, only_user, result, rewrite_each};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Graph, NodeId, Op, ValueId};

/// Finds `residual + rms_norm(x)`, the norm behind a block as Gemma has it: one pass over the rows, in which the norm before
/// the next block finds them still in the cache.
#[derive(Debug)]
pub(crate) struct FuseNormAdd;

impl Pass for FuseNormAdd {
    fn name(&self) -> &'static str {
        "fuse_norm_add"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "norm_add"),
            find,
            |graph, id, (op, inputs)| Ok(graph.replace(id, op, &inputs)?),
        )
    }
}

fn find(g: &Graph, id: NodeId) -> Match<(Op, [ValueId; 3])> {
    let Some((a, b)) = binary(g, result(g, id), BinaryFn::Add) else {
        return Err(Miss::Other);
    };
    let norm = |v: ValueId| match (&maker(g, v)?.op, &maker(g, v)?.inputs[..]) {
        (&Op::RmsNorm { eps }, &[x, weight]) => Some((eps, x, weight)),
        _ => None,
    };
    // Where both are norms, the one that was made last.
    let (residual, v) = match (norm(a), norm(b)) {
        (_, Some(_)) => (a, b),
        (Some(_), None) => (b, a),
        (None, None) => return Err(Miss::Other),
    };
    let Some((eps, x, weight)) = norm(v) else {
        return Err(Miss::Other);
    };
    if g.ty(residual) != g.ty(x) {
        return near("what is added to the norm has another shape");
    }
    if only_user(g, v).is_none() {
        return near("the norm is used elsewhere too");
    }
    Ok((Op::NormAdd { eps }, [residual, x, weight]))
}
