//! Functions of elements, of two operands each, and choices by masks.

use super::node_graph::{BinaryFn, GraphOp, Precision};
use super::open::add;
use crate::failure::Failure;
use crate::guard;
use std::ffi::{c_int, c_void};

/// `a + b`, broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_add(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "add", GraphOp::Binary(BinaryFn::Add), &[a, b], out) })
}

/// `a + b`, broadcast, kept within what half precision can hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_add_clipped(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "add_clipped",
            GraphOp::Binary(BinaryFn::AddClipped),
            &[a, b],
            out,
        )
    })
}

/// `a - b`, broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_subtract(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "subtract", GraphOp::Binary(BinaryFn::Subtract), &[a, b], out) })
}

/// `a * b`, broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_multiply(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "multiply", GraphOp::Binary(BinaryFn::Multiply), &[a, b], out) })
}

/// `a / b`, broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_divide(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "divide", GraphOp::Binary(BinaryFn::Divide), &[a, b], out) })
}

/// 1 where `a != b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_not_equal(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "not_equal", GraphOp::Binary(BinaryFn::NotEqual), &[a, b], out) })
}

/// 1 where `a == b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_equal(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "equal", GraphOp::Binary(BinaryFn::Equal), &[a, b], out) })
}

/// 1 where `a < b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_less(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "less", GraphOp::Binary(BinaryFn::Less), &[a, b], out) })
}

/// 1 where `a <= b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_less_equal(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "less_equal", GraphOp::Binary(BinaryFn::LessEqual), &[a, b], out) })
}

/// 1 where `a > b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_greater(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "greater", GraphOp::Binary(BinaryFn::Greater), &[a, b], out) })
}

/// 1 where `a >= b`, else 0; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_greater_equal(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "greater_equal",
            GraphOp::Binary(BinaryFn::GreaterEqual),
            &[a, b],
            out,
        )
    })
}

/// Bits that the whole numbers of both have; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_bitwise_and(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "bitwise_and",
            GraphOp::Binary(BinaryFn::BitwiseAnd),
            &[a, b],
            out,
        )
    })
}

/// Bits that the whole numbers of any have; broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_bitwise_or(graph: *mut c_void, a: u64, b: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "bitwise_or", GraphOp::Binary(BinaryFn::BitwiseOr), &[a, b], out) })
}

/// `condition != 0 ? a : b`, broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_where(
    graph: *mut c_void,
    condition: u64,
    a: u64,
    b: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "where", GraphOp::Where, &[condition, a, b], out) })
}

/// `x`, not below `low` and not above `high`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_clamp(graph: *mut c_void, x: u64, low: f32, high: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "clamp", GraphOp::Clamp { low, high }, &[x], out) })
}

/// The rows of `x` where `mask`, which has the first axes of `x`, is not 0; zeros behind. `[n, …]`, as many rows as the
/// mask has elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_masked_select_prefix(
    graph: *mut c_void,
    x: u64,
    mask: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "masked_select_prefix",
            GraphOp::MaskedSelectPrefix,
            &[x, mask],
            out,
        )
    })
}

/// `x`, but where `mask` is not 0 the elements of `source` in order; the last one again where there are too few.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_masked_scatter(
    graph: *mut c_void,
    x: u64,
    mask: u64,
    source: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "masked_scatter", GraphOp::MaskedScatter, &[x, mask, source], out) })
}

/// `x` in another precision: 0 INT8 (rounded, from -128 to 127), 1 FP16 (rounded), 2 FP32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_precision_cast(
    graph: *mut c_void,
    x: u64,
    precision: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let precision = Precision::from_code(precision)?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "precision_cast", GraphOp::Cast(precision), &[x], out) }
    })
}

/// Not in this build: products quantize what they read by themselves. Sets the last error and returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_quantize_activations(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    let _ = (graph, x, out);
    guard::status(|| Err(Failure::not_in_build("`cactus_graph_quantize_activations`")))
}
