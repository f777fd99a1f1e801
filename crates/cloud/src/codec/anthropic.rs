//! Anthropic's messages: the request.

mod answer;

pub(super) use answer::Answer;

use super::json::{self, Object};
use crate::{Dialect, Effort, Error, ErrorKind, Format, Media, Message, Part, Request, Result, Role, Target};
use crate::{Thinking, ToolChoice};
use serde_json::{Value, json};

/// The version of the protocol. Other servers know the first one, which takes options of sampling.
pub(super) fn version(target: &Target) -> &'static str {
    match target.dialect {
        Dialect::Vendor => "2026-10-21",
        _ => "2023-06-01",
    }
}

pub(super) fn encode(target: &Target, request: &Request, notes: &mut Vec<String>) -> Result<Object> {
    let can = &target.capabilities;
    let mut body = Object::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("model", target.model.clone().into());
    put("max_tokens", request.max_output_tokens.into());
    let (system, rest): (Vec<&Message>, Vec<&Message>) = request.messages.iter().partition(|m| m.role == Role::System);
    if !system.is_empty() {
        let block = |message: &&Message| json!({"type": "text", "text": message.joined_text()});
        put("system", system.iter().map(block).collect());
        if request.messages[..system.len()].iter().any(|m| m.role != Role::System) {
            notes.push("later messages of role system were moved to the beginning".to_owned());
        }
    }
    put("messages", turns(target, &rest)?.into());
    put("stream", request.stream.into());
    if !request.tools.is_empty() {
        let tool = |tool: &crate::Tool| {
            let mut out = json!({"name": tool.name, "input_schema": tool.parameters});
            if !tool.description.is_empty() {
                out["description"] = tool.description.clone().into();
            }
            if tool.strict {
                out["strict"] = true.into();
            }
            out
        };
        put("tools", request.tools.iter().map(tool).collect());
        let mut choice = match &request.tool_choice {
            ToolChoice::Auto => json!({"type": "auto"}),
            ToolChoice::None => json!({"type": "none"}),
            ToolChoice::Required => json!({"type": "any"}),
            ToolChoice::Named(name) => json!({"type": "tool", "name": name}),
        };
        if !request.parallel_calls && request.tool_choice != ToolChoice::None {
            choice["disable_parallel_tool_use"] = true.into();
        }
        put("tool_choice", choice);
    }
    let mut config = Object::new();
    if let Format::JsonSchema { schema, .. } = &request.format {
        config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }
    if let (Some(effort), Thinking::Effort { least }) = (request.effort, can.thinking) {
        let level = match effort.max(least) {
            Effort::None => None,
            Effort::Low => Some("low"),
            Effort::Medium => Some("medium"),
            Effort::High => Some("high"),
        };
        let thinking = if level.is_some() { "adaptive" } else { "disabled" };
        put("thinking", json!({"type": thinking}));
        if let Some(level) = level {
            config.insert("effort".to_owned(), level.into());
        }
    }
    if !config.is_empty() {
        put("output_config", config.into());
    }
    if let Some(stop) = json::stop(can, request, notes) {
        put("stop_sequences", stop);
    }
    let names = [Some("temperature"), Some("top_p"), Some("top_k"), None];
    json::sampling(can, request, names, &mut body, notes);
    Ok(body)
}

/// Turns alternate between user and assistant: neighbours of one role are joined, and results of tools are the user's.
fn turns(target: &Target, messages: &[&Message]) -> Result<Vec<Value>> {
    let issuer = target.issuer();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let role = match message.role {
            Role::Assistant => "assistant",
            _ => "user",
        };
        let mut blocks = Vec::new();
        for part in &message.parts {
            let block = match part {
                // Empty texts are refused.
                Part::Text(text) if text.is_empty() => continue,
                Part::Text(text) => json!({"type": "text", "text": text}),
                Part::Image(image) => {
                    let source =
                        json!({"type": "base64", "media_type": image_type(image)?, "data": json::base64(image)});
                    json!({"type": "image", "source": source})
                }
                Part::Audio(_) => {
                    let message = "Anthropic's protocol has no audio";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                Part::ToolCall(call) => {
                    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": json::arguments(call)?})
                }
                Part::ToolResult(result) => {
                    let mut block =
                        json!({"type": "tool_result", "tool_use_id": result.call_id, "content": result.content});
                    if result.is_error {
                        block["is_error"] = true.into();
                    }
                    block
                }
                Part::Reasoning(reasoning) => match &reasoning.opaque {
                    Some(opaque) if opaque.issuer == issuer => opaque.data.clone(),
                    _ => continue,
                },
            };
            blocks.push(block);
        }
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    // A turn of nothing is refused; one can be left where another issuer's reasoning was all of it.
    let turns = turns.into_iter().filter(|(_, blocks)| !blocks.is_empty());
    Ok(turns
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect())
}

fn image_type(image: &Media) -> Result<&str> {
    match image.mime.as_str() {
        known @ ("image/jpeg" | "image/png" | "image/gif" | "image/webp") => Ok(known),
        other => {
            let message = format!("images of type `{other}` cannot be sent; expected JPEG, PNG, GIF or WebP");
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}
