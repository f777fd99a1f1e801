//! Options of the commands that measure answers.

use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Question sets with right and wrong answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum EvalTask {
    /// Choose the best ending of a text
    HellaSwag,
    /// Solve word problems in arithmetic
    Gsm8k,
    /// Complete Python functions
    HumanEval,
    /// Call tools
    Bfcl,
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The bundle
    pub(crate) bundle: PathBuf,
    /// Compare it with this bundle, usually one made from the same source with --bits 16 [default: measure perplexity]
    #[arg(long, value_name = "BUNDLE", conflicts_with = "task")]
    pub(crate) against: Option<PathBuf>,
    /// Text file, or rows of JSON [default: a small built-in text]
    #[arg(long, short, conflicts_with = "task")]
    pub(crate) file: Option<PathBuf>,
    /// Window length in tokens; the second half of each window is measured. With --task, the most tokens of a question
    /// and its answer together [default: 512; with --task 4096]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// Measure at most this many windows [default: all]
    #[arg(long)]
    pub(crate) chunks: Option<NonZeroUsize>,
    /// Ask the questions in --data instead
    #[arg(long, requires = "data")]
    pub(crate) task: Option<EvalTask>,
    /// Questions of the task: the JSON lines file as published, or a gzip of it
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) data: Option<PathBuf>,
    /// For BFCL: the file from its `possible_answer` folder that belongs to the data
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) answers: Option<PathBuf>,
    /// Ask only the first N questions
    #[arg(long, value_name = "N", requires = "task")]
    pub(crate) limit: Option<NonZeroUsize>,
    /// Save results to this file as they come; if it exists, continue where it ends
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) results: Option<PathBuf>,
    /// Generate at most this many tokens for each answer [default: 512; for bfcl 256]
    #[arg(long, value_name = "TOKENS", requires = "task")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Ask in plain text, without the model's chat template
    #[arg(long, requires = "task")]
    pub(crate) raw: bool,
    /// For BFCL: allow only calls that satisfy the schemas of the tools, and require one where the case expects calls
    #[arg(long, requires = "task", conflicts_with = "raw")]
    pub(crate) constrained: bool,
    /// With `--constrained`, allow at most one call, as `parallel_tool_calls: false` does in a request
    #[arg(long, requires = "constrained")]
    pub(crate) one_call: bool,
    /// Run the programs that the model writes. There are limits but no sandbox: the programs can read what you can read
    #[arg(long, requires = "task")]
    pub(crate) allow_code_execution: bool,
    /// Questions that are asked at the same time; the answers are the same for any number
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=128), requires = "task")]
    pub(crate) streams: u16,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Question sets to learn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum CalibrateTask {
    /// Solve word problems in arithmetic
    Gsm8k,
    /// Complete Python functions
    HumanEval,
    /// Call tools
    Bfcl,
    /// Decide: yes or no, one of several, a level; the file has requests of /v1/decisions with an `answer` to each question
    Decisions,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The bundle; what is learned is written into it
    pub(crate) bundle: PathBuf,
    /// What kind of questions they are
    #[arg(long)]
    pub(crate) task: CalibrateTask,
    /// Questions: the JSON lines file as published, or a gzip of it
    #[arg(long, value_name = "FILE")]
    pub(crate) data: PathBuf,
    /// For BFCL: the file from its `possible_answer` folder that belongs to the data
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Save answers to this file as they come; if it exists, continue where it ends
    #[arg(long, value_name = "FILE")]
    pub(crate) results: Option<PathBuf>,
    /// Learn from the answers in this file too, which an earlier run saved with --results; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) also: Vec<PathBuf>,
    /// Ask only the first N questions
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<NonZeroUsize>,
    /// Share of wrong answers that is allowed among those that are kept
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = share)]
    pub(crate) max_error: f64,
    /// For BFCL: allow at most one call, as `parallel_tool_calls: false` does in a request
    #[arg(long)]
    pub(crate) one_call: bool,
    /// Generate at most this many tokens for each answer [default: 512; for bfcl 256]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Most tokens of a question and its answer together [default: 4096]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// Run the programs that the model writes. There are limits but no sandbox: the programs can read what you can read
    #[arg(long)]
    pub(crate) allow_code_execution: bool,
    /// Show what would be written, and leave the bundle as it is
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Questions that are asked at the same time; the answers are the same for any number
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) streams: u16,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print the result as JSON, with the confidence in each answer
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share above 0 and below 1.
fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number such as 0.2".to_owned())?;
    match share > 0.0 && share < 1.0 {
        true => Ok(share),
        false => Err("expected a number above 0 and below 1, such as 0.2 for 20 %".to_owned()),
    }
}
