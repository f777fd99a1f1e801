//! The record of a model that says something of each position: NeMo's front end, and how its output becomes text.

use super::small;
use crate::{Error, Result};
use cactus_bundle::{
    Ctc, Decoding, Edges, Emphasis, FrontEnd, Local, LogMel, Logarithm, MelScale, Normalization, Pieces,
    SPEECH_VERSION, Spectrum, Speech, Transducer, WindowFunction,
};
use cactus_models::PositionsDef;
use serde_json::Value;

/// The one front end of these models.
const EXTRACTOR: &str = "ParakeetFeatureExtractor";
/// Longest piece, in seconds: the training sees few that are longer, and attention to all of a piece costs its square.
const MOST_S: u32 = 30;
/// Fewest frames: a deviation is of two numbers at least.
const LEAST_FRAMES: u32 = 2;

/// The record; `front_end` is what the source says of it, empty where it says nothing, `context` the most positions.
///
/// # Errors
/// A front end that is another, or does not fit the model.
pub(super) fn record(about: &PositionsDef, context: usize, front_end: &Value) -> Result<Speech> {
    let front_end = log_mel(about, front_end)?;
    let hop = front_end.hop_samples;
    let position_samples = hop.saturating_mul(small(about.frames));
    let blank = small(about.blank);
    let decoding = match &about.transducer {
        None => Decoding::Ctc(Ctc {
            blank,
            position_samples,
        }),
        Some(t) => Decoding::Transducer(Transducer {
            blank,
            durations: t.durations.iter().map(|&d| small(d)).collect(),
            most_symbols: small(t.most_symbols),
            position_samples,
        }),
    };
    let least_samples = hop.saturating_mul(LEAST_FRAMES);
    let most = front_end.sample_rate_hz.saturating_mul(MOST_S);
    let most = most.min(position_samples.saturating_mul(small(context)));
    Ok(Speech {
        version: SPEECH_VERSION,
        front_end: FrontEnd::LogMel(front_end),
        window: None,
        pieces: Some(Pieces {
            least_samples,
            most_samples: most.max(least_samples),
        }),
        local: about.local.map(|local| Local {
            context: small(local.context),
            layers: small(local.layers),
            late: small(local.late),
            edge_frames: small(local.edge_frames),
        }),
        streaming: None,
        decoding,
    })
}

/// NeMo's spectrogram, with what the source says of it; what it leaves out is as in `transformers`.
fn log_mel(about: &PositionsDef, said: &Value) -> Result<LogMel> {
    let field = |key: &str| said.get(key).filter(|v| !v.is_null());
    let unlike = |key: &str, expected: &str, found: &Value| {
        Error::malformed(format!("the front end's `{key}` should be {expected}, found {found}"))
    };
    let size = |key: &str, default: u32| match field(key) {
        None => Ok(default),
        Some(v) => {
            let n = v.as_u64().and_then(|n| u32::try_from(n).ok());
            n.ok_or_else(|| unlike(key, "a size", v))
        }
    };
    match field("feature_extractor_type") {
        Some(found) if found != EXTRACTOR => {
            let what = format!("the front end {found} is not supported for this model; expected `{EXTRACTOR}`");
            return Err(Error::unsupported(what));
        }
        _ => {}
    }
    let mels = size("feature_size", small(about.mels))?;
    if mels != small(about.mels) {
        let what = format!("the front end makes {mels} bands, and the model takes {}", about.mels);
        return Err(Error::malformed(what));
    }
    let preemphasis = match (said.get("preemphasis"), field("preemphasis")) {
        (None, _) => 0.97,
        // A null asks for none.
        (Some(_), None) => 0.0,
        (_, Some(v)) => v.as_f64().ok_or_else(|| unlike("preemphasis", "a number", v))? as f32,
    };
    let sample_rate_hz = size("sampling_rate", 16_000)?;
    Ok(LogMel {
        sample_rate_hz,
        window: WindowFunction::HannSymmetric,
        window_samples: size("win_length", 400)?,
        fft_samples: size("n_fft", 512)?,
        hop_samples: size("hop_length", 160)?,
        edges: Edges::Zeros,
        drop_last_frame: true,
        preemphasis,
        emphasis: Emphasis::Sound,
        spectrum: Spectrum::Power,
        mels,
        mel_scale: MelScale::Slaney,
        min_hz: 0.0,
        max_hz: sample_rate_hz as f32 / 2.0,
        log: Logarithm::LnGuard {
            guard: 1.0 / (1u32 << 24) as f32,
        },
        normalization: Normalization::EachBand { epsilon: 1e-5 },
    })
}
