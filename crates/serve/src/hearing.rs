//! A recording under way to its transcript: decoded and listened to on a thread of its own, when the model is free.
//!
//! Before its turn a recording is nothing but the bytes that came in; only its headers are read, so that what is no recording at all is
//! refused at once. Whoever drops a [`Hearing`] cancels it: between blocks of the file, and between tokens.

use crate::models::{Detector, Hearer, Lease};
use crate::protocol::openai::audio::{too_large, unreadable};
use crate::protocol::{ApiError, Kind};
use bytes::Bytes;
use cactus_audio::decode::{Limits, Reader, Recording};
use cactus_audio::{Samples, Sound};
use cactus_engine::CancelToken;
use cactus_router::hybrid::redact::Class;
use cactus_router::{Answered, Hearers, LiveHearing, Permission, Question, Revision, Router, Stop};
use cactus_speech::{Segment, SpanOptions, TranscribeOptions, Transcriber, Transcript, Vad};
use std::sync::Arc;
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
    /// Who hears again what is doubtful, where the policy is asked.
    pub(crate) again: Option<Again>,
}

/// Whom the policy lets hear again what is doubtful, and on whose word.
pub(crate) struct Again {
    pub(crate) router: Arc<Router>,
    /// Text that shows how names are spelled.
    pub(crate) hints: String,
    pub(crate) session: String,
    pub(crate) user: String,
    /// What a person has said may leave, and to which targets; where none is named, to the first that is asked about.
    pub(crate) consent: Vec<Class>,
    pub(crate) consent_to: Vec<String>,
}

/// What became of a transcript that was heard again.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) answered: Answered,
    pub(crate) revisions: Vec<Revision>,
    /// What a person would have had to say yes to.
    pub(crate) question: Option<Question>,
}

/// What comes of a recording.
#[derive(Debug)]
pub(crate) enum Event {
    /// These segments are known; there may be none in a window. What is heard again is known when all is.
    Segments(Vec<Segment>),
    /// All of it.
    Done(Transcript, Option<Box<Heard>>),
}

/// A recording that is listened to.
#[derive(Debug)]
pub(crate) struct Hearing {
    receiver: UnboundedReceiver<Result<Event, ApiError>>,
    cancel: CancelToken,
    stop: Stop,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.stop.stop();
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
            // It knows English alone: most programs name that one whatever the model is.
            order.options.language = order.options.language.filter(|code| code != "en");
        }
        transcriber.check(&order.options).map_err(|e| refused(&e))?;
        // Without times of words nobody can tell what another has heard differently.
        order.again = order.again.filter(|_| transcriber.has_words());
        let vad = match &order.speech {
            Some((lease, _)) => Some(lease.model().turn().await),
            None => None,
        };
        let cancel = CancelToken::new();
        let stop = Stop::default();
        let (sender, receiver) = unbounded_channel();
        let hearing = Hearing {
            receiver,
            cancel: cancel.clone(),
            stop: stop.clone(),
        };
        tokio::task::spawn_blocking(move || {
            // Held until all is done.
            let _lease = lease;
            let ended = listen(transcriber, vad, order, &cancel, &stop, &sender);
            // Nobody may listen any more.
            let _ = sender.send(ended.map(|(transcript, heard)| Event::Done(transcript, heard)));
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
    mut order: Order,
    cancel: &CancelToken,
    stop: &Stop,
    sender: &UnboundedSender<Result<Event, ApiError>>,
) -> Result<(Transcript, Option<Box<Heard>>), ApiError> {
    let rate_hz = transcriber.sample_rate_hz();
    let (words, again) = (order.options.words, order.again.take());
    order.options.words |= again.is_some();
    // One that ends before the length that it states is an error: a part of it got lost.
    let read = Recording::from_bytes(order.file, rate_hz, order.limits);
    let mut read = read.map_err(|e| refused(&e.into()))?.whole();
    // Whoever hears again gets pieces of it, which are not known yet.
    let kept = again.as_ref().map(|_| all(&mut read, cancel)).transpose();
    let mut kept = kept.map_err(|e| refused(&e))?.map(Samples::new);
    let sound: &mut dyn Sound = match &mut kept {
        Some(kept) => kept,
        None => &mut read,
    };
    let mut each = |progress: cactus_speech::Progress<'_>| {
        // What may still change is not told.
        if again.is_none() && sender.send(Ok(Event::Segments(progress.segments.to_vec()))).is_err() {
            cancel.cancel();
        }
    };
    let heard = match (vad, &order.speech) {
        (Some(mut vad), Some((_, options))) => vad.spans_of(sound, options, cancel).and_then(|spans| {
            drop(vad);
            transcriber.transcribe_spans_of(sound, &spans, &order.options, cancel, &mut each)
        }),
        _ => transcriber.transcribe_sound(sound, &order.options, cancel, &mut each),
    };
    let transcript = heard.map_err(|e| refused(&e))?;
    // Others may use the model while a target is asked.
    drop(transcriber);
    let (Some(again), Some(kept)) = (again, kept) else {
        return Ok((transcript, None));
    };
    let (mut transcript, heard) = again.hear(kept.all(), rate_hz, transcript, stop);
    if !words {
        transcript.segments.iter_mut().for_each(|segment| segment.words.clear());
    }
    // Nobody may listen any more.
    let _ = sender.send(Ok(Event::Segments(transcript.segments.clone())));
    Ok((transcript, heard))
}

impl Again {
    /// Lets targets hear again what is doubtful of live speech.
    ///
    /// # Errors
    /// Where there can be no thread for it.
    pub(crate) fn live(self) -> cactus_router::Result<LiveHearing> {
        let hearers = Hearers {
            target: None,
            hints: self.hints.clone(),
            session: self.session.clone(),
            user: self.user.clone(),
        };
        LiveHearing::start(Arc::clone(&self.router), hearers, move |question| self.says(question))
    }

    /// What a person has said beforehand. A yes to one target is none to another.
    fn says(&self, question: &Question) -> Permission {
        let hearers = self.router.policy().targets.values().filter(|target| target.hears());
        let meant = match self.consent_to.as_slice() {
            [] => hearers.count() == 1,
            named => named.contains(&question.target),
        };
        match meant && question.classes.iter().all(|class| self.consent.contains(class)) {
            true => Permission::Yes,
            false => Permission::Nobody,
        }
    }

    fn hear(
        &self,
        samples: &[f32],
        rate_hz: u32,
        transcript: Transcript,
        stop: &Stop,
    ) -> (Transcript, Option<Box<Heard>>) {
        let recording = cactus_router::Recording {
            samples,
            rate_hz,
            transcript: &transcript,
            shown: None,
            hints: &self.hints,
            target: None,
            session: &self.session,
            user: &self.user,
        };
        let mut refused = None;
        let mut person = |question: &Question| {
            let said = self.says(question);
            if said == Permission::Nobody {
                refused = Some(question.clone());
            }
            said
        };
        match self.router.hear_again(&recording, &mut person, stop) {
            Ok(reheard) => {
                let heard = Heard {
                    answered: reheard.answered,
                    revisions: reheard.revisions,
                    question: refused,
                };
                (reheard.transcript, Some(Box::new(heard)))
            }
            // No target was named, so none can be unknown.
            Err(_) => (transcript, None),
        }
    }
}

/// All samples of a recording.
fn all(sound: &mut dyn Sound, cancel: &CancelToken) -> Result<Vec<f32>, cactus_speech::Error> {
    let mut samples = Vec::new();
    while sound.read(&mut samples)? {
        if cancel.is_cancelled() {
            return Err(cactus_speech::Error::Cancelled);
        }
    }
    Ok(samples)
}
