//! Complex numbers, as rotary embeddings are written with them: a tensor of them is one of real numbers with a last axis of
//! two, the real part and the imaginary one. Rows for operations that have one for real numbers too are in [`ON_COMPLEX`],
//! which is asked where an operand is complex.

use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::Importer;
use cactus_ir::{BinaryFn, Dim, UnaryFn, ValueId};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("polar", polar),
    ("complex", parts),
    ("view_as_complex", same),
    ("view_as_real", same),
];

/// Operations with an operand or a result that is complex.
pub(super) const ON_COMPLEX: &[(&str, Row)] = &[
    ("polar", polar),
    ("complex", parts),
    ("view_as_complex", same),
    ("view_as_real", same),
    ("alias", same),
    ("clone", same),
    ("contiguous", same),
    ("_to_copy", copied),
    ("mul.Tensor", mul),
    ("mul.Scalar", mul),
    ("unsqueeze", unsqueeze),
    ("slice.Tensor", slice),
    ("view", |im, c| view(im, c, "size")),
    ("reshape", |im, c| view(im, c, "shape")),
    ("real", |im, c| part(im, c, 0)),
    ("imag", |im, c| part(im, c, 1)),
    ("_conj", conjugate),
    ("conj", conjugate),
];

fn same(_: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["memory_format"]);
    Ok(vec![call.tensor("self")?])
}

fn copied(_: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["dtype"]);
    Ok(vec![call.tensor("self")?])
}

/// Real and imaginary parts as one value.
fn joined(im: &mut Importer<'_>, real: ValueId, imaginary: ValueId) -> Result<ValueId> {
    let axis = im.rank(real);
    let (real, imaginary) = (im.unsqueeze(real, axis)?, im.unsqueeze(imaginary, axis)?);
    im.concat(&[real, imaginary], axis)
}

/// The real part, or the imaginary one.
fn at(im: &mut Importer<'_>, x: ValueId, which: usize) -> Result<ValueId> {
    let axis = im.rank(x) - 1;
    let v = im.slice(x, axis, Dim::known(which), Dim::known(which + 1))?;
    let shape = im.shape(v)[..axis].to_vec();
    im.reshape(v, shape)
}

fn polar(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (abs, angle) = (call.tensor("abs")?, call.tensor("angle")?);
    let (cos, sin) = (im.unary(UnaryFn::Cos, angle)?, im.unary(UnaryFn::Sin, angle)?);
    let (real, imaginary) = (im.binary(BinaryFn::Mul, cos, abs)?, im.binary(BinaryFn::Mul, sin, abs)?);
    Ok(vec![joined(im, real, imaginary)?])
}

fn parts(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (real, imaginary) = (call.tensor("real")?, call.tensor("imag")?);
    Ok(vec![joined(im, real, imaginary)?])
}

fn part(im: &mut Importer<'_>, call: &Call, which: usize) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    Ok(vec![at(im, x, which)?])
}

fn conjugate(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let (real, imaginary) = (at(im, x, 0)?, at(im, x, 1)?);
    let imaginary = im.unary(UnaryFn::Neg, imaginary)?;
    Ok(vec![joined(im, real, imaginary)?])
}

fn mul(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let a = call.tensor("self")?;
    if !call.is_tensor("other") {
        let by = im.tensor_or_number(call, "other")?;
        let by = im.float(by)?;
        return Ok(vec![im.binary(BinaryFn::Mul, a, by)?]);
    }
    let b = call.tensor("other")?;
    if !(call.is_complex("self") && call.is_complex("other")) {
        // A real number for both parts.
        let real = |im: &mut Importer<'_>, x: ValueId, name: &str| match call.is_complex(name) {
            true => Ok(x),
            false => {
                let x = im.float(x)?;
                im.unsqueeze(x, im.rank(x))
            }
        };
        let (a, b) = (real(im, a, "self")?, real(im, b, "other")?);
        return Ok(vec![im.binary(BinaryFn::Mul, a, b)?]);
    }
    let [ar, ai, br, bi] = [at(im, a, 0)?, at(im, a, 1)?, at(im, b, 0)?, at(im, b, 1)?];
    let product = |im: &mut Importer<'_>, x: ValueId, y: ValueId| im.binary(BinaryFn::Mul, x, y);
    let (rr, ii, ri, ir) = (
        product(im, ar, br)?,
        product(im, ai, bi)?,
        product(im, ar, bi)?,
        product(im, ai, br)?,
    );
    let (real, imaginary) = (im.binary(BinaryFn::Sub, rr, ii)?, im.binary(BinaryFn::Add, ri, ir)?);
    Ok(vec![joined(im, real, imaginary)?])
}

fn unsqueeze(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    // A new one among as many as there are, which is as many as the real tensor has.
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    Ok(vec![im.unsqueeze(x, axis)?])
}

fn slice(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(x) - 1)?;
    let start = call.optional_size("start")?.unwrap_or_else(|| Dim::known(0));
    let whole = im.shape(x)[axis].clone();
    let end = match call.optional_size("end")? {
        Some(end) if end.as_integer() != Some(i64::MAX) => end,
        _ => whole,
    };
    if call.integer("step", Some(1))? != 1
        || start.as_integer().is_some_and(|n| n < 0)
        || end.as_integer().is_some_and(|n| n < 0)
    {
        return unsupported("a slice of complex numbers with a step, or counted from the end");
    }
    Ok(vec![im.slice(x, axis, start, end)?])
}

fn view(im: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let mut sizes = call.sizes(name)?.unwrap_or_default();
    sizes.push(Dim::known(2));
    let sizes = super::shape::resolved(im, x, sizes)?;
    Ok(vec![im.reshape(x, sizes)?])
}
