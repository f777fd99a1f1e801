//! Unigram tokenizers of XLM-RoBERTa: pieces with scores, and the rules by which characters are replaced, compiled by SentencePiece.

use super::metadata::required;
use super::{Array, Metadata};
use crate::{Error, Result};
use base64::Engine;
use serde_json::{Value, json};

const SCORES: &str = "tokenizer.ggml.scores";
const RULES: &str = "tokenizer.ggml.precompiled_charsmap";
/// Most bytes of compiled rules; the usual ones have a quarter of a million.
const MOST_RULES: usize = 1 << 24;

/// The score of each of `count` tokens. Those that are not `used` fill gaps under texts of their own; none is to be found in a text
/// before a token that is used, nor to decide what an unknown character costs.
pub(super) fn scores(metadata: &Metadata, used: &[bool]) -> Result<Vec<f64>> {
    let scores = required(metadata.floats(SCORES)?, SCORES)?;
    if scores.len() != used.len() {
        let what = format!("`{SCORES}` has {} elements for {} tokens", scores.len(), used.len());
        return Err(Error::malformed(what));
    }
    if let Some(id) = scores.iter().position(|score| !score.is_finite()) {
        let what = format!("`{SCORES}` should be finite, found {} of token {id}", scores[id]);
        return Err(Error::malformed(what));
    }
    let least = scores.iter().zip(used).filter(|(_, used)| **used);
    let least = least.map(|(score, _)| *score).fold(0.0, f32::min);
    let score = |(score, used): (&f32, &bool)| f64::from(if *used { *score } else { least });
    Ok(scores.iter().zip(used).map(score).collect())
}

/// What is done to a text before it is cut, and how it is cut into words.
pub(super) fn before(metadata: &Metadata) -> Result<[Value; 2]> {
    let rules: Vec<u8> = match metadata.get(RULES) {
        None => Vec::new(),
        Some(super::Value::Array(Array::U8(bytes))) => bytes.clone(),
        Some(super::Value::Array(Array::I8(bytes))) => bytes.iter().map(|b| b.cast_unsigned()).collect(),
        Some(other) => {
            let what = format!(
                "the metadata key `{RULES}` should be an array of bytes, found {}",
                other.type_name()
            );
            return Err(Error::malformed(what));
        }
    };
    let normalizer = match check(&rules)? {
        false => Value::Null,
        true => {
            let text = base64::engine::general_purpose::STANDARD.encode(&rules);
            json!({"type": "Precompiled", "precompiled_charsmap": text})
        }
    };
    // `add_space_prefix` is not asked: a converter that read `tokenizer.json` writes that there is none, whatever that says.
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let words = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]});
    Ok([normalizer, words])
}

/// Whether there are rules. They are the size of a trie in bytes, the trie, and texts that end with zero.
fn check(rules: &[u8]) -> Result<bool> {
    let malformed = |what: String| Err(Error::malformed(format!("`{RULES}`: {what}")));
    if rules.is_empty() {
        return Ok(false);
    }
    if rules.len() > MOST_RULES {
        return malformed(format!("expected at most {MOST_RULES} bytes, found {}", rules.len()));
    }
    let Some((size, rest)) = rules.split_first_chunk::<4>() else {
        return malformed(format!("expected a size of 4 bytes, found {}", rules.len()));
    };
    let size = u32::from_le_bytes(*size) as usize;
    let (Some(trie), Some(texts)) = (rest.get(..size), rest.get(size..)) else {
        return malformed(format!("the trie should have {size} bytes, found {}", rest.len()));
    };
    let (trie, []) = trie.as_chunks::<4>() else {
        return malformed(format!(
            "the trie should be whole numbers of 32 bits, found {size} bytes"
        ));
    };
    let Ok(texts) = std::str::from_utf8(texts) else {
        return malformed("the texts behind the trie should be UTF-8".to_owned());
    };
    let units: Vec<u32> = trie.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    match walk(&units, texts) {
        Some(()) => Ok(true),
        None => malformed("the trie leads out of itself, or of the texts behind it".to_owned()),
    }
}

/// Visits everything that a text could lead to in a trie of Darts: a unit has the byte that leads to it, whether a text ends there, and
/// how far the units of the bytes that follow are. Who reads it later checks nothing. `None` where a place is not there.
fn walk(units: &[u32], texts: &str) -> Option<()> {
    let offset = |unit: u32| (unit as usize >> 10) << ((unit & 1 << 9) >> 6);
    let mut seen = vec![false; units.len()];
    let mut open = vec![offset(*units.first()?)];
    while let Some(node) = open.pop() {
        if std::mem::replace(seen.get_mut(node)?, true) {
            continue;
        }
        for byte in 1..=255u32 {
            let at = node ^ byte as usize;
            let unit = *units.get(at)?;
            if unit & (1 << 31 | 0xff) != byte {
                continue;
            }
            let next = at ^ offset(unit);
            if unit & 1 << 8 != 0 {
                let value = *units.get(next)? & !(1 << 31);
                texts.is_char_boundary(value as usize).then_some(())?;
            }
            open.push(next);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::gguf::Value as Raw;

    fn with(key: &str, value: Raw) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.insert(key.into(), value).unwrap();
        metadata
    }

    #[test]
    fn unused_tokens_have_the_least_score_of_used_ones() {
        let metadata = with(SCORES, Raw::Array(Array::F32(vec![0.0, -3.0, -10_000.0])));
        assert_eq!(scores(&metadata, &[true, true, false]).unwrap(), [0.0, -3.0, -3.0]);
        assert_eq!(scores(&metadata, &[true]).unwrap_err().kind(), ErrorKind::Malformed);
        let metadata = with(SCORES, Raw::Array(Array::F32(vec![f32::NAN])));
        assert!(scores(&metadata, &[true]).unwrap_err().to_string().contains("token 0"));
    }

    #[test]
    fn rules_that_are_cut_short_are_an_error() {
        let whole = rules();
        assert!(check(&whole).unwrap());
        assert!(!check(&[]).unwrap());
        for end in 1..4 + 2048 {
            assert!(check(&whole[..end]).is_err(), "{end}");
        }
        assert!(check(&[3, 0, 0, 0, 1, 2, 3, 4]).is_err());
    }

    #[test]
    fn rules_that_lead_astray_are_an_error() {
        let unit = |at: usize, value: u32| {
            let mut rules = rules();
            rules[4 + 4 * at..][..4].copy_from_slice(&value.to_le_bytes());
            rules
        };
        for (rules, good) in [
            (unit(300, 1 << 31 | 1), true),
            // A text that begins behind the last one, or within a letter.
            (unit(300, 1 << 31 | 5), false),
            (unit(300, 1 << 31 | 2), false),
            // A unit that is not there.
            (
                unit(256 ^ usize::from(b'a'), u32::from(b'a') | 1 << 8 | 4096 << 10),
                false,
            ),
            (unit(0, 512 << 10), false),
        ] {
            assert_eq!(check(&rules).is_ok(), good);
        }
    }

    /// Rules that make `xé` of `a`, in two blocks of units.
    fn rules() -> Vec<u8> {
        let mut units = vec![0u32; 512];
        units[0] = 256 << 10;
        let at = 256 ^ usize::from(b'a');
        units[at] = u32::from(b'a') | 1 << 8 | (at as u32 ^ 300) << 10;
        units[300] = 1 << 31;
        let mut rules = 2048u32.to_le_bytes().to_vec();
        rules.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        rules.extend("xé\0".as_bytes());
        rules
    }

    #[test]
    fn rules_are_followed() {
        let rules = Raw::Array(Array::U8(rules()));
        let [normalizer, _] = before(&with(RULES, rules)).unwrap();
        let normalizer: tokenizers::NormalizerWrapper = serde_json::from_value(normalizer).unwrap();
        let mut text = tokenizers::NormalizedString::from("bab");
        tokenizers::Normalizer::normalize(&normalizer, &mut text).unwrap();
        assert_eq!(text.get(), "bxéb");
    }

    #[test]
    fn rules_may_be_bytes_of_either_sign() {
        let rules = rules();
        let signed = rules.iter().map(|b| b.cast_signed()).collect();
        let of = |array| before(&with(RULES, Raw::Array(array))).unwrap()[0].clone();
        let found = of(Array::U8(rules));
        assert_eq!(found["type"], "Precompiled");
        assert_eq!(of(Array::I8(signed)), found);
        assert!(before(&with(RULES, Raw::Bool(true))).is_err());
    }
}
