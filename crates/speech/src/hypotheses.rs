//! Texts about one sound, written side by side: sequences of one batch, which share the sound's keys and values and the prompt's.
//!
//! A text has the same tokens alone and beside others, as a row's logits have the same bits in any company.

use crate::{Error, Result};
use cactus_base::Pool;
use cactus_runtime::{Batch, Capacity, EachRow, Logits, Part, Program, SequenceId, Wanted};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A decoder with memory for a number of texts.
#[derive(Debug)]
pub(crate) struct Hypotheses {
    batch: Batch,
    /// The first is given sound and prompt.
    sequences: Vec<SequenceId>,
    pool: Pool,
    threads: usize,
}

impl Hypotheses {
    pub(crate) fn new(program: Arc<Program>, most: usize, threads: usize) -> Result<Hypotheses> {
        let capacity = Capacity {
            sequences: most,
            // Each, and each once more while they change places.
            tokens: 2 * most * program.context_tokens(),
            snapshots: most,
        };
        let mut batch = Batch::new(program, capacity)?;
        let sequences = (0..most).map(|_| batch.open()).collect::<cactus_runtime::Result<_>>()?;
        Ok(Hypotheses {
            batch,
            sequences,
            pool: Pool::new(threads),
            threads,
        })
    }

    /// Makes room for so many texts; the sound is forgotten where there was less.
    pub(crate) fn reserve(&mut self, most: usize) -> Result<()> {
        if most > self.sequences.len() {
            *self = Hypotheses::new(Arc::clone(self.batch.program()), most, self.threads)?;
        }
        Ok(())
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        self.batch.program()
    }

    /// Threads, and how many work at once.
    pub(crate) fn pool(&self) -> (&Pool, usize) {
        (&self.pool, self.threads)
    }

    /// Forgets the sound.
    pub(crate) fn forget(&mut self) -> Result<()> {
        let all = self.sequences.iter();
        Ok(all
            .copied()
            .try_for_each(|sequence| self.batch.forget_given(sequence))?)
    }

    /// Takes what the encoder gave.
    pub(crate) fn hear(&mut self, states: &BTreeMap<String, Tensor>) -> Result<()> {
        let first = self.sequences[0];
        self.batch.give(first, &self.pool, self.threads, states)?;
        for &other in &self.sequences[1..] {
            self.batch.share_given(first, other)?;
        }
        Ok(())
    }

    /// Reads `prompt`, and shows the logits of its positions from `from` on, counted from there.
    pub(crate) fn read(&mut self, prompt: &[u32], from: usize, each: EachRow<'_>) -> Result<()> {
        let sequence = self.sequences[0];
        self.batch.clear(sequence);
        let chunk = self.program().chunk_tokens().max(1);
        for (i, ids) in prompt.chunks(chunk).enumerate() {
            let begin = i * chunk;
            let wanted = match from < begin + ids.len() {
                true => Wanted::From(from.saturating_sub(begin)),
                false => Wanted::Nothing,
            };
            let part = Part {
                sequence,
                ids,
                wanted,
                media: &[],
            };
            let mut each = |row: usize, logits: Logits<'_>| each(begin + row - from, logits);
            self.batch.run(&self.pool, self.threads, &[part], Some(&mut each))?;
        }
        Ok(())
    }

    /// Lets the first `count` texts begin behind the first `prompt` tokens of the first one.
    pub(crate) fn begin(&mut self, count: usize, prompt: usize) -> Result<()> {
        if !self.batch.truncate(self.sequences[0], prompt) {
            let what = "its decoder cannot go back to the end of its prompt, which several texts about one sound need";
            return Err(Error::Model(what.into()));
        }
        self.follow(&vec![0; count])
    }

    /// Lets each text continue the one that stands at its place in `parents`.
    pub(crate) fn follow(&mut self, parents: &[usize]) -> Result<()> {
        let moved = parents.iter().enumerate().filter(|(text, parent)| text != *parent);
        let mut needed: Vec<usize> = moved.clone().map(|(_, parent)| *parent).collect();
        needed.sort_unstable();
        needed.dedup();
        let mut held = BTreeMap::new();
        for parent in needed {
            held.insert(parent, self.batch.snapshot(self.sequences[parent])?);
        }
        let mut done = Ok(());
        for (text, parent) in moved {
            let snapshot = &held[parent];
            let restored = self.batch.restore(self.sequences[text], snapshot, snapshot.len());
            done = done.and(restored.map(drop));
        }
        held.into_values().for_each(|snapshot| self.batch.release(snapshot));
        Ok(done?)
    }

    /// Adds a token to each of the texts named, and shows the logits that follow, in their order.
    pub(crate) fn write(&mut self, tokens: &[(usize, u32)], each: EachRow<'_>) -> Result<()> {
        let parts: Vec<Part<'_>> = tokens
            .iter()
            .map(|(text, token)| Part {
                sequence: self.sequences[*text],
                ids: std::slice::from_ref(token),
                wanted: Wanted::Last,
                media: &[],
            })
            .collect();
        Ok(self.batch.run(&self.pool, self.threads, &parts, Some(each))?)
    }
}
