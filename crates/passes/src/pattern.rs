//! Small questions that every pattern asks of a graph, and the two ways of changing it.

use crate::{Report, Result};
use cactus_ir::{BinaryFn, Def, Dim, Graph, Literal, Node, NodeId, Op, ReduceFn, TensorType, UnaryFn, ValueId, infer};
use std::collections::HashSet;

/// Why a pattern did not match.
#[derive(Debug)]
pub(crate) enum Miss {
    /// This is something else altogether.
    Other,
    /// It nearly is the pattern; a sentence saying what is in the way.
    Near(String),
}

/// Result of matching.
pub(crate) type Match<T> = std::result::Result<T, Miss>;

pub(crate) fn near<T>(why: impl Into<String>) -> Match<T> {
    Err(Miss::Near(why.into()))
}

/// Looks for a pattern around every node, in order, and rewrites what is found; the report gets `what` for each, and why
/// not where it nearly was there. Nodes that nobody reads any more are removed at the end.
pub(crate) fn rewrite_each<T>(
    graph: &mut Graph,
    report: &mut Report,
    (pass, what): (&'static str, &str),
    find: impl Fn(&Graph, NodeId) -> Match<T>,
    mut rewrite: impl FnMut(&mut Graph, NodeId, T) -> Result<()>,
) -> Result<()> {
    for id in graph.order().to_vec() {
        let path = place_of(graph, id);
        match find(graph, id) {
            Ok(found) => {
                rewrite(graph, id, found)?;
                report.fired(pass, &path, what);
            }
            Err(Miss::Near(why)) => report.missed(pass, &path, why),
            Err(Miss::Other) => {}
        }
    }
    graph.remove_dead();
    Ok(())
}

/// Where a node is, for a report: the path of its module, or the value that it makes.
pub(crate) fn place_of(g: &Graph, id: NodeId) -> String {
    let node = g.node(id);
    if !node.path.is_empty() {
        return node.path.clone();
    }
    let named = |v: &&ValueId| matches!(g.value(**v).def, Def::Weight(_) | Def::Input);
    let of = match node.inputs.iter().find(named) {
        Some(&v) => format!(" of `{}`", g.value(v).name),
        None => String::new(),
    };
    format!("{}{of} -> {}", node.op.mnemonic(), g.ty(node.outputs[0]))
}

/// What `v` is a reshape of.
pub(crate) fn strip(g: &Graph, mut v: ValueId) -> ValueId {
    while let Some(Node {
        op: Op::Reshape { .. },
        inputs,
        ..
    }) = maker(g, v)
    {
        v = inputs[0];
    }
    v
}

/// The node that makes `v`.
pub(crate) fn maker(g: &Graph, v: ValueId) -> Option<&Node> {
    g.producer(v).map(|(_, n)| n)
}

/// The operand, where `v` is `f` of it.
pub(crate) fn unary(g: &Graph, v: ValueId, f: UnaryFn) -> Option<ValueId> {
    match maker(g, v)? {
        Node {
            op: Op::Unary { f: is },
            inputs,
            ..
        } if *is == f => Some(inputs[0]),
        _ => None,
    }
}

/// The operands, where `v` is `f` of two.
pub(crate) fn binary(g: &Graph, v: ValueId, f: BinaryFn) -> Option<(ValueId, ValueId)> {
    match maker(g, v)? {
        Node {
            op: Op::Binary { f: is },
            inputs,
            ..
        } if *is == f => Some((inputs[0], inputs[1])),
        _ => None,
    }
}

/// The operands in an order that `pick` accepts, where `v` is the commutative `f` of two.
pub(crate) fn either<T>(g: &Graph, v: ValueId, f: BinaryFn, pick: impl Fn(ValueId, ValueId) -> Option<T>) -> Option<T> {
    let (a, b) = binary(g, v, f)?;
    pick(a, b).or_else(|| pick(b, a))
}

/// `(x, c)` where `v` is `x + c` for a constant of one element.
pub(crate) fn plus_scalar(g: &Graph, v: ValueId) -> Option<(ValueId, f32)> {
    either(g, v, BinaryFn::Add, |x, c| Some((x, scalar(g, c)?)))
}

/// `(x, c)` where `v` is `x * c` or `x / (1/c)` for a constant of one element.
pub(crate) fn times_scalar(g: &Graph, v: ValueId) -> Option<(ValueId, f64)> {
    either(g, v, BinaryFn::Mul, |x, c| Some((x, f64::from(scalar(g, c)?)))).or_else(|| {
        let (x, c) = binary(g, v, BinaryFn::Div)?;
        Some((x, 1.0 / f64::from(scalar(g, c)?)))
    })
}

/// The value of a constant of one element, also where it is broadcast.
pub(crate) fn scalar(g: &Graph, mut v: ValueId) -> Option<f32> {
    while let Some(Node {
        op: Op::Reshape { .. } | Op::Expand { .. },
        inputs,
        ..
    }) = maker(g, v)
    {
        v = inputs[0];
    }
    g.scalar(v)
}

/// The value of a constant of one element, a float or an integer.
pub(crate) fn number(g: &Graph, v: ValueId) -> Option<f64> {
    match (&g.value(v).def, scalar(g, v)) {
        (_, Some(c)) => Some(f64::from(c)),
        (Def::Literal(Literal::I64(v)), None) if v.len() == 1 => Some(v[0] as f64),
        _ => None,
    }
}

/// Whether `v` is `x²`.
pub(crate) fn is_square(g: &Graph, v: ValueId, x: ValueId) -> bool {
    binary(g, v, BinaryFn::Mul) == Some((x, x))
        || binary(g, v, BinaryFn::Pow).is_some_and(|(base, e)| base == x && scalar(g, e) == Some(2.0))
}

/// The operand, where `v` is its mean along the last axis, which stays.
pub(crate) fn mean_last(g: &Graph, v: ValueId) -> Option<ValueId> {
    reduced_last(g, v, ReduceFn::Mean)
}

/// The operand, where `v` is its sum along the last axis, which stays.
pub(crate) fn sum_last(g: &Graph, v: ValueId) -> Option<ValueId> {
    reduced_last(g, v, ReduceFn::Sum)
}

fn reduced_last(g: &Graph, v: ValueId, by: ReduceFn) -> Option<ValueId> {
    let node = maker(g, v)?;
    let Op::Reduce { f, axes, keepdim: true } = &node.op else {
        return None;
    };
    let x = node.inputs[0];
    (*f == by && axes[..] == [g.ty(x).shape.len() - 1]).then_some(x)
}

/// The vector `[n]` behind `v`, which may carry leading axes of size 1.
pub(crate) fn vector(g: &Graph, mut v: ValueId, n: usize) -> Option<ValueId> {
    loop {
        let shape = &g.ty(v).shape;
        if shape.len() == 1 {
            return shape[0].is(n).then_some(v);
        }
        let (last, leading) = shape.split_last()?;
        let node = maker(g, v)?;
        let moves = matches!(node.op, Op::Reshape { .. } | Op::Expand { .. });
        if !moves || !last.is(n) || !leading.iter().all(|d| d.is(1)) {
            return None;
        }
        v = node.inputs[0];
    }
}

/// `(base, start, end)` where `v` is elements `start..end` of the last axis of `base`; all of it where it is no slice.
pub(crate) fn last_slice(g: &Graph, v: ValueId) -> Option<(ValueId, usize, usize)> {
    let width = g.ty(v).last_known()?;
    if let Some(Node {
        op: Op::Slice { axis, start, end },
        inputs,
        ..
    }) = maker(g, v)
        && *axis + 1 == g.ty(v).shape.len()
    {
        return Some((inputs[0], start.as_known()?, end.as_known()?));
    }
    Some((v, 0, width))
}

/// Pairs of an axis of `old` and the axis of `new` that it is, where only axes of size 1 come and go between them.
pub(crate) fn kept_axes(old: &[Dim], new: &[Dim]) -> Option<Vec<(usize, usize)>> {
    let wide = |shape: &[Dim]| -> Vec<usize> { (0..shape.len()).filter(|&i| !shape[i].is(1)).collect() };
    let (from, to) = (wide(old), wide(new));
    let same = from.len() == to.len() && from.iter().zip(&to).all(|(&i, &j)| old[i] == new[j]);
    same.then(|| from.into_iter().zip(to).collect())
}

/// Nodes that read `v`; a node appears once for each operand.
pub(crate) fn users(g: &Graph, v: ValueId) -> Vec<NodeId> {
    let reads = |(id, n): (NodeId, &Node)| {
        let times = n.inputs.iter().filter(|&&i| i == v).count();
        std::iter::repeat_n(id, times)
    };
    g.nodes().flat_map(reads).collect()
}

/// Whether `v` is an output of the graph.
pub(crate) fn is_output(g: &Graph, v: ValueId) -> bool {
    g.outputs().iter().any(|(_, o)| *o == v)
}

/// The one node that reads `v`, which is no output.
pub(crate) fn only_user(g: &Graph, v: ValueId) -> Option<NodeId> {
    match users(g, v)[..] {
        [one] if !is_output(g, v) => Some(one),
        _ => None,
    }
}

/// The result of a node.
pub(crate) fn result(g: &Graph, id: NodeId) -> ValueId {
    g.node(id).outputs[0]
}

/// Type of `op` on `inputs`, where it has one.
pub(crate) fn type_of(g: &Graph, op: &Op, inputs: &[ValueId]) -> Option<TensorType> {
    let types: Vec<&TensorType> = inputs.iter().map(|&v| g.ty(v)).collect();
    infer(op, &types).ok()
}

/// Adds `op` right before `before`, under its path.
pub(crate) fn insert_before(g: &mut Graph, before: NodeId, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
    let at = g.order().iter().position(|&n| n == before).unwrap_or(g.order().len());
    let path = g.node(before).path.clone();
    Ok(g.insert(at, path, op, inputs)?)
}

/// `base`, or `base.2`, `base.3`, … where another weight or input is called that already.
pub(crate) fn free_name(g: &Graph, base: &str) -> String {
    let taken: HashSet<&str> = g
        .values()
        .iter()
        .filter(|v| matches!(v.def, Def::Input | Def::Weight(_)))
        .map(|v| v.name.as_str())
        .collect();
    let mut name = base.to_owned();
    for i in 2u64.. {
        if !taken.contains(name.as_str()) {
            break;
        }
        name = format!("{base}.{i}");
    }
    name
}

/// `path/mnemonic`, for messages.
pub(crate) fn place(n: &Node) -> String {
    if n.path.is_empty() {
        n.op.mnemonic()
    } else {
        format!("{}/{}", n.path, n.op.mnemonic())
    }
}

/// Tells what `v` is, for messages.
pub(crate) fn describe(g: &Graph, v: ValueId) -> String {
    match (&g.value(v).def, maker(g, v)) {
        (_, Some(n)) => place(n),
        (Def::Input, _) => format!("input `{}`", g.value(v).name),
        (Def::Weight(_), _) => format!("weight `{}`", g.value(v).name),
        _ => format!("a constant {}", g.ty(v)),
    }
}
