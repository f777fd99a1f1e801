//! Change of sample rate by a polyphase filter.
//!
//! The filter is a sinc under a Kaiser window (Kaiser 1974; Oppenheim and Schafer, *Discrete-Time Signal Processing*, §7.5), designed for
//! 100 dB. With `low` the lower of the two rates, what lies below `0.456 low` passes within 0.001 dB and what lies above `0.5 low`
//! is down by 100 dB, so nothing folds back. Its phase is linear and its delay is taken away: output `k` is the signal at the time
//! `k / to_hz`.
//!
//! Rates are reduced to `up / down`. A ratio with up to [`MAX_PHASES`] phases has the exact filter for each; any other reads
//! a table of that many phases with linear interpolation, whose error is below the filter's own. Positions are integers, so hours of audio
//! do not drift, and an output is a function of input positions alone: the pushes do not matter to a bit.

use crate::{Error, ErrorKind};
use cactus_simd::{Isa, LANES, Op, Simd};
use std::f64::consts::PI;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// The sample rates that are accepted, in Hz.
pub const RATES_HZ: RangeInclusive<u32> = 1_000..=768_000;
/// The most phases that a filter has tables for.
pub const MAX_PHASES: usize = 1024;
/// Where the filter begins to fall, as a part of the lower rate.
const PASS: f64 = 0.456;
/// Where the filter has fallen by [`ATTENUATION_DB`].
const STOP: f64 = 0.5;
const ATTENUATION_DB: f64 = 100.0;
/// Samples that are taken over at once, so that memory does not grow with a push.
const CHUNK_SAMPLES: usize = 4096;

#[derive(Debug)]
struct Filter {
    /// Taps of one phase, a multiple of [`LANES`].
    taps: usize,
    /// Input samples before the one at or before an output that its first tap falls on.
    before: usize,
    /// `[phases + 1, taps]` where phases are interpolated, else `[phases, taps]`.
    coefficients: Vec<f32>,
    interpolated: bool,
    up: u64,
    down: u64,
}

/// Changes the rate of a stream of mono samples.
///
/// ```
/// let mut resampler = cactus_audio::Resampler::new(48_000, 16_000)?;
/// let mut out = Vec::new();
/// resampler.push(&[0.0; 48_000], &mut out);
/// resampler.finish(&mut out);
/// assert_eq!(out.len(), 16_000);
/// # Ok::<(), cactus_audio::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Resampler {
    filter: Option<Arc<Filter>>,
    /// The last samples, after zeros before the first.
    buffer: Vec<f32>,
    /// The position in the input of the first element of `buffer`, plus `before`.
    start: u64,
    consumed: u64,
    produced: u64,
    from_hz: u32,
    to_hz: u32,
}

impl Resampler {
    /// From `from_hz` to `to_hz`. Equal rates copy.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidHeader`] where a rate is not one of [`RATES_HZ`].
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, Error> {
        for rate in [from_hz, to_hz] {
            if !RATES_HZ.contains(&rate) {
                return Err(Error::new(
                    ErrorKind::InvalidHeader,
                    format!(
                        "a sample rate of {rate} Hz; {} to {} Hz can be resampled",
                        RATES_HZ.start(),
                        RATES_HZ.end()
                    ),
                ));
            }
        }
        let filter = (from_hz != to_hz).then(|| Arc::new(Filter::new(from_hz, to_hz)));
        let mut resampler = Self {
            filter,
            buffer: Vec::new(),
            start: 0,
            consumed: 0,
            produced: 0,
            from_hz,
            to_hz,
        };
        resampler.reset();
        Ok(resampler)
    }

    /// Input rate in Hz.
    pub fn from_hz(&self) -> u32 {
        self.from_hz
    }

    /// Output rate in Hz.
    pub fn to_hz(&self) -> u32 {
        self.to_hz
    }

    /// Forgets all samples. Tables and memory are kept.
    pub fn reset(&mut self) {
        self.buffer.clear();
        if let Some(filter) = &self.filter {
            self.buffer.resize(filter.before, 0.0);
        }
        (self.start, self.consumed, self.produced) = (0, 0, 0);
    }

    /// Takes `samples` and appends to `out` what can be computed now. The output lags by half the filter, 73
    /// samples of the lower rate (4.6 ms at 16 kHz).
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        let Some(filter) = self.filter.clone() else {
            out.extend_from_slice(samples);
            return;
        };
        for chunk in samples.chunks(CHUNK_SAMPLES) {
            self.buffer.extend_from_slice(chunk);
            self.consumed += chunk.len() as u64;
            self.produce(&filter, u64::MAX, out);
        }
    }

    /// Appends the rest to `out`, as if zeros followed, and is ready for another stream. In all there are as many outputs as
    /// lie in the input's time: `ceil(inputs * to_hz / from_hz)`.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        let Some(filter) = self.filter.clone() else { return };
        let end = (self.consumed * filter.up).div_ceil(filter.down);
        while self.produced < end {
            self.buffer.resize(self.buffer.len() + filter.taps, 0.0);
            self.produce(&filter, end, out);
        }
        self.reset();
    }

    /// Computes outputs as far as the buffer and `end` reach, and drops what no later one needs.
    fn produce(&mut self, filter: &Filter, end: u64, out: &mut Vec<f32>) {
        self.produced = Isa::best().dispatch(Outputs {
            filter,
            buffer: &self.buffer,
            start: self.start,
            positions: self.produced..end,
            out,
        });
        let first = (self.produced * filter.down / filter.up - self.start) as usize;
        let dropped = first.min(self.buffer.len());
        self.buffer.drain(..dropped);
        self.start += dropped as u64;
    }
}

/// All of `samples` from `from_hz` to `to_hz`.
///
/// # Errors
/// As [`Resampler::new`].
pub fn resample(samples: &[f32], from_hz: u32, to_hz: u32) -> Result<Vec<f32>, Error> {
    let mut resampler = Resampler::new(from_hz, to_hz)?;
    let mut out = Vec::new();
    resampler.push(samples, &mut out);
    resampler.finish(&mut out);
    Ok(out)
}

impl Filter {
    fn new(from_hz: u32, to_hz: u32) -> Self {
        let divisor = gcd(from_hz, to_hz);
        let (up, down) = (u64::from(to_hz / divisor), u64::from(from_hz / divisor));
        let low = f64::from(from_hz.min(to_hz)) / f64::from(from_hz);
        let interpolated = up > MAX_PHASES as u64;
        let phases = if interpolated { MAX_PHASES } else { up as usize };
        // Kaiser's estimates, in samples of the input.
        let beta = 0.1102 * (ATTENUATION_DB - 8.7);
        let width = 2.0 * PI * (STOP - PASS) * low;
        let half = (ATTENUATION_DB - 7.95) / (2.285 * width) / 2.0;
        let before = half.ceil() as usize;
        let taps = (2 * before + 1).next_multiple_of(LANES);
        let cutoff = (PASS + STOP) * low;
        let window_scale = 1.0 / bessel_i0(beta);
        let rows = phases + usize::from(interpolated);
        let mut coefficients = Vec::with_capacity(rows * taps);
        for phase in 0..rows {
            let fraction = phase as f64 / phases as f64;
            let row: Vec<f64> = (0..taps)
                .map(|tap| {
                    let t = tap as f64 - before as f64 - fraction;
                    let inside = 1.0 - (t / half) * (t / half);
                    if inside <= 0.0 {
                        return 0.0;
                    }
                    let x = PI * cutoff * t;
                    let sinc = if x.abs() < 1e-9 { 1.0 } else { libm::sin(x) / x };
                    cutoff * sinc * bessel_i0(beta * inside.sqrt()) * window_scale
                })
                .collect();
            // Every phase passes a constant unchanged, so that none of them makes a tone of its own.
            let sum: f64 = row.iter().sum();
            coefficients.extend(row.iter().map(|c| (c / sum) as f32));
        }
        Self {
            taps,
            before,
            coefficients,
            interpolated,
            up,
            down,
        }
    }
}

/// Outputs as far as the buffer reaches; gives the position of the next.
struct Outputs<'a> {
    filter: &'a Filter,
    buffer: &'a [f32],
    /// As in [`Resampler`].
    start: u64,
    positions: Range<u64>,
    out: &'a mut Vec<f32>,
}

impl Op for Outputs<'_> {
    type Output = u64;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> u64 {
        let Filter { taps, up, down, .. } = *self.filter;
        let row = |phase: u64| &self.filter.coefficients[phase as usize * taps..][..taps];
        for produced in self.positions.clone() {
            let position = produced * down;
            let first = (position / up - self.start) as usize;
            let Some(samples) = self.buffer.get(first..first + taps) else {
                return produced;
            };
            let phase = position % up;
            self.out.push(if self.filter.interpolated {
                let scaled = phase * MAX_PHASES as u64;
                let (index, weight) = (scaled / up, (scaled % up) as f64 / up as f64);
                let (a, b) = (dot(s, row(index), samples), dot(s, row(index + 1), samples));
                (f64::from(a) * (1.0 - weight) + f64::from(b) * weight) as f32
            } else {
                dot(s, row(phase), samples)
            });
        }
        self.positions.end
    }
}

/// Element `i` goes to sum `i % 16`, and the sums are added in halves.
#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = s.zero();
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        sums = s.add(sums, s.mul(s.load(a), s.load(b)));
    }
    s.reduce_sum(sums)
}

/// The modified Bessel function of order zero, by its power series.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..200 {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
