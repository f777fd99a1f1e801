//! The record of how sounds become the input of a model that writes about them (`hearing.json`), from what its folder says of its feature extractor.
//!
//! Every step that the folder asks for is done or refused by its name, as for pictures.

use crate::fields::Fields;
use crate::{Error, Result};
use cactus_bundle::{
    Chunks, Edges, Emphasis, FrontEnd, HEARING_VERSION, Hearing, LogMel, Logarithm, MelScale, Normalization,
    SoundMarks, Spectrum, WindowFunction,
};
use cactus_models::{HeardDef, ModelDef};
use serde_json::Value;

/// Whose fields they are.
const OF: &str = "feature extractor";
/// The kind of feature extractors that take samples as they are.
const OF_SAMPLES: &str = "Gemma4UnifiedAudioFeatureExtractor";
/// The longest sound that it takes, in seconds.
const MOST_S: u32 = 30;
/// What the length of a sound is made a multiple of, where windows lie within it: transformers has it in no field.
const WHOLE_SAMPLES: u32 = 128;

/// What an extractor of spectrograms does where the folder is silent.
struct Usual {
    extractor: &'static str,
    window_ms: f64,
    twice: bool,
    edges: Edges,
    preemphasis: f64,
    emphasis: Emphasis,
    hz: [f64; 2],
    least: f64,
}

/// Windows around each step, filled up with zeros.
const CENTERED: Usual = Usual {
    extractor: "Gemma4AudioFeatureExtractor",
    window_ms: 20.0,
    twice: false,
    edges: Edges::Zeros,
    preemphasis: 0.0,
    emphasis: Emphasis::Sound,
    hz: [0.0, 8000.0],
    least: 1e-3,
};
/// Windows within the sound, each emphasized alone.
const WITHIN: Usual = Usual {
    extractor: "Gemma3nAudioFeatureExtractor",
    window_ms: 32.0,
    twice: true,
    edges: Edges::None,
    preemphasis: 0.97,
    emphasis: Emphasis::Window,
    hz: [125.0, 7600.0],
    least: 1e-5,
};

/// The record of the model `def`, whose folder has `said` this of sounds; none where it hears nothing.
///
/// # Errors
/// What is not supported, naming the field.
pub(crate) fn record(def: &ModelDef, said: &Value) -> Result<Option<Hearing>> {
    let Some(hears) = &def.hears else { return Ok(None) };
    let fields = said.as_object().cloned().unwrap_or_default();
    let fields = Fields { of: OF, map: &fields };
    let front_end = match hears.heard {
        HeardDef::Spectrogram(bands) => FrontEnd::LogMel(log_mel(bands, &fields, &CENTERED)?),
        HeardDef::Windows(bands) => FrontEnd::LogMel(log_mel(bands, &fields, &WITHIN)?),
        HeardDef::Samples(samples) => FrontEnd::Chunks(chunks(samples, &fields)?),
    };
    let mut hearing = Hearing {
        version: HEARING_VERSION,
        most_samples: 0,
        whole_samples: match hears.heard {
            HeardDef::Windows(_) => WHOLE_SAMPLES,
            _ => 1,
        },
        front_end,
        block_frames: small(hears.block_frames),
        row_frames: small(hears.row_frames),
        all_rows: hears.all_rows.map(small),
        marks: SoundMarks {
            token: hears.marks.token.to_owned(),
            start: hears.marks.start.to_owned(),
            end: hears.marks.end.to_owned(),
        },
    };
    hearing.most_samples = hearing.sample_rate_hz().saturating_mul(MOST_S).min(most(&hearing));
    Ok(Some(hearing))
}

/// Most samples of a sound that has no more than the rows of every sound, where there are as many.
fn most(hearing: &Hearing) -> u32 {
    let (Some(all), FrontEnd::LogMel(mel)) = (hearing.all_rows, &hearing.front_end) else {
        return u32::MAX;
    };
    let frames = all.saturating_mul(hearing.row_frames);
    let samples = frames
        .saturating_mul(mel.hop_samples)
        .saturating_add(mel.window_samples);
    samples - samples % hearing.whole_samples.max(1)
}

/// Refuses other kinds of feature extractors.
fn known(fields: &Fields<'_>, extractor: &str) -> Result<()> {
    match fields.get("feature_extractor_type") {
        Some(found) if found != extractor => {
            let what = format!("the feature extractor {found} is not supported for this model; expected `{extractor}`");
            Err(Error::unsupported(what))
        }
        _ => Ok(()),
    }
}

/// Stretches of so many samples.
fn chunks(samples: usize, fields: &Fields<'_>) -> Result<Chunks> {
    known(fields, OF_SAMPLES)?;
    for key in ["feature_size", "audio_samples_per_token"] {
        let found = fields.size(key, small(samples))?;
        if found != small(samples) {
            return Err(fields.refuse(key, &format!("{samples}, as the model takes; found {found}")));
        }
    }
    if fields.number("padding_value", 0.0)? != 0.0 {
        return Err(fields.refuse("padding_value", "0"));
    }
    Ok(Chunks {
        sample_rate_hz: fields.size("sampling_rate", 16_000)?,
        chunk_samples: small(samples),
        context_samples: 0,
    })
}

/// The spectrogram, with what the source says of it; what it leaves out is as in transformers.
fn log_mel(bands: usize, fields: &Fields<'_>, usual: &Usual) -> Result<LogMel> {
    known(fields, usual.extractor)?;
    for key in ["per_bin_mean", "per_bin_stddev"] {
        if fields.get(key).is_some() {
            return Err(fields.refuse(key, "null: bands that are moved or scaled are not supported"));
        }
    }
    let preemphasis = fields.number("preemphasis", usual.preemphasis)?;
    let expected = match usual.emphasis {
        Emphasis::Window => preemphasis.clamp(0.0, 1.0),
        _ => usual.preemphasis,
    };
    for (key, usual) in [("preemphasis", expected), ("dither", 0.0), ("input_scale_factor", 1.0)] {
        let found = fields.number(key, usual)?;
        if found != usual {
            return Err(fields.refuse(key, &format!("{usual}; found {found}")));
        }
    }
    let of_windows = usual.emphasis == Emphasis::Window && preemphasis > 0.0;
    if of_windows && !fields.flag("preemphasis_htk_flavor", true)? {
        return Err(fields.refuse("preemphasis_htk_flavor", "true"));
    }
    let sample_rate_hz = fields.size("sampling_rate", 16_000)?;
    let milliseconds = |key: &str, usual: f64| -> Result<u32> {
        let samples = (f64::from(sample_rate_hz) * fields.number(key, usual)? / 1000.0).round();
        Ok(samples.clamp(0.0, f64::from(u32::MAX)) as u32)
    };
    let window_samples = fields.size("frame_length", milliseconds("frame_length_ms", usual.window_ms)?)?;
    let hop_samples = fields.size("hop_length", milliseconds("hop_length_ms", 10.0)?)?;
    let twice = u32::from(fields.flag("fft_overdrive", usual.twice)?);
    let power = window_samples.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
    let fft_samples = fields.size("fft_length", power.saturating_mul(1 + twice))?;
    let mels = fields.size("feature_size", small(bands))?;
    if mels != small(bands) {
        let what = format!("{bands}, as the model takes; found {mels}");
        return Err(fields.refuse("feature_size", &what));
    }
    let least = fields.number("mel_floor", usual.least)? as f32;
    Ok(LogMel {
        sample_rate_hz,
        window: WindowFunction::HannPeriodic,
        window_samples,
        fft_samples,
        hop_samples,
        edges: usual.edges,
        drop_last_frame: true,
        preemphasis: preemphasis as f32,
        emphasis: usual.emphasis,
        spectrum: Spectrum::Magnitude,
        mels,
        mel_scale: MelScale::Htk,
        min_hz: fields.number("min_frequency", usual.hz[0])? as f32,
        max_hz: fields.number("max_frequency", usual.hz[1])? as f32,
        log: match usual.edges {
            Edges::None => Logarithm::LnFloor { floor: least },
            _ => Logarithm::LnGuard { guard: least },
        },
        normalization: Normalization::None {},
    })
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(fields: &Value) -> Result<LogMel> {
        let map = fields.as_object().unwrap();
        log_mel(128, &Fields { of: OF, map }, &CENTERED)
    }

    #[test]
    fn samples_that_the_model_does_not_take_are_refused_by_name() {
        let of = |fields: Value| {
            let map = fields.as_object().unwrap();
            chunks(640, &Fields { of: OF, map })
        };
        let usual = of(json!({})).unwrap();
        assert_eq!(
            (usual.sample_rate_hz, usual.chunk_samples, usual.context_samples),
            (16_000, 640, 0)
        );
        for (fields, field) in [
            (json!({"feature_size": 320}), "feature_size"),
            (json!({"audio_samples_per_token": 320}), "audio_samples_per_token"),
            (json!({"padding_value": 1.0}), "padding_value"),
            (
                json!({"feature_extractor_type": "Gemma4AudioFeatureExtractor"}),
                "Unified",
            ),
        ] {
            let error = of(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn fields_are_those_of_transformers() {
        let usual = of(&json!({})).unwrap();
        assert_eq!(
            (usual.window_samples, usual.fft_samples, usual.hop_samples, usual.mels),
            (320, 512, 160, 128)
        );
        let other =
            of(&json!({"frame_length": 400, "fft_overdrive": true, "hop_length_ms": 5.0, "mel_floor": 0.01})).unwrap();
        assert_eq!(
            (other.window_samples, other.fft_samples, other.hop_samples),
            (400, 1024, 80)
        );
        assert_eq!(other.log, Logarithm::LnGuard { guard: 0.01 });
    }

    #[test]
    fn windows_within_the_sound_are_those_of_transformers() {
        let of = |fields: Value| {
            let map = fields.as_object().unwrap();
            log_mel(128, &Fields { of: OF, map }, &WITHIN)
        };
        let usual = of(json!({})).unwrap();
        assert_eq!(
            (usual.window_samples, usual.fft_samples, usual.hop_samples, usual.mels),
            (512, 1024, 160, 128)
        );
        assert_eq!((usual.edges, usual.emphasis), (Edges::None, Emphasis::Window));
        assert_eq!(usual.log, Logarithm::LnFloor { floor: 1e-5 });
        assert_eq!(of(json!({"preemphasis": 0.5})).unwrap().preemphasis, 0.5);
        for (fields, field) in [
            (json!({"preemphasis": 1.5}), "preemphasis"),
            (json!({"preemphasis_htk_flavor": false}), "preemphasis_htk_flavor"),
            (
                json!({"feature_extractor_type": "Gemma4AudioFeatureExtractor"}),
                "Gemma3n",
            ),
        ] {
            let error = of(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn steps_that_are_not_done_are_refused_by_name() {
        for (fields, field) in [
            (json!({"feature_size": 80}), "feature_size"),
            (json!({"preemphasis": 0.97}), "preemphasis"),
            (json!({"dither": 1e-4}), "dither"),
            (json!({"per_bin_mean": [0.0]}), "per_bin_mean"),
            (json!({"input_scale_factor": "2"}), "input_scale_factor"),
            (json!({"hop_length": -1}), "hop_length"),
            (
                json!({"feature_extractor_type": "WhisperFeatureExtractor"}),
                "Gemma4AudioFeatureExtractor",
            ),
        ] {
            let error = of(&fields).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
