//! Arrays on their way in and out: [`Array`] is what a component computed, which other libraries read where it lies; [`Input`] is
//! an array of another library.
//!
//! Floats of 32 bits that follow each other are read in place. Anything else is copied once: other types become those that the
//! engine computes with, and integers address memory, so they must not change between a check and its use.

use crate::dlpack::{ElementType, Memory, Taken, exported};
use crate::errors;
use cactus_tensor::{DType, Data, Elements, Tensor};
use half::{bf16, f16};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::sync::Arc;

/// What a component computed. It belongs to whoever has it: the engine keeps nothing of it.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Array {
    memory: Arc<Memory>,
    dtype: DType,
    shape: Vec<usize>,
}

impl Array {
    pub(crate) fn new(py: Python<'_>, tensor: Tensor) -> PyResult<Array> {
        let dtype = tensor.dtype();
        let (shape, data) = tensor.into_parts();
        let Some(memory) = Memory::new(data) else {
            let message = format!("Python gets no arrays of the type {dtype}");
            return Err(errors::raise(py, "UnsupportedError", &message, &[]));
        };
        Ok(Array {
            memory: Arc::new(memory),
            dtype,
            shape,
        })
    }
}

#[pymethods]
impl Array {
    /// Sizes, outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The type by the engine's name: `f32`, `i64` or `bool`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// A DLPack capsule over the elements, or with `copy` over a copy of them.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err(
                "an array in the memory of the CPU has no stream; expected None",
            ));
        }
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            let message = "the array is in the memory of the CPU and cannot be handed over on another device";
            return Err(PyBufferError::new_err(message));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        match copy {
            Some(true) => exported(py, &Arc::new(self.memory.copied()), &self.shape, is_versioned, true),
            _ => exported(py, &self.memory, &self.shape, is_versioned, false),
        }
    }

    /// The memory of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// What NumPy reads it by where it lies, also in versions that know less of DLPack.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = PyDict::new(py);
        of.set_item("version", 3)?;
        of.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        let kind = match self.dtype {
            DType::F32 => "<f4",
            DType::I64 => "<i8",
            _ => "|b1",
        };
        of.set_item("typestr", kind)?;
        of.set_item("data", (self.memory.address(), false))?;
        Ok(of)
    }
}

/// An array of another library, of any that has `__dlpack__`. It is read when a component runs.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Input {
    taken: Taken,
    dtype: DType,
}

/// The elements of an input in a type that the engine computes with.
pub(crate) enum Given<'a> {
    InPlace(&'a [f32]),
    Copied(Data),
}

impl Given<'_> {
    pub(crate) fn elements(&self) -> Elements<'_> {
        match self {
            Given::InPlace(elements) => Elements::F32(elements),
            Given::Copied(Data::I64(elements)) => Elements::I64(elements),
            Given::Copied(Data::Bool(elements)) => Elements::Bool(elements),
            Given::Copied(Data::F32(elements)) => Elements::F32(elements),
            Given::Copied(_) => Elements::F32(&[]),
        }
    }
}

impl Input {
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.taken.shape
    }

    /// The elements for an input of the type `wanted`. Floats are not rounded to integers: the engine says that they do not fit.
    pub(crate) fn given(&self, wanted: DType) -> Given<'_> {
        if let Some(floats) = self.taken.floats() {
            return Given::InPlace(floats);
        }
        let ElementType { code, bits, .. } = self.taken.dtype;
        let of = &self.taken;
        Given::Copied(match (code, bits) {
            (FLOAT, 16) => Data::F32(of.copied(|b| f16::from_le_bytes(b).to_f32())),
            (BFLOAT, _) => Data::F32(of.copied(|b| bf16::from_le_bytes(b).to_f32())),
            (FLOAT, 32) => Data::F32(of.copied(f32::from_ne_bytes)),
            (FLOAT, _) => Data::F32(of.copied(|b| f64::from_ne_bytes(b) as f32)),
            (INT, 8) => whole(wanted, of, |b| i8::from_ne_bytes(b).into()),
            (INT, 16) => whole(wanted, of, |b| i16::from_ne_bytes(b).into()),
            (INT, 32) => whole(wanted, of, |b| i32::from_ne_bytes(b).into()),
            (INT, _) => whole(wanted, of, i64::from_ne_bytes),
            (UINT, 16) => whole(wanted, of, |b| u16::from_ne_bytes(b).into()),
            (UINT, 32) => whole(wanted, of, |b| u32::from_ne_bytes(b).into()),
            (BOOL, _) => whole(wanted, of, |[b]: [u8; 1]| (b != 0).into()),
            _ => whole(wanted, of, |[b]: [u8; 1]| b.into()),
        })
    }
}

/// Integers and booleans as `wanted`.
fn whole<const N: usize>(wanted: DType, of: &Taken, decode: impl Fn([u8; N]) -> i64) -> Data {
    match wanted {
        DType::Bool => Data::Bool(of.copied(|b| decode(b) != 0)),
        wanted if wanted.is_float() => Data::F32(of.copied(|b| decode(b) as f32)),
        _ => Data::I64(of.copied(decode)),
    }
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

#[pymethods]
impl Input {
    /// Takes the array of an object with `__dlpack__`.
    #[new]
    fn new(value: &Bound<'_, PyAny>) -> PyResult<Input> {
        let taken = Taken::of(value)?;
        let ElementType { code, bits, lanes } = taken.dtype;
        let dtype = match (code, bits) {
            (FLOAT, 16) => DType::F16,
            (BFLOAT, 16) => DType::BF16,
            (FLOAT, 32 | 64) => DType::F32,
            (INT, 8 | 16 | 32 | 64) | (UINT, 8 | 16 | 32) => DType::I64,
            (BOOL, 8) => DType::Bool,
            _ => return Err(unknown(taken.dtype)),
        };
        if lanes != 1 {
            return Err(unknown(taken.dtype));
        }
        Ok(Input { taken, dtype })
    }

    /// Sizes, outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.taken.shape)
    }

    /// The type that the elements are read as, by the engine's name.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Whether the elements can be read where they lie.
    #[getter]
    fn in_place(&self) -> bool {
        self.taken.floats().is_some()
    }
}

fn unknown(dtype: ElementType) -> PyErr {
    let name = match dtype.code {
        INT => "int",
        UINT => "uint",
        FLOAT => "float",
        BFLOAT => "bfloat",
        5 => "complex",
        BOOL => "bool",
        _ => "DLPack type ",
    };
    let lanes = if dtype.lanes == 1 {
        String::new()
    } else {
        format!("x{}", dtype.lanes)
    };
    PyBufferError::new_err(format!(
        "elements of {name}{}{lanes} are not taken; expected bool, int8 to int64, uint8 to uint32, float16, bfloat16, float32 or \
         float64",
        dtype.bits
    ))
}
