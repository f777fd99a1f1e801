//! The tool `file_search` of `/v1/responses`.

use super::{How, how};
use crate::{Fields, Result, json_type};
use serde_json::Value;

/// Most stores of one search.
const MAX_STORES: usize = 16;
/// Results where a request does not say how many: a small model reads no more with profit.
const USUAL_RESULTS: usize = 5;

/// What is searched before a model answers.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSearch {
    /// Where in the request it stands.
    pub path: String,
    /// The stores.
    pub stores: Vec<String>,
    /// How.
    pub how: How,
    /// Whether the answer has what was found.
    pub include_results: bool,
}

impl FileSearch {
    /// Reads the tool.
    pub(crate) fn read(fields: &Fields<'_>, include_results: bool) -> Result<FileSearch> {
        let list = fields.list("vector_store_ids")?;
        let list = list.ok_or_else(|| fields.missing("vector_store_ids", "a list of ids of stores"))?;
        if list.is_empty() || list.len() > MAX_STORES {
            let message = format_args!("found {} stores, expected 1 to {MAX_STORES}", list.len());
            return Err(fields.wrong("vector_store_ids", message));
        }
        let id = |id: &Value| {
            let text = id.as_str().map(str::to_owned);
            let wrong = || {
                fields.wrong(
                    "vector_store_ids",
                    format_args!("found {}, expected ids", json_type(id)),
                )
            };
            text.ok_or_else(wrong)
        };
        Ok(FileSearch {
            path: fields.here().to_owned(),
            stores: list.iter().map(id).collect::<Result<_>>()?,
            how: how(fields, USUAL_RESULTS)?,
            include_results,
        })
    }
}
