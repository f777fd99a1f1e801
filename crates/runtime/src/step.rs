//! A lowered component as data: kernel calls over views of buffers.

use crate::function::Island;
use crate::gates::GatedRows;
use crate::lower::{Crossed, Given};
use crate::streams::Streams;
use crate::{PEAK_LOGITS, Program};
use cactus_ir::{AttentionAttrs, Route};
use cactus_kernels::{Activation, BinaryOp, UnaryOp};

/// Index of a buffer.
pub(crate) type Buffer = usize;

/// Rows `[rows, width]` inside a buffer of rows of `stride` elements, from element `offset` of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) buffer: Buffer,
    pub(crate) offset: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

impl View {
    /// All of rows of `width` elements.
    pub(crate) fn of(buffer: Buffer, width: usize) -> View {
        View {
            buffer,
            offset: 0,
            width,
            stride: width,
        }
    }

    /// Whether the rows have no gaps.
    pub(crate) fn is_whole(&self) -> bool {
        self.offset == 0 && self.width == self.stride
    }
}

/// Operand of a linear: `f32`, quantized or rotated rows, whichever the weight's packing reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    F32(View),
    Quantized(Buffer),
    Rotated(Buffer),
}

/// The norm of rows that a step has just made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextNorm {
    pub(crate) weight: usize,
    pub(crate) eps: f32,
    pub(crate) out: Buffer,
    /// Whether `out` holds quantized rows.
    pub(crate) quantized: bool,
}

/// Numbers that do not change: those of a weight, or of the graph.
#[derive(Clone, Debug)]
pub(crate) enum Fixed {
    Weight(usize),
    Given(Vec<f32>),
}

impl Fixed {
    pub(crate) fn numbers<'a>(&'a self, program: &'a Program) -> &'a [f32] {
        match self {
            Fixed::Weight(index) => program.vector(*index),
            Fixed::Given(numbers) => numbers,
        }
    }
}

/// What an island reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    Rows(View),
    /// The token ids of the call.
    Ids,
    /// Their positions in the sequence.
    Positions,
    /// What holds for the whole sequence, by its index.
    Given(usize),
}

/// What is done to every logit behind the linear that makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Unary(UnaryOp),
    Scalar(BinaryOp, f32),
    /// With a vector as wide as a row, a weight.
    Vector(BinaryOp, usize),
}

/// Experts that a router chooses. Weights are indices into [`Lowered::weights`].
#[derive(Clone, Debug)]
pub(crate) struct RoutedExperts {
    pub(crate) x: Rows,
    /// `[rows, experts]`
    pub(crate) scores: View,
    pub(crate) activation: Activation,
    pub(crate) route: Route,
    pub(crate) bias: Option<Fixed>,
    pub(crate) factor: Option<Fixed>,
    /// Of all experts one above the other, `[experts * 2m, n]` and `[experts * n, m]`.
    pub(crate) weights: [usize; 2],
    pub(crate) biases: Option<[Fixed; 2]>,
    pub(crate) experts: usize,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) scratch: Buffer,
    pub(crate) out: Buffer,
    pub(crate) accumulate: bool,
}

/// A kernel call. Weights are indices into [`Lowered::weights`].
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Rows of a table at the token ids, or at their positions.
    Embed {
        table: usize,
        positions: bool,
        out: Buffer,
    },
    RopeTable {
        inv_freq: Vec<f32>,
        /// Whether positions are on three axes, and `inv_freq` is `[3, pairs]`.
        on_axes: bool,
        scale: f32,
        table: Buffer,
    },
    Rope {
        x: View,
        head_dim: usize,
        interleaved: bool,
        table: Buffer,
        half: usize,
    },
    RmsNorm {
        x: View,
        weight: Fixed,
        eps: f32,
        out: Buffer,
    },
    RmsNormQuantize {
        x: View,
        weight: Fixed,
        eps: f32,
        out: Buffer,
    },
    /// Of each head, in place.
    RmsNormHeads {
        x: View,
        head_dim: usize,
        weight: Fixed,
        eps: f32,
    },
    /// Norm and rotation of each head, in place.
    NormRopeHeads {
        x: View,
        weight: usize,
        eps: f32,
        table: Buffer,
        half: usize,
    },
    /// Adds the norm of `x` to rows, and perhaps makes the norm of the sums at once.
    NormAdd {
        x: View,
        weight: usize,
        eps: f32,
        residual: View,
        next: Option<NextNorm>,
    },
    LayerNorm {
        x: View,
        weight: usize,
        bias: Option<usize>,
        eps: f32,
        out: Buffer,
    },
    /// Of each head, with its own weight.
    LayerNormHeads {
        x: View,
        head_dim: usize,
        weight: usize,
        bias: Option<usize>,
        eps: f32,
        out: Buffer,
    },
    Quantize {
        x: View,
        out: Buffer,
    },
    Rotate {
        x: View,
        out: Buffer,
    },
    Copy {
        x: View,
        out: Buffer,
    },
    /// Rows with those of media, where the call has some, in place of their own or `added` to them; `out` may be where they are.
    Media {
        x: View,
        /// The first number of the rows of media that counts; as many do as `x` is wide.
        from: usize,
        added: bool,
        out: Buffer,
    },
    Linear {
        x: Rows,
        weight: usize,
        bias: Option<usize>,
        out: Buffer,
        accumulate: bool,
    },
    /// The linear that makes the logits and what is done to each of them; the result goes to the caller.
    Head {
        x: Rows,
        weight: usize,
        bias: Option<usize>,
        then: Vec<Link>,
    },
    /// Rows that are the logits, where steps of another kind made them; they go to the caller.
    Logits {
        x: View,
    },
    Attention {
        state: usize,
        q: View,
        /// Keys and values that are appended before; none where a step before has appended them.
        new: Option<[View; 2]>,
        heads: usize,
        attrs: AttentionAttrs,
        sinks: Option<Fixed>,
        slopes: Option<Fixed>,
        out: Buffer,
    },
    /// To keys and values that hold for the whole sequence, by their index in [`Lowered::crossed`].
    CrossAttention {
        crossed: usize,
        q: View,
        heads: usize,
        attrs: AttentionAttrs,
        sinks: Option<Fixed>,
        out: Buffer,
    },
    ShortConv {
        state: usize,
        x: View,
        weight: usize,
        bias: Option<usize>,
        /// On what is summed.
        then: Option<UnaryOp>,
        out: Buffer,
    },
    /// Decays and rates of the gated delta rule, out of steps.
    Decays {
        step: View,
        rate: View,
        speed: Fixed,
        bias: Fixed,
        decay: Buffer,
        learned: Buffer,
    },
    GatedDelta {
        state: usize,
        q: View,
        k: View,
        v: View,
        decay: View,
        rate: View,
        heads: usize,
        /// Of queries and keys.
        key_heads: usize,
        out: Buffer,
    },
    /// What streams predict of each other, in place.
    AltupPredict {
        streams: Streams,
        x: View,
        routes: View,
        factors: usize,
        scratch: Buffer,
    },
    /// Predictions corrected by what became of the active one, in place.
    AltupCorrect {
        streams: Streams,
        active: usize,
        x: View,
        new: View,
        routes: View,
        factors: usize,
        scratch: Buffer,
    },
    /// Adds rows to parts of rows that are as long, in place.
    AddToEach {
        x: View,
        y: View,
    },
    Gated {
        activation: Activation,
        x: View,
        out: Buffer,
    },
    GatedQuantize {
        activation: Activation,
        x: View,
        out: Buffer,
    },
    /// A gated unit of two values, or of few gates.
    GatedRows {
        unit: GatedRows,
        gate: View,
        up: View,
        scratch: Buffer,
        out: Buffer,
    },
    Unary {
        f: UnaryOp,
        x: View,
        out: Buffer,
    },
    Binary {
        f: BinaryOp,
        a: View,
        b: View,
        out: Buffer,
    },
    BinaryScalar {
        f: BinaryOp,
        a: View,
        b: f32,
        out: Buffer,
    },
    BinaryVector {
        f: BinaryOp,
        a: View,
        b: usize,
        out: Buffer,
    },
    Experts(Box<RoutedExperts>),
    /// Operations without a step of their own; results are buffers of rows of a width.
    Island {
        island: usize,
        inputs: Vec<Input>,
        outputs: Vec<(Buffer, usize)>,
    },
}

impl Kind {
    /// Name of the kernel, for profiles.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Embed { .. } => "embed",
            Kind::RopeTable { .. } => "rope_table",
            Kind::Rope { .. } => "rope",
            Kind::RmsNorm { .. } => "rms_norm",
            Kind::RmsNormQuantize { .. } => "rms_norm_quantize",
            Kind::RmsNormHeads { .. } => "rms_norm_heads",
            Kind::NormRopeHeads { .. } => "norm_rope_heads",
            Kind::NormAdd { next: None, .. } => "norm_add",
            Kind::NormAdd { .. } => "norm_add_norm",
            Kind::LayerNorm { .. } => "layer_norm",
            Kind::LayerNormHeads { .. } => "layer_norm_heads",
            Kind::Quantize { .. } => "quantize",
            Kind::Rotate { .. } => "rotate",
            Kind::Copy { .. } => "copy",
            Kind::Media { .. } => "media",
            Kind::Linear { .. } => "linear",
            Kind::Head { .. } => "head",
            Kind::Logits { .. } => "logits",
            Kind::Attention { .. } => "attention",
            Kind::CrossAttention { .. } => "cross_attention",
            Kind::ShortConv { .. } => "short_conv",
            Kind::Gated { .. } => "gated",
            Kind::GatedQuantize { .. } => "gated_quantize",
            Kind::GatedRows { .. } => "gated_rows",
            Kind::Unary { .. } => "unary",
            Kind::Binary { .. } => "binary",
            Kind::BinaryScalar { .. } => "binary_scalar",
            Kind::BinaryVector { .. } => "binary_vector",
            Kind::Experts(_) => "experts",
            Kind::Island { .. } => "island",
            Kind::GatedDelta { .. } => "gated_delta",
            Kind::AltupPredict { .. } => "altup_predict",
            Kind::AltupCorrect { .. } => "altup_correct",
            Kind::AddToEach { .. } => "add_to_each",
            Kind::Decays { .. } => "decays",
        }
    }
}

/// A step of a program.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) label: String,
}

impl Step {
    pub(crate) fn describe(&self) -> String {
        format!("{:<17} {}", self.kind.name(), self.label)
    }
}

/// Positions whose tail is computed at once.
pub(crate) const TAIL_ROWS: usize = 16;

/// What a model takes of pictures and sounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MediaInputs {
    /// Width of the rows that may stand in place of embeddings, with what early layers add; none where it takes no such.
    pub(crate) width: Option<usize>,
    /// The token that positions with a row have for everything but their embedding.
    pub(crate) stand_in: u32,
    /// Whether the rows of a medium see each other, the later ones too.
    pub(crate) see_ahead: bool,
    /// Whether positions of the rotary embedding are on three axes, so that rows stand in grids.
    pub(crate) in_grids: bool,
}

/// A lowered component.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) steps: Vec<Step>,
    /// Steps from here on are the tail.
    pub(crate) tail: usize,
    /// Buffers made before the tail that it reads, and bytes of a row of each.
    pub(crate) tail_reads: Vec<(Buffer, usize)>,
    pub(crate) islands: Vec<Island>,
    pub(crate) given: Option<Given>,
    pub(crate) crossed: Vec<Crossed>,
    pub(crate) media: MediaInputs,
    /// Indices of stored tensors in the bundle.
    pub(crate) weights: Vec<usize>,
    /// Byte offset of each buffer in the arena.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of each buffer.
    pub(crate) sizes: Vec<usize>,
    pub(crate) arena_bytes: usize,
    pub(crate) buffers_bytes: usize,
    pub(crate) vocab_size: usize,
    /// Buffers from here on belong to the tail alone: they hold the rows of one of its runs.
    pub(crate) tail_buffers: Buffer,
}

impl Lowered {
    /// Peaks of a row of logits.
    pub(crate) fn peaks(&self) -> usize {
        self.vocab_size.div_ceil(PEAK_LOGITS)
    }

    /// Byte of the arena at which row `row` of the call lies in a buffer of rows of `stride` floats, when a step computes the
    /// rows from `first` on: buffers of the tail hold no others.
    pub(crate) fn row_bytes(&self, buffer: Buffer, stride: usize, row: usize, first: usize) -> usize {
        let before = if buffer < self.tail_buffers { row } else { row - first };
        self.offsets[buffer] + before * stride * 4
    }
}
