//! A component lowered for this CPU: what executions share.

use crate::lower;
use crate::profile::{Profile, ProfileRow};
use crate::state::StatePlans;
use crate::step::{Lowered, Step};
use crate::{Error, MemoryReport, Result};
use cactus_bundle::{Bundle, Weight};
use cactus_ir::Op;
use cactus_kernels::{Kernels, KvDType};
use cactus_quant::PackedView;
use std::sync::Arc;

/// Choices made when a component is lowered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Positions the states can hold; at most what the model was made for.
    pub context_tokens: usize,
    /// Most positions computed by one call.
    pub chunk_tokens: usize,
    /// Rows of a medium that one call can compute beside these, where the component lets them see each other, as no call may end within them then.
    pub rows_together: usize,
    /// Element type of the KV cache.
    pub kv_dtype: KvDType,
    /// Kernels to use; `None` takes the fastest tier of this CPU (or the one that `CACTUS_ISA` names).
    pub kernels: Option<&'static Kernels>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            context_tokens: 2048,
            chunk_tokens: 128,
            rows_together: 0,
            kv_dtype: KvDType::I8G32,
            kernels: None,
        }
    }
}

/// A component lowered for this CPU. See the crate documentation.
#[derive(Debug)]
pub struct Program {
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) kernels: &'static Kernels,
    pub(crate) lowered: Lowered,
    pub(crate) states: StatePlans,
    pub(crate) context_tokens: usize,
    pub(crate) chunk_tokens: usize,
}

impl Program {
    /// Lowers the component `name` of `bundle`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Bundle`] where the bundle is damaged, [`crate::ErrorKind::Unsupported`] naming the node that
    /// cannot be lowered, [`crate::ErrorKind::Argument`] for options out of range.
    pub fn new(bundle: Arc<Bundle>, name: &str, options: &Options) -> Result<Program> {
        let (graph, bindings) = bundle.graph(name)?;
        if options.context_tokens == 0 || options.chunk_tokens == 0 {
            return Err(Error::Argument(
                "expected a context and a chunk of at least one token, found 0".into(),
            ));
        }
        let context_tokens = options.context_tokens.min(bundle.manifest().context_tokens);
        let see_ahead = graph
            .nodes()
            .any(|(_, node)| matches!(&node.op, Op::Attention(a) if a.until));
        let together = if see_ahead { options.rows_together } else { 0 };
        let chunk_tokens = options.chunk_tokens.saturating_add(together).min(context_tokens);
        let kernels = match options.kernels {
            Some(k) => k,
            None => Kernels::detect()?,
        };
        let lowered = lower::lower(&graph, &bundle, &bindings, chunk_tokens, options.kv_dtype, kernels)?;
        let states = StatePlans::new(graph.states(), context_tokens, chunk_tokens, options.kv_dtype)?;
        // Some weights were read and kept in another form.
        bundle.intact()?;
        Ok(Program {
            bundle,
            kernels,
            lowered,
            states,
            context_tokens,
            chunk_tokens,
        })
    }

    /// The bundle.
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// The kernels chosen.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// Positions the states can hold.
    pub fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// Most positions computed by one call.
    pub fn chunk_tokens(&self) -> usize {
        self.chunk_tokens
    }

    /// Logits for a position.
    pub fn vocab_size(&self) -> usize {
        self.lowered.vocab_size
    }

    /// Inputs beside the token ids, which hold for a whole sequence: [`crate::Execution::give`] takes them.
    pub fn given_inputs(&self) -> &[String] {
        self.lowered.given.as_ref().map_or(&[], |g| &g.inputs)
    }

    /// Whether rows of a [`crate::MediaRows`] may see each other, the later ones too. No call may end within them then.
    pub fn media_see_ahead(&self) -> bool {
        self.lowered.media.see_ahead
    }

    /// Whether rows stand in grids, so that a [`crate::MediaRows`] has to say how many columns its grid has.
    pub fn media_in_grids(&self) -> bool {
        self.lowered.media.in_grids
    }

    /// Width of the rows that may stand in place of embeddings ([`crate::MediaRows`]); none where the model takes no such.
    pub fn media_width(&self) -> Option<usize> {
        self.lowered.media.width
    }

    /// Whether an execution can forget the last `tokens` positions of a call, whatever came before: not where a state keeps
    /// less than that, as a convolution's.
    pub fn can_rewind(&self, tokens: usize) -> bool {
        tokens < self.chunk_tokens && self.states.can_rewind()
    }

    /// Where the memory goes.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport {
            mapped_bytes: self.bundle.mapped_bytes(),
            arena_bytes: self.lowered.arena_bytes,
            buffers_bytes: self.lowered.buffers_bytes,
            state_bytes: self.states.bytes(),
            logits_bytes: self.lowered.vocab_size * 4,
        }
    }

    /// Lines of `profile`, slowest first.
    pub fn profile_rows(&self, profile: &Profile) -> Vec<ProfileRow> {
        let mut rows: Vec<ProfileRow> = self
            .lowered
            .steps
            .iter()
            .zip(profile.nanos.iter().zip(&profile.calls))
            .filter(|(_, (_, calls))| **calls > 0)
            .map(|(step, (&nanos, &calls))| ProfileRow {
                label: step.label.clone(),
                kind: step.kind.name(),
                calls,
                total_us: nanos as f64 / 1e3,
            })
            .collect();
        rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        rows
    }

    /// The stored tensor at an index made by lowering.
    pub(crate) fn weight(&self, index: usize) -> Weight<'_> {
        self.bundle.weight_at(self.lowered.weights[index])
    }

    /// Name of the stored tensor at an index made by lowering.
    pub(crate) fn weight_name(&self, index: usize) -> &str {
        self.bundle.weight_name(self.lowered.weights[index])
    }

    pub(crate) fn matrix(&self, index: usize) -> Result<PackedView<'_>> {
        self.weight(index).matrix().map_err(|source| Error::Weight {
            weight: self.bundle.weight_name(self.lowered.weights[index]).to_owned(),
            source,
        })
    }

    /// A weight kept as plain `f32`, which lowering has checked.
    pub(crate) fn vector(&self, index: usize) -> &[f32] {
        bytemuck::cast_slice(self.weight(index).data)
    }

    /// One line for each step: what runs, for people.
    pub fn listing(&self) -> Vec<String> {
        self.lowered.steps.iter().map(Step::describe).collect()
    }
}
