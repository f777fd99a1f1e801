//! Packets to samples, by whichever library decodes them.

use super::opus;
use crate::{Error, ErrorKind};
use std::sync::OnceLock;
use symphonia::core::codecs::audio::well_known::*;
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::CodecRegistry;
use symphonia::core::packet::Packet;

/// The decoder of one track.
pub(super) enum Codec {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(Box<opus::Decoder>),
}

/// What became of a packet.
pub(super) enum Decoded {
    /// Frames were appended, or none because all were trimmed.
    Frames { sample_rate_hz: u32, channels: usize },
    /// The packet was fine and holds no frames.
    Nothing,
    /// The packet could not be decoded.
    Damaged,
}

impl Codec {
    pub(super) fn new(parameters: &AudioCodecParameters) -> Result<Self, Error> {
        if parameters.codec == CODEC_ID_OPUS {
            return opus::Decoder::new(parameters).map(|decoder| Self::Opus(Box::new(decoder)));
        }
        static REGISTRY: OnceLock<CodecRegistry> = OnceLock::new();
        let registry = REGISTRY.get_or_init(|| {
            let mut registry = CodecRegistry::new();
            symphonia::default::register_enabled_codecs(&mut registry);
            registry
        });
        registry
            .make_audio_decoder(parameters, &AudioDecoderOptions::default().gapless(true))
            .map(Self::Symphonia)
            .map_err(|error| {
                Error::new(
                    ErrorKind::UnsupportedCodec,
                    format!(
                        "the audio is {}, which is not decoded here ({error})",
                        name(parameters.codec)
                    ),
                )
            })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Symphonia(decoder) => decoder.codec_info().short_name,
            Self::Opus(_) => "opus",
        }
    }

    /// Frames at the beginning that are no audio, where the codec itself says so.
    pub(super) fn pre_skip(&self) -> Option<u64> {
        match self {
            Self::Symphonia(_) => None,
            Self::Opus(decoder) => Some(decoder.pre_skip()),
        }
    }

    /// Decodes `packet` into `out`, which is overwritten.
    pub(super) fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Decoded {
        match self {
            Self::Symphonia(decoder) => match decoder.decode(packet) {
                Ok(buffer) => {
                    let (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count());
                    if buffer.frames() == 0 {
                        out.clear();
                        return Decoded::Nothing;
                    }
                    buffer.copy_to_vec_interleaved(out);
                    Decoded::Frames {
                        sample_rate_hz: rate,
                        channels,
                    }
                }
                Err(_) => {
                    out.clear();
                    Decoded::Damaged
                }
            },
            Self::Opus(decoder) => decoder.decode(&packet.data, out),
        }
    }
}

/// What people call a codec that is not decoded here.
fn name(codec: AudioCodecId) -> String {
    let name = match codec {
        CODEC_ID_AC3 => "AC-3",
        CODEC_ID_EAC3 => "E-AC-3",
        CODEC_ID_AC4 => "AC-4",
        CODEC_ID_DCA => "DTS",
        CODEC_ID_WMA => "WMA",
        CODEC_ID_SPEEX => "Speex",
        CODEC_ID_WAVPACK => "WavPack",
        CODEC_ID_MP1 => "MPEG layer I",
        CODEC_ID_MP2 => "MPEG layer II",
        CODEC_ID_TRUEHD => "TrueHD",
        CODEC_ID_ADPCM_MS | CODEC_ID_ADPCM_IMA_WAV | CODEC_ID_ADPCM_IMA_QT => "ADPCM",
        CODEC_ID_ADPCM_G722 => "G.722",
        CODEC_ID_AAC => "AAC of a kind other than LC",
        _ => return format!("in the codec {codec}"),
    };
    name.to_owned()
}
