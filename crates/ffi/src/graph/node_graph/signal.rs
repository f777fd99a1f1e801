//! Sound: discrete Fourier transforms as products with tables of cosines, mel filters, and spectrograms as
//! `transformers.audio_utils` defines them.

use super::lower::{Lower, dims};
use super::{Error, Result};
use cactus_ir::{BinaryFn as Bin, Dim, Op, ReduceFn, UnaryFn as Un, ValueId};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Longest transform; its table has a column for each bin.
const MAX_TRANSFORM: usize = 8192;

/// Triangles on the mel scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MelBank {
    /// Frequencies from 0 to half the sampling rate.
    pub(crate) bins: usize,
    /// Triangles.
    pub(crate) mels: usize,
    /// Where the first begins, Hz.
    #[serde(with = "super::number")]
    pub(crate) low: f32,
    /// Where the last ends, Hz.
    #[serde(with = "super::number")]
    pub(crate) high: f32,
    /// Samples a second.
    pub(crate) rate: usize,
    /// 0: peaks of 1; 1: triangles of one area (Slaney).
    pub(crate) norm: i32,
    /// 0: HTK; 1: Kaldi; 2: Slaney.
    pub(crate) scale: i32,
}

impl MelBank {
    fn mel(&self, hz: f64) -> f64 {
        match self.scale {
            0 => 2595.0 * (1.0 + hz / 700.0).log10(),
            1 => 1127.0 * (1.0 + hz / 700.0).ln(),
            _ if hz < 1000.0 => 3.0 * hz / 200.0,
            _ => 15.0 + (hz / 1000.0).ln() * 27.0 / 6.4f64.ln(),
        }
    }

    fn hz(&self, mel: f64) -> f64 {
        match self.scale {
            0 => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            1 => 700.0 * ((mel / 1127.0).exp() - 1.0),
            _ if mel < 15.0 => 200.0 * mel / 3.0,
            _ => 1000.0 * (6.4f64.ln() / 27.0 * (mel - 15.0)).exp(),
        }
    }

    /// `[bins, mels]`
    pub(super) fn table(&self, l: &mut Lower) -> Result<ValueId> {
        let &MelBank { bins, mels, rate, .. } = self;
        let sizes = bins > 1 && mels > 0 && bins.checked_mul(mels).is_some_and(|n| n <= 1 << 24);
        if !sizes || !(0..=1).contains(&self.norm) || !(0..=2).contains(&self.scale) {
            return Err(Error::argument(format!(
                "{bins} bins, {mels} filters, norm {}, scale {}; expected at least 2 bins and 1 filter, norm 0 or 1, scale 0, 1 \
                 or 2",
                self.norm, self.scale
            )));
        }
        let (low, high) = (self.mel(self.low.into()), self.mel(self.high.into()));
        let corners: Vec<f64> = (0..mels + 2)
            .map(|i| self.hz(low + (high - low) * i as f64 / (mels + 1) as f64))
            .collect();
        let mut table = vec![0f32; bins * mels];
        for (bin, row) in table.chunks_exact_mut(mels).enumerate() {
            let f = (rate / 2) as f64 * bin as f64 / (bins - 1) as f64;
            for (value, c) in row.iter_mut().zip(corners.windows(3)) {
                let side = ((f - c[0]) / (c[1] - c[0])).min((c[2] - f) / (c[2] - c[1]));
                let area = if self.norm == 1 { 2.0 / (c[2] - c[0]) } else { 1.0 };
                *value = (side.max(0.0) * area) as f32;
            }
        }
        l.table(&[bins, mels], &table)
    }
}

/// How a wave is cut and transformed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Frames {
    /// Samples of a frame.
    pub(crate) length: usize,
    /// Samples between two.
    pub(crate) hop: usize,
    /// Points of the transform, at least as many.
    pub(crate) transform: usize,
    /// Exponent of the magnitudes.
    #[serde(with = "super::number")]
    pub(crate) power: f32,
    /// Whether frames are centered, which pads half a frame on both sides.
    pub(crate) center: bool,
    /// 0: the wave mirrored; 1: zeros.
    pub(crate) pad: i32,
    /// Smallest value before the logarithm.
    #[serde(with = "super::number")]
    pub(crate) floor: f32,
    /// 0: none; 1: natural; 2: decimal.
    pub(crate) log: i32,
    /// Factor of the sample before that is taken off.
    #[serde(with = "super::number")]
    pub(crate) preemphasis: f32,
    /// Whether the mean of a frame is taken off.
    pub(crate) remove_mean: bool,
}

impl Frames {
    /// `(wave [n], mels [bins, mels]) -> [mels, frames]`
    pub(super) fn lower(&self, l: &mut Lower, wave: ValueId, mels: ValueId) -> Result<ValueId> {
        let &Frames {
            length, hop, transform, ..
        } = self;
        let valid = length > 0 && hop > 0 && length <= transform && transform <= MAX_TRANSFORM;
        if !valid || !(0..=1).contains(&self.pad) || !(0..=2).contains(&self.log) {
            return Err(Error::argument(format!(
                "frames of {length} samples, {hop} apart, transforms of {transform} points, padding {}, logarithm {}; expected 1 \
                 to {MAX_TRANSFORM} points, no longer frames, padding 0 or 1, logarithm 0, 1 or 2",
                self.pad, self.log
            )));
        }
        let n: usize = l.shape(wave)?.iter().product();
        let wave = l.reshape(wave, &[n])?;
        let wave = if self.center { self.padded(l, wave, n)? } else { wave };
        let n = l.shape(wave)?[0];
        if n < length {
            return Err(Error::shape(format!("{n} samples are fewer than a frame of {length}")));
        }
        let frames = (n - length) / hop + 1;
        let starts = l.count(Dim::known(0), Dim::known(frames), &dims(&[frames, 1]))?;
        let step = l.b.scalar_i64(hop as i64)?;
        let starts = l.bin(Bin::Mul, starts, step)?;
        let inside = l.count(Dim::known(0), Dim::known(length), &dims(&[1, length]))?;
        let at = l.bin(Bin::Add, starts, inside)?;
        let mut rows = l.b.op(Op::Take { axis: 0 }, &[wave, at])?;
        if self.remove_mean {
            let mean = l.reduce(ReduceFn::Mean, rows, 1)?;
            rows = l.bin(Bin::Sub, rows, mean)?;
        }
        if self.preemphasis != 0.0 {
            // The first sample has none before it and stands for it itself.
            let (first, before) = (l.part(rows, 1, 0, 1)?, l.part(rows, 1, 0, length - 1)?);
            let before = l.join(1, &[first, before])?;
            let off = l.with(Bin::Mul, before, self.preemphasis)?;
            rows = l.bin(Bin::Sub, rows, off)?;
        }
        let window: Vec<f32> = (0..length)
            .map(|i| (0.5 - 0.5 * (TAU * i as f64 / length as f64).cos()) as f32)
            .collect();
        let window = l.table(&[length], &window)?;
        let rows = l.bin(Bin::Mul, rows, window)?;
        let [re, im] = transformed(l, rows, length, transform)?;
        let (re, im) = (l.bin(Bin::Mul, re, re)?, l.bin(Bin::Mul, im, im)?);
        let mut power = l.bin(Bin::Add, re, im)?;
        if self.power != 2.0 {
            power = l.with(Bin::Pow, power, self.power / 2.0)?;
        }
        let sums = l.b.matmul(power, mels)?;
        let mut out = l.with(Bin::Max, sums, self.floor)?;
        if self.log > 0 {
            out = l.un(Un::Log, out)?;
        }
        if self.log == 2 {
            out = l.with(Bin::Mul, out, std::f32::consts::LOG10_E)?;
        }
        Ok(l.b.permute(out, &[1, 0])?)
    }

    fn padded(&self, l: &mut Lower, wave: ValueId, n: usize) -> Result<ValueId> {
        let half = self.length / 2;
        if self.pad == 1 {
            return l.pad_axis(wave, 0, [half, half], 0.0);
        }
        if half >= n {
            return Err(Error::shape(format!("{n} samples cannot be mirrored over {half}")));
        }
        let at = l.b.iota(0usize, n + 2 * half)?;
        let (half, last) = (l.b.scalar_i64(half as i64)?, l.b.scalar_i64(n as i64 - 1)?);
        let at = l.bin(Bin::Sub, at, half)?;
        let at = l.un(Un::Abs, at)?;
        let over = l.bin(Bin::Sub, last, at)?;
        let over = l.un(Un::Abs, over)?;
        let at = l.bin(Bin::Sub, last, over)?;
        Ok(l.b.op(Op::Take { axis: 0 }, &[wave, at])?)
    }
}

/// Cosines and sines of `2π j k / n`, `[rows, columns]` each, `j` of the row. The angle is reduced as a whole number, so it is
/// exact for any size.
fn angles(l: &mut Lower, rows: usize, columns: usize, n: usize) -> Result<[ValueId; 2]> {
    let j = l.count(Dim::known(0), Dim::known(rows), &dims(&[rows, 1]))?;
    let k = l.count(Dim::known(0), Dim::known(columns), &dims(&[1, columns]))?;
    let turns = l.bin(Bin::Mul, j, k)?;
    let n_value = l.b.scalar_i64(n as i64)?;
    let turns = l.bin(Bin::Mod, turns, n_value)?;
    let turns = l.float(turns)?;
    let angle = l.with(Bin::Mul, turns, (TAU / n as f64) as f32)?;
    Ok([l.un(Un::Cos, angle)?, l.un(Un::Sin, angle)?])
}

/// Real and imaginary parts of the transform of `n` points of rows that have `length` and zeros behind.
fn transformed(l: &mut Lower, rows: ValueId, length: usize, n: usize) -> Result<[ValueId; 2]> {
    let [cos, sin] = angles(l, length, n / 2 + 1, n)?;
    let (re, im) = (l.b.matmul(rows, cos)?, l.b.matmul(rows, sin)?);
    Ok([re, l.un(Un::Neg, im)?])
}

/// Rows of a last axis, and the shape before it.
fn rows(l: &mut Lower, x: ValueId, last: &[usize]) -> Result<(Vec<usize>, ValueId)> {
    let shape = l.shape(x)?;
    let Some(before) = shape
        .strip_suffix(last)
        .filter(|_| last.first().is_some_and(|&n| n > 0))
    else {
        return Err(Error::shape(format!("{shape:?} does not end in {last:?}")));
    };
    let count: usize = before.iter().product();
    let whole: Vec<usize> = std::iter::once(count).chain(last.iter().copied()).collect();
    Ok((before.to_vec(), l.reshape(x, &whole)?))
}

fn checked(n: usize) -> Result<()> {
    match (1..=MAX_TRANSFORM).contains(&n) {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "a transform of {n} points; expected 1 to {MAX_TRANSFORM}"
        ))),
    }
}

/// `[…, n] -> […, n/2 + 1, 2]`
pub(super) fn rfft(l: &mut Lower, x: ValueId) -> Result<ValueId> {
    let n = l.last(x)?;
    checked(n)?;
    let (mut shape, x) = rows(l, x, &[n])?;
    let [re, im] = transformed(l, x, n, n)?;
    let (count, m) = (l.shape(re)?[0], n / 2 + 1);
    let (re, im) = (l.reshape(re, &[count, m, 1])?, l.reshape(im, &[count, m, 1])?);
    let both = l.join(2, &[re, im])?;
    shape.extend([m, 2]);
    l.reshape(both, &shape)
}

/// `[…, n/2 + 1, 2] -> […, n]`
pub(super) fn irfft(l: &mut Lower, x: ValueId, n: usize) -> Result<ValueId> {
    checked(n)?;
    let m = n / 2 + 1;
    let (mut shape, x) = rows(l, x, &[m, 2])?;
    let count = l.shape(x)?[0];
    let part = |l: &mut Lower, i: usize| -> Result<ValueId> {
        let part = l.part(x, 2, i, i + 1)?;
        l.reshape(part, &[count, m])
    };
    let (re, im) = (part(l, 0)?, part(l, 1)?);
    let [cos, sin] = angles(l, m, n, n)?;
    // Bins but the first, and the last of an even number, stand for two.
    let weights: Vec<f32> = (0..m)
        .map(|k| if k == 0 || 2 * k == n { 1.0 } else { 2.0 } / n as f32)
        .collect();
    let weights = l.table(&[m], &weights)?;
    let (re, im) = (l.bin(Bin::Mul, re, weights)?, l.bin(Bin::Mul, im, weights)?);
    let (re, im) = (l.b.matmul(re, cos)?, l.b.matmul(im, sin)?);
    let out = l.bin(Bin::Sub, re, im)?;
    shape.push(n);
    l.reshape(out, &shape)
}
