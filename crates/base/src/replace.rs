//! New files in the place of old ones: whole and on the device, or not at all.
//!
//! What is not whole yet lies in the folder of its destination as `.NAME.new-SUFFIX`, under a name of its own, so that two who
//! write the same file at once do not write into each other's. It is locked until it has its name. The system releases the lock
//! when its holder ends, however that happens, so one whose lock can be had is nobody's any more ([`remove_unfinished`]).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Stands between the name of a file and what makes the name of the unfinished one its own.
const MARK: &str = ".new-";
/// Digits of that suffix.
const SUFFIX_DIGITS: usize = 16;

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Whom the process's mask lets read its files.
    Usual,
    /// Its owner alone, where the system has such permissions (Unix), whoever could read the file before.
    Owner,
}

/// A file that takes the place of another one once it is whole. Dropped before that, it is removed.
#[derive(Debug)]
pub struct NewFile {
    /// The first field, as on Windows a file that is open stays.
    file: File,
    unfinished: Unfinished,
    destination: PathBuf,
}

/// Removes the file at its path when dropped, unless it has its name.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
    is_in_place: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl NewFile {
    /// Begins a file that is to be at `destination`, whose folder is there.
    ///
    /// # Errors
    /// File errors; [`io::ErrorKind::InvalidInput`] for a destination without a name.
    pub fn create(destination: &Path, readers: Readers) -> io::Result<NewFile> {
        let Some(name) = destination.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected the path of a file",
            ));
        };
        let name = shortened(name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        if readers == Readers::Owner {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        #[cfg(not(unix))]
        let _ = readers;
        loop {
            let mut unfinished = OsString::from(".");
            unfinished.push(&name);
            let suffix = RandomState::new().build_hasher().finish();
            unfinished.push(format!("{MARK}{suffix:0SUFFIX_DIGITS$x}"));
            let path = folder_of(destination).join(unfinished);
            let file = match options.open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let unfinished = Unfinished {
                path,
                is_in_place: false,
            };
            match file.try_lock() {
                // A file system without locks: nobody takes the file for abandoned there.
                Err(TryLockError::Error(_)) => {}
                Ok(()) if unfinished.path.exists() => {}
                // Somebody took the new file for abandoned, in the moment in which it had no lock.
                Ok(()) | Err(TryLockError::WouldBlock) => continue,
            }
            return Ok(NewFile {
                file,
                unfinished,
                destination: destination.to_path_buf(),
            });
        }
    }

    /// Puts the file in its place, in one step; returns once that would outlast a power cut.
    ///
    /// # Errors
    /// File errors. What was there is as it was, or the new file is there whole.
    pub fn put_in_place(self) -> io::Result<()> {
        let NewFile {
            file,
            mut unfinished,
            destination,
        } = self;
        let synced = file.sync_all();
        // Locked until it has its name; but where locks keep others from reading, it must not have one there.
        let held = cfg!(unix).then_some(file);
        synced?;
        fs::rename(&unfinished.path, &destination)?;
        drop(held);
        unfinished.is_in_place = true;
        sync_folder_of(&destination)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Puts a file with these bytes at `path`, whose folder is there, in one step; returns once that would outlast a power cut.
///
/// # Errors
/// File errors. What was there is as it was, or the new file is there whole.
pub fn replace_file(path: &Path, readers: Readers, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path, readers)?;
    file.write_all(bytes)?;
    file.put_in_place()
}

/// Renames a file that is whole and synced to where it belongs; returns once that would outlast a power cut.
///
/// # Errors
/// File errors. What was there is as it was, or the new file is there.
pub fn put_in_place(file: &Path, destination: &Path) -> io::Result<()> {
    fs::rename(file, destination)?;
    sync_folder_of(destination)
}

/// Makes the names in the folder of `path` outlast a power cut, where the system and the file system can.
///
/// # Errors
/// File errors.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder_of(path)).and_then(|folder| folder.sync_all()) {
        // A folder that may be written and not read, or a file system that syncs files alone.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Removes the unfinished files in `folder` whose process is gone; gives how many. What cannot be read or removed stays.
pub fn remove_unfinished(folder: &Path) -> usize {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = fs::read_dir(here).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_unfinished));
    let ours = ours.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    ours.filter(|entry| {
        let Ok(file) = File::options().read(true).write(true).open(entry.path()) else {
            return false;
        };
        if file.try_lock().is_err() {
            return false;
        }
        // Locked until it is gone, where a file that is open can go.
        let held = cfg!(unix).then_some(file);
        let removed = fs::remove_file(entry.path()).is_ok();
        drop(held);
        removed
    })
    .count()
}

/// As much of a name as leaves room for what stands before and behind it: names have some 255 bytes at most, and 143 in encrypted folders of Linux.
fn shortened(name: &OsStr) -> OsString {
    const LONGEST: usize = 100;
    let text = name.to_string_lossy();
    match text.len() <= LONGEST {
        true => name.to_owned(),
        false => text[..text.floor_char_boundary(LONGEST)].into(),
    }
}

/// Whether a file of this name is one that is not whole yet.
fn is_unfinished(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(MARK));
    parts.is_some_and(|(name, suffix)| {
        !name.is_empty() && suffix.len() == SUFFIX_DIGITS && suffix.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn file_is_replaced_whole_or_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        replace_file(&path, Readers::Usual, b"before").unwrap();
        let mut half = NewFile::create(&path, Readers::Usual).unwrap();
        half.write_all(b"aft").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(names(folder.path()).len(), 2);
        drop(half);
        assert_eq!(names(folder.path()), ["a.json"]);
        replace_file(&path, Readers::Usual, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        // A folder cannot be replaced by a file, and nothing is left of the attempt.
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("b/c"), b"1").unwrap();
        replace_file(&folder.path().join("b"), Readers::Usual, b"2").unwrap_err();
        assert_eq!(names(folder.path()), ["a.json", "b"]);
        for nowhere in [folder.path().join("x/y"), PathBuf::from("/")] {
            replace_file(&nowhere, Readers::Usual, b"1").unwrap_err();
        }
    }

    #[cfg(unix)]
    #[test]
    fn file_for_its_owner_is_private_whatever_was_there() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"open").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let new = NewFile::create(&path, Readers::Owner).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&new.unfinished.path), 0o600, "from its first byte on");
        new.put_in_place().unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn names_as_long_as_there_are_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a".repeat(255), "\u{6587}".repeat(85)] {
            let path = folder.path().join(name);
            replace_file(&path, Readers::Usual, b"whole").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
        }
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn many_who_replace_one_file_at_once_leave_one_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let texts: Vec<Vec<u8>> = (b'0'..b'4').map(|byte| vec![byte; 10_000]).collect();
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    for _ in 0..20 {
                        replace_file(&path, Readers::Usual, text).unwrap();
                        remove_unfinished(folder.path());
                        assert!(texts.contains(&fs::read(&path).unwrap()));
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn unfinished_files_go_away_with_their_process_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| fs::write(folder.path().join(name), b"1").unwrap();
        let others = [".a.new-1", ".a.new-00000000000000gg", ".new-0123456789abcdef", "a.new"];
        others.iter().for_each(|name| put(name));
        fs::create_dir(folder.path().join(".b.new-0123456789abcdef")).unwrap();
        let before = names(folder.path());
        // What a process leaves that is killed.
        put(".a.new-0123456789abcdef");
        let held = NewFile::create(&folder.path().join("a"), Readers::Usual).unwrap();
        assert_eq!(remove_unfinished(folder.path()), 1);
        held.put_in_place().unwrap();
        assert_eq!(remove_unfinished(folder.path()), 0);
        fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(names(folder.path()), before);
        assert_eq!(remove_unfinished(&folder.path().join("missing")), 0);
    }
}
