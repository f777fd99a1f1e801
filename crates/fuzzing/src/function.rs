//! Functions of somebody else's graphs: lowered and run by the lowest tier of kernels and the highest, which have to agree to the
//! bit.

use cactus_base::Pool;
use cactus_import::pt2::{TranspileOptions, import_bytes, optimize};
use cactus_ir::{Bindings, Graph, TensorType};
use cactus_kernels::Kernels;
use cactus_runtime::{Function, Named};
use cactus_tensor::{DType, Data, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::pt2;

/// Graphs with a larger value than this are not run, to keep runs short.
const MAX_ELEMS: usize = 1 << 13;
const MAX_NODES: usize = 600;
/// What every size that varies is.
const SIZE: usize = 3;
/// Golden archives whose programs, once they were optimized, are seeds.
const SEEDS: [&str; 8] = [
    "classifier",
    "inverses",
    "lstm_step",
    "odds",
    "scans",
    "tagger",
    "volume",
    "windows",
];

/// The JSON form of a graph without states. Its weights and inputs are some numbers of the types that it declares.
pub(crate) fn function(data: &[u8]) -> bool {
    let Ok(graph) = Graph::from_json(&String::from_utf8_lossy(data)) else {
        return false;
    };
    if graph.order().len() > MAX_NODES || !graph.values().iter().all(|v| elems(&v.ty).is_some()) {
        return false;
    }
    let weights = graph.weights().into_iter().map(|(v, _)| v).enumerate();
    let weights: Option<BTreeMap<_, _>> = weights.map(|(i, v)| named(&graph, v, i)).collect();
    let inputs = graph.inputs().iter().copied().enumerate();
    let inputs: Option<BTreeMap<_, _>> = inputs.map(|(i, v)| named(&graph, v, i + 1)).collect();
    let (Some(weights), Some(inputs)) = (weights, inputs) else {
        return false;
    };
    let tiers = [Kernels::available().next(), Kernels::available().last()];
    let [low, high] = tiers.map(|kernels| {
        let function = Function::with_weights(graph.clone(), &weights, kernels)?;
        let first = function.run(pool(), 1, &inputs)?;
        let again = function.run(pool(), 1, &inputs)?;
        assert!(bits(&first) == bits(&again), "the same again");
        Ok::<_, cactus_runtime::Error>(first)
    });
    match (low, high) {
        (Ok(low), Ok(high)) => {
            assert_eq!(low.len(), graph.outputs().len());
            for ((name, tensor), (_, value)) in low.iter().zip(graph.outputs()) {
                assert_eq!(Some(tensor.shape().to_vec()), shape(graph.ty(*value)), "{name}");
            }
            assert!(bits(&low) == bits(&high), "tiers agree");
            true
        }
        (Err(_), Err(_)) => false,
        (low, high) => panic!("one tier refuses: {:?} {:?}", low.err(), high.err()),
    }
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(1))
}

fn shape(ty: &TensorType) -> Option<Vec<usize>> {
    let symbols = ty.shape.iter().flat_map(|dim| dim.symbols());
    let sizes: Bindings = symbols.map(|name| (name.to_owned(), SIZE)).collect();
    ty.shape.iter().map(|dim| dim.eval(&sizes).ok()).collect()
}

fn elems(ty: &TensorType) -> Option<usize> {
    let product = shape(ty)?.into_iter().try_fold(1usize, usize::checked_mul)?;
    (product <= MAX_ELEMS).then_some(product)
}

fn named(graph: &Graph, v: cactus_ir::ValueId, salt: usize) -> Option<(String, Tensor)> {
    let value = graph.value(v);
    let numbers = (0..elems(&value.ty)?).map(|i| (i * 5 + salt * 3) % 11);
    let data = match value.ty.dtype {
        DType::Bool => Data::Bool(numbers.map(|n| n.is_multiple_of(2)).collect()),
        ty if ty.is_float() => Data::F32(numbers.map(|n| n as f32 * 0.25 - 1.25).collect()),
        _ => Data::I64(numbers.map(|n| n as i64 % 3).collect()),
    };
    let tensor = Tensor::new(shape(&value.ty)?, data).ok()?;
    Some((value.name.clone(), tensor))
}

/// Outputs in bits, one for everything that is no number.
fn bits(outputs: &Named) -> Vec<(&str, Vec<u64>)> {
    let of = |tensor: &Tensor| match tensor.data() {
        Data::F32(v) => v
            .iter()
            .map(|x| if x.is_nan() { u64::MAX } else { x.to_bits().into() })
            .collect(),
        Data::I64(v) => v.iter().map(|&n| n as u64).collect(),
        Data::Bool(v) => v.iter().map(|&b| b.into()).collect(),
        other => unreachable!("the runtime holds no {other:?}"),
    };
    outputs
        .iter()
        .map(|(name, tensor)| (name.as_str(), of(tensor)))
        .collect()
}

/// Optimized programs of golden archives, as far as they are small.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let graph = |name: &&str| {
        let bytes = Arc::new(pt2::golden(name));
        let mut imported = import_bytes(Path::new("seed.pt2"), bytes).expect("a golden archive");
        let (_, graph, _) = optimize(&mut imported, &TranspileOptions::default()).expect("a golden program");
        serde_json::to_vec(&graph).expect("a graph has string keys")
    };
    SEEDS.iter().map(graph).filter(|seed| function(seed)).collect()
}
