use crate::fuse_rms_norm::{InverseRoot, inverse_root};
use crate::pattern::{
    Match, Miss, binary, either, is_output, is_square, mean_last, near, only_user, place, place_of, result, users,
    vector,
};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Graph, NodeId, Op, ValueId};

/// Finds `(x - mean(x)) * rsqrt(mean((x - mean(x))²) + eps) * weight (+ bias)`, also as a quotient by the root.
#[derive(Debug)]
pub(crate) struct FuseLayerNorm;

impl Pass for FuseLayerNorm {
    fn name(&self) -> &'static str {
        "fuse_layer_norm"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let Some(inverse) = inverse_root(graph, id) else {
                continue;
            };
            let path = place_of(graph, id);
            match find(graph, &inverse) {
                Ok((root, inputs)) => {
                    graph.replace(root, Op::LayerNorm { eps: inverse.eps }, &inputs)?;
                    report.fired(self.name(), &path, "layer_norm");
                }
                Err(Miss::Near(why)) => report.missed(self.name(), &path, why),
                Err(Miss::Other) => {}
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// The last node of the pattern, and `x`, weight and perhaps bias.
fn find(g: &Graph, inverse: &InverseRoot) -> Match<(NodeId, Vec<ValueId>)> {
    let centered = mean_last(g, inverse.mean)
        .and_then(|square| {
            let (c, _) = binary(g, square, BinaryFn::Mul).or_else(|| binary(g, square, BinaryFn::Pow))?;
            is_square(g, square, c).then_some(c)
        })
        .ok_or(Miss::Other)?;
    let x = binary(g, centered, BinaryFn::Sub)
        .and_then(|(x, mean)| (mean_last(g, mean)? == x).then_some(x))
        .ok_or(Miss::Other)?;
    let Some(width) = g.ty(x).last_known() else {
        return near("the last axis has no fixed size");
    };
    let [scaling] = users(g, inverse.value)[..] else {
        return near("the reciprocal root is used elsewhere too");
    };
    if inverse.scaled_by(g, scaling) != Some(centered) {
        return near(format!("{} does not scale the centered value", place(g.node(scaling))));
    }
    let normed = result(g, scaling);
    let with_vector = |v: ValueId, f: BinaryFn| {
        let user = only_user(g, v)?;
        let w = either(g, result(g, user), f, |y, w| {
            (y == v).then(|| vector(g, w, width)).flatten()
        })?;
        (g.ty(result(g, user)) == g.ty(x)).then_some((user, w))
    };
    let Some((root, weight)) = with_vector(normed, BinaryFn::Mul) else {
        let why = if is_output(g, normed) {
            "is an output"
        } else {
            "is not scaled by a weight"
        };
        return near(format!("the normed value {why}"));
    };
    Ok(match with_vector(result(g, root), BinaryFn::Add) {
        Some((root, bias)) => (root, vec![x, weight, bias]),
        None => (root, vec![x, weight]),
    })
}
