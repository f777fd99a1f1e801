//! From an archive, or a capture of several, to a bundle.

use super::bound::{self, Folder};
use super::capture::{self, Part};
use super::constants;
use super::importer::{Imported, import_with};
use super::seeing::{self, Seeing};
use crate::convert::{self, ConvertOptions, Outcome};
use crate::{Calibration, Error, ErrorKind, Result, Stop, TensorSource, hf, senses};
use cactus_bundle::{About, BundleWriter, Provenance, TokenIds};
use cactus_ir::{Bindings, Constraint, Dim, Graph, MEDIA_INPUTS, PAST, SEQ, ValueId};
use cactus_passes::{Bits, Options, Policy, Report, StatePolicy, Storage};
use cactus_tensor::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a program is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// A causal language model where that can be proven, otherwise a function.
    #[default]
    Auto,
    /// Token ids to next-token logits, continued call by call.
    CausalLm,
    /// Inputs to outputs, one call at a time.
    Function,
}

impl Task {
    /// The name in a bundle's manifest.
    pub fn name(self) -> &'static str {
        match self {
            Task::Auto => "auto",
            Task::CausalLm => "causal_lm_logits",
            Task::Function => "function",
        }
    }
}

/// Choices of a transpilation.
#[derive(Clone, Debug, Default)]
pub struct TranspileOptions {
    /// What the program is for.
    pub task: Task,
    /// Bits of the matrices; those of the source where absent.
    pub bits: Option<u32>,
    /// Bits of embedding tables; as in [`Policy::embeddings`] where absent.
    pub embeddings: Option<Bits>,
    /// Bits by pattern of a stored weight's name, which begins with that of the component and a dot where there are several.
    pub rules: Vec<(String, Bits)>,
    /// Bits of stored weights by name, which hold above the rules.
    pub exact: BTreeMap<String, Bits>,
    /// Whether a bundle already at the destination is replaced.
    pub replace: bool,
    /// Name of the model; the archive's where absent.
    pub name: Option<String>,
    /// As [`ConvertOptions::widen`].
    pub widen: bool,
    /// Choices of the passes.
    pub passes: Options,
    /// Folder with the tokenizer and chat template of the model.
    pub tokenizer: Option<PathBuf>,
    /// Folder of `cactus convert` whose weights take the place of the program's, by name; of one that has a program of its
    /// own, only the number of bits is taken.
    pub weights: Option<PathBuf>,
}

impl TranspileOptions {
    /// Checks that the bundle may be written to `destination`: that nothing is lost there, and that the weights that are to
    /// be read do not lie there.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check_destination(&self, destination: &Path) -> Result<()> {
        cactus_bundle::check_destination(destination, self.replace).map_err(convert::from_bundle)?;
        let full = |p: &Path| std::fs::canonicalize(p).ok();
        match &self.weights {
            Some(path) if full(path).is_some() && full(path) == full(destination) => {
                let what = "the weights are in the folder that the bundle would be written to; name another folder for the bundle";
                Err(Error::unsupported(what).in_file(path))
            }
            _ => Ok(()),
        }
    }

    /// Whether any matrix is asked to have fewer than 8 bits.
    #[must_use]
    pub fn fewer_than_eight_bits(&self) -> bool {
        let rules = self.rules.iter().map(|(_, bits)| bits.number());
        let embeddings = self.embeddings.map(Bits::number);
        self.bits
            .into_iter()
            .chain(embeddings)
            .chain(rules)
            .any(|bits| bits < 8)
    }
}

/// Longest sequence of a causal language model that states none.
const DEFAULT_CONTEXT_TOKENS: usize = 32 << 10;
/// Lengths that a program's conditions are tried with.
const MAX_CONTEXT_TOKENS: usize = 1 << 20;

/// A component that is ready to be written.
struct Ready {
    part: Part,
    imported: Imported,
    optimized: Graph,
    task: Task,
    report: Report,
}

/// Makes a bundle at `destination` of the archive at `source`, or of the components that a `capture.json` names.
/// `progress` gets the elements done and in all, for each component.
///
/// # Errors
/// What is damaged or not supported, naming the node and, where the archive has it, the line of the source. The
/// destination is then as it was.
pub fn transpile(
    source: &Path,
    destination: &Path,
    options: &TranspileOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome> {
    transpile_calibrated(source, destination, options, None, progress)
}

/// As [`transpile`], feeding the errors of codebook weights back where `calibration` knows their inputs.
///
/// # Errors
/// As [`transpile`], and what `calibration` failed with.
pub fn transpile_calibrated(
    source: &Path,
    destination: &Path,
    options: &TranspileOptions,
    mut calibration: Option<&mut dyn Calibration>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome> {
    let start = Instant::now();
    let folder = folder(destination, options)?;
    let mut capture = capture::read(source)?;
    let texts = options.tokenizer.as_deref().map(hf::open_texts).transpose()?;
    let (seeing, blind) = seeing::read(&mut capture.parts, texts.as_ref(), options.tokenizer.as_deref())?;
    let mut ready: Vec<Ready> = capture
        .parts
        .into_iter()
        .map(|part| prepare(part, options, folder.as_ref(), seeing.as_ref()))
        .collect::<Result<_>>()?;
    let bits = match options.bits.or(folder.as_ref().and_then(|f| f.bits)) {
        Some(bits) => bits,
        None => ready
            .iter()
            .map(|r| r.imported.tensors.float_bits())
            .max()
            .unwrap_or(32),
    };
    let bits = Bits::from_number(bits).ok_or_else(|| {
        let what = format!("{bits} bits are not supported; supported are 1, 2, 3, 4, 5, 6, 8, 16 and 32");
        Error::new(ErrorKind::Unsupported, what)
    })?;
    let conversion = ConvertOptions {
        policy: Policy {
            embeddings: options.embeddings,
            rules: options.rules.clone(),
            exact: options.exact.clone(),
            ..Policy::uniform(bits)
        },
        widen: options.widen,
        ..ConvertOptions::default()
    };
    let mut writer = BundleWriter::create(destination, options.replace).map_err(convert::from_bundle)?;
    let (mut errors, mut hashes, mut stored) = (Vec::new(), BTreeMap::new(), Vec::new());
    let alone = ready.len() == 1;
    let mut more = Vec::new();
    for r in &mut ready {
        hashes.extend(convert::hash_files(&r.imported.tensors.files(), &Stop::default())?);
        let known = reborrowed(&mut calibration);
        let (written, lost) = write(&mut writer, r, alone, &conversion, known, progress)?;
        let sense = r.part.name.as_deref().filter(|name| seeing::is_sense(name));
        more.extend(sense.and_then(|name| senses::keeps_more(name, &conversion.policy)));
        stored.extend(written);
        errors.extend(lost);
    }
    let idle = conversion.policy.idle_rules(&stored);
    let graphs: Vec<&Graph> = ready.iter().map(|r| &r.optimized).collect();
    let asked = options.bits.is_some_and(|bits| bits <= 8);
    let whole = asked
        .then(|| cactus_passes::unquantized(&graphs, &conversion.policy))
        .flatten();
    let decoder = ready.iter().find(|r| r.task == Task::CausalLm);
    let vocab_size = match decoder.map(|r| (&r.optimized, r.optimized.outputs())) {
        Some((g, [(_, logits)])) => g.ty(*logits).last_known().unwrap_or(0),
        _ => 0,
    };
    if let Some(texts) = &texts {
        convert::add_texts(&mut writer, texts)?;
    }
    if let Some(seeing) = &seeing {
        seeing.add_records(&mut writer)?;
    }
    let task = match (alone, decoder) {
        (true, Some(_)) => Task::CausalLm.name().to_owned(),
        _ => capture.task.unwrap_or_else(|| Task::Function.name().to_owned()),
    };
    let weights_bytes = writer.weights_bytes();
    let about = About {
        name: options.name.clone().unwrap_or(capture.name),
        family: "torch_export".to_owned(),
        task,
        context_tokens: ready
            .iter()
            .map(|r| context_tokens(&r.optimized))
            .min()
            .unwrap_or(DEFAULT_CONTEXT_TOKENS),
        vocab_size,
        tokens: match (&seeing, &texts) {
            (Some(seeing), Some(texts)) => seeing.token_ids(texts),
            (None, Some(texts)) => texts.token_ids(vocab_size),
            (_, None) => TokenIds::default(),
        },
    };
    let explanation: String = ready.iter().map(|r| r.report.to_string()).collect();
    let mut chosen = BTreeMap::from([("bits".to_owned(), conversion.policy.to_string())]);
    chosen.insert("passes".to_owned(), explanation.trim_end().to_owned());
    let mut notes: Vec<String> = ready.iter().map(|r| r.imported.tensors.describe()).collect();
    notes.extend(
        ready
            .first()
            .map(|r| format!("written by torch {}", r.imported.torch_version)),
    );
    let unread = match &folder {
        Some(folder) if folder.by_name().is_some() => {
            notes.push("weights of a folder of `cactus convert`".to_owned());
            folder.unread(ready.iter().filter_map(|r| r.imported.tensors.bound()))
        }
        _ => None,
    };
    let provenance = Provenance {
        source: convert::file_name(source),
        source_format: "torch_export".to_owned(),
        source_sha256: hashes,
        tool: format!("cactus {}", env!("CARGO_PKG_VERSION")),
        options: chosen,
        license: None,
        notes,
    };
    let path = writer.finish(about, &provenance).map_err(convert::from_bundle)?;
    Ok(Outcome {
        path,
        tensors: stored.len(),
        weights_bytes,
        seconds: start.elapsed().as_secs_f64(),
        notes: idle
            .into_iter()
            .chain(unread)
            .chain(whole)
            .chain(blind)
            .chain(more)
            .collect(),
        source_types: None,
        errors,
        explanation,
    })
}

/// The folder with weights, which is never written to, and where the bundle may go, before anything is computed.
fn folder(destination: &Path, options: &TranspileOptions) -> Result<Option<Folder>> {
    options.check_destination(destination)?;
    let Some(path) = &options.weights else {
        return Ok(None);
    };
    let folder = Folder::open(path)?;
    if folder.by_name().is_some() && options.bits.is_some() {
        let what = "the weights of the folder have a number of bits already; leave `bits` out, or convert the folder again with other bits";
        return Err(Error::unsupported(what).in_file(path));
    }
    Ok(Some(folder))
}

/// Reads and optimizes a component.
fn prepare(part: Part, options: &TranspileOptions, folder: Option<&Folder>, seeing: Option<&Seeing>) -> Result<Ready> {
    let mut imported = import_with(&part.path, folder)?;
    let count = imported.graph.outputs().len();
    if !part.outputs.is_empty() {
        if part.outputs.len() != count {
            let what = format!("{count} outputs have {} names", part.outputs.len());
            return Err(Error::malformed(what).in_file(&part.path));
        }
        imported.graph.rename_outputs(&part.outputs);
    }
    if let (Some(seeing), Some(name)) = (seeing, &part.name) {
        seeing.check(name, &imported.graph).map_err(|e| e.in_file(&part.path))?;
    }
    let options = TranspileOptions {
        task: match (&part.name, options.task) {
            (None, task) | (_, task @ Task::Function) => task,
            // What takes rows of pictures and sounds continues a text, which has them.
            (Some(name), _) if name == convert::DECODER && takes_media(&imported.graph) => Task::CausalLm,
            // Of several components, one call after another makes a result: each is a function.
            (Some(_), _) => Task::Function,
        },
        ..options.clone()
    };
    let (task, optimized, report) = optimize(&mut imported, &options).map_err(|e| e.in_file(&part.path))?;
    Ok(Ready {
        part,
        imported,
        optimized,
        task,
        report,
    })
}

/// The same for a while.
fn reborrowed<'a>(calibration: &'a mut Option<&mut dyn Calibration>) -> Option<&'a mut dyn Calibration> {
    match calibration {
        Some(c) => Some(&mut **c),
        None => None,
    }
}

/// The stored weights of a component, and what each matrix lost.
type Written = (Vec<(String, Storage)>, Vec<convert::TensorError>);

/// Writes a component and its weights, which have its name before theirs unless it is `alone`.
fn write(
    writer: &mut BundleWriter,
    ready: &mut Ready,
    alone: bool,
    conversion: &ConvertOptions,
    calibration: Option<&mut dyn Calibration>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Written> {
    let component = match (&ready.part.name, ready.task) {
        (Some(name), _) => name,
        (None, Task::CausalLm) => convert::DECODER,
        (None, _) => "model",
    };
    let senses = seeing::is_sense(component);
    let mut policy = match senses {
        true => senses::precision(&conversion.policy),
        false => conversion.policy.clone(),
    };
    if !alone {
        policy.prefix = format!("{component}.");
    }
    let stored = |name: &str| format!("{}{name}", policy.prefix);
    let mut by_taps = BTreeSet::new();
    // Weights of a folder are what they are.
    if ready.task == Task::Function && ready.imported.tensors.bound().is_none() {
        let failed = |e: cactus_passes::Error| {
            let what = format!("filters cannot be laid out: {e}");
            Error::new(ErrorKind::Unsupported, what)
        };
        by_taps = cactus_passes::lay_filters(&mut ready.optimized, &policy).map_err(failed)?;
    }
    let mut storage = cactus_passes::choose_storage(&ready.optimized, &policy);
    for (_, choice) in storage.iter_mut().filter(|(name, _)| by_taps.contains(*name)) {
        if choice.storage == Storage::Int8 {
            choice.storage = Storage::Int8Rows;
        }
    }
    convert::attend_on_integers(component, &mut ready.optimized, &storage)?;
    let optimized = &ready.optimized;
    let weights: Vec<convert::Planned<'_>> = optimized
        .weights()
        .into_iter()
        .map(|(v, expr)| {
            let value = optimized.value(v);
            let dims = value.ty.known_shape().unwrap_or_default();
            let packing = convert::packing(&value.name, storage.get(&value.name).map(|c| c.storage))?;
            Ok((stored(&value.name), expr, dims, packing))
        })
        .collect::<Result<_>>()?;
    let tensors = &ready.imported.tensors;
    let errors = bound::write(writer, tensors, &weights, conversion, calibration, progress)?;
    let bindings: BTreeMap<String, String> = optimized
        .weights()
        .into_iter()
        .map(|(v, _)| (optimized.value(v).name.clone(), stored(&optimized.value(v).name)))
        .collect();
    writer
        .add_component(component, &ready.imported.graph, optimized, &bindings)
        .map_err(convert::from_bundle)?;
    let chosen = storage.iter().map(|(name, choice)| (stored(name), choice.storage));
    Ok((chosen.collect(), errors))
}

/// The task, the graph after the passes, and what they did.
///
/// # Errors
/// Where the graph is not what the task needs.
pub fn optimize(imported: &mut Imported, options: &TranspileOptions) -> Result<(Task, Graph, Report)> {
    let mut graph = imported.graph.clone();
    constants::compute(&mut graph, &mut imported.tensors)?;
    let lm = looks_like_language_model(&graph);
    if options.task == Task::CausalLm && !lm {
        let what = "a causal language model has token ids [1, seq] of a length that varies (and inputs of other sizes), and one output, logits \
                    [1, seq, vocab]; export it with dynamic_shapes={'input_ids': {1: Dim('seq', min=2, max=…)}}";
        return Err(Error::unsupported(what));
    }
    let mut passes = options.passes.clone();
    passes.states = match options.task {
        Task::CausalLm => StatePolicy::Required,
        // Where an encoder's results are read too, a function is what a chain of components runs.
        Task::Auto if lm && alone(&graph) => StatePolicy::IfPossible,
        _ => StatePolicy::Never,
    };
    let failed = |e: cactus_passes::Error| {
        let what = format!("the graph cannot be made: {e}");
        Error::new(ErrorKind::Unsupported, what)
    };
    let (mut optimized, report) = cactus_passes::optimize(&graph, &passes).map_err(failed)?;
    constants::compute(&mut optimized, &mut imported.tensors)?;
    constants::store_norms(&mut optimized, &mut imported.tensors)?;
    let optimized = optimized.compacted();
    optimized.verify().map_err(|e| Error::unsupported(e.to_string()))?;
    let task = match optimized.states().is_empty() {
        true => Task::Function,
        false => Task::CausalLm,
    };
    let one = Bindings::from([(PAST.to_owned(), 0), (SEQ.to_owned(), 1)]);
    if task == Task::CausalLm
        && let Ok(Some(broken)) = optimized.broken_constraint(&one)
        && alone(&optimized)
    {
        let what = format!("a sequence cannot be continued token by token: {broken}");
        return Err(Error::unsupported(what));
    }
    Ok((task, optimized, report))
}

fn is_media(g: &Graph, v: ValueId) -> bool {
    MEDIA_INPUTS.contains(&g.value(v).name.as_str())
}

/// Whether rows may stand among the token ids.
fn takes_media(g: &Graph) -> bool {
    g.inputs().iter().any(|&v| is_media(g, v))
}

/// Whether there are no inputs beside the token ids and the rows among them.
fn alone(g: &Graph) -> bool {
    g.inputs().iter().filter(|&&v| !is_media(g, v)).count() == 1
}

fn looks_like_language_model(g: &Graph) -> bool {
    let seq = Dim::symbol(SEQ);
    let counts = |v: &&ValueId| g.ty(**v).shape.contains(&seq) && !is_media(g, **v);
    let ids: Vec<&ValueId> = g.inputs().iter().filter(counts).collect();
    let ([ids], [(_, logits)]) = (&ids[..], g.outputs()) else {
        return false;
    };
    let (ids, logits) = (g.ty(**ids), g.ty(*logits));
    ids.dtype == DType::I64
        && ids.shape.len() == 2
        && ids.shape[1] == seq
        && logits.shape.len() == 3
        && logits.shape[1] == seq
        && logits.last_known().is_some()
}

/// The most positions that the constraints allow, where they hold for every number of positions up to it.
fn context_tokens(g: &Graph) -> usize {
    let of_positions = |c: &&Constraint| c.dim.symbols().all(|s| s == PAST || s == SEQ);
    let all: Vec<&Constraint> = g.constraints().iter().filter(of_positions).collect();
    let holds = |n: usize| {
        let bindings = Bindings::from([(PAST.to_owned(), 0), (SEQ.to_owned(), n)]);
        all.iter().all(|c| c.holds(&bindings).unwrap_or(false))
    };
    // A function states the least length, too.
    let least = (1..=DEFAULT_CONTEXT_TOKENS).find(|&n| holds(n)).unwrap_or(1);
    let limit = (least..=MAX_CONTEXT_TOKENS).take_while(|&n| holds(n)).last();
    match limit {
        Some(MAX_CONTEXT_TOKENS) if all.is_empty() => DEFAULT_CONTEXT_TOKENS,
        Some(n) => n,
        None => DEFAULT_CONTEXT_TOKENS,
    }
}
