//! Alternating updates, and sums with a part of a value, each as its definition in [`cactus_ir::Op`] reads.

use crate::{Result, elementwise, linear, shape};
use cactus_ir::{BinaryFn, UnaryFn};
use cactus_tensor::Tensor;

/// The factors of each position, `[batch, seq, rows of factors]`.
fn routed(routes: &Tensor, factors: &Tensor) -> Result<Tensor> {
    linear::linear(&elementwise::unary(UnaryFn::Tanh, routes)?, factors, None)
}

/// `x_i + sum_j f[i, j] x_j` of the streams `x`.
pub(crate) fn predicted(streams: &Tensor, routes: &Tensor, factors: &Tensor) -> Result<Tensor> {
    let [batch, seq, n, _] = sizes(streams);
    let factors = routed(routes, factors)?.reshaped([batch, seq, n, n])?;
    elementwise::binary(BinaryFn::Add, &linear::matmul(&factors, streams)?, streams)
}

/// `p_i + (1 + f_i) (x - p_active)` of the predictions `p`.
pub(crate) fn corrected(
    predictions: &Tensor,
    x: &Tensor,
    routes: &Tensor,
    factors: &Tensor,
    active: usize,
) -> Result<Tensor> {
    let [batch, seq, n, width] = sizes(predictions);
    let one = Tensor::from_f32([1], vec![1.0])?;
    let factors = elementwise::binary(BinaryFn::Add, &routed(routes, factors)?, &one)?;
    let expected = shape::slice(predictions, 2, active, active + 1)?;
    let x = x.clone().reshaped([batch, seq, 1, width])?;
    let new = elementwise::binary(BinaryFn::Sub, &x, &expected)?;
    let change = elementwise::binary(BinaryFn::Mul, &new, &factors.reshaped([batch, seq, n, 1])?)?;
    elementwise::binary(BinaryFn::Add, &change, predictions)
}

fn sizes(streams: &Tensor) -> [usize; 4] {
    [0, 1, 2, 3].map(|i| streams.shape()[i])
}

/// `x` with `y` added to `start..end` of an axis.
pub(crate) fn slice_add(x: &Tensor, y: &Tensor, axis: usize, [start, end]: [usize; 2]) -> Result<Tensor> {
    let part = shape::slice(x, axis, start, end)?;
    let sum = elementwise::binary(BinaryFn::Add, &part, y)?;
    let before = shape::slice(x, axis, 0, start)?;
    let after = shape::slice(x, axis, end, x.shape()[axis])?;
    shape::concat(&[&before, &sum, &after], axis)
}
