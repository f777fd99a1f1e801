//! `POST /v1/messages` and `/v1/messages/count_tokens`: the request. The answer is in `answer`.

mod answer;

pub use answer::MessageEncoder;

use super::{ApiError, Fields, Job, KeepAlive, MAX_MESSAGES, Prompt, Result, Spec, content, json_type, objects, tools};
use cactus_engine::chat::ChatRequest;
use cactus_text::grammar::Grammar;
use cactus_text::tools::ToolChoice;
use serde_json::{Map, Value, json};

/// What Claude Code puts before its system prompt. It differs in every request, so that no two prompts would begin alike and
/// none would be found in the prefix cache. It says nothing to a model.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Reads a request.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn request(body: &Value) -> Result<(Job, MessageEncoder)> {
    let (mut job, fields) = count_request(body)?;
    if fields.get("max_tokens").is_none() {
        return Err(fields.missing("max_tokens", "a whole number from 1"));
    }
    let mut spec = Spec::default();
    for (name, option) in [
        ("max_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("stop_sequences", "stop"),
    ] {
        if let Some(value) = fields.get(name) {
            spec.set(&fields, name, option, value.clone())?;
        }
    }
    job.spec = spec;
    job.stream = fields.flag("stream")?.unwrap_or(false);
    Ok((job, MessageEncoder::new()))
}

/// Reads a request whose tokens are to be counted: one without a limit, and without anything about sampling.
///
/// # Errors
/// As [`request`].
pub fn count_request(body: &Value) -> Result<(Job, Fields<'_>)> {
    let fields = Fields::of_body(body)?;
    let mut chat = ChatRequest {
        messages: messages(&fields)?,
        tools: tools::tools(&fields, |entry| tool(entry).map(Some))?,
        ..ChatRequest::default()
    };
    if let Some(choice) = fields.object("tool_choice")? {
        chat.tool_choice = match choice.required_text("type")? {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" => ToolChoice::Named(choice.required_text("name")?.to_owned()),
            other => {
                let message = format_args!("found `{other}`, expected `auto`, `any`, `tool` or `none`");
                return Err(choice.wrong("type", message));
            }
        };
        chat.parallel_calls = !choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    }
    tools::check_choice(&fields, &chat.tool_choice, &chat.tools)?;
    if let Some(thinking) = fields.object("thinking")? {
        chat.reasoning = match thinking.required_text("type")? {
            "enabled" => Some(true),
            "disabled" => Some(false),
            "adaptive" => None,
            other => {
                let message = format_args!("found `{other}`, expected `enabled`, `disabled` or `adaptive`");
                return Err(thinking.wrong("type", message));
            }
        };
    }
    if let Some(config) = fields.object("output_config")? {
        if let Some(effort) = config.text("effort")? {
            chat.template_variables
                .insert("reasoning_effort".to_owned(), Value::from(effort));
        }
        chat.format = format(&config, "format")?;
    }
    if chat.format.is_none() {
        chat.format = format(&fields, "output_format")?;
    }
    let job = Job {
        model: fields.text("model")?.unwrap_or_default().to_owned(),
        prompts: vec![Prompt::Chat(Box::new(chat))],
        choices: 1,
        spec: Spec::default(),
        stream: false,
        keep_alive: KeepAlive::Default,
    };
    Ok((job, fields))
}

fn format(fields: &Fields<'_>, name: &str) -> Result<Option<Grammar>> {
    let Some(format) = fields.object(name)? else {
        return Ok(None);
    };
    match format.required_text("type")? {
        "json_schema" => tools::schema(&format, "schema").map(Some),
        "text" => Ok(None),
        other => Err(format.wrong("type", format_args!("found `{other}`, expected `json_schema`"))),
    }
}

/// A tool with an `input_schema`.
fn tool(entry: &Fields<'_>) -> Result<Value> {
    if let Some(kind) = entry.text("type")?
        && kind != "custom"
    {
        let message = format_args!("this server has no tools of type `{kind}`; expected `custom`, or none");
        return Err(entry.wrong("type", message));
    }
    let name = entry.required_text("name")?;
    let mut tool = Map::new();
    tool.insert("name".to_owned(), Value::from(name));
    if let Some(description) = entry.text("description")? {
        tool.insert("description".to_owned(), Value::from(description));
    }
    let schema = entry.object("input_schema")?;
    let schema = schema.ok_or_else(|| entry.missing("input_schema", "a JSON Schema"))?;
    tool.insert("parameters".to_owned(), Value::Object(schema.map().clone()));
    if let Some(strict) = entry.flag("strict")? {
        tool.insert("strict".to_owned(), Value::Bool(strict));
    }
    Ok(Value::Object(tool))
}

/// The system prompt, without Claude Code's header.
fn system(fields: &Fields<'_>) -> Result<Option<String>> {
    let text = match fields.get("system") {
        None => return Ok(None),
        Some(Value::String(text)) => match text.strip_prefix(BILLING_HEADER) {
            Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest).to_owned(),
            None => text.clone(),
        },
        Some(Value::Array(blocks)) => {
            let mut texts = Vec::new();
            for block in objects(blocks, "system")? {
                let text = content::text_part(&block, &["text"])?;
                if !text.starts_with(BILLING_HEADER) {
                    texts.push(text);
                }
            }
            texts.join("\n")
        }
        Some(other) => {
            let message = format_args!("found {}, expected text or a list of blocks", json_type(other));
            return Err(fields.wrong("system", message));
        }
    };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn messages(fields: &Fields<'_>) -> Result<Vec<Value>> {
    let list = fields.list("messages")?;
    let list = list.ok_or_else(|| fields.missing("messages", "a list of messages"))?;
    if list.is_empty() || list.len() > MAX_MESSAGES {
        let message = format_args!("found {} messages, expected 1 to {MAX_MESSAGES}", list.len());
        return Err(fields.wrong("messages", message));
    }
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(system) = system(fields)? {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in objects(list, "messages")? {
        match message.required_text("role")? {
            role @ ("user" | "system") => user(&message, role, &mut messages)?,
            "assistant" => messages.push(assistant(&message)?),
            other => {
                let text = format_args!("found `{other}`, expected `user` or `assistant`");
                return Err(message.wrong("role", text));
            }
        }
    }
    Ok(messages)
}

/// The blocks of a message's content; text is one block.
fn blocks<'a>(message: &Fields<'a>) -> Result<std::result::Result<&'a str, Vec<Fields<'a>>>> {
    match message.get("content") {
        Some(Value::String(text)) => Ok(Ok(text)),
        Some(Value::Array(list)) => Ok(Err(objects(list, &message.path("content"))?)),
        Some(other) => {
            let text = format_args!("found {}, expected text or a list of blocks", json_type(other));
            Err(message.wrong("content", text))
        }
        None => Err(message.missing("content", "text or a list of blocks")),
    }
}

/// A turn of the user: results of tools become messages of their own.
fn user(message: &Fields<'_>, role: &str, messages: &mut Vec<Value>) -> Result<()> {
    let blocks = match blocks(message)? {
        Ok(text) => {
            messages.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        Err(blocks) => blocks,
    };
    let mut said = content::Said::default();
    for block in blocks {
        if block.required_text("type")? == "tool_result" {
            let id = block.required_text("tool_use_id")?;
            let result = content::said(&block, "content", &["text"])?.unwrap_or_default();
            let result = match (block.flag("is_error")?.unwrap_or(false), result) {
                (true, Value::String(text)) => Value::from(format!("Error: {text}")),
                (true, Value::Array(mut parts)) => {
                    parts.insert(0, json!({"type": "text", "text": "Error: "}));
                    Value::from(parts)
                }
                (true, Value::Null) => Value::from("Error: "),
                (_, Value::Null) => Value::from(""),
                (_, result) => result,
            };
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        } else {
            said.add(&block, &["text"])?;
        }
    }
    if !said.is_empty() {
        messages.push(json!({"role": role, "content": said.content()}));
    }
    Ok(())
}

fn assistant(message: &Fields<'_>) -> Result<Value> {
    let blocks = match blocks(message)? {
        Ok(text) => return Ok(json!({"role": "assistant", "content": text})),
        Err(blocks) => blocks,
    };
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block.required_text("type")? {
            "thinking" => thoughts.push(block.required_text("thinking")?),
            "redacted_thinking" => {}
            "tool_use" => {
                let input = block.object("input")?;
                let input = input.ok_or_else(|| block.missing("input", "an object"))?;
                calls.push(json!({
                    "id": block.required_text("id")?,
                    "type": "function",
                    "function": {
                        "name": block.required_text("name")?,
                        "arguments": Value::Object(input.map().clone()).to_string(),
                    },
                }));
            }
            _ => texts.push(content::text_part(&block, &["text"])?),
        }
    }
    let mut to = json!({"role": "assistant", "content": null});
    if !texts.is_empty() {
        to["content"] = Value::from(texts.join("\n"));
    }
    if !thoughts.is_empty() {
        to["reasoning_content"] = Value::from(thoughts.join("\n"));
    }
    if !calls.is_empty() {
        to["tool_calls"] = Value::from(calls);
    }
    Ok(to)
}

/// What `/v1/messages/count_tokens` answers.
#[must_use]
pub fn count_answer(tokens: usize) -> Value {
    json!({"input_tokens": tokens})
}

/// What `/v1/models` answers to a client of this API.
#[must_use]
pub fn error(error: &ApiError) -> Value {
    error.anthropic()
}
