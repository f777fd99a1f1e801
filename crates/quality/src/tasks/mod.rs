//! Tasks with right and wrong answers, from files of the user: choosing an ending (HellaSwag), arithmetic in words (GSM8K),
//! completing a function (HumanEval), calling tools (BFCL).
//!
//! - [`read_cases`] reads the files in which these sets are published, checking every line;
//! - [`run_task`] asks the model, several cases at a time, and judges;
//! - [`Results`] is the document that grows with every case and lets a run be continued.
//!
//! It may depend on `engine` and `text`, and on `hybrid` for what is made of signals. It deliberately holds no set, fetches none, and runs nothing that a model wrote
//! unless [`TaskOptions::allow_code_execution`] says so.

mod answer;
mod asking;
mod calls;
mod cases;
mod literal;
mod matching;
mod program;
mod results;
mod run;
mod signals;

pub use cases::{Case, Question, read_cases};
pub use results::{Judged, Results, Setup};
pub use run::{TaskOptions, run_task};
pub use signals::{Gathered, SEEN_AT, Seen};

use serde::{Deserialize, Serialize};

/// A kind of case, and how its answer is judged.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Which of several endings is the likeliest for each of its characters.
    HellaSwag,
    /// The last number of the answer.
    Gsm8k,
    /// Whether the completed function passes its tests.
    HumanEval,
    /// Whether the calls in the answer are among those allowed.
    Bfcl,
}

impl Task {
    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HellaSwag => "hellaswag",
            Self::Gsm8k => "gsm8k",
            Self::HumanEval => "humaneval",
            Self::Bfcl => "bfcl",
        }
    }

    /// Tokens an answer may have where nothing is said.
    #[must_use]
    pub fn default_tokens(self) -> usize {
        match self {
            Self::HellaSwag => 0,
            Self::Gsm8k | Self::HumanEval => 512,
            Self::Bfcl => 256,
        }
    }
}
