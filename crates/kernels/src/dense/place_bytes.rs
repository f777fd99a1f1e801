//! Places as bytes: those of a place lie side by side, channel after channel in chunks of sixteen, and have one scale.
//!
//! The scale is `max|x| / 127` over all channels of the place; bytes are `x · (127 / max|x|)`, rounded to nearest, ties to even. A place below
//! [`MIN_MAGNITUDE`] is zeros with the scale 0. One that has something that is not finite is zeros with the scale NaN, and NaN is what everything made of it becomes.

use super::conv_integers::{Form, LINES, Places, packed};
use crate::matmul::MIN_MAGNITUDE;
use bytemuck::{Pod, Zeroable};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};

/// Channels that lie side by side, which are four quads.
const CHUNK: usize = 16;
/// Chunks whose products are added up as integers: those of 256 channels are below `2^24`, so that a float holds them exactly.
pub(super) const RUN: usize = 16;

/// Sixteen channels of a place.
pub(super) type Chunk = [i32; 4];

/// What a place has beside its bytes, for each run of channels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Mark {
    /// What one unit of its bytes is worth.
    pub(super) scale: f32,
    /// With what chains of their products begin: [`Simd::DOT_OFFSET`] times their sum.
    pub(super) start: i32,
}

/// What a place takes.
#[derive(Clone, Copy)]
pub(super) struct PlaceShape {
    pub(super) channels: usize,
    pub(super) chunks: usize,
    /// Of up to [`RUN`] chunks.
    pub(super) runs: usize,
}

impl PlaceShape {
    pub(super) fn of(channels: usize) -> Self {
        let chunks = channels.div_ceil(CHUNK);
        Self {
            channels,
            chunks,
            runs: chunks.div_ceil(RUN),
        }
    }
}

/// Makes bytes of places that lie side by side.
pub(super) struct Quantize<'a> {
    pub(super) x: Places<'a>,
    /// The first place.
    pub(super) first: usize,
    pub(super) shape: PlaceShape,
    pub(super) chunks: &'a mut [Chunk],
    pub(super) marks: &'a mut [Mark],
}

impl Op for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let PlaceShape { chunks, runs, .. } = self.shape;
        let count = self.marks.len() / runs.max(1);
        let each = match self.x.form {
            Form::Planes => BLOCK_ROWS,
            Form::Blocks if count >= LINES => LINES,
            Form::Blocks if count >= LINES / 2 => LINES / 2,
            Form::Blocks => 1,
        };
        for at in (0..count).step_by(each) {
            // The last ones of blocks may be made twice, with the same bits, so that loops are over numbers that the compiler knows.
            let (at, own) = match self.x.form {
                Form::Planes => (at, each.min(count - at)),
                Form::Blocks => (at.min(count - each), each),
            };
            let to = &mut self.chunks[at * chunks..(at + own) * chunks];
            let marks = &mut self.marks[at * runs..(at + own) * runs];
            let first = self.first + at;
            match (self.x.form, own) {
                (Form::Planes, _) => planes(s, &self.x, first, self.shape, to, marks),
                (Form::Blocks, LINES) => blocks::<S, LINES>(s, &self.x, first, self.shape, to, marks),
                (Form::Blocks, 1) => blocks::<S, 1>(s, &self.x, first, self.shape, to, marks),
                (Form::Blocks, _) => blocks::<S, { LINES / 2 }>(s, &self.x, first, self.shape, to, marks),
            }
        }
    }
}

/// Scales, and what numbers are multiplied with, of places whose largest numbers are in `largest`.
#[inline(always)]
fn scales<S: Simd>(s: S, largest: S::F) -> [S::F; 2] {
    let is_small = s.lt(largest, s.splat(MIN_MAGNITUDE));
    let most = s.splat(127.0);
    [
        s.select(is_small, s.zero(), s.div(largest, most)),
        s.select(is_small, s.zero(), s.div(most, largest)),
    ]
}

/// `N` places of blocks, [`LINES`] at most.
#[inline(always)]
fn blocks<S: Simd, const N: usize>(
    s: S,
    x: &Places<'_>,
    first: usize,
    shape: PlaceShape,
    to: &mut [Chunk],
    marks: &mut [Mark],
) {
    let PlaceShape { chunks, runs, .. } = shape;
    // Zero times a number is zero, times anything else NaN. Two chains, for one would be waited for.
    let (mut largest, mut finite) = ([s.zero(); LINES], [s.zero(); 2]);
    for chunk in 0..chunks {
        let v = lines::<S, N>(s, x, chunk, first, shape);
        for n in 0..N {
            largest[n] = s.max(s.abs(v[n]), largest[n]);
            finite[n % 2] = s.fma(v[n], s.zero(), finite[n % 2]);
        }
    }
    let (mut own, mut inverses) = ([0.0; BLOCK_ROWS], [0.0; BLOCK_ROWS]);
    let [scales, inverse] = scales(s, s.reduce_maxima(largest));
    s.store(scales, &mut own);
    s.store(inverse, &mut inverses);
    for run in 0..runs {
        let of_run = run * RUN..chunks.min((run + 1) * RUN);
        let mut sums = [s.zero(); LINES];
        for n in 0..N {
            let inverse = s.splat(inverses[n]);
            let mut sum = s.splat_i(0);
            let to = &mut to[n * chunks..(n + 1) * chunks][of_run.clone()];
            for (to, chunk) in to.iter_mut().zip(of_run.clone()) {
                let [v] = lines::<S, 1>(s, x, chunk, first + n, shape);
                let q = s.to_int(s.mul(v, inverse));
                sum = s.add_i(sum, q);
                s.store_i8(q, bytemuck::cast_mut(to));
            }
            // 256 bytes make less than a float holds exactly.
            sums[n] = s.to_float(sum);
        }
        let mut all = [0; BLOCK_ROWS];
        s.store_i(s.to_int(s.reduce_sums(sums)), &mut all);
        for n in 0..N {
            marks[n * runs + run] = Mark {
                scale: own[n],
                start: S::DOT_OFFSET.wrapping_mul(all[n]),
            };
        }
    }
    if s.reduce_sum(s.add(finite[0], finite[1])) == 0.0 {
        return;
    }
    for n in 0..N {
        let mut finite = s.zero();
        for chunk in 0..chunks {
            let [v] = lines::<S, 1>(s, x, chunk, first + n, shape);
            finite = s.fma(v, s.zero(), finite);
        }
        if s.reduce_sum(finite) != 0.0 {
            to[n * chunks..(n + 1) * chunks].fill([0; 4]);
            marks[n * runs..(n + 1) * runs].fill(Mark {
                scale: f32::NAN,
                start: 0,
            });
        }
    }
}

/// What `N` places of blocks have in a chunk; zeros behind the last channel.
#[inline(always)]
fn lines<S: Simd, const N: usize>(s: S, x: &Places<'_>, chunk: usize, first: usize, shape: PlaceShape) -> [S::F; N] {
    let at = (chunk * x.plane + first) * BLOCK_ROWS;
    let Some(lines) = x.x[at..].as_chunks::<BLOCK_ROWS>().0.first_chunk::<N>() else {
        unreachable!("the caller has as many places");
    };
    let mut v = [s.zero(); N];
    match shape.channels - chunk * BLOCK_ROWS {
        BLOCK_ROWS.. => {
            for n in 0..N {
                v[n] = s.load(&lines[n]);
            }
        }
        left => {
            for n in 0..N {
                v[n] = s.load_partial(&lines[n][..left]);
            }
        }
    }
    v
}

/// What `count` places, 16 at most, have in a channel of planes.
#[inline(always)]
fn column<S: Simd>(s: S, x: &Places<'_>, channel: usize, first: usize, count: usize) -> S::F {
    let values = &x.x[channel * x.plane + first..][..count];
    match values.first_chunk() {
        Some(values) => s.load(values),
        None => s.load_partial(values),
    }
}

/// Up to 16 places of planes.
#[inline(always)]
fn planes<S: Simd>(s: S, x: &Places<'_>, first: usize, shape: PlaceShape, to: &mut [Chunk], marks: &mut [Mark]) {
    let PlaceShape { channels, chunks, runs } = shape;
    let count = marks.len() / runs;
    let (mut largest, mut finite) = (s.zero(), s.zero());
    for channel in 0..channels {
        let v = column(s, x, channel, first, count);
        largest = s.max(s.abs(v), largest);
        finite = s.fma(v, s.zero(), finite);
    }
    let [scales, inverse] = scales(s, largest);
    let is_finite = s.eq(finite, s.zero());
    let mut own = [0.0; BLOCK_ROWS];
    s.store(s.select(is_finite, scales, s.splat(f32::NAN)), &mut own);
    for run in 0..runs {
        let mut sum = s.splat_i(0);
        for chunk in run * RUN..chunks.min((run + 1) * RUN) {
            let mut rows = [s.zero(); 4];
            for (j, row) in rows.iter_mut().enumerate() {
                let mut q = [s.splat_i(0); 4];
                for (i, q) in q.iter_mut().enumerate() {
                    let channel = chunk * CHUNK + 4 * j + i;
                    if channel < channels {
                        let v = s.select(is_finite, column(s, x, channel, first, count), s.zero());
                        *q = s.to_int(s.mul(v, inverse));
                        sum = s.add_i(sum, *q);
                    }
                }
                *row = packed(s, q);
            }
            // `[place % 4][place / 4]`
            let mut quads = [[[0f32; 4]; 4]; 4];
            for (column, to) in s.transpose_fours(rows).into_iter().zip(&mut quads) {
                s.store(column, bytemuck::cast_mut(to));
            }
            for n in 0..count {
                to[n * chunks + chunk] = bytemuck::cast(quads[n % 4][n / 4]);
            }
        }
        let mut sums = [0; BLOCK_ROWS];
        s.store_i(sum, &mut sums);
        for n in 0..count {
            marks[n * runs + run] = Mark {
                scale: own[n],
                start: S::DOT_OFFSET * sums[n],
            };
        }
    }
}
