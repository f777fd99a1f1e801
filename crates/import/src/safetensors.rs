//! Weights in safetensors files: one `model.safetensors`, or several that `model.safetensors.index.json` lists.

use crate::{Error, Result, SharedBytes, TensorSource, open_bytes};
use cactus_tensor::{DType, Tensor};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// File name of an unsharded model.
pub(crate) const SINGLE_FILE: &str = "model.safetensors";
/// File name of the index of a sharded model.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// One opened file: header parsed and checked, data left where it is.
struct Shard {
    path: PathBuf,
    bytes: SharedBytes,
    metadata: Metadata,
    data_start: usize,
}

impl Shard {
    fn open(path: PathBuf, bytes: SharedBytes) -> Result<Self> {
        let (header_len, metadata) = SafeTensors::read_metadata((*bytes).as_ref()).map_err(|e| {
            Error::malformed("not a valid safetensors file")
                .in_file(&path)
                .caused_by(e)
        })?;
        Ok(Shard {
            path,
            bytes,
            metadata,
            // The length of the header is stored in 8 bytes before it; `read_metadata` checked both against the file.
            data_start: 8 + header_len,
        })
    }

    fn read(&self, name: &str, info: &TensorInfo) -> Result<Tensor> {
        let fail = |e: Error| e.of_tensor(name).in_file(&self.path);
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(fail(Error::unsupported(format!(
                    "a weight should be F32, F16 or BF16, found {}",
                    dtype_name(other)
                ))));
            }
        };
        let (start, end) = info.data_offsets;
        let data = (*self.bytes)
            .as_ref()
            .get(self.data_start + start..self.data_start + end)
            .ok_or_else(|| fail(Error::malformed("the data lies outside the file")))?;
        Tensor::from_le_bytes(info.shape.clone(), dtype, data)
            .map_err(|e| fail(Error::malformed("the data does not fit the shape").caused_by(e)))
    }
}

/// The name of a type as the file writes it.
fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::BOOL => "BOOL",
        Dtype::U8 => "U8",
        Dtype::I8 => "I8",
        Dtype::F8_E5M2 => "F8_E5M2",
        Dtype::F8_E4M3 => "F8_E4M3",
        Dtype::I16 => "I16",
        Dtype::U16 => "U16",
        Dtype::F16 => "F16",
        Dtype::BF16 => "BF16",
        Dtype::I32 => "I32",
        Dtype::U32 => "U32",
        Dtype::F32 => "F32",
        Dtype::C64 => "C64",
        Dtype::F64 => "F64",
        Dtype::I64 => "I64",
        Dtype::U64 => "U64",
        _ => "a type of less than 16 bits",
    }
}

/// The weights of a Hugging Face folder.
pub struct SafetensorsSource {
    shards: Vec<Shard>,
    /// Tensor name to the number of its shard.
    index: BTreeMap<String, usize>,
}

impl SafetensorsSource {
    /// Opens the weights of `folder`: the index and its files if there is one, otherwise the single file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Missing`] where the folder has neither, or where a listed file or tensor is absent;
    /// [`crate::ErrorKind::Malformed`] where a file breaks the format or its length is not what its header says.
    pub fn open(folder: &Path) -> Result<Self> {
        let index_path = folder.join(INDEX_FILE);
        if index_path.exists() {
            return Self::open_sharded(folder, &index_path);
        }
        let path = folder.join(SINGLE_FILE);
        if !path.exists() {
            return Err(
                Error::missing(format!("the folder has neither `{SINGLE_FILE}` nor `{INDEX_FILE}`")).in_file(folder),
            );
        }
        let bytes = open_bytes(&path)?;
        Self::from_bytes(&path, bytes)
    }

    /// The weights of one file, given its bytes; `path` is for messages.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the bytes break the format.
    pub fn from_bytes(path: &Path, bytes: SharedBytes) -> Result<Self> {
        let shard = Shard::open(path.to_path_buf(), bytes)?;
        let index = shard.metadata.tensors().into_keys().map(|name| (name, 0)).collect();
        Ok(SafetensorsSource {
            shards: vec![shard],
            index,
        })
    }

    fn open_sharded(folder: &Path, index_path: &Path) -> Result<Self> {
        let malformed = |what: String| Error::malformed(what).in_file(index_path);
        let json = crate::hf::read_json(index_path)?;
        let map = json
            .get("weight_map")
            .and_then(Value::as_object)
            .ok_or_else(|| malformed("expected an object `weight_map`".into()))?;
        let mut shards: Vec<Shard> = Vec::new();
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut index = BTreeMap::new();
        for (name, file) in map {
            let file = file
                .as_str()
                .filter(|f| is_plain_file_name(f))
                .ok_or_else(|| malformed(format!("expected a file name for `{name}`, found {file}")))?;
            let number = match numbers.get(file) {
                Some(&number) => number,
                None => {
                    let path = folder.join(file);
                    let bytes = open_bytes(&path)?;
                    shards.push(Shard::open(path, bytes)?);
                    numbers.insert(file, shards.len() - 1);
                    shards.len() - 1
                }
            };
            if shards[number].metadata.info(name).is_none() {
                return Err(
                    Error::missing(format!("the index says that it is in `{file}`, which does not have it"))
                        .of_tensor(name)
                        .in_file(index_path),
                );
            }
            index.insert(name.clone(), number);
        }
        Ok(SafetensorsSource { shards, index })
    }

    /// Bytes `range` of a tensor of bytes, `U8`.
    pub(crate) fn bytes(&self, name: &str, range: Range<usize>) -> Result<&[u8]> {
        let (shard, info) = self
            .find(name)
            .ok_or_else(|| Error::missing("the model has no such tensor").of_tensor(name))?;
        let fail = |e: Error| e.of_tensor(name).in_file(&shard.path);
        if info.dtype != Dtype::U8 {
            return Err(fail(Error::malformed(format!(
                "expected U8, found {}",
                dtype_name(info.dtype)
            ))));
        }
        let (start, end) = info.data_offsets;
        let data = (*shard.bytes)
            .as_ref()
            .get(shard.data_start + start..shard.data_start + end);
        let part = data.and_then(|data| data.get(range));
        let part = part.ok_or_else(|| fail(Error::malformed("the data lies outside the file")))?;
        Ok(part)
    }

    /// Whether what was read of the file of `name` was there.
    pub(crate) fn intact(&self, name: &str) -> Result<()> {
        match self.find(name) {
            Some((shard, _)) => shard.bytes.intact(),
            None => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<(&Shard, &TensorInfo)> {
        let shard = &self.shards[*self.index.get(name)?];
        Some((shard, shard.metadata.info(name)?))
    }
}

/// Whether `name` stays in the folder it is joined to.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

impl TensorSource for SafetensorsSource {
    fn names(&self) -> Vec<&str> {
        self.index.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.find(name)?.1.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        Some(dtype_name(self.find(name)?.1.dtype))
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let (shard, info) = self.find(name).ok_or_else(|| {
            Error::missing("the model has no such tensor")
                .of_tensor(name)
                .in_file(&self.shards.first().map_or_else(PathBuf::new, |s| s.path.clone()))
        })?;
        let read = shard.read(name, info);
        shard.bytes.intact()?;
        read
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let (shard, info) = self.find(name)?;
        let (&k, leading) = info.shape.split_last().filter(|(_, leading)| !leading.is_empty())?;
        let n = leading.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let (start, end) = info.data_offsets;
        // Rows of whole bytes.
        let row_bytes = (end - start).checked_div(n).filter(|bytes| bytes * n == end - start)?;
        if rows.end > n || rows.start > rows.end {
            return None;
        }
        let part = TensorInfo {
            dtype: info.dtype,
            shape: vec![rows.len(), k],
            data_offsets: (start + rows.start * row_bytes, start + rows.end * row_bytes),
        };
        let read = shard.read(name, &part);
        Some(shard.bytes.intact().and(read))
    }

    fn describe(&self) -> String {
        let types = self.index.keys().filter_map(|name| self.stored_type(name));
        let files = self.shards.len();
        let tensors = self.index.len();
        let types = crate::source::count_types(types);
        let s = if files == 1 { "" } else { "s" };
        format!("{files} safetensors file{s}, {tensors} tensors ({types})")
    }

    fn files(&self) -> Vec<PathBuf> {
        self.shards.iter().map(|s| s.path.clone()).collect()
    }
}
