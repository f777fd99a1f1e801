//! Taking a step and running parts allocates nothing, on any thread.

use cactus_base::Pool;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_and_runs_allocate_nothing() {
    let pool = Pool::new(4);
    let sum = AtomicUsize::new(0);
    let round = || {
        let step = pool.step(4);
        for _ in 0..50 {
            step.run(16, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
        }
    };
    // The first rounds start the workers, whose start-up allocates.
    while sum.load(Ordering::Relaxed) < 50 * 120 * 20 {
        round();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..20 {
        round();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
