//! Which recordings are transcribed, and where their transcripts go.

use crate::args::{TranscribeArgs, TranscriptFormat, WrongArgument};
use anyhow::{Context as _, Result, bail};
use cactus_base::Readers;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the files of a folder that are taken for recordings. A file that is named itself may have any.
const ENDINGS: [&str; 17] = [
    "aac", "flac", "m4a", "m4b", "m4v", "mka", "mkv", "mov", "mp3", "mp4", "oga", "ogg", "opus", "wav", "wave", "weba",
    "webm",
];

/// A recording.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) path: PathBuf,
    /// The file of its transcript; `None` is standard output.
    pub(super) transcript: Option<PathBuf>,
    /// Its size.
    pub(super) bytes: u64,
}

/// The recordings that `args` name, in order; those in a folder by their path. Those that are already written down are left out, and
/// counted.
///
/// # Errors
/// A folder that cannot be read or has no recording; two recordings whose transcripts would be one file.
pub(super) fn find(args: &TranscribeArgs) -> Result<(Vec<Recording>, usize)> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for named in &args.files {
        if !named.is_dir() {
            let name = named.file_name().map_or_else(|| named.clone(), PathBuf::from);
            found.push((named.clone(), name));
            continue;
        }
        let before = found.len();
        walk(named, Path::new(""), &mut found)?;
        if found.len() == before {
            let message = format!(
                "the folder `{}` has no recording: expected files that end in {}",
                named.display(),
                ENDINGS.join(", ")
            );
            return Err(WrongArgument(message).into());
        }
    }
    let mut seen = HashSet::new();
    found.retain(|(path, _)| seen.insert(path.clone()));
    let places = places(args, &found)?;
    if let Some(folder) = &args.output {
        takes_files(folder)?;
    }
    let mut recordings = Vec::new();
    let mut already = 0;
    for ((path, _), transcript) in found.into_iter().zip(places) {
        if !args.overwrite && transcript.as_deref().is_some_and(|to| is_written(&path, to)) {
            already += 1;
            continue;
        }
        let bytes = fs::metadata(&path).map_or(0, |about| about.len());
        recordings.push(Recording {
            path,
            transcript,
            bytes,
        });
    }
    Ok((recordings, already))
}

/// Makes the folder of transcripts, and tries whether it takes files: nobody should wait for a transcript that cannot be kept.
fn takes_files(folder: &Path) -> Result<()> {
    let what = || {
        format!(
            "transcripts cannot be written to `{}`; name a folder that takes files",
            folder.display()
        )
    };
    if folder.exists() && !folder.is_dir() {
        bail!("`--output` should be a folder, but `{}` is a file", folder.display());
    }
    fs::create_dir_all(folder).with_context(what)?;
    tempfile::tempfile_in(folder).with_context(what)?;
    Ok(())
}

/// Adds the recordings of `folder`, by name, those of its folders in their place; with each its path below the folder that was named.
fn walk(folder: &Path, below: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    let unreadable = || format!("the folder `{}` cannot be read", folder.display());
    let entries = fs::read_dir(folder).with_context(unreadable)?;
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>().with_context(unreadable)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // Links to folders are not followed: they may lead back.
        if entry.file_type().with_context(unreadable)?.is_dir() {
            walk(&path, &name, found)?;
        } else if path.is_file() && path.extension().is_some_and(is_ending) {
            found.push((path, name));
        }
    }
    Ok(())
}

fn is_ending(ending: &std::ffi::OsStr) -> bool {
    ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Where each transcript goes: `talk.mp3` to `talk.srt`, and beside a `talk.wav` to `talk.mp3.srt`.
///
/// # Errors
/// Two recordings of one name, in folders that were named side by side.
fn places(args: &TranscribeArgs, found: &[(PathBuf, PathBuf)]) -> Result<Vec<Option<PathBuf>>> {
    let Some(folder) = &args.output else {
        return Ok(vec![None; found.len()]);
    };
    let ending = match args.format {
        TranscriptFormat::Text => "txt",
        TranscriptFormat::Json => "json",
        TranscriptFormat::Srt => "srt",
        TranscriptFormat::Vtt => "vtt",
    };
    let short = |name: &Path| name.with_extension(ending);
    let long = |name: &Path| {
        let mut long = name.to_path_buf().into_os_string();
        long.push(format!(".{ending}"));
        PathBuf::from(long)
    };
    let mut uses: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (_, name) in found {
        *uses.entry(short(name)).or_default() += 1;
    }
    // `talk.mp3.wav` would take the place of the transcript of `talk.mp3`.
    let longs: HashSet<PathBuf> = found.iter().map(|(_, name)| long(name)).collect();
    let is_free = |name: &PathBuf| uses.get(name) == Some(&1) && !longs.contains(name);
    let place = |name: &Path| Some(short(name)).filter(is_free).unwrap_or_else(|| long(name));
    let mut taken: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    let mut places = Vec::new();
    for (path, name) in found {
        let place = folder.join(place(name));
        if let Some(other) = taken.insert(place.clone(), path) {
            let message = format!(
                "the transcripts of `{}` and `{}` would both be `{}`; transcribe them one after the other, each with an `--output` of its own, or the folder that both lie in",
                other.display(),
                path.display(),
                place.display()
            );
            return Err(WrongArgument(message).into());
        }
        places.push(Some(place));
    }
    Ok(places)
}

/// Whether a transcript is there that is no older than its recording.
fn is_written(recording: &Path, transcript: &Path) -> bool {
    let changed = |path| fs::metadata(path).and_then(|about| about.modified());
    matches!((changed(recording), changed(transcript)), (Ok(heard), Ok(written)) if heard <= written)
}

/// Writes a transcript: whole, or not at all.
pub(super) fn write(to: &Path, text: &str) -> Result<()> {
    let put = || {
        let folder = match to.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder)?;
        cactus_base::remove_unfinished(folder);
        cactus_base::replace_file(to, Readers::Usual, format!("{text}\n").as_bytes())
    };
    put().with_context(|| format!("the transcript `{}` cannot be written", to.display()))
}
