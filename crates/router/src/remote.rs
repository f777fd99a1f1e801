//! One try of a target: what it says, restored, on a thread of its own.

use crate::form::{Form, Verdict};
use crate::outgoing::Sealed;
use cactus_cloud::{Call, Cancel, Delta, ErrorKind, Event, Key, Reason, Retry, RetryRules, Target, Transport, Usage};
use cactus_hybrid::redact::{Redactor, Restorer};
use cactus_hybrid::route::Billed;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// Most bytes of a token on average, over an answer as long as it may be; and some for short ones. Tokens of words have 4 or 5.
const TOKEN_BYTES: usize = 16;
const SPARE_BYTES: usize = 256;

/// What comes of a try.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Text, with its values put back.
    Text(String),
    /// Reasoning, likewise.
    Reasoning(String),
    /// A whole call: `{"id", "name", "arguments"}`, the arguments a JSON object as text.
    Call(String),
    /// The answer is whole.
    End {
        reason: Reason,
        usage: Box<Usage>,
        /// What is wrong with its form, where something is.
        fault: Option<String>,
        /// What the target was not told, and what of its form nobody has checked.
        notes: Vec<String>,
    },
    /// It failed.
    Failed {
        kind: ErrorKind,
        message: String,
        /// How long to wait before another try, where one can help.
        pause: Option<Duration>,
        /// Whether another request can help.
        retry: Retry,
        billed: Billed,
    },
}

/// Stops its try when it is dropped.
#[derive(Debug)]
pub(crate) struct Try(Cancel);

impl Drop for Try {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// What a try is made with.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    pub(crate) transport: &'a Transport,
    pub(crate) target: &'a Target,
    pub(crate) key: Option<&'a Key>,
    pub(crate) sealed: &'a Sealed,
    pub(crate) form: Form,
    pub(crate) redactor: Redactor,
    pub(crate) rules: RetryRules,
    /// Tries before this one.
    pub(crate) tries: u32,
}

/// Sends a request, once. `hear` gets what comes of it, its end included.
///
/// # Errors
/// What failed before anything was sent.
pub(crate) fn send(sending: Sending<'_>, hear: impl Fn(Heard) + Send + 'static) -> Result<Try, Heard> {
    let Sending { rules, tries, .. } = sending;
    let call = sending
        .transport
        .call(sending.target, sending.key, sending.sealed.request());
    let redactor = sending.redactor;
    let call = call.map_err(|error| failed(&error, &redactor, rules, tries))?;
    let cancel = Try(call.canceller());
    let form = sending.form;
    let most_tokens = sending.sealed.request().max_output_tokens;
    let listen = move || {
        let heard = listen(call, &redactor, &form, most_tokens, &hear);
        hear(heard.unwrap_or_else(|error| failed(&error, &redactor, rules, tries)));
    };
    std::thread::Builder::new()
        .name("cactus-router".to_owned())
        .spawn(listen)
        .map_err(|e| Heard::Failed {
            kind: ErrorKind::Unreachable,
            message: format!("no thread could be started: {e}"),
            pause: None,
            retry: Retry::Soon,
            billed: Billed::Unknown,
        })?;
    Ok(cancel)
}

/// How a try failed. A target may repeat what it was sent in the words of its errors.
fn failed(error: &cactus_cloud::Error, redactor: &Redactor, rules: RetryRules, tries: u32) -> Heard {
    // Any number in [0, 1) keeps callers apart; the clock's is good enough.
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let random = f64::from(nanos.map_or(0, |d| d.subsec_nanos()) % 1000) / 1000.0;
    Heard::Failed {
        kind: error.kind(),
        message: redactor.restore(&error.to_string()),
        pause: rules.pause_after(error, tries, random),
        retry: error.retry(),
        billed: if error.may_be_billed() {
            Billed::Unknown
        } else {
            Billed::Nothing
        },
    }
}

fn listen(
    mut call: Call,
    redactor: &Redactor,
    form: &Form,
    most_tokens: u32,
    hear: &impl Fn(Heard),
) -> Result<Heard, cactus_cloud::Error> {
    // Values are put back as parts of JSON's strings where the answer is JSON.
    let mut text = match form.is_json() {
        true => Restorer::of_json(),
        false => Restorer::of_text(),
    };
    let mut reasoning = Restorer::of_text();
    let mut calls: HashMap<usize, (String, String, String)> = HashMap::new();
    let mut whole = String::new();
    let (mut usage, mut reason) = (Usage::default(), None);
    let mut checked = Vec::new();
    let mut room = (most_tokens as usize)
        .saturating_mul(TOKEN_BYTES)
        .saturating_add(SPARE_BYTES);
    let mut endless = false;
    let mut show = |restored: String| {
        if form.is_json() {
            whole.push_str(&restored);
        }
        if !restored.is_empty() {
            hear(Heard::Text(restored));
        }
    };
    for event in call.by_ref() {
        let mut event = event?;
        if let Event::Delta(Delta::Text(piece) | Delta::CallArguments { fragment: piece, .. }) = &mut event {
            // It was told how much it may say, and so much was reserved.
            endless = piece.len() > room;
            piece.truncate(piece.floor_char_boundary(room));
            room -= piece.len();
        }
        match event {
            Event::Delta(Delta::Text(piece)) => show(text.push(redactor, &piece)),
            Event::Delta(Delta::Reasoning(piece)) => hear(Heard::Reasoning(reasoning.push(redactor, &piece))),
            Event::Delta(Delta::ReasoningEnd { .. }) => hear(Heard::Reasoning(reasoning.finish())),
            Event::Delta(Delta::CallBegin { index, id, name }) => {
                calls.insert(index, (id, name, String::new()));
            }
            Event::Delta(Delta::CallArguments { index, fragment }) => {
                if let Some((_, _, arguments)) = calls.get_mut(&index) {
                    arguments.push_str(&fragment);
                }
            }
            Event::Delta(Delta::CallEnd { index, .. }) => {
                let Some((id, name, arguments)) = calls.remove(&index) else {
                    continue;
                };
                let arguments = match arguments.trim() {
                    "" => "{}".to_owned(),
                    text => text.to_owned(),
                };
                // Whoever runs the call would take the placeholder for a value.
                let mut looked = Restorer::of_json();
                looked.push(redactor, &arguments);
                if let Some(invented) = told(&looked) {
                    let why = format!("the arguments of its call of `{name}` have {invented}");
                    checked.push(Verdict::Violates(why));
                }
                let (verdict, arguments) = match serde_json::from_str::<Value>(&arguments) {
                    Ok(mut value) => {
                        redactor.restore_json_as(&mut value, form.arguments_of(&name));
                        (form.check_call(&name, &value), value.to_string())
                    }
                    Err(_) => {
                        let why = format!("the arguments of its call of `{name}` are not JSON");
                        (Verdict::Violates(why), redactor.restore(&arguments))
                    }
                };
                checked.push(verdict);
                hear(Heard::Call(
                    json!({"id": id, "name": name, "arguments": arguments}).to_string(),
                ));
            }
            Event::Usage(counted) => usage = counted,
            Event::Done(done) => {
                // Some protocols do not say where reasoning ends.
                hear(Heard::Reasoning(reasoning.finish()));
                show(text.finish());
                reason = Some(done);
            }
        }
        if endless {
            break;
        }
    }
    if endless {
        call.canceller().cancel();
        hear(Heard::Reasoning(reasoning.finish()));
        show(text.finish());
        (reason, usage) = (Some(Reason::Length), Usage::default());
        call.notes.push(format!(
            "it says more than the {most_tokens} tokens that it was limited to, and was cut off; it may charge more than was reserved"
        ));
    }
    let Some(reason) = reason else {
        let message = "the answer ended before its end";
        return Err(cactus_cloud::Error::new(ErrorKind::Cut, message));
    };
    // Calls may come in place of the answer.
    if !whole.is_empty() {
        checked.push(form.check_answer(&whole));
    }
    let (mut fault, mut notes) = (None, std::mem::take(&mut call.notes));
    notes.extend(told(&text).map(|invented| format!("its answer has {invented}")));
    for verdict in checked {
        match verdict {
            Verdict::Holds => {}
            Verdict::Violates(why) => drop(fault.get_or_insert(why)),
            Verdict::Unknown(why) => notes.push(why),
        }
    }
    Ok(Heard::End {
        reason,
        usage: Box::new(usage),
        fault,
        notes,
    })
}

/// Placeholders that a target has invented, in words.
fn told(restorer: &Restorer) -> Option<String> {
    let invented: Vec<String> = restorer.invented().iter().map(|one| format!("`{one}`")).collect();
    let which = invented.join(", ");
    (!invented.is_empty()).then(|| format!("{which}, which looks like a placeholder of ours, and stands for nothing"))
}
