//! The mutable half of the engine: one conversation, its KV cache and the tokens it holds.

use crate::completion::{CancelToken, Completion, Delta, FinishReason, Overflow, Prefill, Score};
use crate::generation::{Generation, Rules, check_length, rate};
use crate::media::{self, Held};
use crate::options::GenerateOptions;
use crate::sampler::Sampled;
use crate::speculate::{DraftLength, Drafter, MAX_DRAFT_TOKENS, PromptLookup};
use crate::{Error, Model, Result};
use cactus_runtime::{Execution, Head, Logits, Program};
use cactus_text::grammar::Constraint;
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
    /// The pictures and sounds among them and in the prompt.
    media: Held,
    overflow: Overflow,
}

/// What helps and what binds one answer, beside its options. The default is neither.
#[derive(Default)]
#[allow(missing_debug_implementations)]
pub struct Guides<'a> {
    /// Guesses tokens ahead, to compute several in one pass: the same answer, sooner where the guesses are good. At most
    /// [`GenerateOptions::prompt_lookup`] tokens are guessed at once, or [`MAX_DRAFT_TOKENS`] where that is 0. Models whose
    /// states cannot be rewound (short convolutions) decode plainly.
    pub drafter: Option<&'a mut dyn Drafter>,
    /// What the answer must follow. Only an answer that ends for its length or is cancelled may fall short of it, see
    /// [`Completion::whole`].
    pub constraint: Option<Constraint>,
    /// Special tokens are given out in [`Delta::special`] instead of being left out.
    pub keep_special: bool,
    /// How sure the model was of each token comes with it, in [`Delta::signal`].
    pub signals: bool,
}

impl Session {
    pub(crate) fn new(model: Arc<Model>) -> Result<Session> {
        Ok(Session {
            execution: Execution::new(Arc::clone(model.program()))?,
            tokens: Vec::with_capacity(model.program().context_tokens()),
            model,
            media: Held::default(),
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
    #[doc(hidden)]
    pub fn execution(&mut self) -> &mut Execution {
        &mut self.execution
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.execution.clear();
        self.tokens.clear();
    }

    /// Holds `tokens`, with the states that `input` has for them. Empty where that fails.
    pub(crate) fn hold(&mut self, tokens: Vec<u32>, input: &mut dyn std::io::Read) -> Result<()> {
        self.reset();
        self.execution.read_state(input)?;
        if self.execution.len() != tokens.len() {
            let held = self.execution.len();
            self.reset();
            return Err(Error::Argument(format!("{held} positions for {} tokens", tokens.len())));
        }
        self.tokens.extend(tokens);
        Ok(())
    }

    /// Computes a prompt ahead of time. A later call whose prompt begins with it computes only the rest.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], or what the runtime found.
    pub fn prefill(&mut self, prompt: &[u32], cancel: &CancelToken) -> Result<Prefill> {
        let start = Instant::now();
        let prompt = self.fit(prompt)?;
        self.media = Held::of(&self.model, &prompt)?;
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
        let model = Arc::clone(&self.model);
        self.media.add(&model, tokens)?;
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
        let guides = Guides {
            drafter,
            ..Guides::default()
        };
        self.generate_with(prompt, options, guides, cancel, on_delta)
    }

    /// Answers `prompt` as [`Session::generate`] does, with `guides`.
    ///
    /// # Errors
    /// As [`Session::generate`], and those of the guides.
    pub fn generate_with(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        guides: Guides<'_>,
        cancel: &CancelToken,
        on_delta: &mut dyn FnMut(Delta<'_>),
    ) -> Result<Completion> {
        let start = Instant::now();
        let model = Arc::clone(&self.model);
        let prompt = self.fit(prompt)?;
        self.media = Held::of(&model, &prompt)?;
        let rules = Rules {
            constraint: guides.constraint,
            keep_special: guides.keep_special,
            score_from: None,
            watch: Vec::new(),
            signals: guides.signals,
        };
        let mut answer = Generation::new(&model, &prompt, options, rules, start)?;
        // The logits of the last token are needed, so it is computed again even where its state is held.
        answer.cached = self.reuse(&prompt, prompt.len() - 1);
        let mut finish = if self.feed(&prompt[answer.cached..], true, cancel)? {
            None
        } else {
            Some(FinishReason::Cancelled)
        };
        let mut speculation = guides
            .drafter
            .filter(|_| model.program().can_rewind(MAX_DRAFT_TOKENS))
            .map(|drafter| Speculation::new(drafter, options.prompt_lookup));
        while finish.is_none() {
            let ready = speculation.as_mut().and_then(|s| s.drawn.pop_front());
            let sampled = match ready {
                Some(sampled) => sampled,
                None => answer.draw(self.execution.logits())?,
            };
            let token = sampled.token;
            finish = answer.say(sampled, on_delta)?;
            // What has to follow needs no logits but the last's. Tokens drawn ahead have been through this.
            let mut rows = Vec::new();
            if finish.is_none() && speculation.as_ref().is_none_or(|s| s.drawn.is_empty()) {
                let room = self.execution.program().context_tokens() - self.tokens.len();
                rows = answer.forced(room.saturating_sub(1))?;
                for &next in &rows {
                    finish = answer.say(Sampled::forced(next), on_delta)?;
                    if finish.is_some() {
                        break;
                    }
                }
            }
            if finish.is_none() && cancel.is_cancelled() {
                finish = Some(FinishReason::Cancelled);
            }
            if finish.is_none() && !rows.is_empty() {
                rows.insert(0, token);
                if !self.feed(&rows, true, cancel)? {
                    finish = Some(FinishReason::Cancelled);
                }
            } else if finish.is_none() {
                finish = match &mut speculation {
                    None => self.decode(token, cancel)?,
                    Some(s) if !s.drawn.is_empty() => None,
                    Some(s) => self.speculate(s, token, &mut answer, cancel)?,
                };
            }
        }
        answer.end(on_delta)?;
        if let Some(s) = &speculation {
            (answer.drafted, answer.accepted) = (s.drafted, s.accepted);
        }
        Ok(answer.completion(finish.unwrap_or(FinishReason::Stop)))
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
        if tokens[first..].iter().any(|id| media::is_row(*id)) {
            let what = "the tokens to score have a picture or sound among them, which has no probability";
            return Err(Error::Argument(what.to_owned()));
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
        self.media = Held::of(&model, tokens)?;
        let mut logprobs = Vec::with_capacity(tokens.len() - first);
        // The last token is only predicted, never read.
        let read = &tokens[..tokens.len() - 1];
        let mut position = 0;
        while position < read.len() {
            let chunk = next_call(self.execution.program(), &read[position..])?;
            let wanted = (first - 1).saturating_sub(position);
            let mut each = |i: usize, logits: Logits<'_>| {
                logprobs.push(log_probability(&logits, tokens[position + i + 1]));
            };
            let head = if wanted >= chunk.len() {
                Head::Skip
            } else {
                Head::From(wanted, &mut each)
            };
            run(&mut self.execution, &self.media, &model, model.threads(), chunk, head)?;
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
        let context = self.execution.program().context_tokens();
        match (check_length(&self.model, prompt), self.overflow) {
            (Err(Error::PromptTooLong { .. }), Overflow::Rolling { sinks }) if sinks + 2 <= context => {
                Ok(roll(prompt, sinks, context - 1))
            }
            (checked, _) => checked.map(|()| prompt.to_vec()),
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
        let mut rest = tokens;
        while !rest.is_empty() {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let chunk = next_call(self.execution.program(), rest)?;
            let after = &rest[chunk.len()..];
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
            run(&mut self.execution, &self.media, &model, width, chunk, head)?;
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
        answer: &mut Generation,
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
            media::keep_tokens(ids);
            answer.keep_allowed(ids)?;
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
            match answer.draw(logits) {
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

/// What the next call computes of `tokens`: as many as it can, without parting rows that see each other.
fn next_call<'a>(program: &Program, tokens: &'a [u32]) -> Result<&'a [u32]> {
    let most = program.chunk_tokens().min(tokens.len());
    if !program.media_see_ahead() {
        return Ok(&tokens[..most]);
    }
    match media::whole_end(tokens, 0, most) {
        0 => Err(Error::Argument(format!(
            "the prompt has {} rows that see each other, and a call computes at most {most} positions",
            media::rows_together(tokens, 0)
        ))),
        end => Ok(&tokens[..end]),
    }
}

/// Computes `chunk`, with the rows of media that are in it.
fn run(
    execution: &mut Execution,
    media: &Held,
    model: &Model,
    width: usize,
    chunk: &[u32],
    head: Head<'_>,
) -> Result<()> {
    match media.part(chunk) {
        None => execution.run(model.pool(), width, chunk, head)?,
        Some(parted) => execution.run_with_media(model.pool(), width, &parted.ids, &parted.rows, head)?,
    }
    Ok(())
}

/// The first `sinks` tokens and the latest others, `keep` in all or fewer: no picture stays in part.
fn roll(tokens: &[u32], sinks: usize, keep: usize) -> Vec<u32> {
    let sinks = sinks.min(tokens.len()).min(keep);
    let latest = tokens.len() - (keep - sinks).min(tokens.len() - sinks);
    if latest == sinks {
        return tokens.to_vec();
    }
    let mut out = tokens[..media::last_whole(tokens, sinks)].to_vec();
    out.extend_from_slice(&tokens[media::first_whole(tokens, latest)..]);
    out
}

/// Natural logarithm of the softmax of `logits` at `token`, in `f64`.
fn log_probability(logits: &[f32], token: u32) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    f64::from(logits[token as usize]) - max - sum.ln()
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
