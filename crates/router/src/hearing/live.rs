//! Phrases of live speech: a target hears the doubtful ones again while listening goes on.
//!
//! Whoever listens hands over what is final here, and never waits: phrases are heard again one after the other on a thread of their own,
//! and what becomes of them is fetched when it is there. Few may wait; others stay as they are.

use super::{Permission, Recording, Revision, Stop, sound};
use crate::answered::Answered;
use crate::error::{Error, Result};
use crate::router::Router;
use crate::running::Question;
use cactus_hybrid::policy::Handoff;
use cactus_hybrid::record::Sound;
use cactus_hybrid::transcript::doubt;
use cactus_speech::{Segment, Transcript};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Phrases that may wait for a target, each with its sound.
const WAITING: usize = 8;

/// A phrase of live speech whose text is final on this machine, with times of words.
#[derive(Clone, Debug)]
pub struct Phrase {
    /// Its text.
    pub segment: Segment,
    /// Code of its language, where the model tells one from others.
    pub language: Option<String>,
    /// Its sound, from [`Segment::window_s`] on: mono, from -1 to 1.
    pub samples: Vec<f32>,
    /// So many of them a second.
    pub rate_hz: u32,
}

/// A phrase after it was heard again.
#[derive(Debug)]
pub struct Amended {
    /// Its final text, under the same id; as it was where nothing of a target's is in it.
    pub segment: Segment,
    /// Code of its language.
    pub language: Option<String>,
    /// What became of it.
    pub revision: Revision,
    /// What was heard again.
    pub sound: Sound,
    /// Who answered, why, and for how much.
    pub answered: Answered,
}

/// What becomes of a phrase that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It stays as it is: nobody doubts it, or nothing is handed off.
    Sure,
    /// It will be heard again.
    Taken,
    /// It stays as it is, as too many wait already, or nobody hears any more.
    Full,
}

/// Who is to hear, and on whose account.
#[derive(Clone, Debug, Default)]
pub struct Hearers {
    /// This target, and no other.
    pub target: Option<String>,
    /// Text that shows how names are spelled. It leaves only where the policy lets text leave.
    pub hints: String,
    /// Names the conversation to the budget.
    pub session: String,
    /// Names the user to the budget; empty where there is but one.
    pub user: String,
}

/// Live speech of which doubtful phrases are heard again. Whoever drops it stops that.
#[derive(Debug)]
pub struct LiveHearing {
    router: Arc<Router>,
    phrases: SyncSender<(Phrase, Instant)>,
    /// Locked, so that it may be seen from any thread.
    amended: Mutex<Receiver<Amended>>,
    /// Phrases that were taken and have not come back.
    waiting: usize,
    stop: Stop,
}

impl LiveHearing {
    /// Begins to wait for phrases. `person` is asked on the thread that hears, where the policy says so.
    ///
    /// # Errors
    /// [`crate::Error::Target`] for a name that the policy does not have, or a key that is not there; where there can be no thread.
    pub fn start(
        router: Arc<Router>,
        hearers: Hearers,
        person: impl FnMut(&Question) -> Permission + Send + 'static,
    ) -> Result<LiveHearing> {
        if let Some(name) = &hearers.target {
            router.check(name)?;
        }
        let (phrases, taken) = sync_channel(WAITING);
        let (sender, amended) = channel();
        let stop = Stop::default();
        let worker = Worker {
            router: Arc::clone(&router),
            hearers,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("cactus-hearing".to_owned());
        let spawned = thread.spawn(move || worker.run(&taken, &sender, person));
        spawned.map_err(|e| Error::File(format!("cannot start a thread that lets targets hear: {e}")))?;
        Ok(LiveHearing {
            router,
            phrases,
            amended: Mutex::new(amended),
            waiting: 0,
            stop,
        })
    }

    /// Hands a phrase over, as soon as it was shown. Does not wait.
    pub fn offer(&mut self, phrase: Phrase) -> Offered {
        let policy = &self.router.policy;
        let segment = sound::segment(&phrase.segment);
        let wanted = match policy.handoff {
            Handoff::Never => false,
            Handoff::Always => true,
            Handoff::Auto => doubt(&segment, &policy.transcription).is_some(),
        };
        if !wanted || phrase.segment.words.is_empty() {
            return Offered::Sure;
        }
        match self.phrases.try_send((phrase, Instant::now())) {
            Ok(()) => {
                self.waiting += 1;
                Offered::Taken
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Offered::Full,
        }
    }

    /// The next phrase that was heard again, waiting for it at most so long; `None` where none came.
    pub fn next(&mut self, most: Duration) -> Option<Amended> {
        if self.waiting == 0 {
            return None;
        }
        let amended = self.amended.get_mut().unwrap_or_else(PoisonError::into_inner);
        match amended.recv_timeout(most) {
            Ok(amended) => {
                self.waiting -= 1;
                Some(amended)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.waiting = 0;
                None
            }
        }
    }

    /// Phrases that were taken and have not come back.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

impl Drop for LiveHearing {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

struct Worker {
    router: Arc<Router>,
    hearers: Hearers,
    stop: Stop,
}

impl Worker {
    fn run(
        &self,
        phrases: &Receiver<(Phrase, Instant)>,
        amended: &Sender<Amended>,
        mut person: impl FnMut(&Question) -> Permission,
    ) {
        while let Ok((phrase, shown)) = phrases.recv() {
            if self.stop.is_stopped() {
                return;
            }
            // The target was there when this began.
            let Ok(heard) = self.hear(phrase, shown, &mut person) else {
                return;
            };
            if amended.send(heard).is_err() {
                return;
            }
        }
    }

    fn hear(&self, phrase: Phrase, shown: Instant, person: &mut dyn FnMut(&Question) -> Permission) -> Result<Amended> {
        let begin_s = phrase.segment.window_s;
        let transcript = Transcript {
            language: phrase.language.clone(),
            duration_s: phrase.samples.len() as f64 / f64::from(phrase.rate_hz.max(1)),
            segments: vec![moved(phrase.segment.clone(), -begin_s)],
        };
        let recording = Recording {
            samples: &phrase.samples,
            rate_hz: phrase.rate_hz,
            transcript: &transcript,
            shown: Some(shown),
            hints: &self.hearers.hints,
            target: self.hearers.target.as_deref(),
            session: &self.hearers.session,
            user: &self.hearers.user,
        };
        let heard = self.router.hear_again(&recording, person, &self.stop)?;
        let revision = heard.revisions.into_iter().next().unwrap_or_default();
        let segment = heard.transcript.segments.into_iter().next();
        let segment = segment.filter(|_| revision.revision > 0);
        Ok(Amended {
            segment: segment.map_or(phrase.segment, |segment| moved(segment, begin_s)),
            language: phrase.language,
            revision,
            sound: heard.sound,
            answered: heard.answered,
        })
    }
}

/// A segment with other times.
fn moved(mut segment: Segment, by_s: f64) -> Segment {
    for word in &mut segment.words {
        word.start_s += by_s;
        word.end_s += by_s;
    }
    Segment {
        start_s: segment.start_s + by_s,
        end_s: segment.end_s + by_s,
        ..segment
    }
}
