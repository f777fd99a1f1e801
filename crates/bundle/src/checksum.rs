use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// XXH3-64 of some bytes (xxHash specification 0.8), written as 16 hexadecimal digits.
///
/// It detects damage, not forgery: who can change the data can change the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum(pub u64);

impl Checksum {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Checksum(xxh3_64(bytes))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text.len() != 16 {
            return Err(de::Error::custom(format!("`{text}` is not 16 hexadecimal digits")));
        }
        u64::from_str_radix(&text, 16)
            .map(Checksum)
            .map_err(|_| de::Error::custom(format!("`{text}` is not 16 hexadecimal digits")))
    }
}
