//! The discrete Fourier transform of real input, for lengths whose only prime factors are 2, 3 and 5.
//!
//! Mixed radix, self-sorting (Stockham, decimation in frequency; Van Loan, *Computational Frameworks for the Fast Fourier Transform*,
//! 1992, §1.7), in `f64`. An even length is transformed as half as many complex numbers and then untangled. The order of additions
//! depends on the length alone.

use crate::{Error, ErrorKind};
use std::f64::consts::PI;

/// The longest transform that is accepted, in samples.
pub const MAX_SAMPLES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    const ZERO: Self = Self { re: 0.0, im: 0.0 };

    /// `exp(-2πi k / n)`.
    fn root(k: usize, n: usize) -> Self {
        let angle = -2.0 * PI * (k % n) as f64 / n as f64;
        Self {
            re: libm::cos(angle),
            im: libm::sin(angle),
        }
    }
}

impl std::ops::Add for Complex {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl std::ops::Sub for Complex {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

impl std::ops::Mul for Complex {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl Complex {
    #[inline(always)]
    fn scale(self, by: f64) -> Self {
        Self {
            re: self.re * by,
            im: self.im * by,
        }
    }

    /// `-i` times this.
    #[inline(always)]
    fn turn(self) -> Self {
        Self {
            re: self.im,
            im: -self.re,
        }
    }
}

#[derive(Debug, Clone)]
struct Stage {
    radix: usize,
    /// Butterflies of one transform of this stage.
    groups: usize,
    /// Transforms side by side.
    stride: usize,
    /// `[groups, radix - 1]`: the factors behind each butterfly's outputs but the first.
    twiddles: Vec<Complex>,
}

/// A transform of one length, with its tables.
#[derive(Debug, Clone)]
pub struct RealFft {
    samples: usize,
    stages: Vec<Stage>,
    /// For an even length, `exp(-2πi k / samples)` for `k` up to a quarter of it.
    untangle: Vec<Complex>,
}

/// Memory for one transform at a time. It grows at the first use and not again.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    from: Vec<Complex>,
    to: Vec<Complex>,
}

impl RealFft {
    /// The transform of `samples` real numbers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRecipe`] where `samples` is 0, over [`MAX_SAMPLES`], or has a prime factor other than 2, 3 and 5.
    pub fn new(samples: usize) -> Result<Self, Error> {
        let mut rest = samples;
        let mut factors = Vec::new();
        if !(1..=MAX_SAMPLES).contains(&samples) {
            return Err(Error::new(
                ErrorKind::InvalidRecipe,
                format!("a transform has 1 to {MAX_SAMPLES} samples, not {samples}"),
            ));
        }
        let complex = if samples.is_multiple_of(2) {
            samples / 2
        } else {
            samples
        };
        for prime in [2, 3, 5] {
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
        }
        if rest != 1 {
            return Err(Error::new(
                ErrorKind::InvalidRecipe,
                format!("the length of a transform may only have the factors 2, 3 and 5; {samples} has {rest}"),
            ));
        }
        rest = complex;
        for radix in [5, 4, 3, 2] {
            while rest.is_multiple_of(radix) && rest > 1 {
                rest /= radix;
                factors.push(radix);
            }
        }
        let mut length = complex;
        let mut stride = 1;
        let stages = factors
            .into_iter()
            .map(|radix| {
                let groups = length / radix;
                let twiddles = (0..groups)
                    .flat_map(|j| (1..radix).map(move |k| (j, k)))
                    .map(|(j, k)| Complex::root(j * k, length))
                    .collect();
                let stage = Stage {
                    radix,
                    groups,
                    stride,
                    twiddles,
                };
                length = groups;
                stride *= radix;
                stage
            })
            .collect();
        let untangle = if samples.is_multiple_of(2) {
            (0..=samples / 4).map(|k| Complex::root(k, samples)).collect()
        } else {
            Vec::new()
        };
        Ok(Self {
            samples,
            stages,
            untangle,
        })
    }

    /// Numbers in.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Numbers out: `samples / 2 + 1` frequencies from 0 to half the rate.
    pub fn bins(&self) -> usize {
        self.samples / 2 + 1
    }

    /// Writes `|X[k]|²` for `X[k] = Σ input[n] exp(-2πi k n / samples)` into `power`.
    ///
    /// # Panics
    /// Where `input` has not [`RealFft::samples`] or `power` not [`RealFft::bins`] elements.
    pub fn power(&self, input: &[f64], scratch: &mut Scratch, power: &mut [f64]) {
        assert_eq!((input.len(), power.len()), (self.samples, self.bins()));
        let norm = |z: Complex| z.re * z.re + z.im * z.im;
        if self.untangle.is_empty() {
            scratch.from.clear();
            scratch.from.extend(input.iter().map(|&re| Complex { re, im: 0.0 }));
            let spectrum = self.transform(scratch);
            for (out, &z) in power.iter_mut().zip(spectrum) {
                *out = norm(z);
            }
            return;
        }
        scratch.from.clear();
        let pairs = input.as_chunks::<2>().0;
        scratch.from.extend(pairs.iter().map(|&[re, im]| Complex { re, im }));
        let half = self.samples / 2;
        let z = self.transform(scratch);
        // X[k] = E[k] + W^k O[k], where E and O are the transforms of the even and the odd samples, and Z = E + iO.
        for (k, &root) in self.untangle.iter().enumerate() {
            let a = z[k % half];
            let b = z[(half - k) % half];
            let even = Complex {
                re: 0.5 * (a.re + b.re),
                im: 0.5 * (a.im - b.im),
            };
            let odd = Complex {
                re: 0.5 * (a.im + b.im),
                im: 0.5 * (b.re - a.re),
            } * root;
            power[k] = norm(even + odd);
            power[half - k] = norm(even - odd);
        }
    }

    /// Transforms `scratch.from`, which is used up.
    fn transform<'a>(&self, scratch: &'a mut Scratch) -> &'a [Complex] {
        scratch.to.resize(scratch.from.len(), Complex::ZERO);
        for stage in &self.stages {
            match stage.radix {
                2 => run(stage, &scratch.from, &mut scratch.to, butterfly2),
                3 => run(stage, &scratch.from, &mut scratch.to, butterfly3),
                4 => run(stage, &scratch.from, &mut scratch.to, butterfly4),
                _ => run(stage, &scratch.from, &mut scratch.to, butterfly5),
            }
            std::mem::swap(&mut scratch.from, &mut scratch.to);
        }
        &scratch.from
    }
}

#[inline(always)]
fn run<const R: usize>(
    stage: &Stage,
    from: &[Complex],
    to: &mut [Complex],
    butterfly: impl Fn([Complex; R]) -> [Complex; R],
) {
    let Stage { groups, stride, .. } = *stage;
    for (j, outputs) in to.chunks_exact_mut(R * stride).enumerate() {
        let twiddles = &stage.twiddles[j * (R - 1)..][..R - 1];
        let inputs: [&[Complex]; R] = std::array::from_fn(|r| &from[stride * (j + groups * r)..][..stride]);
        for q in 0..stride {
            let result = butterfly(std::array::from_fn(|r| inputs[r][q]));
            outputs[q] = result[0];
            for k in 1..R {
                outputs[stride * k + q] = result[k] * twiddles[k - 1];
            }
        }
    }
}

#[inline(always)]
fn butterfly2([a, b]: [Complex; 2]) -> [Complex; 2] {
    [a + b, a - b]
}

#[inline(always)]
fn butterfly3([a, b, c]: [Complex; 3]) -> [Complex; 3] {
    // cos and sin of 120°.
    const SIN: f64 = 0.866_025_403_784_438_6;
    let sum = b + c;
    let side = (b - c).turn().scale(SIN);
    let middle = a - sum.scale(0.5);
    [a + sum, middle + side, middle - side]
}

#[inline(always)]
fn butterfly4([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (even, odd) = (a + c, b + d);
    let (even_difference, odd_difference) = (a - c, (b - d).turn());
    [
        even + odd,
        even_difference + odd_difference,
        even - odd,
        even_difference - odd_difference,
    ]
}

#[inline(always)]
fn butterfly5([a, b, c, d, e]: [Complex; 5]) -> [Complex; 5] {
    // cos and sin of 72° and 144°.
    const COS_1: f64 = 0.309_016_994_374_947_45;
    const COS_2: f64 = -0.809_016_994_374_947_5;
    const SIN_1: f64 = 0.951_056_516_295_153_5;
    const SIN_2: f64 = 0.587_785_252_292_473_1;
    let (outer, inner) = (b + e, c + d);
    let (outer_turned, inner_turned) = ((b - e).turn(), (c - d).turn());
    let middle_1 = a + outer.scale(COS_1) + inner.scale(COS_2);
    let middle_2 = a + outer.scale(COS_2) + inner.scale(COS_1);
    let side_1 = outer_turned.scale(SIN_1) + inner_turned.scale(SIN_2);
    let side_2 = outer_turned.scale(SIN_2) - inner_turned.scale(SIN_1);
    [
        a + outer + inner,
        middle_1 + side_1,
        middle_2 + side_2,
        middle_2 - side_2,
        middle_1 - side_1,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive_power(input: &[f64]) -> Vec<f64> {
        let n = input.len();
        (0..=n / 2)
            .map(|k| {
                let sum = input
                    .iter()
                    .enumerate()
                    .fold(Complex::ZERO, |sum, (i, &x)| sum + Complex::root(i * k, n).scale(x));
                sum.re * sum.re + sum.im * sum.im
            })
            .collect()
    }

    #[test]
    fn power_of_every_factor_equals_the_definition() {
        let mut scratch = Scratch::default();
        for samples in [
            1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 25, 27, 30, 45, 60, 64, 75, 125, 128, 180, 256, 320, 400, 480, 500,
            512, 600, 960, 1024,
        ] {
            let fft = RealFft::new(samples).unwrap();
            let input: Vec<f64> = (0..samples)
                .map(|i| f64::from((i as u32).wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 23) - 1.0)
                .collect();
            let mut power = vec![0.0; fft.bins()];
            fft.power(&input, &mut scratch, &mut power);
            for (k, (got, want)) in power.iter().zip(naive_power(&input)).enumerate() {
                let tolerance = 1e-11 * (1.0 + want) * samples as f64;
                assert!(
                    (got - want).abs() < tolerance,
                    "length {samples}, bin {k}: {got} and {want}"
                );
            }
        }
    }

    #[test]
    fn new_of_other_lengths_is_refused() {
        for samples in [0, 7, 14, 401, MAX_SAMPLES + 1, usize::MAX] {
            assert_eq!(
                RealFft::new(samples).unwrap_err().kind(),
                ErrorKind::InvalidRecipe,
                "{samples}"
            );
        }
    }
}
