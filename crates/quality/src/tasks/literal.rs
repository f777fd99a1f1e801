//! Values as Python writes them (`f(a=1, b=[True, 'x'])`), read into JSON values.
//!
//! What a model wrote is read here, so depth and length are bounded and anything unexpected is `None`.

use serde_json::{Map, Number, Value};

/// Deepest nesting of a value.
const MAX_DEPTH: usize = 32;

/// A call as written: name and arguments by name.
pub(crate) type Call = (String, Map<String, Value>);

/// A list of calls with named arguments, `[f(a=1), g.h(b='x')]` or `f(a=1)`; `None` where `text` is anything else.
pub(crate) fn calls(text: &str) -> Option<Vec<Call>> {
    let mut at = Reader { rest: text.trim() };
    let listed = at.eat('[');
    let mut out = vec![at.call()?];
    while at.eat(',') {
        out.push(at.call()?);
    }
    if listed && !at.eat(']') {
        return None;
    }
    at.space();
    at.rest.is_empty().then_some(out)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, c: char) -> bool {
        self.space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<String> {
        self.space();
        let end = self
            .rest
            .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return None;
        }
        self.rest = rest;
        Some(name.to_owned())
    }

    fn call(&mut self) -> Option<Call> {
        let name = self.name()?;
        if !self.eat('(') {
            return None;
        }
        let mut arguments = Map::new();
        while !self.eat(')') {
            if !arguments.is_empty() && !self.eat(',') {
                return None;
            }
            if self.eat(')') {
                break;
            }
            let key = self.name()?;
            if !self.eat('=') {
                return None;
            }
            let value = self.value(0)?;
            arguments.insert(key, value);
        }
        Some((name, arguments))
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        match self.rest.chars().next()? {
            '[' => self.items('[', ']', depth).map(Value::Array),
            '(' => self.items('(', ')', depth).map(Value::Array),
            '{' => self.object(depth),
            '"' | '\'' => self.string().map(Value::String),
            c if c.is_ascii_digit() || c == '-' || c == '+' || c == '.' => self.number(),
            _ => {
                let name = self.name()?;
                Some(match name.as_str() {
                    "True" | "true" => Value::Bool(true),
                    "False" | "false" => Value::Bool(false),
                    "None" | "null" => Value::Null,
                    _ => return None,
                })
            }
        }
    }

    fn items(&mut self, open: char, close: char, depth: usize) -> Option<Vec<Value>> {
        self.eat(open);
        let mut out = Vec::new();
        while !self.eat(close) {
            if !out.is_empty() && !self.eat(',') {
                return None;
            }
            if self.eat(close) {
                break;
            }
            out.push(self.value(depth + 1)?);
        }
        Some(out)
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.eat('{');
        let mut out = Map::new();
        while !self.eat('}') {
            if !out.is_empty() && !self.eat(',') {
                return None;
            }
            if self.eat('}') {
                break;
            }
            self.space();
            let key = self.string()?;
            if !self.eat(':') {
                return None;
            }
            let value = self.value(depth + 1)?;
            out.insert(key, value);
        }
        Some(Value::Object(out))
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| *c == '"' || *c == '\'')?;
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => match chars.next()?.1 {
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    c => out.push(c),
                },
                c if c == quote => {
                    self.rest = &self.rest[i + 1..];
                    return Some(out);
                }
                c => out.push(c),
            }
        }
        None
    }

    fn number(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit() && !"+-.eE_".contains(c))
            .unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let text = text.replace('_', "");
        if let Ok(whole) = text.parse::<i64>() {
            return Some(whole.into());
        }
        Number::from_f64(text.parse().ok()?).map(Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_as_python_writes_them() {
        let text = r#"[area(base=10, height=-5.5e1), a.b(x='it\'s', y=[1, (2, 3)], z={"k": None, 'l': True},)]"#;
        let found = calls(text).unwrap();
        assert_eq!(found[0].0, "area");
        assert_eq!(Value::Object(found[0].1.clone()), json!({"base": 10, "height": -55.0}));
        assert_eq!(found[1].0, "a.b");
        assert_eq!(
            Value::Object(found[1].1.clone()),
            json!({"x": "it's", "y": [1, [2, 3]], "z": {"k": null, "l": true}})
        );
        assert_eq!(calls("f()").unwrap().len(), 1);
        for (text, entry) in [("f(a=\"é\")", "é"), ("f(a='')", "")] {
            assert_eq!(calls(text).unwrap()[0].1["a"], entry);
        }
    }

    #[test]
    fn anything_else_is_none() {
        let deep = format!("f(a={}1{})", "[".repeat(10_000), "]".repeat(10_000));
        let whole = "[f(a=[1, {'k': \"v\"}]), g(b=2)]";
        for text in [
            "",
            "f",
            "f(",
            "f(1)",
            "f(a=)",
            "f(a=1",
            "[f(a=1)",
            "f(a=1) x",
            "f(a=b)",
            "f(a='",
            "f(a='\\",
            "1(a=1)",
            "f(a=1 b=2)",
            "f(a=[1 2])",
            "f(a={1: 2})",
            "f(a=1e999)",
            "f(a=--1)",
            &deep,
        ] {
            assert!(calls(text).is_none(), "{text:.40}");
        }
        for end in (0..whole.len()).filter(|e| whole.is_char_boundary(*e)) {
            assert!(calls(&whole[..end]).is_none(), "{end}");
        }
        assert!(calls(whole).is_some());
    }
}
