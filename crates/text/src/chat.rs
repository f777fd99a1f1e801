//! Chat templates: from messages to the text that a model was trained on.
//!
//! Depends on `minijinja`. A template comes with the model and is a program, so it is given bounded work,
//! memory, nesting and output, and nothing of the machine but the date. It deliberately does not tokenize:
//! the text is encoded without adding special tokens, because the template has written them.
//!
//! The meaning is that of `transformers`' `apply_chat_template`, whose renderings the golden tests hold.

mod clock;
mod environment;
mod guard;
mod json;
mod messages;
mod rebuild;
mod source;

use std::path::Path;

use minijinja::Environment;
use minijinja::machinery::{CodeGenerator, eval, make_string_output, parse};
use serde_json::{Map, Value};

use crate::files::json_type;
use crate::{Error, ErrorKind};
pub use clock::Clock;
pub use messages::{instruct, message, question};
pub use source::ChatTemplateSource;
use source::Sources;

/// Name of a rendering in errors.
const NAME: &str = "chat template";
/// Written after the text of a message that is to be continued, and cut off again with what follows.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Names that a message's reasoning is passed under; the first is what templates read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// What one rendering may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps of the template machine. Default 10 million.
    pub fuel: u64,
    /// Length of the result in bytes. Default 16 MiB.
    pub output_bytes: usize,
    /// Size in bytes of one value that the template makes. Default 16 MiB.
    pub value_bytes: usize,
    /// Bytes of all values that the template makes. Default 512 MiB.
    pub total_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 10_000_000,
            output_bytes: 16 << 20,
            value_bytes: 16 << 20,
            total_bytes: 512 << 20,
        }
    }
}

/// What a rendering is given besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Tool schemas as in the OpenAI API. Without any, templates see `none`.
    pub tools: Option<Vec<Value>>,
    /// Documents to answer from, each an object with `title` and `text`.
    pub documents: Option<Vec<Value>>,
    /// End with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the model continues it. Excludes `add_generation_prompt`.
    pub continue_final_message: bool,
    /// Name of the template, for models with several. By default `tool_use` if there are tools and such a
    /// template, else `default`.
    pub template: Option<String>,
    /// Further variables, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// What `strftime_now` tells.
    pub clock: Clock,
}

impl RenderOptions {
    /// Options for asking the model to answer: ends with the beginning of the assistant's answer.
    pub fn for_generation() -> Self {
        Self {
            add_generation_prompt: true,
            ..Self::default()
        }
    }
}

/// The chat template of a model, or several by name. Immutable and shareable between threads.
#[derive(Debug)]
pub struct ChatTemplate {
    sources: Sources,
    environment: Environment<'static>,
    limits: Limits,
}

impl ChatTemplate {
    /// Loads the chat template of a model folder or bundle: `chat_template.jinja` (and those in
    /// `additional_chat_templates`), else `chat_template.json`, else `chat_template` in
    /// `tokenizer_config.json`, one template or a list of named ones.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTemplate`] if there is none, and those of [`from_source`](Self::from_source).
    pub fn from_dir(folder: &Path) -> Result<Self, Error> {
        Self::with_sources(Sources::from_dir(folder)?)
    }

    /// Loads the chat template from the contents of its files.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTemplate`] if they hold none, [`ErrorKind::InvalidConfig`] for a file of the wrong
    /// form, [`ErrorKind::InvalidTemplate`] if a template does not compile.
    pub fn from_source(source: ChatTemplateSource<'_>) -> Result<Self, Error> {
        Self::with_sources(Sources::new(source)?)
    }

    fn with_sources(mut sources: Sources) -> Result<Self, Error> {
        let limits = Limits::default();
        let internal = |e: minijinja::Error| Error::new(ErrorKind::InvalidTemplate, e.to_string()).with_source(e);
        let environment = environment::environment(limits).map_err(internal)?;
        for (name, template) in &mut sources.templates {
            let prepared = guard::prepare(template, environment.syntax().clone());
            *template = prepared.map_err(|e| template_error(name, e, ErrorKind::InvalidTemplate))?;
            compile(template).map_err(|e| template_error(name, e, ErrorKind::InvalidTemplate))?;
        }
        Ok(Self {
            sources,
            environment,
            limits,
        })
    }

    /// The same template with other limits.
    ///
    /// # Errors
    /// None in practice; the environment is built anew.
    pub fn with_limits(mut self, limits: Limits) -> Result<Self, Error> {
        let internal = |e: minijinja::Error| Error::new(ErrorKind::InvalidTemplate, e.to_string()).with_source(e);
        self.environment = environment::environment(limits).map_err(internal)?;
        self.limits = limits;
        Ok(self)
    }

    /// Names of the templates; a model with one has `default`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.templates.iter().map(|(name, _)| name.as_str())
    }

    /// Whether the template that is taken by default reads a variable, such as `tools` or `enable_thinking`.
    pub fn reads(&self, variable: &str) -> bool {
        let Ok((_, source)) = self.sources.pick(None, variable == "tools") else {
            return false;
        };
        let template = self.environment.template_from_str(source);
        template.is_ok_and(|t| t.undeclared_variables(false).contains(variable))
    }

    /// The text of the template that is taken where there are tools.
    pub fn source_with_tools(&self) -> &str {
        self.sources.pick(None, true).map_or("", |(_, source)| source)
    }

    /// The text of a conversation. Each message is an object with at least `role`; see [`message`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for messages or options of the wrong form, [`ErrorKind::MissingTemplate`]
    /// for an unknown template name, [`ErrorKind::Render`] with the template's own words if it refuses the
    /// conversation, [`ErrorKind::TemplateLimit`] if it costs too much.
    pub fn render(&self, messages: &[Value], options: &RenderOptions) -> Result<String, Error> {
        let has_tools = options.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let (name, source) = self.sources.pick(options.template.as_deref(), has_tools)?;
        let mut messages = checked_messages(messages)?;
        let continued = options
            .continue_final_message
            .then(|| open_final_message(&mut messages, options))
            .transpose()?;
        let root = self.root(&messages, options)?;

        let failed = |e: minijinja::Error| template_error(name, e, ErrorKind::Render);
        let (instructions, blocks) = compile(source).map_err(failed)?;
        let mut text = String::new();
        {
            let mut output = make_string_output(&mut text);
            let escape = minijinja::AutoEscape::None;
            eval(&self.environment, &instructions, root, &blocks, &mut output, escape).map_err(failed)?;
        }
        if text.len() > self.limits.output_bytes {
            let message = format!(
                "chat template `{name}` wrote {} bytes, at most {} are allowed",
                text.len(),
                self.limits.output_bytes
            );
            return Err(Error::new(ErrorKind::TemplateLimit, message));
        }
        match continued {
            Some(content) => cut_at_tag(text, &content),
            None => Ok(text),
        }
    }

    /// The variables that the template sees.
    fn root(&self, messages: &[Value], options: &RenderOptions) -> Result<minijinja::Value, Error> {
        let list = |items: &Option<Vec<Value>>| match items {
            Some(items) => items.iter().map(template_value).collect(),
            None => minijinja::Value::from(()),
        };
        if let Some(documents) = &options.documents
            && let Some(other) = documents.iter().find(|d| !d.is_object())
        {
            let message = format!(
                "a document is {}, expected an object with `title` and `text`",
                json_type(other)
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let own = [
            ("messages", messages.iter().map(template_value).collect()),
            ("tools", list(&options.tools)),
            ("documents", list(&options.documents)),
            (
                "add_generation_prompt",
                minijinja::Value::from(options.add_generation_prompt),
            ),
            ("strftime_now", environment::strftime_now(options.clock)),
        ];
        if let Some((name, _)) = own.iter().find(|(name, _)| options.variables.contains_key(*name)) {
            let message =
                format!("`{name}` cannot be passed as an extra variable, because it has an argument of its own");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let special = self.sources.special_tokens.iter();
        let variables = special.map(|(name, text)| (name.clone(), minijinja::Value::from(text.as_str())));
        let given = options
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), template_value(value)));
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        Ok(minijinja::Value::from_pairs(variables.chain(given).chain(own)))
    }
}

type Compiled<'a> = (
    minijinja::machinery::Instructions<'a>,
    std::collections::BTreeMap<&'a str, minijinja::machinery::Instructions<'a>>,
);

/// Parses a prepared template, puts the guards in and compiles it.
fn compile(source: &str) -> Result<Compiled<'_>, minijinja::Error> {
    let tree = parse(source, NAME, environment::syntax()?)?;
    let guarded = rebuild::rebuild(&tree)?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&guarded);
    Ok(generator.finish())
}

fn template_error(name: &str, error: minijinja::Error, kind: ErrorKind) -> Error {
    let detail = error.detail().unwrap_or_default();
    let (kind, message) = if let Some(reason) = detail.strip_prefix(environment::RAISED) {
        (
            ErrorKind::Render,
            format!("chat template `{name}` refused the conversation: {reason}"),
        )
    } else if guard::is_limit(&error) {
        (
            ErrorKind::TemplateLimit,
            format!("chat template `{name}` exceeded a limit: {error}"),
        )
    } else if kind == ErrorKind::InvalidTemplate {
        (kind, format!("chat template `{name}` does not compile: {error}"))
    } else {
        (kind, format!("chat template `{name}` failed: {error}"))
    };
    Error::new(kind, message).with_source(error)
}

/// Copies of the messages, with reasoning under every name that templates read it by.
fn checked_messages(messages: &[Value]) -> Result<Vec<Value>, Error> {
    let invalid = |index: usize, found: String| {
        let message = format!("message {index} {found}, expected an object with a `role`");
        Error::new(ErrorKind::InvalidInput, message)
    };
    let mut copies = messages.to_vec();
    for (index, copy) in copies.iter_mut().enumerate() {
        let found = json_type(copy);
        let Value::Object(fields) = copy else {
            return Err(invalid(index, format!("is {found}")));
        };
        if !fields.get("role").is_some_and(Value::is_string) {
            return Err(invalid(index, "has no text under `role`".to_owned()));
        }
        let reasoning = REASONING_FIELDS
            .iter()
            .find_map(|name| fields.get(*name).filter(|v| !v.is_null()));
        if let Some(reasoning) = reasoning.cloned() {
            fields.entry("thinking").or_insert_with(|| reasoning.clone());
            fields.insert("reasoning_content".to_owned(), reasoning);
        }
    }
    Ok(copies)
}

/// Marks the end of the last message's text, which is returned.
fn open_final_message(messages: &mut [Value], options: &RenderOptions) -> Result<String, Error> {
    let invalid = |message: &str| Error::new(ErrorKind::InvalidInput, message);
    if options.add_generation_prompt {
        return Err(invalid(
            "`continue_final_message` and `add_generation_prompt` cannot be used together",
        ));
    }
    let missing = || invalid("there is no final message with text to continue");
    let content = messages
        .last_mut()
        .and_then(|last| last.get_mut("content"))
        .ok_or_else(missing)?;
    let text = match content {
        Value::Array(parts) => parts
            .iter_mut()
            .rev()
            .find_map(|part| part.get_mut("text"))
            .ok_or_else(missing)?,
        text => text,
    };
    let Value::String(text) = text else {
        return Err(missing());
    };
    let before = text.clone();
    text.push_str(CONTINUE_TAG);
    Ok(before)
}

fn cut_at_tag(mut text: String, content: &str) -> Result<String, Error> {
    let tag = CONTINUE_TAG.trim_end();
    match text.rfind(tag) {
        Some(at) if text.contains(content.trim()) => {
            // Without the space that ends the tag, the template trims messages: so the cut trims too.
            let trimmed = !text[at..].starts_with(CONTINUE_TAG);
            text.truncate(at);
            if trimmed {
                text.truncate(text.trim_end().len());
            }
            Ok(text)
        }
        _ => {
            let message = "the final message cannot be continued, because the chat template changes its text";
            Err(Error::new(ErrorKind::Render, message))
        }
    }
}

/// JSON as the template machine's values. The depth of `serde_json`'s own parser bounds the recursion.
fn template_value(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(value) => minijinja::Value::from(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => minijinja::Value::from(value),
            (_, Some(value), _) => minijinja::Value::from(value),
            (_, _, value) => minijinja::Value::from(value.unwrap_or(f64::NAN)),
        },
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => items.iter().map(template_value).collect(),
        Value::Object(fields) => minijinja::Value::from_pairs(
            fields
                .iter()
                .map(|(name, value)| (name.as_str(), template_value(value))),
        ),
    }
}
