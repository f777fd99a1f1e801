//! The weights of an archive, in place, as a source of tensors.

use super::archive::Archive;
use super::bound::{Bound, Folder, Needed};
use super::schema::{Payloads, SymInt, TensorMeta};
use crate::strided::{Stored, Strided};
use crate::{Error, Result, SharedBytes, TensorSource};
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The element type of a code, and its name.
pub(crate) fn stored_type(code: i64) -> Result<(Stored, &'static str)> {
    Ok(match code {
        1 => (Stored::Plain(DType::U8), "U8"),
        2 => (Stored::Plain(DType::I8), "I8"),
        3 => (Stored::I16, "I16"),
        4 => (Stored::Plain(DType::I32), "I32"),
        5 => (Stored::Plain(DType::I64), "I64"),
        6 => (Stored::Plain(DType::F16), "F16"),
        7 => (Stored::Plain(DType::F32), "F32"),
        8 => (Stored::F64, "F64"),
        12 => (Stored::Plain(DType::Bool), "BOOL"),
        13 => (Stored::Plain(DType::BF16), "BF16"),
        _ => {
            let what = format!(
                "element type {code} of torch's schema is not supported; supported are 8 to 64-bit integers, bool and F16, BF16, F32, F64"
            );
            return Err(Error::unsupported(what));
        }
    })
}

/// The element type that the graph computes in for a type of the schema: floats in `f32`, integers in `i64`.
pub(crate) fn graph_type(code: i64) -> Result<DType> {
    Ok(match stored_type(code)?.0 {
        Stored::Plain(DType::Bool) => DType::Bool,
        Stored::Plain(d) if d.is_float() => DType::F32,
        Stored::F64 => DType::F32,
        _ => DType::I64,
    })
}

/// Weights, buffers and constants of an archive by name, and what was computed from them ahead.
pub struct Pt2Tensors {
    path: PathBuf,
    bytes: SharedBytes,
    entries: BTreeMap<String, Strided>,
    /// Other names of an entry, where weights are tied.
    aliases: BTreeMap<String, String>,
    computed: BTreeMap<String, Tensor>,
    /// Those that a folder has in their place.
    bound: Option<Bound>,
}

impl std::fmt::Debug for Pt2Tensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pt2Tensors({}, {} tensors)", self.path.display(), self.entries.len())
    }
}

fn fixed(sizes: &[SymInt]) -> Option<Vec<usize>> {
    let one = |s: &SymInt| match s {
        SymInt::AsInt(n) => usize::try_from(*n).ok(),
        SymInt::AsExpr(_) => None,
    };
    sizes.iter().map(one).collect()
}

impl Pt2Tensors {
    /// Reads where the tensors lie, and checks each place.
    /// Those of `folder` take the place of the parameters and buffers of the archive.
    pub(crate) fn open(path: &Path, archive: &Archive, folder: Option<&Folder>) -> Result<Pt2Tensors> {
        let mut tensors = Pt2Tensors {
            path: path.to_owned(),
            bytes: archive.bytes().clone(),
            entries: BTreeMap::new(),
            aliases: BTreeMap::new(),
            computed: BTreeMap::new(),
            bound: None,
        };
        let mut of_state: Vec<String> = Vec::new();
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for folder in ["weights", "constants"] {
            let config = format!("data/{folder}/model_{folder}_config.json");
            if !archive.has(&config) {
                continue;
            }
            let payloads: Payloads = archive.json(&config)?;
            for (name, payload) in payloads.config {
                let fail = |what: &str| Error::unsupported(what).of_tensor(&name);
                if payload.use_pickle {
                    return Err(fail(
                        "it is pickled, which is not supported because reading it could run code; save the program with a newer torch",
                    ));
                }
                let Some(meta) = &payload.tensor_meta else {
                    return Err(fail("it is a custom object, which is not supported"));
                };
                let range = archive.range(&format!("data/{folder}/{}", payload.path_name))?;
                let entry = entry(meta, range).map_err(|e| e.of_tensor(&name))?;
                // Two names of the same bytes in the same shape are one tensor.
                let key = format!(
                    "{folder} {} {:?} {:?} {}",
                    payload.path_name, entry.shape, entry.strides, entry.offset
                );
                match known.get(&key) {
                    Some(first) if entry.name == tensors.entries[first].name => {
                        tensors.aliases.insert(name, first.clone());
                    }
                    _ => {
                        known.insert(key, name.clone());
                        if folder == "weights" && entry.stored.is_float() {
                            of_state.push(name.clone());
                        }
                        tensors.entries.insert(name, entry);
                    }
                }
            }
        }
        if let Some(bundle) = folder.and_then(Folder::by_name) {
            let mut needed: BTreeMap<&str, Needed<'_>> = of_state
                .iter()
                .map(|n| (n.as_str(), (vec![n.as_str()], &tensors.entries[n].shape[..])))
                .collect();
            for (other, name) in &tensors.aliases {
                if let Some((names, _)) = needed.get_mut(name.as_str()) {
                    names.push(other);
                }
            }
            tensors.bound = Some(Bound::new(bundle, &needed.into_values().collect::<Vec<_>>())?);
        }
        Ok(tensors)
    }

    /// The tensors that a folder gives.
    pub(crate) fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// The name that a tensor is kept under: of tied weights, the first.
    pub(crate) fn canonical<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// The element type that the graph computes in.
    pub(crate) fn dtype(&self, name: &str) -> Option<DType> {
        Some(match self.entries.get(self.canonical(name))?.stored {
            Stored::Plain(DType::Bool) => DType::Bool,
            Stored::Plain(d) if d.is_float() => DType::F32,
            Stored::F64 => DType::F32,
            _ => DType::I64,
        })
    }

    /// Bits of the stored float types: the widest that a weight has.
    pub(crate) fn float_bits(&self) -> u32 {
        let wide = |e: &Strided| matches!(e.stored, Stored::F64 | Stored::Plain(DType::F32)) && e.shape.len() >= 2;
        if self.entries.values().any(wide) { 32 } else { 16 }
    }

    /// A tensor in the element type of the graph.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor> {
        if let Some(t) = self.computed.get(name) {
            return Ok(t.clone());
        }
        let name = self.canonical(name);
        if let Some(given) = self.bound.as_ref().and_then(|b| b.tensor(name)) {
            return given;
        }
        let place = |e: Error| e.of_tensor(name).in_file(&self.path);
        let entry = self
            .entries
            .get(name)
            .ok_or_else(|| place(Error::missing("the archive has no such tensor")))?;
        let read = entry.read((*self.bytes).as_ref());
        self.bytes.intact()?;
        read.map_err(place)
    }

    /// Adds a tensor that was computed ahead.
    pub(crate) fn add(&mut self, name: String, tensor: Tensor) {
        self.computed.insert(name, tensor);
    }

    /// Whether a name is taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.computed.contains_key(name) || self.entries.contains_key(self.canonical(name))
    }
}

fn entry(meta: &TensorMeta, range: Range<usize>) -> Result<Strided> {
    let (stored, name) = stored_type(meta.dtype)?;
    let malformed = || Error::malformed("its sizes are not fixed numbers");
    let shape = fixed(&meta.sizes).ok_or_else(malformed)?;
    let strides = fixed(&meta.strides)
        .filter(|s| s.len() == shape.len())
        .ok_or_else(malformed)?;
    let offset = fixed(std::slice::from_ref(&meta.storage_offset)).ok_or_else(malformed)?[0];
    Strided::new(range, stored, name, shape, strides, offset)
}

impl TensorSource for Pt2Tensors {
    fn names(&self) -> Vec<&str> {
        self.entries
            .keys()
            .chain(self.computed.keys())
            .map(String::as_str)
            .collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self.computed.get(name) {
            Some(t) => Some(t.shape().to_vec()),
            None => Some(self.entries.get(self.canonical(name))?.shape.clone()),
        }
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        match self.computed.contains_key(name) {
            true => Some("F32"),
            false => Some(self.entries.get(self.canonical(name))?.name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let tensor = self.tensor(name)?;
        match tensor.dtype() {
            DType::F32 => Ok(tensor),
            other => {
                let what = format!("a weight should be a float, found {other}");
                Err(Error::unsupported(what).of_tensor(name).in_file(&self.path))
            }
        }
    }

    fn describe(&self) -> String {
        let types = self.entries.values().map(|e| e.name);
        let types = crate::source::count_types(types);
        format!("torch.export archive, {} tensors ({types})", self.entries.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}
