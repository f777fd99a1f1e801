//! Programs that a model wrote: where they end, and running them with limits.
//!
//! The limits (time, memory, file sizes, processes; an empty folder; no network where `unshare` can take it away) keep an
//! accident small. They are no sandbox: a program can read whatever the user can.

use crate::{Error, Result};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where a completed function has ended.
pub(crate) const STOPS: [&str; 6] = ["\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n```"];

/// Sets limits, runs standard input as a program, and ends with [`PASSED`] where it ran through.
const PRELUDE: &str = "\
import sys, os
try:
    import resource as r
    s = int(sys.argv[1])
    for what, most in ((r.RLIMIT_CPU, s), (r.RLIMIT_AS, 2 << 30), (r.RLIMIT_FSIZE, 1 << 20), (r.RLIMIT_NOFILE, 64),
                       (r.RLIMIT_CORE, 0), (r.RLIMIT_NPROC, 0)):
        r.setrlimit(what, (most, most))
except BaseException as e:
    print(e, file=sys.stderr)
    os._exit(98)
source = sys.stdin.read()
try:
    exec(compile(source, 'answer', 'exec'), {'__name__': 'answer'})
except BaseException as e:
    print(type(e).__name__, str(e)[:200], file=sys.stderr)
    os._exit(1)
os._exit(97)
";
const PASSED: i32 = 97;
const NO_LIMITS: i32 = 98;

/// The limit is for time of the CPU; a program has this times as much by the clock, as the model computes beside it.
const WALL: u32 = 4;

/// Why the program fails; `None` where it runs through within `limit`.
pub(crate) fn run(program: &str, limit: Duration) -> Result<Option<String>> {
    let fail = |what: String| Error::Task(format!("the answer cannot be run: {what}"));
    let folder = tempfile::tempdir().map_err(|e| fail(e.to_string()))?;
    let mut said = tempfile::tempfile().map_err(|e| fail(e.to_string()))?;
    let errors = said.try_clone().map_err(|e| fail(e.to_string()))?;
    let mut command = if isolates() {
        let mut c = Command::new("unshare");
        c.args(ISOLATED).arg("python3");
        c
    } else {
        Command::new("python3")
    };
    command
        .args(["-I", "-B", "-c", PRELUDE])
        .arg(limit.as_secs().max(1).to_string())
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(errors);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => fail("there is no `python3`".into()),
        _ => fail(e.to_string()),
    })?;
    if let Some(mut input) = child.stdin.take() {
        // A program that ends before it is read whole has failed by itself.
        let _ = input.write_all(program.as_bytes());
    }
    let wall = WALL * limit;
    let Some(status) = wait(&mut child, wall).map_err(|e| fail(e.to_string()))? else {
        return Ok(Some(format!("still running after {} s", wall.as_secs())));
    };
    if status.code() == Some(PASSED) {
        return Ok(None);
    }
    let mut why = String::new();
    let mut text = Vec::new();
    if said.seek(SeekFrom::Start(0)).is_ok() && (&mut said).take(4096).read_to_end(&mut text).is_ok() {
        why = String::from_utf8_lossy(&text).trim().chars().take(300).collect();
    }
    if status.code() == Some(NO_LIMITS) {
        return Err(fail(format!("limits cannot be set: {why}")));
    }
    Ok(Some(if why.is_empty() {
        format!("ended with {status}")
    } else {
        why
    }))
}

/// Waits at most `limit`; after that the child is killed.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// No network, and no process outlives the first.
const ISOLATED: [&str; 6] = ["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--"];

/// Whether `unshare` works here.
pub(crate) fn isolates() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let tried = Command::new("unshare")
            .args(ISOLATED)
            .arg("true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|s| s.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::print_stderr, reason = "what is skipped is said")]
    fn python() -> bool {
        let there = Command::new("python3").arg("-c").arg("import resource").status();
        let there = there.is_ok_and(|s| s.success());
        if !there {
            eprintln!("SKIPPED: there is no python3 with `resource`");
        }
        there
    }

    #[test]
    fn programs_pass_fail_and_are_stopped() {
        if !python() {
            return;
        }
        // What ends by itself may take its time on a busy machine.
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
        assert_eq!(run("x = 1\nassert x == 1", long).unwrap(), None);
        for (program, why) in [
            ("assert 1 == 2", "AssertionError"),
            ("def f(:", "SyntaxError"),
            ("raise SystemExit(0)", "SystemExit"),
            ("import sys; sys.exit(97)", "SystemExit"),
            ("x = 'a' * (3 << 30)", "MemoryError"),
            ("open('f', 'w').write('x' * (2 << 20))", "File too large"),
            ("input()", "EOFError"),
            ("while True: pass", ""),
            ("import time; time.sleep(600)", "still running"),
        ] {
            let endless = program.contains("while") || program.contains("sleep");
            let found = run(program, if endless { short } else { long }).unwrap();
            assert!(found.as_ref().is_some_and(|w| w.contains(why)), "{program}: {found:?}");
        }
        // It sees an empty folder and none of our environment.
        let program = "import os\nassert os.listdir('.') == []\nassert 'CARGO' not in os.environ\nassert 'USER' not in os.environ";
        assert_eq!(run(program, long).unwrap(), None);
        if isolates() {
            let program = "import socket\ns = socket.socket()\ns.settimeout(1)\ns.connect(('1.1.1.1', 80))";
            assert!(run(program, long).unwrap().unwrap().contains("OSError"));
        }
    }
}
