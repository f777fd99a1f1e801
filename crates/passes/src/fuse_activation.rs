//! Functions of one operand that are written out become one operation each. What they are computed with is left to the runtime.

use crate::pattern::{binary, either, only_user, place_of, plus_scalar, result, scalar, times_scalar, unary};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Graph, NodeId, Op, UnaryFn, ValueId};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// Finds functions that are written out: GELU (Hendrycks and Gimpel 2016), `x/2 * (1 + erf(x/√2))` and its approximation
/// `x/2 * (1 + tanh(√(2/π) * (x + 0.044715 x³)))`, and what stands for the logistic function and SiLU in MobileNetV3 (Howard et al. 2019),
/// `min(max(x + 3, 0), 6) / 6` and `x` times that.
#[derive(Debug)]
pub(crate) struct FuseActivation;

impl Pass for FuseActivation {
    fn name(&self) -> &'static str {
        "fuse_activation"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let Some((f, x)) = argument(graph, id) else { continue };
            let path = place_of(graph, id);
            let Some(root) = half_of_x_times_one_plus(graph, result(graph, id), x) else {
                report.missed(self.name(), &path, "the value is not used as x/2 * (1 + value)");
                continue;
            };
            graph.replace(root, Op::Unary { f }, &[x])?;
            report.fired(self.name(), &path, "gelu");
        }
        for id in graph.order().to_vec() {
            if let Some((f, x)) = hard(graph, result(graph, id)) {
                let path = place_of(graph, id);
                graph.replace(id, Op::Unary { f }, &[x])?;
                report.fired(
                    self.name(),
                    &path,
                    if f == UnaryFn::HardSwish {
                        "hard_swish"
                    } else {
                        "hard_sigmoid"
                    },
                );
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// The function and its `x`, where `v` is hard sigmoid or hard swish of it, whatever is divided by six.
fn hard(g: &Graph, v: ValueId) -> Option<(UnaryFn, ValueId)> {
    let same = |x: &ValueId| g.ty(*x) == g.ty(v);
    let sixth = |v| times_scalar(g, v).filter(|(_, c)| is(*c, 1.0 / 6.0)).map(|(of, _)| of);
    let by = |v, inner: &dyn Fn(ValueId) -> Option<ValueId>| {
        either(g, v, BinaryFn::Mul, |x, y| inner(y).filter(|&of| of == x))
    };
    let sigmoid = |v| {
        sixth(v)
            .and_then(|v| shifted_within_six(g, v))
            .or_else(|| unary(g, v, UnaryFn::HardSigmoid))
    };
    let swish = by(v, &sigmoid).or_else(|| by(sixth(v)?, &|v| shifted_within_six(g, v)));
    if let Some(x) = swish.filter(same) {
        return Some((UnaryFn::HardSwish, x));
    }
    let x = shifted_within_six(g, sixth(v)?).filter(same)?;
    Some((UnaryFn::HardSigmoid, x))
}

/// `x`, where `v` is `min(max(x + 3, 0), 6)`.
fn shifted_within_six(g: &Graph, v: ValueId) -> Option<ValueId> {
    let with = |v, f, c| either(g, v, f, |x, y| (scalar(g, y) == Some(c)).then_some(x));
    let shifted = with(with(v, BinaryFn::Min, 6.0)?, BinaryFn::Max, 0.0)?;
    plus_scalar(g, shifted).filter(|(_, c)| *c == 3.0).map(|(x, _)| x)
}

/// Constants are written with anything from six digits up.
fn is(c: f64, want: f64) -> bool {
    (c - want).abs() <= 1e-5 * want.abs()
}

/// The function and its `x`, where the node is the error function or hyperbolic tangent inside.
fn argument(g: &Graph, id: NodeId) -> Option<(UnaryFn, ValueId)> {
    let node = g.node(id);
    let (inner, c) = times_scalar(g, *node.inputs.first()?)?;
    match node.op {
        Op::Unary { f: UnaryFn::Erf } => is(c, FRAC_1_SQRT_2).then_some((UnaryFn::GeluErf, inner)),
        Op::Unary { f: UnaryFn::Tanh } if is(c, FRAC_2_PI.sqrt()) => either(g, inner, BinaryFn::Add, |x, y| {
            let (cube, c) = times_scalar(g, y)?;
            (is(c, 0.044715) && is_cube(g, cube, x)).then_some((UnaryFn::GeluTanh, x))
        }),
        _ => None,
    }
}

fn is_cube(g: &Graph, v: ValueId, x: ValueId) -> bool {
    let product = either(g, v, BinaryFn::Mul, |a, b| {
        (a == x && binary(g, b, BinaryFn::Mul) == Some((x, x))).then_some(())
    });
    let power = binary(g, v, BinaryFn::Pow).filter(|&(a, e)| a == x && scalar(g, e) == Some(3.0));
    product.is_some() || power.is_some()
}

/// The node that gives `x/2 * (1 + v)`, whatever the order of factors.
fn half_of_x_times_one_plus(g: &Graph, v: ValueId, x: ValueId) -> Option<NodeId> {
    let sum = only_user(g, v)?;
    let mut at = result(g, sum);
    if plus_scalar(g, at) != Some((v, 1.0)) {
        return None;
    }
    let (mut factor, mut has_x) = (1.0, false);
    loop {
        let user = only_user(g, at)?;
        let out = result(g, user);
        let (c, by_x) = either(g, out, BinaryFn::Mul, |y, by| {
            let times_x = |by| {
                if by == x {
                    Some(1.0)
                } else {
                    times_scalar(g, by).filter(|t| t.0 == x).map(|t| t.1)
                }
            };
            if y != at {
                None
            } else if let Some(c) = scalar(g, by) {
                Some((f64::from(c), false))
            } else {
                Some((times_x(by)?, true))
            }
        })?;
        if by_x && has_x {
            return None;
        }
        factor *= c;
        has_x |= by_x;
        at = out;
        if has_x && is(factor, 0.5) {
            return (g.ty(at) == g.ty(x)).then_some(user);
        }
    }
}
