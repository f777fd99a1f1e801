//! A request of ours as `cloud` has it, and what makes it fit to leave.
//!
//! [`of_chat`] translates. [`seal`] is the one way out: every content of the request passes the gate (consent by class, then
//! redaction), and only what it gives back is sent. [`seal_sound`] is the same for a piece of a recording.

use cactus_cloud::codec::transcription::Sound;
use cactus_cloud::{
    Content, Effort, Format, Message, Part, Place, Request, Role, Sampling, Tool, ToolCall, ToolChoice, ToolResult,
};
use cactus_engine::chat::{self, ChatRequest};
use cactus_hybrid::policy::{Policy, ToolUse};
use cactus_hybrid::redact::{self, Action, Class, Gate, Kind, Redactor, Refused, Rules};
use cactus_protocol::{Job, Prompt, Spec};
use cactus_text::grammar::Grammar;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// A request that may leave. Only [`seal`] makes one.
#[derive(Debug)]
pub struct Sealed {
    request: Request,
}

impl Sealed {
    /// What leaves.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The same for a target that may answer at most so many tokens.
    pub(crate) fn limited(&self, most_tokens: u32) -> Sealed {
        let mut request = self.request.clone();
        request.max_output_tokens = request.max_output_tokens.min(most_tokens);
        Sealed { request }
    }
}

/// A piece of a recording that may leave. Only [`seal_sound`] makes one.
#[derive(Debug)]
pub struct SealedSound {
    sound: Sound,
}

impl SealedSound {
    /// What leaves.
    #[must_use]
    pub fn sound(&self) -> &Sound {
        &self.sound
    }
}

/// Text that goes with a piece of a recording, where text may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints<'a>(pub Option<&'a str>);

impl Hints<'_> {
    /// Whether the rules would let a text leave; what was heard says what the sound holds.
    ///
    /// # Errors
    /// [`Refused`] for what they block.
    pub fn check(text: &str, rules: &redact::Rules) -> Result<(), Refused> {
        let part = redact::Part {
            class: Class::Text,
            content: redact::Content::Text(text.to_owned()),
        };
        let gate = Gate::for_classes(&[Class::Text]);
        gate.pass(vec![part], &mut Redactor::new(rules.clone())).map(drop)
    }
}

/// Makes a piece of a recording, to whose class somebody has consented, fit to leave. Sound leaves as it is; hints are redacted.
///
/// # Errors
/// [`Refused`]: then nothing leaves.
pub fn seal_sound(mut sound: Sound, hints: &Hints<'_>, redactor: &mut Redactor) -> Result<SealedSound, Refused> {
    let mut parts = vec![redact::Part {
        class: Class::Audio,
        content: redact::Content::Bytes(Vec::new()),
    }];
    parts.extend(hints.0.map(|text| redact::Part {
        class: Class::Text,
        content: redact::Content::Text(text.to_owned()),
    }));
    let gate = match hints.0 {
        Some(_) => Gate::for_classes(&[Class::Audio, Class::Text]),
        None => Gate::for_classes(&[Class::Audio]),
    };
    let passed = gate.pass(parts, redactor)?;
    sound.prompt = passed.into_parts().into_iter().find_map(|part| match part {
        redact::Content::Text(text) => Some(text),
        _ => None,
    });
    Ok(SealedSound { sound })
}

/// A conversation as a target is asked, as far as it can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// What would be sent, before redaction.
    pub request: Request,
    /// The classes of content in it.
    pub classes: Vec<Class>,
    /// It uses, has used or needs tools that stay here.
    pub local_tools: bool,
    /// Names of the tools that may be called.
    pub offers_tools: Vec<String>,
    /// Names of those that were called, or whose results are in it.
    pub uses_tools: Vec<String>,
}

impl Outgoing {
    /// How many texts of each kind a policy may replace or block: those that some rules would find, or these.
    pub(crate) fn found(&self, rules: &Rules) -> BTreeMap<String, u64> {
        let allowed = Kind::ALL
            .into_iter()
            .filter(|kind| rules.action(*kind) == Action::Allow);
        let finding = allowed.fold(Rules::default(), |rules, kind| rules.with(kind, Action::Allow));
        let mut found = self.found_by(Rules::default());
        // Where kinds overlap, one that is let through hides no other.
        if finding != Rules::default() {
            for (kind, count) in self.found_by(finding) {
                let known = found.entry(kind).or_default();
                *known = count.max(*known);
            }
        }
        found
            .into_iter()
            .map(|(kind, count)| (kind.name().to_owned(), count))
            .collect()
    }

    fn found_by(&self, rules: Rules) -> BTreeMap<Kind, u64> {
        let mut redactor = Redactor::new(rules);
        // These rules block nothing, and what they refused would be in no record.
        let _ = seal(self.request.clone(), &Gate::for_classes(&self.classes), &mut redactor);
        redactor.replaced().clone()
    }
}

/// What of a request no target could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPortable(pub &'static str);

/// Why a job can only be computed on this machine and without the router, where it is so: the router gives one answer, and no target
/// gives log-probabilities.
#[must_use]
pub fn stays(job: &Job) -> Option<NotPortable> {
    let logprobs = job.spec.options.get("logprobs").is_some_and(|value| !value.is_null());
    match job.prompts.as_slice() {
        _ if logprobs || job.spec.score_prompt => Some(NotPortable("log-probabilities")),
        [Prompt::Chat(_)] if job.choices <= 1 => None,
        [Prompt::Chat(_)] => Some(NotPortable("several answers")),
        _ => Some(NotPortable("more of a text")),
    }
}

/// The classes of content in prompts of any kind, for the record.
pub(crate) fn classes_of(prompts: &[Prompt]) -> Vec<Class> {
    let mut found = vec![Class::Text];
    let chats = prompts.iter().filter_map(|prompt| match prompt {
        Prompt::Chat(chat) => Some(&chat.messages),
        _ => None,
    });
    for message in chats.flatten() {
        if message["role"] == "tool" || message.get("tool_calls").is_some() {
            found.push(Class::ToolResult);
        }
        let parts = message.get("content").and_then(Value::as_array).into_iter().flatten();
        found.extend(parts.filter_map(|part| match part.get("type")?.as_str()? {
            // A film is what is seen in its frames.
            "image_url" | "input_image" | "image" | "video_url" | "video" => Some(Class::Image),
            "input_audio" | "audio" | "audio_url" => Some(Class::Audio),
            "file" | "input_file" | "document" => Some(Class::Document),
            _ => None,
        }));
    }
    let mut classes = Vec::new();
    found.into_iter().for_each(|class| {
        if !classes.contains(&class) {
            classes.push(class);
        }
    });
    classes
}

/// Translates a conversation. `most_tokens` is the most that the target may answer.
///
/// # Errors
/// [`NotPortable`] for what only the model on this machine can do.
pub fn of_chat(chat: &ChatRequest, spec: &Spec, policy: &Policy, most_tokens: u32) -> Result<Outgoing, NotPortable> {
    if chat.continue_final {
        return Err(NotPortable("an answer that goes on with a given beginning"));
    }
    let logprobs = spec.options.get("logprobs").is_some_and(|v| !v.is_null());
    if logprobs || spec.score_prompt {
        return Err(NotPortable("log-probabilities"));
    }
    let mut names = HashMap::new();
    let mut uses_tools: Vec<String> = Vec::new();
    let mut messages: Vec<Message> = Vec::new();
    for given in &chat.messages {
        let (message, uses) = message(given, &mut names)?;
        for name in uses {
            if !uses_tools.contains(&name) {
                uses_tools.push(name);
            }
        }
        match (messages.last_mut(), message) {
            // Results of the calls of one answer are one message.
            (Some(last), message) if last.role == Role::Tool && message.role == Role::Tool => {
                last.parts.extend(message.parts);
            }
            // An answer of nothing but reasoning, which does not leave.
            (_, message) if message.parts.is_empty() => {}
            (_, message) => messages.push(message),
        }
    }
    let (offered, required) = chat.tool_choice.pick(&chat.tools).unwrap_or_default();
    let may_call = |tool: &&chat::Tool| policy.tool(&tool.name) == ToolUse::CloudMayCall;
    let tools: Vec<Tool> = offered.iter().copied().filter(may_call).map(tool).collect();
    // A target that may call none of the tools would answer another question.
    let local_tools =
        tools.len() < offered.len() || uses_tools.iter().any(|name| policy.tool(name) == ToolUse::LocalOnly);
    let offers_tools = offered.iter().map(|tool| tool.name.clone()).collect();
    let option = |name: &str| spec.options.get(name);
    let limit = option("max_tokens").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let mut request = Request::new(
        messages,
        u32::try_from(limit.max(1)).unwrap_or(u32::MAX).min(most_tokens),
    );
    request.tool_choice = match (&chat.tool_choice, required) {
        (_, _) if tools.is_empty() => ToolChoice::Auto,
        (chat::ToolChoice::Named(name), _) => ToolChoice::Named(name.clone()),
        (_, true) => ToolChoice::Required,
        _ => ToolChoice::Auto,
    };
    request.tools = tools;
    request.parallel_calls = chat.parallel_calls;
    request.format = match &chat.format {
        None => Format::Text,
        Some(Grammar::JsonObject { .. }) => Format::JsonObject,
        Some(Grammar::JsonSchema { schema, .. }) => Format::JsonSchema {
            name: "answer".to_owned(),
            schema: schema.clone(),
            strict: true,
        },
        Some(_) => return Err(NotPortable("an answer held to a grammar or an expression")),
    };
    let float = |name: &str| option(name).and_then(Value::as_f64).map(|x| x as f32);
    request.sampling = Sampling {
        temperature: float("temperature"),
        top_p: float("top_p"),
        top_k: option("top_k")
            .and_then(Value::as_u64)
            .and_then(|k| u32::try_from(k).ok()),
        seed: option("seed").and_then(Value::as_u64),
    };
    request.stop = match option("stop") {
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(Value::Array(stops)) => stops.iter().filter_map(|s| s.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    request.effort = (chat.reasoning == Some(false)).then_some(Effort::None);
    if request.check().is_err() {
        return Err(NotPortable(
            "a conversation that does not end with a question or a result",
        ));
    }
    let mut classes = Vec::new();
    request.clone().visit_content(&mut |place, _| {
        let class = class(place);
        if !classes.contains(&class) {
            classes.push(class);
        }
    });
    Ok(Outgoing {
        request,
        classes,
        local_tools,
        offers_tools,
        uses_tools,
    })
}

/// Redacts a request for classes that were consented to.
///
/// # Errors
/// [`Refused`]: then nothing leaves.
pub fn seal(mut request: Request, gate: &Gate, redactor: &mut Redactor) -> Result<Sealed, Refused> {
    request.number_calls();
    let mut parts = Vec::new();
    request.visit_content(&mut |place, content| {
        let content = match content {
            Content::Text(text) => redact::Content::Text(text.clone()),
            Content::Json(value) => redact::Content::Json(value.clone()),
            Content::Bytes => redact::Content::Bytes(Vec::new()),
        };
        parts.push(redact::Part {
            class: class(place),
            content,
        });
    });
    let passed = gate.pass(parts, redactor)?;
    let mut parts = passed.into_parts().into_iter();
    request.visit_content(&mut |_, content| match (content, parts.next()) {
        (Content::Text(text), Some(redact::Content::Text(passed))) => *text = passed,
        (Content::Json(value), Some(redact::Content::Json(passed))) => *value = passed,
        (Content::Bytes, _) => {}
        // Both visits go the same way; what would have no counterpart does not leave.
        (Content::Text(text), _) => text.clear(),
        (Content::Json(value), _) => *value = Value::Null,
    });
    Ok(Sealed { request })
}

fn class(place: Place) -> Class {
    match place {
        Place::Message(_) | Place::Tool | Place::Format | Place::Stop => Class::Text,
        Place::Arguments | Place::Result => Class::ToolResult,
        Place::Image => Class::Image,
        Place::Audio => Class::Audio,
    }
}

fn tool(tool: &chat::Tool) -> Tool {
    Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        strict: tool.strict,
    }
}

/// A message in the form of OpenAI's API, and the tools that it uses.
fn message(given: &Value, names: &mut HashMap<String, String>) -> Result<(Message, Vec<String>), NotPortable> {
    let text_of = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
    let content = match given.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let mut joined = String::new();
            for part in parts {
                match part.get("text").and_then(Value::as_str) {
                    Some(text) => joined.push_str(text),
                    None => return Err(NotPortable("contents that are no text")),
                }
            }
            joined
        }
        _ => String::new(),
    };
    let mut uses = Vec::new();
    let (role, parts) = match text_of("role") {
        "system" | "developer" => (Role::System, vec![Part::Text(content)]),
        "assistant" => {
            let mut parts = Vec::new();
            if !content.is_empty() {
                parts.push(Part::Text(content));
            }
            for call in given.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                let function = call.get("function").unwrap_or(call);
                let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
                let arguments = match function.get("arguments") {
                    Some(Value::String(text)) => text.clone(),
                    Some(value) => value.to_string(),
                    None => "{}".to_owned(),
                };
                let id = match call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()) {
                    Some(id) => id.to_owned(),
                    None => format!("call_{}", names.len()),
                };
                names.insert(id.clone(), name.to_owned());
                uses.push(name.to_owned());
                parts.push(Part::ToolCall(ToolCall {
                    id,
                    name: name.to_owned(),
                    arguments,
                    opaque: None,
                }));
            }
            (Role::Assistant, parts)
        }
        "tool" => {
            let id = text_of("tool_call_id");
            let name = names.get(id).cloned().unwrap_or_else(|| text_of("name").to_owned());
            uses.push(name.clone());
            let result = ToolResult {
                call_id: id.to_owned(),
                name,
                content,
                is_error: false,
            };
            (Role::Tool, vec![Part::ToolResult(result)])
        }
        _ => (Role::User, vec![Part::Text(content)]),
    };
    Ok((Message { role, parts }, uses))
}

/// Options that no target is told, with the values that change nothing.
const LOCAL_OPTIONS: &[(&str, f64)] = &[
    ("min_p", 0.0),
    ("typical_p", 1.0),
    ("repetition_penalty", 1.0),
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.0),
    ("logit_bias", f64::NAN),
    ("ignore_eos", f64::NAN),
];

/// What a request asks for that its target is not told, in words.
pub(crate) fn left_out(spec: &Spec) -> Option<String> {
    let given = |(name, nothing): &&(&str, f64)| match spec.options.get(*name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Object(map)) => !map.is_empty(),
        Some(value) => value.as_f64() != Some(*nothing),
    };
    let left: Vec<String> = LOCAL_OPTIONS
        .iter()
        .filter(given)
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    (!left.is_empty()).then(|| {
        format!(
            "the target was not told of {}, which only a model here can do",
            left.join(", ")
        )
    })
}
