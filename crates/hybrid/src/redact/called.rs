//! What words before a number say that it is: a phone, an insurance number.

use super::fold;

/// Words for a phone, without accents. Those of scripts without spaces may be the end of a longer word.
const PHONES: &[&str] = &[
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
    "mobil",
    "mob",
    "gsm", // English, German, Dutch and Scandinavian.
    "mobiltelefon",
    "rufnummer",
    "durchwahl",
    "telefoon",
    "mobiel",
    "tlf",
    "puhelin",
    "matkapuhelin",
    "telefono",
    "celular",
    "cel",
    "movil",
    "cellulare",
    "recapito", // Spanish and Italian.
    "telefone",
    "telemovel",
    "tlm", // Portuguese.
    "telefonu",
    "telefonul",
    "komorka",
    "komorkowy",
    "kom",
    "cep",
    "ceptel",
    "telefonszam", // Polish, Turkish, Hungarian.
    "телефон",
    "телефона",
    "телефону",
    "тел",
    "моб",
    "мобильный",
    "сотовый",
    "мобільний", // Cyrillic.
    "τηλεφωνο",
    "τηλ",
    "κινητο",
    "هاتف",
    "الهاتف",
    "جوال",
    "موبايل",
    "تلفن",
    "موبایل",
    "טלפון",
    "נייד",
    "फोन",
    "मोबाइल",
    "thoai",
    "sdt",
    "telepon",
    "telp",
];
const PHONES_AT_THE_END: &[&str] = &[
    "电话",
    "手机",
    "手机号",
    "手机号码",
    "电话号码",
    "电话号",
    "電話",
    "電話番号",
    "電話號碼",
    "手機",
    "手機號碼",
    "携帯",
    "携帯番号",
    "携帯電話",
    "전화",
    "전화번호",
    "휴대폰",
    "휴대전화",
    "핸드폰",
    "연락처",
    "휴대폰번호",
    "โทร",
    "โทรศัพท์",
    "เบอร์โทร",
];
/// What may stand between such a word and the number.
const BETWEEN: &[&str] = &[
    "number",
    "no",
    "nr",
    "num",
    "nummer",
    "numero",
    "numer",
    "номер",
    "numarasi",
    "번호",
    "is",
    "me",
    "at",
    "on",
    "ist",
    "es",
    "est",
    "e",
    "jest",
    "to",
    "under",
    "unter",
    "auf",
    "au",
    "al",
    "su",
    "по",
    "pod",
    "er",
    "ar",
    "nuevo",
    "new",
    "work",
    "home",
];
/// Verbs and particles that are written together with the word before them.
const ENDS: &[char] = &['是', '为', '為', 'は', 'を', '은', '는', '이', '가'];

/// Whether what stands before says that a phone number follows.
pub(super) fn is_phone(before: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&before[before.len().saturating_sub(64)..]);
    let text = fold::plain(&text);
    let words = text
        .split(|c: char| !is_letter(c))
        .filter(|word| !word.is_empty())
        .rev();
    words
        .take(4)
        .find(|word| !BETWEEN.contains(word))
        .is_some_and(names_phone)
}

/// Whether a key of JSON names a phone: `phone`, `mobileNumber`, `contact_tel`.
pub(super) fn is_phone_key(key: &str) -> bool {
    let mut words = String::new();
    for c in key.chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(c);
    }
    is_phone(words.as_bytes())
}

fn names_phone(word: &str) -> bool {
    let known = |word: &str| PHONES.contains(&word) || PHONES_AT_THE_END.iter().any(|end| word.ends_with(end));
    let shorter = ["number", "nummer", "nr", "num", "no"]
        .iter()
        .find_map(|end| word.strip_suffix(end));
    known(word) || shorter.is_some_and(known) || known(word.trim_end_matches(ENDS))
}

/// Whether what stands before says that a number of the national insurance of the United Kingdom follows.
pub(super) fn is_insurance(before: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&before[before.len().saturating_sub(40)..]).to_ascii_lowercase();
    let text = text.replace(|c: char| !c.is_alphanumeric(), " ");
    let mut text = text.trim_end();
    for between in [" is", " number", " no", " num"] {
        text = text.strip_suffix(between).unwrap_or(text).trim_end();
    }
    let word = |name: &str| {
        let head = text.strip_suffix(name);
        head.is_some_and(|head| !head.ends_with(|c: char| c.is_alphanumeric()))
    };
    ["nino", "ni", "national insurance", "insurance", "ninumber"]
        .into_iter()
        .any(word)
}

/// Letters, and the marks that belong to those of some scripts.
fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '\u{900}'..='\u{dff}' | '\u{e31}'..='\u{e4e}')
}
