//! The extension module `cactus._native`: the engine in the interpreter's process.
//!
//! It is thin on purpose. Requests come in as the JSON of the OpenAI API and answers go out as it, by way of `protocol`, so they
//! mean the same as through HTTP. What makes it pleasant is Python (`python/cactus`): models of pydantic, tools from functions,
//! sessions that remember, async twins.
//!
//! What holds for every function that waits:
//!
//! - The interpreter is released meanwhile. Signals are looked at every 50 ms, so Ctrl-C ends an answer within a token.
//! - No thread of the engine ever enters the interpreter. Events go through channels, and the caller's thread takes them out, so
//!   a busy interpreter delays no other answer and an interpreter that ends finds nobody inside it.
//! - A process that was forked has none of the threads; every function says so instead of waiting for them.
//!
//! It may depend on `store`, `router`, `protocol`, `speech`, `rag`, `retrieval`, `engine` and what is below them. It deliberately serves no HTTP.

mod array;
mod corpus;
mod dlpack;
mod embed;
mod errors;
mod function;
mod hear;
mod index;
mod listen;
mod live;
mod model;
mod policy;
mod session;
mod store;
mod stream;
mod token_embed;

use pyo3::prelude::*;
use std::time::Duration;

/// How often a function that waits looks for signals.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The engine of the package `cactus`. Its functions and classes are not for users: `cactus` is.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    live::begin();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<hear::Transcriber>()?;
    module.add_class::<hear::Hearing>()?;
    module.add_class::<hear::Vad>()?;
    module.add_class::<listen::Listening>()?;
    module.add_class::<embed::Embedder>()?;
    module.add_class::<embed::Reranker>()?;
    module.add_class::<token_embed::TokenEmbedder>()?;
    module.add_class::<corpus::Check>()?;
    module.add_class::<corpus::Corpus>()?;
    module.add_class::<index::Index>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<array::Input>()?;
    module.add_function(wrap_pyfunction!(store::check_bundle, module)?)?;
    module.add_function(wrap_pyfunction!(store::prepare, module)?)?;
    module.add_function(wrap_pyfunction!(live::shutdown, module)?)?;
    Ok(())
}
