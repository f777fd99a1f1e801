//! Writers that are killed, disks that are full, several writers, readers beside a writer: nothing that was committed is lost,
//! and nothing is half there.
//!
//! `CACTUS_TEST_KILLS=1000` makes the test of kills a long one.
#![cfg(unix)]

mod support;

use cactus_retrieval::{Document, ErrorKind, Id, Index, Layout, Metric, Query, Reader};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Random, document, recipe};

/// Which part a child of these tests plays, and on which index.
const PART: &str = "CACTUS_TEST_RETRIEVAL_PART";
const DIM: usize = 16;
/// Documents are numbered from here in each round of commits; a commit writes all of them anew.
const DOCUMENTS: u64 = 12;
/// Kills where `CACTUS_TEST_KILLS` does not say otherwise.
const KILLS: usize = 30;

fn part() -> Option<(String, String)> {
    let value = std::env::var(PART).ok()?;
    value
        .split_once(':')
        .map(|(part, path)| (part.to_owned(), path.to_owned()))
}

/// Runs the test called `name` in a process of its own, where it plays `part` on the index at `path`. `limit` is how many
/// blocks of 512 bytes a file may have there.
fn child(name: &str, part: &str, path: &Path, limit: Option<usize>) -> Child {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", name, "--nocapture", "--test-threads", "1"];
    let mut command = match limit {
        None => Command::new(program),
        // A file that would grow larger is an error and not a signal.
        Some(blocks) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"")]);
            shell.arg("sh").arg(program);
            shell
        }
    };
    command
        .args(arguments)
        .env(PART, format!("{part}:{}", path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What commit number `round` leaves behind: every document with the round as its version, and one more that tells the round.
fn commit_round(index: &mut Index, round: u64) {
    for number in 0..DOCUMENTS {
        index.upsert(document(number, round, DIM)).unwrap();
    }
    index
        .upsert(Document::new(1000, vec![1.0; DIM]).with("round", round as i64))
        .unwrap();
    // One that stays, so that the index grows and small segments are merged.
    index.upsert(document(2000 + round, 0, DIM)).unwrap();
    index.commit().unwrap();
}

/// The round of an index that is one whole commit.
fn whole_round(path: &Path) -> u64 {
    let reader = Reader::open(path, None).unwrap();
    reader.verify().unwrap();
    let Some(last) = reader.get(&Id::from(1000)).unwrap() else {
        assert_eq!(reader.size().documents, 0);
        return 0;
    };
    let cactus_retrieval::Value::Integer(round) = last.metadata["round"] else {
        panic!("{last:?}")
    };
    let round = round as u64;
    for number in 0..DOCUMENTS {
        let found = reader.get(&Id::from(number)).unwrap().unwrap();
        let expected = document(number, round, DIM);
        assert_eq!(
            (found.text, found.metadata),
            (expected.text, expected.metadata),
            "{number} of {round}"
        );
    }
    for earlier in 1..=round {
        assert!(
            reader.get(&Id::from(2000 + earlier)).unwrap().is_some(),
            "{earlier} of {round}"
        );
    }
    assert_eq!(reader.size().documents, DOCUMENTS + 1 + round);
    let found = reader.search(&Query::Words("river"), None, 1000).unwrap();
    let near = reader.search(&Query::Vector(&[1.0; DIM]), None, 1000).unwrap();
    assert!(found.len() <= near.len() && near.len() as u64 == reader.size().documents);
    round
}

/// Writes rounds for ever, and tells each that is committed by the length of a file.
fn write_rounds(path: &Path) {
    let mut index = Index::open(path, None).unwrap();
    // A killed process does not need a sync, and without there are more places to be killed at.
    index.set_durable(false);
    let told = path.with_extension("told");
    let tell = |round: u64| {
        // Renamed, so that nothing half-written is taken for another number.
        fs::write(told.with_extension("new"), vec![b'.'; round as usize]).unwrap();
        fs::rename(told.with_extension("new"), &told).unwrap();
    };
    // The writer before may have been killed between its commit and the telling.
    let mut round = whole_round(path);
    tell(round);
    loop {
        round += 1;
        commit_round(&mut index, round);
        tell(round);
        if round.is_multiple_of(9) {
            index.compact().unwrap();
        }
    }
}

#[test]
fn writer_killed_at_any_moment_loses_nothing_that_was_committed() {
    if let Some((_, path)) = part() {
        write_rounds(Path::new(&path));
        return;
    }
    let kills = std::env::var("CACTUS_TEST_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let name = "writer_killed_at_any_moment_loses_nothing_that_was_committed";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut random = Random::new(1);
    let (mut rounds, mut commits) = (0, 0);
    drop(Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap());
    for kill in 0..kills {
        let mut writer = child(name, "write", &path, None);
        std::thread::sleep(Duration::from_micros(20_000 + random.below(60_000) as u64));
        writer.kill().unwrap();
        let mut said = String::new();
        writer.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        writer.wait().unwrap();
        let round = whole_round(&path);
        let told = fs::metadata(path.with_extension("told")).map_or(0, |m| m.len());
        // A commit may be there before it was told, never the other way around.
        assert!(
            round == told || round == told + 1,
            "kill {kill}: told {told}, found {round}; {said}"
        );
        assert!(round >= rounds, "kill {kill}: {round} after {rounds}");
        commits += round - rounds;
        rounds = round;
        if rounds > 400 {
            fs::remove_file(path.with_extension("told")).unwrap();
            fs::remove_file(&path).unwrap();
            drop(Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap());
            rounds = 0;
        }
    }
    assert!(commits > 0, "no child came to a commit");
    // What a killed compaction left beside the index goes away with the next one.
    Index::open(&path, None).unwrap().compact().unwrap();
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        names.iter().all(|n| !n.to_string_lossy().contains("partial")),
        "{names:?}"
    );
}

#[test]
fn full_disk_keeps_what_was_committed_and_room_lets_the_commit_through() {
    if let Some((part, path)) = part() {
        let path = Path::new(&path);
        let mut index = Index::open(path, None).unwrap();
        let round = whole_round(path) + 1;
        if part == "compact" {
            let error = index.compact().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert_eq!(whole_round(path), round - 1);
            return;
        }
        for number in 0..DOCUMENTS {
            index.upsert(document(number, round, DIM)).unwrap();
        }
        index
            .upsert(Document::new(1000, vec![1.0; DIM]).with("round", round as i64))
            .unwrap();
        index.upsert(document(2000 + round, 0, DIM)).unwrap();
        // No file may grow past the limit, the way a disk is full.
        let error = index.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(whole_round(path), round - 1);
        let again = index.commit().map_err(|e| e.kind());
        assert!(matches!(again, Ok(_) | Err(ErrorKind::NoSpace)), "{again:?}");
        return;
    }
    let name = "full_disk_keeps_what_was_committed_and_room_lets_the_commit_through";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut index = Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap();
    (1..=3).for_each(|round| commit_round(&mut index, round));
    drop(index);
    // In steps of 512 bytes past the end of the file, as long as the commit does not fit.
    let start = fs::metadata(&path).unwrap().len() as usize / 512;
    let mut failures = 0;
    for limit in (start - 2..start + 40).step_by(3) {
        let before = fs::read(&path).unwrap();
        let status = child(name, "commit", &path, Some(limit)).wait().unwrap();
        failures += usize::from(status.success());
        let round = whole_round(&path);
        assert!(round == 3 || !status.success(), "limit {limit}");
        fs::write(&path, before).unwrap();
    }
    assert!(failures > 3, "{failures} commits met a full disk");
    // No room for a new file beside the old one.
    let status = child(name, "compact", &path, Some(20)).wait().unwrap();
    assert!(status.success());
    assert_eq!(whole_round(&path), 3);
    // With room, all is well.
    commit_round(&mut Index::open(&path, None).unwrap(), whole_round(&path) + 1);
    assert_eq!(whole_round(&path), 4);
}

#[test]
fn second_writer_is_told_who_has_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut index = Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap();
    for opened in [
        Index::open(&path, None),
        Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()),
    ] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let (process, lock) = (format!("process {}", std::process::id()), "index.lock");
        assert!(
            error.to_string().contains(&process) && error.to_string().contains(lock),
            "{error}"
        );
    }
    commit_round(&mut index, 1);
    index.compact().unwrap();
    // The lock outlasts the renaming.
    assert_eq!(Index::open(&path, None).unwrap_err().kind(), ErrorKind::Busy);
    drop(index);
    commit_round(&mut Index::open(&path, None).unwrap(), 2);
    assert_eq!(whole_round(&path), 2);
}

#[test]
fn reader_goes_on_with_its_state_during_commits_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut index = Index::create(&path, &recipe(DIM, Metric::Cosine), Layout::default()).unwrap();
    commit_round(&mut index, 1);
    let mut reader = Reader::open(&path, None).unwrap();
    let ask = |reader: &Reader| {
        reader
            .search(
                &Query::Both {
                    vector: &[1.0; DIM],
                    words: "river",
                },
                None,
                50,
            )
            .unwrap()
    };
    let first = ask(&reader);
    for round in 2..40 {
        commit_round(&mut index, round);
        if round.is_multiple_of(7) {
            index.compact().unwrap();
        }
        assert_eq!(ask(&reader), first, "{round}");
        reader.verify().unwrap();
    }
    assert!(reader.refresh().unwrap() && !reader.refresh().unwrap());
    assert_eq!(ask(&reader), ask(&Reader::open(&path, None).unwrap()));
    assert_ne!(ask(&reader), first);
    // While a writer commits and compacts, whoever opens the index finds a whole round.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 40..120 {
                commit_round(&mut index, round);
                if round.is_multiple_of(11) {
                    index.compact().unwrap();
                }
            }
        });
        while !writer.is_finished() {
            whole_round(&path);
            reader.refresh().unwrap();
            ask(&reader);
        }
    });
    assert_eq!(whole_round(&path), 119);
}
