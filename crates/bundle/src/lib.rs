//! The on-disk bundle: what conversion writes and the runtime maps.
//!
//! A bundle is a folder. `components/manifest.json` lists the components; each has a serialized portable graph
//! (`graph.cactus`), the graph before and after the passes as JSON, and `graph_bindings.json`, which names the stored
//! tensor behind each weight of the graph. `weights_manifest.json` says where each tensor lies in the `*.weights` files.
//! `docs/reference/format.md` describes every byte.
//!
//! - [`BundleWriter`] builds a bundle in a temporary folder and renames it into place: what is half-written never looks
//!   whole.
//! - [`Bundle`] opens one: manifests parsed and cross-checked, tensor files mapped read-only and shared, every offset
//!   checked before use. Nothing is copied and no tensor data is read until the runtime reads it.
//! - [`Mapped`] is the one place where a file is mapped, and knows whether the file has stayed what it was.
//! - [`place_folder`] puts a finished folder in the place of another, in one step where the system can.
//! - [`Scratch`] is a folder beside a destination, which goes away with its process, however that ends.
//!
//! It may depend on `tensor`, `quant` and `ir`. It deliberately does not know kernels, devices or model families, and it
//! never fetches anything.

mod amend;
mod checksum;
mod digest;
mod embedding;
mod error;
mod graph_file;
mod hearing;
mod manifest;
mod map;
mod place;
mod reader;
mod record;
mod scratch;
mod speech;
mod verify;
mod writer;

pub use amend::{amend, install};
pub use checksum::Checksum;
pub use embedding::{
    DOCUMENT_PROMPT, EMBEDDING_VERSION, Embedding, Expansion, Fill, Gives, Pair, Pooling, QUERY_PROMPT, ScoreFn,
    Scores, Similarity, TokenTexts, TokenVectors, Vectors, WrittenPair,
};
pub use error::{Error, ErrorKind, Result};
pub use graph_file::{GRAPH_MAGIC, GRAPH_VERSION, decode_graph, encode_graph};
pub use hearing::{HEARING_VERSION, Hearing, SoundMarks};
pub use manifest::{Component, FileEntry, Manifest, PortDecl, Provenance, TokenIds, WeightEntry, WeightsManifest};
pub use map::{Mapped, handle_faults};
pub use place::place_folder;
pub use reader::{Bundle, Weight};
pub use record::{RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, TENSOR_MAGIC, TENSOR_VERSION};
pub use scratch::{Scratch, remove_abandoned};
pub use speech::{
    Chunks, Ctc, Decoding, Edges, Emphasis, FrontEnd, Local, LogMel, Logarithm, MelScale, Normalization, Pieces,
    Prompted, SPEECH_VERSION, Samples, Spectrum, Speech, Streaming, Timestamps, Transducer, Window, WindowFunction,
};
pub use verify::{BlockSums, Verified};
pub use writer::{About, BundleWriter, check_destination};

/// Version of the bundle layout that this crate writes.
pub const BUNDLE_VERSION: u32 = 1;
/// Oldest version of the bundle layout that this crate reads.
pub const OLDEST_BUNDLE_VERSION: u32 = 1;

/// Path of the manifest inside a bundle; a folder without it is no bundle.
pub const MANIFEST_PATH: &str = "components/manifest.json";
/// Path of the weights manifest inside a bundle.
pub const WEIGHTS_MANIFEST_PATH: &str = "weights_manifest.json";
/// Path of the checksums of the tensor files' blocks inside a bundle.
pub const WEIGHTS_CHECKSUMS_PATH: &str = "weights_checksums.json";
/// Bytes of a block with a checksum of its own.
pub const BLOCK_BYTES: usize = 256 << 10;
/// Path of the record of how a model hears inside a bundle.
pub const SPEECH_PATH: &str = "speech.json";
/// Path of the record of how sounds become input of a model that writes about them, inside a bundle.
pub const HEARING_PATH: &str = "hearing.json";
/// Path of the record of how a model makes vectors or scores of texts inside a bundle.
pub const EMBEDDING_PATH: &str = "embedding.json";
/// Path of the record of how pictures become input inside a bundle; `cactus-vision` knows what it says.
pub const VISION_PATH: &str = "vision.json";
/// Path of the provenance record inside a bundle.
pub const PROVENANCE_PATH: &str = "provenance.json";
