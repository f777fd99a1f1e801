//! From probabilities to spans of speech, as `get_speech_timestamps` of Silero's package (6.2) does it.

use crate::{Error, Result};
use serde::Serialize;
use std::collections::VecDeque;

/// What counts as a span. Defaults are those of Silero's package.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanOptions {
    /// Speech begins at a chunk of this probability, from 0 to 1. Default 0.5.
    pub threshold: f64,
    /// It ends below this one. Default: `threshold` less 0.15, at least 0.01.
    pub neg_threshold: Option<f64>,
    /// Shorter spans are left out, in milliseconds. Default 250.
    pub min_speech_duration_ms: u32,
    /// Longer spans are cut, in seconds: at the longest silence in them, else where they become too long. Default: none is.
    pub max_speech_duration_s: Option<f64>,
    /// Silence that ends a span, in milliseconds. Default 100.
    pub min_silence_duration_ms: u32,
    /// How far spans are widened on each side, in milliseconds; two of them meet in the middle at most. Default 30.
    pub speech_pad_ms: u32,
    /// Shorter silence is no place to cut a span that is too long, in milliseconds. Default 98.
    pub min_silence_at_max_speech_ms: u32,
}

impl Default for SpanOptions {
    fn default() -> Self {
        SpanOptions {
            threshold: 0.5,
            neg_threshold: None,
            min_speech_duration_ms: 250,
            max_speech_duration_s: None,
            min_silence_duration_ms: 100,
            speech_pad_ms: 30,
            min_silence_at_max_speech_ms: 98,
        }
    }
}

impl SpanOptions {
    /// What is fit to cut silence out of a recording before it is transcribed: spans of any length, joined over less than two
    /// seconds of silence, and 400 ms on each side. faster-whisper's `vad_filter` does the same.
    #[must_use]
    pub fn for_transcription() -> Self {
        SpanOptions {
            min_speech_duration_ms: 0,
            min_silence_duration_ms: 2000,
            speech_pad_ms: 400,
            ..SpanOptions::default()
        }
    }

    fn end_threshold(&self) -> f64 {
        self.neg_threshold.unwrap_or((self.threshold - 0.15).max(0.01))
    }

    fn check(&self) -> Result<()> {
        let thresholds = [("threshold", self.threshold), ("neg_threshold", self.end_threshold())];
        for (name, found) in thresholds {
            if !(0.0..=1.0).contains(&found) {
                return Err(Error::Option(format!("`{name}` should be from 0 to 1, found {found}")));
            }
        }
        if self.end_threshold() > self.threshold {
            return Err(Error::Option(format!(
                "`neg_threshold` should not be above `threshold`, which is {}, found {}",
                self.threshold,
                self.end_threshold()
            )));
        }
        match self.max_speech_duration_s {
            Some(s) if s.is_nan() || s <= 0.0 => Err(Error::Option(format!(
                "`max_speech_duration_s` should be above 0, found {s}"
            ))),
            _ => Ok(()),
        }
    }
}

/// A stretch of speech, in samples from the beginning of the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Its first sample.
    pub start: u64,
    /// The sample after its last.
    pub end: u64,
}

/// Silence in a span that has not ended.
#[derive(Clone, Copy, Debug)]
struct Pause {
    start: u64,
    samples: u64,
}

/// Makes spans of probabilities, one chunk after the other. A span comes as soon as nothing that follows can change it, and the
/// spans are those of the whole recording at once.
#[derive(Clone, Debug)]
pub struct SpeechSpans {
    threshold: f64,
    end_threshold: f64,
    /// Samples, as the package computes them.
    least_speech: f64,
    most_speech: f64,
    least_silence: f64,
    pause_silence: f64,
    pad: f64,
    chunk: u64,
    /// The first sample of the next chunk.
    now: u64,
    /// Where the span under way begins.
    start: Option<u64>,
    /// Where it may have ended.
    silent_since: Option<u64>,
    pauses: Vec<Pause>,
    /// Spans that have ended and are not widened, or at their beginning alone.
    ended: VecDeque<Span>,
    /// Whether the first of them is widened at its beginning.
    begun: bool,
}

impl SpeechSpans {
    /// For chunks of `chunk_samples`, `sample_rate_hz` of them a second.
    ///
    /// # Errors
    /// An option that has no meaning.
    pub fn new(options: &SpanOptions, sample_rate_hz: u32, chunk_samples: usize) -> Result<SpeechSpans> {
        options.check()?;
        let rate = f64::from(sample_rate_hz);
        let samples = |ms: u32| rate * f64::from(ms) / 1000.0;
        let pad = samples(options.speech_pad_ms);
        let most = options.max_speech_duration_s.unwrap_or(f64::INFINITY);
        Ok(SpeechSpans {
            threshold: options.threshold,
            end_threshold: options.end_threshold(),
            least_speech: samples(options.min_speech_duration_ms),
            most_speech: rate * most - chunk_samples as f64 - 2.0 * pad,
            least_silence: samples(options.min_silence_duration_ms),
            pause_silence: samples(options.min_silence_at_max_speech_ms),
            pad,
            chunk: chunk_samples.max(1) as u64,
            now: 0,
            start: None,
            silent_since: None,
            pauses: Vec::new(),
            ended: VecDeque::new(),
            begun: false,
        })
    }

    /// Whether somebody speaks at the end of what was pushed, or has paused for less than what ends a span.
    #[must_use]
    pub fn is_speech(&self) -> bool {
        self.start.is_some()
    }

    /// Takes the probability of the next chunk, and gives the spans that are complete now.
    pub fn push(&mut self, probability: f32) -> impl Iterator<Item = Span> + use<> {
        let p = f64::from(probability);
        self.step(p);
        self.now += self.chunk;
        self.settle().into_iter()
    }

    fn step(&mut self, p: f64) {
        let now = self.now;
        if p >= self.threshold {
            if let Some(since) = self.silent_since.take()
                && (now - since) as f64 > self.pause_silence
            {
                self.pauses.push(Pause {
                    start: since,
                    samples: now - since,
                });
            }
            if self.start.is_none() {
                self.start = Some(now);
                return;
            }
        }
        let Some(mut start) = self.start else { return };
        if (now - start) as f64 > self.most_speech {
            // Of equally long ones the first.
            let longest = self.pauses.iter().rev().max_by_key(|pause| pause.samples).copied();
            self.silent_since = None;
            self.pauses.clear();
            match longest {
                Some(pause) => {
                    self.end(start, pause.start);
                    start = pause.start + pause.samples;
                    self.start = Some(start);
                }
                None => {
                    self.end(start, now);
                    self.start = None;
                    return;
                }
            }
        }
        if p < self.end_threshold {
            let since = *self.silent_since.get_or_insert(now);
            if (now - since) as f64 >= self.least_silence {
                if (since - start.min(since)) as f64 > self.least_speech {
                    self.end(start, since);
                }
                self.start = None;
                self.silent_since = None;
                self.pauses.clear();
            }
        }
    }

    fn end(&mut self, start: u64, end: u64) {
        self.ended.push_back(Span { start, end });
    }

    /// Widens what nothing can change any more. The next span begins where one is under way, or not before now.
    fn settle(&mut self) -> Vec<Span> {
        let mut out = Vec::new();
        while let Some(&first) = self.ended.front() {
            let next = self.ended.get(1).map(|span| span.start).or(self.start);
            let silence = next.unwrap_or(self.now).saturating_sub(first.end);
            // A span under way may still prove too short, and then it is none.
            let sure = self.ended.len() > 1 || silence as f64 >= 2.0 * self.pad;
            if !sure {
                break;
            }
            let wide = self.widened_start(first.start);
            self.ended.pop_front();
            let end = match (silence as f64) < 2.0 * self.pad {
                true => {
                    let half = silence / 2;
                    if let Some(next) = self.ended.front_mut() {
                        next.start = next.start.saturating_sub(half);
                    }
                    self.begun = true;
                    first.end + half
                }
                false => {
                    self.begun = false;
                    (first.end as f64 + self.pad) as u64
                }
            };
            out.push(Span { start: wide, end });
        }
        out
    }

    fn widened_start(&self, start: u64) -> u64 {
        match self.begun {
            true => start,
            false => (start as f64 - self.pad).max(0.0) as u64,
        }
    }

    /// The spans that are left of a sound of `samples`. Begins anew.
    pub fn finish(&mut self, samples: u64) -> impl Iterator<Item = Span> + use<> {
        if let Some(start) = self.start.take()
            && samples.saturating_sub(start) as f64 > self.least_speech
        {
            self.end(start, samples);
        }
        let mut out = self.settle();
        if let Some(last) = self.ended.pop_front() {
            out.push(Span {
                start: self.widened_start(last.start),
                end: ((last.end as f64 + self.pad) as u64).min(samples),
            });
        }
        // The last chunk may reach beyond the end.
        for span in &mut out {
            span.end = span.end.min(samples);
        }
        self.now = 0;
        self.silent_since = None;
        self.pauses.clear();
        self.begun = false;
        out.into_iter()
    }
}
