//! One form for equal computations. What later passes match is what this one leaves; it knows nothing of weights'
//! values and fuses nothing beyond a single operation.

use crate::pattern::{either, maker, number, only_user, scalar, type_of, unary, vector};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, CompareFn, Def, Dim, Graph, Literal, Node, NodeId, Op, UnaryFn, ValueId};
use cactus_tensor::DType;
use std::collections::HashMap;

/// Brings equal computations to one form: no-op and chained shape operations are removed, constants stand on the right,
/// powers and quotients with a name become that operation, common subexpressions are computed once.
#[derive(Debug)]
pub(crate) struct Canonicalize;

impl Pass for Canonicalize {
    fn name(&self) -> &'static str {
        "canonicalize"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        let mut changes = 0;
        graph.remove_dead();
        loop {
            let before = changes;
            for id in graph.order().to_vec() {
                // Each step makes a node vanish, moves an operand nearer to its source or settles an order, so it ends.
                while let Some(step) = simplify(graph, id) {
                    changes += 1;
                    match step {
                        Step::Same(v) => {
                            let out = graph.node(id).outputs[0];
                            graph.replace_uses(out, v);
                            break;
                        }
                        Step::Op(op, inputs) => graph.replace(id, op, &inputs)?,
                    }
                }
            }
            changes += share(graph);
            graph.remove_dead();
            if changes == before {
                break;
            }
        }
        if changes > 0 {
            report.fired(self.name(), "", format!("{changes} steps"));
        }
        Ok(())
    }
}

/// What a node becomes.
enum Step {
    /// Another value.
    Same(ValueId),
    /// Another operation.
    Op(Op, Vec<ValueId>),
}

fn simplify(g: &Graph, id: NodeId) -> Option<Step> {
    let node = g.node(id);
    let out = node.outputs[0];
    let x = node.inputs.first().copied();
    match &node.op {
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. } | Op::Cast { .. } => {
            shape_step(g, node, out, x?)
        }
        Op::Concat { axis } => concat_step(g, node, *axis),
        Op::Unary { f } => unary_step(g, *f, x?),
        Op::Binary { f } => binary_step(g, *f, node.inputs[0], node.inputs[1], out),
        Op::Compare { f } => compare_step(g, *f, node.inputs[0], node.inputs[1]),
        Op::Where => where_step(g, node),
        _ => None,
    }
    .or_else(|| without_broadcast(g, node, out))
}

fn shape_step(g: &Graph, node: &Node, out: ValueId, x: ValueId) -> Option<Step> {
    if g.ty(x) == g.ty(out) && !matches!(&node.op, Op::Permute { perm } if !is_identity(perm)) {
        return Some(Step::Same(x));
    }
    let inner = maker(g, x)?;
    let from = inner.inputs.first().copied();
    match (&node.op, &inner.op) {
        (Op::Reshape { .. }, Op::Reshape { .. }) | (Op::Expand { .. }, Op::Expand { .. }) => {
            Some(Step::Op(node.op.clone(), vec![from?]))
        }
        (Op::Permute { perm }, Op::Permute { perm: first }) => {
            let perm = perm.iter().map(|&p| first[p]).collect();
            Some(Step::Op(Op::Permute { perm }, vec![from?]))
        }
        (
            Op::Slice { axis, start, end },
            Op::Slice {
                axis: b, start: base, ..
            },
        ) if axis == b => {
            let (start, end) = (start.add(base).ok()?, end.add(base).ok()?);
            Some(Step::Op(
                Op::Slice {
                    axis: *axis,
                    start,
                    end,
                },
                vec![from?],
            ))
        }
        (Op::Slice { axis, start, end }, Op::Concat { axis: b }) if axis == b => {
            slice_of_concat(g, inner, *axis, start, end)
        }
        // A sequence of reshapes that only moves axes of size 1 around an expansion is left alone.
        _ => None,
    }
}

fn is_identity(perm: &[usize]) -> bool {
    perm.iter().enumerate().all(|(i, &p)| i == p)
}

/// The part of a concatenation that a slice lies in.
fn slice_of_concat(g: &Graph, concat: &Node, axis: usize, start: &Dim, end: &Dim) -> Option<Step> {
    let (start, end) = (start.as_known()?, end.as_known()?);
    let mut offset = 0usize;
    for &part in &concat.inputs {
        let next = offset.checked_add(g.ty(part).shape[axis].as_known()?)?;
        if offset <= start && end <= next {
            let (start, end) = (Dim::known(start - offset), Dim::known(end - offset));
            return Some(Step::Op(Op::Slice { axis, start, end }, vec![part]));
        }
        offset = next;
    }
    None
}

/// Joining one part, joined parts, or neighboring slices that make up a larger one.
fn concat_step(g: &Graph, node: &Node, axis: usize) -> Option<Step> {
    if let [x] = node.inputs[..] {
        return Some(Step::Same(x));
    }
    let inner = |v: ValueId| maker(g, v).filter(|n| n.op == node.op && only_user(g, v).is_some());
    if node.inputs.iter().any(|&v| inner(v).is_some()) {
        let flat = |&v: &ValueId| inner(v).map_or_else(|| vec![v], |n| n.inputs.clone());
        return Some(Step::Op(node.op.clone(), node.inputs.iter().flat_map(flat).collect()));
    }
    let mut joined: Option<(ValueId, Dim, Dim)> = None;
    for &part in &node.inputs {
        let maker = maker(g, part)?;
        let Op::Slice { axis: a, start, end } = &maker.op else {
            return None;
        };
        let base = maker.inputs[0];
        joined = match joined {
            _ if *a != axis => return None,
            None => Some((base, start.clone(), end.clone())),
            Some((b, s, e)) if b == base && e == *start => Some((b, s, end.clone())),
            Some(_) => return None,
        };
    }
    let (base, start, end) = joined?;
    Some(Step::Op(Op::Slice { axis, start, end }, vec![base]))
}

fn unary_step(g: &Graph, f: UnaryFn, x: ValueId) -> Option<Step> {
    match f {
        UnaryFn::Neg | UnaryFn::Not => unary(g, x, f).map(Step::Same),
        _ => None,
    }
}

fn binary_step(g: &Graph, f: BinaryFn, a: ValueId, b: ValueId, out: ValueId) -> Option<Step> {
    let op = |f| Op::Binary { f };
    let commutes = !matches!(f, BinaryFn::Sub | BinaryFn::Div | BinaryFn::Pow);
    if commutes && is_constant(g, a) && !is_constant(g, b) {
        return Some(Step::Op(op(f), vec![b, a]));
    }
    let of = |f, x| Step::Op(Op::Unary { f }, vec![x]);
    if let Some(c) = number(g, b) {
        let floats = g.ty(b).dtype == DType::F32;
        let neutral = match f {
            BinaryFn::Add | BinaryFn::Sub => c == 0.0,
            BinaryFn::Mul | BinaryFn::Div | BinaryFn::Pow => c == 1.0,
            _ => false,
        };
        match f {
            _ if neutral && g.ty(a) == g.ty(out) => return Some(Step::Same(a)),
            _ if !floats => {}
            BinaryFn::Mul if c == -1.0 && g.ty(a) == g.ty(out) => return Some(of(UnaryFn::Neg, a)),
            BinaryFn::Pow if c == 2.0 && g.ty(a) == g.ty(out) => return Some(Step::Op(op(BinaryFn::Mul), vec![a, a])),
            BinaryFn::Pow if c == 0.5 && g.ty(a) == g.ty(out) => return Some(of(UnaryFn::Sqrt, a)),
            BinaryFn::Pow if c == -0.5 && g.ty(a) == g.ty(out) => return Some(of(UnaryFn::Rsqrt, a)),
            _ => {}
        }
    }
    match f {
        BinaryFn::Div if scalar(g, a) == Some(1.0) => {
            let x = unary(g, b, UnaryFn::Sqrt).filter(|&x| g.ty(x) == g.ty(out))?;
            Some(of(UnaryFn::Rsqrt, x))
        }
        BinaryFn::Mul => {
            either(g, out, f, |x, s| (unary(g, s, UnaryFn::Sigmoid)? == x).then_some(x)).map(|x| of(UnaryFn::Silu, x))
        }
        BinaryFn::Add => either(g, out, f, |y, bias| {
            linear_with_bias(g, y, bias).filter(|_| g.ty(y) == g.ty(out))
        }),
        BinaryFn::And => either(g, out, f, |x, t| is_all_true(g, t, x, out).then_some(Step::Same(x))),
        _ => None,
    }
}

/// `linear(x, w) + bias` as one operation, where nobody else reads the product.
fn linear_with_bias(g: &Graph, y: ValueId, bias: ValueId) -> Option<Step> {
    let node = maker(g, y)?;
    let (Op::Linear, [x, w]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let bias = vector(g, bias, g.ty(y).last_known()?)?;
    let constant = matches!(g.value(bias).def, Def::Weight(_) | Def::Literal(_));
    (constant && only_user(g, y).is_some()).then(|| Step::Op(Op::Linear, vec![*x, *w, bias]))
}

fn is_all_true(g: &Graph, v: ValueId, x: ValueId, out: ValueId) -> bool {
    let all = matches!(&g.value(v).def, Def::Literal(Literal::Bool(b)) if b.iter().all(|&b| b));
    all && g.ty(x) == g.ty(out)
}

fn is_constant(g: &Graph, v: ValueId) -> bool {
    matches!(g.value(v).def, Def::Literal(_) | Def::Weight(_))
}

/// A constant stands on the right.
fn compare_step(g: &Graph, f: CompareFn, a: ValueId, b: ValueId) -> Option<Step> {
    if !is_constant(g, a) || is_constant(g, b) {
        return None;
    }
    let f = match f {
        CompareFn::Lt => CompareFn::Gt,
        CompareFn::Le => CompareFn::Ge,
        CompareFn::Gt => CompareFn::Lt,
        CompareFn::Ge => CompareFn::Le,
        CompareFn::Eq | CompareFn::Ne => f,
        _ => return None,
    };
    Some(Step::Op(Op::Compare { f }, vec![b, a]))
}

fn where_step(g: &Graph, node: &Node) -> Option<Step> {
    let [cond, a, b] = node.inputs[..] else { return None };
    let inner = unary(g, cond, UnaryFn::Not)?;
    Some(Step::Op(Op::Where, vec![inner, b, a]))
}

/// An elementwise operation broadcasts by itself: an expansion, or leading axes of an operand that come or go, are not needed where
/// the result keeps its type without.
fn without_broadcast(g: &Graph, node: &Node, out: ValueId) -> Option<Step> {
    if !matches!(node.op, Op::Binary { .. } | Op::Compare { .. } | Op::Where) {
        return None;
    }
    for (i, &v) in node.inputs.iter().enumerate() {
        let Some(Node { op, inputs, .. }) = maker(g, v) else {
            continue;
        };
        let from = inputs.first().copied();
        let (Op::Expand { .. } | Op::Reshape { .. }, Some(from)) = (op, from) else {
            continue;
        };
        let (old, new) = (&g.ty(from).shape, &g.ty(v).shape);
        let aligned = match op {
            Op::Expand { .. } => true,
            _ => has_behind_ones(new, old) || has_behind_ones(old, new),
        };
        if aligned {
            let mut inputs = node.inputs.clone();
            inputs[i] = from;
            if type_of(g, &node.op, &inputs).as_ref() == Some(g.ty(out)) {
                return Some(Step::Op(node.op.clone(), inputs));
            }
        }
    }
    None
}

/// Whether `long` is `short` behind axes of size 1.
fn has_behind_ones(long: &[Dim], short: &[Dim]) -> bool {
    long.ends_with(short) && long[..long.len() - short.len()].iter().all(|d| d.is(1))
}

/// Computes equal things once: equal constants become one value, nodes of equal operation and operands one node.
/// Returns how many nodes vanished.
fn share(g: &mut Graph) -> usize {
    let mut constants: HashMap<String, ValueId> = HashMap::new();
    let mut seen: HashMap<(String, Vec<ValueId>), ValueId> = HashMap::new();
    let mut shared = 0;
    for id in g.order().to_vec() {
        for v in g.node(id).inputs.clone() {
            if let Def::Literal(literal) = &g.value(v).def {
                // Bits, not values: 0.0 and -0.0 differ, and NaN equals itself.
                let bits: Vec<u64> = match literal {
                    Literal::F32(v) => v.iter().map(|v| v.to_bits().into()).collect(),
                    Literal::I64(v) => v.iter().map(|&v| v as u64).collect(),
                    Literal::Bool(v) => v.iter().map(|&v| v.into()).collect(),
                    _ => continue,
                };
                let first = *constants.entry(format!("{}{bits:?}", g.ty(v))).or_insert(v);
                if first != v {
                    g.replace_uses(v, first);
                }
            }
        }
        let node = g.node(id);
        if node.op.state().is_some() {
            continue;
        }
        let mut inputs = node.inputs.clone();
        if matches!(&node.op, Op::Binary { f } if !matches!(f, BinaryFn::Sub | BinaryFn::Div | BinaryFn::Pow)) {
            inputs.sort();
        }
        let out = node.outputs[0];
        let first = *seen.entry((format!("{:?}", node.op), inputs)).or_insert(out);
        if first != out {
            g.replace_uses(out, first);
            shared += 1;
        }
    }
    shared
}
