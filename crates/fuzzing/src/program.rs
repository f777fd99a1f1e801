//! Lowering and running a graph of somebody else: what a hostile bundle reaches after it has been read.

use cactus_base::Pool;
use cactus_bundle::{About, Bundle, BundleWriter, Provenance};
use cactus_ir::Graph;
use cactus_passes::{Bits, Policy, Storage, choose_storage};
use cactus_quant::{Packing, pack};
use cactus_runtime::{Execution, Head, Options, Program};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Graphs with more elements in their weights are not written, to keep runs short.
const MAX_ELEMS: usize = 1 << 18;
/// Programs that need more memory are not run.
const MAX_BYTES: usize = 64 << 20;

/// The JSON form of a graph: it is stored with weights of its shapes, loaded, lowered and run. After a zero byte there may
/// follow a packing's id for each matrix; conversion's choice otherwise.
pub(crate) fn program(data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |b| *b == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let packings = parts.next().unwrap_or_default();
    let Ok(graph) = Graph::from_json(&text) else {
        return false;
    };
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let Some(bundle) = store(&graph, packings, &folder.path().join("bundle")) else {
        return false;
    };
    let options = Options {
        context_tokens: 24,
        chunk_tokens: 5,
        ..Options::default()
    };
    let Ok(program) = Program::new(Arc::new(bundle), "decoder", &options) else {
        return false;
    };
    assert_eq!(program.listing().is_empty(), program.vocab_size() == 0);
    let memory = program.memory();
    let all = [memory.arena_bytes, memory.state_bytes, memory.logits_bytes];
    if all
        .iter()
        .try_fold(0usize, |n, &b| n.checked_add(b))
        .is_none_or(|n| n > MAX_BYTES)
    {
        return false;
    }
    let Ok(mut execution) = Execution::new(Arc::new(program)) else {
        return false;
    };
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::new(1));
    for ids in [&[0, 1, 2, 3, 4][..], &[1], &[2, 0, 1]] {
        if execution.run(pool, 1, ids, Head::Last).is_err() {
            return false;
        }
    }
    let _ = execution.truncate(2);
    let _ = execution.run(
        pool,
        1,
        &[0],
        Head::From(0, &mut |_, logits| assert!(!logits.is_empty())),
    );
    true
}

/// A bundle of the graph with small weights; `None` where it is too large or cannot be packed.
fn store(graph: &Graph, packings: &[u8], destination: &Path) -> Option<Bundle> {
    let storage = choose_storage(graph, &Policy::uniform(Bits::Eight));
    let mut tensors = Vec::new();
    let mut elems = 0usize;
    for (i, (v, _)) in graph.weights().into_iter().enumerate() {
        let value = graph.value(v);
        let dims = value.ty.known_shape()?;
        let (n, k) = match dims[..] {
            [n, k] => (n, k),
            _ => (1, dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?),
        };
        elems = n.checked_mul(k)?.checked_add(elems).filter(|&n| n <= MAX_ELEMS)?;
        let given = packings.get(i).and_then(|&id| Packing::from_id(id.into()));
        let packing = given.unwrap_or(match storage.get(&value.name)?.storage {
            Storage::Int8 => Packing::Int8G32,
            Storage::F16 => Packing::F16N16,
            Storage::F32 => Packing::F32N16,
            _ => Packing::RowMajor,
        });
        let values: Vec<f32> = (0..n * k).map(|i| (i % 7) as f32 * 0.125 - 0.375).collect();
        tensors.push((value.name.clone(), dims, packing, pack(packing, n, k, &values).ok()?));
    }
    let mut writer = BundleWriter::create(destination, false).expect("a new folder");
    let mut bindings = BTreeMap::new();
    for (name, dims, packing, packed) in tensors {
        writer
            .add_weight(&name, &dims, packing, packed.scales(), packed.data())
            .ok()?;
        bindings.insert(name.clone(), name);
    }
    writer.add_component("decoder", graph, graph, &bindings).ok()?;
    let about = About {
        context_tokens: 64,
        ..About::default()
    };
    let root = writer.finish(about, &Provenance::default()).expect("a writable folder");
    let bundle = Bundle::open(&root).expect("a written bundle opens");
    bundle.verify(2, &|_| {}).whole().expect("a written bundle is whole");
    Some(bundle)
}
