//! Resampling of grids: nearest by index, linear and cubic as products with fixed matrices, axis by axis.

use super::conv::along_axis;
use super::shape::take;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::Importer;
use cactus_ir::ValueId;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("upsample_nearest1d.vec", |im, c| nearest(im, c, 1, false)),
    ("upsample_nearest2d.vec", |im, c| nearest(im, c, 2, false)),
    ("upsample_nearest3d.vec", |im, c| nearest(im, c, 3, false)),
    ("_upsample_nearest_exact1d.vec", |im, c| nearest(im, c, 1, true)),
    ("_upsample_nearest_exact2d.vec", |im, c| nearest(im, c, 2, true)),
    ("upsample_nearest2d", |im, c| nearest(im, c, 2, false)),
    ("upsample_linear1d.vec", |im, c| smooth(im, c, 1, Kind::Linear)),
    ("upsample_bilinear2d.vec", |im, c| smooth(im, c, 2, Kind::Linear)),
    ("upsample_bilinear2d", |im, c| smooth(im, c, 2, Kind::Linear)),
    ("upsample_trilinear3d.vec", |im, c| smooth(im, c, 3, Kind::Linear)),
    ("_upsample_bilinear2d_aa.vec", |im, c| {
        smooth(im, c, 2, Kind::LinearSmoothed)
    }),
    ("_upsample_bilinear2d_aa", |im, c| {
        smooth(im, c, 2, Kind::LinearSmoothed)
    }),
    ("_upsample_bicubic2d_aa.vec", |im, c| {
        smooth(im, c, 2, Kind::CubicSmoothed)
    }),
    ("_upsample_bicubic2d_aa", |im, c| smooth(im, c, 2, Kind::CubicSmoothed)),
    ("upsample_bicubic2d.vec", |im, c| smooth(im, c, 2, Kind::Cubic)),
    ("upsample_bicubic2d", |im, c| smooth(im, c, 2, Kind::Cubic)),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Linear,
    /// With a filter as wide as the outputs are apart.
    LinearSmoothed,
    Cubic,
    /// As [`Kind::LinearSmoothed`].
    CubicSmoothed,
}

fn operand(call: &Call) -> Result<ValueId> {
    match call.is_tensor("input") {
        true => call.tensor("input"),
        false => call.tensor("self"),
    }
}

/// For each axis: size before, size after, and the scale that was given.
fn sizes(im: &Importer<'_>, call: &Call, x: ValueId, n: usize) -> Result<Vec<(usize, usize, Option<f64>)>> {
    let shape = im.fixed(x)?;
    if shape.len() != n + 2 {
        return unsupported(format!("resizing {} along {n} axes", im.ty(x)));
    }
    let before = &shape[2..];
    let mut scales = call.optional_floats("scale_factors")?;
    for (i, name) in ["scales_h", "scales_w"].into_iter().enumerate() {
        if let Some(s) = call.optional_number(name)?.and_then(|s| s.value()) {
            scales.get_or_insert_with(|| vec![0.0; n])[i.min(n - 1)] = s;
        }
    }
    let scale = |i: usize| scales.as_ref().and_then(|s| s.get(i).copied()).filter(|s| *s > 0.0);
    let out: Vec<usize> = match call.integers("output_size")? {
        Some(v) if v.len() == n => v.iter().map(|&v| usize::try_from(v).unwrap_or(0)).collect(),
        _ => (0..n)
            .map(|i| scale(i).map_or(0, |s| (before[i] as f64 * s).floor() as usize))
            .collect(),
    };
    if out.contains(&0) || out.iter().any(|&o| o > 1 << 20) {
        return unsupported("an output without a size");
    }
    Ok((0..n).map(|i| (before[i], out[i], scale(i))).collect())
}

fn nearest(im: &mut Importer<'_>, call: &Call, n: usize, exact: bool) -> Result<Vec<ValueId>> {
    let mut x = operand(call)?;
    for (i, (size, count, scale)) in sizes(im, call, x, n)?.into_iter().enumerate() {
        // Torch computes in f32.
        let step = scale.map_or(size as f32 / count as f32, |s| (1.0 / s) as f32);
        let at = |o: usize| {
            let place = if exact {
                (o as f32 + 0.5) * step
            } else {
                o as f32 * step
            };
            (place.floor() as usize).min(size - 1) as i64
        };
        if size != count {
            x = take(im, x, i + 2, (0..count).map(at).collect())?;
        }
    }
    Ok(vec![x])
}

fn smooth(im: &mut Importer<'_>, call: &Call, n: usize, kind: Kind) -> Result<Vec<ValueId>> {
    let mut x = operand(call)?;
    let corners = call.flag("align_corners", false)?;
    for (i, (size, count, scale)) in sizes(im, call, x, n)?.into_iter().enumerate() {
        let step = match (corners, scale) {
            (true, _) if count > 1 => (size as f64 - 1.0) / (count as f64 - 1.0),
            (true, _) => 0.0,
            (false, Some(s)) => 1.0 / s,
            (false, None) => size as f64 / count as f64,
        };
        let mut m = vec![0f32; count.saturating_mul(size)];
        for o in 0..count {
            let row = &mut m[o * size..(o + 1) * size];
            match kind {
                // Inputs on either side, in steps of the filter.
                Kind::LinearSmoothed => smoothed(row, o, step, 1.0, |d| (1.0 - d).max(0.0)),
                Kind::CubicSmoothed => smoothed(row, o, step, 2.0, |d| cubic(d, -0.5)),
                _ => interpolated(row, o, step, corners, kind),
            }
        }
        x = along_axis(im, x, i + 2, m, count, size)?;
    }
    Ok(vec![x])
}

/// Weights of the inputs around the place of output `o`.
fn interpolated(row: &mut [f32], o: usize, step: f64, corners: bool, kind: Kind) {
    let last = row.len() as i64 - 1;
    let mut place = if corners {
        o as f64 * step
    } else {
        (o as f64 + 0.5) * step - 0.5
    };
    if kind == Kind::Linear && !corners {
        place = place.max(0.0);
    }
    let first = place.floor();
    let part = place - first;
    let weights: Vec<(i64, f64)> = match kind {
        Kind::Cubic => (-1..3)
            .map(|k: i64| (k, cubic((k as f64 - part).abs(), -0.75)))
            .collect(),
        _ => vec![(0, 1.0 - part), (1, part)],
    };
    for (k, w) in weights {
        row[(first as i64 + k).clamp(0, last) as usize] += w as f32;
    }
}

/// Keys 1981 with the parameter `a`: -0.75 between inputs, and -0.5 as a filter, as torch has them.
fn cubic(d: f64, a: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    } else {
        0.0
    }
}

/// A filter around the place of output `o`, stretched where outputs are farther apart than inputs; it reaches `reach` steps to either side.
fn smoothed(row: &mut [f32], o: usize, step: f64, reach: f64, filter: impl Fn(f64) -> f64) {
    let stretch = step.max(1.0);
    let width = reach * stretch;
    let center = (o as f64 + 0.5) * step;
    let first = ((center - width + 0.5).floor().max(0.0)) as usize;
    let end = ((center + width + 0.5).floor() as usize).min(row.len());
    let weight = |i: usize| filter(((i as f64 - center + 0.5) / stretch).abs());
    let sum: f64 = (first..end).map(weight).sum();
    for (i, slot) in row.iter_mut().enumerate().take(end).skip(first) {
        *slot = (weight(i) / sum) as f32;
    }
}
