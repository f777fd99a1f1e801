//! What becomes of a sound before a model that writes about it hears it, in words.

use cactus_bundle::{FrontEnd, Hearing};

/// The record, a line for each step.
pub(super) fn lines(hearing: &Hearing) -> Vec<String> {
    let hz = hearing.sample_rate_hz();
    let rate = f64::from(hz.max(1));
    let milliseconds = |samples: u32| 1000.0 * f64::from(samples) / rate;
    let all = hearing
        .all_rows
        .map_or_else(String::new, |all| format!(", {all} for every sound"));
    let token = milliseconds(hearing.frame_samples()) * f64::from(hearing.row_frames);
    let frames = match &hearing.front_end {
        FrontEnd::LogMel(mel) => format!(
            "{} bands from {} to {} Hz of {} ms, every {} ms; {hz} Hz, mono",
            mel.mels,
            mel.min_hz,
            mel.max_hz,
            milliseconds(mel.window_samples),
            milliseconds(mel.hop_samples),
        ),
        _ => format!(
            "the samples as they are, {} together; {hz} Hz, mono",
            hearing.frame_samples()
        ),
    };
    vec![
        frames,
        format!(
            "{token} ms a token{all}, at most {} s",
            f64::from(hearing.most_samples) / rate
        ),
        format!(
            "in a prompt: `{}` `{}` `{}`",
            hearing.marks.start, hearing.marks.token, hearing.marks.end
        ),
    ]
}
