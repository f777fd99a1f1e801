//! Which pieces of a recording a target hears: those of the segments that are wanted, with margins, cut in pauses.

use super::{Rules, Segment};

/// A piece of a recording, in milliseconds of it. Pieces do not share segments' sound, but for margins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where its segments, or its part of one, begin.
    pub start_ms: u64,
    /// Where they end.
    pub end_ms: u64,
    /// Where the margin before it begins.
    pub from_ms: u64,
    /// Where the margin behind it ends.
    pub to_ms: u64,
    /// The segments, in order. One that is longer than a piece is in several.
    pub segments: Vec<u64>,
}

/// What cannot be cut: a word, or a segment without words.
struct Whole {
    start_ms: u64,
    end_ms: u64,
    segment: u64,
}

/// The pieces of a recording of so many milliseconds for the segments of `wanted`, in order. Neighbours share a piece as far as it may
/// be that long.
#[must_use]
pub fn pieces(segments: &[Segment], wanted: &dyn Fn(&Segment) -> bool, rules: &Rules, recording_ms: u64) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < segments.len() {
        if !wanted(&segments[at]) {
            at += 1;
            continue;
        }
        let run = segments[at..].iter().take_while(|segment| wanted(segment)).count();
        cut(&segments[at..at + run], rules, recording_ms, &mut found);
        at += run;
    }
    found
}

/// Cuts a run of segments into pieces, at the widest pauses of the later half of what fits.
fn cut(run: &[Segment], rules: &Rules, recording_ms: u64, found: &mut Vec<Piece>) {
    let wholes = wholes(run, recording_ms);
    let longest = rules.longest_ms.max(1);
    let (mut first, mut from) = (0, None);
    while let Some(begin) = wholes.get(first) {
        // Only the ends of a run have margins; within it the other piece hears the rest.
        let from_ms = from.unwrap_or_else(|| begin.start_ms.saturating_sub(rules.margin_ms));
        let fits = |whole: &&Whole| whole.end_ms.saturating_add(rules.margin_ms) <= from_ms.saturating_add(longest);
        let count = wholes[first..].iter().take_while(fits).count().max(1);
        let last = first + count - 1;
        let is_end = last + 1 == wholes.len();
        let end = match is_end {
            true => last,
            false => widest_pause(&wholes, first, last, from_ms + longest / 2),
        };
        let end_ms = wholes[end].end_ms;
        let to_ms = match wholes.get(end + 1) {
            None => end_ms.saturating_add(rules.margin_ms),
            Some(next) => end_ms.midpoint(next.start_ms.max(end_ms)),
        };
        let mut segments: Vec<u64> = wholes[first..=end].iter().map(|whole| whole.segment).collect();
        segments.dedup();
        let to_ms = to_ms.min(recording_ms).min(from_ms.saturating_add(longest));
        if from_ms < to_ms {
            found.push(Piece {
                start_ms: begin.start_ms.clamp(from_ms, to_ms),
                end_ms: end_ms.clamp(from_ms, to_ms),
                from_ms,
                to_ms,
                segments,
            });
        }
        from = Some(to_ms);
        first = end + 1;
    }
}

/// Words in order of time, none before the one before, that cover their segments.
fn wholes(run: &[Segment], recording_ms: u64) -> Vec<Whole> {
    let mut wholes: Vec<Whole> = Vec::new();
    let mut push = |start_ms: u64, end_ms: u64, segment| {
        let least = wholes.last().map_or(0, |last| last.end_ms);
        let start_ms = start_ms.max(least).min(recording_ms);
        wholes.push(Whole {
            start_ms,
            end_ms: end_ms.clamp(start_ms, recording_ms),
            segment,
        });
    };
    for segment in run {
        let last = segment.words.len().saturating_sub(1);
        for (at, word) in segment.words.iter().enumerate() {
            let start = if at == 0 {
                word.start_ms.min(segment.start_ms)
            } else {
                word.start_ms
            };
            let end = if at == last {
                word.end_ms.max(segment.end_ms)
            } else {
                word.end_ms
            };
            push(start, end, segment.id);
        }
        if segment.words.is_empty() {
            push(segment.start_ms, segment.end_ms, segment.id);
        }
    }
    wholes
}

/// Behind which of these the pause is the widest, of those that end after `least_ms` where one does; of equals the last.
fn widest_pause(wholes: &[Whole], first: usize, last: usize, least_ms: u64) -> usize {
    let late = (first..=last).find(|&i| wholes[i].end_ms >= least_ms).unwrap_or(first);
    let pause = |i: &usize| wholes[i + 1].start_ms.saturating_sub(wholes[*i].end_ms);
    (late..=last).max_by_key(pause).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::super::Word;
    use super::*;
    use proptest::prelude::*;

    /// Segments of words, as `[(start, end), …]`.
    fn segments(of: &[&[(u64, u64)]]) -> Vec<Segment> {
        let word = |&(start_ms, end_ms): &(u64, u64)| Word {
            text: "a".to_owned(),
            start_ms,
            end_ms,
            confidence: None,
        };
        let segment = |(id, words): (u64, &&[(u64, u64)])| Segment {
            id,
            revision: 0,
            start_ms: words[0].0,
            end_ms: words[words.len() - 1].1,
            speech: true,
            logprob: None,
            words: words.iter().map(word).collect(),
            amended: false,
        };
        (0..).zip(of).map(segment).collect()
    }

    fn shown(found: &[Piece]) -> Vec<(u64, u64, Vec<u64>)> {
        found.iter().map(|p| (p.from_ms, p.to_ms, p.segments.clone())).collect()
    }

    #[test]
    fn only_what_is_wanted_is_heard_with_margins() {
        let all = segments(&[&[(0, 900)], &[(1000, 1900)], &[(2000, 2900)], &[(3000, 4000)]]);
        let rules = Rules::default();
        let of = |wanted: &[u64]| pieces(&all, &|s| wanted.contains(&s.id), &rules, 4100);
        assert_eq!(shown(&of(&[])), []);
        assert_eq!(shown(&of(&[1])), [(700, 2200, vec![1])]);
        assert_eq!(shown(&of(&[1, 2])), [(700, 3200, vec![1, 2])]);
        assert_eq!(shown(&of(&[0, 3])), [(0, 1200, vec![0]), (2700, 4100, vec![3])]);
        let one = &of(&[1])[0];
        assert_eq!((one.start_ms, one.end_ms), (1000, 1900));
    }

    #[test]
    fn long_runs_are_cut_in_their_widest_late_pause() {
        let words: Vec<(u64, u64)> = (0..10)
            .map(|i| (1000 * i, 1000 * i + if i == 6 { 600 } else { 900 }))
            .collect();
        let all = segments(&[&words]);
        let rules = Rules {
            longest_ms: 9000,
            ..Rules::default()
        };
        let found = pieces(&all, &|_| true, &rules, 20_000);
        assert_eq!(shown(&found), [(0, 6800, vec![0]), (6800, 10_200, vec![0])]);
        assert_eq!((found[0].end_ms, found[1].start_ms), (6600, 7000));
        // A word that is longer than a piece is heard as far as it fits.
        let short = Rules {
            longest_ms: 500,
            ..rules
        };
        let found = pieces(&segments(&[&[(0, 900), (2000, 2100)]]), &|_| true, &short, 3000);
        assert_eq!(shown(&found)[0], (0, 500, vec![0]));
    }

    proptest! {
        #[test]
        fn pieces_are_short_apart_and_of_what_is_wanted(
            words in proptest::collection::vec(proptest::collection::vec((0..60_000_u64, 0..60_000_u64), 0..6), 0..6),
            wanted: u8, longest_ms in 1..40_000_u64, margin_ms in 0..2000_u64, recording_ms in 0..60_000_u64,
        ) {
            let word = |&(start_ms, end_ms): &(u64, u64)| Word { text: String::new(), start_ms, end_ms, confidence: None };
            let all: Vec<Segment> = (0..).zip(&words).map(|(id, words)| Segment {
                id, revision: 0, start_ms: id * 7000, end_ms: id * 7000 + 6000, speech: true, logprob: None,
                words: words.iter().map(word).collect(), amended: false,
            }).collect();
            let rules = Rules { longest_ms, margin_ms, ..Rules::default() };
            let is_wanted = |s: &Segment| wanted >> s.id & 1 == 1;
            for piece in pieces(&all, &is_wanted, &rules, recording_ms) {
                prop_assert!(piece.from_ms < piece.to_ms && piece.to_ms <= recording_ms, "{piece:?}");
                prop_assert!(piece.to_ms - piece.from_ms <= longest_ms, "{piece:?}");
                prop_assert!(piece.from_ms <= piece.start_ms && piece.start_ms <= piece.end_ms && piece.end_ms <= piece.to_ms, "{piece:?}");
                prop_assert!(piece.segments.iter().all(|id| is_wanted(&all[*id as usize])));
            }
        }
    }
}
