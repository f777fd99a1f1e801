//! Regular expressions of JSON Schema, which are ECMA-262's, in the syntax of Rust's `regex-syntax`.
//!
//! The two look alike and differ in what they mean: a dot stops at other line ends, `\s` is another set, brackets in a class are
//! letters there and set operations here. The translation keeps the meaning, or says what has none: lookaround, references
//! back, and word borders are no regular languages or not in the library.

/// White space of ECMA-262, without brackets around it.
const SPACE: &str = r"\t\n\x0b\x0c\r \x{a0}\x{feff}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}";
/// What a dot matches.
const DOT: &str = r"[^\n\r\x{2028}\x{2029}]";
/// What has a meaning outside of classes.
const META: &str = r"\.+*?()|[]{}^$#&-~";

/// One member of a class, or what an escape stands for.
enum Item {
    Letter(char),
    Set(String),
}

struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
}

/// The same expression for Rust.
///
/// # Errors
/// What cannot be translated.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader {
        chars: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
    };
    while let Some(c) = reader.chars.next() {
        match c {
            '.' => reader.out.push_str(DOT),
            '\\' => {
                let item = reader.escape(false)?;
                reader.put(&item);
            }
            '(' => reader.group()?,
            '[' => reader.class()?,
            '*' | '+' | '?' => {
                reader.out.push(c);
                reader.skip_lazy();
            }
            '{' => reader.braces()?,
            '|' | ')' | '^' | '$' => reader.out.push(c),
            c => reader.put(&Item::Letter(c)),
        }
    }
    Ok(reader.out)
}

impl Reader<'_> {
    fn put(&mut self, item: &Item) {
        match item {
            Item::Letter(c) if META.contains(*c) => self.out.extend(['\\', *c]),
            Item::Letter(c) if c.is_control() || *c == '/' => self.out.push_str(&code(*c)),
            Item::Letter(c) => self.out.push(*c),
            Item::Set(set) => self.out.push_str(set),
        }
    }

    /// A lazy quantifier matches the same texts as a greedy one.
    fn skip_lazy(&mut self) {
        self.chars.next_if_eq(&'?');
    }

    fn group(&mut self) -> Result<(), String> {
        if self.chars.next_if_eq(&'?').is_none() {
            self.out.push_str("(?:");
            return Ok(());
        }
        match (self.chars.next(), self.chars.peek().copied()) {
            (Some(':'), _) => {}
            (Some('<'), Some(c)) if c != '=' && c != '!' => {
                if !self.chars.by_ref().any(|c| c == '>') {
                    return Err("a group's name has no end".to_owned());
                }
            }
            (Some('=' | '!' | '<'), _) => return Err("it looks ahead or behind".to_owned()),
            (Some(c), _) => return Err(format!("`(?{c}` is not in ECMA-262")),
            (None, _) => return Err("it ends in `(?`".to_owned()),
        }
        self.out.push_str("(?:");
        Ok(())
    }

    fn braces(&mut self) -> Result<(), String> {
        let mut text = String::new();
        let mut ahead = self.chars.clone();
        let counts = loop {
            match ahead.next() {
                Some('}') => break !text.is_empty() && text.starts_with(|c: char| c.is_ascii_digit()),
                Some(c) if c.is_ascii_digit() || (c == ',' && !text.contains(',')) => text.push(c),
                _ => break false,
            }
        };
        if counts {
            self.chars = ahead;
            self.out.push_str(&format!("{{{text}}}"));
            self.skip_lazy();
        } else {
            self.out.push_str("\\{");
        }
        Ok(())
    }

    /// What follows a backslash.
    fn escape(&mut self, in_class: bool) -> Result<Item, String> {
        let c = self.chars.next().ok_or("it ends in a backslash")?;
        Ok(match c {
            // Digits and word letters are ASCII in ECMA-262.
            'd' => Item::Set("[0-9]".to_owned()),
            'D' => Item::Set("[^0-9]".to_owned()),
            'w' => Item::Set("[0-9A-Za-z_]".to_owned()),
            'W' => Item::Set("[^0-9A-Za-z_]".to_owned()),
            's' => Item::Set(format!("[{SPACE}]")),
            'S' => Item::Set(format!("[^{SPACE}]")),
            'p' | 'P' => {
                let name: String = self.chars.by_ref().take_while(|&c| c != '}').collect();
                let name = name.strip_prefix('{').ok_or("`\\p` needs a name in braces")?;
                Item::Set(format!("\\{c}{{{name}}}"))
            }
            'n' => Item::Letter('\n'),
            'r' => Item::Letter('\r'),
            't' => Item::Letter('\t'),
            'v' => Item::Letter('\u{b}'),
            'f' => Item::Letter('\u{c}'),
            '0' if !self.chars.peek().is_some_and(char::is_ascii_digit) => Item::Letter('\0'),
            'b' if in_class => Item::Letter('\u{8}'),
            'b' | 'B' => return Err(format!("it asks for a word border (`\\{c}`)")),
            '0'..='9' | 'k' => return Err(format!("it refers back to a group (`\\{c}`)")),
            'c' => {
                let letter = self.chars.next().filter(char::is_ascii_alphabetic);
                let letter = letter.ok_or("`\\c` needs a letter")?;
                Item::Letter(char::from(letter as u8 % 32))
            }
            'x' => Item::Letter(self.hex(2)?),
            'u' => Item::Letter(self.unicode()?),
            c if c.is_ascii_alphanumeric() => return Err(format!("`\\{c}` is not in ECMA-262")),
            c => Item::Letter(c),
        })
    }

    fn digits(&mut self, count: usize) -> Result<u32, String> {
        let mut value = 0;
        for _ in 0..count {
            let digit = self.chars.next().and_then(|c| c.to_digit(16));
            value = value * 16 + digit.ok_or_else(|| format!("expected {count} hexadecimal digits"))?;
        }
        Ok(value)
    }

    fn hex(&mut self, count: usize) -> Result<char, String> {
        let value = self.digits(count)?;
        char::from_u32(value).ok_or_else(|| format!("U+{value:04X} is not a character"))
    }

    fn unicode(&mut self) -> Result<char, String> {
        if self.chars.next_if_eq(&'{').is_some() {
            let text: String = self.chars.by_ref().take_while(|&c| c != '}').collect();
            let value = u32::from_str_radix(&text, 16).ok().and_then(char::from_u32);
            return value.ok_or_else(|| format!("`\\u{{{text}}}` is not a character"));
        }
        let high = self.digits(4)?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| format!("U+{high:04X} is half a character"));
        }
        let pair = (self.chars.next(), self.chars.next());
        let low = if pair == (Some('\\'), Some('u')) {
            self.digits(4)?
        } else {
            0
        };
        let low = low.checked_sub(0xdc00).filter(|&low| low < 0x400);
        let low = low.ok_or_else(|| format!("U+{high:04X} is half a character"))?;
        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + low).ok_or_else(|| "not a character".to_owned())
    }

    /// A class after its opening bracket. Letters are written as codes, so that none has a meaning of its own.
    fn class(&mut self) -> Result<(), String> {
        let mut out = String::from("[");
        if self.chars.next_if_eq(&'^').is_some() {
            out.push('^');
        }
        let empty = out.len();
        loop {
            let item = match self.chars.next() {
                None => return Err("a class has no end".to_owned()),
                Some(']') => break,
                Some('\\') => self.escape(true)?,
                Some(c) => Item::Letter(c),
            };
            let Item::Letter(first) = item else {
                if let Item::Set(set) = item {
                    out.push_str(&set);
                }
                continue;
            };
            out.push_str(&code(first));
            let mut ahead = self.chars.clone();
            if ahead.next() != Some('-') || matches!(ahead.peek(), None | Some(']')) {
                continue;
            }
            self.chars.next();
            let last = match self.chars.next() {
                Some('\\') => self.escape(true)?,
                Some(c) => Item::Letter(c),
                None => return Err("a class has no end".to_owned()),
            };
            match last {
                Item::Letter(last) if first <= last => out.push_str(&format!("-{}", code(last))),
                Item::Letter(last) => return Err(format!("the range {first:?} to {last:?} is backward")),
                Item::Set(_) => return Err("a range ends in a set".to_owned()),
            }
        }
        if out.len() == empty {
            return Err("a class is empty".to_owned());
        }
        out.push(']');
        self.out.push_str(&out);
        Ok(())
    }
}

fn code(c: char) -> String {
    match c.is_ascii_alphanumeric() {
        true => c.to_string(),
        false => format!("\\x{{{:x}}}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn pattern_is_translated() {
        for (from, to) in [
            ("^[a-z_]+$", "^[a-z\\x{5f}]+$"),
            ("a.c", "a[^\\n\\r\\x{2028}\\x{2029}]c"),
            ("[[&&x]", "[\\x{5b}\\x{26}\\x{26}x]"),
            ("[-a]|[a-]", "[\\x{2d}a]|[a\\x{2d}]"),
            ("[\\d-]", "[[0-9]\\x{2d}]"),
            ("(?<year>\\d{4})*?", "(?:[0-9]{4})*"),
            ("a{,3}{b", "a\\{,3\\}\\{b"),
            ("x{2,}?y", "x{2,}y"),
            ("\\/\\u0041\\x41\\-", "\\x{2f}AA\\-"),
            ("[\\u{1f600}\\uD83D\\uDE00]", "[\\x{1f600}\\x{1f600}]"),
            ("\\p{L}\\cJ", "\\p{L}\\x{a}"),
        ] {
            assert_eq!(translate(from).as_deref(), Ok(to), "{from}");
        }
        for bad in [
            "(?=a)", "(?<!a)", "(a)\\1", "\\bword", "(?i)a", "[]", "[^]", "[b-a]", "[a", "\\", "\\q", "\\ud800",
            "(?<n", "(?",
        ] {
            assert!(translate(bad).is_err(), "{bad}");
        }
    }
}
