//! Convolutions with what follows them channel by channel: a batch norm that has learned its statistics is a factor and a
//! summand for each channel, which conversion puts into the weights.

use crate::pattern::{Match, Miss, binary, describe, free_name, near, only_user, result, rewrite_each, strip};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Def, Graph, NodeId, Op, TensorType, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Finds `conv(x, w) * scale` and `conv(x, w) + shift` with weights of one number for each channel, and makes them
/// `conv(x, w * scale)` and `conv(x, w, shift)`: two passes over the result that are not made.
#[derive(Debug)]
pub(crate) struct FuseConvNorm;

/// What becomes of a product or sum behind a convolution.
struct Found {
    conv: NodeId,
    f: BinaryFn,
    /// The weight with one number for each channel, in whatever shape.
    by: ValueId,
}

impl Pass for FuseConvNorm {
    fn name(&self) -> &'static str {
        "fuse_conv_norm"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "conv"), find, rewrite)
    }
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let v = result(g, id);
    let operands = [BinaryFn::Mul, BinaryFn::Add]
        .into_iter()
        .find_map(|f| Some((f, binary(g, v, f)?)));
    let Some((f, (a, b))) = operands else {
        return Err(Miss::Other);
    };
    let conv = |v: ValueId| {
        let (id, node) = g.producer(v)?;
        matches!(node.op, Op::Conv(_) | Op::Conv1d { .. }).then_some(id)
    };
    let (made, conv, by) = match (conv(a), conv(b)) {
        (Some(id), None) => (a, id, b),
        (None, Some(id)) => (b, id, a),
        _ => return Err(Miss::Other),
    };
    let weight = strip(g, by);
    if !matches!(g.value(weight).def, Def::Weight(_)) {
        return Err(Miss::Other);
    }
    if !one_for_each_channel(g.ty(by), g.ty(made)) || g.ty(v) != g.ty(made) {
        return near(format!("{} is not one number for each channel", describe(g, by)));
    }
    if only_user(g, made).is_none() {
        return near("the convolution is used elsewhere too");
    }
    let node = g.node(conv);
    // A sum leaves the weight as it is.
    let changed = if f == BinaryFn::Mul {
        &node.inputs[1..]
    } else {
        &node.inputs[2..]
    };
    for &weight in changed {
        if !matches!(g.value(weight).def, Def::Weight(_)) {
            return near(format!("{} is computed", describe(g, weight)));
        }
        if only_user(g, weight).is_none() {
            return near(format!("{} is used elsewhere too", describe(g, weight)));
        }
    }
    Ok(Found { conv, f, by: weight })
}

/// Whether `ty` broadcasts along axis 1 of a convolution's result, and along that alone.
fn one_for_each_channel(ty: &TensorType, out: &TensorType) -> bool {
    let missing = out.shape.len().saturating_sub(ty.shape.len());
    let mut axes = ty.shape.iter().enumerate();
    missing <= 1
        && ty.dtype == DType::F32
        && axes.all(|(i, dim)| {
            if i + missing == 1 {
                *dim == out.shape[1]
            } else {
                dim.is(1)
            }
        })
}

fn rewrite(g: &mut Graph, id: NodeId, found: Found) -> Result<()> {
    let node = g.node(found.conv);
    let (op, mut inputs) = (node.op.clone(), node.inputs.clone());
    let channels = g.ty(inputs[1]).shape[0].as_known().unwrap_or(0);
    let rank = g.ty(inputs[1]).shape.len();
    let by = |shape: Vec<usize>| WeightExpr::Reshape {
        x: Box::new(expr_of(g, found.by)),
        shape,
    };
    let mut along_weight = vec![1; rank];
    along_weight[0] = channels;
    let (along_weight, along_bias) = (by(along_weight), by(vec![channels]));
    if found.f == BinaryFn::Mul {
        inputs[1] = changed(g, inputs[1], BinaryFn::Mul, along_weight);
    }
    match inputs.get(2).copied() {
        Some(bias) => inputs[2] = changed(g, bias, found.f, along_bias),
        None if found.f == BinaryFn::Add => {
            let base = &g.value(found.by).name;
            let name = match only_user(g, found.by) {
                Some(_) => base.clone(),
                None => free_name(g, &format!("{base}.bias")),
            };
            let ty = TensorType::new(DType::F32, vec![channels.into()]);
            inputs.push(g.add_weight(name, ty, along_bias));
        }
        None => {}
    }
    g.replace(id, op, &inputs)?;
    Ok(())
}

fn expr_of(g: &Graph, v: ValueId) -> WeightExpr {
    match &g.value(v).def {
        Def::Weight(expr) => expr.clone(),
        _ => unreachable!("`find` takes weights alone"),
    }
}

/// The weight that `f` of `weight` and `by` is, under the name of `weight`, which nobody else reads.
fn changed(g: &mut Graph, weight: ValueId, f: BinaryFn, by: WeightExpr) -> ValueId {
    let (x, y) = (Box::new(expr_of(g, weight)), Box::new(by));
    let expr = match f {
        BinaryFn::Mul => WeightExpr::Mul { x, y },
        _ => WeightExpr::Add { x, y },
    };
    let name = g.value(weight).name.clone();
    g.add_weight(name, g.ty(weight).clone(), expr)
}
