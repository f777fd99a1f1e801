//! Snapshots as bytes: what a sequence remembers, kept beyond the process.
//!
//! Purpose: the pages and carried states of a [`Snapshot`], in a form that the same program can take back. It deliberately adds
//! no header, no checksum and no identity of the model: who writes the file knows them, and checks them before.

use crate::batch::Batch;
use crate::grids::Grids;
use crate::pages::Table;
use crate::sharing::{BLOCK, Snapshot};
use crate::{Error, Result};
use cactus_base::AlignedBuf;
use std::io::{Read, Write};

impl Batch {
    /// Writes `snapshot`: its length and the first block held by each group of layers, 8 bytes each, then the pages of each
    /// group in order, then what is carried. Numbers are little-endian, as the pages are.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_snapshot(&self, snapshot: &Snapshot, out: &mut dyn Write) -> std::io::Result<()> {
        if !snapshot.grids.is_empty() {
            // Ids of pictures mean nothing to another process, so nobody has a use for it.
            let what = "a sequence with pictures in grids cannot be written";
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, what));
        }
        out.write_all(&(snapshot.len as u64).to_le_bytes())?;
        for table in &snapshot.tables {
            out.write_all(&(table.first as u64).to_le_bytes())?;
        }
        for (table, pool) in snapshot.tables.iter().zip(&self.pools) {
            for &page in table.pages.iter().skip(table.first) {
                out.write_all(pool.page(page))?;
            }
        }
        for carried in &snapshot.carried {
            out.write_all(carried)?;
        }
        Ok(())
    }

    /// Reads what [`Batch::write_snapshot`] wrote for the same program and kind of KV cache.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for bytes that are no such snapshot or end too soon, [`crate::ErrorKind::Busy`] where there
    /// are not enough pages; those of `input`.
    pub fn read_snapshot(&mut self, input: &mut dyn Read) -> Result<Snapshot> {
        let program = std::sync::Arc::clone(self.program());
        let plans = &program.states;
        let len = read_number(input)?;
        if len > program.context_tokens as u64 {
            let most = program.context_tokens;
            return Err(Error::Argument(format!(
                "a saved sequence of {len} positions does not fit the context of {most}"
            )));
        }
        let len = len as usize;
        let blocks = len.div_ceil(BLOCK);
        let mut snapshot = Snapshot {
            len,
            tables: Vec::with_capacity(plans.groups.len()),
            carried: Vec::new(),
            grids: Grids::default(),
        };
        let mut firsts = Vec::with_capacity(plans.groups.len());
        for group in 0..plans.groups.len() {
            let first = read_number(input)?;
            // What is seen from the last position on must be there.
            let most = plans.first_seen(group, len.saturating_sub(1)).min(blocks);
            if first > most as u64 {
                return Err(Error::Argument(format!(
                    "a saved sequence begins at block {first}, but block {most} is still seen"
                )));
            }
            // Saved by a program with larger chunks, a window may have kept more than it may here.
            let kept = plans.first_held(group, len).min(blocks).max(first as usize);
            firsts.push((first as usize, kept));
        }
        let filled = self.fill(&mut snapshot, &firsts, blocks, input).and_then(|()| {
            for memory in self.carried_sizes() {
                let mut carried = AlignedBuf::zeroed(memory)?;
                read_exactly(input, &mut carried)?;
                snapshot.carried.push(carried);
            }
            Ok(())
        });
        match filled {
            Ok(()) => Ok(snapshot),
            Err(e) => {
                self.release(snapshot);
                Err(e)
            }
        }
    }

    fn fill(
        &mut self,
        snapshot: &mut Snapshot,
        firsts: &[(usize, usize)],
        blocks: usize,
        input: &mut dyn Read,
    ) -> Result<()> {
        for (&(first, kept), pool) in firsts.iter().zip(&mut self.pools) {
            snapshot.tables.push(Table {
                // Those before the first are never looked at.
                pages: vec![0; kept],
                first: kept,
            });
            let Some(table) = snapshot.tables.last_mut() else {
                continue;
            };
            let mut bytes = vec![0; pool.page_bytes()];
            for block in first..blocks {
                read_exactly(input, &mut bytes)?;
                if block < kept {
                    continue;
                }
                let page = pool.take_filled(&bytes).ok_or(Error::Busy {
                    what: "pages of keys and values",
                    capacity: pool.pages(),
                    wanted: blocks - kept,
                    free: 0,
                })?;
                table.pages.push(page);
            }
        }
        Ok(())
    }

    fn carried_sizes(&self) -> Vec<usize> {
        let states = self.program().states.states.iter();
        states.map(crate::state::StatePlan::carried_bytes).collect()
    }
}

fn read_number(input: &mut dyn Read) -> Result<u64> {
    let mut bytes = [0; 8];
    read_exactly(input, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_exactly(input: &mut dyn Read, bytes: &mut [u8]) -> Result<()> {
    let read = input.read_exact(bytes);
    read.map_err(|e| Error::Argument(format!("a saved sequence ends too soon or cannot be read: {e}")))
}
