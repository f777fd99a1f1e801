//! Writing down what is said in recordings.

mod again;

use super::vad;
use crate::args::{HearArgs, ModelArgs, TranscribeArgs, TranscriptFormat};
use crate::progress::{Unit, bar, spinner};
use crate::{model, output};
use again::Again;
use anyhow::{Context as _, Result, bail};
use cactus_audio::decode::{self, Limits};
use cactus_engine::CancelToken;
use cactus_speech::subtitles::{Cue, cues, srt, vtt};
use cactus_speech::{Progress, SpanOptions, Transcriber, Transcript, Vad};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Transcribes one recording after the other; one that fails is named, and the others are transcribed all the same.
pub(crate) fn run(args: &TranscribeArgs) -> Result<()> {
    let again = Again::new(&args.again, &args.hear.options())?;
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
        if let Err(error) = one(&mut transcriber, vad.as_mut(), again.as_ref(), file, args) {
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

fn one(
    transcriber: &mut Transcriber,
    vad: Option<&mut Vad>,
    again: Option<&Again>,
    file: &Path,
    args: &TranscribeArgs,
) -> Result<()> {
    let named = || format!("`{}` cannot be transcribed", file.display());
    let source = BufReader::new(File::open(file).with_context(named)?);
    let samples = decode::load(source, transcriber.sample_rate_hz(), Limits::default()).with_context(named)?;
    let several = args.files.len() > 1;
    if several && args.format == TranscriptFormat::Text {
        output::line(format!("# {}", file.display()));
    }
    let mut options = args.hear.options();
    let words = options.words;
    // Of whoever is heard again, each word is compared.
    options.words |= again.is_some();
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
        // What may still change is not shown.
        if args.format == TranscriptFormat::Text && again.is_none() {
            let cues = progress.segments.iter().flat_map(cues);
            bar.suspend(|| cues.for_each(|cue| output::line(line(&cue))));
        }
    };
    let cancel = CancelToken::new();
    let told = match &spans {
        Some(spans) => transcriber.transcribe_spans(&samples, spans, &options, &cancel, &mut each),
        None => transcriber.transcribe(&samples, &options, &cancel, &mut each),
    };
    bar.finish_and_clear();
    let mut transcript = told.with_context(named)?;
    let rate_hz = transcriber.sample_rate_hz();
    let reheard = again.map(|again| again.hear(&samples, rate_hz, &transcript, &options));
    let mut reheard = reheard.transpose().with_context(named)?;
    if let Some(reheard) = &mut reheard {
        transcript = std::mem::take(&mut reheard.transcript);
        if !words {
            transcript.segments.iter_mut().for_each(|segment| segment.words.clear());
        }
    }
    match args.format {
        TranscriptFormat::Text => {
            let held = transcript.segments.iter().filter(|_| reheard.is_some());
            held.flat_map(cues).for_each(|cue| output::line(line(&cue)));
        }
        TranscriptFormat::Json => {
            let mut shown = json(file, &transcript);
            if let Some(reheard) = &reheard {
                again::tell(reheard, &mut shown);
            }
            output::json(&shown)?;
        }
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

/// `[00:01:02.340 --> 00:01:05.000] What is said`.
pub(super) fn line(cue: &Cue<'_>) -> String {
    format!("[{}] {}", cue.times('.'), cue.text)
}
