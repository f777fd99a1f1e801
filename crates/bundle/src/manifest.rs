//! The JSON documents of a bundle. Unknown fields are refused: a field that matters to a newer version must not be
//! ignored in silence by an older one.

use crate::Checksum;
use cactus_ir::{State, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `components/manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the bundle layout.
    pub version: u32,
    /// Name of the model, for people.
    pub name: String,
    /// Model family, such as `llama`.
    pub family: String,
    /// What the bundle does, such as `causal_lm_logits`.
    pub task: String,
    /// Components in the order in which they run.
    pub components: Vec<Component>,
    /// Longest sequence the model was made for, in tokens.
    pub context_tokens: usize,
    /// Number of logits for a position.
    pub vocab_size: usize,
    /// Token ids with a role.
    pub tokens: TokenIds,
    /// Size and checksum of every other file of the bundle but the `*.weights`, by path with `/`.
    pub files: BTreeMap<String, FileEntry>,
    /// Checksum of this document in canonical form (compact JSON) with this field 0.
    pub checksum: Checksum,
}

impl Manifest {
    /// The checksum that [`Manifest::checksum`] must have.
    pub fn expected_checksum(&self) -> Checksum {
        let mut blank = self.clone();
        blank.checksum = Checksum(0);
        let json = serde_json::to_vec(&blank).expect("a manifest has string keys and finite structure");
        Checksum::of(&json)
    }
}

/// One component of a bundle: a graph and its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Name, also of its folder under `components/`.
    pub name: String,
    /// Inputs in the order of the call.
    pub inputs: Vec<PortDecl>,
    /// Outputs.
    pub outputs: Vec<PortDecl>,
    /// States.
    pub states: Vec<State>,
}

/// Name and type of an input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDecl {
    /// Its name.
    pub name: String,
    /// Element type and symbolic shape.
    #[serde(rename = "type")]
    pub ty: TensorType,
}

/// Token ids with a role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenIds {
    /// Begin of sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// Any of these ends an answer.
    #[serde(default)]
    pub eos: Vec<u32>,
    /// Padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u32>,
    /// Whether prompts begin with `bos`.
    #[serde(default)]
    pub add_bos: bool,
}

/// Size and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub xxh3: Checksum,
}

/// `weights_manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsManifest {
    /// Version of this document; follows the bundle's.
    pub version: u32,
    /// Stored tensors by name.
    pub weights: BTreeMap<String, WeightEntry>,
}

/// Where a stored tensor lies. The record's own header is the authority on its layout; both must agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightEntry {
    /// Path of the `*.weights` file in the bundle.
    pub file: String,
    /// First byte of the record.
    pub offset: u64,
    /// Bytes of the record.
    pub bytes: u64,
    /// Logical shape.
    pub dims: Vec<usize>,
    /// Name of the packing.
    pub packing: String,
}

/// `provenance.json`: where a bundle came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Name of the source as the user gave it, without the folders of this machine.
    pub source: String,
    /// Format of the source: `gguf` or `huggingface`.
    pub source_format: String,
    /// SHA-256 of each source file, by file name.
    pub source_sha256: BTreeMap<String, String>,
    /// Program and version that wrote the bundle.
    pub tool: String,
    /// Options of the conversion.
    pub options: BTreeMap<String, String>,
    /// License of the source, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What conversion had to say, such as tensors left out.
    #[serde(default)]
    pub notes: Vec<String>,
}
