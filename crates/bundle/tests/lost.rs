//! Mapped files that go away under those who read them: an error, never the end of the process.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "a child of a test ends with a code of its own")]

use cactus_bundle::{Error, ErrorKind, Mapped};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Which part a child of this test plays.
const PART: &str = "CACTUS_TEST_LOST_PART";
const MIB: usize = 1 << 20;

fn file(path: &Path, bytes: usize) -> Mapped {
    fs::write(path, vec![7; bytes]).unwrap();
    Mapped::open(path).unwrap()
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Adds up every byte, so that all of the file is read.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&b| u64::from(b)).sum()
}

fn lost(map: &Mapped, path: &Path) -> Error {
    let e = map.intact().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Lost, "{e}");
    assert_eq!(e.path(), path);
    e
}

#[test]
fn file_cut_short_is_an_error_with_its_place_and_reads_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("weights"), dir.path().join("other"));
    let (map, untouched) = (file(&path, 4 * MIB), file(&other, MIB));
    assert_eq!(sum(&map), 7 * 4 * MIB as u64);
    map.intact().unwrap();
    cut(&path, MIB as u64);
    assert_eq!(sum(&map[2 * MIB..]), 0);
    let e = lost(&map, &path);
    assert_eq!(e.offset(), Some(2 * MIB as u64));
    assert!(e.to_string().contains("had 4194304 bytes and has 1048576"), "{e}");
    // All of the mapping is gone, and stays gone.
    assert_eq!(sum(&map), 0);
    fs::write(&path, vec![7; 4 * MIB]).unwrap();
    lost(&map, &path);
    // Nothing else is touched, and the same file can be mapped again.
    assert_eq!(sum(&untouched), 7 * MIB as u64);
    untouched.intact().unwrap();
    drop(map);
    let again = Mapped::open(&path).unwrap();
    assert_eq!(sum(&again), 7 * 4 * MIB as u64);
    again.intact().unwrap();
}

#[test]
fn file_cut_short_within_its_last_page_is_an_error_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let map = file(&path, 5000);
    cut(&path, 4998);
    // The system fills the page up with zeros: no read fails.
    assert_eq!(map[4999], 0);
    assert_eq!(lost(&map, &path).offset(), None);
}

#[test]
fn part_is_lost_where_its_own_bytes_are_cut_away_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    drop(file(&path, 4 * MIB));
    let open = std::sync::Arc::new(File::open(&path).unwrap());
    let part = |offset: usize, len| Mapped::part(&open, &path, offset as u64, len).unwrap();
    let (front, back) = (part(100, MIB), part(2 * MIB + 100, MIB));
    cut(&path, 2 * MIB as u64);
    assert_eq!(sum(&front), 7 * MIB as u64);
    front.intact().unwrap();
    assert_eq!(sum(&back), 0);
    let e = lost(&back, &path);
    assert!(e.offset().is_some_and(|at| at >= 2 * MIB as u64), "{e}");
}

#[test]
fn many_threads_that_fault_at_once_all_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let maps: Vec<_> = (0..8)
        .map(|i| {
            let path = dir.path().join(format!("{i}"));
            (file(&path, 2 * MIB), path)
        })
        .collect();
    for (_, path) in maps.iter().take(4) {
        cut(path, 0);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| maps.iter().map(|(map, _)| sum(map)).max());
        }
        // Mappings come and go meanwhile.
        for i in 0..50 {
            let path = dir.path().join(format!("new{i}"));
            let map = file(&path, 4096);
            assert_eq!(sum(&map), 7 * 4096);
            map.intact().unwrap();
        }
    });
    for (i, (map, path)) in maps.iter().enumerate() {
        match i < 4 {
            true => drop(lost(map, path)),
            false => map.intact().unwrap(),
        }
    }
}

/// Runs this test in a process of its own, where it plays `part`.
fn child(name: &str, part: &str, sigbus: &str) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(PART, part)
        .env("CACTUS_SIGBUS", sigbus)
        .status()
        .unwrap()
}

fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Reads a page past the end of a file that is mapped behind the back of this crate.
fn fault_elsewhere(dir: &Path) {
    use std::os::fd::AsRawFd;
    let path = dir.join("elsewhere");
    fs::write(&path, [1; 4096]).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: a fresh mapping at an address that the system chooses.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    cut(&path, 0);
    // SAFETY: the address is mapped; that the read faults is the point.
    let byte = unsafe { map.cast::<u8>().read_volatile() };
    panic!("read {byte} from a page that is not there");
}

#[test]
fn faults_elsewhere_and_signals_that_are_sent_end_the_process_as_without_us() {
    let name = "faults_elsewhere_and_signals_that_are_sent_end_the_process_as_without_us";
    let dir = tempfile::tempdir().unwrap();
    if let Some(part) = part() {
        let _map = file(&dir.path().join("weights"), MIB);
        if part == "fault" {
            fault_elsewhere(dir.path());
        }
        // SAFETY: sends a signal to this process.
        unsafe { libc::raise(libc::SIGBUS) };
        std::process::exit(0);
    }
    assert_eq!(child(name, "fault", "on").signal(), Some(libc::SIGBUS));
    // What is before us here is a handler of Rust's own, which does not end the process for a first signal that is sent.
    assert_eq!(child(name, "sent", "on"), child(name, "sent", "off"));
}

#[test]
fn handler_that_is_turned_off_leaves_the_signal_alone() {
    let name = "handler_that_is_turned_off_leaves_the_signal_alone";
    let dir = tempfile::tempdir().unwrap();
    if let Some(part) = part() {
        if part == "call" {
            cactus_bundle::handle_faults(false);
        }
        let path = dir.path().join("weights");
        let map = file(&path, MIB);
        cut(&path, 0);
        std::process::exit(i32::from(sum(&map) != 0));
    }
    assert_eq!(child(name, "knob", "off").signal(), Some(libc::SIGBUS));
    assert_eq!(child(name, "call", "on").signal(), Some(libc::SIGBUS));
    assert_eq!(child(name, "neither", "on").code(), Some(0));
}

extern "C" fn host_handler(_signal: i32) {
    // SAFETY: ends the process at once, which a handler may.
    unsafe { libc::_exit(42) };
}

#[test]
fn handler_of_the_host_gets_what_is_not_ours() {
    let name = "handler_of_the_host_gets_what_is_not_ours";
    let dir = tempfile::tempdir().unwrap();
    if part().is_some() {
        let handler: extern "C" fn(i32) = host_handler;
        // SAFETY: installs a handler that only ends the process.
        unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
        let path = dir.path().join("weights");
        let map = file(&path, MIB);
        cut(&path, 0);
        assert_eq!(sum(&map), 0);
        lost(&map, &path);
        fault_elsewhere(dir.path());
    }
    assert_eq!(child(name, "host", "on").code(), Some(42));
}

#[test]
fn child_of_fork_has_the_handler() {
    let name = "child_of_fork_has_the_handler";
    let dir = tempfile::tempdir().unwrap();
    // Forked in a process of one thread that runs, so that the child may do more than a handler may.
    if part().is_some() {
        let path = dir.path().join("weights");
        let map = file(&path, MIB);
        // SAFETY: the child reads memory and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            cut(&path, 0);
            let zeros = sum(&map) == 0 && map.intact().is_err();
            // SAFETY: ends the child without running anything of the parent.
            unsafe { libc::_exit(i32::from(!zeros)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        std::process::exit(status);
    }
    assert_eq!(child(name, "fork", "on").code(), Some(0));
}
