//! The pictures of a language model of films: patches that turn by the row and the column in which they are (Su et al. 2021 on two axes), beside
//! a table of positions, and rows of several layers for one token (DeepStack, Meng et al. 2024). Bai et al. 2025.
//!
//! A call computes one picture, whose patches come as those of [`crate::picture_encoder`] do. A patch holds as many frames as the encoder's
//! filters have; a still is all of them. Each token gets the row that stands in the prompt, and behind it those that early layers of the
//! decoder add.

use crate::Result;
use crate::config::{Config, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, describe};
use crate::layers::{layer_norm, linear, matrix};
use crate::picture_encoder::{self, CELLS, CHANNELS, EPS, PATCHES, PICTURE_ENCODER, PLACES, ROWS, TOKENS};
use crate::picture_tower::{attend, heads_of};
use crate::registry::ComponentDef;
use crate::rotary::{self, Rotary};
use cactus_ir::{Dim, Graph, GraphBuilder, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Most frames of a patch.
const MAX_TIMES: usize = 16;
/// The base of the frequencies.
const THETA: f64 = 10_000.0;

/// The encoder.
#[derive(Debug)]
pub(crate) struct GridEncoder {
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: usize,
    pub(crate) patch: usize,
    /// Frames of a patch.
    pub(crate) times: usize,
    /// Positions of the table.
    pub(crate) table: usize,
    /// Patches of a token's side.
    pub(crate) merge: usize,
    /// Layers whose states become rows that early layers of the decoder add.
    pub(crate) taps: Vec<usize>,
    /// Width of a row.
    width: usize,
    theta: f64,
}

impl GridEncoder {
    /// The encoder of section `vision`, for a decoder of this width; `taps` where the section does not say them.
    pub(crate) fn read(vision: Config<'_>, width: usize, taps: &[usize]) -> Result<GridEncoder> {
        picture_encoder::three_colors(&vision, "in_channels")?;
        let out = vision.size_or("out_hidden_size", MAX_WIDTH, 3584)?;
        let act = vision.text("hidden_act")?.unwrap_or("gelu_pytorch_tanh");
        let layers = vision.size_or("depth", MAX_LAYERS, 27)?;
        let hidden = vision.size_or("hidden_size", MAX_WIDTH, 1152)?;
        let heads = vision.size_or("num_heads", MAX_HEADS, 16)?;
        if out != width {
            let what = format!("{out} is not the width of the text model, {width}");
            return Err(vision.invalid("out_hidden_size", what));
        }
        if act != "gelu_pytorch_tanh" {
            let what = format!(
                "{} is not supported; supported is `gelu_pytorch_tanh`",
                describe(&act.into())
            );
            return Err(vision.unsupported("hidden_act", what));
        }
        // Half of the pairs of a head turn by the row, half by the column.
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            let what = format!("expected {heads} heads of a multiple of 4 elements in {hidden}");
            return Err(vision.invalid("num_heads", what));
        }
        let said = vision.sizes("deepstack_visual_indexes", 0..=layers - 1)?;
        let taps = said.unwrap_or_else(|| taps.to_vec());
        if !taps.is_sorted_by(|a, b| a < b) || taps.iter().any(|&tap| tap >= layers) {
            return Err(vision.invalid("deepstack_visual_indexes", "expected layers of the encoder, in order"));
        }
        let rope = vision.section("rope_parameters", "vision_config.rope_parameters.")?;
        let theta = match &rope {
            Some(rope) => crate::rope::theta(rope, "rope_theta")?,
            None => None,
        };
        Ok(GridEncoder {
            hidden,
            intermediate: vision.size_or("intermediate_size", MAX_WIDTH, 4304)?,
            layers,
            heads,
            patch: picture_encoder::side_of_patch(&vision, 16)?,
            times: vision.size_or("temporal_patch_size", MAX_TIMES, 2)?,
            table: picture_encoder::positions(&vision, "num_position_embeddings", 2304)?,
            merge: picture_encoder::merge(&vision, "spatial_merge_size", 2)?,
            taps,
            width,
            theta: theta.unwrap_or(THETA),
        })
    }

    pub(crate) fn component(&self) -> Result<ComponentDef> {
        Ok(picture_encoder::component(self.graph()?))
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_ENCODER);
        let tokens = Dim::symbol(TOKENS);
        let joined = self.merge.pow(2);
        let numbers = CHANNELS * self.times * self.patch.pow(2);
        let patches = tokens.times_integer(joined as i64)?;
        let mut input = |name: &str, dtype, width: usize| {
            picture_encoder::of_patches(&mut b, name, dtype, [tokens.clone(), joined.into(), width.into()])
        };
        let pixels = input(PATCHES, DType::F32, numbers);
        let places = input(PLACES, DType::F32, self.table);
        let cells = input(CELLS, DType::I64, 2);
        let rows = b.scope("visual", |b| {
            let mut x = b.scope("patch_embed", |b| {
                let pixels = b.reshape(pixels, [1.into(), patches.clone(), numbers.into()])?;
                let places = b.reshape(places, [1.into(), patches.clone(), self.table.into()])?;
                let filters = matrix(b, "visual.patch_embed.proj.weight", [self.hidden, numbers]);
                let bias = b.weight("visual.patch_embed.proj.bias", &[self.hidden]);
                let x = b.linear(pixels, filters, Some(bias))?;
                let table = b.weight("visual.pos_embed.weight", &[self.table, self.hidden]);
                let positions = b.matmul(places, table)?;
                b.add(x, positions)
            })?;
            let cells = b.reshape(cells, [patches.clone(), 2.into()])?;
            // By the row, then by the column.
            let frequencies = rotary::of_two_axes(self.hidden / self.heads, self.theta);
            let rotary = Rotary::on_axes(b, cells, &frequencies, 1.0)?;
            let mut rows = Vec::new();
            for layer in 0..self.layers {
                let at = format!("visual.blocks.{layer}");
                x = b.scope(format!("blocks.{layer}"), |b| self.block(b, x, &at, rotary))?;
                if let Some(index) = self.taps.iter().position(|&tap| tap == layer) {
                    let name = format!("deepstack_merger_list.{index}");
                    let at = format!("visual.{name}");
                    rows.push(b.scope(name, |b| self.merged(b, x, &at, true))?);
                }
            }
            rows.insert(0, b.scope("merger", |b| self.merged(b, x, "visual.merger", false))?);
            match rows[..] {
                [only] => Ok(only),
                _ => b.concat_last(&rows),
            }
        })?;
        b.output(ROWS, rows);
        b.finish()
    }

    fn block(&self, b: &mut GraphBuilder, x: ValueId, at: &str, rotary: Rotary) -> cactus_ir::Result<ValueId> {
        let n = self.hidden;
        let y = layer_norm(b, x, &format!("{at}.norm1"), n, EPS as f32, true)?;
        let y = b.scope("attn", |b| {
            let all = linear(b, y, &format!("{at}.attn.qkv"), 3 * n, n, true)?;
            let mut part = |i: usize| {
                let part = b.slice_last(all, i * n, (i + 1) * n)?;
                heads_of(b, part, n, self.heads)
            };
            let [q, k, v] = [part(0)?, part(1)?, part(2)?];
            let (q, k) = (rotary.apply(b, q)?, rotary.apply(b, k)?);
            let y = attend(b, [q, k, v], n, self.heads)?;
            linear(b, y, &format!("{at}.attn.proj"), n, n, true)
        })?;
        let x = b.add(x, y)?;
        let y = layer_norm(b, x, &format!("{at}.norm2"), n, EPS as f32, true)?;
        let y = b.scope("mlp", |b| {
            let y = linear(b, y, &format!("{at}.mlp.linear_fc1"), self.intermediate, n, true)?;
            let y = b.unary(UnaryFn::GeluTanh, y)?;
            linear(b, y, &format!("{at}.mlp.linear_fc2"), n, self.intermediate, true)
        })?;
        b.add(x, y)
    }

    /// The rows of tokens, of the states of their patches, which are normed before they are joined or `after`.
    fn merged(&self, b: &mut GraphBuilder, x: ValueId, at: &str, after: bool) -> cactus_ir::Result<ValueId> {
        let wide = self.hidden * self.merge.pow(2);
        let join = |b: &mut GraphBuilder, x| b.reshape(x, [1.into(), Dim::symbol(TOKENS), wide.into()]);
        let norm = |b: &mut GraphBuilder, x, n| layer_norm(b, x, &format!("{at}.norm"), n, EPS as f32, true);
        let x = match after {
            true => {
                let x = join(b, x)?;
                norm(b, x, wide)?
            }
            false => {
                let x = norm(b, x, self.hidden)?;
                join(b, x)?
            }
        };
        let x = linear(b, x, &format!("{at}.linear_fc1"), wide, wide, true)?;
        let x = b.unary(UnaryFn::GeluErf, x)?;
        linear(b, x, &format!("{at}.linear_fc2"), self.width, wide, true)
    }
}
