//! A Hugging Face `tokenizer.json` from GGUF metadata.
//!
//! GGUF stores a tokenizer as arrays: the texts of all tokens, a kind and perhaps a score for each, a list of merges
//! for byte-level BPE, the name of a pre-tokenizer, ids of special tokens. From these come the same files that a
//! Hugging Face folder has, so that one tokenizer implementation serves both.

use super::metadata::required;
use super::{Metadata, names, pretokenizer, spm, unigram, word_piece};
use crate::{Error, ErrorKind, Result, TokenizerFiles};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Prefix of named chat templates.
const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// The architecture whose special tokens take the white space behind them, where its tokenizer is one of SentencePiece.
const PHI3: &str = "phi3";
/// Those of its special tokens that do not.
const PHI3_PLAIN: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// What a token is, by `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn from_id(id: i64) -> Kind {
        match id {
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Normal,
        }
    }
}

/// The tokens of a file.
struct Vocabulary<'a> {
    texts: Vec<Cow<'a, str>>,
    kinds: Vec<Kind>,
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &'a Metadata) -> Result<Self> {
        const KEY: &str = "tokenizer.ggml.tokens";
        let tokens = required(metadata.strings(KEY)?, KEY)?;
        let name = |(id, text): (usize, &'a String)| match text.is_empty() {
            true => Cow::Owned(format!("[EMPTY_{id}]")),
            false => Cow::Borrowed(text.as_str()),
        };
        let texts: Vec<Cow<'_, str>> = tokens.iter().enumerate().map(name).collect();
        let kinds = match metadata.get("tokenizer.ggml.token_type") {
            None => vec![Kind::Normal; texts.len()],
            Some(super::Value::Array(super::Array::I32(kinds))) => {
                kinds.iter().map(|&k| Kind::from_id(k.into())).collect()
            }
            Some(super::Value::Array(super::Array::U32(kinds))) => {
                kinds.iter().map(|&k| Kind::from_id(k.into())).collect()
            }
            Some(_) => {
                return Err(Error::malformed(
                    "the metadata key `tokenizer.ggml.token_type` should be an array of 32-bit integers",
                ));
            }
        };
        if kinds.len() != texts.len() {
            return Err(Error::malformed(format!(
                "`tokenizer.ggml.token_type` has {} elements for {} tokens",
                kinds.len(),
                texts.len()
            )));
        }
        if u32::try_from(texts.len()).is_err() {
            return Err(Error::unsupported("the vocabulary has 2^32 tokens or more"));
        }
        Ok(Vocabulary { texts, kinds })
    }

    /// The same with pieces of words as a `vocab.txt` has them.
    fn of_word_pieces(self) -> Self {
        let rows = self.texts.iter().zip(&self.kinds);
        let special = |kind: Kind| matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined);
        let texts = rows.map(|(text, &kind)| Cow::Owned(word_piece::piece(text, special(kind))));
        Vocabulary {
            texts: texts.collect(),
            kinds: self.kinds,
        }
    }

    /// Id by text.
    fn ids(&self) -> Result<HashMap<&str, usize>> {
        let mut ids = HashMap::with_capacity(self.texts.len());
        for (id, text) in self.texts.iter().enumerate() {
            if let Some(first) = ids.insert(text.as_ref(), id) {
                return Err(Error::malformed(format!(
                    "the tokens {first} and {id} have the same text {text:?}"
                )));
            }
        }
        Ok(ids)
    }

    /// The id at a key of the metadata, with its text.
    fn special(&self, metadata: &Metadata, key: &str) -> Result<Option<(usize, &str)>> {
        let Some(id) = metadata.count(key)? else {
            return Ok(None);
        };
        match self.texts.get(id) {
            Some(text) => Ok(Some((id, text))),
            None => Err(Error::malformed(format!(
                "`{key}` is {id}, and there are {} tokens",
                self.texts.len()
            ))),
        }
    }
}

#[derive(Serialize)]
struct TokenizerJson<'a> {
    version: &'static str,
    truncation: Option<()>,
    padding: Option<()>,
    added_tokens: Vec<AddedToken<'a>>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Model<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Model<'a> {
    Bpe(Bpe<'a>),
    WordPiece(WordPiece<'a>),
    Unigram(Unigram<'a>),
}

#[derive(Serialize)]
struct AddedToken<'a> {
    id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Serialize)]
struct Bpe<'a> {
    r#type: &'static str,
    dropout: Option<()>,
    unk_token: Option<&'a str>,
    continuing_subword_prefix: Option<()>,
    end_of_word_suffix: Option<()>,
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    #[serde(serialize_with = "texts_with_ids")]
    vocab: &'a [Cow<'a, str>],
    merges: Vec<(&'a str, &'a str)>,
}

#[derive(Serialize)]
struct WordPiece<'a> {
    r#type: &'static str,
    unk_token: &'a str,
    continuing_subword_prefix: &'static str,
    max_input_chars_per_word: usize,
    #[serde(serialize_with = "texts_with_ids")]
    vocab: &'a [Cow<'a, str>],
}

#[derive(Serialize)]
struct Unigram<'a> {
    r#type: &'static str,
    unk_id: Option<usize>,
    byte_fallback: bool,
    vocab: Vec<(&'a str, f64)>,
}

fn texts_with_ids<S: Serializer>(texts: &&[Cow<'_, str>], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(texts.len()))?;
    for (id, text) in texts.iter().enumerate() {
        map.serialize_entry(text, &id)?;
    }
    map.end()
}

/// What the kinds of tokenizer differ in.
struct Parts<'a> {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Model<'a>,
    around: Around,
}

/// What stands around a text where the file does not say so.
struct Around {
    begins: bool,
    ends: bool,
    /// Whether the file has a say in it.
    always: bool,
}

impl Around {
    fn beginning(begins: bool) -> Around {
        let (ends, always) = (false, false);
        Around { begins, ends, always }
    }
}

/// What the kinds of BPE differ in.
struct BpeParts<'a> {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    unk_token: Option<&'a str>,
    byte_fallback: bool,
    whole_words: bool,
    merges: Vec<(&'a str, &'a str)>,
    adds_bos: bool,
}

impl<'a> BpeParts<'a> {
    fn with(self, vocab: &'a [Cow<'a, str>]) -> Parts<'a> {
        Parts {
            normalizer: self.normalizer,
            pre_tokenizer: self.pre_tokenizer,
            decoder: self.decoder,
            model: Model::Bpe(Bpe {
                r#type: "BPE",
                dropout: None,
                unk_token: self.unk_token,
                continuing_subword_prefix: None,
                end_of_word_suffix: None,
                fuse_unk: self.unk_token.is_some(),
                byte_fallback: self.byte_fallback,
                ignore_merges: self.whole_words,
                vocab,
                merges: self.merges,
            }),
            around: Around::beginning(self.adds_bos),
        }
    }
}

/// The tokenizer files that a Hugging Face folder of this model would have; `None` where the file has no tokenizer.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a tokenizer model or pre-tokenizer that is not known, naming the known ones;
/// [`ErrorKind::Missing`] where an array is absent; [`ErrorKind::Malformed`] where arrays disagree, a text occurs twice
/// or an id is out of range.
pub fn tokenizer(metadata: &Metadata) -> Result<Option<TokenizerFiles>> {
    let model = match metadata.string("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model,
    };
    let vocabulary = match model {
        "bert" => Vocabulary::read(metadata)?.of_word_pieces(),
        _ => Vocabulary::read(metadata)?,
    };
    let ids = vocabulary.ids()?;
    let all = &vocabulary.texts[..];
    let arch = metadata.string("general.architecture")?.unwrap_or_default();
    let encodes = names::Arch::from_name(arch).is_ok_and(names::Arch::is_encoder);
    let parts = match model {
        "gpt2" => byte_level(metadata, &ids)?.with(all),
        "llama" => sentence_piece(metadata, &vocabulary)?.with(all),
        "gemma4" => sentence_piece_with_merges(metadata, &vocabulary, &ids)?.with(all),
        "bert" => word_pieces(metadata, &vocabulary)?,
        "t5" => unigram(metadata, &vocabulary, encodes)?,
        other => {
            return Err(Error::unsupported(format!(
                "the tokenizer model `{other}` is not supported; supported are gpt2, llama, gemma4, bert, t5"
            )));
        }
    };
    let named = |keys: &[&str]| -> Result<Option<(usize, &str)>> {
        for key in keys {
            if let Some(found) = vocabulary.special(metadata, &format!("tokenizer.ggml.{key}"))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    let known = |text: &str| ids.get_key_value(text).map(|(text, id)| (*id, *text));
    let (bos, eos) = match model {
        "bert" => (
            named(&["cls_token_id", "bos_token_id"])?.or_else(|| known(word_piece::AROUND[0])),
            named(&["seperator_token_id", "eos_token_id"])?.or_else(|| known(word_piece::AROUND[1])),
        ),
        _ => (named(&["bos_token_id"])?, named(&["eos_token_id"])?),
    };
    let adds = |key: &str, usual: bool| match parts.around.always {
        true => Ok(usual),
        false => Ok::<bool, Error>(metadata.bool(key)?.unwrap_or(usual)),
    };
    let adds_bos = adds("tokenizer.ggml.add_bos_token", parts.around.begins)?;
    let adds_eos = adds("tokenizer.ggml.add_eos_token", parts.around.ends)?;
    let (bos_added, eos_added) = (bos.filter(|_| adds_bos), eos.filter(|_| adds_eos));
    let tokenizer_config = tokenizer_config(metadata, &vocabulary, bos_added.is_some(), eos_added.is_some())?;
    let chat_template = metadata.string(TEMPLATE_KEY)?.map(str::to_owned);
    let between = match (encodes, eos_added) {
        (true, Some(eos)) => {
            // RoBERTa has two of them between a query and a document, and says so where the converter is new enough.
            let twice = metadata.bool("tokenizer.ggml.add_sep_token")?.unwrap_or(model == "t5");
            let second = named(&["seperator_token_id"])?.unwrap_or(eos);
            Between::Ends(twice.then_some(second).filter(|_| model != "bert"))
        }
        _ => Between::Both,
    };
    let json = TokenizerJson {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens: added_tokens(&vocabulary, arch == PHI3 && model == "llama"),
        normalizer: parts.normalizer,
        pre_tokenizer: parts.pre_tokenizer,
        post_processor: post_processor(bos_added, eos_added, between, model == "bert"),
        decoder: parts.decoder,
        model: parts.model,
    };
    let tokenizer_json = match metadata.string("tokenizer.huggingface.json")? {
        // The file carries the original.
        Some(original) => original.as_bytes().to_vec(),
        None => to_bytes(&json)?,
    };
    Ok(Some(TokenizerFiles {
        tokenizer_json,
        tokenizer_config,
        chat_template,
    }))
}

fn to_bytes(json: &TokenizerJson<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    json.serialize(&mut serde_json::Serializer::new(&mut bytes))
        .map_err(|e| Error::new(ErrorKind::Malformed, "the tokenizer cannot be written as JSON").caused_by(e))?;
    Ok(bytes)
}

/// Pieces of words, as of BERT.
fn word_pieces<'a>(metadata: &'a Metadata, vocabulary: &'a Vocabulary<'a>) -> Result<Parts<'a>> {
    let unknown = vocabulary.special(metadata, "tokenizer.ggml.unknown_token_id")?;
    let rows = vocabulary.texts.iter().zip(&vocabulary.kinds);
    let normal = rows
        .filter(|(_, kind)| **kind == Kind::Normal)
        .map(|(text, _)| text.as_ref());
    // Tokens in brackets are no pieces, whatever the file calls them.
    let pieces = normal.filter(|text| !(text.starts_with('[') && text.ends_with(']')));
    Ok(Parts {
        normalizer: word_piece::normalizer(metadata, pieces)?,
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        model: Model::WordPiece(WordPiece {
            r#type: "WordPiece",
            unk_token: unknown.map_or(word_piece::UNKNOWN, |(_, text)| text),
            continuing_subword_prefix: "##",
            max_input_chars_per_word: 100,
            vocab: &vocabulary.texts,
        }),
        around: Around {
            begins: true,
            ends: true,
            always: true,
        },
    })
}

/// Pieces with scores, as of XLM-RoBERTa.
fn unigram<'a>(metadata: &'a Metadata, vocabulary: &'a Vocabulary<'a>, encodes: bool) -> Result<Parts<'a>> {
    let used: Vec<bool> = vocabulary.kinds.iter().map(|&kind| kind != Kind::Unused).collect();
    let scores = unigram::scores(metadata, &used)?;
    // The converter fills up to the rows of the table.
    let count = used.iter().rposition(|&used| used).map_or(0, |last| last + 1);
    let unknown = vocabulary.special(metadata, "tokenizer.ggml.unknown_token_id")?;
    let unknown = unknown.map(|(id, _)| id);
    let [normalizer, pre_tokenizer] = unigram::before(metadata)?;
    let scheme = pre_tokenizer.pointer("/pretokenizers/1").cloned().unwrap_or_default();
    Ok(Parts {
        normalizer,
        pre_tokenizer,
        decoder: scheme,
        model: Model::Unigram(Unigram {
            r#type: "Unigram",
            unk_id: unknown.or_else(|| vocabulary.kinds.iter().position(|&kind| kind == Kind::Unknown)),
            byte_fallback: vocabulary.kinds.contains(&Kind::Byte),
            vocab: vocabulary
                .texts
                .iter()
                .map(AsRef::as_ref)
                .zip(scores)
                .take(count)
                .collect(),
        }),
        around: Around {
            begins: encodes,
            ends: true,
            always: false,
        },
    })
}

/// Byte-level BPE, as of GPT-2.
fn byte_level<'a>(metadata: &'a Metadata, ids: &HashMap<&str, usize>) -> Result<BpeParts<'a>> {
    let pre = pretokenizer::find(metadata.string("tokenizer.ggml.pre")?)?;
    let mut steps: Vec<Value> = pre
        .splits
        .iter()
        .map(|regex| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false}))
        .collect();
    steps.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}));
    let normalizer = match pre.composes {
        true => json!({"type": "NFC"}),
        false => Value::Null,
    };
    Ok(BpeParts {
        normalizer,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": steps}),
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        unk_token: None,
        byte_fallback: false,
        whole_words: pre.whole_words,
        merges: listed_merges(metadata, ids)?,
        adds_bos: pre.adds_bos,
    })
}

/// `tokenizer.ggml.merges`: pairs with a space between. Pairs of which a part or the union is no token cannot apply
/// and are left out.
fn listed_merges<'a>(metadata: &'a Metadata, ids: &HashMap<&str, usize>) -> Result<Vec<(&'a str, &'a str)>> {
    const KEY: &str = "tokenizer.ggml.merges";
    let lines = required(metadata.strings(KEY)?, KEY)?;
    let mut merges = Vec::with_capacity(lines.len());
    let mut union = String::new();
    for line in lines {
        // A first part may itself start with a space, so the separator is looked for behind the first character.
        let after_first = line.chars().next().map_or(0, char::len_utf8);
        let Some(space) = line[after_first..].find(' ') else {
            return Err(Error::malformed(format!(
                "a merge should be two texts with a space between, found {line:?}"
            )));
        };
        let (left, right) = (&line[..after_first + space], &line[after_first + space + 1..]);
        union.clear();
        union.push_str(left);
        union.push_str(right);
        if [left, right, &union].iter().all(|text| ids.contains_key(text)) {
            merges.push((left, right));
        }
    }
    Ok(merges)
}

/// SentencePiece BPE, as of Llama 2 and Gemma 3: no merges in the file, scores instead.
fn sentence_piece<'a>(metadata: &'a Metadata, vocabulary: &'a Vocabulary<'a>) -> Result<BpeParts<'a>> {
    const KEY: &str = "tokenizer.ggml.scores";
    let scores = required(metadata.floats(KEY)?, KEY)?;
    if scores.len() != vocabulary.texts.len() {
        return Err(Error::malformed(format!(
            "`{KEY}` has {} elements for {} tokens",
            scores.len(),
            vocabulary.texts.len()
        )));
    }
    // Control and user-defined tokens are cut out of the text before merging, byte tokens only stand in for characters.
    let pieces: Vec<spm::Piece<'_>> = vocabulary
        .texts
        .iter()
        .zip(&vocabulary.kinds)
        .zip(scores)
        .filter(|((_, kind), _)| **kind == Kind::Normal)
        .map(|((text, _), &score)| spm::Piece { text, score })
        .collect();
    space_escaping(metadata, vocabulary, spm::merges(&pieces), true)
}

/// SentencePiece's treatment of spaces and bytes with a list of merges, as of Gemma 4.
fn sentence_piece_with_merges<'a>(
    metadata: &'a Metadata,
    vocabulary: &'a Vocabulary<'a>,
    ids: &HashMap<&str, usize>,
) -> Result<BpeParts<'a>> {
    let merges = listed_merges(metadata, ids)?;
    space_escaping(metadata, vocabulary, merges, false)
}

fn space_escaping<'a>(
    metadata: &'a Metadata,
    vocabulary: &'a Vocabulary<'a>,
    merges: Vec<(&'a str, &'a str)>,
    prefix_by_default: bool,
) -> Result<BpeParts<'a>> {
    let prefix = metadata
        .bool("tokenizer.ggml.add_space_prefix")?
        .unwrap_or(prefix_by_default);
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let normalizer = match prefix {
        true => json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}),
        false => replace,
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = match vocabulary.special(metadata, "tokenizer.ggml.unknown_token_id")? {
        Some((_, text)) => Some(text),
        None => {
            let id = vocabulary.kinds.iter().position(|&kind| kind == Kind::Unknown);
            id.map(|id| vocabulary.texts[id].as_ref())
        }
    };
    Ok(BpeParts {
        normalizer,
        pre_tokenizer: Value::Null,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        unk_token: unknown,
        byte_fallback: vocabulary.kinds.contains(&Kind::Byte),
        whole_words: false,
        merges,
        adds_bos: true,
    })
}

/// Tokens that are found in the text before anything else happens to it.
///
/// Files store a user-defined run of spaces as spaces, so it is found here and not by merging. The one difference to the
/// published tokenizers: a `▁` that stands in the text itself, beside a space, is no part of a run. `takes_spaces` is whether special
/// tokens take the white space that follows, which files do not say.
fn added_tokens<'a>(vocabulary: &'a Vocabulary<'a>, takes_spaces: bool) -> Vec<AddedToken<'a>> {
    let rows = vocabulary.texts.iter().zip(&vocabulary.kinds).enumerate();
    rows.filter(|(_, (_, kind))| matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined))
        .map(|(id, (content, kind))| AddedToken {
            id,
            content,
            single_word: false,
            lstrip: false,
            rstrip: takes_spaces && *kind == Kind::Control && !PHI3_PLAIN.contains(&content.as_ref()),
            normalized: false,
            special: *kind != Kind::UserDefined,
        })
        .collect()
}

/// What stands between two texts that belong together.
#[derive(Clone, Copy)]
enum Between<'a> {
    /// The end of the first and the beginning of the second, where texts have them.
    Both,
    /// The end of the first, and perhaps another token; the second has no beginning.
    Ends(Option<(usize, &'a str)>),
}

/// Puts the beginning and end tokens around a text. `typed` says that the second of two texts has a type of its own.
fn post_processor(bos: Option<(usize, &str)>, eos: Option<(usize, &str)>, between: Between<'_>, typed: bool) -> Value {
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let (second_bos, extra) = match between {
        Between::Both => (bos, None),
        Between::Ends(extra) => (None, extra),
    };
    let mut special_tokens = Map::new();
    for (id, text) in bos.into_iter().chain(eos).chain(extra) {
        special_tokens.insert(text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]}));
    }
    let wrapped = |bos: Option<(usize, &str)>, sequence: &str, type_id: u32| {
        let special = |(_, text): (usize, &str)| json!({"SpecialToken": {"id": text, "type_id": type_id}});
        let text = json!({"Sequence": {"id": sequence, "type_id": type_id}});
        let parts = bos.map(special).into_iter().chain([text]).chain(eos.map(special));
        parts.collect::<Vec<_>>()
    };
    let single = wrapped(bos, "A", 0);
    let extra = extra.map(|(_, text)| json!({"SpecialToken": {"id": text, "type_id": 0}}));
    let second_type = match between {
        Between::Both => 1,
        Between::Ends(_) => u32::from(typed),
    };
    let pair = [
        wrapped(bos, "A", 0),
        extra.into_iter().collect(),
        wrapped(second_bos, "B", second_type),
    ]
    .concat();
    json!({
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": special_tokens,
    })
}

fn tokenizer_config(metadata: &Metadata, vocabulary: &Vocabulary<'_>, adds_bos: bool, adds_eos: bool) -> Result<Value> {
    let mut config = Map::new();
    config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
    config.insert("add_bos_token".into(), json!(adds_bos));
    config.insert("add_eos_token".into(), json!(adds_eos));
    config.insert("clean_up_tokenization_spaces".into(), json!(false));
    for (name, key) in [
        ("bos_token", "tokenizer.ggml.bos_token_id"),
        ("eos_token", "tokenizer.ggml.eos_token_id"),
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
    ] {
        if let Some((_, text)) = vocabulary.special(metadata, key)? {
            config.insert(name.into(), json!(text));
        }
    }
    let default = metadata.string(TEMPLATE_KEY)?;
    let mut named = Vec::new();
    for (key, value) in metadata.iter() {
        let name = key.strip_prefix(TEMPLATE_KEY).and_then(|rest| rest.strip_prefix('.'));
        if let (Some(name), super::Value::String(template)) = (name, value) {
            named.push(json!({"name": name, "template": template}));
        }
    }
    match (default, named.is_empty()) {
        (None, true) => {}
        (Some(template), true) => {
            config.insert("chat_template".into(), json!(template));
        }
        (default, false) => {
            let default = default.map(|template| json!({"name": "default", "template": template}));
            let all: Vec<Value> = default.into_iter().chain(named).collect();
            config.insert("chat_template".into(), json!(all));
        }
    }
    Ok(Value::Object(config))
}

/// Ids of the tokens that end an answer: those the metadata names, then those whose text is known to.
///
/// # Errors
/// [`ErrorKind::Malformed`] where a key has a wrong type or an id is out of range.
pub fn end_ids(metadata: &Metadata) -> Result<Vec<usize>> {
    if metadata.get("tokenizer.ggml.tokens").is_none() {
        return Ok(metadata.count("tokenizer.ggml.eos_token_id")?.into_iter().collect());
    }
    let vocabulary = Vocabulary::read(metadata)?;
    let mut ids = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let named = vocabulary.special(metadata, &format!("tokenizer.ggml.{key}"))?;
        ids.extend(named.map(|(id, _)| id));
    }
    // Files often name only one. Some mark the end of a turn as defined by the user, but so is the tag `</s>` of Gemma.
    let special: HashMap<&str, u32> = vocabulary
        .texts
        .iter()
        .zip(&vocabulary.kinds)
        .zip(0u32..)
        .filter(|((text, kind), _)| match kind {
            Kind::Control => true,
            Kind::UserDefined => *text != "</s>",
            _ => false,
        })
        .map(|((text, _), id)| (text.as_ref(), id))
        .collect();
    let known = cactus_text::known_end_ids(|token| special.get(token).copied());
    ids.extend(known.into_iter().map(|id| id as usize));
    let mut seen = std::collections::HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(ids)
}

#[cfg(test)]
mod tests;
