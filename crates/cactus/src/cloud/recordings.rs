//! Recordings of which targets hear the doubtful parts again.

use super::{PolicyOptions, Route, new_session};
use crate::failure::Ours as _;
use crate::speech::{PCM_HZ, Sound, Transcript};
use cactus_engine::{Error, Result};
use cactus_router::{Permission, Question, Recording, Router, Stop};
use std::sync::Arc;

/// The policy of recordings: targets that write down speech hear again what is doubtful of a transcript.
#[derive(Debug)]
pub struct RecordingPolicy {
    router: Arc<Router>,
    target: Option<String>,
    session: String,
}

/// What became of a transcript.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reheard {
    /// Its final text. Words of a target have no probability, which is no number then, and segments with them no tokens.
    pub transcript: Transcript,
    /// The target whose words are in each segment, in order; `None` where it is as this machine has heard it.
    pub by_target: Vec<Option<String>>,
    /// Seconds of sound that were sent.
    pub sent_s: f64,
    /// Who was asked, why, and for how much.
    pub route: Route,
    /// What the caller should know, such as why a target failed.
    pub notes: Vec<String>,
}

impl RecordingPolicy {
    /// As [`Policy::new`](super::Policy::new), for targets with the protocol `openai_transcriptions`. `target` may be the address of one.
    ///
    /// # Errors
    /// As [`Policy::new`](super::Policy::new), and for a target that does not write down speech.
    pub fn new(options: &PolicyOptions) -> Result<RecordingPolicy> {
        let (router, target) = options.router(true)?;
        let named = target
            .as_ref()
            .and_then(|name| Some((name, router.policy().targets.get(name)?)));
        if let Some((name, found)) = named
            && !found.hears()
        {
            return Err(Error::Argument(format!(
                "`target`: `{name}` does not write down speech; expected one with `protocol = \"openai_transcriptions\"`"
            )));
        }
        Ok(RecordingPolicy {
            router,
            target,
            session: new_session(),
        })
    }

    /// Lets targets hear what is doubtful of `transcript`, which this machine has written of `sound`, with times of words
    /// ([`TranscribeOptions::words`](crate::speech::TranscribeOptions::words)). `person` is asked where the policy says so, on this thread;
    /// `stop` ends it from any. Whatever a target does, there is a transcript.
    ///
    /// # Errors
    /// A sound that cannot be read; a key that is not there.
    pub fn hear_again(
        &self,
        sound: Sound<'_>,
        transcript: &Transcript,
        person: &mut dyn FnMut(&Question) -> Permission,
        stop: &Stop,
    ) -> Result<Reheard> {
        let samples = sound.samples(PCM_HZ)?;
        let recording = Recording {
            samples: &samples,
            rate_hz: PCM_HZ,
            transcript,
            shown: None,
            hints: "",
            target: self.target.as_deref(),
            session: &self.session,
            user: "",
        };
        let heard = self.router.hear_again(&recording, person, stop).map_err(|e| e.ours())?;
        let by_target = heard.revisions.into_iter().map(|revision| revision.target);
        Ok(Reheard {
            transcript: heard.transcript,
            by_target: by_target.collect(),
            sent_s: heard.sound.sent_ms as f64 / 1000.0,
            route: Route::of(&heard.answered.outcome, heard.answered.target.as_deref()),
            notes: heard.answered.notes,
        })
    }
}
