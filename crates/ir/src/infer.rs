//! Result types: the one definition, used by builder, rewriter, verifier and lowering.

use crate::{
    Activation, BinaryFn, Dim, Error, Op, ReduceFn, Result, TensorType, UnaryFn, infer_experts, infer_streams,
    infer_windows,
};
use cactus_tensor::DType;

/// The type of the result of `op` on operands of types `inputs`.
///
/// # Errors
/// [`crate::ErrorKind::Type`] saying what the operation expects and what it was given.
pub fn infer(op: &Op, inputs: &[&TensorType]) -> Result<TensorType> {
    infer_inner(op, inputs).map_err(|e| e.at(op.mnemonic()))
}

fn infer_inner(op: &Op, inputs: &[&TensorType]) -> Result<TensorType> {
    match op {
        Op::Unary { f } => {
            let [x] = operands(inputs)?;
            match f {
                UnaryFn::Not => dtype(x, DType::Bool, "the operand")?,
                UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Sign => number(x)?,
                _ => dtype(x, DType::F32, "the operand")?,
            }
            Ok(x.clone())
        }
        Op::Binary { f } => {
            let [a, b] = operands(inputs)?;
            same_dtype(a, b)?;
            let logical = matches!(f, BinaryFn::And | BinaryFn::Or);
            if logical != (a.dtype == DType::Bool) || (f.is_bitwise() && a.dtype != DType::I64) {
                return Err(Error::ty(format!("cannot work on {}", a.dtype)));
            }
            Ok(TensorType::new(a.dtype, broadcast(&a.shape, &b.shape)?))
        }
        Op::Compare { .. } => {
            let [a, b] = operands(inputs)?;
            same_dtype(a, b)?;
            Ok(TensorType::new(DType::Bool, broadcast(&a.shape, &b.shape)?))
        }
        Op::Where => {
            let [c, a, b] = operands(inputs)?;
            dtype(c, DType::Bool, "the condition")?;
            same_dtype(a, b)?;
            let shape = broadcast(&c.shape, &broadcast(&a.shape, &b.shape)?)?;
            Ok(TensorType::new(a.dtype, shape))
        }
        Op::Cast { dtype } => {
            let [x] = operands(inputs)?;
            Ok(TensorType::new(*dtype, x.shape.clone()))
        }
        Op::Reduce { f, axes, keepdim } => {
            let [x] = operands(inputs)?;
            match f {
                ReduceFn::Mean => dtype(x, DType::F32, "the operand")?,
                _ => number(x)?,
            }
            if axes.is_empty() || axes.windows(2).any(|w| w[0] >= w[1]) {
                return Err(Error::ty(format!("axes {axes:?} are not ascending")));
            }
            for &a in axes {
                axis(x, a)?;
            }
            let shape = x
                .shape
                .iter()
                .enumerate()
                .filter_map(|(i, d)| match (axes.contains(&i), *keepdim) {
                    (false, _) => Some(d.clone()),
                    (true, true) => Some(Dim::known(1)),
                    (true, false) => None,
                });
            Ok(TensorType::new(x.dtype, shape.collect::<Vec<_>>()))
        }
        Op::Softmax { axis: a } => {
            let [x] = operands(inputs)?;
            dtype(x, DType::F32, "the operand")?;
            axis(x, *a)?;
            Ok(x.clone())
        }
        Op::ArgReduce { f, axis: a, keepdim } => {
            let [x] = operands(inputs)?;
            number(x)?;
            axis(x, *a)?;
            if !matches!(f, ReduceFn::Max | ReduceFn::Min) {
                return Err(Error::ty("expected max or min"));
            }
            let mut shape = x.shape.clone();
            if *keepdim {
                shape[*a] = Dim::known(1);
            } else {
                shape.remove(*a);
            }
            Ok(TensorType::new(DType::I64, shape))
        }
        Op::CumSum { axis: a } => {
            let [x] = operands(inputs)?;
            number(x)?;
            axis(x, *a)?;
            Ok(x.clone())
        }
        Op::ArgSort { axis: a, .. } => {
            let [x] = operands(inputs)?;
            number(x)?;
            axis(x, *a)?;
            Ok(TensorType::new(DType::I64, x.shape.clone()))
        }
        Op::Reshape { shape } => {
            let [x] = operands(inputs)?;
            if element_key(&x.shape)? != element_key(shape)? {
                return Err(Error::ty(format!(
                    "{x} does not have the elements of [{}]",
                    join(shape)
                )));
            }
            Ok(TensorType::new(x.dtype, shape.clone()))
        }
        Op::Permute { perm } => {
            let [x] = operands(inputs)?;
            let mut seen = vec![false; x.shape.len()];
            let valid = perm.len() == seen.len()
                && perm
                    .iter()
                    .all(|&p| p < seen.len() && !std::mem::replace(&mut seen[p], true));
            if !valid {
                return Err(Error::ty(format!("{perm:?} is not an order of the axes of {x}")));
            }
            let shape: Vec<Dim> = perm.iter().map(|&p| x.shape[p].clone()).collect();
            Ok(TensorType::new(x.dtype, shape))
        }
        Op::Slice { axis: a, start, end } => {
            let [x] = operands(inputs)?;
            let size = axis(x, *a)?;
            let inside = match (start.as_known(), end.as_known(), size.as_known()) {
                (Some(s), Some(e), Some(n)) => s <= e && e <= n,
                (Some(s), Some(e), None) => s <= e,
                _ => true,
            };
            if !inside {
                return Err(Error::ty(format!("{start}..{end} is outside axis {a} of {x}")));
            }
            let mut shape = x.shape.clone();
            shape[*a] = end.sub(start)?;
            Ok(TensorType::new(x.dtype, shape))
        }
        Op::Concat { axis: a } => {
            let Some(first) = inputs.first() else {
                return Err(Error::ty("needs at least one operand"));
            };
            axis(first, *a)?;
            let mut shape = first.shape.clone();
            for x in &inputs[1..] {
                same_dtype(first, x)?;
                let fits = x.shape.len() == shape.len() && (0..shape.len()).all(|i| i == *a || x.shape[i] == shape[i]);
                if !fits {
                    return Err(Error::ty(format!("cannot join {first} and {x} at axis {a}")));
                }
                shape[*a] = shape[*a].add(&x.shape[*a])?;
            }
            Ok(TensorType::new(first.dtype, shape))
        }
        Op::Expand { shape } => {
            let [x] = operands(inputs)?;
            if broadcast(&x.shape, shape)? != *shape {
                return Err(Error::ty(format!("{x} does not expand to [{}]", join(shape))));
            }
            Ok(TensorType::new(x.dtype, shape.clone()))
        }
        Op::Iota { len, .. } => {
            let [] = operands(inputs)?;
            Ok(TensorType::new(DType::I64, vec![len.clone()]))
        }
        Op::Embedding => {
            let [table, ids] = operands(inputs)?;
            dtype(table, DType::F32, "the table")?;
            dtype(ids, DType::I64, "the indices")?;
            rank(table, 2, "the table")?;
            let mut shape = ids.shape.clone();
            shape.push(table.shape[1].clone());
            Ok(TensorType::new(DType::F32, shape))
        }
        Op::Take { axis: a } => {
            let [x, ids] = operands(inputs)?;
            dtype(ids, DType::I64, "the indices")?;
            axis(x, *a)?;
            let mut shape = x.shape.clone();
            shape.splice(*a..=*a, ids.shape.iter().cloned());
            Ok(TensorType::new(x.dtype, shape))
        }
        Op::Gather { axis: a } => {
            let [x, ids] = operands(inputs)?;
            along(x, ids, *a)?;
            Ok(TensorType::new(x.dtype, ids.shape.clone()))
        }
        Op::Scatter { axis: a, add } => {
            let [x, ids, updates] = operands(inputs)?;
            along(x, ids, *a)?;
            same_dtype(x, updates)?;
            if updates.shape != ids.shape {
                return Err(Error::ty(format!("updates {updates} do not fit the indices {ids}")));
            }
            if *add {
                number(x)?;
            }
            Ok(x.clone())
        }
        Op::Linear => {
            let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
            at_most(inputs, 3)?;
            all_f32(inputs)?;
            rank(w, 2, "the weight")?;
            if x.shape.last() != Some(&w.shape[1]) {
                return Err(Error::ty(format!("{x} does not fit the weight {w}")));
            }
            if let Some(b) = inputs.get(2) {
                vector(b, &w.shape[0], "the bias")?;
            }
            let mut shape = x.shape.clone();
            shape.pop();
            shape.push(w.shape[0].clone());
            Ok(TensorType::new(DType::F32, shape))
        }
        Op::MatMul => {
            let [a, b] = operands(inputs)?;
            all_f32(inputs)?;
            let (ra, rb) = (a.shape.len(), b.shape.len());
            if ra < 2 || rb < 2 || a.shape[ra - 1] != b.shape[rb - 2] {
                return Err(Error::ty(format!("cannot multiply {a} by {b}")));
            }
            let mut shape = broadcast(&a.shape[..ra - 2], &b.shape[..rb - 2])?;
            shape.push(a.shape[ra - 2].clone());
            shape.push(b.shape[rb - 1].clone());
            Ok(TensorType::new(DType::F32, shape))
        }
        Op::Conv1d {
            groups,
            pad_left,
            pad_right,
        } => conv1d(inputs, *groups, *pad_left, *pad_right),
        Op::Conv(attrs) => infer_windows::conv(inputs, attrs),
        Op::ConvTranspose { conv, output_padding } => infer_windows::conv_transpose(inputs, conv, output_padding),
        Op::Pool(attrs) => infer_windows::pool(inputs, attrs),
        Op::Lstm { .. } => {
            let [gates, w, h0, c0] = operands(inputs)?;
            all_f32(inputs)?;
            let (mut out, h) = recurrent(gates, w, h0, 4)?;
            if c0.shape != h0.shape {
                return Err(Error::ty(format!("the cell {c0} does not fit the output {h0}")));
            }
            out.shape[2] = h.add(&h)?;
            Ok(out)
        }
        Op::Gru { .. } => {
            let [gates, w, bias, h0] = operands(inputs)?;
            all_f32(inputs)?;
            let (mut out, h) = recurrent(gates, w, h0, 3)?;
            vector(bias, &gates.shape[2], "the bias")?;
            out.shape[2] = h;
            Ok(out)
        }
        Op::GatedDelta { steps, .. } => {
            let (of_positions, of_heads) = inputs.split_at(inputs.len().min(5));
            let [q, k, v, decay, rate] = operands(of_positions)?;
            all_f32(inputs)?;
            if of_heads.len() != if *steps { 2 } else { 0 } {
                let what = "speeds and biases of heads belong to steps, and steps to them";
                return Err(Error::ty(what));
            }
            for t in of_heads {
                rank(v, 4, "the value")?;
                vector(t, &v.shape[2], "each of speeds and biases")?;
            }
            rank(q, 4, "the query")?;
            rank(v, 4, "the value")?;
            let heads = (q.shape[2].as_known(), v.shape[2].as_known());
            let grouped = matches!(heads, (Some(keys), Some(all)) if keys > 0 && all % keys == 0);
            let fits = q.shape == k.shape
                && q.shape[..2] == v.shape[..2]
                && (grouped || q.shape[2] == v.shape[2])
                && decay.shape == v.shape[..3]
                && rate.shape == v.shape[..3];
            if !fits {
                return Err(Error::ty(format!(
                    "query {q}, key {k}, value {v}, decay {decay}, rate {rate} do not fit"
                )));
            }
            Ok(v.clone())
        }
        Op::RmsNorm { .. } => {
            let [x, w] = operands(inputs)?;
            all_f32(inputs)?;
            vector(w, last(x)?, "the weight")?;
            Ok(x.clone())
        }
        Op::LayerNorm { .. } => {
            let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
            at_most(inputs, 3)?;
            all_f32(inputs)?;
            let of_heads = w.shape.len() == 2 && x.shape.ends_with(&w.shape);
            if !of_heads {
                vector(w, last(x)?, "the weight")?;
            }
            match inputs.get(2) {
                Some(b) if b.shape != w.shape => Err(Error::ty(format!("the bias {b} is not like the weight {w}"))),
                _ => Ok(x.clone()),
            }
        }
        Op::Rope { .. } => {
            let [x, pos, freq] = operands(inputs)?;
            dtype(x, DType::F32, "the operand")?;
            dtype(pos, DType::I64, "the positions")?;
            dtype(freq, DType::F32, "the frequencies")?;
            rank(x, 4, "the operand")?;
            let axes = match &pos.shape[..] {
                [n, axes] if *n == x.shape[1] => axes.as_known().filter(|&axes| axes > 0),
                _ => {
                    vector(pos, &x.shape[1], "the positions")?;
                    None
                }
            };
            let fits = match (freq.known_shape().as_deref(), x.last_known()) {
                (Some(&[half]), Some(d)) if pos.shape.len() == 1 => half.checked_mul(2).is_some_and(|r| r <= d),
                (Some(&[of, half]), Some(d)) if axes == Some(of) => half.checked_mul(2).is_some_and(|r| r <= d),
                _ => false,
            };
            if !fits {
                return Err(Error::ty(format!("frequencies {freq} do not fit {x}")));
            }
            Ok(x.clone())
        }
        Op::NormRope { scale, .. } => {
            let [x, w, pos, freq] = operands(inputs)?;
            dtype(w, DType::F32, "the weight")?;
            vector(w, last(x)?, "the weight")?;
            let (scale, interleaved) = (*scale, false);
            infer_inner(&Op::Rope { scale, interleaved }, &[x, pos, freq])
        }
        Op::NormAdd { .. } => {
            let [residual, x, w] = operands(inputs)?;
            all_f32(inputs)?;
            vector(w, last(x)?, "the weight")?;
            if residual.shape != x.shape {
                return Err(Error::ty(format!(
                    "{x} cannot be added to {residual} element by element"
                )));
            }
            Ok(residual.clone())
        }
        Op::NormGate { activation, .. } => {
            let [x, gate, w] = operands(inputs)?;
            all_f32(inputs)?;
            unary_activation(*activation)?;
            vector(w, last(x)?, "the weight")?;
            if gate.shape != x.shape {
                return Err(Error::ty(format!("{x} has another shape than its gate {gate}")));
            }
            Ok(x.clone())
        }
        Op::AltupPredict => infer_streams::predicted(inputs),
        Op::AltupCorrect { active } => infer_streams::corrected(inputs, *active),
        Op::SliceAdd { axis: a, start, end } => {
            let [x, y] = operands(inputs)?;
            all_f32(inputs)?;
            let inside = axis(x, *a)?.as_known().is_some_and(|n| start <= end && *end <= n);
            let mut part = x.shape.clone();
            if inside {
                part[*a] = Dim::known(end - start);
            }
            if !inside || broadcast(&y.shape, &part)? != part {
                return Err(Error::ty(format!(
                    "{y} cannot be added to {start}..{end} of axis {a} of {x}"
                )));
            }
            Ok(x.clone())
        }
        Op::Attention(attrs) => {
            let (q, k, v) = (operand(inputs, 0)?, operand(inputs, 1)?, operand(inputs, 2)?);
            let bias = attrs.bias_operand();
            at_most(inputs, bias + 1)?;
            for (i, t) in inputs
                .iter()
                .enumerate()
                .filter(|(i, _)| ![attrs.texts_operand(), attrs.until_operand()].contains(&Some(*i)))
            {
                dtype(
                    t,
                    DType::F32,
                    if i < 3 {
                        "each of queries, keys and values"
                    } else {
                        "each operand"
                    },
                )?;
            }
            for t in [q, k, v].into_iter().chain(inputs.get(bias).copied()) {
                rank(t, 4, "queries, keys, values and bias")?;
            }
            if attrs.span() == Some(0) || attrs.ahead == Some(0) {
                return Err(Error::ty("queries see no key: the window or the chunk has 0 positions"));
            }
            if attrs.ahead.is_some() && attrs.state.is_some() {
                return Err(Error::ty("attention with a state sees no later positions"));
            }
            if attrs.appended && attrs.state.is_none() {
                return Err(Error::ty("attention to what was appended needs the state that has it"));
            }
            if attrs.integers && !attrs.is_bare(inputs.len()) {
                return Err(Error::ty(
                    "attention on integers takes queries, keys and values alone, without mask, cap and state",
                ));
            }
            let heads = (q.shape[2].as_known(), k.shape[2].as_known());
            let grouped = matches!(heads, (Some(h), Some(kv)) if kv > 0 && h % kv == 0);
            let fits = q.shape[0] == k.shape[0]
                && q.shape[3] == k.shape[3]
                && q.last_known().is_some()
                && k.shape == v.shape
                && (attrs.state.is_none() || q.shape[1] == k.shape[1]);
            if !grouped || !fits {
                return Err(Error::ty(format!("queries {q}, keys {k}, values {v} do not fit")));
            }
            for (at, name) in [(attrs.sinks_operand(), "sinks"), (attrs.slopes_operand(), "slopes")] {
                let Some(at) = at else { continue };
                let each = operand(inputs, at)?;
                if each.shape[..] != q.shape[2..3] {
                    return Err(Error::ty(format!("the {name} {each} are not one for each head of {q}")));
                }
            }
            if let Some(at) = attrs.texts_operand() {
                let texts = operand(inputs, at)?;
                dtype(texts, DType::I64, "the numbers of texts")?;
                let one_each = texts.shape[..] == q.shape[1..2] && q.shape[1] == k.shape[1] && q.shape[0].is(1);
                if !one_each {
                    return Err(Error::ty(format!(
                        "the texts {texts} are not a number for each position of {q} and {k}, with a batch of 1"
                    )));
                }
                if attrs.state.is_some() || attrs.chunk.is_some() || inputs.len() > bias {
                    return Err(Error::ty("attention within texts takes no state, chunk or bias"));
                }
            }
            if let Some(at) = attrs.until_operand() {
                let until = operand(inputs, at)?;
                dtype(until, DType::I64, "the last positions that are seen")?;
                if until.shape[..] != q.shape[1..2] {
                    return Err(Error::ty(format!(
                        "the last positions {until} are not one for each query of {q}"
                    )));
                }
                if !attrs.causal || attrs.texts || attrs.chunk.is_some() || inputs.len() > bias {
                    return Err(Error::ty(
                        "attention up to a given position is causal, and takes no texts, chunks or bias",
                    ));
                }
            }
            if let Some(bias) = inputs.get(bias) {
                let scores = [&q.shape[0], &q.shape[2], &q.shape[1], &k.shape[1]];
                let mut sizes = bias.shape.iter().zip(scores).enumerate();
                if !sizes.all(|(axis, (size, full))| size == full || axis < 3 && size.is(1)) {
                    return Err(Error::ty(format!(
                        "the bias {bias} does not fit queries {q} and keys {k}"
                    )));
                }
                if attrs.state.is_some() {
                    return Err(Error::ty("attention with a state takes no bias"));
                }
            }
            Ok(q.clone())
        }
        Op::Experts { .. } => infer_experts::experts(inputs),
        Op::RoutedExperts { route, .. } => infer_experts::routed(route, inputs),
        Op::Gated { .. } if inputs.len() == 2 => {
            let [gate, up] = operands(inputs)?;
            all_f32(inputs)?;
            last(gate)?;
            match gate.shape == up.shape {
                true => Ok(up.clone()),
                false => Err(Error::ty(format!("{gate} is no gate of {up}"))),
            }
        }
        Op::Gated { .. } => {
            let [x] = operands(inputs)?;
            dtype(x, DType::F32, "the operand")?;
            match x.last_known() {
                Some(n) if n % 2 == 0 => {
                    let mut out = x.clone();
                    if let Some(d) = out.shape.last_mut() {
                        *d = Dim::known(n / 2);
                    }
                    Ok(out)
                }
                _ => Err(Error::ty(format!("the last axis of {x} cannot be halved"))),
            }
        }
        Op::ShortConv { activation, .. } => {
            activation.map_or(Ok(()), unary_activation)?;
            let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
            at_most(inputs, 3)?;
            all_f32(inputs)?;
            rank(x, 3, "the operand")?;
            rank(w, 2, "the weight")?;
            let kernel = w.shape[1].as_known();
            if w.shape[0] != x.shape[2] || kernel.is_none_or(|k| k == 0) {
                return Err(Error::ty(format!("{x} does not fit the weight {w}")));
            }
            if let Some(b) = inputs.get(2) {
                vector(b, &x.shape[2], "the bias")?;
            }
            Ok(x.clone())
        }
    }
}

/// Refuses an activation that changes more than its operand.
fn unary_activation(activation: Activation) -> Result<()> {
    match activation.unary() {
        Some(_) => Ok(()),
        None => Err(Error::ty("the activation is of gated units alone")),
    }
}

fn conv1d(inputs: &[&TensorType], groups: usize, pad_left: usize, pad_right: usize) -> Result<TensorType> {
    let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
    at_most(inputs, 3)?;
    all_f32(inputs)?;
    rank(x, 3, "the operand")?;
    let fits = match (w.known_shape().as_deref(), x.shape[1].as_known()) {
        (Some(&[out, per_group, kernel]), Some(channels)) => {
            groups > 0 && kernel > 0 && channels % groups == 0 && out % groups == 0 && per_group == channels / groups
        }
        _ => false,
    };
    if !fits {
        return Err(Error::ty(format!("{x} does not fit the weight {w} in {groups} groups")));
    }
    if let Some(b) = inputs.get(2) {
        vector(b, &w.shape[0], "the bias")?;
    }
    let one = Dim::known(1);
    let length = x.shape[2]
        .add(&Dim::known(pad_left))?
        .add(&Dim::known(pad_right))?
        .sub(&w.shape[2])?
        .add(&one)?;
    Ok(TensorType::new(
        DType::F32,
        vec![x.shape[0].clone(), w.shape[0].clone(), length],
    ))
}

pub(crate) fn operands<'a, const N: usize>(inputs: &[&'a TensorType]) -> Result<[&'a TensorType; N]> {
    <[&TensorType; N]>::try_from(inputs).map_err(|_| Error::ty(format!("needs {N} operands, found {}", inputs.len())))
}

pub(crate) fn operand<'a>(inputs: &[&'a TensorType], i: usize) -> Result<&'a TensorType> {
    inputs
        .get(i)
        .copied()
        .ok_or_else(|| Error::ty(format!("needs more than {i} operands")))
}

pub(crate) fn at_most(inputs: &[&TensorType], n: usize) -> Result<()> {
    if inputs.len() > n {
        return Err(Error::ty(format!("takes {n} operands, found {}", inputs.len())));
    }
    Ok(())
}

pub(crate) fn dtype(t: &TensorType, want: DType, what: &str) -> Result<()> {
    if t.dtype != want {
        return Err(Error::ty(format!("{what} must be {want}, found {t}")));
    }
    Ok(())
}

pub(crate) fn all_f32(inputs: &[&TensorType]) -> Result<()> {
    inputs.iter().try_for_each(|t| dtype(t, DType::F32, "each operand"))
}

fn number(t: &TensorType) -> Result<()> {
    if !matches!(t.dtype, DType::F32 | DType::I64) {
        return Err(Error::ty(format!("the operand must be f32 or i64, found {t}")));
    }
    Ok(())
}

/// Whether `ids` index `axis` of `x` and are nowhere else larger than it, as far as sizes are known.
fn along(x: &TensorType, ids: &TensorType, a: usize) -> Result<()> {
    dtype(ids, DType::I64, "the indices")?;
    axis(x, a)?;
    let inside = |(i, (d, n)): (usize, (&Dim, &Dim))| {
        i == a || d == n || matches!((d.as_known(), n.as_known()), (Some(d), Some(n)) if d <= n)
    };
    if ids.shape.len() != x.shape.len() || !ids.shape.iter().zip(&x.shape).enumerate().all(inside) {
        return Err(Error::ty(format!("indices {ids} do not fit axis {a} of {x}")));
    }
    Ok(())
}

/// The type of `gates`, and the width of the hidden state of a recurrent layer of `n` gates.
fn recurrent(gates: &TensorType, w: &TensorType, h0: &TensorType, n: usize) -> Result<(TensorType, Dim)> {
    rank(gates, 3, "the gates")?;
    rank(w, 2, "the weight")?;
    rank(h0, 2, "the first output")?;
    let h = w.shape[1].as_known().filter(|&h| h > 0);
    let fits = h.and_then(|h| h.checked_mul(n)).is_some_and(|all| w.shape[0].is(all))
        && gates.shape[2] == w.shape[0]
        && h0.shape[0] == gates.shape[1]
        && h0.shape[1] == w.shape[1];
    if !fits {
        return Err(Error::ty(format!(
            "gates {gates}, weight {w}, first output {h0} do not fit"
        )));
    }
    Ok((gates.clone(), w.shape[1].clone()))
}

fn same_dtype(a: &TensorType, b: &TensorType) -> Result<()> {
    if a.dtype != b.dtype {
        return Err(Error::ty(format!("operands {a} and {b} differ in type")));
    }
    Ok(())
}

pub(crate) fn rank(t: &TensorType, n: usize, what: &str) -> Result<()> {
    if t.shape.len() != n {
        return Err(Error::ty(format!("{what} must have {n} axes, found {t}")));
    }
    Ok(())
}

fn axis(t: &TensorType, i: usize) -> Result<&Dim> {
    t.shape.get(i).ok_or_else(|| Error::ty(format!("{t} has no axis {i}")))
}

fn last(t: &TensorType) -> Result<&Dim> {
    t.shape.last().ok_or_else(|| Error::ty("the operand must have an axis"))
}

pub(crate) fn vector(t: &TensorType, n: &Dim, what: &str) -> Result<()> {
    if t.shape.len() != 1 || t.shape[0] != *n {
        return Err(Error::ty(format!("{what} must be [{n}], found {t}")));
    }
    Ok(())
}

fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let n = a.len().max(b.len());
    let one = Dim::known(1);
    let at = |s: &[Dim], i: usize| {
        (i + s.len())
            .checked_sub(n)
            .map_or_else(|| one.clone(), |j| s[j].clone())
    };
    (0..n)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (x, y) if x.is(1) => Ok(y),
            (x, y) if y.is(1) => Ok(x),
            _ => Err(Error::ty(format!(
                "[{}] and [{}] cannot be broadcast together",
                join(a),
                join(b)
            ))),
        })
        .collect()
}

/// A key equal for equal element counts: the product of fixed factors, and the sorted symbolic ones.
///
/// # Errors
/// [`crate::ErrorKind::Type`] on overflow.
pub fn element_key(shape: &[Dim]) -> Result<(usize, Vec<Dim>)> {
    let overflow = || Error::ty("the element count overflows");
    let mut fixed = 1usize;
    let mut symbolic = Vec::new();
    for d in shape {
        let (factor, rest) = match d.as_known() {
            Some(n) => (n, None),
            None => {
                let factor = d.content();
                (factor, Some(d.floor_div(factor)?))
            }
        };
        fixed = fixed.checked_mul(factor).ok_or_else(overflow)?;
        symbolic.extend(rest);
    }
    symbolic.sort();
    Ok((fixed, symbolic))
}

pub(crate) fn join(shape: &[Dim]) -> String {
    shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")
}
