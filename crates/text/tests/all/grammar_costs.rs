//! What constraints cost with real vocabularies: printed, not asserted.
//!
//! ```sh
//! CACTUS_TOKENIZERS=bundle:folder cargo test --release -p cactus-text --test all grammar_costs -- --ignored --nocapture
//! ```

#![allow(clippy::print_stdout, reason = "counts and figures are what it is for")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Random, load, walk};
use cactus_text::grammar::{Constraint, Grammar, GrammarCompiler};
use serde_json::json;

/// Milliseconds that this thread computed, where the system tells; on a busy machine the clock tells something else.
fn computed_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0f64) / 1e6
}

/// Resident memory in MB, where the system tells.
fn resident_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1e6
}

/// Masks along a text, and how many of its tokens were forced.
fn follow(constraint: &mut Constraint, ids: &[u32], times: &mut [Vec<Duration>; 3]) -> usize {
    let mut words = vec![0; constraint.mask_words()];
    let mut forced_tokens = 0;
    for &id in ids {
        let start = Instant::now();
        let forced = constraint.forced_tokens();
        times[0].push(start.elapsed());
        if forced.is_empty() {
            let start = Instant::now();
            constraint.mask(&mut words).unwrap();
            times[1].push(start.elapsed());
        } else {
            forced_tokens += 1;
        }
        let start = Instant::now();
        assert!(constraint.allows(id).unwrap());
        times[2].push(start.elapsed());
        constraint.commit(id).unwrap();
    }
    forced_tokens
}

#[test]
#[ignore = "a measurement"]
fn costs_of_constraints() {
    let Ok(folders) = std::env::var("CACTUS_TOKENIZERS") else {
        panic!("CACTUS_TOKENIZERS names bundles or folders of tokenizers, with colons between");
    };
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"], "additionalProperties": false},
        "kind": {"enum": ["person", "company", "robot"]}},
        "required": ["name", "age", "email", "tags", "address", "kind"], "additionalProperties": false});
    let text = r#"{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics", "first programmer"], "address": {"street": "12 St James's Square, London", "zip": "12345"}, "kind": "person"}"#;
    for folder in folders.split(':').map(Path::new) {
        let tokenizer = Arc::new(load(folder));
        let (before, start) = (resident_mb(), computed_ms());
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
        println!(
            "{}: {} tokens: tree {:.0} ms, {:.1} MB",
            folder.display(),
            tokenizer.vocab_size(),
            computed_ms() - start,
            resident_mb() - before
        );
        let grammars = [
            ("schema", Grammar::json_schema(schema.clone())),
            ("any object", Grammar::json_schema(json!({"type": "object"}))),
        ];
        for (name, grammar) in grammars {
            let start = Instant::now();
            let mut constraint = compiler.compile(&grammar).unwrap();
            let compiled = start.elapsed();
            let mut words = vec![0; constraint.mask_words()];
            let start = Instant::now();
            constraint.clone().mask(&mut words).unwrap();
            let first = start.elapsed();
            let ids = tokenizer.encode(text, false).unwrap();
            let fresh = constraint.clone();
            let mut times: [Vec<Duration>; 3] = Default::default();
            let forced = follow(&mut constraint, &ids, &mut times);
            let [force, mask, test] = times.map(|mut times| {
                times.sort_unstable();
                let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len().max(1) as f64;
                let at = |share: usize| {
                    times
                        .get(times.len() * share / 100)
                        .map_or(0.0, |t| t.as_secs_f64() * 1e6)
                };
                format!(
                    "mean {mean:.0} us, p99 {:.0}, most {:.0}",
                    at(99),
                    at(100).max(times.last().map_or(0.0, |t| t.as_secs_f64() * 1e6))
                )
            });
            println!(
                "  {name}: compiled in {compiled:?}, first mask {first:?}, {} tokens, {forced} at forced places",
                ids.len()
            );
            println!("    mask {mask}; test of one {test}; forced {force}");
            let mut random = Random(5);
            let ended = (0..20)
                .filter(|_| walk(&fresh, &tokenizer, &mut random, 60).is_some())
                .count();
            println!("    {ended} of 20 random walks of 60 tokens ended");
        }
    }
}
