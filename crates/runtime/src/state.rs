//! Memory that outlives a call: how each state of a graph is laid out, and how far it can go back. The graph says what a state
//! holds; the element type of the KV cache is chosen here.

use crate::{Error, Result};
use cactus_base::AlignedBuf;
use cactus_ir::{State, StateKind};
use cactus_kernels::{KvDType, KvLayout};

/// How one state is laid out.
#[derive(Clone, Debug)]
pub(crate) enum StatePlan {
    Kv {
        layout: KvLayout,
        /// Positions that may be rolled back without losing one still visible; `None` without a window.
        window: Option<usize>,
    },
    /// What is zero before the first position and cannot be taken back: a convolution's last inputs, a recurrence.
    Carried { elems: usize },
}

impl StatePlan {
    pub(crate) fn new(state: &State, context: usize, chunk: usize, dtype: KvDType) -> Result<StatePlan> {
        match &state.kind {
            StateKind::Kv {
                kv_heads,
                head_dim,
                window,
            } => {
                // A chunk is appended before it is read: the oldest query of a chunk still needs its whole window.
                let capacity = window.map_or(context, |w| w.saturating_add(chunk).min(context));
                let layout = KvLayout::new(*kv_heads, *head_dim, dtype, capacity)?;
                Ok(StatePlan::Kv {
                    window: *window,
                    layout,
                })
            }
            StateKind::Conv { channels, rows } => {
                let elems = channels.checked_mul(*rows);
                let elems = elems.ok_or_else(|| Error::Argument(format!("state `{}` is too large", state.name)))?;
                Ok(StatePlan::Carried { elems })
            }
            StateKind::Recurrent { shape } => {
                let elems = cactus_tensor::element_count(shape)
                    .map_err(|e| Error::Argument(format!("state `{}`: {e}", state.name)))?;
                Ok(StatePlan::Carried { elems })
            }
            other => Err(Error::Unsupported {
                node: format!("state {}", state.name),
                message: format!("{other:?} is not supported yet; supported are kv, conv and recurrent"),
            }),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            StatePlan::Kv { layout, .. } => layout.bytes(),
            StatePlan::Carried { elems } => elems * 4,
        }
    }

    /// Whether the positions of one call can always be forgotten: a window's ring has room for a chunk more than it needs.
    pub(crate) fn can_rewind(&self) -> bool {
        matches!(self, StatePlan::Kv { .. })
    }

    /// Whether positions from `keep` on, of `len` held, can be forgotten and the rest be as if they never were.
    pub(crate) fn can_truncate(&self, len: usize, keep: usize) -> bool {
        match self {
            StatePlan::Kv { window: None, .. } => true,
            StatePlan::Kv {
                window: Some(w),
                layout,
            } => {
                // Position `keep - w + 1` must not have been overwritten by position `len - 1`.
                let oldest_needed = keep.saturating_sub(w.saturating_sub(1));
                len.saturating_sub(layout.capacity_tokens()) <= oldest_needed
            }
            StatePlan::Carried { .. } => keep == len || keep == 0,
        }
    }
}

/// Memory of the states of one execution.
#[derive(Debug)]
pub(crate) struct States {
    pub(crate) buffers: Vec<AlignedBuf>,
    pub(crate) len: usize,
}

impl States {
    pub(crate) fn new(plans: &[StatePlan]) -> Result<States> {
        let buffers: std::result::Result<Vec<_>, _> = plans.iter().map(|p| AlignedBuf::zeroed(p.bytes())).collect();
        Ok(States {
            buffers: buffers?,
            len: 0,
        })
    }

    /// Forgets all positions. KV entries past the length are never read; convolution state must be zero.
    pub(crate) fn clear(&mut self, plans: &[StatePlan]) {
        self.len = 0;
        for (buffer, plan) in self.buffers.iter_mut().zip(plans) {
            if matches!(plan, StatePlan::Carried { .. }) {
                buffer.fill(0);
            }
        }
    }
}
