//! From a [`Job`] to its [`Event`]s: the prompt is made ready on a thread that may take its time, the answers are submitted to
//! the model's scheduler, and what comes back is read piece by piece.
//!
//! The scheduler's thread only puts events into a queue without limit, of at most as many entries as tokens were asked for, so
//! a slow reader holds up nobody. Whoever drops an [`Answer`] cancels it, wherever it is: waiting, in its prompt, or after.
//!
//! Several answers to one prompt compute it once: the first is submitted, and the others when its prompt is in the prefix
//! cache.

use crate::models::Lease;
use crate::protocol::{Alternative, ApiError, End, Event, Job, Kind, Prompt, Reason, Times, TokenLog};
use cactus_engine::chat::{Chat, MessageReader};
use cactus_engine::scheduler::{self, Piece};
use cactus_engine::{CancelToken, Completion, Error, ErrorKind, FinishReason, GenerateOptions, Model, TokenInfo};
use cactus_text::grammar::Constraint;
use cactus_text::tools::Delta;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Answers under way.
#[derive(Debug)]
pub(crate) struct Answer {
    lease: Lease,
    cancel: Cancel,
    sender: UnboundedSender<(usize, scheduler::Event)>,
    receiver: UnboundedReceiver<(usize, scheduler::Event)>,
    ready: Vec<Ready>,
    choices: Vec<Choice>,
    choices_of_prompt: usize,
    salt: u64,
    running: usize,
    pending: VecDeque<(usize, Event)>,
    started: Instant,
    load: Duration,
}

/// Cancels when it is dropped.
#[derive(Debug)]
struct Cancel(CancelToken);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A prompt that is ready to be submitted.
#[derive(Debug)]
struct Ready {
    tokens: Vec<u32>,
    constraint: Option<Constraint>,
    reader: Option<MessageReader>,
    options: GenerateOptions,
    notes: Vec<String>,
    keep_special: bool,
    score_prompt: bool,
}

#[derive(Debug)]
struct Choice {
    reader: Option<MessageReader>,
    reasoning: bool,
    reasoning_tokens: usize,
    prompt_done: Option<Instant>,
    ended: bool,
}

/// An error of the engine as a client sees it. `format_field` is where the request said what the answer must follow.
pub(crate) fn api_error(error: &Error, format_field: &str) -> ApiError {
    match error {
        Error::Request { field, message } => {
            let field = if field == "format" { format_field } else { field };
            ApiError::field(field, format!("`{field}`: {message}"))
        }
        Error::Busy { retry_after, .. } => ApiError::new(Kind::Busy, error.to_string()).with_retry_after(*retry_after),
        Error::PromptTooLong { .. } => {
            ApiError::new(Kind::Invalid, error.to_string()).with_code("context_length_exceeded")
        }
        Error::Option(wrong) => wrong.clone().into(),
        Error::Shared(error) => api_error(error, format_field),
        other => match other.kind() {
            ErrorKind::Argument | ErrorKind::ContextFull | ErrorKind::Text => {
                ApiError::new(Kind::Invalid, other.to_string())
            }
            _ => ApiError::new(Kind::Server, other.to_string()),
        },
    }
}

/// Counts the tokens of a job's prompts.
///
/// # Errors
/// As [`Answer::start`].
pub(crate) async fn count_tokens(job: Job, lease: &Lease, format_field: &'static str) -> Result<usize, ApiError> {
    let model = Arc::clone(lease.model().scheduler.model());
    let counted = blocking(move || {
        let counts = job.prompts.into_iter().map(|prompt| {
            let ready = prepare(&model, prompt, &job.spec, usize::MAX, format_field)?;
            Ok(ready.tokens.len())
        });
        counts.sum()
    });
    counted.await
}

impl Answer {
    /// Makes the prompts of `job` ready and submits them.
    ///
    /// # Errors
    /// What is wrong with the request; [`Kind::Busy`] where too many wait already.
    pub(crate) async fn start(
        job: Job,
        lease: Lease,
        salt: u64,
        load: Duration,
        format_field: &'static str,
    ) -> Result<Answer, ApiError> {
        let started = Instant::now();
        let model = Arc::clone(lease.model().scheduler.model());
        let choices_of_prompt = job.choices.max(1);
        let context = model.program().context_tokens();
        let ready = blocking(move || {
            let prompts = job.prompts.into_iter();
            prompts
                .map(|prompt| prepare(&model, prompt, &job.spec, context, format_field))
                .collect::<Result<Vec<_>, _>>()
        });
        let ready = ready.await?;
        let choices = ready.iter().flat_map(|ready| {
            (0..choices_of_prompt).map(|_| Choice {
                reader: ready.reader.clone(),
                reasoning: false,
                reasoning_tokens: 0,
                prompt_done: None,
                ended: false,
            })
        });
        let (sender, receiver) = unbounded_channel();
        let mut answer = Answer {
            lease,
            cancel: Cancel(CancelToken::new()),
            sender,
            receiver,
            choices: choices.collect(),
            choices_of_prompt,
            salt,
            running: 0,
            pending: VecDeque::new(),
            started,
            load,
            ready,
        };
        for prompt in 0..answer.ready.len() {
            answer.submit(prompt * choices_of_prompt, format_field)?;
        }
        Ok(answer)
    }

    /// The model that answers.
    #[must_use]
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    fn submit(&mut self, choice: usize, format_field: &str) -> Result<(), ApiError> {
        let ready = &self.ready[choice / self.choices_of_prompt];
        let mut options = ready.options.clone();
        // The same seed would give the same answer several times.
        let nth = (choice % self.choices_of_prompt) as u64;
        options.seed = options.seed.map(|seed| seed.wrapping_add(nth));
        let request = scheduler::Request {
            constraint: ready.constraint.clone(),
            keep_special: ready.keep_special,
            salt: self.salt,
            cancel: self.cancel.0.clone(),
            score_prompt: ready.score_prompt,
            ..scheduler::Request::new(ready.tokens.clone(), options)
        };
        let sender = self.sender.clone();
        let sink = Box::new(move |event| drop(sender.send((choice, event))));
        let submitted = self.lease.model().scheduler.submit(request, sink);
        submitted.map_err(|e| api_error(&e, format_field))?;
        self.running += 1;
        Ok(())
    }

    /// The next event; `None` after all answers have ended.
    ///
    /// # Errors
    /// How an answer failed; nothing follows.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            if self.running == 0 {
                return Ok(None);
            }
            match self.receiver.recv().await {
                Some((choice, event)) => self.take(choice, event)?,
                None => return Err(ApiError::new(Kind::Server, "the scheduler has stopped after a failure")),
            }
        }
    }

    /// The next event if it is there already.
    ///
    /// # Errors
    /// As [`Answer::next`].
    pub(crate) fn next_now(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.receiver.try_recv() {
                Ok((choice, event)) => self.take(choice, event)?,
                Err(_) => return Ok(None),
            }
        }
    }

    fn take(&mut self, index: usize, event: scheduler::Event) -> Result<(), ApiError> {
        match event {
            scheduler::Event::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                self.choices[index].prompt_done = Some(Instant::now());
                if index.is_multiple_of(self.choices_of_prompt) {
                    for other in index + 1..index + self.choices_of_prompt {
                        self.submit(other, "")?;
                    }
                }
                let event = Event::Started {
                    prompt_tokens,
                    cached_tokens,
                };
                self.pending.push_back((index, event));
            }
            scheduler::Event::Delta(piece) => self.piece(index, piece),
            scheduler::Event::End(Ok(completion)) => self.ended(index, &completion),
            scheduler::Event::End(Err(error)) => return Err(api_error(&error, "")),
        }
        Ok(())
    }

    fn piece(&mut self, index: usize, piece: Piece) {
        if let Some(info) = &piece.logprob {
            let token = token_log(self.lease.model().scheduler.model(), info);
            self.pending.push_back((index, Event::Token(token)));
        }
        let choice = &mut self.choices[index];
        let mut deltas = Vec::new();
        match &mut choice.reader {
            Some(reader) => reader.push(&piece.text, piece.special.as_deref(), &mut deltas),
            None => {
                let text = piece.text + piece.special.as_deref().unwrap_or_default();
                deltas.extend((!text.is_empty()).then_some(Delta::Text(text)));
            }
        }
        if let Some(last) = deltas.last() {
            choice.reasoning = matches!(last, Delta::Reasoning(_));
        }
        choice.reasoning_tokens += usize::from(choice.reasoning && piece.token.is_some());
        self.pending
            .extend(deltas.into_iter().map(|delta| (index, Event::Delta(delta))));
    }

    fn ended(&mut self, index: usize, completion: &Completion) {
        let now = Instant::now();
        let choice = &mut self.choices[index];
        let mut deltas = Vec::new();
        if let Some(reader) = &mut choice.reader {
            reader.finish(&mut deltas);
        }
        choice.ended = true;
        self.running -= 1;
        self.pending
            .extend(deltas.into_iter().map(|delta| (index, Event::Delta(delta))));
        let reason = match (&completion.finish_reason, &completion.stop) {
            (FinishReason::Stop, Some(stop)) => Reason::StopString(stop.clone()),
            (FinishReason::Stop, None) => Reason::Stop,
            (FinishReason::Cancelled, _) => Reason::Cancelled,
            _ => Reason::Length,
        };
        let prompt_done = choice.prompt_done.unwrap_or(now);
        let notes = match index.is_multiple_of(self.choices_of_prompt) {
            true => std::mem::take(&mut self.ready[index / self.choices_of_prompt].notes),
            false => Vec::new(),
        };
        if let Some(&first) = self.ready[index / self.choices_of_prompt].tokens.first()
            && self.ready[index / self.choices_of_prompt].score_prompt
        {
            let model = self.lease.model().scheduler.model();
            let alone = TokenInfo {
                token: first,
                text: String::new(),
                logprob: f64::NAN,
                top: Vec::new(),
            };
            let first = token_log(model, &alone).token;
            let scored = completion.prompt_logprobs.iter().map(|t| token_log(model, t)).collect();
            self.pending.push_back((index, Event::Prompt { first, scored }));
        }
        let end = End {
            reason,
            completion_tokens: completion.decode_tokens,
            reasoning_tokens: choice.reasoning_tokens.min(completion.decode_tokens),
            times: Times {
                load: self.load,
                prompt: prompt_done.duration_since(self.started),
                answer: now.duration_since(prompt_done),
            },
            notes,
        };
        self.pending.push_back((index, Event::End(end)));
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(ApiError::new(
            Kind::Server,
            format!("the prompt cannot be made ready: {e}"),
        )),
    }
}

/// Makes a prompt ready. This renders templates, tokenizes and compiles grammars, which takes its time.
fn prepare(
    model: &Model,
    prompt: Prompt,
    spec: &crate::protocol::Spec,
    context_tokens: usize,
    format_field: &str,
) -> Result<Ready, ApiError> {
    let failed = |e: Error| api_error(&e, format_field);
    let mut ready = Ready {
        tokens: Vec::new(),
        constraint: None,
        reader: None,
        options: GenerateOptions::default(),
        notes: Vec::new(),
        keep_special: spec.keep_special,
        score_prompt: spec.score_prompt,
    };
    match prompt {
        Prompt::Chat(request) => {
            let chat = Chat::new(model, &request).map_err(failed)?;
            ready.tokens = chat.prompt;
            ready.constraint = chat.constraint;
            ready.notes = chat.notes;
            ready.reader = Some(chat.reader);
            ready.keep_special = true;
        }
        Prompt::Text(text) => {
            let tokenizer = model.tokenizer().map_err(failed)?;
            ready.tokens = tokenizer.encode(&text, true).map_err(|e| failed(e.into()))?;
        }
        Prompt::Tokens(ids) => {
            let vocab = model.vocab_size();
            if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
                let message = format!("the token id {id} is not below {vocab}, the size of the model's vocabulary");
                return Err(ApiError::new(Kind::Invalid, message));
            }
            ready.tokens = ids;
        }
    }
    let room = context_tokens.saturating_sub(ready.tokens.len());
    ready.options = spec.over(model.default_options(), room)?;
    Ok(ready)
}

/// A token's log-probabilities with the texts of tokens.
fn token_log(model: &Model, info: &TokenInfo) -> TokenLog {
    let tokenizer = model.tokenizer().ok();
    let alternative = |id: u32, logprob: f64| {
        let bytes = tokenizer.and_then(|t| t.token_bytes(id)).unwrap_or_default();
        Alternative {
            id,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
            logprob,
        }
    };
    TokenLog {
        token: alternative(info.token, info.logprob),
        top: info.top.iter().map(|t| alternative(t.token, t.logprob)).collect(),
    }
}
