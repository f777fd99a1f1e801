//! One request over HTTP: deadlines, limits, cancellation.
//!
//! A thread reads from the network and hands on what it reads with the time it came. The caller's thread makes events of it and
//! keeps the deadlines, so that a name look-up that hangs delays nobody, and a slow caller is not taken for a slow target. A
//! call that is stopped, or dropped before its end, closes its connection. One whose answer was read to the end leaves it to the
//! next call.
//!
//! Nothing is sent a second time here. A connection that waited is looked at before it is used, and left alone where the other side
//! has closed it. Where that happens just then, nobody can know whether the request was read: the call ends as
//! [`ErrorKind::Cut`], may have been billed, and trying again is the caller's, who reserves money for it.

use crate::codec::failure::{self, RetryHeaders};
use crate::codec::transcription::{self, Sound, Transcriber};
use crate::codec::{self, Decoder, Wire};
use crate::names::{LookUp, Names, NoAddress};
use crate::warm::{self, Purpose, Warm};
use crate::{Error, ErrorKind, Event, Key, Request, Result, SseEvent, SseReader, Target};
use secrecy::ExposeSecret as _;
use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::Agent;
use ureq::config::Config;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;

/// How long a call may take. Keep-alives, pings and comments are no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Until the host is connected, with its name looked up and its certificate checked.
    pub connect: Duration,
    /// From there until the first piece of a streamed answer.
    pub first: Duration,
    /// From one piece of a streamed answer to the next.
    pub gap: Duration,
    /// For everything.
    pub total: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first: Duration::from_secs(8),
            gap: Duration::from_secs(10),
            total: Duration::from_secs(60),
        }
    }
}

/// How much an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the whole body, unpacked.
    pub body_bytes: usize,
    /// Of a line of a stream.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            line_bytes: 1 << 20,
        }
    }
}

/// How calls are made.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// Time limits.
    pub deadlines: Deadlines,
    /// Size limits.
    pub limits: Limits,
    /// Certificates in PEM form that are trusted *instead of* the system's; for a server of one's own.
    pub authorities: Option<Vec<u8>>,
    /// How names of hosts are looked up.
    pub look_up: LookUp,
    /// Connections that wait for the next call.
    pub warm: Warm,
}

/// How long the end of a body is waited for whose answer has ended: it mostly comes with it.
const LINGER: Duration = Duration::from_millis(50);

/// The agent of a call, until the call is over; whoever takes it decides what becomes of its connection.
type Held = Arc<Mutex<Option<Agent>>>;

fn take(held: &Held) -> Option<Agent> {
    held.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Closes the connection of a call that is not over.
fn close(held: &Held) {
    if let Some(agent) = take(held) {
        agent.shutdown();
    }
}

/// What the reading thread says, and when it came.
enum Said {
    Head {
        status: u16,
        headers: RetryHeaders,
        stream: bool,
    },
    Bytes(Vec<u8>),
    End,
    Failed(Error),
    Cancelled,
}

/// What makes events of an answer, whole or in pieces.
pub trait Reads {
    /// What it makes.
    type Event;
    /// Takes an event of a stream.
    fn event(&mut self, event: &SseEvent, out: &mut Vec<Self::Event>) -> Result<()>;
    /// Takes an answer that is not a stream.
    fn whole(&mut self, body: &[u8], out: &mut Vec<Self::Event>) -> Result<()>;
    /// The body of a stream has ended.
    fn end(&mut self, out: &mut Vec<Self::Event>) -> Result<()>;
    /// Whether the answer is whole.
    fn has_ended(&self) -> bool;
    /// Whether the answer goes on with it. What can come for ever without an answer is no progress.
    fn is_progress(event: &Self::Event) -> bool;
}

impl Reads for Decoder {
    type Event = Event;

    fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        Decoder::event(self, event, out)
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<()> {
        Decoder::whole(self, body, out)
    }

    fn end(&mut self, out: &mut Vec<Event>) -> Result<()> {
        Decoder::end(self, out)
    }

    fn has_ended(&self) -> bool {
        Decoder::has_ended(self)
    }

    fn is_progress(event: &Event) -> bool {
        !matches!(event, Event::Usage(_))
    }
}

/// A call in flight; an iterator over its events. After an error, or after [`Event::Done`] and the counts that may follow it,
/// there are no more.
#[derive(Debug)]
pub struct Call<D: Reads = Decoder> {
    agent: Held,
    purpose: Purpose,
    warm: Warm,
    /// The answer was read to the end of its body.
    whole: bool,
    inbox: Receiver<(Instant, Said)>,
    cancel: Sender<(Instant, Said)>,
    key: Option<Key>,
    decoder: D,
    reader: SseReader,
    streamed: bool,
    status: Option<(u16, RetryHeaders)>,
    body: Vec<u8>,
    received_bytes: usize,
    limits: Limits,
    deadlines: Deadlines,
    asked: Instant,
    progress: Instant,
    first: bool,
    ready: VecDeque<D::Event>,
    finished: bool,
    /// The error that comes after the events that are ready.
    failed: Option<Error>,
    /// What the target does not take and was left out, each in a sentence.
    pub notes: Vec<String>,
}

/// Stops a call from another thread.
#[derive(Clone, Debug)]
pub struct Cancel {
    agent: Held,
    inbox: Sender<(Instant, Said)>,
}

impl Cancel {
    /// Ends the call: its next event is an error of kind [`ErrorKind::Cancelled`], and its connection is closed. A call that
    /// has ended is not changed.
    pub fn cancel(&self) {
        // Who has gone needs no message.
        let _ = self.inbox.send((Instant::now(), Said::Cancelled));
        close(&self.agent);
    }
}

impl Transport {
    /// Sends a request once. Trying again is the caller's, who may have to ask for money first.
    ///
    /// # Errors
    /// As [`codec::encode`], or [`ErrorKind::InvalidKey`] for a key of another host: all before anything is sent. What fails
    /// later is an item of the call.
    pub fn call(&self, target: &Target, key: Option<&Key>, request: &Request) -> Result<Call> {
        let wire = codec::encode(target, request)?;
        self.send(target, key, wire, request.stream, Decoder::new(target, request))
    }

    /// Sends sound once, to be written down: the call gives one [`transcription::Transcription`].
    ///
    /// # Errors
    /// As [`transcription::encode`], and otherwise as [`Transport::call`].
    pub fn transcribe(&self, target: &Target, key: Option<&Key>, sound: &Sound) -> Result<Call<Transcriber>> {
        let wire = transcription::encode(target, sound)?;
        self.send(target, key, wire, false, Transcriber::default())
    }

    fn send<D: Reads>(
        &self,
        target: &Target,
        key: Option<&Key>,
        wire: Wire,
        streamed: bool,
        decoder: D,
    ) -> Result<Call<D>> {
        let purpose = Purpose::new(target, self.deadlines, self.authorities.as_ref(), &self.look_up);
        let agent = match self.warm.take(&purpose) {
            Some(agent) => agent,
            None => self.agent(target)?,
        };
        let mut post = agent
            .post(target.base.join(&wire.path))
            .header("content-type", &wire.content_type);
        for (name, value) in &wire.headers {
            post = post.header(*name, *value);
        }
        if let Some(key) = key {
            let (name, value) = key.header(target)?;
            post = post.header(name, value.expose_secret());
        }
        let (send, inbox) = mpsc::channel();
        let cancel = send.clone();
        let most = self.limits.body_bytes;
        let run = move || {
            let say = |said| send.send((Instant::now(), said)).is_ok();
            let mut body = Watched {
                rest: &wire.body,
                sent: false,
            };
            let length = wire.body.len().to_string();
            let asked = post
                .header("content-length", length)
                .send(ureq::SendBody::from_reader(&mut body));
            let failed = match asked {
                Err(error) => {
                    let stage = if body.sent { Stage::Asked } else { Stage::Connecting };
                    // Before the body is asked for there is a connection, or there is none: nothing can have been billed.
                    Some(network(&error, stage).with_bill(body.sent))
                }
                Ok(response) => read(response, most, &say),
            };
            say(failed.map_or(Said::End, Said::Failed));
        };
        thread::Builder::new()
            .name("cactus-cloud".into())
            .spawn(run)
            .map_err(|e| Error::new(ErrorKind::Unreachable, format!("no thread could be started: {e}")))?;
        let now = Instant::now();
        Ok(Call {
            agent: Arc::new(Mutex::new(Some(agent))),
            purpose,
            warm: self.warm.clone(),
            whole: false,
            inbox,
            cancel,
            key: key.cloned(),
            decoder,
            reader: SseReader::new(self.limits.line_bytes, self.limits.body_bytes),
            streamed,
            status: None,
            body: Vec::new(),
            received_bytes: 0,
            limits: self.limits,
            deadlines: self.deadlines,
            asked: now,
            progress: now,
            first: true,
            ready: VecDeque::new(),
            finished: false,
            failed: None,
            notes: wire.notes,
        })
    }

    fn agent(&self, target: &Target) -> Result<Agent> {
        let roots = match &self.authorities {
            None => RootCerts::PlatformVerifier,
            Some(pem) => {
                let certificate = Certificate::from_pem(pem)
                    .map_err(|_| Error::new(ErrorKind::InvalidTarget, "the certificate of the authority is not PEM"))?;
                RootCerts::new_with_certs(&[certificate])
            }
        };
        let mut config = Config::builder()
            .https_only(!target.base.is_plain())
            .max_redirects(0)
            .http_status_as_error(false)
            .accept_encoding("identity")
            .user_agent(concat!("cactus/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .max_idle_age(warm::WAIT)
            .timeout_resolve(Some(self.deadlines.connect))
            .timeout_connect(Some(self.deadlines.connect))
            .timeout_global(Some(self.deadlines.total));
        // What goes to the house does not go by way of a proxy, and what has to be private is looked at by its address.
        if target.base.is_plain() || target.base.is_private() {
            config = config.proxy(None);
        }
        let names = Names {
            only_private: target.base.is_plain(),
            look_up: self.look_up.clone(),
        };
        Ok(Agent::with_parts(config.build(), DefaultConnector::default(), names))
    }
}

/// A body that knows whether any of it was taken.
struct Watched<'a> {
    rest: &'a [u8],
    sent: bool,
}

impl std::io::Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.sent = true;
        self.rest.read(buffer)
    }
}

/// Reads an answer to its end; gives the error that ended it early.
fn read(mut response: ureq::http::Response<ureq::Body>, most: usize, say: &dyn Fn(Said) -> bool) -> Option<Error> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let get = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok());
    let kind = get("content-type").unwrap_or_default().to_ascii_lowercase();
    let status = response.status().as_u16();
    let headers = RetryHeaders::read(get, unix);
    let stream = kind.starts_with("text/event-stream");
    if status == 200 && !stream && !kind.starts_with("application/json") {
        let kind: String = kind.chars().filter(|c| c.is_ascii_graphic()).take(40).collect();
        let message = format!("the target answered with `{kind}`, expected JSON or an event stream");
        return Some(Error::new(ErrorKind::Protocol, message).with_status(status));
    }
    if !say(Said::Head {
        status,
        headers,
        stream,
    }) {
        return None;
    }
    let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
    let mut buffer = vec![0; 16 << 10];
    let mut read_bytes = 0;
    // One byte more than allowed is enough to know; the caller says so.
    while read_bytes <= most {
        match reader.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => {
                read_bytes += count;
                if !say(Said::Bytes(buffer[..count].to_vec())) {
                    return None;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Some(network(&ureq::Error::from(e), Stage::Answered)),
        }
    }
    None
}

/// How far a call had come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of the body has left.
    Connecting,
    /// Some of the body has left.
    Asked,
    /// The answer's head has come.
    Answered,
}

/// The kind of a failure on the way. Its words are the library's, which knows neither headers nor bodies.
fn network(error: &ureq::Error, stage: Stage) -> Error {
    use std::io::ErrorKind as Io;
    use ureq::{Error as E, Timeout};
    let no_address = match error {
        E::Other(why) => why.downcast_ref::<NoAddress>(),
        _ => None,
    };
    if let Some(why) = no_address {
        return Error::new(ErrorKind::Unreachable, why.to_string()).with_bill(false);
    }
    let (kind, sent) = match error {
        E::HostNotFound => (ErrorKind::Unreachable, false),
        E::Timeout(Timeout::Resolve | Timeout::Connect) => (ErrorKind::Timeout, false),
        E::Timeout(_) => (ErrorKind::Timeout, true),
        E::Rustls(_) | E::Tls(_) | E::TlsRequired => (ErrorKind::Tls, false),
        E::RequireHttpsOnly(_) | E::BadUri(_) => (ErrorKind::InvalidTarget, false),
        E::RedirectFailed | E::TooManyRedirects => (ErrorKind::Redirect, false),
        E::ConnectionFailed | E::ConnectProxyFailed(_) => (ErrorKind::Unreachable, false),
        E::LargeResponseHeader(..) => (ErrorKind::TooLarge, true),
        E::Protocol(_) if stage != Stage::Answered => (ErrorKind::Protocol, true),
        E::Decompress(..) => (ErrorKind::Protocol, true),
        E::Io(e) => match e.kind() {
            Io::ConnectionRefused | Io::HostUnreachable | Io::NetworkUnreachable | Io::AddrNotAvailable => {
                (ErrorKind::Unreachable, false)
            }
            // A handshake's errors come wrapped. After it, a broken record is a broken connection.
            Io::InvalidData if stage == Stage::Connecting => (ErrorKind::Tls, false),
            Io::TimedOut => (ErrorKind::Timeout, true),
            _ => (ErrorKind::Cut, true),
        },
        _ => (ErrorKind::Cut, true),
    };
    Error::new(kind, format!("the call failed on the way: {error}")).with_bill(sent)
}

impl<D: Reads> Call<D> {
    /// What stops this call from another thread.
    #[must_use]
    pub fn canceller(&self) -> Cancel {
        Cancel {
            agent: Arc::clone(&self.agent),
            inbox: self.cancel.clone(),
        }
    }

    /// When to give up, and what is said then.
    fn deadline(&self) -> (Instant, &'static str, bool) {
        let d = &self.deadlines;
        let total = (self.asked + d.total, "the answer took too long in all", true);
        let next = match (self.status, self.first) {
            // Connecting has limits of its own, for the look-up and the rest.
            (None, _) if !self.streamed => return total,
            (None, _) => (
                self.asked + d.connect * 2 + d.first,
                "the answer did not begin in time",
                true,
            ),
            _ if !self.streamed => return total,
            (_, true) => (self.progress + d.first, "the answer did not begin in time", true),
            (_, false) => (self.progress + d.gap, "the answer did not go on in time", true),
        };
        if next.0 < total.0 { next } else { total }
    }

    fn step(&mut self) -> Result<bool> {
        let (until, why, billed) = self.deadline();
        // What came in time counts, however late it is looked at.
        let (came, said) = match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Err(Error::new(ErrorKind::Timeout, why).with_bill(billed)),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::new(ErrorKind::Cut, "the call broke off")),
        };
        if came > until && !matches!(said, Said::Cancelled) {
            return Err(Error::new(ErrorKind::Timeout, why).with_bill(billed));
        }
        match said {
            Said::Cancelled => return Err(Error::new(ErrorKind::Cancelled, "the call was stopped")),
            Said::Failed(error) => return Err(error),
            Said::Head {
                status,
                headers,
                stream,
            } => {
                self.status = Some((status, headers));
                // One may be sent where none was asked for, and the other way round.
                self.streamed = stream;
                self.progress = came;
            }
            Said::Bytes(bytes) => {
                self.received_bytes += bytes.len();
                if self.received_bytes > self.limits.body_bytes {
                    let message = format!("the answer is longer than {} bytes", self.limits.body_bytes);
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                self.take(&bytes, came)?;
            }
            Said::End => {
                self.whole = true;
                self.end()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_success(&self) -> bool {
        matches!(self.status, Some((200, _)))
    }

    fn take(&mut self, bytes: &[u8], came: Instant) -> Result<()> {
        if !self.is_success() || !self.streamed {
            self.body.extend_from_slice(bytes);
            return Ok(());
        }
        let mut frames = Vec::new();
        let fed = self.reader.feed(bytes, &mut frames);
        for frame in &frames {
            let mut events = Vec::new();
            let read = self.decoder.event(frame, &mut events);
            if events.iter().any(D::is_progress) {
                self.progress = came;
                self.first = false;
            }
            self.ready.extend(events);
            read?;
        }
        fed
    }

    fn end(&mut self) -> Result<()> {
        let mut events = Vec::new();
        let ended = match self.status {
            Some((200, _)) if self.streamed => self.decoder.end(&mut events),
            Some((200, _)) => self.decoder.whole(&self.body, &mut events),
            Some((status, headers)) => Err(failure::of_response(status, headers, &self.body)),
            None => Err(Error::new(ErrorKind::Cut, "the call broke off")),
        };
        self.ready.extend(events);
        ended
    }
}

impl<D: Reads> Iterator for Call<D> {
    type Item = Result<D::Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            if std::mem::replace(&mut self.finished, true) {
                return None;
            }
            // A whole answer needs no clean end of its connection.
            if self.decoder.has_ended() {
                return None;
            }
            match self.step() {
                Ok(more) => self.finished = !more,
                Err(error) => {
                    if !self.whole {
                        close(&self.agent);
                    }
                    let error = match &self.key {
                        Some(key) => key.scrub(error),
                        None => error,
                    };
                    // Events that came with the error, in the same piece, come before it.
                    if self.ready.is_empty() {
                        return Some(Err(error));
                    }
                    self.failed = Some(error);
                }
            }
        }
    }
}

impl<D: Reads> Call<D> {
    /// Waits shortly for the end of a body of which nothing more is needed; whether it came.
    fn lingers(&self) -> bool {
        let until = Instant::now() + LINGER;
        while let Ok((_, said)) = self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            match said {
                Said::End => return true,
                Said::Bytes(_) | Said::Head { .. } => {}
                Said::Failed(_) | Said::Cancelled => return false,
            }
        }
        false
    }
}

impl<D: Reads> Drop for Call<D> {
    fn drop(&mut self) {
        // Taken first, so that whoever cancels what is over changes nothing.
        let ended = self.whole || (self.decoder.has_ended() && self.failed.is_none());
        let Some(agent) = take(&self.agent) else { return };
        match ended && (self.whole || self.lingers()) {
            true => self.warm.give(self.purpose.clone(), agent),
            false => agent.shutdown(),
        }
    }
}
