//! `embedding.json`: what turns texts into the input of a model that makes vectors or scores of them, and what its output is.
//!
//! The record is declarative and names no family: a program that knows the kinds below can drive any model that has one.
//! Unknown fields and kinds are refused, as in the other documents.

use crate::{Bundle, EMBEDDING_PATH, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of `embedding.json` that this crate writes, and the only one it reads.
pub const EMBEDDING_VERSION: u32 = 1;

/// Name of the prompt of texts that are searched with.
pub const QUERY_PROMPT: &str = "query";
/// Name of the prompt of texts that are searched for.
pub const DOCUMENT_PROMPT: &str = "document";

/// `embedding.json`.
///
/// Several texts are computed in one call: their tokens stand one after the other in `input_ids` `i64[1, seq]`, and `starts`
/// `i64[texts]` says where each begins. What a text gives does not depend on the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Version of this document.
    pub version: u32,
    /// Most tokens of a text, those of its prompt and those that the tokenizer adds among them.
    pub limit_tokens: u32,
    /// Whether texts are put into lower case before they become tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_case: bool,
    /// What a text is filled up with, where the model always reads equally many tokens; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// What the model gives.
    pub gives: Gives,
}

/// What a text is filled up with. It is seen like the rest, so that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// The token.
    pub token: u32,
    /// Tokens that there are then.
    pub length: u32,
}

/// What a model gives of its texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Gives {
    /// The component `embedder` gives a vector of each text, `vectors` `f32[texts, dimensions]`.
    Vectors(Vectors),
    /// The component `embedder` gives a vector of each token, `token_vectors` `f32[seq, dimensions]`, which is compared with those of
    /// another text by the largest product of each (late interaction).
    TokenVectors(TokenVectors),
    /// The component `ranker` gives a number of each pair of a query and a document, `scores` `f32[texts]`.
    Scores(Scores),
}

/// A vector of each text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    /// Elements of a vector.
    pub dimensions: u32,
    /// Fewest elements that a vector may be cut to, from its front; absent where it may not be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_dimensions: Option<u32>,
    /// How the states of a text's positions become its vector; of several, one result stands behind the other. The graph does it; this
    /// is for people.
    pub pooling: Vec<Pooling>,
    /// Whether vectors have the length 1. What was cut is made so again.
    pub normalized: bool,
    /// How vectors are compared.
    pub similarity: Similarity,
    /// What stands before a text, by name: `query` before what is searched with, `document` before what is searched for, others for
    /// tasks.
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
    /// Name of the prompt of a text of which nothing is said; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_prompt: Option<String>,
}

/// A vector of the length 1 of each token of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenVectors {
    /// Elements of a vector.
    pub dimensions: u32,
    /// What is done with a text that is searched with.
    pub query: TokenTexts,
    /// What is done with a text that is searched for.
    pub document: TokenTexts,
}

/// What becomes of a text whose tokens have vectors of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenTexts {
    /// Most tokens, all that are added among them.
    pub limit_tokens: u32,
    /// What stands before the text; absent for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Token that is put before those of the text, behind those that the tokenizer puts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// What a text is filled up with; absent for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<Expansion>,
    /// Tokens whose vectors are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<u32>,
}

/// What a text is filled up with. Its vectors count like the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expansion {
    /// The token.
    pub token: u32,
    /// Tokens that there are then.
    pub length: u32,
    /// Whether other tokens see it. Where they do not, the component `expanded_embedder` computes the text alone: that has an input
    /// `seen` `i64[seq]` besides, 1 for tokens that are seen and 0 for the others.
    pub seen: bool,
}

/// How the states of positions become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pooling {
    /// That of the first.
    First,
    /// That of the last.
    Last,
    /// Their mean.
    Mean,
    /// Their sum over the square root of how many they are.
    MeanSqrt,
    /// Their mean, each counted as often as its position from 1.
    WeightedMean,
    /// The largest of each element.
    Max,
}

/// How vectors are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Similarity {
    /// The cosine of the angle between them.
    #[default]
    Cosine,
    /// The sum of the products of their elements.
    Dot,
    /// Their distance, negated.
    Euclidean,
    /// The sum of the differences of their elements, negated.
    Manhattan,
}

/// A number of each pair of a query and a document: the larger, the better the document answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// How query and document become one text.
    pub pair: Pair,
    /// What is done with what the model gives.
    pub activation: ScoreFn,
}

/// How query and document become one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Pair {
    /// As the tokenizer joins two texts.
    Joined {
        /// Whether the component has the input `token_types` `i64[1, seq]`: which of the two texts a token is of.
        token_types: bool,
    },
    /// By words around them.
    Written(WrittenPair),
}

/// `before`, `instruct`, the instruction, `query`, the query, `document`, the document, `after`. Special tokens are written out in the
/// first and the last, which become tokens on their own; what stands between them is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenPair {
    /// Begins the text.
    pub before: String,
    /// Stands before the instruction.
    pub instruct: String,
    /// The instruction, where nobody gives another.
    pub instruction: String,
    /// Stands before the query.
    pub query: String,
    /// Stands before the document.
    pub document: String,
    /// Stands behind the document and ends the text.
    pub after: String,
}

/// What is done with a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreFn {
    /// Nothing.
    Identity,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// Most tokens of a text, and elements of a vector.
const MOST_TOKENS: u32 = 1 << 26;
const MOST_DIMENSIONS: u32 = 1 << 18;
/// Most prompts, and bytes of one.
const MOST_PROMPTS: usize = 1 << 10;
const MOST_PROMPT_BYTES: usize = 1 << 16;

impl Embedding {
    /// Checks what a reader would otherwise rely on.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn check(&self) -> std::result::Result<(), String> {
        within("limit_tokens", self.limit_tokens, 1, MOST_TOKENS)?;
        if let Some(fill) = self.fill {
            within("fill.length", fill.length, self.limit_tokens, MOST_TOKENS)?;
            if !matches!(self.gives, Gives::Vectors(_)) {
                return Err("`fill` belongs to a model that gives a vector of each text".into());
            }
        }
        match &self.gives {
            Gives::Vectors(v) => v.check(),
            Gives::TokenVectors(v) => v.check(),
            Gives::Scores(s) => match &s.pair {
                Pair::Joined { .. } => Ok(()),
                Pair::Written(w) => [&w.before, &w.instruct, &w.instruction, &w.query, &w.document, &w.after]
                    .into_iter()
                    .try_for_each(|text| short("gives.pair", text)),
            },
        }
    }
}

impl Vectors {
    fn check(&self) -> std::result::Result<(), String> {
        within("gives.dimensions", self.dimensions, 1, MOST_DIMENSIONS)?;
        if let Some(least) = self.least_dimensions {
            within("gives.least_dimensions", least, 1, self.dimensions)?;
        }
        if self.pooling.is_empty() {
            return Err("`gives.pooling` should name how states become a vector, found an empty list".into());
        }
        if self.prompts.len() > MOST_PROMPTS {
            let found = self.prompts.len();
            return Err(format!(
                "`gives.prompts` should have at most {MOST_PROMPTS}, found {found}"
            ));
        }
        self.prompts
            .values()
            .try_for_each(|text| short("gives.prompts", text))?;
        match &self.default_prompt {
            Some(name) if !self.prompts.contains_key(name) => Err(format!(
                "`gives.default_prompt` should be one of the prompts, found `{}`",
                name.chars().take(40).collect::<String>()
            )),
            _ => Ok(()),
        }
    }
}

impl TokenVectors {
    fn check(&self) -> std::result::Result<(), String> {
        within("gives.dimensions", self.dimensions, 1, MOST_DIMENSIONS)?;
        for (name, texts) in [("gives.query", &self.query), ("gives.document", &self.document)] {
            within(&format!("{name}.limit_tokens"), texts.limit_tokens, 1, MOST_TOKENS)?;
            short(&format!("{name}.prompt"), &texts.prompt)?;
            if let Some(expansion) = &texts.expansion {
                within(
                    &format!("{name}.expansion.length"),
                    expansion.length,
                    1,
                    texts.limit_tokens,
                )?;
            }
        }
        Ok(())
    }
}

fn within(name: &str, found: u32, least: u32, most: u32) -> std::result::Result<(), String> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!("`{name}` should be from {least} to {most}, found {found}")),
    }
}

fn short(name: &str, text: &str) -> std::result::Result<(), String> {
    match text.len() <= MOST_PROMPT_BYTES {
        true => Ok(()),
        false => Err(format!(
            "texts of `{name}` should have at most {MOST_PROMPT_BYTES} bytes, found {}",
            text.len()
        )),
    }
}

impl Bundle {
    /// How the model makes vectors or scores of texts; `None` where it does not.
    ///
    /// # Errors
    /// Where the record is damaged, of another version, or says what cannot be.
    pub fn embedding(&self) -> Result<Option<Embedding>> {
        if !self.has_file(EMBEDDING_PATH) {
            return Ok(None);
        }
        let path = self.root().join(EMBEDDING_PATH);
        // The version is read first and alone: a newer document may have fields that this program does not know.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = self.listed(EMBEDDING_PATH)?;
        if head.version != EMBEDDING_VERSION {
            let what = format!(
                "has version {}, this program reads version {EMBEDDING_VERSION}",
                head.version
            );
            return Err(Error::new(ErrorKind::Version, path, what));
        }
        let embedding: Embedding = self.listed(EMBEDDING_PATH)?;
        match embedding.check() {
            Ok(()) => Ok(Some(embedding)),
            Err(what) => Err(Error::new(ErrorKind::Invalid, path, what)),
        }
    }
}
