//! A lowered component as data: kernel calls over views of buffers.

use crate::PEAK_LOGITS;
use crate::soft_cap::SoftCap;
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
        scale: f32,
        table: Buffer,
    },
    Rope {
        x: View,
        head_dim: usize,
        table: Buffer,
        half: usize,
    },
    RmsNorm {
        x: View,
        weight: usize,
        eps: f32,
        out: Buffer,
    },
    RmsNormQuantize {
        x: View,
        weight: usize,
        eps: f32,
        out: Buffer,
    },
    /// Of each head, in place.
    RmsNormHeads {
        x: View,
        head_dim: usize,
        weight: usize,
        eps: f32,
    },
    LayerNorm {
        x: View,
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
    Linear {
        x: Rows,
        weight: usize,
        bias: Option<usize>,
        out: Buffer,
        accumulate: bool,
    },
    /// The linear that makes the logits; its result goes to the caller.
    Head {
        x: Rows,
        weight: usize,
        bias: Option<usize>,
    },
    Attention {
        state: usize,
        q: View,
        k: View,
        v: View,
        heads: usize,
        scale: f32,
        window: Option<usize>,
        softcap: Option<f32>,
        out: Buffer,
    },
    ShortConv {
        state: usize,
        x: View,
        weight: usize,
        bias: Option<usize>,
        out: Buffer,
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
            Kind::LayerNorm { .. } => "layer_norm",
            Kind::Quantize { .. } => "quantize",
            Kind::Rotate { .. } => "rotate",
            Kind::Copy { .. } => "copy",
            Kind::Linear { .. } => "linear",
            Kind::Head { .. } => "head",
            Kind::Attention { .. } => "attention",
            Kind::ShortConv { .. } => "short_conv",
            Kind::Gated { .. } => "gated",
            Kind::GatedQuantize { .. } => "gated_quantize",
            Kind::Unary { .. } => "unary",
            Kind::Binary { .. } => "binary",
            Kind::BinaryScalar { .. } => "binary_scalar",
            Kind::BinaryVector { .. } => "binary_vector",
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

/// A lowered component.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) steps: Vec<Step>,
    /// Steps from here on are the tail.
    pub(crate) tail: usize,
    /// Indices of stored tensors in the bundle.
    pub(crate) weights: Vec<usize>,
    /// Byte offset of each buffer in the arena.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of each buffer.
    pub(crate) sizes: Vec<usize>,
    pub(crate) arena_bytes: usize,
    pub(crate) buffers_bytes: usize,
    pub(crate) vocab_size: usize,
    /// On the logits.
    pub(crate) soft_cap: Option<SoftCap>,
}

impl Lowered {
    /// Peaks of a row of logits; none are kept of what is capped afterwards.
    pub(crate) fn peaks(&self) -> usize {
        match self.soft_cap {
            Some(_) => 0,
            None => self.vocab_size.div_ceil(PEAK_LOGITS),
        }
    }
}
