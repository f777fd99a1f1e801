//! From what the user wrote to a bundle on disk.

use crate::args::{EngineArgs, Kv, ModelArgs};
use crate::commands::policy;
use crate::hint::Advised;
use crate::output;
use crate::progress::{FetchProgress, StageBar, byte_bar};
use anyhow::Result;
use cactus_base::Cores;
use cactus_engine::{KvDType, LoadOptions, Model};
use cactus_hub::{Fetched, Hub, Meant, ModelRef, Why, preferred};
use cactus_import::ConvertOptions;
use cactus_quality::{Calibrate, Made, Progress, Request, convert_measured};
use cactus_store::{Step, Wanted, Watcher};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A hub with the user's settings.
pub(crate) fn hub(token: Option<String>, offline: bool) -> Result<Hub> {
    cactus_store::hub(token, offline, None).map_err(of_store)
}

/// The model on this machine, fetched where it is not.
pub(crate) fn fetch(hub: &Hub, name: &str) -> Result<Fetched> {
    cactus_store::fetch(hub, name, &Shown::default()).map_err(of_store)
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
        ModelRef::Address(address) => address.to_string(),
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
    let source = &args.source;
    let hub = hub(source.token.clone(), source.offline)?;
    let model = match named(args.model.as_deref(), args.small) {
        Some(name) => name.to_owned(),
        None => meant(&hub)?,
    };
    let wanted = Wanted {
        bits: source.bits,
        calibrate: !source.no_calibrate,
        reconvert: args.reconvert,
    };
    let shown: Rc<dyn Watcher> = Rc::new(Shown::default());
    let made = cactus_store::bundle(&hub, &model, &wanted, &shown);
    let bits = source.bits.number();
    let without = if source.no_calibrate {
        ", or leave out `--no-calibrate`"
    } else {
        ""
    };
    let advised = Advised {
        what: format!("`{model}` cannot be converted to {bits} bits"),
        advice: format!(
            "use more bits{without}; `cactus convert {model} FOLDER --bits {bits} --force` writes the bundle anyway"
        ),
    };
    made.map_err(|e| advised.of_floor(of_store(e)))
}

/// The error inside: what is known of it is known of that one.
fn of_store(error: cactus_store::Error) -> anyhow::Error {
    match error {
        cactus_store::Error::Hub(e) => e.into(),
        cactus_store::Error::Quality(e) => e.into(),
        other => other.into(),
    }
}

/// Shows the way to a bundle: bars, and notes on what begins and on what was made.
#[derive(Default)]
struct Shown {
    fetch: RefCell<FetchProgress>,
    stages: StageBar,
}

impl Watcher for Shown {
    fn step(&self, step: Step<'_>) {
        match step {
            Step::Fetch(event) => cactus_hub::Progress::event(&mut *self.fetch.borrow_mut(), event),
            Step::Converting {
                source,
                policy,
                calibrate,
            } => {
                note_converting(source, &policy::in_words(policy, None));
                note_calibrating(calibrate);
            }
            Step::Stage { stage, done, total } => self.stages.show(stage, done, total),
            Step::Converted => self.stages.end(),
            Step::Made(made) => warn(made),
            _ => {}
        }
    }
}

/// Reads all of a bundle and compares it with its checksums. Every damaged place is shown.
pub(crate) fn verify(bundle: &cactus_engine::Bundle) -> Result<()> {
    let bar = byte_bar(bundle.verified_bytes(), "checking");
    let found = bundle.verify(threads(None), &|n| bar.inc(n));
    bar.finish_and_clear();
    if found.block_bytes.is_none() {
        output::note("this bundle has one checksum for each tensor, so damage is placed by tensor only");
    }
    let places = found.damage.len();
    // One place alone is what the error says.
    let listed = if places > 1 { SHOWN_PLACES } else { 0 };
    for damage in found.damage.iter().take(listed) {
        output::warning(damage);
    }
    if places > SHOWN_PLACES {
        output::warning(format!("and {} more places", places - SHOWN_PLACES));
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
            "calibrating with the built-in text, so that less quality is lost (`--calibrate FILE` uses your own text, `--no-calibrate` skips this)",
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
        picture_rows: None,
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

/// Refuses a bundle of which there is nothing, for commands that take bundles and look for no model by its name.
pub(crate) fn there(bundle: &Path) -> Result<()> {
    if bundle.exists() {
        return Ok(());
    }
    Err(anyhow::Error::msg(Advised {
        what: format!("`{}` is not a folder; expected that of a bundle", bundle.display()),
        advice: "`cactus convert SOURCE FOLDER` makes a bundle of a model; give this command its FOLDER".to_owned(),
    }))
}

/// An error that says what a folder of weights alone is for.
pub(crate) fn needs_program(bundle: &cactus_engine::Bundle) -> Result<()> {
    if cactus_store::needs_program(bundle).is_err() {
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
