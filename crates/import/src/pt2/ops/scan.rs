//! Running results along an axis, in as many steps as the length has binary digits; and what counts or gathers by value.

use super::elementwise::{one, with};
use super::inverse::log_add;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, CompareFn, Dim, Op, ReduceFn, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("cumprod", |im, c| {
        let x = c.tensor("self")?;
        let x = match c.dtype("dtype")? {
            Some(dtype) => im.cast(x, dtype)?,
            None if im.dtype(x) == DType::Bool => im.cast(x, DType::I64)?,
            None => x,
        };
        running(im, c, vec![(x, 1.0)], |im, a, b| {
            Ok(vec![im.binary(BinaryFn::Mul, a[0], b[0])?])
        })
    }),
    ("logcumsumexp", |im, c| {
        let x = c.tensor("self")?;
        running(im, c, vec![(x, f64::NEG_INFINITY)], |im, a, b| {
            Ok(vec![log_add(im, a[0], b[0])?])
        })
    }),
    ("cummax", |im, c| extreme(im, c, CompareFn::Ge, f64::NEG_INFINITY)),
    ("cummin", |im, c| extreme(im, c, CompareFn::Le, f64::INFINITY)),
    ("histc", histogram),
    ("masked_scatter", masked_scatter),
    ("scatter_reduce.two", scatter_reduce),
    ("embedding_bag.padding_idx", bags),
    ("embedding_bag", bags),
    ("_embedding_bag", bags),
    ("_embedding_bag_forward_only", bags),
];

/// Joins every element with all before it: with the one before, then the one two before, four before. Operands come with
/// what stands before the first element.
fn running(
    im: &mut Importer<'_>,
    call: &Call,
    operands: Vec<(ValueId, f64)>,
    join: impl Fn(&mut Importer<'_>, &[ValueId], &[ValueId]) -> Result<Vec<ValueId>>,
) -> Result<Vec<ValueId>> {
    let (mut values, before): (Vec<ValueId>, Vec<f64>) = operands.into_iter().unzip();
    let rank = im.rank(values[0]);
    if rank == 0 {
        return Ok(values);
    }
    let axis = im.axis(call.integer("dim", None)?, rank)?;
    let Some(count) = im.shape(values[0])[axis].as_known() else {
        return unsupported("a running product, largest or sum of powers along an axis that varies");
    };
    let mut step = 1;
    while step < count {
        let mut shifted = Vec::new();
        for (&x, &fill) in values.iter().zip(&before) {
            let mut shape = im.shape(x);
            shape[axis] = Dim::known(step);
            let dtype = im.dtype(x);
            let fill = im.scalar_of(fill, dtype)?;
            let fill = im.expand(fill, shape)?;
            let rest = im.slice(x, axis, Dim::known(0), Dim::known(count - step))?;
            shifted.push(im.concat(&[fill, rest], axis)?);
        }
        values = join(im, &values, &shifted)?;
        step *= 2;
    }
    Ok(values)
}

/// The largest (or smallest) so far and where it is; of several that are equal, the last.
fn extreme(im: &mut Importer<'_>, call: &Call, keeps: CompareFn, before: f64) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    if im.dtype(x) != DType::F32 {
        return unsupported("a running largest or smallest of integers");
    }
    let rank = im.rank(x);
    let axis = if rank == 0 {
        0
    } else {
        im.axis(call.integer("dim", None)?, rank)?
    };
    let shape = im.shape(x);
    let Some(count) = shape.get(axis).map_or(Some(1), Dim::as_known) else {
        return unsupported("a running largest or smallest along an axis that varies");
    };
    let places = im.b.iota(0usize, count).map_err(invalid)?;
    let mut narrow = vec![Dim::known(1); rank];
    if let Some(slot) = narrow.get_mut(axis) {
        *slot = Dim::known(count);
    }
    let places = im.reshape(places, narrow)?;
    let places = im.expand(places, shape)?;
    running(im, call, vec![(x, before), (places, 0.0)], |im, a, b| {
        let stays = im.compare(keeps, a[0], b[0])?;
        Ok(vec![im.select(stays, a[0], b[0])?, im.select(stays, a[1], b[1])?])
    })
}

/// How many elements fall into each of some bins.
fn histogram(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let bins = usize::try_from(call.integer("bins", Some(100))?).unwrap_or(0);
    let (low, high) = (call.float("min", Some(0.0))?, call.float("max", Some(0.0))?);
    if bins == 0 || low >= high {
        return unsupported("a histogram whose ends depend on data; give min and max");
    }
    with(im, call, |im, x| {
        let count =
            cactus_tensor::element_count(&im.fixed(x)?).map_err(|e| crate::Error::unsupported(e.to_string()))?;
        let x = im.reshape(x, vec![Dim::known(count), Dim::known(1)])?;
        let (least, most) = (im.scalar(low)?, im.scalar(high)?);
        let y = im.binary(BinaryFn::Sub, x, least)?;
        let y = super::elementwise::scaled(im, y, bins as f64 / (high - low))?;
        let y = im.unary(cactus_ir::UnaryFn::Floor, y)?;
        // The last bin has its end, too.
        let (last, at_end) = (im.scalar(bins as f64 - 1.0)?, im.compare(CompareFn::Eq, x, most)?);
        let y = im.select(at_end, last, y)?;
        let all = im.b.iota(0usize, bins).map_err(invalid)?;
        let all = im.float(all)?;
        let falls = im.compare(CompareFn::Eq, y, all)?;
        let falls = im.float(falls)?;
        im.reduce(ReduceFn::Sum, falls, &[0], false)
    })
}

/// The n-th place that the mask has takes the n-th element of the source.
fn masked_scatter(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, mask, source) = (call.tensor("self")?, call.tensor("mask")?, call.tensor("source")?);
    let shape = im.shape(x);
    let elements = |shape: &[Dim]| {
        shape
            .iter()
            .try_fold(Dim::known(1), |a, d| match (a.as_integer(), d.as_integer()) {
                (Some(n), _) => d.times_integer(n).map_err(invalid),
                (_, Some(n)) => a.times_integer(n).map_err(invalid),
                _ => unsupported("a mask of several axes that vary"),
            })
    };
    let (all, given) = (elements(&shape)?, elements(&im.shape(source))?);
    let Some(given) = given.as_integer().filter(|&n| n > 0) else {
        return unsupported("a source whose size varies");
    };
    let mask = im.expand(mask, shape.clone())?;
    let flat = im.reshape(mask, vec![all])?;
    let flat = im.cast(flat, DType::I64)?;
    let nth = im.op(Op::CumSum { axis: 0 }, &[flat])?;
    let (minus, zero) = (im.scalar_of(-1.0, DType::I64)?, im.scalar_of(0.0, DType::I64)?);
    let last = im.b.scalar_i64(given - 1).map_err(invalid)?;
    let nth = im.binary(BinaryFn::Add, nth, minus)?;
    let nth = im.binary(BinaryFn::Max, nth, zero)?;
    let nth = im.binary(BinaryFn::Min, nth, last)?;
    let source = im.reshape(source, vec![Dim::integer(given)])?;
    let taken = im.op(Op::Take { axis: 0 }, &[source, nth])?;
    let taken = im.reshape(taken, shape)?;
    one(im.select(mask, taken, x))
}

/// Sums and means of what is placed at an index.
fn scatter_reduce(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, ids, source) = (call.tensor("self")?, call.tensor("index")?, call.tensor("src")?);
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let how = call.text("reduce", "")?.to_owned();
    let included = call.flag("include_self", true)?;
    if how == "amax" || how == "amin" {
        return scatter_extreme(im, [x, ids, source], axis, how == "amax", included);
    }
    if how != "sum" && how != "mean" {
        return unsupported(format!(
            "scatter_reduce by `{how}`; `sum`, `mean`, `amax` and `amin` are supported"
        ));
    }
    if im.rank(source) != im.rank(ids) {
        return unsupported("indices and what is placed at them of other axes");
    }
    let (shape, dtype) = (im.shape(ids), im.dtype(x));
    let mut updates = source;
    for (i, d) in shape.iter().enumerate() {
        updates = im.slice(updates, i, Dim::known(0), d.clone())?;
    }
    let scattered =
        |im: &mut Importer<'_>, x: ValueId, v: ValueId, add: bool| im.op(Op::Scatter { axis, add }, &[x, ids, v]);
    let filled = |im: &mut Importer<'_>, v: f64, like: ValueId| {
        let (v, shape) = (im.scalar_of(v, dtype)?, im.shape(like));
        im.expand(v, shape)
    };
    let zeros = filled(im, 0.0, updates)?;
    let begun = if included { x } else { scattered(im, x, zeros, false)? };
    let sum = scattered(im, begun, updates, true)?;
    if how == "sum" {
        return Ok(vec![sum]);
    }
    let (ones, own) = (
        filled(im, 1.0, updates)?,
        filled(im, if included { 1.0 } else { 0.0 }, x)?,
    );
    let count = scattered(im, own, ones, true)?;
    let least = im.scalar_of(1.0, dtype)?;
    let count = im.binary(BinaryFn::Max, count, least)?;
    let f = if dtype == DType::F32 {
        BinaryFn::Div
    } else {
        BinaryFn::FloorDiv
    };
    one(im.binary(f, sum, count))
}

/// The largest or smallest of what is placed at an index: every element beside every place.
fn scatter_extreme(
    im: &mut Importer<'_>,
    [x, ids, source]: [ValueId; 3],
    axis: usize,
    largest: bool,
    included: bool,
) -> Result<Vec<ValueId>> {
    let (all, shape) = (im.shape(x), im.shape(ids));
    let others = |shape: &[Dim]| [&shape[..axis], &shape[axis + 1..]].concat();
    if im.dtype(x) != DType::F32 || im.shape(source) != shape || others(&shape) != others(&all) {
        return unsupported("the largest or smallest at an index of integers, or of a part of the other axes");
    }
    let (f, join, nothing) = match largest {
        true => (ReduceFn::Max, BinaryFn::Max, f64::NEG_INFINITY),
        false => (ReduceFn::Min, BinaryFn::Min, f64::INFINITY),
    };
    // [.., elements, ..] to [.., elements, 1, ..] beside [.., 1, places, ..].
    let (ids, source) = (im.unsqueeze(ids, axis + 1)?, im.unsqueeze(source, axis + 1)?);
    let places = im.b.iota(0usize, all[axis].clone()).map_err(invalid)?;
    let mut beside = vec![Dim::known(1); all.len() + 1];
    beside[axis + 1] = all[axis].clone();
    let places = im.reshape(places, beside)?;
    let here = im.compare(CompareFn::Eq, ids, places)?;
    let nothing = im.scalar(nothing)?;
    let placed = im.select(here, source, nothing)?;
    let found = im.reduce(f, placed, &[axis], false)?;
    if included {
        return one(im.binary(join, found, x));
    }
    let here = im.float(here)?;
    let count = im.reduce(ReduceFn::Sum, here, &[axis], false)?;
    let zero = im.scalar(0.0)?;
    let any = im.compare(CompareFn::Gt, count, zero)?;
    one(im.select(any, found, x))
}

/// Rows of a table, joined by bag: position `p` is in bag `b` where `offsets[b] <= p < offsets[b + 1]`.
fn bags(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["scale_grad_by_freq", "sparse"]);
    let (table, ids, offsets) = (call.tensor("weight")?, call.tensor("indices")?, call.tensor("offsets")?);
    let mode = call.integer("mode", Some(0))?;
    let weights = call.optional("per_sample_weights")?;
    let padding = call.optional_integer("padding_idx")?.filter(|&p| p >= 0);
    if call.flag("include_last_offset", false)? {
        return unsupported("bags whose last offset is the end");
    }
    if (im.rank(ids), im.rank(offsets)) != (1, 1) {
        return unsupported("bags whose indices or offsets are not a vector");
    }
    let rows = im.op(Op::Embedding, &[table, ids])?;
    let (count, bags) = (im.shape(ids)[0].clone(), im.shape(offsets)[0].clone());
    let places = im.b.iota(0usize, count.clone()).map_err(invalid)?;
    let starts = im.reshape(offsets, vec![bags, Dim::known(1)])?;
    // The bag of a position is the last that begins before it.
    let begun = im.compare(CompareFn::Le, starts, places)?;
    let begun = im.cast(begun, DType::I64)?;
    let bag = im.reduce(ReduceFn::Sum, begun, &[0], true)?;
    let all = im.shape(begun)[0].clone();
    let numbers = im.b.iota(1usize, all.clone()).map_err(invalid)?;
    let numbers = im.reshape(numbers, vec![all, Dim::known(1)])?;
    let mut member = im.compare(CompareFn::Eq, bag, numbers)?;
    if let Some(padding) = padding {
        let padding = im.b.scalar_i64(padding).map_err(invalid)?;
        let counts = im.compare(CompareFn::Ne, ids, padding)?;
        member = im.binary(BinaryFn::And, member, counts)?;
    }
    let joined = match mode {
        0 | 1 => {
            let mut share = im.float(member)?;
            let sizes = im.reduce(ReduceFn::Sum, share, &[1], true)?;
            if let Some(weights) = weights {
                share = im.binary(BinaryFn::Mul, share, weights)?;
            }
            let sum = im.op(Op::MatMul, &[share, rows])?;
            match mode {
                0 => sum,
                _ => {
                    let least = im.scalar(1.0)?;
                    let sizes = im.binary(BinaryFn::Max, sizes, least)?;
                    im.binary(BinaryFn::Div, sum, sizes)?
                }
            }
        }
        _ => return unsupported("the largest of a bag of embeddings; sums and means are supported"),
    };
    Ok(vec![joined])
}
