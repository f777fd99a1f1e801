//! A norm with a number that it is multiplied by. What a norm is was found before.

use crate::pattern::{Match, Miss, free_name, maker, near, only_user, result, rewrite_each, times_scalar};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Graph, Literal, NodeId, Op, ValueId, WeightExpr};

/// Finds `rms_norm(x) * number`, and leaves the number to the norm's weight where that changes no bit: it is a power of two.
#[derive(Debug)]
pub(crate) struct FuseNormScale;

impl Pass for FuseNormScale {
    fn name(&self) -> &'static str {
        "fuse_norm_scale"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "scaled norm"), find, |graph, id, found| {
            let Found { eps, x, weight, factor } = found;
            let value = graph.value(weight).clone();
            let weight = match value.def {
                Def::Weight(expr) => {
                    let x = Box::new(expr);
                    let expr = WeightExpr::MulScalar { x, value: factor };
                    // Norms that share a weight share the scaled one.
                    match graph.weights().into_iter().find(|(_, known)| **known == expr) {
                        Some((known, _)) => known,
                        None => {
                            let name = match only_user(graph, weight) {
                                Some(_) => value.name,
                                None => free_name(graph, &format!("{}.times", value.name)),
                            };
                            graph.add_weight(name, value.ty, expr)
                        }
                    }
                }
                Def::Literal(Literal::F32(numbers)) => {
                    let numbers: Vec<f32> = numbers.iter().map(|n| n * factor).collect();
                    graph.add_literal(&[numbers.len()], Literal::F32(numbers))?
                }
                _ => return Ok(()),
            };
            Ok(graph.replace(id, Op::RmsNorm { eps }, &[x, weight])?)
        })
    }
}

struct Found {
    eps: f32,
    x: ValueId,
    weight: ValueId,
    factor: f32,
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let Some((normed, factor)) = times_scalar(g, result(g, id)) else {
        return Err(Miss::Other);
    };
    let Some(norm) = maker(g, normed) else {
        return Err(Miss::Other);
    };
    let (&Op::RmsNorm { eps }, &[x, weight]) = (&norm.op, &norm.inputs[..]) else {
        return Err(Miss::Other);
    };
    let factor = factor as f32;
    if !is_power_of_two(factor) {
        return near(format!(
            "{factor} is no power of two, so the result would round in another way"
        ));
    }
    if only_user(g, normed).is_none() {
        return near("the norm is used elsewhere too");
    }
    if !matches!(g.value(weight).def, Def::Weight(_) | Def::Literal(Literal::F32(_))) {
        return near("the weight of the norm is computed");
    }
    Ok(Found { eps, x, weight, factor })
}

/// Whether a product with `x` only changes exponents, of numbers that are neither very small nor very large.
fn is_power_of_two(x: f32) -> bool {
    const MANTISSA: u32 = (1 << 23) - 1;
    x.is_normal() && x > 0.0 && x.to_bits() & MANTISSA == 0 && (2f32.powi(-24)..=2f32.powi(24)).contains(&x)
}
