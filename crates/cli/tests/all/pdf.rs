//! PDFs of a folder, whose text comes from a process with limits: found with their pages, and named where they cannot be read.

use crate::cactus::Cactus;
use cactus_rag::{Extract as _, Limits, Program, Unread};
use cactus_testkit::pdf;
use proptest::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const COLUMNS: &[u8] = include_bytes!("../../../../golden/pdf/columns.pdf");
const ENCRYPTED: &[u8] = include_bytes!("../../../../golden/pdf/encrypted.pdf");

fn program(limits: Limits) -> Program {
    Program::new(Path::new(env!("CARGO_BIN_EXE_cactus")), limits)
}

/// The pages of a file with these bytes.
fn pages(program: &Program, bytes: &[u8]) -> Result<Vec<String>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    program.pages(file.path(), &|| false).map_err(|unread| match unread {
        Unread::Because(reason) | Unread::Untried(reason) => reason,
        Unread::Cancelled => panic!("nobody stopped it"),
    })
}

#[test]
fn folder_with_pdfs_is_indexed_and_searched_by_page() {
    let c = Cactus::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/bert");
    c.ok(&["convert", source.to_str().unwrap(), "e"]);
    let write = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(c.0.path().join("notes")).unwrap();
        fs::write(c.0.path().join("notes").join(name), bytes).unwrap();
    };
    write(
        "bread.pdf",
        &pdf::of_pages(&["Flour, water and salt.", "Bake it for forty minutes."]),
    );
    write("scan.pdf", &pdf::of_pages(&["", ""]));
    write("secret.pdf", ENCRYPTED);
    write("damaged.pdf", &COLUMNS[..300]);
    write("tea.txt", b"Tea is made with hot water.\n");
    let made: Value = serde_json::from_str(&c.ok(&["index", "notes", "--embedder", "e", "--json"])).unwrap();
    assert_eq!((&made["files"], &made["added"]), (&5.into(), &2.into()), "{made}");
    let skipped = made["skipped"].as_array().unwrap();
    for (one, (path, said)) in skipped.iter().zip([
        ("damaged.pdf", "open it in a viewer"),
        ("scan.pdf", "its 2 pages have no text"),
        ("secret.pdf", "save it without a password"),
    ]) {
        assert_eq!(one["path"], path);
        assert!(one["reason"].as_str().unwrap().contains(said), "{one}");
    }
    assert_eq!(skipped.len(), 3);

    let found: Value =
        serde_json::from_str(&c.ok(&["search", "notes", "forty minutes", "--json", "--top", "1"])).unwrap();
    let best = &found["results"][0];
    assert_eq!(
        (&best["path"], &best["page"]),
        (&"bread.pdf".into(), &2.into()),
        "{found}"
    );
    assert_eq!(
        (&best["text"], &best["is_current"]),
        (&"Bake it for forty minutes.".into(), &true.into())
    );
    let shown = c.ok(&["search", "notes", "forty minutes", "--top", "1", "--no-sync"]);
    assert!(shown.starts_with("bread.pdf, page 2"), "{shown}");
    let said = c.run(&[
        "ask",
        "notes",
        "forty minutes",
        "--model",
        "m",
        "--top",
        "1",
        "--max-new-tokens",
        "2",
    ]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("[1] bread.pdf, page 2"), "{said}");
}

#[test]
fn text_comes_as_lines_of_json() {
    let c = Cactus::new();
    fs::write(c.0.path().join("a.pdf"), pdf::of_pages(&["One.", "Two."])).unwrap();
    let out = c.ok(&["extract-pdf", "a.pdf"]);
    let want = "{\"page\":1,\"text\":\"One.\"}\n{\"page\":2,\"text\":\"Two.\"}\n{\"pages\":2,\"unknown_glyphs\":0}\n";
    assert_eq!(out, want);
    for (args, said) in [
        (vec!["extract-pdf", "none.pdf"], "\"error\":\"io\""),
        (vec!["extract-pdf", "a.pdf", "--text", "5"], "\"error\":\"too_much\""),
    ] {
        let out = c.run(&args);
        let written = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.code() == Some(1) && written.contains(said),
            "{args:?}: {written}"
        );
    }
    assert!(!c.ok(&["--help"]).contains("extract-pdf"));
}

#[test]
fn what_asks_for_more_than_there_is_is_ended() {
    let limits = Limits {
        time: Duration::from_secs(2),
        ..Limits::default()
    };
    let begun = Instant::now();
    let reason = pages(&program(limits), &pdf::endless(40)).unwrap_err();
    assert!(
        reason.contains("longer than 2 s") || reason.contains("memory"),
        "{reason}"
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_held_to_its_limit() {
    let limits = Limits {
        memory_bytes: 96 << 20,
        ..Limits::default()
    };
    assert_eq!(pages(&program(limits), &pdf::of_pages(&["One."])).unwrap(), ["One."]);
    // A page whose glyphs alone take more.
    let line = "many words in a row ".repeat(40);
    let text = format!("{line}\n").repeat(4000);
    let reason = pages(&program(limits), &pdf::of_pages(&[&text])).unwrap_err();
    assert!(reason.contains("more than 96 MB of memory"), "{reason}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_neither_hang_nor_end_whoever_reads_them(
        cut in 0..=COLUMNS.len(),
        flips in prop::collection::vec((0..COLUMNS.len(), 1u8..), 0..16),
    ) {
        let mut bytes = COLUMNS[..cut].to_vec();
        for (at, bits) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        }
        let limits = Limits { time: Duration::from_secs(10), ..Limits::default() };
        let begun = Instant::now();
        match pages(&program(limits), &bytes) {
            Ok(pages) => prop_assert!(!pages.is_empty()),
            Err(reason) => prop_assert!(!reason.is_empty() && reason.lines().count() == 1, "{}", reason),
        }
        prop_assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
