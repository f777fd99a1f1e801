//! Dense row-major tensors, owned and borrowed.

use crate::{DType, Error, Result, element_count};
use half::{bf16, f16};

/// Elements of an owned [`Tensor`]. Half-precision types are widened to [`Data::F32`] when a tensor is read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Data {
    /// Single-precision floats.
    F32(Vec<f32>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// Booleans.
    Bool(Vec<bool>),
}

/// An owned, dense, row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

/// Elements of a [`TensorView`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Elements<'a> {
    /// Single-precision floats.
    F32(&'a [f32]),
    /// 64-bit integers.
    I64(&'a [i64]),
    /// Booleans.
    Bool(&'a [bool]),
}

impl Elements<'_> {
    fn len(&self) -> usize {
        match self {
            Elements::F32(v) => v.len(),
            Elements::I64(v) => v.len(),
            Elements::Bool(v) => v.len(),
        }
    }
}

/// A dense, row-major tensor whose elements somebody else owns.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    shape: &'a [usize],
    elements: Elements<'a>,
}

impl<'a> TensorView<'a> {
    /// A tensor of `shape` over `elements`.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn new(shape: &'a [usize], elements: Elements<'a>) -> Result<Self> {
        let (expected, found) = (element_count(shape)?, elements.len());
        if expected != found {
            let shape = shape.to_vec();
            return Err(Error::Length { shape, expected, found });
        }
        Ok(TensorView { shape, elements })
    }

    /// The shape, outermost axis first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The elements.
    pub fn elements(&self) -> Elements<'a> {
        self.elements
    }

    /// Element type: [`DType::F32`], [`DType::I64`] or [`DType::Bool`].
    pub fn dtype(&self) -> DType {
        match self.elements {
            Elements::F32(_) => DType::F32,
            Elements::I64(_) => DType::I64,
            Elements::Bool(_) => DType::Bool,
        }
    }
}

impl Tensor {
    /// A tensor of `shape` over `data`.
    ///
    /// # Errors
    /// [`Error::Length`] where the element counts differ, [`Error::Overflow`] where the shape's does not fit.
    pub fn new(shape: impl Into<Vec<usize>>, data: Data) -> Result<Self> {
        let shape = shape.into();
        let expected = element_count(&shape)?;
        let found = match &data {
            Data::F32(v) => v.len(),
            Data::I64(v) => v.len(),
            Data::Bool(v) => v.len(),
        };
        if expected != found {
            return Err(Error::Length { shape, expected, found });
        }
        Ok(Tensor { shape, data })
    }

    /// A tensor of `f32`.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn from_f32(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Result<Self> {
        Tensor::new(shape, Data::F32(data))
    }

    /// A tensor of `i64`.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn from_i64(shape: impl Into<Vec<usize>>, data: Vec<i64>) -> Result<Self> {
        Tensor::new(shape, Data::I64(data))
    }

    /// A scalar `f32` of shape `[]`.
    pub fn scalar(value: f32) -> Self {
        Tensor {
            shape: Vec::new(),
            data: Data::F32(vec![value]),
        }
    }

    /// Decodes little-endian `bytes` of `dtype`; float types become `f32`, integer types `i64`.
    ///
    /// # Errors
    /// [`Error::Length`] where `bytes` does not hold exactly the elements of `shape`.
    pub fn from_le_bytes(shape: impl Into<Vec<usize>>, dtype: DType, bytes: &[u8]) -> Result<Self> {
        let shape = shape.into();
        let expected = element_count(&shape)?;
        let size = dtype.size_bytes();
        if expected.checked_mul(size) != Some(bytes.len()) {
            return Err(Error::Length {
                shape,
                expected,
                found: bytes.len() / size,
            });
        }
        fn decode<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|&c| f(c)).collect()
        }
        let data = match dtype {
            DType::F32 => Data::F32(decode(bytes, f32::from_le_bytes)),
            DType::F16 => Data::F32(decode(bytes, |b| f16::from_le_bytes(b).to_f32())),
            DType::BF16 => Data::F32(decode(bytes, |b| bf16::from_le_bytes(b).to_f32())),
            DType::I8 => Data::I64(decode(bytes, |b| i8::from_le_bytes(b).into())),
            DType::U8 => Data::I64(bytes.iter().map(|&b| b.into()).collect()),
            DType::I32 => Data::I64(decode(bytes, |b| i32::from_le_bytes(b).into())),
            DType::I64 => Data::I64(decode(bytes, i64::from_le_bytes)),
            DType::Bool => Data::Bool(bytes.iter().map(|&b| b != 0).collect()),
        };
        Ok(Tensor { shape, data })
    }

    /// The shape, outermost axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same tensor, borrowed.
    pub fn view(&self) -> TensorView<'_> {
        let elements = match &self.data {
            Data::F32(v) => Elements::F32(v),
            Data::I64(v) => Elements::I64(v),
            Data::Bool(v) => Elements::Bool(v),
        };
        TensorView {
            shape: &self.shape,
            elements,
        }
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Takes the tensor apart into shape and elements.
    pub fn into_parts(self) -> (Vec<usize>, Data) {
        (self.shape, self.data)
    }

    /// Element type: [`DType::F32`], [`DType::I64`] or [`DType::Bool`].
    pub fn dtype(&self) -> DType {
        match self.data {
            Data::F32(_) => DType::F32,
            Data::I64(_) => DType::I64,
            Data::Bool(_) => DType::Bool,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::F32(v) => v.len(),
            Data::I64(v) => v.len(),
            Data::Bool(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as `f32`.
    ///
    /// # Errors
    /// [`Error::DType`] for any other element type.
    pub fn as_f32(&self) -> Result<&[f32]> {
        match &self.data {
            Data::F32(v) => Ok(v),
            _ => Err(Error::DType {
                expected: "f32",
                found: self.dtype(),
            }),
        }
    }

    /// The elements as `i64`.
    ///
    /// # Errors
    /// [`Error::DType`] for any other element type.
    pub fn as_i64(&self) -> Result<&[i64]> {
        match &self.data {
            Data::I64(v) => Ok(v),
            _ => Err(Error::DType {
                expected: "i64",
                found: self.dtype(),
            }),
        }
    }

    /// The elements as `bool`.
    ///
    /// # Errors
    /// [`Error::DType`] for any other element type.
    pub fn as_bool(&self) -> Result<&[bool]> {
        match &self.data {
            Data::Bool(v) => Ok(v),
            _ => Err(Error::DType {
                expected: "bool",
                found: self.dtype(),
            }),
        }
    }

    /// The same elements under another shape of equal count.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn reshaped(self, shape: impl Into<Vec<usize>>) -> Result<Self> {
        Tensor::new(shape, self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_le_bytes_decodes_every_type() {
        let cases: &[(DType, &[u8], Data)] = &[
            (DType::F32, &[0, 0, 128, 63], Data::F32(vec![1.0])),
            (DType::F16, &[0, 60], Data::F32(vec![1.0])),
            (DType::BF16, &[128, 63], Data::F32(vec![1.0])),
            (DType::I8, &[255], Data::I64(vec![-1])),
            (DType::U8, &[255], Data::I64(vec![255])),
            (DType::I32, &[254, 255, 255, 255], Data::I64(vec![-2])),
            (DType::I64, &[7, 0, 0, 0, 0, 0, 0, 0], Data::I64(vec![7])),
            (DType::Bool, &[1], Data::Bool(vec![true])),
        ];
        for (dtype, bytes, want) in cases {
            let got = Tensor::from_le_bytes([1], *dtype, bytes).unwrap();
            assert_eq!(got.data(), want, "{dtype}");
        }
    }

    #[test]
    fn new_with_wrong_length_is_an_error() {
        assert!(Tensor::from_f32([2, 2], vec![0.0; 3]).is_err());
        assert!(Tensor::from_le_bytes([2], DType::F32, &[0; 7]).is_err());
    }
}
