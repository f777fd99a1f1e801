//! What stands between the markers of a call, read once it is whole.
//!
//! Depends on `serde_json`. Everything here is what a model wrote, so nesting is bounded and nothing is taken on trust.

use std::iter::Peekable;
use std::str::Chars;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Tool;
use super::format::Syntax;

/// Deepest nesting of arguments.
const MAX_DEPTH: usize = 64;

/// A call that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) id: Option<String>,
    pub(super) name: String,
    /// A JSON object as text.
    pub(super) arguments: String,
}

impl Read {
    fn new(name: &str, arguments: Map<String, Value>) -> Self {
        Self {
            id: None,
            name: name.to_owned(),
            arguments: Value::Object(arguments).to_string(),
        }
    }
}

/// The calls in `body`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(syntax: Syntax, body: &str, tools: &[Tool]) -> Result<Vec<Read>, String> {
    let body = body.trim();
    let calls = match syntax {
        Syntax::Json(_) if body.starts_with(['{', '[']) => json(body)?,
        Syntax::Json(_) | Syntax::Python => python(body)?,
        Syntax::Elements => elements(body, tools)?,
        Syntax::Call(quote) => vec![call(body, quote)?],
        Syntax::Mistral if body.starts_with('[') && !body.starts_with("[ARGS]") => json(body)?,
        Syntax::Mistral => vec![mistral(body)?],
        Syntax::Harmony => return Err("the header names no function".to_owned()),
    };
    match calls.iter().find(|call| call.name.is_empty()) {
        Some(_) => Err("a call has no name".to_owned()),
        None if calls.is_empty() => Err("there is no call in it".to_owned()),
        None => Ok(calls),
    }
}

#[derive(Deserialize)]
struct Object<'a> {
    name: String,
    #[serde(borrow, alias = "parameters", alias = "args")]
    arguments: Option<&'a RawValue>,
    id: Option<String>,
}

/// Objects with name and arguments, one after the other or in lists.
fn json(body: &str) -> Result<Vec<Read>, String> {
    let fixed = controls_escaped(body);
    let mut calls = Vec::new();
    for value in serde_json::Deserializer::from_str(&fixed).into_iter::<&RawValue>() {
        let value = value.map_err(|e| e.to_string())?.get();
        if value.starts_with('[') {
            let list: Vec<&RawValue> = serde_json::from_str(value).map_err(|e| e.to_string())?;
            for item in list {
                calls.push(object(item.get())?);
            }
        } else {
            calls.push(object(value)?);
        }
    }
    Ok(calls)
}

fn object(text: &str) -> Result<Read, String> {
    let object: Object<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let arguments = arguments(object.arguments.map_or("{}", RawValue::get))?;
    Ok(Read {
        id: object.id,
        name: object.name,
        arguments,
    })
}

/// An object of arguments as text; some models write it as a string, or nothing at all.
pub(super) fn arguments(text: &str) -> Result<String, String> {
    match text.trim() {
        "null" | "" => Ok("{}".to_owned()),
        text if text.starts_with('{') => {
            let checked: Result<&RawValue, _> = serde_json::from_str(text);
            checked.map_err(|e| e.to_string()).map(|raw| raw.get().to_owned())
        }
        text if text.starts_with('"') => {
            let inner: String = serde_json::from_str(text).map_err(|e| e.to_string())?;
            match inner.trim().starts_with('{') {
                true => arguments(&inner),
                false => Err("the arguments are a string".to_owned()),
            }
        }
        _ => Err("the arguments are not an object".to_owned()),
    }
}

/// The same text with control characters inside strings written as escapes, which models forget.
fn controls_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            '"' if !escaped => quoted = !quoted,
            '\n' if quoted => {
                out.push_str("\\n");
                continue;
            }
            '\t' if quoted => {
                out.push_str("\\t");
                continue;
            }
            '\r' if quoted => {
                out.push_str("\\r");
                continue;
            }
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// `<function=name>` with `<parameter=key>` inside.
fn elements(body: &str, tools: &[Tool]) -> Result<Vec<Read>, String> {
    let mut calls = Vec::new();
    let mut rest = body;
    while !rest.trim_start().is_empty() {
        let after = rest.trim_start().strip_prefix("<function=");
        let (name, mut inner) = after
            .and_then(|after| after.split_once('>'))
            .ok_or("expected `<function=name>`")?;
        let tool = tools.iter().find(|tool| tool.name == name.trim());
        let mut arguments = Map::new();
        loop {
            inner = inner.trim_start();
            if let Some(after) = inner.strip_prefix("</function>") {
                rest = after.trim_start().strip_prefix("<tool_call>").unwrap_or(after);
                break;
            }
            let after = inner.strip_prefix("<parameter=");
            let (key, value) = after
                .and_then(|after| after.split_once('>'))
                .ok_or("expected `<parameter=key>` or `</function>`")?;
            let end = parameter_end(value).ok_or("a parameter has no end")?;
            let text = &value[..end];
            let text = text.strip_prefix('\n').unwrap_or(text);
            let text = text.strip_suffix('\n').unwrap_or(text);
            let schema = tool.and_then(|tool| tool.parameter(key.trim()));
            arguments.insert(key.trim().to_owned(), typed(text, schema));
            inner = &value[end + "</parameter>".len()..];
        }
        calls.push(Read::new(name.trim(), arguments));
    }
    Ok(calls)
}

/// Where a value ends: a text may contain the closing word, so what follows has to fit too.
fn parameter_end(value: &str) -> Option<usize> {
    let mut first = None;
    for (at, word) in value.match_indices("</parameter>") {
        first = first.or(Some(at));
        let after = value[at + word.len()..].trim_start();
        if after.starts_with("<parameter=") || after.starts_with("</function>") {
            return Some(at);
        }
    }
    first
}

/// A raw value as what its schema says it is. Without a schema it is a text.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    let mut kinds = Vec::new();
    if let Some(schema) = schema {
        collect_kinds(schema, &mut kinds, 0);
    }
    let is = |kind: &str| kinds.iter().any(|k| k == kind);
    let literal = match text.trim() {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        other => serde_json::from_str(other).ok(),
    };
    let fits = |value: &Value| match value {
        Value::Null => is("null"),
        Value::Bool(_) => is("boolean"),
        Value::Number(n) => is("number") || (is("integer") && !n.is_f64()),
        Value::String(_) => false,
        Value::Array(_) => is("array"),
        Value::Object(_) => is("object"),
    };
    literal.filter(fits).unwrap_or_else(|| Value::from(text))
}

/// The types that a schema plainly allows.
fn collect_kinds(schema: &Value, kinds: &mut Vec<String>, depth: usize) {
    if depth > 8 {
        return;
    }
    let mut add = |value: &Value| {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        kinds.push(kind.to_owned());
    };
    schema.get("const").into_iter().for_each(&mut add);
    schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .for_each(&mut add);
    match schema.get("type") {
        Some(Value::String(kind)) => kinds.push(kind.clone()),
        Some(Value::Array(list)) => kinds.extend(list.iter().filter_map(|k| k.as_str().map(str::to_owned))),
        _ => {}
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for inner in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect_kinds(inner, kinds, depth + 1);
        }
    }
}

fn mistral(body: &str) -> Result<Read, String> {
    let at = body.find('{').ok_or("there are no arguments")?;
    let (head, rest) = body.split_at(at);
    let head = head.trim().strip_suffix("[ARGS]").unwrap_or(head.trim());
    let (name, id) = match head.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_owned())),
        None => (head, None),
    };
    Ok(Read {
        id,
        name: name.trim().to_owned(),
        arguments: arguments(&controls_escaped(rest))?,
    })
}

/// `call:name{...}`.
fn call(body: &str, quote: &str) -> Result<Read, String> {
    let after = body.strip_prefix("call:").ok_or("expected `call:`")?;
    let (name, rest) = after.split_at(after.find('{').ok_or("there are no arguments")?);
    let mut reader = Quoted { rest, quote };
    let value = reader.value(0)?;
    match (value, reader.rest.trim()) {
        (Value::Object(arguments), "") => Ok(Read::new(name.trim(), arguments)),
        _ => Err("something follows the arguments".to_owned()),
    }
}

/// Values with bare keys, and strings between words.
struct Quoted<'a> {
    rest: &'a str,
    quote: &'a str,
}

impl<'a> Quoted<'a> {
    fn take(&mut self, word: &str) -> bool {
        let trimmed = self.rest.trim_start();
        let after = trimmed.strip_prefix(word);
        self.rest = after.unwrap_or(trimmed);
        after.is_some()
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let (text, after) = self.rest.split_once(self.quote).ok_or("a string has no end")?;
        self.rest = after;
        Ok(text)
    }

    /// Text up to one of `ends`, without it.
    fn until(&mut self, ends: &[char]) -> Result<&'a str, String> {
        let at = self.rest.find(ends).ok_or("a value has no end")?;
        let (text, after) = self.rest.split_at(at);
        self.rest = after;
        Ok(text.trim())
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("the arguments are nested deeper than {MAX_DEPTH}"));
        }
        if self.take(self.quote) {
            return Ok(Value::from(self.string()?));
        }
        if self.take("{") {
            let mut fields = Map::new();
            while !self.take("}") {
                let key = match self.take(self.quote) {
                    true => self.string()?,
                    false => self.until(&[':'])?,
                };
                if !self.take(":") {
                    return Err("expected `:` after a key".to_owned());
                }
                fields.insert(key.to_owned(), self.value(depth + 1)?);
                if !self.take(",") && !self.rest.starts_with('}') {
                    return Err("expected `,` or `}`".to_owned());
                }
            }
            return Ok(Value::Object(fields));
        }
        if self.take("[") {
            let mut items = Vec::new();
            while !self.take("]") {
                items.push(self.value(depth + 1)?);
                if !self.take(",") && !self.rest.starts_with(']') {
                    return Err("expected `,` or `]`".to_owned());
                }
            }
            return Ok(Value::Array(items));
        }
        let word = self.until(&[',', '}', ']'])?;
        Ok(match word {
            "" => return Err("a value is missing".to_owned()),
            "None" => Value::Null,
            word => serde_json::from_str(word).unwrap_or_else(|_| Value::from(word)),
        })
    }
}

/// `[f(a="x"), g()]`, with or without the brackets; `f.call(...)` is `f`.
fn python(body: &str) -> Result<Vec<Read>, String> {
    let mut reader = Python {
        chars: body.chars().peekable(),
    };
    let listed = reader.take('[');
    let mut calls = Vec::new();
    loop {
        if reader.at_end() || (listed && reader.take(']')) {
            break;
        }
        let name = reader.name()?;
        let name = name.strip_suffix(".call").unwrap_or(&name).to_owned();
        if !reader.take('(') {
            return Err("expected `(` after a function's name".to_owned());
        }
        let mut arguments = Map::new();
        while !reader.take(')') {
            let key = reader.name()?;
            if !reader.take('=') {
                return Err(format!("expected `=` after `{key}`"));
            }
            arguments.insert(key, reader.value(0)?);
            if !reader.take(',') && reader.peek() != Some(')') {
                return Err("expected `,` or `)`".to_owned());
            }
        }
        calls.push(Read::new(&name, arguments));
        if !(reader.take(',') || reader.take(';') || reader.at_end() || reader.peek() == Some(']')) {
            return Err("expected `,` or `]` after a call".to_owned());
        }
    }
    match reader.at_end() {
        true => Ok(calls),
        false => Err("something follows the calls".to_owned()),
    }
}

struct Python<'a> {
    chars: Peekable<Chars<'a>>,
}

impl Python<'_> {
    fn peek(&mut self) -> Option<char> {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
        self.chars.peek().copied()
    }

    fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    fn take(&mut self, wanted: char) -> bool {
        self.peek();
        self.chars.next_if_eq(&wanted).is_some()
    }

    fn name(&mut self) -> Result<String, String> {
        self.peek();
        let mut name = String::new();
        while let Some(c) = self
            .chars
            .next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
        {
            name.push(c);
        }
        match name.is_empty() {
            true => Err("expected a name".to_owned()),
            false => Ok(name),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("the arguments are nested deeper than {MAX_DEPTH}"));
        }
        match self.peek().ok_or("a value is missing")? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::from),
            '[' => self.items('[', ']', depth),
            '(' => self.items('(', ')', depth),
            '{' => {
                self.take('{');
                let mut fields = Map::new();
                while !self.take('}') {
                    let key = match self.value(depth + 1)? {
                        Value::String(key) => key,
                        other => other.to_string(),
                    };
                    if !self.take(':') {
                        return Err("expected `:` after a key".to_owned());
                    }
                    fields.insert(key, self.value(depth + 1)?);
                    if !self.take(',') && self.peek() != Some('}') {
                        return Err("expected `,` or `}`".to_owned());
                    }
                }
                Ok(Value::Object(fields))
            }
            _ => self.literal(),
        }
    }

    fn items(&mut self, open: char, close: char, depth: usize) -> Result<Value, String> {
        self.take(open);
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(',') && self.peek() != Some(close) {
                return Err(format!("expected `,` or `{close}`"));
            }
        }
        Ok(Value::Array(items))
    }

    fn literal(&mut self) -> Result<Value, String> {
        let mut word = String::new();
        while let Some(c) = self
            .chars
            .next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+'))
        {
            word.push(c);
        }
        match word.as_str() {
            "True" => Ok(Value::Bool(true)),
            "False" => Ok(Value::Bool(false)),
            "None" => Ok(Value::Null),
            "" => Err("a value is missing".to_owned()),
            word => serde_json::from_str(word).map_err(|_| format!("`{word}` is not a value")),
        }
    }

    /// A string. Templates write texts between quotes without escaping the quotes inside, so one that nothing fitting follows
    /// does not end the string.
    fn string(&mut self, quote: char) -> Result<String, String> {
        self.chars.next();
        let mut out = String::new();
        loop {
            match self.chars.next().ok_or("a string has no end")? {
                '\\' => self.escape(&mut out),
                c if c == quote => {
                    let mut ahead = self.chars.clone();
                    let next = ahead.find(|c| !c.is_whitespace());
                    if matches!(next, None | Some(',' | ')' | ']' | '}' | ':')) {
                        return Ok(out);
                    }
                    out.push(c);
                }
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self, out: &mut String) {
        let Some(c) = self.chars.next() else { return };
        let simple = match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '\\' | '\'' | '"' | '/' => c,
            'u' => {
                let digits: String = self.chars.clone().take(4).collect();
                match u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32) {
                    Some(c) if digits.len() == 4 => {
                        self.chars.nth(3);
                        c
                    }
                    _ => {
                        out.push('\\');
                        'u'
                    }
                }
            }
            c => {
                out.push('\\');
                c
            }
        };
        out.push(simple);
    }
}
