//! What a file is, where it is nothing that is read here: so that an error can say it.

use crate::{Error, ErrorKind};

/// Beginnings of containers that are read: offset, bytes, name.
const READ: &[(usize, &[u8], &str)] = &[
    (0, b"RIFF", "WAV"),
    (0, b"RIFX", "WAV"),
    (0, b"RF64", "WAV"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (4, b"ftyp", "MP4"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
];

/// Beginnings of files that people take for audio, or that a wrong name hides.
const NOT_READ: &[(usize, &[u8], &str)] = &[
    (8, b"AVI ", "an AVI video"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a WMA or WMV file"),
    (0, b"FORM", "an AIFF file"),
    (0, b"caff", "a CAF file"),
    (0, b"#!AMR", "an AMR recording"),
    (0, b"#!SILK", "a SILK recording"),
    (0, b".snd", "an AU file"),
    (0, b"wvpk", "a WavPack file"),
    (0, b"MAC ", "a Monkey's Audio file"),
    (0, b"FLV", "a Flash video"),
    (0, b"MThd", "a MIDI file, which has notes and no sound"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"\x7fELF", "a program"),
];

const EXPECTED: &str = "WAV, FLAC, MP3, Ogg, WebM, MP4, M4A and AAC are read";

fn find(table: &[(usize, &[u8], &'static str)], beginning: &[u8]) -> Option<&'static str> {
    let begins = |at: usize, bytes: &[u8]| beginning.get(at..at + bytes.len()) == Some(bytes);
    table
        .iter()
        .find(|(at, bytes, _)| begins(*at, bytes))
        .map(|(_, _, name)| *name)
}

/// The container whose signature the file has.
pub(super) fn container(beginning: &[u8]) -> Option<&'static str> {
    find(READ, beginning)
}

/// Whether a file is text: no control characters but white space, and UTF-8 up to a character that may be cut.
fn is_text(beginning: &[u8]) -> bool {
    let valid = match std::str::from_utf8(beginning) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    valid
        && beginning
            .iter()
            .all(|&b| b >= 0x20 || matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
}

/// Refuses what is certainly no audio file, before a search through it finds something that looks like one.
pub(super) fn refuse(beginning: &[u8]) -> Result<(), Error> {
    if beginning.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the file is empty"));
    }
    let what = match find(NOT_READ, beginning) {
        Some(what) => what,
        None if beginning[0] == 0x47 && beginning.get(188) == Some(&0x47) => "an MPEG transport stream",
        // Tags of MP3 files begin with letters, and have zeros soon.
        None if is_text(beginning) && container(beginning).is_none() => "a text file",
        None => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::UnknownFormat,
        format!("the file is {what}; {EXPECTED}"),
    ))
}

/// The error for a file in which nothing was recognized.
pub(super) fn unknown(beginning: &[u8]) -> Error {
    let shown: Vec<String> = beginning.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Error::new(
        ErrorKind::UnknownFormat,
        format!(
            "the file is of no kind that is read here (it begins with {}); {EXPECTED}",
            shown.join(" ")
        ),
    )
}
