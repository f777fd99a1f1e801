//! From nodes to a program: which nodes are needed, the portable graph that they are, and the function that runs it.

use super::build::Graph;
use super::lower::{Lower, Operands, dims};
use super::{Error, GraphOp, Precision, Result};
use cactus_ir::{Dim, TensorType, ValueId, WeightExpr};
use cactus_passes::{Options, StatePolicy, optimize};
use cactus_reference::{WeightSource, eval_weight_expr};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// The length of a cache of keys or values, in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Any; caches of one number have one length.
    Any(usize),
    /// This.
    Known(usize),
}

/// What a program depends on beside the version of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) version: u64,
    /// Nodes that are read.
    pub(super) wanted: Vec<usize>,
    /// Persistent nodes that hold a value.
    pub(super) kept: Vec<usize>,
    pub(super) lengths: BTreeMap<usize, Length>,
}

/// Where an input of a program comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Feed {
    Input(usize),
    State(usize),
    Kept(usize),
}

/// A graph lowered for some outputs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) key: Key,
    pub(super) function: Function,
    pub(super) feeds: Vec<(String, Feed)>,
    /// Inputs that are drawn.
    pub(super) random: Vec<String>,
    /// Caches that the program changes.
    pub(super) changed: Vec<usize>,
    /// Persistent nodes that the program computes.
    pub(super) computed: Vec<usize>,
}

pub(super) fn output(id: usize) -> String {
    format!("o{id}")
}

pub(super) fn next_state(id: usize) -> String {
    format!("t{id}")
}

impl Graph {
    /// Nodes to read: those that no other reads, and those that are retained.
    pub(super) fn wanted(&self) -> Vec<usize> {
        let mut read = vec![false; self.nodes.len()];
        for node in &self.nodes {
            node.inputs.iter().for_each(|&i| read[i] = true);
        }
        let given = |i: usize| matches!(self.nodes[i].op, GraphOp::Input { .. } | GraphOp::Weights { .. });
        let computed = |&i: &usize| !self.nodes[i].is_state() && !given(i);
        let ends = (0..self.nodes.len()).filter(|&i| !read[i]);
        let all: BTreeSet<usize> = ends.chain(self.retained.iter().copied()).filter(computed).collect();
        all.into_iter().collect()
    }

    /// Nodes that what is wanted, and whatever changes a cache, depend on.
    fn needed(&self, key: &Key) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        key.wanted.iter().for_each(|&i| needed[i] = true);
        for (i, node) in self.nodes.iter().enumerate().rev() {
            needed[i] |= node.writes();
            let holds = key.kept.contains(&i);
            if needed[i] && !holds {
                node.inputs.iter().for_each(|&x| needed[x] = true);
            }
        }
        needed
    }

    /// Most positions of a cache of keys or values, and how many of the first stay.
    pub(super) fn limits(&self) -> BTreeMap<usize, (usize, usize)> {
        let mut limits = BTreeMap::new();
        for node in &self.nodes {
            let (GraphOp::KvAppend { window, sink }, Some(&cache)) = (&node.op, node.inputs.get(1)) else {
                continue;
            };
            if let Some(GraphOp::KvState {
                capacity,
                window: own,
                sink: first,
                ..
            }) = self.nodes.get(cache).map(|n| &n.op)
            {
                let most = [*window, *own].into_iter().find(|&w| w > 0).unwrap_or(*capacity);
                let sink = if *sink > 0 { *sink } else { *first };
                limits.insert(cache, (most.min(*capacity), sink));
            }
        }
        limits
    }

    /// The graph that reads node `id`, before any pass, and its inputs.
    #[cfg(test)]
    pub(super) fn portable(&self, id: usize) -> Result<(cactus_ir::Graph, BTreeMap<String, Tensor>)> {
        let key = Key {
            version: self.version,
            wanted: vec![id],
            kept: Vec::new(),
            lengths: BTreeMap::new(),
        };
        let mut c = self.lowered(&key)?;
        c.outputs(&key);
        let mut inputs = BTreeMap::new();
        for (name, feed) in &c.feeds {
            inputs.insert(name.clone(), self.fed(*feed)?);
        }
        Ok((c.l.b.finish()?, inputs))
    }

    /// The program of `key`.
    pub(super) fn compile(&self, key: Key) -> Result<Program> {
        self.lowered(&key)?.finish(key)
    }

    fn lowered(&self, key: &Key) -> Result<Compiler<'_>> {
        let needed = self.needed(key);
        let mut c = Compiler {
            graph: self,
            l: Lower::new(),
            values: vec![None; self.nodes.len()],
            feeds: Vec::new(),
            weights: Weights(BTreeMap::new()),
            computed: Vec::new(),
        };
        c.l.limits = self.limits();
        for (id, _) in needed.iter().enumerate().filter(|(_, n)| **n) {
            c.node(id, key)?;
        }
        Ok(c)
    }
}

struct Compiler<'g> {
    graph: &'g Graph,
    l: Lower,
    values: Vec<Option<ValueId>>,
    feeds: Vec<(String, Feed)>,
    weights: Weights,
    computed: Vec<usize>,
}

impl Compiler<'_> {
    fn node(&mut self, id: usize, key: &Key) -> Result<()> {
        let node = &self.graph.nodes[id];
        let fixed = TensorType::new(DType::F32, dims(&node.shape));
        let file = self.graph.files.get(&id);
        let value = match &node.op {
            GraphOp::Input { .. } | GraphOp::Weights { .. } if file.is_some() => {
                let tensor = file.map(super::weights::WeightFile::read).transpose()?;
                self.constant(id, tensor)?
            }
            GraphOp::Weights { path } => {
                return Err(Error::order(format!(
                    "the weight file `{path}` of node {id} could not be opened; bind the node to a file"
                )));
            }
            GraphOp::Input { .. } if self.graph.embedded.contains(&id) => {
                let tensor = self.graph.input_values(id)?;
                self.constant(id, Some(tensor))?
            }
            GraphOp::Input { .. } => self.fed(id, fixed, Feed::Input(id)),
            GraphOp::Persistent if key.kept.contains(&id) => self.fed(id, fixed, Feed::Kept(id)),
            _ if node.is_state() => {
                let mut shape = dims(&node.shape);
                if let Some(&length) = key.lengths.get(&id) {
                    shape[0] = match length {
                        Length::Any(i) => Dim::symbol(&format!("kv{i}")),
                        Length::Known(n) => Dim::known(n),
                    };
                }
                let v = self.fed(id, TensorType::new(DType::F32, shape), Feed::State(id));
                self.l.states.insert(id, v);
                v
            }
            op => {
                let mut values = Vec::with_capacity(node.inputs.len());
                let mut precisions = Vec::with_capacity(node.inputs.len());
                for &x in &node.inputs {
                    let held = self.l.states.get(&x).copied().or(self.values[x]);
                    values.push(held.ok_or_else(|| Error::argument(format!("node {x} has no value")))?);
                    precisions.push(self.graph.nodes[x].precision);
                }
                self.l.b.set_path(&format!("node {id}"));
                let operands = Operands {
                    ids: &node.inputs,
                    values: &values,
                    precisions: &precisions,
                };
                let value = self
                    .l
                    .node(id, op, &operands)
                    .map_err(|e| e.at(&format!("node {id}")))?;
                if *op == GraphOp::Persistent {
                    self.computed.push(id);
                }
                value
            }
        };
        self.values[id] = Some(value);
        Ok(())
    }

    fn fed(&mut self, id: usize, ty: TensorType, feed: Feed) -> ValueId {
        let name = format!("n{id}");
        self.feeds.push((name.clone(), feed));
        self.l.b.input(&name, ty)
    }

    fn constant(&mut self, id: usize, tensor: Option<Tensor>) -> Result<ValueId> {
        let tensor = tensor.ok_or_else(|| Error::order(format!("node {id} has no value")))?;
        let name = format!("w{id}");
        let v = self
            .l
            .b
            .weight_from(&name, tensor.shape(), WeightExpr::source(name.clone()));
        self.weights.0.insert(name, tensor);
        Ok(v)
    }

    /// Names what is read, and gives the caches that change.
    fn outputs(&mut self, key: &Key) -> Vec<usize> {
        for &id in key.wanted.iter().chain(&self.computed).collect::<BTreeSet<_>>() {
            if let Some(v) = self.values[id] {
                self.l.b.output(&output(id), v);
            }
        }
        let mut changed = Vec::new();
        for (&id, &v) in &self.l.states {
            if Some(v) != self.values[id] {
                self.l.b.output(&next_state(id), v);
                changed.push(id);
            }
        }
        changed
    }

    fn finish(mut self, key: Key) -> Result<Program> {
        let changed = self.outputs(&key);
        let Compiler {
            graph,
            l,
            feeds,
            weights,
            computed,
            ..
        } = self;
        let random = l.random;
        let portable = l.b.finish()?;
        let options = Options {
            states: StatePolicy::Never,
            ..Options::default()
        };
        let (portable, _) = optimize(&portable, &options)?;
        let mut tensors = BTreeMap::new();
        for (v, expr) in portable.weights() {
            tensors.insert(portable.value(v).name.clone(), eval_weight_expr(expr, &weights)?);
        }
        debug_assert!(changed.iter().all(|&id| graph.nodes[id].is_state()));
        Ok(Program {
            key,
            function: Function::with_weights(portable, &tensors, None)?,
            feeds,
            random,
            changed,
            computed,
        })
    }
}

/// Constants by name, as the passes ask for them.
struct Weights(BTreeMap<String, Tensor>);

impl WeightSource for Weights {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        self.0.get(name).cloned().ok_or_else(|| {
            cactus_reference::Error::new(
                cactus_reference::ErrorKind::Weight,
                format!("there is no constant `{name}`"),
            )
        })
    }
}

/// The precision that a cache is kept in.
pub(super) fn state_precision(op: &GraphOp, precision: Precision) -> Precision {
    match op {
        GraphOp::KvState { .. } => Precision::Fp32,
        _ => precision,
    }
}
