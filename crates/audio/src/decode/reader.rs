//! One audio track of a file, block by block.

use super::codec::{Codec, Decoded};
use super::edits::{self, Edits};
use super::guard::guarded;
use super::sniff;
use crate::resample::RATES_HZ;
use crate::{Error, ErrorKind};
use std::io::{Cursor, ErrorKind as IoKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::OnceLock;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::common::Limit;
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::{Hint, Probe, ProbeOptions};
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

/// The most channels that are accepted.
pub const MAX_CHANNELS: usize = 32;
/// How far into a file its beginning is looked for, past tags.
const PROBE_BYTES: u32 = 256 << 10;
/// Packets in a row without a sample before a file is given up.
const MAX_EMPTY_PACKETS: usize = 100_000;

/// What a caller is ready to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The longest audio, in seconds. The default is 24 hours.
    pub max_seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_seconds: 24.0 * 3600.0,
        }
    }
}

/// What a file's headers say.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// The container's name, such as `wave` or `isomp4`.
    pub container: &'static str,
    /// The codec's name, such as `mp3`.
    pub codec: &'static str,
    /// Frames a second.
    pub sample_rate_hz: u32,
    /// Samples of a frame.
    pub channels: usize,
    /// Frames in all, where the file says it. A statement, not a promise.
    pub frames: Option<u64>,
}

/// Consecutive frames.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// `[frames, channels]`, `[-1, 1]` unless the file holds floats beyond that.
    pub samples: &'a [f32],
    /// Samples of a frame.
    pub channels: usize,
    /// The position of the first frame in the recording.
    pub first_frame: u64,
}

impl Block<'_> {
    /// Appends the mean of the channels to `out`.
    pub fn mix_into(&self, out: &mut Vec<f32>) {
        match self.channels {
            1 => out.extend_from_slice(self.samples),
            channels => out.extend(
                self.samples
                    .chunks_exact(channels)
                    .map(|frame| (frame.iter().copied().map(f64::from).sum::<f64>() / channels as f64) as f32),
            ),
        }
    }
}

/// An open audio file.
pub struct Reader {
    format: Box<dyn FormatReader>,
    codec: Codec,
    track: u32,
    info: Info,
    limits: Limits,
    /// Frames still to be dropped from the front.
    skip: u64,
    /// Frames still to come, where the container states where the audio ends.
    left: Option<u64>,
    position: u64,
    block: Vec<f32>,
    damaged: u64,
    truncated: bool,
    /// No length is stated that is meant, so none is missed at the end.
    is_endless: bool,
    done: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("info", &self.info)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], or as [`Reader::new`]; messages begin with the path.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        let file = std::fs::File::open(path).and_then(|file| {
            if file.metadata()?.is_dir() {
                return Err(std::io::Error::from(IoKind::IsADirectory));
            }
            // A header may say what stands at the end.
            if !file.metadata()?.is_file() {
                let what = "expected a file that can be read from any place, found a pipe or a device; write the recording to a file first";
                return Err(std::io::Error::new(IoKind::Unsupported, what));
            }
            Ok(file)
        });
        file.map_err(|error| Error::io("cannot open the file", error))
            .and_then(|file| Self::new(file, limits))
            .map_err(|error| error.within(path.display()))
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static, limits: Limits) -> Result<Self, Error> {
        Self::new(Cursor::new(bytes), limits)
    }

    /// Finds out what `source` is from its bytes (not from a name), and opens its default audio track, else its first.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`], [`ErrorKind::UnknownFormat`] with what the bytes look like, [`ErrorKind::NoAudio`],
    /// [`ErrorKind::UnsupportedCodec`], [`ErrorKind::InvalidHeader`], [`ErrorKind::TooLong`], [`ErrorKind::Damaged`], [`ErrorKind::Io`].
    pub fn new(source: impl Read + Seek + Send + Sync + 'static, limits: Limits) -> Result<Self, Error> {
        let mut source = Source::new(source).map_err(|error| Error::io("cannot read the file", error))?;
        let beginning = source
            .beginning()
            .map_err(|error| Error::io("cannot read the file", error))?;
        sniff::refuse(&beginning)?;
        let edits = edits::read(&mut source).map_err(|error| Error::io("cannot read the file", error))?;
        let file_bytes = source.bytes;
        let stream = MediaSourceStream::new(Box::new(source), Default::default());
        let metadata = MetadataOptions::default()
            .limit_tag_bytes(Limit::Maximum(64 << 10))
            .limit_visual_bytes(Limit::Maximum(0));
        let opened = guarded("headers", || {
            probe().probe(&Hint::new(), stream, FormatOptions::default(), metadata)
        })?;
        let format = opened.map_err(|error| opening_error(error, &beginning))?;
        let track = choose(&*format)?;
        Self::of_track(track, format, edits.as_ref(), file_bytes, limits)
    }

    fn of_track(
        track: Track,
        format: Box<dyn FormatReader>,
        edits: Option<&Edits>,
        file_bytes: u64,
        limits: Limits,
    ) -> Result<Self, Error> {
        let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
            return Err(Error::new(ErrorKind::NoAudio, "the track states no codec"));
        };
        let codec = guarded("codec's header", || Codec::new(parameters))??;
        // Some containers leave both to the codec, whose first packet says it; what is stated has to make sense now.
        let sample_rate_hz = parameters.sample_rate.unwrap_or(0);
        let channels = parameters.channels.as_ref().map_or(0, |c| c.count());
        let format_name = format.format_info().short_name;
        let mut reader = Self {
            info: Info {
                container: format_name,
                codec: codec.name(),
                sample_rate_hz,
                channels,
                frames: None,
            },
            format,
            codec,
            track: track.id,
            limits,
            skip: 0,
            left: None,
            position: 0,
            block: Vec::new(),
            damaged: 0,
            truncated: false,
            is_endless: false,
            done: false,
        };
        if let Some(rate) = parameters.sample_rate {
            check_rate(rate)?;
        }
        if parameters.channels.is_some() {
            check_channels(channels)?;
        }
        // A program that writes to a pipe leaves a length in WAV that is not meant.
        let is_wav = format_name == "wave";
        let stated = track.num_frames;
        reader.is_endless = is_wav && stated.is_none_or(|frames| frames > file_bytes);
        let mut frames = stated.filter(|&frames| frames > 0 && !reader.is_endless);
        match (
            edits.and_then(|e| e.track(track.id, sample_rate_hz)),
            reader.codec.pre_skip(),
        ) {
            (Some(edit), _) => {
                // Edits are often rounded to milliseconds; the length of the track is exact where it is known in frames.
                let rest = frames.map(|f| f.saturating_sub(edit.skip)).filter(|&f| f > 0);
                frames = match (edit.frames, rest) {
                    (Some(edit), Some(rest)) => Some(edit.min(rest)),
                    (edit, rest) => edit.or(rest),
                };
                reader.skip = edit.skip;
                reader.left = frames;
            }
            (None, Some(pre_skip)) => {
                reader.skip = pre_skip;
                // In Ogg the last page states where the audio ends, counted with what is skipped.
                frames = frames.map(|f| {
                    let start = u64::try_from(track.start_ts.get()).unwrap_or(0);
                    f.saturating_sub(start).saturating_sub(pre_skip)
                });
                reader.left = frames;
            }
            (None, None) => {}
        }
        reader.info.frames = frames;
        if let Some(frames) = frames.filter(|_| sample_rate_hz > 0) {
            reader.check_length(frames)?;
        }
        if sample_rate_hz == 0 || channels == 0 {
            reader.read_ahead()?;
        }
        Ok(reader)
    }

    /// What the headers say.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Packets that could not be decoded so far. There is silence in their place.
    pub fn damaged_packets(&self) -> u64 {
        self.damaged
    }

    /// Whether the file ended in the middle of something. It is known once [`Reader::next_block`] gave `None`.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The next frames, some thousand at a time, or `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSamples`], [`ErrorKind::TooLong`], [`ErrorKind::Damaged`], [`ErrorKind::Io`]; [`ErrorKind::Empty`] at an end
    /// without any frame before it.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, Error> {
        // An error ends the reading: what a library holds after one is not to be relied upon.
        let was_done = std::mem::replace(&mut self.done, true);
        let Some(first_frame) = self.next_frames(was_done)? else {
            return Ok(None);
        };
        self.done = was_done;
        Ok(Some(Block {
            samples: &self.block,
            channels: self.info.channels,
            first_frame,
        }))
    }

    /// Puts frames into `block` and says where they begin.
    fn next_frames(&mut self, done: bool) -> Result<Option<u64>, Error> {
        // What reading ahead found is given first.
        if self.block.is_empty() || self.position > 0 {
            let mut empty = 0;
            loop {
                self.block.clear();
                if done || !self.fill()? {
                    return self.end().map(|()| None);
                }
                if !self.block.is_empty() {
                    break;
                }
                empty += 1;
                if empty > MAX_EMPTY_PACKETS {
                    return Err(Error::new(
                        ErrorKind::Damaged,
                        format!("{empty} packets in a row hold no audio; the file is damaged"),
                    ));
                }
            }
        }
        let channels = self.info.channels;
        let first_frame = self.position;
        self.position += (self.block.len() / channels) as u64;
        self.check_length(self.position)?;
        if let Some(i) = self.block.iter().position(|v| v.is_nan() || v.abs() > 2f32.powi(31)) {
            return Err(Error::new(
                ErrorKind::InvalidSamples,
                format!(
                    "the sample at {:.3} s is {}; expected a number from -1 to 1",
                    (first_frame + (i / channels) as u64) as f64 / f64::from(self.info.sample_rate_hz),
                    self.block[i]
                ),
            ));
        }
        Ok(Some(first_frame))
    }

    fn end(&self) -> Result<(), Error> {
        if self.position > 0 {
            return Ok(());
        }
        Err(match self.damaged {
            0 => Error::new(ErrorKind::Empty, "the file holds no audio samples"),
            damaged => Error::new(
                ErrorKind::Damaged,
                format!("none of the {damaged} packets could be decoded as {}", self.info.codec),
            ),
        })
    }

    /// Finds out rate and channels from the first frames.
    fn read_ahead(&mut self) -> Result<(), Error> {
        for _ in 0..64 {
            if !self.fill()? {
                break;
            }
            if !self.block.is_empty() {
                return Ok(());
            }
        }
        if self.info.sample_rate_hz == 0 || self.info.channels == 0 {
            return Err(Error::new(
                ErrorKind::InvalidHeader,
                "neither the headers nor the first packets state a sample rate and channels",
            ));
        }
        Ok(())
    }

    /// Decodes a packet into `block`. `false` at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        if self.left == Some(0) {
            return Ok(false);
        }
        let packet = match guarded("container", || self.format.next_packet())? {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(false),
            Err(SymphoniaError::IoError(error)) if error.kind() == IoKind::UnexpectedEof => {
                self.truncated = !self.is_endless;
                return Ok(false);
            }
            Err(SymphoniaError::IoError(error)) => return Err(Error::io("cannot read the file", error)),
            Err(SymphoniaError::ResetRequired) => return self.next_stream().map(|()| true),
            Err(_) if self.position > 0 => {
                // The container is lost: what came before is good.
                self.truncated = true;
                return Ok(false);
            }
            Err(error) => return Err(Error::new(ErrorKind::Damaged, format!("the file is damaged: {error}"))),
        };
        if packet.track_id != self.track {
            return Ok(true);
        }
        match guarded("audio", || self.codec.decode(&packet, &mut self.block))? {
            Decoded::Frames {
                sample_rate_hz,
                channels,
            } => self.check_format(sample_rate_hz, channels)?,
            Decoded::Nothing => {}
            Decoded::Damaged => {
                self.damaged += 1;
                let frames = self.frames_of(&packet);
                self.block.resize(frames * self.info.channels, 0.0);
            }
        }
        self.cut();
        Ok(true)
    }

    /// Goes on with the next of several streams in a row.
    fn next_stream(&mut self) -> Result<(), Error> {
        let track = choose(&*self.format)?;
        let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
            return Err(Error::new(ErrorKind::NoAudio, "a later stream states no codec"));
        };
        self.codec = guarded("codec's header", || Codec::new(parameters))??;
        self.track = track.id;
        self.skip = self.codec.pre_skip().unwrap_or(0);
        self.left = None;
        Ok(())
    }

    /// The length of a packet in frames, as far as it can be believed.
    fn frames_of(&self, packet: &Packet) -> usize {
        let rate = u64::from(self.info.sample_rate_hz);
        let base = self
            .format
            .tracks()
            .iter()
            .find(|t| t.id == self.track)
            .and_then(|t| t.time_base);
        let ticks = u128::from(packet.block_dur().get());
        let frames = base.map_or(0, |base| {
            ticks * u128::from(base.numer.get()) * u128::from(rate) / u128::from(base.denom.get())
        });
        frames.min(u128::from(rate)) as usize
    }

    /// Removes what the container says is no audio.
    fn cut(&mut self) {
        let channels = self.info.channels.max(1);
        let frames = self.block.len() / channels;
        let skipped = self.skip.min(frames as u64);
        self.skip -= skipped;
        self.block.drain(..skipped as usize * channels);
        if let Some(left) = &mut self.left {
            let kept = (*left).min(frames as u64 - skipped);
            self.block.truncate(kept as usize * channels);
            *left -= kept;
        }
    }

    fn check_format(&mut self, rate: u32, channels: usize) -> Result<(), Error> {
        let info = &mut self.info;
        if info.sample_rate_hz == rate && info.channels == channels {
            return Ok(());
        }
        check_rate(rate)?;
        check_channels(channels)?;
        if self.position > 0 {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "the audio changes from {} Hz and {} channels to {rate} Hz and {channels} in its midst",
                    info.sample_rate_hz, info.channels
                ),
            ));
        }
        // Headers of AAC may state what extensions would add, which are not decoded here.
        if let Some(left) = self.left.as_mut().filter(|_| info.sample_rate_hz > 0) {
            *left = (u128::from(*left) * u128::from(rate) / u128::from(info.sample_rate_hz)) as u64;
            self.skip = (u128::from(self.skip) * u128::from(rate) / u128::from(info.sample_rate_hz)) as u64;
            info.frames = Some(*left);
        }
        (info.sample_rate_hz, info.channels) = (rate, channels);
        Ok(())
    }

    fn check_length(&self, frames: u64) -> Result<(), Error> {
        let seconds = frames as f64 / f64::from(self.info.sample_rate_hz);
        if seconds <= self.limits.max_seconds {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TooLong,
            format!(
                "the audio has {seconds:.1} s or more; at most {:.1} s are accepted",
                self.limits.max_seconds
            ),
        ))
    }
}

fn check_rate(rate: u32) -> Result<(), Error> {
    if RATES_HZ.contains(&rate) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidHeader,
        format!(
            "the file states a sample rate of {rate} Hz; {} to {} Hz are read",
            RATES_HZ.start(),
            RATES_HZ.end()
        ),
    ))
}

fn check_channels(channels: usize) -> Result<(), Error> {
    if (1..=MAX_CHANNELS).contains(&channels) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidHeader,
        format!("the file states {channels} channels; 1 to {MAX_CHANNELS} are read"),
    ))
}

/// The default audio track, else the first.
fn choose(format: &dyn FormatReader) -> Result<Track, Error> {
    if let Some(track) = format
        .default_track(TrackType::Audio)
        .or_else(|| format.first_track(TrackType::Audio))
    {
        return Ok(track.clone());
    }
    let name = format.format_info().short_name;
    let tracks = format.tracks();
    let videos = tracks
        .iter()
        .filter(|t| t.track_type() == Some(TrackType::Video))
        .count();
    let unknown = tracks.iter().filter(|t| t.track_type().is_none()).count();
    Err(Error::new(
        ErrorKind::NoAudio,
        match (videos, unknown) {
            (0, 0) => format!("the {name} file has no audio track"),
            (_, 0) => format!("the {name} file has {videos} video track(s) and no audio"),
            _ => format!(
                "the {name} file has {videos} video track(s), {unknown} of a kind that is not read here, and no other audio"
            ),
        },
    ))
}

fn opening_error(error: SymphoniaError, beginning: &[u8]) -> Error {
    match error {
        SymphoniaError::IoError(error) if error.kind() != IoKind::UnexpectedEof => {
            Error::io("cannot read the file", error)
        }
        // Where a container was recognized, what failed is its headers.
        error => match sniff::container(beginning) {
            Some(name) => Error::new(
                ErrorKind::Damaged,
                format!("the headers of the {name} file cannot be read: {error}"),
            ),
            None => sniff::unknown(beginning),
        },
    }
}

fn probe() -> &'static Probe {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    PROBE.get_or_init(|| {
        let mut probe = Probe::new_with_options(&ProbeOptions {
            max_probe_depth: PROBE_BYTES,
            ..ProbeOptions::default()
        });
        symphonia::default::register_enabled_formats(&mut probe);
        probe
    })
}

/// A source whose length is known.
struct Source<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read + Seek> Source<R> {
    fn new(mut inner: R) -> std::io::Result<Self> {
        let bytes = inner.seek(SeekFrom::End(0))?;
        inner.rewind()?;
        Ok(Self { inner, bytes })
    }

    /// The first bytes; the position is the beginning again.
    fn beginning(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.inner.by_ref().take(1024).read_to_end(&mut bytes)?;
        self.inner.rewind()?;
        Ok(bytes)
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.inner.read(buf)
    }
}

impl<R: Seek> Seek for Source<R> {
    fn seek(&mut self, pos: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(pos)
    }
}

impl<R: Read + Seek + Send + Sync> MediaSource for Source<R> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.bytes)
    }
}
