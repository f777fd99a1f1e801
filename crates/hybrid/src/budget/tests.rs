//! The journal on a real disk.

use super::record::{BYTES, Record, Reserved, Sum};
use super::*;
use crate::error::{Error, ErrorKind};
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const NOW: u64 = 1_790_000_000;

fn ask(amount: u64) -> Ask<'static> {
    Ask {
        amount: Pico(amount),
        request_so_far: Pico::ZERO,
        session: "s",
        user: "u",
    }
}

fn none() -> Caps {
    Caps {
        request: None,
        session: None,
        day: None,
        month: None,
        user: None,
    }
}

#[test]
fn reserve_beyond_each_cap_names_it() {
    for (scope, caps) in [
        (
            Scope::Request,
            Caps {
                request: Some(Pico(10)),
                ..none()
            },
        ),
        (
            Scope::Session,
            Caps {
                session: Some(Pico(10)),
                ..none()
            },
        ),
        (
            Scope::Day,
            Caps {
                day: Some(Pico(10)),
                ..none()
            },
        ),
        (
            Scope::Month,
            Caps {
                month: Some(Pico(10)),
                ..none()
            },
        ),
        (
            Scope::User,
            Caps {
                user: Some(Pico(10)),
                ..none()
            },
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(Folder::new(folder.path()));
        let first = journal.reserve(&ask(6), &caps, NOW).unwrap();
        let second = Ask {
            request_so_far: Pico(6),
            ..ask(5)
        };
        let error = journal.reserve(&second, &caps, NOW).unwrap_err();
        let Error::OverCap(over) = error else { panic!("{error}") };
        assert_eq!(
            over,
            OverCap {
                scope,
                cap: Pico(10),
                spent: Pico(6),
                asked: Pico(5)
            }
        );
        assert!(over.to_string().contains(scope.name()), "{over}");
        // What it did not cost is free again, in another process too.
        journal.settle(&first, Pico(5), NOW).unwrap();
        let second = Ask {
            request_so_far: Pico(5),
            ..second
        };
        Journal::new(Folder::new(folder.path()))
            .reserve(&second, &caps, NOW)
            .unwrap();
    }
}

#[test]
fn reserve_after_a_clock_was_set_back_counts_for_the_later_day() {
    let folder = tempfile::tempdir().unwrap();
    let caps = Caps {
        day: Some(Pico(10)),
        ..none()
    };
    let mut journal = Journal::new(Folder::new(folder.path()));
    journal.reserve(&ask(6), &caps, NOW).unwrap();
    journal.reserve(&ask(6), &caps, NOW + 86_400).unwrap();
    for now in [NOW, 0, NOW + 86_400] {
        let error = journal.reserve(&ask(6), &caps, now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OverCap);
    }
    let spent = journal.spent("s", "u", 0).unwrap();
    assert_eq!((spent.day, spent.session, spent.open), (Pico(6), Pico(12), 2));
    assert_eq!(spent.seconds, NOW + 86_400);
}

#[test]
fn settle_twice_or_of_another_budget_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(Folder::new(folder.path()));
    let first = journal.reserve(&ask(6), &none(), NOW).unwrap();
    journal.settle(&first, Pico(9), NOW).unwrap();
    let other = Reservation { id: 99, ..first };
    for again in [first, other] {
        let error = journal.settle(&again, Pico::ZERO, NOW).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settled);
    }
    assert_eq!(journal.spent("s", "u", NOW).unwrap().day, Pico(9));
}

#[test]
fn compaction_keeps_sums_and_open_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(Folder::new(folder.path()));
    journal.compact_records = 16;
    let mut other = Journal::new(Folder::new(folder.path()));
    let open = other.reserve(&ask(7), &none(), NOW).unwrap();
    for _ in 0..100 {
        let reservation = journal.reserve(&ask(6), &none(), NOW).unwrap();
        journal.settle(&reservation, Pico(2), NOW).unwrap();
    }
    let length = fs::metadata(folder.path().join("budget.journal")).unwrap().len();
    assert!(length < 40 * BYTES as u64, "{length}");
    assert_eq!(other.spent("s", "u", NOW).unwrap().user, Pico(207));
    other.settle(&open, Pico(1), NOW).unwrap();
    other.compact().unwrap();
    for journal in [&mut journal, &mut other] {
        let spent = journal.spent("s", "u", NOW).unwrap();
        assert_eq!(
            (spent.session, spent.day, spent.month),
            (Pico(201), Pico(201), Pico(201))
        );
    }
    // Ids are not given out again.
    assert_eq!(journal.reserve(&ask(1), &none(), NOW).unwrap().id, 101);
}

#[test]
fn journal_with_its_end_torn_off_goes_on_and_with_a_damaged_middle_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("budget.journal");
    let mut journal = Journal::new(Folder::new(folder.path()));
    for _ in 0..3 {
        journal.reserve(&ask(5), &none(), NOW).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    for cut in 3 * BYTES + 1..4 * BYTES {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut journal = Journal::new(Folder::new(folder.path()));
        assert_eq!(journal.spent("s", "u", NOW).unwrap().day, Pico(10));
        journal.reserve(&ask(1), &none(), NOW).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * BYTES as u64);
    }
    for at in 0..3 * BYTES {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let error = Journal::new(Folder::new(folder.path()))
            .spent("s", "u", NOW)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "byte {at}");
        let offset = (at / BYTES * BYTES).to_string();
        assert!(error.to_string().contains(&format!("at byte {offset};")), "{error}");
    }
}

/// What a child does: reserves, notes the bill as the one that sends would cause it, settles; without end.
fn spend(folder: &Path) {
    let caps = Caps {
        day: Some(Pico(CAP)),
        ..none()
    };
    let mut bills = fs::File::options()
        .append(true)
        .create(true)
        .open(folder.join("bills"))
        .unwrap();
    let mut journal = Journal::new(Folder::new(folder));
    journal.compact_records = 64;
    loop {
        match journal.reserve(&ask(10), &caps, NOW) {
            Ok(reservation) => {
                let bill = 1 + reservation.id % 10;
                bills.write_all(&[bill as u8]).unwrap();
                journal.settle(&reservation, Pico(bill), NOW).unwrap();
            }
            Err(Error::OverCap(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

const CAP: u64 = 3000;
const FOLDER: &str = "CACTUS_TEST_BUDGET_FOLDER";

/// Not a test of its own: what [`killed_processes_leave_a_budget_that_holds`] starts.
#[test]
fn child_of_the_test_with_killed_processes() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        spend(Path::new(&folder));
    }
}

#[test]
fn killed_processes_leave_a_budget_that_holds() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "budget::tests::child_of_the_test_with_killed_processes"]);
        command.env(FOLDER, folder.path()).stdout(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let read = || {
        let billed: u64 = fs::read(folder.path().join("bills"))
            .unwrap_or_default()
            .iter()
            .map(|b| u64::from(*b))
            .sum();
        // Bills first: those that come after are not in the sum.
        let spent = Journal::new(Folder::new(folder.path()))
            .spent("s", "u", NOW)
            .unwrap()
            .day
            .0;
        assert!(billed <= spent && spent <= CAP, "billed {billed}, spent {spent}");
        billed
    };
    let (mut children, mut kills) = (vec![start(), start(), start()], 0);
    while kills < 40 {
        std::thread::sleep(std::time::Duration::from_millis(3 + kills * 7 % 11));
        let which = kills as usize % children.len();
        children[which].kill().unwrap();
        children[which].wait().unwrap();
        read();
        children[which] = start();
        kills += 1;
    }
    // Whoever is left spends the rest.
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let billed = read();
    assert!(billed > CAP / 4, "only {billed} was spent: the test saw little");
}

/// Any record with a right checksum: what somebody may write who means harm.
fn records() -> impl Strategy<Value = Record> {
    let number = || prop_oneof![Just(0), Just(u64::MAX), Just(NOW), 0..100u64, any::<u64>()];
    (0..7u8, number(), number(), number(), number(), number()).prop_map(|(kind, id, seconds, amount, a, b)| {
        let amount = Pico(amount);
        let total = |sum| Record::Total { sum, seconds, amount };
        match kind {
            0 => Record::Header { next: id, seconds },
            1 => Record::Settle { id, seconds, amount },
            2 => total(Sum::Session(a)),
            3 => total(Sum::Day(a)),
            4 => total(Sum::Month(a)),
            5 => total(Sum::User { user: a, month: b }),
            _ => Record::Reserve(Reserved {
                id,
                seconds,
                amount,
                session: a,
                user: b,
            }),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn hostile_journal_gives_errors_and_never_room_beyond_a_cap(
        records in prop::collection::vec(records(), 0..12), generation in any::<u64>(), tail in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let header = Record::Header { next: 3, seconds: NOW };
        let all = [header].into_iter().chain(records).flat_map(|record| record.bytes(generation));
        let bytes: Vec<u8> = all.chain(tail).collect();
        fs::write(folder.path().join("budget.journal"), bytes).unwrap();
        let mut journal = Journal::new(Folder::new(folder.path()));
        journal.compact_records = 4;
        let caps = Caps { day: Some(Pico(50)), ..none() };
        for _ in 0..3 {
            let before = journal.spent("s", "u", NOW);
            if journal.reserve(&ask(20), &caps, NOW).is_ok() {
                prop_assert!(before.unwrap().day <= Pico(30));
            }
            let _ = journal.compact();
        }
    }
}
