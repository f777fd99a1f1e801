//! Live speech.

use super::Transcriber;
use super::sound::{PCM_HZ, floats};
use crate::failure::Ours as _;
use cactus_audio::Resampler;
use cactus_engine::{CancelToken, Error, Result};
use cactus_speech::{Stream, StreamEvent, StreamOptions, Told, Vad};
use std::path::PathBuf;

/// Folder inside a bundle that hears with one that finds speech, where nobody says which.
const VAD: &str = "vad";

/// How live speech is listened to.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// How it is cut into phrases, and written down.
    pub stream: StreamOptions,
    /// The folder of a bundle that finds speech; the folder `vad` inside of the model's own where absent.
    pub vad: Option<PathBuf>,
    /// Samples a second of the sound that comes. Default [`PCM_HZ`].
    pub rate_hz: u32,
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions {
            stream: StreamOptions::default(),
            vad: None,
            rate_hz: PCM_HZ,
        }
    }
}

/// What came of the sound since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Heard {
    /// Text that has become certain since then.
    pub confirmed: String,
    /// Text behind it that may still change.
    pub pending: String,
    /// Code of the language that was found last.
    pub language: Option<String>,
    /// What happened since then, in order.
    pub events: Vec<StreamEvent>,
}

/// Live speech on its way. Whoever drops it loses what was said last; [`LiveTranscription::finish`] has it.
#[derive(Debug)]
pub struct LiveTranscription {
    transcriber: Transcriber,
    stream: Stream,
    resampler: Resampler,
    told: Told,
    cancel: CancelToken,
}

impl LiveTranscription {
    pub(super) fn begin(transcriber: &Transcriber, options: &LiveOptions) -> Result<LiveTranscription> {
        let mut stream = options.stream.clone();
        let cancel = CancelToken::new();
        let stream = transcriber.write(&cancel, |model| {
            stream.transcribe.fit(model);
            let vad = detector(options, transcriber)?;
            Stream::new(model, vad, stream).map_err(|e| e.ours())
        })?;
        let resampler = Resampler::new(options.rate_hz, transcriber.sample_rate_hz());
        Ok(LiveTranscription {
            transcriber: transcriber.clone(),
            stream,
            resampler: resampler.map_err(|e| cactus_speech::Error::from(e).ours())?,
            told: Told::default(),
            cancel,
        })
    }

    /// Stops it from any thread: a call under way ends with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), and so does each after it.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Takes the next sound, as much as there is: one channel, 16 bits, [`LiveOptions::rate_hz`] samples a second. Waits where another has
    /// the model.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled); [`ErrorKind::Busy`](crate::ErrorKind::Busy) inside a callback of the model's.
    pub fn push(&mut self, pcm: &[i16]) -> Result<Heard> {
        self.push_samples(&floats(pcm))
    }

    /// As [`LiveTranscription::push`], of samples from -1 to 1.
    ///
    /// # Errors
    /// As [`LiveTranscription::push`]; [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a sample that is no number, or far beyond 1.
    pub fn push_samples(&mut self, samples: &[f32]) -> Result<Heard> {
        let mut resampled = Vec::new();
        self.resampler.push(samples, &mut resampled);
        self.listen(&resampled, false)
    }

    /// The sound is over: what was said last becomes final.
    ///
    /// # Errors
    /// As [`LiveTranscription::push`].
    pub fn finish(mut self) -> Result<Heard> {
        let mut rest = Vec::new();
        self.resampler.finish(&mut rest);
        self.listen(&rest, true)
    }

    fn listen(&mut self, samples: &[f32], is_last: bool) -> Result<Heard> {
        let (stream, told, cancel) = (&mut self.stream, &mut self.told, &self.cancel);
        let mut events = Vec::new();
        let mut each = |event: StreamEvent| {
            told.take(&event);
            events.push(event);
        };
        self.transcriber.write(cancel, |model| {
            let done = stream.push(model, samples, cancel, &mut each);
            let done = match is_last {
                true => done.and_then(|()| stream.finish(model, cancel, &mut each)),
                false => done,
            };
            done.map_err(|e| e.ours())
        })?;
        Ok(Heard {
            confirmed: std::mem::take(&mut told.confirmed),
            pending: told.pending.clone(),
            language: told.language.clone(),
            events,
        })
    }
}

fn detector(options: &LiveOptions, transcriber: &Transcriber) -> Result<Vad> {
    let path = options.vad.clone().unwrap_or_else(|| transcriber.bundle().join(VAD));
    if path.exists() {
        return Vad::load(&path, 1).map_err(|e| e.ours());
    }
    Err(Error::Argument(format!(
        "live speech needs a second model, which finds where somebody speaks, and there is none at {}; convert one (`cactus convert \
         silero_vad_16k.safetensors vad`), and name its folder as `vad`, or put it there",
        path.display()
    )))
}
