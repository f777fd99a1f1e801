//! The vocabulary part of `tokenizer.json`, read straight into its tables.
//!
//! The `tokenizers` crate reads it twice into generic trees to find out what kind it is, which takes most of
//! the time that starting a model takes. Nearly every language model's vocabulary is BPE and says so first,
//! so that kind is read directly here, with its merges checked; all others go the crate's way.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{Model, ModelWrapper, Result, Token};

/// A vocabulary of any kind.
#[derive(Debug)]
pub(crate) struct LoadedModel(ModelWrapper);

impl Model for LoadedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        self.0.tokenize(sequence)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }

    fn get_trainer(&self) -> TrainerWrapper {
        self.0.get_trainer()
    }
}

impl<'de> Deserialize<'de> for LoadedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = LoadedModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object `model`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<LoadedModel, A::Error> {
        let mut rest = serde_json::Map::new();
        if let Some(name) = map.next_key::<String>()? {
            let value: serde_json::Value = map.next_value()?;
            if name == "type" && value == "BPE" {
                return bpe(map).map(|bpe| LoadedModel(ModelWrapper::BPE(bpe)));
            }
            rest.insert(name, value);
        }
        while let Some((name, value)) = map.next_entry()? {
            rest.insert(name, value);
        }
        serde_json::from_value(rest.into())
            .map(LoadedModel)
            .map_err(A::Error::custom)
    }
}

fn bpe<'de, A: MapAccess<'de>>(mut map: A) -> std::result::Result<BPE, A::Error> {
    let mut builder = BPE::builder();
    let mut prefix = String::new();
    let mut vocab: Option<Vocab> = None;
    let mut merges = None;
    while let Some(name) = map.next_key::<String>()? {
        match name.as_str() {
            "dropout" => {
                // Only of use in training, where it makes ids random.
                map.next_value::<IgnoredAny>()?;
            }
            "unk_token" => {
                if let Some(token) = map.next_value::<Option<String>>()? {
                    builder = builder.unk_token(token);
                }
            }
            "continuing_subword_prefix" => {
                if let Some(text) = map.next_value::<Option<String>>()? {
                    prefix.clone_from(&text);
                    builder = builder.continuing_subword_prefix(text);
                }
            }
            "end_of_word_suffix" => {
                if let Some(text) = map.next_value::<Option<String>>()? {
                    builder = builder.end_of_word_suffix(text);
                }
            }
            "fuse_unk" => builder = builder.fuse_unk(map.next_value::<Option<bool>>()?.unwrap_or(false)),
            "byte_fallback" => builder = builder.byte_fallback(map.next_value::<Option<bool>>()?.unwrap_or(false)),
            "ignore_merges" => builder = builder.ignore_merges(map.next_value::<Option<bool>>()?.unwrap_or(false)),
            "vocab" => vocab = Some(map.next_value()?),
            "merges" => merges = Some(map.next_value_seed(Merges)?),
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    let vocab = vocab.ok_or_else(|| A::Error::missing_field("vocab"))?;
    let merges = merges.ok_or_else(|| A::Error::missing_field("merges"))?;
    // The builder takes for granted that each merge makes a token.
    let longest = vocab.keys().map(String::len).max().unwrap_or(0);
    for (left, right) in &merges {
        let right_len = right.strip_prefix(&*prefix).map(str::len);
        if right_len.is_none_or(|len| left.len() + len > longest) {
            return Err(A::Error::custom(format_args!(
                "the merge of `{left}` and `{right}` makes no token"
            )));
        }
    }
    builder
        .vocab_and_merges(vocab, merges)
        .build()
        .map_err(A::Error::custom)
}

/// A list of merges, each a pair or, in older files, two texts with a space between.
struct Merges;

impl<'de> DeserializeSeed<'de> for Merges {
    type Value = Vec<(String, String)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Merges {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Self::Value, A::Error> {
        let mut merges = Vec::new();
        while let Some(merge) = seq.next_element::<Merge>()? {
            merges.extend(merge.0);
        }
        Ok(merges)
    }
}

/// `None` for the version line that older files begin with.
struct Merge(Option<(String, String)>);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pair of texts, or two texts with a space between")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> std::result::Result<Merge, E> {
                if line.starts_with("#version") {
                    return Ok(Merge(None));
                }
                match line.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(Merge(Some((left.to_owned(), right.to_owned())))),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(line), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Merge, A::Error> {
                let left = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let right = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                match seq.next_element::<IgnoredAny>()? {
                    None => Ok(Merge(Some((left, right)))),
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}
