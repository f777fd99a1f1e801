//! Connections that wait for the next call, so that it need not connect and shake hands again. The name is looked up all the same,
//! so that one that has come to mean a public address is noticed.
//!
//! Shutting an agent of the library down is what interrupts a call, and ends all calls of that agent. So every call under way has an
//! agent of its own. One whose answer was read to its end waits here, with its connection; any other goes with it.

use crate::names::LookUp;
use crate::{Deadlines, Target};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Agent;

/// How long a connection waits. Servers close theirs after 5 seconds and more, which is noticed before one is used again.
pub(crate) const WAIT: Duration = Duration::from_secs(20);
/// How many wait at once.
const MOST: usize = 8;

/// The connections that wait; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warm(Arc<Mutex<Vec<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    made_for: Purpose,
    agent: Agent,
    since: Instant,
}

/// What an agent was made for: it serves nothing else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Purpose {
    is_plain: bool,
    authority: String,
    deadlines: Deadlines,
    authorities: Option<Vec<u8>>,
    look_up: LookUp,
}

impl Purpose {
    pub(crate) fn new(
        target: &Target,
        deadlines: Deadlines,
        authorities: Option<&Vec<u8>>,
        look_up: &LookUp,
    ) -> Purpose {
        Purpose {
            is_plain: target.base.is_plain(),
            authority: target.base.authority().to_owned(),
            deadlines,
            authorities: authorities.cloned(),
            look_up: look_up.clone(),
        }
    }
}

impl Warm {
    /// An agent that waits, the one that waits least.
    pub(crate) fn take(&self, purpose: &Purpose) -> Option<Agent> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.since.elapsed() < WAIT);
        let found = waiting.iter().rposition(|one| one.made_for == *purpose)?;
        Some(waiting.remove(found).agent)
    }

    /// Lets an agent wait whose call is over, its answer read to the end.
    pub(crate) fn give(&self, made_for: Purpose, agent: Agent) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.since.elapsed() < WAIT);
        if waiting.len() == MOST {
            waiting.remove(0);
        }
        let since = Instant::now();
        waiting.push(Waiting { made_for, agent, since });
    }
}
