//! Convolutions on bytes: windows are rows of tiles, filters their columns.
//!
//! A tile of rows is 64 channels of a tap of 16 windows. It is read where the places are, if those are equally far apart and whole lines of the cache; otherwise it is copied first.

use super::super::blocks::GROUP;
use super::super::conv_bytes::{Lines, Sample, Step};
use super::super::place_bytes::{Chunk, RUN};
use crate::exec::SharedMut;
use crate::matmul::AMX_ROWS as ROWS;
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Amx, Avx512, OpFor, Simd, Tiles};
use std::mem::MaybeUninit;

/// Bytes of a row.
const DEPTH: usize = 64;
/// Chunks of a row.
const CHUNKS: usize = DEPTH / size_of::<Chunk>();
/// Tiles of a run of channels.
const PIECES: usize = RUN / CHUNKS;
/// Tiles of windows that meet the same filters.
const TILES: usize = 2;
/// Blocks of filters that meet the same windows.
const BLOCKS: usize = 2;
/// Bytes of weights that are asked for ahead of those that the first windows are multiplied with.
const AHEAD: usize = 16 << 10;
/// Steps whose tiles are multiplied before any is scaled: it takes as long to store a tile as to multiply it.
const AT_ONCE: usize = 2;

/// Windows times a group of blocks, all steps.
pub(in crate::dense) struct Run<'a, 'b> {
    pub(in crate::dense) token: Amx,
    pub(in crate::dense) sample: &'a Sample<'b>,
    /// The first places of windows.
    pub(in crate::dense) starts: &'a [usize],
    /// Of each block.
    pub(in crate::dense) lines: &'a [&'a [Lines]],
    /// Of each block the scales of its filters, and what is added at the end.
    pub(in crate::dense) finish: &'a [[[f32; BLOCK_ROWS]; 2]; GROUP],
    /// Those of these windows and blocks are nobody else's.
    pub(in crate::dense) sums: &'a SharedMut<'a, f32>,
    /// Lines from the sums of a block to those of the next.
    pub(in crate::dense) stride: usize,
    /// Whether weights come from afar each time.
    pub(in crate::dense) is_large: bool,
}

/// 16 rows.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Rows([[Chunk; CHUNKS]; ROWS]);

/// Where the first row of a tile is, and how many bytes each is from the next; `None` where they are copied.
type Place = Option<(*const i8, usize)>;

/// The integer sums of a tile.
type Dots = [[MaybeUninit<i32>; BLOCK_ROWS]; ROWS];

/// What waits between instructions on tiles; it begins with a line of the cache.
#[repr(align(64))]
struct Memory {
    /// By step and tile of windows.
    copies: [[[Rows; PIECES]; TILES]; AT_ONCE],
    rows: [[[Place; PIECES]; TILES]; AT_ONCE],
    scales: [[[f32; ROWS]; TILES]; AT_ONCE],
    /// Filters that end before a tile does.
    lines: [Lines; CHUNKS],
    /// By step, tile of windows and block.
    dots: [[[Dots; BLOCKS]; TILES]; AT_ONCE],
}

impl Memory {
    /// Loads a piece of tile `T` of windows.
    ///
    /// # Safety
    /// The last [`Part::find`] has set it, and the sample is still borrowed.
    #[inline(always)]
    unsafe fn load<const T: usize>(&self, tiles: &Tiles<DEPTH>, step: usize, piece: usize) {
        match self.rows[step][T][piece] {
            // SAFETY: 16 rows, as whoever found them promises.
            Some((first, apart)) => unsafe { tiles.rows_at::<T>(first, apart) },
            None => tiles.rows::<T>(bytemuck::cast_ref(&self.copies[step][T][piece].0)),
        }
    }
}

impl OpFor<Avx512> for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: Avx512) {
        const { assert!(RUN.is_multiple_of(CHUNKS), "runs of channels are whole tiles") };
        let all = self.sample.steps;
        self.sample.assert_inside(self.starts, all, self.lines);
        // SAFETY: the only ones of this thread: nothing below makes others.
        let tiles = unsafe { self.token.tiles::<DEPTH>() };
        let mut memory = Memory {
            copies: [[[Rows([[[0; 4]; CHUNKS]; ROWS]); PIECES]; TILES]; AT_ONCE],
            rows: [[[None; PIECES]; TILES]; AT_ONCE],
            scales: [[[0.0; ROWS]; TILES]; AT_ONCE],
            lines: [[[0; 64]; 4]; CHUNKS],
            dots: [[[[[MaybeUninit::uninit(); BLOCK_ROWS]; ROWS]; BLOCKS]; TILES]; AT_ONCE],
        };
        for panel in self.sample.panels(self.lines.len()) {
            for window in (0..self.starts.len()).step_by(TILES * ROWS) {
                let windows = window..self.starts.len().min(window + TILES * ROWS);
                for first in panel.clone().step_by(AT_ONCE) {
                    let part = Part {
                        run: &self,
                        window,
                        starts: &self.starts[windows.clone()],
                        steps: &all[first..panel.end.min(first + AT_ONCE)],
                        fetches: window == 0 && self.is_large,
                        begins: first == 0,
                        ends: panel.end.min(first + AT_ONCE) == all.len(),
                    };
                    // SAFETY: what all windows and blocks read in any step is there, as was asserted, and what `multiply` needs was found before.
                    unsafe {
                        part.find(s, &mut memory);
                        for block in (0..self.lines.len()).step_by(BLOCKS) {
                            match (part.starts.len() > ROWS, self.lines.len() - block) {
                                (true, 2..) => part.multiply::<2, 2>(s, &tiles, &mut memory, block),
                                (true, _) => part.multiply::<2, 1>(s, &tiles, &mut memory, block),
                                (_, 2..) => part.multiply::<1, 2>(s, &tiles, &mut memory, block),
                                _ => part.multiply::<1, 1>(s, &tiles, &mut memory, block),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Up to two tiles of windows, and up to two steps.
struct Part<'a, 'b> {
    run: &'a Run<'a, 'b>,
    window: usize,
    /// The first places of these windows.
    starts: &'a [usize],
    steps: &'a [Step],
    /// Whether these windows are the first to read weights that come from afar.
    fetches: bool,
    /// Whether there are no sums yet, and whether they are complete then.
    begins: bool,
    ends: bool,
}

impl Part<'_, '_> {
    /// Finds where rows are, or copies them, and their scales.
    ///
    /// # Safety
    /// What these windows read in these steps is there.
    #[inline(always)]
    unsafe fn find(&self, s: Avx512, memory: &mut Memory) {
        let sample = self.run.sample;
        let (chunks, runs) = (sample.layout.shape.chunks, sample.layout.shape.runs);
        // By pointers, as checks would take longer than what they check.
        let (bytes, marks) = (sample.chunks.as_ptr(), sample.marks.as_ptr());
        for (tile, starts) in self.starts.chunks(ROWS).enumerate() {
            // Rows behind the last window are arbitrary.
            let mut places = [starts[starts.len() - 1]; ROWS];
            places[..starts.len()].copy_from_slice(starts);
            let apart = places[1] - places[0];
            let in_place = chunks.is_multiple_of(CHUNKS) && places.windows(2).all(|pair| pair[0] + apart == pair[1]);
            for (at, step) in self.steps.iter().enumerate() {
                let scales = &mut memory.scales[at][tile];
                for i in 0..ROWS {
                    // SAFETY: this function's contract.
                    scales[i] = unsafe { (*marks.add(places[i] * runs + step.mark)).scale };
                }
                let pieces = memory.rows[at][tile].iter_mut().zip(&mut memory.copies[at][tile]);
                for ((rows, copies), first) in pieces.zip((0..step.chunks).step_by(CHUNKS)) {
                    let (bytes, count) = (bytes.wrapping_add(step.chunk + first), CHUNKS.min(step.chunks - first));
                    if in_place {
                        // Whole rows: places are, and so is each run of their channels.
                        let first_row = bytes.wrapping_add(places[0] * chunks).cast();
                        *rows = Some((first_row, apart * chunks * size_of::<Chunk>()));
                        continue;
                    }
                    // Whole lines are written, as a tile would wait longer for parts of them. Filters are multiplied by zeros where they have no such channels.
                    for i in 0..ROWS {
                        // SAFETY: as above.
                        let row: &[Chunk] = unsafe { std::slice::from_raw_parts(bytes.add(places[i] * chunks), count) };
                        let row = s.load_partial(bytemuck::cast_slice(row));
                        s.store(row, bytemuck::cast_mut(&mut copies.0[i]));
                    }
                    *rows = None;
                }
            }
        }
    }

    /// Multiplies `R` tiles of windows with `B` blocks from `block` on.
    ///
    /// # Safety
    /// As of [`Part::find`], which has found these windows and steps last.
    #[inline(always)]
    unsafe fn multiply<const R: usize, const B: usize>(
        &self,
        s: Avx512,
        tiles: &Tiles<DEPTH>,
        memory: &mut Memory,
        block: usize,
    ) {
        let lines: [&[Lines]; B] = std::array::from_fn(|b| self.run.lines[block + b]);
        for (at, step) in self.steps.iter().enumerate() {
            tiles.clear_all();
            for (piece, first) in (0..step.chunks).step_by(CHUNKS).enumerate().take(PIECES) {
                let line = step.line + first;
                if self.fetches {
                    lines.iter().for_each(|lines| fetch_ahead(s, lines, line));
                }
                // SAFETY: this function's contract.
                unsafe {
                    memory.load::<0>(tiles, at, piece);
                    if R > 1 {
                        memory.load::<1>(tiles, at, piece);
                    }
                }
                tiles.lines::<0>(tile_of(lines[0], line, &mut memory.lines));
                tiles.dot::<0, 0, 0>();
                if R > 1 {
                    tiles.dot::<2, 1, 0>();
                }
                if B > 1 {
                    tiles.lines::<1>(tile_of(lines[B - 1], line, &mut memory.lines));
                    tiles.dot::<1, 0, 1>();
                    if R > 1 {
                        tiles.dot::<3, 1, 1>();
                    }
                }
            }
            let [dots, dots_1] = &mut memory.dots[at];
            tiles.store::<0>(&mut dots[0]);
            if B > 1 {
                tiles.store::<1>(&mut dots[1]);
            }
            if R > 1 {
                tiles.store::<2>(&mut dots_1[0]);
            }
            if R > 1 && B > 1 {
                tiles.store::<3>(&mut dots_1[1]);
            }
        }
        for r in 0..R {
            let rows = ROWS.min(self.starts.len() - r * ROWS);
            for b in 0..B {
                let first = ((block + b) * self.run.stride + self.window + r * ROWS) * BLOCK_ROWS;
                // SAFETY: ours, as whoever made the run promises, and one piece is there at a time.
                let sums = unsafe { self.run.sums.piece(first..first + rows * BLOCK_ROWS) };
                let sums = sums.as_chunks_mut::<BLOCK_ROWS>().0;
                let finish = &self.run.finish[block + b];
                if let Some(sums) = sums.first_chunk_mut() {
                    // SAFETY: stored above.
                    unsafe { self.scale(s, memory, [r, b], finish, sums) };
                    continue;
                }
                let mut whole = [[0.0; BLOCK_ROWS]; ROWS];
                whole[..rows].copy_from_slice(sums);
                // SAFETY: stored above.
                unsafe { self.scale(s, memory, [r, b], finish, &mut whole) };
                sums.copy_from_slice(&whole[..rows]);
            }
        }
    }

    /// Adds the integer sums of tile `r` of windows and block `b`, scaled, step after step.
    ///
    /// # Safety
    /// They are stored.
    #[inline(always)]
    unsafe fn scale(
        &self,
        s: Avx512,
        memory: &Memory,
        [r, b]: [usize; 2],
        [scales, bias]: &[[f32; BLOCK_ROWS]; 2],
        sums: &mut [[f32; BLOCK_ROWS]; ROWS],
    ) {
        let mut own = [s.zero(); ROWS];
        if !self.begins {
            for row in 0..ROWS {
                own[row] = s.load(&sums[row]);
            }
        }
        for (dots, of_rows) in memory.dots.iter().zip(&memory.scales).take(self.steps.len()) {
            let (dots, of_rows) = (&dots[r][b], &of_rows[r]);
            for row in 0..ROWS {
                // SAFETY: this function's contract.
                let dot = unsafe { &*dots[row].as_ptr().cast::<[i32; BLOCK_ROWS]>() };
                own[row] = s.fma(s.to_float(s.load_i(dot)), s.splat(of_rows[row]), own[row]);
            }
        }
        if self.ends {
            let (scales, bias) = (s.load(scales), s.load(bias));
            for own in &mut own {
                *own = s.fma(*own, scales, bias);
            }
        }
        for row in 0..ROWS {
            s.store(own[row], &mut sums[row]);
        }
    }
}

/// Asks for the lines of a tile, [`AHEAD`] bytes behind chunk `first`.
#[inline(always)]
fn fetch_ahead(s: Avx512, lines: &[Lines], first: usize) {
    let lines = lines.as_ptr().wrapping_add(first).cast::<u8>().wrapping_add(AHEAD);
    for line in 0..DEPTH / 4 {
        s.prefetch_l2(lines.wrapping_add(line * 64));
    }
}

/// The lines of a tile that begins with chunk `first`. What is behind the last chunk of a block is zeros, what is behind that of a tap is arbitrary.
#[inline(always)]
fn tile_of<'a>(lines: &'a [Lines], first: usize, spare: &'a mut [Lines; CHUNKS]) -> &'a [[i8; 64]] {
    let found = &lines[first..];
    if let Some(whole) = found.first_chunk::<CHUNKS>() {
        return whole.as_flattened();
    }
    spare[..found.len()].copy_from_slice(found);
    spare[found.len()..].fill([[0; 64]; 4]);
    spare.as_flattened()
}
