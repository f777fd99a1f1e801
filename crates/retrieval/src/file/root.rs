//! The two roots, which take turns: each commit writes the one that does not hold.

use super::directory::Span;
use super::disk::Disk;
use super::fields::{Append, Fields};
use super::header::Header;
use super::{BLOCK, checksum};
use crate::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 4] = *b"CROT";
/// Bytes of a root.
const BYTES: usize = 64;
/// Neither commits nor bytes become so many; what is below can be counted on from.
const LIMIT: u64 = 1 << 62;
/// How often a reader looks again that finds both roots half-written: a writer changes one at a time.
const ATTEMPTS: usize = 20;

/// What a commit put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Counts commits from 1.
    pub(crate) generation: u64,
    pub(crate) directory: Span,
    /// End of everything that belongs to this commit. What lies behind it was never committed.
    pub(crate) end: u64,
}

/// Where the first byte behind the roots is.
pub(crate) fn data_start(header: &Header) -> u64 {
    header.bytes + 2 * BLOCK
}

fn place(header: &Header, generation: u64) -> u64 {
    header.bytes + generation % 2 * BLOCK
}

impl Root {
    /// Writes this root over the older one.
    pub(crate) fn write(&self, disk: &Disk, header: &Header) -> Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.u32(0);
        bytes.u64(header.instance);
        bytes.u64(self.generation);
        bytes.u64(self.directory.offset);
        bytes.u64(self.directory.bytes);
        bytes.u64(self.directory.checksum);
        bytes.u64(self.end);
        let sum = checksum(&bytes);
        bytes.u64(sum);
        disk.write(place(header, self.generation), &bytes)
    }

    /// The newer of the roots that are whole.
    pub(crate) fn read(disk: &Disk, header: &Header) -> Result<Root> {
        for attempt in 0..ATTEMPTS {
            let mut newest: Option<Root> = None;
            for generation in 0..2 {
                let mut bytes = [0; BYTES];
                let at = place(header, generation);
                let whole = disk.read(at, &mut bytes)? == BYTES;
                let root = Root::parse(&bytes, header).filter(|root| whole && root.generation % 2 == generation);
                if root.is_some_and(|root| newest.is_none_or(|newest| newest.generation < root.generation)) {
                    newest = root;
                }
            }
            if let Some(root) = newest {
                return Ok(root);
            }
            if attempt > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        let what = "expected a root with its checksum here or 4096 bytes further, found none";
        Err(Error::new(ErrorKind::Damaged, &disk.path, what).at(place(header, 0)))
    }

    fn parse(bytes: &[u8; BYTES], header: &Header) -> Option<Root> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(content) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut fields = Fields(content);
        if fields.take(4)? != MAGIC || fields.u32()? != 0 || fields.u64()? != header.instance {
            return None;
        }
        let root = Root {
            generation: fields.u64()?,
            directory: Span {
                offset: fields.u64()?,
                bytes: fields.u64()?,
                checksum: fields.u64()?,
            },
            end: fields.u64()?,
        };
        (root.generation < LIMIT && root.end < LIMIT).then_some(root)
    }
}
