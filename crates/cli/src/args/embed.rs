//! Options of `cactus embed` and `cactus rerank`.

use super::SourceArgs;
use clap::Args;
use std::path::PathBuf;

/// A model that makes vectors or scores of texts.
#[derive(Debug, Args)]
pub(crate) struct TextModelArgs {
    /// The model: a bundle, a folder of sentence-transformers or Hugging Face, or an id
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Convert again, even if the cache has a converted bundle
    #[arg(long)]
    pub(crate) reconvert: bool,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Cut texts that are too long for the model, instead of refusing them
    #[arg(long)]
    pub(crate) truncate: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    pub(crate) model: TextModelArgs,
    /// The texts [default: the lines of standard input, each one text, empty ones among them]
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// Take the lines of this file as the texts
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) file: Option<PathBuf>,
    /// Make vectors of these pictures (PNG, JPEG, WebP) instead of texts, by a model of both
    #[arg(long, value_name = "FILE", conflicts_with_all = ["texts", "file", "query", "document", "task"])]
    pub(crate) image: Vec<PathBuf>,
    /// The texts are searched with: put the model's prompt for queries before them
    #[arg(long, conflicts_with_all = ["document", "task"])]
    pub(crate) query: bool,
    /// The texts are searched for: put the model's prompt for documents before them
    #[arg(long, conflicts_with = "task")]
    pub(crate) document: bool,
    /// Put the model's prompt of this name before the texts; `cactus inspect` shows the names
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// Cut vectors to so many elements, where the model was made for that
    #[arg(long, value_name = "N")]
    pub(crate) dimensions: Option<usize>,
    /// Write the vectors to this file as a NumPy array, [texts or pictures, dimensions], or [tokens, dimensions] of one text
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) npy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RerankArgs {
    #[command(flatten)]
    pub(crate) model: TextModelArgs,
    /// What is searched for
    pub(crate) query: String,
    /// The documents [default: the lines of standard input]
    #[arg(value_name = "DOCUMENT")]
    pub(crate) documents: Vec<String>,
    /// Take the lines of this file as the documents
    #[arg(long, value_name = "FILE", conflicts_with = "documents")]
    pub(crate) file: Option<PathBuf>,
    /// Show only the best
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: Option<u32>,
    /// What makes a document a good one, for a model that is told so
    #[arg(long, value_name = "TEXT")]
    pub(crate) instruction: Option<String>,
}
