//! `POST /v1/chat/completions`: the request.
//!
//! The answer is in `answer`.

mod answer;

pub use answer::ChatEncoder;

use super::super::{Fields, Job, KeepAlive, MAX_CHOICES, Prompt, Result, Spec, objects, tools};
use super::responses::FILE_SEARCH;
use cactus_engine::chat::{ChatRequest, MAX_TOOLS};
use cactus_text::grammar::{Grammar, Spacing};
use cactus_text::tools::ToolChoice;
use serde_json::{Value, json};

/// Reads a request. `created` is in seconds since 1970.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn request(body: &Value, created: u64) -> Result<(Job, ChatEncoder)> {
    let fields = Fields::of_body(body)?;
    for (old, new) in [("functions", "tools"), ("function_call", "tool_choice")] {
        if fields.get(old).is_some() {
            return Err(fields.wrong(old, format_args!("is not supported any more; use `{new}`")));
        }
    }
    for modality in fields.list("modalities")?.unwrap_or_default() {
        if modality != "text" {
            return Err(fields.wrong("modalities", format_args!("found {modality}, expected `text` alone")));
        }
    }
    let model = super::model(&fields)?;
    let mut chat = ChatRequest {
        messages: super::messages(&fields)?,
        tools: tools::tools(&fields, |entry| tool(entry).map(Some))?,
        parallel_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
        format: format(&fields)?,
        continue_final: fields.flag("continue_final_message")?.unwrap_or(false),
        ..ChatRequest::default()
    };
    chat.tool_choice = tool_choice(&fields)?;
    tools::check_choice(&fields, &chat.tool_choice, &chat.tools)?;
    chat.most_tools = fields
        .count("most_tools", 1, MAX_TOOLS as u64)?
        .map(|most| most as usize);
    if let Some(variables) = fields.object("chat_template_kwargs")? {
        chat.reasoning = variables.flag("enable_thinking")?;
        chat.template_variables = variables.map().clone();
        chat.template_variables.shift_remove("enable_thinking");
    }
    if let Some((on, effort)) = super::effort(&fields, "reasoning_effort")? {
        chat.reasoning = Some(on);
        chat.template_variables
            .insert("reasoning_effort".to_owned(), Value::from(effort));
    }
    let mut spec = Spec::read(&fields, &["max_completion_tokens", "max_tokens"])?;
    let logprobs = fields.flag("logprobs")?.unwrap_or(false);
    match fields.get("top_logprobs") {
        Some(_) if !logprobs => {
            return Err(fields.wrong("top_logprobs", "needs `logprobs` to be true"));
        }
        Some(top) => spec.set(&fields, "top_logprobs", "logprobs", top.clone())?,
        None if logprobs => spec.set(&fields, "logprobs", "logprobs", Value::from(0))?,
        None => {}
    }
    let choices = fields.count("n", 1, MAX_CHOICES)?.unwrap_or(1) as usize;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.flag("include_usage")?.unwrap_or(false),
        None => false,
    };
    let encoder = ChatEncoder::new(created, choices, logprobs, include_usage);
    let job = Job {
        model,
        prompts: vec![Prompt::Chat(Box::new(chat))],
        choices,
        spec,
        stream,
        keep_alive: KeepAlive::Default,
    };
    Ok((job, encoder))
}

/// A tool: `{"type": "function", "function": {...}}`.
fn tool(entry: &Fields<'_>) -> Result<Value> {
    let kind = entry.text("type")?.unwrap_or("function");
    if kind != "function" {
        return Err(match kind {
            FILE_SEARCH => entry.wrong(
                "type",
                "`file_search` is a tool of `/v1/responses`; expected `function` here",
            ),
            _ => {
                let message = format_args!("this server has no tools of type `{kind}`; expected `function`");
                entry.wrong("type", message)
            }
        });
    }
    let function = entry.object("function")?;
    let function = function.ok_or_else(|| entry.missing("function", "an object"))?;
    function.required_text("name")?;
    function.text("description")?;
    function.flag("strict")?;
    function.object("parameters")?;
    Ok(Value::Object(function.map().clone()))
}

/// Which tools may or have to be called.
pub(super) fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice> {
    let expected = "expected `none`, `auto`, `required`, or an object of type `function` or `allowed_tools`";
    match fields.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            other => Err(fields.wrong("tool_choice", format_args!("found `{other}`, {expected}"))),
        },
        Some(_) => {
            let choice = fields
                .object("tool_choice")
                .map_err(|_| fields.wrong("tool_choice", expected))?;
            let choice = choice.ok_or_else(|| fields.wrong("tool_choice", expected))?;
            // Named tools stand in an object of their own here, and beside the type in responses.
            let name = |of: &Fields<'_>| -> Result<String> {
                let inner = of.object("function")?;
                Ok(inner.as_ref().unwrap_or(of).required_text("name")?.to_owned())
            };
            match choice.required_text("type")? {
                "function" => Ok(ToolChoice::Named(name(&choice)?)),
                "allowed_tools" => {
                    let inner = choice.object("allowed_tools")?;
                    let allowed = inner.as_ref().unwrap_or(&choice);
                    let list = allowed.list("tools")?;
                    let list = list.ok_or_else(|| allowed.missing("tools", "a list"))?;
                    let names = objects(list, &allowed.path("tools"))?
                        .iter()
                        .map(name)
                        .collect::<Result<_>>()?;
                    let required = match allowed.text("mode")?.unwrap_or("auto") {
                        "auto" => false,
                        "required" => true,
                        other => {
                            let message = format_args!("found `{other}`, expected `auto` or `required`");
                            return Err(allowed.wrong("mode", message));
                        }
                    };
                    Ok(ToolChoice::Allowed { names, required })
                }
                other => Err(choice.wrong("type", format_args!("found `{other}`, {expected}"))),
            }
        }
    }
}

/// What the answer must follow.
fn format(fields: &Fields<'_>) -> Result<Option<Grammar>> {
    let mut found = Vec::new();
    if let Some(format) = fields.object("response_format")? {
        match format.required_text("type")? {
            "text" => {}
            // llama-server's form has a schema beside the type.
            "json_object" if format.get("schema").is_some() => found.push(tools::schema(&format, "schema")?),
            "json_object" => found.push(Grammar::JsonObject {
                spacing: Spacing::default(),
            }),
            "json_schema" => match format.object("json_schema")? {
                Some(inner) => found.push(tools::schema(&inner, "schema")?),
                None if format.get("schema").is_some() => found.push(tools::schema(&format, "schema")?),
                None => return Err(format.missing("json_schema", "an object with `name` and `schema`")),
            },
            other => {
                let message = format_args!("found `{other}`, expected `text`, `json_object` or `json_schema`");
                return Err(format.wrong("type", message));
            }
        }
    }
    if let Some(lark) = fields.text("grammar")? {
        found.push(Grammar::Lark(lark.to_owned()));
    }
    if let Some((name, _)) = fields.any(&["regex", "guided_regex"])
        && let Some(regex) = fields.text(name)?
    {
        found.push(Grammar::Regex(regex.to_owned()));
    }
    if found.len() > 1 {
        let message = "only one of `response_format`, `grammar` and `regex` can be followed";
        return Err(fields.wrong("response_format", message));
    }
    Ok(found.pop())
}

/// Log-probabilities of tokens, as chat completions and responses have them.
pub(super) fn token_logprobs(token: &crate::TokenLog) -> Value {
    let one = |a: &crate::Alternative| json!({"token": a.text, "logprob": a.finite(), "bytes": a.bytes});
    let mut json = one(&token.token);
    json["top_logprobs"] = token.top.iter().map(one).collect();
    json
}
