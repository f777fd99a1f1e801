//! Normalizations.

use super::elementwise::one;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, Dim, Literal, Op, ReduceFn, UnaryFn, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("layer_norm", layer_norm),
    ("native_layer_norm", layer_norm),
    ("rms_norm", rms_norm),
    ("_fused_rms_norm", rms_norm),
    ("group_norm", |im, c| {
        let n = c.integer("num_groups", None)?;
        group_norm(im, c, n)
    }),
    ("native_group_norm", |im, c| {
        c.ignore(&["N", "C", "HxW"]);
        let n = c.integer("group", None)?;
        group_norm(im, c, n)
    }),
    ("instance_norm", instance_norm),
    ("_weight_norm", weight_norm),
    ("_weight_norm_interface", weight_norm),
    ("batch_norm", batch_norm),
    ("_native_batch_norm_legit_no_training", batch_norm),
    ("_native_batch_norm_legit.no_stats", |im, c| {
        c.ignore(&["training", "momentum"]);
        batch_statistics(im, c)
    }),
];

/// The operand with its last `n` axes as one, and the shape to go back to.
fn merged_last(im: &mut Importer<'_>, x: ValueId, n: usize) -> Result<(ValueId, Vec<Dim>, usize)> {
    let shape = im.shape(x);
    let Some(at) = shape.len().checked_sub(n).filter(|_| n > 0) else {
        return unsupported("a norm over more axes than there are");
    };
    let width: Option<usize> = shape[at..].iter().map(Dim::as_known).product();
    let Some(width) = width else {
        return unsupported("a norm over axes that vary");
    };
    let flat = [shape[..at].to_vec(), vec![Dim::known(width)]].concat();
    Ok((im.reshape(x, flat)?, shape, width))
}

fn vector(im: &mut Importer<'_>, v: Option<ValueId>, width: usize, default: f32) -> Result<ValueId> {
    match v {
        Some(v) => im.reshape(v, vec![Dim::known(width)]),
        None if width <= Literal::MAX_ELEMS => {
            let literal = Literal::F32(vec![default; width]);
            im.b.literal(&[width], literal).map_err(invalid)
        }
        None => unsupported("a norm of this width without a weight"),
    }
}

fn layer_norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("input")?;
    let n = call.sizes("normalized_shape")?.unwrap_or_default().len();
    let (weight, bias) = (call.optional("weight")?, call.optional("bias")?);
    let eps = call.float("eps", Some(1e-5))? as f32;
    let (flat, shape, width) = merged_last(im, x, n)?;
    let mut inputs = vec![flat, vector(im, weight, width, 1.0)?];
    if let Some(bias) = bias {
        inputs.push(vector(im, Some(bias), width, 0.0)?);
    }
    let y = im.op(Op::LayerNorm { eps }, &inputs)?;
    one(im.reshape(y, shape))
}

fn rms_norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("input")?;
    let n = call.sizes("normalized_shape")?.unwrap_or_default().len();
    let weight = call.optional("weight")?;
    // Torch's default is the smallest step of the element type.
    let eps = call.float("eps", Some(f64::from(f32::EPSILON)))? as f32;
    let (flat, shape, width) = merged_last(im, x, n)?;
    let weight = vector(im, weight, width, 1.0)?;
    let y = im.op(Op::RmsNorm { eps }, &[flat, weight])?;
    one(im.reshape(y, shape))
}

/// `(x - mean) / sqrt(variance + eps)` over axes.
fn standardized(im: &mut Importer<'_>, x: ValueId, axes: &[usize], eps: f64) -> Result<ValueId> {
    let mean = im.reduce(ReduceFn::Mean, x, axes, true)?;
    let centered = im.binary(BinaryFn::Sub, x, mean)?;
    let square = im.binary(BinaryFn::Mul, centered, centered)?;
    let variance = im.reduce(ReduceFn::Mean, square, axes, true)?;
    let eps = im.scalar(eps)?;
    let variance = im.binary(BinaryFn::Add, variance, eps)?;
    let inverse = im.unary(UnaryFn::Rsqrt, variance)?;
    im.binary(BinaryFn::Mul, centered, inverse)
}

/// A vector of channels against `[batch, channels, …]`.
fn per_channel(im: &mut Importer<'_>, v: ValueId, rank: usize) -> Result<ValueId> {
    let mut shape = vec![Dim::known(1); rank.saturating_sub(1).max(1)];
    shape[0] = im.shape(v).first().cloned().unwrap_or_else(|| Dim::known(1));
    im.reshape(v, shape)
}

fn affine(im: &mut Importer<'_>, mut x: ValueId, weight: Option<ValueId>, bias: Option<ValueId>) -> Result<ValueId> {
    let rank = im.rank(x);
    for (v, f) in [(weight, BinaryFn::Mul), (bias, BinaryFn::Add)] {
        if let Some(v) = v {
            let v = per_channel(im, v, rank)?;
            x = im.binary(f, x, v)?;
        }
    }
    Ok(x)
}

fn group_norm(im: &mut Importer<'_>, call: &Call, groups: i64) -> Result<Vec<ValueId>> {
    let x = call.tensor("input")?;
    let (weight, bias) = (call.optional("weight")?, call.optional("bias")?);
    let eps = call.float("eps", Some(1e-5))?;
    let shape = im.shape(x);
    let (groups, channels) = (
        usize::try_from(groups).unwrap_or(0),
        shape.get(1).and_then(Dim::as_known),
    );
    let Some(each) = channels.filter(|c| groups > 0 && c % groups == 0).map(|c| c / groups) else {
        return unsupported("groups that do not divide the channels");
    };
    let mut split = shape.clone();
    split.splice(1..2, [Dim::known(groups), Dim::known(each)]);
    let y = im.reshape(x, split)?;
    let axes: Vec<usize> = (2..im.rank(y)).collect();
    let y = standardized(im, y, &axes, eps)?;
    let y = im.reshape(y, shape)?;
    one(affine(im, y, weight, bias))
}

fn instance_norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["running_mean", "running_var", "momentum"]);
    if !call.flag("use_input_stats", true)? {
        return batch_norm(im, call);
    }
    let x = call.tensor("input")?;
    let axes: Vec<usize> = (2..im.rank(x)).collect();
    let y = standardized(im, x, &axes, call.float("eps", Some(1e-5))?)?;
    one(affine(im, y, call.optional("weight")?, call.optional("bias")?))
}

/// With fixed statistics: a scale and a shift for each channel, both of weights alone, so conversion computes them.
fn batch_norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["momentum"]);
    let x = call.tensor("input")?;
    let (weight, bias) = (call.optional("weight")?, call.optional("bias")?);
    let statistics = (call.optional("running_mean")?, call.optional("running_var")?);
    let (mean, variance) = match (statistics, call.flag("training", false)?) {
        ((Some(mean), Some(variance)), false) => (mean, variance),
        ((None, None), _) => return batch_statistics(im, call),
        _ => return unsupported("batch norm in training mode; call eval() on the module first"),
    };
    let eps = im.scalar(call.float("eps", Some(1e-5))?)?;
    let variance = im.binary(BinaryFn::Add, variance, eps)?;
    let mut scale = im.unary(UnaryFn::Rsqrt, variance)?;
    if let Some(weight) = weight {
        scale = im.binary(BinaryFn::Mul, scale, weight)?;
    }
    let moved = im.binary(BinaryFn::Mul, mean, scale)?;
    let shift = match bias {
        Some(bias) => im.binary(BinaryFn::Sub, bias, moved)?,
        None => im.unary(UnaryFn::Neg, moved)?,
    };
    one(affine(im, x, Some(scale), Some(shift)))
}

/// With the statistics of the operand itself, over all but the channels: of weights, which some models standardize this way.
fn batch_statistics(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("input")?;
    let (weight, bias) = (call.optional("weight")?, call.optional("bias")?);
    let axes: Vec<usize> = (0..im.rank(x)).filter(|&axis| axis != 1).collect();
    let y = standardized(im, x, &axes, call.float("eps", Some(1e-5))?)?;
    one(affine(im, y, weight, bias))
}

/// `g · v / ‖v‖`, the norm over every axis but one: weights only, so it is computed ahead.
fn weight_norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (v, g) = (call.tensor("v")?, call.tensor("g")?);
    let rank = im.rank(v);
    let kept = im.axis(call.integer("dim", Some(0))?, rank)?;
    let axes: Vec<usize> = (0..rank).filter(|&a| a != kept).collect();
    let square = im.binary(BinaryFn::Mul, v, v)?;
    let sum = im.reduce(ReduceFn::Sum, square, &axes, true)?;
    let norm = im.unary(UnaryFn::Sqrt, sum)?;
    let unit = im.binary(BinaryFn::Div, v, norm)?;
    one(im.binary(BinaryFn::Mul, unit, g))
}
