//! Files, vector stores and searches over HTTP, with a tiny model of vectors.

use crate::support::{Reply, Server, bundle, embedder};
use cactus_serve::ServeOptions;
use cactus_serve::models::Source;
use cactus_serve::protocol::order;
use serde_json::{Value, json};
use std::path::Path;

const BREAD: &str = "# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n";
const TEA: &str = "Tea is made with hot water.\n\nGreen tea likes it less hot.\n";
const KEY: (&str, &str) = ("authorization", "Bearer one");

fn sources() -> Vec<Source> {
    let writer = Source {
        name: "tiny".to_owned(),
        ..Source::folder(bundle())
    };
    vec![writer, Source::folder(embedder())]
}

/// A server that keeps what it gets, and can be started again.
struct Case {
    data: tempfile::TempDir,
    server: Server,
}

impl Case {
    fn new() -> Case {
        Case::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServeOptions)) -> Case {
        let data = tempfile::tempdir().unwrap();
        let server = start(data.path(), change);
        Case { data, server }
    }

    fn restart(self) -> Case {
        self.restart_after(|_| {})
    }

    fn restart_after(mut self, meanwhile: impl FnOnce(&Path)) -> Case {
        self.server.stop();
        self.server.join();
        meanwhile(self.data.path());
        let server = start(self.data.path(), |_| {});
        Case {
            data: self.data,
            server,
        }
    }

    fn get(&self, path: &str) -> Value {
        self.server.get(path).json()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.server.post(path, body).json()
    }

    fn delete(&self, path: &str) -> Reply {
        self.server.send("DELETE", path, &[], b"")
    }

    /// The files that most tests have.
    fn bread_and_tea(&self) -> [String; 2] {
        [
            self.file("bread.md", BREAD.as_bytes()),
            self.file("tea.txt", TEA.as_bytes()),
        ]
    }

    /// Sends a file; its id.
    fn file(&self, name: &str, content: &[u8]) -> String {
        let sent = upload(&self.server, name, "assistants", content, &[]).json();
        assert_eq!(
            (&sent["object"], &sent["bytes"]),
            (&json!("file"), &json!(content.len()))
        );
        id(&sent)
    }

    /// Makes a store of these files, and waits until they are read; its id.
    fn store(&self, files: &[&str]) -> String {
        let store = id(&self.post("/v1/vector_stores", &json!({"name": "Notes", "file_ids": files})));
        self.read(&store);
        store
    }

    /// Waits until all files of a store are read.
    fn read(&self, store: &str) -> Value {
        let path = format!("/v1/vector_stores/{store}");
        self.server.wait("files are not read", |server| {
            server.get(&path).json()["status"] == "completed"
        });
        self.get(&path)
    }

    fn attach(&self, store: &str, body: &Value) {
        self.post(&format!("/v1/vector_stores/{store}/files"), body);
        self.read(store);
    }

    fn search(&self, store: &str, body: &Value) -> Vec<Value> {
        let found = self.post(&format!("/v1/vector_stores/{store}/search"), body);
        assert_eq!(found["object"], "vector_store.search_results.page");
        found["data"].as_array().unwrap().clone()
    }
}

fn start(data: &Path, change: impl FnOnce(&mut ServeOptions)) -> Server {
    let data = data.to_owned();
    Server::of(sources(), |options, _| {
        options.data = Some(data);
        change(options);
    })
}

fn upload(server: &Server, name: &str, purpose: &str, content: &[u8], headers: &[(&str, &str)]) -> Reply {
    let mut body = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--XX\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--XX--\r\n");
    let mut all = vec![("content-type", "multipart/form-data; boundary=XX")];
    all.extend_from_slice(headers);
    server.send("POST", "/v1/files", &all, &body)
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

fn names(found: &[Value]) -> Vec<&str> {
    found.iter().map(|one| one["filename"].as_str().unwrap()).collect()
}

/// Every file below a folder.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => found.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn files_are_kept_whole_and_listed_until_they_are_deleted() {
    let case = Case::with(|options| options.file_bytes = 1000);
    let bytes: Vec<u8> = (0..=255).collect();
    let (one, two) = (case.file("../../etc/a.bin", &bytes), case.file("b.md", b"b"));
    assert_eq!(case.get(&format!("/v1/files/{one}"))["filename"], "a.bin");
    let listed = case.get("/v1/files");
    assert_eq!(
        (&listed["first_id"], &listed["last_id"]),
        (&json!(two), &json!(one)),
        "the newest first"
    );
    let rest = case.get(&format!("/v1/files?limit=1&order=asc&after={one}"));
    assert_eq!((id(&rest["data"][0]), &rest["has_more"]), (two.clone(), &json!(false)));
    assert_eq!(case.get("/v1/files?purpose=batch")["data"], json!([]));

    let case = case.restart();
    let content = case.server.get(&format!("/v1/files/{two}/content"));
    assert_eq!((content.status, content.body.as_str()), (200, "b"));
    assert_eq!(content.header("content-type"), Some("application/octet-stream"));
    assert_eq!(
        std::fs::read(case.data.path().join("files").join(&one).with_extension("bin")).unwrap(),
        bytes
    );
    assert_eq!(case.delete(&format!("/v1/files/{one}")).json()["deleted"], true);
    assert_eq!(
        case.delete(&format!("/v1/files/{one}")).error(404)["error"]["code"],
        "not_found"
    );
    assert_eq!(
        files_below(case.data.path()),
        [format!("{two}.bin"), format!("{two}.json"), "lock".to_owned()]
    );
}

#[test]
fn what_cannot_be_kept_is_refused_by_field_and_leaves_nothing() {
    let case = Case::with(|options| options.file_bytes = 1000);
    for (reply, status, param) in [
        (
            upload(&case.server, "a.md", "assistants", &[b'x'; 1001], &[]),
            413,
            json!("file"),
        ),
        (
            upload(&case.server, "a.md", "assistants", &vec![b'x'; 200_000], &[]),
            413,
            Value::Null,
        ),
        (upload(&case.server, "a.md", "fun", b"x", &[]), 400, json!("purpose")),
        (upload(&case.server, "a.md", "assistants", b"", &[]), 400, json!("file")),
        (upload(&case.server, "..", "assistants", b"x", &[]), 400, json!("file")),
        (case.server.post("/v1/files", &json!({"file": "x"})), 400, Value::Null),
    ] {
        assert_eq!(reply.error(status)["error"]["param"], param, "{}", reply.body);
    }
    // Ids are looked up, and never part of a path that is read.
    for id in [
        "..",
        "%2e%2e%2flock",
        "file-none",
        "file-%00",
        "../lock",
        &"x".repeat(5000),
    ] {
        for path in [format!("/v1/files/{id}/content"), format!("/v1/vector_stores/{id}")] {
            let reply = case.server.get(&path);
            assert!(reply.status == 404 || reply.status == 400, "{path}: {}", reply.status);
        }
    }
    assert_eq!(files_below(case.data.path()), ["lock"]);

    let plain = Server::of(sources(), |_, _| {});
    let tool = json!([{"type": "file_search", "vector_store_ids": ["vs_x"]}]);
    for (reply, status) in [
        (plain.get("/v1/files"), 404),
        (upload(&plain, "a.md", "assistants", b"x", &[]), 404),
        (plain.post("/v1/vector_stores", &json!({})), 404),
        (plain.post("/v1/responses", &json!({"input": "x", "tools": tool})), 404),
    ] {
        let error = reply.error(status);
        assert_eq!(error["error"]["code"], "no_data_folder");
        assert!(error["error"]["message"].as_str().unwrap().contains("--data FOLDER"));
    }
}

#[test]
fn stores_are_searched_by_meaning_words_and_attributes() {
    let case = Case::new();
    let [bread, tea] = case.bread_and_tea();
    let store = case.store(&[]);
    case.attach(
        &store,
        &json!({"file_id": bread, "attributes": {"year": 2019, "kind": "food"}}),
    );
    case.attach(
        &store,
        &json!({"file_id": tea, "attributes": {"year": 2024, "kind": "drink"}}),
    );
    let card = case.read(&store);
    assert_eq!(
        card["file_counts"],
        json!({"in_progress": 0, "completed": 2, "failed": 0, "cancelled": 0, "total": 2})
    );
    assert!(card["usage_bytes"].as_u64().unwrap() > 100 && card["embedder"] == "bert");

    let all = case.search(&store, &json!({"query": "forty minutes"}));
    assert!(all.len() >= 3 && all[0]["file_id"] == json!(bread), "{all:?}");
    let best = all[0]["content"][0]["text"].as_str().unwrap();
    assert!(best.starts_with("Bake it for forty"), "{best}");
    assert_eq!(all[0]["attributes"], json!({"year": 2019, "kind": "food"}));
    assert!(
        all.iter()
            .all(|one| (0.0..=1.0).contains(&one["score"].as_f64().unwrap()))
    );
    assert_eq!(
        case.search(&store, &json!({"query": "forty minutes", "max_num_results": 1}))
            .len(),
        1
    );
    let several = case.search(
        &store,
        &json!({"query": ["forty minutes", "green tea"], "max_num_results": 2}),
    );
    let mut two = names(&several);
    two.sort_unstable();
    assert_eq!(two, ["bread.md", "tea.txt"], "the best of each question");

    // By the cosine alone they are in its order, and a threshold keeps those above it.
    let near = json!({"query": "hot water", "ranking_options": {"ranker": "none"}});
    let scores: Vec<f64> = case
        .search(&store, &near)
        .iter()
        .map(|one| one["score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let least = f64::midpoint(scores[0], scores[1]);
    if scores[0] > scores[1] {
        let found = case.search(
            &store,
            &json!({"query": "hot water", "ranking_options": {"score_threshold": least}}),
        );
        assert_eq!(found.len(), 1, "{scores:?}");
    }

    let filtered = |filter: Value| {
        let found = case.search(&store, &json!({"query": "water", "filters": filter}));
        let mut found: Vec<String> = names(&found).into_iter().map(str::to_owned).collect();
        found.dedup();
        found
    };
    let drink = json!({"type": "eq", "key": "kind", "value": "drink"});
    let old = json!({"type": "lt", "key": "year", "value": 2020});
    assert_eq!(filtered(drink.clone()), ["tea.txt"]);
    assert_eq!(
        filtered(json!({"type": "and", "filters": [drink, old.clone()]})),
        [""; 0]
    );
    // Attributes that are set later hold from then on, and after a restart.
    let path = format!("/v1/vector_stores/{store}/files/{tea}");
    assert_eq!(
        case.post(&path, &json!({"attributes": {"year": 1900}}))["attributes"],
        json!({"year": 1900})
    );
    let mut both = filtered(old.clone());
    both.sort();
    both.dedup();
    assert_eq!(both, ["bread.md", "tea.txt"]);

    let case = case.restart();
    let found = case.search(
        &store,
        &json!({"query": "water", "filters": {"type": "eq", "key": "year", "value": 1900}}),
    );
    assert!(!found.is_empty() && names(&found).iter().all(|name| *name == "tea.txt"));
    assert_eq!(
        case.search(&store, &json!({"query": "forty minutes"})),
        all_with_year(&all, &tea)
    );
    let texts = case.get(&format!("/v1/vector_stores/{store}/files/{bread}/content"));
    let texts: Vec<&str> = texts["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts.join(" "), "Flour, water and salt. Bake it for forty minutes.");

    // What is taken out is found no more, and the file stays; what is deleted is out of all stores.
    let detached = case.delete(&format!("/v1/vector_stores/{store}/files/{bread}")).json();
    assert_eq!(
        detached,
        json!({"id": bread, "object": "vector_store.file.deleted", "deleted": true})
    );
    assert!(
        names(&case.search(&store, &json!({"query": "forty minutes"})))
            .iter()
            .all(|name| *name == "tea.txt")
    );
    case.get(&format!("/v1/files/{bread}"));
    case.delete(&format!("/v1/files/{tea}")).json();
    assert!(case.search(&store, &json!({"query": "tea"})).is_empty());
    let renamed = case.post(
        &format!("/v1/vector_stores/{store}"),
        &json!({"name": "Old", "metadata": {"a": "b"}}),
    );
    assert_eq!(
        (&renamed["name"], &renamed["metadata"]["a"]),
        (&json!("Old"), &json!("b"))
    );
    assert_eq!(case.get("/v1/vector_stores")["data"][0], renamed);
    case.delete(&format!("/v1/vector_stores/{store}")).json();
    case.server.get(&format!("/v1/vector_stores/{store}")).error(404);
    assert_eq!(
        files_below(case.data.path()),
        [format!("{bread}.bin"), format!("{bread}.json"), "lock".to_owned()]
    );
}

/// The same results after the attributes of a file were set.
fn all_with_year(all: &[Value], file: &str) -> Vec<Value> {
    let mut all = all.to_vec();
    for one in all.iter_mut().filter(|one| one["file_id"] == file) {
        one["attributes"] = json!({"year": 1900});
    }
    all
}

#[test]
fn files_that_cannot_be_read_say_why_and_others_go_on() {
    let case = Case::new();
    let binary = case.file("a.pdf", b"%PDF\0\xff");
    let empty = case.file("b.md", b" \n\n ");
    let odd = case.file("c.unknown", TEA.as_bytes());
    let store = case.store(&[]);
    let batch = json!({"file_ids": [binary, empty, odd, odd], "attributes": {"a": 1}});
    let batch = case.post(&format!("/v1/vector_stores/{store}/file_batches"), &batch);
    case.read(&store);
    let path = format!("/v1/vector_stores/{store}/file_batches/{}", id(&batch));
    assert_eq!(
        case.get(&path)["file_counts"],
        json!({"in_progress": 0, "completed": 1, "failed": 2, "cancelled": 0, "total": 3})
    );
    let error = |file: &str| case.get(&format!("/v1/vector_stores/{store}/files/{file}"))["last_error"]["code"].clone();
    assert_eq!(
        (error(&binary), error(&empty), error(&odd)),
        (json!("unsupported_file"), json!("invalid_file"), Value::Null)
    );
    let failed = case.get(&format!("{path}/files?filter=failed&order=asc"));
    assert_eq!((id(&failed["data"][0]), id(&failed["data"][1])), (binary, empty));
    assert_eq!(
        names(&case.search(&store, &json!({"query": "tea", "max_num_results": 1}))),
        ["c.unknown"]
    );
    assert_eq!(case.get(&format!("{path}/files"))["data"].as_array().unwrap().len(), 3);

    let files = format!("/v1/vector_stores/{store}/files");
    let many: serde_json::Map<String, Value> = (0..17).map(|i| (i.to_string(), json!(i))).collect();
    for (path, body, status) in [
        (&files, json!({"file_id": "file-none"}), 404),
        (&files, json!({"file_id": "../../lock"}), 404),
        (&files, json!({"file_id": odd, "attributes": many}), 400),
        (
            &files,
            json!({"file_id": odd, "attributes": {"a": "x".repeat(513)}}),
            400,
        ),
        (&"/v1/vector_stores".to_owned(), json!({"file_ids": ["file-none"]}), 404),
        (
            &"/v1/vector_stores/vs_none/search".to_owned(),
            json!({"query": "a"}),
            404,
        ),
    ] {
        case.server.post(path, &body).error(status);
    }
    assert_eq!(
        case.get("/v1/vector_stores")["data"].as_array().unwrap().len(),
        1,
        "no store is made by halves"
    );
}

#[test]
fn files_that_come_at_once_are_all_read() {
    let case = Case::new();
    let store = case.store(&[]);
    let files: Vec<String> = (0..6)
        .map(|i| case.file(&format!("{i}.md"), format!("word{i} is here").as_bytes()))
        .collect();
    std::thread::scope(|scope| {
        for file in &files {
            let (case, store) = (&case, &store);
            scope.spawn(move || case.post(&format!("/v1/vector_stores/{store}/files"), &json!({"file_id": file})));
        }
    });
    assert_eq!(case.read(&store)["file_counts"]["completed"], 6);
    for i in 0..6 {
        let body = json!({"query": format!("word{i}"), "max_num_results": 1});
        assert_eq!(names(&case.search(&store, &body)), [format!("{i}.md")]);
    }
}

#[test]
fn files_that_are_deleted_while_they_are_read_leave_nothing() {
    let case = Case::new();
    let long: String = (0..20_000)
        .map(|i| format!("Sentence {i} says this and that of it.\n\n"))
        .collect();
    let (long, short) = (
        case.file("long.md", long.as_bytes()),
        case.file("short.md", TEA.as_bytes()),
    );
    let (store, other) = (case.store(&[]), case.store(&[]));
    for store in [&store, &other] {
        let entry = case.post(&format!("/v1/vector_stores/{store}/files"), &json!({"file_id": long}));
        assert_eq!(entry["status"], "in_progress");
    }
    let waits = case.server.get(&format!("/v1/vector_stores/{store}/files/{long}"));
    assert!(
        waits.header("openai-poll-after-ms").is_some(),
        "clients are told when to ask again"
    );
    case.delete(&format!("/v1/vector_stores/{other}")).json();
    case.delete(&format!("/v1/files/{long}")).json();
    case.attach(&store, &json!({"file_id": short}));
    assert_eq!(case.read(&store)["file_counts"]["total"], 1);
    assert!(
        names(&case.search(&store, &json!({"query": "sentence"})))
            .iter()
            .all(|name| *name == "short.md")
    );
}

#[test]
fn files_of_stores_whose_index_is_missing_can_be_deleted() {
    let case = Case::new();
    let [bread, tea] = case.bread_and_tea();
    let store = case.store(&[&bread, &tea]);
    std::fs::remove_file(case.data.path().join("stores").join(&store).join("index")).unwrap();
    assert_eq!(case.delete(&format!("/v1/files/{bread}")).json()["deleted"], true);
    let entry = format!("/v1/vector_stores/{store}/files/{tea}");
    assert_eq!(case.delete(&entry).json()["deleted"], true);
    let kept = case.get(&format!("/v1/vector_stores/{store}"));
    assert_eq!(kept["file_counts"]["total"], 0);
    case.delete(&format!("/v1/vector_stores/{store}")).json();
}

#[test]
fn what_was_under_way_when_a_server_ended_goes_on() {
    let case = Case::new();
    let [bread, tea] = case.bread_and_tea();
    let store = case.store(&[&bread, &tea]);
    let case = case.restart_after(|data| {
        let change = |file: &str, state: &str| {
            let path = data
                .join("stores")
                .join(&store)
                .join("files")
                .join(file)
                .with_extension("json");
            let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            record["state"] = state.into();
            std::fs::write(&path, record.to_string()).unwrap();
        };
        change(&bread, "in_progress");
        change(&tea, "leaving");
        // What was not written whole.
        std::fs::write(data.join("files").join(".file-x.json.new-0123456789abcdef"), "half").unwrap();
        std::fs::write(data.join("files").join("file-x.bin"), "bytes without a record").unwrap();
        std::fs::create_dir_all(data.join("stores").join("gone-vs_x").join("files")).unwrap();
        std::fs::create_dir_all(data.join("stores").join("vs_half").join("files")).unwrap();
    });
    assert_eq!(
        case.read(&store)["file_counts"],
        json!({"in_progress": 0, "completed": 1, "failed": 0, "cancelled": 0, "total": 1})
    );
    let found = case.search(&store, &json!({"query": "tea"}));
    assert!(!found.is_empty() && names(&found).iter().all(|name| *name == "bread.md"));
    assert!(
        !files_below(case.data.path())
            .iter()
            .any(|name| name.contains("file-x."))
    );
    assert_eq!(std::fs::read_dir(case.data.path().join("stores")).unwrap().count(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disks_are_errors_that_change_nothing() {
    const CHILD: &str = "IN_A_PROCESS_WHOSE_FILES_HAVE_A_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        // The limit is one of a process, and its signal has to be ignored from the beginning.
        let test = "trap '' XFSZ; exec \"$0\" --exact stores::full_disks_are_errors_that_change_nothing --nocapture";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", test]).arg(std::env::current_exe().unwrap());
        let run = shell.env(CHILD, "1").output().unwrap();
        let [out, err] = [&run.stdout, &run.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(run.status.success() && out.contains("1 passed"), "{out}{err}");
        return;
    }
    let room = |bytes: &str| {
        let mut limit = std::process::Command::new("prlimit");
        limit.arg(format!("--pid={}", std::process::id()));
        limit.arg(format!("--fsize={bytes}:unlimited"));
        assert!(limit.status().unwrap().success());
    };
    let case = Case::new();
    let file = case.file("tea.txt", TEA.as_bytes());
    let store = case.store(&[]);
    let before = files_below(case.data.path());
    room("0");
    let reply = case
        .server
        .post(&format!("/v1/vector_stores/{store}/files"), &json!({"file_id": file}));
    assert_eq!(reply.error(503)["error"]["code"], "no_space");
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    let renamed = case
        .server
        .post(&format!("/v1/vector_stores/{store}"), &json!({"name": "Other"}));
    assert_eq!(renamed.error(503)["error"]["code"], "no_space");
    assert_eq!(case.get(&format!("/v1/vector_stores/{store}"))["name"], "Notes");
    case.server
        .get(&format!("/v1/vector_stores/{store}/files/{file}"))
        .error(404);
    assert_eq!(files_below(case.data.path()), before);
    room("unlimited");
    // With room again, all is well.
    case.attach(&store, &json!({"file_id": file}));
    assert_eq!(case.read(&store)["file_counts"]["completed"], 1);
}

#[test]
fn files_and_stores_are_seen_with_their_own_key_alone() {
    let keys = |options: &mut ServeOptions| options.keys = vec!["one".to_owned(), "two".to_owned()];
    let case = Case::with(keys);
    let two = ("authorization", "Bearer two");
    let file = id(&upload(&case.server, "a.md", "user_data", b"secret words", &[KEY]).json());
    let body = json!({"file_ids": [file]}).to_string();
    let store = id(&case
        .server
        .send("POST", "/v1/vector_stores", &[KEY], body.as_bytes())
        .json());
    for path in [format!("/v1/files/{file}"), format!("/v1/vector_stores/{store}")] {
        assert_eq!(case.server.send("GET", &path, &[KEY], b"").status, 200);
        assert_eq!(case.server.send("GET", &path, &[two], b"").status, 404);
        assert_eq!(case.server.send("DELETE", &path, &[two], b"").status, 404);
    }
    let theirs = case.server.send("POST", "/v1/vector_stores", &[two], body.as_bytes());
    theirs.error(404);
    let question = json!({"input": "secret?", "tools": [{"type": "file_search", "vector_store_ids": [store]}]});
    let error = case
        .server
        .send("POST", "/v1/responses", &[two], question.to_string().as_bytes())
        .error(404);
    assert_eq!(error["error"]["param"], "tools[0].vector_store_ids");
    assert_eq!(
        case.server.send("GET", "/v1/files", &[two], b"").json()["data"],
        json!([])
    );
    let case = case.restart();
    assert_eq!(case.get("/v1/files")["data"], json!([]), "nor without a key, later");
}

/// An answer that says just this.
fn saying(text: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"answer": {"const": text}}, "required": ["answer"],
        "additionalProperties": false});
    json!({"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": true}})
}

#[test]
fn answers_search_first_and_cite_what_they_take_from_there() {
    let case = Case::new();
    let bread = case.file("bread.md", BREAD.as_bytes());
    let store = case.store(&[&bread]);
    let tool = json!({"type": "file_search", "vector_store_ids": [store], "max_num_results": 2});
    let body = json!({"model": "tiny", "input": "How long does the bread bake?", "tools": [tool], "temperature": 0,
        "text": saying("Bake it for forty minutes [2]. It is of butter and gold, madam [1]. So they say [7]."),
        "include": ["file_search_call.results"]});
    let whole = case.post("/v1/responses", &body);
    let [search, message] = &whole["output"].as_array().unwrap()[..] else {
        panic!("{whole}");
    };
    assert_eq!(
        (&search["type"], &search["status"]),
        (&json!("file_search_call"), &json!("completed"))
    );
    assert_eq!(search["queries"], json!(["How long does the bread bake?"]));
    let results = search["results"].as_array().unwrap();
    assert_eq!(
        (results.len(), &results[0]["file_id"], &results[0]["filename"]),
        (2, &json!(bread), &json!("bread.md"))
    );
    // Each has the number under which the model reads it, and its place.
    let baking = results.iter().find(|result| result["number"] == 2).unwrap();
    assert_eq!(
        (&baking["page"], &baking["lines"], &baking["headings"]),
        (&Value::Null, &json!([7, 7]), &json!(["Bread", "Baking"]))
    );
    let part = &message["content"][0];
    let text = part["text"].as_str().unwrap();
    // The sources are in the order of their places: the second says it. The first does not say what it is cited for, and there is no seventh.
    let at = text.chars().position(|c| c == '[').unwrap();
    let citation = json!({"type": "file_citation", "index": at, "file_id": bread, "filename": "bread.md", "number": 2});
    assert_eq!(part["annotations"], json!([citation]), "{text}");
    // The prompt has the sources.
    let bare = json!({"model": "tiny", "input": body["input"], "temperature": 0, "text": body["text"]});
    let bare = case.post("/v1/responses", &bare);
    let tokens = |answer: &Value| answer["usage"]["input_tokens"].as_u64().unwrap();
    assert!(tokens(&whole) > tokens(&bare) + 50);

    let mut streamed = body.clone();
    (streamed["stream"], streamed["include"]) = (true.into(), json!([]));
    let frames = case.server.post("/v1/responses", &streamed).events();
    let kinds: Vec<&str> = frames.iter().filter_map(|frame| frame.name).collect();
    let place = |kind: &str| {
        kinds
            .iter()
            .position(|known| *known == kind)
            .unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    let order = [
        "response.output_item.added",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.annotation.added",
        "response.output_text.done",
    ];
    assert!(order.map(place).is_sorted(), "{kinds:?}");
    let last = order::responses(&frames).unwrap();
    assert_eq!(last["output"][1]["content"], message["content"]);
    assert_eq!(last["output"][0]["results"], Value::Null, "only where it is asked for");

    // It goes on with what was said, searched anew, and with the items as they were.
    let mut next = body.clone();
    (next["previous_response_id"], next["input"]) = (whole["id"].clone(), "And the flour?".into());
    let next = case.post("/v1/responses", &next);
    assert_eq!(next["output"][0]["queries"], json!(["And the flour?"]));
    let items = json!([{"role": "user", "content": "How long?"}, search, message, {"role": "user", "content": "And?"}]);
    let mut resent = body.clone();
    resent["input"] = items;
    assert_eq!(
        case.post("/v1/responses", &resent)["output"][0]["queries"],
        json!(["And?"])
    );
}

#[test]
fn searches_before_answers_are_where_they_are_asked_for() {
    let case = Case::new();
    let store = case.store(&[]);
    let tool = json!({"type": "file_search", "vector_store_ids": [store]});
    let function = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let ask = |more: Value| {
        let mut body = json!({"model": "tiny", "input": "Hi", "tools": [tool], "max_output_tokens": 3});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        case.server.post("/v1/responses", &body)
    };
    for (more, searches) in [
        (json!({}), true),
        (json!({"tool_choice": "required"}), true),
        (json!({"tool_choice": {"type": "file_search"}}), true),
        (json!({"tools": [tool, function], "tool_choice": "auto"}), true),
        (json!({"instructions": "Be kind."}), true),
        (json!({"tool_choice": "none"}), false),
    ] {
        let answer = ask(more.clone()).json();
        assert_eq!(
            answer["output"][0]["type"] == "file_search_call",
            searches,
            "{more}: {answer}"
        );
    }
    let with = |name: &str, value: Value| {
        let mut tool = tool.clone();
        tool[name] = value;
        json!({"tools": [tool]})
    };
    for (more, status, param) in [
        (with("vector_store_ids", json!([])), 400, "tools[0].vector_store_ids"),
        (
            with("vector_store_ids", json!(["vs_none"])),
            404,
            "tools[0].vector_store_ids",
        ),
        (with("max_num_results", json!(0)), 400, "tools[0].max_num_results"),
        (with("filters", json!({"type": "x"})), 400, "tools[0].filters.type"),
        (json!({"tools": [tool, tool]}), 400, "tools[1].type"),
        (json!({"tools": [{"type": "web_search"}]}), 400, "tools[0].type"),
        (json!({"input": [{"role": "developer", "content": "x"}]}), 400, "input"),
    ] {
        assert_eq!(ask(more.clone()).error(status)["error"]["param"], param, "{more}");
    }
}

#[test]
fn stores_keep_to_the_model_that_they_were_made_with() {
    let case = Case::with(|options| options.embedder = Some("bert".to_owned()));
    let store = case.store(&[]);
    let Case { data, mut server } = case;
    server.stop();
    server.join();
    let folder = data.path().to_owned();
    let mut sources = sources();
    sources.truncate(1);
    let server = Server::of(sources, |options, _| options.data = Some(folder));
    let error = server
        .post(&format!("/v1/vector_stores/{store}/search"), &json!({"query": "a"}))
        .error(400);
    assert_eq!(error["error"]["code"], "wrong_embedder");
    assert!(error["error"]["message"].as_str().unwrap().contains("`bert`"));
    assert_eq!(
        server.post("/v1/vector_stores", &json!({})).error(400)["error"]["code"],
        "no_embeddings"
    );
}
