//! Nomic BERT (`model_type` `nomic_bert`: nomic-embed-text 1, 1.5 and 2): an encoder with norms behind its sublayers, rotary positions
//! and a gated feed-forward layer; in version 2 experts on every other layer. Nussbaum et al. 2024, Nussbaum and Duderstadt 2025.
//!
//! Configurations come with the names of the makers' own code (`n_embd`), of transformers (`hidden_size`), or a mixture of both.
//! Texts are no longer than the positions that the weights were trained on, within which scaled rotation changes nothing.

use crate::bert::labels;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, describe};
use crate::decoder::activation;
use crate::layers::{self, Attention, linear};
use crate::rope::{self, Rope};
use crate::rotary::Rotary;
use crate::texts::{self, Calls, Module, PoolingDef, Sees, Texts};
use crate::{ModelDef, Result};
use cactus_ir::{BinaryFn, Dim, GraphBuilder, Literal, Op, SEQ, UnaryFn, ValueId, WeightExpr};

/// Field by which the front end says that q, k and v are three tensors, as transformers has them in memory.
const APART: &str = "qkv_apart";
/// Positions that the weights were trained on, where nobody says how many.
const TRAINED: usize = 2048;
/// Fewest elements that vectors were trained to be cut to, of version 1.5 and of version 2.
const LEAST_DIMENSIONS: [usize; 2] = [64, 256];
/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 10;

/// Experts on some layers.
#[derive(Clone, Copy)]
struct Experts {
    count: usize,
    chosen: usize,
    /// A layer has them whose number leaves 1 over this.
    every: usize,
    /// Whether what they give together has a bias.
    bias: bool,
}

struct NomicBert {
    dims: Dims,
    intermediate: usize,
    activation: UnaryFn,
    /// Whether the activation is a gate.
    gated: bool,
    eps: f32,
    token_types: usize,
    attention_bias: bool,
    /// Of the first and the second product of the feed-forward layer.
    mlp_bias: [bool; 2],
    qkv_apart: bool,
    rope: Rope,
    /// Whether pairs of a head stand beside each other, instead of half a head apart.
    interleaved: bool,
    experts: Option<Experts>,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    refuse(c)?;
    // The makers' own names come with other defaults.
    let makers = c.has("n_embd");
    let named = |new: &'static str, old: &'static str| if c.has(new) { new } else { old };
    let hidden = c.width(named("hidden_size", "n_embd"))?;
    let heads = c.size(named("num_attention_heads", "n_head"), 1..=MAX_HEADS)?;
    if c.size_if_set("num_heads_kv", 1..=MAX_HEADS)?
        .is_some_and(|n| n != heads)
    {
        return Err(c.unsupported("num_heads_kv", "heads that share keys and values are not supported"));
    }
    let head_dim = match c.size_if_set("head_dim", 2..=MAX_WIDTH)? {
        Some(n) => n,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            return Err(c.invalid(
                "head_dim",
                format!("is missing, and {heads} heads do not divide {hidden}"),
            ));
        }
    };
    let padded = c.size_or("pad_vocab_size_multiple", MAX_VOCAB, 1)?;
    let positions = c.size(named("max_position_embeddings", "n_positions"), 1..=MAX_CONTEXT)?;
    let trained = c.size_if_set("max_trained_positions", 1..=MAX_CONTEXT)?;
    let trained = trained.unwrap_or(if c.has("max_position_embeddings") {
        positions
    } else {
        TRAINED
    });
    let dims = Dims {
        vocab: c.size("vocab_size", 1..=MAX_VOCAB)?.next_multiple_of(padded),
        hidden,
        layers: c.size(named("num_hidden_layers", "n_layer"), 1..=MAX_LAYERS)?,
        heads,
        kv_heads: heads,
        head_dim,
        context: positions.min(trained),
    };
    let (gated, activation) = feed_forward(c)?;
    let experts = experts(c)?;
    let model = NomicBert {
        intermediate: c.width(named("intermediate_size", "n_inner"))?,
        activation,
        gated,
        eps: c.epsilon(
            named("layer_norm_eps", "layer_norm_epsilon"),
            if makers { 1e-5 } else { 1e-12 },
        )?,
        token_types: c.size_if_set("type_vocab_size", 0..=MAX_CONTEXT)?.unwrap_or(2),
        attention_bias: c.flag("qkv_proj_bias", makers)?,
        mlp_bias: [c.flag("mlp_fc1_bias", makers)?, c.flag("mlp_fc2_bias", makers)?],
        qkv_apart: c.flag(APART, false)?,
        rope: rope_of(c, head_dim, makers)?,
        interleaved: c.flag("rotary_emb_interleaved", false)?,
        experts,
        dims,
    };
    let mut modules = texts::modules(c)?;
    let mut least = experts.map(|_| LEAST_DIMENSIONS[1]);
    if let (true, None, [Module::Pooling(modes)]) = (gated, experts, &modules[..])
        && modes[..] == [PoolingDef::Mean]
    {
        // Folders of version 1.5 end here; the page of its makers says what users do then.
        modules.extend([Module::LayerNorm(None, hidden), Module::Normalize]);
        least = Some(LEAST_DIMENSIONS[0]);
    }
    let mut def = texts::embedder(c, &model.dims, false, &modules, &mut |b, calls| model.encoded(b, calls))?;
    if let (Some(least), Some(vectors)) = (least, &mut def.vectors) {
        vectors.may_be_cut_to(least);
    }
    Ok(def)
}

/// Refuses what would be computed otherwise.
fn refuse(c: &Config<'_>) -> Result<()> {
    if labels(c)?.is_some() {
        return Err(c.unsupported(
            "architectures",
            "a classification is not supported; supported are vectors of texts",
        ));
    }
    for field in [
        "decoder",
        "parallel_block",
        "use_rms_norm",
        "causal",
        "norm_mlp",
        "rotary_head_dim",
        "scale_attn_by_inverse_layer_idx",
        "expert_choice_router",
    ] {
        if c.flag(field, false)? {
            return Err(c.unsupported(field, "expected false"));
        }
    }
    if !c.flag("scale_attn_weights", true)? {
        return Err(c.unsupported("scale_attn_weights", "expected true"));
    }
    if c.has("rotary_emb_scale_base") {
        return Err(c.unsupported(
            "rotary_emb_scale_base",
            "rotation that decays with the distance is not supported",
        ));
    }
    Ok(())
}

/// Whether the feed-forward layer is gated, and by what.
fn feed_forward(c: &Config<'_>) -> Result<(bool, UnaryFn)> {
    match c.text("activation_function")? {
        None => Ok((true, activation(c, "hidden_act", "silu")?)),
        Some("swiglu") => Ok((true, UnaryFn::Silu)),
        Some("geglu") => Ok((true, UnaryFn::GeluErf)),
        Some("glu") => Ok((true, UnaryFn::Sigmoid)),
        Some("gelu") => Ok((false, UnaryFn::GeluErf)),
        Some(other) => {
            let what = format!(
                "{} is not supported; supported are `swiglu`, `geglu`, `glu` and `gelu`",
                describe(&other.into())
            );
            Err(c.unsupported("activation_function", what))
        }
    }
}

fn rope_of(c: &Config<'_>, head_dim: usize, makers: bool) -> Result<Rope> {
    let section = c.section("rope_parameters", "rope_parameters.")?;
    let stated = match &section {
        Some(p) => rope::theta(p, "rope_theta")?,
        None => None,
    };
    let theta = match stated {
        Some(theta) => theta,
        None => rope::theta(c, "rotary_emb_base")?.unwrap_or(if makers { 10_000.0 } else { 1000.0 }),
    };
    let share = c.number_if_set("rotary_emb_fraction", 0.0..=1.0)?;
    let part = (head_dim as f64 * share.unwrap_or(if makers { 0.0 } else { 1.0 })) as usize;
    if part < 2 || !part.is_multiple_of(2) {
        let what = format!("expected an even number of the {head_dim} elements of a head to turn, found {part}");
        return Err(c.unsupported("rotary_emb_fraction", what));
    }
    Rope::scaled(c, section.as_ref(), part, theta)
}

fn experts(c: &Config<'_>) -> Result<Option<Experts>> {
    let every = c.size_if_set("moe_every_n_layers", 0..=MAX_LAYERS)?.unwrap_or(0);
    if every == 0 {
        return Ok(None);
    }
    if every == 1 {
        return Err(c.unsupported("moe_every_n_layers", "expected 0, or 2 and more"));
    }
    let count = c.size("num_experts", 1..=MAX_EXPERTS)?;
    let chosen = c.size("moe_top_k", 1..=MAX_EXPERTS)?;
    if chosen > count {
        return Err(c.invalid("moe_top_k", format!("{chosen} of {count} experts cannot be chosen")));
    }
    if c.size_if_set("num_shared_experts", 0..=MAX_EXPERTS)?.unwrap_or(0) > 0 {
        return Err(c.unsupported("num_shared_experts", "experts that every token has are not supported"));
    }
    if c.size_or("ffn_div", MAX_WIDTH, 1)? != 1 {
        return Err(c.unsupported("ffn_div", "expected 1"));
    }
    if !matches!(
        c.get("moe_normalize_expert_weights"),
        None | Some(serde_json::Value::Bool(false))
    ) {
        return Err(c.unsupported("moe_normalize_expert_weights", "expected false"));
    }
    if c.text("activation_function")? != Some("gelu") {
        return Err(c.unsupported("activation_function", "experts have `gelu`"));
    }
    let bias = c.flag("experts_bias", true)?;
    Ok(Some(Experts {
        count,
        chosen,
        every,
        bias,
    }))
}

impl NomicBert {
    /// The texts, and the states of the last layer, `[1, seq, hidden]`.
    fn encoded(&self, b: &mut GraphBuilder, calls: Calls) -> cactus_ir::Result<(Texts, ValueId)> {
        let hidden = self.dims.hidden;
        let x = texts::embed(b, "embeddings.word_embeddings.weight", [self.dims.vocab, hidden])?;
        let mut texts = Texts::declare(b, calls)?;
        let norm = |b: &mut GraphBuilder, x, name: &str| layers::layer_norm(b, x, name, hidden, self.eps, true);
        let mut x = b.scope("embeddings", |b| {
            if self.token_types == 0 {
                return Ok(x);
            }
            let types = b.weight("embeddings.token_type_embeddings.weight", &[self.token_types, hidden]);
            let (start, end) = (Dim::known(0), Dim::known(1));
            let first = b.op(Op::Slice { axis: 0, start, end }, &[types])?;
            b.add(x, first)
        })?;
        x = norm(b, x, "emb_ln")?;
        let rotary = Rotary::of_halves(b, texts.positions, &self.rope)?;
        let mask = texts.mask(b, Sees::default())?;
        for layer in 0..self.dims.layers {
            let at = format!("encoder.layers.{layer}");
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = b.scope("attn", |b| self.attention(b, x, &format!("{at}.attn"), rotary, mask))?;
                let x = b.add(y, x)?;
                let x = norm(b, x, &format!("{at}.norm1"))?;
                let experts = self.experts.filter(|e| layer % e.every == 1);
                let y = b.scope("mlp", |b| match experts {
                    Some(experts) => self.chosen(b, x, &format!("{at}.mlp"), experts),
                    None => self.mlp(b, x, &format!("{at}.mlp")),
                })?;
                let x = b.add(y, x)?;
                norm(b, x, &format!("{at}.norm2"))
            })?;
        }
        Ok((texts, x))
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
        let all = self.qkv(b, x, at)?;
        let [q, k, v] = layers::apart(b, all, &self.dims)?;
        let (q, k) = (self.turned(b, q, rotary)?, self.turned(b, k, rotary)?);
        let y = layers::attend(b, [q, k, v], &self.dims, Attention::usual_scale(&self.dims), mask)?;
        linear(b, y, &format!("{at}.out_proj"), hidden, width, self.attention_bias)
    }

    /// Queries, keys and values beside each other, `[1, seq, 3 * heads * head_dim]`.
    fn qkv(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let (width, hidden) = (self.dims.heads * self.dims.head_dim, self.dims.hidden);
        if !self.qkv_apart {
            return linear(b, x, &format!("{at}.Wqkv"), 3 * width, hidden, self.attention_bias);
        }
        let mut joined = |kind: &str, shape: &[usize]| {
            let parts = ["q_proj", "k_proj", "v_proj"].map(|name| WeightExpr::source(format!("{at}.{name}.{kind}")));
            let parts = parts.to_vec();
            b.weight_from(
                &format!("{at}.Wqkv.{kind}"),
                shape,
                WeightExpr::Concat { axis: 0, parts },
            )
        };
        let w = joined("weight", &[3 * width, hidden]);
        let bias = self.attention_bias.then(|| joined("bias", &[3 * width]));
        b.linear(x, w, bias)
    }

    /// `x` `[1, heads, seq, head_dim]` turned by its positions. Where pairs stand beside each other they come half a head apart, in
    /// queries as in keys, which changes no score.
    fn turned(&self, b: &mut GraphBuilder, x: ValueId, rotary: Rotary) -> cactus_ir::Result<ValueId> {
        let Dims { heads, head_dim, .. } = self.dims;
        let part = 2 * self.rope.inv_freq.len();
        let mut y = match part < head_dim {
            true => b.slice_last(x, 0, part)?,
            false => x,
        };
        if self.interleaved {
            let seq = || Dim::symbol(SEQ);
            y = b.reshape(y, [1.into(), heads.into(), seq(), (part / 2).into(), 2.into()])?;
            y = b.permute(y, &[0, 1, 2, 4, 3])?;
            y = b.reshape(y, [1.into(), heads.into(), seq(), part.into()])?;
        }
        let y = rotary.apply(b, y)?;
        if part == head_dim {
            return Ok(y);
        }
        let rest = b.slice_last(x, part, head_dim)?;
        b.concat_last(&[y, rest])
    }

    fn mlp(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let (hidden, wide, [first, second]) = (self.dims.hidden, self.intermediate, self.mlp_bias);
        let y = if self.gated {
            let gate = linear(b, x, &format!("{at}.fc12"), wide, hidden, first)?;
            let gate = b.unary(self.activation, gate)?;
            let up = linear(b, x, &format!("{at}.fc11"), wide, hidden, first)?;
            b.mul(gate, up)?
        } else {
            let y = linear(b, x, &format!("{at}.fc1"), wide, hidden, first)?;
            b.unary(self.activation, y)?
        };
        linear(b, y, &format!("{at}.fc2"), hidden, wide, second)
    }

    /// What the chosen experts give, each times its share. All of them are computed, as one wide layer whose rows have a share of zero
    /// where an expert is not chosen: they are no gated units, which are the only ones that are computed alone.
    fn chosen(&self, b: &mut GraphBuilder, x: ValueId, at: &str, experts: Experts) -> cactus_ir::Result<ValueId> {
        let (hidden, wide) = (self.dims.hidden, self.intermediate);
        let Experts { count, chosen, .. } = experts;
        let seq = || Dim::symbol(SEQ);
        let shares = b.scope("router", |b| {
            let scores = linear(b, x, &format!("{at}.router.layer"), count, hidden, false)?;
            let shares = b.softmax_last(scores)?;
            let (axis, descending) = (2, true);
            let order = b.op(Op::ArgSort { axis, descending }, &[shares])?;
            let ids = b.slice_last(order, 0, chosen)?;
            let largest = b.op(Op::Gather { axis }, &[shares, ids])?;
            let zero = b.literal(&[1, 1, 1], Literal::F32(vec![0.0]))?;
            let zeros = b.expand(zero, [1.into(), seq(), count.into()])?;
            let add = false;
            b.op(Op::Scatter { axis, add }, &[zeros, ids, largest])
        })?;
        let y = {
            let w = b.weight(&format!("{at}.experts.mlp.w1"), &[count * wide, hidden]);
            let y = b.linear(x, w, None)?;
            b.unary(self.activation, y)?
        };
        let y = b.reshape(y, [1.into(), seq(), count.into(), wide.into()])?;
        let shares = b.reshape(shares, [1.into(), seq(), count.into(), 1.into()])?;
        let y = b.binary(BinaryFn::Mul, y, shares)?;
        let y = b.reshape(y, [1.into(), seq(), (count * wide).into()])?;
        let name = format!("{at}.experts.mlp.w2");
        let turned = WeightExpr::Permute {
            x: Box::new(WeightExpr::source(&name)),
            perm: vec![1, 0],
        };
        let w = b.weight_from(&name, &[hidden, count * wide], turned);
        let bias = experts.bias.then(|| b.weight(&format!("{at}.experts.bias"), &[hidden]));
        b.linear(y, w, bias)
    }
}
