//! Jobs that do not need each other, as many at once as there are CPUs.

use anyhow::Result;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;

/// What becomes of each of `jobs`, in their order, by as many threads as there are CPUs.
pub(crate) fn side_by_side<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(at) else {
                return Ok(done);
            };
            done.push((at, run(job)?));
        }
    };
    let parts: Result<Vec<Vec<_>>> = std::thread::scope(|scope| {
        let threads = available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let parts = workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"));
        parts.collect()
    });
    let mut done: Vec<_> = parts?.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
