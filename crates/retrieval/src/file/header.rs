//! The header: what the index is of, and how it stores it. It is written once.

use super::disk::Disk;
use super::fields::{Append, Fields};
use super::{BLOCK, checksum};
use crate::document::IdKind;
use crate::error::{Error, ErrorKind, Result};
use crate::recipe::{Encoding, Layout, Metric, Recipe, Source};
use std::path::Path;

const MAGIC: [u8; 4] = *b"CIDX";
/// Version of the format that this crate writes and reads.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header before the recipe's text.
const FIXED: usize = 48;
/// A header that claims to be longer is refused.
const MAX_BYTES: u32 = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) recipe: Recipe,
    pub(crate) layout: Layout,
    /// A number of this file alone: compaction makes another file of the same name.
    pub(crate) instance: u64,
    /// Bytes of the header; the roots follow.
    pub(crate) bytes: u64,
}

impl Header {
    /// A header, and its bytes.
    pub(crate) fn new(recipe: &Recipe, layout: Layout, instance: u64, path: &Path) -> Result<(Header, Vec<u8>)> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, path, what);
        if let Some(problem) = recipe.problem() {
            return Err(invalid(problem));
        }
        let source = Source {
            model: recipe.model.clone(),
            digest: recipe.digest.clone(),
            prompts: recipe.prompts.clone(),
        };
        let source = serde_json::to_vec(&source).map_err(|e| invalid(format!("the recipe is no JSON: {e}")))?;
        let whole = (FIXED + source.len() + 8).next_multiple_of(BLOCK as usize);
        if whole > MAX_BYTES as usize {
            let what = format!(
                "expected a recipe of less than {MAX_BYTES} bytes, found {}",
                source.len()
            );
            return Err(invalid(what));
        }
        let index = |n: Option<usize>| n.unwrap_or_default() as u32;
        let mut bytes = MAGIC.to_vec();
        bytes.u32(VERSION);
        bytes.u32(whole as u32);
        bytes.u32(source.len() as u32);
        bytes.u64(instance);
        bytes.u32(recipe.dimensions as u32);
        bytes.u32(index(Metric::ALL.iter().position(|m| *m == recipe.metric)));
        bytes.u32(index(Encoding::ALL.iter().position(|e| *e == layout.encoding)));
        bytes.u32(index(IdKind::ALL.iter().position(|k| *k == layout.ids)));
        bytes.u32(crate::words::VERSION);
        bytes.u32(0);
        bytes.extend(source);
        bytes.resize(whole - 8, 0);
        let sum = checksum(&bytes);
        bytes.u64(sum);
        let header = Header {
            recipe: recipe.clone(),
            layout,
            instance,
            bytes: whole as u64,
        };
        Ok((header, bytes))
    }

    /// Reads the header of a file.
    pub(crate) fn read(disk: &Disk) -> Result<Header> {
        let path = &disk.path;
        let mut bytes = vec![0; BLOCK as usize];
        let found = disk.read(0, &mut bytes)?;
        let mut fields = Fields(&bytes[..found]);
        if fields.take(4) != Some(&MAGIC) {
            return Err(Error::new(ErrorKind::NotAnIndex, path, "the file is no index"));
        }
        let damaged = || Error::new(ErrorKind::Damaged, path, "the header is damaged").at(0);
        let version = fields.u32().ok_or_else(damaged)?;
        if version != VERSION {
            let what = format!("the index has version {version}; this program reads version {VERSION}");
            return Err(Error::new(ErrorKind::Version, path, what));
        }
        let whole = fields.u32().ok_or_else(damaged)?;
        if whole > MAX_BYTES || u64::from(whole) % BLOCK != 0 || (whole as usize) < FIXED + 8 {
            return Err(damaged());
        }
        let mut bytes = vec![0; whole as usize];
        if disk.read(0, &mut bytes)? != bytes.len() {
            return Err(damaged());
        }
        Header::parse(&bytes).ok_or_else(damaged)
    }

    fn parse(bytes: &[u8]) -> Option<Header> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(content) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut fields = Fields(content);
        fields.take(12)?;
        let source_bytes = fields.u32()? as usize;
        let instance = fields.u64()?;
        let dimensions = fields.u32()? as usize;
        let metric = *Metric::ALL.get(fields.u32()? as usize)?;
        let encoding = *Encoding::ALL.get(fields.u32()? as usize)?;
        let ids = *IdKind::ALL.get(fields.u32()? as usize)?;
        if (fields.u32()?, fields.u32()?) != (crate::words::VERSION, 0) {
            return None;
        }
        let source: Source = serde_json::from_slice(fields.take(source_bytes)?).ok()?;
        let recipe = Recipe {
            model: source.model,
            digest: source.digest,
            prompts: source.prompts,
            dimensions,
            metric,
        };
        recipe.problem().is_none().then_some(Header {
            recipe,
            layout: Layout { encoding, ids },
            instance,
            bytes: bytes.len() as u64,
        })
    }

    /// An error where the index is of another recipe.
    pub(crate) fn check(&self, expected: Option<&Recipe>, path: &Path) -> Result<()> {
        let difference = expected.and_then(|expected| self.recipe.difference(expected));
        difference.map_or(Ok(()), |what| Err(Error::new(ErrorKind::Recipe, path, what)))
    }
}
