//! Elements in another order or distance: diagonals, turns, shuffled channels, products and distances of all pairs.

use super::elementwise::{one, shifted};
use super::shape::take;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::Importer;
use cactus_ir::{BinaryFn, Dim, Literal, ReduceFn, UnaryFn, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("outer", |im, c| outer(im, c, "vec2")),
    ("ger", |im, c| outer(im, c, "vec2")),
    ("hstack", |im, c| joined(im, c, 1)),
    ("vstack", |im, c| joined(im, c, 2)),
    ("diagonal", diagonal),
    ("rot90", turned),
    ("channel_shuffle", shuffled),
    ("native_channel_shuffle", shuffled),
    ("cosine_similarity", cosine_similarity),
    ("pairwise_distance", |im, c| {
        let (a, b) = (c.tensor("x1")?, c.tensor("x2")?);
        let (p, eps) = (c.float("p", Some(2.0))?, c.float("eps", Some(1e-6))?);
        let keep = c.flag("keepdim", false)?;
        let way = im.binary(BinaryFn::Sub, a, b)?;
        let way = shifted(im, way, eps)?;
        one(length(im, way, p, keep))
    }),
    ("cdist", all_distances),
    ("_cdist_forward", all_distances),
    ("aminmax", |im, c| {
        let x = c.tensor("self")?;
        let keep = c.flag("keepdim", false)?;
        let axes = match c.optional_integer("dim")? {
            Some(_) if im.rank(x) == 0 => Vec::new(),
            Some(axis) => vec![im.axis(axis, im.rank(x))?],
            None => (0..im.rank(x)).collect(),
        };
        let least = im.reduce(ReduceFn::Min, x, &axes, keep)?;
        Ok(vec![least, im.reduce(ReduceFn::Max, x, &axes, keep)?])
    }),
];

fn outer(im: &mut Importer<'_>, call: &Call, other: &str) -> Result<Vec<ValueId>> {
    let (a, b) = (call.tensor("self")?, call.tensor(other)?);
    if (im.rank(a), im.rank(b)) != (1, 1) {
        return unsupported("an outer product of other than two vectors");
    }
    let (a, b) = im.promoted(a, b)?;
    let rows = im.unsqueeze(a, 1)?;
    one(im.binary(BinaryFn::Mul, rows, b))
}

/// Joined side by side, or one above the other: tensors of fewer than `least` axes get more before.
fn joined(im: &mut Importer<'_>, call: &Call, least: usize) -> Result<Vec<ValueId>> {
    let mut parts = call.tensors("tensors")?;
    for x in &mut parts {
        while im.rank(*x) < least {
            *x = im.unsqueeze(*x, 0)?;
        }
    }
    let rank = parts.first().map_or(0, |&x| im.rank(x));
    let axis = usize::from(least == 1 && rank > 1);
    one(im.concat(&parts, axis))
}

fn diagonal(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let rank = im.rank(x);
    let offset = call.integer("offset", Some(0))?;
    let (a, b) = (
        im.axis(call.integer("dim1", Some(0))?, rank)?,
        im.axis(call.integer("dim2", Some(1))?, rank)?,
    );
    let shape = im.shape(x);
    let (Some(high), Some(wide)) = (shape[a].as_known(), shape[b].as_known()) else {
        return unsupported("the diagonal of axes that vary");
    };
    if high > Literal::MAX_ELEMS || wide > Literal::MAX_ELEMS {
        return unsupported("a diagonal of so many elements");
    }
    if a == b {
        return unsupported("the diagonal of one axis");
    }
    let perm: Vec<usize> = (0..rank).filter(|i| *i != a && *i != b).chain([a, b]).collect();
    let x = im.permute(x, perm)?;
    let mut flat = im.shape(x);
    flat.splice(rank - 2.., [Dim::known(high * wide)]);
    let x = im.reshape(x, flat)?;
    let (high, wide) = (high as i64, wide as i64);
    let places: Vec<i64> = (0..high)
        .filter_map(|row| {
            let column = row.checked_add(offset)?;
            (0..wide).contains(&column).then_some(row * wide + column)
        })
        .collect();
    if places.is_empty() {
        return unsupported("a diagonal without elements");
    }
    one(take(im, x, rank - 2, places))
}

fn backwards(im: &mut Importer<'_>, x: ValueId, axis: usize) -> Result<ValueId> {
    let Some(n) = im.shape(x)[axis].as_known().filter(|&n| n <= Literal::MAX_ELEMS) else {
        return unsupported("a turn of axes that vary or are very long");
    };
    take(im, x, axis, (0..n as i64).rev().collect())
}

/// Turned by right angles from the first axis to the second.
fn turned(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let rank = im.rank(x);
    let turns = call.integer("k", Some(1))?.rem_euclid(4);
    let axes = call.integers("dims")?.unwrap_or_else(|| vec![0, 1]);
    let &[a, b] = &axes[..] else {
        return unsupported("a turn of other than two axes");
    };
    let (a, b) = (im.axis(a, rank)?, im.axis(b, rank)?);
    let mut swapped: Vec<usize> = (0..rank).collect();
    swapped.swap(a, b);
    one(match turns {
        0 => Ok(x),
        1 => {
            let x = backwards(im, x, b)?;
            im.permute(x, swapped)
        }
        2 => {
            let x = backwards(im, x, a)?;
            backwards(im, x, b)
        }
        _ => {
            let x = im.permute(x, swapped)?;
            backwards(im, x, b)
        }
    })
}

fn shuffled(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let groups = usize::try_from(call.integer("groups", None)?).unwrap_or(0);
    let shape = im.shape(x);
    let Some(channels) = shape
        .get(1)
        .and_then(Dim::as_known)
        .filter(|c| groups > 0 && c % groups == 0)
    else {
        return unsupported(format!("{groups} groups of channels of {}", im.ty(x)));
    };
    let mut apart = shape.clone();
    apart.splice(1..2, [Dim::known(groups), Dim::known(channels / groups)]);
    let mut perm: Vec<usize> = (0..apart.len()).collect();
    perm.swap(1, 2);
    let x = im.reshape(x, apart)?;
    let x = im.permute(x, perm)?;
    one(im.reshape(x, shape))
}

/// The norm of the last axis.
fn length(im: &mut Importer<'_>, x: ValueId, p: f64, keep: bool) -> Result<ValueId> {
    let last = im.rank(x).saturating_sub(1);
    let size = im.unary(UnaryFn::Abs, x)?;
    if p == 2.0 {
        let square = im.binary(BinaryFn::Mul, x, x)?;
        let sum = im.reduce(ReduceFn::Sum, square, &[last], keep)?;
        im.unary(UnaryFn::Sqrt, sum)
    } else if p == 1.0 {
        im.reduce(ReduceFn::Sum, size, &[last], keep)
    } else if p == f64::INFINITY {
        im.reduce(ReduceFn::Max, size, &[last], keep)
    } else {
        unsupported(format!("a distance of order {p}"))
    }
}

fn cosine_similarity(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let eps = call.float("eps", Some(1e-8))?;
    let wide = im.binary(BinaryFn::Mul, a, b)?;
    let axis = im.axis(call.integer("dim", Some(1))?, im.rank(wide))?;
    // Operands of fewer axes are broadcast to the result's.
    let before = im.rank(wide);
    let mut y = im.reduce(ReduceFn::Sum, wide, &[axis], false)?;
    for x in [a, b] {
        let Some(own) = (axis + im.rank(x)).checked_sub(before) else {
            return unsupported("the similarity of tensors along an axis that one does not have");
        };
        let square = im.binary(BinaryFn::Mul, x, x)?;
        let sum = im.reduce(ReduceFn::Sum, square, &[own], false)?;
        let norm = im.unary(UnaryFn::Sqrt, sum)?;
        let eps = im.scalar(eps)?;
        let norm = im.binary(BinaryFn::Max, norm, eps)?;
        y = im.binary(BinaryFn::Div, y, norm)?;
    }
    Ok(vec![y])
}

/// `[…, p, m]` and `[…, r, m]` to `[…, p, r]`.
fn all_distances(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["compute_mode"]);
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let p = call.float("p", Some(2.0))?;
    let (ra, rb) = (im.rank(a), im.rank(b));
    if ra < 2 || rb < 2 {
        return unsupported("distances of vectors alone");
    }
    let (a, b) = (im.unsqueeze(a, ra - 1)?, im.unsqueeze(b, rb - 2)?);
    let way = im.binary(BinaryFn::Sub, a, b)?;
    one(length(im, way, p, false))
}

/// The spread of `x` and its mean.
pub(super) fn with_mean(
    im: &mut Importer<'_>,
    call: &Call,
    spread: impl FnOnce(&mut Importer<'_>, &Call) -> Result<Vec<ValueId>>,
) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axes = im.axes(call, "dim", x)?;
    let keep = call.flag("keepdim", false)?;
    let x = im.float(x)?;
    let mean = im.reduce(ReduceFn::Mean, x, &axes, keep)?;
    let mut out = spread(im, call)?;
    out.push(mean);
    Ok(out)
}
