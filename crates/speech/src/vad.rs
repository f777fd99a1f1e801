//! How likely it is that somebody speaks, chunk after chunk.

use crate::features::unknown;
use crate::{Error, Result, Span, SpanOptions, SpeechSpans};
use cactus_audio::{Samples, Sound};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Chunks, Decoding, FrontEnd};
use cactus_engine::CancelToken;
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use std::path::Path;
use std::sync::Arc;

/// Component that finds speech, and what it takes and gives.
const DETECTOR: &str = "detector";
const SAMPLES: &str = "samples";
const STATE: &str = "state";
const PROBABILITIES: &str = "probabilities";
const NEXT_STATE: &str = "next_state";
/// Largest sample that is taken. Floats may go a little beyond 1; what is far beyond is no sound, and would stay in the state.
const LARGEST: f32 = 1e6;
/// Chunks that are computed in one call where so many are there. One call reads the weights once.
const BATCH: usize = 32;

/// A model that finds speech, loaded, and the sound it is listening to.
///
/// Sound may come in pieces of any size: a probability belongs to a chunk of [`Vad::chunk_samples`] and does not depend on how
/// they were cut, in no bit; nor does it on the number of threads or the machine.
#[derive(Debug)]
pub struct Vad {
    bundle: Arc<Bundle>,
    chunks: Chunks,
    detector: Function,
    pool: Pool,
    threads: usize,
    /// Output and cell of the model after the last whole chunk.
    state: Vec<f32>,
    /// Where the next one is written.
    next: Vec<f32>,
    /// Shape of both.
    shape: Vec<usize>,
    /// The end of the last whole chunk, then what came since.
    pending: Vec<f32>,
    /// Chunks of a call, each with its context.
    given: Vec<f32>,
    probabilities: Vec<f32>,
    /// Samples taken since the beginning.
    taken: u64,
}

impl Vad {
    /// Loads the bundle in `folder` with so many threads; one is enough for live sound.
    ///
    /// # Errors
    /// A bundle that is damaged or does not find speech.
    pub fn load(folder: &Path, threads: usize) -> Result<Vad> {
        Vad::of(Arc::new(Bundle::open(folder)?), threads)
    }

    /// Another one of the same bundle, whose weights they share. It has heard nothing.
    ///
    /// # Errors
    /// As [`Vad::load`].
    pub fn another(&self) -> Result<Vad> {
        Vad::of(Arc::clone(&self.bundle), self.threads)
    }

    fn of(bundle: Arc<Bundle>, threads: usize) -> Result<Vad> {
        let task = bundle.manifest().task.clone();
        let other = |why: &str| Error::Model(format!("`{}` does not find speech: {why}", bundle.root().display()));
        let Some(speech) = bundle.speech()? else {
            return Err(other(&format!("it has no `speech.json` (its task is `{task}`)")));
        };
        let chunks = match (&speech.front_end, &speech.decoding) {
            (FrontEnd::Chunks(chunks), Decoding::Activity {}) => *chunks,
            (_, Decoding::Prompted(_) | Decoding::Ctc(_) | Decoding::Transducer(_)) => {
                return Err(other("it writes down what is said"));
            }
            (front_end, _) => return Err(unknown("front end", front_end)),
        };
        let declared = bundle.manifest().components.iter().find(|c| c.name == DETECTOR);
        let Some(declared) = declared else {
            return Err(other(&format!("it has no component `{DETECTOR}`")));
        };
        let input = declared.inputs.iter().find(|p| p.name == STATE);
        let Some(shape) = input.and_then(|p| p.ty.known_shape()) else {
            return Err(other(&format!("its component has no input `{STATE}` of a fixed shape")));
        };
        let detector = Function::new(Arc::clone(&bundle), DETECTOR, None)?;
        let elements: usize = shape.iter().product();
        let mut vad = Vad {
            bundle,
            chunks,
            detector,
            pool: Pool::new(threads.max(1)),
            threads: threads.max(1),
            state: vec![0.0; elements],
            next: vec![0.0; elements],
            shape,
            pending: Vec::new(),
            given: Vec::new(),
            probabilities: Vec::new(),
            taken: 0,
        };
        vad.reset();
        // Ports and shapes that do not fit show here, and not in the middle of a sound.
        let silence = vec![0.0; vad.chunk_samples()];
        vad.push(&silence)?;
        vad.reset();
        Ok(vad)
    }

    /// Samples a second that it takes.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.chunks.sample_rate_hz
    }

    /// Samples for each probability.
    #[must_use]
    pub fn chunk_samples(&self) -> usize {
        self.chunks.chunk_samples as usize
    }

    fn context_samples(&self) -> usize {
        self.chunks.context_samples as usize
    }

    /// Forgets the sound so far.
    pub fn reset(&mut self) {
        self.state.fill(0.0);
        self.pending.clear();
        self.pending.resize(self.context_samples(), 0.0);
        self.probabilities.clear();
        self.taken = 0;
    }

    /// Takes `samples` (mono, from -1 to 1) and gives the probability of speech, from 0 to 1, of every chunk that is whole now.
    /// What is left over waits for the next samples.
    ///
    /// # Errors
    /// A sample that is no number, or far beyond 1; nothing was taken then. What the model cannot compute.
    pub fn push(&mut self, samples: &[f32]) -> Result<&[f32]> {
        if let Some(i) = samples.iter().position(|x| x.is_nan() || x.abs() > LARGEST) {
            let at = self.taken + i as u64;
            return Err(Error::Samples(format!(
                "sample {at} is {}; samples should be numbers from -1 to 1",
                samples[i]
            )));
        }
        self.taken += samples.len() as u64;
        self.probabilities.clear();
        let (chunk, context) = (self.chunk_samples(), self.context_samples());
        let mut rest = samples;
        loop {
            let waiting = self.pending.len() - context;
            let whole = (waiting + rest.len()) / chunk;
            if whole == 0 {
                self.pending.extend_from_slice(rest);
                return Ok(&self.probabilities);
            }
            // Two sizes alone, as another size makes another plan.
            let count = if whole >= BATCH { BATCH } else { 1 };
            let (now, later) = rest.split_at(count * chunk - waiting);
            self.pending.extend_from_slice(now);
            rest = later;
            self.listen(count)?;
        }
    }

    /// The probability of the chunk under way, with silence after it; `None` where it has no sample. Begins anew.
    ///
    /// # Errors
    /// What the model cannot compute.
    pub fn finish(&mut self) -> Result<Option<f32>> {
        let (chunk, context) = (self.chunk_samples(), self.context_samples());
        self.probabilities.clear();
        if self.pending.len() > context {
            self.pending.resize(context + chunk, 0.0);
            self.listen(1)?;
        }
        let last = self.probabilities.first().copied();
        self.reset();
        Ok(last)
    }

    /// The spans of speech in a whole recording.
    ///
    /// # Errors
    /// As [`Vad::push`]; an option that has no meaning.
    pub fn spans(&mut self, samples: &[f32], options: &SpanOptions) -> Result<Vec<Span>> {
        self.spans_of(&mut Samples::new(samples), options, &CancelToken::new())
    }

    /// As [`Vad::spans`], of a recording that is read meanwhile, in memory that does not depend on its length.
    ///
    /// # Errors
    /// As [`Vad::spans`]; those of reading; after `cancel`.
    pub fn spans_of(
        &mut self,
        sound: &mut dyn Sound,
        options: &SpanOptions,
        cancel: &CancelToken,
    ) -> Result<Vec<Span>> {
        let mut spans = SpeechSpans::new(options, self.sample_rate_hz(), self.chunk_samples())?;
        self.reset();
        sound.rewind()?;
        let mut found = Vec::new();
        let (mut part, mut length, mut more) = (Vec::new(), 0, true);
        while more {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            // As many as are computed at once.
            while more && part.len() < BATCH * self.chunk_samples() {
                more = sound.read(&mut part)?;
            }
            for &p in self.push(&part)? {
                found.extend(spans.push(p));
            }
            length += part.len() as u64;
            part.clear();
        }
        if let Some(p) = self.finish()? {
            found.extend(spans.push(p));
        }
        found.extend(spans.finish(length));
        Ok(found)
    }

    /// Computes the `count` chunks that are pending.
    fn listen(&mut self, count: usize) -> Result<()> {
        let (chunk, context) = (self.chunk_samples(), self.context_samples());
        self.given.clear();
        for i in 0..count {
            let from = i * chunk;
            self.given
                .extend_from_slice(&self.pending[from..from + context + chunk]);
        }
        let kept = self.pending.len() - context;
        self.pending.copy_within(kept.., 0);
        self.pending.truncate(context);
        let before = self.probabilities.len();
        self.probabilities.resize(before + count, 0.0);
        let samples = [count, context + chunk];
        let view = |shape, data| TensorView::new(shape, Elements::F32(data)).map_err(|e| Error::Model(e.to_string()));
        let inputs = [
            (SAMPLES, view(&samples, &self.given)?),
            (STATE, view(&self.shape, &self.state)?),
        ];
        let (mut found, mut next) = (false, false);
        let mut fits = true;
        let probabilities = &mut self.probabilities[before..];
        let next_state = &mut self.next;
        self.detector
            .run_reading(&self.pool, self.threads, &inputs, &mut |name, output| {
                let to = match name {
                    PROBABILITIES => (&mut *probabilities, &mut found),
                    NEXT_STATE => (&mut next_state[..], &mut next),
                    _ => return,
                };
                match output.elements() {
                    Elements::F32(values) if values.len() == to.0.len() => to.0.copy_from_slice(values),
                    _ => fits = false,
                }
                *to.1 = true;
            })?;
        if !(found && next && fits) {
            let what =
                "its detector should give `probabilities`, one for each chunk, and `next_state`, as large as `state`";
            return Err(Error::Model(what.into()));
        }
        std::mem::swap(&mut self.state, &mut self.next);
        Ok(())
    }
}
