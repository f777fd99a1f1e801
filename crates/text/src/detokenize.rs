//! From ids back to text, at once or as they come.
//!
//! Depends on the tokenizer for spellings only. It deliberately does not know stop strings or generation.
//!
//! Tokens are not whole characters: a character outside the vocabulary is spread over several byte tokens,
//! and SentencePiece tokenizers drop the space that the first token would begin with. The decoder therefore
//! keeps the bytes that do not make a character yet and where in the text it is, and nothing else, so each
//! token costs its own length.
//!
//! The rules are those of the decoders in the `tokenizers` crate. One is softened: where a run of byte
//! tokens is not UTF-8 as a whole, that crate replaces all of it, and here only the bad bytes are replaced,
//! because the good characters before them are already out.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::tokenizer::Inner;
use crate::{Error, ErrorKind, Tokenizer};

/// How spellings become text, worked out from the decoder in `tokenizer.json`.
#[derive(Debug)]
pub(crate) enum Decoding {
    /// GPT-2's byte alphabet: every character of a spelling is one byte.
    ByteLevel,
    /// SentencePiece's: spellings are text.
    Pieces(Pieces),
    /// No decoder: spellings with spaces between.
    Spaced,
    /// Anything else is left to the `tokenizers` crate, decoding a sliding window of ids.
    Delegated,
}

#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Replaced in every spelling, in order.
    replace: Vec<(String, String)>,
    /// Removed from the first spelling; SentencePiece's "dummy prefix" in its newer form.
    drop_in_first: Option<char>,
    /// `<0x41>` is the byte 0x41.
    byte_fallback: bool,
    /// Up to so many of this character are dropped at the beginning of the text; the older form.
    strip_start: Option<(char, usize)>,
}

impl Decoding {
    pub(crate) fn new(inner: &Inner) -> Result<Self, Error> {
        let Some(decoder) = inner.get_decoder() else {
            return Ok(Self::Spaced);
        };
        let json = serde_json::to_value(decoder).map_err(|e| {
            let message = format!("the decoder of `tokenizer.json` has no JSON form: {e}");
            Error::new(ErrorKind::InvalidTokenizer, message).with_source(e)
        })?;
        let stages = match json.get("decoders").and_then(Value::as_array) {
            Some(stages) => stages.as_slice(),
            None => std::slice::from_ref(&json),
        };
        if let [only] = stages
            && stage_type(only) == "ByteLevel"
        {
            return Ok(Self::ByteLevel);
        }
        Ok(Pieces::new(stages).map_or(Self::Delegated, Self::Pieces))
    }

    /// What a spelling stands for in the middle of a text.
    pub(crate) fn bytes_of(&self, token: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => byte_level(token),
            Self::Pieces(pieces) => {
                let text = pieces.replaced(token);
                match byte_token(&text).filter(|_| pieces.byte_fallback) {
                    Some(byte) => vec![byte],
                    None => text.into_owned().into_bytes(),
                }
            }
            Self::Spaced | Self::Delegated => token.as_bytes().to_vec(),
        }
    }
}

impl Pieces {
    /// `None` for stages, or an order of them, that cannot be followed token by token.
    fn new(stages: &[Value]) -> Option<Self> {
        let mut pieces = Self::default();
        let mut fused = false;
        for stage in stages {
            match stage_type(stage) {
                "Replace" if !fused && !pieces.byte_fallback => {
                    let from = stage.get("pattern")?.get("String")?.as_str()?;
                    let to = stage.get("content")?.as_str()?;
                    pieces.replace.push((from.to_owned(), to.to_owned()));
                }
                "Metaspace" if !fused && !pieces.byte_fallback => {
                    let mark = stage.get("replacement")?.as_str()?.chars().next()?;
                    if stage.get("prepend_scheme")?.as_str()? != "never" {
                        pieces.drop_in_first = Some(mark);
                    }
                    pieces.replace.push((mark.to_string(), " ".to_owned()));
                }
                "ByteFallback" if !fused => pieces.byte_fallback = true,
                "Fuse" => fused = true,
                "Strip" if fused && pieces.strip_start.is_none() && stage.get("stop")?.as_u64()? == 0 => {
                    let mark = stage.get("content")?.as_str()?.chars().next()?;
                    let count = usize::try_from(stage.get("start")?.as_u64()?).ok()?;
                    pieces.strip_start = Some((mark, count));
                }
                _ => return None,
            }
        }
        Some(pieces)
    }

    fn replaced<'a>(&self, token: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(token);
        for (from, to) in &self.replace {
            if text.contains(from.as_str()) {
                text = Cow::Owned(text.replace(from.as_str(), to));
            }
        }
        text
    }
}

/// Turns the ids of one answer into text as they come, in pieces that end on character borders.
///
/// The pieces joined together equal [`Tokenizer::decode`] of all ids.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    skip_special: bool,
    /// Bytes that do not make a character yet: at most 3.
    pending: Vec<u8>,
    /// Whether a token was decoded.
    started: bool,
    /// Characters already dropped at the beginning of the text; `None` once that is over.
    stripped: Option<usize>,
    window: Window,
}

/// State of [`Decoding::Delegated`].
#[derive(Debug, Clone, Default)]
struct Window {
    ids: Vec<u32>,
    /// Ids whose text is out; they stay as context for the next.
    done: usize,
    /// Bytes of the window's text that are out.
    text_bytes: usize,
}

impl StreamDecoder {
    /// A decoder at the beginning of a text. With `skip_special`, special tokens leave no trace.
    pub fn new(skip_special: bool) -> Self {
        Self {
            skip_special,
            pending: Vec::new(),
            started: false,
            stripped: Some(0),
            window: Window::default(),
        }
    }

    /// Takes the next id and appends the characters it completes to `out`. Ids outside the vocabulary are
    /// skipped.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32, out: &mut String) {
        if self.skip_special && tokenizer.is_special(id) {
            return;
        }
        match tokenizer.decoding() {
            Decoding::ByteLevel => {
                if let Some(token) = tokenizer.token_text(id) {
                    self.pending.extend(byte_level(&token));
                    self.release(out, Replacement::PerSequence);
                }
            }
            Decoding::Pieces(pieces) => {
                if let Some(token) = tokenizer.token_text(id) {
                    self.push_piece(pieces, &token, out);
                }
            }
            Decoding::Spaced => {
                if let Some(token) = tokenizer.token_text(id) {
                    if self.started {
                        out.push(' ');
                    }
                    out.push_str(&token);
                    self.started = true;
                }
            }
            Decoding::Delegated => self.window.push(tokenizer, id, self.skip_special, out),
        }
    }

    /// Ends the text: appends U+FFFD for bytes that never became a character.
    pub fn finish(&mut self, tokenizer: &Tokenizer, out: &mut String) {
        match tokenizer.decoding() {
            Decoding::ByteLevel => {
                if !self.pending.is_empty() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
            }
            Decoding::Pieces(_) => {
                self.started |= !self.pending.is_empty();
                out.extend(self.pending.iter().map(|_| char::REPLACEMENT_CHARACTER));
            }
            Decoding::Spaced => {}
            Decoding::Delegated => self.window.finish(tokenizer, self.skip_special, out),
        }
        *self = Self::new(self.skip_special);
    }

    fn push_piece(&mut self, pieces: &Pieces, token: &str, out: &mut String) {
        let text = match pieces.drop_in_first.filter(|_| !self.started) {
            Some(mark) => Cow::Owned(token.replace(mark, "")),
            None => Cow::Borrowed(token),
        };
        self.started = true;
        let text = pieces.replaced(&text);
        let start = out.len();
        match byte_token(&text).filter(|_| pieces.byte_fallback) {
            Some(byte) => {
                self.pending.push(byte);
                self.release(out, Replacement::PerByte);
            }
            None => {
                out.extend(self.pending.drain(..).map(|_| char::REPLACEMENT_CHARACTER));
                out.push_str(&text);
            }
        }
        if let (Some((mark, most)), Some(mut stripped)) = (pieces.strip_start, self.stripped) {
            let mut drop = 0;
            for c in out[start..].chars() {
                if c != mark || stripped == most {
                    self.stripped = None;
                    break;
                }
                drop += c.len_utf8();
                stripped += 1;
                self.stripped = Some(stripped);
            }
            out.drain(start..start + drop);
        }
    }

    /// Moves whole characters from `pending` to `out`, and replaces what cannot become one.
    fn release(&mut self, out: &mut String, replacement: Replacement) {
        let mut rest = self.pending.as_slice();
        let incomplete = loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    break 0;
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(bad) = e.error_len() else { break after.len() };
                    let marks = match replacement {
                        Replacement::PerSequence => 1,
                        Replacement::PerByte => bad,
                    };
                    out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, marks));
                    rest = &after[bad..];
                }
            }
        };
        self.pending.drain(..self.pending.len() - incomplete);
    }
}

/// How many U+FFFD a bad sequence of bytes becomes.
#[derive(Debug, Clone, Copy)]
enum Replacement {
    /// One, like `String::from_utf8_lossy`; byte-level decoders do this.
    PerSequence,
    /// One for each byte; byte fallback does this.
    PerByte,
}

impl Window {
    fn push(&mut self, tokenizer: &Tokenizer, id: u32, skip_special: bool, out: &mut String) {
        self.ids.push(id);
        let text = self.text(tokenizer, skip_special);
        // An end that may still become a character or change with the next token waits.
        if text.len() > self.text_bytes && !text.ends_with(char::REPLACEMENT_CHARACTER) {
            out.push_str(text.get(self.text_bytes..).unwrap_or_default());
            self.ids.drain(..self.done);
            self.done = self.ids.len();
            self.text_bytes = self.text(tokenizer, skip_special).len();
        }
    }

    fn finish(&mut self, tokenizer: &Tokenizer, skip_special: bool, out: &mut String) {
        let text = self.text(tokenizer, skip_special);
        out.push_str(text.get(self.text_bytes..).unwrap_or_default());
    }

    fn text(&self, tokenizer: &Tokenizer, skip_special: bool) -> String {
        // The library's decoders fail on no sound file; a hostile one makes some of them panic, and then has no text.
        let decode = || tokenizer.inner().decode(&self.ids, skip_special).unwrap_or_default();
        catch_unwind(AssertUnwindSafe(decode)).unwrap_or_default()
    }
}

fn stage_type(stage: &Value) -> &str {
    stage.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The byte that a byte-fallback spelling stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The bytes of a spelling in GPT-2's alphabet; a spelling with any other character stands for itself.
fn byte_level(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(alphabet_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the 68 other bytes are U+0100 onward in order.
fn alphabet_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(alphabet_byte)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        for (c, byte) in [
            ('Ġ', b' '),
            ('Ċ', b'\n'),
            ('ĉ', b'\t'),
            ('Ā', 0),
            ('ł', 0xa0),
            ('Ń', 0xad),
            ('A', b'A'),
        ] {
            assert_eq!(alphabet_byte(c), Some(byte), "{c}");
        }
        assert_eq!(byte_level("Ġhé"), [b' ', b'h', 0xe9]);
        assert_eq!(byte_level("a b"), b"a b");
        assert_eq!(byte_level("日本"), "日本".as_bytes());
    }

    #[test]
    fn byte_tokens_are_two_hex_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xff>"), Some(255));
        for other in ["<0x0>", "<0x00A>", "0x0A", "<0xGG>", "<0x>", "<0x+1>", ""] {
            assert_eq!(byte_token(other).filter(|_| other != "<0x+1>"), None, "{other}");
        }
    }
}
