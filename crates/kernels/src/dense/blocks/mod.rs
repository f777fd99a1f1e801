//! Planes whose channels lie in the lanes, sixteen side by side: `[blocks of channels, places, 16]`.
//!
//! Purpose: between convolutions over two axes nothing then has to be packed, framed by lanes or turned: a place is a line, whatever the width of its
//! plane or the stride of a window is, filters lie in the lanes of a product, and channels in those of everything else. Lanes behind the last channel hold
//! anything, and nothing reads them.
//!
//! [`Exec::to_blocks`] and [`Exec::from_blocks`] go from planes and back, [`Exec::conv_blocks`] multiplies (`conv`, or `tiles` for three by three
//! taps), [`Exec::depthwise_blocks`] has taps for each channel alone.

mod conv;
mod depthwise;
mod places;
mod sums;
mod tiles;
mod transpose;

pub use conv::{BlockConv, BlockEpilogue, Filters, Source};
pub use transpose::BlockTranspose;

use super::turn::{Places, Planes, Turn};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;

/// Elements that `channels` planes of `places` take in blocks; as many as there are numbers where they are more.
#[must_use]
pub fn block_elems(channels: usize, places: usize) -> usize {
    channels
        .checked_next_multiple_of(BLOCK_ROWS)
        .and_then(|n| n.checked_mul(places))
        .unwrap_or(usize::MAX)
}

/// Places that are turned at once.
const PIECE: usize = 256;

impl Exec<'_> {
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
        let pieces = places.div_ceil(PIECE);
        let units = channels.div_ceil(BLOCK_ROWS) * pieces;
        let parts = part_count(self.step.width(), units, PIECE.min(places) * 2);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (block, first) = (unit / pieces, unit % pieces * PIECE);
                let count = PIECE.min(places - first);
                let at = (block * places + first) * BLOCK_ROWS;
                // SAFETY: units have disjoint places.
                let rows = unsafe { out.piece(at..at + count * BLOCK_ROWS) };
                let own = BLOCK_ROWS.min(channels - block * BLOCK_ROWS);
                kernels.run(Places {
                    x: &x[block * BLOCK_ROWS * places..][..own * places],
                    plane: places,
                    first,
                    rows,
                    channels: own,
                    stride: BLOCK_ROWS,
                });
            }
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
        let pieces = places.div_ceil(PIECE);
        let units = channels.div_ceil(BLOCK_ROWS) * pieces;
        let parts = part_count(self.step.width(), units, PIECE.min(places) * 2);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (block, first) = (unit / pieces, unit % pieces * PIECE);
                let count = PIECE.min(places - first);
                let own = BLOCK_ROWS.min(channels - block * BLOCK_ROWS);
                let from = block * BLOCK_ROWS * places;
                let planes = out.sub(from..from + own * places);
                kernels.run(Turn {
                    rows: &x[from + first * BLOCK_ROWS..][..count * BLOCK_ROWS],
                    stride: BLOCK_ROWS,
                    filters: own,
                    // No other unit has these places of these channels.
                    planes: Planes {
                        out: &planes,
                        plane: places,
                        first,
                    },
                });
            }
        });
    }
}
