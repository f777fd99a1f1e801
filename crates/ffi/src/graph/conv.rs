//! Convolutions and recurrent cells.

use super::node_graph::{ConvForm, Error, Graph, GraphOp, Result};
use super::open::{add, at_least_one, id, with, with_bias};
use crate::guard;
use std::ffi::{c_int, c_void};

fn conv(groups: usize, stride: usize, padding: usize) -> GraphOp {
    GraphOp::Conv {
        form: ConvForm::ChannelsFirst,
        groups,
        stride,
        padding: [padding, padding],
        dilation: 1,
    }
}

/// The last axes of a weight, which the function is named for.
fn kernel(g: &Graph, weight: usize, kernel: &[usize]) -> Result<()> {
    let shape = g.info(weight)?.shape;
    match shape.ends_with(kernel) {
        true => Ok(()),
        false => Err(Error::shape(format!(
            "a kernel {kernel:?} is expected, found a weight {shape:?}"
        ))),
    }
}

fn causal(g: &Graph, weight: usize, size: usize, dilation: usize, form: ConvForm) -> Result<GraphOp> {
    kernel(g, weight, &[size])?;
    let before = size
        .checked_sub(1)
        .and_then(|n| n.checked_mul(dilation))
        .filter(|_| dilation > 0);
    let before = before.ok_or_else(|| Error::argument(format!("a kernel of {size}, {dilation} apart, has no taps")))?;
    Ok(GraphOp::Conv {
        form,
        groups: 0,
        stride: 1,
        padding: [before, 0],
        dilation,
    })
}

fn one_position(g: &Graph, query: usize) -> Result<()> {
    let shape = g.info(query)?.shape;
    match shape.get(1) {
        Some(1) => Ok(()),
        _ => Err(Error::shape(format!(
            "a query [batch, 1, heads, d] is expected, found {shape:?}"
        ))),
    }
}

/// `(x [n, c, l], w [o, c, k], bias? [o]) -> [n, o, (l - k) / stride + 1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    stride: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv1d",
            conv(1, stride, 0),
            with_bias(&[x, weight, bias], has_bias),
            out,
        )
    })
}

/// As `cactus_graph_conv1d`, each channel on its own: `w [c, 1, k]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_depthwise(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    stride: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv1d_depthwise",
            conv(0, stride, 0),
            with_bias(&[x, weight, bias], has_bias),
            out,
        )
    })
}

/// `(x [n, c, l], w [o, c, 3]) -> [n, o, (l - 1) / stride + 1]`, a zero at both ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_k3(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    stride: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| kernel(g, id(weight)?, &[3]))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "conv1d_k3", conv(1, stride, 1), &[x, weight], out) }
    })
}

/// `(x [n, c, l], w [c, 7, o], bias [o]) -> [n, o, (l - 7) / 3 + 1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_k7s3(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    bias: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv1d_k7s3",
            GraphOp::Conv {
                form: ConvForm::KernelInside,
                groups: 1,
                stride: 3,
                padding: [0, 0],
                dilation: 1,
            },
            &[x, weight, bias],
            out,
        )
    })
}

/// Depthwise, no position sees a later one: `(x [n, l, c], w [c, 1, k]) -> [n, l, c]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_causal(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    kernel_size: usize,
    dilation: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let op = with(graph, |g| {
            causal(g, id(weight)?, kernel_size, dilation, ConvForm::ChannelsLast)
        })?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "conv1d_causal", op, &[x, weight], out) }
    })
}

/// As `cactus_graph_conv1d_causal`, `x [n, c, l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_causal_channel_first(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    kernel_size: usize,
    dilation: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let op = with(graph, |g| {
            causal(g, id(weight)?, kernel_size, dilation, ConvForm::ChannelsFirst)
        })?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "conv1d_causal_channel_first", op, &[x, weight], out) }
    })
}

/// Depthwise, four zeros at both ends: `(x [n, l, c], w [c, 9] or [c, 1, 9], bias? [c]) -> [n, l, c]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_same_depthwise_k9(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| kernel(g, id(weight)?, &[9]))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv1d_same_depthwise_k9",
                GraphOp::Conv {
                    form: ConvForm::ChannelsLast,
                    groups: 0,
                    stride: 1,
                    padding: [4, 4],
                    dilation: 1,
                },
                with_bias(&[x, weight, bias], has_bias),
                out,
            )
        }
    })
}

/// `(x [n, l, c], w [o, c] or [o, c, 1], bias? [o]) -> [n, l, o]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv1d_pointwise(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv1d_pointwise",
            GraphOp::Conv {
                form: ConvForm::ChannelsLast,
                groups: 1,
                stride: 1,
                padding: [0, 0],
                dilation: 1,
            },
            with_bias(&[x, weight, bias], has_bias),
            out,
        )
    })
}

/// `(x [n, c, h, w], weight [o, c, 3, 3], bias? [o])`, stride 2, a zero around.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv2d_k3s2p1(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| kernel(g, id(weight)?, &[3, 3]))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv2d_k3s2p1",
                conv(1, 2, 1),
                with_bias(&[x, weight, bias], has_bias),
                out,
            )
        }
    })
}

/// `(x [n, c, h, w], weight [o, c, 3, 3], bias? [o])`, stride 1, a zero around.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv2d_k3s1p1(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| kernel(g, id(weight)?, &[3, 3]))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv2d_k3s1p1",
                conv(1, 1, 1),
                with_bias(&[x, weight, bias], has_bias),
                out,
            )
        }
    })
}

/// `(x [n, c, h, w], weight [c, 3, 3] or [c, 1, 3, 3], bias? [c])`, stride 2, a zero around, each channel on its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv2d_depthwise_k3s2p1(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| kernel(g, id(weight)?, &[3, 3]))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv2d_depthwise_k3s2p1",
                conv(0, 2, 1),
                with_bias(&[x, weight, bias], has_bias),
                out,
            )
        }
    })
}

/// `(x [n, c, h, w], weight [o, c] or [o, c, 1, 1], bias? [o]) -> [n, o, h, w]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv2d_pointwise_1x1(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv2d_pointwise_1x1",
            conv(1, 1, 0),
            with_bias(&[x, weight, bias], has_bias),
            out,
        )
    })
}

/// `(x [n, c, h, w], weight [o, c / groups, k, l], bias? [o])`, the same step, zeros and dilation on both axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv2d(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    has_bias: bool,
    bias: u64,
    stride: usize,
    padding: usize,
    dilation: usize,
    groups: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        at_least_one(&[("stride", stride), ("dilation", dilation), ("groups", groups)])?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv2d",
                GraphOp::Conv {
                    form: ConvForm::ChannelsFirst,
                    groups,
                    stride,
                    padding: [padding, padding],
                    dilation,
                },
                with_bias(&[x, weight, bias], has_bias),
                out,
            )
        }
    })
}

/// One step: `(x [b, m], h [b, n], c [b, n], w_ih [4n, m], w_hh [4n, n], b_ih [4n], b_hh [4n]) -> [b, n, 2]`, output and
/// cell; gates input, forget, cell, output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_lstm_cell(
    graph: *mut c_void,
    x: u64,
    h: u64,
    c: u64,
    weight_ih: u64,
    weight_hh: u64,
    bias_ih: u64,
    bias_hh: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "lstm_cell",
            GraphOp::LstmCell,
            &[x, h, c, weight_ih, weight_hh, bias_ih, bias_hh],
            out,
        )
    })
}

/// One position of the gated delta rule: `(q, k [b, 1, hk, d], v [b, 1, h, e], log decay, rate [b, 1, h], state [b, d, h,
/// e]) -> [b, 1 + d, h, e]`, the result, then the state. A scale of 0 is `1/sqrt(d)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gated_deltanet_decode(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    gate_log: u64,
    beta: u64,
    state: u64,
    scale: f32,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| one_position(g, id(query)?))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "gated_deltanet_decode",
                GraphOp::GatedDelta { scale },
                &[query, key, value, gate_log, beta, state],
                out,
            )
        }
    })
}

/// The gated delta rule over `t` positions: `-> [b, t + d, h, e]`, results, then the state. `chunk_size` is a hint that
/// is not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gated_deltanet_prefill(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    gate_log: u64,
    beta: u64,
    state: u64,
    chunk_size: usize,
    scale: f32,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let _ = chunk_size;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "gated_deltanet_prefill",
                GraphOp::GatedDelta { scale },
                &[query, key, value, gate_log, beta, state],
                out,
            )
        }
    })
}
