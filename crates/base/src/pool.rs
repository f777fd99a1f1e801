//! Resident worker threads, woken once per step of a model.
//!
//! A step (one decoded token, one prefill chunk) consists of some hundred short parallel runs. Forking and joining
//! threads for each of them costs more than the work, so the workers stay awake between the runs of a step: they spin,
//! then yield, then sleep. Within a run, parts are claimed from one shared counter by whoever comes first, the calling
//! thread included, so that a worker that the system has not scheduled costs its help and nothing else: the caller
//! waits only for parts that a worker has really claimed.
//!
//! # Protocol
//!
//! The caller writes the job, resets `done`, then stores the number of parts to `remaining` (release). Whoever
//! decrements `remaining` from a positive value (acquire) owns one part, and only an owner may read the job. A worker
//! reports the number of parts it has finished by adding to `done` (release) once it can claim no more. The caller
//! returns when `done` and its own count reach the number of parts; so the job outlives every owner, and no owner exists
//! while the next job is written. A stale look at `remaining` is harmless: what is claimed is always a part of the job
//! current at the time of the claim.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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
    /// A step belongs to one thread at a time: concurrent runs would share one job.
    _not_sync: PhantomData<Cell<()>>,
}

/// Keeps a value on cache lines of its own (two, for the adjacent-line prefetcher).
#[repr(align(128))]
struct OwnLine<T>(T);

#[derive(Clone, Copy)]
struct Job {
    part: *const Part<'static>,
    parts: usize,
}

struct Shared {
    remaining: OwnLine<AtomicIsize>,
    done: OwnLine<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    /// Threads that may take part, the caller included.
    width: AtomicUsize,
    busy: AtomicBool,
    stop: AtomicBool,
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
    /// How many of `asleep` are true.
    sleepers: AtomicUsize,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. By the protocol above it is written only while no part
// is claimed or claimable and read only by owners of a claimed part; the release store to `remaining` and the acquire
// decrement order the two.
unsafe impl Sync for Shared {}
// SAFETY: `job` holds a pointer to a `Sync` closure, which may be called from any thread.
unsafe impl Send for Shared {}

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
            remaining: OwnLine(AtomicIsize::new(0)),
            done: OwnLine(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            width: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            panicked: Mutex::new(None),
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
        self.shared.width.store(width, Ordering::Release);
        self.wake();
        Step {
            pool: Some(self),
            width,
            _not_sync: PhantomData,
        }
    }

    /// Wakes the sleeping workers of the current width.
    fn wake(&self) {
        if self.shared.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let width = self.shared.width.load(Ordering::Relaxed);
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
            _not_sync: PhantomData,
        }
    }

    /// Number of threads that may take part in a run, the calling one included.
    #[inline]
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Calls `part(0)`, …, `part(parts - 1)`, each exactly once, on this thread and the workers; returns when all have
    /// returned. Parts start in ascending order. Never allocates.
    ///
    /// # Panics
    /// When a part panics, its panic is carried on here after the parts already started have ended; parts not yet
    /// started are dropped.
    pub fn run(&self, parts: usize, part: &Part<'_>) {
        match self.pool {
            Some(pool) if parts > 1 && isize::try_from(parts).is_ok() => pool.run(parts, part),
            _ => (0..parts).for_each(part),
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            pool.shared.width.store(0, Ordering::Release);
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
    /// Runs one job; only called by the step that holds `busy`.
    fn run(&self, parts: usize, part: &Part<'_>) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. The pointer is dereferenced only by owners of a claimed part, and this
        // function does not return before all claimed parts are done and none can be claimed any more.
        let part_erased = unsafe { std::mem::transmute::<*const Part<'_>, *const Part<'static>>(part) };
        // SAFETY: this step holds `busy` and is not `Sync`, so no other job exists; no part is claimed or claimable.
        unsafe {
            *shared.job.get() = Some(Job {
                part: part_erased,
                parts,
            })
        };
        shared.done.0.store(0, Ordering::Relaxed);
        shared.remaining.0.store(parts as isize, Ordering::Release);
        self.wake();

        let mut mine = 0;
        let mut panic = None;
        while let Some(left) = shared.claim() {
            let outcome = catch_unwind(AssertUnwindSafe(|| part(parts - left)));
            mine += 1;
            if let Err(payload) = outcome {
                panic = Some(payload);
                mine += shared.cancel();
            }
        }
        let mut polls = 0u32;
        while shared.done.0.load(Ordering::Acquire) + mine < parts {
            polls = polls.saturating_add(1);
            // The worker that holds the missing part may need this very CPU.
            if polls < SPIN_POLLS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        let worker_panic = {
            // The lock is free: workers only hold it before they report.
            let mut slot = shared.panicked.lock().unwrap_or_else(PoisonError::into_inner);
            slot.take()
        };
        if let Some(payload) = panic.or(worker_panic) {
            resume_unwind(payload);
        }
    }
}

impl Shared {
    /// Claims a part; returns how many parts were left, this one included.
    fn claim(&self) -> Option<usize> {
        if self.remaining.0.load(Ordering::Relaxed) <= 0 {
            return None;
        }
        let left = self.remaining.0.fetch_sub(1, Ordering::AcqRel);
        usize::try_from(left).ok().filter(|&left| left > 0)
    }

    /// Makes the unclaimed parts of the job unclaimable and returns their number.
    fn cancel(&self) -> usize {
        usize::try_from(self.remaining.0.swap(0, Ordering::AcqRel)).unwrap_or(0)
    }

    /// Body of worker thread `index`.
    fn work(&self, index: usize) {
        let mut idle_polls = 0;
        while !self.stop.load(Ordering::Acquire) {
            let invited = index + 1 < self.width.load(Ordering::Relaxed);
            if invited && let Some(left) = self.claim() {
                self.execute(left);
                idle_polls = 0;
                continue;
            }
            idle_polls += 1;
            if idle_polls < SPIN_POLLS {
                std::hint::spin_loop();
            } else if idle_polls < SPIN_POLLS + YIELD_POLLS {
                std::thread::yield_now();
            } else {
                self.sleep(index);
                idle_polls = 0;
            }
        }
    }

    /// Executes the claimed part and all further ones that can be claimed, then reports them.
    fn execute(&self, first_left: usize) {
        // SAFETY: the caller of this function owns a claimed part that is not reported yet, so the job stays as it is.
        let Some(job) = (unsafe { *self.job.get() }) else {
            return;
        };
        // SAFETY: as above; the closure outlives the run.
        let part = unsafe { &*job.part };
        let mut left = first_left;
        let mut finished = 0;
        loop {
            let outcome = catch_unwind(AssertUnwindSafe(|| part(job.parts - left)));
            finished += 1;
            if let Err(payload) = outcome {
                finished += self.cancel();
                let mut slot = self.panicked.lock().unwrap_or_else(PoisonError::into_inner);
                slot.get_or_insert(payload);
            }
            match self.claim() {
                Some(next) => left = next,
                None => break,
            }
        }
        self.done.0.fetch_add(finished, Ordering::Release);
    }

    /// Sleeps until woken by [`Pool::wake`] or the pool's end.
    fn sleep(&self, index: usize) {
        let asleep = &self.asleep[index];
        asleep.store(true, Ordering::Release);
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        // A job published just now may have missed the flag: look once more. If it is missed nevertheless, the caller
        // does the work itself and the next run wakes this worker.
        let work_waits = self.remaining.0.load(Ordering::Acquire) > 0 && index + 1 < self.width.load(Ordering::Acquire);
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
