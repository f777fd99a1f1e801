//! Executing a graph, and reading what came out.

use super::build::Graph;
use super::compile::{Feed, Key, Length, Program, next_state, output, state_precision};
use super::precision::{encode, rounded};
use super::{Error, GraphOp, Result};
use cactus_base::{Cores, Pool};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// Programs kept: of the outputs that are asked for in turn, and of the lengths that caches have.
const KEPT_PROGRAMS: usize = 4;

/// What an execution read and gave.
#[derive(Debug)]
pub(super) struct Last {
    version: u64,
    inputs: BTreeMap<String, Tensor>,
    kept: Vec<usize>,
    lengths: BTreeMap<usize, Length>,
    outputs: BTreeMap<usize, Tensor>,
}

impl Graph {
    /// Computes every node that no other reads, and those that are retained. Caches move on where it succeeds, and stay as they
    /// were where it does not.
    ///
    /// # Errors
    /// [`super::ErrorKind::Order`] where an input is not set or a weight not bound; [`super::ErrorKind::Shape`],
    /// [`super::ErrorKind::Unsupported`] and [`super::ErrorKind::Run`] where it cannot be computed; [`super::ErrorKind::Memory`]
    /// where the system refuses the memory for it.
    pub(crate) fn execute(&mut self) -> Result<()> {
        let key = Key {
            version: self.version,
            wanted: self.wanted(),
            kept: self.kept.keys().copied().collect(),
            lengths: self.lengths()?,
        };
        let (kept, lengths) = (key.kept.clone(), key.lengths.clone());
        if key.wanted.is_empty() && !self.nodes.iter().any(super::build::Node::writes) {
            // There is nothing to compute.
            return Ok(());
        }
        let at = self.program(key)?;
        let program = &self.programs[at];
        let mut inputs = BTreeMap::new();
        for (name, feed) in &program.feeds {
            inputs.insert(name.clone(), self.fed(*feed)?);
        }
        for name in &program.random {
            inputs.insert(name.clone(), Tensor::from_f32([1], vec![drawn()])?);
        }
        let mut named = run(program, &inputs)?;
        let mut take = |name: &str| {
            let found = named.remove(name);
            found.ok_or_else(|| {
                Error::order(format!(
                    "the program did not give `{name}`; this is a bug, please report it"
                ))
            })
        };
        let mut states = Vec::new();
        for &id in &program.changed {
            let node = &self.nodes[id];
            states.push((
                id,
                kept_in(take(&next_state(id))?, state_precision(&node.op, node.precision))?,
            ));
        }
        let mut outputs = BTreeMap::new();
        for &id in program.key.wanted.iter().chain(&program.computed) {
            if let Entry::Vacant(entry) = outputs.entry(id) {
                entry.insert(take(&output(id))?);
            }
        }
        for &id in &program.computed {
            if let Some(value) = outputs.get(&id) {
                self.kept.insert(id, value.clone());
            }
        }
        self.states.extend(states);
        self.buffers.clear();
        let version = self.version;
        self.last = Some(Last {
            version,
            inputs,
            kept,
            lengths,
            outputs,
        });
        Ok(())
    }

    /// The elements of a node as its precision holds them, and where they stay until the graph is executed or changed again.
    /// A node that the last execution did not keep is computed from what that read, and changes nothing.
    ///
    /// # Errors
    /// [`super::ErrorKind::Node`] for an unknown node, [`super::ErrorKind::Order`] where the graph was not executed since the node
    /// was added.
    pub(crate) fn output(&mut self, id: usize) -> Result<&[u8]> {
        if !self.buffers.contains_key(&id) {
            let values = self.values(id)?;
            let buffer = encode(values.as_f32()?, self.nodes[id].precision)?;
            self.buffers.insert(id, buffer);
        }
        let bytes = self.info(id)?.bytes;
        let buffer = self.buffers.get(&id).map(|b| &b[..]).unwrap_or_default();
        // An empty node too has an address.
        Ok(&buffer[..bytes.min(buffer.len())])
    }

    fn values(&mut self, id: usize) -> Result<Tensor> {
        let node = self.node(id)?;
        if let Some(file) = self.files.get(&id) {
            node.precision.plain_bytes()?;
            return file.read();
        }
        match &node.op {
            GraphOp::Input { .. } => return self.input_values(id),
            _ if node.is_state() => return self.state(id),
            _ => {}
        }
        let last = self.last.as_ref().filter(|l| l.version == self.version);
        let Some(last) = last else {
            return Err(Error::order(format!("node {id} has no value yet; execute the graph")));
        };
        if let Some(value) = last.outputs.get(&id) {
            return Ok(value.clone());
        }
        let key = Key {
            version: self.version,
            wanted: vec![id],
            kept: last.kept.clone(),
            lengths: last.lengths.clone(),
        };
        let value = self.once_more(key, id)?;
        if let Some(last) = &mut self.last {
            last.outputs.insert(id, value.clone());
        }
        Ok(value)
    }

    /// Computes a node from what the last execution read.
    fn once_more(&mut self, key: Key, id: usize) -> Result<Tensor> {
        let at = self.program(key)?;
        let program = &self.programs[at];
        let last = self
            .last
            .as_ref()
            .ok_or_else(|| Error::order("execute the graph first"))?;
        let mut inputs = BTreeMap::new();
        for (name, feed) in &program.feeds {
            let value = match last.inputs.get(name) {
                Some(value) => value.clone(),
                None => self.fed(*feed)?,
            };
            inputs.insert(name.clone(), value);
        }
        for name in &program.random {
            let value = last.inputs.get(name).cloned();
            inputs.insert(
                name.clone(),
                value.map_or_else(|| Tensor::from_f32([1], vec![drawn()]), Ok)?,
            );
        }
        let name = output(id);
        let found = run(program, &inputs)?.remove(&name);
        found.ok_or_else(|| {
            Error::order(format!(
                "the program did not give `{name}`; this is a bug, please report it"
            ))
        })
    }

    /// Where the program of `key` is.
    fn program(&mut self, key: Key) -> Result<usize> {
        self.programs.retain(|p| p.key.version == key.version);
        if let Some(at) = self.programs.iter().position(|p| p.key == key) {
            return Ok(at);
        }
        let program = self.compile(key)?;
        if self.programs.len() == KEPT_PROGRAMS {
            self.programs.remove(0);
        }
        self.programs.push(program);
        Ok(self.programs.len() - 1)
    }

    pub(super) fn fed(&self, feed: Feed) -> Result<Tensor> {
        match feed {
            Feed::Input(id) => self.input_values(id),
            Feed::State(id) => match self.states.get(&id) {
                Some(held) => Ok(held.clone()),
                None => empty(&self.nodes[id].op, &self.nodes[id].shape),
            },
            Feed::Kept(id) => {
                let kept = self.kept.get(&id).cloned();
                kept.ok_or_else(|| Error::order(format!("persistent node {id} holds nothing")))
            }
        }
    }

    /// A cache in its full size, zeros behind what it holds.
    fn state(&self, id: usize) -> Result<Tensor> {
        let shape = self.nodes[id].shape.clone();
        let (_, data) = self.fed(Feed::State(id))?.into_parts();
        let mut values = match data {
            cactus_tensor::Data::F32(v) => v,
            _ => Vec::new(),
        };
        values.resize(shape.iter().product(), 0.0);
        Ok(Tensor::from_f32(shape, values)?)
    }

    /// The length of each cache of keys or values: a symbol, where the program is right for any; a number, where positions are
    /// given up or a mask says what is seen.
    fn lengths(&self) -> Result<BTreeMap<usize, Length>> {
        let limits = self.limits();
        let mut new: BTreeMap<usize, usize> = BTreeMap::new();
        let mut fixed = Vec::new();
        for node in &self.nodes {
            match &node.op {
                GraphOp::KvAppend { .. } => {
                    let (rows, cache) = (&self.nodes[node.inputs[0]], node.inputs[1]);
                    let row: usize = self.nodes[cache].shape[1..].iter().product();
                    *new.entry(cache).or_default() += rows.shape.iter().product::<usize>() / row.max(1);
                }
                GraphOp::AttentionCached { attend, .. } if attend.mask => fixed.extend(&node.inputs[3..5]),
                _ => {}
            }
        }
        let mut sizes: Vec<usize> = Vec::new();
        let mut lengths = BTreeMap::new();
        for (id, node) in self.nodes.iter().enumerate() {
            if !matches!(node.op, GraphOp::KvState { .. }) {
                continue;
            }
            let held = self.states.get(&id).map_or(0, |t| t.shape()[0]);
            let more = new.get(&id).copied().unwrap_or(0);
            let most = limits.get(&id).map_or(usize::MAX, |l| l.0);
            let length = if fixed.contains(&id) || held.saturating_add(more) > most {
                Length::Known(held)
            } else {
                let at = sizes.iter().position(|&s| s == held).unwrap_or_else(|| {
                    sizes.push(held);
                    sizes.len() - 1
                });
                Length::Any(at)
            };
            lengths.insert(id, length);
        }
        Ok(lengths)
    }
}

/// What a cache holds at first.
fn empty(op: &GraphOp, shape: &[usize]) -> Result<Tensor> {
    let mut shape = shape.to_vec();
    if matches!(op, GraphOp::KvState { .. }) {
        shape[0] = 0;
    }
    let n = shape.iter().product();
    Ok(Tensor::from_f32(shape, vec![0.0; n])?)
}

fn kept_in(value: Tensor, precision: super::Precision) -> Result<Tensor> {
    let (shape, data) = value.into_parts();
    let values = match data {
        cactus_tensor::Data::F32(v) => v.into_iter().map(|v| rounded(v, precision)).collect(),
        _ => return Err(Error::shape("a cache holds floats")),
    };
    Ok(Tensor::from_f32(shape, values)?)
}

fn run(program: &Program, inputs: &BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>> {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::new(Cores::detect().threads()));
    Ok(program
        .function
        .run(pool, pool.threads(), inputs)?
        .into_iter()
        .collect())
}

/// Evenly from 0 to 1, without 1.
fn drawn() -> f32 {
    let bits = RandomState::new().build_hasher().finish() >> 40;
    bits as f32 / (1u32 << 24) as f32
}
