//! The tables of a BPE tokenizer as one run of bytes: made once, when a model is converted, and mapped ever after.
//!
//! A vocabulary of 262,144 tokens with 514,906 merges takes the `tokenizers` crate most of a second and 100 MB to read from
//! JSON, at every start. These tables hold the same, ready to be searched in place: opening them costs nothing that
//! grows with the vocabulary. `docs/reference/format.md` describes every byte.
//!
//! The bytes are untrusted and are not read through when they are opened. So every access is checked, and a table that
//! contradicts itself gives wrong ids or "not there", never a panic or a loop without end.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// First bytes of the tables.
const MAGIC: &[u8; 4] = b"CTOK";
/// Version of the tables that is written and read.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Bytes of a merge: the token on the right, the rank, the token that both become.
const MERGE_BYTES: usize = 12;
/// Set in the offset of an id that has no token.
const ABSENT: u32 = 1 << 31;
/// Ids may leave gaps, but not so many that a small file makes large tables.
const MAX_GAPS: usize = 1 << 16;

/// Bytes of tokenizer tables, mapped or in memory.
#[derive(Clone)]
pub struct TokenizerTables(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl TokenizerTables {
    /// Tables in `bytes`, such as a mapped file. They are looked at when a tokenizer is loaded with them.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
    }

    /// The bytes, as they are stored.
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl std::fmt::Debug for TokenizerTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenizerTables")
            .field("bytes", &self.bytes().len())
            .finish()
    }
}

/// What tables are made from.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<(String, u32)>,
    /// Pairs of tokens that become one, the most important first.
    pub(super) merges: Vec<(String, String)>,
    /// What the right token of a merge begins with and the merged token lacks.
    pub(super) continuing_prefix: String,
}

impl Vocabulary {
    /// Writes the tables; `settings` is carried along.
    ///
    /// # Errors
    /// Two tokens with one id or one spelling, a merge that makes no token, ids with wide gaps.
    pub(super) fn write(&self, settings: &[u8]) -> Result<TokenizerTables, String> {
        let mut by_id: Vec<(u32, &str)> = self.tokens.iter().map(|(token, id)| (*id, token.as_str())).collect();
        by_id.sort_unstable();
        let ids = by_id.last().map_or(0, |(id, _)| *id as usize + 1);
        if ids > by_id.len() + MAX_GAPS {
            return Err(format!("the highest id is {}, with {} tokens", ids - 1, by_id.len()));
        }
        if let Some(twice) = by_id.windows(2).find(|w| w[0].0 == w[1].0) {
            let (id, first, second) = (twice[0].0, twice[0].1, twice[1].1);
            return Err(format!("tokens `{first}` and `{second}` have the same id {id}"));
        }

        let mut offsets = Vec::with_capacity(ids + 1);
        let mut spellings = Vec::new();
        for &(id, token) in &by_id {
            let start = small(spellings.len())?;
            offsets.resize(id as usize, start | ABSENT);
            offsets.push(start);
            spellings.extend_from_slice(token.as_bytes());
        }
        offsets.push(small(spellings.len())?);

        // One slot at least stays empty, where a search ends.
        let count = (by_id.len() * 3 / 2 + 1).next_power_of_two();
        let mut slots = vec![0u32; if by_id.is_empty() { 0 } else { count }];
        for &(id, token) in &by_id {
            let mut at = slot(token, slots.len());
            while slots[at] != 0 {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = id + 1;
        }

        let find = |token: &str| {
            let mut at = slot(token, slots.len().max(1));
            while let Some(&found) = slots.get(at).filter(|&&found| found != 0) {
                let index = by_id.binary_search_by_key(&(found - 1), |(id, _)| *id).ok()?;
                if by_id[index].1 == token {
                    return Some(found - 1);
                }
                at = (at + 1) & (slots.len() - 1);
            }
            None
        };
        if let Some((token, _)) = self.tokens.iter().find(|(token, id)| find(token) != Some(*id)) {
            return Err(format!("the token `{token}` occurs twice"));
        }
        let mut merges = Vec::with_capacity(self.merges.len());
        let mut merged = String::new();
        for (rank, (left, right)) in self.merges.iter().enumerate() {
            merged.clear();
            merged.push_str(left);
            let rest = right.strip_prefix(&self.continuing_prefix);
            merged.push_str(rest.unwrap_or(right));
            match (find(left), find(right), rest.and_then(|_| find(&merged))) {
                (Some(l), Some(r), Some(new)) => merges.push([l, r, small(rank)?, new]),
                _ => return Err(format!("the merge of `{left}` and `{right}` does not make a token")),
            }
        }
        // Where a pair is there twice, its last place counts.
        merges.sort_unstable_by_key(|m| (m[0], m[1], std::cmp::Reverse(m[2])));
        merges.dedup_by_key(|m| (m[0], m[1]));
        let mut starts = vec![0u32; ids + 1];
        for m in &merges {
            starts[m[0] as usize + 1] += 1;
        }
        for i in 0..ids {
            starts[i + 1] += starts[i];
        }

        let header = [
            settings.len(),
            by_id.len(),
            ids,
            spellings.len(),
            slots.len(),
            merges.len(),
        ];
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        for size in header {
            out.extend(small(size)?.to_le_bytes());
        }
        put(&mut out, settings.iter().copied());
        put(&mut out, offsets.iter().flat_map(|n| n.to_le_bytes()));
        put(&mut out, spellings);
        put(&mut out, slots.iter().flat_map(|n| n.to_le_bytes()));
        put(&mut out, starts.iter().flat_map(|n| n.to_le_bytes()));
        let rows = merges.iter().flat_map(|m| m[1..].iter());
        put(&mut out, rows.flat_map(|n| n.to_le_bytes()));
        Ok(TokenizerTables::new(out))
    }
}

/// Appends a section; each fills whole words of 8 bytes.
fn put(out: &mut Vec<u8>, bytes: impl IntoIterator<Item = u8>) {
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(8), 0);
}

fn small(n: usize) -> Result<u32, String> {
    u32::try_from(n)
        .ok()
        .filter(|&n| n < ABSENT)
        .ok_or_else(|| format!("{n} bytes or tokens are too many"))
}

/// Where the search for a token begins among `slots` (a power of two).
fn slot(token: &str, slots: usize) -> usize {
    xxh3_64(token.as_bytes()) as usize & (slots - 1)
}

/// Tables opened for searching.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    bytes: TokenizerTables,
    tokens: usize,
    ids: usize,
    slots: usize,
    /// Where the sections begin, in the order of the file, and the end of the last.
    at: [usize; 7],
}

/// What two tokens become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// Merges of lower rank come first.
    pub(super) rank: u32,
    pub(super) id: u32,
}

const SETTINGS: usize = 0;
const OFFSETS: usize = 1;
const SPELLINGS: usize = 2;
const SLOTS: usize = 3;
const STARTS: usize = 4;
const MERGES: usize = 5;

impl Tables {
    /// Checks the header and the sizes.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub(super) fn open(bytes: TokenizerTables) -> Result<Self, String> {
        let all = bytes.bytes();
        let header = all
            .get(..HEADER_BYTES)
            .ok_or_else(|| format!("expected a header of {HEADER_BYTES} bytes, found {} bytes", all.len()))?;
        let word = |i: usize| u32_at(header, i * 4).unwrap_or_default();
        if &header[..4] != MAGIC {
            return Err("the first four bytes are not `CTOK`".to_owned());
        }
        if word(1) != VERSION {
            return Err(format!("expected version {VERSION}, found {}", word(1)));
        }
        let [settings, tokens, ids, spellings, slots, merges] = std::array::from_fn(|i| word(i + 2) as usize);
        if slots != 0 && !slots.is_power_of_two() {
            return Err(format!("expected a power of two of slots, found {slots}"));
        }
        let sizes = [
            settings,
            (ids + 1) * 4,
            spellings,
            slots * 4,
            (ids + 1) * 4,
            merges * MERGE_BYTES,
        ];
        let mut at = [HEADER_BYTES; 7];
        for (i, size) in sizes.into_iter().enumerate() {
            at[i + 1] = at[i] + size.next_multiple_of(8);
        }
        if at[6] != all.len() {
            return Err(format!("expected {} bytes by the header, found {}", at[6], all.len()));
        }
        Ok(Self {
            tokens,
            ids,
            slots,
            at,
            bytes,
        })
    }

    /// The tables' bytes.
    pub(super) fn bytes(&self) -> &TokenizerTables {
        &self.bytes
    }

    /// The settings carried along, padded with zero bytes.
    pub(super) fn settings(&self) -> &[u8] {
        let padded = self.section(SETTINGS);
        let used = padded.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        &padded[..used]
    }

    /// Tokens there are.
    pub(super) fn len(&self) -> usize {
        self.tokens
    }

    /// One more than the highest id.
    pub(super) fn ids(&self) -> usize {
        self.ids
    }

    /// The spelling of an id.
    pub(super) fn spelling(&self, id: u32) -> Option<&str> {
        let offsets = self.section(OFFSETS);
        let at = id as usize * 4;
        // The offset after the last id's is there, that after the next is not.
        let (start, end) = (u32_at(offsets, at)?, u32_at(offsets, at + 4)?);
        if id as usize >= self.ids || start & ABSENT != 0 {
            return None;
        }
        let bytes = self.section(SPELLINGS).get(start as usize..(end & !ABSENT) as usize)?;
        std::str::from_utf8(bytes).ok()
    }

    /// The id of a spelling.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        let slots = self.section(SLOTS);
        let mut at = slot(token, self.slots.max(1));
        for _ in 0..self.slots {
            let id = u32_at(slots, at * 4)?.checked_sub(1)?;
            if self.spelling(id) == Some(token) {
                return Some(id);
            }
            at = (at + 1) & (self.slots - 1);
        }
        None
    }

    /// What two tokens side by side become.
    pub(super) fn merge(&self, left: u32, right: u32) -> Option<Merge> {
        let starts = self.section(STARTS);
        if left as usize >= self.ids {
            return None;
        }
        let (mut low, mut high) = (
            u32_at(starts, left as usize * 4)? as usize,
            u32_at(starts, left as usize * 4 + 4)? as usize,
        );
        let merges = self.section(MERGES);
        while low < high {
            let middle = low.midpoint(high);
            let at = middle * MERGE_BYTES;
            match u32_at(merges, at)?.cmp(&right) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    return Some(Merge {
                        rank: u32_at(merges, at + 4)?,
                        id: u32_at(merges, at + 8)?,
                    });
                }
            }
        }
        None
    }

    fn section(&self, i: usize) -> &[u8] {
        &self.bytes.bytes()[self.at[i]..self.at[i + 1]]
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(tokens: &[(&str, u32)], merges: &[(&str, &str)]) -> Vocabulary {
        Vocabulary {
            tokens: tokens.iter().map(|&(t, id)| (t.to_owned(), id)).collect(),
            merges: merges.iter().map(|&(l, r)| (l.to_owned(), r.to_owned())).collect(),
            continuing_prefix: String::new(),
        }
    }

    #[test]
    fn tables_hold_what_they_were_made_from() {
        let made = vocabulary(
            &[("a", 0), ("b", 1), ("ab", 4), ("", 7), ("abab", 9)],
            &[("a", "b"), ("ab", "ab"), ("a", "b")],
        );
        let tables = Tables::open(made.write(b"{}").unwrap()).unwrap();
        assert_eq!((tables.len(), tables.ids(), tables.settings()), (5, 10, &b"{}"[..]));
        for (token, id) in &made.tokens {
            assert_eq!(tables.id(token), Some(*id));
            assert_eq!(tables.spelling(*id), Some(token.as_str()));
        }
        for id in [2, 3, 5, 6, 8, 10, u32::MAX - 1, u32::MAX] {
            assert_eq!(tables.spelling(id), None, "{id}");
        }
        assert_eq!(tables.id("abc"), None);
        assert_eq!(tables.merge(0, 1), Some(Merge { rank: 2, id: 4 }));
        assert_eq!(tables.merge(4, 4), Some(Merge { rank: 1, id: 9 }));
        for (left, right) in [(1, 0), (0, 0), (9, 9), (10, 0), (u32::MAX, 0)] {
            assert_eq!(tables.merge(left, right), None);
        }
    }

    #[test]
    fn no_tokens_are_a_vocabulary_too() {
        let tables = Tables::open(vocabulary(&[], &[]).write(b"").unwrap()).unwrap();
        assert_eq!(
            (tables.len(), tables.ids(), tables.id("a"), tables.id("")),
            (0, 0, None, None)
        );
        assert_eq!((tables.spelling(0), tables.merge(0, 0)), (None, None));
    }

    #[test]
    fn contradictions_are_errors() {
        for (tokens, merges, expected) in [
            (&[("a", 0), ("b", 0)][..], &[][..], "the same id 0"),
            (&[("a", 0), ("a", 1)], &[], "twice"),
            (&[("a", 0), ("b", 1)], &[("a", "b")], "does not make a token"),
            (&[("a", 0)], &[("a", "c")], "does not make a token"),
            (&[("a", u32::MAX)], &[], "highest id"),
        ] {
            let error = vocabulary(tokens, merges).write(b"").unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_truncation_and_flip_is_an_error_or_harmless() {
        let made = vocabulary(
            &[("a", 0), ("b", 1), ("ab", 2), ("abab", 4)],
            &[("a", "b"), ("ab", "ab")],
        );
        let good = made.write(b"{}").unwrap().bytes().to_vec();
        for length in 0..good.len() {
            assert!(Tables::open(TokenizerTables::new(good[..length].to_vec())).is_err());
        }
        for at in 0..good.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                let Ok(tables) = Tables::open(TokenizerTables::new(bytes)) else {
                    continue;
                };
                let _ = tables.settings();
                for id in 0..8 {
                    let _ = tables.spelling(id);
                    for right in 0..8 {
                        let _ = tables.merge(id, right);
                    }
                }
                for token in ["a", "b", "ab", "abab", "c"] {
                    let _ = tables.id(token);
                }
            }
        }
    }
}
