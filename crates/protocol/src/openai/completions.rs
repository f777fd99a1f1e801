//! `POST /v1/completions`: text that is continued, without a chat template.

use super::super::{
    Alternative, ApiError, Encoder, Event, Fields, Frame, Job, KeepAlive, MAX_CHOICES, Prompt, Reason, Result, Spec,
    TokenLog, Usage, new_id,
};
use super::inputs::Inputs;
use cactus_text::tools::Delta;
use serde_json::{Map, Value, json};

/// Tokens of an answer for which no limit is given, as OpenAI's API has it.
const DEFAULT_TOKENS: u64 = 16;

/// Text, texts, ids, or lists of ids.
const PROMPTS: Inputs<Prompt> = Inputs {
    text: Prompt::Text,
    tokens: Prompt::Tokens,
    object: None,
};

/// Reads a request.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn request(body: &Value, created: u64) -> Result<(Job, CompletionEncoder)> {
    let fields = Fields::of_body(body)?;
    if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(fields.wrong("suffix", "this server cannot fill in between; expected none"));
    }
    let model = super::model(&fields)?;
    let prompts = PROMPTS.read(&fields, "prompt")?;
    let choices = fields.count("n", 1, MAX_CHOICES)?.unwrap_or(1) as usize;
    if let Some(best_of) = fields.count("best_of", 1, MAX_CHOICES)?
        && best_of != choices as u64
    {
        return Err(fields.wrong(
            "best_of",
            format_args!("found {best_of}, expected the same as `n` ({choices})"),
        ));
    }
    let echo = fields.flag("echo")?.unwrap_or(false);
    let logprobs = fields.get("logprobs").filter(|value| **value != Value::Bool(false));
    let stream = fields.flag("stream")?.unwrap_or(false);
    let scores_prompt = echo && logprobs.is_some();
    if scores_prompt && stream {
        let message = "log-probabilities of a prompt are not streamed; leave out `stream`, `echo` or `logprobs`";
        return Err(fields.wrong("stream", message));
    }
    // Who only wants a text scored asks for no token.
    let only_prompt = scores_prompt && fields.get("max_tokens").and_then(Value::as_u64) == Some(0);
    let limits: &[&str] = if only_prompt { &[] } else { &["max_tokens"] };
    let mut spec = Spec::read(&fields, limits)?;
    spec.score_prompt = scores_prompt;
    if only_prompt {
        spec.options.insert("max_tokens".to_owned(), Value::from(1));
    }
    if !spec.options.contains_key("max_tokens") {
        spec.options
            .insert("max_tokens".to_owned(), Value::from(DEFAULT_TOKENS));
    }
    if let Some(top) = logprobs {
        spec.set(&fields, "logprobs", "logprobs", top.clone())?;
    }
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.flag("include_usage")?.unwrap_or(false),
        None => false,
    };
    let encoder = CompletionEncoder {
        id: new_id("cmpl-"),
        created,
        model: String::new(),
        choices_of_prompt: choices,
        echo: prompts.iter().map(|prompt| echo.then(|| prompt.clone())).collect(),
        logprobs: logprobs.is_some(),
        only_prompt,
        include_usage,
        usage: Usage::default(),
        choices: (0..choices * prompts.len()).map(|_| Choice::default()).collect(),
    };
    let job = Job {
        model,
        prompts,
        choices,
        spec,
        stream,
        keep_alive: KeepAlive::Default,
    };
    Ok((job, encoder))
}

/// Encodes completions.
#[derive(Debug, Clone)]
pub struct CompletionEncoder {
    id: String,
    created: u64,
    model: String,
    choices_of_prompt: usize,
    /// The prompts that come before their answers.
    echo: Vec<Option<Prompt>>,
    logprobs: bool,
    /// The answer is left out.
    only_prompt: bool,
    include_usage: bool,
    usage: Usage,
    choices: Vec<Choice>,
}

#[derive(Debug, Clone, Default)]
struct Choice {
    text: String,
    tokens: Vec<TokenLog>,
    /// The prompt, where it is echoed with log-probabilities.
    prompt: Option<(Alternative, Vec<TokenLog>)>,
    sent: usize,
    /// Characters of the tokens that a stream has sent.
    offset: usize,
    finish: Option<&'static str>,
}

impl Choice {
    /// Log-probabilities of the whole text. Those of its first token are null.
    fn logprobs(&self) -> Value {
        let Some((first, scored)) = &self.prompt else {
            return logprobs_json(&self.tokens, 0);
        };
        let all: Vec<TokenLog> = scored.iter().chain(&self.tokens).cloned().collect();
        let mut lists = logprobs_json(&all, first.text.chars().count());
        let begin = [
            ("tokens", Value::from(first.text.as_str())),
            ("token_logprobs", Value::Null),
            ("top_logprobs", Value::Null),
            ("text_offset", Value::from(0)),
        ];
        for (name, value) in begin {
            if let Some(list) = lists[name].as_array_mut() {
                list.insert(0, value);
            }
        }
        lists
    }
}

impl CompletionEncoder {
    /// Whether prompts of ids come before their answers.
    #[must_use]
    pub fn echoes_ids(&self) -> bool {
        self.echo
            .iter()
            .flatten()
            .any(|prompt| matches!(prompt, Prompt::Tokens(_)))
    }

    /// Turns prompts of ids that are echoed into text.
    pub fn spell(&mut self, text: impl Fn(&[u32]) -> String) {
        for prompt in self.echo.iter_mut().flatten() {
            if let Prompt::Tokens(ids) = prompt {
                *prompt = Prompt::Text(text(ids));
            }
        }
    }

    fn object(&self, choices: Value) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".to_owned(), Value::from(self.id.as_str()));
        object.insert("object".to_owned(), Value::from("text_completion"));
        object.insert("created".to_owned(), Value::from(self.created));
        object.insert("model".to_owned(), Value::from(self.model.as_str()));
        object.insert("choices".to_owned(), choices);
        object
    }

    fn push(&mut self, index: usize, text: &str, finish: Option<&str>, out: &mut Vec<Frame>) {
        let choice = &mut self.choices[index];
        choice.text.push_str(text);
        let logprobs = match self.logprobs && choice.sent < choice.tokens.len() {
            true => {
                let tokens = &choice.tokens[choice.sent..];
                let json = logprobs_json(tokens, choice.offset);
                choice.offset += tokens.iter().map(|t| t.token.text.chars().count()).sum::<usize>();
                json
            }
            false => Value::Null,
        };
        choice.sent = choice.tokens.len();
        let one = json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish});
        let mut object = self.object(json!([one]));
        if self.include_usage {
            object.insert("usage".to_owned(), Value::Null);
        }
        out.push(Frame::data(&Value::Object(object)));
    }
}

/// Log-probabilities as this API has them: lists side by side, with the place of each token in the text.
fn logprobs_json(tokens: &[TokenLog], mut offset: usize) -> Value {
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        offsets.push(offset);
        offset += token.token.text.chars().count();
    }
    let top = |token: &TokenLog| -> Value {
        let mut map = Map::new();
        for Alternative { text, .. } in &token.top {
            map.entry(text.as_str()).or_insert(Value::Null);
        }
        for alternative in token.top.iter().rev() {
            // Of several tokens with the same text the likeliest counts.
            map.insert(alternative.text.clone(), Value::from(alternative.finite()));
        }
        Value::Object(map)
    };
    json!({
        "tokens": tokens.iter().map(|t| t.token.text.as_str()).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|t| t.token.finite()).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

impl Encoder for CompletionEncoder {
    fn begin(&mut self, model: &str, out: &mut Vec<Frame>) {
        model.clone_into(&mut self.model);
        for index in 0..self.choices.len() {
            if let Some(Prompt::Text(text)) = &self.echo[index / self.choices_of_prompt] {
                let text = text.clone();
                self.push(index, &text, None, out);
            }
        }
    }

    fn event(&mut self, index: usize, event: &Event, out: &mut Vec<Frame>) {
        self.usage.add(index, self.choices_of_prompt, event);
        match event {
            // What nobody asked for was drawn because something always is.
            Event::Token(_) | Event::Delta(_) if self.only_prompt => {}
            Event::Token(token) => self.choices[index].tokens.push(token.clone()),
            Event::Prompt { first, scored } => self.choices[index].prompt = Some((first.clone(), scored.clone())),
            Event::Delta(Delta::Text(text)) if !text.is_empty() => self.push(index, text, None, out),
            Event::End(end) => {
                let finish = match end.reason {
                    Reason::Length => "length",
                    _ => "stop",
                };
                self.choices[index].finish = Some(finish);
                self.push(index, "", Some(finish), out);
            }
            Event::Started { .. } | Event::Signal { .. } | Event::Delta(_) => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        if self.include_usage {
            let mut object = self.object(json!([]));
            object.insert("usage".to_owned(), self.usage.openai());
            out.push(Frame::data(&Value::Object(object)));
        }
        out.push(Frame::done());
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        out.push(Frame::data(&error.openai()));
        out.push(Frame::done());
    }

    fn whole(&self) -> Value {
        let choices = self.choices.iter().enumerate().map(|(index, choice)| {
            let logprobs = match self.logprobs {
                true => choice.logprobs(),
                false => Value::Null,
            };
            json!({"index": index, "text": choice.text, "logprobs": logprobs, "finish_reason": choice.finish})
        });
        let mut object = self.object(choices.collect());
        object.insert("usage".to_owned(), self.usage.openai());
        Value::Object(object)
    }
}
