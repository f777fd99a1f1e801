//! A text as windows of equally many tokens.

use crate::{Error, Result, Text};
use cactus_text::{ChatTemplate, Tokenizer};

/// Bytes that a token has at most, when it is decided how much of a text is enough.
const TOKEN_BYTES: usize = 64;

/// A text cut into windows of equally many tokens; a last one that is not full is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    tokens: Vec<u32>,
    length: usize,
}

impl Windows {
    /// The windows of `text`, at most `count` of them. Where the model begins prompts with a token of its own, it stands in
    /// place of the first token of each window.
    ///
    /// # Errors
    /// Where the text has not one window, no window is asked for, or a conversation is refused by the template.
    pub fn of(
        (tokenizer, template): &(Tokenizer, Option<ChatTemplate>),
        text: &Text,
        length: usize,
        count: usize,
    ) -> Result<Self> {
        if length < 4 {
            let what = format!("expected windows of at least 4 tokens, found {length}");
            return Err(Error::Text(what));
        }
        if count == 0 {
            let what = format!("the number of tokens is smaller than one window, {length}");
            return Err(Error::Text(what));
        }
        let enough = length.saturating_mul(count).saturating_mul(TOKEN_BYTES);
        let rendered = text.rendered(template.as_ref(), enough)?;
        let tokens = tokenizer
            .encode(&rendered, true)
            .map_err(|e| Error::Text(format!("the text cannot be tokenized: {e}")))?;
        let whole = (tokens.len() / length).min(count) * length;
        if whole == 0 {
            return Err(Error::Text(format!(
                "the text has only {} tokens, less than one window of {length}",
                tokens.len()
            )));
        }
        let mut tokens = tokens[..whole].to_vec();
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
            tokens.iter_mut().step_by(length).for_each(|t| *t = bos);
        }
        Ok(Self { tokens, length })
    }

    /// Windows of given tokens.
    #[must_use]
    pub fn of_tokens(tokens: &[u32], length: usize) -> Self {
        let length = length.max(1);
        Self {
            tokens: tokens[..tokens.len() / length * length].to_vec(),
            length,
        }
    }

    /// The windows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> + Clone {
        self.tokens.chunks_exact(self.length)
    }

    /// Tokens of a window.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }
}
