//! One operation on concrete tensors.

use crate::{
    Error, ErrorKind, Result, attention, elementwise, fused, index, linear, recurrent, reduce, routed, shape, streams,
    windows,
};
use cactus_ir::{BinaryFn, Bindings, Dim, Op, TensorType, infer};
use cactus_tensor::Tensor;

/// `op` with every symbolic size replaced by its value under `bindings`.
///
/// # Errors
/// [`ErrorKind::Type`] where a size cannot be evaluated.
pub fn bind_op(op: &Op, bindings: &Bindings) -> Result<Op> {
    let one = |d: &Dim| -> Result<Dim> { Ok(Dim::known(d.eval(bindings)?)) };
    let all = |shape: &[Dim]| shape.iter().map(one).collect::<Result<Vec<Dim>>>();
    Ok(match op {
        Op::Reshape { shape } => Op::Reshape { shape: all(shape)? },
        Op::Expand { shape } => Op::Expand { shape: all(shape)? },
        Op::Slice { axis, start, end } => Op::Slice {
            axis: *axis,
            start: one(start)?,
            end: one(end)?,
        },
        Op::Iota { start, len } => Op::Iota {
            start: one(start)?,
            len: one(len)?,
        },
        other => other.clone(),
    })
}

/// Evaluates an operation that uses no state: the constant folder's entry. Operands are checked first, so a malformed
/// operation is an error. Half-precision values are `f32` tensors here.
///
/// # Errors
/// [`ErrorKind::Type`] where operands do not fit, [`ErrorKind::Value`] for an index or integer out of range,
/// [`ErrorKind::State`] for an operation with a state.
pub fn eval_op(op: &Op, inputs: &[&Tensor], bindings: &Bindings) -> Result<Tensor> {
    if let Some(name) = op.state() {
        let what = format!("state `{name}` is needed, and one operation alone has none");
        return Err(Error::new(ErrorKind::State, what).at(op.mnemonic()));
    }
    eval_with(op, inputs, bindings, Past::default())
}

/// What the states hold of the positions before this call, for the operation that reads them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Past<'a> {
    /// Position of the first query.
    pub(crate) positions: usize,
    /// Rows `[kernel-1, channels]` before the first of a convolution.
    pub(crate) conv_rows: Option<&'a [f32]>,
    /// What a recurrence left, as it has it.
    pub(crate) carried: Option<&'a [f32]>,
}

/// Evaluates `op`; for attention with a state, `inputs` already hold the keys and values of earlier calls.
pub(crate) fn eval_with(op: &Op, inputs: &[&Tensor], bindings: &Bindings, past: Past<'_>) -> Result<Tensor> {
    let mut op = bind_op(op, bindings)?;
    if let Op::Attention(attrs) = &mut op {
        // Earlier keys are part of the operands now, so the rule of equal lengths no longer applies.
        (attrs.state, attrs.appended) = (None, false);
    }
    let types: Vec<TensorType> = inputs.iter().map(|t| type_of(t)).collect();
    let ty = infer(&op, &types.iter().collect::<Vec<_>>())?;
    let arg = |i: usize| inputs[i];
    let optional = |i: usize| inputs.get(i).copied();
    let known = |d: &Dim| d.as_known().unwrap_or(0); // bound above, so always known
    let sizes = |dims: &[Dim]| dims.iter().map(known).collect::<Vec<_>>();
    match &op {
        Op::Unary { f } => elementwise::unary(*f, arg(0)),
        Op::Binary { f } => elementwise::binary(*f, arg(0), arg(1)),
        Op::Compare { f } => elementwise::compare(*f, arg(0), arg(1)),
        Op::Where => elementwise::select(arg(0), arg(1), arg(2)),
        Op::Cast { dtype } => elementwise::cast(arg(0), *dtype),
        Op::Reduce { f, axes, keepdim } => reduce::reduce(*f, axes, *keepdim, arg(0)),
        Op::Softmax { axis } => reduce::softmax(*axis, arg(0)),
        Op::Reshape { shape } => Ok(arg(0).clone().reshaped(sizes(shape))?),
        Op::Permute { perm } => shape::permute(arg(0), perm),
        Op::Slice { axis, start, end } => shape::slice(arg(0), *axis, known(start), known(end)),
        Op::Concat { axis } => shape::concat(inputs, *axis),
        Op::Expand { shape } => shape::expand(arg(0), &sizes(shape)),
        Op::Iota { start, len } => shape::iota(known(start), known(len)),
        Op::Embedding => linear::embedding(arg(0), arg(1)),
        Op::Linear => linear::linear(arg(0), arg(1), optional(2)),
        Op::MatMul => linear::matmul(arg(0), arg(1)),
        Op::Conv1d { groups, pad_left, .. } => {
            let length = ty.shape[2].as_known().ok_or_else(|| {
                let what = format!("the kernel is longer than the padded input, giving {ty}");
                Error::new(ErrorKind::Type, what)
            })?;
            linear::conv1d(arg(0), arg(1), optional(2), *groups, *pad_left, length)
        }
        Op::ArgReduce { f, axis, .. } => Ok(index::arg_reduce(*f, *axis, arg(0))?.reshaped(sizes(&ty.shape))?),
        Op::CumSum { axis } => index::cum_sum(*axis, arg(0)),
        Op::ArgSort { axis, descending } => index::arg_sort(*axis, *descending, arg(0)),
        Op::Take { axis } => Ok(index::take(*axis, arg(0), arg(1))?.reshaped(sizes(&ty.shape))?),
        Op::Gather { axis } => index::gather(*axis, arg(0), arg(1)),
        Op::Scatter { axis, add } => index::scatter(*axis, *add, arg(0), arg(1), arg(2)),
        Op::Conv(attrs) => windows::conv(attrs, arg(0), arg(1), optional(2), &sizes(&ty.shape)),
        Op::ConvTranspose { conv, .. } => windows::conv_transpose(conv, arg(0), arg(1), optional(2), &sizes(&ty.shape)),
        Op::Pool(attrs) => windows::pool(attrs, arg(0), &sizes(&ty.shape)),
        Op::Lstm { reverse } => recurrent::lstm(*reverse, arg(0), arg(1), arg(2), arg(3)),
        Op::Gru { reverse } => recurrent::gru(*reverse, arg(0), arg(1), arg(2), arg(3)),
        Op::GatedDelta { .. } => Ok(recurrent::gated_delta(inputs, past.carried)?.0),
        Op::RmsNorm { eps } => fused::rms_norm(arg(0), arg(1), *eps),
        Op::LayerNorm { eps } => fused::layer_norm(arg(0), arg(1), optional(2), *eps),
        Op::Rope { scale, interleaved } => fused::rope(arg(0), arg(1), arg(2), *scale, *interleaved),
        Op::NormRope { eps, scale } => {
            fused::rope(&fused::rms_norm(arg(0), arg(1), *eps)?, arg(2), arg(3), *scale, false)
        }
        Op::NormAdd { eps } => elementwise::binary(BinaryFn::Add, arg(0), &fused::rms_norm(arg(1), arg(2), *eps)?),
        Op::NormGate { eps, activation } => {
            let gate = fused::activated(Some(*activation), arg(1).clone())?;
            elementwise::binary(BinaryFn::Mul, &fused::rms_norm(arg(0), arg(2), *eps)?, &gate)
        }
        Op::AltupPredict => streams::predicted(arg(0), arg(1), arg(2)),
        Op::AltupCorrect { active } => streams::corrected(arg(0), arg(1), arg(2), arg(3), *active),
        Op::SliceAdd { axis, start, end } => streams::slice_add(arg(0), arg(1), *axis, [*start, *end]),
        Op::Attention(attrs) => attention::attention(attrs, inputs, past.positions),
        Op::Gated { activation, above } => fused::gated(*activation, *above, inputs),
        Op::Experts { activation } => {
            let biases = op.expert_biases(inputs.len()).map(|at| at.map(arg));
            fused::experts(*activation, [0, 1, 2, 3, 4].map(arg), biases)
        }
        Op::RoutedExperts { activation, route } => {
            let (ids, shares) = routed::choices(route, inputs)?;
            let biases = route.biases_operands().map(|at| at.map(arg));
            fused::experts(*activation, [arg(0), &ids, &shares, arg(2), arg(3)], biases)
        }
        Op::ShortConv { activation, .. } => {
            let y = fused::short_conv(arg(0), arg(1), optional(2), past.conv_rows)?;
            fused::activated(*activation, y)
        }
        other => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} is not supported", other.mnemonic()),
        )),
    }
}

fn type_of(t: &Tensor) -> TensorType {
    let dims: Vec<Dim> = t.shape().iter().map(|&d| Dim::known(d)).collect();
    TensorType::new(t.dtype(), dims)
}
