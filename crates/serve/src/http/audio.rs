//! Routes of OpenAI's API for recordings.
//!
//! A recording takes one of a few places before its body is read, so that there is a limit to what all of them hold in memory.

use super::body::{self, Form};
use super::route::{Facts, Hints};
use super::stream::{self, Wire};
use super::{Active, App};
use crate::hearing::{Again, Event, Hearing, Order};
use crate::models::{Detector, Does, Hearer};
use crate::protocol::openai::audio::{self, Chunking, Format, Heard, Request, Stream, Task};
use crate::protocol::{ApiError, Frame, Kind};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use cactus_audio::decode::Limits;
use cactus_router::Revision;
use cactus_speech::{Segment, SpanOptions, TranscribeOptions, Transcript, Word, milliseconds, subtitles};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Longest time for which the upload of a request that is refused is read.
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// Longest time for a recording to arrive.
const UPLOAD_TIME: Duration = Duration::from_secs(300);

/// `POST /v1/audio/transcriptions`.
pub(super) async fn transcribe(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    answer(app, Task::Transcribe, &headers, body).await
}

/// `POST /v1/audio/translations`.
pub(super) async fn translate(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    answer(app, Task::Translate, &headers, body).await
}

async fn answer(app: Arc<App>, task: Task, headers: &HeaderMap, body: Body) -> Response {
    let answered = async {
        let mut run = Run::start(&app, task, headers, body).await?;
        match run.request.stream {
            true => run.streamed().await,
            false => run.whole().await,
        }
    };
    answered
        .await
        .unwrap_or_else(|e: ApiError| body::error(Form::OpenAi, &e))
}

/// A transcription under way. Dropping it cancels it.
struct Run {
    app: Arc<App>,
    hearing: Hearing,
    request: Request<'static>,
    /// The name of the model.
    name: String,
    received: Instant,
    deadline: tokio::time::Instant,
    _place: OwnedSemaphorePermit,
    _active: Active,
}

/// Reads the form.
async fn read(app: &App, task: Task, headers: &HeaderMap, body: Body) -> Result<(Request<'static>, Bytes), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(str::to_owned);
    let arrived = body::collect(body, app.options.audio_bytes, UPLOAD_TIME, None).await;
    let arrived = arrived.map_err(|e| match e.kind {
        Kind::TooLarge => audio::too_large(e),
        _ => e,
    })?;
    let bytes = arrived.bytes;
    let work = move || {
        let request = audio::request(task, kind.as_deref(), &bytes)?;
        let file = bytes.slice_ref(request.file);
        Ok((Request { file: &[], ..request }, file))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(ApiError::new(Kind::Server, e.to_string())),
    }
}

/// The request as the engine takes it.
fn options(request: &Request<'_>) -> TranscribeOptions {
    TranscribeOptions {
        language: request.language.clone(),
        translate: request.task == Task::Translate,
        words: request.words,
        initial_prompt: request.prompt.clone().unwrap_or_default(),
        hotwords: request.keywords.clone(),
        hallucination_silence_s: request.hallucination_silence_s,
        temperature: request.temperature,
        ..TranscribeOptions::default()
    }
}

fn spans(chunking: &Chunking) -> SpanOptions {
    let usual = SpanOptions::for_transcription();
    SpanOptions {
        threshold: chunking.threshold.unwrap_or(usual.threshold),
        min_silence_duration_ms: chunking.silence_ms.unwrap_or(usual.min_silence_duration_ms),
        speech_pad_ms: chunking.padding_ms.unwrap_or(usual.speech_pad_ms),
        ..usual
    }
}

fn too_long() -> ApiError {
    let message = "the transcription took longer than this server allows; send the recording in parts";
    ApiError::new(Kind::Server, message).with_code("timeout")
}

impl Run {
    async fn start(app: &Arc<App>, task: Task, headers: &HeaderMap, body: Body) -> Result<Run, ApiError> {
        let places = || Ok::<_, ApiError>((app.place()?, app.begin()?, Hints::read(app, headers, &json!({}))?));
        let (place, active, hints) = match places() {
            Ok(places) => places,
            Err(refused) => {
                body::pass_over(body, app.options.audio_bytes, REFUSED_TIME).await;
                return Err(refused);
            }
        };
        let (request, file) = read(app, task, headers, body).await?;
        let received = Instant::now();
        let options = options(&request);
        let lease = app.hearer(&request.model).await?;
        let name = lease.model().name.clone();
        let speech = match &request.chunking {
            None => None,
            Some(chunking) => Some((detector(app, lease.model()).await?, spans(chunking))),
        };
        let again = match (&app.options.router, task) {
            // What is translated cannot be compared with what is said.
            (Some(router), Task::Transcribe) if app.asks_policy(&request.model) => Some(Again {
                router: Arc::clone(router),
                hints: [
                    request.prompt.as_deref().unwrap_or_default(),
                    &request.keywords.join(", "),
                ]
                .join(" "),
                session: hints.session,
                user: hints.user,
                consent: hints.consent,
                consent_to: hints.consent_to,
            }),
            _ => None,
        };
        let order = Order {
            file,
            again,
            options,
            speech,
            limits: Limits {
                max_seconds: app.options.audio_time.as_secs_f64(),
            },
        };
        let deadline = tokio::time::Instant::now() + app.options.timeout;
        let hearing = tokio::time::timeout_at(deadline, Hearing::start(lease, order)).await;
        Ok(Run {
            app: Arc::clone(app),
            hearing: hearing.unwrap_or_else(|_| Err(too_long()))?,
            request,
            name,
            received,
            deadline,
            _place: place,
            _active: active,
        })
    }

    async fn next(&mut self) -> Result<Event, ApiError> {
        let next = tokio::time::timeout_at(self.deadline, self.hearing.next()).await;
        let event = next.unwrap_or_else(|_| Err(too_long()))?;
        if let Event::Done(transcript, _) = &event {
            let took = self.received.elapsed();
            self.app.transcribed(&self.name, transcript.duration_s, took);
        }
        Ok(event)
    }

    async fn whole(&mut self) -> Result<Response, ApiError> {
        let (transcript, told) = loop {
            if let Event::Done(transcript, told) = self.next().await? {
                break (transcript, told);
            }
        };
        let facts = || told.as_deref().map(Facts::of_hearing);
        let object = |mut answer: Value| {
            if let Some(told) = &told {
                mark(&mut answer, &transcript, &told.revisions);
            }
            if let Some(facts) = facts() {
                facts.into_answer(&mut answer);
            }
            body::json(&answer)
        };
        let mut response = match self.request.format {
            Format::Json => object(heard(&self.request, &transcript).json()),
            Format::VerboseJson => object(heard(&self.request, &transcript).verbose_json()),
            Format::Text => text(transcript.text() + "\n"),
            Format::Srt => text(subtitles::srt(&transcript)),
            Format::Vtt => text(subtitles::vtt(&transcript)),
        };
        if let Some(facts) = facts() {
            facts.into_headers(response.headers_mut());
        }
        Ok(response)
    }

    /// The response begins when something was heard, so that a recording that cannot be read still gets its status.
    async fn streamed(mut self) -> Result<Response, ApiError> {
        let first = self.next().await?;
        let (sender, receiver) = mpsc::channel(stream::WAITING_PIECES);
        tokio::spawn(async move {
            tokio::select! {
                // Whoever read has gone.
                () = sender.closed() => {}
                () = self.send(first, &sender) => {}
            }
        });
        Ok(stream::streaming(Wire::Events, receiver))
    }

    /// Whether somebody has taken a piece before the request's time was over: who does not read keeps its place no longer.
    async fn put(&self, piece: Bytes, to: &mpsc::Sender<Bytes>) -> bool {
        let taken = tokio::time::timeout_at(self.deadline, to.send(piece)).await;
        matches!(taken, Ok(Ok(())))
    }

    async fn send(mut self, first: Event, to: &mpsc::Sender<Bytes>) {
        let ping = self.app.options.ping;
        let mut stream = Stream::default();
        let mut event = Ok(first);
        loop {
            let mut frames: Vec<Frame> = Vec::new();
            let over = !matches!(event, Ok(Event::Segments(_)));
            match event {
                Ok(Event::Segments(segments)) => {
                    let texts = segments.iter().map(|segment| segment.text.as_str());
                    frames.extend(stream.delta(&texts.collect::<String>()));
                }
                Ok(Event::Done(transcript, told)) => {
                    frames.push(heard(&self.request, &transcript).done());
                    if let Some(told) = told {
                        Facts::of_hearing(&told).into_end(&mut frames);
                    }
                }
                Err(error) => frames.push(Stream::fail(&error)),
            }
            if !frames.is_empty() && !self.put(Wire::Events.write(&mut frames), to).await || over {
                return;
            }
            event = loop {
                match tokio::time::timeout(ping, self.next()).await {
                    Ok(event) => break event,
                    Err(_) if !self.put(Bytes::from_static(b": ping\n\n"), to).await => return,
                    Err(_) => {}
                }
            };
        }
    }
}

/// The first model that finds speech, which has to take as many samples a second as the one that hears.
async fn detector(app: &Arc<App>, hearer: &Hearer) -> Result<crate::models::Lease<Detector>, ApiError> {
    let wrong = |message: String| ApiError::field("chunking_strategy", format!("`chunking_strategy`: {message}"));
    if app.models.first(Does::FindsSpeech).await.is_err() {
        let message = "this server has no model that finds speech; leave the field out, or start the server with one beside \
            the one that hears";
        return Err(wrong(message.to_owned()));
    }
    let lease = app.models.acquire_as::<Detector>("").await?;
    let (one, other) = (lease.model().sample_rate_hz, hearer.sample_rate_hz);
    match one == other {
        true => Ok(lease),
        false => Err(wrong(format!(
            "the model `{}` takes {one} samples a second, and `{}` takes {other}; leave the field out",
            lease.model().name,
            hearer.name
        ))),
    }
}

fn heard(request: &Request<'_>, transcript: &Transcript) -> Heard {
    let segment = |segment: &Segment| audio::Segment {
        id: segment.id,
        seek: (segment.window_s * 100.0).round() as u64,
        start: milliseconds(segment.start_s),
        end: milliseconds(segment.end_s),
        text: segment.text.clone(),
        tokens: segment.tokens.clone(),
        temperature: segment.temperature,
        avg_logprob: segment.mean_logprob,
        compression_ratio: segment.compression,
        no_speech_prob: segment.no_speech,
    };
    let word = |word: &Word| audio::Word {
        word: word.text.trim().to_owned(),
        start: milliseconds(word.start_s),
        end: milliseconds(word.end_s),
    };
    let segments = transcript.segments.iter();
    let words = segments.clone().flat_map(|segment| &segment.words);
    Heard {
        task: request.task,
        language: transcript.language.clone(),
        duration: milliseconds(transcript.duration_s),
        text: transcript.text(),
        // As the API has it, whoever asks for words alone gets them alone.
        segments: (request.segments || !request.words).then(|| segments.map(segment).collect()),
        words: request.words.then(|| words.map(word).collect()),
    }
}

/// Says of each segment of an answer who has heard it, and how sure the model here was.
fn mark(answer: &mut Value, transcript: &Transcript, revisions: &[Revision]) {
    let segments = answer.get_mut("segments").and_then(Value::as_array_mut);
    let segments = segments.into_iter().flatten().zip(&transcript.segments).zip(revisions);
    for ((shown, segment), revision) in segments {
        shown["cactus"] = json!({
            "answered_by": revision.target.as_deref().unwrap_or("local"),
            "revision": revision.revision,
            "confidence": segment.confidence,
        });
    }
}

fn text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
