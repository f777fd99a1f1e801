//! Live speech: sound comes in pieces of any size, and text comes while somebody speaks.
//!
//! A [`Vad`] cuts the sound into phrases. While one is spoken it is written again and again, each time with the last text as a
//! draft that is verified in one pass; what two texts in a row agree on is committed (LocalAgreement-2, Macháček et al. 2023,
//! arXiv 2307.14743), and everything later continues it. Or a text is committed at once, as far as the model looked at sound that is
//! over when it wrote it ([`Commit::Attention`]). When the phrase ends, its text is final.
//!
//! Everything happens at fixed places of the sound, so no event depends on how the sound was cut into pieces, nor on how fast
//! the machine is.

mod phrase;

use crate::heard::Overlap;
use crate::phrases::{Around, Change, Limits, Phrases};
use crate::transcript::in_milliseconds;
use crate::{Error, Result, Segment, TranscribeOptions, Transcriber, Vad};
use cactus_engine::CancelToken;
use phrase::{Manner, Orders, Phrase, Times};
use serde::Serialize;
use std::collections::VecDeque;

/// Less speech is no phrase.
const LEAST_MS: u32 = 250;
/// Longest phrase, in seconds.
const MOST_S: f64 = 25.0;
/// Silence in which a phrase is cut, in milliseconds, where text can go on over a cut: less is no pause.
const PAUSE_MS: u32 = 100;
/// How far the probability may fall below the threshold within a phrase.
const LOWER: f64 = 0.15;

/// Which text of a phrase stays while it is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commit {
    /// What two texts in a row agree on (LocalAgreement-2). Every model can do this.
    #[default]
    Agreement,
    /// What was written while the model looked at sound half a second before the end (AlignAtt): text stays a step earlier. For models
    /// that say where they look, as Whisper does.
    Attention,
}

/// How live speech is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOptions {
    /// How each phrase is transcribed. The text before, which `carry_tokens` keeps, is that of the phrases before.
    pub transcribe: TranscribeOptions,
    /// New sound after which a phrase is written again while it is spoken, in milliseconds; with 0 only finals come. Default 1000.
    pub step_ms: u32,
    /// Which text stays meanwhile.
    pub commit: Commit,
    /// Silence that ends a phrase, in milliseconds. Default 500.
    pub silence_ms: u32,
    /// Longer phrases are cut, in seconds, at their longest silence. At most the window of the model, and by default that or 25.
    pub most_s: Option<f64>,
    /// Probability at which speech begins, from 0 to 1. Default 0.5.
    pub threshold: f64,
    /// Sound before a phrase that belongs to it, in milliseconds: first consonants are quiet. At most half of the longest
    /// phrase. Default 400.
    pub before_ms: u32,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            transcribe: TranscribeOptions::default(),
            step_ms: 1000,
            commit: Commit::default(),
            silence_ms: 500,
            most_s: None,
            threshold: 0.5,
            before_ms: 400,
        }
    }
}

/// Why a phrase is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalReason {
    /// Nobody speaks any more.
    Silence,
    /// It became too long.
    Length,
    /// The sound is over.
    End,
}

/// What happens in live speech. Times are in seconds from the beginning of the sound.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamEvent {
    /// Somebody begins to speak.
    SpeechStart {
        /// Number of the phrase, from 0.
        id: usize,
        /// When.
        #[serde(serialize_with = "in_milliseconds")]
        start_s: f64,
    },
    /// What is said so far.
    Partial {
        /// Number of the phrase.
        id: usize,
        /// Text that stays: each event of the phrase has the one before and perhaps more, and so has its final text.
        committed: String,
        /// Text after it that may still change.
        volatile: String,
        /// Up to where the sound was heard.
        #[serde(serialize_with = "in_milliseconds")]
        until_s: f64,
    },
    /// What was said. Nothing of it changes any more.
    Final {
        /// The text; its `id` is that of the phrase.
        segment: Segment,
        /// Code of the language; `None` of a model that knows only one.
        #[serde(skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// Why now.
        reason: FinalReason,
    },
    /// The phrase is over, with a final text or without: noise has none.
    SpeechEnd {
        /// Number of the phrase.
        id: usize,
        /// When.
        #[serde(serialize_with = "in_milliseconds")]
        end_s: f64,
    },
}

/// Live speech on its way. It holds no model that writes: one [`Transcriber`] can serve several streams by turns.
#[derive(Debug)]
pub struct Stream {
    options: StreamOptions,
    vad: Vad,
    phrases: Phrases,
    /// Samples of silence that end a phrase.
    silence: usize,
    /// How text goes on over a cut.
    overlap: Option<Overlap>,
    manner: Manner,
    /// Samples of the chunk that is not whole, and before them the end of the silence.
    pending: Vec<f32>,
    before: VecDeque<f32>,
    before_samples: usize,
    /// Samples up to the end of the last whole chunk.
    heard: u64,
    next_id: usize,
    phrase: Option<Phrase>,
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
        let manner = Manner::of(transcriber.prepare(&options.transcribe)?);
        if options.commit == Commit::Attention {
            transcriber.prepare_attention()?;
        }
        let chunk = vad.chunk_samples();
        let chunks = |ms: f64| ((ms * f64::from(rate) / 1000.0 / chunk as f64).ceil() as usize).max(1);
        let most = (most_s * f64::from(rate)) as usize;
        let overlap = transcriber.ear.overlap().and_then(|overlap| overlap.within(most));
        // Room for the sound before.
        let room = chunks(options.before_ms.into()).max(overlap.map_or(0, |overlap| overlap.position / chunk + 2));
        let limits = Limits {
            threshold: options.threshold,
            lower: (options.threshold - LOWER).max(0.01),
            silence: chunks(options.silence_ms.into()),
            least: chunks(LEAST_MS.into()),
            most: (most / chunk).saturating_sub(room).max(2),
            around: None,
        };
        let around = overlap.map(|overlap| Around {
            before: overlap.before / chunk,
            behind: overlap.behind.div_ceil(chunk),
            pause: chunks(PAUSE_MS.into()),
        });
        let limits = Limits {
            around: around.filter(|around| around.before + around.behind < limits.most),
            ..limits
        };
        vad.reset();
        Ok(Stream {
            phrases: Phrases::new(limits),
            silence: limits.silence * chunk,
            overlap,
            manner,
            pending: Vec::with_capacity(chunk),
            before: VecDeque::new(),
            before_samples: (u64::from(rate) * u64::from(options.before_ms) / 1000) as usize,
            heard: 0,
            next_id: 0,
            phrase: None,
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
        let rest = std::mem::take(&mut self.pending);
        self.heard += rest.len() as u64;
        let is_speech = self.phrases.finish();
        self.vad.reset();
        self.before.clear();
        let Some(mut phrase) = self.phrase.take() else {
            return Ok(());
        };
        phrase.samples.extend_from_slice(&rest);
        if is_speech {
            self.close(transcriber, &mut phrase, FinalReason::End, None, cancel, each)?;
        }
        each(StreamEvent::SpeechEnd {
            id: phrase.id,
            end_s: self.seconds(self.heard),
        });
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
            let before = self.before.len() as u64;
            let samples = self.before.drain(..).collect();
            self.begin(self.heard - before, samples, [before as usize; 2], each);
        }
        self.heard += samples.len() as u64;
        let Some(phrase) = &mut self.phrase else {
            let surplus = (self.before.len() + samples.len()).saturating_sub(self.before_samples);
            self.before.extend(samples);
            self.before.drain(..surplus.min(self.before.len()));
            return Ok(());
        };
        phrase.samples.extend_from_slice(samples);
        match change {
            Change::End | Change::Drop => {
                let Some(mut phrase) = self.phrase.take() else {
                    return Ok(());
                };
                let closed = match change {
                    Change::End => self.close(transcriber, &mut phrase, FinalReason::Silence, None, cancel, each),
                    _ => Ok(()),
                };
                each(StreamEvent::SpeechEnd {
                    id: phrase.id,
                    end_s: self.seconds(self.heard - self.silence as u64),
                });
                // The silence may be the beginning of what comes.
                let kept = self.silence.min(self.before_samples).min(phrase.samples.len());
                self.before.extend(&phrase.samples[phrase.samples.len() - kept..]);
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
                let (first, until) = match overlap {
                    Some(overlap) => (
                        at.saturating_sub(overlap.before) / overlap.position * overlap.position,
                        Some(at),
                    ),
                    None => (at, None),
                };
                let (later, lead) = match until {
                    Some(_) => (phrase.samples[first..].to_vec(), at - first - before * samples.len()),
                    None => (phrase.samples.split_off(at), 0),
                };
                let closed = self.close(transcriber, &mut phrase, FinalReason::Length, until, cancel, each);
                each(StreamEvent::SpeechEnd {
                    id: phrase.id,
                    end_s: self.seconds(cut),
                });
                let behind = phrase.behind_cut(transcriber, first, until.is_some());
                self.begin(phrase.start + first as u64, later, [lead, at - first], each);
                if let Some(phrase) = &mut self.phrase {
                    phrase.behind = behind;
                }
                closed
            }
            Change::None | Change::Begin => self.step(transcriber, cancel, each),
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

    fn step_samples(&self) -> usize {
        let rate = u64::from(self.vad.sample_rate_hz());
        (rate * u64::from(self.options.step_ms) / 1000) as usize
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
        phrase.next = phrase.samples.len() + step;
        let orders = Orders {
            options: &self.options.transcribe,
            commit: self.options.commit,
            cancel,
        };
        let written = self.manner.write(transcriber, &mut phrase, orders);
        let event = StreamEvent::Partial {
            id: phrase.id,
            committed: transcriber.surroundings().text(&[], &phrase.committed),
            volatile: transcriber.surroundings().text(&phrase.committed, &phrase.draft),
            until_s: self.seconds(self.heard),
        };
        self.phrase = Some(phrase);
        written.map(|()| each(event))
    }

    /// Writes the final text of a phrase: of the words that begin before sample `until`, where somebody speaks on.
    fn close(
        &mut self,
        transcriber: &mut Transcriber,
        phrase: &mut Phrase,
        reason: FinalReason,
        until: Option<usize>,
        cancel: &CancelToken,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<()> {
        let (start_s, end_s) = (
            self.seconds(phrase.start),
            self.seconds(phrase.start + phrase.samples.len() as u64),
        );
        let times = Times {
            begin_s: start_s,
            start_s: start_s + self.seconds(phrase.lead as u64),
            end_s: match reason {
                FinalReason::Silence => end_s - self.seconds(self.silence as u64),
                _ => end_s,
            },
        };
        let orders = Orders {
            options: &self.options.transcribe,
            commit: self.options.commit,
            cancel,
        };
        let written = self
            .manner
            .close(transcriber, phrase, orders, times, until, &mut self.spoken_s)?;
        if let Some(segment) = written.filter(|segment| !segment.text.trim().is_empty()) {
            each(StreamEvent::Final {
                segment,
                language: phrase.language.clone(),
                reason,
            });
        }
        Ok(())
    }
}
