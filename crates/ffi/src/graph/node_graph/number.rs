//! Floats in JSON, those that are not finite too: as their bits where a number cannot say them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Bits { bits: u32 },
    Number(f32),
}

pub(crate) fn serialize<S: Serializer>(value: &f32, s: S) -> Result<S::Ok, S::Error> {
    match value.is_finite() {
        true => Written::Number(*value),
        false => Written::Bits { bits: value.to_bits() },
    }
    .serialize(s)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f32, D::Error> {
    Ok(match Written::deserialize(d)? {
        Written::Bits { bits } => f32::from_bits(bits),
        Written::Number(v) => v,
    })
}
