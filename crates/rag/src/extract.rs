//! Documents that are no text, such as PDF: their pages come from whoever can take them out.
//!
//! Reading a PDF of somebody else is dangerous work: a file of two kilobytes can ask for more time or memory than there is. So it is never
//! done in this process. [`Extract`] is the seam: whoever opens a [`Corpus`](crate::Corpus) gives one, or none, and then PDFs are left out
//! and named. [`Program`] is the one for real use: it starts the `cactus` command with the file as its standard input, holds it to
//! [`Limits`], ends it where it goes beyond them, and believes nothing of what it writes before it is checked. This crate knows what to
//! start only from its caller: the command and its server name themselves, and other programs have the path from their user.
//!
//! ```text
//! cactus extract-pdf --memory BYTES --seconds N --text BYTES < file.pdf
//! {"page": 1, "text": "…"}                    a line for each page, from 1
//! {"pages": 1, "unknown_glyphs": 0}           the last line; without it nothing before it counts
//! {"error": "encrypted", "message": "…"}      or this one
//! ```
//!
//! The program sets the limits of memory and processor time for itself before it looks at the file, as the system lets only a process itself
//! do everywhere, and without unsafe code. The limit of time is held here, too.

use serde::Deserialize;
use std::fmt::Debug;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often is looked whether somebody wants it stopped.
const TICK: Duration = Duration::from_millis(20);
/// Bytes that a page takes beside its text, at most, and of a last line.
const LINE_BYTES: usize = 64;
/// Most pages of a document.
const MOST_PAGES: usize = 100_000;

/// Takes the text out of documents that are none.
pub trait Extract: Debug + Send + Sync {
    /// The texts of the pages of the PDF in the file at `path`, in their order.
    ///
    /// # Errors
    /// [`Unread`], also after `stop` was true.
    fn pages(&self, path: &Path, stop: &dyn Fn() -> bool) -> Result<Vec<String>, Unread>;
}

/// Why there is no text of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Somebody stopped it.
    Cancelled,
    /// It cannot be read: why, and what to do.
    Because(String),
    /// It was not tried, or may be read at another time: why, and what to do.
    Untried(String),
}

impl Unread {
    fn untried(reason: impl Into<String>) -> Unread {
        Unread::Untried(reason.into())
    }
}

/// What reading one document may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time.
    pub time: Duration,
    /// Memory, in bytes, where the system can hold a process to it.
    pub memory_bytes: u64,
    /// Text that comes out, in bytes.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time: Duration::from_secs(60),
            memory_bytes: 1 << 30,
            text_bytes: 16 << 20,
        }
    }
}

/// The `cactus` command, which takes out text in a process of its own.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    limits: Limits,
}

/// A line of what the program writes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Page { page: usize, text: String },
    End { pages: usize, unknown_glyphs: usize },
    Failed { error: String, message: String },
}

impl Program {
    /// The program at `path`.
    #[must_use]
    pub fn new(path: &Path, limits: Limits) -> Program {
        Program {
            path: path.to_path_buf(),
            limits,
        }
    }

    /// The pages that the program has written, `output` being all of it.
    ///
    /// # Errors
    /// Why the document has none, or what is wrong with the output, in words.
    pub fn read(output: &[u8]) -> Result<Vec<String>, String> {
        let mut pages: Vec<String> = Vec::new();
        let mut lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        while let Some(line) = lines.next() {
            let line: Line = serde_json::from_slice(line).map_err(|e| {
                format!(
                    "the program that reads it wrote no page behind page {}: {e}",
                    pages.len()
                )
            })?;
            match line {
                Line::Page { page, text } if page == pages.len() + 1 && page <= MOST_PAGES => {
                    // A form feed ends a page.
                    pages.push(text.replace('\u{c}', " "));
                }
                Line::Page { page, .. } => {
                    return Err(format!(
                        "the program that reads it wrote page {page} behind page {}",
                        pages.len()
                    ));
                }
                Line::Failed { error, message } => return Err(advice(&error, &message)),
                Line::End {
                    pages: count,
                    unknown_glyphs,
                } => {
                    if count != pages.len() || lines.next().is_some() {
                        return Err(format!(
                            "the program that reads it wrote {} pages of {count}",
                            pages.len()
                        ));
                    }
                    let letters = pages
                        .iter()
                        .flat_map(|page| page.chars())
                        .filter(|c| !c.is_whitespace())
                        .count();
                    return match () {
                        () if letters == 0 && unknown_glyphs == 0 => Err(format!(
                            "its {count} pages have no text, as a scan has none; run text recognition (OCR) over it, and save it with its text"
                        )),
                        () if letters < unknown_glyphs => Err(
                            "its fonts do not say which letters they draw; run text recognition (OCR) over it, and save it with its text"
                                .to_owned(),
                        ),
                        () => Ok(pages),
                    };
                }
            }
        }
        Err("the program that reads it ended before its last page".to_owned())
    }

    fn start(&self, path: &Path) -> Result<Child, Unread> {
        let file = File::open(path).map_err(|e| Unread::untried(e.to_string()))?;
        let Limits {
            time,
            memory_bytes,
            text_bytes,
        } = self.limits;
        let mut command = Command::new(&self.path);
        command
            .arg("extract-pdf")
            .args(["--memory", &memory_bytes.to_string()])
            .args(["--seconds", &time.as_secs().max(1).to_string()])
            .args(["--text", &text_bytes.to_string()])
            .stdin(Stdio::from(file))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().map_err(|e| {
            Unread::untried(format!(
                "a PDF is read by the program `cactus`, and `{}` cannot be started: {e}",
                self.path.display()
            ))
        })
    }

    /// All that the child writes; `None` where that is more than there may be.
    fn output(&self, child: &mut Child) -> Receiver<Option<Vec<u8>>> {
        let (sender, receiver) = channel();
        // JSON writes a byte in six at most.
        let most = self
            .limits
            .text_bytes
            .saturating_mul(6)
            .saturating_add(LINE_BYTES * MOST_PAGES);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let read = stdout.take(most as u64 + 1).read_to_end(&mut bytes);
                // Whoever asked may have left.
                let _ = sender.send((read.is_ok() && bytes.len() <= most).then_some(bytes));
            });
        }
        receiver
    }
}

impl Extract for Program {
    fn pages(&self, path: &Path, stop: &dyn Fn() -> bool) -> Result<Vec<String>, Unread> {
        let mut child = Ended(self.start(path)?);
        let begun = Instant::now();
        let output = self.output(&mut child.0);
        let output = loop {
            if stop() {
                return Err(Unread::Cancelled);
            }
            if begun.elapsed() > self.limits.time {
                return Err(Unread::Because(too_long(self.limits.time)));
            }
            match output.recv_timeout(TICK) {
                Ok(Some(output)) => break output,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Unread::Because(too_much(self.limits.text_bytes)));
                }
            }
        };
        // It has closed its output, so it ends now or hangs.
        let status = loop {
            match child.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if begun.elapsed() <= self.limits.time => std::thread::sleep(TICK / 10),
                _ => return Err(Unread::Because(too_long(self.limits.time))),
            }
        };
        match Program::read(&output) {
            Ok(pages) if pages.iter().map(String::len).sum::<usize>() > self.limits.text_bytes => {
                Err(Unread::Because(too_much(self.limits.text_bytes)))
            }
            Ok(pages) => Ok(pages),
            Err(_) if ended_by_limit(status) => Err(Unread::Because(format!(
                "reading it took more than {} MB of memory, or failed otherwise ({status}); open it in a viewer, and save it again, or split it",
                self.limits.memory_bytes >> 20
            ))),
            Err(reason) => Err(Unread::Because(reason)),
        }
    }
}

/// A process that ends with whoever started it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // One that has ended is none.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process did not end by itself.
fn ended_by_limit(status: std::process::ExitStatus) -> bool {
    status.code().is_none_or(|code| code != 0 && code != 1)
}

fn too_long(time: Duration) -> String {
    format!(
        "reading it took longer than {} s; open it in a viewer, and save it again, or split it",
        time.as_secs_f32()
    )
}

fn too_much(bytes: usize) -> String {
    format!("it has more than {bytes} bytes of text; split it")
}

/// What to do about an error of the program.
fn advice(error: &str, message: &str) -> String {
    let advice = match error {
        "encrypted" | "cipher" => "save it without a password",
        "too_much" => "split it",
        _ => "open it in a viewer, and save it again",
    };
    // Whatever stands there is one line.
    let message: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
    format!("{message}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_when_the_last_line_is_there() {
        let page = r#"{"page": 1, "text": "One\u000cmore"}"#;
        let end = r#"{"pages": 1, "unknown_glyphs": 2}"#;
        assert_eq!(
            Program::read(format!("{page}\n{end}\n").as_bytes()).unwrap(),
            ["One more"]
        );
        for (output, said) in [
            (String::new(), "ended before"),
            (format!("{page}\n"), "ended before"),
            (format!("{page}\n{page}\n{end}"), "page 1 behind page 1"),
            (r#"{"page": 2, "text": ""}"#.to_owned(), "page 2 behind page 0"),
            (format!("{end}\n"), "0 pages of 1"),
            (format!("{page}\n{end}\n{page}\n"), "1 pages of 1"),
            (format!("{page}\nnonsense\n{end}"), "behind page 1"),
            (r#"{"pages": 0, "unknown_glyphs": 0}"#.to_owned(), "no text"),
            (
                format!("{page}\n{}", r#"{"pages": 1, "unknown_glyphs": 20}"#),
                "which letters",
            ),
            (
                r#"{"error": "encrypted", "message": "it is\nencrypted"}"#.to_owned(),
                "it isencrypted; save it without a password",
            ),
            (
                r#"{"error": "new", "message": "odd"}"#.to_owned(),
                "odd; open it in a viewer",
            ),
        ] {
            let reason = Program::read(output.as_bytes()).unwrap_err();
            assert!(reason.contains(said), "{output}: {reason}");
        }
        for at in 0..page.len() + end.len() {
            let _ = Program::read(&format!("{page}\n{end}").as_bytes()[..at]).unwrap_err();
        }
    }
}
