//! What happens while a target answers.

use crate::{Opaque, Usage};

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The message grows.
    Delta(Delta),
    /// What has been counted so far; it replaces what was said before.
    Usage(Usage),
    /// The answer is whole, and nothing follows. An answer without it is not whole.
    Done(Reason),
}

/// What the message grows by. Text and reasoning may alternate; calls may be interleaved, told apart by their index.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text of the answer.
    Text(String),
    /// Text of the reasoning that is open, which begins one where none is.
    Reasoning(String),
    /// The reasoning that is open ends; one without text begins and ends here.
    ReasoningEnd {
        /// What its issuer wants back.
        opaque: Option<Opaque>,
    },
    /// A call begins. Indices count calls from 0, in order.
    CallBegin {
        /// Which call.
        index: usize,
        /// Its id; made up where the target gave none.
        id: String,
        /// The tool.
        name: String,
    },
    /// The arguments of a call grow.
    CallArguments {
        /// Which call.
        index: usize,
        /// What is added to the JSON.
        fragment: String,
    },
    /// A call is whole.
    CallEnd {
        /// Which call.
        index: usize,
        /// What its issuer wants back with the call.
        opaque: Option<Opaque>,
    },
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The model ended it, or a stop string was met.
    Stop,
    /// It reached the most tokens that were allowed, or that fit.
    Length,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The model or a filter of the target refused to answer, or to go on.
    Refused,
    /// Something else, in the target's own word.
    Other(String),
}
