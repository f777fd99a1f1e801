//! Several elementwise functions of the same rows in one pass, with the peaks of what comes out: what stands behind the
//! output head of many models (a scale, a cap, a bias).

use crate::elementwise::{BinaryOp, UnaryOp, binary_piece, unary_piece};
use crate::exec::{Exec, Kernels, SharedMut};
use crate::matmul::{PEAK_OUTPUTS, peak};
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};

/// Elements that pass through all functions at once; whole stretches of [`PEAK_OUTPUTS`].
const PIECE: usize = 16 * PEAK_OUTPUTS;

/// One function of a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Link<'a> {
    /// `op(x)`
    Unary(UnaryOp),
    /// `op(x, c)`
    Scalar(BinaryOp, f32),
    /// `op(x[i], v[i])`, `v` as long as a row.
    Vector(BinaryOp, &'a [f32]),
}

impl Link<'_> {
    /// About how many nanoseconds 8 elements take.
    fn cost(&self) -> usize {
        match self {
            Link::Unary(op) => op.cost(),
            _ => 1,
        }
    }
}

impl Exec<'_> {
    /// Applies `links`, one after the other, to the rows `x [rows, width]` in place; none leave them as they are. `peaks
    /// [rows, ceil(width/16)]` are then as those of [`Exec::linear_with_peaks`]. Each function has the bits of
    /// [`Exec::unary`] or [`Exec::binary`].
    ///
    /// # Panics
    /// When the length of a slice does not match.
    pub fn chain_with_peaks(&self, links: &[Link<'_>], x: &mut [f32], width: usize, peaks: &mut [f32]) {
        if x.is_empty() {
            return;
        }
        assert!(
            width > 0 && x.len().is_multiple_of(width),
            "chain: {} elements are no rows of {width}",
            x.len()
        );
        let (rows, blocks) = (x.len() / width, width.div_ceil(PEAK_OUTPUTS));
        assert_eq!(peaks.len(), rows * blocks, "chain: elements of the peaks");
        for link in links {
            if let Link::Vector(_, v) = link {
                assert_eq!(v.len(), width, "chain: elements of a vector");
            }
        }
        let pieces = width.div_ceil(PIECE);
        let units = rows * pieces;
        let cost = links.iter().map(Link::cost).sum::<usize>() + 1;
        let parts = part_count(self.step.width(), units, width.min(PIECE) / 8 * cost + 1);
        let (x, peaks) = (SharedMut::new(x), SharedMut::new(peaks));
        let kernels = self.kernels;
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (row, start) = (unit / pieces, unit % pieces * PIECE);
                let end = (start + PIECE).min(width);
                let of_peaks = start / PEAK_OUTPUTS..end.div_ceil(PEAK_OUTPUTS);
                // SAFETY: pieces begin at whole stretches and do not overlap, so neither do their peaks.
                let (x, peaks) = unsafe {
                    (
                        x.piece(row * width + start..row * width + end),
                        peaks.piece(row * blocks + of_peaks.start..row * blocks + of_peaks.end),
                    )
                };
                chain(kernels, links, start, x);
                kernels.run(Peaks { x, peaks });
            }
        });
    }
}

/// Applies `links` to elements `start…` of a row.
fn chain(kernels: &Kernels, links: &[Link<'_>], start: usize, x: &mut [f32]) {
    let mut before = [0f32; PIECE];
    let before = &mut before[..x.len()];
    for link in links {
        let (op, with) = match link {
            Link::Unary(op) => {
                unary_piece(kernels, *op, x);
                continue;
            }
            Link::Scalar(op, c) => (*op, std::slice::from_ref(c)),
            // Of one element, too: a vector of one is a scalar.
            Link::Vector(op, v) => (*op, &v[start..start + x.len()]),
        };
        before.copy_from_slice(x);
        binary_piece(kernels, op, before, with, x);
    }
}

struct Peaks<'a> {
    x: &'a [f32],
    peaks: &'a mut [f32],
}

impl Op for Peaks<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (x, to) in self.x.chunks(PEAK_OUTPUTS).zip(self.peaks) {
            *to = match x.first_chunk() {
                Some(x) => peak(s, s.load(x)),
                None => {
                    // Lanes beyond the last repeat its value.
                    let mut lanes = [x[x.len() - 1]; PEAK_OUTPUTS];
                    lanes[..x.len()].copy_from_slice(x);
                    peak(s, s.load(&lanes))
                }
            };
        }
    }
}
