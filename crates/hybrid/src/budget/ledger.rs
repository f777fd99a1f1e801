//! What the records of a journal add up to.

use super::calendar::{day_of, month_of};
use super::record::{Record, Reserved, Sum};
use super::{Ask, Caps, History, OverCap, Scope, Spent};
use crate::money::Pico;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Days and months that a compacted file still tells of, for people who look back.
const KEPT_DAYS: u64 = 62;
const KEPT_MONTHS: u64 = 24;
/// A session that was idle for so long is forgotten.
const SESSION_SECONDS: u64 = 366 * 86_400;
/// An answer that takes longer than this can no longer be settled after a compaction: it stays spent as it was reserved.
const OPEN_SECONDS: u64 = 2 * 86_400;

/// Sums of everything spent or reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) next: u64,
    /// The latest time that anybody has recorded.
    pub(super) seconds: u64,
    open: BTreeMap<u64, Reserved>,
    days: BTreeMap<u64, Pico>,
    months: BTreeMap<u64, Pico>,
    users: BTreeMap<(u64, u64), Pico>,
    /// With the time of the last reservation.
    sessions: BTreeMap<u64, (Pico, u64)>,
}

/// The number by which files know a name.
pub(super) fn digest(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Ledger {
    /// Takes a record in.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Header { next, seconds } => {
                *self = Ledger {
                    next,
                    seconds,
                    ..Ledger::default()
                };
            }
            Record::Reserve(reserved) => {
                self.next = self.next.max(reserved.id.saturating_add(1));
                self.seconds = self.seconds.max(reserved.seconds);
                // A second one with the same id is not written by this program; both count then.
                self.add(&reserved, Pico::ZERO, reserved.amount);
                self.open.insert(reserved.id, reserved);
            }
            Record::Settle { id, seconds, amount } => {
                self.seconds = self.seconds.max(seconds);
                if let Some(reserved) = self.open.remove(&id) {
                    self.add(&reserved, reserved.amount, amount);
                }
            }
            Record::Total { sum, seconds, amount } => {
                let place = match sum {
                    Sum::Session(session) => {
                        let (place, last) = self.sessions.entry(session).or_default();
                        *last = seconds;
                        place
                    }
                    Sum::Day(day) => self.days.entry(day).or_default(),
                    Sum::Month(month) => self.months.entry(month).or_default(),
                    Sum::User { user, month } => self.users.entry((user, month)).or_default(),
                };
                *place = place.plus(amount);
            }
        }
    }

    /// Replaces `before` by `after` in each sum that the reservation belongs to.
    fn add(&mut self, reserved: &Reserved, before: Pico, after: Pico) {
        let month = month_of(reserved.seconds);
        let (session, last) = self.sessions.entry(reserved.session).or_default();
        *last = (*last).max(reserved.seconds);
        let places = [
            session,
            self.days.entry(day_of(reserved.seconds)).or_default(),
            self.months.entry(month).or_default(),
            self.users.entry((reserved.user, month)).or_default(),
        ];
        for place in places {
            *place = place.minus(before).plus(after);
        }
    }

    /// The reservation that records may be appended for, unless a budget has no room.
    pub(super) fn reserve(&self, ask: &Ask<'_>, caps: &Caps, now: u64) -> Result<Reserved, OverCap> {
        let seconds = self.seconds.max(now);
        let (session, user) = (digest(ask.session), digest(ask.user));
        let spent = self.spent(session, user, seconds);
        for (scope, cap, spent) in [
            (Scope::Request, caps.request, ask.request_so_far),
            (Scope::Session, caps.session, spent.session),
            (Scope::Day, caps.day, spent.day),
            (Scope::Month, caps.month, spent.month),
            (Scope::User, caps.user, spent.user),
        ] {
            // Exactly, as sums stop at the largest amount.
            let total = u128::from(spent.0) + u128::from(ask.amount.0);
            if let Some(cap) = cap.filter(|cap| total > u128::from(cap.0)) {
                let asked = ask.amount;
                return Err(OverCap {
                    scope,
                    cap,
                    spent,
                    asked,
                });
            }
        }
        Ok(Reserved {
            id: self.next,
            seconds,
            amount: ask.amount,
            session,
            user,
        })
    }

    pub(super) fn open(&self, id: u64) -> Option<&Reserved> {
        self.open.get(&id)
    }

    pub(super) fn spent(&self, session: u64, user: u64, now: u64) -> Spent {
        let seconds = self.seconds.max(now);
        let (day, month) = (day_of(seconds), month_of(seconds));
        Spent {
            session: self.sessions.get(&session).map_or(Pico::ZERO, |(amount, _)| *amount),
            day: self.days.get(&day).copied().unwrap_or_default(),
            month: self.months.get(&month).copied().unwrap_or_default(),
            user: self.users.get(&(user, month)).copied().unwrap_or_default(),
            open: self.open.len(),
            seconds,
        }
    }

    pub(super) fn history(&self) -> History {
        let list = |sums: &BTreeMap<u64, Pico>| sums.iter().map(|(k, v)| (*k, *v)).collect();
        History {
            days: list(&self.days),
            months: list(&self.months),
        }
    }

    /// Records of a file that says the same in fewer bytes: sums without the reservations that may still be settled, and
    /// those.
    pub(super) fn records(&self) -> Vec<Record> {
        let now = self.seconds;
        let mut rest = self.clone();
        let still_open = |r: &&Reserved| r.seconds.saturating_add(OPEN_SECONDS) > now;
        let open: Vec<Reserved> = self.open.values().filter(still_open).copied().collect();
        for reserved in &open {
            rest.add(reserved, reserved.amount, Pico::ZERO);
        }
        let total = |sum, amount, seconds| Record::Total { sum, seconds, amount };
        let mut records = vec![Record::Header {
            next: self.next,
            seconds: now,
        }];
        let sessions = rest
            .sessions
            .iter()
            .filter(|(_, (_, last))| last.saturating_add(SESSION_SECONDS) > now);
        records.extend(sessions.map(|(id, (amount, last))| total(Sum::Session(*id), *amount, *last)));
        let days = rest
            .days
            .iter()
            .filter(|(day, _)| day.saturating_add(KEPT_DAYS) > day_of(now));
        records.extend(days.map(|(day, amount)| total(Sum::Day(*day), *amount, 0)));
        let months = rest
            .months
            .iter()
            .filter(|(month, _)| month.saturating_add(KEPT_MONTHS) > month_of(now));
        records.extend(months.map(|(month, amount)| total(Sum::Month(*month), *amount, 0)));
        let users = rest
            .users
            .iter()
            .filter(|((_, month), _)| month.saturating_add(KEPT_MONTHS) > month_of(now));
        records.extend(users.map(|((user, month), amount)| {
            let sum = Sum::User {
                user: *user,
                month: *month,
            };
            total(sum, *amount, 0)
        }));
        records.extend(open.into_iter().map(Record::Reserve));
        records
    }
}
