//! The encoder of Moonshine 2 for sound that is still spoken: a block of positions after the other goes through all layers, each of which
//! keeps the rows that it will need again. So every position is computed once, and what it costs to hear more does not depend on how much
//! was heard before.
//!
//! A layer that sees some positions after its own says something of a position as late as that; what the last one gives lies as many
//! positions before what the first one takes as all of them see ahead.

use crate::moonshine_decoder::STATES;
use crate::moonshine_streaming::{CONVOLUTION, FRAMES, Rows, SAMPLES, Streaming};
use crate::registry::{ComponentDef, StreamingDef};
use crate::sliding::{COUNT, FIRST, MEMORY, NEXT_MEMORY, OUTSIDE, inside, integer, rows};
use cactus_ir::{BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Op, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// The component.
const NAME: &str = "streaming_encoder";
/// Positions of a block: 320 ms. Fewer cost more for each, as every layer looks at what it keeps again.
const BLOCK: usize = 16;
/// Steps before its own that a convolution sees.
const BEFORE: usize = CONVOLUTION[0] - 1;

/// The component, and what is to be known of it.
pub(crate) fn component(model: &Streaming) -> crate::Result<(ComponentDef, StreamingDef)> {
    let blocks = Blocks { model };
    let component = ComponentDef {
        name: NAME.into(),
        graph: blocks.graph()?,
        continues: false,
    };
    let about = StreamingDef {
        block_samples: BLOCK * FRAMES * model.frame_samples,
        late: blocks.late(),
        position_least: model.frame_samples,
    };
    Ok((component, about))
}

struct Blocks<'a> {
    model: &'a Streaming,
}

impl Blocks<'_> {
    fn late(&self) -> usize {
        self.model.sides().map(|[_, after]| after).sum()
    }

    /// Rows of the memory, each of which is as wide as a state: what both convolutions see, the second of which gets steps of twice that
    /// width, and the inputs of the layers.
    fn kept(&self) -> usize {
        3 * BEFORE
            + self
                .model
                .sides()
                .map(|sides| sides.iter().sum::<usize>())
                .sum::<usize>()
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let model = self.model;
        let (one, hidden) = (Dim::known(1), model.dims.hidden);
        let mut b = GraphBuilder::new(NAME);
        let length = Dim::known(BLOCK * FRAMES * model.frame_samples);
        let samples = b.input(SAMPLES, TensorType::new(DType::F32, [one.clone(), length]));
        let shape = [one.clone(), self.kept().into(), hidden.into()];
        let memory = b.input(MEMORY, TensorType::new(DType::F32, shape));
        let [first, count] = [FIRST, COUNT].map(|name| b.input(name, integer()));
        let mut kept = Kept {
            memory,
            taken: 0,
            next: Vec::new(),
        };
        let (states, first) = b.scope("encoder", |b| {
            let mut x = b.scope("embedder", |b| {
                let x = model.frames(b, samples, &Dim::known(BLOCK * FRAMES))?;
                let x = kept.joined(b, x, BEFORE)?;
                let x = self.convolution(b, x, 0)?;
                let x = b.unary(UnaryFn::Silu, x)?;
                // A step is two rows of the memory.
                let x = b.reshape(x, [one.clone(), (4 * BLOCK).into(), hidden.into()])?;
                let x = kept.joined(b, x, 2 * BEFORE)?;
                let x = b.reshape(x, [one, (2 * BLOCK + BEFORE).into(), (2 * hidden).into()])?;
                self.convolution(b, x, 1)
            })?;
            let mut first = first;
            for (layer, sides) in model.sides().enumerate() {
                x = b.scope(format!("layers.{layer}"), |b| {
                    let x = kept.joined(b, x, sides.iter().sum())?;
                    let mask = mask(b, first, sides, count)?;
                    let all = Dim::known(BLOCK + sides.iter().sum::<usize>());
                    let own = Rows {
                        own: Some([sides[0], sides[0] + BLOCK]),
                        lengths: [&Dim::known(BLOCK), &all],
                    };
                    model.layer(b, x, layer, &own, mask)
                })?;
                first = moved(b, first, sides[1])?;
            }
            Ok((model.last_norm(b, x)?, first))
        })?;
        let steps = b.iota(0, Dim::known(BLOCK))?;
        let places = b.add(first, steps)?;
        let most = b.scalar_i64(model.dims.context as i64)?;
        let known = inside(&mut b, first, &Dim::known(BLOCK), most)?;
        let nowhere = b.scalar_i64(0)?;
        let places = b.select(known, places, nowhere)?;
        let states = model.placed(&mut b, states, places)?;
        b.output(STATES, states);
        let next = b.op(Op::Concat { axis: 1 }, &kept.next)?;
        b.output(NEXT_MEMORY, next);
        b.finish()
    }

    /// As [`Streaming::convolution`], of steps `[1, steps, width]` those before which are there.
    fn convolution(&self, b: &mut GraphBuilder, x: ValueId, which: usize) -> cactus_ir::Result<ValueId> {
        let x = b.permute(x, &[0, 2, 1])?;
        let x = self.model.convolution(b, x, which, 0)?;
        b.permute(x, &[0, 2, 1])
    }
}

/// The memory, part after part.
struct Kept {
    memory: ValueId,
    taken: usize,
    next: Vec<ValueId>,
}

impl Kept {
    /// New rows behind the `before` that were kept of those that came before; as many are kept again.
    fn joined(&mut self, b: &mut GraphBuilder, new: ValueId, before: usize) -> cactus_ir::Result<ValueId> {
        if before == 0 {
            return Ok(new);
        }
        let old = rows(b, self.memory, self.taken, self.taken + before)?;
        self.taken += before;
        let all = b.op(Op::Concat { axis: 1 }, &[old, new])?;
        let count = b.shape(all)[1].as_known().unwrap_or_default();
        self.next.push(rows(b, all, count - before, count)?);
        Ok(all)
    }
}

/// The place so many before.
fn moved(b: &mut GraphBuilder, first: ValueId, by: usize) -> cactus_ir::Result<ValueId> {
    match by {
        0 => Ok(first),
        _ => {
            let by = b.scalar_i64(-(by as i64))?;
            b.add(first, by)
        }
    }
}

/// The additive mask `[block, rows]` of a layer whose newest block begins at `first`: row `i` of those that it says something of sees rows `i` to
/// `i + before + after`, as far as they are in the sound.
fn mask(
    b: &mut GraphBuilder,
    first: ValueId,
    [before, after]: [usize; 2],
    count: ValueId,
) -> cactus_ir::Result<ValueId> {
    let all = BLOCK + before + after;
    b.scope("mask", |b| {
        let query = b.iota(0, Dim::known(BLOCK))?;
        let query = b.reshape(query, [BLOCK.into(), Dim::known(1)])?;
        let key = b.iota(0, Dim::known(all))?;
        let key = b.reshape(key, [Dim::known(1), all.into()])?;
        let distance = b.binary(BinaryFn::Sub, key, query)?;
        let (zero, last) = (b.scalar_i64(0)?, b.scalar_i64((before + after) as i64)?);
        let recent = b.compare(CompareFn::Ge, distance, zero)?;
        let soon = b.compare(CompareFn::Le, distance, last)?;
        let seen = b.binary(BinaryFn::And, recent, soon)?;
        let oldest = moved(b, first, before + after)?;
        let there = inside(b, oldest, &Dim::known(all), count)?;
        let there = b.reshape(there, [Dim::known(1), all.into()])?;
        let (zero, outside, hidden) = (b.scalar(0.0)?, b.scalar(OUTSIDE)?, b.scalar(f32::NEG_INFINITY)?);
        let there = b.select(there, zero, outside)?;
        b.select(seen, there, hidden)
    })
}
