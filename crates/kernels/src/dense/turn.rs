//! Rows that have the results of a window each become planes that have those of a filter each, and planes of places rows.

use crate::exec::SharedMut;
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Elements between the rows of a strip's results. Not a power of two, whose rows would share few lines of a cache.
pub(super) fn row_stride(filters: usize) -> usize {
    filters.next_multiple_of(BLOCK_ROWS).saturating_add(BLOCK_ROWS)
}

/// Where the results of some windows go, a plane for each filter. Nobody else has the same windows.
pub(super) struct Planes<'a, 'b> {
    pub(super) out: &'a SharedMut<'b, f32>,
    pub(super) plane: usize,
    pub(super) first: usize,
}

impl Planes<'_, '_> {
    /// What `filter` gives for `windows`.
    #[inline(always)]
    fn at(&mut self, filter: usize, windows: Range<usize>) -> &mut [f32] {
        let first = filter * self.plane + self.first;
        // SAFETY: the windows are ours, and one piece of them is there at a time.
        unsafe { self.out.piece(first + windows.start..first + windows.end) }
    }
}

/// Makes planes of rows that have the results of a window each.
pub(super) struct Turn<'a, 'b> {
    pub(super) rows: &'a [f32],
    pub(super) stride: usize,
    pub(super) filters: usize,
    pub(super) planes: Planes<'a, 'b>,
}

impl Op for Turn<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let n = self.rows.len() / self.stride;
        for block in (0..self.filters).step_by(BLOCK_ROWS) {
            let own = BLOCK_ROWS.min(self.filters - block);
            let at = |window: usize| -> &[f32; BLOCK_ROWS] {
                self.rows[window * self.stride + block..]
                    .first_chunk()
                    .unwrap_or(&[0.0; BLOCK_ROWS])
            };
            let mut window = 0;
            while n - window >= BLOCK_ROWS {
                let mut v = [s.zero(); BLOCK_ROWS];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = s.load(at(window + i));
                }
                let columns = s.transpose(v);
                for i in 0..own {
                    if let Some(to) = self.planes.at(block + i, window..window + BLOCK_ROWS).first_chunk_mut() {
                        s.store(columns[i], to);
                    }
                }
                window += BLOCK_ROWS;
            }
            while n - window >= 4 {
                let mut v = [s.zero(); 4];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = s.load(at(window + i));
                }
                for (j, column) in s.transpose_fours(v).into_iter().enumerate() {
                    let mut lanes = [0.0; BLOCK_ROWS];
                    s.store(column, &mut lanes);
                    for (q, lanes) in lanes.as_chunks::<4>().0.iter().enumerate() {
                        if 4 * q + j < own {
                            let to = self.planes.at(block + 4 * q + j, window..window + 4);
                            to.copy_from_slice(lanes);
                        }
                    }
                }
                window += 4;
            }
            for window in window..n {
                for (i, v) in at(window)[..own].iter().enumerate() {
                    self.planes.at(block + i, window..window + 1)[0] = *v;
                }
            }
        }
    }
}

/// Makes rows that have the channels of a place each of planes that have the places of a channel each.
pub(super) struct Places<'a> {
    pub(super) x: &'a [f32],
    /// Places of a plane, and the one that the first row is of.
    pub(super) plane: usize,
    pub(super) first: usize,
    pub(super) rows: &'a mut [f32],
    pub(super) channels: usize,
    /// Elements between rows.
    pub(super) stride: usize,
}

impl Op for Places<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (block, rows) in self.rows.chunks_mut(BLOCK_ROWS * self.stride).enumerate() {
            let place = self.first + block * BLOCK_ROWS;
            let n = rows.len() / self.stride;
            for first in (0..self.channels).step_by(BLOCK_ROWS) {
                let own = BLOCK_ROWS.min(self.channels - first);
                let mut v = [s.zero(); BLOCK_ROWS];
                for (i, v) in v[..own].iter_mut().enumerate() {
                    let x = &self.x[(first + i) * self.plane + place..][..n];
                    *v = match x.first_chunk() {
                        Some(x) => s.load(x),
                        None => s.load_partial(x),
                    };
                }
                let columns = s.transpose(v);
                for (i, row) in rows.chunks_exact_mut(self.stride).enumerate() {
                    let to = &mut row[first..first + own];
                    match to.first_chunk_mut() {
                        Some(to) => s.store(columns[i], to),
                        None => s.store_partial(columns[i], to),
                    }
                }
            }
        }
    }
}
