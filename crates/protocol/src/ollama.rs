//! Ollama's API: `/api/chat`, `/api/generate`, and what its clients ask about models. The answers are in `answer`.

mod answer;

pub use answer::{OllamaEncoder, date};

use super::{ApiError, Fields, Job, KeepAlive, MAX_MESSAGES, Prompt, Result, Spec, content, json_type, objects, tools};
use cactus_engine::chat::ChatRequest;
use cactus_text::grammar::{Grammar, Spacing};
use serde_json::{Map, Value, json};
use std::time::SystemTime;

/// What a request asks for.
#[derive(Debug)]
pub enum Request {
    /// An answer.
    Answer(Box<(Job, OllamaEncoder)>),
    /// That the model be loaded, or unloaded: there is nothing to answer.
    Load {
        /// The model, as the client calls it.
        model: String,
        /// Whether it stays.
        keep_alive: KeepAlive,
        /// The answer.
        answer: Box<OllamaEncoder>,
    },
}

/// Options of Ollama's and what the engine calls them.
const OPTIONS: &[(&str, &str)] = &[
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("typical_p", "typical_p"),
    ("repeat_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("stop", "stop"),
];

/// Reads a request to `/api/chat`.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn chat(body: &Value, now: SystemTime) -> Result<Request> {
    let fields = Fields::of_body(body)?;
    let list = fields.list("messages")?.unwrap_or_default();
    if list.len() > MAX_MESSAGES {
        let message = format_args!("found {} messages, expected at most {MAX_MESSAGES}", list.len());
        return Err(fields.wrong("messages", message));
    }
    let common = Common::read(&fields)?;
    let encoder = OllamaEncoder::chat(now);
    if list.is_empty() {
        return Ok(common.load(encoder));
    }
    let chat = ChatRequest {
        messages: messages(list)?,
        tools: tools::tools(&fields, |entry| tool(entry).map(Some))?,
        ..common.chat(&fields)?
    };
    Ok(common.answer(Prompt::Chat(Box::new(chat)), encoder))
}

/// Reads a request to `/api/generate`.
///
/// # Errors
/// As [`chat`].
pub fn generate(body: &Value, now: SystemTime) -> Result<Request> {
    let fields = Fields::of_body(body)?;
    let common = Common::read(&fields)?;
    if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(fields.wrong("suffix", "this server cannot fill in between; expected none"));
    }
    if fields.text("template")?.is_some_and(|template| !template.is_empty()) {
        return Err(fields.wrong("template", "this server uses the template of the model; expected none"));
    }
    let encoder = OllamaEncoder::generate(now);
    let Some(prompt) = fields.text("prompt")?.filter(|prompt| !prompt.is_empty()) else {
        return Ok(common.load(encoder));
    };
    if fields.flag("raw")?.unwrap_or(false) {
        if fields.list("images")?.is_some_and(|images| !images.is_empty()) {
            return Err(fields.wrong("images", "a raw prompt has no place for pictures; leave `raw` out"));
        }
        return Ok(common.answer(Prompt::Text(prompt.to_owned()), encoder));
    }
    let mut messages = Vec::new();
    if let Some(system) = fields.text("system")?.filter(|system| !system.is_empty()) {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.push(json!({"role": "user", "content": with_images(&fields, prompt)?}));
    let chat = ChatRequest {
        messages,
        ..common.chat(&fields)?
    };
    Ok(common.answer(Prompt::Chat(Box::new(chat)), encoder))
}

/// The model that `/api/show` is asked about.
///
/// # Errors
/// If it is missing or no text.
pub fn shown_model(body: &Value) -> Result<String> {
    let fields = Fields::of_body(body)?;
    match fields.any(&["model", "name"]) {
        Some((name, _)) => Ok(fields.text(name)?.unwrap_or_default().to_owned()),
        None => Err(fields.missing("model", "the name of a model")),
    }
}

/// What both requests have.
struct Common {
    model: String,
    spec: Spec,
    stream: bool,
    keep_alive: KeepAlive,
}

impl Common {
    fn read(fields: &Fields<'_>) -> Result<Self> {
        let mut spec = Spec::default();
        if let Some(options) = fields.object("options")? {
            for (name, option) in OPTIONS {
                if let Some(value) = options.get(name) {
                    spec.set(&options, name, option, value.clone())?;
                }
            }
            if let Some(most) = options.get("num_predict") {
                // -1 and -2 are "as many as fit".
                if most.as_i64().is_none_or(|most| most >= 0) {
                    spec.set(&options, "num_predict", "max_tokens", most.clone())?;
                }
            }
            if let Some(seed) = options.get("seed") {
                let seed = seed
                    .as_i64()
                    .map_or_else(|| seed.clone(), |seed| Value::from(seed as u64));
                spec.set(&options, "seed", "seed", seed)?;
            }
            if let Some(window) = options.get("repeat_last_n") {
                // -1 is all, which is our 0; their 0 is off.
                match window.as_i64() {
                    Some(-1) => {}
                    Some(0) => drop(spec.options.shift_remove("repetition_penalty")),
                    _ => spec.set(&options, "repeat_last_n", "repetition_window", window.clone())?,
                }
            }
        }
        Ok(Self {
            model: fields.required_text("model")?.to_owned(),
            spec,
            stream: fields.flag("stream")?.unwrap_or(true),
            keep_alive: keep_alive(fields)?,
        })
    }

    /// Form and reasoning of the answer.
    fn chat(&self, fields: &Fields<'_>) -> Result<ChatRequest> {
        let mut chat = ChatRequest::default();
        match fields.get("think") {
            None => {}
            Some(Value::Bool(think)) => chat.reasoning = Some(*think),
            Some(_) => {
                if let Some((on, effort)) = super::openai::effort(fields, "think")? {
                    chat.reasoning = Some(on);
                    chat.template_variables
                        .insert("reasoning_effort".to_owned(), Value::from(effort));
                }
            }
        }
        chat.format = match fields.get("format") {
            None => None,
            Some(Value::String(text)) if text.is_empty() => None,
            Some(Value::String(text)) if text == "json" => Some(Grammar::JsonObject {
                spacing: Spacing::default(),
            }),
            Some(Value::Object(_)) => Some(tools::schema(fields, "format")?),
            Some(other) => {
                let message = format_args!("found {}, expected `json` or a JSON Schema", json_type(other));
                return Err(fields.wrong("format", message));
            }
        };
        Ok(chat)
    }

    fn load(self, encoder: OllamaEncoder) -> Request {
        Request::Load {
            model: self.model,
            keep_alive: self.keep_alive,
            answer: Box::new(encoder),
        }
    }

    fn answer(self, prompt: Prompt, encoder: OllamaEncoder) -> Request {
        let job = Job {
            model: self.model,
            prompts: vec![prompt],
            choices: 1,
            spec: self.spec,
            stream: self.stream,
            keep_alive: self.keep_alive,
        };
        Request::Answer(Box::new((job, encoder)))
    }
}

/// Zero unloads the model after the answer; any other time is the server's to choose.
fn keep_alive(fields: &Fields<'_>) -> Result<KeepAlive> {
    let zero = match fields.get("keep_alive") {
        None => false,
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => matches!(text.as_str(), "0" | "0s" | "0m" | "0h"),
        Some(other) => {
            let message = format_args!("found {}, expected seconds or a time such as `5m`", json_type(other));
            return Err(fields.wrong("keep_alive", message));
        }
    };
    Ok(if zero { KeepAlive::Unload } else { KeepAlive::Default })
}

/// A text with the pictures of the field `images`, which come first.
fn with_images(fields: &Fields<'_>, text: &str) -> Result<Value> {
    let images = fields.list("images")?.unwrap_or_default();
    let mut said = content::Said::default();
    for (i, image) in images.iter().enumerate() {
        match image {
            Value::String(data) => said.picture(data),
            other => {
                let message = format!(
                    "`{}[{i}]`: found {}, expected a picture file as base64",
                    fields.path("images"),
                    json_type(other)
                );
                return Err(ApiError::field(fields.path("images"), message));
            }
        }
    }
    if said.is_empty() || !text.is_empty() {
        said.text(text);
    }
    Ok(said.content())
}

/// A tool, in the form of chat completions.
fn tool(entry: &Fields<'_>) -> Result<Value> {
    let function = entry.object("function")?;
    let function = function.ok_or_else(|| entry.missing("function", "an object"))?;
    function.required_text("name")?;
    function.text("description")?;
    function.object("parameters")?;
    Ok(Value::Object(function.map().clone()))
}

/// Messages with ids: Ollama's calls have none, and answers of tools name the tool.
fn messages(list: &[Value]) -> Result<Vec<Value>> {
    let mut messages = Vec::with_capacity(list.len());
    let mut unanswered: Vec<(String, String)> = Vec::new();
    let mut count = 0;
    for message in objects(list, "messages")? {
        let role = message.required_text("role")?;
        if !["system", "user", "assistant", "tool"].contains(&role) {
            let text = format_args!("found `{role}`, expected `system`, `user`, `assistant` or `tool`");
            return Err(message.wrong("role", text));
        }
        let mut to = Map::new();
        to.insert("role".to_owned(), Value::from(role));
        let said = with_images(&message, message.text("content")?.unwrap_or_default())?;
        to.insert("content".to_owned(), said);
        if let Some(thinking) = message.text("thinking")? {
            to.insert("reasoning_content".to_owned(), Value::from(thinking));
        }
        let mut calls = Vec::new();
        let list = message.list("tool_calls")?.unwrap_or_default();
        for call in objects(list, &message.path("tool_calls"))? {
            let function = call.object("function")?;
            let function = function.ok_or_else(|| call.missing("function", "an object"))?;
            let name = function.required_text("name")?;
            let arguments = super::openai::arguments(&function, "arguments")?;
            let id = format!("call{count:05}");
            count += 1;
            calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}));
            unanswered.push((id, name.to_owned()));
        }
        if !calls.is_empty() {
            to.insert("tool_calls".to_owned(), Value::from(calls));
        }
        if role == "tool" {
            let name = match message.any(&["tool_name", "name"]) {
                Some((field, _)) => message.text(field)?,
                None => None,
            };
            let same = unanswered
                .iter()
                .position(|(_, tool)| name.is_none_or(|name| name == tool));
            if let Some(index) = same {
                let (id, name) = unanswered.remove(index);
                to.insert("tool_call_id".to_owned(), Value::from(id));
                to.insert("name".to_owned(), Value::from(name));
            } else if let Some(name) = name {
                to.insert("name".to_owned(), Value::from(name));
            }
        }
        messages.push(Value::Object(to));
    }
    Ok(messages)
}
