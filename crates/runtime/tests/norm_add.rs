//! A sum with a norm in it where the rows are added to their own norm, as no model that is known does but any graph may.

mod support;

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_ir::{BinaryFn, Graph, Op};
use cactus_runtime::{Execution, Head, Logits, Options, Program};
use std::path::Path;
use std::sync::Arc;

/// Gemma 3 of `golden/pt2`, its first `norm_add` adding rows to their own norm; as two operations where it is not `fused`.
fn logits(root: &Path, fused: bool) -> Vec<u32> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2/gemma3.pt2");
    let options = TranspileOptions {
        task: Task::CausalLm,
        ..TranspileOptions::default()
    };
    transpile(&source, root, &options, &mut |_, _| {}).unwrap();
    let saved = "components/decoder/optimized_ir.json";
    let mut graph = Graph::from_json(&std::fs::read_to_string(root.join(saved)).unwrap()).unwrap();
    let order = graph.order().to_vec();
    let at = order
        .iter()
        .position(|&id| matches!(graph.node(id).op, Op::NormAdd { .. }))
        .unwrap();
    let node = graph.node(order[at]).clone();
    let (Op::NormAdd { eps }, &[_, x, weight]) = (&node.op, &node.inputs[..]) else {
        unreachable!()
    };
    if fused {
        graph.replace(order[at], node.op.clone(), &[x, x, weight]).unwrap();
    } else {
        let norm = graph
            .insert(at, &node.path, Op::RmsNorm { eps: *eps }, &[x, weight])
            .unwrap();
        let add = Op::Binary { f: BinaryFn::Add };
        graph.replace(order[at], add, &[x, norm]).unwrap();
    }
    support::put(root, saved, graph.to_json().as_bytes());
    support::of_another_version(root, "decoder");
    let bundle = Arc::new(Bundle::open(root).unwrap());
    let program = Arc::new(Program::new(bundle, "decoder", &Options::default()).unwrap());
    let (pool, mut out) = (Pool::new(1), Vec::new());
    let mut each = |_: usize, row: Logits<'_>| out.extend(row.iter().map(|v| v.to_bits()));
    let ids = [3, 7, 1, 30, 12];
    let mut run = Execution::new(program).unwrap();
    run.run(&pool, 1, &ids, Head::From(0, &mut each)).unwrap();
    out
}

#[test]
fn rows_plus_their_own_norm_have_the_bits_of_two_operations() {
    let folder = tempfile::tempdir().unwrap();
    let [fused, apart] = [true, false].map(|f| logits(&folder.path().join(f.to_string()), f));
    assert!(!fused.is_empty());
    assert_eq!(fused, apart);
}
