//! A tensor in a mapped file of PyTorch: an element type, a place, sizes and strides, all checked before they are used.

use crate::{Error, Result};
use cactus_tensor::{DType, Data, Tensor, element_count};
use std::ops::Range;

/// Axes that a tensor may have.
const MAX_RANK: usize = 8;

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// One of our types.
    Plain(DType),
    I16,
    F64,
}

impl Stored {
    /// The type of a name such as `BF16`, and the name.
    pub(crate) fn by_name(name: &str) -> Option<(Stored, &'static str)> {
        Some(match name {
            "U8" => (Stored::Plain(DType::U8), "U8"),
            "I8" => (Stored::Plain(DType::I8), "I8"),
            "I16" => (Stored::I16, "I16"),
            "I32" => (Stored::Plain(DType::I32), "I32"),
            "I64" => (Stored::Plain(DType::I64), "I64"),
            "F16" => (Stored::Plain(DType::F16), "F16"),
            "F32" => (Stored::Plain(DType::F32), "F32"),
            "F64" => (Stored::F64, "F64"),
            "BOOL" => (Stored::Plain(DType::Bool), "BOOL"),
            "BF16" => (Stored::Plain(DType::BF16), "BF16"),
            _ => return None,
        })
    }

    pub(crate) fn is_float(self) -> bool {
        match self {
            Stored::Plain(d) => d.is_float(),
            Stored::F64 => true,
            Stored::I16 => false,
        }
    }

    fn size_bytes(self) -> usize {
        match self {
            Stored::Plain(d) => d.size_bytes(),
            Stored::I16 => 2,
            Stored::F64 => 8,
        }
    }
}

/// A tensor in the file.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    /// The bytes of its storage.
    range: Range<usize>,
    pub(crate) stored: Stored,
    /// The name of the type.
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    /// Index of its first element in the storage.
    pub(crate) offset: usize,
}

impl Strided {
    /// The tensor of these parts, which must lie within `range` of the file; there is one stride for each axis.
    pub(crate) fn new(
        range: Range<usize>,
        stored: Stored,
        name: &'static str,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
    ) -> Result<Strided> {
        if shape.len() > MAX_RANK || strides.len() != shape.len() {
            let what = format!(
                "it has {} axes and {} strides; at most {MAX_RANK} axes are supported",
                shape.len(),
                strides.len()
            );
            return Err(Error::unsupported(what));
        }
        let size = stored.size_bytes();
        let count = element_count(&shape).map_err(|e| Error::malformed(e.to_string()))?;
        // The last element's index, where there is one, must be stored.
        let last = shape.iter().zip(&strides).try_fold(offset, |at, (&n, &s)| {
            at.checked_add(n.saturating_sub(1).checked_mul(s)?)
        });
        let needed = match count {
            0 => Some(0),
            _ => last.and_then(|l| l.checked_add(1)?.checked_mul(size)),
        };
        if needed.is_none_or(|n| n > range.len()) {
            let what = format!(
                "its shape {shape:?} and strides {strides:?} do not fit {} bytes",
                range.len()
            );
            return Err(Error::malformed(what));
        }
        // Strides of zero let a few bytes stand for many elements, which nothing would bound.
        if count.checked_mul(size).is_none_or(|n| n > range.len()) {
            let what = format!("its shape {shape:?} has more elements than are stored");
            return Err(Error::unsupported(what));
        }
        Ok(Strided {
            range,
            stored,
            name,
            shape,
            strides,
            offset,
        })
    }

    /// Bytes of its elements.
    pub(crate) fn bytes(&self) -> usize {
        // Checked in `new`.
        self.shape.iter().product::<usize>() * self.stored.size_bytes()
    }

    /// Its elements, out of the bytes of the file.
    pub(crate) fn read(&self, file: &[u8]) -> Result<Tensor> {
        let fail = |e: cactus_tensor::Error| Error::malformed("the data does not fit the shape").caused_by(e);
        let bytes = &file[self.range.clone()];
        let size = self.stored.size_bytes();
        let count = element_count(&self.shape).map_err(fail)?;
        let dense = self.strides == cactus_tensor::strides_row_major(&self.shape) || count == 0;
        let gathered;
        let bytes = if dense {
            let at = self.offset.saturating_mul(size);
            &bytes[at.min(bytes.len())..][..count * size]
        } else {
            gathered = self.gather(bytes, count, size);
            &gathered
        };
        match self.stored {
            Stored::Plain(d) => Tensor::from_le_bytes(self.shape.clone(), d, bytes),
            Stored::F64 => {
                let v = bytes.as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b) as f32);
                Tensor::new(self.shape.clone(), Data::F32(v.collect()))
            }
            Stored::I16 => {
                let v = bytes.as_chunks::<2>().0.iter().map(|&b| i16::from_le_bytes(b).into());
                Tensor::new(self.shape.clone(), Data::I64(v.collect()))
            }
        }
        .map_err(fail)
    }

    /// The elements in row-major order.
    fn gather(&self, bytes: &[u8], count: usize, size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(count * size);
        let mut index = vec![0usize; self.shape.len()];
        for _ in 0..count {
            let at = self.offset + index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<usize>();
            out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
            for i in (0..index.len()).rev() {
                index[i] += 1;
                if index[i] < self.shape[i] {
                    break;
                }
                index[i] = 0;
            }
        }
        out
    }
}
