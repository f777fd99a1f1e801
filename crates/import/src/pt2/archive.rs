//! The zip around a program: names to ranges of the mapped file.

use crate::{Error, Result, SharedBytes};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// Entries an archive may have.
const MAX_ENTRIES: usize = 1 << 20;

/// An archive; its entries are stored, so each is a range of the file.
pub(crate) struct Archive {
    bytes: SharedBytes,
    entries: BTreeMap<String, Range<usize>>,
}

impl Archive {
    /// Finds the entries of a program and checks what the archive says of itself.
    pub(crate) fn open(bytes: SharedBytes) -> Result<Archive> {
        let archive = Archive::entries(bytes)?;
        archive.check()?;
        Ok(archive)
    }

    /// Finds the entries of any archive that torch has written.
    pub(crate) fn entries(bytes: SharedBytes) -> Result<Archive> {
        let malformed = |what: &str, e: zip::result::ZipError| Error::malformed(what).caused_by(e);
        let data = (*bytes).as_ref();
        let config = Config {
            archive_offset: ArchiveOffset::Known(0),
        };
        let mut zip =
            ZipArchive::with_config(config, Cursor::new(data)).map_err(|e| malformed("not a zip archive", e))?;
        if zip.len() > MAX_ENTRIES {
            let what = format!(
                "the archive has {} entries; at most {MAX_ENTRIES} are supported",
                zip.len()
            );
            return Err(Error::malformed(what));
        }
        let mut entries = BTreeMap::new();
        for i in 0..zip.len() {
            let entry = zip
                .by_index_raw(i)
                .map_err(|e| malformed("an entry cannot be read", e))?;
            let name = entry
                .name()
                .map_err(|e| malformed("the name of an entry cannot be read", e))?
                .into_owned();
            if entry.is_dir() {
                continue;
            }
            if entry.encrypted() || entry.compression() != CompressionMethod::Stored {
                let what = format!(
                    "`{name}` is compressed or encrypted; torch stores entries as they are, and so they are \
                     read in place"
                );
                return Err(Error::unsupported(what));
            }
            let range = entry.data_start().and_then(|start| {
                let start = usize::try_from(start).ok()?;
                let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
                (end <= data.len() && entry.size() == entry.compressed_size()).then_some(start..end)
            });
            let Some(range) = range else {
                return Err(Error::malformed(format!("`{name}` is outside of the file")));
            };
            // Everything lies in one folder, whose name is that of the file when it was saved.
            let Some((_, inside)) = name.split_once('/') else {
                return Err(Error::malformed(format!("`{name}` is outside of the archive's folder")));
            };
            if entries.insert(inside.to_owned(), range).is_some() {
                return Err(Error::malformed(format!("`{name}` occurs twice")));
            }
        }
        Ok(Archive { bytes, entries })
    }

    fn check(&self) -> Result<()> {
        if !self.entries.contains_key("models/model.json") {
            let what = if self
                .entries
                .keys()
                .any(|name| name.ends_with("serialized_exported_program.json"))
            {
                "the archive was written by a torch before 2.8, whose weights are pickled; save it again with a newer torch"
            } else if self.entries.contains_key("data.pkl") {
                "a file of torch.save, which holds no graph: export the module with torch.export.export and save that \
                 with torch.export.save"
            } else {
                "the archive has no `models/model.json`, so it was not written by torch.export.save"
            };
            return Err(Error::unsupported(what));
        }
        for (name, want) in [("archive_format", "pt2"), ("byteorder", "little")] {
            let found = self.text(name)?;
            if found.trim() != want {
                let what = format!("`{name}` should be `{want}`, found `{}`", found.escape_debug());
                return Err(Error::unsupported(what));
            }
        }
        Ok(())
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Where an entry lies in the file.
    pub(crate) fn range(&self, name: &str) -> Result<Range<usize>> {
        self.entries
            .get(name)
            .cloned()
            .ok_or_else(|| Error::missing(format!("the archive has no `{name}`")))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// An entry as text.
    pub(crate) fn text(&self, name: &str) -> Result<&str> {
        let range = self.range(name)?;
        let data = &(*self.bytes).as_ref()[range];
        std::str::from_utf8(data)
            .map_err(|e| Error::malformed(format!("`{name}` is not valid UTF-8 at byte {}", e.valid_up_to())))
    }

    /// An entry as JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T> {
        serde_json::from_str(self.text(name)?)
            .map_err(|e| Error::malformed(format!("`{name}` is not what torch.export writes: {e}")))
    }
}
