//! Opus: the header of RFC 7845 §5.1, and packets through `ropus` at 48 kHz, which computes in integers.

use super::codec::Decoded;
use crate::{Error, ErrorKind};
use ropus::{Channels, DecodeMode, OpusMSDecoder};
use symphonia::core::codecs::audio::AudioCodecParameters;

const RATE_HZ: u32 = 48_000;
/// The longest packet: 120 ms.
const MAX_PACKET_FRAMES: usize = 5760;
/// What RFC 7845 allows of streams in common use: as many as 7.1 has channels.
const MAX_CHANNELS: usize = 8;

pub(super) struct Decoder {
    streams: Streams,
    channels: usize,
    pre_skip: u16,
    /// From integers to samples with the header's gain.
    scale: f32,
    pcm: Vec<i16>,
}

enum Streams {
    One(Box<ropus::Decoder>),
    Several(Box<OpusMSDecoder>),
}

impl Decoder {
    /// The decoder that the header in `parameters` asks for.
    pub(super) fn new(parameters: &AudioCodecParameters) -> Result<Self, Error> {
        let header = parameters.extra_data.as_deref().unwrap_or_default();
        let invalid = |what: String| Error::new(ErrorKind::InvalidHeader, format!("the Opus header {what}"));
        let Some((fixed, mapping)) = header.split_at_checked(19).filter(|(h, _)| h.starts_with(b"OpusHead")) else {
            return Err(invalid(format!(
                "has {} bytes and no `OpusHead`; expected 19 or more",
                header.len()
            )));
        };
        let channels = usize::from(fixed[9]);
        let pre_skip = u16::from_le_bytes([fixed[10], fixed[11]]);
        let gain_q8 = i16::from_le_bytes([fixed[16], fixed[17]]);
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(invalid(format!(
                "states {channels} channels; 1 to {MAX_CHANNELS} are read"
            )));
        }
        let refused = |error: &dyn std::fmt::Debug| invalid(format!("cannot be decoded: {error:?}"));
        let streams = match (fixed[18], channels) {
            (0, 1..=2) => {
                let layout = if channels == 1 {
                    Channels::Mono
                } else {
                    Channels::Stereo
                };
                let decoder = ropus::Decoder::new(RATE_HZ, layout).map_err(|error| refused(&error))?;
                Streams::One(Box::new(decoder))
            }
            (1 | 2 | 255, _) => {
                let Some((&[streams, coupled], map)) = mapping.split_first_chunk::<2>() else {
                    return Err(invalid("ends before its channel mapping".to_owned()));
                };
                let map = map
                    .get(..channels)
                    .ok_or_else(|| invalid("ends in its channel mapping".to_owned()))?;
                let decoder = OpusMSDecoder::new(RATE_HZ as i32, channels as i32, streams.into(), coupled.into(), map)
                    .map_err(|error| refused(&error))?;
                Streams::Several(Box::new(decoder))
            }
            (family, _) => {
                return Err(invalid(format!(
                    "maps {channels} channels by family {family}, which is not read here"
                )));
            }
        };
        Ok(Self {
            streams,
            channels,
            pre_skip,
            // In decibels with eight bits of fraction.
            scale: (libm::pow(10.0, f64::from(gain_q8) / (20.0 * 256.0)) / 32768.0) as f32,
            pcm: vec![0; MAX_PACKET_FRAMES * channels],
        })
    }

    pub(super) fn pre_skip(&self) -> u64 {
        self.pre_skip.into()
    }

    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Decoded {
        out.clear();
        let decoded = match &mut self.streams {
            Streams::One(decoder) => decoder.decode(packet, &mut self.pcm, DecodeMode::Normal).ok(),
            Streams::Several(decoder) => {
                let length = i32::try_from(packet.len()).unwrap_or(0);
                let frames = decoder.decode(Some(packet), length, &mut self.pcm, MAX_PACKET_FRAMES as i32, false);
                frames.ok().and_then(|frames| usize::try_from(frames).ok())
            }
        };
        let Some(pcm) = decoded.and_then(|frames| self.pcm.get(..frames * self.channels)) else {
            return Decoded::Damaged;
        };
        out.extend(pcm.iter().map(|&sample| f32::from(sample) * self.scale));
        Decoded::Frames {
            sample_rate_hz: RATE_HZ,
            channels: self.channels,
        }
    }
}
