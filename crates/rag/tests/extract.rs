//! PDFs, whose pages come from elsewhere: from a table, and from programs that misbehave.

mod words;

use cactus_rag::{Corpus, Extract, Kind, Nearness, Rules, Sources, Synced, Unread, pieces};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use words::Words;

/// The lines of a file are its pages, where it says so.
#[derive(Debug, Default)]
struct Lines {
    asked: AtomicUsize,
}

impl Extract for Lines {
    fn pages(&self, path: &Path, stop: &dyn Fn() -> bool) -> Result<Vec<String>, Unread> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if stop() {
            return Err(Unread::Cancelled);
        }
        let text = fs::read_to_string(path).unwrap();
        match text.strip_prefix("pages:\n") {
            Some(pages) => Ok(pages.lines().map(|page| page.replace('|', "\n\n")).collect()),
            None => Err(Unread::Because("no pages".to_owned())),
        }
    }
}

const BREAD: &str =
    "pages:\nBread is made of flour.\nBake it for forty minutes.|Let it cool.\n\nIt keeps for four days.\n";

#[test]
fn pieces_stand_on_one_page_each() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bread.pdf"), BREAD).unwrap();
    fs::write(dir.path().join("tea.PDF"), "no").unwrap();
    fs::write(dir.path().join("tea.txt"), "Tea is made with hot water.").unwrap();
    let (model, lines) = (Words::new(), Arc::new(Lines::default()));
    let corpus =
        Corpus::new(dir.path(), &dir.path().join("index")).with_extract(Arc::clone(&lines) as Arc<dyn Extract>);
    let sync = || -> Synced { corpus.sync(&model, &|| false, &mut |_| {}).unwrap() };
    let first = sync();
    assert_eq!((first.files, first.added, first.pieces), (3, 2, 4));
    assert_eq!(
        (first.skipped[0].path.as_str(), first.skipped[0].reason.as_str()),
        ("tea.PDF", "no pages")
    );

    let found = corpus
        .search(&model, "bake it for forty minutes", 1, Nearness::Any)
        .unwrap();
    assert_eq!(
        (found[0].page, found[0].text.as_str()),
        (Some(2), "Bake it for forty minutes.\n\nLet it cool.")
    );
    assert_eq!(found[0].to_json(dir.path())["page"], 2);
    assert!(
        found[0].is_current(dir.path()),
        "the file is as it was, though its bytes are others than those of its text"
    );
    assert!(
        Sources::new(found)
            .instructions()
            .contains("from=\"bread.pdf, page 2\"")
    );
    let last = corpus
        .search(&model, "it keeps for four days", 1, Nearness::Any)
        .unwrap();
    assert_eq!(last[0].page, Some(4));
    let tea = corpus.search(&model, "tea with hot water", 1, Nearness::Any).unwrap();
    assert_eq!((tea[0].page, tea[0].path.as_str()), (None, "tea.txt"));

    // What has not changed is not asked again, whether it was read or not.
    assert_eq!(lines.asked.load(Ordering::Relaxed), 2);
    assert_eq!((sync().skipped.len(), lines.asked.load(Ordering::Relaxed)), (1, 2));
    fs::write(dir.path().join("tea.PDF"), "pages:\nGreen tea likes it less hot.").unwrap();
    let again = sync();
    assert_eq!((again.skipped.len(), again.added, again.pieces), (0, 1, 5));
}

#[test]
fn without_a_program_pdfs_are_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bread.pdf"), BREAD).unwrap();
    let corpus = Corpus::new(dir.path(), &dir.path().join("index"));
    let synced = corpus.sync(&Words::new(), &|| false, &mut |_| {}).unwrap();
    assert_eq!((synced.pieces, synced.skipped.len()), (0, 1));
    assert!(synced.skipped[0].reason.contains("CACTUS_PROGRAM"), "{synced:?}");
}

#[test]
fn pages_are_cut_alone() {
    let source = "One two three.\n\u{c}\u{c}Four five.\n\nSix seven eight nine ten eleven.\u{c}Twelve.";
    let count = |text: &str| text.split_whitespace().count();
    let rules = Rules {
        most_tokens: 6,
        count: &count,
    };
    let found: Vec<(usize, &str)> = Vec::new();
    let cut = pieces(Kind::Pdf, source, rules);
    let cut = cut.iter().map(|piece| {
        assert_eq!(&source[piece.bytes.clone()], piece.text);
        (piece.page.unwrap(), piece.text.as_str())
    });
    let found: Vec<_> = found.into_iter().chain(cut).collect();
    let want = [
        (1, "One two three."),
        (3, "Four five."),
        (3, "Six seven eight nine ten eleven."),
        (4, "Twelve."),
    ];
    assert_eq!(found, want);
}

#[cfg(unix)]
mod programs {
    use super::*;
    use cactus_rag::{Limits, Program};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    const LIMITS: Limits = Limits {
        time: Duration::from_millis(800),
        memory_bytes: 1 << 28,
        text_bytes: 1000,
    };

    /// What a program gives that is this script; the file beside it is the document.
    fn run(script: &str, stop: &dyn Fn() -> bool) -> Result<Vec<String>, Unread> {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (dir.path().join("cactus"), dir.path().join("a.pdf"));
        fs::write(&file, "Bread").unwrap();
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Program::new(&program, LIMITS).pages(&file, stop)
    }

    fn refused(script: &str) -> String {
        match run(script, &|| false) {
            Err(Unread::Because(reason)) => reason,
            other => panic!("{script}: {other:?}"),
        }
    }

    #[test]
    fn program_reads_the_file_and_is_told_its_limits() {
        let script =
            r#"read text; echo "{\"page\": 1, \"text\": \"$text $*\"}"; echo '{"pages": 1, "unknown_glyphs": 0}'"#;
        let said = run(script, &|| false).unwrap();
        assert_eq!(said, ["Bread extract-pdf --memory 268435456 --seconds 1 --text 1000"]);
    }

    #[test]
    fn program_that_misbehaves_is_ended_and_named() {
        let begun = Instant::now();
        for (script, said) in [
            ("exec sleep 60", "longer than 0.8 s"),
            // It says that it is done, and is not.
            ("exec >/dev/null; exec sleep 60", "longer than 0.8 s"),
            ("exec yes '{\"page\": 1, \"text\": \"\"}'", "bytes of text"),
            (
                r#"printf '{"page": 1, "text": "'; head -c 5000 /dev/zero | tr '\0' x; echo '"}'; echo '{"pages": 1, "unknown_glyphs": 0}'"#,
                "1000 bytes of text",
            ),
            ("kill -ABRT $$", "256 MB of memory"),
            ("exit 101", "256 MB of memory"),
            ("echo nonsense", "wrote no page"),
            ("exit 0", "ended before its last page"),
            (
                r#"echo '{"error": "encrypted", "message": "it is encrypted"}'; exit 1"#,
                "save it without a password",
            ),
        ] {
            let reason = refused(script);
            assert!(reason.contains(said), "{script}: {reason}");
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let nowhere = Program::new(Path::new("/nonexistent/cactus"), LIMITS);
        let Err(Unread::Untried(reason)) = nowhere.pages(Path::new("Cargo.toml"), &|| false) else {
            panic!("there is no such program");
        };
        assert!(reason.contains("/nonexistent/cactus` cannot be started"), "{reason}");
    }

    #[test]
    fn program_ends_where_nobody_wants_it_any_more() {
        let begun = Instant::now();
        let stop = || begun.elapsed() > Duration::from_millis(100);
        assert_eq!(run("exec sleep 60", &stop), Err(Unread::Cancelled));
        assert!(begun.elapsed() < LIMITS.time);
    }
}
