//! Convolutions and pools over one to three axes. Sums run in `f64`.

use crate::{Error, ErrorKind, Result};
use cactus_ir::{ConvAttrs, PoolAttrs, ReduceFn};
use cactus_tensor::{Tensor, element_count};

/// Calls `f` with every index of `shape` in order.
fn each(shape: &[usize], mut f: impl FnMut(&[usize])) -> Result<()> {
    let mut index = vec![0usize; shape.len()];
    for _ in 0..element_count(shape)? {
        f(&index);
        for i in (0..shape.len()).rev() {
            index[i] += 1;
            if index[i] < shape[i] {
                break;
            }
            index[i] = 0;
        }
    }
    Ok(())
}

fn offset(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (&n, &i)| at * n + i)
}

/// Where tap `tap` of window `window` reads, if it is inside of `size`.
fn place(
    window: &[usize],
    tap: &[usize],
    stride: &[usize],
    padding: &[[usize; 2]],
    dilation: &[usize],
    size: &[usize],
) -> Option<Vec<usize>> {
    (0..size.len())
        .map(|i| {
            let at = (window[i] * stride[i] + tap[i] * dilation[i]).checked_sub(padding[i][0])?;
            (at < size[i]).then_some(at)
        })
        .collect()
}

pub(crate) fn conv(a: &ConvAttrs, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, out: &[usize]) -> Result<Tensor> {
    let (xs, ws) = (x.shape(), w.shape());
    let (data, weight) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(Tensor::as_f32).transpose()?;
    let (per_group, outputs) = (ws[1], ws[0] / a.groups);
    let (plane, taps) = (element_count(&xs[2..])?, element_count(&ws[2..])?);
    let mut y = Vec::with_capacity(element_count(out)?);
    for b in 0..out[0] {
        for o in 0..out[1] {
            let first = b * xs[1] + o / outputs * per_group;
            each(&out[2..], |window| {
                let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
                let _ = each(&ws[2..], |tap| {
                    if let Some(at) = place(window, tap, &a.stride, &a.padding, &a.dilation, &xs[2..]) {
                        let (at, tap) = (offset(&xs[2..], &at), offset(&ws[2..], tap));
                        for c in 0..per_group {
                            let value = f64::from(data[(first + c) * plane + at]);
                            sum += value * f64::from(weight[(o * per_group + c) * taps + tap]);
                        }
                    }
                });
                y.push(sum as f32);
            })?;
        }
    }
    Ok(Tensor::from_f32(out, y)?)
}

pub(crate) fn conv_transpose(
    a: &ConvAttrs,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    out: &[usize],
) -> Result<Tensor> {
    let (xs, ws) = (x.shape(), w.shape());
    let (data, weight) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(Tensor::as_f32).transpose()?;
    let (per_group, inputs) = (ws[1], xs[1] / a.groups);
    let (plane, taps, out_plane) = (
        element_count(&xs[2..])?,
        element_count(&ws[2..])?,
        element_count(&out[2..])?,
    );
    let mut y = vec![0f64; element_count(out)?];
    for b in 0..out[0] {
        for c in 0..xs[1] {
            each(&xs[2..], |at| {
                let value = f64::from(data[(b * xs[1] + c) * plane + offset(&xs[2..], at)]);
                let _ = each(&ws[2..], |tap| {
                    // An input is a window of the outputs.
                    if let Some(to) = place(at, tap, &a.stride, &a.padding, &a.dilation, &out[2..]) {
                        for o in 0..per_group {
                            let channel = c / inputs * per_group + o;
                            let w = weight[(c * per_group + o) * taps + offset(&ws[2..], tap)];
                            y[(b * out[1] + channel) * out_plane + offset(&out[2..], &to)] += value * f64::from(w);
                        }
                    }
                });
            })?;
        }
    }
    let channel = |i: usize| i / out_plane.max(1) % out[1].max(1);
    let y = y
        .iter()
        .enumerate()
        .map(|(i, &v)| (v + bias.map_or(0.0, |b| f64::from(b[channel(i)]))) as f32);
    Ok(Tensor::from_f32(out, y.collect())?)
}

pub(crate) fn pool(a: &PoolAttrs, x: &Tensor, out: &[usize]) -> Result<Tensor> {
    let size = &x.shape()[2..];
    let data = x.as_f32()?;
    let plane = element_count(size)?;
    let mut y = Vec::with_capacity(element_count(out)?);
    for first in (0..out[0] * out[1]).map(|c| c * plane) {
        each(&out[2..], |window| {
            let (mut best, mut sum, mut inside) = (f32::NEG_INFINITY, 0f64, 0usize);
            let _ = each(&a.kernel, |tap| {
                if let Some(at) = place(window, tap, &a.stride, &a.padding, &a.dilation, size) {
                    let v = data[first + offset(size, &at)];
                    best = if v.is_nan() || best.is_nan() {
                        f32::NAN
                    } else {
                        best.max(v)
                    };
                    sum += f64::from(v);
                    inside += 1;
                }
            });
            let count = if a.count_padding {
                a.kernel.iter().product()
            } else {
                inside
            };
            y.push(match a.f {
                ReduceFn::Max => best,
                _ => (sum / count as f64) as f32,
            });
        })?;
    }
    if !matches!(a.f, ReduceFn::Max | ReduceFn::Mean) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("a pool of {:?} is not supported", a.f),
        ));
    }
    Ok(Tensor::from_f32(out, y)?)
}
