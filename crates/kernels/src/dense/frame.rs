//! What windows read, packed as the right operand of a product.
//!
//! A convolution first copies its input into a frame: with its padding, so that no window reads outside, and with the
//! places along the last axis sorted by what they leave when divided by the stride, so that windows side by side read
//! places side by side. A tap then adds the same offset to every window, and a line of 16 windows is one load for each row
//! of the output that it touches.

use super::conv::Window;
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// The layout of a framed input, `[channels, z, y, phase, x]`, with a line of slack before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Places along the first two axes, and those of each phase along the last.
    size: [usize; 3],
    /// Phases that are read: the stride along the last axis, or fewer where taps do not reach that far.
    phases: usize,
}

impl Frame {
    pub(super) fn of(w: &Window) -> Self {
        // A file may say anything: what overflows becomes more than any memory has.
        let reach = |axis: usize| (w.kernel[axis] - 1).saturating_mul(w.dilation[axis]);
        let places = |axis: usize| {
            let last = (w.out[axis] - 1).saturating_mul(w.stride[axis]);
            last.saturating_add(reach(axis)).saturating_add(1)
        };
        Self {
            size: [places(0), places(1), w.out[2].saturating_add(reach(2) / w.stride[2])],
            phases: w.stride[2].min(reach(2).saturating_add(1)),
        }
    }

    fn plane(&self) -> usize {
        self.size.iter().fold(self.phases, |n, &size| n.saturating_mul(size))
    }

    /// Elements of `channels` planes.
    pub(super) fn elems(&self, channels: usize) -> usize {
        channels.saturating_mul(self.plane()).saturating_add(2 * BLOCK_ROWS)
    }

    /// Where the row of places `y` along the second axis and `z` along the first begins.
    pub(super) fn row(&self, z: usize, y: usize) -> usize {
        (z * self.size[1] + y) * self.phases * self.size[2]
    }

    /// What `tap` adds to the place of a window.
    pub(super) fn offset(&self, w: &Window, tap: usize) -> usize {
        let tap = Window::split(tap, w.kernel);
        let [z, y, x] = [0, 1, 2].map(|axis| tap[axis] * w.dilation[axis]);
        self.row(z, y) + (x % w.stride[2]) * self.size[2] + x / w.stride[2]
    }

    /// What `windows` read, at most 16 of them and one at least.
    pub(super) fn lines(&self, w: &Window, windows: Range<usize>) -> Lines {
        let mut rows = [(0, 0); BLOCK_ROWS];
        let (mut n, mut lane) = (0, 0);
        while lane < windows.len() {
            let [z, y, x] = Window::split(windows.start + lane, w.out);
            let at = self.row(z * w.stride[0], y * w.stride[1]) + x;
            // The slack before the planes makes room for lanes that are not used.
            rows[n] = (lane, BLOCK_ROWS + at - lane);
            n += 1;
            lane += w.out[2] - x;
        }
        let plane = self.plane();
        Lines { rows, n, plane }
    }

    /// Copies the one plane `x` into `framed` of [`Frame::elems`], zeros around it.
    pub(super) fn fill_plane(&self, w: &Window, x: &[f32], framed: &mut [f32]) {
        let end = framed.len() - BLOCK_ROWS;
        framed[..BLOCK_ROWS].fill(0.0);
        framed[end..].fill(0.0);
        frame_plane(w, self, x, &mut framed[BLOCK_ROWS..end]);
    }
}

impl Exec<'_> {
    /// Copies planes `x` into `framed` of [`Frame::elems`], zeros around them.
    pub(super) fn fill_frame(&self, w: &Window, frame: &Frame, x: &[f32], framed: &mut [f32]) {
        let (plane, own) = (w.places(), frame.plane());
        let channels = (framed.len() - 2 * BLOCK_ROWS) / own;
        framed[..BLOCK_ROWS].fill(0.0);
        framed[BLOCK_ROWS + channels * own..].fill(0.0);
        let planes = SharedMut::new(&mut framed[BLOCK_ROWS..BLOCK_ROWS + channels * own]);
        let parts = part_count(self.step.width(), channels, own / 4);
        self.step.run(parts, &|part| {
            for c in part_range(channels, parts, part) {
                // SAFETY: planes are disjoint.
                let to = unsafe { planes.piece(c * own..(c + 1) * own) };
                frame_plane(w, frame, &x[c * plane..(c + 1) * plane], to);
            }
        });
    }

    /// Packs what `count` windows from `first` on read: a line of 16 for each channel and tap.
    pub(super) fn pack_windows(
        &self,
        w: &Window,
        frame: &Frame,
        framed: &[f32],
        first: usize,
        count: usize,
        packed: &mut [f32],
    ) {
        let offsets: Vec<usize> = (0..w.taps()).map(|tap| frame.offset(w, tap)).collect();
        let k = packed.len() / (count.div_ceil(BLOCK_ROWS) * BLOCK_ROWS);
        let kernels = self.kernels;
        self.pack_blocks(count, k, packed, &|start, count, block| {
            kernels.run(PackWindows {
                w,
                frame,
                framed,
                offsets: &offsets,
                first: first + start,
                count,
                lines: block.as_chunks_mut().0,
            });
        });
    }
}

/// One plane with its padding.
fn frame_plane(w: &Window, frame: &Frame, x: &[f32], to: &mut [f32]) {
    to.fill(0.0);
    let (line, stride) = (frame.size[2], w.stride[2]);
    for z in 0..frame.size[0].min(w.before[0].saturating_add(w.size[0])) {
        let Some(from_z) = z.checked_sub(w.before[0]) else {
            continue;
        };
        for y in 0..frame.size[1].min(w.before[1].saturating_add(w.size[1])) {
            let Some(from_y) = y.checked_sub(w.before[1]) else {
                continue;
            };
            let x = &x[(from_z * w.size[1] + from_y) * w.size[2]..][..w.size[2]];
            let row = &mut to[frame.row(z, y)..][..frame.phases * line];
            for (phase, places) in row.chunks_exact_mut(line).enumerate() {
                // Place `i` of a phase is place `i · stride + phase` of the padded input.
                let start = w.before[2].saturating_sub(phase).div_ceil(stride).min(line);
                let from = (start * stride + phase).saturating_sub(w.before[2]).min(x.len());
                let places = &mut places[start..];
                let x = &x[from..];
                match stride {
                    1 => {
                        let n = places.len().min(x.len());
                        places[..n].copy_from_slice(&x[..n]);
                    }
                    2 => {
                        // Pairs let the compiler use vectors; the last place may have no neighbor.
                        let (pairs, last) = x.as_chunks::<2>();
                        places.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair[0]);
                        if let (Some(to), [last]) = (places.get_mut(pairs.len()), last) {
                            *to = *last;
                        }
                    }
                    n => places.iter_mut().zip(x.iter().step_by(n)).for_each(|(to, x)| *to = *x),
                }
            }
        }
    }
}

/// What up to 16 windows side by side read.
pub(super) struct Lines {
    /// For each row of the output that they touch the first lane, and where lane 0 would read if it were in it.
    rows: [(usize, usize); BLOCK_ROWS],
    /// How many rows those are.
    n: usize,
    plane: usize,
}

impl Lines {
    /// What a tap with this offset reads of a channel.
    #[inline(always)]
    pub(super) fn read<S: Simd>(&self, s: S, framed: &[f32], channel: usize, offset: usize) -> S::F {
        let base = channel * self.plane + offset;
        let mut v = at(s, framed, base + self.rows[0].1);
        for &(lane, place) in &self.rows[1..self.n] {
            v = s.select(s.lanes(lane, BLOCK_ROWS), at(s, framed, base + place), v);
        }
        v
    }
}

#[inline(always)]
fn at<S: Simd>(s: S, framed: &[f32], at: usize) -> S::F {
    s.load(framed[at..].first_chunk().unwrap_or(&[0.0; BLOCK_ROWS]))
}

struct PackWindows<'a> {
    w: &'a Window,
    frame: &'a Frame,
    framed: &'a [f32],
    /// Of every tap, see [`Frame::offset`].
    offsets: &'a [usize],
    first: usize,
    count: usize,
    lines: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for PackWindows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let windows = self.frame.lines(self.w, self.first..self.first + self.count);
        for (c, lines) in self.lines.chunks_exact_mut(self.offsets.len()).enumerate() {
            for (line, offset) in lines.iter_mut().zip(self.offsets) {
                s.store(windows.read(s, self.framed, c, *offset), line);
            }
        }
    }
}
