//! Words that may be said, as a tree of tokens: where a text goes along a branch, its next token gets a bonus.
//!
//! The bonus of the token at depth *d* is `BOOST * (1 + ln d)`, in natural logarithms of probabilities. Where a text leaves a branch before
//! its end, what it got there is taken away again. A word is spelled with the space before it, so a branch begins where a word does.
//!
//! Pure functions of tokens and logits, for every model that does not read the words as text.

use crate::{Error, Result};
use std::collections::BTreeMap;

/// What the first token of a word gets. Twice as much begins to write words that nobody said.
const BOOST: f64 = 2.0;
/// Most words: longer lists do harm.
pub(crate) const MOST: usize = 200;

/// The words of one recording.
#[derive(Clone, Debug)]
pub(crate) struct Hotwords {
    /// The first is the root.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: BTreeMap<u32, usize>,
    bonus: f64,
    /// Whether a word ends here.
    is_whole: bool,
}

/// How far a text has come in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Along {
    node: usize,
    /// What it loses where it leaves the branch.
    lent: f64,
}

impl Default for Hotwords {
    fn default() -> Hotwords {
        Hotwords {
            nodes: vec![Node::default()],
        }
    }
}

impl Along {
    /// Whether a text that goes another way loses something.
    pub(crate) fn is_open(self) -> bool {
        self.lent > 0.0
    }
}

impl Hotwords {
    /// The words of `options` that are no blanks; `tokens` spells one.
    ///
    /// # Errors
    /// Too many words, or one that `tokens` cannot spell.
    pub(crate) fn new(words: &[String], tokens: &dyn Fn(&str) -> Option<Vec<u32>>) -> Result<Hotwords> {
        if words.len() > MOST {
            let found = words.len();
            return Err(Error::Option(format!(
                "there should be at most {MOST} hotwords, found {found}; fewer of them also help more"
            )));
        }
        let mut hotwords = Hotwords::default();
        for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let Some(tokens) = tokens(word) else {
                return Err(Error::Option(format!(
                    "the hotword `{word}` has characters that this model, or the language it is told, does not write; leave it out"
                )));
            };
            hotwords.add(&tokens);
        }
        Ok(hotwords)
    }

    fn add(&mut self, tokens: &[u32]) {
        let mut at = 0;
        for (before, &token) in tokens.iter().enumerate() {
            let new = self.nodes.len();
            let next = *self.nodes[at].children.entry(token).or_insert(new);
            if next == new {
                self.nodes.push(Node {
                    bonus: BOOST * (1.0 + libm::log((before + 1) as f64)),
                    ..Node::default()
                });
            }
            at = next;
        }
        self.nodes[at].is_whole |= at > 0;
    }

    /// Where a text comes by writing `token`, and by how much that raises its logarithm of probability.
    pub(crate) fn step(&self, along: Along, token: u32) -> (Along, f64) {
        let (child, lost) = match self.nodes[along.node].children.get(&token) {
            Some(child) => (Some(child), 0.0),
            None => (self.nodes[0].children.get(&token), along.lent),
        };
        let Some(&node) = child else {
            return (Along::default(), -lost);
        };
        let Node { bonus, is_whole, .. } = self.nodes[node];
        let lent = match is_whole {
            true => 0.0,
            false => along.lent - lost + bonus,
        };
        (Along { node, lent }, bonus - lost)
    }

    /// Where a text comes by writing `tokens`.
    pub(crate) fn follow(&self, along: Along, tokens: &[u32]) -> Along {
        tokens.iter().fold(along, |along, &token| self.step(along, token).0)
    }

    /// What a text that ends here loses.
    pub(crate) fn end(&self, along: Along) -> f64 {
        along.lent
    }

    /// The tokens that get a bonus.
    pub(crate) fn next(&self, along: Along) -> impl Iterator<Item = u32> {
        let roots = match along.node {
            0 => None,
            _ => Some(self.nodes[0].children.keys()),
        };
        let own = self.nodes[along.node].children.keys();
        own.chain(roots.into_iter().flatten()).copied()
    }

    /// Whether `token` goes on along the branch.
    pub(crate) fn goes_on(&self, along: Along, token: u32) -> bool {
        self.nodes[along.node].children.contains_key(&token)
    }

    /// What `token` gets, without what leaving a branch costs.
    fn bonus(&self, along: Along, token: u32) -> f64 {
        let here = self.nodes[along.node].children.get(&token);
        let child = here.or_else(|| self.nodes[0].children.get(&token));
        child.map_or(0.0, |&child| self.nodes[child].bonus)
    }

    /// The logits to draw a token from; `None` where they are those without hotwords. What was taken before stays, so leaving a branch
    /// costs nothing.
    pub(crate) fn raised(&self, along: Along, logits: &[f32]) -> Option<Vec<f32>> {
        self.next(along).next()?;
        let mut raised = logits.to_vec();
        for token in self.next(along) {
            if let (Some(new), Some(&old)) = (raised.get_mut(token as usize), logits.get(token as usize)) {
                *new = (f64::from(old) + self.bonus(along, token)) as f32;
            }
        }
        Some(raised)
    }

    /// The token to take where `likeliest` is that without hotwords. What was taken before stays, so leaving a branch costs nothing.
    pub(crate) fn choose(&self, along: Along, likeliest: u32, logits: &[f32]) -> u32 {
        let worth = |token: u32| {
            let logit = logits.get(token as usize);
            logit.map(|&logit| f64::from(logit) + self.bonus(along, token))
        };
        let mut best = (worth(likeliest), likeliest);
        for token in self.next(along) {
            let found = worth(token);
            if found > best.0 {
                best = (found, token);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters are tokens: `a` is 0.
    fn hotwords(words: &[&str]) -> Hotwords {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let letters = |word: &str| word.bytes().map(|b| b.checked_sub(b'a').map(u32::from)).collect();
        Hotwords::new(&words, &letters).unwrap()
    }

    fn worth(hotwords: &Hotwords, text: &str) -> f64 {
        let (mut along, mut sum) = (Along::default(), 0.0);
        for b in text.bytes() {
            let change;
            (along, change) = hotwords.step(along, u32::from(b - b'a'));
            sum += change;
        }
        sum - hotwords.end(along)
    }

    #[test]
    fn words_get_a_bonus_and_what_only_begins_like_them_does_not() {
        let found = hotwords(&["abc", " de ", ""]);
        let whole = 2.0 * (3.0 + 2f64.ln() + 3f64.ln());
        for (text, expected) in [
            ("abc", whole),
            ("xabcx", whole),
            ("abcabc", 2.0 * whole),
            ("ab", 0.0),
            ("abx", 0.0),
            ("xyz", 0.0),
            // The branch is left for another.
            ("abde", 2.0 * (2.0 + 2f64.ln())),
            ("aabc", whole),
        ] {
            assert!(
                (worth(&found, text) - expected).abs() < 1e-12,
                "{text}: {}",
                worth(&found, text)
            );
        }
        // A word within another keeps its bonus.
        let found = hotwords(&["ab", "abcd"]);
        assert!((worth(&found, "abcx") - worth(&found, "ab")).abs() < 1e-12);
        assert!(worth(&found, "abcd") > worth(&found, "ab"));
        assert_eq!(worth(&hotwords(&[]), "abc"), 0.0);
    }

    #[test]
    fn a_near_tie_is_decided_and_nothing_else() {
        let found = hotwords(&["ab", "cd"]);
        let along = |text: &str| {
            text.bytes()
                .fold(Along::default(), |at, b| found.step(at, u32::from(b - b'a')).0)
        };
        let mut logits = [0.0f32; 26];
        (logits[0], logits[24]) = (3.5, 5.0);
        assert_eq!(found.choose(along(""), 24, &logits), 0, "less than the bonus behind");
        logits[0] = 2.9;
        assert_eq!(found.choose(along(""), 24, &logits), 24, "more than the bonus behind");
        // Deeper, the bonus is larger.
        (logits[0], logits[1]) = (0.0, 1.7);
        assert_eq!(found.choose(along("a"), 24, &logits), 1);
        assert_eq!(found.choose(along("x"), 24, &logits), 24);
        assert_eq!(hotwords(&[]).choose(Along::default(), 24, &logits), 24);
        assert_eq!(found.choose(Along::default(), 3, &[]), 3, "no logits");
    }

    #[test]
    fn logits_to_draw_from_are_raised_along_the_words() {
        let found = hotwords(&["ab", "cd"]);
        let logits = [0.0f32, 1.0, 2.0, 3.0, f32::MIN];
        let raised = |text: &str| {
            let tokens: Vec<u32> = text.bytes().map(|b| u32::from(b - b'a')).collect();
            found.raised(found.follow(Along::default(), &tokens), &logits)
        };
        assert_eq!(raised("").unwrap(), [2.0, 1.0, 4.0, 3.0, f32::MIN]);
        let second = (2.0 * (1.0 + 2f64.ln())) as f32;
        assert_eq!(raised("xa").unwrap(), [2.0, 1.0 + second, 4.0, 3.0, f32::MIN]);
        assert_eq!(hotwords(&[]).raised(Along::default(), &logits), None);
        assert!(found.follow(Along::default(), &[0]).is_open());
        assert!(!found.follow(Along::default(), &[0, 1]).is_open());
    }

    #[test]
    fn lists_that_are_too_long_and_words_that_cannot_be_written_are_refused() {
        let spell = |word: &str| word.is_ascii().then(|| vec![1]);
        let many = vec!["a".to_owned(); MOST + 1];
        let error = Hotwords::new(&many, &spell).unwrap_err().to_string();
        assert!(error.contains("at most 200 hotwords, found 201"), "{error}");
        let error = Hotwords::new(&["ü".to_owned()], &spell).unwrap_err().to_string();
        assert!(error.contains("`ü`"), "{error}");
        // No word is no tokens: nothing is whole at the root.
        let none = Hotwords::new(&["x".to_owned()], &|_| Some(Vec::new())).unwrap();
        assert!(!none.nodes[0].is_whole && none.next(Along::default()).next().is_none());
    }
}
