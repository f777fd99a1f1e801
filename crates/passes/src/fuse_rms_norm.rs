//! RMS norms out of their parts. `fuse_layer_norm`, which runs first, starts from the same inverse root.

use crate::pattern::{
    Match, Miss, binary, describe, either, is_output, is_square, mean_last, near, only_user, place_of, plus_scalar,
    result, sum_last, times_scalar, users, vector,
};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Graph, Literal, Node, NodeId, Op, UnaryFn, ValueId};

/// Finds `x * rsqrt(mean(x²) + eps) * weight`, whatever the order of factors, also as a quotient by the root, and vectors of
/// length 1, `x * rsqrt(sum(x²) + eps)`.
#[derive(Debug)]
pub(crate) struct FuseRmsNorm;

impl Pass for FuseRmsNorm {
    fn name(&self) -> &'static str {
        "fuse_rms_norm"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let Some(inverse) = inverse_root(graph, id) else {
                continue;
            };
            let path = place_of(graph, id);
            match find(graph, &inverse) {
                Ok(Found { x, eps, roots }) => {
                    for (root, weight) in roots {
                        let weight = match weight {
                            Weight::Value(w) => w,
                            Weight::Fill(n, c) => graph.add_literal(&[n], Literal::F32(vec![c; n]))?,
                        };
                        graph.replace(root, Op::RmsNorm { eps }, &[x, weight])?;
                        report.fired(self.name(), &path, "rms_norm");
                    }
                }
                Err(Miss::Near(why)) => report.missed(self.name(), &path, why),
                Err(Miss::Other) => {}
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// `rsqrt(mean + eps)`, or the `sqrt` of it that something is divided by.
#[derive(Debug)]
pub(crate) struct InverseRoot {
    /// The root.
    pub(crate) value: ValueId,
    /// What it is the inverse root of, less `eps`.
    pub(crate) mean: ValueId,
    pub(crate) eps: f32,
    divides: bool,
}

pub(crate) fn inverse_root(g: &Graph, id: NodeId) -> Option<InverseRoot> {
    let node = g.node(id);
    let divides = match node.op {
        Op::Unary { f: UnaryFn::Rsqrt } => false,
        Op::Unary { f: UnaryFn::Sqrt } => true,
        _ => return None,
    };
    let (mean, eps) = plus_scalar(g, node.inputs[0])?;
    Some(InverseRoot {
        value: node.outputs[0],
        mean,
        eps,
        divides,
    })
}

impl InverseRoot {
    /// The factor that this root scales, where node `id` does so.
    pub(crate) fn scaled_by(&self, g: &Graph, id: NodeId) -> Option<ValueId> {
        let out = result(g, id);
        match self.divides {
            true => binary(g, out, BinaryFn::Div).and_then(|(x, r)| (r == self.value).then_some(x)),
            false => either(g, out, BinaryFn::Mul, |x, r| (r == self.value).then_some(x)),
        }
    }
}

struct Found {
    x: ValueId,
    eps: f32,
    /// The last node of each norm with its weight; several norms may share the root.
    roots: Vec<(NodeId, Weight)>,
}

enum Weight {
    Value(ValueId),
    /// There is none: that many of one number.
    Fill(usize, f32),
}

fn find(g: &Graph, inverse: &InverseRoot) -> Match<Found> {
    let (square, is_mean) = match (mean_last(g, inverse.mean), sum_last(g, inverse.mean)) {
        (Some(square), _) => (square, true),
        (None, Some(square)) => (square, false),
        (None, None) => return Err(Miss::Other),
    };
    let base = match crate::pattern::maker(g, square) {
        Some(Node {
            op: Op::Binary {
                f: BinaryFn::Mul | BinaryFn::Pow,
            },
            inputs,
            ..
        }) => inputs[0],
        _ => return Err(Miss::Other),
    };
    if !is_square(g, square, base) {
        return Err(Miss::Other);
    }
    let Some(width) = g.ty(base).last_known() else {
        return near("the last axis has no fixed size");
    };
    let [scaling] = users(g, inverse.value)[..] else {
        return near("the reciprocal root is used elsewhere too");
    };
    let Some(x) = inverse.scaled_by(g, scaling) else {
        return near(format!(
            "{} does not scale by the root",
            crate::pattern::place(g.node(scaling))
        ));
    };
    if !is_mean {
        return unit(g, inverse, scaling, x, width)
            .filter(|_| x == base)
            .ok_or(Miss::Other);
    }
    let eps = inverse.eps;
    // The product with the weight before or after the one with the root.
    if x == base {
        let normed = result(g, scaling);
        let by_weight = |user: NodeId| {
            let out = result(g, user);
            let pick = |y, w| (y == normed).then(|| vector(g, w, width)).flatten();
            let w = either(g, out, BinaryFn::Mul, pick).filter(|_| g.ty(out) == g.ty(x))?;
            Some((user, Weight::Value(w)))
        };
        let readers = users(g, normed);
        let mut roots: Vec<_> = readers.iter().filter_map(|&user| by_weight(user)).collect();
        // Who else reads it wants it without a weight.
        if roots.len() < readers.len() || is_output(g, normed) {
            if width > Literal::MAX_ELEMS {
                return near("there is no weight, and the axis is too wide for a literal one");
            }
            roots.push((scaling, Weight::Fill(width, 1.0)));
        }
        return Ok(Found { x, eps, roots });
    }
    let weight = either(g, x, BinaryFn::Mul, |y, w| {
        (y == base).then(|| vector(g, w, width)).flatten()
    });
    match weight {
        Some(w) if g.ty(x) == g.ty(base) => Ok(Found {
            x: base,
            eps,
            roots: vec![(scaling, Weight::Value(w))],
        }),
        _ => near(format!("the root scales {}, not {}", describe(g, x), describe(g, base))),
    }
}

/// `x / sqrt(sum(x²) + eps)`, perhaps times a number: the norm of `n` elements with weights of `1/sqrt(n)`, since the sum is
/// `n` times the mean.
fn unit(g: &Graph, inverse: &InverseRoot, scaling: NodeId, x: ValueId, n: usize) -> Option<Found> {
    let scaled = only_user(g, result(g, scaling)).and_then(|user| {
        let (y, c) = times_scalar(g, result(g, user))?;
        (y == result(g, scaling)).then_some((user, c))
    });
    let (root, c) = scaled.unwrap_or((scaling, 1.0));
    let fill = (c / (n as f64).sqrt()) as f32;
    let fits = n > 0 && n <= Literal::MAX_ELEMS && g.ty(result(g, root)) == g.ty(x);
    fits.then(|| Found {
        x,
        eps: (f64::from(inverse.eps) / n as f64) as f32,
        roots: vec![(root, Weight::Fill(n, fill))],
    })
}
