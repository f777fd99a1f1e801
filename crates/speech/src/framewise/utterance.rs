//! Words and segments of tokens that have times.
//!
//! A word begins where a space does. It lasts from its first token to the end of its last letters: punctuation is written late, so it
//! takes the end of what is before. Segments end where sentences do, and at long pauses.

use super::Token;
use crate::prompted::compression;
use crate::words::characters;
use crate::{Segment, Word};

/// End a sentence, at the end of a word.
const ENDS: [char; 7] = ['.', '?', '!', '…', '。', '？', '！'];
/// May stand behind them.
const CLOSING: [char; 7] = ['"', '\'', ')', ']', '”', '’', '»'];
/// Silence between words that ends a segment, in seconds.
const PAUSE_S: f64 = 1.0;

/// A word, and which tokens it is.
#[derive(Debug)]
struct Spoken {
    word: Word,
    tokens: std::ops::Range<usize>,
}

/// The stretch of sound that was heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) begin_s: f64,
    pub(crate) length_s: f64,
    /// Seconds of a position.
    pub(crate) step_s: f64,
}

/// The segments of a text, with their words. `decode` keeps the space before a word.
pub(crate) fn segments(tokens: &[Token], stretch: Stretch, decode: &dyn Fn(&[u32]) -> String) -> Vec<Segment> {
    let words = words(tokens, stretch, decode);
    parts(&words)
        .filter_map(|part| segment(part, tokens, &words, stretch))
        .collect()
}

/// The segments of a text that goes on, and how many tokens they are: the last one may not be whole, unless it has become as long as `most_s`.
pub(crate) fn whole_segments(
    tokens: &[Token],
    stretch: Stretch,
    most_s: f64,
    decode: &dyn Fn(&[u32]) -> String,
) -> (Vec<Segment>, usize) {
    let words = words(tokens, stretch, decode);
    let mut parts: Vec<&[Spoken]> = parts(&words).collect();
    let open = parts.pop().unwrap_or_default();
    if let [first, .., last] = open
        && last.word.end_s - first.word.start_s >= most_s
    {
        parts.push(&open[..open.len() - 1]);
    }
    let used = parts
        .last()
        .and_then(|part| part.last())
        .map_or(0, |last| last.tokens.end);
    let segments = parts.iter().filter_map(|part| segment(part, tokens, &words, stretch));
    (segments.collect(), used)
}

/// All of a text as one segment, with its words; `None` of nothing.
pub(crate) fn whole(tokens: &[Token], stretch: Stretch, decode: &dyn Fn(&[u32]) -> String) -> Option<Segment> {
    let words = words(tokens, stretch, decode);
    segment(&words, tokens, &words, stretch)
}

/// Words by segments.
fn parts(words: &[Spoken]) -> impl Iterator<Item = &[Spoken]> {
    words.chunk_by(|one, next| !(is_end(&one.word.text) || next.word.start_s - one.word.end_s >= PAUSE_S))
}

/// Some words in a row, of a text of these tokens and words.
fn segment(part: &[Spoken], tokens: &[Token], all: &[Spoken], stretch: Stretch) -> Option<Segment> {
    let (first, last) = (part.first()?, part.last()?);
    let mean = |tokens: &[Token]| {
        let sum: f64 = tokens.iter().map(|token| token.logprob).sum();
        sum / tokens.len().max(1) as f64
    };
    let own = &tokens[first.tokens.start..last.tokens.end];
    let mut words: Vec<Word> = part.iter().map(|spoken| spoken.word.clone()).collect();
    // Words may have no length, a segment has one.
    let least_s = (first.word.start_s + stretch.step_s).min(stretch.begin_s + stretch.length_s);
    let end_s = last.word.end_s.max(least_s);
    if let Some(last) = words.last_mut() {
        last.end_s = end_s;
    }
    Some(Segment {
        start_s: first.word.start_s,
        end_s,
        text: words.iter().map(|word| word.text.as_str()).collect(),
        tokens: own.iter().map(|token| token.id).collect(),
        mean_logprob: mean(tokens),
        confidence: libm::exp(mean(own)),
        compression: compression(&all.iter().map(|spoken| spoken.word.text.as_str()).collect::<String>()),
        window_s: stretch.begin_s,
        words,
        ..Segment::default()
    })
}

fn words(tokens: &[Token], stretch: Stretch, decode: &dyn Fn(&[u32]) -> String) -> Vec<Spoken> {
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    let seconds = |position: usize| (position as f64 * stretch.step_s).min(stretch.length_s);
    let mut words: Vec<Spoken> = Vec::new();
    let mut from = 0;
    for (text, count) in characters(&ids, decode) {
        let run = from..from + count;
        from = run.end;
        let (start_s, end_s) = (seconds(tokens[run.start].start), seconds(tokens[run.end - 1].end));
        match words.last_mut() {
            Some(Spoken { word, tokens }) if !text.starts_with(char::is_whitespace) => {
                if text.contains(char::is_alphanumeric) {
                    word.end_s = end_s;
                }
                word.text.push_str(&text);
                tokens.end = run.end;
            }
            _ => words.push(Spoken {
                word: Word {
                    text,
                    start_s,
                    end_s,
                    probability: 0.0,
                },
                tokens: run,
            }),
        }
    }
    let starts: Vec<f64> = words.iter().skip(1).map(|spoken| spoken.word.start_s).collect();
    for (at, Spoken { word, tokens: own }) in words.iter_mut().enumerate() {
        let own = &tokens[own.clone()];
        let sum: f64 = own.iter().map(|token| libm::exp(token.logprob)).sum();
        word.probability = sum / own.len() as f64;
        // A token may have no length, and what a token says may reach into the next word.
        let least_s = (word.start_s + stretch.step_s).min(stretch.length_s);
        let most_s = starts.get(at).map_or(stretch.length_s, |next| next.max(word.start_s));
        word.end_s = match word.end_s > word.start_s {
            true => word.end_s,
            false => least_s,
        };
        word.end_s = word.end_s.min(most_s);
        (word.start_s, word.end_s) = (stretch.begin_s + word.start_s, stretch.begin_s + word.end_s);
    }
    words
}

/// Whether a sentence ends with a word.
fn is_end(word: &str) -> bool {
    word.trim_end_matches(CLOSING).ends_with(ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [&str; 12] = [" We", "ll", ",", " don", "'", "t", ".", " Yes", "?", " (", "so", ")"];

    fn decode(tokens: &[u32]) -> String {
        tokens.iter().map(|&t| PIECES[t as usize]).collect()
    }

    /// Tokens with their positions, of a tenth of a second each, from second 10 on.
    fn found(tokens: &[(u32, usize, usize)], length_s: f64) -> Vec<Segment> {
        let token = |&(id, start, end): &(u32, usize, usize)| Token {
            id,
            logprob: 0.5f64.ln(),
            start,
            end,
        };
        let tokens: Vec<Token> = tokens.iter().map(token).collect();
        let stretch = Stretch {
            begin_s: 10.0,
            length_s,
            step_s: 0.1,
        };
        segments(&tokens, stretch, &decode)
    }

    fn times(segment: &Segment) -> Vec<(String, i32, i32)> {
        let hundredths = |s: f64| (s * 100.0).round() as i32;
        let words = segment.words.iter();
        words
            .map(|w| (w.text.clone(), hundredths(w.start_s), hundredths(w.end_s)))
            .collect()
    }

    #[test]
    fn words_begin_with_spaces_and_punctuation_has_no_time() {
        let all = found(
            &[
                (0, 0, 2),
                (1, 2, 4),
                (2, 7, 8),
                (3, 9, 11),
                (4, 11, 11),
                (5, 12, 13),
                (6, 15, 17),
            ],
            5.0,
        );
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!(one.text, " Well, don't.");
        assert_eq!(
            times(one),
            [(" Well,".to_owned(), 1000, 1040), (" don't.".to_owned(), 1090, 1130)]
        );
        assert_eq!((one.start_s, one.words[1].end_s), (10.0, one.end_s));
        assert!((one.confidence - 0.5).abs() < 1e-12 && (one.words[0].probability - 0.5).abs() < 1e-12);
        assert_eq!(one.tokens, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn segments_end_with_sentences_and_at_pauses() {
        let all = found(
            &[
                (7, 0, 2),
                (8, 2, 2),
                (9, 4, 4),
                (10, 4, 6),
                (8, 6, 6),
                (11, 7, 7),
                (7, 8, 9),
                (7, 18, 22),
                (7, 33, 34),
            ],
            5.0,
        );
        let texts: Vec<&str> = all.iter().map(|s| s.text.as_str()).collect();
        assert_eq!(texts, [" Yes?", " (so?)", " Yes Yes", " Yes"]);
        assert!(
            all.iter().all(|s| s.words.len() == s.text.matches(' ').count()),
            "{all:?}"
        );
    }

    #[test]
    fn nothing_lasts_beyond_the_sound_or_into_the_next_word() {
        let all = found(&[(7, 0, 9), (7, 3, 3), (6, 3, 3), (7, 3, 3), (7, 8, 12)], 0.9);
        assert_eq!(
            all.iter().flat_map(times).collect::<Vec<_>>(),
            [
                (" Yes".to_owned(), 1000, 1030),
                (" Yes.".to_owned(), 1030, 1030),
                (" Yes".to_owned(), 1030, 1040),
                (" Yes".to_owned(), 1080, 1090)
            ]
        );
        // A segment has a length where its only word has none.
        let all = found(&[(7, 3, 3), (6, 3, 3), (7, 3, 3)], 0.9);
        assert!(all.len() == 2 && all[0].end_s > all[0].start_s, "{all:?}");
        assert!(found(&[], 1.0).is_empty());
    }
}
