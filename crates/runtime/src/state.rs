//! Memory that outlives a call: how each state of a graph is laid out. The graph says what a state holds; the element type of
//! the KV cache is chosen here.
//!
//! Keys and values lie in pages of [`BLOCK_TOKENS`] positions. Layers whose attention sees equally far share pages: a page of
//! their *group* holds the same positions of all of them. So a sequence has one table for each group, takes a page when it
//! reaches new positions, and gives those back that its window has left behind. What a convolution or a recurrence carries is
//! memory of its own.

use crate::{Error, Result};
use cactus_ir::{State, StateKind};
use cactus_kernels::{BLOCK_TOKENS, KvDType, KvLayout};

/// How one state is laid out.
#[derive(Clone, Debug)]
pub(crate) enum StatePlan {
    /// Keys and values, in pages of the group of this index.
    Kv { layout: KvLayout, group: usize },
    /// What is zero before the first position and cannot be taken back: a convolution's last inputs, a recurrence.
    Carried { elems: usize },
}

impl StatePlan {
    /// Bytes that a sequence carries for it; 0 where it is in pages.
    pub(crate) fn carried_bytes(&self) -> usize {
        match self {
            StatePlan::Carried { elems } => elems * 4,
            StatePlan::Kv { .. } => 0,
        }
    }
}

/// Layers whose keys and values are kept equally long.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Positions that a query sees; `None` for all.
    pub(crate) window: Option<usize>,
    /// A page: [`BLOCK_TOKENS`] positions of every layer of the group.
    pub(crate) page_bytes: usize,
    /// Most pages that one sequence holds.
    pub(crate) most_pages: usize,
}

/// The states of a program.
#[derive(Clone, Debug)]
pub(crate) struct StatePlans {
    pub(crate) states: Vec<StatePlan>,
    pub(crate) groups: Vec<Group>,
    /// Blocks of the whole context.
    pub(crate) blocks: usize,
    /// Element type of keys and values.
    pub(crate) dtype: KvDType,
    /// Most positions appended by one call.
    chunk: usize,
}

impl StatePlans {
    pub(crate) fn new(states: &[State], context: usize, chunk: usize, dtype: KvDType) -> Result<StatePlans> {
        let mut groups: Vec<Group> = Vec::new();
        let mut plans = Vec::with_capacity(states.len());
        for state in states {
            let too_large = || {
                Error::Argument(format!(
                    "the memory for state `{}` is larger than the address space",
                    state.name
                ))
            };
            plans.push(match &state.kind {
                StateKind::Kv {
                    kv_heads,
                    head_dim,
                    window,
                } => {
                    let layout = KvLayout::new(*kv_heads, *head_dim, dtype)?;
                    let group = match groups.iter().position(|g| g.window == *window) {
                        Some(group) => group,
                        None => {
                            groups.push(Group {
                                window: *window,
                                page_bytes: 0,
                                most_pages: most_pages(*window, context, chunk),
                            });
                            groups.len() - 1
                        }
                    };
                    let page = &mut groups[group].page_bytes;
                    *page = page.checked_add(layout.bytes()).ok_or_else(too_large)?;
                    StatePlan::Kv { layout, group }
                }
                StateKind::Conv { channels, rows } => StatePlan::Carried {
                    elems: channels.checked_mul(*rows).ok_or_else(too_large)?,
                },
                StateKind::Recurrent { shape } => StatePlan::Carried {
                    elems: cactus_tensor::element_count(shape)
                        .map_err(|e| Error::Argument(format!("state `{}`: {e}", state.name)))?,
                },
                other => {
                    return Err(Error::Unsupported {
                        node: format!("state {}", state.name),
                        message: format!("expected a state of kind kv, conv or recurrent, found {other:?}"),
                    });
                }
            });
        }
        // Where in its page the part of each layer lies is known once the pages are.
        let mut used = vec![0; groups.len()];
        for plan in &mut plans {
            if let StatePlan::Kv { layout, group } = plan {
                let offset = used[*group];
                used[*group] += layout.bytes();
                *layout = layout.clone().placed(offset, groups[*group].page_bytes);
            }
        }
        Ok(StatePlans {
            states: plans,
            groups,
            blocks: context.div_ceil(BLOCK_TOKENS),
            dtype,
            chunk,
        })
    }

    /// Bytes of what a sequence holds at the full context.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.groups.iter().map(|g| g.most_pages.saturating_mul(g.page_bytes));
        pages.fold(self.carried_bytes(), usize::saturating_add)
    }

    /// Bytes of what a sequence carries beside keys and values.
    pub(crate) fn carried_bytes(&self) -> usize {
        let carried = self.states.iter().map(StatePlan::carried_bytes);
        carried.fold(0, usize::saturating_add)
    }

    /// Whether the positions of one call can always be forgotten: of a window, a chunk more is kept than it needs.
    pub(crate) fn can_rewind(&self) -> bool {
        self.states.iter().all(|s| matches!(s, StatePlan::Kv { .. }))
    }

    /// Whether something is carried from position to position that cannot be taken back.
    pub(crate) fn carries(&self) -> bool {
        !self.can_rewind()
    }

    /// First block of `group` that is still held when a sequence reaches `len` positions.
    pub(crate) fn first_held(&self, group: usize, len: usize) -> usize {
        match self.groups[group].window {
            None => 0,
            Some(w) => len.saturating_sub(w.saturating_add(self.chunk)) / BLOCK_TOKENS,
        }
    }

    /// First block of `group` that a query at position `position` sees.
    pub(crate) fn first_seen(&self, group: usize, position: usize) -> usize {
        match self.groups[group].window {
            None => 0,
            Some(w) => (position + 1).saturating_sub(w) / BLOCK_TOKENS,
        }
    }
}

/// Most pages held by a sequence of `context` positions, appended in chunks of at most `chunk`: of a window, the window and a
/// chunk, which may begin anywhere in a page.
fn most_pages(window: Option<usize>, context: usize, chunk: usize) -> usize {
    let all = context.div_ceil(BLOCK_TOKENS);
    match window {
        None => all,
        Some(w) => (w.saturating_add(chunk).div_ceil(BLOCK_TOKENS) + 1).min(all),
    }
}
