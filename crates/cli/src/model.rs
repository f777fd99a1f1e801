//! From what the user wrote to a bundle on disk.

use crate::args::{EngineArgs, Kv, ModelArgs};
use crate::commands::policy;
use crate::hint::Advised;
use crate::output;
use crate::progress::{FetchProgress, StageBar, byte_bar};
use anyhow::Result;
use cactus_base::Cores;
use cactus_engine::{KvDType, LoadOptions, Model};
use cactus_hub::{Fetched, Format, Hub, HubOptions, Meant, ModelRef, Why, preferred};
use cactus_import::{ConvertOptions, WEIGHTS_TASK};
use cactus_passes::{Bits, Policy};
use cactus_quality::{Calibrate, Made, Progress, QUALITY_PATH, Request, Text, convert_measured};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A hub with the user's settings.
pub(crate) fn hub(token: Option<String>, offline: bool) -> Result<Hub> {
    let options = HubOptions {
        token: token.filter(|t| !t.is_empty()),
        offline,
        ..HubOptions::default()
    };
    Ok(Hub::new(options)?)
}

/// The model on this machine, fetched where it is not.
pub(crate) fn fetch(hub: &Hub, name: &str) -> Result<Fetched> {
    let reference = ModelRef::parse(name)?;
    Ok(hub.fetch(&reference, &mut FetchProgress::default())?)
}

/// The name to look for; `None` where none was given, nor the small one asked for.
pub(crate) fn named(model: Option<&str>, small: bool) -> Option<&str> {
    model.or(small.then_some(cactus_hub::SMALL_MODEL))
}

/// The name of the model that is meant where none is named, said on standard error with the reason. Where it is the better
/// one, which is not here, it is fetched; where that fails after all, it is the packaged one.
pub(crate) fn meant(hub: &Hub) -> Result<String> {
    let meant = hub.meant();
    note_meant(hub, &meant);
    if matches!(meant.why, Why::Reached)
        && let Err(e) = hub.fetch(&meant.model, &mut FetchProgress::default())
    {
        if e.kind() == cactus_hub::ErrorKind::Cancelled {
            return Err(e.into());
        }
        let meant = hub.meant_instead(e);
        note_meant(hub, &meant);
        return Ok(name_of(&meant.model));
    }
    Ok(name_of(&meant.model))
}

/// What a user may write to mean `model`.
pub(crate) fn name_of(model: &ModelRef) -> String {
    match model {
        ModelRef::HuggingFace(repo) if *repo == preferred().repo => preferred().id.to_owned(),
        ModelRef::HuggingFace(repo) => repo.to_string(),
        ModelRef::Catalog(entry) => entry.id.to_owned(),
        ModelRef::Local(path) => path.display().to_string(),
        _ => String::new(),
    }
}

fn note_meant(hub: &Hub, meant: &Meant) {
    let here = hub.find(&meant.model).is_ok_and(|found| found.is_some());
    let size = match here {
        true => String::new(),
        false => format!(" ({}, {})", output::bytes(meant.download_bytes), meant.license),
    };
    let title = meant.title;
    let (because, advice) = match &meant.why {
        Why::Cached => (", because it is in the cache".to_owned(), None),
        Why::Reached => (
            String::new(),
            Some("`--small` uses a smaller model, which answers less well"),
        ),
        Why::Forbidden(what) => (format!(", because {what}"), Some(BETTER)),
        Why::NotReached(e) => (format!(", because {}", in_short(e)), Some(BETTER)),
        Why::NotReachedLately => (
            ", because the Hugging Face hub could not be reached within the last hour".to_owned(),
            Some(BETTER),
        ),
        _ => (String::new(), None),
    };
    output::note(format!("no model was named; using {title}{size}{because}"));
    if let Some(advice) = advice {
        output::note(advice);
    }
}

/// Why the hub cannot be used, in a few words: what was asked of it is of no interest to who named no model.
fn in_short(error: &cactus_hub::Error) -> String {
    match error {
        cactus_hub::Error::Offline { reason, .. } => {
            let reason = reason.strip_prefix("io: ").unwrap_or(reason);
            format!("the Hugging Face hub cannot be reached ({reason})")
        }
        other => format!("the Hugging Face hub cannot be used: {other}"),
    }
}

/// What a user of the packaged model can do.
const BETTER: &str = "with a connection, `cactus run qwen2.5-1.5b-instruct` downloads a model that answers better";

/// A bundle for `args`: the one named, or one converted into the cache.
pub(crate) fn bundle(args: &ModelArgs) -> Result<PathBuf> {
    let hub = hub(args.source.token.clone(), args.source.offline)?;
    remove_abandoned(&hub);
    let model = match named(args.model.as_deref(), args.small) {
        Some(name) => name.to_owned(),
        None => meant(&hub)?,
    };
    let variant = variant(args.source.bits, args.source.no_calibrate);
    let local = ModelRef::parse(&model)?;
    // A bundle made from a cached source needs no source.
    if let Some(key) = local.key() {
        let path = hub.cache().bundle_dir(&key, &variant)?;
        if !args.reconvert && is_made(&path, args.source.bits) {
            return Ok(path);
        }
    }
    let fetched = fetch(&hub, &model)?;
    if fetched.format == Format::Bundle {
        return Ok(fetched.path);
    }
    let key = match &fetched.key {
        Some(key) => key.clone(),
        None => local_key(&fetched.path)?,
    };
    let path = hub.cache().bundle_dir(&key, &variant)?;
    let _held = hub.cache().lock(&key, &mut FetchProgress::default())?;
    if !args.reconvert && is_made(&path, args.source.bits) {
        return Ok(path);
    }
    let options = ConvertOptions {
        policy: Policy::uniform(args.source.bits),
        replace: true,
        name: fetched.record.as_ref().map(|r| r.id.clone()),
        license: fetched.record.as_ref().and_then(|r| r.license.clone()),
        ..ConvertOptions::default()
    };
    let few = args.source.bits < Bits::Eight;
    let request = Request {
        calibrate: match few && !args.source.no_calibrate {
            true => Calibrate::BuiltIn,
            false => Calibrate::No,
        },
        measure: few.then(Text::built_in_held_out),
        ..Request::default()
    };
    note_converting(&fetched.path, &policy::in_words(&options.policy, None));
    let made = convert(&fetched.path, &path, &options, &request);
    let bits = args.source.bits.number();
    let without = if args.source.no_calibrate {
        ", or leave out `--no-calibrate`"
    } else {
        ""
    };
    let advised = Advised {
        what: format!("`{model}` cannot be converted to {bits} bits"),
        below_floor: format!(
            "use more bits{without}; `cactus convert {model} FOLDER --bits {bits} --force` writes a bundle whatever it loses"
        ),
    };
    made.map_err(|e| advised.of(e))?;
    Ok(path)
}

/// Removes what conversions into the cache left that were killed.
pub(crate) fn remove_abandoned(hub: &Hub) {
    let bundles = hub.cache().root().join("bundles");
    for key in std::fs::read_dir(bundles).into_iter().flatten().flatten() {
        cactus_bundle::remove_abandoned(&key.path());
    }
}

/// Reads all of a bundle and compares it with its checksums. Every damaged place is shown.
pub(crate) fn verify(bundle: &cactus_engine::Bundle) -> Result<()> {
    let bar = byte_bar(bundle.verified_bytes(), "checking");
    let found = bundle.verify(threads(None), &|n| bar.inc(n));
    bar.finish_and_clear();
    if found.block_bytes.is_none() {
        output::note("this bundle has a checksum for each tensor, and none for parts of them");
    }
    let places = found.damage.len();
    for damage in found.damage.iter().take(SHOWN_PLACES) {
        output::warning(damage);
    }
    if places > SHOWN_PLACES {
        output::warning(format!("and {} places more", places - SHOWN_PLACES));
    }
    match found.whole() {
        Ok(()) => output::note(format!(
            "every checksum matches ({})",
            output::bytes(bundle.verified_bytes())
        )),
        Err(first) => {
            let s = if places == 1 { "" } else { "s" };
            return Err(anyhow::Error::new(first).context(format!("the bundle is damaged in {places} place{s}")));
        }
    }
    Ok(())
}

/// Places of damage that are shown one by one.
const SHOWN_PLACES: usize = 20;

/// Whether the cache has a bundle at `path` that can be used: one of few bits says what it lost.
fn is_made(path: &Path, bits: Bits) -> bool {
    cactus_engine::Bundle::is_bundle(path) && (bits >= Bits::Eight || path.join(QUALITY_PATH).is_file())
}

fn variant(bits: Bits, plain: bool) -> String {
    match bits {
        Bits::Eight => "int8".to_owned(),
        Bits::Sixteen => "f16".to_owned(),
        Bits::ThirtyTwo => "f32".to_owned(),
        few if plain => format!("cq{}-plain", few.number()),
        few => format!("cq{}-calibrated", few.number()),
    }
}

/// Cache key of a model given by path: it must change when the file does.
fn local_key(path: &Path) -> Result<String> {
    let full = std::fs::canonicalize(path)?;
    let meta = std::fs::metadata(&full)?;
    let modified = meta
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let name = full
        .file_stem()
        .map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    let identity = format!("{}\0{}\0{}", full.display(), meta.len(), modified.as_nanos());
    let digest = cactus_bundle::Checksum::of(identity.as_bytes());
    Ok(format!("local--{}-{digest}", safe.trim_matches('.').to_lowercase()))
}

/// Says that a conversion begins.
pub(crate) fn note_converting(source: &Path, bits: &str) {
    let what = source.file_name().unwrap_or(source.as_os_str()).to_string_lossy();
    output::note(format!("converting {what} to {bits}"));
}

/// Converts with progress bars, measures as `request` says, and passes on what the user should know.
pub(crate) fn convert(source: &Path, destination: &Path, options: &ConvertOptions, request: &Request) -> Result<Made> {
    note_calibrating(&request.calibrate);
    let made = with_progress(|progress| convert_measured(source, destination, options, request, progress))?;
    warn(&made);
    Ok(made)
}

/// Runs `work` with progress bars.
pub(crate) fn with_progress<T>(work: impl FnOnce(&Progress) -> cactus_quality::Result<T>) -> cactus_quality::Result<T> {
    let bar = Rc::new(StageBar::default());
    let shown = Rc::clone(&bar);
    let progress: Progress = Rc::new(move |stage, done, total| shown.show(stage, done, total));
    let made = work(&progress);
    bar.end();
    made
}

/// Says that a text is run through the model first, which is what takes the time.
pub(crate) fn note_calibrating(calibrate: &Calibrate) {
    match calibrate {
        Calibrate::No => {}
        Calibrate::BuiltIn => output::note(
            "calibrating with the built-in text, so that less is lost; `--calibrate FILE` takes one of yours, `--no-calibrate` none",
        ),
        Calibrate::With(text) => output::note(format!("calibrating with {}", text.name())),
    }
}

/// Passes on what the user should know of a conversion.
pub(crate) fn warn(made: &Made) {
    for note in &made.outcome.notes {
        output::warning(note);
    }
    if let Some(why) = &made.below_floor {
        output::warning(format!("the quality of the bundle is below the floor: {why}"));
    }
}

/// Options of loading.
pub(crate) fn load_options(args: &EngineArgs) -> LoadOptions {
    LoadOptions {
        context_tokens: args.context,
        chunk_tokens: args.chunk,
        kv_dtype: kv_dtype(args.kv),
        threads: args.threads.map(usize::from),
        decode_threads: args.decode_threads.map(usize::from),
        pin: args.pin,
    }
}

/// Threads to use where `given` are asked for.
pub(crate) fn threads(given: Option<u16>) -> usize {
    given.map_or_else(|| Cores::detect().threads(), usize::from)
}

pub(crate) fn kv_dtype(kv: Kv) -> KvDType {
    match kv {
        Kv::Int8 => KvDType::I8G32,
        Kv::F16 => KvDType::F16,
    }
}

/// Loads the model that `args` name.
pub(crate) fn load(args: &ModelArgs, options: &LoadOptions) -> Result<Arc<Model>> {
    let path = bundle(args)?;
    needs_program(&cactus_engine::Bundle::open(&path)?)?;
    Ok(Model::load(&path, options)?)
}

/// An error that says what a folder of weights alone is for.
pub(crate) fn needs_program(bundle: &cactus_engine::Bundle) -> Result<()> {
    if bundle.manifest().task == WEIGHTS_TASK {
        let path = bundle.root().display();
        anyhow::bail!(
            "`{path}` has only weights, and no program to run; make a bundle that can run with `cactus transpile \
             my_model.py:MyModel FOLDER --weights-dir {path}`"
        );
    }
    Ok(())
}

/// The text of an argument, where `-` is standard input.
pub(crate) fn text_or_stdin(text: &str) -> Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes)?;
    utf8(bytes, "standard input")
}

/// Bytes as text.
pub(crate) fn utf8(bytes: Vec<u8>, what: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        anyhow::anyhow!("{what} is not UTF-8 text: byte {at} is not valid")
    })
}
