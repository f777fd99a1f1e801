//! Recurrent layers, step by step. Sums run in `f64`, what a step hands on is `f32`.

use crate::linear::dot;
use crate::{Error, ErrorKind, Result, elementwise};
use cactus_ir::{BinaryFn, UnaryFn};
use cactus_tensor::Tensor;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The steps in their order.
fn steps(n: usize, reverse: bool) -> impl Iterator<Item = usize> {
    (0..n).map(move |t| if reverse { n - 1 - t } else { t })
}

pub(crate) fn lstm(reverse: bool, gates: &Tensor, w: &Tensor, h0: &Tensor, c0: &Tensor) -> Result<Tensor> {
    let [len, batch, h] = [gates.shape()[0], gates.shape()[1], w.shape()[1]];
    let (gates, w) = (gates.as_f32()?, w.as_f32()?);
    let (mut y, mut c) = (h0.as_f32()?.to_vec(), c0.as_f32()?.to_vec());
    let mut out = vec![0f32; len * batch * 2 * h];
    for t in steps(len, reverse) {
        for b in 0..batch {
            let before = y[b * h..(b + 1) * h].to_vec();
            for i in 0..h {
                let gate = |g: usize| {
                    let row = g * h + i;
                    f64::from(gates[(t * batch + b) * 4 * h + row]) + dot(&before, &w[row * h..(row + 1) * h])
                };
                let cell = sigmoid(gate(1)) * f64::from(c[b * h + i]) + sigmoid(gate(0)) * gate(2).tanh();
                c[b * h + i] = cell as f32;
                y[b * h + i] = (sigmoid(gate(3)) * cell.tanh()) as f32;
            }
            let row = &mut out[(t * batch + b) * 2 * h..][..2 * h];
            row[..h].copy_from_slice(&y[b * h..(b + 1) * h]);
            row[h..].copy_from_slice(&c[b * h..(b + 1) * h]);
        }
    }
    Ok(Tensor::from_f32([len, batch, 2 * h], out)?)
}

pub(crate) fn gru(reverse: bool, gates: &Tensor, w: &Tensor, bias: &Tensor, h0: &Tensor) -> Result<Tensor> {
    let [len, batch, h] = [gates.shape()[0], gates.shape()[1], w.shape()[1]];
    let (gates, w, bias) = (gates.as_f32()?, w.as_f32()?, bias.as_f32()?);
    let mut y = h0.as_f32()?.to_vec();
    let mut out = vec![0f32; len * batch * h];
    for t in steps(len, reverse) {
        for b in 0..batch {
            let before = y[b * h..(b + 1) * h].to_vec();
            for i in 0..h {
                let input = |g: usize| f64::from(gates[(t * batch + b) * 3 * h + g * h + i]);
                let recurrent = |g: usize| {
                    let row = g * h + i;
                    f64::from(bias[row]) + dot(&before, &w[row * h..(row + 1) * h])
                };
                let reset = sigmoid(input(0) + recurrent(0));
                let update = sigmoid(input(1) + recurrent(1));
                let new = (input(2) + reset * recurrent(2)).tanh();
                y[b * h + i] = ((1.0 - update) * new + update * f64::from(before[i])) as f32;
            }
            out[(t * batch + b) * h..][..h].copy_from_slice(&y[b * h..(b + 1) * h]);
        }
    }
    Ok(Tensor::from_f32([len, batch, h], out)?)
}

/// Of `[q, k, v, decay, rate]`, or `[q, k, v, step, rate, speed, bias]`, the result, and the matrices `[batch, heads, keys, values]` after the
/// last position; they begin as `before`, or zero.
pub(crate) fn gated_delta(operands: &[&Tensor], before: Option<&[f32]>) -> Result<(Tensor, Vec<f32>)> {
    match *operands {
        [q, k, v, decay, rate] => delta_rule([q, k, v, decay, rate], before),
        [q, k, v, step, rate, speed, bias] => {
            let step = elementwise::binary(BinaryFn::Add, step, bias)?;
            let step = elementwise::unary(UnaryFn::Softplus, &step)?;
            let decay = elementwise::binary(BinaryFn::Mul, &step, speed)?;
            let decay = elementwise::unary(UnaryFn::Exp, &decay)?;
            let rate = elementwise::unary(UnaryFn::Sigmoid, rate)?;
            delta_rule([q, k, v, &decay, &rate], before)
        }
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("expected 5 or 7 operands, found {}", operands.len()),
        )),
    }
}

fn delta_rule([q, k, v, decay, rate]: [&Tensor; 5], before: Option<&[f32]>) -> Result<(Tensor, Vec<f32>)> {
    let (&[batch, len, key_heads, keys], &[_, _, heads, values]) = (q.shape(), v.shape()) else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "queries and values have four axes".to_owned(),
        ));
    };
    let group = heads.checked_div(key_heads).unwrap_or(1).max(1);
    let [q, k, decay, rate] = [q.as_f32()?, k.as_f32()?, decay.as_f32()?, rate.as_f32()?];
    let mut out = vec![0f32; batch * len * heads * values];
    let (v, mut after) = (v.as_f32()?, Vec::new());
    for b in 0..batch {
        for h in 0..heads {
            let mut s: Vec<f64> = match before.and_then(|x| x.get((b * heads + h) * keys * values..)) {
                Some(x) => x[..keys * values].iter().map(|&x| x.into()).collect(),
                None => vec![0f64; keys * values],
            };
            for t in 0..len {
                let at = (b * len + t) * heads + h;
                let key = (b * len + t) * key_heads + h / group;
                let (q, k) = (&q[key * keys..][..keys], &k[key * keys..][..keys]);
                let v = &v[at * values..][..values];
                for j in 0..values {
                    let column =
                        |s: &[f64], x: &[f32]| (0..keys).map(|i| s[i * values + j] * f64::from(x[i])).sum::<f64>();
                    for i in 0..keys {
                        s[i * values + j] *= f64::from(decay[at]);
                    }
                    let new = f64::from(rate[at]) * (f64::from(v[j]) - column(&s, k));
                    for i in 0..keys {
                        s[i * values + j] += f64::from(k[i]) * new;
                    }
                    out[at * values + j] = column(&s, q) as f32;
                }
            }
            after.extend(s.iter().map(|&x| x as f32));
        }
    }
    Ok((Tensor::from_f32([batch, len, heads, values], out)?, after))
}
