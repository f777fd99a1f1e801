//! Files of every kind: what is heard, when, and what is refused.

use cactus_audio::decode::{Limits, Mono, Reader, Recording, load};
use cactus_audio::{Error, ErrorKind, Samples, Sound, resample};
use std::f64::consts::PI;
use std::io::Cursor;

const SECONDS: f64 = 0.6;

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/files/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sound that `files/make.py` encodes: a tone from 200 Hz to 3 kHz.
fn truth(rate: u32, gain: f64) -> Vec<f32> {
    (0..(SECONDS * f64::from(rate)).round() as usize)
        .map(|i| {
            let t = i as f64 / f64::from(rate);
            (gain * 0.4 * (2.0 * PI * (200.0 * t + 2800.0 / (2.0 * SECONDS) * t * t)).sin()) as f32
        })
        .collect()
}

/// Signal to noise in dB of `got` that lies `lag` samples late.
fn snr(got: &[f32], want: &[f32], lag: isize) -> f64 {
    let (mut signal, mut noise) = (1e-30, 1e-30);
    for (i, &w) in want.iter().enumerate() {
        let Some(&g) = i.checked_add_signed(lag).and_then(|i| got.get(i)) else {
            continue;
        };
        signal += f64::from(w).powi(2);
        noise += (f64::from(g) - f64::from(w)).powi(2);
    }
    10.0 * (signal / noise).log10()
}

struct Heard {
    samples: Vec<f32>,
    rate: u32,
    reader: Reader,
}

/// All frames mixed down, at the file's own rate.
fn hear(bytes: Vec<u8>) -> Result<Heard, Error> {
    let mut reader = Reader::from_bytes(bytes, Limits::default())?;
    let rate = reader.info().sample_rate_hz;
    let mut samples = Vec::new();
    while let Some(block) = reader.next_block()? {
        assert_eq!(block.first_frame, samples.len() as u64);
        block.mix_into(&mut samples);
    }
    Ok(Heard { samples, rate, reader })
}

fn kind(result: Result<Heard, Error>) -> (ErrorKind, String) {
    let error = result.map(|h| h.samples.len()).expect_err("an error");
    (error.kind(), error.to_string())
}

/// What the mean of `channels` channels is of the first one: the others are half as loud.
fn gain(channels: usize) -> f64 {
    (1.0 + 0.5 * (channels - 1) as f64) / channels as f64
}

#[test]
fn decode_of_every_format_hears_the_sound_at_its_time() {
    // name, container, codec, rate, channels, least signal to noise in dB
    for (name, container, codec, rate, channels, least) in [
        ("mono_44k.mp3", "mp3", "mp3", 44_100, 1, 24.0),
        ("stereo_24k.mp3", "mp3", "mp3", 24_000, 2, 24.0),
        ("vbr_48k.mp3", "mp3", "mp3", 48_000, 1, 24.0),
        ("stereo_44k.ogg", "ogg", "vorbis", 44_100, 2, 17.0),
        ("mono_16k.ogg", "ogg", "vorbis", 16_000, 1, 20.0),
        ("stereo_44k.m4a", "isomp4", "aac", 44_100, 2, 12.0),
        ("mono_16k.m4a", "isomp4", "aac", 16_000, 1, 16.0),
        ("mono_alac.m4a", "isomp4", "alac", 16_000, 1, 85.0),
        ("mono_16k.flac", "flac", "flac", 16_000, 1, 85.0),
        ("stereo_16k_s24.flac", "flac", "flac", 16_000, 2, 85.0),
        ("mono_16k_flac.ogg", "ogg", "flac", 16_000, 1, 85.0),
        ("alaw_8k.wav", "wave", "pcm_alaw", 8_000, 1, 37.0),
        ("mulaw_8k.wav", "wave", "pcm_mulaw", 8_000, 1, 37.0),
        ("video_and_sound.mp4", "isomp4", "aac", 44_100, 1, 11.0),
        ("stereo_short.opus", "ogg", "opus", 48_000, 2, 12.0),
        ("surround.opus", "ogg", "opus", 48_000, 6, 5.0),
        ("mono_music.opus", "ogg", "opus", 48_000, 1, 4.0),
        ("mono_speech.opus", "ogg", "opus", 48_000, 1, 4.0),
    ] {
        let heard = hear(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let info = heard.reader.info();
        assert_eq!((info.container, info.codec), (container, codec), "{name}");
        assert_eq!((info.sample_rate_hz, info.channels), (rate, channels), "{name}");
        let want = truth(rate, gain(channels));
        assert_eq!(heard.samples.len(), want.len(), "{name}");
        assert_eq!(info.frames, Some(want.len() as u64), "{name}");
        let found = snr(&heard.samples, &want, 0);
        assert!(found > least, "{name}: {found:.1} dB");
        // No other alignment is better: by half a millisecond for Opus, which moves phases, and by a sample for the rest.
        let near = if codec == "opus" { rate as isize / 2000 } else { 1 };
        let near_and_far = (-60..=60).chain((-1500..=1500).step_by(23));
        for lag in near_and_far.filter(|lag: &isize| lag.abs() > near) {
            assert!(
                snr(&heard.samples, &want, lag) < found,
                "{name} is better {lag} samples later"
            );
        }
        assert_eq!(
            (heard.reader.damaged_packets(), heard.reader.is_truncated()),
            (0, false),
            "{name}"
        );
    }
}

#[test]
fn decode_of_opus_equals_libopus() {
    for name in ["mono_music.opus", "mono_speech.opus", "mono_hybrid.opus"] {
        let heard = hear(file(name)).unwrap();
        let bytes = file(&format!("{name}.s16le"));
        let want: Vec<f32> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from(i16::from_le_bytes(b)) / 32768.0)
            .collect();
        let got: Vec<f32> = heard.samples.iter().copied().step_by(32).collect();
        assert_eq!(got.len(), want.len(), "{name}");
        let found = snr(&got, &want, 0);
        assert!(found > 60.0, "{name}: {found:.1} dB beside libopus");
    }
}

#[test]
fn decode_without_stated_delays_keeps_what_the_codec_adds() {
    // Nothing in these files says how much an encoder put in front, so it stays: 1105 samples for LAME, 1024 for AAC.
    for (name, late, frames) in [
        ("untagged_44k.mp3", 1105, 27_648),
        ("mono_44k.aac", 1024, 27_648),
        ("fragmented_44k.m4a", 1024, 27_648),
    ] {
        let heard = hear(file(name)).unwrap();
        assert_eq!(heard.samples.len(), frames, "{name}");
        let found = snr(&heard.samples, &truth(heard.rate, 1.0), late);
        assert!(found > 20.0, "{name}: {found:.1} dB");
    }
    // WebM states the delay of Opus; what fills its last packet is not known to the reader: at most 20 ms.
    let heard = hear(file("mono_opus.webm")).unwrap();
    assert!(
        (28_800..28_800 + 960).contains(&heard.samples.len()),
        "{}",
        heard.samples.len()
    );
    assert!(snr(&heard.samples, &truth(48_000, 1.0), 0) > 4.0);
}

/// A WAV file with one `fmt ` and one `data` chunk.
fn wav(tag: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let align = channels.wrapping_mul(bits / 8);
    let mut out = b"RIFF".to_vec();
    out.extend((36 + data.len() as u32).to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(16u32.to_le_bytes());
    out.extend(tag.to_le_bytes());
    out.extend(channels.to_le_bytes());
    out.extend(rate.to_le_bytes());
    out.extend(rate.wrapping_mul(align.into()).to_le_bytes());
    out.extend(align.to_le_bytes());
    out.extend(bits.to_le_bytes());
    out.extend(b"data");
    out.extend((data.len() as u32).to_le_bytes());
    out.extend(data);
    out
}

fn wav_s16(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    wav(1, channels, rate, 16, &data)
}

#[test]
fn decode_of_wav_gives_the_numbers_of_every_sample_format() {
    let values = [-1.0f64, -0.5, 0.0, 0.25, 0.5];
    type Encode = fn(f64) -> Vec<u8>;
    let cases: &[(u16, u16, Encode)] = &[
        (1, 8, |v| vec![(v * 128.0 + 128.0) as u8]),
        (1, 16, |v| ((v * 32768.0) as i16).to_le_bytes().to_vec()),
        (1, 24, |v| ((v * 8_388_608.0) as i32).to_le_bytes()[..3].to_vec()),
        (1, 32, |v| ((v * 2_147_483_648.0) as i32).to_le_bytes().to_vec()),
        (3, 32, |v| (v as f32).to_le_bytes().to_vec()),
        (3, 64, |v| v.to_le_bytes().to_vec()),
    ];
    for &(tag, bits, encode) in cases {
        for channels in [1u16, 2, 8] {
            let data: Vec<u8> = values
                .iter()
                .flat_map(|&v| (0..channels).flat_map(move |c| encode(if c == 0 { v } else { 0.0 })))
                .collect();
            for rate in [8_000, 96_000] {
                let heard = hear(wav(tag, channels, rate, bits, &data)).unwrap();
                assert_eq!(
                    (heard.rate, heard.reader.info().channels),
                    (rate, usize::from(channels))
                );
                let want: Vec<f32> = values.iter().map(|v| (v / f64::from(channels)) as f32).collect();
                assert_eq!(heard.samples, want, "format {tag}, {bits} bits, {channels} channels");
            }
        }
    }
}

#[test]
fn load_of_any_rate_gives_16_khz() {
    for (name, least) in [
        ("mono_44k.mp3", 24.0),
        ("stereo_44k.ogg", 17.0),
        ("mono_16k.flac", 85.0),
        ("alaw_8k.wav", 34.0),
    ] {
        let samples = load(Cursor::new(file(name)), 16_000, Limits::default()).unwrap();
        assert_eq!(samples.len(), 9600, "{name}");
        let gain = if name.starts_with("stereo") { 0.75 } else { 1.0 };
        let found = snr(&samples, &truth(16_000, gain), 0);
        assert!(found > least, "{name}: {found:.1} dB");
    }
    // The same as the two steps by hand.
    let heard = hear(file("mono_44k.mp3")).unwrap();
    let by_hand = resample(&heard.samples, 44_100, 16_000).unwrap();
    assert_eq!(
        load(Cursor::new(file("mono_44k.mp3")), 16_000, Limits::default()).unwrap(),
        by_hand
    );
}

#[test]
fn decode_of_10_ms_gives_10_ms() {
    let samples: Vec<i16> = (0..160).map(|i| i * 100).collect();
    assert_eq!(hear(wav_s16(1, 16_000, &samples)).unwrap().samples.len(), 160);
    assert_eq!(hear(wav_s16(1, 16_000, &samples[..1])).unwrap().samples.len(), 1);
}

#[test]
fn decode_of_what_is_no_audio_says_what_it_is() {
    let mut avi = b"RIFF\0\0\0\0AVI LIST".to_vec();
    avi.resize(4096, 0);
    let mut stream = vec![0u8; 188 * 10];
    stream.iter_mut().step_by(188).for_each(|b| *b = 0x47);
    let cases: &[(Vec<u8>, ErrorKind, &str)] = &[
        (vec![], ErrorKind::Empty, "empty"),
        (
            b"This is a letter, renamed to .wav. \xc3\xa9t\xc3\xa9\n".repeat(100),
            ErrorKind::UnknownFormat,
            "text file",
        ),
        (vec![0; 10_000], ErrorKind::UnknownFormat, "00 00 00 00"),
        (vec![7], ErrorKind::UnknownFormat, "07"),
        (avi, ErrorKind::UnknownFormat, "AVI video"),
        (stream, ErrorKind::UnknownFormat, "MPEG transport stream"),
        (b"FORM\0\0\0\x20AIFF".to_vec(), ErrorKind::UnknownFormat, "AIFF"),
        (
            b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9".repeat(50),
            ErrorKind::UnknownFormat,
            "WMA",
        ),
        (file("video_only.mp4"), ErrorKind::NoAudio, "1 video track"),
        (file("ac3.mp4"), ErrorKind::UnsupportedCodec, "AC-3"),
        (file("adpcm.wav"), ErrorKind::UnsupportedCodec, "ADPCM"),
        (b"RIFF\x04\0\0\0WAVE".to_vec(), ErrorKind::Damaged, "WAV"),
        (b"OggS".to_vec(), ErrorKind::Damaged, "Ogg"),
        (wav_s16(1, 16_000, &[]), ErrorKind::Empty, "no audio samples"),
    ];
    for (bytes, want, text) in cases {
        let (found, message) = kind(hear(bytes.clone()));
        assert_eq!(found, *want, "{message}");
        assert!(message.contains(text), "{text}: {message}");
    }
}

#[test]
fn decode_of_hostile_headers_is_refused() {
    for (channels, rate) in [
        (0, 16_000),
        (1, 0),
        (1, 999),
        (1, u32::MAX),
        (33, 16_000),
        (u16::MAX, 16_000),
    ] {
        let bytes = wav(1, channels, rate, 16, &[0; 64]);
        let (found, message) = kind(hear(bytes));
        assert!(
            matches!(
                found,
                ErrorKind::InvalidHeader | ErrorKind::Damaged | ErrorKind::UnsupportedCodec
            ),
            "{channels} channels at {rate} Hz: {found:?} {message}"
        );
    }
    // Sizes that are not there: what is there is heard.
    let mut bytes = wav_s16(1, 16_000, &[100; 1000]);
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    bytes[40..44].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    let heard = hear(bytes).unwrap();
    assert_eq!((heard.samples.len(), heard.reader.info().frames), (1000, None));
    assert!(!heard.reader.is_truncated(), "nothing is missed that was not meant");
}

#[test]
fn decode_of_samples_that_are_no_numbers_names_the_time() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e20] {
        let mut samples = vec![0.5f32; 16_000];
        samples[8_000] = bad;
        let data: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
        let (found, message) = kind(hear(wav(3, 1, 16_000, 32, &data)));
        assert_eq!(found, ErrorKind::InvalidSamples);
        assert!(message.contains("0.500 s"), "{message}");
    }
}

#[test]
fn decode_of_truncated_files_gives_what_is_there() {
    for name in [
        "mono_44k.mp3",
        "stereo_44k.ogg",
        "mono_music.opus",
        "mono_16k.flac",
        "mono_alac.m4a",
        "alaw_8k.wav",
        "mono_opus.webm",
    ] {
        let bytes = file(name);
        let whole = hear(bytes.clone()).unwrap();
        for percent in [5, 20, 50, 90] {
            let cut = bytes[..bytes.len() * percent / 100].to_vec();
            match hear(cut) {
                Ok(heard) => assert!(heard.samples.len() <= whole.samples.len() + 2304, "{name}, {percent} %"),
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Damaged | ErrorKind::Empty | ErrorKind::UnknownFormat | ErrorKind::NoAudio
                    ),
                    "{name}, {percent} %: {:?} {error}",
                    error.kind()
                ),
            }
        }
    }
    let heard = hear(file("mono_44k.mp3")[..2000].to_vec()).unwrap();
    assert!(heard.samples.len() > 5_000);
    assert!(snr(&heard.samples[..5_000], &truth(44_100, 1.0)[..5_000], 0) > 20.0);
    let heard = hear(file("mulaw_8k.wav")[..2058].to_vec()).unwrap();
    assert_eq!(heard.samples.len(), 2000);
}

#[test]
fn decode_beyond_the_limit_is_refused_before_the_end() {
    let short = Limits { max_seconds: 0.5 };
    for name in ["mono_44k.mp3", "mono_music.opus", "mono_44k.aac", "mono_opus.webm"] {
        let error = load(Cursor::new(file(name)), 16_000, short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLong, "{name}: {error}");
        assert!(error.to_string().contains("at most 0.5 s"), "{error}");
    }
}

/// A WAV file of silence that is not there: only its header is bytes.
struct Long {
    header: Vec<u8>,
    bytes: u64,
    at: u64,
}

impl std::io::Read for Long {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (buf.len() as u64).min(self.bytes - self.at) as usize;
        buf[..n].fill(0);
        let header = self.header.get(self.at as usize..).unwrap_or_default();
        let both = header.len().min(n);
        buf[..both].copy_from_slice(&header[..both]);
        self.at += n as u64;
        Ok(n)
    }
}

impl std::io::Seek for Long {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.at = match to {
            std::io::SeekFrom::Start(at) => at,
            std::io::SeekFrom::End(by) => self.bytes.saturating_add_signed(by),
            std::io::SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

#[test]
fn mono_of_ten_hours_needs_little_memory() {
    let frames = 10 * 3600 * 8_000u64;
    let mut header = wav(1, 1, 8_000, 8, &[]);
    header[4..8].copy_from_slice(&(36 + frames as u32).to_le_bytes());
    header[40..44].copy_from_slice(&(frames as u32).to_le_bytes());
    let long = Long {
        bytes: 44 + frames,
        header,
        at: 0,
    };
    let (mut total, mut out) = (0, Vec::new());
    let counted = allocation_counter::measure(|| {
        let mut mono = Mono::new(Reader::new(long, Limits::default()).unwrap(), 8_000).unwrap();
        let mut more = true;
        while more {
            out.clear();
            more = mono.read(&mut out).unwrap();
            total += out.len() as u64;
        }
    });
    assert_eq!(total, frames);
    assert!(counted.bytes_max < 4 << 20, "{} bytes at once", counted.bytes_max);
}

/// All of it, and how many samples came at once at most.
fn all(sound: &mut dyn Sound) -> Result<(Vec<f32>, usize), Error> {
    let (mut samples, mut part, mut most, mut more) = (Vec::new(), Vec::new(), 0, true);
    while more {
        part.clear();
        more = sound.read(&mut part)?;
        most = most.max(part.len());
        samples.extend_from_slice(&part);
    }
    Ok((samples, most))
}

#[test]
fn recordings_are_the_same_each_time_they_are_read() {
    for name in [
        "mono_44k.mp3",
        "stereo_44k.ogg",
        "mono_music.opus",
        "mono_16k.flac",
        "mono_44k.aac",
        "alaw_8k.wav",
    ] {
        let want = load(Cursor::new(file(name)), 16_000, Limits::default()).unwrap();
        let mut kept = Samples::new(&want);
        let mut read = Recording::from_bytes(file(name), 16_000, Limits::default()).unwrap();
        let sounds: [&mut dyn Sound; 2] = [&mut read, &mut kept];
        for sound in sounds {
            for _ in 0..2 {
                sound.rewind().unwrap();
                assert_eq!(all(sound).unwrap().0, want, "{name}");
            }
            // From its midst.
            sound.rewind().unwrap();
            sound.read(&mut Vec::new()).unwrap();
            sound.rewind().unwrap();
            assert_eq!(all(sound).unwrap().0, want, "{name}");
        }
    }
    let nothing: [f32; 0] = [];
    assert_eq!(all(&mut Samples::new(nothing)).unwrap().0, nothing);
}

#[test]
fn recordings_that_should_be_whole_are() {
    let bytes = wav_s16(1, 8_000, &[1000; 4800]);
    let cut = bytes[..44 + 2 * 2500].to_vec();
    let read = |bytes: Vec<u8>| Recording::from_bytes(bytes, 8_000, Limits::default()).unwrap();
    assert_eq!(all(&mut read(bytes).whole()).unwrap().0.len(), 4800);
    assert_eq!(all(&mut read(cut.clone())).unwrap().0.len(), 2500);
    let mut whole = read(cut).whole();
    for _ in 0..2 {
        whole.rewind().unwrap();
        let error = all(&mut whole).map(|(samples, _)| samples.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("0.60 s and has 0.31 s"), "{error}");
    }
}

#[test]
fn open_of_a_file_that_is_not_there_names_it() {
    let path = std::path::Path::new("/nowhere/speech.wav");
    let error = Reader::open(path, Limits::default()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().starts_with("/nowhere/speech.wav: cannot open"),
        "{error}"
    );
    let folder = Reader::open(std::path::Path::new("/"), Limits::default())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(folder.kind(), ErrorKind::Io);
}
