//! Sound as callers have it.

use crate::failure::Ours as _;
use cactus_audio::decode::{Limits, Recording};
use cactus_audio::{Samples, resample};
use cactus_engine::Error;
use std::path::Path;

/// Samples a second of [`Sound::Pcm`].
pub const PCM_HZ: u32 = 16_000;

/// A recording.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Sound<'a> {
    /// A WAV, MP3, FLAC, Ogg or M4A file, which is read while it is listened to.
    File(&'a Path),
    /// Samples of 16 bits, one channel, [`PCM_HZ`] a second.
    Pcm(&'a [i16]),
    /// Samples from -1 to 1, one channel.
    Samples {
        /// The samples.
        samples: &'a [f32],
        /// How many of them are a second.
        rate_hz: u32,
    },
}

impl<'a> Sound<'a> {
    /// As a model takes it that hears so many samples a second.
    ///
    /// # Errors
    /// A file that cannot be opened; a number of samples a second that cannot be.
    pub(crate) fn open(self, rate_hz: u32) -> Result<Box<dyn cactus_audio::Sound + 'a>, Error> {
        let wrong = |e: cactus_audio::Error| self.failure(e.into());
        Ok(match self {
            Sound::File(path) => Box::new(Recording::open(path, rate_hz, Limits::default()).map_err(wrong)?),
            Sound::Pcm(pcm) => Box::new(at(floats(pcm), PCM_HZ, rate_hz).map_err(wrong)?),
            Sound::Samples {
                samples,
                rate_hz: found,
            } if found == rate_hz => Box::new(Samples::new(samples)),
            Sound::Samples {
                samples,
                rate_hz: found,
            } => Box::new(at(samples.to_vec(), found, rate_hz).map_err(wrong)?),
        })
    }

    /// All of its samples, so many a second.
    ///
    /// # Errors
    /// As [`Sound::open`]; a file that cannot be read or decoded.
    #[cfg(feature = "cloud")]
    pub(crate) fn samples(self, rate_hz: u32) -> Result<Vec<f32>, Error> {
        let mut opened = self.open(rate_hz)?;
        let mut samples = Vec::new();
        while opened.read(&mut samples).map_err(|e| self.failure(e.into()))? {}
        Ok(samples)
    }

    /// What went wrong with it, and in which file.
    pub(crate) fn failure(self, error: cactus_speech::Error) -> Error {
        let error = error.ours();
        match self {
            Sound::File(path) => {
                let (kind, said, path) = (error.kind(), error.to_string(), path.display().to_string());
                match said.contains(&path) {
                    true => error,
                    false => Error::above(kind, format!("`{path}`: {said}")),
                }
            }
            _ => error,
        }
    }
}

/// Samples with another rate.
fn at(samples: Vec<f32>, found: u32, wanted: u32) -> Result<Samples<Vec<f32>>, cactus_audio::Error> {
    Ok(Samples::new(match found == wanted {
        true => samples,
        false => resample(&samples, found, wanted)?,
    }))
}

/// Samples of 16 bits as numbers from -1 to 1.
pub(crate) fn floats(pcm: &[i16]) -> Vec<f32> {
    pcm.iter().map(|&sample| f32::from(sample) / 32768.0).collect()
}
