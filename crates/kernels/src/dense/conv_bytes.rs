//! Convolutions with filters in 8 bits that have one scale each: places are multiplied as bytes, and integers are added up over the channels of a tap.
//!
//! Every place is quantized once, with one scale for all of its channels, and lies with zeros around it as bytes, channel after channel. Windows read
//! them where they are: filters are in the lanes of a product, four channels of a place are repeated in all of them. A chain of integers goes over up to 256 channels of a
//! tap; then it is multiplied with the scale of the place and added to the sums of the taps before, in the order of the taps. What all of a window
//! has in common, the scale of the filter and the bias, comes at the end. A strip of windows is multiplied with as many weights at a time as stay in the L1
//! cache; its sums wait in the output meanwhile. Where the CPU multiplies tiles (AMX) `x86` does the same with windows as rows. Input and output are planes or blocks, with the same bits.

use super::blocks::{GROUP, groups};
use super::conv::Window;
use super::conv_integers::{Form, Places};
use super::place_bytes::{Chunk, Mark, PlaceShape, Quantize, RUN};
use super::strips::in_lines;
use super::turn::{Planes, Turn};
use crate::elementwise::{keep_piece_within, unary_piece};
use crate::exec::{Exec, Kernels, SharedMut};
use crate::matmul::{AMX_ROWS, Epilogue};
use crate::parts::{part_count, part_range, place_and_filter};
use bytemuck::Zeroable;
use cactus_quant::{BLOCK_ROWS, PackedView};
#[cfg(target_arch = "x86_64")]
use cactus_simd::Isa;
use cactus_simd::{Op, Simd, Tier};
use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::x86;

/// Windows of the largest tile of vectors.
const TILE: usize = 6;
/// Windows from which on a tile of AMX is faster than vectors, though it has rows for more.
#[cfg(target_arch = "x86_64")]
const AMX_FROM: usize = 6;
/// Chunks of a place from which on tiles of AMX are used: those of a whole row.
const AMX_CHUNKS: usize = 4;
/// Windows whose sums wait while the next weights are multiplied: whole tiles of either kind.
const WINDOWS: usize = AMX_ROWS * TILE;
/// Places of a line that a thread quantizes at a time.
const PIECE: usize = 512;
/// Bytes of the weights that are multiplied at a time, at least one run of a tap: a part of an L1 cache.
const PANEL_BYTES: usize = 16 << 10;
/// Bytes of weights that may still be in the L2 cache when they are needed again.
#[cfg(target_arch = "x86_64")]
const CACHED_BYTES: usize = 512 << 10;
/// Most sums of floats that are held in registers beside as many of integers.
const HELD: usize = 12;
/// Bytes of the scales before the values of a block.
const SCALES_BYTES: usize = 4 * BLOCK_ROWS;

/// Sixteen inputs of a block of filters.
pub(super) type Lines = [[i8; 64]; 4];

/// Places with the padding around them, `[z, y, x]`.
#[derive(Clone, Copy)]
struct Framed {
    size: [usize; 3],
}

impl Framed {
    fn of(w: &Window) -> Self {
        // A file may say anything: what overflows becomes more than any memory has.
        let places = |axis: usize| {
            let last = w.out[axis].saturating_sub(1).saturating_mul(w.stride[axis]);
            let reach = w.kernel[axis].saturating_sub(1).saturating_mul(w.dilation[axis]);
            last.saturating_add(reach).saturating_add(1)
        };
        Self {
            size: [0, 1, 2].map(places),
        }
    }

    fn plane(&self) -> usize {
        self.size.iter().fold(1, |n, &size| n.saturating_mul(size))
    }

    fn at(&self, [z, y, x]: [usize; 3]) -> usize {
        (z * self.size[1] + y) * self.size[2] + x
    }

    /// What each tap adds to the place of a window.
    fn offsets(&self, w: &Window) -> Vec<usize> {
        let taps = (0..w.taps()).map(|tap| Window::split(tap, w.kernel));
        taps.map(|tap| self.at([0, 1, 2].map(|a| tap[a] * w.dilation[a])))
            .collect()
    }
}

/// How places lie that are quantized.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    framed: Framed,
    pub(super) shape: PlaceShape,
}

impl Layout {
    fn of(w: &Window, channels: usize) -> Self {
        Self {
            framed: Framed::of(w),
            shape: PlaceShape::of(channels),
        }
    }

    /// Elements of the bytes, and of the marks.
    fn elems(&self) -> [usize; 2] {
        let places = self.framed.plane();
        let of = |each: usize, size: usize| in_lines(places.saturating_mul(each).saturating_mul(size / 4));
        [
            of(self.shape.chunks, size_of::<Chunk>()),
            of(self.shape.runs, size_of::<Mark>()),
        ]
    }
}

/// A run of channels of a tap: where windows and filters have it.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// From the first chunk of a window's first place.
    pub(super) chunk: usize,
    /// From the first mark of that place.
    pub(super) mark: usize,
    /// In a block of filters.
    pub(super) line: usize,
    pub(super) chunks: usize,
}

/// The steps of all sums, in their order.
fn steps(w: &Window, layout: &Layout) -> Vec<Step> {
    let PlaceShape { chunks, runs, .. } = layout.shape;
    let mut all = Vec::with_capacity(w.taps() * runs);
    for (tap, place) in layout.framed.offsets(w).into_iter().enumerate() {
        for run in 0..runs {
            let first = run * RUN;
            all.push(Step {
                chunk: place * chunks + first,
                mark: place * runs + run,
                line: tap * chunks + first,
                chunks: RUN.min(chunks - first),
            });
        }
    }
    all
}

/// Whether the CPU multiplies windows of such places in tiles.
fn uses_tiles(kernels: &Kernels, shape: PlaceShape) -> bool {
    kernels.tier() == Tier::AmxInt8 && shape.chunks >= AMX_CHUNKS
}

/// The scales of a block of filters, and its values, `[taps, chunks]`.
fn filters<'a>(weight: &PackedView<'a>, block: usize) -> ([f32; BLOCK_ROWS], &'a [Lines]) {
    let (scales, lines) = weight.block(block).split_at(SCALES_BYTES);
    (bytemuck::pod_read_unaligned(scales), bytemuck::cast_slice(lines))
}

/// A sample, quantized.
pub(super) struct Sample<'a> {
    w: &'a Window,
    pub(super) layout: Layout,
    pub(super) chunks: &'a [Chunk],
    pub(super) marks: &'a [Mark],
    pub(super) steps: &'a [Step],
    weight: &'a PackedView<'a>,
    epilogue: Epilogue<'a>,
    form: Form,
    out: SharedMut<'a, f32>,
}

impl Exec<'_> {
    /// Elements that [`Exec::conv_bytes`] needs beside its output; as many as there are numbers where they are more.
    pub(super) fn conv_bytes_scratch_elems(w: &Window, channels: usize) -> usize {
        let [chunks, marks] = Layout::of(w, channels).elems();
        chunks.saturating_add(marks)
    }

    /// One sample of [`Exec::conv_integers`] with filters packed as [`Packing::Int8N16`](cactus_quant::Packing::Int8N16).
    #[allow(clippy::too_many_arguments)]
    pub(super) fn conv_bytes(
        &self,
        w: &Window,
        x: Places<'_>,
        form: Form,
        weight: &PackedView<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let layout = Layout::of(w, x.channels);
        let [chunks, marks] = layout.elems();
        let (chunks, rest) = scratch.split_at_mut(chunks);
        let places = layout.framed.plane();
        let chunks: &mut [Chunk] = bytemuck::cast_slice_mut(&mut chunks[..places * layout.shape.chunks * 4]);
        let marks: &mut [Mark] = bytemuck::cast_slice_mut(&mut rest[..marks][..places * layout.shape.runs * 2]);
        self.quantize_all(w, &layout, x, chunks, marks);
        let steps = steps(w, &layout);
        let sample = Sample {
            w,
            layout,
            chunks,
            marks,
            steps: &steps,
            weight,
            epilogue,
            form,
            out: SharedMut::new(out),
        };
        let groups = groups(weight.layout().blocks());
        // A core multiplies some hundred bytes in a nanosecond.
        let cost_ns = (WINDOWS.min(w.outputs()) * GROUP * BLOCK_ROWS / 128).saturating_mul(weight.k());
        let width = self.step.width();
        let shares = w.shares(weight.n(), width);
        // Whole tiles, and as many strips for each thread.
        let tile = match uses_tiles(self.kernels, layout.shape) {
            true => AMX_ROWS,
            false => TILE,
        };
        let tiles = w.outputs().div_ceil(tile);
        let strips = tiles.div_ceil(WINDOWS / tile).next_multiple_of(shares).min(tiles);
        let parts = part_count(width, groups.len() * strips, cost_ns);
        let kernels = self.kernels;
        self.step.run(parts, &|part| {
            for item in part_range(groups.len() * strips, parts, part) {
                let (strip, group) = place_and_filter(item, strips, groups.len(), shares);
                let own = part_range(tiles, strips, strip);
                let windows = own.start * tile..w.outputs().min(own.end * tile);
                // Items are disjoint.
                sample.strip(kernels, groups[group].clone(), windows);
            }
        });
    }

    /// Quantizes all places of `x`, zeros around them.
    fn quantize_all(&self, w: &Window, layout: &Layout, x: Places<'_>, chunks: &mut [Chunk], marks: &mut [Mark]) {
        let [depth, height, line] = layout.framed.size;
        let pieces = line.div_ceil(PIECE);
        let units = depth * height * pieces;
        let parts = part_count(self.step.width(), units, 4 * line.min(PIECE) * layout.shape.chunks);
        let (kernels, chunks, marks) = (self.kernels, SharedMut::new(chunks), SharedMut::new(marks));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (item, piece) = (unit / pieces, unit % pieces);
                let piece = piece * PIECE..line.min((piece + 1) * PIECE);
                let at = [item / height, item % height];
                // One tap passes over what lies between its steps.
                if (0..2).any(|axis| w.kernel[axis] == 1 && !at[axis].is_multiple_of(w.stride[axis])) {
                    continue;
                }
                let own = item * line + piece.start..item * line + piece.end;
                // SAFETY: pieces of lines are disjoint.
                let (chunks, marks) = unsafe {
                    (
                        chunks.piece(own.start * layout.shape.chunks..own.end * layout.shape.chunks),
                        marks.piece(own.start * layout.shape.runs..own.end * layout.shape.runs),
                    )
                };
                let inside = |axis: usize, at: usize| at.checked_sub(w.before[axis]).filter(|&at| at < w.size[axis]);
                let row = match (inside(0, at[0]), inside(1, at[1])) {
                    (Some(z), Some(y)) if x.plane > 0 => Some((z * w.size[1] + y) * w.size[2]),
                    _ => None,
                };
                let clamped = |place: usize| place.clamp(piece.start, piece.end) - piece.start;
                let own = match row {
                    Some(_) => clamped(w.before[2])..clamped(w.before[2].saturating_add(w.size[2])),
                    None => 0..0,
                };
                for outside in [0..own.start, own.end..piece.len()] {
                    chunks[outside.start * layout.shape.chunks..outside.end * layout.shape.chunks].fill([0; 4]);
                    marks[outside.start * layout.shape.runs..outside.end * layout.shape.runs].fill(Zeroable::zeroed());
                }
                let op = Quantize {
                    x,
                    // Where there is something of the line.
                    first: row.unwrap_or(0) + (piece.start + own.start).saturating_sub(w.before[2]),
                    shape: layout.shape,
                    chunks: &mut chunks[own.start * layout.shape.chunks..own.end * layout.shape.chunks],
                    marks: &mut marks[own.start * layout.shape.runs..own.end * layout.shape.runs],
                };
                kernels.run(op);
            }
        });
    }
}

impl Sample<'_> {
    /// What a group of blocks of filters gives for some windows, a strip at most; nobody else may have the same ones.
    fn strip(&self, kernels: &Kernels, blocks: Range<usize>, windows: Range<usize>) {
        let (n, outputs, all) = (windows.len(), self.w.outputs(), self.weight.n());
        let mut starts = [0; WINDOWS];
        // Those of a line of windows are one step from each other.
        let line = self.w.out[2];
        let mut first = windows.start;
        while first < windows.end {
            let end = windows.end.min((first / line + 1) * line);
            let window = Window::split(first, self.w.out);
            let at = self.layout.framed.at([0, 1, 2].map(|a| window[a] * self.w.stride[a]));
            let own = &mut starts[first - windows.start..end - windows.start];
            for (i, start) in own.iter_mut().enumerate() {
                *start = at + i * self.w.stride[2];
            }
            first = end;
        }
        match self.form {
            Form::Blocks => {
                let at = |block: usize| (block * outputs + windows.start) * BLOCK_ROWS;
                let sums = self.out.sub(at(blocks.start)..at(blocks.end - 1) + n * BLOCK_ROWS);
                self.multiply(kernels, blocks, &starts[..n], &sums, outputs);
            }
            Form::Planes => {
                let mut memory = [[0.0; BLOCK_ROWS]; WINDOWS * GROUP];
                let memory = memory[..n * blocks.len()].as_flattened_mut();
                self.multiply(kernels, blocks.clone(), &starts[..n], &SharedMut::new(memory), n);
                for (rows, block) in memory.chunks_exact(n * BLOCK_ROWS).zip(blocks) {
                    let own = block * BLOCK_ROWS..all.min((block + 1) * BLOCK_ROWS);
                    kernels.run(Turn {
                        rows,
                        stride: BLOCK_ROWS,
                        filters: own.len(),
                        planes: Planes {
                            out: &self.out.sub(own.start * outputs..own.end * outputs),
                            plane: outputs,
                            first: windows.start,
                        },
                    });
                }
            }
        }
    }

    /// Runs of steps whose weights for so many blocks are multiplied at a time.
    pub(super) fn panels(&self, blocks: usize) -> impl Iterator<Item = Range<usize>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (first, mut bytes) = (next, 0);
            let fitting = self.steps[first..].iter().take_while(|step| {
                bytes += step.chunks * blocks * size_of::<Lines>();
                bytes <= PANEL_BYTES
            });
            next = self.steps.len().min(first + fitting.count().max(1));
            (first < next).then_some(first..next)
        })
    }

    /// Asserts that what the windows and blocks read in these steps is there.
    #[inline(always)]
    pub(super) fn assert_inside(&self, starts: &[usize], steps: &[Step], lines: &[&[Lines]]) {
        let PlaceShape { chunks, runs, .. } = self.layout.shape;
        let last = starts.iter().max().copied().unwrap_or(0);
        for step in steps {
            let inside = last * chunks + step.chunk + step.chunks <= self.chunks.len()
                && last * runs + step.mark < self.marks.len()
                && lines.iter().all(|lines| step.line + step.chunks <= lines.len());
            assert!(inside, "conv_bytes: what is read lies outside");
        }
    }

    /// Multiplies the first windows by tiles, where a last one has enough of them; returns how many.
    #[cfg(target_arch = "x86_64")]
    fn multiply_tiles(
        &self,
        kernels: &Kernels,
        starts: &[usize],
        lines: &[&[Lines]],
        finish: &[[[f32; BLOCK_ROWS]; 2]; GROUP],
        sums: &SharedMut<'_, f32>,
        stride: usize,
    ) -> usize {
        let rest = match starts.len() % AMX_ROWS {
            rest @ ..AMX_FROM => rest,
            _ => 0,
        };
        let count = starts.len() - rest;
        match kernels.isa() {
            Isa::Amx(token) if count > 0 && uses_tiles(kernels, self.layout.shape) => {
                token.avx512().run(x86::ConvRun {
                    token,
                    sample: self,
                    starts: &starts[..count],
                    lines,
                    finish,
                    sums,
                    stride,
                    is_large: self.weight.layout().data_bytes() > CACHED_BYTES,
                });
                count
            }
            _ => 0,
        }
    }

    /// Only x86-64 has tiles.
    #[cfg(not(target_arch = "x86_64"))]
    fn multiply_tiles(
        &self,
        _kernels: &Kernels,
        _starts: &[usize],
        _lines: &[&[Lines]],
        _finish: &[[[f32; BLOCK_ROWS]; 2]; GROUP],
        _sums: &SharedMut<'_, f32>,
        _stride: usize,
    ) -> usize {
        0
    }

    /// Multiplies the windows that begin at `starts` with a group of blocks. The results of a block are lines in `sums`, `stride` lines behind those of the one before.
    fn multiply(
        &self,
        kernels: &Kernels,
        blocks: Range<usize>,
        starts: &[usize],
        sums: &SharedMut<'_, f32>,
        stride: usize,
    ) {
        let Epilogue {
            bias,
            bounds,
            activation,
            ..
        } = self.epilogue;
        let mut lines: [&[Lines]; GROUP] = [&[]; GROUP];
        let mut finish = [[[0.0; BLOCK_ROWS]; 2]; GROUP];
        for ((lines, finish), block) in lines.iter_mut().zip(&mut finish).zip(blocks.clone()) {
            (finish[0], *lines) = filters(self.weight, block);
            if let Some(bias) = bias {
                let bias = &bias[block * BLOCK_ROWS..];
                let count = bias.len().min(BLOCK_ROWS);
                finish[1][..count].copy_from_slice(&bias[..count]);
            }
        }
        let lines = &lines[..blocks.len()];
        let done = self.multiply_tiles(kernels, starts, lines, &finish, sums, stride);
        let (starts_left, sums_left) = (&starts[done..], sums.sub(done * BLOCK_ROWS..sums.len()));
        for panel in self.panels(blocks.len()).take_while(|_| !starts_left.is_empty()) {
            kernels.run(Multiply {
                sample: self,
                starts: starts_left,
                steps: &self.steps[panel.clone()],
                lines,
                is_first: panel.start == 0,
                finish: (panel.end == self.steps.len()).then_some(&finish),
                sums: &sums_left,
                stride,
            });
        }
        if bounds.is_none() && activation.is_none() {
            return;
        }
        for i in 0..blocks.len() {
            let first = i * stride * BLOCK_ROWS;
            // SAFETY: ours, as the caller promises.
            let sums = unsafe { sums.piece(first..first + starts.len() * BLOCK_ROWS) };
            if let Some(bounds) = bounds {
                keep_piece_within(kernels, bounds, sums);
            }
            if let Some(activation) = activation {
                unary_piece(kernels, activation, sums);
            }
        }
    }
}

/// The products of some windows with some blocks, some steps of their sums.
struct Multiply<'a> {
    sample: &'a Sample<'a>,
    /// The first places of windows.
    starts: &'a [usize],
    steps: &'a [Step],
    /// Of each block.
    lines: &'a [&'a [Lines]],
    /// Whether there are no sums yet.
    is_first: bool,
    /// Where these steps are the last: of each block the scales of its filters, and what is added then.
    finish: Option<&'a [[[f32; BLOCK_ROWS]; 2]; GROUP]>,
    sums: &'a SharedMut<'a, f32>,
    /// Lines from the sums of a block to those of the next.
    stride: usize,
}

impl Op for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        self.sample.assert_inside(self.starts, self.steps, self.lines);
        let mut block = 0;
        while block < self.lines.len() {
            // SAFETY: what all windows and blocks read is there, as seen above.
            block += unsafe {
                match self.lines.len() - block {
                    4.. if S::TILE_ROWS >= 8 => self.windows::<S, 4>(s, block),
                    3 if S::TILE_ROWS >= 8 => self.windows::<S, 3>(s, block),
                    2 if S::TILE_ROWS >= 8 => self.windows::<S, 2>(s, block),
                    _ => self.windows::<S, 1>(s, block),
                }
            };
        }
    }
}

impl Multiply<'_> {
    /// All windows with `B` blocks from `block` on; returns `B`.
    ///
    /// # Safety
    /// What the steps read of these windows and blocks is there.
    #[inline(always)]
    unsafe fn windows<S: Simd, const B: usize>(&self, s: S, block: usize) -> usize {
        let mut window = 0;
        while window < self.starts.len() {
            // SAFETY: this function's contract.
            window += unsafe {
                match self.starts.len() - window {
                    TILE.. if S::TILE_ROWS >= 8 => self.tile::<S, TILE, B>(s, window, block),
                    4.. => self.tile::<S, 4, B>(s, window, block),
                    2.. => self.tile::<S, 2, B>(s, window, block),
                    _ => self.tile::<S, 1, B>(s, window, block),
                }
            };
        }
        B
    }

    /// `R` windows from `window` on with `B` blocks from `block` on; returns `R`. By pointers, for with slices their lengths would take the registers of the
    /// addresses, and checks as much time as the products of 32 channels.
    ///
    /// # Safety
    /// As of [`Multiply::windows`].
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const B: usize>(&self, s: S, window: usize, block: usize) -> usize {
        let PlaceShape { chunks, runs, .. } = self.sample.layout.shape;
        let starts: &[usize; R] = self.starts[window..].first_chunk().unwrap_or(&[0; R]);
        let mut places = [self.sample.chunks.as_ptr(); R];
        let mut marks = [self.sample.marks.as_ptr(); R];
        for r in 0..R {
            places[r] = places[r].wrapping_add(starts[r] * chunks);
            marks[r] = marks[r].wrapping_add(starts[r] * runs);
        }
        let mut lines = [self.lines[block].as_ptr(); B];
        for b in 1..B {
            lines[b] = self.lines[block + b].as_ptr();
        }
        // What does not fit into registers waits in the output, whose lines are those of a cache, and not on the stack, whose are not.
        let held = S::TILE_ROWS >= 8 && R * B <= HELD;
        let mut sums = [[s.zero(); B]; R];
        if held && !self.is_first {
            for b in 0..B {
                // SAFETY: the sums of these windows and blocks are ours, and one piece of them is there at a time.
                let before = unsafe { self.piece::<R>(block + b, window) };
                for r in 0..R {
                    sums[r][b] = s.load(&before[r]);
                }
            }
        }
        let mut none = self.is_first;
        for step in self.steps {
            let &Step {
                chunk,
                mark,
                line,
                chunks: count,
            } = step;
            let mut dots = [[[s.splat_i(0); B]; R]];
            if S::DOT_OFFSET != 0 {
                for r in 0..R {
                    // SAFETY: this function's contract.
                    let start = unsafe { (*marks[r].add(mark)).start };
                    dots[0][r] = [s.splat_i(start); B];
                }
            }
            for i in 0..count {
                // SAFETY: as above.
                let mut quads = [unsafe { fours(lines[0].add(line + i)) }; B];
                for b in 1..B {
                    // SAFETY: as above.
                    quads[b] = unsafe { fours(lines[b].add(line + i)) };
                }
                // SAFETY: as above.
                let mut x = [unsafe { &*places[0].add(chunk + i) }; R];
                for r in 1..R {
                    // SAFETY: as above.
                    x[r] = unsafe { &*places[r].add(chunk + i) };
                }
                s.dot_fours(&mut dots, quads, [x]);
            }
            let mut scales = [s.zero(); R];
            for r in 0..R {
                // SAFETY: as above.
                scales[r] = s.splat(unsafe { (*marks[r].add(mark)).scale });
            }
            for b in 0..B {
                // SAFETY: the sums of these windows and blocks are ours, and one piece of them is there at a time.
                let waiting = unsafe { self.piece::<R>(block + b, window) };
                for r in 0..R {
                    let mut before = sums[r][b];
                    if !held && !none {
                        before = s.load(&waiting[r]);
                    }
                    let sum = s.fma(s.to_float(dots[0][r][b]), scales[r], before);
                    if held {
                        sums[r][b] = sum;
                    } else {
                        s.store(sum, &mut waiting[r]);
                    }
                }
            }
            none = false;
        }
        // Not in the loop, in which the compiler would keep other sums in memory, too.
        for b in 0..B {
            // SAFETY: as above.
            let made = unsafe { self.piece::<R>(block + b, window) };
            match self.finish {
                Some(finish) => {
                    let [scales, bias] = &finish[block + b];
                    let (scales, bias) = (s.load(scales), s.load(bias));
                    for r in 0..R {
                        let sum = if held { sums[r][b] } else { s.load(&made[r]) };
                        s.store(s.fma(sum, scales, bias), &mut made[r]);
                    }
                }
                None if held => {
                    for r in 0..R {
                        s.store(sums[r][b], &mut made[r]);
                    }
                }
                None => {}
            }
        }
        R
    }

    /// The sums of `R` windows of a block.
    ///
    /// # Safety
    /// Nobody else has them.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn piece<const R: usize>(&self, block: usize, window: usize) -> &mut [[f32; BLOCK_ROWS]; R] {
        let first = (block * self.stride + window) * BLOCK_ROWS;
        // SAFETY: this function's contract.
        let piece = unsafe { self.sums.piece(first..first + R * BLOCK_ROWS) };
        match piece.as_chunks_mut().0.first_chunk_mut() {
            Some(sums) => sums,
            None => unreachable!("a piece has as many lines as it was asked for"),
        }
    }
}

/// The four vectors of a line.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn fours<'a>(lines: *const Lines) -> [&'a [i8; 64]; 4] {
    // SAFETY: this function's contract.
    let [a, b, c, d] = unsafe { &*lines };
    [a, b, c, d]
}
