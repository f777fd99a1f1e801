//! Every operation with its operands, attributes and meaning. Result types are in `infer`, values in the `reference`
//! crate.

use crate::{Activation, BinaryFn, CompareFn, Dim, ReduceFn, UnaryFn};
use cactus_tensor::DType;
use serde::{Deserialize, Serialize};

/// Attributes of [`Op::Attention`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttentionAttrs {
    /// Factor on the scores before softmax, usually `1/sqrt(head_dim)`.
    pub scale: f32,
    /// Query `i` (absolute position `past + i`) sees no key after itself.
    pub causal: bool,
    /// Query at position `p` sees only keys at positions greater than `p - window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Query at position `p` sees only keys at positions less than `p + ahead`: itself and `ahead - 1` after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<usize>,
    /// Query at position `p` sees only keys at positions from `p - p % chunk` on: those of its own chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// Scores become `softcap * tanh(score / softcap)` before the mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
    /// Whether `sinks` is among the operands: a score for each head that takes part in the softmax and has no value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sinks: bool,
    /// Whether `slopes` is among the operands: `slope * (key position - query position)` is added to the capped scores of
    /// a head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slopes: bool,
    /// Whether `texts` is among the operands: a number for each position, and queries see the keys of their own number alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub texts: bool,
    /// Whether `until` is among the operands: for each query the last position whose key it sees, in place of its own. Positions that stand
    /// together see each other, as those of a picture do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until: bool,
    /// Whether products and shares may be computed on bytes, which costs accuracy as weights of 8 bits do. For attention of queries, keys and
    /// values alone, in which every query sees every key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub integers: bool,
    /// Name of the KV state that the keys and values are appended to, and that attention then reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Whether an operation before has appended the same keys and values to the state, so that this one only reads it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub appended: bool,
}

impl AttentionAttrs {
    /// Place of `sinks` among the operands of the operation.
    pub fn sinks_operand(&self) -> Option<usize> {
        self.sinks.then_some(3)
    }

    /// Place of `slopes` among the operands of the operation.
    pub fn slopes_operand(&self) -> Option<usize> {
        self.slopes.then_some(3 + usize::from(self.sinks))
    }

    /// Place of `texts` among the operands of the operation.
    pub fn texts_operand(&self) -> Option<usize> {
        self.texts
            .then_some(3 + usize::from(self.sinks) + usize::from(self.slopes))
    }

    /// Place of `until` among the operands of the operation.
    pub fn until_operand(&self) -> Option<usize> {
        self.until.then_some(self.bias_operand() - 1)
    }

    /// Place of `bias` among the operands of the operation, where there are so many.
    pub fn bias_operand(&self) -> usize {
        let before = [self.sinks, self.slopes, self.texts, self.until];
        3 + before.map(usize::from).iter().sum::<usize>()
    }

    /// Whether every query sees every key, and nothing but the two makes a score, where the operation has `operands` operands.
    pub fn is_bare(&self, operands: usize) -> bool {
        let sees_all = !self.causal && self.ahead.is_none() && self.span().is_none();
        sees_all && self.softcap.is_none() && self.state.is_none() && operands == 3
    }

    /// How many positions up to its own a query may see at most; `None` for all.
    pub fn span(&self) -> Option<usize> {
        match (self.window, self.chunk) {
            (Some(window), Some(chunk)) => Some(window.min(chunk)),
            (window, chunk) => window.or(chunk),
        }
    }
}

/// What a router makes of its scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouteFn {
    /// Softmax over all experts.
    Softmax,
    /// Logistic function of each.
    Sigmoid,
}

/// Attributes of [`Op::RoutedExperts`]. With `p = f(scores)` the experts of a row are the `chosen` largest of `p + bias`, the
/// largest first and of equal ones the first; the share of an expert is its `p`, divided by `sum of the shares + epsilon`
/// where they are normalized, then times its `factor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// On the scores.
    pub f: RouteFn,
    /// Experts that a row chooses.
    pub chosen: usize,
    /// Whether shares are divided by their sum, and what is added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<f32>,
    /// Whether `bias` is among the operands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bias: bool,
    /// Whether `factor` is among the operands, behind `bias`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub factor: bool,
    /// Whether `gate_up_bias` and `down_bias` are among the operands, behind these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub biases: bool,
}

impl Route {
    /// Place of `bias` among the operands of the operation.
    pub fn bias_operand(&self) -> Option<usize> {
        self.bias.then_some(4)
    }

    /// Place of `factor` among the operands of the operation.
    pub fn factor_operand(&self) -> Option<usize> {
        self.factor.then_some(4 + usize::from(self.bias))
    }

    /// Places of `gate_up_bias` and `down_bias` among the operands of the operation.
    pub fn biases_operands(&self) -> Option<[usize; 2]> {
        let first = 4 + usize::from(self.bias) + usize::from(self.factor);
        self.biases.then_some([first, first + 1])
    }
}

/// Attributes of [`Op::Conv`] and [`Op::ConvTranspose`], one entry for each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvAttrs {
    /// Number of groups.
    pub groups: usize,
    /// Steps between windows; of a transposed convolution, between the inputs.
    pub stride: Vec<usize>,
    /// Zeros before and after the input; of a transposed convolution, outputs cut off before and after.
    pub padding: Vec<[usize; 2]>,
    /// Steps between the taps of the kernel.
    pub dilation: Vec<usize>,
}

/// Attributes of [`Op::Pool`], one entry for each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAttrs {
    /// [`ReduceFn::Max`] or [`ReduceFn::Mean`].
    pub f: ReduceFn,
    /// Size of the window.
    pub kernel: Vec<usize>,
    /// Steps between windows.
    pub stride: Vec<usize>,
    /// Places before and after the input, which a maximum never takes.
    pub padding: Vec<[usize; 2]>,
    /// Steps between the taps of the window.
    pub dilation: Vec<usize>,
    /// Whether a mean counts padding as zeros; otherwise it divides by what lies inside.
    pub count_padding: bool,
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
    /// Reduces `axes`; means are of `f32`, the others of numbers.
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

    /// Index of the largest or smallest element along `axis`, the first of equal ones: `x f32 or i64 -> i64`.
    ArgReduce {
        /// [`ReduceFn::Max`] or [`ReduceFn::Min`].
        f: ReduceFn,
        /// The axis searched.
        axis: usize,
        /// Whether the axis stays with size 1.
        keepdim: bool,
    },
    /// Sums of the elements up to each along `axis`, of numbers.
    CumSum {
        /// The axis added along.
        axis: usize,
    },
    /// The indices that sort `axis`, equal elements in their order: `x f32 or i64 -> i64`. NaN counts as the largest.
    ArgSort {
        /// The axis sorted.
        axis: usize,
        /// Whether the largest comes first.
        descending: bool,
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
    /// Slices of `x` at `ids` along `axis`: `(x [a…, n, b…], ids i64 [i…]) -> [a…, i…, b…]`.
    Take {
        /// The axis indexed.
        axis: usize,
    },
    /// One element for each index: `(x, ids i64) -> like ids`, where the element at an index is that of `x` at the same
    /// index, but for `axis`, where `ids` has it. `ids` is nowhere else larger than `x`.
    Gather {
        /// The axis indexed.
        axis: usize,
    },
    /// `x` with elements replaced or added to, as [`Op::Gather`] would read them: `(x, ids i64, updates like ids) -> like
    /// x`. Of several updates of one element the last counts, or all are added in order.
    Scatter {
        /// The axis indexed.
        axis: usize,
        /// Whether updates are added to what is there.
        add: bool,
    },
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

    /// Convolution over one to three axes: `(x [batch, channels_in, size…], w [channels_out, channels_in/groups, kernel…],
    /// bias? [channels_out]) -> [batch, channels_out, out…]` with
    /// `out = (size + padding - dilation * (kernel - 1) - 1) / stride + 1`, rounded down.
    Conv(ConvAttrs),
    /// Its transpose: `(x [batch, channels_in, size…], w [channels_in, channels_out/groups, kernel…], bias? [channels_out])
    /// -> [batch, channels_out, out…]` with
    /// `out = (size - 1) * stride + dilation * (kernel - 1) + 1 - padding + output_padding`.
    ConvTranspose {
        /// As of [`Op::Conv`].
        #[serde(flatten)]
        conv: ConvAttrs,
        /// Places more at the end of each axis.
        output_padding: Vec<usize>,
    },
    /// Largest or mean element of windows over one to three axes: `x [batch, channels, size…] -> [batch, channels, out…]`,
    /// `out` as of [`Op::Conv`].
    Pool(PoolAttrs),
    /// One direction of one layer of a long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order input,
    /// forget, cell, output: `(gates [seq, batch, 4h], w [4h, h], h0 [batch, h], c0 [batch, h]) -> [seq, batch, 2h]`, where
    /// `gates` holds the part that comes from the inputs and the biases, and the result is output, then cell, of each step.
    Lstm {
        /// Whether steps go from the last to the first.
        reverse: bool,
    },
    /// One direction of one layer of gated recurrent units (Cho et al. 2014), gates in the order reset, update, new:
    /// `(gates [seq, batch, 3h], w [3h, h], bias [3h], h0 [batch, h]) -> [seq, batch, h]`, where `bias` is that of the
    /// recurrent product.
    Gru {
        /// Whether steps go from the last to the first.
        reverse: bool,
    },
    /// Linear attention by the gated delta rule (Yang et al. 2024):
    /// `(q, k [batch, seq, key_heads, key_dim], v [batch, seq, heads, value_dim], decay, rate [batch, seq, heads]) -> like v`.
    /// Head `h` has the query and key of key head `h / (heads / key_heads)` and a matrix `S [key_dim, value_dim]`, zero at
    /// first; at each position
    /// `S = decay S; S = S + k (rate (v - Sᵀ k))ᵀ`, and the result is `Sᵀ q`. With a state, `S` is what the last call left.
    ///
    /// Where it takes steps, it makes decays and rates itself, of what projections give:
    /// `(q, k, v, step, rate [batch, seq, heads], speed [heads], bias [heads]) -> like v` with
    /// `decay = exp(speed * softplus(step + bias))` and the rate `sigmoid(rate)`. Speeds are below zero.
    GatedDelta {
        /// Whether decays and rates are made of steps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steps: bool,
        /// Name of the recurrent state, `[heads, key_dim, value_dim]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },

    // ---- fused
    /// `(x […, n], weight [n]) -> x / sqrt(mean(x²) + eps) * weight`. Zhang and Sennrich 2019.
    RmsNorm {
        /// Added under the root.
        eps: f32,
    },
    /// `(x […, n], weight [n], bias? [n]) -> like x`, or with a weight of each head, `(x […, heads, n], weight [heads, n], bias? [heads, n])`:
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` along the last axis. Ba et al. 2016.
    LayerNorm {
        /// Added under the root.
        eps: f32,
    },
    /// Rotary position embedding. Su et al. 2021.
    /// `(x [batch, seq, heads, head_dim], positions i64 [seq], inv_freq [rotary/2]) -> like x`: with angle
    /// `a = position * inv_freq[k]`, the elements `i` and `j` of pair `k` of each head become
    /// `x_i cos a - x_j sin a` and `x_j cos a + x_i sin a`, both times `scale`; elements from `rotary` on stay.
    ///
    /// Where positions are on several axes, as the row and the column of a picture's patch, they are `i64 [seq, axes]` and the frequencies
    /// `[axes, rotary/2]`: the angle is the sum of the products of all axes. Usually each pair has a frequency on one axis and 0 on the others.
    Rope {
        /// Factor on cosine and sine (YaRN's attention factor), usually 1.
        scale: f32,
        /// Which elements are pair `k`: neighbors, `2k` and `2k + 1`, instead of one from each half, `k` and
        /// `k + rotary/2` (rotate-half).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interleaved: bool,
    },
    /// [`Op::RmsNorm`] of each head, then [`Op::Rope`] of the halves:
    /// `(x [batch, seq, heads, head_dim], weight [head_dim], positions i64 [seq], inv_freq [rotary/2]) -> like x`, or with axes as there.
    NormRope {
        /// Of the norm.
        eps: f32,
        /// Of the rotation.
        scale: f32,
    },
    /// A branch that is normalized before it is added: `(residual […, n], x like residual, weight [n]) -> like residual`,
    /// `residual` and the [`Op::RmsNorm`] of `x`.
    NormAdd {
        /// Of the norm.
        eps: f32,
    },
    /// A norm behind which a gate stands: `(x […, n], gate like x, weight [n]) -> like x`, the [`Op::RmsNorm`] of `x` times
    /// `activation(gate)`.
    NormGate {
        /// Of the norm.
        eps: f32,
        /// On the gate, and not [`Activation::ClampedSwish`].
        activation: Activation,
    },
    /// What alternating updates predict of the streams of a position before a layer (Baykal et al. 2023):
    /// `(streams [batch, seq, n, width], routes [batch, seq, n], factors [n * n, n]) -> like streams`, `x_i + sum_j f[i, j] x_j` of the streams
    /// `x`, where the matrix `f` is `factors · tanh(routes)`.
    AltupPredict,
    /// Predictions corrected behind the layer by what became of the stream that it worked on:
    /// `(predictions [batch, seq, n, width], x [batch, seq, width], routes [batch, seq, n], factors [n, n]) -> like predictions`,
    /// `p_i + (1 + f_i) (x - p_active)` with `f` = `factors · tanh(routes)`.
    AltupCorrect {
        /// The stream that the layer worked on.
        active: usize,
    },
    /// `(x, y) -> like x`: `x` with `y` added to the elements `start..end` of one axis, where `y`, broadcast, has their shape.
    SliceAdd {
        /// The axis of which some elements are changed.
        axis: usize,
        /// First index.
        start: usize,
        /// Index after the last.
        end: usize,
    },
    /// Scaled dot-product attention with grouped query heads. Vaswani et al. 2017, Ainslie et al. 2023.
    /// `(q [batch, seq, heads, head_dim], k, v [batch, keys, kv_heads, head_dim], sinks? [heads], slopes? [heads],
    /// texts? i64 [seq], until? i64 [seq], bias? [batch|1, heads|1, seq|1, keys]) -> [batch, seq, heads, head_dim]`. Query head `h` reads KV head
    /// `h / (heads / kv_heads)`. Sinks (Xiao et al. 2023) are scores that keys compete with, slopes (Press et al. 2021,
    /// `ALiBi`) make a score smaller with the distance. The bias is added to the scores: a mask of zeros and minus
    /// infinities, or a number for each distance. With texts, which take no bias, chunk and state, several texts stand one after the
    /// other: the numbers never fall, the batch is 1, and what a text gives does not depend on the others. With `until`, which is for causal attention without texts, chunks and bias, a query sees the keys up to
    /// the position (counted like its own, over all calls) that stands there: its own or a later one of the call, never before that of the
    /// query before. With a state, which takes no bias, keys and values of earlier calls come first.
    /// On integers it takes queries, keys and values alone, and every query sees every key.
    Attention(AttentionAttrs),
    /// `(gate_up […, 2n]) -> activation(first half) * second half`, `[…, n]`, or of two operands, `(gate […, n], up like gate)`.
    Gated {
        /// On the first half.
        activation: Activation,
        /// Only gates so many standard deviations above their mean count, less that sum: `max(gate - (mean + above * deviation), 0)` stands in
        /// place of the gate, with mean and deviation `sqrt(mean((gate - mean)²))` of its last axis. Spark, You et al. 2025.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        above: Option<f32>,
    },
    /// Gated units chosen by a router (Shazeer et al. 2017), of which only the chosen are computed:
    /// `(x […, n], ids i64 […, k], shares […, k], gate_up [experts * 2m, n], down [experts * n, m], gate_up_bias? [experts, 2m],
    /// down_bias? [experts, n]) -> like x`, the sum over `j < k`, in order, of `shares[j]` times
    /// `down_e · (activation(first half of g) * second half of g)` with `g = gate_up_e · x` and `e = ids[j]`; expert `e` has rows `e * 2m..` of
    /// `gate_up` and `e * n..` of `down`. Of biases there are both or none; those of an expert are added to what its matrices give.
    Experts {
        /// On the first half.
        activation: Activation,
    },
    /// [`Op::Experts`] with their router: `(x […, n], scores […, experts], gate_up, down, bias? [experts], factor? [experts],
    /// gate_up_bias?, down_bias?) -> like x`. Choices and shares come from the scores as [`Route`] says; which operands stand behind `down`, too.
    RoutedExperts {
        /// On the first half.
        activation: Activation,
        /// How the scores choose.
        #[serde(flatten)]
        route: Route,
    },
    /// Causal depthwise convolution over positions:
    /// `(x [batch, seq, channels], w [channels, kernel], bias? [channels]) -> [batch, seq, channels]`,
    /// `y[t] = sum_j w[j] * x[t - (kernel-1) + j]`, zeros before the first position or, with a state, what came before; then the activation.
    ShortConv {
        /// On what is summed, and not [`Activation::ClampedSwish`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activation: Option<Activation>,
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
            Op::ArgReduce { f, .. } => format!("arg_{}", tag(f)),
            Op::CumSum { .. } => "cum_sum".into(),
            Op::ArgSort { .. } => "arg_sort".into(),
            Op::Take { .. } => "take".into(),
            Op::Gather { .. } => "gather".into(),
            Op::Scatter { .. } => "scatter".into(),
            Op::Conv(_) => "conv".into(),
            Op::ConvTranspose { .. } => "conv_transpose".into(),
            Op::Pool(p) => format!("pool_{}", tag(&p.f)),
            Op::Lstm { .. } => "lstm".into(),
            Op::Gru { .. } => "gru".into(),
            Op::GatedDelta { .. } => "gated_delta".into(),
            Op::RmsNorm { .. } => "rms_norm".into(),
            Op::LayerNorm { .. } => "layer_norm".into(),
            Op::Rope { .. } => "rope".into(),
            Op::NormRope { .. } => "norm_rope".into(),
            Op::NormAdd { .. } => "norm_add".into(),
            Op::NormGate { .. } => "norm_gate".into(),
            Op::AltupPredict => "altup_predict".into(),
            Op::AltupCorrect { .. } => "altup_correct".into(),
            Op::SliceAdd { .. } => "slice_add".into(),
            Op::Attention(_) => "attention".into(),
            Op::Gated { .. } => "gated".into(),
            Op::Experts { .. } => "experts".into(),
            Op::RoutedExperts { .. } => "routed_experts".into(),
            Op::ShortConv { .. } => "short_conv".into(),
        }
    }

    /// The places of the experts' weights `gate_up` and `down` among the operands, if it has such.
    pub fn expert_weights(&self) -> Option<[usize; 2]> {
        match self {
            Op::Experts { .. } => Some([3, 4]),
            Op::RoutedExperts { .. } => Some([2, 3]),
            _ => None,
        }
    }

    /// The places of the experts' biases among the operands, if it has so many of them.
    pub fn expert_biases(&self, operands: usize) -> Option<[usize; 2]> {
        match self {
            Op::Experts { .. } => (operands > 5).then_some([5, 6]),
            Op::RoutedExperts { route, .. } => route.biases_operands(),
            _ => None,
        }
    }

    /// Whether the operation changes a state, as all with one do but attention to what another has appended.
    pub fn changes_state(&self) -> bool {
        let reads_only = matches!(self, Op::Attention(a) if a.appended);
        self.state().is_some() && !reads_only
    }

    /// The state the operation reads and, where it [changes](Op::changes_state) one, writes, if any.
    pub fn state(&self) -> Option<&str> {
        match self {
            Op::Attention(a) => a.state.as_deref(),
            Op::ShortConv { state, .. } | Op::GatedDelta { state, .. } => state.as_deref(),
            _ => None,
        }
    }
}
