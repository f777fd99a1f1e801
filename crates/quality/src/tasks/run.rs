//! Asking a model the cases of a task, one after another, and judging its answers.

use super::answer::final_number;
use super::literal::Call;
use super::matching::difference;
use super::signals::Gathering;
use super::{Case, Gathered, Judged, Question, Results, calls, program};
use crate::{Error, Result};
use cactus_engine::chat::{Chat, ChatRequest, Message, MessageReader, Tool, ToolChoice};
use cactus_engine::{CancelToken, Completion, Delta, GenerateOptions, Guides, Model, Session};
use cactus_text::grammar::Constraint;
use cactus_text::{RenderOptions, Tokenizer, message};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How a task is run.
#[derive(Clone, Copy, Debug)]
pub struct TaskOptions {
    /// Tokens an answer may have.
    pub max_tokens: usize,
    /// Continue prompts as plain text even where the model has a chat template.
    pub raw: bool,
    /// Hold calls to the schemas of the tools; where the case has calls, at least one has to be made.
    pub constrained: bool,
    /// With `constrained`, at most one call.
    pub one_call: bool,
    /// Run the programs that the model writes. The limits around them are no sandbox.
    pub allow_code_execution: bool,
    /// Time for a program.
    pub time: Duration,
    /// Keep how sure the model was, in [`Judged::gathered`].
    pub signals: bool,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            max_tokens: 512,
            raw: false,
            constrained: false,
            one_call: false,
            allow_code_execution: false,
            time: Duration::from_secs(10),
            signals: false,
        }
    }
}

/// Asks `model` those of `cases` that `results` has not, taking the likeliest token every time. `each` gets the results after
/// every case and says whether to go on. A case that does not fit the context counts as wrong.
///
/// # Errors
/// [`crate::ErrorKind::Task`] where programs would have to be run and may not be; what
/// the engine found; what `each` failed with.
pub fn run_task(
    model: &Arc<Model>,
    cases: &[Case],
    options: &TaskOptions,
    cancel: &CancelToken,
    results: &mut Results,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<()> {
    if !options.allow_code_execution && cases.iter().any(|c| matches!(c.question, Question::Program { .. })) {
        return Err(Error::Task(
            "this task runs programs that the model wrote, which was not allowed".into(),
        ));
    }
    let mut asked = Asked {
        model,
        session: model.session()?,
        options,
        cancel,
        gathered: None,
    };
    for case in cases.iter().skip(results.cases.len()) {
        let judged = match asked.judge(case) {
            // A case that does not fit is one that this model cannot answer.
            Err(Error::Engine(e)) if e.kind() == cactus_engine::ErrorKind::ContextFull => {
                Some(Judged::new(case, String::new(), Some(e.to_string())))
            }
            other => other?,
        };
        let Some(mut judged) = judged else {
            return Ok(());
        };
        judged.gathered = asked.gathered.take();
        results.push(judged);
        each(results)?;
    }
    Ok(())
}

struct Asked<'a> {
    model: &'a Arc<Model>,
    session: Session,
    options: &'a TaskOptions,
    cancel: &'a CancelToken,
    /// Of the answer that was generated last.
    gathered: Option<Gathered>,
}

impl Asked<'_> {
    /// The case with its answer; `None` where it was cancelled.
    fn judge(&mut self, case: &Case) -> Result<Option<Judged>> {
        let (answer, why) = match &case.question {
            Question::Choice {
                context,
                endings,
                expected,
            } => {
                let best = self.likeliest(context, endings)?;
                (
                    best.to_string(),
                    (best != *expected).then(|| format!("expected {expected}")),
                )
            }
            Question::Number { text, expected } => {
                let plain = format!("Question: {text}\nAnswer:");
                // As somebody asks it: a small model that is told to end with `####` and the number begins with them.
                let messages = [message("user", text)];
                let answer = self.answer(Some(&messages), None, &plain, &["\nQuestion:", "\n\n\n"])?;
                let found = final_number(&answer);
                let right = found.as_ref() == Some(expected);
                let found = found.unwrap_or_else(|| "no number".into());
                (answer, (!right).then(|| format!("{found}, expected {expected}")))
            }
            Question::Program {
                prompt,
                entry_point,
                test,
            } => {
                let answer = self.answer(None, None, prompt, &program::STOPS)?;
                let whole = format!("{prompt}{answer}\n{test}\ncheck({entry_point})\n");
                let why = match self.cancel.is_cancelled() {
                    true => None,
                    false => program::run(&whole, self.options.time)?,
                };
                (answer, why)
            }
            Question::Calls {
                messages,
                tools,
                expected,
            } => {
                if self.options.constrained {
                    let (answer, found) = self.constrained_calls(messages, tools, !expected.is_empty())?;
                    let why = difference(expected, &found);
                    return Ok((!self.cancel.is_cancelled()).then(|| Judged::new(case, answer, why)));
                }
                let answer = self.call_answer(messages, tools)?;
                let why = match calls::parse(&answer) {
                    None => (!expected.is_empty()).then(|| "not a call that can be read".to_owned()),
                    Some(found) => difference(expected, &found),
                };
                (answer, why)
            }
        };
        Ok((!self.cancel.is_cancelled()).then(|| Judged::new(case, answer, why)))
    }

    /// The ending with the largest log-likelihood for each of its characters; the first of equals.
    fn likeliest(&mut self, context: &str, endings: &[String]) -> Result<usize> {
        let tokenizer = self.model.tokenizer()?;
        let start = encode(tokenizer, context, true)?;
        let mut best = (f64::NEG_INFINITY, 0);
        for (i, ending) in endings.iter().enumerate() {
            let tokens = encode(tokenizer, &format!("{context} {ending}"), true)?;
            // Where the boundary falls inside of a token, it belongs to the ending.
            let shared = start.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let score = self.session.score(&tokens, shared.clamp(1, tokens.len() - 1))?;
            let mean = score.logprob / ending.chars().count().max(1) as f64;
            if mean > best.0 {
                best = (mean, i);
            }
        }
        Ok(best.1)
    }

    /// The answer to `messages` in the model's chat format; to `plain` where it has none, or that was asked for.
    fn answer(
        &mut self,
        messages: Option<&[Value]>,
        tools: Option<&[Value]>,
        plain: &str,
        stops: &[&str],
    ) -> Result<String> {
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
                    .map_err(|e| Error::Task(format!("the chat template refuses the case: {e}")))?;
                (encode(tokenizer, &text, false)?, Vec::new())
            }
            None => {
                let stops = stops.iter().map(|s| (*s).to_owned()).collect();
                (encode(tokenizer, plain, true)?, stops)
            }
        };
        let options = GenerateOptions {
            max_tokens: self.options.max_tokens.max(1),
            stop,
            ..GenerateOptions::default()
        };
        // Of text every token is a value.
        let reader = Chat::of_text(self.model, "", None)?.reader;
        let (completion, _) = self.generate(&tokens, &options, None, false, reader)?;
        let marked = |id: &u32| tokenizer.is_special(*id);
        if !completion.completion_token_ids.iter().any(marked) {
            return Ok(completion.response);
        }
        // Marks of calls may be special tokens, which the text of an answer leaves out.
        Ok(tokenizer.decode(&completion.completion_token_ids, false))
    }

    /// The calls that a model makes under the constraint of its tools, and as JSON beside what else it wrote.
    fn constrained_calls(
        &mut self,
        messages: &[Value],
        tools: &[Value],
        required: bool,
    ) -> Result<(String, Vec<Call>)> {
        let tools: std::result::Result<Vec<Tool>, _> = tools.iter().map(Tool::from_json).collect();
        let request = ChatRequest {
            messages: messages.to_vec(),
            tools: tools.map_err(|e| Error::Task(format!("a tool of the case: {e}")))?,
            tool_choice: if required {
                ToolChoice::Required
            } else {
                ToolChoice::Auto
            },
            parallel_calls: !self.options.one_call,
            ..ChatRequest::default()
        };
        let chat = Chat::new(self.model, &request)?;
        let options = GenerateOptions {
            max_tokens: self.options.max_tokens.max(1),
            ..GenerateOptions::default()
        };
        let (_, made) = self.generate(&chat.prompt, &options, chat.constraint, true, chat.reader)?;
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
        Ok((answer, calls))
    }

    /// What the model answers to `prompt`, and as a message. Keeps how sure it was, if that was asked for.
    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        constraint: Option<Constraint>,
        keep_special: bool,
        mut reader: MessageReader,
    ) -> Result<(Completion, Message)> {
        let guides = Guides {
            constraint,
            keep_special,
            signals: self.options.signals,
            ..Guides::default()
        };
        let (mut made, mut said) = (Message::default(), Vec::new());
        let mut gathering = Gathering::default();
        let mut each = |delta: Delta<'_>| {
            reader.push(delta.text, delta.special, &mut said);
            gathering.push(&delta, &said);
            said.drain(..).for_each(|said| made.add(said));
        };
        let completion = self
            .session
            .generate_with(prompt, options, guides, self.cancel, &mut each)?;
        reader.finish(&mut said);
        said.drain(..).for_each(|said| made.add(said));
        self.gathered = self.options.signals.then(|| gathering.finish(prompt.len()));
        Ok((completion, made))
    }

    /// The answer to a request for calls; models whose template knows no tools are told of them in words.
    fn call_answer(&mut self, messages: &[Value], tools: &[Value]) -> Result<String> {
        let knows = self.model.chat_template()?.is_some_and(|t| t.reads("tools"));
        if knows && !self.options.raw {
            return self.answer(Some(messages), Some(tools), "", &[]);
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
        self.answer(Some(&all), None, &plain, &["\nuser:", "\n\n"])
    }
}

fn append(system: &mut Map<String, Value>, told: &str) {
    let before = system.get("content").and_then(Value::as_str).unwrap_or_default();
    let content = Value::String(format!("{before}\n{told}"));
    system.insert("content".into(), content);
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>> {
    let tokens = tokenizer
        .encode(text, special)
        .map_err(|e| Error::Task(format!("a case cannot be tokenized: {e}")))?;
    // A model that begins with no token of its own predicts nothing before its first.
    if tokens.len() < 2 {
        return Err(Error::Task("a case has fewer than two tokens".into()));
    }
    Ok(tokens)
}
