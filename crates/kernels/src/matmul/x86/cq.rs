//! Codebook weights times tiles of rows: the integers of a panel are looked up once for many rows.

use super::super::cq::{Group, Groups, Product};
use super::super::cq_gemm::{CHUNK_LINES, Keep, LINES, look_up};
use super::panel::{INPUTS, MAX_BLOCKS, MAX_ROWS, Memory, Panel};
use cactus_quant::cq::CQ_GROUP;
use cactus_simd::{Amx, Avx512, OpFor, Simd};
use std::ops::Range;

/// Inputs of a tile of rows.
const DEPTH: usize = 64;
/// Lines of a tile.
const STEP: usize = DEPTH / 4;
/// Steps of a group.
const STEPS: usize = CQ_GROUP / DEPTH;
/// Groups of a panel.
const GROUPS: usize = INPUTS / CQ_GROUP;

/// All rows times a run of blocks.
pub(super) struct Run<'a, 'b, const BITS: usize> {
    pub(super) token: Amx,
    pub(super) product: Product<'a, 'b, BITS>,
    pub(super) blocks: Range<usize>,
}

/// The integers of a group of a block.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Looked([[i8; 64]; LINES]);

impl Keep<Avx512> for Looked {
    #[inline(always)]
    fn keep(&mut self, s: Avx512, line: usize, quads: <Avx512 as Simd>::Quads) {
        s.store_quads(quads, &mut self.0[line]);
    }
}

impl Looked {
    /// Looks a group up. Lines of a tile that a small one does not have are zeros.
    #[inline(always)]
    fn fill<const BITS: usize>(&mut self, s: Avx512, group: &Group<BITS>, block: &[u8], streams: bool) {
        look_up(s, group, block, streams, self);
        for line in group.chunks() * CHUNK_LINES..STEP {
            self.0[line] = [0; 64];
        }
    }
}

impl<const BITS: usize> OpFor<Avx512> for Run<'_, '_, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: Avx512) {
        let Product { w, books, x, target } = self.product;
        // SAFETY: the only ones of this thread: nothing below makes others.
        let tiles = unsafe { self.token.tiles::<DEPTH>() };
        let mut memory = Memory::<DEPTH, STEPS>::new();
        let mut looked = [[Looked([[0; 64]; LINES]); GROUPS]; MAX_BLOCKS];
        for block in self.blocks.clone().step_by(MAX_BLOCKS) {
            let blocks = block..self.blocks.end.min(block + MAX_BLOCKS);
            for row in (0..x.rows()).step_by(MAX_ROWS) {
                let rows = row..x.rows().min(row + MAX_ROWS);
                let mut groups = Groups::<BITS>::of(w.k(), books);
                for first in (0..x.groups()).step_by(GROUPS) {
                    let these: [Option<Group<BITS>>; GROUPS] = std::array::from_fn(|_| groups.next());
                    // What the first rows have looked up of a single panel serves all.
                    if row == 0 || x.groups() > GROUPS {
                        for (looked, block) in looked.iter_mut().zip(blocks.clone()) {
                            for (looked, group) in looked.iter_mut().zip(these.iter().flatten()) {
                                looked.fill(s, group, w.block(block), row == 0);
                            }
                        }
                    }
                    let mut panel = Panel::<GROUPS>::new(blocks.len().min(MAX_BLOCKS));
                    panel.groups = these.iter().flatten().count();
                    for (b, block) in blocks.clone().enumerate().take(MAX_BLOCKS) {
                        for (g, group) in these.iter().flatten().enumerate() {
                            let lines = (group.chunks() * CHUNK_LINES).next_multiple_of(STEP);
                            panel.lines[b][g] = &looked[b][g].0[..lines.min(LINES)];
                            panel.scales[b][g] = group.of(w.block(block)).0;
                        }
                    }
                    memory.add(s, &tiles, &panel, first, x.tiled(), rows.clone());
                }
                // SAFETY: parts have disjoint runs of blocks.
                unsafe {
                    memory.store(s, target, blocks.clone(), rows.clone());
                    target.activate(rows, blocks.clone());
                }
            }
        }
    }
}
