//! What a table of cosines or sines is made of.
//!
//! Models write it in many ways (an outer product by broadcasting or by a matrix product, halves doubled before or
//! after the cosine, axes of size 1 anywhere), so the table is followed back to its positions and frequencies while
//! keeping track of what each axis counts.

use crate::pattern::{maker, times_scalar};
use cactus_ir::{BinaryFn, Dim, Graph, Node, Op, UnaryFn, ValueId};
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

/// `scale * f(position * inv_freq)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Cosine, sine, or the angle itself.
    pub(crate) f: Option<UnaryFn>,
    pub(crate) scale: f64,
    /// `i64` with one axis that is not 1.
    pub(crate) positions: ValueId,
    /// `f32` with one axis that is not 1.
    pub(crate) inv_freq: ValueId,
    pub(crate) axes: Vec<Axis>,
    /// The frequencies come twice, one after the other.
    pub(crate) doubled: bool,
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
        let mut t = follow(g, node.inputs[0], depth)?;
        t.axes = moved(g, node, &t.axes)?;
        return Some(t);
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
            let fits = t.axes[*axis] == Axis::Frequency && !t.doubled;
            fits.then_some(Table { doubled: true, ..t })
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
        doubled: false,
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
        _ => {
            // Only axes of size 1 come and go.
            let wide = |shape: &[Dim]| -> Vec<usize> { (0..shape.len()).filter(|&i| !shape[i].is(1)).collect() };
            let (from, to) = (wide(old), wide(new));
            let same = from.len() == to.len() && from.iter().zip(&to).all(|(&i, &j)| old[i] == new[j]);
            if !same {
                return None;
            }
            let mut out = vec![Axis::Same; new.len()];
            for (i, j) in from.into_iter().zip(to) {
                out[j] = axes[i];
            }
            Some(out)
        }
    }
}
