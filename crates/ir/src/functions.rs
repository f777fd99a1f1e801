//! Functions that operations apply to elements: of one operand, of two, over an axis, and those of gated units.

use serde::{Deserialize, Serialize};

/// Elementwise function of one operand. Shape and type stay. `neg`, `abs` and `sign` are of numbers, `not` of `bool`, the
/// others of `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnaryFn {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `e^x`
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1/sqrt(x)`
    Rsqrt,
    /// Sine, radians.
    Sin,
    /// Cosine, radians.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Logistic function `1/(1+e^-x)`.
    Sigmoid,
    /// `max(x, 0)`
    Relu,
    /// `x * sigmoid(x)`
    Silu,
    /// `x * Phi(x)` with the normal distribution function (exact GELU).
    GeluErf,
    /// GELU by the tanh approximation.
    GeluTanh,
    /// `ln(1 + e^x)`
    Softplus,
    /// `min(max(x + 3, 0), 6) / 6` (Howard et al. 2019, MobileNetV3).
    HardSigmoid,
    /// `x * hard_sigmoid(x)` (Howard et al. 2019).
    HardSwish,
    /// Largest whole number not above `x`.
    Floor,
    /// Smallest whole number not below `x`.
    Ceil,
    /// Nearest whole number, ties to even.
    Round,
    /// `-1`, `0` or `1`.
    Sign,
    /// Logical not, on `bool`.
    Not,
}

/// Elementwise function of two broadcast operands of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BinaryFn {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// `a ^ b`
    Pow,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// `floor(a / b)`
    FloorDiv,
    /// `a - floor(a / b) * b`, which has the sign of `b`.
    Mod,
    /// Logical and, on `bool`.
    And,
    /// Logical or, on `bool`.
    Or,
    /// Bits that both have, on `i64` in two's complement as the following.
    BitAnd,
    /// Bits that any has.
    BitOr,
    /// Bits that one of them has.
    BitXor,
    /// `a` moved by `b` bits to the left; what is moved out is lost, all of it where `b` is negative or over 63.
    Shl,
    /// `a` moved by `b` bits to the right, its sign moving in; all bits are the sign where `b` is negative or over 63.
    Shr,
}

impl BinaryFn {
    /// Whether the function is of the bits of integers.
    pub fn is_bitwise(self) -> bool {
        matches!(
            self,
            BinaryFn::BitAnd | BinaryFn::BitOr | BinaryFn::BitXor | BinaryFn::Shl | BinaryFn::Shr
        )
    }

    /// What a function of the bits of integers gives; `None` for another.
    pub fn bits(self, a: i64, b: i64) -> Option<i64> {
        let by = u32::try_from(b).ok().filter(|&b| b < 64);
        Some(match self {
            BinaryFn::BitAnd => a & b,
            BinaryFn::BitOr => a | b,
            BinaryFn::BitXor => a ^ b,
            BinaryFn::Shl => by.map_or(0, |by| a.wrapping_shl(by)),
            BinaryFn::Shr => a >> by.unwrap_or(63),
            _ => return None,
        })
    }
}

/// Elementwise comparison of two broadcast operands of one type; the result is `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompareFn {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

/// Reduction over axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReduceFn {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Product.
    Prod,
}

/// Activation of a gated unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU by the tanh approximation.
    GeluTanh,
    /// Exact GELU.
    GeluErf,
    /// `max(x, 0)`
    Relu,
    /// `x * sigmoid(1.702 x)` of what is at most 7; what it multiplies is cut at -7 and 7, and one more (gpt-oss). Of gated units alone.
    ClampedSwish,
}

impl Activation {
    /// The function of one operand that it is, but for [`Activation::ClampedSwish`], which also changes what it multiplies.
    pub fn unary(self) -> Option<UnaryFn> {
        match self {
            Activation::Silu => Some(UnaryFn::Silu),
            Activation::GeluTanh => Some(UnaryFn::GeluTanh),
            Activation::GeluErf => Some(UnaryFn::GeluErf),
            Activation::Relu => Some(UnaryFn::Relu),
            Activation::ClampedSwish => None,
        }
    }

    /// The activation that is `f`.
    pub fn of_unary(f: UnaryFn) -> Option<Activation> {
        let all = [
            Activation::Silu,
            Activation::GeluTanh,
            Activation::GeluErf,
            Activation::Relu,
        ];
        all.into_iter().find(|a| a.unary() == Some(f))
    }
}
