//! Reading all of a bundle and comparing it with its checksums, and saying where damage is.
//!
//! Tensor files are read past their mapping, so that a disk that fails is an error with a place and not a fault. Where the
//! bundle lists checksums of blocks ([`BlockSums`]), damage is placed to a block; bundles made before have one checksum for
//! each tensor.

use crate::reader::Stored;
use crate::{BLOCK_BYTES, Bundle, Checksum, Error, ErrorKind, Mapped, Result, WEIGHTS_CHECKSUMS_PATH};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Bytes read at a time by each thread.
const READ_BYTES: usize = 1 << 20;
/// Places of damage that are kept; the disk is broken where there are more.
const MOST_PLACES: usize = 1000;
/// Tensors named for one place.
const MOST_NAMES: usize = 3;

/// `weights_checksums.json`: checksums of the `*.weights` files, block by block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSums {
    /// Version of this document.
    pub version: u32,
    /// Bytes of a block; the last of a file may have fewer.
    pub block_bytes: u64,
    /// The blocks of each file, in their order.
    pub files: BTreeMap<String, Vec<Checksum>>,
}

/// Version of [`BlockSums`] that this crate writes, and the only one it reads.
pub(crate) const BLOCK_SUMS_VERSION: u32 = 1;

/// What [`Bundle::verify`] found.
#[derive(Debug)]
pub struct Verified {
    /// Bytes of a block, the unit that damage is placed to; `None` where the bundle has checksums of whole tensors alone.
    pub block_bytes: Option<u64>,
    /// Each place of damage, in the order of files and bytes; at most 1000.
    pub damage: Vec<Error>,
}

impl Verified {
    /// The first damage as the error.
    ///
    /// # Errors
    /// Where there is damage.
    pub fn whole(self) -> Result<()> {
        self.damage.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Consecutive bytes of a mapped file with one checksum.
struct Unit {
    map: usize,
    bytes: Range<u64>,
    expected: Checksum,
}

/// What was wrong with one unit or several that follow one another.
struct Place {
    map: usize,
    bytes: Range<u64>,
    wrong: Wrong,
}

#[derive(Clone, PartialEq, Eq)]
enum Wrong {
    Checksum,
    Unreadable(String),
}

impl Bundle {
    /// Bytes that [`Bundle::verify`] reads, about: what its `progress` adds up to where nothing is damaged.
    pub fn verified_bytes(&self) -> u64 {
        let listed: u64 = self.manifest().files.values().map(|f| f.bytes).sum();
        listed + self.mapped_bytes() as u64
    }

    /// Reads everything, tensor data on `threads` threads, and checks every checksum. `progress` gets the bytes that were
    /// read since it was called last.
    pub fn verify(&self, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Verified {
        let mut damage = Vec::new();
        for (path, entry) in &self.manifest().files {
            damage.extend(self.file(path).err());
            progress(entry.bytes);
        }
        let sums = self.block_sums().unwrap_or_else(|e| {
            damage.push(e);
            None
        });
        let units = match &sums {
            Some(sums) => self.blocks(sums),
            None => self.payloads(),
        };
        let mut places = check(self.maps(), &units, threads, progress);
        places.sort_by_key(|p| (p.map, p.bytes.start));
        damage.extend(joined(places).iter().map(|place| self.placed(place)));
        if damage.is_empty() {
            let components = self.manifest().components.iter();
            damage.extend(components.filter_map(|c| self.graph(&c.name).err()));
        }
        damage.truncate(MOST_PLACES);
        Verified {
            block_bytes: sums.map(|s| s.block_bytes),
            damage,
        }
    }

    /// The checksums of blocks, where the bundle has them, checked against the sizes of the files.
    fn block_sums(&self) -> Result<Option<BlockSums>> {
        if !self.has_file(WEIGHTS_CHECKSUMS_PATH) {
            return Ok(None);
        }
        let sums: BlockSums = self.listed(WEIGHTS_CHECKSUMS_PATH)?;
        let fail = |kind, what| Err(Error::new(kind, self.root().join(WEIGHTS_CHECKSUMS_PATH), what));
        if sums.version != BLOCK_SUMS_VERSION {
            let what = format!("has version {}, version {BLOCK_SUMS_VERSION} is read", sums.version);
            return fail(ErrorKind::Version, what);
        }
        if !(4096..=1 << 30).contains(&sums.block_bytes) {
            let what = format!("a block has 4096 to {} bytes, found {}", 1 << 30, sums.block_bytes);
            return fail(ErrorKind::Invalid, what);
        }
        for (name, map) in self.map_names().iter().zip(self.maps()) {
            let wanted = (map.len() as u64).div_ceil(sums.block_bytes);
            let found = sums.files.get(name).map_or(0, |f| f.len() as u64);
            if wanted != found {
                let what = format!("`{name}` has {wanted} blocks, {found} checksums are listed");
                return fail(ErrorKind::Invalid, what);
            }
        }
        Ok(Some(sums))
    }

    fn blocks(&self, sums: &BlockSums) -> Vec<Unit> {
        let files = self.map_names().iter().zip(self.maps()).enumerate();
        files
            .flat_map(|(map, (name, mapped))| {
                let end = mapped.len() as u64;
                let starts = (0..end).step_by(usize::try_from(sums.block_bytes).unwrap_or(BLOCK_BYTES));
                starts.zip(&sums.files[name]).map(move |(start, &expected)| Unit {
                    map,
                    bytes: start..(start + sums.block_bytes).min(end),
                    expected,
                })
            })
            .collect()
    }

    /// Scales and data of every tensor.
    fn payloads(&self) -> Vec<Unit> {
        let unit = |t: &Stored| Unit {
            map: t.map,
            bytes: (t.offset + t.header.scales_offset) as u64
                ..(t.offset + t.header.data_offset + t.header.data_bytes) as u64,
            expected: t.header.payload_checksum,
        };
        self.tensors().iter().map(unit).collect()
    }

    /// The error for a place: its bytes, and what of which tensors lies in it.
    fn placed(&self, place: &Place) -> Error {
        let Range { start, end } = place.bytes;
        let mut hit: Vec<(u64, String)> = self
            .tensors()
            .iter()
            .filter(|t| t.map == place.map)
            .filter_map(|t| {
                let from = t.offset as u64;
                let (first, last) = (start.max(from), end.min(from + t.header.record_bytes as u64));
                let part = format!(
                    "tensor `{}`, bytes {} to {} of {}",
                    t.name,
                    first.checked_sub(from)?,
                    last.checked_sub(from)?,
                    t.header.record_bytes
                );
                (first < last).then_some((from, part))
            })
            .collect();
        hit.sort();
        let mut names: Vec<String> = hit.iter().take(MOST_NAMES).map(|(_, part)| part.clone()).collect();
        match hit.len().saturating_sub(MOST_NAMES) {
            _ if hit.is_empty() => names.push("no tensor".to_owned()),
            0 => {}
            more => names.push(format!("and {more} tensors more")),
        }
        let (kind, wrong) = match &place.wrong {
            Wrong::Checksum => (
                ErrorKind::Checksum,
                "are damaged: their checksum does not match".to_owned(),
            ),
            Wrong::Unreadable(why) => (ErrorKind::Io, format!("cannot be read: {why}")),
        };
        let what = format!("{} bytes {wrong} ({})", end - start, names.join("; "));
        let path = self.root().join(&self.map_names()[place.map]);
        Error::new(kind, path, what).at(start)
    }
}

/// Compares `units` with their checksums; gives those that differ.
fn check(maps: &[Mapped], units: &[Unit], threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Vec<Place> {
    let next = AtomicUsize::new(0);
    let places = Mutex::new(Vec::new());
    let work = || {
        let mut buffer = vec![0; READ_BYTES];
        // Neighbors by neighbors: reading ahead is what disks are fast at.
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let wrong = match sum(&maps[unit.map], unit.bytes.clone(), &mut buffer, progress) {
                Ok(found) if found == unit.expected => continue,
                Ok(_) => Wrong::Checksum,
                Err(e) => Wrong::Unreadable(e.to_string()),
            };
            let mut places = places.lock().unwrap_or_else(|e| e.into_inner());
            places.push(Place {
                map: unit.map,
                bytes: unit.bytes.clone(),
                wrong,
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(units.len()) {
            // Fewer do it where the system refuses more.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    places.into_inner().unwrap_or_else(|e| e.into_inner())
}

fn sum(
    map: &Mapped,
    bytes: Range<u64>,
    buffer: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> std::io::Result<Checksum> {
    let mut hash = Xxh3::new();
    let mut at = bytes.start;
    while at < bytes.end {
        let n = (bytes.end - at).min(buffer.len() as u64);
        let part = &mut buffer[..n as usize];
        map.read_at(part, at)?;
        hash.update(part);
        at += n;
        progress(n);
    }
    Ok(Checksum(hash.digest()))
}

/// Places that follow one another and have the same thing wrong as one.
fn joined(places: Vec<Place>) -> Vec<Place> {
    let mut out: Vec<Place> = Vec::new();
    for place in places {
        match out.last_mut() {
            Some(last) if last.map == place.map && last.bytes.end == place.bytes.start && last.wrong == place.wrong => {
                last.bytes.end = place.bytes.end;
            }
            _ => out.push(place),
        }
    }
    out
}
