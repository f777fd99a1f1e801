//! From a [`Job`] to its [`Event`]s: prompts are made ready, the answers are submitted to the model's scheduler, and what comes
//! back is read piece by piece.
//!
//! How events travel from the scheduler's thread is the caller's: [`Deliver`] takes them there, and the caller hands each to
//! [`Answers::take`]. Whoever drops [`Answers`] cancels them, wherever they are: waiting, in their prompt, or after.
//!
//! Several answers to one prompt compute it once: the first is submitted, and the others when its prompt is in the prefix
//! cache.

use crate::reading::{Reading, alternative, token_log};
use crate::{ApiError, Event, Job, Kind, Prompt, Spec, Times};
use cactus_engine::chat::{Chat, ChatRequest, MessageReader};
use cactus_engine::{CancelToken, Completion, Error, ErrorKind, Model, Scheduler, scheduler};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Takes what happens to answer `.0` from the scheduler's thread to whoever owns the [`Answers`]. It must not wait.
pub type Deliver = Arc<dyn Fn(usize, scheduler::Event) + Send + Sync>;

/// Answers under way.
pub struct Answers {
    scheduler: Arc<Scheduler>,
    cancel: Cancel,
    deliver: Deliver,
    ready: Vec<Ready>,
    choices: Vec<Choice>,
    choices_of_prompt: usize,
    running: usize,
    pending: VecDeque<(usize, Event)>,
    started: Instant,
    load: Duration,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

/// Cancels when it is dropped.
#[derive(Debug)]
pub(crate) struct Cancel(pub(crate) CancelToken);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A prompt that is ready to be computed.
#[derive(Debug)]
pub struct Ready {
    /// What the scheduler is asked.
    pub request: scheduler::Request,
    /// Reads the answer; `None` where all of it is text.
    pub reader: Option<MessageReader>,
    /// What the caller should know.
    pub notes: Vec<String>,
}

#[derive(Debug)]
struct Choice {
    reading: Reading,
    prompt_done: Option<Instant>,
}

/// An error of the engine as a client sees it. `format_field` is where the request said what the answer must follow.
#[must_use]
pub fn api_error(error: &Error, format_field: &str) -> ApiError {
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

impl Ready {
    /// Makes a prompt ready. This renders templates, tokenizes and compiles grammars, which takes its time. `salt` is
    /// [`scheduler::Request::salt`].
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn new(
        model: &Model,
        prompt: Prompt,
        spec: &Spec,
        context_tokens: usize,
        salt: u64,
        format_field: &str,
    ) -> Result<Ready, ApiError> {
        let failed = |e: Error| api_error(&e, format_field);
        let options = |prompt: &[u32]| {
            let room = context_tokens.saturating_sub(prompt.len());
            spec.over(model.default_options(), room)
        };
        let ids = match prompt {
            Prompt::Chat(request) => {
                let request = ChatRequest { salt, ..*request };
                let chat = Chat::new(model, &request).map_err(failed)?;
                return Ok(Ready {
                    request: chat.request(options(&chat.prompt)?),
                    reader: Some(chat.reader),
                    notes: chat.notes,
                });
            }
            Prompt::Text(text) => {
                let tokenizer = model.tokenizer().map_err(failed)?;
                tokenizer.encode(&text, true).map_err(|e| failed(e.into()))?
            }
            Prompt::Tokens(ids) => {
                let vocab = model.vocab_size();
                if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
                    let message = format!("the token id {id} is not below {vocab}, the size of the model's vocabulary");
                    return Err(ApiError::new(Kind::Invalid, message));
                }
                ids
            }
        };
        let options = options(&ids)?;
        let request = scheduler::Request {
            keep_special: spec.keep_special,
            score_from: spec.score_prompt.then_some(1),
            salt,
            ..scheduler::Request::new(ids, options)
        };
        Ok(Ready {
            request,
            reader: None,
            notes: Vec::new(),
        })
    }
}

impl Answers {
    /// Submits answers to prompts that are ready, `choices_of_prompt` to each. `load` is how long the model took to load, for the times that the answers report, which begin at `started`.
    ///
    /// # Errors
    /// What is wrong with the request; [`Kind::Busy`] where too many wait already.
    pub fn submit(
        scheduler: Arc<Scheduler>,
        ready: Vec<Ready>,
        choices_of_prompt: usize,
        (started, load): (Instant, Duration),
        deliver: Deliver,
    ) -> Result<Answers, ApiError> {
        let choices_of_prompt = choices_of_prompt.max(1);
        let choices = ready.iter().flat_map(|ready| {
            (0..choices_of_prompt).map(|_| Choice {
                reading: Reading::new(ready.reader.clone()),
                prompt_done: None,
            })
        });
        let mut answers = Answers {
            scheduler,
            cancel: Cancel(CancelToken::new()),
            deliver,
            choices: choices.collect(),
            choices_of_prompt,
            running: 0,
            pending: VecDeque::new(),
            started,
            load,
            ready,
        };
        for prompt in 0..answers.ready.len() {
            answers.submit_one(prompt * choices_of_prompt)?;
        }
        Ok(answers)
    }

    /// Makes every prompt of `job` ready, as [`Ready::new`].
    ///
    /// # Errors
    /// As [`Ready::new`].
    pub fn prepare(
        model: &Model,
        job: Job,
        context_tokens: usize,
        salt: u64,
        format_field: &str,
    ) -> Result<Vec<Ready>, ApiError> {
        let prompts = job.prompts.into_iter();
        prompts
            .map(|prompt| Ready::new(model, prompt, &job.spec, context_tokens, salt, format_field))
            .collect()
    }

    /// Ends the answers from any thread.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.0.clone()
    }

    /// Whether all answers have ended and every event was given out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running == 0 && self.pending.is_empty()
    }

    /// The next event of what [`Answers::take`] took.
    pub fn next_event(&mut self) -> Option<(usize, Event)> {
        self.pending.pop_front()
    }

    fn submit_one(&mut self, choice: usize) -> Result<(), ApiError> {
        let mut request = self.ready[choice / self.choices_of_prompt].request.clone();
        // The same seed would give the same answer several times.
        let nth = (choice % self.choices_of_prompt) as u64;
        request.options.seed = request.options.seed.map(|seed| seed.wrapping_add(nth));
        request.cancel = self.cancel.0.clone();
        let deliver = Arc::clone(&self.deliver);
        let sink = Box::new(move |event| deliver(choice, event));
        let submitted = self.scheduler.submit(request, sink);
        submitted.map_err(|e| api_error(&e, ""))?;
        self.running += 1;
        Ok(())
    }

    /// Takes what was delivered; [`Answers::next_event`] has what came of it.
    ///
    /// # Errors
    /// How an answer failed; nothing follows.
    pub fn take(&mut self, index: usize, event: scheduler::Event) -> Result<(), ApiError> {
        match event {
            scheduler::Event::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                self.choices[index].prompt_done = Some(Instant::now());
                if index.is_multiple_of(self.choices_of_prompt) {
                    for other in index + 1..index + self.choices_of_prompt {
                        self.submit_one(other)?;
                    }
                }
                let event = Event::Started {
                    prompt_tokens,
                    cached_tokens,
                };
                self.pending.push_back((index, event));
            }
            scheduler::Event::Delta(piece) => {
                let mut events = Vec::new();
                let reading = &mut self.choices[index].reading;
                reading.piece(self.scheduler.model(), piece, &mut events);
                self.pending.extend(events.into_iter().map(|event| (index, event)));
            }
            scheduler::Event::End(Ok(completion)) => self.ended(index, &completion),
            scheduler::Event::End(Err(error)) => return Err(api_error(&error, "")),
        }
        Ok(())
    }

    fn ended(&mut self, index: usize, completion: &Completion) {
        let now = Instant::now();
        self.running -= 1;
        let ready = &mut self.ready[index / self.choices_of_prompt];
        let notes = match index.is_multiple_of(self.choices_of_prompt) {
            true => std::mem::take(&mut ready.notes),
            false => Vec::new(),
        };
        let mut events = Vec::new();
        let model = self.scheduler.model();
        if let Some(&first) = ready
            .request
            .prompt
            .first()
            .filter(|_| ready.request.score_from.is_some())
        {
            let first = alternative(model, first, f64::NAN);
            let scored = completion.prompt_logprobs.iter().map(|t| token_log(model, t)).collect();
            events.push(Event::Prompt { first, scored });
        }
        let choice = &mut self.choices[index];
        let prompt_done = choice.prompt_done.unwrap_or(now);
        let times = Times {
            load: self.load,
            prompt: prompt_done.duration_since(self.started),
            answer: now.duration_since(prompt_done),
        };
        choice.reading.end(completion, times, notes, &mut events);
        self.pending.extend(events.into_iter().map(|event| (index, event)));
    }
}
