//! How each operation is computed: as operations of the portable graph. Result shapes follow from that, so a node that does
//! not fit is refused when it is added.
//!
//! Values are `f32` throughout. Precision is a matter of what goes in and out, and of `precision_cast`.

mod attention;
mod conv;
mod elementwise;
mod experts;
mod linear;
mod recurrent;
mod sample;
mod shape;
mod states;

use super::{Error, GraphOp, Precision, Result, image, signal};
use cactus_ir::{BinaryFn as Bin, CompareFn, Dim, GraphBuilder, Literal, Op, TensorType, UnaryFn as Un, ValueId};
use cactus_tensor::DType;
use std::collections::BTreeMap;

/// Most elements of one literal of a constant table; larger tables are joined of several.
const TABLE_CHUNK: usize = Literal::MAX_ELEMS;

/// Operands of a node: their ids in the graph, what they are here, and the precision they are declared in.
pub(crate) struct Operands<'a> {
    pub(crate) ids: &'a [usize],
    pub(crate) values: &'a [ValueId],
    pub(crate) precisions: &'a [Precision],
}

/// A graph that is being lowered.
#[derive(Debug)]
pub(crate) struct Lower {
    pub(crate) b: GraphBuilder,
    /// What each cache holds after the nodes so far, by its node.
    pub(crate) states: BTreeMap<usize, ValueId>,
    /// Most positions of a cache of keys or values, and the first that always stay, by its node.
    pub(crate) limits: BTreeMap<usize, (usize, usize)>,
    /// Inputs that are drawn for each execution, by name.
    pub(crate) random: Vec<String>,
}

impl Lower {
    pub(crate) fn new() -> Self {
        Lower {
            b: GraphBuilder::new("graph"),
            states: BTreeMap::new(),
            limits: BTreeMap::new(),
            random: Vec::new(),
        }
    }

    /// The result of `op`, the operation of node `id`.
    pub(crate) fn node(&mut self, id: usize, op: &GraphOp, x: &Operands<'_>) -> Result<ValueId> {
        let v = x.values;
        match op {
            GraphOp::Input { .. }
            | GraphOp::Weights { .. }
            | GraphOp::KvState { .. }
            | GraphOp::ConvState { .. }
            | GraphOp::RecurrentState(_) => Err(Error::argument("this node has a value of its own")),
            GraphOp::Unary(f) => self.unary_fn(*f, one(v)?),
            GraphOp::Binary(f) => {
                let [a, b] = operands(v)?;
                self.binary_fn(*f, a, b)
            }
            GraphOp::Scalar { f, value } => {
                let value = self.b.scalar(*value)?;
                self.binary_fn(*f, one(v)?, value)
            }
            GraphOp::Clamp { low, high } => self.clamp(one(v)?, *low, *high),
            GraphOp::Where => {
                let [c, a, b] = operands(v)?;
                let c = self.truth(c)?;
                Ok(self.b.select(c, a, b)?)
            }
            GraphOp::Cast(precision) => self.round_to(one(v)?, *precision),
            GraphOp::MaskedSelectPrefix => self.masked_select_prefix(operands(v)?),
            GraphOp::MaskedScatter => self.masked_scatter(operands(v)?),

            GraphOp::Reshape(shape) => self.reshape(one(v)?, shape),
            GraphOp::Expand(shape) => Ok(self.b.expand(one(v)?, dims(shape))?),
            GraphOp::Permute(perm) => Ok(self.b.permute(one(v)?, perm)?),
            GraphOp::Slice {
                axis,
                start,
                length,
                step,
            } => self.slice(one(v)?, *axis, [*start, *length, *step]),
            GraphOp::Index { axis, index } => self.index(one(v)?, *axis, *index),
            GraphOp::Unfold { axis, size, step } => self.unfold(one(v)?, *axis, *size, *step),
            GraphOp::Pad { pads, value } => self.pad(one(v)?, pads, *value),
            GraphOp::Concat { axis } => {
                let first = *v.first().ok_or_else(|| Error::argument("there is nothing to join"))?;
                let axis = self.axis(first, *axis)?;
                Ok(self.b.op(Op::Concat { axis }, v)?)
            }
            GraphOp::Take { axis } => {
                let [x, ids] = operands(v)?;
                let axis = self.axis(x, *axis)?;
                let ids = self.whole(ids)?;
                Ok(self.b.op(Op::Take { axis }, &[x, ids])?)
            }
            GraphOp::Gather { axis } => {
                let [x, ids] = operands(v)?;
                let axis = self.axis(x, *axis)?;
                let ids = self.whole(ids)?;
                Ok(self.b.op(Op::Gather { axis }, &[x, ids])?)
            }
            GraphOp::TopK(k) => self.top_k(one(v)?, *k),
            GraphOp::ScatterTopK(classes) => self.scatter_top_k(operands(v)?, *classes),

            GraphOp::Reduce { f, axis } => self.reduce_fn(*f, one(v)?, *axis),
            GraphOp::CumSum(axis) => {
                let axis = self.axis(one(v)?, *axis)?;
                Ok(self.b.op(Op::CumSum { axis }, v)?)
            }
            GraphOp::Softmax(axis) => {
                let axis = self.axis(one(v)?, *axis)?;
                Ok(self.b.op(Op::Softmax { axis }, v)?)
            }
            GraphOp::Glu(axis) => self.glu(one(v)?, *axis),
            GraphOp::MatMul { transposed } => self.matmul(operands(v)?, *transposed),
            GraphOp::RmsNorm { eps } => {
                let [x, w] = operands(v)?;
                let w = self.vector(w, self.last(x)?)?;
                Ok(self.b.op(Op::RmsNorm { eps: *eps }, &[x, w])?)
            }
            GraphOp::LayerNorm { eps } => self.layer_norm(v, *eps),
            GraphOp::GroupNorm { groups, eps } => self.group_norm(operands(v)?, *groups, *eps),
            GraphOp::BatchNorm { axis, eps } => self.batch_norm(operands(v)?, *axis, *eps),
            GraphOp::Rope {
                theta,
                offset,
                rotary,
                interleaved,
            } => self.rope(one(v)?, *theta, *offset, *rotary, *interleaved),
            GraphOp::Attention(attend) => self.attention(v, attend),
            GraphOp::AttentionCached { attend, value_dim } => self.attention_cached(x, attend, *value_dim),
            GraphOp::RelPosBias { scale } => self.rel_pos_bias(operands(v)?, *scale),
            GraphOp::RelPosAttention { scale, window, mask } => self.rel_pos_attention(v, *scale, *window, *mask),

            GraphOp::Conv {
                form,
                groups,
                stride,
                padding,
                dilation,
            } => self.conv(v, *form, *groups, [*stride, *dilation], *padding),
            GraphOp::LstmCell => self.lstm_cell(operands(v)?),
            GraphOp::GatedDelta { scale } => self.gated_delta(operands(v)?, *scale),
            GraphOp::Stft { stride, bins } => self.stft(operands(v)?, *stride, *bins),
            GraphOp::Rfft => signal::rfft(self, one(v)?),
            GraphOp::Irfft(n) => signal::irfft(self, one(v)?, *n),
            GraphOp::MelFilterBank(bank) => bank.table(self),
            GraphOp::Spectrogram(frames) => {
                let [wave, mels] = operands(v)?;
                frames.lower(self, wave, mels)
            }
            GraphOp::ImagePreprocess(patches) => {
                let unsigned = x.precisions.first() == Some(&Precision::Int8);
                patches.lower(self, one(v)?, unsigned)
            }
            GraphOp::Bilinear { height, width } => image::positions(self, one(v)?, *height, *width),
            GraphOp::AltupPredict => self.altup_predict(v),
            GraphOp::AltupCorrect => self.altup_correct(v),
            GraphOp::GaussianTopK { ppf } => self.gaussian_top_k(one(v)?, *ppf),
            GraphOp::Experts {
                experts,
                gated,
                normalize,
                eps,
                factor,
                activation,
            } => {
                let route = experts::Route {
                    experts: *experts,
                    gated: *gated,
                    normalize: normalize.then_some(*eps),
                    factor: *factor,
                };
                self.experts(v, &route, *activation)
            }
            GraphOp::DenseMlp { product, gate } => self.dense_mlp(operands(v)?, *product, *gate),
            GraphOp::Projections => self.projections(v),
            GraphOp::SoftcapLogits { cap, scale } => self.softcap_logits(operands(v)?, *cap, *scale),
            GraphOp::Sample {
                temperature,
                top_p,
                top_k,
            } => self.sample(id, one(v)?, *temperature, *top_p, *top_k),

            GraphOp::KvAppend { .. } => self.kv_append(x),
            GraphOp::ConvAppend => self.conv_append(x),
            GraphOp::ConvInitialize => self.conv_initialize(x),
            GraphOp::RecurrentWrite => self.recurrent_write(x),
            GraphOp::Persistent => one(v),
        }
    }

    // ---- what the operations are made of

    /// The shape of a value, which is fixed for all but caches of keys and values.
    pub(crate) fn shape(&self, v: ValueId) -> Result<Vec<usize>> {
        let ty = self.b.ty(v);
        ty.known_shape()
            .ok_or_else(|| Error::shape(format!("{ty} is a cache; expected a value of fixed shape")))
    }

    pub(crate) fn last(&self, v: ValueId) -> Result<usize> {
        let shape = self.shape(v)?;
        shape
            .last()
            .copied()
            .ok_or_else(|| Error::shape("expected at least one axis"))
    }

    /// An axis counted from the front, or from behind where it is negative.
    pub(crate) fn axis(&self, v: ValueId, axis: i32) -> Result<usize> {
        let rank = self.b.ty(v).shape.len();
        from_either_end(axis, rank)
    }

    pub(crate) fn reshape(&mut self, v: ValueId, shape: &[usize]) -> Result<ValueId> {
        Ok(self.b.reshape(v, dims(shape))?)
    }

    pub(crate) fn un(&mut self, f: Un, v: ValueId) -> Result<ValueId> {
        Ok(self.b.unary(f, v)?)
    }

    pub(crate) fn bin(&mut self, f: Bin, a: ValueId, b: ValueId) -> Result<ValueId> {
        Ok(self.b.binary(f, a, b)?)
    }

    /// `f(v, number)`
    pub(crate) fn with(&mut self, f: Bin, v: ValueId, number: f32) -> Result<ValueId> {
        let number = self.b.scalar(number)?;
        self.bin(f, v, number)
    }

    /// Whether elements are not 0.
    pub(crate) fn truth(&mut self, v: ValueId) -> Result<ValueId> {
        let zero = self.b.scalar(0.0)?;
        Ok(self.b.compare(CompareFn::Ne, v, zero)?)
    }

    pub(crate) fn float(&mut self, v: ValueId) -> Result<ValueId> {
        Ok(self.b.cast(v, DType::F32)?)
    }

    /// Elements as whole numbers.
    pub(crate) fn whole(&mut self, v: ValueId) -> Result<ValueId> {
        Ok(self.b.cast(v, DType::I64)?)
    }

    /// `[start, start + 1, …]` under a shape with one long axis.
    pub(crate) fn count(&mut self, start: Dim, len: Dim, shape: &[Dim]) -> Result<ValueId> {
        let iota = self.b.iota(start, len)?;
        Ok(self.b.reshape(iota, shape)?)
    }

    pub(crate) fn filled(&mut self, value: f32, shape: &[usize]) -> Result<ValueId> {
        let value = self.b.scalar(value)?;
        Ok(self.b.expand(value, dims(shape))?)
    }

    /// Elements `start..end` of an axis.
    pub(crate) fn part(&mut self, v: ValueId, axis: usize, start: usize, end: usize) -> Result<ValueId> {
        let (start, end) = (Dim::known(start), Dim::known(end));
        Ok(self.b.op(Op::Slice { axis, start, end }, &[v])?)
    }

    pub(crate) fn join(&mut self, axis: usize, parts: &[ValueId]) -> Result<ValueId> {
        Ok(self.b.op(Op::Concat { axis }, parts)?)
    }

    pub(crate) fn reduce(&mut self, f: cactus_ir::ReduceFn, v: ValueId, axis: usize) -> Result<ValueId> {
        let (axes, keepdim) = (vec![axis], true);
        Ok(self.b.op(Op::Reduce { f, axes, keepdim }, &[v])?)
    }

    /// A value of `n` elements as a vector.
    pub(crate) fn vector(&mut self, v: ValueId, n: usize) -> Result<ValueId> {
        match self.shape(v)?.as_slice() {
            [m] if *m == n => Ok(v),
            _ => self.reshape(v, &[n]),
        }
    }

    /// A constant of any size.
    pub(crate) fn table(&mut self, shape: &[usize], values: &[f32]) -> Result<ValueId> {
        let chunks: Vec<ValueId> = values
            .chunks(TABLE_CHUNK)
            .map(|c| self.b.vector(c.to_vec()))
            .collect::<cactus_ir::Result<_>>()?;
        let whole = match chunks.as_slice() {
            [] => return self.filled(0.0, shape),
            [one] => *one,
            many => self.join(0, many)?,
        };
        self.reshape(whole, shape)
    }

    /// A value that is drawn evenly from 0 to 1 for each execution, `[1]`.
    fn drawn(&mut self, id: usize) -> ValueId {
        let name = format!("r{id}");
        self.random.push(name.clone());
        self.b.input(&name, TensorType::new(DType::F32, dims(&[1])))
    }
}

/// An axis counted from the front, or from behind where it is negative.
pub(crate) fn from_either_end(axis: i32, rank: usize) -> Result<usize> {
    let at = i64::from(axis) + if axis < 0 { rank as i64 } else { 0 };
    usize::try_from(at)
        .ok()
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::shape(format!("there is no axis {axis} among {rank} axes")))
}

pub(crate) fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::known(d)).collect()
}

pub(crate) fn operands<const N: usize>(v: &[ValueId]) -> Result<[ValueId; N]> {
    <[ValueId; N]>::try_from(v).map_err(|_| Error::argument(format!("{N} operands are expected, found {}", v.len())))
}

fn one(v: &[ValueId]) -> Result<ValueId> {
    operands::<1>(v).map(|[x]| x)
}
