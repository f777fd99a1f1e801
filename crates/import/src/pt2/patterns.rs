//! Stored tensors that are made of positions: written as what they are, passes can prove a mask causal and lengths may
//! vary.

use super::importer::{Importer, invalid};
use super::sinusoids;
use crate::Result;
use cactus_ir::{BinaryFn, CompareFn, Dim, ValueId};
use cactus_tensor::{DType, Data, Tensor};

/// The value that makes `tensor` of positions, where it is `0, 1, 2, …`, has one number up to a diagonal and another
/// beyond it, or is a table of sines and cosines.
pub(crate) fn of_positions(im: &mut Importer<'_>, tensor: &Tensor) -> Result<Option<ValueId>> {
    if let Some(n) = positions(tensor) {
        let v = im.b.iota(0usize, n).map_err(invalid)?;
        return Ok(Some(im.reshape(v, dims(tensor.shape()))?));
    }
    if let Some(t) = triangle(tensor) {
        return build(im, tensor, &t).map(Some);
    }
    match sinusoids::of(tensor) {
        Some(found) => found.build(im).map(Some),
        None => Ok(None),
    }
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::known(d)).collect()
}

/// `0, 1, 2, …` along the last axis, with no other axis.
fn positions(t: &Tensor) -> Option<usize> {
    let (last, lead) = t.shape().split_last()?;
    let Data::I64(v) = t.data() else { return None };
    let counts = v.iter().enumerate().all(|(i, &x)| x == i as i64);
    (*last > 1 && lead.iter().all(|&d| d == 1) && counts).then_some(*last)
}

/// One number where `column <= row + diagonal` and, with a window, `column > row + diagonal - window`; another elsewhere.
struct Triangle {
    diagonal: i64,
    window: Option<i64>,
    inside: f64,
    outside: f64,
}

fn triangle(t: &Tensor) -> Option<Triangle> {
    let [lead @ .., rows, columns] = t.shape() else {
        return None;
    };
    if *rows < 2 || *columns < 2 || lead.iter().any(|&d| d != 1) {
        return None;
    }
    let at = |i: usize, j: usize| match t.data() {
        Data::F32(v) => f64::from(v[i * columns + j]),
        Data::I64(v) => v[i * columns + j] as f64,
        Data::Bool(v) => f64::from(u8::from(v[i * columns + j])),
        _ => f64::NAN,
    };
    let (inside, outside) = (at(0, 0), at(0, columns - 1));
    if inside == outside || inside.is_nan() || outside.is_nan() {
        return None;
    }
    // The first row tells the diagonal.
    let seen = (0..*columns).take_while(|&j| at(0, j) == inside).count();
    let diagonal = seen as i64 - 1;
    // The first column tells how far back is seen.
    let below = (0..*rows).take_while(|&i| at(i, 0) == inside).count();
    let window = (below < *rows).then_some(below as i64 + diagonal);
    let fits = (0..*rows).all(|i| {
        (0..*columns).all(|j| {
            at(i, j)
                == if j as i64 <= i as i64 + diagonal && window.is_none_or(|w| j as i64 > i as i64 + diagonal - w) {
                    inside
                } else {
                    outside
                }
        })
    });
    (diagonal >= 0 && fits).then_some(Triangle {
        diagonal,
        window,
        inside,
        outside,
    })
}

fn build(im: &mut Importer<'_>, t: &Tensor, found: &Triangle) -> Result<ValueId> {
    let shape = t.shape();
    let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let column = im.b.iota(0usize, columns).map_err(invalid)?;
    let row =
        im.b.iota(usize::try_from(found.diagonal).unwrap_or(0), rows)
            .map_err(invalid)?;
    let row = im.reshape(row, vec![Dim::known(rows), Dim::known(1)])?;
    let mut inside = im.compare(CompareFn::Le, column, row)?;
    if let Some(window) = found.window {
        let back = im.b.scalar_i64(window).map_err(invalid)?;
        let first = im.binary(BinaryFn::Sub, row, back)?;
        let near = im.compare(CompareFn::Gt, column, first)?;
        inside = im.binary(BinaryFn::And, inside, near)?;
    }
    let v = match t.dtype() {
        DType::Bool if found.inside == 1.0 => inside,
        DType::Bool => im.unary(cactus_ir::UnaryFn::Not, inside)?,
        dtype => {
            let (a, b) = (im.scalar_of(found.inside, dtype)?, im.scalar_of(found.outside, dtype)?);
            im.select(inside, a, b)?
        }
    };
    im.reshape(v, dims(shape))
}
