//! What a request of the public API asks for, and the JSON that it gets: fields, defaults and shapes are the public ones.
//!
//! Options that are not known are ignored, as there; a known one of the wrong type is an error, which there it is not. It
//! deliberately computes nothing.

use crate::answer::Answer;
use crate::asked::{Asked, Routing, tools};
use crate::documents::{Documents, Sources};
use crate::failure::{Failure, Result};
use crate::output::TextBuffer;
use crate::{guard, input, pictures};
use cactus_engine::chat::{Chat, ChatRequest, ToolChoice, to_base64};
use cactus_engine::scheduler::Priority;
use cactus_engine::{FinishReason, GenerateOptions, Model, ProcessMemory};
use cactus_text::json_type;
use serde_json::{Map, Value, json};
use std::ffi::{c_char, c_int};
use std::ops::RangeInclusive;

/// Tokens of an answer where nobody says how many.
const MAX_TOKENS: u64 = 100;
/// How strongly repetition is discouraged where nobody says, and in how many of the last tokens.
const REPETITION: (f64, usize) = (1.1, 64);
/// Tools that the model is told of where nobody says how many: those that the question is most likely about.
const MOST_TOOLS: u64 = 2;
/// From which confidence on an answer is given by this machine where nobody says.
const CONFIDENCE_THRESHOLD: f64 = 0.7;

/// The arguments that several functions have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a> {
    messages: &'a str,
    options: Option<&'a str>,
    tools: Option<&'a str>,
    /// Sound of the last message of the user.
    pcm: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// # Errors
    /// For null in place of messages, what is not UTF-8, and half a sample.
    ///
    /// # Safety
    /// As [`input::text`] and [`input::values`].
    pub(super) unsafe fn new(
        messages: *const c_char,
        options: *const c_char,
        tools: *const c_char,
        (pcm, pcm_bytes): (*const u8, usize),
    ) -> Result<Arguments<'a>> {
        // SAFETY: the caller's promise.
        let arguments = unsafe {
            Arguments {
                messages: input::text(messages, "messages_json")?,
                options: input::optional_text(options, "options_json")?,
                tools: input::optional_text(tools, "tools_json")?,
                pcm: input::values(pcm, pcm_bytes, "pcm_buffer")?,
            }
        };
        match arguments.pcm.len().is_multiple_of(2) {
            true => Ok(arguments),
            false => Err(Failure::argument(format!(
                "`pcm_buffer`: expected samples of 2 bytes, found {pcm_bytes} bytes"
            ))),
        }
    }

    /// Makes them ready for `model`, with what its documents say, if it has some: those are given, too.
    ///
    /// # Errors
    /// That name the argument or the field; as [`Documents::join`].
    pub(super) fn read(&self, model: &Model, documents: Option<&Documents>) -> Result<(Asked, Option<Sources>)> {
        let messages = input::array(Some(self.messages), "messages_json")?;
        let options = input::object(self.options, "options_json")?;
        let tools = tools(&input::array(self.tools, "tools_json")?)?;
        let options = Options(&options);
        let messages = messages.into_iter().enumerate();
        let mut messages = messages
            .map(|(i, message)| plain(i, message))
            .collect::<Result<Vec<_>>>()?;
        if !self.pcm.is_empty() {
            let asked = messages.iter_mut().rev().find(|message| message["role"] == "user");
            let Some(fields) = asked.and_then(Value::as_object_mut) else {
                return Err(Failure::argument(
                    "`pcm_buffer`: there is no message of the user that the sound could belong to",
                ));
            };
            let data = to_base64(&wave(self.pcm));
            put_first(fields, vec![json!({"type": "audio", "data": data})]);
        }
        pictures::check(&messages)?;
        let sources = documents
            .map(|documents| documents.join(&mut messages))
            .transpose()?
            .flatten();
        let most = options.count("tool_rag_top_k", 0..=1 << 31)?.unwrap_or(MOST_TOOLS) as usize;
        let force = options.flag("force_tools")?.unwrap_or(false) && !tools.is_empty();
        let request = ChatRequest {
            messages,
            most_tools: (most > 0 && most < tools.len()).then_some(most),
            tools,
            tool_choice: if force { ToolChoice::Required } else { ToolChoice::Auto },
            reasoning: Some(options.flag("enable_thinking_if_supported")?.unwrap_or(false)),
            ..ChatRequest::default()
        };
        let asked = Asked {
            chat: Chat::new(model, &request)?,
            options: options.generate(model)?,
            priority: Priority::Normal,
            routing: Routing {
                conversation: Some(Box::new(request)),
                options: options.of_policy(),
                ..Routing::default()
            },
        };
        Ok((asked, sources))
    }

    /// The confidence below which the public engine asks a server.
    pub(super) fn confidence_threshold(&self) -> f64 {
        let options = input::object(self.options, "options_json").unwrap_or_default();
        let given = options.get("confidence_threshold").and_then(Value::as_f64);
        given.filter(|given| *given >= 0.0).unwrap_or(CONFIDENCE_THRESHOLD)
    }
}

/// A message as the engine takes it: with the pictures in the files of `images` and the sounds in those of `audio` as its first parts.
fn plain(i: usize, mut message: Value) -> Result<Value> {
    let Some(fields) = message.as_object_mut() else {
        return Ok(message);
    };
    let mut parts = Vec::new();
    for name in ["images", "audio"] {
        let at = format!("messages[{i}].{name}");
        let paths = match fields.remove(name) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(paths)) => paths,
            Some(other) => {
                let what = format!("`{at}`: expected a list of files, found {}", json_type(&other));
                return Err(Failure::argument(what));
            }
        };
        for path in &paths {
            let Some(path) = path.as_str() else {
                let what = format!("`{at}`: expected the name of a file, found {}", json_type(path));
                return Err(Failure::argument(what));
            };
            parts.push(match name {
                "images" => pictures::picture_part(path, &at)?,
                _ => pictures::sound_part(path, &at)?,
            });
        }
    }
    if !parts.is_empty() {
        put_first(fields, parts);
    }
    Ok(message)
}

/// A WAV file of samples (mono, 16 bits, little-endian, 16,000 a second).
fn wave(pcm: &[u8]) -> Vec<u8> {
    const RATE_HZ: u32 = 16_000;
    let bytes = u32::try_from(pcm.len()).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + pcm.len());
    file.extend(b"RIFF");
    file.extend(bytes.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    // Integers in one channel.
    file.extend([1, 0, 1, 0]);
    file.extend(RATE_HZ.to_le_bytes());
    file.extend((2 * RATE_HZ).to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(pcm);
    file
}

/// Puts parts before the content of a message.
fn put_first(fields: &mut Map<String, Value>, mut parts: Vec<Value>) {
    match fields.remove("content") {
        Some(Value::Array(others)) => parts.extend(others),
        Some(Value::String(text)) => parts.push(json!({"type": "text", "text": text})),
        _ => {}
    }
    fields.insert("content".to_owned(), Value::from(parts));
}

/// Options by their public names.
struct Options<'a>(&'a Map<String, Value>);

/// Options of the public engine that say something about handing off. A policy reads and checks them; without one nothing is
/// handed off, and they say nothing.
pub(super) const OF_POLICY: [&str; 7] = [
    "confidence_threshold",
    "auto_handoff",
    "cloud_timeout_ms",
    "handoff_with_images",
    "telemetry_enabled",
    "no_cloud_handoff",
    "no_cloud_tele",
];

impl Options<'_> {
    fn of_policy(&self) -> Map<String, Value> {
        let given = OF_POLICY.iter().filter_map(|name| Some((*name, self.0.get(*name)?)));
        let given = given.filter(|(_, value)| !value.is_null());
        given.map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    fn read<T>(&self, name: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let found = || match value {
            Value::Number(number) => number.to_string(),
            other => json_type(other).to_owned(),
        };
        let wrong = || {
            Failure::argument(format!(
                "`options_json`: `{name}` should be {expected}, found {}",
                found()
            ))
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.read(name, "true or false", Value::as_bool)
    }

    fn count(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        // Clients in languages without integers send 40.0.
        let whole = |v: &Value| {
            let from_float = || {
                v.as_f64()
                    .filter(|f| f.fract() == 0.0 && (0.0..1e9).contains(f))
                    .map(|f| f as u64)
            };
            v.as_u64().or_else(from_float).filter(|n| range.contains(n))
        };
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(name, &expected, whole)
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        self.read(name, "a number", Value::as_f64)
    }

    /// How to draw. What is 0 or negative by the public rules is the model's own, or off.
    fn generate(&self, model: &Model) -> Result<GenerateOptions> {
        let own = model.default_options();
        let mut options = GenerateOptions {
            max_tokens: self.count("max_tokens", 1..=1 << 31)?.unwrap_or(MAX_TOKENS) as usize,
            temperature: match self.number("temperature")? {
                Some(below) if below < 0.0 => own.temperature,
                given => given.unwrap_or(0.0) as f32,
            },
            top_p: match self.number("top_p")? {
                Some(p) if p > 0.0 => p as f32,
                _ => own.top_p,
            },
            top_k: match self.count("top_k", 0..=1 << 31)? {
                Some(k) if k > 0 => k as usize,
                _ => own.top_k,
            },
            min_p: self.number("min_p")?.unwrap_or(0.15).clamp(0.0, 1.0) as f32,
            repetition_penalty: self.number("repetition_penalty")?.unwrap_or(REPETITION.0) as f32,
            repetition_window: REPETITION.1,
            seed: self.count("seed", 0..=u64::MAX)?.filter(|&seed| seed != 0),
            include_stop: self.flag("include_stop_sequences")?.unwrap_or(false),
            ..GenerateOptions::default()
        };
        if let Some(stop) = self.0.get("stop_sequences") {
            options
                .set("stop_sequences", stop)
                .map_err(cactus_engine::Error::from)?;
            options.stop.retain(|stop| !stop.is_empty());
        }
        options.validate().map_err(cactus_engine::Error::from)?;
        Ok(options)
    }
}

/// Resident memory in MB.
pub(super) fn ram_usage_mb() -> f64 {
    let resident = ProcessMemory::now().resident.unwrap_or(0);
    (resident as f64 / 1e4).round() / 100.0
}

/// The JSON of an answer.
pub(super) fn completion(answer: &Answer, threshold: f64) -> Value {
    let c = &answer.completion;
    let call = |call: &cactus_engine::chat::ToolCall| {
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        json!({"name": call.name, "arguments": arguments})
    };
    let mut result = json!({
        "success": true,
        "error": null,
        "cloud_handoff": false,
        "response": answer.message.text.trim(),
        "function_calls": answer.message.calls.iter().map(call).collect::<Vec<_>>(),
        "segments": [],
        "confidence": null,
        "confidence_threshold": threshold,
        "time_to_first_token_ms": rounded(c.time_to_first_token_ms),
        "total_time_ms": rounded(c.total_time_ms),
        "prefill_tps": rounded(c.prefill_tps),
        "decode_tps": rounded(c.decode_tps),
        "ram_usage_mb": ram_usage_mb(),
        "prefill_tokens": c.prefill_tokens,
        "decode_tokens": c.decode_tokens,
        "total_tokens": c.total_tokens,
        "cached_tokens": c.cached_tokens,
        "finish_reason": if c.finish_reason == FinishReason::Cancelled { json!("stopped") } else { json!(c.finish_reason) },
    });
    if let Some(route) = &answer.route {
        result["cloud_handoff"] = json!(answer.is_from_target());
        result["confidence"] = route.get("confidence").cloned().unwrap_or_default();
    }
    if !answer.message.reasoning.is_empty() {
        result["thinking"] = json!(answer.message.reasoning.trim());
    }
    result
}

/// The JSON of a failure, which goes into the buffer, too.
pub(crate) fn failed(failure: &Failure) -> Value {
    json!({
        "success": false,
        "error": failure.message,
        "cloud_handoff": false,
        "response": null,
        "function_calls": [],
        "confidence": null,
        "time_to_first_token_ms": 0.0,
        "total_time_ms": 0.0,
        "prefill_tps": 0.0,
        "decode_tps": 0.0,
        "ram_usage_mb": ram_usage_mb(),
        "prefill_tokens": 0,
        "decode_tokens": 0,
        "total_tokens": 0,
    })
}

/// Writes what `work` gives to the caller's `response_buffer` and gives its bytes; where `work` fails, writes the reason.
///
/// # Safety
/// As [`TextBuffer::new`].
pub(super) unsafe fn answered(buffer: *mut c_char, bytes: usize, work: impl FnOnce() -> Result<String>) -> c_int {
    guard::count(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { TextBuffer::new(buffer, bytes, "response_buffer") }?;
        buffer.settle(work(), |failure| failed(failure).to_string())
    })
}

/// To hundredths, as people read it.
pub(super) fn rounded(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}
