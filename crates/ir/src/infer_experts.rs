//! Result types of experts, routed or not. A part of `infer`.

use crate::infer::{all_f32, at_most, dtype, operand, vector};
use crate::{Dim, Error, Result, Route, TensorType};
use cactus_tensor::DType;

/// `(x, ids, shares, gate_up, down, gate_up_bias?, down_bias?)`.
pub(crate) fn experts(inputs: &[&TensorType]) -> Result<TensorType> {
    at_most(inputs, 7)?;
    let [x, ids, shares, gate_up, down] = [0, 1, 2, 3, 4].map(|i| operand(inputs, i));
    let (x, ids, shares, gate_up, down) = (x?, ids?, shares?, gate_up?, down?);
    all_f32(&[x, shares, gate_up, down])?;
    dtype(ids, DType::I64, "the experts chosen")?;
    let same = ids.shape == shares.shape && ids.last_known().is_some() && leading(ids) == leading(x);
    let experts = count(x, gate_up, down).filter(|_| same);
    let Some(experts) = experts else {
        return Err(Error::ty(format!(
            "{x}, experts {ids}, shares {shares}, weights {gate_up} and {down} do not fit"
        )));
    };
    if inputs.len() > 5 {
        biases([operand(inputs, 5)?, operand(inputs, 6)?], [gate_up, down], experts)?;
    }
    Ok(x.clone())
}

/// `(x, scores, gate_up, down, bias?, factor?, gate_up_bias?, down_bias?)`.
pub(crate) fn routed(route: &Route, inputs: &[&TensorType]) -> Result<TensorType> {
    let most = 4 + usize::from(route.bias) + usize::from(route.factor) + 2 * usize::from(route.biases);
    at_most(inputs, most)?;
    all_f32(inputs)?;
    let (x, scores, gate_up, down) = (
        operand(inputs, 0)?,
        operand(inputs, 1)?,
        operand(inputs, 2)?,
        operand(inputs, 3)?,
    );
    let experts = count(x, gate_up, down).filter(|&n| scores.last_known() == Some(n));
    let Some(experts) = experts.filter(|_| leading(scores) == leading(x)) else {
        return Err(Error::ty(format!(
            "{x}, scores {scores}, weights {gate_up} and {down} do not fit"
        )));
    };
    if route.chosen == 0 || route.chosen > experts {
        return Err(Error::ty(format!(
            "{} of {experts} experts cannot be chosen",
            route.chosen
        )));
    }
    for (at, what) in [
        (route.bias_operand(), "the bias"),
        (route.factor_operand(), "the factor"),
    ] {
        if let Some(at) = at {
            vector(operand(inputs, at)?, &Dim::known(experts), what)?;
        }
    }
    if let Some(at) = route.biases_operands() {
        biases(
            [operand(inputs, at[0])?, operand(inputs, at[1])?],
            [gate_up, down],
            experts,
        )?;
    }
    Ok(x.clone())
}

/// Checks that experts have a bias for each row of these weights.
fn biases(found: [&TensorType; 2], weights: [&TensorType; 2], experts: usize) -> Result<()> {
    for (bias, weight) in found.into_iter().zip(weights) {
        all_f32(&[bias])?;
        let rows = weight
            .shape
            .first()
            .and_then(Dim::as_known)
            .map(|rows| rows / experts.max(1));
        if bias.known_shape() != rows.map(|rows| vec![experts, rows]) {
            return Err(Error::ty(format!(
                "the biases {bias} of {experts} experts do not fit the weights {weight}"
            )));
        }
    }
    Ok(())
}

fn leading(t: &TensorType) -> Option<&[Dim]> {
    t.shape.split_last().map(|(_, l)| l)
}

/// How many experts the weights have, where they fit each other and rows `x`.
fn count(x: &TensorType, gate_up: &TensorType, down: &TensorType) -> Option<usize> {
    match (gate_up.known_shape().as_deref(), down.known_shape().as_deref()) {
        (Some(&[rows, n]), Some(&[all, m])) => {
            let experts = all.checked_div(n).unwrap_or(0);
            let fits = x.last_known() == Some(n)
                && m > 0
                && experts > 0
                && all.is_multiple_of(n)
                && m.checked_mul(2).and_then(|g| g.checked_mul(experts)) == Some(rows);
            fits.then_some(experts)
        }
        _ => None,
    }
}
