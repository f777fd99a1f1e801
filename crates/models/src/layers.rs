//! Pieces that families share: norms, masks, attention, gated MLP, embedding and head.
//!
//! Each writes the primitive operations of the corresponding module of Hugging Face transformers, in its order and
//! with its tensor layout, so that a family built here and the same model captured from PyTorch give the passes one
//! pattern to recognize. Dimensions in comments: `b` batch, `s` sequence, `h` query heads, `kv` KV heads, `d` head
//! width.

use crate::config::Dims;
use crate::rotary::Rotary;
use cactus_ir::{
    BATCH, BinaryFn, CompareFn, Dim, GraphBuilder, Op, ReduceFn, Result, SEQ, TensorType, UnaryFn, ValueId, WeightExpr,
};
use cactus_tensor::DType;

/// Name of the input: token ids, `i64[batch, seq]`.
pub(crate) const INPUT: &str = "input_ids";
/// Name of the output: logits, `f32[batch, seq, vocab]`.
pub(crate) const OUTPUT: &str = "logits";
/// The token embedding, `[vocab, hidden]`.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The output head where it is not the embedding, `[vocab, hidden]`.
pub(crate) const HEAD: &str = "lm_head.weight";
/// The same in models of speech.
pub(crate) const PROJECTION: &str = "proj_out.weight";

pub(crate) fn batch() -> Dim {
    Dim::symbol(BATCH)
}

pub(crate) fn seq() -> Dim {
    Dim::symbol(SEQ)
}

/// An RMS norm, Zhang and Sennrich 2019.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    /// Added to the mean square.
    pub(crate) eps: f32,
    /// The checkpoint stores the weight less one (Gemma).
    pub(crate) plus_one: bool,
}

impl Norm {
    /// `weight * (x * rsqrt(mean(x²) + eps))` over the last axis, `[…, n]`.
    pub(crate) fn apply(self, b: &mut GraphBuilder, x: ValueId, weight: &str, n: usize) -> Result<ValueId> {
        let expr = WeightExpr::source(weight);
        let expr = if self.plus_one {
            WeightExpr::AddScalar {
                x: Box::new(expr),
                value: 1.0,
            }
        } else {
            expr
        };
        let weight = b.weight_from(weight, &[n], expr);
        let x = self.bare(b, x)?;
        b.mul(weight, x)
    }

    /// The same without a weight.
    pub(crate) fn bare(self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let two = b.scalar(2.0)?;
        let squared = b.binary(BinaryFn::Pow, x, two)?;
        let mean = b.reduce_last(ReduceFn::Mean, squared)?;
        let eps = b.scalar(self.eps)?;
        let mean = b.add(mean, eps)?;
        let factor = b.unary(UnaryFn::Rsqrt, mean)?;
        b.mul(x, factor)
    }
}

/// Layer normalization over the last axis, `[…, n]`, with the weights `{name}.weight` and `{name}.bias`. Ba et al. 2016.
pub(crate) fn layer_norm(
    b: &mut GraphBuilder,
    x: ValueId,
    name: &str,
    n: usize,
    eps: f32,
    bias: bool,
) -> Result<ValueId> {
    let weight = b.weight(&format!("{name}.weight"), &[n]);
    let bias = bias.then(|| b.weight(&format!("{name}.bias"), &[n]));
    layer_norm_of(b, x, name, [Some(weight), bias], eps)
}

/// [`layer_norm`] with a factor and a summand that are there already, where there are such.
pub(crate) fn layer_norm_of(
    b: &mut GraphBuilder,
    x: ValueId,
    name: &str,
    [weight, bias]: [Option<ValueId>; 2],
    eps: f32,
) -> Result<ValueId> {
    b.scope(name.rsplit('.').next().unwrap_or(name), |b| {
        let mean = b.reduce_last(ReduceFn::Mean, x)?;
        let x = b.binary(BinaryFn::Sub, x, mean)?;
        let squared = b.mul(x, x)?;
        let variance = b.reduce_last(ReduceFn::Mean, squared)?;
        let eps = b.scalar(eps)?;
        let variance = b.add(variance, eps)?;
        let factor = b.unary(UnaryFn::Rsqrt, variance)?;
        let mut x = b.mul(x, factor)?;
        if let Some(weight) = weight {
            x = b.mul(x, weight)?;
        }
        match bias {
            Some(bias) => b.add(x, bias),
            None => Ok(x),
        }
    })
}

/// `x · wᵀ (+ bias)` with the weights `{prefix}.weight` `[n, k]` and `{prefix}.bias` `[n]`.
pub(crate) fn linear(
    b: &mut GraphBuilder,
    x: ValueId,
    prefix: &str,
    n: usize,
    k: usize,
    bias: bool,
) -> Result<ValueId> {
    let w = b.weight(&format!("{prefix}.weight"), &[n, k]);
    let bias = bias.then(|| b.weight(&format!("{prefix}.bias"), &[n]));
    b.linear(x, w, bias)
}

/// The weight `name` as the matrix `[n, k]`, whatever axes the checkpoint has: filters of a convolution as a row for each.
pub(crate) fn matrix(b: &mut GraphBuilder, name: &str, [n, k]: [usize; 2]) -> ValueId {
    let flat = WeightExpr::Reshape {
        x: Box::new(WeightExpr::source(name)),
        shape: vec![n, k],
    };
    b.weight_from(name, &[n, k], flat)
}

/// The filters `name` of a convolution over one axis, `[out, channels, kernel]`, stored as a matrix, which may have few bits.
pub(crate) fn filters(b: &mut GraphBuilder, name: &str, [out, channels, kernel]: [usize; 3]) -> Result<ValueId> {
    let w = matrix(b, name, [out, channels * kernel]);
    b.reshape(w, [out.into(), channels.into(), kernel.into()])
}

/// Declares the input and looks its embeddings up, `[b, s, hidden]`, times `scale` where there is one.
pub(crate) fn embed(b: &mut GraphBuilder, dims: &Dims, scale: Option<f32>) -> Result<ValueId> {
    let ids = token_ids(b);
    embed_ids(b, ids, dims, scale)
}

/// Declares the input, `i64[b, s]`.
pub(crate) fn token_ids(b: &mut GraphBuilder) -> ValueId {
    b.input(INPUT, TensorType::new(DType::I64, [batch(), seq()]))
}

/// The embeddings of `ids`, as [`embed`].
pub(crate) fn embed_ids(b: &mut GraphBuilder, ids: ValueId, dims: &Dims, scale: Option<f32>) -> Result<ValueId> {
    let table = b.weight(EMBEDDING, &[dims.vocab, dims.hidden]);
    b.scope("embed_tokens", |b| {
        let x = b.embedding(table, ids)?;
        match scale {
            Some(factor) => b.scale(x, factor),
            None => Ok(x),
        }
    })
}

/// What logits go through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logits {
    /// `cap * tanh(logits / cap)`.
    Capped(f32),
    /// `logits / divisor`.
    Divided(f32),
}

/// Names the logits of `x` `[b, s, hidden]` as the output: a linear layer with its own weight, or with the embedding
/// where `tied`; changed as `last` says.
pub(crate) fn head(b: &mut GraphBuilder, x: ValueId, dims: &Dims, tied: bool, last: Option<Logits>) -> Result<()> {
    let name = if tied { EMBEDDING } else { HEAD };
    let weight = b.weight(name, &[dims.vocab, dims.hidden]);
    let logits = b.scope("lm_head", |b| {
        let logits = b.linear(x, weight, None)?;
        let Some(last) = last else { return Ok(logits) };
        let (Logits::Capped(by) | Logits::Divided(by)) = last;
        let divisor = b.scalar(by)?;
        let logits = b.binary(BinaryFn::Div, logits, divisor)?;
        if let Logits::Divided(_) = last {
            return Ok(logits);
        }
        let logits = b.unary(UnaryFn::Tanh, logits)?;
        b.scale(logits, by)
    })?;
    b.output(OUTPUT, logits);
    Ok(())
}

/// Absolute positions of the call, `i64[s]`.
pub(crate) fn positions(b: &mut GraphBuilder) -> Result<ValueId> {
    b.iota(0, seq())
}

/// The additive mask `[s, s]`: 0 where query `i` sees key `j`, which is `j <= i` and, with a window, `j > i - window`;
/// minus infinity elsewhere.
pub(crate) fn causal_mask(b: &mut GraphBuilder, positions: ValueId, window: Option<usize>) -> Result<ValueId> {
    mask_until(b, positions, positions, window)
}

/// As [`causal_mask`], where query `i` sees key `j` for `j <= until[i]`.
pub(crate) fn mask_until(
    b: &mut GraphBuilder,
    positions: ValueId,
    until: ValueId,
    window: Option<usize>,
) -> Result<ValueId> {
    b.scope("mask", |b| {
        let query = b.reshape(positions, [seq(), Dim::known(1)])?;
        let key = b.reshape(positions, [Dim::known(1), seq()])?;
        let last = match until == positions {
            true => query,
            false => b.reshape(until, [seq(), Dim::known(1)])?,
        };
        let mut seen = b.compare(CompareFn::Le, key, last)?;
        if let Some(window) = window {
            let window = b.scalar_i64(window as i64)?;
            let before = b.binary(BinaryFn::Sub, query, window)?;
            let recent = b.compare(CompareFn::Gt, key, before)?;
            seen = b.binary(BinaryFn::And, seen, recent)?;
        }
        let (zero, hidden) = (b.scalar(0.0)?, b.scalar(f32::NEG_INFINITY)?);
        b.select(seen, zero, hidden)
    })
}

/// Masks by window, each made once.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    made: Vec<(Option<usize>, ValueId)>,
    /// Up to which position each one sees, where that is not its own.
    pub(crate) until: Option<ValueId>,
}

impl Masks {
    pub(crate) fn get(&mut self, b: &mut GraphBuilder, positions: ValueId, window: Option<usize>) -> Result<ValueId> {
        if let Some((_, mask)) = self.made.iter().find(|(w, _)| *w == window) {
            return Ok(*mask);
        }
        let mask = mask_until(b, positions, self.until.unwrap_or(positions), window)?;
        self.made.push((window, mask));
        Ok(mask)
    }
}

/// Grouped-query self-attention, Vaswani et al. 2017 and Ainslie et al. 2023.
#[derive(Clone, Debug)]
pub(crate) struct Attention<'a> {
    pub(crate) dims: &'a Dims,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Whether q, k and v have a bias.
    pub(crate) qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub(crate) out_bias: bool,
    /// Names of the projections of q, k and v.
    pub(crate) names: [&'static str; 3],
    /// Name of the one projection whose rows are those of q, k and v, where the checkpoint has this instead.
    pub(crate) joined: Option<&'static str>,
    /// Name of the output projection.
    pub(crate) out_name: &'static str,
    /// Norm of q and k.
    pub(crate) qk_norm: Option<HeadNorm>,
    /// Whether each head has a score without a value, the weight `sinks` (Xiao et al. 2023).
    pub(crate) sinks: bool,
    /// Whether the values that heads find are multiplied by gates. The rows of a head of the projection of q are those of q, then of its gates.
    pub(crate) gated: bool,
}

/// A norm of queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadNorm {
    pub(crate) norm: Norm,
    /// Names of the weights for q and k.
    pub(crate) names: [&'static str; 2],
    pub(crate) over: Normed,
}

/// What a norm of queries or keys is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Normed {
    /// Each head, with one weight for all of them.
    Head,
    /// All heads at once.
    Width,
}

impl Attention<'_> {
    /// Names of the projections of q, k and v in almost every family.
    pub(crate) const NAMES: [&'static str; 3] = ["q_proj", "k_proj", "v_proj"];

    /// The attention of Llama.
    pub(crate) fn usual(dims: &Dims) -> Attention<'_> {
        Attention {
            dims,
            scale: Attention::usual_scale(dims),
            qkv_bias: false,
            out_bias: false,
            names: Attention::NAMES,
            joined: None,
            out_name: "o_proj",
            qk_norm: None,
            sinks: false,
            gated: false,
        }
    }

    /// The scale of almost every family, `1 / sqrt(d)`.
    pub(crate) fn usual_scale(dims: &Dims) -> f32 {
        (dims.head_dim as f64).powf(-0.5) as f32
    }

    /// Attention of `x` `[b, s, hidden]` with the weights under `prefix`, under an additive mask `[s, s]`.
    pub(crate) fn apply(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        prefix: &str,
        rotary: Option<Rotary>,
        mask: ValueId,
    ) -> Result<ValueId> {
        let Dims {
            hidden,
            heads,
            kv_heads,
            head_dim,
            ..
        } = *self.dims;
        let batch = b.shape(x)[0].clone();
        let all = (heads + 2 * kv_heads) * head_dim;
        let project = |b: &mut GraphBuilder, name: &str, rows: usize| {
            linear(b, x, &format!("{prefix}.{name}"), rows, hidden, self.qkv_bias)
        };
        let joined = match self.joined {
            Some(name) => Some(project(b, name, all)?),
            None => None,
        };
        // Queries of all heads, and behind them the gates of all.
        let both = match self.gated {
            true => Some(self.with_gates(b, x, &format!("{prefix}.{}", self.names[0]))?),
            false => None,
        };
        // Projections as [b, heads, s, d], query and key normed.
        let part = |b: &mut GraphBuilder, which: usize| {
            let heads = [heads, kv_heads, kv_heads][which];
            let width = heads * head_dim;
            let mut y = match (joined, both) {
                (Some(joined), _) => {
                    let start = [0, all - 2 * kv_heads * head_dim, all - kv_heads * head_dim][which];
                    b.slice_last(joined, start, start + width)?
                }
                (None, Some(both)) if which == 0 => b.slice_last(both, 0, width)?,
                (None, _) => project(b, self.names[which], width)?,
            };
            let norm = self.qk_norm.filter(|_| which < 2);
            let normed = |b: &mut GraphBuilder, y: ValueId, over: Normed| match norm {
                Some(found) if found.over == over => {
                    let n = if over == Normed::Head { head_dim } else { width };
                    let weight = format!("{prefix}.{}.weight", found.names[which]);
                    found.norm.apply(b, y, &weight, n)
                }
                _ => Ok(y),
            };
            y = normed(b, y, Normed::Width)?;
            y = b.reshape(y, [batch.clone(), seq(), heads.into(), head_dim.into()])?;
            y = normed(b, y, Normed::Head)?;
            b.permute(y, &[0, 2, 1, 3])
        };
        let (mut q, mut k, v) = (part(b, 0)?, part(b, 1)?, part(b, 2)?);
        if let Some(rotary) = rotary {
            q = rotary.apply(b, q)?;
            k = rotary.apply(b, k)?;
        }
        let k = repeat_kv(b, k, self.dims)?;
        let v = repeat_kv(b, v, self.dims)?;
        let sinks = self.sinks.then(|| b.weight(&format!("{prefix}.sinks"), &[heads]));
        let mut y = attend_beside(b, [q, k, v], self.dims, self.scale, mask, sinks)?;
        if let Some(both) = both {
            let gates = b.slice_last(both, heads * head_dim, 2 * heads * head_dim)?;
            let gates = b.unary(UnaryFn::Sigmoid, gates)?;
            y = b.mul(y, gates)?;
        }
        linear(
            b,
            y,
            &format!("{prefix}.{}", self.out_name),
            hidden,
            heads * head_dim,
            self.out_bias,
        )
    }

    /// Queries of all heads, then their gates, which the checkpoint has head by head.
    fn with_gates(&self, b: &mut GraphBuilder, x: ValueId, name: &str) -> Result<ValueId> {
        let Dims {
            hidden,
            heads,
            head_dim,
            ..
        } = *self.dims;
        let mut sorted = |name: String, shape: Vec<usize>| {
            let reshape = |x, shape| WeightExpr::Reshape { x: Box::new(x), shape };
            let by_heads = [&[heads, 2, head_dim], &shape[1..]].concat();
            let turned = WeightExpr::Permute {
                x: Box::new(reshape(WeightExpr::source(&name), by_heads)),
                perm: [1, 0, 2, 3][..shape.len() + 2].to_vec(),
            };
            b.weight_from(&name, &shape, reshape(turned, shape.clone()))
        };
        let rows = 2 * heads * head_dim;
        let weight = sorted(format!("{name}.weight"), vec![rows, hidden]);
        let bias = self.qkv_bias.then(|| sorted(format!("{name}.bias"), vec![rows]));
        b.linear(x, weight, bias)
    }
}

/// What queries, keys and values `[b, heads, s, d]` give under an additive mask, the heads beside each other, `[b, s, heads * d]`.
pub(crate) fn attend(
    b: &mut GraphBuilder,
    [q, k, v]: [ValueId; 3],
    dims: &Dims,
    scale: f32,
    mask: ValueId,
) -> Result<ValueId> {
    attend_beside(b, [q, k, v], dims, scale, mask, None)
}

/// The same with a score of each head, `[heads]`, that takes part in the softmax and has no value, where there are such.
fn attend_beside(
    b: &mut GraphBuilder,
    [q, k, v]: [ValueId; 3],
    dims: &Dims,
    scale: f32,
    mask: ValueId,
    sinks: Option<ValueId>,
) -> Result<ValueId> {
    let batch = b.shape(q)[0].clone();
    let k = b.permute(k, &[0, 1, 3, 2])?;
    let scores = b.matmul(q, k)?;
    let scores = b.scale(scores, scale)?;
    let scores = b.add(scores, mask)?;
    let shares = match sinks {
        None => b.softmax_last(scores)?,
        Some(sinks) => {
            let keys = b.shape(scores)[3].clone();
            let sinks = b.reshape(sinks, [1.into(), dims.heads.into(), 1.into(), 1.into()])?;
            let sinks = b.expand(sinks, [batch.clone(), dims.heads.into(), seq(), 1.into()])?;
            let all = b.concat_last(&[scores, sinks])?;
            let shares = b.softmax_last(all)?;
            let (axis, start, end) = (3, Dim::known(0), keys);
            b.op(Op::Slice { axis, start, end }, &[shares])?
        }
    };
    let y = b.matmul(shares, v)?;
    let y = b.permute(y, &[0, 2, 1, 3])?;
    b.reshape(y, [batch, seq(), (dims.heads * dims.head_dim).into()])
}

/// Queries, keys and values that stand beside each other in `x` `[1, s, 3 * heads * d]`, each `[1, heads, s, d]`.
pub(crate) fn apart(b: &mut GraphBuilder, x: ValueId, dims: &Dims) -> Result<[ValueId; 3]> {
    let Dims { heads, head_dim, .. } = *dims;
    let width = heads * head_dim;
    let mut part = |i: usize| {
        let y = b.slice_last(x, i * width, (i + 1) * width)?;
        let y = b.reshape(y, [1.into(), seq(), heads.into(), head_dim.into()])?;
        b.permute(y, &[0, 2, 1, 3])
    };
    Ok([part(0)?, part(1)?, part(2)?])
}

/// `[b, kv, s, d]` to `[b, h, s, d]`: each KV head serves `h / kv` query heads in a row.
pub(crate) fn repeat_kv(b: &mut GraphBuilder, x: ValueId, dims: &Dims) -> Result<ValueId> {
    let Dims {
        heads,
        kv_heads,
        head_dim,
        ..
    } = *dims;
    if heads == kv_heads {
        return Ok(x);
    }
    let group = heads / kv_heads;
    let batch = || b.shape(x)[0].clone();
    let (narrow, wide, whole) = (
        [batch(), kv_heads.into(), 1.into(), seq(), head_dim.into()],
        [batch(), kv_heads.into(), group.into(), seq(), head_dim.into()],
        [batch(), heads.into(), seq(), head_dim.into()],
    );
    let x = b.reshape(x, narrow)?;
    let x = b.expand(x, wide)?;
    b.reshape(x, whole)
}

/// A gated feed-forward layer, Shazeer 2020: `down(act(gate(x)) * up(x))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedMlp {
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) activation: UnaryFn,
    pub(crate) bias: bool,
    /// Names of gate, up and down projection.
    pub(crate) names: [&'static str; 3],
    /// Name of the one projection whose rows are those of gate and up, where the checkpoint has this instead.
    pub(crate) joined: Option<&'static str>,
}

impl GatedMlp {
    /// Names in all families but LFM2.
    pub(crate) const NAMES: [&'static str; 3] = ["gate_proj", "up_proj", "down_proj"];

    pub(crate) fn apply(&self, b: &mut GraphBuilder, x: ValueId, prefix: &str) -> Result<ValueId> {
        let GatedMlp {
            hidden,
            intermediate,
            bias,
            ..
        } = *self;
        let [gate, up, down] = self.names.map(|n| format!("{prefix}.{n}"));
        if let Some(name) = self.joined {
            let both = linear(b, x, &format!("{prefix}.{name}"), 2 * intermediate, hidden, bias)?;
            let y = gated(b, both, intermediate, self.activation)?;
            return linear(b, y, &down, hidden, intermediate, bias);
        }
        let gate = linear(b, x, &gate, intermediate, hidden, bias)?;
        let gate = b.unary(self.activation, gate)?;
        let up = linear(b, x, &up, intermediate, hidden, bias)?;
        let y = b.mul(gate, up)?;
        linear(b, y, &down, hidden, intermediate, bias)
    }
}

/// `act(first half) * second half` of `x` `[…, 2 * m]`.
pub(crate) fn gated(b: &mut GraphBuilder, x: ValueId, m: usize, activation: UnaryFn) -> Result<ValueId> {
    let gate = b.slice_last(x, 0, m)?;
    let up = b.slice_last(x, m, 2 * m)?;
    let gate = b.unary(activation, gate)?;
    b.mul(gate, up)
}
