//! Films: a folder of pictures, or a file of which the system's `ffmpeg` takes the frames that the model sees. No decoder of films is in this
//! program: those there are come under other terms, or with patents.

use crate::picture_file;
use anyhow::{Context as _, Result, anyhow, bail};
use cactus_engine::chat::Timing;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Frames a second of a film that is a folder of pictures, where nobody says it.
pub(crate) const USUAL_RATE: f64 = 1.0;
/// Extensions of pictures in a folder.
const PICTURES: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// A film.
pub(crate) struct Film {
    /// Its frames, as files of pictures.
    pub(crate) frames: Vec<Vec<u8>>,
    /// When they are seen.
    pub(crate) timing: Timing,
}

/// Frames a second, from an argument.
///
/// # Errors
/// What is no number, or none that a film has.
pub(crate) fn rate(text: &str) -> Result<f64> {
    let rate: f64 = text.parse()?;
    match (0.001..=1000.0).contains(&rate) {
        true => Ok(rate),
        false => bail!("expected frames a second from 0.001 to 1000"),
    }
}

/// The film at `path`, of at most `most` bytes for each frame: of a file those frames that `chosen` says of their number and length in seconds,
/// of a folder all, of which `rate` go by in a second.
///
/// # Errors
/// A folder without pictures, a file that is no film, and one where the system has no `ffmpeg`.
pub(crate) fn read(path: &Path, rate: f64, most: usize, chosen: impl Fn(usize, f64) -> Vec<usize>) -> Result<Film> {
    match path.is_dir() {
        true => folder(path, rate, most, chosen),
        false => file(path, most, chosen),
    }
}

fn folder(path: &Path, rate: f64, most: usize, chosen: impl Fn(usize, f64) -> Vec<usize>) -> Result<Film> {
    let shown = path.display();
    let is_picture = |file: &PathBuf| {
        let extension = file
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default()
            .to_ascii_lowercase();
        PICTURES.contains(&extension.as_str())
    };
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read `{shown}`"))?;
    let all = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut files = all
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .with_context(|| format!("cannot read `{shown}`"))?;
    files.retain(is_picture);
    files.sort();
    if files.is_empty() {
        bail!(
            "`{shown}` has no pictures; expected the frames of a film as {}",
            PICTURES.join(", ")
        );
    }
    let seconds = files.len() as f64 / rate;
    let chosen = chosen(files.len(), seconds);
    let frames = chosen
        .iter()
        .map(|&i| picture_file::bytes_of(&files[i], most))
        .collect::<Result<_>>()?;
    let times = chosen.iter().map(|&i| i as f64 / rate).collect();
    Ok(Film {
        frames,
        timing: Timing::At(times, seconds),
    })
}

fn file(path: &Path, most: usize, chosen: impl Fn(usize, f64) -> Vec<usize>) -> Result<Film> {
    let shown = path.display();
    // With a name of its kind, so that none is taken for an option or an address.
    let full = path.canonicalize().with_context(|| format!("cannot read `{shown}`"))?;
    let mut source = std::ffi::OsString::from("file:");
    source.push(&full);
    let (count, rate) = length(&source).with_context(|| format!("`{shown}`"))?;
    let seconds = count as f64 / rate;
    let chosen = chosen(count, seconds);
    let frames = frames(&source, &chosen, most).with_context(|| format!("`{shown}`"))?;
    let times = chosen.iter().take(frames.len()).map(|&i| i as f64 / rate).collect();
    Ok(Film {
        frames,
        timing: Timing::At(times, seconds),
    })
}

/// Frames of a film, and how many go by in a second.
fn length(source: &std::ffi::OsStr) -> Result<(usize, f64)> {
    let mut probe = Command::new("ffprobe");
    probe.args([
        "-v",
        "error",
        "-protocol_whitelist",
        "file",
        "-select_streams",
        "v:0",
        "-count_packets",
    ]);
    probe.args([
        "-show_entries",
        "stream=nb_read_packets,avg_frame_rate",
        "-of",
        "json",
        "-i",
    ]);
    let said = output(probe.arg(source), "ffprobe")?;
    let said: Value = serde_json::from_slice(&said).context("`ffprobe` says nothing of it")?;
    let stream = &said["streams"][0];
    let count = stream["nb_read_packets"].as_str().and_then(|n| n.parse::<usize>().ok());
    let rate = stream["avg_frame_rate"].as_str().and_then(|rate| {
        let (over, under) = rate.split_once('/')?;
        let rate = over.parse::<f64>().ok()? / under.parse::<f64>().ok()?;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    });
    match (count, rate) {
        (Some(count), Some(rate)) if count > 0 => Ok((count, rate)),
        _ => Err(anyhow!("there is no film in it")),
    }
}

/// The frames of these numbers, upright, as JPEG of the best quality: a film has lost more than that already, and PNG would be ten times as large.
fn frames(source: &std::ffi::OsStr, chosen: &[usize], most: usize) -> Result<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().context("there is no folder for files that are read once")?;
    let these: Vec<String> = chosen.iter().map(|i| format!("eq(n\\,{i})")).collect();
    let mut take = Command::new("ffmpeg");
    take.args(["-nostdin", "-v", "error", "-protocol_whitelist", "file", "-i"])
        .arg(source);
    take.args([
        "-map",
        "0:v:0",
        "-vf",
        &format!("select={}", any_of(&these)),
        "-fps_mode",
        "passthrough",
    ]);
    take.args(["-frames:v", &chosen.len().to_string(), "-qmin", "1", "-q:v", "1"])
        .arg(folder.path().join("%06d.jpg"));
    output(&mut take, "ffmpeg")?;
    let mut frames = Vec::new();
    // The last packets may give no frame.
    while let Some(file) =
        Some(folder.path().join(format!("{:06}.jpg", frames.len() + 1))).filter(|file| file.is_file())
    {
        frames.push(picture_file::bytes_of(&file, most)?);
    }
    match frames.is_empty() {
        true => bail!("`ffmpeg` takes no frame out of it"),
        false => Ok(frames),
    }
}

/// Whether any of these holds, as `ffmpeg` reads it: in pairs of pairs, as it takes no long sums.
fn any_of(these: &[String]) -> String {
    match these {
        [] => "0".to_owned(),
        [one] => one.clone(),
        more => {
            let (a, b) = more.split_at(more.len() / 2);
            format!("({}+{})", any_of(a), any_of(b))
        }
    }
}

/// What a program writes that ends well.
fn output(command: &mut Command, program: &str) -> Result<Vec<u8>> {
    let done = match command.stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "`{program}` takes frames out of films, and it is not here; install the package ffmpeg, or name a folder of pictures"
        ),
        Err(e) => return Err(e).with_context(|| format!("`{program}` cannot be started")),
    };
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let first: String = said.lines().next().unwrap_or_default().chars().take(200).collect();
        bail!("`{program}` cannot read it: {first}");
    }
    Ok(done.stdout)
}
