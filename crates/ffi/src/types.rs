//! Types of our own functions that C sees: handles, events and callbacks.

use std::ffi::{c_char, c_void};

/// A loaded model. Any number of threads may use it at once. A handle, not an address.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct cactus_model {
    _opaque: [u8; 0],
}

/// A conversation with a model. A handle, not an address.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct cactus_session {
    _opaque: [u8; 0],
}

/// A request under way. A handle, not an address.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct cactus_request {
    _opaque: [u8; 0],
}

/// What happens to a request. Each ends with exactly one of `DONE`, `CANCELLED` and `FAILED`, and nothing comes after it.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The prompt is computed. `json` has `prompt_tokens` and `cached_tokens`.
    Started = 1,
    /// Text of the answer: `text`, whole characters.
    Text = 2,
    /// Reasoning before the answer: `text`.
    Reasoning = 3,
    /// A call of a tool, or part of one. `json` has `index` and, with the call's first event, `id` and `name`; then `arguments`, a
    /// piece of a JSON object as text; at its end `end`, or `failed` where it came to nothing and was given out as text.
    ToolCall = 4,
    /// The end: `json` is the whole result.
    Done = 5,
    /// The end of a request that was cancelled: `json` is the result as far as it came.
    Cancelled = 6,
    /// The end of a request that failed: `code` says how, `text` why.
    Failed = 7,
    /// Of a model with a policy: who answers, before the first of it. `json` has `side` (`local` or `cloud`), `target`, the
    /// target's name or null, `reason`, as the result has it in the end, or `unjudged` where nothing is decided yet, and what else
    /// the result says of the decision, as far as it is known: `route`, `answered_by`, `confidence`, `error_bound`, `cost_usd`,
    /// `cost_is_exact`, `time_to_first_token_ms`, `total_time_ms` and so on. What may still be billed counts with its worst case.
    Source = 8,
    /// Of a model with a policy: what was said so far is void, as who said it failed or was judged too unsure after a slow
    /// beginning. Another answers from the beginning. `json` has the fields of `SOURCE`, here of the answer that is void, and
    /// `reason` says why it is.
    Replaced = 9,
    /// Of a model with a policy: a person has to say whether this may leave, with `cactus_request_consent`. `json` has `classes`
    /// (of content), `target`, `host`, `most`, what it may cost at most in dollars, as text, and `reason` and `confidence`, why the
    /// target is wanted.
    Consent = 10,
}

impl EventKind {
    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Text => "text",
            EventKind::Reasoning => "reasoning",
            EventKind::ToolCall => "tool_call",
            EventKind::Done => "done",
            EventKind::Cancelled => "cancelled",
            EventKind::Failed => "failed",
            EventKind::Source => "source",
            EventKind::Replaced => "replaced",
            EventKind::Consent => "consent",
        }
    }
}

/// An event of a request. All it points to is valid until the callback returns.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct cactus_event {
    /// Bytes of this structure, which may grow at its end.
    pub size: usize,
    /// What it is: a `CACTUS_EVENT_KIND_...`.
    pub kind: i32,
    /// A `CACTUS_CODE_...` with `FAILED`, else 0.
    pub code: i32,
    /// UTF-8 text; empty where the kind has none, never NULL.
    pub text: *const c_char,
    /// A JSON object; empty where the kind has none, never NULL.
    pub json: *const c_char,
}

/// Takes the events of a request, one after the other, on a thread of the library. It may call the library, may close what it
/// belongs to (which does not wait then), and must not throw. A slow one delays its own request alone.
#[allow(non_camel_case_types)]
pub type cactus_event_callback = Option<unsafe extern "C" fn(event: *const cactus_event, user_data: *mut c_void)>;

/// Takes the progress of loading: `stage` is what is being done (`waiting`, `downloading`, `checking`, `converting`,
/// `reading source`, `choosing bits`, `calibrating`, `measuring quality`, `loading`, or `note`, which the user should read); `what`
/// is what it is about (a model, a file, a text), or empty; then how much of it is done and of how much, in bytes or in the stage's
/// own parts, 0 of 0 where that is not known. A result other than 0 stops within seconds, with `CACTUS_CODE_CANCELLED`; what was
/// downloaded is kept for the next time. It is called on the thread that loads, at most some ten times a second while it
/// downloads, and must not throw. Texts are valid until it returns.
#[allow(non_camel_case_types)]
pub type cactus_progress_callback = Option<
    unsafe extern "C" fn(
        stage: *const c_char,
        what: *const c_char,
        done: u64,
        total: u64,
        user_data: *mut c_void,
    ) -> std::ffi::c_int,
>;
