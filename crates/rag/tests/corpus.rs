//! A folder and its index, with a model that counts words.

mod words;

use cactus_rag::{Corpus, Error, Found, Nearness, Sources, Synced};
use std::fs;
use std::path::Path;
use words::Words;

struct Case {
    dir: tempfile::TempDir,
    model: Words,
}

impl Case {
    fn new(files: &[(&str, &str)]) -> Case {
        let case = Case {
            dir: tempfile::tempdir().unwrap(),
            model: Words::new(),
        };
        for (name, text) in files {
            case.write(name, text.as_bytes());
        }
        case
    }

    fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("folder")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn corpus(&self) -> Corpus {
        Corpus::new(&self.folder(), &self.dir.path().join("index"))
    }

    fn sync(&self) -> Synced {
        self.corpus().sync(&self.model, &|| false, &mut |_| {}).unwrap()
    }
}

const BREAD: &str = "# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n";
const TEA: &str = "Tea is made with hot water.\n\nGreen tea likes it less hot.\n";

#[test]
fn pieces_are_found_with_their_places() {
    let case = Case::new(&[("a/bread.md", BREAD), ("tea.txt", TEA)]);
    let synced = case.sync();
    assert_eq!(
        (synced.files, synced.added, synced.embedded, synced.pieces),
        (2, 2, 3, 3)
    );
    let found = case
        .corpus()
        .search(&case.model, "how long to bake", 2, Nearness::Any)
        .unwrap();
    // Nearness is asked of every piece, not of the first ones alone.
    let nearest = |least| {
        case.corpus()
            .search(&case.model, "how long to bake", 1, Nearness::AtLeast(least))
            .unwrap()
    };
    let highest = found.iter().filter_map(|one| one.similarity).fold(-1.0, f32::max);
    assert_eq!(nearest(-1.0), found[..1]);
    assert_eq!(nearest(highest)[0].similarity, Some(highest));
    assert_eq!(nearest(1.1), []);
    let best = &found[0];
    assert_eq!(
        (best.path.as_str(), best.headings.join("/")),
        ("a/bread.md", "Bread/Baking".to_owned())
    );
    assert_eq!(&BREAD[best.bytes.clone()], best.text);
    assert_eq!((best.text.as_str(), best.lines), ("Bake it for forty minutes.", [7, 7]));
    assert!(best.similarity.unwrap() > 0.1 && best.bm25.unwrap() > 0.0);
    assert!(best.is_current(&case.folder()));
    case.write("a/bread.md", b"other");
    assert!(!best.is_current(&case.folder()));
    let sources = Sources::new(found);
    assert!(sources.instructions().contains("a/bread.md, Bread > Baking"));
}

#[test]
fn only_what_is_new_gets_a_vector() {
    let case = Case::new(&[("bread.md", BREAD), ("tea.txt", TEA)]);
    case.sync();
    assert_eq!(case.model.taken().len(), 3);
    let again = case.sync();
    assert_eq!(
        (again.added, again.changed, again.removed, again.embedded),
        (0, 0, 0, 0)
    );
    assert_eq!(again.pieces, 3);

    // What stood behind moves, and keeps its vector.
    let longer = BREAD.replace("salt.", "salt, and a little yeast.");
    case.write("bread.md", longer.as_bytes());
    let synced = case.sync();
    assert_eq!((synced.changed, synced.embedded, synced.pieces), (1, 1, 3));
    assert_eq!(
        case.model.taken(),
        ["Bread\nFlour, water and salt, and a little yeast."]
    );
    let found = case
        .corpus()
        .search(&case.model, "bake forty minutes", 1, Nearness::Any)
        .unwrap();
    assert_eq!(&longer[found[0].bytes.clone()], "Bake it for forty minutes.");
    assert!(found[0].is_current(&case.folder()));

    // Written again with the same bytes, nothing has changed.
    case.write("bread.md", longer.as_bytes());
    assert_eq!((case.sync().changed, case.model.taken().len()), (0, 0));

    fs::remove_file(case.folder().join("tea.txt")).unwrap();
    let synced = case.sync();
    assert_eq!((synced.removed, synced.embedded, synced.pieces), (1, 0, 2));
    let found = case
        .corpus()
        .search(&case.model, "green tea", 10, Nearness::Any)
        .unwrap();
    assert!(found.iter().all(|found| found.path == "bread.md"));
}

#[test]
fn what_is_no_document_is_left_out_and_said() {
    let case = Case::new(&[
        ("a.txt", "one"),
        (".hidden.txt", "two"),
        ("build/b.txt", "three"),
        (".gitignore", "build/\n"),
        ("picture.png", "four"),
        ("empty.md", "\n"),
    ]);
    case.write("bytes.txt", b"a\0b");
    case.write("latin.txt", b"caf\xe9");
    let synced = case.sync();
    assert_eq!((synced.embedded, synced.pieces), (1, 1));
    let skipped: Vec<(&str, bool)> = synced
        .skipped
        .iter()
        .map(|s| (s.path.as_str(), s.reason.contains("not UTF-8")))
        .collect();
    assert_eq!(skipped, [("bytes.txt", false), ("latin.txt", true)]);
    // A document that became none is forgotten.
    case.write("a.txt", b"one\0two");
    assert_eq!(case.sync().pieces, 0);
}

#[test]
fn what_was_done_stays_where_it_is_stopped() {
    let case = Case::new(&[("a.txt", "one"), ("b.txt", "two"), ("c.txt", "three")]);
    let two = || case.model.made.borrow().len() == 2;
    let error = case.corpus().sync(&case.model, &two, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    assert_eq!(case.model.taken().len(), 2);
    case.model.fails.set(true);
    let error = case.corpus().sync(&case.model, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no model today") && error.kind() == "embed");
    case.model.fails.set(false);
    let synced = case.sync();
    assert_eq!((synced.embedded, synced.pieces), (1, 3));
}

#[test]
fn long_file_is_left_out_where_it_is_stopped_within() {
    let paragraph = |i: usize| format!("{} {i}.\n\n", "word ".repeat(11));
    let long: String = (0..40).map(paragraph).collect();
    let case = Case::new(&[("a.txt", "one"), ("long.txt", &long)]);
    let some = || case.model.made.borrow().len() > 1;
    let error = case.corpus().sync(&case.model, &some, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    assert!((2..41).contains(&case.model.taken().len()), "not all of it got vectors");
    let paths = |found: Vec<Found>| found.into_iter().map(|one| one.path).collect::<Vec<_>>();
    assert_eq!(
        paths(case.corpus().search(&case.model, "word", 100, Nearness::Any).unwrap()),
        ["a.txt"]
    );
    assert_eq!(case.sync().pieces, 41);
}

#[test]
fn an_index_of_something_else_is_refused() {
    let case = Case::new(&[("a.txt", "one")]);
    let error = case.corpus().search(&case.model, "one", 1, Nearness::Any).unwrap_err();
    assert_eq!(error.kind(), "index");
    case.sync();
    let other = Words {
        name: "another",
        ..Words::new()
    };
    let error = case.corpus().sync(&other, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("another"), "{error}");
    let missing = Corpus::new(Path::new("/nonexistent"), &case.dir.path().join("other"));
    let error = missing.sync(&case.model, &|| false, &mut |_| {}).unwrap_err();
    assert!(
        error.kind() == "folder" && error.to_string().contains("/nonexistent"),
        "{error}"
    );
    assert!(!case.dir.path().join("other").exists());
}

#[test]
fn what_is_in_step_is_found_so_while_somebody_writes() {
    let case = Case::new(&[("tea.txt", TEA), ("empty.txt", "")]);
    assert_eq!(case.sync().added, 1);
    let index = case.dir.path().join("index");
    let writer = cactus_retrieval::Index::open(&index, None).unwrap();
    let synced = case.sync();
    assert!(synced.is_unchanged() && synced.pieces == 1, "{synced:?}");
    // A change has to be written.
    case.write("bread.md", BREAD.as_bytes());
    let error = case.corpus().sync(&case.model, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.is_busy(), "{error}");
    drop(writer);
    assert_eq!(case.sync().added, 1);
}

#[test]
fn what_cannot_be_read_is_tried_once() {
    let case = Case::new(&[("tea.txt", TEA), ("spaces.txt", " \n\n")]);
    case.write("latin.txt", b"caf\xe9");
    case.write("wide.txt", b"\xff\xfea\0");
    let skipped = |synced: &Synced| synced.skipped.iter().map(|s| s.path.clone()).collect::<Vec<_>>();
    let first = case.sync();
    assert_eq!(
        (first.added, skipped(&first)),
        (1, vec!["latin.txt".to_owned(), "wide.txt".to_owned()])
    );
    assert!(first.skipped[1].reason.contains("UTF-16"), "{first:?}");
    // Whoever else opens the index knows of it, and need not write.
    let writer = cactus_retrieval::Index::open(&case.dir.path().join("index"), None).unwrap();
    let again = case.sync();
    assert!(again.is_unchanged());
    assert_eq!((again.files, again.pieces, &again.skipped), (4, 1, &first.skipped));
    let corpus = case.corpus();
    corpus.try_again();
    let error = corpus.sync(&case.model, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.is_busy(), "{error}");
    drop(writer);
    // What it knows is a memo.
    let memo = case.dir.path().join("index.unread");
    for damaged in ["", "{}", r#"{"version": "0", "files": {}}"#] {
        fs::write(&memo, damaged).unwrap();
        assert_eq!(case.sync().skipped, first.skipped);
    }
    case.write("latin.txt", "café".as_bytes());
    case.write("wide.txt", b"a");
    let mended = case.sync();
    assert!(mended.skipped.is_empty() && mended.added == 2, "{mended:?}");
    fs::remove_file(case.folder().join("spaces.txt")).unwrap();
    for name in ["latin.txt", "wide.txt"] {
        fs::remove_file(case.folder().join(name)).unwrap();
    }
    case.sync();
    assert!(!memo.exists(), "nothing is left to know");
}

#[test]
fn headings_are_among_the_words_of_what_is_under_them() {
    let text = "# Pumps\n\n## Error E4711\n\nRestart the machine.\n\n## Buy zebra food\n\n# Platypus care\n";
    let case = Case::new(&[("list.md", text), ("tea.txt", TEA)]);
    case.sync();
    let best = |question: &str| {
        let found = case
            .corpus()
            .search(&case.model, question, 1, Nearness::Related)
            .unwrap();
        let [found] = &found[..] else {
            panic!("{question}: {found:?}")
        };
        assert!(found.bm25.is_some_and(|score| score > 0.0), "{question}");
        assert_eq!(text[found.bytes.clone()], found.text, "{question}");
        (found.headings.join("/"), found.text.clone())
    };
    let piece = |headings: &str, text: &str| (headings.to_owned(), text.to_owned());
    assert_eq!(best("E4711"), piece("Pumps/Error E4711", "Restart the machine."));
    // Nothing is under these.
    assert_eq!(best("zebra food"), piece("Pumps", "## Buy zebra food"));
    assert_eq!(best("platypus"), piece("", "# Platypus care"));
}

#[test]
fn a_mark_of_the_order_of_bytes_hides_no_heading() {
    let marked = format!("\u{feff}{BREAD}");
    let case = Case::new(&[("bread.md", &marked)]);
    case.sync();
    let found = case.corpus().search(&case.model, "flour", 1, Nearness::Any).unwrap();
    assert_eq!(found[0].headings, ["Bread"]);
    assert_eq!(&marked[found[0].bytes.clone()], found[0].text);
}

#[test]
fn space_of_what_is_gone_is_given_back() {
    let case = Case::new(&[]);
    let mut written = 0;
    for i in 0..150 {
        // Long words: few pieces, and many bytes.
        let text: String = (0..40)
            .map(|word| format!("{i}x{word}x{} ", "y".repeat(2500)))
            .collect();
        case.write("numbers.txt", text.as_bytes());
        written += text.len() as u64;
        case.sync();
    }
    let index = case.dir.path().join("index");
    let size = cactus_retrieval::Reader::open(&index, None).unwrap().size();
    let most = 2 * (size.bytes - size.unused_bytes) + (8 << 20);
    assert!(size.bytes <= most && most < written, "{written} {size:?}");
    assert!(case.sync().is_unchanged());
}

#[cfg(unix)]
#[test]
fn folders_that_cannot_be_read_are_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let case = Case::new(&[("tea.txt", TEA), ("closed/bread.md", BREAD)]);
    let closed = case.folder().join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Whoever may read everything reads it all the same.
    let is_closed = fs::read_dir(&closed).is_err();
    let synced = case.sync();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let skipped: Vec<&str> = synced.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
    assert_eq!(synced.files, 2);
    assert_eq!(skipped, if is_closed { vec!["closed"] } else { vec![] });
    let folder = case.folder().display().to_string();
    assert!(synced.skipped.iter().all(|skipped| !skipped.reason.contains(&folder)));
}
