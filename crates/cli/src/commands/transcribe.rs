//! Writing down what is said in recordings.

use super::vad;
use crate::args::{HearArgs, ModelArgs, TranscribeArgs, TranscriptFormat};
use crate::progress::{Unit, bar, spinner};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_audio::decode::{self, Limits};
use cactus_engine::CancelToken;
use cactus_speech::{Progress, Segment, SpanOptions, Transcriber, Transcript, Vad};
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Transcribes one recording after the other; one that fails is named, and the others are transcribed all the same.
pub(crate) fn run(args: &TranscribeArgs) -> Result<()> {
    let bundle = bundle(&args.hear)?;
    let loading = spinner("loading");
    let mut transcriber = Transcriber::load(&bundle, args.hear.threads.map(usize::from))?;
    let vad = args
        .vad
        .as_ref()
        .map(|name| vad::load(name, args.hear.reconvert, args.hear.source.offline));
    loading.finish_and_clear();
    let mut vad = vad.transpose()?;
    if let Some(vad) = &vad
        && vad.sample_rate_hz() != transcriber.sample_rate_hz()
    {
        let (one, other) = (vad.sample_rate_hz(), transcriber.sample_rate_hz());
        bail!(
            "the model of `--vad` takes {one} samples a second, and the one that transcribes {other}; they should take as many"
        );
    }
    let mut failed = 0;
    for file in &args.files {
        if let Err(error) = one(&mut transcriber, vad.as_mut(), file, args) {
            if args.files.len() == 1 {
                return Err(error);
            }
            output::error(&error);
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} recordings could not be transcribed", args.files.len()),
    }
}

pub(super) fn bundle(hear: &HearArgs) -> Result<PathBuf> {
    model::bundle(&ModelArgs {
        model: Some(hear.model.clone()),
        small: false,
        source: hear.source.clone(),
        reconvert: hear.reconvert,
    })
}

fn one(transcriber: &mut Transcriber, vad: Option<&mut Vad>, file: &Path, args: &TranscribeArgs) -> Result<()> {
    let named = || format!("`{}` cannot be transcribed", file.display());
    let source = BufReader::new(File::open(file).with_context(named)?);
    let samples = decode::load(source, transcriber.sample_rate_hz(), Limits::default()).with_context(named)?;
    let several = args.files.len() > 1;
    if several && args.format == TranscriptFormat::Text {
        output::line(format!("# {}", file.display()));
    }
    let options = args.hear.options();
    let seconds = samples.len() as f64 / f64::from(transcriber.sample_rate_hz());
    let found = SpanOptions {
        threshold: args.vad_threshold,
        ..SpanOptions::for_transcription()
    };
    let spans = vad
        .map(|vad| vad.spans(&samples, &found))
        .transpose()
        .with_context(named)?;
    let bar = bar(seconds.ceil() as u64, "transcribing", Unit::Of("seconds"));
    let mut each = |progress: Progress<'_>| {
        bar.set_position(progress.done_s as u64);
        if args.format == TranscriptFormat::Text {
            let lines = progress.segments.iter().flat_map(parts);
            bar.suspend(|| lines.for_each(|part| output::line(part.line())));
        }
    };
    let cancel = CancelToken::new();
    let told = match &spans {
        Some(spans) => transcriber.transcribe_spans(&samples, spans, &options, &cancel, &mut each),
        None => transcriber.transcribe(&samples, &options, &cancel, &mut each),
    };
    bar.finish_and_clear();
    let transcript = told.with_context(named)?;
    match args.format {
        TranscriptFormat::Text => {}
        TranscriptFormat::Json => output::json(&json(file, &transcript))?,
        TranscriptFormat::Srt => output::line(srt(&transcript).trim_end()),
        TranscriptFormat::Vtt => output::line(vtt(&transcript).trim_end()),
    }
    Ok(())
}

fn json(file: &Path, transcript: &Transcript) -> serde_json::Value {
    serde_json::json!({
        "file": file,
        "language": transcript.language,
        "duration_s": transcript.duration_s,
        "text": transcript.text(),
        "segments": transcript.segments,
    })
}

/// What a line or a subtitle shows: a segment, or one of its words where they were asked for.
pub(super) struct Part<'a> {
    start_s: f64,
    end_s: f64,
    text: &'a str,
}

pub(super) fn parts(segment: &Segment) -> Vec<Part<'_>> {
    if segment.words.is_empty() {
        let (start_s, end_s) = (segment.start_s, segment.end_s);
        let text = segment.text.trim();
        return vec![Part { start_s, end_s, text }];
    }
    let words = segment.words.iter();
    words
        .map(|word| Part {
            start_s: word.start_s,
            end_s: word.end_s,
            text: word.text.trim(),
        })
        .collect()
}

impl Part<'_> {
    /// `[00:01:02.340 --> 00:01:05.000] What is said`.
    pub(super) fn line(&self) -> String {
        format!("[{}] {}", self.times('.'), self.text)
    }

    fn times(&self, point: char) -> String {
        format!("{} --> {}", clock(self.start_s, point), clock(self.end_s, point))
    }
}

fn srt(transcript: &Transcript) -> String {
    let mut out = String::new();
    for (number, part) in (1..).zip(transcript.segments.iter().flat_map(parts)) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{number}\n{}\n{}\n\n", part.times(','), part.text);
    }
    out
}

fn vtt(transcript: &Transcript) -> String {
    let mut out = "WEBVTT\n\n".to_owned();
    for part in transcript.segments.iter().flat_map(parts) {
        // An arrow in the text would begin a cue.
        let text = part
            .text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = write!(out, "{}\n{text}\n\n", part.times('.'));
    }
    out
}

pub(super) fn clock(seconds: f64, point: char) -> String {
    let ms = (seconds.max(0.0) * 1000.0).round() as u64;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{h:02}:{m:02}:{s:02}{point}{:03}", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_speech::Word;

    #[test]
    fn subtitles_have_the_form_of_players() {
        let segment = |id, start_s, end_s, text: &str| Segment {
            id,
            start_s,
            end_s,
            text: text.to_owned(),
            tokens: Vec::new(),
            mean_logprob: 0.0,
            no_speech: 0.0,
            temperature: 0.0,
            words: Vec::new(),
        };
        let transcript = Transcript {
            segments: vec![
                segment(0, 0.0, 2.5, " A & b --> c"),
                segment(1, 3661.02, 3662.0, " Next."),
            ],
            ..Transcript::default()
        };
        let expected = "1\n00:00:00,000 --> 00:00:02,500\nA & b --> c\n\n2\n01:01:01,020 --> 01:01:02,000\nNext.\n\n";
        assert_eq!(srt(&transcript), expected);
        let expected =
            "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nA &amp; b --&gt; c\n\n01:01:01.020 --> 01:01:02.000\nNext.\n\n";
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
        let lines: Vec<String> = transcript.segments.iter().flat_map(parts).map(|p| p.line()).collect();
        assert_eq!(lines[1], "[00:00:01.500 --> 00:00:02.500] c.");
    }
}
