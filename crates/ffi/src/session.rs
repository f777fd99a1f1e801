//! Conversations of our own API: the messages so far, and what every request of them has in common.
//!
//! A session holds text, not memory of the model: what was computed of a conversation is found again by its tokens, for every
//! session of the model. So sessions cost nothing while they rest, and one is saved by saving its messages.

use crate::asked::{Asked, tool_choice};
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::loaded::{Loaded, MODELS};
use crate::output::{owned, put_required};
use crate::request::{Listener, Underway, begin, hand_over};
use crate::types::{cactus_event_callback, cactus_model, cactus_request, cactus_session};
use crate::{answer::Answer, callback::UserData, guard, input};
use serde_json::{Map, Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Every session that is open.
static SESSIONS: Handles<Session> = Handles::new(Kind::Session);

/// A conversation.
#[derive(Debug)]
struct Session {
    model: Arc<Loaded>,
    state: Shared,
}

/// What a session knows, for it and its requests.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Fields of every request.
    defaults: Map<String, Value>,
    messages: Vec<Value>,
    /// The number of the request under way.
    turn: Option<u64>,
    /// The request under way, once it has begun.
    underway: Weak<Underway>,
    /// How many requests there have been.
    turns: u64,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request of a session, from when it is read until it has ended, or is dropped however that came: none other begins meanwhile.
#[derive(Debug)]
struct Turn {
    shared: Shared,
    number: u64,
}

impl Turn {
    /// The next request of `state`, which is what is known of `shared`.
    ///
    /// # Errors
    /// Where the session is closed, or answers already.
    fn begin(shared: &Shared, state: &mut State) -> Result<Turn> {
        if state.closed {
            return Err(Failure::new(Code::Handle, "the session was closed"));
        }
        if state.turn.is_some() {
            let what = "the session is answering already; wait for the end of that, or cancel it";
            return Err(Failure::new(Code::Busy, what));
        }
        state.turns += 1;
        state.turn = Some(state.turns);
        state.underway = Weak::new();
        Ok(Turn {
            shared: shared.clone(),
            number: state.turns,
        })
    }

    /// Adds what was asked and answered to the conversation. What failed leaves it as it was.
    fn keep(self, added: Vec<Value>, answer: &Result<Box<Answer>>) {
        let mut state = self.shared.state();
        state.turn = None;
        if let Ok(answer) = answer {
            state.messages.extend(added);
            state.messages.push(answer.message_json());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if state.turn == Some(self.number) {
            state.turn = None;
        }
    }
}

impl State {
    /// The request of this number has begun. It may have ended since, and another one may be under way.
    fn begun(&mut self, number: u64, underway: &Arc<Underway>) {
        if self.turn == Some(number) {
            self.underway = Arc::downgrade(underway);
            if self.closed {
                underway.cancel();
            }
        }
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.state()
    }

    /// Asks for an answer to what `asked` adds to the conversation.
    fn send(&self, asked: Value, listener: Listener) -> Result<Arc<Underway>> {
        let (added, fields) = additions(asked)?;
        let mut state = self.state();
        let turn = Turn::begin(&self.state, &mut state)?;
        let number = turn.number;
        let mut map = state.defaults.clone();
        for (name, value) in fields {
            // Options are laid over each other one by one.
            match (map.get_mut(&name), value) {
                (Some(Value::Object(below)), Value::Object(above)) if name == "options" => below.extend(above),
                (_, value) => drop(map.insert(name, value)),
            }
        }
        let messages: Vec<Value> = state.messages.iter().chain(&added).cloned().collect();
        map.insert("messages".to_owned(), Value::Array(messages));
        drop(state);
        let at_end = Box::new(move |answer: &Result<Box<Answer>>| turn.keep(added, answer));
        let begun = begin(&self.model, &map, listener, at_end)?;
        self.state().begun(number, &begun);
        Ok(begun)
    }
}

/// What is wrong with `messages` and `defaults`, before anything is sent: they are read as a request to answer the user.
///
/// # Errors
/// Those of [`Asked::read`].
fn checked(model: &Loaded, messages: &[Value], defaults: &Map<String, Value>) -> Result<()> {
    let mut map = defaults.clone();
    // A request may bring the tools to choose from, and the beginning of an answer.
    let has_tools = defaults
        .get("tools")
        .and_then(Value::as_array)
        .is_some_and(|tools| !tools.is_empty());
    if !has_tools {
        tool_choice(map.remove("tool_choice").as_ref())?;
    }
    if map.get("continue_final").is_some_and(Value::is_boolean) {
        map.remove("continue_final");
    }
    let mut messages = messages.to_vec();
    // Templates may refuse two questions in a row, and one before the result of a tool.
    let asks = |last: &Value| last["role"] == "user" || last["role"] == "tool" || !last["tool_calls"].is_null();
    if !messages.last().is_some_and(asks) {
        messages.push(json!({"role": "user", "content": "hello"}));
    }
    map.insert("messages".to_owned(), Value::Array(messages));
    Asked::read(model.engine(), &map).map(drop)
}

/// The messages that a request adds, and its other fields.
fn additions(asked: Value) -> Result<(Vec<Value>, Map<String, Value>)> {
    let mut fields = match asked {
        Value::String(text) => return Ok((vec![json!({"role": "user", "content": text})], Map::new())),
        Value::Object(fields) => fields,
        other => {
            let found = cactus_text::json_type(&other);
            let what = format!("`request_json`: expected an object or a string, found {found}");
            return Err(Failure::argument(what));
        }
    };
    for field in ["prompt", "tokens"] {
        if fields.remove(field).is_some_and(|value| !value.is_null()) {
            let what =
                format!("`{field}`: a session takes `messages`; cactus_request_start continues a text or tokens");
            return Err(Failure::argument(what));
        }
    }
    let added = match fields.remove("messages") {
        Some(Value::Array(messages)) => messages,
        None | Some(Value::Null) => Vec::new(),
        Some(other) => {
            let found = cactus_text::json_type(&other);
            return Err(Failure::argument(format!(
                "`messages`: expected an array, found {found}"
            )));
        }
    };
    Ok((added, fields))
}

/// Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of a request,
/// which hold for every request of the session where it does not say otherwise. What a request could not have is refused here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_session_open(
    model: *mut cactus_model,
    defaults_json: *const c_char,
    session: *mut *mut cactus_session,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let text = unsafe {
            put_required(session, "session", std::ptr::null_mut())?;
            input::optional_text(defaults_json, "defaults_json")?
        };
        let model = MODELS.get(model.cast())?;
        let (messages, defaults) = additions(Value::Object(input::object(text, "defaults_json")?))?;
        checked(&model, &messages, &defaults)?;
        let opened = Arc::new(Session {
            model,
            state: Shared(Arc::new(Mutex::new(State {
                defaults,
                messages,
                ..State::default()
            }))),
        });
        let handle = SESSIONS.insert(opened)?;
        // SAFETY: as above.
        unsafe { put_required(session, "session", handle.cast()) }
    })
}

/// Adds to a conversation and answers it: `request_json` is a JSON string (what the user says), or an object with the `messages`
/// to add and other fields of a request. Events come as with `cactus_request_start`. At the end of the request, before its last
/// event, the answer is part of the conversation; a request that failed leaves the conversation as it was. One request at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_session_send(
    session: *mut cactus_session,
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
        let asked = input::json(Some(text), "request_json")?.unwrap_or(Value::Null);
        let listener = Listener {
            callback,
            user_data: UserData(user_data),
        };
        let underway = SESSIONS.get(session.cast())?.send(asked, listener)?;
        // SAFETY: as above.
        unsafe { hand_over(underway, request) }
    })
}

/// Writes the messages of a conversation to `*messages_json`, as an owned JSON array. `cactus_session_open` takes it back, as
/// `messages`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_session_messages(
    session: *mut cactus_session,
    messages_json: *mut *mut c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of results.
        unsafe { put_required(messages_json, "messages_json", std::ptr::null_mut()) }?;
        let session = SESSIONS.get(session.cast())?;
        let messages = json!(session.state().messages);
        // SAFETY: as above.
        unsafe { put_required(messages_json, "messages_json", owned(messages.to_string())) }
    })
}

/// Closes a conversation: cancels its request, which still has to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_session_close(session: *mut cactus_session) -> c_int {
    guard::code(|| {
        let session = SESSIONS.remove(session.cast())?;
        let mut state = session.state();
        state.closed = true;
        let underway = state.underway.upgrade();
        drop(state);
        if let Some(underway) = underway {
            underway.cancel();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Run;
    use crate::underway::{self, Stop};

    /// A request that ends at once.
    struct Nothing;

    impl Run for Nothing {
        fn next(&mut self, _: &Arc<Underway>, _: Listener) -> bool {
            false
        }
        fn is_of(&self, _: &Arc<underway::Underway>) -> bool {
            false
        }
    }

    fn request(stop: &Stop) -> Arc<Underway> {
        let listener = Listener {
            callback: None,
            user_data: UserData(std::ptr::null_mut()),
        };
        Underway::begin(stop, Box::new(Nothing), listener).unwrap()
    }

    fn turn(shared: &Shared) -> Result<Turn> {
        let mut state = shared.state();
        Turn::begin(shared, &mut state)
    }

    fn failed() -> Result<Box<Answer>> {
        Err(Failure::new(Code::Internal, "nothing"))
    }

    #[test]
    fn request_that_ends_before_its_begin_is_known_takes_no_place_of_the_next() {
        let shared = Shared::default();
        let [first, second] = [Stop::default(), Stop::default()];
        let (a, b) = (request(&first), request(&second));
        let turn_of_a = turn(&shared).unwrap();
        let number_of_a = turn_of_a.number;
        turn_of_a.keep(Vec::new(), &failed());
        let turn_of_b = turn(&shared).unwrap();
        shared.state().begun(turn_of_b.number, &b);
        shared.state().begun(number_of_a, &a);
        assert!(Weak::ptr_eq(&shared.state().underway, &Arc::downgrade(&b)));
        // What has begun when the session is closed already is cancelled, and nothing else is.
        shared.state().closed = true;
        shared.state().begun(number_of_a, &a);
        shared.state().begun(turn_of_b.number, &b);
        assert!(!first.is_stopped() && second.is_stopped());
    }

    #[test]
    fn request_that_is_lost_leaves_the_session_free() {
        let shared = Shared::default();
        let lost = turn(&shared).unwrap();
        assert_eq!(turn(&shared).unwrap_err().code, Code::Busy);
        let panicked = std::panic::catch_unwind(move || {
            let _lost = lost;
            panic!("in the midst of a request");
        });
        assert!(panicked.is_err());
        let next = turn(&shared).unwrap();
        // Nothing of the one before ends this one.
        assert_eq!((next.number, shared.state().turn), (2, Some(2)));
        drop(next);
        assert_eq!(shared.state().turn, None);
    }
}
