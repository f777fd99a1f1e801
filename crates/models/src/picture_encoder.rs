//! The pictures of a language model: patches that see each other become rows as wide as a token's embedding, which stand in the prompt.
//! Dosovitskiy et al. 2021, with the positions of Dehghani et al. 2023 (pictures of any shape).
//!
//! A call computes one view of a picture. It comes as flat patches, those of a token next to each other, so that joining them is a reshape.
//! Where a patch is comes as a row of weights over the table of positions that was trained: a one for a table as large as
//! the picture, several numbers where the table is stretched. So every shape of picture goes through the same graph, without padding.
//! A model whose views all have the size of the table needs no such weights: its table stands in the order of the patches.
//! What becomes of pixels before that, and how the table is stretched, is the front end's to do by its record.

use crate::Result;
use crate::clip_text::Fields;
use crate::config::{Config, MAX_LAYERS, MAX_WIDTH};
use crate::layers::{Norm, layer_norm, linear, matrix};
use crate::picture_tower::{Block, heads};
use crate::registry::ComponentDef;
use cactus_ir::{Dim, Graph, GraphBuilder, Op, ReduceFn, TensorType, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Name of the component that makes rows of pictures.
pub const PICTURE_ENCODER: &str = "picture_encoder";
/// Name of its input, `f32[1, tokens, patches of a token, numbers]`.
pub(crate) const PATCHES: &str = "patches";
/// Name of its input, `f32[1, tokens, patches of a token, table]`, where views have several sizes.
pub(crate) const PLACES: &str = "places";
/// Name of an encoder's input, `i64[1, tokens, patches of a token, 2]`: the row and the column of each patch, where patches turn by them.
pub(crate) const CELLS: &str = "cells";
/// Name of its output, `f32[1, tokens, width]`.
pub(crate) const ROWS: &str = "rows";
/// The symbol for how many tokens a view has.
pub(crate) const TOKENS: &str = "tokens";
/// Longest side of a patch.
const MAX_PATCH: usize = 512;
/// Most positions of a table.
const MAX_TABLE: usize = 1 << 16;
/// Most patches of a token's side.
const MAX_MERGE: usize = 16;
/// Colors of a pixel.
pub(crate) const CHANNELS: usize = 3;
/// Added to variances, where nobody says another.
pub(crate) const EPS: f64 = 1e-6;

/// What stands for a configuration that is silent.
pub(crate) struct Defaults {
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) patch: usize,
}

/// How the states of a token's patches become its row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Projector {
    /// One product.
    Product { weight: &'static str },
    /// A norm, if any, and two products with GELU between.
    TwoLayers {
        at: &'static str,
        norm: bool,
        width: usize,
        bias: bool,
    },
    /// Their mean, an RMS norm and a product, whose matrix is stored the other way round.
    Mean { at: &'static str, norm: Norm },
}

/// The encoder.
#[derive(Debug)]
pub(crate) struct PictureEncoder {
    hidden: usize,
    layers: usize,
    heads: usize,
    block: Block,
    pub(crate) patch: usize,
    /// Positions of the table.
    pub(crate) table: usize,
    /// Whether every view has the size of the table.
    pub(crate) one_size: bool,
    /// Patches of a token's side.
    pub(crate) merge: usize,
    /// Width of a row.
    width: usize,
    projector: Projector,
    /// Where its weights are.
    at: &'static str,
}

impl PictureEncoder {
    /// The encoder of section `vision`; `table` says how many positions there are, given the side of a patch.
    pub(crate) fn read(
        vision: Config<'_>,
        defaults: &Defaults,
        table: impl FnOnce(&Config<'_>, usize) -> Result<usize>,
        (merge, width, projector): (usize, usize, Projector),
        at: &'static str,
    ) -> Result<PictureEncoder> {
        three_colors(&vision, "num_channels")?;
        let patch = patch(&vision, defaults)?;
        let table = table(&vision, patch)?;
        let fields = Fields(vec![vision]);
        let hidden = fields.size("hidden_size", MAX_WIDTH, defaults.hidden)?;
        Ok(PictureEncoder {
            hidden,
            layers: fields.size("num_hidden_layers", MAX_LAYERS, 12)?,
            heads: heads(&fields, hidden, defaults.heads)?,
            block: Block::read(&fields, 3072, EPS, "gelu_pytorch_tanh")?,
            patch,
            table,
            one_size: false,
            merge,
            width,
            projector,
            at,
        })
    }

    /// How many tokens a view has.
    fn tokens(&self) -> Dim {
        match self.one_size {
            true => Dim::known(self.table / self.merge.pow(2)),
            false => Dim::symbol(TOKENS),
        }
    }

    pub(crate) fn component(&self) -> Result<ComponentDef> {
        Ok(component(self.graph()?))
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_ENCODER);
        let (one, numbers) = (Dim::known(1), CHANNELS * self.patch * self.patch);
        let joined = self.merge * self.merge;
        let tokens = self.tokens();
        let patches = tokens.times_integer(joined as i64)?;
        let mut input = |name: &str, width: usize| {
            let x = of_patches(&mut b, name, DType::F32, [tokens.clone(), joined.into(), width.into()]);
            b.reshape(x, [one.clone(), patches.clone(), width.into()])
        };
        let pixels = input(PATCHES, numbers)?;
        let places = match self.one_size {
            true => None,
            false => Some(input(PLACES, self.table)?),
        };
        let x = b.scope("vision_model", |b| {
            let mut x = self.embedded(b, pixels, places, numbers)?;
            for layer in 0..self.layers {
                let at = format!("{}.encoder.layers.{layer}", self.at);
                x = b.scope(format!("layers.{layer}"), |b| {
                    self.block.apply(b, x, &at, self.hidden, |b, y| {
                        crate::picture_tower::attention(b, y, &format!("{at}.self_attn"), self.hidden, self.heads)
                    })
                })?;
            }
            layer_norm(
                b,
                x,
                &format!("{}.post_layernorm", self.at),
                self.hidden,
                self.block.eps,
                true,
            )
        })?;
        let x = b.reshape(x, [one, tokens, (joined * self.hidden).into()])?;
        let x = b.scope("projector", |b| self.projected(b, x, joined * self.hidden))?;
        b.output(ROWS, x);
        b.finish()
    }

    /// Patches with their positions, `[1, patches, hidden]`.
    fn embedded(
        &self,
        b: &mut GraphBuilder,
        pixels: ValueId,
        places: Option<ValueId>,
        numbers: usize,
    ) -> cactus_ir::Result<ValueId> {
        let (hidden, at) = (self.hidden, format!("{}.embeddings", self.at));
        b.scope("embeddings", |b| {
            // A product, or a convolution whose filters are its rows.
            let filters = matrix(b, &format!("{at}.patch_embedding.weight"), [hidden, numbers]);
            let bias = b.weight(&format!("{at}.patch_embedding.bias"), &[hidden]);
            let x = b.linear(pixels, filters, Some(bias))?;
            let name = format!("{at}.position_embedding.weight");
            let positions = match places {
                Some(places) => {
                    let table = b.weight(&name, &[self.table, hidden]);
                    b.matmul(places, table)?
                }
                None => b.weight_from(&name, &[self.table, hidden], self.by_tokens(&name)),
            };
            b.add(x, positions)
        })
    }

    /// The table of positions, row after row of a square, with those of a token next to each other.
    fn by_tokens(&self, name: &str) -> WeightExpr {
        let (merge, side) = (self.merge, self.table.isqrt() / self.merge);
        let reshape = |x, shape| WeightExpr::Reshape { x: Box::new(x), shape };
        let split = reshape(WeightExpr::source(name), vec![side, merge, side, merge, self.hidden]);
        let sorted = WeightExpr::Permute {
            x: Box::new(split),
            perm: vec![0, 2, 1, 3, 4],
        };
        reshape(sorted, vec![self.table, self.hidden])
    }

    fn projected(&self, b: &mut GraphBuilder, x: ValueId, width: usize) -> cactus_ir::Result<ValueId> {
        match self.projector {
            Projector::Product { weight } => linear(b, x, weight, self.width, width, false),
            Projector::TwoLayers {
                at,
                norm,
                width: between,
                bias,
            } => {
                let x = match norm {
                    // As PyTorch has it where nobody says otherwise.
                    true => layer_norm(b, x, &format!("{at}.layer_norm"), width, 1e-5, true)?,
                    false => x,
                };
                let x = linear(b, x, &format!("{at}.linear_1"), between, width, bias)?;
                let x = b.unary(UnaryFn::GeluErf, x)?;
                linear(b, x, &format!("{at}.linear_2"), self.width, between, bias)
            }
            Projector::Mean { at, norm } => {
                let shape = [1.into(), self.tokens(), self.merge.pow(2).into(), self.hidden.into()];
                let x = b.reshape(x, shape)?;
                let (f, axes, keepdim) = (ReduceFn::Mean, vec![2], false);
                let x = b.op(Op::Reduce { f, axes, keepdim }, &[x])?;
                let x = norm.apply(b, x, &format!("{at}.mm_soft_emb_norm.weight"), self.hidden)?;
                let name = format!("{at}.mm_input_projection_weight");
                let turned = WeightExpr::Permute {
                    x: Box::new(WeightExpr::source(&name)),
                    perm: vec![1, 0],
                };
                let matrix = b.weight_from(&name, &[self.width, self.hidden], turned);
                b.linear(x, matrix, None)
            }
        }
    }
}

/// The component with the graph of an encoder.
pub(crate) fn component(graph: Graph) -> ComponentDef {
    ComponentDef {
        name: PICTURE_ENCODER.into(),
        graph,
        continues: false,
    }
}

/// An input of an encoder with so many numbers for each patch, `[1, tokens, patches of a token, numbers]`.
pub(crate) fn of_patches(b: &mut GraphBuilder, name: &str, dtype: DType, shape: [Dim; 3]) -> ValueId {
    let [tokens, joined, numbers] = shape;
    b.input(name, TensorType::new(dtype, [1.into(), tokens, joined, numbers]))
}

/// Refuses pictures with other colors than red, green and blue.
pub(crate) fn three_colors(vision: &Config<'_>, key: &str) -> Result<()> {
    match vision.size_or(key, CHANNELS, CHANNELS)? {
        CHANNELS => Ok(()),
        other => Err(vision.unsupported(key, format!("{other} is not supported; supported is {CHANNELS}"))),
    }
}

/// The side of a patch in pixels.
pub(crate) fn patch(vision: &Config<'_>, defaults: &Defaults) -> Result<usize> {
    side_of_patch(vision, defaults.patch)
}

/// The same with this default.
pub(crate) fn side_of_patch(vision: &Config<'_>, default: usize) -> Result<usize> {
    vision.size_or("patch_size", MAX_PATCH, default)
}

/// Positions of the square table `side` pixels long.
pub(crate) fn square(vision: &Config<'_>, key: &str, default: usize, patch: usize) -> Result<usize> {
    let side = vision.size_or(key, MAX_PATCH * MAX_MERGE, default)?;
    let patches = (side / patch).pow(2);
    match (1..=MAX_TABLE).contains(&patches) {
        true => Ok(patches),
        false => Err(vision.invalid(
            key,
            format!("{side} pixels have {patches} patches of {patch}; expected 1 to {MAX_TABLE}"),
        )),
    }
}

/// The side of a token in patches.
pub(crate) fn merge(c: &Config<'_>, key: &str, default: usize) -> Result<usize> {
    c.size_or(key, MAX_MERGE, default)
}

/// Positions of a table that is said to have so many.
pub(crate) fn positions(vision: &Config<'_>, key: &str, default: usize) -> Result<usize> {
    let count = vision.size_or(key, MAX_TABLE, default)?;
    match count.isqrt().pow(2) == count {
        true => Ok(count),
        false => Err(vision.unsupported(key, format!("{count} is not supported: expected the square of a side"))),
    }
}
