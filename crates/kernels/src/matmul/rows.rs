//! Activations as 8-bit integers.

use super::TILE_ROWS;
use super::tiled::{RowLayout, TileWriter, Tiled};
use crate::elementwise::keep_within;
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use bytemuck::{Pod, Zeroable};
use cactus_quant::GROUP;
use cactus_simd::{Op, Simd};

/// Groups whose largest magnitude is below this become zeros: the reciprocal of the scale would overflow.
pub(crate) const MIN_MAGNITUDE: f32 = 1e-30;

/// One group of one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct Cell {
    /// 32 integers in memory order, as 8 quads that are broadcast to all lanes.
    pub(crate) quads: [i32; 8],
    pub(crate) scale: f32,
    /// Sum of the 32 integers.
    pub(crate) sum: i32,
}

impl super::tile::Activation for Cell {
    #[inline(always)]
    fn sum(&self) -> i32 {
        self.sum
    }
    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale
    }
}

impl Cell {
    /// The 32 integers.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[i8; GROUP] {
        bytemuck::cast_ref(&self.quads)
    }

    /// Writes it as group `group` of row `row` of rows in tiles.
    ///
    /// # Safety
    /// As of [`TileWriter::write`].
    #[inline(always)]
    unsafe fn write(&self, row: usize, group: usize, to: &TileWriter<'_>) {
        // SAFETY: this function's contract.
        unsafe { to.write::<GROUP, 1>(row, group, &[*self.bytes()], self.scale) };
    }
}

/// Activations `[rows, k]` quantized for the INT8 product, in memory that the caller provides.
///
/// Each group of 32 inputs of a row has a scale `max|x| / 127` and integers `q = round(x · (127 / max|x|))`, ties to even,
/// in `-127..=127`, every operation rounded to `f32`; a last group of fewer inputs is filled up with zeros. Groups with
/// `max|x| < 1e-30` are zeros with scale 0. Where one is not finite, the integers are zeros and the scale is NaN, so that every
/// output of the row is NaN.
///
/// The memory holds one cell of 40 bytes for each row and group. Rows lie in tiles of 8 (the last one smaller), group
/// after group, and within a group row after row, so that a register tile reads one stream with constant offsets. On CPUs with tile products it holds 32 rows and more once again, in tiles.
#[derive(Debug)]
pub struct QuantizedRows<'a> {
    cells: &'a mut [Cell],
    tiled: Tiled<'a>,
    rows: usize,
    k: usize,
}

impl<'a> QuantizedRows<'a> {
    /// Bytes that `rows` rows of `k` inputs need, `None` on overflow.
    #[must_use]
    pub fn bytes(rows: usize, k: usize) -> Option<usize> {
        Self::layout(rows, k).bytes()
    }

    fn layout(rows: usize, k: usize) -> RowLayout {
        RowLayout {
            rows,
            groups: k.div_ceil(GROUP),
            cell_bytes: size_of::<Cell>(),
            row_bytes: GROUP,
        }
    }

    /// Rows of `k` inputs in `memory`, which is aligned to 4 bytes and has at least [`QuantizedRows::bytes`] bytes. What
    /// was quantized into the same memory with the same shape is still there.
    ///
    /// # Panics
    /// When the memory is too small or not aligned: a programming error.
    #[must_use]
    pub fn new(memory: &'a mut [u8], rows: usize, k: usize) -> Self {
        let found = memory.len();
        let Some((cells, tiled)) = Self::layout(rows, k).split(memory) else {
            panic!("{rows} quantized rows of {k} inputs do not fit {found} bytes");
        };
        Self {
            cells: bytemuck::cast_slice_mut(cells),
            tiled,
            rows,
            k,
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

    /// Scale and integers of group `group` of row `row`.
    ///
    /// # Panics
    /// When there is no such row or group.
    #[must_use]
    pub fn group(&self, row: usize, group: usize) -> (f32, [i8; GROUP]) {
        assert!(row < self.rows && group < self.groups(), "row {row}, group {group}");
        let cell = &self.cells[self.cell_index(row, group)];
        (cell.scale, bytemuck::cast(cell.quads))
    }

    /// Groups of a row.
    pub(crate) fn groups(&self) -> usize {
        self.k.div_ceil(GROUP)
    }

    /// The cells of tile `tile` in the order `[group][row]`, and its number of rows.
    pub(crate) fn tile(&self, tile: usize) -> (&[Cell], usize) {
        let (first, tile_rows) = tile_of(self.rows, tile * TILE_ROWS);
        let start = first * self.groups();
        (&self.cells[start..start + tile_rows * self.groups()], tile_rows)
    }

    /// The rows in tiles, empty where no tiles are used.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn tiled(&self) -> &Tiled<'a> {
        &self.tiled
    }

    /// Writes group `group` of row `row`.
    pub(crate) fn set(&mut self, row: usize, group: usize, cell: Cell) {
        let at = self.cell_index(row, group);
        self.cells[at] = cell;
        // SAFETY: nobody else writes.
        unsafe { cell.write(row, group, &self.tiled.writer()) };
    }

    /// Makes the rows of `to` those called `which`.
    pub(crate) fn gather(&self, which: impl Iterator<Item = usize>, to: &mut QuantizedRows<'_>) {
        assert!(to.k == self.k, "gather: inputs of a row");
        for (i, row) in which.take(to.rows).enumerate() {
            for group in 0..self.groups() {
                to.set(i, group, self.cells[self.cell_index(row, group)]);
            }
        }
    }

    fn cell_index(&self, row: usize, group: usize) -> usize {
        let (first, tile_rows) = tile_of(self.rows, row);
        first * self.groups() + group * tile_rows + (row - first)
    }

    /// A writer that the parts of a run share, each for rows of its own.
    pub(crate) fn writer(&mut self) -> RowWriter<'_> {
        RowWriter {
            rows: self.rows,
            k: self.k,
            cells: SharedMut::new(self.cells),
            tiled: self.tiled.writer(),
        }
    }
}

/// First row and number of rows of the tile that holds `row`.
fn tile_of(rows: usize, row: usize) -> (usize, usize) {
    let first = row / TILE_ROWS * TILE_ROWS;
    (first, TILE_ROWS.min(rows - first))
}

/// Write access to single rows from several threads.
pub(crate) struct RowWriter<'a> {
    rows: usize,
    k: usize,
    cells: SharedMut<'a, Cell>,
    tiled: TileWriter<'a>,
}

impl RowWriter<'_> {
    /// Quantizes `x` `[k]` into row `row`.
    ///
    /// # Safety
    /// No other thread may write the same row at the same time.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd>(&self, s: S, row: usize, x: &[f32]) {
        assert!(x.len() == self.k, "row {row} of {} inputs", x.len());
        // SAFETY: by this function's contract.
        unsafe { self.write_groups(s, row, 0, x) };
    }

    /// Quantizes `x` into the groups of row `row` from `first_group` on; only the row's last group may be a partial one.
    ///
    /// # Safety
    /// No other thread may write the same groups at the same time.
    #[inline(always)]
    pub(crate) unsafe fn write_groups<S: Simd>(&self, s: S, row: usize, first_group: usize, x: &[f32]) {
        assert!(
            row < self.rows && first_group * GROUP + x.len() <= self.k,
            "row {row}: {} inputs",
            x.len()
        );
        let groups = self.k.div_ceil(GROUP);
        let (first, tile_rows) = tile_of(self.rows, row);
        let start = first * groups + first_group * tile_rows + (row - first);
        // SAFETY: cells `start + g * tile_rows` are those of these groups only, ours by this function's contract, and so are their rows of tiles.
        quantize_row(s, x, |g, cell| unsafe {
            self.cells.piece(start + g * tile_rows..start + g * tile_rows + 1)[0] = cell;
            cell.write(row, first_group + g, &self.tiled);
        });
    }
}

/// Quantizes one row, calling `put` with each group's index and cell.
#[inline(always)]
fn quantize_row<S: Simd>(s: S, x: &[f32], mut put: impl FnMut(usize, Cell)) {
    let (groups, tail) = x.as_chunks::<GROUP>();
    for (g, group) in groups.iter().enumerate() {
        put(g, quantize_group(s, group));
    }
    if !tail.is_empty() {
        let mut group = [0.0; GROUP];
        group[..tail.len()].copy_from_slice(tail);
        put(groups.len(), quantize_group(s, &group));
    }
}

#[inline(always)]
pub(crate) fn quantize_group<S: Simd>(s: S, x: &[f32; GROUP]) -> Cell {
    let (halves, _) = x.as_chunks::<16>();
    let (a, b) = (s.load(&halves[0]), s.load(&halves[1]));
    let (size_a, size_b) = (s.abs(a), s.abs(b));
    // A difference of sizes is finite where both are, or minus infinity, and then the maximum says so.
    let infinity = s.splat(f32::INFINITY);
    let finite = s.lt(s.sub(size_a, size_b), infinity);
    let max = s.reduce_max(s.select(finite, s.max(size_a, size_b), infinity));
    if max < MIN_MAGNITUDE {
        return Cell::zeroed();
    }
    if max == f32::INFINITY {
        return Cell {
            scale: f32::NAN,
            ..Cell::zeroed()
        };
    }
    let inverse = s.splat(127.0 / max);
    let (a, b) = (s.to_int(s.mul(a, inverse)), s.to_int(s.mul(b, inverse)));
    let mut bytes = [[0i8; 16]; 2];
    s.store_i8(a, &mut bytes[0]);
    s.store_i8(b, &mut bytes[1]);
    Cell {
        quads: bytemuck::cast(bytes),
        scale: max / 127.0,
        sum: s.reduce_sum_i(s.add_i(a, b)),
    }
}

/// Inputs that are kept within bounds at a time; whole groups.
const BOUNDED: usize = 16 * GROUP;

struct QuantizeRow<'a, 'b> {
    x: &'a [f32],
    first_row: usize,
    bounds: Option<[f32; 2]>,
    out: &'a RowWriter<'b>,
}

impl Op for QuantizeRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (i, x) in self.x.chunks_exact(self.out.k).enumerate() {
            let row = self.first_row + i;
            let Some(bounds) = self.bounds else {
                // SAFETY: `quantize_rows` hands disjoint runs of rows to its parts.
                unsafe { self.out.write(s, row, x) };
                continue;
            };
            let mut kept = [0.0; BOUNDED];
            for (piece, x) in x.chunks(BOUNDED).enumerate() {
                let kept = &mut kept[..x.len()];
                kept.copy_from_slice(x);
                keep_within(s, bounds, kept);
                // SAFETY: as above.
                unsafe { self.out.write_groups(s, row, piece * (BOUNDED / GROUP), kept) };
            }
        }
    }
}

impl Exec<'_> {
    /// Quantizes `x [rows, k]` for [`Exec::linear`]; see [`QuantizedRows`].
    ///
    /// # Panics
    /// When a length does not match: a programming error.
    pub fn quantize_rows(&self, x: &[f32], rows: usize, k: usize, out: &mut QuantizedRows<'_>) {
        self.quantize_rows_within(x, rows, k, None, out);
    }

    /// As [`Exec::quantize_rows`] of `x` kept within `bounds`, as [`Exec::keep_within`] does it.
    ///
    /// # Panics
    /// As [`Exec::quantize_rows`].
    pub fn quantize_rows_within(
        &self,
        x: &[f32],
        rows: usize,
        k: usize,
        bounds: Option<[f32; 2]>,
        out: &mut QuantizedRows<'_>,
    ) {
        assert_eq!(
            Some(x.len()),
            rows.checked_mul(k),
            "quantize_rows: elements of the input"
        );
        assert!(out.rows() == rows && out.k() == k, "quantize_rows: shape of the output");
        if k == 0 {
            return;
        }
        let parts = part_count(self.step.width(), rows, k / 2);
        let out = out.writer();
        self.step.run(parts, &|part| {
            let rows = part_range(rows, parts, part);
            let x = &x[rows.start * k..rows.end * k];
            self.kernels.run(QuantizeRow {
                x,
                first_row: rows.start,
                bounds,
                out: &out,
            });
        });
    }
}
