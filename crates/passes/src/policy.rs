//! Which precision each weight is asked to have: one for all, another for embeddings, exceptions by name.

use crate::precision::Bits;
use std::collections::BTreeMap;

/// Embeddings keep at least these bits unless something else is asked for: a wrong row is wrong wherever its token stands,
/// and a table that is also the head of the model decides every token.
const EMBEDDING_FLOOR: Bits = Bits::Four;

/// Precision by weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of every matrix that nothing else is said of.
    pub bits: Bits,
    /// Of embedding tables, those shared with the head among them; where absent, `bits` but at least 4.
    pub embeddings: Option<Bits>,
    /// By pattern of the weight's name, `*` for any characters and `?` for one; the first that fits holds.
    pub rules: Vec<(String, Bits)>,
    /// By name, above everything else.
    pub exact: BTreeMap<String, Bits>,
}

impl Policy {
    /// `bits` for every matrix; embeddings at least 4.
    #[must_use]
    pub fn uniform(bits: Bits) -> Self {
        Self {
            bits,
            embeddings: None,
            rules: Vec::new(),
            exact: BTreeMap::new(),
        }
    }

    /// Whether a rule holds for the weight `name`.
    #[must_use]
    pub fn has_rule(&self, name: &str) -> bool {
        self.rules.iter().any(|(pattern, _)| fits(pattern, name))
    }

    /// The bits of the weight `name`, and why; a clause.
    #[must_use]
    pub fn bits_of(&self, name: &str, embedding: bool) -> (Bits, String) {
        if let Some(&bits) = self.exact.get(name) {
            return (bits, "by its sensitivity".into());
        }
        if let Some((pattern, bits)) = self.rules.iter().find(|(pattern, _)| fits(pattern, name)) {
            return (*bits, format!("by the rule `{pattern}`"));
        }
        match (embedding, self.embeddings) {
            (true, Some(bits)) => (bits, "asked for embeddings".into()),
            (true, None) if self.bits < EMBEDDING_FLOOR => (EMBEDDING_FLOOR, "the least for embeddings".into()),
            _ => (self.bits, "asked for".into()),
        }
    }
}

/// The bits of everything that has no bits of its own, then the exceptions: `4`, or `2, embeddings 4, *.down* 8`.
impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.bits.number())?;
        if let Some(bits) = self.embeddings {
            write!(f, ", embeddings {}", bits.number())?;
        }
        for (pattern, bits) in &self.rules {
            write!(f, ", {pattern} {}", bits.number())?;
        }
        if !self.exact.is_empty() {
            write!(f, ", {} weights by sensitivity", self.exact.len())?;
        }
        Ok(())
    }
}

/// Whether `name` fits `pattern`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the latest `*` stands and what it has taken up to.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "a.b", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("layers.?.mlp.*", "layers.3.mlp.down", true),
            ("layers.?.mlp.*", "layers.13.mlp.down", false),
            ("*.down*", "layers.13.mlp.down_proj", true),
            ("*a*b*c", "xaxbxbxc", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_most_special_word_holds() {
        let mut policy = Policy::uniform(Bits::Two);
        assert_eq!(policy.bits_of("x", false).0, Bits::Two);
        assert_eq!(policy.bits_of("x", true).0, Bits::Four);
        policy.embeddings = Some(Bits::One);
        assert_eq!(policy.bits_of("x", true).0, Bits::One);
        policy.rules = vec![("x*".into(), Bits::Three), ("*".into(), Bits::Eight)];
        assert_eq!(policy.bits_of("xy", true).0, Bits::Three);
        assert_eq!(policy.bits_of("yx", true).0, Bits::Eight);
        policy.exact.insert("xy".into(), Bits::Sixteen);
        assert_eq!(policy.bits_of("xy", true).0, Bits::Sixteen);
    }
}
