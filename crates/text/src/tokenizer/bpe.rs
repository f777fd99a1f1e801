//! Byte pair encoding over [`Tables`].
//!
//! The algorithm is that of Sennrich et al. 2016 (<https://aclanthology.org/P16-1162>) with a queue: the pair of lowest
//! rank is merged first, of equal ones the leftmost. The `tokenizers` crate's model is its oracle: the ids are the same
//! (`crates/text/tests/tables.rs`). One thing it deliberately lacks is that crate's dropout, which is for training.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;
use tokenizers::{Result, Token};

use super::tables::Tables;

/// What `tokenizer.json` says of a BPE model beside its vocabulary and merges.
#[derive(Debug, Clone, Default, Deserialize, serde::Serialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) unk_token: Option<String>,
    /// Before every piece of a word but the first.
    pub(super) continuing_subword_prefix: Option<String>,
    /// After the last piece of a word.
    pub(super) end_of_word_suffix: Option<String>,
    /// Unknown characters in a row become one unknown token.
    pub(super) fuse_unk: Option<bool>,
    /// Unknown characters become the tokens `<0x00>` to `<0xFF>` of their bytes.
    pub(super) byte_fallback: Option<bool>,
    /// A whole word that is a token is that token, whatever the merges say.
    pub(super) ignore_merges: Option<bool>,
}

/// A BPE model.
#[derive(Debug, Clone)]
pub(crate) struct Bpe {
    tables: Tables,
    settings: Settings,
    unk: Option<u32>,
    /// Ids of `<0x00>` to `<0xFF>`, where all of them are there to fall back to.
    byte_ids: Vec<Option<u32>>,
}

/// A piece of a word: a node of a doubly linked list that lies in order.
#[derive(Debug, Clone, Copy)]
struct Piece {
    id: u32,
    /// Bytes of the word; 0 once it is part of the piece before it.
    bytes: u32,
    previous: u32,
    next: u32,
}

/// No piece.
const NONE: u32 = u32::MAX;

impl Bpe {
    pub(super) fn new(tables: Tables, settings: Settings) -> Self {
        let unk = settings.unk_token.as_deref().and_then(|token| tables.id(token));
        let byte_ids = match settings.byte_fallback {
            Some(true) => (0..=255u8).map(|byte| tables.id(&format!("<0x{byte:02X}>"))).collect(),
            _ => Vec::new(),
        };
        Self {
            tables,
            settings,
            unk,
            byte_ids,
        }
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The tokens of a word, with their places in bytes.
    pub(super) fn tokenize(&self, word: &str) -> Result<Vec<Token>> {
        if word.is_empty() {
            return Ok(Vec::new());
        }
        if self.settings.ignore_merges == Some(true)
            && let Some(id) = self.tables.id(word)
        {
            return Ok(vec![Token::new(id, word.to_owned(), (0, word.len()))]);
        }
        if u32::try_from(word.len()).is_err() {
            return Err(format!("a word of {} bytes is too long", word.len()).into());
        }
        let mut pieces = self.characters(word)?;
        self.merge_all(&mut pieces);
        let mut at = 0;
        pieces
            .iter()
            .filter(|piece| piece.bytes != 0)
            .map(|piece| {
                let start = at;
                at += piece.bytes as usize;
                let spelling = self
                    .tables
                    .spelling(piece.id)
                    .ok_or_else(|| format!("the tables of the tokenizer are damaged: id {} has no token", piece.id))?;
                Ok(Token::new(piece.id, spelling.to_owned(), (start, at)))
            })
            .collect()
    }

    /// A piece for each character, or for each byte of a character that is no token.
    fn characters(&self, word: &str) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(word.len());
        let mut add = |id: u32, bytes: usize| {
            let index = pieces.len() as u32;
            if let Some(last) = pieces.last_mut() {
                last.next = index;
            }
            pieces.push(Piece {
                id,
                bytes: bytes as u32,
                previous: index.wrapping_sub(1),
                next: NONE,
            });
        };
        let settings = &self.settings;
        let (prefix, suffix) = (&settings.continuing_subword_prefix, &settings.end_of_word_suffix);
        let mut spelled = String::new();
        let mut unknown: Option<usize> = None;
        for (start, c) in word.char_indices() {
            let end = start + c.len_utf8();
            let mut token = &word[start..end];
            let before = prefix.as_deref().filter(|_| start > 0);
            let after = suffix.as_deref().filter(|_| end == word.len());
            if before.is_some() || after.is_some() {
                spelled.clear();
                spelled.push_str(before.unwrap_or_default());
                spelled.push_str(token);
                spelled.push_str(after.unwrap_or_default());
                token = &spelled;
            }
            if let Some(id) = self.tables.id(token) {
                if let (Some(bytes), Some(unk)) = (unknown.take(), self.unk) {
                    add(unk, bytes);
                }
                add(id, end - start);
                continue;
            }
            let bytes = token
                .bytes()
                .map(|b| self.byte_ids.get(usize::from(b)).copied().flatten());
            if bytes.clone().all(|id| id.is_some()) && !self.byte_ids.is_empty() {
                bytes.flatten().for_each(|id| add(id, 1));
                continue;
            }
            if let Some(name) = &settings.unk_token {
                let missing = || format!("`unk_token` is `{name}`, which is not in the vocabulary");
                let unk = self.unk.ok_or_else(missing)?;
                unknown = Some(match unknown {
                    Some(bytes) if settings.fuse_unk == Some(true) => bytes + end - start,
                    Some(bytes) => {
                        add(unk, bytes);
                        end - start
                    }
                    None => end - start,
                });
            }
        }
        if let (Some(bytes), Some(unk)) = (unknown, self.unk) {
            add(unk, bytes);
        }
        Ok(pieces)
    }

    fn merge_all(&self, pieces: &mut [Piece]) {
        let mut queue: BinaryHeap<Reverse<(u32, u32, u32)>> = BinaryHeap::with_capacity(pieces.len());
        for (at, pair) in pieces.windows(2).enumerate() {
            if let Some(merge) = self.tables.merge(pair[0].id, pair[1].id) {
                queue.push(Reverse((merge.rank, at as u32, merge.id)));
            }
        }
        while let Some(Reverse((_, at, id))) = queue.pop() {
            let left = pieces[at as usize];
            if left.bytes == 0 || left.next == NONE {
                continue;
            }
            let right = pieces[left.next as usize];
            // One of the two may have become another token since.
            if self.tables.merge(left.id, right.id).is_none_or(|merge| merge.id != id) {
                continue;
            }
            pieces[left.next as usize].bytes = 0;
            let merged = Piece {
                id,
                bytes: left.bytes + right.bytes,
                next: right.next,
                ..left
            };
            pieces[at as usize] = merged;
            if merged.next != NONE {
                let next = &mut pieces[merged.next as usize];
                next.previous = at;
                if let Some(merge) = self.tables.merge(id, next.id) {
                    queue.push(Reverse((merge.rank, at, merge.id)));
                }
            }
            if merged.previous != NONE
                && let Some(merge) = self.tables.merge(pieces[merged.previous as usize].id, id)
            {
                queue.push(Reverse((merge.rank, merged.previous, merge.id)));
            }
        }
    }
}
