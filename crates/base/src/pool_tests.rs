//! Tests of the pool, most of them with more threads than CPUs.

use super::*;
use std::sync::atomic::AtomicU32;

fn run_counts(step: &Step<'_>, parts: usize) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
    step.run(parts, &|i| {
        counts[i].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn run_any_width_executes_every_part_once() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads);
        for width in [1, 2, 5, 100] {
            let step = pool.step(width);
            assert_eq!(step.width(), width.min(threads));
            for parts in [0, 1, 2, 3, 7, 64, 1000] {
                assert_eq!(
                    run_counts(&step, parts),
                    vec![1; parts],
                    "threads {threads} width {width} parts {parts}"
                );
            }
        }
    }
}

#[test]
fn run_oversubscribed_many_times_loses_no_part_and_sees_all_writes() {
    let pool = Pool::new(8);
    let mut cells = vec![0u64; 16];
    for round in 0..200 {
        let step = pool.step(2 + round % 7);
        for _ in 0..100 {
            let base = cells.as_mut_ptr() as usize;
            step.run(16, &|i| {
                // SAFETY: each part has its own element, and `cells` outlives the run.
                unsafe { *(base as *mut u64).add(i) += 1 };
            });
        }
    }
    assert_eq!(cells, vec![20_000; 16]);
}

#[test]
fn run_after_workers_sleep_wakes_them() {
    let pool = Pool::new(2);
    let step = pool.step(2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while pool.shared.sleepers.load(Ordering::Acquire) == 0 {
        assert!(std::time::Instant::now() < deadline, "the worker never went to sleep");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // Each part waits for the other one, so this only returns if both threads take part.
    let arrived = AtomicU32::new(0);
    step.run(2, &|_| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn step_while_pool_is_busy_runs_inline() {
    let pool = Pool::new(4);
    let first = pool.step(4);
    let second = pool.step(4);
    assert_eq!((first.width(), second.width()), (4, 1));
    let here = std::thread::current().id();
    second.run(8, &|_| assert_eq!(std::thread::current().id(), here));
    drop(first);
    assert_eq!(pool.step(4).width(), 4);
}

#[test]
fn step_from_inside_a_part_runs_inline() {
    let pool = Pool::new(3);
    let total = AtomicU32::new(0);
    pool.step(3).run(6, &|_| {
        pool.step(3).run(5, &|_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(total.into_inner(), 30);
}

#[test]
fn run_panic_in_any_part_reaches_the_caller_and_leaves_the_pool_usable() {
    let pool = Pool::new(4);
    let step = pool.step(4);
    for bad in [0, 1, 17, 63] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            step.run(64, &|i| {
                if i == bad {
                    panic!("part {i}");
                }
                std::thread::yield_now();
            });
        }));
        let payload = outcome.expect_err("the panic must be carried");
        assert_eq!(
            payload.downcast_ref::<String>().map(String::as_str),
            Some(format!("part {bad}").as_str())
        );
        assert_eq!(run_counts(&step, 64), vec![1; 64]);
    }
}

#[test]
fn run_from_several_sessions_at_once_is_correct() {
    let pool = Pool::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    assert_eq!(run_counts(&pool.step(3), 9), vec![1; 9]);
                }
            });
        }
    });
}

#[test]
fn inline_step_needs_no_pool() {
    assert_eq!(run_counts(&Step::inline(), 5), vec![1; 5]);
    assert_eq!(Step::inline().width(), 1);
}

#[test]
fn shares_cut_parts_evenly_in_order() {
    for width in 1..9 {
        for parts in 0..40 {
            let shares: Vec<_> = (0..width).map(|thread| part_range(parts, width, thread)).collect();
            let all: Vec<usize> = shares.iter().cloned().flatten().collect();
            assert_eq!(all, (0..parts).collect::<Vec<_>>());
            let sizes = shares.iter().map(ExactSizeIterator::len);
            assert!(sizes.clone().max() <= sizes.min().map(|least| least + 1));
        }
    }
}

#[test]
fn share_taken_from_both_ends_gives_each_part_once() {
    const PARTS: usize = 20_000;
    let share = &Share::new();
    share.post(0..PARTS);
    let counts: Vec<AtomicU32> = (0..PARTS).map(|_| AtomicU32::new(0)).collect();
    let take = |front: bool| {
        let claim = || match front {
            true => share.claim(Iterator::next),
            false => share.claim(DoubleEndedIterator::next_back),
        };
        while let Some(part) = claim() {
            counts[part].fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for front in [true, false, false] {
            scope.spawn(move || take(front));
        }
    });
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    assert!(share.is_empty());
}

#[test]
fn run_begins_with_the_first_part_here_and_with_the_middle_one_on_the_worker() {
    let pool = Pool::new(2);
    let step = pool.step(2);
    let here = std::thread::current().id();
    let first = [const { AtomicU32::new(u32::MAX) }; 2];
    step.run(8, &|part| {
        let thread = usize::from(std::thread::current().id() != here);
        let begins = first[thread].compare_exchange(u32::MAX, part as u32, Ordering::AcqRel, Ordering::Relaxed);
        // Until both have begun, so that nobody takes what is the other's.
        while begins.is_ok() && first[1 - thread].load(Ordering::Acquire) == u32::MAX {
            std::hint::spin_loop();
        }
    });
    assert_eq!(first.map(AtomicU32::into_inner), [0, 4]);
}

#[test]
fn joins_are_counted_for_runs_of_several_threads_where_asked_for() {
    let pool = Pool::new(2);
    let step = pool.step(2);
    step.run(2, &|_| {});
    assert_eq!(step.joins(), None);
    step.measure_joins();
    for parts in [0, 1, 2, 5] {
        step.run(parts, &|_| {});
    }
    assert_eq!(step.joins().map(|joins| joins.count()), Some(2));
    let inline = Step::inline();
    inline.measure_joins();
    inline.run(5, &|_| {});
    assert_eq!(inline.joins().map(|joins| joins.count()), Some(0));
}

#[test]
fn run_that_expects_memory_computes_the_same() {
    let pool = Pool::new(3);
    let step = pool.step(3);
    let memory = vec![0u8; 1 << 20];
    for unit in [1, 64, 5000, 2 << 20] {
        step.expect(Some(Ahead::new(&memory, unit, 7, |_| {})));
        assert_eq!(run_counts(&step, 50), vec![1; 50]);
        assert_eq!(run_counts(&step, 50), vec![1; 50]);
    }
    step.expect(Some(Ahead::new(&[], 0, 0, |_| {})));
    assert_eq!(run_counts(&step, 3), vec![1; 3]);
}
