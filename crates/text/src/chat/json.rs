//! The `tojson` filter as `transformers` defines it: Python's `json.dumps` with its spacing, escapes and
//! numbers, and without the HTML escapes of Jinja's own filter.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::guard::MAX_DEPTH;

/// Widest indent that is accepted; Python has no limit.
const MAX_INDENT: usize = 64;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`; the last two by name.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let given = |value: Option<Value>| value.filter(|v| !v.is_none() && !v.is_undefined());
    let indent = given(indent).or(given(options.get("indent")?));
    let separators = given(options.get("separators")?);
    options.assert_all_used()?;
    let indent = indent.as_ref().map(indent_text).transpose()?;
    let (between, after_key) = match &separators {
        Some(pair) => separator_pair(pair)?,
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        ensure_ascii,
        sort_keys,
        indent,
        between,
        after_key,
    };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn indent_text(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.chars().take(MAX_INDENT).collect());
    }
    // Python counts True as 1 and treats negative as 0.
    let count = if indent.kind() == ValueKind::Bool {
        i64::from(indent.is_true())
    } else {
        i64::try_from(indent.clone())?
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_INDENT {
        let message = format!("tojson indent is {count}, expected at most {MAX_INDENT}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(" ".repeat(count))
}

fn separator_pair(pair: &Value) -> Result<(String, String), Error> {
    let items: Vec<Value> = pair.try_iter()?.collect();
    match items.as_slice() {
        [between, after_key] => Ok((between.to_string(), after_key.to_string())),
        other => {
            let message = format!("tojson separators have {} items, expected 2", other.len());
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

struct Writer {
    out: String,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    between: String,
    after_key: String,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let message = format!("tojson value is nested deeper than {MAX_DEPTH}");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number_text(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut empty = true;
                self.out.push('[');
                for item in value.try_iter()? {
                    self.begin_item(&mut empty, depth + 1);
                    self.value(&item, depth + 1)?;
                }
                self.end_items(empty, depth);
                self.out.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let mut empty = true;
                self.out.push('{');
                for key in keys {
                    self.begin_item(&mut empty, depth + 1);
                    self.key(&key)?;
                    self.out.push_str(&self.after_key);
                    self.value(&value.get_item(&key)?, depth + 1)?;
                }
                self.end_items(empty, depth);
                self.out.push('}');
            }
            kind => {
                let message = format!("a value of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    /// Python turns scalar keys into strings and refuses the rest.
    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.out.push('"');
                self.value(key, 0)?;
                self.out.push('"');
            }
            kind => {
                let message = format!("a key of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn begin_item(&mut self, empty: &mut bool, depth: usize) {
        if !std::mem::take(empty) {
            self.out.push_str(&self.between);
        }
        self.break_line(depth);
    }

    fn end_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.break_line(depth);
        }
    }

    fn break_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string does not fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python prints it.
fn number_text(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    Ok(float_text(f64::try_from(value.clone())?))
}

/// Python's `repr` of a float, with the names of `json.dumps` for what is not finite.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    // Both languages print the shortest digits that read back the same.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        if plain.contains('.') { plain } else { plain + ".0" }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_text_is_that_of_python() {
        // Right: repr() of CPython 3.11.
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(float_text(value), expected);
        }
    }
}
