//! Reads fields of a request: what is missing, of the wrong type or out of range is an error that names the field.
//!
//! `null` is as good as missing, since clients in typed languages send it for what was not set. Fields that nobody reads are
//! ignored.

use super::ApiError;
use cactus_text::json_type;
use serde_json::{Map, Value};

/// The result of reading.
pub type Result<T> = std::result::Result<T, ApiError>;

/// A JSON object and where in the request it stands.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

fn wrong(path: &str, value: &Value, expected: &str) -> ApiError {
    let message = format!("`{path}`: found {}, expected {expected}", json_type(value));
    ApiError::field(path, message)
}

impl<'a> Fields<'a> {
    /// The object at the top of a body.
    ///
    /// # Errors
    /// If it is something else.
    pub fn of_body(body: &'a Value) -> Result<Self> {
        match body {
            Value::Object(map) => Ok(Self {
                map,
                path: String::new(),
            }),
            other => {
                let message = format!("the body is {}, expected a JSON object", json_type(other));
                Err(ApiError::new(super::Kind::Invalid, message))
            }
        }
    }

    /// An object at `path`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn at(value: &'a Value, path: String) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            other => Err(wrong(&path, other, "an object")),
        }
    }

    /// The path of a field from the top of the body.
    pub fn path(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    /// Where this object stands; empty at the top.
    pub fn here(&self) -> &str {
        &self.path
    }

    /// A field, if it is there and not `null`.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The first of several fields with the same meaning, and the name under which it stands.
    pub fn any<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &'a Value)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// An error that names a field.
    pub fn wrong(&self, name: &str, message: impl std::fmt::Display) -> ApiError {
        let path = self.path(name);
        ApiError::field(path.as_str(), format!("`{path}`: {message}"))
    }

    /// An error for a field that has to be there.
    pub fn missing(&self, name: &str, expected: &str) -> ApiError {
        self.wrong(name, format_args!("is missing, expected {expected}"))
    }

    /// Text.
    ///
    /// # Errors
    /// Another type.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| wrong(&self.path(name), value, "text"))
    }

    /// Text that has to be there.
    ///
    /// # Errors
    /// Another type, or nothing.
    pub fn required_text(&self, name: &str) -> Result<&'a str> {
        self.text(name)?.ok_or_else(|| self.missing(name, "text"))
    }

    /// True or false.
    ///
    /// # Errors
    /// Another type.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let flag = value.as_bool();
        flag.map(Some)
            .ok_or_else(|| wrong(&self.path(name), value, "true or false"))
    }

    /// A whole number from `least` to `most`.
    ///
    /// # Errors
    /// Another type, or out of range.
    pub fn count(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        // Clients in languages without integers send 40.0.
        let whole = value.as_u64().or_else(|| {
            let number = value.as_f64()?;
            ((0.0..9e15).contains(&number) && number.fract() == 0.0).then_some(number as u64)
        });
        match whole {
            Some(whole) if (least..=most).contains(&whole) => Ok(Some(whole)),
            _ if value.is_number() => {
                let range = match most {
                    u64::MAX => format!("found {value}, expected a whole number from {least}"),
                    most => format!("found {value}, expected a whole number from {least} to {most}"),
                };
                Err(self.wrong(name, range))
            }
            _ => Err(wrong(&self.path(name), value, "a whole number")),
        }
    }

    /// A list.
    ///
    /// # Errors
    /// Another type.
    pub fn list(&self, name: &str) -> Result<Option<&'a [Value]>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong(&self.path(name), other, "a list")),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// Another type.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        Fields::at(value, self.path(name)).map(Some)
    }

    /// The object itself.
    pub fn map(&self) -> &'a Map<String, Value> {
        self.map
    }
}

/// The objects of a list at `path`.
///
/// # Errors
/// An element that is something else.
pub fn objects<'a>(items: &'a [Value], path: &str) -> Result<Vec<Fields<'a>>> {
    let numbered = items.iter().enumerate();
    numbered
        .map(|(index, item)| Fields::at(item, format!("{path}[{index}]")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_the_wrong_type_are_named_with_their_place() {
        let body = json!({"a": [{"b": 1}], "n": -1, "f": 40.0, "t": null, "x": "y"});
        let fields = Fields::of_body(&body).unwrap();
        let inner = objects(fields.list("a").unwrap().unwrap(), "a").unwrap();
        let error = inner[0].text("b").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("a[0].b"));
        assert_eq!(error.message, "`a[0].b`: found a number, expected text");
        assert_eq!(fields.text("t").unwrap(), None, "null is missing");
        assert_eq!(fields.count("f", 1, 64).unwrap(), Some(40));
        let error = fields.count("n", 1, 64).unwrap_err();
        assert_eq!(error.message, "`n`: found -1, expected a whole number from 1 to 64");
        let error = fields.count("x", 1, 64).unwrap_err();
        assert_eq!(error.message, "`x`: found a string, expected a whole number");
        assert_eq!(
            Fields::of_body(&json!([])).unwrap_err().message,
            "the body is a list, expected a JSON object"
        );
    }
}
