//! What depends on weights alone, computed ahead: batch norms become a scale and a shift, which a pass puts into the
//! convolution before them.

use super::importer::STORED_RANK;
use super::tensors::Pt2Tensors;
use crate::{Error, ErrorKind, Result};
use cactus_ir::{Bindings, Def, Graph, Literal, Node, Op, TensorType, ValueId, WeightExpr};
use cactus_reference::{WeightSource, eval_op, eval_weight_expr, literal_tensor};
use cactus_tensor::{DType, Data, Tensor};

/// Moving elements of a larger weight is left to where it is read, or to where it is stored if it is read so alone.
const MAX_MOVED_ELEMS: usize = 1 << 16;

/// Longest chain of operations on literals that is followed: a variance, a small number more, its inverse root.
const MAX_DEPTH: usize = 8;

struct Source<'a>(&'a Pt2Tensors);

impl WeightSource for Source<'_> {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        self.0
            .tensor(name)
            .map_err(|e| cactus_reference::Error::new(cactus_reference::ErrorKind::Weight, e.to_string()))
    }
}

/// Computes every operation whose operands are weights and literals; the results are new tensors of `tensors`.
pub(crate) fn compute(graph: &mut Graph, tensors: &mut Pt2Tensors) -> Result<usize> {
    let mut computed = 0;
    for id in graph.order().to_vec() {
        let node = graph.node(id).clone();
        let out = node.outputs[0];
        if let Some(expr) = moved(graph, &node) {
            let name = unused(graph, tensors, &base(graph, &node));
            let new = graph.add_weight(name, graph.ty(out).clone(), expr);
            graph.replace_uses(out, new);
            computed += 1;
            continue;
        }
        if !worthwhile(graph, &node) {
            continue;
        }
        let failed = |e: cactus_reference::Error| {
            Error::new(
                ErrorKind::Unsupported,
                format!("a constant of the program cannot be computed: {e}"),
            )
        };
        let operands: Vec<Tensor> = node
            .inputs
            .iter()
            .map(|&v| match &graph.value(v).def {
                Def::Weight(expr) => eval_weight_expr(expr, &Source(tensors)).map_err(failed),
                _ => of_literals(graph, v).map_err(failed),
            })
            .collect::<Result<_>>()?;
        let value = eval_op(&node.op, &operands.iter().collect::<Vec<_>>(), &Bindings::new()).map_err(failed)?;
        let new = place(graph, tensors, &node, value)?;
        graph.replace_uses(out, new);
        computed += 1;
    }
    graph.remove_dead();
    Ok(computed)
}

/// Weights of norms that the program does not have (ones) become tensors, as the others are: what continues a sequence
/// reads norms from tensors.
pub(crate) fn store_norms(graph: &mut Graph, tensors: &mut Pt2Tensors) -> Result<()> {
    for id in graph.order().to_vec() {
        let node = graph.node(id).clone();
        let weights = match node.op {
            Op::RmsNorm { .. } | Op::LayerNorm { .. } => 1..node.inputs.len(),
            Op::NormRope { .. } => 1..2,
            Op::NormAdd { .. } | Op::NormGate { .. } => 2..3,
            _ => continue,
        };
        let mut inputs = node.inputs.clone();
        for v in &mut inputs[weights] {
            if let Def::Literal(l) = &graph.value(*v).def {
                let value = literal_tensor(graph.ty(*v), l).map_err(|e| Error::unsupported(e.to_string()))?;
                *v = place(graph, tensors, &node, value)?;
            }
        }
        if inputs != node.inputs {
            let op = node.op.clone();
            graph
                .replace(id, op, &inputs)
                .map_err(|e| Error::unsupported(e.to_string()))?;
        }
    }
    graph.remove_dead();
    Ok(())
}

/// Whether `v` is a literal, or small and computed of literals alone.
fn depends_on_literals(g: &Graph, v: ValueId, depth: usize) -> bool {
    let Some((_, node)) = g.producer(v) else {
        return matches!(g.value(v).def, Def::Literal(_));
    };
    let elems = g
        .ty(v)
        .known_shape()
        .and_then(|s| cactus_tensor::element_count(&s).ok());
    depth > 0
        && node.op.state().is_none()
        && !node.inputs.is_empty()
        && elems.is_some_and(|n| n <= Literal::MAX_ELEMS)
        && node.inputs.iter().all(|&v| depends_on_literals(g, v, depth - 1))
}

/// The value of what [`depends_on_literals`].
fn of_literals(g: &Graph, v: ValueId) -> cactus_reference::Result<Tensor> {
    match (&g.value(v).def, g.producer(v)) {
        (Def::Literal(l), _) => literal_tensor(g.ty(v), l),
        (_, Some((_, node))) => {
            let operands: Vec<Tensor> = node
                .inputs
                .iter()
                .map(|&v| of_literals(g, v))
                .collect::<cactus_reference::Result<_>>()?;
            eval_op(&node.op, &operands.iter().collect::<Vec<_>>(), &Bindings::new())
        }
        _ => Err(cactus_reference::Error::new(
            cactus_reference::ErrorKind::Weight,
            "an operand is not a constant",
        )),
    }
}

/// The weight that `node` makes of a large one which nobody else reads, in another shape or order. It is stored so: a product reads it as a
/// matrix then. A matrix that is turned round stays, as the product with it is one with the matrix itself.
fn moved(g: &Graph, node: &Node) -> Option<WeightExpr> {
    let [v] = node.inputs[..] else { return None };
    let Def::Weight(expr) = &g.value(v).def else {
        return None;
    };
    let shape = g.ty(node.outputs[0]).known_shape()?;
    let elems = cactus_tensor::element_count(&shape).ok()?;
    if elems <= MAX_MOVED_ELEMS || shape.len() > STORED_RANK {
        return None;
    }
    let x = Box::new(expr.clone());
    let moved = match &node.op {
        Op::Reshape { .. } => WeightExpr::Reshape { x, shape },
        Op::Permute { perm } if perm.len() > 2 => WeightExpr::Permute { x, perm: perm.clone() },
        _ => return None,
    };
    let read = g.uses()[v.index()].len() + g.outputs().iter().filter(|(_, o)| *o == v).count();
    (read == 1).then_some(moved)
}

fn worthwhile(g: &Graph, node: &Node) -> bool {
    let ty = g.ty(node.outputs[0]);
    let Some(elems) = ty.known_shape().and_then(|s| cactus_tensor::element_count(&s).ok()) else {
        return false;
    };
    let is_weight = |v: ValueId| matches!(g.value(v).def, Def::Weight(_));
    let constants = node
        .inputs
        .iter()
        .all(|&v| is_weight(v) || depends_on_literals(g, v, MAX_DEPTH));
    let moves = matches!(
        node.op,
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. }
    );
    // A cast or comparison makes no float; where it is small it becomes a literal.
    let storable = ty.dtype == DType::F32 || elems <= Literal::MAX_ELEMS;
    let larger = |v: &ValueId| {
        g.ty(*v)
            .known_shape()
            .and_then(|s| cactus_tensor::element_count(&s).ok())
            .unwrap_or(0)
    };
    let grows =
        matches!(node.op, Op::Expand { .. }) && elems > node.inputs.iter().map(larger).max().unwrap_or(0).max(1024);
    node.op.state().is_none()
        && ty.shape.len() <= STORED_RANK
        && constants
        && node.inputs.iter().any(|&v| is_weight(v))
        && storable
        && !grows
        && !(moves && elems > MAX_MOVED_ELEMS)
}

/// The value as a weight under a new name or, where it is no float, a literal.
fn place(g: &mut Graph, tensors: &mut Pt2Tensors, node: &Node, value: Tensor) -> Result<ValueId> {
    let shape = value.shape().to_vec();
    let invalid = |e: cactus_ir::Error| Error::unsupported(e.to_string());
    match value.data() {
        Data::F32(_) => {}
        Data::I64(v) => return g.add_literal(&shape, Literal::I64(v.clone())).map_err(invalid),
        Data::Bool(v) => return g.add_literal(&shape, Literal::Bool(v.clone())).map_err(invalid),
        _ => return Err(Error::unsupported("a constant of this element type")),
    }
    let name = unused(g, tensors, &base(g, node));
    let dims: Vec<cactus_ir::Dim> = shape.iter().map(|&d| cactus_ir::Dim::known(d)).collect();
    tensors.add(name.clone(), value);
    Ok(g.add_weight(
        name.clone(),
        TensorType::new(DType::F32, dims),
        WeightExpr::source(name),
    ))
}

/// The name of the weight that `node` reads, as the program has it.
fn base(g: &Graph, node: &Node) -> String {
    let mut read = node.inputs.iter().map(|&v| g.value(v));
    let weight = read.find(|v| matches!(v.def, Def::Weight(_)));
    weight
        .map_or("constant", |v| v.name.split('#').next().unwrap_or(""))
        .to_owned()
}

/// A name that no tensor and no weight has.
fn unused(g: &Graph, tensors: &Pt2Tensors, base: &str) -> String {
    let taken = |name: &str| tensors.has(name) || g.weights().iter().any(|(v, _)| g.value(*v).name == name);
    let mut names = (1u64..).map(|i| format!("{base}#{i}"));
    names.find(|name| !taken(name)).unwrap_or_else(|| base.to_owned())
}
