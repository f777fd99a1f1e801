//! Small graphs for the tests of single passes, and running them.

use cactus_ir::{Dim, Graph, GraphBuilder, Result, TensorType, ValueId};
use cactus_passes::{Report, pass};
use cactus_reference::{Error, ErrorKind, States, Tensors, run};
use cactus_tensor::{DType, Tensor};
use cactus_testkit::{Random, source_tensors};

/// A graph of what `f` writes; its value is the output `y`.
pub(crate) fn graph(f: impl FnOnce(&mut GraphBuilder) -> Result<ValueId>) -> Graph {
    let mut b = GraphBuilder::new("g");
    let y = b.scope("layer", f).unwrap();
    b.output("y", y);
    b.finish().unwrap()
}

/// Sizes as they are written: `[batch, seq, 4]` of `"batch seq 4"`.
pub(crate) fn dims(text: &str) -> Vec<Dim> {
    text.split(' ').map(|d| d.parse().unwrap()).collect()
}

/// An `f32` input of these sizes.
pub(crate) fn input(b: &mut GraphBuilder, name: &str, sizes: &str) -> ValueId {
    b.input(name, TensorType::new(DType::F32, dims(sizes)))
}

/// Runs one pass, which must leave a valid graph.
pub(crate) fn run_pass(name: &str, before: &Graph) -> (Graph, Report) {
    let mut after = before.clone();
    let mut report = Report::default();
    pass(name).unwrap().run(&mut after, &mut report).unwrap();
    let after = after.compacted();
    after.verify().unwrap();
    (after, report)
}

/// Random inputs at a length; integers are below 4.
pub(crate) fn inputs(g: &Graph, batch: usize, seq: usize) -> Tensors {
    let bindings = [("batch".to_owned(), batch), ("seq".to_owned(), seq)].into();
    let mut out = Tensors::new();
    for &v in g.inputs() {
        let (name, ty) = (&g.value(v).name, g.ty(v));
        let shape: Vec<usize> = ty.shape.iter().map(|d| d.eval(&bindings).unwrap()).collect();
        let mut random = Random::named(3, name);
        let tensor = match ty.dtype {
            DType::I64 => random.tokens(&shape, 4),
            _ => random.tensor(&shape, 2.0),
        };
        out.insert(name.clone(), tensor);
    }
    out
}

/// The output `y`; weights are made from those that `raw`, the graph before all passes, reads.
pub(crate) fn output(g: &Graph, raw: &Graph, inputs: &Tensors) -> Tensor {
    let weights = source_tensors(raw, 7);
    let source = |name: &str| {
        let missing = || Error::new(ErrorKind::Weight, "there is no such tensor");
        weights.get(name).cloned().ok_or_else(missing)
    };
    run(g, inputs, &source, &mut States::default()).unwrap()["y"].clone()
}
