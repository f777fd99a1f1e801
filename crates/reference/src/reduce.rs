//! Reductions and softmax.

use crate::shape::offsets;
use crate::{Error, ErrorKind, Result};
use cactus_ir::ReduceFn;
use cactus_tensor::{Data, Tensor, strides_row_major};

/// Reduces `axes` of `x`.
pub(crate) fn reduce(f: ReduceFn, axes: &[usize], keepdim: bool, x: &Tensor) -> Result<Tensor> {
    let (kept, inner) = split_axes(x.shape(), axes);
    let inside = offsets(&inner.shape, &inner.strides, 0)?;
    let bases = offsets(&kept.shape, &kept.strides, 0)?;
    let shape: Vec<usize> = x
        .shape()
        .iter()
        .enumerate()
        .filter_map(|(i, &d)| match (axes.contains(&i), keepdim) {
            (false, _) => Some(d),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect();
    if let Data::I64(data) = x.data() {
        let one = |&base: &usize| reduce_integers(f, inside.iter().map(|o| data[base + o]));
        let out: Result<Vec<i64>> = bases.iter().map(one).collect();
        return Ok(Tensor::from_i64(shape, out?)?);
    }
    let data = x.as_f32()?;
    let reduce_one = |base: usize| -> Result<f32> {
        let values = inside.iter().map(|o| data[base + o]);
        Ok(match f {
            ReduceFn::Sum => values.map(f64::from).sum::<f64>() as f32,
            ReduceFn::Mean => (values.map(f64::from).sum::<f64>() / inside.len() as f64) as f32,
            ReduceFn::Max => fold_extreme(values, f32::max)?,
            ReduceFn::Min => fold_extreme(values, f32::min)?,
            ReduceFn::Prod => values.map(f64::from).product::<f64>() as f32,
            _ => {
                let what = format!("reduction {f:?} is not supported");
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        })
    };
    let out: Result<Vec<f32>> = bases.into_iter().map(reduce_one).collect();
    Ok(Tensor::from_f32(shape, out?)?)
}

fn reduce_integers(f: ReduceFn, mut values: impl Iterator<Item = i64>) -> Result<i64> {
    let fail = |what: String| Error::new(ErrorKind::Value, what);
    match f {
        ReduceFn::Sum => values.try_fold(0i64, i64::checked_add),
        ReduceFn::Prod => values.try_fold(1i64, i64::checked_mul),
        ReduceFn::Max => values.max(),
        ReduceFn::Min => values.min(),
        _ => return Err(fail(format!("{f:?} of integers is not defined"))),
    }
    .ok_or_else(|| fail(format!("{f:?} of these integers is not a 64-bit integer")))
}

fn fold_extreme(values: impl Iterator<Item = f32>, pick: fn(f32, f32) -> f32) -> Result<f32> {
    values
        .reduce(|a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { pick(a, b) })
        .ok_or_else(|| Error::new(ErrorKind::Value, "an empty axis has no largest or smallest"))
}

/// Softmax along `axis`.
pub(crate) fn softmax(axis: usize, x: &Tensor) -> Result<Tensor> {
    let data = x.as_f32()?;
    let mut out = vec![0f32; data.len()];
    let (kept, inner) = split_axes(x.shape(), &[axis]);
    let inside = offsets(&inner.shape, &inner.strides, 0)?;
    for base in offsets(&kept.shape, &kept.strides, 0)? {
        let row: Vec<f64> = inside.iter().map(|o| data[base + o].into()).collect();
        for (o, p) in inside.iter().zip(softmax_row(&row)) {
            out[base + o] = p as f32;
        }
    }
    Ok(Tensor::from_f32(x.shape(), out)?)
}

/// `e^(x_i - max) / sum`.
pub(crate) fn softmax_row(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

/// Some axes of a tensor with their row-major strides.
struct Axes {
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// The axes that are not in `axes`, and those that are.
fn split_axes(shape: &[usize], axes: &[usize]) -> (Axes, Axes) {
    let strides = strides_row_major(shape);
    let part = |want: bool| {
        let picked = || (0..shape.len()).filter(move |i| axes.contains(i) == want);
        Axes {
            shape: picked().map(|i| shape[i]).collect(),
            strides: picked().map(|i| strides[i]).collect(),
        }
    };
    (part(false), part(true))
}
