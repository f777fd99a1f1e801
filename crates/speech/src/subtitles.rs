//! Transcripts as subtitles: SubRip and WebVTT.

use crate::{Segment, Transcript};
use std::fmt::Write as _;

/// SubRip: numbered cues.
#[must_use]
pub fn srt(transcript: &Transcript) -> String {
    let mut out = String::new();
    for segment in &transcript.segments {
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "{}\n{}\n{}\n\n",
            segment.id + 1,
            times(segment, ','),
            text(segment)
        );
    }
    out
}

/// WebVTT.
#[must_use]
pub fn vtt(transcript: &Transcript) -> String {
    let mut out = "WEBVTT\n\n".to_owned();
    for segment in &transcript.segments {
        // An arrow in the text would begin a cue.
        let text = text(segment)
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = write!(out, "{}\n{text}\n\n", times(segment, '.'));
    }
    out
}

/// The text of a cue: a blank line would end it.
fn text(segment: &Segment) -> String {
    let lines = segment.text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

fn times(segment: &Segment, point: char) -> String {
    format!("{} --> {}", clock(segment.start_s, point), clock(segment.end_s, point))
}

/// `01:02:03.450`, with `point` before the milliseconds.
#[must_use]
pub fn clock(seconds: f64, point: char) -> String {
    let ms = (seconds.max(0.0) * 1000.0).round() as u64;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{h:02}:{m:02}:{s:02}{point}{:03}", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_have_the_form_of_players() {
        let segment = |id, start_s, end_s, text: &str| Segment {
            id,
            start_s,
            end_s,
            text: text.to_owned(),
            ..Segment::default()
        };
        let transcript = Transcript {
            segments: vec![
                segment(0, 0.0, 2.5, " A & b --> c"),
                segment(1, 3661.02, 3662.0, " Next.\n\n7\n"),
            ],
            ..Transcript::default()
        };
        let expected =
            "1\n00:00:00,000 --> 00:00:02,500\nA & b --> c\n\n2\n01:01:01,020 --> 01:01:02,000\nNext.\n7\n\n";
        assert_eq!(srt(&transcript), expected);
        let expected = "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nA &amp; b --&gt; c\n\n01:01:01.020 --> 01:01:02.000\nNext.\n7\n\n";
        assert_eq!(vtt(&transcript), expected);
    }
}
