//! Edit lists of MP4 (ISO/IEC 14496-12 §8.6.6): which part of a track is to be heard.
//!
//! Encoders of AAC state there how many samples they put in front. Symphonia reads these lists and keeps them to itself, so the few boxes
//! on the way are read again here. Nothing of a box is believed: sizes stay within the box around them, and a file with too many
//! of them has no edits.

use std::io::{Read, Result, Seek, SeekFrom};

/// Boxes looked at in one file.
const MAX_BOXES: usize = 4096;
/// Edits looked at in one track. Audio has one or two.
const MAX_EDITS: u32 = 64;

/// The edits of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Edits {
    /// Ticks a second of durations.
    movie_scale: u32,
    tracks: Vec<TrackEdit>,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct TrackEdit {
    id: u32,
    /// Ticks a second of positions in the track.
    media_scale: u32,
    /// Duration in ticks of the movie and position in ticks of the track.
    edits: Vec<(u64, i64)>,
}

/// What is to be heard of a track, in frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) skip: u64,
    pub(super) frames: Option<u64>,
}

impl Edits {
    /// The edit of the track `id`, whose rate is `rate_hz`. `None` where it has none.
    pub(super) fn track(&self, id: u32, rate_hz: u32) -> Option<Heard> {
        let track = self.tracks.iter().find(|t| t.id == id)?;
        let frames = |ticks: u64, scale: u32| {
            (scale > 0).then(|| {
                (u128::from(ticks) * u128::from(rate_hz))
                    .div_ceil(u128::from(scale))
                    .min(u128::from(u64::MAX)) as u64
            })
        };
        // A negative position is a pause before the track begins; times are those of the track.
        let mut heard = track
            .edits
            .iter()
            .filter_map(|&(ticks, position)| Some((ticks, u64::try_from(position).ok()?)));
        let (duration, position) = heard.next()?;
        let only = heard.next().is_none();
        Some(Heard {
            skip: frames(position, track.media_scale)?,
            // No duration means to the end. Several parts are heard from the first one's beginning on.
            frames: if duration > 0 && only {
                frames(duration, self.movie_scale)
            } else {
                None
            },
        })
    }
}

/// The edits of an MP4 file, whose position is its beginning afterwards. `None` for other files and where the boxes make no sense.
pub(super) fn read(source: &mut (impl Read + Seek)) -> Result<Option<Edits>> {
    let end = source.seek(SeekFrom::End(0))?;
    let mut walk = Walk {
        source,
        boxes: 0,
        edits: Edits::default(),
    };
    let is_mp4 = walk.header(0, end)?.is_some_and(|b| &b.kind == b"ftyp");
    if is_mp4 {
        walk.children(0, end, 0)?;
    }
    let edits = (is_mp4 && walk.boxes < MAX_BOXES).then_some(walk.edits);
    source.rewind()?;
    Ok(edits)
}

struct Walk<'a, R> {
    source: &'a mut R,
    boxes: usize,
    edits: Edits,
}

struct BoxHeader {
    kind: [u8; 4],
    begin: u64,
    end: u64,
}

impl<R: Read + Seek> Walk<'_, R> {
    /// The box at `at`, which has to end before `end`.
    fn header(&mut self, at: u64, end: u64) -> Result<Option<BoxHeader>> {
        let Some(room) = end.checked_sub(at).filter(|&room| room >= 8) else {
            return Ok(None);
        };
        self.source.seek(SeekFrom::Start(at))?;
        let mut head = [0; 8];
        self.source.read_exact(&mut head)?;
        let [a, b, c, d, kind @ ..] = head;
        let (size, header) = match u32::from_be_bytes([a, b, c, d]) {
            0 => (room, 8),
            1 if room >= 16 => {
                let mut long = [0; 8];
                self.source.read_exact(&mut long)?;
                (u64::from_be_bytes(long), 16)
            }
            size => (size.into(), 8),
        };
        if size < header || size > room {
            return Ok(None);
        }
        Ok(Some(BoxHeader {
            kind,
            begin: at + header,
            end: at + size,
        }))
    }

    fn children(&mut self, mut at: u64, end: u64, depth: usize) -> Result<()> {
        while self.boxes < MAX_BOXES {
            let Some(found) = self.header(at, end)? else {
                return Ok(());
            };
            self.boxes += 1;
            at = found.end;
            match (&found.kind, depth) {
                (b"moov", 0) | (b"edts" | b"mdia", 2) => self.children(found.begin, found.end, depth + 1)?,
                (b"trak", 1) => {
                    self.edits.tracks.push(TrackEdit::default());
                    self.children(found.begin, found.end, depth + 1)?;
                }
                (b"mvhd", 1) => self.edits.movie_scale = self.field(&found, 12, 20)?,
                (b"tkhd", 2) => {
                    let id = self.field(&found, 12, 20)?;
                    self.with_track(|t| t.id = id);
                }
                (b"mdhd", 3) => {
                    let scale = self.field(&found, 12, 20)?;
                    self.with_track(|t| t.media_scale = scale);
                }
                (b"elst", 3) => self.edit_list(&found)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn with_track(&mut self, change: impl FnOnce(&mut TrackEdit)) {
        if let Some(track) = self.edits.tracks.last_mut() {
            change(track);
        }
    }

    /// Bytes of the content of `found`, from `offset` on; zeros where it is shorter.
    fn bytes<const N: usize>(&mut self, found: &BoxHeader, offset: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        if found.begin + offset + N as u64 <= found.end {
            self.source.seek(SeekFrom::Start(found.begin + offset))?;
            self.source.read_exact(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// A number of 32 bits at an offset that depends on the version of the box.
    fn field(&mut self, found: &BoxHeader, version_0: u64, version_1: u64) -> Result<u32> {
        let [version] = self.bytes(found, 0)?;
        let offset = if version == 1 { version_1 } else { version_0 };
        Ok(u32::from_be_bytes(self.bytes(found, offset)?))
    }

    fn edit_list(&mut self, found: &BoxHeader) -> Result<()> {
        let [version] = self.bytes(found, 0)?;
        let count = u32::from_be_bytes(self.bytes(found, 4)?);
        for i in 0..u64::from(count.min(MAX_EDITS)) {
            let edit = if version == 1 {
                let at = 8 + 20 * i;
                (
                    u64::from_be_bytes(self.bytes(found, at)?),
                    i64::from_be_bytes(self.bytes(found, at + 8)?),
                )
            } else {
                let at = 8 + 12 * i;
                (
                    u32::from_be_bytes(self.bytes(found, at)?).into(),
                    i32::from_be_bytes(self.bytes(found, at + 4)?).into(),
                )
            };
            self.with_track(|t| t.edits.push(edit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let mut out = (8 + content.len() as u32).to_be_bytes().to_vec();
        out.extend(kind);
        out.extend(content);
        out
    }

    /// Content of version 0 with one number where all of these boxes have theirs.
    fn numbered(kind: &[u8; 4], number: u32) -> Vec<u8> {
        let mut content = vec![0; 12];
        content.extend(number.to_be_bytes());
        boxed(kind, &content)
    }

    /// A file with one track of id 7 with 44,100 ticks a second in a movie of 1,000, and these edits.
    fn file(edits: &[(u32, i32)]) -> Vec<u8> {
        let mut list = vec![0; 4];
        list.extend((edits.len() as u32).to_be_bytes());
        for (duration, position) in edits {
            list.extend(duration.to_be_bytes());
            list.extend(position.to_be_bytes());
            list.extend([0, 1, 0, 0]);
        }
        let edts = boxed(b"edts", &boxed(b"elst", &list));
        let mdia = boxed(b"mdia", &numbered(b"mdhd", 44_100));
        let trak = boxed(b"trak", &[numbered(b"tkhd", 7), edts, mdia].concat());
        let moov = boxed(b"moov", &[numbered(b"mvhd", 1000), trak].concat());
        [boxed(b"ftyp", b"M4A \0\0\0\0"), boxed(b"mdat", &[0; 100]), moov].concat()
    }

    fn heard(edits: &[(u32, i32)], rate_hz: u32) -> Option<Heard> {
        read(&mut Cursor::new(file(edits))).unwrap().unwrap().track(7, rate_hz)
    }

    #[test]
    fn track_of_edits_gives_what_is_heard_in_frames() {
        type Skip = (u64, Option<u64>);
        type Case = (&'static [(u32, i32)], u32, Option<Skip>);
        let cases: &[Case] = &[
            (&[], 44_100, None),
            (&[(600, 1024)], 44_100, Some((1024, Some(26_460)))),
            // The rate of a codec may be half of the ticks.
            (&[(600, 1024)], 22_050, Some((512, Some(13_230)))),
            // Without a duration: to the end. After a pause: from the track's beginning.
            (&[(0, 2112)], 44_100, Some((2112, None))),
            (&[(500, -1), (600, 1024)], 44_100, Some((1024, Some(26_460)))),
            (&[(100, 1024), (100, 9000)], 44_100, Some((1024, None))),
            (&[(500, -1)], 44_100, None),
            (
                &[(u32::MAX, i32::MAX)],
                u32::MAX,
                Some((209_146_758_059_237, Some(18_446_744_065_119_618))),
            ),
        ];
        for (edits, rate, want) in cases {
            let want = want.map(|(skip, frames)| Heard { skip, frames });
            assert_eq!(heard(edits, *rate), want, "{edits:?} at {rate} Hz");
        }
    }

    #[test]
    fn read_of_damaged_boxes_never_fails() {
        let good = file(&[(600, 1024)]);
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let edits = read(&mut Cursor::new(bad)).unwrap();
                let _ = edits.and_then(|e| e.track(7, u32::MAX));
            }
            read(&mut Cursor::new(&good[..at])).unwrap();
        }
    }

    #[test]
    fn read_of_other_files_finds_nothing() {
        assert_eq!(read(&mut Cursor::new(b"RIFF....WAVEfmt ")).unwrap(), None);
        // Boxes without end: as many as are allowed.
        let many: Vec<u8> = std::iter::once(boxed(b"ftyp", b""))
            .chain((0..10_000).map(|_| boxed(b"free", b"")))
            .flatten()
            .collect();
        assert_eq!(read(&mut Cursor::new(many)).unwrap(), None);
    }
}
