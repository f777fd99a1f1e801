//! The tokenizer: text to ids and back, special tokens, and which ids end an answer.
//!
//! Byte pair encoding is this crate's own, over tables that are mapped and not built at every start (see [`tables`]); the
//! stages around it and other kinds of vocabulary are the `tokenizers` crate's. Decoding is this crate's own too (see
//! [`crate::detokenize`]), so that text comes out the same whether it is decoded at once or streamed.

mod bpe;
mod file;
mod special;
mod tables;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use crate::detokenize::Decoding;
use crate::files::{parse_object, read_optional};
use crate::{Error, ErrorKind, StreamDecoder};
use file::LoadedModel;
use special::SpecialTokens;
pub use special::known_end_ids;
pub use tables::TokenizerTables;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl};

/// The `tokenizers` crate's tokenizer with our reading of the vocabulary.
pub(crate) type Inner =
    TokenizerImpl<LoadedModel, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// The files a tokenizer is made of, as bytes. Only the first is required, and with `tables` not even that.
#[derive(Debug, Clone, Default)]
pub struct TokenizerSource<'a> {
    /// `tokenizer.json`; not looked at where there are `tables`.
    pub tokenizer: &'a [u8],
    /// What [`Tokenizer::tables`] made of `tokenizer.json` before.
    pub tables: Option<TokenizerTables>,
    /// `tokenizer_config.json`: names of special tokens, `add_bos_token`, `add_eos_token`.
    pub tokenizer_config: Option<&'a [u8]>,
    /// `special_tokens_map.json`: names of special tokens that the configuration lacks.
    pub special_tokens_map: Option<&'a [u8]>,
    /// `generation_config.json`: `eos_token_id`, one id or a list.
    pub generation_config: Option<&'a [u8]>,
}

/// Some editors begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Most that the replacements of a normalizer or decoder may multiply a text by. Files in circulation reach 4.
const MAX_GROWTH: usize = 1 << 10;

/// A model's tokenizer. Immutable and shareable between threads.
#[derive(Debug)]
pub struct Tokenizer {
    inner: Inner,
    /// The same, for [`encode_as_text`](Self::encode_as_text).
    as_text: OnceLock<Inner>,
    decoding: Decoding,
    special: SpecialTokens,
    vocab_size: usize,
    /// What `encode(.., true)` does with the two ends, which `tokenizer.json` may not say itself.
    bos: Ending,
    eos: Ending,
}

/// How the begin or end token gets to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// As the post-processor of `tokenizer.json` has it.
    AsIs,
    /// The configuration asks for this id, the post-processor does not add it.
    Add(u32),
    /// The configuration forbids this id, the post-processor adds it.
    Remove(u32),
}

impl Tokenizer {
    /// Loads the tokenizer of a model folder or bundle.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] without a `tokenizer.json`, and those of [`from_source`](Self::from_source).
    pub fn from_dir(folder: &Path) -> Result<Self, Error> {
        let Some(tokenizer) = read_optional(&folder.join("tokenizer.json"))? else {
            let message = format!("no `tokenizer.json` in `{}`", folder.display());
            return Err(Error::new(ErrorKind::MissingFile, message));
        };
        let tokenizer_config = read_optional(&folder.join("tokenizer_config.json"))?;
        let special_tokens_map = read_optional(&folder.join("special_tokens_map.json"))?;
        let generation_config = read_optional(&folder.join("generation_config.json"))?;
        Self::from_source(TokenizerSource {
            tokenizer: &tokenizer,
            tables: None,
            tokenizer_config: tokenizer_config.as_deref(),
            special_tokens_map: special_tokens_map.as_deref(),
            generation_config: generation_config.as_deref(),
        })
    }

    /// Loads a tokenizer from the bytes of a `tokenizer.json` alone.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTokenizer`] if it is not one.
    pub fn from_bytes(tokenizer: &[u8]) -> Result<Self, Error> {
        Self::from_source(TokenizerSource {
            tokenizer,
            ..Default::default()
        })
    }

    /// Loads a tokenizer from the bytes of its files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTokenizer`] if `tokenizer.json` is not one or the tables are damaged,
    /// [`ErrorKind::InvalidConfig`] if another file has the wrong form or names a token that the vocabulary lacks.
    pub fn from_source(source: TokenizerSource<'_>) -> Result<Self, Error> {
        let inner = match source.tables {
            Some(tables) => load("tokenizer.tables", || file::open(tables))?,
            None => {
                let bytes = source.tokenizer;
                load("tokenizer.json", || {
                    file::read(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes))
                })?
            }
        };
        let decoding = Decoding::new(&inner)?;
        let vocab_size = vocab_size(&inner);
        let optional = |name: &str, bytes: Option<&[u8]>| bytes.map(|b| parse_object(name, b)).transpose();
        let config = optional("tokenizer_config.json", source.tokenizer_config)?.unwrap_or_default();
        let map = optional("special_tokens_map.json", source.special_tokens_map)?.unwrap_or_default();
        let generation = optional("generation_config.json", source.generation_config)?.unwrap_or_default();
        let special = SpecialTokens::new(&inner, vocab_size, &config, &map, &generation)?;

        let probe = encode(&inner, "a", true).map_err(|e| invalid("tokenizer.json", &e).with_source(e))?;
        let ends = |wanted: Option<bool>, token: Option<u32>, end: Option<&u32>| match (wanted, token) {
            (Some(wanted), Some(token)) => match (wanted, end == Some(&token)) {
                (true, false) => Ending::Add(token),
                (false, true) => Ending::Remove(token),
                _ => Ending::AsIs,
            },
            _ => Ending::AsIs,
        };
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let bos = ends(flag("add_bos_token"), special.bos, probe.first());
        let eos = ends(flag("add_eos_token"), special.eos, probe.last());
        Ok(Self {
            inner,
            as_text: OnceLock::new(),
            decoding,
            special,
            vocab_size,
            bos,
            eos,
        })
    }

    /// The tables that this tokenizer searches, to be stored and given to [`from_source`](Self::from_source) in place of
    /// `tokenizer.json`, which takes far longer to read. `None` for kinds of vocabulary that have none: all but BPE.
    pub fn tables(&self) -> Option<&TokenizerTables> {
        self.inner.get_model().tables()
    }

    /// The ids of a text. Special tokens written out in the text become their ids.
    ///
    /// With `add_special` the tokens that a bare text gets are added: a begin token, as `tokenizer.json`'s
    /// post-processor or `add_bos_token` says, and whatever else the post-processor adds. The output of a
    /// chat template already contains them, so it is encoded without.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if the tokenizer's own rules fail on the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
        self.encode_with(&self.inner, text, add_special)
    }

    /// The ids of two texts with the tokens that the post-processor puts around and between them, and which of the two each is of:
    /// 0 or 1, as the post-processor says.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if the tokenizer's own rules fail on a text.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let encoded = std::panic::catch_unwind(AssertUnwindSafe(|| self.inner.encode((first, second), true)));
        let failed = |reason: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Encode, format!("two texts could not be tokenized: {reason}"))
        };
        let encoding = match encoded {
            Ok(Ok(encoding)) => encoding,
            Ok(Err(e)) => return Err(failed(&e).with_source(e)),
            Err(_) => return Err(failed(&"the parts of `tokenizer.json` contradict each other")),
        };
        Ok((encoding.get_ids().to_vec(), encoding.get_type_ids().to_vec()))
    }

    /// As [`encode`](Self::encode), but special tokens written out in the text stay text: `<|im_end|>` becomes the ids of
    /// its letters, as any other word, and never the id that ends a turn. It is for texts of others, which must not be able
    /// to forge structure. What [`is_special`](Self::is_special) says no to, such as the `<tool_call>` of some models,
    /// becomes its id here too.
    ///
    /// The ids are those that Hugging Face tokenizers give with `split_special_tokens`, except where a vocabulary has the
    /// special token as an ordinary piece as well: that piece is not used.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if the tokenizer's own rules fail on the text, or a special token is a single character, which
    /// cannot be spelled in another way.
    pub fn encode_as_text(&self, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
        let inner = self.as_text.get_or_init(|| {
            let mut inner = self.inner.clone();
            inner.with_model(self.inner.get_model().without(&self.special.ids));
            inner.set_encode_special_tokens(true);
            inner
        });
        self.encode_with(inner, text, add_special)
    }

    fn encode_with(&self, inner: &Inner, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
        let mut ids = encode(inner, text, add_special)?;
        if add_special {
            match self.bos {
                // The text may begin with the token itself.
                Ending::Add(token) if ids.first() != Some(&token) => ids.insert(0, token),
                Ending::Remove(token) if ids.first() == Some(&token) => drop(ids.remove(0)),
                _ => {}
            }
            match self.eos {
                Ending::Add(token) if ids.last() != Some(&token) => ids.push(token),
                Ending::Remove(token) if ids.last() == Some(&token) => drop(ids.pop()),
                _ => {}
            }
        }
        Ok(ids)
    }

    /// The text of ids. Ids outside the vocabulary are skipped, and special tokens too with `skip_special`.
    ///
    /// Bytes that are not UTF-8 become U+FFFD. The result equals what a [`StreamDecoder`] gives in pieces.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = StreamDecoder::new(skip_special);
        let mut text = String::new();
        for &id in ids {
            stream.push(self, id, &mut text);
        }
        stream.finish(self, &mut text);
        text
    }

    /// The vocabulary's own spelling of a token, such as `Ġhello`, `▁hello` or `<0x0A>`.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes that a token stands for in the middle of a text, such as ` hello` or a part of a character.
    /// Special tokens give their spelling. `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.token_text(id)?;
        Some(self.decoding.bytes_of(&token))
    }

    /// The id of a token by the vocabulary's spelling.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Whether the id is a special token, one that marks structure and is not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.ids.binary_search(&id).is_ok()
    }

    /// The spellings that become tokens of their own wherever they stand in a text, ascending by bytes, and whether each is
    /// special.
    pub fn added_tokens(&self) -> &[(String, bool)] {
        &self.special.added
    }

    /// One more than the highest id. A model's output may be longer: rows of its embedding are often padded.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The begin-of-sequence token that the configuration names.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The end-of-sequence token that the configuration names. Generation ends at any of
    /// [`stop_ids`](Self::stop_ids).
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The ids that end an answer, ascending: all of `generation_config.json`'s `eos_token_id` and the configuration's
    /// `eos_token`. Unless the former is a list, the end-of-turn tokens known in the field that this vocabulary marks
    /// as special are among them, such as `<|im_end|>`, `<end_of_turn>` and `<|eot_id|>`.
    pub fn stop_ids(&self) -> &[u32] {
        &self.special.stop
    }

    /// Whether `encode(text, true)` begins with the begin-of-sequence token.
    pub fn adds_bos(&self) -> bool {
        match self.bos {
            Ending::Add(_) => true,
            Ending::Remove(_) => false,
            Ending::AsIs => {
                let ids = self.encode("a", true).unwrap_or_default();
                self.special.bos.is_some() && ids.first() == self.special.bos.as_ref()
            }
        }
    }

    pub(crate) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

/// One more than the highest id.
fn vocab_size(inner: &Inner) -> usize {
    let added = inner.get_added_vocabulary().get_added_tokens_decoder();
    let added = added.keys().max().map_or(0, |&id| id as usize + 1);
    inner.get_model().ids().max(added)
}

/// Reads a tokenizer, turning panics of the library into errors: the file is untrusted.
fn load(file: &str, read: impl FnOnce() -> tokenizers::Result<Inner>) -> Result<Inner, Error> {
    let inner = match std::panic::catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(inner)) => inner,
        Ok(Err(e)) => return Err(invalid(file, &e).with_source(e)),
        Err(_) => return Err(invalid(file, &"its parts contradict each other")),
    };
    let growing = [json_of(inner.get_normalizer()), json_of(inner.get_decoder())]
        .iter()
        .any(|part| growth(part) > MAX_GROWTH);
    if growing {
        return Err(invalid(file, &"its replacements make the text too long"));
    }
    Ok(inner)
}

fn json_of<T: serde::Serialize>(part: Option<&T>) -> Value {
    part.and_then(|part| serde_json::to_value(part).ok())
        .unwrap_or_default()
}

/// How many times longer replacements can make a text, at most: stages that follow one another multiply.
fn growth(stage: &Value) -> usize {
    let stages = ["normalizers", "decoders"]
        .iter()
        .find_map(|key| stage.get(key)?.as_array());
    if let Some(stages) = stages {
        return stages.iter().map(growth).fold(1, usize::saturating_mul);
    }
    let Some(content) = stage.get("content").and_then(Value::as_str) else {
        return 1;
    };
    let pattern = stage
        .pointer("/pattern/String")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match pattern.len() {
        // A regular expression, or nothing at all, may match between any two bytes.
        0 => content.len() + 1,
        length => content.len().div_ceil(length).max(1),
    }
}

fn invalid(file: &str, reason: &dyn std::fmt::Display) -> Error {
    let message = match file {
        "tokenizer.tables" => format!("`{file}` is damaged: {reason}; convert the model again"),
        _ => format!("`{file}` is not a tokenizer in the Hugging Face format: {reason}"),
    };
    Error::new(ErrorKind::InvalidTokenizer, message)
}

/// The ids of a text by the library alone, turning its panics into errors: it does not check that a post-processor uses
/// only the tokens and sequences that there are.
fn encode(inner: &Inner, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
    let encoded = std::panic::catch_unwind(AssertUnwindSafe(|| inner.encode_fast(text, add_special)));
    let failed = |reason: &dyn std::fmt::Display| {
        let message = format!("text of {} bytes could not be tokenized: {reason}", text.len());
        Error::new(ErrorKind::Encode, message)
    };
    match encoded {
        Ok(Ok(encoding)) => Ok(encoding.get_ids().to_vec()),
        Ok(Err(e)) => Err(failed(&e).with_source(e)),
        Err(_) => Err(failed(&"the parts of `tokenizer.json` contradict each other")),
    }
}
