//! Generating with a function of whole sequences, which has no states: everything is computed again for each token. Slow,
//! and right wherever token ids go in and logits come out.

use crate::completion::{CancelToken, Completion, FinishReason, TokenInfo};
use crate::memory::ProcessMemory;
use crate::options::GenerateOptions;
use crate::sampler::Sampler;
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_runtime::TokenFunction;
use std::time::Instant;

/// Generation by a function from token ids to logits.
#[derive(Debug)]
pub struct Recompute {
    function: TokenFunction,
}

impl Recompute {
    /// Generation by `function`.
    pub fn new(function: TokenFunction) -> Recompute {
        Recompute { function }
    }

    /// Continues `prompt` by at most [`GenerateOptions::max_tokens`] tokens, on `threads` threads of `pool`; one of `eos`
    /// ends it. Stop strings need text, which is not made here.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], an option out of range, what the function finds wrong with the length of the prompt.
    pub fn generate(
        &self,
        (pool, threads): (&Pool, usize),
        prompt: &[u32],
        options: &GenerateOptions,
        eos: &[u32],
        cancel: &CancelToken,
    ) -> Result<Completion> {
        let start = Instant::now();
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let mut sampler = Sampler::new(options, self.function.vocab_size())?;
        if options.ignore_eos {
            sampler.ban(eos);
        }
        sampler.observe_prompt(prompt);
        let (mut ids, mut logprobs) = (prompt.to_vec(), Vec::new());
        let (mut tokens, mut first) = (Vec::new(), None);
        let finish = loop {
            if tokens.len() >= options.max_tokens {
                break FinishReason::Length;
            }
            if cancel.is_cancelled() {
                break FinishReason::Cancelled;
            }
            let logits = match self.function.logits(pool, threads, &ids) {
                Ok(logits) => logits,
                // The prompt fitted, so what does not is the length.
                Err(cactus_runtime::Error::Argument(_)) if !tokens.is_empty() => break FinishReason::ContextFull,
                Err(e) => return Err(e.into()),
            };
            let sampled = sampler.sample(&logits)?;
            first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            if !options.ignore_eos && eos.contains(&sampled.token) {
                break FinishReason::Stop;
            }
            ids.push(sampled.token);
            tokens.push(sampled.token);
            if options.logprobs.is_some() {
                logprobs.push(TokenInfo {
                    token: sampled.token,
                    text: String::new(),
                    logprob: sampled.logprob.unwrap_or(f64::NAN),
                    top: sampled.top,
                    watched: sampled.watched,
                });
            }
        };
        let total = start.elapsed().as_secs_f64();
        let (first, decoded) = (first.unwrap_or(total), tokens.len());
        let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        Ok(Completion {
            response: String::new(),
            completion_token_ids: tokens,
            finish_reason: finish,
            whole: true,
            stop: None,
            time_to_first_token_ms: first * 1e3,
            total_time_ms: total * 1e3,
            prefill_tps: rate(prompt.len(), first),
            decode_tps: rate(decoded.saturating_sub(1), total - first),
            ram_usage_mb: ProcessMemory::now().resident.map(|b| b as f64 / 1e6),
            prefill_tokens: prompt.len(),
            cached_tokens: 0,
            decode_tokens: decoded,
            drafted_tokens: 0,
            accepted_tokens: 0,
            total_tokens: prompt.len() + decoded,
            seed: sampler.seed(),
            logprobs,
            prompt_logprobs: Vec::new(),
        })
    }
}
