//! The graph's function names as the kernels' names: the two crates do not know each other.

use cactus_ir::{Activation, BinaryFn, UnaryFn};
use cactus_kernels as kernels;

pub(crate) fn activation(a: Activation) -> Option<kernels::Activation> {
    Some(match a {
        Activation::Silu => kernels::Activation::Silu,
        Activation::GeluTanh => kernels::Activation::GeluTanh,
        Activation::GeluErf => kernels::Activation::GeluErf,
        Activation::Relu => kernels::Activation::Relu,
        Activation::ClampedSwish => kernels::Activation::ClampedSwish,
        _ => return None,
    })
}

/// `None` for functions of booleans.
pub(crate) fn binary(f: BinaryFn) -> Option<kernels::BinaryOp> {
    Some(match f {
        BinaryFn::Add => kernels::BinaryOp::Add,
        BinaryFn::Sub => kernels::BinaryOp::Sub,
        BinaryFn::Mul => kernels::BinaryOp::Mul,
        BinaryFn::Div => kernels::BinaryOp::Div,
        BinaryFn::Max => kernels::BinaryOp::Max,
        BinaryFn::Min => kernels::BinaryOp::Min,
        _ => return None,
    })
}

/// `None` for functions of booleans.
pub(crate) fn unary(f: UnaryFn) -> Option<kernels::UnaryOp> {
    Some(match f {
        UnaryFn::Neg => kernels::UnaryOp::Neg,
        UnaryFn::Abs => kernels::UnaryOp::Abs,
        UnaryFn::Exp => kernels::UnaryOp::Exp,
        UnaryFn::Log => kernels::UnaryOp::Log,
        UnaryFn::Sqrt => kernels::UnaryOp::Sqrt,
        UnaryFn::Rsqrt => kernels::UnaryOp::Rsqrt,
        UnaryFn::Sin => kernels::UnaryOp::Sin,
        UnaryFn::Cos => kernels::UnaryOp::Cos,
        UnaryFn::Tanh => kernels::UnaryOp::Tanh,
        UnaryFn::Erf => kernels::UnaryOp::Erf,
        UnaryFn::Sigmoid => kernels::UnaryOp::Sigmoid,
        UnaryFn::Relu => kernels::UnaryOp::Relu,
        UnaryFn::Silu => kernels::UnaryOp::Silu,
        UnaryFn::Softplus => kernels::UnaryOp::Softplus,
        UnaryFn::HardSigmoid => kernels::UnaryOp::HardSigmoid,
        UnaryFn::HardSwish => kernels::UnaryOp::HardSwish,
        UnaryFn::GeluErf => kernels::UnaryOp::GeluErf,
        UnaryFn::GeluTanh => kernels::UnaryOp::GeluTanh,
        _ => return None,
    })
}
