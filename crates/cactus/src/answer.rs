//! One question in messages, one answer as a message.

use cactus_engine::chat::{Chat, ChatRequest, Delta, Message};
use cactus_engine::scheduler::Event;
use cactus_engine::{CancelToken, Completion, GenerateOptions, Result, Scheduler};

/// An answer to a [`ChatRequest`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// Text, reasoning and calls of tools.
    pub message: Message,
    /// How it was made: why it ended, tokens, times.
    pub completion: Completion,
    /// What the caller should know, such as what of a tool's schema is not enforced.
    pub notes: Vec<String>,
}

/// What a token adds to an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Added {
    /// Text of the answer: whole characters.
    Text(String),
    /// Reasoning before the answer.
    Reasoning(String),
    /// A call of a tool begins; the whole of it is in [`Answer::message`].
    Call {
        /// Its number in the answer, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// A piece of a call's arguments, which are a JSON object as text.
    Arguments {
        /// The number of the call.
        index: usize,
        /// The piece.
        fragment: String,
    },
}

impl Added {
    /// The text that it adds to the answer; empty for reasoning and calls.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Added::Text(text) => text,
            _ => "",
        }
    }

    pub(crate) fn of(delta: &Delta) -> Option<Added> {
        match delta.clone() {
            Delta::Text(text) => Some(Added::Text(text)),
            Delta::Reasoning(text) => Some(Added::Reasoning(text)),
            Delta::CallBegin { index, name, .. } => Some(Added::Call { index, name }),
            Delta::CallArguments { index, fragment } => Some(Added::Arguments { index, fragment }),
            _ => None,
        }
    }
}

/// Asks `scheduler` for an answer to `request` and waits for it. `on_added` gets each piece as it comes, on this thread. Any number
/// of threads may ask at once; they are computed together.
///
/// # Errors
/// For a request of the wrong form, one that the model's template refuses, a format that cannot be enforced, a prompt that does
/// not fit the context, and where the scheduler has no room; [`cactus_engine::Error::kind`] tells them apart.
///
/// # Examples
/// An answer that follows a schema:
/// ```
/// # use cactus::{LoadOptions, Model, Scheduler, SchedulerLimits};
/// use cactus::{ChatRequest, GenerateOptions, Grammar, answer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let made = tempfile::tempdir()?;
/// # let folder = made.path().join("bundle");
/// # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/qwen2_tied");
/// # cactus_import::convert(source.as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
/// # let scheduler = Scheduler::new(Model::load(&folder, &LoadOptions::default())?, SchedulerLimits::default())?;
/// let request = ChatRequest {
///     messages: vec![serde_json::json!({"role": "user", "content": "Is the sky blue?"})],
///     format: Some(Grammar::json_schema(serde_json::json!({"enum": ["yes", "no"]}))),
///     ..ChatRequest::default()
/// };
/// let answer = answer(&scheduler, &request, GenerateOptions::default(), &mut |_| {})?;
/// assert!(["\"yes\"", "\"no\""].contains(&answer.message.text.as_str()));
/// # Ok(())
/// # }
/// ```
pub fn answer(
    scheduler: &Scheduler,
    request: &ChatRequest,
    options: GenerateOptions,
    on_added: &mut dyn FnMut(&Added),
) -> Result<Answer> {
    answer_until(scheduler, request, options, &CancelToken::new(), on_added)
}

/// As [`answer`], until `cancel` stops it from any thread, within a token. What came until then is the answer, and its completion's
/// `finish_reason` says that it was stopped.
///
/// # Errors
/// As [`answer`].
pub fn answer_until(
    scheduler: &Scheduler,
    request: &ChatRequest,
    options: GenerateOptions,
    cancel: &CancelToken,
    on_added: &mut dyn FnMut(&Added),
) -> Result<Answer> {
    let mut chat = Chat::new(scheduler.model(), request)?;
    let mut asked = chat.request(options);
    asked.cancel = cancel.clone();
    let (mut message, mut deltas) = (Message::default(), Vec::new());
    let mut tell = |deltas: &mut Vec<Delta>| {
        for delta in deltas.drain(..) {
            if let Some(added) = Added::of(&delta) {
                on_added(&added);
            }
            message.add(delta);
        }
    };
    let completion = scheduler.generate(asked, &mut |event| {
        if let Event::Delta(piece) = event {
            chat.reader.push(&piece.text, piece.special.as_deref(), &mut deltas);
            tell(&mut deltas);
        }
    })?;
    chat.reader.finish(&mut deltas);
    tell(&mut deltas);
    Ok(Answer {
        message,
        completion,
        notes: chat.notes,
    })
}
