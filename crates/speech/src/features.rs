//! From sound to what an encoder reads: by the recipe of `audio` that the record in a bundle asks for, or as it is.

use crate::heard::{Heard, Mel, Overlap, View};
use crate::{Error, Result};
use cactus_audio::features::{
    Edge, Emphasis, Filterbank, Log, MelNorm, MelScale, Normalization, Recipe, Scope, Spectrum, WindowShape,
};
use cactus_audio::{Frontend, Sound};
use cactus_bundle::{self as bundle, Decoding, FrontEnd, LogMel, Samples, Speech, Window};
use cactus_engine::CancelToken;

/// How a model hears. Its unit of time is a frame: one step of the front end, or a sample where there is none.
#[derive(Debug)]
pub(crate) enum Ear {
    /// Windows of one length, as a spectrogram.
    Mel(Box<Frontend>, Window),
    /// Pieces of any length: as they are, or as a spectrogram of each; and how those overlap that end where somebody speaks, where text
    /// can go on there.
    Samples(Samples, Option<Box<Frontend>>, Option<Overlap>),
}

/// Seconds of a recording that are kept between its first reading and its hearing. Longer ones are read twice.
const KEPT_S: usize = 60;

impl Ear {
    /// What a bundle asks for. What is normalized by the largest value is so over the whole recording.
    pub(crate) fn new(speech: &Speech) -> Result<Ear> {
        let overlap = |samples: &Samples| match &speech.decoding {
            Decoding::Ctc(ctc) => Overlap::new(samples, ctc.position_samples as usize),
            Decoding::Transducer(transducer) => Overlap::new(samples, transducer.position_samples as usize),
            _ => None,
        };
        let frontend = |mel, windowed| Ok::<_, Error>(Box::new(Frontend::new(recipe(mel, windowed)?)?));
        match (&speech.front_end, speech.window, speech.pieces) {
            (FrontEnd::LogMel(mel), Some(window), _) => Ok(Ear::Mel(frontend(mel, true)?, window)),
            (FrontEnd::LogMel(mel), None, Some(pieces)) => {
                let samples = Samples {
                    sample_rate_hz: mel.sample_rate_hz,
                    least_samples: pieces.least_samples,
                    most_samples: pieces.most_samples,
                    position_samples: None,
                };
                Ok(Ear::Samples(samples, Some(frontend(mel, false)?), overlap(&samples)))
            }
            (FrontEnd::Samples(samples), ..) => Ok(Ear::Samples(*samples, None, overlap(samples))),
            (other, ..) => Err(unknown("front end", other)),
        }
    }

    pub(crate) fn sample_rate_hz(&self) -> u32 {
        match self {
            Ear::Mel(frontend, _) => frontend.recipe().sample_rate_hz,
            Ear::Samples(samples, ..) => samples.sample_rate_hz,
        }
    }

    /// Samples of a frame.
    pub(crate) fn frame_samples(&self) -> usize {
        match self {
            Ear::Mel(frontend, _) => frontend.recipe().hop_samples,
            Ear::Samples(..) => 1,
        }
    }

    /// Most frames that are heard at once.
    pub(crate) fn most_frames(&self) -> usize {
        match self {
            Ear::Mel(_, window) => window.frames as usize,
            Ear::Samples(samples, ..) => samples.most_samples as usize,
        }
    }

    /// Seconds of so many frames.
    pub(crate) fn seconds(&self, frames: usize) -> f64 {
        let hop_s = self.frame_samples() as f64 / f64::from(self.sample_rate_hz());
        frames as f64 * hop_s
    }

    /// Frames of so many seconds.
    pub(crate) fn frames(&self, seconds: f64) -> usize {
        (seconds * f64::from(self.sample_rate_hz())) as usize / self.frame_samples()
    }

    /// Frames that become one position of the encoder, where that is known and every position has as many.
    pub(crate) fn position_frames(&self) -> Option<usize> {
        match self {
            Ear::Mel(_, window) => Some((window.frames / window.positions.max(1)).max(1) as usize),
            Ear::Samples(samples, ..) => samples.position_samples.map(|n| n as usize),
        }
    }

    /// How pieces overlap that end where somebody speaks.
    pub(crate) fn overlap(&self) -> Option<Overlap> {
        match self {
            Ear::Samples(_, _, overlap) => *overlap,
            Ear::Mel(..) => None,
        }
    }

    /// The front end of pieces, where there is one.
    pub(crate) fn frontend(&self) -> Option<&Frontend> {
        match self {
            Ear::Samples(_, frontend, _) => frontend.as_deref(),
            Ear::Mel(..) => None,
        }
    }

    /// Reads `sound` once, from its beginning.
    ///
    /// # Errors
    /// As [`Heard::new`].
    pub(crate) fn hear<'a>(&self, sound: &'a mut dyn Sound, cancel: &'a CancelToken) -> Result<Heard<'a>> {
        self.hear_levelled(sound, false, cancel)
    }

    /// As [`Ear::hear`]; `levelled` where bands may be normalized over all of it.
    ///
    /// # Errors
    /// As [`Heard::new`].
    pub(crate) fn hear_levelled<'a>(
        &self,
        sound: &'a mut dyn Sound,
        levelled: bool,
        cancel: &'a CancelToken,
    ) -> Result<Heard<'a>> {
        let view = match self {
            Ear::Mel(frontend, window) => View::Mel(Box::new(Mel::new(frontend, *window))),
            Ear::Samples(about, frontend, overlap) => View::Samples(*about, frontend.as_deref().cloned(), *overlap),
        };
        let most_kept = KEPT_S * self.sample_rate_hz() as usize;
        // What is heard at once is there as a whole.
        let at_once = self.most_frames() * self.frame_samples();
        let levelled = self.frontend().filter(|_| levelled);
        Heard::new(sound, view, levelled, most_kept.max(at_once), cancel)
    }
}

/// The front end that a record asks for, of sounds that silence follows.
///
/// # Errors
/// What this program does not know.
pub fn front_end(mel: &LogMel) -> Result<Frontend> {
    Ok(Frontend::new(recipe(mel, true)?)?)
}

pub(crate) fn unknown(what: &str, found: &dyn std::fmt::Debug) -> Error {
    Error::Model(format!(
        "this program does not know the {what} of the model: {found:?}; a newer one may"
    ))
}

fn recipe(mel: &LogMel, windowed: bool) -> Result<Recipe> {
    let edge = match mel.edges {
        bundle::Edges::Reflect => Edge::Reflect,
        bundle::Edges::Zeros => Edge::Zeros,
        bundle::Edges::None => Edge::None,
        other => return Err(unknown("edges of sound", &other)),
    };
    let window = match mel.window {
        bundle::WindowFunction::HannPeriodic => WindowShape::HannPeriodic,
        bundle::WindowFunction::HannSymmetric => WindowShape::HannSymmetric,
        other => return Err(unknown("window function", &other)),
    };
    let (scale, norm) = match mel.mel_scale {
        bundle::MelScale::Slaney => (MelScale::Slaney, MelNorm::Slaney),
        bundle::MelScale::Htk => (MelScale::Htk, MelNorm::None),
        other => return Err(unknown("mel scale", &other)),
    };
    let log = match mel.log {
        bundle::Logarithm::Log10Floor { floor } => Log::Log10Floor { floor: exact(floor) },
        bundle::Logarithm::LnGuard { guard } => Log::LnGuard { guard: exact(guard) },
        bundle::Logarithm::LnFloor { floor } => Log::LnFloor { floor: exact(floor) },
        other => return Err(unknown("logarithm", &other)),
    };
    let emphasis = match mel.emphasis {
        bundle::Emphasis::Sound => Emphasis::Recording,
        bundle::Emphasis::Window => Emphasis::Window,
        other => return Err(unknown("emphasis", &other)),
    };
    let spectrum = match mel.spectrum {
        bundle::Spectrum::Power => Spectrum::Power,
        bundle::Spectrum::Magnitude => Spectrum::Magnitude,
        other => return Err(unknown("spectrum", &other)),
    };
    let normalization = match mel.normalization {
        bundle::Normalization::None {} => Normalization::None,
        bundle::Normalization::BelowLargest { range, add, divide } => Normalization::Peak {
            range: exact(range),
            add: exact(add),
            divide: exact(divide),
            scope: Scope::Input,
        },
        bundle::Normalization::EachBand { epsilon } => Normalization::PerBin {
            epsilon: exact(epsilon),
        },
        other => return Err(unknown("normalization", &other)),
    };
    if !mel.drop_last_frame {
        return Err(Error::Model(
            "this program leaves out the frame behind the last sample, which the model's front end keeps".into(),
        ));
    }
    Ok(Recipe {
        sample_rate_hz: mel.sample_rate_hz,
        preemphasis: exact(mel.preemphasis),
        emphasis,
        left_edge: edge,
        // Silence follows a recording that is cut into windows.
        right_edge: if windowed && edge != Edge::None {
            Edge::Zeros
        } else {
            edge
        },
        window,
        window_samples: mel.window_samples as usize,
        fft_samples: mel.fft_samples as usize,
        hop_samples: mel.hop_samples as usize,
        spectrum,
        filters: Filterbank {
            bins: mel.mels as usize,
            low_hz: exact(mel.min_hz),
            high_hz: exact(mel.max_hz),
            scale,
            norm,
        },
        log,
        normalization,
        padding_frames: 0,
    })
}

/// The decimal number that was written down: 1e-10, and not the nearest number of 24 bits.
fn exact(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
