//! Conversations on disk: what a session remembers, saved and taken back.
//!
//! ```text
//! 8 bytes     CACTSES1
//! 4 bytes     length of the header
//! header      JSON: {"model": CHECKSUM, "kv_dtype": "...", "tokens": N, "note_bytes": M}
//! M bytes     the caller's note, in UTF-8
//! 4 N bytes   token ids
//! ...         the states (cactus_runtime's write_snapshot)
//! 8 bytes     XXH3-64 of everything before
//! ```
//!
//! Numbers are little-endian. The model is named by the checksum of its bundle's manifest, which covers weights and graph. A new
//! file takes the place of an old one in one step, once it is whole and on the disk. The file says nothing about who asked or
//! when, but the tokens are the conversation: it is as private as that, so only its owner may read it (Unix).
//!
//! It may depend on the files of `base` that replace others and the runtime's snapshots. It deliberately does not decide where files
//! lie or how many are kept.

use crate::fingerprint::LEARNED;
use crate::media;
use crate::{Error, Model, Result, Session};
use cactus_base::{NewFile, Readers};
use cactus_runtime::Execution;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"CACTSES1";
/// Longest header in bytes.
const MAX_HEADER: u32 = 4096;
/// Longest note in bytes.
const MAX_NOTE: usize = 96 << 20;
/// Bytes of the checksum at the end.
const SUM_BYTES: u64 = 8;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    model: String,
    kv_dtype: String,
    tokens: usize,
    #[serde(default)]
    note_bytes: usize,
}

impl Header {
    fn of(model: &Model, tokens: usize, note_bytes: usize) -> Header {
        Header {
            // What is learned of its confidence changes no state.
            model: model.bundle().digest(|path| LEARNED.contains(&path)).to_string(),
            kv_dtype: format!("{:?}", model.program().kv_dtype()),
            tokens,
            note_bytes,
        }
    }
}

/// Counts what goes through into a checksum.
struct Summed<T> {
    inner: T,
    sum: Xxh3,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl Session {
    /// Saves what this session holds to the file `path`, in place of what is there. Where that fails, or the process ends on the
    /// way, the old file is as it was. Only its owner may read the new one (Unix). Of a conversation with pictures only the note is kept, and the rest computed again. `note` is for whoever restores it, such as the messages of the conversation.
    ///
    /// # Errors
    /// [`Error::Saved`] where the file cannot be written, or the note has more than 96 MiB.
    pub fn save(&mut self, path: &Path, note: &str) -> Result<()> {
        if note.len() > MAX_NOTE {
            let what = format!("its note has {} bytes, more than {MAX_NOTE}", note.len());
            return Err(Error::saved(path, what));
        }
        let failed = |what: &str, e: std::io::Error| Error::saved(path, format!("cannot {what}: {e}"));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| failed("make its folder", e))?;
            cactus_base::remove_unfinished(folder);
        }
        let file = NewFile::create(path, Readers::Owner).map_err(|e| failed("create it", e))?;
        let mut out = Summed {
            inner: BufWriter::new(file),
            sum: Xxh3::new(),
        };
        // The ids of pictures mean nothing to another process: such a conversation is computed again.
        let shows = self.tokens().iter().any(|id| media::is_row(*id));
        let ids = if shows { &[][..] } else { self.tokens() };
        let header = serde_json::to_vec(&Header::of(self.model(), ids.len(), note.len()))
            .map_err(|e| failed("write it", e.into()))?;
        let tokens: Vec<u8> = ids.iter().flat_map(|t| t.to_le_bytes()).collect();
        let written = out
            .write_all(MAGIC)
            .and_then(|()| out.write_all(&(header.len() as u32).to_le_bytes()))
            .and_then(|()| out.write_all(&header))
            .and_then(|()| out.write_all(note.as_bytes()))
            .and_then(|()| out.write_all(&tokens));
        written.map_err(|e| failed("write it", e))?;
        let written = match shows {
            true => Execution::new(Arc::clone(self.model().program()))?.write_state(&mut out),
            false => self.execution().write_state(&mut out),
        };
        written?.map_err(|e| failed("write it", e))?;
        let sum = out.sum.digest();
        let whole = out
            .inner
            .write_all(&sum.to_le_bytes())
            .and_then(|()| out.inner.into_inner().map_err(|e| e.into_error()));
        let whole = whole.map_err(|e| failed("write it", e))?;
        whole.put_in_place().map_err(|e| failed("put it in place", e))
    }

    /// Takes back what [`Session::save`] saved, in place of what this session holds. Returns the note.
    ///
    /// # Errors
    /// [`Error::Saved`] where the file cannot be read, is damaged, or is of another model or another type of keys and values;
    /// the session is empty then, if it is not as before.
    pub fn restore(&mut self, path: &Path) -> Result<String> {
        let wrong = |what: String| Error::saved(path, what);
        let failed = |e: std::io::Error| wrong(format!("cannot read it: {e}"));
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        check_sum(&mut file, bytes).map_err(failed)?.map_err(wrong)?;
        // The same file: by now another one may be at its path.
        file.rewind().map_err(failed)?;
        let mut input = BufReader::new(file).take(bytes - SUM_BYTES);
        let mut start = [0; 12];
        input.read_exact(&mut start).map_err(failed)?;
        let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if start[..8] != *MAGIC || length > MAX_HEADER {
            return Err(wrong(
                "it is not a saved session, or of a version that is not read".to_owned(),
            ));
        }
        let mut header = vec![0; length as usize];
        input.read_exact(&mut header).map_err(failed)?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|e| wrong(format!("its header is damaged: {e}")))?;
        let context = self.model().program().context_tokens();
        if header.tokens > context {
            return Err(wrong(format!(
                "it holds {} tokens, but the context was chosen to hold {context}",
                header.tokens
            )));
        }
        let expected = Header::of(self.model(), header.tokens, header.note_bytes);
        if header.model != expected.model {
            return Err(wrong(format!(
                "it is of another model (checksum {}, this one has {})",
                header.model, expected.model
            )));
        }
        if header != expected {
            return Err(wrong(format!(
                "its keys and values are {}, but {} was chosen",
                header.kv_dtype, expected.kv_dtype
            )));
        }
        if header.note_bytes > MAX_NOTE || header.note_bytes as u64 > bytes {
            return Err(wrong(format!(
                "its note is to have {} bytes, more than it holds",
                header.note_bytes
            )));
        }
        let mut note = vec![0; header.note_bytes];
        input.read_exact(&mut note).map_err(failed)?;
        let note = String::from_utf8(note).map_err(|e| wrong(format!("its note is not valid UTF-8: {e}")))?;
        let mut ids = vec![0; 4 * header.tokens];
        input.read_exact(&mut ids).map_err(failed)?;
        let (ids, _) = ids.as_chunks::<4>();
        let tokens: Vec<u32> = ids.iter().map(|&id| u32::from_le_bytes(id)).collect();
        let vocab = self.model().vocab_size();
        if tokens.iter().any(|&t| t as usize >= vocab) {
            return Err(wrong(format!("it holds a token that is not among the model's {vocab}")));
        }
        self.hold(tokens, &mut input)
            .map_err(|e| wrong(format!("its states cannot be taken back: {e}")))?;
        Ok(note)
    }
}

/// Reads a file of `bytes` bytes and compares its checksum. The inner error says what is wrong with it.
fn check_sum(file: &mut File, bytes: u64) -> std::io::Result<std::result::Result<(), String>> {
    let Some(mut left) = bytes.checked_sub(SUM_BYTES) else {
        return Ok(Err(format!("it has only {bytes} bytes")));
    };
    let (mut sum, mut buffer) = (Xxh3::new(), vec![0; 1 << 16]);
    while left > 0 {
        let part = (buffer.len() as u64).min(left) as usize;
        file.read_exact(&mut buffer[..part])?;
        sum.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut expected = [0; SUM_BYTES as usize];
    file.read_exact(&mut expected)?;
    Ok(match u64::from_le_bytes(expected) == sum.digest() {
        true => Ok(()),
        false => Err("its checksum is not that of its contents: it is damaged, or no saved session".to_owned()),
    })
}
