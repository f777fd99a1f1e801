//! From the record in a bundle to the recipe of `audio`.

use crate::{Error, Result};
use cactus_audio::Frontend;
use cactus_audio::features::{
    Edge, Filterbank, Log, MelNorm, MelScale, Normalization, Recipe, Scope, Spectrum, WindowShape,
};
use cactus_bundle::{self as bundle, FrontEnd, LogMel};

/// The front end that a bundle asks for. What is normalized by the largest value is so over the whole recording.
pub(crate) fn frontend(record: &FrontEnd, windowed: bool) -> Result<Frontend> {
    match record {
        FrontEnd::LogMel(mel) => Ok(Frontend::new(recipe(mel, windowed)?)?),
        other => Err(unknown("front end", other)),
    }
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
        other => return Err(unknown("edges of sound", &other)),
    };
    let window = match mel.window {
        bundle::WindowFunction::HannPeriodic => WindowShape::HannPeriodic,
        bundle::WindowFunction::HannSymmetric => WindowShape::HannSymmetric,
        other => return Err(unknown("window function", &other)),
    };
    let (scale, norm) = match mel.mel_scale {
        bundle::MelScale::Slaney => (MelScale::Slaney, MelNorm::Slaney),
        other => return Err(unknown("mel scale", &other)),
    };
    let log = match mel.log {
        bundle::Logarithm::Log10Floor { floor } => Log::Log10Floor { floor: exact(floor) },
        bundle::Logarithm::LnGuard { guard } => Log::LnGuard { guard: exact(guard) },
        other => return Err(unknown("logarithm", &other)),
    };
    let normalization = match mel.normalization {
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
        left_edge: edge,
        // Silence follows a recording that is cut into windows.
        right_edge: if windowed { Edge::Zeros } else { edge },
        window,
        window_samples: mel.window_samples as usize,
        fft_samples: mel.fft_samples as usize,
        hop_samples: mel.hop_samples as usize,
        spectrum: Spectrum::Power,
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
