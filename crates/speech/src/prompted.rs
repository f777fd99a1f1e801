//! One window of sound: from the encoder's states to the tokens that the decoder writes, at one temperature after the other.

use crate::rules::{Rules, logprob};
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_engine::sampler::Sampler;
use cactus_engine::{CancelToken, GenerateOptions};
use cactus_runtime::{Execution, Head, Logits};
use cactus_text::Tokenizer;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write as _;

/// Temperatures of the tries, until one looks right.
const TEMPERATURES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Texts drawn at a temperature above 0, of which the likeliest counts.
const DRAWS: u64 = 5;
/// Text that zlib makes smaller than by this factor repeats itself.
const MOST_COMPRESSION: f64 = 2.4;
/// Mean log-probability below which a try looks wrong.
const LEAST_LOGPROB: f64 = -1.0;
/// Probability of no speech from which a window counts as silent, if its text is unlikely, too.
const SILENT: f64 = 0.6;

/// What the decoder wrote of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// Without the token that ends it.
    pub(crate) tokens: Vec<u32>,
    /// Of each token.
    pub(crate) logprobs: Vec<f64>,
    /// Mean over the tokens and the one that ends them.
    pub(crate) mean_logprob: f64,
    pub(crate) no_speech: f64,
    pub(crate) temperature: f64,
    /// Bytes of its text by bytes of the same text compressed.
    pub(crate) compression: f64,
}

impl Written {
    /// Whether nobody speaks.
    pub(crate) fn is_silent(&self) -> bool {
        self.no_speech > SILENT && self.mean_logprob <= LEAST_LOGPROB
    }

    fn looks_right(&self) -> bool {
        let repeats = self.compression > MOST_COMPRESSION;
        self.is_silent() || !(repeats || self.mean_logprob < LEAST_LOGPROB)
    }
}

/// What a window is decoded with.
pub(crate) struct Window<'a> {
    pub(crate) execution: &'a mut Execution,
    pub(crate) pool: &'a Pool,
    pub(crate) threads: usize,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) rules: &'a Rules,
    /// Text from before, the start, language and task.
    pub(crate) prompt: &'a [u32],
    /// Where the start stands in the prompt.
    pub(crate) start: usize,
    pub(crate) no_speech: Option<u32>,
    pub(crate) most_tokens: usize,
    pub(crate) cancel: &'a CancelToken,
}

impl Window<'_> {
    /// Writes until a try looks right; of those that do not, the likeliest of those that do not repeat themselves.
    pub(crate) fn write(&mut self) -> Result<Written> {
        let mut tries: Vec<Written> = Vec::new();
        let likelier = |a: &Written, b: &Written| a.mean_logprob.total_cmp(&b.mean_logprob);
        for temperature in TEMPERATURES {
            let draws = if temperature > 0.0 { DRAWS } else { 1 };
            let drawn: Result<Vec<Written>> = (0..draws).map(|seed| self.attempt(temperature, seed)).collect();
            let Some(written) = drawn?.into_iter().max_by(likelier) else {
                continue;
            };
            if written.looks_right() {
                return Ok(written);
            }
            tries.push(written);
        }
        let better = |a: &Written, b: &Written| {
            let repeats = |w: &Written| w.compression > MOST_COMPRESSION;
            let order = repeats(b).cmp(&repeats(a));
            order.then(likelier(a, b))
        };
        Ok(tries.into_iter().max_by(better).unwrap_or_default())
    }

    fn attempt(&mut self, temperature: f64, seed: u64) -> Result<Written> {
        let vocabulary = self.execution.program().vocab_size();
        let options = GenerateOptions {
            temperature: temperature as f32,
            // The same sound has the same text.
            seed: Some(seed),
            ..GenerateOptions::default()
        };
        let mut sampler = Sampler::new(&options, vocabulary).map_err(|e| Error::Option(e.to_string()))?;
        self.execution.clear();
        let (mut row, mut no_speech) = (Vec::new(), 0.0);
        let (start, token) = (self.start, self.no_speech);
        let mut each = |position: usize, logits: Logits<'_>| {
            if position == start {
                no_speech = token.map_or(0.0, |token| logprob(&logits, token).exp());
            }
            row.clear();
            row.extend_from_slice(&logits);
        };
        let head = Head::From(start, &mut each);
        self.execution.run(self.pool, self.threads, self.prompt, head)?;
        let mut written = Written {
            no_speech,
            temperature,
            ..Written::default()
        };
        let mut sum = 0.0;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            self.rules.apply(&written.tokens, &mut row);
            let drawn = sampler.sample(&row).map_err(|e| Error::Model(e.to_string()))?;
            let chance = logprob(&row, drawn.token);
            sum += chance;
            if drawn.token == self.rules.end {
                break;
            }
            written.tokens.push(drawn.token);
            written.logprobs.push(chance);
            if written.tokens.len() >= self.most_tokens {
                break;
            }
            self.execution
                .run(self.pool, self.threads, &[drawn.token], Head::Last)?;
            row.clear();
            row.extend_from_slice(&self.execution.logits());
        }
        written.mean_logprob = sum / (written.tokens.len() + 1) as f64;
        let text: Vec<u32> = written
            .tokens
            .iter()
            .copied()
            .filter(|&t| !self.rules.is_stamp(t))
            .collect();
        written.compression = compression(&self.tokenizer.decode(&text, true));
        Ok(written)
    }
}

/// Bytes of a text by bytes of it compressed; 1 for none.
fn compression(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    match packed {
        Ok(packed) if !text.is_empty() => text.len() as f64 / packed.len().max(1) as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_text_is_found_by_its_compression() {
        assert_eq!(compression(""), 1.0);
        assert!(compression("And so my fellow Americans, ask not what your country can do for you.") < 1.5);
        assert!(compression(&"Thank you. ".repeat(20)) > MOST_COMPRESSION);
    }

    #[test]
    fn silence_is_right_and_repetition_is_not() {
        let written = |mean_logprob, no_speech, compression| Written {
            mean_logprob,
            no_speech,
            compression,
            ..Written::default()
        };
        for (found, silent, right) in [
            (written(-0.2, 0.1, 1.5), false, true),
            (written(-0.2, 0.9, 1.5), false, true),
            (written(-1.2, 0.9, 1.5), true, true),
            (written(-1.2, 0.1, 1.5), false, false),
            (written(-0.2, 0.1, 3.0), false, false),
        ] {
            assert_eq!((found.is_silent(), found.looks_right()), (silent, right), "{found:?}");
        }
    }
}
