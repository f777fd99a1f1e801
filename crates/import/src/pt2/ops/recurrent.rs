//! Recurrent layers: the products with the inputs are one linear for all steps, what is left goes step by step.

use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, Dim, Literal, Op, ReduceFn, UnaryFn, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("lstm.input", |im, c| layers(im, c, true)),
    ("gru.input", |im, c| layers(im, c, false)),
    ("lstm_cell", lstm_cell),
    ("gru_cell", gru_cell),
    ("cactus.linear_recurrence", linear_recurrence),
    ("cactus.gated_delta_rule", gated_delta_rule),
];

const DELTA_RULE: Op = Op::GatedDelta {
    steps: false,
    state: None,
};

/// Weights of one direction of one layer.
struct Weights {
    input: ValueId,
    recurrent: ValueId,
    biases: Option<(ValueId, ValueId)>,
}

/// One direction over `x [seq, batch, in]`: the outputs of every step `[seq, batch, h]`, and the last states `[batch, h]`.
fn direction(
    im: &mut Importer<'_>,
    x: ValueId,
    w: &Weights,
    h0: ValueId,
    c0: Option<ValueId>,
    reverse: bool,
) -> Result<(ValueId, Vec<ValueId>)> {
    let Some(width) = im.shape(w.recurrent).get(1).and_then(Dim::as_known) else {
        return unsupported("a recurrent layer of a width that varies");
    };
    let steps = im.shape(x)[0].clone();
    let (gates, all) = match c0 {
        Some(c0) => {
            let mut gates = im.op(Op::Linear, &[x, w.input])?;
            // Both biases are added to the same sum.
            if let Some((a, b)) = w.biases {
                let bias = im.binary(BinaryFn::Add, a, b)?;
                gates = im.binary(BinaryFn::Add, gates, bias)?;
            }
            (gates, im.op(Op::Lstm { reverse }, &[gates, w.recurrent, h0, c0])?)
        }
        None => {
            let mut inputs = vec![x, w.input];
            inputs.extend(w.biases.map(|b| b.0));
            let gates = im.op(Op::Linear, &inputs)?;
            let bias = match w.biases {
                Some((_, b)) => b,
                None => {
                    let zeros = Literal::F32(vec![0.0; 3 * width]);
                    im.b.literal(&[3 * width], zeros).map_err(invalid)?
                }
            };
            (gates, im.op(Op::Gru { reverse }, &[gates, w.recurrent, bias, h0])?)
        }
    };
    let _ = gates;
    let (first, end) = match reverse {
        true => (Dim::known(0), Dim::known(1)),
        false => (steps.sub(&Dim::known(1)).map_err(invalid)?, steps),
    };
    let last = im.slice(all, 0, first, end)?;
    let batch = im.shape(all)[1].clone();
    let mut states = Vec::new();
    let parts = if c0.is_some() { 2 } else { 1 };
    for i in 0..parts {
        let part = im.slice(last, 2, Dim::known(i * width), Dim::known((i + 1) * width))?;
        states.push(im.reshape(part, vec![batch.clone(), Dim::known(width)])?);
    }
    let outputs = im.slice(all, 2, Dim::known(0), Dim::known(width))?;
    Ok((outputs, states))
}

fn layers(im: &mut Importer<'_>, call: &Call, lstm: bool) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("input")?;
    let first = match lstm {
        true => call.tensors("hx")?,
        false => vec![call.tensor("hx")?],
    };
    let params = call.tensors("params")?;
    let biased = call.flag("has_biases", true)?;
    let count = usize::try_from(call.integer("num_layers", None)?).unwrap_or(0);
    call.ignore(&["dropout"]);
    if call.flag("train", false)? {
        return unsupported("a recurrent layer in training mode; call eval() on the module first");
    }
    let directions = if call.flag("bidirectional", false)? { 2 } else { 1 };
    let batch_first = call.flag("batch_first", false)?;
    let each = if biased { 4 } else { 2 };
    if params.len() != count * directions * each || count == 0 || count > 1 << 10 || (lstm && first.len() != 2) {
        return unsupported(format!(
            "{} weights for {count} layers (projections are not supported)",
            params.len()
        ));
    }
    let flat = im.rank(x) == 2;
    if flat {
        x = im.unsqueeze(x, usize::from(!batch_first))?;
    }
    if batch_first {
        x = im.permute(x, vec![1, 0, 2])?;
    }
    let mut last: [Vec<ValueId>; 2] = [Vec::new(), Vec::new()];
    for layer in 0..count {
        let mut outputs = Vec::new();
        for d in 0..directions {
            let at = layer * directions + d;
            let p = &params[at * each..(at + 1) * each];
            let weights = Weights {
                input: p[0],
                recurrent: p[1],
                biases: biased.then(|| (p[2], p[3])),
            };
            let mut start = Vec::new();
            for &s in &first {
                let part = im.slice(s, 0, Dim::known(at), Dim::known(at + 1))?;
                let shape = im.shape(part);
                // [1, batch, h], or [1, h] where there is no batch.
                let shape = if shape.len() == 3 { shape[1..].to_vec() } else { shape };
                start.push(im.reshape(part, shape)?);
            }
            let (y, states) = direction(im, x, &weights, start[0], start.get(1).copied(), d == 1)?;
            outputs.push(y);
            for (all, s) in last.iter_mut().zip(states) {
                let s = im.unsqueeze(s, 0)?;
                all.push(s);
            }
        }
        x = im.concat(&outputs, 2)?;
    }
    if batch_first {
        x = im.permute(x, vec![1, 0, 2])?;
    }
    let mut out = vec![x];
    for states in last.iter().filter(|s| !s.is_empty()) {
        out.push(im.concat(states, 0)?);
    }
    if flat {
        for (i, v) in out.iter_mut().enumerate() {
            let mut shape = im.shape(*v);
            shape.remove(if i == 0 { usize::from(!batch_first) } else { 1 });
            *v = im.reshape(*v, shape)?;
        }
    }
    Ok(out)
}

fn cell(im: &mut Importer<'_>, call: &Call, hx: &[ValueId]) -> Result<Vec<ValueId>> {
    let x = call.tensor("input")?;
    let (a, b) = (call.optional("b_ih")?, call.optional("b_hh")?);
    let weights = Weights {
        input: call.tensor("w_ih")?,
        recurrent: call.tensor("w_hh")?,
        biases: a.zip(b),
    };
    let x = im.unsqueeze(x, 0)?;
    Ok(direction(im, x, &weights, hx[0], hx.get(1).copied(), false)?.1)
}

fn lstm_cell(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let hx = call.tensors("hx")?;
    match hx.len() {
        2 => cell(im, call, &hx),
        n => unsupported(format!("{n} states of a cell that has 2")),
    }
}

fn gru_cell(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let hx = call.tensor("hx")?;
    cell(im, call, &[hx])
}

/// The operation that the capture puts in the place of transformers' function: logarithmic decays, heads of keys that serve
/// several of values, queries scaled by the root of the width.
fn gated_delta_rule(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let [mut q, mut k, v] = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let (g, rate) = (call.tensor("g")?, call.tensor("beta")?);
    if call.flag("l2norm", false)? {
        q = unit(im, q)?;
        k = unit(im, k)?;
    }
    let sizes = |im: &Importer<'_>, x: ValueId| match im.shape(x)[..] {
        [_, _, ref heads, ref width] => heads.as_known().zip(width.as_known()).filter(|&(h, w)| h > 0 && w > 0),
        _ => None,
    };
    let (Some((key_heads, width)), Some((heads, _))) = (sizes(im, q), sizes(im, v)) else {
        return unsupported("heads of numbers or widths that vary");
    };
    if heads % key_heads != 0 {
        return unsupported(format!("{heads} heads of values over {key_heads} of keys"));
    }
    let q = super::elementwise::scaled(im, q, 1.0 / (width as f64).sqrt())?;
    let decay = im.unary(UnaryFn::Exp, g)?;
    Ok(vec![im.op(DELTA_RULE, &[q, k, v, decay, rate])?])
}

/// A recurrence without the correction of the delta rule, as that rule with a rate so small that what is there does not
/// count beside what is new: `rate (v/rate - Sᵀ k)` is `v` in every bit unless `Sᵀ k` is 2³⁶ times as large, as the rate is a
/// power of two. It costs the product `Sᵀ k`, which nobody needs.
fn linear_recurrence(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    const RATE: f64 = 1.0 / (1u64 << 60) as f64;
    let [q, k, v] = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let decay = call.tensor("decay")?;
    let v = super::elementwise::scaled(im, v, 1.0 / RATE)?;
    let rate = im.scalar(RATE)?;
    let rate = im.expand(rate, im.shape(decay))?;
    Ok(vec![im.op(DELTA_RULE, &[q, k, v, decay, rate])?])
}

/// `x / sqrt(sum(x²) + 1e-6)` over the last axis.
fn unit(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    let last = im.rank(x) - 1;
    let square = im.binary(BinaryFn::Mul, x, x)?;
    let sum = im.reduce(ReduceFn::Sum, square, &[last], true)?;
    let small = im.scalar(1e-6)?;
    let sum = im.binary(BinaryFn::Add, sum, small)?;
    let root = im.unary(UnaryFn::Rsqrt, sum)?;
    im.binary(BinaryFn::Mul, x, root)
}
