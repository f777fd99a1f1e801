//! Which of the words that a target has heard in a piece belong to which of its segments.

use super::align::{Pair, align};
use super::{Piece, Segment, Word};
use std::collections::BTreeMap;

/// Of the words that were heard in a piece, those of each of its segments, in order, with times within it. What is like a word of
/// another segment, which the margins hold, belongs to nobody here: times alone do not tell, as models differ by some tenths of a second.
#[must_use]
pub fn share(segments: &[Segment], piece: &Piece, heard: &[Word]) -> BTreeMap<u64, Vec<Word>> {
    let timed = heard.iter().any(|word| word.end_ms > 0);
    let inside = |word: &Word| (piece.from_ms..=piece.to_ms).contains(&word.start_ms.midpoint(word.end_ms));
    let (mut ours, mut owners) = (Vec::new(), Vec::new());
    for segment in segments {
        for word in segment.words.iter().filter(|word| inside(word)) {
            ours.push(word.clone());
            owners.push(segment.id);
        }
    }
    let theirs: Vec<&Word> = heard.iter().collect();
    let pairs = align(&ours, &theirs, timed);
    // Behind which of our words each of theirs stands, and which it is like.
    let mut placed: Vec<(&Word, Option<usize>, usize)> = Vec::new();
    let mut next = 0;
    for pair in &pairs {
        match pair {
            Pair::Ours(_) => next += 1,
            Pair::Both(_, theirs) => {
                placed.push((theirs, Some(next), next + 1));
                next += 1;
            }
            Pair::Theirs(theirs) => placed.push((theirs, None, next)),
        }
    }
    let mut shares: BTreeMap<u64, Vec<Word>> = piece.segments.iter().map(|id| (*id, Vec::new())).collect();
    for (word, like, next) in placed {
        let owner = match like {
            Some(at) => owners.get(at).copied(),
            None => of_nobody(segments, piece, word, timed, &owners, next),
        };
        if let Some((id, share)) = owner.and_then(|id| Some((id, shares.get_mut(&id)?))) {
            let mut word = word.clone();
            if let (true, Some(segment)) = (timed, segments.iter().find(|segment| segment.id == id)) {
                let end = segment.end_ms.max(segment.start_ms);
                word.start_ms = word.start_ms.clamp(segment.start_ms, end);
                word.end_ms = word.end_ms.clamp(word.start_ms, end);
            }
            share.push(word);
        }
    }
    shares
}

/// Whose a word is that is like none of ours: by its time, or else its neighbours'.
fn of_nobody(
    segments: &[Segment],
    piece: &Piece,
    word: &Word,
    timed: bool,
    owners: &[u64],
    next: usize,
) -> Option<u64> {
    let middle = word.start_ms.midpoint(word.end_ms);
    let mut at_that_time = segments
        .iter()
        .filter(|segment| timed && (segment.start_ms..=segment.end_ms).contains(&middle));
    if let Some(segment) = at_that_time.next() {
        return Some(segment.id);
    }
    let before = next.checked_sub(1).and_then(|at| owners.get(at)).copied();
    let neighbours = [before, owners.get(next).copied()];
    match neighbours.iter().flatten().next() {
        None => piece.segments.first().copied(),
        Some(_) => neighbours.into_iter().flatten().find(|id| piece.segments.contains(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &[(&str, u64, u64)]) -> Vec<Word> {
        let word = |&(text, start_ms, end_ms): &(&str, u64, u64)| Word {
            text: text.to_owned(),
            start_ms,
            end_ms,
            confidence: None,
        };
        of.iter().map(word).collect()
    }

    fn segment(id: u64, of: &[(&str, u64, u64)]) -> Segment {
        Segment {
            id,
            revision: 0,
            start_ms: of[0].1,
            end_ms: of[of.len() - 1].2,
            speech: true,
            logprob: None,
            words: words(of),
            amended: false,
        }
    }

    fn shown(shares: &BTreeMap<u64, Vec<Word>>) -> Vec<(u64, String)> {
        let text = |words: &Vec<Word>| words.iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join(" ");
        shares.iter().map(|(id, words)| (*id, text(words))).collect()
    }

    #[test]
    fn words_go_to_the_segment_whose_they_are_and_the_neighbours_keep_theirs() {
        let all = [
            segment(1, &[("do", 0, 300), ("for", 300, 600), ("you", 600, 1000)]),
            segment(2, &[("ask", 1000, 1400), ("watt", 1400, 1800)]),
            segment(3, &[("you", 1900, 2200), ("can", 2200, 2500), ("do", 2500, 3000)]),
        ];
        let piece = Piece {
            start_ms: 1000,
            end_ms: 1800,
            from_ms: 700,
            to_ms: 2100,
            segments: vec![2],
        };
        // The target begins the word a little early, in the time of the neighbour, and hears both neighbours' words.
        let heard = words(&[
            ("you,", 700, 800),
            ("ask", 800, 1150),
            ("what", 1150, 1750),
            ("you", 1800, 2100),
        ]);
        let shares = share(&all, &piece, &heard);
        assert_eq!(shown(&shares), [(2, "ask what".to_owned())]);
        let times: Vec<_> = shares[&2].iter().map(|w| (w.start_ms, w.end_ms)).collect();
        assert_eq!(times, [(1000, 1150), (1150, 1750)]);
        // Without times the order tells.
        let untimed: Vec<Word> = words(&[("you", 0, 0), ("ask", 0, 0), ("what", 0, 0), ("you", 0, 0)]);
        assert_eq!(shown(&share(&all, &piece, &untimed)), [(2, "ask what".to_owned())]);
    }

    #[test]
    fn words_that_are_new_go_by_their_time_or_their_neighbours() {
        let all = [
            segment(1, &[("a", 0, 400), ("b", 400, 900)]),
            segment(2, &[("c", 1000, 1400), ("d", 1400, 2000)]),
        ];
        let piece = Piece {
            start_ms: 0,
            end_ms: 2000,
            from_ms: 0,
            to_ms: 2300,
            segments: vec![1, 2],
        };
        let heard = words(&[
            ("a", 0, 400),
            ("b", 400, 800),
            ("x", 1000, 1010),
            ("c", 1020, 1400),
            ("d", 1400, 2000),
            ("y", 2050, 2290),
        ]);
        assert_eq!(
            shown(&share(&all, &piece, &heard)),
            [(1, "a b".to_owned()), (2, "x c d y".to_owned())]
        );
        // Nothing to compare with: all is the first one's.
        let wordless = [Segment {
            words: Vec::new(),
            ..all[0].clone()
        }];
        assert_eq!(
            shown(&share(
                &wordless,
                &Piece {
                    segments: vec![1],
                    ..piece
                },
                &words(&[("p", 0, 0), ("q", 0, 0)])
            )),
            [(1, "p q".to_owned())]
        );
    }
}
