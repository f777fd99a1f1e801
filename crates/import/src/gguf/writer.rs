//! A small GGUF writer for tests.

use super::metadata::{Array, Value};

/// A file under construction.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) version: u32,
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) alignment: usize,
}

/// A tensor to be written; `dims` in file order, contiguous first.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) ty: u32,
    pub(crate) data: Vec<u8>,
    /// Overrides the offset that the writer would choose.
    pub(crate) offset: Option<u64>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Writer {
            version: 3,
            metadata: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
        }
    }

    pub(crate) fn key(mut self, key: &str, value: Value) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.key(key, Value::String(value.to_owned()))
    }

    pub(crate) fn count(self, key: &str, value: u32) -> Self {
        self.key(key, Value::U32(value))
    }

    pub(crate) fn texts(self, key: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|&v| v.to_owned()).collect();
        self.key(key, Value::Array(Array::String(values)))
    }

    /// Adds an F32 tensor; `shape` is row-major.
    pub(crate) fn f32(mut self, name: &str, shape: &[u64], values: &[f32]) -> Self {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dims: shape.iter().rev().copied().collect(),
            ty: 0,
            data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            offset: None,
        });
        self
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            write_value(&mut out, value);
        }
        let mut data = Vec::new();
        for t in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            string(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            out.extend(t.dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            out.extend(t.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend_from_slice(&t.data);
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(data);
        out
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    let mut typed = |id: u32, bytes: &[u8]| {
        out.extend(id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => typed(0, &v.to_le_bytes()),
        Value::I8(v) => typed(1, &v.to_le_bytes()),
        Value::U16(v) => typed(2, &v.to_le_bytes()),
        Value::I16(v) => typed(3, &v.to_le_bytes()),
        Value::U32(v) => typed(4, &v.to_le_bytes()),
        Value::I32(v) => typed(5, &v.to_le_bytes()),
        Value::F32(v) => typed(6, &v.to_le_bytes()),
        Value::Bool(v) => typed(7, &[u8::from(*v)]),
        Value::String(v) => {
            typed(8, &[]);
            string(out, v);
        }
        Value::Array(v) => {
            typed(9, &[]);
            write_array(out, v);
        }
        Value::U64(v) => typed(10, &v.to_le_bytes()),
        Value::I64(v) => typed(11, &v.to_le_bytes()),
        Value::F64(v) => typed(12, &v.to_le_bytes()),
    }
}

fn write_array(out: &mut Vec<u8>, array: &Array) {
    let mut head = |id: u32| {
        out.extend(id.to_le_bytes());
        out.extend((array.len() as u64).to_le_bytes());
    };
    match array {
        Array::U8(v) => {
            head(0);
            out.extend(v);
        }
        Array::I8(v) => {
            head(1);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::U16(v) => {
            head(2);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::I16(v) => {
            head(3);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::U32(v) => {
            head(4);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::I32(v) => {
            head(5);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::F32(v) => {
            head(6);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::Bool(v) => {
            head(7);
            out.extend(v.iter().map(|&x| u8::from(x)));
        }
        Array::String(v) => {
            head(8);
            v.iter().for_each(|x| string(out, x));
        }
        Array::Array(v) => {
            head(9);
            v.iter().for_each(|x| write_array(out, x));
        }
        Array::U64(v) => {
            head(10);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::I64(v) => {
            head(11);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
        Array::F64(v) => {
            head(12);
            out.extend(v.iter().flat_map(|x| x.to_le_bytes()));
        }
    }
}
