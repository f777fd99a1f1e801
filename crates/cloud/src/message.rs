//! Messages, whoever wrote them.

use crate::Protocol;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the application.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// What tools gave back; such a message has [`Part::ToolResult`]s alone.
    Tool,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message of text alone.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        let parts = vec![Part::Text(text.into())];
        Self { role, parts }
    }

    /// All of its text, without reasoning, calls and results.
    #[must_use]
    pub fn joined_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image.
    Image(Media),
    /// A recording.
    Audio(Media),
    /// The model calls a tool.
    ToolCall(ToolCall),
    /// What a tool gave back.
    ToolResult(ToolResult),
    /// What the model thought.
    Reasoning(Reasoning),
}

/// An image or a recording, as the bytes of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Media {
    /// Media type, such as `image/png` or `audio/wav`.
    pub mime: String,
    /// The file.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Media({}, {} bytes)", self.mime, self.bytes.len())
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Names the call within the conversation.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments: a JSON object, as the model wrote it. A model may have written something else; whoever calls the tool
    /// checks.
    pub arguments: String,
    /// What its issuer wants back with the call.
    pub opaque: Option<Opaque>,
}

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// [`ToolCall::id`] of the call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The result.
    pub content: String,
    /// The tool failed, and the content says how.
    pub is_error: bool,
}

/// What a model thought before it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reasoning {
    /// The text, or a summary of it, to be shown; empty where the issuer shows none. It is sent nowhere.
    pub text: String,
    /// What its issuer wants back, the text as it was included.
    pub opaque: Option<Opaque>,
}

/// Something that only its issuer can read, such as a signature. It goes back to the issuer, and to nobody else.
#[derive(Clone, PartialEq)]
pub struct Opaque {
    /// Who made it.
    pub issuer: Issuer,
    /// What was made, in the form of the issuer's protocol.
    pub data: Value,
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opaque({:?})", self.issuer)
    }
}

/// Who made an [`Opaque`]: a model, at a host, over a protocol. All three must be equal for it to be understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Issuer {
    /// The protocol.
    pub protocol: Protocol,
    /// Host and port, as in the target's address.
    pub authority: String,
    /// The model's name there.
    pub model: String,
}
