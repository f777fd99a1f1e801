//! Positions on the axes of a rotary embedding, in sequences with pictures: Wang et al. 2024, section 2.1 (M-RoPE).
//!
//! Purpose: from a position in a sequence to those on three axes (time, row, column). Text counts on all of them at once. A picture
//! begins where the text before it ends; its rows stand in a grid, at one time; and the text behind goes on behind the largest of its
//! positions, so that a picture takes as much room as its longer side. A sequence remembers its pictures' places and shapes, from which every
//! position follows, whatever calls they came in.
//!
//! It deliberately knows nothing of keys and values, which stay where the sequence has them: what sees what is decided by those positions.

use crate::{Error, MediaRows, Result};

/// Axes of positions.
pub(crate) const AXES: usize = 3;

/// Rows of a picture in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Position of the first of them.
    first: usize,
    /// How many have come so far.
    count: usize,
    /// In a row of its grid.
    columns: usize,
    /// What the first has on every axis.
    at: usize,
}

impl Span {
    fn end(&self) -> usize {
        self.first + self.count
    }

    /// What a text right behind has on every axis.
    fn behind(&self) -> usize {
        self.at + self.count.div_ceil(self.columns).max(self.count.min(self.columns))
    }
}

/// The pictures of a sequence, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grids(Vec<Span>);

impl Grids {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The axes of position `position` of the sequence.
    pub(crate) fn axes(&self, position: usize) -> [u32; AXES] {
        let before = self.0.partition_point(|span| span.first <= position);
        let Some(span) = before.checked_sub(1).and_then(|i| self.0.get(i)) else {
            return [position as u32; AXES];
        };
        match position.checked_sub(span.end()) {
            Some(text) => [(span.behind() + text) as u32; AXES],
            None => {
                let n = position - span.first;
                [span.at, span.at + n / span.columns, span.at + n % span.columns].map(|p| p as u32)
            }
        }
    }

    /// Takes in that `media`, with `count` rows, stands at position `first` of a sequence that ends there.
    pub(crate) fn add(&mut self, media: &MediaRows<'_>, first: usize, count: usize) -> Result<()> {
        let Some(columns) = media.columns.filter(|_| count > 0) else {
            return Ok(());
        };
        let continues = |last: &&mut Span| {
            media.skipped > 0 && (last.end(), last.count, last.columns) == (first, media.skipped, columns.get())
        };
        if let Some(last) = self.0.last_mut().filter(continues) {
            last.count += count;
            return Ok(());
        }
        if media.skipped > 0 {
            return Err(Error::Argument(format!(
                "rows of a picture stand in a grid, so those from row {} on must follow the ones before",
                media.skipped
            )));
        }
        let [at, ..] = self.axes(first);
        self.0.push(Span {
            first,
            count,
            columns: columns.get(),
            at: at as usize,
        });
        Ok(())
    }

    /// Forgets what stands from position `keep` on.
    pub(crate) fn truncate(&mut self, keep: usize) {
        while let Some(last) = self.0.last_mut().filter(|last| last.end() > keep) {
            last.count = keep.saturating_sub(last.first);
            if last.count > 0 {
                return;
            }
            self.0.pop();
        }
    }

    /// What of it stands in the positions before `end`, from `start` on.
    pub(crate) fn within(&self, start: usize, end: usize) -> Grids {
        let mut found = Grids(self.0.iter().filter(|span| span.end() > start).copied().collect());
        found.truncate(end);
        found
    }

    /// Takes in what stands in the positions that follow.
    pub(crate) fn join(&mut self, next: &Grids) {
        for span in &next.0 {
            match self.0.last_mut().filter(|last| last.first == span.first) {
                Some(last) => *last = *span,
                None => self.0.push(*span),
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn rows(skipped: usize, columns: usize) -> MediaRows<'static> {
        MediaRows {
            at: 0,
            rows: &[],
            skipped,
            see_each_other: true,
            columns: NonZeroUsize::new(columns),
        }
    }

    /// Two texts of 3, a picture of 2 x 4 behind the first and one of 3 x 1 behind the second, and text.
    fn two() -> Grids {
        let mut grids = Grids::default();
        grids.add(&rows(0, 4), 3, 8).unwrap();
        grids.add(&rows(0, 1), 14, 3).unwrap();
        grids
    }

    /// As `get_rope_index` of transformers 5.23 has it.
    #[test]
    fn pictures_take_as_much_room_as_their_longer_side() {
        let found: Vec<[u32; 3]> = (0..19).map(|p| two().axes(p)).collect();
        let text = |from: u32, n: u32| (from..from + n).map(|p| [p; 3]);
        let mut want: Vec<[u32; 3]> = text(0, 3).collect();
        want.extend((0..8).map(|i| [3, 3 + i / 4, 3 + i % 4]));
        want.extend(text(7, 3));
        want.extend((0..3).map(|i| [10, 10 + i, 10]));
        want.extend(text(13, 2));
        assert_eq!(found, want);
    }

    #[test]
    fn calls_may_end_within_a_picture() {
        let whole = two();
        for cut in 1..8 {
            let mut grids = Grids::default();
            grids.add(&rows(0, 4), 3, cut).unwrap();
            assert!(grids.add(&rows(cut, 3), 3 + cut, 8 - cut).is_err());
            assert!(grids.add(&rows(cut + 1, 4), 3 + cut, 8 - cut).is_err());
            grids.add(&rows(cut, 4), 3 + cut, 8 - cut).unwrap();
            grids.add(&rows(0, 1), 14, 3).unwrap();
            assert_eq!(grids, whole, "{cut}");
        }
        assert!(Grids::default().add(&rows(2, 4), 3, 1).is_err());
        let mut grids = Grids::default();
        grids.add(&rows(5, 0), 3, 1).unwrap();
        assert!(grids.is_empty());
    }

    #[test]
    fn what_is_cut_or_joined_is_what_was_there() {
        for keep in 0..20 {
            let mut cut = two();
            cut.truncate(keep);
            for p in 0..keep {
                assert_eq!(cut.axes(p), two().axes(p), "{keep} {p}");
            }
            let mut again = Grids::default();
            again.join(&two().within(0, keep));
            again.join(&two().within(keep, 20));
            assert_eq!(again, two(), "{keep}");
        }
    }
}
