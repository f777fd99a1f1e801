//! A tokenizer of byte pairs whose ids are their ranks, as Whisper's are: from the bytes of its tokens alone.
//!
//! A token of two bytes and more is what the pair of the lowest rank became, so merges follow from the ranks: what a token's
//! bytes become before it is made are two tokens, its parts. (`tiktoken` files, and vocabularies of whisper.cpp and
//! CTranslate2, hold no merges.)

use crate::{Error, Result, TokenizerFiles};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Longest token that is split; known vocabularies have tokens of up to 128 bytes.
const MAX_TOKEN_BYTES: usize = 256;
/// The rank of a pair that is no token.
const NO_TOKEN: u32 = u32::MAX;
/// Languages of Whisper by id, from that of the first on (`LANGUAGES` of OpenAI's tokenizer).
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy \
                         sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu \
                         am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue";
/// Times from the beginning of a window to its end.
const STAMPS: usize = 1501;
/// Special tokens beside languages and times.
const OTHERS: usize = 8;

/// Tokens by rank.
pub(crate) struct Ranks<'a> {
    tokens: Vec<&'a [u8]>,
    ids: HashMap<&'a [u8], u32>,
}

impl<'a> Ranks<'a> {
    /// Tokens in the order of their ids.
    ///
    /// # Errors
    /// Where two are equal, one is very long, or a byte has no token.
    pub(crate) fn new(tokens: Vec<&'a [u8]>) -> Result<Ranks<'a>> {
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, &token) in tokens.iter().enumerate() {
            if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
                let what = format!(
                    "token {id} should have 1 to {MAX_TOKEN_BYTES} bytes, found {}",
                    token.len()
                );
                return Err(Error::malformed(what));
            }
            if let Some(first) = ids.insert(token, id as u32) {
                return Err(Error::malformed(format!(
                    "the tokens {first} and {id} have the same bytes"
                )));
            }
        }
        match (0..=u8::MAX).find(|&b| !ids.contains_key(&[b][..])) {
            Some(byte) => Err(Error::malformed(format!(
                "the vocabulary has no token for the byte {byte}"
            ))),
            None => Ok(Ranks { tokens, ids }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens of `bytes`, made of pairs of lower rank than `below`: the pair of the lowest rank first.
    fn split<'b>(&self, bytes: &'b [u8], below: u32) -> Vec<&'b [u8]> {
        let mut starts: Vec<usize> = (0..=bytes.len()).collect();
        let rank = |starts: &[usize], i: usize| match starts.get(i..i + 3) {
            Some(of) => self.ids.get(&bytes[of[0]..of[2]]).copied().unwrap_or(NO_TOKEN),
            None => NO_TOKEN,
        };
        // Of each part with the next. A merge changes two of them.
        let mut ranks: Vec<u32> = (0..bytes.len()).map(|i| rank(&starts, i)).collect();
        while let Some((lowest, i)) = ranks.iter().zip(0..).min()
            && *lowest < below
        {
            starts.remove(i + 1);
            ranks.remove(i + 1);
            ranks[i] = rank(&starts, i);
            if let Some(before) = i.checked_sub(1) {
                ranks[before] = rank(&starts, before);
            }
        }
        starts.windows(2).map(|e| &bytes[e[0]..e[1]]).collect()
    }

    /// Ids of a piece of text that is not divided into words first.
    fn encode(&self, text: &str) -> Vec<u32> {
        let parts = self.split(text.as_bytes(), u32::MAX);
        parts.iter().filter_map(|p| self.ids.get(p).copied()).collect()
    }

    /// `tokenizer.json` with `added` special tokens behind the others.
    ///
    /// # Errors
    /// Where a token cannot be made of two others.
    fn json(&self, added: &[String]) -> Result<Value> {
        let mut vocab = Map::new();
        let mut merges = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            vocab.insert(spelled(token), id.into());
            if token.len() > 1 {
                let &[left, right] = &self.split(token, id as u32)[..] else {
                    let what = format!("token {id} is not made of two tokens of lower rank");
                    return Err(Error::malformed(what));
                };
                merges.push(json!([spelled(left), spelled(right)]));
            }
        }
        let special = |(i, text): (usize, &String)| {
            json!({"id": self.len() + i, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        };
        let level = |space: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true});
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "added_tokens": added.iter().enumerate().map(special).collect::<Vec<_>>(),
            "pre_tokenizer": level(false), "decoder": level(true),
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
        }))
    }
}

/// The character that stands for a byte in the vocabulary of a byte-level tokenizer (Radford et al. 2019): itself where it
/// is printable, else the next from U+0100 on.
fn letter(byte: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match plain(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&b| !plain(b)).count();
            char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}

fn spelled(token: &[u8]) -> String {
    token.iter().map(|&b| letter(b)).collect()
}

/// The bytes of tokens as a byte-level vocabulary spells them; `None` where one is spelled otherwise.
pub(crate) fn unspelled<'a>(tokens: impl Iterator<Item = &'a String>) -> Option<Vec<Vec<u8>>> {
    let bytes: HashMap<char, u8> = (0..=u8::MAX).map(|b| (letter(b), b)).collect();
    let token = |t: &String| t.chars().map(|c| bytes.get(&c).copied()).collect();
    tokens.map(token).collect()
}

/// What a Whisper vocabulary gives.
pub(crate) struct Whisper {
    pub(crate) tokenizer: TokenizerFiles,
    /// In the convention of `transformers`.
    pub(crate) generation_config: Map<String, Value>,
}

/// The tokenizer of Whisper from its plain tokens, and what its generation has to know, for a model with `vocab_size` logits.
///
/// # Errors
/// Those of [`Ranks::new`], and where `vocab_size` has no room for the special tokens.
pub(crate) fn whisper(ranks: &Ranks<'_>, vocab_size: usize) -> Result<Whisper> {
    let all: Vec<&str> = LANGUAGES.split_whitespace().collect();
    let room = vocab_size.checked_sub(ranks.len() + OTHERS + STAMPS);
    let Some(languages) = room.filter(|&n| n > 0 && n <= all.len()).map(|n| &all[..n]) else {
        let what = format!(
            "a Whisper model has 1 to {} languages, {OTHERS} special tokens and {STAMPS} times behind its {} text tokens; this one has {vocab_size} in all",
            all.len(),
            ranks.len()
        );
        return Err(Error::unsupported(what));
    };
    let mut special = vec!["endoftext", "startoftranscript"];
    special.extend(languages);
    special.extend([
        "translate",
        "transcribe",
        "startoflm",
        "startofprev",
        "nospeech",
        "notimestamps",
    ]);
    let special: Vec<String> = special.iter().map(|name| format!("<|{name}|>")).collect();
    let id = |name: &str| {
        let at = special.iter().position(|s| s[2..s.len() - 2] == *name);
        (ranks.len() + at.unwrap_or(0)) as u32
    };
    let multilingual = vocab_size >= 51_865;
    let mut suppressed = not_speech(ranks);
    suppressed.extend(
        [
            "startoftranscript",
            "translate",
            "transcribe",
            "startoflm",
            "startofprev",
            "nospeech",
        ]
        .map(id),
    );
    suppressed.sort_unstable();
    suppressed.dedup();
    let mut first = ranks.encode(" ");
    first.push(id("endoftext"));
    let mut generation_config = Map::new();
    let mut set = |key: &str, value: Value| generation_config.insert(key.to_owned(), value);
    set("begin_suppress_tokens", json!(first));
    set("decoder_start_token_id", json!(id("startoftranscript")));
    set("eos_token_id", json!(id("endoftext")));
    set("is_multilingual", json!(multilingual));
    set("no_timestamps_token_id", json!(id("notimestamps")));
    set("prev_sot_token_id", json!(id("startofprev")));
    set("suppress_tokens", json!(suppressed));
    let json = ranks.json(&special)?;
    let tokenizer_json = serde_json::to_vec(&json).map_err(|e| Error::malformed(e.to_string()))?;
    Ok(Whisper {
        tokenizer: TokenizerFiles {
            tokenizer_json,
            tokenizer_config: json!({"add_bos_token": false, "bos_token": special[0], "eos_token": special[0],
                "tokenizer_class": "WhisperTokenizer"}),
            chat_template: None,
        },
        generation_config,
    })
}

/// Tokens that stand for no speech: brackets, notes of music and signs that subtitles have for sounds; a hyphen and an
/// apostrophe at the beginning of a word (`non_speech_tokens` of OpenAI's tokenizer).
fn not_speech(ranks: &Ranks<'_>) -> Vec<u32> {
    let single = "\"#()*+/:;<=>@[\\]^_`{|}~「」『』".chars().map(String::from);
    let several = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(' ');
    // Not in the vocabulary: their first bytes stand for them.
    let music = "♩♪♫♬♭♮♯".chars().map(String::from);
    let always = music.clone().count();
    let symbols: Vec<String> = music.chain(single).chain(several.map(str::to_owned)).collect();
    let mut found: Vec<u32> = [" -", " '"]
        .iter()
        .filter_map(|t| ranks.encode(t).first().copied())
        .collect();
    for (i, symbol) in symbols.iter().enumerate() {
        for text in [symbol.clone(), format!(" {symbol}")] {
            match ranks.encode(&text)[..] {
                [only] => found.push(only),
                [first, ..] if i < always => found.push(first),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`Ranks::split`] is defined.
    fn split<'b>(ranks: &Ranks<'_>, bytes: &'b [u8], below: u32) -> Vec<&'b [u8]> {
        let mut parts: Vec<&[u8]> = bytes.chunks(1).collect();
        let mut at: Vec<usize> = (0..bytes.len()).collect();
        loop {
            let pairs = (1..parts.len()).filter_map(|i| {
                let pair = &bytes[at[i - 1]..at[i] + parts[i].len()];
                Some((*ranks.ids.get(pair)?, i, pair))
            });
            let Some((_, i, pair)) = pairs.min().filter(|(rank, ..)| *rank < below) else {
                return parts;
            };
            parts[i - 1] = pair;
            parts.remove(i);
            at.remove(i);
        }
    }

    fn single() -> Vec<Vec<u8>> {
        (0..=u8::MAX).map(|byte| vec![byte]).collect()
    }

    #[test]
    fn tokens_are_split_by_the_lowest_rank_first() {
        let mut tokens = single();
        let words = [
            "aa", "ab", "ba", "aab", "aaa", "bab", "abab", "baa", "aaaa", "abaa", "aabaa",
        ];
        tokens.extend(words.map(|word| word.as_bytes().to_vec()));
        let ranks = Ranks::new(tokens.iter().map(Vec::as_slice).collect()).unwrap();
        let mut state = 1u32;
        for length in (0..12).cycle().take(600) {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"abaac"[(state >> 24) as usize % 5]
                })
                .collect();
            for below in [256, 258, 261, u32::MAX] {
                assert_eq!(
                    ranks.split(&bytes, below),
                    split(&ranks, &bytes, below),
                    "{bytes:?} {below}"
                );
            }
        }
    }

    #[test]
    fn tokens_longer_than_any_that_is_known_are_refused() {
        let mut tokens = single();
        // Each is the one before and a byte.
        tokens.extend((2..=MAX_TOKEN_BYTES).map(|length| vec![b'a'; length]));
        let ranks = Ranks::new(tokens.iter().map(Vec::as_slice).collect()).unwrap();
        let longest = vec![b'a'; MAX_TOKEN_BYTES];
        assert_eq!(ranks.split(&longest, u32::MAX), [&longest[..]]);
        tokens.push(vec![b'a'; MAX_TOKEN_BYTES + 1]);
        let error = Ranks::new(tokens.iter().map(Vec::as_slice).collect()).err().unwrap();
        assert!(
            error
                .to_string()
                .contains("token 511 should have 1 to 256 bytes, found 257"),
            "{error}"
        );
    }
}
