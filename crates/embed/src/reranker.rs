//! A bundle that scores documents for a query.

use crate::batch::Texts;
use crate::embedder::record;
use crate::tokens::{Joint, Typed};
use crate::{Error, Result};
use cactus_bundle::{Bundle, Embedding, Gives, Pair, ScoreFn, Scores, WrittenPair};
use cactus_engine::{CancelToken, Model};
use cactus_text::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// How documents are scored.
#[derive(Clone, Debug, Default)]
pub struct RankOptions {
    /// Whether a document that is too long beside its query loses its end, instead of being an error.
    pub truncate: bool,
    /// What is searched for, of a model that is told so; its own where absent.
    pub instruction: Option<String>,
    /// Stops between two calls of the model.
    pub cancel: CancelToken,
}

/// Scores, in the order of the documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranked {
    /// One for each document: the larger, the better it answers.
    pub scores: Vec<f32>,
    /// Tokens that were read for each, the query's among them.
    pub tokens: Vec<usize>,
}

impl Ranked {
    /// Places of the documents, the best first; of equal ones the first.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|&a, &b| self.scores[b].total_cmp(&self.scores[a]).then(a.cmp(&b)));
        order
    }
}

/// How a query and a document become one text.
#[derive(Debug)]
enum Join {
    Joined {
        joint: Joint,
        typed: bool,
    },
    /// Tokens before and behind, and the words between.
    Written {
        words: WrittenPair,
        before: Vec<u32>,
        after: Vec<u32>,
    },
}

/// A query in the case that the model wants, and its tokens where they are joined with those of a document.
pub(crate) struct Query {
    text: String,
    tokens: Vec<u32>,
}

/// A model that scores documents for a query, loaded. It may be used from several threads, whose calls take turns.
#[derive(Debug)]
pub struct Reranker {
    record: Embedding,
    scores: Scores,
    tokenizer: Tokenizer,
    join: Join,
    pub(crate) texts: Texts,
    name: String,
}

impl Reranker {
    /// Loads the bundle in `folder` with so many threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that scores no documents, and where it is damaged.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<Reranker> {
        Reranker::of(&Arc::new(Bundle::open(folder)?), threads)
    }

    /// As [`Reranker::open`], of a bundle that is open.
    ///
    /// # Errors
    /// As [`Reranker::open`].
    pub fn of(bundle: &Arc<Bundle>, threads: Option<usize>) -> Result<Reranker> {
        let record = record(bundle, "scores no documents")?;
        let Gives::Scores(scores) = &record.gives else {
            return Err(Error::Model(format!(
                "`{}` scores no documents: it makes vectors of texts",
                bundle.root().display()
            )));
        };
        let scores = scores.clone();
        let (tokenizer, _) = Model::load_text(bundle)?;
        let join = match &scores.pair {
            Pair::Joined { token_types } => Join::Joined {
                joint: Joint::of(&tokenizer)?,
                typed: *token_types,
            },
            Pair::Written(words) => Join::Written {
                before: tokenizer.encode(&words.before, false)?,
                after: tokenizer.encode(&words.after, false)?,
                words: words.clone(),
            },
            _ => return Err(Error::Model("a newer version joins query and document".into())),
        };
        Ok(Reranker {
            texts: Texts::load(bundle, "ranker", "scores", threads)?,
            name: bundle.manifest().name.clone(),
            record,
            scores,
            tokenizer,
            join,
        })
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Most tokens of a query and a document together, special ones among them.
    #[must_use]
    pub fn limit_tokens(&self) -> usize {
        self.record.limit_tokens as usize
    }

    /// Whether it can be told what is searched for ([`RankOptions::instruction`]).
    #[must_use]
    pub fn takes_instruction(&self) -> bool {
        matches!(self.join, Join::Written { .. })
    }

    /// Scores `documents` for `query`.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a document that has too many tokens beside the query, unless it may lose its end; [`Error::Option`] for
    /// an instruction to a model that takes none; [`Error::Cancelled`].
    pub fn score<T: AsRef<str>>(&self, query: &str, documents: &[T], options: &RankOptions) -> Result<Ranked> {
        if options.instruction.is_some() && !self.takes_instruction() {
            return Err(Error::Option("the model takes no instruction".into()));
        }
        let limit = self.limit_tokens();
        let query = self.query(query)?;
        let (mut texts, mut types) = (Vec::new(), Vec::new());
        for (index, document) in documents.iter().enumerate() {
            let made = self.pair(&query, document.as_ref(), index, limit, options)?;
            texts.push(made.tokens);
            types.push(made.types);
        }
        let types = self.typed().then_some(&types[..]);
        let given = self.texts.run(&texts, types, 1, &options.cancel)?;
        let scores = given.into_iter().map(|x| activate(self.scores.activation, x)).collect();
        Ok(Ranked {
            scores,
            tokens: texts.iter().map(Vec::len).collect(),
        })
    }

    /// Whether the model wants to know which of the two texts each token is of.
    pub(crate) fn typed(&self) -> bool {
        matches!(self.join, Join::Joined { typed: true, .. })
    }

    /// A query, ready to be joined with documents.
    pub(crate) fn query(&self, text: &str) -> Result<Query> {
        let text = self.lower(text);
        let tokens = match &self.join {
            Join::Joined { .. } => self.tokenizer.encode(&text, false)?,
            Join::Written { .. } => Vec::new(),
        };
        Ok(Query { text, tokens })
    }

    /// A text in the case that the model wants.
    fn lower(&self, text: &str) -> String {
        match self.record.lower_case {
            true => text.to_lowercase(),
            false => text.to_owned(),
        }
    }

    /// The tokens of a query and document `index`, at most `limit`.
    pub(crate) fn pair(
        &self,
        query: &Query,
        document: &str,
        index: usize,
        limit: usize,
        options: &RankOptions,
    ) -> Result<Typed> {
        let document = self.lower(document);
        match &self.join {
            Join::Joined { joint, .. } => {
                let document = self.tokenizer.encode(&document, false)?;
                joint.join(&query.tokens, &document, index, limit, options.truncate)
            }
            Join::Written { words, before, after } => {
                let instruction = options.instruction.as_deref().unwrap_or(&words.instruction);
                let asked = format!(
                    "{}{instruction}{}{}{}",
                    words.instruct, words.query, query.text, words.document
                );
                let text = format!("{asked}{document}");
                // Nobody's text may end the turn.
                let mut inner = self.tokenizer.encode_as_text(&text, false)?;
                let all = before.len() + inner.len() + after.len();
                if all > limit {
                    let around = before.len() + after.len();
                    let taken = around + self.tokenizer.encode_as_text(&asked, false)?.len();
                    if taken >= self.limit_tokens() {
                        return Err(Error::LongQuery { tokens: taken, limit });
                    }
                    let room = limit.checked_sub(around).filter(|&n| n > 0);
                    let (Some(room), true) = (room, options.truncate) else {
                        return Err(Error::TooLong {
                            index,
                            tokens: all,
                            limit,
                        });
                    };
                    // Who measures may read less than the model does, and then the query loses its end, too.
                    inner.truncate(room);
                }
                Ok(Typed {
                    tokens: [&before[..], &inner, after].concat(),
                    types: Vec::new(),
                })
            }
        }
    }
}

fn activate(f: ScoreFn, x: f32) -> f32 {
    match f {
        ScoreFn::Sigmoid => (1.0 / (1.0 + libm::exp(-f64::from(x)))) as f32,
        _ => x,
    }
}
