//! `ModernBERT` (`model_type` `modernbert`: gte-modernbert and its reranker): an encoder with norms before its sublayers, rotary positions,
//! a gated feed-forward layer, and windows on two layers of three. Warner et al. 2024.

use crate::bert::labels;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_LAYERS, layer_types};
use crate::decoder::activation;
use crate::layers::{self, Attention, linear};
use crate::rope::{self, Rope};
use crate::rotary::Rotary;
use crate::texts::{self, Calls, Sees, Texts};
use crate::{ModelDef, Result};
use cactus_ir::{GraphBuilder, UnaryFn, ValueId};

/// Rope base of layers that see everything.
const GLOBAL_THETA: f64 = 160_000.0;
/// Rope base of layers with a window.
const LOCAL_THETA: f64 = 10_000.0;

struct ModernBert {
    dims: Dims,
    intermediate: usize,
    activation: UnaryFn,
    eps: f32,
    norm_bias: bool,
    attention_bias: bool,
    mlp_bias: bool,
    /// Ropes of layers that see everything, and of those with a window.
    ropes: [Rope; 2],
    /// Whether each layer has a window.
    slides: Vec<bool>,
    /// Positions on each side of a window.
    radius: usize,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let dims = Dims::read(c, None)?;
    let every = c
        .size_if_set("global_attn_every_n_layers", 1..=MAX_LAYERS)?
        .unwrap_or(3);
    let slides = match layer_types(c, dims.layers)? {
        None => (0..dims.layers).map(|layer| !layer.is_multiple_of(every)).collect(),
        Some(types) => types
            .into_iter()
            .map(|kind| match kind {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                other => Err(c.unsupported("layer_types", format!("`{other}` is not supported"))),
            })
            .collect::<Result<_>>()?,
    };
    let model = ModernBert {
        intermediate: c.width("intermediate_size")?,
        activation: activation(c, "hidden_activation", "gelu")?,
        eps: c.epsilon("norm_eps", 1e-5)?,
        norm_bias: c.flag("norm_bias", false)?,
        attention_bias: c.flag("attention_bias", false)?,
        mlp_bias: c.flag("mlp_bias", false)?,
        ropes: ropes(c, dims.head_dim)?,
        slides,
        radius: c.size_if_set("local_attention", 2..=MAX_CONTEXT)?.unwrap_or(128) / 2,
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

/// By kind of layer in one section (transformers 5), else two fields.
fn ropes(c: &Config<'_>, head_dim: usize) -> Result<[Rope; 2]> {
    let global = rope::theta(c, "global_rope_theta")?.unwrap_or(GLOBAL_THETA);
    let local = rope::theta(c, "local_rope_theta")?.unwrap_or(LOCAL_THETA);
    let Some(kinds) = c.section("rope_parameters", "rope_parameters.")? else {
        return Ok([
            Rope::scaled(c, None, head_dim, global)?,
            Rope::scaled(c, None, head_dim, local)?,
        ]);
    };
    let one = |kind: &str, at: &'static str, default: f64| {
        let p = kinds.section(kind, at)?;
        let theta = match &p {
            Some(p) => rope::theta(p, "rope_theta")?.unwrap_or(default),
            None => default,
        };
        Rope::scaled(c, p.as_ref(), head_dim, theta)
    };
    Ok([
        one("full_attention", "rope_parameters.full_attention.", global)?,
        one("sliding_attention", "rope_parameters.sliding_attention.", local)?,
    ])
}

impl ModernBert {
    fn embedder(&self, c: &Config<'_>) -> Result<ModelDef> {
        texts::encoder(c, &self.dims, &mut |b, calls| self.encoded(b, calls))
    }

    fn ranker(&self, c: &Config<'_>) -> Result<ModelDef> {
        let hidden = self.dims.hidden;
        let mean = match c.text("classifier_pooling")?.unwrap_or("cls") {
            "cls" => false,
            "mean" => true,
            other => return Err(c.unsupported("classifier_pooling", format!("`{other}` is not supported"))),
        };
        let bias = c.flag("classifier_bias", false)?;
        let activation = activation(c, "classifier_activation", "gelu")?;
        let mut b = GraphBuilder::new(texts::RANKER);
        let (texts, x) = self.encoded(&mut b, Calls::Whole)?;
        let x = match mean {
            true => texts.mean_rows(&mut b, x)?,
            false => texts.first_rows(&mut b, x)?,
        };
        let x = linear(&mut b, x, "head.dense", hidden, hidden, bias)?;
        let x = b.unary(activation, x)?;
        let x = layers::layer_norm(&mut b, x, "head.norm", hidden, self.eps, self.norm_bias)?;
        let x = linear(&mut b, x, "classifier", 1, hidden, true)?;
        texts::scores(&mut b, x)?;
        texts::ranker(c, &self.dims, b, false)
    }

    /// The texts, and the states of the last layer, `[1, seq, hidden]`.
    fn encoded(&self, b: &mut GraphBuilder, calls: Calls) -> cactus_ir::Result<(Texts, ValueId)> {
        let hidden = self.dims.hidden;
        let x = texts::embed(b, "embeddings.tok_embeddings.weight", [self.dims.vocab, hidden])?;
        let mut texts = Texts::declare(b, calls)?;
        let norm =
            |b: &mut GraphBuilder, x, name: &str| layers::layer_norm(b, x, name, hidden, self.eps, self.norm_bias);
        let mut x = norm(b, x, "embeddings.norm")?;
        let [global, local] = [
            Rotary::of_halves(b, texts.positions, &self.ropes[0])?,
            Rotary::of_halves(b, texts.positions, &self.ropes[1])?,
        ];
        for (layer, &slides) in self.slides.iter().enumerate() {
            // Both ends of a window are seen.
            let width = slides.then_some(self.radius + 1);
            let mask = texts.mask(
                b,
                Sees {
                    causal: false,
                    window: width,
                    ahead: width,
                },
            )?;
            let rotary = if slides { local } else { global };
            let at = format!("layers.{layer}");
            x = b.scope(at.clone(), |b| {
                let y = match layer {
                    0 => x,
                    _ => norm(b, x, &format!("{at}.attn_norm"))?,
                };
                let y = b.scope("attn", |b| self.attention(b, y, &format!("{at}.attn"), rotary, mask))?;
                let x = b.add(x, y)?;
                let y = norm(b, x, &format!("{at}.mlp_norm"))?;
                let y = b.scope("mlp", |b| {
                    let wide = linear(
                        b,
                        y,
                        &format!("{at}.mlp.Wi"),
                        2 * self.intermediate,
                        hidden,
                        self.mlp_bias,
                    )?;
                    let gate = b.slice_last(wide, 0, self.intermediate)?;
                    let up = b.slice_last(wide, self.intermediate, 2 * self.intermediate)?;
                    let gate = b.unary(self.activation, gate)?;
                    let y = b.mul(gate, up)?;
                    linear(b, y, &format!("{at}.mlp.Wo"), hidden, self.intermediate, self.mlp_bias)
                })?;
                b.add(x, y)
            })?;
        }
        Ok((texts, norm(b, x, "final_norm")?))
    }

    fn attention(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        rotary: Rotary,
        mask: ValueId,
    ) -> cactus_ir::Result<ValueId> {
        let Dims {
            hidden,
            heads,
            head_dim,
            ..
        } = self.dims;
        let width = heads * head_dim;
        let all = linear(b, x, &format!("{at}.Wqkv"), 3 * width, hidden, self.attention_bias)?;
        let [q, k, v] = layers::apart(b, all, &self.dims)?;
        let (q, k) = (rotary.apply(b, q)?, rotary.apply(b, k)?);
        let y = layers::attend(b, [q, k, v], &self.dims, Attention::usual_scale(&self.dims), mask)?;
        linear(b, y, &format!("{at}.Wo"), hidden, width, self.attention_bias)
    }
}
