//! Options of `cactus extract-pdf`.

use clap::Args;
use std::path::PathBuf;

/// What it writes, and for whom, is in the module `extract` of `cactus-rag`.
#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// The PDF [default: standard input]
    pub(crate) file: Option<PathBuf>,
    /// Take at most so many bytes of memory, where the system can hold a process to it
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub(crate) memory: u64,
    /// Take at most so much processor time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Write at most so many bytes of text
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    pub(crate) text: usize,
}
