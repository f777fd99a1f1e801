//! Fused operations, each as its definition in [`cactus_ir::Op`] reads.

use crate::elementwise;
use crate::linear::dot;
use crate::{Error, ErrorKind, Result};
use cactus_ir::Activation;
use cactus_tensor::Tensor;

/// `x / sqrt(mean(x²) + eps) * weight` along the last axis.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let weight = weight.as_f32()?;
    rows(x, weight.len(), |row, out| {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean + f64::from(eps)).sqrt();
        out.extend(row.iter().zip(weight).map(|(v, &w)| v * factor * f64::from(w)));
    })
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` along the last axis; weight and bias may differ from head to head.
pub(crate) fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    let n = x.shape().last().copied().unwrap_or(0);
    let weight = weight.as_f32()?;
    let bias = bias.map(Tensor::as_f32).transpose()?;
    rows(x, n, |row, out| {
        let head = out.len() % weight.len();
        let (weight, bias) = (&weight[head..][..n], bias.map(|b| &b[head..][..n]));
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (variance + f64::from(eps)).sqrt();
        for (i, v) in row.iter().enumerate() {
            let shift = bias.map_or(0.0, |b| f64::from(b[i]));
            out.push((v - mean) * factor * f64::from(weight[i]) + shift);
        }
    })
}

/// Applies `f` to each row of `n` elements.
fn rows(x: &Tensor, n: usize, f: impl Fn(&[f64], &mut Vec<f64>)) -> Result<Tensor> {
    let mut out = Vec::new();
    if n > 0 {
        for row in x.as_f32()?.chunks(n) {
            let row: Vec<f64> = row.iter().map(|&v| v.into()).collect();
            f(&row, &mut out);
        }
    }
    let out = out.into_iter().map(|v| v as f32).collect();
    Ok(Tensor::from_f32(x.shape(), out)?)
}

/// Rotary position embedding of `x [batch, seq, heads, head_dim]`. The angle is an `f32` product, as in the reference
/// frameworks: far positions depend on its rounding.
pub(crate) fn rope(x: &Tensor, positions: &Tensor, freq: &Tensor, scale: f32, interleaved: bool) -> Result<Tensor> {
    let [batch, seq, heads, dim] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let axes = if positions.shape().len() == 1 {
        1
    } else {
        positions.shape()[1]
    };
    let (positions, freq) = (positions.as_i64()?, freq.as_f32()?);
    let half = freq.len() / axes.max(1);
    let mut out = x.as_f32()?.to_vec();
    for b in 0..batch {
        for (t, position) in positions.chunks_exact(axes.max(1)).enumerate() {
            for h in 0..heads {
                let head = &mut out[((b * seq + t) * heads + h) * dim..][..dim];
                for i in 0..half {
                    let products = position
                        .iter()
                        .enumerate()
                        .map(|(axis, &p)| p as f32 * freq[axis * half + i]);
                    let angle: f32 = products.reduce(|a, b| a + b).unwrap_or_default();
                    let (sin, cos) = f64::from(angle).sin_cos();
                    let (sin, cos) = (sin * f64::from(scale), cos * f64::from(scale));
                    let (i, j) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                    let (a, b) = (f64::from(head[i]), f64::from(head[j]));
                    head[i] = (a * cos - b * sin) as f32;
                    head[j] = (b * cos + a * sin) as f32;
                }
            }
        }
    }
    Ok(Tensor::from_f32(x.shape(), out)?)
}

/// `activation(x)`, or `x` where there is none.
pub(crate) fn activated(f: Option<Activation>, x: Tensor) -> Result<Tensor> {
    let Some(f) = f else { return Ok(x) };
    match f.unary() {
        Some(f) => elementwise::unary(f, &x),
        None => Err(unsupported(f)),
    }
}

fn unsupported(f: Activation) -> Error {
    Error::new(ErrorKind::Unsupported, format!("activation {f:?} is not supported"))
}

/// `activation(gate) * up`, of two operands or of the halves of one.
pub(crate) fn gated(f: Activation, above: Option<f32>, operands: &[&Tensor]) -> Result<Tensor> {
    let mut shape = operands[0].shape().to_vec();
    let mut n = shape.pop().unwrap_or(0);
    n /= 3 - operands.len();
    shape.push(n);
    let mut out = Vec::new();
    let mut row = |gate: &[f32], up: &[f32]| {
        let mut gate: Vec<f64> = gate.iter().map(|&g| g.into()).collect();
        if let Some(above) = above {
            keep_above(above.into(), &mut gate);
        }
        for (&g, &u) in gate.iter().zip(up) {
            let y = elementwise::gated(f, g, u.into()).ok_or_else(|| unsupported(f))?;
            out.push(y as f32);
        }
        Ok::<_, Error>(())
    };
    match operands {
        _ if n == 0 => {}
        [gate, up] => {
            for (gate, up) in gate.as_f32()?.chunks(n).zip(up.as_f32()?.chunks(n)) {
                row(gate, up)?;
            }
        }
        _ => {
            for halves in operands[0].as_f32()?.chunks(2 * n) {
                let (gate, up) = halves.split_at(n);
                row(gate, up)?;
            }
        }
    }
    Ok(Tensor::from_f32(shape, out)?)
}

/// By how much numbers are more than `above` standard deviations over their mean; 0 where they are not.
fn keep_above(above: f64, x: &mut [f64]) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let least = mean + above * variance.sqrt();
    for v in x {
        let rest = *v - least;
        *v = if rest.is_nan() { rest } else { rest.max(0.0) };
    }
}

/// Gated units chosen for each row: `[x, ids, shares, gate_up, down]`, perhaps with biases of `gate_up` and `down`.
pub(crate) fn experts(
    f: Activation,
    [x, ids, shares, gate_up, down]: [&Tensor; 5],
    biases: Option<[&Tensor; 2]>,
) -> Result<Tensor> {
    let (n, m) = (gate_up.shape()[1], down.shape()[1]);
    let k = ids.shape().last().copied().unwrap_or(0);
    let count = down.shape()[0].checked_div(n).unwrap_or(0);
    let (data, ids, shares) = (x.as_f32()?, ids.as_i64()?, shares.as_f32()?);
    let (gate_up, down) = (gate_up.as_f32()?, down.as_f32()?);
    let biases = match biases {
        Some([of_gate_up, of_down]) => Some([of_gate_up.as_f32()?, of_down.as_f32()?]),
        None => None,
    };
    let bias = |which: usize, i: usize| biases.map_or(0.0, |b| f64::from(b[which][i]));
    let mut out = Vec::with_capacity(data.len());
    for (t, row) in data.chunks(n.max(1)).enumerate() {
        let mut sum = vec![0f64; n];
        for j in t * k..(t + 1) * k {
            let e = usize::try_from(ids[j]).ok().filter(|&e| e < count).ok_or_else(|| {
                let what = format!("expert {} of {count}", ids[j]);
                Error::new(ErrorKind::Value, what)
            })?;
            let line = |i: usize| {
                let at = e * 2 * m + i;
                dot(row, &gate_up[at * n..][..n]) + bias(0, at)
            };
            let mut hidden = Vec::with_capacity(m);
            for i in 0..m {
                let unit = elementwise::gated(f, line(i), line(m + i)).ok_or_else(|| unsupported(f))?;
                hidden.push(unit as f32);
            }
            for (i, s) in sum.iter_mut().enumerate() {
                let at = e * n + i;
                *s += f64::from(shares[j]) * (dot(&hidden, &down[at * m..][..m]) + bias(1, at));
            }
        }
        out.extend(sum.iter().map(|&s| s as f32));
    }
    Ok(Tensor::from_f32(x.shape(), out)?)
}

/// Causal depthwise convolution of `x [batch, seq, channels]` by `w [channels, kernel]`. `before [kernel-1, channels]`
/// are the inputs before the first position of each sequence, zeros where there are none.
pub(crate) fn short_conv(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, before: Option<&[f32]>) -> Result<Tensor> {
    let [batch, seq, channels] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let kernel = w.shape()[1];
    let (data, w) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(Tensor::as_f32).transpose()?;
    let mut out = Vec::with_capacity(data.len());
    for b in 0..batch {
        // Row `i` of the sequence with its past: rows 0..kernel-1 come before the first position.
        let value = |i: usize, c: usize| match i.checked_sub(kernel - 1) {
            Some(t) => data[(b * seq + t) * channels + c],
            None => before.map_or(0.0, |rows| rows[i * channels + c]),
        };
        for t in 0..seq {
            for c in 0..channels {
                let terms = (0..kernel).map(|j| f64::from(value(t + j, c)) * f64::from(w[c * kernel + j]));
                let shift = bias.map_or(0.0, |b| f64::from(b[c]));
                out.push((terms.sum::<f64>() + shift) as f32);
            }
        }
    }
    Ok(Tensor::from_f32(x.shape(), out)?)
}
