//! Values back into JSON, as numbers or strings: what they were, or what a schema wants.

use super::{Kind, Redactor};
use serde_json::Value;

/// Levels of a value and of a schema that are looked at, and schemas for one place.
const DEEP: usize = 64;
const AT_ONCE: usize = 64;

impl Redactor {
    /// Restores each string and key of a JSON value, and numbers that were replaced.
    pub fn restore_json(&self, value: &mut Value) {
        self.restore_at(value, &Place::default());
    }

    /// As [`Redactor::restore_json`], for what has to satisfy a schema, such as the arguments of a tool. Where that wants a number, a
    /// placeholder becomes one, also if a text gave the value: `4111 1111 1111 1111` becomes 4111111111111111. Where it wants a
    /// string, a value that was a number becomes text. Whether the whole satisfies the schema is not checked.
    pub fn restore_json_as(&self, value: &mut Value, schema: &Value) {
        self.restore_at(value, &Place::of(schema));
    }

    fn restore_at(&self, value: &mut Value, place: &Place<'_>) {
        match value {
            Value::String(text) => *value = self.restored(text, place),
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.restore_at(item, &place.item(at));
                }
            }
            Value::Object(map) => {
                for (key, mut item) in std::mem::take(map) {
                    let key = self.restore(&key);
                    self.restore_at(&mut item, &place.entry(&key));
                    map.insert(key, item);
                }
            }
            _ => {}
        }
    }

    fn restored(&self, text: &str, place: &Place<'_>) -> Value {
        let Some((value, was_number)) = self.values.get(text) else {
            return Value::String(self.restore(text));
        };
        let number = || as_number(value).or_else(|| self.number_of(text, value));
        let number = match place.wants() {
            Some(Wants::Number) => number(),
            Some(Wants::Text) => None,
            None if *was_number => as_number(value),
            None => None,
        };
        number.unwrap_or_else(|| Value::String(value.clone()))
    }

    /// The number that the groups of a card or a phone are together. One that begins with 0 or `+` is none.
    fn number_of(&self, placeholder: &str, value: &str) -> Option<Value> {
        let is = |kind: Kind| placeholder[1..].starts_with(kind.label());
        let grouped = |c: char| c.is_ascii_digit() || " -./()\u{a0}\u{202f}".contains(c);
        if !(is(Kind::Card) || is(Kind::Phone) || is(Kind::NationalId)) || !value.chars().all(grouped) {
            return None;
        }
        let digits: String = value.chars().filter(char::is_ascii_digit).collect();
        as_number(&digits)
    }
}

/// A number that is written as JSON has it.
fn as_number(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_number)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Number,
    Text,
}

/// The schemas of a place in a value, as far as they are known.
#[derive(Default)]
struct Place<'a> {
    root: Option<&'a Value>,
    schemas: Vec<&'a Value>,
    depth: usize,
}

impl<'a> Place<'a> {
    fn of(root: &'a Value) -> Place<'a> {
        Place::with(Some(root), [root], 0)
    }

    /// The schemas with those that they refer to, and that are part of them.
    fn with(root: Option<&'a Value>, schemas: impl IntoIterator<Item = &'a Value>, depth: usize) -> Place<'a> {
        let mut schemas: Vec<&Value> = schemas.into_iter().take(AT_ONCE).collect();
        let mut next = 0;
        while let Some(schema) = schemas.get(next).copied() {
            next += 1;
            let mut more = Vec::new();
            if let Some(path) = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
                more.extend(root.and_then(|root| root.pointer(path)));
            }
            for of in ["allOf", "anyOf", "oneOf"] {
                more.extend(schema[of].as_array().into_iter().flatten());
            }
            let known = |new: &&Value| !schemas.iter().any(|old| std::ptr::eq(*old, *new));
            let free = AT_ONCE.saturating_sub(schemas.len());
            let more: Vec<&Value> = more.into_iter().filter(known).take(free).collect();
            schemas.extend(more);
        }
        Place { root, schemas, depth }
    }

    fn below(&self, schemas: impl Iterator<Item = &'a Value>) -> Place<'a> {
        if self.depth >= DEEP {
            return Place::default();
        }
        Place::with(self.root, schemas, self.depth + 1)
    }

    fn entry(&self, key: &str) -> Place<'a> {
        self.below(self.schemas.iter().filter_map(|schema| {
            let property = schema["properties"].get(key);
            property.or_else(|| schema.get("additionalProperties"))
        }))
    }

    fn item(&self, at: usize) -> Place<'a> {
        self.below(self.schemas.iter().filter_map(|schema| {
            let items = schema.get("items");
            let nth = schema["prefixItems"].get(at).or_else(|| items?.get(at));
            nth.or(items)
        }))
    }

    /// What the schemas want, where they take one of the two alone.
    fn wants(&self) -> Option<Wants> {
        let mut wants = None;
        for schema in &self.schemas {
            let types = match &schema["type"] {
                Value::String(one) => std::slice::from_ref(one).iter().map(String::as_str).collect(),
                Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            for one in types {
                let want = match one {
                    "integer" | "number" => Wants::Number,
                    "string" => Wants::Text,
                    _ => continue,
                };
                if *wants.get_or_insert(want) != want {
                    return None;
                }
            }
        }
        wants
    }
}
