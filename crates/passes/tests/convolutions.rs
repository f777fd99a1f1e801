//! Passes that change convolutions, each alone on a small graph: text before and after, report, and the same function.

#[allow(dead_code, reason = "one of its helpers is for others")]
mod alone;
mod kit;

use alone::checked;
use cactus_ir::{ConvAttrs, Graph, GraphBuilder, Op};
use kit::{dims, graph, input};

/// Snapshots what pass `name` makes of `before`, which computes the same.
#[track_caller]
fn check(name: &str, case: &str, before: &Graph) {
    insta::assert_snapshot!(format!("{name}-{case}"), checked(name, case, before));
}

#[test]
fn fold_padding_counts_zeros_along_each_axis() {
    let g = graph(|b| {
        let x = input(b, "x", "batch 4 5 6");
        let zeros = |b: &mut GraphBuilder, shape: &str| {
            let zero = b.scalar(0.0)?;
            b.expand(zero, dims(shape))
        };
        let (left, right) = (zeros(b, "batch 4 5 1")?, zeros(b, "batch 4 5 2")?);
        let y = b.op(Op::Concat { axis: 3 }, &[left, x, right])?;
        let above = zeros(b, "batch 4 3 9")?;
        let y = b.op(Op::Concat { axis: 2 }, &[above, y])?;
        let conv = Op::Conv(ConvAttrs {
            groups: 1,
            stride: vec![2, 1],
            padding: vec![[0, 1], [1, 0]],
            dilation: vec![1, 1],
        });
        let (w, bias) = (b.weight("a.weight", &[6, 4, 3, 2]), b.weight("a.bias", &[6]));
        let y = b.op(conv, &[y, w, bias])?;
        let y = b.reshape(y, dims("batch 6 36"))?;
        // As small constants are folded.
        let folded = b.vector(vec![0.0; 2])?;
        let folded = b.expand(folded, dims("batch 6 2"))?;
        let y = b.op(Op::Concat { axis: 2 }, &[folded, y])?;
        let conv = Op::Conv1d {
            groups: 2,
            pad_left: 1,
            pad_right: 0,
        };
        let w = b.weight("b.weight", &[4, 3, 3]);
        b.op(conv, &[y, w])
    });
    check("fold_padding", "axes", &g);
}

#[test]
fn fuse_conv_norm_takes_factor_and_summand_for_each_channel() {
    let g = graph(|b| {
        let x = input(b, "x", "batch 4 seq");
        let conv = |pad| Op::Conv1d {
            groups: 2,
            pad_left: pad,
            pad_right: pad,
        };
        let (w, bias) = (b.weight("a.weight", &[6, 2, 3]), b.weight("a.bias", &[6]));
        let (scale, shift) = (b.weight("n.scale", &[6, 1]), b.weight("n.shift", &[1, 6, 1]));
        let y = b.op(conv(1), &[x, w, bias])?;
        let y = b.mul(y, scale)?;
        let y = b.add(shift, y)?;
        let (w, scale, shift) = (
            b.weight("b.weight", &[4, 3, 1]),
            b.weight("m.scale", &[4]),
            b.weight("m.shift", &[4, 1]),
        );
        let scale = b.reshape(scale, dims("4 1"))?;
        let y = b.op(conv(0), &[y, w])?;
        let y = b.mul(scale, y)?;
        b.add(y, shift)
    });
    check("fuse_conv_norm", "batch-norm", &g);
}
