//! The serialized forms of a graph.

use cactus_bundle::{Checksum, GRAPH_MAGIC, GRAPH_VERSION, decode_graph, encode_graph};
use cactus_ir::Graph;
use std::path::Path;

const HEADER_BYTES: usize = 32;

/// A `graph.cactus`, as it is and with a right header before what follows byte 32.
pub(crate) fn cactus(data: &[u8]) -> bool {
    let path = Path::new("graph.cactus");
    if let Ok(graph) = decode_graph(path, data) {
        accepted(&graph);
    }
    let payload = data.get(HEADER_BYTES..).unwrap_or(data);
    let mut fixed = GRAPH_MAGIC.to_vec();
    fixed.extend(GRAPH_VERSION.to_le_bytes());
    fixed.extend(1u32.to_le_bytes());
    fixed.extend(0u32.to_le_bytes());
    fixed.extend((payload.len() as u64).to_le_bytes());
    fixed.extend(Checksum::of(payload).0.to_le_bytes());
    fixed.extend(payload);
    decode_graph(path, &fixed).is_ok_and(|graph| accepted(&graph))
}

/// The JSON form.
pub(crate) fn json(data: &[u8]) -> bool {
    Graph::from_json(&String::from_utf8_lossy(data)).is_ok_and(|graph| accepted(&graph))
}

/// What holds for every graph that was read: it verifies, prints, and both forms give it back.
fn accepted(graph: &Graph) -> bool {
    graph.verify().expect("reading verifies");
    assert!(!graph.to_string().is_empty());
    let bytes = encode_graph(graph);
    let again = decode_graph(Path::new("again"), &bytes).expect("a written graph is readable");
    assert_eq!(encode_graph(&again), bytes, "writing is stable");
    let text = graph.to_json();
    let again = Graph::from_json(&text).expect("a written graph is readable");
    assert_eq!(again.to_json(), text, "writing is stable");
    true
}
