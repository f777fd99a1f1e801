//! What a well-formed stream of each API is.
//!
//! Each function reads a whole stream as its strictest client does and gives the answer that the client would have in the
//! end, or says what is wrong. Tests compare that answer with the one of a client that does not stream.

use super::Frame;
use super::openai::audio;
use serde_json::{Map, Value, json};

type Checked = std::result::Result<Value, String>;

fn parse(frame: &Frame) -> Checked {
    if frame.data.contains('\n') {
        return Err(format!("a frame has several lines: {}", frame.data));
    }
    serde_json::from_str(&frame.data).map_err(|e| format!("a frame is no JSON ({e}): {}", frame.data))
}

fn check(holds: bool, what: &str, data: &Value) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what}: {data}")),
    }
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{what} is no text: {value}"))
}

fn append(to: &mut Value, more: &str) {
    let before = to.as_str().unwrap_or_default();
    *to = Value::from(format!("{before}{more}"));
}

/// A stream of chat completion chunks; gives the list of choices.
///
/// # Errors
/// What is wrong.
pub fn chat(frames: &[Frame]) -> Checked {
    let (last, frames) = frames.split_last().ok_or("the stream is empty")?;
    check(
        last.data == "[DONE]" && last.name.is_none(),
        "does not end with [DONE]",
        &json!(last.data),
    )?;
    let mut head: Option<(Value, Value, Value)> = None;
    let mut choices: Vec<Value> = Vec::new();
    let mut usage_seen = false;
    for frame in frames {
        let chunk = parse(frame)?;
        check(!usage_seen, "something follows the usage", &chunk)?;
        check(chunk["object"] == "chat.completion.chunk", "has another object", &chunk)?;
        let this = (chunk["id"].clone(), chunk["created"].clone(), chunk["model"].clone());
        check(
            this.0.is_string() && this.1.is_u64() && this.2.is_string(),
            "has no id, time or model",
            &chunk,
        )?;
        check(
            *head.get_or_insert_with(|| this.clone()) == this,
            "id, time or model changed",
            &chunk,
        )?;
        let list = chunk["choices"].as_array().ok_or("a chunk has no list of choices")?;
        if list.is_empty() {
            check(
                choices.iter().all(|c| !c["finish_reason"].is_null()),
                "usage before the end",
                &chunk,
            )?;
            usage_seen = true;
        }
        for choice in list {
            let index = choice["index"].as_u64().ok_or("a choice has no index")? as usize;
            let delta = choice["delta"].as_object().ok_or("a choice has no delta")?;
            if delta.contains_key("role") {
                check(index == choices.len(), "roles are not in order", &chunk)?;
                check(delta["role"] == "assistant", "another role", &chunk)?;
                choices.push(
                    json!({"index": index, "content": "", "reasoning_content": "", "tool_calls": [],
                    "logprobs": [], "finish_reason": null}),
                );
            }
            let whole = choices.get_mut(index).ok_or("a choice has no role yet")?;
            check(
                whole["finish_reason"].is_null(),
                "something follows the finish reason",
                &chunk,
            )?;
            for name in ["content", "reasoning_content"] {
                if let Some(more) = delta.get(name) {
                    append(&mut whole[name], text(more, name)?);
                }
            }
            for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                chat_call(&mut whole["tool_calls"], call)?;
            }
            for token in choice["logprobs"]["content"].as_array().into_iter().flatten() {
                check(
                    token["logprob"].is_f64() && token["bytes"].is_array(),
                    "a bad logprob",
                    token,
                )?;
                whole["logprobs"].as_array_mut().ok_or("")?.push(token.clone());
            }
            whole["finish_reason"] = choice["finish_reason"].clone();
        }
    }
    for choice in &choices {
        check(choice["finish_reason"].is_string(), "no finish reason", choice)?;
        for call in choice["tool_calls"].as_array().into_iter().flatten() {
            let whole =
                serde_json::from_str::<Map<String, Value>>(call["function"]["arguments"].as_str().unwrap_or(""));
            check(
                whole.is_ok() || choice["finish_reason"] == "length",
                "arguments are no object",
                call,
            )?;
        }
    }
    Ok(Value::from(choices))
}

fn chat_call(calls: &mut Value, call: &Value) -> Result<(), String> {
    let calls = calls.as_array_mut().ok_or("no list of calls")?;
    let index = call["index"].as_u64().ok_or("a call has no index")? as usize;
    let arguments = text(&call["function"]["arguments"], "arguments")?;
    if index == calls.len() {
        check(
            call["id"].as_str().is_some_and(|id| !id.is_empty()),
            "a call has no id",
            call,
        )?;
        check(call["type"] == "function", "a call has no type", call)?;
        text(&call["function"]["name"], "a name")?;
        let mut first = call.clone();
        first.as_object_mut().ok_or("")?.shift_remove("index");
        calls.push(first);
        return Ok(());
    }
    check(index + 1 == calls.len(), "calls are mixed or not dense", call)?;
    check(
        call.get("id").is_none() && call["function"].get("name").is_none(),
        "a name or id is repeated",
        call,
    )?;
    append(&mut calls[index]["function"]["arguments"], arguments);
    Ok(())
}

/// A stream of completions; gives the list of texts.
///
/// # Errors
/// What is wrong.
pub fn completions(frames: &[Frame]) -> Checked {
    let (last, frames) = frames.split_last().ok_or("the stream is empty")?;
    check(last.data == "[DONE]", "does not end with [DONE]", &json!(last.data))?;
    let mut texts: std::collections::BTreeMap<u64, (String, bool)> = Default::default();
    for frame in frames {
        let chunk = parse(frame)?;
        check(chunk["object"] == "text_completion", "has another object", &chunk)?;
        for choice in chunk["choices"].as_array().ok_or("a chunk has no list of choices")? {
            let index = choice["index"].as_u64().ok_or("a choice has no index")?;
            let (all, ended) = texts.entry(index).or_default();
            check(!*ended, "something follows the finish reason", &chunk)?;
            all.push_str(text(&choice["text"], "text")?);
            *ended = choice["finish_reason"].is_string();
        }
    }
    check(
        texts.values().all(|(_, ended)| *ended),
        "no finish reason",
        &json!(texts.len()),
    )?;
    Ok(texts.into_values().map(|(text, _)| text).collect())
}

/// A stream of a response; gives the response as its last event has it, after comparing it with the events before.
///
/// # Errors
/// What is wrong.
pub fn responses(frames: &[Frame]) -> Checked {
    let mut items: Vec<Value> = Vec::new();
    // Item, part.
    let mut open = (false, false);
    let mut annotations: Vec<Value> = Vec::new();
    let mut last = Value::Null;
    for (number, frame) in frames.iter().enumerate() {
        check(last.is_null(), "something follows the last event", &last)?;
        let data = parse(frame)?;
        let kind = text(&data["type"], "type")?;
        check(frame.name == Some(kind), "event and type differ", &data)?;
        check(
            data["sequence_number"].as_u64() == Some(number as u64),
            "sequence numbers have gaps",
            &data,
        )?;
        match number {
            0 => check(kind == "response.created", "does not begin with created", &data)?,
            1 => check(kind == "response.in_progress", "no in_progress", &data)?,
            _ => {}
        }
        if kind.starts_with("response.output_item") || data.get("item_id").is_some() {
            let index = data["output_index"].as_u64().ok_or("no output_index")? as usize;
            let expected = if kind == "response.output_item.added" {
                items.len()
            } else {
                items.len().wrapping_sub(1)
            };
            check(index == expected, "output_index is not the open item's", &data)?;
            if let Some(id) = data.get("item_id") {
                check(
                    open.0 && *id == items[index]["id"],
                    "item_id is not the open item's",
                    &data,
                )?;
            }
        }
        let part = |items: &mut [Value]| -> Result<(), String> {
            let field = items.last_mut().ok_or("no item")?;
            append(&mut field["seen"], text(&data["delta"], "delta")?);
            Ok(())
        };
        match kind {
            "response.created" | "response.in_progress" => {
                let response = &data["response"];
                let whole =
                    response["id"].is_string() && response["created_at"].is_u64() && response["model"].is_string();
                check(whole && response["output"] == json!([]), "created is not whole", &data)?;
            }
            "response.output_item.added" => {
                check(!open.0, "an item is open already", &data)?;
                check(data["item"]["id"].is_string(), "an item has no id", &data)?;
                let mut item = data["item"].clone();
                item["seen"] = Value::from("");
                items.push(item);
                open.0 = true;
            }
            "response.content_part.added" => {
                check(!open.1, "a part is open already", &data)?;
                open.1 = true;
            }
            "response.output_text.delta" | "response.reasoning_text.delta" => {
                check(open.1 && data["content_index"] == 0, "no part is open", &data)?;
                part(&mut items)?;
            }
            "response.function_call_arguments.delta" => part(&mut items)?,
            "response.file_search_call.in_progress"
            | "response.file_search_call.searching"
            | "response.file_search_call.completed" => {
                let item = items.last().ok_or("no item")?;
                check(item["type"] == "file_search_call", "no search is open", &data)?;
            }
            "response.output_text.annotation.added" => {
                check(open.1 && data["content_index"] == 0, "no part is open", &data)?;
                check(
                    data["annotation_index"].as_u64() == Some(annotations.len() as u64),
                    "annotations are not in order",
                    &data,
                )?;
                annotations.push(data["annotation"].clone());
            }
            "response.output_text.done" | "response.reasoning_text.done" => {
                let seen = items.last().map(|item| item["seen"].clone());
                check(
                    seen.as_ref() == Some(&data["text"]),
                    "the text differs from its deltas",
                    &data,
                )?;
            }
            "response.function_call_arguments.done" => {
                let seen = items.last().map(|item| item["seen"].clone());
                check(
                    seen.as_ref() == Some(&data["arguments"]),
                    "the arguments differ from their deltas",
                    &data,
                )?;
            }
            "response.content_part.done" => {
                check(open.1, "no part is open", &data)?;
                let of_part = data["part"]["annotations"].as_array().cloned().unwrap_or_default();
                check(
                    std::mem::take(&mut annotations) == of_part,
                    "the annotations of the part differ from those before",
                    &data,
                )?;
                open.1 = false;
            }
            "response.output_item.done" => {
                check(open == (true, false), "no item is open, or a part is", &data)?;
                check(
                    data["item"]["status"].is_string(),
                    "an item is done without status",
                    &data,
                )?;
                open.0 = false;
                *items.last_mut().ok_or("no item")? = data["item"].clone();
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                check(open == (false, false), "ends with an item open", &data)?;
                check(
                    data["response"]["output"] == json!(items),
                    "the final output differs from the items",
                    &data,
                )?;
                check(data["response"]["usage"]["output_tokens"].is_u64(), "no usage", &data)?;
                last = data["response"].clone();
            }
            _ => return Err(format!("unknown event: {data}")),
        }
    }
    check(!last.is_null(), "the stream has no last event", &json!(frames.len()))?;
    Ok(last)
}

/// A stream of Anthropic's; gives the message.
///
/// # Errors
/// What is wrong.
pub fn messages(frames: &[Frame]) -> Checked {
    let mut message = Value::Null;
    let mut open: Option<String> = None;
    let mut ended = false;
    for frame in frames {
        let data = parse(frame)?;
        let kind = text(&data["type"], "type")?;
        check(frame.name == Some(kind), "event and type differ", &data)?;
        check(!ended, "something follows message_stop", &data)?;
        check(
            kind == "message_start" || !message.is_null(),
            "an event before message_start",
            &data,
        )?;
        let count = message["content"].as_array().map_or(0, Vec::len);
        match kind {
            "message_start" => {
                check(message.is_null(), "a second message_start", &data)?;
                message = data["message"].clone();
                check(
                    message["content"] == json!([]) && message["usage"]["input_tokens"].is_u64(),
                    "bad start",
                    &data,
                )?;
            }
            "content_block_start" => {
                check(
                    open.is_none() && data["index"] == count,
                    "blocks are mixed or not dense",
                    &data,
                )?;
                message["content"]
                    .as_array_mut()
                    .ok_or("no content")?
                    .push(data["content_block"].clone());
                open = Some(String::new());
            }
            "content_block_delta" => {
                let partial = open.as_mut().ok_or("a delta without block")?;
                check(
                    data["index"].as_u64() == Some(count as u64 - 1),
                    "not the open block's index",
                    &data,
                )?;
                let block = &mut message["content"][count - 1];
                let delta = &data["delta"];
                match (text(&delta["type"], "delta type")?, text(&block["type"], "block type")?) {
                    ("text_delta", "text") => append(&mut block["text"], text(&delta["text"], "text")?),
                    ("thinking_delta", "thinking") => append(&mut block["thinking"], text(&delta["thinking"], "text")?),
                    ("signature_delta", "thinking") => {
                        append(&mut block["signature"], text(&delta["signature"], "text")?)
                    }
                    ("input_json_delta", "tool_use") => partial.push_str(text(&delta["partial_json"], "partial_json")?),
                    _ => return Err(format!("the delta does not fit its block: {data}")),
                }
            }
            "content_block_stop" => {
                let partial = open.take().ok_or("a stop without block")?;
                if !partial.is_empty() {
                    // What was cut off for length is empty in the whole answer too.
                    message["content"][count - 1]["input"] = serde_json::from_str(&partial).unwrap_or(json!({}));
                }
            }
            "message_delta" => {
                check(open.is_none(), "a block is open", &data)?;
                for name in ["stop_reason", "stop_sequence"] {
                    message[name] = data["delta"][name].clone();
                }
                message["usage"] = data["usage"].clone();
                check(message["stop_reason"].is_string(), "no stop_reason", &data)?;
            }
            "message_stop" => {
                check(
                    message["stop_reason"].is_string(),
                    "message_stop before message_delta",
                    &data,
                )?;
                ended = true;
            }
            _ => return Err(format!("unknown event: {data}")),
        }
    }
    check(ended, "no message_stop", &message)?;
    Ok(message)
}

/// A stream of Ollama's; gives the last line with the text, reasoning and calls of all.
///
/// # Errors
/// What is wrong.
pub fn ollama(frames: &[Frame]) -> Checked {
    let (last, frames) = frames.split_last().ok_or("the stream is empty")?;
    let mut whole = parse(last)?;
    check(
        whole["done"] == true && whole["done_reason"].is_string(),
        "the last line is not done",
        &whole,
    )?;
    for name in ["total_duration", "prompt_eval_count", "eval_count", "eval_duration"] {
        check(whole[name].is_u64(), name, &whole)?;
    }
    let chat = whole.get("message").is_some();
    let (mut content, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for frame in frames {
        let line = parse(frame)?;
        check(
            frame.name.is_none() && line["done"] == false,
            "a line is done too early",
            &line,
        )?;
        let from = if chat { &line["message"] } else { &line };
        check(!chat || from["role"] == "assistant", "a message has no role", &line)?;
        content.push_str(text(&from[if chat { "content" } else { "response" }], "content")?);
        thinking.push_str(from["thinking"].as_str().unwrap_or_default());
        for call in from["tool_calls"].as_array().into_iter().flatten() {
            check(
                call["function"]["arguments"].is_object(),
                "arguments are no object",
                call,
            )?;
            calls.push(call.clone());
        }
    }
    let to = if chat { &mut whole["message"] } else { &mut whole };
    to[if chat { "content" } else { "response" }] = Value::from(content);
    if !thinking.is_empty() {
        to["thinking"] = Value::from(thinking);
    }
    if !calls.is_empty() {
        to["tool_calls"] = Value::from(calls);
    }
    Ok(whole)
}

/// A stream of a transcription; gives the event that ends it.
///
/// # Errors
/// What is wrong.
pub fn transcription(frames: &[Frame]) -> Checked {
    let (last, frames) = frames.split_last().ok_or("the stream is empty")?;
    let mut whole = String::new();
    for frame in frames {
        let event = parse(frame)?;
        check(event["type"] == audio::DELTA, "is no piece of text", &event)?;
        let delta = text(&event["delta"], "a piece")?;
        check(!delta.is_empty(), "is empty", &event)?;
        whole.push_str(delta);
    }
    let event = parse(last)?;
    check(event["type"] == audio::DONE, "does not end the stream", &event)?;
    check(event["text"] == whole, "is not the text of its pieces", &event)?;
    Ok(event)
}
