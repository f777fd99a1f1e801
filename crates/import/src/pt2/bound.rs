//! A program with the weights of a folder: `cactus convert` packed them by name, the program says what they are for.
//!
//! Purpose: the folder's tensors in the place of the archive's, so that what the passes read of them is what will be
//! computed with. A packed matrix that the graph reads as it is goes into the new bundle byte for byte; what the graph
//! changes first is decoded. Names and shapes must fit; it guesses no name but for what stands before all of them.

use super::tensors::Pt2Tensors;
use crate::convert::{self, ConvertOptions, Planned, TensorError};
use crate::weights::WEIGHTS_TASK;
use crate::{Calibration, Error, ErrorKind, Result};
use cactus_bundle::{Bundle, BundleWriter, Weight};
use cactus_ir::WeightExpr;
use cactus_quant::{BLOCK_ROWS, Packing};
use cactus_tensor::{Data, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Names that an error lists.
const SHOWN: usize = 4;

/// A folder of `cactus convert`.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    bundle: Arc<Bundle>,
    /// Bits of its matrices, where it says.
    pub(crate) bits: Option<u32>,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Folder> {
        let damaged = |e: cactus_bundle::Error| {
            let what = "expected a folder made by `cactus convert`";
            Error::new(ErrorKind::Malformed, what).in_file(path).caused_by(e)
        };
        let bundle = Bundle::open(path).map_err(damaged)?;
        // `4`, or `4, embeddings 8`.
        let text = bundle.provenance().map_err(damaged)?.options.remove("bits");
        let bits = text.and_then(|t| t.split(',').next()?.parse().ok());
        Ok(Folder {
            bundle: Arc::new(bundle),
            bits,
        })
    }

    /// The weights by name, where the folder has no program that changed them.
    pub(crate) fn by_name(&self) -> Option<&Arc<Bundle>> {
        (self.bundle.manifest().task == WEIGHTS_TASK).then_some(&self.bundle)
    }

    /// What the folder has and no program reads, in words.
    pub(crate) fn unread<'a>(&self, read: impl Iterator<Item = &'a Bound>) -> Option<String> {
        let read: BTreeSet<&String> = read.flat_map(|b| b.names.values()).collect();
        let left: Vec<&String> = self.bundle.weights().keys().filter(|n| !read.contains(n)).collect();
        let first = left.first()?;
        Some(format!(
            "{} tensors of the folder are not used by the program, for example `{first}`",
            left.len()
        ))
    }
}

/// Tensors of a folder by the names of a program.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    bundle: Arc<Bundle>,
    /// Name in the program to name in the folder.
    names: BTreeMap<String, String>,
}

/// A tensor that the folder must have: its names in the program, and its shape.
pub(crate) type Needed<'a> = (Vec<&'a str>, &'a [usize]);

impl Bound {
    /// Finds every tensor of a program in the folder.
    pub(crate) fn new(bundle: &Arc<Bundle>, needed: &[Needed<'_>]) -> Result<Bound> {
        let stored = bundle.weights();
        // What stands before every name: a wrapper around the module, in the program or where the file was saved.
        let wrapped = shared_head(needed.iter().flat_map(|(names, _)| names.iter().copied()));
        let saved = shared_head(stored.keys().map(String::as_str));
        let ways: [&Way<'_>; 3] = [
            &|n| Some(n.to_owned()),
            &|n| Some(n.strip_prefix(wrapped.as_deref()?)?.to_owned()),
            &|n| Some(format!("{}{n}", saved.as_deref()?)),
        ];
        let find = |way: &Way<'_>, names: &[&str]| names.iter().filter_map(|n| way(n)).find(|n| stored.contains_key(n));
        let fits = |way: &&&Way<'_>| needed.iter().all(|(names, _)| find(way, names).is_some());
        let fail = |what: String| Err(Error::missing(what).in_file(bundle.root()));
        let Some(way) = ways.iter().find(fits) else {
            let absent: Vec<&str> = needed
                .iter()
                .filter(|(n, _)| find(ways[0], n).is_none())
                .map(|(n, _)| n[0])
                .collect();
            let (absent, has) = (
                listed(&absent),
                listed(&stored.keys().map(String::as_str).collect::<Vec<_>>()),
            );
            return fail(format!(
                "the folder does not fit this program: it has no {absent}; it has {has}"
            ));
        };
        let mut names = BTreeMap::new();
        for (all, shape) in needed {
            let Some(found) = find(way, all) else { continue };
            let dims = &stored[&found].dims;
            if dims != shape {
                let what = format!(
                    "the folder does not fit this program, which needs the shape {shape:?}; the folder has {dims:?}"
                );
                return Err(Error::malformed(what).of_tensor(found).in_file(bundle.root()));
            }
            names.insert(all[0].to_owned(), found);
        }
        Ok(Bound {
            bundle: Arc::clone(bundle),
            names,
        })
    }

    fn find(&self, name: &str) -> Option<Weight<'_>> {
        self.bundle.weight(self.names.get(name)?).ok()
    }

    /// The values of a tensor; `None` for one that is the archive's own.
    pub(crate) fn tensor(&self, name: &str) -> Option<Result<Tensor>> {
        let weight = self.find(name)?;
        let fail = |e: String| Error::malformed(e).of_tensor(name).in_file(self.bundle.root());
        let decoded = decode(&weight).map_err(fail);
        Some(self.intact().and(decoded))
    }

    /// Whether the folder's files have stayed what they were.
    fn intact(&self) -> Result<()> {
        let lost = |e: cactus_bundle::Error| Error::new(crate::ErrorKind::Io, e.to_string());
        self.bundle.intact().map_err(lost)
    }

    /// The rows of a packed matrix that a weight is, as they are stored; `None` where the graph changes them.
    fn packed(&self, expr: &WeightExpr) -> Option<(Packing, Vec<Weight<'_>>)> {
        let parts: Vec<Weight<'_>> = match expr {
            WeightExpr::Source(name) => vec![self.find(name)?],
            WeightExpr::Concat { axis: 0, parts } => {
                let one = |p: &WeightExpr| match p {
                    WeightExpr::Source(name) => self.find(name),
                    _ => None,
                };
                parts.iter().map(one).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let packing = parts.first()?.packing;
        let last = parts.len() - 1;
        let joins = |(i, w): (usize, &Weight<'_>)| {
            let whole = i == last || w.dims.first().is_some_and(|n| n % BLOCK_ROWS == 0);
            w.packing == packing && w.scales.is_empty() && whole
        };
        (packing.is_interleaved() && parts.iter().enumerate().all(joins)).then_some((packing, parts))
    }
}

/// A name of the program as the folder may have it.
type Way<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// `model.`, where every name begins so.
fn shared_head<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    let head = names.next()?.split_once('.')?.0.to_owned() + ".";
    names.all(|n| n.starts_with(&head)).then_some(head)
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    shown.join(", ") + &more
}

fn decode(weight: &Weight<'_>) -> std::result::Result<Tensor, String> {
    let view = weight.matrix().map_err(|e| e.to_string())?;
    let columns = match weight.dims {
        [_, k] => *k,
        dims => dims.iter().product(),
    };
    let count: usize = weight.dims.iter().product();
    let mut values = vec![0f32; count];
    if columns > 0 {
        for (row, out) in values.chunks_exact_mut(columns).enumerate() {
            view.decode_row(row, out);
        }
    }
    Tensor::new(weight.dims.to_vec(), Data::F32(values)).map_err(|e| e.to_string())
}

/// Writes the weights of a program: packed matrices of a folder as they are, the rest as planned. `calibration` is for weights
/// of the archive alone: a folder has few that it does not hold packed.
pub(crate) fn write(
    writer: &mut BundleWriter,
    tensors: &Pt2Tensors,
    weights: &[Planned<'_>],
    conversion: &ConvertOptions,
    calibration: Option<&mut dyn Calibration>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<TensorError>> {
    let Some(bound) = tensors.bound() else {
        return convert::write_weights(writer, tensors, weights, conversion, calibration, progress);
    };
    let elems = |w: &Planned<'_>| w.2.iter().map(|&d| d as u64).product::<u64>();
    let total = weights.iter().map(elems).sum();
    let (mut done, mut errors) = (0, Vec::new());
    for planned in weights {
        let (name, expr, dims, packing) = planned;
        match bound.packed(expr).filter(|_| packing.is_interleaved()) {
            Some((packing, parts)) => {
                let data: Vec<u8> = parts.iter().flat_map(|w| w.data.iter().copied()).collect();
                bound.intact()?;
                writer
                    .add_weight(name, dims, packing, &[], &data)
                    .map_err(convert::from_bundle)?;
            }
            None => {
                let one = std::slice::from_ref(planned);
                errors.extend(convert::write_weights(
                    writer,
                    tensors,
                    one,
                    conversion,
                    None,
                    &mut |_, _| {},
                )?);
            }
        }
        done += elems(planned);
        progress(done, total);
    }
    Ok(errors)
}
