//! What is doubtful of a recording, heard again by a target, as a policy says.

use crate::args::{AgainArgs, WrongArgument};
use crate::commands::route;
use crate::output;
use anyhow::{Context as _, Result};
use cactus_router::hybrid::policy::{Handoff, Verdict};
use cactus_router::hybrid::redact::Class;
use cactus_router::setup::Setup;
use cactus_router::{Hearers, LiveHearing, Permission, Question, Recording, Reheard, Router, Stop};
use cactus_speech::{TranscribeOptions, Transcript};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

/// Who hears again what is doubtful.
pub(super) struct Again {
    router: Arc<Router>,
    target: Option<String>,
    session: String,
}

impl Again {
    /// Makes the router ready, where one was asked for. A target that cannot be asked is an error here, before anything is heard. `what`
    /// names what is done to the budget.
    pub(super) fn new(args: &AgainArgs, options: &TranscribeOptions, what: &str) -> Result<Option<Again>> {
        if !args.is_given()? {
            return Ok(None);
        }
        if options.translate {
            let message =
                "`--translate` writes English, which no target is asked for; leave it out, or `--cloud` and `--policy`";
            return Err(WrongArgument(message.to_owned()).into());
        }
        let own = route::own_targets()?;
        let setup = Setup {
            file: args.policy.as_deref(),
            target: args.cloud.as_deref(),
            hears: true,
            handoff: args.handoff.map(Into::into),
            budget: args.budget.as_deref(),
            consent: &args.consent,
            targets: Some(&own),
            ..Setup::default()
        };
        let configured = setup.read(&|name| std::env::var(name).ok())?;
        let target = configured.target.clone();
        let router = Router::new(configured, &route::folder()?, &route::keys()?)?;
        if let Some(name) = &target {
            router.check(name)?;
            if !router.policy().targets[name].hears() {
                let message = format!(
                    "`--cloud`: the target `{name}` does not write down speech; expected one with `protocol = \"openai_transcriptions\"`"
                );
                return Err(WrongArgument(message).into());
            }
        }
        Ok(Some(Again {
            router: Arc::new(router),
            target,
            session: format!("{what}-{}-{}", std::process::id(), cactus_protocol::new_id("")),
        }))
    }

    /// Lets a target hear what is doubtful of live speech. The person is asked now, before anybody speaks; where the sound comes by
    /// standard input (`is_piped`), nobody is there.
    pub(super) fn live(&self, options: &TranscribeOptions, is_piped: bool) -> Result<LiveHearing> {
        let policy = self.router.policy();
        let mut said = BTreeMap::new();
        let asked = policy.hearers().filter(|(name, _)| match &self.target {
            Some(target) => target == name,
            None => true,
        });
        for (name, target) in asked {
            let verdict = policy.consent.verdict(&[Class::Audio], name);
            if policy.handoff == Handoff::Never || !matches!(verdict, Verdict::Ask(_)) {
                continue;
            }
            let what = format!(
                "Send the phrases that are doubtful (audio), as they are said, to {name} at {}, as far as the budget goes?",
                target.base_url
            );
            let answer = match is_piped {
                true => nobody(name),
                false => may_leave(name, &what)?,
            };
            said.insert(name.to_owned(), answer);
        }
        let hearers = Hearers {
            target: self.target.clone(),
            hints: hints(options),
            session: self.session.clone(),
            user: String::new(),
        };
        let person = move |question: &Question| said.get(&question.target).copied().unwrap_or(Permission::Nobody);
        Ok(LiveHearing::start(Arc::clone(&self.router), hearers, person)?)
    }

    /// Lets a target hear what is doubtful, and says what came of it.
    pub(super) fn hear(
        &self,
        samples: &[f32],
        rate_hz: u32,
        transcript: &Transcript,
        options: &TranscribeOptions,
    ) -> Result<Reheard> {
        let hints = hints(options);
        let recording = Recording {
            samples,
            rate_hz,
            transcript,
            shown: None,
            hints: &hints,
            target: self.target.as_deref(),
            session: &self.session,
            user: "",
        };
        let mut failed = None;
        let mut person = |question: &Question| {
            let Question { target, host, most, .. } = question;
            let what = format!(
                "Send the doubtful parts of this recording (audio) to {target} at {host}, for at most {most} each try?"
            );
            may_leave(target, &what).unwrap_or_else(|error| {
                failed = Some(error);
                Permission::Nobody
            })
        };
        let reheard = self.router.hear_again(&recording, &mut person, &Stop::default())?;
        if let Some(error) = failed {
            return Err(error);
        }
        for note in &reheard.answered.notes {
            output::note(format!("({note})"));
        }
        output::note(line(&reheard));
        Ok(reheard)
    }
}

/// Text that shows how names are spelled.
fn hints(options: &TranscribeOptions) -> String {
    [options.initial_prompt.as_str(), &options.hotwords.join(", ")].join(" ")
}

/// Asks the person at the terminal whether something may leave for `target`.
fn may_leave(target: &str, what: &str) -> Result<Permission> {
    if !std::io::stdin().is_terminal() {
        return Ok(nobody(target));
    }
    output::forget_typed();
    eprint!("{what} [y/N] ");
    std::io::stderr().flush().context("cannot write to the terminal")?;
    let mut said = String::new();
    std::io::stdin()
        .read_line(&mut said)
        .context("cannot read from the terminal")?;
    Ok(match said.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Permission::Yes,
        _ => Permission::No,
    })
}

fn nobody(target: &str) -> Permission {
    output::note(format!(
        "({target} was not asked, as nobody is there to say yes; `--consent audio` says it beforehand)"
    ));
    Permission::Nobody
}

/// What was heard again, by whom, why and for how much.
fn line(reheard: &Reheard) -> String {
    let Reheard { sound, answered, .. } = reheard;
    let outcome = &answered.outcome;
    let target = answered.target.as_deref().unwrap_or("no target");
    let cost = match outcome.billed {
        true => outcome.cost.to_string(),
        false => format!("at most {}", outcome.cost),
    };
    let because = route::because(outcome.reason);
    match (sound.sent_ms, outcome.wanted) {
        (_, None) => format!("(heard here alone, because {because})"),
        (0, Some(_)) => format!(
            "({} of {} segments were to be heard again, and were not, because {because})",
            sound.wanted, sound.segments
        ),
        _ => format!(
            "({target} was let hear {:.1} s for {} of {} segments, because {because}, and changed {}; {cost})",
            sound.sent_ms as f64 / 1000.0,
            sound.wanted,
            sound.segments,
            sound.revised
        ),
    }
}

/// Puts what became of a transcript into its JSON.
pub(super) fn tell(reheard: &Reheard, into: &mut Value) {
    let segments = into.get_mut("segments").and_then(Value::as_array_mut);
    for (segment, revision) in segments.into_iter().flatten().zip(&reheard.revisions) {
        segment["answered_by"] = json!(revision.target.as_deref().unwrap_or("local"));
        segment["revision"] = json!(revision.revision);
    }
    let sound = &reheard.sound;
    into["heard_again"] = json!({
        "wanted": sound.wanted,
        "revised": sound.revised,
        "sent_s": sound.sent_ms as f64 / 1000.0,
    });
    let mut told = reheard.answered.to_json();
    // Each segment has its own.
    told.remove("confidence");
    told.remove("error_bound");
    if !reheard.answered.notes.is_empty() {
        told.insert("notes".to_owned(), json!(reheard.answered.notes));
    }
    for (name, value) in told {
        into[name] = value;
    }
}
