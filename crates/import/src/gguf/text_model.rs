//! What a GGUF file says of a model that makes vectors or scores of texts, as a folder of sentence-transformers would say it.
//!
//! A file says how states become a vector and has dense layers. It says neither what stands before texts nor how long they may be;
//! what a user should know of that becomes a note.

use super::config::Keys;
use super::encoder_names::CLASSES;
use super::metadata::required;
use super::names::Arch;
use super::{GgufFile, GgufSource, Metadata};
use crate::{Error, Result, SentenceFolder, TensorSource, open_bytes};
use serde_json::{Value, json};
use std::path::Path;

/// Pooling of a file that gives the states of tokens as they are.
const NONE: usize = 0;
/// Pooling of a reranker.
const RANK: usize = 4;
/// The other numbers in `pooling_type`, from 1.
const POOLINGS: [&str; 3] = ["mean", "cls", "lasttoken"];
/// Name of the template of a reranker that is a language model.
const RANK_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// What stands behind the transformer; `None` for a language model, and for a classification, which says it itself.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] and [`crate::ErrorKind::Missing`] where vectors would be others than those of the model.
pub(super) fn sentence(source: &GgufSource) -> Result<Option<SentenceFolder>> {
    let metadata = &source.file().metadata;
    let arch = source.arch()?;
    let prefix = required(metadata.string("general.architecture")?, "general.architecture")?;
    let keys = Keys { metadata, prefix };
    let key = keys.key("pooling_type");
    let pooling = keys.count("pooling_type")?;
    if arch.is_encoder() && source.shape("classifier.weight").is_some() {
        return Ok(None);
    }
    let of_texts = arch.is_encoder() || arch == Arch::GemmaEmbedding;
    let mut notes = Vec::new();
    let mode = match pooling {
        Some(RANK) => {
            let modules = judge(source, metadata, &key)?;
            return Ok(Some(SentenceFolder {
                modules,
                ..SentenceFolder::default()
            }));
        }
        Some(n @ 1..=3) => POOLINGS[n - 1],
        Some(NONE) if of_texts => {
            let what =
                format!("`{key}` says that each token has a vector of its own, which is not supported of GGUF files");
            return Err(Error::unsupported(what));
        }
        None if of_texts => {
            notes.push(format!(
                "the file has no `{key}`, which says how states become a vector: their mean is taken"
            ));
            POOLINGS[0]
        }
        None | Some(NONE) if keys.flag("attention.causal")? == Some(false) => {
            let what =
                format!("a model of texts needs `{key}`, which says how states become a vector; the file has none");
            return Err(Error::unsupported(what));
        }
        None | Some(NONE) => return Ok(None),
        Some(other) => {
            let what = format!("`{key}` should be 0 to {RANK}, found {other}");
            return Err(Error::unsupported(what));
        }
    };
    let mut modules = vec![json!({"kind": "Pooling", "path": "1_Pooling", "pooling_mode": mode})];
    if arch == Arch::GemmaEmbedding {
        modules.extend(dense(source)?);
    }
    // Of Nomic BERT with gates the family says itself what comes then.
    if !(arch == Arch::NomicBert && mode == POOLINGS[0]) {
        modules.push(json!({"kind": "Normalize", "path": "2_Normalize"}));
    }
    if arch == Arch::NomicBertMoe {
        notes.push(
            "the file has no bias of the experts, which llama.cpp's converter leaves out: vectors are those of the file, and not \
             quite those of the model; convert its folder for these"
                .to_owned(),
        );
    }
    if let Some(tokens) = keys.count("context_length")? {
        notes.push(format!(
            "the file does not say how long texts were in training: they may have as many tokens as there are positions, {tokens}"
        ));
    }
    Ok(Some(SentenceFolder {
        modules,
        notes,
        ..SentenceFolder::default()
    }))
}

/// Whether the file at `path` may hold a model that makes vectors or scores of texts. Its vocabulary does not become a tokenizer for that.
#[must_use]
pub fn may_make_vectors(path: &Path) -> bool {
    let found = || -> Result<bool> {
        let file = GgufFile::parse((*open_bytes(path)?).as_ref())?;
        let metadata = &file.metadata;
        let prefix = required(metadata.string("general.architecture")?, "general.architecture")?;
        let arch = Arch::from_name(prefix)?;
        let pools = Keys { metadata, prefix }.count("pooling_type")?;
        let of_texts = arch.is_encoder() || arch == Arch::GemmaEmbedding;
        Ok(of_texts || pools.is_some_and(|n| n != NONE))
    };
    found().unwrap_or(false)
}

/// The two dense layers of `EmbeddingGemma`.
fn dense(source: &GgufSource) -> Result<[Value; 2]> {
    let layer = |path: &str, name: &str| {
        let shape = source.shape(&format!("{path}.linear.weight")).unwrap_or_default();
        let &[to, from] = &shape[..] else {
            let what = format!(
                "the file has no matrix `{name}.weight`, without which vectors are not those of the model; llama.cpp's converter writes \
                 the dense layers with `--sentence-transformers-dense-modules`"
            );
            return Err(Error::missing(what));
        };
        let identity = "torch.nn.modules.linear.Identity";
        Ok(json!({
            "kind": "Dense", "path": path, "in_features": from, "out_features": to, "bias": false, "activation_function": identity,
        }))
    };
    Ok([layer("2_Dense", "dense_2")?, layer("3_Dense", "dense_3")?])
}

/// A language model whose head is left with the rows of two tokens, `yes` first.
fn judge(source: &GgufSource, metadata: &Metadata, key: &str) -> Result<Vec<Value>> {
    let shape = source.shape(CLASSES).unwrap_or_default();
    let &[2, _] = &shape[..] else {
        let what = format!(
            "`{key}` says that it is a reranker, which needs `{CLASSES}` with two rows; found the shape {shape:?}"
        );
        return Err(Error::unsupported(what));
    };
    let words = crate::embedding::qwen3_words();
    let expected = [
        &words.before[..],
        &words.instruct,
        &words.instruction,
        &words.query,
        "{query}",
        &words.document,
        "{document}",
        &words.after,
    ];
    if metadata
        .string(RANK_TEMPLATE)?
        .is_some_and(|found| found != expected.concat())
    {
        let what = format!("`{RANK_TEMPLATE}` is not that of Qwen3-Reranker, which is the only one that is supported");
        return Err(Error::unsupported(what));
    }
    Ok(vec![json!({
        "kind": "LogitScore", "path": "1_LogitScore", "head": CLASSES, "head_rows": 2, "true_token_id": 0, "false_token_id": 1,
    })])
}
