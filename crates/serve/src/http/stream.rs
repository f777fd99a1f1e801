//! Answers as responses: whole, or as they come.

use super::App;
use super::body::{self, Form};
use super::guard::Tenant;
use super::route::{Hints, replaced};
use super::run::{self, Next, Run, start};
use crate::protocol::{ApiError, Encoder, Event, Frame, Job};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Pieces that wait for a reader; then the answer goes on, and its events wait in their own queue.
pub(super) const WAITING_PIECES: usize = 16;

/// Frames after which a piece is sent, however much has happened: what comes as fast as it is encoded holds up nobody else.
const PIECE_FRAMES: usize = 64;

/// How a stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// Server-sent events.
    Events,
    /// Lines of JSON.
    Lines,
}

impl Wire {
    pub(super) fn write(self, frames: &mut Vec<Frame>) -> Bytes {
        let text: String = match self {
            Self::Events => frames.iter().map(Frame::sse).collect(),
            Self::Lines => frames.iter().map(Frame::line).collect(),
        };
        frames.clear();
        Bytes::from(text)
    }
}

/// What a handler knows of a request that a model is to answer.
pub(super) struct Asked<E> {
    pub(super) job: Job,
    pub(super) hints: Hints,
    pub(super) encoder: E,
    pub(super) form: Form,
    pub(super) wire: Wire,
    /// Where the request says what the answer must follow, for errors.
    pub(super) format_field: &'static str,
}

/// Answers a request. `done` gets the encoder after the last event of an answer that ended well.
pub(super) async fn answer<E: Encoder + Clone + 'static>(
    app: Arc<App>,
    tenant: Tenant,
    asked: Asked<E>,
    done: impl FnOnce(&E) + Send + 'static,
) -> Response {
    let (form, wire) = (asked.form, asked.wire);
    let stream = asked.job.stream;
    let run = match start(&app, asked.job, asked.hints, tenant, asked.format_field).await {
        Ok(run) => run,
        Err(e) => return body::error(form, &e),
    };
    let mut out = Vec::new();
    let mut voice = Voice::new(asked.encoder);
    voice.begin(&run, &mut out);
    if stream {
        let known = run.facts();
        let (sender, receiver) = mpsc::channel(WAITING_PIECES + 1);
        tokio::spawn(async move {
            tokio::select! {
                // Whoever read has gone: the answer is dropped, and so cancelled.
                () = sender.closed() => {}
                ended = send(run, &mut voice, out, wire, &sender) => if ended {
                    done(&voice.encoder);
                },
            }
        });
        let mut response = streaming(wire, receiver);
        if let Some(facts) = known {
            facts.into_headers(response.headers_mut());
        }
        return response;
    }
    match whole(run, &mut voice).await {
        Ok(run) => {
            done(&voice.encoder);
            let mut whole = voice.encoder.whole();
            if let Some(facts) = run.facts() {
                facts.into_answer(&mut whole);
            }
            let mut response = body::json(&whole);
            if let Some(facts) = run.facts() {
                facts.into_headers(response.headers_mut());
            }
            response
        }
        Err(e) => body::error(form, &e),
    }
}

/// What writes an answer, and writes it anew where it is replaced.
struct Voice<E> {
    encoder: E,
    /// As it is before an answer.
    fresh: E,
    /// The answer has begun.
    begun: bool,
    /// Its first frame has said who gives it.
    told: bool,
}

impl<E: Encoder + Clone> Voice<E> {
    fn new(encoder: E) -> Self {
        Self {
            fresh: encoder.clone(),
            encoder,
            begun: false,
            told: false,
        }
    }

    fn begin(&mut self, run: &Run, out: &mut Vec<Frame>) {
        let from = out.len();
        self.encoder.begin(&run.name, out);
        self.begun = true;
        self.tell(run, &mut out[from..]);
    }

    /// Says in the first frame of an answer who gives it.
    fn tell(&mut self, run: &Run, frames: &mut [Frame]) {
        if frames.is_empty() || std::mem::replace(&mut self.told, true) {
            return;
        }
        if let Some(facts) = run.facts() {
            facts.into_beginning(frames);
        }
    }

    fn say(&mut self, run: &mut Run, next: &Next, out: &mut Vec<Frame>) {
        match next {
            Next::Said(choice, event) => {
                if !self.begun {
                    // Who answers is known by now.
                    run.begin_again();
                    self.begin(run, out);
                }
                let from = out.len();
                self.encoder.event(*choice, event, out);
                self.tell(run, &mut out[from..]);
            }
            Next::Replaced(standing) => {
                *self = Self::new(self.fresh.clone());
                // What was not sent is void as well.
                out.clear();
                out.push(replaced(standing));
            }
        }
    }
}

async fn whole<E: Encoder + Clone>(mut run: Run, voice: &mut Voice<E>) -> Result<Run, ApiError> {
    let mut out = Vec::new();
    while let Some(next) = run.next().await? {
        voice.say(&mut run, &next, &mut out);
        out.clear();
    }
    voice.encoder.end(&mut out);
    Ok(run)
}

/// Encodes what comes next and what happened already, up to a piece; whether the answer has ended.
async fn step<E: Encoder + Clone>(run: &mut Run, voice: &mut Voice<E>, out: &mut Vec<Frame>) -> Result<bool, ApiError> {
    let mut next = run.next().await?;
    loop {
        let Some(this) = next else {
            voice.encoder.end(out);
            if let Some(facts) = run.facts() {
                facts.into_end(out);
            }
            return Ok(true);
        };
        voice.say(run, &this, out);
        next = match matches!(this, Next::Said(_, Event::End(_))) && run.facts().is_some() {
            // The last of the answer goes out with what is known of it.
            true => run.next().await?,
            false if out.len() >= PIECE_FRAMES => return Ok(false),
            false => match run.next_now()? {
                None => return Ok(false),
                next => next,
            },
        };
    }
}

/// Sends a stream. Whether it came to a good end.
async fn send<E: Encoder + Clone>(
    mut run: Run,
    voice: &mut Voice<E>,
    mut out: Vec<Frame>,
    wire: Wire,
    to: &mpsc::Sender<Bytes>,
) -> bool {
    // The end of an answer that nobody reads in time has a place of its own.
    let Ok(last) = to.clone().reserve_owned().await else {
        return false;
    };
    let mut ended = Ok(false);
    loop {
        if !out.is_empty() {
            match tokio::time::timeout_at(run.deadline, to.reserve()).await {
                Ok(Ok(place)) => place.send(wire.write(&mut out)),
                Ok(Err(_)) => return false,
                Err(_) => {
                    if ended == Ok(false) {
                        voice.encoder.fail(&run::not_read(), &mut out);
                        ended = Err(());
                    }
                    last.send(wire.write(&mut out));
                    return ended.is_ok();
                }
            }
        }
        if ended != Ok(false) {
            return ended.is_ok();
        }
        // Waiting is interrupted, never encoding: what was taken is encoded before anything else is waited for.
        match tokio::time::timeout(run.ping, step(&mut run, voice, &mut out)).await {
            Ok(Err(error)) => {
                voice.encoder.fail(&error, &mut out);
                ended = Err(());
            }
            Ok(Ok(over)) => ended = Ok(over),
            // Lines have no comments.
            Err(_) if wire == Wire::Lines => {}
            // Where no place is left, it is not the answer that is silent.
            Err(_) => match to.try_send(Bytes::from_static(b": ping\n\n")) {
                Err(TrySendError::Closed(_)) => return false,
                Ok(()) | Err(TrySendError::Full(_)) => {}
            },
        }
    }
}

pub(super) fn streaming(wire: Wire, receiver: mpsc::Receiver<Bytes>) -> Response {
    let mut response = Response::new(Body::from_stream(Pieces(receiver)));
    let kind = match wire {
        Wire::Events => "text/event-stream; charset=utf-8",
        Wire::Lines => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would gather the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What a task sends, as a stream.
struct Pieces(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|piece| piece.map(Ok))
    }
}
