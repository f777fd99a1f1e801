//! The tensor record: header, scales and data of one tensor. A `*.weights` file is a sequence of records.

use crate::{Checksum, Error, ErrorKind, Result};
use cactus_quant::Packing;
use cactus_tensor::DType;
use std::path::Path;

/// `CACT` read as a little-endian integer gives 0x54434143.
pub const TENSOR_MAGIC: [u8; 4] = *b"CACT";
/// Version of the tensor record that this crate writes, and the only one it reads.
pub const TENSOR_VERSION: u32 = 1;
/// Bytes of the header.
pub const RECORD_HEADER_BYTES: usize = 128;
/// Records, scales and data start at multiples of this.
pub const RECORD_ALIGNMENT: usize = 64;

const MAX_RANK: usize = 4;

/// Stable code of an element type in a header.
fn dtype_code(dtype: DType) -> u32 {
    match dtype {
        DType::I8 => 0,
        DType::F16 => 1,
        DType::F32 => 2,
        DType::BF16 => 3,
        DType::U8 => 4,
        DType::I32 => 5,
        DType::I64 => 6,
        DType::Bool => 7,
        other => u32::MAX - other.size_bytes() as u32,
    }
}

/// Header of a tensor record. Offsets count from the start of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Logical shape; a linear weight is `[out, in]`.
    pub dims: Vec<usize>,
    /// How the elements are stored.
    pub packing: Packing,
    /// Elements along the input axis that share a scale; 0 where the packing has no groups.
    pub group_size: usize,
    /// First byte of the scales; equal to `data_offset` where the packing keeps scales within the data.
    pub scales_offset: usize,
    /// Bytes of the scales.
    pub scales_bytes: usize,
    /// First byte of the data.
    pub data_offset: usize,
    /// Bytes of the data.
    pub data_bytes: usize,
    /// Bytes from the start of this record to the start of the next.
    pub record_bytes: usize,
    /// Checksum of the scales followed by the data, padding between them included.
    pub payload_checksum: Checksum,
}

impl RecordHeader {
    /// The header of a record of these parts, with offsets and the total size filled in.
    ///
    /// # Errors
    /// Where the rank exceeds 4 or sizes overflow; `path` is named.
    pub fn plan(
        path: &Path,
        dims: &[usize],
        packing: Packing,
        scales_bytes: usize,
        data_bytes: usize,
    ) -> Result<RecordHeader> {
        let overflow = || Error::new(ErrorKind::Invalid, path, "the tensor's size overflows");
        if dims.len() > MAX_RANK {
            let what = format!("a tensor record has at most {MAX_RANK} axes, found {dims:?}");
            return Err(Error::new(ErrorKind::Invalid, path, what));
        }
        let scales_offset = RECORD_HEADER_BYTES;
        let data_offset = scales_offset
            .checked_add(scales_bytes)
            .and_then(|n| n.checked_next_multiple_of(RECORD_ALIGNMENT))
            .ok_or_else(overflow)?;
        let record_bytes = data_offset
            .checked_add(data_bytes)
            .and_then(|n| n.checked_next_multiple_of(RECORD_ALIGNMENT))
            .ok_or_else(overflow)?;
        Ok(RecordHeader {
            dims: dims.to_vec(),
            packing,
            group_size: packing.group_size(),
            scales_offset,
            scales_bytes,
            data_offset,
            data_bytes,
            record_bytes,
            payload_checksum: Checksum(0),
        })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0u8; RECORD_HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &TENSOR_MAGIC);
        put(4, &TENSOR_VERSION.to_le_bytes());
        put(8, &(RECORD_HEADER_BYTES as u32).to_le_bytes());
        put(12, &dtype_code(self.packing.dtype()).to_le_bytes());
        put(16, &self.packing.id().to_le_bytes());
        put(20, &(self.group_size as u32).to_le_bytes());
        put(24, &(self.dims.len() as u32).to_le_bytes());
        for (i, &d) in self.dims.iter().enumerate() {
            put(32 + 8 * i, &(d as u64).to_le_bytes());
        }
        put(64, &(self.scales_offset as u64).to_le_bytes());
        put(72, &(self.scales_bytes as u64).to_le_bytes());
        put(80, &(self.data_offset as u64).to_le_bytes());
        put(88, &(self.data_bytes as u64).to_le_bytes());
        put(96, &(self.record_bytes as u64).to_le_bytes());
        put(104, &self.payload_checksum.0.to_le_bytes());
        let sum = Checksum::of(&out[..120]).0;
        out[120..128].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads and validates the header of the record at `offset` of a file.
    ///
    /// # Errors
    /// Naming `path` and the byte: too short, wrong magic, version, checksum, or sizes that leave the file, overlap or
    /// contradict the packing.
    pub fn decode(path: &Path, file: &[u8], offset: usize) -> Result<RecordHeader> {
        let fail = |kind, at: usize, what: String| {
            Err(Error::new(kind, path, what).at((offset as u64).saturating_add(at as u64)))
        };
        let rest = file.get(offset..).unwrap_or(&[]);
        let Some((head, _)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            let what = format!(
                "a tensor record needs {RECORD_HEADER_BYTES} bytes of header, the file has {} left",
                rest.len()
            );
            return fail(ErrorKind::Truncated, 0, what);
        };
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u64_at = |at: usize| (u64::from(u32_at(at + 4)) << 32) | u64::from(u32_at(at));
        if head[..4] != TENSOR_MAGIC {
            let what = format!("expected a tensor record (CACT), found {:02x?}", &head[..4]);
            return fail(ErrorKind::Invalid, 0, what);
        }
        if u32_at(4) != TENSOR_VERSION {
            let what = format!(
                "the tensor record has format version {}, this program reads version {TENSOR_VERSION}",
                u32_at(4)
            );
            return fail(ErrorKind::Version, 4, what);
        }
        let (found, expected) = (Checksum(u64_at(120)), Checksum::of(&head[..120]));
        if found != expected {
            let what = format!("the header's checksum is {expected}, it says {found}");
            return fail(ErrorKind::Checksum, 120, what);
        }
        if u32_at(8) as usize != RECORD_HEADER_BYTES {
            let what = format!(
                "expected a header of {RECORD_HEADER_BYTES} bytes, it says {}",
                u32_at(8)
            );
            return fail(ErrorKind::Invalid, 8, what);
        }
        let Some(packing) = Packing::from_id(u32_at(16)) else {
            let what = format!("unknown packing id {}; a newer version may have written it", u32_at(16));
            return fail(ErrorKind::Version, 16, what);
        };
        if u32_at(12) != dtype_code(packing.dtype()) {
            let what = format!("dtype code {} does not belong to packing {packing}", u32_at(12));
            return fail(ErrorKind::Invalid, 12, what);
        }
        let rank = u32_at(24) as usize;
        if rank > MAX_RANK {
            return fail(ErrorKind::Invalid, 24, format!("at most {MAX_RANK} axes, found {rank}"));
        }
        let mut sizes = [0usize; 9];
        for (i, slot) in sizes.iter_mut().enumerate() {
            let at = 32 + 8 * i;
            match usize::try_from(u64_at(at)) {
                Ok(n) => *slot = n,
                Err(_) => return fail(ErrorKind::Invalid, at, format!("{} does not fit", u64_at(at))),
            }
        }
        let [.., scales_offset, scales_bytes, data_offset, data_bytes, record_bytes] = sizes;
        if sizes[rank..MAX_RANK].iter().any(|&d| d != 0) || u32_at(28) != 0 || u64_at(112) != 0 {
            return fail(ErrorKind::Invalid, 28, "a reserved field is not zero".into());
        }
        let header = RecordHeader {
            dims: sizes[..rank].to_vec(),
            packing,
            group_size: u32_at(20) as usize,
            scales_offset,
            scales_bytes,
            data_offset,
            data_bytes,
            record_bytes,
            payload_checksum: Checksum(u64_at(104)),
        };
        let planned = RecordHeader::plan(path, &header.dims, packing, scales_bytes, data_bytes)?;
        let planned = RecordHeader {
            payload_checksum: header.payload_checksum,
            ..planned
        };
        if header != planned {
            let what = format!("the layout {header:?} is not the canonical {planned:?}");
            return fail(ErrorKind::Invalid, 64, what);
        }
        match packing.payload_bytes(&header.dims) {
            Some((s, d)) if (s, d) == (scales_bytes, data_bytes) => {}
            expected => {
                let what = format!(
                    "{packing} of shape {:?} needs {expected:?} bytes of scales and data, the header says \
                     ({scales_bytes}, {data_bytes})",
                    header.dims
                );
                return fail(ErrorKind::Invalid, 72, what);
            }
        }
        if record_bytes > rest.len() {
            let what = format!("the record has {record_bytes} bytes, the file has {} left", rest.len());
            return fail(ErrorKind::Truncated, 96, what);
        }
        Ok(header)
    }
}
