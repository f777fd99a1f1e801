//! A graph as a file: `CACTGRPH`, the version and the length of what follows as `u64`, a JSON document of the nodes, and from
//! the next multiple of 64 on the elements of the embedded inputs, as `f32`. Weight files are named, not copied.
//!
//! Nodes of a file are added one by one as a caller would, so a damaged file is refused by the same checks.

use super::build::Graph;
use super::data::{Given, Source};
use super::precision::{decode, encode};
use super::weights::WeightFile;
use super::{Error, ErrorKind, GraphOp, Precision, Result};
use cactus_base::Readers;
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAGIC: &[u8; 8] = b"CACTGRPH";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 24;
const ALIGNMENT: usize = 64;
/// Largest description of the nodes.
const MAX_DOCUMENT_BYTES: usize = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    nodes: Vec<Written>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    retained: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    op: GraphOp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<usize>,
    precision: Precision,
    shape: Vec<usize>,
    /// Where the elements lie, from the first on; of an embedded input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elements: Option<usize>,
    /// The weight file that the node is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl Graph {
    /// Writes the graph to a file; a file that is there is replaced whole, or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] and [`ErrorKind::File`] where it cannot be written, [`ErrorKind::Order`] where an embedded input has no value.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut elements: Vec<u8> = Vec::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (id, node) in self.nodes.iter().enumerate() {
            let file = self.files.get(&id).map(|f| f.path().to_string_lossy().into_owned());
            let mut at = None;
            if self.embedded.contains(&id) && file.is_none() {
                at = Some(elements.len() / 4);
                let values = self.input_values(id)?;
                let bytes = encode(values.as_f32()?, Precision::Fp32)?;
                elements.extend_from_slice(&bytes[..4 * values.len()]);
            }
            nodes.push(Written {
                op: node.op.clone(),
                inputs: node.inputs.clone(),
                precision: node.precision,
                shape: node.shape.clone(),
                elements: at,
                file,
            });
        }
        let retained = self.retained.iter().copied().collect();
        let document = serde_json::to_vec(&Document { nodes, retained })
            .map_err(|e| Error::new(ErrorKind::Defect, format!("the nodes could not be written: {e}")))?;
        let start = (HEADER_BYTES + document.len()).next_multiple_of(ALIGNMENT);
        let mut bytes = Vec::with_capacity(start + elements.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(document.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&document);
        bytes.resize(start, 0);
        bytes.extend_from_slice(&elements);
        replace(path, &bytes)
    }

    /// Reads a graph from a file. A weight file that is not there leaves its node unbound.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] and [`ErrorKind::File`] where it cannot be read, [`ErrorKind::Damaged`] where it is no whole graph,
    /// [`ErrorKind::Unsupported`] for an operation that is not known here.
    pub(crate) fn load(path: &Path) -> Result<Graph> {
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
        Graph::from_bytes(&bytes).map_err(|e| e.in_file(path))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Graph> {
        let fail = |what: String| Error::new(ErrorKind::Damaged, what);
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok());
            word.map(u64::from_le_bytes).unwrap_or(0)
        };
        if bytes.get(..8) != Some(MAGIC) {
            return Err(fail("this is not a graph of this library".into()));
        }
        if word(8) != VERSION {
            return Err(fail(format!("version {} is unknown; expected {VERSION}", word(8))));
        }
        let len = usize::try_from(word(16)).ok().filter(|&n| n <= MAX_DOCUMENT_BYTES);
        let document = len.and_then(|n| bytes.get(HEADER_BYTES..HEADER_BYTES + n));
        let (Some(document), Some(len)) = (document, len) else {
            return Err(fail(format!(
                "it is cut short: {} bytes of nodes are announced",
                word(16)
            )));
        };
        let elements = bytes
            .get((HEADER_BYTES + len).next_multiple_of(ALIGNMENT)..)
            .unwrap_or(&[]);
        let document: Document =
            serde_json::from_slice(document).map_err(|e| fail(format!("its nodes cannot be read: {e}")))?;
        let mut graph = Graph::new();
        for (id, node) in document.nodes.into_iter().enumerate() {
            graph
                .read(id, node, elements)
                .map_err(|e| e.at(&format!("node {id}")))?;
        }
        graph.retain_outputs(&document.retained)?;
        Ok(graph)
    }

    fn read(&mut self, id: usize, node: Written, elements: &[u8]) -> Result<()> {
        let Written {
            op,
            inputs,
            precision,
            shape,
            elements: at,
            file,
        } = node;
        match &op {
            GraphOp::Input { dynamic } => {
                let dynamic = dynamic.clone();
                self.input(&shape, precision)?;
                if !dynamic.is_empty() {
                    self.set_dynamic(id, &dynamic)?;
                }
            }
            GraphOp::RecurrentState(_) => {
                self.recurrent_state(&shape, precision)?;
            }
            GraphOp::Weights { .. } => {
                self.push(op, &[], shape.clone(), precision)?;
            }
            _ => {
                self.add(op, &inputs)?;
            }
        }
        let made = self.node(id)?;
        if made.shape != shape || made.precision != precision {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "it is written as {precision:?} {shape:?}, and is {:?} {:?}",
                    made.precision, made.shape
                ),
            ));
        }
        if let Some(at) = at {
            let n: usize = shape.iter().product();
            let span = at
                .checked_mul(4)
                .and_then(|a| Some(a..a.checked_add(n.checked_mul(4)?)?));
            let values = span.and_then(|s| elements.get(s));
            let values =
                values.ok_or_else(|| Error::new(ErrorKind::Damaged, "its elements lie behind the end of the file"))?;
            self.mark_embedded_input(id)?;
            let source = Some(Source::Copied(decode(values, Precision::Fp32)?));
            self.given.insert(
                id,
                Given {
                    source,
                    ..Given::default()
                },
            );
        }
        if let Some(file) = file
            && let Ok(file) = WeightFile::open(Path::new(&file))
            && file.shape() == shape
        {
            self.files.insert(id, file);
        }
        Ok(())
    }
}

/// Writes a file whole, or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
            cactus_base::remove_unfinished(folder);
        }
        cactus_base::replace_file(path, Readers::Usual, bytes)
    };
    write().map_err(|e| Error::io(path, "written", &e))
}
