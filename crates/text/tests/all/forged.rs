//! Texts that spell special tokens: [`Tokenizer::encode_as_text`] must not give their ids.

use std::path::{Path, PathBuf};

use cactus_text::{Tokenizer, TokenizerSource};
use proptest::prelude::*;

const UNKNOWN: [&str; 2] = ["<unk>", "[UNK]"];

struct Case {
    name: String,
    /// From the JSON, and from tables where the kind of vocabulary has them.
    ours: Vec<Tokenizer>,
    oracle: tokenizers::Tokenizer,
    /// Special tokens, but for the one that stands for unknown characters.
    special: Vec<(u32, String)>,
}

fn cases() -> Vec<Case> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/tokenizers");
    let tiny = ["tiny_byte_level", "tiny_pieces", "tiny_metaspace", "tiny_word_piece"];
    let mut folders: Vec<PathBuf> = tiny.iter().map(|name| golden.join(name)).collect();
    let fetched = std::env::var_os("CACTUS_TEST_MODELS").map(|models| PathBuf::from(models).join("tokenizers"));
    if let Some(entries) = fetched.and_then(|folder| std::fs::read_dir(folder).ok()) {
        folders.extend(entries.flatten().map(|entry| entry.path()));
    }
    let files = folders.into_iter().map(|folder| folder.join("tokenizer.json"));
    files.filter(|file| file.exists()).map(|file| case(&file)).collect()
}

fn case(file: &Path) -> Case {
    let bytes = std::fs::read(file).unwrap();
    let read = Tokenizer::from_bytes(&bytes).unwrap();
    let tables = read.tables().cloned();
    let mapped = tables.map(|tables| {
        let source = TokenizerSource {
            tables: Some(tables),
            ..TokenizerSource::default()
        };
        Tokenizer::from_source(source).unwrap()
    });
    let special = (0..read.vocab_size() as u32).filter(|&id| read.is_special(id));
    let special = special.map(|id| (id, read.token_text(id).unwrap()));
    let special: Vec<_> = special.filter(|(_, text)| !UNKNOWN.contains(&text.as_str())).collect();
    assert!(!special.is_empty(), "{}", file.display());
    let mut oracle = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
    oracle.with_padding(None).with_truncation(None).unwrap();
    oracle.set_encode_special_tokens(true);
    Case {
        name: file.display().to_string(),
        ours: [read].into_iter().chain(mapped).collect(),
        oracle,
        special,
    }
}

impl Case {
    fn has_special(&self, ids: &[u32]) -> bool {
        self.special.iter().any(|(id, _)| ids.contains(id))
    }

    fn check(&self, text: &str) {
        let expected = self.oracle.encode_fast(text, false).unwrap();
        for ours in &self.ours {
            let found = ours.encode_as_text(text, false).unwrap();
            assert!(!self.has_special(&found), "{}: {text:?} gives {found:?}", self.name);
            // Where the vocabulary has the special token as a piece too, the oracle takes it.
            if !self.has_special(expected.get_ids()) {
                assert_eq!(found, expected.get_ids(), "{}: {text:?}", self.name);
            }
        }
    }
}

#[test]
fn spelled_special_tokens_stay_text() {
    for case in cases() {
        let few = case.special.iter().take(20).chain(case.special.iter().rev().take(5));
        for (id, token) in few {
            for text in [
                token.clone(),
                format!("a{token}b"),
                format!(" {token} {token}{token}\n"),
                format!("<{token}"),
                token.repeat(500),
            ] {
                case.check(&text);
                let ours = &case.ours[0];
                let parsed = ours.encode(&text, false).unwrap();
                assert!(parsed.contains(id), "{}: {text:?}", case.name);
                let ids = ours.encode_as_text(&text, false).unwrap();
                let unknown = UNKNOWN.iter().filter_map(|unknown| ours.token_id(unknown));
                // Nothing is lost where all characters are in the vocabulary; word pieces join with spaces.
                if !unknown.into_iter().any(|id| ids.contains(&id)) && !case.name.contains("word_piece") {
                    let back = ours.decode(&ids, false);
                    assert!(back.contains(token.trim()), "{}: {text:?} gives {back:?}", case.name);
                }
            }
        }
    }
}

#[test]
fn text_as_text_still_begins_with_the_begin_token() {
    for case in cases() {
        let ours = &case.ours[0];
        let (plain, parsed) = (ours.encode_as_text("a b", true), ours.encode("a b", true));
        assert_eq!(plain.unwrap(), parsed.unwrap(), "{}", case.name);
    }
}

/// Control symbols of such vocabularies are pieces like any other, and the best of all by their score of 0.
#[test]
fn special_pieces_of_a_unigram_vocabulary_are_spelled() {
    let json = r#"{"added_tokens": [
        {"id": 0, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
        {"id": 1, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
        {"id": 2, "content": "|", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0], ["</s>", 0], ["|", 0],
        ["<", -5], ["/", -5], ["s", -5], [">", -5], ["s>", -6], ["a", -5]]}}"#;
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    let spelled = |text: &str| tokenizer.encode_as_text(text, false).unwrap();
    assert_eq!(tokenizer.encode("a</s>", false).unwrap(), [8, 1]);
    assert_eq!(spelled("a</s>"), [8, 3, 4, 7]);
    assert_eq!(spelled("</s></s>"), [3, 4, 7, 3, 4, 7]);
    assert_eq!(spelled(&"</s>".repeat(10_000)).len(), 30_000);
    // What is unknown may become the token for it.
    assert_eq!(spelled("aé"), [8, 0]);
    let error = tokenizer.encode_as_text("a|", false).unwrap_err().to_string();
    assert!(error.contains("`|` is a special token of one character"), "{error}");
}

#[test]
fn random_texts_with_special_tokens_have_the_ids_of_the_oracle() {
    let cases = cases();
    let text = "(the|ing|[ -~]{1,6}| |\n|é|語|<\\|im_end\\|>|<\\|im_start\\|>|</s>|<s>|<eos>|<end_of_turn>|\\[SEP\\]|<\\|){0,40}";
    proptest!(ProptestConfig::with_cases(50), |(text in text)| {
        cases.iter().for_each(|case| case.check(&text));
    });
}
