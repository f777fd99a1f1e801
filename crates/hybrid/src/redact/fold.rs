//! A text as it is looked through: one form for what is written in several, so that every search finds each of them.
//!
//! Wide letters and the digits of other scripts become ASCII, spaces, hyphens and quotes the plain ones, and what nobody sees (soft
//! hyphens, joiners, marks of direction) is gone. What is found is given back as bytes of the text itself.

/// A text in its plain form.
pub(super) struct Folded {
    pub(super) text: String,
    /// For each byte, where its character begins in what was folded.
    origins: Vec<usize>,
}

impl Folded {
    /// The plain form, or none where it is the text itself.
    pub(super) fn of(text: &str) -> Option<Folded> {
        let same = |c: char| c.is_ascii() || matches!(form(c), Some(form) if form == c);
        if text.is_ascii() || text.chars().all(same) {
            return None;
        }
        let mut folded = Folded {
            text: String::with_capacity(text.len()),
            origins: Vec::with_capacity(text.len()),
        };
        for (at, c) in text.char_indices() {
            if let Some(c) = form(c) {
                folded.text.push(c);
                folded.origins.resize(folded.text.len(), at);
            }
        }
        Some(folded)
    }

    /// The bytes of `text`, from which this was folded, that became these.
    pub(super) fn origin(&self, text: &str, start: usize, end: usize) -> (usize, usize) {
        let last = self.origins[end - 1];
        let length = text[last..].chars().next().map_or(0, char::len_utf8);
        (self.origins[start], last + length)
    }
}

/// The first of ten digits in each script that has such, apart from ASCII's and the wide ones.
const ZEROS: [char; 19] = [
    '\u{660}', '\u{6f0}', '\u{7c0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}', '\u{be6}', '\u{c66}',
    '\u{ce6}', '\u{d66}', '\u{e50}', '\u{ed0}', '\u{f20}', '\u{1040}', '\u{17e0}', '\u{1810}', '\u{a9d0}',
];

/// The plain form of a character; none of what is not seen.
fn form(c: char) -> Option<char> {
    let code = u32::from(c);
    Some(match c {
        '\0'..='\u{7f}' => c,
        '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => return None,
        '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => return None,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{fe63}' => '-',
        '“' | '”' | '„' | '‟' | '«' | '»' | '「' | '」' | '『' | '』' => '"',
        '‘' | '’' | '‚' | '‛' => '\'',
        // The brackets of our placeholders stay what they are.
        '\u{ff3b}' | '\u{ff3d}' => c,
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(code - 0xff01 + 0x21)?,
        '\u{1d7ce}'..='\u{1d7ff}' => char::from_digit((code - 0x1d7ce) % 10, 10)?,
        _ => {
            let zero = ZEROS.iter().map(|zero| u32::from(*zero));
            let digit = zero.filter(|zero| *zero <= code).map(|zero| code - zero).min();
            match digit {
                Some(digit @ 0..=9) => char::from_digit(digit, 10)?,
                _ => c,
            }
        }
    })
}

/// A word without capitals and accents, as lists of words have it.
pub(super) fn plain(word: &str) -> String {
    let plain = |c: char| {
        Some(match c {
            '\0'..='\u{7f}' => c,
            '\u{300}'..='\u{36f}' => return None,
            'à'..='å' | 'ā' | 'ă' | 'ą' | '\u{1ea0}'..='\u{1eb7}' => 'a',
            'ç' | 'ć' | 'č' => 'c',
            'ď' | 'đ' => 'd',
            'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' | '\u{1eb8}'..='\u{1ec7}' => 'e',
            'ğ' => 'g',
            'ì'..='ï' | 'ī' | 'į' | 'ı' | '\u{1ec8}'..='\u{1ecb}' => 'i',
            'ł' => 'l',
            'ñ' | 'ń' | 'ň' => 'n',
            'ò'..='ö' | 'ø' | 'ō' | 'ő' | 'ơ' | '\u{1ecc}'..='\u{1ee3}' => 'o',
            'ř' => 'r',
            'ś' | 'ş' | 'š' | 'ș' => 's',
            'ť' | 'ţ' | 'ț' => 't',
            'ù'..='ü' | 'ū' | 'ů' | 'ű' | 'ų' | 'ư' | '\u{1ee4}'..='\u{1ef1}' => 'u',
            'ý' | 'ÿ' => 'y',
            'ź' | 'ż' | 'ž' => 'z',
            'ά' => 'α',
            'έ' => 'ε',
            'ή' => 'η',
            'ί' => 'ι',
            'ό' => 'ο',
            'ύ' => 'υ',
            'ώ' => 'ω',
            'ς' => 'σ',
            'ё' => 'е',
            _ => c,
        })
    };
    word.chars().flat_map(char::to_lowercase).filter_map(plain).collect()
}
