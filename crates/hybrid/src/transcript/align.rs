//! Words of two transcripts beside one another: the fewest edits, and of these the ones that are closest in time.

use super::Word;

/// Words that belong together.
#[derive(Debug, PartialEq)]
pub(super) enum Pair<'a> {
    /// One of each.
    Both(&'a Word, &'a Word),
    /// Ours alone.
    Ours(&'a Word),
    /// Theirs alone.
    Theirs(&'a Word),
}

/// A word without case and punctuation.
pub(super) fn plain(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// An edit costs this much; distances in time, at most 999 for a pair, decide between equal numbers of edits.
const EDIT: u64 = 1_000_000;
/// More words than a segment of ten seconds has; what is longer is not aligned but replaced.
const MOST: usize = 512;

/// Edit distance over words (Wagner and Fischer, 1974).
pub(super) fn align<'a>(ours: &'a [Word], theirs: &[&'a Word], timed: bool) -> Vec<Pair<'a>> {
    if ours.len() > MOST || theirs.len() > MOST {
        let gone = ours.iter().map(Pair::Ours);
        return gone.chain(theirs.iter().map(|word| Pair::Theirs(word))).collect();
    }
    let apart = |a: &Word, b: &Word| match timed {
        true => a
            .start_ms
            .midpoint(a.end_ms)
            .abs_diff(b.start_ms.midpoint(b.end_ms))
            .min(999),
        false => 0,
    };
    let names = |word: &Word| plain(&word.text);
    let (a, b): (Vec<_>, Vec<_>) = (
        ours.iter().map(names).collect(),
        theirs.iter().map(|w| names(w)).collect(),
    );
    let width = b.len() + 1;
    let mut cost = vec![0_u64; (a.len() + 1) * width];
    let step = |cost: &[u64], i: usize, j: usize| {
        let both = (i > 0 && j > 0).then(|| {
            let edit = if a[i - 1] == b[j - 1] { 0 } else { EDIT };
            cost[(i - 1) * width + j - 1] + edit + apart(&ours[i - 1], theirs[j - 1])
        });
        let gone = (i > 0).then(|| cost[(i - 1) * width + j] + EDIT);
        let new = (j > 0).then(|| cost[i * width + j - 1] + EDIT);
        [both, gone, new]
    };
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cost[i * width + j] = step(&cost, i, j).into_iter().flatten().min().unwrap_or(0);
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut pairs = Vec::new();
    while i > 0 || j > 0 {
        let here = Some(cost[i * width + j]);
        let [both, gone, _] = step(&cost, i, j);
        if both == here {
            (i, j) = (i - 1, j - 1);
            pairs.push(Pair::Both(&ours[i], theirs[j]));
        } else if gone == here {
            i -= 1;
            pairs.push(Pair::Ours(&ours[i]));
        } else {
            j -= 1;
            pairs.push(Pair::Theirs(theirs[j]));
        }
    }
    pairs.reverse();
    pairs
}
