//! Many stored vectors beside one query: what exact search does.
//!
//! Purpose: the layout of rows that are searched, and the products of a query with all of them. Rows lie in blocks of
//! [`SCAN_ROWS`], one in each lane, so that a product of quads has 16 results beside each other and nothing is summed across
//! lanes. A row's result depends on that row and the query alone. What is kept of the results is left to the caller.
//!
//! | [`RowFormat`] | Elements of a block |
//! |---|---|
//! | `Int8` | scales `f32 [16]`, then values `i8 [ceil(dim/4)][16][4]`, the last quad filled up with zeros |
//! | `F32` | values `f32 [dim][16]` |
//!
//! An 8-bit row has one scale, `max|x| / 127`, and integers `round(x * (127 / max|x|))`, ties to even. Rows of
//! [unit length](RowLayout::of_unit_rows) have the scale with which the integers have it, so what is read and written again is the same. The query is an integer
//! of 15 bits in each dimension, `round(x * (16256 / max|x|))`, in two planes of signed bytes: `128 high + low`. Both sums are
//! exact, and the score is `fma(f32(high), 128, f32(low)) * scale of the row * scale of the query`. So what a query loses
//! is a hundredth of what the rows lose, and the bytes that are read are the same.
//!
//! Over `F32` rows, four sums of fused multiply-adds take the dimensions in turn and are added as `(0 + 1) + (2 + 3)`.

use crate::error::{Error, ErrorKind, Result};
use crate::exec::Kernels;
use cactus_simd::{Op, Simd};

/// Rows of a block.
pub const SCAN_ROWS: usize = 16;
/// Most dimensions of a row: sums of bytes fit 32 bits.
pub const MAX_SCAN_DIM: usize = 1 << 16;

/// The largest integer of a query's dimension, `127 * 128`.
const TOP: f32 = 16256.0;
/// Rows whose largest magnitude is below this become zeros: the reciprocal of the scale would overflow.
const MIN_MAGNITUDE: f32 = 1e-30;
/// Bytes of a line: 16 quads.
const LINE: usize = 64;

/// How the rows of a block are stored.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowFormat {
    /// Signed bytes with one scale for each row.
    Int8,
    /// As they are.
    F32,
}

/// Shape of the rows that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLayout {
    dim: usize,
    format: RowFormat,
    is_unit: bool,
}

impl RowLayout {
    /// Rows of `dim` dimensions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidShape`] where `dim` is 0 or more than [`MAX_SCAN_DIM`].
    pub fn new(dim: usize, format: RowFormat) -> Result<Self> {
        if dim == 0 || dim > MAX_SCAN_DIM {
            let context = format!("rows to search: expected 1 to {MAX_SCAN_DIM} dimensions, found {dim}");
            return Err(Error::new(ErrorKind::InvalidShape, context));
        }
        Ok(Self {
            dim,
            format,
            is_unit: false,
        })
    }

    /// The same for rows of unit length, which they have as they are stored, too.
    #[must_use]
    pub fn of_unit_rows(self) -> Self {
        Self { is_unit: true, ..self }
    }

    /// Dimensions of a row.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bytes of a block of [`SCAN_ROWS`] rows, a multiple of 64.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        match self.format {
            RowFormat::Int8 => LINE * (1 + self.dim.div_ceil(4)),
            RowFormat::F32 => LINE * self.dim,
        }
    }

    /// Stores `x` as row `row` of `block`. Values that are not finite make every score of the row NaN.
    ///
    /// # Panics
    /// When a length or the row does not fit: a programming error.
    pub fn write(&self, block: &mut [u8], row: usize, x: &[f32]) {
        self.check(block.len(), row, x.len());
        match self.format {
            RowFormat::F32 => {
                for (line, x) in block.as_chunks_mut::<LINE>().0.iter_mut().zip(x) {
                    line[4 * row..4 * row + 4].copy_from_slice(&x.to_le_bytes());
                }
            }
            RowFormat::Int8 => {
                let (mut scale, inverse) = scales(x, 127.0);
                let (lines, _) = block.as_chunks_mut::<LINE>();
                let mut squares = 0u64;
                for (line, x) in lines[1..].iter_mut().zip(x.chunks(4)) {
                    let quad = &mut line[4 * row..4 * row + 4];
                    quad.fill(0);
                    for (byte, x) in quad.iter_mut().zip(x) {
                        let integer = (x * inverse).round_ties_even() as i8;
                        squares += u64::from(integer.unsigned_abs()).pow(2);
                        *byte = integer.cast_unsigned();
                    }
                }
                if self.is_unit && squares > 0 {
                    scale = (1.0 / (squares as f64).sqrt()) as f32;
                }
                lines[0][4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
            }
        }
    }

    /// Row `row` of `block` into `x`.
    ///
    /// # Panics
    /// As [`RowLayout::write`].
    pub fn read(&self, block: &[u8], row: usize, x: &mut [f32]) {
        self.check(block.len(), row, x.len());
        let (lines, _) = block.as_chunks::<LINE>();
        let quad = |line: &[u8; LINE]| [0, 1, 2, 3].map(|i| line[4 * row + i]);
        match self.format {
            RowFormat::F32 => {
                for (x, line) in x.iter_mut().zip(lines) {
                    *x = f32::from_le_bytes(quad(line));
                }
            }
            RowFormat::Int8 => {
                let scale = f32::from_le_bytes(quad(&lines[0]));
                for (x, line) in x.chunks_mut(4).zip(&lines[1..]) {
                    for (x, byte) in x.iter_mut().zip(quad(line)) {
                        *x = f32::from(byte.cast_signed()) * scale;
                    }
                }
            }
        }
    }

    /// Copies row `from_row` of block `from` to row `row` of `block`, as it is stored.
    ///
    /// # Panics
    /// As [`RowLayout::write`].
    pub fn copy(&self, from: &[u8], from_row: usize, block: &mut [u8], row: usize) {
        self.check(block.len(), row, self.dim);
        self.check(from.len(), from_row, self.dim);
        let lines = block.as_chunks_mut::<LINE>().0.iter_mut();
        for (line, from) in lines.zip(from.as_chunks::<LINE>().0) {
            line[4 * row..4 * row + 4].copy_from_slice(&from[4 * from_row..4 * from_row + 4]);
        }
    }

    fn check(&self, block_bytes: usize, row: usize, dim: usize) {
        assert!(
            block_bytes == self.block_bytes() && row < SCAN_ROWS && dim == self.dim,
            "row {row} of {dim} dimensions in {block_bytes} bytes, expected {} dimensions in {}",
            self.dim,
            self.block_bytes()
        );
    }
}

/// The scale of `x` with integers up to `top`, and the factor that makes them.
fn scales(x: &[f32], top: f32) -> (f32, f32) {
    let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    if !x.iter().all(|x| x.is_finite()) {
        return (f32::NAN, 0.0);
    }
    if max < MIN_MAGNITUDE {
        return (0.0, 0.0);
    }
    (max / top, top / max)
}

/// A query, made ready for rows of one layout.
#[derive(Debug, Clone)]
pub struct RowQuery {
    layout: RowLayout,
    /// Quads of both planes, high before low.
    quads: Vec<[i32; 2]>,
    /// Sums of the planes' bytes.
    sums: [i32; 2],
    scale: f32,
    values: Vec<f32>,
}

impl RowQuery {
    /// `x [dim]` for rows of `layout`.
    ///
    /// # Panics
    /// When the length does not match: a programming error.
    #[must_use]
    pub fn new(layout: RowLayout, x: &[f32]) -> Self {
        assert_eq!(x.len(), layout.dim, "dimensions of a query");
        let mut query = Self {
            layout,
            quads: Vec::new(),
            sums: [0; 2],
            scale: 0.0,
            values: Vec::new(),
        };
        if layout.format == RowFormat::F32 {
            query.values = x.to_vec();
            return query;
        }
        let (scale, inverse) = scales(x, TOP);
        query.scale = scale;
        for x in x.chunks(4) {
            let mut planes = [[0u8; 4]; 2];
            for (i, x) in x.iter().enumerate() {
                let value = (x * inverse).round_ties_even() as i32;
                let high = (value + 64) >> 7;
                for (p, part) in [high, value - 128 * high].into_iter().enumerate() {
                    query.sums[p] += part;
                    planes[p][i] = part as u8;
                }
            }
            query.quads.push(planes.map(i32::from_le_bytes));
        }
        query
    }
}

impl Kernels {
    /// `out[r]`, the product of `query` and row `r` of `blocks`, on this thread; 16 for each block, those of rows that were
    /// never written among them.
    ///
    /// # Panics
    /// When `blocks` are not aligned to 4 bytes, or `out` has another number of rows: a programming error.
    pub fn score_rows(&self, blocks: &[u8], query: &RowQuery, out: &mut [f32]) {
        let block_bytes = query.layout.block_bytes();
        assert!(
            blocks.len().is_multiple_of(block_bytes) && out.len() == blocks.len() / block_bytes * SCAN_ROWS,
            "score_rows: {} bytes of rows of {block_bytes} bytes for {} results",
            blocks.len(),
            out.len()
        );
        match query.layout.format {
            RowFormat::Int8 => self.run(ScoreBytes { blocks, query, out }),
            RowFormat::F32 => self.run(ScoreFloats {
                blocks: bytemuck::cast_slice(blocks),
                query: &query.values,
                out,
            }),
        }
    }

    /// `out[r]`, in how many bits row `r` of `blocks` differs from `query`; blocks are `u64 [words][16]` with as many words as
    /// the query.
    ///
    /// # Panics
    /// When a length does not match: a programming error.
    pub fn hamming_rows(&self, blocks: &[[u64; SCAN_ROWS]], query: &[u64], out: &mut [u32]) {
        assert!(
            !query.is_empty() && blocks.len() / query.len() * SCAN_ROWS == out.len(),
            "hamming_rows: lengths"
        );
        self.run(Hamming { blocks, query, out });
    }
}

struct ScoreBytes<'a> {
    blocks: &'a [u8],
    query: &'a RowQuery,
    out: &'a mut [f32],
}

impl Op for ScoreBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (lines, _) = self.blocks.as_chunks::<LINE>();
        let lines: &[[i8; LINE]] = bytemuck::cast_slice(lines);
        let (pairs, odd) = self.query.quads.as_chunks::<2>();
        let start = self.query.sums.map(|sum| s.dot_start(sum));
        let (shift, scale) = (s.splat(128.0), s.splat(self.query.scale));
        let blocks = lines.chunks_exact(1 + self.query.quads.len());
        for (block, out) in blocks.zip(self.out.as_chunks_mut::<SCAN_ROWS>().0) {
            // Two sums of each plane, so that no product waits for the one before it.
            let (mut high, mut low) = ([start[0], s.splat_i(0)], [start[1], s.splat_i(0)]);
            let (rows, last) = block[1..].as_chunks::<2>();
            for (rows, quads) in rows.iter().zip(pairs) {
                for i in 0..2 {
                    let row = s.load_quads(&rows[i]);
                    high[i] = s.dot(high[i], row, quads[i][0]);
                    low[i] = s.dot(low[i], row, quads[i][1]);
                }
            }
            if let (Some(row), Some(quads)) = (last.first(), odd.first()) {
                let row = s.load_quads(row);
                high[0] = s.dot(high[0], row, quads[0]);
                low[0] = s.dot(low[0], row, quads[1]);
            }
            let high = s.to_float(s.add_i(high[0], high[1]));
            let low = s.to_float(s.add_i(low[0], low[1]));
            let scales: [f32; SCAN_ROWS] = bytemuck::cast(block[0]);
            let dots = s.mul(s.fma(high, shift, low), s.load(&scales));
            s.store(s.mul(dots, scale), out);
        }
    }
}

struct ScoreFloats<'a> {
    blocks: &'a [f32],
    query: &'a [f32],
    out: &'a mut [f32],
}

impl Op for ScoreFloats<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (lines, _) = self.blocks.as_chunks::<SCAN_ROWS>();
        let blocks = lines.chunks_exact(self.query.len());
        for (block, out) in blocks.zip(self.out.as_chunks_mut::<SCAN_ROWS>().0) {
            let mut sums = [s.zero(); 4];
            let (fours, last) = block.as_chunks::<4>();
            let (queries, rest) = self.query.as_chunks::<4>();
            for (lines, x) in fours.iter().zip(queries) {
                for i in 0..4 {
                    sums[i] = s.fma(s.load(&lines[i]), s.splat(x[i]), sums[i]);
                }
            }
            for (i, (line, x)) in last.iter().zip(rest).enumerate() {
                sums[i] = s.fma(s.load(line), s.splat(*x), sums[i]);
            }
            s.store(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])), out);
        }
    }
}

struct Hamming<'a> {
    blocks: &'a [[u64; SCAN_ROWS]],
    query: &'a [u64],
    out: &'a mut [u32],
}

impl Op for Hamming<'_> {
    type Output = ();

    // Counts are exact in any order: the compiler makes vectors of them with the features of the tier.
    #[inline(always)]
    fn eval<S: Simd>(self, _: S) {
        let blocks = self.blocks.chunks_exact(self.query.len());
        for (block, out) in blocks.zip(self.out.as_chunks_mut::<SCAN_ROWS>().0) {
            let mut counts = [0u64; SCAN_ROWS];
            for (line, x) in block.iter().zip(self.query) {
                for i in 0..SCAN_ROWS {
                    counts[i] += u64::from((line[i] ^ x).count_ones());
                }
            }
            for i in 0..SCAN_ROWS {
                out[i] = counts[i] as u32;
            }
        }
    }
}
