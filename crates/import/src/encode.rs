//! From a source's tensors to the bytes of one stored weight, and what that lost.
//!
//! A weight is read, changed as its expression says, and packed as a whole; a large matrix that the source stores as it is
//! goes strip by strip, so that its values in single precision are never all in memory.

use crate::{Calibration, Error, ErrorKind, Result, TensorSource};
use cactus_ir::WeightExpr;
use cactus_quant::{Packed, PackedLayout, Packing, pack_on};
use cactus_reference::{WeightSource, eval_weight_expr};
use cactus_tensor::Tensor;

/// Elements from which on one tensor is packed on all cores.
pub(crate) const LARGE: usize = 1 << 24;
/// Elements of a strip, about.
const STRIP_ELEMENTS: usize = 1 << 23;
/// Rows whose squares are summed together, so that sums do not depend on the number of threads; strips have whole ones.
const STRIP: usize = 256;

/// Adapts a source to the evaluation of weight expressions.
struct Reading<'a>(&'a dyn TensorSource);

impl WeightSource for Reading<'_> {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        self.0
            .read(name)
            .map_err(|e| cactus_reference::Error::new(cactus_reference::ErrorKind::Weight, e.to_string()))
    }
}

/// A packed weight. No packing of today has scales apart from its data.
pub(crate) struct Stored {
    pub(crate) packing: Packing,
    bytes: Bytes,
}

enum Bytes {
    Whole(Packed),
    Strips(Vec<u8>),
}

impl Stored {
    pub(crate) fn data(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Whole(packed) => packed.data(),
            Bytes::Strips(data) => data,
        }
    }
}

/// Why strips end early.
enum Stop {
    /// The source reads the matrix as a whole.
    Whole,
    /// A value needs single precision.
    Widen,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Self::Failed(e)
    }
}

/// How a weight is packed.
pub(crate) struct Encoder<'a> {
    /// What feeds errors back; its inputs are known.
    pub(crate) feedback: Option<&'a mut dyn Calibration>,
    pub(crate) threads: usize,
    /// As [`crate::ConvertOptions::widen`].
    pub(crate) widen: bool,
}

impl Encoder<'_> {
    /// Reads, changes and packs one weight; says what a matrix lost.
    pub(crate) fn make(
        &mut self,
        source: &dyn TensorSource,
        name: &str,
        expr: &WeightExpr,
        dims: &[usize],
        packing: Packing,
    ) -> Result<(Stored, Option<f64>)> {
        for read in expr.sources() {
            if source.shape(read).is_none() {
                let what = format!("the model needs a tensor `{read}`, which the source does not have");
                return Err(Error::new(ErrorKind::Missing, what).of_tensor(name));
            }
        }
        let malformed = |e: String| Error::new(ErrorKind::Malformed, e).of_tensor(name);
        if let (Some(read), &[n, k]) = (as_it_is(expr), dims)
            && n.saturating_mul(k) > STRIP_ELEMENTS
            && source.shape(read).is_some_and(|shape| has_rows(&shape, [n, k]))
        {
            // Where it can be read so.
            if let Some(made) = self.strips(source, name, read, [n, k], packing) {
                return made;
            }
        }
        let tensor = eval_weight_expr(expr, &Reading(source)).map_err(|e| malformed(e.to_string()))?;
        if tensor.shape() != dims {
            let what = format!(
                "expected shape {dims:?} by the configuration, found {:?}",
                tensor.shape()
            );
            return Err(malformed(what));
        }
        let values = tensor.as_f32().map_err(|e| malformed(e.to_string()))?;
        let (n, k) = match dims {
            [n, k] => (*n, *k),
            _ => (1, values.len()),
        };
        let mut packed = self.pack(packing, [n, k], values);
        if self.may_widen(packing, &packed, values) {
            packed = self.pack(Packing::F32N16, [n, k], values);
        }
        let packed = packed.map_err(|e| malformed(e.to_string()))?;
        let error = packing
            .is_interleaved()
            .then(|| relative(&squares(&packed, values, k, self.threads)));
        let packing = packed.layout().packing();
        let bytes = Bytes::Whole(packed);
        Ok((Stored { packing, bytes }, error))
    }

    /// The same for the source's matrix `read` as it is; `None` where the source reads it only as a whole.
    fn strips(
        &mut self,
        source: &dyn TensorSource,
        name: &str,
        read: &str,
        [n, k]: [usize; 2],
        packing: Packing,
    ) -> Option<Result<(Stored, Option<f64>)>> {
        match self.try_strips(source, name, read, [n, k], packing) {
            Err(Stop::Widen) => self.strips(source, name, read, [n, k], Packing::F32N16),
            Err(Stop::Whole) => None,
            Err(Stop::Failed(e)) => Some(Err(e)),
            Ok(made) => Some(Ok(made)),
        }
    }

    fn try_strips(
        &mut self,
        source: &dyn TensorSource,
        name: &str,
        read: &str,
        [n, k]: [usize; 2],
        packing: Packing,
    ) -> std::result::Result<(Stored, Option<f64>), Stop> {
        let malformed = |e: String| Error::new(ErrorKind::Malformed, e).of_tensor(name);
        let layout = PackedLayout::new(packing, n, k).map_err(|e| malformed(e.to_string()))?;
        let mut data = Vec::with_capacity(layout.data_bytes());
        let mut sums = Vec::new();
        let rows = (STRIP_ELEMENTS / k.max(1)).next_multiple_of(STRIP);
        for first in (0..n).step_by(rows) {
            let range = first..n.min(first + rows);
            let count = range.len();
            let tensor = source.read_rows(read, range).ok_or(Stop::Whole)??;
            let values = tensor.as_f32().map_err(|e| malformed(e.to_string()))?;
            let packed = self.pack(packing, [count, k], values);
            if self.may_widen(packing, &packed, values) {
                return Err(Stop::Widen);
            }
            let packed = packed.map_err(|e| malformed(below(e, first).to_string()))?;
            data.extend_from_slice(packed.data());
            if packing.is_interleaved() {
                sums.extend(squares(&packed, values, k, self.threads));
            }
        }
        let error = packing.is_interleaved().then(|| relative(&sums));
        let bytes = Bytes::Strips(data);
        Ok((Stored { packing, bytes }, error))
    }

    fn pack(&mut self, packing: Packing, [n, k]: [usize; 2], values: &[f32]) -> cactus_quant::Result<Packed> {
        match &mut self.feedback {
            Some(feedback) => feedback.pack(packing, [n, k], values),
            None => pack_on(packing, n, k, values, self.threads),
        }
    }

    /// Whether single precision holds what half does not.
    fn may_widen(&self, packing: Packing, packed: &cactus_quant::Result<Packed>, values: &[f32]) -> bool {
        packing == Packing::F16N16 && self.widen && packed.is_err() && values.iter().all(|x| x.is_finite())
    }
}

/// The tensor whose elements an expression has in their order.
fn as_it_is(expr: &WeightExpr) -> Option<&str> {
    match expr {
        WeightExpr::Source(name) => Some(name),
        WeightExpr::Reshape { x, .. } => as_it_is(x),
        _ => None,
    }
}

/// Whether a tensor of this shape has `n` rows of `k` elements, where all axes but the last count rows.
fn has_rows(shape: &[usize], [n, k]: [usize; 2]) -> bool {
    let Some((&last, leading)) = shape.split_last() else {
        return false;
    };
    last == k && leading.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) == Some(n) && !leading.is_empty()
}

/// An error of a strip by its row in the matrix.
fn below(e: cactus_quant::Error, first: usize) -> cactus_quant::Error {
    match e {
        cactus_quant::Error::Value {
            row,
            column,
            value,
            packing,
        } => cactus_quant::Error::Value {
            row: first + row,
            column,
            value,
            packing,
        },
        other => other,
    }
}

/// Squared error of a packed matrix and the squares of its values, summed by [`STRIP`] rows, on up to `threads` threads.
fn squares(packed: &Packed, values: &[f32], k: usize, threads: usize) -> Vec<(f64, f64)> {
    let strips: Vec<&[f32]> = values.chunks(STRIP * k.max(1)).collect();
    let mut sums = vec![(0f64, 0f64); strips.len()];
    let part = strips.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (p, (strips, sums)) in strips.chunks(part).zip(sums.chunks_mut(part)).enumerate() {
            let work = move || {
                let mut found = vec![0f32; k];
                for (i, (values, sum)) in strips.iter().zip(sums).enumerate() {
                    let (mut error, mut square) = (0f64, 0f64);
                    for (row, values) in values.chunks_exact(k).enumerate() {
                        packed.view().decode_row((p * part + i) * STRIP + row, &mut found);
                        for (&x, &y) in values.iter().zip(&found) {
                            error += f64::from(x - y) * f64::from(x - y);
                            square += f64::from(x) * f64::from(x);
                        }
                    }
                    *sum = (error, square);
                }
            };
            match threads {
                0 | 1 => work(),
                _ => drop(scope.spawn(work)),
            }
        }
    });
    sums
}

/// The error relative to the squares.
fn relative(sums: &[(f64, f64)]) -> f64 {
    let (error, square) = sums
        .iter()
        .fold((0.0, 0.0), |(e, s), (error, square)| (e + error, s + square));
    if square > 0.0 { error / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn an_error_does_not_depend_on_the_threads() {
        let (n, k) = (5 * STRIP + 7, 3);
        let values: Vec<f32> = (0..n * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let packed = pack_on(Packing::Int8G32, n, k, &values, 1).unwrap();
        let one = relative(&squares(&packed, &values, k, 1));
        assert!(one > 0.0 && one < 1e-3, "{one}");
        for threads in [2, 3, 16] {
            let found = relative(&squares(&packed, &values, k, threads));
            assert_eq!(found.to_bits(), one.to_bits());
        }
        assert_eq!(relative(&squares(&packed, &[], 0, 2)), 0.0);
    }

    /// One matrix.
    struct One(Tensor);

    impl TensorSource for One {
        fn names(&self) -> Vec<&str> {
            vec!["w"]
        }
        fn shape(&self, _: &str) -> Option<Vec<usize>> {
            Some(self.0.shape().to_vec())
        }
        fn stored_type(&self, _: &str) -> Option<&'static str> {
            Some("F32")
        }
        fn read(&self, _: &str) -> Result<Tensor> {
            Ok(self.0.clone())
        }
        fn read_rows(&self, _: &str, rows: std::ops::Range<usize>) -> Option<Result<Tensor>> {
            let (&k, values) = (self.0.shape().last().unwrap(), self.0.as_f32().unwrap());
            let part = values[rows.start * k..rows.end * k].to_vec();
            Some(Ok(Tensor::from_f32(vec![rows.len(), k], part).unwrap()))
        }
        fn describe(&self) -> String {
            String::new()
        }
        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    #[test]
    fn strips_have_the_bytes_and_the_error_of_the_whole() {
        let (n, k) = (STRIP_ELEMENTS / 512 + 300, 512);
        let mut values: Vec<f32> = (0..n * k).map(|i| ((i * 37 % 1013) as f32 - 500.0) / 71.0).collect();
        let source = |values: &[f32]| One(Tensor::from_f32(vec![n, k], values.to_vec()).unwrap());
        let mut encoder = Encoder {
            feedback: None,
            threads: 2,
            widen: true,
        };
        let expr = WeightExpr::source("w");
        for packing in [Packing::Cq4G128, Packing::Int8G32, Packing::F16N16] {
            let (stored, error) = encoder.make(&source(&values), "w", &expr, &[n, k], packing).unwrap();
            let whole = pack_on(packing, n, k, &values, 2).unwrap();
            assert!(stored.data() == whole.data() && stored.packing == packing, "{packing}");
            let expected = relative(&squares(&whole, &values, k, 1));
            assert_eq!(error.map(f64::to_bits), Some(expected.to_bits()), "{packing}");
        }
        // The experts of a layer are matrices one below the other, and are read as one.
        let stacked = One(Tensor::from_f32(vec![2, n / 2, k], values.clone()).unwrap());
        let flat = WeightExpr::Reshape {
            x: Box::new(expr.clone()),
            shape: vec![n, k],
        };
        let (stored, _) = encoder.make(&stacked, "w", &flat, &[n, k], Packing::Int8G32).unwrap();
        assert!(matches!(stored.bytes, Bytes::Strips(_)));
        assert!(stored.data() == pack_on(Packing::Int8G32, n, k, &values, 2).unwrap().data());
        values[(n - 1) * k + 3] = 1e9;
        let (stored, _) = encoder
            .make(&source(&values), "w", &expr, &[n, k], Packing::F16N16)
            .unwrap();
        assert_eq!(stored.packing, Packing::F32N16);
        assert!(stored.data() == pack_on(Packing::F32N16, n, k, &values, 2).unwrap().data());
        values[(n - 1) * k + 3] = f32::NAN;
        let error = encoder.make(&source(&values), "w", &expr, &[n, k], Packing::Cq4G128);
        let error = error.err().unwrap().to_string();
        assert!(error.contains(&format!("row {}, column 3", n - 1)), "{error}");
    }
}
