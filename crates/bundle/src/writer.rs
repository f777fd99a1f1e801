//! Writing a bundle: all of it beside its destination, then one rename. What to write is the caller's decision.

use crate::place::place_folder;
use crate::scratch::Scratch;
use crate::verify::{BLOCK_SUMS_VERSION, BlockSums};
use crate::{
    BLOCK_BYTES, BUNDLE_VERSION, Checksum, Component, Error, ErrorKind, FileEntry, MANIFEST_PATH, Manifest,
    PROVENANCE_PATH, PortDecl, Provenance, RECORD_ALIGNMENT, RecordHeader, Result, TokenIds, WEIGHTS_CHECKSUMS_PATH,
    WEIGHTS_MANIFEST_PATH, WeightEntry, WeightsManifest, encode_graph,
};
use cactus_ir::{Graph, TensorType};
use cactus_quant::Packing;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The file that holds the tensors.
const WEIGHTS_FILE: &str = "model.weights";

/// What a manifest says of the model as a whole.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the model, for people.
    pub name: String,
    /// Model family, such as `llama`.
    pub family: String,
    /// What the bundle does, such as `causal_lm_logits`.
    pub task: String,
    /// Longest sequence the model was made for, in tokens.
    pub context_tokens: usize,
    /// Number of logits for a position.
    pub vocab_size: usize,
    /// Token ids with a role.
    pub tokens: TokenIds,
}

/// Writes a bundle into a [`Scratch`] folder beside its destination and renames it into place at [`BundleWriter::finish`].
/// Dropped before that, it removes what it wrote.
#[derive(Debug)]
pub struct BundleWriter {
    destination: PathBuf,
    temporary: PathBuf,
    weights: ChunkWriter,
    weights_path: PathBuf,
    weights_offset: u64,
    entries: BTreeMap<String, WeightEntry>,
    files: BTreeMap<String, FileEntry>,
    components: Vec<Component>,
    /// Has `temporary` in it; the last field, so that its files are closed before it is removed.
    _scratch: Scratch,
}

impl BundleWriter {
    /// Begins a bundle at `destination`. With `replace`, a bundle already there is replaced at the end; anything else
    /// there is never touched.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where something is at `destination` that may not be replaced; file errors.
    pub fn create(destination: &Path, replace: bool) -> Result<BundleWriter> {
        check_destination(destination, replace)?;
        let scratch = Scratch::beside(destination)?;
        let temporary = scratch.join("bundle");
        fs::create_dir(&temporary).map_err(|e| Error::io(&temporary, "create it", e))?;
        let weights_path = temporary.join(WEIGHTS_FILE);
        let weights = File::create(&weights_path).map_err(|e| Error::io(&weights_path, "create it", e))?;
        Ok(BundleWriter {
            destination: destination.to_path_buf(),
            temporary,
            weights: ChunkWriter::new(weights),
            weights_path,
            weights_offset: 0,
            entries: BTreeMap::new(),
            files: BTreeMap::new(),
            components: Vec::new(),
            _scratch: scratch,
        })
    }

    /// Appends a tensor. Records lie in the order of the calls, so weights written in the order of execution are read
    /// as one stream.
    ///
    /// # Errors
    /// Where the name is taken, the parts do not fit the packing, or the file cannot be written.
    pub fn add_weight(
        &mut self,
        name: &str,
        dims: &[usize],
        packing: Packing,
        scales: &[u8],
        data: &[u8],
    ) -> Result<()> {
        if self.entries.contains_key(name) {
            let what = format!("tensor `{name}` is written twice");
            return Err(Error::new(ErrorKind::Invalid, &self.weights_path, what));
        }
        if packing.payload_bytes(dims) != Some((scales.len(), data.len())) {
            let what = format!(
                "tensor `{name}` of shape {dims:?} as {packing} needs {:?} bytes of scales and data, found ({}, {})",
                packing.payload_bytes(dims),
                scales.len(),
                data.len()
            );
            return Err(Error::new(ErrorKind::Invalid, &self.weights_path, what));
        }
        let mut header = RecordHeader::plan(&self.weights_path, dims, packing, scales.len(), data.len())?;
        let pad_mid = header.data_offset - header.scales_offset - scales.len();
        let pad_end = header.record_bytes - header.data_offset - data.len();
        let zeros = [0u8; RECORD_ALIGNMENT];
        let mut hash = Xxh3::new();
        hash.update(scales);
        hash.update(&zeros[..pad_mid]);
        hash.update(data);
        header.payload_checksum = Checksum(hash.digest());
        for part in [&header.encode()[..], scales, &zeros[..pad_mid], data, &zeros[..pad_end]] {
            self.weights
                .write_all(part)
                .map_err(|e| Error::io(&self.weights_path, "write to it", e))?;
        }
        self.entries.insert(
            name.to_owned(),
            WeightEntry {
                file: WEIGHTS_FILE.to_owned(),
                offset: self.weights_offset,
                bytes: header.record_bytes as u64,
                dims: dims.to_vec(),
                packing: packing.to_string(),
            },
        );
        self.weights_offset += header.record_bytes as u64;
        Ok(())
    }

    /// Bytes of the tensors added so far.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_offset
    }

    /// Adds a component: its final graph, the graph before the passes, and the stored tensor behind each weight of the
    /// graph (`bindings`, weight name to stored name).
    ///
    /// # Errors
    /// File errors.
    pub fn add_component(
        &mut self,
        name: &str,
        raw: &Graph,
        optimized: &Graph,
        bindings: &BTreeMap<String, String>,
    ) -> Result<()> {
        let folder = format!("components/{name}");
        self.add_file(&format!("{folder}/raw_ir.json"), raw.to_json().as_bytes())?;
        self.add_file(&format!("{folder}/optimized_ir.json"), optimized.to_json().as_bytes())?;
        self.add_file(&format!("{folder}/graph.cactus"), &encode_graph(optimized))?;
        self.add_file(&format!("{folder}/graph_bindings.json"), &json(bindings))?;
        let port = |name: &str, ty: &TensorType| PortDecl {
            name: name.to_owned(),
            ty: ty.clone(),
        };
        self.components.push(Component {
            name: name.to_owned(),
            inputs: optimized
                .inputs()
                .iter()
                .map(|&v| port(&optimized.value(v).name, optimized.ty(v)))
                .collect(),
            outputs: optimized
                .outputs()
                .iter()
                .map(|(n, v)| port(n, optimized.ty(*v)))
                .collect(),
            states: optimized.states().to_vec(),
        });
        Ok(())
    }

    /// Adds a file at `path`, relative with `/`.
    ///
    /// # Errors
    /// File errors.
    pub fn add_file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let entry = FileEntry {
            bytes: bytes.len() as u64,
            xxh3: Checksum::of(bytes),
        };
        self.write_file(path, bytes)?;
        self.files.insert(path.to_owned(), entry);
        Ok(())
    }

    fn write_file(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let full = self.temporary.join(path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create it", e))?;
        }
        write_synced(&full, bytes)
    }

    /// Completes the bundle and moves it into place.
    ///
    /// # Errors
    /// File errors; the destination is then as it was.
    pub fn finish(mut self, about: About, provenance: &Provenance) -> Result<PathBuf> {
        let io = |path: &Path, e| Error::io(path, "write to it", e);
        self.weights.finish().map_err(|e| io(&self.weights_path, e))?;
        let weights = WeightsManifest {
            version: BUNDLE_VERSION,
            weights: std::mem::take(&mut self.entries),
        };
        self.add_file(WEIGHTS_MANIFEST_PATH, &json(&weights))?;
        let blocks = BlockSums {
            version: BLOCK_SUMS_VERSION,
            block_bytes: BLOCK_BYTES as u64,
            files: BTreeMap::from([(WEIGHTS_FILE.to_owned(), std::mem::take(&mut self.weights.blocks))]),
        };
        self.add_file(WEIGHTS_CHECKSUMS_PATH, &json(&blocks))?;
        self.add_file(PROVENANCE_PATH, &json(provenance))?;
        let mut manifest = Manifest {
            version: BUNDLE_VERSION,
            name: about.name,
            family: about.family,
            task: about.task,
            components: std::mem::take(&mut self.components),
            context_tokens: about.context_tokens,
            vocab_size: about.vocab_size,
            tokens: about.tokens,
            files: std::mem::take(&mut self.files),
            checksum: Checksum(0),
        };
        manifest.checksum = manifest.expected_checksum();
        self.write_file(MANIFEST_PATH, &json(&manifest))?;
        place(&self.temporary, &self.destination)?;
        Ok(self.destination)
    }
}

/// Writes a file and has it on the device.
fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|e| Error::io(path, "write it", e))
}

/// Writes a file in aligned pieces of [`CHUNK_BYTES`]: the kernel then keeps it in large folios of the page cache, which it
/// can map as huge pages. (Measured: written as it comes, 19 % of a bundle was mapped so; in such pieces, all of it.)
#[derive(Debug)]
struct ChunkWriter {
    file: File,
    buffer: Vec<u8>,
    /// Checksums of the blocks written.
    blocks: Vec<Checksum>,
}

/// A multiple of the size of a huge page, and of [`BLOCK_BYTES`].
const CHUNK_BYTES: usize = 4 << 20;

impl ChunkWriter {
    fn new(file: File) -> Self {
        ChunkWriter {
            file,
            buffer: Vec::with_capacity(CHUNK_BYTES),
            blocks: Vec::new(),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            if self.buffer.len() == CHUNK_BYTES {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.blocks.extend(self.buffer.chunks(BLOCK_BYTES).map(Checksum::of));
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }
}

/// Moves a complete bundle into place, as [`place_folder`] does, where one may be.
pub(crate) fn place(new: &Path, destination: &Path) -> Result<()> {
    check_destination(destination, true)?;
    place_folder(new, destination)
}

/// Checks that a bundle may be written to `destination`: an empty folder, or nothing, or (with `replace`) a bundle may stand
/// there. Writers check it themselves; whoever works long before they begin can ask first.
///
/// # Errors
/// [`ErrorKind::Exists`] where something else is there.
pub fn check_destination(destination: &Path, replace: bool) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(destination) else {
        return Ok(());
    };
    let fail = |what: &str| Err(Error::new(ErrorKind::Exists, destination, what));
    if !meta.is_dir() {
        return fail("exists and is not a folder");
    }
    let empty = fs::read_dir(destination)
        .map_err(|e| Error::io(destination, "list it", e))?
        .next()
        .is_none();
    if empty {
        return Ok(());
    }
    match (destination.join(MANIFEST_PATH).is_file(), replace) {
        (true, true) => Ok(()),
        (true, false) => fail("a bundle is already there"),
        (false, _) => fail("the folder exists, is not empty and is not a bundle"),
    }
}

pub(crate) fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut out = serde_json::to_vec_pretty(value).expect("a manifest has string keys and finite structure");
    out.push(b'\n');
    out
}
