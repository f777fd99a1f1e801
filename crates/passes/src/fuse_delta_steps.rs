//! The gated delta rule with what makes its decays and rates out of projections.

use crate::pattern::{
    Match, Miss, describe, either, insert_before, maker, near, only_user, rewrite_each, unary, vector,
};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Def, Graph, NodeId, Op, UnaryFn, ValueId};

/// Finds the decays `exp(speed * softplus(step + bias))` and the rates `sigmoid(rate)` of the gated delta rule (Yang et al. 2024), and leaves
/// both to it. A linear that gives the steps and has the bias loses it, so that `merge_linear` finds it among the other projections.
#[derive(Debug)]
pub(crate) struct FuseDeltaSteps;

impl Pass for FuseDeltaSteps {
    fn name(&self) -> &'static str {
        "fuse_delta_steps"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(
            graph,
            report,
            (self.name(), "gated_delta of steps"),
            find,
            |graph, id, found| {
                let step = match found.step {
                    Step::Value(v) => v,
                    Step::Linear(x, w) => insert_before(graph, id, Op::Linear, &[x, w])?,
                };
                let node = graph.node(id);
                let state = node.op.state().map(str::to_owned);
                let [q, k, v] = [node.inputs[0], node.inputs[1], node.inputs[2]];
                let op = Op::GatedDelta { steps: true, state };
                let inputs = [q, k, v, step, found.rate, found.speed, found.bias];
                Ok(graph.replace(id, op, &inputs)?)
            },
        )
    }
}

struct Found {
    step: Step,
    rate: ValueId,
    speed: ValueId,
    bias: ValueId,
}

/// What the bias is added to.
enum Step {
    Value(ValueId),
    /// The product of two.
    Linear(ValueId, ValueId),
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let node = g.node(id);
    let (Op::GatedDelta { steps: false, .. }, &[_, _, v, decay, rate]) = (&node.op, &node.inputs[..]) else {
        return Err(Miss::Other);
    };
    let Some(heads) = g.ty(v).shape[2].as_known() else {
        return Err(Miss::Other);
    };
    let constant = |v: ValueId| {
        let v = vector(g, v, heads)?;
        matches!(g.value(v).def, Def::Weight(_) | Def::Literal(_)).then_some(v)
    };
    let Some(exponent) = unary(g, decay, UnaryFn::Exp) else {
        return near(format!("the decay is {}", describe(g, decay)));
    };
    let scaled = either(g, exponent, BinaryFn::Mul, |speed, y| {
        Some((constant(speed)?, unary(g, y, UnaryFn::Softplus)?))
    });
    let Some((speed, sum)) = scaled else {
        return near("the logarithm of the decay is no softplus times a number for each head");
    };
    let Some(rate) = unary(g, rate, UnaryFn::Sigmoid) else {
        return near(format!("the rate is {}", describe(g, rate)));
    };
    let added = match maker(g, sum) {
        Some(linear) if linear.op == Op::Linear && only_user(g, sum).is_some() => match linear.inputs[..] {
            [x, w, bias] => constant(bias).map(|bias| (Step::Linear(x, w), bias)),
            _ => None,
        },
        _ => either(g, sum, BinaryFn::Add, |step, bias| {
            Some((Step::Value(step), constant(bias)?))
        }),
    };
    let Some((step, bias)) = added else {
        return near("the steps have no bias for each head");
    };
    let shape_of = |v: ValueId| &g.ty(v).shape;
    let of_step = match step {
        Step::Value(step) => shape_of(step),
        Step::Linear(..) => shape_of(sum),
    };
    if of_step != shape_of(decay) || shape_of(rate) != shape_of(decay) {
        return near("steps and rates are not one for each head");
    }
    Ok(Found {
        step,
        rate,
        speed,
        bias,
    })
}
