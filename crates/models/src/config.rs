//! Reading a Hugging Face `config.json`: every field is typed, bounded and named in its error.

use crate::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Largest number of layers accepted. The largest published models have under 200.
pub(crate) const MAX_LAYERS: usize = 512;
/// Largest width of hidden state or feed-forward layer.
pub(crate) const MAX_WIDTH: usize = 1 << 18;
/// Largest number of attention heads.
pub(crate) const MAX_HEADS: usize = 1 << 10;
/// Largest width of a head.
pub(crate) const MAX_HEAD_DIM: usize = 1 << 12;
/// Largest vocabulary.
pub(crate) const MAX_VOCAB: usize = 1 << 22;
/// Largest context and window, in tokens.
pub(crate) const MAX_CONTEXT: usize = 1 << 26;

/// One JSON object of a configuration. A `null` field counts as absent, as in `transformers`.
#[derive(Clone, Copy)]
pub(crate) struct Config<'a> {
    family: &'a str,
    /// Prefix of field names in errors, such as `rope_scaling.`.
    at: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    pub(crate) fn new(family: &'a str, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Config { family, at: "", fields }),
            other => {
                let what = format!("expected a JSON object, found {}", describe(other));
                Err(Error::new(ErrorKind::Invalid, family, what))
            }
        }
    }

    /// The same fields, called so in errors.
    pub(crate) fn under(self, at: &'a str) -> Self {
        Config { at, ..self }
    }

    /// The field, where it is there and not `null`.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the field is there and `null`.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(Value::is_null)
    }

    /// The fields.
    pub(crate) fn fields(&self) -> &'a Map<String, Value> {
        self.fields
    }

    /// Fields of the object.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn family(&self) -> &'a str {
        self.family
    }

    fn missing(&self, key: &str, expected: &str) -> Error {
        let what = format!("field `{}{key}` is missing; expected {expected}", self.at);
        Error::new(ErrorKind::Missing, self.family, what)
    }

    pub(crate) fn invalid(&self, key: &str, what: impl std::fmt::Display) -> Error {
        Error::new(
            ErrorKind::Invalid,
            self.family,
            format!("field `{}{key}`: {what}", self.at),
        )
    }

    pub(crate) fn unsupported(&self, key: &str, what: impl std::fmt::Display) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            self.family,
            format!("field `{}{key}`: {what}", self.at),
        )
    }

    fn found(&self, key: &str, expected: &str, value: &Value) -> Error {
        self.invalid(key, format_args!("expected {expected}, found {}", describe(value)))
    }

    /// An integer in `range`, where the field is there.
    pub(crate) fn size_if_set(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let n = value
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| range.contains(n));
        match n {
            Some(n) => Ok(Some(n)),
            None => Err(self.found(key, &integers(&range), value)),
        }
    }

    pub(crate) fn size(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize> {
        self.size_if_set(key, range.clone())?
            .ok_or_else(|| self.missing(key, &integers(&range)))
    }

    /// An integer from 1 on, `default` where the field is absent.
    pub(crate) fn size_or(&self, key: &str, most: usize, default: usize) -> Result<usize> {
        Ok(self.size_if_set(key, 1..=most)?.unwrap_or(default))
    }

    pub(crate) fn width(&self, key: &str) -> Result<usize> {
        self.size(key, 1..=MAX_WIDTH)
    }

    /// A finite number in `range`, where the field is there.
    pub(crate) fn number_if_set(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|n| range.contains(n)) {
            Some(n) => Ok(Some(n)),
            None => Err(self.found(key, &numbers(&range), value)),
        }
    }

    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<f64> {
        self.number_if_set(key, range.clone())?
            .ok_or_else(|| self.missing(key, &numbers(&range)))
    }

    /// The epsilon of the norms, `default` where the field is absent.
    pub(crate) fn epsilon(&self, key: &str, default: f64) -> Result<f32> {
        Ok(self.number_if_set(key, 0.0..=1.0)?.unwrap_or(default) as f32)
    }

    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => Err(self.found(key, "true or false", other)),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.found(key, "a string", other)),
        }
    }

    /// A list of integers in `range`, where the field is there.
    pub(crate) fn sizes(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<Vec<usize>>> {
        let what = format!("a list, each {}", integers(&range));
        self.list(key, &what, |v| {
            v.as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| range.contains(n))
        })
    }

    /// A list of pairs of integers, each in its range, where the field is there.
    pub(crate) fn pairs(&self, key: &str, ranges: [RangeInclusive<usize>; 2]) -> Result<Option<Vec<[usize; 2]>>> {
        let [first, second] = &ranges;
        let what = format!("a list of pairs, {} with {}", integers(first), integers(second));
        let one = |v: &Value, range: &RangeInclusive<usize>| {
            let n = v.as_u64().and_then(|n| usize::try_from(n).ok());
            n.filter(|n| range.contains(n))
        };
        self.list(key, &what, |v| match v.as_array()?.as_slice() {
            [a, b] => Some([one(a, first)?, one(b, second)?]),
            _ => None,
        })
    }

    /// A list of numbers in `range`, where the field is there.
    pub(crate) fn numbers(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Vec<f64>>> {
        let what = format!("a list, each {}", numbers(&range));
        self.list(key, &what, |v| v.as_f64().filter(|n| range.contains(n)))
    }

    /// A list of strings, where the field is there.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.list(key, "a list of strings", Value::as_str)
    }

    fn list<T>(&self, key: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<Vec<T>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(items)) => items
                .iter()
                .map(|v| read(v).ok_or_else(|| self.found(key, expected, v)))
                .collect::<Result<Vec<T>>>()
                .map(Some),
            Some(other) => Err(self.found(key, expected, other)),
        }
    }

    /// The object in field `key`, where it is there; `at` is the prefix of its fields in errors.
    pub(crate) fn section(&self, key: &str, at: &'a str) -> Result<Option<Config<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Config { at, fields, ..*self })),
            Some(other) => Err(self.found(key, "an object", other)),
        }
    }

    /// Token ids in field `key`, which may be one integer or a list.
    pub(crate) fn token_ids(&self, key: &str) -> Result<Vec<u32>> {
        let range = 0..=MAX_VOCAB;
        let ids = match self.get(key) {
            None => Vec::new(),
            Some(Value::Array(_)) => self.sizes(key, range)?.unwrap_or_default(),
            // Some checkpoints write -1 for "none".
            Some(v) if v.as_i64() == Some(-1) => Vec::new(),
            Some(_) => vec![self.size(key, range)?],
        };
        Ok(ids.into_iter().map(|n| n as u32).collect())
    }
}

/// Sizes that every family has.
#[derive(Clone, Debug)]
pub(crate) struct Dims {
    pub(crate) vocab: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) context: usize,
}

impl Dims {
    /// Reads `vocab_size`, `hidden_size`, `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads` (the number
    /// of heads where absent), `head_dim` (`default_head_dim`, else hidden size over heads, where absent) and
    /// `max_position_embeddings`.
    pub(crate) fn read(c: &Config<'_>, default_head_dim: Option<usize>) -> Result<Self> {
        let hidden = c.width("hidden_size")?;
        let heads = c.size("num_attention_heads", 1..=MAX_HEADS)?;
        let kv_heads = c.size_if_set("num_key_value_heads", 1..=MAX_HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let what = format!("{kv_heads} does not divide `num_attention_heads`, which is {heads}");
            return Err(c.invalid("num_key_value_heads", what));
        }
        let head_dim = match (c.size_if_set("head_dim", 2..=MAX_HEAD_DIM)?, default_head_dim) {
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) if hidden % heads == 0 && hidden / heads <= MAX_HEAD_DIM => hidden / heads,
            (None, None) => {
                let what = format!(
                    "is missing, and `hidden_size` {hidden} over `num_attention_heads` {heads} is not a head width"
                );
                return Err(c.invalid("head_dim", what));
            }
        };
        if head_dim < 2 || head_dim % 2 != 0 {
            let what = format!("rotary embedding needs an even head width, found {head_dim}");
            return Err(c.invalid("head_dim", what));
        }
        Ok(Dims {
            vocab: c.size("vocab_size", 1..=MAX_VOCAB)?,
            hidden,
            layers: c.size("num_hidden_layers", 1..=MAX_LAYERS)?,
            heads,
            kv_heads,
            head_dim,
            context: c.size("max_position_embeddings", 1..=MAX_CONTEXT)?,
        })
    }
}

/// The attention window of every layer, from `layer_types`, else `default(layer)` says which layers slide.
///
/// `window` is `None` where the model has none; a sliding layer is then an error.
pub(crate) fn windows(
    c: &Config<'_>,
    layers: usize,
    window: Option<usize>,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<Option<usize>>> {
    let sliding: Vec<bool> = match layer_types(c, layers)? {
        None => (0..layers).map(default).collect(),
        Some(types) => types
            .into_iter()
            .map(|t| match t {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                other => {
                    let what =
                        format!("`{other}` is not supported; supported are `full_attention` and `sliding_attention`");
                    Err(c.unsupported("layer_types", what))
                }
            })
            .collect::<Result<_>>()?,
    };
    if window.is_none() && sliding.contains(&true) {
        return Err(c.invalid("sliding_window", "is missing, and some layers use sliding attention"));
    }
    Ok(sliding.into_iter().map(|s| window.filter(|_| s)).collect())
}

/// `layer_types`, one for each layer, where the field is there.
pub(crate) fn layer_types<'a>(c: &Config<'a>, layers: usize) -> Result<Option<Vec<&'a str>>> {
    let types = c.texts("layer_types")?;
    match types {
        Some(t) if t.len() != layers => {
            let what = format!("expected one entry for each of {layers} layers, found {}", t.len());
            Err(c.invalid("layer_types", what))
        }
        other => Ok(other),
    }
}

fn integers(range: &RangeInclusive<usize>) -> String {
    format!("an integer from {} to {}", range.start(), range.end())
}

fn numbers(range: &RangeInclusive<f64>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

/// The fields of `usual` with those that `given` has, and that are not null, in their place.
pub(crate) fn over(usual: Value, given: &Map<String, Value>) -> Map<String, Value> {
    let mut all = match usual {
        Value::Object(all) => all,
        _ => Map::new(),
    };
    let said = given.iter().filter(|(_, value)| !value.is_null());
    all.extend(said.map(|(key, value)| (key.clone(), value.clone())));
    all
}

/// A short form of a value for errors: never more than a line, however large the value.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) if s.chars().count() <= 40 => format!("`{s}`"),
        Value::String(s) => format!("a string of {} bytes", s.len()),
        Value::Array(a) => format!("a list of {} elements", a.len()),
        Value::Object(o) => format!("an object of {} fields", o.len()),
    }
}
