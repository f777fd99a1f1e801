//! The form that the answer of a target has to have: JSON by a schema, calls of tools that were offered, with arguments by theirs.
//!
//! The model on this machine can write nothing else; a target is asked for it, and checked. The schemas may be a stranger's, and so
//! is the answer, so the work is bounded before it begins: [`look`] says of which schemas nobody can know what they take. Those are
//! not checked, and the answer says so.
//!
//! It depends on the crate `jsonschema`, which stays behind this module. Nothing is fetched: no reference leaves the schema.

use cactus_cloud::{Format, Request};
use cactus_text::grammar::number_bounds;
use jsonschema::{Draft, Keyword, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// Levels of nesting in a schema.
const NESTING: usize = 96;
/// Bytes of a schema, and of those times the bytes of the value: nearly everything grows by no more than that.
const SCHEMA_BYTES: usize = 256 << 10;
const WORK: usize = 1 << 31;
/// Schemas that one value may have to satisfy, each counted as often as something refers to it; and how deep they lie.
const AT_ONCE: usize = 1000;
const DEEP: usize = 64;
/// Keywords that have the library look at everything beside them once more.
const AGAIN: usize = 8;
/// Expressions in a schema, and bytes of each once it is compiled.
const EXPRESSIONS: usize = 256;
const EXPRESSION_BYTES: usize = 64 << 10;
/// The library recurses.
const STACK_BYTES: usize = 64 << 20;

/// Formats of strings that are checked: those that the model on this machine is held to.
const FORMATS: &[&str] = &[
    "date",
    "date-time",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has the form.
    Holds,
    /// It does not, and this is wrong with it. No content of the answer is in it.
    Violates(String),
    /// Nobody can say, because of this.
    Unknown(String),
}

/// What a request asked for.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    tools: BTreeMap<String, Value>,
    format: Format,
}

impl Form {
    /// The form that a request asks for. Take it from what was asked, not from what is sent: that has placeholders.
    pub(crate) fn of(request: &Request) -> Form {
        let tools = request.tools.iter();
        Form {
            tools: tools.map(|tool| (tool.name.clone(), tool.parameters.clone())).collect(),
            format: request.format.clone(),
        }
    }

    /// Whether the answer is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format != Format::Text
    }

    /// Whether a text is the answer that was asked for.
    pub(crate) fn check_answer(&self, text: &str) -> Verdict {
        if !self.is_json() {
            return Verdict::Holds;
        }
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            return Verdict::Violates("its answer is not JSON".to_owned());
        };
        match &self.format {
            Format::JsonSchema { schema, .. } => match check(schema, &value, text.len()) {
                Verdict::Violates(why) => Verdict::Violates(format!("its answer does not satisfy the schema: {why}")),
                Verdict::Unknown(why) => Verdict::Unknown(format!("its answer was not held to the schema: {why}")),
                Verdict::Holds => Verdict::Holds,
            },
            Format::JsonObject if !value.is_object() => {
                Verdict::Violates("its answer is JSON, and not an object".to_owned())
            }
            Format::JsonObject | Format::Text => Verdict::Holds,
        }
    }

    /// The schema of a tool's arguments; nothing, where it was not offered.
    pub(crate) fn arguments_of(&self, tool: &str) -> &Value {
        self.tools.get(tool).unwrap_or(&Value::Null)
    }

    /// Whether a tool may be called so.
    pub(crate) fn check_call(&self, tool: &str, arguments: &Value) -> Verdict {
        let Some(schema) = self.tools.get(tool) else {
            return Verdict::Violates("it calls a tool that was not offered".to_owned());
        };
        if !arguments.is_object() {
            return Verdict::Violates(format!("it calls `{tool}` with something other than an object"));
        }
        match check(schema, arguments, arguments.to_string().len()) {
            Verdict::Violates(why) => {
                let what = format!("its call of `{tool}` does not satisfy the schema of that tool: {why}");
                Verdict::Violates(what)
            }
            Verdict::Unknown(why) => {
                let what = format!("its call of `{tool}` was not held to the schema of that tool: {why}");
                Verdict::Unknown(what)
            }
            Verdict::Holds => Verdict::Holds,
        }
    }
}

/// Whether a value of so many bytes satisfies a schema.
pub(crate) fn check(schema: &Value, value: &Value, bytes: usize) -> Verdict {
    // Nothing was asked for.
    if matches!(schema, Value::Null | Value::Bool(true)) || schema.as_object().is_some_and(Map::is_empty) {
        return Verdict::Holds;
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("cactus-schema".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || validate(schema, value, bytes));
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::Unknown("the validator failed on the schema".to_owned()),
            Err(e) => Verdict::Unknown(format!("no thread could be started for it: {e}")),
        }
    })
}

fn validate(schema: &Value, value: &Value, bytes: usize) -> Verdict {
    let refers = match look(schema, bytes) {
        Ok(refers) => refers,
        Err(why) => return Verdict::Unknown(why),
    };
    let validator = match validator(schema) {
        Ok(validator) => validator,
        Err(why) => return Verdict::Unknown(why),
    };
    if validator.is_valid(value) {
        return Verdict::Holds;
    }
    // Where schemas refer to one another, the library may take long to say what is wrong.
    let error = (!refers).then(|| validator.validate(value).err()).flatten();
    Verdict::Violates(match error {
        Some(error) => format!("see `#{}`", error.schema_path()),
        None => "it is not what the schema describes".to_owned(),
    })
}

fn validator(schema: &Value) -> Result<Validator, String> {
    // Without a word on the draft, the newest one that takes the schema.
    let named = schema.get("$schema").is_some();
    let drafts: &[Option<Draft>] = match named {
        true => &[None],
        false => &[Some(Draft::Draft202012), Some(Draft::Draft7), Some(Draft::Draft4)],
    };
    let mut wrong = String::new();
    for draft in drafts {
        let expressions = PatternOptions::regex().size_limit(EXPRESSION_BYTES);
        let mut options = jsonschema::options()
            .offline()
            .with_pattern_options(expressions)
            .with_keyword("format", |_, format, _| Ok(Box::new(Formatted::new(format))));
        if let Some(draft) = draft {
            options = options.with_draft(*draft);
        }
        match options.build(schema) {
            Ok(validator) => return Ok(validator),
            Err(error) if wrong.is_empty() => {
                wrong = format!("no validator takes it; see `#{}`", error.instance_path())
            }
            Err(_) => {}
        }
    }
    Err(wrong)
}

/// The keyword `format`, with the meaning that it has for the model on this machine.
enum Formatted {
    /// Numbers between these.
    Between(f64, f64),
    /// Strings that the library knows.
    Text(Box<Validator>),
    /// It says nothing.
    Anything,
}

impl Formatted {
    fn new(format: &Value) -> Formatted {
        let Some(name) = format.as_str() else {
            return Formatted::Anything;
        };
        if let Some((low, high)) = number_bounds(name) {
            return Formatted::Between(low as f64, high as f64);
        }
        if !FORMATS.contains(&name) {
            return Formatted::Anything;
        }
        let options = jsonschema::options().offline().should_validate_formats(true);
        match options.build(&json!({"format": name})) {
            Ok(validator) => Formatted::Text(Box::new(validator)),
            Err(_) => Formatted::Anything,
        }
    }
}

impl<'i> Keyword<'i> for Formatted {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        match Keyword::is_valid(self, instance) {
            true => Ok(()),
            false => Err(ValidationError::custom("it does not have the format")),
        }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        match self {
            Formatted::Between(low, high) => instance.as_f64().is_none_or(|number| (*low..=*high).contains(&number)),
            Formatted::Text(validator) => validator.is_valid(instance),
            Formatted::Anything => true,
        }
    }
}

/// Whether schemas inside refer to others; or why it cannot be known beforehand how long the check of a value takes.
///
/// Every object is taken for a schema, which may be more than there are.
fn look(schema: &Value, value_bytes: usize) -> Result<bool, String> {
    let mut objects = Vec::new();
    let (mut bytes, mut expressions, mut again) = (0usize, 0usize, 0usize);
    let mut stack = vec![(schema, 0usize)];
    while let Some((value, depth)) = stack.pop() {
        if depth > NESTING {
            return Err(format!("it is nested deeper than {NESTING} levels"));
        }
        bytes += match value {
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                stack.extend(items.iter().map(|item| (item, depth + 1)));
                items.len() + 2
            }
            Value::Object(fields) => {
                stack.extend(fields.values().map(|field| (field, depth + 1)));
                objects.push((fields, depth));
                let has = |keyword| usize::from(fields.contains_key(keyword));
                let patterned = fields.get("patternProperties").and_then(Value::as_object);
                expressions += patterned.map_or(0, Map::len) + has("pattern");
                again += has("unevaluatedProperties") + has("unevaluatedItems");
                fields.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
            _ => 4,
        };
        if bytes > SCHEMA_BYTES {
            return Err(format!("the schema has more than {SCHEMA_BYTES} bytes"));
        }
    }
    if bytes.saturating_mul(value_bytes) > WORK {
        return Err(format!("{value_bytes} bytes are too many for a schema of that size"));
    }
    if expressions > EXPRESSIONS {
        return Err(format!("the schema has more than {EXPRESSIONS} expressions"));
    }
    if again > AGAIN {
        let why = format!("the schema has more than {AGAIN} of `unevaluatedProperties` and `unevaluatedItems`");
        return Err(why);
    }
    let mut refers = false;
    let mut counts = Counts::default();
    for (fields, depth) in objects {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if fields.get(keyword).is_some_and(Value::is_string) {
                return Err(format!("`{keyword}` in the schema is not followed"));
            }
        }
        if depth > 0 && fields.get("$id").is_some_and(Value::is_string) {
            return Err("a part of the schema has an `$id`, by which references lead elsewhere".to_owned());
        }
        refers |= fields.get("$ref").is_some_and(Value::is_string);
        if counts.of(schema, fields, 0)?.schemas > AT_ONCE {
            return Err(format!("a value has to satisfy more than {AT_ONCE} schemas at once"));
        }
    }
    Ok(refers)
}

/// What one value has to satisfy at once.
#[derive(Clone, Copy)]
struct Count {
    schemas: usize,
    deep: usize,
}

/// Counts of each schema, `None` while it is being counted.
#[derive(Default)]
struct Counts(HashMap<*const Map<String, Value>, Option<Count>>);

impl Counts {
    fn of(&mut self, root: &Value, fields: &Map<String, Value>, depth: usize) -> Result<Count, String> {
        let known = self.0.get(&std::ptr::from_ref(fields)).copied();
        if let Some(None) = known {
            return Err("a part of the schema refers to itself".to_owned());
        }
        let deep = known.flatten().map_or(1, |count| count.deep);
        if depth + deep > DEEP {
            return Err(format!("schemas refer to others over more than {DEEP} steps"));
        }
        if let Some(count) = known.flatten() {
            return Ok(count);
        }
        self.0.insert(std::ptr::from_ref(fields), None);
        let mut parts = Vec::new();
        for keyword in ["allOf", "anyOf", "oneOf"] {
            parts.extend(fields.get(keyword).and_then(Value::as_array).into_iter().flatten());
        }
        let single = ["not", "if", "then", "else"];
        parts.extend(single.iter().filter_map(|keyword| fields.get(*keyword)));
        for keyword in ["dependentSchemas", "dependencies"] {
            let listed = fields.get(keyword).and_then(Value::as_object);
            parts.extend(listed.into_iter().flat_map(Map::values));
        }
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            parts.push(place(root, reference)?);
        }
        let mut count = Count { schemas: 1, deep: 1 };
        for part in parts.into_iter().filter_map(Value::as_object) {
            let inside = self.of(root, part, depth + 1)?;
            count.schemas = count.schemas.saturating_add(inside.schemas);
            count.deep = count.deep.max(inside.deep + 1);
        }
        self.0.insert(std::ptr::from_ref(fields), Some(count));
        Ok(count)
    }
}

/// The schema that a reference leads to.
fn place<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let base = root.get("$id").and_then(Value::as_str).unwrap_or_default();
    let own = reference.strip_prefix(base.trim_end_matches('#')).unwrap_or(reference);
    let pointer = match own {
        "" => Some(""),
        own => own.strip_prefix('#'),
    };
    let found = pointer.and_then(|pointer| root.pointer(pointer));
    found.ok_or_else(|| format!("`{reference}` does not lead to a place in the schema"))
}

#[cfg(test)]
mod tests;
