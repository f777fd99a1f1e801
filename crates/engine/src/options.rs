//! Generation options: what a caller may ask of one generation, its allowed values, and how option
//! sources are layered (defaults, then the bundle's `generation_config.json`, then the call).
//!
//! Depends on `serde` only, and on the limits of what it steers. It deliberately does not sample, match stop strings or know any model: those
//! are [`crate::sampler`], [`crate::stop`] and the session.

use std::collections::BTreeMap;

use crate::speculate::MAX_DRAFT_TOKENS;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most stop strings one call may give.
pub const MAX_STOP_STRINGS: usize = 64;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 1024;
/// Most alternatives per token that `logprobs` may ask for.
pub const MAX_LOGPROBS: usize = 20;

/// An option that was unknown, of the wrong type, or out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("option `{option}`: found {found}, expected {allowed}")]
pub struct InvalidOption {
    /// Name of the option as the caller wrote it.
    pub option: String,
    /// The value that was found, as text.
    pub found: String,
    /// What is allowed instead.
    pub allowed: String,
}

impl InvalidOption {
    fn new(option: &str, found: impl ToString, allowed: impl Into<String>) -> Self {
        Self {
            option: option.to_owned(),
            found: found.to_string(),
            allowed: allowed.into(),
        }
    }
}

/// Everything that steers one generation. Every field has a neutral value, so all fields are always set.
///
/// From JSON, unknown names are errors, missing names take the [`Default`] (or, with
/// [`GenerateOptions::with_json`], the value of the options being overlaid).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct GenerateOptions {
    /// Most tokens to generate, at least 1. Default 512. JSON also accepts `max_new_tokens` and
    /// `max_completion_tokens`.
    pub max_tokens: usize,
    /// Softmax temperature, 0 to 100. 0 is greedy: the highest logit wins, the lowest id on a tie. Default 0.
    pub temperature: f32,
    /// Nucleus sampling: keep the smallest set of most likely tokens whose mass reaches this. Above 0, at
    /// most 1; 1 is off (default).
    pub top_p: f32,
    /// Keep this many most likely tokens; 0 is off (default).
    pub top_k: usize,
    /// Keep tokens with at least this fraction of the most likely token's probability. 0 to 1; 0 is off
    /// (default).
    pub min_p: f32,
    /// Locally typical sampling: keep the smallest set of tokens closest to the expected surprise whose mass
    /// reaches this. Above 0, at most 1; 1 is off (default).
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the repetition window. Above 0, at most
    /// 10; 1 is off (default).
    pub repetition_penalty: f32,
    /// Tokens of prompt and answer, counted back from the newest, that `repetition_penalty` looks at. 0 is
    /// all of them (default).
    pub repetition_window: usize,
    /// Subtracted from a logit for every time the token was generated. -2 to 2; 0 is off (default).
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of every token that was generated. -2 to 2; 0 is off (default).
    pub presence_penalty: f32,
    /// Added to the logit of a token id, -100 to 100.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of the random draws. `None` takes one from the system; the sampler tells which.
    pub seed: Option<u64>,
    /// Texts that end the generation, matched on text across tokens. At most [`MAX_STOP_STRINGS`], each of 1
    /// to [`MAX_STOP_BYTES`] bytes. JSON accepts one string or a list, and the name `stop_sequences`.
    pub stop: Vec<String>,
    /// Whether the stop string that was met is part of the answer. Default false.
    pub include_stop: bool,
    /// Report log-probabilities of each chosen token and of this many most likely alternatives, 0 to
    /// [`MAX_LOGPROBS`]. `None` (default) reports nothing and costs nothing.
    pub logprobs: Option<usize>,
    /// Never draw an end-of-sequence token, so that only `max_tokens`, `stop` or cancellation ends the
    /// answer. Default false.
    pub ignore_eos: bool,
    /// Guess up to this many tokens at once from what prompt and answer already hold (prompt lookup, see
    /// [`crate::speculate`]). The answer is the same; where it repeats the prompt it comes sooner. 0 is off (default), at
    /// most [`MAX_DRAFT_TOKENS`].
    pub prompt_lookup: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 512,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: None,
            stop: Vec::new(),
            include_stop: false,
            logprobs: None,
            ignore_eos: false,
            prompt_lookup: 0,
        }
    }
}

/// Names accepted by [`GenerateOptions::set`], aliases last.
const NAMES: &[&str] = &[
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "repetition_window",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "seed",
    "stop",
    "include_stop",
    "logprobs",
    "ignore_eos",
    "prompt_lookup",
    "max_new_tokens",
    "max_completion_tokens",
    "stop_sequences",
    "include_stop_sequences",
];

impl GenerateOptions {
    /// Names that [`set`](Self::set) and JSON accept, aliases last.
    pub fn names() -> &'static [&'static str] {
        NAMES
    }

    /// Whether the most likely token is always taken, so that seed and filters have no effect.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every value against the range its field documents.
    ///
    /// # Errors
    /// The first option that is out of range, with the value found and the values allowed.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        if self.max_tokens == 0 {
            return Err(InvalidOption::new("max_tokens", 0, "a whole number from 1"));
        }
        let above_zero = |option, value: f32, max: f32, off: &str| {
            if value > 0.0 && value <= max {
                Ok(())
            } else {
                let allowed = format!("a number above 0, at most {max} ({off})");
                Err(InvalidOption::new(option, value, allowed))
            }
        };
        let within = |option, value: f32, min: f32, max: f32, off: &str| {
            if value >= min && value <= max {
                Ok(())
            } else {
                let allowed = format!("a number from {min} to {max} ({off})");
                Err(InvalidOption::new(option, value, allowed))
            }
        };
        within("temperature", self.temperature, 0.0, 100.0, "0 is greedy")?;
        above_zero("top_p", self.top_p, 1.0, "1 is off")?;
        within("min_p", self.min_p, 0.0, 1.0, "0 is off")?;
        above_zero("typical_p", self.typical_p, 1.0, "1 is off")?;
        above_zero("repetition_penalty", self.repetition_penalty, 10.0, "1 is off")?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0, "0 is off")?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0, "0 is off")?;
        for (token, &bias) in &self.logit_bias {
            if !(-100.0..=100.0).contains(&bias) {
                let found = format!("{bias} for token {token}");
                return Err(InvalidOption::new("logit_bias", found, "numbers from -100 to 100"));
            }
        }
        if self.stop.len() > MAX_STOP_STRINGS {
            let found = format!("{} strings", self.stop.len());
            let allowed = format!("at most {MAX_STOP_STRINGS} strings");
            return Err(InvalidOption::new("stop", found, allowed));
        }
        for (index, stop) in self.stop.iter().enumerate() {
            if stop.is_empty() || stop.len() > MAX_STOP_BYTES {
                let found = format!("{} bytes in string {index}", stop.len());
                let allowed = format!("strings of 1 to {MAX_STOP_BYTES} bytes");
                return Err(InvalidOption::new("stop", found, allowed));
            }
        }
        if self.prompt_lookup > MAX_DRAFT_TOKENS {
            let allowed = format!("a whole number from 0 to {MAX_DRAFT_TOKENS} (0 is off)");
            return Err(InvalidOption::new("prompt_lookup", self.prompt_lookup, allowed));
        }
        match self.logprobs {
            Some(n) if n > MAX_LOGPROBS => {
                let allowed = format!("a whole number from 0 to {MAX_LOGPROBS}, or null");
                Err(InvalidOption::new("logprobs", n, allowed))
            }
            _ => Ok(()),
        }
    }

    /// These options with the ones named in `overrides` replaced, validated.
    ///
    /// # Errors
    /// An unknown name, a value of the wrong type, or a value out of range.
    pub fn with_json(&self, overrides: &Map<String, Value>) -> Result<Self, InvalidOption> {
        let mut options = self.clone();
        for (name, value) in overrides {
            options.set(name, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    /// Sets one option by name from a JSON value, without checking its range (see
    /// [`validate`](Self::validate)). `null` restores the default.
    ///
    /// # Errors
    /// An unknown name or a value of the wrong type.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), InvalidOption> {
        if value.is_null() {
            let default = Value::Object(Self::default().to_json());
            // Only names of fields get here with a default; aliases and unknown names fall through.
            if let Some(value) = default.get(canonical(name)).filter(|v| !v.is_null()) {
                return self.set(name, value);
            }
        }
        match canonical(name) {
            "max_tokens" => self.max_tokens = count(name, value, 1)?,
            "temperature" => self.temperature = number(name, value)?,
            "top_p" => self.top_p = number(name, value)?,
            "top_k" => self.top_k = count(name, value, 0)?,
            "min_p" => self.min_p = number(name, value)?,
            "typical_p" => self.typical_p = number(name, value)?,
            "repetition_penalty" => self.repetition_penalty = number(name, value)?,
            "repetition_window" => self.repetition_window = count(name, value, 0)?,
            "frequency_penalty" => self.frequency_penalty = number(name, value)?,
            "presence_penalty" => self.presence_penalty = number(name, value)?,
            "logit_bias" => self.logit_bias = biases(name, value)?,
            "seed" => {
                let wrong = || InvalidOption::new(name, value, "a whole number from 0 to 2^64 - 1, or null");
                self.seed = match value {
                    Value::Null => None,
                    value => Some(value.as_u64().ok_or_else(wrong)?),
                }
            }
            "stop" => self.stop = strings(name, value)?,
            "include_stop" => self.include_stop = flag(name, value)?,
            "logprobs" => {
                self.logprobs = match value {
                    Value::Null | Value::Bool(false) => None,
                    Value::Bool(true) => Some(0),
                    value => Some(count(name, value, 0)?),
                }
            }
            "ignore_eos" => self.ignore_eos = flag(name, value)?,
            "prompt_lookup" => self.prompt_lookup = count(name, value, 0)?,
            _ => {
                let allowed = format!("one of the options {}", NAMES.join(", "));
                return Err(InvalidOption::new(name, "an unknown option", allowed));
            }
        }
        Ok(())
    }

    /// Options from a Hugging Face `generation_config.json`, with the meaning `transformers` gives it:
    /// without `do_sample: true` generation is greedy; with it, `top_k` is 50 and `temperature` 1 unless the
    /// file says otherwise. Names that are not sampling options are skipped.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub fn from_generation_config(config: &Map<String, Value>) -> Result<Self, InvalidOption> {
        let mut options = Self::default();
        let present = |name: &str| config.get(name).filter(|value| !value.is_null());
        if let Some(value) = present("repetition_penalty") {
            options.set("repetition_penalty", value)?;
        }
        if present("do_sample").and_then(Value::as_bool) == Some(true) {
            options.temperature = 1.0;
            options.top_k = 50;
            for name in ["temperature", "top_k", "top_p", "min_p", "typical_p"] {
                if let Some(value) = present(name) {
                    options.set(name, value)?;
                }
            }
        }
        options.validate()?;
        Ok(options)
    }

    /// These options as a JSON object, one entry per field.
    pub fn to_json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // A struct of numbers, strings and string-keyed maps always serializes to an object.
            _ => Map::new(),
        }
    }
}

impl TryFrom<Map<String, Value>> for GenerateOptions {
    type Error = InvalidOption;

    fn try_from(map: Map<String, Value>) -> Result<Self, InvalidOption> {
        Self::default().with_json(&map)
    }
}

/// The field that an accepted name stands for.
fn canonical(name: &str) -> &str {
    match name {
        "max_new_tokens" | "max_completion_tokens" => "max_tokens",
        "stop_sequences" => "stop",
        "include_stop_sequences" => "include_stop",
        name => name,
    }
}

fn number(name: &str, value: &Value) -> Result<f32, InvalidOption> {
    match value.as_f64() {
        Some(number) => Ok(number as f32),
        None => Err(InvalidOption::new(name, value, "a number")),
    }
}

fn count(name: &str, value: &Value, min: usize) -> Result<usize, InvalidOption> {
    // Clients in languages without integers send 40.0.
    let whole = value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|v| v.fract() == 0.0 && (0.0..9e15).contains(v))
            .map(|v| v as u64)
    });
    whole
        .and_then(|v| usize::try_from(v).ok())
        .ok_or_else(|| InvalidOption::new(name, value, format!("a whole number from {min}")))
}

fn flag(name: &str, value: &Value) -> Result<bool, InvalidOption> {
    value
        .as_bool()
        .ok_or_else(|| InvalidOption::new(name, value, "true or false"))
}

fn strings(name: &str, value: &Value) -> Result<Vec<String>, InvalidOption> {
    let wrong = || InvalidOption::new(name, value, "a string or a list of strings");
    match value {
        Value::String(one) => Ok(vec![one.clone()]),
        Value::Array(many) => {
            let text = |v: &Value| v.as_str().map(str::to_owned).ok_or_else(wrong);
            many.iter().map(text).collect()
        }
        _ => Err(wrong()),
    }
}

fn biases(name: &str, value: &Value) -> Result<BTreeMap<u32, f32>, InvalidOption> {
    let wrong =
        |found: String| InvalidOption::new(name, found, "an object of token ids to numbers, such as {\"42\": -100}");
    let map = value.as_object().ok_or_else(|| wrong(value.to_string()))?;
    map.iter()
        .map(|(token, bias)| {
            let id = token.parse::<u32>().map_err(|_| wrong(format!("key \"{token}\"")))?;
            let bias = bias
                .as_f64()
                .ok_or_else(|| wrong(format!("{bias} for token {token}")))?;
            Ok((id, bias as f32))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<GenerateOptions, InvalidOption> {
        GenerateOptions::try_from(value.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn options_json_round_trip_is_equal() {
        let options = GenerateOptions {
            max_tokens: 7,
            temperature: 0.7,
            top_p: 0.9,
            top_k: 40,
            min_p: 0.05,
            typical_p: 0.95,
            repetition_penalty: 1.1,
            repetition_window: 64,
            frequency_penalty: 0.5,
            presence_penalty: -0.5,
            logit_bias: BTreeMap::from([(3, -100.0), (70_000, 2.5)]),
            seed: Some(u64::MAX),
            stop: vec!["\n\n".into(), "END".into()],
            include_stop: true,
            logprobs: Some(5),
            ignore_eos: true,
            prompt_lookup: 7,
        };
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<GenerateOptions>(&text).unwrap(), options);
        let default = GenerateOptions::default();
        let text = serde_json::to_string(&default).unwrap();
        assert_eq!(serde_json::from_str::<GenerateOptions>(&text).unwrap(), default);
        assert_eq!(default.validate(), Ok(()));
    }

    #[test]
    fn options_every_field_is_named_and_settable() {
        let fields = GenerateOptions::default().to_json();
        for name in fields.keys() {
            assert!(NAMES.contains(&name.as_str()), "{name} is missing from NAMES");
        }
        for name in NAMES {
            assert!(fields.contains_key(canonical(name)), "{name} is no field");
            let mut options = GenerateOptions {
                max_tokens: 3,
                ..Default::default()
            };
            options
                .set(name, &Value::Null)
                .unwrap_or_else(|e| panic!("null for {name}: {e}"));
        }
    }

    #[test]
    fn options_aliases_set_the_same_field() {
        assert_eq!(parse(json!({"max_new_tokens": 9})).unwrap().max_tokens, 9);
        assert_eq!(parse(json!({"max_completion_tokens": 9.0})).unwrap().max_tokens, 9);
        assert_eq!(parse(json!({"stop_sequences": "x"})).unwrap().stop, ["x"]);
        assert!(parse(json!({"include_stop_sequences": true})).unwrap().include_stop);
        assert_eq!(parse(json!({"logprobs": true})).unwrap().logprobs, Some(0));
        assert_eq!(parse(json!({"logprobs": false})).unwrap().logprobs, None);
    }

    #[test]
    fn options_wrong_value_names_option_found_and_allowed() {
        let long = "x".repeat(MAX_STOP_BYTES + 1);
        let many = vec!["x"; MAX_STOP_STRINGS + 1];
        let cases = [
            (json!({"max_tokens": 0}), "max_tokens", "0"),
            (json!({"max_tokens": -3}), "max_tokens", "-3"),
            (json!({"max_tokens": 1.5}), "max_tokens", "1.5"),
            (json!({"max_tokens": 1e300}), "max_tokens", "1e+300"),
            (json!({"temperature": -0.1}), "temperature", "-0.1"),
            (json!({"temperature": 101}), "temperature", "101"),
            (json!({"temperature": "hot"}), "temperature", "\"hot\""),
            (json!({"prompt_lookup": 16}), "prompt_lookup", "16"),
            (json!({"temperature": 1e300}), "temperature", "inf"),
            (json!({"top_p": 0}), "top_p", "0"),
            (json!({"top_p": 1.01}), "top_p", "1.01"),
            (json!({"top_k": -1}), "top_k", "-1"),
            (json!({"min_p": 1.5}), "min_p", "1.5"),
            (json!({"typical_p": 0}), "typical_p", "0"),
            (json!({"repetition_penalty": 0}), "repetition_penalty", "0"),
            (json!({"repetition_penalty": 11}), "repetition_penalty", "11"),
            (json!({"repetition_window": "all"}), "repetition_window", "\"all\""),
            (json!({"frequency_penalty": 2.5}), "frequency_penalty", "2.5"),
            (json!({"presence_penalty": -2.5}), "presence_penalty", "-2.5"),
            (json!({"logit_bias": {"5": 101}}), "logit_bias", "101 for token 5"),
            (json!({"logit_bias": {"five": 1}}), "logit_bias", "key \"five\""),
            (json!({"logit_bias": [1]}), "logit_bias", "[1]"),
            (json!({"seed": -1}), "seed", "-1"),
            (json!({"stop": ["a", 1]}), "stop", "[\"a\",1]"),
            (json!({"stop": ""}), "stop", "0 bytes in string 0"),
            (json!({"stop": ["a", long]}), "stop", "1025 bytes in string 1"),
            (json!({"stop": many}), "stop", "65 strings"),
            (json!({"include_stop": 1}), "include_stop", "1"),
            (json!({"logprobs": 21}), "logprobs", "21"),
            (json!({"ignore_eos": "yes"}), "ignore_eos", "\"yes\""),
            (json!({"temprature": 1}), "temprature", "an unknown option"),
        ];
        for (value, option, found) in cases {
            let error = parse(value.clone()).expect_err(&value.to_string());
            assert_eq!(error.option, option, "{value}");
            assert_eq!(error.found, found, "{value}");
            let text = error.to_string();
            assert!(text.contains(option) && text.contains("expected"), "{text}");
        }
    }

    #[test]
    fn options_nan_is_refused() {
        for field in ["temperature", "top_p", "min_p", "typical_p", "repetition_penalty"] {
            let mut options = GenerateOptions::default();
            match field {
                "temperature" => options.temperature = f32::NAN,
                "top_p" => options.top_p = f32::NAN,
                "min_p" => options.min_p = f32::NAN,
                "typical_p" => options.typical_p = f32::NAN,
                _ => options.repetition_penalty = f32::NAN,
            }
            assert_eq!(options.validate().unwrap_err().option, field);
        }
    }

    #[test]
    fn options_overlay_keeps_unnamed_values() {
        let base = GenerateOptions {
            top_k: 20,
            temperature: 0.6,
            ..Default::default()
        };
        let over = json!({"temperature": 0.2, "seed": 5});
        let options = base.with_json(over.as_object().unwrap()).unwrap();
        assert_eq!((options.top_k, options.temperature, options.seed), (20, 0.2, Some(5)));
        let reset = json!({"top_k": null});
        assert_eq!(base.with_json(reset.as_object().unwrap()).unwrap().top_k, 0);
    }

    #[test]
    fn options_generation_config_follows_do_sample() {
        let gemma = json!({"do_sample": true, "eos_token_id": [1, 106], "top_k": 64, "top_p": 0.95});
        let options = GenerateOptions::from_generation_config(gemma.as_object().unwrap()).unwrap();
        assert_eq!((options.temperature, options.top_k, options.top_p), (1.0, 64, 0.95));
        let plain = json!({"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1});
        let options = GenerateOptions::from_generation_config(plain.as_object().unwrap()).unwrap();
        assert!(options.is_greedy());
        assert_eq!((options.top_p, options.repetition_penalty), (1.0, 1.1));
        let bare = json!({"do_sample": true, "temperature": null});
        let options = GenerateOptions::from_generation_config(bare.as_object().unwrap()).unwrap();
        assert_eq!((options.temperature, options.top_k), (1.0, 50));
        let broken = json!({"do_sample": true, "top_p": "high"});
        let error = GenerateOptions::from_generation_config(broken.as_object().unwrap()).unwrap_err();
        assert_eq!(error.option, "top_p");
    }
}
