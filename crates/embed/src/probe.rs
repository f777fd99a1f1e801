//! A bundle of texts from inside: what reaches each weight, and what a change of one does.
//!
//! For conversion, which calibrates and measures with texts of its own. What is asked of a model in use is
//! [`Embedder`]'s, [`TokenEmbedder`]'s and [`Reranker`]'s, whose tokens and calls these are.

use crate::batch::Texts;
use crate::tokens::Typed;
use crate::{Embedder, Error, RankOptions, Reranker, Result, Role, TokenEmbedder};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Gives};
use cactus_engine::CancelToken;
use cactus_quant::Packed;
use cactus_runtime::Observer;
use std::sync::Arc;

/// A text, or two, as the model reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passage(Typed);

impl Passage {
    /// Its tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.0.tokens.len()
    }
}

#[derive(Debug)]
enum Model {
    Vectors(Box<Embedder>),
    TokenVectors(Box<TokenEmbedder>),
    Scores(Box<Reranker>),
}

/// The front half of a text, of whole characters.
fn front_half(text: &str) -> &str {
    let mut end = text.len() / 2;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A bundle that makes vectors or scores of texts, loaded to be looked into.
#[derive(Debug)]
pub struct Probe {
    bundle: Arc<Bundle>,
    model: Model,
}

impl Probe {
    /// Loads a bundle with so many threads.
    ///
    /// # Errors
    /// [`crate::Error::Model`] for a bundle without `embedding.json`, and where it is damaged.
    pub fn of(bundle: Arc<Bundle>, threads: usize) -> Result<Probe> {
        let threads = Some(threads);
        let model = match crate::embedder::record(&bundle, "does nothing of texts")?.gives {
            Gives::TokenVectors(_) => Model::TokenVectors(Box::new(TokenEmbedder::of(&bundle, threads)?)),
            Gives::Scores(_) => Model::Scores(Box::new(Reranker::of(&bundle, threads)?)),
            _ => Model::Vectors(Box::new(Embedder::of(&bundle, threads)?)),
        };
        Ok(Probe { bundle, model })
    }

    /// The bundle.
    #[must_use]
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// Whether it scores pairs of texts.
    #[must_use]
    pub fn scores(&self) -> bool {
        matches!(self.model, Model::Scores(_))
    }

    /// Threads, and how many of them compute.
    #[must_use]
    pub fn pool(&self) -> (&Pool, usize) {
        self.texts().pool()
    }

    /// A text of which at most so many tokens are read, its prompt and special tokens among them. `query` is what is searched with in a
    /// model that scores, and not read in others; it loses its end where it leaves no room for a text.
    ///
    /// # Errors
    /// What cannot become tokens.
    pub fn passage(&self, role: Role<'_>, query: &str, text: &str, limit: usize) -> Result<Passage> {
        let alone = |tokens| Typed {
            tokens,
            types: Vec::new(),
        };
        Ok(Passage(match &self.model {
            Model::Vectors(model) => alone(model.tokens(role, text, 0, limit.min(model.limit_tokens()), true)?),
            Model::TokenVectors(model) => alone(model.tokens(model.texts_of(role)?, text, 0, true)?),
            Model::Scores(model) => {
                let options = RankOptions {
                    truncate: true,
                    ..RankOptions::default()
                };
                let limit = limit.min(model.limit_tokens());
                let mut query = query;
                loop {
                    match model.pair(&model.query(query)?, text, 0, limit, &options) {
                        Err(Error::TooLong { .. } | Error::LongQuery { .. }) if !query.is_empty() => {
                            query = front_half(query)
                        }
                        made => break made?,
                    }
                }
            }
        }))
    }

    /// Shows `observer` the inputs of linears while a passage is computed, until it has seen enough.
    ///
    /// # Errors
    /// What the runtime found.
    pub fn observe(&self, passage: &Passage, observer: Observer<'_>) -> Result<()> {
        let types = self.typed().then_some(&passage.0.types[..]);
        self.texts().observe(&passage.0.tokens, types, observer)
    }

    /// What it gives of each passage: rows of [`Probe::width`] numbers, one a passage, or one a token where it makes vectors of tokens.
    ///
    /// # Errors
    /// What the runtime found.
    pub fn outputs(&self, passages: &[Passage]) -> Result<Vec<f32>> {
        let (tokens, types): (Vec<_>, Vec<_>) =
            passages.iter().map(|p| (p.0.tokens.clone(), p.0.types.clone())).unzip();
        let types = self.typed().then_some(&types[..]);
        self.texts().run(&tokens, types, self.width(), &CancelToken::default())
    }

    /// Numbers of a row of outputs.
    #[must_use]
    pub fn width(&self) -> usize {
        match &self.model {
            Model::Vectors(model) => model.vectors().dimensions as usize,
            Model::TokenVectors(model) => model.vectors().dimensions as usize,
            Model::Scores(_) => 1,
        }
    }

    /// Computes with `matrix` in place of the stored tensor `name` from now on; `None` restores it.
    ///
    /// # Errors
    /// [`crate::Error::Runtime`] where the model reads no such tensor, or one of another shape or packing.
    pub fn replace(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        let texts = match &mut self.model {
            Model::Vectors(model) => &mut model.texts,
            Model::TokenVectors(model) => &mut model.texts,
            Model::Scores(model) => &mut model.texts,
        };
        texts.replace(name, matrix)
    }

    fn typed(&self) -> bool {
        matches!(&self.model, Model::Scores(model) if model.typed())
    }

    fn texts(&self) -> &Texts {
        match &self.model {
            Model::Vectors(model) => &model.texts,
            Model::TokenVectors(model) => &model.texts,
            Model::Scores(model) => &model.texts,
        }
    }
}
