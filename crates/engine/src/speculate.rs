//! Speculative decoding: several tokens from one pass of the model, and the same tokens as without.
//!
//! A [`Drafter`] guesses what comes next; the model computes all guesses in one pass, whose logits are the same bits as one
//! token at a time would give; the sampler then draws token after token, for as long as it draws what was guessed. So the
//! answer is that of plain decoding under every sampling option, not only greedy (Leviathan et al. 2023 need a corrected
//! distribution because they do not have the logits of each position bit for bit).
//!
//! It may depend on sessions and the sampler. It deliberately does not decide when to speculate: that is an option of the
//! caller.

use crate::completion::CancelToken;
use crate::media;
use crate::{Model, Result, Session};
use std::sync::Arc;

/// Most tokens that are guessed at once: with the token before them they make one pass of the small-row kernels.
pub const MAX_DRAFT_TOKENS: usize = 15;

/// Guesses how a sequence goes on.
pub trait Drafter {
    /// Appends up to `most` guesses for the tokens after `tokens` to `out`. None is an answer too.
    ///
    /// # Errors
    /// What a model that drafts finds wrong.
    fn draft(&mut self, tokens: &[u32], most: usize, out: &mut Vec<u32>) -> Result<()>;
}

/// Guesses that what followed the last few tokens before follows them again (prompt lookup, Saxena 2023). It costs nothing,
/// and pays where the answer repeats parts of the prompt: rewriting, summarizing, code.
#[derive(Clone, Copy, Debug)]
pub struct PromptLookup {
    /// Longest run of tokens that is looked for.
    longest: usize,
    /// Shortest run that is trusted.
    shortest: usize,
}

impl Default for PromptLookup {
    fn default() -> Self {
        PromptLookup {
            longest: 4,
            shortest: 2,
        }
    }
}

impl Drafter for PromptLookup {
    fn draft(&mut self, tokens: &[u32], most: usize, out: &mut Vec<u32>) -> Result<()> {
        for length in (self.shortest..=self.longest).rev() {
            if tokens.len() <= length {
                continue;
            }
            let (before, last) = tokens.split_at(tokens.len() - length);
            // The latest occurrence, which may overlap the end: a text that repeats itself goes on repeating itself.
            let found = (0..before.len()).rev().find(|&at| tokens[at..at + length] == *last);
            if let Some(at) = found {
                let follows = at + length;
                let period = tokens.len() - follows;
                out.extend((0..most).map(|i| tokens[follows + i % period]));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Guesses with a smaller model of the same vocabulary.
#[derive(Debug)]
pub struct ModelDrafter {
    session: Session,
}

impl ModelDrafter {
    /// A drafter for `target` that runs `draft`.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] where the two models have different vocabularies; where memory cannot be had.
    pub fn new(draft: &Arc<Model>, target: &Model) -> Result<Self> {
        let differ = |what: String| {
            Err(crate::Error::Argument(format!(
                "the draft model does not fit the model: {what}"
            )))
        };
        let (ours, theirs) = (draft.tokenizer()?, target.tokenizer()?);
        if ours.vocab_size() != theirs.vocab_size() {
            return differ(format!(
                "its vocabulary has {} tokens, the model's {}",
                ours.vocab_size(),
                theirs.vocab_size()
            ));
        }
        let size = u32::try_from(ours.vocab_size()).unwrap_or(u32::MAX);
        let odd = (0..size)
            .step_by(997)
            .find(|&id| ours.token_text(id) != theirs.token_text(id));
        if let Some(id) = odd {
            return differ(format!("token {id} differs"));
        }
        Ok(ModelDrafter {
            session: draft.session()?,
        })
    }
}

impl Drafter for ModelDrafter {
    fn draft(&mut self, tokens: &[u32], most: usize, out: &mut Vec<u32>) -> Result<()> {
        // The draft model sees no pictures.
        if tokens.iter().any(|id| media::is_row(*id)) {
            return Ok(());
        }
        let never = CancelToken::new();
        let room = self.session.model().program().context_tokens();
        let most = most.min(room.saturating_sub(tokens.len()));
        if most == 0 {
            return Ok(());
        }
        self.session.follow(tokens)?;
        for i in 0..most {
            let best = self.session.best_token();
            out.push(best);
            if self.session.model().eos().contains(&best) {
                break;
            }
            if i + 1 < most {
                self.session.compute(&[best], &never)?;
            }
        }
        Ok(())
    }
}

/// How many tokens to guess: a few, and as many as possible once they have all been right twice in a row.
///
/// A pass over up to five rows costs little more than one row, as memory is what it waits for; from there on the arithmetic
/// counts, and the lengths in between cost more than they bring (`docs/benchmarks.md`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftLength {
    most: usize,
    now: usize,
    /// Passes in a row whose guesses were all right.
    streak: usize,
}

impl DraftLength {
    /// Guesses that with the token before them make a pass bound by memory.
    const FEW: usize = 4;

    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(MAX_DRAFT_TOKENS);
        DraftLength {
            most,
            now: most.min(Self::FEW),
            streak: 0,
        }
    }

    pub(crate) fn get(self) -> usize {
        self.now
    }

    /// Learns that of `drafted` guesses the first `right` were right.
    pub(crate) fn learn(&mut self, drafted: usize, right: usize) {
        self.streak = if right == drafted { self.streak + 1 } else { 0 };
        self.now = match self.streak {
            0 => (right + 2).min(Self::FEW).min(self.most),
            1 if drafted <= Self::FEW => self.most.min(Self::FEW),
            _ => self.most,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(tokens: &[u32], most: usize) -> Vec<u32> {
        let mut out = Vec::new();
        PromptLookup::default().draft(tokens, most, &mut out).unwrap();
        out
    }

    #[test]
    fn lookup_continues_the_latest_longest_match() {
        assert_eq!(lookup(&[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        // The match of three tokens wins over the later one of two.
        assert_eq!(lookup(&[5, 1, 2, 7, 8, 1, 2, 6, 0, 5, 1, 2], 2), [7, 8]);
        assert_eq!(lookup(&[1, 2, 7, 1, 2, 8, 1, 2], 1), [8]);
    }

    #[test]
    fn lookup_goes_around_where_a_text_repeats_itself() {
        assert_eq!(lookup(&[4, 7, 7, 7], 3), [7, 7, 7]);
        assert_eq!(lookup(&[1, 2, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
    }

    #[test]
    fn lookup_without_a_match_guesses_nothing() {
        for tokens in [&[][..], &[1], &[1, 1], &[1, 2, 3, 4]] {
            assert!(lookup(tokens, 4).is_empty(), "{tokens:?}");
        }
    }

    #[test]
    fn draft_length_follows_success() {
        let mut length = DraftLength::new(100);
        assert_eq!(length.get(), 4);
        length.learn(4, 4);
        assert_eq!(length.get(), 4);
        length.learn(4, 4);
        assert_eq!(length.get(), MAX_DRAFT_TOKENS);
        length.learn(15, 15);
        assert_eq!(length.get(), MAX_DRAFT_TOKENS);
        length.learn(15, 9);
        assert_eq!(length.get(), 4);
        length.learn(4, 0);
        assert_eq!(length.get(), 2);
        assert_eq!(DraftLength::new(1).get(), 1);
    }
}
