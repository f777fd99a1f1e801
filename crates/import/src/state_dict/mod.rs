//! State dicts that `torch.save` wrote: `.pt`, `.pth`, `.bin` and `.ckpt` files of torch 1.6 and later.
//!
//! Purpose: the weights of a model by name, with no Python and without running anything that the file holds. The file is
//! a zip of stored entries, in which a pickle (`pickle`) names tensors and each storage is an entry of raw elements, which
//! stays mapped. A dict of tensors is read, and one inside of it under a usual name (`state_dict`, `model`, …). It
//! deliberately reads no module, no optimizer and no older form of the file.

mod pickle;

use crate::pt2::Archive;
use crate::strided::{Stored, Strided};
use crate::{Error, Result, SharedBytes, TensorSource, open_bytes};
use cactus_tensor::{DType, Tensor};
use pickle::{Id, Pickle, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names under which a checkpoint keeps its state dict.
const WITHIN: [&str; 4] = ["state_dict", "model_state_dict", "model", "module"];
/// How many times over tensors may share what is stored.
const MAX_SHARED: usize = 16;
/// Largest pickle that is read.
const MAX_PICKLE_BYTES: usize = 64 << 20;

/// The tensors of a state dict by name.
pub struct StateDict {
    path: PathBuf,
    bytes: SharedBytes,
    tensors: BTreeMap<String, Strided>,
}

impl std::fmt::Debug for StateDict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateDict({}, {} tensors)", self.path.display(), self.tensors.len())
    }
}

impl StateDict {
    /// Opens a file of `torch.save`.
    ///
    /// # Errors
    /// As [`StateDict::from_bytes`], and where the file cannot be read.
    pub fn open(path: &Path) -> Result<StateDict> {
        Self::from_bytes(path, open_bytes(path)?)
    }

    /// The tensors of a file, given its bytes; `path` is for messages.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] where it holds more than tensors or is of an older form,
    /// [`crate::ErrorKind::Malformed`] where it breaks its format or a tensor does not lie in its storage.
    pub fn from_bytes(path: &Path, bytes: SharedBytes) -> Result<StateDict> {
        read(path, bytes).map_err(|e| e.in_file(path))
    }
}

fn read(path: &Path, bytes: SharedBytes) -> Result<StateDict> {
    if !(*bytes).as_ref().starts_with(b"PK\x03\x04") {
        let what = "a zip is expected, which torch.save has written since version 1.6; load the file with PyTorch and save it again";
        return Err(Error::unsupported(what));
    }
    let archive = Archive::entries(bytes)?;
    if !archive.has("data.pkl") {
        let what = "the archive has no `data.pkl`, so it was not written by torch.save";
        return Err(Error::unsupported(what));
    }
    if archive.has("byteorder") && archive.text("byteorder")?.trim() != "little" {
        return Err(Error::unsupported("the numbers are stored big-endian"));
    }
    if archive.has("constants.pkl") {
        return Err(Error::unsupported(
            "a TorchScript program, which is not supported; save `model.state_dict()`",
        ));
    }
    let range = archive.range("data.pkl")?;
    if range.len() > MAX_PICKLE_BYTES {
        let what = format!(
            "`data.pkl` has {} bytes; at most {MAX_PICKLE_BYTES} are supported",
            range.len()
        );
        return Err(Error::unsupported(what));
    }
    let pickle = Pickle::read(&file(&archive)[range])?;
    let mut tensors = BTreeMap::new();
    let mut total = 0usize;
    for (name, id) in state(&pickle)? {
        let place = place(&pickle, id, &archive).map_err(|e| e.of_tensor(name))?;
        if let Some(place) = place {
            total = total.saturating_add(place.bytes());
            tensors.insert(name.to_owned(), place);
        }
    }
    let stored = file(&archive).len();
    if total / MAX_SHARED > stored {
        let what = format!("its tensors have {total} bytes, more than {MAX_SHARED} times what the file stores");
        return Err(Error::unsupported(what));
    }
    if tensors.is_empty() {
        return Err(Error::unsupported(
            "a dict of tensors by name is expected (`model.state_dict()`), and it has none",
        ));
    }
    Ok(StateDict {
        path: path.to_owned(),
        bytes: archive.bytes().clone(),
        tensors,
    })
}

fn file(archive: &Archive) -> &[u8] {
    let bytes: &SharedBytes = archive.bytes();
    (**bytes).as_ref()
}

/// Entries of a dict whose keys are texts; of several with one key the last counts.
fn named(pickle: &Pickle, id: Id) -> Option<BTreeMap<&str, Id>> {
    let Value::Dict(entries) = pickle.get(id) else {
        return None;
    };
    let one = |&(k, v): &(Id, Id)| match pickle.get(k) {
        Value::Text(name) => Some((name.as_str(), v)),
        _ => None,
    };
    Some(entries.iter().filter_map(one).collect())
}

/// The state dict: the whole, or what lies under a usual name.
fn state(pickle: &Pickle) -> Result<BTreeMap<&str, Id>> {
    let Some(all) = named(pickle, pickle.root()) else {
        return Err(Error::unsupported(
            "a dict of tensors by name is expected (`model.state_dict()`)",
        ));
    };
    let has_tensor = |of: &BTreeMap<&str, Id>| of.values().any(|&id| matches!(pickle.get(id), Value::Tensor { .. }));
    if has_tensor(&all) {
        return Ok(all);
    }
    let inner = WITHIN
        .iter()
        .filter_map(|name| named(pickle, *all.get(name)?))
        .find(has_tensor);
    Ok(inner.unwrap_or_default())
}

/// Where a tensor lies; `None` for what is none.
fn place(pickle: &Pickle, id: Id, archive: &Archive) -> Result<Option<Strided>> {
    let &Value::Tensor {
        storage,
        offset,
        sizes,
        strides,
    } = pickle.get(id)
    else {
        return Ok(None);
    };
    let malformed = |what: &str| Error::malformed(what);
    let Value::Storage { kind, key } = pickle.get(storage) else {
        return Err(malformed("it has no storage"));
    };
    let (stored, name) = Stored::by_name(kind).ok_or_else(|| malformed("its element type is not known"))?;
    let shape = pickle
        .sizes(sizes)
        .ok_or_else(|| malformed("its sizes are not numbers"))?;
    let strides = pickle.sizes(strides).filter(|s| s.len() == shape.len());
    let strides = strides.ok_or_else(|| malformed("its strides are not one number for each axis"))?;
    let offset = usize::try_from(offset).map_err(|_| malformed("it begins before its storage"))?;
    let range = archive.range(&format!("data/{key}"))?;
    Strided::new(range, stored, name, shape, strides, offset).map(Some)
}

impl TensorSource for StateDict {
    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.tensors.get(name)?.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        Some(self.tensors.get(name)?.name)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let fail = |e: Error| e.of_tensor(name).in_file(&self.path);
        let place = self.tensors.get(name);
        let place = place.ok_or_else(|| fail(Error::missing("the file has no such tensor")))?;
        let read = place.read((*self.bytes).as_ref());
        self.bytes.intact()?;
        let tensor = read.map_err(fail)?;
        match tensor.dtype() {
            DType::F32 => Ok(tensor),
            other => Err(fail(Error::unsupported(format!(
                "a weight should be a float, found {other}"
            )))),
        }
    }

    fn describe(&self) -> String {
        let types = crate::source::count_types(self.tensors.values().map(|t| t.name));
        format!("state dict of torch.save, {} tensors ({types})", self.tensors.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

#[cfg(test)]
mod tests;
