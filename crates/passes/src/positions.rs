//! Rows of a table, and positions counted by sums, as positions. A model takes the first rows of a table of positions, or
//! counts the ones of a mask that has nothing but ones; written as what they are, they continue call by call.

use crate::affine::{Affine, MAX_DEPTH, affine};
use crate::pattern::{insert_before, maker};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Constraint, Def, Dim, Graph, Literal, Node, NodeId, Op, SEQ, ValueId};
use cactus_tensor::DType;

/// Makes the first rows of a constant, as many as there are positions, rows that positions choose; makes a part of an iota
/// an iota; makes the running sum of one integer positions.
#[derive(Debug)]
pub(crate) struct Positions;

impl Pass for Positions {
    fn name(&self) -> &'static str {
        "positions"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let node = graph.node(id);
            let path = node.path.clone();
            let what = match &node.op {
                Op::Slice { axis, start, end } => {
                    let (axis, start, end) = (*axis, start.clone(), end.clone());
                    part(graph, id, axis, start, end)?
                }
                Op::CumSum { axis } => {
                    let axis = *axis;
                    counted(graph, id, axis)?
                }
                Op::Take { .. } | Op::Gather { .. } => chosen(graph, id)?,
                Op::Iota { start, len } if counts(len) && start.as_known().is_some_and(|n| n > 0) => {
                    let (start, len, out) = (start.clone(), len.clone(), node.outputs[0]);
                    let v = from(graph, id, start, len)?;
                    graph.replace_uses(out, v);
                    Some("positions that begin later")
                }
                _ => None,
            };
            if let Some(what) = what {
                report.fired(self.name(), &path, what);
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

fn counts(d: &Dim) -> bool {
    d.symbols().any(|s| s == SEQ)
}

/// A slice of an iota, or of a constant to the length of the positions.
fn part(g: &mut Graph, id: NodeId, axis: usize, start: Dim, end: Dim) -> Result<Option<&'static str>> {
    let node = g.node(id);
    let (x, out) = (node.inputs[0], node.outputs[0]);
    let len = end.sub(&start)?;
    let shape = g.ty(out).shape.clone();
    if let Some(first) = iota_along(g, x, axis) {
        let start = first.add(&start)?;
        let v = from(g, id, start, len)?;
        g.replace(id, Op::Reshape { shape }, &[v])?;
        return Ok(Some("positions out of a row of them"));
    }
    let constant = matches!(g.value(x).def, Def::Weight(_) | Def::Literal(_));
    let (Some(rows), true) = (
        g.ty(x).shape[axis].as_known(),
        constant && start.as_known().is_some() && counts(&len),
    ) else {
        return Ok(None);
    };
    // The table ends, and so do the positions.
    let mut constraints = g.constraints().to_vec();
    let rest = Constraint::at_least(Dim::known(rows).sub(&end)?, 0);
    if !constraints.contains(&rest) {
        constraints.push(rest);
        g.set_constraints(constraints);
    }
    let table = axis == 0 && g.ty(x).shape.len() == 2 && g.ty(x).dtype == DType::F32;
    let ids = from(g, id, start, len)?;
    let op = if table { Op::Embedding } else { Op::Take { axis } };
    g.replace(id, op, &[x, ids])?;
    Ok(Some("rows of a table that positions choose"))
}

/// Where `x` starts, if it is an iota with axes of size 1 around it.
fn iota_along(g: &Graph, x: ValueId, axis: usize) -> Option<Dim> {
    let alone = g.ty(x).shape.iter().enumerate().all(|(i, d)| i == axis || d.is(1));
    match maker(g, x)? {
        Node {
            op: Op::Iota { start, .. },
            ..
        } => Some(start.clone()),
        Node {
            op: Op::Reshape { .. },
            inputs,
            ..
        } if alone => match maker(g, inputs[0])? {
            Node {
                op: Op::Iota { start, .. },
                ..
            } => Some(start.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The running sum of one whole number along an axis that counts positions.
fn counted(g: &mut Graph, id: NodeId, axis: usize) -> Result<Option<&'static str>> {
    let node = g.node(id);
    let (x, out) = (node.inputs[0], node.outputs[0]);
    let ty = g.ty(out).clone();
    let (Some(n), true) = (
        everywhere(g, x).filter(|&n| n != 0),
        matches!(ty.dtype, DType::I64 | DType::F32) && counts(&ty.shape[axis]),
    ) else {
        return Ok(None);
    };
    let len = ty.shape[axis].clone();
    let mut along = vec![Dim::known(1); ty.shape.len()];
    along[axis] = len.clone();
    let v = from(g, id, Dim::known(1), len)?;
    let v = insert_before(g, id, Op::Reshape { shape: along }, &[v])?;
    let v = if ty.dtype == DType::I64 {
        v
    } else {
        insert_before(g, id, Op::Cast { dtype: ty.dtype }, &[v])?
    };
    let v = match n {
        1 => v,
        n => {
            let by = match ty.dtype {
                DType::I64 => Literal::I64(vec![n]),
                _ => Literal::F32(vec![n as f32]),
            };
            let by = g.add_literal(&[], by)?;
            insert_before(g, id, Op::Binary { f: BinaryFn::Mul }, &[v, by])?
        }
    };
    g.replace(id, Op::Expand { shape: ty.shape }, &[v])?;
    Ok(Some("positions that were counted"))
}

/// Elements of an integer tensor that are all equal, whichever are chosen.
fn chosen(g: &mut Graph, id: NodeId) -> Result<Option<&'static str>> {
    let node = g.node(id);
    let (x, out) = (node.inputs[0], node.outputs[0]);
    let ty = g.ty(out).clone();
    let (Some(n), true) = (everywhere(g, x), ty.dtype == DType::I64) else {
        return Ok(None);
    };
    let n = g.add_literal(&[], Literal::I64(vec![n]))?;
    g.replace(id, Op::Expand { shape: ty.shape }, &[n])?;
    Ok(Some("a choice among equal numbers"))
}

/// The integer that all elements of `v` are.
fn everywhere(g: &Graph, v: ValueId) -> Option<i64> {
    let Affine { coefficients, constant } = affine(g, v, MAX_DEPTH).ok()?;
    constant.as_integer().filter(|_| coefficients.iter().all(|&c| c == 0))
}

/// Positions that begin at `start`: where that is a number, as those that begin at 0 and the number.
fn from(g: &mut Graph, before: NodeId, start: Dim, len: Dim) -> Result<ValueId> {
    let first = match start.as_known() {
        Some(n) if n > 0 && counts(&len) => i64::try_from(n).ok(),
        _ => None,
    };
    let Some(n) = first else {
        return insert_before(g, before, Op::Iota { start, len }, &[]);
    };
    let start = Dim::known(0);
    let v = insert_before(g, before, Op::Iota { start, len }, &[])?;
    let n = g.add_literal(&[], Literal::I64(vec![n]))?;
    insert_before(g, before, Op::Binary { f: BinaryFn::Add }, &[v, n])
}
