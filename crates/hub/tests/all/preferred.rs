//! Which model is meant where none is named, by what a hub on the loopback interface answers.

use crate::loopback::{Behavior, Server};
use cactus_hub::{ErrorKind, Hub, HubOptions, Meant, ModelRef, Silent, Why, preferred};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

fn hub(cache: &Path, endpoint: &str) -> Hub {
    let options = HubOptions {
        cache: Some(cache.to_path_buf()),
        endpoint: Some(endpoint.to_owned()),
        token: Some("hf_test".to_owned()),
        ..HubOptions::default()
    };
    Hub::new(options).unwrap()
}

/// The listing of the real repository, as far as it matters.
fn listing() -> Value {
    let entry = preferred();
    json!({
        "sha": entry.repo.revision,
        "tags": ["license:apache-2.0"],
        "siblings": [
            {"rfilename": "README.md", "size": 10, "blobId": "0123456789abcdef0123456789abcdef01234567"},
            {
                "rfilename": entry.repo.file,
                "size": entry.file_bytes,
                "blobId": "0123456789abcdef0123456789abcdef01234567",
                "lfs": {"sha256": entry.sha256, "size": entry.file_bytes},
            },
        ],
    })
}

fn list(server: &Server, listing: &[u8]) {
    let repo = &preferred().repo;
    let revision = repo.revision.as_deref().unwrap();
    let path = format!("/api/models/{}/revision/{revision}?blobs=true", repo.repo);
    server.put(&path, listing.to_vec());
}

fn is_better(meant: &Meant) -> bool {
    meant.model == ModelRef::HuggingFace(preferred().repo.clone())
}

#[test]
fn hub_that_has_the_very_file_is_taken() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    list(&server, &serde_json::to_vec(&listing()).unwrap());
    let hub = hub(dir.path(), &server.address);
    let meant = hub.meant();
    assert!(is_better(&meant) && matches!(meant.why, Why::Reached), "{meant:?}");
    assert_eq!(meant.download_bytes, preferred().file_bytes);
    // It cannot be fetched after all: the other one is meant then, and the next look begins anew.
    let error = hub.fetch(&meant.model, &mut Silent).unwrap_err();
    let meant = hub.meant_instead(error);
    assert!(
        !is_better(&meant) && matches!(meant.why, Why::NotReached(_)),
        "{meant:?}"
    );
    assert!(is_better(&hub.meant()));
}

#[test]
fn answers_of_others_are_no_hub() {
    let mut other_file = listing();
    other_file["siblings"][1]["lfs"]["sha256"] = "0".repeat(64).into();
    let mut no_file = listing();
    no_file["siblings"].as_array_mut().unwrap().pop();
    let bytes = |v: &Value| serde_json::to_vec(v).unwrap();
    let refuse = |status| Behavior {
        refuse: Some((status, "")),
        ..Behavior::default()
    };
    let cases = [
        // A captive portal says 200 and a page of its own.
        (
            "portal",
            b"<html>Please accept our terms</html>".to_vec(),
            Behavior::default(),
            ErrorKind::Protocol,
        ),
        ("proxy", bytes(&listing()), refuse(407), ErrorKind::Protocol),
        ("forbidden", bytes(&listing()), refuse(403), ErrorKind::Unauthorized),
        ("gone", bytes(&listing()), refuse(404), ErrorKind::NotFound),
        ("broken", bytes(&listing()), refuse(503), ErrorKind::Protocol),
        (
            "another file",
            bytes(&other_file),
            Behavior::default(),
            ErrorKind::Checksum,
        ),
        ("no file", bytes(&no_file), Behavior::default(), ErrorKind::NotFound),
    ];
    for (case, content, behavior, kind) in cases {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
        list(&server, &content);
        server.behave(behavior);
        let hub = hub(dir.path(), &server.address);
        let meant = hub.meant();
        assert!(!is_better(&meant), "{case}");
        let Why::NotReached(error) = meant.why else {
            panic!("{case}: {:?}", meant.why)
        };
        assert_eq!(error.kind(), kind, "{case}: {error}");
        // Not asked again at once.
        assert!(matches!(hub.meant().why, Why::NotReachedLately), "{case}");
        let [asked] = &server.seen()[..] else {
            panic!("{case}: asked again")
        };
        assert!(
            asked.path.starts_with("/api/models/Qwen/") && asked.range.is_none(),
            "{case}"
        );
        assert_eq!(asked.authorization.as_deref(), Some("Bearer hf_test"), "{case}");
    }
}

#[test]
fn file_that_is_not_the_pinned_one_is_not_fetched() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    let mut other = listing();
    other["siblings"][1]["lfs"]["sha256"] = "0".repeat(64).into();
    list(&server, &serde_json::to_vec(&other).unwrap());
    let hub = hub(dir.path(), &server.address);
    let model = ModelRef::HuggingFace(preferred().repo.clone());
    let error = hub.fetch(&model, &mut Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
}

#[test]
fn silence_is_given_up_soon() {
    let dir = tempfile::tempdir().unwrap();
    // Connections are taken and nothing is ever said: a network that swallows packets.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = hub(dir.path(), &format!("http://{}", silent.local_addr().unwrap()));
    let begun = Instant::now();
    let meant = hub.meant();
    // Far above the limit, and far below those of a fetch.
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(!is_better(&meant));
    assert!(matches!(meant.why, Why::NotReached(_)), "{meant:?}");
}

#[test]
fn what_was_fetched_is_meant_without_a_hub() {
    let dir = tempfile::tempdir().unwrap();
    let offline = Hub::new(HubOptions {
        cache: Some(dir.path().to_path_buf()),
        offline: true,
        ..HubOptions::default()
    })
    .unwrap();
    assert!(matches!(offline.meant().why, Why::Forbidden(_)));
    // A bundle made from it is enough.
    let bundle = offline.cache().bundle_dir(&preferred().repo.key(), "int8").unwrap();
    fs::create_dir_all(bundle.join("components")).unwrap();
    fs::write(bundle.join("components/manifest.json"), b"{}").unwrap();
    let meant = offline.meant();
    assert!(is_better(&meant) && matches!(meant.why, Why::Cached), "{meant:?}");
    // Nobody is asked where it is here.
    let server = Server::start();
    assert!(matches!(hub(dir.path(), &server.address).meant().why, Why::Cached));
    assert!(server.seen().is_empty());
}
