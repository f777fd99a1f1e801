//! The blocks of a matrix, encoded on several threads. Each block is encoded by itself, so the bytes do not depend on how
//! many there are.

use crate::error::{Error, Result, ValueText};
use crate::pack::Packed;
use crate::packing::{BLOCK_ROWS, PackedLayout, Packing};
use cactus_base::AlignedBuf;
use std::sync::{Mutex, PoisonError};

/// Rows of a block.
pub(crate) fn rows_per_block(packing: Packing) -> usize {
    match packing {
        Packing::RowMajor => 1,
        _ => BLOCK_ROWS,
    }
}

/// Packs `rows` `[n, k]` on up to `threads` threads. `worker` makes what one thread encodes blocks with: from up to a block of
/// rows to its zeroed bytes, or row and column of a value that cannot be stored. The bytes do not depend on the threads.
///
/// # Errors
/// [`Error::Length`] where `rows` has not `n * k` elements, [`Error::Value`] for the first value in order that cannot be
/// stored, [`Error::OutOfMemory`].
pub fn pack_by<W>(layout: PackedLayout, rows: &[f32], threads: usize, worker: impl Fn() -> W + Sync) -> Result<Packed>
where
    W: FnMut(&[f32], &mut [u8]) -> Result<(), (usize, usize)>,
{
    let (n, k, packing) = (layout.n(), layout.k(), layout.packing());
    if n.checked_mul(k) != Some(rows.len()) {
        return Err(Error::Length {
            what: "source elements",
            n,
            k,
            packing,
            expected: n.saturating_mul(k),
            found: rows.len(),
        });
    }
    let bytes = layout.data_bytes();
    let mut data = AlignedBuf::zeroed(bytes).map_err(|_| Error::OutOfMemory { bytes })?;
    if rows.is_empty() {
        return Ok(Packed::of(layout, data));
    }
    let per_block = rows_per_block(packing);
    let blocks = data
        .chunks_exact_mut(layout.block_bytes())
        .zip(rows.chunks(per_block * k));
    let (queue, failed) = (Mutex::new(blocks.enumerate()), Mutex::new(None::<(usize, usize)>));
    let work = || {
        let mut encode = worker();
        loop {
            // After a failure no more blocks are taken: all before it are under way, so the first in order is found.
            let done = failed.lock().is_ok_and(|f| f.is_some());
            let next = queue.lock().map(|mut q| if done { None } else { q.next() });
            let Ok(Some((index, (block, rows)))) = next else {
                return;
            };
            if let Err((row, column)) = encode(rows, block)
                && let Ok(mut slot) = failed.lock()
            {
                let at = (index * per_block + row, column);
                *slot = Some(slot.map_or(at, |other| other.min(at)));
            }
        }
    };
    let helpers = threads.clamp(1, n.div_ceil(per_block)) - 1;
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(Packed::of(layout, data)),
        Some((row, column)) => Err(Error::Value {
            row,
            column,
            value: ValueText::new(rows[row * k + column]),
            packing,
        }),
    }
}
