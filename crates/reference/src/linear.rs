//! Indexing, matrix products and convolution. Every sum runs in `f64`.

use crate::shape::expand;
use crate::{Error, ErrorKind, Result};
use cactus_tensor::{Tensor, broadcast_shapes, element_count};

/// `(table [rows, width], ids […]) -> […, width]`.
pub(crate) fn embedding(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (rows, width) = (table.shape()[0], table.shape()[1]);
    let data = table.as_f32()?;
    let mut out = Vec::new();
    for &id in ids.as_i64()? {
        let row = usize::try_from(id).ok().filter(|&r| r < rows).ok_or_else(|| {
            let what = format!("index {id} is outside a table of {rows} rows");
            Error::new(ErrorKind::Value, what)
        })?;
        out.extend_from_slice(&data[row * width..(row + 1) * width]);
    }
    let mut shape = ids.shape().to_vec();
    shape.push(width);
    Ok(Tensor::from_f32(shape, out)?)
}

/// `(x […, k], w [n, k], bias? [n]) -> […, n]`.
pub(crate) fn linear(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (n, k) = (w.shape()[0], w.shape()[1]);
    let mut shape = x.shape().to_vec();
    shape.pop();
    let rows = element_count(&shape)?;
    shape.push(n);
    let (x, w) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(Tensor::as_f32).transpose()?;
    let mut out = Vec::with_capacity(element_count(&shape)?);
    for r in 0..rows {
        for o in 0..n {
            let sum = dot(&x[r * k..(r + 1) * k], &w[o * k..(o + 1) * k]);
            out.push((sum + bias.map_or(0.0, |b| f64::from(b[o]))) as f32);
        }
    }
    Ok(Tensor::from_f32(shape, out)?)
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// `(a […, m, k], b […, k, n]) -> […, m, n]`, leading axes broadcast.
pub(crate) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (ra, rb) = (a.shape().len(), b.shape().len());
    let [m, k, n] = [a.shape()[ra - 2], a.shape()[ra - 1], b.shape()[rb - 1]];
    let outer = broadcast_shapes(&a.shape()[..ra - 2], &b.shape()[..rb - 2])?;
    let count = element_count(&outer)?;
    let full = |rows: usize, columns: usize| [&outer[..], &[rows, columns]].concat();
    let (a, b) = (expand(a, &full(m, k))?, expand(b, &full(k, n))?);
    let (a, b) = (a.as_f32()?, b.as_f32()?);
    let mut out = Vec::with_capacity(element_count(&full(m, n))?);
    for i in 0..count {
        let (a, b) = (&a[i * m * k..], &b[i * k * n..]);
        for r in 0..m {
            for c in 0..n {
                let terms = (0..k).map(|j| f64::from(a[r * k + j]) * f64::from(b[j * n + c]));
                out.push(terms.sum::<f64>() as f32);
            }
        }
    }
    Ok(Tensor::from_f32(full(m, n), out)?)
}

/// `(x [batch, channels_in, length], w [channels_out, channels_in/groups, kernel], bias? [channels_out])`.
pub(crate) fn conv1d(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    groups: usize,
    pad_left: usize,
    out_length: usize,
) -> Result<Tensor> {
    let [batch, channels, length] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let [out_channels, per_group, kernel] = [w.shape()[0], w.shape()[1], w.shape()[2]];
    let (x, w) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(Tensor::as_f32).transpose()?;
    let shape = [batch, out_channels, out_length];
    let mut out = Vec::with_capacity(element_count(&shape)?);
    for b in 0..batch {
        for o in 0..out_channels {
            let first_channel = o / (out_channels / groups) * per_group;
            for t in 0..out_length {
                let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
                for c in 0..per_group {
                    let row = (b * channels + first_channel + c) * length;
                    for j in 0..kernel {
                        let at = (t + j).checked_sub(pad_left).filter(|&at| at < length);
                        let value = at.map_or(0.0, |at| x[row + at]);
                        sum += f64::from(value) * f64::from(w[(o * per_group + c) * kernel + j]);
                    }
                }
                out.push(sum as f32);
            }
        }
    }
    Ok(Tensor::from_f32(shape, out)?)
}
