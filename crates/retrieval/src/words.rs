//! Which words a text has, for search by words.
//!
//! Words are those of Unicode (UAX 29), in lower case. Two kinds of text need more than that:
//!
//! - Chinese, Japanese and Korean are written without spaces between words, or with endings that stick to them. A run of
//!   such letters gives each pair of neighbors, and a single letter itself.
//! - Identifiers are looked for whole and by their parts. `getUserName`, `get_user_name` and `user.name` give themselves, and
//!   then what lies between changes from lower to upper case, `_`, `.`, and the like. A number at the end stays with its
//!   word.
//!
//! The rule is part of the format: an index is searched by the words that it was made with.

use unicode_segmentation::UnicodeSegmentation;

/// Version of the rule, in the header of an index.
pub(crate) const VERSION: u32 = 1;
/// Longer words are cut off: no one looks for them, and hostile text has one of a gigabyte.
const MAX_BYTES: usize = 128;

/// The words of a text, in order, as search by words knows them: in lower case, and of identifiers the parts, too.
#[must_use]
pub fn words_of(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    words(text, |word| out.push(word.to_owned()));
    out
}

/// Calls `each` with every word of `text`, in order.
pub(crate) fn words(text: &str, mut each: impl FnMut(&str)) {
    let mut lower = String::new();
    let mut see = |word: &str| {
        lower.clear();
        lower.extend(word.chars().flat_map(char::to_lowercase));
        let mut end = lower.len().min(MAX_BYTES);
        while !lower.is_char_boundary(end) {
            end -= 1;
        }
        each(&lower[..end]);
    };
    // A run of letters without spaces: its first byte, and where its last letter begins.
    let mut run: Option<(usize, usize)> = None;
    let mut end = 0;
    for (at, word) in text.split_word_bound_indices() {
        if !word.chars().any(char::is_alphanumeric) {
            continue;
        }
        let mut letters = word.char_indices().peekable();
        if !letters.peek().is_some_and(|(_, c)| is_dense(*c)) {
            finish(text, &mut run, end, &mut see);
            identifier(word, &mut see);
            continue;
        }
        for (i, letter) in letters {
            if !is_dense(letter) {
                continue;
            }
            let start = at + i;
            if start != end {
                finish(text, &mut run, end, &mut see);
            }
            if let Some((_, last)) = run {
                see(&text[last..start + letter.len_utf8()]);
            }
            run = Some((run.map_or(start, |(first, _)| first), start));
            end = start + letter.len_utf8();
        }
    }
    finish(text, &mut run, end, &mut see);
}

/// Ends a run; one of a single letter is a word.
fn finish(text: &str, run: &mut Option<(usize, usize)>, end: usize, see: &mut impl FnMut(&str)) {
    if let Some((first, last)) = run.take()
        && first == last
    {
        see(&text[first..end]);
    }
}

/// A word, and its parts where it has several.
fn identifier(word: &str, see: &mut impl FnMut(&str)) {
    see(word);
    let mut start = 0;
    let mut before: Option<char> = None;
    let mut letters = word.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|(_, c)| *c);
        let separates =
            letter.is_ascii_punctuation() || matches!(letter, '\u{2018}' | '\u{2019}' | '\u{203f}' | '\u{b7}');
        let begins = before.is_some_and(|before| {
            letter.is_uppercase()
                && (before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && next.is_some_and(char::is_lowercase)))
        });
        if separates || begins {
            if start < at {
                see(&word[start..at]);
            }
            start = if separates { at + letter.len_utf8() } else { at };
        }
        before = (!separates).then_some(letter);
    }
    if 0 < start && start < word.len() {
        see(&word[start..]);
    }
}

/// Letters of which words are written without spaces, or with endings that stick to them.
fn is_dense(letter: char) -> bool {
    matches!(letter,
        '\u{1100}'..='\u{11ff}' | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3130}'..='\u{318f}'
        | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        words_of(text)
    }

    #[test]
    fn words_of_texts_and_identifiers() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            (" -- ... ", &[]),
            ("The quick fox's den.", &["the", "quick", "fox's", "fox", "s", "den"]),
            ("Größe ÉCOLE naïve", &["größe", "école", "naïve"]),
            ("getUserName()", &["getusername", "get", "user", "name"]),
            ("get_user_name", &["get_user_name", "get", "user", "name"]),
            ("HTTPServer2Go", &["httpserver2go", "http", "server2", "go"]),
            ("user.name", &["user.name", "user", "name"]),
            ("__init__", &["__init__", "init"]),
            ("version 3.14 int8", &["version", "3.14", "3", "14", "int8"]),
            ("検索エンジン", &["検索", "索エ", "エン", "ンジ", "ジン"]),
            ("我 love 北京", &["我", "love", "北京"]),
            ("검색 엔진", &["검색", "엔진"]),
            ("नमस्ते दुनिया", &["नमस्ते", "दुनिया"]),
        ];
        for (text, expected) in cases {
            assert_eq!(found(text), *expected, "{text}");
        }
    }

    #[test]
    fn long_word_is_cut_at_a_letter() {
        let word = found(&"ä".repeat(1000)).remove(0);
        assert_eq!(word.chars().count(), MAX_BYTES / 2);
        let odd = found(&format!("x{}", "ä".repeat(1000))).remove(0);
        assert_eq!(odd.len(), MAX_BYTES - 1);
    }
}
