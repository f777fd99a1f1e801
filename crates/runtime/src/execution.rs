//! One sequence of a program, computed chunk by chunk: a [`Batch`] of one.

use crate::batch::{Batch, Capacity, MediaRows, Part, SequenceId, Wanted};
use crate::observe::Observer;
use crate::{Logits, Profile, Program, Result};
use cactus_base::Pool;
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which logits a call computes.
#[allow(missing_debug_implementations)]
pub enum Head<'a> {
    /// None: the call only fills the states.
    Skip,
    /// Those of the last position, left in [`Execution::logits`].
    Last,
    /// Those of every position from the given one (counted within the call) on; the callback gets position and logits.
    From(usize, &'a mut dyn FnMut(usize, Logits<'_>)),
}

/// One sequence, with memory of its own: arena, states, logits.
#[derive(Debug)]
pub struct Execution {
    pub(crate) batch: Batch,
    sequence: SequenceId,
}

impl Execution {
    /// Memory for one sequence.
    ///
    /// # Errors
    /// Where the memory cannot be had.
    pub fn new(program: Arc<Program>) -> Result<Execution> {
        let capacity = Capacity {
            sequences: 1,
            tokens: program.context_tokens(),
            snapshots: 0,
        };
        let mut batch = Batch::new(program, capacity)?;
        let sequence = batch.open()?;
        Ok(Execution { batch, sequence })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        self.batch.program()
    }

    /// Positions held by the states.
    pub fn len(&self) -> usize {
        self.batch.len(self.sequence)
    }

    /// Whether the states hold no position.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logits of the last position of the last call that asked for them, `[vocab]`.
    pub fn logits(&self) -> Logits<'_> {
        self.batch.logits(0)
    }

    /// Begins or ends measuring the time of each step.
    pub fn set_profiling(&mut self, on: bool) {
        self.batch.set_profiling(on);
    }

    /// The times measured since profiling began.
    pub fn profile(&self) -> Option<&Profile> {
        self.batch.profile()
    }

    /// Takes the inputs of the sequence beside its token ids ([`Program::given_inputs`]), computes what depends on them
    /// alone, and forgets every position.
    ///
    /// # Errors
    /// As [`Batch::give`].
    pub fn give(&mut self, pool: &Pool, width: usize, inputs: &BTreeMap<String, Tensor>) -> Result<()> {
        self.batch.give(self.sequence, pool, width, inputs)
    }

    /// Forgets every position.
    pub fn clear(&mut self) {
        self.batch.clear(self.sequence);
    }

    /// Forgets the positions from `keep` on. Where a state has lost what it would need (a sliding window that moved on,
    /// a convolution), it returns `false` and forgets nothing.
    pub fn truncate(&mut self, keep: usize) -> bool {
        self.batch.truncate(self.sequence, keep)
    }

    /// Writes all that the states hold, for [`Execution::read_state`] of the same program. The inner error is that of `out`.
    ///
    /// # Errors
    /// Where memory cannot be had.
    pub fn write_state(&mut self, out: &mut dyn std::io::Write) -> Result<std::io::Result<()>> {
        let snapshot = self.batch.snapshot(self.sequence)?;
        let written = self.batch.write_snapshot(&snapshot, out);
        self.batch.release(snapshot);
        Ok(written)
    }

    /// Takes back what [`Execution::write_state`] wrote, in place of what is held. Nothing is held where that fails.
    ///
    /// # Errors
    /// As [`Batch::read_snapshot`].
    pub fn read_state(&mut self, input: &mut dyn std::io::Read) -> Result<()> {
        self.clear();
        let snapshot = self.batch.read_snapshot(input)?;
        let restored = self.batch.restore(self.sequence, &snapshot, snapshot.len());
        self.batch.release(snapshot);
        restored.map(drop)
    }

    /// Computes the positions of `ids`, at most [`Program::chunk_tokens`], after those the states hold, on `width`
    /// threads of `pool`.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub fn run(&mut self, pool: &Pool, width: usize, ids: &[u32], head: Head<'_>) -> Result<()> {
        self.run_observed(pool, width, ids, &[], head, None)
    }

    /// As [`Execution::run`], with rows in place of some embeddings.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub fn run_with_media(
        &mut self,
        pool: &Pool,
        width: usize,
        ids: &[u32],
        media: &[MediaRows<'_>],
        head: Head<'_>,
    ) -> Result<()> {
        self.run_observed(pool, width, ids, media, head, None)
    }

    /// As [`Execution::run`], showing `observer` the inputs of linears, those of the output head for every position, instead of
    /// computing logits; nothing is computed after the linear at which it says that it has seen enough.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub fn observe(&mut self, pool: &Pool, width: usize, ids: &[u32], observer: Observer<'_>) -> Result<()> {
        self.run_observed(pool, width, ids, &[], Head::From(0, &mut |_, _| {}), Some(observer))
    }

    fn run_observed(
        &mut self,
        pool: &Pool,
        width: usize,
        ids: &[u32],
        media: &[MediaRows<'_>],
        head: Head<'_>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        let (wanted, each) = match head {
            Head::Skip => (Wanted::Nothing, None),
            Head::Last => (Wanted::Last, None),
            Head::From(first, each) => (Wanted::From(first), Some(each)),
        };
        let part = Part {
            sequence: self.sequence,
            ids,
            wanted,
            media,
        };
        self.batch.run_observed(pool, width, &[part], each, observer)
    }
}
