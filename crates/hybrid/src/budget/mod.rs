//! Budgets that are never exceeded: whoever wants to send reserves the worst case first, on disk.
//!
//! ```text
//! reserve(worst case) ── append, fsync ──► send ──► settle(true cost) ── append, fsync
//! ```
//!
//! What is reserved counts as spent until it is settled, and stays so if it never is: after a crash, a lost answer or an
//! answer without a bill. So the true bill is at most what is spent, and that is at most the cap, as long as no bill exceeds
//! its reservation. Whoever settles one that does says what of it is believed; that is recorded as it is.
//!
//! Several processes share a folder. Each operation holds one lock, reads what others have appended, appends one record
//! and syncs it. Days and months are those of UTC, by the latest time that anybody has recorded: a clock set back reopens
//! nothing. (One set forward opens the later day early, and that day then lasts until its end has come.)
//!
//! It knows nothing of what is bought. [`Storage`] is all that it asks of a disk; [`Folder`] is the real one.

mod calendar;
mod journal;
mod ledger;
#[cfg(test)]
mod model_tests;
mod record;
mod storage;
#[cfg(test)]
mod tests;

pub use calendar::{date_of, day_of, month_of};
pub use journal::Journal;
pub use storage::{Folder, Storage};

use crate::money::Pico;
use std::fmt;

/// What a budget is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// One request, with all that is tried for it.
    Request,
    /// One conversation. (What was idle for a year begins again.)
    Session,
    /// A day of UTC, everybody's requests together.
    Day,
    /// A month of UTC, everybody's requests together.
    Month,
    /// One user in a month of UTC.
    User,
}

impl Scope {
    /// The word for it in policy files and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scope::Request => "request",
            Scope::Session => "session",
            Scope::Day => "day",
            Scope::Month => "month",
            Scope::User => "user",
        }
    }
}

/// The most that may be spent; `None` means that this scope sets no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// By one request, with all that is tried for it.
    pub request: Option<Pico>,
    /// By one session.
    pub session: Option<Pico>,
    /// In one day of UTC.
    pub day: Option<Pico>,
    /// In one month of UTC.
    pub month: Option<Pico>,
    /// By one user in one month of UTC.
    pub user: Option<Pico>,
}

impl Default for Caps {
    /// One cent a request, one dollar a day.
    fn default() -> Caps {
        Caps {
            request: Some(Pico(10_000_000_000)),
            session: None,
            day: Some(Pico(1_000_000_000_000)),
            month: None,
            user: None,
        }
    }
}

/// What somebody wants to send.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What it costs at most ([`crate::money::Price::worst_case`]).
    pub amount: Pico,
    /// What earlier tries of the same request have reserved or cost.
    pub request_so_far: Pico,
    /// The conversation's name. Files hold a digest of it.
    pub session: &'a str,
    /// The user's name; empty where there is but one. Files hold a digest of it.
    pub user: &'a str,
}

/// The right to spend, once, at most `amount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its number in this budget.
    pub id: u64,
    /// The most that it may cost.
    pub amount: Pico,
    /// When it was made, in seconds since 1970 by the budget's clock.
    pub seconds: u64,
}

/// Which budget has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCap {
    /// The budget.
    pub scope: Scope,
    /// Its limit.
    pub cap: Pico,
    /// What is spent or reserved of it.
    pub spent: Pico,
    /// What was asked for.
    pub asked: Pico,
}

impl fmt::Display for OverCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverCap {
            scope,
            cap,
            spent,
            asked,
        } = self;
        if *cap == Pico::ZERO {
            return write!(
                f,
                "the budget of this {} is {cap}, so only what costs nothing is asked; the request may cost {asked}",
                scope.name()
            );
        }
        write!(
            f,
            "the budget of this {} is {cap}, of which {spent} is spent or reserved; the request may cost {asked}",
            scope.name()
        )
    }
}

impl std::error::Error for OverCap {}

/// What is spent or reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// By the session asked about.
    pub session: Pico,
    /// On the budget's day.
    pub day: Pico,
    /// In the budget's month.
    pub month: Pico,
    /// By the user asked about, in the budget's month.
    pub user: Pico,
    /// Reservations that are not settled.
    pub open: usize,
    /// The budget's clock, in seconds since 1970.
    pub seconds: u64,
}

/// What was spent or reserved over time, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Days since 1970-01-01; the last two months at least.
    pub days: Vec<(u64, Pico)>,
    /// Months since January 1970; the last two years at least.
    pub months: Vec<(u64, Pico)>,
}
