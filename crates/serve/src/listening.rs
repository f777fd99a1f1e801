//! Live sound of a realtime session to what its client is told.
//!
//! The model is taken for each piece of sound, so sessions and recordings have it by turns; what is computed runs on a thread of its
//! own. Wishes are done one after the other, in the order in which they came.

use crate::hearing::Again;
use crate::http::{App, Wish};
use crate::models::{Detector, Hearer, Lease};
use crate::protocol::openai::realtime::{Asked, Growing, Session, Told, Update};
use crate::protocol::{ApiError, Kind, new_id};
use cactus_audio::Resampler;
use cactus_engine::CancelToken;
use cactus_router::{LiveHearing, Offered, Phrase};
use cactus_speech::{Error, Segment, Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};

/// How often it is looked whether something was heard again.
const LOOK: Duration = Duration::from_millis(100);
/// Pieces a second in which sound is listened to.
const PIECES: usize = 2;
/// Most seconds of sound that are kept until the client says that they are all.
const KEPT_S: usize = 600;

/// What to listen with, and how.
pub(crate) struct Order {
    pub(crate) session: Session,
    pub(crate) hearer: Lease<Hearer>,
    /// What finds speech, where there is such a model.
    pub(crate) detector: Option<Lease<Detector>>,
    /// Who hears again what is doubtful, where the policy is asked.
    pub(crate) again: Option<Again>,
    /// Longest sound.
    pub(crate) most: Duration,
}

/// Items that targets hear again while listening goes on.
struct Later {
    hearing: LiveHearing,
    /// Those that were handed over, by the number that they were given.
    items: BTreeMap<usize, String>,
    next: usize,
}

/// What becomes of sound.
enum Ear {
    /// It is cut into phrases.
    Phrases(Box<Stream>),
    /// It is kept until the client says that it is all.
    Kept(Vec<f32>),
}

/// A stretch of speech on its way.
struct Item {
    id: String,
    start_s: f64,
    text: Growing,
    language: Option<String>,
}

impl Item {
    fn new(start_s: f64) -> Item {
        Item {
            id: new_id("item_"),
            start_s,
            text: Growing::default(),
            language: None,
        }
    }
}

impl Later {
    /// Hands an item over. What nobody has time for stays as it is.
    fn offer(&mut self, item: &str, segment: Segment, language: Option<String>, samples: Vec<f32>, rate_hz: u32) {
        let id = self.next;
        self.next += 1;
        let phrase = Phrase {
            segment: Segment { id, ..segment },
            language,
            samples,
            rate_hz,
        };
        if self.hearing.offer(phrase) == Offered::Taken {
            self.items.insert(id, item.to_owned());
        }
    }
}

/// The client has gone, or the session is over.
struct Over;

/// A session that listens.
pub(crate) struct Listening {
    app: Arc<App>,
    id: String,
    order: Order,
    events: Sender<String>,
    cancel: CancelToken,
    /// None while it is away computing, and after a failure.
    ear: Option<Ear>,
    later: Option<Later>,
    resampler: Option<Resampler>,
    item: Option<Item>,
    /// The item before.
    previous: Option<String>,
    /// Seconds of sound, and those before the ear began.
    heard_s: f64,
    before_s: f64,
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round().max(0.0) as u64
}

/// An error of speech, as the client gets it.
fn refused(error: &Error) -> ApiError {
    use cactus_speech::ErrorKind;
    match error.kind() {
        ErrorKind::Sound | ErrorKind::Option => ApiError::new(Kind::Invalid, error.to_string()),
        _ => ApiError::new(Kind::Server, format!("the sound cannot be transcribed: {error}")),
    }
}

impl Listening {
    pub(crate) fn new(app: Arc<App>, order: Order, events: Sender<String>, cancel: CancelToken) -> Listening {
        Listening {
            app,
            id: new_id("sess_"),
            order,
            events,
            cancel,
            ear: None,
            later: None,
            resampler: None,
            item: None,
            previous: None,
            heard_s: 0.0,
            before_s: 0.0,
        }
    }

    /// Does what is wished until nothing more can come, or until the client has gone.
    pub(crate) async fn run(mut self, mut wishes: UnboundedReceiver<Wish>) {
        let Ok(()) = self.begin().await else { return };
        loop {
            let waits = self.later.as_ref().is_some_and(|later| later.hearing.waiting() > 0);
            let wish = tokio::select! {
                wish = wishes.recv() => wish,
                () = tokio::time::sleep(LOOK), if waits => match self.revised().await {
                    Ok(()) => continue,
                    Err(Over) => return,
                },
            };
            let Some(wish) = wish else { return };
            let done = match wish {
                Wish::End => {
                    let _ = self.finish().await;
                    Err(Over)
                }
                // Its room in the queue is free when it is done.
                Wish::Event(asked, id, _room) => match self.event(asked).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => self.tell(&Told::Error(&error, id.as_deref())).await,
                    Err(over) => Err(over),
                },
            };
            if done.is_err() || self.revised().await.is_err() {
                return;
            }
        }
    }

    /// Tells what was heard again and changed meanwhile.
    async fn revised(&mut self) -> Result<(), Over> {
        while let Some(later) = &mut self.later {
            let Some(amended) = later.hearing.next(Duration::ZERO) else {
                break;
            };
            let item = later.items.remove(&amended.segment.id);
            let (Some(item), true) = (item, amended.revision.revision > 0) else {
                continue;
            };
            let mut answered = amended.answered.to_json();
            answered.insert("revision".to_owned(), amended.revision.revision.into());
            answered.insert("amended".to_owned(), amended.revision.amended.into());
            answered.insert("answered_by".to_owned(), amended.revision.target.into());
            let told = Told::Revised {
                item: &item,
                text: amended.segment.text.trim_start(),
                answered: &answered,
            };
            self.tell(&told).await?;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Over> {
        if let Some(again) = self.order.again.take() {
            match again.live() {
                Ok(hearing) => {
                    self.later = Some(Later {
                        hearing,
                        items: BTreeMap::new(),
                        next: 0,
                    });
                }
                Err(error) => {
                    let error = ApiError::new(Kind::Server, error.to_string());
                    self.tell(&Told::Error(&error, None)).await?;
                    return Err(Over);
                }
            }
        }
        if let Err(error) = self.renew().await? {
            self.tell(&Told::Error(&error, None)).await?;
            return Err(Over);
        }
        let told = Told::Created(&self.order.session, &self.id).json();
        self.send(told).await
    }

    async fn tell(&self, told: &Told<'_>) -> Result<(), Over> {
        self.send(told.json()).await
    }

    async fn send(&self, told: String) -> Result<(), Over> {
        self.events.send(told).await.map_err(|_| Over)
    }

    /// What is wrong with an event is for the client.
    async fn event(&mut self, asked: Asked) -> Result<Result<(), ApiError>, Over> {
        match asked {
            Asked::Update(update) => self.update(&update).await,
            Asked::Append(sound) => self.append(&sound).await,
            Asked::Commit => self.commit().await,
            Asked::Clear => {
                self.item = None;
                if let Err(error) = self.renew().await? {
                    return Ok(Err(error));
                }
                self.tell(&Told::Cleared).await.map(Ok)
            }
        }
    }

    async fn update(&mut self, update: &Update) -> Result<Result<(), ApiError>, Over> {
        let session = match self.order.session.updated(update) {
            Ok(session) => session,
            Err(error) => return Ok(Err(error)),
        };
        if session.turns.is_some() && self.order.detector.is_none() {
            let param = "session.audio.input.turn_detection";
            let message = format!(
                "`{param}`: this server has no model that finds speech beside the one that hears; send null, and \
                 `input_audio_buffer.commit` where something ends, or start the server with such a model"
            );
            return Ok(Err(ApiError::field(param, message)));
        }
        let hearer = match session.model == self.order.session.model {
            true => None,
            false => match self.app.hearer(&session.model).await {
                Ok(hearer) if hearer.model().sample_rate_hz == self.order.hearer.model().sample_rate_hz => Some(hearer),
                Ok(_) => {
                    let message = "the model takes other sample rates than the session's; open a session with it";
                    return Ok(Err(ApiError::field("session.audio.input.transcription.model", message)));
                }
                Err(error) => return Ok(Err(error)),
            },
        };
        // What was said before belongs to the settings before.
        if let Err(error) = self.finish().await? {
            return Ok(Err(error));
        }
        let before = std::mem::replace(&mut self.order.session, session);
        let hearer = hearer.map(|hearer| std::mem::replace(&mut self.order.hearer, hearer));
        if let Err(error) = self.renew().await? {
            // All stays as it was.
            self.order.session = before;
            if let Some(hearer) = hearer {
                self.order.hearer = hearer;
            }
            if let Err(error) = self.renew().await? {
                return Ok(Err(error));
            }
            return Ok(Err(error));
        }
        let told = Told::Updated(&self.order.session, &self.id).json();
        self.send(told).await.map(Ok)
    }

    /// How the model is asked.
    fn options(&self, transcriber: &Transcriber) -> TranscribeOptions {
        let session = &self.order.session;
        // A model that cannot be told a language knows English alone.
        let is_said = |code: &String| code != "en" || transcriber.languages().next().is_some();
        TranscribeOptions {
            language: session.language.clone().filter(is_said),
            initial_prompt: session.prompt.clone(),
            hotwords: session.keywords.clone(),
            ..TranscribeOptions::default()
        }
    }

    /// The model, when it is free.
    async fn turn(&self) -> Result<tokio::sync::OwnedMutexGuard<Transcriber>, Over> {
        tokio::select! {
            transcriber = self.order.hearer.model().turn() => Ok(transcriber),
            () = self.events.closed() => Err(Over),
        }
    }

    /// Begins to listen anew.
    async fn renew(&mut self) -> Result<Result<(), ApiError>, Over> {
        (self.ear, self.before_s) = (None, self.heard_s);
        let mut transcriber = self.turn().await?;
        let mut options = self.options(&transcriber);
        let made = async {
            let rate_hz = transcriber.sample_rate_hz();
            self.resampler = Some(Resampler::new(self.order.session.rate_hz, rate_hz).map_err(|e| refused(&e.into()))?);
            transcriber.check(&options).map_err(|e| refused(&e))?;
            let (Some(turns), Some(detector)) = (self.order.session.turns, &self.order.detector) else {
                return Ok(Ear::Kept(Vec::new()));
            };
            let vad = detector.model().turn().await.another().map_err(|e| refused(&e))?;
            let usual = StreamOptions::default();
            // Without times of words nobody can tell what another has heard differently.
            let again = self.later.is_some() && transcriber.has_words();
            options.words = again;
            let options = StreamOptions {
                transcribe: options,
                keep_sound: again,
                silence_ms: turns.silence_ms,
                // Who names a silence gets that one.
                sentence_ms: match turns.eagerness {
                    Some(_) => usual.sentence_ms,
                    None => turns.silence_ms,
                },
                threshold: turns.threshold,
                before_ms: turns.padding_ms,
                ..usual
            };
            let stream = Stream::new(&mut transcriber, vad, options).map_err(|e| refused(&e))?;
            Ok(Ear::Phrases(Box::new(stream)))
        };
        Ok(made.await.map(|ear| self.ear = Some(ear)))
    }

    async fn append(&mut self, sound: &[u8]) -> Result<Result<(), ApiError>, Over> {
        let samples: Vec<f32> = sound
            .chunks_exact(2)
            .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0)
            .collect();
        self.heard_s += samples.len() as f64 / f64::from(self.order.session.rate_hz);
        if self.heard_s > self.order.most.as_secs_f64() {
            let message = format!(
                "a session has at most {} s of sound; open another",
                self.order.most.as_secs()
            );
            let error = ApiError::new(Kind::TooLarge, message).with_code("session_too_long");
            self.tell(&Told::Error(&error, None)).await?;
            return Err(Over);
        }
        let mut resampled = Vec::new();
        if let Some(resampler) = &mut self.resampler {
            resampler.push(&samples, &mut resampled);
        }
        self.hear(resampled).await
    }

    async fn hear(&mut self, samples: Vec<f32>) -> Result<Result<(), ApiError>, Over> {
        let rate = self.order.hearer.model().sample_rate_hz as usize;
        if let Some(Ear::Kept(kept)) = &mut self.ear {
            if kept.len() + samples.len() > KEPT_S * rate {
                let message = format!("`audio`: at most {KEPT_S} s may come before an `input_audio_buffer.commit`");
                return Ok(Err(
                    ApiError::field("audio", message).with_code("input_audio_buffer_full")
                ));
            }
            kept.extend_from_slice(&samples);
            return Ok(Ok(()));
        }
        for piece in samples.chunks((rate / PIECES).max(1)) {
            let piece = piece.to_vec();
            let cancel = self.cancel.clone();
            let work = move |stream: &mut Stream, transcriber: &mut Transcriber, each: &mut dyn FnMut(StreamEvent)| {
                stream.push(transcriber, &piece, &cancel, each)
            };
            if let Err(error) = self.phrases(work).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Does `work` with the stream on another thread, and tells what happened.
    async fn phrases(
        &mut self,
        work: impl FnOnce(&mut Stream, &mut Transcriber, &mut dyn FnMut(StreamEvent)) -> Result<(), Error> + Send + 'static,
    ) -> Result<Result<(), ApiError>, Over> {
        let mut transcriber = self.turn().await?;
        let Some(Ear::Phrases(mut stream)) = self.ear.take() else {
            return Ok(Ok(()));
        };
        let begun = Instant::now();
        let done = tokio::task::spawn_blocking(move || {
            let mut events = Vec::new();
            let done = work(&mut stream, &mut transcriber, &mut |event| events.push(event));
            (stream, events, done)
        });
        let Ok((stream, events, done)) = done.await else {
            return self.failed(ApiError::new(Kind::Server, "the model has failed")).await;
        };
        self.ear = Some(Ear::Phrases(stream));
        for event in events {
            self.happened(event, begun).await?;
        }
        match done {
            Ok(()) => Ok(Ok(())),
            Err(Error::Cancelled) => Err(Over),
            Err(error) => self.failed(refused(&error)).await,
        }
    }

    /// The item of the moment cannot be written down, and listening begins anew.
    async fn failed(&mut self, error: ApiError) -> Result<Result<(), ApiError>, Over> {
        let item = self.item.take();
        if let Err(error) = self.renew().await? {
            return Ok(Err(error));
        }
        match item {
            Some(item) => self.tell(&Told::Failed(&item.id, &error)).await.map(Ok),
            None => Ok(Err(error)),
        }
    }

    async fn happened(&mut self, event: StreamEvent, begun: Instant) -> Result<(), Over> {
        match event {
            StreamEvent::SpeechStart { start_s, .. } => {
                let item = Item::new(self.before_s + start_s);
                let told = Told::Started(&item.id, milliseconds(item.start_s)).json();
                self.item = Some(item);
                self.send(told).await
            }
            StreamEvent::Partial { committed, .. } => self.grow(&committed).await,
            StreamEvent::Final {
                segment,
                language,
                sound,
                ..
            } => {
                let text = segment.text.clone();
                if let Some(item) = &mut self.item {
                    item.language.clone_from(&language);
                    if let Some(later) = &mut self.later {
                        let rate_hz = self.order.hearer.model().sample_rate_hz;
                        later.offer(&item.id, segment, language, sound, rate_hz);
                    }
                }
                self.grow(&text).await
            }
            StreamEvent::SpeechEnd { end_s, .. } => {
                let Some(item) = self.item.take() else { return Ok(()) };
                let end_s = self.before_s + end_s;
                self.tell(&Told::Stopped(&item.id, milliseconds(end_s))).await?;
                self.committed(&item.id).await?;
                self.completed(item, end_s, begun).await
            }
            _ => Ok(()),
        }
    }

    async fn grow(&mut self, text: &str) -> Result<(), Over> {
        let Some(item) = &mut self.item else { return Ok(()) };
        let told = item.text.grow(text).map(|new| Told::Delta(&item.id, new).json());
        match told {
            Some(told) => self.send(told).await,
            None => Ok(()),
        }
    }

    async fn committed(&mut self, item: &str) -> Result<(), Over> {
        self.tell(&Told::Committed(item, self.previous.as_deref())).await?;
        self.previous = Some(item.to_owned());
        Ok(())
    }

    async fn completed(&mut self, item: Item, end_s: f64, begun: Instant) -> Result<(), Over> {
        let seconds = (end_s - item.start_s).max(0.0);
        let name = &self.order.hearer.model().name;
        self.app.transcribed(name, seconds, begun.elapsed());
        let told = Told::Completed {
            item: &item.id,
            text: item.text.text(),
            language: item.language.as_deref(),
            seconds,
        };
        self.tell(&told).await
    }

    async fn commit(&mut self) -> Result<Result<(), ApiError>, Over> {
        let previous = self.previous.clone();
        if let Err(error) = self.finish().await? {
            return Ok(Err(error));
        }
        if previous != self.previous {
            return Ok(Ok(()));
        }
        let message = "there is no speech that is not committed already";
        Ok(Err(
            ApiError::new(Kind::Invalid, message).with_code("input_audio_buffer_commit_empty")
        ))
    }

    /// The sound is over: what was said last becomes final.
    async fn finish(&mut self) -> Result<Result<(), ApiError>, Over> {
        let mut rest = Vec::new();
        if let Some(resampler) = &mut self.resampler {
            resampler.finish(&mut rest);
        }
        if let Err(error) = self.hear(rest).await? {
            return Ok(Err(error));
        }
        if let Some(Ear::Kept(kept)) = &mut self.ear {
            let kept = std::mem::take(kept);
            return match kept.is_empty() {
                true => Ok(Ok(())),
                false => self.whole(kept).await,
            };
        }
        let cancel = self.cancel.clone();
        self.phrases(move |stream, transcriber, each| stream.finish(transcriber, &cancel, each))
            .await
    }

    /// Writes down all that was kept.
    async fn whole(&mut self, samples: Vec<f32>) -> Result<Result<(), ApiError>, Over> {
        let seconds = samples.len() as f64 / f64::from(self.order.hearer.model().sample_rate_hz);
        let item = Item::new(self.heard_s - seconds);
        self.committed(&item.id).await?;
        let mut transcriber = self.turn().await?;
        let options = self.options(&transcriber);
        let (cancel, events, begun) = (self.cancel.clone(), self.events.clone(), Instant::now());
        let id = item.id.clone();
        self.item = Some(item);
        let done = tokio::task::spawn_blocking(move || {
            let (mut said, mut text) = (String::new(), Growing::default());
            let mut each = |progress: cactus_speech::Progress<'_>| {
                said.extend(progress.segments.iter().map(|segment| segment.text.as_str()));
                let told = text.grow(&said).map(|new| Told::Delta(&id, new).json());
                if told.is_some_and(|told| events.blocking_send(told).is_err()) {
                    cancel.cancel();
                }
            };
            let heard = transcriber.transcribe(&samples, &options, &cancel, &mut each);
            heard.map(|transcript| (text, transcript.language))
        });
        match done.await {
            Ok(Ok((text, language))) => match self.item.take() {
                Some(item) => self
                    .completed(Item { text, language, ..item }, self.heard_s, begun)
                    .await
                    .map(Ok),
                None => Ok(Ok(())),
            },
            Ok(Err(Error::Cancelled)) => Err(Over),
            Ok(Err(error)) => self.failed(refused(&error)).await,
            Err(_) => self.failed(ApiError::new(Kind::Server, "the model has failed")).await,
        }
    }
}
