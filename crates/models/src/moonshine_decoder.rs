//! What the two generations of Moonshine have in common: the decoder, and the attention of all their stacks.

use crate::alignment;
use crate::config::Dims;
use crate::layers::{self, layer_norm, linear};
use crate::registry::{self, ComponentDef};
use crate::rope::Rope;
use crate::rotary::{tables, turn};
use crate::sliding::rows;
use cactus_ir::{Constraint, Dim, GraphBuilder, SEQ, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Output of the encoder and input of the decoder, `f32[1, positions, hidden]`.
pub(crate) const STATES: &str = "encoder_hidden_states";
/// Input of the decoder, `i64[1, seq]`.
const IDS: &str = "decoder_input_ids";
/// Symbol of the positions that the decoder looks at.
const POSITIONS: &str = "positions";
/// Of torch's norms, which the configuration does not name.
pub(crate) const EPS: f32 = 1e-5;

/// The decoder, which writes token after token and is told by no prompt what to write.
pub(crate) struct Decoder {
    pub(crate) dims: Dims,
    pub(crate) intermediate: usize,
    pub(crate) activation: UnaryFn,
    pub(crate) bias: bool,
    pub(crate) tied: bool,
    pub(crate) rope: Rope,
    /// Layers and heads of cross attention that follow the sound, in ascending order.
    pub(crate) alignment: Vec<[usize; 2]>,
}

/// What one attention looks at and how.
pub(crate) struct Attention<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) dims: &'a Dims,
    /// Whether the projections of queries, keys and values have a bias, and that of the output.
    pub(crate) biases: [bool; 2],
    /// Positions of the queries, and of the keys and values.
    pub(crate) lengths: [&'a Dim; 2],
    /// Of rows that look at each other, `[begin, end]` of those that are asked.
    pub(crate) asked: Option<[usize; 2]>,
    /// An additive mask, `[queries, keys]`.
    pub(crate) mask: Option<ValueId>,
    /// Cosines and sines of the positions that both are turned by, `[1, 1, n, pairs]`.
    pub(crate) turned: Option<[ValueId; 2]>,
}

impl Decoder {
    /// The component that writes, and the one that says what its heads look at.
    pub(crate) fn components(&self) -> crate::Result<[ComponentDef; 2]> {
        Ok([
            ComponentDef {
                name: registry::DECODER.into(),
                graph: self.graph()?,
                continues: true,
            },
            ComponentDef {
                name: registry::ALIGNMENT.into(),
                graph: self.alignment()?,
                continues: false,
            },
        ])
    }

    /// From tokens and states to logits.
    fn graph(&self) -> crate::Result<cactus_ir::Graph> {
        let Dims { vocab, hidden, .. } = self.dims;
        self.reader(registry::DECODER, self.dims.layers, |b, x, embedding, _| {
            let x = b.scope("decoder", |b| self.norm(b, x, "model.decoder.norm"))?;
            let head = match self.tied {
                true => embedding,
                false => b.weight(layers::PROJECTION, &[vocab, hidden]),
            };
            let logits = b.scope("proj_out", |b| b.linear(x, head, None))?;
            b.output(layers::OUTPUT, logits);
            Ok(())
        })
    }

    /// From a whole text and states to what the alignment heads look at.
    fn alignment(&self) -> crate::Result<cactus_ir::Graph> {
        let last = self.alignment.last().map_or(0, |[layer, _]| *layer);
        self.reader(registry::ALIGNMENT, last + 1, |b, _, _, seen| {
            let scale = layers::Attention::usual_scale(&self.dims);
            alignment::output(b, &self.alignment, seen, Some(scale))
        })
    }

    /// The first `count` layers, and what `end` makes of them: of their output `[1, seq, hidden]`, the embedding, and what each layer's cross
    /// attention compares.
    fn reader(
        &self,
        name: &str,
        count: usize,
        end: impl FnOnce(&mut GraphBuilder, ValueId, ValueId, &[[ValueId; 2]]) -> cactus_ir::Result<()>,
    ) -> crate::Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(name);
        let Dims { vocab, hidden, .. } = self.dims;
        let (one, seq, heard) = (Dim::known(1), Dim::symbol(SEQ), Dim::symbol(POSITIONS));
        let ids = b.input(IDS, TensorType::new(DType::I64, [one.clone(), seq.clone()]));
        let shape = [one, heard.clone(), hidden.into()];
        let states = b.input(STATES, TensorType::new(DType::F32, shape));
        let embedding = b.weight("model.decoder.embed_tokens.weight", &[vocab, hidden]);
        let mut seen = Vec::new();
        let x = b.scope("decoder", |b| {
            let mut x = b.scope("embed_tokens", |b| b.embedding(embedding, ids))?;
            let positions = layers::positions(b)?;
            let turned = tables(b, &self.rope, positions, &seq)?;
            let mask = layers::causal_mask(b, positions, None)?;
            for layer in 0..count {
                let at = format!("model.decoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        dims: &self.dims,
                        biases: [self.bias, false],
                        lengths: [&seq, &seq],
                        asked: None,
                        mask: Some(mask),
                        turned: Some(turned),
                    };
                    let y = self.norm(b, x, &format!("{at}.input_layernorm"))?;
                    let y = b.scope("self_attn", |b| attention.apply(b, [y, y]))?;
                    let x = b.add(x, y)?;
                    let attention = Attention {
                        prefix: &format!("{at}.encoder_attn"),
                        dims: &self.dims,
                        biases: [self.bias, false],
                        lengths: [&seq, &heard],
                        asked: None,
                        mask: None,
                        turned: None,
                    };
                    let y = self.norm(b, x, &format!("{at}.post_attention_layernorm"))?;
                    let (y, compared) = b.scope("encoder_attn", |b| attention.compared(b, [y, states]))?;
                    seen.push(compared);
                    let x = b.add(x, y)?;
                    let y = self.norm(b, x, &format!("{at}.final_layernorm"))?;
                    let y = b.scope("mlp", |b| self.gated(b, y, &format!("{at}.mlp")))?;
                    b.add(x, y)
                })?;
            }
            Ok(x)
        })?;
        end(&mut b, x, embedding, &seen)?;
        let mut graph = b.finish()?;
        graph.set_constraints(vec![
            Constraint::at_least(Dim::known(self.dims.context).sub(&seq)?, 0),
            Constraint::at_least(heard, 1),
        ]);
        Ok(graph)
    }

    pub(crate) fn norm(&self, b: &mut GraphBuilder, x: ValueId, name: &str) -> cactus_ir::Result<ValueId> {
        layer_norm(b, x, name, self.dims.hidden, EPS, false)
    }

    /// `fc2(act(gate) * up)`, where `fc1` gives `up`, then `gate`.
    fn gated(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let (hidden, n) = (self.dims.hidden, self.intermediate);
        let both = linear(b, x, &format!("{at}.fc1"), 2 * n, hidden, true)?;
        let up = b.slice_last(both, 0, n)?;
        let gate = b.slice_last(both, n, 2 * n)?;
        let gate = b.unary(self.activation, gate)?;
        let y = b.mul(gate, up)?;
        linear(b, y, &format!("{at}.fc2"), hidden, n, true)
    }
}

impl Attention<'_> {
    /// Attention of `x` `[1, queries, hidden]` to `seen` `[1, keys, hidden]`.
    pub(crate) fn apply(&self, b: &mut GraphBuilder, [x, seen]: [ValueId; 2]) -> cactus_ir::Result<ValueId> {
        let (y, _) = self.compared(b, [x, seen])?;
        Ok(y)
    }

    /// The same with what is compared: queries `[1, heads, queries, dim]`, and keys `[1, heads, dim, keys]`.
    fn compared(&self, b: &mut GraphBuilder, [x, seen]: [ValueId; 2]) -> cactus_ir::Result<(ValueId, [ValueId; 2])> {
        let Dims {
            hidden,
            heads,
            head_dim,
            ..
        } = *self.dims;
        let project = |b: &mut GraphBuilder, x: ValueId, name: &str, length: &Dim| {
            let x = linear(
                b,
                x,
                &format!("{}.{name}", self.prefix),
                heads * head_dim,
                hidden,
                self.biases[0],
            )?;
            b.reshape(x, [Dim::known(1), length.clone(), heads.into(), head_dim.into()])
        };
        let q = match self.asked {
            // All rows are projected at once.
            Some([start, end]) => {
                let q = project(b, seen, "q_proj", self.lengths[1])?;
                rows(b, q, start, end)?
            }
            None => project(b, x, "q_proj", self.lengths[0])?,
        };
        let mut q = b.permute(q, &[0, 2, 1, 3])?;
        let k = project(b, seen, "k_proj", self.lengths[1])?;
        let mut k = b.permute(k, &[0, 2, 1, 3])?;
        let v = project(b, seen, "v_proj", self.lengths[1])?;
        let v = b.permute(v, &[0, 2, 1, 3])?;
        if let Some(tables) = self.turned {
            q = turn(b, q, tables)?;
            k = turn(b, k, tables)?;
        }
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let scores = b.matmul(q, k)?;
        let mut scores = b.scale(scores, layers::Attention::usual_scale(self.dims))?;
        if let Some(mask) = self.mask {
            scores = b.add(scores, mask)?;
        }
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [Dim::known(1), self.lengths[0].clone(), (heads * head_dim).into()])?;
        let name = format!("{}.o_proj", self.prefix);
        let y = linear(b, y, &name, hidden, heads * head_dim, self.biases[1])?;
        Ok((y, [q, k]))
    }
}
