//! Weights of a file that has other names for them, shown under those of Hugging Face: each is a run of rows of a stored
//! tensor, perhaps under another shape.
//!
//! Everything is checked when the source is made, so reading cannot leave the file.

use crate::{Error, Result, SharedBytes, TensorSource};
use cactus_quant::gguf::{GgmlType, decode};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the elements of a tensor are stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stored {
    /// Floats, or blocks of a few.
    Blocks(GgmlType),
    /// 8-bit integers; one factor for each row, by which they are divided.
    Int8Rows(Factors),
}

/// A run of numbers that several tensors may share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factors {
    all: Arc<[f32]>,
    range: Range<usize>,
}

impl From<Vec<f32>> for Factors {
    fn from(all: Vec<f32>) -> Factors {
        Factors {
            range: 0..all.len(),
            all: all.into(),
        }
    }
}

impl std::ops::Deref for Factors {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.all[self.range.clone()]
    }
}

impl PartialEq for Factors {
    fn eq(&self, other: &Factors) -> bool {
        **self == **other
    }
}

impl Factors {
    /// Those of `rows`, which are among these.
    fn rows(&self, rows: &Range<usize>) -> Factors {
        Factors {
            all: Arc::clone(&self.all),
            range: self.range.start + rows.start..self.range.start + rows.end,
        }
    }
}

impl Stored {
    fn name(&self) -> &'static str {
        match self {
            Stored::Blocks(ty) => ty.name(),
            Stored::Int8Rows(_) => "I8",
        }
    }

    /// Bytes of `elems` elements; `None` where they are no whole blocks.
    pub(crate) fn bytes(&self, elems: usize) -> Option<usize> {
        match self {
            Stored::Blocks(ty) => ty.size_bytes(elems),
            Stored::Int8Rows(_) => Some(elems),
        }
    }
}

/// A tensor as it lies in the file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its bytes, which lie in the file and are as many as shape and type say.
    pub(crate) range: Range<usize>,
    pub(crate) stored: Stored,
    /// Row-major, outermost axis first.
    pub(crate) shape: Vec<usize>,
}

impl Place {
    /// The tensor at byte `start` of a file of `file_bytes`.
    pub(crate) fn new(start: usize, file_bytes: usize, stored: Stored, shape: Vec<usize>) -> Result<Place> {
        let elems = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bytes = elems.and_then(|n| stored.bytes(n));
        let end = bytes
            .and_then(|n| start.checked_add(n))
            .filter(|&end| end <= file_bytes);
        match end {
            Some(end) => Ok(Place {
                range: start..end,
                stored,
                shape,
            }),
            None => {
                let what = format!(
                    "{} of shape {shape:?} does not fit the remaining {} bytes of the file",
                    stored.name(),
                    file_bytes.saturating_sub(start)
                );
                Err(Error::malformed(what).at_offset(start))
            }
        }
    }

    /// Rows `rows` of it, as a tensor of `shape`.
    pub(crate) fn rows(&self, rows: Range<usize>, shape: &[usize]) -> Result<Place> {
        let (n, width) = match self.shape.split_first() {
            Some((&n, rest)) => (n, rest.iter().try_fold(1usize, |n, &d| n.checked_mul(d))),
            None => (1, Some(1)),
        };
        // Too many for a number only where there are no rows.
        let width = width.ok_or_else(|| Error::malformed(format!("the shape {:?} is too large", self.shape)))?;
        let wanted: Option<usize> = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let fits = rows.start <= rows.end && rows.end <= n && wanted == rows.len().checked_mul(width);
        let Some((row_bytes, true)) = self.stored.bytes(width).map(|b| (b, fits)) else {
            let what = format!("expected {shape:?} in rows {rows:?}, found the shape {:?}", self.shape);
            return Err(Error::malformed(what));
        };
        let stored = match &self.stored {
            Stored::Int8Rows(factors) => Stored::Int8Rows(factors.rows(&rows)),
            blocks => blocks.clone(),
        };
        let start = self.range.start + rows.start * row_bytes;
        Ok(Place {
            range: start..start + rows.len() * row_bytes,
            stored,
            shape: shape.to_vec(),
        })
    }

    /// All of it, as a tensor of `shape`.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Result<Place> {
        self.rows(0..self.shape.first().copied().unwrap_or(1), shape)
    }

    pub(crate) fn values(&self, file: &[u8]) -> Result<Vec<f32>> {
        let bytes = file
            .get(self.range.clone())
            .ok_or_else(|| Error::malformed("the data lies outside the file"))?;
        // As many as the bytes say, which lie in the file.
        let mut out = vec![0f32; self.shape.iter().product()];
        match &self.stored {
            Stored::Blocks(ty) => {
                let failed = |e| Error::malformed("it cannot be decoded").caused_by(e);
                decode(*ty, bytes, &mut out).map_err(failed)?;
            }
            Stored::Int8Rows(factors) => {
                let width = out.len() / factors.len().max(1);
                let rows = out.chunks_mut(width.max(1)).zip(bytes.chunks(width.max(1)));
                for ((row, stored), factor) in rows.zip(&**factors) {
                    for (o, &b) in row.iter_mut().zip(stored) {
                        *o = f32::from(b.cast_signed()) / factor;
                    }
                }
            }
        }
        Ok(out)
    }
}

/// The weights of one file by name.
pub(crate) struct NamedSource {
    pub(crate) path: PathBuf,
    pub(crate) bytes: SharedBytes,
    pub(crate) weights: BTreeMap<String, Place>,
    /// The form of the file, for people.
    pub(crate) form: String,
}

impl NamedSource {
    fn tensor(&self, name: &str, place: &Place) -> Result<Tensor> {
        let fail = |e: Error| e.of_tensor(name).in_file(&self.path);
        let values = place.values((*self.bytes).as_ref());
        self.bytes.intact()?;
        Tensor::from_f32(place.shape.clone(), values.map_err(fail)?)
            .map_err(|e| fail(Error::malformed("the values do not fit the shape").caused_by(e)))
    }
}

impl TensorSource for NamedSource {
    fn names(&self) -> Vec<&str> {
        self.weights.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.weights.get(name)?.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        Some(self.weights.get(name)?.stored.name())
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        match self.weights.get(name) {
            Some(place) => self.tensor(name, place),
            None => Err(Error::missing("the model has no such tensor")
                .of_tensor(name)
                .in_file(&self.path)),
        }
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let place = self.weights.get(name)?;
        let &[_, k] = &place.shape[..] else { return None };
        let part = place.rows(rows.clone(), &[rows.len(), k]).ok()?;
        Some(self.tensor(name, &part))
    }

    fn describe(&self) -> String {
        let types = crate::source::count_types(self.weights.values().map(|p| p.stored.name()));
        format!("{}, {} weights ({types})", self.form, self.weights.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

/// The path of a file as errors name it.
pub(crate) fn in_file<T>(result: Result<T>, path: &Path) -> Result<T> {
    result.map_err(|e| e.in_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_rows_are_shared_with_the_whole() {
        let factors = Factors::from(vec![1.0, 2.0, 4.0, 8.0]);
        let whole = Place::new(0, 8, Stored::Int8Rows(factors.clone()), vec![4, 2]).unwrap();
        let last = whole.rows(1..4, &[3, 2]).and_then(|part| part.rows(1..3, &[2, 2]));
        let last = last.unwrap();
        let Stored::Int8Rows(shared) = &last.stored else {
            panic!("{last:?}");
        };
        assert_eq!(**shared, [4.0, 8.0]);
        assert!(Arc::ptr_eq(&shared.all, &factors.all));
        assert_eq!(last.values(&[8; 8]).unwrap(), [2.0, 2.0, 1.0, 1.0]);
    }
}
