//! Filters of searches: conditions on the attributes of files.

use crate::{Fields, Result, json_type, objects};
use serde_json::Value;

/// Filters may not be nested deeper.
const MAX_DEPTH: usize = 16;
/// Most conditions and values of a filter.
const MAX_PARTS: usize = 1000;

/// Which files count.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// A condition on the attribute of this name.
    Compare(String, Comparison),
    /// All of these hold.
    And(Vec<Filter>),
    /// One of these holds.
    Or(Vec<Filter>),
}

/// What an attribute has to be. Values are texts, numbers or truth values.
#[derive(Debug, Clone, PartialEq)]
pub enum Comparison {
    /// Equal.
    Equal(Value),
    /// Something else, or not there.
    NotEqual(Value),
    /// Greater; the flag says whether equal is enough.
    Greater(Value, bool),
    /// Less; the flag says whether equal is enough.
    Less(Value, bool),
    /// One of these.
    In(Vec<Value>),
    /// None of these, or not there.
    NotIn(Vec<Value>),
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// The field that is wrong; a filter with too many parts.
    pub fn read(fields: &Fields<'_>) -> Result<Filter> {
        read(fields, 0, &mut 0)
    }
}

fn read(fields: &Fields<'_>, depth: usize, parts: &mut usize) -> Result<Filter> {
    let mut count = |n: usize| {
        *parts += n;
        match *parts > MAX_PARTS || depth > MAX_DEPTH {
            true => {
                let message = format_args!("has more than {MAX_PARTS} conditions and values, or {MAX_DEPTH} levels");
                Err(fields.wrong("type", message))
            }
            false => Ok(()),
        }
    };
    count(1)?;
    let kind = fields.required_text("type")?;
    if let "and" | "or" = kind {
        let list = fields
            .list("filters")?
            .ok_or_else(|| fields.missing("filters", "a list"))?;
        let inner = objects(list, &fields.path("filters"))?;
        let inner = inner
            .iter()
            .map(|one| read(one, depth + 1, parts))
            .collect::<Result<_>>()?;
        return Ok(match kind {
            "and" => Filter::And(inner),
            _ => Filter::Or(inner),
        });
    }
    let expected = "expected `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `in`, `nin`, `and` or `or`";
    if !["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"].contains(&kind) {
        return Err(fields.wrong("type", format_args!("found `{kind}`, {expected}")));
    }
    let key = fields.required_text("key")?.to_owned();
    let value = fields.get("value");
    let value = value.ok_or_else(|| fields.missing("value", "what the attribute is compared with"))?;
    let single = || match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(value.clone()),
        other => {
            let message = format_args!("found {}, expected text, a number, true or false", json_type(other));
            Err(fields.wrong("value", message))
        }
    };
    let ordered = || match value {
        Value::Bool(_) => Err(fields.wrong(
            "value",
            "found a truth value, which has no order; expected a number or text",
        )),
        _ => single(),
    };
    let many = |count: &mut dyn FnMut(usize) -> Result<()>| match value {
        Value::Array(list) => {
            count(list.len())?;
            let is_single = |one: &Value| one.is_string() || one.is_number() || one.is_boolean();
            match list.iter().find(|one| !is_single(one)) {
                None => Ok(list.clone()),
                Some(other) => {
                    let message = format_args!("found {} in it, expected texts and numbers", json_type(other));
                    Err(fields.wrong("value", message))
                }
            }
        }
        other => Err(fields.wrong("value", format_args!("found {}, expected a list", json_type(other)))),
    };
    let comparison = match kind {
        "eq" => Comparison::Equal(single()?),
        "ne" => Comparison::NotEqual(single()?),
        "gt" => Comparison::Greater(ordered()?, false),
        "gte" => Comparison::Greater(ordered()?, true),
        "lt" => Comparison::Less(ordered()?, false),
        "lte" => Comparison::Less(ordered()?, true),
        "in" => Comparison::In(many(&mut count)?),
        _ => Comparison::NotIn(many(&mut count)?),
    };
    Ok(Filter::Compare(key, comparison))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Filter> {
        Filter::read(&Fields::at(value, "filters".to_owned()).unwrap())
    }

    #[test]
    fn filters_are_read_or_refused_with_their_place() {
        let year = json!({"type": "gte", "key": "year", "value": 2020});
        let tag = json!({"type": "nin", "key": "tag", "value": ["a", 1]});
        let both = json!({"type": "and", "filters": [year, {"type": "or", "filters": [tag]}]});
        let compare = |key: &str, how| Filter::Compare(key.to_owned(), how);
        let expected = Filter::And(vec![
            compare("year", Comparison::Greater(json!(2020), true)),
            Filter::Or(vec![compare("tag", Comparison::NotIn(vec![json!("a"), json!(1)]))]),
        ]);
        assert_eq!(read(&both).unwrap(), expected);

        let mut deep = year.clone();
        for _ in 0..20 {
            deep = json!({"type": "and", "filters": [deep]});
        }
        let many = json!({"type": "in", "key": "a", "value": vec![1; 1001]});
        for (wrong, param) in [
            (json!({"type": "like", "key": "a", "value": "b"}), "filters.type"),
            (json!({"type": "eq", "value": "b"}), "filters.key"),
            (json!({"type": "eq", "key": "a"}), "filters.value"),
            (json!({"type": "eq", "key": "a", "value": ["b"]}), "filters.value"),
            (json!({"type": "lt", "key": "a", "value": true}), "filters.value"),
            (json!({"type": "in", "key": "a", "value": "b"}), "filters.value"),
            (json!({"type": "in", "key": "a", "value": [["b"]]}), "filters.value"),
            (json!({"type": "or", "filters": [5]}), "filters.filters[0]"),
            (many, "filters.type"),
        ] {
            assert_eq!(read(&wrong).unwrap_err().param.as_deref(), Some(param), "{wrong}");
        }
        assert!(read(&deep).unwrap_err().message.contains("levels"));
    }
}
