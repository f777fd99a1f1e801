//! `POST /v1/rerank`, as Cohere and Jina have it: documents in the order of how well they answer a query.

use super::{ApiError, Fields, MAX_INPUTS, Result, json_type, new_id};
use serde_json::{Value, json};

/// A request to score documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rerank {
    /// The model, as the client calls it.
    pub model: String,
    /// What is searched for.
    pub query: String,
    /// What is scored.
    pub documents: Vec<String>,
    /// How many of the best are wanted; all where absent.
    pub top: Option<usize>,
    /// Whether the answer has the documents, too.
    pub return_documents: bool,
    /// Whether documents that are too long lose their end.
    pub truncate: bool,
    /// What makes a document a good one, for a model that is told so.
    pub instruction: Option<String>,
}

/// Reads a request.
///
/// # Errors
/// The first field that is missing, of another type or out of range.
pub fn request(body: &Value) -> Result<Rerank> {
    let fields = Fields::of_body(body)?;
    let list = fields.list("documents")?;
    let list = list.ok_or_else(|| fields.missing("documents", "a list of texts"))?;
    if list.is_empty() || list.len() > MAX_INPUTS {
        let message = format_args!("found {} of them, expected 1 to {MAX_INPUTS}", list.len());
        return Err(fields.wrong("documents", message));
    }
    let one = |(index, value): (usize, &Value)| {
        let path = format!("documents[{index}]");
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Object(_) => Ok(Fields::at(value, path)?.required_text("text")?.to_owned()),
            other => {
                let message = format!(
                    "`{path}`: found {}, expected text or an object with `text`",
                    json_type(other)
                );
                Err(ApiError::field(path, message))
            }
        }
    };
    let top = fields.any(&["top_n", "top_k"]).map_or("top_n", |(name, _)| name);
    Ok(Rerank {
        model: super::openai::model(&fields)?,
        query: fields.required_text("query")?.to_owned(),
        documents: list.iter().enumerate().map(one).collect::<Result<_>>()?,
        top: fields.count(top, 1, u64::MAX)?.and_then(|n| usize::try_from(n).ok()),
        return_documents: fields.flag("return_documents")?.unwrap_or(false),
        truncate: super::openai::embeddings::truncate(&fields)?,
        instruction: fields.text("instruction")?.map(str::to_owned),
    })
}

/// The answer. `scores` are in the order of the documents, and `order` has their places, the best first.
#[must_use]
pub fn answer(request: &Rerank, model: &str, scores: &[f32], order: &[usize], tokens: usize) -> Value {
    let most = request.top.unwrap_or(usize::MAX);
    let results = order.iter().take(most).filter_map(|&index| {
        let mut result = json!({"index": index, "relevance_score": scores.get(index)?});
        if request.return_documents {
            result["document"] = json!({"text": request.documents.get(index)?});
        }
        Some(result)
    });
    json!({
        "id": new_id("rerank-"),
        "object": "list",
        "model": model,
        "results": results.collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}
