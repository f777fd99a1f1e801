//! One answer as it grows: which token comes next, what text that makes, and whether it is the end.
//!
//! Purpose: what a session and a scheduler do with the logits of a row, once for both. It may depend on the sampler, stop
//! strings, constraints and the detokenizer. It deliberately computes no logits and does not know where they come from.

use crate::completion::{Completion, Delta, FinishReason, TokenInfo};
use crate::memory::ProcessMemory;
use crate::options::GenerateOptions;
use crate::sampler::{Sampled, Sampler};
use crate::stop::StopMatcher;
use crate::{Error, Model, Result, Signal};
use cactus_runtime::Logits;
use cactus_text::grammar::Constraint;
use cactus_text::{StreamDecoder, Tokenizer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a generation is held to beside its options.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// What the answer must follow.
    pub(crate) constraint: Option<Constraint>,
    /// Special tokens are given out by their spelling instead of being left out.
    pub(crate) keep_special: bool,
    /// The tokens of the prompt from this place on are scored too.
    pub(crate) score_from: Option<usize>,
    /// Tokens whose log-probabilities come with those of every token.
    pub(crate) watch: Vec<u32>,
    /// How sure the model was of each token is told.
    pub(crate) signals: bool,
}

/// An answer under way.
#[derive(Debug)]
pub(crate) struct Generation {
    model: Arc<Model>,
    tokenizer: Option<Arc<Tokenizer>>,
    options: GenerateOptions,
    sampler: Sampler,
    rules: Rules,
    decoder: StreamDecoder,
    matcher: StopMatcher,
    piece: String,
    special: String,
    released: String,
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenInfo>,
    prompt_logprobs: Vec<TokenInfo>,
    stopped: Option<usize>,
    /// Tokens that the constraint has taken and that are not said yet: where it is finished, they still have to be.
    ahead: usize,
    start: Instant,
    first_token: Option<Duration>,
    prompt_tokens: usize,
    /// Prompt tokens that were not computed for this answer.
    pub(crate) cached: usize,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
}

impl Generation {
    /// An answer to `prompt` that begins at `start`.
    pub(crate) fn new(
        model: &Arc<Model>,
        prompt: &[u32],
        options: &GenerateOptions,
        rules: Rules,
        start: Instant,
    ) -> Result<Self> {
        let mut sampler = Sampler::new(options, model.vocab_size())?;
        if options.ignore_eos {
            sampler.ban(model.eos());
        }
        sampler.watch(&rules.watch);
        // The prompt was made with tables of the bundle.
        model.bundle().intact()?;
        sampler.observe_prompt(prompt);
        Ok(Generation {
            tokenizer: model.tokenizer().ok().map(Arc::clone),
            model: Arc::clone(model),
            sampler,
            rules,
            decoder: StreamDecoder::new(true),
            matcher: StopMatcher::new(&options.stop, options.include_stop),
            piece: String::new(),
            special: String::new(),
            released: String::new(),
            text: String::new(),
            tokens: Vec::with_capacity(options.max_tokens.min(1 << 16)),
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
            stopped: None,
            ahead: 0,
            start,
            first_token: None,
            prompt_tokens: prompt.len(),
            cached: 0,
            drafted: 0,
            accepted: 0,
            options: options.clone(),
        })
    }

    /// The options.
    pub(crate) fn options(&self) -> &GenerateOptions {
        &self.options
    }

    /// Draws the token after the row of these logits. It is said by [`Generation::say`], or ends with the answer.
    pub(crate) fn draw(&mut self, logits: Logits<'_>) -> Result<Sampled> {
        let mut sampled = match &mut self.rules.constraint {
            None => self.sampler.sample(logits)?,
            Some(constraint) => {
                let sampled = self.sampler.sample_under(logits, constraint)?;
                if !self.model.eos().contains(&sampled.token) {
                    constraint.commit(sampled.token)?;
                    self.ahead += 1;
                }
                sampled
            }
        };
        if self.rules.signals {
            // The sampler has seen that they are numbers.
            let row = self.model.program().kernels().row_statistics(&logits);
            let signal = Signal::new(
                (row.max, row.second),
                (row.sum, row.moment),
                logits[sampled.token as usize],
            );
            sampled.signal = Some(signal);
        }
        Ok(sampled)
    }

    /// The tokens that have to come next, at most `most`: they need no logits, and are committed. None where
    /// log-probabilities were asked for, which do need logits.
    pub(crate) fn forced(&mut self, most: usize) -> Result<Vec<u32>> {
        let most = most.min(self.options.max_tokens.saturating_sub(self.tokens.len()));
        let Some(constraint) = &mut self.rules.constraint else {
            return Ok(Vec::new());
        };
        if self.options.logprobs.is_some() || self.stopped.is_some() || most == 0 {
            return Ok(Vec::new());
        }
        let mut forced = constraint.forced_tokens();
        forced.truncate(most);
        for &token in &forced {
            constraint.commit(token)?;
            self.ahead += 1;
            self.sampler.observe_answer(token);
        }
        Ok(forced)
    }

    /// Shortens guesses of the next tokens to those that the constraint allows.
    pub(crate) fn keep_allowed(&mut self, guesses: &mut Vec<u32>) -> Result<()> {
        if let Some(constraint) = &mut self.rules.constraint {
            let allowed = constraint.allowed_prefix(guesses)?;
            guesses.truncate(allowed);
        }
        Ok(())
    }

    /// Adds a token that was drawn to the answer, and shows what text it makes. Some where the answer ends with it.
    pub(crate) fn say(
        &mut self,
        sampled: Sampled,
        on_delta: &mut dyn FnMut(Delta<'_>),
    ) -> Result<Option<FinishReason>> {
        if self.first_token.is_none() {
            self.first_token = Some(self.start.elapsed());
        }
        if !self.options.ignore_eos && self.model.eos().contains(&sampled.token) {
            return Ok(Some(FinishReason::Stop));
        }
        self.push(sampled, on_delta)?;
        self.ahead = self.ahead.saturating_sub(1);
        let finished = self.ahead == 0 && self.rules.constraint.as_ref().is_some_and(Constraint::is_finished);
        Ok(if self.stopped.is_some() || finished {
            Some(FinishReason::Stop)
        } else if self.tokens.len() >= self.options.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        })
    }

    fn push(&mut self, sampled: Sampled, on_delta: &mut dyn FnMut(Delta<'_>)) -> Result<()> {
        let (token, signal) = (sampled.token, sampled.signal);
        self.tokens.push(token);
        self.released.clear();
        self.special.clear();
        if let Some(tokenizer) = &self.tokenizer {
            self.piece.clear();
            let spelling = match self.rules.keep_special && tokenizer.is_special(sampled.token) {
                true => tokenizer.token_text(sampled.token),
                false => None,
            };
            match spelling {
                None => {
                    self.decoder.push(tokenizer, sampled.token, &mut self.piece);
                    self.stopped = self.matcher.push(&self.piece, &mut self.released);
                }
                // No character and no stop string reaches across it.
                Some(spelling) => {
                    self.decoder.finish(tokenizer, &mut self.piece);
                    self.stopped = self.matcher.push(&self.piece, &mut self.released);
                    if self.stopped.is_none() {
                        self.matcher.finish(&mut self.released);
                        self.matcher = StopMatcher::new(&self.options.stop, self.options.include_stop);
                        self.special.push_str(&spelling);
                    }
                }
            }
        }
        self.text.push_str(&self.released);
        if self.options.logprobs.is_some() {
            let info = self.info(sampled);
            self.logprobs.push(info);
        }
        // Spellings are read from a mapped table.
        self.model.bundle().intact()?;
        on_delta(Delta {
            text: &self.released,
            special: (!self.special.is_empty()).then_some(&self.special),
            token: Some(token),
            logprob: self.logprobs.last(),
            signal,
        });
        Ok(())
    }

    fn info(&self, sampled: Sampled) -> TokenInfo {
        TokenInfo {
            token: sampled.token,
            text: match &self.tokenizer {
                Some(tokenizer) => tokenizer.decode(&[sampled.token], false),
                None => String::new(),
            },
            logprob: sampled.logprob.unwrap_or(f64::NAN),
            top: sampled.top,
            watched: sampled.watched,
        }
    }

    /// The first token of the prompt that is to be scored.
    pub(crate) fn scores_from(&self) -> Option<usize> {
        self.rules.score_from
    }

    /// Scores token `place` of the prompt, which is `token`, by the logits of the row before it. Those before it have been.
    pub(crate) fn score(&mut self, place: usize, token: u32, logits: Logits<'_>) -> Result<()> {
        // Computed again after it was put back, a prompt is scored only once.
        if self
            .rules
            .score_from
            .is_some_and(|from| place == from + self.prompt_logprobs.len())
        {
            let scored = self.sampler.describe(token, logits)?;
            let info = self.info(scored);
            self.prompt_logprobs.push(info);
        }
        Ok(())
    }

    /// Releases what was held back.
    pub(crate) fn end(&mut self, on_delta: &mut dyn FnMut(Delta<'_>)) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        self.released.clear();
        if let Some(tokenizer) = &self.tokenizer {
            self.piece.clear();
            self.decoder.finish(tokenizer, &mut self.piece);
            self.stopped = self.matcher.push(&self.piece, &mut self.released);
        }
        self.matcher.finish(&mut self.released);
        self.text.push_str(&self.released);
        self.model.bundle().intact()?;
        if !self.released.is_empty() {
            on_delta(Delta {
                text: &self.released,
                special: None,
                token: None,
                logprob: None,
                signal: None,
            });
        }
        Ok(())
    }

    /// Whether the text so far satisfies what it was held to; `true` without a constraint.
    fn is_whole(&mut self) -> bool {
        self.ahead == 0 && self.rules.constraint.as_mut().is_none_or(Constraint::is_accepting)
    }

    /// What came of it.
    pub(crate) fn completion(mut self, finish_reason: FinishReason) -> Completion {
        let total = self.start.elapsed().as_secs_f64();
        let first = self.first_token.map_or(total, |t| t.as_secs_f64());
        let decoded = self.tokens.len();
        Completion {
            whole: self.is_whole() || self.stopped.is_some(),
            response: self.text,
            finish_reason,
            stop: self.stopped.and_then(|i| self.options.stop.get(i).cloned()),
            time_to_first_token_ms: first * 1e3,
            total_time_ms: total * 1e3,
            prefill_tps: rate(self.prompt_tokens - self.cached, first),
            decode_tps: rate(decoded.saturating_sub(1), total - first),
            ram_usage_mb: ProcessMemory::now().resident.map(|b| b as f64 / 1e6),
            prefill_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            decode_tokens: decoded,
            drafted_tokens: self.drafted,
            accepted_tokens: self.accepted,
            total_tokens: self.prompt_tokens + decoded,
            seed: self.sampler.seed(),
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            completion_token_ids: self.tokens,
        }
    }
}

/// `n` for each second; 0 for no time.
pub(crate) fn rate(n: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

/// Checks a prompt against the context of `model`: it must leave room for one token of answer.
pub(crate) fn check_length(model: &Model, prompt: &[u32]) -> Result<()> {
    let context = model.program().context_tokens();
    match prompt.len() {
        0 => Err(Error::EmptyPrompt),
        n if n >= context => Err(Error::PromptTooLong { prompt: n, context }),
        _ => Ok(()),
    }
}
