//! The error of this crate.

/// What went wrong, stable across releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read.
    Io,
    /// A required file is not there.
    MissingFile,
    /// `tokenizer.json` is not a tokenizer.
    InvalidTokenizer,
    /// A JSON file beside the tokenizer has the wrong form.
    InvalidConfig,
    /// The model has no chat template, or none of the asked name.
    MissingTemplate,
    /// A chat template does not compile.
    InvalidTemplate,
    /// A chat template refused the conversation or failed on it.
    Render,
    /// A chat template exceeded a limit on work, memory, nesting or output.
    TemplateLimit,
    /// The messages or options given to a chat template have the wrong form.
    InvalidInput,
    /// Text could not be tokenized.
    Encode,
    /// A schema, expression, grammar or list of tools has the wrong form.
    InvalidGrammar,
    /// A JSON Schema asks for what cannot be enforced; the message names the keyword and its place.
    UnsupportedSchema,
    /// A schema or grammar exceeded a limit on size, nesting or work.
    GrammarLimit,
    /// This build has no constraints (the feature `forms`).
    NotInBuild,
    /// A constraint was given a token that it does not allow, or more to undo than there was.
    ConstraintMisuse,
}

/// An error with what was expected, what was found, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
