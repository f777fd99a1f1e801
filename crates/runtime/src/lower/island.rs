//! Nodes that no step computes are put off and gathered; where something reads what they make, they become one step that
//! runs them as a function of rows (`function::island`). So every model whose states the passes could prove runs, and what
//! has steps of its own loses nothing.

use super::{Lowerer, Place};
use crate::function::Island;
use crate::step::{Buffer, Input, Kind, View};
use crate::{Error, Result};
use cactus_ir::{Def, Dim, Graph, Node, NodeId, Op, TensorType, ValueId};
use cactus_tensor::DType;
use std::collections::HashMap;

/// How far lowering had come.
#[derive(Clone, Copy)]
struct Mark {
    steps: usize,
    requests: usize,
    islands: usize,
    placed: usize,
}

impl Lowerer<'_> {
    /// Lowers `node`, or puts it off where no step computes it and a function may.
    pub(super) fn node_or_later(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let mark = self.mark();
        let Err(first) = self.node(id, node) else {
            return Ok(());
        };
        self.rollback(mark);
        if !matches!(first, Error::Unsupported { .. }) {
            return Err(first);
        }
        let made_later = |v: &ValueId| self.later.iter().any(|&n| self.graph.node(n).outputs[0] == *v);
        if node.inputs.iter().any(made_later) {
            match self.flush().and_then(|()| self.node(id, node)) {
                Ok(()) => {
                    self.later.clear();
                    return Ok(());
                }
                Err(e @ Error::Unsupported { .. }) if node.op.state().is_some() || node.outputs[0] == self.logits => {
                    return Err(e);
                }
                Err(Error::Unsupported { .. }) => self.rollback(mark),
                Err(e) => return Err(e),
            }
        }
        if node.op.state().is_some() || node.outputs[0] == self.logits || reads_past(&node.op) {
            return Err(first);
        }
        self.later.push(id);
        Ok(())
    }

    /// Whether `node` has been computed once the step being lowered is.
    pub(super) fn is_done(&self, id: NodeId) -> bool {
        self.position[&id] <= self.now && !self.later.contains(&id)
    }

    fn mark(&self) -> Mark {
        Mark {
            steps: self.steps.len(),
            requests: self.requests.len(),
            islands: self.islands.len(),
            placed: self.placed.len(),
        }
    }

    /// Forgets what was lowered since. Buffers from before may live longer than they must; that costs memory alone.
    fn rollback(&mut self, mark: Mark) {
        self.steps.truncate(mark.steps);
        self.requests.truncate(mark.requests);
        self.islands.truncate(mark.islands);
        for v in self.placed.drain(mark.placed..) {
            self.places.remove(&v);
        }
        self.quantized.retain(|_, b| *b < mark.requests);
        self.rotated.retain(|_, b| *b < mark.requests);
        self.rope_tables.retain(|(_, _, b, _)| *b < mark.requests);
        for r in &mut self.requests {
            r.last = r.last.min(mark.steps);
        }
    }

    /// Makes the nodes put off a step. They stay in the list, which the caller clears.
    fn flush(&mut self) -> Result<()> {
        let first = self.graph.node(self.later[0]);
        let mut sub = Graph::new(self.graph.name.clone());
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        let mut inputs = Vec::new();
        for &id in &self.later {
            let node = self.graph.node(id);
            let mut operands = Vec::new();
            for &v in &node.inputs {
                let here = match known.get(&v) {
                    Some(&here) => here,
                    None => {
                        let value = self.graph.value(v);
                        let here = match &value.def {
                            Def::Weight(expr) => sub.add_weight(value.name.clone(), value.ty.clone(), expr.clone()),
                            Def::Literal(literal) => {
                                let shape = value.ty.known_shape().unwrap_or_default();
                                sub.add_literal(&shape, literal.clone()).map_err(|e| broken(node, &e))?
                            }
                            _ => {
                                inputs.push(self.input(node, v)?);
                                sub.add_input(format!("input.{}", inputs.len()), value.ty.clone())
                            }
                        };
                        known.insert(v, here);
                        here
                    }
                };
                operands.push(here);
            }
            let out = sub
                .append(node.path.clone(), node.op.clone(), &operands)
                .map_err(|e| broken(node, &e))?;
            known.insert(node.outputs[0], out);
        }
        let mut outputs = Vec::new();
        for &id in &self.later {
            let node = self.graph.node(id);
            let v = node.outputs[0];
            let outside = self.uses[v.index()].iter().any(|n| !self.later.contains(n));
            let is_output = self.graph.outputs().iter().any(|(_, o)| *o == v);
            if outside || is_output {
                let ty = self.graph.ty(v);
                let width = row_width(ty).ok_or_else(|| Error::Unsupported {
                    node: format!("{}/{}", node.path, node.op.mnemonic()),
                    message: format!("what is not made of steps gives rows f32[1, seq, …], found {ty}"),
                })?;
                sub.add_output(format!("output.{}", outputs.len()), known[&v]);
                outputs.push((v, width));
            }
        }
        let island = Island::new(sub, self.bundle.clone(), self.bindings)?;
        self.islands.push(island);
        let mut written: Vec<(Buffer, usize)> = Vec::new();
        for (v, width) in outputs {
            let buffer = self.rows_buffer(first, width)?;
            let view = View {
                buffer,
                offset: 0,
                width,
                stride: width,
            };
            self.place(v, Place::Rows(view))?;
            written.push((buffer, width));
        }
        let kind = Kind::Island {
            island: self.islands.len() - 1,
            inputs,
            outputs: written,
        };
        self.push(first, kind);
        Ok(())
    }

    fn input(&self, node: &Node, v: ValueId) -> Result<Input> {
        let ty = self.graph.ty(v);
        match self.places.get(&v) {
            Some(Place::Ids) => Ok(Input::Ids),
            Some(Place::Positions) => Ok(Input::Positions),
            Some(Place::Rows(view)) if row_width(ty) == Some(view.width) => Ok(Input::Rows(*view)),
            _ => self.fail(node, format!("an operand {ty} is not made of rows")),
        }
    }
}

fn broken(node: &Node, e: &cactus_ir::Error) -> Error {
    Error::Unsupported {
        node: format!("{}/{}", node.path, node.op.mnemonic()),
        message: e.to_string(),
    }
}

/// Elements for each position of `f32[1, seq, …]`, which lie together.
fn row_width(ty: &TensorType) -> Option<usize> {
    let one = |d: &Dim| d.is(1) || *d == Dim::symbol(cactus_ir::BATCH);
    let rows = ty.shape.len() >= 2 && one(&ty.shape[0]) && ty.shape[1] == Dim::symbol(cactus_ir::SEQ);
    let width = ty
        .shape
        .iter()
        .skip(2)
        .try_fold(1usize, |n, d| n.checked_mul(d.as_known()?));
    width.filter(|_| rows && ty.dtype == DType::F32)
}

/// Whether an operation has the number of positions held in its attributes, which a function does not know.
fn reads_past(op: &Op) -> bool {
    let past = |d: &Dim| d.symbols().any(|s| s == cactus_ir::PAST);
    match op {
        Op::Iota { start, len } => past(start) || past(len),
        Op::Slice { start, end, .. } => past(start) || past(end),
        Op::Reshape { shape } | Op::Expand { shape } => shape.iter().any(past),
        _ => false,
    }
}
