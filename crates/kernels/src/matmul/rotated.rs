//! Activations rotated and as 8-bit integers, for products with codebook weights.

use super::TILE_ROWS;
use super::tiled::{RowLayout, TileWriter, Tiled};
use crate::elementwise::keep_within;
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use bytemuck::{Pod, Zeroable};
use cactus_quant::cq::{CQ_GRAIN, CQ_GROUP, CQ_UNIT, groups, rotation};
use cactus_simd::{Op, Simd};

/// Groups whose largest magnitude is below this become zeros: the reciprocal of the scale would overflow.
const MIN_MAGNITUDE: f32 = 1e-30;

/// One group of one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct RotatedCell {
    /// The integers in memory order, as quads that are broadcast to all lanes; a small group uses the first ones.
    pub(crate) quads: [i32; CQ_GROUP / 4],
    pub(crate) scale: f32,
    /// Sum of the integers.
    pub(crate) sum: i32,
}

impl super::tile::Activation for RotatedCell {
    #[inline(always)]
    fn sum(&self) -> i32 {
        self.sum
    }
    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale
    }
}

impl RotatedCell {
    /// Writes it as group `group` of row `row` of rows in tiles.
    ///
    /// # Safety
    /// As of [`TileWriter::write`].
    #[inline(always)]
    unsafe fn write(&self, row: usize, group: usize, to: &TileWriter<'_>) {
        let bytes: &[[i8; CQ_GROUP / 2]; 2] = bytemuck::cast_ref(&self.quads);
        // SAFETY: this function's contract.
        unsafe { to.write(row, group, bytes, self.scale) };
    }
}

/// Activations `[rows, k]` rotated and quantized for products with codebook weights, in memory that the caller provides.
///
/// The groups are those of the weights ([`groups`]); a group that reaches beyond the row is filled up with zeros. The
/// group's signs are flipped, the Hadamard transform is taken (strides 1, 2, 4, … in this order), and with the largest
/// magnitude `max` of the result `u` the integers are `round(u · (127 / max))`, ties to even, every operation rounded to
/// `f32`, and the scale is `max / 127 / (64 d)`, where `d` is the group's size. Groups with `max < 1e-30` are zeros with
/// scale 0. Where an activation is not finite, the integers are zeros and the scale is NaN, so that every output of the row is
/// NaN.
///
/// The memory holds one cell of 136 bytes for each row and group, in the order of [`super::QuantizedRows`], and as there once again on CPUs with tile products.
#[derive(Debug)]
pub struct RotatedRows<'a> {
    cells: &'a mut [RotatedCell],
    tiled: Tiled<'a>,
    rows: usize,
    k: usize,
    groups: usize,
}

impl<'a> RotatedRows<'a> {
    /// Bytes that `rows` rows of `k` inputs need, `None` on overflow.
    #[must_use]
    pub fn bytes(rows: usize, k: usize) -> Option<usize> {
        Self::layout(rows, k)?.bytes()
    }

    fn layout(rows: usize, k: usize) -> Option<RowLayout> {
        Some(RowLayout {
            rows,
            groups: group_count(k)?,
            cell_bytes: size_of::<RotatedCell>(),
            row_bytes: CQ_GROUP,
        })
    }

    /// Rows of `k` inputs in `memory`, which is aligned to 4 bytes and has at least [`RotatedRows::bytes`] bytes. What was
    /// quantized into the same memory with the same shape is still there.
    ///
    /// # Panics
    /// When the memory is too small or not aligned: a programming error.
    #[must_use]
    pub fn new(memory: &'a mut [u8], rows: usize, k: usize) -> Self {
        let (layout, found) = (Self::layout(rows, k), memory.len());
        let Some((RowLayout { groups, .. }, (cells, tiled))) = layout.and_then(|l| Some((l, l.split(memory)?))) else {
            panic!("{rows} rotated rows of {k} inputs do not fit {found} bytes");
        };
        Self {
            cells: bytemuck::cast_slice_mut(cells),
            tiled,
            rows,
            k,
            groups,
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of a row.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Scale and integers of group `group` of row `row`; those beyond the group's size are unspecified.
    ///
    /// # Panics
    /// When there is no such row or group.
    #[must_use]
    pub fn group(&self, row: usize, group: usize) -> (f32, [i8; CQ_GROUP]) {
        assert!(row < self.rows && group < self.groups, "row {row}, group {group}");
        let cell = &self.cells[cell_index(self.rows, self.groups, row, group)];
        (cell.scale, bytemuck::cast(cell.quads))
    }

    /// The cells of tile `tile` in the order `[group][row]`, and its number of rows.
    pub(crate) fn tile(&self, tile: usize) -> (&[RotatedCell], usize) {
        let first = tile * TILE_ROWS;
        let tile_rows = TILE_ROWS.min(self.rows - first);
        let start = first * self.groups;
        (&self.cells[start..start + tile_rows * self.groups], tile_rows)
    }

    /// Groups of a row.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// The rows in tiles, empty where no tiles are used.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn tiled(&self) -> &Tiled<'a> {
        &self.tiled
    }

    /// Makes the rows of `to` those called `which`.
    pub(crate) fn gather(&self, which: impl Iterator<Item = usize>, to: &mut RotatedRows<'_>) {
        assert!(to.k == self.k, "gather: inputs of a row");
        for (i, row) in which.take(to.rows).enumerate() {
            for group in 0..self.groups {
                let cell = self.cells[cell_index(self.rows, self.groups, row, group)];
                to.cells[cell_index(to.rows, to.groups, i, group)] = cell;
                // SAFETY: nobody else writes.
                unsafe { cell.write(i, group, &to.tiled.writer()) };
            }
        }
    }
}

/// Groups of a row of `k` inputs, `None` on overflow.
fn group_count(k: usize) -> Option<usize> {
    let padded = k.checked_next_multiple_of(CQ_GRAIN)?;
    Some(padded / CQ_GROUP + (padded % CQ_GROUP / CQ_GRAIN).count_ones() as usize)
}

/// Place of the cell of `group` of `row`.
fn cell_index(rows: usize, groups: usize, row: usize, group: usize) -> usize {
    let first = row / TILE_ROWS * TILE_ROWS;
    let tile_rows = TILE_ROWS.min(rows - first);
    first * groups + group * tile_rows + (row - first)
}

/// The first `V` vectors of a group, rotated: signs flipped, then the Hadamard transform without normalization.
#[inline(always)]
pub(crate) fn rotate_vectors<S: Simd, const V: usize>(s: S, x: &[f32; CQ_GROUP]) -> [S::F; V] {
    let (lines, _) = x.as_chunks::<16>();
    let (signs, _) = rotation::SIGNS.as_chunks::<16>();
    let mut v = [s.zero(); V];
    for i in 0..V {
        let flipped = s.floats(s.xor_i(s.bits(s.load(&lines[i])), s.load_i(&signs[i])));
        v[i] = s.hadamard_lanes(flipped);
    }
    let mut half = 1;
    while half < V {
        for i in 0..V {
            if i & half == 0 {
                (v[i], v[i + half]) = (s.add(v[i], v[i + half]), s.sub(v[i], v[i + half]));
            }
        }
        half *= 2;
    }
    v
}

/// Rotates and quantizes the first `V` vectors of a group.
#[inline(always)]
fn rotate_group<S: Simd, const V: usize>(s: S, x: &[f32; CQ_GROUP]) -> RotatedCell {
    let v: [S::F; V] = rotate_vectors(s, x);
    let mut largest = s.abs(v[0]);
    for i in 1..V {
        largest = s.max(largest, s.abs(v[i]));
    }
    let max = s.reduce_max(largest);
    if max < MIN_MAGNITUDE {
        return RotatedCell::zeroed();
    }
    // The rotation leaves no lane finite where one was not.
    if max.is_nan() || max == f32::INFINITY {
        return RotatedCell {
            scale: f32::NAN,
            ..RotatedCell::zeroed()
        };
    }
    let inverse = s.splat(127.0 / max);
    let mut bytes = [[0i8; 16]; CQ_GROUP / 16];
    let mut sum = s.splat_i(0);
    for i in 0..V {
        let q = s.to_int(s.mul(v[i], inverse));
        s.store_i8(q, &mut bytes[i]);
        sum = s.add_i(sum, q);
    }
    RotatedCell {
        quads: bytemuck::cast(bytes),
        scale: max / 127.0 * (1.0 / (CQ_UNIT * (16 * V) as f32)),
        sum: s.reduce_sum_i(sum),
    }
}

struct RotateRows<'a, 'b> {
    x: &'a [f32],
    bounds: Option<[f32; 2]>,
    k: usize,
    rows: usize,
    groups: usize,
    first_row: usize,
    cells: &'a SharedMut<'b, RotatedCell>,
    tiled: &'a TileWriter<'b>,
}

impl Op for RotateRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (i, row) in self.x.chunks_exact(self.k).enumerate() {
            for (g, (start, d)) in groups(self.k).enumerate() {
                let part = &row[start..self.k.min(start + d)];
                let mut padded = [0.0; CQ_GROUP];
                let group = match (part.first_chunk::<CQ_GROUP>(), self.bounds) {
                    (Some(whole), None) => whole,
                    (_, bounds) => {
                        let kept = &mut padded[..part.len()];
                        kept.copy_from_slice(part);
                        if let Some(bounds) = bounds {
                            keep_within(s, bounds, kept);
                        }
                        &padded
                    }
                };
                let cell = match d {
                    128 => rotate_group::<S, 8>(s, group),
                    64 => rotate_group::<S, 4>(s, group),
                    _ => rotate_group::<S, 2>(s, group),
                };
                let at = cell_index(self.rows, self.groups, self.first_row + i, g);
                // SAFETY: `rotate_rows` hands disjoint runs of rows to its parts, and each cell belongs to one row, as do its bytes of a tile.
                unsafe {
                    self.cells.piece(at..at + 1)[0] = cell;
                    cell.write(self.first_row + i, g, self.tiled);
                }
            }
        }
    }
}

impl Exec<'_> {
    /// Rotates and quantizes `x [rows, k]` for [`Exec::linear`] with codebook weights; see [`RotatedRows`].
    ///
    /// # Panics
    /// When a length does not match: a programming error.
    pub fn rotate_rows(&self, x: &[f32], rows: usize, k: usize, out: &mut RotatedRows<'_>) {
        self.rotate_rows_within(x, rows, k, None, out);
    }

    /// As [`Exec::rotate_rows`] of `x` kept within `bounds`, as [`Exec::keep_within`] does it.
    ///
    /// # Panics
    /// As [`Exec::rotate_rows`].
    pub fn rotate_rows_within(
        &self,
        x: &[f32],
        rows: usize,
        k: usize,
        bounds: Option<[f32; 2]>,
        out: &mut RotatedRows<'_>,
    ) {
        assert_eq!(Some(x.len()), rows.checked_mul(k), "rotate_rows: elements of the input");
        assert!(out.rows() == rows && out.k() == k, "rotate_rows: shape of the output");
        if k == 0 {
            return;
        }
        let groups = out.groups;
        let (cells, tiled) = (SharedMut::new(out.cells), out.tiled.writer());
        let parts = part_count(self.step.width(), rows, 2 * k);
        self.step.run(parts, &|part| {
            let part = part_range(rows, parts, part);
            self.kernels.run(RotateRows {
                x: &x[part.start * k..part.end * k],
                bounds,
                k,
                rows,
                groups,
                first_row: part.start,
                cells: &cells,
                tiled: &tiled,
            });
        });
    }
}
