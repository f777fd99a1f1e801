//! What a person at a terminal is asked, and what the keys do. The terminal is that of `script` (util-linux); without it there
//! is nothing to test.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use crate::cactus::Cactus;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A command at a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What was shown and not yet waited for.
    shown: String,
}

impl Terminal {
    /// `None` where there is no `script`.
    fn run(cactus: &Cactus, args: &str) -> Option<Terminal> {
        Terminal::of(cactus, args, "xterm")
    }

    /// At a terminal of another kind.
    fn of(cactus: &Cactus, args: &str, kind: &str) -> Option<Terminal> {
        if Command::new("script").arg("--version").output().is_err() {
            eprintln!("skipped: `script` is not installed");
            return None;
        }
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_cactus"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(cactus.0.path());
        script.env("CACTUS_STATE", cactus.0.path().join("state"));
        script
            .env("TERM", kind)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Terminal {
            keys: child.stdin.take().unwrap(),
            child,
            screen,
            shown: String::new(),
        })
    }

    /// Waits until `text` is shown.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.shown.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("`{text}` was not shown, but {}", self.shown),
            }
        }
        let end = self.shown.find(text).unwrap() + text.len();
        self.shown.drain(..end);
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

const ASKED: &str = "m --cloud http://127.0.0.1:9/v1#m --handoff always --max-new-tokens 2 --temperature 0";
const CTRL_C: &str = "\x03";

#[test]
fn ctrl_c_at_the_question_for_consent_ends_a_single_prompt() {
    let cactus = Cactus::new();
    let Some(mut terminal) = Terminal::run(&cactus, &format!("run {ASKED} --prompt Hello")) else {
        return;
    };
    terminal.wait_for("[y/N]");
    terminal.press(CTRL_C);
    terminal.wait_for("(stopped)");
    assert_eq!(terminal.exit_code(), Some(130));
    let log = cactus.ok(&["route", "log", "--json"]);
    assert!(log.contains("\"reason\":\"cancelled\""), "{log}");
}

/// Where the terminal knows no keys, Ctrl-C is a signal.
#[test]
fn ctrl_c_at_the_question_of_a_dumb_terminal_is_recorded_and_ends_the_program() {
    for args in [format!("run {ASKED} --prompt Hello"), format!("run {ASKED}")] {
        let cactus = Cactus::new();
        let Some(mut terminal) = Terminal::of(&cactus, &args, "dumb") else {
            return;
        };
        if !args.contains("--prompt") {
            terminal.wait_for("> ");
            terminal.press("Hello\n");
        }
        terminal.wait_for("[y/N]");
        terminal.press(CTRL_C);
        terminal.wait_for("(stopped)");
        assert_eq!(terminal.exit_code(), Some(130), "{args}");
        let log = cactus.ok(&["route", "log", "--json"]);
        assert!(log.contains("\"reason\":\"cancelled\""), "{args}: {log}");
    }
}

#[test]
fn ctrl_c_at_the_question_for_consent_ends_the_turn_of_a_chat() {
    let cactus = Cactus::new();
    let Some(mut terminal) = Terminal::run(&cactus, &format!("run {ASKED}")) else {
        return;
    };
    terminal.wait_for("> ");
    terminal.press("Hello\r");
    terminal.wait_for("[y/N]");
    terminal.press(CTRL_C);
    terminal.wait_for("(stopped)");
    terminal.wait_for("> ");
    terminal.press("Hello\r");
    terminal.wait_for("[y/N]");
    terminal.press("n\r");
    terminal.wait_for("but a person said no");
    terminal.wait_for("> ");
    terminal.press("/exit\r");
    assert_eq!(terminal.exit_code(), Some(0));
}
