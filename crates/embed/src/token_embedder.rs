//! A bundle that makes a vector of each token of a text: for late interaction, where two texts are compared vector by vector.

use crate::batch::Texts;
use crate::embedder::record;
use crate::tokens::Around;
use crate::{EmbedOptions, Error, Result, Role};
use cactus_bundle::{Bundle, Embedding, Gives, TokenTexts, TokenVectors};
use cactus_engine::Model;
use cactus_text::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// The vectors of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Elements of each.
    pub dimensions: usize,
    /// One behind the other.
    pub values: Vec<f32>,
    /// Tokens that were read. Some may have no vector, and some that were added may have one.
    pub tokens: usize,
}

impl Matrix {
    /// Each vector, in the order of the tokens.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.dimensions.max(1))
    }
}

/// A model that makes a vector of each token, loaded.
#[derive(Debug)]
pub struct TokenEmbedder {
    record: Embedding,
    vectors: TokenVectors,
    tokenizer: Tokenizer,
    around: Around,
    pub(crate) texts: Texts,
    /// For texts that are filled up with tokens which no other sees.
    expanded: Option<Texts>,
    name: String,
}

impl TokenEmbedder {
    /// Loads the bundle in `folder` with so many threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that makes no vectors of tokens, and where it is damaged.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<TokenEmbedder> {
        TokenEmbedder::of(&Arc::new(Bundle::open(folder)?), threads)
    }

    /// As [`TokenEmbedder::open`], of a bundle that is open.
    ///
    /// # Errors
    /// As [`TokenEmbedder::open`].
    pub fn of(bundle: &Arc<Bundle>, threads: Option<usize>) -> Result<TokenEmbedder> {
        let record = record(bundle, "makes no vectors of tokens")?;
        let Gives::TokenVectors(vectors) = &record.gives else {
            let root = bundle.root().display();
            return Err(Error::Model(format!("`{root}` makes no vectors of tokens")));
        };
        let vectors = vectors.clone();
        let (tokenizer, _) = Model::load_text(bundle)?;
        let load = |name| Ok::<_, Error>(Texts::load(bundle, name, "token_vectors", threads)?.of_tokens());
        let unseen = |texts: &TokenTexts| texts.expansion.is_some_and(|e| !e.seen);
        let expanded = match unseen(&vectors.query) || unseen(&vectors.document) {
            true => Some(load("expanded_embedder")?),
            false => None,
        };
        Ok(TokenEmbedder {
            around: Around::of(&tokenizer)?,
            texts: load("embedder")?,
            expanded,
            name: bundle.manifest().name.clone(),
            record,
            vectors,
            tokenizer,
        })
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its vectors are.
    #[must_use]
    pub fn vectors(&self) -> &TokenVectors {
        &self.vectors
    }

    /// The vectors of each of `texts`, of the length 1. A text of which nothing is said is a document.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a text that has too many tokens, unless it may lose its end; [`Error::Option`] for dimensions and tasks,
    /// which such a model does not have; [`Error::Cancelled`].
    pub fn embed<T: AsRef<str>>(&self, role: Role<'_>, texts: &[T], options: &EmbedOptions) -> Result<Vec<Matrix>> {
        let how = self.texts_of(role)?;
        let dimensions = self.vectors.dimensions as usize;
        if let Some(n) = options.dimensions.filter(|&n| n != dimensions) {
            let what = format!(
                "the model cannot give {n} dimensions: its vectors have {dimensions}, and were not made to be cut"
            );
            return Err(Error::Option(what));
        }
        let tokens: Vec<Vec<u32>> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| self.tokens(how, text.as_ref(), index, options.truncate))
            .collect::<Result<_>>()?;
        let fills = |tokens: &[u32]| how.expansion.filter(|e| tokens.len() < e.length as usize);
        // What is filled up with tokens that are not seen is computed alone, the others together.
        let together: Vec<Vec<u32>> = tokens
            .iter()
            .filter_map(|tokens| match fills(tokens) {
                None => Some(tokens.clone()),
                Some(e) if e.seen => Some(filled(tokens, e.token, e.length)),
                Some(_) => None,
            })
            .collect();
        let values = self.texts.run(&together, None, dimensions, &options.cancel)?;
        let mut rest = &values[..];
        let mut out = Vec::with_capacity(tokens.len());
        for tokens in &tokens {
            let (read, values) = match (fills(tokens), &self.expanded) {
                (Some(e), Some(expanded)) if !e.seen => {
                    if options.cancel.is_cancelled() {
                        return Err(Error::Cancelled);
                    }
                    let all = filled(tokens, e.token, e.length);
                    let values = expanded.run_expanded(&all, tokens.len(), dimensions)?;
                    (all, values)
                }
                (fill, _) => {
                    let all = fill.map_or_else(|| tokens.clone(), |e| filled(tokens, e.token, e.length));
                    let (own, others) = rest.split_at(all.len() * dimensions);
                    rest = others;
                    (all, own.to_vec())
                }
            };
            let kept = read
                .iter()
                .zip(values.chunks_exact(dimensions))
                .filter(|(token, _)| !how.skipped.contains(token));
            out.push(Matrix {
                dimensions,
                values: kept.flat_map(|(_, row)| row.iter().copied()).collect(),
                tokens: tokens.len(),
            });
        }
        Ok(out)
    }

    /// How texts of a role become tokens.
    pub(crate) fn texts_of(&self, role: Role<'_>) -> Result<&TokenTexts> {
        match role {
            Role::Query => Ok(&self.vectors.query),
            Role::Document | Role::Plain => Ok(&self.vectors.document),
            Role::Task(name) => {
                let what = format!("the model has no prompt `{name}`; it knows queries and documents");
                Err(Error::Option(what))
            }
        }
    }

    /// The tokens of a text, its mark among them.
    pub(crate) fn tokens(&self, how: &TokenTexts, text: &str, index: usize, truncate: bool) -> Result<Vec<u32>> {
        let mut text = format!("{}{text}", how.prompt);
        if self.record.lower_case {
            text = text.to_lowercase();
        }
        let limit = how.limit_tokens as usize;
        let marks = usize::from(how.mark.is_some());
        let room = limit.saturating_sub(marks);
        let mut tokens = self
            .around
            .tokens(&self.tokenizer, &text, index, room, truncate)
            .map_err(|e| match e {
                Error::TooLong { index, tokens, .. } => Error::TooLong {
                    index,
                    tokens: tokens + marks,
                    limit,
                },
                other => other,
            })?;
        if let Some(mark) = how.mark {
            tokens.insert(self.around.start().min(tokens.len()), mark);
        }
        Ok(tokens)
    }
}

fn filled(tokens: &[u32], with: u32, length: u32) -> Vec<u32> {
    let mut out = tokens.to_vec();
    out.resize((length as usize).max(tokens.len()), with);
    out
}
