//! What a case asks the model, as requests, and whether the answers are right.
//!
//! It computes nothing: `run` submits the requests and brings the answers back.

use super::answer::final_number;
use super::literal::Call;
use super::matching::difference;
use super::run::TaskOptions;
use super::signals::Gathering;
use super::{Case, Gathered, Judged, Question, calls, program};
use crate::{Error, Result};
use cactus_engine::chat::{Chat, ChatRequest, Message, MessageReader, Tool, ToolChoice};
use cactus_engine::scheduler::{Piece, Request};
use cactus_engine::{CancelToken, Completion, GenerateOptions, Model};
use cactus_text::{RenderOptions, Tokenizer, message};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// An answer as it comes: its text, the message that it is, and how sure the model was.
pub(super) struct Answer {
    reader: MessageReader,
    message: Message,
    gathering: Option<Gathering>,
    prompt_tokens: usize,
    completion: Option<Completion>,
    ended: bool,
}

impl Answer {
    fn new(reader: MessageReader, prompt_tokens: usize, signals: bool) -> Self {
        Self {
            reader,
            message: Message::default(),
            gathering: signals.then(Gathering::default),
            prompt_tokens,
            completion: None,
            ended: false,
        }
    }

    /// Takes a piece of it.
    pub(super) fn push(&mut self, piece: &Piece) {
        let mut said = Vec::new();
        self.reader.push(&piece.text, piece.special.as_deref(), &mut said);
        if let Some(gathering) = &mut self.gathering {
            gathering.push(piece, &said);
        }
        said.into_iter().for_each(|said| self.message.add(said));
    }

    /// Takes its end; `None` where it did not fit.
    pub(super) fn end(&mut self, completion: Option<Completion>) {
        let mut said = Vec::new();
        self.reader.finish(&mut said);
        said.into_iter().for_each(|said| self.message.add(said));
        self.completion = completion;
        self.ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    fn completion(&self) -> Result<&Completion> {
        let missing = || Error::Task("an answer has no end".into());
        self.completion.as_ref().ok_or_else(missing)
    }

    fn gathered(self) -> Option<Gathered> {
        Some(self.gathering?.finish(self.prompt_tokens))
    }

    /// Its text, with marks that are special tokens, which the text of an answer leaves out, where it has any.
    fn text(&self, tokenizer: &Tokenizer) -> Result<String> {
        let completion = self.completion()?;
        let marked = |id: &u32| tokenizer.is_special(*id);
        if !completion.completion_token_ids.iter().any(marked) {
            return Ok(completion.response.clone());
        }
        Ok(tokenizer.decode(&completion.completion_token_ids, false))
    }
}

/// What is asked of which model, and how.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) model: &'a Arc<Model>,
    pub(super) options: &'a TaskOptions,
    pub(super) cancel: &'a CancelToken,
}

impl Asking<'_> {
    /// The requests of a case, one for each ending to choose from and else one, with the answers to fill.
    pub(super) fn requests(&self, case: &Case) -> Result<Vec<(Request, Answer)>> {
        match &case.question {
            Question::Choice { context, endings, .. } => self.scores(context, endings),
            Question::Number { text, .. } => {
                let plain = format!("Question: {text}\nAnswer:");
                // As somebody asks it: a small model that is told to end with `####` and the number begins with them.
                let messages = [message("user", text)];
                self.text(Some(&messages), None, &plain, &["\nQuestion:", "\n\n\n"])
            }
            Question::Program { prompt, .. } => self.text(None, None, prompt, &program::STOPS),
            Question::Calls {
                messages,
                tools,
                expected,
            } => match self.options.constrained {
                true => self.constrained_calls(messages, tools, !expected.is_empty()),
                false => self.calls(messages, tools),
            },
        }
        .map_err(|e| match e {
            Error::Task(what) => Error::Task(format!("case `{}`: {what}", case.id)),
            other => other,
        })
    }

    /// Judges a case by the answers to its requests. `too_long` says that one of them did not fit the context.
    pub(super) fn judge(&self, case: &Case, answers: Vec<Answer>, too_long: Option<String>) -> Result<Judged> {
        if let Some(why) = too_long {
            return Ok(Judged::new(case, String::new(), Some(why)));
        }
        // One of each, but for endings.
        let (Some(answer), tokenizer) = (answers.first(), self.model.tokenizer()?) else {
            return Err(Error::Task(format!("case `{}` has nothing to ask", case.id)));
        };
        let text = answer.text(tokenizer)?;
        let (text, why) = match &case.question {
            Question::Choice { endings, expected, .. } => {
                let best = likeliest(endings, &answers)?;
                let why = (best != *expected).then(|| format!("expected {expected}"));
                return Ok(Judged::new(case, best.to_string(), why));
            }
            Question::Number { expected, .. } => {
                let found = final_number(&text);
                let right = found.as_ref() == Some(expected);
                let found = found.unwrap_or_else(|| "no number".into());
                (text, (!right).then(|| format!("{found}, expected {expected}")))
            }
            Question::Program {
                prompt,
                entry_point,
                test,
            } => {
                let whole = format!("{prompt}{text}\n{test}\ncheck({entry_point})\n");
                (text, program::run(&whole, self.options.time)?)
            }
            Question::Calls { expected, .. } if self.options.constrained => {
                let (shown, found) = made_calls(&answer.message);
                (shown, difference(expected, &found))
            }
            Question::Calls { expected, .. } => {
                let why = match calls::parse(&text) {
                    None => (!expected.is_empty()).then(|| "not a call that can be read".to_owned()),
                    Some(found) => difference(expected, &found),
                };
                (text, why)
            }
        };
        let mut judged = Judged::new(case, text, why);
        judged.gathered = answers.into_iter().next().and_then(Answer::gathered);
        Ok(judged)
    }

    /// A request for the log-likelihood of each ending.
    fn scores(&self, context: &str, endings: &[String]) -> Result<Vec<(Request, Answer)>> {
        let tokenizer = self.model.tokenizer()?;
        let start = encode(tokenizer, context, true)?;
        let each = endings.iter().map(|ending| {
            let tokens = encode(tokenizer, &format!("{context} {ending}"), true)?;
            // Where the boundary falls inside of a token, it belongs to the ending.
            let shared = start.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let from = shared.clamp(1, tokens.len() - 1);
            // Nothing is to be generated, and one token is the least.
            let options = GenerateOptions {
                max_tokens: 1,
                ..GenerateOptions::default()
            };
            let mut asked = self.request(tokens, options, Chat::of_text(self.model, "", None)?.reader);
            asked.0.score_from = Some(from);
            Ok(asked)
        });
        each.collect()
    }

    /// A request for the answer to `messages` in the model's chat format; to `plain` where it has none, or that was asked for.
    fn text(
        &self,
        messages: Option<&[Value]>,
        tools: Option<&[Value]>,
        plain: &str,
        stops: &[&str],
    ) -> Result<Vec<(Request, Answer)>> {
        let template = match (messages, self.options.raw) {
            (Some(messages), false) => self.model.chat_template()?.map(|t| (t, messages)),
            _ => None,
        };
        let tokenizer = self.model.tokenizer()?;
        let (tokens, stop) = match template {
            Some((template, messages)) => {
                let render = RenderOptions {
                    tools: tools.map(<[Value]>::to_vec),
                    ..RenderOptions::for_generation()
                };
                let text = template
                    .render(messages, &render)
                    .map_err(|e| Error::Task(format!("the chat template refuses it: {e}")))?;
                (encode(tokenizer, &text, false)?, Vec::new())
            }
            None => {
                let stops = stops.iter().map(|s| (*s).to_owned()).collect();
                (encode(tokenizer, plain, true)?, stops)
            }
        };
        let options = GenerateOptions {
            stop,
            ..self.generated()
        };
        // Of text every token is a value.
        let reader = Chat::of_text(self.model, "", None)?.reader;
        Ok(vec![self.request(tokens, options, reader)])
    }

    /// A request for calls under the constraint of their tools.
    fn constrained_calls(&self, messages: &[Value], tools: &[Value], required: bool) -> Result<Vec<(Request, Answer)>> {
        let tools: std::result::Result<Vec<Tool>, _> = tools.iter().map(Tool::from_json).collect();
        let request = ChatRequest {
            messages: messages.to_vec(),
            tools: tools.map_err(|e| Error::Task(format!("one of its tools: {e}")))?,
            tool_choice: if required {
                ToolChoice::Required
            } else {
                ToolChoice::Auto
            },
            parallel_calls: !self.options.one_call,
            ..ChatRequest::default()
        };
        let chat = Chat::new(self.model, &request)?;
        let (mut request, answer) = self.request(chat.prompt, self.generated(), chat.reader);
        request.constraint = chat.constraint;
        request.keep_special = true;
        Ok(vec![(request, answer)])
    }

    /// A request for calls; models whose template knows no tools are told of them in words.
    fn calls(&self, messages: &[Value], tools: &[Value]) -> Result<Vec<(Request, Answer)>> {
        let knows = self.model.chat_template()?.is_some_and(|t| t.reads("tools"));
        if knows && !self.options.raw {
            return self.text(Some(messages), Some(tools), "", &[]);
        }
        let functions: Vec<&Value> = tools.iter().filter_map(|t| t.get("function")).collect();
        let listed = serde_json::to_string(&functions).map_err(|e| Error::Task(e.to_string()))?;
        let told = format!(
            "You can call these functions: {listed}\nAnswer only with calls as a list, such as \
             [name(argument=value), other(argument='text')]. Where no function helps, say so in words."
        );
        let mut all = messages.to_vec();
        match all
            .first_mut()
            .filter(|m| m["role"] == "system")
            .and_then(Value::as_object_mut)
        {
            Some(system) => append(system, &told),
            None => all.insert(0, message("system", &told)),
        }
        let mut plain = String::new();
        for m in &all {
            let text = |key| m.get(key).and_then(Value::as_str).unwrap_or_default();
            plain.push_str(&format!("{}: {}\n", text("role"), text("content")));
        }
        plain.push_str("assistant:");
        self.text(Some(&all), None, &plain, &["\nuser:", "\n\n"])
    }

    fn generated(&self) -> GenerateOptions {
        GenerateOptions {
            max_tokens: self.options.max_tokens.max(1),
            ..GenerateOptions::default()
        }
    }

    fn request(&self, prompt: Vec<u32>, options: GenerateOptions, reader: MessageReader) -> (Request, Answer) {
        let answer = Answer::new(reader, prompt.len(), self.options.signals);
        let mut request = Request::new(prompt, options);
        request.signals = self.options.signals;
        request.cancel = self.cancel.clone();
        (request, answer)
    }
}

/// The ending with the largest log-likelihood for each of its characters; the first of equals.
fn likeliest(endings: &[String], answers: &[Answer]) -> Result<usize> {
    let mut best = (f64::NEG_INFINITY, 0);
    for (i, (ending, answer)) in endings.iter().zip(answers).enumerate() {
        let logprob: f64 = answer.completion()?.prompt_logprobs.iter().map(|t| t.logprob).sum();
        let mean = logprob / ending.chars().count().max(1) as f64;
        if mean > best.0 {
            best = (mean, i);
        }
    }
    Ok(best.1)
}

/// The calls of a message, and all of it as JSON.
fn made_calls(made: &Message) -> (String, Vec<Call>) {
    let arguments = |text: &str| serde_json::from_str(text).unwrap_or_default();
    let calls: Vec<Call> = made
        .calls
        .iter()
        .map(|call| (call.name.clone(), arguments(&call.arguments)))
        .collect();
    let shown: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    let answer = json!({"text": made.text, "calls": shown, "unreadable": made.notes}).to_string();
    (answer, calls)
}

fn append(system: &mut Map<String, Value>, told: &str) {
    let before = system.get("content").and_then(Value::as_str).unwrap_or_default();
    let content = Value::String(format!("{before}\n{told}"));
    system.insert("content".into(), content);
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>> {
    let tokens = tokenizer
        .encode(text, special)
        .map_err(|e| Error::Task(format!("it cannot be tokenized: {e}")))?;
    // A model that begins with no token of its own predicts nothing before its first.
    if tokens.len() < 2 {
        return Err(Error::Task("it has fewer than two tokens".into()));
    }
    Ok(tokens)
}
