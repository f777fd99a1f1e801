//! What a request asks for, read from JSON.
//!
//! Purpose: from the fields that `docs/reference/c-abi.md` lists to what the engine takes. Unknown fields are errors, because a
//! field that is misspelled must not be ignored in silence. It deliberately decides nothing about what they mean.
//! The crate `protocol` is not used: its requests are those of servers (choices, streams, HTTP kinds of errors), and options here
//! have the engine's own names. What both need, reading tools and formats, is in the engine.

use crate::failure::{Failure, Result};
use crate::pictures;
use cactus_engine::chat::{Chat, ChatRequest, Tool, ToolChoice};
use cactus_engine::scheduler::Priority;
use cactus_engine::{GenerateOptions, Model};
use cactus_text::grammar::{Grammar, Spacing};
use cactus_text::json_type;
use serde_json::{Map, Value};

/// Every field of a request.
const FIELDS: [&str; 19] = [
    "messages",
    "prompt",
    "tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "most_tools",
    "response_format",
    "schema",
    "regex",
    "grammar",
    "reasoning",
    "continue_final",
    "template_variables",
    "priority",
    "handoff",
    "session",
    "user",
    "options",
];

/// Those that say something about a conversation.
const OF_MESSAGES: [&str; 7] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "most_tools",
    "reasoning",
    "continue_final",
    "template_variables",
];

/// A request that can be computed.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) chat: Chat,
    pub(crate) options: GenerateOptions,
    pub(crate) priority: Priority,
    pub(crate) routing: Routing,
}

/// What a request says to the policy of its model.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "nobody else answers"))]
pub(crate) struct Routing {
    /// The conversation, as a target would get it.
    pub(crate) conversation: Option<Box<ChatRequest>>,
    /// In place of the policy's.
    pub(crate) handoff: Option<Handoff>,
    /// Names the conversation to the budget.
    pub(crate) session: Option<String>,
    /// Names the user to the budget.
    pub(crate) user: Option<String>,
    /// Options of the public engine that change the policy for this request.
    pub(crate) options: Map<String, Value>,
    /// Nobody sees the answer before its end.
    pub(crate) whole: bool,
}

/// When a request is handed off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handoff {
    Auto,
    Never,
    Always,
}

impl Handoff {
    /// # Errors
    /// For another word.
    pub(crate) fn read(map: &Map<String, Value>, field: &str) -> Result<Option<Handoff>> {
        match text(map, field)? {
            None => Ok(None),
            Some("auto") => Ok(Some(Handoff::Auto)),
            Some("never") => Ok(Some(Handoff::Never)),
            Some("always") => Ok(Some(Handoff::Always)),
            Some(other) => Err(Failure::argument(format!(
                "`{field}`: expected auto, never or always, found `{other}`"
            ))),
        }
    }
}

fn wrong(field: &str, expected: &str, found: &Value) -> Failure {
    Failure::argument(format!("`{field}`: expected {expected}, found {}", json_type(found)))
}

fn flag(map: &Map<String, Value>, field: &str) -> Result<Option<bool>> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(*on)),
        Some(other) => Err(wrong(field, "true or false", other)),
    }
}

pub(crate) fn text<'m>(map: &'m Map<String, Value>, field: &str) -> Result<Option<&'m str>> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(field, "a string", other)),
    }
}

fn object(map: &Map<String, Value>, field: &str) -> Result<Map<String, Value>> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(other) => Err(wrong(field, "an object", other)),
    }
}

pub(crate) fn list(map: &Map<String, Value>, field: &str) -> Result<Option<Vec<Value>>> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(wrong(field, "an array", other)),
    }
}

/// Tools as the OpenAI API has them.
pub(crate) fn tools(items: &[Value]) -> Result<Vec<Tool>> {
    let each = items.iter().enumerate();
    let read = |(i, tool)| Tool::from_json(tool).map_err(|e| Failure::argument(format!("`tools[{i}]`: {e}")));
    each.map(read).collect()
}

pub(crate) fn tool_choice(value: Option<&Value>) -> Result<ToolChoice> {
    let expected = "\"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}";
    match value {
        None | Some(Value::Null) => Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            other => Err(Failure::argument(format!(
                "`tool_choice`: expected {expected}, found `{other}`"
            ))),
        },
        Some(value) => match value["function"]["name"].as_str() {
            Some(name) => Ok(ToolChoice::Named(name.to_owned())),
            None => Err(wrong("tool_choice", expected, value)),
        },
    }
}

/// What the answer has to follow, by whichever of its fields is there.
fn format(map: &Map<String, Value>) -> Result<Option<Grammar>> {
    let spacing = Spacing::default;
    let mut found = Vec::new();
    match map.get("schema") {
        None | Some(Value::Null) => {}
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => found.push(Grammar::json_schema(schema.clone())),
        Some(other) => return Err(wrong("schema", "a JSON Schema", other)),
    }
    found.extend(text(map, "regex")?.map(|text| Grammar::Regex(text.to_owned())));
    found.extend(text(map, "grammar")?.map(|text| Grammar::Lark(text.to_owned())));
    let response_format = object(map, "response_format")?;
    match text(&response_format, "type")? {
        None | Some("text") => {}
        Some("json_object") => found.push(Grammar::JsonObject { spacing: spacing() }),
        Some("json_schema") => match &response_format.get("json_schema").unwrap_or(&Value::Null)["schema"] {
            schema @ (Value::Object(_) | Value::Bool(_)) => found.push(Grammar::json_schema(schema.clone())),
            other => return Err(wrong("response_format.json_schema.schema", "a JSON Schema", other)),
        },
        Some(other) => {
            let what = format!("`response_format.type`: expected text, json_object or json_schema, found `{other}`");
            return Err(Failure::argument(what));
        }
    }
    if found.len() > 1 {
        let what = "at most one of `schema`, `regex`, `grammar` and `response_format` can be given";
        return Err(Failure::argument(what));
    }
    Ok(found.pop())
}

impl Asked {
    /// Reads `map` for `model`.
    ///
    /// # Errors
    /// That name the field, and those of [`Chat::new`].
    pub(crate) fn read(model: &Model, map: &Map<String, Value>) -> Result<Asked> {
        if let Some(unknown) = map.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            let fields = FIELDS.join(", ");
            return Err(Failure::argument(format!(
                "`{unknown}`: unknown; a request has {fields}"
            )));
        }
        let options = model.default_options().with_json(&object(map, "options")?);
        let options = options.map_err(cactus_engine::Error::from)?;
        let priority = match text(map, "priority")? {
            None | Some("normal") => Priority::Normal,
            Some("low") => Priority::Low,
            Some("high") => Priority::High,
            Some(other) => {
                let what = format!("`priority`: expected low, normal or high, found `{other}`");
                return Err(Failure::argument(what));
            }
        };
        let given = (list(map, "messages")?, text(map, "prompt")?, list(map, "tokens")?);
        if given.0.is_none()
            && let Some(field) = OF_MESSAGES
                .iter()
                .find(|&&field| map.get(field).is_some_and(|v| !v.is_null()))
        {
            return Err(Failure::argument(format!(
                "`{field}`: it belongs to `messages`, which are not given"
            )));
        }
        let format = format(map)?;
        let mut routing = Routing {
            handoff: Handoff::read(map, "handoff")?,
            session: text(map, "session")?.map(str::to_owned),
            user: text(map, "user")?.map(str::to_owned),
            ..Routing::default()
        };
        let chat = match given {
            (Some(messages), None, None) => {
                pictures::check(&messages)?;
                let most_tools = match map.get("most_tools") {
                    None | Some(Value::Null) => None,
                    Some(value) => Some(value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
                        Failure::argument(format!("`most_tools`: expected a whole number from 0, found {value}"))
                    })?),
                };
                let request = ChatRequest {
                    messages,
                    pictures: Vec::new(),
                    sounds: Vec::new(),
                    films: Vec::new(),
                    tools: tools(&list(map, "tools")?.unwrap_or_default())?,
                    tool_choice: tool_choice(map.get("tool_choice"))?,
                    parallel_calls: flag(map, "parallel_tool_calls")?.unwrap_or(true),
                    format,
                    reasoning: flag(map, "reasoning")?,
                    template_variables: object(map, "template_variables")?,
                    most_tools,
                    tool_nearness: None,
                    continue_final: flag(map, "continue_final")?.unwrap_or(false),
                    salt: 0,
                    rolls: false,
                    cancel: cactus_engine::CancelToken::new(),
                };
                let chat = Chat::new(model, &request)?;
                routing.conversation = Some(Box::new(request));
                chat
            }
            (None, Some(prompt), None) => Chat::of_text(model, prompt, format.as_ref())?,
            (None, None, Some(tokens)) => {
                let each = tokens.iter().enumerate();
                let id = |(i, value): (usize, &Value)| {
                    let id = value.as_u64().filter(|&id| id < model.vocab_size() as u64);
                    let most = model.vocab_size() - 1;
                    id.map(|id| id as u32).ok_or_else(|| {
                        Failure::argument(format!(
                            "`tokens[{i}]`: expected a token id from 0 to {most}, found {value}"
                        ))
                    })
                };
                let prompt = each.map(id).collect::<Result<_>>()?;
                let mut chat = Chat::of_text(model, "", format.as_ref())?;
                chat.prompt = prompt;
                chat
            }
            _ => {
                let what = "exactly one of `messages`, `prompt` and `tokens` has to be given";
                return Err(Failure::argument(what));
            }
        };
        Ok(Asked {
            chat,
            options,
            priority,
            routing,
        })
    }
}
