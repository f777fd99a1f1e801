//! Many threads that create, generate, cancel and destroy.

use crate::support::*;
use cactus_ffi::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;

unsafe extern "C" fn count(event: *const cactus_event, user: *mut c_void) {
    let (event, ends) = unsafe { (&*event, &*user.cast::<Mutex<usize>>()) };
    if event.kind >= EventKind::Done as i32 {
        *ends.lock().unwrap() += 1;
    }
}

/// One life of a model with requests, ended in one of several ways.
fn cycle(i: usize) {
    let model = Model::with(r#"{"context_tokens": 128, "chunk_tokens": 16, "threads": 1, "sequences": 4}"#);
    let request = r#"{"prompt": "hello", "options": {"max_tokens": 60, "ignore_eos": true}}"#;
    let ends = Mutex::new(0_usize);
    let user: *mut c_void = (&raw const ends).cast_mut().cast();
    let heard = start(&model, request, Some(count), user).unwrap();
    let polled = start(&model, request, None, null_mut()).unwrap();
    let (mut event, mut over) = (null_mut(), false);
    assert_eq!(
        unsafe { cactus_request_next(polled, 1000, &raw mut event, &raw mut over) },
        0
    );
    unsafe { cactus_string_free(event) };
    match i % 4 {
        0 => {
            unsafe { cactus_request_cancel(heard) };
            wait(heard).unwrap();
            assert_eq!(*ends.lock().unwrap(), 1);
        }
        1 => drop(wait(polled).unwrap()),
        // The model goes first.
        2 => {
            unsafe { cactus_model_close(model.0) };
            assert_eq!(*ends.lock().unwrap(), 1);
        }
        _ => {}
    }
    close(heard);
    // Nothing is heard after that.
    let after = *ends.lock().unwrap();
    close(polled);
    assert_eq!(*ends.lock().unwrap(), after);
    assert!(after <= 1);
}

/// Resident bytes that belong to no file.
#[cfg(target_os = "linux")]
fn own_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// `CACTUS_TEST_CYCLES` says how many.
#[test]
fn a_thousand_lives_from_eight_threads() {
    let cycles = std::env::var("CACTUS_TEST_CYCLES").map_or(1000, |n| n.parse().unwrap());
    bundle();
    let run = |from: usize, to: usize| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || (from..to).filter(|i| i % 8 == thread).for_each(cycle));
            }
        });
    };
    run(0, cycles / 5);
    #[cfg(target_os = "linux")]
    let before = own_bytes();
    run(cycles / 5, cycles);
    #[cfg(target_os = "linux")]
    {
        // Each life takes some hundred KiB: were they kept, this would be hundreds of MiB.
        let grown = own_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes more after {cycles} lives");
    }
}
