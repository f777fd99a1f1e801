//! Adding nodes. Each is lowered alone, over operands of the shapes that are known, which gives its shape or says at once what
//! does not fit.

use super::compile::Program;
use super::data::Given;
use super::lower::{Lower, Operands, dims};
use super::run::Last;
use super::weights::WeightFile;
use super::{Error, ErrorKind, GraphOp, Precision, Result};
use cactus_base::AlignedBuf;
use cactus_ir::{Dim, TensorType, ValueId};
use cactus_tensor::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Most axes of a node.
pub(crate) const MAX_RANK: usize = TensorType::MAX_RANK;
/// Most nodes of a graph.
const MAX_NODES: usize = 1 << 20;
/// Most bytes of a node, as it is held.
const MAX_NODE_BYTES: usize = 1 << if usize::BITS > 32 { 34 } else { 30 };

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) op: GraphOp,
    pub(super) inputs: Vec<usize>,
    pub(super) precision: Precision,
    pub(super) shape: Vec<usize>,
}

impl Node {
    /// Whether it holds what earlier executions left.
    pub(super) fn is_state(&self) -> bool {
        matches!(
            self.op,
            GraphOp::KvState { .. } | GraphOp::ConvState { .. } | GraphOp::RecurrentState(_)
        )
    }

    /// Whether executing it changes a cache.
    pub(super) fn writes(&self) -> bool {
        matches!(
            self.op,
            GraphOp::KvAppend { .. } | GraphOp::ConvAppend | GraphOp::ConvInitialize | GraphOp::RecurrentWrite
        )
    }
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    /// Its element type.
    pub(crate) precision: Precision,
    /// Its shape, of at most [`MAX_RANK`] axes.
    pub(crate) shape: Vec<usize>,
    /// Its elements.
    pub(crate) elements: usize,
    /// Bytes of its elements.
    pub(crate) bytes: usize,
}

/// A graph that is built node by node, executed and read. Nodes are numbered from 0 in the order in which they are added,
/// and run in that order.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// What was set, by input node.
    pub(super) given: BTreeMap<usize, Given>,
    /// Weight files, by node.
    pub(super) files: BTreeMap<usize, WeightFile>,
    /// Inputs whose values belong to the graph.
    pub(super) embedded: BTreeSet<usize>,
    /// What caches hold.
    pub(super) states: BTreeMap<usize, Tensor>,
    /// What persistent nodes hold.
    pub(super) kept: BTreeMap<usize, Tensor>,
    /// Nodes to read beside those that no other reads.
    pub(super) retained: BTreeSet<usize>,
    /// Grows with each change that a program depends on.
    pub(super) version: u64,
    pub(super) programs: Vec<Program>,
    pub(super) last: Option<Last>,
    /// Elements of nodes as callers read them.
    pub(super) buffers: BTreeMap<usize, AlignedBuf>,
}

impl Graph {
    /// An empty graph.
    pub(crate) fn new() -> Self {
        Graph::default()
    }

    /// Nodes so far.
    #[cfg(test)]
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Removes everything.
    pub(crate) fn hard_reset(&mut self) {
        *self = Graph {
            version: self.version + 1,
            ..Graph::default()
        };
    }

    pub(super) fn node(&self, id: usize) -> Result<&Node> {
        self.nodes.get(id).ok_or_else(|| {
            let n = self.nodes.len();
            Error::new(
                ErrorKind::Node,
                format!("there is no node {id}; the graph has {n} nodes"),
            )
        })
    }

    /// Adds an input.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for a shape without axes, with more than [`MAX_RANK`], or too large; [`ErrorKind::Unsupported`]
    /// for a precision of weight files alone.
    pub(crate) fn input(&mut self, shape: &[usize], precision: Precision) -> Result<usize> {
        precision.plain_bytes()?;
        if shape.is_empty() {
            return Err(Error::argument("an input has at least one axis"));
        }
        let dynamic = Vec::new();
        self.push(GraphOp::Input { dynamic }, &[], shape.to_vec(), precision)
    }

    /// Adds the cache of a tensor.
    ///
    /// # Errors
    /// As [`Graph::input`].
    pub(crate) fn recurrent_state(&mut self, shape: &[usize], precision: Precision) -> Result<usize> {
        precision.plain_bytes()?;
        if shape.is_empty() {
            return Err(Error::argument("a cache has at least one axis"));
        }
        let op = GraphOp::RecurrentState(shape.to_vec());
        self.push(op, &[], shape.to_vec(), precision)
    }

    /// Adds a node that computes `op` of `inputs`.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] for an unknown operand, [`ErrorKind::Shape`] where operands do not fit, [`ErrorKind::Argument`] where
    /// attributes do not.
    pub(crate) fn add(&mut self, op: GraphOp, inputs: &[usize]) -> Result<usize> {
        let (shape, precision) = self.inferred(&op, inputs)?;
        self.push(op, inputs, shape, precision)
    }

    pub(super) fn push(
        &mut self,
        op: GraphOp,
        inputs: &[usize],
        shape: Vec<usize>,
        precision: Precision,
    ) -> Result<usize> {
        check_shape(&shape)?;
        if self.nodes.len() >= MAX_NODES {
            return Err(Error::argument(format!("a graph has at most {MAX_NODES} nodes")));
        }
        let inputs = inputs.to_vec();
        self.nodes.push(Node {
            op,
            inputs,
            precision,
            shape,
        });
        self.version += 1;
        Ok(self.nodes.len() - 1)
    }

    /// Shape and precision of what `op` makes of `inputs`.
    pub(super) fn inferred(&self, op: &GraphOp, inputs: &[usize]) -> Result<(Vec<usize>, Precision)> {
        let mut precisions = Vec::with_capacity(inputs.len());
        for &id in inputs {
            precisions.push(self.node(id)?.precision);
        }
        match op {
            GraphOp::KvState {
                capacity,
                heads,
                head_dim,
                ..
            } => return Ok((vec![*capacity, *heads, *head_dim], Precision::Fp32)),
            GraphOp::ConvState { rows, channels } => return Ok((vec![*rows, *channels], Precision::Fp16)),
            _ => {}
        }
        let mut l = Lower::new();
        let mut values = Vec::with_capacity(inputs.len());
        for &id in inputs {
            let v = match l.states.get(&id) {
                Some(&held) => held,
                None => self.stand_in(&mut l, id)?,
            };
            values.push(v);
        }
        let out = l.node(
            self.nodes.len(),
            op,
            &Operands {
                ids: inputs,
                values: &values,
                precisions: &precisions,
            },
        )?;
        let first = precisions.first().copied();
        Ok((l.shape(out)?, precision_of(op, first)))
    }

    /// A value of the type of a node.
    fn stand_in(&self, l: &mut Lower, id: usize) -> Result<ValueId> {
        let node = self.node(id)?;
        let mut shape = dims(&node.shape);
        if matches!(node.op, GraphOp::KvState { .. }) {
            shape[0] = Dim::symbol("kv");
        }
        let v = l.b.input(&format!("n{id}"), TensorType::new(DType::F32, shape));
        if node.is_state() {
            l.states.insert(id, v);
        }
        Ok(v)
    }

    /// What is known of a node.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] for an unknown node.
    pub(crate) fn info(&self, id: usize) -> Result<Info> {
        let node = self.node(id)?;
        let elements = node.shape.iter().product();
        let bytes = match (node.precision.size_bytes(), self.files.get(&id)) {
            (Some(size), _) => elements * size,
            (None, Some(file)) => file.data_bytes(),
            (None, None) => 0,
        };
        Ok(Info {
            precision: node.precision,
            shape: node.shape.clone(),
            elements,
            bytes,
        })
    }

    /// Operands of a node.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] for an unknown node.
    pub(crate) fn inputs_of(&self, id: usize) -> Result<&[usize]> {
        Ok(&self.node(id)?.inputs)
    }

    /// What a node computes.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] for an unknown node.
    pub(crate) fn op_of(&self, id: usize) -> Result<&GraphOp> {
        Ok(&self.node(id)?.op)
    }

    /// Whether a persistent node holds a value.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] where the node is none.
    pub(crate) fn is_populated(&self, id: usize) -> Result<bool> {
        self.persistent(id)?;
        Ok(self.kept.contains_key(&id))
    }

    /// Makes the next execution compute a persistent node anew.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] where the node is none.
    pub(crate) fn invalidate_persistent(&mut self, id: usize) -> Result<()> {
        self.persistent(id)?;
        self.kept.remove(&id);
        Ok(())
    }

    fn persistent(&self, id: usize) -> Result<()> {
        match self.node(id)?.op {
            GraphOp::Persistent => Ok(()),
            _ => Err(Error::new(ErrorKind::Node, format!("node {id} is not persistent"))),
        }
    }

    /// Nodes that are to be read beside those that no other node reads.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] for an unknown node.
    pub(crate) fn retain_outputs(&mut self, ids: &[usize]) -> Result<()> {
        for &id in ids {
            self.node(id)?;
        }
        self.retained = ids.iter().copied().collect();
        Ok(())
    }
}

pub(super) fn check_shape(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::argument(format!(
            "{} axes are too many; expected up to {MAX_RANK}",
            shape.len()
        )));
    }
    let bytes = cactus_tensor::element_count(shape).ok().and_then(|n| n.checked_mul(4));
    match bytes.filter(|&b| b <= MAX_NODE_BYTES) {
        Some(_) => Ok(()),
        None => Err(Error::argument(format!(
            "a value of shape {shape:?} is larger than {MAX_NODE_BYTES} bytes"
        ))),
    }
}

/// The precision of a result whose first operand has `first`.
fn precision_of(op: &GraphOp, first: Option<Precision>) -> Precision {
    let first = first.unwrap_or(Precision::Fp32);
    // What comes from a weight file of codebook indices is a float.
    let plain = if first.size_bytes().is_some() {
        first
    } else {
        Precision::Fp16
    };
    match op {
        GraphOp::Cast(precision) => *precision,
        GraphOp::TopK(_)
        | GraphOp::ScatterTopK(_)
        | GraphOp::KvAppend { .. }
        | GraphOp::Sample { .. }
        | GraphOp::MelFilterBank(_)
        | GraphOp::Spectrogram(_)
        | GraphOp::ImagePreprocess(_) => Precision::Fp32,
        GraphOp::Where
        | GraphOp::Unary(super::UnaryFn::Abs | super::UnaryFn::Relu)
        | GraphOp::Binary(_)
        | GraphOp::Scalar { .. }
        | GraphOp::Clamp { .. }
        | GraphOp::MaskedSelectPrefix
        | GraphOp::MaskedScatter
        | GraphOp::Reshape(_)
        | GraphOp::Expand(_)
        | GraphOp::Permute(_)
        | GraphOp::Slice { .. }
        | GraphOp::Index { .. }
        | GraphOp::Unfold { .. }
        | GraphOp::Pad { .. }
        | GraphOp::Concat { .. }
        | GraphOp::Take { .. }
        | GraphOp::Gather { .. }
        | GraphOp::Reduce { .. }
        | GraphOp::CumSum(_)
        | GraphOp::RecurrentWrite
        | GraphOp::Persistent => plain,
        _ => plain.floating(),
    }
}
