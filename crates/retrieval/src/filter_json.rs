//! Filters as JSON, in the form that the stores of vectors around Python share.
//!
//! ```json
//! {"year": {"$gte": 2020, "$lt": 2024}, "tag": "news", "$or": [{"author": "Ada"}, {"pages": {"$in": [1, 2]}}]}
//! ```
//!
//! What stands side by side holds together. A value by itself is `$eq`.

use crate::document::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::Filter;
use serde_json::Value as Json;
use std::path::Path;

/// What is said of a value.
const CONDITIONS: &str = "$eq, $ne, $in, $nin, $gt, $gte, $lt, $lte or $exists";

impl Filter {
    /// The filter that `json` says.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for JSON that says none, with its place.
    pub fn from_json(json: &Json) -> Result<Filter> {
        read(json, 0)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, Path::new("filter"), message)
}

/// As deep as a filter may be, with room for what one condition becomes.
const MAX_DEPTH: usize = 32;

fn read(json: &Json, depth: usize) -> Result<Filter> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("expected at most {MAX_DEPTH} levels")));
    }
    let Json::Object(fields) = json else {
        return Err(invalid(format!("expected an object, found {json}")));
    };
    let all = fields.iter().map(|(name, value)| match name.as_str() {
        "$and" => Ok(Filter::And(several(name, value, depth)?)),
        "$or" => Ok(Filter::Or(several(name, value, depth)?)),
        "$not" => Ok(read(value, depth + 1)?.negated()),
        name if name.starts_with('$') => Err(invalid(format!(
            "`{name}`: expected $and, $or, $not or the name of a value"
        ))),
        name => condition(name, value),
    });
    let mut all: Vec<Filter> = all.collect::<Result<_>>()?;
    Ok(match all.len() {
        1 => all.remove(0),
        _ => Filter::And(all),
    })
}

fn several(name: &str, value: &Json, depth: usize) -> Result<Vec<Filter>> {
    let Json::Array(filters) = value else {
        return Err(invalid(format!("`{name}`: expected a list of filters, found {value}")));
    };
    filters.iter().map(|filter| read(filter, depth + 1)).collect()
}

fn condition(name: &str, value: &Json) -> Result<Filter> {
    let Json::Object(conditions) = value else {
        return Ok(Filter::Eq(name.to_owned(), scalar(name, value)?));
    };
    if conditions.is_empty() {
        return Err(invalid(format!("`{name}`: expected {CONDITIONS}, found nothing")));
    }
    let owned = || name.to_owned();
    let all = conditions.iter().map(|(what, value)| {
        let one = || scalar(name, value);
        let list = || match value {
            Json::Array(values) => values
                .iter()
                .map(|value| scalar(name, value))
                .collect::<Result<Vec<_>>>(),
            _ => Err(invalid(format!("`{name}`: `{what}`: expected a list, found {value}"))),
        };
        let from = |value| Filter::Range(owned(), Some(value), None);
        let to = |value| Filter::Range(owned(), None, Some(value));
        let but = |range: Filter, value| Filter::And(vec![range, Filter::Eq(owned(), value).negated()]);
        Ok(match what.as_str() {
            "$eq" => Filter::Eq(owned(), one()?),
            "$ne" => Filter::Eq(owned(), one()?).negated(),
            "$in" => Filter::In(owned(), list()?),
            "$nin" => Filter::In(owned(), list()?).negated(),
            "$gte" => from(one()?),
            "$lte" => to(one()?),
            "$gt" => but(from(one()?), one()?),
            "$lt" => but(to(one()?), one()?),
            "$exists" => match value {
                Json::Bool(true) => Filter::Exists(owned()),
                Json::Bool(false) => Filter::Exists(owned()).negated(),
                _ => {
                    return Err(invalid(format!(
                        "`{name}`: `$exists`: expected true or false, found {value}"
                    )));
                }
            },
            _ => return Err(invalid(format!("`{name}`: expected {CONDITIONS}, found `{what}`"))),
        })
    });
    let mut all: Vec<Filter> = all.collect::<Result<_>>()?;
    Ok(match all.len() {
        1 => all.remove(0),
        _ => Filter::And(all),
    })
}

fn scalar(name: &str, value: &Json) -> Result<Value> {
    let read = match value {
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Bool(b) => Some(Value::Bool(*b)),
        Json::Number(n) => n.as_i64().map(Value::Integer).or_else(|| n.as_f64().map(Value::Float)),
        _ => None,
    };
    read.ok_or_else(|| {
        invalid(format!(
            "`{name}`: expected a text, a number or a truth value, found {value}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn forms_become_filters() {
        let eq = |name: &str, value: i64| Filter::eq(name, value);
        let range = |from: Option<i64>, to: Option<i64>| {
            Filter::Range("a".into(), from.map(Value::Integer), to.map(Value::Integer))
        };
        let cases = [
            (json!({}), Filter::And(vec![])),
            (json!({"a": 1}), eq("a", 1)),
            (json!({"a": {"$ne": 1}}), eq("a", 1).negated()),
            (json!({"a": 1, "b": 2}), Filter::And(vec![eq("a", 1), eq("b", 2)])),
            (
                json!({"$or": [{"a": 1}, {"b": 2}]}),
                Filter::Or(vec![eq("a", 1), eq("b", 2)]),
            ),
            (json!({"$not": {"a": 1}}), eq("a", 1).negated()),
            (
                json!({"a": {"$gte": 1, "$lte": 3}}),
                Filter::And(vec![range(Some(1), None), range(None, Some(3))]),
            ),
            (
                json!({"a": {"$gt": 1}}),
                Filter::And(vec![range(Some(1), None), eq("a", 1).negated()]),
            ),
            (
                json!({"a": {"$in": [1, "x", 0.5, true]}}),
                Filter::In("a".into(), vec![Value::Integer(1), "x".into(), 0.5.into(), true.into()]),
            ),
            (json!({"a": {"$exists": false}}), Filter::exists("a").negated()),
        ];
        for (json, want) in cases {
            assert_eq!(Filter::from_json(&json).unwrap(), want, "{json}");
        }
    }

    #[test]
    fn what_says_nothing_is_refused_with_its_place() {
        let mut deep = json!({"a": 1});
        for _ in 0..40 {
            deep = json!({"$not": deep});
        }
        let cases = [
            (json!([]), "an object"),
            (json!({"$nor": []}), "$and, $or, $not"),
            (json!({"a": {"$like": "x"}}), "$eq"),
            (json!({"a": {}}), "found nothing"),
            (json!({"a": null}), "`a`"),
            (json!({"a": {"$in": 1}}), "a list"),
            (json!({"a": {"$exists": 1}}), "true or false"),
            (json!({"$and": {"a": 1}}), "a list of filters"),
            (deep, "levels"),
        ];
        for (json, says) in cases {
            let error = Filter::from_json(&json).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
