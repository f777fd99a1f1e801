//! Sums that a product makes at once, where its operand lies in the rows to which it would add.

mod support;

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_ir::{BinaryFn, Dim, Graph, Op, SEQ, ValueId};
use cactus_runtime::{Execution, Head, Logits, Options, Program};
use std::path::Path;
use std::sync::Arc;

const GRAPH: &str = "components/decoder/optimized_ir.json";

/// The first product that is added to rows reads those rows themselves, `reshaped` or as they are.
fn edited(mut graph: Graph, reshaped: bool) -> Graph {
    let order = graph.order().to_vec();
    let made_by_linear = |graph: &Graph, v: ValueId| {
        let (_, node) = graph.producer(v)?;
        matches!(node.op, Op::Linear).then(|| node.inputs[1])
    };
    let add = Op::Binary { f: BinaryFn::Add };
    let (at, rows, weight) = order
        .iter()
        .enumerate()
        .find_map(|(at, &id)| {
            let node = graph.node(id);
            let weight = made_by_linear(&graph, *node.inputs.get(1)?)?;
            (node.op == add).then(|| (at, node.inputs[0], weight))
        })
        .unwrap();
    let node = graph.node(order[at]).clone();
    let shape = graph.ty(rows).shape.clone();
    let mut x = rows;
    let mut at = at;
    let mut insert = |graph: &mut Graph, op: Op, inputs: &[ValueId]| {
        at += 1;
        graph.insert(at - 1, &node.path, op, inputs).unwrap()
    };
    if reshaped {
        let flat = vec![Dim::symbol(SEQ), shape.last().unwrap().clone()];
        x = insert(&mut graph, Op::Reshape { shape: flat }, &[x]);
    }
    let mut y = insert(&mut graph, Op::Linear, &[x, weight]);
    if reshaped {
        y = insert(&mut graph, Op::Reshape { shape }, &[y]);
    }
    graph.replace(graph.order()[at], add, &[rows, y]).unwrap();
    graph
}

fn logits(root: &Path, reshaped: bool) -> Vec<u32> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2/smollm2.pt2");
    let options = TranspileOptions {
        task: Task::CausalLm,
        ..TranspileOptions::default()
    };
    transpile(&source, root, &options, &mut |_, _| {}).unwrap();
    let graph = Graph::from_json(&std::fs::read_to_string(root.join(GRAPH)).unwrap()).unwrap();
    support::put(root, GRAPH, edited(graph, reshaped).to_json().as_bytes());
    support::of_another_version(root, "decoder");
    let bundle = Arc::new(Bundle::open(root).unwrap());
    let program = Arc::new(Program::new(bundle, "decoder", &Options::default()).unwrap());
    let (pool, mut out) = (Pool::new(1), Vec::new());
    let mut each = |_: usize, row: Logits<'_>| out.extend(row.iter().map(|v| v.to_bits()));
    let mut run = Execution::new(program).unwrap();
    run.run(&pool, 1, &[3, 7, 1, 30, 12], Head::From(0, &mut each)).unwrap();
    out
}

#[test]
fn product_of_rows_is_added_to_those_rows() {
    let folder = tempfile::tempdir().unwrap();
    let [reshaped, plain] = [true, false].map(|r| logits(&folder.path().join(r.to_string()), r));
    assert!(!plain.is_empty());
    assert_eq!(reshaped, plain);
}
