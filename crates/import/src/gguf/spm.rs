//! Merges of a SentencePiece vocabulary.
//!
//! SentencePiece's BPE has no list of merges: of all neighbors whose union is a piece, it joins those whose union has
//! the best score, leftmost first. The equivalent list, which is also what `transformers` derives, holds every split
//! of every piece into two pieces, best score first.

use std::collections::HashMap;

/// Longer pieces take no part in merging, which bounds the work on a hostile vocabulary. SentencePiece's own limit is
/// 16 characters; runs of white space in known vocabularies reach 31.
const MAX_PIECE_BYTES: usize = 512;

/// A piece that may be split and joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) score: f32,
}

/// The merges in order: by falling score of the union, then longer left parts, then longer right parts.
///
/// Longer left parts first makes a run of equal scores (as white space has in Llama's vocabulary) grow from the left,
/// as SentencePiece does.
pub(super) fn merges<'a>(pieces: &[Piece<'a>]) -> Vec<(&'a str, &'a str)> {
    let known: HashMap<&str, usize> = pieces.iter().enumerate().map(|(i, p)| (p.text, i)).collect();
    let mut found = Vec::new();
    for piece in pieces.iter().filter(|p| p.text.len() <= MAX_PIECE_BYTES) {
        let mut splits = Vec::new();
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if let (Some(l), Some(r)) = (known.get(left), known.get(right)) {
                splits.push((*l, *r, left, right));
            }
        }
        splits.sort_unstable();
        found.extend(splits.into_iter().map(|(_, _, l, r)| (piece.score, l, r)));
    }
    let chars = |text: &str| std::cmp::Reverse(text.chars().count());
    // Stable, so that equal keys keep the order of the vocabulary.
    found.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| (chars(a.1), chars(a.2)).cmp(&(chars(b.1), chars(b.2))))
    });
    found.into_iter().map(|(_, l, r)| (l, r)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'a>(rows: &[(&'a str, f32)]) -> Vec<Piece<'a>> {
        rows.iter().map(|&(text, score)| Piece { text, score }).collect()
    }

    #[test]
    fn merges_hold_every_split_by_score() {
        let pieces = pieces(&[
            ("abc", -3.0),
            ("ab", -1.0),
            ("bc", -2.0),
            ("a", -9.0),
            ("b", -9.0),
            ("c", -9.0),
        ]);
        assert_eq!(merges(&pieces), [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")]);
    }

    #[test]
    fn merges_of_equal_scores_grow_from_the_left() {
        let pieces = pieces(&[("▁▁", 0.0), ("▁▁▁", 0.0), ("▁", -1.0)]);
        assert_eq!(merges(&pieces), [("▁▁", "▁"), ("▁", "▁▁"), ("▁", "▁")]);
    }

    #[test]
    fn merges_skip_long_pieces() {
        let long = "a".repeat(MAX_PIECE_BYTES + 1);
        let most = "a".repeat(MAX_PIECE_BYTES);
        let pieces = pieces(&[(&long, 0.0), (&most, 0.0), ("a", 0.0)]);
        assert!(merges(&pieces).is_empty());
    }
}
