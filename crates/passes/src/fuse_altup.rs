//! Alternating updates (Baykal et al. 2023), as Gemma 3n has them: streams that are predicted before a layer and corrected behind it.

use crate::pattern::{
    Match, Miss, binary, either, insert_before, maker, plus_scalar, result, rewrite_each, strip, unary,
};
use crate::{Pass, Report, Result};
use cactus_ir::{BinaryFn, Def, Dim, Graph, Node, NodeId, Op, UnaryFn, ValueId};

/// The axis that counts streams, `[streams, batch, seq, width]`, to where operations on them have it, `[batch, seq, streams, width]`, and back.
const BEHIND: [usize; 4] = [1, 2, 0, 3];
const AHEAD: [usize; 4] = [2, 0, 1, 3];

/// Finds what streams predict of each other, how predictions are corrected, and what is added to some streams, whether the axis that counts them
/// is the first or stands before the last. Behind this pass it stands before the last.
#[derive(Debug)]
pub(crate) struct FuseAltup;

impl Pass for FuseAltup {
    fn name(&self) -> &'static str {
        "fuse_altup"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "alternating update"), find, rewrite)?;
        rewrite_each(
            graph,
            report,
            (self.name(), "sum of streams"),
            find_sum,
            |g, id, found| {
                let Sum { slice, y } = found;
                let Node {
                    op: Op::Slice { start, end, .. },
                    inputs,
                    ..
                } = g.node(slice).clone()
                else {
                    return Ok(());
                };
                let streams = behind(g, id, inputs[0])?;
                let axis = 2;
                let part = insert_before(g, id, Op::Slice { axis, start, end }, &[streams])?;
                let y = beside(g, id, y)?;
                let sum = insert_before(g, id, Op::Binary { f: BinaryFn::Add }, &[part, y])?;
                let perm = AHEAD.to_vec();
                Ok(g.replace(id, Op::Permute { perm }, &[sum])?)
            },
        )?;
        rewrite_each(
            graph,
            report,
            (self.name(), "stream"),
            find_stream,
            |g, id, (slice, streams)| {
                let shape = g.ty(result(g, id)).shape.clone();
                let one = insert_before(g, id, slice, &[streams])?;
                Ok(g.replace(id, Op::Reshape { shape }, &[one])?)
            },
        )
    }
}

/// Where the axis that counts streams is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    First,
    Third,
}

impl Axis {
    fn of(axis: usize) -> Option<Axis> {
        match axis {
            0 => Some(Axis::First),
            2 => Some(Axis::Third),
            _ => None,
        }
    }

    fn index(self) -> usize {
        match self {
            Axis::First => 0,
            Axis::Third => 2,
        }
    }
}

struct Found {
    axis: Axis,
    op: Op,
    streams: ValueId,
    /// What became of the active one, or what is added, `[batch, seq, width]`.
    x: Option<ValueId>,
    /// Routes and factors.
    routed: Option<[ValueId; 2]>,
}

fn rewrite(g: &mut Graph, id: NodeId, found: Found) -> Result<()> {
    let streams = match found.axis {
        Axis::First => behind(g, id, found.streams)?,
        Axis::Third => found.streams,
    };
    let x = match (found.x, &found.op) {
        (Some(x), Op::SliceAdd { .. }) => Some(beside(g, id, x)?),
        (x, _) => x,
    };
    let inputs: Vec<ValueId> = std::iter::once(streams)
        .chain(x)
        .chain(found.routed.into_iter().flatten())
        .collect();
    if found.axis == Axis::Third {
        return Ok(g.replace(id, found.op, &inputs)?);
    }
    let y = insert_before(g, id, found.op, &inputs)?;
    let perm = AHEAD.to_vec();
    Ok(g.replace(id, Op::Permute { perm }, &[y])?)
}

/// Streams with the axis that counts them before the last.
fn behind(g: &mut Graph, id: NodeId, streams: ValueId) -> Result<ValueId> {
    let made = maker(g, streams).cloned();
    match made {
        Some(Node {
            op: Op::Permute { perm },
            inputs,
            ..
        }) if perm == AHEAD => Ok(inputs[0]),
        // Values that are joined need not be moved.
        Some(Node {
            op: Op::Concat { axis: 0 },
            inputs,
            ..
        }) if inputs.iter().all(|&v| g.ty(v).shape[0].is(1)) => {
            let mut rows = Vec::new();
            for v in inputs {
                rows.push(beside(g, id, v)?);
            }
            insert_before(g, id, Op::Concat { axis: 2 }, &rows)
        }
        _ => {
            let perm = BEHIND.to_vec();
            insert_before(g, id, Op::Permute { perm }, &[streams])
        }
    }
}

/// `[batch, seq, width]`, perhaps with an axis of size 1, as `[batch, seq, 1, width]`.
fn beside(g: &mut Graph, id: NodeId, x: ValueId) -> Result<ValueId> {
    let own = &g.ty(x).shape;
    let shape = match own.len() {
        4 if own[2].is(1) => return Ok(x),
        4 => vec![own[1].clone(), own[2].clone(), Dim::known(1), own[3].clone()],
        _ => vec![own[0].clone(), own[1].clone(), Dim::known(1), own[2].clone()],
    };
    insert_before(g, id, Op::Reshape { shape }, &[x])
}

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let out = result(g, id);
    if g.ty(out).shape.len() != 4 {
        return Err(Miss::Other);
    }
    let found = match &g.node(id).op {
        Op::Concat { axis } => slice_add(g, id, *axis),
        Op::Binary { f: BinaryFn::Add } => either(g, out, BinaryFn::Add, |change, streams| {
            (g.ty(streams) == g.ty(out))
                .then(|| predicted(g, change, streams).or_else(|| corrected(g, change, streams)))?
        }),
        _ => None,
    };
    found.ok_or(Miss::Other)
}

/// Where `change` is what `streams` predict of each other.
fn predicted(g: &Graph, change: ValueId, streams: ValueId) -> Option<Found> {
    let permuted = |v: ValueId, by: [usize; 4]| match maker(g, v)? {
        Node {
            op: Op::Permute { perm },
            inputs,
            ..
        } => (*perm == by).then_some(inputs[0]),
        _ => None,
    };
    let product = |v: ValueId| match maker(g, v)? {
        node if node.op == Op::MatMul => Some((node.inputs[0], node.inputs[1])),
        _ => None,
    };
    let (axis, factors) = match permuted(change, [3, 0, 1, 2]) {
        Some(turned) => {
            let (x, factors) = product(turned)?;
            (permuted(x, [1, 2, 3, 0])? == streams).then_some(())?;
            (Axis::First, permuted(factors, [0, 1, 3, 2])?)
        }
        None => {
            let (factors, x) = product(change)?;
            (x == streams).then_some((Axis::Third, factors))?
        }
    };
    let n = g.ty(streams).shape[axis.index()].as_known()?;
    let routed = routed(g, strip(g, factors), n)?;
    let square = g.ty(factors).shape[2..].iter().all(|d| d.is(n)) && g.ty(routed[1]).shape[0].is(n * n);
    square.then_some(Found {
        axis,
        op: Op::AltupPredict,
        streams,
        x: None,
        routed: Some(routed),
    })
}

/// Routes and factors, where `v` is `linear(tanh(routes), factors)` of `n` routes.
fn routed(g: &Graph, v: ValueId, n: usize) -> Option<[ValueId; 2]> {
    let node = maker(g, v)?;
    let (Op::Linear, &[x, factors]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let routes = unary(g, x, UnaryFn::Tanh)?;
    let fits = g.ty(routes).shape.len() == 3 && g.ty(routes).last_known() == Some(n);
    (fits && matches!(g.value(factors).def, Def::Weight(_))).then_some([routes, factors])
}

/// Where `change` is how `predictions` are corrected.
fn corrected(g: &Graph, change: ValueId, predictions: ValueId) -> Option<Found> {
    either(g, change, BinaryFn::Mul, |new, factors| {
        let (x, expected) = binary(g, strip(g, new), BinaryFn::Sub)?;
        let Some(Node {
            op: Op::Slice { axis, start, end },
            inputs,
            ..
        }) = maker(g, strip(g, expected))
        else {
            return None;
        };
        let (axis, active) = (Axis::of(*axis)?, start.as_known()?);
        let n = g.ty(predictions).shape[axis.index()].as_known()?;
        (inputs[0] == predictions && end.is(active + 1)).then_some(())?;
        // One for each stream and position.
        let mut of = strip(g, factors);
        if let Some(Node {
            op: Op::Permute { perm },
            inputs,
            ..
        }) = maker(g, of)
        {
            (axis == Axis::First && perm[..] == [2, 0, 1]).then_some(())?;
            of = strip(g, inputs[0]);
        }
        let (made, one) = plus_scalar(g, of)?;
        let routed = routed(g, made, n)?;
        let shape = &g.ty(factors).shape;
        let each = shape.len() == 4 && shape[axis.index()].is(n) && shape[3].is(1) && g.ty(routed[1]).shape[0].is(n);
        let width = &g.ty(predictions).shape[3];
        let whole = g.ty(x).shape.len() == 3 && g.ty(x).shape[2] == *width;
        (one == 1.0 && each && whole).then_some(Found {
            axis,
            op: Op::AltupCorrect { active },
            streams: predictions,
            x: Some(x),
            routed: Some(routed),
        })
    })
}

/// Where streams are joined again of which some had something added.
fn slice_add(g: &Graph, id: NodeId, axis: usize) -> Option<Found> {
    let at = Axis::of(axis)?;
    let &[first, others] = &g.node(id).inputs[..] else {
        return None;
    };
    let part = |v: ValueId| match maker(g, v)? {
        Node {
            op: Op::Slice { axis: a, start, end },
            inputs,
            ..
        } if *a == axis => Some((inputs[0], start.as_known()?, end.as_known()?)),
        _ => None,
    };
    let (streams, 0, kept) = part(first)? else { return None };
    let n = g.ty(streams).shape[axis].as_known()?;
    let y = either(g, others, BinaryFn::Add, |others, y| {
        (part(others)? == (streams, kept, n)).then_some(y)
    })?;
    let (shape, of) = (&g.ty(y).shape, &g.ty(streams).shape);
    let one = shape.len() == 3 || shape.len() == 4 && shape[axis].is(1);
    let fits = one && shape.last() == of.last();
    (fits && (at == Axis::First || shape.len() == 4)).then_some(Found {
        axis: at,
        op: Op::SliceAdd {
            axis: 2,
            start: kept,
            end: n,
        },
        streams,
        x: Some(y),
        routed: None,
    })
}

/// Where one of streams that were moved is taken out: what takes it out where they come from.
fn find_stream(g: &Graph, id: NodeId) -> Match<(Op, ValueId)> {
    let node = g.node(id);
    let Op::Slice { axis: 0, start, end } = &node.op else {
        return Err(Miss::Other);
    };
    let moved = match maker(g, node.inputs[0]) {
        Some(Node {
            op: Op::Permute { perm },
            inputs,
            ..
        }) if perm[..] == AHEAD && g.ty(result(g, id)).shape[0].is(1) => inputs[0],
        _ => return Err(Miss::Other),
    };
    let (start, end, axis) = (start.clone(), end.clone(), 2);
    Ok((Op::Slice { axis, start, end }, moved))
}

struct Sum {
    slice: NodeId,
    y: ValueId,
}

/// Where something is added to some of streams that were corrected and moved.
fn find_sum(g: &Graph, id: NodeId) -> Match<Sum> {
    let corrected = |v: ValueId| match maker(g, v)? {
        Node {
            op: Op::Permute { perm },
            inputs,
            ..
        } if *perm == AHEAD => matches!(maker(g, inputs[0])?.op, Op::AltupCorrect { .. }).then_some(()),
        _ => None,
    };
    either(g, result(g, id), BinaryFn::Add, |part, y| {
        let (slice, node) = g.producer(part)?;
        let Op::Slice { axis: 0, .. } = node.op else {
            return None;
        };
        corrected(node.inputs[0])?;
        let fits = g.ty(y).shape.len() == 3 && g.ty(y).last_known() == g.ty(part).last_known();
        fits.then_some(Sum { slice, y })
    })
    .ok_or(Miss::Other)
}
