//! Inputs for each layer of a model: a second table of embeddings has a vector of every token for each layer, to which a projection of the
//! embedding is added, or the projection is all. Layers add them through a gate. Gemma team 2025 (Gemma 3n).

use crate::Result;
use crate::config::{Config, Dims, MAX_VOCAB, MAX_WIDTH};
use crate::layers::{self, Norm, linear};
use cactus_ir::{CompareFn, GraphBuilder, Op, UnaryFn, ValueId};

/// The table, `[vocab, layers * width]`.
const TABLE: &str = "model.embed_tokens_per_layer.weight";

/// Their width in released models, but for those without them.
pub(crate) const WIDTH: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerInputs {
    hidden: usize,
    layers: usize,
    /// Tokens of the model.
    tokens: usize,
    /// Rows of the table.
    vocab: usize,
    /// Width of an input.
    width: usize,
    /// The token whose inputs rows of media have.
    pub(crate) pad: u32,
    norm: Norm,
    activation: UnaryFn,
}

impl LayerInputs {
    /// Those that a configuration describes, `usual` wide where it is silent; none where their width is 0.
    pub(crate) fn read(
        c: &Config<'_>,
        dims: &Dims,
        norm: Norm,
        activation: UnaryFn,
        usual: usize,
    ) -> Result<Option<LayerInputs>> {
        let width = c
            .size_if_set("hidden_size_per_layer_input", 0..=MAX_WIDTH)?
            .unwrap_or(usual);
        let vocab = c.size_or("vocab_size_per_layer_input", MAX_VOCAB, dims.vocab)?;
        let pad = c.token_ids("pad_token_id")?.first().copied().unwrap_or(0);
        Ok((width > 0).then_some(LayerInputs {
            vocab,
            pad,
            ..LayerInputs::of_width(width, dims, norm, activation)
        }))
    }

    /// Those of a model that has so wide ones.
    pub(crate) fn of_width(width: usize, dims: &Dims, norm: Norm, activation: UnaryFn) -> LayerInputs {
        LayerInputs {
            hidden: dims.hidden,
            layers: dims.layers,
            tokens: dims.vocab,
            vocab: dims.vocab,
            width,
            pad: 0,
            norm,
            activation,
        }
    }

    /// The inputs of all layers, `[b, s, layers, width]`, of embeddings `x` `[b, s, hidden]` and tokens `[b, s]`.
    pub(crate) fn all(&self, b: &mut GraphBuilder, x: ValueId, ids: ValueId) -> cactus_ir::Result<ValueId> {
        let wide = self.layers * self.width;
        let shape = [layers::batch(), layers::seq(), self.layers.into(), self.width.into()];
        b.scope("per_layer_inputs", |b| {
            let table = b.weight(TABLE, &[self.vocab, wide]);
            let ids = self.in_table(b, ids)?;
            let own = b.embedding(table, ids)?;
            let own = b.scale(own, (self.width as f64).sqrt() as f32)?;
            let own = b.reshape(own, shape)?;
            let y = self.projected(b, x, "model")?;
            let y = b.add(y, own)?;
            b.scale(y, 0.5_f64.sqrt() as f32)
        })
    }

    /// The projection of embeddings `x` `[b, s, hidden]` by the weights under `at`, `[b, s, layers, width]`.
    pub(crate) fn projected(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let name = |of: &str| format!("{at}.{of}");
        let wide = self.layers * self.width;
        let shape = [
            b.shape(x)[0].clone(),
            layers::seq(),
            self.layers.into(),
            self.width.into(),
        ];
        let y = linear(b, x, &name("per_layer_model_projection"), wide, self.hidden, false)?;
        let y = b.scale(y, (self.hidden as f64).powf(-0.5) as f32)?;
        let y = b.reshape(y, shape)?;
        self.norm
            .apply(b, y, &name("per_layer_projection_norm.weight"), self.width)
    }

    /// `ids` with the first token in place of those that have no inputs of their own.
    fn in_table(&self, b: &mut GraphBuilder, ids: ValueId) -> cactus_ir::Result<ValueId> {
        if self.vocab >= self.tokens {
            return Ok(ids);
        }
        let (end, first) = (b.scalar_i64(self.vocab as i64)?, b.scalar_i64(0)?);
        let is_there = b.compare(CompareFn::Lt, ids, end)?;
        b.select(is_there, ids, first)
    }

    /// The input of layer `layer` out of `all`, `[b, s, width]`.
    pub(crate) fn of_layer(&self, b: &mut GraphBuilder, all: ValueId, layer: usize) -> cactus_ir::Result<ValueId> {
        let one = Op::Slice {
            axis: 2,
            start: layer.into(),
            end: (layer + 1).into(),
        };
        let input = b.op(one, &[all])?;
        let batch = b.shape(all)[0].clone();
        b.reshape(input, [batch, layers::seq(), self.width.into()])
    }

    /// What a layer adds to `x` of its `input`, with the weights under `at`.
    pub(crate) fn gated(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        input: ValueId,
        at: &str,
    ) -> cactus_ir::Result<ValueId> {
        let name = |of: &str| format!("{at}.{of}");
        let y = linear(b, x, &name("per_layer_input_gate"), self.width, self.hidden, false)?;
        let y = b.unary(self.activation, y)?;
        let y = b.mul(y, input)?;
        let y = linear(b, y, &name("per_layer_projection"), self.hidden, self.width, false)?;
        self.norm
            .apply(b, y, &name("post_per_layer_input_norm.weight"), self.hidden)
    }
}
