//! Pages of keys and values, and the sequences that hold them.
//!
//! Purpose: who has which page. A pool is one memory of equal pages; a sequence has a table of its pages for each group of
//! layers. A page can have several holders, who all see the same positions in it; who writes on in such a page gets a copy
//! first. It may depend on how states are laid out. It deliberately knows no kernels and no tokens.

use crate::Result;
use crate::execute::Held;
use crate::grids::Grids;
use crate::state::StatePlans;
use cactus_base::AlignedBuf;
use cactus_kernels::BLOCK_TOKENS;
use std::sync::Arc;

/// Pages of one group of layers.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) memory: AlignedBuf,
    page_bytes: usize,
    /// Holders of each page.
    holders: Vec<u32>,
    /// Pages that nobody holds, the next one last.
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(pages: usize, page_bytes: usize) -> Result<Pool> {
        let too_large = || {
            crate::Error::Argument(format!(
                "{pages} pages of {page_bytes} bytes exceed the address space; ask for a smaller context"
            ))
        };
        let bytes = pages.checked_mul(page_bytes).ok_or_else(too_large)?;
        let ids = u32::try_from(pages).map_err(|_| too_large())?;
        Ok(Pool {
            memory: AlignedBuf::zeroed(bytes)?,
            page_bytes,
            holders: vec![0; pages],
            free: (0..ids).rev().collect(),
        })
    }

    /// Pages that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// All pages.
    pub(crate) fn pages(&self) -> usize {
        self.holders.len()
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// A page of one's own.
    fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Makes one more a holder of a page that is held.
    pub(crate) fn share(&mut self, page: u32) {
        self.holders[page as usize] += 1;
    }

    /// Ends one holder's hold.
    pub(crate) fn give_back(&mut self, page: u32) {
        let holders = &mut self.holders[page as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    pub(crate) fn is_shared(&self, page: u32) -> bool {
        self.holders[page as usize] > 1
    }

    /// The bytes of a page.
    pub(crate) fn page(&self, page: u32) -> &[u8] {
        &self.memory[page as usize * self.page_bytes..][..self.page_bytes]
    }

    /// A new page with these bytes.
    pub(crate) fn take_filled(&mut self, bytes: &[u8]) -> Option<u32> {
        let page = self.take()?;
        self.memory[page as usize * self.page_bytes..][..self.page_bytes].copy_from_slice(bytes);
        Some(page)
    }

    /// A page of one's own with what a shared one holds, in exchange for it.
    fn copy(&mut self, page: u32) -> Option<u32> {
        let own = self.take()?;
        let from = page as usize * self.page_bytes;
        self.memory
            .copy_within(from..from + self.page_bytes, own as usize * self.page_bytes);
        self.give_back(page);
        Some(own)
    }
}

/// Pages of one group that a sequence holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// By block of positions; those before `first` have been given back.
    pub(crate) pages: Vec<u32>,
    pub(crate) first: usize,
}

impl Table {
    /// Gives back the pages of the blocks before `first`.
    fn leave(&mut self, first: usize, pool: &mut Pool) {
        let first = first.min(self.pages.len());
        while self.first < first {
            pool.give_back(self.pages[self.first]);
            self.first += 1;
        }
    }

    /// Gives back the pages of the blocks from `blocks` on.
    fn shorten(&mut self, blocks: usize, pool: &mut Pool) {
        while self.pages.len() > blocks.max(self.first)
            && let Some(page) = self.pages.pop()
        {
            pool.give_back(page);
        }
        if blocks == 0 {
            self.pages.clear();
            self.first = 0;
        }
    }

    /// Holds what `other` holds of the first `blocks` blocks. This table is empty.
    pub(crate) fn join(&mut self, other: &Table, blocks: usize, pool: &mut Pool) {
        self.first = other.first;
        self.pages.extend_from_slice(&other.pages[..blocks]);
        for &page in &self.pages[self.first.min(blocks)..] {
            pool.share(page);
        }
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.leave(usize::MAX, pool);
        self.shorten(0, pool);
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
    pub(crate) given: Option<Arc<Held>>,
    /// Pictures whose rows stand in grids, where the rotary embedding has axes.
    pub(crate) grids: Grids,
}

impl Sequence {
    pub(crate) fn new(plans: &StatePlans) -> Result<Sequence> {
        let carried = plans.states.iter().map(|s| Ok(AlignedBuf::zeroed(s.carried_bytes())?));
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
            grids: Grids::default(),
        })
    }

    /// Pages of `group` that are missing for `len` positions, one for a copy among them.
    pub(crate) fn missing(&self, group: usize, pool: &Pool, len: usize) -> usize {
        let pages = &self.tables[group].pages;
        let copied = self.writes_on(group).is_some_and(|page| pool.is_shared(page));
        len.div_ceil(BLOCK_TOKENS).saturating_sub(pages.len()) + usize::from(copied)
    }

    /// The page in which the next position lies, where there is one already.
    fn writes_on(&self, group: usize) -> Option<u32> {
        let table = &self.tables[group];
        let block = self.len / BLOCK_TOKENS;
        table.pages.get(block).copied().filter(|_| block >= table.first)
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

    /// Takes pages for `len` positions, none of which somebody else sees; the caller has made sure that there are as many.
    pub(crate) fn take(&mut self, pools: &mut [Pool], len: usize) {
        for (group, pool) in pools.iter_mut().enumerate() {
            if let Some(page) = self.writes_on(group).filter(|&page| pool.is_shared(page))
                && let Some(own) = pool.copy(page)
            {
                self.tables[group].pages[self.len / BLOCK_TOKENS] = own;
            }
            let pages = &mut self.tables[group].pages;
            while pages.len() < len.div_ceil(BLOCK_TOKENS)
                && let Some(page) = pool.take()
            {
                pages.push(page);
            }
        }
    }

    /// Forgets every position.
    pub(crate) fn clear(&mut self, pools: &mut [Pool]) {
        self.len = 0;
        self.grids.clear();
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            table.clear(pool);
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
        self.grids.truncate(keep);
        true
    }
}
