//! What the user sees: one place for style.

use crate::hint;
use anstream::eprintln;
use owo_colors::OwoColorize;
use std::borrow::Cow;
use std::io::{ErrorKind, Write as _};

/// Prints an error, what caused it, and what to do about it.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("{} {error}", "error:".red().bold());
    let mut said = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        if !said.contains(&text) {
            eprintln!("  {} {text}", "caused by:".dimmed());
            said.push_str(&text);
        }
    }
    if let Some(hint) = hint::for_error(error) {
        eprintln!("\n{} {hint}", "hint:".cyan().bold());
    }
}

/// A note for the user, on standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    eprintln!("{}", text.dimmed());
}

/// A warning that the user can act on.
pub(crate) fn warning(text: impl std::fmt::Display) {
    eprintln!("{} {text}", "warning:".yellow().bold());
}

/// A line of data.
pub(crate) fn line(text: impl std::fmt::Display) {
    piece(format_args!("{text}\n"));
}

/// Part of a line of data, shown at once. Where nobody takes it, the program ends: well where its reader has gone, else with an error.
pub(crate) fn piece(text: impl std::fmt::Display) {
    let mut out = anstream::stdout();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    let Err(e) = written else {
        return;
    };
    let gone = e.kind() == ErrorKind::BrokenPipe;
    if !gone {
        error(&anyhow::Error::new(e).context("cannot write to standard output"));
    }
    // What is written to files is whole at any moment.
    #[allow(clippy::disallowed_methods)]
    std::process::exit(i32::from(!gone));
}

/// JSON to standard output.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value)?);
    Ok(())
}

/// JSON in one line, shown at once.
///
/// # Errors
/// Where nobody takes it.
pub(crate) fn json_line<T: serde::Serialize>(value: &T) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Forgets what was typed ahead: a yes is one to a question that was seen.
pub(crate) fn forget_typed() {
    #[cfg(unix)]
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// A text of a model, for people to read: what would control the terminal, or turn the order of letters, is shown as what it is.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let controls = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match controls(c) {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Whether the reader of our output has gone, which is no error of ours.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// Bytes for people: `142.9 MB` (1 MB is 1e6 bytes).
pub(crate) fn bytes(n: u64) -> String {
    let x = n as f64;
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", x / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", x / 1e6),
        _ => format!("{:.2} GB", x / 1e9),
    }
}

/// Rows in columns: numbers to the right, texts to the left.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (w, cell) in widths.iter_mut().zip(row) {
            *w = (*w).max(cell.chars().count());
        }
    }
    let is_number = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).filter(|cell| !cell.is_empty());
        i > 0
            && cells.clone().count() > 0
            && cells
                .clone()
                .all(|c| c.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    };
    let numbers: Vec<bool> = (0..widths.len()).map(is_number).collect();
    let render = |cells: Vec<&str>| {
        let mut out = String::new();
        for (i, (cell, w)) in cells.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(w - cell.chars().count());
            let gap = if i == 0 { "" } else { "  " };
            match numbers[i] {
                true => out.push_str(&format!("{gap}{pad}{cell}")),
                false => out.push_str(&format!("{gap}{cell}{pad}")),
            }
        }
        out.trim_end().to_owned()
    };
    line(render(header.to_vec()).bold());
    for row in rows {
        line(render(row.iter().map(String::as_str).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_is_shown() {
        let plain = "naïve\t日本語\n👩‍🚒 שלום";
        assert!(matches!(harmless(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(
            harmless("A\x1b[2J\x1b]0;x\x07B\r\u{202e}C\u{9b}D"),
            "A\\u{1b}[2J\\u{1b}]0;x\\u{7}B\\u{d}\\u{202e}C\\u{9b}D"
        );
    }

    #[test]
    fn bytes_are_decimal() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(142_900_000), "142.9 MB");
        assert_eq!(bytes(1_118_000_000), "1.12 GB");
    }
}
