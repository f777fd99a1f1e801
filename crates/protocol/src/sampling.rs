//! Generation options that the OpenAI-like APIs share.

use super::{Fields, Result, Spec};
use cactus_engine::GenerateOptions;
use serde_json::Value;

/// Options whose names and meaning are the engine's own.
const SAME: &[&str] = &[
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "repetition_window",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "stop",
    "ignore_eos",
    "prompt_lookup",
];

impl Spec {
    /// Sets an option; a wrong type or range is named as the client wrote it.
    pub(super) fn set(&mut self, fields: &Fields<'_>, written: &str, option: &str, value: Value) -> Result<()> {
        let mut probe = GenerateOptions::default();
        let wrong = |e: cactus_engine::options::InvalidOption| {
            fields.wrong(written, format_args!("found {}, expected {}", e.found, e.allowed))
        };
        probe.set(option, &value).map_err(wrong)?;
        probe.validate().map_err(wrong)?;
        self.options.insert(option.to_owned(), value);
        Ok(())
    }

    /// The options at the top of a request to an OpenAI-like API. `limits` are the names of the most tokens.
    pub(super) fn read(fields: &Fields<'_>, limits: &[&str]) -> Result<Spec> {
        let mut spec = Spec::default();
        for name in SAME {
            if let Some(value) = fields.get(name) {
                spec.set(fields, name, name, value.clone())?;
            }
        }
        if let Some(value) = fields.get("top_k") {
            // Other servers take -1 for "all of them".
            let value = if value.as_i64() == Some(-1) {
                Value::from(0)
            } else {
                value.clone()
            };
            spec.set(fields, "top_k", "top_k", value)?;
        }
        if let Some(value) = fields.get("seed") {
            // The API has signed seeds; the bits are what counts.
            let value = value
                .as_i64()
                .map_or_else(|| value.clone(), |seed| Value::from(seed as u64));
            spec.set(fields, "seed", "seed", value)?;
        }
        if let Some((name, value)) = fields.any(limits) {
            spec.set(fields, name, "max_tokens", value.clone())?;
        }
        Ok(spec)
    }
}
