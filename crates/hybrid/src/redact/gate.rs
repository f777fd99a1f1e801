//! The one place through which a request leaves.

use super::{Blocked, Redactor};
use serde_json::Value;

/// What a part of a request is, as people consent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// What somebody wrote, instructions and earlier answers.
    Text,
    /// A picture.
    Image,
    /// Speech or other sound.
    Audio,
    /// What a tool returned, and what it was asked.
    ToolResult,
    /// Text from documents: files, search results.
    Document,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 5] = [
        Class::Text,
        Class::Image,
        Class::Audio,
        Class::ToolResult,
        Class::Document,
    ];

    /// The word for it in policy files and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Text => "text",
            Class::Image => "image",
            Class::Audio => "audio",
            Class::ToolResult => "tool_result",
            Class::Document => "document",
        }
    }
}

/// A word that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", Class::ALL.map(Class::name).join(", "))]
pub struct UnknownClass;

impl std::str::FromStr for Class {
    type Err = UnknownClass;

    /// From the word that [`Class::name`] gives.
    fn from_str(word: &str) -> Result<Class, UnknownClass> {
        Class::ALL
            .into_iter()
            .find(|class| class.name() == word)
            .ok_or(UnknownClass)
    }
}

/// What a part holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// Structure, such as the arguments of a tool.
    Json(Value),
    /// What cannot be read here, such as a picture. It leaves as it is.
    Bytes(Vec<u8>),
}

/// A part of a request: of its instructions, of any turn, of a tool's description.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub class: Class,
    /// What it holds.
    pub content: Content,
}

/// Parts of a request that may leave. Only [`Gate::pass`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    parts: Vec<Content>,
}

impl Outgoing {
    /// The contents, in the order in which they came.
    #[must_use]
    pub fn parts(&self) -> &[Content] {
        &self.parts
    }

    /// As [`Outgoing::parts`], owned.
    #[must_use]
    pub fn into_parts(self) -> Vec<Content> {
        self.parts
    }
}

/// Why a request does not leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody consented to a class that it holds.
    #[error("nobody consented to `{}` leaving this machine", .0.name())]
    NoConsent(Class),
    /// It holds what the rules block.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

/// What may pass: the classes that were consented to, for one request.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    consented: Vec<Class>,
}

impl Gate {
    /// Lets these classes pass.
    #[must_use]
    pub fn for_classes(consented: &[Class]) -> Gate {
        Gate {
            consented: consented.to_vec(),
        }
    }

    /// All parts of a request, redacted; or none of them.
    ///
    /// # Errors
    /// [`Refused`] where a part has a class without consent, or holds what the rules block.
    pub fn pass(&self, parts: Vec<Part>, redactor: &mut Redactor) -> Result<Outgoing, Refused> {
        if let Some(part) = parts.iter().find(|part| !self.consented.contains(&part.class)) {
            return Err(Refused::NoConsent(part.class));
        }
        redactor.learn(&parts)?;
        let mut outgoing = Vec::with_capacity(parts.len());
        for part in parts {
            outgoing.push(redactor.redact_part(part)?);
        }
        Ok(Outgoing { parts: outgoing })
    }
}
