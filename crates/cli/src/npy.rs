//! NumPy's `.npy` files: one array each, little-endian and row-major. What NumPy calls pickled is refused.

use anyhow::{Context, Result, bail};
use cactus_tensor::{DType, Data, Tensor};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header fills the file up to a multiple of this.
const ALIGNMENT: usize = 64;

/// Reads an array.
pub(crate) fn read(path: &Path) -> Result<Tensor> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    parse(&bytes).with_context(|| format!("cannot read `{}` as a .npy array", path.display()))
}

fn parse(bytes: &[u8]) -> Result<Tensor> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        bail!("expected a file that begins with `\\x93NUMPY`");
    };
    let (major, rest) = match rest {
        [major @ 1..=3, _, rest @ ..] => (*major, rest),
        _ => bail!("expected version 1, 2 or 3 of the format"),
    };
    let (len, rest) = match (major, rest) {
        (1, [a, b, rest @ ..]) => (u32::from(u16::from_le_bytes([*a, *b])), rest),
        (2 | 3, [a, b, c, d, rest @ ..]) => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        _ => bail!("its header is cut off"),
    };
    let Some((header, data)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)) else {
        bail!("its header is cut off");
    };
    let header = std::str::from_utf8(header).context("its header is not text")?;
    let descr = value(header, "descr").trim_matches(['\'', '"']);
    if value(header, "fortran_order") != "False" {
        bail!("the array is in column-major (Fortran) order; save np.ascontiguousarray(x) instead");
    }
    let shape: Result<Vec<usize>, _> = value(header, "shape")
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(str::parse)
        .collect();
    let shape = shape.context("its shape is not a list of sizes")?;
    if descr == "<f8" {
        let values: Vec<f32> = data
            .as_chunks::<8>()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b) as f32)
            .collect();
        return Ok(Tensor::from_f32(shape, values)?);
    }
    let dtype = match descr {
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "|i1" => DType::I8,
        "|u1" => DType::U8,
        "|b1" => DType::Bool,
        other => {
            bail!(
                "its element type `{other}` is not supported; supported are little-endian f2, f4, f8, i4, i8, and i1, u1, b1"
            )
        }
    };
    Ok(Tensor::from_le_bytes(shape, dtype, data)?)
}

/// The text of a key of the header, up to the next key.
fn value<'a>(header: &'a str, key: &str) -> &'a str {
    let Some((_, rest)) = header.split_once(&format!("'{key}':")) else {
        return "";
    };
    let rest = rest.trim_start();
    let end = match rest.starts_with('(') {
        true => rest.find(')').map(|i| i + 1),
        false => rest.find([',', '}']),
    };
    rest[..end.unwrap_or(rest.len())].trim()
}

/// The bytes of an array's file.
pub(crate) fn encode(tensor: &Tensor) -> Result<Vec<u8>> {
    let (descr, data): (&str, Vec<u8>) = match tensor.data() {
        Data::F32(v) => ("<f4", v.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Data::I64(v) => ("<i8", v.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Data::Bool(v) => ("|b1", v.iter().map(|&b| b.into()).collect()),
        _ => bail!("an array of {} cannot be written as .npy", tensor.dtype()),
    };
    let sizes: Vec<String> = tensor.shape().iter().map(|n| format!("{n},")).collect();
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        sizes.join(" ")
    );
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before - 1;
    header.push_str(&" ".repeat(padded - header.len()));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    // A shape has few axes, so the header is short.
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_round_trip() {
        let cases = [
            Tensor::from_f32([2, 3], vec![1.0, -2.5, 0.0, f32::INFINITY, 1e-30, 7.0]).unwrap(),
            Tensor::from_i64([4], vec![1, -2, 3, i64::MAX]).unwrap(),
            Tensor::new([], Data::Bool(vec![true])).unwrap(),
            Tensor::from_f32([0, 2], vec![]).unwrap(),
        ];
        for t in cases {
            let bytes = encode(&t).unwrap();
            assert_eq!(bytes.len() % 64, bytes.len().saturating_sub(128) % 64);
            assert_eq!(parse(&bytes).unwrap(), t);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = encode(&Tensor::from_f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
        for n in 0..whole.len() {
            assert!(parse(&whole[..n]).is_err(), "{n}");
        }
        let text = |from: &str, to: &str| {
            let s: Vec<u8> = whole.clone();
            let at = s.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            [&s[..at], to.as_bytes(), &s[at + from.len()..]].concat()
        };
        for (from, to) in [
            ("<f4", ">f4"),
            ("False", "True "),
            ("(2,)", "(3,)"),
            ("(2,)", "(x,)"),
            ("<f4", "|O8"),
        ] {
            assert!(parse(&text(from, to)).is_err(), "{to}");
        }
    }
}
