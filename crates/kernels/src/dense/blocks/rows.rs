//! Blocks become rows that have all channels of a place, and rows become blocks: what stands between convolutions and products of places.

use super::{Piece, block_elems};
use crate::exec::{Exec, SharedMut};
use cactus_quant::BLOCK_ROWS;

impl Exec<'_> {
    /// `out [places, channels]` from `x` in blocks.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn blocks_to_rows(&self, x: &[f32], channels: usize, out: &mut [f32]) {
        let places = places_of(out.len(), channels);
        assert_eq!(
            x.len(),
            block_elems(channels, places),
            "blocks_to_rows: elements of the input"
        );
        let out = SharedMut::new(out);
        self.for_pieces(channels, places, 2, &|piece| {
            let own = piece.channels(channels);
            for (place, line) in piece.places().zip(x[piece.elems(places)].as_chunks::<BLOCK_ROWS>().0) {
                let first = place * channels;
                // SAFETY: no other piece has these channels of this place.
                let to = unsafe { out.piece(first + own.start..first + own.end) };
                match to.first_chunk_mut() {
                    Some(to) => *to = *line,
                    None => to.copy_from_slice(&line[..to.len()]),
                }
            }
        });
    }

    /// `out` in blocks from `x [places, channels]`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn rows_to_blocks(&self, x: &[f32], channels: usize, out: &mut [f32]) {
        let places = places_of(x.len(), channels);
        assert_eq!(
            out.len(),
            block_elems(channels, places),
            "rows_to_blocks: elements of the output"
        );
        let out = SharedMut::new(out);
        self.for_pieces(channels, places, 2, &|piece: Piece| {
            let own = piece.channels(channels);
            // SAFETY: pieces are disjoint.
            let lines = unsafe { out.piece(piece.elems(places)) };
            for (place, line) in piece.places().zip(lines.as_chunks_mut::<BLOCK_ROWS>().0) {
                let from = &x[place * channels..][own.clone()];
                match from.first_chunk() {
                    Some(from) => *line = *from,
                    None => line[..from.len()].copy_from_slice(from),
                }
            }
        });
    }
}

/// Rows that `elems` elements are.
fn places_of(elems: usize, channels: usize) -> usize {
    assert!(
        elems.is_multiple_of(channels.max(1)),
        "rows of {channels} channels: {elems} elements"
    );
    elems / channels.max(1)
}
