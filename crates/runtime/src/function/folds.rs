//! What products and operations of two operands do besides, so that no pass over their operands or results is left for it: bounds, and functions of one operand.

use super::constants::Constants;
use super::held_type;
use super::plan::in_place;
use crate::kernel_names;
use cactus_ir::{BinaryFn, ConvAttrs, Graph, Node, NodeId, Op, ValueId};
use cactus_kernels::UnaryOp;
use cactus_kernels::dense::has_whole_chunks;
use cactus_quant::Packing;
use cactus_tensor::DType;
use std::collections::{HashMap, HashSet};

/// Single numbers, constants of the graph: the least and the most.
pub(super) type Bounds = [ValueId; 2];

/// What becomes of results, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct After {
    pub(super) bounds: Option<Bounds>,
    pub(super) activation: Option<UnaryOp>,
}

/// What nodes do besides.
#[derive(Debug, Default)]
pub(super) struct Folds {
    /// With their results, by these.
    pub(super) after: HashMap<ValueId, After>,
    /// What products keep their first operands within as they read them, by their results.
    pub(super) before: HashMap<ValueId, Bounds>,
    /// What both operands, of one shape, of an operation of two become first, by its result.
    pub(super) operands: HashMap<ValueId, [Option<UnaryOp>; 2]>,
    /// Results of nodes that have nothing left to do, and so lie where their first operands do.
    pub(super) done: HashSet<ValueId>,
}

impl Folds {
    pub(super) fn of(graph: &Graph, constants: &Constants) -> Folds {
        let finder = Finder {
            graph,
            constants,
            uses: graph.uses(),
            outputs: graph.outputs().iter().map(|(_, v)| *v).collect(),
        };
        let mut folds = Folds::default();
        for (_, node) in graph.nodes() {
            finder.results(node, &mut folds);
        }
        for (_, node) in graph.nodes() {
            finder.operand(node, &mut folds);
            folds.done.extend(finder.turned_filters(node));
        }
        // Last, as what has nothing left to do applies no function either.
        for (_, node) in graph.nodes() {
            finder.functions(node, &mut folds);
        }
        folds
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    constants: &'a Constants,
    uses: Vec<Vec<NodeId>>,
    outputs: HashSet<ValueId>,
}

impl Finder<'_> {
    /// What reads `v`, where that is one node.
    fn reader(&self, v: ValueId) -> Option<&Node> {
        match self.uses[v.index()][..] {
            [reader] if !self.outputs.contains(&v) => Some(self.graph.node(reader)),
            _ => None,
        }
    }

    /// The other operand of a node that takes the larger or the smaller of `x` and a number.
    fn extreme(&self, node: &Node, f: BinaryFn, x: ValueId) -> Option<ValueId> {
        let (Op::Binary { f: found }, &[first, number]) = (&node.op, &node.inputs[..]) else {
            return None;
        };
        let (of, with, out) = (self.graph.ty(x), self.graph.ty(number), self.graph.ty(node.outputs[0]));
        let is_one = with
            .known_shape()
            .is_some_and(|shape| shape.iter().product::<usize>() == 1);
        let fits = *found == f
            && first == x
            && is_one
            && of.shape == out.shape
            && [of, with, out].iter().all(|ty| held_type(ty.dtype) == DType::F32)
            && self.constants.plain(number).is_some();
        fits.then_some(number)
    }

    fn results(&self, node: &Node, folds: &mut Folds) {
        if !matches!(node.op, Op::Linear | Op::Conv(_) | Op::Conv1d { .. }) {
            return;
        }
        let made = node.outputs[0];
        let (mut at, mut after) = (made, After::default());
        if matches!(node.op, Op::Linear)
            && let Some(larger) = self.reader(at)
            && let Some(least) = self.extreme(larger, BinaryFn::Max, at)
            && let Some(smaller) = self.reader(larger.outputs[0])
            && let Some(most) = self.extreme(smaller, BinaryFn::Min, larger.outputs[0])
        {
            after.bounds = Some([least, most]);
            at = smaller.outputs[0];
            folds.done.extend([larger.outputs[0], at]);
        }
        if let Some(reader) = self.reader(at)
            && let Op::Unary { f } = &reader.op
            && in_place(self.graph, reader) == Some(at)
        {
            after.activation = kernel_names::unary(*f);
            folds.done.insert(reader.outputs[0]);
        }
        if after.bounds.is_some() || after.activation.is_some() {
            folds.after.insert(made, after);
        }
    }

    /// Bounds of what a product with integers reads, where all who read it are such products.
    fn operand(&self, node: &Node, folds: &mut Folds) {
        let Some(x) = self.integers(node).filter(|x| !folds.done.contains(x)) else {
            return;
        };
        let bounds = || {
            let (_, smaller) = self.graph.producer(x)?;
            let &[between, most] = &smaller.inputs[..] else {
                return None;
            };
            let (_, larger) = self.graph.producer(between)?;
            let &[from, least] = &larger.inputs[..] else {
                return None;
            };
            self.extreme(smaller, BinaryFn::Min, between)?;
            self.extreme(larger, BinaryFn::Max, from)?;
            self.reader(between)?;
            let mut readers = self.uses[x.index()].iter();
            let all = readers.all(|&reader| self.integers(self.graph.node(reader)) == Some(x));
            (all && !self.outputs.contains(&x)).then_some((self.uses[x.index()].clone(), between, [least, most]))
        };
        if let Some((readers, between, bounds)) = bounds() {
            for reader in readers {
                folds.before.insert(self.graph.node(reader).outputs[0], bounds);
            }
            folds.done.extend([between, x]);
        }
    }

    /// What an operation of two operands of one shape applies to them first, where nothing else reads what that makes.
    fn functions(&self, node: &Node, folds: &mut Folds) {
        let (Op::Binary { f }, &[a, b], &[out]) = (&node.op, &node.inputs[..], &node.outputs[..]) else {
            return;
        };
        let of = |v: ValueId| {
            let (_, maker) = self.graph.producer(v)?;
            let Op::Unary { f } = &maker.op else { return None };
            let is_ours = in_place(self.graph, maker).is_some() && self.reader(v).is_some() && !folds.done.contains(&v);
            is_ours.then(|| kernel_names::unary(*f)).flatten()
        };
        let alike = |v: ValueId| {
            let (of, out) = (self.graph.ty(v), self.graph.ty(out));
            of.shape == out.shape && held_type(of.dtype) == DType::F32
        };
        if a == b || folds.done.contains(&out) || kernel_names::binary(*f).is_none() || ![a, b].into_iter().all(alike) {
            return;
        }
        let functions = [of(a), of(b)];
        if functions != [None; 2] {
            let both = [a, b].into_iter().zip(functions);
            folds.done.extend(both.filter_map(|(v, f)| f.map(|_| v)));
            folds.operands.insert(out, functions);
        }
    }

    /// Filters whose channels stand last where they are stored, in 8 bits, once a node has moved them: convolutions read them as they are.
    fn turned_filters(&self, node: &Node) -> Option<ValueId> {
        let (Op::Permute { perm }, [x]) = (&node.op, &node.inputs[..]) else {
            return None;
        };
        let (_, reshape) = self.graph.producer(*x)?;
        let (Op::Reshape { .. }, [matrix, ..]) = (&reshape.op, &reshape.inputs[..]) else {
            return None;
        };
        let turned = node.outputs[0];
        let shape = self.graph.ty(turned).known_shape()?;
        let (axes, [_, channels, kernel @ ..]) = (shape.len(), &shape[..]) else {
            return None;
        };
        let back = [0, axes - 1].into_iter().chain(1..axes - 1);
        let is_read = |&reader: &NodeId| {
            let node = self.graph.node(reader);
            let is_whole = matches!(
                node.op,
                Op::Conv(ConvAttrs { groups: 1, .. }) | Op::Conv1d { groups: 1, .. }
            );
            is_whole && node.inputs.iter().position(|v| *v == turned) == Some(1)
        };
        let stored = self.constants.matrix(*matrix).ok().flatten()?;
        let fits = perm.iter().copied().eq(back)
            && stored.packing() == Packing::Int8N16
            && stored.n() == shape[0]
            && stored.k() == channels * kernel.iter().product::<usize>()
            && has_whole_chunks(kernel.iter().product(), *channels)
            && self.uses[turned.index()].iter().all(is_read)
            && !self.outputs.contains(&turned);
        fits.then_some(turned)
    }

    /// The first operand of a product that reads integers, which alone it makes of that operand.
    fn integers(&self, node: &Node) -> Option<ValueId> {
        let (Op::Linear, &[x, weight, ..]) = (&node.op, &node.inputs[..]) else {
            return None;
        };
        let packing = self.constants.matrix(weight).ok().flatten()?.packing();
        let reads = packing == Packing::Int8G32 || packing.codebook_bits().is_some();
        (reads && x != weight && node.inputs.get(2) != Some(&x)).then_some(x)
    }
}
