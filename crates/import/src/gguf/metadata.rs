//! Metadata of a GGUF file: typed values by key.

use crate::{Error, Result};
use std::collections::HashMap;

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unsigned 8 bits.
    U8(u8),
    /// Signed 8 bits.
    I8(i8),
    /// Unsigned 16 bits.
    U16(u16),
    /// Signed 16 bits.
    I16(i16),
    /// Unsigned 32 bits.
    U32(u32),
    /// Signed 32 bits.
    I32(i32),
    /// IEEE 754 binary32.
    F32(f32),
    /// A boolean.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Several values of one type.
    Array(Array),
    /// Unsigned 64 bits.
    U64(u64),
    /// Signed 64 bits.
    I64(i64),
    /// IEEE 754 binary64.
    F64(f64),
}

/// Values of one type; arrays nest.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned 8 bits.
    U8(Vec<u8>),
    /// Signed 8 bits.
    I8(Vec<i8>),
    /// Unsigned 16 bits.
    U16(Vec<u16>),
    /// Signed 16 bits.
    I16(Vec<i16>),
    /// Unsigned 32 bits.
    U32(Vec<u32>),
    /// Signed 32 bits.
    I32(Vec<i32>),
    /// IEEE 754 binary32.
    F32(Vec<f32>),
    /// Booleans.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    String(Vec<String>),
    /// Arrays, possibly of different types.
    Array(Vec<Array>),
    /// Unsigned 64 bits.
    U64(Vec<u64>),
    /// Signed 64 bits.
    I64(Vec<i64>),
    /// IEEE 754 binary64.
    F64(Vec<f64>),
}

impl Value {
    /// The type's name, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }

    /// The value as a count or id: any integer type, not negative, small enough for `usize`.
    fn as_usize(&self) -> Option<usize> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => v.try_into().ok(),
            Value::U64(v) => v.try_into().ok(),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as counts; `None` where one is negative or the type is no integer.
    fn as_usizes(&self) -> Option<Vec<usize>> {
        fn all<T: Copy + TryInto<usize>>(values: &[T]) -> Option<Vec<usize>> {
            values.iter().map(|&v| v.try_into().ok()).collect()
        }
        match self {
            Array::U8(v) => all(v),
            Array::I8(v) => all(v),
            Array::U16(v) => all(v),
            Array::I16(v) => all(v),
            Array::U32(v) => all(v),
            Array::I32(v) => all(v),
            Array::U64(v) => all(v),
            Array::I64(v) => all(v),
            _ => None,
        }
    }
}

/// The metadata of a file, in file order, found by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the key is there already.
    pub(super) fn insert(&mut self, key: String, value: Value) -> Result<()> {
        let next = self.entries.len();
        if self.index.insert(key.clone(), next).is_some() {
            return Err(Error::malformed(format!("the metadata key `{key}` occurs twice")));
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// The entries in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// Looks `key` up and converts it; a value of the wrong type is an error, an absent one `None`.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        convert(value).map(Some).ok_or_else(|| {
            Error::malformed(format!(
                "the metadata key `{key}` should be {expected}, found {}",
                value.type_name()
            ))
        })
    }

    /// The text at `key`, if there.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the value is of another type; so for all lookups below.
    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| match v {
            Value::String(s) => Some(s.as_str()),
            _ => None,
        })
    }

    /// The count or id at `key`, if there; any integer type that is not negative.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an integer that is not negative", Value::as_usize)
    }

    /// The number at `key`, if there.
    ///
    /// # Errors
    /// As [`Metadata::string`], also for a number that is not finite.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite float", |v| match *v {
            // A binary32 is written with the shortest decimal that reads back to it: 1e-5, not 9.99999974e-6.
            Value::F32(v) if v.is_finite() => v.to_string().parse().ok(),
            Value::F64(v) if v.is_finite() => Some(v),
            _ => None,
        })
    }

    /// The boolean at `key`, if there.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a boolean", |v| match *v {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// The texts at `key`, if there.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "an array of strings", |v| match v {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The `f32` array at `key`, if there.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn floats(&self, key: &str) -> Result<Option<&[f32]>> {
        self.typed(key, "an array of f32", |v| match v {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The counts at `key`, if there: an array of any integer type, none negative.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn counts(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.typed(key, "an array of integers that are not negative", |v| match v {
            Value::Array(array) => array.as_usizes(),
            _ => None,
        })
    }

    /// The booleans at `key`, if there.
    ///
    /// # Errors
    /// As [`Metadata::string`].
    pub fn bools(&self, key: &str) -> Result<Option<&[bool]>> {
        self.typed(key, "an array of booleans", |v| match v {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }
}

/// Turns a lookup's `None` into an error that names the key.
pub(super) fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    value.ok_or_else(|| Error::missing(format!("the metadata has no key `{key}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn metadata() -> Metadata {
        let mut m = Metadata::default();
        for (key, value) in [
            ("u", Value::U32(7)),
            ("n", Value::I16(-1)),
            ("f", Value::F32(1e-5)),
            ("inf", Value::F32(f32::INFINITY)),
            ("s", Value::String("x".into())),
            ("a", Value::Array(Array::I32(vec![0, 3]))),
            ("neg", Value::Array(Array::I32(vec![-1]))),
        ] {
            m.insert(key.into(), value).unwrap();
        }
        m
    }

    #[test]
    fn lookup_of_right_type_gives_value() {
        let m = metadata();
        assert_eq!(m.count("u").unwrap(), Some(7));
        assert_eq!(m.float("f").unwrap(), Some(1e-5));
        assert_eq!(m.string("s").unwrap(), Some("x"));
        assert_eq!(m.counts("a").unwrap(), Some(vec![0, 3]));
        assert_eq!(m.count("absent").unwrap(), None);
    }

    #[test]
    fn lookup_of_wrong_type_names_key_and_type() {
        let m = metadata();
        let errors = [
            m.count("n").unwrap_err(),
            m.count("s").unwrap_err(),
            m.float("inf").unwrap_err(),
            m.string("u").unwrap_err(),
            m.counts("neg").unwrap_err(),
            m.bools("a").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Malformed);
            assert!(error.to_string().contains('`'), "{error}");
        }
    }

    #[test]
    fn insert_of_known_key_is_an_error() {
        let error = metadata().insert("u".into(), Value::U8(1)).unwrap_err();
        assert!(error.to_string().contains("`u`"));
    }
}
