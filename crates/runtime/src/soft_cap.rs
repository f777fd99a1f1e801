//! What may follow the linear that makes the logits: `tanh(logits / cap) * cap`, as Gemma has it.

use cactus_ir::{BinaryFn, Graph, NodeId, Op, UnaryFn, ValueId};
use cactus_kernels::{Exec, UnaryOp};

/// Elements that are capped at once.
const CHUNK: usize = 256;

/// `tanh(x * inner) * outer`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SoftCap {
    inner: f32,
    outer: f32,
}

/// A cap, the value that it is of, and the nodes that it stands for.
pub(crate) struct Capped {
    pub(crate) cap: SoftCap,
    pub(crate) of: ValueId,
    pub(crate) nodes: [NodeId; 3],
}

/// The cap that makes `logits`, where there is one that nothing else reads a part of.
pub(crate) fn find(graph: &Graph, logits: ValueId) -> Option<Capped> {
    let uses = graph.uses();
    let (outer_node, scaled) = graph.producer(logits)?;
    let (tanh, outer) = factor(graph, &scaled.op, &scaled.inputs)?;
    let (tanh_node, node) = graph.producer(tanh)?;
    if node.op != (Op::Unary { f: UnaryFn::Tanh }) {
        return None;
    }
    let (inner_node, node) = graph.producer(node.inputs[0])?;
    let (of, inner) = factor(graph, &node.op, &node.inputs)?;
    let between = [tanh, graph.node(inner_node).outputs[0]];
    let once = between.iter().all(|v| uses[v.index()].len() == 1) && uses[of.index()].len() == 1;
    once.then_some(Capped {
        cap: SoftCap { inner, outer },
        of,
        nodes: [inner_node, tanh_node, outer_node],
    })
}

/// What is multiplied or divided by a number, and the factor.
fn factor(graph: &Graph, op: &Op, inputs: &[ValueId]) -> Option<(ValueId, f32)> {
    let &[x, by] = inputs else { return None };
    let by = graph.scalar(by)?;
    match op {
        Op::Binary { f: BinaryFn::Mul } => Some((x, by)),
        Op::Binary { f: BinaryFn::Div } => Some((x, 1.0 / by)),
        _ => None,
    }
}

impl SoftCap {
    /// Caps in place, without memory of its own.
    pub(crate) fn apply(&self, exec: &Exec<'_>, logits: &mut [f32]) {
        let mut scaled = [0f32; CHUNK];
        for out in logits.chunks_mut(CHUNK) {
            let scaled = &mut scaled[..out.len()];
            for (s, x) in scaled.iter_mut().zip(&*out) {
                *s = x * self.inner;
            }
            exec.unary(UnaryOp::Tanh, scaled, out);
            for x in out {
                *x *= self.outer;
            }
        }
    }
}
