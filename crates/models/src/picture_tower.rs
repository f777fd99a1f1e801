//! The pictures of CLIP and SigLIP: patches that see each other, and a vector of the length 1 of each picture. Dosovitskiy et al. 2021.
//!
//! A picture comes as flat patches, row after row, whose numbers stand as the weights of the checkpoint's convolution do: channel,
//! row, column. So that convolution is a product of matrices, which few bits can store. Several pictures are a batch; none sees
//! another. What becomes of pixels before that is the front end's to say.

use crate::clip_text::Fields;
use crate::config::{MAX_HEADS, MAX_LAYERS, MAX_WIDTH, describe};
use crate::layers::{layer_norm, linear, matrix};
use crate::registry::{ComponentDef, PicturesDef};
use crate::texts::unit_length;
use crate::{ModelDef, Result};
use cactus_ir::{Dim, Graph, GraphBuilder, Op, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Name of the component.
pub(crate) const PICTURE_EMBEDDER: &str = "picture_embedder";
/// Name of its input, `f32[pictures, patches, numbers]`.
const PATCHES: &str = "patches";
/// Name of its output, `f32[pictures, dimensions]`.
const VECTORS: &str = "vectors";
/// The symbol for how many pictures there are.
const PICTURES: &str = "pictures";
/// Longest side of a picture, and of a patch.
const MAX_SIDE: usize = 4096;
/// Colors of a pixel.
const CHANNELS: usize = 3;
/// What `quick_gelu` multiplies with before the logistic function.
const QUICK: f32 = 1.702;

/// The activation of a feed-forward layer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activation {
    /// GELU, or its approximation by the hyperbolic tangent.
    Plain(UnaryFn),
    /// Its fast approximation by the logistic function.
    Quick,
}

/// A layer with norms before its sublayers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) intermediate: usize,
    pub(crate) eps: f32,
    pub(crate) activation: Activation,
}

impl Block {
    /// Reads it, with these defaults.
    pub(crate) fn read(fields: &Fields<'_>, intermediate: usize, eps: f64, activation: &str) -> Result<Block> {
        let acts = fields.with("hidden_act");
        let activation = match acts.text("hidden_act")?.unwrap_or(activation) {
            "quick_gelu" => Activation::Quick,
            "gelu" => Activation::Plain(UnaryFn::GeluErf),
            "gelu_pytorch_tanh" | "gelu_new" => Activation::Plain(UnaryFn::GeluTanh),
            other => {
                let what = format!(
                    "{} is not supported; supported are `quick_gelu`, `gelu` and `gelu_pytorch_tanh`",
                    describe(&other.into())
                );
                return Err(acts.unsupported("hidden_act", what));
            }
        };
        Ok(Block {
            intermediate: fields.size("intermediate_size", MAX_WIDTH, intermediate)?,
            eps: fields.with("layer_norm_eps").epsilon("layer_norm_eps", eps)?,
            activation,
        })
    }

    /// The layer with the weights under `at` of states `[…, hidden]`; `attention` is given normed ones.
    pub(crate) fn apply(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        hidden: usize,
        attention: impl FnOnce(&mut GraphBuilder, ValueId) -> cactus_ir::Result<ValueId>,
    ) -> cactus_ir::Result<ValueId> {
        let y = layer_norm(b, x, &format!("{at}.layer_norm1"), hidden, self.eps, true)?;
        let y = b.scope("self_attn", |b| attention(b, y))?;
        let x = b.add(x, y)?;
        let y = layer_norm(b, x, &format!("{at}.layer_norm2"), hidden, self.eps, true)?;
        let y = self.feed_forward(b, y, &format!("{at}.mlp"), hidden)?;
        b.add(x, y)
    }

    fn feed_forward(&self, b: &mut GraphBuilder, x: ValueId, at: &str, hidden: usize) -> cactus_ir::Result<ValueId> {
        b.scope("mlp", |b| {
            let y = linear(b, x, &format!("{at}.fc1"), self.intermediate, hidden, true)?;
            let y = match self.activation {
                Activation::Plain(f) => b.unary(f, y)?,
                Activation::Quick => {
                    let share = b.scale(y, QUICK)?;
                    let share = b.unary(UnaryFn::Sigmoid, share)?;
                    b.mul(y, share)?
                }
            };
            linear(b, y, &format!("{at}.fc2"), hidden, self.intermediate, true)
        })
    }
}

/// Heads of attention, which divide the width.
pub(crate) fn heads(fields: &Fields<'_>, hidden: usize, default: usize) -> Result<usize> {
    let heads = fields.size("num_attention_heads", MAX_HEADS, default)?;
    if !hidden.is_multiple_of(heads) {
        let what = format!("{heads} does not divide `hidden_size`, which is {hidden}");
        return Err(fields.with("num_attention_heads").invalid("num_attention_heads", what));
    }
    Ok(heads)
}

/// `[pictures, n, hidden]` as heads, `[pictures, heads, n, width]`.
pub(crate) fn heads_of(b: &mut GraphBuilder, x: ValueId, hidden: usize, heads: usize) -> cactus_ir::Result<ValueId> {
    let shape = b.shape(x);
    let x = b.reshape(
        x,
        [
            shape[0].clone(),
            shape[1].clone(),
            heads.into(),
            (hidden / heads).into(),
        ],
    )?;
    b.permute(x, &[0, 2, 1, 3])
}

/// What queries find, `[pictures, n, hidden]`, where all three are [`heads_of`] states.
pub(crate) fn attend(
    b: &mut GraphBuilder,
    [q, k, v]: [ValueId; 3],
    hidden: usize,
    heads: usize,
) -> cactus_ir::Result<ValueId> {
    attend_scaled(b, [q, k, v], hidden, ((hidden / heads) as f64).powf(-0.5) as f32)
}

/// The same with this factor on scores.
pub(crate) fn attend_scaled(
    b: &mut GraphBuilder,
    [q, k, v]: [ValueId; 3],
    hidden: usize,
    scale: f32,
) -> cactus_ir::Result<ValueId> {
    let k = b.permute(k, &[0, 1, 3, 2])?;
    let scores = b.matmul(q, k)?;
    let scores = b.scale(scores, scale)?;
    let shares = b.softmax_last(scores)?;
    let y = b.matmul(shares, v)?;
    let y = b.permute(y, &[0, 2, 1, 3])?;
    let shape = b.shape(y);
    b.reshape(y, [shape[0].clone(), shape[1].clone(), hidden.into()])
}

/// The same of states as wide.
fn attend_states(b: &mut GraphBuilder, qkv: [ValueId; 3], hidden: usize, heads: usize) -> cactus_ir::Result<ValueId> {
    let mut of = |x: ValueId| heads_of(b, x, hidden, heads);
    let qkv = [of(qkv[0])?, of(qkv[1])?, of(qkv[2])?];
    attend(b, qkv, hidden, heads)
}

/// Attention of all positions `x` `[pictures, n, hidden]` to each other, with the weights under `at`.
pub(crate) fn attention(
    b: &mut GraphBuilder,
    x: ValueId,
    at: &str,
    hidden: usize,
    heads: usize,
) -> cactus_ir::Result<ValueId> {
    let mut project = |name: &str, x: ValueId| linear(b, x, &format!("{at}.{name}"), hidden, hidden, true);
    let all = [project("q_proj", x)?, project("k_proj", x)?, project("v_proj", x)?];
    let y = attend_states(b, all, hidden, heads)?;
    linear(b, y, &format!("{at}.out_proj"), hidden, hidden, true)
}

/// What stands for a configuration that is silent.
pub(crate) struct Defaults {
    pub(crate) patch: usize,
    pub(crate) eps: f64,
    pub(crate) activation: &'static str,
}

/// How states become the vector of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The state of a position of its own before the patches, normed and projected to so many elements.
    Class { projection: usize },
    /// What a learned query finds among the normed states, and a feed-forward layer. The vector is as wide as a state.
    Probe,
}

/// The encoder of pictures.
#[derive(Clone, Debug)]
pub(crate) struct Tower {
    hidden: usize,
    layers: usize,
    heads: usize,
    block: Block,
    side: usize,
    patch: usize,
    ending: Ending,
}

impl Tower {
    pub(crate) fn read(fields: &Fields<'_>, defaults: &Defaults, ending: Ending) -> Result<Tower> {
        let hidden = fields.size("hidden_size", MAX_WIDTH, 768)?;
        let channels = fields.size("num_channels", CHANNELS, CHANNELS)?;
        if channels != CHANNELS {
            let what = format!("{channels} is not supported; supported is {CHANNELS}");
            return Err(fields.with("num_channels").unsupported("num_channels", what));
        }
        let side = fields.size("image_size", MAX_SIDE, 224)?;
        let patch = fields.size("patch_size", MAX_SIDE, defaults.patch)?;
        if patch > side {
            let what = format!("{patch} is more than `image_size`, which is {side}");
            return Err(fields.with("patch_size").invalid("patch_size", what));
        }
        if !fields.with("vision_use_head").flag("vision_use_head", true)? {
            let what = "false is not supported: without a head there is no vector of a picture";
            return Err(fields.with("vision_use_head").unsupported("vision_use_head", what));
        }
        Ok(Tower {
            hidden,
            layers: fields.size("num_hidden_layers", MAX_LAYERS, 12)?,
            heads: heads(fields, hidden, 12)?,
            block: Block::read(fields, 3072, defaults.eps, defaults.activation)?,
            side,
            patch,
            ending,
        })
    }

    /// Elements of a vector.
    pub(crate) fn dimensions(&self) -> usize {
        match self.ending {
            Ending::Class { projection } => projection,
            Ending::Probe => self.hidden,
        }
    }

    /// `model` with this encoder as a component more.
    pub(crate) fn beside(&self, mut model: ModelDef) -> Result<ModelDef> {
        model.components.push(ComponentDef {
            name: PICTURE_EMBEDDER.into(),
            graph: self.graph()?,
            continues: false,
        });
        model.pictures = Some(PicturesDef {
            component: PICTURE_EMBEDDER,
            side: self.side,
            patch: self.patch,
        });
        Ok(model)
    }

    /// Patches of a picture.
    fn patches(&self) -> usize {
        (self.side / self.patch).pow(2)
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_EMBEDDER);
        let numbers = CHANNELS * self.patch * self.patch;
        let shape = [Dim::symbol(PICTURES), self.patches().into(), numbers.into()];
        let patches = b.input(PATCHES, TensorType::new(DType::F32, shape));
        let x = b.scope("vision_model", |b| {
            let mut x = self.embedded(b, patches, numbers)?;
            for layer in 0..self.layers {
                let at = format!("vision_model.encoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    self.block.apply(b, x, &at, self.hidden, |b, y| {
                        attention(b, y, &format!("{at}.self_attn"), self.hidden, self.heads)
                    })
                })?;
            }
            match self.ending {
                Ending::Class { projection } => self.class(b, x, projection),
                Ending::Probe => self.probe(b, x),
            }
        })?;
        let x = unit_length(&mut b, x)?;
        b.output(VECTORS, x);
        b.finish()
    }

    /// Patches and what stands before them, with their positions, `[pictures, positions, hidden]`.
    fn embedded(&self, b: &mut GraphBuilder, patches: ValueId, numbers: usize) -> cactus_ir::Result<ValueId> {
        let (hidden, at) = (self.hidden, "vision_model.embeddings");
        b.scope("embeddings", |b| {
            let filters = matrix(b, &format!("{at}.patch_embedding.weight"), [hidden, numbers]);
            let positions = |b: &mut GraphBuilder, count: usize| {
                b.weight(&format!("{at}.position_embedding.weight"), &[count, hidden])
            };
            match self.ending {
                Ending::Probe => {
                    let bias = b.weight(&format!("{at}.patch_embedding.bias"), &[hidden]);
                    let x = b.linear(patches, filters, Some(bias))?;
                    let positions = positions(b, self.patches());
                    b.add(x, positions)
                }
                Ending::Class { .. } => {
                    let x = b.linear(patches, filters, None)?;
                    let class = b.weight(&format!("{at}.class_embedding"), &[hidden]);
                    let class = b.reshape(class, [1.into(), 1.into(), hidden.into()])?;
                    let class = b.expand(class, [Dim::symbol(PICTURES), 1.into(), hidden.into()])?;
                    let x = b.op(Op::Concat { axis: 1 }, &[class, x])?;
                    let positions = positions(b, self.patches() + 1);
                    let x = b.add(x, positions)?;
                    // So the checkpoints spell it.
                    layer_norm(b, x, "vision_model.pre_layrnorm", hidden, self.block.eps, true)
                }
            }
        })
    }

    fn attend(&self, b: &mut GraphBuilder, qkv: [ValueId; 3]) -> cactus_ir::Result<ValueId> {
        attend_states(b, qkv, self.hidden, self.heads)
    }

    /// The only row of each picture, `[pictures, 1, hidden]` as `[pictures, hidden]`.
    fn row(&self, b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
        b.reshape(x, [Dim::symbol(PICTURES), self.hidden.into()])
    }

    fn class(&self, b: &mut GraphBuilder, x: ValueId, projection: usize) -> cactus_ir::Result<ValueId> {
        let (axis, start, end) = (1, Dim::known(0), Dim::known(1));
        let x = b.op(Op::Slice { axis, start, end }, &[x])?;
        let x = self.row(b, x)?;
        let x = layer_norm(b, x, "vision_model.post_layernorm", self.hidden, self.block.eps, true)?;
        linear(b, x, "visual_projection", projection, self.hidden, false)
    }

    fn probe(&self, b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
        let (n, at) = (self.hidden, "vision_model.head");
        let x = layer_norm(b, x, "vision_model.post_layernorm", n, self.block.eps, true)?;
        b.scope("head", |b| {
            // The three projections stand in one matrix.
            let joint = b.weight(&format!("{at}.attention.in_proj_weight"), &[3 * n, n]);
            let bias = b.weight(&format!("{at}.attention.in_proj_bias"), &[3 * n]);
            let probe = b.weight(&format!("{at}.probe"), &[1, 1, n]);
            let q = b.linear(probe, joint, Some(bias))?;
            let q = b.slice_last(q, 0, n)?;
            let q = b.expand(q, [Dim::symbol(PICTURES), 1.into(), n.into()])?;
            let seen = b.linear(x, joint, Some(bias))?;
            let (k, v) = (b.slice_last(seen, n, 2 * n)?, b.slice_last(seen, 2 * n, 3 * n)?);
            let y = self.attend(b, [q, k, v])?;
            let y = self.row(b, y)?;
            let x = linear(b, y, &format!("{at}.attention.out_proj"), n, n, true)?;
            let y = layer_norm(b, x, &format!("{at}.layernorm"), n, self.block.eps, true)?;
            let y = self.block.feed_forward(b, y, &format!("{at}.mlp"), n)?;
            b.add(x, y)
        })
    }
}
