//! Files that somebody has damaged, or written to do harm: errors, and never a panic.

use cactus_hybrid::policy::Policy;
use cactus_hybrid::record::Ring;
use cactus_hybrid::redact::{Redactor, Rules};
use cactus_hybrid::score::Section;
use proptest::prelude::*;

fn example() -> &'static str {
    let documentation = include_str!("../../../../docs/reference/policy.md");
    let (_, rest) = documentation.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

/// A text with some parts replaced.
fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    let parts = prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            0..12usize,
            "[ -~\n]{0,6}|1e999|-1|9{30}|\"|\\PC",
        ),
        1..4,
    );
    parts.prop_map(move |parts| {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, length, new) in parts {
            let at = at.index(chars.len() + 1);
            let end = (at + length).min(chars.len());
            chars.splice(at..end, new.chars());
        }
        chars.into_iter().collect()
    })
}

const SECTION: &str = r#"{"version":1,"key":{"bundle":"b","template":"t","sampler":"s"},"task":"x","cases":5,"combiner":
{"mean":[0,0,0,0,0,0,0,0,0,0],"scale":[1,1,1,1,1,1,1,1,1,1],"weight":[1,0,0,0,0,0,0,0,0,0],"bias":2.0},"calibrator":
{"kind":"isotonic","from":[-1.0,0.5],"probability":[0.25,0.75]},"certified":null}"#;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn damaged_policy_is_read_or_refused_with_a_line(text in damaged(example())) {
        if let Err(error) = Policy::from_toml(&text) {
            prop_assert!((1..=text.lines().count() + 1).contains(&error.line), "{}", error);
            prop_assert!(!error.what.is_empty());
        }
    }

    #[test]
    fn damaged_section_is_refused_or_gives_probabilities(text in damaged(SECTION), logprob in any::<f64>()) {
        if let Ok(section) = Section::from_json(text.as_bytes()) {
            let mut signals = cactus_hybrid::score::Signals::default();
            let signal = cactus_hybrid::score::TokenSignal { logprob, margin: 1.0, gap: 0.0, entropy: 1.0, value: true };
            signals.push(signal);
            let confidence = section.confidence(&signals);
            prop_assert!(confidence.is_none_or(|p| (0.0..=1.0).contains(&p)), "{:?}", confidence);
        }
    }

    #[test]
    fn any_lines_are_records_or_skipped(text in "(\\PC{0,40}\n){0,5}") {
        let (ring, others) = Ring::from_lines(&text, 10);
        prop_assert!(ring.records().count() + others <= text.lines().count());
    }

    #[test]
    fn any_json_is_restored_to_what_it_was(text in "[\\[{][\"a-z0-9@.:, \\[\\]{}+-]{0,60}", number in any::<f64>()) {
        let value = serde_json::from_str(&text).unwrap_or_else(|_| serde_json::json!({"lat": number, "x": [text]}));
        let mut redactor = Redactor::new(Rules::default());
        let mut there = value.clone();
        redactor.redact_json(&mut there).unwrap();
        redactor.restore_json(&mut there);
        prop_assert_eq!(there, value);
    }
}

#[test]
fn undamaged_ones_are_read() {
    Policy::from_toml(example()).unwrap();
    Section::from_json(SECTION.as_bytes()).unwrap();
}
