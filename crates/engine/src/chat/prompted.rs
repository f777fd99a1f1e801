//! Tools for models whose template has no place for them, told of in words.
//!
//! The convention is that of Hermes and Qwen, which models have seen most: the tools as lines of JSON in the system message, a
//! call as JSON between `<tool_call>` and `</tool_call>`, its result between `<tool_response>` and `</tool_response>` in a
//! message of the user. Where a constraint holds the calls, the model has only to choose one.

use crate::Result;
use cactus_text::message;
use cactus_text::tools::{CallFormat, Tool, ToolCall};
use serde_json::{Value, json};

/// The markers that are written here.
pub(super) const MARKERS: &str = "<tools></tools><tool_call></tool_call><tool_response></tool_response>";

/// The messages with `tools` told of, and with calls and results as text.
pub(super) fn rewritten(messages: Vec<Value>, tools: &[Value], format: CallFormat) -> Result<Vec<Value>> {
    let mut out: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    if !tools.is_empty() {
        out.push(message("system", &told(tools)));
    }
    for mut message in messages {
        match message["role"].as_str() {
            Some("system" | "developer") if out.len() == 1 && !tools.is_empty() => {
                let own = message["content"].as_str().unwrap_or_default();
                let told = out[0]["content"].as_str().unwrap_or_default();
                let both = format!("{own}\n\n{told}");
                out[0]["content"] = Value::from(both);
                continue;
            }
            Some("assistant") => write_calls(&mut message, format)?,
            Some("tool") => {
                let result = message["content"].as_str().unwrap_or_default();
                message = cactus_text::message("user", &format!("<tool_response>\n{result}\n</tool_response>"));
            }
            _ => {}
        }
        // Templates insist on turns that alternate, and results are turns of the user here.
        match out.last_mut() {
            Some(last) if last["role"] == "user" && message["role"] == "user" => {
                let text = message["content"].as_str().unwrap_or_default();
                let before = last["content"].as_str().unwrap_or_default();
                let both = format!("{before}\n{text}");
                last["content"] = Value::from(both);
            }
            _ => out.push(message),
        }
    }
    Ok(out)
}

fn told(tools: &[Value]) -> String {
    let lines: Vec<String> = tools.iter().map(|tool| tool["function"].to_string()).collect();
    format!(
        "You can call these functions. Each line describes one, with a JSON Schema of its arguments:\n<tools>\n{}\n</tools>\n\
         If a function helps to answer, write only the call, as JSON with its name and arguments:\n<tool_call>\n{{\"name\": \
         \"function\", \"arguments\": {{\"argument\": \"value\"}}}}\n</tool_call>\nIts result comes between <tool_response> and \
         </tool_response>. If none helps, answer in words.",
        lines.join("\n")
    )
}

fn write_calls(message: &mut Value, format: CallFormat) -> Result<()> {
    let Some(fields) = message.as_object_mut() else {
        return Ok(());
    };
    let Some(Value::Array(calls)) = fields.shift_remove("tool_calls") else {
        return Ok(());
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let calls: Vec<ToolCall> = calls
        .iter()
        .map(|call| ToolCall {
            id: text(&call["id"]),
            name: text(&call["function"]["name"]),
            arguments: call["function"]["arguments"].to_string(),
        })
        .collect();
    if let Some(written) = format.write(&calls)?.filter(|_| !calls.is_empty()) {
        let before = fields.get("content").and_then(Value::as_str).unwrap_or_default();
        let between = if before.is_empty() { "" } else { "\n" };
        let content = format!("{before}{between}{written}");
        fields.insert("content".to_owned(), Value::from(content));
    }
    Ok(())
}

/// A tool as templates take it.
pub(super) fn tool_json(tool: &Tool) -> Value {
    json!({"type": "function", "function": {"name": tool.name, "description": tool.description,
        "parameters": tool.parameters}})
}
