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
    crossed: usize,
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
        if self.head.as_ref().is_some_and(|h| h.of == node.outputs[0]) {
            // A product that is no output head: what it makes are rows as all others.
            self.head = None;
            return self.node_or_later(id, node);
        }
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
                Err(e @ Error::Unsupported { .. }) if node.op.state().is_some() => return Err(e),
                Err(Error::Unsupported { .. }) => self.rollback(mark),
                Err(e) => return Err(e),
            }
        }
        if node.op.state().is_some() || reads_past(&node.op) {
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
            crossed: self.crossed.len(),
            placed: self.placed.len(),
        }
    }

    /// Forgets what was lowered since. Buffers from before may live longer than they must; that costs memory alone.
    fn rollback(&mut self, mark: Mark) {
        self.steps.truncate(mark.steps);
        self.requests.truncate(mark.requests);
        self.islands.truncate(mark.islands);
        self.crossed.truncate(mark.crossed);
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
    pub(super) fn flush(&mut self) -> Result<()> {
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
                                let name = format!("input.{}", inputs.len());
                                match inputs.last() {
                                    Some(Input::Rows(_)) => self.turned_back(&mut sub, node, name, &value.ty)?,
                                    _ => sub.add_input(name, value.ty.clone()),
                                }
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
                let Some(axes) = Axes::of(ty) else {
                    return self.fail(
                        node,
                        format!("expected a result with one row for each position, found {ty}"),
                    );
                };
                let mut rows = known[&v];
                if let Some(perm) = axes.seq_first() {
                    let op = Op::Permute { perm };
                    rows = sub.append("", op, &[rows]).map_err(|e| broken(node, &e))?;
                }
                if axes.truth {
                    let dtype = DType::F32;
                    rows = sub
                        .append("", Op::Cast { dtype }, &[rows])
                        .map_err(|e| broken(node, &e))?;
                }
                sub.add_output(format!("output.{}", outputs.len()), rows);
                outputs.push((v, axes));
            }
        }
        let island = Island::new(sub, self.bundle.clone(), self.bindings)?;
        self.islands.push(island);
        let mut written: Vec<(Buffer, usize)> = Vec::new();
        for (v, axes) in outputs {
            let width = axes.width;
            let buffer = self.rows_buffer(first, width)?;
            let view = View::of(buffer, width);
            let place = match axes.is_rows() {
                true => Place::Rows(view),
                false => Place::Turned(view),
            };
            self.place(v, place)?;
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

    /// The input of an island, in the order of axes of the graph.
    fn turned_back(&self, sub: &mut Graph, node: &Node, name: String, ty: &TensorType) -> Result<ValueId> {
        let perm = Axes::of(ty).and_then(|a| a.seq_first());
        let shape = match &perm {
            Some(perm) => perm.iter().map(|&p| ty.shape[p].clone()).collect(),
            None => ty.shape.clone(),
        };
        let mut x = sub.add_input(name, TensorType::new(DType::F32, shape));
        if let Some(perm) = perm {
            let mut back = vec![0; perm.len()];
            for (i, &p) in perm.iter().enumerate() {
                back[p] = i;
            }
            let op = Op::Permute { perm: back };
            x = sub.append("", op, &[x]).map_err(|e| broken(node, &e))?;
        }
        if ty.dtype == DType::Bool {
            let op = Op::Cast { dtype: ty.dtype };
            x = sub.append("", op, &[x]).map_err(|e| broken(node, &e))?;
        }
        Ok(x)
    }

    fn input(&self, node: &Node, v: ValueId) -> Result<Input> {
        let ty = self.graph.ty(v);
        match self.places.get(&v) {
            Some(Place::Ids) => Ok(Input::Ids),
            Some(Place::Positions) => Ok(Input::Positions),
            Some(Place::Rows(view)) if Axes::of(ty).is_some_and(|a| a.lies_as_rows() && a.width == view.width) => {
                Ok(Input::Rows(*view))
            }
            Some(Place::Given(index)) => Ok(Input::Given(*index)),
            Some(Place::Turned(view)) => Ok(Input::Rows(*view)),
            _ => self.fail(
                node,
                format!("expected an operand with one row for each position, found {ty}"),
            ),
        }
    }
}

fn broken(node: &Node, e: &cactus_ir::Error) -> Error {
    Error::Unsupported {
        node: format!("{}/{}", node.path, node.op.mnemonic()),
        message: e.to_string(),
    }
}

/// How floats or truth values with an axis of positions lie: as rows, or with positions elsewhere than at axis 1.
struct Axes {
    rank: usize,
    seq: usize,
    /// Elements for each position.
    width: usize,
    /// Whether there is nothing before the positions.
    leads: bool,
    /// Truth values, kept as 0 and 1.
    truth: bool,
}

impl Axes {
    fn of(ty: &TensorType) -> Option<Axes> {
        let seq = Dim::symbol(cactus_ir::SEQ);
        let at = ty.shape.iter().position(|d| *d == seq)?;
        let sizes = ty.shape.iter().enumerate().filter(|(i, _)| *i != at);
        let batch = Dim::symbol(cactus_ir::BATCH);
        let width = sizes.into_iter().try_fold(1usize, |n, (_, d)| match *d == batch {
            true => Some(n),
            false => n.checked_mul(d.as_known()?),
        })?;
        let before = &ty.shape[..at];
        matches!(ty.dtype, DType::F32 | DType::Bool).then_some(Axes {
            rank: ty.shape.len(),
            seq: at,
            width,
            truth: ty.dtype == DType::Bool,
            leads: before.iter().all(|d| d.is(1) || *d == batch),
        })
    }

    /// Whether these lie in memory as the rows of a step do.
    fn lies_as_rows(&self) -> bool {
        self.leads && !self.truth
    }

    /// Whether these are the rows of a step.
    fn is_rows(&self) -> bool {
        self.leads && self.seq == 1 && !self.truth
    }

    /// The order with positions first, where that is another order in memory.
    fn seq_first(&self) -> Option<Vec<usize>> {
        let others = (0..self.rank).filter(|&i| i != self.seq);
        (!self.leads).then(|| std::iter::once(self.seq).chain(others).collect())
    }
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
