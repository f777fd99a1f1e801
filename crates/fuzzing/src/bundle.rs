//! Tensor records and whole bundles with fuzzed manifests.

use crate::seeds;
use cactus_bundle::{
    About, Bundle, BundleWriter, Checksum, FileEntry, MANIFEST_PATH, Manifest, PROVENANCE_PATH, Provenance,
    RECORD_HEADER_BYTES, RecordHeader, TENSOR_MAGIC, TENSOR_VERSION, WEIGHTS_MANIFEST_PATH,
};
use cactus_quant::{PackedView, Packing, pack};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tempfile::TempDir;

/// Rows longer than this are not decoded, to keep runs short.
const MAX_ROW: usize = 1 << 16;

/// A `*.weights` file, as it is and with the start of its first header made right.
pub(crate) fn tensor_record(data: &[u8]) -> bool {
    for offset in [64, data.len(), usize::MAX - 8] {
        record_at(data, offset);
    }
    let sound = record_at(data, 0);
    if data.len() >= RECORD_HEADER_BYTES {
        let mut fixed = data.to_vec();
        fixed[..4].copy_from_slice(&TENSOR_MAGIC);
        fixed[4..8].copy_from_slice(&TENSOR_VERSION.to_le_bytes());
        let sum = Checksum::of(&fixed[..120]).0;
        fixed[120..128].copy_from_slice(&sum.to_le_bytes());
        return record_at(&fixed, 0) || sound;
    }
    sound
}

fn record_at(file: &[u8], offset: usize) -> bool {
    let Ok(header) = RecordHeader::decode(Path::new("fuzzed.weights"), file, offset) else {
        return false;
    };
    let record = &file[offset..][..header.record_bytes];
    assert_eq!(
        header.encode(),
        record[..RECORD_HEADER_BYTES],
        "an accepted header is canonical"
    );
    let scales = &record[header.scales_offset..][..header.scales_bytes];
    let data = &record[header.data_offset..][..header.data_bytes];
    if let [n, k] = header.dims[..] {
        decode_rows(PackedView::new(header.packing, n, k, scales, data).expect("an accepted record is a matrix"));
    }
    true
}

fn decode_rows(view: PackedView<'_>) {
    if view.n() > 0 && view.k() <= MAX_ROW {
        let mut row = vec![0.0; view.k()];
        for r in [0, view.n() - 1] {
            view.decode_row(r, &mut row);
        }
    }
}

/// A small sound bundle whose documents are replaced.
struct Base {
    _folder: TempDir,
    root: PathBuf,
    manifest: Manifest,
    /// Path and content of each document that is fuzzed, the manifest first.
    documents: Vec<(String, Vec<u8>)>,
}

fn base() -> MutexGuard<'static, Base> {
    static BASE: OnceLock<Mutex<Base>> = OnceLock::new();
    // The state is written anew for each run, so a run that panicked leaves nothing behind.
    let base = BASE.get_or_init(|| Mutex::new(write_base()));
    base.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_base() -> Base {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let (raw, optimized) = seeds::decoder("llama");
    let mut writer = BundleWriter::create(&folder.path().join("bundle"), false).expect("a new folder");
    let mut bindings = BTreeMap::new();
    for (v, _) in optimized.weights() {
        let value = optimized.value(v);
        let dims = value.ty.known_shape().expect("weights have known shapes");
        let (packing, n, k) = match dims[..] {
            [n, k] => (Packing::Int8G32, n, k),
            _ => (Packing::RowMajor, 1, dims.iter().product()),
        };
        let packed = pack(packing, n, k, &vec![0.5; n * k]).expect("finite values");
        let added = writer.add_weight(&value.name, &dims, packing, packed.scales(), packed.data());
        added.expect("parts that fit");
        bindings.insert(value.name.clone(), value.name.clone());
    }
    let added = writer.add_component("decoder", &raw, &optimized, &bindings);
    added.expect("a writable folder");
    let about = About {
        name: "fuzzed".to_owned(),
        family: "llama".to_owned(),
        task: "causal_lm_logits".to_owned(),
        context_tokens: 64,
        vocab_size: 64,
        ..About::default()
    };
    let root = writer.finish(about, &Provenance::default()).expect("a writable folder");
    let paths = [
        MANIFEST_PATH,
        WEIGHTS_MANIFEST_PATH,
        "components/decoder/graph_bindings.json",
        PROVENANCE_PATH,
    ];
    let documents = paths.map(|p| (p.to_owned(), fs::read(root.join(p)).expect("the writer wrote it")));
    Base {
        manifest: serde_json::from_slice(&documents[0].1).expect("the writer wrote a manifest"),
        documents: documents.to_vec(),
        root,
        _folder: folder,
    }
}

/// The documents of the base bundle, separated by zero bytes.
pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let base = base();
    let all: Vec<&[u8]> = base.documents.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    vec![all.join(&0)]
}

/// A bundle whose manifest, weights manifest, bindings and provenance are the parts of `data` between zero bytes: first
/// as they are, then with sizes and checksums made right, so that what lies behind them is reached.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let base = base();
    let mut parts = data.splitn(base.documents.len(), |b| *b == 0);
    let parts: Vec<&[u8]> = base
        .documents
        .iter()
        .map(|(_, sound)| parts.next().unwrap_or(sound))
        .collect();
    for ((path, _), part) in base.documents.iter().zip(&parts) {
        fs::write(base.root.join(path), part).expect("a writable folder");
    }
    open(&base.root);

    let mut manifest: Manifest = serde_json::from_slice(parts[0]).unwrap_or_else(|_| base.manifest.clone());
    for ((path, _), part) in base.documents.iter().zip(&parts).skip(1) {
        let entry = FileEntry {
            bytes: part.len() as u64,
            xxh3: Checksum::of(part),
        };
        manifest.files.insert(path.clone(), entry);
    }
    manifest.checksum = manifest.expected_checksum();
    let json = serde_json::to_vec(&manifest).expect("string keys");
    fs::write(base.root.join(MANIFEST_PATH), json).expect("a writable folder");
    open(&base.root)
}

fn open(root: &Path) -> bool {
    let Ok(bundle) = Bundle::open(root) else {
        return false;
    };
    for name in bundle.weights().keys() {
        let weight = bundle.weight(name).expect("a listed tensor is stored");
        assert!((weight.data.as_ptr() as usize).is_multiple_of(64) || weight.data.is_empty());
        if weight.dims.len() == 2 {
            decode_rows(weight.matrix().expect("an opened bundle holds whole matrices"));
        }
    }
    for component in &bundle.manifest().components {
        if let Ok((graph, bindings)) = bundle.graph(&component.name) {
            for (v, _) in graph.weights() {
                assert!(bundle.weight(&bindings[&graph.value(v).name]).is_ok());
            }
        }
    }
    // Both may fail on a fuzzed bundle; neither may panic.
    let _ = bundle.provenance();
    bundle.verify(2, &|_| {}).whole().is_ok()
}
