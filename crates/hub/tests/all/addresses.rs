//! Models from plain addresses: a GGUF file and a bundle, whole and in pieces, from servers that break off, change their files and lie.

use crate::loopback::{Behavior, Names, Server};
use cactus_hub::{Error, ErrorKind, Event, Fetched, Format, Hub, HubOptions, ModelRef, Progress, Silent};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

/// Every file below a folder, by its path in it.
fn files(root: &Path, at: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        match root.join(&path).is_dir() {
            true => files(root, &path, found),
            false => found.push((path.clone(), fs::read(root.join(&path)).unwrap())),
        }
    }
}

fn bundle_files() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    files(&golden("bundles/old_graph"), "", &mut found);
    found.sort();
    found
}

/// How many bytes of a file without a digest are on the device before the next are written.
const SYNCED_BYTES: usize = 8 << 20;
const WEIGHTS: &str = "/models/b/model.weights";

struct World {
    dir: tempfile::TempDir,
    server: Server,
}

impl World {
    /// A server with a GGUF file and a bundle, which names states.
    fn new() -> World {
        let world = World {
            dir: tempfile::tempdir().unwrap(),
            server: Server::start(),
        };
        world.server.put("/models/m.gguf", gguf());
        for (path, content) in bundle_files() {
            world.server.put(&format!("/models/b/{path}"), content);
        }
        world.behave(Behavior::default());
        world
    }

    /// Behaves so, and names states by `ETag`.
    fn behave(&self, behavior: Behavior) {
        self.server.behave(Behavior {
            names: behavior.names.or(Some(Names::ETag)),
            ..behavior
        });
    }

    fn address(&self, path: &str) -> String {
        format!("{}/models/{path}", self.server.address)
    }

    fn fetch_with(&self, address: &str, progress: &mut dyn Progress) -> Result<Fetched, Error> {
        let hub = Hub::new(HubOptions {
            cache: Some(self.dir.path().to_path_buf()),
            // Whatever is asked of an address, this must not be in it.
            token: Some("hf_secret".to_owned()),
            ..HubOptions::default()
        })?;
        hub.fetch(&ModelRef::parse(address)?, progress)
    }

    fn fetch(&self, path: &str) -> Result<Fetched, Error> {
        self.fetch_with(&self.address(path), &mut Silent)
    }

    /// Nothing that looks whole may be there after a failure.
    fn assert_nothing_published(&self) {
        let sources = fs::read_dir(self.dir.path().join("sources")).into_iter().flatten();
        assert_eq!(sources.count(), 0);
    }

    /// What is kept for the next try of a file.
    fn parts(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        if self.dir.path().join("staging").is_dir() {
            files(&self.dir.path().join("staging"), "", &mut found);
        }
        let parts = found.into_iter().filter(|(path, _)| path.ends_with(".part"));
        parts
            .map(|(path, content)| (path.into(), content.len() as u64))
            .collect()
    }
}

fn gguf() -> Vec<u8> {
    fs::read(golden("gguf/glm4.gguf")).unwrap()
}

/// Another file of the same size.
fn other(content: &[u8]) -> Vec<u8> {
    let mut other = content.to_vec();
    *other.last_mut().unwrap() ^= 1;
    other
}

#[test]
fn gguf_file_is_fetched_once_and_no_token_is_sent() {
    let world = World::new();
    let mut bytes = Vec::new();
    let fetched = world
        .fetch_with(&world.address("m.gguf?key=secret"), &mut |event: Event<'_>| {
            if let Event::Bytes { done, total } = event {
                bytes.push((done, total));
            }
        })
        .unwrap_err();
    // The server has no such route: what follows the `?` is sent, and not said.
    assert_eq!(fetched.kind(), ErrorKind::NotFound);
    assert!(!format!("{fetched} {fetched:?}").contains("secret"), "{fetched}");

    let fetched = world
        .fetch_with(&world.address("m.gguf"), &mut |event: Event<'_>| {
            if let Event::Bytes { done, total } = event {
                bytes.push((done, total));
            }
        })
        .unwrap();
    assert_eq!(fetched.format, Format::Gguf);
    assert!(fetched.path.ends_with("m.gguf") && fs::read(&fetched.path).unwrap() == gguf());
    let record = fetched.record.unwrap();
    assert_eq!(record.id, world.address("m.gguf"));
    let digest: String = Sha256::digest(gguf()).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(record.files[0].sha256, digest);
    let size = gguf().len() as u64;
    assert_eq!(bytes.last(), Some(&(size, size)));
    let seen = world.server.seen();
    assert!(seen.iter().any(|r| r.path == "/models/m.gguf?key=secret"));
    assert!(seen.iter().all(|r| r.authorization.is_none()));
    assert!(world.fetch("m.gguf").unwrap().from_cache);
    assert!(world.server.seen().is_empty(), "a cached model needs no network");
    let kept: Vec<_> = fs::read_dir(world.dir.path().join("staging")).unwrap().collect();
    assert!(kept.len() <= 1, "{kept:?}");
}

#[test]
fn bundle_is_fetched_file_by_file_and_compared_with_its_checksums() {
    let world = World::new();
    let mut verified = false;
    let fetched = world
        .fetch_with(&world.address("b"), &mut |event: Event<'_>| {
            verified |= matches!(event, Event::Verify { .. });
        })
        .unwrap();
    assert!(verified);
    assert_eq!(fetched.format, Format::Bundle);
    for (path, content) in bundle_files() {
        assert!(fs::read(fetched.path.join(&path)).unwrap() == content, "{path}");
    }
    let mut here = Vec::new();
    files(&fetched.path, "", &mut here);
    assert_eq!(here.len(), bundle_files().len() + 1, "and the record");
    assert_eq!(fetched.record.unwrap().files.len(), bundle_files().len());
    world.server.seen();
    assert!(world.fetch("b/").unwrap().from_cache, "with a slash it is the same");
    assert!(world.server.seen().is_empty());
}

#[test]
fn bundle_that_was_amended_is_whole_and_is_not_fetched_again() {
    let world = World::new();
    let fetched = world.fetch("b").unwrap();
    let (bundle, key) = (fetched.path, fetched.key.unwrap());
    let cache = cactus_hub::Cache::open(Some(world.dir.path().to_path_buf())).unwrap();
    let amend = |path| cactus_bundle::amend(&bundle, path, b"{\"learned\": true}").unwrap();
    amend("confidence.json");
    world.server.seen();
    assert!(world.fetch("b").unwrap().from_cache);
    assert!(world.server.seen().is_empty());
    cache.verify(&key, &mut Silent).unwrap();
    // Damage is damage still, of what was not amended and of the manifest.
    for path in ["model.weights", "components/manifest.json"] {
        let whole = fs::read(bundle.join(path)).unwrap();
        fs::write(bundle.join(path), other(&whole)).unwrap();
        let error = cache.verify(&key, &mut Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum, "{path}");
        fs::write(bundle.join(path), &whole[..whole.len() / 2]).unwrap();
        assert!(!world.fetch("b").unwrap().from_cache, "{path}");
        amend("confidence.json");
    }
    // And what nothing is learned into has to be what came, whatever the manifest says.
    amend("provenance.json");
    assert_eq!(cache.verify(&key, &mut Silent).unwrap_err().kind(), ErrorKind::Checksum);
    assert!(!world.fetch("b").unwrap().from_cache);
}

#[test]
fn broken_transfer_goes_on_where_it_broke_off() {
    for (path, at) in [("m.gguf", 100_000), ("b", 4000)] {
        for names in [Names::ETag, Names::LastModified] {
            let world = World::new();
            world.behave(Behavior {
                cut: Some((at, 1)),
                only: if path == "b" { "model.weights" } else { "" },
                names: Some(names),
                ..Behavior::default()
            });
            world.fetch(path).unwrap();
            let seen = world.server.seen();
            let range = format!("bytes={at}-");
            let gone_on = seen.iter().find(|r| r.range.as_deref() == Some(&range));
            assert!(gone_on.is_some_and(|r| r.if_range.is_some()), "{seen:?}");
        }
    }
}

/// Fetches until the server breaks off in the middle of the file `only`, and answers no more; what came stays. Gives how much.
fn half_fetched(world: &World, path: &str, only: &'static str, at: usize, names: Names) -> u64 {
    world.behave(Behavior {
        cut: Some((at, 1)),
        only,
        then_refuse: Some((403, "")),
        names: Some(names),
        ..Behavior::default()
    });
    let error = world.fetch(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    world.assert_nothing_published();
    let parts = world.parts();
    assert_eq!(parts.len(), 1, "{parts:?}");
    world.server.seen();
    parts[0].1
}

#[test]
fn next_try_goes_on_with_the_same_file_alone() {
    let whole = [gguf(), vec![7; SYNCED_BYTES]].concat();
    for (names, changed, goes_on) in [
        (Names::ETag, false, true),
        (Names::LastModified, false, true),
        (Names::ETag, true, false),
        (Names::LastModified, true, false),
        // A name that promises no equal bytes is none.
        (Names::Weak, false, false),
        (Names::Weak, true, false),
    ] {
        let world = World::new();
        world.server.put("/models/m.gguf", whole.clone());
        let here = half_fetched(&world, "m.gguf", "m.gguf", SYNCED_BYTES + 70_000, names);
        assert_eq!(here, SYNCED_BYTES as u64 + 70_000);
        let now = if changed { other(&whole) } else { whole.clone() };
        world.server.put("/models/m.gguf", now.clone());
        world.behave(Behavior {
            names: Some(names),
            ..Behavior::default()
        });
        let fetched = world.fetch("m.gguf").unwrap();
        assert!(fs::read(fetched.path).unwrap() == now, "{names:?} {changed}");
        let ranges: Vec<_> = world
            .server
            .seen()
            .into_iter()
            .map(|r| (r.range, r.if_range.is_some()))
            .collect();
        // What came last may not have outlasted a power cut, and no digest would tell.
        let gone_on = (Some(format!("bytes={SYNCED_BYTES}-")), true);
        assert_eq!(ranges.contains(&gone_on), goes_on, "{names:?} {changed}: {ranges:?}");
    }
}

#[test]
fn file_that_changes_meanwhile_is_an_error_and_nothing_is_mixed() {
    let world = World::new();
    world.behave(Behavior {
        cut: Some((70_000, 1)),
        becomes: Some(other(&gguf())),
        ..Behavior::default()
    });
    let error = world.fetch("m.gguf").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum, "{error}");
    for word in ["changed at its source", "m.gguf", "expected \"", "found \""] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(world.parts().is_empty());
    world.assert_nothing_published();
    assert!(fs::read(world.fetch("m.gguf").unwrap().path).unwrap() == other(&gguf()));
}

#[test]
fn digest_that_was_given_is_what_counts() {
    let world = World::new();
    let right: String = Sha256::digest(gguf()).iter().map(|b| format!("{b:02x}")).collect();
    let fetched = world.fetch(&format!("m.gguf#sha256={right}")).unwrap();
    assert_eq!(fetched.record.unwrap().files[0].sha256, right);
    let wrong = format!("m.gguf#sha256={}", "0".repeat(64));
    let error = world.fetch(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert!(error.to_string().contains(&right), "{error}");
    assert!(world.parts().is_empty());
    // What is here under the right digest is not what was asked for with the wrong one.
    assert_eq!(world.fetch(&wrong).unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn server_that_lies_about_sizes_is_an_error() {
    for (path, claims, kind) in [
        // It ends too soon, and there is no more.
        ("m.gguf", 1, ErrorKind::Protocol),
        ("b", 1, ErrorKind::Protocol),
        ("b", 2 << 20, ErrorKind::Checksum),
    ] {
        let world = World::new();
        world.behave(Behavior {
            claims,
            only: if path == "b" { "model.weights" } else { "" },
            ..Behavior::default()
        });
        let error = world.fetch(path).unwrap_err();
        assert_eq!(error.kind(), kind, "{path} {claims}: {error}");
        world.assert_nothing_published();
    }
    // Weights that are shorter or longer than their manifest says.
    let weights = fs::read(golden("bundles/old_graph/model.weights")).unwrap();
    for (now, word) in [
        (weights[..weights.len() - 64].to_vec(), "as the weights manifest says"),
        (
            [weights.clone(), vec![0; 2 << 20]].concat(),
            "as the weights manifest says",
        ),
        ([weights.clone(), vec![0; 300 << 10]].concat(), "weights_checksums.json"),
    ] {
        let world = World::new();
        world.server.put(WEIGHTS, now);
        let error = world.fetch("b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum);
        assert!(error.to_string().contains(word), "{error}");
        world.assert_nothing_published();
    }
}

#[test]
fn bundle_with_damage_anywhere_is_an_error_and_the_next_try_begins_anew() {
    for (path, content) in bundle_files() {
        let world = World::new();
        let route = format!("/models/b/{path}");
        let mut damaged = content.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        world.server.put(&route, damaged);
        let error = world.fetch("b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum, "{path}: {error}");
        world.assert_nothing_published();
        world.server.put(&route, content);
        world.fetch("b").unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}

/// The manifest of the bundle with one file more.
fn manifest_with(path: &str, bytes: u64, xxh3: &str) -> Vec<u8> {
    let text = fs::read(golden("bundles/old_graph/components/manifest.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    json["files"][path] = serde_json::json!({"bytes": bytes, "xxh3": xxh3});
    let mut typed: cactus_bundle::Manifest = serde_json::from_value(json).unwrap();
    typed.checksum = typed.expected_checksum();
    serde_json::to_vec(&typed).unwrap()
}

#[test]
fn bundle_goes_on_in_another_try_and_never_with_parts_of_two() {
    let weights = fs::read(golden("bundles/old_graph/model.weights")).unwrap();
    for changed in [false, true] {
        let world = World::new();
        // A file that is whole before the one that breaks off.
        let large = gguf();
        let sum = cactus_bundle::Checksum::of(&large).to_string();
        let manifest = manifest_with("a.bin", large.len() as u64, &sum);
        world.server.put("/models/b/a.bin", large);
        world.server.put("/models/b/components/manifest.json", manifest);
        let here = half_fetched(&world, "b", "model.weights", 4000, Names::ETag);
        assert_eq!(here, 4000);
        world.behave(Behavior::default());
        if changed {
            // New weights with the manifests of the old ones are no bundle.
            world.server.put(WEIGHTS, other(&weights));
            let error = world.fetch("b").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Checksum, "{error}");
            world.assert_nothing_published();
            let ranges: Vec<_> = world.server.seen().into_iter().filter_map(|r| r.range).collect();
            assert!(ranges.iter().all(|range| range == "bytes=0-0"), "{ranges:?}");
            world.server.put(WEIGHTS, weights.clone());
        }
        let fetched = world.fetch("b").unwrap();
        assert!(fs::read(fetched.path.join("model.weights")).unwrap() == weights);
        let seen = world.server.seen();
        let asked = |path: &str| seen.iter().filter(|r| r.path.ends_with(path)).count();
        assert_eq!(asked("a.bin"), usize::from(changed), "{seen:?}");
        // Of the weights, which have no digest, so few bytes are not gone on with.
        assert!(
            seen.iter()
                .all(|r| r.range.as_deref().is_none_or(|range| range == "bytes=0-0")),
            "{seen:?}"
        );
    }
}

#[test]
fn fetch_stops_when_asked_and_goes_on_later() {
    struct Stop(&'static str, bool);
    impl Progress for Stop {
        fn event(&mut self, event: Event<'_>) {
            self.1 |= match event {
                Event::File { name, .. } => name.ends_with(self.0),
                Event::Verify { .. } => self.0 == "verify",
                _ => false,
            };
        }
        fn is_cancelled(&self) -> bool {
            self.1
        }
    }
    for (path, at) in [("m.gguf", "m.gguf"), ("b", "model.weights"), ("b", "verify")] {
        let world = World::new();
        let error = world
            .fetch_with(&world.address(path), &mut Stop(at, false))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{path} {at}: {error}");
        world.assert_nothing_published();
        world.fetch(path).unwrap();
    }
}

#[test]
fn hostile_manifest_is_an_error_and_writes_nowhere_else() {
    let manifest = fs::read_to_string(golden("bundles/old_graph/components/manifest.json")).unwrap();
    let with_path = |path: &str| String::from_utf8(manifest_with(path, 4, "0000000000000000")).unwrap();
    for (text, word) in [
        (with_path("../../../../evil"), "plain path"),
        (with_path("/etc/evil"), "plain path"),
        (with_path("a\\..\\..\\evil"), "plain path"),
        (with_path("C:evil"), "plain path"),
        (with_path("a/../evil"), "plain path"),
        (with_path("source.json"), "plain path"),
        (with_path("x.part"), "plain path"),
        (with_path("model.weights"), "both a file of weights"),
        (
            manifest
                .replace("\"version\": 1", "\"version\": 99")
                .replace("\"version\":1", "\"version\":99"),
            "version 99",
        ),
        ("<html>".to_owned(), "is not readable"),
        ("{}".to_owned(), "is not readable"),
        (manifest.replacen("\"name\"", "\"nome\"", 1), "is not readable"),
    ] {
        let world = World::new();
        world
            .server
            .put("/models/b/components/manifest.json", text.into_bytes());
        let error = world.fetch("b").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Checksum | ErrorKind::Unsupported),
            "{error}"
        );
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert!(error.to_string().contains(&world.address("b")), "{error}");
        world.assert_nothing_published();
        assert!(!world.dir.path().join("evil").exists());
    }
}

#[test]
fn what_is_no_model_is_refused_by_its_address() {
    let world = World::new();
    world.server.put("/models/page.gguf", b"<html>sign in</html>".to_vec());
    world.server.put("/models/x-00001-of-00002.gguf", gguf());
    for (path, kind, word) in [
        ("page.gguf", ErrorKind::Unsupported, "begins with `GGUF`"),
        ("x-00001-of-00002.gguf", ErrorKind::Unsupported, "split"),
        ("absent.gguf", ErrorKind::NotFound, "a GGUF file at"),
        ("absent", ErrorKind::NotFound, "components/manifest.json"),
    ] {
        let error = world.fetch(path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.to_string().contains(&world.address(path)), "{error}");
        world.assert_nothing_published();
    }
}

#[test]
fn redirection_leads_to_encrypted_addresses_or_this_machine_alone() {
    let world = World::new();
    let storage = world.server.address.replace("127.0.0.1", "localhost");
    world.server.put("/storage/blob", gguf());
    world.behave(Behavior {
        redirect: Some(format!("{storage}/storage/blob")),
        ..Behavior::default()
    });
    assert!(fs::read(world.fetch("m.gguf").unwrap().path).unwrap() == gguf());
    let world = World::new();
    // TEST-NET-1: nothing is there, and nothing is sent to it.
    world.behave(Behavior {
        redirect: Some("http://192.0.2.1/m.gguf?key=secret".to_owned()),
        ..Behavior::default()
    });
    let error = world.fetch("m.gguf").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn what_is_fetched_again_takes_the_place_of_the_old_when_it_is_whole() {
    let world = World::new();
    let model = ModelRef::parse(&world.address("b")).unwrap();
    let hub = |offline| {
        Hub::new(HubOptions {
            cache: Some(world.dir.path().to_path_buf()),
            offline,
            ..HubOptions::default()
        })
        .unwrap()
    };
    let old = hub(false).fetch(&model, &mut Silent).unwrap();
    let provenance = fs::read(golden("bundles/old_graph/provenance.json")).unwrap();
    let now = [provenance.clone(), b"\n".to_vec()].concat();
    let sum = cactus_bundle::Checksum::of(&now).to_string();
    let manifest = manifest_with("provenance.json", now.len() as u64, &sum);
    world.server.put("/models/b/components/manifest.json", manifest);
    let read = || fs::read(old.path.join("provenance.json")).unwrap();
    // What is there does not belong together.
    let error = hub(false).fetch_again(&model, &mut Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert_eq!(read(), provenance);
    world.server.put("/models/b/provenance.json", now.clone());
    world.server.seen();
    assert!(hub(true).fetch_again(&model, &mut Silent).unwrap().from_cache);
    assert!(hub(false).fetch(&model, &mut Silent).unwrap().from_cache);
    assert!(world.server.seen().is_empty());
    assert!(!hub(false).fetch_again(&model, &mut Silent).unwrap().from_cache);
    assert_eq!(read(), now);
}

#[test]
fn offline_hub_asks_nobody() {
    let world = World::new();
    let hub = Hub::new(HubOptions {
        cache: Some(world.dir.path().to_path_buf()),
        offline: true,
        ..HubOptions::default()
    })
    .unwrap();
    let model = ModelRef::parse(&world.address("m.gguf")).unwrap();
    let error = hub.fetch(&model, &mut Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline);
    assert!(world.server.seen().is_empty());
    world.fetch("m.gguf").unwrap();
    assert!(hub.fetch(&model, &mut Silent).unwrap().from_cache);
    assert_eq!(hub.remove(&world.address("m.gguf")).unwrap().len(), 1);
}
