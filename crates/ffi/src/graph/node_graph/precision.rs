//! The element types that callers see, and their bytes. Inside a graph every number is an `f32`.

use super::{Error, Result};
use cactus_base::AlignedBuf;
use half::f16;
use serde::{Deserialize, Serialize};

/// Element type of a node, by its public code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(i32)]
pub(crate) enum Precision {
    /// Whole numbers from -128 to 127.
    Int8 = 0,
    /// IEEE half precision.
    Fp16 = 1,
    /// IEEE single precision.
    Fp32 = 2,
    /// Codebook indices of 1 bit; of weight files alone, as the following.
    Cq1 = 3,
    /// Codebook indices of 2 bits.
    Cq2 = 4,
    /// Codebook indices of 3 bits.
    Cq3 = 5,
    /// Codebook indices of 4 bits.
    Cq4 = 6,
}

/// Largest finite number of half precision.
pub(crate) const F16_MAX: f32 = 65504.0;

impl Precision {
    /// The precision of a public code.
    pub(crate) fn from_code(code: i32) -> Result<Precision> {
        use Precision::{Cq1, Cq2, Cq3, Cq4, Fp16, Fp32, Int8};
        let all = [Int8, Fp16, Fp32, Cq1, Cq2, Cq3, Cq4];
        let found = usize::try_from(code).ok().and_then(|c| all.get(c));
        found.copied().ok_or_else(|| {
            Error::argument(format!(
                "precision {code} is unknown; expected 0 (INT8), 1 (FP16), 2 (FP32) or 3 to 6 (CQ1 to CQ4)"
            ))
        })
    }

    /// Its public code.
    pub(crate) fn code(self) -> i32 {
        self as i32
    }

    /// Bytes of an element; `None` for codebook indices, which come in groups.
    pub(crate) fn size_bytes(self) -> Option<usize> {
        match self {
            Precision::Int8 => Some(1),
            Precision::Fp16 => Some(2),
            Precision::Fp32 => Some(4),
            _ => None,
        }
    }

    /// Bytes of an element of a value that callers set or read.
    pub(crate) fn plain_bytes(self) -> Result<usize> {
        self.size_bytes().ok_or_else(|| {
            Error::unsupported(format!(
                "values of {self:?} come from weight files alone; expected INT8, FP16 or FP32"
            ))
        })
    }

    /// Precision of what is computed from whole numbers by anything but plain arithmetic.
    pub(crate) fn floating(self) -> Precision {
        match self {
            Precision::Fp32 => Precision::Fp32,
            _ => Precision::Fp16,
        }
    }
}

/// Elements from their bytes.
pub(crate) fn decode(bytes: &[u8], precision: Precision) -> Result<Vec<f32>> {
    precision.plain_bytes()?;
    Ok(match precision {
        Precision::Int8 => bytes.iter().map(|&b| f32::from(b as i8)).collect(),
        Precision::Fp16 => bytes
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
    })
}

/// Bytes of elements, at an address that suits any precision and exists even where there is no element. Halves are rounded
/// to the nearest, whole numbers too, and those too large for eight bits are the largest.
pub(crate) fn encode(values: &[f32], precision: Precision) -> Result<AlignedBuf> {
    let size = precision.plain_bytes()?;
    let mut buffer = AlignedBuf::zeroed((values.len() * size).max(1))?;
    for (to, &v) in buffer.chunks_exact_mut(size).zip(values) {
        match precision {
            Precision::Int8 => to[0] = whole(v) as u8,
            Precision::Fp16 => to.copy_from_slice(&f16::from_f32(v).to_le_bytes()),
            _ => to.copy_from_slice(&v.to_le_bytes()),
        }
    }
    Ok(buffer)
}

/// The nearest whole number of eight bits.
fn whole(v: f32) -> i8 {
    v.round_ties_even() as i8
}

/// What becomes of a number that is kept in `precision`.
pub(crate) fn rounded(v: f32, precision: Precision) -> f32 {
    match precision {
        Precision::Int8 => f32::from(whole(v)),
        Precision::Fp16 => f16::from_f32(v).to_f32(),
        _ => v,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_their_bytes_as_far_as_the_precision_goes() {
        let values = [0.0, -1.0, 1.5, 2.5, 127.4, 300.0, -1e9, 1e-7, 70000.0];
        let cases = [
            (Precision::Int8, [0.0, -1.0, 2.0, 2.0, 127.0, 127.0, -128.0, 0.0, 127.0]),
            (
                Precision::Fp16,
                [
                    0.0,
                    -1.0,
                    1.5,
                    2.5,
                    127.375,
                    300.0,
                    f32::NEG_INFINITY,
                    f16::from_f32(1e-7).to_f32(),
                    f32::INFINITY,
                ],
            ),
            (Precision::Fp32, values),
        ];
        for (precision, want) in cases {
            let bytes = encode(&values, precision).unwrap();
            assert_eq!(decode(&bytes, precision).unwrap(), want, "{precision:?}");
            assert_eq!(values.map(|v| rounded(v, precision)), want, "{precision:?}");
        }
        assert!(!encode(&[], Precision::Fp32).unwrap().is_empty());
        assert!(encode(&[1.0], Precision::Cq4).is_err() && Precision::from_code(7).is_err());
    }
}
