//! Which rows have a word, and how often.
//!
//! The rows of a word ascend. Each is `2 * gap`, or `2 * gap + 1` followed by how often the word is there less 2, where it is
//! there more than once; `gap` is the row less the row before and 1, or the first row itself. Numbers have seven bits in a
//! byte, the low ones first, and a set high bit says that more follow.

/// Appends the row of a word to its postings. `next` is the row after the one before, 0 at first.
pub(crate) fn push(bytes: &mut Vec<u8>, next: &mut u32, row: u32, times: u32) {
    let gap = u64::from(row - *next) << 1;
    if times > 1 {
        number(bytes, gap | 1);
        number(bytes, u64::from(times - 2));
    } else {
        number(bytes, gap);
    }
    *next = row + 1;
}

fn number(bytes: &mut Vec<u8>, mut n: u64) {
    while n >= 128 {
        bytes.push(n as u8 | 128);
        n >>= 7;
    }
    bytes.push(n as u8);
}

/// The postings of a word where they lie: rows below `rows`, and how often each has the word. Ends at the first that cannot
/// be read, and then says so.
#[derive(Clone, Debug)]
pub(crate) struct Postings<'a> {
    bytes: &'a [u8],
    next: u64,
    rows: u64,
    damaged: bool,
}

impl<'a> Postings<'a> {
    pub(crate) fn new(bytes: &'a [u8], rows: usize) -> Postings<'a> {
        Postings {
            bytes,
            next: 0,
            rows: rows as u64,
            damaged: false,
        }
    }

    /// Whether it ended at something that could not be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..42).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            n |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(n);
            }
        }
        None
    }

    fn read(&mut self) -> Option<(u32, u32)> {
        let gap = self.number()?;
        let times = match gap & 1 {
            0 => 1,
            _ => u32::try_from(self.number()?).ok()?.checked_add(2)?,
        };
        let row = self.next + (gap >> 1);
        if row >= self.rows {
            return None;
        }
        self.next = row + 1;
        Some((u32::try_from(row).ok()?, times))
    }
}

impl Iterator for Postings<'_> {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        if self.bytes.is_empty() {
            return None;
        }
        let found = self.read();
        if found.is_none() {
            self.damaged = true;
            self.bytes = &[];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postings_come_back_and_hostile_ones_end() {
        let rows = [(0u32, 1u32), (1, 5), (2, 2), (400, 1), (70_000, 300), (u32::MAX - 1, 1)];
        let (mut bytes, mut next) = (Vec::new(), 0);
        for (row, times) in rows {
            push(&mut bytes, &mut next, row, times);
        }
        let mut found = Postings::new(&bytes, u32::MAX as usize);
        assert!(found.by_ref().eq(rows) && !found.is_damaged());
        for cut in 1..bytes.len() {
            let mut found = Postings::new(&bytes[..cut], u32::MAX as usize);
            assert!(found.by_ref().zip(rows).all(|(a, b)| a == b));
        }
        let mut few = Postings::new(&bytes, 401);
        assert!(few.by_ref().eq(rows[..4].iter().copied()) && few.is_damaged());
        for hostile in [&[255u8; 20][..], &[128, 128], &[1, 255, 255, 255, 255, 127]] {
            let mut found = Postings::new(hostile, 10);
            assert!(found.by_ref().count() == 0 && found.is_damaged());
        }
    }
}
