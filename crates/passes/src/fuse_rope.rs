//! Rotary embedding out of slices, products and tables. Following a table back to positions and frequencies is left to
//! `rope_table`, neighbors turned into each other to `rope_pairs`.

use crate::pattern::{
    Match, Miss, binary, describe, either, insert_before, last_slice, maker, near, only_user, place_of, result, unary,
};
use crate::rope_pairs;
use crate::rope_table::{Axis, Order, Table, table};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Dim, Graph, Node, NodeId, Op, UnaryFn, ValueId};

/// Finds the rotary embedding in the rotate-half convention, `x * cos + concat(-x2, x1) * sin` or half by half
/// `concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`, and both with neighbors in the place of halves; with tables that
/// come from positions and frequencies; with heads before or after positions; of a whole head or its first part.
#[derive(Debug)]
pub(crate) struct FuseRope;

impl Pass for FuseRope {
    fn name(&self) -> &'static str {
        "fuse_rope"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let path = place_of(graph, id);
            let forms = [whole, halves, rope_pairs::whole, rope_pairs::halves];
            let mut found = Err(Miss::Other);
            for form in forms {
                if matches!(found, Err(Miss::Other)) {
                    found = form(graph, id);
                }
            }
            match found {
                Ok(found) => {
                    rewrite(graph, found)?;
                    report.fired(self.name(), &path, "rope");
                }
                Err(Miss::Near(why)) => report.missed(self.name(), &path, why),
                Err(Miss::Other) => {}
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

pub(crate) struct Found {
    pub(crate) root: NodeId,
    pub(crate) x: ValueId,
    pub(crate) table: Table,
    /// The axis of `x` that counts positions: 1 or 2 of 4.
    pub(crate) position_axis: usize,
    /// Whether neighbors are turned into each other.
    pub(crate) interleaved: bool,
    /// Where `x` is a permutation of what has the whole heads: that, and the permutation.
    pub(crate) of: Option<(ValueId, Vec<usize>)>,
}

/// `x * cos + rotated * sin` at `root`.
fn whole(g: &Graph, root: NodeId) -> Match<Found> {
    let (x, rotated, cos, sin) = either(g, result(g, root), BinaryFn::Add, |a, b| {
        let (x, cos) = by_table(g, a, UnaryFn::Cos)?;
        let (rotated, sin) = by_table(g, b, UnaryFn::Sin)?;
        Some((x, rotated, cos, sin))
    })
    .ok_or(Miss::Other)?;
    let Some((base, start, end)) = last_slice(g, x) else {
        return Err(Miss::Other);
    };
    if cos.order != Order::Halves {
        // Perhaps one half of the other form.
        return Err(Miss::Other);
    }
    let Some((high, low)) = rotated_parts(g, rotated) else {
        return near(format!(
            "{} is not the negated second half followed by the first half",
            describe(g, rotated)
        ));
    };
    let half = (end - start) / 2;
    let halves = end - start == 2 * half
        && last_slice(g, low) == Some((base, start, start + half))
        && last_slice(g, high) == Some((base, start + half, end));
    if !halves {
        return near("the parts turned into each other are not the halves of the operand");
    }
    let table = one_table(cos, sin, Order::Halves)?;
    let position_axis = layout(g, x, &table)?;
    // A part of each head, with the rest joined behind: one operation on the whole head.
    if let Some((
        user,
        Node {
            op: Op::Concat { axis: 3 },
            inputs,
            ..
        },
    )) = only_user(g, result(g, root)).map(|u| (u, g.node(u)))
        && let [turned, rest] = inputs[..]
        && turned == result(g, root)
        && start == 0
        && last_slice(g, rest) == g.ty(base).last_known().map(|d| (base, end, d))
    {
        return Ok(Found {
            root: user,
            x: base,
            table,
            position_axis,
            interleaved: false,
            of: None,
        });
    }
    Ok(Found {
        root,
        x,
        table,
        position_axis,
        interleaved: false,
        of: None,
    })
}

/// `concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`, perhaps with the rest of the head behind, at `root`.
fn halves(g: &Graph, root: NodeId) -> Match<Found> {
    let node = g.node(root);
    let (first, second, rest) = match (&node.op, &node.inputs[..]) {
        (Op::Concat { axis: 3 }, &[a, b]) => (a, b, None),
        (Op::Concat { axis: 3 }, &[a, b, rest]) => (a, b, Some(rest)),
        _ => return Err(Miss::Other),
    };
    let parts = || {
        let (a, b) = binary(g, first, BinaryFn::Sub)?;
        let (low, cos) = by_table(g, a, UnaryFn::Cos)?;
        let (high, sin) = by_table(g, b, UnaryFn::Sin)?;
        either(g, second, BinaryFn::Add, |a, b| {
            let same = by_table(g, a, UnaryFn::Cos)? == (high, cos.clone())
                && by_table(g, b, UnaryFn::Sin)? == (low, sin.clone());
            same.then_some(())
        })?;
        Some((low, high, cos, sin))
    };
    let (low, high, cos, sin) = parts().ok_or(Miss::Other)?;
    let (Some((x, 0, half)), Some(after)) = (last_slice(g, low), last_slice(g, high)) else {
        return near("the parts are not the halves of the operand");
    };
    let width = g.ty(x).last_known().unwrap_or(0);
    let ends = match rest {
        None => width == 2 * half,
        Some(rest) => last_slice(g, rest) == Some((x, 2 * half, width)),
    };
    if after != (x, half, 2 * half) || !ends {
        return near("the parts are not the halves of the operand");
    }
    let table = one_table(cos, sin, Order::Once)?;
    let position_axis = layout(g, x, &table)?;
    Ok(Found {
        root,
        x,
        table,
        position_axis,
        interleaved: false,
        of: None,
    })
}

/// `(x, table)` where `v` is `x` times a table of `f`.
pub(crate) fn by_table(g: &Graph, v: ValueId, f: UnaryFn) -> Option<(ValueId, Table)> {
    either(g, v, BinaryFn::Mul, |x, t| {
        Some((x, table(g, t).filter(|t| t.f == Some(f))?))
    })
}

/// `(high, low)` where `v` is `concat(-high, low)` along the last axis.
fn rotated_parts(g: &Graph, v: ValueId) -> Option<(ValueId, ValueId)> {
    let node = maker(g, v)?;
    let Op::Concat { axis } = node.op else { return None };
    let [minus, low] = node.inputs[..] else { return None };
    (axis + 1 == g.ty(v).shape.len()).then_some((unary(g, minus, UnaryFn::Neg)?, low))
}

/// Cosine and sine must be of the same angles and scale.
pub(crate) fn one_table(cos: Table, sin: Table, order: Order) -> Match<Table> {
    let sin = Table { f: cos.f, ..sin };
    if cos != sin {
        return near("cosine and sine have different angles or scales");
    }
    if cos.order != order {
        return near("the frequencies do not fit the parts of the operand");
    }
    Ok(cos)
}

/// The axis of `x` that counts positions.
pub(crate) fn layout(g: &Graph, x: ValueId, table: &Table) -> Match<usize> {
    let rank = g.ty(x).shape.len();
    if rank != 4 {
        return near(format!("the operand {} does not have 4 axes", g.ty(x)));
    }
    let axis_of = |what: Axis| {
        let at = table.axes.iter().position(|&a| a == what)?;
        (at + rank).checked_sub(table.axes.len())
    };
    match (axis_of(Axis::Position), axis_of(Axis::Frequency)) {
        (Some(p @ (1 | 2)), Some(3)) => Ok(p),
        _ => near("positions are not at axis 1 or 2, or frequencies not at the last"),
    }
}

fn rewrite(g: &mut Graph, found: Found) -> Result<()> {
    let Found {
        root,
        x,
        table,
        position_axis,
        interleaved,
        of,
    } = found;
    let x = match of {
        Some((base, perm)) => insert_before(g, root, Op::Permute { perm }, &[base])?,
        None => x,
    };
    let flat = |g: &mut Graph, v: ValueId| {
        let wide: Vec<Dim> = g.ty(v).shape.iter().filter(|d| !d.is(1)).cloned().collect();
        match g.ty(v).shape.len() {
            1 => Ok(v),
            _ if table.on_axes => Ok(v),
            _ => insert_before(g, root, Op::Reshape { shape: wide }, &[v]),
        }
    };
    let positions = flat(g, table.positions)?;
    let inv_freq = flat(g, table.inv_freq)?;
    let rope = Op::Rope {
        scale: table.scale as f32,
        interleaved,
    };
    // Neighbors are joined by a reshape, which may have put in axes besides, as heads that share keys ask for.
    let shape = g.ty(result(g, root)).shape.clone();
    let reshaped = shape != g.ty(x).shape;
    let last = |g: &mut Graph, op: Op, inputs: &[ValueId]| -> Result<()> {
        if !reshaped {
            return Ok(g.replace(root, op, inputs)?);
        }
        let y = insert_before(g, root, op, inputs)?;
        Ok(g.replace(root, Op::Reshape { shape }, &[y])?)
    };
    if position_axis == 1 {
        return last(g, rope, &[x, positions, inv_freq]);
    }
    let swap = Op::Permute { perm: vec![0, 2, 1, 3] };
    let x = insert_before(g, root, swap.clone(), &[x])?;
    let y = insert_before(g, root, rope, &[x, positions, inv_freq])?;
    last(g, swap, &[y])
}
