//! What a folder says of one of its processors: fields that are read with what stands for them where they are absent, and refused by name.

use crate::{Error, Result};
use serde_json::{Map, Value};

/// The fields, and whose they are.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) of: &'static str,
    pub(crate) map: &'a Map<String, Value>,
}

impl Fields<'_> {
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn refuse(&self, key: &str, expected: &str) -> Error {
        let key: String = key.chars().take(40).collect();
        Error::unsupported(format!("field `{key}` of the {}: expected {expected}", self.of))
    }

    pub(crate) fn flag(&self, key: &str, usual: bool) -> Result<bool> {
        match self.get(key).map(Value::as_bool) {
            None => Ok(usual),
            Some(Some(flag)) => Ok(flag),
            Some(None) => Err(self.refuse(key, "true or false")),
        }
    }

    pub(crate) fn number(&self, key: &str, usual: f64) -> Result<f64> {
        match self.get(key).map(Value::as_f64) {
            None => Ok(usual),
            Some(Some(number)) => Ok(number),
            Some(None) => Err(self.refuse(key, "a number")),
        }
    }

    pub(crate) fn size(&self, key: &str, usual: u32) -> Result<u32> {
        let size = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        match self.get(key).map(size) {
            None => Ok(usual),
            Some(Some(n)) => Ok(n),
            Some(None) => Err(self.refuse(key, "a whole number")),
        }
    }
}
