//! Gated units out of an activation and a product. Joining the weights is shared with `merge_linear`.

use crate::merge_linear::{merge, mergeable};
use crate::pattern::{
    Match, Miss, binary, either, insert_before, is_output, is_square, last_slice, maker, mean_last, near, only_user,
    plus_scalar, result, rewrite_each, scalar, times_scalar, unary, users,
};
use crate::{Pass, Report, Result};
use cactus_ir::{Activation, BinaryFn, Dim, Graph, Node, NodeId, Op, UnaryFn, ValueId};

/// Finds `activation(gate) * up` (Shazeer 2020) where gate and up are linears of one operand, which become one linear,
/// or neighbouring slices of one value. A unit that cuts both is recognized as a whole, and so is one of the largest gates alone (You et al. 2025,
/// Spark).
#[derive(Debug)]
pub(crate) struct FuseGatedMlp;

impl Pass for FuseGatedMlp {
    fn name(&self) -> &'static str {
        "fuse_gated_mlp"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "gated unit"), find, |graph, id, found| {
            let gate_up = match found.parts {
                Parts::Linears(pair) => merge(graph, &pair)?,
                Parts::Slice { base, start, end } => {
                    let axis = graph.ty(base).shape.len() - 1;
                    let (start, end) = (Dim::known(start), Dim::known(end));
                    insert_before(graph, id, Op::Slice { axis, start, end }, &[base])?
                }
                Parts::Whole(base) => base,
            };
            let activation = found.activation;
            let op = Op::Gated {
                activation,
                above: found.above,
            };
            Ok(graph.replace(id, op, &[gate_up])?)
        })
    }
}

struct Found {
    activation: Activation,
    /// How many deviations above their mean gates count.
    above: Option<f32>,
    parts: Parts,
}

/// Where gate and up lie one after the other.
enum Parts {
    Linears([NodeId; 2]),
    Slice { base: ValueId, start: usize, end: usize },
    Whole(ValueId),
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let out = result(g, id);
    let pick = |a, up| Some((activated(g, a)?, a, up));
    let cut = || clamped(g, out).map(|(gate, up, active)| ((Activation::ClampedSwish, gate), active, up));
    let Some(((activation, active_of), active, up)) = either(g, out, BinaryFn::Mul, pick).or_else(cut) else {
        return Err(Miss::Other);
    };
    let (gate, above) = match few(g, active_of) {
        Some((gate, above)) => (gate, Some(above)),
        None => (active_of, None),
    };
    // The mean, and what is off it and above the least, read a gate of few.
    let readers = if above.is_some() { 3 } else { 1 };
    let is_own = |gate| users(g, gate).len() == readers && !is_output(g, gate) && only_user(g, active_of).is_some();
    if g.ty(gate) != g.ty(up) {
        return near("gate and up differ in shape");
    }
    let linear = |v: ValueId| g.producer(v).filter(|(_, n)| n.op == Op::Linear);
    if let (Some((a, gate_node)), Some((b, up_node))) = (linear(gate), linear(up)) {
        if gate_node.inputs[0] != up_node.inputs[0] {
            return near("gate and up are linear layers of different inputs");
        }
        if gate_node.inputs.len() != up_node.inputs.len() {
            return near("only one of gate and up has a bias");
        }
        if a == b || !is_own(gate) || only_user(g, up).is_none() || only_user(g, active).is_none() {
            return near("gate or up is used elsewhere too");
        }
        mergeable(g, a)?;
        mergeable(g, b)?;
        return Ok(Found {
            activation,
            above,
            parts: Parts::Linears([a, b]),
        });
    }
    let is_slice = |v: ValueId| {
        matches!(
            maker(g, v),
            Some(Node {
                op: Op::Slice { .. },
                ..
            })
        )
    };
    let (Some(first), Some(second)) = (last_slice(g, gate), last_slice(g, up)) else {
        return near("the last axis has no fixed size");
    };
    if !is_slice(gate) || !is_slice(up) || first.0 != second.0 {
        return near("gate and up are neither linear layers of one input nor slices of one value");
    }
    if first.2 != second.1 {
        return near("up does not follow directly after gate");
    }
    let (base, start, end) = (first.0, first.1, second.2);
    let whole = start == 0 && g.ty(base).last_known() == Some(end);
    let parts = if whole {
        Parts::Whole(base)
    } else {
        Parts::Slice { base, start, end }
    };
    Ok(Found {
        activation,
        above,
        parts,
    })
}

/// The activation and its operand, where `v` is one that a gated unit has.
fn activated(g: &Graph, v: ValueId) -> Option<(Activation, ValueId)> {
    let node = maker(g, v)?;
    let Op::Unary { f } = node.op else { return None };
    let activation = Activation::of_unary(f)?;
    Some((activation, node.inputs[0]))
}

/// The gate and the number, where `v` is by how much gates are more than that number of standard deviations above their mean, and 0 where
/// they are not.
fn few(g: &Graph, v: ValueId) -> Option<(ValueId, f32)> {
    let (x, least) = binary(g, unary(g, v, UnaryFn::Relu)?, BinaryFn::Sub)?;
    let above = either(g, least, BinaryFn::Add, |mean, margin| {
        let (deviation, above) = times_scalar(g, margin)?;
        let squared = mean_last(g, unary(g, deviation, UnaryFn::Sqrt)?)?;
        let off = maker(g, squared)?.inputs[0];
        let fits = mean_last(g, mean)? == x && is_square(g, squared, off);
        (fits && binary(g, off, BinaryFn::Sub)? == (x, mean)).then_some(above as f32)
    })?;
    Some((x, above))
}

/// `(gate, up, what gate is multiplied by)` where `v` is [`Activation::ClampedSwish`] of them.
fn clamped(g: &Graph, v: ValueId) -> Option<(ValueId, ValueId, ValueId)> {
    const MOST: f32 = 7.0;
    // One side of `f` where the other is this number.
    let beside = |v: ValueId, f: BinaryFn, number: f32| {
        let (a, b) = binary(g, v, f)?;
        match (scalar(g, a), scalar(g, b)) {
            (_, Some(n)) if n == number => Some(a),
            (Some(n), _) if n == number => Some(b),
            _ => None,
        }
    };
    either(g, v, BinaryFn::Mul, |unit, more| {
        let (up, one) = plus_scalar(g, more)?;
        let above = |v| beside(v, BinaryFn::Max, -MOST);
        let below = |v| beside(v, BinaryFn::Min, MOST);
        let up = above(up).and_then(below).or_else(|| below(up).and_then(above))?;
        let gate = either(g, unit, BinaryFn::Mul, |gate, share| {
            let (x, by) = times_scalar(g, unary(g, share, UnaryFn::Sigmoid)?)?;
            (x == gate && (by - 1.702).abs() < 1e-6).then_some(gate)
        })?;
        (one == 1.0).then_some((below(gate)?, up, unit))
    })
}
