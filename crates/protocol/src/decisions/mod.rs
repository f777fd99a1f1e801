//! Decisions: questions about one input, each answered with the probabilities of what may be answered. Nothing is generated.
//!
//! A question becomes a prompt by the model's chat template, the input first, so that all questions share its computation. How
//! likely each answer is to come next is [`Choices`]' work.
//!
//! What makes a model's probabilities come true is learned for a bundle ([`Calibration`]).
//!
//! [`decide`] waits for the scheduler, so it runs on a thread that may wait.

mod calibration;

pub use calibration::{Calibration, Fitted, LIMIT};

use crate::answers::Cancel;
use crate::{ApiError, Kind as ErrorKind, Usage, api_error};
use cactus_engine::chat::{Chat, ChatRequest};
use cactus_engine::choices::{Choices, mass};
use cactus_engine::scheduler::{self, Scheduler};
use cactus_engine::{CancelToken, Completion, Error, FinishReason, Model};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most computations that a request has under way; the others wait for them, so that one request with hundreds of questions
/// leaves places for other people's.
const UNDERWAY: usize = 16;

/// Questions about an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Decide {
    /// The model, as the client calls it.
    pub model: String,
    /// What the questions are about.
    pub input: String,
    /// The questions.
    pub questions: Vec<Question>,
}

/// What kind of answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whether something is true; the choices are yes and no.
    Predicate,
    /// One of the choices.
    Choice,
    /// A level; the choices are the levels from the lowest.
    Score,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What the client calls it.
    pub name: Option<String>,
    /// What to decide.
    pub instructions: String,
    /// What is wanted.
    pub kind: Kind,
    /// What may be answered, at least two.
    pub choices: Vec<Choice>,
}

/// What may be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What the client gets: text, or a truth value.
    pub value: Value,
    /// What the model would write.
    pub text: String,
    /// What it means.
    pub description: Option<String>,
    /// Where the request has it, for errors.
    pub path: String,
}

/// The answers to [`Decide`].
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// In the order of the questions.
    pub answers: Vec<Answer>,
    /// Tokens that were read.
    pub usage: Usage,
    /// Whether the probabilities of all were fitted to how often the model is right.
    pub calibrated: bool,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Of the choices, in their order; they add up to 1.
    pub probabilities: Vec<f64>,
    /// Their natural logarithms as the model gives them, of all that it could write.
    pub logprobs: Vec<f64>,
    /// What the choices have of all that the model could write, 0 to 1.
    pub mass: f64,
}

impl Answer {
    /// The likeliest choice, the first of equal ones.
    #[must_use]
    pub fn best(&self) -> usize {
        let better = |best: usize, i: usize| match self.probabilities[i] > self.probabilities[best] {
            true => i,
            false => best,
        };
        (1..self.probabilities.len()).fold(0, better)
    }

    /// How far the likeliest of `k` choices is above chance: `(p - 1/k) / (1 - 1/k)`, from 0 where all are equal to 1 where one is
    /// certain.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        let chance = 1.0 / self.probabilities.len() as f64;
        ((self.probabilities[self.best()] - chance) / (1.0 - chance)).clamp(0.0, 1.0)
    }

    /// The mean place of the choices, from 0, weighted by their probabilities.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.probabilities.iter().enumerate().map(|(i, p)| i as f64 * p).sum()
    }
}

/// A question in the words that the model gets. The input comes first, so that questions about one input begin alike.
fn words(input: &str, question: &Question) -> String {
    let mut text =
        format!("Read the input and answer the question about it.\n\nInput:\n\"\"\"\n{input}\n\"\"\"\n\nQuestion: ");
    text.push_str(&question.instructions);
    let list = |text: &mut String| {
        for choice in &question.choices {
            let description = choice.description.as_deref().filter(|d| !d.trim().is_empty());
            let description = description.map(|d| format!(": {d}")).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = write!(text, "\n- {}{description}", choice.text);
        }
    };
    match question.kind {
        Kind::Predicate => text.push_str("\n\nReply with one word: Yes or No."),
        Kind::Choice => {
            text.push_str("\n\nPossible answers:");
            list(&mut text);
            text.push_str("\n\nReply with one of the possible answers, as it is written, and nothing else.");
        }
        Kind::Score => {
            text.push_str("\n\nLevels, from the lowest to the highest:");
            list(&mut text);
            text.push_str("\n\nReply with the level that fits best, as it is written, and nothing else.");
        }
    }
    text
}

/// The prompt of a question and the tokens of its choices.
///
/// # Errors
/// A model without a chat template, or one whose answers do not begin with their text; choices with the same tokens.
pub fn choices(model: &Model, input: &str, question: &Question, salt: u64) -> Result<Choices, ApiError> {
    let failed = |e: Error| api_error(&e, "");
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": words(input, question)})],
        reasoning: Some(false),
        salt,
        ..ChatRequest::default()
    };
    let chat = Chat::new(model, &request).map_err(failed)?;
    if !chat.begins_with_text {
        let message =
            "this model reasons before it answers and cannot be told not to; ask one whose answer comes first";
        return Err(ApiError::field("model", message).with_code("unsupported_model"));
    }
    let tokenizer = model.tokenizer().map_err(failed)?;
    let mut known = HashMap::new();
    let mut answers = Vec::with_capacity(question.choices.len());
    for choice in &question.choices {
        let tokens = tokenizer.encode(&choice.text, false).map_err(|e| failed(e.into()))?;
        let other = known.insert(tokens.clone(), &choice.text);
        if tokens.is_empty() || other.is_some() {
            let (path, text) = (&choice.path, &choice.text);
            let message = match other {
                Some(other) => {
                    format!("`{path}`: `{text}` and `{other}` are the same tokens to this model; rename one")
                }
                None => format!("`{path}`: this model has no tokens for `{text}`; rename it"),
            };
            return Err(ApiError::field(path.as_str(), message));
        }
        answers.push(tokens);
    }
    Choices::new(chat.prompt, answers).map_err(failed)
}

/// A question whose computations are under way.
struct Waiting {
    choices: Choices,
    completions: Vec<Option<Completion>>,
}

/// What comes back: which question, which of its computations, and its end.
type Back = (usize, usize, cactus_engine::Result<Completion>);

/// Asks `scheduler`'s model the questions of `request`, and makes probabilities by what was fitted to their kinds. `salt` is [`scheduler::Request::salt`].
///
/// The same questions get the same bits, whatever else is computed, by however many threads.
///
/// # Errors
/// What is wrong with the request, a queue that is full, a failed computation; [`ErrorKind::Server`] after `cancel`.
pub fn decide(
    scheduler: &Scheduler,
    request: &Decide,
    calibration: Option<&Calibration>,
    salt: u64,
    cancel: CancelToken,
) -> Result<Decided, ApiError> {
    // Whatever goes wrong, nothing goes on that nobody waits for.
    let cancel = Cancel(cancel);
    let (sender, receiver) = channel();
    let fitted = request.questions.iter().map(|q| calibration?.get(q.kind));
    let fitted: Vec<Option<Fitted>> = fitted.collect();
    let mut asking = Asking {
        scheduler,
        fitted: &fitted,
        answers: vec![None; request.questions.len()],
        usage: Usage::default(),
        waiting: BTreeMap::new(),
        underway: 0,
        sender,
        receiver,
    };
    for (index, question) in request.questions.iter().enumerate() {
        let choices = choices(scheduler.model(), &request.input, question, salt)?;
        let requests: Vec<scheduler::Request> = choices.requests().collect();
        let completions = vec![None; requests.len()];
        asking.waiting.insert(index, Waiting { choices, completions });
        for (path, computed) in requests.into_iter().enumerate() {
            let computed = scheduler::Request {
                salt,
                cancel: cancel.0.clone(),
                ..computed
            };
            asking.submit(index, path, &computed)?;
        }
    }
    while asking.underway > 0 {
        asking.take()?;
    }
    let answers: Option<Vec<Answer>> = asking.answers.into_iter().collect();
    Ok(Decided {
        // Each was taken when the last of its computations ended.
        answers: answers.ok_or_else(stopped)?,
        usage: asking.usage,
        calibrated: fitted.iter().all(Option::is_some),
    })
}

fn stopped() -> ApiError {
    ApiError::new(ErrorKind::Server, "the decisions were stopped before they were made")
}

/// Questions under way.
struct Asking<'a> {
    scheduler: &'a Scheduler,
    /// What was fitted to the kind of each question.
    fitted: &'a [Option<Fitted>],
    answers: Vec<Option<Answer>>,
    usage: Usage,
    waiting: BTreeMap<usize, Waiting>,
    underway: usize,
    sender: Sender<Back>,
    receiver: Receiver<Back>,
}

impl Asking<'_> {
    fn submit(&mut self, question: usize, path: usize, request: &scheduler::Request) -> Result<(), ApiError> {
        while self.underway >= UNDERWAY {
            self.take()?;
        }
        loop {
            let sender = self.sender.clone();
            let sink = move |event| {
                if let scheduler::Event::End(result) = event {
                    // Whoever no longer listens has cancelled.
                    let _ = sender.send((question, path, result));
                }
            };
            match self.scheduler.submit(request.clone(), Box::new(sink)) {
                Ok(()) => break,
                // Places are taken by others; one of ours will be free.
                Err(Error::Busy { .. }) if self.underway > 0 => self.take()?,
                Err(e) => return Err(api_error(&e, "")),
            }
        }
        self.underway += 1;
        Ok(())
    }

    /// Takes the next end of a computation.
    fn take(&mut self) -> Result<(), ApiError> {
        let (question, path, result) = self.receiver.recv().map_err(|_| stopped())?;
        self.underway -= 1;
        let completion = result.map_err(|e| api_error(&e, ""))?;
        if completion.finish_reason == FinishReason::Cancelled {
            return Err(stopped());
        }
        self.usage.prompt_tokens += completion.prefill_tokens;
        self.usage.cached_tokens += completion.cached_tokens;
        let Some(waiting) = self.waiting.get_mut(&question) else {
            return Ok(());
        };
        waiting.completions[path] = Some(completion);
        let completions: Option<Vec<Completion>> = waiting.completions.iter().cloned().collect();
        if let Some(completions) = completions {
            let logprobs = waiting.choices.logprobs(&completions).map_err(|e| api_error(&e, ""))?;
            self.answers[question] = Some(Answer {
                probabilities: self.fitted[question].unwrap_or(Fitted::NONE).probabilities(&logprobs),
                mass: mass(&logprobs),
                logprobs,
            });
            self.waiting.remove(&question);
        }
        Ok(())
    }
}
