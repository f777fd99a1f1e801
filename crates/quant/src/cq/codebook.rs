//! Lloyd–Max codebooks, computed from the distribution that they are for.
//!
//! A coordinate of a uniformly random unit vector in `d` dimensions has the density `(1 - x²)^((d-3)/2)` on `[-1, 1]`, up
//! to a factor. The codebook with the least mean squared error satisfies Lloyd's and Max's conditions: every level is the
//! mean of its cell, every boundary the middle of two levels. The kernels multiply integers, so the levels are then scaled
//! and rounded to `i8`, by that scale of a few that loses least (under 0.2 % of the error up to 4 bits, 2 % at 5, 9 % at 6).
//!
//! Only additions, multiplications, divisions and square roots are used, which IEEE 754 defines to the bit: every machine
//! gets the same codebooks. Those of trellises are constants of the format ([`trellis`]).

use super::trellis::{self, STATES};
use std::sync::OnceLock;

/// Most levels of a codebook.
const MAX_LEVELS: usize = 64;
/// Most levels that are compared with one after another; more are searched.
const FEW_LEVELS: usize = 16;
/// Intervals of the tabulated integral over `[0, 1]`.
const GRID: usize = 4096;

/// The codebook of one bit width and group size.
#[derive(Clone, Debug, PartialEq)]
pub struct Codebook {
    bits: u32,
    /// Levels in ascending order, for a unit vector.
    levels: Vec<f64>,
    integers: [i8; MAX_LEVELS],
    /// Integers for one unit of length.
    scale: f64,
    /// Middles between the integers.
    boundaries: [f32; MAX_LEVELS - 1],
    carries: Option<[i8; STATES]>,
    carry_table: [i8; 16],
}

impl Codebook {
    /// The codebook of `bits` (1 to 6) for groups of `d` inputs (32, 64 or 128).
    ///
    /// # Panics
    /// For other numbers: a programming error.
    #[inline]
    #[must_use]
    pub fn of(bits: u32, d: usize) -> &'static Self {
        static BOOKS: [[OnceLock<Codebook>; 6]; 3] = [const { [const { OnceLock::new() }; 6] }; 3];
        assert!((1..=6).contains(&bits), "a codebook of {bits} bits");
        let size = match d {
            32 => 0,
            64 => 1,
            128 => 2,
            _ => panic!("a codebook for groups of {d}"),
        };
        BOOKS[size][bits as usize - 1].get_or_init(|| Self::new(bits, d))
    }

    /// The codebook with carries of `bits` (2 to 6) for groups of `d` inputs (32, 64 or 128).
    ///
    /// # Panics
    /// For other numbers: a programming error.
    #[inline]
    #[must_use]
    pub fn of_trellis(bits: u32, d: usize) -> &'static Self {
        static BOOKS: [[OnceLock<Codebook>; 5]; 3] = [const { [const { OnceLock::new() }; 5] }; 3];
        assert!((2..=6).contains(&bits), "a trellis of {bits} bits");
        let size = match d {
            32 => 0,
            64 => 1,
            128 => 2,
            _ => panic!("a codebook for groups of {d}"),
        };
        BOOKS[size][bits as usize - 2].get_or_init(|| {
            let (positive, carries, scale) = trellis::table(bits);
            // A coordinate of a unit vector has the standard deviation 1/√d.
            let scale = scale * (d as f64).sqrt();
            let half: Vec<f64> = positive.iter().map(|&q| f64::from(q) / scale).collect();
            Self::of_levels(bits, &half, positive, scale, Some(carries))
        })
    }

    fn new(bits: u32, d: usize) -> Self {
        let density = Density::new(d);
        let half = lloyd_max(&density, 1 << (bits - 1));
        let (scale, rounded) = to_integers(&density, &half);
        Self::of_levels(bits, &half, &rounded, scale, None)
    }

    /// A symmetric codebook of these positive levels and their integers.
    fn of_levels(bits: u32, half: &[f64], rounded: &[i8], scale: f64, carries: Option<[i8; STATES]>) -> Self {
        let levels: Vec<f64> = half.iter().rev().map(|x| -x).chain(half.iter().copied()).collect();
        let mut integers = [0; MAX_LEVELS];
        for (out, &q) in integers.iter_mut().zip(rounded.iter().rev()) {
            *out = -q;
        }
        integers[rounded.len()..levels.len()].copy_from_slice(rounded);
        let mut boundaries = [f32::INFINITY; MAX_LEVELS - 1];
        for (b, pair) in boundaries.iter_mut().zip(integers[..levels.len()].windows(2)) {
            *b = (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
        }
        Self {
            bits,
            levels,
            integers,
            scale,
            boundaries,
            carries,
            carry_table: std::array::from_fn(|i| carries.unwrap_or_default()[i % STATES]),
        }
    }

    /// Bits of an index.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The levels before rounding, in ascending order.
    #[must_use]
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// The levels as integers in `-127..=127`, by index; zeros beyond the last.
    #[inline]
    #[must_use]
    pub fn integers(&self) -> &[i8; MAX_LEVELS] {
        &self.integers
    }

    /// What an index adds to the integer of the next weight on the path of a trellis, by its low two bits; `None` where every
    /// weight is its own integer.
    #[inline]
    #[must_use]
    pub fn carries(&self) -> Option<&[i8; STATES]> {
        self.carries.as_ref()
    }

    /// [`Codebook::carries`] by the low four bits of an index, zeros where there are none: a table of one register.
    #[inline]
    #[must_use]
    pub fn carry_table(&self) -> &[i8; 16] {
        &self.carry_table
    }

    /// Middles between neighboring integers, in ascending order: one fewer than levels.
    #[must_use]
    pub fn boundaries(&self) -> &[f32] {
        &self.boundaries[..self.levels.len() - 1]
    }

    /// What a level was multiplied by to become an integer.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Index of the integer nearest to `x`; the higher one in the middle of two. NaN gives 0.
    #[inline]
    #[must_use]
    pub fn nearest(&self, x: f32) -> u8 {
        // Unused boundaries are infinite and never count.
        if self.levels.len() <= FEW_LEVELS {
            return self.boundaries[..FEW_LEVELS - 1]
                .iter()
                .map(|&b| u8::from(x >= b))
                .sum();
        }
        self.boundaries.partition_point(|&b| x >= b) as u8
    }
}

/// The density of a coordinate, and its integrals.
struct Density {
    d: usize,
    /// Integral from 0 to each point of the grid.
    masses: Vec<f64>,
}

impl Density {
    fn new(d: usize) -> Self {
        let mut out = Self { d, masses: vec![0.0] };
        let mut sum = 0.0;
        for i in 0..GRID {
            sum += out.simpson(i as f64 / GRID as f64, (i + 1) as f64 / GRID as f64);
            out.masses.push(sum);
        }
        out
    }

    /// `(1 - x²)^((d-3)/2)`, for even `d`.
    fn at(&self, x: f64) -> f64 {
        let y = (1.0 - x * x).max(0.0);
        power(y, self.d / 2 - 2) * y.sqrt()
    }

    fn simpson(&self, a: f64, b: f64) -> f64 {
        (self.at(a) + 4.0 * self.at((a + b) / 2.0) + self.at(b)) * (b - a) / 6.0
    }

    /// Integral of the density from 0 to `x`.
    fn mass(&self, x: f64) -> f64 {
        let i = ((x * GRID as f64) as usize).min(GRID - 1);
        self.masses[i] + self.simpson(i as f64 / GRID as f64, x)
    }

    /// Integral of `x` times the density from `a` to `b`.
    fn moment(&self, a: f64, b: f64) -> f64 {
        let primitive = |x: f64| {
            let y = (1.0 - x * x).max(0.0);
            -power(y, self.d / 2 - 1) * y.sqrt() / (self.d - 1) as f64
        };
        primitive(b) - primitive(a)
    }
}

/// `y` to the `n`.
fn power(mut y: f64, mut n: usize) -> f64 {
    let mut out = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            out *= y;
        }
        y *= y;
        n >>= 1;
    }
    out
}

/// Ends of the cells of the positive levels.
fn cells(levels: &[f64]) -> Vec<(f64, f64)> {
    let middle = |i: usize| (levels[i] + levels[i + 1]) / 2.0;
    (0..levels.len())
        .map(|i| {
            let low = if i == 0 { 0.0 } else { middle(i - 1) };
            let high = if i + 1 == levels.len() { 1.0 } else { middle(i) };
            (low, high)
        })
        .collect()
}

/// The positive ones of `2 · count` best levels: the distribution is symmetric, and so is its codebook.
fn lloyd_max(density: &Density, count: usize) -> Vec<f64> {
    // Begin evenly within three standard deviations.
    let spread = 3.0 / (density.d as f64).sqrt();
    let mut levels: Vec<f64> = (0..count).map(|i| spread * (i as f64 + 0.5) / count as f64).collect();
    // Many levels move slowly: they go further than asked, and stop a little earlier (still 1e-8 from where they would end).
    let (further, still) = if count > FEW_LEVELS / 2 {
        (1.9, 1e-11)
    } else {
        (1.0, 1e-13)
    };
    for _ in 0..20_000 {
        let mut moved = 0f64;
        let ends = cells(&levels);
        for (level, (a, b)) in levels.iter_mut().zip(ends) {
            let mean = density.moment(a, b) / (density.mass(b) - density.mass(a));
            let step = further * (mean - *level);
            moved = moved.max(step.abs());
            *level = if further == 1.0 { mean } else { *level + step };
        }
        if moved < still {
            break;
        }
    }
    levels
}

/// Scale and integers of the positive levels: of the scales that make the largest level an integer from 100 to 127, the
/// one with the least mean squared rounding error.
fn to_integers(density: &Density, levels: &[f64]) -> (f64, Vec<i8>) {
    let weights: Vec<f64> = cells(levels)
        .into_iter()
        .map(|(a, b)| density.mass(b) - density.mass(a))
        .collect();
    let mut best = (f64::INFINITY, 0.0, Vec::new());
    for top in 100..=127 {
        let scale = f64::from(top) / levels[levels.len() - 1];
        let integers: Vec<i8> = levels.iter().map(|x| (x * scale + 0.5) as i8).collect();
        let loss: f64 = levels
            .iter()
            .zip(&integers)
            .zip(&weights)
            .map(|((x, &q), p)| {
                let error = x - f64::from(q) / scale;
                p * error * error
            })
            .sum();
        if loss < best.0 {
            best = (loss, scale, integers);
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_meet_the_conditions_of_lloyd_and_max() {
        for d in [32, 64, 128] {
            let density = Density::new(d);
            for bits in 1..=6 {
                let book = Codebook::of(bits, d);
                let half = &book.levels()[1 << (bits - 1)..];
                assert!(book.levels().is_sorted());
                for (level, (a, b)) in half.iter().zip(cells(half)) {
                    // The mean of the cell, by a fine sum of its own.
                    let steps = 20_000;
                    let (mut mass, mut moment) = (0.0, 0.0);
                    for i in 0..steps {
                        let x = a + (b - a) * (f64::from(i) + 0.5) / f64::from(steps);
                        mass += density.at(x);
                        moment += x * density.at(x);
                    }
                    assert!((moment / mass - level).abs() < 1e-6, "{d} {bits}: {level}");
                }
            }
        }
    }

    #[test]
    fn levels_approach_those_of_the_normal_distribution() {
        // Max 1960, table 1: levels for a normal distribution; in 128 dimensions they are a little smaller.
        for (bits, normal) in [
            (1, &[0.7979][..]),
            (2, &[0.4528, 1.510]),
            (3, &[0.2451, 0.7560, 1.344, 2.152]),
            (4, &[0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733]),
        ] {
            let half = &Codebook::of(bits, 128).levels()[1 << (bits - 1)..];
            for (level, normal) in half.iter().zip(normal) {
                let ratio = level * 128f64.sqrt() / normal;
                assert!((0.97..1.003).contains(&ratio), "{bits}: {level} {normal}");
            }
        }
    }

    #[test]
    fn integers_lose_little() {
        for d in [32, 64, 128] {
            let density = Density::new(d);
            for (bits, most) in [(1, 2e-3), (2, 2e-3), (3, 2e-3), (4, 2e-3), (5, 0.02), (6, 0.09)] {
                let book = Codebook::of(bits, d);
                let half = &book.levels()[1 << (bits - 1)..];
                let (mut loss, mut error) = (0.0, 0.0);
                for (i, (a, b)) in cells(half).into_iter().enumerate() {
                    let rounded = f64::from(book.integers()[half.len() + i]) / book.scale();
                    let steps = 2000;
                    for s in 0..steps {
                        let x = a + (b - a) * (f64::from(s) + 0.5) / f64::from(steps);
                        error += density.at(x) * (x - half[i]).powi(2) * (b - a);
                        loss += density.at(x) * ((x - rounded).powi(2) - (x - half[i]).powi(2)) * (b - a);
                    }
                }
                assert!(loss / error < most, "{d} {bits}: {}", loss / error);
            }
        }
    }

    #[test]
    fn nearest_by_brute_force() {
        for bits in 1..=6 {
            let book = Codebook::of(bits, 128);
            let used = &book.integers()[..1 << bits];
            for i in -1400..1400 {
                let x = i as f32 / 10.0;
                let found = used[usize::from(book.nearest(x))];
                let best = used.iter().map(|&q| (f32::from(q) - x).abs()).fold(f32::MAX, f32::min);
                assert_eq!((f32::from(found) - x).abs(), best, "{bits} {x}");
            }
            assert_eq!(book.nearest(f32::NAN), 0);
        }
    }
}
