//! Result types of alternating updates. A part of `infer`.

use crate::infer::{all_f32, operands, rank};
use crate::{Error, Result, TensorType};

/// `(streams, routes, factors)`.
pub(crate) fn predicted(inputs: &[&TensorType]) -> Result<TensorType> {
    let [streams, routes, factors] = operands(inputs)?;
    all_f32(inputs)?;
    check(streams, routes, factors, |n| n.checked_mul(n))?;
    Ok(streams.clone())
}

/// `(predictions, x, routes, factors)`.
pub(crate) fn corrected(inputs: &[&TensorType], active: usize) -> Result<TensorType> {
    let [predictions, x, routes, factors] = operands(inputs)?;
    all_f32(inputs)?;
    let n = check(predictions, routes, factors, Some)?;
    rank(x, 3, "what became of a stream")?;
    let fits = x.shape[..2] == predictions.shape[..2] && x.shape[2] == predictions.shape[3];
    if !fits || active >= n {
        return Err(Error::ty(format!("{x} is not stream {active} of {predictions}")));
    }
    Ok(predictions.clone())
}

/// The number of streams, of which `rows` makes the rows of the factors.
fn check(
    streams: &TensorType,
    routes: &TensorType,
    factors: &TensorType,
    rows: impl Fn(usize) -> Option<usize>,
) -> Result<usize> {
    rank(streams, 4, "the streams")?;
    rank(factors, 2, "the factors")?;
    let n = streams.shape[2].as_known().filter(|&n| n > 0);
    let fits = routes.shape == streams.shape[..3];
    match n.filter(|_| fits).and_then(|n| Some((n, rows(n)?))) {
        Some((n, rows)) if factors.shape[0].is(rows) && factors.shape[1].is(n) => Ok(n),
        _ => Err(Error::ty(format!(
            "streams {streams}, routes {routes}, factors {factors} do not fit"
        ))),
    }
}
