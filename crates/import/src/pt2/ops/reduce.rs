//! Reductions, softmax, order.

use super::elementwise::{one, scaled};
use super::rearrange::with_mean;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, Dim, Op, ReduceFn, UnaryFn, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("mean.dim", |im, c| reduce(im, c, ReduceFn::Mean)),
    ("mean", |im, c| reduce(im, c, ReduceFn::Mean)),
    ("sum.dim_IntList", |im, c| reduce(im, c, ReduceFn::Sum)),
    ("sum", |im, c| reduce(im, c, ReduceFn::Sum)),
    ("prod.dim_int", |im, c| reduce(im, c, ReduceFn::Prod)),
    ("prod", |im, c| reduce(im, c, ReduceFn::Prod)),
    ("amax", |im, c| reduce(im, c, ReduceFn::Max)),
    ("amin", |im, c| reduce(im, c, ReduceFn::Min)),
    ("max", |im, c| reduce(im, c, ReduceFn::Max)),
    ("min", |im, c| reduce(im, c, ReduceFn::Min)),
    ("max.dim", |im, c| with_index(im, c, ReduceFn::Max)),
    ("min.dim", |im, c| with_index(im, c, ReduceFn::Min)),
    ("argmax", |im, c| arg(im, c, ReduceFn::Max)),
    ("argmin", |im, c| arg(im, c, ReduceFn::Min)),
    ("any", |im, c| quantified(im, c, ReduceFn::Max)),
    ("any.dim", |im, c| quantified(im, c, ReduceFn::Max)),
    ("any.dims", |im, c| quantified(im, c, ReduceFn::Max)),
    ("all", |im, c| quantified(im, c, ReduceFn::Min)),
    ("all.dim", |im, c| quantified(im, c, ReduceFn::Min)),
    ("all.dims", |im, c| quantified(im, c, ReduceFn::Min)),
    ("var.correction", |im, c| spread(im, c, false)),
    ("var.dim", |im, c| spread(im, c, false)),
    ("var", |im, c| spread(im, c, false)),
    ("std.correction", |im, c| spread(im, c, true)),
    ("std.dim", |im, c| spread(im, c, true)),
    ("std", |im, c| spread(im, c, true)),
    ("var_mean.correction", |im, c| {
        with_mean(im, c, |im, c| spread(im, c, false))
    }),
    ("var_mean.dim", |im, c| with_mean(im, c, |im, c| spread(im, c, false))),
    ("var_mean", |im, c| with_mean(im, c, |im, c| spread(im, c, false))),
    ("std_mean.correction", |im, c| {
        with_mean(im, c, |im, c| spread(im, c, true))
    }),
    ("std_mean.dim", |im, c| with_mean(im, c, |im, c| spread(im, c, true))),
    ("std_mean", |im, c| with_mean(im, c, |im, c| spread(im, c, true))),
    ("linalg_vector_norm", norm),
    ("norm.ScalarOpt_dim", norm),
    ("cumsum", |im, c| {
        let x = c.tensor("self")?;
        let x = as_number(im, c, x)?;
        let axis = im.axis(c.integer("dim", None)?, im.rank(x))?;
        one(im.op(Op::CumSum { axis }, &[x]))
    }),
    ("sort", sort),
    ("sort.stable", sort),
    ("argsort", |im, c| {
        let mut out = sort(im, c)?;
        Ok(vec![out.remove(1)])
    }),
    ("topk", topk),
    ("softmax.int", softmax),
    ("_softmax", softmax),
    ("log_softmax.int", log_softmax),
    ("_log_softmax", log_softmax),
    ("logsumexp", |im, c| {
        let x = c.tensor("self")?;
        let (axes, keep) = (im.axes(c, "dim", x)?, c.flag("keepdim", false)?);
        let sum = log_sum_exp(im, x, &axes)?;
        match keep {
            true => Ok(vec![sum]),
            false => {
                let shape = im
                    .shape(sum)
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| !axes.contains(i))
                    .map(|(_, d)| d)
                    .collect();
                one(im.reshape(sum, shape))
            }
        }
    }),
];

/// `x` in the element type asked for; truth values count as numbers.
fn as_number(im: &mut Importer<'_>, call: &Call, x: ValueId) -> Result<ValueId> {
    match call.dtype("dtype")? {
        Some(dtype) => im.cast(x, dtype),
        None if im.dtype(x) == DType::Bool => im.cast(x, DType::I64),
        None => Ok(x),
    }
}

fn reduce(im: &mut Importer<'_>, call: &Call, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axes = im.axes(call, "dim", x)?;
    let keep = call.flag("keepdim", false)?;
    let x = as_number(im, call, x)?;
    let x = if f == ReduceFn::Mean { im.float(x)? } else { x };
    one(im.reduce(f, x, &axes, keep))
}

fn with_index(im: &mut Importer<'_>, call: &Call, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let keepdim = call.flag("keepdim", false)?;
    let values = im.reduce(f, x, &[axis], keepdim)?;
    let index = im.op(Op::ArgReduce { f, axis, keepdim }, &[x])?;
    Ok(vec![values, index])
}

fn arg(im: &mut Importer<'_>, call: &Call, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let keepdim = call.flag("keepdim", false)?;
    let rank = im.rank(x);
    match call.optional_integer("dim")? {
        Some(axis) => {
            let axis = im.axis(axis, rank)?;
            one(im.op(Op::ArgReduce { f, axis, keepdim }, &[x]))
        }
        None => {
            let count = im.fixed(x)?.iter().product::<usize>();
            let flat = im.reshape(x, vec![Dim::known(count)])?;
            let y = im.op(
                Op::ArgReduce {
                    f,
                    axis: 0,
                    keepdim: false,
                },
                &[flat],
            )?;
            let shape = if keepdim { vec![Dim::known(1); rank] } else { Vec::new() };
            one(im.reshape(y, shape))
        }
    }
}

fn quantified(im: &mut Importer<'_>, call: &Call, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axes = im.axes(call, "dim", x)?;
    let keep = call.flag("keepdim", false)?;
    let x = im.cast(x, DType::Bool)?;
    let x = im.cast(x, DType::I64)?;
    let y = im.reduce(f, x, &axes, keep)?;
    one(im.cast(y, DType::Bool))
}

/// Variance or its root.
fn spread(im: &mut Importer<'_>, call: &Call, root: bool) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axes = im.axes(call, "dim", x)?;
    let keep = call.flag("keepdim", false)?;
    let unbiased = call.flag("unbiased", true)?;
    let correction = call.float("correction", Some(if unbiased { 1.0 } else { 0.0 }))?;
    let x = im.float(x)?;
    let mean = im.reduce(ReduceFn::Mean, x, &axes, true)?;
    let centered = im.binary(BinaryFn::Sub, x, mean)?;
    let square = im.binary(BinaryFn::Mul, centered, centered)?;
    let mut y = im.reduce(ReduceFn::Mean, square, &axes, keep)?;
    if correction != 0.0 {
        let shape = im.shape(x);
        let count: Option<usize> = axes.iter().map(|&a| shape[a].as_known()).product();
        let Some(count) = count else {
            return unsupported("a corrected variance over an axis that varies");
        };
        y = scaled(im, y, count as f64 / (count as f64 - correction).max(0.0))?;
    }
    if root {
        y = im.unary(UnaryFn::Sqrt, y)?;
    }
    Ok(vec![y])
}

fn norm(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axes = im.axes(call, "dim", x)?;
    let keep = call.flag("keepdim", false)?;
    let order = call.float("ord", Some(2.0))?;
    let order = call.float("p", Some(order))?;
    call.dtype("dtype")?;
    let x = im.float(x)?;
    let y = if order == 2.0 {
        let square = im.binary(BinaryFn::Mul, x, x)?;
        let sum = im.reduce(ReduceFn::Sum, square, &axes, keep)?;
        im.unary(UnaryFn::Sqrt, sum)
    } else if order == 1.0 || order.is_infinite() {
        let size = im.unary(UnaryFn::Abs, x)?;
        let f = match order {
            1.0 => ReduceFn::Sum,
            o if o > 0.0 => ReduceFn::Max,
            _ => ReduceFn::Min,
        };
        im.reduce(f, size, &axes, keep)
    } else {
        return unsupported(format!("a norm of order {order}"));
    };
    one(y)
}

fn sort(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    call.ignore(&["stable"]);
    let axis = im.axis(call.integer("dim", Some(-1))?, im.rank(x))?;
    let descending = call.flag("descending", false)?;
    let order = im.op(Op::ArgSort { axis, descending }, &[x])?;
    let values = im.op(Op::Gather { axis }, &[x, order])?;
    Ok(vec![values, order])
}

fn topk(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    call.ignore(&["sorted"]);
    let axis = im.axis(call.integer("dim", Some(-1))?, im.rank(x))?;
    let descending = call.flag("largest", true)?;
    let k = call.size("k", None)?;
    let order = im.op(Op::ArgSort { axis, descending }, &[x])?;
    let order = im.slice(order, axis, Dim::known(0), k)?;
    let values = im.op(Op::Gather { axis }, &[x, order])?;
    Ok(vec![values, order])
}

fn softmax(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    call.ignore(&["half_to_float", "dtype"]);
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let x = im.float(x)?;
    one(im.op(Op::Softmax { axis }, &[x]))
}

/// `log(sum(e^x))` over axes, which stay with size 1.
fn log_sum_exp(im: &mut Importer<'_>, x: ValueId, axes: &[usize]) -> Result<ValueId> {
    let x = im.float(x)?;
    let most = im.reduce(ReduceFn::Max, x, axes, true)?;
    let y = im.binary(BinaryFn::Sub, x, most)?;
    let y = im.unary(UnaryFn::Exp, y)?;
    let y = im.reduce(ReduceFn::Sum, y, axes, true)?;
    let y = im.unary(UnaryFn::Log, y)?;
    im.binary(BinaryFn::Add, y, most)
}

fn log_softmax(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    call.ignore(&["half_to_float", "dtype"]);
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let x = im.float(x)?;
    let sum = log_sum_exp(im, x, &[axis])?;
    one(im.b.binary(BinaryFn::Sub, x, sum).map_err(invalid))
}
