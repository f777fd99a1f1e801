//! Resident worker threads, woken once per step of a model.
//!
//! A step (one decoded token, one prefill chunk) consists of some hundred short parallel runs. Forking and joining
//! threads for each of them costs more than the work, so the workers stay awake between the runs of a step: they spin,
//! then yield, then sleep. Each thread has a share of the parts of a run that follow one another, so that it reads memory
//! from front to back, and takes from the end of another's share when its own is used up: a worker that the system has not
//! scheduled costs its help and nothing else, as the caller waits only for parts that a worker has really claimed.
//!
//! # Protocol
//!
//! The caller writes the job to the share of each thread and then which parts it consists of (release). Whoever takes the
//! first or the last part out of a share by a compare-and-swap (acquire) owns it, and only an owner may read the job of
//! that share. A worker adds to `done` (release) what it has finished after each part. The caller returns when `done` has
//! grown by the parts that are not its own; so the job outlives every owner, and no owner exists while the next job is
//! written. A stale look at a share is harmless: what is claimed is always a part of the job current at the time of the claim.
//!
//! Lines of the cache go from one core to another in some tens to some hundreds of nanoseconds, and a run waits for four
//! of them: that of a worker's share, which it reads and then owns, and that of `done`, which it owns and the caller then
//! reads. So nothing else that changes in a run lies on lines that somebody polls.

use crate::ahead::{Ahead, Fetch};
use crate::joins::Joins;
use crate::part_range;
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Polls before an idle worker starts to yield its CPU: some tens of microseconds.
const SPIN_POLLS: u32 = 2_000;
/// Yields before an idle worker goes to sleep: about a millisecond on an idle machine.
const YIELD_POLLS: u32 = 1_500;

/// What the parts of a run execute: the part's index is the argument.
type Part<'a> = dyn Fn(usize) + Sync + 'a;

/// A fixed set of resident threads that work through the parts of runs.
///
/// Shared between sessions: the pool serves one [`Step`] at a time, and a step taken while another one is active runs
/// all its parts on the calling thread, so nothing ever waits for another session.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// A period in which the pool's workers are awake for one caller; see [`Pool::step`].
pub struct Step<'p> {
    /// `None`: everything runs on the calling thread.
    pool: Option<&'p Pool>,
    width: usize,
    /// Filled where asked for. A step belongs to one thread at a time, as concurrent runs would share one job: so this need not be `Sync`.
    joins: RefCell<Option<Joins>>,
    /// What the next run but this one will read.
    ahead: Cell<Option<Ahead>>,
}

/// Keeps a value on cache lines of its own (two, for the adjacent-line prefetcher).
#[repr(align(128))]
struct OwnLine<T>(T);

/// The parts of a run that one thread has still to begin, and what their owners need: all of it comes with one line of the cache.
#[repr(C)]
struct Share {
    /// The first part and the one behind the last, in the lower and the upper half.
    parts: AtomicU64,
    job: UnsafeCell<Option<Job>>,
}

#[derive(Clone, Copy)]
struct Job {
    part: *const Part<'static>,
    /// What the thread whose share it is fetches when it has no more parts.
    fetch: Fetch,
}

struct Shared {
    /// By thread; the caller's is the first.
    shares: Vec<OwnLine<Share>>,
    /// Parts that workers have finished since the pool began, modulo the size of the integer.
    done: OwnLine<AtomicUsize>,
    busy: AtomicBool,
    stop: AtomicBool,
    /// Whether `panic` holds something.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// How many of `asleep` are true.
    sleepers: AtomicUsize,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. By the protocol above it is written only while no part
// of the share is claimed or claimable and read only by owners of a claimed part; the release store to `parts` and the
// acquire exchange order the two.
unsafe impl Sync for Share {}
// SAFETY: `job` holds a pointer to a `Sync` closure, which may be called from any thread.
unsafe impl Send for Share {}

impl Pool {
    /// A pool of `threads` threads including the caller, so `threads - 1` workers are started; 0 counts as 1.
    ///
    /// When the system refuses a thread the pool is smaller; [`Pool::threads`] tells.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::on(threads, &[])
    }

    /// As [`Pool::new`], with the workers kept on `cores` (of [`Cores`](crate::Cores)) where the system allows it; none is
    /// all. The calling thread is the caller's own and stays where it is.
    #[must_use]
    pub fn on(threads: usize, cores: &[usize]) -> Self {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            shares: (0..=wanted).map(|_| OwnLine(Share::new())).collect(),
            done: OwnLine(AtomicUsize::new(0)),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            asleep: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let shared = Arc::clone(&shared);
            let cores = cores.to_vec();
            let builder = std::thread::Builder::new().name(format!("cactus-{}", index + 1));
            let work = move || {
                // Where it is refused the worker runs anywhere, which is slower and nothing worse.
                let _ = crate::cores::pin(&cores);
                shared.work(index);
            };
            match builder.spawn(work) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Self { shared, workers }
    }

    /// Number of threads, the calling one included; at least 1.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Wakes up to `width - 1` workers and keeps them ready until the step is dropped.
    ///
    /// With a width of 1, on a pool without workers, and while another step of this pool is alive, the step runs
    /// everything on the calling thread. Never blocks, never allocates.
    #[must_use]
    pub fn step(&self, width: usize) -> Step<'_> {
        let width = width.min(self.threads());
        let taken = width > 1
            && self
                .shared
                .busy
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return Step::inline();
        }
        self.wake(width);
        Step {
            pool: Some(self),
            width,
            joins: RefCell::new(None),
            ahead: Cell::new(None),
        }
    }

    /// Wakes the sleeping workers among `width` threads.
    fn wake(&self, width: usize) {
        if self.shared.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (worker, asleep) in self
            .workers
            .iter()
            .zip(&self.shared.asleep)
            .take(width.saturating_sub(1))
        {
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::AcqRel) {
                self.shared.sleepers.fetch_sub(1, Ordering::Relaxed);
                worker.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // A worker cannot panic: it catches the panics of parts.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Step<'_> {
    /// A step without a pool: everything runs on the calling thread.
    #[must_use]
    pub const fn inline() -> Self {
        Self {
            pool: None,
            width: 1,
            joins: RefCell::new(None),
            ahead: Cell::new(None),
        }
    }

    /// Number of threads that may take part in a run, the calling one included.
    #[inline]
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Says what a run after the next one will read first, so that threads that have nothing to do can fetch it into their caches.
    pub fn expect(&self, ahead: Option<Ahead>) {
        self.ahead.set(ahead);
    }

    /// Measures from now on how long each run waits for the last of its parts.
    pub fn measure_joins(&self) {
        self.joins.replace(Some(Joins::default()));
    }

    /// What was measured since [`Step::measure_joins`].
    #[must_use]
    pub fn joins(&self) -> Option<Joins> {
        self.joins.borrow().clone()
    }

    /// Calls `part(0)`, …, `part(parts - 1)`, each exactly once, on this thread and the workers; returns when all have
    /// returned. Never allocates.
    ///
    /// # Panics
    /// When a part panics, its panic is carried on here after the parts already started have ended; parts not yet
    /// started are dropped.
    pub fn run(&self, parts: usize, part: &Part<'_>) {
        match self.pool {
            Some(pool) if parts > 1 && u32::try_from(parts).is_ok() => pool.run(self, parts, part),
            _ => (0..parts).for_each(part),
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            pool.shared.busy.store(false, Ordering::Release);
        }
    }
}

impl std::fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step")
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Runs one job of at least two parts in a step that holds `busy`.
    fn run(&self, step: &Step<'_>, parts: usize, part: &Part<'_>) {
        let shared = &*self.shared;
        let ahead = step.ahead.take();
        // SAFETY: only the lifetime changes. The pointer is dereferenced only by owners of a claimed part, and this
        // function does not return before all claimed parts are done and none can be claimed any more.
        let part_erased = unsafe { std::mem::transmute::<*const Part<'_>, *const Part<'static>>(part) };
        // All that was claimed before has been reported.
        let before = shared.done.0.load(Ordering::Relaxed);
        let fetch = |thread| {
            let first = |ahead: Ahead| ahead.fetch_from(part_range(ahead.parts(), step.width, thread).start);
            ahead.map_or(Fetch::NONE, first)
        };
        // The caller's own comes last: the others wait for theirs.
        for thread in (0..step.width).rev() {
            let share = &shared.shares[thread].0;
            // SAFETY: this step holds `busy` and is not `Sync`, so no other job exists; no part is claimed or claimable
            // of this share before the next line but one.
            unsafe {
                *share.job.get() = Some(Job {
                    part: part_erased,
                    fetch: fetch(thread),
                })
            };
            share.post(part_range(parts, step.width, thread));
        }
        self.wake(step.width);

        let mut mine = 0;
        let mut panic = None;
        while let Some((index, _)) = shared.claim(0) {
            let outcome = catch_unwind(AssertUnwindSafe(|| part(index)));
            mine += 1;
            if let Err(payload) = outcome {
                panic = Some(payload);
                mine += shared.cancel();
            }
        }
        let waits = step.joins.borrow().is_some().then(Instant::now);
        let mut fetch = fetch(0);
        let mut polls = 0u32;
        while shared.done.0.load(Ordering::Acquire).wrapping_sub(before) + mine < parts {
            polls = polls.saturating_add(1);
            // The worker that holds the missing part may need this very CPU.
            if polls >= SPIN_POLLS {
                std::thread::yield_now();
            } else if !fetch.next_lines() {
                std::hint::spin_loop();
            }
        }
        if let (Some(joins), Some(since)) = (&mut *step.joins.borrow_mut(), waits) {
            joins.add(since.elapsed());
        }
        if shared.panicked.load(Ordering::Relaxed) {
            shared.panicked.store(false, Ordering::Relaxed);
            // The lock is free: workers only hold it before they report.
            let mut slot = shared.panic.lock().unwrap_or_else(PoisonError::into_inner);
            panic = panic.or(slot.take());
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Share {
    fn new() -> Self {
        Self {
            parts: AtomicU64::new(0),
            job: UnsafeCell::new(None),
        }
    }

    /// The first part and the one behind the last.
    fn unpack(parts: u64) -> Range<u32> {
        parts as u32..(parts >> 32) as u32
    }

    fn pack(parts: Range<u32>) -> u64 {
        u64::from(parts.end) << 32 | u64::from(parts.start)
    }

    /// Lets parts be claimed, less than 2^32 of them.
    fn post(&self, parts: Range<usize>) {
        let parts = Self::pack(parts.start as u32..parts.end as u32);
        self.parts.store(parts, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        Self::unpack(self.parts.load(Ordering::Relaxed)).is_empty()
    }

    /// Claims the part that `take` takes out of those that are left.
    fn claim(&self, take: impl Fn(&mut Range<u32>) -> Option<u32>) -> Option<usize> {
        let mut now = self.parts.load(Ordering::Relaxed);
        loop {
            let mut left = Self::unpack(now);
            let part = take(&mut left)?;
            match self
                .parts
                .compare_exchange_weak(now, Self::pack(left), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Some(part as usize),
                Err(found) => now = found,
            }
        }
    }
}

impl Shared {
    /// Claims a part for `thread`: the next one of its own share, or the last one of another's. Returns the share, too.
    fn claim(&self, thread: usize) -> Option<(usize, &Share)> {
        let own = &self.shares[thread].0;
        if let Some(part) = own.claim(Iterator::next) {
            return Some((part, own));
        }
        let (before, others) = self.shares.split_at(thread);
        let mut others = others[1..].iter().chain(before).map(|share| &share.0);
        others.find_map(|share| Some((share.claim(DoubleEndedIterator::next_back)?, share)))
    }

    /// Makes the unclaimed parts of the job unclaimable and returns their number.
    fn cancel(&self) -> usize {
        let cleared = |share: &OwnLine<Share>| Share::unpack(share.0.parts.swap(0, Ordering::AcqRel)).len();
        self.shares.iter().map(cleared).sum()
    }

    /// Body of worker thread `index`.
    fn work(&self, index: usize) {
        let own = &self.shares[index + 1].0;
        let (mut idle_polls, mut fetch) = (0, Fetch::NONE);
        while !self.stop.load(Ordering::Acquire) {
            if !own.is_empty() {
                while let Some((part, share)) = self.claim(index + 1) {
                    let then = self.execute(part, share);
                    if std::ptr::eq(share, own) {
                        fetch = then;
                    }
                }
                idle_polls = 0;
            }
            idle_polls += 1;
            if idle_polls < SPIN_POLLS {
                if !fetch.next_lines() {
                    std::hint::spin_loop();
                }
            } else if idle_polls < SPIN_POLLS + YIELD_POLLS {
                std::thread::yield_now();
            } else {
                self.sleep(index);
                idle_polls = 0;
            }
        }
    }

    /// Executes a part claimed from `share` and reports it; returns what the thread of the share is to fetch then.
    fn execute(&self, part: usize, share: &Share) -> Fetch {
        // SAFETY: the caller of this function owns a claimed part of the share that is not reported yet, so the job stays
        // as it is.
        let Some(Job { part: run, fetch }) = (unsafe { *share.job.get() }) else {
            return Fetch::NONE;
        };
        // SAFETY: as above; the closure outlives the run.
        let run = unsafe { &*run };
        let outcome = catch_unwind(AssertUnwindSafe(|| run(part)));
        let mut finished = 1;
        if let Err(payload) = outcome {
            finished += self.cancel();
            let mut slot = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert(payload);
            self.panicked.store(true, Ordering::Relaxed);
        }
        self.done.0.fetch_add(finished, Ordering::Release);
        fetch
    }

    /// Sleeps until woken by [`Pool::wake`] or the pool's end.
    fn sleep(&self, index: usize) {
        let asleep = &self.asleep[index];
        asleep.store(true, Ordering::Release);
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        // A job published just now may have missed the flag: look once more. If it is missed nevertheless, the caller
        // does the work itself and the next run wakes this worker.
        let work_waits = !self.shares[index + 1].0.is_empty();
        if work_waits && asleep.swap(false, Ordering::AcqRel) {
            self.sleepers.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        while asleep.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
