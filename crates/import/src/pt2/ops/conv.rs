//! Convolutions and pools.

use super::elementwise::one;
use super::window;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::Importer;
use cactus_ir::{ConvAttrs, Literal, Op, PoolAttrs, ReduceFn, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("conv1d", |im, c| conv(im, c, 1)),
    ("conv2d", |im, c| conv(im, c, 2)),
    ("conv3d", |im, c| conv(im, c, 3)),
    ("conv1d.padding", |im, c| conv(im, c, 1)),
    ("conv2d.padding", |im, c| conv(im, c, 2)),
    ("conv3d.padding", |im, c| conv(im, c, 3)),
    ("convolution", |im, c| {
        let n = im.rank(c.tensor("weight")?).saturating_sub(2);
        match c.flag("transposed", false)? {
            true => conv_transpose(im, c, n),
            false => {
                c.ignore(&["output_padding"]);
                conv(im, c, n)
            }
        }
    }),
    ("conv_transpose1d", |im, c| conv_transpose(im, c, 1)),
    ("conv_transpose2d.input", |im, c| conv_transpose(im, c, 2)),
    ("conv_transpose3d.input", |im, c| conv_transpose(im, c, 3)),
    ("max_pool1d", |im, c| pool(im, c, 1, ReduceFn::Max)),
    ("max_pool2d", |im, c| pool(im, c, 2, ReduceFn::Max)),
    ("max_pool3d", |im, c| pool(im, c, 3, ReduceFn::Max)),
    ("max_pool2d_with_indices", pool_with_places),
    ("max_pool3d_with_indices", |im, c| pool(im, c, 3, ReduceFn::Max)),
    ("avg_pool1d", |im, c| pool(im, c, 1, ReduceFn::Mean)),
    ("avg_pool2d", |im, c| pool(im, c, 2, ReduceFn::Mean)),
    ("avg_pool3d", |im, c| pool(im, c, 3, ReduceFn::Mean)),
    ("adaptive_avg_pool1d", |im, c| adaptive(im, c, 1, ReduceFn::Mean)),
    ("adaptive_avg_pool2d", |im, c| adaptive(im, c, 2, ReduceFn::Mean)),
    ("_adaptive_avg_pool2d", |im, c| adaptive(im, c, 2, ReduceFn::Mean)),
    ("adaptive_avg_pool3d", |im, c| adaptive(im, c, 3, ReduceFn::Mean)),
    ("_adaptive_avg_pool3d", |im, c| adaptive(im, c, 3, ReduceFn::Mean)),
    ("adaptive_max_pool2d", |im, c| adaptive(im, c, 2, ReduceFn::Max)),
];

/// Gives a sample without a batch one of size 1; says whether it did.
fn batched(im: &mut Importer<'_>, x: ValueId, n: usize) -> Result<(ValueId, bool)> {
    match im.rank(x) {
        r if r == n + 1 => Ok((im.unsqueeze(x, 0)?, true)),
        _ => Ok((x, false)),
    }
}

fn unbatched(im: &mut Importer<'_>, y: ValueId, was: bool) -> Result<Vec<ValueId>> {
    match was {
        true => {
            let shape = im.shape(y)[1..].to_vec();
            one(im.reshape(y, shape))
        }
        false => Ok(vec![y]),
    }
}

fn conv(im: &mut Importer<'_>, call: &Call, n: usize) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (call.tensor("input")?, call.tensor("weight")?, call.optional("bias")?);
    call.flag("transposed", false)?;
    let groups = usize::try_from(call.integer("groups", Some(1))?).unwrap_or(0);
    let stride = call.per_axis("stride", n, &vec![1; n])?;
    let dilation = call.per_axis("dilation", n, &vec![1; n])?;
    let kernel = im.fixed(w)?;
    if kernel.len() != n + 2 {
        return unsupported(format!("a convolution over {n} axes with the weight {}", im.ty(w)));
    }
    let by_word = call.text("padding", "").unwrap_or("");
    let padding: Vec<[usize; 2]> = match by_word {
        "" => call
            .per_axis("padding", n, &vec![0; n])?
            .into_iter()
            .map(|p| [p, p])
            .collect(),
        "valid" => vec![[0, 0]; n],
        "same" => (0..n)
            .map(|i| {
                let all = dilation[i].saturating_mul(kernel[i + 2].saturating_sub(1));
                [all / 2, all - all / 2]
            })
            .collect(),
        other => return unsupported(format!("the padding `{other}`")),
    };
    let (x, was) = batched(im, x, n)?;
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    // The form that short convolutions of sequence models are recognized in.
    let plain = n == 1 && stride[0] == 1 && dilation[0] == 1;
    let op = match plain {
        true => Op::Conv1d {
            groups,
            pad_left: padding[0][0],
            pad_right: padding[0][1],
        },
        false => Op::Conv(ConvAttrs {
            groups,
            stride,
            padding,
            dilation,
        }),
    };
    let y = im.op(op, &inputs)?;
    unbatched(im, y, was)
}

fn conv_transpose(im: &mut Importer<'_>, call: &Call, n: usize) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (call.tensor("input")?, call.tensor("weight")?, call.optional("bias")?);
    let groups = usize::try_from(call.integer("groups", Some(1))?).unwrap_or(0);
    let padding = call.per_axis("padding", n, &vec![0; n])?;
    let conv = ConvAttrs {
        groups,
        stride: call.per_axis("stride", n, &vec![1; n])?,
        padding: padding.into_iter().map(|p| [p, p]).collect(),
        dilation: call.per_axis("dilation", n, &vec![1; n])?,
    };
    let output_padding = call.per_axis("output_padding", n, &vec![0; n])?;
    let (x, was) = batched(im, x, n)?;
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    let y = im.op(Op::ConvTranspose { conv, output_padding }, &inputs)?;
    unbatched(im, y, was)
}

/// The largest of each window and where it is; the latter where sizes are fixed and nothing is rounded up.
fn pool_with_places(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut out = pool(im, call, 2, ReduceFn::Max)?;
    let (x, was) = batched(im, call.tensor("self")?, 2)?;
    let sizes = im.shape(x)[2..].iter().all(|d| d.as_known().is_some());
    if sizes && !call.flag("ceil_mode", false)? {
        let kernel = call.per_axis("kernel_size", 2, &[])?;
        let stride = call.per_axis("stride", 2, &kernel)?;
        let padding = call.per_axis("padding", 2, &[0, 0])?;
        let dilation = call.per_axis("dilation", 2, &[1, 1])?;
        let places = window::largest(im, x, (kernel, dilation, padding, stride))?;
        out.extend(unbatched(im, places, was)?);
    }
    Ok(out)
}

fn pool(im: &mut Importer<'_>, call: &Call, n: usize, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let kernel = call.per_axis("kernel_size", n, &[])?;
    if kernel.len() != n {
        return unsupported("a pool without a window");
    }
    let stride = call.per_axis("stride", n, &kernel)?;
    let padding = call.per_axis("padding", n, &vec![0; n])?;
    let dilation = call.per_axis("dilation", n, &vec![1; n])?;
    let ceil = call.flag("ceil_mode", false)?;
    let count_padding = call.flag("count_include_pad", true)?;
    if call.optional_integer("divisor_override")?.is_some() {
        return unsupported("another divisor of a mean");
    }
    let mut padding: Vec<[usize; 2]> = padding.into_iter().map(|p| [p, p]).collect();
    let (x, was) = batched(im, x, n)?;
    if ceil {
        let shape = im.shape(x);
        for i in 0..n {
            let Some(size) = shape[i + 2].as_known() else {
                return unsupported("a pool that rounds up over an axis that varies");
            };
            // The last window may begin anywhere in the input or the padding before it, and reach beyond.
            let reach = dilation[i] * (kernel[i] - 1) + 1;
            let room = (size + 2 * padding[i][0]).saturating_sub(reach);
            let mut windows = room.div_ceil(stride[i]) + 1;
            if (windows - 1) * stride[i] >= size + padding[i][0] {
                windows -= 1;
            }
            let more = ((windows - 1) * stride[i] + reach).saturating_sub(size + 2 * padding[i][0]);
            if more > 0 && f == ReduceFn::Mean && count_padding && padding[i][0] > 0 {
                return unsupported("a mean that rounds up and counts its padding");
            }
            padding[i][1] += more;
        }
    }
    // Without padding of its own, what rounding up adds is never counted.
    let count_padding = count_padding && !(ceil && padding.iter().all(|p| p[0] == 0));
    let y = im.op(
        Op::Pool(PoolAttrs {
            f,
            kernel,
            stride,
            padding,
            dilation,
            count_padding,
        }),
        &[x],
    )?;
    unbatched(im, y, was)
}

fn adaptive(im: &mut Importer<'_>, call: &Call, n: usize, f: ReduceFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let out = call.per_axis("output_size", n, &[])?;
    let (mut x, was) = batched(im, x, n)?;
    let spatial: Vec<usize> = (2..n + 2).collect();
    if out.iter().all(|&o| o == 1) {
        let y = im.reduce(f, x, &spatial, true)?;
        return unbatched(im, y, was);
    }
    let sizes = im.fixed(x)?[2..].to_vec();
    if sizes.iter().zip(&out).all(|(s, &o)| o > 0 && s % o == 0) {
        let kernel: Vec<usize> = sizes.iter().zip(&out).map(|(s, o)| s / o).collect();
        let attrs = PoolAttrs {
            f,
            stride: kernel.clone(),
            padding: vec![[0, 0]; n],
            dilation: vec![1; n],
            count_padding: true,
            kernel,
        };
        let y = im.op(Op::Pool(attrs), &[x])?;
        return unbatched(im, y, was);
    }
    if f != ReduceFn::Mean {
        return unsupported("an adaptive maximum whose windows differ in size");
    }
    // Means of windows of different sizes are a product with a fixed matrix, axis by axis.
    for (i, (&size, &count)) in sizes.iter().zip(&out).enumerate() {
        let mut m = vec![0f32; count * size];
        for o in 0..count {
            let (start, end) = (o * size / count, ((o + 1) * size).div_ceil(count));
            m[o * size + start..o * size + end].fill(1.0 / (end - start) as f32);
        }
        x = along_axis(im, x, i + 2, m, count, size)?;
    }
    unbatched(im, x, was)
}

/// `x` with one axis multiplied by a fixed matrix `[count, size]`.
pub(super) fn along_axis(
    im: &mut Importer<'_>,
    x: ValueId,
    axis: usize,
    matrix: Vec<f32>,
    count: usize,
    size: usize,
) -> Result<ValueId> {
    if matrix.len() > Literal::MAX_ELEMS {
        return unsupported(format!("resizing {size} places to {count}: the matrix is too large"));
    }
    let m =
        im.b.literal(&[count, size], Literal::F32(matrix))
            .map_err(crate::pt2::importer::invalid)?;
    let last = im.rank(x) - 1;
    let mut perm: Vec<usize> = (0..=last).collect();
    perm.swap(axis, last);
    let y = im.permute(x, perm.clone())?;
    let y = im.op(Op::Linear, &[y, m])?;
    im.permute(y, perm)
}
