//! Takes the text out of a PDF, in this process, which sets its own limits first. `cactus-rag` starts it for files of others.

use crate::args::ExtractArgs;
use crate::output;
use anyhow::Result;
use cactus_rag::Kind;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Sets the limits of this process. A system that has none is held by its parent to the time alone.
#[cfg(unix)]
fn limit(args: &ExtractArgs) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let most = |resource, most: u64| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        // One that is lower already stays.
        let _ = setrlimit(resource, limit);
    };
    most(Resource::As, args.memory);
    most(Resource::Cpu, args.seconds);
    most(Resource::Core, 0);
}

#[cfg(not(unix))]
fn limit(_: &ExtractArgs) {}

fn read(args: &ExtractArgs) -> Result<Vec<u8>, (&'static str, String)> {
    let most = Kind::Pdf.most_bytes();
    let mut bytes = Vec::new();
    let read = match &args.file {
        Some(path) => File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)),
        None => std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes),
    };
    read.map_err(|e| ("io", format!("it cannot be read: {e}")))?;
    match bytes.len() as u64 > most {
        true => Err(("too_much", format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Writes the pages, and gives the last line.
fn write(args: &ExtractArgs) -> Result<Value, (&'static str, String)> {
    let bytes = read(args)?;
    let (mut unknown, mut length, mut last, mut failed) = (0, 0usize, 0, None);
    // What the reader of a damaged file stumbles over is an error of the file.
    let pages = catch_unwind(AssertUnwindSafe(|| {
        cactus_pdf::pages(bytes, &mut |page| {
            unknown += page.unknown_glyphs;
            length = length.saturating_add(page.text.len());
            last = page.number;
            if length > args.text {
                failed = Some(("too_much", format!("it has more than {} bytes of text", args.text)));
            } else if let Err(e) = output::json_line(&json!({"page": page.number, "text": page.text})) {
                failed = Some(("io", format!("its text cannot be written: {e}")));
            }
            failed.is_none()
        })
    }));
    match (failed, pages) {
        (Some(failed), _) => Err(failed),
        (None, Ok(Ok(pages))) => Ok(json!({"pages": pages, "unknown_glyphs": unknown})),
        (None, Ok(Err(e))) => Err((e.kind(), e.to_string())),
        (None, Err(_)) => Err(("damaged", format!("page {} is damaged", last + 1))),
    }
}

pub(crate) fn run(args: &ExtractArgs) -> Result<ExitCode> {
    limit(args);
    // The line of the error says it.
    std::panic::set_hook(Box::new(|_| {}));
    let (line, code) = match write(args) {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err((error, message)) => (json!({"error": error, "message": message}), ExitCode::FAILURE),
    };
    output::json_line(&line)?;
    std::io::stdout().flush()?;
    Ok(code)
}
