//! `POST /v1/decisions`: questions about an input, each answered with probabilities, and the form of their answers.
//!
//! How the questions are asked of a model is in [`crate::decisions`].

use crate::decisions::{Answer, Choice, Decide, Decided, Kind, Question};
use crate::{Fields, MAX_MESSAGES, Result, content, json_type, objects};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Most questions in one request.
pub const MAX_QUESTIONS: usize = 400;
/// Most answers to choose from.
pub const MAX_CHOICES: usize = 255;

/// Reads a request.
///
/// # Errors
/// The first field that is missing, of another type, or asks for what this server does not do.
pub fn request(body: &Value) -> Result<Decide> {
    let fields = Fields::of_body(body)?;
    let list = fields.list("questions")?;
    let list = list.ok_or_else(|| fields.missing("questions", "a list of questions"))?;
    if list.is_empty() || list.len() > MAX_QUESTIONS {
        let message = format_args!("found {} questions, expected 1 to {MAX_QUESTIONS}", list.len());
        return Err(fields.wrong("questions", message));
    }
    Ok(Decide {
        model: super::model(&fields)?,
        input: input(&fields)?,
        questions: objects(list, "questions")?
            .iter()
            .map(question)
            .collect::<Result<_>>()?,
    })
}

// ---- the input

/// The input as one text: as it is, or what was said and called, one after the other.
fn input(fields: &Fields<'_>) -> Result<String> {
    let expected = "text or a list of messages and calls";
    let list = match fields.get("input") {
        None => return Err(fields.missing("input", expected)),
        Some(Value::String(text)) if text.trim().is_empty() => {
            return Err(fields.wrong("input", "is empty, expected something to decide about"));
        }
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(list)) => list,
        Some(other) => {
            let message = format_args!("found {}, expected {expected}", json_type(other));
            return Err(fields.wrong("input", message));
        }
    };
    if list.is_empty() || list.len() > MAX_MESSAGES {
        let message = format_args!("found {} items, expected 1 to {MAX_MESSAGES}", list.len());
        return Err(fields.wrong("input", message));
    }
    let mut calls = HashSet::new();
    let mut items = Vec::with_capacity(list.len());
    for from in objects(list, "input")? {
        items.push(item(&from, &mut calls)?);
    }
    // Who sends one text as a message means the text.
    if let [(speaker, text)] = &items[..]
        && speaker == "user"
    {
        return Ok(text.clone());
    }
    let items: Vec<String> = items.iter().map(|(what, text)| format!("[{what}]\n{text}")).collect();
    Ok(items.join("\n\n"))
}

/// An item of the input: who says it or what it is, and its text. `calls` are the ids of the calls before it.
fn item<'a>(from: &Fields<'a>, calls: &mut HashSet<&'a str>) -> Result<(String, String)> {
    match from.text("type")?.unwrap_or("message") {
        "message" => {
            let role = from.required_text("role")?;
            let kinds: &[&str] = match role {
                "user" => &["input_text", "input_json"],
                "system" | "developer" => &["input_text"],
                "assistant" => &["output_text", "refusal"],
                other => {
                    let message =
                        format_args!("found `{other}`, expected `user`, `assistant`, `system` or `developer`");
                    return Err(from.wrong("role", message));
                }
            };
            Ok((role.to_owned(), text(from, "content", kinds)?))
        }
        kind @ ("function_call" | "custom_tool_call") => {
            calls.insert(from.required_text("call_id")?);
            let given = if kind == "function_call" { "arguments" } else { "input" };
            let name = from.required_text("name")?;
            Ok((format!("call of {name}"), from.required_text(given)?.to_owned()))
        }
        "function_call_output" | "custom_tool_call_output" => {
            let id = from.required_text("call_id")?;
            if !calls.contains(id) {
                return Err(from.wrong("call_id", format_args!("no call before it has the id `{id}`")));
            }
            Ok(("result of the call".to_owned(), text(from, "output", &["input_text"])?))
        }
        other => {
            let message = format_args!(
                "found `{other}`, expected `message`, `function_call`, `function_call_output`, `custom_tool_call` or \
                 `custom_tool_call_output`"
            );
            Err(from.wrong("type", message))
        }
    }
}

/// The text of the field `name`, which has to be there: text, or parts of the types in `kinds`, JSON among them.
fn text(fields: &Fields<'_>, name: &str, kinds: &[&str]) -> Result<String> {
    let Some(Value::Array(parts)) = fields.get(name) else {
        let text = content::text(fields, name, kinds)?;
        return text.ok_or_else(|| fields.missing(name, "text or a list of parts"));
    };
    let parts = objects(parts, &fields.path(name))?;
    let texts = parts.iter().map(|part| match part.text("type")? {
        Some("input_json") if kinds.contains(&"input_json") => match part.get("data") {
            Some(data @ (Value::Object(_) | Value::Array(_))) => Ok(data.to_string()),
            Some(other) => {
                let message = format_args!("found {}, expected an object or a list of objects", json_type(other));
                Err(part.wrong("data", message))
            }
            None => Err(part.missing("data", "an object or a list of objects")),
        },
        _ => content::text_part(part, kinds).map(str::to_owned),
    });
    Ok(texts.collect::<Result<Vec<_>>>()?.join("\n"))
}

// ---- the questions

fn question(from: &Fields<'_>) -> Result<Question> {
    let (kind, choices) = match from.required_text("type")? {
        "predicate" => {
            let choice = |text: &str| Choice {
                value: Value::Null,
                text: text.to_owned(),
                description: None,
                path: from.here().to_owned(),
            };
            (Kind::Predicate, vec![choice("Yes"), choice("No")])
        }
        "choice" => (Kind::Choice, choices(from, "choices", "value")?),
        "score" => (Kind::Score, choices(from, "levels", "label")?),
        other => {
            let message = format_args!("found `{other}`, expected `predicate`, `choice` or `score`");
            return Err(from.wrong("type", message));
        }
    };
    let instructions = text(from, "instructions", &["input_text", "input_json"])?;
    if instructions.trim().is_empty() {
        return Err(from.wrong("instructions", "is empty, expected what to decide"));
    }
    Ok(Question {
        name: from.text("name")?.map(str::to_owned),
        instructions,
        kind,
        choices,
    })
}

/// The choices under `list`, whose values are under `key`.
fn choices(from: &Fields<'_>, list: &str, key: &str) -> Result<Vec<Choice>> {
    let entries = from
        .list(list)?
        .ok_or_else(|| from.missing(list, "a list of objects"))?;
    if !(2..=MAX_CHOICES).contains(&entries.len()) {
        let message = format_args!("found {} of them, expected 2 to {MAX_CHOICES}", entries.len());
        return Err(from.wrong(list, message));
    }
    let entries = objects(entries, &from.path(list))?;
    let booleans: Vec<String> = entries
        .iter()
        .filter_map(|e| e.get(key)?.as_bool())
        .map(|b| b.to_string())
        .collect();
    let mut read: Vec<Choice> = Vec::with_capacity(entries.len());
    for entry in &entries {
        let text = match entry.get(key) {
            Some(Value::Bool(value)) if key == "value" => value.to_string(),
            _ => {
                let text = entry.required_text(key)?.trim();
                match booleans.iter().any(|boolean| boolean == text) {
                    // Told from the truth value by quotes.
                    true => format!("\"{text}\""),
                    false => text.to_owned(),
                }
            }
        };
        if text.is_empty() {
            return Err(entry.wrong(key, "is empty, expected text"));
        }
        if read.iter().any(|other| other.text == text) {
            return Err(entry.wrong(key, format_args!("`{text}` stands there twice")));
        }
        read.push(Choice {
            value: entry.get(key).cloned().unwrap_or_default(),
            text,
            description: entry.text("description")?.map(str::to_owned),
            path: entry.path(key),
        });
    }
    Ok(read)
}

// ---- the answer

/// The answer. `calibrated`: the probabilities were fitted to how often the model is right.
#[must_use]
pub fn answer(request: &Decide, model: &str, decided: &Decided) -> Value {
    let answers = request.questions.iter().zip(&decided.answers);
    let usage = &decided.usage;
    json!({
        "model": model,
        "answers": answers.map(|(question, answer)| one(question, answer)).collect::<Vec<_>>(),
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens,
        },
        "calibrated": decided.calibrated,
    })
}

fn one(question: &Question, answer: &Answer) -> Value {
    let each = question.choices.iter().zip(&answer.probabilities);
    let mut json = match question.kind {
        Kind::Predicate => json!({"type": "predicate", "probability": answer.probabilities[0]}),
        Kind::Choice => json!({
            "type": "choice",
            "choice": question.choices[answer.best()].value,
            "confidence": answer.confidence(),
            "probabilities": each
                .map(|(choice, p)| json!({"value": choice.value, "probability": p}))
                .collect::<Vec<_>>(),
        }),
        Kind::Score => json!({
            "type": "score",
            "score": answer.expected(),
            "confidence": answer.confidence(),
            "probabilities": each
                .enumerate()
                .map(|(value, (level, p))| json!({"value": value, "label": level.value, "probability": p}))
                .collect::<Vec<_>>(),
        }),
    };
    json["name"] = json!(question.name);
    json["label_mass"] = json!(answer.mass);
    json
}
