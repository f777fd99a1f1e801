//! Addresses of email, also in scripts whose words have no spaces around them.

use super::Kind;
use super::detect::Span;

/// Top-level names of such scripts: an address in a sentence ends with one of them.
const TOPS: &[&str] = &[
    "公司",
    "中国",
    "中國",
    "网络",
    "網絡",
    "香港",
    "台湾",
    "台灣",
    "新加坡",
    "商城",
    "网址",
    "网店",
    "中文网",
    "公益",
    "政务",
    "机构",
    "组织机构",
    "在线",
    "移动",
    "集团",
    "世界",
    "企业",
    "商店",
    "信息",
    "みんな",
    "コム",
    "クラウド",
    "ストア",
    "セール",
    "한국",
    "닷컴",
    "닷넷",
    "ไทย",
    "คอม",
];

/// Bytes of the top-level name that a run of letters begins with.
fn of_top(run: &str) -> usize {
    let known = TOPS
        .iter()
        .filter(|top| run.starts_with(**top))
        .map(|top| top.len())
        .max();
    known.unwrap_or(run.len())
}

/// A script whose words have no spaces around them, and how many of its letters a name has at most.
fn script(c: char) -> Option<(u8, usize)> {
    Some(match c {
        '\u{3040}'..='\u{309f}' => (0, 12),
        '\u{30a0}'..='\u{30ff}' => (1, 16),
        '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{3134f}' => (2, 6),
        '\u{ac00}'..='\u{d7af}' => (3, 12),
        _ if c.is_alphanumeric() => (4, 24),
        // Vowel signs and tones.
        '\u{900}'..='\u{fff}' => (4, 24),
        _ => return None,
    })
}

/// The letters of one such script before an `@`: not all of them, as a sentence may run into the address.
fn unspaced(before: &str) -> usize {
    let Some((last, most)) = before.chars().next_back().and_then(script) else {
        return 0;
    };
    let same = |c: &char| script(*c).is_some_and(|(script, _)| script == last) && !is_local(*c);
    before
        .chars()
        .rev()
        .take(most)
        .take_while(same)
        .map(char::len_utf8)
        .sum()
}

/// Whether a character may stand before the `@`: not those of scripts whose words have no spaces around them.
fn is_local(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || "._%+'-".contains(c)
        || matches!(c, '\u{c0}'..='\u{24f}' | '\u{370}'..='\u{6ff}' | '\u{900}'..='\u{97f}' | '\u{10a0}'..='\u{10ff}')
}

/// Bytes of what stands before an `@`.
fn local(before: &str) -> usize {
    let quoted = before.strip_suffix('"').and_then(|inside| {
        let from = inside
            .char_indices()
            .rev()
            .take(64)
            .find(|(_, c)| matches!(c, '"' | '\n'));
        from.filter(|(_, c)| *c == '"').map(|(at, _)| before.len() - at)
    });
    let plain = || {
        before
            .chars()
            .rev()
            .take(64)
            .take_while(|c| is_local(*c))
            .map(char::len_utf8)
            .sum()
    };
    match quoted.unwrap_or_else(plain) {
        0 => unspaced(before),
        local => local,
    }
}

/// Addresses around each `@`, as the words of some scripts have no spaces around them.
pub(super) fn all(text: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, sign) in text.match_indices('@') {
        let floor = spans.last().map_or(0, |span| span.end);
        if at < floor {
            continue;
        }
        let local = local(&text[floor..at]);
        let start = at - local;
        let behind = at + sign.len();
        let mut domain = 0;
        let mut labels = Vec::new();
        let mut unspaced = false;
        for c in text[behind..].chars().take(253) {
            match c {
                '.' => labels.push(domain),
                '-' => {}
                // A part of a name is of scripts with spaces or of those without; what follows the name is another word.
                c if c.is_alphanumeric() => {
                    let first = domain == 0 || labels.last().is_some_and(|dot| dot + 1 == domain);
                    unspaced = if first { !is_local(c) } else { unspaced };
                    if unspaced == is_local(c) {
                        break;
                    }
                }
                _ => break,
            }
            domain += c.len_utf8();
        }
        // The end of a sentence belongs to it, not to the address.
        let name = text[behind..behind + domain].trim_end_matches(['.', '-']);
        let top = labels
            .iter()
            .rev()
            .find(|dot| **dot < name.len())
            .map(|dot| &name[dot + 1..]);
        let well_formed = top
            .is_some_and(|top| top.chars().count() >= 2 && top.chars().all(|c| c.is_alphanumeric() || c == '-'))
            && top.is_some_and(|top| top.chars().any(char::is_alphabetic));
        let name = top.map_or(name, |top| &name[..name.len() - top.len() + of_top(top)]);
        // The user of a repository, who is nobody: `git@host:owner/name`.
        let rest = &text[behind + name.len()..];
        let repository = text[start..at].eq_ignore_ascii_case("git") && rest.starts_with([':', '/']);
        if local > 0 && well_formed && !repository {
            spans.push(Span {
                kind: Kind::Email,
                start,
                end: behind + name.len(),
            });
        }
    }
    spans
}
