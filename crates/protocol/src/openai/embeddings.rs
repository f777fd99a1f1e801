//! `POST /v1/embeddings`. The official clients ask for base64 unless told otherwise.

use super::super::{Fields, Prompt, Result};
use super::completions::inputs;
use base64::Engine as _;
use serde_json::{Value, json};

/// A request for embeddings.
#[derive(Debug, Clone)]
pub struct Embed {
    /// The model, as the client calls it.
    pub model: String,
    /// What is embedded.
    pub inputs: Vec<Prompt>,
    /// Leading numbers of each vector that are wanted.
    pub dimensions: Option<usize>,
    /// What the texts are for.
    pub purpose: Purpose,
    /// Whether texts that are too long lose their end.
    pub truncate: bool,
    /// Vectors as base64 of little-endian `f32` instead of lists of numbers.
    pub base64: bool,
}

/// What texts are for: which prompt stands before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing is said of it.
    None,
    /// They are searched with.
    Query,
    /// They are searched for.
    Document,
    /// The task of this name.
    Task(String),
}

/// What `input_type` says, in the words of Cohere, of Voyage and Jina, and of NVIDIA; others are names of the model's tasks.
fn purpose(fields: &Fields<'_>) -> Result<Purpose> {
    Ok(match fields.text("input_type")? {
        None => Purpose::None,
        Some("search_query" | "query") => Purpose::Query,
        Some("search_document" | "document" | "passage") => Purpose::Document,
        Some(task) => Purpose::Task(task.to_owned()),
    })
}

/// What `truncate` says: a switch, or where the end that is left out is, in the words of Cohere.
pub(crate) fn truncate(fields: &Fields<'_>) -> Result<bool> {
    match fields.get("truncate") {
        Some(Value::String(word)) => match word.to_ascii_uppercase().as_str() {
            "NONE" => Ok(false),
            "END" => Ok(true),
            other => {
                let message = format_args!("found `{other}`, expected true, false, `NONE` or `END`");
                Err(fields.wrong("truncate", message))
            }
        },
        _ => Ok(fields.flag("truncate")?.unwrap_or(false)),
    }
}

/// Reads a request.
///
/// # Errors
/// The first field that is missing or of another type.
pub fn request(body: &Value) -> Result<Embed> {
    let fields = Fields::of_body(body)?;
    let base64 = match fields.text("encoding_format")?.unwrap_or("float") {
        "float" => false,
        "base64" => true,
        other => {
            let message = format_args!("found `{other}`, expected `float` or `base64`");
            return Err(fields.wrong("encoding_format", message));
        }
    };
    Ok(Embed {
        model: super::model(&fields)?,
        inputs: inputs(&fields, "input")?,
        dimensions: fields.count("dimensions", 1, 1 << 20)?.map(|n| n as usize),
        purpose: purpose(&fields)?,
        truncate: truncate(&fields)?,
        base64,
    })
}

/// The answer. `vectors` are in the order of the inputs.
#[must_use]
pub fn answer(request: &Embed, model: &str, vectors: &[Vec<f32>], tokens: usize) -> Value {
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = match request.base64 {
            true => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            false => json!(vector),
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    json!({
        "object": "list",
        "model": model,
        "data": data.collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}
