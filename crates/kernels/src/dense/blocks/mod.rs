//! Planes whose channels lie in the lanes, sixteen side by side: `[blocks of channels, places, 16]`.
//!
//! Purpose: between convolutions over two axes nothing then has to be packed, framed by lanes or turned: a place is a line, whatever the width of its
//! plane or the stride of a window is, filters lie in the lanes of a product, and channels in those of everything else. Lanes behind the last channel hold
//! anything, and nothing reads them.
//!
//! Threads share places and not channels, wherever there are more inputs than weights: what a thread has made is then mostly what it reads next.
//!
//! [`Exec::to_blocks`] and [`Exec::from_blocks`] go from planes and back, [`Exec::rows_to_blocks`] and [`Exec::blocks_to_rows`] from rows of channels, [`Exec::conv_blocks`] multiplies (`conv`, or `tiles` for three by three
//! taps), [`Exec::depthwise_blocks`] has taps for each channel alone.

mod conv;
mod depthwise;
mod places;
mod rows;
mod sums;
mod tiles;
mod transpose;

pub use conv::{BlockConv, BlockEpilogue, Filters, Source};
pub(super) use sums::{GROUP, groups};
pub use transpose::BlockTranspose;

use super::turn::{Places, Planes, Turn};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range, place_and_filter};
use cactus_quant::BLOCK_ROWS;
use std::ops::Range;

/// Elements that `channels` planes of `places` take in blocks; as many as there are numbers where they are more.
#[must_use]
pub fn block_elems(channels: usize, places: usize) -> usize {
    channels
        .checked_next_multiple_of(BLOCK_ROWS)
        .and_then(|n| n.checked_mul(places))
        .unwrap_or(usize::MAX)
}

/// Places of a block that one piece of work has.
const PIECE: usize = 256;

/// Some places of a block.
struct Piece {
    block: usize,
    /// Its first place, and how many there are.
    first: usize,
    count: usize,
}

impl Piece {
    /// Its elements, of planes of `places`.
    fn elems(&self, places: usize) -> Range<usize> {
        let first = self.block * places + self.first;
        first * BLOCK_ROWS..(first + self.count) * BLOCK_ROWS
    }

    /// Its places.
    fn places(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Its channels.
    fn channels(&self, channels: usize) -> Range<usize> {
        let first = self.block * BLOCK_ROWS;
        first..channels.min(first + BLOCK_ROWS)
    }
}

impl Exec<'_> {
    /// Calls `f` with pieces that are all places of all blocks, some on each thread; a place takes `cost_ns`.
    fn for_pieces(&self, channels: usize, places: usize, cost_ns: usize, f: &(dyn Fn(Piece) + Sync)) {
        let pieces = places.div_ceil(PIECE);
        let blocks = channels.div_ceil(BLOCK_ROWS);
        let units = blocks * pieces;
        let width = self.step.width();
        let parts = part_count(width, units, PIECE.min(places) * cost_ns);
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (piece, block) = place_and_filter(unit, pieces, blocks, width);
                // Whole lines of planes, but for the last place.
                let own = part_range(places.div_ceil(BLOCK_ROWS), pieces, piece);
                let first = own.start * BLOCK_ROWS;
                f(Piece {
                    block,
                    first,
                    count: places.min(own.end * BLOCK_ROWS) - first,
                });
            }
        });
    }

    /// `out` in blocks from planes `x [channels, places]`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn to_blocks(&self, x: &[f32], places: usize, out: &mut [f32]) {
        if places == 0 {
            return;
        }
        let channels = x.len() / places;
        assert_eq!(
            out.len(),
            block_elems(channels, places),
            "to_blocks: elements of the output"
        );
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.for_pieces(channels, places, 2, &|piece| {
            let own = piece.channels(channels);
            kernels.run(Places {
                x: &x[own.start * places..own.end * places],
                plane: places,
                first: piece.first,
                // SAFETY: pieces are disjoint.
                rows: unsafe { out.piece(piece.elems(places)) },
                channels: own.len(),
                stride: BLOCK_ROWS,
            });
        });
    }

    /// Planes `out [channels, places]` from blocks `x`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn from_blocks(&self, x: &[f32], places: usize, out: &mut [f32]) {
        if places == 0 {
            return;
        }
        let channels = out.len() / places;
        assert_eq!(
            x.len(),
            block_elems(channels, places),
            "from_blocks: elements of the input"
        );
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.for_pieces(channels, places, 2, &|piece| {
            let own = piece.channels(channels);
            let planes = out.sub(own.start * places..own.end * places);
            kernels.run(Turn {
                rows: &x[piece.elems(places)],
                stride: BLOCK_ROWS,
                filters: own.len(),
                // No other piece has these places of these channels.
                planes: Planes {
                    out: &planes,
                    plane: places,
                    first: piece.first,
                },
            });
        });
    }
}
