//! What a calibration holds for: these weights, this template, this way to draw.
//!
//! Depends on the bundle and the options. It deliberately knows nothing of scores and decisions.

use crate::{GenerateOptions, Model, Result};
use cactus_bundle::{Bundle, Checksum};
use serde::{Deserialize, Serialize};

/// Path in a bundle of what was measured of its confidence in answers, beside `quality.json`.
pub const CONFIDENCE_PATH: &str = "confidence.json";
/// Path in a bundle of what was measured of its decisions.
pub const DECISIONS_PATH: &str = "decisions.json";
/// Most bytes of either that are read.
pub const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// What is learned of a bundle after it was made. It changes no answer.
pub(crate) const LEARNED: [&str; 2] = [CONFIDENCE_PATH, DECISIONS_PATH];

const TEMPLATE_PATH: &str = "chat_template.jinja";
/// Files that say something of a bundle and change nothing of its answers, or have a digest of their own.
const LEFT_OUT: [&str; 6] = [
    CONFIDENCE_PATH,
    DECISIONS_PATH,
    "quality.json",
    "tokenizer.json.gz",
    TEMPLATE_PATH,
    "generation_config.json",
];

/// Digests of what the confidence in an answer was fitted to. Equal ones have equal signals for equal prompts.
///
/// They do not cover the type of the KV cache, the context, and the code that computes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Graph, weights and tokenizer: [`Bundle::digest`] without documents, template and generation
    /// options.
    pub bundle: String,
    /// The chat template; `none` without one.
    pub template: String,
    /// The options that change which token is drawn.
    pub sampler: String,
}

impl Fingerprint {
    /// What `bundle` and `options` are. It reads nothing: manifests and headers have the checksums.
    ///
    /// # Errors
    /// Where the bundle's files were cut short while it was open.
    pub fn of(bundle: &Bundle, options: &GenerateOptions) -> Result<Fingerprint> {
        let digest = bundle.digest(|path| LEFT_OUT.contains(&path));
        let template = bundle.manifest().files.get(TEMPLATE_PATH);
        bundle.intact()?;
        Ok(Fingerprint {
            bundle: digest.to_string(),
            template: template.map_or_else(|| "none".to_owned(), |file| file.xxh3.to_string()),
            sampler: sampler(options),
        })
    }
}

impl Model {
    /// What this model and `options` are.
    ///
    /// # Errors
    /// As [`Fingerprint::of`].
    pub fn fingerprint(&self, options: &GenerateOptions) -> Result<Fingerprint> {
        Fingerprint::of(self.bundle(), options)
    }

    /// The document `path` of the bundle as it is now, [`CONFIDENCE_PATH`] or [`DECISIONS_PATH`]; `None` where it has none. It is
    /// not parsed here.
    ///
    /// # Errors
    /// For a damaged document, or one of more than [`MAX_DOCUMENT_BYTES`].
    pub fn document(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let bundle = self.bundle();
        let Some(entry) = bundle.manifest().files.get(path) else {
            return Ok(None);
        };
        if entry.bytes > MAX_DOCUMENT_BYTES {
            return Err(crate::Error::Argument(format!(
                "`{path}` has {} bytes; at most {MAX_DOCUMENT_BYTES} are read",
                entry.bytes
            )));
        }
        Ok(Some(bundle.file(path)?))
    }
}

/// Digest of the options that decide which token is drawn. Seeds and limits are left out: they choose one answer of those that
/// the others make likely, or end it. So are the filters where the likeliest token is always taken.
fn sampler(options: &GenerateOptions) -> String {
    let off = GenerateOptions::default();
    let mut kept = GenerateOptions {
        max_tokens: off.max_tokens,
        seed: off.seed,
        stop: Vec::new(),
        include_stop: off.include_stop,
        logprobs: off.logprobs,
        prompt_lookup: off.prompt_lookup,
        ..options.clone()
    };
    if options.is_greedy() {
        kept.top_p = off.top_p;
        kept.top_k = off.top_k;
        kept.min_p = off.min_p;
        kept.typical_p = off.typical_p;
    }
    if kept.repetition_penalty == 1.0 {
        kept.repetition_window = off.repetition_window;
    }
    Checksum::of(serde_json::Value::Object(kept.to_json()).to_string().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampler_digest_differs_where_another_token_may_be_drawn() {
        let of = |change: &dyn Fn(&mut GenerateOptions)| {
            let mut options = GenerateOptions::default();
            change(&mut options);
            sampler(&options)
        };
        let greedy = of(&|_| {});
        let same: [&dyn Fn(&mut GenerateOptions); 6] = [
            &|o| o.seed = Some(3),
            &|o| o.max_tokens = 7,
            &|o| o.stop = vec!["x".to_owned()],
            &|o| o.logprobs = Some(2),
            &|o| o.top_k = 40,
            &|o| o.repetition_window = 64,
        ];
        for (i, change) in same.iter().enumerate() {
            assert_eq!(of(change), greedy, "{i}");
        }
        let other: [&dyn Fn(&mut GenerateOptions); 6] = [
            &|o| o.temperature = 0.7,
            &|o| {
                o.temperature = 0.7;
                o.top_k = 40;
            },
            &|o| o.repetition_penalty = 1.1,
            &|o| o.frequency_penalty = 0.5,
            &|o| o.ignore_eos = true,
            &|o| o.logit_bias = [(3, 1.0)].into(),
        ];
        let mut digests: Vec<String> = other.iter().map(|change| of(change)).collect();
        digests.push(greedy);
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), 7);
    }
}
