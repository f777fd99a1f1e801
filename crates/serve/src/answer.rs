//! The answers to a [`Job`], awaited: the prompts are made ready on a thread that may take its time, and events come from the
//! model's scheduler by a queue.
//!
//! The scheduler's thread only puts events into a queue without limit, of at most as many entries as tokens were asked for, so
//! a slow reader holds up nobody. Whoever drops an [`Answer`] cancels it.

use crate::leaves::Leaves;
use crate::models::Lease;
use crate::protocol::{Answers, ApiError, Event, Job, Kind, Prompt, Ready};
use cactus_engine::{CancelToken, Model, scheduler};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Answers under way.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Keeps the model loaded.
    _lease: Lease,
    answers: Answers,
    receiver: UnboundedReceiver<(usize, scheduler::Event)>,
}

/// Counts the tokens of a job's prompts.
///
/// # Errors
/// As [`Answer::start`].
pub(crate) async fn count_tokens(job: Job, lease: &Lease, format_field: &'static str) -> Result<usize, ApiError> {
    let model = Arc::clone(lease.model().scheduler.model());
    let ready = prepare(model, job, usize::MAX, 0, format_field).await?;
    Ok(ready.iter().map(|ready| ready.request.prompt.len()).sum())
}

impl Answer {
    /// Makes the prompts of `job` ready and submits them.
    ///
    /// # Errors
    /// What is wrong with the request; [`Kind::Busy`] where too many wait already.
    pub(crate) async fn start(
        job: Job,
        lease: Lease,
        salt: u64,
        load: Duration,
        format_field: &'static str,
    ) -> Result<Answer, ApiError> {
        let started = Instant::now();
        let scheduler = Arc::clone(&lease.model().scheduler);
        let choices = job.choices;
        let context = scheduler.model().program().context_tokens();
        let ready = prepare(Arc::clone(scheduler.model()), job, context, salt, format_field).await?;
        let (sender, receiver) = unbounded_channel();
        let deliver = Arc::new(move |choice, event| drop(sender.send((choice, event))));
        let answers = Answers::submit(scheduler, ready, choices, (started, load), deliver)?;
        Ok(Answer {
            _lease: lease,
            answers,
            receiver,
        })
    }

    /// The next event; `None` after all answers have ended.
    ///
    /// # Errors
    /// How an answer failed; nothing follows.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        loop {
            if let Some(event) = self.answers.next_event() {
                return Ok(Some(event));
            }
            if self.answers.is_over() {
                return Ok(None);
            }
            match self.receiver.recv().await {
                Some((choice, event)) => self.answers.take(choice, event)?,
                None => return Err(ApiError::new(Kind::Server, "the scheduler has stopped after a failure")),
            }
        }
    }

    /// The next event if it is there already.
    ///
    /// # Errors
    /// As [`Answer::next`].
    pub(crate) fn next_now(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        loop {
            if let Some(event) = self.answers.next_event() {
                return Ok(Some(event));
            }
            match self.receiver.try_recv() {
                Ok((choice, event)) => self.answers.take(choice, event)?,
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Makes the prompts of a job ready; whoever goes away meanwhile has cancelled what is encoded for them.
async fn prepare(
    model: Arc<Model>,
    mut job: Job,
    context_tokens: usize,
    salt: u64,
    format_field: &'static str,
) -> Result<Vec<Ready>, ApiError> {
    let leaves = Leaves(CancelToken::new());
    for prompt in &mut job.prompts {
        if let Prompt::Chat(request) = prompt {
            request.cancel = leaves.0.clone();
        }
    }
    let work = tokio::task::spawn_blocking(move || Answers::prepare(&model, job, context_tokens, salt, format_field));
    match work.await {
        Ok(result) => result,
        Err(e) => Err(ApiError::new(
            Kind::Server,
            format!("the prompt cannot be made ready: {e}"),
        )),
    }
}
