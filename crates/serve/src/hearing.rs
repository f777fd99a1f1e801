//! A recording under way to its transcript: decoded and listened to on a thread of its own, when the model is free.
//!
//! Before its turn a recording is nothing but the bytes that came in; only its headers are read, so that what is no recording at all is
//! refused at once. Whoever drops a [`Hearing`] cancels it: between blocks of the file, and between tokens.

use crate::models::{Detector, Hearer, Lease};
use crate::protocol::openai::audio::{too_large, unreadable};
use crate::protocol::{ApiError, Kind};
use bytes::Bytes;
use cactus_audio::decode::{Limits, Mono, Reader};
use cactus_engine::CancelToken;
use cactus_speech::{Segment, SpanOptions, TranscribeOptions, Transcriber, Transcript, Vad};
use tokio::sync::OwnedMutexGuard;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What is to be listened to, and how.
pub(crate) struct Order {
    /// A file of any kind.
    pub(crate) file: Bytes,
    pub(crate) options: TranscribeOptions,
    /// What finds speech first.
    pub(crate) speech: Option<(Lease<Detector>, SpanOptions)>,
    /// Longest recording.
    pub(crate) limits: Limits,
}

/// What comes of a recording.
#[derive(Debug)]
pub(crate) enum Event {
    /// These segments are known; there may be none in a window.
    Segments(Vec<Segment>),
    /// All of it.
    Done(Transcript),
}

/// A recording that is listened to.
#[derive(Debug)]
pub(crate) struct Hearing {
    receiver: UnboundedReceiver<Result<Event, ApiError>>,
    cancel: CancelToken,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Hearing {
    /// Waits for the model, and begins.
    ///
    /// # Errors
    /// What is no recording; an option that the model does not have.
    pub(crate) async fn start(lease: Lease<Hearer>, mut order: Order) -> Result<Hearing, ApiError> {
        let (file, limits) = (order.file.clone(), order.limits);
        let looked = tokio::task::spawn_blocking(move || open(file, limits).map(drop)).await;
        looked.map_err(|e| stopped(&e))??;
        let transcriber = lease.model().turn().await;
        if transcriber.languages().next().is_none() {
            // It knows English alone, and has no token for it.
            order.options.language = order.options.language.filter(|code| code != "en");
        }
        transcriber.check(&order.options).map_err(|e| refused(&e))?;
        let vad = match &order.speech {
            Some((lease, _)) => Some(lease.model().turn().await),
            None => None,
        };
        let cancel = CancelToken::new();
        let (sender, receiver) = unbounded_channel();
        let hearing = Hearing {
            receiver,
            cancel: cancel.clone(),
        };
        tokio::task::spawn_blocking(move || {
            // Held until all is done.
            let _lease = lease;
            let ended = listen(transcriber, vad, order, &cancel, &sender);
            // Nobody may listen any more.
            let _ = sender.send(ended.map(Event::Done));
        });
        Ok(hearing)
    }

    /// The next event; after [`Event::Done`] or an error nothing follows.
    ///
    /// # Errors
    /// A recording that cannot be read as a whole, or a model that failed.
    pub(crate) async fn next(&mut self) -> Result<Event, ApiError> {
        let next = self.receiver.recv().await;
        next.unwrap_or_else(|| Err(stopped(&"the model has failed")))
    }
}

fn stopped(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(Kind::Server, format!("the transcription was stopped: {why}"))
}

fn open(file: Bytes, limits: Limits) -> Result<Reader, ApiError> {
    Reader::from_bytes(file, limits).map_err(|e| refused(&e.into()))
}

/// An error of listening, as the client gets it.
fn refused(error: &cactus_speech::Error) -> ApiError {
    use cactus_speech::{Error, ErrorKind};
    match error {
        Error::Sound(e) if e.kind() == cactus_audio::ErrorKind::TooLong => too_large(e),
        _ => match error.kind() {
            ErrorKind::Sound => unreadable(error),
            ErrorKind::Option => ApiError::new(Kind::Invalid, error.to_string()),
            _ => ApiError::new(Kind::Server, format!("the recording cannot be transcribed: {error}")),
        },
    }
}

fn listen(
    mut transcriber: OwnedMutexGuard<Transcriber>,
    vad: Option<OwnedMutexGuard<Vad>>,
    order: Order,
    cancel: &CancelToken,
    sender: &UnboundedSender<Result<Event, ApiError>>,
) -> Result<Transcript, ApiError> {
    let samples = samples(order.file, order.limits, transcriber.sample_rate_hz(), cancel)?;
    let mut each = |progress: cactus_speech::Progress<'_>| {
        if sender.send(Ok(Event::Segments(progress.segments.to_vec()))).is_err() {
            cancel.cancel();
        }
    };
    let heard = match (vad, &order.speech) {
        (Some(mut vad), Some((_, options))) => vad.spans(&samples, options).and_then(|spans| {
            drop(vad);
            transcriber.transcribe_spans(&samples, &spans, &order.options, cancel, &mut each)
        }),
        _ => transcriber.transcribe(&samples, &order.options, cancel, &mut each),
    };
    heard.map_err(|e| refused(&e))
}

/// A whole file as the model takes it. One that ends before the length that it states is an error: a part of it got lost.
fn samples(file: Bytes, limits: Limits, rate_hz: u32, cancel: &CancelToken) -> Result<Vec<f32>, ApiError> {
    let sound = |e: cactus_audio::Error| refused(&e.into());
    let mut mono = Mono::new(open(file, limits)?, rate_hz).map_err(sound)?;
    let mut samples = Vec::new();
    while mono.read(&mut samples).map_err(sound)? {
        if cancel.is_cancelled() {
            return Err(refused(&cactus_speech::Error::Cancelled));
        }
    }
    let info = mono.reader().info();
    let found = samples.len() as f64 / f64::from(rate_hz);
    match info.frames.map(|frames| frames as f64 / f64::from(info.sample_rate_hz)) {
        Some(stated) if mono.reader().is_truncated() && found < stated - STATED_ERROR_S => Err(unreadable(
            format_args!("the file ends early: it states {stated:.2} s and has {found:.2} s"),
        )),
        _ => Ok(samples),
    }
}

/// By how much a stated length may be wrong, in seconds.
const STATED_ERROR_S: f64 = 0.1;
