//! Functions of axes: sums and the like, and norms.

use super::node_graph::{GraphOp, ReduceFn};
use super::open::{add, with_bias};
use crate::guard;
use std::ffi::{c_int, c_void};

fn reduce(f: ReduceFn, axis: c_int) -> GraphOp {
    let axis = Some(axis).filter(|&a| a != -1);
    GraphOp::Reduce { f, axis }
}

/// Sum of an axis, which goes; -1 for all elements, as `[1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_sum(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "sum", reduce(ReduceFn::Sum, axis), &[x], out) })
}

/// Arithmetic mean of an axis, which goes; -1 for all elements, as `[1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_mean(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "mean", reduce(ReduceFn::Mean, axis), &[x], out) })
}

/// Variance (divided by the count) of an axis, which goes; -1 for all elements, as `[1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_variance(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "variance", reduce(ReduceFn::Variance, axis), &[x], out) })
}

/// Smallest element of an axis, which goes; -1 for all elements, as `[1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_min(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "min", reduce(ReduceFn::Min, axis), &[x], out) })
}

/// Largest element of an axis, which goes; -1 for all elements, as `[1]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_max(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "max", reduce(ReduceFn::Max, axis), &[x], out) })
}

/// Sums up to each element of an axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_cumsum(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "cumsum", GraphOp::CumSum(axis), &[x], out) })
}

/// Softmax of an axis; -1 for the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_softmax(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "softmax", GraphOp::Softmax(axis), &[x], out) })
}

/// First half of an axis times the logistic function of the second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_glu(graph: *mut c_void, x: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "glu", GraphOp::Glu(axis), &[x], out) })
}

/// `max(x - (mean + ppf * deviation), 0)` of each row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gaussian_topk(graph: *mut c_void, x: u64, ppf: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "gaussian_topk", GraphOp::GaussianTopK { ppf }, &[x], out) })
}

/// `x / sqrt(mean(x^2) + epsilon) * weight` of each row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rms_norm(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    epsilon: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "rms_norm", GraphOp::RmsNorm { eps: epsilon }, &[x, weight], out) })
}

/// Layer norm of each row; `bias` counts where `has_bias`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_layernorm(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    bias: u64,
    epsilon: f32,
    has_bias: bool,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "layernorm",
            GraphOp::LayerNorm { eps: epsilon },
            with_bias(&[x, weight, bias], has_bias),
            out,
        )
    })
}

/// Group norm of `[batch, channels, …]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_groupnorm(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    bias: u64,
    groups: usize,
    epsilon: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "groupnorm",
            GraphOp::GroupNorm { groups, eps: epsilon },
            &[x, weight, bias],
            out,
        )
    })
}

/// Batch norm by running mean and variance, channels at `axis`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_batchnorm(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    bias: u64,
    mean: u64,
    variance: u64,
    axis: c_int,
    epsilon: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "batchnorm",
            GraphOp::BatchNorm { axis, eps: epsilon },
            &[x, weight, bias, mean, variance],
            out,
        )
    })
}
