//! The texts of a call: one after the other, none seeing another.

use super::{PoolingDef, SEEN, STARTS, rows_of, seq, texts};
use cactus_ir::{BinaryFn, CompareFn, Dim, GraphBuilder, Literal, Op, ReduceFn, Result, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// What a position sees of its own text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sees {
    /// Nothing after itself.
    pub(crate) causal: bool,
    /// Positions less than so many before it.
    pub(crate) window: Option<usize>,
    /// Positions less than so many after it.
    pub(crate) ahead: Option<usize>,
}

/// What a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Texts of tokens that see each other.
    Whole,
    /// A text with tokens behind it that see it, and are seen by none.
    Expanded,
}

/// The texts of a call.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    /// Where each begins, `i64[texts]`.
    starts: ValueId,
    /// The number of the text of each position, `i64[seq]`.
    numbers: ValueId,
    /// Where each position stands in its text, from 0, `i64[seq]`.
    pub(crate) positions: ValueId,
    /// Which positions are seen, where some are not, `bool[1, seq]`.
    seen: Option<ValueId>,
    masks: Vec<(Sees, ValueId)>,
    /// By distance: where the position so far on is, and whether it is of the same text; `i64[seq]` and `bool[seq, 1]`.
    neighbors: Vec<(i64, [ValueId; 2])>,
}

impl Texts {
    /// Declares where texts begin.
    pub(crate) fn declare(b: &mut GraphBuilder, calls: Calls) -> Result<Texts> {
        let seen = match calls {
            Calls::Whole => None,
            Calls::Expanded => Some(b.input(SEEN, TensorType::new(DType::I64, [seq()]))),
        };
        let starts = b.input(STARTS, TensorType::new(DType::I64, [texts()]));
        b.scope("texts", |b| {
            // A one where each begins; their running sum counts from 1.
            let (zero, one) = (b.scalar_i64(0)?, b.scalar_i64(1)?);
            let (zeros, ones) = (b.expand(zero, [seq()])?, b.expand(one, [texts()])?);
            let marks = b.op(Op::Scatter { axis: 0, add: true }, &[zeros, starts, ones])?;
            let counted = b.op(Op::CumSum { axis: 0 }, &[marks])?;
            let numbers = b.binary(BinaryFn::Sub, counted, one)?;
            let first = b.op(Op::Take { axis: 0 }, &[starts, numbers])?;
            let rows = b.iota(0, seq())?;
            let positions = b.binary(BinaryFn::Sub, rows, first)?;
            let seen = match seen {
                None => None,
                Some(seen) => {
                    let seen = b.compare(CompareFn::Gt, seen, zero)?;
                    Some(b.reshape(seen, [Dim::known(1), seq()])?)
                }
            };
            Ok(Texts {
                starts,
                numbers,
                positions,
                seen,
                masks: Vec::new(),
                neighbors: Vec::new(),
            })
        })
    }

    /// The additive mask `[seq, seq]`: 0 where the position of a row sees that of a column, minus infinity elsewhere. Made once.
    pub(crate) fn mask(&mut self, b: &mut GraphBuilder, sees: Sees) -> Result<ValueId> {
        if let Some((_, mask)) = self.masks.iter().find(|(of, _)| *of == sees) {
            return Ok(*mask);
        }
        let (numbers, shown) = (self.numbers, self.seen);
        let mask = b.scope("mask", |b| {
            let pair = |b: &mut GraphBuilder, v| {
                let query = b.reshape(v, [seq(), Dim::known(1)])?;
                Ok((query, b.reshape(v, [Dim::known(1), seq()])?))
            };
            let (query, key) = pair(b, numbers)?;
            let mut seen = b.compare(CompareFn::Eq, key, query)?;
            if let Some(shown) = shown {
                seen = b.binary(BinaryFn::And, seen, shown)?;
            }
            let rows = b.iota(0, seq())?;
            let (query, key) = pair(b, rows)?;
            if sees.causal {
                let before = b.compare(CompareFn::Le, key, query)?;
                seen = b.binary(BinaryFn::And, seen, before)?;
            }
            for (width, sign, compare) in [
                (sees.window, BinaryFn::Sub, CompareFn::Gt),
                (sees.ahead, BinaryFn::Add, CompareFn::Lt),
            ] {
                let Some(width) = width else { continue };
                let width = b.scalar_i64(width as i64)?;
                let end = b.binary(sign, query, width)?;
                let near = b.compare(compare, key, end)?;
                seen = b.binary(BinaryFn::And, seen, near)?;
            }
            // Many keys in a row may be hidden here, and what is said of them alone should stay a number.
            let least = if shown.is_some() {
                UNSEEN_SCORE
            } else {
                f32::NEG_INFINITY
            };
            let (zero, hidden) = (b.scalar(0.0)?, b.scalar(least)?);
            b.select(seen, zero, hidden)
        })?;
        self.masks.push((sees, mask));
        Ok(mask)
    }

    /// Where the position `distance` behind each one is, and whether it is of the same text: itself where it is not. Made once.
    fn neighbor(&mut self, b: &mut GraphBuilder, distance: i64) -> Result<[ValueId; 2]> {
        if let Some((_, found)) = self.neighbors.iter().find(|(of, _)| *of == distance) {
            return Ok(*found);
        }
        let found = b.scope("neighbors", |b| {
            let rows = b.iota(0, seq())?;
            let far = b.scalar_i64(distance)?;
            let inside = if distance < 0 {
                let before = b.scalar_i64(-distance)?;
                b.compare(CompareFn::Le, before, self.positions)?
            } else {
                let ends = self.last(b)?;
                let end = b.op(Op::Take { axis: 0 }, &[ends, self.numbers])?;
                let there = b.add(rows, far)?;
                b.compare(CompareFn::Le, there, end)?
            };
            let there = b.add(rows, far)?;
            let ids = b.select(inside, there, rows)?;
            Ok([ids, b.reshape(inside, [seq(), Dim::known(1)])?])
        })?;
        self.neighbors.push((distance, found));
        Ok(found)
    }

    /// A depthwise convolution over the positions of each text: `sum over j of weight[j] * x[t + j - before]`, zeros outside of the
    /// text; `x` `[1, seq, n]`, `weight` `[kernel, n]`.
    pub(crate) fn short_conv(
        &mut self,
        b: &mut GraphBuilder,
        x: ValueId,
        weight: ValueId,
        before: usize,
    ) -> Result<ValueId> {
        let kernel = b.shape(weight)[0].as_known().unwrap_or(0);
        let mut sum: Option<ValueId> = None;
        for tap in 0..kernel {
            let (start, end) = (Dim::known(tap), Dim::known(tap + 1));
            let factor = b.op(Op::Slice { axis: 0, start, end }, &[weight])?;
            let row = match tap as i64 - before as i64 {
                0 => x,
                distance => {
                    let [ids, inside] = self.neighbor(b, distance)?;
                    let row = b.op(Op::Take { axis: 1 }, &[x, ids])?;
                    let zero = b.scalar(0.0)?;
                    b.select(inside, row, zero)?
                }
            };
            let product = b.mul(row, factor)?;
            sum = Some(match sum {
                None => product,
                Some(sum) => b.add(sum, product)?,
            });
        }
        Ok(sum.unwrap_or(x))
    }

    /// The last position of each text, `i64[texts]`.
    fn last(&self, b: &mut GraphBuilder) -> Result<ValueId> {
        let all = b.iota(seq(), 1)?;
        let next = b.concat_last(&[self.starts, all])?;
        let (axis, start, end) = (0, Dim::known(1), texts().add(&Dim::known(1))?);
        let next = b.op(Op::Slice { axis, start, end }, &[next])?;
        let one = b.scalar_i64(1)?;
        b.binary(BinaryFn::Sub, next, one)
    }

    /// The sum of the rows of each text of `x` `[seq, n]`, in their order, `[texts, n]`.
    fn sum(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let n = b.shape(x)[1].clone();
        let zero = b.literal(&[1, 1], Literal::F32(vec![0.0]))?;
        let zeros = b.expand(zero, [texts(), n.clone()])?;
        let ids = b.reshape(self.numbers, [seq(), Dim::known(1)])?;
        let ids = b.expand(ids, [seq(), n])?;
        b.op(Op::Scatter { axis: 0, add: true }, &[zeros, ids, x])
    }

    /// How many positions each text has, `f32[texts, 1]`.
    fn lengths(&self, b: &mut GraphBuilder) -> Result<ValueId> {
        let last = self.last(b)?;
        let difference = b.binary(BinaryFn::Sub, last, self.starts)?;
        let one = b.scalar_i64(1)?;
        let lengths = b.add(difference, one)?;
        let lengths = b.cast(lengths, DType::F32)?;
        b.reshape(lengths, [texts(), Dim::known(1)])
    }

    /// The rows of `x` `[1, seq, n]` that begin texts, `[texts, n]`.
    pub(crate) fn first_rows(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let rows = rows_of(b, x)?;
        b.op(Op::Take { axis: 0 }, &[rows, self.starts])
    }

    /// The means of the rows of `x` `[1, seq, n]` of texts, `[texts, n]`.
    pub(crate) fn mean_rows(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let rows = rows_of(b, x)?;
        self.pool(b, rows, PoolingDef::Mean)
    }

    /// The rows of `x` `[1, seq, n]` that end texts, `[texts, n]`.
    pub(crate) fn last_rows(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let rows = rows_of(b, x)?;
        let last = self.last(b)?;
        b.op(Op::Take { axis: 0 }, &[rows, last])
    }

    /// One vector of the rows `x` `[seq, n]` of each text, `[texts, n]`.
    pub(super) fn pool(&self, b: &mut GraphBuilder, x: ValueId, mode: PoolingDef) -> Result<ValueId> {
        match mode {
            PoolingDef::First => b.op(Op::Take { axis: 0 }, &[x, self.starts]),
            PoolingDef::Last => {
                let last = self.last(b)?;
                b.op(Op::Take { axis: 0 }, &[x, last])
            }
            PoolingDef::Mean | PoolingDef::MeanSqrt => {
                let sum = self.sum(b, x)?;
                let mut lengths = self.lengths(b)?;
                if mode == PoolingDef::MeanSqrt {
                    lengths = b.unary(UnaryFn::Sqrt, lengths)?;
                }
                b.binary(BinaryFn::Div, sum, lengths)
            }
            PoolingDef::WeightedMean => {
                let one = b.scalar_i64(1)?;
                let counts = b.add(self.positions, one)?;
                let counts = b.cast(counts, DType::F32)?;
                let counts = b.reshape(counts, [seq(), Dim::known(1)])?;
                let weighted = b.mul(x, counts)?;
                let (sum, all) = (self.sum(b, weighted)?, self.sum(b, counts)?);
                b.binary(BinaryFn::Div, sum, all)
            }
            PoolingDef::Max => {
                let n = b.shape(x)[1].clone();
                let of_row = b.reshape(self.numbers, [Dim::known(1), seq(), Dim::known(1)])?;
                let text = b.iota(0, texts())?;
                let text = b.reshape(text, [texts(), Dim::known(1), Dim::known(1)])?;
                let own = b.compare(CompareFn::Eq, of_row, text)?;
                let x = b.reshape(x, [Dim::known(1), seq(), n])?;
                let least = b.scalar(f32::NEG_INFINITY)?;
                let x = b.select(own, x, least)?;
                let (f, axes, keepdim) = (ReduceFn::Max, vec![1], false);
                b.op(Op::Reduce { f, axes, keepdim }, &[x])
            }
        }
    }
}

/// Added to the score of a key that is not seen: its share is zero beside any that is.
const UNSEEN_SCORE: f32 = -1e9;
