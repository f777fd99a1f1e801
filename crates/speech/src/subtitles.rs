//! Transcripts as subtitles: SubRip and WebVTT.

use crate::{Segment, Transcript};
use std::fmt::Write as _;

/// What is shown at once: a segment, or one of its words where they were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Cue<'a> {
    /// When it is shown, in seconds.
    pub start_s: f64,
    /// Until when, in seconds.
    pub end_s: f64,
    /// What is said.
    pub text: &'a str,
}

/// The cues of a segment.
#[must_use]
pub fn cues(segment: &Segment) -> Vec<Cue<'_>> {
    if segment.words.is_empty() {
        let (start_s, end_s) = (segment.start_s, segment.end_s);
        let text = segment.text.trim();
        return vec![Cue { start_s, end_s, text }];
    }
    let words = segment.words.iter();
    words
        .map(|word| Cue {
            start_s: word.start_s,
            end_s: word.end_s,
            text: word.text.trim(),
        })
        .collect()
}

impl Cue<'_> {
    /// `00:00:01.500 --> 00:00:02.500`, with `point` before the milliseconds.
    #[must_use]
    pub fn times(&self, point: char) -> String {
        format!("{} --> {}", clock(self.start_s, point), clock(self.end_s, point))
    }

    /// The text without blank lines, which would end a cue.
    fn lines(&self) -> String {
        let lines = self.text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// SubRip: numbered cues.
#[must_use]
pub fn srt(transcript: &Transcript) -> String {
    let mut out = String::new();
    for (number, cue) in (1..).zip(transcript.segments.iter().flat_map(cues)) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{number}\n{}\n{}\n\n", cue.times(','), cue.lines());
    }
    out
}

/// WebVTT.
#[must_use]
pub fn vtt(transcript: &Transcript) -> String {
    let mut out = "WEBVTT\n\n".to_owned();
    for cue in transcript.segments.iter().flat_map(cues) {
        // An arrow in the text would begin a cue.
        let text = cue
            .lines()
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = write!(out, "{}\n{text}\n\n", cue.times('.'));
    }
    out
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
    use crate::Word;

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

        // With words, each is shown alone.
        let word = |start_s, end_s, text: &str| Word {
            text: text.to_owned(),
            start_s,
            end_s,
            probability: 0.5,
        };
        let transcript = Transcript {
            segments: vec![Segment {
                words: vec![word(0.0, 1.0, " A & b"), word(1.5, 2.5, " c.")],
                ..segment(0, 0.0, 2.5, " A & b c.")
            }],
            ..Transcript::default()
        };
        let expected = "1\n00:00:00,000 --> 00:00:01,000\nA & b\n\n2\n00:00:01,500 --> 00:00:02,500\nc.\n\n";
        assert_eq!(srt(&transcript), expected);
        assert!(vtt(&transcript).ends_with("00:00:01.500 --> 00:00:02.500\nc.\n\n"));
    }
}
