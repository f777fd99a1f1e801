//! Texts to tokens: what a tokenizer puts around one text or two, and texts that are too long.

use crate::{Error, Result};
use cactus_text::Tokenizer;

/// What a tokenizer puts around a text.
#[derive(Debug)]
pub(crate) struct Around {
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Around {
    /// Finds it out.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Around> {
        let (whole, plain) = (tokenizer.encode("a", true)?, tokenizer.encode("a", false)?);
        let Some(at) = place(&whole, &plain, 0) else {
            let what = "the tokenizer spells a text otherwise where it adds special tokens";
            return Err(Error::Model(what.into()));
        };
        Ok(Around {
            before: whole[..at].to_vec(),
            after: whole[at + plain.len()..].to_vec(),
        })
    }

    /// How many tokens stand before those of a text.
    pub(crate) fn start(&self) -> usize {
        self.before.len()
    }

    /// The tokens of a text, at most `limit`: a text that has more is an error, or loses its end.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        index: usize,
        limit: usize,
        truncate: bool,
    ) -> Result<Vec<u32>> {
        let tokens = tokenizer.encode(text, true)?;
        if tokens.len() <= limit {
            return Ok(tokens);
        }
        let room = limit.checked_sub(self.before.len() + self.after.len());
        let (Some(room), true) = (room, truncate) else {
            return Err(Error::TooLong {
                index,
                tokens: tokens.len(),
                limit,
            });
        };
        let plain = tokenizer.encode(text, false)?;
        Ok([&self.before, &plain[..room.min(plain.len())], &self.after].concat())
    }
}

/// A text of two: its tokens, and which of the two each is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    pub(crate) tokens: Vec<u32>,
    pub(crate) types: Vec<u32>,
}

impl Typed {
    fn push(&mut self, tokens: &[u32], types: &[u32]) {
        self.tokens.extend(tokens);
        self.types.extend(types);
    }
}

/// What a tokenizer puts around and between two texts.
#[derive(Debug)]
pub(crate) struct Joint {
    /// Before the first, between the two, behind the second: tokens with their types.
    marks: [(Vec<u32>, Vec<u32>); 3],
    /// Types of the two texts' own tokens.
    own: [u32; 2],
}

impl Joint {
    /// Finds it out.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Joint> {
        let (tokens, types) = tokenizer.encode_pair("a", "b")?;
        let (first, second) = (tokenizer.encode("a", false)?, tokenizer.encode("b", false)?);
        let missing = || Error::Model("the tokenizer does not join two texts".into());
        let at = place(&tokens, &first, 0).ok_or_else(missing)?;
        let behind = at + first.len();
        let next = place(&tokens, &second, behind).ok_or_else(missing)?;
        let end = next + second.len();
        let part = |range: std::ops::Range<usize>| (tokens[range.clone()].to_vec(), types[range].to_vec());
        Ok(Joint {
            marks: [part(0..at), part(behind..next), part(end..tokens.len())],
            own: [types[at], types[next]],
        })
    }

    /// Tokens that are of no text.
    fn marks(&self) -> usize {
        self.marks.iter().map(|(tokens, _)| tokens.len()).sum()
    }

    /// The text of both, at most `limit` tokens: more are an error, or `second` loses its end.
    pub(crate) fn join(
        &self,
        first: &[u32],
        mut second: &[u32],
        index: usize,
        limit: usize,
        truncate: bool,
    ) -> Result<Typed> {
        let all = self.marks() + first.len() + second.len();
        if all > limit {
            let taken = self.marks() + first.len();
            if taken >= limit {
                return Err(Error::LongQuery { tokens: taken, limit });
            }
            if !truncate {
                return Err(Error::TooLong {
                    index,
                    tokens: all,
                    limit,
                });
            }
            let room = limit - taken;
            second = &second[..room.min(second.len())];
        }
        let [before, between, behind] = &self.marks;
        let mut out = Typed::default();
        out.push(&before.0, &before.1);
        out.push(first, &vec![self.own[0]; first.len()]);
        out.push(&between.0, &between.1);
        out.push(second, &vec![self.own[1]; second.len()]);
        out.push(&behind.0, &behind.1);
        Ok(out)
    }
}

/// Where `part` stands in `whole`, from `from` on.
fn place(whole: &[u32], part: &[u32], from: usize) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    let found = whole.get(from..)?.windows(part.len()).position(|w| w == part)?;
    Some(from + found)
}
