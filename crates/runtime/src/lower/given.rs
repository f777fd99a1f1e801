//! Inputs beside the token ids, which hold for a whole sequence (what an encoder heard or saw), and everything that depends
//! on them alone: keys and values of cross attention. It is computed once when they are given, not for each token.

use super::{Lowerer, Place};
use crate::function::Function;
use crate::step::{Input, Kind, Step};
use crate::{Error, Result};
use cactus_bundle::Bundle;
use cactus_ir::{AttentionAttrs, Constraint, Def, Dim, Graph, Node, NodeId, Op, PAST, SEQ, TensorType, ValueId};
use cactus_kernels::{Kernels, KvLayout};
use cactus_tensor::DType;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// What is computed once for a sequence.
#[derive(Debug)]
pub(crate) struct Given {
    /// From the inputs to the values that steps read.
    pub(crate) function: Function,
    /// Names of the inputs, in order.
    pub(crate) inputs: Vec<String>,
    /// Of each value, whether a step reads it as it is; keys and values of attention are kept in blocks alone.
    pub(crate) read: Vec<bool>,
    /// The symbol of its positions, where it can be computed for some of them at a time: of each, it makes that one's keys and values
    /// and nothing else.
    pub(crate) pieces: Option<String>,
}

/// Keys and values among what is given: they are kept as those of a cache are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Crossed {
    /// Indices of the keys and of the values, each `[1, positions, heads, width]`.
    pub(crate) keys: usize,
    pub(crate) values: usize,
    pub(crate) layout: KvLayout,
}

/// Nodes that depend on `inputs` and constants alone.
pub(super) struct Split {
    pub(super) nodes: HashSet<NodeId>,
    /// Values that the others read, in the order of the outputs of the function.
    pub(super) values: Vec<ValueId>,
    graph: Graph,
    inputs: Vec<String>,
}

/// Whether a type or an operation counts positions.
fn counts_positions(op: Option<&Op>, ty: &TensorType) -> bool {
    let any = |d: &Dim| d.symbols().any(|s| s == SEQ || s == PAST);
    let in_op = match op {
        Some(Op::Slice { start, end, .. }) => any(start) || any(end),
        Some(Op::Iota { start, len }) => any(start) || any(len),
        _ => false,
    };
    in_op || ty.shape.iter().any(any)
}

impl Split {
    /// What `graph` computes of `inputs`; `None` where there are none.
    pub(super) fn new(graph: &Graph, inputs: &[ValueId]) -> Result<Option<Split>> {
        if inputs.is_empty() {
            return Ok(None);
        }
        let broken = |e: cactus_ir::Error| Error::Unsupported {
            node: format!("component {}", graph.name),
            message: e.to_string(),
        };
        let mut sub = Graph::new(graph.name.clone());
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        let mut names = Vec::new();
        for &v in inputs {
            let value = graph.value(v);
            if counts_positions(None, &value.ty) {
                return Err(Error::Unsupported {
                    node: format!("input {}", value.name),
                    message: "only the token ids may have an axis of positions".into(),
                });
            }
            known.insert(v, sub.add_input(value.name.clone(), value.ty.clone()));
            names.push(value.name.clone());
        }
        let (mut nodes, mut made) = (HashSet::new(), HashSet::new());
        made.extend(inputs.iter().copied());
        for (id, node) in graph.nodes() {
            let constant = |v: &ValueId| matches!(graph.value(*v).def, Def::Weight(_) | Def::Literal(_));
            let out = node.outputs[0];
            let fixed = node.op.state().is_none()
                && node.inputs.iter().any(|v| made.contains(v))
                && node.inputs.iter().all(|v| made.contains(v) || constant(v))
                && !counts_positions(Some(&node.op), graph.ty(out));
            if !fixed {
                continue;
            }
            let mut operands = Vec::new();
            for &v in &node.inputs {
                let value = graph.value(v);
                let here = match (known.get(&v), &value.def) {
                    (Some(&here), _) => here,
                    (None, Def::Weight(expr)) => sub.add_weight(value.name.clone(), value.ty.clone(), expr.clone()),
                    (None, Def::Literal(literal)) => {
                        let shape = value.ty.known_shape().unwrap_or_default();
                        sub.add_literal(&shape, literal.clone()).map_err(broken)?
                    }
                    // Only constants and what was made before pass the test above.
                    _ => continue,
                };
                known.insert(v, here);
                operands.push(here);
            }
            let y = sub
                .append(node.path.clone(), node.op.clone(), &operands)
                .map_err(broken)?;
            known.insert(out, y);
            nodes.insert(id);
            made.insert(out);
        }
        let uses = graph.uses();
        let read = |v: &ValueId| uses[v.index()].iter().any(|n| !nodes.contains(n));
        let mut values: Vec<ValueId> = made.into_iter().filter(read).collect();
        values.sort();
        for (i, v) in values.iter().enumerate() {
            sub.add_output(format!("given.{i}"), known[v]);
        }
        let of_inputs = |c: &&Constraint| !c.dim.symbols().any(|s| s == SEQ || s == PAST);
        sub.set_constraints(graph.constraints().iter().filter(of_inputs).cloned().collect());
        Ok(Some(Split {
            nodes,
            values,
            graph: sub,
            inputs: names,
        }))
    }

    pub(super) fn finish(
        self,
        bundle: &Arc<Bundle>,
        bindings: &BTreeMap<String, String>,
        kernels: &'static Kernels,
        steps: &[Step],
    ) -> Result<Given> {
        let mut read = vec![false; self.values.len()];
        for step in steps {
            let Kind::Island { inputs, .. } = &step.kind else {
                continue;
            };
            for input in inputs {
                if let Input::Given(index) = input {
                    read[*index] = true;
                }
            }
        }
        let pieces = match read.contains(&true) {
            true => None,
            false => apart(&self.graph),
        };
        Ok(Given {
            read,
            pieces,
            function: Function::of(self.graph, Arc::clone(bundle), bindings, kernels)?,
            inputs: self.inputs,
        })
    }
}

/// The symbol of the positions of `graph`, from one input `f32 [1, positions, width]` to values `[1, positions, heads, width]`, where
/// it computes each of them from that position of the input alone.
fn apart(graph: &Graph) -> Option<String> {
    let &[input] = graph.inputs() else { return None };
    let ty = graph.ty(input);
    let symbol = match &ty.shape[..] {
        [one, positions, _] if one.is(1) && ty.dtype == DType::F32 => positions.as_symbol()?,
        _ => return None,
    };
    // Of each value made of the input: the axis of its positions, before which there are none of more than one element.
    let mut axes = HashMap::from([(input, 1)]);
    for (_, node) in graph.nodes() {
        let out = &graph.ty(node.outputs[0]).shape;
        let of = |i: usize| axes.get(node.inputs.get(i)?).copied();
        let counts = |v: ValueId| graph.ty(v).shape.iter().any(|d| d.symbols().any(|s| s == symbol));
        // Nothing else may be as long as the input.
        let alone = node
            .inputs
            .iter()
            .skip(1)
            .all(|&v| !axes.contains_key(&v) && !counts(v));
        let axis = match &node.op {
            Op::Linear if alone => of(0).filter(|axis| axis + 1 < out.len()),
            Op::Unary { .. } => of(0),
            Op::Binary { .. } => {
                // Shapes are aligned at their ends.
                let aligned = |i: usize| Some(of(i)? + out.len() - graph.ty(node.inputs[i]).shape.len());
                let axis = aligned(0).or_else(|| aligned(1))?;
                let fits = |(i, &v): (usize, &ValueId)| match aligned(i) {
                    Some(other) => other == axis,
                    // The same for all positions.
                    None => {
                        let shape = &graph.ty(v).shape;
                        let here = (axis + shape.len()).checked_sub(out.len());
                        !counts(v) && here.is_none_or(|axis| shape[axis].is(1))
                    }
                };
                node.inputs.iter().enumerate().all(fits).then_some(axis)
            }
            Op::Slice { axis, .. } => of(0).filter(|positions| positions != axis),
            Op::Reshape { .. } => {
                of(0)?;
                out.iter().position(|d| d.as_symbol() == Some(symbol))
            }
            _ => None,
        }?;
        let kept = out[axis].as_symbol() == Some(symbol) && out[..axis].iter().all(|d| d.is(1));
        let once = out.iter().filter(|d| d.symbols().any(|s| s == symbol)).count() == 1;
        if !kept || !once {
            return None;
        }
        axes.insert(node.outputs[0], axis);
    }
    let whole = |v: ValueId| axes.get(&v) == Some(&1) && v != input;
    graph
        .outputs()
        .iter()
        .all(|(_, v)| whole(*v))
        .then(|| symbol.to_owned())
}

impl Lowerer<'_> {
    /// Steps find what is given by its index.
    pub(super) fn place_given(&mut self, split: &Split) {
        for (i, &v) in split.values.iter().enumerate() {
            self.places.insert(v, Place::Given(i));
        }
    }

    /// The keys and values that attention without a state reads, where they are given and every query sees all of them.
    pub(super) fn crossed(&mut self, node: &Node, a: &AttentionAttrs) -> Option<usize> {
        let given = |v: ValueId| match self.places.get(&v) {
            Some(Place::Given(index)) => Some(*index),
            _ => None,
        };
        let (Some(keys), Some(values)) = (given(node.inputs[1]), given(node.inputs[2])) else {
            return None;
        };
        let sees_all = !a.causal && a.window.is_none() && a.ahead.is_none() && a.chunk.is_none() && !a.slopes;
        let shape = &self.graph.ty(node.inputs[1]).shape;
        let (heads, width) = match (&shape[..], self.graph.ty(node.inputs[2]).shape == *shape) {
            ([one, _, heads, width], true) if one.is(1) => (heads.as_known(), width.as_known()),
            _ => return None,
        };
        let operands = 3 + usize::from(a.sinks);
        let (true, Some(heads), Some(width)) = (sees_all && node.inputs.len() == operands, heads, width) else {
            return None;
        };
        let Ok(layout) = KvLayout::new(heads, width, self.dtype) else {
            return None;
        };
        let crossed = Crossed { keys, values, layout };
        if let Some(index) = self.crossed.iter().position(|c| *c == crossed) {
            return Some(index);
        }
        self.crossed.push(crossed);
        Some(self.crossed.len() - 1)
    }

    pub(super) fn cross_attention(&mut self, node: &Node, a: &AttentionAttrs, crossed: usize) -> Result<()> {
        let out = node.outputs[0];
        let q = self.view(node, node.inputs[0])?;
        let heads = self.graph.ty(out).shape[2].as_known().unwrap_or(0);
        let sinks = a.sinks_operand().map(|i| self.fixed(node, i)).transpose()?;
        let buffer = self.fresh(node, out, q.width)?;
        let kind = Kind::CrossAttention {
            crossed,
            q,
            heads,
            attrs: a.clone(),
            sinks,
            out: buffer,
        };
        self.push(node, kind);
        Ok(())
    }
}
