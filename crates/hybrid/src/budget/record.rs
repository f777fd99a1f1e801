//! The bytes of a budget's journal: records of 64 bytes, little endian.
//!
//! ```text
//!  0  u8   kind          1 header, 2 reservation, 3 settlement, 4 total
//!  1  u8   scope         of a total: 1 session, 2 day, 3 month, 4 user
//!  2  [0; 2]
//!  4  u32  CRC-32 of the other 60 bytes
//!  8  u64  id            of a reservation or settlement; of a header the next one
//! 16  u64  seconds       since 1970
//! 24  u64  amount        pico-dollars
//! 32  u64  a             session; day or month of a total; of a header the magic `CACTUSBJ`
//! 40  u64  b             user; of a header the version
//! 48  u64  0
//! 56  u64  generation    of the file, so that bytes of an older one are none of this one
//! ```

use crate::money::Pico;

/// Bytes of a record.
pub(super) const BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"CACTUSBJ");
const VERSION: u64 = 1;

/// What a total is of, with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Session(u64),
    Day(u64),
    Month(u64),
    User { user: u64, month: u64 },
}

/// A reservation as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) id: u64,
    pub(super) seconds: u64,
    pub(super) amount: Pico,
    pub(super) session: u64,
    pub(super) user: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Header { next: u64, seconds: u64 },
    Reserve(Reserved),
    Settle { id: u64, seconds: u64, amount: Pico },
    Total { sum: Sum, seconds: u64, amount: Pico },
}

impl Record {
    pub(super) fn bytes(self, generation: u64) -> [u8; BYTES] {
        // kind, scope, id, seconds, amount, a, b
        let (kind, scope, words): (u8, u8, [u64; 5]) = match self {
            Record::Header { next, seconds } => (1, 0, [next, seconds, 0, MAGIC, VERSION]),
            Record::Reserve(r) => (2, 0, [r.id, r.seconds, r.amount.0, r.session, r.user]),
            Record::Settle { id, seconds, amount } => (3, 0, [id, seconds, amount.0, 0, 0]),
            Record::Total { sum, seconds, amount } => {
                let (scope, a, b) = match sum {
                    Sum::Session(session) => (1, session, 0),
                    Sum::Day(day) => (2, day, 0),
                    Sum::Month(month) => (3, month, 0),
                    Sum::User { user, month } => (4, month, user),
                };
                (4, scope, [0, seconds, amount.0, a, b])
            }
        };
        let mut bytes = [0; BYTES];
        bytes[0] = kind;
        bytes[1] = scope;
        for (place, word) in bytes[8..48].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[56..].copy_from_slice(&generation.to_le_bytes());
        let crc = crc(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record and the generation of its file; `None` for bytes that are no record.
    pub(super) fn read(bytes: &[u8]) -> Option<(Record, u64)> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
        let (id, seconds, amount, a, b) = (word(8)?, word(16)?, Pico(word(24)?), word(32)?, word(40)?);
        let record = match (bytes[0], bytes[1]) {
            (1, 0) if (a, b) == (MAGIC, VERSION) => Record::Header { next: id, seconds },
            (2, 0) => Record::Reserve(Reserved {
                id,
                seconds,
                amount,
                session: a,
                user: b,
            }),
            (3, 0) => Record::Settle { id, seconds, amount },
            (4, scope) => {
                let sum = match scope {
                    1 => Sum::Session(a),
                    2 => Sum::Day(a),
                    3 => Sum::Month(a),
                    4 => Sum::User { user: b, month: a },
                    _ => return None,
                };
                Record::Total { sum, seconds, amount }
            }
            _ => return None,
        };
        let generation = word(56)?;
        // Compares every byte, those that mean nothing too.
        (record.bytes(generation) == *bytes).then_some((record, generation))
    }
}

fn crc(bytes: &[u8; BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..4]);
    hasher.update(&bytes[8..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_with_any_byte_changed_is_none() {
        let reserved = Reserved {
            id: 7,
            seconds: 8,
            amount: Pico(9),
            session: 10,
            user: 11,
        };
        let user = Sum::User { user: 3, month: 4 };
        for record in [
            Record::Header { next: 5, seconds: 6 },
            Record::Reserve(reserved),
            Record::Settle {
                id: 7,
                seconds: 8,
                amount: Pico(1),
            },
            Record::Total {
                sum: Sum::Session(1),
                seconds: 2,
                amount: Pico(3),
            },
            Record::Total {
                sum: user,
                seconds: 2,
                amount: Pico(3),
            },
        ] {
            let bytes = record.bytes(12);
            assert_eq!(Record::read(&bytes), Some((record, 12)));
            for at in 0..BYTES {
                for flip in [1, 0x80, 0xff] {
                    let mut damaged = bytes;
                    damaged[at] ^= flip;
                    assert_eq!(Record::read(&damaged), None, "byte {at} of {record:?}");
                }
            }
            assert_eq!(Record::read(&bytes[..63]), None);
        }
        assert_eq!(Record::read(&[0; BYTES]), None);
    }
}
