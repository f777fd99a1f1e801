//! From `tokenizer.json`, or from tables made of it, to a tokenizer.
//!
//! Nearly every language model's vocabulary is BPE, and that kind runs on our own tables; other kinds go the
//! `tokenizers` crate's way. Both ways end in [`assemble`], which joins the vocabulary with the stages around it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokenizers::models::TrainerWrapper;
use tokenizers::{
    AddedToken, DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Result, Token, TokenizerImpl,
};

use super::Inner;
use super::bpe::{Bpe, Settings};
use super::tables::{Tables, TokenizerTables, Vocabulary};

/// A vocabulary of any kind.
#[derive(Debug, Clone)]
pub(crate) struct LoadedModel {
    kind: Kind,
    /// Ids whose spelling in a text does not become them, ascending.
    unused: Arc<[u32]>,
}

/// Cheap to clone.
#[derive(Debug, Clone)]
enum Kind {
    Bpe(Bpe),
    Other(Arc<ModelWrapper>),
}

impl LoadedModel {
    fn new(kind: Kind) -> Self {
        let unused = Arc::default();
        Self { kind, unused }
    }

    /// The same vocabulary, which spells the tokens `ids` (ascending) in smaller pieces where they occur in a text.
    pub(super) fn without(&self, ids: &[u32]) -> Self {
        Self {
            kind: self.kind.clone(),
            unused: ids.into(),
        }
    }

    fn tokens(&self, sequence: &str) -> Result<Vec<Token>> {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.tokenize(sequence),
            Kind::Other(model) => model.tokenize(sequence),
        }
    }

    /// Where to cut `text` so that `token` is not a piece of it, if its spelling must not become it: in its middle.
    fn cut(&self, text: &str, token: &Token) -> Result<Option<usize>> {
        if self.unused.binary_search(&token.id).is_err() {
            return Ok(None);
        }
        let (start, end) = token.offsets;
        let spelling = text.get(start..end).unwrap_or_default();
        // The token for what is unknown stands for text that is not its spelling, and may do so.
        if self.id_to_token(token.id).as_deref() != Some(spelling) {
            return Ok(None);
        }
        match spelling.char_indices().nth(spelling.chars().count() / 2) {
            Some((at, _)) if at > 0 => Ok(Some(start + at)),
            _ => Err(format!("`{spelling}` is a special token of one character, which has no other spelling").into()),
        }
    }

    /// One more than the highest id, added tokens apart.
    pub(super) fn ids(&self) -> usize {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.tables().ids(),
            Kind::Other(model) => model.get_vocab().values().max().map_or(0, |&id| id as usize + 1),
        }
    }

    /// The tables, where there are any.
    pub(super) fn tables(&self) -> Option<&TokenizerTables> {
        match &self.kind {
            Kind::Bpe(bpe) => Some(bpe.tables().bytes()),
            Kind::Other(_) => None,
        }
    }
}

impl Model for LoadedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        if self.unused.is_empty() {
            return self.tokens(sequence);
        }
        let mut found = Vec::new();
        // Parts still to be tokenized, the first one last.
        let mut parts = Vec::from_iter(std::iter::once(0..sequence.len()));
        while let Some(part) = parts.pop() {
            let text = &sequence[part.clone()];
            let tokens = self.tokens(text)?;
            let mut cuts = Vec::new();
            for token in &tokens {
                cuts.extend(self.cut(text, token)?.map(|at| part.start + at));
            }
            if cuts.is_empty() {
                found.extend(tokens.into_iter().map(|mut token| {
                    token.offsets = (token.offsets.0 + part.start, token.offsets.1 + part.start);
                    token
                }));
                continue;
            }
            let ends = cuts.iter().copied().chain([part.end]);
            let starts = [part.start].into_iter().chain(cuts.iter().copied());
            let halves: Vec<_> = starts.zip(ends).map(|(start, end)| start..end).collect();
            parts.extend(halves.into_iter().rev());
        }
        Ok(found)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.tables().id(token),
            Kind::Other(model) => model.token_to_id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.tables().spelling(id).map(str::to_owned),
            Kind::Other(model) => model.id_to_token(id),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match &self.kind {
            Kind::Bpe(bpe) => {
                let ids = 0..u32::try_from(bpe.tables().ids()).unwrap_or(u32::MAX);
                ids.filter_map(|id| Some((bpe.tables().spelling(id)?.to_owned(), id)))
                    .collect()
            }
            Kind::Other(model) => model.get_vocab(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.tables().len(),
            Kind::Other(model) => model.get_vocab_size(),
        }
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        match &self.kind {
            Kind::Bpe(_) => Err("a vocabulary in tables is stored as `tokenizer.tables`".into()),
            Kind::Other(model) => model.save(folder, prefix),
        }
    }

    fn get_trainer(&self) -> TrainerWrapper {
        match &self.kind {
            Kind::Bpe(_) => TrainerWrapper::from(tokenizers::models::bpe::BpeTrainer::default()),
            Kind::Other(model) => model.get_trainer(),
        }
    }
}

/// Reads a `tokenizer.json`.
///
/// # Errors
/// Why it is not one.
pub(super) fn read(json: &[u8]) -> Result<Inner> {
    let file: File = serde_json::from_slice(json)?;
    match file.model.ok_or("it has no `model`")? {
        ParsedModel::Bpe(vocabulary, settings) => {
            let mut rest = file.rest;
            rest.insert("model".to_owned(), serde_json::to_value(settings)?);
            open(vocabulary.write(&serde_json::to_vec(&rest)?)?)
        }
        ParsedModel::Other(model) => {
            let stages = serde_json::to_vec(&file.rest)?;
            assemble(
                serde_json::from_slice(&stages)?,
                LoadedModel::new(Kind::Other(Arc::new(*model))),
            )
        }
    }
}

/// Opens tables.
///
/// # Errors
/// What is damaged.
pub(super) fn open(tables: TokenizerTables) -> Result<Inner> {
    let tables = Tables::open(tables)?;
    let mut stages: Stages = serde_json::from_slice(tables.settings())?;
    let settings = stages.model.take().unwrap_or_default();
    assemble(stages, LoadedModel::new(Kind::Bpe(Bpe::new(tables, settings))))
}

/// The stages around the vocabulary.
#[derive(Deserialize)]
struct Stages {
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    /// What tables say of the vocabulary.
    model: Option<Settings>,
}

fn assemble(stages: Stages, model: LoadedModel) -> Result<Inner> {
    if let Some(version) = stages.version.filter(|version| version != "1.0") {
        return Err(format!("expected `version` 1.0, found `{version}`").into());
    }
    let mut inner = TokenizerImpl::new(model);
    inner.with_normalizer(stages.normalizer)?;
    inner.with_pre_tokenizer(stages.pre_tokenizer);
    inner.with_post_processor(stages.post_processor);
    inner.with_decoder(stages.decoder);
    inner.add_tokens(stages.added_tokens)?;
    Ok(inner)
}

/// `tokenizer.json` with its vocabulary apart.
struct File {
    rest: Map<String, Value>,
    model: Option<ParsedModel>,
}

enum ParsedModel {
    Bpe(Vocabulary, Settings),
    Other(Box<ModelWrapper>),
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct FileVisitor;
        impl<'de> Visitor<'de> for FileVisitor {
            type Value = File;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<File, A::Error> {
                let mut file = File {
                    rest: Map::new(),
                    model: None,
                };
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "model" => file.model = Some(map.next_value()?),
                        // Settings of batches that some files carry along: a prompt is never cut or filled up.
                        "truncation" | "padding" => drop(map.next_value::<IgnoredAny>()?),
                        _ => drop(file.rest.insert(name, map.next_value()?)),
                    }
                }
                Ok(file)
            }
        }
        deserializer.deserialize_map(FileVisitor)
    }
}

impl<'de> Deserialize<'de> for ParsedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ModelVisitor;
        impl<'de> Visitor<'de> for ModelVisitor {
            type Value = ParsedModel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the object `model`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<ParsedModel, A::Error> {
                let mut rest = Map::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value: Value = map.next_value()?;
                    // Files say the type first, so the vocabulary need not be held twice.
                    if name == "type" && value == "BPE" && rest.is_empty() {
                        return bpe(map);
                    }
                    rest.insert(name, value);
                }
                if rest.get("type").is_some_and(|kind| kind == "BPE") {
                    let entries = serde::de::value::MapDeserializer::new(rest.into_iter());
                    return bpe(entries).map_err(|e: serde_json::Error| A::Error::custom(e));
                }
                let other = serde_json::from_value(rest.into()).map_err(A::Error::custom)?;
                Ok(ParsedModel::Other(Box::new(other)))
            }
        }
        deserializer.deserialize_map(ModelVisitor)
    }
}

fn bpe<'de, A: MapAccess<'de>>(mut map: A) -> std::result::Result<ParsedModel, A::Error> {
    let mut settings = Settings::default();
    let mut tokens: Option<Tokens> = None;
    let mut merges = None;
    while let Some(name) = map.next_key::<String>()? {
        match name.as_str() {
            "unk_token" => settings.unk_token = map.next_value()?,
            "continuing_subword_prefix" => settings.continuing_subword_prefix = map.next_value()?,
            "end_of_word_suffix" => settings.end_of_word_suffix = map.next_value()?,
            "fuse_unk" => settings.fuse_unk = map.next_value()?,
            "byte_fallback" => settings.byte_fallback = map.next_value()?,
            "ignore_merges" => settings.ignore_merges = map.next_value()?,
            "vocab" => tokens = Some(map.next_value()?),
            "merges" => merges = Some(map.next_value_seed(Merges)?),
            // `dropout` is of use in training only.
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    let vocabulary = Vocabulary {
        tokens: tokens.ok_or_else(|| A::Error::missing_field("vocab"))?.0,
        merges: merges.ok_or_else(|| A::Error::missing_field("merges"))?,
        continuing_prefix: settings.continuing_subword_prefix.clone().unwrap_or_default(),
    };
    Ok(ParsedModel::Bpe(vocabulary, settings))
}

/// The vocabulary, an object from token to id. Of a name that is there twice the last counts, as in any JSON object.
struct Tokens(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        HashMap::<String, u32>::deserialize(deserializer).map(|map| Self(map.into_iter().collect()))
    }
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
