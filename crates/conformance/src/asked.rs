//! What a step asks for, in the types of the Rust API.

use crate::failure::{Failure, Result};
use cactus::{ChatRequest, GenerateOptions, Grammar, LoadOptions, Model, Tool, ToolChoice};
use cactus_engine::chat::Chat;
use serde_json::{Map, Value};

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) chat: Chat,
    /// The conversation, where it is one.
    pub(crate) conversation: Option<Box<ChatRequest>>,
    pub(crate) options: GenerateOptions,
    pub(crate) handoff: Option<String>,
}

/// The fields of an object that a type of the Rust API has.
pub(crate) fn known<'v>(value: &'v Value, fields: &[&str]) -> Result<&'v Map<String, Value>> {
    let map = value
        .as_object()
        .ok_or_else(|| Failure::argument(format!("expected an object, found {value}")))?;
    match map.keys().find(|name| !fields.contains(&name.as_str())) {
        // The compiler says it of a field of a structure.
        Some(unknown) => Err(Failure::argument(format!("`{unknown}` is unknown"))),
        None => Ok(map),
    }
}

/// How a model is loaded.
pub(crate) fn load_options(options: &Value) -> Result<LoadOptions> {
    let mut load = LoadOptions::default();
    if options.is_null() {
        return Ok(load);
    }
    let map = known(options, &["context_tokens", "threads", "decode_threads", "offline"])?;
    let count = |name: &str| map.get(name).and_then(Value::as_u64).map(|n| n as usize);
    load.context_tokens = count("context_tokens").unwrap_or(load.context_tokens);
    (load.threads, load.decode_threads) = (count("threads"), count("decode_threads"));
    Ok(load)
}

impl Asked {
    /// Reads a request for `model`.
    pub(crate) fn read(model: &Model, request: &Value) -> Result<Asked> {
        let fields = [
            "messages",
            "prompt",
            "tokens",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
            "schema",
            "regex",
            "grammar",
            "handoff",
            "options",
        ];
        let map = known(request, &fields)?;
        let empty = Map::new();
        let given = map.get("options").and_then(Value::as_object).unwrap_or(&empty);
        let options = model.default_options().with_json(given);
        let options = options.map_err(cactus::Error::from)?;
        let format = format(map);
        let mut conversation = None;
        let chat = match (map.get("messages"), map.get("prompt"), map.get("tokens")) {
            (Some(Value::Array(messages)), None, None) => {
                let request = ChatRequest {
                    messages: messages.clone(),
                    tools: tools(map.get("tools"))?,
                    tool_choice: tool_choice(map.get("tool_choice")),
                    parallel_calls: map.get("parallel_tool_calls").is_none_or(|flag| flag == true),
                    format,
                    ..ChatRequest::default()
                };
                let chat = Chat::new(model, &request)?;
                conversation = Some(Box::new(request));
                chat
            }
            (None, Some(Value::String(prompt)), None) => Chat::of_text(model, prompt, format.as_ref())?,
            (None, None, Some(tokens)) => {
                let mut chat = Chat::of_text(model, "", format.as_ref())?;
                chat.prompt = ids(tokens);
                chat
            }
            _ => {
                return Err(Failure::argument(
                    "one of `messages`, `prompt` and `tokens` has to be given",
                ));
            }
        };
        Ok(Asked {
            chat,
            conversation,
            options,
            handoff: map.get("handoff").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

/// Token ids of an array.
pub(crate) fn ids(tokens: &Value) -> Vec<u32> {
    let tokens = tokens.as_array().into_iter().flatten();
    tokens.filter_map(Value::as_u64).map(|id| id as u32).collect()
}

fn tools(tools: Option<&Value>) -> Result<Vec<Tool>> {
    let tools = tools.and_then(Value::as_array).into_iter().flatten();
    tools
        .map(|tool| Tool::from_json(tool).map_err(|e| Failure::argument(e.to_string())))
        .collect()
}

fn tool_choice(choice: Option<&Value>) -> ToolChoice {
    match choice {
        Some(Value::String(word)) if word == "required" => ToolChoice::Required,
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(choice) if choice["function"]["name"].is_string() => {
            ToolChoice::Named(choice["function"]["name"].as_str().unwrap_or_default().to_owned())
        }
        _ => ToolChoice::Auto,
    }
}

fn format(map: &Map<String, Value>) -> Option<Grammar> {
    let text = |name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
    let in_format = map
        .get("response_format")
        .map(|format| &format["json_schema"]["schema"]);
    let schema = map.get("schema").or(in_format);
    schema
        .map(|schema| Grammar::json_schema(schema.clone()))
        .or(text("regex").map(Grammar::Regex))
        .or(text("grammar").map(Grammar::Lark))
}
