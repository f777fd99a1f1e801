//! The gated delta net: linear attention whose state forgets and is corrected, behind a short convolution (Yang et al. 2024).

use crate::Result;
use crate::config::{Config, MAX_HEADS, MAX_WIDTH};
use crate::layers::{Norm, linear};
use cactus_ir::{Dim, GraphBuilder, Op, ReduceFn, SEQ, UnaryFn, ValueId};

/// Largest kernel of the convolution.
const MAX_KERNEL: usize = 64;
/// Added to the squared length of queries and keys.
const LEAST: f32 = 1e-6;

/// The layer in the place of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaNet {
    hidden: usize,
    /// Heads of queries and keys, each of which serves several of values.
    key_heads: usize,
    heads: usize,
    key_dim: usize,
    value_dim: usize,
    kernel: usize,
    /// Of what heads give, before their gates.
    norm: Norm,
}

impl DeltaNet {
    /// The layer of the `linear_…` fields, for states `hidden` wide.
    pub(crate) fn read(c: &Config<'_>, hidden: usize, eps: f32) -> Result<DeltaNet> {
        let net = DeltaNet {
            hidden,
            key_heads: c.size_or("linear_num_key_heads", MAX_HEADS, 16)?,
            heads: c.size_or("linear_num_value_heads", MAX_HEADS, 32)?,
            key_dim: c.size_or("linear_key_head_dim", MAX_WIDTH, 128)?,
            value_dim: c.size_or("linear_value_head_dim", MAX_WIDTH, 128)?,
            kernel: c.size_or("linear_conv_kernel_dim", MAX_KERNEL, 4)?,
            norm: Norm { eps, plus_one: false },
        };
        if !net.heads.is_multiple_of(net.key_heads) {
            let what = format!(
                "expected a multiple of the {} heads of keys, found {}",
                net.key_heads, net.heads
            );
            return Err(c.invalid("linear_num_value_heads", what));
        }
        Ok(net)
    }

    /// What it gives of `x` `[b, s, hidden]`, with the weights under `at`.
    pub(crate) fn apply(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let DeltaNet {
            hidden,
            key_heads,
            heads,
            key_dim,
            value_dim,
            ..
        } = *self;
        let (keys, values) = (key_heads * key_dim, heads * value_dim);
        let mut project = |name: &str, n: usize| linear(b, x, &format!("{at}.{name}"), n, hidden, false);
        let mixed = project("in_proj_qkv", 2 * keys + values)?;
        let z = project("in_proj_z", values)?;
        let [rate, step] = [project("in_proj_b", heads)?, project("in_proj_a", heads)?];
        let mixed = self.convolved(b, mixed, &format!("{at}.conv1d.weight"), 2 * keys + values)?;
        let batch = b.shape(x)[0].clone();
        let of_heads = |b: &mut GraphBuilder, x, heads: usize, width: usize| {
            b.reshape(x, [batch.clone(), Dim::symbol(SEQ), heads.into(), width.into()])
        };
        let part = |b: &mut GraphBuilder, from: usize, heads: usize, width: usize| {
            let part = b.slice_last(mixed, from, from + heads * width)?;
            of_heads(b, part, heads, width)
        };
        let q = part(b, 0, key_heads, key_dim)?;
        let k = part(b, keys, key_heads, key_dim)?;
        let v = part(b, 2 * keys, heads, value_dim)?;
        let (q, k) = (unit(b, q)?, unit(b, k)?);
        let q = b.scale(q, (key_dim as f64).powf(-0.5) as f32)?;
        let rate = b.unary(UnaryFn::Sigmoid, rate)?;
        let decay = self.decay(b, step, at)?;
        let rule = Op::GatedDelta {
            steps: false,
            state: None,
        };
        let y = b.op(rule, &[q, k, v, decay, rate])?;
        let y = b.scope("norm", |b| {
            self.norm.apply(b, y, &format!("{at}.norm.weight"), value_dim)
        })?;
        let gate = b.unary(UnaryFn::Silu, z)?;
        let gate = of_heads(b, gate, heads, value_dim)?;
        let y = b.mul(y, gate)?;
        let y = b.reshape(y, [batch, Dim::symbol(SEQ), values.into()])?;
        linear(b, y, &format!("{at}.out_proj"), hidden, values, false)
    }

    /// The causal convolution of each channel, and SiLU, `[b, s, channels]`.
    fn convolved(&self, b: &mut GraphBuilder, x: ValueId, weight: &str, channels: usize) -> cactus_ir::Result<ValueId> {
        let x = b.permute(x, &[0, 2, 1])?;
        let weight = b.weight(weight, &[channels, 1, self.kernel]);
        let pad = self.kernel - 1;
        let conv = Op::Conv1d {
            groups: channels,
            pad_left: pad,
            pad_right: pad,
        };
        let y = b.op(conv, &[x, weight])?;
        // As the reference pads and cuts.
        let cut = Op::Slice {
            axis: 2,
            start: Dim::known(0),
            end: Dim::symbol(SEQ),
        };
        let y = b.op(cut, &[y])?;
        let y = b.unary(UnaryFn::Silu, y)?;
        b.permute(y, &[0, 2, 1])
    }

    /// How much of its state each head keeps, `exp(-exp(A) * softplus(step + bias))`.
    fn decay(&self, b: &mut GraphBuilder, step: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let a = b.weight(&format!("{at}.A_log"), &[self.heads]);
        let bias = b.weight(&format!("{at}.dt_bias"), &[self.heads]);
        let a = b.unary(UnaryFn::Exp, a)?;
        let a = b.unary(UnaryFn::Neg, a)?;
        let step = b.add(step, bias)?;
        let step = b.unary(UnaryFn::Softplus, step)?;
        let decay = b.mul(a, step)?;
        b.unary(UnaryFn::Exp, decay)
    }
}

/// Heads of the length 1.
fn unit(b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
    let squared = b.mul(x, x)?;
    let sum = b.reduce_last(ReduceFn::Sum, squared)?;
    let least = b.scalar(LEAST)?;
    let sum = b.add(sum, least)?;
    let factor = b.unary(UnaryFn::Rsqrt, sum)?;
    b.mul(x, factor)
}
