//! Loading, forgetting, stopping and closing a model of the public API.

use crate::documents::Documents;
use crate::embedder::{EMBEDDERS, Embedding};
use crate::failure::{Code, Failure};
use crate::hearer::{HEARERS, Hearer};
use crate::loaded::{Loaded, MODELS};
use crate::{guard, input};
use cactus_engine::LoadOptions;
use cactus_engine::scheduler::SchedulerLimits;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` may name a folder of documents, which the model answers
/// from: its index, `.cactus-index`, is brought in step with it, so `cache_index` makes no difference. Vectors come from the model itself,
/// if it makes some, or from the model that the environment variable CACTUS_EMBEDDER names. The handle is a `cactus_model *` of our own functions, too, unless the bundle hears, and is for `cactus_transcribe` or
/// `cactus_vad` alone, or makes vectors, and is for `cactus_embed` and `cactus_image_embed` alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_init(
    model_path: *const c_char,
    corpus_dir: *const c_char,
    _cache_index: bool,
) -> *mut c_void {
    guard::fresh(std::ptr::null_mut(), || {
        // SAFETY: the header's contract of strings.
        let (path, corpus) = unsafe {
            (
                input::text(model_path, "model_path")?,
                input::optional_text(corpus_dir, "corpus_dir")?,
            )
        };
        let corpus = corpus.filter(|corpus| !corpus.is_empty()).map(Path::new);
        let hint = |mut failure: Failure| {
            if !Path::new(path).exists() {
                failure
                    .message
                    .push_str("; a bundle is a folder with `config.json` and `components/manifest.json`");
            }
            failure
        };
        let path = Path::new(path);
        if let Some(hearer) = Hearer::open(path).map_err(hint)? {
            if corpus.is_some() {
                return Err(Failure::argument(
                    "`corpus_dir`: a model that hears answers from no documents; expected NULL",
                ));
            }
            return HEARERS.insert(hearer);
        }
        if let Some(embedding) = Embedding::open(path, corpus).map_err(hint)? {
            return EMBEDDERS.insert(embedding);
        }
        let documents = corpus.map(|folder| Documents::open(folder, None)).transpose()?;
        let loaded = Loaded::with_documents(path, &LoadOptions::default(), SchedulerLimits::default(), documents);
        MODELS.insert(loaded.map_err(hint)?)
    })
}

/// Closes a model: cancels what is under way with it, waits for that, and frees it. From inside a callback it does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_destroy(model: *mut c_void) {
    guard::quiet(|| {
        match MODELS.remove(model) {
            Ok(model) => model.close(),
            Err(failure) => match HEARERS.remove(model) {
                Ok(model) => model.close(),
                Err(_) => EMBEDDERS.remove(model).map_err(|_| failure)?.close(),
            },
        }
        Ok(())
    });
}

/// Forgets what was computed before, so that the next prompt is computed from its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_reset(model: *mut c_void) {
    guard::quiet(|| {
        match MODELS.get(model) {
            Ok(model) => model.reset(),
            // Nothing of a recording or a text is left for the next.
            Err(failure) if EMBEDDERS.get(model).is_err() => drop(HEARERS.get(model).map_err(|_| failure)?),
            Err(_) => {}
        }
        Ok(())
    });
}

/// Stops what is under way with a model, from any thread, within a token. What comes later is not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_stop(model: *mut c_void) {
    guard::quiet(|| {
        match MODELS.get(model) {
            Ok(model) => model.stop(),
            Err(failure) => match HEARERS.get(model) {
                Ok(model) => model.stop(),
                Err(_) => EMBEDDERS.get(model).map_err(|_| failure)?.stop(),
            },
        }
        Ok(())
    });
}

/// Chooses where models are computed: 0 for `auto` and `cpu`, which are the same here; -1 for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_set_backend(backend: *const c_char) -> c_int {
    guard::status(|| {
        // SAFETY: the header's contract of strings.
        match unsafe { input::text(backend, "backend") }? {
            "auto" | "cpu" => Ok(()),
            "metal" | "vulkan" | "gpu" | "npu" => Err(Failure::not_in_build("any back end but the CPU")),
            other => {
                let what = format!("`backend`: expected auto or cpu, found `{other}`");
                Err(Failure::new(Code::Argument, what))
            }
        }
    })
}
