//! Products with float weights.

use super::{Runs, Target};
use crate::exec::Exec;
use crate::parts::part_range;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use cactus_simd::{Op, Simd};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Interleaved sums of one output: input `i` belongs to sum `i % CHAINS`.
const CHAINS: usize = 4;
/// Up to this number of rows all chains advance together, so that weights are read once from beginning to end.
const STREAMED_ROWS: usize = 3;
/// Most rows of a register tile whose chains take turns: with [`wide_blocks`] blocks, 24 of 32 registers or 12 of 16.
const TURN_ROWS: usize = 6;
/// Inputs after which the next chain has its turn: what the rows of a tile hold of them stays in the L1 cache.
const TURN_INPUTS: usize = 512;
/// Lines ahead of which one is fetched.
const AHEAD: usize = 32;
/// Most inputs that a tile takes before the next tile begins.
const PANEL_INPUTS: usize = 2048;
/// Rows that all blocks of a run visit in turn where inputs are more than that.
const PANEL_ROWS: usize = 48;
/// Otherwise the bound of the rows that all blocks of a run visit in turn: they stay in the L2 cache, beside a block.
const PANEL_BYTES: usize = 192 << 10;
/// Bound of a run of blocks.
pub(super) const RUN_BYTES: usize = 512 << 10;
/// Most blocks of a register tile.
const GROUP: usize = 4;
/// Rows for which a row of weights is decoded once.
const BY_ROWS: usize = 64;

/// Blocks of a register tile whose chains take turns.
pub(crate) const fn wide_blocks<S: Simd>() -> usize {
    if S::TILE_ROWS >= 8 { GROUP } else { 1 }
}

impl Exec<'_> {
    pub(super) fn linear_float(&self, w: &PackedView<'_>, x: &[f32], rows: usize, target: &Target<'_>) {
        let kernels = self.kernels;
        if matches!(w.packing(), Packing::RowMajor | Packing::Int8N16) {
            linear_by_rows(w, x, rows, target);
            return;
        }
        let run = |blocks: Range<usize>, rows: Range<usize>| match w.packing() {
            Packing::F16N16 => kernels.run(FloatOp::<u16> {
                w,
                blocks,
                rows,
                x,
                target,
                element: std::marker::PhantomData,
            }),
            _ => kernels.run(FloatOp::<f32> {
                w,
                blocks,
                rows,
                x,
                target,
                element: std::marker::PhantomData,
            }),
        };
        if rows < 2 * TURN_ROWS {
            self.for_few_rows(w, rows, &|blocks| run(blocks, 0..rows));
            return;
        }
        let cost_ns = w.layout().data_bytes() / 32 * rows.div_ceil(4);
        // Many rows: whole groups of blocks, and rows are cut too where there are few groups.
        let (groups, width) = (w.layout().blocks().div_ceil(GROUP), self.step.width());
        let tiles = rows.div_ceil(TURN_ROWS);
        let cut = if groups < Runs::WHOLE_FROM * width {
            width.min(tiles)
        } else {
            1
        };
        let runs = Runs::new(w, if cut > 1 { 1 } else { width }, cost_ns, RUN_BYTES, GROUP);
        self.step.run(runs.count * cut, &|part| {
            // Rows vary slowest: the parts of a thread follow one another, and its rows stay in its cache.
            let tiles = part_range(tiles, cut, part / runs.count);
            run(
                runs.blocks(part % runs.count),
                tiles.start * TURN_ROWS..rows.min(tiles.end * TURN_ROWS),
            );
        });
    }
}

/// Weights that no tile reads, small tables and filters of convolutions: one output after the other in the same order of arithmetic.
fn linear_by_rows(w: &PackedView<'_>, x: &[f32], rows: usize, target: &Target<'_>) {
    let (k, blocks) = (w.k(), w.n().div_ceil(BLOCK_ROWS));
    let mut weights = vec![0.0; k];
    for (first, block) in (0..rows)
        .step_by(BY_ROWS)
        .flat_map(|first| (0..blocks).map(move |block| (first, block)))
    {
        let (mut sums, own) = ([[0.0; BLOCK_ROWS]; BY_ROWS], BY_ROWS.min(rows - first));
        for (lane, output) in (block * BLOCK_ROWS..w.n()).take(BLOCK_ROWS).enumerate() {
            w.decode_row(output, &mut weights);
            for (sums, x) in sums.iter_mut().zip(x[first * k..].chunks_exact(k.max(1))) {
                let mut p = [0f32; CHAINS];
                for (i, (weight, x)) in weights.iter().zip(x).enumerate() {
                    p[i % CHAINS] = weight.mul_add(*x, p[i % CHAINS]);
                }
                sums[lane] = (p[0] + p[1]) + (p[2] + p[3]);
            }
        }
        for (row, sums) in sums.into_iter().enumerate().take(own) {
            // SAFETY: this is the only thread.
            unsafe { target.store(cactus_simd::Scalar, first + row, block, sums) };
        }
    }
    // SAFETY: as above.
    unsafe { target.activate(0..rows, 0..blocks) };
}

/// Element of a float packing.
pub(crate) trait Element: bytemuck::Pod {
    /// 16 elements as floats.
    fn load<S: Simd>(s: S, x: &[Self; BLOCK_ROWS]) -> S::F;
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32; BLOCK_ROWS]) -> S::F {
        s.load(x)
    }
}

/// The bits of an `f16`.
impl Element for u16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16; BLOCK_ROWS]) -> S::F {
        s.load_f16(x)
    }
}

struct FloatOp<'a, 'b, E> {
    w: &'a PackedView<'b>,
    blocks: Range<usize>,
    rows: Range<usize>,
    x: &'a [f32],
    target: &'a Target<'b>,
    element: std::marker::PhantomData<E>,
}

impl<E: Element> Op for FloatOp<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Range { start, end } = self.blocks.clone();
        if self.rows.len() <= STREAMED_ROWS {
            for block in start..end {
                match self.rows.len() {
                    0 => {}
                    1 => self.streamed::<S, 1>(s, block),
                    2 => self.streamed::<S, 2>(s, block),
                    _ => self.streamed::<S, 3>(s, block),
                }
            }
            // SAFETY: parts have disjoint runs of blocks or rows.
            unsafe { self.target.activate(self.rows.clone(), start..end) };
            return;
        }
        let panel = match self.span() < self.w.k() {
            true => PANEL_ROWS,
            false => (PANEL_BYTES / (4 * self.w.k().max(1)) / TURN_ROWS).max(1) * TURN_ROWS,
        };
        let mut sums = [const { MaybeUninit::uninit() }; PANEL_ROWS * CHAINS * GROUP];
        for first in self.rows.clone().step_by(panel) {
            let rows = first..self.rows.end.min(first + panel);
            let mut block = start;
            while block < end {
                let rows = rows.clone();
                block += match end - block {
                    _ if wide_blocks::<S>() == 1 => self.all_rows::<S, 1>(s, rows, block, &mut sums),
                    1 => self.all_rows::<S, 1>(s, rows, block, &mut sums),
                    2 => self.all_rows::<S, 2>(s, rows, block, &mut sums),
                    // Rather tiles of three blocks than one of four and one of one.
                    3 | 5 | 6 | 9 => self.all_rows::<S, 3>(s, rows, block, &mut sums),
                    _ => self.all_rows::<S, GROUP>(s, rows, block, &mut sums),
                };
            }
        }
    }
}

impl<E: Element> FloatOp<'_, '_, E> {
    fn lines(&self, block: usize) -> &[[E; BLOCK_ROWS]] {
        bytemuck::cast_slice(self.w.block(block))
    }

    fn row(&self, row: usize) -> &[f32] {
        let k = self.w.k();
        &self.x[row * k..(row + 1) * k]
    }

    /// All rows, of which there are `R`, times block `block`.
    #[inline(always)]
    fn streamed<S: Simd, const R: usize>(&self, s: S, block: usize) {
        let k = self.w.k();
        let lines = self.lines(block);
        let x: [&[f32]; R] = std::array::from_fn(|r| self.row(self.rows.start + r));
        assert!(lines.len() == k && x.iter().all(|x| x.len() == k));
        let mut p = [[s.zero(); CHAINS]; R];
        let (quads, tail) = lines.as_chunks::<CHAINS>();
        for (q, quad) in quads.iter().enumerate() {
            for c in 0..CHAINS {
                let weights = E::load(s, &quad[c]);
                super::fetch_ahead::<S, 1>(s, quad[c].as_ptr().cast(), super::AHEAD);
                for r in 0..R {
                    // SAFETY: `q` counts whole quads of `k` lines, so the index is below `k`, the length of every row.
                    let x = unsafe { *x[r].get_unchecked(q * CHAINS + c) };
                    p[r][c] = s.fma(weights, s.splat(x), p[r][c]);
                }
            }
        }
        for (c, line) in tail.iter().enumerate() {
            let weights = E::load(s, line);
            for r in 0..R {
                p[r][c] = s.fma(weights, s.splat(x[r][k - tail.len() + c]), p[r][c]);
            }
        }
        for (r, p) in p.iter().enumerate() {
            let sums = s.add(s.add(p[0], p[1]), s.add(p[2], p[3]));
            // SAFETY: parts have disjoint runs of blocks or rows.
            unsafe { self.target.store(s, self.rows.start + r, block, sums) };
        }
    }

    /// Inputs that all rows of a panel take before the next ones. Of many inputs, a panel would be too few rows to fetch weights for.
    fn span(&self) -> usize {
        match self.w.k() {
            k @ ..=PANEL_INPUTS => k,
            _ => TURN_INPUTS,
        }
    }

    /// `rows` times `B` blocks from `block` on; returns `B`.
    #[inline(always)]
    fn all_rows<S: Simd, const B: usize>(
        &self,
        s: S,
        rows: Range<usize>,
        block: usize,
        sums: &mut [MaybeUninit<S::F>],
    ) -> usize {
        let k = self.w.k();
        let span = self.span().max(1);
        for start in (0..k.max(1)).step_by(span) {
            let inputs = start..k.min(start + span);
            let mut row = rows.start;
            while row < rows.end {
                let before = row - rows.start;
                // Sums of no tile wait where all inputs are taken at once.
                let at = if inputs.len() == k { 0 } else { before * CHAINS * B };
                let (sums, inputs) = (&mut sums[at..], inputs.clone());
                let next = self.next_lines::<B>(block, before / TURN_ROWS, &inputs);
                row += match rows.end - row {
                    1 => self.in_turns::<S, 1, B>(s, row, block, inputs, sums, next),
                    2 | 3 => self.in_turns::<S, 2, B>(s, row, block, inputs, sums, next),
                    // Rather two tiles of four rows than one of six and one of two.
                    4 | 5 | 7 | 8 => self.in_turns::<S, 4, B>(s, row, block, inputs, sums, next),
                    _ => self.in_turns::<S, TURN_ROWS, B>(s, row, block, inputs, sums, next),
                };
            }
        }
        B
    }

    /// The lines that tile `tile` fetches into the caches, one for each of its `inputs`: those of one of the `B` blocks that all rows take next.
    fn next_lines<const B: usize>(&self, block: usize, tile: usize, inputs: &Range<usize>) -> *const [E; BLOCK_ROWS] {
        let k = self.w.k();
        let own = self.lines(block + tile.min(B - 1)).as_ptr();
        match inputs.end < k {
            // Nothing is left to fetch.
            _ if tile >= B => own,
            true => own.wrapping_add(inputs.len()),
            // The first inputs of the next blocks.
            false => own.wrapping_add(B * k).wrapping_sub(inputs.start),
        }
    }

    /// Rows `row..row + R` times blocks `block..block + B` over `inputs`, one chain after the other, so that the tile may have as many
    /// outputs as there are registers, and each load serves more products; returns `R`.
    ///
    /// Sums over the inputs before are in `sums`, and those so far stay there until the last input. Lines from `next` on are fetched meanwhile.
    #[inline(always)]
    fn in_turns<S: Simd, const R: usize, const B: usize>(
        &self,
        s: S,
        row: usize,
        block: usize,
        inputs: Range<usize>,
        sums: &mut [MaybeUninit<S::F>],
        next: *const [E; BLOCK_ROWS],
    ) -> usize {
        let k = self.w.k();
        let lines: [*const [E; BLOCK_ROWS]; B] = std::array::from_fn(|b| {
            let lines = self.lines(block + b);
            assert_eq!(lines.len(), k);
            lines.as_ptr()
        });
        let x: [*const f32; R] = std::array::from_fn(|r| self.row(row + r).as_ptr());
        assert!(sums.len() >= CHAINS * R * B);
        // SAFETY: a tile is `R * B` sums, and nothing needs to be written.
        let chains: &mut [MaybeUninit<Tile<S, R, B>>; CHAINS] = unsafe { &mut *sums.as_mut_ptr().cast() };
        let turn = Chains { s, lines, x, next };
        // Were the turns unrolled, the compiler would run out of registers in one of them.
        let turns = std::hint::black_box(CHAINS);
        for start in (inputs.start..inputs.end.max(inputs.start + 1)).step_by(TURN_INPUTS) {
            let inputs = start..inputs.end.min(start + TURN_INPUTS);
            for (c, chain) in chains.iter_mut().enumerate().take(turns) {
                let before = match start {
                    0 => [[s.zero(); B]; R],
                    // SAFETY: the first inputs have written it.
                    _ => unsafe { chain.assume_init() },
                };
                // SAFETY: the lines and rows have `k` elements.
                chain.write(unsafe { turn.run::<CHAINS>(c, inputs.clone(), before) });
            }
        }
        if inputs.end < k {
            return R;
        }
        // SAFETY: all of them have been written.
        let [p0, p1, p2, p3] = chains.each_ref().map(|chain| unsafe { chain.assume_init_ref() });
        for r in 0..R {
            for b in 0..B {
                let sums = s.add(s.add(p0[r][b], p1[r][b]), s.add(p2[r][b], p3[r][b]));
                // SAFETY: parts have disjoint runs of blocks or rows.
                unsafe { self.target.store(s, row + r, block + b, sums) };
            }
        }
        // SAFETY: as above.
        unsafe { self.target.activate(row..row + R, block..block + B) };
        R
    }
}

/// Sums of `R` rows and `B` blocks.
pub(crate) type Tile<S, const R: usize, const B: usize> = [[<S as Simd>::F; B]; R];

/// What the chains of a tile read. Pointers, for with slices their lengths would take the registers of the addresses.
pub(crate) struct Chains<S, E, const R: usize, const B: usize> {
    pub(crate) s: S,
    /// The first line of each block.
    pub(crate) lines: [*const [E; BLOCK_ROWS]; B],
    /// The first input of each row.
    pub(crate) x: [*const f32; R],
    /// Lines to fetch meanwhile, one for each input.
    pub(crate) next: *const [E; BLOCK_ROWS],
}

impl<S: Simd, E: Element, const R: usize, const B: usize> Chains<S, E, R, B> {
    /// Chain `chain` of `N` over `inputs`, of which the first one belongs to chain 0.
    ///
    /// # Safety
    /// Lines and rows have elements up to the end of `inputs`.
    #[inline(always)]
    pub(crate) unsafe fn run<const N: usize>(
        &self,
        chain: usize,
        inputs: Range<usize>,
        mut p: Tile<S, R, B>,
    ) -> Tile<S, R, B> {
        let s = self.s;
        let mut i = inputs.start + chain;
        while i < inputs.end {
            let mut weights = [s.zero(); B];
            s.prefetch(self.next.wrapping_add(i).cast());
            for b in 0..B {
                // Lines four apart are more than the hardware fetches ahead of by itself.
                s.prefetch(self.lines[b].wrapping_add(i + AHEAD).cast());
                // SAFETY: `i` is one of the inputs.
                weights[b] = E::load(s, unsafe { &*self.lines[b].add(i) });
            }
            for r in 0..R {
                // SAFETY: as above.
                let x = s.splat(unsafe { *self.x[r].add(i) });
                for b in 0..B {
                    p[r][b] = s.fma(weights[b], x, p[r][b]);
                }
            }
            i += N;
        }
        p
    }
}
