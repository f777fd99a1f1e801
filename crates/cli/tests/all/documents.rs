//! Documents of a folder, from the command line: indexed, searched, and asked about.

use crate::cactus::Cactus;
use serde_json::Value;
use std::fs;

impl Cactus {
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }
}

const BREAD: &str = "# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n";

/// A folder with two documents, and a model of vectors `e`.
fn folder() -> Cactus {
    let c = Cactus::new();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding");
    for (model, name) in [("bert", "e"), ("bert_ranker", "r")] {
        c.ok(&["convert", source.join(model).to_str().unwrap(), name]);
    }
    c.write("notes/bread.md", BREAD);
    c.write("notes/tea.txt", "Tea is made with hot water.\n");
    c
}

#[test]
fn folder_is_indexed_and_searched() {
    let c = folder();
    let made = c.json(&["index", "notes", "--embedder", "e", "--json"]);
    let pieces = made["pieces"].as_u64().unwrap();
    assert_eq!((&made["files"], &made["embedded"]), (&2.into(), &pieces.into()));
    assert!(pieces >= 3, "a piece for each heading, and one for the text: {made}");
    let again = c.ok(&["index", "notes"]);
    let want = format!("files: 2 (0 new, 0 changed, 0 gone)    pieces: {pieces} (0 got a vector)");
    assert!(again.starts_with(&want), "{again}");

    // Words alone decide here: these weights mean nothing.
    c.write("notes/tea.txt", "Tea is made with hot water.\n\nIt is not baked.\n");
    let found = c.json(&["search", "notes", "forty minutes", "--json", "--top", "2"]);
    let best = &found["results"][0];
    assert_eq!(
        (&best["path"], &best["lines"]),
        (&"bread.md".into(), &serde_json::json!([7, 7]))
    );
    let bytes: Vec<usize> = serde_json::from_value(best["bytes"].clone()).unwrap();
    assert_eq!(&BREAD[bytes[0]..bytes[1]], best["text"]);
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    let shown = c.ok(&["search", "notes", "forty minutes", "--top", "1", "--rerank", "r"]);
    assert!(shown.contains(".md:") || shown.contains("tea.txt:"), "{shown}");

    let least = best["similarity"].as_f64().unwrap();
    for (more, count) in [(-0.001, 1), (0.001, 0)] {
        let least = (least + more).to_string();
        let near = c.json(&[
            "search",
            "notes",
            "forty minutes",
            "--json",
            "--top",
            "1",
            "--min-similarity",
            &least,
        ]);
        assert_eq!(near["results"].as_array().unwrap().len(), count, "{least}: {near}");
    }
    let nothing = ["ask", "notes", "forty minutes", "--model", "m", "--min-similarity", "1"];
    let out = c.run(&nothing);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && out.stdout.is_empty() && said.contains("nothing whose cosine"),
        "{said}"
    );
    let told = c.json(&[&nothing[..], &["--json"]].concat());
    assert_eq!(
        (&told["answer"], &told["sources"]),
        (&"".into(), &serde_json::json!([]))
    );
    assert!(
        !c.run(&["search", "notes", "x", "--min-similarity", "2"])
            .status
            .success()
    );

    assert_eq!(best["is_current"], true);
    c.write("notes/bread.md", &BREAD.replace("forty", "fifty"));
    let stale = c.json(&["search", "notes", "forty minutes", "--json", "--no-sync"]);
    assert_eq!(stale["results"][0]["is_current"], false, "{stale}");
    let shown = c.ok(&["search", "notes", "forty minutes", "--top", "1", "--no-sync"]);
    assert!(shown.contains("bread.md:7 (changed since it was read)"), "{shown}");

    fs::remove_file(c.0.path().join("notes/bread.md")).unwrap();
    let kept = c.json(&["search", "notes", "forty minutes", "--json", "--no-sync"]);
    assert!(kept.to_string().contains("bread.md"));
    let gone = c.json(&["search", "notes", "forty minutes", "--json"]);
    assert!(!gone.to_string().contains("bread.md"), "{gone}");
}

#[cfg(unix)]
#[test]
fn folder_is_watched_until_somebody_ends_it() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    let c = folder();
    let mut command = c.command(&["index", "notes", "--embedder", "e", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("2 new"));
    c.write("notes/new/coffee.md", "Coffee is ground.\n");
    assert!(
        next().contains("files: 3 ")
            && c.ok(&["search", "notes", "coffee ground", "--no-sync"])
                .contains("coffee.md:1")
    );
    c.write("notes/tea.txt", "Tea is cold.\n");
    let changed = next();
    assert!(changed.contains("0 new, 1 changed, 0 gone"), "{changed}");
    // What is no document changes nothing, and is not told.
    c.write("notes/.hidden", "x");
    fs::remove_file(c.0.path().join("notes/bread.md")).unwrap();
    let gone = next();
    assert!(gone.contains("0 new, 0 changed, 1 gone"), "{gone}");
    let ended = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(ended.success() && child.wait().unwrap().success());
}

#[test]
fn question_is_answered_with_the_sources_that_were_given() {
    let c = folder();
    let asked = [
        "ask",
        "notes",
        "How long?",
        "--embedder",
        "e",
        "--model",
        "m",
        "--top",
        "1",
        "--max-new-tokens",
        "3",
        // The vectors of a model that has learned nothing tell nothing apart.
        "--min-similarity",
        "any",
    ];
    let told = c.json(&[&asked[..], &["--json"]].concat());
    assert!(told["answer"].is_string() && told["citations"].is_array(), "{told}");
    assert_eq!(
        (&told["sources"][0]["number"], told["sources"].as_array().unwrap().len()),
        (&1.into(), 1)
    );
    let out = c.run(&asked);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("[1] "), "{said}");
}

#[test]
fn what_cannot_be_says_what_to_do() {
    let c = folder();
    c.write("empty/.keep", "");
    let long = "many words ".repeat(999);
    for (args, said) in [
        (vec!["search", "nowhere", "x"], "name the folder"),
        (
            vec!["search", "notes", "x", "--embedder", "m"],
            "makes no vectors of texts",
        ),
        (
            vec!["search", "notes", "x", "--embedder", "m"],
            "`sentence-transformers/all-MiniLM-L6-v2`",
        ),
        (vec!["search", "notes", "x", "--top", "0"], "0 is not in 1.."),
        (
            vec!["search", "notes", "x", "--no-sync"],
            "`cactus index notes` makes one",
        ),
        (vec!["rerank", "r", &long, "a", "--truncate"], "the query has"),
        (
            vec!["serve", "m", "--documents", "notes"],
            "needs a model that makes vectors",
        ),
    ] {
        let out = c.run(&args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && error.contains(said), "{args:?}: {error}");
    }
    let out = c.run(&["ask", "empty", "x", "--embedder", "e"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("no documents"), "{said}");
    c.ok(&["index", "notes", "--embedder", "e"]);
    c.write("notes/more.md", "more");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/xlm_roberta");
    c.ok(&["convert", source.to_str().unwrap(), "x"]);
    let out = c.run(&["index", "notes", "--embedder", "x"]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains("another recipe"), "{error}");
}

#[test]
fn model_that_was_moved_is_named_and_then_remembered() {
    let c = folder();
    c.ok(&["index", "notes", "--embedder", "e"]);
    fs::rename(c.0.path().join("e"), c.0.path().join("moved")).unwrap();
    let out = c.run(&["search", "notes", "bread"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && said.contains("there is none any more") && said.contains("`--embedder MODEL`"),
        "{said}"
    );
    c.ok(&["search", "notes", "bread", "--embedder", "moved"]);
    let made = c.json(&["index", "notes", "--json"]);
    assert!(made["embedder"].as_str().unwrap().ends_with("moved"), "{made}");
    assert_eq!(made["embedded"], 0, "{made}");
}

#[test]
fn what_is_not_read_is_named_by_the_index_and_counted_by_a_search() {
    let c = folder();
    for name in ["a", "b"] {
        fs::write(c.0.path().join(format!("notes/{name}.txt")), b"caf\xe9").unwrap();
    }
    let said = |args: &[&str]| String::from_utf8_lossy(&c.run(args).stderr).into_owned();
    for _ in 0..2 {
        let told = said(&["index", "notes", "--embedder", "e"]);
        assert!(
            told.contains("`a.txt` was not read") && told.contains("`b.txt` was not read"),
            "{told}"
        );
        let told = said(&["search", "notes", "bread"]);
        assert!(
            told.contains("2 files are not searched; `cactus index notes` names them"),
            "{told}"
        );
    }
}

#[test]
fn each_line_of_a_file_has_its_vector() {
    let c = folder();
    c.write("lines.txt", "one\n\nthree\n");
    let made = c.json(&["embed", "e", "--file", "lines.txt", "--json"]);
    let alone = c.json(&["embed", "e", "three", "--json"]);
    assert_eq!(made["vectors"].as_array().unwrap().len(), 3);
    assert_eq!(made["vectors"][2], alone["vectors"][0]);
    c.write("long.txt", &format!("one\n{}\n", "two ".repeat(9_000)));
    let out = c.run(&["embed", "e", "--file", "long.txt"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("line 2"), "{said}");
}
