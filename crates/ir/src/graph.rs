//! The graph itself: values, nodes, states, and the primitive steps of rewriting. Types are inferred in `infer`, and
//! invariants checked in `verify`.

use crate::{Dim, Error, ErrorKind, Op, Result, WeightExpr, infer};
use cactus_tensor::DType;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Index of a [`Value`] of one [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

/// Index of a [`Node`] of one [`Graph`]. Stays valid when other nodes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl ValueId {
    /// Position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Element type and symbolic shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Size of each axis, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// Largest number of axes.
    pub const MAX_RANK: usize = 8;

    /// A type.
    pub fn new(dtype: DType, shape: impl Into<Vec<Dim>>) -> Self {
        TensorType {
            dtype,
            shape: shape.into(),
        }
    }

    /// The last axis, where it has a fixed size.
    pub fn last_known(&self) -> Option<usize> {
        self.shape.last().and_then(Dim::as_known)
    }

    /// The shape, where all of it is fixed.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(Dim::as_known).collect()
    }
}

/// A small constant held in the graph itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Literal {
    /// Single-precision floats.
    F32(#[serde(with = "crate::floats")] Vec<f32>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// Booleans.
    Bool(Vec<bool>),
}

impl Literal {
    /// Largest number of elements a literal may have; larger constants are weights.
    pub const MAX_ELEMS: usize = 1 << 16;

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Literal::F32(v) => v.len(),
            Literal::I64(v) => v.len(),
            Literal::Bool(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Literal::F32(_) => DType::F32,
            Literal::I64(_) => DType::I64,
            Literal::Bool(_) => DType::Bool,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Def {
    /// Given by the caller.
    Input,
    /// A tensor of the bundle, found by the value's name; `expr` tells conversion how to make it.
    Weight(WeightExpr),
    /// A constant in the graph.
    Literal(Literal),
    /// Result `output` of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its results.
        output: usize,
    },
}

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique among inputs and weights; informative elsewhere.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Where it comes from.
    pub def: Def,
}

/// One operation on values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Path of the module it came from, such as `layers.3.self_attn`.
    pub path: String,
    /// The operation.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results.
    pub outputs: Vec<ValueId>,
}

/// Kind and shape of a [`State`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateKind {
    /// Keys and values, `[past, kv_heads, head_dim]` each.
    Kv {
        /// Number of KV heads.
        kv_heads: usize,
        /// Width of a head.
        head_dim: usize,
        /// Only this many latest positions are ever read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<usize>,
    },
    /// The last inputs of a causal convolution, `[rows, channels]`.
    Conv {
        /// Number of channels.
        channels: usize,
        /// Kernel size less one.
        rows: usize,
    },
    /// A tensor carried from step to step, `f32` of this shape.
    Recurrent {
        /// Its shape.
        shape: Vec<usize>,
    },
}

/// Memory that outlives a call. All zero before the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ReadState")]
pub struct State {
    /// Unique name.
    pub name: String,
    /// Kind and shape.
    #[serde(flatten)]
    pub kind: StateKind,
}

/// A [`State`] as it is read, with what was read beside its name: the fields of `kind`, and nothing else may be there.
#[derive(Deserialize)]
struct ReadState {
    name: String,
    #[serde(flatten)]
    kind: StateKind,
    #[serde(flatten)]
    fields: BTreeMap<String, IgnoredAny>,
}

impl TryFrom<ReadState> for State {
    type Error = Error;

    fn try_from(read: ReadState) -> Result<State> {
        let known = serde_json::to_value(&read.kind).unwrap_or_default();
        match read.fields.keys().find(|k| known.get(k).is_none()) {
            None => Ok(State {
                name: read.name,
                kind: read.kind,
            }),
            Some(unknown) => {
                let what = format!("state `{}` has an unknown field `{unknown}`", read.name);
                Err(Error::new(ErrorKind::Format, what))
            }
        }
    }
}

/// A condition on sizes that must hold for the graph to be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// The size it is about, or a difference of sizes.
    pub dim: Dim,
    /// How it compares.
    pub is: Relation,
    /// With what.
    pub than: i64,
}

/// How a [`Constraint`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// `>=`
    AtLeast,
    /// `!=`
    Not,
}

impl Constraint {
    /// `dim >= n`.
    pub fn at_least(dim: Dim, n: i64) -> Self {
        let is = Relation::AtLeast;
        Constraint { dim, is, than: n }
    }

    /// `dim != n`.
    pub fn not(dim: Dim, n: i64) -> Self {
        let is = Relation::Not;
        Constraint { dim, is, than: n }
    }

    /// Whether it holds under `bindings`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Dim`] where a symbol is unbound.
    pub fn holds(&self, bindings: &crate::Bindings) -> Result<bool> {
        let value = self.dim.eval_integer(bindings)?;
        Ok(match self.is {
            Relation::AtLeast => value >= i128::from(self.than),
            Relation::Not => value != i128::from(self.than),
        })
    }
}

impl Constraint {
    /// The condition as a clause: `seq is at most 512` for `-seq >= -512`.
    pub fn in_words(&self) -> String {
        let size = self.dim.to_string();
        let turned = size.starts_with('-').then(|| self.dim.times_integer(-1).ok()).flatten();
        let (size, most) = match turned {
            Some(turned) => (turned.to_string(), true),
            None => (size, false),
        };
        let than = if most { self.than.saturating_neg() } else { self.than };
        match (self.is, most) {
            (Relation::AtLeast, false) => format!("{size} is at least {than}"),
            (Relation::AtLeast, true) => format!("{size} is at most {than}"),
            (Relation::Not, _) => format!("{size} is not {than}"),
        }
    }
}

impl std::fmt::Display for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.is {
            Relation::AtLeast => ">=",
            Relation::Not => "!=",
        };
        write!(f, "{} {sign} {}", self.dim, self.than)
    }
}

/// A portable graph. See the crate documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Name of the component.
    pub name: String,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) order: Vec<NodeId>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<(String, ValueId)>,
    pub(crate) states: Vec<State>,
    pub(crate) constraints: Vec<Constraint>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Graph {
            name: name.into(),
            ..Graph::default()
        }
    }

    /// Every value, dead ones included, by [`ValueId::index`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.value(id).ty
    }

    /// Inputs in the order of the call.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The input called `name`.
    pub fn input(&self, name: &str) -> Option<ValueId> {
        self.inputs.iter().copied().find(|&v| self.value(v).name == name)
    }

    /// Outputs by name.
    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }

    /// States, in order of declaration.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Conditions on sizes that every call must meet.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Names the outputs anew, in order; those without a name keep theirs.
    pub fn rename_outputs(&mut self, names: &[String]) {
        for ((old, _), new) in self.outputs.iter_mut().zip(names) {
            old.clone_from(new);
        }
    }

    /// Replaces the conditions on sizes.
    pub fn set_constraints(&mut self, constraints: Vec<Constraint>) {
        self.constraints = constraints;
    }

    /// The first condition that `bindings` break, in words.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Dim`] where a symbol is unbound.
    pub fn broken_constraint(&self, bindings: &crate::Bindings) -> Result<Option<String>> {
        for c in &self.constraints {
            if !c.holds(bindings)? {
                let sizes: Vec<String> = c
                    .dim
                    .symbols()
                    .map(|s| format!("{s} = {}", bindings.get(s).copied().unwrap_or(0)))
                    .collect();
                return Ok(Some(format!(
                    "the graph is only right where {}, here {}",
                    c.in_words(),
                    sizes.join(", ")
                )));
            }
        }
        Ok(None)
    }

    /// The state called `name`.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|s| s.name == name)
    }

    /// Weights in order of first use by a node or output: value id and expression.
    pub fn weights(&self) -> Vec<(ValueId, &WeightExpr)> {
        let mut seen = HashSet::new();
        let outputs = self.outputs.iter().map(|(_, v)| *v);
        self.order
            .iter()
            .flat_map(|&n| self.node(n).inputs.iter().copied())
            .chain(outputs)
            .filter(|v| seen.insert(*v))
            .filter_map(|v| match &self.value(v).def {
                Def::Weight(e) => Some((v, e)),
                _ => None,
            })
            .collect()
    }

    /// Live nodes in execution order.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// A live node.
    ///
    /// # Panics
    /// Where the node was removed or belongs to another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize]
            .as_ref()
            .expect("a NodeId of a removed node was used")
    }

    /// Live nodes in execution order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.order.iter().map(|&id| (id, self.node(id)))
    }

    /// The node that makes `value`, if a node does.
    pub fn producer(&self, value: ValueId) -> Option<(NodeId, &Node)> {
        match self.value(value).def {
            Def::Node { node, .. } => Some((node, self.node(node))),
            _ => None,
        }
    }

    /// For every value index, the nodes that read it, in order; a node appears once for each operand.
    pub fn uses(&self) -> Vec<Vec<NodeId>> {
        let mut uses = vec![Vec::new(); self.values.len()];
        for (id, node) in self.nodes() {
            for v in &node.inputs {
                uses[v.index()].push(id);
            }
        }
        uses
    }

    /// The `f32` of a literal with one element.
    pub fn scalar(&self, value: ValueId) -> Option<f32> {
        match &self.value(value).def {
            Def::Literal(Literal::F32(v)) if v.len() == 1 => Some(v[0]),
            _ => None,
        }
    }

    // ---- construction and rewriting

    fn push_value(&mut self, name: impl Into<String>, ty: TensorType, def: Def) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value {
            name: name.into(),
            ty,
            def,
        });
        id
    }

    /// Declares an input.
    pub fn add_input(&mut self, name: impl Into<String>, ty: TensorType) -> ValueId {
        let id = self.push_value(name, ty, Def::Input);
        self.inputs.push(id);
        id
    }

    /// Declares a weight.
    pub fn add_weight(&mut self, name: impl Into<String>, ty: TensorType, expr: WeightExpr) -> ValueId {
        self.push_value(name, ty, Def::Weight(expr))
    }

    /// Adds a constant of fixed `shape`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Type`] where the element counts differ or the literal is too large.
    pub fn add_literal(&mut self, shape: &[usize], literal: Literal) -> Result<ValueId> {
        let n = cactus_tensor::element_count(shape).map_err(|e| Error::ty(e.to_string()))?;
        if n != literal.len() || n > Literal::MAX_ELEMS {
            return Err(Error::ty(format!(
                "a literal of {} elements does not fit shape {shape:?} (at most {} elements)",
                literal.len(),
                Literal::MAX_ELEMS
            )));
        }
        let ty = TensorType::new(
            literal.dtype(),
            shape.iter().map(|&d| Dim::known(d)).collect::<Vec<_>>(),
        );
        Ok(self.push_value("", ty, Def::Literal(literal)))
    }

    /// Declares a state; a second one of the same name is refused.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Structure`] where the name is taken.
    pub fn add_state(&mut self, state: State) -> Result<()> {
        if self.state(&state.name).is_some() {
            return Err(Error::structure(format!("state `{}` is declared twice", state.name)));
        }
        self.states.push(state);
        Ok(())
    }

    /// Names `value` as an output.
    pub fn add_output(&mut self, name: impl Into<String>, value: ValueId) {
        self.outputs.push((name.into(), value));
    }

    /// Appends a node; result types are inferred.
    ///
    /// # Errors
    /// Those of [`infer`], placed at `path`.
    pub fn append(&mut self, path: impl Into<String>, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let at = self.order.len();
        self.insert(at, path, op, inputs)
    }

    /// Inserts a node before position `at` of [`Graph::order`]; result types are inferred.
    ///
    /// # Errors
    /// Those of [`infer`], placed at `path`.
    pub fn insert(&mut self, at: usize, path: impl Into<String>, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let path = path.into();
        let types: Vec<&TensorType> = inputs.iter().map(|&v| self.ty(v)).collect();
        let ty = infer(&op, &types).map_err(|e| e.at(format!("{path}/{}", op.mnemonic())))?;
        let node = NodeId(self.nodes.len() as u32);
        let out = self.push_value("", ty, Def::Node { node, output: 0 });
        self.nodes.push(Some(Node {
            path,
            op,
            inputs: inputs.to_vec(),
            outputs: vec![out],
        }));
        self.order.insert(at, node);
        Ok(out)
    }

    /// Puts another operation in the place of a node. Its result keeps its id, so users see the new value; the result
    /// type must be the same.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Type`] where the result type would change.
    pub fn replace(&mut self, id: NodeId, op: Op, inputs: &[ValueId]) -> Result<()> {
        let types: Vec<&TensorType> = inputs.iter().map(|&v| self.ty(v)).collect();
        let ty = infer(&op, &types)?;
        let old = self.node(id);
        let want = self.ty(old.outputs[0]);
        if ty != *want {
            return Err(Error::ty(format!(
                "{} gives {ty}, where {} gave {want}",
                op.mnemonic(),
                old.op.mnemonic()
            ))
            .at(old.path.clone()));
        }
        let node = self.nodes[id.0 as usize].as_mut().expect("`node` above found it");
        node.op = op;
        node.inputs = inputs.to_vec();
        Ok(())
    }

    /// Makes every node and output that reads `old` read `new`.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        for node in self.nodes.iter_mut().flatten() {
            for v in &mut node.inputs {
                if *v == old {
                    *v = new;
                }
            }
        }
        for (_, v) in &mut self.outputs {
            if *v == old {
                *v = new;
            }
        }
    }

    /// Removes nodes whose results nobody reads and which keep no state, until none is left. Returns how many.
    pub fn remove_dead(&mut self) -> usize {
        let mut live: HashSet<ValueId> = self.outputs.iter().map(|(_, v)| *v).collect();
        let mut keep = Vec::with_capacity(self.order.len());
        let before = self.order.len();
        for &id in self.order.iter().rev() {
            let node = self.node(id);
            if node.op.state().is_some() || node.outputs.iter().any(|v| live.contains(v)) {
                live.extend(node.inputs.iter().copied());
                keep.push(id);
            }
        }
        keep.reverse();
        let kept: HashSet<NodeId> = keep.iter().copied().collect();
        for (i, slot) in self.nodes.iter_mut().enumerate() {
            if !kept.contains(&NodeId(i as u32)) {
                *slot = None;
            }
        }
        self.order = keep;
        before - self.order.len()
    }

    /// The same graph without dead nodes and unused values, ids renumbered in order of use. Two graphs that differ only
    /// in their history become equal.
    pub fn compacted(&self) -> Graph {
        let mut src = self.clone();
        src.remove_dead();
        let mut out = Graph::new(src.name.clone());
        out.states = src.states.clone();
        out.constraints = src.constraints.clone();
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        for &v in &src.inputs {
            let value = src.value(v);
            map.insert(v, out.add_input(value.name.clone(), value.ty.clone()));
        }
        let leaf = |out: &mut Graph, map: &mut HashMap<ValueId, ValueId>, v: ValueId| {
            *map.entry(v).or_insert_with(|| {
                let value = src.value(v);
                out.push_value(value.name.clone(), value.ty.clone(), value.def.clone())
            })
        };
        for (_, node) in src.nodes() {
            let inputs = node.inputs.iter().map(|&v| leaf(&mut out, &mut map, v)).collect();
            let id = NodeId(out.nodes.len() as u32);
            let outputs = node
                .outputs
                .iter()
                .enumerate()
                .map(|(output, &v)| {
                    let value = src.value(v);
                    let new = out.push_value(value.name.clone(), value.ty.clone(), Def::Node { node: id, output });
                    map.insert(v, new);
                    new
                })
                .collect();
            out.nodes.push(Some(Node {
                path: node.path.clone(),
                op: node.op.clone(),
                inputs,
                outputs,
            }));
            out.order.push(id);
        }
        for (name, v) in &src.outputs {
            let v = leaf(&mut out, &mut map, *v);
            out.outputs.push((name.clone(), v));
        }
        out
    }
}
