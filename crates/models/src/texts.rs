//! Models that make vectors or scores of texts. Several texts are computed in one call: their tokens stand one after the other, and a
//! position sees those of its own text alone, which the mask says as a comparison of numbers.
//!
//! What follows the transformer (pooling, dense layers, norms) is what a folder of sentence-transformers lists; the front end
//! hands it over in the configuration, as `text_modules`.

mod call;
mod modules;

use crate::config::{Config, Dims};
use crate::layers::{self, INPUT, linear};
use crate::{ComponentDef, Error, ErrorKind, ModelDef, registry};
use cactus_ir::{BinaryFn, Dim, GraphBuilder, Literal, ReduceFn, Result, SEQ, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;
pub(crate) use call::{Calls, Sees, Texts};
use modules::{LogitScore, OF_TOKENS, UNSEEN};
pub(crate) use modules::{MODULES, Module, modules};

/// Name of the component that makes vectors.
pub(crate) const EMBEDDER: &str = "embedder";
/// Name of the component that makes vectors of a text some of whose tokens are not seen.
pub(crate) const EXPANDED: &str = "expanded_embedder";
/// Name of the component that makes scores.
pub(crate) const RANKER: &str = "ranker";
/// Task of a model that makes a vector of a text.
pub(crate) const TEXT_EMBEDDING: &str = "text_embedding";
/// Task of a model that scores a document for a query.
pub(crate) const TEXT_RANKING: &str = "text_ranking";

/// Name of the input that says where texts begin, `i64[texts]`.
const STARTS: &str = "starts";
/// Name of the input that says which of two texts a token is of, `i64[1, seq]`.
const TOKEN_TYPES: &str = "token_types";
/// Name of the input that says which tokens are seen, `i64[seq]`: 1 for those that are, 0 for the others.
const SEEN: &str = "seen";
/// Name of the output of vectors, `f32[texts, dimensions]`.
const VECTORS: &str = "vectors";
/// Name of the output of vectors of tokens, `f32[seq, dimensions]`.
const TOKEN_VECTORS: &str = "token_vectors";
/// Name of the output of scores, `f32[texts]`.
const SCORES: &str = "scores";
/// The symbol for how many texts there are.
const TEXTS: &str = "texts";

/// How the states of a text's positions become its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolingDef {
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

/// A model that makes a vector of each text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorsDef {
    /// Elements of a vector.
    pub dimensions: usize,
    /// Fewest that a vector may be cut to, where its makers trained it so.
    pub least_dimensions: Option<usize>,
    /// How states become a vector, the results one behind the other. Empty where each token has a vector of its own.
    pub pooling: Vec<PoolingDef>,
    /// Whether vectors have the length 1.
    pub normalized: bool,
    /// Whether a text is always filled up to the whole context, with a token that is seen like the others.
    pub fills_context: bool,
    /// Whether texts are put into lower case first.
    pub lower_case: bool,
}

impl VectorsDef {
    /// Says that the vectors were made to be cut to `least` elements, where they have more.
    pub(crate) fn may_be_cut_to(&mut self, least: usize) {
        self.least_dimensions = Some(least).filter(|&least| least < self.dimensions);
    }
}

/// How a query and a document become the text of a model that makes scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoresDef {
    /// As the tokenizer joins two texts; whether the graph has the input `token_types`.
    Joined {
        /// Whether it does.
        token_types: bool,
    },
    /// By words around them.
    Written,
}

fn seq() -> Dim {
    Dim::symbol(SEQ)
}

fn texts() -> Dim {
    Dim::symbol(TEXTS)
}

/// Declares the token ids `i64[1, seq]`, and looks their embeddings up in `table`, `[1, seq, hidden]`.
pub(crate) fn embed(b: &mut GraphBuilder, table: &str, [vocab, hidden]: [usize; 2]) -> Result<ValueId> {
    let ids = b.input(INPUT, TensorType::new(DType::I64, [Dim::known(1), seq()]));
    let table = b.weight(table, &[vocab, hidden]);
    b.embedding(table, ids)
}

/// Declares which of two texts each token is of, `i64[1, seq]`.
pub(crate) fn token_types(b: &mut GraphBuilder) -> ValueId {
    b.input(TOKEN_TYPES, TensorType::new(DType::I64, [Dim::known(1), seq()]))
}

/// `[1, seq, n]` as `[seq, n]`.
fn rows_of(b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
    let n = b.shape(x)[2].clone();
    b.reshape(x, [seq(), n])
}

/// Of torch's layer norm, where nobody says another.
const NORM_EPS: f32 = 1e-5;
/// Vectors shorter than this are not made longer.
const LEAST_LENGTH: f32 = 1e-12;

/// Names what `modules` make of the states `x` `[1, seq, width]` as the output, and says what vectors they are.
pub(crate) fn vectors(
    c: &Config<'_>,
    b: &mut GraphBuilder,
    texts: &Texts,
    x: ValueId,
    modules: &[Module],
) -> crate::Result<VectorsDef> {
    let mut x = rows_of(b, x)?;
    let mut pooled: Option<Vec<PoolingDef>> = None;
    let mut normalized = false;
    let width_of = |b: &GraphBuilder, x: ValueId| b.ty(x).last_known().unwrap_or(0);
    let fits = |found: usize, width: usize, what: &str| match found == width {
        true => Ok(()),
        false => {
            let what = format!("the {what} takes vectors of {found} elements, but there are {width}");
            Err(Error::new(ErrorKind::Invalid, c.family(), what))
        }
    };
    for module in modules {
        let width = width_of(b, x);
        normalized = matches!(module, Module::Normalize);
        x = match module {
            Module::Pooling(_) if pooled.is_some() => {
                let what = "two modules `Pooling` are not supported";
                return Err(Error::new(ErrorKind::Unsupported, c.family(), what));
            }
            Module::Pooling(modes) => {
                pooled = Some(modes.clone());
                b.scope("pooling", |b| {
                    let all: Vec<ValueId> = modes
                        .iter()
                        .map(|&mode| texts.pool(b, x, mode))
                        .collect::<Result<_>>()?;
                    match all[..] {
                        [one] => Ok(one),
                        _ => b.concat_last(&all),
                    }
                })?
            }
            Module::Dense(dense) => {
                fits(dense.from, width, "dense layer")?;
                b.scope("dense", |b| {
                    let y = linear(b, x, &dense.name, dense.to, dense.from, dense.bias)?;
                    match dense.activation {
                        Some(f) => b.unary(f, y),
                        None => Ok(y),
                    }
                })?
            }
            Module::LayerNorm(name, n) => {
                fits(*n, width, "layer norm")?;
                match name {
                    Some(name) => layers::layer_norm(b, x, name, *n, NORM_EPS, true)?,
                    None => layers::layer_norm_of(b, x, "layer_norm", [None, None], NORM_EPS)?,
                }
            }
            Module::LogitScore(_) => {
                let what = "the module LogitScore stands behind a transformer alone";
                return Err(Error::new(ErrorKind::Unsupported, c.family(), what));
            }
            Module::Normalize => unit_length(b, x)?,
        };
    }
    b.output(if pooled.is_some() { VECTORS } else { TOKEN_VECTORS }, x);
    Ok(VectorsDef {
        dimensions: width_of(b, x),
        least_dimensions: None,
        pooling: pooled.unwrap_or_default(),
        normalized,
        fills_context: false,
        lower_case: false,
    })
}

/// Vectors `[…, n]` with the length 1.
pub(crate) fn unit_length(b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
    b.scope("normalize", |b| {
        let squares = b.mul(x, x)?;
        let sum = b.reduce_last(ReduceFn::Sum, squares)?;
        let length = b.unary(UnaryFn::Sqrt, sum)?;
        let least = b.scalar(LEAST_LENGTH)?;
        let length = b.binary(BinaryFn::Max, length, least)?;
        b.binary(BinaryFn::Div, x, length)
    })
}

/// The final hidden state, `[1, seq, hidden]`, and the texts that it declares.
pub(crate) type BodyOf<'a> = dyn FnMut(&mut GraphBuilder, Calls) -> Result<(Texts, ValueId)> + 'a;

/// An encoder that makes vectors, with the modules that the configuration lists behind it.
pub(crate) fn encoder(c: &Config<'_>, dims: &Dims, body: &mut BodyOf<'_>) -> crate::Result<ModelDef> {
    embedder(c, dims, false, &modules(c)?, body)
}

/// A model that makes vectors, with `modules` behind it; those of tokens are compared by their angles, so that they get the length 1.
pub(crate) fn embedder(
    c: &Config<'_>,
    dims: &Dims,
    tied: bool,
    modules: &[Module],
    body: &mut BodyOf<'_>,
) -> crate::Result<ModelDef> {
    let mut modules = modules.to_vec();
    let of_tokens = !modules.iter().any(|m| matches!(m, Module::Pooling(_)));
    if of_tokens && !c.flag(OF_TOKENS, false)? {
        let what = "the folder lists no module `Pooling`, and does not say how vectors of tokens are made and compared";
        return Err(Error::new(ErrorKind::Unsupported, c.family(), what));
    }
    if of_tokens && !matches!(modules.last(), Some(Module::Normalize)) {
        modules.push(Module::Normalize);
    }
    let mut build = |name: &str, calls: Calls| {
        let mut b = GraphBuilder::new(name);
        let (texts, x) = body(&mut b, calls)?;
        let vectors = vectors(c, &mut b, &texts, x, &modules)?;
        Ok::<_, Error>((b, vectors))
    };
    let (first, vectors) = build(EMBEDDER, Calls::Whole)?;
    let mut graphs = vec![(EMBEDDER, first)];
    if of_tokens && c.flag(UNSEEN, false)? {
        graphs.push((EXPANDED, build(EXPANDED, Calls::Expanded)?.0));
    }
    model(c, dims, tied, graphs, Gives::Vectors(vectors))
}

/// A decoder as a model of texts, with the modules that the configuration lists behind it.
pub(crate) fn decoder(c: &Config<'_>, dims: &Dims, tied: bool, body: &mut BodyOf<'_>) -> crate::Result<ModelDef> {
    let modules = modules(c)?;
    let [Module::LogitScore(LogitScore { yes, no, ref head })] = modules[..] else {
        let mut scoped = |b: &mut GraphBuilder, calls| b.scope("model", |b| body(b, calls));
        return embedder(c, dims, tied, &modules, &mut scoped);
    };
    let whole = (if tied { layers::EMBEDDING } else { layers::HEAD }, dims.vocab);
    let (head, rows) = head.as_ref().map_or(whole, |(name, rows)| (name.as_str(), *rows));
    if let Some(token) = [Some(yes), no].into_iter().flatten().find(|&t| t >= rows) {
        let what = format!("token {token} is beyond the head of {rows} tokens");
        return Err(Error::new(ErrorKind::Invalid, c.family(), what));
    }
    let mut b = GraphBuilder::new(RANKER);
    let (texts, x) = b.scope("model", |b| body(b, Calls::Whole))?;
    let x = texts.last_rows(&mut b, x)?;
    let head = b.weight(head, &[rows, dims.hidden]);
    let score = logit_score(&mut b, x, head, yes, no)?;
    scores(&mut b, score)?;
    model(c, dims, tied, vec![(RANKER, b)], Gives::Scores(ScoresDef::Written))
}

/// An encoder that scores texts of two, whose one component `b` has built.
pub(crate) fn ranker(c: &Config<'_>, dims: &Dims, b: GraphBuilder, typed: bool) -> crate::Result<ModelDef> {
    let scores = ScoresDef::Joined { token_types: typed };
    model(c, dims, false, vec![(RANKER, b)], Gives::Scores(scores))
}

/// What a graph gives of its texts.
enum Gives {
    Vectors(VectorsDef),
    Scores(ScoresDef),
}

/// The model whose components `graphs` are, by name.
fn model(
    c: &Config<'_>,
    dims: &Dims,
    tied: bool,
    graphs: Vec<(&'static str, GraphBuilder)>,
    gives: Gives,
) -> crate::Result<ModelDef> {
    let component = |(name, b): (&'static str, GraphBuilder)| {
        Ok::<_, Error>(ComponentDef {
            name: name.into(),
            graph: b.finish()?,
            continues: false,
        })
    };
    let components = graphs.into_iter().map(component).collect::<crate::Result<_>>()?;
    let mut def = registry::assemble(c, dims, components, tied)?;
    match gives {
        Gives::Vectors(vectors) => {
            def.task = TEXT_EMBEDDING;
            def.vectors = Some(vectors);
        }
        Gives::Scores(scores) => {
            def.task = TEXT_RANKING;
            def.scores = Some(scores);
        }
    }
    Ok(def)
}

/// The logit of the token `yes`, less that of `no`, of the states `x` `[texts, hidden]` by rows of the head, `[texts, 1]`.
fn logit_score(b: &mut GraphBuilder, x: ValueId, head: ValueId, yes: usize, no: Option<usize>) -> Result<ValueId> {
    b.scope("score", |b| {
        let tokens: Vec<i64> = [Some(yes), no].into_iter().flatten().map(|t| t as i64).collect();
        let count = tokens.len();
        let ids = b.literal(&[count], Literal::I64(tokens))?;
        let rows = b.embedding(head, ids)?;
        let rows = b.permute(rows, &[1, 0])?;
        let logits = b.matmul(x, rows)?;
        let first = b.slice_last(logits, 0, 1)?;
        if count == 1 {
            return Ok(first);
        }
        let second = b.slice_last(logits, 1, 2)?;
        b.binary(BinaryFn::Sub, first, second)
    })
}

/// Names the scores `x` `[texts, 1]` as the output.
pub(crate) fn scores(b: &mut GraphBuilder, x: ValueId) -> Result<()> {
    let x = b.reshape(x, [texts()])?;
    b.output(SCORES, x);
    Ok(())
}
