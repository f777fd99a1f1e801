//! `POST /v1/responses`: the request.
//!
//! Its input is a list of items rather than messages: what the assistant said, its reasoning and each of its calls are items
//! of their own. They become messages here; the answer becomes items again in `answer`.

mod answer;

pub use answer::{Cite, Cited, ResponseEncoder, Searched};

use super::super::{
    ApiError, Fields, Job, KeepAlive, MAX_MESSAGES, Prompt, Result, Spec, content, json_type, objects, tools,
};
use super::vector_stores::FileSearch;
use cactus_engine::chat::ChatRequest;
use cactus_text::grammar::{Grammar, Spacing};
use cactus_text::tools::ToolChoice;
use serde_json::{Map, Value, json};

/// Types of parts that are text.
const TEXTS: &[&str] = &["input_text", "output_text", "text", "refusal"];
/// The type of a tool that searches stores.
/// The tool that searches in vector stores.
pub(super) const FILE_SEARCH: &str = "file_search";

/// A request.
#[derive(Debug)]
pub struct Request {
    /// What is asked for, without what an earlier response said.
    pub job: Job,
    /// Encodes the answer.
    pub encoder: ResponseEncoder,
    /// The response that this one continues.
    pub previous: Option<String>,
    /// Whether the response is kept, so that another can continue it.
    pub store: bool,
    /// The messages of this request, without instructions.
    pub turns: Vec<Value>,
    /// What is searched before the answer.
    pub search: Option<FileSearch>,
    instructions: Option<String>,
}

impl Request {
    /// Puts the messages of the earlier response, and its answer, before those of this request, and completes the job.
    pub fn continue_from(&mut self, earlier: &[Value]) {
        let mut messages = Vec::with_capacity(earlier.len() + self.turns.len() + 1);
        if let Some(instructions) = &self.instructions {
            messages.push(json!({"role": "system", "content": instructions}));
        }
        messages.extend_from_slice(earlier);
        messages.extend_from_slice(&self.turns);
        if let Some(Prompt::Chat(chat)) = self.job.prompts.first_mut() {
            chat.messages = messages;
        }
    }

    /// What was asked last, in the conversation as it is by now.
    #[must_use]
    pub fn question(&self) -> Option<String> {
        let Some(Prompt::Chat(chat)) = self.job.prompts.first() else {
            return None;
        };
        cactus_text::question(&chat.messages)
    }

    /// Lets the model read `text` before the conversation, behind the instructions. [`Request::continue_from`] comes first.
    pub fn instruct(&mut self, text: &str) {
        let Some(Prompt::Chat(chat)) = self.job.prompts.first_mut() else {
            return;
        };
        cactus_text::instruct(&mut chat.messages, text);
    }
}

/// Reads a request. `created` is in seconds since 1970.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn request(body: &Value, created: u64) -> Result<Request> {
    let fields = Fields::of_body(body)?;
    for (name, instead) in [
        (
            "conversation",
            "send the history in `input`, or use `previous_response_id`",
        ),
        ("prompt", "send the text in `input`"),
    ] {
        if fields.get(name).is_some() {
            return Err(fields.wrong(name, format_args!("this server does not keep those; {instead}")));
        }
    }
    if fields.flag("background")?.unwrap_or(false) {
        return Err(fields.wrong(
            "background",
            "this server answers while the client waits; expected false",
        ));
    }
    if let Some(truncation) = fields.text("truncation")?
        && truncation != "disabled"
    {
        let message = format_args!("found `{truncation}`, expected `disabled`: this server cuts no history");
        return Err(fields.wrong("truncation", message));
    }
    let model = super::model(&fields)?;
    let include = fields.list("include")?.unwrap_or_default();
    let includes = |what: &str| include.iter().any(|included| included == what);
    let mut chat = ChatRequest {
        tools: tools::tools(&fields, tool)?,
        parallel_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
        tool_choice: ToolChoice::Auto,
        format: format(&fields)?,
        ..ChatRequest::default()
    };
    let mut search = file_search(&fields, includes("file_search_call.results"))?;
    match (fields.get("tool_choice"), &search) {
        // Who asks for it gets it anyway.
        (Some(choice), Some(_)) if choice["type"] == "file_search" => {}
        (Some(Value::String(word)), Some(_)) if word == "required" && chat.tools.is_empty() => {}
        (Some(Value::String(word)), _) if word == "none" => {
            search = None;
            chat.tool_choice = ToolChoice::None;
        }
        _ => {
            chat.tool_choice = super::chat::tool_choice(&fields)?;
            tools::check_choice(&fields, &chat.tool_choice, &chat.tools)?;
        }
    }
    if let Some(reasoning) = fields.object("reasoning")?
        && let Some((on, effort)) = super::effort(&reasoning, "effort")?
    {
        chat.reasoning = Some(on);
        chat.template_variables
            .insert("reasoning_effort".to_owned(), Value::from(effort));
    }
    let turns = input(&fields)?;
    let instructions = fields.text("instructions")?.map(str::to_owned);
    let mut spec = Spec::read(&fields, &["max_output_tokens"])?;
    let mut logprobs = includes("message.output_text.logprobs");
    if let Some(top) = fields.get("top_logprobs") {
        spec.set(&fields, "top_logprobs", "logprobs", top.clone())?;
        logprobs |= top.as_u64() != Some(0);
    }
    if logprobs && !spec.options.contains_key("logprobs") {
        spec.options.insert("logprobs".to_owned(), Value::from(0));
    } else if !logprobs {
        spec.options.shift_remove("logprobs");
    }
    let store = fields.flag("store")?.unwrap_or(true);
    let previous = fields.text("previous_response_id")?.map(str::to_owned);
    let stream = fields.flag("stream")?.unwrap_or(false);
    let encoder = ResponseEncoder::new(created, logprobs, said(&fields, store));
    let job = Job {
        model,
        prompts: vec![Prompt::Chat(Box::new(chat))],
        choices: 1,
        spec,
        stream,
        keep_alive: KeepAlive::Default,
    };
    let mut request = Request {
        job,
        encoder,
        previous,
        store,
        turns,
        search,
        instructions,
    };
    request.continue_from(&[]);
    Ok(request)
}

/// What a response repeats of its request.
fn said(fields: &Fields<'_>, store: bool) -> Map<String, Value> {
    let mut said = Map::new();
    let mut put = |name: &str, default: Value| {
        said.insert(name.to_owned(), fields.get(name).cloned().unwrap_or(default));
    };
    put("instructions", Value::Null);
    put("max_output_tokens", Value::Null);
    put("metadata", json!({}));
    put("parallel_tool_calls", Value::Bool(true));
    put("previous_response_id", Value::Null);
    put("reasoning", json!({"effort": null, "summary": null}));
    put("temperature", Value::Null);
    put("text", json!({"format": {"type": "text"}}));
    put("tool_choice", Value::from("auto"));
    put("tools", json!([]));
    put("top_p", Value::Null);
    put("truncation", Value::from("disabled"));
    said.insert("store".to_owned(), Value::Bool(store));
    said
}

/// What is searched before the answer: the one tool that is this server's own.
fn file_search(fields: &Fields<'_>, include_results: bool) -> Result<Option<FileSearch>> {
    let list = fields.list("tools")?.unwrap_or_default();
    let mut found = None;
    for entry in objects(list, &fields.path("tools"))? {
        if entry.text("type")? != Some(FILE_SEARCH) {
            continue;
        }
        if found.is_some() {
            return Err(entry.wrong("type", "found a second `file_search`; name all stores in one"));
        }
        found = Some(FileSearch::read(&entry, include_results)?);
    }
    Ok(found)
}

/// A tool that the model calls: flat, unlike in chat completions.
fn tool(entry: &Fields<'_>) -> Result<Option<Value>> {
    let kind = entry.required_text("type")?;
    if kind == FILE_SEARCH {
        return Ok(None);
    }
    if kind != "function" {
        let message = format_args!("this server has no tools of type `{kind}`; expected `function` or `{FILE_SEARCH}`");
        return Err(entry.wrong("type", message));
    }
    entry.required_text("name")?;
    entry.text("description")?;
    entry.flag("strict")?;
    entry.object("parameters")?;
    let mut tool = entry.map().clone();
    // Not an object that contains another: `Tool::from_json` looks there first.
    tool.shift_remove("function");
    Ok(Some(Value::Object(tool)))
}

fn format(fields: &Fields<'_>) -> Result<Option<Grammar>> {
    let Some(text) = fields.object("text")? else {
        return Ok(None);
    };
    let Some(format) = text.object("format")? else {
        return Ok(None);
    };
    match format.required_text("type")? {
        "text" => Ok(None),
        "json_object" => Ok(Some(Grammar::JsonObject {
            spacing: Spacing::default(),
        })),
        "json_schema" => tools::schema(&format, "schema").map(Some),
        other => {
            let message = format_args!("found `{other}`, expected `text`, `json_object` or `json_schema`");
            Err(format.wrong("type", message))
        }
    }
}

/// The input as messages.
fn input(fields: &Fields<'_>) -> Result<Vec<Value>> {
    let items = match fields.get("input") {
        Some(Value::String(text)) => return Ok(vec![json!({"role": "user", "content": text})]),
        Some(Value::Array(items)) => items,
        Some(other) => {
            let message = format_args!("found {}, expected text or a list of items", json_type(other));
            return Err(fields.wrong("input", message));
        }
        None => return Err(fields.missing("input", "text or a list of items")),
    };
    if items.is_empty() || items.len() > MAX_MESSAGES {
        let message = format_args!("found {} items, expected 1 to {MAX_MESSAGES}", items.len());
        return Err(fields.wrong("input", message));
    }
    let mut turns = Turns::default();
    for item in objects(items, "input")? {
        turns.add(&item)?;
    }
    turns.close();
    Ok(turns.messages)
}

/// Gathers items into messages: reasoning, text and calls that follow each other are one turn of the assistant.
#[derive(Default)]
struct Turns {
    messages: Vec<Value>,
    assistant: Option<Map<String, Value>>,
}

impl Turns {
    fn assistant(&mut self) -> &mut Map<String, Value> {
        self.assistant.get_or_insert_with(|| {
            let mut message = Map::new();
            message.insert("role".to_owned(), Value::from("assistant"));
            message.insert("content".to_owned(), Value::Null);
            message
        })
    }

    fn close(&mut self) {
        self.messages.extend(self.assistant.take().map(Value::Object));
    }

    fn append(&mut self, field: &str, text: &str) {
        match self.assistant().get_mut(field) {
            Some(Value::String(before)) => {
                before.push('\n');
                before.push_str(text);
            }
            _ => drop(self.assistant().insert(field.to_owned(), Value::from(text))),
        }
    }

    fn add(&mut self, item: &Fields<'_>) -> Result<()> {
        let kind = item.text("type")?.unwrap_or("message");
        match kind {
            "message" => {
                let role = item.required_text("role")?;
                if !["system", "developer", "user", "assistant"].contains(&role) {
                    let message = format_args!("found `{role}`, expected `system`, `developer`, `user` or `assistant`");
                    return Err(item.wrong("role", message));
                }
                let missing = || item.missing("content", "text or a list of parts");
                match role {
                    "assistant" => {
                        let text = content::text(item, "content", TEXTS)?.ok_or_else(missing)?;
                        self.append("content", &text);
                    }
                    "user" => {
                        let said = content::said(item, "content", TEXTS)?.ok_or_else(missing)?;
                        self.close();
                        self.messages.push(json!({"role": role, "content": said}));
                    }
                    _ => {
                        let text = content::text(item, "content", TEXTS)?.ok_or_else(missing)?;
                        self.close();
                        self.messages.push(json!({"role": role, "content": text}));
                    }
                }
            }
            "reasoning" => {
                // What an assistant thinks after it spoke is the beginning of another turn.
                if self
                    .assistant
                    .as_ref()
                    .is_some_and(|turn| turn.len() > 2 || !turn["content"].is_null())
                {
                    self.close();
                }
                let texts = content::text(item, "content", &["reasoning_text", "text"])?;
                let text = match texts {
                    Some(text) => Some(text),
                    None => content::text(item, "summary", &["summary_text", "text"])?,
                };
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    self.append("reasoning_content", &text);
                }
            }
            "function_call" => {
                let name = item.required_text("name")?;
                let id = item.required_text("call_id")?;
                let call = json!({"id": id, "type": "function",
                    "function": {"name": name, "arguments": super::arguments(item, "arguments")?}});
                let calls = self.assistant().entry("tool_calls").or_insert_with(|| json!([]));
                if let Value::Array(calls) = calls {
                    calls.push(call);
                }
            }
            "function_call_output" => {
                let id = item.required_text("call_id")?;
                let text = content::said(item, "output", TEXTS)?;
                let text = text.ok_or_else(|| item.missing("output", "text or a list of parts"))?;
                self.close();
                self.messages
                    .push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            // What was found for an earlier question; the next one is searched for anew.
            "file_search_call" => {}
            "item_reference" => {
                let message =
                    "this server keeps whole responses, not items; send the item, or use `previous_response_id`";
                return Err(item.wrong("type", message));
            }
            other => {
                let expected = "expected `message`, `reasoning`, `function_call` or `function_call_output`";
                let message = format!("`{}`: found `{other}`, {expected}", item.path("type"));
                return Err(ApiError::field(item.path("type"), message));
            }
        }
        Ok(())
    }
}
