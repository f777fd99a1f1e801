//! Where in a schema the library's complaint is about: its message does not say.
//!
//! The schemas inside are compiled alone, from the outside in, as long as one of them fails. Each carries its place in the
//! schema that was given in `$comment` (see [`super::schema`]).

use serde_json::{Map, Value};

use crate::{Error, ErrorKind};

/// Most schemas that are compiled to find the place.
const MAX_CHECKS: usize = 256;

/// Words of the library and what they are about: a keyword, and what to say.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "oneOf",
        "oneOf",
        "its alternatives do not exclude each other plainly; use `anyOf`, or give each a required property with a `const` of its own",
    ),
    (
        "min/maxProperties",
        "minProperties",
        "with optional properties it is not enforced; make all properties required, or leave it out",
    ),
    (
        "patternProperty",
        "patternProperties",
        "two of its expressions match the same name, or are too complex to tell",
    ),
    (
        "circular references",
        "$ref",
        "a reference with keywords beside it leads back to itself",
    ),
    ("if regex is empty", "pattern", "the expression is too complex"),
];

/// The error with keyword and place; `None` if every part of the schema compiles.
pub(super) fn locate(root: &Value, check: impl Fn(&Value) -> Result<(), Error>) -> Option<Error> {
    let shared = |key: &str| root.get(key).cloned();
    let (definitions, options) = (shared("$defs"), shared("x-guidance"));
    let alone = |schema: &Value| {
        let mut whole = match schema {
            Value::Object(fields) => fields.clone(),
            _ => return schema.clone(),
        };
        let mut put = |key: &str, value: &Option<Value>| {
            if let Some(value) = value {
                whole.insert(key.to_owned(), value.clone());
            }
        };
        put("$defs", &definitions);
        put("x-guidance", &options);
        Value::Object(whole)
    };
    let mut error = check(&alone(root)).err()?;
    let mut place = root;
    let mut checks = 0;
    let mut seen = Vec::new();
    'deeper: loop {
        for child in children(place, root) {
            let reference = std::ptr::from_ref(child);
            if checks == MAX_CHECKS || seen.contains(&reference) {
                continue;
            }
            seen.push(reference);
            checks += 1;
            if let Err(inner) = check(&alone(child)) {
                // An alternative that nothing satisfies is no error in itself.
                if is_empty(&inner) && !is_empty(&error) {
                    continue;
                }
                (error, place) = (inner, child);
                continue 'deeper;
            }
        }
        break;
    }
    Some(describe(&error, place))
}

fn is_empty(error: &Error) -> bool {
    error.to_string().contains("Unsatisfiable")
}

/// The schemas inside a schema, and the one that it refers to.
fn children<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a Value> {
    let Value::Object(fields) = schema else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for (key, value) in fields {
        match key.as_str() {
            "properties" | "patternProperties" => children.extend(value.as_object().into_iter().flat_map(Map::values)),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => children.extend(value.as_array().into_iter().flatten()),
            "items" | "additionalProperties" => children.push(value),
            "$ref" => {
                let name = value.as_str().and_then(|r| r.strip_prefix("#/$defs/"));
                children.extend(name.and_then(|name| root.get("$defs")?.get(name)));
            }
            _ => {}
        }
    }
    children
}

fn describe(error: &Error, schema: &Value) -> Error {
    let pointer = schema.get("$comment").and_then(Value::as_str).unwrap_or("#");
    let reason = error.to_string();
    let known = REASONS.iter().find(|(words, ..)| reason.contains(words));
    if let Some((_, keyword, why)) = known {
        let keyword = match *keyword {
            "minProperties" if schema.get(keyword).is_none() => "maxProperties",
            keyword => keyword,
        };
        let message = format!("`{keyword}` in the schema at `{pointer}` is not supported: {why}");
        return Error::new(ErrorKind::UnsupportedSchema, message);
    }
    let reason = reason
        .strip_prefix("the grammar cannot be compiled: ")
        .unwrap_or(&reason);
    if let Some((_, why)) = reason.split_once("Unsatisfiable schema: ") {
        let message = format!("nothing satisfies the schema at `{pointer}`: {why}");
        return Error::new(ErrorKind::InvalidGrammar, message);
    }
    Error::new(
        error.kind(),
        format!("the schema at `{pointer}` cannot be compiled: {reason}"),
    )
}
