//! A field with one or several inputs: texts, token ids, and objects where an API has them.

use super::super::{ApiError, Fields, MAX_INPUTS, Result, json_type};
use serde_json::Value;

/// How inputs are read: what becomes of each kind.
#[derive(Debug)]
pub(super) struct Inputs<T> {
    pub(super) text: fn(String) -> T,
    pub(super) tokens: fn(Vec<u32>) -> T,
    /// Reads an object, where one is an input, and says what it should be.
    pub(super) object: Option<Object<T>>,
}

/// See [`Inputs::object`].
#[derive(Debug)]
pub(super) struct Object<T> {
    pub(super) expected: &'static str,
    pub(super) read: fn(&Fields<'_>) -> Result<T>,
}

impl<T> Inputs<T> {
    /// The inputs of the field `name`, at most [`MAX_INPUTS`].
    ///
    /// # Errors
    /// Anything else, or nothing.
    pub(super) fn read(&self, fields: &Fields<'_>, name: &str) -> Result<Vec<T>> {
        let value = fields
            .get(name)
            .ok_or_else(|| fields.missing(name, "text or token ids"))?;
        let path = fields.path(name);
        match (value, &self.object) {
            (Value::String(text), _) => Ok(vec![(self.text)(text.clone())]),
            (Value::Array(list), _) if list.first().is_some_and(Value::is_number) => Ok(vec![self.ids(list, &path)?]),
            (Value::Array(list), _) => {
                if list.is_empty() || list.len() > MAX_INPUTS {
                    let message = format_args!("found {} of them, expected 1 to {MAX_INPUTS}", list.len());
                    return Err(fields.wrong(name, message));
                }
                let each = list.iter().enumerate();
                each.map(|(index, value)| self.one(value, format!("{path}[{index}]")))
                    .collect()
            }
            (Value::Object(_), Some(object)) => Ok(vec![(object.read)(&Fields::at(value, path)?)?]),
            (other, _) => {
                let expected = "expected text, a list of texts, a list of token ids, or a list of such lists";
                Err(fields.wrong(name, format_args!("found {}, {expected}", json_type(other))))
            }
        }
    }

    /// An element of a list.
    fn one(&self, value: &Value, path: String) -> Result<T> {
        match (value, &self.object) {
            (Value::String(text), _) => Ok((self.text)(text.clone())),
            (Value::Array(list), _) => self.ids(list, &path),
            (Value::Object(_), Some(object)) => (object.read)(&Fields::at(value, path)?),
            (other, object) => {
                let besides = object
                    .as_ref()
                    .map_or(String::new(), |o| format!(", or {}", o.expected));
                let found = json_type(other);
                let message = format!("`{path}`: found {found}, expected text or token ids{besides}");
                Err(ApiError::field(path, message))
            }
        }
    }

    fn ids(&self, list: &[Value], path: &str) -> Result<T> {
        let ids = list.iter().enumerate().map(|(index, id)| {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| {
                let path = format!("{path}[{index}]");
                let found = match &list[index] {
                    Value::Number(number) => number.to_string(),
                    other => json_type(other).to_owned(),
                };
                let found = format!("`{path}`: found {found}, expected a token id, a whole number from 0");
                ApiError::field(path, found)
            })
        });
        Ok((self.tokens)(ids.collect::<Result<_>>()?))
    }
}
