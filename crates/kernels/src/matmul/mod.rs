//! Products of packed weights and activations.
//!
//! Purpose: `y[r, o] = sum over i of x[r, i] · w[o, i]` for weights in any packing of the `quant` crate, read in place
//! ([`Exec::linear`]); the quantization of activations that the INT8 product needs ([`Exec::quantize_rows`],
//! [`QuantizedRows`]) and that with the rotation which codebook weights need ([`Exec::rotate_rows`], [`RotatedRows`]); and
//! single rows of a packed table ([`Exec::embed`]).
//!
//! The interleaved packings turn a product into loads of 16 outputs and broadcasts of one activation, which the operations
//! of `simd` express; so it deliberately has no file per instruction set, except for ARM64, whose products take activations
//! by lane or two rows at once, and for the tile products of x86-64. `docs/adr/0001-int8-layout.md` has the reasons and figures, and
//! `docs/adr/0010-codebook-packings.md` those of the codebooks.
//!
//! # Order of the arithmetic
//!
//! The same bits result on every tier, for every number of rows and threads:
//!
//! - INT8: activations become 8-bit integers in groups of 32 inputs (see [`QuantizedRows`]). The product of a group is an
//!   exact integer `d`; groups follow in order in one chain, `acc = fma(f32(d) * scale_w, scale_x, acc)` from zero.
//! - Codebooks: the same over the groups of [`RotatedRows`], `d` being the product with the codebook's integers.
//! - Floats: input `i` belongs to the chain `p[i % 4]`, in order, `p = fma(w, x, p)` from zero; the result is
//!   `(p0 + p1) + (p2 + p3)`. `f16` weights become `f32` exactly.
//! - Then `acc + bias` if there is a bias of columns or of rows, then `out + acc` if the epilogue accumulates, then bounds and the activation if there are such.
//!
//! # Splitting
//!
//! Parts are runs of whole blocks of 16 outputs, so that a thread reads one sequential stream. Up to 8 rows are multiplied
//! in one pass over the weights, which is then bound by memory. More rows are cut in tiles of 8; all tiles visit a run of
//! blocks small enough for the L2 cache before the next run is read, or, of codebook weights, the looked up integers of a group before
//! the next group. Tile products have tiles of 16 rows instead. Floats have tiles of up to 6 rows and 4 blocks, whose
//! chains take turns, and cut many rows among the threads where there are few blocks.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod cq;
mod cq_gemm;
mod embed;
mod float;
mod int8;
mod rotated;
mod rows;
mod tile;
mod tiled;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use float::{Chains, Tile, wide_blocks};
pub use rotated::RotatedRows;
pub(crate) use rotated::rotate_vectors;
pub use rows::QuantizedRows;
#[allow(unused_imports)]
pub(crate) use rows::{Cell, MIN_MAGNITUDE, RowWriter, quantize_group};
pub(crate) use tiled::{ROWS as AMX_ROWS, TILES_FROM};

use crate::elementwise::{Stretches, UnaryOp, keep_piece_within, unary_stretches};
use crate::exec::{Exec, Kernels, SharedMut, check_strided};
use crate::parts::{block_parts, part_range};
use cactus_base::Ahead;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use cactus_simd::{FETCH, Simd, prefers_hardware_prefetch};
use std::ops::Range;

/// Rows of a tile of activations.
pub(crate) const TILE_ROWS: usize = 8;
/// Up to this number of rows a product makes one pass over the weights.
pub(crate) const GEMV_ROWS: usize = 8;
/// Bytes ahead of which weights are asked for. Hardware that follows a stream stays within some lines, and within a page: one thread of the
/// machine of docs/benchmarks.md reads 35 GB/s of weights without this, 40 with 4 KiB, 50 with 8, 55 with 12, 51 with 32. Nobody has measured it on ARM64, where it is left out.
const AHEAD: usize = 12 << 10;

/// [`AHEAD`] of products with weights of 8 bits. Where the CPU is faster without, the line that is read anyway is asked for: one thread of Zen 4 reads 30 GB/s like
/// that, and 24 with [`AHEAD`]; with four rows 31 and 28.
fn ahead_of_bytes() -> usize {
    match prefers_hardware_prefetch() {
        true => 0,
        false => AHEAD,
    }
}

/// Asks for the weights `ahead` of those at `bytes`, where `B` is one: tiles that take more blocks at once find them in
/// the cache.
#[inline(always)]
fn fetch_ahead<S: Simd, const B: usize>(s: S, bytes: *const u8, ahead: usize) {
    if B == 1 && cfg!(target_arch = "x86_64") {
        s.prefetch(bytes.wrapping_add(ahead));
    }
}

/// Outputs that share a peak, see [`Exec::linear_with_peaks`].
pub const PEAK_OUTPUTS: usize = BLOCK_ROWS;

/// The left operand of [`Exec::linear`].
#[derive(Debug)]
pub enum Activations<'a> {
    /// `[rows, k]`, for packings that read no integers.
    F32(&'a [f32]),
    /// Quantized rows, for [`Packing::Int8G32`].
    Q8(QuantizedRows<'a>),
    /// Rotated and quantized rows, for the codebook packings.
    Rotated(RotatedRows<'a>),
}

impl<'a> Activations<'a> {
    /// Bytes of memory that `rows` rows of `k` inputs need as `packing` reads them: none for floats, which are read where they lie. `None` on overflow.
    #[must_use]
    pub fn bytes(packing: Packing, rows: usize, k: usize) -> Option<usize> {
        match packing {
            Packing::Int8G32 => QuantizedRows::bytes(rows, k),
            packing if packing.codebook_bits().is_some() => RotatedRows::bytes(rows, k),
            _ => Some(0),
        }
    }

    /// The rows that are in `memory` as `packing` reads them; floats are `[rows, k]` there.
    ///
    /// # Panics
    /// When the memory is too small or not aligned: a programming error.
    pub(crate) fn read(packing: Packing, memory: &'a mut [f32], rows: usize, k: usize) -> Self {
        match packing {
            Packing::Int8G32 => Activations::Q8(QuantizedRows::new(bytemuck::cast_slice_mut(memory), rows, k)),
            packing if packing.codebook_bits().is_some() => {
                Activations::Rotated(RotatedRows::new(bytemuck::cast_slice_mut(memory), rows, k))
            }
            _ => Activations::F32(&memory[..rows * k]),
        }
    }

    /// Number of rows of `k` inputs.
    pub(crate) fn rows(&self, k: usize) -> usize {
        match self {
            Activations::F32(x) => x.len() / k.max(1),
            Activations::Q8(x) => x.rows(),
            Activations::Rotated(x) => x.rows(),
        }
    }
}

/// What [`Exec::linear`] does with a product.
#[derive(Debug, Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// Added to every row, `[n]`.
    pub bias: Option<&'a [f32]>,
    /// Added to every column, `[rows]`: the bias of a convolution, where filters are rows.
    pub row_bias: Option<&'a [f32]>,
    /// Whether to add to `out` (a residual connection) rather than overwrite it.
    pub accumulate: bool,
    /// What the results are kept within, while they are in the cache; see [`Exec::keep_within`].
    pub bounds: Option<[f32; 2]>,
    /// What the results become then.
    pub activation: Option<UnaryOp>,
}

impl Exec<'_> {
    /// The rows `x [rows, k]` as `packing` reads them, made in `memory` of [`Activations::bytes`]. Where it reads integers, they are kept within `bounds` before.
    ///
    /// # Panics
    /// When a length does not match, and where there are bounds for floats: programming errors.
    pub fn activations<'a>(
        &self,
        packing: Packing,
        x: &'a [f32],
        [rows, k]: [usize; 2],
        bounds: Option<[f32; 2]>,
        memory: &'a mut [f32],
    ) -> Activations<'a> {
        match packing {
            Packing::Int8G32 => {
                let mut q = QuantizedRows::new(bytemuck::cast_slice_mut(memory), rows, k);
                self.quantize_rows_within(x, rows, k, bounds, &mut q);
                Activations::Q8(q)
            }
            packing if packing.codebook_bits().is_some() => {
                let mut q = RotatedRows::new(bytemuck::cast_slice_mut(memory), rows, k);
                self.rotate_rows_within(x, rows, k, bounds, &mut q);
                Activations::Rotated(q)
            }
            _ => {
                assert!(bounds.is_none(), "activations: bounds of floats");
                Activations::F32(x)
            }
        }
    }

    /// `out = x · wᵀ` with the epilogue, `w [n, k]`, `x [rows, k]`, `out [rows, n]`.
    ///
    /// # Panics
    /// When a length does not match, when a packing meets other activations than [`Activations`] says, and when the weights are not aligned to their element type: programming errors.
    pub fn linear(&self, w: &PackedView<'_>, x: Activations<'_>, rows: usize, epilogue: Epilogue<'_>, out: &mut [f32]) {
        assert_eq!(
            Some(out.len()),
            rows.checked_mul(w.n()),
            "linear: elements of the output"
        );
        self.linear_into(w, x, rows, epilogue, (out, w.n()), None);
    }

    /// As [`Exec::linear`], the rows of `out` `stride` apart.
    pub(crate) fn linear_strided(
        &self,
        w: &PackedView<'_>,
        x: Activations<'_>,
        rows: usize,
        epilogue: Epilogue<'_>,
        out: &mut [f32],
        stride: usize,
    ) {
        self.linear_into(w, x, rows, epilogue, (out, stride), None);
    }

    /// As [`Exec::linear`] without accumulation, and `peaks [rows, ceil(n/16)]` get the largest of each
    /// [`PEAK_OUTPUTS`] outputs of a row, or a NaN where one of them is not finite: what the search for the largest outputs needs, while they are in registers.
    ///
    /// # Panics
    /// As [`Exec::linear`], and when the length of `peaks` does not match.
    pub fn linear_with_peaks(
        &self,
        w: &PackedView<'_>,
        x: Activations<'_>,
        rows: usize,
        bias: Option<&[f32]>,
        out: &mut [f32],
        peaks: &mut [f32],
    ) {
        let blocks = rows.checked_mul(w.n().div_ceil(BLOCK_ROWS));
        assert_eq!(Some(peaks.len()), blocks, "linear: elements of the peaks");
        let epilogue = Epilogue {
            bias,
            ..Epilogue::default()
        };
        assert_eq!(
            Some(out.len()),
            rows.checked_mul(w.n()),
            "linear: elements of the output"
        );
        self.linear_into(w, x, rows, epilogue, (out, w.n()), Some(peaks));
    }

    fn linear_into(
        &self,
        w: &PackedView<'_>,
        x: Activations<'_>,
        rows: usize,
        epilogue: Epilogue<'_>,
        (out, stride): (&mut [f32], usize),
        peaks: Option<&mut [f32]>,
    ) {
        let peaks = peaks.map(SharedMut::new);
        self.linear_shared(w, &x, rows, epilogue, (SharedMut::new(out), stride), peaks);
    }

    /// As [`Exec::linear`] for the columns from `first` on of rows of `out` that are `stride` apart.
    ///
    /// # Safety
    /// Nobody else may read or write those columns at the same time.
    pub(crate) unsafe fn linear_columns(
        &self,
        w: &PackedView<'_>,
        x: &Activations<'_>,
        rows: usize,
        epilogue: Epilogue<'_>,
        (out, first, stride): (&SharedMut<'_, f32>, usize, usize),
    ) {
        let out = out.sub(first..out.len());
        self.linear_shared(w, x, rows, epilogue, (out, stride), None);
    }

    fn linear_shared(
        &self,
        w: &PackedView<'_>,
        x: &Activations<'_>,
        rows: usize,
        epilogue: Epilogue<'_>,
        (out, stride): (SharedMut<'_, f32>, usize),
        peaks: Option<SharedMut<'_, f32>>,
    ) {
        let (n, k) = (w.n(), w.k());
        check_strided("linear", out.len(), rows, stride, n);
        assert!(
            epilogue.bias.is_none_or(|b| b.len() == n) && epilogue.row_bias.is_none_or(|b| b.len() == rows),
            "linear: elements of the bias"
        );
        if rows == 0 || n == 0 {
            return;
        }
        let target = Target {
            kernels: self.kernels,
            out,
            peaks,
            stride,
            n,
            epilogue,
        };
        match (x, w.packing()) {
            (Activations::Q8(x), Packing::Int8G32) => {
                assert!(x.rows() == rows && x.k() == k, "linear: shape of the quantized rows");
                self.linear_int8(w, x, &target);
            }
            (Activations::Rotated(x), packing) if packing.codebook_bits().is_some() => {
                assert!(x.rows() == rows && x.k() == k, "linear: shape of the rotated rows");
                self.linear_cq(w, packing.codebook_bits().unwrap_or_default(), x, &target);
            }
            (Activations::F32(x), packing) if !packing.reads_integers() => {
                assert_eq!(
                    Some(x.len()),
                    rows.checked_mul(k),
                    "linear: elements of the activations"
                );
                self.linear_float(w, x, rows, &target);
            }
            (_, packing) => panic!("linear: {packing} weights and activations of the other kind"),
        }
    }

    /// Says that a product of `rows` rows with `w` comes after the next run: threads that wait meanwhile fetch what they will read first. See [`Step::expect`](cactus_base::Step::expect).
    pub fn expect_linear(&self, w: &PackedView<'_>, rows: usize) {
        let line = FETCH.filter(|_| rows <= GEMV_ROWS);
        self.step.expect(line.map(|line| {
            let runs = few_rows_runs(w, rows, self.step.width());
            Ahead::new(w.data(), w.layout().block_bytes(), runs.count, line)
        }));
    }

    /// As [`Exec::for_block_runs`] for so few rows that memory is the limit.
    fn for_few_rows(&self, w: &PackedView<'_>, rows: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        let runs = few_rows_runs(w, rows, self.step.width());
        self.step.run(runs.count, &|run| f(runs.blocks(run)));
    }

    /// Calls `f` with the runs of blocks that the parts of a product consist of, as [`Runs::new`] cuts them.
    fn for_block_runs(
        &self,
        w: &PackedView<'_>,
        cost_ns: usize,
        max_run_bytes: usize,
        at_once: usize,
        f: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let runs = Runs::new(w, self.step.width(), cost_ns, max_run_bytes, at_once);
        self.step.run(runs.count, &|run| f(runs.blocks(run)));
    }
}

/// How `width` threads cut a product of few rows.
fn few_rows_runs(w: &PackedView<'_>, rows: usize, width: usize) -> Runs {
    /// Bound of a run: long enough for the hardware to follow the stream.
    const RUN_BYTES: usize = 1 << 20;
    let bytes = w.layout().data_bytes();
    let cost_ns = match w.packing().codebook_bits() {
        Some(bits) => bytes / bits as usize * 8 / 48,
        None => bytes / 32,
    };
    let run_bytes = match w.packing().reads_integers() {
        true => RUN_BYTES,
        false => float::RUN_BYTES,
    };
    Runs::new(w, width, cost_ns * rows.div_ceil(4), run_bytes, 1)
}

/// How the blocks of weights are cut into runs.
struct Runs {
    count: usize,
    /// Blocks that stay together.
    at_once: usize,
    blocks: usize,
}

impl Runs {
    /// Groups of blocks from which on for each thread none of them is cut: with fewer, threads would have too different shares.
    const WHOLE_FROM: usize = 8;

    /// Runs for `width` threads and a product that takes `cost_ns`, of `max_run_bytes` or of one register tile, whose `at_once` blocks stay together where there are many.
    fn new(w: &PackedView<'_>, width: usize, cost_ns: usize, max_run_bytes: usize, at_once: usize) -> Self {
        let blocks = w.layout().blocks();
        let whole = width <= 1 || blocks.div_ceil(at_once) >= Self::WHOLE_FROM * width;
        let at_once = if whole { at_once } else { 1 };
        let run = (max_run_bytes / (at_once * w.layout().block_bytes())).max(1);
        Self {
            count: block_parts(blocks.div_ceil(at_once), width, cost_ns, run),
            at_once,
            blocks,
        }
    }

    /// The blocks of run `run`.
    fn blocks(&self, run: usize) -> Range<usize> {
        let groups = part_range(self.blocks.div_ceil(self.at_once), self.count, run);
        groups.start * self.at_once..self.blocks.min(groups.end * self.at_once)
    }
}

/// Where the results of a product go.
struct Target<'a> {
    kernels: &'static Kernels,
    out: SharedMut<'a, f32>,
    /// See [`Exec::linear_with_peaks`].
    peaks: Option<SharedMut<'a, f32>>,
    /// Elements between the rows of `out`.
    stride: usize,
    n: usize,
    epilogue: Epilogue<'a>,
}

impl Target<'_> {
    /// Applies bounds and the activation to `rows` of `blocks`, all of whose sums are stored.
    ///
    /// # Safety
    /// No other thread may store the same rows and blocks at the same time.
    #[inline]
    unsafe fn activate(&self, rows: Range<usize>, blocks: Range<usize>) {
        let Epilogue { bounds, activation, .. } = self.epilogue;
        if bounds.is_none() && activation.is_none() {
            return;
        }
        let (first, end) = (blocks.start * BLOCK_ROWS, self.n.min(blocks.end * BLOCK_ROWS));
        if let Some(bounds) = bounds {
            for row in rows.clone() {
                // SAFETY: ours by this function's contract, as of `store`.
                let out = unsafe { self.out.piece(row * self.stride + first..row * self.stride + end) };
                keep_piece_within(self.kernels, bounds, out);
            }
        }
        if let Some(activation) = activation {
            let at = rows.start * self.stride + first;
            // SAFETY: as above.
            let out = unsafe { Stretches::new(&self.out, at, end - first, rows.len(), self.stride) };
            unary_stretches(self.kernels, activation, &out);
        }
    }

    /// Whether the outputs of `blocks` are whole vectors to which nothing is added but what was there.
    #[inline(always)]
    fn is_plain(&self, blocks: &Range<usize>) -> bool {
        let Epilogue { bias, row_bias, .. } = self.epilogue;
        bias.is_none() && row_bias.is_none() && self.peaks.is_none() && blocks.end * BLOCK_ROWS <= self.n
    }

    /// As [`Target::store`], where `plain` says whether the block is ([`Target::is_plain`]), which is asked once for many rows.
    ///
    /// # Safety
    /// As of [`Target::store`], and `plain` blocks are plain.
    #[inline(always)]
    unsafe fn store_as<S: Simd>(&self, s: S, plain: bool, row: usize, block: usize, mut sums: S::F) {
        if !plain {
            // SAFETY: this function's contract.
            return unsafe { self.store(s, row, block, sums) };
        }
        let at = row * self.stride + block * BLOCK_ROWS;
        // SAFETY: as above; a plain block has as many outputs.
        let out = unsafe { self.out.piece(at..at + BLOCK_ROWS) };
        if let Some(out) = out.first_chunk_mut() {
            if self.epilogue.accumulate {
                sums = s.add(s.load(out), sums);
            }
            s.store(sums, out);
        }
    }

    /// Finishes and stores the sums of `row` for the outputs of block `block`.
    ///
    /// # Safety
    /// No other thread may store the same row and block at the same time.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, row: usize, block: usize, mut sums: S::F) {
        let first = block * BLOCK_ROWS;
        let count = BLOCK_ROWS.min(self.n - first);
        if let Some(bias) = self.epilogue.row_bias {
            sums = s.add(sums, s.splat(bias[row]));
        }
        // SAFETY: pieces of different rows and blocks are disjoint, and this one is ours by this function's contract.
        let out = unsafe {
            self.out
                .piece(row * self.stride + first..row * self.stride + first + count)
        };
        if let Ok(out) = <&mut [f32; 16]>::try_from(&mut *out) {
            if let Some(bias) = self.epilogue.bias.and_then(|b| b[first..].first_chunk()) {
                sums = s.add(sums, s.load(bias));
            }
            if self.epilogue.accumulate {
                sums = s.add(s.load(out), sums);
            }
            s.store(sums, out);
            if let Some(peaks) = &self.peaks {
                let at = row * self.n.div_ceil(BLOCK_ROWS) + block;
                // SAFETY: as above.
                unsafe { peaks.piece(at..at + 1)[0] = peak(s, sums) };
            }
        } else {
            if let Some(bias) = self.epilogue.bias {
                sums = s.add(sums, s.load_partial(&bias[first..]));
            }
            if self.epilogue.accumulate {
                sums = s.add(s.load_partial(out), sums);
            }
            s.store_partial(sums, out);
            if let Some(peaks) = &self.peaks {
                // Lanes beyond the last output repeat its value.
                let mut lanes = [out[count - 1]; 16];
                lanes[..count].copy_from_slice(out);
                let at = row * self.n.div_ceil(BLOCK_ROWS) + block;
                // SAFETY: as above.
                unsafe { peaks.piece(at..at + 1)[0] = peak(s, s.load(&lanes)) };
            }
        }
    }
}

/// The largest lane, NaN where a lane is not finite.
#[inline(always)]
pub(crate) fn peak<S: Simd>(s: S, v: S::F) -> f32 {
    // Zero times a number is zero, times anything else NaN.
    s.reduce_max(v) + s.reduce_sum(s.mul(v, s.zero()))
}
