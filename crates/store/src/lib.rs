//! From what a user names to a bundle on this machine: [`bundle`] finds it, fetches it and converts it into the cache.
//!
//! The command line, C and Python all come this way, so one of them finds what another has made. What is fetched is kept as it
//! came, and the bundle beside it, under a name that says how it was made: `int8`, `tcq4-calibrated`.
//!
//! It may depend on `hub`, `quality` and what converts. It deliberately does not load models, does not print (a [`Watcher`] is
//! told what happens) and gives no advice.
#![forbid(unsafe_code)]

mod error;
mod told;

pub use error::{Error, ErrorKind, Result};

use cactus_bundle::{Bundle, Checksum};
use cactus_hub::{Fetched, Format, Hub, HubOptions, ModelRef};
use cactus_import::{ConvertOptions, Stop, WEIGHTS_TASK};
use cactus_passes::{Bits, Policy};
use cactus_quality::{Calibrate, Made, Progress, QUALITY_PATH, Request, Stage, Text, convert_measured};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How a model that is no bundle yet is converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bits for each weight. Default 8.
    pub bits: Bits,
    /// Below 8 bits, calibrate with the built-in text. Default true: without it much more quality is lost.
    pub calibrate: bool,
    /// Convert again even if the cache has the bundle; fetch a bundle at an address again. Default false.
    pub reconvert: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            bits: Bits::Eight,
            calibrate: true,
            reconvert: false,
        }
    }
}

/// What happens on the way to a bundle.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// The model is fetched.
    Fetch(cactus_hub::Event<'a>),
    /// A conversion begins.
    Converting {
        /// The model as it came.
        source: &'a Path,
        /// Bits for each weight.
        policy: &'a Policy,
        /// With which text it is calibrated.
        calibrate: &'a Calibrate,
    },
    /// A stage of the conversion, and how far it is.
    Stage {
        /// The stage.
        stage: Stage,
        /// Weights, matrices or windows of text done.
        done: u64,
        /// Of how many.
        total: u64,
    },
    /// The conversion has ended, well or not.
    Converted,
    /// What the user should know of a bundle that was made.
    Made(&'a Made),
}

/// Is told what happens, and may stop it.
pub trait Watcher {
    /// Something happened. It is called on the thread that asked for the bundle.
    fn step(&self, step: Step<'_>);

    /// Asked often; `true` stops the fetch, or the conversion after the tensors or the window of text under way.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A [`Watcher`] that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watcher for Silent {
    fn step(&self, _step: Step<'_>) {}
}

/// A watcher as the hub wants it.
struct Fetching<'a>(&'a dyn Watcher);

impl cactus_hub::Progress for Fetching<'_> {
    fn event(&mut self, event: cactus_hub::Event<'_>) {
        self.0.step(Step::Fetch(event));
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A hub with the user's settings, whose cache is in the folder `cache` or where the user has it.
///
/// # Errors
/// Where no folder for the cache is known.
pub fn hub(token: Option<String>, offline: bool, cache: Option<PathBuf>) -> Result<Hub> {
    let options = HubOptions {
        cache,
        token: token.filter(|t| !t.is_empty()),
        offline,
        ..HubOptions::default()
    };
    Ok(Hub::new(options)?)
}

/// The model on this machine as it came, fetched where it is not.
///
/// # Errors
/// [`Error::Hub`].
pub fn fetch(hub: &Hub, name: &str, watcher: &dyn Watcher) -> Result<Fetched> {
    let reference = ModelRef::parse(name)?;
    Ok(hub.fetch(&reference, &mut Fetching(watcher))?)
}

/// The folder of a bundle of the model `name`: a path, a known name, a Hugging Face id or an address. Where it is no bundle, one is made in
/// the cache as `wanted` says, unless there is one.
///
/// # Errors
/// [`Error::Hub`] where the model cannot be fetched, [`Error::Quality`] where it cannot be converted, [`Error::Io`].
pub fn bundle(hub: &Hub, name: &str, wanted: &Wanted, watcher: &Rc<dyn Watcher>) -> Result<PathBuf> {
    remove_abandoned(hub);
    let variant = variant(wanted);
    // A bundle made from a cached source needs no source.
    if let Some(key) = ModelRef::parse(name)?.key() {
        let path = hub.cache().bundle_dir(&key, &variant)?;
        if !wanted.reconvert && is_made(&path, wanted.bits) {
            return Ok(path);
        }
    }
    let fetched = match ModelRef::parse(name)? {
        // Of a bundle there is nothing to convert: it is fetched again.
        ModelRef::Address(address) if wanted.reconvert && !address.is_file() => {
            hub.fetch_again(&ModelRef::Address(address), &mut Fetching(&**watcher))?
        }
        _ => fetch(hub, name, &**watcher)?,
    };
    if fetched.format == Format::Bundle {
        return Ok(fetched.path);
    }
    let key = match &fetched.key {
        Some(key) => key.clone(),
        None => local_key(&fetched.path)?,
    };
    // What is a model in one file of this kind is small, and keeps its 32 bits.
    let wanted = &match fetched.format {
        Format::Safetensors | Format::Onnx => Wanted {
            bits: Bits::ThirtyTwo,
            ..wanted.clone()
        },
        _ => wanted.clone(),
    };
    let path = hub.cache().bundle_dir(&key, &self::variant(wanted))?;
    let _held = hub.cache().lock(&key, &mut Fetching(&**watcher))?;
    if !wanted.reconvert && is_made(&path, wanted.bits) {
        return Ok(path);
    }
    let stop = Stop::default();
    let options = ConvertOptions {
        policy: Policy::uniform(wanted.bits),
        replace: true,
        name: fetched.record.as_ref().map(|r| r.id.clone()),
        license: fetched.record.as_ref().and_then(|r| r.license.clone()),
        stop: stop.clone(),
        ..ConvertOptions::default()
    };
    // Only a model that text can be run through is calibrated and measured.
    let few = wanted.bits < Bits::Eight && cactus_import::takes_text(&fetched.path).unwrap_or(true);
    let request = Request {
        calibrate: match few && wanted.calibrate {
            true => Calibrate::BuiltIn,
            false => Calibrate::No,
        },
        measure: few.then(Text::built_in_held_out),
        ..Request::default()
    };
    watcher.step(Step::Converting {
        source: &fetched.path,
        policy: &options.policy,
        calibrate: &request.calibrate,
    });
    let stages = Rc::clone(watcher);
    let progress: Progress = Rc::new(move |stage, done, total| {
        stages.step(Step::Stage { stage, done, total });
        if stages.is_cancelled() {
            stop.stop();
        }
    });
    let made = convert_measured(&fetched.path, &path, &options, &request, &progress);
    watcher.step(Step::Converted);
    watcher.step(Step::Made(&made?));
    Ok(path)
}

/// Removes what conversions into the cache left that were killed.
pub fn remove_abandoned(hub: &Hub) {
    let bundles = hub.cache().root().join("bundles");
    for key in std::fs::read_dir(bundles).into_iter().flatten().flatten() {
        cactus_bundle::remove_abandoned(&key.path());
    }
}

/// Checks that a bundle is more than a folder of weights.
///
/// # Errors
/// [`Error::WeightsOnly`].
pub fn needs_program(bundle: &Bundle) -> Result<()> {
    match bundle.manifest().task == WEIGHTS_TASK {
        true => Err(Error::WeightsOnly(bundle.root().to_owned())),
        false => Ok(()),
    }
}

/// Whether the cache has a bundle at `path` that can be used: one of few bits says what it lost.
fn is_made(path: &Path, bits: Bits) -> bool {
    Bundle::is_bundle(path) && (bits >= Bits::Eight || path.join(QUALITY_PATH).is_file())
}

fn variant(wanted: &Wanted) -> String {
    match wanted.bits {
        Bits::Eight => "int8".to_owned(),
        Bits::Sixteen => "f16".to_owned(),
        Bits::ThirtyTwo => "f32".to_owned(),
        few => {
            let codes = if few == Bits::One { "cq" } else { "tcq" };
            let how = if wanted.calibrate { "calibrated" } else { "plain" };
            format!("{codes}{}-{how}", few.number())
        }
    }
}

/// Adds what tells whether a file in a folder has changed, for all of them, in the order of their names. A file that cannot be read is one
/// that conversion tells of.
fn inside(folder: &Path, at: &str, depth: usize, identity: &mut String) {
    /// Modules of a model lie in its folder, and their files in them.
    const DEPTH: usize = 3;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")) {
        let (path, at) = (folder.join(name), format!("{at}/{}", name.display()));
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if meta.is_dir() {
            if depth < DEPTH {
                inside(&path, &at, depth + 1, identity);
            }
            continue;
        }
        let modified = meta
            .modified()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let modified = modified.unwrap_or_default().as_nanos();
        identity.push_str(&format!("\0{at}\0{}\0{modified}", meta.len()));
    }
}

/// Cache key of a model given by path: it must change when the file does.
fn local_key(path: &Path) -> Result<String> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let full = std::fs::canonicalize(path).map_err(failed)?;
    let meta = std::fs::metadata(&full).map_err(failed)?;
    let modified = meta
        .modified()
        .map_err(failed)?
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
    let mut identity = format!("{}\0{}\0{}", full.display(), meta.len(), modified.as_nanos());
    if meta.is_dir() {
        inside(&full, "", 0, &mut identity);
    }
    let digest = Checksum::of(identity.as_bytes());
    Ok(format!("local--{}-{digest}", safe.trim_matches('.').to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_names_bits_and_calibration() {
        let of = |bits, calibrate| {
            variant(&Wanted {
                bits,
                calibrate,
                ..Wanted::default()
            })
        };
        assert_eq!(of(Bits::Eight, true), "int8");
        assert_eq!(of(Bits::Sixteen, false), "f16");
        assert_eq!(of(Bits::Four, true), "tcq4-calibrated");
        assert_eq!(of(Bits::Four, false), "tcq4-plain");
    }

    #[test]
    fn local_key_changes_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("My Model.gguf");
        std::fs::write(&path, "one").unwrap();
        let one = local_key(&path).unwrap();
        assert!(one.starts_with("local--my-model-"), "{one}");
        assert_eq!(local_key(&path).unwrap(), one);
        std::fs::write(&path, "other").unwrap();
        assert_ne!(local_key(&path).unwrap(), one);
        let module = folder.path().join("1_Pooling");
        std::fs::create_dir(&module).unwrap();
        std::fs::write(module.join("config.json"), "one").unwrap();
        let of_folder = || local_key(folder.path()).unwrap();
        let one = of_folder();
        assert_eq!(of_folder(), one);
        std::fs::write(module.join("config.json"), "other").unwrap();
        assert_ne!(of_folder(), one);
        assert_eq!(
            local_key(&folder.path().join("none")).unwrap_err().kind(),
            ErrorKind::Io
        );
    }

    /// Cancels at the first step of a stage.
    struct Until {
        stage: &'static str,
        reached: std::cell::Cell<bool>,
        told: std::cell::RefCell<Vec<&'static str>>,
    }

    impl Watcher for Until {
        fn step(&self, step: Step<'_>) {
            step.tell(&mut |stage, _, _, _| {
                self.told.borrow_mut().push(stage);
                self.reached.set(self.reached.get() || stage == self.stage);
            });
        }

        fn is_cancelled(&self) -> bool {
            self.reached.get()
        }
    }

    fn until(stage: &'static str) -> Rc<Until> {
        Rc::new(Until {
            stage,
            reached: std::cell::Cell::new(false),
            told: std::cell::RefCell::default(),
        })
    }

    #[test]
    fn conversion_ends_where_the_watcher_cancels_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(None, true, Some(folder.path().to_owned())).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
        let source = source.to_str().unwrap();
        let four = Wanted {
            bits: Bits::Four,
            ..Wanted::default()
        };
        for (wanted, stage) in [
            (Wanted::default(), "converting"),
            (four.clone(), "reading source"),
            (four.clone(), "calibrating"),
            (four, "measuring quality"),
        ] {
            let watcher = until(stage);
            let as_watcher: Rc<dyn Watcher> = watcher.clone();
            let error = bundle(&hub, source, &wanted, &as_watcher).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{stage}: {error}");
            assert!(!watcher.told.borrow().contains(&"note"), "{stage}");
            let bundles = std::fs::read_dir(folder.path().join("bundles")).into_iter().flatten();
            let left = bundles.flat_map(|key| std::fs::read_dir(key.unwrap().path()).unwrap());
            assert_eq!(left.count(), 0, "{stage}");
        }
        let never: Rc<dyn Watcher> = until("never");
        let made = bundle(&hub, source, &Wanted::default(), &never).unwrap();
        assert!(Bundle::is_bundle(&made));
        let again = until("converting");
        let as_watcher: Rc<dyn Watcher> = again.clone();
        assert_eq!(bundle(&hub, source, &Wanted::default(), &as_watcher).unwrap(), made);
        assert!(again.told.borrow().is_empty(), "it was there already");
    }
}
