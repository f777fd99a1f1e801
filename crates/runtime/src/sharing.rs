//! What sequences of a [`Batch`] have in common: whole blocks of positions, and snapshots.
//!
//! Purpose: that a prefix computed once serves many sequences. A [`Block`] holds the keys and values of 64 positions, and a
//! sequence can begin with any number of them. A [`Snapshot`] holds all that a sequence remembers at one length, also what
//! cannot be cut into blocks: windows, the last inputs of convolutions, recurrences. Neither is copied: pages have several
//! holders, and who writes on in one gets a copy.
//!
//! It deliberately does not know which tokens they stand for, nor when to let go of them. Both must be given back to the batch
//! they came from; one that is dropped keeps its pages for as long as the batch lives.

use crate::batch::{Batch, SequenceId};
use crate::grids::Grids;
use crate::pages::Table;
use crate::{Error, Program, Result};
use cactus_base::AlignedBuf;
use cactus_kernels::BLOCK_TOKENS;

/// Positions of a [`Block`].
pub const BLOCK: usize = BLOCK_TOKENS;

/// The keys and values of [`BLOCK`] positions.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its pages are free once it was given back to its batch"]
pub struct Block {
    pages: Box<[u32]>,
    /// What stands in grids in them.
    grids: Grids,
}

/// All that a sequence remembers at one length.
#[derive(Debug)]
#[must_use = "its pages are free once it was given back to its batch"]
pub struct Snapshot {
    pub(crate) len: usize,
    pub(crate) tables: Vec<Table>,
    pub(crate) carried: Vec<AlignedBuf>,
    pub(crate) grids: Grids,
}

impl Snapshot {
    /// Positions that it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Program {
    /// Whether all that a sequence remembers lies in blocks, so that it can begin with blocks of another
    /// ([`Batch::begin_with`]). Where a layer sees a window or carries a state, only snapshots can be shared.
    pub fn remembers_in_blocks(&self) -> bool {
        self.states.can_rewind() && self.states.groups.iter().all(|group| group.window.is_none())
    }

    /// Element type of keys and values.
    pub fn kv_dtype(&self) -> cactus_kernels::KvDType {
        self.states.dtype
    }

    /// Bytes of keys and values of [`BLOCK`] positions in layers that see all positions.
    pub fn block_bytes(&self) -> usize {
        let all = self.states.groups.iter().filter(|group| group.window.is_none());
        all.map(|group| group.page_bytes).sum()
    }
}

impl Batch {
    /// Block `index` of a sequence, whose positions must have been computed.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where they were not, or the program does not remember in blocks.
    pub fn block(&mut self, id: SequenceId, index: usize) -> Result<Block> {
        let blocks = self.len(id) / BLOCK;
        if index >= blocks || !self.program().remembers_in_blocks() {
            let found = format!("block {index} of a sequence with {blocks} whole blocks cannot be shared");
            return Err(Error::Argument(found));
        }
        let (sequence, pools) = self.parts(id)?;
        let pages: Box<[u32]> = sequence.tables.iter().map(|table| table.pages[index]).collect();
        for (pool, &page) in pools.iter_mut().zip(&pages) {
            pool.share(page);
        }
        let grids = sequence.grids.within(index * BLOCK, (index + 1) * BLOCK);
        Ok(Block { pages, grids })
    }

    /// Lets an empty sequence begin with the first `len` positions of `blocks`, which follow one another.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where the sequence is not empty or the blocks hold fewer positions.
    pub fn begin_with(&mut self, id: SequenceId, blocks: &[&Block], len: usize) -> Result<()> {
        let (sequence, pools) = self.parts(id)?;
        if sequence.len != 0 || blocks.len() != len.div_ceil(BLOCK) {
            let (held, blocks) = (sequence.len, blocks.len());
            return Err(Error::Argument(format!(
                "a sequence of {held} positions cannot begin with {len} positions of {blocks} blocks"
            )));
        }
        for (group, (table, pool)) in sequence.tables.iter_mut().zip(pools).enumerate() {
            table.clear(pool);
            for block in blocks {
                table.pages.push(block.pages[group]);
                pool.share(block.pages[group]);
            }
        }
        sequence.len = len;
        for block in blocks {
            sequence.grids.join(&block.grids);
        }
        sequence.grids.truncate(len);
        Ok(())
    }

    /// Whether giving `block` back would free its pages.
    pub fn is_last_holder(&self, block: &Block) -> bool {
        let pools = self.pools.iter().zip(&block.pages);
        pools.into_iter().all(|(pool, &page)| !pool.is_shared(page))
    }

    /// Gives a block back.
    pub fn release_block(&mut self, block: Block) {
        for (pool, &page) in self.pools.iter_mut().zip(&block.pages) {
            pool.give_back(page);
        }
    }

    /// All that a sequence remembers now.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for a sequence that is not open; where memory cannot be had.
    pub fn snapshot(&mut self, id: SequenceId) -> Result<Snapshot> {
        let (sequence, pools) = self.parts(id)?;
        let carried = sequence.carried.iter().map(|c| AlignedBuf::from_slice(c));
        let carried = carried.collect::<std::result::Result<_, _>>()?;
        let blocks = sequence.len.div_ceil(BLOCK);
        let mut tables = vec![Table::default(); pools.len()];
        for ((own, table), pool) in tables.iter_mut().zip(&sequence.tables).zip(pools) {
            own.join(table, blocks, pool);
        }
        Ok(Snapshot {
            len: sequence.len,
            tables,
            carried,
            grids: sequence.grids.clone(),
        })
    }

    /// Makes a sequence remember the first `keep` positions of `snapshot` and nothing else. `false`, and the sequence is empty,
    /// where the snapshot cannot be cut so short: a window that moved on, a state that cannot be rewound.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for a sequence that is not open, or more positions than the snapshot has.
    pub fn restore(&mut self, id: SequenceId, snapshot: &Snapshot, keep: usize) -> Result<bool> {
        if keep > snapshot.len {
            let len = snapshot.len;
            return Err(Error::Argument(format!(
                "a snapshot of {len} positions does not hold {keep}"
            )));
        }
        let program = std::sync::Arc::clone(self.program());
        let (sequence, pools) = self.parts(id)?;
        sequence.clear(pools);
        let blocks = snapshot.len.div_ceil(BLOCK);
        for ((own, table), pool) in sequence.tables.iter_mut().zip(&snapshot.tables).zip(&mut *pools) {
            own.join(table, blocks, pool);
        }
        for (own, carried) in sequence.carried.iter_mut().zip(&snapshot.carried) {
            own.copy_from_slice(carried);
        }
        sequence.len = snapshot.len;
        sequence.grids.clone_from(&snapshot.grids);
        if !sequence.truncate(&program.states, pools, keep) {
            sequence.clear(pools);
            return Ok(false);
        }
        Ok(true)
    }

    /// Gives a snapshot back.
    pub fn release(&mut self, mut snapshot: Snapshot) {
        for (table, pool) in snapshot.tables.iter_mut().zip(&mut self.pools) {
            table.clear(pool);
        }
    }
}
