//! Every operation with its operands, attributes and meaning. Result types are in `infer`, values in the `reference`
//! crate.

use crate::Dim;
use cactus_tensor::DType;
use serde::{Deserialize, Serialize};

/// Elementwise function of one operand. Shape and type stay.
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
    /// Logical and, on `bool`.
    And,
    /// Logical or, on `bool`.
    Or,
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
}

/// Attributes of [`Op::Attention`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionAttrs {
    /// Factor on the scores before softmax, usually `1/sqrt(head_dim)`.
    pub scale: f32,
    /// Query `i` (absolute position `past + i`) sees no key after itself.
    pub causal: bool,
    /// Query at position `p` sees only keys at positions greater than `p - window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Scores become `softcap * tanh(score / softcap)` before the mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
    /// Name of the KV state that the keys and values are appended to, and that attention then reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// An operation. Operand order and shapes stand at each variant; `…` is any number of leading axes.
///
/// [`crate::infer`] is the one definition of result types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    // ---- primitive: elementwise
    /// `f(x)`.
    Unary {
        /// The function.
        f: UnaryFn,
    },
    /// `f(a, b)`, NumPy broadcasting.
    Binary {
        /// The function.
        f: BinaryFn,
    },
    /// `f(a, b)` as `bool`, NumPy broadcasting.
    Compare {
        /// The function.
        f: CompareFn,
    },
    /// `cond ? a : b`, NumPy broadcasting of the three.
    Where,
    /// Conversion to another element type; float to integer truncates toward zero.
    Cast {
        /// Target type.
        dtype: DType,
    },

    // ---- primitive: reductions
    /// Reduces `axes`.
    Reduce {
        /// The function.
        f: ReduceFn,
        /// Axes reduced, ascending.
        axes: Vec<usize>,
        /// Whether a reduced axis stays with size 1.
        keepdim: bool,
    },
    /// Softmax along `axis`; a row of only `-inf` gives NaN, as in the reference frameworks.
    Softmax {
        /// The axis that sums to one.
        axis: usize,
    },

    // ---- primitive: shape
    /// The same elements, row-major, under another shape.
    Reshape {
        /// The new shape.
        shape: Vec<Dim>,
    },
    /// Axis `i` of the result is axis `perm[i]` of `x`.
    Permute {
        /// The order of axes.
        perm: Vec<usize>,
    },
    /// Elements `start..end` of one axis.
    Slice {
        /// The axis cut.
        axis: usize,
        /// First index.
        start: Dim,
        /// Index after the last.
        end: Dim,
    },
    /// Operands joined along `axis`.
    Concat {
        /// The axis joined.
        axis: usize,
    },
    /// Broadcasts to `shape` by NumPy's rule.
    Expand {
        /// The new shape.
        shape: Vec<Dim>,
    },
    /// `[start, start+1, …]` of `len` elements, `i64[len]`. No operand.
    Iota {
        /// First value.
        start: Dim,
        /// Number of elements.
        len: Dim,
    },

    // ---- primitive: indexing and linear algebra
    /// Rows of a table: `(table [rows, width], ids i64 […]) -> […, width]`.
    Embedding,
    /// `(x […, k], w [n, k], bias? [n]) -> […, n]`: `x · wᵀ + bias`.
    Linear,
    /// `(a […, m, k], b […, k, n]) -> […, m, n]`, leading axes broadcast.
    MatMul,
    /// `(x [batch, channels_in, length], w [channels_out, channels_in/groups, kernel], bias? [channels_out])
    /// -> [batch, channels_out, length + pad_left + pad_right - kernel + 1]`, stride and dilation 1.
    Conv1d {
        /// Number of groups.
        groups: usize,
        /// Zeros before the first position.
        pad_left: usize,
        /// Zeros after the last position.
        pad_right: usize,
    },

    // ---- fused
    /// `(x […, n], weight [n]) -> x / sqrt(mean(x²) + eps) * weight`. Zhang and Sennrich 2019.
    RmsNorm {
        /// Added under the root.
        eps: f32,
    },
    /// `(x […, n], weight [n], bias? [n])`. Ba et al. 2016.
    LayerNorm {
        /// Added under the root.
        eps: f32,
    },
    /// Rotary position embedding, rotate-half convention. Su et al. 2021.
    /// `(x [batch, seq, heads, head_dim], positions i64 [seq], inv_freq [rotary/2]) -> like x`: with angle
    /// `a = position * inv_freq[i]`, elements `i` and `i + rotary/2` of each head become
    /// `x_i cos a - x_j sin a` and `x_j cos a + x_i sin a`, both times `scale`; elements from `rotary` on stay.
    Rope {
        /// Factor on cosine and sine (YaRN's attention factor), usually 1.
        scale: f32,
    },
    /// Scaled dot-product attention with grouped query heads. Vaswani et al. 2017, Ainslie et al. 2023.
    /// `(q [batch, seq, heads, head_dim], k, v [batch, seq, kv_heads, head_dim]) -> [batch, seq, heads, head_dim]`.
    /// Query head `h` reads KV head `h / (heads / kv_heads)`. With a state, keys and values of earlier calls come first.
    Attention(AttentionAttrs),
    /// `(gate_up […, 2n]) -> activation(first half) * second half`, `[…, n]`.
    Gated {
        /// On the first half.
        activation: Activation,
    },
    /// Causal depthwise convolution over positions:
    /// `(x [batch, seq, channels], w [channels, kernel], bias? [channels]) -> [batch, seq, channels]`,
    /// `y[t] = sum_j w[j] * x[t - (kernel-1) + j]`, zeros before the first position or, with a state, what came before.
    ShortConv {
        /// Name of the convolution state, `[kernel-1, channels]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

impl Op {
    /// The mnemonic of the text form.
    pub fn mnemonic(&self) -> String {
        fn tag<T: Serialize>(t: &T) -> String {
            match serde_json::to_value(t) {
                Ok(serde_json::Value::String(s)) => s,
                _ => String::from("?"),
            }
        }
        match self {
            Op::Unary { f } => tag(f),
            Op::Binary { f } => tag(f),
            Op::Compare { f } => tag(f),
            Op::Reduce { f, .. } => format!("reduce_{}", tag(f)),
            Op::Where => "where".into(),
            Op::Cast { .. } => "cast".into(),
            Op::Softmax { .. } => "softmax".into(),
            Op::Reshape { .. } => "reshape".into(),
            Op::Permute { .. } => "permute".into(),
            Op::Slice { .. } => "slice".into(),
            Op::Concat { .. } => "concat".into(),
            Op::Expand { .. } => "expand".into(),
            Op::Iota { .. } => "iota".into(),
            Op::Embedding => "embedding".into(),
            Op::Linear => "linear".into(),
            Op::MatMul => "matmul".into(),
            Op::Conv1d { .. } => "conv1d".into(),
            Op::RmsNorm { .. } => "rms_norm".into(),
            Op::LayerNorm { .. } => "layer_norm".into(),
            Op::Rope { .. } => "rope".into(),
            Op::Attention(_) => "attention".into(),
            Op::Gated { .. } => "gated".into(),
            Op::ShortConv { .. } => "short_conv".into(),
        }
    }

    /// The state the operation reads and writes, if any.
    pub fn state(&self) -> Option<&str> {
        match self {
            Op::Attention(a) => a.state.as_deref(),
            Op::ShortConv { state } => state.as_deref(),
            _ => None,
        }
    }
}
