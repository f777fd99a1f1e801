//! A Fast Conformer whose attention sees so many positions on each side, for sound of any length: NeMo's `rel_pos_local_attn`, with the weights of the
//! encoder that looks at everything.
//!
//! Each layer is a component of its own. It takes as many positions at a time as it sees on a side, and gives as many, which lie so many
//! before: those whose neighbors are all known. What it has to keep of earlier positions goes out and comes in again, so the memory of a
//! layer does not depend on the length, and nothing is computed twice.

use crate::Result;
use crate::config::Config;
use crate::fastconformer::{FEATURES, FastConformer};
use crate::registry::{ComponentDef, LocalDef};
use crate::sliding::{COUNT, FIRST, MEMORY, NEXT_MEMORY, OUTSIDE, inside, integer, rows};
use cactus_ir::{BinaryFn, Dim, Graph, GraphBuilder, Op, TensorType, ValueId};
use cactus_tensor::DType;

/// From frames to the positions of the first layer, and from those of the last to what is decoded.
const INPUT: &str = "local_input";
const OUTPUT: &str = "local_output";
/// Input of a layer and of the output, `f32[1, context, hidden]`.
const STATES: &str = "states";
/// What the input and a layer give, like it.
const NEXT_STATES: &str = "next_states";
/// A component that takes nothing and gives what each layer makes of the distances that a position sees, and the input of layers that is theirs,
/// `f32[2 * context + 1, hidden]`.
const DISTANCES: &str = "distances";
const ALL_DISTANCES: &str = "local_distances";
/// Widest that a position sees on a side.
const MAX_CONTEXT: usize = 1024;

/// The field of a configuration that asks for it.
const FIELD: &str = "attention_context";

/// Components for sound of any length, where the configuration asks for them.
pub(crate) fn components(
    c: &Config<'_>,
    encoder: &FastConformer,
    output: &str,
    head: impl FnOnce(&mut GraphBuilder, ValueId) -> cactus_ir::Result<ValueId>,
) -> Result<(Vec<ComponentDef>, Option<LocalDef>)> {
    let Some(context) = c.size_if_set(FIELD, 1..=MAX_CONTEXT)? else {
        return Ok((Vec::new(), None));
    };
    let local = Local { encoder, context };
    let (side, factor) = (local.side(), encoder.position_frames);
    let mut all = vec![
        (ALL_DISTANCES.to_owned(), local.distances()?),
        (INPUT.to_owned(), local.input()?),
    ];
    for layer in 0..encoder.layers {
        let name = format!("local_layer_{layer}");
        let graph = local.layer(&name, &format!("encoder.layers.{layer}"))?;
        all.push((name, graph));
    }
    all.push((OUTPUT.to_owned(), local.output(output, head)?));
    let components = all.into_iter().map(|(name, graph)| ComponentDef {
        name: name.into(),
        graph,
        continues: false,
    });
    let about = LocalDef {
        context,
        layers: encoder.layers,
        late: context + encoder.kernel / 2,
        edge_frames: side * factor,
    };
    Ok((components.collect(), Some(about)))
}

struct Local<'a> {
    encoder: &'a FastConformer,
    /// Positions that are seen on each side, and that are computed at once.
    context: usize,
}

impl Local<'_> {
    /// Positions of frames on each side that the convolutions before the layers see.
    fn side(&self) -> usize {
        let (factor, halving) = (self.encoder.position_frames, &self.encoder.halving);
        (halving.kernel / 2 * (factor - 1)).div_ceil(factor)
    }

    fn input(&self) -> cactus_ir::Result<Graph> {
        let (e, factor) = (self.encoder, self.encoder.position_frames);
        let mut b = GraphBuilder::new(INPUT);
        let frames = (self.context + 2 * self.side()) * factor;
        let shape = [Dim::known(1), frames.into(), e.mels.into()];
        let features = b.input(FEATURES, TensorType::new(DType::F32, shape));
        let [first, count] = [FIRST, COUNT].map(|name| b.input(name, integer()));
        let states = b.scope("encoder", |b| {
            let x = b.scope("subsampling", |b| {
                e.subsampling(b, features, &|b, x, halved| {
                    let each = b.scalar_i64(1 << halved)?;
                    let more = b.scalar_i64((1 << halved) - 1)?;
                    // Each half of an odd number has one more.
                    let count = b.add(count, more)?;
                    let count = b.binary(BinaryFn::FloorDiv, count, each)?;
                    let first = b.binary(BinaryFn::FloorDiv, first, each)?;
                    let times = b.shape(x)[2].clone();
                    let inside = inside(b, first, &times, count)?;
                    let inside = b.reshape(inside, [1.into(), 1.into(), times, 1.into()])?;
                    let zero = b.scalar(0.0)?;
                    b.select(inside, x, zero)
                })
            })?;
            rows(b, x, self.side(), self.side() + self.context)
        })?;
        b.output(NEXT_STATES, states);
        b.finish()
    }

    fn distances(&self) -> cactus_ir::Result<Graph> {
        let e = self.encoder;
        let mut b = GraphBuilder::new(ALL_DISTANCES);
        let far = b.vector(vec![self.context as f32])?;
        let waves = e.waves(&mut b, far, &Dim::known(2 * self.context + 1))?;
        for layer in 0..e.layers {
            let at = format!("encoder.layers.{layer}.self_attn");
            let distances = b.scope(at.clone(), |b| e.distances(b, waves, &at))?;
            b.output(&format!("{DISTANCES}_{layer}"), distances);
        }
        b.finish()
    }

    /// What is known of `context` more positions, and what that lets a layer say of as many before.
    fn layer(&self, name: &str, at: &str) -> cactus_ir::Result<Graph> {
        let (e, context) = (self.encoder, self.context);
        let (reach, about) = (e.kernel - 1, e.kernel / 2);
        let mut b = GraphBuilder::new(name);
        let wide = |n: usize| TensorType::new(DType::F32, [Dim::known(1), n.into(), e.hidden.into()]);
        let states = b.input(STATES, wide(context));
        let table = TensorType::new(DType::F32, [Dim::known(2 * context + 1), e.hidden.into()]);
        let distances = b.input(DISTANCES, table);
        // States before attention and queries, keys, values, what the convolution sees, and states before it.
        let kept = [context, context, 2 * context, 2 * context, reach, about];
        let memory = b.input(MEMORY, wide(kept.iter().sum()));
        let [first, count] = [FIRST, COUNT].map(|name| b.input(name, integer()));
        let (made, next) = b.scope(at, |b| {
            let mut next = Vec::new();
            let mut follow = |b: &mut GraphBuilder, new: ValueId| {
                let i = next.len();
                let start = kept[..i].iter().sum();
                let before = rows(b, memory, start, start + kept[i])?;
                let all = b.op(Op::Concat { axis: 1 }, &[before, new])?;
                next.push(rows(b, all, context, context + kept[i])?);
                Ok::<_, cactus_ir::Error>(all)
            };
            let x = e.half(b, states, at, 1)?;
            let y = e.norm(b, x, at, "norm_self_att")?;
            let own = format!("{at}.self_attn");
            let [q, k, v] = b.scope("self_attn", |b| e.projected(b, y, &own))?;
            let x = follow(b, x)?;
            let q = follow(b, q)?;
            let (k, v) = (follow(b, k)?, follow(b, v)?);
            let (x, q) = (rows(b, x, 0, context)?, rows(b, q, 0, context)?);
            let moved = |b: &mut GraphBuilder, by: usize| {
                let by = b.scalar_i64(-(by as i64))?;
                b.add(first, by)
            };
            let at_keys = moved(b, 2 * context)?;
            let keys = inside(b, at_keys, &Dim::known(3 * context), count)?;
            let y = b.scope("self_attn", |b| self.attention(b, [q, k, v], keys, distances, &own))?;
            let x = b.add(x, y)?;
            let y = e.norm(b, x, at, "norm_conv")?;
            let at_queries = moved(b, context)?;
            let inside = inside(b, at_queries, &Dim::known(context), count)?;
            let inside = b.reshape(inside, [1.into(), context.into(), 1.into()])?;
            let own = format!("{at}.conv");
            let y = b.scope("conv", |b| {
                let y = e.gated(b, y, &own)?;
                let zero = b.scalar(0.0)?;
                let y = b.select(inside, y, zero)?;
                let y = follow(b, y)?;
                e.convolution(b, y, &own, 0)
            })?;
            let x = follow(b, x)?;
            let x = rows(b, x, 0, context)?;
            let x = b.add(x, y)?;
            let x = e.half(b, x, at, 2)?;
            let made = e.norm(b, x, at, "norm_out")?;
            Ok((made, b.op(Op::Concat { axis: 1 }, &next)?))
        })?;
        b.output(NEXT_STATES, made);
        b.output(NEXT_MEMORY, next);
        b.finish()
    }

    /// Queries of `context` positions, keys and values of as many before them and behind them, too; `[1, context, hidden]`.
    fn attention(
        &self,
        b: &mut GraphBuilder,
        [q, k, v]: [ValueId; 3],
        keys: ValueId,
        distances: ValueId,
        at: &str,
    ) -> cactus_ir::Result<ValueId> {
        let (e, context) = (self.encoder, self.context);
        let (one, seen, all) = (Dim::known(1), 2 * context + 1, 3 * context);
        let [q, k, v] = e.of_heads(b, [q, k, v])?;
        let table = e.met(b, distances)?;
        let (by_content, by_distance) = (e.query(b, q, at, "bias_u")?, e.query(b, q, at, "bias_v")?);
        let far = b.matmul(by_distance, table)?;
        let far = b.scale(far, e.scale())?;
        // Row `i` has what the query adds to the scores of keys from `i` on. It is followed by what hides the others, and each row is moved one
        // element further than the one before, by reading what lies there with rows that are one shorter.
        let heads = Dim::known(e.heads);
        let hidden = b.scalar(f32::NEG_INFINITY)?;
        let shape = [one.clone(), heads.clone(), context.into(), context.into()];
        let hidden = b.expand(hidden, shape)?;
        let far = b.concat_last(&[far, hidden])?;
        let far = b.reshape(far, [one.clone(), heads.clone(), (context * (seen + context)).into()])?;
        let far = b.slice_last(far, 0, context * all)?;
        let far = b.reshape(far, [one.clone(), heads, context.into(), all.into()])?;
        let keys = b.reshape(keys, [one.clone(), one.clone(), one.clone(), all.into()])?;
        let (zero, outside) = (b.scalar(0.0)?, b.scalar(OUTSIDE)?);
        let outside = b.select(keys, zero, outside)?;
        let bias = b.add(far, outside)?;
        let y = e.attend(b, [by_content, k, v], bias)?;
        let y = b.reshape(y, [one, context.into(), e.hidden.into()])?;
        let name = format!("{at}.o_proj");
        crate::layers::linear(b, y, &name, e.hidden, e.hidden, e.attention_bias)
    }

    fn output(
        &self,
        output: &str,
        head: impl FnOnce(&mut GraphBuilder, ValueId) -> cactus_ir::Result<ValueId>,
    ) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(OUTPUT);
        let shape = [Dim::known(1), self.context.into(), self.encoder.hidden.into()];
        let states = b.input(STATES, TensorType::new(DType::F32, shape));
        let made = head(&mut b, states)?;
        b.output(output, made);
        b.finish()
    }
}
