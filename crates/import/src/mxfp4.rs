//! Weights in MXFP4 (OCP Microscaling, 2023), as folders of gpt-oss have them: `NAME_blocks`, bytes of two numbers each, and `NAME_scales`, a
//! power of two for each 32 of them. They are shown as one tensor `NAME`, and decoded as they are read.

use crate::{Error, Result, SafetensorsSource, TensorSource};
use cactus_quant::gguf::E2M1_DOUBLED;
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

/// What `quantization_config` calls them.
pub(crate) const METHOD: &str = "mxfp4";
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";
/// Bytes of a block, and numbers in it.
const BYTES: usize = 16;
const NUMBERS: usize = 32;
/// What stands for no number among scales.
const NO_SCALE: u8 = 255;

/// A folder whose packed tensors are shown as numbers.
pub(crate) struct Mxfp4Source {
    inner: SafetensorsSource,
    /// Every name, and rows and blocks of a row where it is packed.
    names: BTreeMap<String, Option<Packed>>,
}

#[derive(Debug)]
struct Packed {
    shape: Vec<usize>,
    rows: usize,
    blocks: usize,
}

impl Mxfp4Source {
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where blocks and scales do not fit each other, naming the tensor.
    pub(crate) fn new(inner: SafetensorsSource) -> Result<Mxfp4Source> {
        let mut names = BTreeMap::new();
        for name in inner.names() {
            if let Some(base) = name.strip_suffix(BLOCKS) {
                let packed = Packed::of(&inner, base)?;
                if inner.shape(base).is_some() {
                    return Err(Error::malformed("it is there in numbers, too").of_tensor(name));
                }
                names.insert(base.to_owned(), Some(packed));
            } else if let Some(base) = name.strip_suffix(SCALES) {
                if inner.shape(&format!("{base}{BLOCKS}")).is_none() {
                    return Err(Error::malformed(format!("there is no `{base}{BLOCKS}`")).of_tensor(name));
                }
            } else {
                names.insert(name.to_owned(), None);
            }
        }
        Ok(Mxfp4Source { inner, names })
    }

    /// Rows `rows` of all, without an axis more.
    fn decoded(&self, name: &str, packed: &Packed, rows: Range<usize>) -> Result<Tensor> {
        let (of_blocks, of_scales) = (format!("{name}{BLOCKS}"), format!("{name}{SCALES}"));
        // `Packed::of` checked that all of them can be counted.
        let range = rows.start * packed.blocks..rows.end * packed.blocks;
        let blocks = self.inner.bytes(&of_blocks, range.start * BYTES..range.end * BYTES)?;
        let scales = self.inner.bytes(&of_scales, range)?;
        let mut values = Vec::with_capacity(scales.len() * NUMBERS);
        for (block, &scale) in blocks.chunks(BYTES).zip(scales) {
            // A power of two within a double, so the product is exact. It is half of the scale, for the numbers are twice as large.
            let factor = 2f64.powi(i32::from(scale) - 128);
            let number = |code: u8| (f64::from(E2M1_DOUBLED[usize::from(code)]) * factor) as f32;
            if scale == NO_SCALE || !number(7).is_finite() {
                let what = format!("the scale {scale} is that of no numbers");
                return Err(Error::malformed(what).of_tensor(of_scales));
            }
            values.extend(block.iter().flat_map(|&byte| [number(byte & 15), number(byte >> 4)]));
        }
        self.inner.intact(&of_blocks)?;
        self.inner.intact(&of_scales)?;
        let shape = [rows.len(), packed.blocks * NUMBERS];
        Tensor::from_f32(shape, values).map_err(|e| Error::malformed(e.to_string()).of_tensor(name))
    }
}

impl Packed {
    fn of(source: &SafetensorsSource, base: &str) -> Result<Packed> {
        let (of_blocks, of_scales) = (format!("{base}{BLOCKS}"), format!("{base}{SCALES}"));
        let shape = source.shape(&of_blocks).unwrap_or_default();
        let scales = source.shape(&of_scales);
        let fail = |what: String| Error::malformed(what).of_tensor(of_blocks.as_str());
        let [leading @ .., blocks, BYTES] = &shape[..] else {
            return Err(fail(format!(
                "expected blocks of {BYTES} bytes, found the shape {shape:?}"
            )));
        };
        let of_scales = scales.ok_or_else(|| fail(format!("there is no `{of_scales}`")))?;
        if of_scales != shape[..shape.len() - 1] {
            return Err(fail(format!(
                "the shape {shape:?} does not fit the scales, {of_scales:?}"
            )));
        }
        let rows = leading.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let rows = rows.filter(|rows| rows.checked_mul(*blocks).and_then(|n| n.checked_mul(NUMBERS)).is_some());
        let rows = rows
            .filter(|_| !leading.is_empty())
            .ok_or_else(|| fail(format!("the shape {shape:?} has no rows, or too many")))?;
        Ok(Packed {
            shape: [leading, &[blocks * NUMBERS]].concat(),
            rows,
            blocks: *blocks,
        })
    }
}

impl TensorSource for Mxfp4Source {
    fn names(&self) -> Vec<&str> {
        self.names.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self.names.get(name)? {
            Some(packed) => Some(packed.shape.clone()),
            None => self.inner.shape(name),
        }
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        match self.names.get(name)? {
            Some(_) => Some("MXFP4"),
            None => self.inner.stored_type(name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let Some(Some(packed)) = self.names.get(name) else {
            return self.inner.read(name);
        };
        let all = self.decoded(name, packed, 0..packed.rows)?;
        all.reshaped(packed.shape.clone())
            .map_err(|e| Error::malformed(e.to_string()).of_tensor(name))
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let Some(Some(packed)) = self.names.get(name) else {
            return self.inner.read_rows(name, rows);
        };
        let fits = rows.start <= rows.end && rows.end <= packed.rows;
        fits.then(|| self.decoded(name, packed, rows))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.inner.files()
    }
}

#[cfg(test)]
mod tests;
