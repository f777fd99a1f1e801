//! From one call over a whole sequence to many calls that continue it. Whether that is possible is decided in
//! `seq_axis`; this pass only rewrites.

use crate::seq_axis::{Along, analyze};
use crate::{Pass, Report, Result};
use cactus_ir::{Constraint, Dim, Graph, NodeId, Op, PAST, Relation, SEQ, State, StateKind, ValueId};

/// Makes a graph that computes a whole sequence one that continues it call by call: causal attention keeps its keys and
/// values, a short convolution its last inputs, the gated delta rule its matrices, and positions start where the last call ended.
///
/// Every operation must treat positions one by one, or causally through attention and short convolution; the pass
/// proves this for the whole graph first and otherwise leaves it alone, naming the node that stopped it. The states are
/// those of one sequence, so the batch is 1 from then on.
#[derive(Debug)]
pub(crate) struct InsertStates;

impl InsertStates {
    pub(crate) const NAME: &'static str = "insert_states";
}

impl Pass for InsertStates {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        graph.remove_dead();
        if !graph.states().is_empty() {
            return Ok(());
        }
        let along = match analyze(graph) {
            Ok(along) => along,
            Err((at, why)) => {
                report.missed(Self::NAME, &at, why);
                return Ok(());
            }
        };
        let counts = |v: ValueId| matches!(along[v.index()], Along::Axis(_));
        let (mut changes, mut kept) = (Vec::new(), Vec::new());
        for (id, node) in graph.nodes() {
            let reads = node.inputs.first().copied();
            let change = match &node.op {
                Op::Iota { start, len } if *len == Dim::symbol(SEQ) => {
                    let start = start.add(&Dim::symbol(PAST))?;
                    Some((
                        Op::Iota {
                            start,
                            len: len.clone(),
                        },
                        None,
                    ))
                }
                Op::Attention(a)
                    if a.causal && !a.texts && node.inputs.len() == a.bias_operand() && reads.is_some_and(counts) =>
                {
                    kv_state(graph, id).map(|kind| {
                        let mut a = a.clone();
                        // Layers may share keys and values, which are kept once.
                        let keeps = ([node.inputs[1], node.inputs[2]], a.span());
                        if let Some((_, name)) = kept.iter().find(|(other, _)| *other == keeps) {
                            (a.state, a.appended) = (Some(String::clone(name)), true);
                            return (Op::Attention(a), None);
                        }
                        let name = state_name(graph, &changes, &node.path, "kv");
                        kept.push((keeps, name.clone()));
                        a.state = Some(name.clone());
                        (Op::Attention(a), Some(State { name, kind }))
                    })
                }
                &Op::GatedDelta { steps, .. } if reads.is_some_and(counts) => delta_state(graph, id).map(|kind| {
                    let name = state_name(graph, &changes, &node.path, "delta");
                    let state = Some(name.clone());
                    (Op::GatedDelta { steps, state }, Some(State { name, kind }))
                }),
                &Op::ShortConv { activation, .. } if reads.is_some_and(counts) => conv_state(graph, id).map(|kind| {
                    let name = state_name(graph, &changes, &node.path, "conv");
                    (
                        Op::ShortConv {
                            activation,
                            state: Some(name.clone()),
                        },
                        Some(State { name, kind }),
                    )
                }),
                _ => None,
            };
            changes.extend(change.map(|(op, state)| (id, op, state)));
        }
        if changes.is_empty() {
            report.missed(Self::NAME, "", "nothing depends on earlier positions");
            return Ok(());
        }
        constrain(graph)?;
        for (id, op, state) in changes {
            let node = graph.node(id);
            let (path, inputs) = (node.path.clone(), node.inputs.clone());
            let what = match &state {
                Some(State {
                    kind: StateKind::Kv { window: Some(_), .. },
                    ..
                }) => "KV state of a window",
                Some(State {
                    kind: StateKind::Kv { .. },
                    ..
                }) => "KV state",
                Some(State {
                    kind: StateKind::Recurrent { .. },
                    ..
                }) => "recurrent state",
                Some(_) => "convolution state",
                None if op.state().is_some() => "KV state of an earlier layer",
                None => "positions",
            };
            if let Some(state) = state {
                graph.add_state(state)?;
            }
            graph.replace(id, op, &inputs)?;
            report.fired(Self::NAME, &path, what);
        }
        Ok(())
    }
}

/// Conditions on the length of a whole sequence hold for what the states hold and the call together. That a sequence has
/// at least so many positions need not hold on the way to it: no position depends on later ones.
fn constrain(g: &mut Graph) -> Result<()> {
    let all = Dim::symbol(PAST).add(&Dim::symbol(SEQ))?;
    let at_least = |c: &Constraint| c.is == Relation::AtLeast && c.dim.as_symbol() == Some(SEQ);
    let kept: Vec<Constraint> = g.constraints().iter().filter(|c| !at_least(c)).cloned().collect();
    let mut changed = Vec::new();
    for c in kept {
        let dim = c.dim.substitute(SEQ, &all)?;
        changed.push(Constraint { dim, ..c });
    }
    g.set_constraints(changed);
    Ok(())
}

fn kv_state(g: &Graph, id: NodeId) -> Option<StateKind> {
    let node = g.node(id);
    let Op::Attention(a) = &node.op else { return None };
    let k = g.ty(node.inputs[1]);
    Some(StateKind::Kv {
        kv_heads: k.shape[2].as_known()?,
        head_dim: k.shape[3].as_known()?,
        window: a.span(),
    })
}

fn delta_state(g: &Graph, id: NodeId) -> Option<StateKind> {
    let node = g.node(id);
    let (q, v) = (g.ty(node.inputs[0]), g.ty(node.inputs[2]));
    let sizes = [&v.shape[2], &q.shape[3], &v.shape[3]].map(Dim::as_known);
    let shape = sizes.into_iter().collect::<Option<Vec<usize>>>()?;
    Some(StateKind::Recurrent { shape })
}

fn conv_state(g: &Graph, id: NodeId) -> Option<StateKind> {
    match g.ty(g.node(id).inputs[1]).known_shape()?[..] {
        [channels, kernel] => Some(StateKind::Conv {
            channels,
            rows: kernel.checked_sub(1)?,
        }),
        _ => None,
    }
}

/// `path.kind`, with a number where one path has several.
fn state_name(g: &Graph, changes: &[(NodeId, Op, Option<State>)], path: &str, kind: &str) -> String {
    let path = if path.is_empty() { &g.name } else { path };
    let base = format!("{path}.{kind}");
    let taken = |name: &str| {
        changes
            .iter()
            .any(|(_, _, s)| s.as_ref().is_some_and(|s| s.name == name))
    };
    if !taken(&base) {
        return base;
    }
    // There are as many names as changes, so one is free.
    (2..=changes.len() + 2)
        .map(|i| format!("{base}.{i}"))
        .find(|n| !taken(n))
        .unwrap_or(base)
}
