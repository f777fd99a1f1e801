//! Reads a JSON Schema through before it is compiled, and rewrites it so that what is left means the same to the library.
//!
//! The rule is that nothing is passed over in silence: a keyword that restricts instances and is not enforced is an error with
//! its JSON pointer, in whatever draft it is. Annotations (`title`, `default` and so on) and keywords that no draft knows are
//! left out, as the standard says. Schemas that nothing refers to are not looked at.
//!
//! It deliberately does not decide what needs the library's view of the whole (whether the branches of a `oneOf` exclude each
//! other): see [`super::locate`].

use serde_json::{Map, Number, Value, json};

use super::formats::{self, Enforced};
use super::{GrammarLimits, Spacing, pattern};
use crate::files::json_type;
use crate::{Error, ErrorKind};

/// Largest whole number that a double holds with all its neighbors.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Largest common multiple of the steps of numbers.
const MAX_STEP: u64 = 100_000_000;

/// The types there are.
const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];

/// What to do instead of a keyword that no other says.
const AFTERWARDS: &str = "remove it from the schema, and check it yourself in the finished answer";

/// Keywords that restrict instances and are not enforced, with what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("not", "say what is allowed instead"),
    ("if", "use `anyOf` of the cases"),
    ("then", "use `anyOf` of the cases"),
    ("else", "use `anyOf` of the cases"),
    ("dependencies", "use `anyOf` of the cases"),
    ("dependentRequired", "use `anyOf` of the cases"),
    ("dependentSchemas", "use `anyOf` of the cases"),
    ("uniqueItems", AFTERWARDS),
    ("contains", AFTERWARDS),
    ("minContains", AFTERWARDS),
    ("maxContains", AFTERWARDS),
    (
        "propertyNames",
        "use `patternProperties` and `additionalProperties: false`",
    ),
    ("unevaluatedProperties", "use `additionalProperties`"),
    ("unevaluatedItems", "use `items`"),
    ("$dynamicRef", "use `$ref`"),
    ("$recursiveRef", "use `$ref`"),
    ("extends", "use `allOf`"),
    ("disallow", "say what is allowed instead"),
    ("divisibleBy", "use `multipleOf`"),
];

/// Of those, ones that say nothing with this value.
const HARMLESS: &[(&str, bool)] = &[
    ("uniqueItems", false),
    ("propertyNames", true),
    ("unevaluatedProperties", true),
    ("unevaluatedItems", true),
    ("not", false),
];

/// The schema at `pointer` (`#`, or `#/...`) as the library is given it.
///
/// # Errors
/// [`ErrorKind::UnsupportedSchema`], [`ErrorKind::InvalidGrammar`] or [`ErrorKind::GrammarLimit`] with keyword and pointer.
pub(super) fn prepare(schema: &Value, pointer: &str, spacing: Spacing, limits: &GrammarLimits) -> Result<Value, Error> {
    check_size(schema, limits)?;
    let mut prepared = Reader::new(schema, limits).whole(pointer)?;
    prepared.insert("x-guidance".to_owned(), options(spacing));
    Ok(Value::Object(prepared))
}

/// A schema without the keywords that cannot be enforced, and those keywords, each as ``` `keyword` at `#/...` ```.
///
/// # Errors
/// [`ErrorKind::InvalidGrammar`] or [`ErrorKind::GrammarLimit`], as [`prepare`].
pub(crate) fn relax(schema: &Value, limits: &GrammarLimits) -> Result<(Value, Vec<String>), Error> {
    check_size(schema, limits)?;
    let mut reader = Reader::new(schema, limits);
    reader.dropped = Some(Vec::new());
    reader.whole("#")?;
    let mut relaxed = schema.clone();
    let mut said = Vec::new();
    for (at, keyword) in reader.dropped.unwrap_or_default() {
        let pointer = percent_decoded(at.strip_prefix('#').unwrap_or(&at)).unwrap_or_default();
        if let Some(Value::Object(fields)) = relaxed.pointer_mut(&pointer)
            && fields.shift_remove(&keyword).is_some()
        {
            said.push(format!("`{keyword}` at `{at}`"));
        }
    }
    Ok((relaxed, said))
}

/// How the library writes JSON. Without `u` every text has one spelling; else a key could be spelled around its schema.
fn options(spacing: Spacing) -> Value {
    let escapes = "nrbtf\\\"";
    match spacing {
        Spacing::Line => json!({"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false,
            "json_allowed_escapes": escapes}),
        Spacing::Compact => json!({"whitespace_flexible": false, "json_allowed_escapes": escapes}),
        Spacing::Pretty => json!({"whitespace_flexible": true, "json_allowed_escapes": escapes,
            "whitespace_pattern": r"\x20{1,2}|\r?\n[\x20\t]{0,32}"}),
    }
}

/// Before anything recurses: how large and how deep.
fn check_size(schema: &Value, limits: &GrammarLimits) -> Result<(), Error> {
    let mut stack = vec![(schema, 0usize)];
    let mut bytes = 0usize;
    while let Some((value, depth)) = stack.pop() {
        if depth > limits.nesting {
            let message = format!("the schema is nested deeper than {} levels", limits.nesting);
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
        bytes += match value {
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                stack.extend(items.iter().map(|item| (item, depth + 1)));
                items.len() + 2
            }
            Value::Object(fields) => {
                stack.extend(fields.values().map(|field| (field, depth + 1)));
                fields.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
            _ => 4,
        };
        if bytes > limits.source_bytes {
            let message = format!("the schema has more than {} bytes", limits.source_bytes);
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
    }
    Ok(())
}

/// Whether the schema names a draft in which `prefixItems` says nothing.
fn is_old(schema: &Value) -> bool {
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    ["draft-03", "draft-04", "draft-06", "draft-07", "2019-09"]
        .iter()
        .any(|old| draft.contains(old))
}

struct Reader<'a> {
    root: &'a Value,
    limits: &'a GrammarLimits,
    schemas: usize,
    /// Pointers that are referred to, in the order of their names `d0`, `d1` and so on.
    references: Vec<String>,
    /// Every `multipleOf` so far, as digits and how many of them follow the point.
    steps: Vec<(u64, u32)>,
    old_arrays: bool,
    /// Where keywords that cannot be enforced are left out instead of refused: place and name of each.
    dropped: Option<Vec<(String, String)>>,
}

fn unsupported(keyword: &str, at: &str, why: &str) -> Error {
    let message = format!("`{keyword}` in the schema at `{at}` is not supported: {why}");
    Error::new(ErrorKind::UnsupportedSchema, message)
}

fn wrong(keyword: &str, at: &str, expected: &str, found: &Value) -> Error {
    let message = format!(
        "`{keyword}` in the schema at `{at}` is {}, expected {expected}",
        json_type(found)
    );
    Error::new(ErrorKind::InvalidGrammar, message)
}

/// A step of a JSON pointer in a URI fragment, as far as it needs escapes to be read back.
fn step(at: &str, name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1").replace('%', "%25");
    format!("{at}/{name}")
}

impl<'a> Reader<'a> {
    fn new(root: &'a Value, limits: &'a GrammarLimits) -> Self {
        Self {
            root,
            limits,
            schemas: 0,
            references: Vec::new(),
            steps: Vec::new(),
            old_arrays: is_old(root),
            dropped: None,
        }
    }

    /// The schema at `pointer` with all that it refers to under `$defs`.
    fn whole(&mut self, pointer: &str) -> Result<Map<String, Value>, Error> {
        let start = self.target(pointer)?;
        let mut prepared = match self.schema(start, pointer)? {
            Value::Object(fields) => fields,
            Value::Bool(false) => {
                let message = format!("nothing satisfies the schema at `{pointer}`: it is false");
                return Err(Error::new(ErrorKind::InvalidGrammar, message));
            }
            _ => Map::new(),
        };
        let mut definitions = Map::new();
        let mut next = 0;
        while let Some(pointer) = self.references.get(next).cloned() {
            let target = self.target(&pointer)?;
            definitions.insert(format!("d{next}"), self.schema(target, &pointer)?);
            next += 1;
        }
        if !definitions.is_empty() {
            prepared.insert("$defs".to_owned(), Value::Object(definitions));
        }
        Ok(prepared)
    }

    /// Leaves out a keyword that cannot be enforced, where that is asked for.
    fn passed(&mut self, result: Result<(), Error>, keyword: &str, at: &str) -> Result<(), Error> {
        match (result, &mut self.dropped) {
            (Err(error), Some(dropped)) if error.kind() == ErrorKind::UnsupportedSchema => {
                dropped.push((at.to_owned(), keyword.to_owned()));
                Ok(())
            }
            (result, _) => result,
        }
    }

    /// A schema for the library. `at` is its pointer in the one that was given.
    fn schema(&mut self, schema: &'a Value, at: &str) -> Result<Value, Error> {
        self.schemas += 1;
        if self.schemas > self.limits.schemas {
            let message = format!("the schema has more than {} schemas inside", self.limits.schemas);
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
        let fields = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(fields) => fields,
            other => {
                let message = format!(
                    "the schema at `{at}` is {}, expected an object or a boolean",
                    json_type(other)
                );
                return Err(Error::new(ErrorKind::InvalidGrammar, message));
            }
        };
        let mut out = Map::new();
        let mut extra = Vec::new();
        for (keyword, value) in fields {
            let read = self.keyword(fields, keyword, value, at, &mut out, &mut extra);
            self.passed(read, keyword, at)?;
        }
        without_negative_zero(fields, &mut out, &mut extra);
        let counts = self.check_counts(fields, at);
        self.passed(counts, "minProperties", at)?;
        if !extra.is_empty() {
            match out.get_mut("allOf") {
                Some(Value::Array(all)) => all.extend(extra),
                _ => drop(out.insert("allOf".to_owned(), Value::Array(extra))),
            }
        }
        if !out.is_empty() {
            out.insert("$comment".to_owned(), Value::from(at));
        }
        Ok(Value::Object(out))
    }

    fn keyword(
        &mut self,
        fields: &'a Map<String, Value>,
        keyword: &str,
        value: &'a Value,
        at: &str,
        out: &mut Map<String, Value>,
        extra: &mut Vec<Value>,
    ) -> Result<(), Error> {
        let here = || step(at, keyword);
        let rewritten = match keyword {
            "type" => types(value, at)?,
            "const" => {
                check_instance(value, keyword, at)?;
                value.clone()
            }
            "enum" => {
                let items = value.as_array().ok_or_else(|| wrong(keyword, at, "a list", value))?;
                items.iter().try_for_each(|item| check_instance(item, keyword, at))?;
                value.clone()
            }
            "allOf" | "anyOf" | "oneOf" => {
                let list = self.list(value, keyword, at)?;
                if list.is_empty() {
                    return Err(wrong(keyword, at, "a list with at least one schema", value));
                }
                Value::Array(list)
            }
            "prefixItems" if self.old_arrays => {
                return Err(unsupported(
                    keyword,
                    at,
                    "the draft that `$schema` names does not have it",
                ));
            }
            "prefixItems" => Value::Array(self.list(value, keyword, at)?),
            "items" => match value {
                Value::Array(_) => {
                    let list = self.list(value, keyword, at)?;
                    out.insert("prefixItems".to_owned(), Value::Array(list));
                    match fields.get("additionalItems") {
                        Some(rest) => self.schema(rest, &step(at, "additionalItems"))?,
                        None => return Ok(()),
                    }
                }
                _ => self.schema(value, &here())?,
            },
            // Only means something beside a list of items.
            "additionalItems" => return Ok(()),
            "additionalProperties" => self.schema(value, &here())?,
            "properties" => self.properties(value, &here(), |name| Ok(name.to_owned()))?,
            "patternProperties" => self.properties(value, &here(), |name| {
                let reason = |why: String| unsupported("patternProperties", at, &format!("of `{name}`, {why}"));
                pattern::translate(name).map_err(reason)
            })?,
            "required" => {
                let names = value.as_array().filter(|names| names.iter().all(Value::is_string));
                names.ok_or_else(|| wrong(keyword, at, "a list of strings", value))?;
                value.clone()
            }
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties" => count(value)
                .ok_or_else(|| wrong(keyword, at, "a whole number of at least 0", value))?
                .into(),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                return bound(fields, keyword, value, at, out);
            }
            "multipleOf" => {
                let step = value.as_f64().filter(|&v| v > 0.0);
                let step = step.ok_or_else(|| wrong(keyword, at, "a number above 0", value))?;
                if !self.may_step_by(step) {
                    let why = "only numbers with few digits are told apart exactly, alone and with those of the other schemas \
                               inside: up to 65,535 with up to 4 digits after the point";
                    return Err(unsupported(keyword, at, why));
                }
                // Whoever reads the number has a double, in which larger ones are no multiples any more.
                extra.push(json!({"minimum": -EXACT, "maximum": EXACT}));
                value.clone()
            }
            "pattern" => {
                let text = value.as_str().ok_or_else(|| wrong(keyword, at, "a string", value))?;
                let reason = |why: String| unsupported(keyword, at, &format!("of `{text}`, {why}"));
                pattern::translate(text).map_err(reason)?.into()
            }
            "format" => return self.format(fields, value, at, out, extra),
            "$ref" => {
                let text = value.as_str().ok_or_else(|| wrong(keyword, at, "a string", value))?;
                let name = self.reference(text, at)?;
                format!("#/$defs/{name}").into()
            }
            "$id" | "id" if at != "#" && self.rebases(keyword, value) => {
                return Err(unsupported(
                    keyword,
                    at,
                    "references below it would lead elsewhere; put it at the root",
                ));
            }
            _ => {
                if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == keyword)
                    && !HARMLESS
                        .iter()
                        .any(|(name, harmless)| *name == keyword && value == harmless)
                {
                    return Err(unsupported(keyword, at, why));
                }
                return Ok(());
            }
        };
        out.insert(keyword.to_owned(), rewritten);
        Ok(())
    }

    /// Whether an `id` inside the schema gives references below it another base.
    fn rebases(&self, keyword: &str, value: &Value) -> bool {
        let draft = self.root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let old = draft.contains("draft-04") || draft.contains("draft-03");
        (keyword == "$id" || old) && value.as_str().is_some_and(|id| !id.starts_with('#'))
    }

    /// Whether the library, which counts in 32 bits and does not notice when they are too few, can tell multiples of `step` and
    /// of every step before it, alone and together.
    fn may_step_by(&mut self, step: f64) -> bool {
        let (mut whole, mut digits) = (step, 0u32);
        while whole.fract() != 0.0 && digits < 8 {
            whole *= 10.0;
            digits += 1;
        }
        if whole.fract() != 0.0 || whole > MAX_STEP as f64 {
            return false;
        }
        self.steps.push((whole as u64, digits));
        let scale = self.steps.iter().map(|&(_, digits)| digits).max().unwrap_or(0);
        let mut common = 1u64;
        for &(whole, digits) in &self.steps {
            let whole = whole.saturating_mul(10u64.pow(scale - digits));
            common = (common / gcd(common, whole)).saturating_mul(whole);
            if common.saturating_mul(10u64.pow(scale)) > MAX_STEP || common.saturating_mul(whole) > u64::from(u32::MAX)
            {
                return false;
            }
        }
        true
    }

    fn list(&mut self, value: &'a Value, keyword: &str, at: &str) -> Result<Vec<Value>, Error> {
        let items = value
            .as_array()
            .ok_or_else(|| wrong(keyword, at, "a list of schemas", value))?;
        let here = step(at, keyword);
        let schemas = items.iter().enumerate();
        schemas
            .map(|(i, item)| self.schema(item, &format!("{here}/{i}")))
            .collect()
    }

    fn properties(
        &mut self,
        value: &'a Value,
        here: &str,
        rename: impl Fn(&str) -> Result<String, Error>,
    ) -> Result<Value, Error> {
        let Value::Object(properties) = value else {
            let (at, keyword) = here.rsplit_once('/').unwrap_or(("#", here));
            return Err(wrong(keyword, at, "an object of schemas", value));
        };
        if properties.len() > self.limits.properties {
            let message = format!(
                "`{here}` of the schema has {} properties, at most {} are allowed",
                properties.len(),
                self.limits.properties
            );
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
        let mut out = Map::new();
        for (name, property) in properties {
            out.insert(rename(name)?, self.schema(property, &step(here, name))?);
        }
        Ok(Value::Object(out))
    }

    fn format(
        &self,
        fields: &Map<String, Value>,
        value: &Value,
        at: &str,
        out: &mut Map<String, Value>,
        extra: &mut Vec<Value>,
    ) -> Result<(), Error> {
        let name = value.as_str().ok_or_else(|| wrong("format", at, "a string", value))?;
        if let Some((low, high)) = super::number_bounds(name) {
            extra.push(json!({"minimum": low, "maximum": high}));
            return Ok(());
        }
        let strings = match fields.get("type") {
            Some(Value::String(kind)) => kind == "string",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            _ => true,
        };
        match formats::enforced(name) {
            // A format says nothing about other types.
            _ if !strings => {}
            Some(Enforced::ByName) => drop(out.insert("format".to_owned(), value.clone())),
            Some(Enforced::By(expression)) => extra.push(json!({"pattern": expression})),
            None => {
                let why = format!("`{name}` is not enforced; those that are: {}", formats::NAMES);
                return Err(unsupported("format", at, &why));
            }
        }
        Ok(())
    }

    /// The name of the definition that a reference leads to.
    fn reference(&mut self, text: &str, at: &str) -> Result<String, Error> {
        let base = self
            .root
            .get("$id")
            .or_else(|| self.root.get("id"))
            .and_then(Value::as_str);
        let local = match base.and_then(|base| text.strip_prefix(base.trim_end_matches('#'))) {
            Some("") => "#",
            Some(rest) if rest.starts_with('#') => rest,
            _ => text,
        };
        if local != "#" && !local.starts_with("#/") {
            let why = format!("`{text}` does not lead to a place in this schema; expected `#` or `#/...`");
            return Err(unsupported("$ref", at, &why));
        }
        if self.target(local).is_err() {
            let message = format!("`$ref` in the schema at `{at}` is `{text}`, where there is nothing");
            return Err(Error::new(ErrorKind::InvalidGrammar, message));
        }
        let known = self.references.iter().position(|known| known == local);
        let index = known.unwrap_or_else(|| {
            self.references.push(local.to_owned());
            self.references.len() - 1
        });
        Ok(format!("d{index}"))
    }

    /// The value at a pointer in URI fragment form.
    fn target(&self, pointer: &str) -> Result<&'a Value, Error> {
        let missing = || {
            let message = format!("there is nothing at `{pointer}` of the schema");
            Error::new(ErrorKind::InvalidGrammar, message)
        };
        let decoded = percent_decoded(pointer.strip_prefix('#').unwrap_or(pointer)).ok_or_else(missing)?;
        self.root.pointer(&decoded).ok_or_else(missing)
    }

    /// Objects may repeat a key that the schema does not name, so more than one such key cannot be asked for.
    fn check_counts(&self, fields: &Map<String, Value>, at: &str) -> Result<(), Error> {
        let Some(least) = fields.get("minProperties").and_then(count) else {
            return Ok(());
        };
        let required = fields.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        if least > required + 1 {
            let why = "it can ask for at most one property more than are `required`";
            return Err(unsupported("minProperties", at, why));
        }
        Ok(())
    }
}

fn types(value: &Value, at: &str) -> Result<Value, Error> {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let good = match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        one => known(one),
    };
    match good {
        true => Ok(value.clone()),
        false => Err(wrong(
            "type",
            at,
            &format!("one or a list of {}", TYPES.join(", ")),
            value,
        )),
    }
}

/// A count: `2.0` is a whole number too.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|v| v.fract() == 0.0 && (0.0..EXACT).contains(v))
            .map(|v| v as u64)
    })
}

/// A bound of numbers: draft 4's booleans become numbers, and what lies beyond exact doubles is drawn in.
fn bound(
    fields: &Map<String, Value>,
    keyword: &str,
    value: &Value,
    at: &str,
    out: &mut Map<String, Value>,
) -> Result<(), Error> {
    let value = match (keyword, value) {
        (_, Value::Bool(false)) if keyword.starts_with("exclusive") => return Ok(()),
        ("exclusiveMinimum", Value::Bool(true)) => fields.get("minimum"),
        ("exclusiveMaximum", Value::Bool(true)) => fields.get("maximum"),
        (_, value) => Some(value),
    };
    let Some(value) = value else { return Ok(()) };
    let number = value.as_f64().ok_or_else(|| wrong(keyword, at, "a number", value))?;
    let lower = keyword.to_ascii_lowercase().ends_with("minimum");
    let beyond = if lower { number < -EXACT } else { number > EXACT };
    let drawn_in = if lower { -EXACT } else { EXACT };
    if number.abs() > EXACT && !beyond {
        return Err(unsupported(keyword, at, "numbers beyond 2^53 are not exact"));
    }
    let drawn_in = Number::from_f64(drawn_in).map(Value::Number).unwrap_or_default();
    let value = if beyond { drawn_in } else { value.clone() };
    out.insert(keyword.to_owned(), value);
    Ok(())
}

/// Bounds integers so that the library does not write `-0`, which most parsers take for a float. It does where there is no bound,
/// and where one is below zero and one is not.
fn without_negative_zero(fields: &Map<String, Value>, out: &mut Map<String, Value>, extra: &mut Vec<Value>) {
    let integers = match fields.get("type") {
        Some(Value::String(kind)) => kind == "integer",
        Some(Value::Array(kinds)) => {
            kinds.iter().any(|kind| kind == "integer") && !kinds.iter().any(|kind| kind == "number")
        }
        _ => false,
    };
    if !integers || fields.contains_key("enum") || fields.contains_key("const") {
        return;
    }
    let bounded = |keys: [&str; 2]| keys.iter().any(|key| out.contains_key(*key));
    let (low, high) = (
        bounded(["minimum", "exclusiveMinimum"]),
        bounded(["maximum", "exclusiveMaximum"]),
    );
    let positive = ["minimum", "exclusiveMinimum"]
        .iter()
        .any(|key| out.get(*key).and_then(Value::as_f64).is_some_and(|low| low >= 0.0));
    if positive {
        return;
    }
    if low && high || !extra.is_empty() {
        extra.push(json!({"anyOf": [{"maximum": -1}, {"minimum": 0}]}));
    } else if !low && !high {
        out.insert("minimum".to_owned(), json!(-(1i64 << 53)));
    }
}

/// Whether the library writes an instance of `const` or `enum` exactly.
fn check_instance(value: &Value, keyword: &str, at: &str) -> Result<(), Error> {
    match value {
        Value::Number(number) if number.as_f64().is_none_or(|v| v.abs() >= EXACT) => Err(unsupported(
            keyword,
            at,
            &format!("`{number}` lies at 2^53 or beyond, where numbers are not exact"),
        )),
        Value::String(text) => match text.chars().find(|&c| is_unwritable(c)) {
            Some(c) => Err(unsupported(
                keyword,
                at,
                &format!("U+{:04X} cannot be written", u32::from(c)),
            )),
            None => Ok(()),
        },
        Value::Array(items) => items.iter().try_for_each(|item| check_instance(item, keyword, at)),
        Value::Object(fields) => fields.values().try_for_each(|field| check_instance(field, keyword, at)),
        _ => Ok(()),
    }
}

/// Characters that JSON can only write as `\u....`, and DEL, which the library never writes.
fn is_unwritable(c: char) -> bool {
    (c.is_ascii_control()) && !matches!(c, '\n' | '\r' | '\t' | '\u{8}' | '\u{c}')
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
