//! Functions that are made of those the graph has: inverses of sine, cosine and their hyperbolic kin, checks of numbers,
//! bits and narrow integers.

use super::Row;
use super::elementwise::{one, scaled, shifted, truncated, with};
use crate::Result;
use crate::pt2::importer::Importer;
use cactus_ir::{BinaryFn, CompareFn, UnaryFn, ValueId};
use cactus_tensor::DType;
use std::f64::consts::{FRAC_PI_2, PI};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("atan", |im, c| {
        with(im, c, |im, x| {
            let one = im.scalar(1.0)?;
            arc_tangent(im, x, one)
        })
    }),
    ("atan2", |im, c| {
        let (y, x) = im.pair(c)?;
        let (y, x) = (im.float(y)?, im.float(x)?);
        one(arc_tangent(im, y, x))
    }),
    ("asin", |im, c| {
        with(im, c, |im, x| {
            let other = other_side(im, x)?;
            arc_tangent(im, x, other)
        })
    }),
    ("acos", |im, c| {
        with(im, c, |im, x| {
            let other = other_side(im, x)?;
            arc_tangent(im, other, x)
        })
    }),
    ("sinh", |im, c| {
        with(im, c, |im, x| {
            let (up, down) = both_ways(im, x)?;
            let far = im.binary(BinaryFn::Sub, up, down)?;
            let far = scaled(im, far, 0.5)?;
            let near = odd_series(im, x, &[1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0])?;
            near_zero(im, x, 1.0, near, far)
        })
    }),
    ("cosh", |im, c| {
        with(im, c, |im, x| {
            let (up, down) = both_ways(im, x)?;
            let sum = im.binary(BinaryFn::Add, up, down)?;
            scaled(im, sum, 0.5)
        })
    }),
    ("asinh", |im, c| with(im, c, arc_sinh)),
    ("acosh", |im, c| {
        with(im, c, |im, x| {
            // log(x + sqrt((x - 1)(x + 1)))
            let (less, more) = (shifted(im, x, -1.0)?, shifted(im, x, 1.0)?);
            let y = im.binary(BinaryFn::Mul, less, more)?;
            let y = im.unary(UnaryFn::Sqrt, y)?;
            let y = im.binary(BinaryFn::Add, x, y)?;
            im.unary(UnaryFn::Log, y)
        })
    }),
    ("atanh", |im, c| {
        with(im, c, |im, x| {
            let minus = im.unary(UnaryFn::Neg, x)?;
            let (above, below) = (shifted(im, x, 1.0)?, shifted(im, minus, 1.0)?);
            let far = im.binary(BinaryFn::Div, above, below)?;
            let far = im.unary(UnaryFn::Log, far)?;
            let far = scaled(im, far, 0.5)?;
            let near = odd_series(
                im,
                x,
                &[1.0, 1.0 / 3.0, 0.2, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0],
            )?;
            near_zero(im, x, 0.25, near, far)
        })
    }),
    ("erfc", |im, c| {
        with(im, c, |im, x| {
            let y = im.unary(UnaryFn::Erf, x)?;
            let y = im.unary(UnaryFn::Neg, y)?;
            shifted(im, y, 1.0)
        })
    }),
    ("frac", |im, c| {
        with(im, c, |im, x| {
            let whole = truncated(im, x)?;
            im.binary(BinaryFn::Sub, x, whole)
        })
    }),
    ("round.decimals", |im, c| {
        let places = c.integer("decimals", Some(0))?;
        let unit = 10f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
        with(im, c, |im, x| {
            let x = scaled(im, x, unit)?;
            let x = im.unary(UnaryFn::Round, x)?;
            let unit = im.scalar(unit)?;
            im.binary(BinaryFn::Div, x, unit)
        })
    }),
    ("logit", |im, c| {
        let eps = c.optional_number("eps")?.and_then(|n| n.value());
        with(im, c, |im, mut x| {
            if let Some(eps) = eps {
                let (low, high) = (im.scalar(eps)?, im.scalar(1.0 - eps)?);
                x = im.binary(BinaryFn::Max, x, low)?;
                x = im.binary(BinaryFn::Min, x, high)?;
            }
            let rest = im.unary(UnaryFn::Neg, x)?;
            let rest = shifted(im, rest, 1.0)?;
            let odds = im.binary(BinaryFn::Div, x, rest)?;
            im.unary(UnaryFn::Log, odds)
        })
    }),
    ("isinf", |im, c| {
        with(im, c, |im, x| compared_to_infinity(im, x, CompareFn::Eq))
    }),
    ("isfinite", |im, c| {
        with(im, c, |im, x| compared_to_infinity(im, x, CompareFn::Lt))
    }),
    ("logaddexp", |im, c| {
        let (a, b) = im.pair(c)?;
        one(log_add(im, a, b))
    }),
];

/// `x (c0 + c1 x² + c2 x⁴ + …)`
fn odd_series(im: &mut Importer<'_>, x: ValueId, coefficients: &[f64]) -> Result<ValueId> {
    let square = im.binary(BinaryFn::Mul, x, x)?;
    let mut sum = im.scalar(coefficients.last().copied().unwrap_or(0.0))?;
    for &c in coefficients.iter().rev().skip(1) {
        sum = im.binary(BinaryFn::Mul, sum, square)?;
        sum = shifted(im, sum, c)?;
    }
    im.binary(BinaryFn::Mul, sum, x)
}

/// `near` where `|x| < bound`, else `far`.
fn near_zero(im: &mut Importer<'_>, x: ValueId, bound: f64, near: ValueId, far: ValueId) -> Result<ValueId> {
    let (size, bound) = (im.unary(UnaryFn::Abs, x)?, im.scalar(bound)?);
    let is = im.compare(CompareFn::Lt, size, bound)?;
    im.select(is, near, far)
}

/// `sqrt((1 - x)(1 + x))`
fn other_side(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    let minus = im.unary(UnaryFn::Neg, x)?;
    let (below, above) = (shifted(im, minus, 1.0)?, shifted(im, x, 1.0)?);
    let y = im.binary(BinaryFn::Mul, below, above)?;
    im.unary(UnaryFn::Sqrt, y)
}

/// `e^x` and `e^-x`
fn both_ways(im: &mut Importer<'_>, x: ValueId) -> Result<(ValueId, ValueId)> {
    let minus = im.unary(UnaryFn::Neg, x)?;
    Ok((im.unary(UnaryFn::Exp, x)?, im.unary(UnaryFn::Exp, minus)?))
}

/// The angle of `(x, y)`: that of the smaller over the larger by its series, halved once so that it converges, then turned
/// into the octant.
fn arc_tangent(im: &mut Importer<'_>, y: ValueId, x: ValueId) -> Result<ValueId> {
    let (a, b) = (im.unary(UnaryFn::Abs, x)?, im.unary(UnaryFn::Abs, y)?);
    let (most, least) = (im.binary(BinaryFn::Max, a, b)?, im.binary(BinaryFn::Min, a, b)?);
    // Nothing over nothing is nothing.
    let tiny = im.scalar(f64::from(f32::MIN_POSITIVE))?;
    let most = im.binary(BinaryFn::Max, most, tiny)?;
    let t = im.binary(BinaryFn::Div, least, most)?;
    // atan t = 2 atan(t / (1 + sqrt(1 + t²)))
    let square = im.binary(BinaryFn::Mul, t, t)?;
    let root = shifted(im, square, 1.0)?;
    let root = im.unary(UnaryFn::Sqrt, root)?;
    let root = shifted(im, root, 1.0)?;
    let half = im.binary(BinaryFn::Div, t, root)?;
    let series: Vec<f64> = (0..9)
        .map(|k| if k % 2 == 0 { 2.0 } else { -2.0 } / f64::from(2 * k + 1))
        .collect();
    let angle = odd_series(im, half, &series)?;
    let zero = im.scalar(0.0)?;
    let turned = im.unary(UnaryFn::Neg, angle)?;
    let turned = shifted(im, turned, FRAC_PI_2)?;
    let steep = im.compare(CompareFn::Gt, b, a)?;
    let angle = im.select(steep, turned, angle)?;
    let turned = im.unary(UnaryFn::Neg, angle)?;
    let turned = shifted(im, turned, PI)?;
    let left = im.compare(CompareFn::Lt, x, zero)?;
    let angle = im.select(left, turned, angle)?;
    let turned = im.unary(UnaryFn::Neg, angle)?;
    let below = im.compare(CompareFn::Lt, y, zero)?;
    im.select(below, turned, angle)
}

fn arc_sinh(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    let size = im.unary(UnaryFn::Abs, x)?;
    let square = im.binary(BinaryFn::Mul, x, x)?;
    let root = shifted(im, square, 1.0)?;
    let root = im.unary(UnaryFn::Sqrt, root)?;
    let y = im.binary(BinaryFn::Add, size, root)?;
    let y = im.unary(UnaryFn::Log, y)?;
    let sign = im.unary(UnaryFn::Sign, x)?;
    let far = im.binary(BinaryFn::Mul, y, sign)?;
    // (-1)^k (2k)! / (4^k k!² (2k + 1))
    let mut series = vec![1.0];
    let mut factor = 1.0;
    for k in 1..9 {
        factor *= -f64::from(2 * k - 1) / f64::from(2 * k);
        series.push(factor / f64::from(2 * k + 1));
    }
    let near = odd_series(im, x, &series)?;
    near_zero(im, x, 0.4, near, far)
}

fn compared_to_infinity(im: &mut Importer<'_>, x: ValueId, f: CompareFn) -> Result<ValueId> {
    let (size, infinity) = (im.unary(UnaryFn::Abs, x)?, im.scalar(f64::INFINITY)?);
    im.compare(f, size, infinity)
}

/// `log(e^a + e^b)`
pub(super) fn log_add(im: &mut Importer<'_>, a: ValueId, b: ValueId) -> Result<ValueId> {
    let most = im.binary(BinaryFn::Max, a, b)?;
    let mut sum = None;
    for x in [a, b] {
        let x = im.binary(BinaryFn::Sub, x, most)?;
        let x = im.unary(UnaryFn::Exp, x)?;
        sum = Some(match sum {
            None => x,
            Some(before) => im.binary(BinaryFn::Add, before, x)?,
        });
    }
    let log = im.unary(UnaryFn::Log, sum.unwrap_or(most))?;
    im.binary(BinaryFn::Add, log, most)
}

/// Integers of `bits` bits, as they wrap around.
pub(super) fn wrapped(im: &mut Importer<'_>, x: ValueId, bits: u32, signed: bool) -> Result<ValueId> {
    let x = im.cast(x, DType::I64)?;
    let (size, half) = (1i64 << bits, if signed { 1i64 << (bits - 1) } else { 0 });
    let invalid = crate::pt2::importer::invalid;
    let (size, half) = (
        im.b.scalar_i64(size).map_err(invalid)?,
        im.b.scalar_i64(half).map_err(invalid)?,
    );
    let x = im.binary(BinaryFn::Add, x, half)?;
    let x = im.binary(BinaryFn::Mod, x, size)?;
    im.binary(BinaryFn::Sub, x, half)
}
