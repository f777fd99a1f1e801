//! A tokenizer as `llguidance` sees it: a prefix tree of the bytes of all tokens.
//!
//! Depends on the tokenizer for spellings, which it maps and decodes. It deliberately keeps nothing else of it but the right to
//! tokenize text that a grammar forces.
//!
//! Special tokens stand in the tree behind a byte that no text contains, so that text which spells one out is never taken for
//! it. Tokens that stand for no bytes, or for more than the tree can hold, are in no mask.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::{Error, ErrorKind, Tokenizer};

/// Most bytes of a token in the tree, which counts depth in ten bits.
const MAX_TOKEN_BYTES: usize = 1000;
/// Most bytes of all tokens: the tree counts its nodes in 22 bits. Gemma's 262,144 tokens have 2 million.
const MAX_BYTES: usize = (1 << 22) - 1;

/// Texts that a tokenizer has to give back byte for byte, for forced text to be tokenized by it.
const PROBES: [&str; 5] = ["{\"name\": \"", "\", \"a\": 1.5}", "true", "</x>\n", "é 日本"];

/// What stands before a text to see how it is tokenized in the middle of another; no vocabulary merges it with text.
const BEFORE: &str = "\u{2}";

/// A tokenizer with the tree of its tokens.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// Whether what [`Tokenizer::encode`] makes of a text stands for exactly its bytes.
    exact: bool,
}

impl Vocabulary {
    /// Builds the tree.
    ///
    /// # Errors
    /// [`ErrorKind::GrammarLimit`] for a vocabulary that is too large, [`ErrorKind::InvalidTokenizer`] for one that
    /// contradicts itself.
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, Error> {
        let size = tokenizer.vocab_size();
        let mut total = 0;
        let words: Vec<Vec<u8>> = (0..size as u32)
            .map(|id| {
                let word = word(&tokenizer, id);
                total += word.len();
                word
            })
            .collect();
        if total > MAX_BYTES || size == 0 {
            let message = format!(
                "the vocabulary has {size} tokens of {total} bytes in all; constraints are for 1 to {MAX_BYTES} bytes"
            );
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
        let stop: Vec<TokenId> = tokenizer
            .stop_ids()
            .iter()
            .copied()
            .filter(|&id| (id as usize) < size)
            .collect();
        let info = TokRxInfo::new(size as u32, stop.first().copied().unwrap_or(INVALID_TOKEN));
        let build = || {
            let trie = TokTrie::from(&info, &words);
            match stop.is_empty() {
                true => trie,
                false => trie.with_eos_tokens(&stop),
            }
        };
        let trie = catch_unwind(AssertUnwindSafe(build)).map_err(|_| {
            let message = format!("the {size} tokens of the vocabulary do not make a prefix tree");
            Error::new(ErrorKind::InvalidTokenizer, message)
        })?;
        let mut vocabulary = Self {
            tokenizer,
            trie,
            exact: true,
        };
        vocabulary.exact = PROBES.iter().all(|text| vocabulary.encode_inside(text).is_some());
        Ok(vocabulary)
    }

    /// The tokens of a text in the middle of another, if they stand for exactly its bytes.
    fn encode_inside(&self, text: &str) -> Option<Vec<TokenId>> {
        let plain = self.tokenizer.encode(text, false).ok()?;
        if self.spells(&plain, text) {
            return Some(plain);
        }
        // SentencePiece puts a space before the first word of a text.
        let before = self.tokenizer.encode(BEFORE, false).ok()?;
        let both = self.tokenizer.encode(&format!("{BEFORE}{text}"), false).ok()?;
        let rest = both.strip_prefix(before.as_slice())?;
        self.spells(rest, text).then(|| rest.to_vec())
    }

    fn spells(&self, ids: &[TokenId], text: &str) -> bool {
        let mut rest = text.as_bytes();
        ids.iter().all(|&id| {
            let after = rest.strip_prefix(self.trie.token(id));
            rest = after.unwrap_or(rest);
            after.is_some()
        }) && rest.is_empty()
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let text = std::str::from_utf8(bytes).ok();
        // A text that spells a special token, or the rest of a cut character, is taken apart greedily.
        text.and_then(|text| self.encode_inside(text))
            .unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.exact
    }
}

/// The bytes of a token in the tree; none for one that is in no mask.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let Some(mut bytes) = tokenizer.token_bytes(id) else {
        return Vec::new();
    };
    if tokenizer.is_special(id) {
        bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    } else if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) && bytes.len() > 1 {
        // No text has this byte, so no text has this token.
        bytes.clear();
    }
    if bytes.len() > MAX_TOKEN_BYTES {
        bytes.clear();
    }
    bytes
}
