//! What is asked of a target.

use crate::{Error, ErrorKind, Message, Part, Result, Role};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A request for one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The conversation. The last message is not the assistant's: going on with a half-written answer is not portable.
    pub messages: Vec<Message>,
    /// Tools that may be called.
    pub tools: Vec<Tool>,
    /// Which of them have to be.
    pub tool_choice: ToolChoice,
    /// Whether one answer may hold several calls.
    pub parallel_calls: bool,
    /// What the answer's text must be.
    pub format: Format,
    /// Most tokens of the answer, reasoning included. It bounds what the request can cost, so it is always sent.
    pub max_output_tokens: u32,
    /// How tokens are drawn. What a target does not know is left out, and noted.
    pub sampling: Sampling,
    /// The answer ends before any of these.
    pub stop: Vec<String>,
    /// How much to think; `None` leaves it to the target.
    pub effort: Option<Effort>,
    /// Whether the answer comes piece by piece.
    pub stream: bool,
}

impl Request {
    /// A streamed request without tools and options.
    #[must_use]
    pub fn new(messages: Vec<Message>, max_output_tokens: u32) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_calls: true,
            format: Format::Text,
            max_output_tokens,
            sampling: Sampling::default(),
            stop: Vec::new(),
            effort: None,
            stream: true,
        }
    }

    /// Whether every target could understand it: roles hold what belongs to them, results answer calls, the tool to be called
    /// is there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], naming the message or the tool.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::InvalidRequest, message));
        if self.max_output_tokens == 0 {
            return wrong("`max_output_tokens` is 0, expected at least 1".into());
        }
        let mut open = HashSet::new();
        for (at, message) in self.messages.iter().enumerate() {
            for part in &message.parts {
                let fits = match part {
                    Part::Text(_) => message.role != Role::Tool,
                    Part::Image(_) | Part::Audio(_) => message.role == Role::User,
                    Part::ToolCall(_) | Part::Reasoning(_) => message.role == Role::Assistant,
                    Part::ToolResult(_) => message.role == Role::Tool,
                };
                if !fits {
                    let found = part.kind();
                    return wrong(format!(
                        "messages[{at}]: found {found} in a message of role {:?}",
                        message.role
                    ));
                }
                match part {
                    Part::ToolCall(call) if !open.insert(call.id.as_str()) => {
                        return wrong(format!("messages[{at}]: the call id `{}` is used twice", call.id));
                    }
                    Part::ToolResult(result) if !open.contains(result.call_id.as_str()) => {
                        let id = &result.call_id;
                        return wrong(format!("messages[{at}]: the result `{id}` answers no earlier call"));
                    }
                    _ => {}
                }
            }
        }
        match self.messages.last().map(|m| m.role) {
            None => return wrong("there are no messages".into()),
            Some(Role::User | Role::Tool) => {}
            Some(role) => return wrong(format!("the last message has role {role:?}, expected User or Tool")),
        }
        let mut names = HashSet::new();
        for tool in &self.tools {
            if !names.insert(tool.name.as_str()) {
                return wrong(format!("the tool `{}` is given twice", tool.name));
            }
        }
        match &self.tool_choice {
            ToolChoice::Named(name) if !names.contains(name.as_str()) => {
                wrong(format!("the tool `{name}` has to be called and is not given"))
            }
            ToolChoice::Required if names.is_empty() => wrong("a tool has to be called and none is given".into()),
            _ => Ok(()),
        }
    }

    /// Numbers the calls anew, and their results with them: what an id was made of is its maker's. The form `call00001` is one
    /// that each vendor takes.
    pub fn number_calls(&mut self) {
        let mut numbers: HashMap<String, String> = HashMap::new();
        for part in self.messages.iter_mut().flat_map(|message| &mut message.parts) {
            let id = match part {
                Part::ToolCall(call) => &mut call.id,
                Part::ToolResult(result) => &mut result.call_id,
                _ => continue,
            };
            let next = format!("call{:05}", numbers.len() + 1);
            *id = numbers.entry(std::mem::take(id)).or_insert(next).clone();
        }
    }

    /// Shows `visit` all content that leaves with this request and was written by a person, a model or a tool, always in the same
    /// order: texts, arguments and results of every turn, descriptions and schemas of tools and of the answer, stop strings,
    /// pictures and recordings. Arguments that are not JSON are shown as text. Names of tools are not shown, and neither are ids, which
    /// [`Request::number_calls`] replaces. Opaque data
    /// is not shown either: it is its issuer's, and only its issuer gets it back. The text of reasoning never leaves: what its
    /// issuer needs is in the opaque data.
    pub fn visit_content(&mut self, visit: &mut dyn FnMut(Place, Content<'_>)) {
        for message in &mut self.messages {
            for part in &mut message.parts {
                match part {
                    Part::Text(text) => visit(Place::Message(message.role), Content::Text(text)),
                    Part::ToolCall(call) => match serde_json::from_str::<Value>(&call.arguments) {
                        Ok(mut value) => {
                            let before = value.clone();
                            visit(Place::Arguments, Content::Json(&mut value));
                            // What the model wrote is kept as it wrote it where nothing was replaced.
                            if value != before {
                                call.arguments = value.to_string();
                            }
                        }
                        Err(_) => visit(Place::Arguments, Content::Text(&mut call.arguments)),
                    },
                    Part::ToolResult(result) => visit(Place::Result, Content::Text(&mut result.content)),
                    Part::Image(_) => visit(Place::Image, Content::Bytes),
                    Part::Audio(_) => visit(Place::Audio, Content::Bytes),
                    Part::Reasoning(_) => {}
                }
            }
        }
        for tool in &mut self.tools {
            visit(Place::Tool, Content::Text(&mut tool.description));
            visit(Place::Tool, Content::Json(&mut tool.parameters));
        }
        if let Format::JsonSchema { schema, .. } = &mut self.format {
            visit(Place::Format, Content::Json(schema));
        }
        for stop in &mut self.stop {
            visit(Place::Stop, Content::Text(stop));
        }
    }
}

impl Part {
    /// Its kind, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Image(_) => "an image",
            Self::Audio(_) => "audio",
            Self::ToolCall(_) => "a tool call",
            Self::ToolResult(_) => "a tool result",
            Self::Reasoning(_) => "reasoning",
        }
    }
}

/// Something that leaves with a request.
#[derive(Debug)]
pub enum Content<'a> {
    /// Text.
    Text(&'a mut String),
    /// Structure.
    Json(&'a mut Value),
    /// What is no text.
    Bytes,
}

/// Where content stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a message of this role.
    Message(Role),
    /// In the arguments of a call.
    Arguments,
    /// In the result of a call.
    Result,
    /// A picture.
    Image,
    /// A recording.
    Audio,
    /// In the description or the parameters of a tool.
    Tool,
    /// In the schema of the answer.
    Format,
    /// In a stop string.
    Stop,
}

/// A tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Letters, digits, `_` and `-`; at most 64.
    pub name: String,
    /// What it does; may be empty.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Value,
    /// Whether arguments must follow the schema exactly, where the target can see to that.
    pub strict: bool,
}

/// Which tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// What the text of an answer must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Anything.
    #[default]
    Text,
    /// Some JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema {
        /// A name for the schema: letters, digits, `_` and `-`.
        name: String,
        /// JSON Schema.
        schema: Value,
        /// Whether it must be followed exactly.
        strict: bool,
    },
}

/// How tokens are drawn; `None` leaves it to the target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// From 0; some targets stop at 1, others at 2.
    pub temperature: Option<f32>,
    /// In (0, 1].
    pub top_p: Option<f32>,
    /// At least 1.
    pub top_k: Option<u32>,
    /// Repeats an answer, as far as the target keeps to it.
    pub seed: Option<u64>,
}

/// How much to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// Not at all, or as little as the target allows.
    None,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Media, ToolCall, ToolResult};
    use serde_json::json;

    fn call(id: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: "{}".into(),
            opaque: None,
        })
    }

    fn result(id: &str) -> Part {
        Part::ToolResult(ToolResult {
            call_id: id.into(),
            name: "f".into(),
            content: "1".into(),
            is_error: false,
        })
    }

    fn message(role: Role, parts: Vec<Part>) -> Message {
        Message { role, parts }
    }

    #[test]
    fn check_names_what_no_target_understands() {
        let user = || Message::text(Role::User, "hi");
        let image = Part::Image(Media {
            mime: "image/png".into(),
            bytes: Arc::from(*b"x"),
        });
        use std::sync::Arc;
        let cases = [
            (vec![], "no messages"),
            (vec![Message::text(Role::Assistant, "a")], "last message"),
            (
                vec![user(), message(Role::System, vec![image]), user()],
                "found an image",
            ),
            (vec![message(Role::Tool, vec![result("a")])], "answers no earlier call"),
            (
                vec![message(Role::Assistant, vec![call("a"), call("a")]), user()],
                "used twice",
            ),
            (vec![message(Role::User, vec![call("a")])], "found a tool call"),
        ];
        for (messages, want) in cases {
            let error = Request::new(messages, 5).check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(want), "{want}: {error}");
        }
        let good = vec![
            user(),
            message(Role::Assistant, vec![call("a")]),
            message(Role::Tool, vec![result("a")]),
        ];
        let mut request = Request::new(good, 5);
        request.check().unwrap();
        request.tool_choice = ToolChoice::Named("g".into());
        assert!(request.check().unwrap_err().to_string().contains("`g`"));
        request.tool_choice = ToolChoice::Required;
        assert!(request.check().is_err());
    }

    #[test]
    fn numbered_calls_keep_their_results_and_nothing_of_their_ids() {
        let calls = message(Role::Assistant, vec![call("c-bob@example.com"), call("b")]);
        let results = message(Role::Tool, vec![result("b"), result("c-bob@example.com")]);
        let mut request = Request::new(vec![Message::text(Role::User, "hi"), calls, results], 5);
        request.number_calls();
        request.check().unwrap();
        let calls = vec![call("call00001"), call("call00002")];
        assert_eq!(request.messages[1].parts, calls);
        assert_eq!(request.messages[2].parts, [result("call00002"), result("call00001")]);
    }

    #[test]
    fn visit_content_reaches_every_place_and_leaves_json_valid() {
        let secret = "secret\"";
        let mut calling = call("a");
        if let Part::ToolCall(call) = &mut calling {
            call.arguments = json!({secret: [secret, 1, {"x": secret}]}).to_string();
        }
        let mut answer = result("a");
        if let Part::ToolResult(result) = &mut answer {
            result.content = secret.into();
        }
        let mut request = Request::new(
            vec![
                Message::text(Role::System, secret),
                Message::text(Role::User, secret),
                message(Role::Assistant, vec![calling]),
                message(Role::Tool, vec![answer]),
            ],
            5,
        );
        request.tools.push(Tool {
            name: "f".into(),
            description: secret.into(),
            parameters: json!({"properties": {"x": {"description": secret}}}),
            strict: false,
        });
        request.format = Format::JsonSchema {
            name: "n".into(),
            schema: json!({"title": secret}),
            strict: true,
        };
        request.stop.push(secret.into());
        let mut seen = 0;
        request.visit_content(&mut |_, content| match content {
            Content::Text(text) => {
                seen += text.matches(secret).count();
                *text = text.replace(secret, "<1>");
            }
            Content::Json(value) => {
                let escaped = r#"secret\""#;
                let text = value.to_string();
                seen += text.matches(escaped).count();
                *value = serde_json::from_str(&text.replace(escaped, "<1>")).unwrap();
            }
            Content::Bytes => unreachable!(),
        });
        assert_eq!(seen, 10);
        assert!(!format!("{request:?}").contains("secret"));
        let Part::ToolCall(call) = &request.messages[2].parts[0] else {
            unreachable!()
        };
        assert_eq!(call.arguments, r#"{"<1>":["<1>",1,{"x":"<1>"}]}"#);
    }
}
