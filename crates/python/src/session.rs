//! One conversation with keys and values of its own, which can be saved. Its answers are made on a thread of their own, beside
//! those of the scheduler.

use crate::model::{FORMAT_FIELD, read};
use crate::stream::{Alone, Source, Stream};
use crate::{errors, live};
use cactus_engine::scheduler::{Event, Piece};
use cactus_engine::speculate::{Drafter, PromptLookup};
use cactus_engine::{CancelToken, Guides, Model};
use cactus_protocol::{Answers, ApiError, Kind, Reading, Ready};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A conversation.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Session {
    session: Arc<Mutex<cactus_engine::Session>>,
    model: Arc<Model>,
    /// Number and name of the model.
    of: (u64, String),
}

impl Session {
    pub(crate) fn new(id: u64, name: String, session: cactus_engine::Session) -> Session {
        Session {
            model: Arc::clone(session.model()),
            session: Arc::new(Mutex::new(session)),
            of: (id, name),
        }
    }
}

fn locked(session: &Mutex<cactus_engine::Session>) -> MutexGuard<'_, cactus_engine::Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers `ready` and sends what happens.
fn answer(session: &Mutex<cactus_engine::Session>, ready: Ready, cancel: &CancelToken, to: &Sender<(usize, Event)>) {
    let send = |event| drop(to.send((0, event)));
    let mut session = locked(session);
    let held = session.tokens().iter().zip(&ready.request.prompt);
    let cached = held.take_while(|(a, b)| a == b).count();
    send(Event::Started {
        prompt_tokens: ready.request.prompt.len(),
        cached_tokens: cached.min(ready.request.prompt.len().saturating_sub(1)),
    });
    let mut lookup = PromptLookup::default();
    let drafter: Option<&mut dyn Drafter> = match ready.request.options.prompt_lookup {
        0 => None,
        _ => Some(&mut lookup),
    };
    let guides = Guides {
        drafter,
        constraint: ready.request.constraint,
        keep_special: ready.request.keep_special,
        signals: ready.request.signals,
    };
    let mut on_delta = |delta: cactus_engine::Delta<'_>| send(Event::Delta(Piece::from(delta)));
    let made = session.generate_with(
        &ready.request.prompt,
        &ready.request.options,
        guides,
        cancel,
        &mut on_delta,
    );
    drop(session);
    send(Event::End(made));
}

#[pymethods]
impl Session {
    /// Answers a request, as `Model.submit`. One answer, to one prompt.
    fn submit(&self, py: Python<'_>, api: &str, body: &str) -> PyResult<Stream> {
        live::check_model(py, self.of.0)?;
        let begun = Instant::now();
        let made = live::outside(py, || {
            let (job, encoder) = read(api, body)?;
            if job.choices != 1 || job.prompts.len() != 1 {
                return Err(ApiError::field("n", "a session gives one answer to one prompt"));
            }
            let context = self.model.context_tokens();
            let mut ready = Answers::prepare(&self.model, job, context, 0, FORMAT_FIELD)?;
            let Some(mut ready) = ready.pop().filter(|ready| ready.request.score_from.is_none()) else {
                return Err(ApiError::field("echo", "a session does not score its prompt"));
            };
            let reading = Reading::new(ready.reader.take());
            let notes = std::mem::take(&mut ready.notes);
            let cancel = CancelToken::new();
            let (sender, receiver) = channel();
            let (session, token) = (Arc::clone(&self.session), cancel.clone());
            std::thread::Builder::new()
                .name("cactus-session".to_owned())
                .spawn(move || answer(&session, ready, &token, &sender))
                .map_err(|e| ApiError::new(Kind::Server, format!("a thread cannot be started: {e}")))?;
            let alone = Alone {
                model: Arc::clone(&self.model),
                reading,
                notes,
                pending: VecDeque::new(),
                is_over: false,
            };
            let model = (self.of.0, self.of.1.as_str());
            let source = Source::Alone(Box::new(alone));
            Ok(Stream::new(model, source, receiver, encoder, cancel, begun))
        });
        made.map_err(|e| errors::of_api(py, &e))
    }

    /// Saves what it holds and a note to a file, in place of what is there.
    fn save(&self, py: Python<'_>, path: PathBuf, note: String) -> PyResult<()> {
        live::check(py)?;
        live::outside(py, || locked(&self.session).save(&path, &note)).map_err(|e| errors::of_engine(py, &e))
    }

    /// Takes back what was saved, and gives the note.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        live::check(py)?;
        live::outside(py, || locked(&self.session).restore(&path)).map_err(|e| errors::of_engine(py, &e))
    }

    /// Forgets everything.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        live::check(py)?;
        live::outside(py, || locked(&self.session).reset());
        Ok(())
    }

    /// Tokens that it holds.
    fn tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        live::check(py)?;
        Ok(live::outside(py, || locked(&self.session).tokens().to_vec()))
    }
}
