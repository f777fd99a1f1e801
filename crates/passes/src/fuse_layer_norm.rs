use crate::fuse_rms_norm::{InverseRoot, inverse_root};
use crate::pattern::{
    Match, Miss, binary, either, is_output, is_square, maker, mean_last, near, only_user, place, place_of, result,
    users, vector,
};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Def, Graph, Node, NodeId, Op, ValueId};

/// Finds `(x - mean(x)) * rsqrt(mean((x - mean(x))²) + eps) * weight (+ bias)`, also as a quotient by the root. Weight and bias are those of all
/// heads, or each head has its own.
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
            let found = || vector(g, w, width).or_else(|| of_heads(g, w, x));
            (y == v).then(found).flatten()
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
        Some((root, bias)) if g.ty(bias) == g.ty(weight) => (root, vec![x, weight, bias]),
        _ => (root, vec![x, weight]),
    })
}

/// The weight `[heads, n]` behind `v`, which may carry leading axes of size 1, where `x` is `[…, heads, n]`.
fn of_heads(g: &Graph, mut v: ValueId, x: ValueId) -> Option<ValueId> {
    let heads = g.ty(x).shape.split_at_checked(g.ty(x).shape.len().checked_sub(2)?)?.1;
    while let Some(Node {
        op: Op::Reshape { .. },
        inputs,
        ..
    }) = maker(g, v)
    {
        let (leading, last) = g.ty(v).shape.split_at_checked(g.ty(v).shape.len().checked_sub(2)?)?;
        (last == heads && leading.iter().all(|d| d.is(1))).then_some(())?;
        v = inputs[0];
    }
    (g.ty(v).shape == heads && matches!(g.value(v).def, Def::Weight(_))).then_some(v)
}
