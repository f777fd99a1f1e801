//! Values that were found somewhere, looked for everywhere: a password has a label once, and none where it is repeated.

use super::detect::Span;
use super::{Kind, labels};
use aho_corasick::{AhoCorasick, MatchKind};

/// The values of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    finder: Option<AhoCorasick>,
    kinds: Vec<Kind>,
}

impl Known {
    pub(super) fn of<'a>(values: impl Iterator<Item = (Kind, &'a str)>) -> Known {
        let forms = values.flat_map(|(kind, value)| {
            let forms = match kind {
                Kind::Key => labels::repeats(value),
                _ => vec![value.to_owned()],
            };
            forms.into_iter().map(move |form| (kind, form))
        });
        let (kinds, values): (Vec<Kind>, Vec<String>) = forms.filter(|(kind, form)| stands_out(*kind, form)).unzip();
        // Building fails for more than 4 GiB of values; what has a form is found without it.
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(values)
            .ok()
            .filter(|_| !kinds.is_empty());
        Known { finder, kinds }
    }

    /// Adds the values in a text that lie between what was found there by its form.
    pub(super) fn add(&self, text: &str, found: &mut Vec<Span>) {
        let Some(finder) = &self.finder else { return };
        let bytes = text.as_bytes();
        let mut more = Vec::new();
        let mut spans = found.iter().peekable();
        for value in finder.find_iter(text) {
            let (start, end) = (value.start(), value.end());
            while spans.next_if(|span| span.end <= start).is_some() {}
            if spans.peek().is_some_and(|span| span.start < end) {
                continue;
            }
            let kind = self.kinds[value.pattern().as_usize()];
            // A number within a longer one is another number; a key is itself within anything.
            let within = |at: usize| {
                let word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
                at > 0 && word(at - 1) && word(at)
            };
            let long = matches!(kind, Kind::Key | Kind::Jwt) && end - start >= 8;
            if long || !(within(start) || within(end)) {
                more.push(Span { kind, start, end });
            }
        }
        if !more.is_empty() {
            found.extend(more);
            found.sort_unstable_by_key(|span| span.start);
        }
    }
}

/// Whether a value is no word that a text has for other reasons, as `string` behind `password:` in the description of a tool.
fn stands_out(kind: Kind, value: &str) -> bool {
    let value = labels::core(value);
    let plain = value.chars().all(char::is_alphabetic) && !value.chars().skip(1).any(char::is_uppercase);
    let length = value.chars().count();
    match kind {
        Kind::Placeholder | Kind::Position => false,
        _ if plain => length >= 12,
        _ => length >= 4,
    }
}
