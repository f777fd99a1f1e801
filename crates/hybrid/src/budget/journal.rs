//! The operations on a budget: each takes the lock, reads what is new, appends one record and syncs it.

use super::ledger::{Ledger, digest};
use super::record::{BYTES, Record, Reserved};
use super::storage::Storage;
use super::{Ask, Caps, History, Reservation, Spent};
use crate::error::{Error, Result};
use crate::money::Pico;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A file with more records than this, and more than twice those that it needs, is compacted.
const COMPACT_RECORDS: u64 = 4096;

/// A budget shared through its storage.
#[derive(Clone, Debug)]
pub struct Journal<S> {
    pub(super) storage: S,
    /// What was read up to `read` bytes of the file with `generation`; generation 0 is none yet.
    ledger: Ledger,
    pub(super) generation: u64,
    read: u64,
    pub(super) compact_records: u64,
    /// Records of the file after its last compaction.
    needed_records: u64,
}

impl<S: Storage> Journal<S> {
    /// The budget in `storage`. Nothing is read or written yet.
    pub fn new(storage: S) -> Journal<S> {
        Journal {
            storage,
            ledger: Ledger::default(),
            generation: 0,
            read: 0,
            compact_records: COMPACT_RECORDS,
            needed_records: 0,
        }
    }

    /// Reserves an amount, at `now` seconds since 1970. It may be sent once this has returned, not before.
    ///
    /// # Errors
    /// [`crate::ErrorKind::OverCap`] naming the budget that has no room; [`crate::ErrorKind::Damaged`] where the file holds
    /// other bytes than were written, apart from an unfinished record at its end; [`crate::ErrorKind::Busy`]; file errors.
    /// After an error nothing may be sent, though the amount may count as spent.
    pub fn reserve(&mut self, ask: &Ask<'_>, caps: &Caps, now: u64) -> Result<Reservation> {
        let held = self.storage.lock()?;
        self.catch_up()?;
        self.create()?;
        let reserved = self.ledger.reserve(ask, caps, now)?;
        self.append(Record::Reserve(reserved))?;
        self.compact_if_long();
        drop(held);
        let Reserved {
            id, amount, seconds, ..
        } = reserved;
        Ok(Reservation { id, amount, seconds })
    }

    /// Replaces what was reserved by what it cost. Zero is for what was never sent. Without a bill, do not settle: then what
    /// was reserved stays spent.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Settled`] where that was done before, or the reservation is too old; otherwise as
    /// [`Journal::reserve`]. After an error what was reserved stays spent, or what it cost is.
    pub fn settle(&mut self, reservation: &Reservation, cost: Pico, now: u64) -> Result<()> {
        let held = self.storage.lock()?;
        self.catch_up()?;
        let id = reservation.id;
        let ours = |r: &&Reserved| (r.amount, r.seconds) == (reservation.amount, reservation.seconds);
        if self.ledger.open(id).filter(ours).is_none() {
            return Err(Error::Settled(*reservation));
        }
        let seconds = self.ledger.seconds.max(now);
        self.append(Record::Settle {
            id,
            seconds,
            amount: cost,
        })?;
        self.compact_if_long();
        drop(held);
        Ok(())
    }

    /// What is spent or reserved now, by a session and a user too.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn spent(&mut self, session: &str, user: &str, now: u64) -> Result<Spent> {
        let held = self.storage.lock()?;
        self.catch_up()?;
        drop(held);
        Ok(self.ledger.spent(digest(session), digest(user), now))
    }

    /// What was spent or reserved over time, as far back as the file tells.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn history(&mut self) -> Result<History> {
        let held = self.storage.lock()?;
        self.catch_up()?;
        drop(held);
        Ok(self.ledger.history())
    }

    /// Writes the file anew with what still matters.
    ///
    /// # Errors
    /// As [`Journal::reserve`]; the old file is there then, or the new one whole.
    pub fn compact(&mut self) -> Result<()> {
        let held = self.storage.lock()?;
        self.catch_up()?;
        self.rewrite()?;
        drop(held);
        Ok(())
    }

    /// Reads what others have appended, or everything where the file is another one.
    fn catch_up(&mut self) -> Result<()> {
        let Some(length) = self.storage.length()? else {
            self.ledger = Ledger::default();
            (self.generation, self.read) = (0, 0);
            return Ok(());
        };
        let header = self.storage.read(0, length.min(BYTES as u64))?;
        // The file appears whole, with its header, by a rename; so a header that is cut off is damage.
        let Some((header @ Record::Header { .. }, generation)) = Record::read(&header) else {
            return Err(self.damaged("the header of a budget of version 1", 0));
        };
        if generation != self.generation || length < self.read {
            self.ledger = Ledger::default();
            self.ledger.apply(header);
            (self.generation, self.read) = (generation, BYTES as u64);
            self.needed_records = 0;
        }
        let bytes = self.storage.read(self.read, length)?;
        let mut valid = bytes.chunks(BYTES).map(|chunk| {
            let ours = |(record, generation): (Record, u64)| (generation == self.generation).then_some(record);
            Record::read(chunk)
                .and_then(ours)
                .filter(|record| !matches!(record, Record::Header { .. }))
        });
        let mut records = Vec::new();
        while let Some(Some(record)) = valid.next() {
            records.push(record);
        }
        // Of what was being written when a process ended there may be a part. Nothing can have been sent for it. Where a
        // record follows, it was no part, and money may have been spent.
        let part = valid.any(|record| record.is_some());
        let end = self.read + (records.len() * BYTES) as u64;
        if part {
            return Err(self.damaged("a record", end));
        }
        for record in records {
            self.ledger.apply(record);
        }
        self.read = end;
        Ok(())
    }

    fn damaged(&self, expected: &'static str, offset: u64) -> Error {
        let path = self.storage.path().to_owned();
        Error::Damaged { path, expected, offset }
    }

    /// Makes the file where there is none.
    fn create(&mut self) -> Result<()> {
        if self.generation == 0 {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Appends a record behind what was read, and takes it in once it is synced.
    fn append(&mut self, record: Record) -> Result<()> {
        if self.storage.length()? != Some(self.read) {
            self.storage.truncate(self.read)?;
        }
        let bytes = record.bytes(self.generation);
        if let Err(error) = self.storage.append(&bytes).and_then(|()| self.storage.sync()) {
            // What is there of the record should go away. Where it stays and is whole, it counts.
            let _ = self.storage.truncate(self.read);
            return Err(error);
        }
        self.ledger.apply(record);
        self.read += BYTES as u64;
        Ok(())
    }

    /// A file that cannot be written anew goes on as it is.
    fn compact_if_long(&mut self) {
        let records = self.read / BYTES as u64;
        if records > self.compact_records.max(2 * self.needed_records) {
            let _ = self.rewrite();
        }
    }

    fn rewrite(&mut self) -> Result<()> {
        let generation = match self.generation {
            // A file that somebody removed and another process made again is not taken for the one that was read.
            0 => RandomState::new().build_hasher().finish() >> 1 | 1,
            old => old.wrapping_add(1).max(1),
        };
        let records = self.ledger.records();
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.bytes(generation)).collect();
        self.storage.replace(&bytes)?;
        self.ledger = Ledger::default();
        for record in &records {
            self.ledger.apply(*record);
        }
        self.generation = generation;
        self.read = bytes.len() as u64;
        self.needed_records = records.len() as u64;
        Ok(())
    }

    /// What distinguishes this journal's memory from another's, for tests that count states.
    #[cfg(test)]
    pub(super) fn seen(&self) -> impl std::hash::Hash + use<S> {
        (format!("{:?}", self.ledger), self.read, self.needed_records)
    }
}
