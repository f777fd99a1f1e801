//! Models whose text goes along with the sound: every position of the encoder says what is said there, so tokens have times.

mod alphabets;
mod ctc;
mod networks;
mod run;
mod search;
#[cfg(test)]
mod tests;
mod transducer;
mod utterance;

pub(crate) use alphabets::Lock;
pub(crate) use run::Run;
pub(crate) use utterance::{Stretch, whole};

use crate::features::{Ear, unknown};
use crate::hotwords::{Along, Hotwords};
use crate::{Error, MOST_BEAMS, Result, TranscribeOptions};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Ctc, Decoding};
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use cactus_text::Tokenizer;
use ctc::Logits;
use networks::{Pair, Sounding};
use std::sync::Arc;
use transducer::{Networks as _, Predicted, Rules};

/// A token, and the positions of the encoder that it is said at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// Natural logarithm of its probability.
    pub(crate) logprob: f64,
    pub(crate) start: usize,
    /// The position behind it; a token may have no length.
    pub(crate) end: usize,
}

/// What the options of a recording change in its text.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) hotwords: Hotwords,
    pub(crate) lock: Lock,
}

/// A walk along the sound: from behind what stays to position `until`, before which each of its tokens begins.
#[derive(Clone, Copy)]
struct Walk<'a> {
    beams: usize,
    hotwords: &'a Hotwords,
    behind: &'a Behind,
    until: usize,
    cancel: &'a CancelToken,
}

/// Where a walk has come. A token may last beyond its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reached {
    position: usize,
    /// Tokens of this position.
    symbols: usize,
    /// The token that goes on there.
    last: Option<u32>,
}

/// Where decoding goes on: behind text that stays, or at the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    /// The first position that is not decoded.
    pub(crate) position: usize,
    /// Tokens that stay there.
    symbols: usize,
    /// The last token that stays.
    pub(crate) last: Option<u32>,
    /// How far it has come among the hotwords.
    pub(crate) along: Along,
    /// What a transducer makes of the text so far; `None` at its beginning.
    predicted: Option<Predicted>,
}

/// A loaded model of this kind.
#[derive(Debug)]
pub(crate) struct Framewise {
    network: Network,
    /// Codes of the languages that it can be held to.
    languages: Vec<&'static str>,
    /// Samples of a position.
    position_samples: usize,
    pool: Pool,
    threads: usize,
    /// What the encoder gave of the sound: `[positions, width]`, all of it finite.
    heard: Vec<f32>,
    width: usize,
}

#[derive(Debug)]
enum Network {
    Ctc(Ctc),
    Transducer(Rules, Box<Pair>),
}

impl Framewise {
    /// Loads what `decoding` needs beside the encoder, which gives the tensor `output`; `None` for a record of another kind.
    ///
    /// # Errors
    /// Components that are missing or do not fit.
    pub(crate) fn load(
        bundle: &Arc<Bundle>,
        decoding: &Decoding,
        tokenizer: &Tokenizer,
        threads: usize,
    ) -> Result<Option<Framewise>> {
        let (network, position_samples) = match decoding {
            Decoding::Ctc(ctc) => (Network::Ctc(*ctc), ctc.position_samples),
            Decoding::Transducer(t) => {
                let rules = Rules {
                    blank: t.blank,
                    durations: t.durations.iter().map(|d| *d as usize).collect(),
                    most_symbols: t.most_symbols as usize,
                };
                (
                    Network::Transducer(rules, Box::new(Pair::load(bundle)?)),
                    t.position_samples,
                )
            }
            Decoding::Prompted(_) | Decoding::Activity {} => return Ok(None),
            other => return Err(unknown("decoding", other)),
        };
        Ok(Some(Framewise {
            network,
            languages: alphabets::written(tokenizer),
            position_samples: position_samples as usize,
            pool: Pool::new(threads),
            threads,
            heard: Vec::new(),
            width: 1,
        }))
    }

    /// Threads, and how many work at once.
    pub(crate) fn pool(&self) -> (&Pool, usize) {
        (&self.pool, self.threads)
    }

    /// Bytes of memory beside the mapped weights.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&self.heard[..])
    }

    /// Whether a model of this kind has these options.
    ///
    /// # Errors
    /// [`Error::Option`] with what to do.
    pub(crate) fn check(options: &TranscribeOptions) -> Result<()> {
        let refused = |what: &str| Err(Error::Option(what.to_owned()));
        if options.translate {
            return refused("this model does not translate; a multilingual Whisper may");
        }
        if options.carry_tokens > 0 {
            return refused("this model reads no text before, so there is nothing to carry; leave it at 0");
        }
        if !options.initial_prompt.trim().is_empty() {
            return refused("this model reads no text before, so it takes no initial prompt; names may be hotwords");
        }
        if options.hallucination_silence_s.is_some() {
            return refused(
                "this model writes nothing of silence, so there is nothing to look for beside it; leave the silence out",
            );
        }
        if options.beams > MOST_BEAMS {
            let found = options.beams;
            return refused(&format!("beams should be at most {MOST_BEAMS}, found {found}"));
        }
        if options.temperature != 0.0 {
            let found = options.temperature;
            return refused(&format!(
                "this model draws no tokens; leave the temperature at 0 (found {found})"
            ));
        }
        Ok(())
    }

    /// Codes of the languages that it can be held to.
    pub(crate) fn languages(&self) -> &[&'static str] {
        &self.languages
    }

    /// What keeps a text in a language.
    ///
    /// # Errors
    /// [`Error::Option`] for a language that this model does not write, or whose letters nobody knows.
    pub(crate) fn lock(&self, code: &str, tokenizer: &Tokenizer) -> Result<Lock> {
        let blank = match &self.network {
            Network::Ctc(ctc) => ctc.blank,
            Network::Transducer(rules, _) => rules.blank,
        };
        Lock::new(tokenizer, code, &self.languages, blank)
    }

    /// Where to begin in sound of which the first so many samples were already written down with the sound before it.
    pub(crate) fn behind(&self, samples: usize) -> Behind {
        Behind {
            position: samples.div_ceil(self.position_samples),
            ..Behind::default()
        }
    }

    /// The same place in sound that begins so many samples later, at a position.
    pub(crate) fn later(&self, behind: &Behind, samples: usize) -> Behind {
        Behind {
            position: behind.position.saturating_sub(samples / self.position_samples),
            ..behind.clone()
        }
    }

    /// Samples up to where decoding goes on.
    pub(crate) fn written(&self, behind: &Behind) -> usize {
        behind.position * self.position_samples
    }

    /// Forgets the sound.
    pub(crate) fn forget(&mut self) {
        self.heard = Vec::new();
    }

    /// Takes what the encoder gave: `[1, positions, width]`.
    pub(crate) fn hear(&mut self, states: &Tensor) -> Result<()> {
        let (&[1, _, width], Ok(values)) = (states.shape(), states.as_f32()) else {
            let found = states.shape();
            return Err(Error::Model(format!(
                "its encoder should give `[1, positions, width]` of floats, found {found:?}"
            )));
        };
        if let Network::Ctc(Ctc { blank, .. }) = self.network
            && blank as usize >= width
        {
            return Err(Error::Model(format!(
                "its encoder should give logits of the tokens up to the blank {blank}, found {width}"
            )));
        }
        self.width = width.max(1);
        self.heard.clear();
        self.heard.extend(values.iter().map(finite));
        Ok(())
    }

    /// So many frames of sound, from `begin_s` on, as its positions divide them.
    pub(crate) fn stretch(&self, ear: &Ear, begin_s: f64, frames: usize) -> Stretch {
        Stretch {
            begin_s,
            length_s: ear.seconds(frames),
            step_s: self.position_samples as f64 / f64::from(ear.sample_rate_hz()),
        }
    }

    /// The tokens of the sound that was heard, behind what stays.
    pub(crate) fn tokens(
        &mut self,
        beams: usize,
        wishes: &Wishes,
        behind: &Behind,
        cancel: &CancelToken,
    ) -> Result<Vec<Token>> {
        let (tokens, _) = self.walk(beams, wishes, behind, usize::MAX, cancel)?;
        Ok(tokens)
    }

    /// The tokens that begin before position `until`, behind which decoding goes on. What follows there was heard, too, so that they are
    /// those of the whole sound.
    pub(crate) fn go_on(
        &mut self,
        beams: usize,
        wishes: &Wishes,
        behind: &mut Behind,
        until: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<Token>> {
        let (tokens, reached) = self.walk(beams, wishes, behind, until, cancel)?;
        self.keep(&tokens, wishes, behind)?;
        (behind.position, behind.symbols, behind.last) = (reached.position, reached.symbols, reached.last);
        Ok(tokens)
    }

    /// As [`Framewise::go_on`], up to the first word that begins at sample `until` or behind it; up to there where none does.
    pub(crate) fn go_on_to_word(
        &mut self,
        beams: usize,
        wishes: &Wishes,
        behind: &mut Behind,
        until: usize,
        begins_word: &dyn Fn(u32) -> bool,
        cancel: &CancelToken,
    ) -> Result<Vec<Token>> {
        let least = until / self.position_samples;
        let heard = self.tokens(beams, wishes, behind, cancel)?;
        let word = heard.iter().find(|token| token.start >= least && begins_word(token.id));
        self.go_on(beams, wishes, behind, word.map_or(least, |token| token.start), cancel)
    }

    fn walk(
        &mut self,
        beams: usize,
        Wishes { hotwords, lock }: &Wishes,
        behind: &Behind,
        until: usize,
        cancel: &CancelToken,
    ) -> Result<(Vec<Token>, Reached)> {
        let walk = Walk {
            beams,
            hotwords,
            behind,
            until,
            cancel,
        };
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match &mut self.network {
            Network::Ctc(ctc) => {
                self.heard.chunks_exact_mut(self.width).for_each(|row| lock.apply(row));
                let logits = Logits {
                    values: &self.heard,
                    tokens: self.width,
                    blank: ctc.blank,
                };
                match beams {
                    0 | 1 => Ok(ctc::greedy(logits, walk)),
                    _ => ctc::search(logits, walk),
                }
            }
            Network::Transducer(rules, pair) => {
                let states = &self.heard[..];
                let mut networks = Sounding::new(pair, states, self.width, (&self.pool, self.threads), lock);
                let predicted = match &behind.predicted {
                    Some(predicted) => predicted.clone(),
                    None => transducer::begin(rules, &mut networks)?,
                };
                match beams {
                    0 | 1 => transducer::greedy(rules, &mut networks, walk, predicted),
                    _ => search::search(rules, &mut networks, walk, predicted),
                }
            }
        }
    }

    /// Lets decoding go on behind `tokens`, which follow what stayed before.
    pub(crate) fn keep(
        &mut self,
        tokens: &[Token],
        Wishes { hotwords, lock }: &Wishes,
        behind: &mut Behind,
    ) -> Result<()> {
        for token in tokens {
            behind.along = hotwords.step(behind.along, token.id).0;
            behind.last = Some(token.id);
            let Network::Transducer(rules, pair) = &mut self.network else {
                behind.position = token.end;
                continue;
            };
            let symbols = if token.start == behind.position {
                behind.symbols
            } else {
                0
            };
            let duration = if rules.durations.is_empty() {
                0
            } else {
                token.end - token.start
            };
            (behind.position, behind.symbols) = rules.advance(token.start, symbols, token.id, duration);
            let mut networks = Sounding::new(pair, &self.heard, self.width, (&self.pool, self.threads), lock);
            let before = match behind.predicted.take() {
                Some(predicted) => predicted,
                None => transducer::begin(rules, &mut networks)?,
            };
            behind.predicted = Some(networks.predict(Some(&before), token.id)?);
        }
        Ok(())
    }
}

/// What is no number counts as impossible.
fn finite(x: &f32) -> f32 {
    if x.is_nan() {
        f32::MIN
    } else {
        x.clamp(f32::MIN, f32::MAX)
    }
}

/// The token with the largest logit; of equals the first.
fn largest(logits: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (token, &logit) in (0..).zip(logits) {
        if logit > best.0 {
            best = (logit, token);
        }
    }
    best.1
}
