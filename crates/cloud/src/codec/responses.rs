//! OpenAI's responses: the request.

mod answer;

pub(super) use answer::Answer;

use super::chat::word;
use super::json::{self, Object};
use crate::{Dialect, Effort, Format, Message, Part, Request, Result, Role, Target, Thinking, ToolChoice};
use serde_json::{Value, json};

pub(super) fn encode(target: &Target, request: &Request, notes: &mut Vec<String>) -> Result<Object> {
    let can = &target.capabilities;
    let mut body = Object::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("model", target.model.clone().into());
    let first = request.messages.iter().take_while(|m| m.role == Role::System).count();
    let (system, rest) = request.messages.split_at(first);
    if !system.is_empty() {
        let texts: Vec<_> = system.iter().map(Message::joined_text).collect();
        put("instructions", texts.join("\n\n").into());
    }
    let mut input = Vec::new();
    for message in rest {
        add(target, message, &mut input)?;
    }
    put("input", input.into());
    put("max_output_tokens", request.max_output_tokens.into());
    put("stream", request.stream.into());
    // They are kept for 30 days where nothing is said.
    put("store", false.into());
    let reasons = target.dialect != Dialect::Compatible && request.effort != Some(Effort::None);
    if reasons {
        // What is not stored has to be sent back.
        put("include", json!(["reasoning.encrypted_content"]));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::Tool| {
            let mut out = json!({
                "type": "function", "name": tool.name, "parameters": tool.parameters, "strict": tool.strict,
            });
            if !tool.description.is_empty() {
                out["description"] = tool.description.clone().into();
            }
            out
        };
        put("tools", request.tools.iter().map(tool).collect());
        let choice = match &request.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({"type": "function", "name": name}),
        };
        put("tool_choice", choice);
        put("parallel_tool_calls", request.parallel_calls.into());
    }
    match &request.format {
        Format::Text => {}
        Format::JsonObject => {
            put("text", json!({"format": {"type": "json_object"}}));
        }
        Format::JsonSchema { name, schema, strict } => {
            let format = json!({"type": "json_schema", "name": name, "schema": schema, "strict": *strict && json::is_strict(schema)});
            put("text", json!({"format": format}));
        }
    }
    if let (Some(effort), Thinking::Effort { least }) = (request.effort, can.thinking) {
        put("reasoning", json!({"effort": word(effort.max(least))}));
    }
    // The protocol has no stop strings at all, whatever the target is said to take.
    if !request.stop.is_empty() {
        notes.push("`stop` was left out: the protocol has no stop strings".to_owned());
    }
    let names = [Some("temperature"), Some("top_p"), None, None];
    json::sampling(can, request, names, &mut body, notes);
    Ok(body)
}

fn add(target: &Target, message: &Message, out: &mut Vec<Value>) -> Result<()> {
    match message.role {
        Role::System => out.push(json!({"type": "message", "role": "developer", "content": message.joined_text()})),
        Role::User => {
            let content = message.parts.iter().map(part).collect::<Result<Value>>()?;
            out.push(json!({"type": "message", "role": "user", "content": content}));
        }
        Role::Assistant => {
            let issuer = target.issuer();
            for part in &message.parts {
                match part {
                    Part::Text(text) => out.push(json!({"type": "message", "role": "assistant", "content": text})),
                    Part::ToolCall(call) => out.push(json!({
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": json::arguments_text(call),
                    })),
                    Part::Reasoning(reasoning) => {
                        let opaque = reasoning.opaque.as_ref().filter(|o| o.issuer == issuer);
                        out.extend(opaque.map(|o| o.data.clone()));
                    }
                    _ => {}
                }
            }
        }
        Role::Tool => {
            for part in &message.parts {
                if let Part::ToolResult(r) = part {
                    out.push(json!({"type": "function_call_output", "call_id": r.call_id, "output": r.content}));
                }
            }
        }
    }
    Ok(())
}

fn part(part: &Part) -> Result<Value> {
    Ok(match part {
        Part::Image(image) => json!({"type": "input_image", "detail": "auto", "image_url": json::data_url(image)}),
        Part::Audio(audio) => {
            let inner = json!({"data": json::base64(audio), "format": json::audio_format(audio)?});
            json!({"type": "input_audio", "input_audio": inner})
        }
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        // `Request::check` lets nothing else into a user's message.
        _ => Value::Null,
    })
}
