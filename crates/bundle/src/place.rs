//! A finished folder in the place of another one.

use crate::scratch::Scratch;
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Moves the finished folder `new` to `destination`, on the same file system, by renaming. A folder that is there is replaced, whatever is
/// in it: it is at no time absent where the file system can exchange two folders; elsewhere it steps aside first, and comes back where this
/// does not end well. What cannot be removed of it stays at `new`.
///
/// # Errors
/// File errors; the destination is then as it was.
pub fn place_folder(new: &Path, destination: &Path) -> Result<()> {
    let io = |e| Error::io(destination, "move the new folder there", e);
    if !destination.exists() {
        fs::rename(new, destination).map_err(io)?;
    } else if exchange(new, destination) {
        let _ = fs::remove_dir_all(new);
    } else {
        let scratch = Scratch::beside(destination)?;
        let aside = scratch.replaced();
        fs::rename(destination, &aside).map_err(io)?;
        if let Err(e) = fs::rename(new, destination) {
            return Err(match fs::rename(&aside, destination) {
                Ok(()) => io(e),
                Err(_) => {
                    // Its owner finds it there, and the next writer puts it back.
                    std::mem::forget(scratch);
                    Error::io(&aside, "restore the old folder, which is now there", e)
                }
            });
        }
    }
    // It is there, whether or not that outlasts a power cut already.
    let _ = cactus_base::sync_folder_of(destination);
    Ok(())
}

/// Exchanges two folders in one step; `false` where the system or the file system cannot.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn exchange(a: &Path, b: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let c = |p: &Path| std::ffi::CString::new(p.as_os_str().as_bytes());
    let (Ok(a), Ok(b)) = (c(a), c(b)) else {
        return false;
    };
    #[cfg(not(target_vendor = "apple"))]
    // SAFETY: both paths are C strings that outlive the call, which keeps none of them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            a.as_ptr(),
            libc::AT_FDCWD,
            b.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    #[cfg(target_vendor = "apple")]
    // SAFETY: as above.
    let done = unsafe { libc::renamex_np(a.as_ptr(), b.as_ptr(), libc::RENAME_SWAP) };
    done == 0
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn exchange(_a: &Path, _b: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder(path: &Path, content: &str) {
        fs::create_dir(path).unwrap();
        fs::write(path.join("x"), content).unwrap();
    }

    #[test]
    fn folder_takes_the_place_of_nothing_and_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let (new, destination) = (dir.path().join("new"), dir.path().join("d"));
        for content in ["1", "2"] {
            folder(&new, content);
            place_folder(&new, &destination).unwrap();
            assert_eq!(fs::read_to_string(destination.join("x")).unwrap(), content);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn folder_that_cannot_be_replaced_stays() {
        let dir = tempfile::tempdir().unwrap();
        let destination = dir.path().join("d");
        folder(&destination, "old");
        // Nothing can be moved into itself, and there is nothing at the other.
        for new in [dir.path().to_path_buf(), dir.path().join("missing")] {
            place_folder(&new, &destination).unwrap_err();
            assert_eq!(fs::read_to_string(destination.join("x")).unwrap(), "old");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    #[test]
    fn folder_that_is_replaced_is_at_no_time_absent() {
        let dir = tempfile::tempdir().unwrap();
        let (new, destination) = (dir.path().join("new"), dir.path().join("d"));
        folder(&destination, "0");
        folder(&new, "1");
        // Not every file system can.
        if !exchange(&new, &destination) {
            return;
        }
        fs::remove_dir_all(&new).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..200 {
                    folder(&new, &turn.to_string());
                    place_folder(&new, &destination).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                assert!(destination.exists());
            }
        });
    }
}
