//! OpenAI's chat completions, and what DeepSeek, OpenRouter and everybody else made of them: the request.

mod answer;

pub(super) use answer::Answer;

use super::json::{self, Object};
use crate::{Dialect, Effort, Format, Message, Part, Request, Result, Role, Target, Thinking, ToolChoice};
use serde_json::{Value, json};

pub(super) fn encode(target: &Target, request: &Request, notes: &mut Vec<String>) -> Result<Object> {
    let can = &target.capabilities;
    let dialect = target.dialect;
    let mut body = Object::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("model", target.model.clone().into());
    let mut messages = Vec::new();
    for message in &request.messages {
        add(target, message, &mut messages)?;
    }
    put("messages", messages.into());
    let limit = match dialect {
        Dialect::Vendor => "max_completion_tokens",
        _ => "max_tokens",
    };
    put(limit, request.max_output_tokens.into());
    put("stream", request.stream.into());
    if request.stream {
        put("stream_options", json!({"include_usage": true}));
    }
    if dialect == Dialect::Vendor {
        put("store", false.into());
    }
    if dialect == Dialect::OpenRouter {
        put("provider", json!({"data_collection": "deny"}));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::Tool| {
            let mut function = json!({"name": tool.name, "parameters": tool.parameters});
            if !tool.description.is_empty() {
                function["description"] = tool.description.clone().into();
            }
            if tool.strict {
                function["strict"] = true.into();
            }
            json!({"type": "function", "function": function})
        };
        put("tools", request.tools.iter().map(tool).collect());
        let choice = match &request.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
        };
        put("tool_choice", choice);
        if !request.parallel_calls {
            put("parallel_tool_calls", false.into());
        }
    }
    match &request.format {
        Format::Text => {}
        Format::JsonObject => {
            put("response_format", json!({"type": "json_object"}));
        }
        Format::JsonSchema { name, schema, strict } => {
            let inner = json!({"name": name, "schema": schema, "strict": *strict && json::is_strict(schema)});
            put("response_format", json!({"type": "json_schema", "json_schema": inner}));
        }
    }
    if let (Some(effort), Thinking::Effort { least }) = (request.effort, can.thinking) {
        let word = word(effort.max(least));
        match dialect {
            Dialect::DeepSeek if effort == Effort::None => put("thinking", json!({"type": "disabled"})),
            Dialect::DeepSeek => put("thinking", json!({"type": "enabled"})),
            Dialect::OpenRouter => put("reasoning", json!({"effort": word})),
            _ => put("reasoning_effort", word.into()),
        };
    }
    if let Some(stop) = json::stop(can, request, notes) {
        put("stop", stop);
    }
    let names = [Some("temperature"), Some("top_p"), Some("top_k"), Some("seed")];
    json::sampling(can, request, names, &mut body, notes);
    Ok(body)
}

/// The word for an effort, in both of OpenAI's protocols.
pub(super) fn word(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "none",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

fn add(target: &Target, message: &Message, out: &mut Vec<Value>) -> Result<()> {
    match message.role {
        Role::System => {
            let role = match target.dialect {
                Dialect::Vendor => "developer",
                _ => "system",
            };
            out.push(json!({"role": role, "content": message.joined_text()}));
        }
        Role::User => {
            let only_text = message.parts.iter().all(|p| matches!(p, Part::Text(_)));
            let content = if only_text {
                message.joined_text().into()
            } else {
                message.parts.iter().map(part).collect::<Result<Value>>()?
            };
            out.push(json!({"role": "user", "content": content}));
        }
        Role::Assistant => out.push(assistant(target, message)),
        Role::Tool => {
            let results = message.parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(result),
                _ => None,
            });
            let messages = results.map(|r| json!({"role": "tool", "tool_call_id": r.call_id, "content": r.content}));
            out.extend(messages);
        }
    }
    Ok(())
}

fn part(part: &Part) -> Result<Value> {
    Ok(match part {
        Part::Image(image) => json!({"type": "image_url", "image_url": {"url": json::data_url(image)}}),
        Part::Audio(audio) => {
            let inner = json!({"data": json::base64(audio), "format": json::audio_format(audio)?});
            json!({"type": "input_audio", "input_audio": inner})
        }
        Part::Text(text) => json!({"type": "text", "text": text}),
        // `Request::check` lets nothing else into a user's message.
        _ => Value::Null,
    })
}

fn assistant(target: &Target, message: &Message) -> Value {
    let text = message.joined_text();
    let issuer = target.issuer();
    let mut out = json!({"role": "assistant"});
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => {
                let function = json!({"name": call.name, "arguments": json::arguments_text(call)});
                calls.push(json!({"id": call.id, "type": "function", "function": function}));
            }
            Part::Reasoning(reasoning) => {
                let Some(opaque) = reasoning.opaque.as_ref().filter(|o| o.issuer == issuer) else {
                    continue;
                };
                // The fields that this issuer sent, as it sent them.
                for (name, value) in opaque.data.as_object().into_iter().flatten() {
                    out[name] = value.clone();
                }
            }
            _ => {}
        }
    }
    out["content"] = match text.is_empty() && !calls.is_empty() {
        true => Value::Null,
        false => text.into(),
    };
    if !calls.is_empty() {
        out["tool_calls"] = calls.into();
    }
    out
}
