//! What a request asks for, whichever API it came through.

use super::Result;
use cactus_engine::GenerateOptions;
use cactus_engine::chat::ChatRequest;
use cactus_text::grammar::Grammar;
use serde_json::{Map, Value};

/// One request.
#[derive(Debug, Clone)]
pub struct Job {
    /// The model, as the client calls it; empty for the only or first one.
    pub model: String,
    /// What is to be continued or answered.
    pub prompts: Vec<Prompt>,
    /// Answers to each prompt. Answer `i` belongs to prompt `i / choices`.
    pub choices: usize,
    /// How, over the model's own defaults.
    pub spec: Spec,
    /// Whether the client wants the answer as it comes.
    pub stream: bool,
    /// How long the model stays loaded after this.
    pub keep_alive: KeepAlive,
}

impl Job {
    /// The field that says what the answer must follow: `usual`, or one of those that extend the API.
    #[must_use]
    pub fn format_field(&self, usual: &'static str) -> &'static str {
        match self.prompts.first() {
            Some(Prompt::Chat(chat)) => match &chat.format {
                Some(Grammar::Lark(_)) => "grammar",
                Some(Grammar::Regex(_)) => "regex",
                _ => usual,
            },
            _ => usual,
        }
    }
}

/// What is to be continued or answered.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// A conversation.
    Chat(Box<ChatRequest>),
    /// Plain text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// How long a model stays loaded after a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// As the server was told.
    #[default]
    Default,
    /// It is unloaded at once.
    Unload,
}

/// Generation options by name; what is not named is as the model has it.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// The options.
    pub options: Map<String, Value>,
    /// Special tokens are part of the text.
    pub keep_special: bool,
    /// The tokens of the prompt are scored too.
    pub score_prompt: bool,
}

impl Spec {
    /// The options that are not a model's own, and the limit.
    #[must_use]
    pub fn other_than(defaults: &GenerateOptions, options: &GenerateOptions) -> Spec {
        let defaults = defaults.to_json();
        let mut options = options.to_json();
        options.retain(|name, value| name == "max_tokens" || defaults.get(name) != Some(value));
        Spec {
            options,
            ..Spec::default()
        }
    }

    /// Over the defaults of a model. Without a limit the answer may fill what the prompt leaves of the context.
    ///
    /// # Errors
    /// An option out of range, named.
    pub fn over(&self, defaults: &GenerateOptions, room_tokens: usize) -> Result<GenerateOptions> {
        let mut options = GenerateOptions {
            max_tokens: room_tokens.max(1),
            ..defaults.clone()
        };
        for (name, value) in &self.options {
            options.set(name, value)?;
        }
        options.validate()?;
        Ok(options)
    }
}
