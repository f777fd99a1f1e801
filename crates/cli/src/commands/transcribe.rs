//! Writing down what is said in recordings.

mod recordings;
mod several;

use super::again::{self, Again};
use super::vad;
use crate::args::{HearArgs, ModelArgs, TranscribeArgs, TranscriptFormat, WrongArgument};
use crate::progress::{Unit, bar, spinner};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_audio::decode::{self, Limits};
use cactus_audio::{Samples, Sound};
use cactus_engine::CancelToken;
use cactus_router::Reheard;
use cactus_speech::subtitles::{Cue, cues, srt, vtt};
use cactus_speech::{Progress, Segment, SpanOptions, Transcriber, Transcript, Vad, milliseconds};
use recordings::Recording;
use std::path::{Path, PathBuf};

/// The most recordings at a time where nobody says how many: each takes memory of its own.
const JOBS: usize = 4;

/// Transcribes recordings; one that fails is named, and the others are transcribed all the same.
pub(crate) fn run(args: &TranscribeArgs) -> Result<()> {
    let again = Again::new(&args.again, &args.options(), "transcribe")?;
    let (recordings, already) = recordings::find(args)?;
    let count = recordings.len();
    let jobs = match (&again, args.jobs.map(usize::from)) {
        (Some(_), Some(2..)) => {
            let message =
                "`--jobs`: recordings that others may hear again are transcribed one after the other; leave it out";
            return Err(WrongArgument(message.to_owned()).into());
        }
        (Some(_), _) => 1,
        (None, Some(jobs)) => jobs,
        (None, None) => args.hear.threads().min(JOBS),
    };
    let jobs = jobs.min(count);
    if already > 0 {
        let every = already + count;
        output::note(format!(
            "{already} of {every} recordings are written down already (`--overwrite` does so anew)"
        ));
    }
    if count == 0 {
        return Ok(());
    }
    let bundle = bundle(&args.hear)?;
    let loading = spinner("loading");
    let share = (args.hear.threads() / jobs).max(1);
    let hearings = (0..jobs)
        .map(|_| Hearing::load(&bundle, share, args))
        .collect::<Result<Vec<_>>>();
    loading.finish_and_clear();
    let mut hearings = hearings?;
    let failed = match hearings.as_mut_slice() {
        [hearing] => in_turn(hearing, again.as_ref(), &recordings, args)?,
        _ => several::run(hearings, &recordings, args),
    };
    if let (Some(folder), false) = (&args.output, failed == count) {
        output::note(format!(
            "{} of {count} recordings are written down in `{}`",
            count - failed,
            folder.display()
        ));
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {count} recordings could not be transcribed"),
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

/// What transcribes one recording at a time.
struct Hearing {
    transcriber: Transcriber,
    vad: Option<Vad>,
}

/// What is said in a recording.
struct Heard {
    transcript: Transcript,
    reheard: Option<Reheard>,
}

impl Hearing {
    fn load(bundle: &Path, threads: usize, args: &TranscribeArgs) -> Result<Hearing> {
        let transcriber = Transcriber::load(bundle, Some(threads))?;
        let load = |name: &String| vad::load(name, args.hear.reconvert, args.hear.source.offline);
        let vad = args.vad.as_ref().map(load).transpose()?;
        if let Some(vad) = &vad
            && vad.sample_rate_hz() != transcriber.sample_rate_hz()
        {
            let (one, other) = (vad.sample_rate_hz(), transcriber.sample_rate_hz());
            bail!(
                "the model of `--vad` takes {one} samples a second, and the one that transcribes {other}; they should take as many"
            );
        }
        Ok(Hearing { transcriber, vad })
    }

    /// Transcribes `file`, and tells `each` how many seconds are done, of how many, and what is said in the last of them.
    fn hear(
        &mut self,
        again: Option<&Again>,
        file: &Path,
        args: &TranscribeArgs,
        each: &mut dyn FnMut(f64, f64, &[Segment]),
    ) -> Result<Heard> {
        let named = || format!("`{}` cannot be transcribed", file.display());
        let rate_hz = self.transcriber.sample_rate_hz();
        let mut read = decode::Recording::open(file, rate_hz, Limits::default())?;
        // Whoever hears again gets pieces of it, which are not known yet.
        let kept = again.map(|_| all(&mut read)).transpose().with_context(named)?;
        let mut kept = kept.map(Samples::new);
        let sound: &mut dyn Sound = match &mut kept {
            Some(kept) => kept,
            None => &mut read,
        };
        let mut options = args.options();
        let words = options.words;
        // Of whoever is heard again, each word is compared.
        options.words |= again.is_some();
        let found = SpanOptions {
            threshold: args.vad_threshold,
            ..SpanOptions::for_transcription()
        };
        let cancel = CancelToken::new();
        let vad = self.vad.as_mut();
        let spans = vad.map(|vad| vad.spans_of(sound, &found, &cancel)).transpose();
        let spans = spans.with_context(named)?;
        let mut each = |progress: Progress<'_>| each(progress.done_s, progress.duration_s, progress.segments);
        let transcriber = &mut self.transcriber;
        let told = match &spans {
            Some(spans) => transcriber.transcribe_spans_of(sound, spans, &options, &cancel, &mut each),
            None => transcriber.transcribe_sound(sound, &options, &cancel, &mut each),
        };
        let mut transcript = told.with_context(named)?;
        if let Some(damage) = read.damage() {
            output::warning(format!("`{}`: {damage}", file.display()));
        }
        let samples = kept.as_ref().map(Samples::all).unwrap_or_default();
        let reheard = again.map(|again| again.hear(samples, rate_hz, &transcript, &options));
        let mut reheard = reheard.transpose().with_context(named)?;
        if let Some(reheard) = &mut reheard {
            transcript = std::mem::take(&mut reheard.transcript);
            if !words {
                transcript.segments.iter_mut().for_each(|segment| segment.words.clear());
            }
        }
        Ok(Heard { transcript, reheard })
    }
}

/// All samples of a recording.
fn all(sound: &mut dyn Sound) -> Result<Vec<f32>, cactus_audio::Error> {
    let mut samples = Vec::new();
    while sound.read(&mut samples)? {}
    Ok(samples)
}

/// Transcribes one recording after the other, each segment of a text as soon as it is known, and gives how many failed.
fn in_turn(
    hearing: &mut Hearing,
    again: Option<&Again>,
    recordings: &[Recording],
    args: &TranscribeArgs,
) -> Result<usize> {
    let mut failed = 0;
    for recording in recordings {
        if let Err(error) = one(hearing, again, recording, recordings.len() > 1, args) {
            if recordings.len() == 1 {
                return Err(error);
            }
            output::error(&error);
            failed += 1;
        }
    }
    Ok(failed)
}

fn one(
    hearing: &mut Hearing,
    again: Option<&Again>,
    recording: &Recording,
    several: bool,
    args: &TranscribeArgs,
) -> Result<()> {
    // What may still change is not shown.
    let live = args.format == TranscriptFormat::Text && again.is_none() && recording.transcript.is_none();
    let bar = bar(0, "transcribing", Unit::Of("seconds"));
    if several {
        bar.set_message(recording.path.display().to_string());
    }
    let mut headed = false;
    let mut each = |done_s: f64, of_s: f64, segments: &[Segment]| {
        bar.set_length(of_s.ceil() as u64);
        bar.set_position(done_s as u64);
        if live {
            bar.suspend(|| {
                if several && !std::mem::replace(&mut headed, true) {
                    heading(&recording.path, args);
                }
                segments.iter().flat_map(cues).for_each(|cue| output::line(line(&cue)));
            });
        }
    };
    let heard = hearing.hear(again, &recording.path, args, &mut each);
    bar.finish_and_clear();
    let heard = heard?;
    if live {
        if several && !headed {
            heading(&recording.path, args);
        }
        return Ok(());
    }
    let text = written(args, &recording.path, &heard)?;
    match &recording.transcript {
        Some(path) => recordings::write(path, &text)?,
        None => {
            if several {
                heading(&recording.path, args);
            }
            // A recording in which nobody speaks.
            if !text.is_empty() {
                output::line(text);
            }
        }
    }
    Ok(())
}

/// Says whose text follows; other formats are for programs.
fn heading(file: &Path, args: &TranscribeArgs) {
    if args.format == TranscriptFormat::Text {
        output::line(format!("# {}", file.display()));
    }
}

/// What was heard, in the format that was asked for, without the end of its last line.
fn written(args: &TranscribeArgs, file: &Path, heard: &Heard) -> Result<String> {
    let Heard { transcript, reheard } = heard;
    Ok(match args.format {
        TranscriptFormat::Text => {
            let lines: Vec<String> = transcript
                .segments
                .iter()
                .flat_map(cues)
                .map(|cue| line(&cue))
                .collect();
            lines.join("\n")
        }
        TranscriptFormat::Json => {
            let mut shown = json(file, transcript);
            if let Some(reheard) = reheard {
                again::tell(reheard, &mut shown);
            }
            serde_json::to_string_pretty(&shown)?
        }
        TranscriptFormat::Srt => srt(transcript).trim_end().to_owned(),
        TranscriptFormat::Vtt => vtt(transcript).trim_end().to_owned(),
    })
}

fn json(file: &Path, transcript: &Transcript) -> serde_json::Value {
    serde_json::json!({
        "file": file,
        "language": transcript.language,
        "duration_s": milliseconds(transcript.duration_s),
        "text": transcript.text(),
        "segments": transcript.segments,
    })
}

/// `[00:01:02.340 --> 00:01:05.000] What is said`.
pub(super) fn line(cue: &Cue<'_>) -> String {
    format!("[{}] {}", cue.times('.'), cue.text)
}
