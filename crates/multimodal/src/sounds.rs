//! What a model hears sounds with.

use crate::cache::Cache;
use crate::{Error, Result, files_of, fit_together, owner, unshown};
use cactus_audio::Frontend;
use cactus_audio::decode::{Limits, Mono, Reader};
use cactus_base::Pool;
use cactus_bundle::{Bundle, FrontEnd, HEARING_PATH, Hearing};
use cactus_engine::chat::{Asking, MediaFile, Sense, Shown, Shows, Unshown};
use cactus_engine::{CancelToken, MediaDigest, MediaKind, Model};
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

const COMPONENT: &str = "sound_encoder";
const FEATURES: &str = "features";
const COUNT: &str = "count";
const ROWS: &str = "rows";

/// How samples become frames.
#[derive(Debug)]
enum Frames {
    /// Of a spectrogram.
    Bands(Box<Frontend>),
    /// So many samples as they are.
    Samples(usize),
}

impl Frames {
    /// Numbers of a frame.
    fn width(&self) -> usize {
        match self {
            Frames::Bands(frontend) => frontend.bins(),
            Frames::Samples(samples) => *samples,
        }
    }

    /// Those of `samples`, one after the other, with zeros behind them up to `length`.
    fn of(&self, samples: &[f32], length: usize) -> Result<Vec<f32>> {
        let mut filled = Cow::Borrowed(samples);
        if samples.len() < length {
            filled.to_mut().resize(length, 0.0);
        }
        match self {
            Frames::Bands(frontend) => Ok(frontend.extract(&filled)?.data),
            Frames::Samples(_) => match filled.iter().all(|x| x.is_finite()) {
                true => Ok(filled.into_owned()),
                false => Err(Error::SoundLength("the sound has samples that are not finite".into())),
            },
        }
    }
}

/// The encoder of sounds of a model. It may be used from several threads.
#[derive(Debug)]
pub struct Sounds {
    hearing: Hearing,
    frames: Frames,
    cache: Mutex<Cache<usize>>,
    /// Held while one is encoded, which takes memory and all threads.
    turn: Mutex<()>,
    /// The program of the model that it belongs to.
    owner: usize,
}

/// A sound that was listened to.
#[derive(Debug, Clone)]
pub struct Heard {
    /// What stands in the prompt for it.
    pub shown: Shown,
    /// How long it is.
    pub seconds: f64,
    /// Its tokens, without marks.
    pub tokens: usize,
    /// Seconds that decoding and the spectrogram took; 0 where it was known.
    pub prepare_seconds: f64,
    /// Seconds that the encoder took; 0 where it was known.
    pub encode_seconds: f64,
    /// Whether it had been encoded before.
    pub known: bool,
    /// Whether its file ends before it should; `false` where it was known.
    pub is_cut_off: bool,
}

impl Sounds {
    /// Whether a model of this bundle hears sounds that it writes about.
    #[must_use]
    pub fn is_in(bundle: &Bundle) -> bool {
        bundle.has_file(HEARING_PATH) && bundle.component(COMPONENT).is_ok()
    }

    /// What `model` hears sounds with, which is given to it for conversations that hold files; `None` where it hears none. Nothing of the
    /// encoder is loaded yet.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that is damaged.
    pub fn attach(model: &Model) -> Result<Option<Arc<Sounds>>> {
        let bundle = model.bundle();
        if !Sounds::is_in(bundle) {
            return Ok(None);
        }
        let damaged = |what: String| Error::Model(format!("`{}`: {HEARING_PATH}: {what}", bundle.root().display()));
        let Some(hearing) = bundle.hearing()? else {
            return Ok(None);
        };
        let frames = match &hearing.front_end {
            FrontEnd::LogMel(mel) => {
                let frontend = cactus_speech::front_end(mel).map_err(|e| damaged(e.to_string()))?;
                Frames::Bands(Box::new(frontend))
            }
            FrontEnd::Chunks(chunks) => Frames::Samples(chunks.chunk_samples as usize),
            other => return Err(damaged(format!("this program does not know the front end {other:?}"))),
        };
        if model.media_width().is_none() {
            return Err(damaged("the model takes no rows of sounds in its prompt".into()));
        }
        let sounds = Arc::new(Sounds {
            hearing,
            frames,
            cache: Mutex::default(),
            turn: Mutex::default(),
            owner: owner(model),
        });
        model.set_shows(Sense::Sound, Arc::<Sounds>::clone(&sounds));
        Ok(Some(sounds))
    }

    /// What becomes of a sound before the model hears it.
    #[must_use]
    pub fn hearing(&self) -> &Hearing {
        &self.hearing
    }

    /// Samples a second of what [`Sounds::listen_to`] takes.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.hearing.sample_rate_hz()
    }

    /// Listens to a file of sound of any kind that `cactus_audio` decodes.
    ///
    /// # Errors
    /// [`Error::Sound`] for what cannot be decoded, [`Error::SoundLength`] for one that is too short or too long, [`Error::TooManySeconds`] for one
    /// that does not fit the context; [`Error::Cancelled`].
    pub fn listen_to_file(&self, model: &Model, bytes: &[u8], cancel: &CancelToken) -> Result<Heard> {
        self.listen_to_salted(model, bytes, (0, cancel))
    }

    fn listen_to_salted(&self, model: &Model, bytes: &[u8], (salt, cancel): (u64, &CancelToken)) -> Result<Heard> {
        self.belongs_to(model)?;
        let digest = digest(b"file", |sha| {
            sha.update(salt.to_le_bytes());
            sha.update(bytes);
        });
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let begun = Instant::now();
        let (samples, is_cut_off) = self.decode(bytes)?;
        let heard = self.encoded(model, digest, &samples, (begun, cancel))?;
        Ok(Heard { is_cut_off, ..heard })
    }

    /// Listens to samples from -1 to 1, mono, at [`Sounds::sample_rate_hz`].
    ///
    /// # Errors
    /// As [`Sounds::listen_to_file`].
    pub fn listen_to(&self, model: &Model, samples: &[f32], cancel: &CancelToken) -> Result<Heard> {
        self.belongs_to(model)?;
        let digest = digest(b"samples", |sha| {
            samples.iter().for_each(|x| sha.update(x.to_le_bytes()));
        });
        match self.known(&digest) {
            Some(known) => Ok(known),
            None => self.encoded(model, digest, samples, (Instant::now(), cancel)),
        }
    }

    /// The samples of a file, at most one more than the model hears, and whether it ends before its end.
    fn decode(&self, bytes: &[u8]) -> Result<(Vec<f32>, bool)> {
        let most = self.hearing.most_samples as usize;
        let reader = Reader::from_bytes(bytes.to_vec(), Limits::default())?;
        let mut mono = Mono::new(reader, self.sample_rate_hz())?;
        let mut samples = Vec::new();
        while samples.len() <= most && mono.read(&mut samples)? {}
        samples.truncate(most + 1);
        Ok((samples, mono.reader().is_truncated()))
    }

    fn belongs_to(&self, model: &Model) -> Result<()> {
        match owner(model) == self.owner {
            true => Ok(()),
            false => Err(Error::Model("these sounds are for another model".into())),
        }
    }

    /// Tokens of so many samples.
    fn tokens(&self, model: &Model, samples: usize) -> Result<usize> {
        let seconds = |samples: usize| samples as f64 / f64::from(self.sample_rate_hz());
        let most = self.hearing.most_samples as usize;
        if samples > most {
            let what = format!(
                "the sound is longer than {} s, which is what the model hears of one; cut it into several",
                seconds(most)
            );
            return Err(Error::SoundLength(what));
        }
        let tokens = self.hearing.rows(samples);
        if tokens == 0 {
            let least = (0..most).find(|&n| self.hearing.rows(n + 1) > 0).unwrap_or(most);
            let what = format!(
                "the sound has {samples} samples at {} Hz; expected more than {least}",
                self.sample_rate_hz()
            );
            return Err(Error::SoundLength(what));
        }
        match tokens < model.context_tokens() {
            true => Ok(tokens),
            false => Err(Error::TooManySeconds {
                seconds: seconds(samples),
                tokens,
                context: model.context_tokens(),
            }),
        }
    }

    fn known(&self, digest: &MediaDigest) -> Option<Heard> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, samples) = cache.get(digest)?;
        Some(self.heard(shown, samples, [0.0; 2], true))
    }

    fn heard(&self, shown: Shown, samples: usize, [prepare_seconds, encode_seconds]: [f64; 2], known: bool) -> Heard {
        Heard {
            seconds: samples as f64 / f64::from(self.sample_rate_hz()),
            tokens: shown.media.len(),
            shown,
            prepare_seconds,
            encode_seconds,
            known,
            is_cut_off: false,
        }
    }

    fn encoded(
        &self,
        model: &Model,
        digest: MediaDigest,
        samples: &[f32],
        (begun, cancel): (Instant, &CancelToken),
    ) -> Result<Heard> {
        let tokens = self.tokens(model, samples.len())?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have listened to it meanwhile.
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let mut features = self.frames.of(samples, self.hearing.filled(samples.len()))?;
        let prepare_seconds = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let frames = self.hearing.frames(samples.len());
        let rows = self.rows(model, &mut features, [frames, tokens], cancel)?;
        let marks = &self.hearing.marks;
        let shown = Shown {
            sense: Sense::Sound,
            text: format!("{}{}{}", marks.start, marks.token.repeat(tokens), marks.end),
            written: marks.token.clone(),
            token: marks.token.clone(),
            media: model.hold_media(digest, rows, MediaKind::Sound)?,
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(digest, shown.clone(), samples.len());
        let seconds = [prepare_seconds, begun.elapsed().as_secs_f64()];
        Ok(self.heard(shown, samples.len(), seconds, false))
    }

    /// The rows of the first `frames` frames.
    fn rows(
        &self,
        model: &Model,
        features: &mut Vec<f32>,
        [frames, tokens]: [usize; 2],
        cancel: &CancelToken,
    ) -> Result<Vec<f32>> {
        let wrong = |what: String| {
            let root = model.bundle().root().display();
            Error::Model(format!("`{root}`: the component `{COMPONENT}` {what}"))
        };
        let (width, block) = (self.frames.width(), self.hearing.block_frames as usize);
        let blocks = frames.div_ceil(block);
        features.truncate(frames * width);
        features.resize(blocks * block * width, 0.0);
        let threads = model.threads();
        let pool = Pool::new(threads);
        let function = Function::new(Arc::clone(model.bundle()), COMPONENT, None)?;
        let count = [frames as i64];
        let (shape, one) = ([blocks, block, width], [1]);
        let input = |name: &str, shape, values| {
            let view = TensorView::new(shape, values);
            view.map_err(|e| wrong(format!("cannot be given its input `{name}`: {e}")))
        };
        let mut inputs = vec![(FEATURES, input(FEATURES, &shape[..], Elements::F32(features))?)];
        if function.graph().input(COUNT).is_some() {
            inputs.push((COUNT, input(COUNT, &one[..], Elements::I64(&count))?));
        }
        let (mut rows, width) = (Vec::<f32>::new(), model.media_width().unwrap_or(1));
        let stop = || cancel.is_cancelled();
        let whole = function.run_reading_unless(&pool, threads, &inputs, &stop, &mut |name, view| {
            if let (ROWS, Elements::F32(values)) = (name, view.elements()) {
                rows.extend(values.iter().take(tokens * width));
            }
        })?;
        if !whole {
            return Err(Error::Cancelled);
        }
        if rows.len() != tokens * width {
            let what = format!(
                "made {} numbers of {frames} frames; expected {}",
                rows.len(),
                tokens * width
            );
            return Err(wrong(what));
        }
        match rows.iter().all(|x| x.is_finite()) {
            true => Ok(rows),
            false => Err(wrong("gives numbers that are not finite".into())),
        }
    }
}

/// A digest of a sound.
fn digest(kind: &[u8], sound: impl FnOnce(&mut Sha256)) -> MediaDigest {
    let mut sha = Sha256::new();
    sha.update(b"sound");
    sha.update(kind);
    sound(&mut sha);
    sha.finalize().into()
}

impl Shows for Sounds {
    fn show(
        &self,
        model: &Model,
        files: &[&MediaFile],
        asking: &Asking<'_>,
    ) -> std::result::Result<Vec<Shown>, Unshown> {
        let files = files_of(files)?;
        let mut tokens = 0;
        for (i, bytes) in files.iter().enumerate() {
            // Decoding is little work beside hearing.
            let samples = self.decode(bytes).map_err(|e| unshown(i, e))?.0.len();
            tokens += self.tokens(model, samples).map_err(|e| unshown(i, e))?;
        }
        fit_together(model, asking, "sounds", files.len(), tokens as u64)?;
        let each = files.iter().enumerate().map(|(i, bytes)| {
            let heard = self.listen_to_salted(model, bytes, (asking.salt, asking.cancel));
            heard.map(|heard| heard.shown).map_err(|e| unshown(i, e))
        });
        each.collect()
    }
}
