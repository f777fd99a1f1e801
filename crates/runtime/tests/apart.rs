//! Operations that stand for several, beside these: models have the same logits to the last bit, as steps and as functions.

mod support;

use cactus_base::Pool;
use cactus_ir::{Activation, BinaryFn, Dim, Graph, GraphBuilder, NodeId, Op, ReduceFn, TensorType, UnaryFn, ValueId};
use cactus_kernels::Kernels;
use cactus_reference::{Error, ErrorKind, States, run};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use cactus_testkit::{Random, assert_close};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::logits_of_edited;

/// Puts operations before a node.
struct Before<'a> {
    graph: &'a mut Graph,
    id: NodeId,
}

impl Before<'_> {
    fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let at = self.graph.order().iter().position(|&n| n == self.id).unwrap();
        let path = self.graph.node(self.id).path.clone();
        self.graph.insert(at, path, op, inputs).unwrap()
    }

    fn unary(&mut self, f: UnaryFn, x: ValueId) -> ValueId {
        self.op(Op::Unary { f }, &[x])
    }

    fn binary(&mut self, f: BinaryFn, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary { f }, &[a, b])
    }

    fn scalar(&mut self, x: f32) -> ValueId {
        self.graph.add_literal(&[], cactus_ir::Literal::F32(vec![x])).unwrap()
    }

    fn slice(&mut self, x: ValueId, axis: usize, start: usize, end: usize) -> ValueId {
        let (start, end) = (Dim::known(start), Dim::known(end));
        self.op(Op::Slice { axis, start, end }, &[x])
    }

    fn reshape(&mut self, x: ValueId, shape: Vec<Dim>) -> ValueId {
        self.op(Op::Reshape { shape }, &[x])
    }

    fn mean(&mut self, x: ValueId) -> ValueId {
        let axes = vec![self.graph.ty(x).shape.len() - 1];
        let (f, keepdim) = (ReduceFn::Mean, true);
        self.op(Op::Reduce { f, axes, keepdim }, &[x])
    }

    /// By how much numbers are above so many deviations over their mean.
    fn few(&mut self, x: ValueId, above: f32) -> ValueId {
        let mean = self.mean(x);
        let off = self.binary(BinaryFn::Sub, x, mean);
        let squared = self.binary(BinaryFn::Mul, off, off);
        let variance = self.mean(squared);
        let deviation = self.unary(UnaryFn::Sqrt, variance);
        let above = self.scalar(above);
        let margin = self.binary(BinaryFn::Mul, deviation, above);
        let least = self.binary(BinaryFn::Add, mean, margin);
        let rest = self.binary(BinaryFn::Sub, x, least);
        self.unary(UnaryFn::Relu, rest)
    }

    fn routed(&mut self, routes: ValueId, factors: ValueId) -> ValueId {
        let routes = self.unary(UnaryFn::Tanh, routes);
        self.op(Op::Linear, &[routes, factors])
    }
}

const ADD: Op = Op::Binary { f: BinaryFn::Add };
const MUL: Op = Op::Binary { f: BinaryFn::Mul };

/// Takes node `id` apart; false where it stands for itself.
fn take_apart(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id).clone();
    let inputs = node.inputs.clone();
    let shape_of = |g: &Graph, v: ValueId| g.ty(v).shape.clone();
    let mut b = Before { graph, id };
    let (op, inputs) = match node.op {
        Op::NormGate { eps, activation } => {
            let norm = b.op(Op::RmsNorm { eps }, &[inputs[0], inputs[2]]);
            let gate = b.unary(activation.unary().unwrap(), inputs[1]);
            (MUL, vec![norm, gate])
        }
        Op::ShortConv {
            activation: Some(activation),
            state,
        } => {
            let conv = Op::ShortConv {
                activation: None,
                state,
            };
            let f = activation.unary().unwrap();
            let out = node.outputs[0];
            b.graph.replace(id, conv, &inputs).unwrap();
            let at = b.graph.order().iter().position(|&n| n == id).unwrap();
            let active = b.graph.insert(at + 1, node.path, Op::Unary { f }, &[out]).unwrap();
            b.graph.replace_uses(out, active);
            let id = b.graph.order()[at + 1];
            b.graph.replace(id, Op::Unary { f }, &[out]).unwrap();
            return true;
        }
        Op::GatedDelta { steps: true, state } => {
            let step = b.binary(BinaryFn::Add, inputs[3], inputs[6]);
            let step = b.unary(UnaryFn::Softplus, step);
            let decay = b.binary(BinaryFn::Mul, step, inputs[5]);
            let decay = b.unary(UnaryFn::Exp, decay);
            let rate = b.unary(UnaryFn::Sigmoid, inputs[4]);
            let inputs = vec![inputs[0], inputs[1], inputs[2], decay, rate];
            (Op::GatedDelta { steps: false, state }, inputs)
        }
        Op::Gated { activation, above } if above.is_some() || inputs.len() == 2 => {
            let [gate, up] = match inputs[..] {
                [gate, up] => [gate, up],
                _ => {
                    let (axis, n) = (
                        b.graph.ty(inputs[0]).shape.len() - 1,
                        b.graph.ty(node.outputs[0]).last_known(),
                    );
                    let n = n.unwrap();
                    [b.slice(inputs[0], axis, 0, n), b.slice(inputs[0], axis, n, 2 * n)]
                }
            };
            let gate = match above {
                Some(above) => b.few(gate, above),
                None => gate,
            };
            let active = b.unary(activation.unary().unwrap(), gate);
            (MUL, vec![active, up])
        }
        Op::AltupPredict => {
            let mut shape = shape_of(b.graph, inputs[0]);
            shape[3] = shape[2].clone();
            let factors = b.routed(inputs[1], inputs[2]);
            let factors = b.reshape(factors, shape);
            let change = b.op(Op::MatMul, &[factors, inputs[0]]);
            (ADD, vec![change, inputs[0]])
        }
        Op::AltupCorrect { active } => {
            let shape = shape_of(b.graph, inputs[0]);
            let expected = b.slice(inputs[0], 2, active, active + 1);
            let expected = b.reshape(expected, shape_of(b.graph, inputs[1]));
            let new = b.binary(BinaryFn::Sub, inputs[1], expected);
            let one = |shape: &[Dim], axis: usize| {
                let mut shape = shape.to_vec();
                shape[axis] = Dim::known(1);
                shape
            };
            let new = b.reshape(new, one(&shape, 2));
            let factors = b.routed(inputs[2], inputs[3]);
            let one_more = b.scalar(1.0);
            let factors = b.binary(BinaryFn::Add, factors, one_more);
            let factors = b.reshape(factors, one(&shape, 3));
            let change = b.binary(BinaryFn::Mul, new, factors);
            (ADD, vec![change, inputs[0]])
        }
        Op::SliceAdd { axis, start, end } => {
            let n = shape_of(b.graph, inputs[0])[axis].as_known().unwrap();
            let parts = [(0, start), (start, end), (end, n)];
            let mut joined = Vec::new();
            for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
                let part = b.slice(inputs[0], axis, from, to);
                joined.push(match from == start {
                    true => b.binary(BinaryFn::Add, part, inputs[1]),
                    false => part,
                });
            }
            (Op::Concat { axis }, joined)
        }
        Op::LayerNorm { eps } if b.graph.ty(inputs[1]).shape.len() == 2 => {
            let axis = shape_of(b.graph, inputs[0]).len() - 2;
            let of_heads = shape_of(b.graph, inputs[1]);
            let mut joined = Vec::new();
            for head in 0..of_heads[0].as_known().unwrap() {
                let mut own = vec![b.slice(inputs[0], axis, head, head + 1)];
                for &weight in &inputs[1..] {
                    let weight = b.slice(weight, 0, head, head + 1);
                    own.push(b.reshape(weight, of_heads[1..].to_vec()));
                }
                joined.push(b.op(Op::LayerNorm { eps }, &own));
            }
            (Op::Concat { axis }, joined)
        }
        _ => return false,
    };
    graph.replace(id, op, &inputs).unwrap();
    true
}

#[test]
fn models_have_the_bits_of_many_operations() {
    let folder = tempfile::tempdir().unwrap();
    for (model, fewest) in [("qwen3_5", 3), ("gemma3n", 8), ("gemma4", 2), ("gemma4_moe", 2)] {
        let mut found = 0;
        let [fused, apart] = [true, false].map(|fused| {
            let root = folder.path().join(format!("{model}-{fused}"));
            logits_of_edited(&format!("{model}.pt2"), &root, |mut graph| {
                if !fused {
                    for id in graph.order().to_vec() {
                        found += usize::from(take_apart(&mut graph, id));
                    }
                }
                graph
            })
        });
        assert!(found >= fewest, "{model}: {found}");
        assert!(!fused.is_empty());
        assert_eq!(fused, apart, "{model}");
    }
}

/// A graph of one operation; operands whose shapes have no positions are weights.
fn one(op: &Op, shapes: &[Vec<usize>], weights: usize) -> Graph {
    let mut b = GraphBuilder::new("g");
    let mut operands = Vec::new();
    for (i, shape) in shapes.iter().enumerate() {
        let name = format!("x{i}");
        operands.push(match i + weights < shapes.len() {
            true => b.input(
                &name,
                TensorType::new(DType::F32, shape.iter().map(|&d| d.into()).collect::<Vec<Dim>>()),
            ),
            false => b.weight(&name, shape),
        });
    }
    let y = b.op(op.clone(), &operands).unwrap();
    b.output("y", y);
    b.finish().unwrap()
}

/// Operations with the shapes of their operands, and how many of these are weights.
fn cases(batch: usize, seq: usize, n: usize, width: usize) -> Vec<(Op, Vec<Vec<usize>>, usize)> {
    let rows = |last: &[usize]| [&[batch, seq], last].concat();
    let activation = Activation::GeluTanh;
    let gated = |above| Op::Gated { activation, above };
    let (state, steps) = (None, true);
    let conv = Op::ShortConv {
        activation: Some(Activation::Silu),
        state: None,
    };
    let (axis, start) = (2, n / 2);
    vec![
        (gated(None), vec![rows(&[width]), rows(&[width])], 0),
        (gated(Some(0.3)), vec![rows(&[width]), rows(&[width])], 0),
        (gated(Some(0.3)), vec![rows(&[2 * width])], 0),
        (
            Op::NormGate { eps: 1e-5, activation },
            vec![rows(&[n, width]), rows(&[n, width]), vec![width]],
            1,
        ),
        (conv, vec![rows(&[width]), vec![width, 3]], 1),
        (
            Op::GatedDelta { steps, state },
            vec![
                rows(&[n, 3]),
                rows(&[n, 3]),
                rows(&[n, width]),
                rows(&[n]),
                rows(&[n]),
                vec![n],
                vec![n],
            ],
            2,
        ),
        (
            Op::LayerNorm { eps: 1e-5 },
            vec![rows(&[n, width]), vec![n, width], vec![n, width]],
            2,
        ),
        (Op::AltupPredict, vec![rows(&[n, width]), rows(&[n]), vec![n * n, n]], 1),
        (
            Op::AltupCorrect { active: n / 2 },
            vec![rows(&[n, width]), rows(&[width]), rows(&[n]), vec![n, n]],
            1,
        ),
        (
            Op::SliceAdd { axis, start, end: n },
            vec![rows(&[n, width]), rows(&[1, width])],
            0,
        ),
        (
            Op::SliceAdd { axis, start, end: n },
            vec![rows(&[n, width]), vec![width]],
            0,
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Beside the interpreter, and in bits beside the same taken apart, on every tier.
    #[test]
    fn operations_are_what_the_interpreter_says(batch in 1usize..3, seq in 1usize..7, n in 1usize..6, width in 1usize..40, seed in 0u64..1000) {
        let pool = Pool::new(2);
        for (op, shapes, weights) in cases(batch, seq, n, width) {
            let graph = one(&op, &shapes, weights);
            let tensors: BTreeMap<String, Tensor> = shapes
                .iter()
                .enumerate()
                .map(|(i, shape)| {
                    let name = format!("x{i}");
                    let tensor = Random::named(seed, &name).tensor(shape, 0.7);
                    (name, tensor)
                })
                .collect();
            let (given, inputs): (BTreeMap<_, _>, BTreeMap<_, _>) = tensors
                .clone()
                .into_iter()
                .partition(|(name, _)| graph.input(name).is_none());
            let source = |name: &str| {
                let missing = || Error::new(ErrorKind::Weight, "there is no such tensor");
                tensors.get(name).cloned().ok_or_else(missing)
            };
            let want = run(&graph, &inputs, &source, &mut States::default()).unwrap().remove("y").unwrap();
            let mut apart = graph.clone();
            let id = apart.order()[0];
            prop_assert!(take_apart(&mut apart, id), "{}", op.mnemonic());
            let mut bits: Option<Vec<u32>> = None;
            for kernels in Kernels::available() {
                for graph in [&graph, &apart] {
                    let function = Function::with_weights(graph.clone(), &given, Some(kernels)).unwrap();
                    let (_, y) = function.run(&pool, 2, &inputs).unwrap().swap_remove(0);
                    assert_close(&y, &want, 1e-4, &op.mnemonic());
                    let now: Vec<u32> = y.as_f32().unwrap().iter().map(|v| v.to_bits()).collect();
                    match &bits {
                        None => bits = Some(now),
                        Some(bits) => prop_assert_eq!(bits, &now, "{}", op.mnemonic()),
                    }
                }
            }
        }
    }
}
