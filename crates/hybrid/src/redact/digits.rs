//! Numbers written in groups: cards, phones, and national ids without letters.

use super::{Kind, detect::ends, identity};

/// Digits from a start, with separators between groups of them.
struct Groups {
    digits: Vec<u8>,
    /// After each group: bytes, digits so far.
    ends: Vec<(usize, usize)>,
    /// The separators, and `0` for each digit.
    shape: String,
    shape_ends: Vec<usize>,
}

/// More than any number here has.
const MAX_DIGITS: usize = 24;
const SEPARATORS: [&str; 10] = [
    " ", "-", ".", "/", "(", ")", "\u{a0}", "\u{202f}", "\u{2011}", "\u{2013}",
];

impl Groups {
    fn read(rest: &[u8]) -> Groups {
        let mut groups = Groups {
            digits: Vec::new(),
            ends: Vec::new(),
            shape: String::new(),
            shape_ends: Vec::new(),
        };
        let (mut at, mut separators) = (0, 0);
        while at < rest.len() && groups.digits.len() <= MAX_DIGITS {
            if rest[at].is_ascii_digit() {
                groups.digits.push(rest[at] - b'0');
                groups.shape.push('0');
                (at, separators) = (at + 1, 0);
                if rest.get(at).is_none_or(|b| !b.is_ascii_digit()) {
                    groups.ends.push((at, groups.digits.len()));
                    groups.shape_ends.push(groups.shape.len());
                }
                continue;
            }
            let Some(separator) = SEPARATORS.iter().find(|s| rest[at..].starts_with(s.as_bytes())) else {
                break;
            };
            separators += 1;
            if separators > 2 {
                break;
            }
            groups.shape.push(match *separator {
                "\u{a0}" | "\u{202f}" => ' ',
                "\u{2011}" | "\u{2013}" => '-',
                other => other.chars().next().unwrap_or(' '),
            });
            at += separator.len();
        }
        groups
    }

    /// The longest number that `is` takes, in bytes. It is given digits and shape.
    fn longest(&self, rest: &[u8], is: impl Fn(&[u8], &str) -> bool) -> Option<usize> {
        let each = self.ends.iter().zip(&self.shape_ends).rev();
        let mut each = each.filter(|((end, _), _)| ends(rest, *end));
        each.find(|((_, count), shape)| is(&self.digits[..*count], &self.shape[..**shape]))
            .map(|((end, _), _)| *end)
    }
}

/// A number that begins with a digit.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<(Kind, usize)> {
    let rest = &bytes[at..];
    // The decimals of a number are none.
    if at > 1 && bytes[at - 1] == b'.' && bytes[at - 2].is_ascii_digit() {
        return None;
    }
    // Chinese ids and Spanish ones end in a letter, which no group has.
    if let Some(length) = identity::digits_and_letter(rest) {
        return Some((Kind::NationalId, length));
    }
    let groups = Groups::read(rest);
    let with = |kind, length: Option<usize>| length.map(|n| (kind, n));
    with(Kind::Card, groups.longest(rest, is_card))
        .or_else(|| with(Kind::NationalId, groups.longest(rest, identity::of_digits)))
        .or_else(|| with(Kind::Phone, groups.longest(rest, is_national_phone)))
        .or_else(|| {
            let is = |digits: &[u8], _: &str| (7..=15).contains(&digits.len());
            with(Kind::Phone, groups.longest(rest, is)).filter(|_| is_called(&bytes[..at]))
        })
}

/// Whether what stands before says that a phone number follows.
fn is_called(before: &[u8]) -> bool {
    const WORDS: &[&str] = &[
        "phone",
        "telephone",
        "telefon",
        "tel",
        "mobile",
        "cell",
        "cellphone",
        "handy",
        "fax",
        "whatsapp",
        "sms",
    ];
    let text = String::from_utf8_lossy(&before[before.len().saturating_sub(40)..]).to_ascii_lowercase();
    let mut words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .rev();
    let between = ["number", "no", "nr", "nummer", "is", "me", "at", "on"];
    words
        .find(|word| !between.contains(word))
        .is_some_and(|word| WORDS.contains(&word))
}

/// A number that begins with `+` or `(`.
pub(super) fn phone(rest: &[u8]) -> Option<usize> {
    if rest[0] == b'(' {
        let groups = Groups::read(&rest[1..]);
        // `(030) 123 456` and `(415) 555-0100`: one group in parentheses, then the rest.
        let is = |digits: &[u8], shape: &str| {
            let plain: String = shape.replacen(')', "", 1);
            shape.contains(')') && !plain.contains(['(', ')', '.']) && {
                let spaced = plain.trim_start_matches('0');
                let grouped = format!(
                    "{}-{}",
                    "0".repeat(plain.len() - spaced.len()),
                    spaced.trim_start_matches([' ', '-'])
                );
                is_national_phone(digits, &grouped) || is_north_american(digits)
            }
        };
        return groups.longest(&rest[1..], is).map(|length| length + 1);
    }
    let parenthesis = usize::from(rest.get(1) == Some(&b'('));
    let groups = Groups::read(&rest[1 + parenthesis..]);
    let is = |digits: &[u8], _: &str| (8..=15).contains(&digits.len()) && digits[0] != 0;
    groups
        .longest(&rest[1 + parenthesis..], is)
        .map(|length| length + 1 + parenthesis)
}

fn is_north_american(digits: &[u8]) -> bool {
    digits.len() == 10 && digits[0] > 1 && digits[3] > 1
}

fn is_national_phone(digits: &[u8], shape: &str) -> bool {
    let north_american = ["000-000-0000", "000.000.0000", "000 000 0000"].contains(&shape) && is_north_american(digits);
    // 00 and the country.
    let international =
        shape.starts_with("00") && digits.starts_with(&[0, 0]) && (10..=17).contains(&digits.len()) && digits[2] != 0;
    let trunk = digits.len() > 1 && digits[0] == 0 && digits[1] != 0;
    let first = shape.bytes().take_while(|b| *b == b'0').count();
    // The 5th of November, and the hour behind it.
    let date = shape.starts_with("00-00-0000") || shape.starts_with("00/00/0000");
    let grouped =
        !date && first >= 2 && first < shape.len() && !shape.contains('.') && (9..=12).contains(&digits.len());
    let french = shape == "00.00.00.00.00";
    let together = first == shape.len() && (10..=11).contains(&digits.len());
    north_american || international || (trunk && (grouped || together || french))
}

/// Luhn's check over 13 to 19 digits of a known kind of issuer, together or in groups of three and more.
fn is_card(digits: &[u8], shape: &str) -> bool {
    let issued = matches!(digits.first(), Some(2..=6)) && (13..=19).contains(&digits.len());
    let groups = || {
        shape
            .split([' ', '-', '.'])
            .all(|group| group.len() >= 3 && group.bytes().all(|b| b == b'0'))
    };
    issued && groups() && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let each = digits.iter().rev().enumerate().map(|(i, digit)| {
        let digit = u32::from(*digit);
        if i % 2 == 0 {
            digit
        } else {
            2 * digit / 10 + 2 * digit % 10
        }
    });
    each.sum::<u32>().is_multiple_of(10)
}
