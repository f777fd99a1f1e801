//! What quantization costs, and how to make it cost less.
//!
//! - [`compare()`] measures a bundle against another: Kullback–Leibler divergence of the next-token distribution, how often
//!   the most likely token is the same, perplexity of both. Of models of texts it is the cosines of their vectors, or the order of
//!   their scores ([`TextComparison`]).
//! - [`Moments`] runs text through a bundle and collects what reaches each weight: the second moments that error feedback
//!   needs.
//! - [`sensitivity()`] measures what a coarser weight does to the model's output, [`allocate()`] spends bits accordingly.
//! - [`perplexity()`] measures a bundle alone; [`tasks`] are questions with right and wrong answers.
//! - [`fit_confidence`] learns from judged answers how sure a bundle's answers are.
//! - [`Report`] is the document `quality.json` of a bundle.
//!
//! The bundle that others are compared with holds the source's weights in half or single precision; it is run by the same
//! engine as everything else, so nothing but the weights differs.
//!
//! It may depend on `engine`, `embed` and `import` and what is below them, and on `hybrid` for scores. It deliberately does not convert (see `import`), does not
//! print and does not decide what is good enough but by the floor that its caller gives.
#![forbid(unsafe_code)]

mod allocate;
mod captured;
mod compare;
mod confidence;
mod data;
mod decisions;
mod error;
mod finish;
mod moments;
mod passages;
mod pipeline;
mod report;
mod runner;
mod sensitivity;
mod text;
mod trial;
mod windows;

pub mod tasks;

pub use allocate::{Sensitivity, allocate};
pub use captured::{NO_TOKENIZER, transpile_measured};
pub use compare::{Comparison, Perplexity, compare, perplexity};
pub use confidence::{Along, ConfidenceReport, Scored, fit_confidence, write_confidence};
pub use data::read_file;
pub use decisions::{
    DecisionCase, DecisionReport, KnownDecisions, LEAST_DECISIONS, ask_decisions, fit_decisions, read_decisions,
    write_decisions,
};
pub use error::{Error, ErrorKind, Result};
pub use finish::QUALITY_PATH;
pub use moments::Moments;
pub use passages::TextComparison;
pub use pipeline::{Calibrate, Made, Progress, Request, Stage, WINDOW, convert_measured};
pub use report::{Floor, Report, Verdict};
pub use runner::Runner;
pub use sensitivity::sensitivity;
pub use text::{DEFAULT_HELD_OUT, Text};
pub use trial::Source;
pub use windows::Windows;
