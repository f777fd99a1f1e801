//! Pages of keys and values, and the sequences that hold them.
//!
//! Purpose: who has which page. A pool is one memory of equal pages; a sequence has a table of its pages for each group of
//! layers. It may depend on how states are laid out. It deliberately knows no kernels and no tokens, and never moves a page.

use crate::Result;
use crate::execute::Held;
use crate::state::{StatePlan, StatePlans};
use cactus_base::AlignedBuf;
use cactus_kernels::BLOCK_TOKENS;

/// Pages of one group of layers.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) memory: AlignedBuf,
    pages: usize,
    /// Pages that nobody holds, the next one last.
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(pages: usize, page_bytes: usize) -> Result<Pool> {
        let too_large = || crate::Error::Argument(format!("{pages} pages of {page_bytes} bytes are too many"));
        let bytes = pages.checked_mul(page_bytes).ok_or_else(too_large)?;
        let ids = u32::try_from(pages).map_err(|_| too_large())?;
        Ok(Pool {
            memory: AlignedBuf::zeroed(bytes)?,
            pages,
            free: (0..ids).rev().collect(),
        })
    }

    /// Pages that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// All pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }
}

/// Pages of one group that a sequence holds.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By block of positions; those before `first` have been given back.
    pub(crate) pages: Vec<u32>,
    first: usize,
}

impl Table {
    /// Gives back the pages of the blocks before `first`.
    fn leave(&mut self, first: usize, pool: &mut Pool) {
        let first = first.min(self.pages.len());
        while self.first < first {
            pool.free.push(self.pages[self.first]);
            self.first += 1;
        }
    }

    /// Gives back the pages of the blocks from `blocks` on.
    fn shorten(&mut self, blocks: usize, pool: &mut Pool) {
        while self.pages.len() > blocks.max(self.first) {
            pool.free.extend(self.pages.pop());
        }
        if blocks == 0 {
            self.pages.clear();
            self.first = 0;
        }
    }
}

/// One sequence: its positions, and where what it remembers lies.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) len: usize,
    /// For each group.
    pub(crate) tables: Vec<Table>,
    /// For each state; empty where it is in pages.
    pub(crate) carried: Vec<AlignedBuf>,
    /// What holds for the whole sequence.
    pub(crate) given: Option<Held>,
}

impl Sequence {
    pub(crate) fn new(plans: &StatePlans) -> Result<Sequence> {
        let elems = |plan: &StatePlan| match plan {
            StatePlan::Carried { elems } => *elems,
            StatePlan::Kv { .. } => 0,
        };
        let carried = plans.states.iter().map(|s| Ok(AlignedBuf::zeroed(elems(s) * 4)?));
        // As long as it can become: nothing is allocated for a token later on.
        let table = |_| Table {
            pages: Vec::with_capacity(plans.blocks),
            first: 0,
        };
        Ok(Sequence {
            len: 0,
            tables: plans.groups.iter().map(table).collect(),
            carried: carried.collect::<Result<_>>()?,
            given: None,
        })
    }

    /// Pages of `group` that are missing for `len` positions.
    pub(crate) fn missing(&self, group: usize, len: usize) -> usize {
        len.div_ceil(BLOCK_TOKENS)
            .saturating_sub(self.tables[group].pages.len())
    }

    /// Pages of `group` that [`Sequence::leave`] would give back.
    pub(crate) fn leaving(&self, plans: &StatePlans, group: usize, len: usize) -> usize {
        let table = &self.tables[group];
        let first = plans.first_held(group, len).min(table.pages.len());
        first.saturating_sub(table.first)
    }

    /// Gives back what lies behind the windows once `len` positions are held.
    pub(crate) fn leave(&mut self, plans: &StatePlans, pools: &mut [Pool], len: usize) {
        for (group, (table, pool)) in self.tables.iter_mut().zip(pools).enumerate() {
            table.leave(plans.first_held(group, len), pool);
        }
    }

    /// Takes pages for `len` positions; the caller has made sure that there are as many.
    pub(crate) fn take(&mut self, pools: &mut [Pool], len: usize) {
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            while table.pages.len() < len.div_ceil(BLOCK_TOKENS)
                && let Some(page) = pool.free.pop()
            {
                table.pages.push(page);
            }
        }
    }

    /// Forgets every position.
    pub(crate) fn clear(&mut self, pools: &mut [Pool]) {
        self.len = 0;
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            table.leave(usize::MAX, pool);
            table.shorten(0, pool);
        }
        // What a carried state holds must be zero; pages past the length are never read.
        for memory in &mut self.carried {
            memory.fill(0);
        }
    }

    /// Forgets the positions from `keep` on, if what is before them is still held.
    pub(crate) fn truncate(&mut self, plans: &StatePlans, pools: &mut [Pool], keep: usize) -> bool {
        if keep >= self.len {
            return keep == self.len;
        }
        if keep == 0 {
            self.clear(pools);
            return true;
        }
        let seen = |group: usize, table: &Table| table.first <= plans.first_seen(group, keep);
        if plans.carries() || !self.tables.iter().enumerate().all(|(g, t)| seen(g, t)) {
            return false;
        }
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            table.shorten(keep.div_ceil(BLOCK_TOKENS), pool);
        }
        self.len = keep;
        true
    }
}
