//! `adapter_config.json`: what kind of adapter it is, and how strongly each of its modules counts.

use crate::{Error, Result};
use serde_json::Value;
use std::path::Path;

/// Largest rank of a module.
const MAX_RANK: u64 = 1 << 16;

/// Ranks and factors of an adapter.
#[derive(Debug)]
pub(super) struct Config {
    rank: usize,
    alpha: f64,
    /// Whether the factor is `alpha / √r` instead of `alpha / r`.
    by_root: bool,
    ranks: Vec<(String, f64)>,
    alphas: Vec<(String, f64)>,
}

impl Config {
    /// Reads the configuration and refuses what cannot be merged.
    pub(super) fn read(json: &Value, path: &Path) -> Result<Self> {
        let malformed = |what: String| Error::malformed(what).in_file(path);
        let unsupported = |what: String| Error::unsupported(what).in_file(path);
        let kind = json.get("peft_type").and_then(Value::as_str).unwrap_or("nothing");
        if kind != "LORA" {
            return Err(unsupported(format!("expected `peft_type` LORA, found {kind}")));
        }
        let on = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
        if on("use_dora") {
            return Err(unsupported(
                "DoRA adapters (`use_dora`) are not supported; merge the adapter with PEFT and convert the result"
                    .into(),
            ));
        }
        if on("fan_in_fan_out") {
            return Err(unsupported(
                "weights stored as [in, out] (`fan_in_fan_out`) are not supported".into(),
            ));
        }
        // These take a part out of the base weights, so that the published base no longer fits.
        let changed = ["pissa", "olora", "corda", "loftq"];
        if let Some(how) = json.get("init_lora_weights").and_then(Value::as_str)
            && changed.iter().any(|c| how.to_lowercase().starts_with(c))
        {
            return Err(unsupported(format!(
                "`init_lora_weights` {how} changes the base weights; convert the adapter to plain LoRA with PEFT and save it"
            )));
        }
        let filled = |key: &str| {
            json.get(key)
                .is_some_and(|v| v.as_array().is_some_and(|a| !a.is_empty()))
        };
        for key in ["layer_replication", "target_parameters", "trainable_token_indices"] {
            if filled(key) {
                return Err(unsupported(format!("`{key}` is not supported")));
            }
        }
        let rank = json
            .get("r")
            .and_then(Value::as_u64)
            .filter(|r| (1..=MAX_RANK).contains(r));
        let rank = rank.ok_or_else(|| malformed(format!("expected `r` from 1 to {MAX_RANK}")))?;
        let alpha = json.get("lora_alpha").and_then(Value::as_f64).filter(|a| a.is_finite());
        Ok(Self {
            rank: rank as usize,
            alpha: alpha.ok_or_else(|| malformed("expected a number `lora_alpha`".into()))?,
            by_root: on("use_rslora"),
            ranks: patterns(json, "rank_pattern", path)?,
            alphas: patterns(json, "alpha_pattern", path)?,
        })
    }

    /// The rank that the configuration says `module` has.
    pub(super) fn rank(&self, module: &str) -> usize {
        of(&self.ranks, module).map_or(self.rank, |r| r as usize)
    }

    /// What the product of `module`'s two matrices is multiplied by.
    pub(super) fn factor(&self, module: &str) -> f32 {
        let rank = self.rank(module).max(1) as f64;
        let alpha = of(&self.alphas, module).unwrap_or(self.alpha);
        let by = if self.by_root { rank.sqrt() } else { rank };
        (alpha / by) as f32
    }
}

/// Numbers by the end of the module's name. PEFT lets the names be regular expressions; those that use more than names
/// and escaped dots are refused.
fn patterns(json: &Value, key: &str, path: &Path) -> Result<Vec<(String, f64)>> {
    let Some(map) = json.get(key).and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    for (pattern, value) in map {
        let name = pattern.trim_start_matches('^').replace("\\.", ".");
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) {
            let what = format!("`{key}`: expected names of modules, found the expression `{pattern}`");
            return Err(Error::unsupported(what).in_file(path));
        }
        let number = value
            .as_f64()
            .filter(|v| v.is_finite() && *v > 0.0 && *v <= MAX_RANK as f64);
        let number = number
            .ok_or_else(|| Error::malformed(format!("`{key}`: expected a number for `{pattern}`")).in_file(path))?;
        out.push((name, number));
    }
    Ok(out)
}

fn of(patterns: &[(String, f64)], module: &str) -> Option<f64> {
    let fits = |name: &str| {
        module
            .strip_suffix(name)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    patterns.iter().find(|(name, _)| fits(name)).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(json: &Value) -> Result<Config> {
        Config::read(json, Path::new("adapter_config.json"))
    }

    #[test]
    fn factors_follow_rank_alpha_and_patterns() {
        let mut json = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {"down_proj": 16},
            "alpha_pattern": {"^model\\.layers\\.0\\.self_attn\\.q_proj": 2}});
        let config = read(&json).unwrap();
        assert_eq!(config.factor("model.layers.1.self_attn.q_proj"), 2.0);
        assert_eq!(config.factor("model.layers.0.self_attn.q_proj"), 0.5);
        assert_eq!(config.factor("model.layers.0.mlp.down_proj"), 0.5);
        assert_eq!(config.rank("model.layers.0.mlp.down_proj"), 16);
        assert_eq!(config.rank("model.layers.0.mlp.updown_proj"), 4);
        json["use_rslora"] = json!(true);
        assert_eq!(read(&json).unwrap().factor("x"), 4.0);
    }

    #[test]
    fn what_cannot_be_merged_is_named() {
        let plain = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8});
        assert!(read(&plain).is_ok());
        for (key, value, what) in [
            ("peft_type", json!("IA3"), "found IA3"),
            ("peft_type", Value::Null, "found nothing"),
            ("use_dora", json!(true), "DoRA"),
            ("fan_in_fan_out", json!(true), "fan_in_fan_out"),
            ("init_lora_weights", json!("pissa_niter_4"), "pissa_niter_4"),
            ("layer_replication", json!([[0, 1]]), "layer_replication"),
            ("r", json!(0), "`r`"),
            ("r", json!(1u64 << 40), "`r`"),
            ("lora_alpha", json!("8"), "`lora_alpha`"),
            ("rank_pattern", json!({".*q_proj": 3}), ".*q_proj"),
            ("rank_pattern", json!({"q_proj": -3}), "q_proj"),
        ] {
            let mut json = plain.clone();
            json[key] = value;
            let error = read(&json).unwrap_err().to_string();
            assert!(
                error.contains(what) && error.contains("adapter_config.json"),
                "{key}: {error}"
            );
        }
    }
}
