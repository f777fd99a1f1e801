//! The operations of a decoder layer, as `docs/reference/layers.md` counts them.

use cactus_ir::{Def, Graph, Node, Op};

/// How many operations each layer of an optimized graph has. A layer begins with the first operation that reads a weight of
/// `layers.N`, and ends before the next layer, the last before an operation that reads a weight of no layer. Reshapes and
/// slices are views and not counted.
#[must_use]
pub fn operations_of_layers(g: &Graph) -> Vec<usize> {
    let weights = |n: &Node| -> Vec<Option<usize>> {
        let weight = |v| match g.value(v).def {
            Def::Weight(_) => Some(layer_of(&g.value(v).name)),
            _ => None,
        };
        n.inputs.iter().filter_map(|&v| weight(v)).collect()
    };
    let last = g
        .nodes()
        .filter(|(_, n)| weights(n).iter().any(Option::is_some))
        .map(|(id, _)| id)
        .last();
    let (mut counts, mut ended): (Vec<usize>, bool) = (Vec::new(), false);
    let mut after = false;
    for (id, node) in g.nodes() {
        let reads = weights(node);
        if reads.contains(&Some(counts.len())) {
            counts.push(0);
        }
        ended |= after && !reads.is_empty();
        after |= Some(id) == last;
        let is_view = matches!(node.op, Op::Reshape { .. } | Op::Slice { .. });
        if let (Some(count), false, false) = (counts.last_mut(), ended, is_view) {
            *count += 1;
        }
    }
    counts
}

/// `N` of a name with `layers.N`.
fn layer_of(name: &str) -> Option<usize> {
    let mut parts = name.split('.').skip_while(|p| !["layers", "blocks", "h"].contains(p));
    parts.nth(1)?.parse().ok()
}
