//! A bundle ready to compute windows of tokens.

use crate::Result;
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_quant::Packed;
use cactus_runtime::{Execution, Head, KvDType, Logits, Observer, Options, Program};
use std::path::Path;
use std::sync::Arc;

/// Name of the component that makes logits.
const DECODER: &str = "decoder";

/// Tokens computed at once.
const CHUNK_TOKENS: usize = 512;

/// A loaded bundle with threads and one sequence.
#[derive(Debug)]
pub struct Runner {
    program: Arc<Program>,
    execution: Execution,
    pool: Pool,
    threads: usize,
}

impl Runner {
    /// Loads the bundle in `folder` for windows of at most `context` tokens. Keys and values are kept in half precision, so
    /// that what is measured is the weights.
    ///
    /// # Errors
    /// What is missing, damaged or not supported.
    pub fn open(folder: &Path, context: usize, threads: usize) -> Result<Self> {
        let bundle = Arc::new(Bundle::open(folder)?);
        Model::check_answers(&bundle)?;
        let options = Options {
            context_tokens: context,
            chunk_tokens: CHUNK_TOKENS,
            kv_dtype: KvDType::F16,
            ..Options::default()
        };
        let program = Arc::new(Program::new(bundle, DECODER, &options)?);
        Ok(Self {
            execution: Execution::new(Arc::clone(&program))?,
            pool: Pool::new(threads.max(1)),
            threads: threads.max(1),
            program,
        })
    }

    /// The bundle.
    #[must_use]
    pub fn bundle(&self) -> &Arc<Bundle> {
        self.program.bundle()
    }

    /// Logits for a position.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.program.vocab_size()
    }

    /// Tokens of the longest window.
    #[must_use]
    pub fn context_tokens(&self) -> usize {
        self.program.context_tokens()
    }

    /// Threads it computes on.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Forgets the window under way.
    pub fn reset(&mut self) {
        self.execution.clear();
    }

    /// Computes `tokens` after those of the window under way; `each` gets the logits of every position from the
    /// `first`-th of `tokens` on, with its index in `tokens`.
    ///
    /// # Errors
    /// What the runtime found.
    pub fn feed(&mut self, tokens: &[u32], first: usize, each: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let size = self.program.chunk_tokens();
        for (c, chunk) in tokens.chunks(size).enumerate() {
            let start = c * size;
            let wanted = first.saturating_sub(start);
            let mut inner = |i: usize, logits: Logits<'_>| each(start + i, &logits);
            let head = if wanted >= chunk.len() {
                Head::Skip
            } else {
                Head::From(wanted, &mut inner)
            };
            self.execution.run(&self.pool, self.threads, chunk, head)?;
        }
        Ok(())
    }

    /// Computes a window from an empty context, showing `observer` the inputs of linears until it has seen enough.
    ///
    /// # Errors
    /// What the runtime found.
    pub fn observe(&mut self, window: &[u32], observer: Observer<'_>) -> Result<()> {
        self.reset();
        for chunk in window.chunks(self.program.chunk_tokens()) {
            self.execution
                .observe(&self.pool, self.threads, chunk, &mut *observer)?;
        }
        self.reset();
        Ok(())
    }

    /// Computes with `matrix` in place of the stored tensor `name` from now on; `None` restores it.
    ///
    /// # Errors
    /// Where there is no such tensor, or one of another shape or packing.
    pub fn replace(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        Ok(self.execution.replace_weight(name, matrix)?)
    }
}
