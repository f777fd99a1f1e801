//! `POST /v1/embeddings`. The official clients ask for base64 unless told otherwise.
//!
//! OpenAI's API has texts and token ids. Pictures come as objects beside them, as Jina has it (`{"image": …}`, `{"text": …}`), or as a
//! part of a chat's content (`{"type": "image_url", …}`, `{"type": "text", …}`), as vLLM does. A vector of each token is asked for with
//! `return_multivector`, or at `/v1/multi-vector`, which are Jina's.

use super::super::content::text_part;
use super::super::{ApiError, Fields, Result};
use super::inputs::{Inputs, Object};
use base64::Engine as _;
use cactus_engine::chat::{check_files, file_bytes, picture_of_part, picture_of_url};
use serde_json::{Value, json};

/// A request for embeddings.
#[derive(Debug, Clone)]
pub struct Embed {
    /// The model, as the client calls it.
    pub model: String,
    /// What is embedded.
    pub inputs: Vec<Input>,
    /// Leading numbers of each vector that are wanted.
    pub dimensions: Option<usize>,
    /// What the texts are for.
    pub purpose: Purpose,
    /// Whether texts that are too long lose their end.
    pub truncate: bool,
    /// A vector of each token is wanted, in place of one of each input.
    pub multivector: bool,
    /// Vectors as base64 of little-endian `f32` instead of lists of numbers.
    pub base64: bool,
}

/// What gets a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A text.
    Text(String),
    /// The tokens of one.
    Tokens(Vec<u32>),
    /// The file of a picture.
    Picture(Vec<u8>),
}

const INPUTS: Inputs<Input> = Inputs {
    text: Input::Text,
    tokens: Input::Tokens,
    object: Some(Object {
        expected: "an object with `text` or `image`",
        read: object,
    }),
};

/// A text or a picture that comes as an object.
fn object(part: &Fields<'_>) -> Result<Input> {
    if part.text("type")?.is_some() {
        let picture = picture_of_part(part.map());
        return match picture.map_err(|(field, what)| part.wrong(field, what).with_code("unsupported_content"))? {
            Some(Some(data)) => picture_file(part, data),
            Some(None) => Err(part.missing("data", "a picture file as base64")),
            None => Ok(Input::Text(text_part(part, &["text", "input_text"])?.to_owned())),
        };
    }
    match (part.text("text")?, part.text("image")?) {
        (Some(text), None) => Ok(Input::Text(text.to_owned())),
        // Base64 has no colon, and addresses have one.
        (None, Some(url)) if url.contains(':') => {
            let data = picture_of_url(url);
            let data = data.map_err(|what| part.wrong("image", what).with_code("unsupported_content"));
            picture_file(part, data?)
        }
        (None, Some(data)) => picture_file(part, data),
        (Some(_), Some(_)) => {
            let message =
                "found beside `text`, and each input gets one vector; expected a text and a picture as two inputs";
            Err(part.wrong("image", message))
        }
        (None, None) => {
            let names: Vec<&str> = part.map().keys().take(8).map(String::as_str).collect();
            let found = match names.is_empty() {
                true => "nothing".to_owned(),
                false => format!("`{}`", names.join("`, `")),
            };
            let path = part.here();
            let message = format!("`{path}`: found {found}, expected an object with `text` or `image`");
            Err(ApiError::field(path, message))
        }
    }
}

fn picture_file(part: &Fields<'_>, base64: &str) -> Result<Input> {
    let file = file_bytes(base64);
    let path = part.here();
    file.map(Input::Picture)
        .map_err(|what| ApiError::field(path, format!("`{path}`: {what}")))
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
    let inputs = INPUTS.read(&fields, "input")?;
    let pictures = inputs.iter().filter_map(|input| match input {
        Input::Picture(file) => Some(file.len()),
        _ => None,
    });
    check_files(pictures.clone().count(), pictures.sum()).map_err(|what| fields.wrong("input", what))?;
    Ok(Embed {
        model: super::model(&fields)?,
        inputs,
        dimensions: fields.count("dimensions", 1, 1 << 20)?.map(|n| n as usize),
        purpose: purpose(&fields)?,
        truncate: truncate(&fields)?,
        multivector: fields.flag("return_multivector")?.unwrap_or(false),
        base64,
    })
}

/// What was read for an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Read {
    /// Tokens of texts, those of their prompts and special ones among them.
    pub text_tokens: usize,
    /// Patches of pictures; `None` where there were no pictures.
    pub image_tokens: Option<usize>,
}

impl Read {
    fn json(self) -> Value {
        let total = self.text_tokens + self.image_tokens.unwrap_or_default();
        let mut usage = json!({"prompt_tokens": total, "total_tokens": total});
        if let Some(image_tokens) = self.image_tokens {
            usage["prompt_tokens_details"] = json!({"text_tokens": self.text_tokens, "image_tokens": image_tokens});
        }
        usage
    }
}

/// The answer. `vectors` are in the order of the inputs.
#[must_use]
pub fn answer(request: &Embed, model: &str, vectors: &[Vec<f32>], read: Read) -> Value {
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = encoded(request, vector);
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    listed(model, data.collect(), read)
}

/// The answer where each input has several vectors, as Jina has it.
#[must_use]
pub fn answer_of_tokens(request: &Embed, model: &str, matrices: &[Vec<Vec<f32>>], read: Read) -> Value {
    let data = matrices.iter().enumerate().map(|(index, vectors)| {
        let embeddings: Vec<Value> = vectors.iter().map(|vector| encoded(request, vector)).collect();
        json!({"object": "embeddings", "index": index, "embeddings": embeddings})
    });
    listed(model, data.collect(), read)
}

fn encoded(request: &Embed, vector: &[f32]) -> Value {
    match request.base64 {
        true => {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))
        }
        false => json!(vector),
    }
}

fn listed(model: &str, data: Vec<Value>, read: Read) -> Value {
    json!({"object": "list", "model": model, "data": data, "usage": read.json()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: Value) -> Result<Vec<Input>> {
        request(&json!({"input": input})).map(|request| request.inputs)
    }

    #[test]
    fn inputs_of_every_form_become_texts_and_pictures() {
        let url = "data:image/png;base64,QUI=";
        let picture = || Input::Picture(b"AB".to_vec());
        let text = || Input::Text("a".to_owned());
        let cases = [
            (json!("a"), vec![text()]),
            (json!([1, 2]), vec![Input::Tokens(vec![1, 2])]),
            (json!(["a", [1], "a"]), vec![text(), Input::Tokens(vec![1]), text()]),
            (json!({"image": url}), vec![picture()]),
            (json!([{"image": "QUI"}]), vec![picture()]),
            (
                json!([{"text": "a"}, {"image": url, "text": null}, "a", {"type": "text", "text": "a"}]),
                vec![text(), picture(), text(), text()],
            ),
            (
                json!([
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "image_url", "image_url": url},
                    {"type": "input_image", "image_url": url},
                    {"type": "image", "data": "QUI="},
                    {"type": "input_text", "text": "a"},
                ]),
                vec![picture(), picture(), picture(), picture(), text()],
            ),
        ];
        for (input, expected) in cases {
            assert_eq!(read(input.clone()).unwrap(), expected, "{input}");
        }
    }

    #[test]
    fn inputs_that_are_nothing_of_it_are_refused_by_their_place() {
        let cases = [
            (
                json!([{"image": "https://example.com/a.png"}]),
                "input[0].image",
                "`https:`",
            ),
            (json!([{"image": "file:///etc/passwd"}]), "input[0].image", "fetched"),
            (json!(["a", {"image": "a b!"}]), "input[1]", "not base64"),
            (json!(["a", {"image": 5}]), "input[1].image", "text"),
            (json!([{"image": "QUI=", "text": "a"}]), "input[0].image", "two inputs"),
            (json!([{"video": "QUI="}]), "input[0]", "`video`"),
            (json!([{}]), "input[0]", "nothing"),
            (json!([{"type": "image"}]), "input[0].data", "base64"),
            (json!([{"type": "image_url"}]), "input[0].image_url", "data URL"),
            (
                json!([{"type": "image_url", "image_url": {"url": "http://a"}}]),
                "input[0].image_url.url",
                "address",
            ),
            (json!([{"type": "input_audio"}]), "input[0].type", "audio"),
            (json!([{"type": "poem"}]), "input[0].type", "`text`"),
            (json!([true]), "input[0]", "an object with `text` or `image`"),
            (json!({"image": null}), "input", "`image`"),
            (json!(vec![json!({"image": ""}); 257]), "input", "256 pictures"),
        ];
        for (input, param, word) in cases {
            let error = read(input.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{input}: {}", error.message);
            assert!(error.message.contains(word), "{input}: {}", error.message);
        }
    }
}
