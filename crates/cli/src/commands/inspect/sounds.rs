//! What becomes of a sound before a model that writes about it hears it, in words.

use cactus_bundle::Hearing;

/// The record, a line for each step.
pub(super) fn lines(hearing: &Hearing) -> Vec<String> {
    let mel = &hearing.front_end;
    let rate = f64::from(mel.sample_rate_hz.max(1));
    let milliseconds = |samples: u32| 1000.0 * f64::from(samples) / rate;
    let token = milliseconds(mel.hop_samples) * f64::from(hearing.row_frames);
    vec![
        format!(
            "{} bands from {} to {} Hz of {} ms, every {} ms; {} Hz, mono",
            mel.mels,
            mel.min_hz,
            mel.max_hz,
            milliseconds(mel.window_samples),
            milliseconds(mel.hop_samples),
            mel.sample_rate_hz,
        ),
        format!(
            "{token} ms a token, at most {} s",
            f64::from(hearing.most_samples) / rate
        ),
        format!(
            "in a prompt: `{}` `{}` `{}`",
            hearing.marks.start, hearing.marks.token, hearing.marks.end
        ),
    ]
}
