//! Operations that move elements without changing them.

use super::elementwise::one;
use super::{Row, unsupported};
use crate::pt2::arguments::{Call, Number};
use crate::pt2::expression::Bounds as _;
use crate::pt2::importer::{Importer, invalid};
use crate::{Error, Result};
use cactus_ir::{BinaryFn, Dim, Literal, Op, ValueId, element_key};

pub(super) const ROWS: &[(&str, Row)] = &[
    ("clone", same),
    ("contiguous", same),
    ("alias", same),
    ("detach", same),
    ("lift_fresh_copy", same),
    ("dropout", |im, c| {
        c.ignore(&["p"]);
        eval_only(c)?;
        same_of(im, c, "input")
    }),
    ("native_dropout", |im, c| {
        c.ignore(&["p"]);
        eval_only(c)?;
        same_of(im, c, "input")
    }),
    ("feature_dropout", |im, c| {
        c.ignore(&["p"]);
        eval_only(c)?;
        same_of(im, c, "input")
    }),
    ("copy", copy),
    ("view", |im, c| reshape(im, c, "size")),
    ("_unsafe_view", |im, c| reshape(im, c, "size")),
    ("reshape", |im, c| reshape(im, c, "shape")),
    ("view_as", |im, c| {
        let (x, like) = (c.tensor("self")?, c.tensor("other")?);
        let s = im.shape(like);
        one(im.reshape(x, s))
    }),
    ("flatten.using_ints", flatten),
    ("unflatten.int", unflatten),
    ("transpose.int", transpose),
    ("t", |im, c| {
        let x = c.tensor("self")?;
        let n = im.rank(x);
        one(im.permute(x, (0..n).rev().collect()))
    }),
    ("numpy_T", |im, c| {
        let x = c.tensor("self")?;
        let n = im.rank(x);
        one(im.permute(x, (0..n).rev().collect()))
    }),
    ("mT", |im, c| {
        let x = c.tensor("self")?;
        let n = im.rank(x);
        swapped(im, x, n - 2, n - 1)
    }),
    ("permute", permute),
    ("movedim.int", |im, c| {
        let (from, to) = (c.integer("source", None)?, c.integer("destination", None)?);
        move_axis(im, c, from, to)
    }),
    ("unsqueeze", |im, c| {
        let x = c.tensor("self")?;
        let axis = im.axis(c.integer("dim", None)?, im.rank(x) + 1)?;
        one(im.unsqueeze(x, axis))
    }),
    ("squeeze", squeeze),
    ("squeeze.dim", squeeze),
    ("squeeze.dims", squeeze),
    ("expand", expand),
    ("expand_as", |im, c| {
        let (x, like) = (c.tensor("self")?, c.tensor("other")?);
        let s = im.shape(like);
        one(im.expand(x, s))
    }),
    ("broadcast_to", expand),
    ("broadcast_tensors", broadcast_tensors),
    ("slice.Tensor", slice),
    ("select.int", select),
    ("narrow", narrow),
    ("cat", concatenated),
    ("concat", concatenated),
    ("concatenate", concatenated),
    ("stack", stack),
    ("split.Tensor", split),
    ("split_with_sizes", split),
    ("split.sizes", split),
    ("chunk", chunk),
    ("unsafe_chunk", chunk),
    ("unbind.int", unbind),
    ("repeat", |im, c| repeat(im, c, "repeats")),
    ("tile", |im, c| repeat(im, c, "dims")),
    ("repeat_interleave.self_int", repeat_interleave),
    ("roll", roll),
    ("flip", flip),
    ("unfold", unfold),
    ("pixel_shuffle", pixel_shuffle),
    ("pixel_unshuffle", pixel_unshuffle),
    ("diff", diff),
    ("slice_scatter", slice_scatter),
    ("select_scatter", select_scatter),
    ("meshgrid.indexing", meshgrid),
    ("meshgrid", meshgrid),
];

fn same(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    same_of(im, call, "self")
}

fn same_of(_: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    Ok(vec![call.tensor(name)?])
}

fn eval_only(call: &Call) -> Result<()> {
    match call.flag("train", false)? {
        true => unsupported("the module was exported in training mode; call eval() on it first"),
        false => Ok(()),
    }
}

fn copy(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let (shape, dtype) = (im.shape(x), im.dtype(x));
    let source = im.cast(source, dtype)?;
    one(im.expand(source, shape))
}

/// Sizes with a -1 among them replaced by what is left of the elements of `x`.
pub(super) fn resolved(im: &Importer<'_>, x: ValueId, mut sizes: Vec<Dim>) -> Result<Vec<Dim>> {
    let Some(at) = sizes.iter().position(|d| d.as_integer() == Some(-1)) else {
        return Ok(sizes);
    };
    let (fixed, mut symbolic) = element_key(&im.shape(x)).map_err(invalid)?;
    let others: Vec<Dim> = sizes
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != at)
        .map(|(_, d)| d.clone())
        .collect();
    let (used, taken) = element_key(&others).map_err(invalid)?;
    let cannot = || Error::unsupported(format!("the size -1 of {} cannot be worked out", im.ty(x)));
    for d in taken {
        let i = symbolic.iter().position(|s| *s == d).ok_or_else(cannot)?;
        symbolic.remove(i);
    }
    if used == 0 || fixed % used != 0 {
        return Err(cannot());
    }
    sizes[at] = match &symbolic[..] {
        [] => Dim::known(fixed / used),
        [one] => one.times(fixed / used).map_err(invalid)?,
        _ => return Err(cannot()),
    };
    Ok(sizes)
}

fn concatenated(im: &mut Importer<'_>, c: &Call) -> Result<Vec<ValueId>> {
    let all = c.tensors("tensors")?;
    cat(im, c, &all)
}

fn reshape(im: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let sizes = call.sizes(name)?.unwrap_or_default();
    let sizes = resolved(im, x, sizes)?;
    one(im.reshape(x, sizes))
}

fn flatten(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let (start, end) = (call.integer("start_dim", Some(0))?, call.integer("end_dim", Some(-1))?);
    let mut shape = im.shape(x);
    if shape.is_empty() {
        return one(im.reshape(x, vec![Dim::known(1)]));
    }
    let (start, end) = (im.axis(start, shape.len())?, im.axis(end, shape.len())?);
    if start > end {
        return unsupported("axes to flatten in the wrong order");
    }
    shape.splice(start..=end, [Dim::integer(-1)]);
    let shape = resolved(im, x, shape)?;
    one(im.reshape(x, shape))
}

fn unflatten(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let mut shape = im.shape(x);
    let axis = im.axis(call.integer("dim", None)?, shape.len())?;
    shape.splice(axis..=axis, call.sizes("sizes")?.unwrap_or_default());
    let shape = resolved(im, x, shape)?;
    one(im.reshape(x, shape))
}

fn swapped(im: &mut Importer<'_>, x: ValueId, a: usize, b: usize) -> Result<Vec<ValueId>> {
    let mut perm: Vec<usize> = (0..im.rank(x)).collect();
    perm.swap(a, b);
    one(im.permute(x, perm))
}

fn transpose(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let rank = im.rank(x);
    let (a, b) = (
        im.axis(call.integer("dim0", None)?, rank)?,
        im.axis(call.integer("dim1", None)?, rank)?,
    );
    swapped(im, x, a, b)
}

fn permute(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let rank = im.rank(x);
    let dims = call.integers("dims")?.unwrap_or_default();
    let perm = dims.iter().map(|&d| im.axis(d, rank)).collect::<Result<Vec<_>>>()?;
    one(im.permute(x, perm))
}

fn move_axis(im: &mut Importer<'_>, call: &Call, from: i64, to: i64) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let rank = im.rank(x);
    let (from, to) = (im.axis(from, rank)?, im.axis(to, rank)?);
    let mut perm: Vec<usize> = (0..rank).filter(|&i| i != from).collect();
    perm.insert(to, from);
    one(im.permute(x, perm))
}

fn squeeze(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let shape = im.shape(x);
    let axes: Vec<usize> = match call.integers("dim")? {
        Some(dims) => dims.iter().map(|&d| im.axis(d, shape.len())).collect::<Result<_>>()?,
        None => (0..shape.len()).collect(),
    };
    let kept = |(i, d): &(usize, Dim)| !(axes.contains(i) && d.is(1));
    let shape = shape.into_iter().enumerate().filter(kept).map(|(_, d)| d).collect();
    one(im.reshape(x, shape))
}

fn expand(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let mut sizes = call.sizes("size")?.unwrap_or_default();
    let old = im.shape(x);
    let Some(added) = sizes.len().checked_sub(old.len()) else {
        return unsupported("an expansion to fewer axes");
    };
    for (size, old) in sizes[added..].iter_mut().zip(&old) {
        if size.as_integer() == Some(-1) {
            *size = old.clone();
        }
    }
    one(im.expand(x, sizes))
}

fn broadcast_tensors(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let all = call.tensors("tensors")?;
    let rank = all.iter().map(|&v| im.rank(v)).max().unwrap_or(0);
    let mut shape = vec![Dim::known(1); rank];
    for &v in &all {
        let own = im.shape(v);
        for (to, d) in shape[rank - own.len()..].iter_mut().zip(own) {
            if to.is(1) {
                *to = d;
            }
        }
    }
    all.into_iter().map(|v| im.expand(v, shape.clone())).collect()
}

/// A bound of a slice: counted from the end where it is negative, and not beyond it.
fn bound(size: &Dim, at: Dim) -> Result<Dim> {
    match (at.as_integer(), size.as_integer()) {
        (Some(n), Some(size)) => Ok(Dim::integer(if n < 0 { (size + n).max(0) } else { n.min(size) })),
        (Some(n), None) if n < 0 => size.add(&at).map_err(invalid),
        (Some(n), None) if n > i64::from(u32::MAX) => Ok(size.clone()),
        // Counted from the end, by a length: `x[-n:]`.
        (None, _) if is_negative(&at) => size.add(&at).map_err(invalid),
        _ => Ok(at),
    }
}

/// Whether a size of one symbol is negative for short sequences and long ones.
fn is_negative(d: &Dim) -> bool {
    let Some(symbol) = d.symbols().next().map(str::to_owned) else {
        return false;
    };
    let at = |n: i64| {
        d.substitute(&symbol, &Dim::integer(n))
            .ok()
            .and_then(|d| d.as_integer())
    };
    [1, 2, 1 << 20].into_iter().all(|n| at(n).is_some_and(|v| v < 0))
}

fn slice(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let shape = im.shape(x);
    let axis = im.axis(call.integer("dim", Some(0))?, shape.len())?;
    let start = bound(&shape[axis], call.size("start", Some(0))?)?;
    let end = bound(&shape[axis], call.size("end", Some(i64::MAX))?)?;
    let end = match (start.as_integer(), end.as_integer()) {
        (Some(s), Some(e)) if e < s => start.clone(),
        _ => end,
    };
    let step = call.integer("step", Some(1))?;
    if step == 1 {
        return one(im.slice(x, axis, start, end));
    }
    let (Some(start), Some(end), Ok(step)) = (start.as_known(), end.as_known(), usize::try_from(step)) else {
        return unsupported("a slice with a step over an axis that varies");
    };
    if step == 0 {
        return unsupported("a slice with step 0");
    }
    let ids = (start..end).step_by(step).map(|i| i as i64).collect();
    one(take(im, x, axis, ids))
}

/// Slices of `x` at fixed indices.
pub(super) fn take(im: &mut Importer<'_>, x: ValueId, axis: usize, ids: Vec<i64>) -> Result<ValueId> {
    let ids = im.b.literal(&[ids.len()], Literal::I64(ids)).map_err(invalid)?;
    im.op(Op::Take { axis }, &[x, ids])
}

fn at_index(im: &mut Importer<'_>, x: ValueId, axis: usize, index: Dim) -> Result<ValueId> {
    let mut shape = im.shape(x);
    let index = match index.as_integer() {
        Some(n) if n < 0 => shape[axis].add(&index).map_err(invalid)?,
        _ => index,
    };
    let end = index.add(&Dim::known(1)).map_err(invalid)?;
    let y = im.slice(x, axis, index, end)?;
    shape.remove(axis);
    im.reshape(y, shape)
}

fn select(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let index = call.size("index", None)?;
    one(at_index(im, x, axis, index))
}

fn narrow(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let shape = im.shape(x);
    let axis = im.axis(call.integer("dim", None)?, shape.len())?;
    let start = bound(&shape[axis], call.size("start", None)?)?;
    let end = start.add(&call.size("length", None)?).map_err(invalid)?;
    one(im.slice(x, axis, start, end))
}

fn cat(im: &mut Importer<'_>, call: &Call, all: &[ValueId]) -> Result<Vec<ValueId>> {
    // An empty list of one axis joins anything.
    let mut parts: Vec<ValueId> = all
        .iter()
        .copied()
        .filter(|&v| !(im.rank(v) == 1 && im.shape(v)[0].is(0)))
        .collect();
    let Some(&first) = parts.first() else {
        return unsupported("a concatenation of nothing");
    };
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(first))?;
    for i in 1..parts.len() {
        let (a, b) = im.promoted(parts[0], parts[i])?;
        parts[0] = a;
        parts[i] = b;
    }
    one(im.concat(&parts, axis))
}

fn stack(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let all = call.tensors("tensors")?;
    let Some(&first) = all.first() else {
        return unsupported("a stack of nothing");
    };
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(first) + 1)?;
    let parts = all
        .into_iter()
        .map(|v| im.unsqueeze(v, axis))
        .collect::<Result<Vec<_>>>()?;
    one(im.concat(&parts, axis))
}

/// Parts of these sizes along an axis.
fn parts(im: &mut Importer<'_>, x: ValueId, axis: usize, sizes: &[Dim]) -> Result<Vec<ValueId>> {
    let mut start = Dim::known(0);
    let mut out = Vec::new();
    for size in sizes {
        let end = start.add(size).map_err(invalid)?;
        out.push(im.slice(x, axis, start, end.clone())?);
        start = end;
    }
    Ok(out)
}

/// Sizes of parts of `each` elements, the last of what is left.
fn even(n: usize, each: usize) -> Result<Vec<Dim>> {
    if each == 0 || n.div_ceil(each) > 1 << 16 {
        return unsupported("parts without a size");
    }
    Ok((0..n.div_ceil(each))
        .map(|i| Dim::known(each.min(n - i * each)))
        .collect())
}

fn split(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(x))?;
    if let Some(sizes) = call.sizes("split_sizes")? {
        return parts(im, x, axis, &sizes);
    }
    if let Some(sizes) = call.sizes("split_size")?.filter(|s| s.len() != 1) {
        return parts(im, x, axis, &sizes);
    }
    let each = call.size("split_size", None)?;
    let size = im.shape(x)[axis].clone();
    match (size.as_known(), each.as_known()) {
        (Some(n), Some(each)) => {
            let sizes = even(n, each)?;
            parts(im, x, axis, &sizes)
        }
        _ => unsupported("a split of an axis that varies into equal parts"),
    }
}

fn chunk(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(x))?;
    let chunks = usize::try_from(call.integer("chunks", None)?).unwrap_or(0).max(1);
    match im.shape(x)[axis].as_known() {
        Some(n) => {
            let sizes = even(n, n.div_ceil(chunks).max(1))?;
            parts(im, x, axis, &sizes)
        }
        None => unsupported("chunks of an axis that varies"),
    }
}

fn unbind(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", Some(0))?, im.rank(x))?;
    let n = im.shape(x)[axis].as_known().filter(|&n| n <= 1 << 16);
    match n {
        Some(n) => (0..n).map(|i| at_index(im, x, axis, Dim::known(i))).collect(),
        None => unsupported("the parts of an axis that varies"),
    }
}

fn repeat(im: &mut Importer<'_>, call: &Call, name: &str) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    let mut repeats = call.sizes(name)?.unwrap_or_default();
    while repeats.len() < im.rank(x) {
        repeats.insert(0, Dim::known(1));
    }
    let mut shape = im.shape(x);
    while shape.len() < repeats.len() {
        shape.insert(0, Dim::known(1));
    }
    x = im.reshape(x, shape.clone())?;
    // [a, b] to [1, a, 1, b], broadcast, and merged again; axes that stay need no second one.
    let (mut narrow, mut wide, mut merged) = (Vec::new(), Vec::new(), Vec::new());
    for (size, times) in shape.iter().zip(&repeats) {
        if times.is(1) {
            narrow.push(size.clone());
            wide.push(size.clone());
            merged.push(size.clone());
            continue;
        }
        merged.push(match (size.as_integer(), times.as_integer()) {
            (Some(n), _) => times.times_integer(n).map_err(invalid)?,
            (_, Some(n)) => size.times_integer(n).map_err(invalid)?,
            _ => return unsupported("a size that varies repeated a number of times that varies"),
        });
        if !size.is(1) {
            narrow.push(Dim::known(1));
            wide.push(times.clone());
            narrow.push(size.clone());
            wide.push(size.clone());
        } else {
            narrow.push(size.clone());
            wide.push(times.clone());
        }
    }
    let x = im.reshape(x, narrow)?;
    let x = im.expand(x, wide)?;
    one(im.reshape(x, merged))
}

/// `x` with each index of `axis` `n` times in a row.
pub(super) fn repeated(im: &mut Importer<'_>, x: ValueId, axis: usize, n: usize) -> Result<ValueId> {
    let mut shape = im.shape(x);
    let y = im.unsqueeze(x, axis + 1)?;
    let mut wide = im.shape(y);
    wide[axis + 1] = Dim::known(n);
    let y = im.expand(y, wide)?;
    shape[axis] = shape[axis].times(n).map_err(invalid)?;
    im.reshape(y, shape)
}

fn repeat_interleave(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["output_size"]);
    let mut x = call.tensor("self")?;
    let n = usize::try_from(call.integer("repeats", None)?).unwrap_or(0);
    let axis = match call.optional_integer("dim")? {
        Some(axis) => im.axis(axis, im.rank(x))?,
        None => {
            let flat = resolved(im, x, vec![Dim::integer(-1)])?;
            x = im.reshape(x, flat)?;
            0
        }
    };
    one(repeated(im, x, axis, n))
}

fn roll(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    let (shifts, dims) = (
        call.integers("shifts")?.unwrap_or_default(),
        call.integers("dims")?.unwrap_or_default(),
    );
    if dims.len() != shifts.len() {
        return unsupported("a roll of the flattened tensor");
    }
    for (shift, dim) in shifts.into_iter().zip(dims) {
        let axis = im.axis(dim, im.rank(x))?;
        let size = im.shape(x)[axis].clone();
        let cut = match size.as_integer() {
            Some(0) => continue,
            Some(n) => Dim::integer((-shift).rem_euclid(n)),
            None if shift >= 0 => size.sub(&Dim::integer(shift)).map_err(invalid)?,
            None => Dim::integer(-shift),
        };
        if cut.is(0) {
            continue;
        }
        let tail = im.slice(x, axis, cut.clone(), size)?;
        let head = im.slice(x, axis, Dim::known(0), cut)?;
        x = im.concat(&[tail, head], axis)?;
    }
    Ok(vec![x])
}

fn flip(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    for dim in call.integers("dims")?.unwrap_or_default() {
        let axis = im.axis(dim, im.rank(x))?;
        let size = im.shape(x)[axis].clone();
        // size - 1 - i
        let last = size.sub(&Dim::known(1)).map_err(invalid)?;
        let last = im.number(&Number::Size(last))?;
        let ids = im.b.iota(0usize, size).map_err(invalid)?;
        let ids = im.binary(BinaryFn::Sub, last, ids)?;
        x = im.op(Op::Take { axis }, &[x, ids])?;
    }
    Ok(vec![x])
}

fn unfold(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let axis = im.axis(call.integer("dimension", None)?, im.rank(x))?;
    let positive = |n: i64| usize::try_from(n).ok().filter(|&n| n > 0);
    let (size, step) = (
        positive(call.integer("size", None)?),
        positive(call.integer("step", None)?),
    );
    let (Some(size), Some(step)) = (size, step) else {
        return unsupported("windows without a size or a step");
    };
    let room = im.shape(x)[axis].sub(&Dim::known(size)).map_err(invalid)?;
    match room.as_integer() {
        Some(n) if n < 0 => return unsupported("a window larger than the axis"),
        Some(_) => {}
        None => im.require(room.clone()),
    }
    let count = room
        .floor_div(step)
        .and_then(|n| n.add(&Dim::known(1)))
        .map_err(invalid)?;
    // w * step + i
    let first = im.b.iota(0usize, count.clone()).map_err(invalid)?;
    let step = im.number(&Number::Size(Dim::known(step)))?;
    let first = im.binary(BinaryFn::Mul, first, step)?;
    let first = im.reshape(first, vec![count, Dim::known(1)])?;
    let within = im.b.iota(0usize, size).map_err(invalid)?;
    let ids = im.binary(BinaryFn::Add, first, within)?;
    let y = im.op(Op::Take { axis }, &[x, ids])?;
    // The window becomes the last axis.
    let rank = im.rank(y);
    let mut perm: Vec<usize> = (0..rank).filter(|&i| i != axis + 1).collect();
    perm.push(axis + 1);
    one(im.permute(y, perm))
}

fn pixel_shuffle(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let r = usize::try_from(call.integer("upscale_factor", None)?)
        .unwrap_or(0)
        .max(1);
    let shape = im.shape(x);
    let [lead @ .., channels, h, w] = &shape[..] else {
        return unsupported("pixels of a tensor without channels");
    };
    let Some(channels) = channels.as_known().filter(|c| c.is_multiple_of(r.saturating_mul(r))) else {
        return unsupported("pixels of channels that cannot be divided");
    };
    let (lead, h, w) = (lead.to_vec(), h.clone(), w.clone());
    let n = lead.len();
    let split = [
        lead.clone(),
        vec![Dim::known(channels / (r * r)), r.into(), r.into(), h.clone(), w.clone()],
    ]
    .concat();
    let y = im.reshape(x, split)?;
    let mut perm: Vec<usize> = (0..n).collect();
    perm.extend([n, n + 3, n + 1, n + 4, n + 2]);
    let y = im.permute(y, perm)?;
    let (h, w) = (h.times(r).map_err(invalid)?, w.times(r).map_err(invalid)?);
    one(im.reshape(y, [lead, vec![Dim::known(channels / (r * r)), h, w]].concat()))
}

fn pixel_unshuffle(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let r = usize::try_from(call.integer("downscale_factor", None)?)
        .unwrap_or(0)
        .max(1);
    let shape = im.fixed(x)?;
    let n = shape.len() - 3;
    let (lead, c, h, w) = (shape[..n].to_vec(), shape[n], shape[n + 1] / r, shape[n + 2] / r);
    let dims = |v: &[usize]| v.iter().map(|&d| Dim::known(d)).collect::<Vec<_>>();
    let y = im.reshape(x, dims(&[&lead[..], &[c, h, r, w, r]].concat()))?;
    let mut perm: Vec<usize> = (0..n).collect();
    perm.extend([n, n + 2, n + 4, n + 1, n + 3]);
    let y = im.permute(y, perm)?;
    one(im.reshape(y, dims(&[&lead[..], &[c * r * r, h, w]].concat())))
}

fn diff(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    let axis = im.axis(call.integer("dim", Some(-1))?, im.rank(x))?;
    let times = call.integer("n", Some(1))?;
    let (before, after) = (call.optional("prepend")?, call.optional("append")?);
    let parts: Vec<ValueId> = before.into_iter().chain([x]).chain(after).collect();
    x = im.concat(&parts, axis)?;
    for _ in 0..times.clamp(0, 8) {
        let size = im.shape(x)[axis].clone();
        let last = size.sub(&Dim::known(1)).map_err(invalid)?;
        let next = im.slice(x, axis, Dim::known(1), size)?;
        let this = im.slice(x, axis, Dim::known(0), last)?;
        x = im.binary(BinaryFn::Sub, next, this)?;
    }
    Ok(vec![x])
}

/// `x` with the elements `start..end` of an axis replaced.
fn replaced(im: &mut Importer<'_>, x: ValueId, axis: usize, start: Dim, end: Dim, by: ValueId) -> Result<ValueId> {
    let size = im.shape(x)[axis].clone();
    let mut parts = Vec::new();
    if !start.is(0) {
        parts.push(im.slice(x, axis, Dim::known(0), start)?);
    }
    parts.push(by);
    if end != size {
        parts.push(im.slice(x, axis, end, size)?);
    }
    im.concat(&parts, axis)
}

fn slice_scatter(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let shape = im.shape(x);
    let axis = im.axis(call.integer("dim", Some(0))?, shape.len())?;
    let start = bound(&shape[axis], call.size("start", Some(0))?)?;
    let end = bound(&shape[axis], call.size("end", Some(i64::MAX))?)?;
    let step = call.integer("step", Some(1))?;
    if step != 1 {
        let (Some(start), Some(end), Ok(step)) = (start.as_known(), end.as_known(), usize::try_from(step)) else {
            return unsupported("a slice with a step over an axis that varies");
        };
        let ids: Vec<i64> = (start..end).step_by(step.max(1)).map(|i| i as i64).collect();
        let mut part = shape;
        part[axis] = Dim::known(ids.len());
        let count = ids.len();
        let ids = im.b.literal(&[count], Literal::I64(ids)).map_err(invalid)?;
        let source = im.expand(source, part)?;
        return one(super::index::placed(im, x, axis, ids, source, false));
    }
    let mut part = shape;
    part[axis] = end.sub(&start).map_err(invalid)?;
    let source = im.expand(source, part)?;
    one(replaced(im, x, axis, start, end, source))
}

fn select_scatter(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let shape = im.shape(x);
    let axis = im.axis(call.integer("dim", None)?, shape.len())?;
    let index = bound(&shape[axis], call.size("index", None)?)?;
    let end = index.add(&Dim::known(1)).map_err(invalid)?;
    let source = im.unsqueeze(source, axis)?;
    one(replaced(im, x, axis, index, end, source))
}

fn meshgrid(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let all = call.tensors("tensors")?;
    let xy = call.text("indexing", "ij")? == "xy" && all.len() >= 2;
    let n = all.len();
    let sizes: Vec<Dim> = all
        .iter()
        .map(|&v| im.shape(v).first().cloned().unwrap_or_else(|| Dim::known(1)))
        .collect();
    let place = |i: usize| match (xy, i) {
        (true, 0) => 1,
        (true, 1) => 0,
        _ => i,
    };
    let mut grid = vec![Dim::known(1); n];
    for (i, size) in sizes.iter().enumerate() {
        grid[place(i)] = size.clone();
    }
    let mut out = Vec::new();
    for (i, v) in all.into_iter().enumerate() {
        let mut shape = vec![Dim::known(1); n];
        shape[place(i)] = sizes[i].clone();
        let v = im.reshape(v, shape)?;
        out.push(im.expand(v, grid.clone())?);
    }
    Ok(out)
}
