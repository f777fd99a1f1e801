//! Where somebody speaks in recordings.

use crate::args::{ModelArgs, SourceArgs, SpansFormat, VadArgs};
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_audio::Sound as _;
use cactus_audio::decode::{Limits, Recording};
use cactus_passes::Bits;
use cactus_speech::subtitles::clock;
use cactus_speech::{Span, SpanOptions, SpeechSpans, Vad};
use std::path::Path;

/// How to get a model that finds speech.
const HOW_TO_GET: &str = "Silero VAD lies in a Python package and runs without Python:\n  \
    pip download silero-vad==6.2.3 --no-deps\n  \
    unzip -j silero_vad-6.2.3-*.whl silero_vad/data/silero_vad_16k.safetensors\n  \
    cactus convert silero_vad_16k.safetensors vad";

/// Finds the speech of one recording after the other; one that fails is named, and the others are read all the same.
pub(crate) fn run(args: &VadArgs) -> Result<()> {
    if args.probabilities && args.format == SpansFormat::Text {
        bail!("`--probabilities` belongs to `--format json`");
    }
    let Some(name) = &args.model else {
        bail!("no model was named: give one that finds speech with `--model`. {HOW_TO_GET}");
    };
    let options = options(args);
    let mut vad = load(name, args.reconvert, false)?;
    // Wrong options are wrong for every file.
    SpeechSpans::new(&options, vad.sample_rate_hz(), vad.chunk_samples())?;
    let mut failed = 0;
    for file in &args.files {
        if let Err(error) = one(&mut vad, file, &options, args) {
            if args.files.len() == 1 {
                return Err(error);
            }
            output::error(&error);
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} recordings could not be read", args.files.len()),
    }
}

/// Loads the model that finds speech.
pub(super) fn load(name: &str, reconvert: bool, offline: bool) -> Result<Vad> {
    let unusable = || format!("`{name}` cannot be used to find speech. {HOW_TO_GET}");
    let args = ModelArgs {
        model: Some(name.to_owned()),
        small: false,
        source: SourceArgs {
            bits: Bits::ThirtyTwo,
            no_calibrate: false,
            token: None,
            offline,
        },
        reconvert,
    };
    let bundle = model::bundle(&args).with_context(unusable)?;
    Vad::load(&bundle, 1).with_context(unusable)
}

fn options(args: &VadArgs) -> SpanOptions {
    SpanOptions {
        threshold: args.threshold,
        neg_threshold: args.neg_threshold,
        min_speech_duration_ms: args.min_speech_ms,
        max_speech_duration_s: args.max_speech_s,
        min_silence_duration_ms: args.min_silence_ms,
        speech_pad_ms: args.pad_ms,
        ..SpanOptions::default()
    }
}

/// Memory does not depend on the length of the recording, but for what is written at its end.
fn one(vad: &mut Vad, file: &Path, options: &SpanOptions, args: &VadArgs) -> Result<()> {
    let named = || format!("`{}` cannot be read", file.display());
    let rate = vad.sample_rate_hz();
    let mut recording = Recording::open(file, rate, Limits::default())?;
    let text = args.format == SpansFormat::Text;
    if text && args.files.len() > 1 {
        output::line(format!("# {}", file.display()));
    }
    let seconds = |samples: u64| samples as f64 / f64::from(rate);
    let mut spans = SpeechSpans::new(options, rate, vad.chunk_samples())?;
    let (mut found, mut probabilities, mut taken): (Vec<Span>, Vec<f32>, u64) = (Vec::new(), Vec::new(), 0);
    let about = recording.info();
    let length = about.frames.unwrap_or(0) as f64 / f64::from(about.sample_rate_hz);
    let shown = bar(length.ceil() as u64, "listening", Unit::Of("seconds"));
    let keep = |found: &mut Vec<Span>, new: &mut dyn Iterator<Item = Span>| {
        for span in new {
            if text {
                shown.suspend(|| output::line(line(span, rate)));
            }
            found.push(span);
        }
    };
    vad.reset();
    let mut samples = Vec::new();
    loop {
        samples.clear();
        let more = recording.read(&mut samples).with_context(named)?;
        taken += samples.len() as u64;
        shown.set_position(seconds(taken) as u64);
        let new = vad.push(&samples).with_context(named)?;
        new.iter().for_each(|&p| keep(&mut found, &mut spans.push(p)));
        if args.probabilities {
            probabilities.extend_from_slice(new);
        }
        if !more {
            break;
        }
    }
    if let Some(p) = vad.finish()? {
        keep(&mut found, &mut spans.push(p));
        probabilities.extend(args.probabilities.then_some(p));
    }
    keep(&mut found, &mut spans.finish(taken));
    shown.finish_and_clear();
    if let Some(damage) = recording.damage() {
        output::warning(format!("`{}`: {damage}", file.display()));
    }
    if !text {
        let times = found.iter().map(|span| {
            serde_json::json!({
                "start_s": seconds(span.start), "end_s": seconds(span.end), "start": span.start, "end": span.end,
            })
        });
        let mut json = serde_json::json!({
            "file": file,
            "duration_s": seconds(taken),
            "sample_rate_hz": rate,
            "speech_s": seconds(found.iter().map(|span| span.end - span.start).sum()),
            "spans": times.collect::<Vec<_>>(),
        });
        if args.probabilities {
            json["chunk_samples"] = vad.chunk_samples().into();
            json["probabilities"] = probabilities.into();
        }
        return output::json(&json);
    }
    if found.is_empty() {
        output::note(format!("nobody speaks in `{}`", file.display()));
    }
    Ok(())
}

/// `[00:01:02.340 --> 00:01:05.000]`.
fn line(span: Span, rate: u32) -> String {
    let time = |samples: u64| clock(samples as f64 / f64::from(rate), '.');
    format!("[{} --> {}]", time(span.start), time(span.end))
}
