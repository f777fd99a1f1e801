//! Where the text of a window is cut into segments: at the times that the model has written.

use crate::rules::Rules;
use std::ops::Range;

/// Tokens between two times of a window, in seconds from its beginning.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    /// Which tokens.
    pub(crate) tokens: Range<usize>,
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
}

/// A window's tokens, cut where they say.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut {
    pub(crate) pieces: Vec<Piece>,
    /// Where the next window begins.
    pub(crate) until_s: f64,
    /// Whether the model has said where its text ends, so that the rest of the window is silence.
    pub(crate) closed: bool,
}

/// Cuts at two times in a row. What follows the last of them is read again by the next window, unless its end is closed, too.
pub(crate) fn cut(tokens: &[u32], rules: &Rules, length_s: f64) -> Cut {
    let whole = |end_s: f64| Cut {
        pieces: vec![Piece {
            tokens: 0..tokens.len(),
            start_s: 0.0,
            end_s,
        }],
        until_s: length_s,
        closed: false,
    };
    let Some(stamps) = rules.stamps else {
        return whole(length_s);
    };
    // A time behind the end of the sound is its end.
    let seconds = |token: u32| (f64::from(token - stamps.first) * f64::from(stamps.step_ms) / 1000.0).min(length_s);
    let is = |i: usize| rules.is_stamp(tokens[i]);
    let mut ends: Vec<usize> = (1..tokens.len()).filter(|&i| is(i) && is(i - 1)).collect();
    let n = tokens.len();
    let closed = n >= 2 && is(n - 1) && !is(n - 2);
    if ends.is_empty() {
        let first = tokens
            .first()
            .filter(|t| rules.is_stamp(**t))
            .map_or(0.0, |t| seconds(*t));
        let last = tokens.iter().rev().find(|t| rules.is_stamp(**t)).map(|t| seconds(*t));
        let end = last.filter(|&s| s > first).unwrap_or(length_s);
        let mut cut = whole(end);
        cut.pieces[0].start_s = first;
        cut.closed = closed;
        return cut;
    }
    if closed {
        ends.push(n);
    }
    let mut from = 0;
    let mut pieces = Vec::new();
    for end in ends {
        if let [first, .., last] = &tokens[from..end]
            && rules.is_stamp(*first)
            && rules.is_stamp(*last)
        {
            pieces.push(Piece {
                tokens: from..end,
                start_s: seconds(*first),
                end_s: seconds(*last),
            });
        }
        from = end;
    }
    let until_s = match closed {
        true => length_s,
        false => seconds(tokens[from - 1]),
    };
    Cut {
        pieces,
        until_s,
        closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_bundle::Timestamps;

    fn rules() -> Rules {
        Rules {
            end: 4,
            stamps: Some(Timestamps {
                first: 10,
                count: 1501,
                step_ms: 20,
            }),
            ..Rules::default()
        }
    }

    fn times(tokens: &[u32], length_s: f64) -> (Vec<(f64, f64, usize)>, f64) {
        let rules = rules();
        let cut = cut(tokens, &rules, length_s);
        let pieces = cut
            .pieces
            .iter()
            .map(|p| (p.start_s, p.end_s, p.tokens.len()))
            .collect();
        (pieces, cut.until_s)
    }

    #[test]
    fn windows_are_cut_where_times_meet() {
        let at = |s: f64| 10 + (s * 50.0) as u32;
        // Two closed segments, and text that goes on: it is read again.
        let tokens = [at(0.0), 1, 2, at(2.0), at(2.0), 3, at(4.0), at(4.0), 1];
        assert_eq!(times(&tokens, 30.0), (vec![(0.0, 2.0, 4), (2.0, 4.0, 3)], 4.0));
        // The last one is closed at the end of the window's text.
        let tokens = [at(0.0), 1, 2, at(2.0), at(3.0), 3, at(4.0)];
        assert_eq!(times(&tokens, 30.0), (vec![(0.0, 2.0, 4), (3.0, 4.0, 3)], 30.0));
        // One segment alone, closed or not.
        assert_eq!(times(&[at(0.5), 1, at(4.0)], 11.0), (vec![(0.5, 4.0, 3)], 11.0));
        assert_eq!(times(&[at(0.0), 1, 2], 11.0), (vec![(0.0, 11.0, 3)], 11.0));
        assert_eq!(times(&[], 11.0), (vec![(0.0, 11.0, 0)], 11.0));
    }
}
