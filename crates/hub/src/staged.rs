//! Files of a model into its staging folder: what is whole stays, what is missing is fetched and checked, and all of it is told.

use crate::cache::{Record, RecordFile, remove_tree};
use crate::digest::{Promise, sha256_file};
use crate::error::{IoContext, Result};
use crate::progress::{Event, Progress};
use crate::selection::RemoteFile;
use crate::token::Token;
use crate::transfer::{Transfer, Watch, kept_bytes, part_path};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use ureq::Agent;

/// Progress is told at most this often.
const TELL: Duration = Duration::from_millis(100);

/// A file, and where it is.
pub(crate) struct Piece {
    pub(crate) file: RemoteFile,
    /// What is asked for.
    pub(crate) url: String,
    /// The same as it may be shown.
    pub(crate) shown: String,
}

/// Who is asked, and as whom.
pub(crate) struct Source<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) token: Option<&'a Token>,
}

impl Source<'_> {
    /// Fetches what is missing of the model `id` into `out`; gives every file as it is recorded.
    pub(crate) fn take(
        &self,
        id: &str,
        pieces: &[Piece],
        out: &Path,
        progress: &mut dyn Progress,
    ) -> Result<Vec<RecordFile>> {
        let total = pieces.iter().fold(0u64, |sum, p| sum.saturating_add(p.file.bytes));
        let here = |piece: &Piece| {
            let target = out.join(&piece.file.path);
            match fs::metadata(part_path(&target)) {
                Ok(part) => kept_bytes(&piece.file, part.len()),
                Err(_) => fs::metadata(target).map_or(0, |m| m.len().min(piece.file.bytes)),
            }
        };
        progress.event(Event::Begin {
            id,
            total_bytes: total,
            resumed_bytes: pieces.iter().map(here).sum(),
        });
        let mut files = Vec::new();
        let mut done: u64 = 0;
        for (index, piece) in pieces.iter().enumerate() {
            let file = &piece.file;
            progress.event(Event::File {
                name: &file.path,
                number: index + 1,
                count: pieces.len(),
            });
            let mut told = Told {
                progress: &mut *progress,
                before: done,
                total,
                last: None,
            };
            let sha256 = self.take_one(piece, out, &mut told)?;
            done += file.bytes;
            progress.event(Event::Bytes { done, total });
            files.push(RecordFile::new(file.path.clone(), file.bytes, sha256));
        }
        Ok(files)
    }

    /// One file; gives its SHA-256.
    pub(crate) fn take_one(&self, piece: &Piece, out: &Path, watch: &mut dyn Watch) -> Result<String> {
        let target = out.join(&piece.file.path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let mut found = None;
        if !is_whole(&target, &piece.file)? {
            let transfer = Transfer {
                agent: self.agent,
                url: &piece.url,
                shown: &piece.shown,
                token: self.token,
                file: &piece.file,
            };
            found = Some(transfer.run(&target, watch)?);
        }
        match (&piece.file.promise, found) {
            (Promise::Sha256(hex), _) => Ok(hex.clone()),
            (Promise::Tag(_), Some(found)) => Ok(found),
            _ => sha256_file(&target),
        }
    }
}

/// Whether an earlier fetch left this very file; another one in its place is removed.
fn is_whole(target: &Path, file: &RemoteFile) -> Result<bool> {
    match fs::metadata(target) {
        Err(_) => return Ok(false),
        Ok(m) if m.len() == file.bytes => {
            let Some(promised) = file.promise.hex() else {
                return Ok(file.promise.resumes());
            };
            let mut hasher = file.promise.hasher(file.bytes);
            hasher.update_from(&mut fs::File::open(target).at("open", target)?, target)?;
            if hasher.finish() == promised {
                return Ok(true);
            }
        }
        Ok(_) => {}
    }
    fs::remove_file(target).at("remove", target)?;
    Ok(false)
}

/// Removes what an earlier fetch of other files left in `out`.
pub(crate) fn sweep(out: &Path, record: &Record) -> Result<()> {
    let kept = |path: &str| {
        record
            .files
            .iter()
            .any(|f| f.path == path || f.path.starts_with(&format!("{path}/")))
    };
    for entry in fs::read_dir(out).at("list", out)? {
        let entry = entry.at("list", out)?;
        if entry.file_name().to_str().is_some_and(kept) {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            remove_tree(&path)?;
        } else {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

/// Turns the bytes of one file into those of the whole fetch.
struct Told<'a> {
    progress: &'a mut dyn Progress,
    before: u64,
    total: u64,
    last: Option<Instant>,
}

impl Watch for Told<'_> {
    fn bytes(&mut self, here: u64) {
        if self.last.is_none_or(|at| at.elapsed() >= TELL) {
            self.last = Some(Instant::now());
            self.progress.event(Event::Bytes {
                done: self.before + here,
                total: self.total,
            });
        }
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }
}
