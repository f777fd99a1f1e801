//! Functions of one operand behind products and convolutions, and before operations of two operands: within these, or by themselves where something
//! else reads what they make or are made of, with the same bits.

use cactus_base::Pool;
use cactus_ir::{BinaryFn, ConvAttrs, Dim, Graph, GraphBuilder, Op, TensorType, UnaryFn, ValueId};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;

const CHANNELS: usize = 20;
const PLACES: usize = 40;

fn made_up(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), (0..n).map(|i| (i as f32 * 0.37).sin()).collect()).unwrap()
}

/// `f(op(x))`, and `op(x)` too where `both` are asked for.
fn graph(op: &Op, weight: &[usize], f: UnaryFn, both: bool) -> Graph {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", TensorType::new(DType::F32, [1, CHANNELS, PLACES].map(Dim::known)));
    let operands: [ValueId; 3] = [x, b.weight("weight", weight), b.weight("bias", &weight[..1])];
    let product = b.op(op.clone(), &operands).unwrap();
    let y = b.unary(f, product).unwrap();
    b.output("y", y);
    if both {
        b.output("product", product);
    }
    b.finish().unwrap()
}

#[test]
fn activation_of_product_has_same_bits_in_epilogue_and_alone() {
    let conv = |groups, stride| {
        Op::Conv(ConvAttrs {
            groups,
            stride: vec![stride],
            padding: vec![[1, 1]],
            dilation: vec![1],
        })
    };
    let conv1d = Op::Conv1d {
        groups: 1,
        pad_left: 1,
        pad_right: 1,
    };
    let cases: [(Op, &[usize]); 5] = [
        (Op::Linear, &[33, PLACES]),
        (conv(1, 2), &[24, CHANNELS, 3]),
        // Few windows, and each channel alone.
        (conv(1, 9), &[24, CHANNELS, 3]),
        (conv(CHANNELS, 1), &[CHANNELS, 1, 3]),
        (conv1d, &[24, CHANNELS, 3]),
    ];
    let (pool, inputs) = (
        Pool::new(2),
        BTreeMap::from([("x".to_owned(), made_up(&[1, CHANNELS, PLACES]))]),
    );
    for (op, shape) in &cases {
        let weights = BTreeMap::from([
            ("weight".to_owned(), made_up(shape)),
            ("bias".to_owned(), made_up(&shape[..1])),
        ]);
        for f in [UnaryFn::GeluErf, UnaryFn::Tanh, UnaryFn::Floor] {
            let [fused, apart] = [false, true].map(|both| {
                let function = Function::with_weights(graph(op, shape, f, both), &weights, None).unwrap();
                // The second call finds the memory of the first.
                function.run(&pool, 2, &inputs).unwrap();
                let (name, y) = function.run(&pool, 2, &inputs).unwrap().swap_remove(0);
                assert_eq!(name, "y");
                y.as_f32().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            });
            assert_eq!(fused, apart, "{op:?} {f:?}");
        }
    }
}

/// `f(g(a), h(b))` of two halves of the channels of `x`, or of what a convolution makes of it; `g(a)` and `h(b)` too where `all` are asked for.
fn gate(convolved: bool, axes: &[usize], [g, h]: [Option<UnaryFn>; 2], f: BinaryFn, all: bool) -> Graph {
    let mut b = GraphBuilder::new("g");
    let shape: Vec<Dim> = [1, 64].iter().chain(axes).copied().map(Dim::known).collect();
    let mut x = b.input("x", TensorType::new(DType::F32, shape));
    if convolved {
        let kernel: Vec<usize> = [64, 64].into_iter().chain(axes.iter().map(|_| 1)).collect();
        let conv = Op::Conv(ConvAttrs {
            groups: 1,
            stride: vec![1; axes.len()],
            padding: vec![[0, 0]; axes.len()],
            dilation: vec![1; axes.len()],
        });
        let weight = b.weight("weight", &kernel);
        x = b.op(conv, &[x, weight]).unwrap();
    }
    let mut made = Vec::new();
    for (from, function) in [(0, g), (32, h)] {
        let slice = Op::Slice {
            axis: 1,
            start: Dim::known(from),
            end: Dim::known(from + 32),
        };
        let half = b.op(slice, &[x]).unwrap();
        made.push(function.map_or(half, |f| b.unary(f, half).unwrap()));
    }
    let y = b.op(Op::Binary { f }, &made).unwrap();
    b.output("y", y);
    if all {
        b.output("a", made[0]);
        b.output("b", made[1]);
    }
    b.finish().unwrap()
}

#[test]
fn functions_of_operands_have_same_bits_within_and_alone() {
    let pool = Pool::new(2);
    for axes in [&[300][..], &[12, 30]] {
        let shape: Vec<usize> = [1, 64].iter().chain(axes).copied().collect();
        let kernel: Vec<usize> = [64, 64].into_iter().chain(axes.iter().map(|_| 1)).collect();
        let inputs = BTreeMap::from([("x".to_owned(), made_up(&shape))]);
        let weights = BTreeMap::from([("weight".to_owned(), made_up(&kernel))]);
        for convolved in [true, false] {
            for functions in [
                [Some(UnaryFn::Tanh), Some(UnaryFn::Sigmoid)],
                [None, Some(UnaryFn::GeluErf)],
                [Some(UnaryFn::Floor), Some(UnaryFn::Tanh)],
            ] {
                for f in [BinaryFn::Mul, BinaryFn::Sub, BinaryFn::Pow] {
                    let weights = if convolved { weights.clone() } else { BTreeMap::new() };
                    let [fused, apart] = [false, true].map(|all| {
                        let graph = gate(convolved, axes, functions, f, all);
                        let function = Function::with_weights(graph, &weights, None).unwrap();
                        function.run(&pool, 2, &inputs).unwrap();
                        let (name, y) = function.run(&pool, 2, &inputs).unwrap().swap_remove(0);
                        assert_eq!(name, "y");
                        y.as_f32().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
                    });
                    assert_eq!(fused, apart, "{axes:?} {convolved} {functions:?} {f:?}");
                }
            }
        }
    }
}
