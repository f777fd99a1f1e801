//! A sum with a norm in it where the rows are added to their own norm, as no model that is known does but any graph may.

mod support;

use cactus_ir::{BinaryFn, Graph, Op};
use support::logits_of_edited;

/// The first `norm_add` adds rows to their own norm; as two operations where it is not `fused`.
fn edited(mut graph: Graph, fused: bool) -> Graph {
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
    graph
}

#[test]
fn rows_plus_their_own_norm_have_the_bits_of_two_operations() {
    let folder = tempfile::tempdir().unwrap();
    let [fused, apart] = [true, false].map(|fused| {
        let root = folder.path().join(fused.to_string());
        logits_of_edited("gemma3.pt2", &root, |graph| edited(graph, fused))
    });
    assert!(!fused.is_empty());
    assert_eq!(fused, apart);
}
