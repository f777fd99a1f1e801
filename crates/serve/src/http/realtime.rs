//! `GET /v1/realtime`: live transcription over a WebSocket.
//!
//! One task talks with the client, another (`crate::listening`) listens. Between them wait at most [`QUEUED_BYTES`] of what the client has
//! sent; beyond that its next message is not read before there is room. A session takes one of the places for recordings.

use super::body::{self, Form};
use super::route::Hints;
use super::{Active, App};
use crate::hearing::Again;
use crate::listening::{Listening, Order};
use crate::models::{Detector, Does, Hearer, Lease};
use crate::protocol::openai::realtime::{Asked, Session, Told, Turns, asked};
use crate::protocol::{ApiError, Kind};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use cactus_engine::CancelToken;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Longest message: 16 seconds of sound in base64.
const MESSAGE_BYTES: usize = 1 << 20;
/// What waits to be listened to: a minute of sound.
const QUEUED_BYTES: usize = 4 << 20;
/// Events that wait for the client.
const WAITING_EVENTS: usize = 64;
/// Longest time for an event to be taken by the client, where lost pings do not say earlier that it has gone.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Longest time for the end of a session to be taken.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// How often it is looked whether somebody is still there.
const TICK: Duration = Duration::from_millis(250);
/// Pings without any answer after which nobody is there.
const LOST_PINGS: u32 = 6;
/// Longest reason of an end that the protocol has room for.
const REASON_BYTES: usize = 120;

/// Opens a session.
pub(super) async fn open(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let ready = async {
        let upgrade = upgrade.map_err(|e| {
            let message = format!("/v1/realtime expects a client that opens a WebSocket: {e}");
            ApiError::new(Kind::Invalid, message)
        })?;
        Ok((
            upgrade,
            Ready::new(&app, uri.query().unwrap_or_default(), &headers).await?,
        ))
    };
    match ready.await {
        Err(error) => body::error(Form::OpenAi, &error),
        Ok((upgrade, ready)) => upgrade
            // Browsers put a key among the protocols, as no headers are theirs to set.
            .protocols(["realtime"])
            .max_message_size(MESSAGE_BYTES)
            .max_frame_size(MESSAGE_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(MESSAGE_BYTES)
            .on_upgrade(move |socket| ready.serve(socket)),
    }
}

/// A session before its client is there.
struct Ready {
    app: Arc<App>,
    order: Order,
    place: OwnedSemaphorePermit,
    active: Active,
}

/// A field of a query, with its escapes undone.
fn field(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex
            .filter(|_| first == b'%')
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(if first == b'+' { b' ' } else { first }));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

impl Ready {
    async fn new(app: &Arc<App>, query: &str, headers: &HeaderMap) -> Result<Ready, ApiError> {
        match field(query, "intent").as_deref() {
            None | Some("transcription") => {}
            Some(_) => {
                let message = "`intent`: expected `transcription`: this server does not talk";
                return Err(ApiError::field("intent", message));
            }
        }
        let place = app.place()?;
        let active = app.begin()?;
        let model = field(query, "model").unwrap_or_default();
        let hearer = app.hearer(&model).await?;
        let detector = detector(app, hearer.model()).await;
        let session = Session::new(&hearer.model().name, detector.is_some().then(Turns::default));
        let hints = Hints::read(app, headers, &json!({}))?;
        let again = match &app.options.router {
            Some(router) if app.asks_policy(&model) => Some(Again {
                router: Arc::clone(router),
                hints: String::new(),
                session: hints.session,
                user: hints.user,
                consent: hints.consent,
                consent_to: hints.consent_to,
            }),
            _ => None,
        };
        let order = Order {
            session,
            hearer,
            detector,
            again,
            most: app.options.audio_time,
        };
        Ok(Ready {
            app: Arc::clone(app),
            order,
            place,
            active,
        })
    }

    async fn serve(self, mut socket: WebSocket) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let (events, told) = mpsc::channel(WAITING_EVENTS);
        let cancel = CancelToken::new();
        let (app, stop) = (Arc::clone(&self.app), cancel.clone());
        // A server that stops waits for it: until nothing is computed any more, and until the client has been told the last words.
        let active = Arc::new(self.active);
        let _told = Arc::clone(&active);
        tokio::spawn(async move {
            let _held = (self.place, active);
            Listening::new(Arc::clone(&self.app), self.order, events, stop)
                .run(waiting)
                .await;
        });
        let (code, reason) = Talk::new(app, queue, told).run(&mut socket).await;
        cancel.cancel();
        let reason: String = reason.chars().take(REASON_BYTES / 4).collect();
        let close = Message::Close(Some(CloseFrame {
            code,
            reason: reason.into(),
        }));
        // It may have gone.
        let _ = tokio::time::timeout(CLOSE_TIME, socket.send(close)).await;
    }
}

/// The first model that finds speech, where it takes as many samples a second as the one that hears.
async fn detector(app: &Arc<App>, hearer: &Hearer) -> Option<Lease<Detector>> {
    app.models.first(Does::FindsSpeech).await.ok()?;
    let lease = app.models.acquire_as::<Detector>("").await.ok()?;
    (lease.model().sample_rate_hz == hearer.sample_rate_hz).then_some(lease)
}

/// What the client wants, in the order in which it came, with its room in the queue.
#[derive(Debug)]
pub(crate) enum Wish {
    /// An event and the id that the client gave it.
    Event(Asked, Option<String>, OwnedSemaphorePermit),
    /// Make the last words final, and end.
    End,
}

/// The end of a session: what a client is told.
type End = (u16, String);

fn end(code: u16, reason: &str) -> End {
    (code, reason.to_owned())
}

/// Talking with a client.
struct Talk {
    app: Arc<App>,
    queue: mpsc::UnboundedSender<Wish>,
    told: mpsc::Receiver<String>,
    room: Arc<Semaphore>,
    /// What has no room in the queue, and how much it needs.
    held: Option<(Asked, Option<String>, u32)>,
    /// When the client last asked for something, and when anything came from it.
    asked: Instant,
    seen: Instant,
    pinged: Instant,
    is_ending: bool,
}

impl Talk {
    fn new(app: Arc<App>, queue: mpsc::UnboundedSender<Wish>, told: mpsc::Receiver<String>) -> Talk {
        let now = Instant::now();
        Talk {
            app,
            queue,
            told,
            room: Arc::new(Semaphore::new(QUEUED_BYTES)),
            held: None,
            asked: now,
            seen: now,
            pinged: now,
            is_ending: false,
        }
    }

    /// Until one of both has enough.
    async fn run(mut self, socket: &mut WebSocket) -> End {
        let mut tick = tokio::time::interval(TICK);
        loop {
            let needed = self.held.as_ref().map(|(.., bytes)| *bytes);
            let step = tokio::select! {
                event = self.told.recv() => match event {
                    Some(event) => self.send(socket, Message::Text(event.into())).await,
                    None => Err(end(close_code::NORMAL, "the session is over")),
                },
                permit = Arc::clone(&self.room).acquire_many_owned(needed.unwrap_or(0)), if needed.is_some() => {
                    if let (Ok(permit), Some((asked, id, _))) = (permit, self.held.take()) {
                        // Whoever listens has ended where nobody takes it, which is seen above.
                        let _ = self.queue.send(Wish::Event(asked, id, permit));
                    }
                    Ok(())
                }
                message = socket.recv(), if needed.is_none() => self.message(socket, message).await,
                _ = tick.tick() => self.look(socket, needed.is_some()).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn message(
        &mut self,
        socket: &mut WebSocket,
        message: Option<Result<Message, axum::Error>>,
    ) -> Result<(), End> {
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(end(close_code::PROTOCOL, &error.to_string())),
            None => return Err(end(close_code::NORMAL, "")),
        };
        self.seen = Instant::now();
        let (found, id, bytes) = match &message {
            Message::Text(text) => {
                let (found, id) = asked(text);
                (found, id, text.len())
            }
            Message::Binary(_) => {
                let message = "found a binary message, expected events as JSON text";
                (Err(ApiError::new(Kind::Invalid, message)), None, 0)
            }
            Message::Close(_) => return Err(end(close_code::NORMAL, "")),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        self.asked = self.seen;
        match found {
            Ok(asked) => {
                // As much as a message may have fits.
                let bytes = u32::try_from(bytes.clamp(1, MESSAGE_BYTES)).unwrap_or(u32::MAX);
                self.held = Some((asked, id, bytes));
                Ok(())
            }
            Err(error) => {
                let told = Told::Error(&error, id.as_deref()).json();
                self.send(socket, Message::Text(told.into())).await
            }
        }
    }

    async fn send(&self, socket: &mut WebSocket, message: Message) -> Result<(), End> {
        let most = SEND_TIME.min(self.app.options.ping * LOST_PINGS);
        match tokio::time::timeout(most, socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(end(close_code::NORMAL, "")),
            Err(_) => Err(end(close_code::POLICY, "events are not read")),
        }
    }

    /// Looks whether the server stops, and whether the client is there.
    async fn look(&mut self, socket: &mut WebSocket, is_full: bool) -> Result<(), End> {
        let now = Instant::now();
        if is_full {
            // It is this server that does not read.
            (self.asked, self.seen) = (now, now);
        }
        if !self.is_ending && self.app.draining.load(Ordering::Acquire) {
            self.is_ending = true;
            let _ = self.queue.send(Wish::End);
        }
        let idle = self.app.options.idle_session;
        if now - self.asked >= idle {
            let message = format!("nothing was sent for {} s", idle.as_secs_f64());
            let error = ApiError::new(Kind::Timeout, message.clone()).with_code("session_idle");
            self.send(socket, Message::Text(Told::Error(&error, None).json().into()))
                .await?;
            return Err(end(close_code::POLICY, &message));
        }
        let ping = self.app.options.ping;
        if now - self.seen > ping * LOST_PINGS {
            return Err(end(close_code::AWAY, "nobody answers"));
        }
        if now - self.pinged >= ping {
            self.pinged = now;
            return self.send(socket, Message::Ping(Vec::new().into())).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_query_are_read() {
        let query = "intent=transcription&model=org%2Fname+x%zz&flag&empty=";
        assert_eq!(field(query, "intent").as_deref(), Some("transcription"));
        assert_eq!(field(query, "model").as_deref(), Some("org/name x%zz"));
        assert_eq!(field(query, "empty").as_deref(), Some(""));
        assert_eq!(field(query, "flag"), None);
        assert_eq!(field("a=%ff", "a"), None, "no text");
        assert_eq!(field("a=%", "a").as_deref(), Some("%"));
    }
}
