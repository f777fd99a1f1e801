//! Products of matrices, and the layers made of them.

use super::node_graph::{Activation, Error, Graph, GraphOp, Result};
use super::open::{add, id, nodes_of, with};
use crate::guard;
use std::ffi::{c_int, c_void};

/// Operands of a layer of experts, of which each row has `chosen`.
fn experts_of(g: &Graph, rows: [u64; 3], chosen: usize, weights: &[&[u64]]) -> Result<Vec<u64>> {
    let shape = g.info(id(rows[2])?)?.shape;
    if shape.last() != Some(&chosen) {
        return Err(Error::shape(format!(
            "{chosen} experts of a row are announced, and the indices are {shape:?}"
        )));
    }
    Ok(std::iter::once(&rows[..])
        .chain(weights.iter().copied())
        .flatten()
        .copied()
        .collect())
}

/// `(a […, m, k], b […, k, n]) -> […, m, n]`; `b` is `[…, n, k]` where `transposed`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_matmul(
    graph: *mut c_void,
    a: u64,
    b: u64,
    transposed: bool,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "matmul", GraphOp::MatMul { transposed }, &[a, b], out) })
}

/// Experts `w2 (activation(w1 x) * w3 x)` of which each row has `chosen`: `(x [t, n], probabilities [t, experts], indices
/// [t, chosen])`, three weights for each expert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_moe_layer_gated(
    graph: *mut c_void,
    x: u64,
    probabilities: u64,
    indices: u64,
    w1: *const u64,
    w3: *const u64,
    w2: *const u64,
    experts: usize,
    chosen: usize,
    normalize: bool,
    epsilon: f32,
    factor: f32,
    activation: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about the weights.
        let weights = unsafe {
            [
                nodes_of(w1, experts, "w1")?,
                nodes_of(w3, experts, "w3")?,
                nodes_of(w2, experts, "w2")?,
            ]
        };
        let op = GraphOp::Experts {
            experts,
            gated: true,
            normalize,
            eps: epsilon,
            factor,
            activation: Activation::from_code(activation)?,
        };
        let all = with(graph, |g| experts_of(g, [x, probabilities, indices], chosen, &weights))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "moe_layer_gated", op, &all, out) }
    })
}

/// Experts `w2 activation(w1 x)`, otherwise as `cactus_graph_moe_layer_gated`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_moe_layer_ungated(
    graph: *mut c_void,
    x: u64,
    probabilities: u64,
    indices: u64,
    w1: *const u64,
    w2: *const u64,
    experts: usize,
    chosen: usize,
    normalize: bool,
    epsilon: f32,
    factor: f32,
    activation: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about the weights.
        let weights = unsafe { [nodes_of(w1, experts, "w1")?, nodes_of(w2, experts, "w2")?] };
        let op = GraphOp::Experts {
            experts,
            gated: false,
            normalize,
            eps: epsilon,
            factor,
            activation: Activation::from_code(activation)?,
        };
        let all = with(graph, |g| experts_of(g, [x, probabilities, indices], chosen, &weights))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "moe_layer_ungated", op, &all, out) }
    })
}

/// `down (gelu(gate_scale * gate x) * up x * product_scale)`, weights `[m, n]`, `[m, n]`, `[n, m]` of any precision.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_dense_mlp_tq_fused(
    graph: *mut c_void,
    x: u64,
    gate: u64,
    up: u64,
    down: u64,
    product_scale: f32,
    gate_scale: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "dense_mlp_tq_fused",
            GraphOp::DenseMlp {
                product: product_scale,
                gate: gate_scale,
            },
            &[x, gate, up, down],
            out,
        )
    })
}

/// Three products joined: `(x […, n], q [a, n], k [b, n], v [c, n]) -> […, a + b + c]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_qkv_tq_fused(
    graph: *mut c_void,
    x: u64,
    query: u64,
    key: u64,
    value: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "qkv_tq_fused",
            GraphOp::Projections,
            &[x, query, key, value],
            out,
        )
    })
}

/// Two products joined: `(x […, n], first [a, n], second [b, n]) -> […, a + b]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_projection_pair_tq_fused(
    graph: *mut c_void,
    x: u64,
    first: u64,
    second: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "projection_pair_tq_fused",
            GraphOp::Projections,
            &[x, first, second],
            out,
        )
    })
}

/// `cap * tanh(scale * weight x / cap)`; without the bend where `cap` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_logits_tq_softcap(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    cap: f32,
    scale: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "logits_tq_softcap",
            GraphOp::SoftcapLogits { cap, scale },
            &[x, weight],
            out,
        )
    })
}

/// `(coefs [seq, n * n], n streams [seq, d]) -> [n * seq, d]`: each stream and its mix of all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_altup_predict(
    graph: *mut c_void,
    coefs: u64,
    streams: *const u64,
    count: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `streams`.
        let streams = unsafe { nodes_of(streams, count, "streams") }?;
        let all = [&[coefs], streams].concat();
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "altup_predict", GraphOp::AltupPredict, &all, out) }
    })
}

/// `(coefs [seq, n], innovation [seq, d], n predictions [seq, d]) -> [n * seq, d]`: each prediction and its share of the
/// innovation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_altup_correct(
    graph: *mut c_void,
    coefs: u64,
    innovation: u64,
    predictions: *const u64,
    count: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `predictions`.
        let predictions = unsafe { nodes_of(predictions, count, "predictions") }?;
        let all = [&[coefs, innovation], predictions].concat();
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "altup_correct", GraphOp::AltupCorrect, &all, out) }
    })
}

/// A token of the last row of logits, `[1]`, FP32: the likeliest where `temperature` (0 to 100) is 0, else one drawn from the
/// `top_k` likeliest (0 for all) and of these the likeliest with a share of `top_p` (0 to 1; 0 and 1 for all).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_sample(
    graph: *mut c_void,
    logits: u64,
    temperature: f32,
    top_p: f32,
    top_k: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "sample",
            GraphOp::Sample {
                temperature,
                top_p,
                top_k,
            },
            &[logits],
            out,
        )
    })
}
