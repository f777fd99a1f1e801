//! Answers of this machine or of a target, as a policy says.

use super::Interrupt;
use crate::args::RouteArgs;
use crate::commands::route;
use crate::commands::show::Shown;
use crate::output;
use anyhow::{Context, Result, bail};
use cactus_engine::chat::{ChatRequest, Message};
use cactus_engine::scheduler::SchedulerLimits;
use cactus_engine::{GenerateOptions, Model, Scheduler};
use cactus_protocol::{End, Event as Said, Job, KeepAlive, Prompt, Reason as Ended, Spec, Usage};
use cactus_router::hybrid::route::{Outcome, Reason, Side};
use cactus_router::setup::Setup;
use cactus_router::{Answered, Ask, Event, Kept, Local, Question, Router};
use rustyline::Behavior;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// Who answers a conversation.
pub(super) struct Routed {
    router: Arc<Router>,
    local: Local,
    target: Option<String>,
    session: String,
    /// What the user was told already.
    told: bool,
}

/// An answer, whoever gave it.
pub(super) struct Reply {
    pub(super) message: Message,
    pub(super) answered: Answered,
    pub(super) end: Option<End>,
    /// Tokens by the count of who answered.
    pub(super) usage: Usage,
}

/// What came of asking a person.
enum Word {
    Said(bool),
    /// Nobody is there.
    Nobody,
    /// Ctrl-C.
    Stop,
}

/// The router, before there is a model.
pub(super) struct Ready {
    router: Router,
    target: Option<String>,
}

impl Ready {
    /// Makes the router ready, where one was asked for. A target that cannot be asked is an error here, before a model is looked for.
    pub(super) fn of(args: &RouteArgs) -> Result<Option<Ready>> {
        if !args.is_given() {
            return Ok(None);
        }
        let own = route::own_targets()?;
        let setup = Setup {
            file: args.policy.as_deref(),
            target: args.cloud.as_deref(),
            handoff: args.handoff.map(Into::into),
            budget: args.budget.as_deref(),
            consent: &args.consent,
            options: args.cactus.0.clone(),
            targets: Some(&own),
            ..Setup::default()
        };
        let configured = setup.read(&|name| std::env::var(name).ok())?;
        let target = configured.target.clone();
        let router = Router::new(configured, &route::folder()?, &route::keys()?)?;
        if let Some(target) = &target {
            router.check(target)?;
        }
        Ok(Some(Ready { router, target }))
    }
}

impl Routed {
    /// Lets `model` answer beside the targets.
    pub(super) fn new(ready: Ready, model: &Arc<Model>) -> Result<Routed> {
        let Ready { router, target } = ready;
        let limits = SchedulerLimits {
            sequences: 1,
            ..SchedulerLimits::default()
        };
        let scheduler = Scheduler::new(Arc::clone(model), limits)?;
        Ok(Routed {
            router: Arc::new(router),
            local: Local::new(scheduler, Duration::ZERO)?,
            target,
            session: format!("run-{}-{}", std::process::id(), cactus_protocol::new_id("")),
            told: false,
        })
    }

    /// Takes note that a conversation is answered here, as no target can be asked.
    pub(super) fn keep_here(&self, messages: Vec<Value>) -> Kept {
        let request = ChatRequest {
            messages,
            ..ChatRequest::default()
        };
        self.router.keep_here(&[Prompt::Chat(Box::new(request))])
    }

    /// Answers, and shows the answer as it comes.
    pub(super) fn answer(
        &mut self,
        request: ChatRequest,
        options: &GenerateOptions,
        defaults: &GenerateOptions,
        interrupt: &Interrupt,
        quiet: bool,
    ) -> Result<Reply> {
        let job = Job {
            model: String::new(),
            prompts: vec![Prompt::Chat(Box::new(request))],
            choices: 1,
            spec: Spec::other_than(defaults, options),
            // Whoever reads a file or a pipe cannot be told what of it is void: it gets whole answers.
            stream: !quiet && std::io::stdout().is_terminal(),
            keep_alive: KeepAlive::Default,
        };
        let ask = Ask {
            target: self.target.clone(),
            session: self.session.clone(),
            ..Ask::new(Some(self.local.clone()), job)
        };
        let mut running = self.router.start(ask)?;
        running.set_replaceable(true);
        let canceller = running.canceller();
        let mut shown = Shown::new(quiet);
        let (mut ended, mut usage) = (None, Usage::default());
        let answered = interrupt.while_stopping(
            move || canceller.cancel(),
            || -> Result<Answered> {
                loop {
                    let event = running.next();
                    if let Some(Event::Said(said)) = &event {
                        usage.add(0, 1, said);
                    }
                    match event {
                        Some(Event::Said(Said::Delta(delta))) => shown.add(std::iter::once(delta))?,
                        Some(Event::Said(Said::End(end))) => ended = Some(end),
                        Some(Event::Replaced(_)) => {
                            shown.end()?;
                            shown = Shown::new(quiet);
                            usage = Usage::default();
                            output::note("(what is above is void; another answers from the beginning)");
                        }
                        Some(Event::Consent(question)) => match self.may_leave(&question, interrupt)? {
                            Word::Said(yes) => running.consent(yes),
                            Word::Nobody => running.nobody_to_ask(),
                            Word::Stop => running.cancel(),
                        },
                        Some(Event::Said(_) | Event::Source(_)) => {}
                        Some(Event::End(answered)) => return Ok(*answered),
                        None => bail!("the answer ended before its end"),
                    }
                }
            },
        )?;
        shown.end().context("cannot write the answer")?;
        let mut answered = answered;
        // Where one does not hold for the request, a note of the answer says why.
        let uncalibrated = answered.outcome.reason == Reason::Uncalibrated && !self.local.is_calibrated();
        if uncalibrated && !quiet && !std::mem::replace(&mut self.told, true) {
            output::note(
                "(answered here: nobody knows how sure the model is, as nobody has calibrated this bundle; `cactus calibrate` does)",
            );
        }
        if let Some(failure) = answered.failure.take() {
            return Err(failure.into());
        }
        Ok(Reply {
            message: shown.message,
            answered,
            end: ended,
            usage,
        })
    }

    /// Asks the person at the terminal.
    fn may_leave(&mut self, question: &Question, interrupt: &Interrupt) -> Result<Word> {
        let classes: Vec<&str> = question.classes.iter().map(|class| class.name()).collect();
        let classes = classes.join(", ");
        if !std::io::stdin().is_terminal() {
            if !std::mem::replace(&mut self.told, true) {
                output::note(format!(
                    "({} was not asked, as nobody is there to say yes; `--consent {}` says it beforehand)",
                    question.target,
                    classes.replace(' ', "")
                ));
            }
            return Ok(Word::Nobody);
        }
        let Question { target, host, most, .. } = question;
        let why = route::because(question.reason);
        let sure = question
            .confidence
            .map_or_else(String::new, |sure| format!(" ({sure:.2})"));
        let prompt = format!(
            "Send this conversation ({classes}) to {target} at {host}, for at most {most}, because {why}{sure}? [y/N] "
        );
        output::forget_typed();
        let asked = move || {
            // The terminal itself, as standard output may be a file.
            let config = rustyline::Config::builder().behavior(Behavior::PreferTerm).build();
            rustyline::Editor::<(), DefaultHistory>::with_history(config, DefaultHistory::new())?.readline(&prompt)
        };
        let Some(line) = interrupt.ask(asked)? else {
            return Ok(Word::Stop);
        };
        match line {
            Ok(line) => Ok(Word::Said(matches!(
                line.trim().to_ascii_lowercase().as_str(),
                "y" | "yes"
            ))),
            Err(ReadlineError::Interrupted) => Ok(Word::Stop),
            Err(ReadlineError::Eof) => Ok(Word::Said(false)),
            Err(e) => Err(e).context("cannot read from the terminal"),
        }
    }
}

/// Where an answer came from, in a line; `None` where it came from here and nobody else was wanted.
pub(super) fn origin(answered: &Answered) -> Option<String> {
    let outcome = &answered.outcome;
    let target = answered.target.as_deref().unwrap_or("the target");
    match (outcome.answered_by?, outcome.wanted) {
        (Side::Cloud, wanted) => {
            let why = route::because(wanted.unwrap_or(outcome.reason));
            Some(format!("({target} answered, because {why}; {})", cost(outcome)))
        }
        (Side::Local, Some(wanted)) => Some(format!(
            "(answered here; {target} was wanted because {}, but {})",
            route::because(wanted),
            route::because(outcome.reason)
        )),
        (Side::Local, None) => None,
    }
}

fn cost(outcome: &Outcome) -> String {
    match outcome.billed {
        true => outcome.cost.to_string(),
        false => format!("at most {}", outcome.cost),
    }
}

/// What JSON says of a routed answer.
pub(super) fn json(reply: &Reply) -> Value {
    let Reply {
        message,
        answered,
        end,
        usage,
    } = reply;
    let mut fields = crate::commands::show::parts(message);
    let reason = end.as_ref().map(|end| match &end.reason {
        Ended::Stop | Ended::StopString(_) => "stop",
        Ended::Length => "length",
        Ended::Cancelled => "cancelled",
    });
    let mut notes = message.notes.clone();
    notes.extend(answered.notes.iter().cloned());
    if !notes.is_empty() {
        fields.insert("notes".to_owned(), json!(notes));
    }
    let Value::Object(rest) = json!({
        "finish_reason": reason.unwrap_or("cancelled"),
        "prefill_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "decode_tokens": end.as_ref().map(|end| end.completion_tokens),
    }) else {
        return Value::Object(fields);
    };
    fields.extend(answered.to_json());
    fields.extend(rest);
    Value::Object(fields)
}
