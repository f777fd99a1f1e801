//! What the tests of grammars and tools share.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;
use std::sync::Arc;

use cactus_text::grammar::{Constraint, Grammar, GrammarCompiler};
use cactus_text::{Tokenizer, TokenizerSource, TokenizerTables};

/// A byte-level tokenizer of some hundred tokens.
pub fn tiny() -> Arc<Tokenizer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/tokenizers/tiny_byte_level");
    Arc::new(Tokenizer::from_dir(&folder).unwrap())
}

/// The tokenizer of a bundle or model folder.
pub fn load(folder: &Path) -> Tokenizer {
    let Ok(tables) = std::fs::read(folder.join("tokenizer.tables")) else {
        return Tokenizer::from_dir(folder).unwrap();
    };
    let config = std::fs::read(folder.join("tokenizer_config.json")).ok();
    let generation = std::fs::read(folder.join("generation_config.json")).ok();
    let source = TokenizerSource {
        tables: Some(TokenizerTables::new(tables)),
        tokenizer_config: config.as_deref(),
        generation_config: generation.as_deref(),
        ..TokenizerSource::default()
    };
    Tokenizer::from_source(source).unwrap()
}

pub fn compile(grammar: &Grammar) -> Constraint {
    let compiler = GrammarCompiler::new(tiny()).unwrap();
    compiler.compile(grammar).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether a constraint takes a text and may end after it.
pub fn takes(constraint: &Constraint, tokenizer: &Tokenizer, text: &str) -> bool {
    let mut constraint = constraint.clone();
    let ids = tokenizer.encode(text, false).unwrap();
    ids.iter().all(|&id| constraint.commit(id).is_ok()) && constraint.is_accepting()
}

/// A small generator of the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Draws tokens by the mask until the text ends; `None` if it does not within `most` tokens.
pub fn walk(start: &Constraint, tokenizer: &Tokenizer, random: &mut Random, most: usize) -> Option<String> {
    let mut constraint = start.clone();
    let mut words = vec![0u32; constraint.mask_words()];
    let mut ids = Vec::new();
    for step in 0..most {
        if constraint.is_finished() {
            break;
        }
        // Ends become likelier, so that most walks come to one.
        if constraint.is_accepting() && random.below(most) < 8 + step {
            break;
        }
        let forced = constraint.forced_tokens();
        constraint.mask(&mut words).unwrap();
        let mut allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|&id| words[id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        assert!(
            !allowed.is_empty(),
            "no token may follow {:?}",
            tokenizer.decode(&ids, false)
        );
        if let Some(&first) = forced.first() {
            assert_eq!(allowed, [first], "forced tokens and the mask differ");
        }
        allowed.retain(|id| !tokenizer.stop_ids().contains(id));
        // Quotes and brackets close what a walk would go on with for ever.
        let closing: Vec<u32> = allowed
            .iter()
            .copied()
            .filter(|&id| {
                tokenizer
                    .token_bytes(id)
                    .is_some_and(|b| b.len() == 1 && b"\"]}, ".contains(&b[0]))
            })
            .collect();
        let from = if !closing.is_empty() && random.below(3) == 0 {
            &closing
        } else {
            &allowed
        };
        let Some(&id) = from.get(random.below(from.len())) else {
            break;
        };
        assert!(
            constraint.allows(id).unwrap(),
            "the mask allows {id}, the test does not"
        );
        constraint.commit(id).unwrap();
        ids.push(id);
    }
    constraint.is_accepting().then(|| tokenizer.decode(&ids, false))
}
