//! Files of pictures. HEIC, as phones make it, is read by a program of the system, where there is one: its decoder is under other terms than ours.

use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that a program may take for a picture.
const LONGEST: Duration = Duration::from_secs(30);
/// How often it is looked after.
const LOOK: Duration = Duration::from_millis(5);
/// Programs that make a JPEG picture of a HEIC one, upright, with their arguments before both files: those of libheif, what macOS has, and ImageMagick.
const PROGRAMS: [(&str, &[&str], &[&str]); 4] = [
    ("heif-dec", &["-q", "95"], &[]),
    ("heif-convert", &["-q", "95"], &[]),
    (
        "sips",
        &["-s", "format", "jpeg", "-s", "formatOptions", "95"],
        &["--out"],
    ),
    ("magick", &["-quality", "95"], &[]),
];

/// The bytes of a picture of at most `most` bytes; of a HEIC picture those of a JPEG one.
///
/// # Errors
/// A file that cannot be read or is too large, and a HEIC picture that no program of the system reads.
pub(crate) fn read(file: &Path, most: usize) -> Result<Vec<u8>> {
    let bytes = bytes_of(file, most)?;
    match cactus_vision::is_heic(&bytes) {
        true => as_jpeg(&bytes, most).with_context(|| format!("`{}` is a HEIC picture", file.display())),
        false => Ok(bytes),
    }
}

/// The bytes of a file of at most `most` bytes.
///
/// # Errors
/// As [`read`].
pub(crate) fn bytes_of(file: &Path, most: usize) -> Result<Vec<u8>> {
    let shown = file.display();
    if file.is_dir() {
        bail!(
            "`{shown}` is a folder, expected a file; `--video` shows the pictures of a folder as the frames of a film"
        );
    }
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read `{shown}`"))?;
    if bytes.len() > most {
        bail!("`{shown}` has more than {most} bytes, which are the most that are read");
    }
    Ok(bytes)
}

fn as_jpeg(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    // Names of our own, so that none is taken for an option.
    let folder = tempfile::tempdir().context("there is no folder for files that are read once")?;
    let [from, to] = ["picture.heic", "picture.jpg"].map(|name| folder.path().join(name));
    std::fs::write(&from, bytes).context("cannot write a file that is read once")?;
    for (program, before, between) in PROGRAMS {
        let mut command = Command::new(program);
        command.args(before).arg(&from).args(between).arg(&to);
        match within_time(&mut command, program)? {
            true if to.is_file() => return bytes_of(&to, most),
            true => bail!("`{program}` makes no picture of it"),
            false => {}
        }
    }
    let programs = PROGRAMS.map(|(program, ..)| program).join("`, `");
    bail!(
        "none of the programs that read it is here (`{programs}`); install one, such as the package libheif-examples, or save it as JPEG"
    )
}

/// Whether there is such a program; it has ended then.
fn within_time(command: &mut Command, program: &str) -> Result<bool> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match quiet.spawn() {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e).with_context(|| format!("`{program}` cannot be started")),
    };
    let begun = Instant::now();
    loop {
        if child
            .try_wait()
            .with_context(|| format!("`{program}` is lost"))?
            .is_some()
        {
            return Ok(true);
        }
        if begun.elapsed() > LONGEST {
            drop(child.kill());
            drop(child.wait());
            bail!("`{program}` takes longer than {} s for it", LONGEST.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}
