//! Sums that a product makes at once, where its operand lies in the rows to which it would add.

mod support;

use cactus_ir::{BinaryFn, Dim, Graph, Op, SEQ, ValueId};
use support::logits_of_edited;

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

#[test]
fn product_of_rows_is_added_to_those_rows() {
    let folder = tempfile::tempdir().unwrap();
    let [reshaped, plain] = [true, false].map(|reshaped| {
        let root = folder.path().join(reshaped.to_string());
        logits_of_edited("smollm2.pt2", &root, |graph| edited(graph, reshaped))
    });
    assert!(!plain.is_empty());
    assert_eq!(reshaped, plain);
}
