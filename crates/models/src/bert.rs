//! BERT (`model_type` `bert`: `MiniLM`, BGE, GTE, E5, cross-encoders) and RoBERTa's variants of it (`roberta`, `xlm-roberta`): an
//! encoder with norms behind its sublayers and learned positions. Devlin et al. 2018, Liu et al. 2019, Conneau et al. 2019.
//!
//! With the head of a sequence classification of one label it scores pairs of texts, otherwise it makes vectors.

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_VOCAB, describe};
use crate::decoder::activation;
use crate::layers::{self, Attention, linear};
use crate::texts::{self, Calls, Sees, Texts};
use crate::{ModelDef, Result};
use cactus_ir::{Dim, GraphBuilder, Op, UnaryFn, ValueId};

/// What tells one variant from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Bert,
    /// Positions count from behind the padding token's.
    Roberta,
}

struct Bert {
    variant: Variant,
    dims: Dims,
    intermediate: usize,
    activation: UnaryFn,
    eps: f32,
    /// Rows of the table of positions, and which of them the first position has.
    positions: [usize; 2],
    token_types: usize,
}

pub(crate) fn build_bert(c: &Config<'_>) -> Result<ModelDef> {
    build(c, Variant::Bert)
}

pub(crate) fn build_roberta(c: &Config<'_>) -> Result<ModelDef> {
    build(c, Variant::Roberta)
}

fn build(c: &Config<'_>, variant: Variant) -> Result<ModelDef> {
    match c.text("position_embedding_type")? {
        None | Some("absolute") => {}
        Some(other) => {
            let what = format!("{} is not supported; supported is `absolute`", describe(&other.into()));
            return Err(c.unsupported("position_embedding_type", what));
        }
    }
    for field in ["is_decoder", "add_cross_attention"] {
        if c.flag(field, false)? {
            return Err(c.unsupported(field, "only encoders are supported"));
        }
    }
    let mut dims = Dims::read(c, None)?;
    let rows = dims.context;
    let first = match variant {
        Variant::Bert => 0,
        Variant::Roberta => 1 + c.size_if_set("pad_token_id", 0..=MAX_VOCAB)?.unwrap_or(1),
    };
    dims.context = rows.checked_sub(first).filter(|&n| n > 0).ok_or_else(|| {
        let what = format!("{rows} leave no position behind the padding token's");
        c.invalid("max_position_embeddings", what)
    })?;
    let model = Bert {
        variant,
        intermediate: c.width("intermediate_size")?,
        activation: activation(c, "hidden_act", "gelu")?,
        eps: c.epsilon("layer_norm_eps", 1e-12)?,
        positions: [rows, first],
        token_types: c.size_or("type_vocab_size", MAX_CONTEXT, 2)?,
        dims,
    };
    match labels(c)? {
        None => model.embedder(c),
        Some(1) => model.ranker(c),
        Some(n) => {
            let what = format!("a classification of {n} labels is not supported; supported is one, which is a score");
            Err(c.unsupported("id2label", what))
        }
    }
}

/// How many labels the classification has that the architecture names; `None` for another architecture.
pub(crate) fn labels(c: &Config<'_>) -> Result<Option<usize>> {
    let named = c.texts("architectures")?.unwrap_or_default();
    if !named.iter().any(|a| a.ends_with("ForSequenceClassification")) {
        return Ok(None);
    }
    if let Some(labels) = c.section("id2label", "id2label.")? {
        return Ok(Some(labels.len()));
    }
    Ok(Some(c.size_or("num_labels", MAX_VOCAB, 2)?))
}

impl Bert {
    fn embedder(&self, c: &Config<'_>) -> Result<ModelDef> {
        texts::encoder(c, &self.dims, &mut |b, calls| {
            let (mut texts, x) = self.embedded(b, calls, false)?;
            let x = self.encoded(b, x, &mut texts)?;
            Ok((texts, x))
        })
    }

    fn ranker(&self, c: &Config<'_>) -> Result<ModelDef> {
        let hidden = self.dims.hidden;
        let typed = self.token_types > 1;
        let mut b = GraphBuilder::new(texts::RANKER);
        let (mut texts, x) = self.embedded(&mut b, Calls::Whole, typed)?;
        let x = self.encoded(&mut b, x, &mut texts)?;
        let x = texts.first_rows(&mut b, x)?;
        let [inner, outer] = match self.variant {
            Variant::Bert => ["pooler.dense", "classifier"],
            Variant::Roberta => ["classifier.dense", "classifier.out_proj"],
        };
        let x = linear(&mut b, x, inner, hidden, hidden, true)?;
        let x = b.unary(UnaryFn::Tanh, x)?;
        let x = linear(&mut b, x, outer, 1, hidden, true)?;
        texts::scores(&mut b, x)?;
        texts::ranker(c, &self.dims, b, typed)
    }

    /// The texts, and the embeddings of their tokens, `[1, seq, hidden]`.
    fn embedded(&self, b: &mut GraphBuilder, calls: Calls, typed: bool) -> cactus_ir::Result<(Texts, ValueId)> {
        let hidden = self.dims.hidden;
        let x = texts::embed(b, "embeddings.word_embeddings.weight", [self.dims.vocab, hidden])?;
        let texts = Texts::declare(b, calls)?;
        let x = b.scope("embeddings", |b| {
            let types = b.weight("embeddings.token_type_embeddings.weight", &[self.token_types, hidden]);
            let types = if typed {
                let ids = texts::token_types(b);
                b.embedding(types, ids)?
            } else {
                let (start, end) = (Dim::known(0), Dim::known(1));
                b.op(Op::Slice { axis: 0, start, end }, &[types])?
            };
            let x = b.add(x, types)?;
            let [rows, first] = self.positions;
            let mut positions = texts.positions;
            if first > 0 {
                let first = b.scalar_i64(first as i64)?;
                positions = b.add(positions, first)?;
            }
            let table = b.weight("embeddings.position_embeddings.weight", &[rows, hidden]);
            let positions = b.embedding(table, positions)?;
            let x = b.add(x, positions)?;
            layers::layer_norm(b, x, "embeddings.LayerNorm", hidden, self.eps, true)
        })?;
        Ok((texts, x))
    }

    /// The states of the last layer, `[1, seq, hidden]`.
    fn encoded(&self, b: &mut GraphBuilder, mut x: ValueId, texts: &mut Texts) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let attention = Attention {
            qkv_bias: true,
            out_bias: true,
            names: ["self.query", "self.key", "self.value"],
            out_name: "output.dense",
            ..Attention::usual(&self.dims)
        };
        let mask = texts.mask(b, Sees::default())?;
        for layer in 0..self.dims.layers {
            let at = format!("encoder.layer.{layer}");
            x = b.scope(format!("layer.{layer}"), |b| {
                let y = b.scope("attention", |b| {
                    attention.apply(b, x, &format!("{at}.attention"), None, mask)
                })?;
                let x = b.add(y, x)?;
                let x = layers::layer_norm(
                    b,
                    x,
                    &format!("{at}.attention.output.LayerNorm"),
                    hidden,
                    self.eps,
                    true,
                )?;
                let y = b.scope("mlp", |b| {
                    let y = linear(
                        b,
                        x,
                        &format!("{at}.intermediate.dense"),
                        self.intermediate,
                        hidden,
                        true,
                    )?;
                    let y = b.unary(self.activation, y)?;
                    linear(b, y, &format!("{at}.output.dense"), hidden, self.intermediate, true)
                })?;
                let x = b.add(y, x)?;
                layers::layer_norm(b, x, &format!("{at}.output.LayerNorm"), hidden, self.eps, true)
            })?;
        }
        Ok(x)
    }
}
