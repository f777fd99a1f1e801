//! The texts of CLIP (`model_type` `clip`, or `clip_text_model` for that part alone): an encoder with norms before its sublayers that sees
//! nothing which follows; the state of the token that ends a text is projected to where pictures are. Radford et al. 2021.
//!
//! Pictures are not computed: of a whole model the tensors of texts are read.

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, describe};
use crate::layers::{self, Attention, linear};
use crate::texts::{self, Calls, Module, PoolingDef, Sees, Texts};
use crate::{ModelDef, Result};
use cactus_ir::{GraphBuilder, UnaryFn, ValueId};

/// What `quick_gelu` multiplies with before the logistic function.
const QUICK: f32 = 1.702;

struct ClipText {
    dims: Dims,
    intermediate: usize,
    eps: f32,
    /// Whether the activation is the fast approximation of GELU by the logistic function.
    quick: bool,
}

/// The sections that may have a field, the first that has it counts.
struct Fields<'a>(Vec<Config<'a>>);

impl<'a> Fields<'a> {
    fn with(&self, key: &str) -> &Config<'a> {
        // Never empty: the last is the configuration itself.
        let found = self.0.iter().find(|c| c.has(key));
        found.unwrap_or(&self.0[0])
    }

    fn size(&self, key: &str, most: usize, default: usize) -> Result<usize> {
        self.with(key).size_or(key, most, default)
    }
}

pub(crate) fn build_whole(c: &Config<'_>) -> Result<ModelDef> {
    let sections = [
        c.section("text_config_dict", "text_config_dict.")?,
        c.section("text_config", "text_config.")?,
    ];
    let found: Vec<Config<'_>> = sections.into_iter().flatten().collect();
    let fields = Fields(if found.is_empty() { vec![*c] } else { found });
    let projection = c.size_or("projection_dim", MAX_WIDTH, 512)?;
    build(c, &fields, projection)
}

pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    let named = c.texts("architectures")?.unwrap_or_default();
    if let Some(other) = named.iter().find(|name| **name != "CLIPTextModelWithProjection") {
        let what = format!(
            "{} is not supported; supported is `CLIPTextModelWithProjection`, whose vectors are those of pictures",
            describe(&(*other).into())
        );
        return Err(c.unsupported("architectures", what));
    }
    let projection = c.size_or("projection_dim", MAX_WIDTH, 512)?;
    build(c, &Fields(vec![*c]), projection)
}

fn build(c: &Config<'_>, fields: &Fields<'_>, projection: usize) -> Result<ModelDef> {
    if c.get(texts::MODULES)
        .and_then(|list| list.as_array())
        .is_some_and(|list| !list.is_empty())
    {
        return Err(c.unsupported(texts::MODULES, "modules behind CLIP are not supported"));
    }
    let hidden = fields.size("hidden_size", MAX_WIDTH, 512)?;
    let heads = fields.size("num_attention_heads", MAX_HEADS, 8)?;
    if !hidden.is_multiple_of(heads) {
        let what = format!("{heads} does not divide `hidden_size`, which is {hidden}");
        return Err(fields.with("num_attention_heads").invalid("num_attention_heads", what));
    }
    let dims = Dims {
        vocab: fields.size("vocab_size", MAX_VOCAB, 49_408)?,
        hidden,
        layers: fields.size("num_hidden_layers", MAX_LAYERS, 12)?,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        context: fields.size("max_position_embeddings", MAX_CONTEXT, 77)?,
    };
    let acts = fields.with("hidden_act");
    let quick = match acts.text("hidden_act")?.unwrap_or("quick_gelu") {
        "quick_gelu" => true,
        "gelu" => false,
        other => {
            let what = format!(
                "{} is not supported; supported are `quick_gelu` and `gelu`",
                describe(&other.into())
            );
            return Err(acts.unsupported("hidden_act", what));
        }
    };
    let model = ClipText {
        intermediate: fields.size("intermediate_size", MAX_WIDTH, 2048)?,
        eps: fields.with("layer_norm_eps").epsilon("layer_norm_eps", 1e-5)?,
        quick,
        dims,
    };
    let modules = [
        Module::Pooling(vec![PoolingDef::Last]),
        Module::projection("text_projection", hidden, projection),
        Module::Normalize,
    ];
    texts::embedder(c, &model.dims, false, &modules, &mut |b, calls| model.encoded(b, calls))
}

impl ClipText {
    /// The texts, and the states of the last layer, `[1, seq, hidden]`.
    fn encoded(&self, b: &mut GraphBuilder, calls: Calls) -> cactus_ir::Result<(Texts, ValueId)> {
        let Dims { hidden, context, .. } = self.dims;
        let x = texts::embed(
            b,
            "text_model.embeddings.token_embedding.weight",
            [self.dims.vocab, hidden],
        )?;
        let mut texts = Texts::declare(b, calls)?;
        let table = b.weight("text_model.embeddings.position_embedding.weight", &[context, hidden]);
        let positions = b.embedding(table, texts.positions)?;
        let mut x = b.add(x, positions)?;
        let causal = true;
        let mask = texts.mask(
            b,
            Sees {
                causal,
                ..Sees::default()
            },
        )?;
        let attention = Attention {
            dims: &self.dims,
            scale: Attention::usual_scale(&self.dims),
            qkv_bias: true,
            out_bias: true,
            names: Attention::NAMES,
            out_name: "out_proj",
            head_norm: None,
        };
        for layer in 0..self.dims.layers {
            let at = format!("text_model.encoder.layers.{layer}");
            let norm = |b: &mut GraphBuilder, x, name: &str| {
                layers::layer_norm(b, x, &format!("{at}.{name}"), hidden, self.eps, true)
            };
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = norm(b, x, "layer_norm1")?;
                let y = b.scope("self_attn", |b| {
                    attention.apply(b, y, &format!("{at}.self_attn"), None, mask)
                })?;
                let x = b.add(x, y)?;
                let y = norm(b, x, "layer_norm2")?;
                let y = b.scope("mlp", |b| {
                    let y = linear(b, y, &format!("{at}.mlp.fc1"), self.intermediate, hidden, true)?;
                    let y = self.activated(b, y)?;
                    linear(b, y, &format!("{at}.mlp.fc2"), hidden, self.intermediate, true)
                })?;
                b.add(x, y)
            })?;
        }
        let x = layers::layer_norm(b, x, "text_model.final_layer_norm", hidden, self.eps, true)?;
        Ok((texts, x))
    }

    fn activated(&self, b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
        if !self.quick {
            return b.unary(UnaryFn::GeluErf, x);
        }
        let share = b.scale(x, QUICK)?;
        let share = b.unary(UnaryFn::Sigmoid, share)?;
        b.mul(x, share)
    }
}
