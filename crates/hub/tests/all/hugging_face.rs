//! Fetches from a model hub that runs on the loopback interface: listing, digests, resume, tokens, refusals.

use crate::loopback::{Behavior, Server};
use cactus_hub::{Error, ErrorKind, Event, Fetched, Format, Hub, HubOptions, ModelRef, Progress, Silent};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes without a pattern that a mistake could repeat.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}

struct World {
    dir: tempfile::TempDir,
    server: Server,
}

impl World {
    /// A hub with the repository `org/model`: a small configuration, a large LFS file, and files nobody wants.
    fn new() -> World {
        let world = World {
            dir: tempfile::tempdir().unwrap(),
            server: Server::start(),
        };
        let weights = noise(3_000_000, 1);
        world.publish(&[
            (".gitattributes", b"x".to_vec(), false),
            ("config.json", b"{\"model_type\":\"llama\"}".to_vec(), false),
            ("tokenizer.json", noise(70_000, 2), false),
            ("model.safetensors", weights, true),
            ("pytorch_model.bin", noise(10, 3), true),
        ]);
        world
    }

    fn publish(&self, files: &[(&str, Vec<u8>, bool)]) {
        let mut siblings = Vec::new();
        for (name, content, lfs) in files {
            let mut blob = Sha1::new();
            blob.update(format!("blob {}\0", content.len()));
            blob.update(content);
            let mut sibling = json!({"rfilename": name, "size": content.len(), "blobId": hex(&blob.finalize())});
            if *lfs {
                sibling["lfs"] = json!({"sha256": hex(&Sha256::digest(content)), "size": content.len()});
            }
            siblings.push(sibling);
            self.server
                .put(&format!("/org/model/resolve/{COMMIT}/{name}"), content.clone());
        }
        self.list(json!({"sha": COMMIT, "siblings": siblings, "tags": ["license:apache-2.0"]}));
    }

    fn list(&self, listing: Value) {
        let text = serde_json::to_vec(&listing).unwrap();
        self.server.put("/api/models/org/model/revision/main?blobs=true", text);
    }

    fn hub(&self, token: Option<&str>) -> Hub {
        Hub::new(HubOptions {
            cache: Some(self.dir.path().to_path_buf()),
            endpoint: Some(self.server.address.clone()),
            // A token of the developer's own must not reach the test.
            token: Some(token.unwrap_or("hf_test").to_owned()),
            ..HubOptions::default()
        })
        .unwrap()
    }

    fn fetch_with(&self, progress: &mut dyn Progress) -> Result<Fetched, Error> {
        self.hub(None).fetch(&ModelRef::parse("org/model").unwrap(), progress)
    }

    fn fetch(&self) -> Result<Fetched, Error> {
        self.fetch_with(&mut Silent)
    }

    fn part(&self) -> PathBuf {
        self.dir.path().join("staging/org--model/out/model.safetensors.part")
    }

    /// Nothing that looks whole may be there after a failure.
    fn assert_nothing_published(&self) {
        assert!(!self.dir.path().join("sources/org--model").exists());
        assert_eq!(
            self.hub(None).find(&ModelRef::parse("org/model").unwrap()).unwrap(),
            None
        );
    }
}

#[test]
fn fetch_takes_the_needed_files_checked_and_with_progress() {
    let world = World::new();
    let mut bytes = Vec::new();
    let fetched = world
        .fetch_with(&mut |event: Event<'_>| {
            if let Event::Bytes { done, total } = event {
                bytes.push((done, total));
            }
        })
        .unwrap();
    assert_eq!(fetched.format, Format::HuggingFace);
    assert!(!fetched.from_cache);
    let record = fetched.record.unwrap();
    assert_eq!(record.origin, [format!("org/model@{COMMIT}")]);
    assert_eq!(record.license.as_deref(), Some("apache-2.0"));
    let mut names: Vec<String> = fs::read_dir(&fetched.path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["config.json", "model.safetensors", "source.json", "tokenizer.json"]
    );
    assert!(fs::read(fetched.path.join("model.safetensors")).unwrap() == noise(3_000_000, 1));
    assert!(bytes.is_sorted());
    assert_eq!(bytes.last(), Some(&(3_070_022, 3_070_022)));
    world.hub(None).cache().verify("org--model", &mut Silent).unwrap();

    world.server.seen();
    assert!(world.fetch().unwrap().from_cache);
    assert!(world.server.seen().is_empty(), "a cached model needs no network");
}

#[test]
fn fetch_resumes_a_broken_transfer() {
    let world = World::new();
    world.server.behave(Behavior {
        cut: Some((1_000_000, 2)),
        ..Behavior::default()
    });
    let fetched = world.fetch().unwrap();
    assert!(fs::read(fetched.path.join("model.safetensors")).unwrap() == noise(3_000_000, 1));
    let ranges: Vec<Option<String>> = world
        .server
        .seen()
        .into_iter()
        .filter(|r| r.path.ends_with("model.safetensors"))
        .map(|r| r.range)
        .collect();
    assert!(ranges.len() >= 2 && ranges[1].is_some(), "{ranges:?}");
}

#[test]
fn fetch_goes_on_from_an_earlier_processes_part() {
    let weights = noise(3_000_000, 1);
    for (kept, kind) in [
        (weights[..1_234_567].to_vec(), "a good part"),
        (weights.clone(), "a part that is complete"),
        (noise(1_234_567, 99), "a part of another file"),
        (noise(3_000_000, 99), "a complete part of another file"),
        (noise(4_000_000, 99), "a part that is too long"),
    ] {
        for ignores_ranges in [false, true] {
            let world = World::new();
            world.server.behave(Behavior {
                ignores_ranges,
                ..Behavior::default()
            });
            fs::create_dir_all(world.part().parent().unwrap()).unwrap();
            fs::write(world.part(), &kept).unwrap();
            let mut resumed = 0;
            let fetched = world
                .fetch_with(&mut |event: Event<'_>| {
                    if let Event::Begin { resumed_bytes, .. } = event {
                        resumed = resumed_bytes;
                    }
                })
                .unwrap_or_else(|e| panic!("{kind}: {e}"));
            assert!(
                fs::read(fetched.path.join("model.safetensors")).unwrap() == weights,
                "{kind}"
            );
            let goes_on = if kept.len() > weights.len() { 0 } else { kept.len() };
            assert_eq!(resumed, goes_on as u64, "{kind}");
            let requests = world.server.seen();
            let file = requests.iter().find(|r| r.path.ends_with("model.safetensors"));
            if kind == "a good part" {
                assert_eq!(file.unwrap().range.as_deref(), Some("bytes=1234567-"));
            }
            if kind == "a part that is complete" {
                assert!(file.is_none(), "nothing is left to ask for");
            }
        }
    }
}

#[test]
fn fetch_of_tampered_files_fails_and_publishes_nothing() {
    let world = World::new();
    world.server.behave(Behavior {
        corrupts: true,
        ..Behavior::default()
    });
    let error = world.fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    world.assert_nothing_published();
    // The small files, which have no SHA-256, are checked too.
    assert!(error.to_string().contains("config.json"), "{error}");
    world.server.behave(Behavior::default());
    assert!(world.fetch().is_ok(), "and the next fetch starts clean");
}

#[test]
fn fetch_sends_the_token_and_tells_refusals_apart() {
    let world = World::new();
    world.server.behave(Behavior {
        token: Some("hf_right".into()),
        ..Behavior::default()
    });
    let model = ModelRef::parse("org/model").unwrap();
    let error = world.hub(Some("hf_wrong")).fetch(&model, &mut Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(!format!("{error} {error:?} {:?}", world.hub(Some("hf_wrong"))).contains("hf_wrong"));
    world.assert_nothing_published();
    world.server.seen();
    world.hub(Some("hf_right")).fetch(&model, &mut Silent).unwrap();
    let seen = world.server.seen();
    assert!(seen.len() >= 4);
    assert!(
        seen.iter()
            .all(|r| r.authorization.as_deref() == Some("Bearer hf_right"))
    );

    for (refuse, kind) in [
        ((404, "RevisionNotFound"), ErrorKind::NotFound),
        ((401, "RepoNotFound"), ErrorKind::NotFound),
        ((403, "GatedRepo"), ErrorKind::Unauthorized),
        ((500, ""), ErrorKind::Protocol),
    ] {
        let world = World::new();
        world.server.behave(Behavior {
            refuse: Some(refuse),
            ..Behavior::default()
        });
        let error = world.fetch().unwrap_err();
        assert_eq!(error.kind(), kind, "{refuse:?}");
        assert!(!error.to_string().contains('\n'));
        world.assert_nothing_published();
    }
}

#[test]
fn token_does_not_follow_a_redirect_to_another_host() {
    let world = World::new();
    // The same server under another name is another host.
    let storage = world.server.address.replace("127.0.0.1", "localhost");
    world.server.put("/storage/blob", b"GGUF and more".to_vec());
    world.publish(&[("m.gguf", b"GGUF and more".to_vec(), true)]);
    world.server.behave(Behavior {
        redirect: Some(format!("{storage}/storage/blob")),
        ..Behavior::default()
    });
    assert_eq!(world.fetch().unwrap().format, Format::Gguf);
    let seen = world.server.seen();
    let (there, here): (Vec<_>, Vec<_>) = seen.iter().partition(|r| r.path.starts_with("/storage/"));
    assert_eq!(there.len(), 1);
    assert!(there[0].authorization.is_none(), "{there:?}");
    assert!(here.iter().all(|r| r.authorization.is_some()));
}

#[test]
fn fetch_without_network_is_offline_and_quick() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::new(HubOptions {
        cache: Some(dir.path().to_path_buf()),
        // Port 1 of this machine: nothing listens there.
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        ..HubOptions::default()
    })
    .unwrap();
    let error = hub
        .fetch(&ModelRef::parse("org/model").unwrap(), &mut Silent)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline);
    assert!(
        error.to_string().contains("http://127.0.0.1:1/api/models/org/model"),
        "{error}"
    );
}

#[test]
fn network_that_fails_midway_is_offline_and_keeps_what_came() {
    let world = World::new();
    world.server.behave(Behavior {
        cut: Some((0, usize::MAX)),
        ..Behavior::default()
    });
    let error = world.fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline, "{error}");
    world.assert_nothing_published();
}

#[test]
fn fetch_stops_when_asked_and_resumes_later() {
    struct Stop(bool);
    impl Progress for Stop {
        fn event(&mut self, event: Event<'_>) {
            self.0 |= matches!(
                event,
                Event::File {
                    name: "model.safetensors",
                    ..
                }
            );
        }
        fn is_cancelled(&self) -> bool {
            self.0
        }
    }
    let world = World::new();
    assert_eq!(
        world.fetch_with(&mut Stop(false)).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    world.assert_nothing_published();
    assert!(world.fetch().is_ok());
}

#[test]
fn hostile_listings_are_errors_and_write_nowhere_else() {
    let good = hex(&Sha256::digest(b"GGUF"));
    let file = |name: &str, size: Value, sha: &str| json!({"sha": COMMIT, "siblings": [{"rfilename": name, "lfs": {"sha256": sha, "size": size}}]});
    for listing in [
        json!(null),
        json!({"siblings": []}),
        json!({"sha": "../../../etc", "siblings": []}),
        json!({"sha": COMMIT}),
        json!({"sha": COMMIT, "siblings": "none"}),
        file("../../up.gguf", json!(4), &good),
        file("/abs.gguf", json!(4), &good),
        file("a\\..\\b.gguf", json!(4), &good),
        file("m.gguf", json!(-1), &good),
        file("m.gguf", json!(4), "../../x"),
        file("m.gguf", json!(null), &good),
        // Larger than what arrives, and smaller.
        file("m.gguf", json!(u64::MAX), &good),
        file("m.gguf", json!(3), &good),
    ] {
        let world = World::new();
        world
            .server
            .put(&format!("/org/model/resolve/{COMMIT}/m.gguf"), b"GGUF".to_vec());
        world.list(listing.clone());
        let error = world.fetch().unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Protocol | ErrorKind::Unsupported | ErrorKind::Offline | ErrorKind::Checksum
            ),
            "{listing} {error:?}"
        );
        world.assert_nothing_published();
    }
    let world = World::new();
    world
        .server
        .put("/api/models/org/model/revision/main?blobs=true", b"<html>".to_vec());
    assert_eq!(world.fetch().unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn revision_and_file_are_part_of_the_request_and_of_the_key() {
    let world = World::new();
    let content = b"GGUF....".to_vec();
    world.publish(&[("q/m-Q8_0.gguf", content.clone(), true), ("m-F16.gguf", content, true)]);
    let model = ModelRef::parse("org/model:q8_0").unwrap();
    let fetched = world.hub(None).fetch(&model, &mut Silent).unwrap();
    assert!(fetched.path.ends_with("q/m-Q8_0.gguf"));
    assert!(fetched.key.unwrap().starts_with("org--model--q8_0--"));
    let error = world
        .hub(None)
        .fetch(&ModelRef::parse("org/model@v2").unwrap(), &mut Silent)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("v2"), "{error}");
}
