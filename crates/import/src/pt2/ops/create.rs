//! Tensors made of nothing: positions, constants, triangles.

use super::elementwise::{one, scaled};
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::{Call, Number};
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, CompareFn, Dim, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("arange", arange),
    ("arange.start", arange),
    ("arange.start_step", arange),
    ("linspace", linspace),
    ("full", |im, c| {
        let v = c.number("fill_value", None)?;
        filled(im, c, "size", v)
    }),
    ("zeros", |im, c| filled(im, c, "size", Number::Float(0.0))),
    ("ones", |im, c| filled(im, c, "size", Number::Float(1.0))),
    ("empty.memory_format", |im, c| filled(im, c, "size", Number::Float(0.0))),
    ("empty_permuted", |im, c| {
        c.ignore(&["physical_layout"]);
        filled(im, c, "size", Number::Float(0.0))
    }),
    ("new_zeros", |im, c| filled(im, c, "size", Number::Float(0.0))),
    ("new_ones", |im, c| filled(im, c, "size", Number::Float(1.0))),
    ("new_empty", |im, c| filled(im, c, "size", Number::Float(0.0))),
    ("new_full", |im, c| {
        let v = c.number("fill_value", None)?;
        filled(im, c, "size", v)
    }),
    ("zeros_like", |im, c| filled(im, c, "", Number::Float(0.0))),
    ("ones_like", |im, c| filled(im, c, "", Number::Float(1.0))),
    ("empty_like", |im, c| filled(im, c, "", Number::Float(0.0))),
    ("full_like", |im, c| {
        let v = c.number("fill_value", None)?;
        filled(im, c, "", v)
    }),
    ("zero", |im, c| filled(im, c, "", Number::Float(0.0))),
    ("fill.Scalar", |im, c| {
        let v = c.number("value", None)?;
        filled(im, c, "", v)
    }),
    ("fill.Tensor", |im, c| {
        let (like, v) = (c.tensor("self")?, c.tensor("value")?);
        let (shape, dtype) = (im.shape(like), im.dtype(like));
        let v = im.cast(v, dtype)?;
        one(im.expand(v, shape))
    }),
    ("scalar_tensor", |im, c| {
        let v = c.number("s", None)?;
        let v = im.number(&v)?;
        let dtype = c.dtype("dtype")?.unwrap_or(DType::F32);
        one(im.cast(v, dtype))
    }),
    ("eye", |im, c| {
        let n = c.size("n", None)?;
        eye(im, c, n.clone(), n)
    }),
    ("eye.m", |im, c| {
        let (n, m) = (c.size("n", None)?, c.size("m", None)?);
        eye(im, c, n, m)
    }),
    ("tril", |im, c| triangle(im, c, CompareFn::Le)),
    ("triu", |im, c| triangle(im, c, CompareFn::Ge)),
];

/// A range whose ends or steps are fractions, as numbers.
fn fractions(im: &mut Importer<'_>, ends: [&Number; 3]) -> Result<Vec<ValueId>> {
    const MOST: f64 = 65536.0;
    let fixed = ends.map(|n| match n {
        Number::Float(v) => Some(*v),
        Number::Size(d) => d.as_integer().map(|n| n as f64),
    });
    let [Some(start), Some(end), Some(step)] = fixed else {
        return unsupported("a range of fractions whose ends vary");
    };
    let len = ((end - start) / step).ceil();
    if !(0.0..=MOST).contains(&len) {
        return unsupported(format!("a range of {len} fractions"));
    }
    let values = (0..len as usize).map(|i| (start + i as f64 * step) as f32).collect();
    one(im.b.vector(values).map_err(invalid))
}

fn arange(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let start = call.number("start", Some(0.0))?;
    let (end, step) = (call.number("end", None)?, call.number("step", Some(1.0))?);
    let (end_given, step_given) = (end.clone(), step.clone());
    let dtype = call.dtype("dtype")?;
    let whole = |n: &Number| match n {
        Number::Size(d) => Some(d.clone()),
        Number::Float(v) if v.fract() == 0.0 && v.abs() < 1e15 => Some(Dim::integer(*v as i64)),
        Number::Float(_) => None,
    };
    let of_integers = ![&start, &end, &step]
        .iter()
        .any(|n| matches!(n, Number::Float(v) if v.fract() != 0.0));
    let ends_in_float = matches!(end, Number::Float(_));
    let (Some(first), Some(end), Some(step)) = (whole(&start), whole(&end), whole(&step)) else {
        return fractions(im, [&start, &end_given, &step_given]);
    };
    let Some(step) = step.as_integer().filter(|&s| s != 0) else {
        return unsupported("a range with a step that varies");
    };
    // (end - start) / step, rounded up; downwards the other way around.
    let way = if step > 0 { end.sub(&first) } else { first.sub(&end) }.map_err(invalid)?;
    let size = step.unsigned_abs() as usize;
    let up = way.add(&Dim::known(size - 1)).map_err(invalid)?;
    let len = up.floor_div(size).map_err(invalid)?;
    if len.as_integer().is_some_and(|n| n < 0) {
        return unsupported("a range that ends before it begins");
    }
    let simple = step == 1 && first.as_integer().is_none_or(|n| n >= 0);
    let mut v = match simple {
        true => im.b.iota(first, len).map_err(invalid)?,
        false => {
            let v = im.b.iota(0usize, len).map_err(invalid)?;
            let step = im.scalar_of(step as f64, DType::I64)?;
            let v = im.binary(BinaryFn::Mul, v, step)?;
            let first = match first.as_integer() {
                Some(n) => im.b.scalar_i64(n).map_err(invalid)?,
                None => im.number(&Number::Size(first))?,
            };
            im.binary(BinaryFn::Add, v, first)?
        }
    };
    let natural = if of_integers && !ends_in_float {
        DType::I64
    } else {
        DType::F32
    };
    v = im.cast(v, dtype.unwrap_or(natural))?;
    Ok(vec![v])
}

fn linspace(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (start, end) = (call.float("start", None)?, call.float("end", None)?);
    let steps = call.integer("steps", None)?;
    call.dtype("dtype")?;
    let n = im.b.iota(0usize, Dim::integer(steps.max(0))).map_err(invalid)?;
    let n = im.float(n)?;
    let y = scaled(im, n, (end - start) / (steps - 1).max(1) as f64)?;
    let start = im.scalar(start)?;
    one(im.binary(BinaryFn::Add, y, start))
}

/// A tensor of one value, in the sizes of an argument or of `self`.
fn filled(im: &mut Importer<'_>, call: &Call, sizes: &str, value: Number) -> Result<Vec<ValueId>> {
    let like = call.is_tensor("self").then(|| call.tensor("self")).transpose()?;
    let shape = match (sizes, like) {
        ("", Some(like)) => im.shape(like),
        _ => call.sizes(sizes)?.unwrap_or_default(),
    };
    let natural = match (&value, like) {
        (_, Some(like)) => im.dtype(like),
        (Number::Size(_), _) => DType::I64,
        _ => DType::F32,
    };
    let dtype = call.dtype("dtype")?.unwrap_or(natural);
    let value = match value.value() {
        Some(v) => im.scalar_of(v, dtype)?,
        None => {
            let v = im.number(&value)?;
            im.cast(v, dtype)?
        }
    };
    one(im.expand(value, shape))
}

/// Where column minus row compares with a number, `[rows, columns]`.
fn band(im: &mut Importer<'_>, f: CompareFn, rows: Dim, columns: Dim, diagonal: Dim) -> Result<ValueId> {
    let column = im.b.iota(0usize, columns).map_err(invalid)?;
    let row = im.b.iota(0usize, rows.clone()).map_err(invalid)?;
    let row = im.reshape(row, vec![rows, Dim::known(1)])?;
    let row = match diagonal.as_integer() {
        Some(0) => row,
        Some(n) => {
            let n = im.b.scalar_i64(n).map_err(invalid)?;
            im.binary(BinaryFn::Add, row, n)?
        }
        None => {
            let n = im.number(&Number::Size(diagonal))?;
            im.binary(BinaryFn::Add, row, n)?
        }
    };
    im.compare(f, column, row)
}

fn eye(im: &mut Importer<'_>, call: &Call, n: Dim, m: Dim) -> Result<Vec<ValueId>> {
    let is = band(im, CompareFn::Eq, n, m, Dim::known(0))?;
    let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
    one(im.cast(is, dtype))
}

fn triangle(im: &mut Importer<'_>, call: &Call, f: CompareFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let shape = im.shape(x);
    let [.., rows, columns] = &shape[..] else {
        return unsupported("a triangle of less than two axes");
    };
    let kept = band(im, f, rows.clone(), columns.clone(), call.size("diagonal", Some(0))?)?;
    let dtype = im.dtype(x);
    if dtype == DType::Bool {
        return one(im.binary(BinaryFn::And, x, kept));
    }
    let zero = im.scalar_of(0.0, dtype)?;
    one(im.select(kept, x, zero))
}
