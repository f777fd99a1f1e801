//! The conversion pipeline: source to bundle.
//!
//! Weights are made one by one in the order of execution: read, changed as the graph's weight expressions say, packed,
//! written. A few are under way at once, one for each core, so memory holds a few tensors and never the model.

use crate::encode::{Encoder, LARGE, Stored};
use crate::{Error, ErrorKind, Result, SourceModel, Stop, TensorSource, TokenizerFiles, hf, senses};
use cactus_bundle::{About, BundleWriter, EMBEDDING_PATH, Provenance, SPEECH_PATH, Speech, TokenIds};
use cactus_ir::{Graph, WeightExpr};
use cactus_models::{ComponentDef, ModelDef};
use cactus_passes::{Bits, Options, Policy, Report, StatePolicy, Storage, StorageChoice};
use cactus_quant::{Packed, Packing};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Name of the component that continues a sequence.
pub(crate) const DECODER: &str = "decoder";

/// Choices of a conversion.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Bits of the matrices.
    pub policy: Policy,
    /// Whether a bundle already at the destination is replaced.
    pub replace: bool,
    /// Name of the model; the source's file or folder name where absent.
    pub name: Option<String>,
    /// License of the source, where known.
    pub license: Option<String>,
    /// Of a source with networks for several rates (Silero VAD in ONNX) the one to take, in samples a second; the highest where
    /// absent.
    pub sample_rate_hz: Option<u32>,
    /// Let a Parakeet hear sound of any length as a whole: its attention sees so many positions on each side then, as NeMo's
    /// `rel_pos_local_attn` does, whose own are 256.
    pub attention_context: Option<usize>,
    /// What stands before texts that are searched with, of a model that makes vectors; in place of what the source says, empty for
    /// nothing.
    pub query_prompt: Option<String>,
    /// The same before texts that are searched for.
    pub document_prompt: Option<String>,
    /// Take a language model that was trained to say `yes` or `no` of a document (Qwen3-Reranker) as the reranker that it is, where
    /// its folder does not say so.
    pub rerank: bool,
    /// Folder of a low-rank adapter to merge into the weights first, see [`crate::lora`].
    pub adapter: Option<PathBuf>,
    /// The GGUF file of the encoder of pictures (`mmproj`) that belongs to a text model in another.
    pub pictures: Option<PathBuf>,
    /// Choices of the passes.
    pub passes: cactus_passes::Options,
    /// Tensors made at once; one for each core where absent.
    pub threads: Option<usize>,
    /// Whether matrices with values that half precision cannot hold are stored in single precision where half is asked for.
    pub widen: bool,
    /// Stops the conversion before its end.
    pub stop: Stop,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            policy: Policy::uniform(Bits::Eight),
            replace: false,
            name: None,
            license: None,
            sample_rate_hz: None,
            attention_context: None,
            query_prompt: None,
            document_prompt: None,
            rerank: false,
            adapter: None,
            pictures: None,
            passes: cactus_passes::Options::default(),
            threads: None,
            widen: false,
            stop: Stop::default(),
        }
    }
}

impl ConvertOptions {
    /// Threads to work on.
    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).max(1)
    }
}

/// Encoding of weights with knowledge of the inputs that they multiply.
pub trait Calibration {
    /// Says which matrices will be packed, by name and in order, before the first one is.
    fn expect(&mut self, names: Vec<String>);

    /// Finds out what is known of the inputs of the linear with the weight `name` `[n, k]`; `false` where nothing is. Called
    /// for each of the expected, in order, while its values are not in memory.
    ///
    /// # Errors
    /// Why it cannot be found out.
    fn prepare(&mut self, name: &str, k: usize) -> Result<bool>;

    /// Packs rows `values` `[n, k]` of the matrix that was prepared last.
    ///
    /// # Errors
    /// What cannot be packed.
    fn pack(&mut self, packing: Packing, shape: [usize; 2], values: &[f32]) -> cactus_quant::Result<Packed>;
}

/// What storing a weight changed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TensorError {
    /// The weight.
    pub name: String,
    /// Its packing.
    pub packing: String,
    /// Squared error relative to the squares of the weights.
    pub relative: f64,
    /// Whether errors were fed back.
    pub calibrated: bool,
}

/// What a conversion made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// The bundle.
    pub path: PathBuf,
    /// Tensors stored.
    pub tensors: usize,
    /// Bytes of the stored tensors.
    pub weights_bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// What the user should know, such as tensors of the source that the model does not use.
    pub notes: Vec<String>,
    /// Of a source that is quantized already, its types and what becomes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_types: Option<String>,
    /// What was lost, for each matrix in the order of execution.
    pub errors: Vec<TensorError>,
    /// What the passes did, in words.
    #[serde(skip)]
    pub explanation: String,
}

/// Converts the model at `source` (a form that [`crate::open`] knows) into a bundle at `destination`. `progress` gets
/// the elements done and in all.
///
/// # Errors
/// What is missing, malformed or not supported, naming file and tensor. The destination is then as it was.
pub fn convert(
    source: &Path,
    destination: &Path,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome> {
    convert_calibrated(source, destination, options, None, progress)
}

/// How the model at `source` hears, if it does: the record that its bundle would have. No weight is read.
///
/// # Errors
/// As [`convert`].
pub fn speech_of(source: &Path) -> Result<Option<Speech>> {
    let model = crate::open(source)?;
    let def = cactus_models::build(&crate::speech::complete(&model, None)).map_err(|e| from_models(e, source))?;
    let (speech, _) = crate::speech::record(&def, &model).map_err(|e| e.in_file(source))?;
    Ok(speech)
}

/// What the model at `source` is for, as its bundle would say it. No weight is read.
///
/// # Errors
/// As [`convert`].
pub fn task_of(source: &Path) -> Result<&'static str> {
    let model = crate::open(source)?;
    let def = cactus_models::build(&crate::speech::complete(&model, None)).map_err(|e| from_models(e, source))?;
    Ok(def.task)
}

/// Whether the model at `source` makes a vector of each token, which is one kind of the task `text_embedding`. No weight is read.
///
/// # Errors
/// As [`convert`].
pub fn makes_token_vectors(source: &Path) -> Result<bool> {
    let model = crate::open(source)?;
    let def = cactus_models::build(&crate::speech::complete(&model, None)).map_err(|e| from_models(e, source))?;
    Ok(def.vectors.is_some_and(|vectors| vectors.pooling.is_empty()))
}

/// Whether text can be run through the model at `source`, so that it can be calibrated and measured with one: it continues texts, or
/// makes vectors or scores of them. No weight is read.
///
/// # Errors
/// As [`convert`].
pub fn takes_text(source: &Path) -> Result<bool> {
    let model = crate::open(source)?;
    let def = cactus_models::build(&crate::speech::complete(&model, None)).map_err(|e| from_models(e, source))?;
    let continues = def.components.len() == 1 && def.components.iter().any(|c| c.continues);
    Ok(continues || def.sees.is_some() || def.vectors.is_some() || def.scores.is_some())
}

/// As [`convert`], feeding the errors of codebook weights back where `calibration` knows their inputs.
///
/// # Errors
/// As [`convert`], and what `calibration` failed with.
pub fn convert_calibrated(
    source: &Path,
    destination: &Path,
    options: &ConvertOptions,
    calibration: Option<&mut dyn Calibration>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome> {
    let start = Instant::now();
    let mut model = crate::source::open_for(source, options.sample_rate_hz)?;
    if let Some(path) = &options.pictures {
        model = crate::gguf::with_pictures(model, path)?;
    }
    if let Some(folder) = &options.adapter {
        model.tensors = crate::lora::merge(model.tensors, folder)?;
    }
    let mut config = crate::speech::complete(&model, options.attention_context);
    if options.rerank {
        crate::embedding::as_reranker(&mut config, &model).map_err(|e| e.in_file(source))?;
    }
    let mut def = cactus_models::build(&config).map_err(|e| from_models(e, source))?;
    let vision = crate::pictures::record(&def, &model.front_end).map_err(|e| e.in_file(source))?;
    let sees = def
        .pictures
        .map(|p| p.component)
        .or(def.sees.as_ref().map(|s| s.component));
    let blind = match (sees, &vision) {
        (Some(component), None) => {
            (def.pictures, def.sees) = (None, None);
            def.components.retain(|one| one.name != component);
            Some(senses::BLIND.to_owned())
        }
        _ => None,
    };
    let of_texts = options.rerank || model.sentence.as_ref().is_some_and(|folder| !folder.modules.is_empty());
    if of_texts && def.vectors.is_none() && def.scores.is_none() {
        let what = format!(
            "models of the family `{}` make no vectors or scores of texts here",
            def.family
        );
        return Err(Error::unsupported(what).in_file(source));
    }
    if options.attention_context.is_some() && def.positions.as_ref().is_none_or(|p| p.local.is_none()) {
        let what = format!(
            "local attention is for Parakeet; leave the attention context out (found a `{}`)",
            def.family
        );
        return Err(Error::unsupported(what).in_file(source));
    }
    if let Some(rate_hz) = options.sample_rate_hz {
        let found = def.activity.as_ref().map(|a| a.sample_rate_hz);
        if found != Some(rate_hz) {
            let found = found.map_or("no rate of choice".to_owned(), |found| {
                format!("{found} samples a second")
            });
            let what = format!("expected a model for {rate_hz} samples a second, found one for {found}");
            return Err(Error::unsupported(what).in_file(source));
        }
    }
    let mut parts: Vec<Part<'_>> = def
        .components
        .iter()
        .map(|component| Part::new(component, options))
        .collect::<Result<_>>()?;
    let exact = Policy::uniform(Bits::ThirtyTwo);
    let policy = if def.exact { &exact } else { &options.policy };
    let mut storage = BTreeMap::new();
    let mut weights: Vec<Planned<'_>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let hearing = crate::hearing::record(&def, &model.hearing).map_err(|e| e.in_file(source))?;
    let unshown =
        senses::fit(model.tokenizer.as_ref(), vision.as_ref(), hearing.as_ref()).map_err(|e| e.in_file(source))?;
    let sensing = senses::components(&def);
    let senses_in = |part: &Part<'_>| sensing.contains(&&*part.def.name);
    let choose = |part: &Part<'_>| match senses_in(part) {
        true => cactus_passes::choose_storage(&part.optimized, &senses::precision(policy)),
        false => cactus_passes::choose_storage(&part.optimized, policy),
    };
    for part in parts
        .iter_mut()
        .filter(|part| senses::may_attend_on_integers(&def, &part.def.name))
    {
        let chosen = choose(part);
        attend_on_integers(&part.def.name, &mut part.optimized, &chosen)?;
    }
    for part in &parts {
        let chosen = choose(part);
        for (v, expr) in part.optimized.weights() {
            let value = part.optimized.value(v);
            let dims = value.ty.known_shape().unwrap_or_default();
            // What two components read alike is stored once.
            if let Some(&first) = known.get(&value.name) {
                if (weights[first].1, &weights[first].2) != (expr, &dims) {
                    let what = "two components read different weights by this name; this is a bug, please report it";
                    return Err(Error::new(ErrorKind::Unsupported, what).of_tensor(&value.name));
                }
                continue;
            }
            known.insert(value.name.clone(), weights.len());
            let packing = packing(&value.name, chosen.get(&value.name).map(|c| c.storage))?;
            weights.push((value.name.clone(), expr, dims, packing));
        }
        storage.extend(chosen);
    }
    let (speech, unclear) = crate::speech::record(&def, &model).map_err(|e| e.in_file(source))?;
    let (embedding, of_texts) = crate::embedding::record(&def, &model, options).map_err(|e| e.in_file(source))?;

    let mut writer = BundleWriter::create(destination, options.replace).map_err(from_bundle)?;
    let (hashes, errors) = std::thread::scope(|scope| {
        let files = model.tensors.files();
        let hashing = scope.spawn(move || hash_files(&files, &options.stop));
        let written = write_weights(&mut writer, &*model.tensors, &weights, options, calibration, progress);
        let hashes = hashing
            .join()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "hashing the source stopped unexpectedly")));
        written.and_then(|errors| Ok((hashes?, errors)))
    })?;

    for Part { def, optimized, .. } in &parts {
        let names = optimized.weights().into_iter().map(|(v, _)| &optimized.value(v).name);
        let bindings: BTreeMap<String, String> = names.map(|n| (n.clone(), n.clone())).collect();
        writer
            .add_component(&def.name, &def.graph, optimized, &bindings)
            .map_err(from_bundle)?;
    }
    add_text_files(&mut writer, &model)?;
    if let Some(speech) = &speech {
        let bytes = serde_json::to_vec_pretty(speech).unwrap_or_default();
        writer.add_file(SPEECH_PATH, &bytes).map_err(from_bundle)?;
    }
    if let Some(embedding) = &embedding {
        let bytes = serde_json::to_vec_pretty(embedding).unwrap_or_default();
        writer.add_file(EMBEDDING_PATH, &bytes).map_err(from_bundle)?;
    }
    senses::add_records(&mut writer, vision.as_ref(), hearing.as_ref())?;
    let mut notes = notes(&unused_tensors(&def, &*model.tensors));
    notes.extend(of_texts);
    notes.extend(blind);
    notes.extend(unshown);
    notes.extend(senses::left_out(&def));
    notes.extend(
        sensing
            .iter()
            .filter_map(|component| senses::keeps_more(component, policy)),
    );
    notes.extend(unclear);
    let chosen: Vec<_> = storage.iter().map(|(name, c)| (name.clone(), c.storage)).collect();
    notes.extend(policy.idle_rules(&chosen));
    if *policy != options.policy {
        let what = "the weights keep 32 bits: the model is small, and thresholds are set by its probabilities";
        notes.push(what.to_owned());
    }
    let source_types = crate::requantized::note(&*model.tensors, &weights);
    let weights_bytes = writer.weights_bytes();
    let explanation: String = parts.iter().map(|p| p.report.to_string()).collect();
    let name = options.name.clone().unwrap_or_else(|| stem(source));
    let about = About {
        name,
        family: def.family.to_owned(),
        task: def.task.to_owned(),
        context_tokens: def.context_tokens,
        vocab_size: def.vocab_size,
        tokens: token_ids(&def, &model.generation_config, model.tokenizer.as_ref()),
    };
    let path = writer
        .finish(
            about,
            &provenance(
                source,
                options,
                hashes,
                &model,
                &[&notes[..], source_types.as_slice()].concat(),
                &explanation,
            ),
        )
        .map_err(from_bundle)?;
    Ok(Outcome {
        path,
        tensors: weights.len(),
        weights_bytes,
        seconds: start.elapsed().as_secs_f64(),
        notes,
        source_types,
        errors,
        explanation,
    })
}

/// A component after the passes.
struct Part<'a> {
    def: &'a ComponentDef,
    optimized: Graph,
    report: Report,
}

impl<'a> Part<'a> {
    fn new(def: &'a ComponentDef, options: &ConvertOptions) -> Result<Self> {
        let passes = Options {
            states: match def.continues {
                true => options.passes.states,
                false => StatePolicy::Never,
            },
            ..options.passes.clone()
        };
        let (optimized, report) = cactus_passes::optimize(&def.graph, &passes).map_err(|e| {
            let what = format!("the graph of the component `{}` cannot be made: {e}", def.name);
            Error::new(ErrorKind::Unsupported, what)
        })?;
        Ok(Part { def, optimized, report })
    }
}

/// Lets the attention of `component` compute on integers where what it reads is stored as such.
pub(crate) fn attend_on_integers(
    component: &str,
    graph: &mut Graph,
    chosen: &BTreeMap<String, StorageChoice>,
) -> Result<()> {
    let done = cactus_passes::attend_on_integers(graph, chosen);
    done.map(drop).map_err(|e| {
        let what = format!("the graph of the component `{component}` cannot be made: {e}");
        Error::new(ErrorKind::Unsupported, what)
    })
}

/// The packing of the weight `name` by what the passes chose; nothing chosen is plain rows.
pub(crate) fn packing(name: &str, chosen: Option<Storage>) -> Result<Packing> {
    let packing = match chosen {
        None | Some(Storage::Plain) => Some(Packing::RowMajor),
        Some(Storage::Codebook(bits)) => Packing::of_codebook_bits(bits),
        Some(Storage::Int8) => Some(Packing::Int8G32),
        Some(Storage::Int8Rows) => Some(Packing::Int8N16),
        Some(Storage::F16) => Some(Packing::F16N16),
        Some(Storage::F32) => Some(Packing::F32N16),
        Some(_) => None,
    };
    packing.ok_or_else(|| {
        let what = format!("no packing stores {chosen:?}; codebooks have indices of 1 to 6 bits");
        Error::new(ErrorKind::Unsupported, what).of_tensor(name)
    })
}

/// A weight to be made: name, expression, shape, packing.
pub(crate) type Planned<'a> = (String, &'a WeightExpr, Vec<usize>, Packing);

pub(crate) fn write_weights(
    writer: &mut BundleWriter,
    source: &dyn TensorSource,
    weights: &[Planned<'_>],
    options: &ConvertOptions,
    mut calibration: Option<&mut dyn Calibration>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<TensorError>> {
    let threads = options.threads();
    if let Some(calibration) = calibration.as_deref_mut() {
        let coded = weights
            .iter()
            .filter(|(_, _, dims, p)| dims.len() == 2 && p.codebook_bits().is_some());
        calibration.expect(coded.map(|(name, ..)| name.clone()).collect());
    }
    let elems = |dims: &[usize]| dims.iter().map(|&d| d as u64).product::<u64>();
    let total: u64 = weights.iter().map(|(_, _, dims, _)| elems(dims)).sum();
    let mut errors = Vec::new();
    let mut done = 0;
    progress(done, total);
    // Encoding with feedback uses every core for one tensor; everything else makes one tensor on each core.
    let mut rest = weights;
    while let Some((name, expr, dims, packing)) = rest.first() {
        options.stop.check()?;
        let known = match (calibration.as_deref_mut(), packing.codebook_bits(), &dims[..]) {
            (Some(c), Some(_), &[_, k]) => c.prepare(name, k)?,
            _ => false,
        };
        let (batch, after) = match calibration {
            Some(_) => rest.split_at(1),
            None => rest.split_at(threads.min(rest.len())),
        };
        rest = after;
        let made: Vec<Result<(Stored, Option<f64>)>> = match calibration.as_deref_mut() {
            Some(c) => {
                let mut alone = Encoder {
                    feedback: known.then_some(c),
                    threads,
                    widen: options.widen,
                };
                vec![alone.make(source, name, expr, dims, *packing)]
            }
            None => std::thread::scope(|scope| {
                let handles: Vec<_> = batch
                    .iter()
                    .map(|(name, expr, dims, packing)| {
                        // A large tensor takes longer than all that is under way beside it.
                        let large = dims.iter().product::<usize>() >= LARGE;
                        scope.spawn(move || {
                            let mut alone = Encoder {
                                feedback: None,
                                threads: if large { threads } else { 1 },
                                widen: options.widen,
                            };
                            alone.make(source, name, expr, dims, *packing)
                        })
                    })
                    .collect();
                handles
                    .into_iter()
                    .map(|h| {
                        h.join()
                            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Malformed, "packing stopped unexpectedly")))
                    })
                    .collect()
            }),
        };
        for ((name, _, dims, _), made) in batch.iter().zip(made) {
            let (stored, error) = made?;
            let packing = stored.packing;
            writer
                .add_weight(name, dims, packing, &[], stored.data())
                .map_err(from_bundle)?;
            errors.extend(error.map(|relative| TensorError {
                name: name.clone(),
                packing: packing.to_string(),
                relative,
                calibrated: known,
            }));
            done += elems(dims);
            progress(done, total);
        }
    }
    Ok(errors)
}

pub(crate) fn hash_files(files: &[PathBuf], stop: &Stop) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    let mut buffer = vec![0u8; 1 << 20];
    for path in files {
        let mut file = File::open(path).map_err(|e| Error::reading(path, e))?;
        let mut hash = Sha256::new();
        loop {
            stop.check()?;
            match file.read(&mut buffer).map_err(|e| Error::reading(path, e))? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        out.insert(file_name(path), hex);
    }
    Ok(out)
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn stem(path: &Path) -> String {
    let name = file_name(path);
    name.strip_suffix(".gguf").map_or(name.clone(), str::to_owned)
}

fn add_text_files(writer: &mut BundleWriter, model: &SourceModel) -> Result<()> {
    let mut add = |path: &str, bytes: &[u8]| writer.add_file(path, bytes).map_err(from_bundle);
    let pretty = |v: &Value| serde_json::to_vec_pretty(v).unwrap_or_default();
    add("config.json", &pretty(&model.config))?;
    add("generation_config.json", &pretty(&model.generation_config))?;
    add_tokenizer(writer, model.tokenizer.as_ref())
}

/// Adds the texts of a folder.
pub(crate) fn add_texts(writer: &mut BundleWriter, texts: &hf::Texts) -> Result<()> {
    for (path, object) in [
        ("config.json", &texts.config),
        ("generation_config.json", &texts.generation_config),
    ] {
        let bytes = serde_json::to_vec_pretty(object).unwrap_or_default();
        writer.add_file(path, &bytes).map_err(from_bundle)?;
    }
    add_tokenizer(writer, texts.tokenizer.as_ref())
}

fn add_tokenizer(writer: &mut BundleWriter, tokenizer: Option<&TokenizerFiles>) -> Result<()> {
    let mut add = |path: &str, bytes: &[u8]| writer.add_file(path, bytes).map_err(from_bundle);
    if let Some(t) = tokenizer {
        let tokenizer = cactus_text::Tokenizer::from_bytes(&t.tokenizer_json)
            .map_err(|e| Error::new(ErrorKind::Malformed, "the tokenizer cannot be read").caused_by(e))?;
        match tokenizer.tables() {
            // Of both, the tables alone are read; the other is for other tools, and for tables to come.
            Some(tables) => {
                add("tokenizer.tables", tables.bytes())?;
                add("tokenizer.json.gz", &gzip(&t.tokenizer_json)?)?;
            }
            None => add("tokenizer.json", &t.tokenizer_json)?,
        }
        add(
            "tokenizer_config.json",
            &serde_json::to_vec_pretty(&t.tokenizer_config).unwrap_or_default(),
        )?;
        if let Some(template) = &t.chat_template {
            add("chat_template.jinja", template.as_bytes())?;
        }
    }
    Ok(())
}

/// `bytes` as a gzip file without name and date, so that the same bytes become the same file.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let done = packed.write_all(bytes).and_then(|()| packed.finish());
    done.map_err(|e| Error::new(ErrorKind::Io, "the tokenizer cannot be stored").caused_by(e))
}

/// The tokens with a role.
pub(crate) fn token_ids(def: &ModelDef, generation_config: &Value, tokenizer: Option<&TokenizerFiles>) -> TokenIds {
    let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let mut eos = def.eos_token_ids.clone();
    match generation_config.get("eos_token_id") {
        Some(Value::Array(ids)) => eos.extend(ids.iter().filter_map(id)),
        Some(v) => eos.extend(id(v)),
        None => {}
    }
    eos.retain(|&t| (t as usize) < def.vocab_size);
    eos.sort_unstable();
    eos.dedup();
    TokenIds {
        bos: def.bos_token_id,
        eos,
        pad: def.pad_token_id,
        add_bos: hf::add_bos(tokenizer),
    }
}

/// Tensors of the source that the model should have read and did not.
fn unused_tensors<'a>(def: &ModelDef, source: &'a dyn TensorSource) -> Vec<&'a str> {
    def.unread(source.names())
}

fn notes(unused: &[&str]) -> Vec<String> {
    match unused {
        [] => Vec::new(),
        [first, ..] => vec![format!(
            "{} tensors of the source are not used by this model family, for example `{first}`",
            unused.len()
        )],
    }
}

fn provenance(
    source: &Path,
    options: &ConvertOptions,
    hashes: BTreeMap<String, String>,
    model: &SourceModel,
    notes: &[String],
    report: &str,
) -> Provenance {
    let mut all = vec![model.tensors.describe()];
    all.extend(notes.iter().cloned());
    let disabled: Vec<&str> = options.passes.disabled.iter().map(String::as_str).collect();
    let mut chosen = BTreeMap::from([("bits".to_owned(), options.policy.to_string())]);
    if !disabled.is_empty() {
        chosen.insert("disabled_passes".to_owned(), disabled.join(","));
    }
    chosen.insert("passes".to_owned(), report.trim_end().to_owned());
    Provenance {
        source: file_name(source),
        source_format: model.format.to_owned(),
        source_sha256: hashes,
        tool: format!("cactus {}", env!("CARGO_PKG_VERSION")),
        options: chosen,
        license: options.license.clone(),
        notes: all,
    }
}

pub(crate) fn from_bundle(e: cactus_bundle::Error) -> Error {
    Error::new(ErrorKind::Io, "the bundle cannot be written").caused_by(e)
}

pub(crate) fn from_models(e: cactus_models::Error, source: &Path) -> Error {
    let kind = match e.kind() {
        cactus_models::ErrorKind::Architecture | cactus_models::ErrorKind::Unsupported => ErrorKind::Unsupported,
        cactus_models::ErrorKind::Missing => ErrorKind::Missing,
        _ => ErrorKind::Malformed,
    };
    Error::new(kind, e.to_string()).in_file(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of every family that sees: its layers, and what stands before and behind them.
    #[test]
    fn layers_of_what_sees_have_eight_bits() {
        let seeing = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/seeing");
        let mut families = 0;
        for case in std::fs::read_dir(seeing).unwrap() {
            let config = std::fs::read(case.unwrap().path().join("config.json")).unwrap();
            let mut config: Value = serde_json::from_slice(&config).unwrap();
            // Wide enough for few bits, as blocks of timm are already.
            let vision = config["vision_config"].as_object_mut().unwrap();
            if !vision.contains_key("model_args") {
                vision.insert("hidden_size".to_owned(), 96.into());
                vision.insert("intermediate_size".to_owned(), 192.into());
            }
            let def = cactus_models::build(&config).unwrap();
            let sees = def.sees.as_ref().unwrap();
            let encoder = def.components.iter().find(|c| c.name == sees.component).unwrap();
            let graph = Part::new(encoder, &ConvertOptions::default()).unwrap().optimized;
            let layers = vision_layers(&config);
            let storage = cactus_passes::choose_storage(&graph, &senses::precision(&Policy::uniform(Bits::Four)));
            let mut of_few_bits = 0;
            for (name, choice) in storage
                .iter()
                .filter(|(_, choice)| choice.reason.starts_with("a linear"))
            {
                let in_layer = [".layers.", ".blocks."].iter().any(|part| name.contains(part));
                assert_eq!(
                    choice.storage == Storage::Int8,
                    in_layer,
                    "{}: {name}: {choice:?}",
                    def.family
                );
                of_few_bits += usize::from(in_layer);
            }
            // Four, or each projection for itself, where they have bounds of their own. Blocks of timm have as many as they like.
            let of_blocks = config["vision_config"].get("model_args").is_some() && of_few_bits > 4;
            assert!(
                of_blocks || [4, 7].map(|each| each * layers).contains(&of_few_bits),
                "{}: {storage:?}",
                def.family
            );
            families += 1;
        }
        assert!(families > 3);
    }

    fn vision_layers(config: &Value) -> usize {
        let vision = &config["vision_config"];
        let layers = ["num_hidden_layers", "depth"]
            .iter()
            .find_map(|key| vision[key].as_u64());
        // One without encoders has none.
        layers.unwrap_or(0) as usize
    }

    #[test]
    fn what_no_packing_stores_is_an_error() {
        for (chosen, expected) in [
            (None, Packing::RowMajor),
            (Some(Storage::Int8), Packing::Int8G32),
            (Some(Storage::Int8Rows), Packing::Int8N16),
            (Some(Storage::Codebook(5)), Packing::Tcq5G128),
        ] {
            assert_eq!(packing("w", chosen).unwrap(), expected);
        }
        let error = packing("w", Some(Storage::Codebook(7))).unwrap_err().to_string();
        assert!(error.contains("`w`") && error.contains("Codebook(7)"), "{error}");
    }
}
