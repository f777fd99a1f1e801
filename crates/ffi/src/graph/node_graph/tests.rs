//! Every operation against the interpreter, and what executions leave behind.

use super::op::{Activation, Attend, BinaryFn, ConvForm, ReduceFn, UnaryFn};
use super::precision::encode;
use super::{ErrorKind, Frames, Graph, GraphOp, MelBank, Patches, Precision, Result};
use cactus_reference::{States, WeightSource};
use cactus_tensor::Tensor;
use proptest::prelude::*;
use std::path::Path;

mod cases;
mod states;

/// Numbers from -1 to 1 that repeat late.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn set(g: &mut Graph, id: usize, values: &[f32]) {
    let bytes = encode(values, Precision::Fp32).unwrap();
    g.set_input(id, &bytes[..4 * values.len()], Precision::Fp32).unwrap();
}

/// An input with values.
fn given(g: &mut Graph, shape: &[usize], values: &[f32]) -> usize {
    let id = g.input(shape, Precision::Fp32).unwrap();
    set(g, id, values);
    id
}

fn read(g: &mut Graph, id: usize) -> Vec<f32> {
    let precision = g.info(id).unwrap().precision;
    super::decode(g.output(id).unwrap(), precision).unwrap()
}

struct NoWeights;

impl WeightSource for NoWeights {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        unreachable!("the graph has no weight {name}")
    }
}

/// What the interpreter makes of the nodes as they were lowered, before any pass.
fn interpreted(g: &Graph, id: usize) -> Result<Vec<f32>> {
    let (portable, inputs) = g.portable(id)?;
    let mut states = States::new(&portable)?;
    let found = cactus_reference::run(&portable, &inputs, &NoWeights, &mut states)?;
    let (_, value) = found.into_iter().find(|(name, _)| *name == format!("o{id}")).unwrap();
    Ok(value.as_f32()?.to_vec())
}

fn close(found: &[f32], want: &[f32], what: &str) {
    assert_eq!(found.len(), want.len(), "{what}");
    for (i, (&a, &b)) in found.iter().zip(want).enumerate() {
        let near = (a - b).abs() <= 1e-4 * (1.0 + b.abs()) || a == b || (a.is_nan() && b.is_nan());
        assert!(near, "{what}: element {i} is {a}, and {b} is expected");
    }
}

/// Adds `op` over inputs of `shapes`, executes, and compares with the interpreter.
fn check(op: GraphOp, shapes: &[&[usize]], values: &dyn Fn(usize, usize) -> Vec<f32>) -> (Vec<usize>, Vec<f32>) {
    let what = format!("{op:?}");
    let mut g = Graph::new();
    let ids: Vec<usize> = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| {
            let values = values(i, shape.iter().product());
            given(&mut g, shape, &values)
        })
        .collect();
    let id = g.add(op, &ids).unwrap_or_else(|e| panic!("{what}: {e}"));
    let node = g.add(GraphOp::Cast(Precision::Fp32), &[id]).unwrap();
    g.execute().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = read(&mut g, node);
    close(&found, &interpreted(&g, node).unwrap(), &what);
    (g.info(id).unwrap().shape, found)
}

#[test]
fn every_operation_is_that_of_the_interpreter() {
    for (i, (op, shapes)) in cases::all().into_iter().enumerate() {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        check(op.clone(), &shapes, &|k, n| cases::values(&op, k, n, i as u64));
    }
}

/// Experts whose matrices belong to the graph are computed as they are chosen, and give the same.
#[test]
fn constant_experts_are_those_that_are_given() {
    let all = cases::all();
    let (op, shapes) = all
        .iter()
        .find(|(op, _)| matches!(op, GraphOp::Experts { gated: true, .. }))
        .unwrap();
    let mut found = Vec::new();
    for embedded in [false, true] {
        let mut g = Graph::new();
        let mut ids = Vec::new();
        for (k, shape) in shapes.iter().enumerate() {
            let id = given(&mut g, shape, &cases::values(op, k, shape.iter().product(), 5));
            if embedded && k > 2 {
                g.mark_embedded_input(id).unwrap();
            }
            ids.push(id);
        }
        let id = g.add(op.clone(), &ids).unwrap();
        let node = g.add(GraphOp::Cast(Precision::Fp32), &[id]).unwrap();
        g.execute().unwrap();
        found.push(read(&mut g, node));
    }
    close(&found[1], &found[0], "experts");
}

#[test]
fn elementwise_operations_are_what_they_say() {
    let x = [-1.5, -0.0, 0.5, 2.0, 3.0, -7.0];
    let y = [2.0, 2.0, 0.5, -2.0, 2.0, 2.0];
    type Of1 = fn(f32) -> f32;
    type Of2 = fn(f32, f32) -> f32;
    let unary: [(UnaryFn, Of1); 4] = [
        (UnaryFn::Relu, |x| x.max(0.0)),
        (UnaryFn::LogicalNot, |x| f32::from(u8::from(x == 0.0))),
        (UnaryFn::BitwiseNot, |x| !(x as i64) as f32),
        (UnaryFn::Silu, |x| x / (1.0 + (-x).exp())),
    ];
    for (f, want) in unary {
        let (_, found) = check(GraphOp::Unary(f), &[&[6]], &|_, _| x.to_vec());
        close(&found, &x.map(want), &format!("{f:?}"));
    }
    let binary: [(BinaryFn, Of2); 8] = [
        (BinaryFn::Subtract, |a, b| a - b),
        (BinaryFn::FloorDivide, |a, b| (a / b).floor()),
        (BinaryFn::Pow, f32::powf),
        (BinaryFn::Equal, |a, b| f32::from(u8::from(a == b))),
        (BinaryFn::LessEqual, |a, b| f32::from(u8::from(a <= b))),
        (BinaryFn::Greater, |a, b| f32::from(u8::from(a > b))),
        (BinaryFn::BitwiseAnd, |a, b| (a as i64 & b as i64) as f32),
        (BinaryFn::BitwiseOr, |a, b| (a as i64 | b as i64) as f32),
    ];
    for (f, want) in binary {
        let (_, found) = check(GraphOp::Binary(f), &[&[6], &[6]], &|i, _| [x, y][i].to_vec());
        let want: Vec<f32> = x.iter().zip(y).map(|(&a, b)| want(a, b)).collect();
        close(&found, &want, &format!("{f:?}"));
    }
    let (_, found) = check(GraphOp::Binary(BinaryFn::AddClipped), &[&[2], &[2]], &|_, _| {
        vec![60000.0, -60000.0]
    });
    assert_eq!(found, [65504.0, -65504.0]);
    let (_, found) = check(GraphOp::Cast(Precision::Int8), &[&[4]], &|_, _| {
        vec![1.5, -300.0, 300.0, -0.4]
    });
    assert_eq!(found, [2.0, -128.0, 127.0, 0.0]);
    let (_, found) = check(GraphOp::Cast(Precision::Fp16), &[&[2]], &|_, _| vec![0.1, 1e6]);
    assert_eq!(found, [half::f16::from_f32(0.1).to_f32(), f32::INFINITY]);
}

#[test]
fn masks_choose_in_order() {
    let (shape, found) = check(GraphOp::MaskedSelectPrefix, &[&[4, 2], &[4]], &|i, _| match i {
        0 => vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        _ => vec![0.0, 1.0, 0.0, -1.0],
    });
    assert_eq!(
        (shape, found),
        (vec![4, 2], vec![3.0, 4.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0])
    );
    let (_, found) = check(GraphOp::MaskedScatter, &[&[2, 3], &[1, 3], &[4]], &|i, n| match i {
        0 => vec![9.0; n],
        1 => vec![1.0, 0.0, 1.0],
        _ => vec![1.0, 2.0, 3.0, 4.0],
    });
    assert_eq!(found, [1.0, 9.0, 2.0, 3.0, 9.0, 4.0]);
}

#[test]
fn transforms_there_and_back_give_the_wave() {
    for n in [1, 2, 5, 8, 31] {
        let wave = numbers(2 * n, 3);
        let mut g = Graph::new();
        let x = given(&mut g, &[2, n], &wave);
        let spectrum = g.add(GraphOp::Rfft, &[x]).unwrap();
        let back = g.add(GraphOp::Irfft(n), &[spectrum]).unwrap();
        g.execute().unwrap();
        assert_eq!(g.info(spectrum).unwrap().shape, [2, n / 2 + 1, 2]);
        close(&read(&mut g, back), &wave, &format!("{n} points"));
        let sum: f32 = wave[..n].iter().sum();
        close(&read(&mut g, spectrum)[..1], &[sum], "the first bin");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Chains of operations of any shapes: what is computed is what the interpreter computes, whatever the passes make of it.
    #[test]
    fn chains_are_those_of_the_interpreter(
        shape in prop::collection::vec(1usize..5, 1..4),
        steps in prop::collection::vec((0usize..12, 0usize..64), 1..10),
        seed in any::<u64>(),
    ) {
        let mut g = Graph::new();
        let n: usize = shape.iter().product();
        let mut nodes = vec![given(&mut g, &shape, &numbers(n, seed)), given(&mut g, &shape, &numbers(n, seed ^ 7))];
        for (kind, pick) in steps {
            let (a, b) = (nodes[pick % nodes.len()], nodes[pick / 2 % nodes.len()]);
            let last = i32::try_from(g.info(a).unwrap().shape.len()).unwrap() - 1;
            let made = match kind {
                0 => g.add(GraphOp::Binary(BinaryFn::Add), &[a, b]),
                1 => g.add(GraphOp::Binary(BinaryFn::Multiply), &[a, b]),
                2 => g.add(GraphOp::Unary(UnaryFn::Sigmoid), &[a]),
                3 => g.add(GraphOp::Softmax(last), &[a]),
                4 => g.add(GraphOp::Reduce { f: ReduceFn::Variance, axis: Some(0) }, &[a]),
                5 => g.add(GraphOp::Scalar { f: BinaryFn::Subtract, value: 0.5 }, &[a]),
                6 => g.add(GraphOp::Concat { axis: -1 }, &[a, b]),
                7 => g.add(GraphOp::CumSum(0), &[a]),
                8 => g.add(GraphOp::Permute((0..=last as usize).rev().collect()), &[a]),
                9 => g.add(GraphOp::MatMul { transposed: true }, &[a, b]),
                10 => g.add(GraphOp::Pad { pads: vec![1, 2], value: -0.25 }, &[a]),
                _ => g.add(GraphOp::Slice { axis: last, start: 0, length: 1, step: 1 }, &[a]),
            };
            // Operands that do not fit are refused, and leave the graph as it was.
            if let Ok(id) = made {
                nodes.push(id);
            }
        }
        g.execute().unwrap();
        for id in nodes {
            close(&read(&mut g, id), &interpreted(&g, id).unwrap(), &format!("node {id} {:?}", g.op_of(id)));
        }
    }

    /// A file of a graph with any byte changed, or cut anywhere, gives a graph or an error.
    #[test]
    fn damaged_files_are_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g");
        let mut g = Graph::new();
        let x = given(&mut g, &[2, 3], &numbers(6, 1));
        g.mark_embedded_input(x).unwrap();
        let y = g.add(GraphOp::Softmax(-1), &[x]).unwrap();
        g.add(GraphOp::Reduce { f: ReduceFn::Max, axis: None }, &[y]).unwrap();
        g.save(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[at.index(whole.len())] = byte;
        for bytes in [&damaged[..], &whole[..cut.index(whole.len())]] {
            if let Ok(mut g) = Graph::from_bytes(bytes) {
                let _ = g.execute();
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_at_once() {
    let mut g = Graph::new();
    let a = g.input(&[2, 3], Precision::Fp16).unwrap();
    let b = g.input(&[4], Precision::Fp16).unwrap();
    let cases = [
        (GraphOp::Binary(BinaryFn::Add), vec![a, b], ErrorKind::Shape),
        (GraphOp::Binary(BinaryFn::Add), vec![a, 9], ErrorKind::Node),
        (GraphOp::Binary(BinaryFn::Add), vec![a], ErrorKind::Argument),
        (GraphOp::Reshape(vec![7]), vec![a], ErrorKind::Shape),
        (
            GraphOp::Reshape(vec![usize::MAX, usize::MAX]),
            vec![a],
            ErrorKind::Shape,
        ),
        (GraphOp::Expand(vec![usize::MAX, 2, 3]), vec![a], ErrorKind::Argument),
        (
            GraphOp::Expand(vec![1; 9].into_iter().chain([2, 3]).collect()),
            vec![a],
            ErrorKind::Argument,
        ),
        (GraphOp::Permute(vec![0, 0]), vec![a], ErrorKind::Shape),
        (
            GraphOp::Slice {
                axis: 1,
                start: 2,
                length: 2,
                step: 1,
            },
            vec![a],
            ErrorKind::Shape,
        ),
        (
            GraphOp::Slice {
                axis: 1,
                start: 1,
                length: usize::MAX,
                step: usize::MAX,
            },
            vec![a],
            ErrorKind::Shape,
        ),
        (GraphOp::Index { axis: 2, index: 0 }, vec![a], ErrorKind::Shape),
        (
            GraphOp::Unfold {
                axis: 0,
                size: 0,
                step: 1,
            },
            vec![a],
            ErrorKind::Shape,
        ),
        (
            GraphOp::Pad {
                pads: vec![1],
                value: 0.0,
            },
            vec![a],
            ErrorKind::Argument,
        ),
        (GraphOp::TopK(4), vec![a], ErrorKind::Shape),
        (GraphOp::Glu(1), vec![a], ErrorKind::Shape),
        (GraphOp::MatMul { transposed: false }, vec![a, a], ErrorKind::Shape),
        (
            GraphOp::GroupNorm { groups: 0, eps: 0.0 },
            vec![a, b, b],
            ErrorKind::Shape,
        ),
        (GraphOp::Irfft(usize::MAX), vec![a], ErrorKind::Unsupported),
        (
            GraphOp::KvAppend { window: 0, sink: 0 },
            vec![a, b],
            ErrorKind::Argument,
        ),
        (GraphOp::Cast(Precision::Cq4), vec![a], ErrorKind::Unsupported),
    ];
    for (op, inputs, kind) in cases {
        let what = format!("{op:?}");
        let error = g.add(op, &inputs).expect_err(&what);
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert_eq!(g.node_count(), 2, "{what}");
    }
    assert!(g.input(&[], Precision::Fp16).is_err() && g.input(&[1; 9], Precision::Fp16).is_err());
    assert!(g.input(&[usize::MAX, 2], Precision::Fp16).is_err() && g.input(&[1], Precision::Cq4).is_err());
}

#[test]
fn inputs_that_are_not_set_and_indices_outside_are_named() {
    let mut g = Graph::new();
    let table = given(&mut g, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let at = g.input(&[1], Precision::Fp32).unwrap();
    let row = g.add(GraphOp::Take { axis: 0 }, &[table, at]).unwrap();
    let error = g.execute().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Order && error.to_string().contains("node 1"),
        "{error}"
    );
    assert_eq!(g.output(row).unwrap_err().kind(), ErrorKind::Order);
    set(&mut g, at, &[2.0]);
    let error = g.execute().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Run && error.to_string().contains("index 2"),
        "{error}"
    );
    set(&mut g, at, &[1.0]);
    g.execute().unwrap();
    assert_eq!(read(&mut g, row), [3.0, 4.0]);
}

#[test]
fn weight_files_are_read_and_damaged_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.weights");
    let header =
        |flags: u32, axes: u32, sizes: [u64; 4], precision: u32, data: u64, scales: u64, group: u32, groups: u32| {
            let mut h = b"CACT".to_vec();
            [flags, 32, axes].iter().for_each(|v| h.extend(v.to_le_bytes()));
            sizes.iter().for_each(|v| h.extend(v.to_le_bytes()));
            h.extend(precision.to_le_bytes());
            [data, scales].iter().for_each(|v| h.extend(v.to_le_bytes()));
            [group, groups].iter().for_each(|v| h.extend(v.to_le_bytes()));
            h.extend(sizes[0].to_le_bytes());
            h.resize(96, 0);
            h
        };
    let halves = |values: &[f32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
            .collect()
    };
    let mut plain = header(0, 2, [2, 2, 0, 0], 1, 8, 0, 0, 0);
    plain.extend(halves(&[1.0, 2.0, 3.0, 4.0]));
    let mut scaled = header(1, 2, [2, 4, 0, 0], 0, 8, 8, 2, 2);
    scaled.extend(halves(&[0.5, 1.0, 2.0, 4.0]));
    scaled.resize(128, 0);
    scaled.extend([1i8, -1, 1, -1, 1, -1, 1, -1].map(|v| v as u8));
    for (bytes, x, want) in [
        (&plain, vec![1.0, 1.0], vec![3.0, 7.0]),
        (&scaled, vec![1.0, 0.0, 1.0, 0.0], vec![1.5, 6.0]),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let mut g = Graph::new();
        let w = g.weights(&path).unwrap();
        let x = given(&mut g, &[1, x.len()], &x);
        let y = g.add(GraphOp::MatMul { transposed: true }, &[x, w]).unwrap();
        g.execute().unwrap();
        assert_eq!(read(&mut g, y), want);
        // Saved, loaded, and bound to the file again where it was not there.
        let (saved, moved) = (dir.path().join("g"), dir.path().join("moved"));
        g.save(&saved).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        let mut g = Graph::load(&saved).unwrap();
        let n = g.info(x).unwrap().elements;
        set(&mut g, x, &numbers(n, 1));
        assert_eq!(g.execute().unwrap_err().kind(), ErrorKind::Order);
        g.bind_weights(w, &moved).unwrap();
        g.execute().unwrap();
        assert!(g.advise(w).is_ok() && g.advise(x).is_err() && g.bind_weights(y, &moved).is_err());
        std::fs::rename(&moved, &path).unwrap();
    }
    for cut in 0..plain.len() {
        std::fs::write(&path, &plain[..cut]).unwrap();
        assert!(Graph::new().weights(&path).is_err(), "cut to {cut} bytes");
    }
    for (at, value) in [
        (4, 4u8),
        (8, 3),
        (12, 0),
        (12, 9),
        (16, 9),
        (23, 255),
        (48, 4),
        (48, 9),
        (52, 9),
        (60, 9),
        (67, 255),
    ] {
        let mut bytes = plain.clone();
        bytes[at] = value;
        std::fs::write(&path, &bytes).unwrap();
        assert!(Graph::new().weights(&path).is_err(), "byte {at} set to {value}");
    }
    assert!(Graph::new().weights(Path::new("/nowhere")).is_err());
}
