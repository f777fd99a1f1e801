//! PDFs in vector stores, and folders of documents that are searched like stores.

use crate::support::{Server, bundle, embedder};
use cactus_rag::{Extract, Unread};
use cactus_serve::models::Source;
use cactus_serve::{Documents, ServeOptions, Watch};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BREAD: &str = "# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n";

fn server(change: impl FnOnce(&mut ServeOptions)) -> Server {
    let writer = Source {
        name: "tiny".to_owned(),
        ..Source::folder(bundle())
    };
    Server::of(vec![writer, Source::folder(embedder())], |options, _| change(options))
}

/// Lines are pages, where there is a `%PDF` before them.
#[derive(Debug)]
struct Lines;

impl Extract for Lines {
    fn pages(&self, path: &Path, _: &dyn Fn() -> bool) -> Result<Vec<String>, Unread> {
        let text = fs::read_to_string(path).unwrap();
        match text.strip_prefix("%PDF-\n") {
            Some(pages) => Ok(pages.lines().map(str::to_owned).collect()),
            None => Err(Unread::Because("it is damaged; save it again".to_owned())),
        }
    }
}

/// Changes are counted by whoever makes them.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Watch for Counted {
    fn wait(&self, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        while !stop() {
            let seen = self
                .0
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            if seen.is_ok() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

fn uploaded(server: &Server, name: &str, content: &str) -> String {
    let body = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nassistants\r\n--XX\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n--XX--\r\n"
    );
    let kind = ("content-type", "multipart/form-data; boundary=XX");
    let sent = server.send("POST", "/v1/files", &[kind], body.as_bytes()).json();
    sent["id"].as_str().unwrap().to_owned()
}

fn settled(server: &Server, store: &str) -> Value {
    let path = format!("/v1/vector_stores/{store}");
    server.wait("documents are not read", |server| {
        server.get(&path).json()["status"] == "completed"
    });
    server.get(&path).json()
}

fn search(server: &Server, store: &str, question: &str) -> Vec<Value> {
    let path = format!("/v1/vector_stores/{store}/search");
    let found = server.post(&path, &json!({"query": question})).json();
    found["data"].as_array().unwrap().clone()
}

#[test]
fn pdfs_are_read_into_stores_and_found_by_page() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_owned();
    let server = server(|options| {
        options.data = Some(folder);
        options.extract = Some(Arc::new(Lines));
    });
    let files = [
        uploaded(
            &server,
            "bread.pdf",
            "%PDF-\nFlour, water and salt.\nBake it for forty minutes.",
        ),
        // Its first bytes say what it is.
        uploaded(&server, "tea", "%PDF-\nGreen tea in hot water."),
        uploaded(&server, "damaged.pdf", "PDF"),
    ];
    let made = server
        .post("/v1/vector_stores", &json!({"name": "Notes", "file_ids": files}))
        .json();
    let store = made["id"].as_str().unwrap().to_owned();
    let counts = settled(&server, &store)["file_counts"].clone();
    assert_eq!((&counts["completed"], &counts["failed"]), (&json!(2), &json!(1)));
    let failed = server
        .get(&format!("/v1/vector_stores/{store}/files/{}", files[2]))
        .json();
    assert_eq!(failed["last_error"]["message"], "it is damaged; save it again");
    let best = &search(&server, &store, "forty minutes")[0];
    assert_eq!((&best["filename"], &best["page"]), (&json!("bread.pdf"), &json!(2)));
    assert_eq!(search(&server, &store, "green tea")[0]["page"], 1);
}

#[test]
fn folders_are_searched_like_stores_and_kept_in_step() {
    let notes = tempfile::tempdir().unwrap();
    let folder = notes.path().join("notes");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("bread.md"), BREAD).unwrap();
    fs::write(
        folder.join("tea.pdf"),
        "%PDF-\nTea is hot.\nGreen tea likes it less hot.",
    )
    .unwrap();
    fs::write(folder.join("broken.pdf"), "").unwrap();
    let watch = Arc::new(Counted::default());
    let documents = Documents {
        folder: folder.clone(),
        index: folder.join(".cactus-index"),
        watch: Some(Arc::clone(&watch) as Arc<dyn Watch>),
    };
    let mut server = server(|options| {
        options.documents = vec![documents];
        options.extract = Some(Arc::new(Lines));
    });
    let listed = server.get("/v1/vector_stores").json();
    let store = listed["data"][0]["id"].as_str().unwrap().to_owned();
    let card = settled(&server, &store);
    assert_eq!(
        (&card["name"], &card["embedder"]),
        (&json!("notes"), &json!("bert")),
        "{card}"
    );
    assert_eq!(
        (&card["file_counts"]["completed"], &card["file_counts"]["failed"]),
        (&json!(2), &json!(1))
    );
    assert!(
        !card.to_string().contains(folder.to_str().unwrap()),
        "nobody is told where it is"
    );

    let best = &search(&server, &store, "forty minutes")[0];
    assert_eq!(
        (&best["filename"], &best["lines"], &best["headings"]),
        (&json!("bread.md"), &json!([7, 7]), &json!(["Bread", "Baking"]))
    );
    let tool = json!({"type": "file_search", "vector_store_ids": [store], "max_num_results": 1});
    let asked =
        json!({"input": "Green", "tools": [tool], "max_output_tokens": 2, "include": ["file_search_call.results"]});
    let answer = server.post("/v1/responses", &asked).json();
    let result = &answer["output"][0]["results"][0];
    assert_eq!(
        (&result["filename"], &result["page"], &result["number"]),
        (&json!("tea.pdf"), &json!(2), &json!(1)),
        "{answer}"
    );

    fs::write(folder.join("coffee.txt"), "Coffee is ground.").unwrap();
    watch.0.fetch_add(1, Ordering::AcqRel);
    server.wait("the folder is not read again", |server| {
        search(server, &store, "coffee ground")
            .first()
            .is_some_and(|best| best["filename"] == "coffee.txt")
    });

    // What is in it is what lies in the folder.
    for (method, path) in [
        ("POST", String::new()),
        ("DELETE", String::new()),
        ("POST", "/files".to_owned()),
        ("GET", "/files".to_owned()),
        ("DELETE", "/files/bread.md".to_owned()),
        ("POST", "/file_batches".to_owned()),
        ("GET", "/file_batches/x".to_owned()),
    ] {
        let reply = server.send(method, &format!("/v1/vector_stores/{store}{path}"), &[], b"{}");
        assert_eq!(reply.error(400)["error"]["code"], "folder_store", "{method} {path}");
    }
    assert_eq!(server.get("/v1/files").error(404)["error"]["code"], "no_data_folder");
    assert!(server.get("/").body.contains("data-documents=\"folders\""));
    server.stop();
    server.join();
}

#[test]
fn page_knows_what_it_may_ask_for() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_owned();
    for (keeps, expected) in [(None, ""), (Some(folder), "files")] {
        let server = server(|options| options.data = keeps);
        assert!(
            server
                .get("/")
                .body
                .contains(&format!("<body data-documents=\"{expected}\">")),
            "{expected}"
        );
    }
}
