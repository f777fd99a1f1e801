//! Opening and reading a bundle. Every document and header is checked before anything of it is used; tensor data is mapped
//! and left to whoever computes on it.

use crate::{
    BUNDLE_VERSION, Checksum, Component, Error, ErrorKind, MANIFEST_PATH, Manifest, Mapped, OLDEST_BUNDLE_VERSION,
    PROVENANCE_PATH, Provenance, RecordHeader, Result, WEIGHTS_MANIFEST_PATH, WeightEntry, WeightsManifest,
    decode_graph,
};
use cactus_ir::Graph;
use cactus_quant::{PackedView, Packing};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component as PathPart, Path, PathBuf};
use std::sync::Mutex;

/// Largest manifest or graph that is read, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

/// An open bundle: manifests checked, tensor files mapped. Immutable and shareable between threads.
#[derive(Debug)]
pub struct Bundle {
    root: PathBuf,
    manifest: Manifest,
    weights: WeightsManifest,
    /// Stored tensors in the order of their names.
    tensors: Vec<Stored>,
    index: HashMap<String, usize>,
    /// The tensor files.
    maps: Vec<Mapped>,
    /// Their paths in the bundle.
    map_names: Vec<String>,
    /// Other files that were mapped, by their paths.
    others: Mutex<BTreeMap<String, Mapped>>,
}

/// A tensor of a mapped file.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) header: RecordHeader,
    pub(crate) map: usize,
    pub(crate) offset: usize,
}

/// A stored tensor in place.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Logical shape.
    pub dims: &'a [usize],
    /// How the elements are stored.
    pub packing: Packing,
    /// Scales; empty where the packing keeps them within the data.
    pub scales: &'a [u8],
    /// Data, aligned to 64 bytes.
    pub data: &'a [u8],
}

impl<'a> Weight<'a> {
    /// The tensor as a matrix `[n, k]`; a vector is one row.
    ///
    /// # Errors
    /// Where the shape is no matrix or the sizes do not fit, which an opened bundle excludes for matrices.
    pub fn matrix(&self) -> cactus_quant::Result<PackedView<'a>> {
        let (n, k) = match self.dims {
            [n, k] => (*n, *k),
            dims => (1, dims.iter().product()),
        };
        PackedView::new(self.packing, n, k, self.scales, self.data)
    }
}

impl Bundle {
    /// Whether `path` looks like a bundle.
    pub fn is_bundle(path: &Path) -> bool {
        path.join(MANIFEST_PATH).is_file()
    }

    /// Opens the bundle at `root`. Reads manifests and headers; tensor data is mapped, not read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotABundle`], [`ErrorKind::Version`] with the versions found and read, or
    /// what is damaged and where.
    pub fn open(root: &Path) -> Result<Bundle> {
        if !root.exists() {
            return Err(Error::new(ErrorKind::NotFound, root, "does not exist"));
        }
        if !Bundle::is_bundle(root) {
            let what = format!("is not a bundle: `{MANIFEST_PATH}` is missing");
            return Err(Error::new(ErrorKind::NotABundle, root, what));
        }
        let manifest = Manifest::read(root)?;
        let weights = WeightsManifest::read(root, &manifest)?;
        let mut bundle = Bundle {
            root: root.to_path_buf(),
            manifest,
            weights,
            tensors: Vec::new(),
            index: HashMap::new(),
            maps: Vec::new(),
            map_names: Vec::new(),
            others: Mutex::default(),
        };
        let read = bundle.map_weights();
        // What was read of a file that is gone is wrong, whatever it was.
        bundle.intact()?;
        read.map(|()| bundle)
    }

    fn map_weights(&mut self) -> Result<()> {
        let mut spans: BTreeMap<(&str, u64), (&str, u64)> = BTreeMap::new();
        let mut files: HashMap<&str, usize> = HashMap::new();
        for (name, entry) in &self.weights.weights {
            let path = inside(&self.root, &entry.file)?;
            let map = match files.get(entry.file.as_str()) {
                Some(&map) => map,
                None => {
                    self.maps.push(Mapped::open(&path)?);
                    self.map_names.push(entry.file.clone());
                    files.insert(&entry.file, self.maps.len() - 1);
                    self.maps.len() - 1
                }
            };
            let (header, offset) = check_entry(&path, &self.maps[map], name, entry)?;
            let end = entry.offset.saturating_add(entry.bytes);
            if let Some((other, _)) = spans.insert((&entry.file, entry.offset), (name, end)) {
                let what = format!("tensors `{other}` and `{name}` start at the same byte");
                return Err(Error::new(ErrorKind::Invalid, path, what).at(entry.offset));
            }
            self.index.insert(name.clone(), self.tensors.len());
            self.tensors.push(Stored {
                name: name.clone(),
                header,
                map,
                offset,
            });
        }
        let mut last: Option<((&str, u64), &str)> = None;
        for (&(file, start), &(name, end)) in &spans {
            if let Some(((last_file, last_end), last_name)) = last
                && last_file == file
                && last_end > start
            {
                let what = format!("tensors `{last_name}` and `{name}` overlap");
                return Err(Error::new(ErrorKind::Invalid, self.root.join(file), what).at(start));
            }
            last = Some(((file, end), name));
        }
        Ok(())
    }

    /// The bundle's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Every stored tensor by name, with its place.
    pub fn weights(&self) -> &BTreeMap<String, WeightEntry> {
        &self.weights.weights
    }

    /// Whether everything that was read from mapped files of this bundle so far was theirs. To be asked after a computation
    /// and before its result is used; see [`Mapped::intact`].
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], naming the file, from the first read that failed on.
    pub fn intact(&self) -> Result<()> {
        let others = self.others.lock().unwrap_or_else(|e| e.into_inner());
        self.maps.iter().chain(others.values()).try_for_each(Mapped::intact)
    }

    /// The tensor files.
    pub(crate) fn maps(&self) -> &[Mapped] {
        &self.maps
    }

    /// Their paths in the bundle, in the same order.
    pub(crate) fn map_names(&self) -> &[String] {
        &self.map_names
    }

    pub(crate) fn tensors(&self) -> &[Stored] {
        &self.tensors
    }

    /// Bytes of the mapped tensor files.
    pub fn mapped_bytes(&self) -> usize {
        self.maps.iter().map(|m| m.len()).sum()
    }

    /// The stored tensor `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the bundle holds none of that name.
    pub fn weight(&self, name: &str) -> Result<Weight<'_>> {
        match self.weight_index(name) {
            Some(index) => Ok(self.weight_at(index)),
            None => {
                let what = format!("tensor `{name}` is not stored");
                Err(Error::new(
                    ErrorKind::NotFound,
                    self.root.join(WEIGHTS_MANIFEST_PATH),
                    what,
                ))
            }
        }
    }

    /// Index of the stored tensor `name`, for [`Bundle::weight_at`].
    pub fn weight_index(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Name of the stored tensor at an index that [`Bundle::weight_index`] gave.
    pub fn weight_name(&self, index: usize) -> &str {
        &self.tensors[index].name
    }

    /// The stored tensor at an index that [`Bundle::weight_index`] gave.
    pub fn weight_at(&self, index: usize) -> Weight<'_> {
        let Stored {
            header, map, offset, ..
        } = &self.tensors[index];
        let part = |at: usize, bytes: usize| &self.maps[*map][offset + at..offset + at + bytes];
        Weight {
            dims: &header.dims,
            packing: header.packing,
            scales: part(header.scales_offset, header.scales_bytes),
            data: part(header.data_offset, header.data_bytes),
        }
    }

    /// The component called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] listing the components there are.
    pub fn component(&self, name: &str) -> Result<&Component> {
        let all = &self.manifest.components;
        all.iter().find(|c| c.name == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
            let what = format!("there is no component `{name}`; the components are {names:?}");
            Error::new(ErrorKind::NotFound, self.root.join(MANIFEST_PATH), what)
        })
    }

    /// Graph and bindings (weight of the graph to stored tensor) of the component called `name`, checked against each
    /// other: every weight is bound to a stored tensor of its shape.
    ///
    /// # Errors
    /// What is missing or does not fit.
    pub fn graph(&self, name: &str) -> Result<(Graph, BTreeMap<String, String>)> {
        let component = self.component(name)?;
        let graph_path = format!("components/{name}/graph.cactus");
        let bytes = self.file(&graph_path)?;
        let graph = match decode_graph(&self.root.join(&graph_path), &bytes) {
            Err(e) if e.kind() == ErrorKind::Version => self.saved_graph(name, e)?,
            decoded => decoded?,
        };
        let bindings_path = format!("components/{name}/graph_bindings.json");
        let bindings: BTreeMap<String, String> = read_listed(&self.root, &self.manifest, &bindings_path)?;
        let fail = |what: String| Err(Error::new(ErrorKind::Invalid, self.root.join(&bindings_path), what));
        for (v, _) in graph.weights() {
            let value = graph.value(v);
            let Some(stored) = bindings.get(&value.name) else {
                return fail(format!("weight `{}` of the graph is bound to no tensor", value.name));
            };
            let dims = self.weight(stored)?.dims;
            if value.ty.known_shape().as_deref() != Some(dims) {
                return fail(format!(
                    "weight `{}` is {}, the tensor `{stored}` has shape {dims:?}",
                    value.name, value.ty
                ));
            }
        }
        if graph.states() != component.states {
            return fail("the states of the graph are not those of the manifest".into());
        }
        Ok((graph, bindings))
    }

    /// The graph of a component by its saved JSON form, where `graph.cactus` has a header of another version (`why`). The
    /// document has a version of its own, and is refused where that is another, too.
    fn saved_graph(&self, name: &str, why: Error) -> Result<Graph> {
        let path = format!("components/{name}/optimized_ir.json");
        if !self.has_file(&path) {
            return Err(why);
        }
        let bytes = self.file(&path)?;
        let fail = |what: String| Error::new(ErrorKind::Version, self.root.join(&path), what);
        let text = std::str::from_utf8(&bytes).map_err(|e| fail(format!("{why}; its saved form is not text: {e}")))?;
        Graph::from_json(text).map_err(|e| fail(format!("{why}; its saved form is not readable either: {e}")))
    }

    /// Where the bundle came from.
    ///
    /// # Errors
    /// Where the record is missing or damaged.
    pub fn provenance(&self) -> Result<Provenance> {
        read_listed(&self.root, &self.manifest, PROVENANCE_PATH)
    }

    /// Whether the manifest lists a file at `path`.
    pub fn has_file(&self, path: &str) -> bool {
        self.manifest.files.contains_key(path)
    }

    /// Bytes of a listed file, checked against its checksum.
    ///
    /// # Errors
    /// Where the file is not listed, missing or damaged.
    pub fn file(&self, path: &str) -> Result<Vec<u8>> {
        read_checked(&self.root, &self.manifest, path)
    }

    /// A listed JSON document.
    pub(crate) fn listed<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        read_listed(&self.root, &self.manifest, path)
    }

    /// A listed file mapped; [`Bundle::intact`] holds for it, too. Its size is checked against the manifest; its checksum only by [`Bundle::verify`], because that
    /// would read all of it.
    ///
    /// # Errors
    /// Where the file is not listed, missing or of another size.
    pub fn map_file(&self, path: &str) -> Result<Mapped> {
        let full = inside(&self.root, path)?;
        let Some(entry) = self.manifest.files.get(path) else {
            return Err(Error::new(ErrorKind::NotFound, full, "is not listed in the manifest"));
        };
        let mut others = self.others.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(map) = others.get(path) {
            return Ok(map.clone());
        }
        let map = Mapped::open(&full)?;
        check_size(&full, map.len() as u64, entry.bytes)?;
        others.insert(path.to_owned(), map.clone());
        Ok(map)
    }
}

fn check_entry(path: &Path, file: &[u8], name: &str, entry: &WeightEntry) -> Result<(RecordHeader, usize)> {
    let offset = usize::try_from(entry.offset)
        .ok()
        .filter(|o| o.is_multiple_of(crate::RECORD_ALIGNMENT))
        .ok_or_else(|| {
            let what = format!("tensor `{name}` starts at {}, which is not aligned", entry.offset);
            Error::new(ErrorKind::Invalid, path, what)
        })?;
    let header = RecordHeader::decode(path, file, offset)?;
    let agree = header.dims == entry.dims
        && header.packing.to_string() == entry.packing
        && header.record_bytes as u64 == entry.bytes;
    if !agree {
        let what = format!(
            "tensor `{name}` is {} {:?} of {} bytes, the weights manifest says {} {:?} of {} bytes",
            header.packing, header.dims, header.record_bytes, entry.packing, entry.dims, entry.bytes
        );
        return Err(Error::new(ErrorKind::Invalid, path, what).at(entry.offset));
    }
    Ok((header, offset))
}

impl Manifest {
    /// The manifest of the bundle in the folder `root`, of which nothing else has to be there.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] with the versions found and read, [`ErrorKind::Checksum`], or why it cannot be read.
    pub fn read(root: &Path) -> Result<Manifest> {
        let path = root.join(MANIFEST_PATH);
        let bytes = read_bytes(&path)?;
        // The version is read first and alone: a newer manifest may have fields that this program does not know.
        #[derive(serde::Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = parse(&path, &bytes)?;
        if !(OLDEST_BUNDLE_VERSION..=BUNDLE_VERSION).contains(&head.version) {
            let what = format!(
                "the bundle has format version {}, this program reads versions {OLDEST_BUNDLE_VERSION} to \
                 {BUNDLE_VERSION}",
                head.version
            );
            return Err(Error::new(ErrorKind::Version, path, what));
        }
        let manifest: Manifest = parse(&path, &bytes)?;
        let names: BTreeSet<&str> = manifest.components.iter().map(|c| c.name.as_str()).collect();
        if names.len() < manifest.components.len() {
            return Err(Error::new(
                ErrorKind::Invalid,
                path,
                "two components have the same name",
            ));
        }
        let expected = manifest.expected_checksum();
        if manifest.checksum != expected {
            let what = format!("the manifest's checksum is {expected}, it says {}", manifest.checksum);
            return Err(Error::new(ErrorKind::Checksum, path, what));
        }
        Ok(manifest)
    }
}

impl WeightsManifest {
    /// The weights manifest of the bundle in the folder `root`, whose manifest is `manifest`. Nothing else has to be there.
    ///
    /// # Errors
    /// Where it is missing, damaged or of another version than the bundle.
    pub fn read(root: &Path, manifest: &Manifest) -> Result<WeightsManifest> {
        let weights: WeightsManifest = read_listed(root, manifest, WEIGHTS_MANIFEST_PATH)?;
        if weights.version == manifest.version {
            return Ok(weights);
        }
        let what = format!(
            "has version {}, the bundle has version {}",
            weights.version, manifest.version
        );
        Err(Error::new(ErrorKind::Invalid, root.join(WEIGHTS_MANIFEST_PATH), what))
    }

    /// The `*.weights` files, with the bytes that each has at least.
    pub fn least_bytes(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for entry in self.weights.values() {
            let least = files.entry(entry.file.as_str()).or_default();
            *least = entry.offset.saturating_add(entry.bytes).max(*least);
        }
        files
    }
}

fn read_listed<T: DeserializeOwned>(root: &Path, manifest: &Manifest, path: &str) -> Result<T> {
    parse(&root.join(path), &read_checked(root, manifest, path)?)
}

fn read_checked(root: &Path, manifest: &Manifest, path: &str) -> Result<Vec<u8>> {
    let full = inside(root, path)?;
    let Some(entry) = manifest.files.get(path) else {
        return Err(Error::new(ErrorKind::NotFound, full, "is not listed in the manifest"));
    };
    let bytes = read_bytes(&full)?;
    check_size(&full, bytes.len() as u64, entry.bytes)?;
    let found = Checksum::of(&bytes);
    if found != entry.xxh3 {
        let what = format!("is damaged: its checksum is {found}, the manifest says {}", entry.xxh3);
        return Err(Error::new(ErrorKind::Checksum, full, what));
    }
    Ok(bytes)
}

fn check_size(path: &Path, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("has {found} bytes, the manifest says {expected}");
    Err(Error::new(ErrorKind::Truncated, path, what))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let size = std::fs::metadata(path)
        .map_err(|e| Error::io(path, "open it", e))?
        .len();
    if size > MAX_DOCUMENT_BYTES {
        let what = format!("has {size} bytes; the limit is {MAX_DOCUMENT_BYTES}");
        return Err(Error::new(ErrorKind::Invalid, path, what));
    }
    std::fs::read(path).map_err(|e| Error::io(path, "read it", e))
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| Error::new(ErrorKind::Invalid, path, format!("is not readable: {e}")))
}

/// `root/path`, where `path` stays inside: relative, no `..`.
fn inside(root: &Path, path: &str) -> Result<PathBuf> {
    let relative = Path::new(path);
    let plain = relative.components().all(|c| matches!(c, PathPart::Normal(_)));
    if path.is_empty() || !plain {
        let what = format!("`{path}` does not stay inside the bundle");
        return Err(Error::new(ErrorKind::Invalid, root, what));
    }
    Ok(root.join(relative))
}
