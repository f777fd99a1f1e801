//! Sets of rows, a bit for each.

/// A set of the rows `0..rows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    rows: usize,
}

impl Bitmap {
    /// No row.
    pub(crate) fn new(rows: usize) -> Bitmap {
        let words = vec![0; rows.div_ceil(64)];
        Bitmap { words, rows }
    }

    /// Every row.
    pub(crate) fn full(rows: usize) -> Bitmap {
        Bitmap::new(rows).not()
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    pub(crate) fn set(&mut self, row: usize) {
        self.words[row / 64] |= 1 << (row % 64);
    }

    pub(crate) fn has(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The rows of the set, ascending.
    pub(crate) fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(64 * i + bit)
            })
        })
    }

    /// Whether no bit is behind the last row.
    pub(crate) fn is_clean(&self) -> bool {
        let last = self.rows % 64;
        last == 0 || self.words.last().is_none_or(|word| word >> last == 0)
    }

    pub(crate) fn and(mut self, other: &Bitmap) -> Bitmap {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
        self
    }

    pub(crate) fn and_not(mut self, other: &Bitmap) -> Bitmap {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        self
    }

    pub(crate) fn or(mut self, other: &Bitmap) -> Bitmap {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
        self
    }

    /// The rows that are not in the set.
    pub(crate) fn not(mut self) -> Bitmap {
        self.words.iter_mut().for_each(|word| *word = !*word);
        if let Some(last) = self.words.last_mut()
            && !self.rows.is_multiple_of(64)
        {
            *last &= (1 << (self.rows % 64)) - 1;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in_and_nothing_behind_the_last_row() {
        for rows in [0, 1, 63, 64, 65, 200] {
            let full = Bitmap::full(rows);
            assert!(full.is_clean() && full.count() == rows);
            assert!(full.ones().eq(0..rows));
            let mut thirds = Bitmap::new(rows);
            (0..rows).step_by(3).for_each(|row| thirds.set(row));
            assert!(thirds.ones().eq((0..rows).step_by(3)));
            assert!((0..rows + 70).all(|row| thirds.has(row) == (row < rows && row % 3 == 0)));
            let rest = thirds.clone().not();
            assert!(rest.is_clean() && rest.count() + thirds.count() == rows);
            assert_eq!(rest.clone().or(&thirds), full);
            assert_eq!(rest.clone().and(&thirds).count(), 0);
            assert_eq!(full.and_not(&thirds), rest);
        }
    }
}
