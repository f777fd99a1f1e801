//! Operations that move elements without changing them.

use crate::{Error, ErrorKind, Result};
use cactus_tensor::{Data, Tensor, element_count, strides_row_major};

/// For each element of a row-major tensor of `shape`, `base` plus the offset that `strides` give it.
pub(crate) fn offsets(shape: &[usize], strides: &[usize], base: usize) -> Result<Vec<usize>> {
    let count = element_count(shape)?;
    let mut index = vec![0usize; shape.len()];
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        let offset: usize = index.iter().zip(strides).map(|(i, s)| i * s).sum();
        out.push(base + offset);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(out)
}

/// A tensor of `shape` whose element `i` is element `from[i]` of `x`.
fn gather(x: &Tensor, shape: &[usize], from: &[usize]) -> Result<Tensor> {
    fn pick<T: Copy>(v: &[T], from: &[usize]) -> Vec<T> {
        from.iter().map(|&i| v[i]).collect()
    }
    let data = match x.data() {
        Data::F32(v) => Data::F32(pick(v, from)),
        Data::I64(v) => Data::I64(pick(v, from)),
        Data::Bool(v) => Data::Bool(pick(v, from)),
        _ => return Err(unknown_data(x)),
    };
    Ok(Tensor::new(shape, data)?)
}

pub(crate) fn unknown_data(x: &Tensor) -> Error {
    let what = format!("elements of {} are not supported", x.dtype());
    Error::new(ErrorKind::Unsupported, what)
}

/// Broadcast to `shape` by NumPy's rule.
pub(crate) fn expand(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    if cactus_tensor::broadcast_shapes(x.shape(), shape)? != shape {
        let what = format!("{:?} does not expand to {shape:?}", x.shape());
        return Err(Error::new(ErrorKind::Type, what));
    }
    let mut strides = strides_row_major(x.shape());
    for (stride, &size) in strides.iter_mut().zip(x.shape()) {
        if size == 1 {
            *stride = 0;
        }
    }
    let mut padded = vec![0; shape.len() - strides.len()];
    padded.append(&mut strides);
    gather(x, shape, &offsets(shape, &padded, 0)?)
}

/// Axis `i` of the result is axis `perm[i]` of `x`.
pub(crate) fn permute(x: &Tensor, perm: &[usize]) -> Result<Tensor> {
    let strides = strides_row_major(x.shape());
    let valid = perm.len() == x.shape().len() && (0..perm.len()).all(|axis| perm.contains(&axis));
    if !valid {
        let what = format!("{perm:?} is not an order of the axes of {:?}", x.shape());
        return Err(Error::new(ErrorKind::Type, what));
    }
    let shape: Vec<usize> = perm.iter().map(|&p| x.shape()[p]).collect();
    let strides: Vec<usize> = perm.iter().map(|&p| strides[p]).collect();
    gather(x, &shape, &offsets(&shape, &strides, 0)?)
}

/// Elements `start..end` of `axis`.
pub(crate) fn slice(x: &Tensor, axis: usize, start: usize, end: usize) -> Result<Tensor> {
    let inside = x.shape().get(axis).is_some_and(|&n| start <= end && end <= n);
    if !inside {
        let what = format!("{start}..{end} is outside axis {axis} of {:?}", x.shape());
        return Err(Error::new(ErrorKind::Type, what));
    }
    let strides = strides_row_major(x.shape());
    let mut shape = x.shape().to_vec();
    shape[axis] = end - start;
    gather(x, &shape, &offsets(&shape, &strides, start * strides[axis])?)
}

/// Parts joined along `axis`.
pub(crate) fn concat(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let fail = |what: String| Error::new(ErrorKind::Type, what);
    let first = parts
        .first()
        .filter(|p| axis < p.shape().len())
        .ok_or_else(|| fail(format!("nothing to join at axis {axis}")))?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for p in parts {
        let fits = p.shape().len() == shape.len() && (0..shape.len()).all(|i| i == axis || p.shape()[i] == shape[i]);
        if !fits {
            return Err(fail(format!(
                "cannot join {:?} and {:?} at axis {axis}",
                first.shape(),
                p.shape()
            )));
        }
        shape[axis] = shape[axis]
            .checked_add(p.shape()[axis])
            .ok_or_else(|| fail("the joined axis overflows".into()))?;
    }
    let outer = element_count(&shape[..axis])?;
    fn join<T: Copy>(parts: &[(&[T], usize)], outer: usize) -> Vec<T> {
        let row: usize = parts.iter().map(|(_, run)| run).sum();
        let mut out = Vec::with_capacity(outer * row);
        for i in 0..outer {
            for (data, run) in parts {
                out.extend_from_slice(&data[i * run..(i + 1) * run]);
            }
        }
        out
    }
    let run = |p: &Tensor| p.shape()[axis..].iter().product::<usize>();
    macro_rules! joined {
        ($variant:ident, $get:ident) => {{
            let parts: Result<Vec<_>> = parts.iter().map(|p| Ok((p.$get()?, run(p)))).collect();
            Data::$variant(join(&parts?, outer))
        }};
    }
    let data = match first.data() {
        Data::F32(_) => joined!(F32, as_f32),
        Data::I64(_) => joined!(I64, as_i64),
        Data::Bool(_) => joined!(Bool, as_bool),
        _ => return Err(unknown_data(first)),
    };
    Ok(Tensor::new(shape, data)?)
}

/// `[start, start+1, …]`, `len` elements.
pub(crate) fn iota(start: usize, len: usize) -> Result<Tensor> {
    let first = i64::try_from(start).ok();
    let last = first.and_then(|s| s.checked_add(i64::try_from(len).ok()?));
    let (Some(first), Some(last)) = (first, last) else {
        let what = format!("{len} integers from {start} overflow");
        return Err(Error::new(ErrorKind::Value, what));
    };
    Ok(Tensor::from_i64([len], (first..last).collect())?)
}
