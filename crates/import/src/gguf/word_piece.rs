//! `WordPiece` of BERT: GGUF writes a piece that begins a word with `▁` before it, and one that goes on without `##`.

use super::Metadata;
use crate::Result;
use serde_json::{Value, json};

/// Text of the unknown token where a file does not name it.
pub(super) const UNKNOWN: &str = "[UNK]";
/// Texts of the tokens around a text, where a file does not name them.
pub(super) const AROUND: [&str; 2] = ["[CLS]", "[SEP]"];
/// What begins a word.
const BEGINS: char = '▁';

/// The piece as a `vocab.txt` has it.
pub(super) fn piece(text: &str, special: bool) -> String {
    // Files of older converters leave every token in brackets as it is.
    let in_brackets = text.starts_with('[') && text.ends_with(']');
    match text.strip_prefix(BEGINS) {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ if special || in_brackets => text.to_owned(),
        _ => format!("##{text}"),
    }
}

/// What is done to a text before it is cut. Where the file does not say whether letters become small, the pieces do: one with a
/// capital letter would never be found otherwise.
pub(super) fn normalizer<'a>(metadata: &Metadata, mut pieces: impl Iterator<Item = &'a str>) -> Result<Value> {
    let small = match metadata.bool("tokenizer.ggml.normalizer.lowercase")? {
        Some(small) => small,
        None => !pieces.any(|piece| piece.chars().any(char::is_uppercase)),
    };
    // Without a word about them, accents go where letters become small.
    let bare = metadata.bool("tokenizer.ggml.normalizer.strip_accents")?;
    Ok(json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": true,
        "strip_accents": bare,
        "lowercase": small,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Value as Raw;

    #[test]
    fn pieces_are_those_of_a_vocabulary() {
        for (text, special, want) in [
            ("▁the", false, "the"),
            ("s", false, "##s"),
            ("[CLS]", true, "[CLS]"),
            ("[unused7]", false, "[unused7]"),
            ("▁[unused7]", false, "[unused7]"),
            ("▁[", false, "["),
            ("[", false, "##["),
            ("▁", false, "##▁"),
            ("▁▁", false, "▁"),
        ] {
            assert_eq!(piece(text, special), want, "{text}");
        }
    }

    #[test]
    fn capitals_in_pieces_say_that_letters_stay() {
        let mut said = Metadata::default();
        said.insert("tokenizer.ggml.normalizer.lowercase".into(), Raw::Bool(true))
            .unwrap();
        for (metadata, pieces, want) in [
            (Metadata::default(), ["the", "##s"], true),
            (Metadata::default(), ["The", "##s"], false),
            (said, ["The", "##s"], true),
        ] {
            let found = normalizer(&metadata, pieces.into_iter()).unwrap();
            assert_eq!(found["lowercase"], want, "{pieces:?}");
        }
    }
}
