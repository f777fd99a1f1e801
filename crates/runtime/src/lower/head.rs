//! Where the logits come from. Most models end in a linear, and perhaps in something done to each logit alone (a scale, a
//! cap, a bias): that is one step, which writes to the caller and finds the peaks on the way. Whatever else makes the
//! output are steps as all others, and a copy of their rows.

use super::{Lowerer, Place};
use crate::step::{Kind, Link};
use crate::{Error, Result, kernel_names};
use cactus_ir::{BinaryFn, Def, Graph, Node, NodeId, Op, UnaryFn, ValueId};

/// The linear that makes the logits, and the chain of elementwise functions behind it.
pub(super) struct Head {
    /// What the linear makes.
    pub(super) of: ValueId,
    /// The functions, in order.
    pub(super) links: Vec<NodeId>,
}

impl Head {
    /// The head of which `output` comes, where nothing else reads a value on the way.
    pub(super) fn find(graph: &Graph, output: ValueId) -> Option<Head> {
        let uses = graph.uses();
        let (mut v, mut links) = (output, Vec::new());
        loop {
            let once = uses[v.index()].len() == usize::from(v != output);
            let (id, node) = graph.producer(v).filter(|_| once)?;
            if node.op == Op::Linear {
                links.reverse();
                return Some(Head { of: v, links });
            }
            let x = operand(graph, node)?;
            if graph.ty(x) != graph.ty(v) {
                return None;
            }
            links.push(id);
            v = x;
        }
    }
}

/// What a function of one value and constants changes; `None` for any other node.
fn operand(graph: &Graph, node: &Node) -> Option<ValueId> {
    let fixed = |v: ValueId| matches!(graph.value(v).def, Def::Weight(_)) || graph.scalar(v).is_some();
    match (&node.op, &node.inputs[..]) {
        (Op::Unary { f }, &[x]) => kernel_names::unary(*f).map(|_| x),
        (Op::Binary { f }, &[a, b]) => {
            kernel_names::binary(*f)?;
            match (fixed(a), fixed(b)) {
                (false, true) => Some(a),
                (true, false) if *f != BinaryFn::Div => Some(b),
                _ => None,
            }
        }
        _ => None,
    }
}

impl Lowerer<'_> {
    /// The functions behind the head that `node` is.
    pub(super) fn links(&mut self, node: &Node) -> Result<Vec<Link>> {
        let (graph, of) = (self.graph, node.outputs[0]);
        let ids = self.head.as_ref().map_or_else(Vec::new, |h| h.links.clone());
        let (mut x, mut links) = (of, Vec::new());
        for id in ids {
            let node = graph.node(id);
            match (&node.op, &node.inputs[..]) {
                (Op::Unary { f }, _) => links.extend(kernel_names::unary(*f).map(Link::Unary)),
                (Op::Binary { f }, &[a, b]) => {
                    let constant = if a == x { b } else { a };
                    let mut f = *f;
                    if f == BinaryFn::Sub && a == constant {
                        // c - x is -x + c, to the bit.
                        links.extend(kernel_names::unary(UnaryFn::Neg).map(Link::Unary));
                        f = BinaryFn::Add;
                    }
                    let Some(f) = kernel_names::binary(f) else {
                        return self.fail(node, "there is no kernel for this function");
                    };
                    links.push(match graph.scalar(constant) {
                        Some(c) => Link::Scalar(f, c),
                        None if self.as_wide(constant, of) => Link::Vector(f, self.vector(node, constant)?),
                        None => return self.fail(node, "expected a vector with as many elements as a row"),
                    });
                }
                _ => return self.fail(node, "expected an elementwise function"),
            }
            x = node.outputs[0];
        }
        Ok(links)
    }

    /// Whether a constant has one number for each of a row.
    fn as_wide(&self, constant: ValueId, row: ValueId) -> bool {
        let elems = self.graph.ty(constant).known_shape().map(|s| s.iter().product());
        elems.is_some() && elems == self.graph.ty(row).last_known()
    }

    /// Sees to it that the rows of `output` go to the caller; gives their width.
    pub(super) fn logits(&mut self, output: ValueId) -> Result<usize> {
        let graph = self.graph;
        let Some((_, node)) = graph.producer(output) else {
            return Err(Error::Unsupported {
                node: format!("component {}", graph.name),
                message: "no operation computes the output; expected logits".into(),
            });
        };
        let width = self.width(node, graph.ty(output))?;
        if self.head.is_some() {
            return Ok(width);
        }
        if !self.places.contains_key(&output) && !self.later.is_empty() {
            self.flush()?;
            self.later.clear();
        }
        match self.places.get(&output) {
            Some(&Place::Rows(x)) if x.width == width => self.push(node, Kind::Logits { x }),
            _ => return self.fail(node, "expected the output to be logits, [1, seq, vocab]"),
        }
        Ok(width)
    }
}
