//! Writes requests and reads answers as commands on standard input say, one JSON object a line, and answers each with a line of
//! JSON. `clients/test_cloud_types.py` compares both with the types of the vendors' own packages.
//!
//! - `{"do": "encode", "protocol": …, "host": …, "request": …}` gives `path`, `headers`,
//!   `key_header` (its name and what stands before the key), `body` and `notes`.
//! - `{"do": "decode", "protocol": …, "host": …, "body": …}`, or with `"stream"`, gives `message`, `usage` and `reason`. The
//!   message can stand in a later request as it is.
//!
//! - `{"do": "hear", "host": …, "sound": {"wav", "language", "prompt"}, "word_times": …}` gives `path`, `content_type` and `body` of a
//!   request to write down speech, the last as base64; with `"body"` in place of `"sound"` it gives `text`, `words`, `segments` and
//!   `billed_s` of an answer.
//!
//! What fails gives `error`, with its `kind`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cactus_cloud::codec::transcription::{self, Sound, Timed};
use cactus_cloud::codec::{self, Decoder};
use cactus_cloud::{
    Base, Effort, Format, Media, Message, Opaque, Part, Protocol, Reasoning, Reply, Request, Role, SseReader, Target,
    Tool, ToolCall, ToolChoice, ToolResult,
};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead as _, Write as _};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MAX_BYTES: usize = 1 << 20;

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&serde_json::from_str(&line?)?).unwrap_or_else(|error| {
            let kind = error
                .downcast_ref::<cactus_cloud::Error>()
                .map(|e| format!("{:?}", e.kind()));
            json!({"error": error.to_string(), "kind": kind})
        });
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(command: &Value) -> Result<Value> {
    if command["do"] == "hear" {
        return hear(command);
    }
    let protocol = Protocol::parse(text(command, "protocol")?).ok_or("unknown protocol")?;
    let base = Base::parse(&format!("https://{}/v1", text(command, "host")?), false)?;
    let mut target = Target::new("t", protocol, base, "m");
    target.capabilities.images = true;
    target.capabilities.audio = true;
    match text(command, "do")? {
        "encode" => {
            let wire = codec::encode(&target, &request(&target, &command["request"])?)?;
            let body: Value = serde_json::from_slice(&wire.body)?;
            let key = codec::key_header(protocol);
            Ok(
                json!({"path": wire.path, "headers": wire.headers, "key_header": key, "body": body, "notes": wire.notes}),
            )
        }
        "decode" => decode(&target, command),
        other => Err(format!("unknown command `{other}`").into()),
    }
}

fn hear(command: &Value) -> Result<Value> {
    let base = Base::parse(&format!("https://{}/v1", text(command, "host")?), false)?;
    let mut target = Target::new("t", Protocol::OpenAiTranscriptions, base, "whisper-1");
    target.capabilities.word_times = command["word_times"] != false;
    if let Ok(body) = text(command, "body") {
        let heard = transcription::decode(body.as_bytes())?;
        let timed =
            |list: &[Timed]| -> Vec<Value> { list.iter().map(|t| json!([t.text, t.start_s, t.end_s])).collect() };
        return Ok(
            json!({"text": heard.text, "words": timed(&heard.words), "segments": timed(&heard.segments),
            "billed_s": heard.billed_s}),
        );
    }
    let sound = &command["sound"];
    let optional = |name: &str| sound[name].as_str().map(str::to_owned);
    let sound = Sound {
        wav: STANDARD.decode(text(sound, "wav")?)?,
        language: optional("language"),
        prompt: optional("prompt"),
    };
    let wire = transcription::encode(&target, &sound)?;
    let key = codec::key_header(target.protocol);
    Ok(
        json!({"path": wire.path, "content_type": wire.content_type, "key_header": key, "body": STANDARD.encode(wire.body)}),
    )
}

fn decode(target: &Target, command: &Value) -> Result<Value> {
    let question = Request::new(vec![Message::text(Role::User, "hi")], 100);
    let mut decoder = Decoder::new(target, &question);
    let mut events = Vec::new();
    if let Ok(stream) = text(command, "stream") {
        let mut frames = Vec::new();
        SseReader::new(MAX_BYTES, MAX_BYTES).feed(stream.as_bytes(), &mut frames)?;
        for frame in &frames {
            decoder.event(frame, &mut events)?;
        }
        decoder.end(&mut events)?;
    } else {
        decoder.whole(text(command, "body")?.as_bytes(), &mut events)?;
    }
    let mut reply = Reply::default();
    for event in &events {
        reply.add(event)?;
    }
    let parts: Vec<Value> = reply.message.parts.iter().map(shown).collect();
    let u = reply.usage;
    Ok(json!({
        "message": {"role": "assistant", "parts": parts},
        "usage": {"input": u.input, "cached": u.cached, "cache_written": u.cache_written, "output": u.output, "reasoning": u.reasoning},
        "reason": reply.reason.map(|r| format!("{r:?}")),
    }))
}

/// A part of an answer.
fn shown(part: &Part) -> Value {
    let data = |opaque: &Option<Opaque>| opaque.as_ref().map(|o| o.data.clone());
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::Reasoning(r) => json!({"reasoning": r.text, "opaque": data(&r.opaque)}),
        Part::ToolCall(c) => {
            json!({"call": c.name, "id": c.id, "arguments": c.arguments, "opaque": data(&c.opaque)})
        }
        Part::Image(_) | Part::Audio(_) | Part::ToolResult(_) => Value::Null,
    }
}

fn request(target: &Target, value: &Value) -> Result<Request> {
    let messages = list(value, "messages").iter().map(|m| message(target, m));
    let mut request = Request::new(messages.collect::<Result<_>>()?, 256);
    request.stream = value["stream"] == true;
    request.parallel_calls = value["parallel_calls"] != false;
    request.sampling.temperature = value["temperature"].as_f64().map(|t| t as f32);
    request.stop = list(value, "stop")
        .iter()
        .filter_map(|s| Some(s.as_str()?.to_owned()))
        .collect();
    for tool in list(value, "tools") {
        request.tools.push(Tool {
            name: text(tool, "name")?.into(),
            description: text(tool, "description")?.into(),
            parameters: tool["parameters"].clone(),
            strict: tool["strict"] == true,
        });
    }
    request.tool_choice = match value["tool_choice"].as_str() {
        None => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("required") => ToolChoice::Required,
        Some(name) => ToolChoice::Named(name.into()),
    };
    request.format = match &value["format"] {
        Value::Null => Format::Text,
        Value::String(_) => Format::JsonObject,
        schema => Format::JsonSchema {
            name: "answer".into(),
            schema: schema.clone(),
            strict: true,
        },
    };
    request.effort = match value["effort"].as_str() {
        None => None,
        Some("none") => Some(Effort::None),
        Some("low") => Some(Effort::Low),
        Some("medium") => Some(Effort::Medium),
        Some("high") => Some(Effort::High),
        Some(other) => return Err(format!("unknown effort `{other}`").into()),
    };
    Ok(request)
}

fn message(target: &Target, value: &Value) -> Result<Message> {
    let role = match text(value, "role")? {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => return Err(format!("unknown role `{other}`").into()),
    };
    let parts = list(value, "parts")
        .iter()
        .map(|p| part(target, p))
        .collect::<Result<_>>()?;
    Ok(Message { role, parts })
}

/// A part is named by the key that it has.
fn part(target: &Target, value: &Value) -> Result<Part> {
    let opaque = Some(&value["opaque"])
        .filter(|data| !data.is_null())
        .map(|data| Opaque {
            issuer: target.issuer(),
            data: data.clone(),
        });
    let has = |key: &str| value.get(key).is_some();
    let media = || -> Result<Media> {
        let bytes = STANDARD.decode(text(value, "base64")?)?.into();
        let mime = text(value, "mime")?.into();
        Ok(Media { mime, bytes })
    };
    Ok(if has("text") {
        Part::Text(text(value, "text")?.into())
    } else if has("reasoning") {
        let text = text(value, "reasoning")?.into();
        Part::Reasoning(Reasoning { text, opaque })
    } else if has("call") {
        Part::ToolCall(ToolCall {
            id: text(value, "id")?.into(),
            name: text(value, "call")?.into(),
            arguments: text(value, "arguments")?.into(),
            opaque,
        })
    } else if has("result") {
        Part::ToolResult(ToolResult {
            call_id: text(value, "id")?.into(),
            name: text(value, "name")?.into(),
            content: text(value, "result")?.into(),
            is_error: value["is_error"] == true,
        })
    } else if text(value, "mime")?.starts_with("audio/") {
        Part::Audio(media()?)
    } else {
        Part::Image(media()?)
    })
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    let found = value.get(key).and_then(Value::as_str);
    found.ok_or_else(|| format!("`{key}` is missing or no string").into())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
