//! Result types of operations that slide a window over axes: convolutions and pools.

use crate::infer::{all_f32, at_most, operand, operands, rank, vector};
use crate::{ConvAttrs, Dim, Error, PoolAttrs, ReduceFn, Result, TensorType};
use cactus_tensor::DType;

/// Most axes a window slides over.
const MAX_AXES: usize = 3;

/// The number of axes that the attributes are for, which must be that of `x` after batch and channels.
fn axes(x: &TensorType, lengths: &[usize]) -> Result<usize> {
    let n = lengths[0];
    if n == 0 || n > MAX_AXES || lengths.iter().any(|&l| l != n) {
        return Err(Error::ty(format!(
            "attributes are for {lengths:?} axes; expected the same number, 1 to {MAX_AXES}"
        )));
    }
    rank(x, n + 2, "the operand")?;
    Ok(n)
}

fn positive(what: &str, values: &[usize]) -> Result<()> {
    if values.contains(&0) {
        return Err(Error::ty(format!("{what} {values:?} must be positive")));
    }
    Ok(())
}

/// `(size + padding - dilation * (kernel - 1) - 1) / stride + 1`.
fn windows(size: &Dim, kernel: usize, stride: usize, padding: [usize; 2], dilation: usize) -> Result<Dim> {
    let reach = reach(kernel, dilation)?;
    let places = size
        .add(&Dim::known(padding[0]))?
        .add(&Dim::known(padding[1]))?
        .sub(&Dim::known(reach))?;
    if places.as_known().is_none() && places.symbols().next().is_none() {
        return Err(Error::ty(format!(
            "a window of {reach} is larger than {size} with padding {padding:?}"
        )));
    }
    places.floor_div(stride)?.add(&Dim::known(1))
}

/// Places that a kernel covers.
fn reach(kernel: usize, dilation: usize) -> Result<usize> {
    kernel
        .checked_sub(1)
        .and_then(|k| k.checked_mul(dilation))
        .and_then(|n| n.checked_add(1))
        .filter(|&n| n < 1 << if usize::BITS > 32 { 40 } else { 24 })
        .ok_or_else(|| Error::ty(format!("a kernel of {kernel} with dilation {dilation} has no size")))
}

/// Channels of `x`, and the sizes of a weight `[a, b, kernel…]`.
fn channels_and_weight(x: &TensorType, w: &TensorType, n: usize) -> Result<(usize, Vec<usize>)> {
    rank(w, n + 2, "the weight")?;
    match (x.shape[1].as_known(), w.known_shape()) {
        (Some(c), Some(w)) => Ok((c, w)),
        _ => Err(Error::ty(format!(
            "channels and weight must have fixed sizes, found {x} and {w}"
        ))),
    }
}

fn attribute_axes(x: &TensorType, a: &ConvAttrs) -> Result<usize> {
    let n = axes(x, &[a.stride.len(), a.padding.len(), a.dilation.len()])?;
    positive("the stride", &a.stride)?;
    positive("the dilation", &a.dilation)?;
    Ok(n)
}

pub(crate) fn conv(inputs: &[&TensorType], a: &ConvAttrs) -> Result<TensorType> {
    let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
    at_most(inputs, 3)?;
    all_f32(inputs)?;
    let n = attribute_axes(x, a)?;
    let (channels, sizes) = channels_and_weight(x, w, n)?;
    let fits = a.groups > 0
        && channels.is_multiple_of(a.groups)
        && sizes[0].is_multiple_of(a.groups)
        && sizes[1] == channels / a.groups;
    if !fits {
        return Err(Error::ty(format!(
            "{x} does not fit the weight {w} in {} groups",
            a.groups
        )));
    }
    if let Some(b) = inputs.get(2) {
        vector(b, &w.shape[0], "the bias")?;
    }
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    for i in 0..n {
        shape.push(windows(
            &x.shape[i + 2],
            sizes[i + 2],
            a.stride[i],
            a.padding[i],
            a.dilation[i],
        )?);
    }
    Ok(TensorType::new(DType::F32, shape))
}

pub(crate) fn conv_transpose(inputs: &[&TensorType], a: &ConvAttrs, output_padding: &[usize]) -> Result<TensorType> {
    let (x, w) = (operand(inputs, 0)?, operand(inputs, 1)?);
    at_most(inputs, 3)?;
    all_f32(inputs)?;
    let n = attribute_axes(x, a)?;
    axes(x, &[n, output_padding.len()])?;
    let (channels, sizes) = channels_and_weight(x, w, n)?;
    let out = sizes[1].checked_mul(a.groups);
    let (Some(out), true) = (
        out,
        a.groups > 0 && channels.is_multiple_of(a.groups) && sizes[0] == channels,
    ) else {
        return Err(Error::ty(format!(
            "{x} does not fit the weight {w} in {} groups",
            a.groups
        )));
    };
    if let Some(b) = inputs.get(2) {
        vector(b, &Dim::known(out), "the bias")?;
    }
    let mut shape = vec![x.shape[0].clone(), Dim::known(out)];
    for i in 0..n {
        let reach = reach(sizes[i + 2], a.dilation[i])?;
        let size = x.shape[i + 2]
            .sub(&Dim::known(1))?
            .times(a.stride[i])?
            .add(&Dim::known(reach))?
            .add(&Dim::known(output_padding[i]))?
            .sub(&Dim::known(a.padding[i][0]))?
            .sub(&Dim::known(a.padding[i][1]))?;
        if size.as_known().is_none() && size.symbols().next().is_none() {
            return Err(Error::ty(format!("axis {} would have {size} places", i + 2)));
        }
        shape.push(size);
    }
    Ok(TensorType::new(DType::F32, shape))
}

pub(crate) fn pool(inputs: &[&TensorType], a: &PoolAttrs) -> Result<TensorType> {
    let [x] = operands(inputs)?;
    all_f32(inputs)?;
    let n = axes(x, &[a.kernel.len(), a.stride.len(), a.padding.len(), a.dilation.len()])?;
    positive("the kernel", &a.kernel)?;
    positive("the stride", &a.stride)?;
    positive("the dilation", &a.dilation)?;
    if !matches!(a.f, ReduceFn::Max | ReduceFn::Mean) {
        return Err(Error::ty("a pool takes the largest or the mean"));
    }
    let mut shape = x.shape[..2].to_vec();
    for i in 0..n {
        if a.padding[i]
            .iter()
            .any(|&p| p >= reach(a.kernel[i], a.dilation[i]).unwrap_or(0).max(1))
        {
            return Err(Error::ty(format!("padding {:?} holds a whole window", a.padding[i])));
        }
        shape.push(windows(
            &x.shape[i + 2],
            a.kernel[i],
            a.stride[i],
            a.padding[i],
            a.dilation[i],
        )?);
    }
    Ok(TensorType::new(DType::F32, shape))
}
