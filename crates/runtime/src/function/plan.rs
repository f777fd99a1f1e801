//! Shapes of every value for one set of sizes, and the memory that values share.

use super::blocks::Blocks;
use super::constants::Constants;
use super::folds::Folds;
use super::{held_bytes, held_type};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Bindings, Dim, Graph, Node, Op, ValueId};
use cactus_kernels::dense::{Window, block_elems};
use cactus_tensor::DType;
use std::collections::HashMap;

/// Most bytes of one value.
const MAX_VALUE_BYTES: usize = 1 << if usize::BITS > 32 { 34 } else { 30 };

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory slot `slot`, from byte `start`.
    Slot { slot: usize, start: usize },
    /// In the memory that the caller gave for input `index`, from byte `start`.
    Input { index: usize, start: usize },
    /// In the constant `of`, from byte `start`.
    Constant { of: ValueId, start: usize },
}

/// The plan of a call.
#[derive(Debug)]
pub(super) struct Plan {
    /// Shape of each value that is used, by index.
    pub(super) shapes: Vec<Vec<usize>>,
    pub(super) places: HashMap<ValueId, Place>,
    /// Bytes of each slot.
    pub(super) slots: Vec<usize>,
    pub(super) folds: Folds,
    pub(super) blocks: Blocks,
}

impl Plan {
    pub(super) fn new(graph: &Graph, constants: &Constants, bindings: &Bindings) -> Result<Plan> {
        let bind = |dims: &[Dim], at: &str| -> Result<Vec<usize>> {
            let all = dims.iter().map(|d| d.eval(bindings));
            all.collect::<cactus_ir::Result<_>>()
                .map_err(|e| Error::Argument(format!("in {at}: {e}")))
        };
        let mut shapes = vec![Vec::new(); graph.values().len()];
        let mut used: Vec<ValueId> = graph.inputs().to_vec();
        for (_, n) in graph.nodes() {
            used.extend(n.inputs.iter().chain(&n.outputs));
        }
        used.extend(graph.outputs().iter().map(|(_, v)| *v));
        let mut sizes = vec![0usize; graph.values().len()];
        for v in used {
            let ty = graph.ty(v);
            let at = graph.producer(v).map_or("an input", |(_, n)| &n.path);
            shapes[v.index()] = bind(&ty.shape, at)?;
            let bytes = cactus_tensor::element_count(&shapes[v.index()])
                .ok()
                .and_then(|n| n.checked_mul(held_bytes(ty.dtype)))
                .filter(|&b| b <= MAX_VALUE_BYTES);
            let Some(bytes) = bytes else {
                let what = format!(
                    "in {at}: a value of shape {:?} is larger than the address space",
                    shapes[v.index()]
                );
                return Err(Error::Argument(what));
            };
            sizes[v.index()] = bytes;
        }
        let mut plan = Plan {
            shapes,
            places: HashMap::new(),
            slots: Vec::new(),
            folds: Folds::of(graph, constants),
            blocks: Blocks::default(),
        };
        plan.blocks = Blocks::of(graph, constants, &plan);
        for v in plan.blocks.values() {
            sizes[v.index()] = plan.bytes(graph, v);
        }
        plan.assign(graph, constants, bindings, &sizes)?;
        Ok(plan)
    }

    /// Bytes of a value as it is held.
    pub(super) fn bytes(&self, graph: &Graph, v: ValueId) -> usize {
        let shape = &self.shapes[v.index()];
        match (self.blocks.contains(v), &shape[..]) {
            (true, [batch, channels, places @ ..]) => 4 * batch * block_elems(*channels, places.iter().product()),
            _ => shape.iter().product::<usize>() * held_bytes(graph.ty(v).dtype),
        }
    }

    /// Gives every value its place. A slot is free again after the last node that reads any value in it.
    fn assign(&mut self, graph: &Graph, constants: &Constants, bindings: &Bindings, sizes: &[usize]) -> Result<()> {
        // Views first, so that a value's last reader counts those of its views.
        let mut root: HashMap<ValueId, (ValueId, usize)> = HashMap::new();
        for (_, node) in graph.nodes() {
            if let Some(start) = self.view(graph, node, bindings)? {
                let x = node.inputs[0];
                let (base, before) = root.get(&x).copied().unwrap_or((x, 0));
                root.insert(node.outputs[0], (base, before + start));
            }
        }
        let base = |v: ValueId| root.get(&v).copied().unwrap_or((v, 0));
        let mut last: HashMap<ValueId, usize> = HashMap::new();
        for (i, (_, node)) in graph.nodes().enumerate() {
            for &v in &node.inputs {
                last.insert(base(v).0, i);
            }
        }
        for (_, v) in graph.outputs() {
            last.insert(base(*v).0, usize::MAX);
        }
        let mut free: Vec<usize> = Vec::new();
        let mut owner: HashMap<ValueId, usize> = HashMap::new();
        for (index, &v) in graph.inputs().iter().enumerate() {
            self.places.insert(v, Place::Input { index, start: 0 });
        }
        for (i, (_, node)) in graph.nodes().enumerate() {
            let out = node.outputs[0];
            let (of, start) = base(out);
            let place = if of != out {
                match (owner.get(&of), self.places.get(&of)) {
                    (Some(&slot), _) => Place::Slot { slot, start },
                    (None, Some(&Place::Input { index, .. })) => Place::Input { index, start },
                    (None, _) => Place::Constant { of, start },
                }
            } else if let Some(slot) = in_place(graph, node).map(base).and_then(|(x, start)| {
                // All of the slot, which nothing reads any more.
                let whole = start == 0 && sizes[x.index()] == sizes[out.index()];
                let done = last.get(&x) == Some(&i);
                (whole && done).then(|| owner.remove(&x)).flatten()
            }) {
                owner.insert(out, slot);
                Place::Slot { slot, start: 0 }
            } else {
                let need = sizes[out.index()];
                // The free slot that fits best, or the largest, which grows.
                let best = (0..free.len()).min_by_key(|&f| {
                    let size = self.slots[free[f]];
                    (size < need, size.abs_diff(need))
                });
                let slot = match best {
                    Some(f) => free.swap_remove(f),
                    None => {
                        self.slots.push(0);
                        self.slots.len() - 1
                    }
                };
                self.slots[slot] = self.slots[slot].max(need);
                owner.insert(out, slot);
                Place::Slot { slot, start: 0 }
            };
            self.places.insert(out, place);
            let mut done: Vec<ValueId> = node.inputs.iter().map(|&v| base(v).0).collect();
            done.push(of);
            done.sort();
            done.dedup();
            for v in done {
                let unread = !last.contains_key(&v);
                if (last.get(&v) == Some(&i) || (unread && v == out))
                    && let Some(slot) = owner.remove(&v)
                {
                    free.push(slot);
                }
            }
        }
        for (_, n) in graph.nodes() {
            for &v in &n.inputs {
                if constants.is_constant(v) {
                    self.places.insert(v, Place::Constant { of: v, start: 0 });
                }
            }
        }
        for (_, v) in graph.outputs() {
            if constants.is_constant(*v) {
                self.places.insert(*v, Place::Constant { of: *v, start: 0 });
            }
        }
        Ok(())
    }

    /// The window of a convolution, or of the one that a transposed convolution is the transpose of.
    pub(super) fn window(&self, node: &Node) -> Window {
        let shape = |v: ValueId| &self.shapes[v.index()][..];
        let (x, out) = (shape(node.inputs[0]), shape(node.outputs[0]));
        let one = |attrs: [&[usize]; 2], padding: &[[usize; 2]], x: &[usize], kernel: &[usize], out: &[usize]| {
            let mut before = [0; 3];
            let start = 3usize.saturating_sub(padding.len());
            before[start..].iter_mut().zip(padding).for_each(|(to, p)| *to = p[0]);
            Window {
                size: three(x, 1),
                out: three(out, 1),
                kernel: three(kernel, 1),
                stride: three(attrs[0], 1),
                before,
                dilation: three(attrs[1], 1),
            }
        };
        let kernel = || &shape(node.inputs[1])[2..];
        match &node.op {
            Op::Conv(a) => one([&a.stride, &a.dilation], &a.padding, &x[2..], kernel(), &out[2..]),
            Op::ConvTranspose { conv: a, .. } => {
                one([&a.stride, &a.dilation], &a.padding, &out[2..], kernel(), &x[2..])
            }
            Op::Conv1d {
                pad_left, pad_right, ..
            } => one([&[1], &[1]], &[[*pad_left, *pad_right]], &x[2..], kernel(), &out[2..]),
            Op::Pool(a) => one([&a.stride, &a.dilation], &a.padding, &x[2..], &a.kernel, &out[2..]),
            _ => one([&[1], &[1]], &[[0, 0]], &[1], &[1], &[1]),
        }
    }

    /// The byte at which the result of a node begins in its operand, where it is a view of it.
    fn view(&self, graph: &Graph, node: &Node, bindings: &Bindings) -> Result<Option<usize>> {
        Ok(match &node.op {
            Op::Reshape { .. } => Some(0),
            _ if self.folds.done.contains(&node.outputs[0]) => Some(0),
            // A cut of the outermost axis that is not of one element is a run.
            Op::Slice { axis, start, .. } => {
                let shape = &self.shapes[node.inputs[0].index()];
                let outer: usize = shape[..*axis].iter().product();
                let inner: usize = shape[axis + 1..].iter().product();
                let start = start.eval(bindings).map_err(|e| Error::Argument(e.to_string()))?;
                let end = start + self.shapes[node.outputs[0].index()][*axis];
                if end > shape[*axis] {
                    let what = format!(
                        "in {}: elements {start}..{end} of an axis with {} elements were asked for",
                        node.path, shape[*axis]
                    );
                    return Err(Error::Argument(what));
                }
                (outer == 1).then(|| start * inner * held_bytes(graph.ty(node.inputs[0]).dtype))
            }
            _ => None,
        })
    }
}

/// Up to three sizes, filled up in front.
fn three(sizes: &[usize], fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    let start = 3usize.saturating_sub(sizes.len());
    for (to, &s) in out[start..].iter_mut().zip(sizes) {
        *to = s;
    }
    out
}

/// The operand whose place the result of a node can take: each element depends on that element of it alone.
pub(super) fn in_place(graph: &Graph, node: &Node) -> Option<ValueId> {
    let (Op::Unary { f }, &[x]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let floats = |v: ValueId| held_type(graph.ty(v).dtype) == DType::F32;
    (kernel_names::unary(*f).is_some() && floats(x) && floats(node.outputs[0])).then_some(x)
}
