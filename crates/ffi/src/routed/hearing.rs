//! Recordings of which targets hear the doubtful parts again, as the policy of a model says.
//!
//! Nobody is there to be asked while a recording is transcribed: what needs a yes stays here unless the policy has it.

use super::Policy;
use crate::failure::{Failure, Result};
use crate::hearer::Reheard;
use crate::underway;
use cactus_router::hybrid::policy::{Handoff, set_cactus_option};
use cactus_router::{Permission, Recording, Router, Stop};
use cactus_speech::Transcript;
use serde_json::{Map, Value, json};

/// Whether a target that the options name writes down speech.
///
/// # Errors
/// Where it does not.
pub(super) fn check(router: &Router, target: Option<&str>) -> Result<()> {
    let named = target.and_then(|name| Some((name, router.policy().targets.get(name)?)));
    match named {
        Some((name, target)) if !target.hears() => Err(Failure::argument(format!(
            "`options_json`: `target`: `{name}` does not write down speech; expected one with `protocol = \"openai_transcriptions\"`"
        ))),
        _ => Ok(()),
    }
}

impl Policy {
    /// Whether anything of a recording may be heard again, with options of the public engine that change the policy for it.
    ///
    /// # Errors
    /// Options that make no sense.
    pub(crate) fn hears(&self, options: &Map<String, Value>) -> Result<bool> {
        let mut policy = self.router.policy().clone();
        for (name, value) in options {
            let wrong = |error: cactus_router::hybrid::policy::UnknownOption| {
                Failure::argument(format!("`options_json`: {error}"))
            };
            set_cactus_option(&mut policy, name, value).map_err(wrong)?;
        }
        Ok(policy.handoff != Handoff::Never)
    }

    /// Lets targets hear what is doubtful of a recording: its samples, and how many of them a second. `hints` show how names are spelled.
    ///
    /// # Errors
    /// A key that is not there any more.
    pub(crate) fn hear_again(
        &self,
        stop: &underway::Stop,
        (samples, rate_hz): (&[f32], u32),
        transcript: &Transcript,
        hints: &str,
    ) -> Result<Reheard> {
        let ends = Stop::default();
        let end = ends.clone();
        stop.and(move || end.stop());
        let recording = Recording {
            samples,
            rate_hz,
            transcript,
            shown: None,
            hints,
            target: self.target.as_deref(),
            session: &self.session,
            user: "",
        };
        let heard = self.router.hear_again(&recording, &mut |_| Permission::Nobody, &ends)?;
        let marks = heard.revisions.iter().map(|revision| {
            let mut mark = Map::new();
            let by = revision.target.as_deref().unwrap_or("local");
            mark.insert("answered_by".to_owned(), json!(by));
            mark.insert("revision".to_owned(), json!(revision.revision));
            mark
        });
        let mut told = heard.answered.to_json();
        // Each segment has its own.
        told.remove("error_bound");
        told.remove("confidence");
        let sound = &heard.sound;
        let again = json!({"wanted": sound.wanted, "revised": sound.revised, "sent_s": sound.sent_ms as f64 / 1000.0});
        told.insert("heard_again".to_owned(), again);
        if !heard.answered.notes.is_empty() {
            told.insert("notes".to_owned(), json!(heard.answered.notes));
        }
        Ok(Reheard {
            marks: marks.collect(),
            told,
            is_revised: sound.revised > 0,
            transcript: heard.transcript,
        })
    }
}
