//! Which tokens a language is written with, by their letters: a model that writes whatever it hears is held to one language so.
//!
//! Letters are facts of Unicode CLDR 48 (`exemplarCharacters` of `cldr-misc-full`, without the combinations in braces, which are spelled with
//! others of them), for the languages of NVIDIA's Parakeet TDT 0.6B v3. Pure functions of a vocabulary.

use crate::{Error, Result};
use cactus_text::Tokenizer;
use std::collections::BTreeSet;

/// Languages in Latin letters, and their letters beside `a` to `z`. Those are allowed in all of them, for names and words of others.
const LATIN: [(&str, &str); 21] = [
    ("cs", "áéíóúýčďěňřšťůž"),
    ("da", "åæø"),
    ("de", "ßäöü"),
    ("en", ""),
    ("es", "áéíñóúü"),
    ("et", "äõöüšž"),
    ("fi", "äåöšž"),
    ("fr", "àâæçèéêëîïôùûüÿœ"),
    ("hr", "ćčđšž"),
    ("hu", "áéíóöúüőű"),
    ("it", "àèéìòù"),
    ("lt", "ąčėęįšūųž"),
    ("lv", "āčēģīķļņšūž"),
    ("mt", "àèìòùċġħż"),
    ("nl", "áäéëíïóöúü"),
    ("pl", "óąćęłńśźż"),
    ("pt", "àáâãçéêíòóôõú"),
    ("ro", "âîășț"),
    ("sk", "áäéíóôúýčďĺľňŕšťž"),
    ("sl", "čšž"),
    ("sv", "àäåéö"),
];
/// Languages in other letters, with all of them.
const OTHERS: [(&str, &str); 4] = [
    ("bg", "абвгдежзийклмнопрстуфхцчшщъьюя"),
    ("el", "ΐάέήίΰαβγδεζηθικλμνξοπρςστυφχψωϊϋόύώ"),
    ("ru", "абвгдежзийклмнопрстуфхцчшщъыьэюяё"),
    ("uk", "ʼабвгдежзийклмнопрстуфхцчшщьюяєіїґ"),
];
/// Accents that are characters of their own, and make other letters of those before them.
const ACCENTS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';

/// Codes of all the languages, with their letters.
fn alphabets() -> impl Iterator<Item = (&'static str, BTreeSet<char>)> {
    let latin = LATIN
        .iter()
        .map(|(code, own)| (*code, ('a'..='z').chain(own.chars()).collect()));
    latin.chain(OTHERS.iter().map(|(code, own)| (*code, own.chars().collect())))
}

/// The letters of a text, as small ones. Digits, punctuation and spaces are none.
fn letters(text: &str) -> impl Iterator<Item = char> {
    let is_letter = |c: &char| c.is_alphabetic() || ACCENTS.contains(c);
    text.chars().filter(is_letter).flat_map(char::to_lowercase)
}

/// What each token writes; `None` where that is no whole character, but bytes of one.
fn texts(tokenizer: &Tokenizer) -> impl Iterator<Item = (u32, Option<String>)> {
    let ids = (0..tokenizer.vocab_size() as u32).filter(|&id| !tokenizer.is_special(id));
    ids.map(|id| {
        (
            id,
            tokenizer
                .token_bytes(id)
                .and_then(|bytes| String::from_utf8(bytes).ok()),
        )
    })
}

/// Codes of the languages that a vocabulary writes: it has `a` to `z` where these belong to the language, and three of four of the other
/// letters. No more, as real vocabularies lack rare ones: that of Parakeet v3 has neither `ÿ` nor `ς`.
pub(super) fn written(tokenizer: &Tokenizer) -> Vec<&'static str> {
    let known: BTreeSet<char> = texts(tokenizer)
        .filter_map(|(_, text)| text)
        .flat_map(|text| letters(&text).collect::<Vec<char>>())
        .collect();
    let is_written = |alphabet: &BTreeSet<char>| {
        let (plain, others): (Vec<char>, Vec<char>) = alphabet.iter().partition(|c| c.is_ascii());
        let missing = others.iter().filter(|c| !known.contains(c)).count();
        plain.iter().all(|c| known.contains(c)) && 4 * missing <= others.len()
    };
    let written = alphabets().filter(|(_, alphabet)| is_written(alphabet));
    let mut codes: Vec<&str> = written.map(|(code, _)| code).collect();
    codes.sort_unstable();
    codes
}

/// What may not be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    /// Ascending.
    never: Vec<u32>,
}

impl Lock {
    /// Holds text to the letters of the language `code`. Tokens without letters are allowed; those of other letters are not, nor are bytes
    /// of characters, which would write any.
    ///
    /// # Errors
    /// [`Error::Option`] for a language that is none of `written`.
    pub(super) fn new(tokenizer: &Tokenizer, code: &str, written: &[&str], blank: u32) -> Result<Lock> {
        let found = alphabets().find(|(known, _)| *known == code && written.contains(known));
        let Some((_, alphabet)) = found else {
            let what = match (written.is_empty(), alphabets().any(|(known, _)| known == code)) {
                (true, _) => "its vocabulary has the letters of no language that is known here; leave the language out"
                    .to_owned(),
                (_, true) => format!(
                    "its vocabulary lacks letters of `{code}`; leave the language out, or take one that it writes: {}",
                    written.join(", ")
                ),
                (_, false) => format!(
                    "it is held to a language by its letters, which are not known here of `{code}`; leave the language out, or take one of {}",
                    written.join(", ")
                ),
            };
            return Err(Error::Option(format!(
                "this model cannot be told the language `{code}`: {what}"
            )));
        };
        let is_foreign = |text: &Option<String>| match text {
            Some(text) => letters(text).any(|c| !alphabet.contains(&c)),
            None => true,
        };
        let never = texts(tokenizer).filter(|(id, text)| *id != blank && is_foreign(text));
        Ok(Lock {
            never: never.map(|(id, _)| id).collect(),
        })
    }

    /// Whether all of `tokens` may be written.
    pub(crate) fn allows(&self, tokens: &[u32]) -> bool {
        tokens.iter().all(|token| self.never.binary_search(token).is_err())
    }

    /// Takes away from `logits` what may not be written: it is less than anything that is only unlikely.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for &token in &self.never {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of these words; the unknown token and the blank are special.
    fn tokenizer(words: &[&str]) -> Tokenizer {
        let vocab: serde_json::Map<String, serde_json::Value> = ["<unk>"]
            .iter()
            .chain(words)
            .chain(&["<blank>"])
            .enumerate()
            .map(|(id, word)| ((*word).to_owned(), id.into()))
            .collect();
        let special = |id: usize, content: &str| serde_json::json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
        let json = serde_json::json!({
            "version": "1.0",
            "added_tokens": [special(0, "<unk>"), special(words.len() + 1, "<blank>")],
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": vocab, "merges": []},
        });
        Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
    }

    const PLAIN: &str = "abcdefghijklmnopqrstuvwxyz";

    #[test]
    fn languages_are_those_whose_letters_the_vocabulary_has() {
        let greek = "άέήίαβγδεζηθικλμνξοπρστυφχψωϊόύώ";
        let russian = "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ";
        for (letters, expected) in [
            (PLAIN.to_owned(), vec!["en"]),
            (PLAIN.to_uppercase(), vec!["en"]),
            (PLAIN.replace('q', ""), vec![]),
            (format!("{PLAIN}äöüß"), vec!["de", "en"]),
            // Rare letters may be missing.
            (format!("{PLAIN}äöü"), vec!["de", "en"]),
            (format!("{PLAIN}éêèàâçîôùûœëïæü"), vec!["en", "fr"]),
            (greek.to_owned(), vec!["el"]),
            (russian.to_owned(), vec!["bg", "ru", "uk"]),
        ] {
            let words: Vec<String> = letters.chars().map(String::from).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(written(&tokenizer(&words)), expected, "{letters}");
        }
    }

    #[test]
    fn tokens_of_other_letters_may_not_be_written() {
        let words = [
            "▁Straße",
            "▁garçon",
            "▁да",
            "на",
            "▁12",
            "?",
            "▁",
            "▁e\u{301}",
            "<0xC3>",
            "<0x41>",
            "ÜBER",
            "▁naïve",
            "語",
            "-",
            "x",
        ];
        let tokenizer = tokenizer(&words);
        let allowed = |code: &str| -> Vec<&str> {
            let lock = Lock::new(&tokenizer, code, &["de", "fr", "ru"], 16).unwrap();
            let mut logits = vec![0.0; 18];
            lock.apply(&mut logits);
            assert_eq!(
                (logits[0], logits[16], logits[17]),
                (0.0, 0.0, 0.0),
                "special, and no token"
            );
            let places = (0..words.len()).filter(|i| logits[i + 1] == 0.0);
            assert!(places.clone().all(|i| lock.allows(&[0, i as u32 + 1])));
            assert_eq!(lock.never.len(), words.len() - places.clone().count());
            places.map(|i| words[i]).collect()
        };
        let none = ["▁12", "?", "▁", "-"];
        assert_eq!(allowed("de"), ["▁Straße", "▁12", "?", "▁", "<0x41>", "ÜBER", "-", "x"]);
        assert_eq!(
            allowed("fr"),
            ["▁garçon", "▁12", "?", "▁", "<0x41>", "ÜBER", "▁naïve", "-", "x"]
        );
        assert_eq!(allowed("ru"), [&["▁да", "на"], &none[..]].concat());
        let refused = |code, written: &[&str]| Lock::new(&tokenizer, code, written, 16).unwrap_err().to_string();
        for (code, written, why) in [
            ("sl", &["de", "en"][..], "lacks letters of `sl`"),
            ("zh", &["de", "en"], "take one of de, en"),
            ("de", &[], "no language that is known"),
        ] {
            assert!(refused(code, written).contains(why), "{}", refused(code, written));
        }
        assert!(Lock::default().allows(&[1, 2, 3]));
    }

    #[test]
    fn letters_of_the_tables_are_small_and_each_is_there_once() {
        let mut codes = BTreeSet::new();
        for (code, own) in LATIN.iter().chain(&OTHERS) {
            assert!(codes.insert(code), "{code}");
            let alphabet: BTreeSet<char> = own.chars().collect();
            assert_eq!(alphabet.len(), own.chars().count(), "{code}");
            assert!(
                own.chars().all(|c| !c.is_ascii() && letters(&c.to_string()).eq([c])),
                "{code}"
            );
        }
        assert_eq!(codes.len(), 25);
    }
}
