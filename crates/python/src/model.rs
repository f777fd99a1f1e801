//! A loaded model and its scheduler.

use crate::policy::Policy;
use crate::session::Session;
use crate::stream::{Source, Stream};
use crate::{TICK, errors, live};
use cactus_engine::chat::Chat;
use cactus_engine::scheduler::{Event, Request, SchedulerLimits};
use cactus_engine::{CancelToken, GenerateOptions, KvDType, LoadOptions, Scheduler};
use cactus_protocol::{Answers, ApiError, Encoder, Job, Prompt, api_error, openai};
use cactus_router::{Local, outgoing};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a request says what the answer must follow, for errors.
pub(crate) const FORMAT_FIELD: &str = "response_format";

/// A loaded model.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Model {
    scheduler: Mutex<Option<Arc<Scheduler>>>,
    id: u64,
    name: String,
    routed: Mutex<Option<Under>>,
}

/// Who else may answer for a model.
#[derive(Clone)]
struct Under {
    policy: Arc<Py<Policy>>,
    local: Local,
    ask: Option<Arc<Py<PyAny>>>,
}

/// A request of the OpenAI API.
pub(crate) fn read(api: &str, body: &str) -> Result<(Job, Box<dyn Encoder>), ApiError> {
    let failed = |e: serde_json::Error| ApiError::field("body", format!("the request is no JSON: {e}"));
    let body: Value = serde_json::from_str(body).map_err(failed)?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created = created.as_secs();
    Ok(match api {
        "chat" => {
            let (job, encoder) = openai::chat::request(&body, created)?;
            (job, Box::new(encoder))
        }
        _ => {
            let (job, encoder) = openai::completions::request(&body, created)?;
            (job, Box::new(encoder))
        }
    })
}

impl Model {
    fn scheduler(&self, py: Python<'_>) -> PyResult<Arc<Scheduler>> {
        live::check(py)?;
        let scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
        scheduler
            .clone()
            .ok_or_else(|| errors::raise(py, "ClosedError", "the model is closed", &[]))
    }
}

impl Model {
    /// Submits a conversation that others may answer; `None` for one that no target can be asked.
    fn submit_routed(
        &self,
        py: Python<'_>,
        under: Under,
        body: &str,
        options: &str,
        begun: Instant,
    ) -> PyResult<Option<Stream>> {
        let policy = under.policy.get();
        let local = under.local.clone();
        let made = live::outside(py, || {
            let (job, encoder) = read("chat", body)?;
            let stream = job.stream;
            if outgoing::stays(&job).is_some() {
                return Ok(None);
            }
            let routed = policy.start(local, job, options)?;
            let (body, name) = (body.to_owned(), self.name.clone());
            let fresh = move || {
                let (_, mut encoder) = read("chat", &body).ok()?;
                encoder.begin(&name, &mut Vec::new());
                Some(encoder)
            };
            let source = Source::Routed(Box::new(routed));
            let model = (self.id, self.name.as_str());
            let (_, receiver) = channel();
            let made = Stream::new(model, source, receiver, encoder, CancelToken::new(), begun);
            Ok(Some((made, stream, Box::new(fresh))))
        });
        let made = made.map_err(|e: ApiError| errors::of_api(py, &e))?;
        Ok(made.map(|(made, stream, fresh)| made.routed(stream, fresh, under.ask.map(|ask| ask.clone_ref(py)))))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let scheduler = self.scheduler.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if live::is_forked() {
            // The threads that it would wait for are not in this process.
            std::mem::forget(scheduler);
        }
    }
}

#[pymethods]
impl Model {
    /// Loads a bundle.
    #[staticmethod]
    #[pyo3(signature = (path, name, *, context, chunk, kv, threads, decode_threads, pin, sequences, queue, kv_tokens, prefix_cache))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        name: String,
        context: usize,
        chunk: usize,
        kv: &str,
        threads: Option<usize>,
        decode_threads: Option<usize>,
        pin: bool,
        sequences: usize,
        queue: usize,
        kv_tokens: Option<usize>,
        prefix_cache: bool,
    ) -> PyResult<Model> {
        live::check(py)?;
        let options = LoadOptions {
            context_tokens: context,
            chunk_tokens: chunk,
            picture_rows: None,
            kv_dtype: match kv {
                "int8" => KvDType::I8G32,
                "f16" => KvDType::F16,
                other => {
                    let message = format!("`kv`: found `{other}`, expected `int8` or `f16`");
                    return Err(errors::raise(py, "InvalidRequestError", &message, &[]));
                }
            },
            threads,
            decode_threads,
            pin,
        };
        let limits = SchedulerLimits {
            sequences,
            queue,
            kv_tokens,
            prefix_cache,
            ..SchedulerLimits::default()
        };
        let loaded = live::outside(py, || {
            let bundle = Arc::new(cactus_engine::Bundle::open(&path)?);
            if let Err(e) = cactus_store::needs_program(&bundle) {
                return Ok(Err(e));
            }
            let model = cactus_engine::Model::of(bundle, &options)?;
            cactus_multimodal::attach(&model)?;
            // What is wrong with the tokenizer is said now, not at the first question.
            if cactus_engine::Model::has_tokenizer(model.bundle()) {
                model.tokenizer()?;
            }
            let limits = SchedulerLimits {
                sequences: limits.sequences.min(model.program().chunk_tokens()),
                ..limits
            };
            Scheduler::new(model, limits).map(Ok)
        });
        let scheduler = match loaded {
            Ok(Ok(scheduler)) => scheduler,
            Ok(Err(e)) => return Err(errors::of_store(py, &e)),
            Err(e) => return Err(errors::of_engine(py, &e)),
        };
        Ok(Model {
            scheduler: Mutex::new(Some(scheduler)),
            id: live::open(),
            name,
            routed: Mutex::default(),
        })
    }

    /// What is known of the model, as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let scheduler = self.scheduler(py)?;
        let model = scheduler.model();
        let template = model.chat_template().ok().flatten().is_some();
        Ok(json!({
            "family": model.bundle().manifest().family,
            "task": model.bundle().manifest().task,
            "chat": template,
            "context_tokens": model.context_tokens(),
            "vocab_size": model.vocab_size(),
            "threads": model.threads(),
            "decode_threads": model.decode_threads(),
            "eos": model.eos(),
            "has_chat_template": template,
            "default_options": model.default_options().to_json(),
            "checksum": model.bundle().manifest().checksum.to_string(),
        })
        .to_string())
    }

    /// What the scheduler has done and has to do, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.scheduler(py)?.stats();
        Ok(json!({
            "running": stats.running,
            "waiting": stats.waiting,
            "kv_tokens": stats.kv_tokens,
            "kv_tokens_used": stats.kv_tokens_used,
            "passes": stats.passes,
            "rows": stats.rows,
            "prompt_tokens": stats.prompt_tokens,
            "cached_tokens": stats.cached_tokens,
            "generated_tokens": stats.generated_tokens,
            "finished": stats.finished,
            "cancelled": stats.cancelled,
            "failed": stats.failed,
        })
        .to_string())
    }

    /// Uses at most so many threads from now on; `None` leaves one as it is.
    #[pyo3(signature = (threads, decode_threads))]
    fn set_threads(&self, py: Python<'_>, threads: Option<usize>, decode_threads: Option<usize>) -> PyResult<()> {
        self.scheduler(py)?.model().set_threads(threads, decode_threads);
        Ok(())
    }

    /// Lets go of what is kept of earlier prompts.
    fn forget_prefixes(&self, py: Python<'_>) -> PyResult<()> {
        let scheduler = self.scheduler(py)?;
        live::outside(py, || scheduler.forget_prefixes());
        Ok(())
    }

    /// Token ids of a text.
    fn tokenize(&self, py: Python<'_>, text: String, special: bool) -> PyResult<Vec<u32>> {
        let scheduler = self.scheduler(py)?;
        let ids = live::outside(py, || Ok(scheduler.model().tokenizer()?.encode(&text, special)?));
        ids.map_err(|e: cactus_engine::Error| errors::of_engine(py, &e))
    }

    /// The text of token ids. With `skip_special`, special tokens are left out.
    fn detokenize(&self, py: Python<'_>, ids: Vec<u32>, skip_special: bool) -> PyResult<String> {
        let scheduler = self.scheduler(py)?;
        let text = live::outside(py, || Ok(scheduler.model().tokenizer()?.decode(&ids, skip_special)));
        text.map_err(|e: cactus_engine::Error| errors::of_engine(py, &e))
    }

    /// The prompt that a chat request becomes: text and token ids.
    fn render(&self, py: Python<'_>, body: &str) -> PyResult<(String, Vec<u32>)> {
        let scheduler = self.scheduler(py)?;
        let made = live::outside(py, || {
            let (job, _) = read("chat", body)?;
            let Some(Prompt::Chat(request)) = job.prompts.first() else {
                return Err(ApiError::field("messages", "expected a conversation"));
            };
            let chat = Chat::new(scheduler.model(), request).map_err(|e| api_error(&e, FORMAT_FIELD))?;
            Ok((chat.text, chat.prompt))
        });
        made.map_err(|e| errors::of_api(py, &e))
    }

    /// Lets others answer as a policy says, or nobody any more. `ask` is called with a question as JSON, and says whether that
    /// may leave.
    #[pyo3(signature = (policy, ask = None))]
    fn set_policy(&self, py: Python<'_>, policy: Option<Py<Policy>>, ask: Option<Py<PyAny>>) -> PyResult<()> {
        let scheduler = self.scheduler(py)?;
        let under = match policy {
            None => None,
            Some(policy) => {
                let local = live::outside(py, || Local::new(scheduler, Duration::ZERO));
                let wrong = |e: cactus_router::Error| errors::raise(py, "CactusError", &e.to_string(), &[]);
                Some(Under {
                    policy: Arc::new(policy),
                    local: local.map_err(wrong)?,
                    ask: ask.map(Arc::new),
                })
            }
        };
        *self.routed.lock().unwrap_or_else(PoisonError::into_inner) = under;
        Ok(())
    }

    /// Submits a request: `api` is `chat` or `completion`, `body` the JSON of the OpenAI API. `options` are for a policy, under the names
    /// of the public Cactus engine, as JSON.
    #[pyo3(signature = (api, body, options = "{}"))]
    fn submit(&self, py: Python<'_>, api: &str, body: &str, options: &str) -> PyResult<Stream> {
        let scheduler = self.scheduler(py)?;
        let begun = Instant::now();
        let under = self.routed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let under = under.filter(|_| api == "chat");
        if let Some(under) = &under
            && let Some(stream) = self.submit_routed(py, under.clone(), body, options, begun)?
        {
            return Ok(stream);
        }
        let made = live::outside(py, || {
            let (job, encoder) = read(api, body)?;
            let kept = under.map(|under| under.policy.get().keep_here(&job.prompts));
            let choices = job.choices;
            let model = scheduler.model();
            let ready = Answers::prepare(model, job, model.context_tokens(), 0, FORMAT_FIELD)?;
            let (sender, receiver) = channel();
            let deliver = Arc::new(move |choice, event| drop(sender.send((choice, event))));
            let times = (begun, Duration::ZERO);
            let answers = Answers::submit(Arc::clone(&scheduler), ready, choices, times, deliver)?;
            let cancel = answers.cancel_token();
            let source = Source::Scheduled(Box::new(answers));
            let model = (self.id, self.name.as_str());
            let stream = Stream::new(model, source, receiver, encoder, cancel, begun);
            Ok(stream.kept_here(kept))
        });
        made.map_err(|e: ApiError| errors::of_api(py, &e))
    }

    /// Natural logarithms of the probabilities of every token but the first, each given all before it.
    fn score(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<f64>> {
        let scheduler = self.scheduler(py)?;
        let cancel = CancelToken::new();
        let options = GenerateOptions {
            max_tokens: 1,
            logprobs: Some(0),
            ..GenerateOptions::default()
        };
        let vocab = scheduler.model().vocab_size();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
            let message = format!("the token id {id} is not below {vocab}, the size of the model's vocabulary");
            return Err(errors::raise(py, "InvalidRequestError", &message, &[]));
        }
        let request = Request {
            score_from: Some(1),
            cancel: cancel.clone(),
            ..Request::new(ids, options)
        };
        let (sender, mut receiver) = channel();
        let sink = Box::new(move |event| drop(sender.send(event)));
        let _answer = live::Answer::new(self.id, cancel.clone());
        live::outside(py, || scheduler.submit(request, sink)).map_err(|e| errors::of_engine(py, &e))?;
        loop {
            let receiver = &mut receiver;
            let end = live::outside(py, move || {
                loop {
                    match receiver.recv_timeout(TICK) {
                        Ok(Event::End(result)) => return Some(Some(result)),
                        Ok(_) => {}
                        Err(RecvTimeoutError::Timeout) => return None,
                        Err(RecvTimeoutError::Disconnected) => return Some(None),
                    }
                }
            });
            match end {
                None => py.check_signals().inspect_err(|_| cancel.cancel())?,
                Some(Some(Ok(completion))) if cancel.is_cancelled() && completion.prompt_logprobs.is_empty() => {
                    return Err(errors::raise(py, "ClosedError", "the model was closed meanwhile", &[]));
                }
                Some(Some(Ok(completion))) => {
                    return Ok(completion.prompt_logprobs.iter().map(|token| token.logprob).collect());
                }
                Some(Some(Err(e))) => return Err(errors::of_engine(py, &e)),
                Some(None) => {
                    return Err(errors::raise(
                        py,
                        "CactusError",
                        "the engine has stopped after a failure",
                        &[],
                    ));
                }
            }
        }
    }

    /// A new conversation of its own.
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        let scheduler = self.scheduler(py)?;
        let session = live::outside(py, || scheduler.model().session());
        let session = session.map_err(|e| errors::of_engine(py, &e))?;
        Ok(Session::new(self.id, self.name.clone(), session))
    }

    /// Ends its answers and frees it. Any later call is an error.
    fn close(&self, py: Python<'_>) {
        if live::is_forked() {
            return;
        }
        let scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.routed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        live::close(self.id);
        live::outside(py, || drop(scheduler));
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}
