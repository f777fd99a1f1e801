//! Caches: what a cache holds after a node is the value that later nodes read, and the last one is kept by the graph.

use super::{Lower, Operands};
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{Dim, ValueId};

/// Which positions stay where `held` would be more than `most`: so many of the first, and from there on.
pub(crate) fn kept(held: usize, new: usize, most: usize, sink: usize) -> Option<(usize, usize)> {
    if held + new <= most {
        return None;
    }
    let first = sink.min(most.saturating_sub(new));
    Some((first, held + new - (most - first)))
}

impl Lower {
    fn held(&self, x: &Operands<'_>, rank: usize, what: &str) -> Result<(usize, ValueId)> {
        let id = x.ids.get(1).copied();
        id.and_then(|id| Some((id, *self.states.get(&id)?)))
            .filter(|&(_, v)| self.b.ty(v).shape.len() == rank)
            .ok_or_else(|| Error::argument(format!("the second operand is not {what}")))
    }

    /// Rows of the width that a cache has.
    fn rows(&mut self, v: ValueId, row: &[usize]) -> Result<(usize, ValueId)> {
        let shape = self.shape(v)?;
        let (all, each): (usize, usize) = (shape.iter().product(), row.iter().product());
        if each == 0 || all % each != 0 {
            return Err(Error::shape(format!(
                "{shape:?} are not rows of {row:?}, which the cache holds"
            )));
        }
        let whole: Vec<usize> = std::iter::once(all / each).chain(row.iter().copied()).collect();
        Ok((all / each, self.reshape(v, &whole)?))
    }

    /// The limits of the cache stand in the state itself: `most` positions, of which `sink` first always stay.
    pub(super) fn kv_append(&mut self, x: &Operands<'_>) -> Result<ValueId> {
        let (id, held) = self.held(x, 3, "a cache of keys or values")?;
        let shape = self.b.shape(held);
        let row: Vec<usize> = shape[1..].iter().filter_map(Dim::as_known).collect();
        let (new, rows) = self.rows(x.values[0], &row)?;
        let mut all = self.join(0, &[held, rows])?;
        let limit = self.limits.get(&id).copied();
        if let (Some(before), Some((most, sink))) = (shape[0].as_known(), limit)
            && let Some((first, from)) = kept(before, new, most, sink)
        {
            let behind = self.part(all, 0, from, before + new)?;
            all = match first {
                0 => behind,
                first => {
                    let sink = self.part(all, 0, 0, first)?;
                    self.join(0, &[sink, behind])?
                }
            };
        }
        self.states.insert(id, all);
        let size = self.b.shape(all)[0].clone();
        self.size_of(size)
    }

    pub(super) fn conv_append(&mut self, x: &Operands<'_>) -> Result<ValueId> {
        let (id, held) = self.held(x, 2, "a cache of a convolution")?;
        let shape = self.shape(held)?;
        let (new, rows) = self.rows(x.values[0], &shape[1..])?;
        let all = self.join(0, &[held, rows])?;
        let window = self.part(all, 0, new, new + shape[0])?;
        self.states.insert(id, window);
        Ok(window)
    }

    pub(super) fn conv_initialize(&mut self, x: &Operands<'_>) -> Result<ValueId> {
        let (id, held) = self.held(x, 2, "a cache of a convolution")?;
        let shape = self.shape(held)?;
        let (new, rows) = self.rows(x.values[0], &shape[1..])?;
        let window = match new.checked_sub(shape[0]) {
            Some(over) => self.part(rows, 0, over, new)?,
            None => self.pad_axis(rows, 0, [shape[0] - new, 0], 0.0)?,
        };
        self.states.insert(id, window);
        Ok(self.b.vector(Vec::new())?)
    }

    pub(super) fn recurrent_write(&mut self, x: &Operands<'_>) -> Result<ValueId> {
        let id = x.ids.get(1).copied().unwrap_or(usize::MAX);
        let Some(&held) = self.states.get(&id) else {
            return Err(Error::argument("the second operand is not a cache of a tensor"));
        };
        let shape = self.shape(held)?;
        let value = self.reshape(x.values[0], &shape)?;
        self.states.insert(id, value);
        Ok(x.values[0])
    }
}
