//! The products of windows and filters: filters lie in the lanes, and what a window reads is repeated in all of them.

use crate::exec::SharedMut;
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Most blocks of 16 filters that are multiplied at once.
pub(in crate::dense) const GROUP: usize = 4;

/// How `blocks` blocks of filters are cut into groups: whole ones, and rather three and two than four and one.
pub(in crate::dense) fn groups(blocks: usize) -> Vec<Range<usize>> {
    let mut all = Vec::with_capacity(blocks.div_ceil(GROUP));
    let mut first = 0;
    while first < blocks {
        let count = match blocks - first {
            5 | 6 | 9 => 3,
            left => left.min(GROUP),
        };
        all.push(first..first + count);
        first += count;
    }
    all
}

/// What a sum reads in one step, from where a window and the lines of a block begin.
#[derive(Clone, Copy)]
pub(super) struct Reads {
    pub(super) x: usize,
    pub(super) line: usize,
}

/// Where windows begin.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Windows of a row.
    pub(super) width: usize,
    /// Elements between windows, and between rows of them.
    pub(super) step: usize,
    pub(super) row: usize,
}

impl Grid {
    fn at(&self, window: usize) -> usize {
        window / self.width * self.row + window % self.width * self.step
    }
}

/// What sums begin with.
#[derive(Clone, Copy)]
pub(super) enum Begin<'a> {
    Zero,
    /// A number for each filter of the group.
    Bias(&'a [[f32; BLOCK_ROWS]; GROUP]),
    /// What is in the output: sums of the steps before.
    Output,
}

/// Sums of `R` windows and `B` blocks.
type Tile<S, const R: usize, const B: usize> = [[<S as Simd>::F; B]; R];

/// The loop of a tile. Pointers, for with slices their lengths would take the registers of the addresses.
struct Multiply<'a, S, const R: usize, const B: usize> {
    s: S,
    from: [*const f32; R],
    lines: [*const f32; B],
    /// Lines of the next sums, one for each step.
    next: *const f32,
    steps: &'a [Reads],
}

impl<S: Simd, const R: usize, const B: usize> Multiply<'_, S, R, B> {
    /// # Safety
    /// Every step is inside of what windows and lines point to.
    #[inline(always)]
    unsafe fn run(&self, mut p: Tile<S, R, B>) -> Tile<S, R, B> {
        let s = self.s;
        for step in self.steps {
            let mut weights = [s.zero(); B];
            if B > 1 {
                s.prefetch(self.next.wrapping_add(step.line).cast());
            }
            for b in 0..B {
                // SAFETY: this function's contract.
                weights[b] = s.load(unsafe { &*self.lines[b].add(step.line).cast() });
            }
            for r in 0..R {
                // SAFETY: as above.
                let x = s.splat(unsafe { *self.from[r].add(step.x) });
                for b in 0..B {
                    p[r][b] = s.fma(weights[b], x, p[r][b]);
                }
            }
        }
        p
    }
}

/// Sums of some windows for a group of blocks of filters.
pub(super) struct Sums<'a> {
    pub(super) x: &'a [f32],
    pub(super) grid: Grid,
    pub(super) windows: Range<usize>,
    pub(super) steps: &'a [Reads],
    /// The furthest that a step reads.
    pub(super) furthest: Reads,
    pub(super) weights: &'a [f32],
    /// Where the lines of each block of the group begin.
    pub(super) blocks: &'a [usize],
    /// Elements between a line and the one of the next sums, which is fetched meanwhile; 0 where that is near.
    pub(super) ahead: usize,
    pub(super) begin: Begin<'a>,
    /// Whether negative sums become zero.
    pub(super) relu: bool,
    /// Window 0 of the group's first block is at `first`, that of the next one `stride` behind. Nobody else has the same windows of the same blocks.
    pub(super) out: &'a SharedMut<'a, f32>,
    pub(super) first: usize,
    pub(super) stride: usize,
}

impl Op for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        if self.windows.is_empty() {
            return;
        }
        let last = self.grid.at(self.windows.end - 1);
        let lines = self.blocks.iter().max().copied().unwrap_or(0);
        assert!(
            last + self.furthest.x < self.x.len() && lines + self.furthest.line + BLOCK_ROWS <= self.weights.len(),
            "sums: what is read lies outside"
        );
        if S::TILE_ROWS < 8 {
            for b in 0..self.blocks.len() {
                self.windows::<S, 6, 1>(s, b);
            }
            return;
        }
        match self.blocks.len() {
            1 => self.windows::<S, 8, 1>(s, 0),
            2 => self.windows::<S, 8, 2>(s, 0),
            3 => self.windows::<S, 8, 3>(s, 0),
            _ => self.windows::<S, 6, 4>(s, 0),
        }
    }
}

impl Sums<'_> {
    /// All windows of `B` blocks from `block` on, `R` at a time.
    #[inline(always)]
    fn windows<S: Simd, const R: usize, const B: usize>(&self, s: S, block: usize) {
        let Range { start, end } = self.windows.clone();
        let mut window = start;
        while window < end {
            // The last tile begins sooner, or its last window is computed again and again.
            let first = window.min(end.saturating_sub(R).max(start));
            let count = R.min(end - first);
            let (mut y, mut x) = match first < self.grid.width {
                // A division would take as long as some products.
                true => (0, first),
                false => (first / self.grid.width, first % self.grid.width),
            };
            let mut from = [self.x.as_ptr(); R];
            for r in 0..R {
                from[r] = from[r].wrapping_add(y * self.grid.row + x * self.grid.step);
                if r + 1 < count {
                    x += 1;
                    if x == self.grid.width {
                        (y, x) = (y + 1, 0);
                    }
                }
            }
            self.tile::<S, R, B>(s, &from, block, first, window - first..count);
            window = first + count;
        }
    }

    /// Windows from `first` on, of which those `kept` are stored.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const B: usize>(
        &self,
        s: S,
        from: &[*const f32; R],
        block: usize,
        first: usize,
        kept: Range<usize>,
    ) {
        let mut lines = [self.weights.as_ptr(); B];
        for b in 0..B {
            lines[b] = lines[b].wrapping_add(self.blocks[block + b]);
        }
        let multiply = Multiply {
            s,
            from: *from,
            lines,
            // Each tile fetches those of another block, as memory gives a line in the time of some products.
            next: lines[(first / R) % B].wrapping_add(self.ahead),
            steps: self.steps,
        };
        let mut sums = [[s.zero(); B]; R];
        if kept.len() < R {
            // In memory of its own, as some of the windows belong to the tile before, or there are none.
            let mut spare = [[[0.0; BLOCK_ROWS]; R]; B];
            for b in 0..B {
                let lines = self.own(block + b, first, kept.clone()).as_chunks().0;
                spare[b][kept.clone()].copy_from_slice(lines);
            }
            sums = self.begun(s, block, &spare);
            // SAFETY: blocks begin where the furthest line of a step is still one of the weights, and no window begins behind the last one, whose furthest
            // element is inside.
            sums = unsafe { multiply.run(sums) };
            for b in 0..B {
                for r in 0..R {
                    s.store(sums[r][b], &mut spare[b][r]);
                }
            }
            for b in 0..B {
                let own = self.own(block + b, first, kept.clone()).as_chunks_mut().0;
                for (spare, line) in spare[b][kept.clone()].iter().zip(own) {
                    let mut sum = s.load(spare);
                    if self.relu {
                        sum = s.max(s.zero(), sum);
                    }
                    s.store(sum, line);
                }
            }
            return;
        }
        match self.begin {
            Begin::Output => {
                for b in 0..B {
                    let Some(own) = self
                        .own(block + b, first, kept.clone())
                        .as_chunks()
                        .0
                        .first_chunk::<R>()
                    else {
                        return;
                    };
                    for r in 0..R {
                        sums[r][b] = s.load(&own[r]);
                    }
                }
            }
            _ => sums = self.begun(s, block, &[[[0.0; BLOCK_ROWS]; R]; B]),
        }
        // SAFETY: as above.
        sums = unsafe { multiply.run(sums) };
        if self.relu {
            for b in 0..B {
                for r in 0..R {
                    sums[r][b] = s.max(s.zero(), sums[r][b]);
                }
            }
        }
        for b in 0..B {
            let own = self.own(block + b, first, kept.clone()).as_chunks_mut().0;
            let Some(own) = own.first_chunk_mut::<R>() else { return };
            for r in 0..R {
                s.store(sums[r][b], &mut own[r]);
            }
        }
    }

    /// What sums begin with, where those of the steps before are `made`.
    #[inline(always)]
    fn begun<S: Simd, const R: usize, const B: usize>(
        &self,
        s: S,
        block: usize,
        made: &[[[f32; BLOCK_ROWS]; R]; B],
    ) -> Tile<S, R, B> {
        let mut sums = [[s.zero(); B]; R];
        match self.begin {
            Begin::Zero => {}
            Begin::Bias(bias) => {
                for b in 0..B {
                    let bias = s.load(&bias[block + b]);
                    for r in 0..R {
                        sums[r][b] = bias;
                    }
                }
            }
            Begin::Output => {
                for b in 0..B {
                    for r in 0..R {
                        sums[r][b] = s.load(&made[b][r]);
                    }
                }
            }
        }
        sums
    }

    /// The output of windows `first + kept` of a block.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn own(&self, block: usize, first: usize, kept: Range<usize>) -> &mut [f32] {
        let at = self.first + block * self.stride + first * BLOCK_ROWS;
        // SAFETY: the windows of this block are ours, and one piece of them is there at a time.
        unsafe { self.out.piece(at + kept.start * BLOCK_ROWS..at + kept.end * BLOCK_ROWS) }
    }
}
