//! Options of `cactus index`, `cactus search` and `cactus ask`.

use super::{EngineArgs, SourceArgs};
use cactus_rag::Nearness;
use clap::Args;
use std::path::PathBuf;

/// A folder and its index.
#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// The folder with the documents: text, Markdown, HTML, PDF and code, in it and in its folders
    pub(crate) folder: PathBuf,
    /// The model that makes vectors: a bundle, a folder of sentence-transformers, or an id [default: that of the index; for a new
    /// one, sentence-transformers/all-MiniLM-L6-v2]
    #[arg(long, value_name = "MODEL")]
    pub(crate) embedder: Option<String>,
    /// The index file [default: `.cactus-index` in the folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Go on, and read what changes in the folder, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// How much is looked for.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Find this many pieces
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: u32,
    /// Let this model put four times as many pieces in order first: a cross-encoder, or Qwen3-Reranker
    #[arg(long, value_name = "MODEL")]
    pub(crate) rerank: Option<String>,
    /// Leave out pieces that are not near the question: `related` finds out by itself how near the pieces of an answer have to be, and a
    /// number such as 0.42 is the least cosine that they must have. `any` leaves out none [default: any]
    #[arg(long, value_name = "any|related|NUMBER", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<Nearness>,
    /// Search in the index as it is, without a look at the folder
    #[arg(long)]
    pub(crate) no_sync: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    /// What to look for
    pub(crate) question: String,
    #[command(flatten)]
    pub(crate) find: FindArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    /// The question
    pub(crate) question: String,
    #[command(flatten)]
    pub(crate) find: FindArgs,
    /// The model that answers: a bundle, a GGUF file, a Hugging Face folder, or an id [default: as `cactus run`]
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Most tokens of the answer
    #[arg(long, value_name = "N", default_value = "512")]
    pub(crate) max_new_tokens: usize,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
