//! Windows of grids as columns and back, grids read at places that are computed, and where the largest of a window is.

use super::elementwise::{one, scaled, shifted};
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, CompareFn, Dim, Literal, Op, ReduceFn, UnaryFn, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("im2col", columns),
    ("col2im", back),
    ("grid_sampler_2d", sampled),
    ("grid_sampler", sampled),
];

/// Windows over a grid of two axes.
struct Windows {
    grid: [usize; 2],
    kernel: Vec<usize>,
    dilation: Vec<usize>,
    padding: Vec<usize>,
    stride: Vec<usize>,
}

impl Windows {
    fn read(call: &Call, grid: [usize; 2]) -> Result<Windows> {
        let found = Windows {
            grid,
            kernel: call.per_axis("kernel_size", 2, &[])?,
            dilation: call.per_axis("dilation", 2, &[1, 1])?,
            padding: call.per_axis("padding", 2, &[0, 0])?,
            stride: call.per_axis("stride", 2, &[1, 1])?,
        };
        found.check()
    }

    fn check(self) -> Result<Windows> {
        let positive = |v: &[usize]| v.len() == 2 && v.iter().all(|&n| (1..1 << 20).contains(&n));
        let fits = positive(&self.kernel)
            && positive(&self.dilation)
            && positive(&self.stride)
            && self.padding.len() == 2
            && (0..2).all(|i| {
                let room = self.grid[i].saturating_add(self.padding[i].saturating_mul(2));
                room < 1 << 30 && room > self.dilation[i] * (self.kernel[i] - 1)
            });
        // Where the elements of a window are is written down one by one.
        let written = fits && self.kernel[0].saturating_mul(self.kernel[1]) <= Literal::MAX_ELEMS;
        match written {
            true => Ok(self),
            false => unsupported("windows that do not fit their grid"),
        }
    }

    fn padded(&self, i: usize) -> usize {
        self.grid[i] + 2 * self.padding[i]
    }

    /// How many windows there are along an axis.
    fn count(&self, i: usize) -> usize {
        (self.padded(i) - self.dilation[i] * (self.kernel[i] - 1) - 1) / self.stride[i] + 1
    }

    fn elements(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn windows(&self) -> usize {
        self.count(0) * self.count(1)
    }

    /// Index in the padded grid of every element of every window, `[elements, windows]`.
    fn places(&self, im: &mut Importer<'_>) -> Result<ValueId> {
        let wide = self.padded(1);
        let axis = |im: &mut Importer<'_>, i: usize, step: usize| -> Result<ValueId> {
            let n = im.b.iota(0usize, self.count(i)).map_err(invalid)?;
            let step = im.b.scalar_i64((self.stride[i] * step) as i64).map_err(invalid)?;
            im.binary(BinaryFn::Mul, n, step)
        };
        let (down, across) = (axis(im, 0, wide)?, axis(im, 1, 1)?);
        let down = im.reshape(down, vec![Dim::known(self.count(0)), Dim::known(1)])?;
        let first = im.binary(BinaryFn::Add, down, across)?;
        let first = im.reshape(first, vec![Dim::known(1), Dim::known(self.windows())])?;
        let within: Vec<i64> = (0..self.elements())
            .map(|k| (k / self.kernel[1] * self.dilation[0] * wide + k % self.kernel[1] * self.dilation[1]) as i64)
            .collect();
        let within =
            im.b.literal(&[within.len(), 1], Literal::I64(within))
                .map_err(invalid)?;
        im.binary(BinaryFn::Add, first, within)
    }

    /// `[batch, channels, high, wide]` with `fill` around it, its grid as one axis.
    fn surrounded(&self, im: &mut Importer<'_>, mut x: ValueId, fill: f64) -> Result<ValueId> {
        for i in 0..2 {
            if self.padding[i] == 0 {
                continue;
            }
            let mut shape = im.shape(x);
            shape[i + 2] = Dim::known(self.padding[i]);
            let edge = im.scalar(fill)?;
            let edge = im.expand(edge, shape)?;
            x = im.concat(&[edge, x, edge], i + 2)?;
        }
        let mut shape = im.shape(x);
        shape.splice(2.., [Dim::known(self.padded(0) * self.padded(1))]);
        im.reshape(x, shape)
    }
}

fn grid(im: &Importer<'_>, x: ValueId) -> Result<[usize; 2]> {
    let shape = im.shape(x);
    match shape
        .get(2..)
        .map(|s| s.iter().map(Dim::as_known).collect::<Vec<_>>())
        .as_deref()
    {
        Some([Some(high), Some(wide)]) if *high < 1 << 30 && *wide < 1 << 30 => Ok([*high, *wide]),
        _ => unsupported(format!(
            "windows of {}, where [batch, channels, high, wide] of a fixed size is expected",
            im.ty(x)
        )),
    }
}

/// A sample without a batch gets one.
fn with_batch(im: &mut Importer<'_>, x: ValueId, rank: usize) -> Result<(ValueId, bool)> {
    match im.rank(x) + 1 == rank {
        true => Ok((im.unsqueeze(x, 0)?, true)),
        false => Ok((x, false)),
    }
}

fn without_batch(im: &mut Importer<'_>, x: ValueId, was: bool) -> Result<ValueId> {
    match was {
        true => {
            let shape = im.shape(x)[1..].to_vec();
            im.reshape(x, shape)
        }
        false => Ok(x),
    }
}

fn columns(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, was) = {
        let x = call.tensor("self")?;
        with_batch(im, x, 4)?
    };
    let windows = Windows::read(call, grid(im, x)?)?;
    let shape = im.shape(x);
    let flat = windows.surrounded(im, x, 0.0)?;
    let places = windows.places(im)?;
    let y = im.op(Op::Take { axis: 2 }, &[flat, places])?;
    let merged = shape[1].times(windows.elements()).map_err(invalid)?;
    let y = im.reshape(y, vec![shape[0].clone(), merged, Dim::known(windows.windows())])?;
    one(without_batch(im, y, was))
}

/// The sum of what every window has at a place.
fn back(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, was) = {
        let x = call.tensor("self")?;
        with_batch(im, x, 3)?
    };
    let size = call.per_axis("output_size", 2, &[])?;
    let &[high, wide] = &size[..] else {
        return unsupported("an output without a size");
    };
    let windows = Windows::read(call, [high, wide])?;
    let shape = im.fixed(x)?;
    let (elements, count) = (windows.elements(), windows.windows());
    if shape.len() != 3 || shape[1] % elements != 0 || shape[2] != count {
        return unsupported(format!(
            "columns {} for {count} windows of {elements} elements",
            im.ty(x)
        ));
    }
    let (batch, channels) = (Dim::known(shape[0]), Dim::known(shape[1] / elements));
    let all = vec![batch.clone(), channels.clone(), Dim::known(elements * count)];
    let x = im.reshape(x, all.clone())?;
    let places = windows.places(im)?;
    let places = im.reshape(places, vec![Dim::known(1), Dim::known(1), Dim::known(elements * count)])?;
    let places = im.expand(places, all)?;
    let (tall, long) = (windows.padded(0), windows.padded(1));
    let zero = im.scalar(0.0)?;
    let empty = im.expand(zero, vec![batch.clone(), channels.clone(), Dim::known(tall * long)])?;
    let y = im.op(Op::Scatter { axis: 2, add: true }, &[empty, places, x])?;
    let mut y = im.reshape(y, vec![batch, channels, Dim::known(tall), Dim::known(long)])?;
    for i in 0..2 {
        let start = windows.padding[i];
        y = im.slice(y, i + 2, Dim::known(start), Dim::known(start + windows.grid[i]))?;
    }
    one(without_batch(im, y, was))
}

/// Index in the grid of the largest element of each window of `x` `[batch, channels, high, wide]`.
pub(super) fn largest(
    im: &mut Importer<'_>,
    x: ValueId,
    (kernel, dilation, padding, stride): (Vec<usize>, Vec<usize>, Vec<usize>, Vec<usize>),
) -> Result<ValueId> {
    let windows = Windows {
        grid: grid(im, x)?,
        kernel,
        dilation,
        padding,
        stride,
    }
    .check()?;
    let shape = im.shape(x);
    let flat = windows.surrounded(im, x, f64::NEG_INFINITY)?;
    let places = windows.places(im)?;
    let y = im.op(Op::Take { axis: 2 }, &[flat, places])?;
    // [batch, channels, elements, windows]
    let (f, axis, keepdim) = (ReduceFn::Max, 2, true);
    let which = im.op(Op::ArgReduce { f, axis, keepdim }, &[y])?;
    let mut all = im.shape(y);
    let places = im.reshape(
        places,
        vec![Dim::known(1), Dim::known(1), all[2].clone(), all[3].clone()],
    )?;
    let places = im.expand(places, all.clone())?;
    let at = im.op(Op::Gather { axis: 2 }, &[places, which])?;
    // From the padded grid to the grid.
    let number = |im: &mut Importer<'_>, n: usize| im.b.scalar_i64(n as i64).map_err(invalid);
    let (long, wide) = (number(im, windows.padded(1))?, number(im, windows.grid[1])?);
    let (top, left) = (number(im, windows.padding[0])?, number(im, windows.padding[1])?);
    let row = im.binary(BinaryFn::FloorDiv, at, long)?;
    let column = im.binary(BinaryFn::Mod, at, long)?;
    let row = im.binary(BinaryFn::Sub, row, top)?;
    let column = im.binary(BinaryFn::Sub, column, left)?;
    let row = im.binary(BinaryFn::Mul, row, wide)?;
    let at = im.binary(BinaryFn::Add, row, column)?;
    all = vec![
        shape[0].clone(),
        shape[1].clone(),
        Dim::known(windows.count(0)),
        Dim::known(windows.count(1)),
    ];
    im.reshape(at, all)
}

/// A grid `[batch, channels, high, wide]` read at places `[batch, high, wide, 2]` from -1 to 1.
fn sampled(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, at) = (call.tensor("input")?, call.tensor("grid")?);
    let (mode, padding) = (
        call.integer("interpolation_mode", Some(0))?,
        call.integer("padding_mode", Some(0))?,
    );
    let corners = call.flag("align_corners", false)?;
    if mode > 1 || padding > 1 {
        return unsupported("a grid that is read by cubic interpolation or mirrored at its edges");
    }
    let [high, wide] = grid(im, x)?;
    let shape = im.shape(x);
    let out = im.shape(at);
    if out.len() != 4 || !out[3].is(2) {
        return unsupported(format!("places {}", im.ty(at)));
    }
    let part = |im: &mut Importer<'_>, i: usize, size: usize| -> Result<ValueId> {
        let v = im.slice(at, 3, Dim::known(i), Dim::known(i + 1))?;
        let v = shifted(im, v, 1.0)?;
        let v = if corners {
            scaled(im, v, (size as f64 - 1.0) / 2.0)?
        } else {
            let v = scaled(im, v, size as f64 / 2.0)?;
            shifted(im, v, -0.5)?
        };
        let v = match padding {
            1 => {
                let (low, high) = (im.scalar(0.0)?, im.scalar(size as f64 - 1.0)?);
                let v = im.binary(BinaryFn::Max, v, low)?;
                im.binary(BinaryFn::Min, v, high)?
            }
            _ => v,
        };
        im.reshape(v, out[..3].to_vec())
    };
    let (across, down) = (part(im, 0, wide)?, part(im, 1, high)?);
    let mut sum: Option<ValueId> = None;
    let steps: &[(f64, f64)] = if mode == 0 {
        &[(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
    } else {
        &[(0.0, 0.0)]
    };
    for &(dy, dx) in steps {
        let (row, weight_y) = corner(im, down, dy, mode == 1)?;
        let (column, weight_x) = corner(im, across, dx, mode == 1)?;
        let (row, in_y) = inside(im, row, high)?;
        let (column, in_x) = inside(im, column, wide)?;
        let row = scaled(im, row, wide as f64)?;
        let place = im.binary(BinaryFn::Add, row, column)?;
        let place = im.cast(place, DType::I64)?;
        let weight = im.binary(BinaryFn::Mul, weight_y, weight_x)?;
        let within = im.binary(BinaryFn::And, in_y, in_x)?;
        let zero = im.scalar(0.0)?;
        let weight = im.select(within, weight, zero)?;
        let value = read_at(im, x, place, high * wide)?;
        let weight = im.unsqueeze(weight, 1)?;
        let term = im.binary(BinaryFn::Mul, value, weight)?;
        sum = Some(match sum {
            None => term,
            Some(before) => im.binary(BinaryFn::Add, before, term)?,
        });
    }
    let _ = shape;
    one(sum.map_or_else(|| unsupported("no corner"), Ok))
}

/// The whole place `step` after that below `v`, and its share; or the nearest, with all of it.
fn corner(im: &mut Importer<'_>, v: ValueId, step: f64, nearest: bool) -> Result<(ValueId, ValueId)> {
    if nearest {
        let one = im.scalar(1.0)?;
        let shape = im.shape(v);
        return Ok((im.unary(UnaryFn::Round, v)?, im.expand(one, shape)?));
    }
    let first = im.unary(UnaryFn::Floor, v)?;
    let part = im.binary(BinaryFn::Sub, v, first)?;
    let place = shifted(im, first, step)?;
    let share = match step == 0.0 {
        true => {
            let rest = im.unary(UnaryFn::Neg, part)?;
            shifted(im, rest, 1.0)?
        }
        false => part,
    };
    Ok((place, share))
}

/// A place as one of the axis, and whether it was one.
fn inside(im: &mut Importer<'_>, v: ValueId, size: usize) -> Result<(ValueId, ValueId)> {
    let (low, high) = (im.scalar(0.0)?, im.scalar(size as f64 - 1.0)?);
    let (above, below) = (im.compare(CompareFn::Ge, v, low)?, im.compare(CompareFn::Le, v, high)?);
    let within = im.binary(BinaryFn::And, above, below)?;
    let v = im.binary(BinaryFn::Max, v, low)?;
    Ok((im.binary(BinaryFn::Min, v, high)?, within))
}

/// Elements of `x` `[batch, channels, …]` at places `[batch, high, wide]`, the same for each channel.
fn read_at(im: &mut Importer<'_>, x: ValueId, place: ValueId, elements: usize) -> Result<ValueId> {
    let (shape, out) = (im.shape(x), im.shape(place));
    let (Some(high), Some(wide)) = (out[1].as_known(), out[2].as_known()) else {
        return unsupported("a grid read at a number of places that varies");
    };
    let flat = im.reshape(x, vec![shape[0].clone(), shape[1].clone(), Dim::known(elements)])?;
    let place = im.reshape(place, vec![out[0].clone(), Dim::known(1), Dim::known(high * wide)])?;
    let place = im.expand(place, vec![shape[0].clone(), shape[1].clone(), Dim::known(high * wide)])?;
    let y = im.op(Op::Gather { axis: 2 }, &[flat, place])?;
    im.reshape(
        y,
        vec![shape[0].clone(), shape[1].clone(), out[1].clone(), out[2].clone()],
    )
}
