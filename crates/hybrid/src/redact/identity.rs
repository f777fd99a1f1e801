//! Numbers of persons and accounts, by their check digits where they have such.

use super::{called, detect::ends};

/// Lengths of IBANs by country (SWIFT's registry).
const IBAN_LENGTHS: &str = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18\
FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19\
MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22\
VG24XK20YE30";

pub(super) fn iban(rest: &[u8]) -> Option<usize> {
    let country = rest.get(..2)?.to_ascii_uppercase();
    let known = IBAN_LENGTHS
        .as_bytes()
        .chunks_exact(4)
        .find(|known| known[..2] == country[..])?;
    let length = usize::from(known[2] - b'0') * 10 + usize::from(known[3] - b'0');
    let (mut characters, mut at, mut gap) = (Vec::with_capacity(length), 0, 0);
    while characters.len() < length {
        match *rest.get(at)? {
            b if b.is_ascii_alphanumeric() => {
                characters.push(b.to_ascii_uppercase());
                gap = 0;
            }
            // At most a space and a line break.
            b' ' | b'-' | b'.' | b'\t' | b'\r' | b'\n' if gap < 3 => gap += 1,
            _ => return None,
        }
        at += 1;
    }
    // ISO 13616: the first four to the end, letters as 10 to 35, modulo 97.
    characters.rotate_left(4);
    let remainder = characters.iter().fold(0, |remainder, c| match c {
        b'0'..=b'9' => (remainder * 10 + u32::from(c - b'0')) % 97,
        _ => (remainder * 100 + u32::from(c - b'A') + 10) % 97,
    });
    (remainder == 1 && ends(rest, at)).then_some(at)
}

/// Ids that are digits and a last letter: Spain (DNI, modulo 23) and China (ISO 7064 MOD 11-2).
pub(super) fn digits_and_letter(rest: &[u8]) -> Option<usize> {
    let count = rest.iter().take(19).take_while(|b| b.is_ascii_digit()).count();
    let digits: Vec<u32> = rest[..count].iter().map(|b| u32::from(b - b'0')).collect();
    match count {
        8 => dni(&digits, &rest[8..]).map(|more| 8 + more),
        17 | 18 => {
            let last = match rest.get(17)? {
                b'X' | b'x' => 10,
                digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
                _ => return None,
            };
            let sum: u32 = digits
                .iter()
                .take(17)
                .enumerate()
                .map(|(i, d)| d * ((1u32 << (17 - i)) % 11))
                .sum();
            let month = digits[10] * 10 + digits[11];
            let day = digits[12] * 10 + digits[13];
            let dated = (1..=12).contains(&month) && (1..=31).contains(&day) && [1, 2].contains(&digits[6]);
            ((sum + last) % 11 == 1 && dated && ends(rest, 18)).then_some(18)
        }
        _ => None,
    }
}

/// The letter behind the digits of a Spanish id, with or without a hyphen.
fn dni(digits: &[u32], rest: &[u8]) -> Option<usize> {
    let hyphen = usize::from(rest.first() == Some(&b'-'));
    let letter = rest.get(hyphen)?.to_ascii_uppercase();
    let number = digits.iter().fold(0, |number, digit| number * 10 + digit);
    let right = b"TRWAGMYFPDXBNJZSQVHLCKE"[(number % 23) as usize] == letter;
    (right && ends(rest, hyphen + 1)).then_some(hyphen + 1)
}

/// Ids that begin with a letter: Spain (NIE), Italy (codice fiscale), the United Kingdom (NINO, which has no check digit).
pub(super) fn with_letters(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    // In small letters it could be anything, unless it is named.
    let named = || {
        let head = rest[..rest.len().min(16)].to_ascii_uppercase();
        nino(&head).filter(|length| called::is_insurance(&bytes[..at]) && ends(rest, *length))
    };
    nie(rest)
        .or_else(|| codice_fiscale(rest))
        .or_else(|| nino(rest))
        .or_else(named)
}

fn nie(rest: &[u8]) -> Option<usize> {
    let first = b"XYZ".iter().position(|letter| rest[0].eq_ignore_ascii_case(letter))? as u32;
    let hyphen = usize::from(rest.get(1) == Some(&b'-'));
    let digits = rest.get(1 + hyphen..8 + hyphen)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits: Vec<u32> = [first]
        .into_iter()
        .chain(digits.iter().map(|b| u32::from(b - b'0')))
        .collect();
    dni(&digits, &rest[8 + hyphen..]).map(|more| 8 + hyphen + more)
}

fn codice_fiscale(rest: &[u8]) -> Option<usize> {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23,
    ];
    let code = rest.get(..16)?.to_ascii_uppercase();
    let letters = [0, 1, 2, 3, 4, 5, 8, 11, 15];
    let shaped = code.iter().enumerate().all(|(i, c)| match letters.contains(&i) {
        true => c.is_ascii_uppercase(),
        // Digits may be replaced by these letters where two codes were equal.
        false => c.is_ascii_digit() || b"LMNPQRSTUV".contains(c),
    });
    if !shaped || !ends(rest, 16) {
        return None;
    }
    let index = |c: u8| u32::from(if c.is_ascii_digit() { c - b'0' } else { c - b'A' });
    let sum: u32 = code[..15]
        .iter()
        .enumerate()
        .map(|(i, c)| if i % 2 == 0 { ODD[index(*c) as usize] } else { index(*c) })
        .sum();
    (sum % 26 == index(code[15])).then_some(16)
}

fn nino(rest: &[u8]) -> Option<usize> {
    let head = rest.get(..2)?;
    let allowed = head.iter().all(|c| c.is_ascii_uppercase() && !b"DFIQUV".contains(c)) && head[1] != b'O';
    if !allowed
        || [b"BG", b"GB", b"KN", b"NK", b"NT", b"TN", b"ZZ"]
            .iter()
            .any(|no| head == *no)
    {
        return None;
    }
    let space = usize::from(rest.get(2) == Some(&b' '));
    let mut at = 2 + space;
    for pair in 0..3 {
        at += if pair > 0 { space } else { 0 };
        let spaced = pair == 0 || space == 0 || rest.get(at - 1) == Some(&b' ');
        if !spaced || !rest.get(at..at + 2)?.iter().all(u8::is_ascii_digit) {
            return None;
        }
        at += 2;
    }
    let last = at + space;
    let right = (space == 0 || rest.get(at) == Some(&b' ')) && matches!(rest.get(last), Some(b'A'..=b'D'));
    (right && ends(rest, last + 1)).then_some(last + 1)
}

/// Ids of digits alone, with their shapes (`0` for a digit).
pub(super) fn of_digits(digits: &[u8], shape: &str) -> bool {
    let together = shape.bytes().all(|b| b == b'0');
    match digits.len() {
        9 => ["000-00-0000", "000 00 0000"].contains(&shape) && ssn(digits),
        11 => {
            (together || shape == "000.000.000-00") && cpf(digits)
                || (together || shape == "00 000 000 000") && steuer_id(digits)
                || together && pesel(digits)
        }
        12 => (together || shape == "0000 0000 0000" || shape == "0000-0000-0000") && aadhaar(digits),
        15 => (together || shape == "0 00 00 00 000 000 00") && nir(digits),
        _ => false,
    }
}

/// United States: no check digit, but areas and groups that are never given.
fn ssn(d: &[u8]) -> bool {
    let area = number(&d[..3]);
    area != 0 && area != 666 && area < 900 && number(&d[3..5]) != 0 && number(&d[5..]) != 0
}

/// Brazil: two digits modulo 11.
fn cpf(d: &[u8]) -> bool {
    let check = |n: usize| {
        let sum: u64 = d[..n]
            .iter()
            .enumerate()
            .map(|(i, digit)| u64::from(*digit) * (n as u64 + 1 - i as u64))
            .sum();
        u64::from(d[n]) == sum * 10 % 11 % 10
    };
    d.iter().any(|digit| *digit != d[0]) && check(9) && check(10)
}

/// Germany: ISO 7064 MOD 11,10; of the first ten digits one comes twice or thrice.
fn steuer_id(d: &[u8]) -> bool {
    let product = d[..10].iter().fold(10, |product, digit| {
        let sum = (product + u32::from(*digit)) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    let counts: Vec<usize> = (0..10)
        .map(|n| d[..10].iter().filter(|digit| **digit == n).count())
        .collect();
    let repeated: Vec<&usize> = counts.iter().filter(|count| **count > 1).collect();
    let once = matches!(repeated[..], [2 | 3]);
    d[0] != 0 && once && (11 - product) % 10 == u32::from(d[10])
}

/// Poland: weights 1, 3, 7, 9 and a date.
fn pesel(d: &[u8]) -> bool {
    let sum: u64 = d[..10]
        .iter()
        .zip([1, 3, 7, 9].iter().cycle())
        .map(|(digit, weight)| u64::from(*digit) * weight)
        .sum();
    let (month, day) = (number(&d[2..4]) % 20, number(&d[4..6]));
    (sum + u64::from(d[10])).is_multiple_of(10) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// India: Verhoeff's check in the dihedral group of ten elements.
fn aadhaar(d: &[u8]) -> bool {
    const PERMUTED: [u8; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let times = |a: u8, b: u8| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b - 5) % 5,
        (false, true) => 5 + (a - 5 + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let check = d.iter().rev().enumerate().fold(0, |check, (i, digit)| {
        let permuted = (0..i % 8).fold(*digit, |digit, _| PERMUTED[usize::from(digit)]);
        times(check, permuted)
    });
    d[0] > 1 && check == 0
}

/// France: 97 less the number modulo 97. (Corsican departments have a letter, and are not found.)
fn nir(d: &[u8]) -> bool {
    let month = number(&d[3..5]);
    let dated = (1..=12).contains(&month) || (20..=42).contains(&month) || month >= 50;
    matches!(d[0], 1 | 2) && dated && 97 - number(&d[..13]) % 97 == number(&d[13..])
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(*digit))
}
