//! Silero VAD (`model_type` `silero_vad`): versions 5 and 6, which differ in weights alone. Silero Team, 2021 to 2026; the
//! forward pass is that of `tinygrad_model.py` in their package.
//!
//! One component that finds out how likely it is that somebody speaks, chunk after chunk. Between chunks lie the states of one
//! LSTM cell, which the caller keeps, and a few samples of the chunk before, which the caller puts in front.

use crate::config::{Config, Dims};
use crate::registry::{self, ComponentDef};
use crate::{ModelDef, Result, layers};
use cactus_ir::{Constraint, ConvAttrs, Dim, GraphBuilder, Literal, Op, TensorType, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Input, `f32[chunks, context + chunk]`.
const SAMPLES: &str = "samples";
/// Input, `f32[2, 1, hidden]`: output and cell before the first chunk.
const STATE: &str = "state";
/// Output, `f32[chunks]`.
const PROBABILITIES: &str = "probabilities";
/// Output, `f32[2, 1, hidden]`: output and cell after the last chunk.
const NEXT_STATE: &str = "next_state";
/// Symbol of the chunks of a call.
const CHUNKS: &str = "chunks";
/// Largest transform; the published ones have 128 samples for 8 kHz and 256 for 16 kHz.
const MAX_FFT: usize = 1 << 12;
/// Largest width of a layer.
const MAX_WIDTH: usize = 1 << 12;
/// Steps of the four convolutions; they make one position of the four windows of a chunk.
const STRIDES: [usize; 4] = [1, 2, 2, 1];
/// Windows of a chunk.
const WINDOWS: usize = 4;
/// Samples a second for each sample of the transform: it spans 16 ms.
const RATE_OF_FFT: f64 = 62.5;

/// How a model that finds speech takes sound: chunk after chunk, with a few samples of the chunk before in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActivityDef {
    /// Samples a second.
    pub sample_rate_hz: u32,
    /// New samples for each probability.
    pub chunk_samples: usize,
    /// Samples before them.
    pub context_samples: usize,
}

struct Silero {
    fft: usize,
    widths: [usize; 4],
    hidden: usize,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let fft = c.size("fft_samples", 8..=MAX_FFT)?;
    if !fft.is_multiple_of(8) {
        return Err(c.invalid("fft_samples", format_args!("expected a multiple of 8, found {fft}")));
    }
    let found = c.sizes("widths", 1..=MAX_WIDTH)?.unwrap_or_default();
    let Ok(widths) = <[usize; 4]>::try_from(found.as_slice()) else {
        return Err(c.invalid("widths", format_args!("expected 4 widths, found {}", found.len())));
    };
    let model = Silero {
        fft,
        widths,
        hidden: c.size("hidden_size", 1..=MAX_WIDTH)?,
    };
    let components = vec![ComponentDef {
        name: registry::DETECTOR.into(),
        graph: model.detector()?,
        continues: false,
    }];
    let dims = Dims {
        vocab: 0,
        hidden: model.hidden,
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 0,
        context: 0,
    };
    let activity = ActivityDef {
        sample_rate_hz: (RATE_OF_FFT * fft as f64) as u32,
        chunk_samples: model.chunk(),
        context_samples: model.context(),
    };
    Ok(ModelDef {
        task: registry::ACTIVITY,
        activity: Some(activity),
        exact: true,
        ..registry::assemble(c, &dims, components, false)?
    })
}

impl Silero {
    /// New samples of a call for each probability.
    fn chunk(&self) -> usize {
        2 * self.fft
    }

    /// Samples of the chunk before in front of them, and mirrored ones behind.
    fn context(&self) -> usize {
        self.fft / 4
    }

    fn detector(&self) -> cactus_ir::Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::DETECTOR);
        let (chunks, one, hidden) = (Dim::symbol(CHUNKS), Dim::known(1), self.hidden);
        let given = self.context() + self.chunk();
        let x = b.input(SAMPLES, TensorType::new(DType::F32, [chunks.clone(), given.into()]));
        let states = [Dim::known(2), one.clone(), hidden.into()];
        let state = b.input(STATE, TensorType::new(DType::F32, states.clone()));
        let magnitude = b.scope("stft", |b| self.magnitude(b, x, given))?;
        let mut y = magnitude;
        let mut width = self.fft / 2 + 1;
        for (i, (&out, stride)) in self.widths.iter().zip(STRIDES).enumerate() {
            y = conv(&mut b, y, &format!("conv{}", i + 1), [out, width], stride)?;
            width = out;
        }
        let last = b.scope("lstm_cell", |b| {
            let x = b.reshape(y, [chunks.clone(), one.clone(), width.into()])?;
            let w = b.weight("lstm_cell.weight_ih", &[4 * hidden, width]);
            let both = WeightExpr::Add {
                x: Box::new(WeightExpr::source("lstm_cell.bias_ih")),
                y: Box::new(WeightExpr::source("lstm_cell.bias_hh")),
            };
            let bias = b.weight_from("lstm_cell.bias", &[4 * hidden], both);
            let gates = b.linear(x, w, Some(bias))?;
            let w = b.weight("lstm_cell.weight_hh", &[4 * hidden, hidden]);
            let part = |b: &mut GraphBuilder, i: usize| {
                let part = cut(b, state, 0, i, i + 1)?;
                b.reshape(part, [one.clone(), hidden.into()])
            };
            let (h, c) = (part(b, 0)?, part(b, 1)?);
            b.op(Op::Lstm { reverse: false }, &[gates, w, h, c])
        })?;
        let heard = b.slice_last(last, 0, hidden)?;
        let probabilities = b.scope("final_conv", |b| {
            let x = b.unary(UnaryFn::Relu, heard)?;
            let w = layers::matrix(b, "final_conv.weight", [1, hidden]);
            let bias = b.weight("final_conv.bias", &[1]);
            let x = b.linear(x, w, Some(bias))?;
            let x = b.unary(UnaryFn::Sigmoid, x)?;
            b.reshape(x, [chunks.clone()])
        })?;
        let before = chunks.sub(&one)?;
        let next = b.op(
            Op::Slice {
                axis: 0,
                start: before,
                end: chunks.clone(),
            },
            &[last],
        )?;
        let next = b.reshape(next, states)?;
        b.output(PROBABILITIES, probabilities);
        b.output(NEXT_STATE, next);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![Constraint::at_least(chunks, 1)]);
        Ok(graph)
    }

    /// Magnitudes of the Fourier transform, a convolution with a stored basis: `[chunks, fft/2 + 1, 4]`. Samples at the end are
    /// mirrored without the last itself.
    fn magnitude(&self, b: &mut GraphBuilder, x: ValueId, given: usize) -> cactus_ir::Result<ValueId> {
        let (fft, bins) = (self.fft, self.fft / 2 + 1);
        let back: Vec<i64> = (0..self.context()).map(|i| (given - 2 - i) as i64).collect();
        let back = b.literal(&[self.context()], Literal::I64(back))?;
        let mirrored = b.op(Op::Take { axis: 1 }, &[x, back])?;
        let x = b.concat_last(&[x, mirrored])?;
        let x = b.reshape(x, [Dim::symbol(CHUNKS), Dim::known(1), (given + self.context()).into()])?;
        let basis = b.weight("stft_conv.weight", &[2 * bins, 1, fft]);
        let waves = ConvAttrs {
            groups: 1,
            stride: vec![fft / 2],
            padding: vec![[0, 0]],
            dilation: vec![1],
        };
        let x = b.op(Op::Conv(waves), &[x, basis])?;
        debug_assert_eq!(b.shape(x).last(), Some(&Dim::known(WINDOWS)));
        let square = |b: &mut GraphBuilder, from: usize| {
            let part = cut(b, x, 1, from, from + bins)?;
            b.mul(part, part)
        };
        let (real, imaginary) = (square(b, 0)?, square(b, bins)?);
        let power = b.add(real, imaginary)?;
        b.unary(UnaryFn::Sqrt, power)
    }
}

/// `relu(conv(x))` with kernels of 3 and a zero at both ends.
fn conv(
    b: &mut GraphBuilder,
    x: ValueId,
    name: &str,
    [out, channels]: [usize; 2],
    stride: usize,
) -> cactus_ir::Result<ValueId> {
    let weight = b.weight(&format!("{name}.weight"), &[out, channels, 3]);
    let bias = b.weight(&format!("{name}.bias"), &[out]);
    let attrs = ConvAttrs {
        groups: 1,
        stride: vec![stride],
        padding: vec![[1, 1]],
        dilation: vec![1],
    };
    b.scope(name, |b| {
        let y = b.op(Op::Conv(attrs), &[x, weight, bias])?;
        b.unary(UnaryFn::Relu, y)
    })
}

/// Elements `start..end` of axis `axis`.
fn cut(b: &mut GraphBuilder, x: ValueId, axis: usize, start: usize, end: usize) -> cactus_ir::Result<ValueId> {
    let (start, end) = (Dim::known(start), Dim::known(end));
    b.op(Op::Slice { axis, start, end }, &[x])
}
