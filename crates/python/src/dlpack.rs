//! DLPack: arrays go from library to library where they lie, in a capsule that says how to read and how to free them
//! (<https://dmlc.github.io/dlpack/latest/>; both structures, that of versions before 1.0 and that from 1.0 on).
//!
//! This file has all of the crate's `unsafe`: [`exported`] makes a capsule of what the engine computed, and [`Taken`] reads what
//! somebody else's capsule holds.

use cactus_tensor::Data;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyCapsule};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// The version that is written, and whose structure is read.
const VERSION: (u32, u32) = (1, 0);
const FLAG_COPIED: u64 = 1 << 1;
/// Memory of the CPU, and the same where a GPU can read it too.
const CPU: i32 = 1;
const CPU_PINNED: i32 = 3;
/// Most axes of an array that is taken.
const MAX_AXES: usize = 64;

const OLD: &CStr = c"dltensor";
const OLD_USED: &CStr = c"used_dltensor";
const NEW: &CStr = c"dltensor_versioned";
const NEW_USED: &CStr = c"used_dltensor_versioned";

/// Kind of number (0 integer, 1 unsigned, 2 float, 4 bfloat16, 6 boolean), its bits, and how many make an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: ElementType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: RawTensor,
}

// ---- out

/// Elements at one address, until the last holder is dropped. Whoever gets them may write to them, so nothing refers to them here.
pub(crate) struct Memory {
    /// Owns the elements. Booleans are bytes, because another library may write any byte.
    data: Owned,
    first: *mut c_void,
    dtype: ElementType,
}

enum Owned {
    F32(Vec<f32>),
    I64(Vec<i64>),
    Bytes(Vec<u8>),
}

// SAFETY: the pointer is to memory that `data` owns, and it is only handed on.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes elements; `None` for a type that is not handed on.
    pub(crate) fn new(data: Data) -> Option<Memory> {
        Some(Memory::of(match data {
            Data::F32(v) => Owned::F32(v),
            Data::I64(v) => Owned::I64(v),
            Data::Bool(v) => Owned::Bytes(v.into_iter().map(u8::from).collect()),
            _ => return None,
        }))
    }

    fn of(mut data: Owned) -> Memory {
        let (first, code, bits) = match &mut data {
            Owned::F32(v) => (v.as_mut_ptr().cast(), 2, 32),
            Owned::I64(v) => (v.as_mut_ptr().cast(), 0, 64),
            Owned::Bytes(v) => (v.as_mut_ptr().cast(), 6, 8),
        };
        let dtype = ElementType { code, bits, lanes: 1 };
        Memory { data, first, dtype }
    }

    /// The same elements elsewhere.
    pub(crate) fn copied(&self) -> Memory {
        fn elements<T: Copy>(first: *mut c_void, owner: &[T]) -> Vec<T> {
            // SAFETY: as many elements as the owner has lie there, and any bits are one.
            unsafe { std::slice::from_raw_parts(first.cast(), owner.len()) }.to_vec()
        }
        Memory::of(match &self.data {
            Owned::F32(v) => Owned::F32(elements(self.first, v)),
            Owned::I64(v) => Owned::I64(elements(self.first, v)),
            Owned::Bytes(v) => Owned::Bytes(elements(self.first, v)),
        })
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> usize {
        self.first.addr()
    }
}

/// What a capsule points to: the structure, and what it points to.
struct Exported<M> {
    managed: M,
    _memory: Arc<Memory>,
    /// Sizes, then strides in elements.
    _sizes: Vec<i64>,
}

fn boxed<M>(memory: &Arc<Memory>, shape: &[usize], make: impl FnOnce(RawTensor) -> M) -> *mut Exported<M> {
    let strides = cactus_tensor::strides_row_major(shape);
    let mut sizes: Vec<i64> = shape.iter().chain(&strides).map(|&n| n as i64).collect();
    let tensor = RawTensor {
        data: if shape.contains(&0) {
            std::ptr::null_mut()
        } else {
            memory.first
        },
        device: Device { kind: CPU, id: 0 },
        ndim: shape.len() as i32,
        dtype: memory.dtype,
        shape: sizes.as_mut_ptr(),
        strides: sizes.as_mut_ptr().wrapping_add(shape.len()),
        byte_offset: 0,
    };
    Box::into_raw(Box::new(Exported {
        managed: make(tensor),
        _memory: Arc::clone(memory),
        _sizes: sizes,
    }))
}

/// A capsule over `memory`, row-major, which keeps it alive. `is_copied` says that nobody else has it.
pub(crate) fn exported<'py>(
    py: Python<'py>,
    memory: &Arc<Memory>,
    shape: &[usize],
    is_versioned: bool,
    is_copied: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    unsafe extern "C" fn delete_old(managed: *mut Unversioned) {
        // SAFETY: whoever takes the tensor calls this once, with what the capsule pointed to; its context is the box around it.
        unsafe { drop(Box::from_raw((*managed).context.cast::<Exported<Unversioned>>())) }
    }
    unsafe extern "C" fn delete_new(managed: *mut Versioned) {
        // SAFETY: as above.
        unsafe { drop(Box::from_raw((*managed).context.cast::<Exported<Versioned>>())) }
    }
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if is_versioned {
        let exported = boxed(memory, shape, |tensor| Versioned {
            major: VERSION.0,
            minor: VERSION.1,
            context: std::ptr::null_mut(),
            deleter: Some(delete_new),
            flags: if is_copied { FLAG_COPIED } else { 0 },
            tensor,
        });
        // SAFETY: the box was just made, and nobody else has it.
        let managed = unsafe {
            (*exported).managed.context = exported.cast();
            &raw mut (*exported).managed
        };
        (managed.cast(), NEW, destroy_new)
    } else {
        let exported = boxed(memory, shape, |tensor| Unversioned {
            tensor,
            context: std::ptr::null_mut(),
            deleter: Some(delete_old),
        });
        // SAFETY: as above.
        let managed = unsafe {
            (*exported).managed.context = exported.cast();
            &raw mut (*exported).managed
        };
        (managed.cast(), OLD, destroy_old)
    };
    let pointer = NonNull::new(pointer).ok_or_else(|| PyBufferError::new_err("there is no array"))?;
    // SAFETY: the pointer is to the structure that the name promises, which lives until its deleter is called: by whoever takes
    // it, or by the destructor where nobody has. Both free memory alone, so they may run on any thread.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

unsafe extern "C" fn destroy_old(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule. Who took the tensor has renamed it, and deletes the tensor itself.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast::<Unversioned>();
            if let Some(delete) = (*managed).deleter {
                delete(managed);
            }
        }
    }
}

unsafe extern "C" fn destroy_new(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast::<Versioned>();
            if let Some(delete) = (*managed).deleter {
                delete(managed);
            }
        }
    }
}

// ---- in

enum Managed {
    Old(NonNull<Unversioned>),
    New(NonNull<Versioned>),
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the structure was taken out of its capsule, which was renamed, so this is the one call of its deleter. A library
        // whose deleter needs the interpreter enters it there.
        unsafe {
            match self {
                Managed::Old(managed) => {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
                Managed::New(managed) => {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// An array of another library, held until this is dropped.
pub(crate) struct Taken {
    _managed: Managed,
    first: *const u8,
    pub(crate) dtype: ElementType,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    strides: Vec<isize>,
    count: usize,
}

// SAFETY: the memory is only read, and DLPack lets a deleter be called from any thread.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Taken {
    /// Takes the array out of an object with `__dlpack__`, by the newest structure that it knows.
    ///
    /// # Errors
    /// `BufferError` for memory that is no CPU's and for a capsule that somebody took already; what the object's own methods raise.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Taken> {
        let py = value.py();
        let (kind, _): (i32, i32) = value.call_method0("__dlpack_device__")?.extract()?;
        if !matches!(kind, CPU | CPU_PINNED) {
            return Err(PyBufferError::new_err(format!(
                "expected an array in the memory of the CPU, found one on a device of DLPack's kind {kind}; copy it first"
            )));
        }
        let newest = [("max_version", VERSION)].into_py_dict(py)?;
        let capsule = match value.call_method("__dlpack__", (), Some(&newest)) {
            // It is older than the argument.
            Err(e) if e.is_instance_of::<PyTypeError>(py) => value.call_method0("__dlpack__")?,
            made => made?,
        };
        Taken::out_of(capsule.cast::<PyCapsule>()?)
    }

    fn out_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Taken> {
        let holds = |name: &CStr| {
            // SAFETY: the capsule is one, and the name ends with a zero.
            unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
        };
        let taken = |name: &CStr, used: &'static CStr| -> PyResult<NonNull<c_void>> {
            // SAFETY: as above; the new name is never freed.
            let pointer = unsafe {
                let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
                match ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) {
                    0 => pointer,
                    _ => std::ptr::null_mut(),
                }
            };
            NonNull::new(pointer).ok_or_else(|| PyErr::fetch(capsule.py()))
        };
        let managed = if holds(NEW) {
            Managed::New(taken(NEW, NEW_USED)?.cast())
        } else if holds(OLD) {
            Managed::Old(taken(OLD, OLD_USED)?.cast())
        } else {
            return Err(PyBufferError::new_err(
                "expected a DLPack capsule that nobody has taken yet, found another one or one that was taken",
            ));
        };
        // SAFETY: the name of the capsule says what its pointer is to, and the structure lives until `managed` is dropped. The first
        // fields are the same in every version, and the others are read for a version that is known.
        let tensor = unsafe {
            match &managed {
                Managed::Old(managed) => &managed.as_ref().tensor,
                Managed::New(managed) => match managed.as_ref().major {
                    1 => &managed.as_ref().tensor,
                    major => {
                        let message = format!("expected an array of DLPack 1, found one of DLPack {major}");
                        return Err(PyBufferError::new_err(message));
                    }
                },
            }
        };
        let wrong = |what: &str| PyBufferError::new_err(format!("the DLPack capsule is wrong: {what}"));
        let axes = usize::try_from(tensor.ndim).ok().filter(|&n| n <= MAX_AXES);
        let axes = axes.ok_or_else(|| wrong(&format!("it has {} axes", tensor.ndim)))?;
        let sizes = |from: *const i64| match axes {
            0 => Some(Vec::new()),
            // SAFETY: an array that is not null has a number for each axis.
            _ => (!from.is_null()).then(|| unsafe { std::slice::from_raw_parts(from, axes) }.to_vec()),
        };
        let shape = sizes(tensor.shape).ok_or_else(|| wrong("it has no shape"))?;
        let shape: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
        let shape = shape.ok_or_else(|| wrong("a size is negative"))?;
        let count = cactus_tensor::element_count(&shape).map_err(|e| wrong(&e.to_string()))?;
        let strides = match sizes(tensor.strides) {
            Some(strides) => strides.iter().map(|&n| n as isize).collect(),
            None => cactus_tensor::strides_row_major(&shape)
                .iter()
                .map(|&n| n as isize)
                .collect(),
        };
        if tensor.data.is_null() && count > 0 {
            return Err(wrong("it has no memory"));
        }
        Ok(Taken {
            first: tensor
                .data
                .cast::<u8>()
                .cast_const()
                .wrapping_add(tensor.byte_offset as usize),
            dtype: tensor.dtype,
            shape,
            strides,
            count,
            _managed: managed,
        })
    }

    /// Whether the elements follow each other, row-major.
    fn is_dense(&self) -> bool {
        let dense = cactus_tensor::strides_row_major(&self.shape);
        let mut axes = self.shape.iter().zip(self.strides.iter().zip(dense));
        self.count == 0 || axes.all(|(&size, (&stride, dense))| size == 1 || stride == dense as isize)
    }

    /// The elements where they lie, if they are `f32`, dense and aligned. Whoever has the array must leave it as it is meanwhile:
    /// of elements that change, any may be read.
    pub(crate) fn floats(&self) -> Option<&[f32]> {
        let is_f32 = self.dtype
            == (ElementType {
                code: 2,
                bits: 32,
                lanes: 1,
            });
        if !is_f32 || !self.is_dense() || !self.first.cast::<f32>().is_aligned() {
            return None;
        }
        if self.count == 0 {
            return Some(&[]);
        }
        // SAFETY: `count` elements lie there, until `self` is dropped, by what the library said that made the capsule; they are
        // aligned, and any bits are a float.
        Some(unsafe { std::slice::from_raw_parts(self.first.cast(), self.count) })
    }

    /// A copy of the elements, row-major, whatever the strides.
    ///
    /// # Panics
    /// Where `N` is not the size of an element in bytes.
    pub(crate) fn copied<const N: usize, T>(&self, decode: impl Fn([u8; N]) -> T) -> Vec<T> {
        assert_eq!((self.dtype.bits.div_ceil(8).into(), self.dtype.lanes), (N, 1));
        let mut to = Vec::with_capacity(self.count);
        let mut at = vec![0usize; self.shape.len()];
        let mut offset = 0isize;
        let inner = self.shape.last().copied().unwrap_or(1);
        let step = self.strides.last().copied().unwrap_or(0).wrapping_mul(N as isize);
        while to.len() < self.count {
            let row = self.first.wrapping_offset(offset.wrapping_mul(N as isize));
            for i in 0..inner {
                // SAFETY: the element lies there by shape and strides, as the library said that made the capsule. Bytes need no
                // alignment.
                let bytes = unsafe {
                    row.wrapping_offset(step.wrapping_mul(i as isize))
                        .cast::<[u8; N]>()
                        .read()
                };
                to.push(decode(bytes));
            }
            // The next row: the last axis but one counts first.
            for axis in (0..at.len().saturating_sub(1)).rev() {
                at[axis] += 1;
                offset = offset.wrapping_add(self.strides[axis]);
                if at[axis] < self.shape[axis] {
                    break;
                }
                offset = offset.wrapping_sub(self.strides[axis].wrapping_mul(at[axis] as isize));
                at[axis] = 0;
            }
        }
        to
    }
}
