//! Order, running sums, and elements picked or placed by index.

use crate::shape::unknown_data;
use crate::{Error, ErrorKind, Result};
use cactus_ir::ReduceFn;
use cactus_tensor::{Data, Tensor, element_count};
use std::cmp::Ordering;

/// The sizes before `axis`, of it and after it.
fn split(shape: &[usize], axis: usize) -> Result<[usize; 3]> {
    Ok([
        element_count(&shape[..axis])?,
        shape[axis],
        element_count(&shape[axis + 1..])?,
    ])
}

/// For each line along `axis`, in order: offset of its first element, and the step between its elements.
fn lines(shape: &[usize], axis: usize) -> Result<(Vec<usize>, usize)> {
    let [outer, n, inner] = split(shape, axis)?;
    let firsts = (0..outer).flat_map(|o| (0..inner).map(move |i| o * n * inner + i));
    Ok((firsts.collect(), inner))
}

/// Order of the elements of a line: numbers by size, NaN last.
fn order(x: &Tensor, a: usize, b: usize) -> Result<Ordering> {
    Ok(match x.data() {
        Data::F32(v) => match v[a].partial_cmp(&v[b]) {
            Some(order) => order,
            None => v[a].is_nan().cmp(&v[b].is_nan()),
        },
        Data::I64(v) => v[a].cmp(&v[b]),
        _ => return Err(unknown_data(x)),
    })
}

/// Index of the first extreme element of each line along `axis`, without that axis.
pub(crate) fn arg_reduce(f: ReduceFn, axis: usize, x: &Tensor) -> Result<Tensor> {
    let (firsts, step) = lines(x.shape(), axis)?;
    let n = x.shape()[axis];
    if n == 0 {
        return Err(Error::new(ErrorKind::Value, "an empty axis has no largest or smallest"));
    }
    let nan = |at: usize| matches!(x.data(), Data::F32(v) if v[at].is_nan());
    let mut out = Vec::with_capacity(firsts.len());
    for first in firsts {
        let mut best = 0;
        for i in 1..n {
            let (old, new) = (first + best * step, first + i * step);
            let better = match (order(x, new, old)?, f) {
                // NaN is the answer wherever there is one.
                _ if nan(old) || nan(new) => nan(new) && !nan(old),
                (Ordering::Greater, ReduceFn::Max) | (Ordering::Less, ReduceFn::Min) => true,
                _ => false,
            };
            if better {
                best = i;
            }
        }
        out.push(best as i64);
    }
    let mut shape = x.shape().to_vec();
    shape.remove(axis);
    Ok(Tensor::from_i64(shape, out)?)
}

/// The indices that sort each line along `axis`.
pub(crate) fn arg_sort(axis: usize, descending: bool, x: &Tensor) -> Result<Tensor> {
    let (firsts, step) = lines(x.shape(), axis)?;
    if !matches!(x.data(), Data::F32(_) | Data::I64(_)) {
        return Err(unknown_data(x));
    }
    let mut out = vec![0i64; x.len()];
    for first in firsts {
        let mut indices: Vec<usize> = (0..x.shape()[axis]).collect();
        indices.sort_by(|&a, &b| {
            // The element type is known to have an order.
            let o = order(x, first + a * step, first + b * step).unwrap_or(Ordering::Equal);
            if descending { o.reverse() } else { o }
        });
        for (i, from) in indices.into_iter().enumerate() {
            out[first + i * step] = from as i64;
        }
    }
    Ok(Tensor::from_i64(x.shape(), out)?)
}

/// Running sums along `axis`.
pub(crate) fn cum_sum(axis: usize, x: &Tensor) -> Result<Tensor> {
    let (firsts, step) = lines(x.shape(), axis)?;
    let n = x.shape()[axis];
    let data = match x.data() {
        Data::F32(v) => {
            let mut out = vec![0f32; v.len()];
            for first in firsts {
                let mut sum = 0f64;
                for at in (0..n).map(|i| first + i * step) {
                    sum += f64::from(v[at]);
                    out[at] = sum as f32;
                }
            }
            Data::F32(out)
        }
        Data::I64(v) => {
            let mut out = vec![0i64; v.len()];
            for first in firsts {
                let mut sum = 0i64;
                for at in (0..n).map(|i| first + i * step) {
                    let overflow = || Error::new(ErrorKind::Value, "a running sum is not a 64-bit integer");
                    sum = sum.checked_add(v[at]).ok_or_else(overflow)?;
                    out[at] = sum;
                }
            }
            Data::I64(out)
        }
        _ => return Err(unknown_data(x)),
    };
    Ok(Tensor::new(x.shape(), data)?)
}

fn checked(id: i64, n: usize) -> Result<usize> {
    usize::try_from(id).ok().filter(|&i| i < n).ok_or_else(|| {
        let what = format!("index {id} is outside an axis of {n} elements");
        Error::new(ErrorKind::Value, what)
    })
}

fn pick(x: &Tensor, shape: &[usize], from: &[usize]) -> Result<Tensor> {
    let data = match x.data() {
        Data::F32(v) => Data::F32(from.iter().map(|&i| v[i]).collect()),
        Data::I64(v) => Data::I64(from.iter().map(|&i| v[i]).collect()),
        Data::Bool(v) => Data::Bool(from.iter().map(|&i| v[i]).collect()),
        _ => return Err(unknown_data(x)),
    };
    Ok(Tensor::new(shape, data)?)
}

/// Slices at `ids` along `axis`, the axes of `ids` as one.
pub(crate) fn take(axis: usize, x: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let [outer, n, inner] = split(x.shape(), axis)?;
    let ids: Result<Vec<usize>> = ids.as_i64()?.iter().map(|&id| checked(id, n)).collect();
    let ids = ids?;
    let mut from = Vec::with_capacity(element_count(&[outer, ids.len(), inner])?);
    for o in 0..outer {
        for id in &ids {
            let first = (o * n + id) * inner;
            from.extend(first..first + inner);
        }
    }
    let mut shape = x.shape().to_vec();
    shape[axis] = ids.len();
    pick(x, &shape, &from)
}

/// The offset in `x` for each element of `ids`.
fn places(axis: usize, x: &Tensor, ids: &Tensor) -> Result<Vec<usize>> {
    let strides = cactus_tensor::strides_row_major(x.shape());
    let shape = ids.shape();
    let mut index = vec![0usize; shape.len()];
    let mut out = Vec::with_capacity(ids.len());
    for &id in ids.as_i64()? {
        let at = checked(id, x.shape()[axis])?;
        let offset = |i: usize| if i == axis { at } else { index[i] } * strides[i];
        out.push((0..shape.len()).map(offset).sum());
        for i in (0..shape.len()).rev() {
            index[i] += 1;
            if index[i] < shape[i] {
                break;
            }
            index[i] = 0;
        }
    }
    Ok(out)
}

/// One element for each index along `axis`.
pub(crate) fn gather(axis: usize, x: &Tensor, ids: &Tensor) -> Result<Tensor> {
    pick(x, ids.shape(), &places(axis, x, ids)?)
}

/// `x` with an element replaced by, or increased by, each of `updates`.
pub(crate) fn scatter(axis: usize, add: bool, x: &Tensor, ids: &Tensor, updates: &Tensor) -> Result<Tensor> {
    let places = places(axis, x, ids)?;
    let data = match (x.data(), updates.data()) {
        (Data::F32(v), Data::F32(u)) => {
            let mut v = v.clone();
            for (&at, &u) in places.iter().zip(u) {
                v[at] = if add { v[at] + u } else { u };
            }
            Data::F32(v)
        }
        (Data::I64(v), Data::I64(u)) => {
            let mut v = v.clone();
            for (&at, &u) in places.iter().zip(u) {
                v[at] = if add { v[at].wrapping_add(u) } else { u };
            }
            Data::I64(v)
        }
        (Data::Bool(v), Data::Bool(u)) if !add => {
            let mut v = v.clone();
            for (&at, &u) in places.iter().zip(u) {
                v[at] = u;
            }
            Data::Bool(v)
        }
        _ => return Err(unknown_data(x)),
    };
    Ok(Tensor::new(x.shape(), data)?)
}
