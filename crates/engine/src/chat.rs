//! A conversation in the form of the OpenAI API, made into what is generated from, and the answer made into a message again.
//!
//! [`Chat::new`] takes messages, tools and what the answer has to follow, and gives the prompt by the model's template, a
//! constraint and a [`MessageReader`]. The command line, HTTP, C and Python all come this way, so what a request means is
//! decided here once:
//!
//! - Tools are told by the template where it has a place for them, in words where it has none (`prompted`).
//! - A call is bound to the schema of its tool, an answer to the format, and reasoning before either to nothing (`guide`).
//! - What users wrote cannot spell tokens that mark structure (`plain`).
//!
//! It may depend on `text`. It deliberately generates nothing.

mod attached;
mod films;
mod guide;
mod messages;
mod plain;
mod prompted;
mod reader;
mod shown;
mod values;

use crate::constraints::Constraints;
use crate::media::Media;
use crate::scheduler::Request;
use crate::{CancelToken, Error, GenerateOptions, Model, Result};
pub use attached::{
    Data, MAX_FILE_BYTES, MediaFile, Sense, WrongPart, check_files, file_bytes, media_of_part, picture_of_part,
    picture_of_url, sound_of_part, to_base64,
};
use cactus_text::grammar::{Constraint, Grammar, Reasoning};
use cactus_text::tools::{CallFormat, ParserOptions, most_relevant, prepare_messages};
pub use cactus_text::tools::{Delta, Message, Tool, ToolCall, ToolChoice};
use cactus_text::{ChatTemplate, ErrorKind, RenderOptions, Tokenizer};
pub use films::{Timing, film_of_part};
use messages::Checked;
use plain::Plain;
pub use reader::MessageReader;
use serde_json::{Map, Value};
pub use shown::{Asking, Shown, Shows, Unshown};
use shown::{Contents, File};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
pub use values::ValueTokens;

/// Most messages of a request.
const MAX_MESSAGES: usize = 4096;
/// Most bytes of all messages together, and of all tools.
const MAX_BYTES: usize = 8 << 20;
/// Most tools that are offered to the model.
pub const MAX_TOOLS: usize = 256;
/// Most tools to choose from with [`ChatRequest::most_tools`].
pub const MAX_TOOLS_TO_CHOOSE: usize = 16_384;

/// What is asked of a model. The fields are those of the OpenAI API under other names where those say more.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Messages in the form of the OpenAI API: roles `system`, `developer`, `user`, `assistant` and `tool`; the content a
    /// string, null, or parts of the types `text`, `image`, `audio` and `video` ([`media_of_part`]); `tool_calls`, `tool_call_id` and `reasoning_content`.
    pub messages: Vec<Value>,
    /// The pictures of the parts of the type `image` that come without a file, in the order in which these stand in all messages.
    pub pictures: Vec<Shown>,
    /// The sounds of the parts of the type `audio` that come without a file, in the same way.
    pub sounds: Vec<Shown>,
    /// The films of the parts of the type `video` that come without frames, in the same way.
    pub films: Vec<Shown>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Which of them it may, or has to, call. With [`ToolChoice::None`] the model is not told of any.
    pub tool_choice: ToolChoice,
    /// It may make several calls at once.
    pub parallel_calls: bool,
    /// What the answer has to follow, if it is no call.
    pub format: Option<Grammar>,
    /// Whether the model reasons before it answers. `None`: as its template has it.
    pub reasoning: Option<bool>,
    /// Further variables of the template. They go before what `reasoning` sets.
    pub template_variables: Map<String, Value>,
    /// Offer only so many of the tools, those that the user's last message is most likely about, and those that the choice
    /// names.
    pub most_tools: Option<usize>,
    /// How near each of the tools is to that message, if a model of vectors was asked; it counts beside the words.
    pub tool_nearness: Option<Vec<f32>>,
    /// The context rolls, so pictures, sounds and films that do not fit it together are no error: the oldest are let go.
    pub rolls: bool,
    /// The last message is the beginning of the answer.
    pub continue_final: bool,
    /// What was computed and compiled for others is used again for requests of equal salt only: a tenant's own number keeps
    /// others from learning by the time of an answer what was asked before. 0 by default.
    pub salt: u64,
    /// Stops looking at pictures and films and listening to sounds of the conversation, from any thread.
    pub cancel: CancelToken,
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            pictures: Vec::new(),
            sounds: Vec::new(),
            films: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_calls: true,
            format: None,
            reasoning: None,
            template_variables: Map::new(),
            most_tools: None,
            tool_nearness: None,
            rolls: false,
            continue_final: false,
            salt: 0,
            cancel: CancelToken::new(),
        }
    }
}

/// A request made ready.
#[derive(Debug, Clone)]
pub struct Chat {
    /// The tokens to generate from.
    pub prompt: Vec<u32>,
    /// The same as text, with special tokens as they are spelled.
    pub text: String,
    /// What may be generated; `None` if anything may.
    pub constraint: Option<Constraint>,
    /// What the caller should know, such as what of the tools' schemas is not enforced.
    pub notes: Vec<String>,
    /// Reads the answer.
    pub reader: MessageReader,
    /// The tools that the model was told of.
    pub tools: Vec<Tool>,
    /// Whether the answer's first token is its text: not reasoning, and not the name of a channel.
    pub begins_with_text: bool,
    salt: u64,
    /// Kept until they are computed.
    media: Vec<Arc<Media>>,
}

impl ChatRequest {
    /// The question by which tools are chosen, where only some of them are offered.
    #[must_use]
    pub fn chooses_tools_for(&self) -> Option<String> {
        let chooses = self.most_tools.is_some_and(|k| k < self.tools.len());
        if !chooses || self.tool_choice == ToolChoice::None || self.tools.len() > MAX_TOOLS_TO_CHOOSE {
            return None;
        }
        cactus_text::question(&self.messages)
    }

    /// The tools that a model is told of: those that are likeliest to help, where [`ChatRequest::most_tools`] says how many.
    ///
    /// # Errors
    /// [`Error::Request`] that names the field.
    pub fn offered(&self) -> Result<Vec<Tool>> {
        let messages = messages::checked(&self.messages)?.messages;
        offered(self, messages::last_question(&messages))
    }
}

impl Chat {
    /// Makes a request ready for `model`.
    ///
    /// # Errors
    /// [`Error::Request`] that names the field, for a request of the wrong form, one that the model's template refuses, or a
    /// schema that cannot be enforced; [`Error::NoTokenizer`].
    pub fn new(model: &Model, request: &ChatRequest) -> Result<Chat> {
        let Some(template) = model.chat_template()? else {
            let what = "the model has no chat template, so it continues plain text and takes no messages";
            return Err(request_error("messages", what));
        };
        let tokenizer = model.tokenizer()?;
        let show = |files| shown::shown(model, files, request);
        let (mut chat, media) = Self::with(template, tokenizer, request, show, || model.constraints())?;
        chat.prompt = shown::placed(tokenizer, chat.prompt, &media)?;
        chat.media = media.into_iter().map(|shown| shown.media).collect();
        Ok(chat)
    }

    /// The pictures, sounds and films of the prompt.
    pub fn media(&self) -> &[Arc<Media>] {
        &self.media
    }

    /// What the scheduler is asked for. The pieces that come back go to [`Chat::reader`], special tokens included.
    pub fn request(&self, options: GenerateOptions) -> Request {
        Request {
            constraint: self.constraint.clone(),
            keep_special: true,
            media: self.media.clone(),
            salt: self.salt,
            ..Request::new(self.prompt.clone(), options)
        }
    }

    /// Makes a text ready that `model` continues as it is, without a template. With a `format`, what follows the text has to
    /// follow it.
    ///
    /// # Errors
    /// [`Error::Request`] for a format that cannot be enforced; [`Error::NoTokenizer`].
    pub fn of_text(model: &Model, text: &str, format: Option<&Grammar>) -> Result<Chat> {
        let tokenizer = model.tokenizer()?;
        let calls = CallFormat::of_text("");
        let asked = guide::Asked {
            calls,
            tools: &[],
            choice: &ToolChoice::None,
            single: false,
            format,
            reasoning: None,
        };
        let constraint = match format {
            None => None,
            Some(_) => guide::constraint(model.constraints()?, &asked, 0, &mut Vec::new())?,
        };
        let reader = MessageReader::new(calls, tokenizer, ParserOptions::default());
        Ok(Chat {
            prompt: tokenizer.encode(text, true)?,
            text: text.to_owned(),
            constraint,
            notes: Vec::new(),
            reader,
            tools: Vec::new(),
            begins_with_text: true,
            salt: 0,
            media: Vec::new(),
        })
    }

    fn with<'c>(
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
        request: &ChatRequest,
        show: impl FnOnce(Vec<File>) -> Result<Vec<Shown>>,
        constraints: impl FnOnce() -> Result<&'c Constraints>,
    ) -> Result<(Chat, Vec<Shown>)> {
        let mut notes = Vec::new();
        let Checked { messages, files } = messages::checked(&request.messages)?;
        let odd = |value: &Value| shown::PLACES.iter().any(|c| contains(value, *c));
        let told = |tool: &Tool| odd(&prompted::tool_json(tool));
        // Of messages their texts have been looked at; arguments of calls are texts only now.
        let calls = messages.iter().filter_map(|message| message.get("tool_calls"));
        let odd_field = [
            ("messages", calls.into_iter().any(odd)),
            ("tools", request.tools.iter().any(told)),
            ("template_variables", request.template_variables.values().any(odd)),
        ];
        if let Some((field, _)) = odd_field.iter().find(|(_, found)| *found) {
            return Err(request_error(*field, "the texts hold code points that are no text"));
        }
        let media = show(files)?;
        let tools = offered(request, messages::last_question(&messages))?;
        let conversation = Conversation::new(template, &messages, &tools);
        let rendered = conversation.prompt(tokenizer, request, &media, messages, &mut notes)?;
        let asked = guide::Asked {
            calls: conversation.format,
            tools: &tools,
            choice: &request.tool_choice,
            single: !request.parallel_calls,
            format: request.format.as_ref(),
            reasoning: rendered.reasoning,
        };
        let harmony = conversation.format.name() == Some("harmony");
        if harmony && request.format.is_some() {
            let what = "an answer in the harmony form of this model cannot be held to a format";
            return Err(request_error("format", what));
        }
        let constraint = match tools.is_empty() && request.format.is_none() {
            true => None,
            false => guide::constraint(constraints()?, &asked, request.salt, &mut notes)?,
        };
        if constraint.is_none() && !tools.is_empty() {
            notes.push("calls in the form of this model are not constrained".to_owned());
        }
        let mut hasher = DefaultHasher::new();
        rendered.prompt.hash(&mut hasher);
        let options = ParserOptions {
            tools: tools.clone(),
            in_reasoning: rendered.in_reasoning,
            // Only what is constrained never turns out to be no call.
            stream_arguments: constraint.is_some(),
            seed: hasher.finish(),
            ..ParserOptions::default()
        };
        let chat = Chat {
            prompt: rendered.prompt,
            text: rendered.text,
            constraint,
            notes,
            reader: MessageReader::new(conversation.format, tokenizer, options),
            tools,
            begins_with_text: !rendered.in_reasoning && !harmony,
            salt: request.salt,
            media: Vec::new(),
        };
        Ok((chat, media))
    }
}

/// The tools that the model is told of.
fn offered(request: &ChatRequest, question: &str) -> Result<Vec<Tool>> {
    let tools = &request.tools;
    let most = if request.most_tools.is_some() {
        MAX_TOOLS_TO_CHOOSE
    } else {
        MAX_TOOLS
    };
    if tools.len() > most {
        let found = tools.len();
        let what = format!("expected at most {most} tools, found {found}");
        return Err(request_error("tools", what));
    }
    let bytes: usize = tools
        .iter()
        .map(|tool| tool.description.len() + messages::bytes(&tool.parameters))
        .sum();
    if bytes > MAX_BYTES {
        let what = format!("expected at most {MAX_BYTES} bytes of tools, found {bytes}");
        return Err(request_error("tools", what));
    }
    let mut names = HashSet::new();
    if let Some(i) = tools.iter().position(|tool| !names.insert(tool.name.as_str())) {
        let what = format!("another tool before it has the name `{}`", tools[i].name);
        return Err(request_error(format!("tools[{i}].function.name"), what));
    }
    let choice = &request.tool_choice;
    choice.pick(tools).map_err(|e| request_error("tool_choice", e))?;
    let named = |tool: &Tool| match choice {
        ToolChoice::Named(name) => tool.name == *name,
        ToolChoice::Allowed { names, .. } => names.contains(&tool.name),
        _ => false,
    };
    if *choice == ToolChoice::None {
        return Ok(Vec::new());
    }
    let Some(k) = request.most_tools.filter(|&k| k < tools.len()) else {
        return Ok(tools.clone());
    };
    if k == 0 || k > MAX_TOOLS {
        let what = format!("expected 1 to {MAX_TOOLS}, found {k}");
        return Err(request_error("most_tools", what));
    }
    let near = request.tool_nearness.as_deref();
    if let Some(near) = near.filter(|near| near.len() != tools.len()) {
        let what = format!(
            "expected a number for each of {} tools, found {}",
            tools.len(),
            near.len()
        );
        return Err(request_error("tool_nearness", what));
    }
    let chosen: HashSet<usize> = most_relevant(tools, question, near, k).into_iter().collect();
    let each = tools.iter().enumerate();
    let kept = each.filter(|(i, tool)| chosen.contains(i) || named(tool));
    Ok(kept.map(|(_, tool)| tool.clone()).collect())
}

/// How a conversation is told to a model.
struct Conversation<'a> {
    template: &'a ChatTemplate,
    format: CallFormat,
    /// Tools as templates take them.
    tools: Vec<Value>,
    /// The template has no place for tools.
    prompted: bool,
}

/// A conversation as the model gets it.
struct Rendered {
    prompt: Vec<u32>,
    text: String,
    in_reasoning: bool,
    reasoning: Option<Reasoning>,
}

impl<'a> Conversation<'a> {
    fn new(template: &'a ChatTemplate, messages: &[Value], tools: &[Tool]) -> Self {
        let own = CallFormat::of_template(template);
        let knows = template.reads("tools") && own.name().is_some();
        let calls = |message: &Value| message["role"] == "tool" || message.get("tool_calls").is_some();
        let prompted = !knows && (!tools.is_empty() || messages.iter().any(calls));
        Self {
            template,
            format: if prompted { own.told_in_words() } else { own },
            tools: tools.iter().map(prompted::tool_json).collect(),
            prompted,
        }
    }

    fn prompt(
        &self,
        tokenizer: &Tokenizer,
        request: &ChatRequest,
        media: &[Shown],
        mut messages: Vec<Value>,
        notes: &mut Vec<String>,
    ) -> Result<Rendered> {
        let mut tools = self.tools.clone();
        let holds = |c: char| {
            let values = messages.iter().chain(&tools).chain(request.template_variables.values());
            values.into_iter().any(|value| contains(value, c))
        };
        let own = if self.prompted { prompted::MARKERS } else { "" };
        let plain = Plain::new(tokenizer, [self.template.source_with_tools(), own], holds);
        let mut plain =
            plain.ok_or_else(|| request_error("messages", "the texts hold code points that are no text"))?;
        let reasoning_marks: Vec<&str> = self
            .format
            .reasoning()
            .map(|(open, close)| [open.trim_end(), close])
            .into_iter()
            .flatten()
            .collect();
        for message in &mut messages {
            // Templates look for reasoning in what the assistant said.
            let own = message["role"] == "assistant";
            plain.message(message, if own { &reasoning_marks } else { &[] });
        }
        tools.iter_mut().for_each(|tool| plain.value(tool, &[]));

        if request.continue_final && messages.last().is_none_or(|last| last["role"] != "assistant") {
            let at = format!("messages[{}].role", messages.len() - 1);
            return Err(request_error(
                at,
                "to be continued, the last message has to be of the assistant",
            ));
        }
        let continued = messages.last().filter(|_| request.continue_final);
        let continued = continued.and_then(|last| last["content"].as_str()).map(str::to_owned);
        if self.prompted {
            messages = prompted::rewritten(messages, &tools, self.format)?;
        }
        let mut options = RenderOptions {
            tools: (!self.prompted && !tools.is_empty()).then_some(tools),
            add_generation_prompt: !request.continue_final,
            continue_final_message: request.continue_final,
            variables: request.template_variables.clone(),
            ..RenderOptions::default()
        };
        let switched = self.switch_reasoning(request, &mut options.variables);
        let written = shown::written(media);
        let rendered = self.render(&messages, &options, written, notes)?;
        let mut rendered = shown::expanded(&rendered, media)?;

        let mut in_reasoning = match &continued {
            None => self.format.begins_in_reasoning(&rendered),
            Some(text) => self.is_open(text),
        };
        if request.reasoning == Some(false) && !switched {
            match self.format.reasoning() {
                Some((_, close)) if in_reasoning && continued.is_none() => {
                    rendered = format!("{}\n\n{close}\n\n", rendered.trim_end());
                    in_reasoning = false;
                }
                Some(_) if !self.tools.is_empty() || request.format.is_some() => {}
                Some(_) => notes.push("the chat template of this model has no switch for reasoning".to_owned()),
                None => {}
            }
        }
        Ok(Rendered {
            prompt: plain.encode(&rendered)?,
            reasoning: self.reasoning(request, &rendered, in_reasoning),
            text: plain.restored(&rendered),
            in_reasoning,
        })
    }

    fn render(
        &self,
        messages: &[Value],
        options: &RenderOptions,
        written: shown::Written<'_>,
        notes: &mut Vec<String>,
    ) -> Result<String> {
        let contents = Contents::of(self.template, written);
        let refused = |e: cactus_text::Error| request_error("messages", e);
        let render = |messages: &[Value]| {
            let prepared = prepare_messages(self.template, messages)?;
            self.template.render(&contents.given(prepared, written), options)
        };
        let error = match render(messages) {
            Ok(rendered) => return Ok(rendered),
            Err(error) => error,
        };
        // Some templates refuse the role `system`.
        if error.kind() == ErrorKind::Render
            && let Some(merged) = messages::without_system(messages)
            && let Ok(rendered) = render(&merged)
        {
            notes.push("the model knows no system message; its text begins the first message of the user".to_owned());
            return Ok(rendered);
        }
        Err(refused(error))
    }

    /// Sets the variables by which templates turn reasoning on and off. Whether the template reads one.
    fn switch_reasoning(&self, request: &ChatRequest, variables: &mut Map<String, Value>) -> bool {
        let Some(on) = request.reasoning else { return false };
        let mut switched = false;
        for name in ["enable_thinking", "thinking"] {
            if self.template.reads(name) {
                switched = true;
                variables.entry(name).or_insert(Value::from(on));
            }
        }
        if self.template.reads("reasoning_effort") {
            switched = true;
            let harmony = self.format.name() == Some("harmony");
            // Models of the harmony form always reason.
            match (on, harmony) {
                (true, _) => {}
                (false, true) => drop(variables.entry("reasoning_effort").or_insert(Value::from("low"))),
                (false, false) => drop(variables.entry("reasoning_effort").or_insert(Value::from("none"))),
            }
        }
        switched
    }

    /// Whether a text ends inside reasoning.
    fn is_open(&self, text: &str) -> bool {
        let Some((open, close)) = self.format.reasoning() else {
            return false;
        };
        let opened = text.rfind(open.trim_end());
        opened.is_some_and(|opened| text.rfind(close).is_none_or(|closed| closed < opened))
    }

    /// What reasoning may come before an answer that is constrained.
    fn reasoning(&self, request: &ChatRequest, rendered: &str, in_reasoning: bool) -> Option<Reasoning> {
        let (open, close) = self.format.reasoning()?;
        let reasoning = |open: Option<&str>, required| Reasoning {
            open: open.map(str::to_owned),
            close: close.to_owned(),
            required,
        };
        if in_reasoning {
            return Some(reasoning(None, true));
        }
        let over = request.continue_final || rendered.trim_end().ends_with(close);
        match request.reasoning {
            _ if over => None,
            Some(false) => None,
            wanted => Some(reasoning(Some(open), wanted == Some(true))),
        }
    }
}

/// Whether a text in `value` has the letter `c`.
fn contains(value: &Value, c: char) -> bool {
    match value {
        Value::String(text) => text.contains(c),
        Value::Array(items) => items.iter().any(|item| contains(item, c)),
        Value::Object(fields) => fields.iter().any(|(key, field)| key.contains(c) || contains(field, c)),
        _ => false,
    }
}

/// An error about a field of a request.
fn request_error(field: impl Into<String>, message: impl ToString) -> Error {
    Error::Request {
        field: field.into(),
        message: message.to_string(),
    }
}

#[cfg(test)]
mod tests;
