//! The number that an answer in words ends with.

/// A number without what is written for people: `$1,234.50` is `1234.5`.
///
/// Kept as text, since exact match is of numbers as written and not of what a float makes of them.
pub(crate) fn normal_number(text: &str) -> Option<String> {
    let negative = text.trim_start_matches(['$', ' ']).starts_with('-');
    let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let digits = digits.trim_end_matches('.');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let part = part.trim_end_matches('0');
    let sign = if negative && (whole != "0" || !part.is_empty()) {
        "-"
    } else {
        ""
    };
    Some(match part {
        "" => format!("{sign}{whole}"),
        part => format!("{sign}{whole}.{part}"),
    })
}

/// The number on the last line that is `####` and a number, else the one in the last `\boxed{}`, else the last number of `answer`.
/// With more on it, a line with `####` is a headline: `#### 2. Find the total`.
pub(crate) fn final_number(answer: &str) -> Option<String> {
    let marked = answer.lines().rev().find_map(|line| {
        let line = line.split_once("####")?.1.trim();
        let bare = |c: char| c.is_ascii_digit() || "$€£-.,% ".contains(c);
        line.chars().all(bare).then(|| numbers(line).next()).flatten()
    });
    let boxed = || numbers(answer.rsplit_once("\\boxed{")?.1.split('}').next()?).last();
    marked
        .or_else(boxed)
        .or_else(|| numbers(answer).last())
        .and_then(normal_number)
}

/// The numbers in `text`, as written.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(|c: char| c.is_ascii_digit())?;
        let length = text[start..]
            .find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.')
            .unwrap_or(text.len() - start);
        // A sign belongs to a number unless something stands right before it, as in `8-3`.
        let unsigned = text[..start].trim_end_matches('$');
        let signed = unsigned.strip_suffix('-').filter(|before| {
            let last = before.chars().next_back();
            last.is_none_or(|c| c.is_whitespace() || "(=*:$".contains(c))
        });
        let from = signed.map_or(start, str::len);
        at = start + length;
        Some(text[from..at].trim_end_matches(['.', ',']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_and_compared_as_written() {
        for (answer, expected) in [
            ("so 5 + 6 = 11.\n#### 1,234", Some("1234")),
            ("#### 7\nand then 8", Some("7")),
            ("The answer is $18.", Some("18")),
            ("18.00 dollars", Some("18")),
            ("It is -3", Some("-3")),
            ("10-3", Some("3")),
            ("**-$2.50**", Some("-2.5")),
            ("0.5", Some("0.5")),
            ("007", Some("7")),
            ("####", None),
            ("none", None),
            ("#### see 12 above", Some("12")),
            ("#### 1. Start\n#### 2. Find the total: 40", Some("40")),
            ("#### 2. Add\nIn all \\(\\boxed{33}\\).", Some("33")),
            ("It takes \\(\\boxed{-0.2}\\) hours from 1 to 4 PM.", Some("-0.2")),
            ("\\boxed{} 5", Some("5")),
            ("#### 18\n\n#### 2. Why", Some("18")),
            ("#### $1,234.\nas 3 + 4", Some("1234")),
            ("1.2.3", None),
            ("", None),
            ("-0", Some("0")),
            ("7 é٣", Some("7")),
        ] {
            assert_eq!(final_number(answer).as_deref(), expected, "{answer}");
        }
    }
}
