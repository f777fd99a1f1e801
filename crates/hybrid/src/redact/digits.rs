//! Numbers written in groups: cards, phones, and national ids without letters.

use super::{Kind, called, detect::ends, identity};

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
const SEPARATORS: &[u8] = b" -./()\t\r\n_,";
/// Those that stand between numbers more often than within one.
const WIDE: [char; 5] = ['\t', '\r', '\n', '_', ','];

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
            // A line break is one separator.
            at += usize::from(rest[at..].starts_with(b"\r\n"));
            separators += 1;
            if separators > 2 || !SEPARATORS.contains(&rest[at]) {
                break;
            }
            groups.shape.push(char::from(rest[at]));
            at += 1;
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

    /// As [`Groups::longest`], within a line, or else over one line break.
    fn phone(&self, rest: &[u8], is: impl Fn(&[u8], &str) -> bool) -> Option<usize> {
        let within = self.longest(rest, |digits, shape| !shape.contains(WIDE) && is(digits, shape));
        within.or_else(|| {
            let broken = |shape: &str| !shape.replacen('\n', " ", 1).contains(WIDE);
            self.longest(rest, |digits, shape| {
                digits.len() >= 9 && broken(shape) && is(digits, shape)
            })
        })
    }

    /// A card whose groups have between them what rarely stands within a number, or are pairs. Beside it there are no more such groups.
    fn spread_card(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let rest = &bytes[at..];
        let is = |digits: &[u8], shape: &str| {
            let marks = shape.replace("00", "");
            let pairs = shape.len() == 23 && shape.split([' ', '-', '.', '_']).all(|group| group == "00");
            let pairs = pairs && marks.chars().all(|mark| marks.starts_with(mark));
            (pairs || is_printed(shape)) && is_issued(digits) && luhn(digits)
        };
        let end = self.longest(rest, is)?;
        let pair = rest[2..3].iter().all(|b| !b.is_ascii_digit());
        let in_group = |b: &&u8| b.is_ascii_digit() || (pair && b.is_ascii_hexdigit());
        let width = if pair { 2 } else { 4 };
        let gap = |bytes: &[u8]| bytes.iter().take(3).take_while(|b| SEPARATORS.contains(b)).count();
        let after = &rest[end..];
        let after = after[gap(after)..].iter().take(5).take_while(in_group).count();
        let before: Vec<u8> = bytes[at.saturating_sub(8)..at].iter().rev().copied().collect();
        let before = before[gap(&before)..].iter().take(5).take_while(in_group).count();
        (after != width && before != width).then_some(end)
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
    let card = groups.longest(rest, is_card).or_else(|| groups.spread_card(bytes, at));
    with(Kind::Card, card)
        .or_else(|| with(Kind::NationalId, groups.longest(rest, identity::of_digits)))
        .or_else(|| with(Kind::Phone, groups.longest(rest, is_national_phone)))
        .or_else(|| {
            let is = |digits: &[u8], shape: &str| (7..=15).contains(&digits.len()) && !shape.starts_with("0000-00-00");
            with(Kind::Phone, groups.phone(rest, is)).filter(|_| called::is_phone(&bytes[..at]))
        })
}

/// A card that is written together with the word before it: `Karte4111 1111 1111 1111`.
pub(super) fn glued_card(bytes: &[u8], at: usize) -> Option<usize> {
    let letters = bytes[..at]
        .iter()
        .rev()
        .take(24)
        .take_while(|b| b.is_ascii_alphabetic())
        .count();
    if letters < 2 || !begins(bytes, at - letters) {
        return None;
    }
    let groups = Groups::read(&bytes[at..]);
    let is = |digits: &[u8], shape: &str| {
        is_issued(digits) && is_card(digits, shape) && (!shape.contains(|c| c != '0') || is_printed(shape))
    };
    groups.longest(&bytes[at..], is)
}

fn begins(bytes: &[u8], at: usize) -> bool {
    at == 0 || !bytes[at - 1].is_ascii_alphanumeric()
}

/// Whether the whole text is a phone number, once its name says that one is there.
pub(super) fn is_phone_text(text: &str) -> bool {
    let bytes = text.trim().as_bytes();
    let bytes = bytes.strip_prefix(b"+").unwrap_or(bytes);
    let bytes = bytes.strip_prefix(b"(").unwrap_or(bytes);
    let is = |digits: &[u8], shape: &str| (7..=15).contains(&digits.len()) && !shape.starts_with("0000-00-00");
    Groups::read(bytes).phone(bytes, is) == Some(bytes.len())
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
                is_national_phone(digits, &grouped) || is_north_american(digits) || is_brazilian(digits, shape)
            }
        };
        return groups.longest(&rest[1..], is).map(|length| length + 1);
    }
    let parenthesis = usize::from(rest.get(1) == Some(&b'('));
    let groups = Groups::read(&rest[1 + parenthesis..]);
    let is = |digits: &[u8], _: &str| (8..=15).contains(&digits.len()) && digits[0] != 0;
    groups
        .phone(&rest[1 + parenthesis..], is)
        .map(|length| length + 1 + parenthesis)
}

fn is_north_american(digits: &[u8]) -> bool {
    digits.len() == 10 && digits[0] > 1 && digits[3] > 1
}

/// `(11) 91234-5678`, behind the parenthesis.
fn is_brazilian(digits: &[u8], shape: &str) -> bool {
    let area = digits[0] > 0 && digits[1] > 0;
    area && (["00) 00000-0000", "00)00000-0000"].contains(&shape) && digits[2] == 9
        || ["00) 0000-0000", "00)0000-0000"].contains(&shape) && (2..=5).contains(&digits[2]))
}

/// Forms of single countries that hardly anything else has.
fn is_of_country(digits: &[u8], shape: &str) -> bool {
    match (digits, shape) {
        // China.
        ([1, 3..=9, ..], "000-0000-0000" | "000 0000 0000") => true,
        // Brazil.
        ([1..=9, 1..=9, 9, ..], "00 00000-0000") => true,
        // Russia and Kazakhstan, with their trunk prefix or their country.
        (
            [7 | 8, 3..=9, ..],
            "0-000-000-00-00" | "0 000 000-00-00" | "0 000 000 00 00" | "0 (000) 000-00-00" | "0(000)000-00-00"
            | "0 (000) 000 00 00" | "0(000)0000000" | "0 (000) 0000000",
        ) => true,
        // Spain.
        ([6..=9, ..], "000 00 00 00") => true,
        // North America, with its country.
        (
            [1, number @ ..],
            "0-000-000-0000" | "0 000 000 0000" | "0 000-000-0000" | "0 (000) 000-0000" | "0(000)000-0000"
            | "0.000.000.0000",
        ) => is_north_american(number),
        _ => false,
    }
}

fn is_national_phone(digits: &[u8], shape: &str) -> bool {
    if shape.contains(WIDE) {
        return false;
    }
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
    north_american || international || is_of_country(digits, shape) || (trunk && (grouped || together || french))
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

/// Groups as on a card, with anything between them.
fn is_printed(shape: &str) -> bool {
    let groups: Vec<usize> = shape
        .split(|c| c != '0')
        .map(str::len)
        .filter(|length| *length > 0)
        .collect();
    [&[4, 4, 4, 4][..], &[4, 4, 4, 4, 3], &[4, 6, 5], &[4, 6, 4]].contains(&&groups[..])
}

/// Whether the first digits are those of an issuer of cards of this length.
fn is_issued(digits: &[u8]) -> bool {
    let first = |n: usize| {
        digits
            .iter()
            .take(n)
            .fold(0, |number, digit| number * 10 + u32::from(*digit))
    };
    let lengths = match (first(2), first(3), first(4)) {
        (34 | 37, ..) => 15..=15,
        (40..=49, ..) => 13..=19,
        (51..=55, ..) | (_, _, 2221..=2720 | 9792) => 16..=16,
        (_, _, 2200..=2204 | 6011 | 3528..=3589) | (62 | 65, ..) | (_, 644..=649, _) => 16..=19,
        (36 | 38 | 39, ..) | (_, 300..=305, _) => 14..=19,
        (50 | 56..=58 | 60 | 63 | 67, ..) => 16..=19,
        _ => return false,
    };
    lengths.contains(&digits.len())
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
