//! Bounds around products: kept by the products themselves, or by operations of their own where something else reads what is bounded, with the same bits.

mod support;

use cactus_base::Pool;
use cactus_bundle::{About, Bundle, BundleWriter, Provenance};
use cactus_import::{ConvertOptions, convert};
use cactus_ir::{BinaryFn, Dim, Graph, GraphBuilder, Literal, Op, TensorType, UnaryFn, ValueId};
use cactus_passes::{Bits, Policy};
use cactus_quant::{Packing, pack};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const GRAPH: &str = "components/picture_encoder/optimized_ir.json";

/// Results of operations that take the larger or the smaller of two.
fn extremes(graph: &Graph) -> Vec<ValueId> {
    let nodes = graph.nodes().filter(|(_, node)| {
        let (Op::Binary { f: BinaryFn::Max } | Op::Binary { f: BinaryFn::Min }) = node.op else {
            return false;
        };
        true
    });
    nodes.map(|(_, node)| node.outputs[0]).collect()
}

fn inputs(count: usize) -> BTreeMap<String, Tensor> {
    let patches: Vec<f32> = (0..count * 9 * 192).map(|i| (i as f32 * 0.37).sin()).collect();
    let cells: Vec<i64> = (0..count * 9).flat_map(|i| [i as i64 % 6, i as i64 / 6]).collect();
    BTreeMap::from([
        (
            "patches".to_owned(),
            Tensor::from_f32([1, count, 9, 192], patches).unwrap(),
        ),
        ("cells".to_owned(), Tensor::from_i64([1, count, 9, 2], cells).unwrap()),
    ])
}

/// The rows that the encoder in `root` makes, and how many other outputs it has.
fn rows(root: &Path, threads: usize) -> (Vec<u32>, usize) {
    let bundle = Arc::new(Bundle::open(root).unwrap());
    let function = Function::new(bundle, "picture_encoder", None).unwrap();
    let pool = Pool::new(threads);
    let mut outputs = function.run(&pool, threads, &inputs(4)).unwrap();
    let (name, rows) = outputs.remove(0);
    assert_eq!(name, "rows");
    let rows = rows.as_f32().unwrap().iter().map(|x| x.to_bits()).collect();
    (rows, outputs.len())
}

#[test]
fn bounds_have_the_same_bits_in_products_and_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/seeing/gemma4");
    let folder = tempfile::tempdir().unwrap();
    for bits in [32, 8, 4] {
        let root = folder.path().join(bits.to_string());
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::from_number(bits).unwrap()),
            ..ConvertOptions::default()
        };
        convert(&source, &root, &options, &mut |_, _| {}).unwrap();
        let [(folded, others), (on_two, _)] = [1, 2].map(|threads| rows(&root, threads));
        assert!(others == 0 && folded == on_two, "{bits} bits");

        // What is an output is made by its own operation.
        let mut graph = Graph::from_json(&std::fs::read_to_string(root.join(GRAPH)).unwrap()).unwrap();
        let extremes = extremes(&graph);
        assert!(extremes.len() > 20, "{graph}");
        for (i, &v) in extremes.iter().enumerate() {
            graph.add_output(format!("bounded_{i}"), v);
        }
        support::put(&root, GRAPH, graph.to_json().as_bytes());
        support::of_another_version(&root, "picture_encoder");
        let (alone, others) = rows(&root, 1);
        assert_eq!(others, extremes.len(), "{bits} bits");
        assert!(alone == folded, "{bits} bits");
        assert!(folded.iter().any(|&x| f32::from_bits(x) != 0.0));
    }
}

#[test]
fn function_before_bounds_that_a_product_keeps_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = BTreeMap::from([("x".to_owned(), Tensor::from_f32([1, 1], vec![0.1]).unwrap())]);
    let [within, alone] = [false, true].map(|all| {
        let mut b = GraphBuilder::new("g");
        // With one input numbers have the shape of what they bound.
        let x = b.input("x", TensorType::new(DType::F32, [1, 1].map(Dim::known)));
        let [least, most] = [-0.4, 0.3].map(|v| b.literal(&[1, 1], Literal::F32(vec![v])).unwrap());
        let doubled = b.op(Op::Binary { f: BinaryFn::Add }, &[x, x]).unwrap();
        let made = b.unary(UnaryFn::Exp, doubled).unwrap();
        let larger = b.op(Op::Binary { f: BinaryFn::Max }, &[made, least]).unwrap();
        let kept = b.op(Op::Binary { f: BinaryFn::Min }, &[larger, most]).unwrap();
        let weight = b.weight("weight", &[20, 1]);
        let y = b.op(Op::Linear, &[kept, weight]).unwrap();
        b.output("y", y);
        if all {
            b.output("kept", kept);
        }
        let graph = b.finish().unwrap();
        let mut writer = BundleWriter::create(&folder.path().join(all.to_string()), false).unwrap();
        let weights: Vec<f32> = (0..20).map(|i| i as f32 - 9.5).collect();
        let packed = pack(Packing::Int8G32, 20, 1, &weights).unwrap();
        writer
            .add_weight("weight", &[20, 1], Packing::Int8G32, packed.scales(), packed.data())
            .unwrap();
        let bindings = BTreeMap::from([("weight".to_owned(), "weight".to_owned())]);
        writer.add_component("model", &graph, &graph, &bindings).unwrap();
        let bundle = writer.finish(About::default(), &Provenance::default()).unwrap();
        let function = Function::new(Arc::new(Bundle::open(&bundle).unwrap()), "model", None).unwrap();
        let outputs = function.run(&Pool::new(1), 1, &inputs).unwrap();
        outputs[0].1.as_f32().unwrap().to_vec()
    });
    assert_eq!(within, alone);
    // exp(0.4) is above what is kept.
    assert!((within[0] + 9.5 * 0.3).abs() < 0.05, "{within:?}");
}
