//! What is stored: an id, a vector, a text, and metadata.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Name of a document. All of an index are of one [`IdKind`]. In JSON a number or a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Id {
    /// A number.
    Number(u64),
    /// A text, compared byte by byte.
    Text(String),
}

/// Which ids an index takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// [`Id::Number`]
    Number,
    /// [`Id::Text`]
    Text,
}

impl IdKind {
    pub(crate) const ALL: [IdKind; 2] = [IdKind::Number, IdKind::Text];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IdKind::Number => "number",
            IdKind::Text => "text",
        }
    }
}

impl Id {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> IdKind {
        match self {
            Id::Number(_) => IdKind::Number,
            Id::Text(_) => IdKind::Text,
        }
    }

    pub(crate) fn view(&self) -> IdRef<'_> {
        match self {
            Id::Number(number) => IdRef::Number(*number),
            Id::Text(text) => IdRef::Text(text.as_bytes()),
        }
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Id {
        Id::Number(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Id {
        Id::Text(text.to_owned())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            Id::Text(text) => write!(f, "`{text}`"),
        }
    }
}

/// An id where it lies; ordered as [`Id`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdRef<'a> {
    Number(u64),
    Text(&'a [u8]),
}

/// A value of metadata. In JSON what it is called there.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// UTF-8.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number; not NaN.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Texts in an order, such as tags.
    List(Vec<String>),
}

impl Value {
    pub(crate) fn view(&self) -> ValueRef<'_> {
        match self {
            Value::Text(text) => ValueRef::Text(text),
            Value::Integer(n) => ValueRef::Integer(*n),
            Value::Float(x) => ValueRef::Float(*x),
            Value::Bool(b) => ValueRef::Bool(*b),
            Value::List(texts) => ValueRef::List(texts.iter().map(String::as_str).collect()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Integer(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Float(x)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

/// A value where it lies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueRef<'a> {
    Text(&'a str),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<&'a str>),
}

impl ValueRef<'_> {
    pub(crate) fn kind(&self) -> ValueKind {
        match self {
            ValueRef::Text(_) => ValueKind::Text,
            ValueRef::Integer(_) => ValueKind::Integer,
            ValueRef::Float(_) => ValueKind::Float,
            ValueRef::Bool(_) => ValueKind::Bool,
            ValueRef::List(_) => ValueKind::List,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            ValueRef::Text(text) => Value::Text((*text).to_owned()),
            ValueRef::Integer(n) => Value::Integer(*n),
            ValueRef::Float(x) => Value::Float(*x),
            ValueRef::Bool(b) => Value::Bool(*b),
            ValueRef::List(texts) => Value::List(texts.iter().map(|t| (*t).to_owned()).collect()),
        }
    }
}

/// The type of a value, which has a column of its own for each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueKind {
    Text,
    Integer,
    Float,
    Bool,
    List,
}

impl ValueKind {
    pub(crate) const ALL: [ValueKind; 5] = [
        ValueKind::Text,
        ValueKind::Integer,
        ValueKind::Float,
        ValueKind::Bool,
        ValueKind::List,
    ];
}

/// A document, as it goes into an index and comes out of it.
///
/// A vector comes back as it is stored: of unit length where the metric is the cosine, and with 8 bits in each dimension
/// where that is the encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its name, unique in the index.
    pub id: Id,
    /// `[dimensions]`, finite.
    pub vector: Vec<f32>,
    /// What is searched by words; may be empty.
    pub text: String,
    /// What filters look at.
    pub metadata: BTreeMap<String, Value>,
}

impl Document {
    /// A document without text and metadata.
    pub fn new(id: impl Into<Id>, vector: Vec<f32>) -> Document {
        Document {
            id: id.into(),
            vector,
            text: String::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// The same with this text.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Document {
        self.text = text.into();
        self
    }

    /// The same with one value more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Document {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }
}
