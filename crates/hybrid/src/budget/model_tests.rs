//! The journal against a model of processes, disks and power: what was billed is at most what is spent, and that at most the
//! cap, whatever ends when.
//!
//! All that processes share is in the storage, and the model's storage refuses to be touched without the lock. So a process's
//! steps within one operation cannot meet another's, and it is enough to interleave whole operations, broken off at each
//! step.

use super::{Ask, Caps, Journal, Reservation, Storage, day_of};
use crate::error::{Error, ErrorKind, Result};
use crate::money::Pico;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// What is on the disk, for running processes and after a power cut.
#[derive(Clone, Debug, Default, Hash)]
struct Disk {
    file: Option<Vec<u8>>,
    /// What the file may be after a power cut, by its name: what was synced of it, of older ones first.
    synced: Vec<Option<Vec<u8>>>,
    locked: bool,
}

/// How an operation is broken off.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Break {
    /// The process ends, after so many bytes where it appends.
    Kill(usize),
    /// The disk is full from here on, after so many bytes.
    Full(usize),
    /// It says that it failed, but was done.
    Lie,
}

#[derive(Clone, Debug)]
struct Handle {
    disk: Rc<RefCell<Disk>>,
    steps: usize,
    fault: Option<(usize, Break)>,
    dead: bool,
    full: bool,
}

impl Handle {
    fn on(disk: &Rc<RefCell<Disk>>) -> Handle {
        Handle {
            disk: Rc::clone(disk),
            steps: 0,
            fault: None,
            dead: false,
            full: false,
        }
    }

    /// Counts a step. `Some(bytes)` if it fails after so many; the error to give then is [`failed`]'s.
    fn step(&mut self, locked: bool, writes: bool) -> Option<usize> {
        assert!(!locked || self.disk.borrow().locked, "touched without the lock");
        let step = self.steps;
        self.steps += 1;
        let fault = self.fault.filter(|(at, _)| *at == step).map(|(_, fault)| fault);
        match fault {
            _ if self.dead => Some(0),
            Some(Break::Kill(bytes)) => {
                self.dead = true;
                Some(bytes)
            }
            Some(Break::Full(bytes)) if writes => {
                self.full = true;
                Some(bytes)
            }
            Some(Break::Lie) if writes => Some(usize::MAX),
            _ => (self.full && writes).then_some(0),
        }
    }
}

fn failed() -> Error {
    Error::io("write", Path::new("model"), io::ErrorKind::StorageFull.into())
}

struct Held(Rc<RefCell<Disk>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.borrow_mut().locked = false;
    }
}

impl Storage for Handle {
    type Held = Held;

    fn lock(&mut self) -> Result<Held> {
        if self.step(false, false).is_some() {
            return Err(failed());
        }
        let mut disk = self.disk.borrow_mut();
        assert!(!disk.locked);
        disk.locked = true;
        Ok(Held(Rc::clone(&self.disk)))
    }

    fn length(&mut self) -> Result<Option<u64>> {
        match self.step(true, false) {
            Some(_) => Err(failed()),
            None => Ok(self.disk.borrow().file.as_ref().map(|f| f.len() as u64)),
        }
    }

    fn read(&mut self, start: u64, end: u64) -> Result<Vec<u8>> {
        match self.step(true, false) {
            Some(_) => Err(failed()),
            None => Ok(self.disk.borrow().file.as_ref().unwrap()[start as usize..end as usize].to_vec()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let broken = self.step(true, true);
        let written = broken.unwrap_or(bytes.len()).min(bytes.len());
        self.disk.borrow_mut().file.as_mut().unwrap().extend(&bytes[..written]);
        broken.map_or(Ok(()), |_| Err(failed()))
    }

    fn sync(&mut self) -> Result<()> {
        let broken = self.step(true, true);
        if broken.is_none_or(|bytes| bytes == usize::MAX) {
            let mut disk = self.disk.borrow_mut();
            disk.synced = vec![disk.file.clone()];
        }
        broken.map_or(Ok(()), |_| Err(failed()))
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        // A full disk still cuts.
        let broken = self.step(true, false);
        if broken.is_none() {
            self.disk.borrow_mut().file.as_mut().unwrap().truncate(length as usize);
        }
        broken.map_or(Ok(()), |_| Err(failed()))
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<()> {
        // The new file is written and synced under another name.
        if self.step(true, true).is_some() {
            return Err(failed());
        }
        let broken = self.step(true, true);
        if broken.is_none_or(|bytes| bytes == usize::MAX) {
            // Renamed, but the folder is not synced.
            let mut disk = self.disk.borrow_mut();
            disk.file = Some(bytes.to_vec());
            disk.synced.push(Some(bytes.to_vec()));
        }
        if broken.is_some() {
            return Err(failed());
        }
        self.sync()
    }

    fn path(&self) -> &Path {
        Path::new("model")
    }
}

impl Disk {
    /// Each file that may be there after a power cut.
    fn after_power_cut(&self) -> Vec<Option<Vec<u8>>> {
        let mut files = self.synced.clone();
        if self.synced.is_empty() {
            files.push(None);
        }
        let (Some(file), Some(Some(synced))) = (&self.file, self.synced.last()) else {
            return files;
        };
        let same = file.iter().zip(synced).take_while(|(a, b)| a == b).count();
        let lengths = [same, same + 1, same + 32, file.len().saturating_sub(1), file.len()];
        for length in lengths.into_iter().filter(|l| (same..=file.len()).contains(l)) {
            files.push(Some(file[..length].to_vec()));
        }
        // Long enough, but the bytes never came.
        let mut zeros = file[..same].to_vec();
        zeros.resize(file.len(), 0);
        files.push(Some(zeros));
        files
    }

    fn restarted(file: Option<Vec<u8>>) -> Disk {
        Disk {
            synced: vec![file.clone()],
            file,
            locked: false,
        }
    }
}

const CAP: Pico = Pico(10);
const AMOUNT: Pico = Pico(4);
const NOW: u64 = 1_000_000_000;

fn caps() -> Caps {
    Caps {
        request: None,
        session: None,
        day: Some(CAP),
        month: None,
        user: None,
    }
}

/// What a process does next for its request.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Next {
    Reserve,
    Send(u64),
    Settle(u64),
}

#[derive(Clone)]
struct Process {
    journal: Journal<Handle>,
    next: Next,
    reservation: Option<Reservation>,
    requests: usize,
}

impl Process {
    fn on(disk: &Rc<RefCell<Disk>>, requests: usize) -> Process {
        let mut journal = Journal::new(Handle::on(disk));
        journal.compact_records = 4;
        Process {
            journal,
            next: Next::Reserve,
            reservation: None,
            requests,
        }
    }
}

/// Two processes and what was billed to them.
struct World {
    disk: Rc<RefCell<Disk>>,
    processes: Vec<Process>,
    billed: u64,
    /// How many operations may still be broken off.
    faults: usize,
}

impl Clone for World {
    fn clone(&self) -> World {
        let disk = Rc::new(RefCell::new(self.disk.borrow().clone()));
        let mut processes = self.processes.clone();
        for process in &mut processes {
            process.journal.storage.disk = Rc::clone(&disk);
        }
        World {
            disk,
            processes,
            billed: self.billed,
            faults: self.faults,
        }
    }
}

impl World {
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // Generations are random, and are in each record.
        let generation_free = |file: &Option<Vec<u8>>| -> Vec<Option<super::record::Record>> {
            let records = file.iter().flat_map(|f| f.chunks(64));
            records
                .map(|c| super::record::Record::read(c).map(|(record, _)| record))
                .collect()
        };
        let disk = self.disk.borrow();
        format!("{:?}", generation_free(&disk.file)).hash(&mut hasher);
        for file in &disk.synced {
            format!("{:?}", generation_free(file)).hash(&mut hasher);
        }
        (disk.file.as_ref().map(Vec::len), self.billed, self.faults).hash(&mut hasher);
        for process in &self.processes {
            (process.next, process.requests, process.reservation.map(|r| r.id)).hash(&mut hasher);
            let header = disk.file.as_ref().and_then(|f| super::record::Record::read(&f[..64]));
            let current = header.map(|(_, generation)| generation) == Some(process.journal.generation);
            (current, process.journal.seen()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn check(&self) {
        let disk = Rc::new(RefCell::new(self.disk.borrow().clone()));
        let spent = Journal::new(Handle::on(&disk)).spent("", "", NOW).unwrap().day;
        assert!(self.billed <= spent.0, "billed {} of {spent:?}", self.billed);
        assert!(spent <= CAP, "{spent:?}");
    }

    /// One operation of a process. Says how many steps it had, or nothing where there is none left.
    fn go(&mut self, which: usize, fault: Option<(usize, Break)>) -> Option<usize> {
        let process = &mut self.processes[which];
        if process.requests == 0 {
            return None;
        }
        let storage = &mut process.journal.storage;
        (storage.steps, storage.fault, storage.full) = (0, fault, false);
        let done = match process.next {
            Next::Send(bill) => {
                self.billed += bill;
                process.next = Next::Settle(bill);
                return Some(0);
            }
            Next::Reserve => {
                let ask = Ask {
                    amount: AMOUNT,
                    request_so_far: Pico::ZERO,
                    session: "s",
                    user: "",
                };
                match process.journal.reserve(&ask, &caps(), NOW) {
                    Ok(reservation) => {
                        process.reservation = Some(reservation);
                        process.next = Next::Send(AMOUNT.0 / (1 + which as u64));
                        false
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::OverCap), "{error}");
                        true
                    }
                }
            }
            Next::Settle(bill) => {
                let _ = process.journal.settle(&process.reservation.unwrap(), Pico(bill), NOW);
                true
            }
        };
        let steps = process.journal.storage.steps;
        if process.journal.storage.dead {
            // Another program begins; nothing was sent for what was reserved.
            *process = Process::on(&self.disk, process.requests - 1);
        } else if done {
            process.requests -= 1;
            process.next = Next::Reserve;
        }
        Some(steps)
    }
}

fn explore(world: &World, seen: &mut HashSet<u64>) {
    if !seen.insert(world.digest()) {
        return;
    }
    world.check();
    for which in 0..world.processes.len() {
        let mut next = world.clone();
        let Some(steps) = next.go(which, None) else { continue };
        explore(&next, seen);
        if world.faults == 0 {
            continue;
        }
        let kills = [0, 1, 63, 64].map(Break::Kill);
        let breaks = kills
            .into_iter()
            .chain([0, 33, 64].map(Break::Full))
            .chain([Break::Lie]);
        for (step, fault) in (0..steps).flat_map(|step| breaks.clone().map(move |b| (step, b))) {
            let mut broken = world.clone();
            broken.faults -= 1;
            broken.go(which, Some((step, fault)));
            explore(&broken, seen);
            if let Break::Kill(_) = fault {
                // The power went, and took the other process with it.
                let files = broken.disk.borrow().after_power_cut();
                for file in files {
                    let mut restarted = broken.clone();
                    *restarted.disk.borrow_mut() = Disk::restarted(file);
                    for process in &mut restarted.processes {
                        let left = process.requests - usize::from(process.next != Next::Reserve);
                        *process = Process::on(&restarted.disk, left);
                    }
                    explore(&restarted, seen);
                }
            }
        }
    }
}

#[test]
fn bill_is_at_most_spent_and_spent_at_most_the_cap_in_every_interleaving_and_crash() {
    let disk = Rc::new(RefCell::new(Disk::default()));
    for (requests, faults, least) in [(3, 1, 5_000), (2, 2, 5_000)] {
        let processes = vec![Process::on(&disk, requests), Process::on(&disk, requests)];
        let world = World {
            disk: Rc::clone(&disk),
            processes,
            billed: 0,
            faults,
        };
        let mut seen = HashSet::new();
        explore(&world.clone(), &mut seen);
        assert!(seen.len() > least, "only {} states", seen.len());
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Bills by what they count for.
#[derive(Default)]
struct Bills {
    sessions: BTreeMap<&'static str, u64>,
    users: BTreeMap<&'static str, u64>,
    days: BTreeMap<u64, u64>,
}

fn schedule(random: &mut Random) {
    const SESSIONS: [&str; 2] = ["a", "b"];
    const USERS: [&str; 2] = ["u", "v"];
    let some = |n: usize| (n > 0).then_some(Pico(n as u64));
    let caps = Caps {
        request: some(random.below(20)),
        session: some(random.below(30)),
        day: Some(Pico(1 + random.below(30) as u64)),
        month: some(random.below(60)),
        user: some(random.below(40)),
    };
    let disk = Rc::new(RefCell::new(Disk::default()));
    let compact_records = 3 + random.below(8) as u64;
    let fresh = |disk: &Rc<RefCell<Disk>>| {
        let mut journal = Journal::new(Handle::on(disk));
        journal.compact_records = compact_records;
        journal
    };
    let mut journals: Vec<Journal<Handle>> = (0..3).map(|_| fresh(&disk)).collect();
    let mut open: Vec<(usize, Reservation, u64)> = Vec::new();
    let mut bills = Bills::default();
    let (mut now, mut latest) = (NOW, 0);
    for _ in 0..6 + random.below(18) {
        now = match random.below(12) {
            0 => now + 86_400,
            1 => now - 86_400,
            2 => now + 40_000,
            _ => now,
        };
        let which = random.below(3);
        let journal = &mut journals[which];
        let fault = match random.below(6) {
            0 => Some((random.below(12), Break::Kill(random.pick(&[0, 1, 40, 63, 64])))),
            1 => Some((random.below(12), Break::Full(random.pick(&[0, 5, 64])))),
            2 => Some((random.below(12), Break::Lie)),
            _ => None,
        };
        (journal.storage.steps, journal.storage.fault, journal.storage.full) = (0, fault, false);
        let mine = open.iter().position(|(owner, ..)| *owner == which);
        match mine {
            Some(at) if random.below(3) > 0 => {
                let (_, reservation, bill) = open.remove(at);
                let _ = journal.settle(&reservation, Pico(bill), now);
            }
            _ => {
                let (session, user) = (random.pick(&SESSIONS), random.pick(&USERS));
                let amount = Pico(1 + random.below(12) as u64);
                let ask = Ask {
                    amount,
                    request_so_far: Pico::ZERO,
                    session,
                    user,
                };
                match journal.reserve(&ask, &caps, now) {
                    Ok(reservation) => {
                        assert!(reservation.seconds >= latest, "a day was opened again");
                        latest = reservation.seconds;
                        let bill = random.below(amount.0 as usize + 1) as u64;
                        *bills.sessions.entry(session).or_default() += bill;
                        *bills.users.entry(user).or_default() += bill;
                        *bills.days.entry(day_of(reservation.seconds)).or_default() += bill;
                        open.push((which, reservation, bill));
                    }
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::OverCap), "{error}"),
                }
            }
        }
        let dead = journal.storage.dead;
        if dead && random.below(2) == 0 {
            let files = disk.borrow().after_power_cut();
            let file = files[random.below(files.len())].clone();
            *disk.borrow_mut() = Disk::restarted(file);
            journals = (0..3).map(|_| fresh(&disk)).collect();
            open.clear();
        } else if dead {
            journals[which] = fresh(&disk);
            open.retain(|(owner, ..)| *owner != which);
        }
    }
    let mut reader = fresh(&disk);
    // The schedules stay within a month.
    for (session, user) in SESSIONS.into_iter().zip(USERS) {
        let spent = reader.spent(session, user, 0).unwrap();
        assert!(bills.sessions.get(session).is_none_or(|bill| *bill <= spent.session.0));
        assert!(bills.users.get(user).is_none_or(|bill| *bill <= spent.user.0));
        for (cap, spent) in [
            (caps.session, spent.session),
            (caps.user, spent.user),
            (caps.month, spent.month),
        ] {
            assert!(cap.is_none_or(|cap| spent <= cap), "{spent:?} over {cap:?}");
        }
    }
    let days: BTreeMap<u64, Pico> = reader.history().unwrap().days.into_iter().collect();
    assert!(days.values().all(|spent| Some(*spent) <= caps.day), "{days:?}");
    for (day, bill) in &bills.days {
        assert!(*bill <= days.get(day).map_or(0, |spent| spent.0), "day {day}");
    }
}

#[test]
fn bill_is_at_most_spent_and_spent_at_most_the_cap_in_100_000_random_schedules() {
    let mut random = Random(20_261_122);
    for _ in 0..100_000 {
        schedule(&mut random);
    }
}
