//! One generation under a grammar.
//!
//! Depends on `llguidance`'s matcher. It deliberately draws nothing and knows no logits.

use llguidance::Matcher;
use llguidance::api::StopReason;

use crate::{Error, ErrorKind};

/// What may come next, for one sequence. Made by [`GrammarCompiler::compile`](super::GrammarCompiler::compile).
///
/// Sampling asks in this order, which costs least and draws the same as a mask over all logits would:
///
/// 1. [`forced_tokens`](Self::forced_tokens): whatever the grammar allows no choice about, as rows of one pass.
/// 2. Greedy: [`allows`](Self::allows) for the token with the largest logit, and only if it says no the mask.
/// 3. [`mask`](Self::mask), where there is a choice.
///
/// Every token that becomes part of the sequence goes to [`commit`](Self::commit). Drafts are tried with
/// [`allowed_prefix`](Self::allowed_prefix) or undone with [`rollback`](Self::rollback).
///
/// A clone has a state of its own and shares what was worked out about the grammar.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    vocab_size: usize,
    size_bytes: usize,
    committed: usize,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint")
            .field("committed", &self.committed)
            .field("finished", &self.is_finished())
            .finish()
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, vocab_size: usize, size_bytes: usize) -> Self {
        Self {
            matcher,
            vocab_size,
            size_bytes,
            committed: 0,
        }
    }

    /// About how many bytes it took when it was compiled, for those who keep several.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// A copy that shares nothing. What one of them works out about the grammar neither fills the memory of the other nor has
    /// it wait.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            ..*self
        }
    }

    /// Whether `token` may come next. An end token may where [`is_accepting`](Self::is_accepting). Takes microseconds.
    ///
    /// # Errors
    /// [`ErrorKind::GrammarLimit`] if the step exceeds the limit on work.
    pub fn allows(&mut self, token: u32) -> Result<bool, Error> {
        Ok(self.allowed_prefix(&[token])? == 1)
    }

    /// How many of `tokens`, one after the other, may come next.
    ///
    /// # Errors
    /// As [`allows`](Self::allows).
    pub fn allowed_prefix(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        let known = tokens.iter().take_while(|&&t| (t as usize) < self.vocab_size).count();
        if self.is_finished() || known == 0 {
            return Ok(0);
        }
        let valid = self.matcher.validate_tokens(&tokens[..known]);
        valid.map_err(|e| self.failed(&e))
    }

    /// Words that [`mask`](Self::mask) writes: a bit for each token of the vocabulary.
    pub fn mask_words(&self) -> usize {
        self.vocab_size.div_ceil(32)
    }

    /// Writes which tokens may come next: bit `t % 32` of word `t / 32` for token `t`. Words beyond the vocabulary (logits are
    /// often padded) become zero. Where the text is finished, or can go no other way, the bits are those of the end tokens.
    ///
    /// # Errors
    /// [`ErrorKind::ConstraintMisuse`] if `words` is shorter than [`mask_words`](Self::mask_words),
    /// [`ErrorKind::GrammarLimit`] if the step exceeds the limit on work.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), Error> {
        if words.len() < self.mask_words() {
            let message = format!(
                "a mask of {} tokens takes {} words of 32 bits, found {}",
                self.vocab_size,
                self.mask_words(),
                words.len()
            );
            return Err(Error::new(ErrorKind::ConstraintMisuse, message));
        }
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| self.failed(&e))?;
        words.fill(0);
        for (word, bits) in words.iter_mut().zip(mask.as_slice()) {
            *word = *bits;
        }
        // The library keeps a bit to spare.
        let last = self.vocab_size % 32;
        if last != 0 {
            words[self.vocab_size / 32] &= (1 << last) - 1;
        }
        Ok(())
    }

    /// The tokens that have to come next because the grammar leaves no choice, as the tokenizer writes them. They are not
    /// committed yet. Empty where there is a choice, and for tokenizers that do not give back a text byte for byte.
    pub fn forced_tokens(&mut self) -> Vec<u32> {
        match self.is_finished() {
            true => Vec::new(),
            false => self.matcher.compute_ff_tokens(),
        }
    }

    /// Takes the token that came next.
    ///
    /// # Errors
    /// [`ErrorKind::ConstraintMisuse`] for a token that the grammar does not allow, after which the constraint is as before;
    /// [`ErrorKind::GrammarLimit`] if the step exceeds the limit on work.
    pub fn commit(&mut self, token: u32) -> Result<(), Error> {
        if !self.allows(token)? {
            let message = format!("token {token} does not follow the grammar at token {}", self.committed);
            return Err(Error::new(ErrorKind::ConstraintMisuse, message));
        }
        self.matcher.consume_token(token).map_err(|e| self.failed(&e))?;
        self.committed += 1;
        Ok(())
    }

    /// Takes back the last `tokens` that were committed.
    ///
    /// # Errors
    /// [`ErrorKind::ConstraintMisuse`] if fewer were.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), Error> {
        if tokens > self.committed {
            let message = format!(
                "{tokens} tokens cannot be taken back, {} were committed",
                self.committed
            );
            return Err(Error::new(ErrorKind::ConstraintMisuse, message));
        }
        self.matcher.rollback(tokens).map_err(|e| self.failed(&e))?;
        self.committed -= tokens;
        Ok(())
    }

    /// Tokens committed so far.
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// Whether the text may end here.
    pub fn is_accepting(&mut self) -> bool {
        self.is_finished() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether the text has to end here: nothing but an end token can follow.
    pub fn is_finished(&self) -> bool {
        matches!(
            self.matcher.stop_reason(),
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence
        )
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Error {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        if reason.contains("NoExtension") {
            let message = format!(
                "nothing can follow by the grammar after {} tokens: no text satisfies it",
                self.committed
            );
            return Error::new(ErrorKind::InvalidGrammar, message);
        }
        let message = format!(
            "the grammar could not be followed at token {}: {reason}",
            self.committed
        );
        Error::new(ErrorKind::GrammarLimit, message)
    }
}
