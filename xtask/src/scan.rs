//! Just enough of Rust's lexical rules to tell code from comments and literals.

/// `text` with every comment and the content of every string and character literal replaced by spaces. Lines stay
/// where they are.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_comment(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment(bytes, at),
            b'"' => string(bytes, at),
            b'r' | b'b' | b'c' if !follows_word(bytes, at) => match raw_string(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => match character(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Whole literals and comments were replaced, so no character was cut.
    String::from_utf8_lossy(&out).into_owned()
}

/// `code` up to the first test module.
pub fn without_test_module(code: &str) -> &str {
    let start = code
        .match_indices("#[cfg(test)]")
        .find(|(at, _)| {
            code[*at..]
                .lines()
                .skip(1)
                .map(str::trim)
                .find(|l| !l.is_empty() && !l.starts_with("#["))
                .is_some_and(|l| l.starts_with("mod ") || l.starts_with("pub(crate) mod "))
        })
        .map(|(at, _)| at);
    &code[..start.unwrap_or(code.len())]
}

/// Lines (from 1) of `code` in which `word` stands as a whole word.
pub fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.lines()
        .zip(1..)
        .filter(|(line, _)| {
            line.match_indices(word).any(|(at, _)| {
                !is_word(line[..at].chars().next_back()) && !is_word(line[at + word.len()..].chars().next())
            })
        })
        .map(|(_, number)| number)
        .collect()
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn line_comment(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(bytes.len(), |n| at + n)
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn string(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// The end of `r"..."`, `r#"..."#`, `br"..."`, `cr"..."`, `b"..."`, `c"..."`; `None` where none begins here.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut i = at;
    if matches!(bytes[i], b'b' | b'c') {
        i += 1;
        if bytes.get(i) == Some(&b'"') {
            return Some(string(bytes, i));
        }
    }
    if bytes.get(i) != Some(&b'r') {
        return None;
    }
    i += 1;
    let hashes = bytes[i..].iter().take_while(|&&b| b == b'#').count();
    i += hashes;
    if bytes.get(i) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let found = bytes[i + 1..].windows(end.len()).position(|w| w == end);
    Some(found.map_or(bytes.len(), |n| i + 1 + n + end.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn character(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at + 1..];
    if rest.first() == Some(&b'\\') {
        let close = rest.iter().skip(2).position(|&b| b == b'\'')?;
        return Some(at + 1 + 2 + close + 1);
    }
    let length = std::str::from_utf8(rest.get(..rest.len().min(4))?)
        .unwrap_or_else(|e| std::str::from_utf8(&rest[..e.valid_up_to()]).unwrap_or_default())
        .chars()
        .next()?
        .len_utf8();
    (rest.get(length) == Some(&b'\'')).then_some(at + 1 + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_only_blanks_comments_and_literals() {
        let cases = [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            ("f(\"unsafe \\\" x\") + 1", "f(             ) + 1"),
            ("r#\"a \" b\"# c", "           c"),
            ("b\"x\" r\"y\" var", "          var"),
            ("'\"' 'a' '\\'' <'a>", "             <'a>"),
            ("&'static str", "&'static str"),
            ("'é' x", "     x"),
            ("for r in b {}", "for r in b {}"),
            ("\"open", "     "),
        ];
        for (text, want) in cases {
            assert_eq!(code_only(text), want, "{text}");
        }
        // The whole of this file survives, line by line.
        let this = include_str!("scan.rs");
        assert_eq!(code_only(this).lines().count(), this.lines().count());
    }

    #[test]
    fn without_test_module_cuts_there_only() {
        let code = "#[cfg(test)]\nfn probe() {}\nfn a() {}\n#[cfg(test)]\n#[path = \"t\"]\nmod tests {\n}\n";
        assert_eq!(without_test_module(code), "#[cfg(test)]\nfn probe() {}\nfn a() {}\n");
        assert_eq!(without_test_module("fn a() {}"), "fn a() {}");
    }

    #[test]
    fn lines_with_word_wants_the_whole_word() {
        assert_eq!(
            lines_with_word("unsafe {\nunsafe_op\nx(unsafe{})\nnotunsafe", "unsafe"),
            [1, 3]
        );
    }
}
