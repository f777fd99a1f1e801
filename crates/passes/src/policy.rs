//! Which precision each weight is asked to have: one for all, another for embeddings, exceptions by name.

use crate::precision::{Bits, Storage};
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
    /// What stands before a weight's name where rules are compared: its component and a dot, in a bundle of several.
    pub prefix: String,
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
            prefix: String::new(),
        }
    }

    /// The fewest bits that any matrix may have.
    #[must_use]
    pub fn least(&self) -> Bits {
        let rules = self.rules.iter().map(|(_, bits)| *bits);
        let all = rules.chain(self.exact.values().copied()).chain(self.embeddings);
        all.fold(self.bits, Bits::min)
    }

    /// Whether a rule holds for the weight `name`.
    #[must_use]
    pub fn has_rule(&self, name: &str) -> bool {
        self.rule(name).is_some()
    }

    /// The first rule that fits the weight `name`. One matrix of several weights, `a.q+k.weight`, is fitted as a whole and
    /// by the name of each of them, `a.q.weight`.
    fn rule(&self, name: &str) -> Option<&(String, Bits)> {
        let names = names_of(&format!("{}{name}", self.prefix));
        self.rules
            .iter()
            .find(|(pattern, _)| names.iter().any(|n| fits(pattern, n)))
    }

    /// What is wrong with rules that change nothing, in sentences; `weights` are all that a bundle stores, by the name that
    /// rules are compared with (`prefix` is ignored).
    #[must_use]
    pub fn idle_rules(&self, weights: &[(String, Storage)]) -> Vec<String> {
        let named: Vec<(Vec<String>, bool)> = weights
            .iter()
            .map(|(name, storage)| (names_of(name), *storage != Storage::Plain))
            .collect();
        let takes = |pattern: &str, names: &[String]| names.iter().any(|n| fits(pattern, n));
        let mut out = Vec::new();
        for (i, (pattern, _)) in self.rules.iter().enumerate() {
            let fitting: Vec<_> = named.iter().filter(|(names, _)| takes(pattern, names)).collect();
            let matrices: Vec<_> = fitting.iter().filter(|(_, matrix)| *matrix).collect();
            let example =
                |of: Option<&(Vec<String>, bool)>| of.map_or("none at all", |(names, _)| &names[0]).to_owned();
            if fitting.is_empty() {
                let some = example(named.iter().find(|(_, matrix)| *matrix));
                out.push(format!(
                    "the rule `{pattern}` matches no weight; the names are like `{some}`"
                ));
            } else if matrices.is_empty() {
                let some = example(fitting.first().copied());
                out.push(format!(
                    "the rule `{pattern}` matches only weights that are never quantized (norms, biases and the like), such as `{some}`"
                ));
            } else if matrices
                .iter()
                .all(|(names, _)| self.rules[..i].iter().any(|(before, _)| takes(before, names)))
            {
                out.push(format!(
                    "the rule `{pattern}` has no effect: earlier rules match all of its weights"
                ));
            }
        }
        out
    }

    /// The bits of the weight `name`, and why; a clause.
    #[must_use]
    pub fn bits_of(&self, name: &str, embedding: bool) -> (Bits, String) {
        if let Some(&bits) = self.exact.get(name) {
            return (bits, "chosen by sensitivity".into());
        }
        if let Some((pattern, bits)) = self.rule(name) {
            return (*bits, format!("by the rule `{pattern}`"));
        }
        match (embedding, self.embeddings) {
            (true, Some(bits)) => (bits, "as asked for embeddings".into()),
            (true, None) if self.bits < EMBEDDING_FLOOR => (EMBEDDING_FLOOR, "the minimum for embeddings".into()),
            _ => (self.bits, "as asked".into()),
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

/// What rules may call the weight `name`: itself and, of weights joined to one matrix (`a.q+k+v.weight`), each of them.
fn names_of(name: &str) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    let (Some(first), Some(last)) = (name.find('+'), name.rfind('+')) else {
        return names;
    };
    // What differs stands between the dots around the `+`.
    let begin = name[..first].rfind('.').map_or(0, |at| at + 1);
    let end = name[last..].find('.').map_or(name.len(), |at| last + at);
    let parts = name[begin..end].split('+');
    names.extend(parts.map(|part| format!("{}{part}{}", &name[..begin], &name[end..])));
    names
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
    fn rules_fit_parts_of_joined_weights_and_names_with_a_component() {
        let mut policy = Policy::uniform(Bits::Two);
        policy.rules = vec![
            ("*.k_proj.weight".into(), Bits::Three),
            ("l.0.q_proj*".into(), Bits::Four),
            ("vision.*".into(), Bits::Eight),
        ];
        for (prefix, name, expected) in [
            ("", "l.0.q_proj+k_proj+v_proj.weight", Bits::Three),
            ("", "l.0.q_proj+v_proj.weight", Bits::Four),
            ("", "l.0.v_proj+u_proj.weight", Bits::Two),
            ("", "l.0.v_proj+k_proj.bias", Bits::Two),
            ("vision.", "l.0.q_proj.weight", Bits::Eight),
            ("text.", "l.0.q_proj.weight", Bits::Two),
        ] {
            policy.prefix = prefix.into();
            assert_eq!(policy.bits_of(name, false).0, expected, "{prefix}{name}");
        }
        assert_eq!(names_of("w1+w3"), ["w1+w3", "w1", "w3"]);
    }

    #[test]
    fn rules_that_change_nothing_are_named() {
        let mut policy = Policy::uniform(Bits::Two);
        let rules = ["*.q.*", "*norm*", "*.nothing.*", "l.0.q*", "*.k.weight"];
        policy.rules = rules.map(|r| (r.to_owned(), Bits::Four)).to_vec();
        let weights = [
            ("l.0.norm.weight", Storage::Plain),
            ("l.0.q.weight", Storage::Codebook(4)),
            ("l.0.v+k.weight", Storage::F16),
        ];
        let found = policy.idle_rules(&weights.map(|(n, s)| (n.to_owned(), s)));
        let expected = [
            ("`*norm*`", "`l.0.norm.weight`"),
            ("`*.nothing.*`", "`l.0.q.weight`"),
            ("`l.0.q*`", "has no effect"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (text, (rule, more)) in found.iter().zip(expected) {
            assert!(text.contains(rule) && text.contains(more), "{text}");
        }
        assert_eq!(policy.idle_rules(&[]).len(), rules.len());
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

    #[test]
    fn least_is_that_of_all() {
        let mut policy = Policy::uniform(Bits::Eight);
        assert_eq!(policy.least(), Bits::Eight);
        policy.rules = vec![("x".into(), Bits::Sixteen), ("y".into(), Bits::Six)];
        assert_eq!(policy.least(), Bits::Six);
        policy.embeddings = Some(Bits::Four);
        assert_eq!(policy.least(), Bits::Four);
        policy.exact.insert("z".into(), Bits::One);
        assert_eq!(policy.least(), Bits::One);
    }
}
