//! Which axis of a value counts positions, and whether anything but known operations mixes them.

use crate::pattern::place;
use cactus_ir::{Dim, Graph, Node, Op, SEQ, TensorType, ValueId};

/// How a value depends on positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    /// Not at all.
    Constant,
    /// This axis has `n` elements for each position, its size being `n` times `seq`: index `t * n + j` depends on position
    /// `t`, and on earlier ones through causal operations only. `n` is 1 but for rows merged with another axis.
    Axis(usize),
    /// On the last position of the call.
    Last,
}

/// For every value index, how it depends on positions.
///
/// # Errors
/// The first node that mixes positions in a way that cannot be continued call by call, with what it does.
pub(crate) fn analyze(g: &Graph) -> Result<Vec<Along>, (String, String)> {
    let mut along = vec![Along::Constant; g.values().len()];
    for &v in g.inputs() {
        let at = format!("input `{}`", g.value(v).name);
        along[v.index()] = match seq_axes(g.ty(v)).map_err(|why| (at.clone(), why))?[..] {
            [] => Along::Constant,
            [axis] if g.ty(v).shape[axis] == Dim::symbol(SEQ) => Along::Axis(axis),
            [_] => {
                return Err((
                    at,
                    "one of its axes has several elements for each position; expected one".into(),
                ));
            }
            _ => {
                return Err((
                    at,
                    "two of its axes have one element for each position; expected one such axis".into(),
                ));
            }
        };
    }
    for (_, node) in g.nodes() {
        let fail = |why: String| (place(node), why);
        let out = node.outputs[0];
        let found = step(g, node, &along).map_err(fail)?;
        let axes = seq_axes(g.ty(out)).map_err(fail)?;
        let fits = match found {
            Along::Axis(axis) => axes == [axis],
            Along::Constant | Along::Last => axes.is_empty(),
        };
        if !fits {
            return Err(fail(format!(
                "its result {} has one element for each position at axes {axes:?}, which its operands do not",
                g.ty(out)
            )));
        }
        along[out.index()] = found;
    }
    Ok(along)
}

/// Whether a size is a fixed number of elements for each position.
fn counts(d: &Dim) -> bool {
    let one = d.substitute(SEQ, &Dim::known(1)).ok();
    let each = one.and_then(|d| d.as_integer()).filter(|&n| n > 0);
    each.is_some_and(|n| Dim::symbol(SEQ).times_integer(n).is_ok_and(|whole| whole == *d))
}

/// The axes whose size is a multiple of `seq`.
fn seq_axes(ty: &TensorType) -> Result<Vec<usize>, String> {
    let mut axes = Vec::new();
    for (i, d) in ty.shape.iter().enumerate() {
        if counts(d) {
            axes.push(i);
        } else if d.symbols().any(|s| s == SEQ) {
            return Err(format!(
                "axis {i} has {d} elements; expected a fixed number, or one for each position"
            ));
        }
    }
    Ok(axes)
}

fn step(g: &Graph, node: &Node, known: &[Along]) -> Result<Along, String> {
    let of = |i: usize| node.inputs.get(i).map_or(Along::Constant, |v| known[v.index()]);
    let shape = |v: ValueId| &g.ty(v).shape[..];
    let out = node.outputs[0];
    let rank = shape(out).len();
    let mixes = |axis: usize| {
        Err(format!(
            "it computes across axis {axis}, so every position depends on all others"
        ))
    };
    // The operand's axis stays, unless it is one of those the operation works along.
    let keep = |worked: &[usize]| match of(0) {
        Along::Axis(a) if worked.contains(&a) => mixes(a),
        other => Ok(other),
    };
    let constants = |from: usize| match (from..node.inputs.len()).find(|&i| of(i) != Along::Constant) {
        Some(i) => Err(format!(
            "operand {i} differs between positions; expected a weight or a constant"
        )),
        None => Ok(()),
    };
    match &node.op {
        Op::Unary { .. } | Op::Cast { .. } => keep(&[]),
        Op::Binary { .. } | Op::Compare { .. } | Op::Where => {
            let mut joined = Along::Constant;
            for (i, &v) in node.inputs.iter().enumerate() {
                let here = match of(i) {
                    Along::Axis(a) => Along::Axis(a + rank - shape(v).len()),
                    other => other,
                };
                joined = match (joined, here) {
                    (a, Along::Constant) | (Along::Constant, a) => a,
                    (a, b) if a == b => a,
                    _ => return Err("it combines different positions with each other".into()),
                };
            }
            Ok(joined)
        }
        Op::Reduce { axes, keepdim, .. } => Ok(match keep(axes)? {
            Along::Axis(a) if !keepdim => Along::Axis(a - axes.iter().filter(|&&x| x < a).count()),
            other => other,
        }),
        Op::Softmax { axis } | Op::CumSum { axis } | Op::ArgSort { axis, .. } => keep(&[*axis]),
        Op::ArgReduce { axis, keepdim, .. } => Ok(match keep(&[*axis])? {
            Along::Axis(a) if !keepdim && *axis < a => Along::Axis(a - 1),
            other => other,
        }),
        // Elements of one row, which the row itself chooses, or which are chosen alike in all.
        Op::Gather { axis } => match (of(0), of(1)) {
            (a, Along::Constant) if a != Along::Axis(*axis) => Ok(a),
            (Along::Constant, b) if b != Along::Axis(*axis) => Ok(b),
            (a, b) if a == b && a != Along::Axis(*axis) => Ok(a),
            _ => Err("it picks positions by an index, so a position may depend on any other".into()),
        },
        Op::Scatter { axis, .. } => {
            let here = Along::Axis(*axis);
            let mut joined = of(0);
            for i in 1..3 {
                joined = match (joined, of(i)) {
                    (a, Along::Constant) | (Along::Constant, a) if a != here => a,
                    (a, b) if a == b && a != here => a,
                    _ => return Err("it picks positions by an index, so a position may depend on any other".into()),
                };
            }
            Ok(joined)
        }
        Op::Take { axis } => match (of(0), of(1)) {
            (Along::Axis(a), Along::Constant) if a != *axis => {
                let more = shape(node.inputs[1]).len();
                Ok(Along::Axis(if a < *axis { a } else { a + more - 1 }))
            }
            // Rows of a table, as of an embedding.
            (Along::Constant, Along::Axis(b)) => Ok(Along::Axis(axis + b)),
            (other @ (Along::Constant | Along::Last), Along::Constant) => Ok(other),
            _ => Err("it picks positions by an index, so a position may depend on any other".into()),
        },
        Op::Reshape { shape: new } => match of(0) {
            Along::Axis(a) => {
                let before = element_key(&shape(node.inputs[0])[..a]);
                let at = (0..new.len()).find(|&i| counts(&new[i]) && element_key(&new[..i]) == before);
                at.map(Along::Axis)
                    .ok_or_else(|| "it merges the axis of positions with another one".into())
            }
            other => Ok(other),
        },
        Op::Permute { perm } => Ok(match of(0) {
            // A permutation has every axis.
            Along::Axis(a) => Along::Axis(perm.iter().position(|&p| p == a).unwrap_or(a)),
            other => other,
        }),
        Op::Slice { axis, start, end } => match of(0) {
            Along::Axis(a) if a == *axis => {
                let seq = Dim::symbol(SEQ);
                let last = seq.sub(&Dim::known(1)).is_ok_and(|last| *start == last) && *end == seq;
                let last = last && shape(node.inputs[0])[a] == seq;
                if last {
                    Ok(Along::Last)
                } else {
                    Err("it drops some of the positions".into())
                }
            }
            other => Ok(other),
        },
        Op::Concat { axis } => {
            let first = of(0);
            if (1..node.inputs.len()).any(|i| of(i) != first) {
                return Err("only some of its operands have one element for each position".into());
            }
            keep(&[*axis])
        }
        Op::Expand { shape: new } => {
            let added = new.len() - shape(node.inputs[0]).len();
            match of(0) {
                Along::Axis(a) => Ok(Along::Axis(a + added)),
                // The same for every position.
                Along::Constant => Ok(new.iter().position(counts).map_or(Along::Constant, Along::Axis)),
                Along::Last if new.iter().any(counts) => Err("it repeats the last position for every position".into()),
                Along::Last => Ok(Along::Last),
            }
        }
        Op::Iota { start, len } => {
            if *len != Dim::symbol(SEQ) {
                return Ok(Along::Constant);
            }
            match start.as_known() {
                Some(_) => Ok(Along::Axis(0)),
                None => Err(format!("its positions begin at {start}; expected a fixed number")),
            }
        }
        Op::Embedding => {
            if of(0) != Along::Constant {
                return Err("its table differs between positions; expected a weight".into());
            }
            Ok(of(1))
        }
        Op::Linear => {
            constants(1)?;
            keep(&[rank - 1])
        }
        Op::MatMul => {
            let (a, b) = (of(0), of(1));
            let contracted = |v: ValueId, back: usize, along: Along| along == Along::Axis(shape(v).len() - back);
            if contracted(node.inputs[0], 1, a) || contracted(node.inputs[1], 2, b) {
                return Err("it sums over positions".into());
            }
            let lifted = |v: ValueId, along: Along| match along {
                Along::Axis(x) => Along::Axis(x + rank - shape(v).len()),
                other => other,
            };
            match (lifted(node.inputs[0], a), lifted(node.inputs[1], b)) {
                (a, Along::Constant) | (Along::Constant, a) => Ok(a),
                (a, b) if a == b && a != Along::Axis(rank - 1) && a != Along::Axis(rank - 2) => Ok(a),
                _ => Err("it combines different positions with each other".into()),
            }
        }
        Op::Conv1d { .. } => {
            constants(1)?;
            match of(0) {
                Along::Axis(_) => {
                    Err("it is a convolution over positions that is not both causal and depthwise".into())
                }
                other => Ok(other),
            }
        }
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => {
            constants(1)?;
            // Weights of heads have the axis before, too.
            let own = shape(node.inputs[1]).len().min(rank);
            keep(&(rank - own..rank).collect::<Vec<_>>())
        }
        Op::Gated { .. } if node.inputs.len() == 2 && of(0) != of(1) => {
            Err("the gate and what it is of belong to different positions".into())
        }
        Op::Gated { .. } => keep(&[rank - 1]),
        Op::AltupPredict | Op::AltupCorrect { .. } => match (0..node.inputs.len() - 1).all(|i| of(i) == of(0)) {
            true if of(0) == Along::Axis(1) || of(0) == Along::Constant => {
                constants(node.inputs.len() - 1)?;
                Ok(of(0))
            }
            _ => Err("streams and what changes them belong to different positions".into()),
        },
        Op::SliceAdd { axis, .. } => {
            let lifted = match of(1) {
                Along::Axis(x) => Along::Axis(x + rank - shape(node.inputs[1]).len()),
                other => other,
            };
            match of(0) {
                first if first == lifted || lifted == Along::Constant => keep(&[*axis]),
                _ => Err("what is added belongs to other positions".into()),
            }
        }
        Op::NormGate { .. } => {
            constants(2)?;
            if of(0) == of(1) {
                keep(&[rank - 1])
            } else {
                Err("the norm and its gate belong to different positions".into())
            }
        }
        Op::Rope { .. } => match (of(0), of(1), of(2)) {
            (Along::Axis(1), Along::Axis(0), Along::Constant) => Ok(Along::Axis(1)),
            (Along::Constant, Along::Constant, Along::Constant) => Ok(Along::Constant),
            _ => Err("what it rotates, and the positions by which it does, belong to different positions".into()),
        },
        Op::NormRope { .. } => match (of(0), of(1), of(2), of(3)) {
            (Along::Axis(1), Along::Constant, Along::Axis(0), Along::Constant) => Ok(Along::Axis(1)),
            (Along::Constant, Along::Constant, Along::Constant, Along::Constant) => Ok(Along::Constant),
            _ => Err("what it rotates, and the positions by which it does, belong to different positions".into()),
        },
        Op::NormAdd { .. } => {
            constants(2)?;
            if of(0) == of(1) {
                keep(&[rank - 1])
            } else {
                Err("what is added belongs to other positions".into())
            }
        }
        Op::RoutedExperts { .. } => {
            constants(2)?;
            if of(0) == of(1) {
                keep(&[rank - 1])
            } else {
                Err("its rows and scores belong to different positions".into())
            }
        }
        Op::Attention(a) if node.inputs.len() > a.bias_operand() => {
            Err("the mask of the attention is not proven to be causal".into())
        }
        Op::Attention(a) if a.texts => Err("the attention is within texts that stand one after the other".into()),
        Op::Attention(a) => {
            match a.until_operand() {
                None => constants(3)?,
                // What is given says how far each position sees within its call.
                Some(until) => {
                    let other = (3..until).any(|i| of(i) != Along::Constant);
                    if other || of(until) != Along::Axis(0) {
                        return Err("the last positions that it sees are not one for each position".into());
                    }
                }
            }
            let one_each = (0..3).all(|i| shape(node.inputs[i])[1] == Dim::symbol(SEQ));
            // Whether a query sees the same of the keys at whatever position it stands.
            let anywhere = !a.causal && a.span().is_none() && a.ahead.is_none() && !a.slopes;
            match (of(0), of(1), of(2)) {
                // Keys and values that stay the same are read by each position on its own.
                (q, Along::Constant, Along::Constant) if anywhere => Ok(q),
                (Along::Axis(1), Along::Axis(1), Along::Axis(1)) if a.causal && one_each => Ok(Along::Axis(1)),
                (Along::Axis(1), Along::Axis(1), Along::Axis(1)) => Err("the attention sees later positions".into()),
                _ => Err("queries, keys and values belong to different positions".into()),
            }
        }
        Op::Experts { .. } => {
            constants(3)?;
            if of(0) == of(1) && of(1) == of(2) {
                keep(&[rank - 1])
            } else {
                Err("the rows, the chosen experts and their weights belong to different positions".into())
            }
        }
        Op::GatedDelta { .. } => {
            constants(5)?;
            let first = of(0);
            if (1..5).any(|i| of(i) != first) {
                return Err("only some of its operands have one element for each position".into());
            }
            match first {
                Along::Axis(1) if shape(out)[1] == Dim::symbol(SEQ) => Ok(first),
                Along::Constant => Ok(first),
                _ => Err("it is a recurrence, but not over positions".into()),
            }
        }
        Op::ShortConv { .. } => {
            constants(1)?;
            match of(0) {
                Along::Axis(1) if shape(out)[1] == Dim::symbol(SEQ) => Ok(Along::Axis(1)),
                Along::Constant => Ok(Along::Constant),
                _ => Err("it is a convolution, but not over positions".into()),
            }
        }
        other => Err(format!(
            "{} is an operation that this check does not know",
            other.mnemonic()
        )),
    }
}

/// Equal for equal element counts: the product of fixed sizes and the sorted symbolic ones.
fn element_key(shape: &[Dim]) -> (Option<usize>, Vec<&Dim>) {
    let fixed = shape
        .iter()
        .filter_map(Dim::as_known)
        .try_fold(1usize, usize::checked_mul);
    let mut symbolic: Vec<&Dim> = shape.iter().filter(|d| d.as_known().is_none()).collect();
    symbolic.sort();
    (fixed, symbolic)
}
