//! Between our types and what travels: pure functions, without a connection.
//!
//! [`encode`] makes a request's path, headers and body. A [`Decoder`] makes events of an answer, whole or in pieces.
//! [`transcription`] has the same for sound. [`failure::of_response`] reads what a target says when it refuses. A protocol is one module with two halves, request and
//! answer.
//!
//! Fields that are not known are passed over, since protocols grow. What is needed and missing is an error of kind
//! [`crate::ErrorKind::Protocol`].

mod anthropic;
mod chat;
pub mod failure;
mod gemini;
mod json;
mod responses;
pub mod transcription;

use crate::{Error, ErrorKind, Event, Issuer, Part, Protocol, Request, Result, SseEvent, Target};
use serde_json::Value;
use std::collections::HashSet;

/// A request as it travels, but for the key.
#[derive(Clone, PartialEq)]
pub struct Wire {
    /// Behind the target's base, with a slash at the beginning.
    pub path: String,
    /// Headers beside those of the key and of HTTP itself.
    pub headers: Vec<(&'static str, &'static str)>,
    /// What the body is.
    pub content_type: String,
    /// JSON, or a form with a recording.
    pub body: Vec<u8>,
    /// What the target does not take and was left out, each in a sentence.
    pub notes: Vec<String>,
}

/// Which header carries the key, and what stands before it.
#[must_use]
pub fn key_header(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::OpenAiChat | Protocol::OpenAiResponses | Protocol::OpenAiTranscriptions => {
            ("authorization", "Bearer ")
        }
        Protocol::Anthropic => ("x-api-key", ""),
        Protocol::Gemini => ("x-goog-api-key", ""),
    }
}

/// Writes a request for a target.
///
/// # Errors
/// As [`Target::check`]; [`ErrorKind::InvalidRequest`] too where arguments of an earlier call are no JSON object and the
/// protocol needs one, and [`ErrorKind::Unsupported`] for media of a type that the protocol does not know.
pub fn encode(target: &Target, request: &Request) -> Result<Wire> {
    target.check(request)?;
    let mut notes = Vec::new();
    let (path, headers, body) = match target.protocol {
        Protocol::OpenAiChat => (
            "/chat/completions".to_owned(),
            vec![],
            chat::encode(target, request, &mut notes)?,
        ),
        Protocol::OpenAiResponses => (
            "/responses".to_owned(),
            vec![],
            responses::encode(target, request, &mut notes)?,
        ),
        Protocol::Anthropic => {
            let headers = vec![("anthropic-version", anthropic::version(target))];
            (
                "/messages".to_owned(),
                headers,
                anthropic::encode(target, request, &mut notes)?,
            )
        }
        Protocol::Gemini => {
            let body = gemini::encode(target, request, &mut notes)?;
            (gemini::path(&target.model, request.stream)?, vec![], body)
        }
        Protocol::OpenAiTranscriptions => {
            let message = format!(
                "the target `{}` writes down speech, and answers nothing else",
                target.name
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    Ok(Wire {
        path,
        headers,
        content_type: "application/json".to_owned(),
        body: Value::Object(body).to_string().into_bytes(),
        notes,
    })
}

/// Makes events of an answer. After an error nothing more may be given to it.
#[derive(Debug)]
pub struct Decoder {
    inner: Inner,
    ended: bool,
}

#[derive(Debug)]
enum Inner {
    Chat(chat::Answer),
    Responses(responses::Answer),
    Anthropic(anthropic::Answer),
    Gemini(gemini::Answer),
}

impl Decoder {
    /// For the answer to `request` by `target`.
    #[must_use]
    pub fn new(target: &Target, request: &Request) -> Self {
        let shared = Shared {
            issuer: target.issuer(),
            ids: Ids::new(request),
        };
        let inner = match target.protocol {
            // What only writes down speech is asked nothing else: `encode` refuses.
            Protocol::OpenAiChat | Protocol::OpenAiTranscriptions => {
                Inner::Chat(chat::Answer::new(target.dialect, shared))
            }
            Protocol::OpenAiResponses => Inner::Responses(responses::Answer::new(shared)),
            Protocol::Anthropic => Inner::Anthropic(anthropic::Answer::new(shared)),
            Protocol::Gemini => Inner::Gemini(gemini::Answer::new(shared)),
        };
        Self { inner, ended: false }
    }

    /// Takes an event of a stream.
    ///
    /// # Errors
    /// What the target says went wrong, as [`failure`] tells kinds apart; [`ErrorKind::Protocol`] where the event makes no
    /// sense.
    pub fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        // What comes behind the end is of no interest; proxies have been seen to add comments and empty events.
        if self.ended {
            return Ok(());
        }
        let from = out.len();
        match &mut self.inner {
            Inner::Chat(answer) => answer.event(event, out),
            Inner::Responses(answer) => answer.event(event, out),
            Inner::Anthropic(answer) => answer.event(event, out),
            Inner::Gemini(answer) => answer.event(event, out),
        }?;
        self.note_end(&out[from..]);
        Ok(())
    }

    /// Takes an answer that is not a stream.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<()> {
        let body = json::parse(body)?;
        failure::inside(&body)?;
        let from = out.len();
        match &mut self.inner {
            Inner::Chat(answer) => answer.whole(&body, out),
            Inner::Responses(answer) => answer.whole(&body, out),
            Inner::Anthropic(answer) => answer.whole(&body, out),
            Inner::Gemini(answer) => answer.whole(&body, out),
        }?;
        self.note_end(&out[from..]);
        self.end(out)
    }

    /// The body has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Cut`] where the answer had not.
    pub fn end(&mut self, out: &mut Vec<Event>) -> Result<()> {
        let from = out.len();
        match &mut self.inner {
            _ if self.ended => {}
            Inner::Chat(answer) => answer.end(out)?,
            Inner::Gemini(answer) => answer.end(out)?,
            Inner::Responses(_) | Inner::Anthropic(_) => {}
        }
        self.note_end(&out[from..]);
        if self.ended {
            Ok(())
        } else {
            let message = "the answer stopped before its end";
            Err(Error::new(ErrorKind::Cut, message))
        }
    }

    /// Whether the answer is whole.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn note_end(&mut self, new: &[Event]) {
        self.ended |= new.iter().any(|e| matches!(e, Event::Done(_)));
    }
}

/// What every answer needs to know.
#[derive(Debug)]
struct Shared {
    issuer: Issuer,
    ids: Ids,
}

/// Makes up ids of calls that a target left without one. They differ from all ids of the conversation.
#[derive(Debug)]
struct Ids {
    taken: HashSet<String>,
    next: usize,
}

impl Ids {
    fn new(request: &Request) -> Self {
        let parts = request.messages.iter().flat_map(|m| &m.parts);
        let ids = parts.filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        });
        Self {
            taken: ids.collect(),
            next: 0,
        }
    }

    /// The id that a target gave, or one made up where it gave none or one that is taken.
    fn given(&mut self, id: Option<&str>) -> String {
        if let Some(id) = id.filter(|id| !id.is_empty())
            && self.taken.insert(id.to_owned())
        {
            return id.to_owned();
        }
        loop {
            let id = format!("call_{}", self.next);
            self.next += 1;
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}
