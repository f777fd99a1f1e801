//! INT8 weights times tiles of rows: lines are read in place.

use super::super::int8::Block;
use super::super::{QuantizedRows, Target};
use super::panel::{INPUTS, MAX_BLOCKS, MAX_ROWS, Memory, Panel};
use cactus_quant::{GROUP, PackedView};
use cactus_simd::{Amx, Avx512, OpFor};
use std::ops::Range;

/// Groups of a panel.
const GROUPS: usize = INPUTS / GROUP;

/// Rows, which begin with a tile, times a run of blocks.
pub(super) struct Run<'a, 'b> {
    pub(super) token: Amx,
    pub(super) w: &'a PackedView<'b>,
    pub(super) x: &'a QuantizedRows<'b>,
    pub(super) rows: Range<usize>,
    pub(super) target: &'a Target<'b>,
    pub(super) blocks: Range<usize>,
}

impl OpFor<Avx512> for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: Avx512) {
        // SAFETY: the only ones of this thread: nothing below makes others.
        let tiles = unsafe { self.token.tiles::<GROUP>() };
        let mut memory = Memory::<GROUP, 1>::new();
        let groups = self.x.groups();
        for row in self.rows.clone().step_by(MAX_ROWS) {
            let rows = row..self.rows.end.min(row + MAX_ROWS);
            for block in self.blocks.clone().step_by(MAX_BLOCKS) {
                let blocks = block..self.blocks.end.min(block + MAX_BLOCKS);
                for first in (0..groups).step_by(GROUPS) {
                    let mut panel = panel(self.w, blocks.clone(), first..groups.min(first + GROUPS));
                    if row == self.rows.start {
                        panel.ahead = MAX_BLOCKS * self.w.layout().block_bytes();
                    }
                    memory.add(s, &tiles, &panel, first, self.x.tiled(), rows.clone());
                }
                // SAFETY: parts have disjoint runs of blocks, or rows.
                unsafe { memory.store(s, self.target, blocks, rows.clone()) };
            }
        }
    }
}

/// Groups of some blocks.
#[inline(always)]
fn panel<'b>(w: &'b PackedView<'_>, blocks: Range<usize>, groups: Range<usize>) -> Panel<'b, GROUPS> {
    let mut panel = Panel::new(blocks.len().min(MAX_BLOCKS));
    panel.groups = groups.len().min(GROUPS);
    for ((lines, scales), block) in panel.lines.iter_mut().zip(&mut panel.scales).zip(blocks) {
        let block = Block::new(w.block(block));
        for ((lines, scales), group) in lines.iter_mut().zip(scales).zip(groups.clone()) {
            if let Some((of_group, values)) = block.group(group) {
                (*lines, *scales) = (values, of_group);
            }
        }
    }
    panel
}
