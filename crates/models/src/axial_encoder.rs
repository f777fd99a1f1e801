//! The pictures of Gemma 4: patches with a position out of a table for columns and one for rows, which also turn by both (Su et al. 2021 on two
//! axes, half of each head for either), norms on both sides of each sublayer, and norms of queries, keys and values. The row of a token is the
//! mean over its patches. Gemma team 2026.
//!
//! A call computes one picture, whose patches come as those of [`crate::picture_encoder`] do.

use crate::Result;
use crate::bounded::Bounded;
use crate::config::{Config, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::decoder::activation;
use crate::layers::{Norm, linear};
use crate::picture_encoder::{self, CELLS, CHANNELS, PATCHES, PICTURE_ENCODER, ROWS, TOKENS};
use crate::picture_tower::{attend_scaled, heads_of};
use crate::registry::ComponentDef;
use crate::rotary::{self, Rotary};
use cactus_ir::{BinaryFn, Dim, Graph, GraphBuilder, Op, ReduceFn, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Most columns or rows of a picture.
const MAX_SIDE: usize = 1 << 16;
/// The base of the frequencies.
const THETA: f64 = 100.0;

/// The encoder.
#[derive(Debug)]
pub(crate) struct AxialEncoder {
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: usize,
    head_dim: usize,
    pub(crate) patch: usize,
    /// Columns and rows that have a position.
    pub(crate) sides: usize,
    /// Patches of a token's side.
    pub(crate) merge: usize,
    norm: Norm,
    activation: UnaryFn,
    theta: f64,
    bounded: Bounded,
    /// Whether tokens are moved and scaled by trained numbers.
    standardized: bool,
    /// Width of a row.
    width: usize,
}

impl AxialEncoder {
    /// The encoder of section `vision`, for a decoder of this width.
    pub(crate) fn read(vision: &Config<'_>, width: usize) -> Result<AxialEncoder> {
        let heads = vision.size_or("num_attention_heads", MAX_HEADS, 12)?;
        let head_dim = vision.size_or("head_dim", MAX_HEAD_DIM, 64)?;
        if vision.size_or("num_key_value_heads", MAX_HEADS, heads)? != heads {
            let what = format!("only as many as `num_attention_heads`, {heads}, are supported");
            return Err(vision.unsupported("num_key_value_heads", what));
        }
        if !head_dim.is_multiple_of(4) {
            let what = format!("expected a multiple of 4, as half of a head turns by each axis; found {head_dim}");
            return Err(vision.invalid("head_dim", what));
        }
        if vision.flag("attention_bias", false)? {
            return Err(vision.unsupported("attention_bias", "biases are not supported"));
        }
        let rope = vision.section("rope_parameters", "vision_config.rope_parameters.")?;
        let theta = match &rope {
            Some(rope) => crate::rope::theta(rope, "rope_theta")?,
            None => None,
        };
        Ok(AxialEncoder {
            hidden: vision.size_or("hidden_size", MAX_WIDTH, 768)?,
            intermediate: vision.size_or("intermediate_size", MAX_WIDTH, 3072)?,
            layers: vision.size_or("num_hidden_layers", MAX_LAYERS, 16)?,
            heads,
            head_dim,
            patch: picture_encoder::side_of_patch(vision, 16)?,
            sides: vision.size_or("position_embedding_size", MAX_SIDE, 10_240)?,
            merge: picture_encoder::merge(vision, "pooling_kernel_size", 3)?,
            norm: Norm {
                eps: vision.epsilon("rms_norm_eps", 1e-6)?,
                plus_one: false,
            },
            activation: activation(vision, "hidden_activation", "gelu_pytorch_tanh")?,
            theta: theta.unwrap_or(THETA),
            bounded: Bounded(vision.flag("use_clipped_linears", false)?),
            standardized: vision.flag("standardize", false)?,
            width,
        })
    }

    pub(crate) fn component(&self) -> Result<ComponentDef> {
        Ok(picture_encoder::component(self.graph()?))
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_ENCODER);
        let tokens = Dim::symbol(TOKENS);
        let joined = self.merge.pow(2);
        let numbers = CHANNELS * self.patch.pow(2);
        let patches = tokens.times_integer(joined as i64)?;
        let mut input = |name: &str, dtype, width: usize| {
            picture_encoder::of_patches(&mut b, name, dtype, [tokens.clone(), joined.into(), width.into()])
        };
        let pixels = input(PATCHES, DType::F32, numbers);
        let cells = input(CELLS, DType::I64, 2);
        let cells = b.reshape(cells, [patches.clone(), 2.into()])?;
        let mut x = b.scope("patch_embedder", |b| {
            let pixels = b.reshape(pixels, [1.into(), patches.clone(), numbers.into()])?;
            self.embedded(b, pixels, cells, &patches)
        })?;
        let [by_column, by_row] = rotary::of_two_axes(self.head_dim, self.theta);
        let rotary = Rotary::on_axes(&mut b, cells, &[by_row, by_column], 1.0)?;
        for layer in 0..self.layers {
            let at = format!("vision_model.encoder.layers.{layer}");
            x = b.scope(format!("layers.{layer}"), |b| self.layer(b, x, &at, rotary))?;
        }
        let rows = b.scope("pooler", |b| {
            let x = b.reshape(x, [1.into(), tokens.clone(), joined.into(), self.hidden.into()])?;
            let (f, axes, keepdim) = (ReduceFn::Mean, vec![2], false);
            let x = b.op(Op::Reduce { f, axes, keepdim }, &[x])?;
            let mut x = b.scale(x, (self.hidden as f64).sqrt() as f32)?;
            if self.standardized {
                let [bias, scale] = ["std_bias", "std_scale"].map(|name| format!("vision_model.{name}"));
                let bias = b.weight(&bias, &[self.hidden]);
                x = b.binary(BinaryFn::Sub, x, bias)?;
                let scale = b.weight(&scale, &[self.hidden]);
                x = b.mul(x, scale)?;
            }
            let x = self.norm.bare(b, x)?;
            linear(
                b,
                x,
                "embed_vision.embedding_projection",
                self.width,
                self.hidden,
                false,
            )
        })?;
        b.output(ROWS, rows);
        b.finish()
    }

    /// Patches with their positions, `[1, patches, hidden]`.
    fn embedded(
        &self,
        b: &mut GraphBuilder,
        pixels: ValueId,
        cells: ValueId,
        patches: &Dim,
    ) -> cactus_ir::Result<ValueId> {
        // Pixels from -1 to 1.
        let half = b.scalar(0.5)?;
        let x = b.binary(BinaryFn::Sub, pixels, half)?;
        let x = b.scale(x, 2.0)?;
        let numbers = CHANNELS * self.patch.pow(2);
        let projection = "vision_model.patch_embedder.input_proj";
        let x = linear(b, x, projection, self.hidden, numbers, false)?;
        // The table for columns, and behind it that for rows.
        let name = "vision_model.patch_embedder.position_embedding_table";
        let shape = vec![2 * self.sides, self.hidden];
        let both = WeightExpr::Reshape {
            x: Box::new(WeightExpr::source(name)),
            shape: shape.clone(),
        };
        let table = b.weight_from(name, &shape, both);
        let of = |b: &mut GraphBuilder, axis: usize, first: usize| {
            let at = b.slice_last(cells, axis, axis + 1)?;
            let at = b.reshape(at, [1.into(), patches.clone()])?;
            let first = b.scalar_i64(first as i64)?;
            let at = b.add(at, first)?;
            b.embedding(table, at)
        };
        let (columns, rows) = (of(b, 1, 0)?, of(b, 0, self.sides)?);
        let positions = b.add(columns, rows)?;
        b.add(x, positions)
    }

    fn layer(&self, b: &mut GraphBuilder, x: ValueId, at: &str, rotary: Rotary) -> cactus_ir::Result<ValueId> {
        let n = self.hidden;
        let norm = |b: &mut GraphBuilder, x, name: &str| self.norm.apply(b, x, &format!("{at}.{name}.weight"), n);
        let y = norm(b, x, "input_layernorm")?;
        let y = b.scope("self_attn", |b| {
            self.attention(b, y, &format!("{at}.self_attn"), rotary)
        })?;
        let y = norm(b, y, "post_attention_layernorm")?;
        let x = b.add(x, y)?;
        let y = norm(b, x, "pre_feedforward_layernorm")?;
        let y = b.scope("mlp", |b| {
            let at = |name: &str| format!("{at}.mlp.{name}");
            let gate = self.bounded.product(b, y, &at("gate_proj"), [self.intermediate, n])?;
            let gate = b.unary(self.activation, gate)?;
            let up = self.bounded.product(b, y, &at("up_proj"), [self.intermediate, n])?;
            let y = b.mul(gate, up)?;
            self.bounded.product(b, y, &at("down_proj"), [n, self.intermediate])
        })?;
        let y = norm(b, y, "post_feedforward_layernorm")?;
        b.add(x, y)
    }

    fn attention(&self, b: &mut GraphBuilder, x: ValueId, at: &str, rotary: Rotary) -> cactus_ir::Result<ValueId> {
        let (n, wide) = (self.hidden, self.heads * self.head_dim);
        // Elements that turn into each other stand half a head apart, so both axes are in each half.
        let turned = |b: &mut GraphBuilder, name: &str| {
            let weight = format!("{at}.{name}_proj.linear.weight");
            let matrix = b.weight_from(&weight, &[wide, n], self.by_halves(&weight, self.heads, &[n]));
            let y = self
                .bounded
                .within(b, x, &format!("{at}.{name}_proj"), |b, x| b.linear(x, matrix, None))?;
            let y = heads_of(b, y, wide, self.heads)?;
            let y = self.norm.bare(b, y)?;
            let weight = format!("{at}.{name}_norm.weight");
            let factors = b.weight_from(&weight, &[self.head_dim], self.by_halves(&weight, 1, &[]));
            let y = b.mul(factors, y)?;
            rotary.apply(b, y)
        };
        let (q, k) = (turned(b, "q")?, turned(b, "k")?);
        let v = self.bounded.product(b, x, &format!("{at}.v_proj"), [wide, n])?;
        let v = heads_of(b, v, wide, self.heads)?;
        let v = self.norm.bare(b, v)?;
        let y = attend_scaled(b, [q, k, v], wide, 1.0)?;
        self.bounded.product(b, y, &format!("{at}.o_proj"), [n, wide])
    }

    /// Rows of heads `[heads * head_dim, …]` that are stored axis by axis, each in two halves, as halves with both axes.
    fn by_halves(&self, name: &str, heads: usize, rest: &[usize]) -> WeightExpr {
        let reshape = |x, shape| WeightExpr::Reshape { x: Box::new(x), shape };
        let split = [&[heads, 2, 2, self.head_dim / 4], rest].concat();
        let perm = [&[0, 2, 1, 3][..], if rest.is_empty() { &[] } else { &[4] }].concat();
        let sorted = WeightExpr::Permute {
            x: Box::new(reshape(WeightExpr::source(name), split)),
            perm,
        };
        reshape(sorted, [&[heads * self.head_dim], rest].concat())
    }
}
