//! Text that repeats itself, where it is too short for its compression to say so.
//!
//! What is said twice in a row is rare, but people do say it. So this is a reason to hear better, and never one to leave text out.
//! Pure functions of text.

use crate::words::is_spaced;

/// Words, or characters of languages without spaces, that make a repetition: a text goes on for so many as it went before.
const REPEATED: usize = 4;

/// Whether a text goes on as it has gone before, right behind: four words in a row again, or fewer of them twice more.
pub(crate) fn goes_round(text: &str, language: Option<&str>) -> bool {
    repeated(text, language, &|period| REPEATED.min(2 * period))
}

/// Whether a text says something three times in a row, and one word five times.
pub(crate) fn is_stuck(text: &str, language: Option<&str>) -> bool {
    repeated(text, language, &|period| REPEATED.max(2 * period))
}

/// Whether some words in a row, `needed` of a number, are those so many places before them.
fn repeated(text: &str, language: Option<&str>, needed: &dyn Fn(usize) -> usize) -> bool {
    let units = units(text, language);
    (1..units.len()).any(|period| {
        let needed = needed(period);
        let mut same = units.iter().zip(&units[period..]).map(|(a, b)| a == b);
        let mut run = 0;
        same.any(|is_same| {
            run = if is_same { run + 1 } else { 0 };
            run >= needed
        })
    })
}

/// Words without case and punctuation, or characters.
fn units(text: &str, language: Option<&str>) -> Vec<String> {
    let plain = |text: &str| -> String {
        let kept = text.chars().filter(|c| c.is_alphanumeric());
        kept.flat_map(char::to_lowercase).collect()
    };
    match is_spaced(language) {
        true => text
            .split_whitespace()
            .map(plain)
            .filter(|word| !word.is_empty())
            .collect(),
        false => plain(text).chars().map(String::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_found_in_short_texts() {
        for (text, expected) in [
            ("", false),
            (" Please enter your agent number.", false),
            (" Please enter your number. Please enter your number.", true),
            // A second time that is not whole.
            (" And so my fellow Americans, and so my fellow", true),
            (" Goodbye. Goodbye.", false),
            (" Goodbye. Goodbye! goodbye", true),
            (" Thank you. Thank you.", false),
            (" Thank you. Thank you. Thank you.", true),
            (" ask what you can do for your country, what you can do", true),
            (" one two one three one four one five", false),
            (" a b c d x a b c y", false),
        ] {
            assert_eq!(goes_round(text, Some("en")), expected, "{text}");
            assert_eq!(goes_round(text, None), expected, "{text}");
        }
        for (text, expected) in [
            (" Please enter your number. Please enter your number.", false),
            (" Enter your number. Enter your number. Enter your number", true),
            (" Thank you. Thank you. Thank you.", true),
            (" No, no, no, no.", false),
            (" No, no, no, no, no.", true),
        ] {
            assert_eq!(is_stuck(text, Some("en")), expected, "{text}");
        }
        for (text, expected) in [
            ("今日は晴れです。", false),
            ("今日は晴れです。今日は晴れ", true),
            ("ははは", true),
            ("母は歯", false),
        ] {
            assert_eq!(goes_round(text, Some("ja")), expected, "{text}");
        }
    }
}
