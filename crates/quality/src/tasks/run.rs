//! Asking a model the cases of a task, several at a time, and judging its answers in the order of the cases.
//!
//! The scheduler that servers use computes them together, so an answer has the same tokens, and the same signals, however many
//! are asked at once.

use super::asking::{Answer, Asking};
use super::{Case, Question, Results};
use crate::{Error, Result};
use cactus_engine::scheduler::{Event, SchedulerLimits};
use cactus_engine::{CancelToken, Model, Scheduler};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Longest time that prompts may add between two tokens: nobody reads along, and large models would get none of less.
const GAP: Duration = Duration::from_secs(1);

/// How a task is run.
#[derive(Clone, Copy, Debug)]
pub struct TaskOptions {
    /// Tokens an answer may have.
    pub max_tokens: usize,
    /// Continue prompts as plain text even where the model has a chat template.
    pub raw: bool,
    /// Hold calls to the schemas of the tools; where the case has calls, at least one has to be made.
    pub constrained: bool,
    /// With `constrained`, at most one call.
    pub one_call: bool,
    /// Run the programs that the model writes. The limits around them are no sandbox.
    pub allow_code_execution: bool,
    /// Time for a program.
    pub time: Duration,
    /// Keep how sure the model was, in [`Judged::gathered`](super::Judged::gathered).
    pub signals: bool,
    /// Answers that are computed together, at least 1. They are the same for any number.
    pub streams: usize,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            max_tokens: 512,
            raw: false,
            constrained: false,
            one_call: false,
            allow_code_execution: false,
            time: Duration::from_secs(10),
            signals: false,
            streams: 16,
        }
    }
}

/// Asks `model` those of `cases` that `results` has not, taking the likeliest token every time. `each` gets the results after
/// every case and says whether to go on. A case that does not fit the context counts as wrong.
///
/// # Errors
/// [`crate::ErrorKind::Task`] where programs would have to be run and may not be; what
/// the engine found; what `each` failed with.
pub fn run_task(
    model: &Arc<Model>,
    cases: &[Case],
    options: &TaskOptions,
    cancel: &CancelToken,
    results: &mut Results,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<()> {
    if !options.allow_code_execution && cases.iter().any(|c| matches!(c.question, Question::Program { .. })) {
        return Err(Error::Task(
            "this task runs programs that the model wrote, which was not allowed".into(),
        ));
    }
    let streams = options.streams.min(model.program().chunk_tokens());
    let limits = SchedulerLimits {
        sequences: streams,
        queue: usize::MAX,
        gap: GAP,
        ..SchedulerLimits::default()
    };
    let (sender, events) = mpsc::channel();
    // Dropping the scheduler cancels what is under way, and is nobody else's concern.
    let own = CancelToken::new();
    let mut asked = Asked {
        asking: Asking {
            model,
            options,
            cancel: &own,
        },
        scheduler: Scheduler::new(Arc::clone(model), limits)?,
        sender,
        under_way: BTreeMap::new(),
        requests: 0,
    };
    let mut unasked = results.cases.len()..cases.len();
    // What was found of cases behind one that is still under way; a failure, too, comes after all cases before it.
    let mut judged = BTreeMap::new();
    while results.cases.len() < cases.len() {
        // Twice as many as are computed, so that one is there when another ends.
        while asked.requests < 2 * streams
            && let Some(index) = unasked.next()
        {
            if let Err(e) = asked.ask(index, &cases[index]) {
                judged.insert(index, Err(e));
                unasked = cases.len()..cases.len();
            }
        }
        while let Some((index, case)) = asked.answered() {
            // What was stopped is no answer, nor are those that come after it.
            if cancel.is_cancelled() {
                return Ok(());
            }
            let found = case.answers.and_then(|answers| {
                let too_long = case.too_long;
                asked.asking.judge(&cases[index], answers, too_long)
            });
            judged.insert(index, found);
        }
        if cancel.is_cancelled() {
            return Ok(());
        }
        let before = results.cases.len();
        while let Some(found) = judged.remove(&results.cases.len()) {
            results.push(found?);
            each(results)?;
        }
        if results.cases.len() == before && asked.requests > 0 {
            // There is a sender as long as `asked` is there; each request says when it is gone.
            asked.take(events.recv().map_err(|_| stopped())?);
        }
    }
    Ok(())
}

fn stopped() -> Error {
    Error::Task("the model's computation ended before its answers".into())
}

/// An event of a part of a case; the last one is `None`, also where there was no end.
type Told = (usize, usize, Option<Event>);

/// The end of a channel that a request holds.
struct Teller {
    sender: mpsc::Sender<Told>,
    case: usize,
    part: usize,
}

impl Teller {
    fn tell(&self, event: Option<Event>) {
        // Nobody listens once all has been judged, or something has failed.
        drop(self.sender.send((self.case, self.part, event)));
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(None);
    }
}

/// A case that was asked.
struct UnderWay {
    /// Or what a request failed with.
    answers: Result<Vec<Answer>>,
    /// Of these, without an end.
    left: usize,
    too_long: Option<String>,
}

struct Asked<'a> {
    asking: Asking<'a>,
    scheduler: Arc<Scheduler>,
    sender: mpsc::Sender<Told>,
    under_way: BTreeMap<usize, UnderWay>,
    /// Those of all cases that have not ended.
    requests: usize,
}

impl Asked<'_> {
    /// Submits the requests of a case.
    fn ask(&mut self, index: usize, case: &Case) -> Result<()> {
        let (mut answers, mut too_long) = (Vec::new(), None);
        for (part, (request, answer)) in self.asking.requests(case)?.into_iter().enumerate() {
            let teller = Teller {
                sender: self.sender.clone(),
                case: index,
                part,
            };
            let sink = move |event| teller.tell(Some(event));
            match self.scheduler.submit(request, Box::new(sink)) {
                Err(e) if e.kind() == cactus_engine::ErrorKind::ContextFull => {
                    too_long = Some(e.to_string());
                    break;
                }
                other => other?,
            }
            answers.push(answer);
            self.requests += 1;
        }
        let under_way = UnderWay {
            left: answers.len(),
            answers: Ok(answers),
            too_long,
        };
        self.under_way.insert(index, under_way);
        Ok(())
    }

    fn take(&mut self, (case, part, event): Told) {
        // A case that is judged has had the end of all its parts.
        let Some(under_way) = self.under_way.get_mut(&case) else {
            return;
        };
        // A request that was refused has no answer, and its channel ends all the same.
        let Ok(Some(answer)) = under_way.answers.as_mut().map(|answers| answers.get_mut(part)) else {
            return;
        };
        let failed = match event {
            Some(Event::Started { .. }) => return,
            Some(Event::Delta(piece)) => return answer.push(&piece),
            Some(Event::End(Ok(completion))) => {
                answer.end(Some(completion));
                None
            }
            // A case that does not fit is one that this model cannot answer.
            Some(Event::End(Err(e))) if e.kind() == cactus_engine::ErrorKind::ContextFull => {
                answer.end(None);
                under_way.too_long = Some(e.to_string());
                None
            }
            Some(Event::End(Err(e))) => Some(e.into()),
            None if answer.has_ended() => return,
            None => Some(stopped()),
        };
        let ended = match failed {
            None => 1,
            // Nobody waits for the others any more.
            Some(e) => {
                under_way.answers = Err(e);
                under_way.left
            }
        };
        under_way.left -= ended;
        self.requests -= ended;
    }

    /// A case whose requests have all ended.
    fn answered(&mut self) -> Option<(usize, UnderWay)> {
        let index = *self.under_way.iter().find(|(_, case)| case.left == 0)?.0;
        self.under_way.remove_entry(&index)
    }
}
