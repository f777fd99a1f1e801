//! What does not depend on inputs, computed ahead. Values of weights are not touched here: a change of one is only
//! written into its expression, for conversion to evaluate.

use crate::pattern::{free_name, maker, only_user, place_of, scalar, times_scalar, users};
use crate::{Pass, Report, Result};
use cactus_ir::{
    BinaryFn, Bindings, Def, Dim, Graph, Literal, Node, NodeId, Op, TensorType, UnaryFn, ValueId, WeightExpr,
};
use cactus_reference::{eval_op, literal_tensor};
use cactus_tensor::{DType, Data};

/// Computes what does not depend on inputs. Operations on literals become literals; a constant change of a weight
/// (a number added or multiplied, its exponential, axes reordered) moves into its [`WeightExpr`], for conversion to make; a product with a
/// weight on the right becomes a linear layer; two constant factors become one where that changes no bit.
#[derive(Debug)]
pub(crate) struct Fold;

/// A broadcast constant of more elements is left as it is: the graph would grow for nothing.
const MAX_BROADCAST_ELEMS: usize = 1024;

impl Pass for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let path = place_of(graph, id);
            if let Some(v) = literals(graph, id, report)? {
                let out = graph.node(id).outputs[0];
                graph.replace_uses(out, v);
                report.fired(self.name(), &path, "constant");
            } else if let Some((name, ty, expr)) = weight_change(graph, id) {
                let v = graph.add_weight(name, ty, expr);
                let out = graph.node(id).outputs[0];
                graph.replace_uses(out, v);
                report.fired(self.name(), &path, "change of a weight");
            } else if linear_of_matmul(graph, id)? {
                report.fired(self.name(), &path, "product with a weight");
            } else if factors(graph, id)? {
                report.fired(self.name(), &path, "pair of factors");
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// The literal that an operation on literals gives.
fn literals(g: &mut Graph, id: NodeId, report: &mut Report) -> Result<Option<ValueId>> {
    let node = g.node(id);
    if matches!(&node.op, Op::Iota { start, .. } if start.as_known().is_none()) {
        return Ok(None);
    }
    let out = g.ty(node.outputs[0]);
    let Some(shape) = out.known_shape() else {
        return Ok(None);
    };
    let operands: Option<Vec<(&TensorType, &Literal)>> = node
        .inputs
        .iter()
        .map(|&v| match &g.value(v).def {
            Def::Literal(literal) => Some((g.ty(v), literal)),
            _ => None,
        })
        .collect();
    let Some(operands) = operands else { return Ok(None) };
    let given = operands
        .iter()
        .map(|(_, l)| l.len())
        .max()
        .unwrap_or(0)
        .max(MAX_BROADCAST_ELEMS);
    let count = cactus_tensor::element_count(&shape).unwrap_or(usize::MAX);
    // A half-precision literal does not exist.
    let storable = matches!(out.dtype, DType::F32 | DType::I64 | DType::Bool);
    if node.op.state().is_some() || count > given.min(Literal::MAX_ELEMS) || !storable {
        return Ok(None);
    }
    let tensors: std::result::Result<Vec<_>, _> = operands.iter().map(|(ty, l)| literal_tensor(ty, l)).collect();
    let value = match eval_op(&node.op, &tensors?.iter().collect::<Vec<_>>(), &Bindings::new()) {
        Ok(value) => value,
        Err(e) => {
            let path = node.path.clone();
            report.missed("fold", &path, e.to_string());
            return Ok(None);
        }
    };
    let literal = match value.into_parts().1 {
        Data::F32(v) => Literal::F32(v),
        Data::I64(v) => Literal::I64(v),
        Data::Bool(v) => Literal::Bool(v),
        _ => return Ok(None),
    };
    Ok(Some(g.add_literal(&shape, literal)?))
}

/// Name, type and expression of the weight that an operation on one weight makes.
fn weight_change(g: &Graph, id: NodeId) -> Option<(String, TensorType, WeightExpr)> {
    let node = g.node(id);
    let out = node.outputs[0];
    let ty = g.ty(out);
    if ty.dtype != DType::F32 {
        return None;
    }
    let weight = |v: ValueId| match &g.value(v).def {
        Def::Weight(e) => Some(Box::new(e.clone())),
        _ => None,
    };
    let (source, suffix, expr) = match (&node.op, &node.inputs[..]) {
        (
            Op::Binary {
                f: f @ (BinaryFn::Add | BinaryFn::Mul),
            },
            &[a, b],
        ) if g.ty(a) == ty => {
            let (x, value) = (weight(a)?, scalar(g, b)?);
            match f {
                BinaryFn::Add => (a, "plus", WeightExpr::AddScalar { x, value }),
                _ => (a, "times", WeightExpr::MulScalar { x, value }),
            }
        }
        // Reordering a matrix that is read as it is too would store it twice; one that is multiplied by is for
        // `linear_of_matmul`.
        (Op::Unary { f: UnaryFn::Exp }, &[a]) => (a, "exp", WeightExpr::Exp { x: weight(a)? }),
        (Op::Unary { f: UnaryFn::Neg }, &[a]) => {
            let x = weight(a)?;
            (a, "times", WeightExpr::MulScalar { x, value: -1.0 })
        }
        (Op::Permute { perm }, &[a]) => {
            only_user(g, a)?;
            if users(g, out).iter().any(|&n| g.node(n).op == Op::MatMul) {
                return None;
            }
            (
                a,
                "permuted",
                WeightExpr::Permute {
                    x: weight(a)?,
                    perm: perm.clone(),
                },
            )
        }
        _ => return None,
    };
    let base = &g.value(source).name;
    // Where nobody else reads the weight, the changed one takes its name.
    let name = match only_user(g, source) {
        Some(_) => base.clone(),
        None => free_name(g, &format!("{base}.{suffix}")),
    };
    Some((name, ty.clone(), expr))
}

/// Makes `matmul(x, wᵀ)` and `matmul(x, w)` of a weight matrix a linear layer.
fn linear_of_matmul(g: &mut Graph, id: NodeId) -> Result<bool> {
    let node = g.node(id);
    let (Op::MatMul, &[x, w]) = (&node.op, &node.inputs[..]) else {
        return Ok(false);
    };
    if let Some(Node {
        op: Op::Permute { perm },
        inputs,
        ..
    }) = maker(g, w)
        && perm[..] == [1, 0]
        && matches!(g.value(inputs[0]).def, Def::Weight(_))
    {
        let w = inputs[0];
        g.replace(id, Op::Linear, &[x, w])?;
        return Ok(true);
    }
    let Def::Weight(expr) = &g.value(w).def else {
        return Ok(false);
    };
    if g.ty(w).shape.len() != 2 {
        return Ok(false);
    }
    // Read elsewhere too, it would be stored twice.
    if only_user(g, w).is_none() {
        return Ok(false);
    }
    let expr = match expr {
        WeightExpr::Permute { x, perm } if perm[..] == [1, 0] => (**x).clone(),
        _ => WeightExpr::Permute {
            x: Box::new(expr.clone()),
            perm: vec![1, 0],
        },
    };
    let name = g.value(w).name.clone();
    let shape: Vec<Dim> = g.ty(w).shape.iter().rev().cloned().collect();
    let w = g.add_weight(name, TensorType::new(DType::F32, shape), expr);
    g.replace(id, Op::Linear, &[x, w])?;
    Ok(true)
}

/// Makes `x * a * b` one product where one factor is a power of two, so that rounding stays as it was.
fn factors(g: &mut Graph, id: NodeId) -> Result<bool> {
    let node = g.node(id);
    if node.op != (Op::Binary { f: BinaryFn::Mul }) {
        return Ok(false);
    }
    let out = node.outputs[0];
    let exact = |c: f64| c.is_normal() && c.abs().log2().fract() == 0.0;
    let pair = times_scalar(g, out).and_then(|(y, b)| {
        let is_product = maker(g, y).is_some_and(|n| n.op == Op::Binary { f: BinaryFn::Mul });
        let (x, a) = times_scalar(g, y).filter(|_| is_product)?;
        let product = (a * b) as f32;
        // Between two factors of ordinary size nothing overflows and nothing becomes subnormal that was not.
        let ordinary = |c: f64| (1e-6..1e6).contains(&c.abs());
        let same = f64::from(product) == a * b && ordinary(a) && ordinary(b);
        (g.ty(x) == g.ty(out) && same && (exact(a) || exact(b))).then_some((x, product))
    });
    let Some((x, product)) = pair else { return Ok(false) };
    let c = g.add_literal(&[], Literal::F32(vec![product]))?;
    g.replace(id, Op::Binary { f: BinaryFn::Mul }, &[x, c])?;
    Ok(true)
}
