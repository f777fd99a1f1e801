//! Which values have their channels in the lanes, in blocks of sixteen: those between convolutions over two axes, or over one of a fixed size, where
//! everything that reads or makes them can. An axis whose size varies may be one of time, whose pieces must give what the whole gives.
//!
//! It depends on the graph and on sizes alone. Inputs, outputs and constants are as the graph says. A convolution reads and writes either; what stands
//! between two of them has its operands and its result alike.

use super::constants::Constants;
use super::filters::PackedFilters;
use super::held_type;
use super::plan::Plan;
use crate::kernel_names;
use cactus_ir::{BinaryFn, ConvAttrs, Graph, Node, Op, PoolAttrs, ReduceFn, ValueId};
use cactus_kernels::dense::{BlockConv, FEW_WINDOWS};
use cactus_quant::{BLOCK_ROWS, Packing};
use cactus_tensor::DType;
use std::collections::{HashMap, HashSet};

/// What makes rows of channels of planes of one or two axes, and what makes planes of them.
const TO_ROWS: [&[usize]; 2] = [&[0, 2, 1], &[0, 2, 3, 1]];
const FROM_ROWS: [usize; 4] = [0, 3, 1, 2];

/// What is in blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    values: HashSet<ValueId>,
    /// Convolutions with channels in the lanes, by their results; either side may be as the graph says.
    convs: HashMap<ValueId, BlockConv>,
}

/// The convolutions of a graph, by their results, that take planes and blocks.
struct Convolutions {
    in_blocks: HashMap<ValueId, BlockConv>,
    /// With filters in 8 bits.
    on_integers: HashSet<ValueId>,
}

/// What a node asks of its operands and its result.
enum Asks {
    /// Nothing: it takes either.
    Nothing,
    /// All of these alike.
    Alike(Vec<ValueId>),
    /// The result is as the graph says, whatever the operand is.
    PlainResult,
    /// The operand is as the graph says, whatever the result is.
    PlainOperand,
    /// Everything as the graph says.
    Plain,
}

impl Blocks {
    pub(super) fn of(graph: &Graph, constants: &Constants, plan: &Plan) -> Blocks {
        let finder = Finder { graph, constants, plan };
        let convs = Convolutions {
            in_blocks: graph
                .nodes()
                .filter_map(|(_, node)| Some((node.outputs[0], finder.conv(node)?)))
                .collect(),
            on_integers: graph
                .nodes()
                .filter(|(_, node)| finder.is_on_integers(node))
                .map(|(_, node)| node.outputs[0])
                .collect(),
        };
        if convs.in_blocks.is_empty() && convs.on_integers.is_empty() {
            return Blocks::default();
        }
        let mut values: HashSet<ValueId> = graph
            .nodes()
            .map(|(_, node)| node.outputs[0])
            .filter(|&v| finder.may_be_in_blocks(v))
            .collect();
        graph.outputs().iter().for_each(|(_, v)| {
            values.remove(v);
        });
        let convolutions = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Conv(_) | Op::Conv1d { .. } | Op::ConvTranspose { .. }));
        convolutions.flat_map(|(_, n)| n.inputs.iter().skip(1)).for_each(|v| {
            values.remove(v);
        });
        let asked: Vec<(&Node, Asks)> = graph
            .nodes()
            .map(|(_, node)| (node, finder.asks(node, &convs)))
            .collect();
        let mut before = usize::MAX;
        while values.len() < before {
            before = values.len();
            for (node, asks) in &asked {
                match asks {
                    Asks::Nothing => {}
                    Asks::Alike(all) if all.iter().all(|v| values.contains(v)) => {}
                    Asks::Alike(all) => all.iter().for_each(|v| {
                        values.remove(v);
                    }),
                    Asks::PlainResult => {
                        values.remove(&node.outputs[0]);
                    }
                    Asks::PlainOperand => {
                        values.remove(&node.inputs[0]);
                    }
                    Asks::Plain => node.inputs.iter().chain(&node.outputs).for_each(|v| {
                        values.remove(v);
                    }),
                }
            }
        }
        // A channel alone is as fast without.
        let convs = convs
            .in_blocks
            .into_iter()
            .filter(|(v, _)| !finder.is_depthwise(*v) || values.contains(v))
            .collect();
        Blocks { values, convs }
    }

    pub(super) fn contains(&self, v: ValueId) -> bool {
        self.values.contains(&v)
    }

    pub(super) fn values(&self) -> Vec<ValueId> {
        self.values.iter().copied().collect()
    }

    /// The convolution with this result, where its channels are in the lanes.
    pub(super) fn conv(&self, v: ValueId) -> Option<&BlockConv> {
        self.convs.get(&v)
    }

    /// Whether an operand or the result of a node is in blocks.
    pub(super) fn touches(&self, node: &Node) -> bool {
        node.inputs.iter().chain(&node.outputs).any(|v| self.values.contains(v))
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    constants: &'a Constants,
    plan: &'a Plan,
}

impl Finder<'_> {
    fn shape(&self, v: ValueId) -> &[usize] {
        &self.plan.shapes[v.index()]
    }

    fn is_f32(&self, v: ValueId) -> bool {
        held_type(self.graph.ty(v).dtype) == DType::F32
    }

    fn may_be_in_blocks(&self, v: ValueId) -> bool {
        let shape = self.shape(v);
        self.has_planes(v)
            && self.is_f32(v)
            && shape[0] > 0
            && shape[1] >= BLOCK_ROWS
            && shape[2..].iter().product::<usize>() > 1
    }

    /// Whether a value has planes of two axes, or of one whose size is fixed.
    fn has_planes(&self, v: ValueId) -> bool {
        match &self.graph.ty(v).shape[..] {
            [_, _, size] => size.as_known().is_some(),
            shape => shape.len() == 4,
        }
    }

    fn is_depthwise(&self, v: ValueId) -> bool {
        let producer = self.graph.producer(v).map(|(_, node)| &node.op);
        matches!(producer, Some(Op::Conv(ConvAttrs { groups, .. }) | Op::Conv1d { groups, .. }) if *groups > 1)
    }

    /// A convolution of planes that reads its filters in 32 bits.
    fn conv(&self, node: &Node) -> Option<BlockConv> {
        let (Op::Conv(ConvAttrs { groups, .. }) | Op::Conv1d { groups, .. }, &[x, filters, ..]) =
            (&node.op, &node.inputs[..])
        else {
            return None;
        };
        if !self.has_planes(x) || !self.has_planes(node.outputs[0]) {
            return None;
        }
        let (&[batch, channels, ..], &[outputs, each, ..]) = (self.shape(x), self.shape(filters)) else {
            return None;
        };
        let is_depthwise = *groups > 1 && *groups == channels && outputs == channels && each == 1;
        if batch == 0
            || (*groups != 1 && !is_depthwise)
            || ![x, filters, node.outputs[0]].iter().all(|v| self.is_f32(*v))
        {
            return None;
        }
        let w = self.plan.window(node);
        // A sample with one window is a row of a product, and along one axis a few are rows that read filters once: chunks of sound have few.
        let least = if self.shape(x).len() == 4 { 2 } else { FEW_WINDOWS };
        if w.out.iter().product::<usize>() < least || !self.reads_floats(filters, outputs, is_depthwise) {
            return None;
        }
        BlockConv::of(&w, channels, outputs)
    }

    /// Whether a node is a convolution of planes on integers.
    fn is_on_integers(&self, node: &Node) -> bool {
        let (Op::Conv(ConvAttrs { groups: 1, .. }) | Op::Conv1d { groups: 1, .. }, &[x, filters, ..]) =
            (&node.op, &node.inputs[..])
        else {
            return false;
        };
        let made = node.outputs[0];
        self.has_planes(x)
            && self.has_planes(made)
            && self.is_f32(x)
            && self.is_f32(made)
            && matches!(
                PackedFilters::of(
                    self.graph,
                    self.constants,
                    &self.plan.folds,
                    filters,
                    self.shape(filters),
                    &self.plan.window(node),
                ),
                Ok(Some(PackedFilters::Integers(_)))
            )
    }

    /// Whether filters are there in 32 bits, as rows or packed for products.
    fn reads_floats(&self, filters: ValueId, outputs: usize, is_depthwise: bool) -> bool {
        let mut of = filters;
        while let Some((_, node)) = self.graph.producer(of) {
            match node.op {
                Op::Reshape { .. } => of = node.inputs[0],
                _ if self.plan.folds.done.contains(&of) => return false,
                _ => return true,
            }
        }
        if self.constants.plain(of).is_some() {
            return true;
        }
        match self.constants.matrix(of) {
            Ok(Some(m)) => m.packing() == Packing::F32N16 && m.n() == outputs && !is_depthwise,
            Ok(None) => !self.constants.is_constant(of),
            Err(_) => false,
        }
    }

    fn asks(&self, node: &Node, convs: &Convolutions) -> Asks {
        let out = node.outputs[0];
        let first = node.inputs.first().copied();
        match (&node.op, first) {
            (Op::Conv(_) | Op::Conv1d { .. }, _) if convs.on_integers.contains(&out) => Asks::Nothing,
            (Op::Conv(_) | Op::Conv1d { .. }, Some(x)) if convs.in_blocks.contains_key(&out) => {
                match self.is_depthwise(out) {
                    true => Asks::Alike(vec![x, out]),
                    false => Asks::Nothing,
                }
            }
            (Op::ConvTranspose { conv, .. }, Some(x)) if conv.groups == 1 && self.shape(x).len() == 4 => Asks::Nothing,
            (
                Op::Pool(PoolAttrs {
                    f: ReduceFn::Max | ReduceFn::Mean,
                    ..
                }),
                Some(x),
            ) => Asks::Alike(vec![x, out]),
            (Op::Unary { f }, Some(x)) if kernel_names::unary(*f).is_some() && self.is_f32(x) => {
                Asks::Alike(vec![x, out])
            }
            (Op::Binary { f }, Some(_)) => self.binary(node, *f),
            (Op::Reduce { f, axes, .. }, Some(x))
                if matches!(f, ReduceFn::Sum | ReduceFn::Mean) && axes.iter().copied().eq(2..self.shape(x).len()) =>
            {
                Asks::PlainResult
            }
            (Op::Permute { perm }, Some(_)) if TO_ROWS.contains(&&perm[..]) => Asks::PlainResult,
            (Op::Permute { perm }, Some(_)) if perm[..] == FROM_ROWS => Asks::PlainOperand,
            (Op::Slice { axis: 1, start, .. }, Some(x)) if start.as_known().is_some_and(|n| self.is_run(n, x, out)) => {
                Asks::Alike(vec![x, out])
            }
            (Op::Concat { axis: 1 }, _) => {
                let whole = node.inputs[..node.inputs.len().saturating_sub(1)]
                    .iter()
                    .all(|&v| self.shape(v).get(1).is_some_and(|n| n.is_multiple_of(BLOCK_ROWS)));
                match whole {
                    true => Asks::Alike(node.inputs.iter().chain(&node.outputs).copied().collect()),
                    false => Asks::Plain,
                }
            }
            _ => Asks::Plain,
        }
    }

    fn binary(&self, node: &Node, f: BinaryFn) -> Asks {
        let (&[a, b], out) = (&node.inputs[..], node.outputs[0]) else {
            return Asks::Plain;
        };
        let plain = matches!(f, BinaryFn::Add | BinaryFn::Sub | BinaryFn::Mul | BinaryFn::Div);
        let shape = self.shape(out);
        let (is_whole, fits) = (
            |v: ValueId| self.shape(v) == shape,
            |v: ValueId| self.is_f32(v) && self.of_channels(v, shape),
        );
        match (is_whole(a), is_whole(b)) {
            (true, true) if kernel_names::binary(f).is_some() => Asks::Alike(vec![a, b, out]),
            (true, false) if plain && (fits(b) || self.is_number(b)) => Asks::Alike(vec![a, out]),
            (false, true) if plain && fits(a) => Asks::Alike(vec![b, out]),
            _ => Asks::Plain,
        }
    }

    /// Whether channels from `first` on of one sample are whole blocks of it, so that what is cut out lies there as it should.
    fn is_run(&self, first: usize, x: ValueId, out: ValueId) -> bool {
        let (from, to) = (self.shape(x), self.shape(out));
        let whole = to[1].is_multiple_of(BLOCK_ROWS) || first + to[1] == from[1];
        from[0] == 1 && first.is_multiple_of(BLOCK_ROWS) && whole
    }

    fn is_number(&self, v: ValueId) -> bool {
        self.is_f32(v) && self.shape(v).iter().product::<usize>() == 1
    }

    /// Whether `v` has a number for every channel of `shape`, or of each of its samples.
    fn of_channels(&self, v: ValueId, shape: &[usize]) -> bool {
        let &[batch, channels, ref axes @ ..] = shape else {
            return false;
        };
        let own = self.shape(v);
        match own.len().checked_sub(axes.len()).map(|n| own.split_at(n)) {
            Some((&[ref samples @ .., own], ones)) => {
                (matches!(samples, [] | [1]) || samples == [batch]) && own == channels && ones.iter().all(|&n| n == 1)
            }
            _ => false,
        }
    }
}
