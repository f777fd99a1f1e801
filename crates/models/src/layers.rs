//! Pieces that families share: norms, rotary tables, masks, attention, gated MLP, embedding and head.
//!
//! Each writes the primitive operations of the corresponding module of Hugging Face transformers, in its order and
//! with its tensor layout, so that a family built here and the same model captured from PyTorch give the passes one
//! pattern to recognize. Dimensions in comments: `b` batch, `s` sequence, `h` query heads, `kv` KV heads, `d` head
//! width.

use crate::config::Dims;
use crate::rope::Rope;
use cactus_ir::{
    BATCH, BinaryFn, CompareFn, Dim, GraphBuilder, ReduceFn, Result, SEQ, TensorType, UnaryFn, ValueId, WeightExpr,
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

fn batch() -> Dim {
    Dim::symbol(BATCH)
}

fn seq() -> Dim {
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
        let two = b.scalar(2.0)?;
        let squared = b.binary(BinaryFn::Pow, x, two)?;
        let mean = b.reduce_last(ReduceFn::Mean, squared)?;
        let eps = b.scalar(self.eps)?;
        let mean = b.add(mean, eps)?;
        let factor = b.unary(UnaryFn::Rsqrt, mean)?;
        let x = b.mul(x, factor)?;
        b.mul(weight, x)
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

/// The filters `name` of a convolution over one axis, `[out, channels, kernel]`, as a matrix with a row for each, which few bits can
/// store.
pub(crate) fn filters(b: &mut GraphBuilder, name: &str, [out, channels, kernel]: [usize; 3]) -> Result<ValueId> {
    let shape = vec![out, channels * kernel];
    let flat = WeightExpr::Reshape {
        x: Box::new(WeightExpr::source(name)),
        shape: shape.clone(),
    };
    let w = b.weight_from(name, &shape, flat);
    b.reshape(w, [out.into(), channels.into(), kernel.into()])
}

/// Declares the input and looks its embeddings up, `[b, s, hidden]`, times `scale` where there is one.
pub(crate) fn embed(b: &mut GraphBuilder, dims: &Dims, scale: Option<f32>) -> Result<ValueId> {
    let ids = b.input(INPUT, TensorType::new(DType::I64, [batch(), seq()]));
    let table = b.weight(EMBEDDING, &[dims.vocab, dims.hidden]);
    b.scope("embed_tokens", |b| {
        let x = b.embedding(table, ids)?;
        match scale {
            Some(factor) => b.scale(x, factor),
            None => Ok(x),
        }
    })
}

/// Names the logits of `x` `[b, s, hidden]` as the output: a linear layer with its own weight, or with the embedding
/// where `tied`; through `cap * tanh(logits / cap)` where there is a softcap.
pub(crate) fn head(b: &mut GraphBuilder, x: ValueId, dims: &Dims, tied: bool, softcap: Option<f32>) -> Result<()> {
    let name = if tied { EMBEDDING } else { HEAD };
    let weight = b.weight(name, &[dims.vocab, dims.hidden]);
    let logits = b.scope("lm_head", |b| {
        let logits = b.linear(x, weight, None)?;
        let Some(cap) = softcap else { return Ok(logits) };
        let c = b.scalar(cap)?;
        let logits = b.binary(BinaryFn::Div, logits, c)?;
        let logits = b.unary(UnaryFn::Tanh, logits)?;
        b.scale(logits, cap)
    })?;
    b.output(OUTPUT, logits);
    Ok(())
}

/// Absolute positions of the call, `i64[s]`.
pub(crate) fn positions(b: &mut GraphBuilder) -> Result<ValueId> {
    b.iota(0, seq())
}

/// Cosines and sines of one rotary embedding, `[1, 1, s, d]` each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotary {
    cos: ValueId,
    sin: ValueId,
    head_dim: usize,
}

impl Rotary {
    pub(crate) fn tables(b: &mut GraphBuilder, positions: ValueId, rope: &Rope) -> Result<Rotary> {
        let head_dim = 2 * rope.inv_freq.len();
        b.scope("rotary_emb", |b| {
            let inv_freq = b.vector(rope.inv_freq.clone())?;
            let p = b.cast(positions, DType::F32)?;
            let p = b.reshape(p, [seq(), Dim::known(1)])?;
            let angles = b.mul(p, inv_freq)?;
            let angles = b.concat_last(&[angles, angles])?;
            let mut table = |f| {
                let t = b.unary(f, angles)?;
                let t = if rope.scale == 1.0 { t } else { b.scale(t, rope.scale)? };
                b.reshape(t, [Dim::known(1), Dim::known(1), seq(), Dim::known(head_dim)])
            };
            Ok(Rotary {
                cos: table(UnaryFn::Cos)?,
                sin: table(UnaryFn::Sin)?,
                head_dim,
            })
        })
    }

    /// `x * cos + rotate_half(x) * sin` on `[b, h, s, d]`, Su et al. 2021.
    pub(crate) fn apply(self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let half = self.head_dim / 2;
        let straight = b.mul(x, self.cos)?;
        let first = b.slice_last(x, 0, half)?;
        let second = b.slice_last(x, half, self.head_dim)?;
        let second = b.unary(UnaryFn::Neg, second)?;
        let rotated = b.concat_last(&[second, first])?;
        let crossed = b.mul(rotated, self.sin)?;
        b.add(straight, crossed)
    }
}

/// The additive mask `[s, s]`: 0 where query `i` sees key `j`, which is `j <= i` and, with a window, `j > i - window`;
/// minus infinity elsewhere.
pub(crate) fn causal_mask(b: &mut GraphBuilder, positions: ValueId, window: Option<usize>) -> Result<ValueId> {
    b.scope("mask", |b| {
        let query = b.reshape(positions, [seq(), Dim::known(1)])?;
        let key = b.reshape(positions, [Dim::known(1), seq()])?;
        let mut seen = b.compare(CompareFn::Le, key, query)?;
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
pub(crate) struct Masks(Vec<(Option<usize>, ValueId)>);

impl Masks {
    pub(crate) fn get(&mut self, b: &mut GraphBuilder, positions: ValueId, window: Option<usize>) -> Result<ValueId> {
        if let Some((_, mask)) = self.0.iter().find(|(w, _)| *w == window) {
            return Ok(*mask);
        }
        let mask = causal_mask(b, positions, window)?;
        self.0.push((window, mask));
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
    /// Name of the output projection.
    pub(crate) out_name: &'static str,
    /// Norm over each head of q and k, with the names of its weights.
    pub(crate) head_norm: Option<(Norm, [&'static str; 2])>,
}

impl Attention<'_> {
    /// Names of the projections of q, k and v in almost every family.
    pub(crate) const NAMES: [&'static str; 3] = ["q_proj", "k_proj", "v_proj"];

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
        // Projections as [b, heads, s, d], query and key normed and rotated.
        let project = |b: &mut GraphBuilder, name: &str, heads: usize, norm: Option<usize>| {
            let y = linear(
                b,
                x,
                &format!("{prefix}.{name}"),
                heads * head_dim,
                hidden,
                self.qkv_bias,
            )?;
            let mut y = b.reshape(y, [batch.clone(), seq(), heads.into(), head_dim.into()])?;
            if let (Some(which), Some((norm, names))) = (norm, self.head_norm) {
                y = norm.apply(b, y, &format!("{prefix}.{}.weight", names[which]), head_dim)?;
            }
            b.permute(y, &[0, 2, 1, 3])
        };
        let [q_name, k_name, v_name] = self.names;
        let mut q = project(b, q_name, heads, Some(0))?;
        let mut k = project(b, k_name, kv_heads, Some(1))?;
        let v = project(b, v_name, kv_heads, None)?;
        if let Some(rotary) = rotary {
            q = rotary.apply(b, q)?;
            k = rotary.apply(b, k)?;
        }
        let k = repeat_kv(b, k, self.dims)?;
        let v = repeat_kv(b, v, self.dims)?;
        let y = attend(b, [q, k, v], self.dims, self.scale, mask)?;
        linear(
            b,
            y,
            &format!("{prefix}.{}", self.out_name),
            hidden,
            heads * head_dim,
            self.out_bias,
        )
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
    let batch = b.shape(q)[0].clone();
    let k = b.permute(k, &[0, 1, 3, 2])?;
    let scores = b.matmul(q, k)?;
    let scores = b.scale(scores, scale)?;
    let scores = b.add(scores, mask)?;
    let shares = b.softmax_last(scores)?;
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
fn repeat_kv(b: &mut GraphBuilder, x: ValueId, dims: &Dims) -> Result<ValueId> {
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
#[derive(Clone, Debug)]
pub(crate) struct GatedMlp {
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) activation: UnaryFn,
    pub(crate) bias: bool,
    /// Names of gate, up and down projection.
    pub(crate) names: [&'static str; 3],
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
        let gate = linear(b, x, &gate, intermediate, hidden, bias)?;
        let gate = b.unary(self.activation, gate)?;
        let up = linear(b, x, &up, intermediate, hidden, bias)?;
        let y = b.mul(gate, up)?;
        linear(b, y, &down, hidden, intermediate, bias)
    }
}
