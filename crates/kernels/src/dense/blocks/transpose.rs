//! Transposed convolutions whose windows touch and do not overlap: every output is one product of a place and one tap.

use super::block_elems;
use super::sums::{Begin, GROUP, Grid, Reads, Sums, groups};
use crate::dense::conv::Window;
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;

/// A transposed convolution over two axes, in one group, whose taps are as many as its steps.
#[derive(Clone, Copy, Debug)]
pub struct BlockTranspose {
    /// Of the convolution that this is the transpose of: its output is our input.
    w: Window,
    channels: usize,
    filters: usize,
}

impl BlockTranspose {
    /// The transpose of the convolution with windows `w`, from `channels` planes to `filters`; `None` where windows overlap or leave something out.
    #[must_use]
    pub fn of(w: &Window, channels: usize, filters: usize) -> Option<Self> {
        let flat = (w.size[0], w.out[0], w.kernel[0]) == (1, 1, 1);
        let touches = (1..3).all(|axis| {
            w.kernel[axis] == w.stride[axis]
                && w.kernel[axis].checked_mul(w.out[axis]) == Some(w.size[axis])
                && (w.kernel[axis] == 1 || w.dilation[axis] == 1)
        });
        let some = channels > 0 && filters > 0 && w.outputs() > 0;
        (flat && touches && w.before == [0; 3] && some).then_some(Self {
            w: *w,
            channels,
            filters,
        })
    }

    fn lines(&self) -> usize {
        block_elems(self.filters, self.w.taps()).saturating_mul(self.channels)
    }

    fn own(&self) -> usize {
        GROUP * BLOCK_ROWS * self.w.out[2]
    }
}

impl Exec<'_> {
    /// Elements that [`Exec::transpose_blocks`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn transpose_blocks_scratch_elems(&self, c: &BlockTranspose) -> usize {
        let own = c.own().saturating_mul(self.step.width().max(1));
        c.lines().saturating_add(own)
    }

    /// One sample: `out` in blocks of `filters` planes from `x` in blocks, and `weight [channels, filters, taps]`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn transpose_blocks(
        &self,
        c: &BlockTranspose,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (w, taps, channels) = (&c.w, c.w.taps(), c.channels);
        assert!(
            x.len() == block_elems(channels, w.outputs())
                && out.len() == block_elems(c.filters, w.places())
                && weight.len() == channels * c.filters * taps
                && bias.is_none_or(|bias| bias.len() == c.filters),
            "transpose_blocks: lengths"
        );
        let blocks = c.filters.div_ceil(BLOCK_ROWS);
        let (lines, own) = scratch.split_at_mut(c.lines());
        self.turn_taps(c, weight, lines);
        let lines = &*lines;
        let plane = w.outputs() * BLOCK_ROWS;
        let steps: Vec<Reads> = (0..channels)
            .map(|channel| Reads {
                x: channel / BLOCK_ROWS * plane + channel % BLOCK_ROWS,
                line: channel * BLOCK_ROWS,
            })
            .collect();
        let furthest = Reads {
            x: steps.iter().map(|step| step.x).max().unwrap_or(0),
            line: (channels - 1) * BLOCK_ROWS,
        };
        let (groups, rows, width) = (groups(blocks), w.out[1], w.out[2]);
        let cost = width * taps * channels * blocks / 6;
        let parts = part_count(self.step.width(), rows, cost).min(self.step.width());
        let (kernels, own, out) = (self.kernels, SharedMut::new(own), SharedMut::new(out));
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let own = unsafe { own.piece(part * c.own()..(part + 1) * c.own()) };
            for row in part_range(rows, parts, part) {
                for (group, tap) in groups.iter().flat_map(|group| (0..taps).map(move |tap| (group, tap))) {
                    let mut begins = [0; GROUP];
                    let mut numbers = [[0.0; BLOCK_ROWS]; GROUP];
                    for (b, block) in group.clone().enumerate() {
                        begins[b] = (tap * blocks + block) * channels * BLOCK_ROWS;
                        let own = bias.map_or(&[][..], |bias| &bias[block * BLOCK_ROWS..]);
                        numbers[b].iter_mut().zip(own).for_each(|(to, from)| *to = *from);
                    }
                    let made = SharedMut::new(&mut *own);
                    kernels.run(Sums {
                        x: &x[row * width * BLOCK_ROWS..],
                        grid: Grid {
                            width,
                            step: BLOCK_ROWS,
                            row: 0,
                        },
                        windows: 0..width,
                        steps: &steps,
                        furthest,
                        weights: lines,
                        blocks: &begins[..group.len()],
                        ahead: 0,
                        begin: Begin::Bias(&numbers),
                        relu: false,
                        out: &made,
                        first: 0,
                        stride: width * BLOCK_ROWS,
                    });
                    let [_, y, x] = Window::split(tap, w.kernel);
                    let lines = own.as_chunks::<BLOCK_ROWS>().0.chunks_exact(width);
                    for (block, lines) in group.clone().zip(lines) {
                        let first = (block * w.size[1] + row * w.stride[1] + y) * w.size[2];
                        // SAFETY: no other part has rows that this one's windows make.
                        let to = unsafe { out.piece(first * BLOCK_ROWS..(first + w.size[2]) * BLOCK_ROWS) };
                        let to = to
                            .as_chunks_mut::<BLOCK_ROWS>()
                            .0
                            .iter_mut()
                            .skip(x)
                            .step_by(w.stride[2]);
                        to.zip(lines).for_each(|(to, line)| *to = *line);
                    }
                }
            }
        });
    }

    /// `[taps, blocks of filters, channels, 16]` from `[channels, filters, taps]`, zeros behind the last filter.
    fn turn_taps(&self, c: &BlockTranspose, weight: &[f32], lines: &mut [f32]) {
        let (taps, blocks, each) = (c.w.taps(), c.filters.div_ceil(BLOCK_ROWS), c.channels * BLOCK_ROWS);
        let parts = part_count(self.step.width(), taps * blocks, each);
        let lines = SharedMut::new(lines);
        self.step.run(parts, &|part| {
            for unit in part_range(taps * blocks, parts, part) {
                let (tap, first) = (unit / blocks, unit % blocks * BLOCK_ROWS);
                // SAFETY: units are disjoint.
                let lines = unsafe { lines.piece(unit * each..(unit + 1) * each) };
                let channels = weight.chunks_exact(c.filters * taps);
                for (line, filters) in lines.as_chunks_mut::<BLOCK_ROWS>().0.iter_mut().zip(channels) {
                    *line = [0.0; BLOCK_ROWS];
                    let filters = filters[first * taps + tap..].iter().step_by(taps);
                    line.iter_mut().zip(filters).for_each(|(to, from)| *to = *from);
                }
            }
        });
    }
}
