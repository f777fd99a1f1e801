//! A router and the experts that it chooses. The experts were found before, whatever chose them.

use crate::fuse_experts::never_negative;
use crate::pattern::{Match, Miss, binary, describe, either, maker, near, plus_scalar, rewrite_each, strip, sum_last};
use crate::{Pass, Report, Result};
use cactus_ir::{Activation, BinaryFn, Dim, Graph, Node, NodeId, Op, Route, RouteFn, UnaryFn, ValueId};

/// Finds the usual ways of choosing experts: the largest of the softmax or of the logistic function of scores, perhaps with
/// a bias that only ranks; shares as they are or normalized, perhaps with a factor for each expert. One pass over the
/// scores of a row instead of one for each step, and nothing is sorted.
#[derive(Debug)]
pub(crate) struct FuseRouter;

impl Pass for FuseRouter {
    fn name(&self) -> &'static str {
        "fuse_router"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "routed experts"),
            find,
            |graph, id, found| {
                let Found {
                    activation,
                    route,
                    inputs,
                } = found;
                Ok(graph.replace(id, Op::RoutedExperts { activation, route }, &inputs)?)
            },
        )
    }
}

struct Found {
    activation: Activation,
    route: Route,
    inputs: Vec<ValueId>,
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let node = g.node(id);
    let (&Op::Experts { activation }, &[x, ids, shares, gate_up, down, ref biases @ ..]) = (&node.op, &node.inputs[..])
    else {
        return Err(Miss::Other);
    };
    let Some((ranked, chosen)) = largest(g, strip(g, ids)) else {
        return near(format!("{} does not choose the largest", describe(g, ids)));
    };
    let experts = g.ty(ranked).last_known().unwrap_or(0);
    let same_ids = |v: ValueId| strip(g, never_negative(g, strip(g, v), experts)) == strip(g, ids);

    // From the shares back to what the scores became: factor, normalization, choice.
    let mut at = strip(g, shares);
    let factor = either(g, at, BinaryFn::Mul, |rest, factor| match maker(g, strip(g, factor))? {
        Node {
            op: Op::Take { axis: 0 },
            inputs,
            ..
        } => {
            let per_expert = g.ty(inputs[0]).shape[..] == [Dim::known(experts)];
            (per_expert && same_ids(inputs[1])).then_some((rest, inputs[0]))
        }
        _ => None,
    });
    if let Some((rest, _)) = factor {
        at = strip(g, rest);
    }
    let mut normalize = None;
    if let Some((rest, epsilon)) = normalized(g, at) {
        (at, normalize) = (rest, Some(epsilon));
    }
    let made = maker(g, at);
    let Some(Node {
        op: Op::Gather { axis },
        inputs: gathered,
        ..
    }) = made
    else {
        return near(format!("the weights of the experts come from {}", describe(g, at)));
    };
    if axis + 1 != g.ty(at).shape.len() || !same_ids(gathered[1]) {
        return near("the weights are not those of the chosen experts");
    }
    let p = strip(g, gathered[0]);
    let (f, scores) = match maker(g, p) {
        Some(Node {
            op: Op::Softmax { axis },
            inputs,
            ..
        }) if axis + 1 == g.ty(p).shape.len() => (RouteFn::Softmax, inputs[0]),
        Some(Node {
            op: Op::Unary { f: UnaryFn::Sigmoid },
            inputs,
            ..
        }) => (RouteFn::Sigmoid, inputs[0]),
        _ => return near(format!("scores become weights by {}", describe(g, p))),
    };
    let bias = match strip(g, ranked) == p {
        true => None,
        false => {
            let added = either(g, ranked, BinaryFn::Add, |rest, bias| {
                let vector = g.ty(bias).shape[..] == [Dim::known(experts)];
                (strip(g, rest) == p && vector).then_some(bias)
            });
            match added {
                Some(bias) => Some(bias),
                None => return near(format!("experts are ranked by {}", describe(g, ranked))),
            }
        }
    };
    if g.ty(scores).shape != g.ty(p).shape || leading(g, scores) != leading(g, x) {
        return near("scores and rows belong to different positions");
    }
    let route = Route {
        f,
        chosen,
        normalize,
        bias: bias.is_some(),
        factor: factor.is_some(),
        biases: !biases.is_empty(),
    };
    let mut inputs = vec![x, scores, gate_up, down];
    inputs.extend(bias);
    inputs.extend(factor.map(|(_, factor)| factor));
    inputs.extend(biases);
    Ok(Found {
        activation,
        route,
        inputs,
    })
}

/// What `v` has the indices of the largest elements of, and how many.
fn largest(g: &Graph, v: ValueId) -> Option<(ValueId, usize)> {
    let last = g.ty(v).shape.len().checked_sub(1)?;
    let cut = maker(g, v)?;
    let (Op::Slice { axis, start, end }, &[sorted]) = (&cut.op, &cut.inputs[..]) else {
        return None;
    };
    let sort = maker(g, sorted)?;
    let (
        &Op::ArgSort {
            axis: along,
            descending: true,
        },
        &[ranked],
    ) = (&sort.op, &sort.inputs[..])
    else {
        return None;
    };
    let chosen = end.as_known().filter(|&n| n > 0)?;
    (*axis == last && along == last && start.is(0)).then_some((ranked, chosen))
}

/// `(shares, epsilon)` where `v` is `shares / (sum of the shares + epsilon)` along the last axis.
fn normalized(g: &Graph, v: ValueId) -> Option<(ValueId, f32)> {
    let (shares, by) = binary(g, v, BinaryFn::Div)?;
    let (sum, epsilon) = plus_scalar(g, by).unwrap_or((by, 0.0));
    (sum_last(g, sum)? == shares).then_some((shares, epsilon))
}

fn leading(g: &Graph, v: ValueId) -> Option<&[Dim]> {
    g.ty(v).shape.split_last().map(|(_, l)| l)
}
