//! Reading and writing at a place in a file, whoever else does so.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file, and what to call it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
}

impl Disk {
    /// Opens what is there, to be written too where `write` says so.
    pub(crate) fn open(path: &Path, write: bool) -> Result<Disk> {
        let file = File::options().read(true).write(write).open(path);
        let file = file.map_err(|e| Error::io(path, "open it", e))?;
        let meta = file.metadata().map_err(|e| Error::io(path, "look at it", e))?;
        if !meta.is_file() {
            let what = "expected an index, which is a file";
            return Err(Error::new(crate::ErrorKind::NotAnIndex, path, what));
        }
        Ok(Disk {
            file: Arc::new(file),
            path: path.to_path_buf(),
        })
    }

    /// Makes a new file.
    pub(crate) fn create(path: &Path) -> Result<Disk> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|e| Error::io(path, "make it", e))?;
        Ok(Disk {
            file: Arc::new(file),
            path: path.to_path_buf(),
        })
    }

    /// As many bytes as `buffer` holds, or up to the end of the file; how many they are.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match read_at(&self.file, offset + done as u64, &mut buffer[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(&self.path, "read it", e)),
            }
        }
        Ok(done)
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match write_at(&self.file, offset + done as u64, &bytes[done..]) {
                Ok(0) => return Err(Error::io(&self.path, "write to it", io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(&self.path, "write to it", e)),
            }
        }
        Ok(())
    }

    /// Returns once what was written would outlast a power cut.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.file.sync_data();
        synced.map_err(|e| Error::io(&self.path, "sync it", e))
    }
}

#[cfg(unix)]
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(unix)]
fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

#[cfg(windows)]
fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

// One thread: nobody seeks in between.
#[cfg(not(any(unix, windows)))]
fn read_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
    io::Read::read(&mut file, buffer)
}

#[cfg(not(any(unix, windows)))]
fn write_at(mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
    io::Write::write(&mut file, bytes)
}
