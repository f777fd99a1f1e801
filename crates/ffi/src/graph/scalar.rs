//! Functions of one operand, and of one and a number.

use super::node_graph::{BinaryFn, GraphOp, UnaryFn};
use super::open::add;
use crate::guard;
use std::ffi::{c_int, c_void};

fn scalar(f: BinaryFn, value: f32) -> GraphOp {
    GraphOp::Scalar { f, value }
}

/// `x + value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_add(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_add", scalar(BinaryFn::Add, value), &[x], out) })
}

/// `x - value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_subtract(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_subtract", scalar(BinaryFn::Subtract, value), &[x], out) })
}

/// `x * value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_multiply(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_multiply", scalar(BinaryFn::Multiply, value), &[x], out) })
}

/// `x / value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_divide(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_divide", scalar(BinaryFn::Divide, value), &[x], out) })
}

/// `floor(x / value)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_floor_divide(
    graph: *mut c_void,
    x: u64,
    value: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "scalar_floor_divide",
            scalar(BinaryFn::FloorDivide, value),
            &[x],
            out,
        )
    })
}

/// 1 where `x != value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_not_equal(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_not_equal", scalar(BinaryFn::NotEqual, value), &[x], out) })
}

/// 1 where `x == value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_equal(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_equal", scalar(BinaryFn::Equal, value), &[x], out) })
}

/// 1 where `x < value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_less(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_less", scalar(BinaryFn::Less, value), &[x], out) })
}

/// 1 where `x <= value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_less_equal(
    graph: *mut c_void,
    x: u64,
    value: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "scalar_less_equal",
            scalar(BinaryFn::LessEqual, value),
            &[x],
            out,
        )
    })
}

/// 1 where `x > value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_greater(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_greater", scalar(BinaryFn::Greater, value), &[x], out) })
}

/// 1 where `x >= value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_greater_equal(
    graph: *mut c_void,
    x: u64,
    value: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "scalar_greater_equal",
            scalar(BinaryFn::GreaterEqual, value),
            &[x],
            out,
        )
    })
}

/// `x` to the power `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_pow(graph: *mut c_void, x: u64, value: f32, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "pow", scalar(BinaryFn::Pow, value), &[x], out) })
}

/// `e^x`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_exp(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_exp", GraphOp::Unary(UnaryFn::Exp), &[x], out) })
}

/// Square root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_sqrt(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_sqrt", GraphOp::Unary(UnaryFn::Sqrt), &[x], out) })
}

/// Cosine, radians.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_cos(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_cos", GraphOp::Unary(UnaryFn::Cos), &[x], out) })
}

/// Sine, radians.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_sin(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_sin", GraphOp::Unary(UnaryFn::Sin), &[x], out) })
}

/// Natural logarithm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scalar_log(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "scalar_log", GraphOp::Unary(UnaryFn::Log), &[x], out) })
}

/// Absolute value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_abs(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "abs", GraphOp::Unary(UnaryFn::Abs), &[x], out) })
}

/// `max(x, 0)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_relu(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "relu", GraphOp::Unary(UnaryFn::Relu), &[x], out) })
}

/// `x * sigmoid(x)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_silu(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "silu", GraphOp::Unary(UnaryFn::Silu), &[x], out) })
}

/// GELU by the tanh approximation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gelu(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "gelu", GraphOp::Unary(UnaryFn::Gelu), &[x], out) })
}

/// Exact GELU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gelu_erf(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "gelu_erf", GraphOp::Unary(UnaryFn::GeluErf), &[x], out) })
}

/// `1 / (1 + e^-x)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_sigmoid(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "sigmoid", GraphOp::Unary(UnaryFn::Sigmoid), &[x], out) })
}

/// Hyperbolic tangent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_tanh(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "tanh", GraphOp::Unary(UnaryFn::Tanh), &[x], out) })
}

/// 1 where `x` is 0, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_logical_not(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "logical_not", GraphOp::Unary(UnaryFn::LogicalNot), &[x], out) })
}

/// All bits of the whole numbers turned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_bitwise_not(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "bitwise_not", GraphOp::Unary(UnaryFn::BitwiseNot), &[x], out) })
}
