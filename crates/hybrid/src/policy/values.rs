//! A policy as a program has it, in values: written as the file that it would be, and read as that, so that both are checked alike.

use super::{Policy, PolicyError};
use serde_json::{Map, Value};

/// What is wrong with a policy of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`: {what}")]
pub struct ValueError {
    /// The option, such as `targets.house.model`.
    pub place: String,
    /// What was expected and found.
    pub what: String,
}

impl Policy {
    /// Reads a policy from values in the form of its file, at a time in seconds since 1970. The version may be left out, and so is
    /// what is null.
    ///
    /// # Errors
    /// [`ValueError`] with the first option that is wrong.
    pub fn from_values_at(values: &Map<String, Value>, now: u64) -> Result<Policy, ValueError> {
        let mut file = File::default();
        if !values.contains_key("version") {
            file.line("version", "version = 1".to_owned());
        }
        let (tables, plain): (Vec<_>, Vec<_>) = values.iter().partition(|(_, value)| value.is_object());
        for (name, value) in plain {
            file.value("", name, value);
        }
        for (name, value) in tables {
            match name.as_str() {
                "targets" => {
                    for (target, value) in value.as_object().into_iter().flatten() {
                        file.table(&["targets", target], value);
                    }
                }
                _ => file.table(&[name], value),
            }
        }
        Policy::from_toml_at(&file.text, now).map_err(|PolicyError { line, what, .. }| ValueError {
            place: file.places.get(line - 1).cloned().unwrap_or_default(),
            what,
        })
    }
}

/// The text of a file, and what each of its lines is about.
#[derive(Default)]
struct File {
    text: String,
    places: Vec<String>,
}

impl File {
    fn line(&mut self, place: &str, line: String) {
        self.text += &line;
        self.text.push('\n');
        self.places.push(place.to_owned());
    }

    fn value(&mut self, before: &str, name: &str, value: &Value) {
        if let Some(value) = written(value) {
            self.line(&format!("{before}{name}"), format!("{} = {value}", quoted(name)));
        }
    }

    fn table(&mut self, path: &[&str], value: &Value) {
        let place = path.join(".");
        match value {
            Value::Object(fields) => {
                let header: Vec<String> = path.iter().map(|name| quoted(name)).collect();
                self.line(&place, format!("[{}]", header.join(".")));
                for (name, value) in fields {
                    self.value(&format!("{place}."), name, value);
                }
            }
            other => {
                // What is no table is said to be none where it is read.
                if let (Some((last, rest)), Some(value)) = (path.split_last(), written(other)) {
                    self.line(&place, format!("{}.{} = {value}", rest.join("."), quoted(last)));
                }
            }
        }
    }
}

/// A value on one line; `None` for null.
fn written(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(written).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| Some(format!("{} = {}", quoted(name), written(value)?));
            let fields: Vec<String> = fields.iter().filter_map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    })
}

/// A text in quotes: JSON's escapes are those of TOML, which wants one more character escaped.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Handoff, Leave};
    use crate::redact::Class;
    use serde_json::json;

    fn read(values: Value) -> Result<Policy, ValueError> {
        Policy::from_values_at(values.as_object().unwrap(), 1_795_392_000)
    }

    fn house() -> Value {
        json!({
            "protocol": "openai_chat", "base_url": "http://127.0.0.1:8081/v1", "model": "a \"b\"\n\u{7f}\u{1f}ä",
            "key": null, "input_usd_per_million": 0.1, "output_usd_per_million": "0.5", "accuracy": {"tools": 1}
        })
    }

    #[test]
    fn values_are_the_policy_of_their_file() {
        let values = json!({
            "targets": {"my house": house()}, "prefer": ["my house"], "handoff": "always",
            "consent": {"text": "listed", "listed": ["my house"]}, "budget": {"request_usd": 1e-7, "day_usd": "none"},
            "tools": {"named": {"get.it": "cloud_may_call"}}, "routing": {"hedge_range": [0, 0.5]}
        });
        let file = "version = 1\nhandoff = \"always\"\nprefer = [\"my house\"]\n[targets.\"my house\"]\nprotocol = \"openai_chat\"\n\
                    base_url = \"http://127.0.0.1:8081/v1\"\nmodel = \"a \\\"b\\\"\\n\\u007f\\u001fä\"\ninput_usd_per_million = 0.1\n\
                    output_usd_per_million = 0.5\naccuracy = { tools = 1 }\n[consent]\ntext = \"listed\"\nlisted = [\"my house\"]\n\
                    [budget]\nrequest_usd = 0.0000001\nday_usd = \"none\"\n[tools.named]\n\"get.it\" = \"cloud_may_call\"\n\
                    [routing]\nhedge_range = [0, 0.5]\n";
        let policy = read(values).unwrap();
        assert_eq!(policy, Policy::from_toml(file).unwrap());
        assert_eq!(policy.handoff, Handoff::Always);
        assert_eq!(policy.consent.classes[&Class::Text], Leave::Listed);
        assert_eq!(read(json!({})).unwrap(), Policy::default());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        let with = |name: &str, value: Value| {
            let mut target = house();
            target[name] = value;
            json!({"targets": {"house": target}})
        };
        let cases = [
            (
                with("base_url", json!("ftp://x")),
                "targets.house.base_url",
                "expected an address",
            ),
            (with("protocol", json!("soap")), "targets.house.protocol", "openai_chat"),
            (with("accuracy", json!({"all": 1})), "targets.house.accuracy", "default"),
            (with("model", Value::Null), "targets.house", "model"),
            (with("modell", json!("m")), "targets.house.modell", "modell"),
            (
                with("max_output_tokens", json!(1e30)),
                "targets.house.max_output_tokens",
                "a whole number from 0 to",
            ),
            (
                with("key", json!("sk-1\n[consent]\ntext = \"always\"")),
                "targets.house.key",
                "where the key is",
            ),
            (json!({"targets": {"house": 3}}), "targets.house", "expected"),
            (json!({"targets": {"auto": house()}}), "targets.auto", "another name"),
            (json!({"prefer": ["lan"]}), "prefer", "`lan`"),
            (json!({"consent": "text"}), "consent", "expected"),
            (json!({"consent": {"text": "listed"}}), "consent", "listed"),
            (json!({"caps": {}}), "caps", "expected an option: one of"),
            (json!({"version": 2}), "version", "version = 1"),
        ];
        for (values, place, what) in cases {
            let error = read(values.clone()).unwrap_err();
            assert_eq!(error.place, place, "{values}: {error}");
            assert!(
                error.what.contains(what) && !error.to_string().contains("sk-1"),
                "{values}: {error}"
            );
        }
    }
}
