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

use anyhow::{Context, Result, bail};
use cactus_passes::{Bits, Policy};
use serde::Deserialize;

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

/// The policy that `text` says; `bits` where it says nothing of the bits of all.
pub(crate) fn parse(text: &str, bits: Bits) -> Result<Policy> {
    let file: File = toml::from_str(text)?;
    let mut policy = Policy::uniform(match file.bits {
        Some(bits) => precision(bits).context("`bits`")?,
        None => bits,
    });
    policy.embeddings = file.embeddings.map(precision).transpose().context("`embeddings`")?;
    for rule in file.rule {
        let bits = precision(rule.bits).with_context(|| format!("rule `{}`", rule.pattern))?;
        policy.rules.push((rule.pattern, bits));
    }
    Ok(policy)
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
    fn files_and_what_is_wrong_with_them() {
        let policy = parse(
            "bits = 3\nembeddings = 8\n[[rule]]\npattern = \"*.down*\"\nbits = 4\n",
            Bits::Eight,
        )
        .unwrap();
        assert_eq!((policy.bits, policy.embeddings), (Bits::Three, Some(Bits::Eight)));
        assert_eq!(policy.rules, [("*.down*".to_owned(), Bits::Four)]);
        assert_eq!(parse("", Bits::Two).unwrap(), Policy::uniform(Bits::Two));
        for (text, expected) in [
            ("bits = 7", "found 7"),
            ("bit = 4", "bit"),
            ("[[rule]]\npattern = \"x\"\nbits = 7", "rule `x`"),
            ("[[rule]]\nbits = 4", "pattern"),
            ("bits = ", "expected"),
        ] {
            let error = format!("{:#}", parse(text, Bits::Four).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
