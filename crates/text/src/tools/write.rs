//! Calls as a model of a format would write them.

use serde_json::{Map, Value};

use super::format::Syntax;
use super::{CallFormat, ToolCall};
use crate::{Error, ErrorKind};

/// A call and its arguments.
type Parsed<'a> = (&'a ToolCall, Map<String, Value>);

impl CallFormat {
    /// The text of calls, for chat templates that leave them out, and as the counterpart of the parser in tests. `None` where
    /// the format is unknown.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the arguments of a call are not a JSON object.
    pub fn write(&self, calls: &[ToolCall]) -> Result<Option<String>, Error> {
        let Some(row) = self.row else { return Ok(None) };
        let open = row.open.first().copied().unwrap_or_default();
        let close = row.close.first().copied().unwrap_or_default();
        let mut read = Vec::with_capacity(calls.len());
        for call in calls {
            read.push((call, object(call)?));
        }
        let object_of = |(call, arguments): &Parsed<'_>, key: &str| {
            let (name, arguments) = (Value::from(call.name.as_str()), spaced_object(arguments));
            format!("{{\"name\": {name}, \"{key}\": {arguments}}}")
        };
        let each = |write: &dyn Fn(&Parsed<'_>) -> String, between: &str| {
            read.iter().map(write).collect::<Vec<_>>().join(between)
        };
        let text = match row.syntax {
            Syntax::Json(key) if close.is_empty() && row.bare => each(&|call| object_of(call, key), "; "),
            Syntax::Json(key) if close.is_empty() => format!("{open}[{}]", each(&|call| object_of(call, key), ", ")),
            Syntax::Json(key) => each(&|call| format!("{open}\n{}\n{close}", object_of(call, key)), "\n"),
            Syntax::Elements => each(
                &|(call, arguments)| {
                    let parameters: String = arguments
                        .iter()
                        .map(|(key, value)| format!("<parameter={key}>\n{}\n</parameter>\n", raw(value)))
                        .collect();
                    format!("{open}\n<function={}>\n{parameters}</function>\n{close}", call.name)
                },
                "\n",
            ),
            Syntax::Python => {
                let calls = each(
                    &|(call, arguments)| {
                        let arguments: Vec<String> =
                            arguments.iter().map(|(k, v)| format!("{k}={}", python(v))).collect();
                        format!("{}({})", call.name, arguments.join(", "))
                    },
                    ", ",
                );
                format!("{open}[{calls}]{close}")
            }
            Syntax::Call(quote) => each(
                &|(call, arguments)| format!("{open}call:{}{}{close}", call.name, quoted_object(arguments, quote)),
                "",
            ),
            Syntax::Mistral if row.name == "mistral_list" => {
                let calls = each(
                    &|call| {
                        let mut text = object_of(call, "arguments");
                        text.pop();
                        format!("{text}, \"id\": {}}}", Value::from(call.0.id.as_str()))
                    },
                    ", ",
                );
                format!("{open}[{calls}]")
            }
            Syntax::Mistral => each(
                &|(call, arguments)| {
                    format!(
                        "{open}{}[CALL_ID]{}[ARGS]{}",
                        call.name,
                        call.id,
                        spaced_object(arguments)
                    )
                },
                "",
            ),
            Syntax::Harmony => each(
                &|(call, arguments)| {
                    format!(
                        "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}{close}",
                        call.name,
                        spaced_object(arguments)
                    )
                },
                "<|start|>assistant",
            ),
        };
        Ok(Some(text))
    }
}

fn object(call: &ToolCall) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(&call.arguments).map_err(|e| {
        let message = format!(
            "the arguments of the call of `{}` are not a JSON object: {e}",
            call.name
        );
        Error::new(ErrorKind::InvalidInput, message)
    })
}

/// JSON as Python's `json.dumps` writes it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => spaced_object(fields),
        other => other.to_string(),
    }
}

fn spaced_object(fields: &Map<String, Value>) -> String {
    let field = |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), spaced(value));
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}

/// A text as it is, anything else as JSON.
fn raw(value: &Value) -> String {
    value.as_str().map_or_else(|| spaced(value), str::to_owned)
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), python(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn quoted_object(fields: &Map<String, Value>, quote: &str) -> String {
    let field = |(key, value): (&String, &Value)| format!("{key}:{}", quoted(value, quote));
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
}

fn quoted(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| quoted(item, quote)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => quoted_object(fields, quote),
        other => other.to_string(),
    }
}
