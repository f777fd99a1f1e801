//! Writes GGUF files: only as much as seeds need.

use cactus_import::gguf::{Array, GgufFile, MAGIC, TensorInfo, Value};
use cactus_quant::gguf::GgmlType;

/// What has a shape that the configuration follows.
const FOLLOWED: [&str; 3] = [
    "token_embd.weight",
    "per_layer_token_embd.weight",
    "blk.0.laurel_l.weight",
];

/// The metadata of `file` and those of its tensors that `keep` chooses, with their data from `bytes`. Those whose
/// shape the configuration follows always stay, as zeros in half precision.
pub(crate) fn shrunk(file: &GgufFile, bytes: &[u8], keep: impl Fn(&TensorInfo) -> bool) -> Vec<u8> {
    let is_followed = |t: &TensorInfo| FOLLOWED.contains(&t.name.as_str());
    let tensors: Vec<&TensorInfo> = file.tensors.iter().filter(|t| is_followed(t) || keep(t)).collect();
    let mut out = MAGIC.to_vec();
    out.extend(file.version.to_le_bytes());
    count(&mut out, tensors.len());
    count(&mut out, file.metadata.len());
    for (key, v) in file.metadata.iter() {
        text(&mut out, key);
        value(&mut out, v);
    }
    let mut data = Vec::new();
    for tensor in tensors {
        text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        for &dim in tensor.shape.iter().rev() {
            count(&mut out, dim);
        }
        let ty = if is_followed(tensor) { GgmlType::F16 } else { tensor.ty };
        out.extend(ty.id().to_le_bytes());
        count(&mut out, data.len());
        if is_followed(tensor) {
            data.resize(data.len() + 2 * tensor.elems(), 0);
        } else {
            data.extend(&bytes[tensor.range.clone()]);
        }
        data.resize(data.len().next_multiple_of(file.alignment), 0);
    }
    out.resize(out.len().next_multiple_of(file.alignment), 0);
    out.extend(data);
    out
}

fn count(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u64).to_le_bytes());
}

fn text(out: &mut Vec<u8>, s: &str) {
    count(out, s.len());
    out.extend(s.as_bytes());
}

fn value(out: &mut Vec<u8>, v: &Value) {
    fn scalar<const N: usize>(out: &mut Vec<u8>, ty: u32, bytes: [u8; N]) {
        out.extend(ty.to_le_bytes());
        out.extend(bytes);
    }
    match v {
        Value::U8(n) => scalar(out, 0, n.to_le_bytes()),
        Value::I8(n) => scalar(out, 1, n.to_le_bytes()),
        Value::U16(n) => scalar(out, 2, n.to_le_bytes()),
        Value::I16(n) => scalar(out, 3, n.to_le_bytes()),
        Value::U32(n) => scalar(out, 4, n.to_le_bytes()),
        Value::I32(n) => scalar(out, 5, n.to_le_bytes()),
        Value::F32(n) => scalar(out, 6, n.to_le_bytes()),
        Value::Bool(b) => scalar(out, 7, [u8::from(*b)]),
        Value::U64(n) => scalar(out, 10, n.to_le_bytes()),
        Value::I64(n) => scalar(out, 11, n.to_le_bytes()),
        Value::F64(n) => scalar(out, 12, n.to_le_bytes()),
        Value::String(s) => {
            out.extend(8u32.to_le_bytes());
            text(out, s);
        }
        Value::Array(a) => {
            out.extend(9u32.to_le_bytes());
            array(out, a);
        }
    }
}

fn array(out: &mut Vec<u8>, a: &Array) {
    fn numbers<T: Copy, const N: usize>(out: &mut Vec<u8>, ty: u32, values: &[T], bytes: fn(T) -> [u8; N]) {
        out.extend(ty.to_le_bytes());
        count(out, values.len());
        values.iter().for_each(|&v| out.extend(bytes(v)));
    }
    match a {
        Array::U8(v) => numbers(out, 0, v, u8::to_le_bytes),
        Array::I8(v) => numbers(out, 1, v, i8::to_le_bytes),
        Array::U16(v) => numbers(out, 2, v, u16::to_le_bytes),
        Array::I16(v) => numbers(out, 3, v, i16::to_le_bytes),
        Array::U32(v) => numbers(out, 4, v, u32::to_le_bytes),
        Array::I32(v) => numbers(out, 5, v, i32::to_le_bytes),
        Array::F32(v) => numbers(out, 6, v, f32::to_le_bytes),
        Array::Bool(v) => numbers(out, 7, v, |b| [u8::from(b)]),
        Array::U64(v) => numbers(out, 10, v, u64::to_le_bytes),
        Array::I64(v) => numbers(out, 11, v, i64::to_le_bytes),
        Array::F64(v) => numbers(out, 12, v, f64::to_le_bytes),
        Array::String(v) => {
            out.extend(8u32.to_le_bytes());
            count(out, v.len());
            v.iter().for_each(|s| text(out, s));
        }
        Array::Array(v) => {
            out.extend(9u32.to_le_bytes());
            count(out, v.len());
            v.iter().for_each(|a| array(out, a));
        }
    }
}
