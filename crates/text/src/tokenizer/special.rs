//! Which tokens are special, which begin a text, and which end an answer.

use serde_json::{Map, Value};

use super::Inner;
use crate::files::{json_type, token_text};
use crate::{Error, ErrorKind};

/// Tokens that end a turn or a text in published chat formats. One of these ends an answer only if the
/// vocabulary marks it as special: Gemma, for one, has an ordinary token `</s>`.
const END_TOKENS: &[&str] = &[
    "<|im_end|>",      // ChatML: Qwen, SmolLM, LFM2
    "<|endoftext|>",   // GPT-2, Qwen, SmolLM, Phi
    "<end_of_turn>",   // Gemma 2 and 3
    "<turn|>",         // Gemma 4
    "<|eot_id|>",      // Llama 3
    "<|eom_id|>",      // Llama 3, before a tool runs
    "<|end_of_text|>", // Llama 3, Granite
    "</s>",            // Llama 2, Mistral, TinyLlama
    "<eos>",           // Gemma
    "<|end|>",         // Phi 3
    "<|return|>",      // gpt-oss
    "<|call|>",        // gpt-oss, before a tool runs
    "<|eot|>",         // Llama 4
    "<|endofturn|>",   // EXAONE
    "[EOS]",           // OLMo
    "<EOT>",           // Code Llama
];

/// Of these, one that ends an answer only where the other is not in the vocabulary. In the harmony format of gpt-oss an
/// answer is several messages, each ended by `<|end|>`, and `<|return|>` ends the answer.
const NOT_BESIDE: &[(&str, &str)] = &[("<|end|>", "<|return|>")];

/// The ids of tokens that end an answer in published chat formats, ascending. `special` gives the id of a token by its
/// spelling, if the vocabulary has it and marks it as special.
pub fn known_end_ids(special: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    let ends_less = |token: &str| {
        let beside = NOT_BESIDE.iter().find(|(less, _)| *less == token);
        beside.is_some_and(|(_, more)| special(more).is_some())
    };
    let known = END_TOKENS.iter().filter(|token| !ends_less(token));
    let mut ids: Vec<u32> = known.filter_map(|token| special(token)).collect();
    ids.sort_unstable();
    ids
}

#[derive(Debug)]
pub(super) struct SpecialTokens {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// Every id that ends an answer, ascending.
    pub(super) stop: Vec<u32>,
    /// Every special id, ascending.
    pub(super) ids: Vec<u32>,
    /// Spellings of all added tokens, ascending by bytes, and whether they are special.
    pub(super) added: Vec<(String, bool)>,
}

impl SpecialTokens {
    pub(super) fn new(
        inner: &Inner,
        vocab_size: usize,
        config: &Map<String, Value>,
        map: &Map<String, Value>,
        generation: &Map<String, Value>,
    ) -> Result<Self, Error> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        let mut ids: Vec<u32> = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(&id, _)| id)
            .collect();
        ids.sort_unstable();
        let added = inner.get_added_tokens_decoder();
        let mut added: Vec<(String, bool)> = added
            .into_values()
            .map(|token| (token.content, token.special))
            .collect();
        added.sort_unstable();
        added.dedup_by(|a, b| a.0 == b.0);

        // The configuration says null for "none"; only a name it lacks is looked up in the map.
        let named = |name: &str| -> Result<Option<u32>, Error> {
            let (file, value) = match config.get(name) {
                Some(value) => ("tokenizer_config.json", value),
                None => match map.get(name) {
                    Some(value) => ("special_tokens_map.json", value),
                    None => return Ok(None),
                },
            };
            if value.is_null() {
                return Ok(None);
            }
            let text = token_text(value).ok_or_else(|| {
                let found = json_type(value);
                invalid(format!(
                    "`{name}` in `{file}` is {found}, expected a string or an object with `content`"
                ))
            })?;
            let id = inner.token_to_id(text);
            id.map(Some).ok_or_else(|| {
                invalid(format!(
                    "`{name}` in `{file}` is `{text}`, which is not in the vocabulary"
                ))
            })
        };
        let (bos, eos) = (named("bos_token")?, named("eos_token")?);

        let mut stop: Vec<u32> = eos.into_iter().collect();
        let configured = match generation.get("eos_token_id") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        for value in configured {
            // Some files count ids of a padded embedding; those beyond the vocabulary can still be drawn.
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| {
                invalid(format!(
                    "`eos_token_id` in `generation_config.json` holds {value}, expected a token id \
                     (the vocabulary has {vocab_size}) or a list of them"
                ))
            })?;
            stop.push(id);
        }
        // A list is what the model's makers chose. A single id, or none, often misses the end of a turn.
        if !matches!(generation.get("eos_token_id"), Some(Value::Array(list)) if !list.is_empty()) {
            let special = |token: &str| inner.token_to_id(token).filter(|id| ids.binary_search(id).is_ok());
            stop.extend(known_end_ids(special));
        }
        stop.sort_unstable();
        stop.dedup();
        Ok(Self {
            bos,
            eos,
            stop,
            ids,
            added,
        })
    }
}
