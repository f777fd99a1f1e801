//! What a router chooses, one primitive operation after the other, as models write it.

use crate::{Result, elementwise, index, reduce, shape};
use cactus_ir::{BinaryFn, ReduceFn, Route, RouteFn, UnaryFn};
use cactus_tensor::Tensor;

/// Experts and shares `[…, chosen]` of the operands of routed experts.
pub(crate) fn choices(route: &Route, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
    let scores = inputs[1];
    let axis = scores.shape().len() - 1;
    let p = match route.f {
        RouteFn::Softmax => reduce::softmax(axis, scores)?,
        RouteFn::Sigmoid => elementwise::unary(UnaryFn::Sigmoid, scores)?,
        other => {
            let what = format!("router {other:?} is not supported");
            return Err(crate::Error::new(crate::ErrorKind::Unsupported, what));
        }
    };
    let ranked = match route.bias_operand() {
        Some(at) => elementwise::binary(BinaryFn::Add, &p, inputs[at])?,
        None => p.clone(),
    };
    let order = index::arg_sort(axis, true, &ranked)?;
    let ids = shape::slice(&order, axis, 0, route.chosen)?;
    let mut shares = index::gather(axis, &p, &ids)?;
    if let Some(epsilon) = route.normalize {
        let sum = reduce::reduce(ReduceFn::Sum, &[axis], true, &shares)?;
        let sum = elementwise::binary(BinaryFn::Add, &sum, &Tensor::from_f32([1], vec![epsilon])?)?;
        shares = elementwise::binary(BinaryFn::Div, &shares, &sum)?;
    }
    if let Some(at) = route.factor_operand() {
        let factor = index::take(0, inputs[at], &ids)?.reshaped(ids.shape().to_vec())?;
        shares = elementwise::binary(BinaryFn::Mul, &shares, &factor)?;
    }
    Ok((ids, shares))
}
