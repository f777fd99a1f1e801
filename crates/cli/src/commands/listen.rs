//! Writing down what is said right now.

mod later;

use super::again::Again;
use super::{transcribe, vad};
use crate::args::{CommitBy, ListenArgs, LiveFormat};
use crate::output;
use crate::progress::spinner;
use anyhow::{Context as _, Result, bail};
use cactus_audio::decode::{Limits, Mono, Reader};
use cactus_engine::CancelToken;
use cactus_router::Amended;
use cactus_speech::subtitles::cues;
use cactus_speech::{Commit, Stream, StreamEvent, StreamOptions, Transcriber};
use indicatif::ProgressBar;
use later::Later;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

/// Pieces of sound that may wait for a slow machine: ten minutes of tenths of seconds. More are left to who records.
const WAITING: usize = 6000;
/// Pieces a second.
const PIECES: u32 = 10;

/// Listens until the sound ends, or to Ctrl-C; what was said until then is written all the same.
pub(crate) fn run(args: &ListenArgs) -> Result<()> {
    let mut transcribe = args.hear.options();
    let again = Again::new(&args.again, &transcribe, "listen")?;
    // Of whoever is heard again, each word is compared.
    transcribe.words |= again.is_some();
    let bundle = transcribe::bundle(&args.hear)?;
    let loading = spinner("loading");
    let mut transcriber = Transcriber::load(&bundle, args.hear.threads.map(usize::from))?;
    let detector = vad::load(&args.vad, args.hear.reconvert, args.hear.source.offline);
    loading.finish_and_clear();
    let options = StreamOptions {
        transcribe,
        keep_sound: again.is_some(),
        step_ms: args.live.step_ms,
        commit: match args.live.commit {
            CommitBy::Agreement => Commit::Agreement,
            CommitBy::Attention => Commit::Attention,
        },
        silence_ms: args.live.silence_ms,
        sentence_ms: args.live.sentence_ms,
        margin_ms: args.live.margin_ms,
        threshold: args.vad_threshold,
        ..StreamOptions::default()
    };
    let rate_hz = transcriber.sample_rate_hz();
    let mut stream = Stream::new(&mut transcriber, detector?, options)?;
    let is_piped = args.file.as_deref() == Some(Path::new("-"));
    let later = |again: &Again| Later::new(again, &args.hear.options(), rate_hz, is_piped);
    let mut later = again.as_ref().map(later).transpose()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&stopped);
    ctrlc::set_handler(move || {
        if handler.swap(true, Ordering::Relaxed) {
            // Whoever asks twice does not wait for the last phrase.
            #[allow(clippy::disallowed_methods)]
            std::process::exit(130);
        }
    })
    .context("cannot watch for Ctrl-C")?;
    let mut sound = Sound::open(args, rate_hz)?;
    let view = View::new(args.format, args.hear.options().words);
    let cancel = CancelToken::new();
    let mut heard = Ok(());
    let show = |event: &StreamEvent, later: &mut Option<Later>| {
        view.show(event);
        if let Some(later) = later {
            later.offer(event);
        }
    };
    while !stopped.load(Ordering::Relaxed) {
        match sound.next() {
            Ok(Some(samples)) => {
                stream.push(&mut transcriber, &samples, &cancel, &mut |event| {
                    show(&event, &mut later)
                })?;
                if let Some(later) = &mut later {
                    later.each(&mut |amended| view.amend(amended));
                }
            }
            Ok(None) => break,
            // What was said before is written all the same.
            Err(error) => {
                heard = Err(error);
                break;
            }
        }
    }
    sound.close();
    stream.finish(&mut transcriber, &cancel, &mut |event| show(&event, &mut later))?;
    view.close();
    if let Some(later) = later {
        // Whoever ended it before has asked once.
        let asked = stopped.load(Ordering::Relaxed);
        let is_over = || !asked && stopped.load(Ordering::Relaxed);
        later.finish(&is_over, &mut |amended| view.amend(amended));
    }
    heard
}

/// Where samples come from.
enum Sound {
    Recording(Box<Mono>),
    /// Pieces that a thread reads, and the program that records.
    Samples(Receiver<std::io::Result<Vec<f32>>>, Option<Recorder>),
}

struct Recorder {
    name: String,
    child: Child,
}

impl Sound {
    fn open(args: &ListenArgs, rate_hz: u32) -> Result<Sound> {
        match &args.file {
            Some(file) if file == Path::new("-") => Ok(Sound::Samples(pieces(std::io::stdin(), rate_hz), None)),
            Some(file) => {
                let named = || format!("`{}` cannot be read", file.display());
                let reader = Reader::open(file, Limits::default())?;
                Ok(Sound::Recording(Box::new(
                    Mono::new(reader, rate_hz).with_context(named)?,
                )))
            }
            None => {
                let mut recorder = Recorder::start(args.recorder.as_deref(), rate_hz)?;
                let Some(out) = recorder.child.stdout.take() else {
                    bail!("`{}` gives no samples", recorder.name);
                };
                output::note(format!("listening with `{}`; Ctrl-C ends", recorder.name));
                Ok(Sound::Samples(pieces(out, rate_hz), Some(recorder)))
            }
        }
    }

    /// The next samples; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<f32>>> {
        match self {
            Sound::Recording(mono) => {
                let mut samples = Vec::new();
                let more = mono.read(&mut samples)?;
                Ok((more || !samples.is_empty()).then_some(samples))
            }
            Sound::Samples(pieces, recorder) => match pieces.recv() {
                Ok(Ok(samples)) => Ok(Some(samples)),
                Ok(Err(error)) => Err(error).context("the sound cannot be read"),
                Err(_) => {
                    let Some(Recorder { name, child }) = recorder else {
                        return Ok(None);
                    };
                    let status = child.wait().with_context(|| format!("`{name}` is lost"))?;
                    if !status.success() {
                        bail!("`{name}` stopped recording ({status}); is the microphone there, and free?");
                    }
                    Ok(None)
                }
            },
        }
    }

    /// Stops recording.
    fn close(&mut self) {
        if let Sound::Samples(_, Some(recorder)) = self {
            // It may have ended by itself.
            drop(recorder.child.kill());
            drop(recorder.child.wait());
        }
    }
}

impl Recorder {
    /// Starts `command`, or the first of the programs known that is there.
    fn start(command: Option<&str>, rate_hz: u32) -> Result<Recorder> {
        let rate = rate_hz.to_string();
        let known = [
            format!("arecord -q -t raw -f S16_LE -c 1 -r {rate}"),
            format!("parecord --raw --format=s16le --channels=1 --rate={rate}"),
            format!("sox -q -d -t raw -e signed -b 16 -L -c 1 -r {rate} -"),
            format!("ffmpeg -loglevel error -f {} -ac 1 -ar {rate} -f s16le -", microphone()),
        ];
        let tried = match command {
            Some(command) => vec![command.to_owned()],
            None => known.to_vec(),
        };
        for command in &tried {
            let mut words = command.split_whitespace();
            let Some(name) = words.next() else {
                bail!("`--recorder` should name a program, found nothing");
            };
            let mut program = Command::new(name);
            program.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
            // Ctrl-C is for us: a recorder that it stops looks like one that lost the microphone.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut program, 0);
            match program.spawn() {
                Ok(child) => {
                    let name = name.to_owned();
                    return Ok(Recorder { name, child });
                }
                Err(error) if error.kind() == ErrorKind::NotFound && tried.len() > 1 => {}
                Err(error) => return Err(error).with_context(|| format!("`{name}` cannot be started")),
            }
        }
        bail!(
            "no program that records was found; install alsa-utils (arecord), pulseaudio-utils (parecord), sox or ffmpeg, name one with \
             `--recorder`, or pipe samples in: `… | cactus listen - …`"
        )
    }
}

/// What ffmpeg calls the microphone.
fn microphone() -> &'static str {
    match std::env::consts::OS {
        "macos" => "avfoundation -i :0",
        "windows" => "dshow -i audio=default",
        _ => "alsa -i default",
    }
}

/// Samples of 16 bits, read on a thread of their own, so that a slow machine loses none.
fn pieces(mut from: impl Read + Send + 'static, rate_hz: u32) -> Receiver<std::io::Result<Vec<f32>>> {
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 2 * (rate_hz / PIECES).max(1) as usize];
        // Bytes of a sample that is not whole.
        let mut held = 0;
        loop {
            let read = match from.read(&mut bytes[held..]) {
                Ok(0) => return,
                Ok(read) => held + read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let whole = read / 2 * 2;
            let samples = bytes[..whole].chunks_exact(2);
            let samples = samples
                .map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0)
                .collect();
            bytes.copy_within(whole..read, 0);
            held = read - whole;
            if sender.send(Ok(samples)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a person sees.
struct View {
    format: LiveFormat,
    /// Times of words are shown, too.
    words: bool,
    now: ProgressBar,
}

impl View {
    fn new(format: LiveFormat, words: bool) -> View {
        View {
            now: match format {
                LiveFormat::Text => spinner(""),
                LiveFormat::Json => ProgressBar::hidden(),
            },
            format,
            words,
        }
    }

    fn show(&self, event: &StreamEvent) {
        let mut event = event.clone();
        if let StreamEvent::Final { segment, .. } = &mut event
            && !self.words
        {
            segment.words.clear();
        }
        if self.format == LiveFormat::Json {
            if let Ok(text) = serde_json::to_string(&event) {
                output::line(text);
            }
            return;
        }
        match &event {
            StreamEvent::Partial {
                committed, volatile, ..
            } => {
                self.now.set_message(format!("{} …{}", committed.trim(), volatile));
            }
            StreamEvent::Final { segment, .. } => self.now.suspend(|| {
                for cue in cues(segment) {
                    output::line(transcribe::line(&cue));
                }
            }),
            StreamEvent::SpeechEnd { .. } => self.now.set_message(""),
            _ => {}
        }
    }

    /// What a target has made of a phrase that was shown.
    fn amend(&self, amended: &Amended) {
        if self.format == LiveFormat::Json {
            return output::line(later::event(amended, self.words));
        }
        let Some(target) = amended.revision.target.as_deref() else {
            return;
        };
        self.now.suspend(|| {
            for cue in cues(&later::shown(&amended.segment, self.words)) {
                output::line(format!("{} ({target})", transcribe::line(&cue)));
            }
        });
    }

    fn close(&self) {
        self.now.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// A recorder that always has samples, and counts how many bytes were read.
    struct Endless(Arc<AtomicUsize>);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.fetch_add(buffer.len(), Ordering::SeqCst);
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_recorder_waits_where_nobody_takes_its_samples() {
        let read = Arc::new(AtomicUsize::new(0));
        let pieces = pieces(Endless(Arc::clone(&read)), 100);
        let piece = 2 * 100 / PIECES as usize;
        // Those that wait, and the one that has no room.
        let most = piece * (WAITING + 1);
        while read.load(Ordering::SeqCst) < most {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(read.load(Ordering::SeqCst), most);
        // Whoever catches up lets it go on, and nothing was lost.
        let taken = pieces.iter().take(2 * WAITING).map(|piece| piece.unwrap().len());
        assert_eq!(taken.sum::<usize>(), 2 * WAITING * piece / 2);
    }
}
