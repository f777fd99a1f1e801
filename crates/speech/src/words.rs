//! Times of words, from what some heads of cross attention look at while a text is read.
//!
//! After OpenAI's `whisper/timing.py`: the shares of attention are standardized over the tokens, smoothed over time and averaged
//! over the heads; dynamic time warping (Sakoe and Chiba 1978) finds the path along which tokens follow the sound. Pure functions;
//! sums are in `f64` and in order, so times have the same bits on every machine.

use crate::{Segment, Word};

/// Positions under the median that smooths attention over time.
const SMOOTHED: usize = 7;
/// A usual word is taken to last no longer.
const USUAL_S: f64 = 0.7;
/// Times of a segment count against those of its first and last word from this difference on.
const SEGMENT_S: f64 = 0.5;
/// End a sentence.
pub(crate) const ENDS: &str = ".。!！?？";
/// Belong to the word behind them.
const OPENING: &str = "\"'“¿([{-";
/// Belong to the word before them.
const CLOSING: &str = "\"'.。,，!！?？:：”)]}、";
/// Languages that are written without spaces between words: there, what is timed is a character or a few.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// What the alignment heads look at: `[heads, rows, positions]`, a row for each token that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) heads: usize,
    pub(crate) rows: usize,
    pub(crate) positions: usize,
}

impl Shares<'_> {
    /// The position at which each of the rows from `first` on, the last left out, begins to look; only the first `heard`
    /// positions have sound.
    pub(crate) fn starts(&self, first: usize, heard: usize) -> Vec<usize> {
        match self.mean(first, heard) {
            (_, 0) => Vec::new(),
            (mean, columns) => begins(&mean, columns),
        }
    }

    /// The position that each of these rows looks at most.
    pub(crate) fn peaks(&self, first: usize, heard: usize) -> Vec<usize> {
        match self.mean(first, heard) {
            (_, 0) => Vec::new(),
            (mean, columns) => {
                let peak = |row: &[f64]| (0..columns).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
                mean.chunks_exact(columns).filter_map(peak).collect()
            }
        }
    }

    /// The mean over the heads of what these rows look at more than others do, and how many positions a row has; none of nothing.
    fn mean(&self, first: usize, heard: usize) -> (Vec<f64>, usize) {
        let (rows, columns) = (self.rows, heard.clamp(1, self.positions.max(1)).min(self.positions));
        if self.heads == 0 || columns == 0 || rows <= first + 1 {
            return (Vec::new(), 0);
        }
        let kept = rows - first - 1;
        let mut mean = vec![0.0; kept * columns];
        let mut head = vec![0.0; rows * columns];
        for values in self.values.chunks_exact(rows * self.positions) {
            for (row, out) in values.chunks_exact(self.positions).zip(head.chunks_exact_mut(columns)) {
                let sum: f64 = row[..columns].iter().map(|x| f64::from(*x)).sum();
                let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
                out.iter_mut().zip(row).for_each(|(o, x)| *o = f64::from(*x) * factor);
            }
            standardize(&mut head, columns);
            for (row, out) in head
                .chunks_exact(columns)
                .skip(first)
                .zip(mean.chunks_exact_mut(columns))
            {
                for (column, out) in out.iter_mut().enumerate() {
                    *out += median(row, column) / self.heads as f64;
                }
            }
        }
        (mean, columns)
    }
}

/// Takes the mean of each column away, and divides by its deviation.
fn standardize(rows: &mut [f64], columns: usize) {
    let n = (rows.len() / columns) as f64;
    for column in 0..columns {
        let each = || rows.iter().skip(column).step_by(columns);
        let mean = each().sum::<f64>() / n;
        let variance = each().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let factor = if variance > 0.0 { 1.0 / variance.sqrt() } else { 0.0 };
        rows.iter_mut()
            .skip(column)
            .step_by(columns)
            .for_each(|x| *x = (*x - mean) * factor);
    }
}

/// The median around `at`; the row is mirrored at its ends. A row too short for that is left as it is.
fn median(row: &[f64], at: usize) -> f64 {
    let half = SMOOTHED / 2;
    if row.len() <= half {
        return row[at];
    }
    let mut around = [0.0; SMOOTHED];
    for (i, value) in around.iter_mut().enumerate() {
        let i = (at + i).abs_diff(half);
        let last = row.len() - 1;
        *value = row[if i > last { 2 * last - i } else { i }];
    }
    around.sort_unstable_by(f64::total_cmp);
    around[half]
}

/// The column at which the path of most attention enters each row. From the first cell to the last, each step goes to the next
/// row, the next column, or both.
fn begins(attention: &[f64], columns: usize) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum From {
        Both,
        Row,
        Column,
    }
    let rows = attention.len() / columns;
    let mut steps = vec![From::Column; rows * columns];
    // Costs of the row before and of this one, with an edge in front that no path crosses.
    let mut before = vec![f64::INFINITY; columns + 1];
    before[0] = 0.0;
    let mut costs = vec![f64::INFINITY; columns + 1];
    for (row, steps) in attention.chunks_exact(columns).zip(steps.chunks_exact_mut(columns)) {
        costs[0] = f64::INFINITY;
        for column in 0..columns {
            let (both, row_before, column_before) = (before[column], before[column + 1], costs[column]);
            let (least, step) = if both < row_before && both < column_before {
                (both, From::Both)
            } else if row_before < both && row_before < column_before {
                (row_before, From::Row)
            } else {
                (column_before, From::Column)
            };
            costs[column + 1] = least - row[column];
            steps[column] = step;
        }
        std::mem::swap(&mut before, &mut costs);
    }
    let mut begins = vec![0; rows];
    let (mut row, mut column) = (rows - 1, columns - 1);
    loop {
        begins[row] = column;
        match steps[row * columns + column] {
            _ if row == 0 => column = column.saturating_sub(1),
            From::Row => row -= 1,
            _ if column == 0 => row -= 1,
            From::Both => (row, column) = (row - 1, column - 1),
            From::Column => column -= 1,
        }
        if row == 0 && column == 0 {
            begins[0] = 0;
            return begins;
        }
    }
}

/// A word before it is placed: times in seconds from the beginning of its window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timed {
    pub(crate) text: String,
    /// Tokens that it is made of.
    pub(crate) tokens: usize,
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) probability: f64,
}

/// The words of `segments`, each so many tokens of a window. `starts` has the second at which each token begins, and behind them where the
/// text ends; `probabilities` are those of the tokens.
pub(crate) fn timed(
    segments: &[&[u32]],
    starts: &[f64],
    probabilities: &[f64],
    language: Option<&str>,
    decode: &dyn Fn(&[u32]) -> String,
) -> Vec<Timed> {
    let mut words = Vec::new();
    let mut from = 0;
    for (text, count) in segments.iter().flat_map(|tokens| split(tokens, language, decode)) {
        let until = from + count;
        if let (Some(&start_s), Some(&end_s)) = (starts.get(from), starts.get(until)) {
            let sum: f64 = probabilities.get(from..until).unwrap_or_default().iter().sum();
            words.push(Timed {
                text,
                tokens: count,
                start_s,
                end_s,
                probability: sum / count as f64,
            });
        }
        from = until;
    }
    words
}

/// Words with the number of their tokens. Spaces stand before the words that they part.
fn split(tokens: &[u32], language: Option<&str>, decode: &dyn Fn(&[u32]) -> String) -> Vec<(String, usize)> {
    let spaced = is_spaced(language);
    let mut words: Vec<(String, usize)> = Vec::new();
    for (text, count) in characters(tokens, decode) {
        let trimmed = text.trim();
        let is_mark = trimmed.is_empty()
            || (trimmed.len() == 1 && trimmed.is_ascii() && !trimmed.as_bytes()[0].is_ascii_alphanumeric());
        match words.last_mut() {
            Some((word, n)) if spaced && !text.starts_with(' ') && !is_mark => {
                word.push_str(&text);
                *n += count;
            }
            _ => words.push((text, count)),
        }
    }
    words
}

/// Whether a language is written with spaces between its words.
pub(crate) fn is_spaced(language: Option<&str>) -> bool {
    !language.is_some_and(|code| UNSPACED.contains(&code))
}

/// The shortest runs of tokens that are whole characters; together they are the text.
pub(crate) fn characters(tokens: &[u32], decode: &dyn Fn(&[u32]) -> String) -> Vec<(String, usize)> {
    let whole = decode(tokens);
    let (mut runs, mut from, mut rest) = (Vec::new(), 0, whole.as_str());
    for until in 1..=tokens.len() {
        let text = decode(&tokens[from..until]);
        // A sign for what is no character may stand in the text itself, one for several bytes.
        let is_whole = !text.contains(char::REPLACEMENT_CHARACTER)
            || rest
                .strip_prefix(&text)
                .is_some_and(|rest| decode(&tokens[until..]) == rest);
        if is_whole || until == tokens.len() {
            rest = rest.get(text.len()..).unwrap_or_default();
            runs.push((text, until - from));
            from = until;
        }
    }
    runs
}

/// Gives each of a window's segments its words, which move its times. `begin_s` is where the window begins; `spoken_s` where the
/// last segment before ended, and what comes back where this window's last does.
pub(crate) fn place(segments: &mut [Segment], mut words: Vec<Timed>, begin_s: f64, mut spoken_s: f64) -> f64 {
    let usual = shorten(&mut words);
    let mut rest = &words[..];
    for segment in segments {
        let mut tokens = 0;
        let own = rest.iter().take_while(|word| {
            let before = tokens;
            tokens += word.tokens;
            before < segment.tokens.len()
        });
        let (own, others) = rest.split_at(own.count());
        rest = others;
        let mut times = [segment.start_s, segment.end_s];
        segment.words = placed(&joined(own.to_vec()), usual, begin_s, spoken_s, &mut times);
        [segment.start_s, segment.end_s] = times;
        if !own.is_empty() {
            spoken_s = segment.end_s;
        }
    }
    spoken_s
}

/// How long the words of a window last.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usual {
    median_s: f64,
    most_s: f64,
}

/// Shortens words at the ends of sentences, which hold the silence there.
fn shorten(words: &mut [Timed]) -> Usual {
    let mut lengths: Vec<f64> = words
        .iter()
        .map(|w| w.end_s - w.start_s)
        .filter(|l| *l != 0.0)
        .collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let n = lengths.len();
    let median = match n {
        0 => 0.0,
        _ => (lengths[(n - 1) / 2] + lengths[n / 2]) / 2.0,
    };
    let median_s = median.min(USUAL_S);
    let most_s = 2.0 * median_s;
    for i in 1..words.len() {
        if n > 0 && words[i].end_s - words[i].start_s > most_s {
            if is_one_of(&words[i].text, ENDS) {
                words[i].end_s = words[i].start_s + most_s;
            } else if is_one_of(&words[i - 1].text, ENDS) {
                words[i].start_s = words[i].end_s - most_s;
            }
        }
    }
    Usual { median_s, most_s }
}

/// Joins punctuation to its words. A word keeps its own times.
fn joined(mut words: Vec<Timed>) -> Vec<Timed> {
    let mut behind: Option<usize> = None;
    for i in (0..words.len()).rev() {
        match behind {
            Some(j) if words[i].text.starts_with(' ') && is_one_of(words[i].text.trim(), OPENING) => {
                let text = std::mem::take(&mut words[i].text);
                words[j].text.insert_str(0, &text);
                words[j].tokens += std::mem::take(&mut words[i].tokens);
            }
            _ => behind = Some(i),
        }
    }
    let mut done: Vec<Timed> = Vec::with_capacity(words.len());
    for word in words.into_iter().filter(|w| !w.text.is_empty()) {
        match done.last_mut() {
            Some(before) if !before.text.ends_with(' ') && is_one_of(&word.text, CLOSING) => {
                before.text.push_str(&word.text);
                before.tokens += word.tokens;
            }
            _ => done.push(word),
        }
    }
    done
}

/// Whether a text is punctuation, or nothing.
pub(crate) fn is_mark(text: &str) -> bool {
    is_one_of(text, OPENING) || is_one_of(text, CLOSING)
}

/// Whether a text is nothing, or one of these characters.
fn is_one_of(text: &str, characters: &str) -> bool {
    let mut all = text.chars();
    all.next().is_none_or(|c| characters.contains(c)) && all.next().is_none()
}

/// A segment's words, with `begin_s` of its window added, and its own times, which the words move. `heard_s` is where the last
/// segment before ended.
fn placed(words: &[Timed], usual: Usual, begin_s: f64, heard_s: f64, times: &mut [f64; 2]) -> Vec<Word> {
    let Usual { median_s, most_s } = usual;
    let mut words: Vec<Word> = words
        .iter()
        .map(|w| Word {
            text: w.text.clone(),
            start_s: begin_s + w.start_s,
            end_s: begin_s + w.end_s,
            probability: w.probability,
        })
        .collect();
    let Some(first) = words.first().cloned() else {
        return words;
    };
    let second_end_s = words.get(1).map(|w| w.end_s);
    // The first words after a pause hold the pause.
    if first.end_s - heard_s > 4.0 * median_s
        && (first.end_s - first.start_s > most_s || second_end_s.is_some_and(|end| end - first.start_s > 2.0 * most_s))
    {
        if let [first, second, ..] = &mut words[..]
            && second.end_s - second.start_s > most_s
        {
            let boundary_s = (second.end_s / 2.0).max(second.end_s - most_s);
            first.end_s = boundary_s;
            second.start_s = boundary_s;
        }
        words[0].start_s = (words[0].end_s - most_s).max(0.0);
    }
    let [start_s, end_s] = times;
    if let Some(first) = words.first_mut() {
        if *start_s < first.end_s && *start_s - SEGMENT_S > first.start_s {
            first.start_s = (first.end_s - median_s).min(*start_s).max(0.0);
        }
        *start_s = first.start_s;
    }
    if let Some(last) = words.last_mut() {
        if *end_s > last.start_s && *end_s + SEGMENT_S < last.end_s {
            last.end_s = (last.start_s + median_s).max(*end_s);
        }
        *end_s = last.end_s;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tokens are indices of this list.
    const PIECES: [&str; 8] = [" Well", ",", " I", "'m", " \"", "here", ".", "\""];

    fn decode(tokens: &[u32]) -> String {
        tokens.iter().map(|&t| PIECES[t as usize]).collect()
    }

    fn word(text: &str, tokens: usize, start_s: f64, end_s: f64) -> Timed {
        Timed {
            text: text.to_owned(),
            tokens,
            start_s,
            end_s,
            probability: 1.0,
        }
    }

    #[test]
    fn the_path_follows_what_is_looked_at() {
        // Three rows, six columns; the second row looks at columns 2 and 3.
        let attention = [
            [9.0, 8.0, -1.0, -1.0, -1.0, -1.0],
            [-1.0, -1.0, 9.0, 7.0, -1.0, -1.0],
            [-1.0, -1.0, -1.0, -1.0, 5.0, 9.0],
        ]
        .concat();
        assert_eq!(begins(&attention, 6), [0, 2, 4]);
        // More rows than columns: several begin at once.
        assert_eq!(begins(&[1.0, 0.0, 0.5, 0.5, 0.0, 1.0], 2).len(), 3);
        assert_eq!(begins(&[f64::NAN; 6], 3), [0, 0]);
    }

    #[test]
    fn peaks_are_what_rows_look_at_more_than_others_do() {
        // A head; all rows look at column 0 most, and each at one of its own.
        let mut values = vec![0.1f32; 4 * 20];
        for (row, column) in [(0, 2), (1, 6), (2, 11), (3, 17)] {
            values[row * 20] = 5.0;
            values[row * 20 + column - 1..row * 20 + column + 3].fill(2.0);
        }
        let shares = Shares {
            values: &values,
            heads: 1,
            rows: 4,
            positions: 20,
        };
        let peaks = shares.peaks(0, 20);
        assert_eq!(peaks.len(), 3);
        for (peak, column) in peaks.iter().zip([2, 6, 11]) {
            assert!(peak.abs_diff(column) <= 2, "{peaks:?}");
        }
        assert_eq!(shares.peaks(1, 20), peaks[1..]);
        assert!(shares.peaks(3, 20).is_empty());
        // Behind the sound nobody looks.
        assert!(shares.peaks(0, 9).iter().all(|&at| at < 9));
    }

    #[test]
    fn medians_mirror_the_ends() {
        let row = [5.0, 1.0, 2.0, 3.0, 9.0];
        assert_eq!(median(&row, 0), 2.0);
        assert_eq!(median(&row, 2), 3.0);
        assert_eq!(median(&row, 4), 2.0);
        assert_eq!(median(&row[..3], 0), 5.0, "too short");
    }

    #[test]
    fn words_are_parted_by_spaces_and_punctuation() {
        let tokens: Vec<u32> = (0..8).collect();
        let words = |language| -> Vec<String> {
            split(&tokens, language, &decode)
                .into_iter()
                .map(|(text, _)| text)
                .collect()
        };
        assert_eq!(words(None), [" Well", ",", " I'm", " \"here", ".", "\""]);
        assert_eq!(words(Some("ja")), PIECES);
        let alone = vec![word(" (", 1, 0.0, 1.0), word(" x", 1, 1.0, 2.0), word(")", 1, 2.0, 3.0)];
        assert_eq!(joined(alone), [word(" ( x)", 3, 1.0, 2.0)]);
        let joined = joined(
            (0..)
                .zip(split(&tokens, None, &decode))
                .map(|(i, (text, n))| word(&text, n, f64::from(i), f64::from(i + 1)))
                .collect(),
        );
        let found: Vec<(&str, usize, f64, f64)> = joined
            .iter()
            .map(|w| (&*w.text, w.tokens, w.start_s, w.end_s))
            .collect();
        assert_eq!(
            found,
            [
                (" Well,", 2, 0.0, 1.0),
                (" I'm", 2, 2.0, 3.0),
                (" \"here.\"", 4, 3.0, 4.0)
            ]
        );
    }

    #[test]
    fn characters_of_several_tokens_are_not_torn() {
        let bytes = "a日本".as_bytes();
        let decode = |tokens: &[u32]| {
            let bytes: Vec<u8> = tokens.iter().map(|&t| bytes[t as usize]).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let all: Vec<u32> = (0..7).collect();
        let whole: Vec<(String, usize)> = characters(&all, &decode);
        assert_eq!(whole, [("a".to_owned(), 1), ("日".to_owned(), 3), ("本".to_owned(), 3)]);
        // What ends within a character ends a run all the same.
        assert_eq!(characters(&all[..6], &decode).iter().map(|(_, n)| n).sum::<usize>(), 6);
        // Two bytes of a character are one sign in the text, as they are in the runs.
        let torn = [1, 2, 0];
        assert_eq!(decode(&torn), "\u{fffd}a");
        assert_eq!(
            characters(&torn, &decode),
            [("\u{fffd}".to_owned(), 2), ("a".to_owned(), 1)]
        );
    }

    #[test]
    fn silence_at_the_end_of_a_sentence_belongs_to_no_word() {
        let mut words = vec![
            word(" a", 1, 0.0, 0.2),
            word(" b", 1, 0.2, 0.4),
            word(".", 1, 0.4, 3.0),
            word(" c", 1, 3.0, 5.0),
            word(" d", 1, 5.0, 5.2),
        ];
        let usual = shorten(&mut words);
        let words = joined(words);
        assert_eq!((usual.median_s * 10.0).round(), 2.0);
        let times: Vec<f64> = words.iter().map(|w| (w.start_s * 10.0).round()).collect();
        assert_eq!(times, [0.0, 2.0, 46.0, 50.0], "{words:?}");
    }

    #[test]
    fn a_first_word_after_a_pause_is_shortened_and_segments_take_the_times_of_words() {
        let usual = Usual {
            median_s: 0.2,
            most_s: 0.4,
        };
        let words = [word(" a", 1, 0.0, 4.0), word(" b", 1, 4.0, 4.2)];
        let mut times = [10.0, 15.0];
        let placed = placed(&words, usual, 10.0, 9.0, &mut times);
        assert_eq!((placed[0].start_s, placed[0].end_s), (13.6, 14.0));
        assert_eq!(times, [13.6, 14.2]);
        // A segment's end counts against a last word that is too long.
        let words = [word(" a", 1, 0.0, 0.2), word(" b", 1, 0.2, 4.0)];
        let mut times = [10.0, 11.0];
        let placed = super::placed(&words, usual, 10.0, 10.0, &mut times);
        assert_eq!((placed[1].end_s, times), (11.0, [10.0, 11.0]));
    }

    proptest! {
        #[test]
        fn any_shares_give_times_that_do_not_go_back(
            (heads, rows, positions) in (1usize..3, 1usize..9, 1usize..12),
            first in 0usize..9,
            heard in 0usize..14,
            seed in prop::collection::vec(prop_oneof![-1e30f32..1e30, 0f32..1.0, Just(f32::NAN), Just(0.0)], 216),
        ) {
            let values = &seed[..heads * rows * positions];
            let shares = Shares { values, heads, rows, positions };
            let starts = shares.starts(first, heard);
            prop_assert_eq!(starts.len(), rows.saturating_sub(first + 1));
            prop_assert!(starts.windows(2).all(|w| w[0] <= w[1]));
            prop_assert!(starts.iter().all(|&s| s < heard.clamp(1, positions)));
            prop_assert!(starts.first().is_none_or(|&s| s == 0));
        }

        #[test]
        fn words_are_the_text(tokens in prop::collection::vec(0u32..8, 0..20), spaced: bool) {
            let language = (!spaced).then_some("zh");
            let starts: Vec<f64> = (0..=tokens.len()).map(|i| i as f64 / 10.0).collect();
            let (one, other) = tokens.split_at(tokens.len() / 2);
            let words = timed(&[one, other], &starts, &vec![0.5; tokens.len()], language, &decode);
            let until = words.iter().scan(0, |sum, w| { *sum += w.tokens; Some(*sum) });
            prop_assert!(one.is_empty() || until.clone().any(|n| n == one.len()), "a word of two segments");
            let words = joined(words);
            let text: String = words.iter().map(|w| w.text.as_str()).collect();
            prop_assert_eq!(text, decode(&tokens));
            prop_assert_eq!(words.iter().map(|w| w.tokens).sum::<usize>(), tokens.len());
            prop_assert!(words.iter().all(|w| (w.probability - 0.5).abs() < 1e-12));
        }
    }
}
