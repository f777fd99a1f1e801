//! Live speech: sound comes in pieces of any size, and text comes while somebody speaks.
//!
//! A [`Vad`] cuts the sound into phrases. While one is spoken it is written again and again, each time with the last text as a
//! draft that is verified in one pass; what two texts in a row agree on is committed (LocalAgreement-2, Macháček et al. 2023,
//! arXiv 2307.14743), and everything later continues it. Or a text is committed at once, as far as the model looked at sound that is
//! over when it wrote it ([`Commit::Attention`]). Where a silence begins, the phrase is written as if it were over: when it is, its final
//! text is there already. A phrase whose text ends a sentence is over sooner than any other.
//!
//! Everything happens at fixed places of the sound, so no event depends on how the sound was cut into pieces, nor on how fast
//! the machine is.

mod events;
mod phrase;

pub use events::{Commit, FinalReason, StreamEvent, StreamOptions};

use crate::features::Ear;
use crate::heard::Overlap;
use crate::phrases::{Around, Change, Limits, Phrases};
use crate::{Error, Result, Transcriber, Vad};
use cactus_engine::CancelToken;
use phrase::{Manner, Orders, Phrase, Then, Times};
use std::collections::VecDeque;

/// Less speech is no phrase.
const LEAST_MS: u32 = 250;
/// Longest phrase, in seconds.
const MOST_S: f64 = 25.0;
/// Silence in a phrase after which it is written as if it were over.
const PAUSE_MS: u32 = 128;
/// Silence in which a phrase is cut, in milliseconds, where text can go on over a cut: less is no pause.
const CUT_MS: u32 = 100;
/// How far the probability may fall below the threshold within a phrase.
const LOWER: f64 = 0.15;

/// Live speech on its way. It holds no model that writes: one [`Transcriber`] can serve several streams by turns.
#[derive(Debug)]
pub struct Stream {
    options: StreamOptions,
    vad: Vad,
    phrases: Phrases,
    /// How text goes on over a cut.
    overlap: Option<Overlap>,
    manner: Manner,
    /// Frames of `margin_ms`.
    margin: Option<usize>,
    /// Samples of the chunk that is not whole, and before them the end of the silence.
    pending: Vec<f32>,
    before: VecDeque<f32>,
    before_samples: usize,
    /// Samples up to the end of the last whole chunk.
    heard: u64,
    next_id: usize,
    phrase: Option<Phrase>,
    /// Memory of a phrase that is over, for the next one, and how many samples a phrase may have.
    spare: Vec<f32>,
    most_samples: usize,
    spoken_s: f64,
    probabilities: Vec<f32>,
}

impl Stream {
    /// Sound that `vad` cuts into phrases and `transcriber` writes down; both take the same samples a second.
    ///
    /// # Errors
    /// Options that the model does not have, or that make no sense; models that do not go together.
    pub fn new(transcriber: &mut Transcriber, mut vad: Vad, options: StreamOptions) -> Result<Stream> {
        let (rate, found) = (transcriber.sample_rate_hz(), vad.sample_rate_hz());
        if rate != found {
            return Err(Error::Option(format!(
                "the model that finds speech takes {found} samples a second and the one that writes {rate}; they should take as many"
            )));
        }
        if options.transcribe.hallucination_silence_s.is_some() {
            return Err(Error::Option(
                "live speech is found before it is written, so nothing is written of silence; leave the silence around what nobody said out, or transcribe a \
                 recording"
                    .to_owned(),
            ));
        }
        let window_s = transcriber.ear.seconds(transcriber.ear.most_frames());
        let most_s = options.most_s.unwrap_or(MOST_S.min(window_s));
        if !(most_s >= 1.0_f64.min(window_s) && most_s <= window_s) {
            let found = most_s;
            return Err(Error::Option(format!(
                "`most_s` should be from 1 to {window_s}, the window of the model, found {found}"
            )));
        }
        if !(0.0..=1.0).contains(&options.threshold) {
            let found = options.threshold;
            return Err(Error::Option(format!(
                "`threshold` should be from 0 to 1, found {found}"
            )));
        }
        let most_before_ms = most_s * 500.0;
        if f64::from(options.before_ms) > most_before_ms {
            let found = options.before_ms;
            return Err(Error::Option(format!(
                "`before_ms` should be from 0 to {most_before_ms}, half of a phrase, found {found}"
            )));
        }
        if options.margin_ms.is_some() && !matches!(transcriber.ear, Ear::Mel(..)) {
            return Err(Error::Option(
                "silence behind a phrase can be cut with models of Whisper's kind alone, which hear a window of one length; leave the margin out"
                    .into(),
            ));
        }
        let manner = Manner::of(transcriber.prepare(&options.transcribe)?);
        if options.commit == Commit::Attention {
            transcriber.prepare_attention()?;
        }
        let chunk = vad.chunk_samples();
        let chunks = |ms: f64| ((ms * f64::from(rate) / 1000.0 / chunk as f64).ceil() as usize).max(1);
        let silence = chunks(options.silence_ms.into());
        let said = chunks(options.sentence_ms.into()).min(silence);
        let most = (most_s * f64::from(rate)) as usize;
        let overlap = transcriber.ear.overlap().and_then(|overlap| overlap.within(most));
        // Room for the sound before.
        let room = chunks(options.before_ms.into()).max(overlap.map_or(0, |overlap| overlap.position / chunk + 2));
        let limits = Limits {
            threshold: options.threshold,
            lower: (options.threshold - LOWER).max(0.01),
            silence,
            said,
            pause: match options.step_ms {
                0 => usize::MAX,
                _ => chunks(PAUSE_MS.into()).min(said),
            },
            least: chunks(LEAST_MS.into()),
            most: (most / chunk).saturating_sub(room).max(2),
            around: None,
        };
        let around = overlap.map(|overlap| Around {
            before: overlap.before / chunk,
            behind: overlap.behind.div_ceil(chunk),
            pause: chunks(CUT_MS.into()),
        });
        let limits = Limits {
            around: around.filter(|around| around.before + around.behind < limits.most),
            ..limits
        };
        vad.reset();
        let before_samples = (u64::from(rate) * u64::from(options.before_ms) / 1000) as usize;
        Ok(Stream {
            phrases: Phrases::new(limits),
            overlap,
            manner,
            margin: options
                .margin_ms
                .map(|ms| transcriber.ear.frames(f64::from(ms) / 1000.0)),
            pending: Vec::with_capacity(chunk),
            before: VecDeque::with_capacity(before_samples + chunk),
            before_samples,
            heard: 0,
            next_id: 0,
            phrase: None,
            spare: Vec::new(),
            most_samples: (limits.most + room) * chunk,
            spoken_s: 0.0,
            probabilities: Vec::new(),
            options,
            vad,
        })
    }

    /// Takes samples: mono, from -1 to 1, [`Transcriber::sample_rate_hz`] of them a second, as many as there are. `transcriber` is the
    /// one that the stream was made for.
    ///
    /// # Errors
    /// A sample that is no number, or far beyond 1: nothing was taken then. After `cancel`, the phrase is lost.
    pub fn push(
        &mut self,
        transcriber: &mut Transcriber,
        samples: &[f32],
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let mut probabilities = std::mem::take(&mut self.probabilities);
        probabilities.clear();
        probabilities.extend_from_slice(self.vad.push(samples)?);
        let mut rest = samples;
        let chunk = self.vad.chunk_samples();
        let mut done = Ok(());
        for &probability in &probabilities {
            let (now, later) = rest.split_at(chunk - self.pending.len());
            self.pending.extend_from_slice(now);
            rest = later;
            let whole = std::mem::take(&mut self.pending);
            done = done.and_then(|()| self.chunk(transcriber, &whole, probability, cancel, each));
            self.pending = whole;
            self.pending.clear();
        }
        self.pending.extend_from_slice(rest);
        self.probabilities = probabilities;
        done
    }

    /// The sound is over: what is spoken becomes final. A new one may begin after it.
    ///
    /// # Errors
    /// After `cancel`.
    pub fn finish(
        &mut self,
        transcriber: &mut Transcriber,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        self.heard += self.pending.len() as u64;
        let is_speech = self.phrases.finish();
        self.vad.reset();
        self.before.clear();
        if let Some(phrase) = &mut self.phrase {
            phrase.samples.extend_from_slice(&self.pending);
        }
        self.pending.clear();
        let Some(mut phrase) = self.phrase.take() else {
            return Ok(());
        };
        if is_speech {
            self.close(
                transcriber,
                &mut phrase,
                (FinalReason::End, 0),
                Then::Nothing,
                cancel,
                each,
            )?;
        }
        each(StreamEvent::SpeechEnd {
            id: phrase.id,
            end_s: self.seconds(self.heard),
        });
        self.spare = phrase.samples;
        Ok(())
    }

    fn seconds(&self, samples: u64) -> f64 {
        samples as f64 / f64::from(self.vad.sample_rate_hz())
    }

    fn chunk(
        &mut self,
        transcriber: &mut Transcriber,
        samples: &[f32],
        probability: f32,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let change = self.phrases.push(f64::from(probability));
        if change == Change::Begin {
            let lead = self.before.len();
            let mut sound = self.room();
            sound.extend(self.before.drain(..));
            self.begin(self.heard - lead as u64, sound, [lead; 2], each);
        }
        self.heard += samples.len() as u64;
        let Some(phrase) = &mut self.phrase else {
            let surplus = (self.before.len() + samples.len()).saturating_sub(self.before_samples);
            self.before.extend(samples);
            self.before.drain(..surplus.min(self.before.len()));
            return Ok(());
        };
        phrase.samples.extend_from_slice(samples);
        if self.phrases.silent() == 0 {
            phrase.ready = None;
        }
        match change {
            Change::End(silent) | Change::Drop(silent) => {
                let Some(mut phrase) = self.phrase.take() else {
                    return Ok(());
                };
                let closed = match change {
                    Change::End(_) => {
                        let reason = (FinalReason::Silence, silent);
                        self.close(transcriber, &mut phrase, reason, Then::Nothing, cancel, each)
                    }
                    _ => Ok(()),
                };
                let silence = silent * samples.len();
                each(StreamEvent::SpeechEnd {
                    id: phrase.id,
                    end_s: self.seconds(self.heard - silence as u64),
                });
                // The silence may be the beginning of what comes.
                let kept = silence.min(self.before_samples).min(phrase.samples.len());
                self.before.extend(&phrase.samples[phrase.samples.len() - kept..]);
                self.spare = phrase.samples;
                closed
            }
            Change::Cut { at, before } => {
                let Some(mut phrase) = self.phrase.take() else {
                    return Ok(());
                };
                let at = (phrase.lead + at * samples.len()).min(phrase.samples.len());
                let cut = phrase.start + at as u64;
                let overlap = self.overlap.filter(|_| before > 0);
                // What the next phrase hears first, and what becomes of this one.
                let (first, then) = match overlap {
                    Some(overlap) => (
                        at.saturating_sub(overlap.before) / overlap.position * overlap.position,
                        Then::Next(at),
                    ),
                    None => (at, Then::Nothing),
                };
                let mut later = self.room();
                later.extend_from_slice(&phrase.samples[first..]);
                let goes_on = overlap.is_some();
                let lead = if goes_on {
                    at - first - before * samples.len()
                } else {
                    0
                };
                if !goes_on {
                    phrase.samples.truncate(at);
                }
                phrase.ready = None;
                let reason = (FinalReason::Length, 0);
                let closed = self.close(transcriber, &mut phrase, reason, then, cancel, each);
                each(StreamEvent::SpeechEnd {
                    id: phrase.id,
                    end_s: self.seconds(cut),
                });
                let behind = phrase.behind_cut(transcriber, first, goes_on);
                self.begin(phrase.start + first as u64, later, [lead, at - first], each);
                if let Some(phrase) = &mut self.phrase {
                    phrase.behind = behind;
                }
                self.spare = phrase.samples;
                closed
            }
            Change::Pause => self.pause(transcriber, cancel, each),
            Change::None | Change::Begin => match self.phrases.silent() {
                0 => self.step(transcriber, cancel, each),
                // What was said was written when the silence began, or will be.
                _ => Ok(()),
            },
        }
    }

    /// Begins a phrase whose `samples` are from `start` on. So many of them lie before its first chunk, and before it is spoken.
    fn begin(&mut self, start: u64, samples: Vec<f32>, [lead, before]: [usize; 2], each: &mut dyn FnMut(StreamEvent)) {
        let id = self.next_id;
        self.next_id += 1;
        each(StreamEvent::SpeechStart {
            id,
            start_s: self.seconds(start + before as u64),
        });
        let next = samples.len() + self.step_samples();
        self.phrase = Some(Phrase::new(id, start, samples, lead, next));
    }

    /// Memory for the sound of a phrase.
    fn room(&mut self) -> Vec<f32> {
        let mut room = std::mem::take(&mut self.spare);
        room.clear();
        room.reserve_exact(self.most_samples);
        room
    }

    fn step_samples(&self) -> usize {
        let rate = u64::from(self.vad.sample_rate_hz());
        (rate * u64::from(self.options.step_ms) / 1000) as usize
    }

    fn orders<'a>(&'a self, cancel: &'a CancelToken) -> Orders<'a> {
        Orders {
            options: &self.options.transcribe,
            commit: self.options.commit,
            margin: self.margin,
            cancel,
        }
    }

    /// Writes the phrase so far, where enough was said since the last time.
    fn step(
        &mut self,
        transcriber: &mut Transcriber,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let step = self.step_samples();
        let is_due = |phrase: &mut Phrase| step > 0 && phrase.samples.len() >= phrase.next;
        let Some(mut phrase) = self.phrase.take_if(is_due) else {
            return Ok(());
        };
        let written = self.manner.write(transcriber, &mut phrase, self.orders(cancel));
        self.wrote(transcriber, phrase, written, each)
    }

    /// Writes the phrase as if it were over: then its text is there already when it is.
    fn pause(
        &mut self,
        transcriber: &mut Transcriber,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let Some(mut phrase) = self.phrase.take() else {
            return Ok(());
        };
        let times = self.times(&phrase, self.phrases.silent());
        let ready = self
            .manner
            .ready(transcriber, &mut phrase, self.orders(cancel), times, Then::Perhaps);
        let written = ready.map(|ready| {
            if ready.is_sentence() {
                self.phrases.said();
            }
            phrase.ready = Some(ready);
        });
        self.wrote(transcriber, phrase, written, each)
    }

    /// Says what is written of a phrase that goes on.
    fn wrote(
        &mut self,
        transcriber: &Transcriber,
        mut phrase: Phrase,
        written: Result<()>,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        phrase.next = phrase.samples.len() + self.step_samples();
        let surroundings = transcriber.surroundings();
        let event = StreamEvent::Partial {
            id: phrase.id,
            committed: surroundings.text(&[], &phrase.committed),
            volatile: surroundings.text(&phrase.committed, &phrase.draft),
            until_s: self.seconds(self.heard),
        };
        self.phrase = Some(phrase);
        written.map(|()| each(event))
    }

    /// The times of a phrase with so many chunks of silence at its end.
    fn times(&self, phrase: &Phrase, silent: usize) -> Times {
        let begin_s = self.seconds(phrase.start);
        let silence = (silent * self.vad.chunk_samples()).min(phrase.samples.len());
        let spoken = phrase.samples.len() - silence;
        Times {
            begin_s,
            start_s: begin_s + self.seconds(phrase.lead as u64),
            end_s: self.seconds(phrase.start + spoken as u64),
        }
    }

    /// Makes the text of a phrase final that ends with so many chunks of silence.
    fn close(
        &mut self,
        transcriber: &mut Transcriber,
        phrase: &mut Phrase,
        (reason, silent): (FinalReason, usize),
        then: Then,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let ready = match phrase.ready.take() {
            Some(ready) => ready,
            None => {
                let times = self.times(phrase, silent);
                self.manner
                    .ready(transcriber, phrase, self.orders(cancel), times, then)?
            }
        };
        let written = self.manner.settle(ready, &mut self.spoken_s);
        if let Some(segment) = written.filter(|segment| !segment.text.trim().is_empty()) {
            each(StreamEvent::Final {
                segment,
                language: phrase.language.clone(),
                reason,
                until_s: self.seconds(self.heard),
                sound: match self.options.keep_sound {
                    true => phrase.samples.clone(),
                    false => Vec::new(),
                },
            });
        }
        Ok(())
    }
}
