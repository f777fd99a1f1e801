//! Our byte pair encoding and its tables, with the `tokenizers` crate as the oracle.

use std::path::{Path, PathBuf};

use cactus_text::{Tokenizer, TokenizerSource};
use proptest::prelude::*;

/// The tokenizers of the golden files, and those that `scripts/fetch_tokenizers.py` fetched.
fn files() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/tokenizers");
    let mut folders: Vec<PathBuf> = ["tiny_byte_level", "tiny_pieces", "tiny_metaspace"]
        .iter()
        .map(|name| golden.join(name))
        .collect();
    let fetched = std::env::var_os("CACTUS_TEST_MODELS").map(|models| PathBuf::from(models).join("tokenizers"));
    if let Some(entries) = fetched.and_then(|folder| std::fs::read_dir(folder).ok()) {
        folders.extend(entries.flatten().map(|entry| entry.path()));
    }
    let files = folders.into_iter().map(|folder| folder.join("tokenizer.json"));
    files.filter(|file| file.exists()).collect()
}

struct Pair {
    name: String,
    ours: Tokenizer,
    oracle: tokenizers::Tokenizer,
}

impl Pair {
    fn load(file: &Path) -> Option<Self> {
        let bytes = std::fs::read(file).unwrap();
        let read = Tokenizer::from_bytes(&bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let source = TokenizerSource {
            tables: Some(read.tables()?.clone()),
            ..TokenizerSource::default()
        };
        let mut oracle = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
        oracle.with_padding(None).with_truncation(None).unwrap();
        Some(Self {
            name: file.display().to_string(),
            ours: Tokenizer::from_source(source).unwrap(),
            oracle,
        })
    }

    fn compare(&self, text: &str) {
        for special in [false, true] {
            let expected = self.oracle.encode_fast(text, special).unwrap();
            let found = self.ours.encode(text, special).unwrap();
            assert_eq!(found, expected.get_ids(), "{}: {text:?}", self.name);
        }
    }
}

fn pairs() -> Vec<Pair> {
    let pairs: Vec<Pair> = files().iter().filter_map(|file| Pair::load(file)).collect();
    assert!(pairs.len() >= 2, "two of the golden tokenizers are BPE");
    pairs
}

#[test]
fn vocabularies_are_the_same() {
    for pair in pairs() {
        let vocabulary = pair.oracle.get_vocab(true);
        for (token, &id) in &vocabulary {
            assert_eq!(pair.ours.token_id(token), Some(id), "{}: {token:?}", pair.name);
            assert_eq!(
                pair.ours.token_text(id),
                pair.oracle.id_to_token(id),
                "{}: {id}",
                pair.name
            );
        }
        let ids = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        assert_eq!(pair.ours.vocab_size(), ids, "{}", pair.name);
    }
}

#[test]
fn tokens_beside_one_another_are_merged_the_same() {
    for pair in pairs() {
        let count = pair.ours.vocab_size() as u32;
        let mut text = String::new();
        for step in 0..4000u32 {
            // A walk that meets all lengths and scripts of the vocabulary.
            let id = step.wrapping_mul(2_654_435_761) % count;
            text.extend(pair.ours.token_text(id));
            if step % 7 == 0 {
                pair.compare(&text);
                text.clear();
            }
        }
    }
}

#[test]
fn long_words_are_merged_the_same() {
    for pair in pairs() {
        for unit in ["a", "ab", " ", "the", "é", "日本", "😀", "=-"] {
            pair.compare(&unit.repeat(1500));
        }
    }
}

#[test]
fn random_texts_have_the_same_ids() {
    let pairs = pairs();
    let text = prop_oneof![
        any::<String>(),
        "[a-zA-Z ,.'\n]{0,200}",
        "(the|and|ing|[ -~]{1,8}| |\n|\t|é|ß|語|😀|<\\|im_end\\|>|</s>){0,60}",
    ];
    proptest!(ProptestConfig::with_cases(300), |(text in text)| {
        pairs.iter().for_each(|pair| pair.compare(&text));
    });
}
