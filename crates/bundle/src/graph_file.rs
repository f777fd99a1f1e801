//! `graph.cactus`: a header with a checksum, then the graph in CBOR (RFC 8949) with named fields, so that an operation
//! added later changes no number that an old file holds.

use crate::{Checksum, Error, ErrorKind, Result};
use cactus_ir::Graph;
use std::path::Path;

/// First bytes of a `graph.cactus`.
pub const GRAPH_MAGIC: [u8; 4] = *b"CGRF";
/// Version of the file's header that this crate writes, and the only one it reads.
pub const GRAPH_VERSION: u32 = 1;

const HEADER_BYTES: usize = 32;
const ENCODING_CBOR: u32 = 1;

/// The bytes of a `graph.cactus`.
pub fn encode_graph(graph: &Graph) -> Vec<u8> {
    let mut payload = Vec::new();
    ciborium::into_writer(graph, &mut payload).expect("writing a graph to memory cannot fail");
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    out.extend_from_slice(&GRAPH_MAGIC);
    out.extend_from_slice(&GRAPH_VERSION.to_le_bytes());
    out.extend_from_slice(&ENCODING_CBOR.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&Checksum::of(&payload).0.to_le_bytes());
    out.extend_from_slice(&payload);
    out
}

/// Reads and verifies the bytes of a `graph.cactus`; `path` is named in errors.
///
/// # Errors
/// Wrong magic, version, size or checksum; a payload that is no graph; a graph that does not verify.
pub fn decode_graph(path: &Path, bytes: &[u8]) -> Result<Graph> {
    let fail = |kind, at: u64, what: String| Err(Error::new(kind, path, what).at(at));
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let what = format!(
            "a graph needs {HEADER_BYTES} bytes of header, the file has {}",
            bytes.len()
        );
        return fail(ErrorKind::Truncated, 0, what);
    };
    let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let u64_at = |at: usize| (u64::from(u32_at(at + 4)) << 32) | u64::from(u32_at(at));
    if head[..4] != GRAPH_MAGIC {
        let what = format!("expected a graph (CGRF), found {:02x?}", &head[..4]);
        return fail(ErrorKind::Invalid, 0, what);
    }
    if u32_at(4) != GRAPH_VERSION || u32_at(8) != ENCODING_CBOR || u32_at(12) != 0 {
        let what = format!(
            "the graph has format version {} (encoding {}), this program reads version {GRAPH_VERSION} (encoding \
             {ENCODING_CBOR})",
            u32_at(4),
            u32_at(8)
        );
        return fail(ErrorKind::Version, 4, what);
    }
    if u64_at(16) != payload.len() as u64 {
        let what = format!(
            "the header says {} bytes of graph, the file has {}",
            u64_at(16),
            payload.len()
        );
        return fail(ErrorKind::Truncated, 16, what);
    }
    let (found, expected) = (Checksum(u64_at(24)), Checksum::of(payload));
    if found != expected {
        let what = format!("the graph's checksum is {expected}, the header says {found}");
        return fail(ErrorKind::Checksum, 24, what);
    }
    ciborium::from_reader(payload).or_else(|e| {
        fail(
            ErrorKind::Invalid,
            HEADER_BYTES as u64,
            format!("the graph is not readable: {e}"),
        )
    })
}
