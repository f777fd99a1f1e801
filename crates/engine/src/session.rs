//! The mutable half of the engine: one conversation, its KV cache and the tokens it holds.

use crate::completion::{CancelToken, Completion, Delta, FinishReason, Overflow, Prefill, Score, TokenInfo};
use crate::memory::ProcessMemory;
use crate::options::GenerateOptions;
use crate::sampler::{Sampled, Sampler};
use crate::speculate::{DraftLength, Drafter, MAX_DRAFT_TOKENS, PromptLookup};
use crate::stop::StopMatcher;
use crate::{Error, Model, Result};
use cactus_bundle::Bundle;
use cactus_runtime::{Execution, Head, Logits};
use cactus_text::{StreamDecoder, Tokenizer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// One conversation with a model: its KV cache and what it holds. Sessions of one model are independent and may run on
/// different threads.
#[derive(Debug)]
pub struct Session {
    model: Arc<Model>,
    execution: Execution,
    /// Tokens whose states the execution holds.
    tokens: Vec<u32>,
    overflow: Overflow,
}

impl Session {
    pub(crate) fn new(model: Arc<Model>) -> Result<Session> {
        Ok(Session {
            execution: Execution::new(Arc::clone(model.program()))?,
            tokens: Vec::with_capacity(model.program().context_tokens()),
            model,
            overflow: Overflow::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Chooses what happens when the context is full.
    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.overflow = overflow;
    }

    /// Tokens whose states are held.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The execution, for profiles and tests.
    pub fn execution(&mut self) -> &mut Execution {
        &mut self.execution
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.execution.clear();
        self.tokens.clear();
    }

    /// Computes a prompt ahead of time. A later call whose prompt begins with it computes only the rest.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], or what the runtime found.
    pub fn prefill(&mut self, prompt: &[u32], cancel: &CancelToken) -> Result<Prefill> {
        let start = Instant::now();
        let prompt = self.fit(prompt)?;
        let cached = self.reuse(&prompt, prompt.len());
        self.feed(&prompt[cached..], false, cancel)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Prefill {
            prefill_tokens: prompt.len(),
            cached_tokens: cached,
            prefill_tps: rate(prompt.len() - cached, seconds),
            total_time_ms: seconds * 1e3,
        })
    }

    /// Computes `tokens` after those held, and leaves the logits after the last in
    /// [`Execution::logits`](cactus_runtime::Execution::logits): the step that [`Session::generate`] repeats, for callers
    /// that choose tokens themselves.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], or what the runtime found. `Ok(false)` where it was cancelled on the way.
    pub fn compute(&mut self, tokens: &[u32], cancel: &CancelToken) -> Result<bool> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.feed(tokens, true, cancel)
    }

    /// The most likely token by the logits that [`Session::compute`] left, the lowest id on a tie.
    pub fn best_token(&self) -> u32 {
        crate::sampler::best_token(self.execution.logits())
    }

    /// Answers `prompt`. `on_delta` gets each piece of text as soon as it is certain; `cancel` stops it from any thread.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`] (with [`Overflow::Error`]), an option out of range, logits that
    /// are no numbers.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        cancel: &CancelToken,
        on_delta: &mut dyn FnMut(Delta<'_>),
    ) -> Result<Completion> {
        let mut lookup = PromptLookup::default();
        let drafter: Option<&mut dyn Drafter> = match options.prompt_lookup {
            0 => None,
            _ => Some(&mut lookup),
        };
        self.generate_with(prompt, options, drafter, cancel, on_delta)
    }

    /// Answers `prompt` as [`Session::generate`] does, with the guesses of `drafter` to compute several tokens in one pass:
    /// the same answer, sooner where the guesses are good. At most [`GenerateOptions::prompt_lookup`] tokens are guessed at
    /// once, or [`MAX_DRAFT_TOKENS`] where that is 0. Models whose states cannot be rewound (short convolutions) decode
    /// plainly.
    ///
    /// # Errors
    /// As [`Session::generate`], and those of the drafter.
    pub fn generate_with(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        drafter: Option<&mut dyn Drafter>,
        cancel: &CancelToken,
        on_delta: &mut dyn FnMut(Delta<'_>),
    ) -> Result<Completion> {
        let start = Instant::now();
        let model = Arc::clone(&self.model);
        let mut sampler = Sampler::new(options, model.vocab_size())?;
        if options.ignore_eos {
            sampler.ban(model.eos());
        }
        // The prompt was made with tables of the bundle.
        model.bundle().intact()?;
        let prompt = self.fit(prompt)?;
        sampler.observe_prompt(&prompt);
        // The logits of the last token are needed, so it is computed again even where its state is held.
        let cached = self.reuse(&prompt, prompt.len() - 1);
        let mut answer = Answer::new(&model, options);
        let mut first_token = None;
        let mut finish = if self.feed(&prompt[cached..], true, cancel)? {
            None
        } else {
            Some(FinishReason::Cancelled)
        };
        let mut speculation = drafter
            .filter(|_| model.program().can_rewind(MAX_DRAFT_TOKENS))
            .map(|drafter| Speculation::new(drafter, options.prompt_lookup));
        while finish.is_none() {
            let ready = speculation.as_mut().and_then(|s| s.drawn.pop_front());
            let sampled = match ready {
                Some(sampled) => sampled,
                None => sampler.sample(self.execution.logits())?,
            };
            first_token.get_or_insert_with(|| start.elapsed());
            if !options.ignore_eos && model.eos().contains(&sampled.token) {
                finish = Some(FinishReason::Stop);
                break;
            }
            let token = sampled.token;
            answer.push(sampled, on_delta)?;
            finish = if answer.stopped.is_some() {
                Some(FinishReason::Stop)
            } else if answer.tokens.len() >= options.max_tokens {
                Some(FinishReason::Length)
            } else if cancel.is_cancelled() {
                Some(FinishReason::Cancelled)
            } else {
                match &mut speculation {
                    None => self.decode(token, cancel)?,
                    Some(s) if !s.drawn.is_empty() => None,
                    Some(s) => self.speculate(s, token, &mut sampler, cancel)?,
                }
            };
        }
        answer.finish(on_delta)?;
        let total = start.elapsed().as_secs_f64();
        let first = first_token.map_or(total, |t| t.as_secs_f64());
        let decoded = answer.tokens.len();
        Ok(Completion {
            response: answer.text,
            finish_reason: finish.unwrap_or(FinishReason::Stop),
            stop: answer.stopped.and_then(|i| options.stop.get(i).cloned()),
            time_to_first_token_ms: first * 1e3,
            total_time_ms: total * 1e3,
            prefill_tps: rate(prompt.len() - cached, first),
            decode_tps: rate(decoded.saturating_sub(1), total - first),
            ram_usage_mb: ProcessMemory::now().resident.map(|b| b as f64 / 1e6),
            prefill_tokens: prompt.len(),
            cached_tokens: cached,
            decode_tokens: decoded,
            drafted_tokens: speculation.as_ref().map_or(0, |s| s.drafted),
            accepted_tokens: speculation.as_ref().map_or(0, |s| s.accepted),
            total_tokens: prompt.len() + decoded,
            seed: sampler.seed(),
            logprobs: answer.logprobs,
            completion_token_ids: answer.tokens,
        })
    }

    /// Log-likelihood of `tokens[first..]`, each given all before it. The session begins anew and is empty afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] where `first` is 0 or past the end, [`Error::PromptTooLong`] where the tokens do not fit the
    /// context.
    pub fn score(&mut self, tokens: &[u32], first: usize) -> Result<Score> {
        if first == 0 || first >= tokens.len() {
            return Err(Error::Argument(format!(
                "scoring must start at a token from 1 to {}, found {first}",
                tokens.len().saturating_sub(1)
            )));
        }
        let context = self.execution.program().context_tokens();
        if tokens.len() - 1 > context {
            return Err(Error::PromptTooLong {
                prompt: tokens.len() - 1,
                context,
            });
        }
        self.reset();
        let model = Arc::clone(&self.model);
        let mut logprobs = Vec::with_capacity(tokens.len() - first);
        // The last token is only predicted, never read.
        let read = &tokens[..tokens.len() - 1];
        let mut position = 0;
        for chunk in read.chunks(self.execution.program().chunk_tokens()) {
            let wanted = (first - 1).saturating_sub(position);
            let mut each = |i: usize, logits: Logits<'_>| {
                logprobs.push(log_probability(&logits, tokens[position + i + 1]));
            };
            let head = if wanted >= chunk.len() {
                Head::Skip
            } else {
                Head::From(wanted, &mut each)
            };
            self.execution.run(model.pool(), model.threads(), chunk, head)?;
            position += chunk.len();
        }
        self.reset();
        Ok(Score {
            logprob: logprobs.iter().sum(),
            tokens: logprobs.len(),
            token_logprobs: logprobs,
        })
    }

    // ---- steps of a generation

    /// The prompt as the overflow policy lets it in, with room for one token of answer.
    fn fit(&self, prompt: &[u32]) -> Result<Vec<u32>> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let context = self.execution.program().context_tokens();
        if prompt.len() < context {
            return Ok(prompt.to_vec());
        }
        match self.overflow {
            Overflow::Rolling { sinks } if sinks + 2 <= context => Ok(roll(prompt, sinks, context - 1)),
            _ => Err(Error::PromptTooLong {
                prompt: prompt.len(),
                context,
            }),
        }
    }

    /// Keeps the states of the longest common prefix of what is held and `prompt`, at most `most` tokens. Returns its
    /// length.
    fn reuse(&mut self, prompt: &[u32], most: usize) -> usize {
        let common = self
            .tokens
            .iter()
            .zip(prompt)
            .take_while(|(a, b)| a == b)
            .count()
            .min(most);
        if self.execution.truncate(common) {
            self.tokens.truncate(common);
            return common;
        }
        self.reset();
        0
    }

    /// Computes `tokens` after what is held. `false` where it was cancelled on the way; what was computed stays.
    fn feed(&mut self, tokens: &[u32], logits: bool, cancel: &CancelToken) -> Result<bool> {
        let model = Arc::clone(&self.model);
        let size = self.execution.program().chunk_tokens();
        let mut rest = tokens;
        while !rest.is_empty() {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            let head = if logits && after.is_empty() {
                Head::Last
            } else {
                Head::Skip
            };
            let width = if chunk.len() == 1 {
                model.decode_threads()
            } else {
                model.threads()
            };
            self.execution.run(model.pool(), width, chunk, head)?;
            self.tokens.extend_from_slice(chunk);
            rest = after;
        }
        Ok(true)
    }

    /// Computes `token` and guesses of what follows in one pass, and draws the tokens after it for as long as the guesses
    /// are what is drawn, and one more. Some where the answer must end.
    fn speculate(
        &mut self,
        speculation: &mut Speculation<'_>,
        token: u32,
        sampler: &mut Sampler,
        cancel: &CancelToken,
    ) -> Result<Option<FinishReason>> {
        let past = self.tokens.len();
        let room = self.execution.program().context_tokens().saturating_sub(past + 1);
        let most = speculation.length.get().min(room);
        let ids = &mut speculation.ids;
        ids.clear();
        self.tokens.push(token);
        if most > 0 {
            speculation.drafter.draft(&self.tokens, most, ids)?;
            ids.truncate(most);
        }
        self.tokens.pop();
        if ids.is_empty() {
            return self.decode(token, cancel);
        }
        ids.insert(0, token);
        let mut drawn = Ok(());
        let mut right = 0;
        let mut each = |i: usize, logits: Logits<'_>| {
            // Guess `i` was right, so what comes after it can be drawn.
            if drawn.is_err() || i > right {
                return;
            }
            match sampler.sample(logits) {
                Ok(sampled) => {
                    right += usize::from(ids.get(i + 1) == Some(&sampled.token));
                    speculation.drawn.push_back(sampled);
                }
                Err(e) => drawn = Err(e),
            }
        };
        let model = Arc::clone(&self.model);
        self.execution
            .run(model.pool(), model.decode_threads(), ids, Head::From(0, &mut each))?;
        drawn?;
        let kept = past + 1 + right;
        self.tokens.extend_from_slice(&ids[..=right]);
        if !self.execution.truncate(kept) {
            // A program that says it can be rewound can.
            return Err(Error::Argument("the states of this model cannot be rewound".to_owned()));
        }
        speculation.drafted += ids.len() - 1;
        speculation.accepted += right;
        speculation.length.learn(ids.len() - 1, right);
        Ok(None)
    }

    /// Holds exactly `tokens`, with the logits after the last.
    pub(crate) fn follow(&mut self, tokens: &[u32]) -> Result<()> {
        let cached = self.reuse(tokens, tokens.len().saturating_sub(1));
        self.feed(&tokens[cached..], true, &CancelToken::new()).map(drop)
    }

    /// Computes the logits after `token`. Some where the answer must end.
    fn decode(&mut self, token: u32, cancel: &CancelToken) -> Result<Option<FinishReason>> {
        let context = self.execution.program().context_tokens();
        if self.tokens.len() >= context {
            match self.overflow {
                Overflow::Rolling { sinks } if sinks + 2 <= context => {
                    let kept = roll(&self.tokens, sinks, sinks + (context - sinks) / 2);
                    self.reset();
                    if !self.feed(&kept, false, cancel)? {
                        return Ok(Some(FinishReason::Cancelled));
                    }
                }
                _ => return Ok(Some(FinishReason::ContextFull)),
            }
        }
        let model = Arc::clone(&self.model);
        self.execution
            .run(model.pool(), model.decode_threads(), &[token], Head::Last)?;
        self.tokens.push(token);
        Ok(None)
    }
}

/// A generation's guesses, and the tokens drawn ahead.
struct Speculation<'a> {
    drafter: &'a mut dyn Drafter,
    length: DraftLength,
    /// Token and guesses of the pass under way.
    ids: Vec<u32>,
    /// Drawn and not yet said.
    drawn: VecDeque<Sampled>,
    drafted: usize,
    accepted: usize,
}

impl<'a> Speculation<'a> {
    fn new(drafter: &'a mut dyn Drafter, most: usize) -> Self {
        let most = if most == 0 { MAX_DRAFT_TOKENS } else { most };
        Speculation {
            drafter,
            length: DraftLength::new(most),
            ids: Vec::with_capacity(MAX_DRAFT_TOKENS + 1),
            drawn: VecDeque::with_capacity(MAX_DRAFT_TOKENS + 1),
            drafted: 0,
            accepted: 0,
        }
    }
}

/// The first `sinks` tokens and the latest others, `keep` in all.
fn roll(tokens: &[u32], sinks: usize, keep: usize) -> Vec<u32> {
    let sinks = sinks.min(tokens.len()).min(keep);
    let latest = (keep - sinks).min(tokens.len() - sinks);
    let mut out = tokens[..sinks].to_vec();
    out.extend_from_slice(&tokens[tokens.len() - latest..]);
    out
}

/// `n` for each second; 0 for no time.
fn rate(n: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

/// Natural logarithm of the softmax of `logits` at `token`, in `f64`.
fn log_probability(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    f64::from(logits[token as usize] - max) - sum.ln()
}

/// An answer as it grows.
struct Answer<'a> {
    decoder: StreamDecoder,
    bundle: &'a Bundle,
    tokenizer: Option<&'a Tokenizer>,
    piece: String,
    matcher: StopMatcher,
    with_logprobs: bool,
    text: String,
    released: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenInfo>,
    stopped: Option<usize>,
}

impl<'a> Answer<'a> {
    fn new(model: &'a Model, options: &GenerateOptions) -> Self {
        Answer {
            decoder: StreamDecoder::new(true),
            bundle: model.bundle(),
            tokenizer: model.tokenizer().ok(),
            piece: String::new(),
            matcher: StopMatcher::new(&options.stop, options.include_stop),
            with_logprobs: options.logprobs.is_some(),
            text: String::new(),
            released: String::new(),
            tokens: Vec::with_capacity(options.max_tokens.min(1 << 16)),
            logprobs: Vec::new(),
            stopped: None,
        }
    }

    fn push(&mut self, sampled: Sampled, on_delta: &mut dyn FnMut(Delta<'_>)) -> Result<()> {
        self.tokens.push(sampled.token);
        self.released.clear();
        if let Some(tokenizer) = self.tokenizer {
            self.piece.clear();
            self.decoder.push(tokenizer, sampled.token, &mut self.piece);
            self.stopped = self.matcher.push(&self.piece, &mut self.released);
        }
        self.text.push_str(&self.released);
        if self.with_logprobs {
            let text = self
                .tokenizer
                .map_or_else(String::new, |t| t.decode(&[sampled.token], false));
            self.logprobs.push(TokenInfo {
                token: sampled.token,
                text,
                logprob: sampled.logprob.unwrap_or(f64::NAN),
                top: sampled.top,
            });
        }
        // Spellings are read from a mapped table.
        self.bundle.intact()?;
        on_delta(Delta {
            text: &self.released,
            token: Some(sampled.token),
            logprob: if self.with_logprobs { self.logprobs.last() } else { None },
        });
        Ok(())
    }

    /// Releases what was held back.
    fn finish(&mut self, on_delta: &mut dyn FnMut(Delta<'_>)) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        self.released.clear();
        if let Some(tokenizer) = self.tokenizer {
            self.piece.clear();
            self.decoder.finish(tokenizer, &mut self.piece);
            self.stopped = self.matcher.push(&self.piece, &mut self.released);
        }
        self.matcher.finish(&mut self.released);
        self.text.push_str(&self.released);
        self.bundle.intact()?;
        if !self.released.is_empty() {
            on_delta(Delta {
                text: &self.released,
                token: None,
                logprob: None,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roll_keeps_sinks_and_the_latest() {
        let tokens: Vec<u32> = (0..10).collect();
        assert_eq!(roll(&tokens, 2, 5), [0, 1, 7, 8, 9]);
        assert_eq!(roll(&tokens, 0, 3), [7, 8, 9]);
        assert_eq!(roll(&tokens, 4, 20), (0..10).collect::<Vec<u32>>());
    }

    #[test]
    fn log_probability_of_uniform_logits() {
        let p = log_probability(&[3.0; 8], 5);
        assert!((p + 8f64.ln()).abs() < 1e-12);
    }
}
