//! Several linears of one operand as one. Values of weights are joined by conversion, not here.

use crate::pattern::{Match, describe, free_name, insert_before, near, only_user, result};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Dim, Graph, NodeId, Op, TensorType, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Most linears that become one where their operand is computed. The result is kept until its last part is read, and layers that all
/// look at one thing, such as a table of distances, read theirs one after the other. What they make of an input of the graph, such as
/// what was heard, is kept for later calls in any case.
const MOST: usize = 4;

/// Makes linears of one operand one linear with the weights joined, and slices of its result: one pass over the operand
/// and one kernel call, where there were three for queries, keys and values. A weight that something else reads, such as
/// a tied embedding, stays as it is.
#[derive(Debug)]
pub(crate) struct MergeLinear;

impl Pass for MergeLinear {
    fn name(&self) -> &'static str {
        "merge_linear"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        // Operand and whether there is a bias, with the linears of it in order.
        let mut groups: Vec<((ValueId, bool), Vec<NodeId>)> = Vec::new();
        for (id, node) in graph.nodes() {
            if node.op == Op::Linear {
                let key = (node.inputs[0], node.inputs.len() > 2);
                match groups.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, members)) => members.push(id),
                    None => groups.push((key, vec![id])),
                }
            }
        }
        for ((operand, _), members) in groups {
            let most = if graph.inputs().contains(&operand) {
                members.len()
            } else {
                MOST
            };
            if members.len() < 2 {
                continue;
            }
            let mut fit = Vec::new();
            for id in members {
                match mergeable(graph, id) {
                    Ok(()) => fit.push(id),
                    Err(crate::pattern::Miss::Near(why)) => {
                        report.missed(self.name(), &graph.node(id).path.clone(), why);
                    }
                    Err(crate::pattern::Miss::Other) => {}
                }
            }
            for fit in fit.chunks(most).filter(|fit| fit.len() > 1) {
                let path = graph.node(fit[0]).path.clone();
                let merged = merge(graph, fit)?;
                let mut start = 0;
                for &id in fit {
                    let ty = graph.ty(result(graph, id));
                    let (axis, n) = (ty.shape.len() - 1, ty.last_known().unwrap_or(0));
                    let cut = Op::Slice {
                        axis,
                        start: Dim::known(start),
                        end: Dim::known(start + n),
                    };
                    graph.replace(id, cut, &[merged])?;
                    start += n;
                }
                report.fired(self.name(), &path, format!("{} linears into one", fit.len()));
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// Whether the linear's weight and bias are its own.
pub(crate) fn mergeable(g: &Graph, id: NodeId) -> Match<()> {
    for &v in &g.node(id).inputs[1..] {
        if !matches!(g.value(v).def, Def::Weight(_)) {
            return near(format!("{} is computed", describe(g, v)));
        }
        if only_user(g, v).is_none() {
            return near(format!("{} is used elsewhere too", describe(g, v)));
        }
    }
    Ok(())
}

/// Adds the linear that computes all of `linears`, in order along the last axis, before the first of them. All have the
/// same operand, all or none a bias, and each is [`mergeable`].
pub(crate) fn merge(g: &mut Graph, linears: &[NodeId]) -> Result<ValueId> {
    let x = g.node(linears[0]).inputs[0];
    let mut inputs = vec![x];
    for operand in 1..g.node(linears[0]).inputs.len() {
        let parts: Vec<ValueId> = linears.iter().map(|&id| g.node(id).inputs[operand]).collect();
        inputs.push(joined(g, &parts));
    }
    let position = |g: &Graph, id: NodeId| g.order().iter().position(|&n| n == id);
    let first = linears
        .iter()
        .copied()
        .min_by_key(|&id| position(g, id))
        .unwrap_or(linears[0]);
    insert_before(g, first, Op::Linear, &inputs)
}

/// The weight that joins `parts` along the first axis.
fn joined(g: &mut Graph, parts: &[ValueId]) -> ValueId {
    let names: Vec<&str> = parts.iter().map(|&p| g.value(p).name.as_str()).collect();
    let name = free_name(g, &joined_name(&names));
    let exprs = parts.iter().filter_map(|&p| match &g.value(p).def {
        Def::Weight(e) => Some(e.clone()),
        _ => None,
    });
    let expr = WeightExpr::Concat {
        axis: 0,
        parts: exprs.collect(),
    };
    let rows = parts.iter().filter_map(|&p| g.ty(p).shape[0].as_known()).sum();
    let mut shape = g.ty(parts[0]).shape.clone();
    shape[0] = Dim::known(rows);
    g.add_weight(name, TensorType::new(DType::F32, shape), expr)
}

/// What the names share at both ends, with what they do not joined by `+`: `attn.q_proj+k_proj.weight`.
fn joined_name(names: &[&str]) -> String {
    let split: Vec<Vec<&str>> = names.iter().map(|n| n.split('.').collect()).collect();
    let shortest = split.iter().map(Vec::len).min().unwrap_or(0);
    let first = &split[0];
    let prefix = (0..shortest)
        .take_while(|&i| split.iter().all(|s| s[i] == first[i]))
        .count();
    let at_end = |s: &Vec<&str>, i: usize| s[s.len() - 1 - i].to_owned();
    let suffix = (0..shortest - prefix)
        .take_while(|&i| split.iter().all(|s| at_end(s, i) == at_end(first, i)))
        .count();
    let middle: Vec<String> = split.iter().map(|s| s[prefix..s.len() - suffix].join(".")).collect();
    let mut parts: Vec<String> = first[..prefix].iter().map(|s| (*s).to_owned()).collect();
    parts.push(middle.join("+"));
    parts.extend(first[first.len() - suffix..].iter().map(|s| (*s).to_owned()));
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::joined_name;

    #[test]
    fn joined_name_keeps_what_names_share() {
        let cases: &[(&[&str], &str)] = &[
            (&["l.0.q.weight", "l.0.k.weight", "l.0.v.weight"], "l.0.q+k+v.weight"),
            (&["w1", "w3"], "w1+w3"),
            (&["a.b", "a"], "a.b+"),
            (&["x.y.weight", "z.weight"], "x.y+z.weight"),
        ];
        for (names, want) in cases {
            assert_eq!(joined_name(names), *want, "{names:?}");
        }
    }
}
