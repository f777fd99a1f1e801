//! The texts of CLIP (`model_type` `clip`, or `clip_text_model` for that part alone): an encoder with norms before its sublayers that sees
//! nothing which follows; the state of the token that ends a text is projected to where pictures are. Radford et al. 2021.
//!
//! SigLIP has the same encoder for its texts, which sees all of them. The pictures of both are in `picture_tower`.

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, describe};
use crate::layers::{self, Attention};
use crate::picture_tower::{self, Block, Ending, Tower};
use crate::texts::{self, Calls, Module, PoolingDef, Sees, Texts};
use crate::{ModelDef, Result};
use cactus_ir::{GraphBuilder, ValueId};

/// An encoder of texts.
pub(crate) struct Encoder {
    pub(crate) dims: Dims,
    pub(crate) block: Block,
    /// Whether a token sees nothing that follows.
    pub(crate) causal: bool,
}

/// The sections that may have a field, the first that has it counts.
pub(crate) struct Fields<'a>(pub(crate) Vec<Config<'a>>);

impl<'a> Fields<'a> {
    pub(crate) fn with(&self, key: &str) -> &Config<'a> {
        // Never empty: the last is the configuration itself.
        let found = self.0.iter().find(|c| c.has(key));
        found.unwrap_or(&self.0[0])
    }

    pub(crate) fn size(&self, key: &str, most: usize, default: usize) -> Result<usize> {
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
    let model = build(c, &fields, projection)?;
    let sections = [
        c.section("vision_config_dict", "vision_config_dict.")?,
        c.section("vision_config", "vision_config.")?,
    ];
    let found: Vec<Config<'_>> = sections.into_iter().flatten().collect();
    if found.is_empty() {
        return Ok(model);
    }
    let defaults = picture_tower::Defaults {
        patch: 32,
        eps: 1e-5,
        activation: "quick_gelu",
    };
    let tower = Tower::read(&Fields(found), &defaults, Ending::Class { projection })?;
    tower.beside(model)
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
    no_modules(c)?;
    let encoder = Encoder {
        dims: dims(fields, [512, 8, 49_408, 77])?,
        block: Block::read(fields, 2048, 1e-5, "quick_gelu")?,
        causal: true,
    };
    let hidden = encoder.dims.hidden;
    let modules = [
        Module::Pooling(vec![PoolingDef::Last]),
        Module::projection("text_projection", hidden, projection),
        Module::Normalize,
    ];
    texts::embedder(c, &encoder.dims, false, &modules, &mut |b, calls| {
        encoder.encoded(b, calls)
    })
}

/// Refuses modules of sentence-transformers, which would change what pictures are compared with.
pub(crate) fn no_modules(c: &Config<'_>) -> Result<()> {
    let list = c.get(texts::MODULES).and_then(|list| list.as_array());
    match list.is_some_and(|list| !list.is_empty()) {
        true => Err(c.unsupported(
            texts::MODULES,
            "modules behind a model of texts and pictures are not supported",
        )),
        false => Ok(()),
    }
}

/// Sizes, with the defaults of width, heads, vocabulary and context.
pub(crate) fn dims(fields: &Fields<'_>, [hidden, heads, vocab, context]: [usize; 4]) -> Result<Dims> {
    let hidden = fields.size("hidden_size", MAX_WIDTH, hidden)?;
    let heads = picture_tower::heads(fields, hidden, heads)?;
    Ok(Dims {
        vocab: fields.size("vocab_size", MAX_VOCAB, vocab)?,
        hidden,
        layers: fields.size("num_hidden_layers", MAX_LAYERS, 12)?,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        context: fields.size("max_position_embeddings", MAX_CONTEXT, context)?,
    })
}

impl Encoder {
    /// The texts, and the states of the last layer, `[1, seq, hidden]`.
    pub(crate) fn encoded(&self, b: &mut GraphBuilder, calls: Calls) -> cactus_ir::Result<(Texts, ValueId)> {
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
        let causal = self.causal;
        let mask = texts.mask(
            b,
            Sees {
                causal,
                ..Sees::default()
            },
        )?;
        let attention = Attention {
            qkv_bias: true,
            out_bias: true,
            out_name: "out_proj",
            ..Attention::usual(&self.dims)
        };
        for layer in 0..self.dims.layers {
            let at = format!("text_model.encoder.layers.{layer}");
            x = b.scope(format!("layers.{layer}"), |b| {
                self.block.apply(b, x, &at, hidden, |b, y| {
                    attention.apply(b, y, &format!("{at}.self_attn"), None, mask)
                })
            })?;
        }
        let x = layers::layer_norm(b, x, "text_model.final_layer_norm", hidden, self.block.eps, true)?;
        Ok((texts, x))
    }
}
