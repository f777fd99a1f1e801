//! Several recordings at a time: each on an equal share of the threads, which computes more than all threads on one after the other.

use super::recordings::{self, Recording};
use super::{Hearing, heading, written};
use crate::args::TranscribeArgs;
use crate::output;
use crate::progress::byte_bar;
use anyhow::Result;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

/// Transcribes `recordings`, as many at a time as `hearings`, and gives how many failed. Texts for standard output come in the order of
/// the recordings.
pub(super) fn run(hearings: Vec<Hearing>, recordings: &[Recording], args: &TranscribeArgs) -> usize {
    let next = AtomicUsize::new(0);
    let bar = byte_bar(recordings.iter().map(|r| r.bytes).sum(), "transcribing");
    let done_of = |done: usize| bar.set_message(format!("{done} of {} recordings", recordings.len()));
    done_of(0);
    let mut failed = 0;
    std::thread::scope(|scope| {
        let (told, heard) = mpsc::channel();
        for mut hearing in hearings {
            let (told, next, bar) = (told.clone(), &next, &bar);
            scope.spawn(move || while work(&mut hearing, next, recordings, args, bar, &told) {});
        }
        drop(told);
        // What is heard before its turn.
        let mut early = BTreeMap::new();
        let (mut turn, mut done) = (0, 0);
        for (index, outcome) in heard {
            done += 1;
            done_of(done);
            early.insert(index, outcome);
            while let Some(outcome) = early.remove(&turn) {
                let file = recordings[turn].path.as_path();
                turn += 1;
                bar.suspend(|| match outcome {
                    Ok(Some(text)) => {
                        heading(file, args);
                        if !text.is_empty() {
                            output::line(text);
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        output::error(&error);
                        failed += 1;
                    }
                });
            }
        }
    });
    bar.finish_and_clear();
    failed
}

/// Transcribes the next recording; false where there is none, or nobody listens any more.
fn work(
    hearing: &mut Hearing,
    next: &AtomicUsize,
    recordings: &[Recording],
    args: &TranscribeArgs,
    bar: &ProgressBar,
    told: &Sender<(usize, Result<Option<String>>)>,
) -> bool {
    let index = next.fetch_add(1, Ordering::Relaxed);
    let Some(recording) = recordings.get(index) else {
        return false;
    };
    let mut shown = 0;
    let mut to = |share: f64| {
        let now = (share * recording.bytes as f64) as u64;
        bar.inc(now.saturating_sub(shown));
        shown = shown.max(now);
    };
    let outcome = hearing.hear(None, &recording.path, args, &mut |done_s, of_s, _| to(done_s / of_s));
    to(1.0);
    let outcome = outcome.and_then(|heard| {
        let text = written(args, &recording.path, &heard)?;
        match &recording.transcript {
            Some(path) => recordings::write(path, &text).map(|()| None),
            None => Ok(Some(text)),
        }
    });
    told.send((index, outcome)).is_ok()
}
