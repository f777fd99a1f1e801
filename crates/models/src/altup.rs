//! Alternating updates, Baykal et al. 2023, as Gemma 3n has them: each token has several streams of hidden states. Before a layer all of them are
//! predicted from each other, the layer works on one, and behind it all are corrected by what it changed there.
//!
//! Streams are `[b, s, streams, hidden]`.

use crate::layers::{Norm, batch, linear, seq};
use cactus_ir::{BinaryFn, Dim, GraphBuilder, Op, ReduceFn, Result, UnaryFn, ValueId};

/// Smallest mean square that a stream is divided by the root of.
const LEAST: f32 = 1e-5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AltUp {
    pub(crate) hidden: usize,
    pub(crate) streams: usize,
    /// The stream that layers work on.
    pub(crate) active: usize,
    pub(crate) norm: Norm,
}

impl AltUp {
    /// The streams of embeddings `x` `[b, s, hidden]`: these, and projections as large as they are.
    pub(crate) fn spread(&self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        let size = root_mean_square(b, x, 0.0)?;
        let mut all = vec![x];
        for i in 0..self.streams - 1 {
            let y = linear(
                b,
                x,
                &format!("model.altup_projections.{i}"),
                self.hidden,
                self.hidden,
                false,
            )?;
            all.push(resized(b, y, size)?);
        }
        let all = b.concat_last(&all)?;
        b.reshape(all, self.shape(self.streams, self.hidden))
    }

    /// One hidden state of all streams: the mean of the first and of projections of the others, as large as it is.
    pub(crate) fn merged(&self, b: &mut GraphBuilder, streams: ValueId) -> Result<ValueId> {
        let mut sum = self.stream(b, streams, 0)?;
        let size = root_mean_square(b, sum, 0.0)?;
        for i in 1..self.streams {
            let x = self.stream(b, streams, i)?;
            let name = format!("model.altup_unembed_projections.{}", i - 1);
            let y = linear(b, x, &name, self.hidden, self.hidden, false)?;
            let y = resized(b, y, size)?;
            sum = b.add(sum, y)?;
        }
        b.scale(sum, 1.0 / self.streams as f32)
    }

    /// What a layer's weights under `at` predict of `streams`.
    pub(crate) fn predicted(&self, b: &mut GraphBuilder, streams: ValueId, at: &str) -> Result<ValueId> {
        let n = self.streams;
        let active = self.working(b, streams)?;
        let routes = self.routes(b, active, at)?;
        let factors = linear(b, routes, &format!("{at}.prediction_coefs"), n * n, n, false)?;
        let factors = b.reshape(factors, self.shape(n, n))?;
        let change = b.matmul(factors, streams)?;
        b.add(change, streams)
    }

    /// `predictions` corrected by `x` `[b, s, hidden]`, which became of the stream that the layer works on.
    pub(crate) fn corrected(
        &self,
        b: &mut GraphBuilder,
        predictions: ValueId,
        x: ValueId,
        at: &str,
    ) -> Result<ValueId> {
        let n = self.streams;
        let routes = self.routes(b, x, at)?;
        let expected = self.working(b, predictions)?;
        let new = b.binary(BinaryFn::Sub, x, expected)?;
        let new = b.reshape(new, self.shape(1, self.hidden))?;
        let factors = linear(b, routes, &format!("{at}.correction_coefs"), n, n, false)?;
        let one = b.scalar(1.0)?;
        let factors = b.add(factors, one)?;
        let factors = b.reshape(factors, self.shape(n, 1))?;
        let change = b.mul(new, factors)?;
        b.add(change, predictions)
    }

    /// `streams` with `x` `[b, s, hidden]` added to all but the first.
    pub(crate) fn with_behind_first(&self, b: &mut GraphBuilder, streams: ValueId, x: ValueId) -> Result<ValueId> {
        let x = b.reshape(x, self.shape(1, self.hidden))?;
        let first = some(b, streams, 0, 1)?;
        let others = some(b, streams, 1, self.streams)?;
        let others = b.add(others, x)?;
        b.op(Op::Concat { axis: 2 }, &[first, others])
    }

    /// The stream that layers work on, `[b, s, hidden]`.
    pub(crate) fn working(&self, b: &mut GraphBuilder, streams: ValueId) -> Result<ValueId> {
        self.stream(b, streams, self.active)
    }

    fn stream(&self, b: &mut GraphBuilder, streams: ValueId, index: usize) -> Result<ValueId> {
        let one = some(b, streams, index, index + 1)?;
        b.reshape(one, [batch(), seq(), self.hidden.into()])
    }

    /// A number for each stream, `[b, s, streams]`, from -1 to 1.
    fn routes(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> Result<ValueId> {
        let y = self
            .norm
            .apply(b, x, &format!("{at}.router_norm.weight"), self.hidden)?;
        let y = b.scale(y, 1.0 / self.hidden as f32)?;
        let y = linear(b, y, &format!("{at}.modality_router"), self.streams, self.hidden, false)?;
        b.unary(UnaryFn::Tanh, y)
    }

    fn shape(&self, rows: usize, width: usize) -> [Dim; 4] {
        [batch(), seq(), rows.into(), width.into()]
    }
}

fn some(b: &mut GraphBuilder, streams: ValueId, start: usize, end: usize) -> Result<ValueId> {
    let (start, end) = (Dim::known(start), Dim::known(end));
    b.op(Op::Slice { axis: 2, start, end }, &[streams])
}

/// The root of the mean square over the last axis, or of `least` where that is larger.
fn root_mean_square(b: &mut GraphBuilder, x: ValueId, least: f32) -> Result<ValueId> {
    let squared = b.mul(x, x)?;
    let mut mean = b.reduce_last(ReduceFn::Mean, squared)?;
    if least > 0.0 {
        let least = b.scalar(least)?;
        mean = b.binary(BinaryFn::Max, mean, least)?;
    }
    b.unary(UnaryFn::Sqrt, mean)
}

/// `y` as large as `size` says.
fn resized(b: &mut GraphBuilder, y: ValueId, size: ValueId) -> Result<ValueId> {
    let own = root_mean_square(b, y, LEAST)?;
    let y = b.mul(y, size)?;
    b.binary(BinaryFn::Div, y, own)
}
