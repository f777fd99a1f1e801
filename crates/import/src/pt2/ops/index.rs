//! Elements picked and placed by index.

use super::elementwise::one;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::{Call, Number};
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, CompareFn, Dim, Op, ReduceFn, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("embedding", |im, c| {
        c.ignore(&["padding_idx", "scale_grad_by_freq", "sparse"]);
        let (table, ids) = (c.tensor("weight")?, c.tensor("indices")?);
        one(im.op(Op::Embedding, &[table, ids]))
    }),
    ("index.Tensor", index),
    ("index_select", |im, c| {
        let (x, ids) = (c.tensor("self")?, c.tensor("index")?);
        let axis = im.axis(c.integer("dim", None)?, im.rank(x))?;
        one(im.op(Op::Take { axis }, &[x, ids]))
    }),
    ("gather", |im, c| {
        c.ignore(&["sparse_grad"]);
        let (x, ids) = (c.tensor("self")?, c.tensor("index")?);
        let axis = im.axis(c.integer("dim", None)?, im.rank(x))?;
        one(im.op(Op::Gather { axis }, &[x, ids]))
    }),
    ("take_along_dim", |im, c| {
        let (x, ids) = (c.tensor("self")?, c.tensor("indices")?);
        let axis = im.axis(c.integer("dim", None)?, im.rank(x))?;
        one(im.op(Op::Gather { axis }, &[x, ids]))
    }),
    ("scatter.src", |im, c| scatter(im, c, false)),
    ("scatter.value", |im, c| scatter(im, c, false)),
    ("scatter_add", |im, c| scatter(im, c, true)),
    ("index_copy", |im, c| place_slices(im, c, "source", false)),
    ("index_add", |im, c| place_slices(im, c, "source", true)),
    ("index_put", index_put),
    ("one_hot", one_hot),
    ("bucketize.Tensor", bucketize),
];

/// Indices that may count from the end, as ones that do not.
fn from_start(im: &mut Importer<'_>, ids: ValueId, size: &Dim) -> Result<ValueId> {
    if let cactus_ir::Def::Literal(cactus_ir::Literal::I64(v)) = &im.b.graph().value(ids).def
        && v.iter().all(|&i| i >= 0)
    {
        return Ok(ids);
    }
    if made_of_positions(im, ids) {
        return Ok(ids);
    }
    let zero = im.scalar_of(0.0, DType::I64)?;
    let negative = im.compare(CompareFn::Lt, ids, zero)?;
    let size = im.number(&Number::Size(size.clone()))?;
    let wrapped = im.binary(BinaryFn::Add, ids, size)?;
    im.select(negative, wrapped, ids)
}

/// Whether a value is positions from a start that is not negative, with axes moved.
fn made_of_positions(im: &Importer<'_>, mut v: ValueId) -> bool {
    while let Some((_, node)) = im.b.graph().producer(v) {
        match &node.op {
            Op::Iota { start, .. } => return start.as_known().is_some(),
            Op::Reshape { .. } | Op::Expand { .. } | Op::Permute { .. } | Op::Slice { .. } => v = node.inputs[0],
            // Shifted to later positions.
            Op::Binary { f: BinaryFn::Add } => match &im.b.graph().value(node.inputs[1]).def {
                cactus_ir::Def::Literal(cactus_ir::Literal::I64(by)) if by.iter().all(|&n| n >= 0) => {
                    v = node.inputs[0]
                }
                _ => return false,
            },
            _ => return false,
        }
    }
    false
}

fn index(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    let indices = call.optional_tensors("indices")?;
    let given: Vec<(usize, ValueId)> = indices
        .into_iter()
        .enumerate()
        .filter_map(|(i, v)| Some((i, v?)))
        .collect();
    let (Some(&(first, _)), Some(&(last, _))) = (given.first(), given.last()) else {
        return Ok(vec![x]);
    };
    if given.iter().any(|&(_, v)| im.dtype(v) == DType::Bool) {
        return unsupported("a boolean mask as index: the number of results depends on data; use torch.where");
    }
    if last - first + 1 != given.len() {
        return unsupported("indices of axes that are not neighbors");
    }
    let shape = im.shape(x);
    if last >= shape.len() {
        return unsupported("more indices than axes");
    }
    // Positions along an axis of size 1 can only be 0: that axis needs no index, its result is broadcast.
    let mut joined: Option<ValueId> = None;
    let mut broadcast: Vec<Dim> = Vec::new();
    for &(axis, ids) in &given {
        broadcast = wider(im, &broadcast, &im.shape(ids))?;
        if shape[axis].is(1) && given.len() > 1 {
            continue;
        }
        let ids = from_start(im, ids, &shape[axis])?;
        joined = Some(match joined {
            None => ids,
            Some(before) => {
                let size = im.number(&Number::Size(shape[axis].clone()))?;
                let scaled = im.binary(BinaryFn::Mul, before, size)?;
                im.binary(BinaryFn::Add, scaled, ids)?
            }
        });
    }
    let ids = match joined {
        Some(ids) => ids,
        None => im.scalar_of(0.0, DType::I64)?,
    };
    // The axes indexed become one.
    let mut flat = shape.clone();
    let merged = shape[first..=last]
        .iter()
        .try_fold(Dim::known(1), |a, d| match (a.as_integer(), d.as_integer()) {
            (Some(n), _) => d.times_integer(n).map_err(invalid),
            (_, Some(n)) => a.times_integer(n).map_err(invalid),
            _ => unsupported("indices of several axes that vary"),
        })?;
    flat.splice(first..=last, [merged]);
    x = im.reshape(x, flat)?;
    let own = im.rank(ids);
    let y = im.op(Op::Take { axis: first }, &[x, ids])?;
    // Indices that were broadcast against each other.
    let mut wide = im.shape(y);
    if own < broadcast.len() || im.shape(ids) != broadcast {
        let mut narrow = wide.clone();
        let added = broadcast.len() - own;
        narrow.splice(first..first, std::iter::repeat_n(Dim::known(1), added));
        wide = narrow.clone();
        wide.splice(first..first + broadcast.len(), broadcast.iter().cloned());
        let y = im.reshape(y, narrow)?;
        return one(im.expand(y, wide));
    }
    Ok(vec![y])
}

fn wider(_: &Importer<'_>, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| {
        (i + s.len())
            .checked_sub(rank)
            .map_or_else(|| Dim::known(1), |j| s[j].clone())
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y.is(1) => Ok(x),
            (x, y) if x.is(1) => Ok(y),
            (x, y) => unsupported(format!("indices of {x} and {y} elements")),
        })
        .collect()
}

fn scatter(im: &mut Importer<'_>, call: &Call, add: bool) -> Result<Vec<ValueId>> {
    let (x, ids) = (call.tensor("self")?, call.tensor("index")?);
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    let (shape, dtype) = (im.shape(ids), im.dtype(x));
    let updates = match call.is_tensor("src") {
        true => {
            let source = call.tensor("src")?;
            // Only what the indices reach is read.
            let mut source = source;
            for (i, d) in shape.iter().enumerate() {
                source = im.slice(source, i, Dim::known(0), d.clone())?;
            }
            source
        }
        false => {
            let value = im.tensor_or_number(call, "value")?;
            let value = im.cast(value, dtype)?;
            im.expand(value, shape)?
        }
    };
    if dtype != DType::Bool {
        return one(im.op(Op::Scatter { axis, add }, &[x, ids, updates]));
    }
    // Truth values by way of integers, which have kernels.
    let (x, updates) = (im.cast(x, DType::I64)?, im.cast(updates, DType::I64)?);
    let y = im.op(Op::Scatter { axis, add }, &[x, ids, updates])?;
    one(im.cast(y, DType::Bool))
}

/// Slices of `self` along an axis replaced by, or increased by, those of another tensor.
fn place_slices(im: &mut Importer<'_>, call: &Call, source: &str, add: bool) -> Result<Vec<ValueId>> {
    let (x, ids, source) = (call.tensor("self")?, call.tensor("index")?, call.tensor(source)?);
    if call.float("alpha", Some(1.0))? != 1.0 {
        return unsupported("a factor `alpha` other than 1");
    }
    let axis = im.axis(call.integer("dim", None)?, im.rank(x))?;
    one(placed(im, x, axis, ids, source, add))
}

pub(super) fn placed(
    im: &mut Importer<'_>,
    x: ValueId,
    axis: usize,
    ids: ValueId,
    source: ValueId,
    add: bool,
) -> Result<ValueId> {
    let shape = im.shape(source);
    let mut narrow = vec![Dim::known(1); shape.len()];
    narrow[axis] = shape[axis].clone();
    let ids = im.reshape(ids, narrow)?;
    let ids = im.expand(ids, shape)?;
    im.op(Op::Scatter { axis, add }, &[x, ids, source])
}

fn index_put(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, values) = (call.tensor("self")?, call.tensor("values")?);
    let add = call.flag("accumulate", false)?;
    let indices = call.optional_tensors("indices")?;
    let given: Vec<(usize, ValueId)> = indices
        .into_iter()
        .enumerate()
        .filter_map(|(i, v)| Some((i, v?)))
        .collect();
    let shape = im.shape(x);
    match given[..] {
        // A mask: the same as where, where one value is put everywhere.
        [(0, mask)] if im.dtype(mask) == DType::Bool && im.rank(values) == 0 && !add => {
            let mut wide = im.shape(mask);
            wide.resize(shape.len(), Dim::known(1));
            let mask = im.reshape(mask, wide)?;
            one(im.select(mask, values, x))
        }
        [(axis, ids)] if im.dtype(ids) == DType::I64 && im.rank(ids) == 1 => {
            let mut part = shape.clone();
            part[axis] = im.shape(ids)[0].clone();
            let ids = from_start(im, ids, &shape[axis])?;
            let values = im.expand(values, part)?;
            one(placed(im, x, axis, ids, values, add))
        }
        _ => unsupported("values put at these indices; only one index of one axis, or a mask with one value"),
    }
}

fn one_hot(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let Ok(classes) = usize::try_from(call.integer("num_classes", None)?) else {
        return unsupported("a number of classes that depends on data");
    };
    let rank = im.rank(x);
    let x = im.unsqueeze(x, rank)?;
    let all = im.b.iota(0usize, classes).map_err(invalid)?;
    let is = im.compare(CompareFn::Eq, x, all)?;
    one(im.cast(is, DType::I64))
}

/// For each element, how many boundaries are below it.
fn bucketize(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    call.ignore(&["out_int32"]);
    let (x, bounds) = (call.tensor("self")?, call.tensor("boundaries")?);
    let f = if call.flag("right", false)? {
        CompareFn::Le
    } else {
        CompareFn::Lt
    };
    let rank = im.rank(x);
    let x = im.unsqueeze(x, rank)?;
    let (bounds, x) = im.promoted(bounds, x)?;
    let below = im.compare(f, bounds, x)?;
    let below = im.cast(below, DType::I64)?;
    one(im.reduce(ReduceFn::Sum, below, &[rank], false))
}
