//! Requests of our own API: streamed to a function of the caller, or kept until the caller asks.
//!
//! Each request has a thread that follows it, so that a slow function of the caller delays nobody else, and what was asked is
//! finished whether somebody listens or not. Where there are no threads (WebAssembly), whoever asks for the next event, waits or
//! closes does what that thread would do, one step after the other. It deliberately does not know what a conversation is, or a
//! recording: what is done is a [`Run`].

use crate::answer::{self, Answer, Follow, Step};
use crate::asked::Asked;
use crate::callback::{UserData, Waiting, call, follow};
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::loaded::{Loaded, MODELS, Work};
use crate::output::{c_string, owned, put_required};
use crate::types::{EventKind, cactus_event, cactus_event_callback, cactus_model, cactus_request};
use crate::underway::{self, Stop};
use crate::{guard, input};
use cactus_engine::chat::Delta;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Every request that is open.
pub(crate) static REQUESTS: Handles<Underway> = Handles::new(Kind::Request);

/// A request as C holds it.
#[derive(Debug)]
pub(crate) struct Underway {
    number: u64,
    stop: Stop,
    /// There is no callback: events are kept until they are asked for.
    is_polled: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// What its thread would own, where it has none.
    stepped: Mutex<Option<Following>>,
}

/// What it takes to follow a request to its end.
struct Following {
    run: Box<dyn Run>,
    listener: Listener,
}

/// What a request does. It is under way with its model until it is dropped.
pub(crate) trait Run: Send {
    /// Waits for what comes next, and tells the request; `false` after the end.
    fn next(&mut self, request: &Arc<Underway>, listener: Listener) -> bool;

    /// Whether it is under way with that model.
    fn is_of(&self, model: &Arc<underway::Underway>) -> bool;
}

/// An answer of a model that writes.
struct Answering {
    reading: Box<dyn Follow>,
    at_end: Option<AtEnd>,
    work: Work,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// What nobody has asked for yet; unused with a callback.
    events: VecDeque<Event>,
    /// The whole result, or why there is none.
    result: Option<Result<String>>,
    /// What a person was asked, until it is known what they said.
    question: Option<Question>,
    /// Nobody wants to hear of it any more.
    closed: bool,
    /// Its thread is done with it.
    ended: bool,
}

/// What a person says to [`EventKind::Consent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Open,
    /// Somebody went on without an answer.
    Unanswered,
    Answered(bool),
}

impl State {
    /// Answers what a person is asked; whether they are.
    fn answer(&mut self, answer: Question) -> bool {
        let open = self.question == Some(Question::Open);
        if open {
            self.question = Some(answer);
        }
        open
    }
}

/// An event, to keep.
#[derive(Debug)]
pub(crate) struct Event {
    kind: EventKind,
    code: Code,
    text: String,
    json: String,
}

impl Event {
    fn text(kind: EventKind, text: String) -> Event {
        Event {
            kind,
            code: Code::Ok,
            text,
            json: String::new(),
        }
    }

    fn json(kind: EventKind, json: &Value) -> Event {
        Event::of(kind, String::new(), json)
    }

    pub(crate) fn of(kind: EventKind, text: String, json: &Value) -> Event {
        Event {
            kind,
            code: Code::Ok,
            text,
            json: json.to_string(),
        }
    }

    /// As one JSON object, for those who poll.
    fn to_json(&self) -> String {
        let mut object = json!({"event": self.kind.name()});
        if !self.text.is_empty() {
            object["text"] = json!(self.text);
        }
        if self.code != Code::Ok {
            object["code"] = json!(self.code as i32);
            object["kind"] = json!(self.code.kind().to_string_lossy());
        }
        if let Ok(Value::Object(fields)) = serde_json::from_str(&self.json) {
            match self.kind {
                EventKind::Done | EventKind::Cancelled => object["result"] = Value::Object(fields),
                _ => fields.into_iter().for_each(|(name, value)| object[name] = value),
            }
        }
        object.to_string()
    }
}

/// Where events go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    pub(crate) callback: cactus_event_callback,
    pub(crate) user_data: UserData,
}

/// What is done with the end of a request, before anybody hears of it.
pub(crate) type AtEnd = Box<dyn FnOnce(&Result<Box<Answer>>) + Send>;

impl Underway {
    /// Begins `run`, which `stop` stops.
    ///
    /// # Errors
    /// Where a thread cannot be had.
    pub(crate) fn begin(stop: &Stop, run: Box<dyn Run>, listener: Listener) -> Result<Arc<Underway>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let request = Arc::new(Underway {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            stop: stop.clone(),
            is_polled: listener.callback.is_none(),
            state: Mutex::default(),
            changed: Condvar::new(),
            stepped: Mutex::default(),
        });
        let mut following = Following { run, listener };
        if cfg!(target_family = "wasm") {
            *request.stepped.lock().unwrap_or_else(PoisonError::into_inner) = Some(following);
            return Ok(request);
        }
        let theirs = Arc::clone(&request);
        let thread = std::thread::Builder::new().name("cactus-request".to_owned());
        let spawned = thread.spawn(move || {
            follow(theirs.number);
            let followed = catch_unwind(AssertUnwindSafe(|| while theirs.follow(&mut following) {}));
            if followed.is_err() {
                let failure = Failure::new(
                    Code::Internal,
                    "a defect of Cactus, please report it: a request was lost",
                );
                theirs.state().result.get_or_insert(Err(failure));
            }
            theirs.over(following);
        });
        if let Err(e) = spawned {
            request.stop.stop();
            return Err(Failure::new(Code::System, format!("a thread cannot be started: {e}")));
        }
        Ok(request)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing follows it any more.
    fn over(&self, following: Following) {
        // A model that is being closed waits for this.
        drop(following);
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Waits until the state has changed, or until `deadline`. Without threads, does a step toward that.
    fn changed<'s>(
        self: &'s Arc<Self>,
        state: MutexGuard<'s, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'s, State> {
        if cfg!(target_family = "wasm") {
            drop(state);
            self.step();
            return self.state();
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Does the next step of a request without a thread.
    fn step(self: &Arc<Self>) {
        let stepped = || self.stepped.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out: a callback may ask for steps of this request, too.
        let Some(mut following) = stepped().take() else { return };
        match self.follow(&mut following) {
            true => *stepped() = Some(following),
            false => self.over(following),
        }
    }

    /// Takes the next event to its listener; `false` after the end.
    fn follow(self: &Arc<Self>, following: &mut Following) -> bool {
        following.run.next(self, following.listener)
    }
}

impl Run for Answering {
    fn next(&mut self, request: &Arc<Underway>, listener: Listener) -> bool {
        let Answering { reading, at_end, .. } = self;
        let mut asks = false;
        let goes_on = reading.next(&mut |step| {
            let event = match step {
                Step::Written { .. } => return,
                Step::Started {
                    prompt_tokens,
                    cached_tokens,
                } => {
                    let json = json!({"prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens});
                    Event::json(EventKind::Started, &json)
                }
                Step::Added(delta) => match added(delta) {
                    Some(event) => event,
                    None => return,
                },
                Step::Source(json) => Event::json(EventKind::Source, &json),
                Step::Replaced(json) => Event::json(EventKind::Replaced, &json),
                Step::Consent(json) => {
                    asks = true;
                    Event::json(EventKind::Consent, &json)
                }
                Step::Ended(answer) => {
                    if let Some(at_end) = at_end.take() {
                        at_end(&answer);
                    }
                    let end = answer.map(|answer| match answer.is_cancelled() {
                        true => (EventKind::Cancelled, answer.json()),
                        false => (EventKind::Done, answer.json()),
                    });
                    request.end(end)
                }
            };
            request.tell(event, listener);
        });
        if asks {
            reading.consent(request.said());
        }
        goes_on
    }

    fn is_of(&self, model: &Arc<underway::Underway>) -> bool {
        self.work.is_of(model)
    }
}

impl Underway {
    /// What the person said, if anything. Whoever polls has time for it; a callback has returned, and so was the last to be asked.
    fn said(self: &Arc<Self>) -> Option<bool> {
        if self.is_polled {
            let this = Arc::downgrade(self);
            self.stop.and(move || {
                if let Some(this) = this.upgrade() {
                    // Whoever looks at the state now sees that it was stopped, or hears of it.
                    drop(this.state());
                    this.changed.notify_all();
                }
            });
        }
        let mut state = self.state();
        while self.is_polled && state.question == Some(Question::Open) && !self.stop.is_stopped() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.question.take() {
            Some(Question::Answered(yes)) => Some(yes),
            _ => None,
        }
    }

    /// Gives the answer of the person to [`EventKind::Consent`].
    fn consent(&self, yes: bool) -> Result<()> {
        match self.state().answer(Question::Answered(yes)) {
            true => self.changed.notify_all(),
            false => return Err(Failure::argument("`request`: it asks for no consent now")),
        }
        Ok(())
    }

    /// Keeps the result, and makes the last event of it.
    pub(crate) fn end(&self, end: Result<(EventKind, Value)>) -> Event {
        let (event, result) = match end {
            Ok((kind, json)) => {
                let event = Event::json(kind, &json);
                let result = event.json.clone();
                (event, Ok(result))
            }
            Err(failure) => {
                let event = Event {
                    code: failure.code,
                    ..Event::text(EventKind::Failed, failure.message.clone())
                };
                (event, Err(failure))
            }
        };
        self.state().result = Some(result);
        event
    }

    pub(crate) fn tell(&self, event: Event, listener: Listener) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        if event.kind == EventKind::Consent {
            state.question = Some(Question::Open);
        }
        let Some(function) = listener.callback else {
            state.events.push_back(event);
            drop(state);
            self.changed.notify_all();
            return;
        };
        drop(state);
        let (text, json) = (c_string(event.text), c_string(event.json));
        let event = cactus_event {
            size: size_of::<cactus_event>(),
            kind: event.kind as i32,
            code: event.code as i32,
            text: text.as_ptr(),
            json: json.as_ptr(),
        };
        // SAFETY: the caller gave a function of this type, and what belongs to it.
        call(self.number, || unsafe {
            function(&raw const event, listener.user_data.0)
        });
    }

    /// The next event as JSON; `None` where none comes in time, or none comes any more.
    fn next(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Option<String>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        let mut waiting = None;
        // Without threads somebody who never waits would never get anything.
        let mut owed = cfg!(target_family = "wasm");
        loop {
            if let Some(event) = state.events.pop_front() {
                return Ok(Some(event.to_json()));
            }
            // Its last event may be among what was not told any more.
            if state.closed {
                return Err(Failure::new(Code::Handle, "the request was closed"));
            }
            if state.ended {
                return Ok(None);
            }
            // Whoever was asked and waits for more has not said yes.
            if timeout != Some(Duration::ZERO) && state.answer(Question::Unanswered) {
                self.changed.notify_all();
            }
            if waiting.is_none() {
                waiting = Some(Waiting::begin(self.number).ok_or_else(in_callback)?);
            }
            if !std::mem::take(&mut owed) && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
            state = self.changed(state, deadline);
        }
    }

    /// Waits for the end, and gives the whole result.
    fn wait(self: &Arc<Self>) -> Result<String> {
        let mut state = self.state();
        let mut waiting = None;
        while !state.ended {
            // Whoever waits for the end is not there to be asked; a callback is.
            if self.is_polled && state.answer(Question::Unanswered) {
                self.changed.notify_all();
            }
            if waiting.is_none() {
                waiting = Some(Waiting::begin(self.number).ok_or_else(in_callback)?);
            }
            state = self.changed(state, None);
        }
        let lost = || Err(Failure::new(Code::Internal, "the request has no result"));
        state.result.clone().unwrap_or_else(lost)
    }

    /// Whether it has ended, and everything was told. One that was closed is not over: whoever asks again hears of that.
    fn is_over(&self) -> bool {
        let state = self.state();
        state.ended && !state.closed && state.events.is_empty()
    }

    /// Asks it to stop.
    pub(crate) fn cancel(&self) {
        self.stop.stop();
    }

    /// Cancels it, and waits until nothing of it runs, unless that would be to wait for this thread.
    pub(crate) fn close(self: &Arc<Self>) {
        self.cancel();
        let mut state = self.state();
        state.closed = true;
        self.changed.notify_all();
        if state.ended {
            return;
        }
        let Some(_waiting) = Waiting::begin(self.number) else {
            return;
        };
        while !state.ended {
            state = self.changed(state, None);
        }
    }

    /// Without threads: what is under way with `model`, which was stopped, comes to its end.
    pub(crate) fn end_all_of(model: &Arc<underway::Underway>) {
        for request in REQUESTS.all() {
            let is_of = |following: &Following| following.run.is_of(model);
            let stepped = || request.stepped.lock().unwrap_or_else(PoisonError::into_inner);
            while stepped().as_ref().is_some_and(is_of) {
                request.step();
            }
        }
    }
}

fn in_callback() -> Failure {
    Failure::new(
        Code::InCallback,
        "a request cannot be waited for inside its own callback, or inside one that it waits for",
    )
}

/// What a delta is to those who listen.
fn added(delta: Delta) -> Option<Event> {
    let call = |json| Some(Event::json(EventKind::ToolCall, &json));
    match delta {
        Delta::Text(text) => Some(Event::text(EventKind::Text, text)),
        Delta::Reasoning(text) => Some(Event::text(EventKind::Reasoning, text)),
        Delta::CallBegin { index, id, name } => call(json!({"index": index, "id": id, "name": name})),
        Delta::CallArguments { index, fragment } => call(json!({"index": index, "arguments": fragment})),
        Delta::CallEnd { index, .. } => call(json!({"index": index, "end": true})),
        Delta::CallFailed { index } => call(json!({"index": index, "failed": true})),
        // Notes are in the result.
        _ => None,
    }
}

/// Begins what `map` asks of `model`.
///
/// # Errors
/// Those of reading and of submitting.
pub(crate) fn begin(
    model: &Arc<Loaded>,
    map: &Map<String, Value>,
    listener: Listener,
    at_end: AtEnd,
) -> Result<Arc<Underway>> {
    let work = model.begin()?;
    let asked = Asked::read(model.engine(), map)?;
    let stop = work.stop().clone();
    let run = Answering {
        reading: answer::begin(&work, asked)?,
        at_end: Some(at_end),
        work,
    };
    Underway::begin(&stop, Box::new(run), listener)
}

/// Begins a request: a JSON object with `messages`, `prompt` or `tokens`, and what else docs/reference/c-abi.md lists. With a
/// callback, events go there; with NULL, `cactus_request_next` gives them. `*request` has to be closed in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_start(
    model: *mut cactus_model,
    request_json: *const c_char,
    callback: cactus_event_callback,
    user_data: *mut c_void,
    request: *mut *mut cactus_request,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let text = unsafe {
            put_required(request, "request", std::ptr::null_mut())?;
            input::text(request_json, "request_json")?
        };
        let map = input::object(Some(text), "request_json")?;
        let listener = Listener {
            callback,
            user_data: UserData(user_data),
        };
        let underway = begin(&MODELS.get(model.cast())?, &map, listener, Box::new(|_| {}))?;
        // SAFETY: as above. A callback may run before this is written.
        unsafe { hand_over(underway, request) }
    })
}

/// Gives C a handle of `underway`.
///
/// # Errors
/// Where there are too many; the request is cancelled then.
///
/// # Safety
/// `place` can be written.
pub(crate) unsafe fn hand_over(underway: Arc<Underway>, place: *mut *mut cactus_request) -> Result<()> {
    let handle = REQUESTS
        .insert(Arc::clone(&underway))
        .inspect_err(|_| underway.close())?;
    // SAFETY: the caller's promise.
    unsafe { put_required(place, "request", handle.cast()) }
}

/// Waits up to `timeout_ms` milliseconds (negative: for ever, 0: not at all) for the next event of a request without a callback.
/// Writes it to `*event_json` as an owned JSON object with `event`, one of `started`, `text`, `reasoning`, `tool_call`, `done`,
/// `cancelled` and `failed`; or NULL where none came in time. `*over`, which may be NULL, tells whether none will come any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_next(
    request: *mut cactus_request,
    timeout_ms: i64,
    event_json: *mut *mut c_char,
    over: *mut bool,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of results.
        unsafe { put_required(event_json, "event_json", std::ptr::null_mut()) }?;
        let underway = REQUESTS.get(request.cast())?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let event = underway.next(timeout)?;
        let is_over = event.is_none() && underway.is_over();
        // SAFETY: as above.
        unsafe {
            crate::output::put(over, is_over);
            match event {
                Some(event) => put_required(event_json, "event_json", owned(event)),
                None => Ok(()),
            }
        }
    })
}

/// Waits for the end of a request, and writes its whole result to `*result_json` as an owned JSON object. A request that failed
/// gives its code; one that was cancelled gives a result as far as it came.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_wait(request: *mut cactus_request, result_json: *mut *mut c_char) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of results.
        unsafe { put_required(result_json, "result_json", std::ptr::null_mut()) }?;
        let result = REQUESTS.get(request.cast())?.wait()?;
        // SAFETY: as above.
        unsafe { put_required(result_json, "result_json", owned(result)) }
    })
}

/// Asks a request to stop, from any thread; it ends within a token. May be called again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_cancel(request: *mut cactus_request) -> c_int {
    guard::code(|| {
        REQUESTS.get(request.cast())?.cancel();
        Ok(())
    })
}

/// Answers the event `CONSENT` of a request: whether what it lists may leave this machine. With a callback, before that returns,
/// from any thread. Without one, before `cactus_request_next` is called with a time to wait, or `cactus_request_wait`. Where somebody
/// goes on without an answer, nothing leaves, as nobody was there to be asked. Fails where nothing is asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_consent(request: *mut cactus_request, yes: bool) -> c_int {
    guard::code(|| REQUESTS.get(request.cast())?.consent(yes))
}

/// Closes a request: cancels what is left of it, and waits until its callback has returned for the last time. Inside its own
/// callback it does not wait; no further call begins then. Where callbacks of two requests close each other's request, one of them
/// does not wait either: keep what `user_data` points to until both have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_request_close(request: *mut cactus_request) -> c_int {
    guard::code(|| {
        REQUESTS.remove(request.cast())?.close();
        Ok(())
    })
}
