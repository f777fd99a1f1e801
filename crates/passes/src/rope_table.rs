//! What a table of cosines or sines is made of.
//!
//! Models write it in many ways (an outer product by broadcasting or by a matrix product, frequencies doubled before or
//! after the cosine, as halves or each beside itself, axes of size 1 anywhere), so the table is followed back to its positions and frequencies while
//! keeping track of what each axis counts.

use crate::pattern::{kept_axes, maker, times_scalar};
use cactus_ir::{BinaryFn, Def, Dim, Graph, Node, Op, UnaryFn, ValueId};
use cactus_tensor::DType;

/// What an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Nothing: it has size 1 or repeats.
    Same,
    /// Positions.
    Position,
    /// Frequencies.
    Frequency,
}

/// How often and in which order the frequencies come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Once.
    Once,
    /// All, and all again behind them.
    Halves,
    /// Each twice in a row.
    Neighbors,
}

/// `scale * f(position * inv_freq)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Cosine, sine, or the angle itself.
    pub(crate) f: Option<UnaryFn>,
    pub(crate) scale: f64,
    /// `i64` with one axis that is not 1; `[positions, n]` where positions are on several axes.
    pub(crate) positions: ValueId,
    /// `f32` with one axis that is not 1; `[n, frequencies]` there.
    pub(crate) inv_freq: ValueId,
    /// Whether positions are on several axes.
    pub(crate) on_axes: bool,
    pub(crate) axes: Vec<Axis>,
    pub(crate) order: Order,
}

/// Longest chain of operations followed.
const MAX_DEPTH: usize = 24;

/// The table that `v` is, if it is one.
pub(crate) fn table(g: &Graph, v: ValueId) -> Option<Table> {
    follow(g, v, MAX_DEPTH)
}

fn follow(g: &Graph, v: ValueId, depth: usize) -> Option<Table> {
    let depth = depth.checked_sub(1)?;
    let node = maker(g, v)?;
    if moves_axes(&node.op) {
        let t = follow(g, node.inputs[0], depth)?;
        return match moved(g, node, &t.axes) {
            Some(axes) => Some(Table { axes, ..t }),
            None => beside(g, node, t),
        };
    }
    match &node.op {
        Op::Unary {
            f: f @ (UnaryFn::Cos | UnaryFn::Sin),
        } => {
            let t = follow(g, node.inputs[0], depth)?;
            t.f.is_none().then_some(Table { f: Some(*f), ..t })
        }
        Op::Concat { axis } => {
            let [a, b] = node.inputs[..] else { return None };
            let t = follow(g, a, depth).filter(|_| a == b)?;
            let fits = t.axes[*axis] == Axis::Frequency && t.order == Order::Once;
            let order = Order::Halves;
            fits.then_some(Table { order, ..t })
        }
        Op::Slice { axis, start, end } => {
            if let Some(part) = joined_part(g, node.inputs[0], *axis, start, end) {
                // A table that lay beside another.
                let t = follow(g, part, depth)?;
                let axes = shifted(&g.ty(part).shape, &g.ty(v).shape, &t.axes)?;
                return Some(Table { axes, ..t });
            }
            // The first half of frequencies that come twice.
            let t = follow(g, node.inputs[0], depth)?;
            let width = g.ty(node.inputs[0]).shape[*axis].as_known()?;
            let first = start.is(0) && end.as_known()?.checked_mul(2)? == width;
            let fits = t.axes[*axis] == Axis::Frequency && t.order == Order::Halves && first;
            let order = Order::Once;
            fits.then_some(Table { order, ..t })
        }
        Op::Binary {
            f: BinaryFn::Mul | BinaryFn::Div,
        } => {
            if let Some((x, c)) = times_scalar(g, v)
                && let Some(t) = follow(g, x, depth)
                && t.f.is_some()
            {
                return Some(Table {
                    scale: t.scale * c,
                    ..t
                });
            }
            let (a, b) = (node.inputs[0], node.inputs[1]);
            let is_product = node.op == Op::Binary { f: BinaryFn::Mul };
            if is_product {
                outer(g, a, b).or_else(|| outer(g, b, a))
            } else {
                None
            }
        }
        Op::MatMul => {
            let (a, b) = (node.inputs[0], node.inputs[1]);
            if let Some(t) = sum_of_axes(g, a, b) {
                return Some(t);
            }
            // A product over an axis of size 1 is an outer product.
            g.ty(a).last_known().filter(|&n| n == 1)?;
            let rank = g.ty(v).shape.len();
            let side = |x: ValueId, axes: &[Axis], own: usize| {
                let mut out = vec![Axis::Same; rank];
                let at = g.ty(x).shape.len() - own;
                out[rank - own] = axes[at];
                let others = axes.iter().enumerate().all(|(i, &a)| i == at || a == Axis::Same);
                others.then_some(out)
            };
            let product = |position: (ValueId, usize), frequency: (ValueId, usize)| {
                let (positions, p) = position_vector(g, position.0)?;
                let (inv_freq, f) = frequency_vector(g, frequency.0)?;
                let (p, f) = (side(position.0, &p, position.1)?, side(frequency.0, &f, frequency.1)?);
                joined(positions, inv_freq, &p, &f)
            };
            product((a, 2), (b, 1)).or_else(|| product((b, 1), (a, 2)))
        }
        _ => None,
    }
}

/// The angles `positions * frequencies`, broadcast.
fn outer(g: &Graph, positions: ValueId, frequencies: ValueId) -> Option<Table> {
    let (positions, p) = position_vector(g, positions)?;
    let (inv_freq, f) = frequency_vector(g, frequencies)?;
    joined(positions, inv_freq, &p, &f)
}

fn joined(positions: ValueId, inv_freq: ValueId, p: &[Axis], f: &[Axis]) -> Option<Table> {
    let rank = p.len().max(f.len());
    let at = |axes: &[Axis], i: usize| (i + axes.len()).checked_sub(rank).map_or(Axis::Same, |j| axes[j]);
    let axes: Option<Vec<Axis>> = (0..rank)
        .map(|i| match (at(p, i), at(f, i)) {
            (a, Axis::Same) | (Axis::Same, a) => Some(a),
            _ => None,
        })
        .collect();
    Some(Table {
        f: None,
        scale: 1.0,
        positions,
        inv_freq,
        axes: axes?,
        on_axes: false,
        order: Order::Once,
    })
}

/// The angles of positions on several axes, `[positions, n]` times constants `[n, frequencies]`.
fn sum_of_axes(g: &Graph, positions: ValueId, inv_freq: ValueId) -> Option<Table> {
    let node = maker(g, positions).filter(|node| node.op == Op::Cast { dtype: DType::F32 })?;
    let base = node.inputs[0];
    let constant = matches!(g.value(inv_freq).def, Def::Literal(_) | Def::Weight(_));
    let fits = g.ty(base).dtype == DType::I64
        && g.ty(base).shape.len() == 2
        && g.ty(inv_freq).shape.len() == 2
        && g.ty(base).last_known().is_some_and(|n| n > 1);
    (fits && constant).then(|| Table {
        f: None,
        scale: 1.0,
        positions: base,
        inv_freq,
        on_axes: true,
        axes: vec![Axis::Position, Axis::Frequency],
        order: Order::Once,
    })
}

/// The integer positions behind `v`, which counts them in floating point.
fn position_vector(g: &Graph, v: ValueId) -> Option<(ValueId, Vec<Axis>)> {
    let (base, axes) = one_axis(
        g,
        v,
        Axis::Position,
        |op| matches!(op, Op::Cast { dtype: DType::F32 }),
        MAX_DEPTH,
    )?;
    (g.ty(base).dtype == DType::I64).then_some((base, axes))
}

fn frequency_vector(g: &Graph, v: ValueId) -> Option<(ValueId, Vec<Axis>)> {
    one_axis(g, v, Axis::Frequency, |_| false, MAX_DEPTH)
}

/// The tensor with one axis behind `v`, through operations that move axes and those that `also` lets pass.
fn one_axis(
    g: &Graph,
    v: ValueId,
    axis: Axis,
    also: impl Fn(&Op) -> bool + Copy,
    depth: usize,
) -> Option<(ValueId, Vec<Axis>)> {
    let depth = depth.checked_sub(1)?;
    match maker(g, v) {
        Some(node) if moves_axes(&node.op) => {
            let (base, axes) = one_axis(g, node.inputs[0], axis, also, depth)?;
            Some((base, moved(g, node, &axes)?))
        }
        Some(node) if also(&node.op) => one_axis(g, node.inputs[0], axis, also, depth),
        _ => {
            let shape = &g.ty(v).shape;
            let one = Dim::known(1);
            let mut wide = (0..shape.len()).filter(|&i| shape[i] != one);
            let at = wide.next()?;
            let mut axes = vec![Axis::Same; shape.len()];
            axes[at] = axis;
            wide.next().is_none().then_some((v, axes))
        }
    }
}

/// Frequencies that were repeated along a new axis behind theirs, `[…, n, 2]`, as one axis: each comes twice in a row.
fn beside(g: &Graph, node: &Node, t: Table) -> Option<Table> {
    let (Op::Reshape { shape: new }, old) = (&node.op, &g.ty(node.inputs[0]).shape) else {
        return None;
    };
    let [.., n, two] = &old[..] else { return None };
    let merged = new.last()?.as_known() == n.as_known()?.checked_mul(2) && two.is(2);
    let [leading @ .., frequency, Axis::Same] = &t.axes[..] else {
        return None;
    };
    if !merged || *frequency != Axis::Frequency || t.order != Order::Once {
        return None;
    }
    // Before it, only axes of size 1 come and go.
    let mut axes = shifted(&old[..old.len() - 2], &new[..new.len() - 1], leading)?;
    axes.push(Axis::Frequency);
    let order = Order::Neighbors;
    Some(Table { axes, order, ..t })
}

/// The operand of a concatenation that `start..end` of `axis` of `v` is, perhaps with other axes of size 1.
fn joined_part(g: &Graph, mut v: ValueId, mut axis: usize, start: &Dim, end: &Dim) -> Option<ValueId> {
    if let Some(node) = maker(g, v).filter(|n| matches!(n.op, Op::Reshape { .. })) {
        let kept = kept_axes(&g.ty(node.inputs[0]).shape, &g.ty(v).shape)?;
        axis = kept.into_iter().find(|&(_, to)| to == axis)?.0;
        v = node.inputs[0];
    }
    let node = maker(g, v).filter(|n| n.op == Op::Concat { axis })?;
    let (start, end, mut at) = (start.as_known()?, end.as_known()?, 0);
    for &part in &node.inputs {
        let size = g.ty(part).shape[axis].as_known()?;
        if (at, at + size) == (start, end) {
            return Some(part);
        }
        at += size;
    }
    None
}

/// What axes of `new` count, where it is `old` with other axes of size 1, which count `axes`.
fn shifted(old: &[Dim], new: &[Dim], axes: &[Axis]) -> Option<Vec<Axis>> {
    let mut out = vec![Axis::Same; new.len()];
    for (i, j) in kept_axes(old, new)? {
        out[j] = axes[i];
    }
    Some(out)
}

fn moves_axes(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::Expand { .. } | Op::Permute { .. })
}

/// What the axes of the result of a moving operation count, given those of its operand.
fn moved(g: &Graph, node: &Node, axes: &[Axis]) -> Option<Vec<Axis>> {
    let (old, new) = (&g.ty(node.inputs[0]).shape, &g.ty(node.outputs[0]).shape);
    match &node.op {
        Op::Permute { perm } => Some(perm.iter().map(|&p| axes[p]).collect()),
        Op::Expand { .. } => {
            let mut out = vec![Axis::Same; new.len()];
            out[new.len() - old.len()..].copy_from_slice(axes);
            Some(out)
        }
        // Only axes of size 1 come and go.
        _ => shifted(old, new, axes),
    }
}
