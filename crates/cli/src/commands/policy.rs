//! The file of `--policy`: bits by name of the weight.
//!
//! ```toml
//! bits = 3
//! embeddings = 4
//!
//! [[rule]]
//! pattern = "*.down_proj.*"
//! bits = 4
//! ```

use crate::args::WidthArgs;
use anyhow::{Context, Result, bail};
use cactus_passes::{Bits, Policy};
use serde::Deserialize;

/// What a file says; its `bits` and `embeddings` may be absent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Asked {
    pub(crate) bits: Option<Bits>,
    pub(crate) embeddings: Option<Bits>,
    pub(crate) rules: Vec<(String, Bits)>,
}

/// What the file of `--policy` says, and `--embedding-bits` above it; nothing where there are neither.
pub(crate) fn read(args: &WidthArgs) -> Result<Asked> {
    let mut asked = Asked::default();
    if let Some(file) = &args.policy {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("`--policy`: cannot read `{}`", file.display()))?;
        asked = parse(&text).with_context(|| format!("`{}` is not a policy", file.display()))?;
    }
    asked.embeddings = args.embedding_bits.or(asked.embeddings);
    Ok(asked)
}

/// What a conversion stores, in words: `8 bits (embeddings: 4 bits, *.down_proj.*: 3 bits)`, or so many `average` bits.
pub(crate) fn in_words(policy: &Policy, average: Option<f64>) -> String {
    const SHOWN: usize = 4;
    let embeddings = policy.embeddings.map(|bits| ("embeddings", bits));
    let rules = policy.rules.iter().map(|(pattern, bits)| (pattern.as_str(), *bits));
    let exceptions: Vec<_> = embeddings.into_iter().chain(rules).collect();
    let shown = exceptions
        .iter()
        .take(SHOWN)
        .map(|(what, bits)| format!("{what}: {}", plural(*bits)));
    let mut shown: Vec<String> = shown.collect();
    if exceptions.len() > SHOWN {
        shown.push(format!("{} more rules", exceptions.len() - SHOWN));
    }
    let all = average.map_or_else(|| plural(policy.bits), |average| format!("{average} bits on average"));
    match shown.is_empty() {
        true => all,
        false => format!("{all} ({})", shown.join(", ")),
    }
}

fn plural(bits: Bits) -> String {
    match bits.number() {
        1 => "1 bit".to_owned(),
        number => format!("{number} bits"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bits: Option<u32>,
    embeddings: Option<u32>,
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    pattern: String,
    bits: u32,
}

fn parse(text: &str) -> Result<Asked> {
    let file: File = toml::from_str(text)?;
    let rules = file.rule.into_iter().map(|rule| {
        let bits = precision(rule.bits).with_context(|| format!("in the rule `{}`", rule.pattern))?;
        Ok((rule.pattern, bits))
    });
    Ok(Asked {
        bits: file.bits.map(precision).transpose().context("in `bits`")?,
        embeddings: file.embeddings.map(precision).transpose().context("in `embeddings`")?,
        rules: rules.collect::<Result<_>>()?,
    })
}

fn precision(bits: u32) -> Result<Bits> {
    match Bits::from_number(bits) {
        Some(bits) => Ok(bits),
        None => bail!("expected 1, 2, 3, 4, 5, 6, 8, 16 or 32 bits, found {bits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_exceptions_after_the_rule() {
        let rules = |count: usize| {
            let rules = (0..count).map(|i| (format!("*.{i}"), Bits::Four)).collect();
            Policy {
                rules,
                ..Policy::uniform(Bits::Eight)
            }
        };
        assert_eq!(in_words(&rules(0), None), "8 bits");
        assert_eq!(in_words(&Policy::uniform(Bits::One), None), "1 bit");
        assert_eq!(in_words(&rules(1), None), "8 bits (*.0: 4 bits)");
        let embeddings = Policy {
            embeddings: Some(Bits::Six),
            ..rules(1)
        };
        assert_eq!(
            in_words(&embeddings, Some(3.2)),
            "3.2 bits on average (embeddings: 6 bits, *.0: 4 bits)"
        );
        let many = "8 bits (*.0: 4 bits, *.1: 4 bits, *.2: 4 bits, *.3: 4 bits, 2 more rules)";
        assert_eq!(in_words(&rules(6), None), many);
    }

    #[test]
    fn files_and_what_is_wrong_with_them() {
        let asked = parse("bits = 3\nembeddings = 8\n[[rule]]\npattern = \"*.down*\"\nbits = 4\n").unwrap();
        assert_eq!((asked.bits, asked.embeddings), (Some(Bits::Three), Some(Bits::Eight)));
        assert_eq!(asked.rules, [("*.down*".to_owned(), Bits::Four)]);
        assert_eq!(parse("").unwrap(), Asked::default());
        for (text, expected) in [
            ("bits = 7", "found 7"),
            ("bit = 4", "bit"),
            ("[[rule]]\npattern = \"x\"\nbits = 7", "rule `x`"),
            ("[[rule]]\nbits = 4", "pattern"),
            ("bits = ", "expected"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
