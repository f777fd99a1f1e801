//! Attention that a graph lets be on integers: near what the interpreter computes exactly, and the same bits on every tier and for any number of threads.

use cactus_base::Pool;
use cactus_ir::{AttentionAttrs, Graph, GraphBuilder, Op, TensorType};
use cactus_kernels::Kernels;
use cactus_reference::States;
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;

const HEADS: [usize; 2] = [6, 3];
const WIDTH: usize = 72;

fn graph(attrs: AttentionAttrs) -> cactus_ir::Result<Graph> {
    let mut b = GraphBuilder::new("encoder");
    let [q, k, v] =
        [("q", "seq", HEADS[0]), ("k", "keys", HEADS[1]), ("v", "keys", HEADS[1])].map(|(name, count, heads)| {
            let shape = [1.into(), count.into(), heads.into(), WIDTH.into()];
            b.input(name, TensorType::new(DType::F32, shape))
        });
    let y = b.op(Op::Attention(attrs), &[q, k, v])?;
    b.output("y", y);
    b.finish()
}

/// Numbers between -1 and 1 that look random.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

fn inputs(queries: usize, keys: usize) -> BTreeMap<String, Tensor> {
    let named = [("q", queries, HEADS[0]), ("k", keys, HEADS[1]), ("v", keys, HEADS[1])];
    let tensor = |(i, (name, count, heads)): (usize, (&str, usize, usize))| {
        let data = noise(count * heads * WIDTH, i as u64 * 11 + 3);
        // Keys around something, as those of trained models are.
        let data = data.iter().enumerate().map(|(i, x)| x * 2.0 + (i % 5) as f32).collect();
        (
            name.to_owned(),
            Tensor::from_f32([1, count, heads, WIDTH], data).unwrap(),
        )
    };
    named.into_iter().enumerate().map(tensor).collect()
}

#[test]
fn attention_on_integers_is_near_the_interpreter_and_the_same_everywhere() {
    let attrs = AttentionAttrs {
        scale: 0.1,
        integers: true,
        ..AttentionAttrs::default()
    };
    let graph = graph(attrs).unwrap();
    assert!(graph.to_string().contains("integers"), "{graph}");
    for (queries, keys) in [(1, 1), (7, 130), (70, 33)] {
        let inputs = inputs(queries, keys);
        let mut states = States::new(&graph).unwrap();
        let nothing = |name: &str| -> cactus_reference::Result<Tensor> { panic!("the graph has no weight {name}") };
        let exact = cactus_reference::run(&graph, &inputs, &nothing, &mut states).unwrap();
        let exact = exact["y"].as_f32().unwrap().to_vec();
        let mut first: Option<Vec<u32>> = None;
        for kernels in Kernels::available() {
            let function = Function::with_weights(graph.clone(), &BTreeMap::new(), Some(kernels)).unwrap();
            for threads in 1..=3 {
                let found = function.run(&Pool::new(threads), threads, &inputs).unwrap();
                let found = found[0].1.as_f32().unwrap();
                let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
                let want = first.get_or_insert_with(|| bits.clone());
                assert!(*want == bits, "{queries} x {keys}: {} with {threads}", kernels.tier());
                for (found, exact) in found.chunks(WIDTH).zip(exact.chunks(WIDTH)) {
                    let square = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
                    let off: Vec<f32> = found.iter().zip(exact).map(|(f, e)| f - e).collect();
                    let relative = (square(&off) / square(exact)).sqrt();
                    assert!(relative < 0.02, "{queries} x {keys}: {relative}");
                }
            }
        }
    }
}

#[test]
fn it_stands_beside_no_mask_or_cap() {
    let integers = |attrs: AttentionAttrs| AttentionAttrs {
        scale: 0.1,
        integers: true,
        ..attrs
    };
    let others = [
        AttentionAttrs {
            causal: true,
            ..AttentionAttrs::default()
        },
        AttentionAttrs {
            window: Some(4),
            ..AttentionAttrs::default()
        },
        AttentionAttrs {
            softcap: Some(2.0),
            ..AttentionAttrs::default()
        },
    ];
    for attrs in others {
        let error = graph(integers(attrs)).unwrap_err().to_string();
        assert!(error.contains("on integers"), "{error}");
    }
}
