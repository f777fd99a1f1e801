//! Reading a file of text, plain or gzip, with a bound on what is read and on what comes out.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest text, in bytes, packed or not.
const MAX_BYTES: u64 = 256 << 20;
/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What some editors put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The text of a file, unpacked where it is gzip, without a byte order mark.
///
/// # Errors
/// [`crate::ErrorKind::Text`] where it is no file (but a device or a pipe, which may have no end), cannot be read or
/// unpacked, is larger than 256 MiB, or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String> {
    let fail = |what: String| Error::Text(format!("`{}`: {what}", path.display()));
    let about = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
    if !about.is_file() {
        let found = if about.is_dir() {
            "a folder"
        } else {
            "a device or a pipe"
        };
        return Err(fail(format!("expected a file of text, found {found}")));
    }
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut bytes = bounded(file, MAX_BYTES).map_err(&fail)?;
    if bytes.starts_with(&GZIP) {
        // Several members one after the other are one file.
        bytes = bounded(flate2::read::MultiGzDecoder::new(&bytes[..]), MAX_BYTES)
            .map_err(|e| fail(format!("it begins like a gzip file, but cannot be unpacked: {e}")))?;
    }
    let mut text = String::from_utf8(bytes)
        .map_err(|e| fail(format!("not valid UTF-8 at byte {}", e.utf8_error().valid_up_to())))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// All that `source` gives, or why not; more than `most` bytes are not read.
fn bounded(source: impl Read, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = source.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {most} bytes, which is the limit for a text"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn files_are_unpacked_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let (one, two) = (gzip("\u{feff}grüße, ".as_bytes()), gzip(b"twice"));
        for (bytes, expected) in [
            (&b"plain"[..], "plain"),
            (b"\xef\xbb\xbfmarked", "marked"),
            (b"", ""),
            (&[&one[..], &two].concat(), "grüße, twice"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(read_file(&file).unwrap(), expected);
        }
        for (bytes, expected) in [
            (&[65, 0xff][..], "byte 1"),
            (&one[..one.len() - 4], "cannot be unpacked"),
            (&[0x1f, 0x8b, 8], "cannot be unpacked"),
            (&gzip(&[0xff]), "byte 0"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = read_file(&file).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("file`"), "{error}");
        }
    }

    #[test]
    fn no_more_is_read_than_the_most() {
        let (many, unpacked) = (std::io::repeat(b'x'), gzip(&[b'x'; 5000]));
        assert!(bounded(many, 1000).unwrap_err().contains("more than 1000 bytes"));
        assert!(bounded(flate2::read::MultiGzDecoder::new(&unpacked[..]), 4999).is_err());
        assert_eq!(
            bounded(flate2::read::MultiGzDecoder::new(&unpacked[..]), 5000)
                .unwrap()
                .len(),
            5000
        );
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_file(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a folder"), "{error}");
        assert!(read_file(&folder.path().join("none")).is_err());
        if cfg!(unix) {
            let error = read_file(Path::new("/dev/zero")).unwrap_err().to_string();
            assert!(error.contains("a device"), "{error}");
        }
    }
}
