//! Functions of graphs that no bundle holds, against the interpreter.

use cactus_base::Pool;
use cactus_ir::{Graph, GraphBuilder, TensorType, ValueId};
use cactus_reference::{States, WeightSource};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;

struct Weights<'a>(&'a BTreeMap<String, Tensor>);

impl WeightSource for Weights<'_> {
    fn tensor(&self, name: &str) -> cactus_reference::Result<Tensor> {
        Ok(self.0[name].clone())
    }
}

fn graph() -> Graph {
    let mut b = GraphBuilder::new("given");
    let x = b.input("x", TensorType::new(DType::F32, [2usize.into(), 3usize.into()]));
    let w = b.weight("w", &[4, 3]);
    let halved = |b: &mut GraphBuilder, v: ValueId| {
        let half = b.cast(v, DType::F16)?;
        let turned = b.permute(half, &[1, 0])?;
        b.cast(turned, DType::F32)
    };
    let y = b.linear(x, w, None).and_then(|y| halved(&mut b, y)).unwrap();
    b.output("y", y);
    b.finish().unwrap()
}

#[test]
fn given_weights_and_halves_are_those_of_the_interpreter() {
    let graph = graph();
    let values = |n: usize, k: f32| (0..n).map(|i| (i as f32 - k) * 0.123_457).collect::<Vec<_>>();
    let weights = BTreeMap::from([("w".to_owned(), Tensor::from_f32([4, 3], values(12, 5.0)).unwrap())]);
    let inputs = BTreeMap::from([("x".to_owned(), Tensor::from_f32([2, 3], values(6, 2.5)).unwrap())]);
    let mut states = States::new(&graph).unwrap();
    let want = cactus_reference::run(&graph, &inputs, &Weights(&weights), &mut states).unwrap();
    let function = Function::with_weights(graph, &weights, None).unwrap();
    let found = function.run(&Pool::new(1), 1, &inputs).unwrap();
    assert_eq!(found[0].1.shape(), [4, 2]);
    assert_eq!(found[0].1, want["y"]);
}

#[test]
fn weights_that_are_missing_or_of_another_shape_are_named() {
    let other = BTreeMap::from([("w".to_owned(), Tensor::from_f32([3, 4], vec![0.0; 12]).unwrap())]);
    for weights in [BTreeMap::new(), other] {
        let error = Function::with_weights(graph(), &weights, None).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("weight w") && said.contains("[4, 3]"), "{said}");
    }
}
