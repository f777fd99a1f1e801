//! Whether calls are among those that a case allows, by the rules of the Berkeley Function Calling Leaderboard: the same
//! functions, in any order; every argument one of the values allowed for it; an argument left out only where the allowed
//! values have an empty text. Texts are compared without case, spaces and punctuation, whole numbers fit fractions.

use super::literal::Call;
use serde_json::{Map, Value};

/// A call that is allowed: name, and for each argument the values that it may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

impl Expected {
    /// Reads `{"name": {"argument": [values]}}`; what is wrong with it otherwise.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        let map = value.as_object().filter(|m| m.len() == 1);
        let Some((name, arguments)) = map.and_then(|m| m.iter().next()) else {
            return Err("an allowed call is an object with one function".to_owned());
        };
        let Some(arguments) = arguments.as_object() else {
            return Err(format!("the arguments of `{name}` are not an object"));
        };
        if let Some((argument, _)) = arguments.iter().find(|(_, values)| !values.is_array()) {
            return Err(format!("the values of `{name}.{argument}` are not a list"));
        }
        Ok(Self {
            name: name.clone(),
            arguments: arguments.clone(),
        })
    }

    fn allows(&self, (name, given): &Call) -> bool {
        // Templates of some models cannot write a dot.
        if *name != self.name && *name != self.name.replace('.', "_") {
            return false;
        }
        allows_object(&self.arguments, given)
    }
}

/// Why `calls` are not `expected`; `None` where they are.
pub(crate) fn difference(expected: &[Expected], calls: &[Call]) -> Option<String> {
    if expected.len() != calls.len() {
        return Some(format!("{} calls, expected {}", calls.len(), expected.len()));
    }
    let mut used = vec![false; calls.len()];
    for e in expected {
        let Some(i) = (0..calls.len()).find(|&i| !used[i] && e.allows(&calls[i])) else {
            return Some(format!("no call fits `{}`", e.name));
        };
        used[i] = true;
    }
    None
}

fn allows_object(allowed: &Map<String, Value>, given: &Map<String, Value>) -> bool {
    let optional = |values: &Value| values.as_array().is_some_and(|v| v.iter().any(|v| v == ""));
    allowed.iter().all(|(k, v)| given.contains_key(k) || optional(v))
        && given.iter().all(|(k, v)| allowed.get(k).is_some_and(|a| allows(a, v)))
}

/// Whether `value` is one of the list `allowed`.
fn allows(allowed: &Value, value: &Value) -> bool {
    allowed
        .as_array()
        .is_some_and(|list| list.iter().any(|a| equal(a, value)))
}

fn equal(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::String(a), Value::String(b)) => plain(a) == plain(b),
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        // An object that is allowed has lists of values as the arguments have.
        (Value::Object(a), Value::Object(b)) if a.values().all(Value::is_array) => allows_object(a, b),
        _ => allowed == value,
    }
}

fn plain(text: &str) -> String {
    let kept = text.chars().filter(|c| !" ,./-_*^".contains(*c));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == '\'' { '"' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(value: &Value) -> Vec<Call> {
        let list = value.as_array().unwrap().iter();
        list.map(|c| (c[0].as_str().unwrap().to_owned(), c[1].as_object().unwrap().clone()))
            .collect()
    }

    #[test]
    fn calls_are_compared_as_the_leaderboard_does() {
        let expected = json!([
            {"a.area": {"base": [10, 10.5], "unit": ["units", ""], "flag": [true, ""], "at": [[1, 2], ""],
                        "o": [{"k": ["v", "w"]}, ""]}},
            {"b": {"city": ["New York, NY"]}},
        ]);
        let expected: Vec<_> = expected
            .as_array()
            .unwrap()
            .iter()
            .map(|e| Expected::read(e).unwrap())
            .collect();
        let b = json!(["b", {"city": "new york NY"}]);
        for (given, fits) in [
            (json!([["a.area", {"base": 10}], b]), true),
            (json!([b, ["a_area", {"base": 10.0, "unit": "Units"}]]), true),
            (
                json!([["a.area", {"base": 10.5, "flag": true, "at": [1, 2], "o": {"k": "W"}}], b]),
                true,
            ),
            (json!([["a.area", {"base": 11}], b]), false),
            (json!([["a.area", {"base": "10"}], b]), false),
            (json!([["a.area", {"base": 10, "other": 1}], b]), false),
            (json!([["a.area", {"base": 10, "flag": 1}], b]), false),
            (json!([["a.area", {"base": 10, "at": [2, 1]}], b]), false),
            (json!([["a.area", {"base": 10, "o": {"k": "x"}}], b]), false),
            (json!([["a.area", {"base": 10, "o": {}}], b]), false),
            (json!([["a.area", {}], b]), false),
            (json!([["area", {"base": 10}], b]), false),
            (json!([b, b]), false),
            (json!([b]), false),
            (json!([]), false),
        ] {
            let found = difference(&expected, &calls(&given));
            assert_eq!(found.is_none(), fits, "{given}: {found:?}");
        }
    }

    #[test]
    fn malformed_expectations_are_named() {
        for (value, what) in [
            (json!({"f": {"a": 1}}), "`f.a`"),
            (json!({"f": []}), "`f`"),
            (json!({"f": {}, "g": {}}), "one function"),
            (json!("f"), "one function"),
        ] {
            assert!(Expected::read(&value).unwrap_err().contains(what), "{value}");
        }
    }
}
