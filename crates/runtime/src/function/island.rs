//! A piece of a language model's graph that no step of a [`crate::Program`] computes, as a function of rows: the general
//! kernels over dense tensors, one row for each position of a call. The rest of the model stays as fast as it was.

use super::constants::Constants;
use super::execute::{Run, check};
use super::held_bytes;
use super::memory::Memory;
use super::plan::Plan;
use crate::Result;
use cactus_base::AlignedBuf;
use cactus_bundle::Bundle;
use cactus_ir::{BATCH, Bindings, Graph, SEQ};
use cactus_kernels::Exec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Numbers of rows whose memory is kept: those of a prompt's chunks and of a single token, and of one between.
const KEPT: usize = 3;

/// Where an island's inputs come from and its results go, by their place in the graph.
pub(crate) trait Exchange<'g> {
    /// Input `index` where it lies, if it holds for the whole sequence; always or never for an index.
    fn held(&self, index: usize) -> Option<&'g [u8]>;
    /// Writes input `index`, which is not held.
    fn read(&self, index: usize, to: &mut [u8]);
    /// Takes output `index`.
    fn write(&mut self, index: usize, from: &[u8]);
}

/// Immutable but for the memory of the last calls, so calls from several threads take turns.
#[derive(Debug)]
pub(crate) struct Island {
    graph: Graph,
    constants: Constants,
    ready: Mutex<VecDeque<Ready>>,
}

/// Plan and memory for one number of rows.
#[derive(Debug)]
struct Ready {
    bindings: Bindings,
    plan: Plan,
    memory: Memory,
    /// Of those that are not held.
    inputs: Vec<Option<AlignedBuf>>,
}

impl Island {
    /// `graph` has positions `seq`, of one sequence, and no states.
    pub(crate) fn new(graph: Graph, bundle: Arc<Bundle>, bindings: &BTreeMap<String, String>) -> Result<Island> {
        for (_, node) in graph.nodes() {
            check(&graph, node)?;
        }
        let constants = Constants::new(&graph, bundle, bindings)?;
        Ok(Island {
            graph,
            constants,
            ready: Mutex::new(VecDeque::new()),
        })
    }

    /// Operations.
    pub(crate) fn len(&self) -> usize {
        self.graph.order().len()
    }

    /// Computes `rows` positions; `given` are the sizes of what holds for the whole sequence.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an index outside of its axis, [`crate::ErrorKind::Memory`].
    pub(crate) fn run<'g>(
        &self,
        exec: Exec<'_>,
        rows: usize,
        given: Option<&Bindings>,
        exchange: &mut dyn Exchange<'g>,
    ) -> Result<()> {
        let mut bindings = given.cloned().unwrap_or_default();
        bindings.insert(SEQ.to_owned(), rows);
        bindings.insert(BATCH.to_owned(), 1);
        let mut ready = self.ready.lock().unwrap_or_else(|e| e.into_inner());
        let mut at = match ready
            .iter()
            .position(|r| r.bindings == bindings)
            .and_then(|i| ready.remove(i))
        {
            Some(found) => found,
            None => {
                let plan = Plan::new(&self.graph, &self.constants, &bindings)?;
                let inputs = self.graph.inputs().iter().enumerate().map(|(i, &v)| {
                    let elements: usize = plan.shapes[v.index()].iter().product();
                    let bytes = elements * held_bytes(self.graph.ty(v).dtype);
                    exchange
                        .held(i)
                        .is_none()
                        .then(|| AlignedBuf::zeroed(bytes))
                        .transpose()
                });
                Ready {
                    inputs: inputs.collect::<std::result::Result<_, _>>()?,
                    memory: Memory::new(&plan)?,
                    bindings,
                    plan,
                }
            }
        };
        let mut inputs: Vec<&[u8]> = Vec::with_capacity(at.inputs.len());
        for (i, input) in at.inputs.iter_mut().enumerate() {
            inputs.push(match input {
                Some(input) => {
                    exchange.read(i, input);
                    input
                }
                None => exchange.held(i).unwrap_or_default(),
            });
        }
        let mut run = Run {
            graph: &self.graph,
            constants: &self.constants,
            plan: &at.plan,
            bindings: &at.bindings,
            memory: &mut at.memory,
            inputs: &inputs,
            exec,
        };
        for (_, node) in self.graph.nodes() {
            run.node(node)?;
        }
        for (i, (_, v)) in self.graph.outputs().iter().enumerate() {
            exchange.write(i, run.bytes(*v)?);
        }
        ready.push_front(at);
        ready.truncate(KEPT);
        Ok(())
    }
}
