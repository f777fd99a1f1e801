//! Padding: by a number, or by other elements of the tensor.

use super::shape::take;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{Dim, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("pad", pad),
    ("constant_pad_nd", pad),
    ("reflection_pad1d", |im, c| reflect(im, c)),
    ("reflection_pad2d", |im, c| reflect(im, c)),
    ("replication_pad1d", |im, c| replicate(im, c)),
    ("replication_pad2d", |im, c| replicate(im, c)),
];

/// Pairs before and after of the last axes, the last axis first.
fn padding(im: &Importer<'_>, call: &Call, name: &str, x: ValueId) -> Result<Vec<(usize, i64, i64)>> {
    let pads = call.integers(name)?.unwrap_or_default();
    let rank = im.rank(x);
    if pads.len() % 2 != 0 || pads.len() / 2 > rank {
        return unsupported("padding that does not fit the tensor");
    }
    Ok(pads
        .chunks_exact(2)
        .enumerate()
        .map(|(i, p)| (rank - 1 - i, p[0], p[1]))
        .collect())
}

fn pad(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    match call.text("mode", "constant")? {
        "constant" => {}
        "reflect" => return reflect_with(im, call, "pad"),
        "replicate" => return replicate_with(im, call, "pad"),
        "circular" => {
            return padded_by_index(im, call, "pad", |i, n| i.rem_euclid(n));
        }
        other => return unsupported(format!("the padding `{other}`")),
    }
    let mut x = call.tensor("self")?;
    let value = call.float("value", Some(0.0))?;
    let sizes = call.sizes("pad")?.unwrap_or_default();
    if sizes.iter().any(|d| d.as_integer().is_none()) {
        return Ok(vec![pad_by_lengths(im, x, &sizes, value)?]);
    }
    for (axis, before, after) in padding(im, call, "pad", x)? {
        x = constant_pad(im, x, axis, before, after, value)?;
    }
    Ok(vec![x])
}

/// `x` with as many places of `value` as sizes say that vary, which must not be negative.
fn pad_by_lengths(im: &mut Importer<'_>, mut x: ValueId, sizes: &[Dim], value: f64) -> Result<ValueId> {
    let rank = im.rank(x);
    if !sizes.len().is_multiple_of(2)
        || sizes.len() / 2 > rank
        || sizes.iter().any(|d| d.as_integer().is_some_and(|n| n < 0))
    {
        return unsupported("padding that does not fit the tensor");
    }
    for (i, pair) in sizes.chunks_exact(2).enumerate() {
        let axis = rank - 1 - i;
        let mut parts = vec![x];
        for (n, first) in [(&pair[0], true), (&pair[1], false)] {
            if !n.is(0) {
                let (mut filled, dtype) = (im.shape(x), im.dtype(x));
                filled[axis] = n.clone();
                let value = im.scalar_of(value, dtype)?;
                let value = im.expand(value, filled)?;
                parts.insert(if first { 0 } else { parts.len() }, value);
            }
        }
        x = im.concat(&parts, axis)?;
    }
    Ok(x)
}

/// `x` with places of `value` before and after an axis; negative counts cut off.
fn constant_pad(
    im: &mut Importer<'_>,
    x: ValueId,
    axis: usize,
    before: i64,
    after: i64,
    value: f64,
) -> Result<ValueId> {
    let size = im.shape(x)[axis].clone();
    let cut_before = Dim::integer((-before).max(0));
    let end = size.sub(&Dim::integer((-after).max(0))).map_err(invalid)?;
    let x = im.slice(x, axis, cut_before, end)?;
    let (shape, dtype) = (im.shape(x), im.dtype(x));
    let mut parts = vec![x];
    for (n, first) in [(before, true), (after, false)] {
        if n > 0 {
            let mut filled = shape.clone();
            filled[axis] = Dim::integer(n);
            let value = im.scalar_of(value, dtype)?;
            let value = im.expand(value, filled)?;
            parts.insert(if first { 0 } else { parts.len() }, value);
        }
    }
    im.concat(&parts, axis)
}

fn padded_by_index(
    im: &mut Importer<'_>,
    call: &Call,
    name: &str,
    at: impl Fn(i64, i64) -> i64,
) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    for (axis, before, after) in padding(im, call, name, x)? {
        let Some(n) = im.shape(x)[axis].as_integer() else {
            return unsupported("padding by other elements of an axis that varies");
        };
        let ids: Vec<i64> = (-before..n + after).map(|i| at(i, n)).collect();
        if ids.iter().any(|i| !(0..n).contains(i)) {
            return unsupported("padding larger than the axis");
        }
        x = take(im, x, axis, ids)?;
    }
    Ok(vec![x])
}

fn reflect_with(im: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    padded_by_index(im, call, name, |i, n| {
        if i < 0 {
            -i
        } else if i >= n {
            2 * (n - 1) - i
        } else {
            i
        }
    })
}

fn replicate_with(im: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    padded_by_index(im, call, name, |i, n| i.clamp(0, n - 1))
}

fn reflect(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    reflect_with(im, call, "padding")
}

fn replicate(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    replicate_with(im, call, "padding")
}
