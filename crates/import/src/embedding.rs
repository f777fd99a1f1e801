//! The record of how a model makes vectors or scores of texts (`embedding.json`), from what its folder says.

use crate::convert::ConvertOptions;
use crate::{Error, LateInteraction, Result, SourceModel};
use cactus_bundle::{
    DOCUMENT_PROMPT, EMBEDDING_VERSION, Embedding, Expansion, Fill, Gives, Pair, Pooling, QUERY_PROMPT, ScoreFn,
    Scores, Similarity, TokenTexts, TokenVectors, Vectors, WrittenPair,
};
use cactus_models::{ModelDef, PoolingDef, ScoresDef, VectorsDef};
use cactus_text::Tokenizer;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Names that folders have for the prompt of documents, the first that counts first.
const DOCUMENT_NAMES: [&str; 3] = [DOCUMENT_PROMPT, "passage", "corpus"];
/// More tokens than any text has: tokenizers write such a number where they know no limit.
const NO_LIMIT: u64 = 1 << 40;

/// The record of `model`, and what its user should know; no record for a model that does neither.
///
/// # Errors
/// What cannot be, or is not supported.
pub(crate) fn record(
    def: &ModelDef,
    model: &SourceModel,
    options: &ConvertOptions,
) -> Result<(Option<Embedding>, Vec<String>)> {
    let asked = options.query_prompt.is_some() || options.document_prompt.is_some();
    let mut notes = Vec::new();
    let late = model.sentence.as_ref().and_then(|folder| folder.late.as_ref());
    let gives = match (&def.vectors, def.scores) {
        (Some(vectors), _) if vectors.pooling.is_empty() && !asked => {
            Gives::TokenVectors(of_tokens(def, vectors, model, late, &mut notes)?)
        }
        (Some(vectors), _) if !vectors.pooling.is_empty() => {
            Gives::Vectors(of_vectors(vectors, model, options, &mut notes)?)
        }
        (None, Some(scores)) if !asked => Gives::Scores(of_scores(scores, model)?),
        (None, None) if !asked => return Ok((None, notes)),
        _ => {
            let what = format!(
                "prompts of queries and documents are for models that make vectors, found a `{}`",
                def.family
            );
            return Err(Error::unsupported(what));
        }
    };
    let folder = model.sentence.as_ref();
    notes.extend(folder.into_iter().flat_map(|f| f.notes.iter().cloned()));
    let stated = folder.and_then(|f| f.max_seq_length);
    let of_tokenizer = model.tokenizer.as_ref().and_then(|t| {
        let limit = t.tokenizer_config.get("model_max_length")?;
        limit.as_u64().filter(|&n| n > 0 && n < NO_LIMIT)
    });
    let limit = stated.or_else(|| of_tokenizer.and_then(|n| usize::try_from(n).ok()));
    let mut limit = limit.unwrap_or(def.context_tokens).min(def.context_tokens);
    if let Gives::TokenVectors(vectors) = &gives {
        limit = vectors.document.limit_tokens as usize;
    }
    let fills = def.vectors.as_ref().is_some_and(|v| v.fills_context);
    let lower_case = def.vectors.as_ref().is_some_and(|v| v.lower_case);
    let record = Embedding {
        version: EMBEDDING_VERSION,
        limit_tokens: u32::try_from(limit).unwrap_or(u32::MAX),
        lower_case: lower_case || folder.is_some_and(|f| f.lower_case),
        fill: if fills { Some(fill(def, model)?) } else { None },
        gives,
    };
    record.check().map_err(Error::malformed)?;
    Ok((Some(record), notes))
}

/// What texts are filled up with: the token that the tokenizer names for it.
fn fill(def: &ModelDef, model: &SourceModel) -> Result<Fill> {
    let missing =
        || Error::unsupported("texts are filled up to one length, and the source names no token for it (`pad_token`)");
    let files = model.tokenizer.as_ref().ok_or_else(missing)?;
    let tokenizer = Tokenizer::from_bytes(&files.tokenizer_json)
        .map_err(|e| Error::malformed("the tokenizer cannot be read").caused_by(e))?;
    let named = files.tokenizer_config.get("pad_token").ok_or_else(missing)?;
    let text = named.as_str().or_else(|| named.get("content")?.as_str());
    Ok(Fill {
        token: text.and_then(|text| tokenizer.token_id(text)).ok_or_else(missing)?,
        length: u32::try_from(def.context_tokens).unwrap_or(u32::MAX),
    })
}

/// Says in the configuration that the model scores documents, by the logits of `yes` and `no`.
pub(crate) fn as_reranker(config: &mut Value, model: &SourceModel) -> Result<()> {
    if model.sentence.as_ref().is_some_and(|folder| !folder.modules.is_empty()) {
        let what = "the folder says itself what its model gives; leave out that it is a reranker";
        return Err(Error::unsupported(what));
    }
    let missing = || Error::unsupported("a reranker has the tokens `yes` and `no`, and the source has no such");
    let files = model.tokenizer.as_ref().ok_or_else(missing)?;
    let tokenizer = Tokenizer::from_bytes(&files.tokenizer_json)
        .map_err(|e| Error::malformed("the tokenizer cannot be read").caused_by(e))?;
    let token = |word: &str| tokenizer.token_id(word).ok_or_else(missing);
    let module = json!({"kind": "LogitScore", "true_token_id": token("yes")?, "false_token_id": token("no")?});
    if let Some(fields) = config.as_object_mut() {
        fields.insert("text_modules".to_owned(), json!([module]));
    }
    Ok(())
}

fn of_vectors(
    vectors: &VectorsDef,
    model: &SourceModel,
    options: &ConvertOptions,
    notes: &mut Vec<String>,
) -> Result<Vectors> {
    let folder = model.sentence.clone().unwrap_or_default();
    let mut prompts: BTreeMap<String, String> = BTreeMap::new();
    // Empty ones stand for none.
    let named = folder.prompts.iter().filter(|(_, text)| !text.is_empty());
    prompts.extend(named.map(|(name, text)| (name.clone(), text.clone())));
    if let Some(text) = DOCUMENT_NAMES.iter().find_map(|name| prompts.get(*name)).cloned() {
        prompts.insert(DOCUMENT_PROMPT.to_owned(), text);
    }
    for (name, text) in [
        (QUERY_PROMPT, &options.query_prompt),
        (DOCUMENT_PROMPT, &options.document_prompt),
    ] {
        match text.as_deref() {
            None => {}
            Some("") => drop(prompts.remove(name)),
            Some(text) => drop(prompts.insert(name.to_owned(), text.to_owned())),
        }
    }
    if prompts.is_empty() && !(options.query_prompt.is_some() || options.document_prompt.is_some()) {
        notes.push(
            "the source names no prompts; if the model was trained with some, say them with --query-prompt and \
             --document-prompt"
                .to_owned(),
        );
    }
    let default_prompt = folder.default_prompt.filter(|name| prompts.contains_key(name));
    let similarity = match folder.similarity.as_deref() {
        None | Some("cosine") => Similarity::Cosine,
        Some("dot") => Similarity::Dot,
        Some("euclidean") => Similarity::Euclidean,
        Some("manhattan") => Similarity::Manhattan,
        Some(other) => {
            let what = format!(
                "field `similarity_fn_name`: `{}` is not supported; supported are cosine, dot, euclidean and manhattan",
                other.chars().take(40).collect::<String>()
            );
            return Err(Error::unsupported(what));
        }
    };
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(Vectors {
        dimensions: small(vectors.dimensions),
        least_dimensions: vectors.least_dimensions.map(small),
        pooling: vectors.pooling.iter().copied().map(pooling).collect::<Result<_>>()?,
        normalized: vectors.normalized,
        similarity,
        prompts,
        default_prompt,
    })
}

/// How texts become matrices, by what a folder of `PyLate` says.
fn of_tokens(
    def: &ModelDef,
    vectors: &VectorsDef,
    model: &SourceModel,
    late: Option<&LateInteraction>,
    notes: &mut Vec<String>,
) -> Result<TokenVectors> {
    let missing = |what: &str| Error::unsupported(format!("a vector of each token needs {what}"));
    let late = late.ok_or_else(|| missing("a folder that says what becomes of texts"))?;
    let files = model.tokenizer.as_ref().ok_or_else(|| missing("a tokenizer"))?;
    let tokenizer = Tokenizer::from_bytes(&files.tokenizer_json)
        .map_err(|e| Error::malformed("the tokenizer cannot be read").caused_by(e))?;
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let of_role = |prefix: &str, length: usize| {
        // The whole prefix is a token, or its first word is, or it is a text like others.
        let words = [Some(prefix), prefix.split_whitespace().next()];
        let mark = words.into_iter().flatten().find_map(|word| tokenizer.token_id(word));
        TokenTexts {
            limit_tokens: small(length.min(def.context_tokens)),
            prompt: if mark.is_some() {
                String::new()
            } else {
                prefix.to_owned()
            },
            mark,
            expansion: None,
            skipped: Vec::new(),
        }
    };
    let mut query = of_role(&late.query_prefix, late.query_length);
    let mut document = of_role(&late.document_prefix, late.document_length);
    if late.expands {
        let named = |key: &str| {
            let token = files.tokenizer_config.get(key)?;
            tokenizer.token_id(token.as_str().or_else(|| token.get("content")?.as_str())?)
        };
        let token = ["mask_token", "eos_token", "pad_token"].into_iter().find_map(named);
        query.expansion = Some(Expansion {
            token: token.ok_or_else(|| missing("a token that fills queries up, and the tokenizer names none"))?,
            length: query.limit_tokens,
            seen: late.attends,
        });
    }
    document.skipped = late
        .skiplist
        .iter()
        .filter_map(|word| tokenizer.token_id(word))
        .collect();
    document.skipped.sort_unstable();
    document.skipped.dedup();
    let unknown = late.skiplist.len() - document.skipped.len();
    if unknown > 0 {
        notes.push(format!(
            "{unknown} of {} words that documents are compared without are no tokens of their own",
            late.skiplist.len()
        ));
    }
    Ok(TokenVectors {
        dimensions: small(vectors.dimensions),
        query,
        document,
    })
}

fn pooling(of: PoolingDef) -> Result<Pooling> {
    Ok(match of {
        PoolingDef::First => Pooling::First,
        PoolingDef::Last => Pooling::Last,
        PoolingDef::Mean => Pooling::Mean,
        PoolingDef::MeanSqrt => Pooling::MeanSqrt,
        PoolingDef::WeightedMean => Pooling::WeightedMean,
        PoolingDef::Max => Pooling::Max,
        _ => return Err(Error::unsupported("this way of pooling has no name in a bundle")),
    })
}

/// How the makers of Qwen3-Reranker write a query and a document.
pub(crate) fn qwen3_words() -> WrittenPair {
    WrittenPair {
        before: "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. \
                 Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n"
            .to_owned(),
        instruct: "<Instruct>: ".to_owned(),
        instruction: "Given a web search query, retrieve relevant passages that answer the query".to_owned(),
        query: "\n<Query>: ".to_owned(),
        document: "\n<Document>: ".to_owned(),
        after: "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n".to_owned(),
    }
}

fn of_scores(scores: ScoresDef, model: &SourceModel) -> Result<Scores> {
    let pair = match scores {
        ScoresDef::Joined { token_types } => Pair::Joined { token_types },
        ScoresDef::Written => Pair::Written(qwen3_words()),
        _ => return Err(Error::unsupported("this way of joining texts has no name in a bundle")),
    };
    // As cross-encoders are saved now, and as they were.
    let now = model.config.pointer("/sentence_transformers/activation_fn");
    let stated = now.or_else(|| model.config.get("sbert_ce_default_activation_function"));
    let activation = match stated.filter(|v| !v.is_null()) {
        None => ScoreFn::Sigmoid,
        Some(Value::String(class)) => match class.rsplit('.').next().unwrap_or_default() {
            "Identity" => ScoreFn::Identity,
            "Sigmoid" => ScoreFn::Sigmoid,
            other => {
                let other: String = other.chars().take(40).collect();
                let what =
                    format!("the activation `{other}` of scores is not supported; supported are Identity and Sigmoid");
                return Err(Error::unsupported(what));
            }
        },
        Some(_) => {
            return Err(Error::malformed(
                "the activation of scores should be the name of a class",
            ));
        }
    };
    Ok(Scores { pair, activation })
}
