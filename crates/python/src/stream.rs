//! An answer under way: what the OpenAI API sends of it, as it comes.

use crate::policy::{Came, Fresh, Routed, decision};
use crate::{TICK, errors, live};
use cactus_engine::{CancelToken, Completion, Model, scheduler};
use cactus_protocol::{Answers, ApiError, Encoder, End, Event, Frame, Kind, Reading, Reason, Times};
use cactus_router::Kept;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What comes from the threads of the engine.
pub(crate) type Delivery = (usize, scheduler::Event);

/// Who makes the answer.
pub(crate) enum Source {
    /// The scheduler, together with others.
    Scheduled(Box<Answers>),
    /// A session.
    Alone(Box<Alone>),
    /// The router: this model, or a target of a policy.
    Routed(Box<Routed>),
}

/// An answer that a session makes.
pub(crate) struct Alone {
    pub(crate) model: Arc<Model>,
    pub(crate) reading: Reading,
    pub(crate) notes: Vec<String>,
    pub(crate) pending: VecDeque<(usize, Event)>,
    pub(crate) is_over: bool,
}

impl Alone {
    fn take(&mut self, event: scheduler::Event) -> Result<(), ApiError> {
        let mut events = Vec::new();
        match event {
            scheduler::Event::Started {
                prompt_tokens,
                cached_tokens,
            } => events.push(Event::Started {
                prompt_tokens,
                cached_tokens,
            }),
            scheduler::Event::Delta(piece) => self.reading.piece(&self.model, piece, &mut events),
            scheduler::Event::End(Ok(completion)) => {
                self.is_over = true;
                let notes = std::mem::take(&mut self.notes);
                self.reading.end(&completion, times(&completion), notes, &mut events);
            }
            scheduler::Event::End(Err(error)) => return Err(cactus_protocol::api_error(&error, "response_format")),
        }
        self.pending.extend(events.into_iter().map(|event| (0, event)));
        Ok(())
    }
}

fn times(completion: &Completion) -> Times {
    let ms = |ms: f64| std::time::Duration::from_secs_f64(ms.max(0.0) / 1e3);
    let first = completion.time_to_first_token_ms;
    Times {
        prompt: ms(first),
        answer: ms(completion.total_time_ms - first),
        ..Times::default()
    }
}

impl Source {
    fn take(&mut self, (index, event): Delivery) -> Result<(), ApiError> {
        match self {
            Source::Scheduled(answers) => answers.take(index, event),
            Source::Alone(alone) => alone.take(event),
            Source::Routed(_) => Ok(()),
        }
    }

    fn next(&mut self) -> Option<(usize, Event)> {
        match self {
            Source::Scheduled(answers) => answers.next_event(),
            Source::Alone(alone) => alone.pending.pop_front(),
            Source::Routed(_) => None,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Source::Scheduled(answers) => answers.is_over(),
            Source::Alone(alone) => alone.is_over && alone.pending.is_empty(),
            Source::Routed(routed) => routed.decision().is_some(),
        }
    }
}

struct State {
    source: Source,
    /// The answer is read as it comes.
    stream: bool,
    /// Whoever reads it is told who answers, and that what was said is void.
    events: bool,
    fresh: Option<Fresh>,
    cancel: CancelToken,
    /// What is recorded of the answer when it ends, where a policy would have decided about another.
    kept: Option<Kept>,
    /// What was recorded so.
    decided: Option<Value>,
    receiver: Receiver<Delivery>,
    encoder: Box<dyn Encoder>,
    frames: Vec<Frame>,
    ends: Vec<(usize, End)>,
    over: bool,
    first: Option<Instant>,
}

/// What a wait brought.
enum Got {
    Frames(Vec<String>),
    Over,
    Waiting,
    /// A person has to be asked.
    Ask(String),
}

/// A frame about the answer, which is none of the API.
fn told(event: &Value) -> Frame {
    Frame::data(&json!({"choices": [], "cactus": event}))
}

impl State {
    /// Waits up to a tick for something to send.
    fn advance(&mut self) -> Result<Got, ApiError> {
        if self.frames.is_empty() {
            if self.over {
                return Ok(Got::Over);
            }
            if let Source::Routed(_) = self.source {
                return self.advance_routed();
            }
            match self.receiver.recv_timeout(TICK) {
                Ok(delivery) => self.take(delivery)?,
                Err(RecvTimeoutError::Timeout) => return Ok(Got::Waiting),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ApiError::new(Kind::Server, "the engine has stopped after a failure"));
                }
            }
            while !self.over
                && let Ok(delivery) = self.receiver.try_recv()
            {
                self.take(delivery)?;
            }
        }
        Ok(self.got())
    }

    fn got(&mut self) -> Got {
        match self.frames.is_empty() {
            true if self.over => Got::Over,
            true => Got::Waiting,
            false => Got::Frames(self.frames.drain(..).map(|frame| frame.data).collect()),
        }
    }

    fn advance_routed(&mut self) -> Result<Got, ApiError> {
        let Source::Routed(routed) = &mut self.source else {
            return Ok(Got::Waiting);
        };
        if self.cancel.is_cancelled() {
            routed.cancel();
        }
        let given = self.stream && !self.events;
        match routed.next(TICK, given).inspect_err(|_| self.over = true)? {
            Came::Said(event) => self.said(0, event),
            Came::Void(void) => {
                if let Some(encoder) = self.fresh.as_ref().and_then(|fresh| fresh()) {
                    (self.encoder, self.frames) = (encoder, Vec::new());
                    self.first = None;
                }
                if self.events {
                    self.frames.push(told(&json!({"event": "replaced", "void": void})));
                }
            }
            Came::Ask(question) => return Ok(Got::Ask(question)),
            Came::Source if self.events => {
                if let Some(source) = routed.source() {
                    self.frames.push(told(&json!({"event": "source", "source": source})));
                }
            }
            Came::Source | Came::Nothing => {}
            Came::Over => {
                self.over = true;
                self.encoder.end(&mut self.frames);
            }
        }
        Ok(self.got())
    }

    fn said(&mut self, choice: usize, event: Event) {
        if matches!(event, Event::Delta(_)) {
            self.first.get_or_insert_with(Instant::now);
            self.kept.iter().for_each(Kept::begins);
        }
        self.encoder.event(choice, &event, &mut self.frames);
        if let Event::End(end) = event {
            self.ends.push((choice, end));
        }
    }

    fn take(&mut self, delivery: Delivery) -> Result<(), ApiError> {
        if let Err(error) = self.source.take(delivery) {
            self.over = true;
            return Err(error);
        }
        while let Some((choice, event)) = self.source.next() {
            self.said(choice, event);
        }
        if self.source.is_over() {
            self.over = true;
            self.decided = self.kept.take().map(|kept| decision(&kept.answered()));
            self.encoder.end(&mut self.frames);
        }
        Ok(())
    }
}

/// Answers to one request. Dropping it cancels them.
#[pyclass(frozen, weakref, module = "cactus._native")]
pub(crate) struct Stream {
    state: Mutex<State>,
    cancel: CancelToken,
    _answer: live::Answer,
    begun: Instant,
    /// Asks a person.
    ask: Option<Py<PyAny>>,
}

impl Stream {
    pub(crate) fn new(
        model: (u64, &str),
        source: Source,
        receiver: Receiver<Delivery>,
        mut encoder: Box<dyn Encoder>,
        cancel: CancelToken,
        begun: Instant,
    ) -> Stream {
        let mut frames = Vec::new();
        encoder.begin(model.1, &mut frames);
        Stream {
            state: Mutex::new(State {
                source,
                stream: false,
                events: false,
                fresh: None,
                cancel: cancel.clone(),
                kept: None,
                decided: None,
                receiver,
                encoder,
                frames,
                ends: Vec::new(),
                over: false,
                first: None,
            }),
            _answer: live::Answer::new(model.0, cancel.clone()),
            cancel,
            begun,
            ask: None,
        }
    }

    /// This stream, of the router: `stream` says whether it is read as it comes, `fresh` makes its encoder anew, and `ask` is
    /// asked what may leave.
    pub(crate) fn routed(mut self, stream: bool, fresh: Fresh, ask: Option<Py<PyAny>>) -> Stream {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.stream = stream;
        state.fresh = Some(fresh);
        self.ask = ask;
        self
    }

    /// This stream, whose answer is recorded when it ends.
    pub(crate) fn kept_here(mut self, kept: Option<Kept>) -> Stream {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).kept = kept;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next frames; `None` after the last.
    fn pull(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        live::check(py)?;
        loop {
            match live::outside(py, || self.state().advance()) {
                Ok(Got::Frames(frames)) => return Ok(Some(frames)),
                Ok(Got::Over) => return Ok(None),
                Ok(Got::Waiting) => {}
                Ok(Got::Ask(question)) => {
                    let ask = |ask: &Py<PyAny>| -> PyResult<Option<bool>> {
                        let yes = ask.call1(py, (question,))?;
                        // `None` is nobody's answer.
                        Ok(if yes.is_none(py) {
                            None
                        } else {
                            Some(yes.is_truthy(py)?)
                        })
                    };
                    // What the function raises is raised here, and nothing leaves.
                    let yes = self.ask.as_ref().map(ask).transpose();
                    let yes = yes.inspect_err(|_| self.cancel.cancel())?.flatten();
                    if let Source::Routed(routed) = &mut self.state().source {
                        routed.consent(yes);
                    }
                }
                Err(error) => return Err(errors::of_api(py, &error)),
            }
            py.check_signals().inspect_err(|_| self.cancel.cancel())?;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[pymethods]
impl Stream {
    /// The next frames as JSON, at least one; `None` after the last. Waits without the interpreter.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        self.pull(py)
    }

    /// Frames say who answers, and that what was said is void, from here on: `cactus` of a frame without choices.
    fn tell_events(&self) {
        self.state().events = true;
    }

    /// Waits for the end: the whole answer as JSON.
    fn whole(&self, py: Python<'_>) -> PyResult<String> {
        while self.pull(py)?.is_some() {}
        Ok(self.state().encoder.whole().to_string())
    }

    /// What is known of each answer after its end beside what the API says, as JSON: a list in the order of the choices.
    fn ends(&self) -> String {
        let mut state = self.state();
        state.ends.sort_by_key(|(choice, _)| *choice);
        let first = state
            .first
            .map(|first| first.duration_since(self.begun).as_secs_f64() * 1e3);
        let ends = state.ends.iter().map(|(_, end)| {
            let (reason, stop) = match &end.reason {
                Reason::Stop => ("stop", None),
                Reason::StopString(text) => ("stop", Some(text)),
                Reason::Length => ("length", None),
                Reason::Cancelled => ("cancelled", None),
            };
            json!({
                "finish_reason": reason,
                "stop": stop,
                "token_ids": end.token_ids,
                "seed": end.seed,
                "completion_tokens": end.completion_tokens,
                "reasoning_tokens": end.reasoning_tokens,
                "time_to_first_token_ms": first,
                "prompt_ms": end.times.prompt.as_secs_f64() * 1e3,
                "answer_ms": end.times.answer.as_secs_f64() * 1e3,
                "notes": end.notes,
            })
        });
        Value::from_iter(ends).to_string()
    }

    /// Who answers and why, as JSON, from the first piece on; `None` before, and without a policy.
    fn source(&self) -> Option<String> {
        let state = self.state();
        match &state.source {
            Source::Routed(routed) => routed.source().map(|source| source.to_string()),
            _ => match (&state.decided, &state.kept) {
                (Some(decided), _) => Some(decided.to_string()),
                (None, kept) => kept.as_ref().map(|kept| decision(&kept.answered()).to_string()),
            },
        }
    }

    /// What the router decided, as JSON, after the end; `None` without a policy.
    fn decision(&self) -> Option<String> {
        let state = self.state();
        let decided = match &state.source {
            Source::Routed(routed) => routed.decision(),
            _ => state.decided.clone(),
        };
        decided.map(|decided| decided.to_string())
    }

    /// Ends the answers within a token, from any thread.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}
