//! A transcript of this machine of which a target hears the doubtful pieces again.
//!
//! ```text
//! Transcript ─► doubtful segments ─► pieces ─► consent ─► reserve ─► seal ─► target ─► share, merge ─► revisions of the same segments
//! ```
//!
//! Pieces are asked about one after the other. A target that fails is asked no more about this recording, and the next one of the policy
//! hears what is left; after the last, the text of this machine stays. Money is reserved for each try by the length of its piece, and
//! one recording is one request to the budget and to the record.

mod asking;
mod live;
mod sound;
mod stop;

pub use live::{Amended, Hearers, LiveHearing, Offered, Phrase};
pub use stop::Stop;

use crate::answered::Answered;
use crate::error::Result;
use crate::outgoing::Hints;
use crate::router::{Remote, Router, unix_seconds};
use crate::running::Question;
use asking::{Asking, Ended};
use cactus_hybrid::budget::Scope;
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::{Handoff, Verdict};
use cactus_hybrid::record::{Circumstances, Record, Sound};
use cactus_hybrid::redact::{Class, Redactor};
use cactus_hybrid::route::{Fate, Offer, Outcome, Reason, Request, Side};
use cactus_hybrid::transcript::{Heard, Piece, Segment, Word, doubt, merge, pieces, share};
use cactus_speech::Transcript;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A recording that this machine has transcribed, with times of words ([`cactus_speech::TranscribeOptions::words`]).
#[derive(Debug)]
pub struct Recording<'a> {
    /// Its samples: mono, from -1 to 1.
    pub samples: &'a [f32],
    /// So many of them a second.
    pub rate_hz: u32,
    /// What was heard here.
    pub transcript: &'a Transcript,
    /// Since when a reader has its text; `None` where nobody has.
    pub shown: Option<Instant>,
    /// Text that shows how names are spelled. It leaves only where the policy lets text leave.
    pub hints: &'a str,
    /// This target, and no other.
    pub target: Option<&'a str>,
    /// Names the conversation to the budget.
    pub session: &'a str,
    /// Names the user to the budget; empty where there is but one.
    pub user: &'a str,
}

/// What a person says to a [`Question`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may leave.
    Yes,
    /// It may not.
    No,
    /// Nobody is there to say.
    Nobody,
}

/// A segment after all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// How often its text was changed.
    pub revision: u32,
    /// The target whose words are in it; `None` where it is as this machine has heard it.
    pub target: Option<String>,
    /// It was changed so late that a reader may have gone on.
    pub amended: bool,
}

/// What became of a transcript.
#[derive(Debug)]
pub struct Reheard {
    /// Its final text. Words of a target have no probability, which is no number then, and segments with them no tokens.
    pub transcript: Transcript,
    /// What became of each segment, in order.
    pub revisions: Vec<Revision>,
    /// What was heard again.
    pub sound: Sound,
    /// Who answered, why, and for how much.
    pub answered: Answered,
}

impl Router {
    /// The targets that may be asked, in this order.
    fn hearers(&self, target: Option<&str>) -> Vec<&Remote> {
        let names: Vec<&str> = match target {
            Some(name) => vec![name],
            None => self.policy.hearers().map(|(name, _)| name).collect(),
        };
        let remotes = names.into_iter().filter_map(|name| self.targets.get(name));
        remotes.filter(|remote| remote.policy.hears()).collect()
    }

    /// Lets targets hear what is doubtful of a transcript, as the policy says, and takes over what they have heard. `person` is asked
    /// where the policy says so; `stop` ends it from another thread. Whatever fails, there is a transcript.
    ///
    /// # Errors
    /// [`crate::Error::Target`] for a name that the policy does not have, or a key that is not there.
    pub fn hear_again(
        &self,
        recording: &Recording<'_>,
        person: &mut dyn FnMut(&Question) -> Permission,
        stop: &Stop,
    ) -> Result<Reheard> {
        if let Some(name) = recording.target {
            self.check(name)?;
        }
        let begun = Instant::now();
        let mut hearing = Hearing::new(self, recording, stop);
        let (wanted, prevented) = hearing.run(person);
        Ok(hearing.finish(wanted, prevented, begun))
    }
}

/// One recording on its way.
struct Hearing<'a> {
    router: &'a Router,
    recording: &'a Recording<'a>,
    remotes: Vec<&'a Remote>,
    offers: Vec<Offer>,
    fates: Vec<Fate>,
    segments: Vec<Segment>,
    /// Segments that nobody has heard again yet.
    left: BTreeSet<u64>,
    /// What was heard of a segment whose pieces are not all done.
    open: BTreeMap<u64, Vec<Word>>,
    revisions: Vec<Revision>,
    asking: Asking<'a>,
    sound: Sound,
    /// Who has answered last, of the offers.
    answered: Option<usize>,
    over: Option<Scope>,
}

impl<'a> Hearing<'a> {
    fn new(router: &'a Router, recording: &'a Recording<'a>, stop: &'a Stop) -> Hearing<'a> {
        let segments = sound::segments(recording.transcript);
        let rules = &router.policy.transcription;
        let always = router.policy.handoff == Handoff::Always;
        let wanted = segments.iter().filter(|s| always || doubt(s, rules).is_some());
        let left: BTreeSet<u64> = wanted.map(|segment| segment.id).collect();
        let remotes = router.hearers(recording.target);
        let mut hearing = Hearing {
            router,
            recording,
            fates: vec![Fate::default(); remotes.len()],
            offers: Vec::new(),
            remotes,
            revisions: vec![Revision::default(); segments.len()],
            sound: Sound {
                segments: segments.len() as u32,
                wanted: left.len() as u32,
                ..Sound::default()
            },
            segments,
            left,
            open: BTreeMap::new(),
            asking: Asking::new(router, recording, stop),
            answered: None,
            over: None,
        };
        let found = hearing.pieces();
        let offer = |remote: &&Remote| Offer {
            target: remote.target.name.clone(),
            reachable: remote.rest(router.now()).is_none(),
            refused: remote.rest(router.now()).is_some() && remote.breaker().is_refused(),
            consent: router.policy.consent.verdict(&[Class::Audio], &remote.target.name),
            accuracy: None,
            seconds: remote.seconds(),
            worst_case: most(remote, &found),
        };
        hearing.offers = hearing.remotes.iter().map(offer).collect();
        hearing
    }

    /// The pieces of what is left.
    fn pieces(&self) -> Vec<Piece> {
        let Recording { samples, rate_hz, .. } = *self.recording;
        let recording_ms = samples.len() as u64 * 1000 / u64::from(rate_hz.max(1));
        let left = |segment: &Segment| self.left.contains(&segment.id);
        let found = pieces(&self.segments, &left, &self.router.policy.transcription, recording_ms);
        let found = found.iter().map(|piece| sound::in_pauses(piece, samples, rate_hz));
        found.collect()
    }

    /// Why a target was wanted, where it was, and what has prevented it last.
    fn run(&mut self, person: &mut dyn FnMut(&Question) -> Permission) -> (Option<Reason>, Reason) {
        let policy = &self.router.policy;
        let wanted = match policy.handoff {
            _ if self.left.is_empty() => return (None, Reason::Confident),
            Handoff::Never => return (None, Reason::HandoffOff),
            Handoff::Always => Reason::Always,
            Handoff::Auto => Reason::LowConfidence,
        };
        self.keep_blocked();
        let mut prevented = match (self.remotes.is_empty(), self.left.is_empty()) {
            (_, true) => Reason::DeniedByPolicy,
            (true, _) => Reason::NoTarget,
            _ => Reason::CloudFailed,
        };
        for at in 0..self.remotes.len() {
            if self.left.is_empty() {
                break;
            }
            match self.offer(at, person) {
                None => {}
                Some(reason) => {
                    prevented = reason;
                    self.fates[at].passed = Some(reason);
                    if matches!(reason, Reason::DeniedByPerson | Reason::Cancelled) {
                        break;
                    }
                }
            }
        }
        (Some(wanted), prevented)
    }

    /// What the rules of redaction block does not leave as sound either, as far as its text says.
    fn keep_blocked(&mut self) {
        let rules = &self.router.policy.redaction;
        if !rules.block_any() {
            return;
        }
        let mut kept = 0;
        for segment in &self.segments {
            let blocked = self.left.contains(&segment.id) && Hints::check(&segment.text(), rules).is_err();
            if blocked && self.left.remove(&segment.id) {
                kept += 1;
            }
        }
        if kept > 0 {
            let note = format!(
                "{kept} segments hold what the policy does not let leave, and stay as this machine has heard them"
            );
            self.asking.notes.push(note);
        }
    }

    /// Lets a target hear what is left; why it did not hear all of it.
    fn offer(&mut self, at: usize, person: &mut dyn FnMut(&Question) -> Permission) -> Option<Reason> {
        let remote = self.remotes[at];
        let name = remote.target.name.clone();
        if let Err(why) = remote.key() {
            self.asking.notes.push(why);
            return Some(Reason::NoTarget);
        }
        if let Some(rest) = remote.rest(self.router.now()) {
            self.asking.notes.push(rest.to_string());
            return Some(match remote.breaker().is_refused() {
                true => Reason::KeyRefused,
                false => Reason::Offline,
            });
        }
        let found = self.pieces();
        match &self.offers[at].consent {
            Verdict::Denied(_) => return Some(Reason::DeniedByPolicy),
            Verdict::Granted => {}
            Verdict::Ask(classes) => {
                let question = Question {
                    classes: classes.clone(),
                    target: name.clone(),
                    host: remote.target.base.authority().to_owned(),
                    most: most(remote, &found).to_string(),
                    reason: match self.router.policy.handoff {
                        Handoff::Always => Reason::Always,
                        _ => Reason::LowConfidence,
                    },
                    confidence: None,
                };
                let said = person(&question);
                self.fates[at].consented = match said {
                    Permission::Yes => Some(true),
                    Permission::No => Some(false),
                    Permission::Nobody => None,
                };
                match said {
                    Permission::Yes => {}
                    Permission::No => return Some(Reason::DeniedByPerson),
                    Permission::Nobody => return Some(Reason::NobodyToAsk),
                }
            }
        }
        for (number, piece) in found.iter().enumerate() {
            let heard = match self.asking.ask(remote, piece) {
                Ok(heard) => heard,
                Err(Ended::OverCap(scope)) => {
                    self.over = scope;
                    return Some(scope.map_or(Reason::BudgetFailed, |_| Reason::OverCap));
                }
                Err(Ended::Failed) if remote.breaker().is_refused() => return Some(Reason::KeyRefused),
                Err(Ended::Failed) => return Some(Reason::CloudFailed),
                Err(Ended::Stopped) => return Some(Reason::Cancelled),
            };
            self.answered = Some(at);
            let goes_on = found.get(number + 1).and_then(|next| next.segments.first()).copied();
            self.take(piece, heard, goes_on, &name);
        }
        None
    }

    /// Takes over what was heard of a piece. `goes_on` is the segment of which the next piece holds more, where it is one of this piece.
    fn take(&mut self, piece: &Piece, heard: Result<Vec<Word>, &'static str>, goes_on: Option<u64>, target: &str) {
        match heard {
            Ok(words) => {
                for (id, words) in share(&self.segments, piece, &words) {
                    self.open.entry(id).or_default().extend(words);
                }
            }
            Err(why) => {
                let from = piece.start_ms as f64 / 1000.0;
                self.asking.notes.push(format!(
                    "what the target `{target}` says of the sound from {from:.1} s on is not used: {why}"
                ));
                // The other pieces of a segment are of no use without this one.
                piece.segments.iter().for_each(|id| {
                    self.left.remove(id);
                    self.open.remove(id);
                });
            }
        }
        for id in piece.segments.iter().copied().filter(|id| Some(*id) != goes_on) {
            let words = self.open.remove(&id);
            let (true, Some(words)) = (self.left.remove(&id), words) else {
                continue;
            };
            self.revise(id, words, target);
        }
    }

    fn revise(&mut self, id: u64, words: Vec<Word>, target: &str) {
        let Some(at) = self.segments.iter().position(|segment| segment.id == id) else {
            return;
        };
        let segment = &self.segments[at];
        let heard = Heard {
            id,
            revision: segment.revision,
            words,
            heard: true,
        };
        let shown = self.recording.shown.map_or(Duration::ZERO, |since| since.elapsed());
        let shown_ms = u64::try_from(shown.as_millis()).unwrap_or(u64::MAX);
        match merge(segment, &heard, shown_ms, &self.router.policy.transcription) {
            Ok(revised) => {
                if revised.revision > segment.revision {
                    self.sound.revised += 1;
                    self.revisions[at] = Revision {
                        revision: revised.revision,
                        target: Some(target.to_owned()),
                        amended: revised.amended,
                    };
                }
                self.segments[at] = revised;
            }
            Err(why) => {
                let from = segment.start_ms as f64 / 1000.0;
                self.asking.notes.push(format!(
                    "what the target `{target}` has heard from {from:.1} s on is not used: {why}"
                ));
            }
        }
    }

    fn finish(self, wanted: Option<Reason>, prevented: Reason, begun: Instant) -> Reheard {
        let Hearing { router, asking, .. } = self;
        let mut transcript = self.recording.transcript.clone();
        for (segment, revision) in self.segments.iter().zip(&self.revisions) {
            if revision.revision > 0 {
                sound::put(segment, &mut transcript);
            }
        }
        let target = self.answered.or_else(|| {
            let asked = self.fates.iter().rposition(|fate| fate.passed.is_some());
            asked.or((!self.offers.is_empty()).then_some(0))
        });
        let mut sound = self.sound;
        sound.sent_ms = asking.sent_ms;
        let total_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let outcome = Outcome {
            // What was heard and not used has answered nothing.
            answered_by: Some(match self.sound.revised {
                0 => Side::Local,
                _ => Side::Cloud,
            }),
            wanted,
            over: self.over,
            target,
            fates: self.fates,
            cost: asking.cost,
            billed: asking.billed,
            attempts: asking.attempts,
            ..Outcome::here(
                match (self.answered, wanted) {
                    (Some(_), Some(wanted)) => wanted,
                    _ => prevented,
                },
                total_ms,
            )
        };
        let target = target
            .and_then(|at| self.offers.get(at))
            .map(|offer| offer.target.clone());
        let request = Request {
            offers: self.offers,
            named: false,
            local_able: true,
            local_tools: false,
            streamed: false,
            prompt_confidence: None,
        };
        let replaced = asking.redactor.replaced().iter();
        let circumstances = Circumstances {
            seconds: unix_seconds(),
            classes: vec![Class::Audio],
            claim: asking.claim,
            sound: Some(sound),
            tries: asking.tries,
            redactions: replaced.map(|(kind, n)| (kind.name().to_owned(), *n)).collect(),
            ..Circumstances::default()
        };
        let mut notes = asking.notes;
        let record = Record::new(&request, None, &outcome, circumstances);
        if let Err(error) = router.log.add(&record) {
            notes.push(error.to_string());
        }
        Reheard {
            transcript,
            revisions: self.revisions,
            sound,
            answered: Answered {
                target,
                notes,
                ..Answered::here(outcome)
            },
        }
    }
}

/// The most that one try of each of the pieces may cost.
fn most(remote: &Remote, pieces: &[Piece]) -> Pico {
    let costs = pieces
        .iter()
        .map(|piece| remote.sound_cost(piece.to_ms - piece.from_ms));
    costs.fold(Pico::ZERO, Pico::plus)
}

/// What stands for values that were replaced in the hints, and puts them back.
fn redactor(router: &Router) -> Redactor {
    Redactor::new(router.policy.redaction.clone())
}
