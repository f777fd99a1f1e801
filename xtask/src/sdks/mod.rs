//! Raw layers of the SDKs, made of the description of the C ABI (`crates/ffi/abi.json`).
//!
//! Purpose: that no SDK declares a C function by hand. Each language has a module that turns an `Abi` into files below
//! `sdks/`; `cargo xtask sdks` writes them, and `cargo xtask sdks --check`, which the tests run, compares. It deliberately
//! knows nothing of the layers above, which are written by hand.
//!
//! `sdks/README.md` says what all SDKs have in common.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer reads it")]

mod dart;
mod kotlin;
mod node;
pub(crate) mod suites;
mod swift;

use crate::Repository;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::fs;

/// A generated file: its path from the root of the repository, and its text.
pub(crate) type Generated = (String, String);

/// A language, and what makes its files.
type Layer = (&'static str, fn(&Abi) -> Vec<Generated>);

/// Each language.
const LAYERS: &[Layer] = &[
    ("dart", dart::files),
    ("kotlin", kotlin::files),
    ("node", node::files),
    ("swift", swift::files),
];

/// Functions of the public engine that SDKs call, beside all of our own.
const PUBLIC: &[&str] = &[
    "cactus_detect_language",
    "cactus_destroy",
    "cactus_embed",
    "cactus_image_embed",
    "cactus_index_add",
    "cactus_index_compact",
    "cactus_index_delete",
    "cactus_index_destroy",
    "cactus_index_get",
    "cactus_index_init",
    "cactus_index_query",
    "cactus_init",
    "cactus_log_set_callback",
    "cactus_log_set_level",
    "cactus_rag_query",
    "cactus_render_prompt",
    "cactus_stop",
    "cactus_stream_transcribe_process",
    "cactus_stream_transcribe_start",
    "cactus_stream_transcribe_stop",
    "cactus_transcribe",
    "cactus_vad",
];

/// Functions that return at once. All others read files, compute or wait, and do not belong on a thread that draws.
const AT_ONCE: &[&str] = &[
    "cactus_abi_version",
    "cactus_clear_error",
    "cactus_error_kind",
    "cactus_last_error",
    "cactus_log_set_callback",
    "cactus_log_set_level",
    "cactus_memory_pressure",
    "cactus_model_info",
    "cactus_model_set_threads",
    "cactus_request_cancel",
    "cactus_request_consent",
    "cactus_session_messages",
    "cactus_stop",
    "cactus_string_free",
    "cactus_tokens_free",
    "cactus_version",
];

/// The description of the C ABI.
#[derive(Debug, Deserialize)]
pub(crate) struct Abi {
    pub(crate) abi_version: u32,
    pub(crate) handles: Vec<Handle>,
    pub(crate) structures: Vec<Structure>,
    pub(crate) enumerations: Vec<Enumeration>,
    pub(crate) callbacks: Vec<Function>,
    functions: Vec<Function>,
}

/// A number in the clothes of a pointer.
#[derive(Debug, Deserialize)]
pub(crate) struct Handle {
    pub(crate) name: String,
    pub(crate) doc: String,
}

/// A structure that is passed by pointer.
#[derive(Debug, Deserialize)]
pub(crate) struct Structure {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) fields: Vec<Named>,
}

/// A field or parameter, with its type in C.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) doc: String,
}

/// Named numbers.
#[derive(Debug, Deserialize)]
pub(crate) struct Enumeration {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) doc: String,
    pub(crate) values: Vec<Value>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) value: i64,
    pub(crate) doc: String,
}

/// A function or the type of a callback.
#[derive(Debug, Deserialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    pub(crate) since: u32,
    pub(crate) doc: String,
    pub(crate) returns: String,
    pub(crate) parameters: Vec<Named>,
}

impl Function {
    /// Whether it returns at once.
    pub(crate) fn is_at_once(&self) -> bool {
        AT_ONCE.contains(&self.name.as_str())
    }
}

impl Abi {
    /// Reads the description.
    ///
    /// # Errors
    /// Where it is missing, has another form, or lacks a function that is named here.
    pub(crate) fn read(repository: &Repository) -> Result<Abi> {
        let file = repository
            .file("crates/ffi/abi.json")
            .context("crates/ffi/abi.json is missing")?;
        let abi: Abi = serde_json::from_str(&file.text).context("crates/ffi/abi.json")?;
        for name in PUBLIC.iter().chain(AT_ONCE) {
            let known = abi.functions.iter().any(|function| function.name == *name);
            ensure!(
                known,
                "crates/ffi/abi.json has no function `{name}`; xtask/src/sdks/mod.rs names it"
            );
        }
        Ok(abi)
    }

    /// The functions that SDKs call, in the order of the description.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        let used = |function: &&Function| function.group == "cactus" || PUBLIC.contains(&function.name.as_str());
        self.functions.iter().filter(used)
    }
}

/// Writes the raw layers, or with `check` compares them. Gives whether nothing differs.
///
/// # Errors
/// Where the description cannot be read, or a file cannot be written.
pub fn run(check: bool) -> Result<bool> {
    let repository = Repository::open()?;
    let abi = Abi::read(&repository)?;
    let mut same = true;
    for (language, files) in LAYERS {
        for (path, text) in files(&abi) {
            let place = repository.root().join(&path);
            if fs::read_to_string(&place).is_ok_and(|found| found == text) {
                continue;
            }
            if check {
                eprintln!("{path} is not what crates/ffi/abi.json makes of it: run `cargo xtask sdks`");
                same = false;
                continue;
            }
            fs::create_dir_all(place.parent().context("a file has a folder")?)?;
            fs::write(&place, text).with_context(|| path.clone())?;
            println!("wrote {path} ({language})");
        }
    }
    Ok(same)
}
