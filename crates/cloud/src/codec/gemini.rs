//! Gemini's `generateContent`: the request.

mod answer;

pub(super) use answer::Answer;

use super::json::{self, Object};
use crate::{Effort, Error, ErrorKind, Format, Message, Part, Request, Result, Role, Target, Thinking, ToolChoice};
use serde_json::{Value, json};

/// The path of a model. Its name becomes part of the address, so it may not be one.
pub(super) fn path(model: &str, stream: bool) -> Result<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if model.is_empty() || !model.bytes().all(plain) || model.bytes().all(|b| b == b'.') {
        let message = format!("the model `{model}` has letters that cannot stand in an address");
        return Err(Error::new(ErrorKind::InvalidTarget, message));
    }
    Ok(match stream {
        true => format!("/models/{model}:streamGenerateContent?alt=sse"),
        false => format!("/models/{model}:generateContent"),
    })
}

pub(super) fn encode(target: &Target, request: &Request, notes: &mut Vec<String>) -> Result<Object> {
    let can = &target.capabilities;
    let mut body = Object::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    let (system, rest): (Vec<&Message>, Vec<&Message>) = request.messages.iter().partition(|m| m.role == Role::System);
    if !system.is_empty() {
        let part = |message: &&Message| json!({"text": message.joined_text()});
        put(
            "systemInstruction",
            json!({"parts": system.iter().map(part).collect::<Value>()}),
        );
        if request.messages[..system.len()].iter().any(|m| m.role != Role::System) {
            notes.push("later messages of role system were moved to the beginning".to_owned());
        }
    }
    put("contents", contents(target, &rest)?.into());
    if !request.tools.is_empty() {
        let tool = |tool: &crate::Tool| {
            let mut out = json!({"name": tool.name, "parametersJsonSchema": tool.parameters});
            if !tool.description.is_empty() {
                out["description"] = tool.description.clone().into();
            }
            out
        };
        let declarations: Value = request.tools.iter().map(tool).collect();
        put("tools", json!([{"functionDeclarations": declarations}]));
        let strict = request.tools.iter().all(|tool| tool.strict);
        let config = match &request.tool_choice {
            ToolChoice::Auto if strict => json!({"mode": "VALIDATED"}),
            ToolChoice::Auto => json!({"mode": "AUTO"}),
            ToolChoice::None => json!({"mode": "NONE"}),
            ToolChoice::Required => json!({"mode": "ANY"}),
            ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
        };
        put("toolConfig", json!({"functionCallingConfig": config}));
        if !request.parallel_calls {
            notes.push("several calls in one answer cannot be forbidden: the protocol has no such option".to_owned());
        }
    }
    let mut config = Object::new();
    config.insert("maxOutputTokens".to_owned(), request.max_output_tokens.into());
    match &request.format {
        Format::Text => {}
        Format::JsonObject => {
            config.insert("responseMimeType".to_owned(), "application/json".into());
        }
        Format::JsonSchema { schema, .. } => {
            config.insert("responseMimeType".to_owned(), "application/json".into());
            config.insert("responseJsonSchema".to_owned(), schema.clone());
        }
    }
    if let (Some(effort), Thinking::Effort { least }) = (request.effort, can.thinking) {
        let level = match effort.max(least) {
            Effort::None => "MINIMAL",
            Effort::Low => "LOW",
            Effort::Medium => "MEDIUM",
            Effort::High => "HIGH",
        };
        config.insert("thinkingConfig".to_owned(), json!({"thinkingLevel": level}));
    }
    if let Some(stop) = json::stop(can, request, notes) {
        config.insert("stopSequences".to_owned(), stop);
    }
    let names = [Some("temperature"), Some("topP"), Some("topK"), Some("seed")];
    json::sampling(can, request, names, &mut config, notes);
    put("generationConfig", config.into());
    Ok(body)
}

fn contents(target: &Target, messages: &[&Message]) -> Result<Vec<Value>> {
    let issuer = target.issuer();
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let role = match message.role {
            Role::Assistant => "model",
            _ => "user",
        };
        let mut parts = Vec::new();
        for part in &message.parts {
            parts.push(match part {
                Part::Text(text) => json!({"text": text}),
                Part::Image(media) | Part::Audio(media) => {
                    json!({"inlineData": {"mimeType": media.mime, "data": json::base64(media)}})
                }
                Part::ToolCall(call) => {
                    let inner = json!({"id": call.id, "name": call.name, "args": json::arguments(call)?});
                    let mut part = json!({"functionCall": inner});
                    if let Some(opaque) = call.opaque.as_ref().filter(|o| o.issuer == issuer) {
                        part["thoughtSignature"] = opaque.data.clone();
                    }
                    part
                }
                Part::ToolResult(result) => {
                    let key = if result.is_error { "error" } else { "output" };
                    let response = json!({key: result.content});
                    json!({"functionResponse": {"id": result.call_id, "name": result.name, "response": response}})
                }
                Part::Reasoning(reasoning) => match &reasoning.opaque {
                    // A signature of a text comes behind it, as it does in a stream.
                    Some(opaque) if opaque.issuer == issuer => json!({"text": "", "thoughtSignature": opaque.data}),
                    _ => continue,
                },
            });
        }
        match contents.last_mut() {
            Some((last, all)) if *last == role => all.extend(parts),
            _ => contents.push((role, parts)),
        }
    }
    let contents = contents.into_iter().filter(|(_, parts)| !parts.is_empty());
    Ok(contents
        .map(|(role, parts)| json!({"role": role, "parts": parts}))
        .collect())
}
