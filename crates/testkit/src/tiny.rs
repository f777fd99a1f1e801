//! Tiny decoders in primitive operations, written as the builders of model families write them: no fused operation, no
//! state, positions from zero.

use cactus_ir::{
    BATCH, BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Op, ReduceFn, Result, SEQ, TensorType, UnaryFn, ValueId,
};
use cactus_tensor::DType;

/// What mixes positions in a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixer {
    /// Attention, over the latest `window` positions where one is given.
    Attention {
        /// Number of positions seen.
        window: Option<usize>,
    },
    /// LFM2's gated short convolution.
    ShortConv {
        /// Taps.
        kernel: usize,
    },
}

/// Ways of writing the same function, each found in exported models.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Style {
    /// `pow(x, 2)` rather than `x * x`.
    pub square_by_pow: bool,
    /// `x / sqrt(…)` rather than `x * rsqrt(…)`.
    pub norm_by_div: bool,
    /// The mask is added as `0` or `-inf` rather than selected.
    pub mask_by_add: bool,
    /// Scores are divided by `sqrt(head_dim)` rather than multiplied by its inverse.
    pub scale_by_div: bool,
    /// Operands of commutative operations change places.
    pub swapped: bool,
    /// SiLU as `x * sigmoid(x)`.
    pub silu_by_sigmoid: bool,
    /// Heads are rotated as `[batch, heads, seq, head_dim]`, and convolutions gated and padded on both sides as
    /// `[batch, channels, seq]`, as transformers does.
    pub positions_last: bool,
    /// The halves of a head are rotated one by one and joined.
    pub rope_by_halves: bool,
}

/// Sizes and features of a tiny decoder. Start from [`Decoder::llama`] and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// Number of token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Leading elements of a head that are rotated; even.
    pub rotary: usize,
    /// Factor on cosine and sine.
    pub rope_scale: f32,
    /// Width of the MLP.
    pub intermediate: usize,
    /// One entry a layer.
    pub layers: Vec<Mixer>,
    /// RMS norm of each query and key head.
    pub qk_norm: bool,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// Cap of the attention scores.
    pub softcap: Option<f32>,
    /// The MLP gate is GELU (tanh) rather than SiLU, and embeddings are scaled by `sqrt(hidden)`.
    pub gemma: bool,
    /// The output head is the embedding table.
    pub tied: bool,
    /// How it is written.
    pub style: Style,
}

impl Decoder {
    /// Two attention layers, grouped heads, SiLU.
    pub fn llama() -> Self {
        Decoder {
            vocab: 31,
            hidden: 24,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            rotary: 8,
            rope_scale: 1.0,
            intermediate: 40,
            layers: vec![Mixer::Attention { window: None }; 2],
            qk_norm: false,
            qkv_bias: false,
            softcap: None,
            gemma: false,
            tied: true,
            style: Style::default(),
        }
    }

    /// Head norms, alternating windows, GELU, scaled embeddings.
    pub fn gemma() -> Self {
        Decoder {
            layers: vec![Mixer::Attention { window: Some(3) }, Mixer::Attention { window: None }],
            qk_norm: true,
            gemma: true,
            softcap: Some(20.0),
            ..Decoder::llama()
        }
    }

    /// Biases on queries, keys and values.
    pub fn qwen2() -> Self {
        Decoder {
            qkv_bias: true,
            tied: false,
            ..Decoder::llama()
        }
    }

    /// Short convolutions and attention.
    pub fn lfm2() -> Self {
        Decoder {
            layers: vec![Mixer::ShortConv { kernel: 3 }, Mixer::Attention { window: None }],
            qk_norm: true,
            ..Decoder::llama()
        }
    }

    /// The graph: `input_ids i64[batch, seq] -> logits f32[batch, seq, vocab]`.
    ///
    /// # Errors
    /// Those of the builder, where sizes do not fit each other.
    pub fn build(&self) -> Result<Graph> {
        let mut b = GraphBuilder::new("decoder");
        let ids = TensorType::new(DType::I64, [Dim::symbol(BATCH), Dim::symbol(SEQ)]);
        let ids = b.input("input_ids", ids);
        let table = b.weight("model.embed_tokens.weight", &[self.vocab, self.hidden]);
        let positions = b.iota(0, SEQ)?;
        let mut x = b.scope("model.embed_tokens", |b| b.embedding(table, ids))?;
        if self.gemma {
            x = b.scale(x, (self.hidden as f32).sqrt())?;
        }
        for (i, &mixer) in self.layers.iter().enumerate() {
            x = b.scope(format!("model.layers.{i}"), |b| self.layer(b, i, mixer, x, positions))?;
        }
        x = b.scope("model.norm", |b| self.norm(b, "model.norm", self.hidden, x))?;
        let head = match self.tied {
            true => table,
            false => b.weight("lm_head.weight", &[self.vocab, self.hidden]),
        };
        let logits = b.scope("lm_head", |b| b.linear(x, head, None))?;
        b.output("logits", logits);
        b.finish()
    }

    fn layer(&self, b: &mut GraphBuilder, i: usize, mixer: Mixer, x: ValueId, positions: ValueId) -> Result<ValueId> {
        let name = format!("model.layers.{i}");
        let norm = format!("{name}.input_layernorm");
        let h = b.scope("input_layernorm", |b| self.norm(b, &norm, self.hidden, x))?;
        let h = match mixer {
            Mixer::Attention { window } => b.scope("self_attn", |b| {
                self.attention(b, &format!("{name}.self_attn"), window, h, positions)
            })?,
            Mixer::ShortConv { kernel } => {
                b.scope("conv", |b| self.short_conv(b, &format!("{name}.conv"), kernel, h))?
            }
        };
        let x = self.commuted(b, BinaryFn::Add, x, h)?;
        let norm = format!("{name}.post_attention_layernorm");
        let h = b.scope("post_attention_layernorm", |b| self.norm(b, &norm, self.hidden, x))?;
        let h = b.scope("mlp", |b| self.mlp(b, &format!("{name}.mlp"), h))?;
        self.commuted(b, BinaryFn::Add, x, h)
    }

    /// `f(a, b)` or, in the swapped style, `f(b, a)`.
    fn commuted(&self, b: &mut GraphBuilder, f: BinaryFn, x: ValueId, y: ValueId) -> Result<ValueId> {
        match self.style.swapped {
            true => b.binary(f, y, x),
            false => b.binary(f, x, y),
        }
    }

    fn norm(&self, b: &mut GraphBuilder, name: &str, width: usize, x: ValueId) -> Result<ValueId> {
        let weight = b.weight(&format!("{name}.weight"), &[width]);
        let square = match self.style.square_by_pow {
            true => {
                let two = b.scalar(2.0)?;
                b.binary(BinaryFn::Pow, x, two)?
            }
            false => b.mul(x, x)?,
        };
        let mean = b.reduce_last(ReduceFn::Mean, square)?;
        let eps = b.scalar(1e-5)?;
        let sum = self.commuted(b, BinaryFn::Add, mean, eps)?;
        let y = match self.style.norm_by_div {
            true => {
                let root = b.unary(UnaryFn::Sqrt, sum)?;
                b.binary(BinaryFn::Div, x, root)?
            }
            false => {
                let root = b.unary(UnaryFn::Rsqrt, sum)?;
                self.commuted(b, BinaryFn::Mul, x, root)?
            }
        };
        self.commuted(b, BinaryFn::Mul, y, weight)
    }

    fn attention(
        &self,
        b: &mut GraphBuilder,
        name: &str,
        window: Option<usize>,
        x: ValueId,
        positions: ValueId,
    ) -> Result<ValueId> {
        let (batch, seq) = (Dim::symbol(BATCH), Dim::symbol(SEQ));
        let d = self.head_dim;
        let mut project = |which: &str, heads: usize| -> Result<ValueId> {
            b.scope(format!("{which}_proj"), |b| {
                let w = b.weight(&format!("{name}.{which}_proj.weight"), &[heads * d, self.hidden]);
                let bias = self
                    .qkv_bias
                    .then(|| b.weight(&format!("{name}.{which}_proj.bias"), &[heads * d]));
                let y = b.linear(x, w, bias)?;
                b.reshape(y, [batch.clone(), seq.clone(), heads.into(), d.into()])
            })
        };
        let mut q = project("q", self.heads)?;
        let mut k = project("k", self.kv_heads)?;
        let v = project("v", self.kv_heads)?;
        if self.qk_norm {
            q = b.scope("q_norm", |b| self.norm(b, &format!("{name}.q_norm"), d, q))?;
            k = b.scope("k_norm", |b| self.norm(b, &format!("{name}.k_norm"), d, k))?;
        }
        let (cos, sin) = self.angles(b, positions)?;
        for x in [&mut q, &mut k] {
            *x = match self.style.positions_last {
                true => {
                    *x = b.permute(*x, &[0, 2, 1, 3])?;
                    self.rope(b, *x, cos, sin)?
                }
                false => {
                    *x = self.rope(b, *x, cos, sin)?;
                    b.permute(*x, &[0, 2, 1, 3])?
                }
            };
        }
        let v = b.permute(v, &[0, 2, 1, 3])?;
        let k = self.repeat_heads(b, k)?;
        let v = self.repeat_heads(b, v)?;
        let kt = b.permute(k, &[0, 1, 3, 2])?;
        let mut scores = b.matmul(q, kt)?;
        let root = (d as f32).sqrt();
        scores = match self.style.scale_by_div {
            true => {
                let root = b.scalar(root)?;
                b.binary(BinaryFn::Div, scores, root)?
            }
            false => b.scale(scores, 1.0 / root)?,
        };
        if let Some(cap) = self.softcap {
            let inverse = b.scale(scores, 1.0 / cap)?;
            let tanh = b.unary(UnaryFn::Tanh, inverse)?;
            scores = b.scale(tanh, cap)?;
        }
        let mask = causal_mask(b, positions, window)?;
        let lowest = b.scalar(f32::NEG_INFINITY)?;
        scores = match self.style.mask_by_add {
            true => {
                let zero = b.scalar(0.0)?;
                let bias = b.select(mask, zero, lowest)?;
                self.commuted(b, BinaryFn::Add, scores, bias)?
            }
            false => b.select(mask, scores, lowest)?,
        };
        let weights = b.softmax_last(scores)?;
        let y = b.matmul(weights, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [batch, seq, Dim::known(self.heads * d)])?;
        b.scope("o_proj", |b| {
            let w = b.weight(&format!("{name}.o_proj.weight"), &[self.hidden, self.heads * d]);
            b.linear(y, w, None)
        })
    }

    fn angles(&self, b: &mut GraphBuilder, positions: ValueId) -> Result<(ValueId, ValueId)> {
        let half = self.rotary / 2;
        let freq = (0..half).map(|i| 100f32.powf(-(2.0 * i as f32) / self.rotary as f32));
        let freq = b.vector(freq.collect())?;
        let seq = Dim::symbol(SEQ);
        let p = b.cast(positions, DType::F32)?;
        let p = b.reshape(p, [seq.clone(), 1.into()])?;
        let angles = b.mul(p, freq)?;
        let angles = match self.style.rope_by_halves {
            true => angles,
            false => b.concat_last(&[angles, angles])?,
        };
        let width = b.shape(angles)[1].clone();
        let mut table = |f: UnaryFn| -> Result<ValueId> {
            let mut t = b.unary(f, angles)?;
            if self.rope_scale != 1.0 {
                t = b.scale(t, self.rope_scale)?;
            }
            match self.style.positions_last {
                true => b.reshape(t, [1.into(), 1.into(), seq.clone(), width.clone()]),
                false => b.reshape(t, [seq.clone(), 1.into(), width.clone()]),
            }
        };
        Ok((table(UnaryFn::Cos)?, table(UnaryFn::Sin)?))
    }

    fn rope(&self, b: &mut GraphBuilder, x: ValueId, cos: ValueId, sin: ValueId) -> Result<ValueId> {
        let (r, half) = (self.rotary, self.rotary / 2);
        let partial = r < self.head_dim;
        let turned = if partial { b.slice_last(x, 0, r)? } else { x };
        let low = b.slice_last(turned, 0, half)?;
        let high = b.slice_last(turned, half, r)?;
        let y = if self.style.rope_by_halves {
            let (a, c) = (
                self.commuted(b, BinaryFn::Mul, low, cos)?,
                self.commuted(b, BinaryFn::Mul, high, sin)?,
            );
            let first = b.binary(BinaryFn::Sub, a, c)?;
            let (a, c) = (
                self.commuted(b, BinaryFn::Mul, high, cos)?,
                self.commuted(b, BinaryFn::Mul, low, sin)?,
            );
            let second = self.commuted(b, BinaryFn::Add, a, c)?;
            b.concat_last(&[first, second])?
        } else {
            let minus = b.unary(UnaryFn::Neg, high)?;
            let rotated = b.concat_last(&[minus, low])?;
            let a = self.commuted(b, BinaryFn::Mul, turned, cos)?;
            let c = self.commuted(b, BinaryFn::Mul, rotated, sin)?;
            self.commuted(b, BinaryFn::Add, a, c)?
        };
        if partial {
            let rest = b.slice_last(x, r, self.head_dim)?;
            b.concat_last(&[y, rest])
        } else {
            Ok(y)
        }
    }

    fn repeat_heads(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let rep = self.heads / self.kv_heads;
        if rep == 1 {
            return Ok(x);
        }
        let shape = |heads: &[usize]| -> Vec<Dim> {
            let mut s = vec![Dim::symbol(BATCH)];
            s.extend(heads.iter().map(|&h| Dim::known(h)));
            s.extend([Dim::symbol(SEQ), Dim::known(self.head_dim)]);
            s
        };
        let y = b.reshape(x, shape(&[self.kv_heads, 1]))?;
        let y = b.expand(y, shape(&[self.kv_heads, rep]))?;
        b.reshape(y, shape(&[self.heads]))
    }

    fn mlp(&self, b: &mut GraphBuilder, name: &str, x: ValueId) -> Result<ValueId> {
        let part = |b: &mut GraphBuilder, which: &str| {
            b.scope(format!("{which}_proj"), |b| {
                let shape = [self.intermediate, self.hidden];
                let w = b.weight(&format!("{name}.{which}_proj.weight"), &shape);
                b.linear(x, w, None)
            })
        };
        let gate = part(b, "gate")?;
        let up = part(b, "up")?;
        let gate = match (self.gemma, self.style.silu_by_sigmoid) {
            (true, _) => b.unary(UnaryFn::GeluTanh, gate)?,
            (false, false) => b.unary(UnaryFn::Silu, gate)?,
            (false, true) => {
                let s = b.unary(UnaryFn::Sigmoid, gate)?;
                self.commuted(b, BinaryFn::Mul, gate, s)?
            }
        };
        let y = self.commuted(b, BinaryFn::Mul, gate, up)?;
        b.scope("down_proj", |b| {
            let shape = [self.hidden, self.intermediate];
            let w = b.weight(&format!("{name}.down_proj.weight"), &shape);
            b.linear(y, w, None)
        })
    }

    fn short_conv(&self, b: &mut GraphBuilder, name: &str, kernel: usize, x: ValueId) -> Result<ValueId> {
        let n = self.hidden;
        let w = b.weight(&format!("{name}.in_proj.weight"), &[3 * n, n]);
        let all = b.scope("in_proj", |b| b.linear(x, w, None))?;
        let last = self.style.positions_last;
        let all = if last { b.permute(all, &[0, 2, 1])? } else { all };
        let third = |b: &mut GraphBuilder, i: usize| {
            let axis = if last { 1 } else { 2 };
            b.op(
                Op::Slice {
                    axis,
                    start: (i * n).into(),
                    end: ((i + 1) * n).into(),
                },
                &[all],
            )
        };
        let (gate_in, gate_out, value) = (third(b, 0)?, third(b, 1)?, third(b, 2)?);
        let y = self.commuted(b, BinaryFn::Mul, gate_in, value)?;
        let w = b.weight(&format!("{name}.conv.weight"), &[n, 1, kernel]);
        let conv = |pad_right| Op::Conv1d {
            groups: n,
            pad_left: kernel - 1,
            pad_right,
        };
        let y = if last {
            let y = b.op(conv(kernel - 1), &[y, w])?;
            let y = b.op(
                Op::Slice {
                    axis: 2,
                    start: 0.into(),
                    end: SEQ.into(),
                },
                &[y],
            )?;
            let y = self.commuted(b, BinaryFn::Mul, gate_out, y)?;
            b.permute(y, &[0, 2, 1])?
        } else {
            let y = b.permute(y, &[0, 2, 1])?;
            let y = b.op(conv(0), &[y, w])?;
            let y = b.permute(y, &[0, 2, 1])?;
            self.commuted(b, BinaryFn::Mul, gate_out, y)?
        };
        let w = b.weight(&format!("{name}.out_proj.weight"), &[n, n]);
        b.scope("out_proj", |b| b.linear(y, w, None))
    }
}

/// `key <= query`, and `query - key < window` where there is a window: `bool[seq, seq]`.
///
/// # Errors
/// Those of the builder.
pub fn causal_mask(b: &mut GraphBuilder, positions: ValueId, window: Option<usize>) -> Result<ValueId> {
    let seq = Dim::symbol(SEQ);
    let query = b.reshape(positions, [seq.clone(), 1.into()])?;
    let key = b.reshape(positions, [1.into(), seq])?;
    let causal = b.compare(CompareFn::Le, key, query)?;
    let Some(window) = window else {
        return Ok(causal);
    };
    let distance = b.binary(BinaryFn::Sub, query, key)?;
    let size = b.scalar_i64(i64::try_from(window).unwrap_or(i64::MAX))?;
    let near = b.compare(CompareFn::Lt, distance, size)?;
    b.binary(BinaryFn::And, causal, near)
}
