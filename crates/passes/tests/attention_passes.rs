//! Passes that recognize attention in its many forms, each alone on a small graph: text before and after, report, and the
//! same function.

mod alone;
mod kit;

use alone::{binary, checked};
use cactus_ir::{
    AttentionAttrs, BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Op, ReduceFn, Result, SEQ, UnaryFn, ValueId,
};
use cactus_tensor::DType;
use cactus_testkit::{assert_close, tiny::causal_mask};
use kit::{dims, graph, input, inputs, output, run_pass};

/// Snapshots what pass `name` makes of `before`, which computes the same.
#[track_caller]
fn check(name: &str, case: &str, before: &Graph) {
    insta::assert_snapshot!(format!("{name}-{case}"), checked(name, case, before));
}

#[test]
fn fuse_attention_with_window_cap_and_groups() {
    let g = graph(|b| {
        let q = input(b, "q", "batch seq 4 2");
        let k = input(b, "k", "batch seq 2 2");
        let v = input(b, "v", "batch seq 2 2");
        let heads = |b: &mut GraphBuilder, x| b.permute(x, &[0, 2, 1, 3]);
        let repeat = |b: &mut GraphBuilder, x| {
            let x = b.reshape(x, dims("batch 2 1 seq 2"))?;
            let x = b.expand(x, dims("batch 2 2 seq 2"))?;
            b.reshape(x, dims("batch 4 seq 2"))
        };
        let (q, k, v) = (heads(b, q)?, heads(b, k)?, heads(b, v)?);
        let (k, v) = (repeat(b, k)?, repeat(b, v)?);
        let q = b.scale(q, 0.5)?;
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let scores = b.matmul(q, k)?;
        let scores = binary(b, BinaryFn::Div, scores, 30.0)?;
        let scores = b.unary(UnaryFn::Tanh, scores)?;
        let scores = b.scale(scores, 30.0)?;
        let positions = b.iota(0, SEQ)?;
        let mask = causal_mask(b, positions, Some(3))?;
        let (zero, hidden) = (b.scalar(0.0)?, b.scalar(f32::MIN)?);
        let bias = b.select(mask, zero, hidden)?;
        let bias = b.reshape(bias, dims("1 1 seq seq"))?;
        let scores = b.add(scores, bias)?;
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        b.reshape(y, dims("batch seq 8"))
    });
    check("fuse_attention", "window", &g);
}

/// Queries and keys of two heads, as products, and the values.
fn scores_and_values(b: &mut GraphBuilder) -> Result<(ValueId, ValueId)> {
    let [q, k, v] = ["q", "k", "v"].map(|name| input(b, name, "batch seq 2 4"));
    let q = b.permute(q, &[0, 2, 1, 3])?;
    let k = b.permute(k, &[0, 2, 3, 1])?;
    Ok((b.matmul(q, k)?, b.permute(v, &[0, 2, 1, 3])?))
}

/// Scores of keys after the query are hidden.
fn hide_later(b: &mut GraphBuilder, scores: ValueId) -> Result<ValueId> {
    let positions = b.iota(0, SEQ)?;
    let mask = causal_mask(b, positions, None)?;
    let hidden = b.scalar(f32::MIN)?;
    b.select(mask, scores, hidden)
}

#[test]
fn fuse_attention_takes_sinks() {
    let g = graph(|b| {
        let (scores, v) = scores_and_values(b)?;
        let scores = hide_later(b, scores)?;
        let sinks = b.weight("sinks", &[2]);
        let sinks = b.reshape(sinks, dims("1 2 1 1"))?;
        let sinks = b.expand(sinks, dims("batch 2 seq 1"))?;
        let scores = b.op(Op::Concat { axis: 3 }, &[scores, sinks])?;
        let (f, axes, keepdim) = (ReduceFn::Max, vec![3], true);
        let most = b.op(Op::Reduce { f, axes, keepdim }, &[scores])?;
        let scores = b.binary(BinaryFn::Sub, scores, most)?;
        let shares = b.softmax_last(scores)?;
        let (start, end) = (Dim::known(0), Dim::symbol(SEQ));
        let shares = b.op(Op::Slice { axis: 3, start, end }, &[shares])?;
        b.matmul(shares, v)
    });
    check("fuse_attention", "sinks", &g);
}

#[test]
fn fuse_attention_takes_several_products_with_one_softmax() {
    let g = graph(|b| {
        let (scores, v) = scores_and_values(b)?;
        let scores = hide_later(b, scores)?;
        let shares = b.softmax_last(scores)?;
        // Half of the width each, and their difference.
        let halves = [b.slice_last(v, 0, 2)?, b.slice_last(v, 2, 4)?];
        let [first, second] = [b.matmul(shares, halves[0])?, b.matmul(shares, halves[1])?];
        b.binary(BinaryFn::Sub, first, second)
    });
    check("fuse_attention", "shared", &g);
    let (after, _) = run_pass("fuse_attention", &g);
    let left = after
        .nodes()
        .filter(|(_, n)| matches!(n.op, Op::Softmax { .. }))
        .count();
    assert_eq!(left, 0, "{after}");
}

/// Attention, and beside it what a sink leaves of each row by scores times `scale`.
fn sinks_behind(scale: f32) -> Graph {
    graph(|b| {
        let [q, k, v] = ["q", "k", "v"].map(|name| input(b, name, "batch seq 2 4"));
        let attrs = AttentionAttrs {
            scale: 0.5,
            causal: true,
            window: None,
            chunk: None,
            softcap: None,
            sinks: false,
            slopes: false,
            ..AttentionAttrs::default()
        };
        let y = b.op(Op::Attention(attrs), &[q, k, v])?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        // The scores a second time, for the logarithm of their sum.
        let q = b.permute(q, &[0, 2, 1, 3])?;
        let k = b.permute(k, &[0, 2, 3, 1])?;
        let scores = b.matmul(q, k)?;
        let scores = b.scale(scores, scale)?;
        let scores = hide_later(b, scores)?;
        let reduced = |b: &mut GraphBuilder, f, x| {
            let (axes, keepdim) = (vec![3], true);
            b.op(Op::Reduce { f, axes, keepdim }, &[x])
        };
        let most = reduced(b, ReduceFn::Max, scores)?;
        let rest = b.binary(BinaryFn::Sub, scores, most)?;
        let rest = b.unary(UnaryFn::Exp, rest)?;
        let sum = reduced(b, ReduceFn::Sum, rest)?;
        let sum = b.unary(UnaryFn::Log, sum)?;
        let sum = b.add(sum, most)?;
        let sum = b.reshape(sum, dims("batch 2 seq"))?;
        let sinks = b.weight("sinks", &[2]);
        let sinks = b.reshape(sinks, dims("2 1"))?;
        let left = b.binary(BinaryFn::Sub, sum, sinks)?;
        let left = b.unary(UnaryFn::Sigmoid, left)?;
        let left = b.reshape(left, dims("batch 2 seq 1"))?;
        b.mul(y, left)
    })
}

#[test]
fn fuse_sinks_takes_what_a_sink_leaves_of_attention() {
    check("fuse_sinks", "behind", &sinks_behind(0.5));
    // Of other scores it is no sink.
    let other = sinks_behind(0.25);
    let (after, report) = run_pass("fuse_sinks", &other);
    assert_eq!(after.to_string(), other.to_string());
    assert!(
        report.to_string().contains("are not those of the attention"),
        "{report}"
    );
}

#[test]
fn fuse_attention_takes_a_bias_linear_in_the_distance() {
    let g = graph(|b| {
        let (scores, v) = scores_and_values(b)?;
        // As BLOOM writes it, with a number for each key alone; the whole is scaled behind the mask.
        let keys = b.iota(0, SEQ)?;
        let keys = b.cast(keys, DType::F32)?;
        let slopes = b.vector(vec![0.5, 0.25])?;
        let slopes = b.reshape(slopes, dims("2 1 1"))?;
        let bias = b.mul(slopes, keys)?;
        let scores = b.add(scores, bias)?;
        let scores = hide_later(b, scores)?;
        let scores = b.scale(scores, 0.5)?;
        let shares = b.softmax_last(scores)?;
        b.matmul(shares, v)
    });
    check("fuse_attention", "slopes", &g);
}

#[test]
fn fuse_attention_takes_chunks() {
    let g = graph(|b| {
        let (scores, v) = scores_and_values(b)?;
        let scores = hide_later(b, scores)?;
        let positions = b.iota(0, SEQ)?;
        let size = b.scalar_i64(3)?;
        let chunk = b.binary(BinaryFn::FloorDiv, positions, size)?;
        let own = b.reshape(chunk, dims("seq 1"))?;
        let same = b.compare(CompareFn::Eq, own, chunk)?;
        let hidden = b.scalar(f32::NEG_INFINITY)?;
        let scores = b.select(same, scores, hidden)?;
        // A bound that none but hidden scores reach.
        let scores = binary(b, BinaryFn::Max, scores, f32::MIN)?;
        let shares = b.softmax_last(scores)?;
        b.matmul(shares, v)
    });
    check("fuse_attention", "chunks", &g);
}

#[test]
fn keep_batch_gives_merged_heads_the_axis_of_the_sequence_again() {
    let g = graph(|b| {
        let [q, v] = ["q", "v"].map(|name| input(b, name, "1 seq 2 4"));
        let flat = |b: &mut GraphBuilder, x| {
            let x = b.permute(x, &[0, 2, 1, 3])?;
            b.reshape(x, dims("2 seq 4"))
        };
        let (q, v) = (flat(b, q)?, flat(b, v)?);
        let k = b.permute(v, &[0, 2, 1])?;
        let scores = b.matmul(q, k)?;
        let scores = b.scale(scores, 0.5)?;
        let scores = b.reshape(scores, dims("1 2 seq seq"))?;
        let scores = hide_later(b, scores)?;
        let scores = b.reshape(scores, dims("2 seq seq"))?;
        let shares = b.op(Op::Softmax { axis: 2 }, &[scores])?;
        let y = b.matmul(shares, v)?;
        b.reshape(y, dims("1 2 seq 4"))
    });
    let (after, report) = run_pass("keep_batch", &g);
    let given = inputs(&g, 1, 5);
    assert_close(&output(&after, &g, &given), &output(&g, &g, &given), 1e-6, "keep_batch");
    insta::assert_snapshot!("keep_batch-heads", format!("{g}\n{after}\n{report}"));
}
