//! Changing the files of a bundle.
#![allow(dead_code, reason = "not every test uses all of it")]

use cactus_base::Pool;
use cactus_bundle::{Bundle, Checksum, FileEntry, MANIFEST_PATH, Manifest};
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_ir::Graph;
use cactus_runtime::{Execution, Head, Logits, Options, Program};
use std::path::Path;
use std::sync::Arc;

/// Puts `bytes` in the place of a listed file.
pub(crate) fn put(root: &Path, path: &str, bytes: &[u8]) {
    std::fs::write(root.join(path), bytes).unwrap();
    let mut manifest: Manifest = serde_json::from_slice(&std::fs::read(root.join(MANIFEST_PATH)).unwrap()).unwrap();
    let entry = FileEntry {
        bytes: bytes.len() as u64,
        xxh3: Checksum::of(bytes),
    };
    manifest.files.insert(path.to_owned(), entry);
    manifest.checksum = manifest.expected_checksum();
    std::fs::write(root.join(MANIFEST_PATH), serde_json::to_vec_pretty(&manifest).unwrap()).unwrap();
}

/// Makes the graph file of a component one of another version: what follows the header is not CBOR.
pub(crate) fn of_another_version(root: &Path, component: &str) {
    let graph = format!("components/{component}/graph.cactus");
    let mut bytes = std::fs::read(root.join(&graph)).unwrap();
    bytes[4..8].copy_from_slice(&77u32.to_le_bytes());
    bytes[32..].fill(0xff);
    put(root, &graph, &bytes);
}

/// The bits of the logits of a few tokens, of the model `source` of `golden/pt2` with its decoder edited.
pub(crate) fn logits_of_edited(source: &str, root: &Path, edit: impl FnOnce(Graph) -> Graph) -> Vec<u32> {
    const GRAPH: &str = "components/decoder/optimized_ir.json";
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/pt2")
        .join(source);
    let options = TranspileOptions {
        task: Task::CausalLm,
        ..TranspileOptions::default()
    };
    transpile(&source, root, &options, &mut |_, _| {}).unwrap();
    let graph = Graph::from_json(&std::fs::read_to_string(root.join(GRAPH)).unwrap()).unwrap();
    put(root, GRAPH, edit(graph).to_json().as_bytes());
    of_another_version(root, "decoder");
    let bundle = Arc::new(Bundle::open(root).unwrap());
    let program = Arc::new(Program::new(bundle, "decoder", &Options::default()).unwrap());
    let (pool, mut out) = (Pool::new(1), Vec::new());
    let mut each = |_: usize, row: Logits<'_>| out.extend(row.iter().map(|v| v.to_bits()));
    let mut run = Execution::new(program).unwrap();
    run.run(&pool, 1, &[3, 7, 1, 30, 12], Head::From(0, &mut each)).unwrap();
    out
}
