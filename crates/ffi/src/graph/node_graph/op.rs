//! What a node computes, with its attributes. Meaning and shapes stand here; `lower` says how it is computed.

use super::Precision;
use serde::{Deserialize, Serialize};

/// Function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnaryFn {
    /// `|x|`
    Abs,
    /// `e^x`
    Exp,
    /// Square root.
    Sqrt,
    /// Cosine, radians.
    Cos,
    /// Sine, radians.
    Sin,
    /// Natural logarithm.
    Log,
    /// `max(x, 0)`
    Relu,
    /// `x * sigmoid(x)`
    Silu,
    /// GELU by the tanh approximation.
    Gelu,
    /// Exact GELU.
    GeluErf,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 where `x` is 0, else 0.
    LogicalNot,
    /// All bits of the whole number turned.
    BitwiseNot,
}

/// Function of two elements, or of one and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BinaryFn {
    /// `a + b`
    Add,
    /// `a + b`, kept within what half precision can hold.
    AddClipped,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`
    Divide,
    /// `floor(a / b)`
    FloorDivide,
    /// `a ^ b`
    Pow,
    /// 1 where `a != b`, else 0; so the following.
    NotEqual,
    /// `a == b`
    Equal,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// Bits that both whole numbers have.
    BitwiseAnd,
    /// Bits that one of the whole numbers has.
    BitwiseOr,
}

/// What a reduction makes of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReduceFn {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Mean of the squared distances from the mean.
    Variance,
    /// Smallest.
    Min,
    /// Largest.
    Max,
}

/// Activation of a layer of experts, by its public code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU by the tanh approximation.
    Gelu,
    /// Exact GELU.
    GeluErf,
    /// `max(x, 0)`
    Relu,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// The activation of a public code.
    pub(crate) fn from_code(code: i32) -> super::Result<Activation> {
        use Activation::{Gelu, GeluErf, Relu, Sigmoid, Silu, Tanh};
        let all = [Silu, Gelu, GeluErf, Relu, Sigmoid, Tanh];
        let found = usize::try_from(code).ok().and_then(|c| all.get(c));
        found
            .copied()
            .ok_or_else(|| super::Error::argument(format!("activation {code} is unknown; expected 0 to 5")))
    }

    /// As a function of one element.
    pub(crate) fn unary(self) -> UnaryFn {
        match self {
            Activation::Silu => UnaryFn::Silu,
            Activation::Gelu => UnaryFn::Gelu,
            Activation::GeluErf => UnaryFn::GeluErf,
            Activation::Relu => UnaryFn::Relu,
            Activation::Sigmoid => UnaryFn::Sigmoid,
            Activation::Tanh => UnaryFn::Tanh,
        }
    }
}

/// How a convolution holds its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConvForm {
    /// `x [batch, channels, size…]`, `w [out, channels/groups, kernel…]`.
    ChannelsFirst,
    /// `x [batch, length, channels]`, `w` as above; the result too has its channels last.
    ChannelsLast,
    /// `x [batch, channels, length]`, `w [channels, kernel, out]`.
    KernelInside,
}

/// Attributes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attend {
    /// Factor on the scores; 0 for `1/sqrt(head_dim)`.
    #[serde(with = "super::number")]
    pub(crate) scale: f32,
    /// A query sees no key behind its own position.
    pub(crate) causal: bool,
    /// Position of the first query; that of the first key is 0. `None` where the queries are the last positions.
    pub(crate) offset: Option<usize>,
    /// A query sees so many positions before its own at most; 0 for all.
    pub(crate) window: usize,
    /// Whether a mask is among the operands.
    pub(crate) mask: bool,
    /// Whether the mask is added to the scores; otherwise keys are seen where it is not 0.
    pub(crate) additive: bool,
}

/// What a node computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GraphOp {
    /// Given by the caller.
    Input {
        /// Axes whose size may change between executions.
        dynamic: Vec<bool>,
    },
    /// A weight file.
    Weights {
        /// Where it lies.
        path: String,
    },
    /// `f(x)`
    Unary(UnaryFn),
    /// `f(a, b)`, broadcast.
    Binary(BinaryFn),
    /// `f(x, value)`
    Scalar {
        /// The function.
        f: BinaryFn,
        /// The number.
        #[serde(with = "super::number")]
        value: f32,
    },
    /// `x`, kept within bounds.
    Clamp {
        /// The lower bound.
        #[serde(with = "super::number")]
        low: f32,
        /// The upper bound.
        #[serde(with = "super::number")]
        high: f32,
    },
    /// `(condition, a, b)`, broadcast: `a` where the condition is not 0.
    Where,
    /// Another precision.
    Cast(Precision),
    /// `(x [n…, d…], mask [n…]) -> [n, d…]`: the rows where the mask is not 0, then zeros.
    MaskedSelectPrefix,
    /// `(x, mask, source) -> like x`: where the mask is not 0, the elements of `source` in order.
    MaskedScatter,

    /// The same elements under another shape.
    Reshape(Vec<usize>),
    /// Broadcast to a shape.
    Expand(Vec<usize>),
    /// Axis `i` of the result is axis `perm[i]`.
    Permute(Vec<usize>),
    /// `length` elements of an axis from `start` on, each `step`th; a length of 0 is all that remain.
    Slice {
        /// The axis.
        axis: i32,
        /// The first element.
        start: usize,
        /// How many.
        length: usize,
        /// Distance between two.
        step: usize,
    },
    /// One element of an axis, which goes.
    Index {
        /// The axis.
        axis: i32,
        /// Which.
        index: usize,
    },
    /// Windows of an axis, as a last axis: `[…, n, …] -> […, (n - size)/step + 1, …, size]`.
    Unfold {
        /// The axis.
        axis: i32,
        /// Size of a window.
        size: usize,
        /// Distance between two.
        step: usize,
    },
    /// `value` before and behind the last axes: pairs as `torch.nn.functional.pad` takes them, the last axis first.
    Pad {
        /// How much.
        pads: Vec<usize>,
        /// Of what.
        #[serde(with = "super::number")]
        value: f32,
    },
    /// Operands joined at an axis.
    Concat {
        /// The axis.
        axis: i32,
    },
    /// `(x [a…, n, b…], ids [i…]) -> [a…, i…, b…]`
    Take {
        /// The axis.
        axis: i32,
    },
    /// `(x, ids) -> like ids`: the element of `x` at the same place, but at the axis where `ids` has it.
    Gather {
        /// The axis.
        axis: i32,
    },
    /// `x [rows, n] -> [2, rows, k]`: places of the largest elements, then the elements, the largest first.
    TopK(usize),
    /// `(places [rows, k], values [rows, k]) -> [classes, rows]`, zeros elsewhere.
    ScatterTopK(usize),

    /// An axis, which goes; `None` for all elements, as `[1]`.
    Reduce {
        /// The function.
        f: ReduceFn,
        /// The axis.
        axis: Option<i32>,
    },
    /// Sums up to each element of an axis.
    CumSum(i32),
    /// Softmax of an axis.
    Softmax(i32),
    /// First half of an axis times the logistic function of the second.
    Glu(i32),
    /// `(a […, m, k], b […, k, n]) -> […, m, n]`, or `b […, n, k]` transposed.
    MatMul {
        /// Whether `b` is transposed.
        transposed: bool,
    },
    /// `(x […, n], w [n])`
    RmsNorm {
        /// Added under the root.
        #[serde(with = "super::number")]
        eps: f32,
    },
    /// `(x […, n], w [n], bias? [n])`
    LayerNorm {
        /// Added under the root.
        #[serde(with = "super::number")]
        eps: f32,
    },
    /// `(x [batch, channels, …], w [channels], bias [channels])`
    GroupNorm {
        /// Groups of channels.
        groups: usize,
        /// Added under the root.
        #[serde(with = "super::number")]
        eps: f32,
    },
    /// `(x, w, bias, mean, variance)`, each of them of the size of the axis.
    BatchNorm {
        /// The axis of channels.
        axis: i32,
        /// Added under the root.
        #[serde(with = "super::number")]
        eps: f32,
    },
    /// Rotary embedding of `x [batch, seq, heads, head_dim]`.
    Rope {
        /// Base of the frequencies.
        #[serde(with = "super::number")]
        theta: f32,
        /// Position of the first row.
        offset: usize,
        /// How many elements turn; 0 for all.
        rotary: usize,
        /// Whether pairs are neighbors instead of one from each half.
        interleaved: bool,
    },
    /// `(q [batch, seq, heads, d], k [batch, keys, kv_heads, d], v [batch, keys, kv_heads, e], mask?) -> [batch, seq, heads, e]`
    Attention(Attend),
    /// `(q, new k, new v, k cache, v cache, mask?)`; the caches hold the new keys and values.
    AttentionCached {
        /// As of attention.
        attend: Attend,
        /// Width of a head of the values; 0 for that of the cache.
        value_dim: usize,
    },
    /// `(q [batch, seq, heads, d], r [batch|1, 2 seq - 1 or more, heads, d]) -> [batch, heads, seq, seq]`
    RelPosBias {
        /// Factor.
        #[serde(with = "super::number")]
        scale: f32,
    },
    /// `(q, k, v, rel_q [batch, seq, heads, d], r [batch|1, n, heads, d], mask? [batch, seq])`; `mask` is added to the scores.
    RelPosAttention {
        /// Factor on the scores.
        #[serde(with = "super::number")]
        scale: f32,
        /// Distance that is seen to both sides; 0 for all.
        window: usize,
        /// Whether a mask is among the operands.
        mask: bool,
    },

    /// A convolution; `bias` is among the operands where there are three.
    Conv {
        /// How the operands lie.
        form: ConvForm,
        /// Groups of channels; 0 for as many as channels.
        groups: usize,
        /// Steps between windows.
        stride: usize,
        /// Zeros before and behind each axis.
        padding: [usize; 2],
        /// Steps between taps.
        dilation: usize,
    },
    /// `(x, h [batch, n], c, w_ih [4n, m], w_hh [4n, n], b_ih, b_hh) -> [batch, n, 2]`: output and cell.
    LstmCell,
    /// `(q, k [b, t, hk, d], v [b, t, h, e], log decay, rate [b, t, h], state [b, d, h, e]) -> [b, t + d, h, e]`: results, then
    /// the state.
    GatedDelta {
        /// Factor on the query; 0 for `1/sqrt(d)`.
        #[serde(with = "super::number")]
        scale: f32,
    },
    /// `(x [batch, channels, length], w [2 bins or more, channels, kernel]) -> [batch, 2 bins, frames]`
    Stft {
        /// Steps between frames.
        stride: usize,
        /// Bins.
        bins: usize,
    },
    /// `x […, n] -> […, n/2 + 1, 2]`: real and imaginary part.
    Rfft,
    /// `x […, m, 2] -> […, n]`, its inverse, divided by `n`.
    Irfft(usize),
    /// `[bins, mels]`, triangles.
    MelFilterBank(super::signal::MelBank),
    /// `(wave [n], mels [bins, mels]) -> [mels, frames]`
    Spectrogram(super::signal::Frames),
    /// `x [height, width, channels]` as patches `[patches, size * size * channels]`.
    ImagePreprocess(super::image::Patches),
    /// `x [h * h, n] -> [height * width, n]`, the corners staying.
    Bilinear {
        /// Of the result.
        height: usize,
        /// Of the result.
        width: usize,
    },
    /// `(coefs [seq, n * n], streams… [seq, d]) -> [n * seq, d]`
    AltupPredict,
    /// `(coefs [seq, n], innovation [seq, d], predictions… [seq, d]) -> [n * seq, d]`
    AltupCorrect,
    /// `max(x - (mean + ppf * deviation), 0)` of each row.
    GaussianTopK {
        /// How many deviations above the mean.
        #[serde(with = "super::number")]
        ppf: f32,
    },
    /// `(x [t, n], probabilities [t, experts], places [t, k], w1… [m, n], (w3… [m, n],) w2… [n, m]) -> [t, n]`
    Experts {
        /// How many there are.
        experts: usize,
        /// Whether there is `w3`.
        gated: bool,
        /// Whether shares are divided by their sum.
        normalize: bool,
        /// Added to the sum.
        #[serde(with = "super::number")]
        eps: f32,
        /// Factor on the shares.
        #[serde(with = "super::number")]
        factor: f32,
        /// On `w1`.
        activation: Activation,
    },
    /// `(x […, n], gate [m, n], up [m, n], down [n, m])`: `down (gelu(gate x) * up x)`.
    DenseMlp {
        /// Factor on the product.
        #[serde(with = "super::number")]
        product: f32,
        /// Factor on what the activation takes.
        #[serde(with = "super::number")]
        gate: f32,
    },
    /// `(x […, n], w… [m, n])`, the products joined.
    Projections,
    /// `cap * tanh(scale * w x / cap)`
    SoftcapLogits {
        /// The cap.
        #[serde(with = "super::number")]
        cap: f32,
        /// Factor on the product.
        #[serde(with = "super::number")]
        scale: f32,
    },
    /// `logits […, n] -> [1]`: a token of the last row.
    Sample {
        /// 0 to 100; 0 for the likeliest.
        #[serde(with = "super::number")]
        temperature: f32,
        /// Share of the probability that is kept, 0 to 1; 0 and 1 for all.
        #[serde(with = "super::number")]
        top_p: f32,
        /// How many are kept; 0 for all.
        top_k: usize,
    },

    /// Keys or values of earlier executions, `[positions, heads, head_dim]`.
    KvState {
        /// Most positions.
        capacity: usize,
        /// Heads.
        heads: usize,
        /// Width of a head.
        head_dim: usize,
        /// Positions kept at most; 0 for all.
        window: usize,
        /// First positions that always stay.
        sink: usize,
    },
    /// `(new, cache) -> [1]`: positions held.
    KvAppend {
        /// Positions kept at most; 0 for what the cache says.
        window: usize,
        /// First positions that always stay.
        sink: usize,
    },
    /// The last rows of a convolution's input, `[rows, channels]`.
    ConvState {
        /// Rows.
        rows: usize,
        /// Channels.
        channels: usize,
    },
    /// `(new […, channels], cache) -> [rows, channels]`: the window behind the new rows.
    ConvAppend,
    /// `(rows […, channels], cache) -> [0]`: the window becomes the last of these rows.
    ConvInitialize,
    /// A tensor carried from execution to execution.
    RecurrentState(Vec<usize>),
    /// `(new, cache) -> like new`: what the next execution finds.
    RecurrentWrite,
    /// The value of the first execution, kept.
    Persistent,
}

impl GraphOp {
    /// The number of the operation, which stays what it is: new ones come behind.
    pub(crate) fn code(&self) -> i32 {
        match self {
            GraphOp::Input { .. } => 0,
            GraphOp::Weights { .. } => 1,
            GraphOp::Unary(..) => 2,
            GraphOp::Binary(..) => 3,
            GraphOp::Scalar { .. } => 4,
            GraphOp::Clamp { .. } => 5,
            GraphOp::Where => 6,
            GraphOp::Cast(..) => 7,
            GraphOp::MaskedSelectPrefix => 8,
            GraphOp::MaskedScatter => 9,
            GraphOp::Reshape(..) => 10,
            GraphOp::Expand(..) => 11,
            GraphOp::Permute(..) => 12,
            GraphOp::Slice { .. } => 13,
            GraphOp::Index { .. } => 14,
            GraphOp::Unfold { .. } => 15,
            GraphOp::Pad { .. } => 16,
            GraphOp::Concat { .. } => 17,
            GraphOp::Take { .. } => 18,
            GraphOp::Gather { .. } => 19,
            GraphOp::TopK(..) => 20,
            GraphOp::ScatterTopK(..) => 21,
            GraphOp::Reduce { .. } => 22,
            GraphOp::CumSum(..) => 23,
            GraphOp::Softmax(..) => 24,
            GraphOp::Glu(..) => 25,
            GraphOp::MatMul { .. } => 26,
            GraphOp::RmsNorm { .. } => 27,
            GraphOp::LayerNorm { .. } => 28,
            GraphOp::GroupNorm { .. } => 29,
            GraphOp::BatchNorm { .. } => 30,
            GraphOp::Rope { .. } => 31,
            GraphOp::Attention(..) => 32,
            GraphOp::AttentionCached { .. } => 33,
            GraphOp::RelPosBias { .. } => 34,
            GraphOp::RelPosAttention { .. } => 35,
            GraphOp::Conv { .. } => 36,
            GraphOp::LstmCell => 37,
            GraphOp::GatedDelta { .. } => 38,
            GraphOp::Stft { .. } => 39,
            GraphOp::Rfft => 40,
            GraphOp::Irfft(..) => 41,
            GraphOp::MelFilterBank(..) => 42,
            GraphOp::Spectrogram(..) => 43,
            GraphOp::ImagePreprocess(..) => 44,
            GraphOp::Bilinear { .. } => 45,
            GraphOp::AltupPredict => 46,
            GraphOp::AltupCorrect => 47,
            GraphOp::GaussianTopK { .. } => 48,
            GraphOp::Experts { .. } => 49,
            GraphOp::DenseMlp { .. } => 50,
            GraphOp::Projections => 51,
            GraphOp::SoftcapLogits { .. } => 52,
            GraphOp::Sample { .. } => 53,
            GraphOp::KvState { .. } => 54,
            GraphOp::KvAppend { .. } => 55,
            GraphOp::ConvState { .. } => 56,
            GraphOp::ConvAppend => 57,
            GraphOp::ConvInitialize => 58,
            GraphOp::RecurrentState(..) => 59,
            GraphOp::RecurrentWrite => 60,
            GraphOp::Persistent => 61,
        }
    }
}
