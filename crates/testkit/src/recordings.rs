//! Recordings as people and programs hand them in by mistake, and what has to become of each.

use std::path::{Path, PathBuf};

/// What has to become of a recording, through whatever door it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Becomes {
    /// A transcript, perhaps without text, of so many seconds.
    Heard(f64),
    /// It states more seconds than it has: a transcript of these with a word about it, or an error where a part may have got
    /// lost on its way.
    Part(f64),
    /// An error that says this.
    Refused(&'static str),
}

/// A recording that is unlike others.
#[derive(Clone, Debug)]
pub struct Awkward {
    /// Its file name.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What has to become of it.
    pub becomes: Becomes,
}

/// Samples a second of what is no case of its own.
const RATE: u32 = 16_000;
/// Format tags of WAV.
const INTEGER: u16 = 1;
const FLOAT: u16 = 3;
/// Where the sizes and the rate of [`wav`] lie.
const RIFF_SIZE: usize = 4;
const FORMAT_SIZE: usize = 16;
const DATA_SIZE: usize = 40;

/// The folder with recordings in many formats.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../audio/tests/files")
}

/// All of them.
///
/// # Panics
/// Where a recording of [`folder`] is missing.
#[must_use]
pub fn awkward() -> Vec<Awkward> {
    use Becomes::{Heard, Part, Refused};
    let file = |name: &str| {
        let path = folder().join(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let second = wav(INTEGER, 1, RATE, 16, &tone(1.0, 1, 2));
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = second.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let floats = |bad: f32| {
        let mut data: Vec<u8> = 0.25f32.to_le_bytes().repeat(RATE as usize);
        data[40_000..40_004].copy_from_slice(&bad.to_le_bytes());
        wav(FLOAT, 1, RATE, 32, &data)
    };
    // The number of packets that an MP4 file states.
    let mut packets = file("mono_16k.m4a");
    let at = packets.windows(4).position(|w| w == b"stsz").expect("sizes of packets");
    packets[at + 12..at + 16].fill(0xff);
    // The number of samples that a FLAC file states, 36 bits of it.
    let mut samples = file("mono_16k.flac");
    samples[21] |= 0x0f;
    samples[22..26].fill(0xff);
    let cases: Vec<(&str, Vec<u8>, Becomes)> = vec![
        ("empty.wav", vec![], Refused("empty")),
        ("header_alone.wav", second[..44].to_vec(), Refused("no audio samples")),
        (
            "no_samples.wav",
            wav(INTEGER, 1, RATE, 16, &[]),
            Refused("no audio samples"),
        ),
        ("one_sample.wav", wav(INTEGER, 1, RATE, 16, &[0, 64]), Heard(0.0)),
        ("10_ms.wav", wav(INTEGER, 1, RATE, 16, &tone(0.01, 1, 2)), Heard(0.01)),
        (
            "not_a_number.wav",
            floats(f32::NAN),
            Refused("the sample at 0.625 s is NaN"),
        ),
        (
            "infinite.wav",
            floats(f32::INFINITY),
            Refused("the sample at 0.625 s is inf"),
        ),
        ("8_bits.wav", wav(INTEGER, 1, RATE, 8, &tone(1.0, 1, 1)), Heard(1.0)),
        ("24_bits.wav", wav(INTEGER, 1, RATE, 24, &tone(1.0, 1, 3)), Heard(1.0)),
        ("96_khz.wav", wav(INTEGER, 1, 96_000, 16, &tone(6.0, 1, 2)), Heard(1.0)),
        (
            "8_channels.wav",
            wav(INTEGER, 8, RATE, 16, &tone(1.0, 8, 2)),
            Heard(1.0),
        ),
        ("truncated.wav", second[..44 + 16_000].to_vec(), Part(0.5)),
        ("cut_in_a_sample.wav", second[..44 + 16_001].to_vec(), Part(0.5)),
        // A program that writes to a pipe states a length that is not meant.
        (
            "endless.wav",
            [
                with(RIFF_SIZE, &[0xff; 4])[..DATA_SIZE].to_vec(),
                vec![0xff; 4],
                second[44..].to_vec(),
            ]
            .concat(),
            Heard(1.0),
        ),
        (
            "format_of_4_gb.wav",
            with(FORMAT_SIZE, &[0xff; 4]),
            Refused("the headers of the WAV file"),
        ),
        ("rate_of_0.wav", with(24, &[0; 4]), Refused("rate")),
        ("rate_of_4_ghz.wav", with(24, &[0xff; 4]), Refused("rate")),
        ("0_channels.wav", with(22, &[0; 2]), Refused("channel")),
        ("65535_channels.wav", with(22, &[0xff; 2]), Refused("headers")),
        (
            "packets_that_are_not_there.m4a",
            packets,
            Refused("the headers of the MP4 file"),
        ),
        ("samples_that_are_not_there.flac", samples, Refused("at most")),
        ("film.mp4", file("video_and_sound.mp4"), Heard(0.6)),
        ("film.mkv", file("video_and_sound.mkv"), Heard(0.6)),
        ("film.webm", file("video_and_sound.webm"), Heard(0.6)),
        ("silent_film.mp4", file("video_only.mp4"), Refused("1 video track")),
        (
            "letter.wav",
            b"Dear Sir or Madam, I hear that you write down what people say.\n".repeat(50),
            Refused("a text file"),
        ),
        (
            "picture.mp3",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02".to_vec(),
            Refused("a PNG image"),
        ),
    ];
    let made = |(name, bytes, becomes)| Awkward { name, bytes, becomes };
    cases.into_iter().map(made).collect()
}

/// A tone, `bytes` a sample: unsigned where it is one, as WAV has it.
fn tone(seconds: f64, channels: usize, bytes: usize) -> Vec<u8> {
    let frames = (seconds * f64::from(RATE)) as usize;
    let sample = |i: usize| (0.3 * (i as f64 * 0.1).sin() * f64::from(i32::MAX)) as i32;
    let encode = |i: usize| match bytes {
        1 => vec![(sample(i) >> 24) as u8 ^ 0x80],
        _ => sample(i).to_le_bytes()[4 - bytes..].to_vec(),
    };
    (0..frames).flat_map(|i| encode(i).repeat(channels)).collect()
}

/// A WAV file with one chunk `fmt ` and one chunk `data`.
#[must_use]
pub fn wav(tag: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let align = channels * (bits / 8);
    let length = data.len() as u32;
    let mut out = b"RIFF".to_vec();
    out.extend((36 + length).to_le_bytes());
    out.extend(b"WAVEfmt \x10\0\0\0");
    out.extend(tag.to_le_bytes());
    out.extend(channels.to_le_bytes());
    out.extend(rate.to_le_bytes());
    out.extend((rate * u32::from(align)).to_le_bytes());
    out.extend(align.to_le_bytes());
    out.extend(bits.to_le_bytes());
    out.extend(b"data");
    out.extend(length.to_le_bytes());
    out.extend(data);
    out
}
