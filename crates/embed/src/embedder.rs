//! A bundle that makes vectors of texts.

use crate::batch::Texts;
use crate::tokens::Around;
use crate::{Error, Result};
use cactus_bundle::{Bundle, DOCUMENT_PROMPT, Embedding, Gives, QUERY_PROMPT, Vectors};
use cactus_engine::{CancelToken, Model};
use cactus_text::Tokenizer;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// What a text is for: which prompt stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role<'a> {
    /// Nothing is said of it: the model's default prompt, where it has one.
    #[default]
    Plain,
    /// It is searched with.
    Query,
    /// It is searched for.
    Document,
    /// The task whose prompt has this name in the record.
    Task(&'a str),
}

/// A text, or the tokens of one as the model reads them: special tokens among them, and without a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A text.
    Text(&'a str),
    /// Tokens.
    Tokens(&'a [u32]),
}

/// How texts become vectors.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// Elements that vectors are cut to; all of them where absent. What was cut has its length of 1 again, where vectors have it.
    pub dimensions: Option<usize>,
    /// Whether a text that is too long loses its end, instead of being an error.
    pub truncate: bool,
    /// Stops between two calls of the model.
    pub cancel: CancelToken,
}

/// Vectors, in the order of the texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// Elements of each.
    pub dimensions: usize,
    /// One behind the other.
    pub values: Vec<f32>,
    /// Tokens that were read for each; of a picture, its patches.
    pub tokens: Vec<usize>,
}

impl Embedded {
    /// Each vector.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.dimensions.max(1))
    }
}

/// A model that makes vectors of texts, loaded. It may be used from several threads, whose calls take turns.
#[derive(Debug)]
pub struct Embedder {
    record: Embedding,
    vectors: Vectors,
    tokenizer: Tokenizer,
    around: Around,
    pub(crate) texts: Texts,
    name: String,
}

impl Embedder {
    /// Loads the bundle in `folder` with so many threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that makes no vectors, and where it is damaged.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<Embedder> {
        Embedder::of(&Arc::new(Bundle::open(folder)?), threads)
    }

    /// As [`Embedder::open`], of a bundle that is open.
    ///
    /// # Errors
    /// As [`Embedder::open`].
    pub fn of(bundle: &Arc<Bundle>, threads: Option<usize>) -> Result<Embedder> {
        let record = record(bundle, "makes no vectors of texts")?;
        let vectors = match &record.gives {
            Gives::Vectors(vectors) => vectors.clone(),
            other => {
                let does = match other {
                    Gives::TokenVectors(_) => "it makes a vector of each token",
                    _ => "it scores documents for a query",
                };
                let root = bundle.root().display();
                return Err(Error::Model(format!("`{root}` makes no vectors of texts: {does}")));
            }
        };
        let (tokenizer, _) = Model::load_text(bundle)?;
        Ok(Embedder {
            around: Around::of(&tokenizer)?,
            texts: Texts::load(bundle, "embedder", "vectors", threads)?,
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
    pub fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// Most tokens of a text, those of its prompt and special ones among them.
    #[must_use]
    pub fn limit_tokens(&self) -> usize {
        self.record.limit_tokens as usize
    }

    /// Its tokenizer, with which documents can be cut into pieces that fit.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What stands before a text of this role; empty for nothing.
    ///
    /// # Errors
    /// [`Error::Option`] for a task that the model has no prompt for.
    pub fn prompt(&self, role: Role<'_>) -> Result<&str> {
        let prompts = &self.vectors.prompts;
        let named = |name: &str| prompts.get(name).map(String::as_str);
        match role {
            Role::Plain => Ok(self
                .vectors
                .default_prompt
                .as_deref()
                .and_then(named)
                .unwrap_or_default()),
            Role::Query => Ok(named(QUERY_PROMPT).unwrap_or_default()),
            Role::Document => Ok(named(DOCUMENT_PROMPT).unwrap_or_default()),
            Role::Task(name) => named(name).ok_or_else(|| {
                let known: Vec<&str> = prompts.keys().map(String::as_str).collect();
                let known = match known.is_empty() {
                    true => "it has none".to_owned(),
                    false => format!("it has {}", known.join(", ")),
                };
                Error::Option(format!("the model has no prompt `{name}`; {known}"))
            }),
        }
    }

    /// How many tokens a text of this role has, prompt and special tokens among them.
    ///
    /// # Errors
    /// As [`Embedder::prompt`], and what cannot become tokens.
    pub fn count(&self, role: Role<'_>, text: &str) -> Result<usize> {
        let text = self.written(role, text)?;
        Ok(self.tokenizer.encode(&text, true)?.len())
    }

    /// Vectors of `texts`.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a text that has too many tokens, unless it may lose its end; [`Error::Option`] for dimensions or a task
    /// that the model does not have; [`Error::Cancelled`].
    pub fn embed<T: AsRef<str>>(&self, role: Role<'_>, texts: &[T], options: &EmbedOptions) -> Result<Embedded> {
        let inputs: Vec<Input<'_>> = texts.iter().map(|t| Input::Text(t.as_ref())).collect();
        self.embed_inputs(role, &inputs, options)
    }

    /// As [`Embedder::embed`], of texts and tokens.
    ///
    /// # Errors
    /// As [`Embedder::embed`], and [`Error::Text`] for a token that the model does not have.
    pub fn embed_inputs(&self, role: Role<'_>, inputs: &[Input<'_>], options: &EmbedOptions) -> Result<Embedded> {
        let dimensions = dimensions(&self.vectors, options.dimensions)?;
        let limit = self.limit_tokens();
        let mut texts = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            texts.push(match input {
                Input::Text(text) => self.tokens(role, text, index, limit, options.truncate)?,
                Input::Tokens(tokens) if tokens.len() <= limit => tokens.to_vec(),
                Input::Tokens(tokens) if options.truncate => tokens[..limit].to_vec(),
                Input::Tokens(tokens) => {
                    let tokens = tokens.len();
                    return Err(Error::TooLong { index, tokens, limit });
                }
            });
        }
        let tokens = texts.iter().map(Vec::len).collect();
        if let Some(fill) = self.record.fill {
            texts
                .iter_mut()
                .for_each(|text| text.resize(fill.length as usize, fill.token));
        }
        let whole = self.vectors.dimensions as usize;
        let values = self.texts.run(&texts, None, whole, &options.cancel)?;
        let values = match dimensions < whole {
            true => cut(&values, whole, dimensions, self.vectors.normalized),
            false => values,
        };
        Ok(Embedded {
            dimensions,
            values,
            tokens,
        })
    }

    /// The tokens of a text, at most `limit`, those of its prompt among them.
    pub(crate) fn tokens(
        &self,
        role: Role<'_>,
        text: &str,
        index: usize,
        limit: usize,
        truncate: bool,
    ) -> Result<Vec<u32>> {
        let text = self.written(role, text)?;
        self.around.tokens(&self.tokenizer, &text, index, limit, truncate)
    }

    /// The text with its prompt, in the case that the model wants.
    fn written<'a>(&self, role: Role<'_>, text: &'a str) -> Result<Cow<'a, str>> {
        let prompt = self.prompt(role)?;
        Ok(match (prompt.is_empty(), self.record.lower_case) {
            (true, false) => Cow::Borrowed(text),
            (_, false) => Cow::Owned(format!("{prompt}{text}")),
            (_, true) => Cow::Owned(format!("{prompt}{text}").to_lowercase()),
        })
    }
}

/// How many elements vectors have, where so many are asked for.
pub(crate) fn dimensions(vectors: &Vectors, asked: Option<usize>) -> Result<usize> {
    let whole = vectors.dimensions as usize;
    let least = vectors.least_dimensions.map_or(whole, |n| n as usize);
    match asked {
        None => Ok(whole),
        Some(n) if (least..=whole).contains(&n) => Ok(n),
        Some(n) => {
            let may = match least == whole {
                true => format!("its vectors have {whole}, and were not made to be cut"),
                false => format!("its vectors may have {least} to {whole}"),
            };
            Err(Error::Option(format!("the model cannot give {n} dimensions: {may}")))
        }
    }
}

/// The record of a bundle that does something of texts; `not` is what one without it does not.
pub(crate) fn record(bundle: &Bundle, not: &str) -> Result<Embedding> {
    bundle.embedding()?.ok_or_else(|| {
        let task = &bundle.manifest().task;
        Error::Model(format!(
            "`{}` {not}: it has no `embedding.json` (its task is `{task}`)",
            bundle.root().display()
        ))
    })
}

/// Gives a vector the length 1; one of zeros stays as it is.
pub fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let length = squares.sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

/// The front of each vector, of the length 1 again where it is to have it.
pub(crate) fn cut(values: &[f32], whole: usize, dimensions: usize, normalized: bool) -> Vec<f32> {
    let mut out = Vec::with_capacity(values.len() / whole.max(1) * dimensions);
    for vector in values.chunks_exact(whole.max(1)) {
        let start = out.len();
        out.extend_from_slice(&vector[..dimensions]);
        if normalized {
            normalize(&mut out[start..]);
        }
    }
    out
}
