//! The APIs of OpenAI: chat completions, completions, responses, decisions, embeddings, files, vector stores, audio,
//! realtime, models.

pub mod audio;
pub mod chat;
pub mod completions;
pub mod decisions;
pub mod embeddings;
pub mod files;
mod form;
mod inputs;
mod messages;
pub mod page;
pub mod realtime;
pub mod responses;
pub mod vector_stores;

use super::{Fields, Result};
use serde_json::{Value, json};

pub(super) use messages::{arguments, messages};

/// What `/v1/models` says of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCard {
    /// Its name.
    pub id: String,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    /// Tokens of prompt and answer together, if the model is loaded.
    pub context_tokens: Option<usize>,
    /// Whether it is loaded.
    pub loaded: bool,
    /// What it is for, if that is known by now.
    pub model_type: Option<&'static str>,
    /// Whether it takes pictures, if it is loaded and takes text.
    pub sees: Option<bool>,
    /// Whether it takes films, in the same way.
    pub watches: Option<bool>,
    /// Whether it takes sounds in conversations, if it is loaded and holds some.
    pub hears: Option<bool>,
}

impl ModelCard {
    /// The model's object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "cactus",
            "loaded": self.loaded,
            "model_type": self.model_type,
            "sees_pictures": self.sees,
            "sees_films": self.watches,
            "hears_sounds": self.hears,
            "context_window": self.context_tokens,
        })
    }
}

/// The list of models.
#[must_use]
pub fn model_list(models: &[ModelCard]) -> Value {
    json!({"object": "list", "data": models.iter().map(ModelCard::json).collect::<Vec<_>>()})
}

/// The model that a request names.
pub(super) fn model(fields: &Fields<'_>) -> Result<String> {
    Ok(fields.text("model")?.unwrap_or_default().to_owned())
}

/// Whether reasoning is asked for, in the words of `reasoning_effort`.
pub(super) fn effort(fields: &Fields<'_>, name: &str) -> Result<Option<(bool, &'static str)>> {
    let Some(effort) = fields.text(name)? else {
        return Ok(None);
    };
    const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    match EFFORTS.iter().find(|known| **known == effort) {
        Some(known) => Ok(Some((*known != "none", known))),
        None => {
            let expected = EFFORTS.join("`, `");
            Err(fields.wrong(name, format_args!("found `{effort}`, expected `{expected}`")))
        }
    }
}
